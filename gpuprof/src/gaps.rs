//! `gpuprof gaps`: idle times of the GPU by cause and range, and what the host waited for in them.

use std::fmt;
use std::time::Duration;

use profiler_core::profile::{HostSampleCounts, HostStackCounts};
use profiler_core::query::{GapWait, Gaps, Groups, IdleCause};
use serde::Serialize;

use crate::args::{FileArgs, FormatArgs, OutputFormat as _, TextFormat};
use crate::failure::Failure;
use crate::input;
use crate::tables::write_json;

#[derive(Debug, clap::Args)]
pub(crate) struct GapsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs<TextFormat>,
    /// Leave out shorter gaps, as 1ms
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = humantime::parse_duration)]
    pub(crate) shortest: Duration,
    #[command(flatten)]
    pub(crate) io: FileArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct IdleArgs {
    /// The time in which the GPU did nothing, by range, host function and cause, in place of its work: gaps of at least this
    /// length; for flamegraph, folded, pprof and otlp. Functions are those of a run with --stacks [default: 20us]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "20us",
          value_parser = humantime::parse_duration)]
    pub(crate) idle: Option<Duration>,
}

#[derive(Serialize)]
struct Rows<'a> {
    gaps: u64,
    time_ns: u64,
    causes: Groups<IdleCause<'a>>,
    waits: Groups<GapWait<'a>>,
    stacks: HostStackCounts,
    samples: HostSampleCounts<'a>,
}

struct Text<'a> {
    gaps: &'a Gaps<'a>,
    shortest: Duration,
    rows: &'a Rows<'a>,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gaps, shortest, rows } = self;
        let shortest = humantime::format_duration(*shortest);
        writeln!(f, "gaps of {shortest} and more: {gaps:#}\n")?;
        match rows.samples.source {
            Some(_) => {
                writeln!(f, "waits of the host in them:\n{:#}\n\n{}", rows.waits, rows.samples)?
            }
            None => writeln!(
                f,
                "waits of the host in them: not sampled; `gpuprof run --host-samples` does that"
            )?,
        }
        write!(f, "{}", rows.stacks)
    }
}

pub(crate) fn gaps(args: &GapsArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[])?, args.format.get());
    let profile = input::profile(&args.io.file)?;
    let gaps = profile.query().gaps(args.shortest);
    let rows = Rows {
        gaps: gaps.count(),
        time_ns: u64::try_from(gaps.time().as_nanos()).unwrap_or(u64::MAX),
        causes: gaps.by_cause(),
        waits: gaps.waits(),
        stacks: profile.host_stacks(),
        samples: profile.host_samples(),
    };
    output.write_in(format.is_for_people(), |out| match format {
        TextFormat::Text => out.show(&Text { gaps: &gaps, shortest: args.shortest, rows: &rows }),
        TextFormat::Json => write_json(out, &rows),
    })
}
