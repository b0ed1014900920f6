//! The rules of `nsys analyze`: waits of the host, and idle times of the GPU.

use std::sync::Arc;
use std::time::Duration;

use super::table::{computed_row, row};
use super::texts::{memory_text, recorded_function};
use super::{AnyReport, GapThreshold, Report, Reports, is_imported, named};
use profiler_base::distinct::Texts;
use profiler_base::kernel_names::Pattern;
use profiler_base::setters;
use profiler_core::profile::Profile;
use profiler_core::tables::{Api, Call, Interval, Operation, RangeId, Tables, What};
use rustc_hash::FxHashMap;

named! {
    /// A rule of `nsys analyze`.
    Rule: "rule" of Rules {
        CudaApiSync = cuda_api_sync "calls that wait for a stream, a context or a device.",
        CudaMemcpyAsync = cuda_memcpy_async "asynchronous copies of pageable memory, which are synchronous.",
        CudaMemcpySync = cuda_memcpy_sync "copies for which the host waits.",
        CudaMemsetSync = cuda_memset_sync "memsets of host memory for which the host waits.",
        GpuGaps = gpu_gaps "times in which a GPU had nothing to do.",
        GpuTimeUtil = gpu_time_util "times in which a GPU had little to do.",
    }
}

impl Rule {
    /// The remedy for a finding.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::CudaApiSync => {
                "the host waits until the GPU is done, and the GPU then until the host has launched anew: wait for \
                 events, on the GPU where it can be, and no more often than a result is read"
            }
            Self::CudaMemcpyAsync => {
                "the call returns only when the driver has copied the pageable memory: take pinned memory"
            }
            Self::CudaMemcpySync => {
                "the host waits for the copy: take the asynchronous call and pinned memory"
            }
            Self::CudaMemsetSync => "the host waits for the memset: take the asynchronous call",
            Self::GpuGaps => {
                "check the host activity in the gap: a wait, work between two launches, or late input"
            }
            Self::GpuTimeUtil => {
                "launch more work at once: larger batches, several streams, a CUDA graph, or fewer waits of the host"
            }
        }
    }
}

computed_row! {
    /// A call that waited: a row of the rule `cuda_api_sync`.
    CudaApiSync = "cuda_api_sync" from (reports: Reports<'_>, call: &Call, api_name: Arc<str>) {
        /// The duration of the wait on the host.
        duration_ns: u64 = call.time.ns() => "Duration" Duration,
        /// The start of the call.
        start_ns: i64 = reports.at(call.time.start_ns) => "Start" Time,
        /// The operating system's id of the process.
        pid: u32 = reports.pid(reports.thread(call.thread).process) => "PID" Plain,
        /// The operating system's id of the thread.
        tid: u32 = reports.thread(call.thread).id => "TID" Plain,
        /// The function.
        api_name: Arc<str> = api_name => "API Name" Plain,
    }
}

/// Declares the row of a rule on copies or memsets, with columns for kinds of memory.
macro_rules! transfer_row {
    ($(#[$doc:meta])* $type:ident = $name:literal of $record:ident: $of:ty {
        $($(#[$attribute:meta])* $memory:ident = $kind:expr => $header:literal,)+
    }) => {
        row! {
            $(#[$doc])*
            pub(crate) $type = $name {
                /// The duration on the GPU.
                duration_ns: u64 => "Duration" Duration,
                /// The start on the GPU.
                start_ns: i64 => "Start" Time,
                $($(#[$attribute])* $memory: &'static str => $header Plain,)+
                /// Bytes copied or set.
                bytes: u64 => "Bytes" Bytes,
                /// The operating system's id of the process.
                pid: u32 => "PID" Plain,
                /// The device's CUDA ordinal.
                device: u32 => "Device ID" Plain,
                /// CUPTI's id of the context.
                context: u32 => "Context ID" Plain,
                /// The id of the green context, if the source has it.
                green_context: Option<u32> => "Green Context ID" Plain,
                /// CUPTI's id of the stream.
                stream: u32 => "Stream ID" Plain,
                /// The submitting function.
                api_name: Arc<str> => "API Name" Plain,
            }
        }

        impl $type {
            fn new(rules: &Rules<'_>, found: &Found<'_>, $record: &$of) -> Self {
                let work = rules.store().work(found.operation);
                Self {
                    duration_ns: found.time.ns(),
                    start_ns: rules.reports().at(found.time.start_ns),
                    $($memory: memory_text($kind),)+
                    bytes: $record.bytes,
                    pid: rules.reports().pid(work.process),
                    device: work.place.device,
                    context: work.place.context,
                    green_context: work.green_context.filter(|id| *id != 0),
                    stream: work.place.stream,
                    api_name: found.function.clone(),
                }
            }
        }
    };
}

transfer_row! {
    /// A copy of pageable memory by an asynchronous call: a row of the rule `cuda_memcpy_async`.
    CudaMemcpyAsync = "cuda_memcpy_async" of copy: cupti::Memcpy {
        /// The memory that was read.
        source_memory = copy.source => "Src Kind",
        /// The memory that was written.
        destination_memory = copy.destination => "Dst Kind",
    }
}
transfer_row! {
    /// A copy by a synchronous call: a row of the rule `cuda_memcpy_sync`.
    CudaMemcpySync = "cuda_memcpy_sync" of copy: cupti::Memcpy {
        /// The memory that was read.
        source_memory = copy.source => "Src Kind",
        /// The memory that was written.
        destination_memory = copy.destination => "Dst Kind",
    }
}
transfer_row! {
    /// A memset by a synchronous call: a row of the rule `cuda_memset_sync`.
    CudaMemsetSync = "cuda_memset_sync" of memset: cupti::Memset {
        /// The memory that was set.
        memory = memset.memory => "Memory Kind",
    }
}

/// Evaluates the rules of `nsys analyze`, anew for each call, at a few nanoseconds per operation or
/// call.
///
/// On a capture of nsys the defaults are nsys's own: only calls of the runtime API, and gaps of
/// half a second. On other profiles the driver API counts too, since a program may use only that
/// one. The minimum gap is then a hundredth of the examined time.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Rules<'a> {
    pub(super) profile: &'a Profile,
    rows: Option<usize>,
    driver_api: bool,
    path: Option<&'a str>,
    between_ns: (i64, i64),
    pub(super) gap: GapThreshold,
    pub(super) chunks: u32,
    pub(super) below_percent: f64,
}

/// An operation and the function that submitted it.
struct Found<'a> {
    operation: &'a Operation,
    time: Interval,
    function: Arc<str>,
}

/// The calls and operations that a rule examines: all, or those in the instances of a range.
pub(super) struct Scopes<'a> {
    profile: &'a Profile,
    /// The instance around each range; `None` examines everything.
    instances: Option<Vec<Option<u32>>>,
    /// The instances themselves; late calls are searched for them.
    own: FxHashMap<RangeId, u32>,
}

impl Scopes<'_> {
    /// The number of the instance around a call; 0 without a restriction, `None` outside all
    /// instances.
    pub(super) fn scope(&self, call: &Call) -> Option<u32> {
        let Some(instances) = &self.instances else { return Some(0) };
        match self.profile.range_tree().late_chain(self.profile.tables(), call) {
            None => instances[call.range.get()?.at()],
            Some(chain) => chain.filter_map(|range| self.own.get(&range).copied()).last(),
        }
    }

    /// Applies [`scope`](Self::scope) to the call of an operation.
    pub(super) fn scope_of_operation(&self, operation: &Operation) -> Option<u32> {
        match operation.call.get() {
            Some(call) => self.scope(&self.profile.tables().calls[call.at()]),
            None => self.instances.is_none().then_some(0),
        }
    }
}

impl<'a> Rules<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let of_nsys = is_imported(profile.tables());
        let gap = match of_nsys {
            true => GapThreshold::LongerThan(Duration::from_millis(500)),
            false => GapThreshold::Share(0.01),
        };
        Self {
            profile,
            rows: Some(50),
            driver_api: !of_nsys,
            path: None,
            between_ns: (i64::MIN, i64::MAX),
            gap,
            chunks: 30,
            below_percent: 50.0,
        }
    }

    setters! {
        /// Sets the maximum number of rows of each rule; `None` for all, 50 by default.
        /// [`AnyReport::more_rows`] is the number of rows beyond.
        rows(rows: Option<usize>) rows = rows;
        /// Sets if calls of the driver API count.
        driver_api(driver_api: bool) driver_api = driver_api;
        /// Restricts rules to the work of ranges, by path as in [`Profile::range`]. Gaps and idle
        /// times are determined for each instance separately.
        within(path: &'a str) path = Some(path);
        /// Sets the length above which a time without operations is a gap.
        min_gap(gap: Duration) gap = GapThreshold::LongerThan(gap);
        /// Sets that length as a share of the time from the first operation to the end of the last.
        min_gap_share(share: f64) gap = GapThreshold::Share(share);
        /// Sets the number of parts of the time for `gpu_time_util`, from 1 to 1,000; 30 by
        /// default.
        chunks(chunks: u32) chunks = chunks.clamp(1, 1000);
        /// Sets the use in percent below which `gpu_time_util` lists a part; 50 by default.
        below_percent(below_percent: f64) below_percent = below_percent;
    }

    /// Restricts rules to events that start and end between these times since the session's start.
    pub fn between(self, start: Duration, end: Duration) -> Self {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Self { between_ns: (ns(start), ns(end)), ..self }
    }

    pub(super) fn reports(&self) -> Reports<'a> {
        Reports::new(self.profile)
    }

    pub(super) fn store(&self) -> &'a Tables {
        self.profile.tables()
    }

    pub(super) fn limited<R>(&self, report: Report<R>) -> Report<R> {
        report.limited(self.rows)
    }

    /// The number of operations in the scope that lack the times a rule needs.
    pub(super) fn without_time(&self, is_meant: impl Fn(&What) -> bool) -> u64 {
        let (store, scopes) = (self.store(), self.scopes());
        self.reports().without_time(|row| {
            is_meant(&store.work(row).what) && scopes.scope_of_operation(row).is_some()
        })
    }

    pub(super) fn scopes(&self) -> Scopes<'a> {
        let own = FxHashMap::default();
        let mut scopes = Scopes { profile: self.profile, instances: None, own };
        let Some(path) = self.path else { return scopes };
        let (pattern, store) = (Pattern::new(path), self.store());
        let matches = self.profile.matching(&pattern);
        let tree = &self.profile.range_tree();
        let mut of = vec![None; store.ranges.len()];
        let mut instances: Vec<RangeId> = (0..store.ranges.len() as u32)
            .map(RangeId)
            .filter(|range| matches[tree.of_range[range.at()].at()])
            .collect();
        // An instance within another instance belongs to the outer one.
        instances.sort_by_key(|&range| store.order(range));
        for (scope, &instance) in (0..).zip(&instances) {
            if of[instance.at()].is_none() {
                tree.subtree(instance).for_each(|range| of[range.at()] = Some(scope));
            }
        }
        scopes.own = instances.into_iter().zip(0..).collect();
        scopes.instances = Some(of);
        scopes
    }

    pub(super) fn is_between(&self, time: Interval) -> bool {
        let (start_ns, end_ns) = self.between_ns;
        let reports = self.reports();
        start_ns <= reports.at(time.start_ns) && reports.at(time.end_ns) <= end_ns
    }

    /// A call's name without the prefix of its API; `None` for an API that does not count.
    fn verb(&self, call: &Call) -> Option<&'a str> {
        let name = recorded_function(self.store(), call);
        match self.store().call_kind(call).api {
            Api::Runtime => name.strip_prefix("cuda"),
            Api::Driver => name.strip_prefix("cu").filter(|_| self.driver_api),
        }
    }

    /// The operations submitted by calls of matching names, longest first.
    fn find(&self, is_meant: impl Fn(&str) -> bool) -> Vec<Found<'a>> {
        let store = self.store();
        let scopes = self.scopes();
        let process = |call: &Call| store.threads[call.thread.at()].process;
        let outer: FxHashMap<(u32, u32), &Call> = store
            .outer_calls
            .iter()
            .map(|call| ((process(call), call.correlation_id), call))
            .collect();
        let mut texts = Texts::default();
        let mut found: Vec<Found<'a>> = self
            .reports()
            .operations()
            .filter_map(|operation| {
                if matches!(store.work(operation).what, What::Kernel { .. }) {
                    return None;
                }
                let time = operation.time().filter(|time| self.is_between(*time))?;
                let call = &store.calls[operation.call.get()?.at()];
                scopes.scope(call)?;
                let is_meant = |call: &&Call| self.verb(call).is_some_and(&is_meant);
                let mut calls: Vec<&Call> =
                    store.calls_of(operation).iter().filter(is_meant).collect();
                if calls.is_empty() {
                    let outer = outer.get(&(process(call), call.correlation_id)).copied();
                    calls.extend(outer.filter(is_meant));
                }
                Some(calls.into_iter().map(move |call| (operation, time, call)))
            })
            .flatten()
            .map(|(operation, time, call)| {
                let name = texts.text(recorded_function(store, call));
                Found { operation, time, function: texts.get(name).clone() }
            })
            .collect();
        found.sort_by_key(|found| std::cmp::Reverse(found.time.ns()));
        found
    }

    fn found_copies(
        &self,
        is_meant: impl Fn(&str) -> bool,
        is_bad: impl Fn(&cupti::Memcpy, u8) -> bool,
    ) -> Vec<(Found<'a>, &'a cupti::Memcpy)> {
        let copy = |found: Found<'a>| {
            let work = self.store().work(found.operation);
            match &work.what {
                What::Copy(copy) if is_bad(copy, work.copy_kind) => Some((found, copy)),
                _ => None,
            }
        };
        self.find(is_meant).into_iter().filter_map(copy).collect()
    }

    /// Asynchronous copies from or to pageable memory, the longest first.
    pub(crate) fn cuda_memcpy_async(self) -> Report<CudaMemcpyAsync> {
        let pageable = cupti::MemoryKind::PAGEABLE;
        let copies = self.found_copies(
            |verb| verb.starts_with("Memcpy") && verb.contains("Async"),
            |copy, _| copy.source == pageable || copy.destination == pageable,
        );
        let rows = copies.iter().map(|(found, copy)| CudaMemcpyAsync::new(&self, found, copy));
        let report = Report::new(rows.collect(), "no asynchronous copy used pageable memory");
        self.limited(report.leaving_out(self.without_time(|what| matches!(what, What::Copy(_)))))
    }

    /// Returns synchronous copies, longest first. Copies of at most 64,000 bytes to a device are
    /// left out, since the host does not wait for them. Copies within one device are left out, too.
    pub(crate) fn cuda_memcpy_sync(self) -> Report<CudaMemcpySync> {
        let of_nsys = is_imported(self.store());
        let copies = self.found_copies(
            |verb| verb.starts_with("Memcpy") && !verb.contains("Async"),
            |copy, number| {
                // Copies to arrays are not exempt, if the source distinguishes them.
                let is_to_device = copy.kind == cupti::CopyKind::HostToDevice && number <= 1;
                let is_small = copy.bytes <= 64_000 && is_to_device;
                let is_within = match copy.peers {
                    Some(peers) => peers.source_device == peers.destination_device,
                    // Without peers the devices are unknown to nsys, which lists these copies.
                    None => copy.kind == cupti::CopyKind::DeviceToDevice && !of_nsys,
                };
                !is_small && !is_within
            },
        );
        let rows = copies.iter().map(|(found, copy)| CudaMemcpySync::new(&self, found, copy));
        let report = Report::new(rows.collect(), "no copy made the host wait");
        self.limited(report.leaving_out(self.without_time(|what| matches!(what, What::Copy(_)))))
    }

    /// Synchronous memsets of pinned or managed memory, the longest first.
    pub(crate) fn cuda_memset_sync(self) -> Report<CudaMemsetSync> {
        let store = self.store();
        let is_meant = |verb: &str| verb.starts_with("Memset") && !verb.contains("Async");
        let rows = self.find(is_meant).into_iter().filter_map(|found| {
            let work = store.work(found.operation);
            let What::Memset(memset) = &work.what else { return None };
            let waits = [cupti::MemoryKind::PINNED, cupti::MemoryKind::MANAGED];
            let waits = waits.contains(&memset.memory);
            waits.then(|| CudaMemsetSync::new(&self, &found, memset))
        });
        let report = Report::new(rows.collect(), "no memset made the host wait");
        self.limited(report.leaving_out(self.without_time(|what| matches!(what, What::Memset(_)))))
    }

    /// Returns calls that waited for a stream, a context or a device, longest first. Like in nsys,
    /// calls that waited for an event are left out.
    pub(crate) fn cuda_api_sync(self) -> Report<CudaApiSync> {
        let store = self.store();
        let scopes = self.scopes();
        let mut texts = Texts::default();
        let waits = |verb: &str| {
            let waits = ["DeviceSynchronize", "StreamSynchronize", "CtxSynchronize"];
            waits.iter().any(|wait| verb.starts_with(wait))
        };
        // If both APIs count, the driver call represents the runtime call that made it.
        let outer = if self.driver_api { &[] } else { &store.outer_calls[..] };
        let mut rows: Vec<CudaApiSync> = store
            .calls
            .iter()
            .chain(outer)
            .filter_map(|call| {
                if !self.verb(call).is_some_and(waits) || !store.call_kind(call).has_returned {
                    return None;
                }
                scopes.scope(call)?;
                let name = texts.text(recorded_function(store, call));
                self.is_between(call.time)
                    .then(|| CudaApiSync::new(self.reports(), call, texts.get(name).clone()))
            })
            .collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.duration_ns), row.start_ns));
        self.limited(Report::new(rows, "no call waited for a stream, a context or a device"))
    }
}
