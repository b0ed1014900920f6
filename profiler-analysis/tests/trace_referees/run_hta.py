"""HolisticTraceAnalysis over Kineto traces: `run_hta.py FOLDER STEPS`, or `run_hta.py FOLDER path` for the critical
path alone in each folder in it, in the order of their names.

Prints a line of JSON for each analysis: its name, and what it came to or the error it ended with. STEPS says whether the
traces have ranges called `ProfilerStep#`, which some analyses need.
"""

import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
# Without it, times are rounded to microseconds and short operations last less than nothing.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

folder, has_steps = sys.argv[1], sys.argv[2] == "steps"
hta = None if sys.argv[2] == "path" else TraceAnalysis(trace_dir=folder)


def critical_path(hta=hta, annotation="ProfilerStep"):
    """Nanoseconds by the kind of edge, in the second instance of the range."""
    graph, found = hta.critical_path_analysis(rank=0, annotation=annotation, instance_id=1)
    assert found
    weights = {}
    for edge in graph.critical_path_edges_set:
        weights[edge.type.value] = weights.get(edge.type.value, 0) + 1000 * edge.weight
    return weights


analyses = {
    "temporal": lambda: hta.get_temporal_breakdown(visualize=False).to_dict("records"),
    "kernels": lambda: hta.get_gpu_kernel_breakdown(visualize=False)[1].to_dict("records"),
    "idle": lambda: len(hta.get_idle_time_breakdown(visualize=False)[0]),
    "overlap": lambda: len(hta.get_comm_comp_overlap(visualize=False)),
    "launches": lambda: len(hta.get_cuda_kernel_launch_stats(visualize=False)),
    "queue": lambda: len(hta.get_queue_length_summary()),
    "bandwidth": lambda: hta.get_memory_bw_summary()["memory_bw_gbps"].reset_index().to_dict("records"),
    "full queue": lambda: len(hta.get_time_spent_blocked_on_full_queue({0: hta.get_queue_length_time_series()[0]})),
    "annotations": lambda: hta.get_gpu_user_annotation_breakdown(visualize=False).to_dict("records"),
    "kernels in annotations": lambda: len(hta.get_gpu_kernels_with_user_annotations(rank=0)),
    "steps": lambda: len(hta.get_profiler_steps()),
}
if has_steps:
    analyses["critical path"] = critical_path
if sys.argv[2] == "path":
    folders = sorted(os.listdir(folder))
    traces = {name: os.path.join(folder, name) for name in folders}
    analyses = {
        name: lambda trace=trace: critical_path(TraceAnalysis(trace_dir=trace), "step")
        for name, trace in traces.items()
    }

for name, analysis in analyses.items():
    try:
        said = {"result": analysis()}
    except Exception as error:
        said = {"error": "%s: %s" % (type(error).__name__, str(error)[:300])}
    print(json.dumps({"analysis": name, **said}, default=float))
