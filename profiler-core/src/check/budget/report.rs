//! Budgets as checks of a report.

use super::violations::{EVERY_BUDGET, NO_PROFILE};
use super::{Expect, Violation, Violations};
use crate::check::ci::{Check, CheckOutcome, CiReport};

impl Expect<'_> {
    /// Ends the chain. The report has a check for each budget, including satisfied ones.
    pub fn report(mut self) -> CiReport {
        let budgets = std::mem::take(&mut self.budgets);
        report_of(&budgets, self.check().err().as_ref())
    }
}

/// A check for each violation. [`Expect::report`] also has the satisfied budgets.
impl From<&Violations> for CiReport {
    fn from(violations: &Violations) -> Self {
        report_of(&[], Some(violations))
    }
}

/// A check for each budget, named by its scope and quantity, and for each other violation.
pub(super) fn report_of(budgets: &[(String, String)], violations: Option<&Violations>) -> CiReport {
    let violations: Vec<&Violation> = violations.into_iter().flat_map(Violations::iter).collect();
    let mut report = CiReport::new("GPU budgets");
    for (number, budget) in budgets.iter().enumerate() {
        let (place, quantity) = budget;
        let is_violated = |violation: &&&Violation| {
            violation.place() == place && violation.quantity() == quantity
        };
        if budgets[..number].contains(budget) || violations.iter().any(|v| is_violated(&v)) {
            continue;
        }
        let check = |outcome| Check::new(format!("{place}: {quantity}"), outcome);
        report = report.check(match violations.iter().find(|v| is_about(v, place)) {
            Some(violation) => check(CheckOutcome::Undecided).message(violation.to_string()),
            None => check(CheckOutcome::Passed),
        });
    }
    for violation in violations {
        // The checks of its budgets cover it.
        if violation.quantity() == EVERY_BUDGET
            && budgets.iter().any(|(place, _)| is_about(violation, place))
        {
            continue;
        }
        let outcome = match violation.is_unknown() {
            true => CheckOutcome::Undecided,
            false => CheckOutcome::Failed,
        };
        let name = format!("{}: {}", violation.place(), violation.quantity());
        report = report.check(Check::new(name, outcome).message(violation.to_string()));
    }
    report
}

/// True if the violation leaves every budget of the scope undecided.
fn is_about(violation: &Violation, place: &str) -> bool {
    violation.quantity() == EVERY_BUDGET
        && (violation.place() == place || violation.place() == NO_PROFILE)
}
