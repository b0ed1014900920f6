//! Phases of a run: start-up, steady phases, and teardown.
//!
//! A steady phase repeats work: outermost ranges of a process ([`ranges`]), or a sequence of GPU
//! operations that no repeating range covers ([`regular`]). Slow first instances are excluded.
//! Start-up is the time before the first steady phase of a device, teardown the time after the
//! last.

mod ranges;
mod regular;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use profiler_base::named_variants;
use rustc_hash::FxHashMap;
use serde::Serialize;

use profiler_core::profile::Profile;
use profiler_core::tables::busy::{observed, united};
use profiler_core::tables::{Interval, Operation, Tables};

/// The minimum number of repetitions. Up to half of them may be slow first ones.
const LEAST_INSTANCES: usize = 8;
/// The minimum length of a steady phase, as a share of the longest one.
const LEAST_OF_LONGEST: f64 = 0.05;
/// The maximum number of steady phases.
const MOST_PHASES: usize = 8;
/// The maximum number of candidates of a process that are compared with each other.
const MOST_CANDIDATES: usize = 1_024;
/// The minimum share of a phase's time in its ranges; below it, operations decide.
const LEAST_COVERED: f64 = 0.1;

named_variants! {
    /// The kind of a phase.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum PhaseKind with text {
        /// The time before the first steady phase, with its slow first instances.
        StartUp = "start-up",
        /// Repeating work, without slow first instances.
        Steady = "steady",
        /// Time after a steady phase and before another one.
        Between = "between steady phases",
        /// The time after the last steady phase.
        Teardown = "teardown",
    }
}

/// A steady phase: repeating work of one or more processes.
#[derive(Debug, Clone)]
pub(crate) struct Steady {
    /// The names of the repeating ranges, or the number of repeating operations.
    pub(crate) name: String,
    /// Instances in the phase.
    pub(crate) instances: u64,
    /// Slow first instances, which are not in the phase.
    pub(crate) warm_up: u64,
    /// Disjoint times in order, by process.
    of_process: BTreeMap<u32, Vec<Interval>>,
}

impl Steady {
    /// The longest time of one process, in nanoseconds.
    fn ns(&self) -> u64 {
        let sum = |times: &Vec<Interval>| times.iter().map(|time| time.ns()).sum();
        self.of_process.values().map(sum).max().unwrap_or(0)
    }

    fn start_ns(&self) -> u64 {
        self.of_process
            .values()
            .filter_map(|times| times.first())
            .map(|time| time.start_ns)
            .min()
            .unwrap_or(0)
    }

    /// Merges the same phase of another concurrent process.
    fn merge(&mut self, other: Self) {
        self.instances = self.instances.max(other.instances);
        self.warm_up = self.warm_up.max(other.warm_up);
        self.of_process.extend(other.of_process);
    }
}

/// A candidate for a steady phase, or a window of one, of one process.
#[derive(Debug, Clone)]
struct Candidate {
    name: String,
    instances: u64,
    warm_up: u64,
    /// Including slow first instances.
    whole: Interval,
    /// Excluding slow first instances.
    steady: Interval,
    /// The share of its time in ranges.
    covered: f64,
}

/// The steady phases of a run, by start.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    pub(crate) steady: Vec<Steady>,
    /// The processes of each device.
    devices: BTreeMap<u32, BTreeSet<u32>>,
}

/// The disjoint times of each device, in order.
pub(crate) type Windows = BTreeMap<u32, Vec<Interval>>;

impl Phases {
    /// Costs sorts of the repeating ranges, and some passes over the operations outside them.
    pub(crate) fn new(profile: &Profile) -> Self {
        let store = &profile.tables();
        let mut devices: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for work in store.works() {
            devices.entry(work.place.device).or_default().insert(work.process);
        }
        let mut by_name: FxHashMap<String, Steady> = FxHashMap::default();
        let mut of_ranges = ranges::candidates(profile);
        let mut operations: BTreeMap<u32, Vec<&Operation>> =
            devices.values().flatten().map(|process| (*process, Vec::new())).collect();
        for operation in &store.operations {
            if let Some(of_process) = operations.get_mut(&store.work(operation).process) {
                of_process.push(operation);
            }
        }
        for (process, operations) in operations {
            let work = Submitted::new(store, &operations);
            let mut candidates = of_ranges.remove(&process).unwrap_or_default();
            candidates.retain(|candidate| work.count(candidate.steady) >= LEAST_INSTANCES);
            let (mut found, rare): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|candidate| candidate.covered >= LEAST_COVERED);
            work.end_all(&mut found);
            let mut others = regular::candidates(store, &operations, &found);
            others.extend(rare);
            others.truncate(MOST_CANDIDATES);
            for candidate in others {
                if is_apart(&found, candidate.whole) {
                    found.push(candidate);
                }
            }
            found.sort_by_key(|candidate| candidate.steady.start_ns);
            for one in of_process(process, apart(found)) {
                match by_name.get_mut(&one.name) {
                    Some(known) => known.merge(one),
                    None => _ = by_name.insert(one.name.clone(), one),
                }
            }
        }
        let mut steady: Vec<Steady> = by_name.into_values().collect();
        steady.sort_by_key(|of| (Reverse(of.ns()), of.start_ns()));
        let least = steady.first().map_or(0.0, |longest| LEAST_OF_LONGEST * longest.ns() as f64);
        steady.retain(|of| of.ns() as f64 >= least && of.ns() != 0);
        steady.truncate(MOST_PHASES);
        steady.sort_by(|a, b| a.start_ns().cmp(&b.start_ns()).then_with(|| a.name.cmp(&b.name)));
        Self { steady, devices }
    }

    /// The times of a steady phase by device. Times of several processes on one device are united;
    /// a time of an earlier phase is excluded from later ones.
    pub(crate) fn windows(&self, phase: usize) -> Windows {
        let windows = |(device, processes): (&u32, &BTreeSet<u32>)| {
            let of = |at: usize| united(self.steady[at].times_of(processes).collect());
            let earlier = united((0..phase).flat_map(of).collect());
            (*device, without(&of(phase), &earlier))
        };
        self.devices.iter().map(windows).filter(|(_, times)| !times.is_empty()).collect()
    }

    /// The times before, between and after the steady phases, by device.
    pub(crate) fn others(&self) -> [(PhaseKind, Windows); 3] {
        let mut others = [PhaseKind::StartUp, PhaseKind::Between, PhaseKind::Teardown]
            .map(|kind| (kind, Windows::new()));
        for (device, processes) in &self.devices {
            let steady = united(self.steady.iter().flat_map(|of| of.times_of(processes)).collect());
            let (Some(first), Some(last)) = (steady.first(), steady.last()) else {
                // A device without a steady phase of its own is between the steady phases of
                // others.
                others[1].1.insert(*device, vec![Interval { start_ns: 0, end_ns: u64::MAX }]);
                continue;
            };
            let between = steady
                .windows(2)
                .map(|pair| Interval { start_ns: pair[0].end_ns, end_ns: pair[1].start_ns });
            let before = Interval { start_ns: 0, end_ns: first.start_ns };
            let after = Interval { start_ns: last.end_ns, end_ns: u64::MAX };
            others[0].1.insert(*device, vec![before]);
            others[1].1.insert(*device, between.collect());
            others[2].1.insert(*device, vec![after]);
        }
        others
    }

    /// The time of each phase on the clock in nanoseconds, the mean over devices, by start.
    pub(crate) fn times(&self, store: &Tables) -> Vec<(PhaseKind, Option<String>, u64)> {
        if self.steady.is_empty() {
            return Vec::new();
        }
        let observed = observed(store);
        let sum = |windows: &Windows| {
            let of = |(device, times): (&u32, &Vec<Interval>)| {
                let observed = observed.get(device).map_or(&[][..], Vec::as_slice);
                let all: u64 = times.iter().map(|time| time.ns()).sum();
                all - without(times, observed).iter().map(|time| time.ns()).sum::<u64>()
            };
            windows.iter().map(of).sum::<u64>() / observed.len().max(1) as u64
        };
        let of_steady = |(at, of): (usize, &Steady)| {
            (PhaseKind::Steady, Some(of.name.clone()), sum(&self.windows(at)))
        };
        let mut times: Vec<_> = self.steady.iter().enumerate().map(of_steady).collect();
        let [start_up, between, teardown] =
            self.others().map(|(kind, windows)| (kind, None, sum(&windows)));
        times.insert(0, start_up);
        times.extend([between, teardown]);
        times.retain(|(.., ns)| *ns != 0);
        times
    }

    /// The times of all steady phases of a process, in order and disjoint.
    pub(crate) fn steady_times(&self, process: u32) -> Vec<Interval> {
        let processes = BTreeSet::from([process]);
        united(self.steady.iter().flat_map(|of| of.times_of(&processes)).collect())
    }
}

impl Steady {
    /// The disjoint times of the phase in order, by process.
    pub(crate) fn processes(&self) -> &BTreeMap<u32, Vec<Interval>> {
        &self.of_process
    }

    fn times_of(&self, processes: &BTreeSet<u32>) -> impl Iterator<Item = Interval> {
        processes.iter().filter_map(|process| self.of_process.get(process)).flatten().copied()
    }
}

/// The parts of `times` that `other` does not cover. Both are in order and disjoint.
fn without(times: &[Interval], other: &[Interval]) -> Vec<Interval> {
    let parts = uncovered(times.iter().map(|time| (*time, ())), other);
    parts.into_iter().map(|(time, ())| time).collect()
}

/// The parts of `below` that nothing in `above` covers. Both are in order and disjoint.
pub(crate) fn uncovered<T: Copy>(
    below: impl IntoIterator<Item = (Interval, T)>,
    above: &[Interval],
) -> Vec<(Interval, T)> {
    let mut uncovered = Vec::new();
    let mut first = 0;
    for (time, what) in below {
        let mut at = time.start_ns;
        while above.get(first).is_some_and(|over| over.end_ns <= at) {
            first += 1;
        }
        for over in above[first..].iter().take_while(|over| over.start_ns < time.end_ns) {
            if over.start_ns > at {
                uncovered.push((Interval { start_ns: at, end_ns: over.start_ns }, what));
            }
            at = at.max(over.end_ns);
        }
        if at < time.end_ns {
            uncovered.push((Interval { start_ns: at, end_ns: time.end_ns }, what));
        }
    }
    uncovered
}

/// Groups candidates of one name into one phase. They must be disjoint and in start order.
fn of_process(process: u32, found: Vec<Candidate>) -> impl Iterator<Item = Steady> {
    let mut by_name: FxHashMap<String, (Vec<Interval>, u64, u64)> = FxHashMap::default();
    for Candidate { name, instances, warm_up, steady, .. } in found {
        let of_name = by_name.entry(name).or_default();
        of_name.0.push(steady);
        (of_name.1, of_name.2) = (of_name.1 + instances, of_name.2 + warm_up);
    }
    by_name.into_iter().map(move |(name, (times, instances, warm_up))| {
        let of_process = BTreeMap::from([(process, times)]);
        Steady { name, instances, warm_up, of_process }
    })
}

/// Ends each candidate at the start of the next one. They must be in start order.
fn apart(mut found: Vec<Candidate>) -> Vec<Candidate> {
    for at in 1..found.len() {
        let start_ns = found[at].steady.start_ns;
        let before = &mut found[at - 1].steady;
        before.end_ns = before.end_ns.min(start_ns);
    }
    found.retain(|candidate| candidate.steady.ns() != 0);
    found
}

/// True if at most a tenth of a time lies in one of the candidates found before.
fn is_apart(found: &[Candidate], time: Interval) -> bool {
    let overlap = |other: &Candidate| {
        let end_ns = other.whole.end_ns.min(time.end_ns);
        end_ns.saturating_sub(other.whole.start_ns.max(time.start_ns))
    };
    10 * found.iter().map(overlap).sum::<u64>() <= time.ns()
}

/// The operations of one process by the time of their call.
struct Submitted {
    /// The submission times, in order.
    calls_ns: Vec<u64>,
    /// The latest end of the operations submitted until then.
    ends_ns: Vec<u64>,
}

impl Submitted {
    fn new(store: &Tables, operations: &[&Operation]) -> Self {
        let of_process = operations.iter().filter_map(|operation| {
            let time = operation.time()?;
            let call = operation.call.get().map(|call| store.calls[call.at()].time.start_ns);
            Some((call.unwrap_or(time.start_ns), time.end_ns))
        });
        let mut rows: Vec<(u64, u64)> = of_process.collect();
        rows.sort_unstable();
        let ends = rows.iter().scan(0, |last, (_, end)| {
            *last = end.max(last).to_owned();
            Some(*last)
        });
        Self { ends_ns: ends.collect(), calls_ns: rows.into_iter().map(|row| row.0).collect() }
    }

    /// The number of operations submitted in a time.
    fn count(&self, time: Interval) -> usize {
        let until = |ns| self.calls_ns.partition_point(|call| *call < ns);
        until(time.end_ns).saturating_sub(until(time.start_ns))
    }

    /// Ends candidates when the GPU has finished the work submitted until then.
    fn end_all(&self, candidates: &mut [Candidate]) {
        for candidate in candidates {
            let before = self.calls_ns.partition_point(|call| *call < candidate.steady.end_ns);
            let Some(last) = before.checked_sub(1) else { continue };
            candidate.steady.end_ns = candidate.steady.end_ns.max(self.ends_ns[last]);
        }
    }
}
