//! Ranges grouped by name, and every range of a thread.

use std::sync::Arc;

use super::groups::{Groups, sum_row};
use super::spans::{NameTree, RangeStack, Span, Spans, Style, range_texts};
use super::table::{Cell, Value, computed_row};
use super::{Ends, EndsWith, Report, Reports};
use profiler_base::distinct::Texts;

const NO_THREAD_RANGES: &str = "no range of a thread was recorded";

impl Cell for Style {
    fn value(&self) -> Value<'_> {
        Value::Text(self.text())
    }
}

sum_row! {
    /// All ranges of one name and style: a row of `nvtx_sum`. Nested ranges all count.
    NvtxSum = "nvtx_sum", instances "Instances" of "ranges" {
        /// The style of the ranges.
        style: Style => "Style" Plain,
        /// The domain and name: `domain:name`, in the default domain `:name`.
        range: Arc<str> => "Range" Plain,
    }
}
sum_row! {
    /// All ranges of threads of one name: a row of `nvtx_pushpop_sum`.
    NvtxPushpopSum = "nvtx_pushpop_sum", instances "Instances" of "ranges of threads" {
        /// The domain and name: `domain:name`, in the default domain `:name`.
        range: Arc<str> => "Range" Plain,
    }
}
sum_row! {
    /// All ranges of the process of one name: a row of `nvtx_startend_sum`.
    NvtxStartendSum = "nvtx_startend_sum", instances "Instances" of "ranges of the process" {
        /// The domain and name: `domain:name`, in the default domain `:name`.
        range: Arc<str> => "Range" Plain,
    }
}

computed_row! {
    /// One range of a thread: a row of `nvtx_pushpop_trace`.
    NvtxPushpopTrace = "nvtx_pushpop_trace" from (reports: Reports<'_>, spans: &Spans, span: &Span, children: (u64, u64), range_stack: RangeStack) {
        /// The start of the range.
        start_ns: i64 = reports.at(span.time.start_ns) => "Start" Time,
        /// The end; for an open range, the stop of the session.
        end_ns: i64 = reports.at(span.time.end_ns) => "End" Time,
        /// The duration on the host.
        duration_ns: u64 = span.time.ns() => "Duration" Duration,
        /// The sum of the durations of the direct children.
        child_duration_ns: u64 = children.0 => "DurChild" Duration,
        /// The duration without the direct children; negative with concurrent children.
        non_child_duration_ns: i64 = span.time.ns().wrapping_sub(children.0) as i64 => "DurNonChild" Duration,
        /// The domain and name: `domain:name`, in the default domain `:name`.
        name: Arc<str> = spans.name(span).clone() => "Name" Plain,
        /// The operating system's id of the process.
        pid: u32 = reports.pid(reports.thread(span.thread).process) => "PID" Plain,
        /// The operating system's id of the thread.
        tid: u32 = reports.thread(span.thread).id => "TID" Plain,
        /// The number of ranges around the range.
        level: u32 = span.level => "Lvl" Plain,
        /// The number of direct children.
        num_children: u64 = children.1 => "NumChild" Plain,
        /// The number of the range: nsys's number, or by start if it has none.
        range_id: u64 = span.number => "RangeId" Plain,
        /// The number of the parent range.
        parent_id: Option<u64> = spans.parent_number(span) => "ParentId" Plain,
        /// The numbers of the ranges around the range, then its own: `:1:2`.
        range_stack: RangeStack = range_stack => "RangeStack" Plain,
        /// The name after two dashes for each level: `--:name`.
        name_tree: NameTree = NameTree { level: span.level, name: spans.name(span).clone() } => "NameTree" Plain,
    }
}

impl Reports<'_> {
    /// Returns ranges of both styles by name, sorted by total (longest first), then by name.
    pub(crate) fn nvtx_sum(self) -> Report<NvtxSum> {
        let (groups, texts) = self.grouped_ranges(&[Style::PushPop, Style::StartEnd]);
        groups.report("no range was recorded", |group| {
            let (style, range) = (group.key.1, texts.get(group.key.0).clone());
            ((range.clone(), style), NvtxSum::new(group, style, range))
        })
    }

    /// Returns ranges of threads by name, in the order of [`nvtx_sum`](Self::nvtx_sum).
    pub(crate) fn nvtx_pushpop_sum(self) -> Report<NvtxPushpopSum> {
        let (groups, texts) = self.grouped_ranges(&[Style::PushPop]);
        groups.report(NO_THREAD_RANGES, |group| {
            let range = texts.get(group.key.0).clone();
            (range.clone(), NvtxPushpopSum::new(group, range))
        })
    }

    /// Returns ranges of the process by name, in the order of [`nvtx_sum`](Self::nvtx_sum).
    pub(crate) fn nvtx_startend_sum(self) -> Report<NvtxStartendSum> {
        let (groups, texts) = self.grouped_ranges(&[Style::StartEnd]);
        groups.report("no range of the process was recorded", |group| {
            let range = texts.get(group.key.0).clone();
            (range.clone(), NvtxStartendSum::new(group, range))
        })
    }

    fn grouped_ranges(self, styles: &[Style]) -> (Groups<(u32, Style)>, Texts) {
        let (store, ends) = (self.store(), Ends::new(self.store(), EndsWith::Annotations));
        let mut texts = Texts::default();
        let names: Vec<u32> = range_texts(store).iter().map(|name| texts.text(name)).collect();
        let mut groups = Groups::new();
        if styles.contains(&Style::PushPop) {
            for range in &store.ranges {
                groups.add((names[range.label.at()], Style::PushPop), ends.interval(range).ns());
            }
        }
        if styles.contains(&Style::StartEnd) {
            for range in &store.process_ranges {
                groups.add((names[range.label.at()], Style::StartEnd), ends.of_process(range).ns());
            }
        }
        (groups, texts)
    }

    /// Returns every range of a thread by start; among ranges with one start the shorter first.
    pub(crate) fn nvtx_pushpop_trace(self) -> Report<NvtxPushpopTrace> {
        let spans = Spans::new(self, false);
        let mut children = vec![(0_u64, 0_u64); spans.all.len()];
        for span in &spans.all {
            if let Some(parent) = span.parent {
                let (duration_ns, count) = &mut children[parent as usize];
                *duration_ns = duration_ns.saturating_add(span.time.ns());
                *count += 1;
            }
        }
        let levels = spans.levels();
        let mut rows: Vec<NvtxPushpopTrace> = (0..)
            .zip(&spans.all)
            .map(|(id, span)| {
                let range_stack = RangeStack::new(&levels, id);
                NvtxPushpopTrace::new(self, &spans, span, children[id as usize], range_stack)
            })
            .collect();
        rows.sort_by_key(|row| (row.start_ns, row.duration_ns));
        Report::new(rows, NO_THREAD_RANGES)
    }
}
