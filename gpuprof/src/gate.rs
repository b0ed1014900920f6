//! `gate`: recorded runs compared with a baseline.

use profiler_core::gate::Gate;
use profiler_core::testing::ci::CiReport;

use crate::args::{GateArgs, GateFormat};
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::tables::write_json;

pub(crate) fn gate(args: GateArgs) -> Result<(), Failure> {
    let mut inputs: Vec<_> = args.files.iter().map(|file| file.as_path()).collect();
    inputs.push(&args.baseline);
    let output = Output::new(args.output.output, &inputs)?;
    let gate = Gate::new(&args.baseline)
        .update(args.update)
        .minimum_effect(args.minimum_effect / 100.0)
        .error_rate(args.error_rate / 100.0)
        .build(&args.build);
    let gate = args.ignore_times.iter().fold(gate, |gate, name| gate.ignore_times(name));
    let runs = args.files.iter().map(|file| input::profile(file));
    let verdict = gate.judge(&runs.collect::<Result<Vec<_>, _>>()?)?;
    // A baseline is a file of the repository.
    let baseline = args.baseline.display().to_string();
    let report = || CiReport::from(&verdict).named(&*baseline).at(&baseline, 1);
    output.write(|out| {
        let text = match args.format {
            GateFormat::Json => return write_json(out, &verdict),
            GateFormat::Text => format!("{verdict}\n"),
            GateFormat::Markdown => verdict.to_markdown(),
            GateFormat::Junit => report().to_junit(),
            GateFormat::Github => report().to_github(),
            GateFormat::Bencher => report().to_bencher(),
            GateFormat::BenchmarkAction => report().to_benchmark_action(),
        };
        Ok(out.write_all(text.as_bytes())?)
    })?;
    match (verdict.is_pass(), verdict.is_undecided()) {
        (true, _) => Ok(()),
        (_, true) => Err(Failure::Gate(format!(
            "{} cannot be decided on so few runs, which counts as a failure; files: {}",
            args.baseline.display(),
            verdict.runs()
        ))),
        _ => Err(Failure::Gate(format!(
            "{}: counts differ or times are slower than the baseline's",
            args.baseline.display()
        ))),
    }
}
