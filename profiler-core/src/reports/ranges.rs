//! Ranges: by name, and each.

use std::sync::Arc;

use serde::Serialize;

use super::range_texts::range_texts;
use super::spans::{NameTree, RangeStack, Spans};
use super::sums::{Group, Groups, Summary, percent};
use super::table::{Cells, Columns, Row, Unit, column};
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

impl Style {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::PushPop => "PushPop",
            Self::StartEnd => "StartEnd",
        }
    }
}

/// All ranges of one name and style: a row of `nvtx_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NvtxSum {
    /// Percent of the time of all ranges, of which one may lie in another.
    pub time_percent: f64,
    /// How often it was entered.
    pub instances: u64,
    /// How long the host was in it.
    #[serde(flatten)]
    pub time: Summary,
    /// How it was told of.
    pub style: Style,
    /// Its domain and name: `domain:name`, in the default domain `:name`.
    pub range: Arc<str>,
}

impl Row for NvtxSum {
    const NAME: &'static str = "nvtx_sum";
    const COLUMNS: Columns = Columns(&[
        column("Time", Unit::Percent),
        column("Total Time", Unit::Duration),
        column("Instances", Unit::Plain),
        column("Avg", Unit::Duration),
        column("Med", Unit::Duration),
        column("Min", Unit::Duration),
        column("Max", Unit::Duration),
        column("StdDev", Unit::Duration),
        column("Style", Unit::Plain),
        column("Range", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.time_percent).add_summary(self.instances, &self.time);
        cells.add(self.style.text()).add(&self.range);
    }
}

macro_rules! of_one_style {
    ($(#[$doc:meta])* $type:ident $name:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct $type {
            /// Percent of the time of all ranges of the style.
            pub time_percent: f64,
            /// How often it was entered.
            pub instances: u64,
            /// How long the host was in it.
            #[serde(flatten)]
            pub time: Summary,
            /// Its domain and name: `domain:name`, in the default domain `:name`.
            pub range: Arc<str>,
        }

        impl Row for $type {
            const NAME: &'static str = $name;
            const COLUMNS: Columns = Columns(&[
                column("Time", Unit::Percent),
                column("Total Time", Unit::Duration),
                column("Instances", Unit::Plain),
                column("Avg", Unit::Duration),
                column("Med", Unit::Duration),
                column("Min", Unit::Duration),
                column("Max", Unit::Duration),
                column("StdDev", Unit::Duration),
                column("Range", Unit::Plain),
            ]);

            fn cells(&self, cells: &mut Cells<'_>) {
                cells.add(self.time_percent).add_summary(self.instances, &self.time);
                cells.add(&self.range);
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
    NvtxPushpopSum "nvtx_pushpop_sum"
}
of_one_style! {
    /// All ranges of the process of one name: a row of `nvtx_startend_sum`.
    NvtxStartendSum "nvtx_startend_sum"
}

/// One range of a thread: a row of `nvtx_pushpop_trace`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NvtxPushpopTrace {
    /// When it began.
    pub start_ns: i64,
    /// When it ended; of an open one the stop.
    pub end_ns: i64,
    /// How long the host was in it.
    pub duration_ns: u64,
    /// How long it was in the ranges directly within it.
    pub child_duration_ns: u64,
    /// How long it was in none of these; negative where ranges that were handed on ran beside each other.
    pub non_child_duration_ns: i64,
    /// Its domain and name: `domain:name`, in the default domain `:name`.
    pub name: Arc<str>,
    /// The kernel's id of the process.
    pub pid: u32,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// How many ranges are around it.
    pub level: u32,
    /// How many ranges are directly within it.
    pub num_children: u64,
    /// A number of its own: nsys's where it has one, else by start.
    pub range_id: u64,
    /// The number of the range around it.
    pub parent_id: Option<u64>,
    /// The numbers of the ranges around it and its own: `:1:2`.
    pub range_stack: RangeStack,
    /// Its name after two dashes a level: `--:name`.
    pub name_tree: NameTree,
}

impl Row for NvtxPushpopTrace {
    const NAME: &'static str = "nvtx_pushpop_trace";
    const COLUMNS: Columns = Columns(&[
        column("Start", Unit::Time),
        column("End", Unit::Time),
        column("Duration", Unit::Duration),
        column("DurChild", Unit::Duration),
        column("DurNonChild", Unit::Duration),
        column("Name", Unit::Plain),
        column("PID", Unit::Plain),
        column("TID", Unit::Plain),
        column("Lvl", Unit::Plain),
        column("NumChild", Unit::Plain),
        column("RangeId", Unit::Plain),
        column("ParentId", Unit::Plain),
        column("RangeStack", Unit::Plain),
        column("NameTree", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.start_ns).add(self.end_ns).add(self.duration_ns);
        cells.add(self.child_duration_ns).add(self.non_child_duration_ns).add(&self.name);
        cells.add(self.pid).add(self.tid).add(self.level).add(self.num_children);
        cells.add(self.range_id).add(self.parent_id).add(&self.range_stack).add(&self.name_tree);
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
        let (groups, whole) = groups.finish();
        let row = |group: Group<(u32, Style)>| NvtxSum {
            time_percent: percent(group.summary.total_ns, whole),
            instances: group.count,
            time: group.summary,
            style: group.key.1,
            range: texts.get(group.key.0).clone(),
        };
        let mut rows: Vec<NvtxSum> = groups.into_iter().map(row).collect();
        rows.sort_by(|a, b| {
            let by_time = b.time.total_ns.cmp(&a.time.total_ns);
            by_time.then_with(|| (&a.range, a.style).cmp(&(&b.range, b.style)))
        });
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
