//! `gpuprof explain`: all that is known of a kernel, on one screen.

use std::io::Write as _;
use std::path::Path;

use profiler_analysis::counters::CountedKernels;
use profiler_analysis::explanation::KernelExplanation;
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::{CountedRoofline, Peaks};
use profiler_base::text::printable;
use profiler_core::Profile;
use profiler_core::query::KernelName;

use crate::args::{ExplainArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::roofline::read_counted;
use crate::{input, reports};

/// The counted kernels of the profile under the roofs of its device.
fn counted_roofline(file: &Path, profile: &Profile) -> Result<CountedRoofline, Failure> {
    let kernels = CountedKernels::new(profile, read_counted(file)?)
        .map_err(|error| Failure::Error(format!("{}: {error}", file.display())))?;
    let peaks = profile.peaks(None).unwrap_or_else(|| Peaks::new("unknown device"));
    Ok(kernels.roofline(&peaks))
}

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let is_for_people = args.format.get().is_for_people();
    let output = args.io.output(&[&args.counted])?;
    let file = &args.io.file;
    let profile = input::profile(file)?;
    let counted =
        args.counted.as_deref().map(|file| counted_roofline(file, &profile)).transpose()?;
    let mut query = profile.query().kernels();
    if let Some(path) = args.range.as_deref() {
        reports::check_within(file, &profile, path)?;
        query = query.in_range(path);
    }
    let groups = query.by_kernel();
    let is_meant = |name: &KernelName<'_>| {
        args.kernel.is_match(&name.to_string()) || args.kernel.is_match(name.as_str())
    };
    let names: Vec<KernelName<'_>> =
        groups.iter().map(|group| *group.key()).filter(|name| is_meant(name)).collect();
    let explained = names.iter().take(args.limit).filter_map(|name| {
        let mangled = name.as_str();
        let of_name = move |operation: &profiler_core::profile::GpuOperation<'_>| {
            operation.as_kernel().is_some_and(|kernel| kernel.name() == mangled)
        };
        query.clone().filter(of_name).explanation()
    });
    let with_counted = |explained: KernelExplanation| match &counted {
        Some(counted) => explained.with_counted(counted),
        None => explained,
    };
    let explained: Vec<KernelExplanation> = explained.map(with_counted).collect();
    if explained.is_empty() {
        let others: Vec<String> =
            groups.iter().take(8).map(|group| group.key().to_string()).collect();
        return Err(Failure::Error(format!(
            "no kernel matches {}; the longest are: {}",
            printable(args.kernel.as_str()),
            others.join(", ")
        )));
    }
    let text = |out: &mut crate::terminal::Text<'_>| {
        explained.iter().try_for_each(|of| out.show(of))?;
        match names.len() - explained.len() {
            0 => Ok(()),
            more => Ok(writeln!(out, "\n({more} other kernels match: --limit shows more)")?),
        }
    };
    output.text_or_json(is_for_people, text, &explained)
}
