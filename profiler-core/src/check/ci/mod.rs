//! Results of checks in the formats of CI systems. [`CiReport`] has an example.

mod github;
mod junit;
mod markdown;
mod metrics;
mod test_reports;

use std::collections::HashMap;
use std::time::Duration;

use profiler_base::text::{printable, shortened};
use profiler_base::{getters, setters};

/// The checks and metrics of one test or gate.
///
/// ```
/// use profiler_core::testing::ci::{Check, CheckOutcome, CiReport, CiMetric};
///
/// let check = Check::new("step: kernels", CheckOutcome::Failed).message("18, the budget is 16");
/// let report = CiReport::new("forward_is_lean")
///     .check(check.at("tests/lean.rs", 12))
///     .metric(CiMetric::new("step: GPU time", "ns", 1250.0).bounds(1240.0, 1262.0));
/// assert_eq!(
///     report.to_github(),
///     "::error file=tests/lean.rs,line=12,title=step%3A kernels::18, the budget is 16\n"
/// );
/// ```
///
/// [`Violations`](crate::budget::Violations), and the verdict of a gate of `profiler_analysis`,
/// convert into a report; [`Expect::report`](crate::budget::Expect::report) also has the satisfied
/// budgets. Tests write their reports automatically if the environment variable `GPU_TEST_REPORTS`
/// or `GITHUB_ACTIONS` is set; `docs/guide/ci.md` of the repository has workflows.
///
/// All formats have printable text. Names have at most 1024 characters: in a longer name, a
/// checksum replaces the middle, so that it stays unique.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct CiReport {
    suite: String,
    checks: Vec<Check>,
    metrics: Vec<CiMetric>,
    notes: Vec<String>,
    duration: Option<Duration>,
}

/// The outcome of a [`Check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckOutcome {
    /// The check passed.
    Passed,
    /// The check failed.
    Failed,
    /// Not determined by the measurement. Counts as a failure; an `error` in JUnit.
    Undecided,
    /// Not checked, such as without a GPU.
    Skipped,
}

impl CheckOutcome {
    /// True for [`Failed`](Self::Failed) and [`Undecided`](Self::Undecided).
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Undecided)
    }
}

/// One check of a [`CiReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Check {
    name: String,
    outcome: CheckOutcome,
    message: String,
    location: Option<(String, u32)>,
}

impl Check {
    /// A check without a message and a location.
    pub fn new(name: impl Into<String>, outcome: CheckOutcome) -> Self {
        Self { name: name.into(), outcome, message: String::new(), location: None }
    }

    setters! {
        /// The reason for the outcome, of one line or several.
        message(message: impl Into<String>) message = message.into();
        /// The source file and the line, from 1, to which an annotation is attached. GitHub needs a
        /// path relative to the root of the repository.
        at(file: impl Into<String>, line: u32) location = Some((file.into(), line));
    }

    getters! {
        /// The range and the quantity, such as `step/forward: kernels`.
        name: &str = name;
        /// The outcome.
        outcome: CheckOutcome = outcome;
    }
}

/// A measured value of a [`CiReport`]. Smaller is better.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct CiMetric {
    name: String,
    unit: String,
    value: f64,
    bounds: Option<(f64, f64)>,
    details: String,
}

impl CiMetric {
    /// A value without bounds. Values that are not finite are omitted from all formats.
    pub fn new(name: impl Into<String>, unit: impl Into<String>, value: f64) -> Self {
        let (name, unit) = (name.into(), unit.into());
        Self { name, unit, value, bounds: None, details: String::new() }
    }

    setters! {
        /// The confidence bounds of the value; ignored if one is not finite.
        bounds(low: f64, high: f64) bounds =
            (low.is_finite() && high.is_finite()).then_some((low, high));
        /// A line of explanation.
        details(details: impl Into<String>) details = details.into();
    }
}

impl CiReport {
    /// A report without checks.
    pub fn new(suite: impl Into<String>) -> Self {
        Self { suite: suite.into(), ..Self::default() }
    }

    setters! {
        /// Adds a check.
        check(check: Check) checks += check;
        /// Adds a metric.
        metric(metric: CiMetric) metrics += metric;
        /// The wall-clock time of all checks together.
        lasting(duration: Duration) duration = Some(duration);
        /// Adds a note, which is not a check.
        note(note: impl Into<String>) notes += note.into();
        /// Changes the name of the suite: the test, or the baseline.
        named(suite: impl Into<String>) suite = suite.into();
    }

    /// Sets the location of all checks that have none, as [`Check::at`].
    pub fn at(mut self, file: &str, line: u32) -> Self {
        for check in &mut self.checks {
            check.location.get_or_insert_with(|| (file.to_owned(), line));
        }
        self
    }

    getters! {
        /// The checks in the order in which they were added.
        checks: &[Check] = checks;
    }

    /// True unless a check [failed](CheckOutcome::is_failure).
    pub fn is_pass(&self) -> bool {
        !self.checks.iter().any(|check| check.outcome.is_failure())
    }

    fn count(&self, outcome: CheckOutcome) -> usize {
        self.checks.iter().filter(|check| check.outcome == outcome).count()
    }

    /// The failed checks, then the undecided ones.
    fn failures(&self) -> impl Iterator<Item = &Check> {
        let of = |outcome| self.checks.iter().filter(move |check| check.outcome == outcome);
        of(CheckOutcome::Failed).chain(of(CheckOutcome::Undecided))
    }
}

/// The maximum number of characters of a name, as Bencher allows.
const NAME_WIDTH: usize = 1024;

/// A name as one line of at most [`NAME_WIDTH`] characters.
fn name_of(name: &str) -> String {
    if name.is_empty() {
        return "(no name)".to_owned();
    }
    if name.len() <= NAME_WIDTH || name.chars().count() <= NAME_WIDTH {
        return printable(name).into_owned();
    }
    let checksum = format!(" #{:08x}", crc32fast::hash(name.as_bytes()));
    shortened(name, NAME_WIDTH - checksum.len()) + &checksum
}

/// The names as [`name_of`], each once: a repeated name gets a number.
fn unique_names<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut unique = |name: &str| {
        let name = name_of(name);
        let mut numbered = name.clone();
        while let Some(count) = seen.get_mut(&numbered) {
            *count += 1;
            let suffix = format!(" ({count})");
            numbered = shortened(&name, NAME_WIDTH - suffix.len()) + &suffix;
        }
        seen.insert(numbered.clone(), 1);
        numbered
    };
    names.map(&mut unique).collect()
}

/// The printable lines of a message of at most `width` characters.
fn lines_of(message: &str, width: usize) -> Vec<String> {
    let mut left = width;
    let mut lines = Vec::new();
    for line in message.lines() {
        if left == 0 {
            lines.push("…".to_owned());
            break;
        }
        let line = shortened(line, left);
        left -= line.chars().count().clamp(1, left);
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_repeated_names_remain_unique() {
        let long = |middle: &str| format!("{}{middle}{}", "a".repeat(5000), "b".repeat(5000));
        let (one, other) = (long("1"), long("2"));
        let names = ["k", "k", "k (2)", "", "k\u{1b}", "k\u{1}", &one, &other, &one];
        let unique = unique_names(names.into_iter());
        assert_eq!(unique[..4], ["k", "k (2)", "k (2) (2)", "(no name)"]);
        let different: std::collections::HashSet<_> = unique.iter().collect();
        assert_eq!(different.len(), names.len(), "{unique:?}");
        assert!(unique.iter().all(|name| name.chars().count() <= NAME_WIDTH), "{unique:?}");
        assert_eq!(unique_names([&*other].into_iter())[0], unique[7], "the same in any report");
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(lines_of("a\tb\n\nc\r\n", 100), ["a b", "", "c"]);
        assert_eq!(lines_of("abcdef\nghi\njkl", 8), ["abcdef", "g…", "…"]);
        assert!(lines_of(&"\n".repeat(1000), 5).len() <= 6);
        assert_eq!(lines_of("", 5), [""; 0]);
    }
}
