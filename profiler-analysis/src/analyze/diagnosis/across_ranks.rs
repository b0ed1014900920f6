//! Findings on several ranks: waits for the last rank, and transfers that no other work hides. Only
//! matched collectives separate the two.

use std::time::Duration;

use profiler_base::statistics::ratio;
use profiler_base::units::time;

use super::Run;
use super::clock::Part;
use super::finding::{Finding, FindingKind};
use super::sign::Sign;
use super::straggler::Stragglers;
use crate::analyze::matches::{Match, Matches, Member, Participant};

/// The minimum waiting share of the time of matched collectives for a finding.
const LEAST_WAITING: f64 = 0.2;

impl Run<'_> {
    /// True if most collectives are matched across ranks, so that waits and transfers are
    /// separated.
    pub(super) fn has_ranks(&self) -> bool {
        *self.known.has_ranks.get_or_init(|| {
            let rows = self.profile.collective_rows().len() as u64;
            rows != 0 && 2 * Matches::new(self.profile).unmatched <= rows
        })
    }

    /// Costs are means over the devices, like the clock.
    pub(super) fn across_ranks(&self) -> Vec<Finding> {
        let mut matches = Matches::new(self.profile);
        matches.all.retain(|matched| self.includes_match(&matches.participants, matched));
        if matches.all.is_empty() {
            return Vec::new();
        }
        // Work beside a collective hides it.
        let alone = self.clock.pieces.iter().filter(|piece| piece.part == Part::Communication);
        let exposed = alone.map(|piece| piece.time.ns()).sum::<u64>() / self.clock.devices().max(1);
        let each =
            || matches.all.iter().flat_map(|all| all.members.iter().map(move |one| (all, one)));
        let waited: u64 = each().map(|(all, one)| all.wait_ns(one)).sum();
        let total: u64 = each().map(|(_, one)| one.time.ns()).sum();
        let mean = waited as f64 / matches.participants.len().max(1) as f64;
        let waits = mean.min(exposed as f64);
        let uneven = self.uneven_ranks(&matches, mean, waits, ratio(waited, total));
        let transfers = self.exposed_transfers(&matches, exposed as f64 - waits);
        let least = self.thresholds.get_finding_share();
        uneven.into_iter().chain(transfers).filter(|found| found.share >= least).collect()
    }

    /// True for a collective whose last rank arrived in the phase.
    fn includes_match(&self, participants: &[Participant], matched: &Match) -> bool {
        let Some(section) = &self.section else { return true };
        let is_in = |member: &Member| {
            let process = participants[member.participant].process;
            section.has(process, matched.latest_ns)
        };
        matched.members.iter().any(is_in)
    }

    /// `waits` is the exposed part of the mean wait; `share` the waiting share of the collectives'
    /// time.
    fn uneven_ranks(
        &self,
        matches: &Matches,
        mean: f64,
        waits: f64,
        share: f64,
    ) -> Option<Finding> {
        let process_by_id = self.profile.processes_by_id();
        let name = |participant: usize| process_by_id(matches.participants[participant].process);
        let start = format!(
            "a rank waits for {} in {} collectives until the last one arrives",
            time(Duration::from_nanos(mean as u64)),
            matches.all.len(),
        );
        let stragglers = Stragglers::new(self.profile, &self.clock, &matches.participants);
        let all: Vec<&Match> = matches.all.iter().collect();
        let title = match stragglers.find(&all).first() {
            Some(straggler) => format!(
                "{start}; {} is late by {}, since {}",
                name(straggler.rank),
                time(straggler.late),
                straggler.cause
            ),
            None => {
                let mut last = vec![0_u64; matches.participants.len()];
                for matched in &matches.all {
                    for member in &matched.members {
                        last[member.participant] += u64::from(matched.margin_ns(member) > 0.0);
                    }
                }
                let (at, most) = last.iter().enumerate().max_by_key(|(_, count)| **count)?;
                format!("{start}, {} in {most} of them", name(at))
            }
        };
        let sign = Sign::share_at_least("of the collectives' time", share, LEAST_WAITING);
        let is_met = sign.is_met();
        is_met.then(|| self.costing(FindingKind::UnevenRanks, title, waits, vec![sign]))
    }

    fn exposed_transfers(&self, matches: &Matches, cost: f64) -> Option<Finding> {
        let share = cost / (self.clock.ns() as f64).max(1.0);
        let sign =
            Sign::share_at_least("transfers alone", share, self.thresholds.get_finding_share());
        let title = format!(
            "{} of transfers in {} collectives run beside no other work",
            time(Duration::from_nanos(cost as u64)),
            matches.all.len()
        );
        let is_met = sign.is_met();
        let found = self.costing(FindingKind::ExposedTransfers, title, cost, vec![sign]);
        is_met.then(|| self.limited(found, std::iter::empty()))
    }
}
