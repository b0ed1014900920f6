//! The tables of a profile: what was recorded, decoded and named, in one time. Still unjoined.
//!
//! Rows refer to each other by index newtypes; names are interned.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cupti::CallClass;
use cupti::record::SharedMemorySetting;
use nvtx::Payload;
use rustc_hash::{FxHashMap, FxHasher};

use crate::join::account::{ExpectedRecords, is_failure, may_have_several_records};
pub(crate) use crate::join::ids::*;
use crate::join::intern::hash_of;
pub(crate) use crate::join::intern::{Interned, NameId, Names};
use crate::record::series::Series;

/// A time span in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

impl Interval {
    pub(crate) fn ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[derive(Debug)]
pub(crate) struct Thread {
    /// The kernel's id.
    pub(crate) id: u32,
    /// The kernel's id of its process; 0 is the one that was recorded, if it was only one.
    pub(crate) process: u32,
    pub(crate) name: Option<Box<str>>,
    /// Where the source says it.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) priority: Option<i64>,
}

/// A process, where the source names them.
#[derive(Debug)]
pub(crate) struct Process {
    /// The kernel's id.
    pub(crate) id: u32,
    pub(crate) name: Option<Box<str>>,
}

/// What ranges and marks of one kind have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    pub(crate) name: NameId,
    /// `None` is the default one.
    pub(crate) domain: Option<NameId>,
    pub(crate) category: Option<NameId>,
    /// Alpha, red, green, blue.
    pub(crate) color: Option<u32>,
}

/// What more is known of a range or a mark; most have none of it.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) payload: Option<Payload>,
    /// The process range that it is an activation of.
    pub(crate) within: Option<ProcessRangeId>,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: NameId,
    pub(crate) unit: NameId,
    pub(crate) value: FieldValue,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldValue {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Text(NameId),
}

/// What has [`Details`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Range(RangeId),
    ProcessRange(ProcessRangeId),
    Mark(MarkId),
}

/// A range of the process.
#[derive(Debug)]
pub(crate) struct ProcessRange {
    pub(crate) label: LabelId,
    /// Where it began, and the range of that thread it lay in then.
    pub(crate) thread: ThreadId,
    pub(crate) parent: Option<RangeId>,
    /// Until the stop, if it had not ended.
    pub(crate) time: Interval,
    /// Where it ended; `None` if it had not.
    pub(crate) end_thread: Option<ThreadId>,
}

#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) label: LabelId,
    pub(crate) thread: ThreadId,
    pub(crate) at_ns: u64,
    pub(crate) parent: Option<RangeId>,
}

#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) time: Interval,
    pub(crate) label: LabelId,
    pub(crate) thread: ThreadId,
    /// Always one that is earlier in [`Store::order`]; of another thread where a range was handed on.
    pub(crate) parent: Maybe<RangeId>,
    /// If it is, its end is that of the session.
    pub(crate) is_open: bool,
}

/// Which of CUDA's two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `cu...`
    Driver,
    /// `cuda...`
    Runtime,
}

/// What many calls have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKind {
    pub(crate) name: NameId,
    pub(crate) api: Api,
    pub(crate) class: CallClass,
    pub(crate) result: u32,
    pub(crate) captured: bool,
    pub(crate) empty: bool,
    /// False if it had not returned.
    pub(crate) has_returned: bool,
    /// The ranges that it belongs to besides its own.
    pub(crate) share: Option<ShareId>,
}

impl CallKind {
    /// True if the call returned an error.
    pub(crate) fn is_failure(&self) -> bool {
        self.has_returned && is_failure(self.class, self.result)
    }

    /// Which records a call of this kind is expected to have.
    pub(crate) fn expected_records(&self, call: &Call) -> ExpectedRecords {
        ExpectedRecords {
            class: self.class,
            end_ns: self.has_returned.then_some(call.time.end_ns),
            is_failure: self.is_failure(),
            captured: self.captured,
            empty: self.empty,
        }
    }

    /// True if its work is one operation.
    pub(crate) fn has_one_operation(&self, name: &str) -> bool {
        let is_single =
            matches!(self.class, CallClass::KernelLaunch | CallClass::Memcpy | CallClass::Memset);
        is_single && self.api == Api::Driver && !may_have_several_records(self.class, name)
    }
}

/// A call into CUDA.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Without an end if it had not returned.
    pub(crate) time: Interval,
    pub(crate) correlation_id: u32,
    pub(crate) kind: CallKindId,
    pub(crate) thread: ThreadId,
    pub(crate) range: Maybe<RangeId>,
}

/// A GPU operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    /// All 0 where CUPTI had no timestamps.
    time: Interval,
    pub(crate) correlation_id: u32,
    pub(crate) work: WorkId,
    /// The call that caused it; filled in by `correlate`.
    pub(crate) call: Maybe<CallId>,
    /// The range in which the graph node that it was an execution of was made.
    pub(crate) captured: Maybe<RangeId>,
}

impl Operation {
    pub(crate) fn new(work: WorkId, time: Option<Interval>, correlation_id: u32) -> Self {
        Self {
            time: time.unwrap_or_default(),
            correlation_id,
            work,
            call: Maybe::NONE,
            captured: Maybe::NONE,
        }
    }

    /// `None` where CUPTI had no timestamps.
    #[inline]
    pub(crate) fn time(&self) -> Option<Interval> {
        (self.time != Interval::default()).then_some(self.time)
    }

    /// 0 where CUPTI had no timestamps.
    #[inline]
    pub(crate) fn start_ns(&self) -> u64 {
        self.time.start_ns
    }

    /// 0 where CUPTI had no timestamps.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.time.ns()
    }
}

/// What a kernel's operation takes in the tables, but for what it shares with others like it: its row, that of its call,
/// and their places in the index of `tree`.
pub(crate) const BYTES_A_KERNEL: usize = size_of::<Operation>() + size_of::<Call>() + 8;
const _: () = assert!(BYTES_A_KERNEL <= 96);

/// What operations have in common that are run again and again: all but when, and by which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(crate) what: What,
    pub(crate) place: cupti::Place,
    /// The part of the device that its context has, where the source says it.
    pub(crate) green_context: Option<u32>,
    /// How its multiprocessors were set for a kernel.
    pub(crate) shared_memory: SharedMemorySetting,
    /// CUPTI's number of a copy's kind, which tells arrays and managed memory apart; 0 where the source has not.
    pub(crate) copy_kind: u8,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub(crate) process: u32,
}

impl Work {
    pub(crate) fn new(what: What, place: cupti::Place) -> Self {
        Self {
            what,
            place,
            green_context: None,
            shared_memory: SharedMemorySetting::default(),
            copy_kind: 0,
            process: 0,
        }
    }

    /// True for a move of managed memory, which no call asks for.
    pub(crate) fn is_migration(&self) -> bool {
        matches!(self.what, What::Copy(_)) && (11..=13).contains(&self.copy_kind)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Kernel {
        names: KernelNames,
        details: cupti::Kernel,
    },
    Copy(cupti::Memcpy),
    Memset(cupti::Memset),
    /// A launch of a CUDA graph that was traced as one interval.
    Graph(WholeGraph),
}

/// Which graph a launch was of, where it was traced as one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WholeGraph {
    /// The executable graph.
    pub(crate) executable: u32,
    /// The graph that it was instantiated from, where the source has it.
    pub(crate) template: Option<u32>,
}

/// A kernel's names, of which a source may know several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KernelNames {
    /// As the compiler made it, if that is known.
    pub(crate) name: NameId,
    /// With its parameters.
    pub(crate) demangled: Option<NameId>,
    /// Without anything around it.
    pub(crate) short: Option<NameId>,
}

/// Stands for a copy's own correlation id, which its runtime call mostly has too.
pub(crate) const SAME_ID: u32 = u32::MAX;

impl What {
    /// The node of a CUDA graph that it was.
    pub(crate) fn graph_node(&self) -> Option<cupti::GraphNode> {
        match self {
            Self::Kernel { details, .. } => details.graph_node,
            Self::Copy(copy) => copy.graph_node,
            Self::Memset(memset) => memset.graph_node,
            Self::Graph(_) => None,
        }
    }

    /// Takes away what only one operation has.
    fn without_instance(mut self) -> Self {
        let (span, correlation_id) = match &mut self {
            Self::Kernel { details, .. } => (&mut details.span, &mut details.correlation_id),
            Self::Copy(copy) => {
                if copy.runtime_correlation_id == Some(copy.correlation_id) {
                    copy.runtime_correlation_id = Some(SAME_ID);
                }
                (&mut copy.span, &mut copy.correlation_id)
            }
            Self::Memset(memset) => (&mut memset.span, &mut memset.correlation_id),
            Self::Graph(_) => return self,
        };
        *span = cupti::Span::default();
        *correlation_id = 0;
        self
    }

    /// Some of what tells works apart, quickly.
    fn fingerprint(&self, place: cupti::Place) -> u64 {
        let mut hasher = FxHasher::default();
        (place.stream, place.context).hash(&mut hasher);
        match self {
            Self::Kernel { names, details } => {
                (names.name, details.grid, details.block[0]).hash(&mut hasher);
                details.graph_node.map(|node| node.node).hash(&mut hasher);
            }
            Self::Copy(copy) => {
                (copy.kind, copy.bytes, copy.graph_node.map(|node| node.node)).hash(&mut hasher);
            }
            Self::Memset(set) => {
                (set.value, set.bytes, set.graph_node.map(|node| node.node)).hash(&mut hasher);
            }
            Self::Graph(graph) => (graph.executable, graph.template).hash(&mut hasher),
        }
        hasher.finish()
    }
}

#[derive(Debug)]
pub(crate) struct Synchronization {
    pub(crate) record: cupti::Synchronization,
    pub(crate) call: Option<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub(crate) process: u32,
}

/// Memory was allocated or freed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryEvent {
    pub(crate) at_ns: u64,
    pub(crate) is_allocation: bool,
    pub(crate) kind: cupti::MemoryKind,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
    pub(crate) device: u32,
    pub(crate) correlation_id: u32,
    pub(crate) call: Maybe<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub(crate) process: u32,
    /// True if it tells once more what the record before it at its address told of its call, as CUPTI 12.8 and 13.0 do for
    /// `cuMemAlloc` and `cuMemFree`. Filled in by `correlate`.
    pub(crate) is_repeat: bool,
}

/// Managed memory went to another place, or was touched where it was not.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "what captures of other tools tell"))]
pub(crate) struct ManagedMemory {
    pub(crate) what: Managed,
    pub(crate) address: u64,
    pub(crate) time: Interval,
    pub(crate) device: Option<u32>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub(crate) process: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "what captures of other tools tell"))]
pub(crate) enum Managed {
    /// It was moved; also an operation.
    ToDevice {
        bytes: u64,
    },
    ToHost {
        bytes: u64,
    },
    /// The host touched it, by this instruction: a function of the program, or an address.
    HostFault {
        instruction: Option<NameId>,
        /// The line of the program's text; the source says 0 where it knows none.
        line: Option<(NameId, u32)>,
    },
    /// The device did, so many times.
    DeviceFaults {
        count: u64,
    },
}

/// What fits on a multiprocessor of a device, as the source has it; 0 is what it does not say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Multiprocessor {
    /// CUDA ordinal.
    pub(crate) device: u32,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) warps: u32,
    pub(crate) blocks: u32,
    pub(crate) registers: u32,
    pub(crate) registers_per_block: u32,
    pub(crate) shared_bytes: u32,
    /// For kernels that opted in.
    pub(crate) shared_bytes_per_block: u32,
}

/// The time of the profiler itself.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "what captures of other tools tell"))]
pub(crate) struct Overhead {
    pub(crate) time: Interval,
    pub(crate) process: u32,
    /// True if no device could be given work meanwhile.
    pub(crate) holds_gpu: bool,
}

/// How calls came to their ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RangesBy {
    /// Each call was logged with its range.
    #[default]
    Calls,
    /// By thread and time, afterwards.
    Containment,
}

/// When the session was on, and of what kind it was.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) window_ns: (u64, u64),
    /// The parts of it that count, in order and apart.
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: from when on returned calls may have records that have not come yet.
    pub(crate) pending_from_ns: Option<u64>,
    /// Records that have no call and a correlation id up to this are of calls before the session, or that were let go.
    pub(crate) before_id: u32,
    pub(crate) ranges_by: RangesBy,
    /// The time that the source calls 0.
    pub(crate) zero_ns: u64,
    /// Of a capture: the last time of all annotations, those that are neither ranges nor marks among them.
    pub(crate) last_annotation_ns: u64,
}

impl Session {
    /// A time as the source has it; negative before its 0.
    pub(crate) fn since_zero(&self, ns: u64) -> i64 {
        let since = i128::from(ns) - i128::from(self.zero_ns);
        // CAST: a time that is further away is none.
        since.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) session: Session,
    pub(crate) names: Names,
    pub(crate) threads: Vec<Thread>,
    pub(crate) labels: Vec<Label>,
    /// By thread, and within a thread in the order they began.
    pub(crate) ranges: Vec<Range>,
    /// By thread they began on, and there in the order they began.
    pub(crate) process_ranges: Vec<ProcessRange>,
    /// By thread, and within a thread in order.
    pub(crate) marks: Vec<Mark>,
    pub(crate) details: FxHashMap<Subject, Details>,
    pub(crate) call_kinds: Interned<CallKind, CallKindId>,
    /// Ranges whose work, and that of others, was asked for by the same calls, which count for one of these others. None is
    /// there twice, and few have any.
    pub(crate) shares: Vec<Box<[RangeId]>>,
    /// By thread, and within a thread in the order they were made. Of a call of the runtime API and the driver call that
    /// it makes, which share their correlation id, the driver call.
    pub(crate) calls: Vec<Call>,
    /// The calls of the runtime API that made driver calls; filled in by `correlate`.
    pub(crate) outer_calls: Vec<Call>,
    /// Of a capture: the calls that share their correlation id, by process and id; filled in by `correlate`.
    pub(crate) repeated_calls: FxHashMap<(u32, u32), Vec<Call>>,
    pub(crate) works: Interned<Work, WorkId>,
    /// By start; those without timestamps first.
    pub(crate) operations: Vec<Operation>,
    pub(crate) synchronizations: Vec<Synchronization>,
    /// By time.
    pub(crate) memory: Vec<MemoryEvent>,
    /// By start; empty where the source does not tell.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) managed: Vec<ManagedMemory>,
    /// By start; empty where the source does not tell.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) overheads: Vec<Overhead>,
    /// By device; empty where the source does not tell.
    pub(crate) multiprocessors: Vec<Multiprocessor>,
    /// CUDA ordinals that are several GPUs: each process numbers those that it sees.
    pub(crate) shared_ordinals: Vec<u32>,
    /// Empty where one process was recorded, by itself.
    pub(crate) processes: Vec<Process>,
    /// What samplers saw of the devices.
    pub(crate) series: Vec<Arc<Series>>,
    /// The source's number of each range and then of each process range, where it numbers them.
    pub(crate) range_numbers: Vec<u64>,
}

impl Store {
    #[inline]
    pub(crate) fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.at()]
    }

    #[inline]
    pub(crate) fn call_kind(&self, call: &Call) -> &CallKind {
        self.call_kinds.row(call.kind.at())
    }

    #[inline]
    pub(crate) fn work(&self, operation: &Operation) -> &Work {
        self.works.row(operation.work.at())
    }

    /// Every work, by [`WorkId`].
    pub(crate) fn works(&self) -> &[Work] {
        self.works.rows()
    }

    pub(crate) fn intern_call_kind(&mut self, kind: CallKind) -> CallKindId {
        let hash = hash_of(&kind);
        match self.call_kinds.find(hash, || hash, CallKindId::at, |known| *known == kind) {
            Ok(known) => known,
            Err(slot) => self.call_kinds.push(slot, kind, CallKindId),
        }
    }

    /// The work of a kernel that is like one that came before, whose names have the same key; otherwise `names` tells them.
    /// Most kernels are: this way none is moved. `guess` is the work that it may be like.
    #[inline]
    pub(crate) fn intern_kernel(
        &mut self,
        kernel: &cupti::Kernel,
        shared_memory: SharedMemorySetting,
        guess: Option<WorkId>,
        names: impl FnOnce(&mut Names) -> KernelNames,
    ) -> WorkId {
        let mut details = *kernel;
        (details.span, details.correlation_id) = (cupti::Span::default(), 0);
        let is_same = |work: &Work| match &work.what {
            What::Kernel { details: known, .. } => {
                *known == details && work.shared_memory == shared_memory
            }
            _ => false,
        };
        if let Some(guess) = guess.filter(|guess| is_same(self.works.row(guess.at()))) {
            return guess;
        }
        let mut hasher = FxHasher::default();
        // A word at a time: each takes a multiplication that waits for the one before.
        let node = details.graph_node.map_or(0, |node| node.node);
        let stream_and_grid = u64::from(details.place.stream) << 32 | u64::from(details.grid[0]);
        (details.name, stream_and_grid, node ^ u64::from(details.grid[1])).hash(&mut hasher);
        let whole_hash = || hash_of(&(details, shared_memory));
        match self.works.find(hasher.finish(), whole_hash, WorkId::at, is_same) {
            Ok(known) => known,
            Err(slot) => {
                let what = What::Kernel { names: names(&mut self.names), details };
                let work = Work { shared_memory, ..Work::new(what, kernel.place) };
                self.works.push(slot, work, WorkId)
            }
        }
    }

    /// What is left of a work when it is freed from when it was, and by which call.
    pub(crate) fn intern_work(&mut self, work: Work) -> WorkId {
        let quick_hash = work.what.fingerprint(work.place);
        let work = Work { what: work.what.without_instance(), ..work };
        match self.works.find(quick_hash, || hash_of(&work), WorkId::at, |known| *known == work) {
            Ok(known) => known,
            Err(slot) => self.works.push(slot, work, WorkId),
        }
    }

    /// An order in which every range comes after the one it lies in: by start, and then by row.
    #[inline]
    pub(crate) fn order(&self, range: RangeId) -> (u64, RangeId) {
        (self.ranges[range.at()].time.start_ns, range)
    }

    /// Marks what is told once more; records are in order.
    pub(crate) fn mark_repeats(&mut self) {
        let mut last: FxHashMap<(u32, u64), (bool, u32)> = FxHashMap::default();
        for event in &mut self.memory {
            let told = (event.is_allocation, event.correlation_id);
            let before = last.insert((event.process, event.address), told);
            event.is_repeat = event.correlation_id != 0 && before == Some(told);
        }
    }

    /// Allocations and frees, each once.
    pub(crate) fn memory_events(&self) -> impl Iterator<Item = &MemoryEvent> {
        self.memory.iter().filter(|event| !event.is_repeat)
    }

    /// The ranges that a call belongs to besides the one that it counts for.
    #[inline]
    pub(crate) fn shares_of(&self, call: &Call) -> &[RangeId] {
        // Most sessions have none.
        if self.shares.is_empty() {
            return &[];
        }
        self.call_kind(call).share.map_or(&[], |share| &self.shares[share.at()])
    }

    /// The calls that nsys joins to an operation: its own, or all of its correlation id where there are several.
    pub(crate) fn calls_of(&self, operation: &Operation) -> &[Call] {
        let Some(call) = operation.call.get() else { return &[] };
        let own = std::slice::from_ref(&self.calls[call.at()]);
        if self.repeated_calls.is_empty() {
            return own;
        }
        let key = (self.threads[own[0].thread.at()].process, operation.correlation_id);
        self.repeated_calls.get(&key).map_or(own, |calls| calls)
    }

    /// The range whose call caused this work.
    #[inline]
    pub(crate) fn range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.calls[call.get()?.at()].range.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_that_differ_in_one_field_are_kept_apart() {
        let mut store = Store::default();
        let names = |names: &mut Names| {
            let name = names.intern("kernel");
            KernelNames { name, demangled: None, short: None }
        };
        let works = |store: &mut Store, block: u32| {
            let mut kernel = cupti::Kernel::default();
            // No part of the quick hash.
            (kernel.block, kernel.dynamic_shared_bytes) = ([1, block, 1], block);
            let of_kernel = store.intern_kernel(&kernel, Default::default(), None, names);
            let mut copy = cupti::Memcpy::default();
            copy.source = cupti::MemoryKind(block as u8);
            let copy = Work::new(What::Copy(copy), cupti::Place::default());
            (of_kernel, store.intern_work(copy))
        };
        let first: Vec<_> = (0..100).map(|block| works(&mut store, block)).collect();
        let again: Vec<_> = (0..100).map(|block| works(&mut store, block)).collect();
        assert_eq!(first, again);
        assert_eq!(store.works().len(), 200);
    }
}
