//! The rules `gpu_gaps` and `gpu_time_util`: idle and underused times of GPUs.

use std::collections::BTreeMap;
use std::time::Duration;

use profiler_base::units::nanoseconds;

use super::table::{Row, row};
use super::{Report, Rules, is_imported};
use profiler_core::tables::Interval;

/// The minimum length of a gap between GPU operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GapThreshold {
    /// A gap is longer than this.
    LongerThan(Duration),
    /// A gap is longer than this share of the time from the first operation to the end of the last.
    Share(f64),
}

impl GapThreshold {
    fn ns(self, whole: Interval) -> u64 {
        match self {
            Self::LongerThan(time) => nanoseconds(time),
            // CAST: saturates; a negative share gives 0.
            Self::Share(share) => (whole.ns() as f64 * share) as u64,
        }
    }
}

row! {
    /// An idle time of a GPU: a row of the rule `gpu_gaps`.
    pub(crate) GpuGap = "gpu_gaps" {
        /// The number of the row, from 1.
        row: u64 => "Row#" Plain,
        /// The length.
        duration_ns: u64 => "Duration" Duration,
        /// The start.
        start_ns: i64 => "Start" Time,
        /// The operating system's id of the process.
        pid: u32 => "PID" Plain,
        /// The device's CUDA ordinal.
        device: u32 => "Device ID" Plain,
        /// CUPTI's id of the context of the operation before it.
        context: u32 => "Context ID" Plain,
    }
}

row! {
    /// An underused time of a GPU: a row of the rule `gpu_time_util`.
    pub(crate) GpuTimeUtil = "gpu_time_util" {
        /// The number of the row, from 1.
        row: u64 => "Row#" Plain,
        /// The sum of operation times in percent of the length; above 100 if operations are
        /// concurrent.
        in_use_percent: f64 => "In-Use" Percent,
        /// The length.
        duration_ns: u64 => "Duration" Duration,
        /// The start.
        start_ns: i64 => "Start" Time,
        /// The operating system's id of the process.
        pid: u32 => "PID" Plain,
        /// The device's CUDA ordinal.
        device: u32 => "Device ID" Plain,
        /// CUPTI's id of the context of the operation that ended last.
        context: u32 => "Context ID" Plain,
    }
}

/// The operations of one process on one device, in one instance of a range or in the whole profile.
struct Busy {
    pid: u32,
    device: u32,
    /// Times and contexts by start.
    operations: Vec<(Interval, u32)>,
    /// From the first start to the last end.
    whole: Interval,
}

impl Rules<'_> {
    fn busy(&self) -> Vec<Busy> {
        let (store, scopes) = (self.store(), self.scopes());
        let mut busy: BTreeMap<(u32, u32, u32), Vec<(Interval, u32)>> = BTreeMap::new();
        for operation in self.reports().operations() {
            let Some(time) = operation.time().filter(|time| self.is_between(*time)) else {
                continue;
            };
            // nsys ignores operations that started before its session.
            if is_imported(store) && self.reports().at(time.start_ns) <= 0 {
                continue;
            }
            let Some(scope) = scopes.scope_of_operation(operation) else { continue };
            let work = store.work(operation);
            let key = (scope, work.process, work.place.device);
            busy.entry(key).or_default().push((time, work.place.context));
        }
        busy.into_iter()
            .filter_map(|((_, pid, device), mut operations)| {
                let (first, context) = *operations.first()?;
                let end_ns = operations.iter().map(|(time, _)| time.end_ns).max()?;
                let whole = Interval { start_ns: first.start_ns, end_ns };
                let inside =
                    |time: Interval| whole.start_ns < time.start_ns && time.end_ns < whole.end_ns;
                // Profiler overhead is not a gap of the program.
                let overheads = store.overheads.iter().filter(|overhead| {
                    overhead.holds_gpu && overhead.process == pid && inside(overhead.time)
                });
                let count = operations.len();
                operations.extend(overheads.map(|overhead| (overhead.time, context)));
                if operations.len() != count {
                    operations.sort_by_key(|(time, _)| time.start_ns);
                }
                let pid = self.reports().pid(pid);
                Some(Busy { pid, device, operations, whole })
            })
            .collect()
    }

    /// Idle times between operations of a device, longest first.
    pub(crate) fn gpu_gaps(self) -> Report<GpuGap> {
        let mut rows = Vec::new();
        for Busy { pid, device, operations, whole } in self.busy() {
            let threshold_ns = self.gap.ns(whole);
            let mut last = (whole.start_ns, 0);
            for (time, context) in operations {
                let duration_ns = time.start_ns.saturating_sub(last.0);
                if duration_ns > threshold_ns {
                    let start_ns = self.reports().at(last.0);
                    rows.push(GpuGap {
                        row: 0,
                        duration_ns,
                        start_ns,
                        pid,
                        device,
                        context: last.1,
                    });
                }
                if time.end_ns > last.0 {
                    last = (time.end_ns, context);
                }
            }
        }
        rows.sort_by_key(|row| (std::cmp::Reverse(row.duration_ns), row.start_ns));
        (1..).zip(&mut rows).for_each(|(number, row)| row.row = number);
        self.idle(rows, "no device was idle for so long between its operations")
    }

    /// Times with low use of a device, lowest first. Adjacent low parts form one row.
    pub(crate) fn gpu_time_util(self) -> Report<GpuTimeUtil> {
        let mut rows = Vec::new();
        for busy in self.busy() {
            self.add_parts(&busy, &mut rows);
        }
        rows.sort_by_key(|row: &GpuTimeUtil| {
            // CAST: printed with one decimal.
            ((row.in_use_percent * 10.0).round() as u64, row.duration_ns, row.start_ns)
        });
        (1..).zip(&mut rows).for_each(|(number, row)| row.row = number);
        self.idle(rows, "every device had enough to do between its first and last operation")
    }

    fn idle<R: Row>(self, rows: Vec<R>, empty: &'static str) -> Report<R> {
        let report = Report::new(rows, empty).without_graphs(self.reports().whole_graphs());
        self.limited(report.leaving_out(self.without_time(|_| true)))
    }

    fn add_parts(&self, busy: &Busy, rows: &mut Vec<GpuTimeUtil>) {
        let Busy { pid, device, ref operations, whole } = *busy;
        let size = whole.ns().div_ceil(u64::from(self.chunks)).max(1);
        let count = whole.ns().div_ceil(size);
        let mut used_ns = vec![0_u64; count as usize];
        for (time, _) in operations {
            let mut at_ns = time.start_ns - whole.start_ns;
            let end_ns = time.end_ns.saturating_sub(whole.start_ns);
            while at_ns < end_ns {
                let part = at_ns / size;
                let until_ns = end_ns.min((part + 1).saturating_mul(size));
                let used = &mut used_ns[part as usize];
                *used = used.saturating_add(until_ns - at_ns);
                at_ns = until_ns;
            }
        }
        // nsys reports the context of the operation that ended last.
        let last = operations.iter().max_by_key(|(time, _)| time.end_ns);
        let context = last.map_or(0, |(_, context)| *context);
        // Start, length and use of adjacent parts.
        let mut open: Option<(u64, u64, u64)> = None;
        let mut close = |open: Option<(u64, u64, u64)>| {
            let Some((start_ns, duration_ns, used_ns)) = open else { return };
            let start_ns = self.reports().at(whole.start_ns + start_ns);
            let in_use_percent = used_ns as f64 * 100.0 / duration_ns as f64;
            rows.push(GpuTimeUtil {
                row: 0,
                in_use_percent,
                duration_ns,
                start_ns,
                pid,
                device,
                context,
            });
        };
        for (part, used_ns) in (0..).zip(used_ns) {
            let start_ns = part * size;
            let length_ns = size.min(whole.ns() - start_ns);
            if used_ns as f64 / length_ns as f64 * 100.0 < self.below_percent {
                let (start_ns, before_ns, before_used_ns) = open.unwrap_or((start_ns, 0, 0));
                open =
                    Some((start_ns, before_ns + length_ns, before_used_ns.saturating_add(used_ns)));
            } else {
                close(open.take());
            }
        }
        close(open);
    }
}
