//! Calls into CUDA: by function, and each.

use std::cmp::Reverse;
use std::sync::Arc;

use super::sums::{Group, Groups, Summary};
use super::table::row;
use super::texts::{function, functions};
use super::{Report, Reports};
use crate::join::tables::NameId;

const NO_CALLS: &str = "no call into CUDA was recorded";

row! {
    /// All calls of one function: a row of `cuda_api_sum`.
    CudaApiSum = "cuda_api_sum" {
        /// Percent of the time of all calls.
        time_percent: f64 => "Time" Percent,
        /// How often it was called.
        num_calls: u64,
        /// How long it took on the host.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Num Calls", row.num_calls, &row.time),
        /// The function.
        name: Arc<str> => "Name" Plain,
    }
}

row! {
    /// One call: a row of `cuda_api_trace`.
    CudaApiTrace = "cuda_api_trace" {
        /// When it was called.
        start_ns: i64 => "Start" Time,
        /// How long it took on the host; `None` if it had not returned.
        duration_ns: Option<u64> => "Duration" Duration,
        /// The function.
        name: Arc<str> => "Name" Plain,
        /// Its `CUresult` or `cudaError_t`.
        result: u32 => "Result" Plain,
        /// The id that its work on the GPU has too.
        correlation_id: u32 => "CorrID" Plain,
        /// The kernel's id of the process.
        pid: u32 => "Pid" Plain,
        /// The kernel's id of the thread.
        tid: u32 => "Tid" Plain,
        /// The thread's priority, where the source says it.
        thread_priority: Option<i64> => "T-Pri" Plain,
        /// The thread's name, if it has one.
        thread_name: Option<Arc<str>> => "Thread Name" Plain,
    }
}

impl Reports<'_> {
    /// Calls by function. Those that took most come first, then by name.
    pub fn cuda_api_sum(self) -> Report<CudaApiSum> {
        let store = self.store();
        let mut groups = Groups::new();
        for call in self.calls() {
            let kind = store.call_kind(call);
            groups.add_time(kind.has_returned.then_some(call.time), || kind.name);
        }
        let left_out = groups.left_out;
        let row = |group: Group<NameId>| CudaApiSum {
            time_percent: group.percent,
            num_calls: group.count,
            time: group.summary,
            name: function(store.names.get(group.key)).into(),
        };
        let mut rows: Vec<CudaApiSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| (Reverse(row.time.total_ns), row.name.clone()));
        Report::new(rows, NO_CALLS).leaving_out(left_out)
    }

    /// Every call by start; those of a thread at one time in the order they were made.
    pub fn cuda_api_trace(self) -> Report<CudaApiTrace> {
        let store = self.store();
        let functions = functions(self);
        let thread_names: Vec<Option<Arc<str>>> =
            store.threads.iter().map(|thread| thread.name.as_deref().map(Into::into)).collect();
        let mut rows: Vec<CudaApiTrace> = self
            .calls()
            .map(|call| {
                let kind = store.call_kind(call);
                let thread = self.thread(call.thread);
                CudaApiTrace {
                    start_ns: self.at(call.time.start_ns),
                    duration_ns: kind.has_returned.then(|| call.time.ns()),
                    name: functions[call.kind.at()].clone(),
                    result: kind.result,
                    correlation_id: call.correlation_id,
                    pid: self.pid(thread.process),
                    tid: thread.id,
                    thread_priority: thread.priority,
                    thread_name: thread_names[call.thread.at()].clone(),
                }
            })
            .collect();
        rows.sort_by_key(|row| row.start_ns);
        Report::new(rows, NO_CALLS)
    }
}
