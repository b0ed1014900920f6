//! What was not kept, as text that says where to look.

use std::fmt::{self, Write as _};

use super::amount::Bounds;
use super::doubt::doubts;
use super::parts::parts;
use super::quantity::Quantity;
use super::scope::{Group, Scope};
use crate::base::text::printable;
use crate::base::units;
use crate::profile::RangeNode;
use crate::show::report;

/// Instances or runs that are named.
const GROUPS: usize = 4;

/// All budgets that were not kept, each with what exceeds it, and the report of every range concerned. `{}` and `{:?}`
/// are both that text, so that a test may return it as its error.
#[derive(Clone)]
pub struct Violations(Vec<Section>);

impl Violations {
    pub(super) fn new(sections: Vec<Section>) -> Self {
        Self(sections)
    }

    /// One by one, in the order the budgets were set; those on completeness where they were asked for.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter().flat_map(|section| &section.violations)
    }
}

/// One budget that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    place: String,
    quantity: String,
    outcome: String,
    is_unknown: bool,
    /// Which instances or runs, and what the amount of the worst is made of.
    lines: Vec<String>,
}

impl Violation {
    /// What the budget was for, such as ``range `forward`, all instances together``.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What the budget was on, such as `kernels`.
    pub fn quantity(&self) -> &str {
        &self.quantity
    }

    /// True if the recording cannot tell whether it was kept.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", printable(&self.quantity), printable(&self.outcome))?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {}", printable(line)))
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.iter().count() {
            1 => write!(f, "1 budget was not kept")?,
            count => write!(f, "{count} budgets were not kept")?,
        }
        self.0.iter().try_for_each(|section| write!(f, "\n\n{section}"))
    }
}

impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violations {}

/// What was found in one scope.
#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    title: String,
    violations: Vec<Violation>,
    report: String,
    /// The run whose report is shown: that of the first violation.
    run: usize,
    /// A budget was set.
    touched: bool,
    /// One of them on the number of instances, which may be none.
    on_instances: bool,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.title))?;
        for violation in &self.violations {
            write!(f, "\n  {}", violation.to_string().replace('\n', "\n  "))?;
        }
        if self.report.is_empty() { Ok(()) } else { write!(f, "\n\n{}", self.report) }
    }
}

impl Section {
    /// One violation that is not an amount.
    fn plain(title: &str, quantity: &str, outcome: String) -> Self {
        let violation = Violation {
            place: title.to_owned(),
            quantity: quantity.to_owned(),
            outcome,
            is_unknown: true,
            lines: Vec::new(),
        };
        Self { title: title.to_owned(), violations: vec![violation], ..Self::default() }
    }

    pub(super) fn nothing() -> Self {
        Self::plain(
            "no profile",
            "budgets",
            "cannot be known: there is no run to look at".to_owned(),
        )
    }

    pub(super) fn incomplete(run: usize, runs: usize, health: String) -> Self {
        let title = match runs {
            1 => "the whole profile".to_owned(),
            _ => format!("run {} of {runs}", run + 1),
        };
        Self::plain(&title, "completeness", format!("something was lost\n  {health}"))
    }

    pub(super) fn is_untouched(&self) -> bool {
        !self.touched
    }

    /// Adds what is to be said of one budget.
    pub(super) fn judge(&mut self, scope: &Scope<'_>, quantity: Quantity, bounds: Bounds) {
        self.touched = true;
        if quantity == Quantity::Instances {
            self.on_instances = true;
        } else if missing_in(scope).is_some() {
            return; // said once, at the end
        }
        let absent: Vec<Group<'_>> = (0..scope.profiles.len()).map(Group::absent).collect();
        // A statistic is over all runs and instances.
        let groups: Vec<Vec<&Group<'_>>> = match quantity {
            Quantity::GpuTimeOf(_) => vec![scope.groups.iter().collect()],
            Quantity::Instances => of_runs(scope, &absent),
            _ => scope.groups.iter().map(|group| vec![group]).collect(),
        };
        let amounts: Vec<u64> = groups.iter().map(|group| quantity.measure(group)).collect();
        let unit = quantity.unit();

        let doubted = groups.iter().zip(&amounts).find_map(|(groups, amount)| {
            groups.iter().find_map(|&group| {
                let doubts = doubts(&quantity, scope, group);
                (!doubts.is_empty()).then_some((group, *amount, doubts))
            })
        });
        if let Some((group, amount, doubts)) = doubted {
            let mut outcome = format!("cannot be known: {}", doubts.join("; "));
            let _ = write!(
                outcome,
                "; {} seen, the budget is {}",
                unit.show(amount),
                bounds.show(unit)
            );
            let lines = some(scope.place_of(group)).map(|place| format!("in {place}"));
            self.add(scope, group.run, &quantity, outcome, true, lines.into_iter().collect());
            return;
        }

        let failed: Vec<(&Vec<&Group<'_>>, u64)> = groups
            .iter()
            .zip(amounts.iter().copied())
            .filter(|(_, amount)| bounds.excess(*amount) != 0)
            .collect();
        let Some((worst, worst_amount)) =
            failed.iter().rev().max_by_key(|(_, amount)| bounds.excess(*amount))
        else {
            return;
        };
        let (low, high) = amounts
            .iter()
            .fold((u64::MAX, 0), |(low, high), &amount| (low.min(amount), high.max(amount)));
        let mut outcome = String::new();
        let mut lines = Vec::new();
        if groups.len() == 1 {
            let _ = write!(outcome, "{}, ", unit.show(*worst_amount));
        } else {
            for (groups, amount) in failed.iter().take(GROUPS) {
                lines.push(format!("{} in {}", unit.show(*amount), place_of(scope, groups)));
            }
            if failed.len() > GROUPS {
                lines.push(format!("and {} more", failed.len() - GROUPS));
            }
            let _ = write!(outcome, "{} of {} not kept, ", failed.len(), groups.len());
        }
        let _ = write!(outcome, "the budget is {}", bounds.show(unit));
        if !matches!(quantity, Quantity::KernelsOtherThan(_)) {
            let _ = write!(outcome, "; {} would pass", bounds.widened(low, high).show(unit));
        }
        let parts = parts(&quantity, worst);
        if groups.len() > 1 && !parts.is_empty() {
            lines.push(format!(
                "of the {} in {}:",
                unit.show(*worst_amount),
                place_of(scope, worst)
            ));
        }
        lines.extend(parts);
        let shared = worst.iter().flat_map(|group| &group.instances);
        let shared: usize = shared.map(|instance| instance.shared.len()).sum();
        if shared != 0 && !matches!(quantity, Quantity::Instances | Quantity::SharedKernels) {
            lines.push(format!(
                "not in it: {shared} GPU operations that it shares with ranges for which they count"
            ));
        }
        let run = worst.first().map_or(0, |group| group.run);
        self.add(scope, run, &quantity, outcome, false, lines);
    }

    fn add(
        &mut self,
        scope: &Scope<'_>,
        run: usize,
        quantity: &Quantity,
        outcome: String,
        is_unknown: bool,
        lines: Vec<String>,
    ) {
        if self.violations.is_empty() {
            self.run = run;
        }
        self.violations.push(Violation {
            place: scope.title(),
            quantity: quantity.name(),
            outcome,
            is_unknown,
            lines,
        });
    }

    /// The section with its head and its report; `None` if all budgets were kept.
    pub(super) fn closed(mut self, scope: &Scope<'_>) -> Option<Self> {
        if let Some(run) = missing_in(scope).filter(|_| !self.on_instances) {
            return Some(missing(scope, run));
        }
        if self.violations.is_empty() {
            return None;
        }
        self.title = scope.title();
        self.report = report(scope, self.run);
        Some(self)
    }
}

/// The groups of each run; a run that has none may have lost them, and is asked all the same.
fn of_runs<'s, 'a>(scope: &'s Scope<'a>, absent: &'s [Group<'a>]) -> Vec<Vec<&'s Group<'a>>> {
    let of_run = |none: &'s Group<'a>| {
        let groups: Vec<_> = scope.groups.iter().filter(|group| group.run == none.run).collect();
        if groups.is_empty() { vec![none] } else { groups }
    };
    absent.iter().map(of_run).collect()
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A single group says which it is; the groups of a run are the run.
fn place_of(scope: &Scope<'_>, groups: &[&Group<'_>]) -> String {
    match groups {
        [group] => scope.place_of(group),
        [group, ..] => format!("run {} of {}", group.run + 1, scope.profiles.len()),
        [] => String::new(),
    }
}

/// The first run that has no such range.
fn missing_in(scope: &Scope<'_>) -> Option<usize> {
    scope.pattern()?;
    (0..scope.profiles.len()).find(|&run| scope.entered(run) == 0)
}

/// Paths that are named where a range is not there.
const PATHS: usize = 40;

fn missing(scope: &Scope<'_>, run: usize) -> Section {
    let mut outcome = "cannot be known: there is no such range".to_owned();
    if scope.profiles.len() > 1 {
        let _ = write!(outcome, " in run {} of {}", run + 1, scope.profiles.len());
    }
    let mut nodes = scope.profiles[run].nodes();
    let shown = nodes.by_ref().take(PATHS);
    let path = |node: RangeNode<'_>| units::shortened(&node.cut_path(), units::PATH_WIDTH);
    let mut paths: Vec<String> = shown.map(path).collect();
    if nodes.next().is_some() {
        paths.push("…".to_owned());
    }
    match &paths[..] {
        [] => outcome.push_str("; there is no range at all"),
        paths => {
            let _ = write!(outcome, "; there are: {}", paths.join(", "));
        }
    }
    Section::plain(&scope.title(), "budgets", outcome)
}

fn report(scope: &Scope<'_>, run: usize) -> String {
    let profile = &scope.profiles[run];
    if scope.pattern().is_none() {
        return profile.to_string();
    }
    let instances = scope
        .groups
        .iter()
        .filter(|group| group.run == run)
        .flat_map(|group| group.instances.iter().filter(|instance| !instance.nested));
    let kernels = instances
        .flat_map(|instance| &instance.operations)
        .filter_map(|operation| operation.as_kernel());
    let tables = report::part(scope.nodes(run).into_iter(), kernels);
    format!("{}\n\n{tables}\n\nhealth: {}", profile.recording_info(), profile.health())
}
