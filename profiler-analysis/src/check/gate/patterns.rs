//! Groups ranges of a baseline and of runs that differ only in running numbers under one key.
//!
//! A single run does not always show which numbers are running, and baselines of older versions
//! have every name separately. Both sides together show it: the numbers differ between the sides,
//! or are a pattern on one side.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use profiler_base::name_pattern::{numbers, with_stars};

use super::baseline::{Count, Entry, KernelEntry, RangeEntry, Times};
use crate::running_numbers::{FEWEST_BY_RUN, MOST_SHARED};

/// New keys by old ones.
type Renames = BTreeMap<String, String>;

/// The keys of both sides with one pattern.
#[derive(Default)]
struct Family<'k> {
    keys: [BTreeSet<&'k str>; 2],
}

/// The entries with matching keys; borrowed where nothing changes. Costs the bytes of the keys.
pub(super) fn matched<'e>(before: &'e Entry, after: &'e Entry) -> [Cow<'e, Entry>; 2] {
    let mut families: BTreeMap<String, Family<'_>> = BTreeMap::new();
    for (side, entry) in [before, after].into_iter().enumerate() {
        for key in entry.ranges.keys() {
            let pattern = with_stars(key, |_| true);
            if pattern.contains('*') {
                families.entry(pattern.into_owned()).or_default().keys[side].insert(key);
            }
        }
    }
    let mut renames = Renames::new();
    families.values().for_each(|family| family.rename(&mut renames));
    [before, after].map(|entry| match entry.ranges.keys().any(|key| renames.contains_key(key)) {
        true => Cow::Owned(renamed(entry, &renames)),
        false => Cow::Borrowed(entry),
    })
}

impl Family<'_> {
    fn rename(&self, renames: &mut Renames) {
        let [before, after] = &self.keys;
        let lone = [before - after, after - before];
        if lone.iter().any(BTreeSet::is_empty) {
            return;
        }
        let of_names = |keys: &BTreeSet<&str>| keys.iter().all(|key| !key.contains('*'));
        let [is_before, is_after] = lone.each_ref().map(of_names);
        match (is_before, is_after) {
            (true, true) => self.rename_others(&lone, renames),
            (true, false) => to_patterns(&lone[0], &lone[1], renames),
            (false, true) => to_patterns(&lone[1], &lone[0], renames),
            (false, false) => {}
        }
    }

    /// Renames names whose numbers differ between the sides.
    fn rename_others(&self, lone: &[BTreeSet<&str>; 2], renames: &mut Renames) {
        let [before, after] = self.keys.each_ref().map(BTreeSet::len);
        let all = before + lone[1].len();
        let shared = (before + after) as f64 / all as f64 - 1.0;
        if before.min(after) < FEWEST_BY_RUN || shared > MOST_SHARED {
            return;
        }
        // A number with the same values on both sides is part of the name.
        let mut values: [Vec<BTreeSet<&str>>; 2] = Default::default();
        for (columns, keys) in values.iter_mut().zip(lone) {
            for key in keys {
                for (index, at) in numbers(key).enumerate() {
                    if columns.len() == index {
                        columns.push(BTreeSet::new());
                    }
                    columns[index].insert(&key[at]);
                }
            }
        }
        let [of_before, of_after] = values;
        let runs: Vec<bool> = of_before.iter().zip(&of_after).map(|(a, b)| a != b).collect();
        for key in lone.iter().flatten() {
            let pattern = with_stars(key, |index| runs.get(index) == Some(&true));
            renames.insert((*key).to_owned(), pattern.into_owned());
        }
    }
}

/// Maps names to the keys of the patterns that they match.
fn to_patterns(names: &BTreeSet<&str>, patterns: &BTreeSet<&str>, renames: &mut Renames) {
    // The numbers that are stars: patterns of one family hardly differ in these.
    let masks: BTreeSet<Vec<bool>> = patterns.iter().map(|pattern| stars(pattern)).collect();
    for name in names {
        for mask in &masks {
            let pattern = with_stars(name, |index| mask.get(index) == Some(&true));
            if patterns.contains(&*pattern) {
                renames.insert((*name).to_owned(), pattern.into_owned());
                break;
            }
        }
    }
}

/// Returns for each number or star of a pattern if it is a star.
fn stars(pattern: &str) -> Vec<bool> {
    let mut places: Vec<(usize, bool)> = numbers(pattern).map(|at| (at.start, false)).collect();
    places.extend(pattern.match_indices('*').map(|(at, _)| (at, true)));
    places.sort_unstable();
    places.into_iter().map(|(_, is_star)| is_star).collect()
}

fn renamed(entry: &Entry, renames: &Renames) -> Entry {
    let mut ranges: BTreeMap<String, RangeEntry> = BTreeMap::new();
    for (key, range) in &entry.ranges {
        let key = renames.get(key).unwrap_or(key);
        match ranges.get_mut(key) {
            Some(all) => add(all, range),
            None => drop(ranges.insert(key.clone(), range.clone())),
        }
    }
    Entry { ranges, ..entry.clone() }
}

/// Merges another range of the same runs.
fn add(all: &mut RangeEntry, other: &RangeEntry) {
    all.active = all.active.zip(other.active).map(|(one, other)| sum(one, other));
    for (name, count) in &other.counts {
        let of_all = all.counts.entry(name.clone()).or_default();
        *of_all = sum(*of_all, *count);
    }
    for (cause, ns) in &other.wall_ns {
        *all.wall_ns.entry(*cause).or_default() += ns;
    }
    for (times, other) in [
        (&mut all.host_time, &other.host_time),
        (&mut all.busy_time, &other.busy_time),
        (&mut all.kernel_time, &other.kernel_time),
    ] {
        match (times, other) {
            (Some(times), Some(other)) => add_times(times, other, [1.0, 1.0]),
            (times @ None, Some(other)) => *times = Some(other.clone()),
            (_, None) => {}
        }
    }
    for (name, kernel) in &other.kernels {
        match all.kernels.get_mut(name) {
            Some(of_all) => add_kernels(of_all, kernel),
            None => drop(all.kernels.insert(name.clone(), kernel.clone())),
        }
    }
}

/// The time of a merged kernel is the mean, weighted by the number of launches of each.
fn add_kernels(all: &mut KernelEntry, other: &KernelEntry) {
    let weights = [all.count, other.count].map(|count| count.bounds().1 as f64);
    let total = (weights[0] + weights[1]).max(1.0);
    add_times(&mut all.time, &other.time, weights.map(|weight| weight / total));
    all.count = sum(all.count, other.count);
}

/// Adds times run by run. A run that lacks one of the two uses the other.
fn add_times(all: &mut Times, other: &Times, weights: [f64; 2]) {
    for (ns, other) in all.0.iter_mut().zip(&other.0) {
        *ns = weights[0] * *ns + weights[1] * other;
    }
    let known = all.0.len();
    all.0.extend(other.0.iter().skip(known));
}

fn sum(one: Count, other: Count) -> Count {
    let ((least, most), (other_least, other_most)) = (one.bounds(), other.bounds());
    Count::from_counts(
        [least.saturating_add(other_least), most.saturating_add(other_most)].into_iter(),
    )
}
