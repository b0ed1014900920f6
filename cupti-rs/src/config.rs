//! Settings of a collection: its data and its memory.

use std::sync::Arc;
use std::time::Duration;

use crate::accessors::setters;
use crate::attribute::Attribute;
use crate::kind::ActivityKind;
use crate::launch_hold;
use crate::pc_sampling::PcSampling;
use crate::profiler_switch::SwitchHandler;
use crate::record::UnifiedMemoryKind;

/// The activity kinds that are collected by default.
const DEFAULT_KINDS: [ActivityKind; 6] = [
    ActivityKind::CONCURRENT_KERNEL,
    ActivityKind::MEMCPY,
    ActivityKind::MEMCPY2,
    ActivityKind::MEMSET,
    ActivityKind::OVERHEAD,
    ActivityKind::SYNCHRONIZATION,
];

/// Settings of a [`Collector`](crate::Collector). The defaults suit most programs.
#[derive(Debug, Clone)]
#[must_use]
pub struct Config {
    /// The kinds, each with true if the start fails when the library lacks it.
    pub(crate) kinds: Vec<(ActivityKind, bool)>,
    pub(crate) unified_memory_counters: Vec<UnifiedMemoryKind>,
    pub(crate) system_thread_ids: bool,
    pub(crate) buffer_bytes: usize,
    pub(crate) buffers: usize,
    pub(crate) max_buffers: usize,
    pub(crate) memory_limit: u64,
    pub(crate) drain_timeout: Duration,
    pub(crate) launch_hold: Duration,
    pub(crate) attributes: Vec<(Attribute, u64)>,
    pub(crate) flush_period: Option<Duration>,
    pub(crate) latency_timestamps: bool,
    pub(crate) runtime_calls: bool,
    pub(crate) stacks_after: Option<Duration>,
    pub(crate) graph_events: bool,
    pub(crate) graph_dependencies: bool,
    pub(crate) synchronizations_from_calls: bool,
    pub(crate) start_paused: bool,
    pub(crate) calls_in_pauses: bool,
    pub(crate) attach_on_request: bool,
    pub(crate) profiler_switch: bool,
    pub(crate) switch_handler: Option<SwitchHandler>,
    pub(crate) pc_sampling: Option<PcSampling>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kinds: DEFAULT_KINDS.map(|kind| (kind, true)).to_vec(),
            // All counters that CUPTI has.
            unified_memory_counters: (1..=8).map(UnifiedMemoryKind).collect(),
            system_thread_ids: false,
            buffer_bytes: 1 << 20,
            buffers: 16,
            max_buffers: usize::MAX,
            memory_limit: 2 << 30,
            drain_timeout: Duration::from_secs(10),
            launch_hold: launch_hold::LONGEST,
            attributes: Vec::new(),
            flush_period: None,
            latency_timestamps: false,
            runtime_calls: false,
            stacks_after: None,
            graph_events: false,
            graph_dependencies: false,
            synchronizations_from_calls: true,
            start_paused: false,
            calls_in_pauses: false,
            attach_on_request: false,
            profiler_switch: false,
            switch_handler: None,
            pc_sampling: None,
        }
    }
}

impl Config {
    /// Calls `handler` when the program uses its switch, in pauses too: with true at the end of a
    /// successful `cudaProfilerStart` (or `cuProfilerStart`), with false at the beginning of a
    /// stop. One thread's calls arrive in order. The handler runs within the call and may resume
    /// the collection.
    ///
    /// Unlike [`profiler_switch`](Self::profiler_switch) this bounds nothing by itself.
    pub fn on_profiler_switch(mut self, handler: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.switch_handler = Some(SwitchHandler { call: Arc::new(handler), bounds_too: false });
        self
    }

    /// Returns the handler that is called when the program uses its switch.
    pub(crate) fn switch_handler(&self) -> Option<SwitchHandler> {
        let bounds_too = self.profiler_switch;
        self.switch_handler.clone().map(|handler| SwitchHandler { bounds_too, ..handler })
    }

    /// True if callbacks of the program's switch are enabled, in pauses too.
    pub(crate) fn watches_switch(&self) -> bool {
        self.profiler_switch || self.switch_handler.is_some()
    }

    /// Checks that a collection with these settings collects everything that `other` requests.
    /// Memory, buffers and periods are not compared.
    ///
    /// `missing` are the kinds that this collection requested and that the library lacks
    /// ([`Collector::missing_kinds`](crate::Collector::missing_kinds)).
    ///
    /// # Errors
    ///
    /// The first missing thing, for a message.
    pub fn covers(&self, other: &Self, missing: &[ActivityKind]) -> Result<(), String> {
        let has = |kind: ActivityKind| self.asks_for(kind) && !missing.contains(&kind);
        let mut wanted = other.kinds.iter().filter(|(_, required)| *required);
        if let Some((kind, _)) = wanted.find(|(kind, _)| !has(*kind)) {
            return Err(format!("it does not collect {kind} records"));
        }
        let counts = |counter| self.unified_memory_counters.contains(counter);
        let lacks = [
            (
                has(ActivityKind::UNIFIED_MEMORY_COUNTER)
                    && other.asks_for(ActivityKind::UNIFIED_MEMORY_COUNTER)
                    && !other.unified_memory_counters.iter().all(counts),
                "it does not have all of these counters of managed memory",
            ),
            (
                other.system_thread_ids && !self.system_thread_ids,
                "its records do not name threads as the kernel does",
            ),
            (
                other.runtime_calls && !self.runtime_calls,
                "it does not log calls of the runtime API",
            ),
            (
                other
                    .stacks_after
                    .is_some_and(|time| self.stacks_after.is_none_or(|own| own > time)),
                "it takes no stacks, or only those of longer gaps",
            ),
            (
                self.writes_synchronizations()
                    && other.asks_for(ActivityKind::SYNCHRONIZATION)
                    && !other.writes_synchronizations(),
                "it makes its synchronisations from calls, without events",
            ),
            (other.graph_events && !self.graph_events, "it does not log graph events"),
            (
                other.graph_dependencies && !self.graph_dependencies,
                "it does not log dependencies of graphs",
            ),
            (other.calls_in_pauses && !self.calls_in_pauses, "it does not log calls in pauses"),
            (other.latency_timestamps && !self.latency_timestamps, "it has no latency timestamps"),
            (
                !other.attributes.iter().all(|setting| self.attributes.contains(setting)),
                "it has other attributes",
            ),
            (
                other.pc_sampling.is_some() && self.pc_sampling != other.pc_sampling,
                "it does not sample instructions, or with other settings",
            ),
            (
                other.switch_handler.is_some(),
                "a handler of cudaProfilerStart can be added at its start alone",
            ),
            (
                self.profiler_switch || other.profiler_switch,
                "cudaProfilerStart and cudaProfilerStop can bound one session alone",
            ),
        ];
        lacks.iter().find(|(lacks, _)| *lacks).map_or(Ok(()), |(_, what)| Err((*what).to_owned()))
    }

    /// True if records of this kind are requested.
    pub fn asks_for(&self, kind: ActivityKind) -> bool {
        self.kinds.iter().any(|(asked, _)| *asked == kind)
    }

    /// True if records of waits are made from calls. They lack the event, which joins them to
    /// recorded events.
    pub(crate) fn writes_synchronizations(&self) -> bool {
        self.synchronizations_from_calls
            && self.asks_for(ActivityKind::SYNCHRONIZATION)
            && !self.asks_for(ActivityKind::CUDA_EVENT)
    }

    /// True if CUPTI must write records of this kind.
    pub(crate) fn enables(&self, kind: ActivityKind) -> bool {
        kind != ActivityKind::SYNCHRONIZATION || !self.writes_synchronizations()
    }

    /// True if calls are logged in pauses too.
    pub fn logs_calls_in_pauses(&self) -> bool {
        self.calls_in_pauses
    }

    /// Returns the minimum age of a thread's last launch at which the next one gets a stack; `None`
    /// if none gets one.
    pub fn takes_stacks_after(&self) -> Option<Duration> {
        self.stacks_after
    }

    /// True if the first resume, or [`Collector::attach`](crate::Collector::attach), makes the
    /// first call into CUPTI: nothing has to be logged, watched or set before.
    pub fn attaches_later(&self) -> bool {
        let logs = self.calls_in_pauses && !self.attach_on_request;
        let is_idle = self.start_paused && !logs && !self.watches_switch();
        is_idle && !self.latency_timestamps && self.pc_sampling.is_none()
    }

    /// True if the collection starts paused.
    pub fn starts_paused(&self) -> bool {
        self.start_paused
    }

    /// The defaults: kernels, copies, memsets, synchronisations and CUPTI's overhead; 16 buffers of
    /// 1 MiB, at most 2 GiB of records, 10 s for the GPU to finish at a stop.
    pub fn new() -> Self {
        Self::default()
    }

    /// Collects only records of these kinds. A start fails if the library lacks one of them.
    ///
    /// Without the default kinds, expected records cannot be accounted for. CUPTI needs copies and
    /// memsets wherever kernels are collected: without them, graphs with such nodes take more and
    /// more device memory.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = ActivityKind>) -> Self {
        self.kinds.clear();
        kinds.into_iter().fold(self, Self::add_kind)
    }

    /// Collects records of this kind too. A start fails if the library lacks it.
    pub fn add_kind(mut self, kind: ActivityKind) -> Self {
        self = self.remove_kind(kind);
        self.kinds.push((kind, true));
        self
    }

    /// Collects records of this kind too, if the library has it; otherwise the kind is in
    /// [`Collected::missing_kinds`](crate::Collected::missing_kinds).
    pub fn add_kind_if_known(mut self, kind: ActivityKind) -> Self {
        self = self.remove_kind(kind);
        self.kinds.push((kind, false));
        self
    }

    /// Collects no records of this kind.
    pub fn remove_kind(mut self, kind: ActivityKind) -> Self {
        self.kinds.retain(|(other, _)| *other != kind);
        self
    }

    /// Selects the events of managed memory that have records of the kind
    /// [`UNIFIED_MEMORY_COUNTER`](ActivityKind::UNIFIED_MEMORY_COUNTER), if that is collected; all
    /// by default. They cover all devices. The setting lasts from the start, before the kind is
    /// enabled, to the end.
    ///
    /// A record takes 64 bytes, 104 from CUPTI 12.8 on, and there may be one for each page. The
    /// cost in time was not measured. CUPTI refuses if managed memory cannot be profiled: on some
    /// devices, with several devices that cannot reach each other's memory, and under MPS. The
    /// library then lacks the kind ([`add_kind`](Self::add_kind),
    /// [`add_kind_if_known`](Self::add_kind_if_known)). An empty selection has the same effect.
    pub fn unified_memory_counters(
        mut self,
        counters: impl IntoIterator<Item = UnifiedMemoryKind>,
    ) -> Self {
        self.unified_memory_counters = counters.into_iter().collect();
        self
    }

    /// Bytes in one activity buffer; a kernel takes 208 to 248. From CUPTI 13.0 on, every thread
    /// that calls CUDA has its own buffer. Rounded up to 64 KiB; at most 1 GiB.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        const MOST: usize = 1 << 30;
        self.buffer_bytes = bytes.clamp(1, MOST).next_multiple_of(64 << 10);
        self
    }

    setters! {
        /// Buffers allocated at the start, at most 256 and [`max_buffers`](Self::max_buffers). If
        /// they do not suffice, more are allocated inside a CUDA call of the program and counted.
        buffers(count: usize) buffers = count.min(256);
        /// Makes CUPTI's worker deliver full buffers at this interval instead of its own; at least
        /// 1 ms. Launches do not wait for it. Restored at the end.
        flush_period(period: Duration) flush_period = Some(period);
        /// Calls the [stack source](crate::calls::set_stack_source) at the start of a driver call
        /// that submits work, if its thread submitted none for this long; never by default. Adds 4
        /// ns to a launch without such a gap.
        stacks_after(time: Duration) stacks_after = Some(time);
        /// Makes activity records name threads by `gettid`, as the call log does, instead of by
        /// `pthread_t`. Restored at the end.
        system_thread_ids(on: bool) system_thread_ids = on;
        /// The maximum number of buffers, lent to CUPTI or free; no limit by default. A request beyond
        /// it is refused and counted ([`Losses::refused_buffers`](crate::Losses::refused_buffers)):
        ///
        /// - from CUPTI 12.9 (API 27) on CUPTI gets no buffer, drops the records that do not fit, and
        ///   counts them ([`dropped_by_cupti`](crate::Losses::dropped_by_cupti));
        /// - an older CUPTI would crash. It gets a scratch buffer of 32 KiB whose records are counted
        ///   and discarded ([`refused_records`](crate::Losses::refused_records)).
        ///
        /// So for each kind of work, expected records = records + those two counts. This requires that
        /// only one kind is collected and everything else in [`Losses`](crate::Losses) is 0. With
        /// several kinds this holds for the sum over all kinds, overhead records included, whose
        /// expected number is unknown: CUPTI does not report the kinds of dropped records. Records
        /// without timestamps count as records.
        max_buffers(value: usize) max_buffers = value;
        /// The maximum bytes of records to hold at a time; further records are counted and discarded. A
        /// drain frees its records.
        memory_limit(value: u64) memory_limit = value;
        /// The maximum wait of a stop or a pause for work that the GPU has not finished. CUPTI 12.8
        /// itself waits for running kernels at a stop, without limit; 13.0 does not. [`Duration::MAX`]
        /// means no limit; 10 s by default.
        drain_timeout(value: Duration) drain_timeout = value;
        /// The maximum time that a stop or a pause holds back launches while it waits for those under
        /// way. 100 ms is both the default and the limit. With less, CUPTI may write no records for the
        /// first kernels of the next session.
        launch_hold(value: Duration) launch_hold = value;
        /// Adds to kernel records when a kernel was queued and submitted. Costs time in every launch,
        /// and CUPTI before 13.4 may deadlock with it. CUPTI requires it to be set before CUDA is first
        /// used.
        latency_timestamps(on: bool) latency_timestamps = on;
        /// Logs calls of the runtime API too, of the same classes as the driver's
        /// ([`Collected::runtime_calls`](crate::Collected::runtime_calls)). Costs two more callbacks
        /// for each.
        runtime_calls(on: bool) runtime_calls = on;
        /// Logs events of CUDA graphs ([`Collected::graphs`](crate::Collected::graphs)). Costs a
        /// callback and up to three id look-ups for each node that is made or copied, nothing for a
        /// launch.
        graph_events(on: bool) graph_events = on;
        /// Logs dependencies between nodes of CUDA graphs too, with `graph_events`: a callback and two
        /// id look-ups for each. An H200 with CUPTI 13.0.1 reported those of a captured graph; other
        /// ways to make one were not tried.
        graph_dependencies(on: bool) graph_dependencies = on;
        /// Makes the records of the kind [`SYNCHRONIZATION`](ActivityKind::SYNCHRONIZATION) from the
        /// calls that wait, if that kind is collected. CUPTI's own records make other calls of the
        /// program slower too (docs/decisions/049-synchronisations-from-calls.md).
        ///
        /// The records have kind, context, stream, correlation id, and times from the call's begin to
        /// its end. [`event`](crate::record::Synchronization::event) is `None`. Queries of streams and
        /// failed calls have no record. With the kind [`CUDA_EVENT`](ActivityKind::CUDA_EVENT) CUPTI
        /// writes its own records anyway. A call that waits costs one more id look-up.
        synchronizations_from_calls(on: bool) synchronizations_from_calls = on;
        /// Starts paused. The first [`Collector::resume`](crate::Collector::resume) makes the first
        /// call into CUPTI, unless something must be logged or watched in the pause.
        start_paused(on: bool) start_paused = on;
        /// Logs calls and graph events in pauses too, where records are disabled: some 77 ns a call on
        /// an H200. A resume then enables only the kinds, and nodes of graphs that were captured in a
        /// pause can be attributed later.
        calls_in_pauses(on: bool) calls_in_pauses = on;
        /// Makes no call into CUPTI before [`Collector::attach`](crate::Collector::attach) or the first
        /// resume, even if calls are logged in pauses. Earlier calls are not logged, and graphs
        /// captured earlier have no ranges by node. Meant for a program that compares its times before
        /// and after: CUPTI's first call makes launches of graphs slower until the process ends.
        attach_on_request(on: bool) attach_on_request = on;
        /// Bounds the collection by `cudaProfilerStart` and `cudaProfilerStop` (`cuProfilerStart` and
        /// `cuProfilerStop`): from the end of a start to the beginning of a stop, for all threads.
        /// Before the first start nothing counts.
        ///
        /// CUPTI collects outside these bounds too, at the same cost. Calls are selected by their time
        /// and records by their calls ([`Collected::windows_ns`](crate::Collected::windows_ns)).
        /// Buffers returned before the first start are discarded at once
        /// ([`Losses::before_switch`](crate::Losses::before_switch)).
        profiler_switch(on: bool) profiler_switch = on;
        /// Samples instructions and what they wait for
        /// ([`Collected::pc_sampling`](crate::Collected::pc_sampling)). If this machine does not
        /// allow it, the collection continues without samples.
        pc_sampling(settings: PcSampling) pc_sampling = Some(settings);
    }

    /// Sets an attribute of CUPTI, such as the size of its buffers on the device, and restores it
    /// at the end. A start fails if the library lacks it.
    ///
    /// CUPTI reads those of device buffers when a context is created: set them before CUDA is first
    /// used.
    pub fn attribute(mut self, attribute: Attribute, value: u64) -> Self {
        self.attributes.retain(|(other, _)| *other != attribute);
        self.attributes.push((attribute, value));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: ActivityKind = ActivityKind::UNIFIED_MEMORY_COUNTER;

    #[test]
    fn buffer_sizes_are_whole_and_bounded() {
        let of = |bytes| Config::new().buffer_bytes(bytes).buffer_bytes;
        assert_eq!([of(0), of(65_537), of(usize::MAX)], [64 << 10, 128 << 10, 1 << 30]);
    }

    fn lacking(running: &Config, asked: &Config) -> String {
        running.covers(asked, &[]).unwrap_err()
    }

    #[test]
    fn missing_settings_of_a_collection_are_named() {
        let plain = Config::new();
        assert_eq!(plain.covers(&plain, &[]), Ok(()));
        let ids = Config::new().system_thread_ids(true);
        assert!(lacking(&plain, &ids).contains("threads"));
        assert_eq!(ids.covers(&ids, &[]), Ok(()));

        let managed = Config::new().add_kind(COUNTER);
        assert!(lacking(&plain, &managed).contains("UNIFIED_MEMORY"), "{managed:?}");
        let few = managed.clone().unified_memory_counters([UnifiedMemoryKind::THRASHING]);
        assert_eq!(managed.covers(&few, &[]), Ok(()));
        assert!(lacking(&few, &managed).contains("counters of managed memory"));
        assert_eq!(few.covers(&plain, &[]), Ok(()), "no request needs them");
    }

    #[test]
    fn kind_missing_in_the_library_is_missing_for_all_requests() {
        let kind = ActivityKind::CUDA_EVENT;
        let running = Config::new().add_kind_if_known(kind);
        let asked = Config::new().add_kind(kind);
        assert_eq!(running.covers(&asked, &[]), Ok(()));
        assert!(running.covers(&asked, &[kind]).is_err());
        assert_eq!(running.covers(&running, &[kind]), Ok(()), "the request lacks it too");
    }
}
