//! The result of a gate, as text and Markdown.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::run::{EVERYTHING, OUTSIDE};
use crate::base::accessors::getters;
use crate::base::units::{self, MESSAGE_WIDTH, NAME_WIDTH, shortened};

/// Changes of each outcome in a text.
const NAMED: usize = 20;

/// The outcome for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Not slower by the minimum effect or more.
    Same,
    /// Faster by the minimum effect or more.
    Faster,
    /// Slower by the minimum effect or more.
    Slower,
    /// Undecided after the maximum of runs. Fails the gate.
    Undecided,
}

impl Outcome {
    /// True if the gate passes it.
    pub fn is_pass(self) -> bool {
        matches!(self, Self::Same | Self::Faster)
    }
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
    /// The minimum and maximum over the runs now.
    pub after: (u64, u64),
}

impl fmt::Display for CountChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |(least, most): (u64, u64)| match least == most {
            true => least.to_string(),
            false => format!("{least} to {most}"),
        };
        let how = match (self.before, self.after) {
            ((0, 0), _) => "new: ",
            (_, (0, 0)) => "gone: ",
            _ => "",
        };
        let (range, what) = (shortened(&self.range, NAME_WIDTH), shortened(&self.what, NAME_WIDTH));
        write!(f, "{how}{what} in {range}: {} -> {}", count(self.before), count(self.after))
    }
}

/// A time compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeChange {
    /// The path of the range.
    pub range: String,
    /// The kernel with grid and block; `None` for all kernels in the range and within, summed.
    pub kernel: Option<String>,
    /// The median over the runs of the baseline, in nanoseconds.
    pub before_ns: f64,
    /// The median over the runs now.
    pub after_ns: f64,
    /// The factor of the change: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// The lower bound at the confidence of the look; 0 with too few runs.
    pub low: f64,
    /// The upper bound; `None` with too few runs.
    pub high: Option<f64>,
    /// The factor from which the time is slower.
    pub limit: f64,
    /// The runs at the decision.
    pub runs: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl fmt::Display for TimeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
        let time = |ns: f64| units::time(Duration::from_nanos(ns.round() as u64));
        let range = shortened(&self.range, NAME_WIDTH);
        match &self.kernel {
            Some(kernel) => write!(f, "{} in {range}", shortened(kernel, NAME_WIDTH))?,
            None if self.range == EVERYTHING => write!(f, "all kernels")?,
            None if self.range == OUTSIDE => write!(f, "all kernels outside any range")?,
            None => write!(f, "all kernels in {range}")?,
        }
        let (before, after) = (time(self.before_ns), time(self.after_ns));
        write!(f, ": {before} -> {after}, {} (", percent(self.ratio))?;
        match self.high {
            Some(high) => write!(f, "{} to {}", percent(self.low), percent(high))?,
            None => f.write_str("too few runs for bounds")?,
        }
        write!(f, "; limit {})", percent(self.limit))
    }
}

/// The result of a [`Gate`](crate::gate::Gate). `{}` is text for a log; JSON contains all fields.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub(super) baseline: String,
    pub(super) machine: String,
    pub(super) is_written: bool,
    pub(super) runs: u64,
    pub(super) most_runs: u64,
    pub(super) error_rate: f64,
    pub(super) minimum_effect: f64,
    pub(super) counts: Vec<CountChange>,
    pub(super) times: Vec<TimeChange>,
    pub(super) notes: Vec<String>,
    /// Why the baseline decides nothing; also among the notes.
    #[serde(skip)]
    pub(super) too_few: Option<String>,
}

impl Verdict {
    /// True if all counts equal the baseline and no time is slower, or the baseline was written.
    pub fn is_pass(&self) -> bool {
        self.counts.is_empty() && self.times.iter().all(|time| time.outcome.is_pass())
    }

    /// True if nothing is certainly worse, but some time is undecided. The gate does not pass.
    pub fn is_undecided(&self) -> bool {
        let mut failed = self.times.iter().filter(|time| !time.outcome.is_pass()).peekable();
        self.counts.is_empty()
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
        /// Every judged time.
        times: &[TimeChange] = times;
        /// Notes on clocks and on the baseline.
        notes: &[String] = notes;
    }

    /// Markdown for a comment on a pull request.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("### GPU gate: {}\n", self.headline());
        for (title, lines) in self.sections() {
            let _ = write!(text, "\n**{title}**\n\n");
            for line in lines.iter().take(NAMED) {
                let _ = writeln!(text, "- {}", crate::base::text::markdown(line));
            }
            if lines.len() > NAMED {
                let _ = writeln!(text, "- and {} more", lines.len() - NAMED);
            }
        }
        text
    }

    /// The changes and notes by title, without empty sections. The largest changes come first.
    fn sections(&self) -> Vec<(&'static str, Vec<String>)> {
        let counts = self.counts.iter().map(ToString::to_string).collect();
        let mut sections = vec![("Counts that differ", counts)];
        for (title, outcome) in [
            ("Slower", Outcome::Slower),
            ("Undecided, which counts as a failure", Outcome::Undecided),
            ("Faster", Outcome::Faster),
        ] {
            let times = self.times.iter().filter(|time| time.outcome == outcome);
            let mut times: Vec<_> = times.collect();
            let change = |time: &TimeChange| (time.after_ns - time.before_ns).abs();
            times.sort_by(|a, b| change(b).total_cmp(&change(a)));
            sections.push((title, times.into_iter().map(ToString::to_string).collect()));
        }
        sections.push(("Notes", self.notes.clone()));
        sections.retain(|(_, lines)| !lines.is_empty());
        sections
    }

    fn headline(&self) -> String {
        let runs = if self.runs == 1 { "1 run".to_owned() } else { format!("{} runs", self.runs) };
        if self.is_written {
            return format!("baseline written from {runs}");
        }
        let of = |outcome| self.times.iter().filter(|time| time.outcome == outcome).count();
        let (slower, undecided) = (of(Outcome::Slower), of(Outcome::Undecided));
        let verdict = match (self.is_pass(), self.is_undecided()) {
            (true, _) => "passed",
            (_, true) => "failed, undecided",
            _ => "failed",
        };
        format!(
            "{verdict} after {runs}: {} counts differ, {slower} of {} times are slower, {undecided} undecided",
            self.counts.len(),
            self.times.len(),
        )
    }
}

/// Text of files, shortened to a line of a message.
fn line(text: &str) -> String {
    shortened(text, MESSAGE_WIDTH)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gate {}: {}\n  on {}",
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
        if self.is_pass() {
            return Ok(());
        }
        f.write_str("\nwhat to do: ")?;
        if self.is_undecided() {
            if let Some(why) = &self.too_few {
                return f.write_str(&line(why));
            }
            return write!(
                f,
                "allow more runs than {}, make a run longer, quiet the machine or fix its clocks, or ask for a greater \
                 effect than {:.1} %",
                self.most_runs,
                100.0 * self.minimum_effect
            );
        }
        f.write_str("if it is meant, write the baseline anew with GPU_BASELINES=update and have it reviewed")
    }
}
