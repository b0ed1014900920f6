//! Kernels with their launches, and the time between the two.

use std::sync::Arc;

use super::sums::TimeSummary;
use super::table::{computed_row, row};
use super::texts::{OperationTexts, functions, kernel_details};
use super::{Report, Reports};
use profiler_base::distinct::Texts;
use profiler_core::tables::{Call, Interval, Operation};
use rustc_hash::FxHashMap;

const NO_LAUNCHES: &str = "no kernel was recorded whose launch is known";

row! {
    /// Statistics of the launches of one kernel: a row of `cuda_kern_exec_sum`.
    ///
    /// A launch waits in the queue from the call's return to the kernel's start. A kernel that
    /// starts before the return does not wait.
    pub(crate) CudaKernExecSum = "cuda_kern_exec_sum" {
        /// The operating system's id of the process that launched.
        pid: u32 => "PID" Plain,
        /// The operating system's id of the thread that launched.
        tid: u32 => "TID" Plain,
        /// The device's CUDA ordinal.
        device: u32 => "DevId" Plain,
        /// The number of kernels.
        count: u64 => "Count" Plain,
        /// The number of kernels that waited in the queue.
        queue_count: u64 => "QCount" Plain,
        /// The time from the call until both the call and the kernel had ended.
        total: TimeSummary => |row, cells| cells.add_spread(
            ["TAvg", "TMed", "TMin", "TMax", "TStdDev"], Some(&row.total)),
        /// The duration of the call on the host.
        api: TimeSummary => |row, cells| cells.add_spread(
            ["AAvg", "AMed", "AMin", "AMax", "AStdDev"], Some(&row.api)),
        /// The time in the queue of the kernels that waited; `None` if no kernel did.
        queue: Option<TimeSummary> => |row, cells| cells.add_spread(
            ["QAvg", "QMed", "QMin", "QMax", "QStdDev"], row.queue.as_ref()),
        /// The duration of the kernel on the GPU.
        kernel: TimeSummary => |row, cells| cells.add_spread(
            ["KAvg", "KMed", "KMin", "KMax", "KStdDev"], Some(&row.kernel)),
        /// The launching function.
        api_name: Arc<str> => "API Name" Plain,
        /// The kernel.
        kernel_name: Arc<str> => "Kernel Name" Plain,
    }
}

computed_row! {
    /// One kernel with its launch: a row of `cuda_kern_exec_trace`.
    CudaKernExecTrace = "cuda_kern_exec_trace" from (reports: Reports<'_>, launch: Launch<'_>, api_function: Arc<str>, kernel_name: Arc<str>) {
        /// The start of the launch call.
        api_start_ns: i64 = reports.at(launch.call.time.start_ns) => "API Start" Time,
        /// The duration of the call on the host.
        api_duration_ns: u64 = launch.call.time.ns() => "API Dur" Duration,
        /// The return of the call, if the kernel waited in the queue.
        queue_start_ns: Option<i64> = launch.queue_ns().map(|_| reports.at(launch.call.time.end_ns)) => "Queue Start" Time,
        /// The time in the queue, if the kernel waited.
        queue_duration_ns: Option<u64> = launch.queue_ns() => "Queue Dur" Duration,
        /// The start of the kernel on the GPU.
        kernel_start_ns: i64 = reports.at(launch.time.start_ns) => "Kernel Start" Time,
        /// The duration of the kernel on the GPU.
        kernel_duration_ns: u64 = launch.time.ns() => "Kernel Dur" Duration,
        /// The time from the call until both the call and the kernel had ended.
        total_duration_ns: u64 = launch.total_ns() => "Total Dur" Duration,
        /// The operating system's id of the process that launched.
        pid: u32 = reports.pid(reports.thread(launch.call.thread).process) => "PID" Plain,
        /// The operating system's id of the thread that launched.
        tid: u32 = reports.thread(launch.call.thread).id => "TID" Plain,
        /// The device's CUDA ordinal.
        device: u32 = reports.store().work(launch.operation).place.device => "DevId" Plain,
        /// The launching function.
        api_function: Arc<str> = api_function => "API Function" Plain,
        /// Blocks in x, y, z.
        grid: [u32; 3] = launch.details.grid => "GridXYZ" Plain,
        /// Threads of a block in x, y, z.
        block: [u32; 3] = launch.details.block => "BlockXYZ" Plain,
        /// The kernel.
        kernel_name: Arc<str> = kernel_name => "Kernel Name" Plain,
    }
}

/// A kernel and the call that launched it, which has returned.
#[derive(Clone, Copy)]
struct Launch<'a> {
    operation: &'a Operation,
    details: &'a cupti::Kernel,
    call: &'a Call,
    time: Interval,
}

impl Launch<'_> {
    fn queue_ns(&self) -> Option<u64> {
        self.time.start_ns.checked_sub(self.call.time.end_ns)
    }

    fn total_ns(&self) -> u64 {
        self.time.end_ns.max(self.call.time.end_ns).saturating_sub(self.call.time.start_ns)
    }
}

#[derive(Default)]
struct Times {
    total: Vec<u64>,
    api: Vec<u64>,
    queue: Vec<u64>,
    kernel: Vec<u64>,
}

impl<'a> Reports<'a> {
    /// Returns kernels with a known launch and times, and the number of kernels without times.
    fn launches(self) -> (Vec<Launch<'a>>, u64) {
        let store = self.store();
        let mut left_out = 0;
        let launches = store
            .operations
            .iter()
            .filter_map(|operation| Some((operation, kernel_details(store, operation)?)))
            .flat_map(|(operation, details)| {
                let calls = store.calls_of(operation).iter();
                calls.map(move |call| (operation, details, call))
            })
            .filter_map(|(operation, details, call)| {
                let returned = store.call_kind(call).has_returned;
                let Some(time) = operation.time().filter(|_| returned) else {
                    left_out += 1;
                    return None;
                };
                Some(Launch { operation, details, call, time })
            })
            .collect();
        (launches, left_out)
    }

    /// Returns kernels by name, launching function, thread and device, sorted by the mean time from
    /// launch to end, longest first.
    pub(crate) fn cuda_kern_exec_sum(self) -> Report<CudaKernExecSum> {
        let store = self.store();
        let mut texts = OperationTexts::new(self);
        let mut function_texts = Texts::default();
        let functions: Vec<u32> =
            functions(self).iter().map(|name| function_texts.text(name)).collect();
        let mut groups: FxHashMap<_, Times> = FxHashMap::default();
        let (launches, left_out) = self.launches();
        for launch in launches {
            let device = store.work(launch.operation).place.device;
            let function = functions[launch.call.kind.at()];
            let key = (launch.call.thread, device, function, texts.index(launch.operation));
            let times = groups.entry(key).or_default();
            times.total.push(launch.total_ns());
            times.api.push(launch.call.time.ns());
            times.queue.extend(launch.queue_ns());
            times.kernel.push(launch.time.ns());
        }
        let row = |((thread, device, function, kernel), times): ((_, _, _, _), Times)| {
            let thread = self.thread(thread);
            Some(CudaKernExecSum {
                pid: self.pid(thread.process),
                tid: thread.id,
                device,
                count: times.total.len() as u64,
                queue_count: times.queue.len() as u64,
                total: TimeSummary::from_values(times.total)?,
                api: TimeSummary::from_values(times.api)?,
                queue: TimeSummary::from_values(times.queue),
                kernel: TimeSummary::from_values(times.kernel)?,
                api_name: function_texts.get(function).clone(),
                kernel_name: texts.get(kernel),
            })
        };
        let mut rows: Vec<CudaKernExecSum> = groups.into_iter().filter_map(row).collect();
        rows.sort_by(|a, b| {
            let by_time = b.total.avg_ns.total_cmp(&a.total.avg_ns);
            let by_thread = (a.pid, a.tid, a.device).cmp(&(b.pid, b.tid, b.device));
            by_time
                .then(by_thread)
                .then_with(|| (&a.api_name, &a.kernel_name).cmp(&(&b.api_name, &b.kernel_name)))
        });
        Report::new(rows, NO_LAUNCHES).leaving_out(left_out)
    }

    /// Returns every kernel with its launch, by the start of the launch.
    pub(crate) fn cuda_kern_exec_trace(self) -> Report<CudaKernExecTrace> {
        let mut texts = OperationTexts::new(self);
        let functions = functions(self);
        let (launches, left_out) = self.launches();
        let mut rows: Vec<CudaKernExecTrace> = launches
            .into_iter()
            .map(|launch| {
                let kernel = texts.index(launch.operation);
                let function = functions[launch.call.kind.at()].clone();
                CudaKernExecTrace::new(self, launch, function, texts.get(kernel))
            })
            .collect();
        rows.sort_by_key(|row| row.api_start_ns);
        Report::new(rows, NO_LAUNCHES).leaving_out(left_out)
    }
}
