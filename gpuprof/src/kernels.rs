//! `kernels` and `tensor-cores`: what kernels are, by their names and launches.

use profiler_core::kernels::{Classifier, KernelClass, TcStatus};
use profiler_core::reports::AnyReport;

use crate::args::{KernelsArgs, TableFormat, TensorCoresArgs};
use crate::failure::Failure;
use crate::{input, note_losses, tables};

pub(crate) fn kernels(args: KernelsArgs) -> Result<(), Failure> {
    let output = args.io.output(&[])?;
    let profile = input::profile(&args.io.file)?;
    note_losses(&args.io.file, &profile);
    let mut query = profile.query().kernels();
    if let Some(path) = args.within.as_deref() {
        if profile.range(path).is_none() {
            return Err(Failure::Error(format!(
                "{} has no range {path:?} for --within: `gpuprof report` shows those it has",
                args.io.file.display()
            )));
        }
        query = query.in_range(path);
    }
    let classifier = classifier(args.classes);
    let classes = query.kernel_class_sums(&classifier);
    let by_range = args.by_range.then(|| query.range_class_sums(&classifier));
    let shapes = query.launch_shapes_with(&classifier);
    output.write(|out| match args.format {
        TableFormat::Table => {
            writeln!(out, "{classes}\n")?;
            if let Some(by_range) = by_range {
                writeln!(out, "{by_range:#}\n")?;
            }
            Ok(writeln!(out, "{shapes:#}")?)
        }
        format => {
            let mut reports = vec![classes.into()];
            reports.extend(by_range.map(AnyReport::from));
            reports.push(shapes.report().clone().into());
            tables::write(out, format, named(reports))
        }
    })
}

pub(crate) fn tensor_cores(args: TensorCoresArgs) -> Result<(), Failure> {
    let output = args.io.output(&[])?;
    let profile = input::profile(&args.io.file)?;
    note_losses(&args.io.file, &profile);
    let says = |classifier: Classifier, name: &String| classifier.tensor_cores(name, true);
    let classifier = args.using.iter().fold(classifier(args.classes), says);
    let tensor_cores = profile.tensor_cores_with(&classifier);
    output.write(|out| match args.format {
        TableFormat::Table => Ok(writeln!(out, "{tensor_cores:#}")?),
        format => {
            let ops = tensor_cores.ops().clone().into();
            let kernels = tensor_cores.kernels().clone().into();
            let groups = tensor_cores.groups().clone().into();
            tables::write(out, format, named(vec![ops, kernels, groups]))
        }
    })?;
    let unused = tensor_cores.ops().rows().iter();
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

fn classifier(rules: Vec<(String, KernelClass)>) -> Classifier {
    let add = |classifier: Classifier, (name, class): (String, _)| classifier.rule(&name, class);
    rules.into_iter().fold(Classifier::new(), add)
}

fn named(
    reports: Vec<AnyReport>,
) -> impl ExactSizeIterator<Item = (String, AnyReport, Option<&'static str>)> {
    reports.into_iter().map(|report| (report.name().to_owned(), report, None))
}
