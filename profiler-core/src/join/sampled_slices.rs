//! The kernels whose instruction samples a slice may have: by name, context and time.
//!
//! Samples of CUPTI have no times. Those of a slice were taken between two readings or, while CUPTI had
//! not decoded them, before the first of these ([`Slice`]). A kernel that ran in this time may have
//! them. Its share is its GPU time within, of that of all kernels with its name.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::tables::{NameId, Operation, Tables, What};
use crate::record::instructions::Slice;

/// For each log of samples, its slices and the GPU time of each function in them.
#[derive(Debug, Default)]
pub(crate) struct SampledSlices {
    logs: Vec<LogSlices>,
    /// The logs by process.
    of_process: FxHashMap<u32, Vec<usize>>,
}

#[derive(Debug, Default)]
struct LogSlices {
    /// By context in time order.
    by_context: FxHashMap<u32, Vec<TimedSlice>>,
    /// The kernel of each function.
    kernels: Vec<Option<NameId>>,
    times_ns: FxHashMap<(u32, NameId), u64>,
    /// The part of it that is outside the windows.
    outside_ns: FxHashMap<(u32, NameId), u64>,
}

#[derive(Debug, Clone, Copy)]
struct TimedSlice {
    since_ns: u64,
    end_ns: u64,
    row: u32,
}

/// A slice that may have samples of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SliceOfKernel {
    pub(crate) log: usize,
    pub(crate) slice: u32,
    pub(crate) kernel: NameId,
}

/// The kernel that contains a function: `$kernel$function` is a function within a kernel's code.
pub(crate) fn kernel_of(symbol: &str) -> &str {
    let inner = symbol.strip_prefix('$').and_then(|rest| rest.split_once('$'));
    inner.map_or(symbol, |(kernel, _)| kernel)
}

impl SampledSlices {
    /// Costs a pass over the operations if there are samples.
    pub(crate) fn new(store: &Tables) -> Self {
        let mut all = Self::default();
        for (at, (process, log)) in store.instructions.iter().enumerate() {
            let mut slices = LogSlices::default();
            for (row, slice) in (0..).zip(&log.head.slices) {
                let Slice { since_ns, end_ns, .. } = *slice;
                let of_context = slices.by_context.entry(slice.context).or_default();
                of_context.push(TimedSlice { since_ns, end_ns, row });
            }
            for of_context in slices.by_context.values_mut() {
                of_context.sort_by_key(|slice| slice.end_ns);
            }
            let functions = log.head.functions.iter();
            let kernel = |symbol: &str| store.names.find(kernel_of(symbol));
            slices.kernels = functions.map(|function| kernel(&function.symbol)).collect();
            all.logs.push(slices);
            all.of_process.entry(*process).or_default().push(at);
        }
        if all.logs.is_empty() {
            return all;
        }
        all.add_outside(store);
        let mut parts = Vec::new();
        for operation in &store.operations {
            all.slices_of(store, operation, &mut parts);
            for (of, ns) in &parts {
                *all.logs[of.log].times_ns.entry((of.slice, of.kernel)).or_default() += ns;
            }
        }
        all
    }

    /// Adds the times of launches outside the windows.
    fn add_outside(&mut self, store: &Tables) {
        for (slices, (_, log)) in self.logs.iter_mut().zip(&store.instructions) {
            for (slice, function, ns) in &log.outside_ns {
                if let Some(Some(kernel)) = slices.kernels.get(*function as usize) {
                    *slices.times_ns.entry((*slice, *kernel)).or_default() += ns;
                    *slices.outside_ns.entry((*slice, *kernel)).or_default() += ns;
                }
            }
        }
    }

    /// Leaves the slices outside the windows out of the logs, and sets the times of launches outside
    /// them. `self` is from before their operations were removed.
    pub(crate) fn leave_outside_out(&self, store: &mut Tables, windows_ns: &[(u64, u64)]) {
        let within = Self::new(store);
        for (at, (_, log)) in store.instructions.iter_mut().enumerate() {
            let (all, within) = (&self.logs[at], &within.logs[at]);
            let has_work: FxHashSet<u32> =
                within.times_ns.keys().map(|(slice, _)| *slice).collect();
            let is_within = |row: u32, slice: &Slice| {
                let first = windows_ns.partition_point(|(_, end_ns)| *end_ns <= slice.begin_ns);
                has_work.contains(&row)
                    || windows_ns.get(first).is_some_and(|(begin_ns, _)| *begin_ns < slice.end_ns)
            };
            // The new positions of slices.
            let mut rows: FxHashMap<u32, u32> = FxHashMap::default();
            for (row, slice) in (0..).zip(&log.head.slices) {
                if is_within(row, slice) {
                    rows.insert(row, rows.len() as u32);
                }
            }
            let mut functions: FxHashMap<NameId, u32> = FxHashMap::default();
            for (function, kernel) in (0..).zip(&all.kernels) {
                if let Some(kernel) = kernel {
                    functions.entry(*kernel).or_insert(function);
                }
            }
            let mut outside = Vec::new();
            for ((slice, kernel), all_ns) in &all.times_ns {
                let within_ns = within.times_ns.get(&(*slice, *kernel)).copied().unwrap_or(0);
                if let (Some(row), Some(function)) = (rows.get(slice), functions.get(kernel))
                    && *all_ns > within_ns
                {
                    outside.push((*row, *function, all_ns - within_ns));
                }
            }
            if rows.len() == log.head.slices.len() && outside.is_empty() {
                continue;
            }
            outside.sort_unstable();
            let log = Arc::make_mut(log);
            log.retain_slices(|row, _| rows.contains_key(&row));
            log.outside_ns = outside;
        }
    }

    /// The share of a kernel's samples in a slice that launches within the windows have, 0 to 1.
    pub(crate) fn share_within(&self, of: SliceOfKernel) -> f64 {
        let outside =
            self.logs.get(of.log).and_then(|log| log.outside_ns.get(&(of.slice, of.kernel)));
        outside.map_or(1.0, |outside| 1.0 - *outside as f64 / self.time_ns(of).max(1) as f64)
    }

    /// Replaces `parts` with the slices that may have samples of an operation, each with its GPU
    /// time within.
    pub(crate) fn slices_of(
        &self,
        store: &Tables,
        operation: &Operation,
        parts: &mut Vec<(SliceOfKernel, u64)>,
    ) {
        parts.clear();
        let work = store.work(operation);
        let (What::Kernel { names, .. }, Some(time)) = (&work.what, operation.time()) else {
            return;
        };
        for &log in self.of_process.get(&work.process).into_iter().flatten() {
            let Some(slices) = self.logs[log].by_context.get(&work.place.context) else { continue };
            let first = slices.partition_point(|slice| slice.end_ns < time.start_ns);
            for slice in &slices[first..] {
                if slice.since_ns > time.end_ns {
                    break;
                }
                let (begin_ns, end_ns) =
                    (slice.since_ns.max(time.start_ns), slice.end_ns.min(time.end_ns));
                // The shortest kernel has a share too.
                let ns = end_ns.saturating_sub(begin_ns).max(1);
                parts.push((SliceOfKernel { log, slice: slice.row, kernel: names.name }, ns));
            }
        }
    }

    /// The kernel of a function, by its position in the log; `None` if no kernel has its name.
    pub(crate) fn kernel(&self, log: usize, function: u32) -> Option<NameId> {
        *self.logs.get(log)?.kernels.get(function as usize)?
    }

    /// The GPU time of all kernels with a name in the time of a slice.
    pub(crate) fn time_ns(&self, of: SliceOfKernel) -> u64 {
        let times_ns = self.logs.get(of.log).map(|log| &log.times_ns);
        times_ns.and_then(|times| times.get(&(of.slice, of.kernel))).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_within_a_kernel_is_of_the_kernel() {
        assert_eq!(kernel_of("gather"), "gather");
        assert_eq!(kernel_of("$gather$__internal_trig_reduction"), "gather");
        assert_eq!(kernel_of("$gather"), "$gather");
    }
}
