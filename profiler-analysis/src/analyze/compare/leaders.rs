//! The largest consumer of time on each side.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use profiler_core::profile::Profile;

/// The largest consumer of time in one respect, before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LeaderChange {
    /// The measure, and the total that shares refer to:
    ///
    /// - `kernel`: kernels, in the time of all kernels.
    /// - `time`: kernels, copies, memsets, collectives alone or idle, in the time from the first to
    ///   the last operation.
    /// - `idle`: the host's activity, in the idle time.
    pub(crate) of: &'static str,
    /// The leader before.
    pub(crate) before: Option<Leader>,
    /// The leader after.
    pub(crate) after: Option<Leader>,
    /// True if the leader changed.
    pub(crate) moved: bool,
}

/// The candidate that took the most time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Leader {
    /// Its name.
    pub(crate) name: String,
    /// Its share, from 0 to 1.
    pub(crate) share: f64,
}

/// Sums up one measure.
type SumUp = fn(&Profile, &mut Sums);

pub(super) fn leader_changes(sides: [&[Profile]; 2]) -> Vec<LeaderChange> {
    let respects: [(&'static str, SumUp); 3] =
        [("kernel", kernels), ("time", kinds), ("idle", causes)];
    let change = |(of, sum): (&'static str, SumUp)| {
        let [before, after] = sides.map(|runs| {
            let mut sums = Sums::default();
            runs.iter().for_each(|profile| sum(profile, &mut sums));
            sums.leader()
        });
        let name = |leader: &Option<Leader>| leader.as_ref().map(|leader| leader.name.clone());
        let moved = name(&before) != name(&after);
        LeaderChange { of, before, after, moved }
    };
    respects.into_iter().map(change).collect()
}

#[derive(Default)]
struct Sums(BTreeMap<String, f64>);

impl Sums {
    fn add(&mut self, name: String, time: Duration) {
        *self.0.entry(name).or_default() += time.as_secs_f64();
    }

    fn leader(self) -> Option<Leader> {
        let all: f64 = self.0.values().sum();
        let (name, most) = self.0.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (most > 0.0).then(|| Leader { name, share: most / all })
    }
}

fn kernels(profile: &Profile, sums: &mut Sums) {
    for group in &profile.query().by_kernel() {
        sums.add(group.key().to_string(), group.time());
    }
}

fn kinds(profile: &Profile, sums: &mut Sums) {
    let all = profile.query();
    for (name, query) in [
        ("kernels", all.clone().kernels()),
        ("copies", all.clone().copies()),
        ("memsets", all.clone().memsets()),
        ("graphs", all.clone().graphs()),
    ] {
        sums.add(name.to_owned(), query.busy_time());
    }
    sums.add("communication".to_owned(), all.communication_time());
    sums.add("idle".to_owned(), all.idle());
}

fn causes(profile: &Profile, sums: &mut Sums) {
    for group in &profile.query().gaps(Duration::ZERO).by_cause() {
        sums.add(group.key().to_string(), group.time());
    }
}
