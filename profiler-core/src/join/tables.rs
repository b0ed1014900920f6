//! The tables of a profile: decoded, interned and in one clock, not yet joined. Rows refer to each
//! other by index newtypes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cupti::CallClass;
use cupti::record::SharedMemorySetting;
use nvtx::Payload;
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHasher};

use crate::join::account::{ExpectedRecords, is_failure, may_have_several_records};
use crate::join::graph_nodes::GraphDependencies;
use crate::join::health::Health;
use crate::join::host_clock::HostClock;
pub(crate) use crate::join::ids::*;
use crate::join::intern::hash_of;
pub(crate) use crate::join::intern::{Interned, NameId, Names};
use crate::record::host_stacks::HostStacks;
use crate::record::recording::RecordingInfo;
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
    /// The kernel's process id; 0 if a process recorded itself.
    pub(crate) process: u32,
    pub(crate) name: Option<Box<str>>,
    /// If the source has it.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) priority: Option<i64>,
}

/// A process, where the source names them.
#[derive(Debug)]
pub(crate) struct Process {
    /// The kernel's id. Of several processes with one id, the others have an id above all of Linux.
    pub(crate) id: u32,
    pub(crate) name: Option<Box<str>>,
    /// If the profile was merged from recordings.
    pub(crate) recorded: Option<Box<RecordedProcess>>,
}

/// What the recording of one of several processes says of itself.
#[derive(Debug)]
pub(crate) struct RecordedProcess {
    pub(crate) rank: Option<u32>,
    /// Its host, by number.
    pub(crate) host: u32,
    /// In nanoseconds of `CLOCK_MONOTONIC`, as [`Session`] has them.
    pub(crate) window_ns: (u64, u64),
    pub(crate) windows_ns: Vec<(u64, u64)>,
    pub(crate) info: RecordingInfo,
    pub(crate) health: Health,
}

/// The properties shared by ranges and marks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    pub(crate) name: NameId,
    /// `None` is the default domain.
    pub(crate) domain: Option<NameId>,
    pub(crate) category: Option<NameId>,
    /// Alpha, red, green, blue.
    pub(crate) color: Option<u32>,
}

/// Rare properties of ranges and marks.
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

/// The owner of [`Details`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Range(RangeId),
    ProcessRange(ProcessRangeId),
    Mark(MarkId),
}

/// A process range.
#[derive(Debug)]
pub(crate) struct ProcessRange {
    pub(crate) label: LabelId,
    /// The thread of the start, and its innermost range.
    pub(crate) thread: ThreadId,
    pub(crate) parent: Option<RangeId>,
    /// Until the stop, if it had not ended.
    pub(crate) time: Interval,
    /// The thread of the end; `None` if it had not ended.
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
    /// Earlier in [`Store::order`]. On another thread if a context was handed over.
    pub(crate) parent: Maybe<RangeId>,
    /// If true, its end is that of the session.
    pub(crate) is_open: bool,
}

/// A CUDA API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Api {
    /// `cu...`
    Driver,
    /// `cuda...`
    Runtime,
}

/// The properties shared by many calls.
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
    /// The ranges that share it besides its own.
    pub(crate) share: Option<ShareId>,
    /// It was made in a range that the recording lacks: without a range, but not outside of all.
    pub(crate) range_is_unknown: bool,
}

impl CallKind {
    /// True if the call returned an error.
    pub(crate) fn is_failure(&self) -> bool {
        self.has_returned && is_failure(self.class, self.result)
    }

    /// Which records a call of this kind is expected to have.
    /// `end_ns` is the end of the call.
    pub(crate) fn expected_records(&self, end_ns: u64) -> ExpectedRecords {
        ExpectedRecords {
            class: self.class,
            end_ns: self.has_returned.then_some(end_ns),
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
    /// All 0 without timestamps.
    time: Interval,
    pub(crate) correlation_id: u32,
    pub(crate) work: WorkId,
    /// The submitting call, set by `correlate`.
    pub(crate) call: Maybe<CallId>,
    /// The range that created its graph node.
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

    /// `None` without timestamps.
    #[inline]
    pub(crate) fn time(&self) -> Option<Interval> {
        (self.time != Interval::default()).then_some(self.time)
    }

    /// 0 without timestamps.
    #[inline]
    pub(crate) fn start_ns(&self) -> u64 {
        self.time.start_ns
    }

    /// Changes its timestamps, if it has any.
    pub(crate) fn change_time(&mut self, change: impl FnOnce(Interval) -> Interval) {
        self.time = self.time().map_or(self.time, change);
    }

    /// 0 without timestamps.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.time.ns()
    }
}

/// Bytes of a kernel in the tables, without shared data: its row, that of its call, and their index
/// entries in `range_tree`.
pub(crate) const BYTES_A_KERNEL: usize = size_of::<Operation>() + size_of::<Call>() + 8;
const _: () = assert!(BYTES_A_KERNEL <= 96);

/// The properties shared by repeated operations: all but the time and the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(crate) what: What,
    pub(crate) place: cupti::Place,
    /// The green context, if the source has it.
    pub(crate) green_context: Option<u32>,
    /// The shared memory setting of the multiprocessors for a kernel.
    pub(crate) shared_memory: SharedMemorySetting,
    /// CUPTI's copy kind, which distinguishes arrays and managed memory; 0 if unknown.
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

/// The graph of a launch traced as one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WholeGraph {
    /// The executable graph.
    pub(crate) executable: u32,
    /// The graph it was instantiated from, if the source has it.
    pub(crate) template: Option<u32>,
}

/// The names of a kernel in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KernelNames {
    /// The mangled name, if known.
    pub(crate) name: NameId,
    /// With parameters.
    pub(crate) demangled: Option<NameId>,
    /// The unqualified name.
    pub(crate) short: Option<NameId>,
}

/// Stands for a copy's own correlation id, which its runtime call usually shares.
pub(crate) const SAME_ID: u32 = u32::MAX;

impl What {
    /// Its CUDA graph node.
    pub(crate) fn graph_node(&self) -> Option<cupti::GraphNode> {
        match self {
            Self::Kernel { details, .. } => details.graph_node,
            Self::Copy(copy) => copy.graph_node,
            Self::Memset(memset) => memset.graph_node,
            Self::Graph(_) => None,
        }
    }

    /// Removes what belongs to a single operation.
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

    /// A fast hash of some properties that distinguish works.
    fn fingerprint(&self, place: cupti::Place, process: u32) -> u64 {
        let mut hasher = FxHasher::default();
        (place.stream, place.context, process).hash(&mut hasher);
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

/// An event was recorded into a stream: what was submitted to the stream before, by correlation id, precedes the event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventRecord {
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub(crate) process: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// CUPTI's id of the event, which a program may record several times.
    pub(crate) event: u32,
    pub(crate) correlation_id: u32,
    /// CUPTI's id of this recording; from 12.8.
    pub(crate) sync_id: Option<u64>,
}

impl EventRecord {
    pub(crate) fn new(event: &cupti::record::CudaEvent) -> Self {
        Self {
            process: 0,
            context: event.context,
            stream: event.stream,
            event: event.event,
            correlation_id: event.correlation_id,
            sync_id: event.event_sync_id,
        }
    }
}

/// An allocation or a free.
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
    /// True for a duplicate record of the same call, which CUPTI 12.8 and 13.0 write for
    /// `cuMemAlloc` and `cuMemFree`. Set by `correlate`.
    pub(crate) is_repeat: bool,
}

/// A migration or page fault of managed memory.
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
    /// A migration, which is also an operation.
    ToDevice {
        bytes: u64,
    },
    ToHost {
        bytes: u64,
    },
    /// A fault of the host at this instruction: a function of the program, or an address.
    HostFault {
        instruction: Option<NameId>,
        /// The source line; 0 in the source if unknown.
        line: Option<(NameId, u32)>,
    },
    /// A number of faults of the device.
    DeviceFaults {
        count: u64,
    },
}

/// The limits of a device's multiprocessor; 0 if unknown.
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

/// Time spent by the profiler.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "nsys"), allow(dead_code, reason = "what captures of other tools tell"))]
pub(crate) struct Overhead {
    pub(crate) time: Interval,
    pub(crate) process: u32,
    /// True if no work could be submitted to the device.
    pub(crate) holds_gpu: bool,
}

/// How calls are attributed to ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RangesBy {
    /// By the tags of calls.
    #[default]
    Calls,
    /// By thread and time.
    Containment,
}

/// The times and kind of the session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) window_ns: (u64, u64),
    /// The times in which it was on and not paused, sorted and disjoint.
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: calls that returned after this time may still get records.
    pub(crate) pending_from_ns: Option<u64>,
    /// Records without a call and with an id up to this belong to calls before those kept.
    pub(crate) before_id: u32,
    pub(crate) ranges_by: RangesBy,
    /// The source's time 0.
    pub(crate) zero_ns: u64,
    /// The last time of all annotations of a capture, ranges, marks and others.
    pub(crate) last_annotation_ns: u64,
}

impl Session {
    /// A time in the source's clock; negative before its 0.
    pub(crate) fn since_zero(&self, ns: u64) -> i64 {
        let since = i128::from(ns) - i128::from(self.zero_ns);
        // CAST: times that far away do not occur.
        since.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) session: Session,
    pub(crate) names: Names,
    pub(crate) threads: Vec<Thread>,
    pub(crate) labels: Vec<Label>,
    /// By thread in start order.
    pub(crate) ranges: Vec<Range>,
    /// By starting thread in start order.
    pub(crate) process_ranges: Vec<ProcessRange>,
    /// By thread in time order.
    pub(crate) marks: Vec<Mark>,
    pub(crate) details: FxHashMap<Subject, Details>,
    pub(crate) call_kinds: Interned<CallKind>,
    /// Ranges that share work attributed to another range, without duplicates. Few calls have any.
    pub(crate) shares: Vec<Box<[RangeId]>>,
    /// By thread in call order. Of a runtime call and its driver call, which share their
    /// correlation id, the driver call.
    pub(crate) calls: Vec<Call>,
    /// The runtime calls that made driver calls; set by `correlate`.
    pub(crate) outer_calls: Vec<Call>,
    /// Calls of a capture that share their correlation id, by process and id; set by `correlate`.
    pub(crate) repeated_calls: FxHashMap<(u32, u32), Vec<Call>>,
    pub(crate) works: Interned<Work>,
    /// By start; those without timestamps first.
    pub(crate) operations: Vec<Operation>,
    pub(crate) synchronizations: Vec<Synchronization>,
    /// Empty unless the program collected the kind.
    #[cfg_attr(
        not(feature = "analysis"),
        allow(dead_code, reason = "what critical paths lead through")
    )]
    pub(crate) event_records: Vec<EventRecord>,
    /// By process; empty unless the program logged them.
    #[cfg_attr(
        not(feature = "analysis"),
        allow(dead_code, reason = "what critical paths lead through")
    )]
    pub(crate) graph_dependencies: FxHashMap<u32, GraphDependencies>,
    /// By time.
    pub(crate) memory: Vec<MemoryEvent>,
    /// By start; empty if the source has none.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) managed: Vec<ManagedMemory>,
    /// By start; empty if the source has none.
    #[cfg_attr(
        not(feature = "nsys"),
        allow(dead_code, reason = "what captures of other tools tell")
    )]
    pub(crate) overheads: Vec<Overhead>,
    /// By device; empty if the source has none.
    pub(crate) multiprocessors: Vec<Multiprocessor>,
    /// CUDA ordinals of several GPUs: each process numbers its visible ones.
    pub(crate) shared_ordinals: Vec<u32>,
    /// Empty if a process recorded itself.
    pub(crate) processes: Vec<Process>,
    /// The clocks of several hosts; empty if all recordings are of one.
    pub(crate) hosts: Vec<HostClock>,
    /// The samples of the devices.
    pub(crate) series: Vec<Arc<Series>>,
    /// The stacks of each recording.
    pub(crate) host_stacks: Vec<Arc<HostStacks>>,
    /// By thread and start: places in `host_stacks` and in its stacks.
    pub(crate) call_stacks: FxHashMap<(ThreadId, u64), (u32, u32)>,
    /// What threads did in gaps, by thread and start.
    pub(crate) host_samples: Vec<HostPart>,
    /// Calls whose stack is not in the recording.
    pub(crate) missing_stacks: u64,
    /// By [`CallId`]: the inferred range of calls outside all ranges; empty if none was inferred.
    pub(crate) inferred: Vec<Maybe<RangeId>>,
    /// The source's number of each range, then of each process range, if it has any.
    pub(crate) range_numbers: Vec<u64>,
}

/// What a thread did in a part of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPart {
    pub(crate) thread: ThreadId,
    pub(crate) time: Interval,
    /// In [`Store::host_stacks`].
    pub(crate) table: u32,
    /// In the stacks of that table.
    pub(crate) stack: Option<u32>,
    /// As [`HostSamples::parts`](crate::record::host_stacks::HostSamples::parts) has it.
    pub(crate) doing: u32,
}

impl Store {
    /// Sorts the samples, and cuts those that overlap, as in a damaged file alone: the parts of a gap add up to it.
    pub(crate) fn sort_host_samples(&mut self) {
        order::sort_by_key(&mut self.host_samples, |part| (part.thread.at(), part.time.start_ns));
        let mut last: Option<(ThreadId, u64)> = None;
        self.host_samples.retain_mut(|part| {
            if let Some((_, end_ns)) = last.filter(|(thread, _)| *thread == part.thread) {
                part.time.start_ns = part.time.start_ns.max(end_ns);
            }
            let is_left = part.time.start_ns < part.time.end_ns;
            if is_left {
                last = Some((part.thread, part.time.end_ns));
            }
            is_left
        });
    }

    /// What a thread did within some time, as far as it was sampled: in order, cut to that time.
    pub(crate) fn host_parts(
        &self,
        thread: ThreadId,
        time: Interval,
    ) -> impl Iterator<Item = HostPart> {
        let ends_before =
            |part: &HostPart| (part.thread.at(), part.time.end_ns) <= (thread.at(), time.start_ns);
        let first = self.host_samples.partition_point(ends_before);
        let rest = self.host_samples[first..].iter();
        let within =
            rest.take_while(move |part| part.thread == thread && part.time.start_ns < time.end_ns);
        within.map(move |part| {
            let start_ns = part.time.start_ns.max(time.start_ns);
            let end_ns = part.time.end_ns.min(time.end_ns).max(start_ns);
            HostPart { time: Interval { start_ns, end_ns }, ..*part }
        })
    }

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
        let known = self.call_kinds.find(hash, || hash, |known| *known == kind);
        CallKindId(known.unwrap_or_else(|slot| self.call_kinds.push(slot, kind)))
    }

    /// Interns the work of a kernel. Most equal an earlier one, usually `guess`, with the same name
    /// key, and need not be moved; `names` resolves new names.
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
        // Each word takes a multiplication that depends on the previous one.
        let node = details.graph_node.map_or(0, |node| node.node);
        let stream_and_grid = u64::from(details.place.stream) << 32 | u64::from(details.grid[0]);
        (details.name, stream_and_grid, node ^ u64::from(details.grid[1])).hash(&mut hasher);
        let whole_hash = || hash_of(&(details, shared_memory));
        let known = self.works.find(hasher.finish(), whole_hash, is_same);
        WorkId(known.unwrap_or_else(|slot| {
            let what = What::Kernel { names: names(&mut self.names), details };
            let work = Work { shared_memory, ..Work::new(what, kernel.place) };
            self.works.push(slot, work)
        }))
    }

    /// Removes the time and call from a work.
    pub(crate) fn intern_work(&mut self, work: Work) -> WorkId {
        let quick_hash = work.what.fingerprint(work.place, work.process);
        let work = Work { what: work.what.without_instance(), ..work };
        let known = self.works.find(quick_hash, || hash_of(&work), |known| *known == work);
        WorkId(known.unwrap_or_else(|slot| self.works.push(slot, work)))
    }

    /// Orders parents before their children: by start, then by row.
    #[inline]
    pub(crate) fn order(&self, range: RangeId) -> (u64, RangeId) {
        (self.ranges[range.at()].time.start_ns, range)
    }

    /// Sorts ranges so that each comes after its outer ranges.
    pub(crate) fn sort_ranges(&self, ranges: &mut [RangeId]) {
        ranges.sort_unstable_by_key(|&range| self.order(range));
    }

    /// Marks duplicate records; records are in order.
    pub(crate) fn mark_repeats(&mut self) {
        let mut last: FxHashMap<(u32, u64), (bool, u32)> = FxHashMap::default();
        for event in &mut self.memory {
            let told = (event.is_allocation, event.correlation_id);
            let before = last.insert((event.process, event.address), told);
            event.is_repeat = event.correlation_id != 0 && before == Some(told);
        }
    }

    /// Allocations and frees without duplicates.
    pub(crate) fn memory_events(&self) -> impl Iterator<Item = &MemoryEvent> {
        self.memory.iter().filter(|event| !event.is_repeat)
    }

    /// The ranges that share a call, besides its own.
    #[inline]
    pub(crate) fn shares_of(&self, call: &Call) -> &[RangeId] {
        // Most sessions have none.
        if self.shares.is_empty() {
            return &[];
        }
        self.call_kind(call).share.map_or(&[], |share| &self.shares[share.at()])
    }

    /// The calls that nsys joins to an operation: all with its correlation id.
    pub(crate) fn calls_of(&self, operation: &Operation) -> &[Call] {
        let Some(call) = operation.call.get() else { return &[] };
        let own = std::slice::from_ref(&self.calls[call.at()]);
        if self.repeated_calls.is_empty() {
            return own;
        }
        let key = (self.threads[own[0].thread.at()].process, operation.correlation_id);
        self.repeated_calls.get(&key).map_or(own, |calls| calls)
    }

    /// The inferred range of a call outside all ranges.
    #[inline]
    pub(crate) fn inferred_range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.inferred.get(call.get()?.at())?.get()
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
            // Not part of the fast hash.
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
