//! Launches: from a call to the work it submitted.

use std::cmp::Reverse;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use profiler_base::statistics::Statistics;
use profiler_base::units::time;
use profiler_base::{getters, order};
use rustc_hash::FxHashMap;

use super::Query;
use super::group::{KernelName, RangePath};
use crate::join::tables::CallId;
use crate::profile::{ApiCall, GpuOperation};

/// A call with the first operation it submitted.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    operation: GpuOperation<'a>,
    call: ApiCall<'a>,
    /// All times are on the session's clock.
    called_ns: u64,
    returned_ns: Option<u64>,
    started_ns: u64,
    ended_ns: u64,
}

impl<'a> Launch<'a> {
    getters! {
        /// The first operation of the call.
        operation: GpuOperation<'a> = operation;
        /// The call.
        call: ApiCall<'a> = call;
        /// The host time of the call; `None` if it had not returned.
        api_time: Option<Duration> = call.host_time();
    }

    /// The time from the start of the call to the start of the operation. 0 if the operation
    /// appears to start first, due to the error of CUPTI's clock
    /// ([`Facts::clock_error`](crate::profile::Facts::clock_error)). That error applies to
    /// [`queue_delay`](Self::queue_delay), too.
    pub fn latency(&self) -> Duration {
        Duration::from_nanos(self.started_ns.saturating_sub(self.called_ns))
    }

    /// The time from the return of the call to the start of the operation; 0 if it started earlier.
    /// `None` if the call had not returned.
    pub fn queue_delay(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.started_ns.saturating_sub(self.returned_ns?)))
    }

    /// The GPU time of the operation.
    pub fn gpu_time(&self) -> Duration {
        Duration::from_nanos(self.ended_ns.saturating_sub(self.started_ns))
    }

    /// The time from the start of the call to the end of the operation.
    pub fn total_time(&self) -> Duration {
        Duration::from_nanos(self.ended_ns.saturating_sub(self.called_ns))
    }

    /// True if the operation appears to start before its call.
    pub fn is_before_call(&self) -> bool {
        self.started_ns < self.called_ns
    }

    /// True if the operation started after the call had returned.
    pub fn is_queued(&self) -> bool {
        self.returned_ns.is_some_and(|returned| self.started_ns > returned)
    }
}

/// The launches of a query's operations.
#[derive(Debug, Clone)]
pub struct Launches<'a> {
    launches: Vec<Launch<'a>>,
    unknown: u64,
}

/// Sums of launches: nsys's `cuda_kern_exec_sum`. Unlike nsys, operations that started before their
/// call returned are included, with a queue delay of 0.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LaunchGroup<K> {
    /// The common key.
    pub key: K,
    /// The number of launches.
    pub count: u64,
    /// Launches whose operation started after the call returned (nsys: `QCount`).
    pub queued: u64,
    /// Launches whose operation appears to start before the call; their latency is 0.
    pub before_call: u64,
    /// Host times of the calls.
    pub api_time: Statistics,
    /// Times from the starts of the calls to the starts of the operations.
    pub latency: Statistics,
    /// Times from the returns of the calls to the starts of the operations.
    pub queue_delay: Statistics,
    /// GPU times of the operations.
    pub gpu_time: Statistics,
    /// Times from the starts of the calls to the ends of the operations.
    pub total_time: Statistics,
}

impl<'a> Query<'a> {
    /// Each call that submitted selected operations, with the first of them, by start. With
    /// `kernels()` these are launches of kernels and graphs.
    pub fn launches(&self) -> Launches<'a> {
        let mut launches = Vec::new();
        let unknown = self.each_launch(|launch| launches.push(launch));
        Launches { launches, unknown }
    }

    /// Visits the [launches](Self::launches), and returns the number of operations whose call or
    /// times are unknown.
    pub fn each_launch(&self, mut each: impl FnMut(Launch<'a>)) -> u64 {
        let mut seen = vec![false; self.profile.store.calls.len()];
        let mut unknown = 0;
        for operation in self.iter() {
            let row = operation.row();
            let (Some(CallId(id)), Some(time)) = (row.call.get(), row.time()) else {
                unknown += 1;
                continue;
            };
            if std::mem::replace(&mut seen[id as usize], true) {
                continue;
            }
            let call = self.profile.call(CallId(id));
            let called = call.interval();
            each(Launch {
                operation,
                call,
                called_ns: called.start_ns,
                returned_ns: call.host_time().map(|_| called.end_ns),
                started_ns: time.start_ns,
                ended_ns: time.end_ns,
            });
        }
        unknown
    }
}

impl<'a> Launches<'a> {
    getters! {
        /// The launches by the start of their operation.
        iter: impl Iterator<Item = Launch<'a>> = launches.iter().copied();
        /// Operations that are excluded because their call or times are unknown.
        unknown: u64 = unknown;
    }

    /// The number of launches.
    pub fn count(&self) -> u64 {
        self.launches.len() as u64
    }

    /// Sums all launches.
    pub fn sum(&self) -> LaunchGroup<()> {
        summed((), &self.launches.iter().collect::<Vec<_>>())
    }

    /// Sums by kernel name, by descending total time.
    pub fn by_kernel(&self) -> Vec<LaunchGroup<KernelName<'a>>> {
        self.group_by(|launch| Some(KernelName::new(&launch.operation.as_kernel()?)))
    }

    /// Sums by the path of the call's range, by descending total time.
    pub fn by_range(&self) -> Vec<LaunchGroup<RangePath<'a>>> {
        self.group_by(|launch| Some(RangePath::of_call(&launch.call)))
    }

    /// Sums by `key`, by descending total time; launches without a key are excluded.
    #[must_use]
    pub fn group_by<K: Eq + Hash>(
        &self,
        key: impl Fn(&Launch<'a>) -> Option<K>,
    ) -> Vec<LaunchGroup<K>> {
        let mut members: FxHashMap<K, (u64, Vec<&Launch<'a>>)> = FxHashMap::default();
        for launch in &self.launches {
            let Some(key) = key(launch) else { continue };
            let next = members.len() as u64;
            members.entry(key).or_insert_with(|| (next, Vec::new())).1.push(launch);
        }
        let mut members: Vec<_> = members.into_iter().collect();
        order::sort_by_number(&mut members, |(_, (number, _))| *number);
        let sums = members.into_iter().map(|(key, (_, launches))| summed(key, &launches));
        let mut groups: Vec<LaunchGroup<K>> = sums.collect();
        order::sort_by_key(&mut groups, |group| Reverse(group.total_time.sum()));
        groups
    }
}

impl<K: fmt::Display> fmt::Display for LaunchGroup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [call, latency, delay, gpu] =
            [&self.api_time, &self.latency, &self.queue_delay, &self.gpu_time]
                .map(|times| time(times.median()));
        write!(
            f,
            "{}: {} launches, {} of them queued; medians: call {call}, latency {latency}, queue delay {delay}, \
             on the GPU {gpu}",
            self.key, self.count, self.queued
        )
    }
}

fn summed<'a, K>(key: K, launches: &[&Launch<'a>]) -> LaunchGroup<K> {
    let of = |time: fn(&Launch<'a>) -> Option<Duration>| {
        Statistics::from_nanos(
            launches.iter().filter_map(|launch| time(launch)).map(super::ns).collect(),
        )
    };
    let number = |is_it: fn(&Launch<'a>) -> bool| {
        launches.iter().filter(|launch| is_it(launch)).count() as u64
    };
    LaunchGroup {
        key,
        count: launches.len() as u64,
        queued: number(|launch| launch.is_queued()),
        before_call: number(|launch| launch.is_before_call()),
        api_time: of(|launch| launch.api_time()),
        latency: of(|launch| Some(launch.latency())),
        queue_delay: of(|launch| launch.queue_delay()),
        gpu_time: of(|launch| Some(launch.gpu_time())),
        total_time: of(|launch| Some(launch.total_time())),
    }
}
