//! `ranks`: reports which ranks wait for which in collectives.

use std::io::{self, Write};
use std::time::Duration;

use profiler_analysis::prelude::*;
use profiler_base::text::csv_cell;
use profiler_core::Profile;
use profiler_core::profile::Collective;

use crate::args::{OutputFormat as _, RanksArgs, RanksFormat};
use crate::failure::Failure;
use crate::message::note;
use crate::output::write_json;
use crate::{input, suggest};

pub(crate) fn ranks(args: RanksArgs) -> Result<(), Failure> {
    let (output, format) = (args.io.output(&[])?, args.format.get());
    let profile = input::profile(&args.io.file)?;
    if profile.collectives().len() == 0 {
        note(&format!(
            "{} has no collective of NCCL: record all ranks with `gpuprof run -- torchrun ...`",
            args.io.file.display()
        ));
    }
    if args.range.is_some() && format == RanksFormat::Csv {
        return Err(Failure::Usage(
            "--range adds stragglers to the report: leave out --format csv, which has a line for each collective"
                .to_owned(),
        ));
    }
    if format == RanksFormat::Csv {
        return output.write_in(false, |out| Ok(write_csv(out, &profile)?));
    }
    let report = match &args.range {
        Some(path) => profile
            .ranks_by_range(path)
            .ok_or_else(|| suggest::no_range(&args.io.file, &profile, path))?,
        None => profile.ranks(),
    };
    output.write_in(format.is_for_people(), |out| match format {
        RanksFormat::Json => write_json(out, &report),
        _ => out.show(&report),
    })
}

const HEADER: &str = "process,thread,rank,ranks,communicator,function,sequence,bytes,datatype,algorithm,protocol,channels,\
other_rank,range,enqueued_ns,device,start_ns,end_ns,in_kernel,source";

/// Writes a line for each collective of each rank.
fn write_csv(mut out: impl Write, profile: &Profile) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    for one in profile.collectives() {
        writeln!(out, "{}", line(&one))?;
    }
    Ok(())
}

fn line(one: &Collective<'_>) -> String {
    fn number<N: ToString>(number: Option<N>) -> String {
        number.map_or_else(String::new, |number| number.to_string())
    }
    let text = |text: Option<&str>| csv_cell(text.unwrap_or_default());
    let ns = |time: Duration| time.as_nanos();
    let kernel = one.kernel();
    let range = one.range().map(|range| range.node().path());
    [
        one.process_id().to_string(),
        one.thread_id().to_string(),
        number(one.rank()),
        number(one.ranks()),
        format!("{:016x}", one.communicator()),
        csv_cell(one.function_name()),
        one.sequence().to_string(),
        number(one.bytes()),
        text(one.datatype()),
        text(one.algorithm()),
        text(one.protocol()),
        number(one.channels()),
        number(one.other_rank()),
        text(range.as_deref()),
        ns(one.at()).to_string(),
        number(kernel.map(|kernel| kernel.device())),
        number(kernel.and_then(|kernel| kernel.start()).map(ns)),
        number(kernel.and_then(|kernel| kernel.end()).map(ns)),
        one.in_kernel().to_string(),
        if one.is_from_plugin() { "plugin" } else { "nvtx" }.to_owned(),
    ]
    .join(",")
}
