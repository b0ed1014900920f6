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
pub use crate::join::ids::*;
use crate::join::intern::hash_of;
pub use crate::join::intern::{Interned, NameId, Names};
use crate::record::host_stacks::HostStacks;
use crate::record::recording::RecordingInfo;
use crate::record::series::Series;

/// A time span in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Its start.
    pub start_ns: u64,
    /// Its end; not before the start, but in a damaged file.
    pub end_ns: u64,
}

impl Interval {
    /// Its length; 0 for one that ends before its start.
    pub fn ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// A thread that opened a range or called CUDA.
#[derive(Debug)]
pub struct Thread {
    /// The kernel's id.
    pub id: u32,
    /// The kernel's process id; 0 if a process recorded itself.
    pub process: u32,
    /// The name, if known.
    pub name: Option<Box<str>>,
    /// If the source has it.
    pub priority: Option<i64>,
}

/// A process, where the source names them.
#[derive(Debug)]
pub struct Process {
    /// The kernel's id. Of several processes with one id, the others have an id above all of Linux.
    pub id: u32,
    /// The program's name, if known.
    pub name: Option<Box<str>>,
    /// If the profile was merged from recordings.
    pub recorded: Option<Box<RecordedProcess>>,
}

/// What the recording of one of several processes says of itself.
#[derive(Debug)]
pub struct RecordedProcess {
    /// The rank among cooperating processes, if known.
    pub rank: Option<u32>,
    /// Its host, by number.
    pub host: u32,
    /// In nanoseconds of `CLOCK_MONOTONIC`, as [`Session`] has them.
    pub window_ns: (u64, u64),
    /// The times in which it was on and not paused.
    pub windows_ns: Vec<(u64, u64)>,
    /// The machine, versions and time.
    pub info: RecordingInfo,
    /// Completeness and losses.
    pub health: Health,
}

/// The properties shared by ranges and marks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Label {
    /// The name.
    pub name: NameId,
    /// `None` is the default domain.
    pub domain: Option<NameId>,
    /// The category, if any.
    pub category: Option<NameId>,
    /// Alpha, red, green, blue.
    pub color: Option<u32>,
}

/// Rare properties of ranges and marks.
#[derive(Debug, Default)]
pub struct Details {
    /// The payload, if any.
    pub payload: Option<Payload>,
    /// The process range that it is an activation of.
    pub within: Option<ProcessRangeId>,
    /// The fields of schemas.
    pub fields: Vec<Field>,
}

/// A field of a range or mark, as NVTX schemas describe them.
#[derive(Debug)]
pub struct Field {
    /// The name.
    pub name: NameId,
    /// The unit; empty for none.
    pub unit: NameId,
    /// The value.
    pub value: FieldValue,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub enum FieldValue {
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(NameId),
}

impl FieldValue {
    /// The name that is the value, if it is a text.
    pub(crate) fn text(&self) -> Option<NameId> {
        match *self {
            Self::Text(name) => Some(name),
            _ => None,
        }
    }
}

/// The owner of [`Details`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A range of a thread.
    Range(RangeId),
    /// A process range.
    ProcessRange(ProcessRangeId),
    /// A mark.
    Mark(MarkId),
}

/// A process range.
#[derive(Debug)]
pub struct ProcessRange {
    /// Its name and domain.
    pub label: LabelId,
    /// The thread of the start, and its innermost range.
    pub thread: ThreadId,
    /// The innermost range of that thread at the start.
    pub parent: Option<RangeId>,
    /// Until the stop, if it had not ended.
    pub time: Interval,
    /// The thread of the end; `None` if it had not ended.
    pub end_thread: Option<ThreadId>,
}

/// An instant that the program marked.
#[derive(Debug)]
pub struct Mark {
    /// Its name and domain.
    pub label: LabelId,
    /// The thread that made it.
    pub thread: ThreadId,
    /// Its time.
    pub at_ns: u64,
    /// The innermost range of the thread.
    pub parent: Option<RangeId>,
}

/// A range of a thread, from push to pop.
#[derive(Debug)]
pub struct Range {
    /// From its push to its pop.
    pub time: Interval,
    /// Its name and domain.
    pub label: LabelId,
    /// The thread that opened it.
    pub thread: ThreadId,
    /// Earlier in [`Tables::order`]. On another thread if a context was handed over.
    pub parent: Maybe<RangeId>,
    /// If true, its end is that of the session.
    pub is_open: bool,
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
pub struct CallKind {
    /// The function's name.
    pub name: NameId,
    /// The API that it is of.
    pub api: Api,
    /// What kind of function it is.
    pub class: CallClass,
    /// The value that it returned, of `CUresult` or `cudaError_t`; 0 is success.
    pub result: u32,
    /// True if its work went into a graph that was being captured.
    pub captured: bool,
    /// True if it had nothing to do, such as a copy of 0 bytes.
    pub empty: bool,
    /// False if it had not returned.
    pub has_returned: bool,
    /// The ranges that share it besides its own.
    pub share: Option<ShareId>,
    /// It was made in a range that the recording lacks: without a range, but not outside of all.
    pub range_is_unknown: bool,
}

impl CallKind {
    /// A call that succeeded.
    pub fn new(name: NameId, api: Api, class: CallClass) -> Self {
        Self {
            name,
            api,
            class,
            result: 0,
            captured: false,
            empty: false,
            has_returned: true,
            share: None,
            range_is_unknown: false,
        }
    }

    /// True if the call returned an error.
    pub fn is_failure(&self) -> bool {
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
pub struct Call {
    /// Without an end if it had not returned.
    pub time: Interval,
    /// CUPTI's correlation id, which the records of its work have, too.
    pub correlation_id: u32,
    /// The properties that it shares with other calls.
    pub kind: CallKindId,
    /// The calling thread.
    pub thread: ThreadId,
    /// The innermost range of the thread.
    pub range: Maybe<RangeId>,
}

/// A GPU operation.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// All 0 without timestamps.
    time: Interval,
    /// The correlation id of its call.
    pub correlation_id: u32,
    /// The properties that it shares with other operations.
    pub work: WorkId,
    /// The submitting call, set by `correlate`.
    pub call: Maybe<CallId>,
    /// The range that created its graph node.
    pub captured: Maybe<RangeId>,
}

impl Operation {
    /// An operation whose call is not known yet; `None` for one without timestamps.
    pub fn new(work: WorkId, time: Option<Interval>, correlation_id: u32) -> Self {
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
    pub fn time(&self) -> Option<Interval> {
        (self.time != Interval::default()).then_some(self.time)
    }

    /// 0 without timestamps.
    #[inline]
    pub fn start_ns(&self) -> u64 {
        self.time.start_ns
    }

    /// Changes its timestamps, if it has any.
    pub(crate) fn change_time(&mut self, change: impl FnOnce(Interval) -> Interval) {
        self.time = self.time().map_or(self.time, change);
    }

    /// 0 without timestamps.
    #[inline]
    pub fn ns(&self) -> u64 {
        self.time.ns()
    }
}

/// Bytes of a kernel in the tables, without shared data: its row, that of its call, and their index
/// entries in `range_tree`.
pub const BYTES_A_KERNEL: usize = size_of::<Operation>() + size_of::<Call>() + 8;
const _: () = assert!(BYTES_A_KERNEL <= 96);

/// The properties shared by repeated operations: all but the time and the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// The kernel, copy, memset or graph.
    pub what: What,
    /// The device, context and stream.
    pub place: cupti::Place,
    /// The green context, if the source has it.
    pub green_context: Option<u32>,
    /// The shared memory setting of the multiprocessors for a kernel.
    pub shared_memory: SharedMemorySetting,
    /// CUPTI's copy kind, which distinguishes arrays and managed memory; 0 if unknown.
    pub copy_kind: u8,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
}

impl Work {
    /// Work of a process that recorded itself.
    pub fn new(what: What, place: cupti::Place) -> Self {
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
    pub fn is_migration(&self) -> bool {
        matches!(self.what, What::Copy(_)) && (11..=13).contains(&self.copy_kind)
    }
}

/// The kind of a GPU operation, with what CUPTI records of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// A kernel.
    Kernel {
        /// Its names.
        names: KernelNames,
        /// Its record.
        details: cupti::Kernel,
    },
    /// A copy.
    Copy(cupti::Memcpy),
    /// A memset.
    Memset(cupti::Memset),
    /// A launch of a CUDA graph that was traced as one interval.
    Graph(WholeGraph),
}

/// The graph of a launch traced as one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WholeGraph {
    /// The executable graph.
    pub executable: u32,
    /// The graph it was instantiated from, if the source has it.
    pub template: Option<u32>,
}

/// The names of a kernel in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelNames {
    /// The mangled name, if known.
    pub name: NameId,
    /// With parameters.
    pub demangled: Option<NameId>,
    /// The unqualified name.
    pub short: Option<NameId>,
}

/// Stands for a copy's own correlation id, which its runtime call usually shares.
pub const SAME_ID: u32 = u32::MAX;

impl What {
    /// Its CUDA graph node.
    pub fn graph_node(&self) -> Option<cupti::GraphNode> {
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

/// A synchronisation of the host with the GPU, or of streams with an event.
#[derive(Debug)]
pub struct Synchronization {
    /// Its record.
    pub record: cupti::Synchronization,
    /// The waiting call, set by the join.
    pub call: Option<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
}

/// An event was recorded into a stream: what was submitted to the stream before, by correlation id, precedes the event.
#[derive(Debug, Clone, Copy)]
pub struct EventRecord {
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// CUPTI's id of the stream.
    pub stream: u32,
    /// CUPTI's id of the event, which a program may record several times.
    pub event: u32,
    /// The correlation id of the call that recorded it.
    pub correlation_id: u32,
    /// CUPTI's id of this recording; from 12.8.
    pub sync_id: Option<u64>,
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
pub struct MemoryEvent {
    /// Its time.
    pub at_ns: u64,
    /// False for a free.
    pub is_allocation: bool,
    /// The kind of memory.
    pub kind: cupti::MemoryKind,
    /// The size.
    pub bytes: u64,
    /// The address.
    pub address: u64,
    /// The CUDA ordinal of the device.
    pub device: u32,
    /// The correlation id of its call.
    pub correlation_id: u32,
    /// The call, set by the join.
    pub call: Maybe<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
    /// True for a duplicate record of the same call, which CUPTI 12.8 and 13.0 write for
    /// `cuMemAlloc` and `cuMemFree`. Set by `correlate`.
    pub is_repeat: bool,
}

/// A migration or page fault of managed memory.
#[derive(Debug, Clone, Copy)]
pub struct ManagedMemory {
    /// What happened.
    pub what: Managed,
    /// The address.
    pub address: u64,
    /// Its time.
    pub time: Interval,
    /// The CUDA ordinal of the device, if known.
    pub device: Option<u32>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
}

/// What happened to managed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// A migration to a device, which is also an operation.
    ToDevice {
        /// Its size.
        bytes: u64,
    },
    /// A migration to the host, which is also an operation.
    ToHost {
        /// Its size.
        bytes: u64,
    },
    /// A fault of the host at this instruction: a function of the program, or an address.
    HostFault {
        /// The function or address.
        instruction: Option<NameId>,
        /// The source line; 0 in the source if unknown.
        line: Option<(NameId, u32)>,
    },
    /// A number of faults of the device.
    DeviceFaults {
        /// How many.
        count: u64,
    },
}

/// The limits of a device's multiprocessor; 0 if unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Multiprocessor {
    /// CUDA ordinal.
    pub device: u32,
    /// Major and minor: (9, 0) is sm_90.
    pub compute_capability: (u32, u32),
    /// The number of multiprocessors of the device.
    pub multiprocessors: u32,
    /// Warps.
    pub warps: u32,
    /// Blocks.
    pub blocks: u32,
    /// Registers.
    pub registers: u32,
    /// Registers of one block.
    pub registers_per_block: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// For kernels that opted in.
    pub shared_bytes_per_block: u32,
}

/// Time spent by the profiler.
#[derive(Debug, Clone, Copy)]
pub struct Overhead {
    /// Its time.
    pub time: Interval,
    /// The kernel's id of the process.
    pub process: u32,
    /// True if no work could be submitted to the device.
    pub holds_gpu: bool,
}

/// How calls are attributed to ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangesBy {
    /// By the tags of calls.
    #[default]
    Calls,
    /// By thread and time.
    Containment,
}

/// The times and kind of the session.
#[derive(Debug, Default)]
pub struct Session {
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    pub window_ns: (u64, u64),
    /// The times in which it was on and not paused, sorted and disjoint.
    pub windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: calls that returned after this time may still get records.
    pub pending_from_ns: Option<u64>,
    /// Records without a call and with an id up to this belong to calls before those kept.
    pub before_id: u32,
    /// How calls came to their ranges.
    pub ranges_by: RangesBy,
    /// The source's time 0.
    pub zero_ns: u64,
    /// The last time of all annotations of a capture, ranges, marks and others.
    pub last_annotation_ns: u64,
}

impl Session {
    /// A time in the source's clock; negative before its 0.
    pub fn since_zero(&self, ns: u64) -> i64 {
        let since = i128::from(ns) - i128::from(self.zero_ns);
        // CAST: times that far away do not occur.
        since.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// All rows of a profile.
#[derive(Debug, Default)]
pub struct Tables {
    /// The times and kind of the session.
    pub session: Session,
    /// All names.
    pub names: Names,
    /// By their first appearance.
    pub threads: Vec<Thread>,
    /// Names and domains of ranges and marks.
    pub labels: Vec<Label>,
    /// By thread in start order.
    pub ranges: Vec<Range>,
    /// By starting thread in start order.
    pub process_ranges: Vec<ProcessRange>,
    /// By thread in time order.
    pub marks: Vec<Mark>,
    /// Payloads and fields of those that have any.
    pub details: FxHashMap<Subject, Details>,
    /// What calls have in common.
    pub call_kinds: Interned<CallKind>,
    /// Ranges that share work attributed to another range, without duplicates. Few calls have any.
    pub shares: Vec<Box<[RangeId]>>,
    /// By thread in call order. Of a runtime call and its driver call, which share their
    /// correlation id, the driver call.
    pub calls: Vec<Call>,
    /// The runtime calls that made driver calls; set by `correlate`.
    pub outer_calls: Vec<Call>,
    /// Calls of a capture that share their correlation id, by process and id; set by `correlate`.
    pub repeated_calls: FxHashMap<(u32, u32), Vec<Call>>,
    /// What operations have in common.
    pub works: Interned<Work>,
    /// By start; those without timestamps first.
    pub operations: Vec<Operation>,
    /// By their end.
    pub synchronizations: Vec<Synchronization>,
    /// Empty unless the program collected the kind.
    pub event_records: Vec<EventRecord>,
    /// By process; empty unless the program logged them.
    pub graph_dependencies: FxHashMap<u32, GraphDependencies>,
    /// By time.
    pub memory: Vec<MemoryEvent>,
    /// By start; empty if the source has none.
    pub managed: Vec<ManagedMemory>,
    /// By start; empty if the source has none.
    pub overheads: Vec<Overhead>,
    /// By device; empty if the source has none.
    pub multiprocessors: Vec<Multiprocessor>,
    /// CUDA ordinals of several GPUs: each process numbers its visible ones.
    pub shared_ordinals: Vec<u32>,
    /// Empty if a process recorded itself.
    pub processes: Vec<Process>,
    /// The clocks of several hosts; empty if all recordings are of one.
    pub hosts: Vec<HostClock>,
    /// The samples of the devices.
    pub series: Vec<Arc<Series>>,
    /// The stacks of each recording.
    pub(crate) host_stacks: Vec<Arc<HostStacks>>,
    /// By thread and start: places in `host_stacks` and in its stacks.
    pub(crate) call_stacks: FxHashMap<(ThreadId, u64), (u32, u32)>,
    /// What threads did in gaps, by thread and start.
    pub host_samples: Vec<HostPart>,
    /// Calls whose stack is not in the recording.
    pub missing_stacks: u64,
    /// By [`CallId`]: the inferred range of calls outside all ranges; empty if none was inferred.
    pub inferred: Vec<Maybe<RangeId>>,
    /// The source's number of each range, then of each process range, if it has any.
    pub range_numbers: Vec<u64>,
}

/// What a thread did in a part of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPart {
    /// The thread.
    pub thread: ThreadId,
    /// Its time.
    pub time: Interval,
    /// The number of the table with its stack.
    pub table: u32,
    /// In the stacks of that table.
    pub stack: Option<u32>,
    /// What the thread did, as the recording numbers it.
    pub doing: u32,
}

impl Tables {
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

    /// The stack that was taken at a call: equal pairs are equal stacks.
    pub fn stack_of(&self, call: &Call) -> Option<(u32, u32)> {
        self.call_stacks.get(&(call.thread, call.time.start_ns)).copied()
    }

    /// What a thread did within some time, as far as it was sampled: in order, cut to that time.
    pub fn host_parts(&self, thread: ThreadId, time: Interval) -> impl Iterator<Item = HostPart> {
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

    /// The label of this row.
    #[inline]
    pub fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.at()]
    }

    /// What a call shares with others.
    #[inline]
    pub fn call_kind(&self, call: &Call) -> &CallKind {
        self.call_kinds.row(call.kind.at())
    }

    /// What an operation shares with others.
    #[inline]
    pub fn work(&self, operation: &Operation) -> &Work {
        self.works.row(operation.work.at())
    }

    /// Every work, by [`WorkId`].
    pub fn works(&self) -> &[Work] {
        self.works.rows()
    }
    /// The row of this kind, which is added if there is none.

    pub fn intern_call_kind(&mut self, kind: CallKind) -> CallKindId {
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
    pub fn intern_work(&mut self, work: Work) -> WorkId {
        let quick_hash = work.what.fingerprint(work.place, work.process);
        let work = Work { what: work.what.without_instance(), ..work };
        let known = self.works.find(quick_hash, || hash_of(&work), |known| *known == work);
        WorkId(known.unwrap_or_else(|slot| self.works.push(slot, work)))
    }

    /// Orders parents before their children: by start, then by row.
    #[inline]
    pub fn order(&self, range: RangeId) -> (u64, RangeId) {
        (self.ranges[range.at()].time.start_ns, range)
    }

    /// Sorts ranges so that each comes after its outer ranges.
    pub fn sort_ranges(&self, ranges: &mut [RangeId]) {
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
    pub fn memory_events(&self) -> impl Iterator<Item = &MemoryEvent> {
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
    pub fn calls_of(&self, operation: &Operation) -> &[Call] {
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
    pub fn inferred_range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.inferred.get(call.get()?.at())?.get()
    }

    /// The range whose call caused this work.
    #[inline]
    pub fn range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.calls[call.get()?.at()].range.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_that_differ_in_one_field_are_kept_apart() {
        let mut store = Tables::default();
        let names = |names: &mut Names| {
            let name = names.intern("kernel");
            KernelNames { name, demangled: None, short: None }
        };
        let works = |store: &mut Tables, block: u32| {
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
