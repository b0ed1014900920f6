//! Ranges: by name, and each.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use super::range_texts::range_texts;
use super::spans::{NameTree, RangeStack, Spans};
use super::sums::{Group, Groups, Summary};
use super::table::{Cell, Value, row};
use super::texts::Texts;
use super::{Ends, EndsWith, Report, Reports};

/// How a range was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub enum Style {
    /// A range of a thread.
    PushPop,
    /// A range of the process.
    StartEnd,
}

impl Cell for Style {
    fn value(&self) -> Value<'_> {
        Value::Text(match self {
            Self::PushPop => "PushPop",
            Self::StartEnd => "StartEnd",
        })
    }
}

row! {
    /// All ranges of one name and style: a row of `nvtx_sum`.
    NvtxSum = "nvtx_sum" {
        /// Percent of the time of all ranges, of which one may lie in another.
        time_percent: f64 => "Time" Percent,
        /// How often it was entered.
        instances: u64,
        /// How long the host was in it.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
        /// How it was told of.
        style: Style => "Style" Plain,
        /// Its domain and name: `domain:name`, in the default domain `:name`.
        range: Arc<str> => "Range" Plain,
    }
}

macro_rules! of_one_style {
    ($(#[$doc:meta])* $type:ident = $name:literal) => {
        row! {
            $(#[$doc])*
            $type = $name {
                /// Percent of the time of all ranges of the style.
                time_percent: f64 => "Time" Percent,
                /// How often it was entered.
                instances: u64,
                /// How long the host was in it.
                #[serde(flatten)]
                time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
                /// Its domain and name: `domain:name`, in the default domain `:name`.
                range: Arc<str> => "Range" Plain,
            }
        }

        impl From<NvtxSum> for $type {
            fn from(row: NvtxSum) -> Self {
                let NvtxSum { time_percent, instances, time, range, .. } = row;
                Self { time_percent, instances, time, range }
            }
        }
    };
}

of_one_style! {
    /// All ranges of threads of one name: a row of `nvtx_pushpop_sum`.
    NvtxPushpopSum = "nvtx_pushpop_sum"
}
of_one_style! {
    /// All ranges of the process of one name: a row of `nvtx_startend_sum`.
    NvtxStartendSum = "nvtx_startend_sum"
}

row! {
    /// One range of a thread: a row of `nvtx_pushpop_trace`.
    NvtxPushpopTrace = "nvtx_pushpop_trace" {
        /// When it began.
        start_ns: i64 => "Start" Time,
        /// When it ended; of an open one the stop.
        end_ns: i64 => "End" Time,
        /// How long the host was in it.
        duration_ns: u64 => "Duration" Duration,
        /// How long it was in the ranges directly within it.
        child_duration_ns: u64 => "DurChild" Duration,
        /// How long it was in none of these; negative where ranges that were handed on ran beside each other.
        non_child_duration_ns: i64 => "DurNonChild" Duration,
        /// Its domain and name: `domain:name`, in the default domain `:name`.
        name: Arc<str> => "Name" Plain,
        /// The kernel's id of the process.
        pid: u32 => "PID" Plain,
        /// The kernel's id of the thread.
        tid: u32 => "TID" Plain,
        /// How many ranges are around it.
        level: u32 => "Lvl" Plain,
        /// How many ranges are directly within it.
        num_children: u64 => "NumChild" Plain,
        /// A number of its own: nsys's where it has one, else by start.
        range_id: u64 => "RangeId" Plain,
        /// The number of the range around it.
        parent_id: Option<u64> => "ParentId" Plain,
        /// The numbers of the ranges around it and its own: `:1:2`.
        range_stack: RangeStack => "RangeStack" Plain,
        /// Its name after two dashes a level: `--:name`.
        name_tree: NameTree => "NameTree" Plain,
    }
}

impl Reports<'_> {
    /// Ranges of both styles by name. Those that took most come first, then by name.
    pub fn nvtx_sum(self) -> Report<NvtxSum> {
        self.range_sums(|_| true)
    }

    /// Ranges of threads by name, in the order of [`nvtx_sum`](Self::nvtx_sum).
    pub fn nvtx_pushpop_sum(self) -> Report<NvtxPushpopSum> {
        let sums = self.range_sums(|style| style == Style::PushPop);
        Report::new(sums.into_iter().map(Into::into).collect(), "no range of a thread was recorded")
    }

    /// Ranges of the process by name, in the order of [`nvtx_sum`](Self::nvtx_sum).
    pub fn nvtx_startend_sum(self) -> Report<NvtxStartendSum> {
        let sums = self.range_sums(|style| style == Style::StartEnd);
        let rows = sums.into_iter().map(Into::into).collect();
        Report::new(rows, "no range of the process was recorded")
    }

    fn range_sums(self, is_wanted: impl Fn(Style) -> bool) -> Report<NvtxSum> {
        let (store, ends) = (self.store(), Ends::new(self.store(), EndsWith::Annotations));
        let mut texts = Texts::default();
        let names: Vec<u32> = range_texts(store).iter().map(|name| texts.intern(name)).collect();
        let mut groups = Groups::new();
        if is_wanted(Style::PushPop) {
            for range in &store.ranges {
                groups.add((names[range.label.at()], Style::PushPop), ends.of(range).ns());
            }
        }
        if is_wanted(Style::StartEnd) {
            for range in &store.process_ranges {
                groups.add((names[range.label.at()], Style::StartEnd), ends.of_process(range).ns());
            }
        }
        let row = |group: Group<(u32, Style)>| NvtxSum {
            time_percent: group.percent,
            instances: group.count,
            time: group.summary,
            style: group.key.1,
            range: texts.get(group.key.0).clone(),
        };
        let mut rows: Vec<NvtxSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| (Reverse(row.time.total_ns), row.range.clone(), row.style));
        Report::new(rows, "no range was recorded")
    }

    /// Every range of a thread, by start; of those that began at once the shorter first.
    pub fn nvtx_pushpop_trace(self) -> Report<NvtxPushpopTrace> {
        let spans = Spans::new(self, false);
        let mut children = vec![(0_u64, 0_u64); spans.all.len()];
        for span in &spans.all {
            if let Some(parent) = span.parent {
                let (duration_ns, count) = &mut children[parent as usize];
                *duration_ns = duration_ns.saturating_add(span.time.ns());
                *count += 1;
            }
        }
        let numbers = spans.numbers();
        let mut rows: Vec<NvtxPushpopTrace> = (0..)
            .zip(&spans.all)
            .map(|(id, span)| {
                let thread = self.thread(span.thread);
                let (child_duration_ns, num_children) = children[id as usize];
                let duration_ns = span.time.ns();
                let name = spans.name(span).clone();
                NvtxPushpopTrace {
                    start_ns: self.at(span.time.start_ns),
                    end_ns: self.at(span.time.end_ns),
                    duration_ns,
                    child_duration_ns,
                    non_child_duration_ns: duration_ns.wrapping_sub(child_duration_ns) as i64,
                    name_tree: NameTree { level: span.level, name: name.clone() },
                    name,
                    pid: self.pid(thread.process),
                    tid: thread.id,
                    level: span.level,
                    num_children,
                    range_id: span.number,
                    parent_id: span.parent.map(|parent| spans.all[parent as usize].number),
                    range_stack: RangeStack::new(&numbers, id),
                }
            })
            .collect();
        rows.sort_by_key(|row| (row.start_ns, row.duration_ns));
        Report::new(rows, "no range of a thread was recorded")
    }
}
