//! Time of kernel classes: of a profile, of a query, and by range.

use std::cell::RefCell;
use std::collections::BTreeMap;

use profiler_base::statistics::Statistics;
use profiler_base::units::nanoseconds as ns;
use rustc_hash::FxHashMap;

use super::{Classifier, KernelClass};
use crate::reports::{Report, Unit, row};
use profiler_core::profile::{GpuOperation, Kernel, OperationKind};
use profiler_core::query::{Groups, Query, RangePath};

row! {
    /// All kernels of one class.
    pub(crate) KernelClassSum = "kernel_classes" {
        /// The class.
        class: KernelClass,
        /// Percent of the time of all kernels in the query.
        time_percent: f64 => "Time" Percent,
        /// Number of kernels, including those without timestamps.
        instances: u64 => |row, cells| {
            cells.add("Total Time", Unit::Duration, ns(row.times.sum()));
            cells.add("Instances", Unit::Plain, row.instances)
        },
        /// Their GPU times; kernels without timestamps are left out.
        times: Statistics => |row, cells| {
            cells.add("Avg", Unit::Duration, ns(row.times.mean()));
            cells.add("Med", Unit::Duration, ns(row.times.median()));
            cells.add("Min", Unit::Duration, ns(row.times.min()));
            cells.add("Max", Unit::Duration, ns(row.times.max()));
            cells.add("Class", Unit::Plain, row.class.name())
        },
    }
}

row! {
    /// All kernels of one class launched in ranges of one path, without inner ranges.
    pub(crate) RangeClassSum = "kernel_classes_by_range" {
        /// The path, or `(outside any range)`.
        path: String => "Range" Plain,
        /// The class.
        class: KernelClass,
        /// Percent of the time of all kernels of this path.
        time_percent: f64 => "Time" Percent,
        /// Number of kernels, including those without timestamps.
        instances: u64,
        /// Sum of their GPU times.
        total_ns: u64 => |row, cells| {
            cells.add("Total Time", Unit::Duration, row.total_ns);
            cells.add("Instances", Unit::Plain, row.instances);
            cells.add("Class", Unit::Plain, row.class.name())
        },
    }
}

/// Classifies each name once.
pub(super) struct Classes<'c, 'a> {
    classifier: &'c Classifier,
    known: RefCell<FxHashMap<&'a str, KernelClass>>,
}

impl<'c, 'a> Classes<'c, 'a> {
    pub(super) fn new(classifier: &'c Classifier) -> Self {
        Self { classifier, known: RefCell::default() }
    }

    /// The class of a kernel by its name, or of a copy or memset by its kind.
    pub(super) fn class(&self, operation: &GpuOperation<'a>) -> KernelClass {
        match operation.as_kernel() {
            Some(kernel) => {
                let classify = || class(&kernel, self.classifier);
                *self.known.borrow_mut().entry(kernel.name()).or_insert_with(classify)
            }
            None => match operation.kind() {
                OperationKind::Copy => KernelClass::Copy,
                OperationKind::Memset => KernelClass::Memset,
                // A graph traced as one interval has no kernel names.
                OperationKind::Kernel | OperationKind::Graph => KernelClass::Other,
            },
        }
    }
}

/// [`QueryExt::by_kernel_class_with`](crate::prelude::QueryExt::by_kernel_class_with).
pub(crate) fn by_kernel_class(query: &Query<'_>, classifier: &Classifier) -> Groups<KernelClass> {
    let classes = Classes::new(classifier);
    query.group_by(|operation| Some(classes.class(operation)))
}

/// [`QueryExt::kernel_class_sums`](crate::prelude::QueryExt::kernel_class_sums).
pub(crate) fn kernel_class_sums(
    query: &Query<'_>,
    classifier: &Classifier,
) -> Report<KernelClassSum> {
    let mut left_out = 0;
    let groups = by_kernel_class(&query.clone().kernels(), classifier);
    let rows = groups.into_iter().map(|group| {
        left_out += group.count() - group.statistics().count();
        KernelClassSum {
            class: *group.key(),
            time_percent: 100.0 * group.share(),
            instances: group.count(),
            times: group.statistics().clone(),
        }
    });
    let rows = rows.collect();
    Report::new(rows, "no kernel was recorded").leaving_out(left_out)
}

/// [`QueryExt::range_class_sums`](crate::prelude::QueryExt::range_class_sums).
pub(crate) fn range_class_sums(
    query: &Query<'_>,
    classifier: &Classifier,
) -> Report<RangeClassSum> {
    let mut left_out = 0;
    let mut of_path: BTreeMap<String, Vec<RangeClassSum>> = BTreeMap::new();
    for group in by_range_and_class(&query.clone().kernels(), classifier) {
        left_out += group.count() - group.statistics().count();
        let path = group.key().0.to_string();
        of_path.entry(path.clone()).or_default().push(RangeClassSum {
            path,
            class: group.key().1,
            time_percent: 0.0,
            instances: group.count(),
            total_ns: ns(group.time()),
        });
    }
    for rows in of_path.values_mut() {
        let total = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.total_ns));
        for row in rows.iter_mut().filter(|_| total != 0) {
            row.time_percent = 100.0 * row.total_ns as f64 / total as f64;
        }
    }
    let rows = of_path.into_values().flatten().collect();
    Report::new(rows, "no kernel was recorded").leaving_out(left_out)
}

/// Groups operations by range, without inner ranges, and class.
fn by_range_and_class<'a>(
    query: &Query<'a>,
    classifier: &Classifier,
) -> Groups<(RangePath<'a>, KernelClass)> {
    let classes = Classes::new(classifier);
    query.group_by(|operation| {
        let class = classes.class(operation);
        Some((RangePath::from_operation(operation), class))
    })
}

/// [`KernelExt::class_with`](crate::prelude::KernelExt::class_with).
pub(crate) fn class(kernel: &Kernel<'_>, classifier: &Classifier) -> KernelClass {
    let shown = kernel.demangled_name();
    if kernel.is_collective() {
        let own = classifier.own_class(&shown).or_else(|| classifier.own_class(kernel.name()));
        return own.unwrap_or(KernelClass::Collective);
    }
    // A capture of nsys may contain the name for a rule in either form.
    match classifier.classify(&shown) {
        KernelClass::Other => classifier.classify(kernel.name()),
        class => class,
    }
}
