//! The result of a gate, as text and Markdown.

use std::fmt::{self, Write as _};
use std::time::Duration;

use profiler_base::units::{self, MESSAGE_WIDTH, NAME_WIDTH, shortened};
use profiler_base::{getters, named_variants};
use serde::Serialize;

use super::baseline::UPDATE;
use super::run::{EVERYTHING, OUTSIDE};
use crate::analyze::compare::{Undecidable, WallChange, span};

/// The maximum changes of each outcome in a text.
const NAMED: usize = 20;

named_variants! {
    /// The kind of a time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum TimeKind {
        /// The wall time of a session, as [`WallChange`](crate::compare::WallChange) measures it.
        /// Fails if it is certainly slower, and may be undecided unless the gate is strict.
        Wall = "wall time",
        /// The host's time in a range, summed over instances. Fails if it is certainly slower, and
        /// may be undecided.
        Host = "host time",
        /// The time in which the GPU worked for a range. Fails if it is certainly slower, and may
        /// be undecided.
        Busy = "busy time",
        /// The times of all kernels of a range, summed.
        Kernels = "kernel time",
        /// The time of one kernel.
        Kernel = "kernel",
    }
}

/// The outcome for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Not slower by the minimum effect or more.
    Same,
    /// Faster by the minimum effect or more.
    Faster,
    /// Slower by the minimum effect or more, while the wall time certainly fell.
    Trade,
    /// Not decided, and not required: the wall time, the host time or busy time of a range, or any
    /// time if the wall time certainly fell.
    Noisy,
    /// Slower by the minimum effect or more.
    Slower,
    /// Undecided after the maximum of runs. Fails the gate.
    Undecided,
}

impl Outcome {
    /// True if the outcome passes the gate.
    pub fn is_pass(self) -> bool {
        !matches!(self, Self::Slower | Self::Undecided)
    }
}

/// The outcome for a count that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CountOutcome {
    /// Fell, moved to another range, or has no cost.
    Allowed,
    /// Grew, although the wall time certainly fell.
    Trade,
    /// Grew, or differs in any way with [`strict`](crate::gate::Gate::strict).
    Failed,
}

/// A count that differs from the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CountChange {
    /// The path of the range.
    pub range: String,
    /// `launches`, `copies` and so on, or a kernel with grid and block: `gemm <128, 256>`.
    pub what: String,
    /// The minimum and maximum over the runs of the baseline.
    pub before: (u64, u64),
    /// The minimum and maximum over the new runs.
    pub after: (u64, u64),
    /// The outcome.
    pub outcome: CountOutcome,
}

impl fmt::Display for CountChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.before, self.after) {
            ((0, 0), _) => "new: ",
            (_, (0, 0)) => "gone: ",
            _ => "",
        };
        let (range, what) = (shortened(&self.range, NAME_WIDTH), shortened(&self.what, NAME_WIDTH));
        write!(f, "{how}{what} in {range}: {} -> {}", span(self.before), span(self.after))
    }
}

/// A time compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeChange {
    /// The kind of time.
    pub of: TimeKind,
    /// The path of the range; ranges within it are included.
    pub range: String,
    /// The kernel with grid and block, launched directly in this range.
    pub kernel: Option<String>,
    pub(super) before_ns: f64,
    pub(in crate::check) after_ns: f64,
    /// The factor of the change: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// The lower bound at the confidence of the look; 0 with too few runs.
    pub low: f64,
    /// The upper bound; `None` with too few runs.
    pub high: Option<f64>,
    /// True if the bounds follow from the variation between runs; for wall times, between
    /// processes. For the wall time of few processes a variation is assumed:
    /// [`WallChange::assumed_variation`](crate::compare::WallChange::assumed_variation).
    pub is_measured: bool,
    /// The factor from which the time is slower.
    pub limit: f64,
    /// The number of runs at the decision; for a wall time or host time, of processes.
    pub runs: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl TimeChange {
    /// The median over the runs of the baseline, in whole nanoseconds.
    pub fn before(&self) -> Duration {
        units::duration(self.before_ns)
    }

    /// The median over the new runs, in whole nanoseconds.
    pub fn after(&self) -> Duration {
        units::duration(self.after_ns)
    }
}

impl fmt::Display for TimeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| units::change(ratio, 2);
        match (self.of, &self.kernel) {
            (TimeKind::Wall, _) => write!(f, "{}", self.of)?,
            (_, Some(kernel)) => write!(
                f,
                "{} in {}",
                shortened(kernel, NAME_WIDTH),
                shortened(&self.range, NAME_WIDTH)
            )?,
            _ => write!(f, "{}", self.summed())?,
        }
        let (before, after) = (units::time(self.before()), units::time(self.after()));
        write!(f, ": {before} -> {after}, {} (", percent(self.ratio))?;
        match self.high {
            Some(high) => {
                write!(f, "{} to {}", percent(self.low), percent(high))?;
                if !self.is_measured {
                    f.write_str(" by an assumption")?;
                }
            }
            None => f.write_str("too few runs for bounds")?,
        }
        write!(f, "; limit {})", percent(self.limit))
    }
}

impl TimeChange {
    /// The subject of a sum over a range.
    fn summed(&self) -> String {
        let of = match self.of {
            TimeKind::Kernels => "all kernels".to_owned(),
            of => of.to_string(),
        };
        match &*self.range {
            EVERYTHING => of,
            OUTSIDE => format!("{of} outside any range"),
            range => format!("{of} in {}", shortened(range, NAME_WIDTH)),
        }
    }
}

/// The result of a [`Gate`](crate::gate::Gate). `{}` is text for a log; JSON contains all fields.
#[derive(Debug, Clone, Serialize)]
pub struct GateVerdict {
    pub(super) baseline: String,
    pub(super) machine: String,
    pub(super) is_written: bool,
    pub(super) runs: u64,
    pub(super) most_runs: u64,
    pub(super) error_rate: f64,
    pub(super) minimum_effect: f64,
    pub(super) wall_effect: f64,
    pub(super) counts: Vec<CountChange>,
    pub(super) times: Vec<TimeChange>,
    pub(super) wall: Option<WallChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) undecidable: Option<Undecidable>,
    pub(super) runs_needed: Option<u64>,
    pub(super) notes: Vec<String>,
    /// The reason why the baseline decides nothing; also among the notes.
    #[serde(skip)]
    pub(super) too_few: Option<String>,
}

impl GateVerdict {
    /// True if nothing is worse than the baseline and everything required is decided. Also true if
    /// the baseline was written.
    pub fn is_pass(&self) -> bool {
        self.undecidable.is_none()
            && !self.has_failed_count()
            && self.times.iter().all(|time| time.outcome.is_pass())
    }

    fn has_failed_count(&self) -> bool {
        self.counts.iter().any(|count| count.outcome == CountOutcome::Failed)
    }

    /// True if nothing is certainly worse, but some time is undecided, or if the runs did other
    /// work ([`undecidable`](Self::undecidable)). The gate does not pass.
    pub fn is_undecided(&self) -> bool {
        if self.undecidable.is_some() {
            return true;
        }
        let mut failed = self.times.iter().filter(|time| !time.outcome.is_pass()).peekable();
        !self.has_failed_count()
            && failed.peek().is_some()
            && failed.all(|time| time.outcome == Outcome::Undecided)
    }

    getters! {
        /// True if the baseline was written instead of compared.
        is_written: bool = is_written;
        /// The number of runs made or judged.
        runs: u64 = runs;
        /// The counts that differ from the baseline.
        counts: &[CountChange] = counts;
        /// Every judged time, the wall time first.
        times: &[TimeChange] = times;
        /// The change of the wall time, with the ranges and causes that explain it. `None` if the
        /// baseline was written, or has no wall time.
        wall: Option<&WallChange> = wall.as_ref();
        /// The reason why the runs did other work than the baseline, if so. No number of runs
        /// decides then.
        undecidable: Option<&Undecidable> = undecidable.as_ref();
        /// The runs that would probably decide all undecided times. `None` if nothing is undecided,
        /// or if more than 64 would be needed.
        runs_needed: Option<u64> = runs_needed;
        /// Notes on clocks and on the baseline.
        notes: &[String] = notes;
    }

    /// Markdown for a comment on a pull request.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("### GPU gate: {}\n\n{OF_WHOLE_RUNS}\n", self.headline());
        for (title, lines) in self.sections() {
            let _ = write!(text, "\n**{title}**\n\n");
            for line in lines.iter().take(NAMED) {
                let _ = writeln!(text, "- {}", profiler_base::text::markdown(line));
            }
            if lines.len() > NAMED {
                let _ = writeln!(text, "- and {} more", lines.len() - NAMED);
            }
        }
        text
    }

    /// The changes and notes by title, without empty sections. The largest changes come first.
    fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        let counts = |outcome| {
            let of = self.counts.iter().filter(move |count| count.outcome == outcome);
            of.map(ToString::to_string)
        };
        let times = |outcome: Outcome| {
            let mut times: Vec<_> = self.times.iter().filter(|of| of.outcome == outcome).collect();
            let change = |time: &TimeChange| (time.after_ns - time.before_ns).abs();
            times.sort_by(|a, b| change(b).total_cmp(&change(a)));
            times.into_iter().map(ToString::to_string)
        };
        let mut sections: Vec<(_, Vec<String>)> = vec![
            ("Counts that grew", counts(CountOutcome::Failed).collect()),
            ("Slower", times(Outcome::Slower).collect()),
            ("Undecided, which counts as a failure", times(Outcome::Undecided).collect()),
            (
                "A trade for less wall time, which passes",
                times(Outcome::Trade).chain(counts(CountOutcome::Trade)).collect(),
            ),
            ("Faster", times(Outcome::Faster).collect()),
            ("Other counts that differ, which passes", counts(CountOutcome::Allowed).collect()),
            ("Notes", self.notes.clone()),
        ];
        if let Some(wall) = &self.wall {
            let explained = std::iter::once(wall.headline()).chain(wall.lines());
            sections.insert(0, ("Wall time", explained.collect()));
        }
        sections.retain(|(_, lines)| !lines.is_empty());
        sections
    }

    fn headline(&self) -> String {
        let runs = if self.runs == 1 { "1 run".to_owned() } else { format!("{} runs", self.runs) };
        if self.is_written {
            return format!("baseline written from {runs}");
        }
        if let Some(why) = &self.undecidable {
            return format!("failed, undecided after {runs}: {why}");
        }
        let of = |outcome| self.times.iter().filter(|time| time.outcome == outcome).count();
        let (slower, undecided) = (of(Outcome::Slower), of(Outcome::Undecided));
        let grew = self.counts.iter().filter(|count| count.outcome == CountOutcome::Failed).count();
        let verdict = match (self.is_pass(), self.is_undecided()) {
            (true, _) => "passed",
            (_, true) => "failed, undecided",
            _ => "failed",
        };
        format!(
            "{verdict} after {runs}: {grew} counts grew, {slower} of {} times are slower, {undecided} undecided",
            self.times.len(),
        )
    }
}

/// The scope of a gate.
const OF_WHOLE_RUNS: &str = "counts and times are of whole runs: start-up and teardown included";

/// Text of files, shortened to a line of a message.
fn line(text: &str) -> String {
    shortened(text, MESSAGE_WIDTH)
}

impl fmt::Display for GateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gate {}: {}\n  on {}\n  {OF_WHOLE_RUNS}",
            line(&self.baseline),
            self.headline(),
            line(&self.machine)
        )?;
        for (title, lines) in self.sections() {
            write!(f, "\n{}:", title.to_lowercase())?;
            lines.iter().take(NAMED).try_for_each(|line| write!(f, "\n  {}", self::line(line)))?;
            if lines.len() > NAMED {
                write!(f, "\n  and {} more", lines.len() - NAMED)?;
            }
        }
        // The reason why runs cannot be compared includes the advice.
        if self.is_pass() || self.undecidable.is_some() {
            return Ok(());
        }
        f.write_str("\nadvice: ")?;
        if self.is_undecided() {
            if let Some(why) = &self.too_few {
                return f.write_str(&line(why));
            }
            let runs = match self.runs_needed {
                Some(runs) => format!("make {runs} runs, which would probably decide"),
                None => format!("allow more runs than {}", self.most_runs),
            };
            return write!(
                f,
                "{runs}, make a run longer, quiet the machine or fix its clocks, or set a \
                 greater effect than {:.1} % ({:.1} % of wall time)",
                100.0 * self.minimum_effect,
                100.0 * self.wall_effect,
            );
        }
        write!(f, "if it is intended, rewrite the baseline with {UPDATE}, and have it reviewed")
    }
}
