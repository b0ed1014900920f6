//! `kernels` and `tensor-cores`: list kernels by name and by launch.

use std::io::Write as _;
use std::path::Path;

use profiler_analysis::kernels::{Classifier, KernelClass, LaunchShapes, TcStatus};
use profiler_analysis::prelude::*;
use profiler_analysis::reports::AnyReport;
use profiler_core::Profile;

use crate::args::{KernelsArgs, OutputFormat as _, TableFormat, TensorCoresArgs};
use crate::failure::Failure;
use crate::reports;
use crate::terminal::Text;

/// The tables of kernels: by class, by class in each range, and by launch shape.
pub(crate) struct KernelTables {
    classes: AnyReport,
    by_range: Option<AnyReport>,
    shapes: LaunchShapes,
}

impl KernelTables {
    /// The tables of the kernels in these ranges; without ranges, of all.
    pub(crate) fn new(
        file: &Path,
        profile: &Profile,
        within: Option<&str>,
        classifier: &Classifier,
        by_range: bool,
    ) -> Result<Self, Failure> {
        let mut query = profile.query().kernels();
        if let Some(path) = within {
            reports::check_within(file, profile, path)?;
            query = query.in_range(path);
        }
        Ok(Self {
            classes: query.kernel_class_sums(classifier),
            by_range: by_range.then(|| query.range_class_sums(classifier)),
            shapes: query.launch_shapes_with(classifier),
        })
    }

    pub(crate) fn write(self, out: &mut Text<'_>, format: TableFormat) -> Result<(), Failure> {
        let reports = [self.classes].into_iter().chain(self.by_range);
        let reports = reports.chain([self.shapes.report()]).collect();
        reports::write(out, format, named(reports))
    }
}

pub(crate) fn kernels(args: KernelsArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let (file, within) = (&args.io.file, args.within.as_deref());
    let tables =
        KernelTables::new(file, &profile, within, &classifier(args.classes), args.by_range)?;
    output.write_in(format.is_for_people(), |out| match format {
        TableFormat::Table => {
            out.show(&tables.classes)?;
            writeln!(out)?;
            if let Some(by_range) = &tables.by_range {
                out.show_all(by_range)?;
                writeln!(out)?;
            }
            out.show_rows(&tables.shapes, args.limit)?;
            hint_at_limit(out, args.limit, tables.shapes.rows().len())
        }
        format => tables.write(out, format),
    })
}

pub(crate) fn tensor_cores(args: TensorCoresArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let with_name = |classifier: Classifier, name: &String| classifier.tensor_cores(name, true);
    let classifier = args.using.iter().fold(classifier(args.classes), with_name);
    let tensor_cores = profile.tensor_cores_with(&classifier);
    output.write_in(format.is_for_people(), |out| match format {
        TableFormat::Table => {
            out.show_rows(&tensor_cores, args.limit)?;
            let rows = tensor_cores.reports().iter().map(|report| report.len()).max();
            hint_at_limit(out, args.limit, rows.unwrap_or(0))
        }
        format => reports::write(out, format, named(tensor_cores.reports().into())),
    })?;
    let unused = tensor_cores.ops().iter();
    let unused = unused.filter(|op| op.status == TcStatus::EligibleNotUsing);
    let paths: Vec<&str> = unused.map(|op| op.path.as_str()).collect();
    match paths.first() {
        Some(first) if args.fail_if_unused => Err(Failure::Gate(format!(
            "--fail-if-unused: {} operations could use tensor cores and do not, {first} first",
            paths.len()
        ))),
        _ => Ok(()),
    }
}

/// Prints how to show the rows that the limit omitted from the longest table.
fn hint_at_limit(out: &mut Text<'_>, limit: usize, rows: usize) -> Result<(), Failure> {
    match limit {
        0 => Ok(()),
        limit if rows <= limit => Ok(()),
        _ => Ok(writeln!(out, "\n(--limit 0 shows all rows)")?),
    }
}

fn classifier(rules: Vec<(String, KernelClass)>) -> Classifier {
    let add = |classifier: Classifier, (name, class): (String, _)| classifier.rule(&name, class);
    rules.into_iter().fold(Classifier::new(), add)
}

fn named(
    reports: Vec<AnyReport>,
) -> impl ExactSizeIterator<Item = (String, AnyReport, Option<&'static str>)> {
    reports.into_iter().map(|report| (report.name().to_owned(), report, None))
}
