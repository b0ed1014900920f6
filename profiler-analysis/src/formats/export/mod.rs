//! Exports: lines of JSON, and formats of other tools.

mod args;
mod counters;
pub(crate) mod format;
mod json;
mod lanes;
mod protobuf;
mod timeline;
mod trace_events;

use profiler_base::text;
use serde::Serialize;

use crate::reports::{NodeTimes, TrackSum};
pub use format::Export;
use format::formats;
use profiler_core::Health;
use profiler_core::profile::Totals;
use profiler_core::profile::{Process, ProcessRangeGroup, Profile, Sampled, Track};
use profiler_core::series::Series;

formats! {
    /// Perfetto's protobuf (`TrackEvent`), for ui.perfetto.dev and its `trace_processor`. It
    /// contains ranges and API calls of each thread, process ranges, marks, the operations of each
    /// stream, arrows from calls to operations, and counters. Counters are submitted and unfinished
    /// operations, copy bandwidth, device memory if CUPTI recorded allocations (`MEMORY2`), and
    /// [samples](Profile::tracks). The smallest timeline format, with the most information.
    perfetto => Perfetto, "a Perfetto trace", "pftrace", [Samples],
        "Perfetto's protobuf, for ui.perfetto.dev: the one with everything";
    /// The JSON of `torch.profiler` (Kineto's schema), for HolisticTraceAnalysis, TensorBoard and
    /// Perfetto. Ranges are `user_annotation`, and also `gpu_user_annotation` from the first start
    /// to the last end of their work on each stream. Calls are `cuda_driver` or `cuda_runtime`.
    /// Samples are counters (`C`).
    kineto => Kineto, "a Kineto trace", "pt.trace.json", [Samples, Rank, Text],
        "The JSON of torch.profiler, for HolisticTraceAnalysis and TensorBoard";
    /// Chrome's trace-event JSON, for `chrome://tracing`, Perfetto, speedscope and scripts.
    chrome => Chrome, "a Chrome trace", "trace.json", [Samples, Text],
        "Chrome's trace-event JSON";
    /// Folded stacks for flame graphs (inferno, flamegraph.pl, speedscope): a line for each path
    /// and kernel with its GPU time in nanoseconds, `batch;forward;gemm 4200`. In names `;` becomes
    /// `:`, and a line break becomes a space. Paths with more than 128 ranges are shortened to the
    /// first and last 64 and the number between them, after such paths have used 100,000 names.
    folded => Folded, "folded stacks", "folded", [Stacks, Text],
        "Folded stacks, for flame graphs";
    /// pprof's `profile.proto`, compressed with gzip, for `go tool pprof`, Pyroscope, Parca,
    /// Grafana and speedscope: a sample for each [stack](crate::formats::stacks) with GPU time,
    /// operations and bytes. Functions have the kind of their frame as file name, so that `pprof
    /// -files` sums by kind. Comments describe the recording and its losses. Needs the feature
    /// `pprof`.
    pprof => Pprof if "pprof", "a pprof profile", "pb.gz", [Stacks],
        "pprof's profile.proto, for go tool pprof, Pyroscope, Parca, Grafana and speedscope";
    /// OpenTelemetry's profiles (OTLP `v1development`), in protobuf: a `ProfilesData`, which is
    /// also the body of a request to `/v1development/profiles`. It has a profile for each weight of
    /// the [stacks](crate::formats::stacks). Locations have the attribute `gpu.frame.kind`. The
    /// signal is in development; the crate `opentelemetry-proto` determines the version. Needs the
    /// feature `otlp`.
    otlp => Otlp if "otlp", "an OTLP profile", "otlp", [Stacks],
        "OpenTelemetry's profiles (v1development), for collectors";
    /// The Firefox Profiler's JSON, for profiler.firefox.com. Ranges, API calls and marks are
    /// markers of their host threads. Devices are processes, and streams are threads with the
    /// operations as markers. Each operation is a sample of its stream and of the thread that
    /// submitted it, with the range path as stack. The weight of a sample counts nanoseconds of GPU
    /// time, or a larger unit if an operation needs it. Idle time and instruction samples are the
    /// samples of the threads that submitted the work, without times. Needs the feature `firefox`.
    firefox => Firefox if "firefox", "a Firefox profile", "firefox.json", [Stacks, Text],
        "The Firefox Profiler's JSON, for profiler.firefox.com";
}

/// The process id for a program with unknown id; ids of devices follow it.
const HOST: u64 = 1_000_000;

/// [`ProfileExt::json_lines`](crate::prelude::ProfileExt::json_lines).
pub(crate) fn json_lines(profile: &Profile) -> String {
    let mut lines = String::new();
    let mut add = |line: Result<String, _>| {
        // Serialization of numbers and strings cannot fail.
        let _: Result<(), serde_json::Error> = line.map(|line| lines.push_str(&(line + "\n")));
    };
    let tracks: Vec<Track<'_>> = profile.tracks().filter(|track| !track.is_empty()).collect();
    let times = (!tracks.is_empty()).then(|| NodeTimes::new(profile, &tracks));
    let sampled = |(row, mean): (usize, Sampled)| SampledPart {
        device: tracks[row].device(),
        name: tracks[row].name(),
        mean: mean.value,
        samples: mean.samples,
        covered_ns: timeline::ns(mean.covered),
    };
    for node in profile.nodes() {
        add(text::json(&RangeLine {
            path: node.cut_path(),
            parent: node.parent().map(|parent| parent.id().0),
            instances: node.instances(),
            host_ns: node.host_time().as_nanos() as u64,
            inclusive: node.inclusive(),
            exclusive: node.exclusive(),
            replayed: known(node.replayed()),
            shared: known(node.shared()),
            inferred: known(node.inferred()),
            sampled: match &times {
                Some(times) => times.means(&node, &tracks).map(sampled).collect(),
                None => Vec::new(),
            },
        }));
    }
    add(text::json(&LastLine {
        path: "",
        inclusive: profile.totals(),
        exclusive: profile.outside_ranges(),
        complete: profile.health().is_complete(),
        health: profile.health(),
        tracks: crate::reports::tracks::track_sums(profile).into_rows(),
        samplers: profile.series().map(Series::head).collect(),
        processes: process_parts(profile),
        process_ranges: profile.process_range_groups().iter().map(ProcessRangeLine::new).collect(),
    }));
    lines
}

#[derive(Serialize)]
struct RangeLine<'a> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    instances: u64,
    host_ns: u64,
    inclusive: Totals,
    exclusive: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inferred: Option<Totals>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampled: Vec<SampledPart<'a>>,
}

/// Samples while the work of a range was on the device.
#[derive(Serialize)]
struct SampledPart<'a> {
    device: u32,
    name: &'a str,
    mean: f64,
    samples: usize,
    covered_ns: u64,
}

/// Totals, if there are any.
fn known(totals: Totals) -> Option<Totals> {
    (totals != Totals::default()).then_some(totals)
}

#[derive(Serialize)]
struct LastLine<'a, S> {
    path: &'static str,
    inclusive: Totals,
    exclusive: Totals,
    complete: bool,
    health: &'a Health,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tracks: Vec<TrackSum>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samplers: Vec<S>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<ProcessPart<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    process_ranges: Vec<ProcessRangeLine<'a>>,
}

/// The process ranges of one name.
#[derive(Serialize)]
struct ProcessRangeLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<&'a str>,
    instances: u64,
    open: u64,
    host_ns: u64,
    by_time: bool,
    inclusive: Totals,
}

impl<'a> ProcessRangeLine<'a> {
    fn new(group: &ProcessRangeGroup<'a>) -> Self {
        Self {
            name: group.name(),
            domain: group.domain(),
            instances: group.instances(),
            open: group.open(),
            host_ns: timeline::ns(group.host_time()),
            by_time: group.is_by_time(),
            inclusive: group.inclusive(),
        }
    }
}

#[derive(Serialize)]
struct ProcessPart<'a> {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    start_ns: u64,
    duration_ns: u64,
    totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<&'a Health>,
}

fn process_parts<'a>(profile: &'a Profile) -> Vec<ProcessPart<'a>> {
    let totals = profile.totals_by_process();
    let part = |process: Process<'a>| ProcessPart {
        id: process.id(),
        name: process.name(),
        rank: process.rank(),
        start_ns: timeline::ns(process.start()),
        duration_ns: timeline::ns(process.duration()),
        totals: totals.get(&process.id()).copied().unwrap_or_default(),
        complete: process.health().map(Health::is_complete),
        health: process.health(),
    };
    profile.processes().map(part).collect()
}
