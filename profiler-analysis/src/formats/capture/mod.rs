//! Captures of other tools. They have times of ranges, calls and operations, but no tags: ranges are
//! found by thread and time, and calls by correlation id.

mod nesting;

use std::cmp::Reverse;
use std::time::Duration;

use cupti::{CallClass, DriverFunction, Place, RuntimeFunction};
use rustc_hash::FxHashSet;

use crate::error::Error;
pub(crate) use nesting::Sweep;
use profiler_core::Health;
use profiler_core::profile::RecordingInfo;
use profiler_core::tables::GraphNodes;
use profiler_core::tables::{
    Api, Builder, Call, CallKind, CallKindId, Interval, Joined, Maybe, NameId, Operation, Overhead,
    RangeId, RangesBy, Session, Tables, ThreadId, What, Work,
};

/// The name of a row without a name in the capture.
pub(crate) const UNKNOWN_NAME: &str = "(unknown name)";

/// The rows of a capture while it is read.
pub(crate) struct Capture {
    pub(crate) store: Tables,
    pub(crate) health: Health,
    /// Copies and memsets submitted by asynchronous calls, by process and correlation id.
    asynchronous: FxHashSet<(u32, u32)>,
    /// By process and node.
    pub(crate) nodes: GraphNodes<RangeId, (u32, u64)>,
    /// The start of the capture, and the latest time.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// The latest start or end of all ranges, and of all annotations.
    pub(crate) last_range_ns: u64,
    pub(crate) last_annotation_ns: u64,
    /// The largest error of times: a call may end this much after its range.
    pub(crate) rounding_ns: u64,
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            store: Tables::default(),
            health: Health::default(),
            asynchronous: FxHashSet::default(),
            nodes: GraphNodes::new(usize::MAX),
            begin_ns: 0,
            end_ns: 0,
            last_range_ns: 0,
            last_annotation_ns: 0,
            rounding_ns: 0,
        }
    }
}

/// The properties that calls of a function share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    kind: CallKindId,
    /// True for a copy or memset that the call does not wait for.
    is_asynchronous: bool,
}

/// The values that operations of all kinds have.
pub(crate) struct OperationRow {
    pub(crate) time: Option<Interval>,
    pub(crate) place: Place,
    pub(crate) correlation_id: u32,
    pub(crate) process: u32,
    pub(crate) green_context: Option<u32>,
}

impl Capture {
    /// Counts a record that could not be read.
    pub(crate) fn unreadable(&mut self) {
        self.health.losses.unknown_records += 1;
    }

    /// The properties of calls of a function. Without an API, it follows from the name.
    pub(crate) fn function(&mut self, name: NameId, api: Option<Api>, result: u32) -> Function {
        let text = self.store.names.get(name);
        let (api, class) = call_class(text, api);
        let is_transfer = matches!(class, CallClass::Memcpy | CallClass::Memset);
        let is_asynchronous = is_transfer && text.contains("Async");
        let kind = CallKind { result, ..CallKind::new(name, api, class) };
        Function { kind: self.store.intern_call_kind(kind), is_asynchronous }
    }

    pub(crate) fn push_call(
        &mut self,
        function: Function,
        time: Interval,
        correlation_id: u32,
        thread: ThreadId,
    ) {
        if function.is_asynchronous {
            let process = self.store.threads[thread.at()].process;
            self.asynchronous.insert((process, correlation_id));
        }
        self.end_ns = self.end_ns.max(time.end_ns);
        let (kind, range) = (function.kind, Maybe::NONE);
        self.store.calls.push(Call { time, correlation_id, kind, thread, range });
    }

    /// Sorts calls; enclosing ones come first.
    pub(crate) fn sort_calls(&mut self) {
        self.store.calls.sort_by_key(|call| {
            let Call { thread, time, correlation_id, .. } = *call;
            (thread, time.start_ns, Reverse(time.end_ns), correlation_id)
        });
    }

    /// True for a copy or memset of an asynchronous call.
    pub(crate) fn is_asynchronous(&self, row: &OperationRow) -> bool {
        self.asynchronous.contains(&(row.process, row.correlation_id))
    }

    pub(crate) fn push_work(&mut self, row: &OperationRow, work: Work) {
        self.health.records += 1;
        let node = work.what.graph_node();
        let captured = node.and_then(|node| self.nodes.range((row.process, node.node)));
        let (process, green_context) = (row.process, row.green_context);
        let work = Work { process, green_context, ..work };
        let work = self.store.intern_work(work);
        let mut operation = Operation::new(work, row.time, row.correlation_id);
        operation.captured = captured.into();
        self.store.operations.push(operation);
    }

    pub(crate) fn push_overhead(&mut self, time: Interval, process: u32, holds_gpu: bool) {
        self.end_ns = self.end_ns.max(time.end_ns);
        let overhead = &mut self.health.facts.overhead;
        *overhead = overhead.saturating_add(Duration::from_nanos(time.ns()));
        self.store.overheads.push(Overhead { time, process, holds_gpu });
    }

    pub(crate) fn push_operation(&mut self, row: &OperationRow, what: What, copy_kind: u8) {
        self.push_work(row, Work { copy_kind, ..Work::new(what, row.place) });
    }

    /// Sets the range around each range, process range, mark and call: of the open ranges of all
    /// domains, the one that began last. A call is within a range that is open until it returns.
    ///
    /// [`rounding_ns`](Self::rounding_ns) is added to the ends of ranges.
    ///
    /// A range without an end contains a call after the last end of all ranges only if all ranges
    /// around it have no end either.
    pub(crate) fn nest(&mut self) {
        let (last_ns, rounding_ns) =
            (self.last_range_ns.saturating_add(self.rounding_ns), self.rounding_ns);
        let Tables { ranges, process_ranges, marks, calls, threads, .. } = &mut self.store;
        let mut sweep = Sweep::default();
        // Ranges without an end whose outer ranges have none either.
        let mut is_open = vec![false; ranges.len()];
        let (mut next, mut next_call, mut next_process, mut next_mark) = (0, 0, 0, 0);
        for thread in (0..threads.len() as u32).map(ThreadId) {
            sweep.clear();
            loop {
                let range = ranges.get(next).filter(|range| range.thread == thread);
                let until_ns = range.map_or(u64::MAX, |range| range.time.start_ns);
                let is_last = range.is_none();
                // Events that start together with a range belong to it.
                let is_due =
                    |of: ThreadId, at_ns: u64| of == thread && (is_last || at_ns < until_ns);
                while let Some(call) = calls.get_mut(next_call)
                    && is_due(call.thread, call.time.start_ns)
                {
                    let is_around =
                        |range: &u32| call.time.end_ns <= last_ns || is_open[*range as usize];
                    let Interval { start_ns, end_ns } = call.time;
                    // Not in a range that ended before the call.
                    let open_ns =
                        end_ns.saturating_sub(rounding_ns).max(start_ns.saturating_add(1));
                    let around = sweep.innermost(open_ns.min(end_ns)).filter(is_around);
                    call.range = around.map(RangeId).into();
                    next_call += 1;
                }
                while let Some(process) = process_ranges.get_mut(next_process)
                    && is_due(process.thread, process.time.start_ns)
                {
                    process.parent = sweep.innermost(process.time.start_ns).map(RangeId);
                    next_process += 1;
                }
                while let Some(mark) = marks.get_mut(next_mark)
                    && is_due(mark.thread, mark.at_ns)
                {
                    mark.parent = sweep.innermost(mark.at_ns).map(RangeId);
                    next_mark += 1;
                }
                if is_last {
                    break;
                }
                let range = &mut ranges[next];
                let Interval { start_ns, end_ns } = range.time;
                // A range that ends when this one begins is no longer open.
                let parent = sweep.innermost(end_ns.min(start_ns.saturating_add(1)));
                range.parent = parent.map(RangeId).into();
                let around = sweep.innermost(end_ns.min(last_ns));
                is_open[next] =
                    range.is_open && around.is_none_or(|around| is_open[around as usize]);
                sweep.begin(next as u32, start_ns, end_ns);
                next += 1;
            }
        }
    }

    /// Sorts the rows, whose order in the capture is meaningless, and joins them. The capture's time
    /// 0 is `zero_ns`.
    pub(crate) fn finish(self, info: RecordingInfo, zero_ns: u64) -> Result<Joined, Error> {
        let Self { mut store, health, begin_ns, end_ns, last_annotation_ns, .. } = self;
        // Simultaneous operations by id.
        let mut operations = std::mem::take(&mut store.operations);
        let rest = |operation: &Operation| {
            let work = store.work(operation);
            let place = (work.process, work.place.device, work.place.context, work.place.stream);
            let node = work.what.graph_node().map(|node| node.node);
            (operation.ns(), operation.correlation_id, place, node)
        };
        operations
            .sort_by(|a, b| a.start_ns().cmp(&b.start_ns()).then_with(|| rest(a).cmp(&rest(b))));
        store.operations = operations;
        store.synchronizations.sort_by_key(|row| {
            let cupti::Span { start_ns, end_ns, .. } = row.record.span;
            (start_ns, end_ns, row.process, row.record.correlation_id)
        });
        store.memory.sort_by_key(|event| {
            (event.at_ns, event.process, event.correlation_id, event.address, event.is_allocation)
        });
        store.managed.sort_by_key(|event| (event.time.start_ns, event.process, event.address));
        store.overheads.sort_by_key(|overhead| {
            (overhead.time.start_ns, overhead.time.end_ns, overhead.process, overhead.holds_gpu)
        });
        store.session = Session {
            window_ns: (begin_ns, end_ns),
            windows_ns: vec![(0, u64::MAX)],
            ranges_by: RangesBy::Containment,
            zero_ns,
            last_annotation_ns,
            ..Session::default()
        };
        let mut builder = Builder::new(info);
        (*builder.tables(), *builder.health()) = (store, health);
        Ok(builder.finish()?)
    }
}

/// A function's name without a version suffix: `cudaLaunchKernel` for
/// `cudaLaunchKernel_v7000`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((short, version))
            if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            short
        }
        _ => name,
    }
}

/// The API and class of a function; without an API, it follows from the name.
fn call_class(name: &str, api: Option<Api>) -> (Api, CallClass) {
    let by_name = if name.starts_with("cuda") { Api::Runtime } else { Api::Driver };
    let api = api.unwrap_or(by_name);
    let name = without_version(name);
    let plain = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
    let class = |name: &str| match api {
        Api::Driver => DriverFunction::by_name(name).map(DriverFunction::class),
        Api::Runtime => RuntimeFunction::by_name(name).map(RuntimeFunction::class),
    };
    let known = class(name).or_else(|| class(plain?));
    (api, known.unwrap_or(CallClass::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_with_its_version() {
        let class = |name| call_class(name, None);
        assert_eq!(class("cudaLaunchKernel_v7000"), (Api::Runtime, CallClass::KernelLaunch));
        assert_eq!(class("cudaLaunchKernel_ptsz_v7000"), (Api::Runtime, CallClass::KernelLaunch));
        assert_eq!(class("cudaMemcpyAsync"), (Api::Runtime, CallClass::Memcpy));
        assert_eq!(class("cuMemcpyHtoD_v2"), (Api::Driver, CallClass::Memcpy));
        assert_eq!(class("cuModuleGetLoadingMode"), (Api::Driver, CallClass::Unknown));
        assert_eq!(call_class("x", Some(Api::Runtime)), (Api::Runtime, CallClass::Unknown));
    }
}
