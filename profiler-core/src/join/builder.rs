//! Builds profiles from rows of another tool.

use profiler_base::order;

use crate::error::Error;
use crate::join::health::Health;
use crate::join::hosts;
use crate::join::joined::Joined;
use crate::join::merge::unaligned_error;
use crate::join::tables::{Operation, ProcessRangeId, RangeId, Subject, Tables, ThreadId, What};
use crate::record::recording::RecordingInfo;

/// Builds a profile from rows that another tool recorded.
///
/// ```
/// use cupti::CallClass;
/// use profiler_core::Profile;
/// use profiler_core::profile::RecordingInfo;
/// use profiler_core::tables::Api;
/// use profiler_core::tables::{
///     Builder, Call, CallKind, Interval, KernelNames, Maybe, Operation, Thread, ThreadId, What, Work,
/// };
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// let mut builder = Builder::new(RecordingInfo::default());
/// let tables = builder.tables();
/// tables.session.window_ns = (1_000, 9_000);
/// tables.session.windows_ns = vec![(1_000, 9_000)];
/// tables.threads.push(Thread { id: 7, process: 0, name: None, priority: None });
/// let kind = CallKind::new(tables.names.intern("cuLaunchKernel"), Api::Driver, CallClass::KernelLaunch);
/// let kind = tables.intern_call_kind(kind);
/// let time = Interval { start_ns: 2_000, end_ns: 2_500 };
/// let (thread, range) = (ThreadId(0), Maybe::NONE);
/// tables.calls.push(Call { time, correlation_id: 1, kind, thread, range });
/// let names = KernelNames { name: tables.names.intern("gemm"), demangled: None, short: None };
/// let work = Work::new(What::Kernel { names, details: cupti::Kernel::default() }, cupti::Place::default());
/// let work = tables.intern_work(work);
/// let time = Interval { start_ns: 3_000, end_ns: 4_000 };
/// tables.operations.push(Operation::new(work, Some(time), 1));
///
/// let profile = Profile::from(builder.finish()?);
/// assert!(profile.health().is_complete());
/// assert_eq!(profile.totals().kernel_time().as_nanos(), 1_000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    tables: Tables,
    info: RecordingInfo,
    health: Health,
}

impl Builder {
    /// Begins with empty tables.
    #[must_use]
    pub fn new(info: RecordingInfo) -> Self {
        Self { info, ..Self::default() }
    }

    /// The tables, to which rows are added. Calls of a thread must be in start order, and ranges of
    /// a thread, too; other rows may be in any order. Columns that [`finish`](Self::finish) sets
    /// must not be changed.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The losses, for tools that record them. [`finish`](Self::finish) adds the accounts.
    pub fn health(&mut self) -> &mut Health {
        &mut self.health
    }

    /// Sorts rows by time. Sets the call of each operation, synchronisation and allocation by
    /// correlation id. Aligns the clocks of several hosts by their collectives. Costs about 0.2 us
    /// per operation.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): an index refers to no row. Also if the hosts share too few
    /// collectives.
    pub fn finish(self) -> Result<Joined, Error> {
        let Self { mut tables, info, health } = self;
        check_indices(&tables).map_err(|what| {
            Error::format(format!("a row of {what} refers to a row that is not there"))
        })?;
        order::sort_by_number(&mut tables.operations, Operation::start_ns);
        tables.sort_side_rows();
        let mut joined = Joined::of_rows(tables, info, health);
        let tables = &mut joined.tables;
        let host = |process: &crate::join::tables::Process| Some(process.recorded.as_ref()?.host);
        if let Some(last @ 1..) = tables.processes.iter().filter_map(host).max() {
            let aligned = hosts::align(tables, last + 1, &[]);
            tables.hosts = aligned.map_err(|unaligned| unaligned_error(tables, unaligned))?;
            order::sort_by_number(&mut tables.operations, Operation::start_ns);
        }
        Ok(joined)
    }
}

/// The name of a table with an invalid index.
fn check_indices(tables: &Tables) -> Result<(), &'static str> {
    let is_name =
        |id: Option<crate::join::tables::NameId>| id.is_none_or(|id| id.at() < tables.names.len());
    let is_thread = |id: ThreadId| id.at() < tables.threads.len();
    let is_range = |id: Option<RangeId>| id.is_none_or(|id| id.at() < tables.ranges.len());
    let is_process_range = |id: ProcessRangeId| id.at() < tables.process_ranges.len();
    let check = |is_right: bool, table: &'static str| if is_right { Ok(()) } else { Err(table) };
    check(
        tables
            .labels
            .iter()
            .all(|label| [Some(label.name), label.domain, label.category].into_iter().all(is_name)),
        "labels",
    )?;
    let is_label = |id: crate::join::tables::LabelId| id.at() < tables.labels.len();
    let ranges = &mut (0..).map(RangeId).zip(&tables.ranges);
    check(
        ranges.all(|(id, range)| {
            let parent = range.parent.get();
            let is_outer = parent.is_none_or(|parent| {
                is_range(Some(parent)) && tables.order(parent) < tables.order(id)
            });
            is_label(range.label) && is_thread(range.thread) && is_outer
        }),
        "ranges",
    )?;
    check(
        tables.process_ranges.iter().all(|range| {
            let threads = is_thread(range.thread) && range.end_thread.is_none_or(is_thread);
            is_label(range.label) && threads && is_range(range.parent)
        }),
        "process_ranges",
    )?;
    let marks = &mut tables.marks.iter();
    check(
        marks.all(|mark| is_label(mark.label) && is_thread(mark.thread) && is_range(mark.parent)),
        "marks",
    )?;
    check(
        tables.details.iter().all(|(subject, details)| {
            let is_there = match *subject {
                Subject::Range(id) => is_range(Some(id)),
                Subject::ProcessRange(id) => is_process_range(id),
                Subject::Mark(id) => id.at() < tables.marks.len(),
            };
            let fields = &mut details.fields.iter();
            is_there
                && details.within.is_none_or(is_process_range)
                && fields.all(|field| {
                    is_name(Some(field.name))
                        && is_name(Some(field.unit))
                        && is_name(field.value.text())
                })
        }),
        "details",
    )?;
    check(
        tables.call_kinds.rows().iter().all(|kind| {
            is_name(Some(kind.name)) && kind.share.is_none_or(|id| id.at() < tables.shares.len())
        }),
        "call_kinds",
    )?;
    let mut shared = tables.shares.iter().flatten();
    check(shared.all(|id| is_range(Some(*id))), "shares")?;
    check(
        tables.calls.iter().all(|call| {
            call.kind.at() < tables.call_kinds.rows().len()
                && is_thread(call.thread)
                && is_range(call.range.get())
        }),
        "calls",
    )?;
    check(
        tables.works().iter().all(|work| match work.what {
            What::Kernel { names, .. } => {
                [Some(names.name), names.demangled, names.short].into_iter().all(is_name)
            }
            _ => true,
        }),
        "works",
    )?;
    check(
        tables.operations.iter().all(|operation| {
            operation.work.at() < tables.works().len() && is_range(operation.captured.get())
        }),
        "operations",
    )
}

#[cfg(test)]
mod tests {
    use cupti::CallClass;

    use super::*;
    use crate::join::tables::{Api, Call, CallKind, Interval, LabelId, Maybe, Range, Thread};

    /// One call in one range of one thread.
    fn rows(change: impl FnOnce(&mut Tables)) -> Result<Joined, Error> {
        let mut builder = Builder::new(RecordingInfo::default());
        let tables = builder.tables();
        tables.session.windows_ns = vec![(0, 100)];
        tables.threads.push(Thread { id: 1, process: 0, name: None, priority: None });
        let name = tables.names.intern("step");
        tables.labels.push(crate::join::tables::Label {
            name,
            domain: None,
            category: None,
            color: None,
        });
        let (thread, time) = (ThreadId(0), Interval { start_ns: 1, end_ns: 9 });
        let (label, parent, is_open) = (LabelId(0), Maybe::NONE, false);
        tables.ranges.push(Range { time, label, thread, parent, is_open });
        let kind = CallKind::new(name, Api::Driver, CallClass::KernelLaunch);
        let kind = tables.intern_call_kind(kind);
        let range = Some(RangeId(0)).into();
        tables.calls.push(Call { time, correlation_id: 1, kind, thread, range });
        change(tables);
        builder.finish()
    }

    #[test]
    fn rows_that_refer_to_no_row_are_refused() {
        assert!(rows(|_| ()).is_ok());
        type Change = fn(&mut Tables);
        let changes: [(Change, &str); 5] = [
            (|tables| tables.calls[0].thread = ThreadId(1), "calls"),
            (|tables| tables.calls[0].range = Some(RangeId(1)).into(), "calls"),
            (|tables| tables.ranges[0].label = LabelId(7), "ranges"),
            // A range is not within itself.
            (|tables| tables.ranges[0].parent = Some(RangeId(0)).into(), "ranges"),
            (
                |tables| {
                    let subject = Subject::ProcessRange(ProcessRangeId(0));
                    tables.details.insert(subject, crate::join::tables::Details::default());
                },
                "details",
            ),
        ];
        for (change, table) in changes {
            let error = rows(change).unwrap_err();
            let text = error.to_string();
            assert!(
                error.is_format() && text.contains(&format!("a row of {table} refers")),
                "{text}"
            );
        }
    }
}
