//! A profile as rows that refer to each other by index: all data that the formats use.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::HOST;
pub(super) use crate::formats::places::Place;
use crate::formats::places::{self, StreamNames};
pub(super) use profiler_base::units::nanoseconds as ns;
use profiler_core::profile::Mark;
use profiler_core::profile::ProcessRange;
use profiler_core::profile::{ApiCall, GpuOperation, Profile, Range, RangeNode};
use profiler_core::tables::{CallId, What};

/// Nanoseconds since the session's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    fn new(start: Duration, length: Duration) -> Self {
        let start = ns(start);
        Self { start, end: start.saturating_add(ns(length)) }
    }

    pub(super) fn ns(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// A sort key: by start, longer spans first, so that parents precede children.
    pub(super) fn order(self) -> (u64, Reverse<u64>) {
        (self.start, Reverse(self.end))
    }
}

#[derive(Debug)]
pub(super) struct RangeRow<'a> {
    pub(super) range: Range<'a>,
    pub(super) span: Span,
    pub(super) parent: Option<usize>,
}

#[derive(Debug)]
pub(super) struct CallRow<'a> {
    pub(super) call: ApiCall<'a>,
    pub(super) span: Span,
    pub(super) range: Option<usize>,
    /// Submitted operations with a time.
    pub(super) operations: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct OperationRow<'a> {
    pub(super) operation: GpuOperation<'a>,
    /// A kernel's index in [`Timeline::kernel_names`].
    pub(super) kernel_name: Option<usize>,
    /// `None` without timestamps.
    pub(super) span: Option<Span>,
    pub(super) place: Place,
    pub(super) call: Option<usize>,
    pub(super) range: Option<usize>,
}

impl<'a> OperationRow<'a> {
    /// The kind in one word.
    pub(super) fn category(&self) -> &'static str {
        self.operation.kind().name()
    }

    pub(super) fn what(&self) -> &'a What {
        &self.operation.work().what
    }
}

#[derive(Debug, Default)]
pub(super) struct Thread<'a> {
    pub(super) name: Option<&'a str>,
    /// Ranges, calls and marks sorted by span.
    pub(super) ranges: Vec<usize>,
    pub(super) calls: Vec<usize>,
    pub(super) marks: Vec<Mark<'a>>,
}

/// A process of the program.
#[derive(Debug)]
pub(super) struct Host {
    /// The profile's id; 0 if the process recorded itself.
    pub(super) process: u32,
    /// The process id in the file.
    pub(super) pid: u64,
    pub(super) name: String,
}

/// All entries of a profile with a time, with their names.
#[derive(Debug)]
pub(super) struct Timeline<'a> {
    pub(super) profile: &'a Profile,
    pub(super) ranges: Vec<RangeRow<'a>>,
    pub(super) calls: Vec<CallRow<'a>>,
    pub(super) operations: Vec<OperationRow<'a>>,
    pub(super) process_ranges: Vec<(ProcessRange<'a>, Span)>,
    /// By process and thread id.
    pub(super) threads: BTreeMap<(u32, u32), Thread<'a>>,
    /// The operations of each stream that have a time, sorted by span.
    pub(super) streams: BTreeMap<Place, Vec<usize>>,
    stream_names: StreamNames,
    pub(super) kernel_names: Vec<String>,
    /// The shortened path of each node of the range tree.
    pub(super) paths: Vec<String>,
    /// Operations without a time.
    pub(super) without_time: u64,
    /// Never empty.
    pub(super) hosts: Vec<Host>,
    pids: FxHashMap<u32, u64>,
}

/// Reserved device ids: from 0 in some formats, above [`HOST`] in others.
const DEVICES: u64 = 64;

/// The processes with their own ids, except for ids that are unknown or reserved for devices.
fn hosts(profile: &Profile) -> Vec<Host> {
    let mut spare = std::iter::once(HOST).chain(HOST + DEVICES..);
    let is_free = |id: &u64| *id >= DEVICES && !(HOST..HOST + DEVICES).contains(id);
    let mut pid = |id: Option<u64>| id.filter(is_free).or_else(|| spare.next()).unwrap_or(HOST);
    let mut hosts = Vec::new();
    for process in profile.processes() {
        let (id, name) = (process.id(), process.to_string());
        hosts.push(Host { process: id, pid: pid(Some(id.into())), name });
    }
    match &mut hosts[..] {
        // Rows without a process belong to the only one.
        [] => {
            let id = profile.recording_info().process_id.map(u64::from);
            hosts.push(Host { process: 0, pid: pid(id), name: "host".to_owned() });
        }
        [one] => one.name = "host".to_owned(),
        _ => {}
    }
    hosts
}

impl<'a> Timeline<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        let mut threads: BTreeMap<(u32, u32), Thread<'a>> = BTreeMap::new();
        let mut ranges = Vec::new();
        for (row, range) in profile.ranges().enumerate() {
            let span = Span::new(range.start(), range.host_time());
            let thread = threads.entry((range.process_id(), range.thread_id())).or_default();
            thread.name = thread.name.or(range.thread_name());
            thread.ranges.push(row);
            ranges.push(RangeRow { range, span, parent: range.parent().map(row_of) });
        }
        let end = ns(profile.duration());
        // Operations refer to calls by these rows: driver calls first.
        let mut calls = Vec::new();
        for call in profile.calls().chain(profile.runtime_calls()) {
            let thread = (call.process_id(), call.thread_id());
            threads.entry(thread).or_default().calls.push(calls.len());
            let start = ns(call.start());
            let call_end =
                call.host_time().map_or(end.max(start), |time| start.saturating_add(ns(time)));
            let (span, range) = (Span { start, end: call_end }, call.range().map(row_of));
            calls.push(CallRow { call, span, range, operations: Vec::new() });
        }
        for mark in profile.marks() {
            threads.entry((mark.process_id(), mark.thread_id())).or_default().marks.push(mark);
        }
        for thread in threads.values_mut() {
            thread.ranges.sort_by_key(|&row| ranges[row].span.order());
            thread.calls.sort_by_key(|&row| calls[row].span.order());
            thread.marks.sort_by_key(|mark| mark.at());
        }

        let hosts = hosts(profile);
        let mut timeline = Self {
            profile,
            ranges,
            calls,
            operations: Vec::new(),
            process_ranges: profile
                .process_ranges()
                .map(|range| (range, Span::new(range.start(), range.host_time())))
                .collect(),
            threads,
            streams: BTreeMap::new(),
            stream_names: StreamNames::default(),
            kernel_names: Vec::new(),
            paths: paths(profile),
            without_time: 0,
            pids: hosts.iter().map(|host| (host.process, host.pid)).collect(),
            hosts,
        };
        timeline.process_ranges.sort_by_key(|(_, span)| span.order());
        timeline.add_operations();
        timeline
    }

    fn add_operations(&mut self) {
        let mut names = FxHashMap::default();
        for operation in self.profile.operations() {
            let row = self.operations.len();
            let place = Place::from_operation(&operation);
            let span = operation
                .start()
                .zip(operation.gpu_time())
                .map(|(start, length)| Span::new(start, length));
            let kernel_name = operation.as_kernel().map(|kernel| {
                *names.entry(kernel.name()).or_insert_with(|| {
                    self.kernel_names.push(kernel.demangled_name());
                    self.kernel_names.len() - 1
                })
            });
            let call = operation.call_id().map(CallId::at);
            if let Some(call) = call
                && span.is_some()
            {
                self.calls[call].operations.push(row);
            }
            match span {
                Some(_) => self.streams.entry(place).or_default().push(row),
                None => self.without_time += 1,
            }
            self.operations.push(OperationRow {
                operation,
                kernel_name,
                span,
                place,
                call,
                range: operation.range().map(row_of),
            });
        }
        for operations in self.streams.values_mut() {
            operations.sort_by_key(|&row| self.operations[row].span.map(Span::order));
        }
        self.stream_names = StreamNames::from_places(self.streams.keys().copied());
    }

    /// The name of an operation.
    pub(super) fn name(&self, operation: &OperationRow<'_>) -> &str {
        match operation.kernel_name {
            Some(name) => &self.kernel_names[name],
            None => places::other_name(&operation.operation),
        }
    }

    /// The path of a range.
    pub(super) fn path(&self, range: usize) -> &str {
        &self.paths[self.ranges[range].range.node().id().at()]
    }

    /// The end of the session, or of the last entry if later.
    #[cfg(feature = "firefox")]
    pub(super) fn end(&self) -> u64 {
        let operations = self.operations.iter().filter_map(|operation| operation.span);
        let calls = self.calls.iter().map(|call| call.span);
        let ends = operations.chain(calls).map(|span| span.end);
        ends.max().unwrap_or(0).max(ns(self.profile.duration()))
    }

    /// The devices with operations or samples by ordinal, with their titles.
    pub(super) fn devices(&self) -> BTreeMap<u32, String> {
        let title = |id| places::device_title(self.profile, id);
        let sampled = self.profile.tracks().filter(|track| !track.is_empty());
        let devices = self.streams.keys().map(|place| place.device);
        devices.chain(sampled.map(|track| track.device())).map(|id| (id, title(id))).collect()
    }

    /// The streams of a device and their operations.
    pub(super) fn streams_of(&self, device: u32) -> impl Iterator<Item = (Place, &Vec<usize>)> {
        let end = |number| Place { device, process: number, context: number, stream: number };
        self.streams.range(end(0)..=end(u32::MAX)).map(|(place, rows)| (*place, rows))
    }

    /// The process id of a process in the file.
    pub(super) fn pid(&self, process: u32) -> u64 {
        let first = || self.hosts.first().map_or(HOST, |host| host.pid);
        self.pids.get(&process).copied().unwrap_or_else(first)
    }

    /// The threads of a process by their ids.
    pub(super) fn threads_of(&self, host: &Host) -> impl Iterator<Item = (u32, &Thread<'a>)> {
        let end = |number| (host.process, number);
        let threads = self.threads.range(end(0)..=end(u32::MAX));
        threads.map(|((_, id), thread)| (*id, thread))
    }

    /// The process ranges of a process by their starts.
    pub(super) fn process_ranges_of(
        &self,
        host: &Host,
    ) -> impl Iterator<Item = &(ProcessRange<'a>, Span)> {
        let process = host.process;
        self.process_ranges.iter().filter(move |(range, _)| range.process_id() == process)
    }

    /// The name of a stream, with its process and its context if several have the number.
    pub(super) fn stream_name(&self, place: Place) -> String {
        self.stream_names.name(self.profile, place)
    }

    /// The inclusive work of each range on each stream: from the first start to the last end.
    pub(super) fn projections(&self) -> BTreeMap<Place, Vec<(usize, Span)>> {
        let mut spans: Vec<BTreeMap<Place, Span>> = vec![BTreeMap::new(); self.ranges.len()];
        let add = |spans: &mut BTreeMap<Place, Span>, place: Place, span: Span| {
            let whole = spans.entry(place).or_insert(span);
            whole.start = whole.start.min(span.start);
            whole.end = whole.end.max(span.end);
        };
        let mut late: Vec<(usize, Place, Span)> = Vec::new();
        for operation in &self.operations {
            let (Some(range), Some(span)) = (operation.range, operation.span) else { continue };
            match operation.operation.late_chain() {
                None => add(&mut spans[range], operation.place, span),
                Some(chain) => {
                    late.extend(chain.map(|range| (row_of(range), operation.place, span)));
                }
            }
        }
        // Sorted by start, parents precede children; in reverse each span is complete when added.
        let mut order: Vec<usize> = (0..self.ranges.len()).collect();
        order.sort_by_key(|&row| (self.ranges[row].span.start, row));
        for &row in order.iter().rev() {
            if let Some(parent) = self.ranges[row].parent {
                for (place, span) in spans[row].clone() {
                    add(&mut spans[parent], place, span);
                }
            }
        }
        late.into_iter().for_each(|(row, place, span)| add(&mut spans[row], place, span));
        let mut by_stream: BTreeMap<Place, Vec<(usize, Span)>> = BTreeMap::new();
        for &row in &order {
            for (&place, &span) in &spans[row] {
                by_stream.entry(place).or_default().push((row, span));
            }
        }
        by_stream
    }
}

fn row_of(range: Range<'_>) -> usize {
    range.id().at()
}

/// The maximum names of a path, counted from the innermost, and the maximum characters of each
/// name.
const PATH_NAMES: usize = 64;
const NAME_CHARACTERS: usize = 200;

/// The path of every node. It is repeated in every operation, so long paths and names are
/// shortened.
fn paths(profile: &Profile) -> Vec<String> {
    let mut around: Vec<usize> = Vec::new();
    let path = |node: RangeNode<'_>| {
        let depth = node.ancestors().next().map_or(0, |parent| around[parent.id().at()] + 1);
        around.push(depth);
        let mut names = vec![shortened(node.name())];
        names.extend(node.ancestors().take(PATH_NAMES - 1).map(|node| shortened(node.name())));
        if depth >= PATH_NAMES {
            names.push(format!("({} more)", depth + 1 - PATH_NAMES));
        }
        names.reverse();
        names.join("/")
    };
    profile.nodes().map(path).collect()
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARACTERS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}
