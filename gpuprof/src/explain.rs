//! `gpuprof explain`: all that is known of a kernel, on one screen.

use std::io::Write as _;

use profiler_analysis::kernels::KernelExplanation;
use profiler_analysis::prelude::*;
use profiler_base::text::printable;
use profiler_core::query::KernelName;

use crate::args::{ExplainArgs, OutputFormat as _};
use crate::failure::Failure;
use crate::{input, reports};

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let (output, is_for_people) = (args.io.output(&[])?, args.format.get().is_for_people());
    let file = &args.io.file;
    let profile = input::profile(file)?;
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
    let explained: Vec<KernelExplanation> = explained.collect();
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
