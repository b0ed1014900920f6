//! The rows of a profile's tables. They refer to each other by index newtypes.

use std::hash::{Hash, Hasher};

use cupti::CallClass;
use cupti::record::SharedMemorySetting;
use nvtx::Payload;
use rustc_hash::FxHasher;

use crate::join::account::{ExpectedRecords, is_failure, may_have_several_records};
use crate::join::health::Health;
use crate::join::ids::*;
use crate::join::intern::NameId;
use crate::record::recording::RecordingInfo;

/// A time span in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Its start.
    pub start_ns: u64,
    /// Its end; before the start only in a damaged file.
    pub end_ns: u64,
}

impl Interval {
    /// Its length; 0 if it ends before its start.
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
    /// The priority, if the source has it.
    pub priority: Option<i64>,
}

/// A process, if the source names processes.
#[derive(Debug)]
pub struct Process {
    /// The kernel's id. If several processes have the same id, all but one have an id above all of
    /// Linux.
    pub id: u32,
    /// The program's name, if known.
    pub name: Option<Box<str>>,
    /// Set if the profile was merged from recordings.
    pub recorded: Option<Box<RecordedProcess>>,
}

/// The properties of the recording of one of several processes.
#[derive(Debug)]
pub struct RecordedProcess {
    /// The rank among cooperating processes, if known.
    pub rank: Option<u32>,
    /// Its host, by number.
    pub host: u32,
    /// The session's window in nanoseconds of `CLOCK_MONOTONIC`, as in [`Session`].
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

/// A field of a range or mark, as described by NVTX schemas.
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
    /// The time; until the stop, if it had not ended.
    pub time: Interval,
    /// The thread of the end; `None` if it had not ended.
    pub end_thread: Option<ThreadId>,
}

/// A point in time that the program marked.
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
    /// The time from its push to its pop.
    pub time: Interval,
    /// Its name and domain.
    pub label: LabelId,
    /// The thread that opened it.
    pub thread: ThreadId,
    /// The parent, which is earlier in [`Tables::order`](crate::join::tables::Tables::order). On
    /// another thread if a context was handed over.
    pub parent: Maybe<RangeId>,
    /// True if it had not ended: its end is then the session's end.
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
    /// The API of the function.
    pub api: Api,
    /// The class of the function.
    pub class: CallClass,
    /// The return value, of `CUresult` or `cudaError_t`; 0 is success.
    pub result: u32,
    /// True if it was captured into a graph.
    pub captured: bool,
    /// True if it had nothing to do, such as a copy of 0 bytes.
    pub empty: bool,
    /// False if it had not returned.
    pub has_returned: bool,
    /// The ranges that share it besides its own.
    pub share: Option<ShareId>,
    /// True if it was made in a range that the recording lacks: without a range, but not outside of
    /// all.
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

    /// Returns the data for the expected records of a call of this kind. `end_ns` is the end of the
    /// call.
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
    /// The time; without an end if it had not returned.
    pub time: Interval,
    /// CUPTI's correlation id, which the records of its work also have.
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

/// Bytes of a kernel in the tables, without shared data: its row, its call's row, and their index
/// entries in `range_tree`.
pub const BYTES_A_KERNEL: usize = size_of::<Operation>() + size_of::<Call>() + 8;
const _: () = assert!(BYTES_A_KERNEL <= 96);

/// The properties shared by repeated operations: all except the time and the call.
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

    /// Changes the ordinals of its devices.
    pub(crate) fn for_each_device(&mut self, mut change: impl FnMut(&mut u32)) {
        change(&mut self.place.device);
        match &mut self.what {
            What::Kernel { details, .. } => change(&mut details.place.device),
            What::Copy(copy) => {
                change(&mut copy.place.device);
                if let Some(peers) = &mut copy.peers {
                    change(&mut peers.source_device);
                    change(&mut peers.destination_device);
                }
            }
            What::Memset(memset) => change(&mut memset.place.device),
            What::Graph(_) => {}
        }
    }

    /// True for a move of managed memory, which no call requests.
    pub fn is_migration(&self) -> bool {
        matches!(self.what, What::Copy(_)) && (11..=13).contains(&self.copy_kind)
    }
}

/// The kind of a GPU operation, with CUPTI's record.
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
    /// The name with parameters.
    pub demangled: Option<NameId>,
    /// The unqualified name.
    pub short: Option<NameId>,
}

/// Represents a copy's own correlation id, which its runtime call usually shares.
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

    /// Removes data of a single operation.
    pub(super) fn without_instance(mut self) -> Self {
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
    pub(super) fn fingerprint(&self, place: cupti::Place, process: u32) -> u64 {
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

/// The way in which calls are attributed to ranges.
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
    /// The window in nanoseconds of `CLOCK_MONOTONIC`.
    pub window_ns: (u64, u64),
    /// The times in which it was on and not paused, sorted and disjoint.
    pub windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: calls that returned after this time may still get records.
    pub pending_from_ns: Option<u64>,
    /// Records without a call and with an id up to this belong to calls before the retained ones.
    pub before_id: u32,
    /// The way in which calls were attributed to ranges.
    pub ranges_by: RangesBy,
    /// The source's time 0.
    pub zero_ns: u64,
    /// The last time of all annotations of a capture: ranges, marks and others.
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

/// The state of a thread in a part of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPart {
    /// The thread.
    pub thread: ThreadId,
    /// Its time.
    pub time: Interval,
    /// The number of the table with its stack.
    pub table: u32,
    /// The index in the stacks of that table.
    pub stack: Option<u32>,
    /// The thread's state, as numbered by the recording.
    pub doing: u32,
}
