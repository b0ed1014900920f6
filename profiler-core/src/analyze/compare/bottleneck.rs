//! What takes the most time on each side.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::profile::Profile;

/// What leads in one respect, before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bottleneck {
    /// In what: `kernel`, of the time of all kernels; `time`, whether kernels, copies, memsets, collectives alone or nothing ran, of
    /// the time from the first to the last operation; `idle`, what the host was in meanwhile, of the idle time.
    pub of: &'static str,
    /// What led.
    pub before: Option<Leader>,
    /// What leads.
    pub after: Option<Leader>,
    /// Whether it is another.
    pub moved: bool,
}

/// Of several, the one that took the most time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Leader {
    /// Which.
    pub name: String,
    /// Its part, from 0 to 1.
    pub share: f64,
}

/// How one respect is summed up.
type SumUp = fn(&Profile, &mut Sums);

pub(super) fn of(sides: [&[Profile]; 2]) -> Vec<Bottleneck> {
    let respects: [(&'static str, SumUp); 3] =
        [("kernel", kernels), ("time", kinds), ("idle", causes)];
    let bottleneck = |(of, sum): (&'static str, SumUp)| {
        let [before, after] = sides.map(|runs| {
            let mut sums = Sums::default();
            runs.iter().for_each(|profile| sum(profile, &mut sums));
            sums.leader()
        });
        let name = |leader: &Option<Leader>| leader.as_ref().map(|leader| leader.name.clone());
        let moved = name(&before) != name(&after);
        Bottleneck { of, before, after, moved }
    };
    respects.into_iter().map(bottleneck).collect()
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
