//! The page's data as JSON: tables in columns, names stored once, times as differences.

use std::time::Duration;

use cupti::{CallClass, CopyKind};
use profiler_base::distinct::{Distinct, Texts};
use profiler_base::units::nanoseconds as ns;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::findings::Finding;
use super::lines::{LineRow, lines};
use super::names::{NameRow, strings};
use super::pauses::pauses;
use super::ranks::Collectives;
use super::statistics::{Busy, ByName, Row};
use super::tracks::{Mean, SamplerPart, Times, TrackPart, Tracks};
use crate::analyze::diagnosis::{Clock, Part};
use crate::analyze::scorecard::{Score, Scorecard};
use profiler_core::Health;
use profiler_core::profile::Account;
use profiler_core::profile::Totals;
use profiler_core::profile::{ApiCall, GpuOperation, Process, Profile, Range, RangeNode};
use profiler_core::profile::{DeviceInfo, RecordingInfo};

/// A missing time: no timestamp, or a call that has not returned.
const UNKNOWN: i64 = -1;

/// The page's data. Rows refer to each other by index; a column of references contains the index
/// plus one, or 0 for none. Columns `*_delta` contain differences to the previous value.
#[derive(Serialize)]
pub(super) struct Data<'a> {
    what: String,
    info: &'a RecordingInfo,
    date: Option<String>,
    duration_ns: u64,
    /// A message about crossing ranges, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    crossings: Option<String>,
    /// The denominator of busy shares: the clock of the diagnosis, the mean over devices.
    clock_ns: u64,
    /// The names of the parts of the clock.
    parts: Vec<PartName>,
    /// The clock of each device, divided like in the diagnosis.
    clock: Vec<ClockPart>,
    /// The start and end of each pause.
    pauses_ns: Vec<(u64, u64)>,
    totals: Totals,
    outside: Totals,
    health: HealthPart<'a>,
    scorecard: ScorecardPart<'a>,
    findings: &'a [Finding],
    names: Vec<String>,
    devices: Vec<Device<'a>>,
    nodes: Vec<Node>,
    kernels: Vec<Row>,
    memory: Vec<Row>,
    api: Vec<Row>,
    /// Empty without instruction samples.
    lines: Vec<LineRow>,
    /// Empty with a single process.
    processes: Vec<ProcessRow>,
    threads: Vec<Thread>,
    /// Process, device, context, stream.
    streams: Vec<[u32; 4]>,
    call_kinds: Vec<(NameRow, &'static str)>,
    works: Vec<Vec<u64>>,
    ranges: Ranges,
    calls: Calls,
    operations: Operations,
    collectives: Collectives,
    process_ranges: ProcessRanges,
    marks: Marks,
    samplers: Vec<SamplerPart>,
    tracks: Vec<TrackPart<'a>>,
    track_times: Vec<Times>,
}

#[derive(Serialize)]
struct PartName {
    name: &'static str,
}

/// The clock of a device without kernels: pieces in time order.
#[derive(Serialize)]
struct ClockPart {
    device: u32,
    /// The start minus the end of the previous piece.
    start_delta: Vec<i64>,
    ns: Vec<u64>,
    /// Twice the row of the part, plus 1 if the device was idle.
    part: Vec<u8>,
}

/// Merges adjacent pieces of the same part.
fn clocks(profile: &Profile, clock: &Clock) -> Vec<ClockPart> {
    let mut clocks = Vec::new();
    for of_device in clock.pieces.chunk_by(|a, b| a.device == b.device) {
        let Some(device) = of_device.first().map(|piece| piece.device) else { continue };
        let (start_delta, ns, part) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = ClockPart { device, start_delta, ns, part };
        let mut end = 0;
        for piece in of_device.iter().filter(|piece| piece.part != Part::Kernels) {
            let since_start = |at| self::ns(profile.since_start(at));
            let times = (since_start(piece.time.start_ns), since_start(piece.time.end_ns));
            let (start, length) = (times.0, times.1.saturating_sub(times.0));
            let part = 2 * piece.part as u8 + u8::from(piece.is_idle);
            match (table.ns.last_mut(), table.part.last()) {
                (Some(last), Some(same)) if start == end && *same == part => *last += length,
                _ => {
                    table.start_delta.push(start as i64 - end as i64);
                    table.ns.push(length);
                    table.part.push(part);
                }
            }
            end = start + length;
        }
        clocks.push(table);
    }
    clocks
}

#[derive(Serialize)]
struct ScorecardPart<'a> {
    verdict: &'a str,
    /// The first thing to fix, and its remedy.
    first: Option<(&'a str, &'static str)>,
    scores: Vec<ScorePart>,
}

/// A value with its displayed texts.
#[derive(Serialize)]
struct ScorePart {
    flag: &'static str,
    name: &'static str,
    value: String,
    target: String,
    note: String,
}

impl<'a> ScorecardPart<'a> {
    fn new(card: &'a Scorecard) -> Self {
        let score = |score: &Score| ScorePart {
            flag: score.flag.text(),
            name: score.kind.text(),
            value: score.value_text(),
            target: score.target_text(),
            note: score.note.clone(),
        };
        Self {
            verdict: &card.verdict,
            first: card.first.as_ref().map(|first| (first.what.as_str(), first.remedy)),
            scores: card.scores().iter().map(score).collect(),
        }
    }
}

#[derive(Serialize)]
struct HealthPart<'a> {
    is_complete: bool,
    in_words: String,
    losses: Vec<(&'static str, u64)>,
    accounts: Vec<AccountPart<'a>>,
    #[serde(flatten)]
    counts: &'a Health,
}

#[derive(Serialize)]
struct AccountPart<'a> {
    name: &'static str,
    is_balanced: bool,
    #[serde(flatten)]
    account: &'a Account,
}

fn account_part<'a>((name, account): (&'static str, &'a Account)) -> AccountPart<'a> {
    AccountPart { name, is_balanced: account.is_balanced(), account }
}

#[derive(Serialize)]
struct Device<'a> {
    id: u32,
    #[serde(flatten)]
    info: Option<&'a DeviceInfo>,
    /// Its own clock.
    clock_ns: u64,
    busy: Busy,
}

#[derive(Serialize)]
struct ProcessRow {
    id: u32,
    label: String,
    start_ns: u64,
    ns: u64,
    totals: Totals,
    /// Its losses in one line; empty if there are none.
    missing: String,
}

fn processes(profile: &Profile) -> Vec<ProcessRow> {
    if !profile.has_several_processes() {
        return Vec::new();
    }
    let totals = profile.totals_by_process();
    let row = |process: Process<'_>| ProcessRow {
        id: process.id(),
        label: process.to_string(),
        start_ns: ns(process.start()),
        ns: ns(process.duration()),
        totals: totals.get(&process.id()).copied().unwrap_or_default(),
        missing: process.health().map(Health::missing_in_words).unwrap_or_default(),
    };
    profile.processes().map(row).collect()
}

#[derive(Serialize)]
struct Node {
    name: NameRow,
    domain: Option<NameRow>,
    parent: u32,
    instances: u64,
    host_ns: u64,
    inclusive: Totals,
    exclusive: Totals,
    replayed: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    inferred: Option<Totals>,
    /// Samples while its work was on the device: track row, mean, samples and their nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampled: Vec<Mean>,
}

#[derive(Serialize)]
struct Thread {
    id: u32,
    /// 0 if only one process was recorded.
    process: u32,
    name: Option<NameRow>,
}

/// Instances of ranges.
#[derive(Default, Serialize)]
struct Ranges {
    node: Vec<u32>,
    thread: Vec<u32>,
    start_delta: Vec<i64>,
    ns: Vec<u64>,
    /// The row minus the parent's; 0 for none.
    parent_back: Vec<i64>,
    /// Rows of open ranges.
    open: Vec<u32>,
    /// Row and 0xRRGGBB.
    colors: Vec<(u32, u32)>,
    /// Row and labels of the program.
    details: Vec<(u32, Vec<(NameRow, NameRow)>)>,
}

#[derive(Default, Serialize)]
struct Calls {
    /// Rows from here on are calls of the runtime API around earlier rows.
    driver: u32,
    kind: Vec<u32>,
    thread: Vec<u32>,
    start_delta: Vec<i64>,
    ns: Vec<i64>,
    range_delta: Vec<i64>,
    captured: Vec<u32>,
    /// Row and `CUresult` of failed calls.
    failed: Vec<(u32, u32)>,
    /// Row, and the ranges that the work is attributed to if an ancestor of its range is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    late: Vec<(u32, Vec<u32>)>,
}

#[derive(Default, Serialize)]
struct Operations {
    work: Vec<u32>,
    stream: Vec<u32>,
    start_delta: Vec<i64>,
    ns: Vec<i64>,
    call_delta: Vec<i64>,
    /// Bytes of copies and memsets only, in the order of rows.
    bytes: Vec<u64>,
    /// Row and the range of its graph node's capture.
    captured_in: Vec<(u32, u32)>,
}

#[derive(Default, Serialize)]
struct ProcessRanges {
    name: Vec<NameRow>,
    start_ns: Vec<u64>,
    ns: Vec<u64>,
    thread: Vec<u32>,
    open: Vec<u32>,
    activations: Vec<Vec<u32>>,
}

#[derive(Default, Serialize)]
struct Marks {
    name: Vec<NameRow>,
    thread: Vec<u32>,
    at_ns: Vec<u64>,
}

impl<'a> Data<'a> {
    pub(super) fn new(
        profile: &'a Profile,
        findings: &'a [Finding],
        card: &'a Scorecard,
        clock: &Clock,
        clock_of: impl Fn(u32) -> u64,
    ) -> Self {
        let mut builder = Builder::default();
        let mut tracks = Tracks::new(profile);
        let nodes = builder.nodes(profile, &mut tracks);
        let ranges = builder.ranges(profile);
        let process_ranges = builder.process_ranges(profile);
        let marks = builder.marks(profile);
        let calls = builder.calls(profile);
        let operations = builder.operations(profile);
        let health = profile.health();
        Self {
            what: profile.recording_info().to_string(),
            info: profile.recording_info(),
            date: profile.recording_info().date(),
            duration_ns: ns(profile.duration()),
            crossings: profile.outlived_in_words(),
            clock_ns: clock.ns(),
            parts: Part::ALL.into_iter().map(|part| PartName { name: part.text() }).collect(),
            clock: clocks(profile, clock),
            pauses_ns: pauses(profile),
            totals: profile.totals(),
            outside: profile.outside_ranges(),
            health: HealthPart {
                is_complete: health.is_complete(),
                in_words: health.to_string(),
                losses: health.losses.named().collect(),
                accounts: health.accounts.named().into_iter().map(account_part).collect(),
                counts: health,
            },
            scorecard: ScorecardPart::new(card),
            findings,
            devices: devices(profile, clock_of),
            nodes,
            kernels: builder.kernel_rows.finish(),
            memory: builder.memory_rows.finish(),
            api: builder.api_rows.finish(),
            lines: lines(profile, &mut builder.names),
            processes: processes(profile),
            threads: builder.threads,
            streams: builder.streams.into_values(),
            call_kinds: builder.call_kinds.into_values(),
            works: builder.works.into_values(),
            ranges,
            calls,
            operations,
            collectives: Collectives::new(profile),
            process_ranges,
            marks,
            samplers: tracks.samplers,
            tracks: tracks.tracks,
            track_times: tracks.times,
            names: strings(&builder.names),
        }
    }
}

/// The page's text for a class of calls.
fn class_of(call: &ApiCall<'_>) -> &'static str {
    match call.class() {
        CallClass::KernelLaunch => "launch",
        CallClass::GraphLaunch => "graph launch",
        CallClass::HostFunction => "host function",
        CallClass::Memcpy => "copy",
        CallClass::Memset => "memset",
        CallClass::Synchronize => "sync",
        CallClass::WaitEvent => "wait event",
        CallClass::Query => "query",
        CallClass::Alloc => "alloc",
        CallClass::Free => "free",
        _ => "other",
    }
}

/// The page's kind of a copy; a kernel is 0, a memset 6.
fn code_of(kind: CopyKind) -> u64 {
    match kind {
        CopyKind::HostToDevice => 1,
        CopyKind::DeviceToHost => 2,
        CopyKind::DeviceToDevice => 3,
        CopyKind::PeerToPeer => 4,
        _ => 5,
    }
}

/// The page's kind of a graph traced as one interval.
const WHOLE_GRAPH: u64 = 7;

fn devices(profile: &Profile, clock_of: impl Fn(u32) -> u64) -> Vec<Device<'_>> {
    let known = &profile.recording_info().devices;
    let mut ids: Vec<u32> = known.iter().map(|device| device.id).collect();
    let busy = Busy::by_device(profile, 1);
    ids.extend(busy.keys());
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter()
        .map(|id| Device {
            id,
            info: known.iter().find(|device| device.id == id),
            clock_ns: clock_of(id),
            busy: busy.get(&id).cloned().unwrap_or_default(),
        })
        .collect()
}

/// Differences between values of a column.
#[derive(Default)]
struct Delta(i64);

impl Delta {
    fn next(&mut self, value: u64) -> i64 {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let delta = value - self.0;
        self.0 = value;
        delta
    }
}

/// Identifies a call: process, thread, correlation id, start.
type CallKey = (u32, u32, u32, Duration);

fn key_of(call: &ApiCall<'_>) -> CallKey {
    (call.process_id(), call.thread_id(), call.correlation_id(), call.start())
}

#[derive(Default)]
struct Builder {
    names: Texts,
    threads: Vec<Thread>,
    /// By process and thread id.
    thread_rows: FxHashMap<(u32, u32), u32>,
    streams: Distinct<[u32; 4]>,
    call_kinds: Distinct<(NameRow, &'static str)>,
    call_rows: FxHashMap<CallKey, u32>,
    works: Distinct<Vec<u64>>,
    demangled: FxHashMap<String, NameRow>,
    kernel_rows: ByName,
    memory_rows: ByName,
    api_rows: ByName,
}

impl Builder {
    fn thread(&mut self, process: u32, id: u32) -> u32 {
        *self.thread_rows.entry((process, id)).or_insert_with(|| {
            self.threads.push(Thread { id, process, name: None });
            self.threads.len() as u32 - 1
        })
    }

    /// Parents before their children, as in [`Profile::roots`].
    fn nodes(&mut self, profile: &Profile, tracks: &mut Tracks<'_>) -> Vec<Node> {
        let mut nodes = Vec::new();
        let mut rows = FxHashMap::default();
        for node in profile.nodes() {
            rows.insert(node.id(), nodes.len() as u32 + 1);
            let sampled = tracks.means.remove(&node.id().at()).unwrap_or_default();
            nodes.push(Node { sampled, ..self.node(&node, &rows) });
        }
        nodes
    }

    fn node(
        &mut self,
        node: &RangeNode<'_>,
        rows: &FxHashMap<profiler_core::tables::range_tree::NodeId, u32>,
    ) -> Node {
        let parent = node.ancestors().next().and_then(|parent| rows.get(&parent.id()).copied());
        Node {
            name: self.names.text(node.name()),
            domain: node.domain().map(|domain| self.names.text(domain)),
            parent: parent.unwrap_or(0),
            instances: node.instances(),
            host_ns: ns(node.host_time()),
            inclusive: node.inclusive(),
            exclusive: node.exclusive(),
            replayed: node.replayed(),
            inferred: (node.profile().health().facts.inferred_operations != 0)
                .then(|| node.inferred()),
            sampled: Vec::new(),
        }
    }

    fn ranges(&mut self, profile: &Profile) -> Ranges {
        let mut table = Ranges::default();
        let mut start = Delta::default();
        for (row, range) in profile.ranges().enumerate() {
            let row = row as u32;
            let thread = self.thread(range.process_id(), range.thread_id());
            if let Some(name) = range.thread_name() {
                self.threads[thread as usize].name = Some(self.names.text(name));
            }
            table.node.push(range.node().id().0);
            table.thread.push(thread);
            table.start_delta.push(start.next(ns(range.start())));
            table.ns.push(ns(range.host_time()));
            let parent = range.parent().map(|parent| i64::from(row) - parent.id().at() as i64);
            table.parent_back.push(parent.unwrap_or(0));
            if range.is_open() {
                table.open.push(row);
            }
            if let Some(color) = range.color() {
                table.colors.push((row, color.to_argb() & 0x00ff_ffff));
            }
            let details = self.details(&range);
            if !details.is_empty() {
                table.details.push((row, details));
            }
        }
        table
    }

    fn details(&mut self, range: &Range<'_>) -> Vec<(NameRow, NameRow)> {
        let mut details = Vec::new();
        let mut add = |name: &str, value: &str| {
            details.push((self.names.text(name), self.names.text(value)));
        };
        if let Some(category) = range.category() {
            add("category", category);
        }
        if let Some(payload) = range.payload() {
            add("payload", &payload_text(payload));
        }
        for field in range.fields() {
            let unit = if field.unit.is_empty() { "" } else { " " };
            add(field.name, &format!("{}{unit}{}", value_text(field.value), field.unit));
        }
        details
    }

    fn process_ranges(&mut self, profile: &Profile) -> ProcessRanges {
        let mut table = ProcessRanges::default();
        for (row, range) in profile.process_ranges().enumerate() {
            table.name.push(self.names.text(range.name()));
            table.start_ns.push(ns(range.start()));
            table.ns.push(ns(range.host_time()));
            table.thread.push(self.thread(range.process_id(), range.thread_id()));
            table
                .activations
                .push(range.activations().map(|range| range.id().at() as u32).collect());
            if range.is_open() {
                table.open.push(row as u32);
            }
        }
        table
    }

    fn marks(&mut self, profile: &Profile) -> Marks {
        let mut table = Marks::default();
        for mark in profile.marks() {
            table.name.push(self.names.text(mark.name()));
            table.thread.push(self.thread(mark.process_id(), mark.thread_id()));
            table.at_ns.push(ns(mark.at()));
        }
        table
    }

    fn calls(&mut self, profile: &Profile) -> Calls {
        let mut table = Calls::default();
        let (mut start, mut range) = (Delta::default(), Delta::default());
        table.driver = profile.calls().count() as u32;
        for (row, call) in profile.calls().chain(profile.runtime_calls()).enumerate() {
            let row = row as u32;
            let what = (self.names.text(call.name()), class_of(&call));
            let kind = self.call_kinds.row(what);
            // Calls of the runtime API around driver calls are in no sum.
            if row < table.driver {
                self.api_rows.add(what.0, kind, call.host_time().map(ns), 0, call.is_failure());
                self.call_rows.insert(key_of(&call), row);
            }
            table.kind.push(kind);
            let thread = self.thread(call.process_id(), call.thread_id());
            table.thread.push(thread);
            table.start_delta.push(start.next(ns(call.start())));
            table.ns.push(call.host_time().map_or(UNKNOWN, |took| ns(took) as i64));
            let within = call.range().map_or(0, |range| range.id().at() as u64 + 1);
            table.range_delta.push(range.next(within));
            if row < table.driver
                && let Some(chain) = call.late_chain()
            {
                table.late.push((row, chain.map(|range| range.id().at() as u32).collect()));
            }
            if call.is_captured() {
                table.captured.push(row);
            }
            if call.is_failure() {
                table.failed.push((row, call.result()));
            }
        }
        table
    }

    fn operations(&mut self, profile: &Profile) -> Operations {
        let mut table = Operations::default();
        let (mut start, mut call) = (Delta::default(), Delta::default());
        let mut last_start = 0;
        for (row, operation) in profile.operations().enumerate() {
            let (work, bytes) = self.work(&operation);
            let took = operation.gpu_time().map(ns);
            let [kind, name, ..] = self.works.get(work)[..] else { continue };
            match kind {
                0 => self.kernel_rows.add(name as NameRow, work, took, bytes, false),
                WHOLE_GRAPH => {}
                _ => self.memory_rows.add(name as NameRow, work, took, bytes, false),
            }
            if kind != 0 {
                table.bytes.push(bytes);
            }
            let process = operation.process_id();
            let stream = [process, operation.device(), operation.context(), operation.stream()];
            last_start = operation.start().map_or(last_start, ns);
            let cause =
                operation.call().and_then(|call| self.call_rows.get(&key_of(&call)).copied());
            table.work.push(work);
            table.stream.push(self.streams.row(stream));
            table.start_delta.push(start.next(last_start));
            table.ns.push(took.map_or(UNKNOWN, |took| took as i64));
            table.call_delta.push(call.next(cause.map_or(0, |row| u64::from(row) + 1)));
            if let Some(range) = operation.captured_in() {
                table.captured_in.push((row as u32, range.id().at() as u32));
            }
        }
        table
    }

    /// The row and the bytes of an operation's work.
    ///
    /// - A kernel's row: 0, name, mangled name, grid, block, registers, static and dynamic shared
    ///   memory.
    /// - A copy's or memset's row: kind, name, full name.
    /// - A whole graph's row: [`WHOLE_GRAPH`], name, id of the executable graph.
    fn work(&mut self, operation: &GpuOperation<'_>) -> (u32, u64) {
        let (work, bytes) = if let Some(kernel) = operation.as_kernel() {
            let raw = self.names.text(kernel.name());
            let name = match self.demangled.get(kernel.name()) {
                Some(&name) => name,
                None => {
                    let name = self.names.text(&kernel.demangled_name());
                    self.demangled.insert(kernel.name().to_owned(), name);
                    name
                }
            };
            let details = kernel.details();
            let mut work = vec![0, u64::from(name), u64::from(raw)];
            work.extend(kernel.grid().map(u64::from));
            work.extend(kernel.block().map(u64::from));
            work.push(u64::from(details.registers_per_thread));
            work.extend([details.static_shared_bytes, details.dynamic_shared_bytes].map(u64::from));
            (work, 0)
        } else if let Some(copy) = operation.as_copy() {
            let details = copy.details();
            let name = self.names.text(&format!("copy {}", copy.kind()));
            let full = format!("{} to {}", details.source, details.destination);
            let full = self.names.text(&full);
            (vec![code_of(copy.kind()), u64::from(name), u64::from(full)], copy.bytes())
        } else if let Some(graph) = operation.as_graph() {
            let name = u64::from(self.names.text("CUDA graph"));
            (vec![WHOLE_GRAPH, name, u64::from(graph.executable_id())], 0)
        } else {
            let name = u64::from(self.names.text("memset"));
            (vec![6, name, name], operation.as_memset().map_or(0, |memset| memset.bytes()))
        };
        (self.works.row(work), bytes)
    }
}

fn payload_text(payload: nvtx::Payload) -> String {
    match payload {
        nvtx::Payload::U64(value) => value.to_string(),
        nvtx::Payload::I64(value) => value.to_string(),
        nvtx::Payload::F64(value) => value.to_string(),
        nvtx::Payload::U32(value) => value.to_string(),
        nvtx::Payload::I32(value) => value.to_string(),
        nvtx::Payload::F32(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

fn value_text(value: nvtx::FieldValue<'_>) -> String {
    match value {
        nvtx::FieldValue::U64(value) => value.to_string(),
        nvtx::FieldValue::I64(value) => value.to_string(),
        nvtx::FieldValue::F64(value) => value.to_string(),
        nvtx::FieldValue::Bool(value) => value.to_string(),
        nvtx::FieldValue::Str(value) => value.to_owned(),
        other => format!("{other:?}"),
    }
}
