//! Calls into CUDA: by function, and each.

use std::sync::Arc;

use serde::Serialize;

use super::sums::{Groups, Summary, percent};
use super::table::{Cells, Columns, Row, Unit, column};
use super::texts::{function, functions};
use super::{Report, Reports};

const NO_CALLS: &str = "no call into CUDA was recorded";

/// All calls of one function: a row of `cuda_api_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaApiSum {
    /// Percent of the time of all calls.
    pub time_percent: f64,
    /// How often it was called.
    pub num_calls: u64,
    /// How long it took on the host.
    #[serde(flatten)]
    pub time: Summary,
    /// The function.
    pub name: Arc<str>,
}

impl Row for CudaApiSum {
    const NAME: &'static str = "cuda_api_sum";
    const COLUMNS: Columns = Columns(&[
        column("Time", Unit::Percent),
        column("Total Time", Unit::Duration),
        column("Num Calls", Unit::Plain),
        column("Avg", Unit::Duration),
        column("Med", Unit::Duration),
        column("Min", Unit::Duration),
        column("Max", Unit::Duration),
        column("StdDev", Unit::Duration),
        column("Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.time_percent).add_summary(self.num_calls, &self.time).add(&self.name);
    }
}

/// One call: a row of `cuda_api_trace`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaApiTrace {
    /// When it was called.
    pub start_ns: i64,
    /// How long it took on the host; `None` if it had not returned.
    pub duration_ns: Option<u64>,
    /// The function.
    pub name: Arc<str>,
    /// Its `CUresult` or `cudaError_t`.
    pub result: u32,
    /// The id that its work on the GPU has too.
    pub correlation_id: u32,
    /// The kernel's id of the process.
    pub pid: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// The thread's priority, where the source says it.
    pub thread_priority: Option<i64>,
    /// The thread's name, if it has one.
    pub thread_name: Option<Arc<str>>,
}

impl Row for CudaApiTrace {
    const NAME: &'static str = "cuda_api_trace";
    const COLUMNS: Columns = Columns(&[
        column("Start", Unit::Time),
        column("Duration", Unit::Duration),
        column("Name", Unit::Plain),
        column("Result", Unit::Plain),
        column("CorrID", Unit::Plain),
        column("Pid", Unit::Plain),
        column("Tid", Unit::Plain),
        column("T-Pri", Unit::Plain),
        column("Thread Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.start_ns).add(self.duration_ns).add(&self.name).add(self.result);
        cells.add(self.correlation_id).add(self.pid).add(self.tid);
        cells.add(self.thread_priority).add(self.thread_name.as_ref());
    }
}

impl Reports<'_> {
    /// Calls by function. Those that took most come first, then by name.
    pub fn cuda_api_sum(self) -> Report<CudaApiSum> {
        let store = self.store();
        let mut groups = Groups::new();
        let mut left_out = 0;
        for call in self.calls() {
            let kind = store.call_kind(call);
            if kind.has_returned {
                groups.add(kind.name, call.time.ns());
            } else {
                left_out += 1;
            }
        }
        let (groups, whole) = groups.finish();
        let mut rows: Vec<CudaApiSum> = groups
            .into_iter()
            .map(|group| CudaApiSum {
                time_percent: percent(group.summary.total_ns, whole),
                num_calls: group.count,
                time: group.summary,
                name: function(store.names.get(group.key)).into(),
            })
            .collect();
        rows.sort_by(|a, b| {
            b.time.total_ns.cmp(&a.time.total_ns).then_with(|| a.name.cmp(&b.name))
        });
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
