//! The tables of a profile: what was recorded, decoded and named, in one time. Still unjoined.
//!
//! Rows refer to each other by index newtypes; names are interned.

use nvtx::Payload;
use rustc_hash::FxHashMap;

/// Index of an interned name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NameId(u32);

/// Strings, each held once.
#[derive(Debug, Default)]
pub(crate) struct Names {
    strings: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, NameId>,
}

impl Names {
    pub(crate) fn intern(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.strings.len() as u32);
        self.strings.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    pub(crate) fn get(&self, id: NameId) -> &str {
        &self.strings[id.0 as usize]
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            pub(crate) fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}
index!(
    /// Row of [`Store::ranges`].
    RangeId
);
index!(
    /// Row of [`Store::labels`].
    LabelId
);
index!(
    /// Row of [`Store::process_ranges`].
    ProcessRangeId
);
index!(
    /// Row of [`Store::marks`].
    MarkId
);
index!(
    /// Row of [`Store::calls`].
    CallId
);
index!(
    /// Row of [`Store::threads`].
    ThreadId
);

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
    /// The range of the process that it is a stay in.
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
    pub(crate) label: LabelId,
    pub(crate) thread: ThreadId,
    /// Always one that is earlier in [`Store::order`]; of another thread where a range was handed on.
    pub(crate) parent: Option<RangeId>,
    /// Until the stop, if it had not ended.
    pub(crate) time: Interval,
    pub(crate) is_open: bool,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) call: cupti::Call,
    pub(crate) thread: ThreadId,
    pub(crate) range: Option<RangeId>,
}

/// A GPU operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) work: Work,
    pub(crate) place: cupti::Place,
    /// `None` where CUPTI had no timestamps.
    pub(crate) time: Option<Interval>,
    pub(crate) correlation_id: u32,
    /// The call that caused it; filled in by `correlate`.
    pub(crate) call: Option<CallId>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Kernel { name: NameId, details: cupti::Kernel },
    Copy(cupti::Memcpy),
    Memset(cupti::Memset),
}

#[derive(Debug)]
pub(crate) struct Synchronization {
    pub(crate) record: cupti::Synchronization,
    pub(crate) call: Option<CallId>,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
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
    /// By thread, and within a thread in the order they were made.
    pub(crate) calls: Vec<Call>,
    /// By start; those without timestamps first.
    pub(crate) operations: Vec<Operation>,
    pub(crate) synchronizations: Vec<Synchronization>,
}

impl Store {
    pub(crate) fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.at()]
    }

    /// An order in which every range comes after the one it lies in: by start, and then by row.
    pub(crate) fn order(&self, range: RangeId) -> (u64, RangeId) {
        (self.ranges[range.at()].time.start_ns, range)
    }
}
