//! Violated budgets, as text with the relevant positions.

use std::fmt::{self, Write as _};

use profiler_base::display::Layout;
use profiler_base::text::printable;
use profiler_base::{getters, units};

use super::amount::Bounds;
use super::parts::parts;
use super::quantity::Quantity;
use super::scope::{Group, Scope};
use super::unknowns::unknowns;
use crate::profile::RangeNode;
use crate::show::report;

/// The quantity of a violation that leaves all budgets of its scope undecided.
pub(super) const EVERY_BUDGET: &str = "budgets";
/// The scope of the violation without any run.
pub(super) const NO_PROFILE: &str = "no profile";
/// The quantity of [`Expect::complete`](super::Expect::complete).
pub(super) const COMPLETENESS: &str = "completeness";

/// Instances or runs named in a message.
const GROUPS: usize = 4;

/// All violated budgets with their breakdowns, and the report of every range concerned. `{}` and
/// `{:?}` both give the full text, so that a test can return it as its error.
#[derive(Clone)]
pub struct Violations(pub(super) Vec<Section>);

impl Violations {
    /// The violations in the order of their budgets; completeness at its position in the chain.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter().flat_map(|section| &section.violations)
    }
}

/// A violated budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    place: String,
    quantity: String,
    outcome: String,
    is_unknown: bool,
    /// The instances or runs concerned, and the breakdown of the worst amount.
    lines: Vec<String>,
}

impl Violation {
    getters! {
        /// The scope, such as ``range `forward`, all instances together``.
        place: &str = place;
        /// The quantity, such as `kernels`.
        quantity: &str = quantity;
        /// True if the recording does not determine the amount.
        is_unknown: bool = is_unknown;
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

/// The violations of one scope.
#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    title: String,
    violations: Vec<Violation>,
    report: String,
    /// The run whose report is shown: the run of the first violation.
    run: usize,
    /// True if the section has a budget.
    pub(super) touched: bool,
    /// True if a budget is on the number of instances, which may be 0.
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
    /// A section with one violation that is not an amount.
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

    pub(super) fn no_profile() -> Self {
        Self::plain(NO_PROFILE, EVERY_BUDGET, "cannot be known: there is no run".to_owned())
    }

    pub(super) fn incomplete(run: &str, health: &str) -> Self {
        Self::plain(run, COMPLETENESS, format!("something was lost\n  {health}"))
    }

    /// Checks one budget and adds its violation.
    pub(super) fn judge(&mut self, scope: &Scope<'_>, quantity: Quantity, bounds: Bounds) {
        self.touched = true;
        if quantity == Quantity::Instances {
            self.on_instances = true;
        } else if missing_in(scope).is_some() {
            return; // `closed` reports a missing range once
        }
        let absent: Vec<Group<'_>> =
            (0..scope.profiles.len()).map(|run| Group { run, ..Group::default() }).collect();
        // A statistic covers all runs and instances together.
        let groups: Vec<Vec<&Group<'_>>> = match quantity {
            Quantity::GpuTimeOf(_) | Quantity::HostTimeOf(_) => vec![scope.groups.iter().collect()],
            Quantity::Instances => of_runs(scope, &absent),
            _ => scope.groups.iter().map(|group| vec![group]).collect(),
        };
        let amounts: Vec<u64> = groups.iter().map(|group| quantity.measure(group)).collect();
        let unknown = groups.iter().zip(&amounts).find_map(|(groups, amount)| {
            groups.iter().find_map(|&group| {
                let unknowns = unknowns(&quantity, scope, group);
                (!unknowns.is_empty()).then_some((group, *amount, unknowns))
            })
        });
        let is_unknown = unknown.is_some();
        let (run, outcome, lines) = match unknown {
            Some((group, amount, unknowns)) => {
                let (unit, why) = (quantity.unit(), unknowns.join("; "));
                let (seen, budget) = (unit.show(amount), bounds.show(unit));
                let outcome =
                    format!("cannot be known: {why}; {seen} seen, the budget is {budget}");
                let position = scope.position_of(group);
                let is_one = position.is_empty();
                let lines = if is_one { Vec::new() } else { vec![format!("in {position}")] };
                (group.run, outcome, lines)
            }
            None => match violation(scope, &quantity, bounds, &groups, &amounts) {
                Some(violation) => violation,
                None => return,
            },
        };
        if self.violations.is_empty() {
            self.run = run;
        }
        let (place, quantity) = (scope.title(), quantity.name());
        self.violations.push(Violation { place, quantity, outcome, is_unknown, lines });
    }

    /// Completes the section with its title and report; `None` without violations.
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

/// The groups of each run. A run without groups gets its `absent` group: it may have lost ranges.
fn of_runs<'s, 'a>(scope: &'s Scope<'a>, absent: &'s [Group<'a>]) -> Vec<Vec<&'s Group<'a>>> {
    let of_run = |none: &'s Group<'a>| {
        let groups: Vec<_> = scope.groups.iter().filter(|group| group.run == none.run).collect();
        if groups.is_empty() { vec![none] } else { groups }
    };
    absent.iter().map(of_run).collect()
}

/// The run, the outcome and the breakdown of a violated budget; `None` if all amounts are allowed.
fn violation(
    scope: &Scope<'_>,
    quantity: &Quantity,
    bounds: Bounds,
    groups: &[Vec<&Group<'_>>],
    amounts: &[u64],
) -> Option<(usize, String, Vec<String>)> {
    let unit = quantity.unit();
    let failed: Vec<(&Vec<&Group<'_>>, u64)> = groups
        .iter()
        .zip(amounts.iter().copied())
        .filter(|(_, amount)| bounds.excess(*amount) != 0)
        .collect();
    let (worst, worst_amount) =
        failed.iter().rev().max_by_key(|(_, amount)| bounds.excess(*amount))?;
    let mut outcome = String::new();
    let mut lines = Vec::new();
    if groups.len() == 1 {
        let _ = write!(outcome, "{}, ", unit.show(*worst_amount));
    } else {
        for (groups, amount) in failed.iter().take(GROUPS) {
            lines.push(format!("{} in {}", unit.show(*amount), position_of(scope, groups)));
        }
        if failed.len() > GROUPS {
            lines.push(format!("and {} more", failed.len() - GROUPS));
        }
        let _ = write!(outcome, "{} of {} not kept, ", failed.len(), groups.len());
    }
    let _ = write!(outcome, "the budget is {}", bounds.show(unit));
    if !matches!(quantity, Quantity::KernelsOtherThan(_)) {
        let (low, high) = (amounts.iter().min()?, amounts.iter().max()?);
        let _ = write!(outcome, "; {} would pass", bounds.widened(*low, *high).show(unit));
    }
    let parts = parts(quantity, worst);
    if groups.len() > 1 && !parts.is_empty() {
        let position = position_of(scope, worst);
        lines.push(format!("of the {} in {position}:", unit.show(*worst_amount)));
    }
    lines.extend(parts);
    let instances = worst.iter().flat_map(|group| &group.instances);
    let shared: usize = instances.map(|instance| instance.shared.len()).sum();
    if shared != 0 && !matches!(quantity, Quantity::Instances | Quantity::SharedKernels) {
        lines.push(format!(
            "not in it: {shared} GPU operations that it shares with ranges for which they count"
        ));
    }
    Some((worst.first().map_or(0, |group| group.run), outcome, lines))
}

/// The position of one group, or the run of several.
fn position_of(scope: &Scope<'_>, groups: &[&Group<'_>]) -> String {
    match groups {
        [group] => scope.position_of(group),
        [group, ..] => format!("run {} of {}", group.run + 1, scope.profiles.len()),
        [] => String::new(),
    }
}

/// The first run without the range.
fn missing_in(scope: &Scope<'_>) -> Option<usize> {
    scope.pattern()?;
    (0..scope.profiles.len()).find(|&run| scope.entered(run) == 0)
}

/// Paths listed if a range is missing.
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
    Section::plain(&scope.title(), EVERY_BUDGET, outcome)
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
    let tables = report::part(scope.nodes(run).into_iter(), kernels, Layout::default());
    format!("{}\n\n{tables}\n\nhealth: {}", profile.recording_info(), profile.health())
}
