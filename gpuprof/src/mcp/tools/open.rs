//! `open`: what a file is, and which tools have data in it.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use profiler_base::units::nanoseconds as ns;
use profiler_core::Profile;
use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

use super::{Answer, PageArgs, Recordings, Tool};
use crate::failure::Failure;
use crate::input;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    /// A recording (.gpuprof), a folder of recordings such as that of `gpuprof run`, an SQLite capture of nsys, or a trace of
    /// torch.profiler
    file: PathBuf,
}

/// The description of a file.
#[derive(Serialize)]
struct Description {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_at: Option<String>,
    duration_ns: u64,
    devices: Vec<Device>,
    processes: Vec<Process>,
    kernels: u64,
    copies: u64,
    memsets: u64,
    graphs: u64,
    calls: usize,
    /// Paths of ranges, and how often they were entered.
    ranges: usize,
    range_instances: usize,
    outermost_ranges: Vec<String>,
    tools: Vec<Available>,
}

#[derive(Serialize)]
struct Device {
    id: u32,
    name: String,
}

#[derive(Serialize)]
struct Process {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
}

/// A tool and whether the file has its data.
#[derive(Serialize)]
struct Available {
    tool: &'static str,
    has_data: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'static str>,
}

impl Available {
    fn new(tool: &'static str, has_data: bool, missing: &'static str) -> Self {
        Self { tool, has_data, missing: (!has_data).then_some(missing) }
    }
}

impl Description {
    fn new(kind: &'static str, profile: &Profile) -> Self {
        let (totals, info) = (profile.totals(), profile.recording_info());
        let started = profile
            .started_at()
            .or_else(|| Some(UNIX_EPOCH + Duration::from_secs(info.recorded_at_s?)));
        let devices = info.devices.iter();
        let processes = profile.processes().map(|process| Process {
            id: process.id(),
            name: process.name().map(str::to_owned),
            rank: process.rank(),
        });
        let has_samples = profile.instruction_counts().is_some();
        let has_work = totals.gpu_operations() != 0;
        let none = "no GPU work was recorded";
        Self {
            kind,
            recorded_at: started.map(|at| humantime::format_rfc3339_seconds(at).to_string()),
            duration_ns: ns(profile.duration()),
            devices: devices
                .map(|device| Device { id: device.id, name: device.name.clone() })
                .collect(),
            processes: processes.collect(),
            kernels: totals.kernels,
            copies: totals.copies,
            memsets: totals.memsets,
            graphs: totals.graphs,
            calls: profile.calls().count(),
            ranges: profile.nodes().count(),
            range_instances: profile.ranges().count(),
            outermost_ranges: profile.roots().map(|node| node.path()).collect(),
            tools: vec![
                Available::new("summary", has_work, none),
                Available::new("diagnose", has_work, none),
                Available::new("kernels", totals.kernels != 0, "no kernel was recorded"),
                Available::new(
                    "lines",
                    has_samples,
                    "no instruction samples: record with `gpuprof run --lines`",
                ),
                Available::new("compare", has_work, none),
                Available::new("sql", true, none),
            ],
        }
    }
}

impl Tool for Open {
    const NAME: &'static str = "open";
    const ABOUT: &'static str = "Describes a GPU profile: its kind, time, devices, processes and ranks, whether it is \
                                 complete, how much it has, and which tools have data. Record one in the shell: `gpuprof \
                                 run -o FOLDER -- PROGRAM`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        let profile = recordings.profile(&self.file)?;
        let description = Description::new(input::kind(&self.file)?.name(), &profile);
        Answer::new(&self.file, &profile, &description)
    }
}
