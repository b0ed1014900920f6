//! Examples in the help of each command.

use clap::Command;

const EXAMPLES: [(&str, &str); 27] = [
    (
        "report",
        "gpuprof run.gpuprof\ngpuprof report --json run.gpuprof | jq .path\nssh host cat run.gpuprof | gpuprof report -",
    ),
    (
        "top",
        "gpuprof top run.gpuprof\ngpuprof top --of kernels --filter '(?i)gemm' --limit 0 run.gpuprof\ngpuprof top --of api --sort count --json run.gpuprof",
    ),
    (
        "open",
        "gpuprof open run.gpuprof\ngpuprof open --perfetto run.gpuprof\ngpuprof open --firefox run.gpuprof\ngpuprof open -o page.html run.gpuprof",
    ),
    ("flamegraph", "gpuprof flamegraph -o gpu.svg run.gpuprof"),
    (
        "convert",
        "gpuprof convert run.gpuprof run.pftrace\ngpuprof convert run.gpuprof run.sqlite\ngpuprof convert run.gpuprof tables.parquet\ngpuprof convert run.gpuprof run.pb.gz   # pprof\ngpuprof convert --format folded run.gpuprof | inferno-flamegraph > gpu.svg",
    ),
    (
        "stats",
        "gpuprof stats list run.gpuprof\ngpuprof stats cuda_gpu_kern_sum run.gpuprof\ngpuprof stats all --format csv -o all.csv run.gpuprof",
    ),
    (
        "analyze",
        "gpuprof analyze all run.gpuprof\ngpuprof analyze gpu_gaps --gap 0.5 --within step run.gpuprof",
    ),
    (
        "kernels",
        "gpuprof kernels run.gpuprof\ngpuprof kernels --by-range --class 'my_mlp*=gemm' run.gpuprof",
    ),
    ("interference", "gpuprof interference run.gpurun"),
    (
        "steps",
        "gpuprof steps run.gpuprof\ngpuprof steps --range 'epoch/step' --limit 20 run.gpuprof",
    ),
    ("requests", "gpuprof requests --range request --endpoint route run.gpuprof"),
    ("explain", "gpuprof explain --kernel gather run.gpuprof"),
    (
        "lines",
        "gpuprof lines run.gpuprof\ngpuprof lines --range step/forward --kernel gather --source src run.gpuprof\ngpuprof lines --json run.gpuprof | jq .lines[0]",
    ),
    (
        "ranks",
        "gpuprof ranks run.gpurun\ngpuprof ranks --range epoch run.gpurun\ngpuprof ranks --format csv -o collectives.csv run.gpurun",
    ),
    ("tracks", "gpuprof tracks --by-range run.gpuprof"),
    (
        "tensor-cores",
        "gpuprof tensor-cores run.gpuprof\ngpuprof tensor-cores --fail-if-unused run.gpuprof",
    ),
    (
        "scorecard",
        "gpuprof scorecard run.gpuprof\ngpuprof scorecard --fail-on bad --target gpu_busy=0.95,0.7 run.gpuprof",
    ),
    (
        "diagnose",
        "gpuprof diagnose run.gpuprof\ngpuprof diagnose --json run.gpuprof | jq .verdict.bottleneck\ngpuprof diagnose --fail-above 1.25 run.gpuprof",
    ),
    (
        "critical-path",
        "gpuprof critical-path run.gpuprof\ngpuprof critical-path --range step/forward run.gpuprof\ngpuprof critical-path --what-if 'kernel:*gemm*=2' --what-if one-graph:step run.gpuprof",
    ),
    (
        "gaps",
        "gpuprof gaps run.gpuprof\ngpuprof gaps --shortest 1ms --json run.gpuprof | jq .waits\ngpuprof gaps --longest 5 run.gpuprof",
    ),
    (
        "roofline",
        "gpuprof roofline --format svg -o roofline.svg run.gpuprof\ngpuprof roofline --range 'step/gemm:flops=2.1e9,bytes=8e6,dtype=bf16' run.gpuprof",
    ),
    ("html", "gpuprof html -o page.html run.gpuprof"),
    (
        "diff",
        "gpuprof diff before.gpuprof after.gpuprof\ngpuprof diff --before main-*.gpuprof --after branch-*.gpuprof\ngpuprof diff --fail-above 5 --format markdown before.gpuprof after.gpuprof",
    ),
    (
        "gate",
        "gpuprof gate --update baseline.json run-*.gpuprof\ngpuprof gate baseline.json run-*.gpuprof",
    ),
    ("live", "gpuprof live\ngpuprof live train.gpurun\nssh -t host gpuprof live 4711"),
    ("mcp", "gpuprof mcp   # an agent's program starts it"),
    ("doctor", "gpuprof doctor\ngpuprof doctor --require"),
];

/// Puts the examples of a command before what else follows its options.
pub(super) fn add(command: Command) -> Command {
    EXAMPLES.into_iter().fold(command, |command, (name, examples)| {
        command.mut_subcommand(name, |of| {
            let lines: Vec<String> = examples.lines().map(|line| format!("  {line}")).collect();
            let examples = format!("Examples:\n{}", lines.join("\n"));
            let after = match of.get_after_help() {
                Some(after) => format!("{examples}\n\n{after}"),
                None => examples,
            };
            of.after_help(after)
        })
    })
}
