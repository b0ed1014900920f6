//! Exports: counts to compare, lines of JSON, and formats of other tools.

mod args;
mod counters;
mod format;
mod json;
mod lanes;
mod protobuf;
mod timeline;
mod trace_events;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use profiler_base::text::{self, printable};
use serde::Serialize;

use crate::join::health::Health;
use crate::join::range_tree::NodeId;
use crate::join::totals::Totals;
use crate::profile::{Process, ProcessRangeGroup, Profile, Range, RangeNode, Sampled, Track};
use crate::record::series::Head;
use crate::reports::{NodeTimes, TrackSum};
pub use format::Export;
use format::formats;

formats! {
    /// Perfetto's protobuf (`TrackEvent`), for ui.perfetto.dev and its `trace_processor`: ranges
    /// and API calls of each thread, process ranges, marks, the operations of each stream, arrows
    /// from calls to operations, and counters: operations submitted and not finished, copy
    /// bandwidth, device memory if CUPTI recorded allocations (`MEMORY2`), and
    /// [samples](Profile::tracks). The smallest timeline format, with the most information.
    perfetto => Perfetto,
    /// The JSON of `torch.profiler` (Kineto's schema), for HolisticTraceAnalysis, TensorBoard and
    /// Perfetto. Ranges are `user_annotation`, and also `gpu_user_annotation` from the first start
    /// to the last end of their work on each stream. Calls are `cuda_driver` or `cuda_runtime`.
    /// Samples are counters (`C`).
    kineto => Kineto,
    /// Chrome's trace-event JSON, for `chrome://tracing`, Perfetto, speedscope and scripts.
    chrome => Chrome,
    /// Folded stacks for flame graphs (inferno, flamegraph.pl, speedscope): a line for each path
    /// and kernel with its GPU time in nanoseconds, `batch;forward;gemm 4200`. In names `;` becomes
    /// `:`, and a line break a space. Paths with more than 128 ranges are shortened to the first
    /// and last 64 and the number between them, after such paths have used 100,000 names.
    folded => Folded,
    /// pprof's `profile.proto`, compressed with gzip, for `go tool pprof`, Pyroscope, Parca, Grafana
    /// and speedscope: a sample for each [stack](crate::formats::stacks) with GPU time, operations
    /// and bytes. Functions have the kind of their frame as file name, so that
    /// `pprof -files` sums by kind. Comments contain the recording and what is missing.
    /// Needs the feature `pprof`.
    pprof => Pprof if "pprof",
    /// OpenTelemetry's profiles (OTLP `v1development`), in protobuf: a `ProfilesData`, which is also
    /// the body of a request to `/v1development/profiles`. A profile for each weight of the
    /// [stacks](crate::formats::stacks). Locations have the attribute `gpu.frame.kind`. The
    /// signal is in development; the version is that of the crate `opentelemetry-proto`. Needs the
    /// feature `otlp`.
    otlp => Otlp if "otlp",
    /// The Firefox Profiler's JSON, for profiler.firefox.com: ranges, API calls and marks as markers
    /// of their host threads; devices as processes and streams as threads with the operations
    /// as markers. Each operation is a sample of its stream and of the thread that submitted it,
    /// with the range path as stack: a sample is a nanosecond of GPU time. Needs the feature
    /// `firefox`.
    firefox => Firefox if "firefox",
}

/// The process id for a program with unknown id; ids of devices follow it.
const HOST: u64 = 1_000_000;

/// Operations and calls of the ranges of a node, by name.
type Names = BTreeMap<Option<NodeId>, BTreeMap<String, u64>>;

impl Profile {
    /// Names and counts of every range, without times: the same text whenever the program does the
    /// same, for comparison with a file or by `insta`.
    ///
    /// Each range has a line with its exclusive counts and its [shared](RangeNode::shared) work,
    /// then its kernels, copies and calls by name, then the ranges within it, sorted by name
    /// regardless of threads. Ranges deeper than 64 are indented like the 64th and preceded by
    /// their depth: `… 70: 1 x name`. Kernel names are those of the report; libraries may choose
    /// kernels by GPU. The last line states whether anything was lost.
    pub fn counts(&self) -> String {
        let mut names = Names::new();
        let mut add = |range: Option<Range<'_>>, what: String| {
            let node = range.map(|range| range.node().id);
            *names.entry(node).or_default().entry(what).or_default() += 1;
        };
        for operation in self.operations() {
            let range = operation.range();
            if let Some(kernel) = operation.as_kernel() {
                add(range, format!("kernel {}", kernel.demangled_name()));
            } else if let Some(copy) = operation.as_copy() {
                let (kind, details) = (copy.kind(), copy.details());
                add(range, format!("copy {kind}, {} to {}", details.source, details.destination));
            }
        }
        for call in self.calls() {
            add(call.range(), call.name().to_owned());
        }

        let mut out = String::new();
        // The next node is the last. Nesting may exceed any stack.
        let mut nodes = by_name_backwards(self.roots(), 0);
        while let Some((node, depth)) = nodes.pop() {
            add_node(&mut out, &node, depth, &names);
            nodes.extend(by_name_backwards(node.children(), depth + 1));
        }
        let outside = self.outside_ranges();
        if outside != Totals::default() || names.contains_key(&None) {
            let _ = writeln!(out, "(outside any range): {}", counts(&outside));
            add_names(&mut out, 0, names.get(&None));
        }
        let state = if self.health().is_complete() { "complete" } else { "INCOMPLETE" };
        out + state + "\n"
    }

    /// One JSON object a line, for scripts: every range by path, parents first, and then
    /// everything.
    ///
    /// A range has `path`, `parent` (the line of the parent range, counted from 0; absent for an
    /// outermost range), `instances`, `host_ns`, `inclusive` and `exclusive` with the fields of
    /// [`Totals`], and `shared` if there is [shared work](crate::profile::RangeSummary::shared). A
    /// path of more than 128 names is shortened to the first and last 64 and the number between
    /// them: `…(7 more)…`. The last line has an empty path, everything outside ranges in
    /// `exclusive`, and `complete` and `health` with the fields of [`Health`].
    ///
    /// With [samples](Self::tracks), a range has `sampled`: for each track with samples while its
    /// inclusive work was on the device `device`, `name`, `mean` (of totals the rate per second),
    /// `samples` and `covered_ns`. With process ranges, the last line has `process_ranges`: for each
    /// name `instances`, `open`, `host_ns` and `inclusive`, which is
    /// [by time](crate::profile::ProcessRangeGroup::is_by_time) if `by_time`. It also has `tracks` with the fields of [`TrackSum`], and
    /// `samplers` with each sampler's metrics, losses and failure.
    ///
    /// A range has `replayed` ([`replayed`](crate::profile::RangeSummary::replayed)) and `inferred`
    /// ([`inferred`](crate::profile::RangeSummary::inferred)) if there are any.
    ///
    /// Of several processes, the last line has `processes`: `id`, `name`, `rank`, the window of its
    /// own recording, `totals`, `complete` and `health`.
    pub fn json_lines(&self) -> String {
        let mut lines = String::new();
        let mut add = |line: Result<String, _>| {
            // Serialization of numbers and strings cannot fail.
            let _: Result<(), serde_json::Error> = line.map(|line| lines.push_str(&(line + "\n")));
        };
        let tracks: Vec<Track<'_>> = self.tracks().filter(|track| !track.is_empty()).collect();
        let times = (!tracks.is_empty()).then(|| NodeTimes::of(self, &tracks));
        let sampled = |(row, mean): (usize, Sampled)| SampledPart {
            device: tracks[row].device(),
            name: tracks[row].name(),
            mean: mean.value,
            samples: mean.samples,
            covered_ns: timeline::ns(mean.covered),
        };
        for node in self.nodes() {
            add(text::json(&RangeLine {
                path: node.cut_path(),
                parent: node.parent().map(|parent| parent.id.0),
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
            inclusive: self.totals(),
            exclusive: self.outside_ranges(),
            complete: self.health().is_complete(),
            health: self.health(),
            tracks: self.track_sums().into_rows(),
            samplers: self.series().map(|series| &series.head).collect(),
            processes: process_parts(self),
            process_ranges: self.process_range_groups().iter().map(ProcessRangeLine::new).collect(),
        }));
        lines
    }
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
struct LastLine<'a> {
    path: &'static str,
    inclusive: Totals,
    exclusive: Totals,
    complete: bool,
    health: &'a Health,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tracks: Vec<TrackSum>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samplers: Vec<&'a Head>,
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

fn by_name_backwards<'a>(
    nodes: impl Iterator<Item = RangeNode<'a>>,
    depth: usize,
) -> Vec<(RangeNode<'a>, usize)> {
    let mut nodes: Vec<_> = nodes.map(|node| (node, depth)).collect();
    nodes.sort_by_key(|(node, _)| Reverse((node.name(), node.domain())));
    nodes
}

fn add_node(text: &mut String, node: &RangeNode<'_>, depth: usize, names: &Names) {
    let indent = indent(depth);
    let counts = counts(&node.exclusive());
    let domain = node.domain().map(|domain| format!(" (domain {})", printable(domain)));
    let domain = domain.unwrap_or_default();
    let shared = known(node.shared()).map(|shared| format!("; shared: {}", self::counts(&shared)));
    let (instances, name) = (node.instances(), printable(node.name()));
    let shared = shared.unwrap_or_default();
    let _ = writeln!(text, "{indent}{instances} x {name}{domain}: {counts}{shared}");
    add_names(text, depth, names.get(&Some(node.id)));
}

/// Maximum indentation: recursions may be arbitrarily deep.
const INDENTED: usize = 64;

fn indent(depth: usize) -> String {
    let spaces = "  ".repeat(depth.min(INDENTED));
    if depth > INDENTED { format!("{spaces}… {depth}: ") } else { spaces }
}

fn add_names(text: &mut String, depth: usize, names: Option<&BTreeMap<String, u64>>) {
    let indent = indent(depth);
    for (name, count) in names.into_iter().flatten() {
        let _ = writeln!(text, "{indent}  - {count} x {}", printable(name));
    }
}

fn counts(totals: &Totals) -> String {
    let counts: Vec<String> = [
        ("launches", totals.launches),
        ("kernels", totals.kernels),
        ("copies", totals.copies),
        ("bytes copied", totals.copy_bytes),
        ("memsets", totals.memsets),
        ("bytes set", totals.memset_bytes),
        ("graphs traced as a whole", totals.graphs),
        ("synchronisations", totals.synchronizations),
        ("allocations", totals.allocations),
        ("frees", totals.frees),
        ("failed calls", totals.failed_calls),
    ]
    .into_iter()
    .filter(|(_, count)| *count != 0)
    .map(|(name, count)| format!("{count} {name}"))
    .collect();
    if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
}
