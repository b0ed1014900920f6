//! What a gate found, as text that says what to do.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::run::{EVERYTHING, OUTSIDE};
use crate::base::units::{self, MESSAGE_WIDTH, NAME_WIDTH, shortened};

/// Changes that a text names, of each sort.
const NAMED: usize = 20;

/// What came of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Not slower by the least effect or more.
    Same,
    /// Faster by the least effect or more.
    Faster,
    /// Slower by the least effect or more.
    Slower,
    /// The runs that were allowed do not tell. Counts as a failure.
    Undecided,
}

impl Outcome {
    /// True for what a gate lets pass.
    pub fn is_pass(self) -> bool {
        matches!(self, Self::Same | Self::Faster)
    }
}

/// A count that is not what the baseline has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CountChange {
    /// The path of the range.
    pub range: String,
    /// `launches`, `copies` and so on, or a kernel with grid and block: `gemm <128, 256>`.
    pub what: String,
    /// The least and the most of a run in the baseline.
    pub before: (u64, u64),
    /// The least and the most of a run now.
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

/// A time beside that of the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeChange {
    /// The path of the range.
    pub range: String,
    /// The kernel with grid and block; `None` for all kernels in the range and within, summed.
    pub kernel: Option<String>,
    /// The median of the runs of the baseline, in nanoseconds.
    pub before_ns: f64,
    /// The median of the runs now.
    pub after_ns: f64,
    /// By what factor it changed, as Hodges and Lehmann estimate it.
    pub ratio: f64,
    /// Not below this, at the confidence of the look; 0 if there were too few runs to say.
    pub low: f64,
    /// Not above this; `None` if there were too few runs to say.
    pub high: Option<f64>,
    /// The factor from which on it is slower.
    pub limit: f64,
    /// Runs that it was decided on.
    pub runs: u64,
    /// What came of it.
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

/// What a [`Gate`](crate::gate::Gate) found. `{}` is text for the log of a test or of CI; as JSON it has all its fields.
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
    /// Why the baseline can decide on nothing; a note, too.
    #[serde(skip)]
    pub(super) too_few: Option<String>,
}

impl Verdict {
    /// True if every count is that of the baseline, and every time was found not to be slower. Also true where the
    /// baseline was written.
    pub fn is_pass(&self) -> bool {
        self.counts.is_empty() && self.times.iter().all(|time| time.outcome.is_pass())
    }

    /// True if nothing is worse for certain, but something could not be decided. That is no pass.
    pub fn is_undecided(&self) -> bool {
        let mut failed = self.times.iter().filter(|time| !time.outcome.is_pass()).peekable();
        self.counts.is_empty()
            && failed.peek().is_some()
            && failed.all(|time| time.outcome == Outcome::Undecided)
    }

    /// True if nothing was compared, because the baseline was to be written.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// Runs that were made, or looked at.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Counts that are not those of the baseline.
    pub fn counts(&self) -> &[CountChange] {
        &self.counts
    }

    /// Every time that was judged.
    pub fn times(&self) -> &[TimeChange] {
        &self.times
    }

    /// What else there is to know: clocks, what the baseline does not say.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A list for a comment on a pull request.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("### GPU gate: {}\n", self.headline());
        let mut list = |title: &str, lines: Vec<String>| {
            if lines.is_empty() {
                return;
            }
            let _ = write!(text, "\n**{title}**\n\n");
            for line in lines.iter().take(NAMED) {
                let _ = writeln!(text, "- {}", crate::base::text::markdown(line));
            }
            if lines.len() > NAMED {
                let _ = writeln!(text, "- and {} more", lines.len() - NAMED);
            }
        };
        list("Counts that differ", self.counts.iter().map(ToString::to_string).collect());
        for (title, outcome) in SORTS {
            list(title, self.lines(outcome));
        }
        list("Notes", self.notes.clone());
        text
    }

    fn lines(&self, outcome: Outcome) -> Vec<String> {
        let mut times: Vec<_> = self.times.iter().filter(|time| time.outcome == outcome).collect();
        times.sort_by(|a, b| {
            let gain = |time: &TimeChange| (time.after_ns - time.before_ns).abs();
            gain(b).total_cmp(&gain(a))
        });
        times.into_iter().map(ToString::to_string).collect()
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

const SORTS: [(&str, Outcome); 3] = [
    ("Slower", Outcome::Slower),
    ("Undecided, which counts as a failure", Outcome::Undecided),
    ("Faster", Outcome::Faster),
];

/// Text of files as a line has room for it.
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
        let mut list = |title: &str, lines: Vec<String>| -> fmt::Result {
            if !lines.is_empty() {
                write!(f, "\n{title}:")?;
            }
            lines.iter().take(NAMED).try_for_each(|line| write!(f, "\n  {}", self::line(line)))?;
            match lines.len().saturating_sub(NAMED) {
                0 => Ok(()),
                more => write!(f, "\n  and {more} more"),
            }
        };
        list("counts that differ", self.counts.iter().map(ToString::to_string).collect())?;
        for (title, outcome) in SORTS {
            list(&title.to_lowercase(), self.lines(outcome))?;
        }
        list("notes", self.notes.clone())?;
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
