//! `gpuprof gaps`: reports GPU idle time by cause and range, and what the host waited for
//! meanwhile.

use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::text::printable;
use profiler_base::units::nanoseconds as ns;
use profiler_core::profile::{GpuOperation, HostSampleCounts, HostStack, HostStackCounts};
use profiler_core::query::{Gap, GapSample, GapWait, Gaps, Groups, IdleCause};
use serde::Serialize;

use crate::args::{GapsArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::input;

#[derive(Serialize)]
struct Rows<'a> {
    gaps: u64,
    time_ns: u64,
    causes: Groups<IdleCause<'a>>,
    waits: Groups<GapWait<'a>>,
    stacks: HostStackCounts,
    samples: HostSampleCounts<'a>,
    longest: Vec<LongGap>,
}

/// A gap and the activity of the thread that ended it.
#[derive(Serialize)]
struct LongGap {
    start_ns: u64,
    time_ns: u64,
    before: String,
    after: String,
    /// Functions at the launch that ended the gap, innermost first.
    stack: Vec<String>,
    samples: Vec<Part>,
}

/// The activity of a thread during one part of a gap.
#[derive(Serialize)]
struct Part {
    time_ns: u64,
    state: String,
    /// The sampled functions, innermost first.
    stack: Vec<String>,
}

/// The name of a kernel, or the kind of another operation.
fn name(operation: GpuOperation<'_>) -> String {
    let kernel = operation.as_kernel().map(|kernel| kernel.demangled_name());
    kernel.unwrap_or_else(|| operation.kind().to_string())
}

fn functions(stack: Option<HostStack<'_>>) -> Vec<String> {
    let frames = stack.map(|stack| stack.frames()).unwrap_or_default();
    frames.iter().map(ToString::to_string).collect()
}

impl LongGap {
    fn from_gap(gap: &Gap<'_>) -> Self {
        let part = |sample: &GapSample<'_>| Part {
            time_ns: ns(sample.span.duration()),
            state: sample.state.to_string(),
            stack: functions(sample.stack),
        };
        Self {
            start_ns: ns(gap.span().start),
            time_ns: ns(gap.duration()),
            before: name(gap.before()),
            after: name(gap.after()),
            stack: functions(gap.stack()),
            samples: gap.samples().iter().map(part).collect(),
        }
    }
}

impl fmt::Display for LongGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: u64| format!("{:.1?}", Duration::from_nanos(ns));
        let (after, stack) = (printable(&self.after), |stack: &[String]| match stack {
            [] => "not known".to_owned(),
            stack => stack.join(" < "),
        });
        write!(f, "{} before {after}, ended by {}", time(self.time_ns), stack(&self.stack))?;
        for part in &self.samples {
            write!(f, "\n  {} {}: {}", time(part.time_ns), part.state, stack(&part.stack))?;
        }
        Ok(())
    }
}

struct Text<'a> {
    gaps: &'a Gaps<'a>,
    shortest: Duration,
    rows: &'a Rows<'a>,
}

impl DisplayOptions for Text<'_> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gaps, shortest, rows } = self;
        let shortest = humantime::format_duration(*shortest);
        write!(f, "gaps of {shortest} and more: ")?;
        gaps.write_in(layout, f)?;
        f.write_str("\n\n")?;
        match rows.samples.source {
            Some(_) => {
                f.write_str("waits of the host in them:\n")?;
                rows.waits.write_in(layout, f)?;
                writeln!(f, "\n\n{}", rows.samples)?;
            }
            None => writeln!(
                f,
                "waits of the host in them: not sampled; `gpuprof run --host-samples` does that"
            )?,
        }
        write!(f, "{}", rows.stacks)?;
        rows.longest.iter().try_for_each(|gap| write!(f, "\n\n{gap}"))
    }
}

pub(crate) fn gaps(args: &GapsArgs) -> Result<(), Failure> {
    let (output, is_for_people) = (args.io.output(&[])?, args.format.get().is_for_people());
    let profile = input::profile(&args.io.file)?;
    let gaps = profile.query().gaps(args.shortest);
    let rows = Rows {
        gaps: gaps.count(),
        time_ns: ns(gaps.time()),
        causes: gaps.by_cause(),
        waits: gaps.waits(),
        stacks: profile.host_stacks(),
        samples: profile.host_samples(),
        longest: gaps.longest(args.longest).iter().map(LongGap::from_gap).collect(),
    };
    let text = Text { gaps: &gaps, shortest: args.shortest, rows: &rows };
    output.text_or_json(is_for_people, |out| out.show(&text), &rows)
}
