//! `gate`: compares recorded runs with a baseline.

use std::io::Write as _;

use profiler_analysis::gate::{Gate, GateVerdict, Outcome, TimeChange, TimeKind};
use profiler_core::testing::ci::CiReport;

use crate::args::{GateArgs, GateFormat, OutputFormat as _};
use crate::failure::Failure;
use crate::input;
use crate::output::{Output, write_json};

pub(crate) fn gate(args: GateArgs) -> Result<(), Failure> {
    let mut inputs: Vec<_> = args.files.iter().map(|file| file.as_path()).collect();
    inputs.push(&args.baseline);
    let (output, format) = (Output::new(args.output.output, &inputs)?, args.format.get());
    let gate = Gate::new(&args.baseline)
        .update(args.update)
        .minimum_effect(args.minimum_effect / 100.0)
        .wall_effect(args.wall_effect / 100.0)
        .strict(args.strict)
        .any_work(args.any_work)
        .error_rate(args.error_rate / 100.0)
        .build(&args.build);
    let gate = args.ignore_times.iter().fold(gate, |gate, name| gate.ignore_times(name));
    let runs = args.files.iter().map(|file| input::profile(file));
    let verdict = gate.judge(&runs.collect::<Result<Vec<_>, _>>()?)?;
    // CI can annotate the baseline because it is a file of the repository.
    let baseline = args.baseline.display().to_string();
    let report = || CiReport::from(&verdict).named(&*baseline).at(&baseline, 1);
    output.write_in(format.is_for_people(), |out| {
        let text = match format {
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
        (_, true) => Err(Failure::Gate(undecided(&verdict, &baseline))),
        _ => Err(Failure::Gate(worse(&verdict, &baseline))),
    }
}

fn undecided(verdict: &GateVerdict, baseline: &str) -> String {
    if let Some(why) = verdict.undecidable() {
        return format!(
            "{baseline} cannot be compared with these runs, which counts as a failure: {why}"
        );
    }
    let runs = verdict.runs();
    let what_to_do = match verdict.runs_needed() {
        Some(needed) if needed > runs => {
            format!("record {needed} runs, and give all of their files")
        }
        _ => "write the baseline from more runs, make a run longer, or set a greater effect"
            .to_owned(),
    };
    format!(
        "{baseline} cannot be decided on so few runs, which counts as a failure; files: {runs}; {what_to_do}"
    )
}

fn worse(verdict: &GateVerdict, baseline: &str) -> String {
    let is_slower = |time: &&TimeChange| time.outcome == Outcome::Slower;
    let is_wall = verdict.times().iter().filter(is_slower).any(|time| time.of == TimeKind::Wall);
    match verdict.wall().filter(|_| is_wall) {
        Some(wall) => format!("{baseline}: {}", wall.headline()),
        None => format!("{baseline}: counts grew or times are slower than the baseline's"),
    }
}
