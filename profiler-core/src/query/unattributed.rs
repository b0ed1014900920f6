//! Threads that launch kernels outside ranges while the ranges of other threads launch none: an
//! indicator of a framework with a device thread.

use std::fmt;

use super::CallThread;
use crate::profile::Profile;

/// A thread whose kernels were all launched outside ranges, while other threads of its process have
/// ranges without any GPU work. `{}` prints a line. Made by
/// [`Profile::unattributed_threads`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnattributedThread<'a> {
    /// The launching thread.
    pub thread: CallThread<'a>,
    /// The kernels that it launched.
    pub kernels: u64,
    /// The threads with ranges; none of these ranges has GPU work.
    pub range_threads: Vec<CallThread<'a>>,
}

/// Threads that the line names.
const NAMED: usize = 3;

impl fmt::Display for UnattributedThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} launched {} kernels outside ranges, while the ranges of ",
            self.thread, self.kernels
        )?;
        for (i, thread) in self.range_threads.iter().take(NAMED).enumerate() {
            write!(f, "{}{thread}", if i == 0 { "" } else { ", " })?;
        }
        match self.range_threads.len().saturating_sub(NAMED) {
            0 => {}
            others => write!(f, " and {others} others")?,
        }
        write!(f, " launched none: see docs/guide/frameworks.md")
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    outside: u64,
    in_ranges: u64,
    has_ranges: bool,
    has_work: bool,
}

impl Profile {
    /// Threads that launched kernels only outside ranges, while other threads of the process have
    /// ranges without any GPU work. Sorted by number of kernels.
    ///
    /// Frameworks such as burn launch from a thread of their own. Their ranges need a
    /// [`HandOver`](crate::session::HandOver), or this project's package for the framework. The
    /// report ends with these lines. Costs a pass over operations and ranges.
    ///
    /// ```
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    /// let profile = profiler_core::Profile::load(file)?;
    /// assert!(profile.unattributed_threads().is_empty());
    /// # Ok::<(), profiler_core::Error>(())
    /// ```
    pub fn unattributed_threads(&self) -> Vec<UnattributedThread<'_>> {
        let threads = &self.store.threads;
        let mut counts = vec![Counts::default(); threads.len()];
        for range in &self.store.ranges {
            counts[range.thread.at()].has_ranges = true;
        }
        for operation in self.operations() {
            let range = operation.range();
            for range in operation.ranges() {
                counts[self.store.ranges[range.id.at()].thread.at()].has_work = true;
            }
            if let Some(call) = operation.call()
                && operation.as_kernel().is_some()
            {
                let counts = &mut counts[call.row.thread.at()];
                *(if range.is_some() { &mut counts.in_ranges } else { &mut counts.outside }) += 1;
            }
        }
        let each = || threads.iter().zip(&counts);
        let idle_in = |process: u32| {
            let idle = each().filter(move |(thread, counts)| {
                thread.process == process && counts.has_ranges && !counts.has_work
            });
            idle.map(|(thread, _)| CallThread::new(thread)).collect::<Vec<_>>()
        };
        let launchers = each().filter(|(_, counts)| counts.outside != 0 && counts.in_ranges == 0);
        let launchers = launchers.map(|(thread, counts)| UnattributedThread {
            thread: CallThread::new(thread),
            kernels: counts.outside,
            // Its own ranges do not explain its launches.
            range_threads: idle_in(thread.process)
                .into_iter()
                .filter(|idle| idle.id != thread.id)
                .collect(),
        });
        let mut found: Vec<_> = launchers.filter(|found| !found.range_threads.is_empty()).collect();
        found.sort_by_key(|found| std::cmp::Reverse(found.kernels));
        found
    }
}
