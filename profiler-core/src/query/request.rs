//! Requests of a service: the GPU time of each, including shares of batches, and a division of its
//! time into stages.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nvtx::FieldValue;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::Statistics;
use profiler_base::table::Table;
use profiler_base::units::{nanoseconds as ns, time};
use profiler_base::{getters, iterate, order, setters};
use rustc_hash::FxHashMap;

use crate::join::tables::RangeId;
use crate::profile::{GpuOperation, ProcessRange, Profile, Range};

/// No request.
const NONE: u32 = u32::MAX;

/// Settings of requests, from [`Profile::requests`].
#[derive(Debug, Clone)]
#[must_use = "call `find`"]
pub struct RequestQuery<'a> {
    profile: &'a Profile,
    pattern: Pattern,
    weight: Option<String>,
    endpoint: Option<String>,
}

/// The range of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestRange<'a> {
    /// The life of a future or task. Its work is the work of its activations, on any thread.
    Process(ProcessRange<'a>),
    /// A range of a thread. Its work is the work of the range and of contexts captured in it.
    Thread(Range<'a>),
}

/// A request: a range of the process or of a thread with its work on the GPU.
///
/// An operation that was launched in a [joined context](crate::Context::join) of several requests,
/// such as a batch, is split among them. The split is by declared weights if each request has one,
/// otherwise even. The parts of all requests add up to the operation.
///
/// A request lasts from its start to its end, or to the end of its last operation if that is later.
/// This time is divided into five stages: [`pending`](Self::pending), [`waiting`](Self::waiting),
/// [`host`](Self::host), [`queued`](Self::queued) and [`executing`](Self::executing). A batch is
/// executing for each of its requests.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    range: RequestRange<'a>,
    endpoint: &'a str,
    operations: u64,
    shared_operations: u64,
    own_ns: u64,
    by_weight_ns: u64,
    evenly_ns: u64,
    stages: Stages,
}

/// The time of a request by stage, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stages {
    pending_ns: u64,
    waiting_ns: u64,
    queued_ns: u64,
    executing_ns: u64,
    total_ns: u64,
}

/// The requests of a profile, by start of their ranges; requests of process ranges come first.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Requests<'a> {
    requests: Vec<Request<'a>>,
}

/// The requests of one endpoint. Statistics cover ended requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Endpoint {
    /// The value of the endpoint's field, or the name of the ranges.
    pub name: String,
    /// Requests that have ended.
    pub requests: u64,
    /// Requests that had not ended at the stop.
    pub open: u64,
    /// The time from start to end, with operations that end later.
    pub total: Statistics,
    /// GPU time, with parts of batches.
    pub gpu_time: Statistics,
    /// The time before any thread worked on the request.
    pub pending: Statistics,
    /// The later time while no thread worked on it.
    pub waiting: Statistics,
    /// The time while submitted work waited for the GPU and none ran.
    pub queued: Statistics,
    /// The time while work ran on the GPU.
    pub executing: Statistics,
    /// All other time.
    pub host: Statistics,
    /// The part of the GPU time that is split by declared weights.
    pub split_by_weight: Duration,
    /// The part of the GPU time that is split evenly.
    pub split_evenly: Duration,
}

impl Profile {
    /// Returns the ranges of this name, path or pattern as requests. Two kinds are included:
    /// process ranges with their activations (an instrumented future and its polls, on any thread),
    /// and outermost thread ranges that are not activations.
    ///
    /// ```
    /// use profiler_core::Profile;
    ///
    /// # fn main() -> Result<(), profiler_core::Error> {
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    /// let profile = Profile::load(file)?;
    /// let requests = profile.requests("batch").weight_field("tokens").find();
    /// for endpoint in requests.endpoints() {
    ///     println!("{}: 99 % within {:?}", endpoint.name, endpoint.total.percentile(99.0));
    /// }
    /// println!("{requests}"); // a table of endpoints
    /// # Ok(())
    /// # }
    /// ```
    pub fn requests(&self, path: &str) -> RequestQuery<'_> {
        RequestQuery { profile: self, pattern: Pattern::new(path), weight: None, endpoint: None }
    }
}

impl<'a> RequestQuery<'a> {
    setters! {
        /// Splits shared operations by this field of the requests' ranges, such as tokens: a
        /// positive number. If a request of an operation lacks such a number, the operation is
        /// split evenly.
        weight_field(name: impl Into<String>) weight = Some(name.into());
        /// Groups requests by the text of this field of their ranges, such as a route. Without the
        /// field, the name of the range is the endpoint.
        endpoint_field(name: impl Into<String>) endpoint = Some(name.into());
    }

    /// Finds the requests. Costs O(n log n) in the operations times their number of requests.
    pub fn find(&self) -> Requests<'a> {
        let ranges = self.ranges();
        let (own, owners) = self.owners(&ranges);
        let weights: Vec<Option<f64>> = ranges.iter().map(|range| self.weight_of(*range)).collect();
        let mut requests: Vec<Request<'a>> = ranges
            .into_iter()
            .map(|range| Request {
                range,
                endpoint: self.endpoint_of(range),
                operations: 0,
                shared_operations: 0,
                own_ns: 0,
                by_weight_ns: 0,
                evenly_ns: 0,
                stages: Stages::default(),
            })
            .collect();
        let mut spans: Vec<Vec<GpuSpan>> = vec![Vec::new(); requests.len()];
        // The last operation to which each request was added.
        let mut seen = vec![u64::MAX; requests.len()];
        let mut rows: Vec<usize> = Vec::new();
        for (number, operation) in (0_u64..).zip(self.profile.operations()) {
            rows.clear();
            // Late work belongs to the innermost root to which it is attributed.
            let of_late = operation.late_chain().map(|mut chain| {
                chain.find_map(|range| own.get(&range.id).copied()).unwrap_or(NONE)
            });
            for (at, range) in operation.ranges().enumerate() {
                let owner = of_late.filter(|_| at == 0).unwrap_or(owners[range.id.at()]);
                if owner != NONE && seen[owner as usize] != number {
                    seen[owner as usize] = number;
                    rows.push(owner as usize);
                }
            }
            let span = GpuSpan::from_operation(&operation);
            for row in &rows {
                requests[*row].operations += 1;
                spans[*row].extend(span);
            }
            let gpu_ns = operation.gpu_time().map_or(0, ns);
            match &rows[..] {
                [] => {}
                [row] => requests[*row].own_ns += gpu_ns,
                rows => {
                    let declared: Option<Vec<f64>> = rows.iter().map(|row| weights[*row]).collect();
                    let is_declared = declared.is_some();
                    let weights = declared.unwrap_or_else(|| vec![1.0; rows.len()]);
                    for (row, part) in rows.iter().zip(split(gpu_ns, &weights)) {
                        let request = &mut requests[*row];
                        request.shared_operations += 1;
                        match is_declared {
                            true => request.by_weight_ns += part,
                            false => request.evenly_ns += part,
                        }
                    }
                }
            }
        }
        for (request, spans) in requests.iter_mut().zip(spans) {
            let start_ns = ns(request.start());
            let end_ns = start_ns.saturating_add(ns(request.host_time()));
            let attended = request.range.attended_ns(start_ns, end_ns);
            request.stages = Stages::new(start_ns, &attended, end_ns, spans);
        }
        Requests { requests }
    }

    fn ranges(&self) -> Vec<RequestRange<'a>> {
        let profile = self.profile;
        let names = profile.process_ranges().map(|range| (None, range.name()));
        let is_process = self.pattern.matching(names);
        let processes = profile.process_ranges().zip(is_process).filter(|(_, matches)| *matches);
        let mut ranges: Vec<RequestRange<'a>> =
            processes.map(|(range, _)| RequestRange::Process(range)).collect();
        order::sort_by_number(&mut ranges, |range| ns(range.start()));
        let is_outermost = profile.outermost(&self.pattern);
        let of_thread = profile.ranges().filter(|range| is_outermost[range.node().id.at()]);
        let mut of_thread: Vec<RequestRange<'a>> = of_thread
            .filter(|range| range.process_range().is_none())
            .map(RequestRange::Thread)
            .collect();
        order::sort_by_number(&mut of_thread, |range| ns(range.start()));
        ranges.append(&mut of_thread);
        ranges
    }

    /// The request of each root, and of each range: the request of the innermost root around it.
    fn owners(&self, ranges: &[RequestRange<'a>]) -> (FxHashMap<RangeId, u32>, Vec<u32>) {
        let profile = self.profile;
        let mut own = FxHashMap::default();
        for (row, range) in (0_u32..).zip(ranges) {
            match range {
                RequestRange::Process(range) => {
                    own.extend(range.activations().map(|activation| (activation.id, row)));
                }
                RequestRange::Thread(range) => _ = own.insert(range.id, row),
            }
        }
        let mut owners = vec![NONE; profile.store.ranges.len()];
        own.iter().for_each(|(range, row)| owners[range.at()] = *row);
        // Parents precede their children.
        for id in profile.tree.ranges() {
            if owners[id.at()] == NONE
                && let Some(parent) = profile.store.ranges[id.at()].parent.get()
            {
                owners[id.at()] = owners[parent.at()];
            }
        }
        (own, owners)
    }

    fn weight_of(&self, range: RequestRange<'a>) -> Option<f64> {
        let weight = match range.field(self.weight.as_deref()?)? {
            FieldValue::U64(weight) => weight as f64,
            FieldValue::I64(weight) => weight as f64,
            FieldValue::F64(weight) => weight,
            _ => return None,
        };
        (weight.is_finite() && weight > 0.0).then_some(weight)
    }

    fn endpoint_of(&self, range: RequestRange<'a>) -> &'a str {
        match self.endpoint.as_deref().and_then(|name| range.field(name)) {
            Some(FieldValue::Str(text)) => text,
            _ => range.name(),
        }
    }
}

/// Divides a time in the ratio of positive weights. The parts add up to it.
fn split(whole_ns: u64, weights: &[f64]) -> impl Iterator<Item = u64> {
    let all: f64 = weights.iter().sum();
    let (mut before, mut until_ns) = (0.0, 0);
    weights.iter().enumerate().map(move |(number, weight)| {
        before += weight;
        let is_last = number + 1 == weights.len();
        let next = (whole_ns as f64 * (before / all)).round() as u64;
        let next_ns = if is_last { whole_ns } else { next.clamp(until_ns, whole_ns) };
        next_ns - std::mem::replace(&mut until_ns, next_ns)
    })
}

/// An operation in nanoseconds since the session's start.
#[derive(Debug, Clone, Copy)]
struct GpuSpan {
    /// The return of its call.
    submitted_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

impl GpuSpan {
    fn from_operation(operation: &GpuOperation<'_>) -> Option<Self> {
        let (start_ns, end_ns) = (ns(operation.start()?), ns(operation.end()?));
        let returned = operation.call().and_then(|call| call.end());
        let submitted_ns = returned.map_or(start_ns, ns).min(start_ns);
        Some(Self { submitted_ns, start_ns, end_ns: end_ns.max(start_ns) })
    }
}

/// A time at which the state of a request changes.
#[derive(Debug)]
struct Edge {
    at_ns: u64,
    /// Changes of three numbers: operations that wait for the GPU, running operations, and threads
    /// that work on the request.
    queued: i64,
    executing: i64,
    threads: i64,
}

impl Stages {
    /// Divides the time from `start_ns` to the later of `end_ns` and the end of all spans.
    /// `attended` has the times in which a thread worked on the request.
    fn new(start_ns: u64, attended: &[(u64, u64)], end_ns: u64, spans: Vec<GpuSpan>) -> Self {
        let end_ns = spans.iter().map(|span| span.end_ns).fold(end_ns, u64::max);
        let within = |at_ns: u64| at_ns.clamp(start_ns, end_ns);
        let mut edges: Vec<Edge> = Vec::with_capacity(3 * spans.len() + 2 * attended.len() + 1);
        let mut add = |at_ns: u64, queued, executing, threads| {
            edges.push(Edge { at_ns: within(at_ns), queued, executing, threads });
        };
        for span in spans {
            add(span.submitted_ns, 1, 0, 0);
            add(span.start_ns, -1, 1, 0);
            add(span.end_ns, 0, -1, 0);
        }
        for (from_ns, until_ns) in attended {
            add(*from_ns, 0, 0, 1);
            add(*until_ns, 0, 0, -1);
        }
        add(end_ns, 0, 0, 0);
        order::sort_by_number(&mut edges, |edge| edge.at_ns);
        let first_ns = attended.iter().map(|(from_ns, _)| within(*from_ns)).min();
        let first_ns = first_ns.unwrap_or(end_ns);
        let mut stages = Self { total_ns: end_ns - start_ns, ..Self::default() };
        let (mut queued, mut executing, mut threads, mut last_ns) = (0, 0, 0, start_ns);
        for edge in edges {
            let from_ns = std::mem::replace(&mut last_ns, edge.at_ns);
            let since_ns = edge.at_ns - from_ns;
            if executing > 0 {
                stages.executing_ns += since_ns;
            } else if queued > 0 {
                stages.queued_ns += since_ns;
            } else if from_ns < first_ns {
                stages.pending_ns += since_ns;
            } else if threads <= 0 {
                stages.waiting_ns += since_ns;
            }
            (queued, executing) = (queued + edge.queued, executing + edge.executing);
            threads += edge.threads;
        }
        stages
    }
}

impl<'a> RequestRange<'a> {
    /// The range's name.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Process(range) => range.name(),
            Self::Thread(range) => range.name(),
        }
    }

    /// The start since the session's start.
    pub fn start(&self) -> Duration {
        match self {
            Self::Process(range) => range.start(),
            Self::Thread(range) => range.start(),
        }
    }

    /// The host time; until the stop if it had not ended.
    pub fn host_time(&self) -> Duration {
        match self {
            Self::Process(range) => range.host_time(),
            Self::Thread(range) => range.host_time(),
        }
    }

    /// True if it had not ended at the stop.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Process(range) => range.is_open(),
            Self::Thread(range) => range.is_open(),
        }
    }

    /// The last field of this name. For a future it is a field of its life, or else of its first
    /// poll.
    pub fn field(&self, name: &str) -> Option<FieldValue<'a>> {
        match self {
            Self::Process(range) => {
                range.field(name).or_else(|| range.activations().next()?.field(name))
            }
            Self::Thread(range) => range.field(name),
        }
    }

    /// The times in which threads worked on it.
    fn attended_ns(&self, start_ns: u64, end_ns: u64) -> Vec<(u64, u64)> {
        match self {
            Self::Process(range) => {
                let times = range.activations().map(|of| (ns(of.start()), ns(of.host_time())));
                times.map(|(from_ns, host_ns)| (from_ns, from_ns.saturating_add(host_ns))).collect()
            }
            Self::Thread(_) => vec![(start_ns, end_ns)],
        }
    }
}

impl<'a> Request<'a> {
    getters! {
        /// Its range.
        range: RequestRange<'a> = range;
        /// The value of the endpoint's field, or the name of its range.
        endpoint: &'a str = endpoint;
        /// The start since the session's start.
        start: Duration = range.start();
        /// The host time of its range.
        host_time: Duration = range.host_time();
        /// True if its range had not ended at the stop.
        is_open: bool = range.is_open();
        /// Operations on the GPU, including shared ones.
        operations: u64 = operations;
        /// Operations shared with other requests.
        shared_operations: u64 = shared_operations;
        /// The GPU time of operations that belong to it alone.
        own_gpu_time: Duration = Duration::from_nanos(own_ns);
        /// Its part of shared operations that are split by declared weights.
        split_by_weight: Duration = Duration::from_nanos(by_weight_ns);
        /// Its part of shared operations that are split evenly.
        split_evenly: Duration = Duration::from_nanos(evenly_ns);
        /// The time from its start to its end, or to the end of its last operation if that is
        /// later: the sum of all stages.
        total_time: Duration = Duration::from_nanos(stages.total_ns);
        /// The time before a thread first worked on it: the wait in a queue of the program. 0 for
        /// ranges of threads.
        pending: Duration = Duration::from_nanos(stages.pending_ns);
        /// The later time while no thread worked on it and none of its operations was submitted or
        /// ran: the wait for a batch, or for another task. 0 for ranges of threads.
        waiting: Duration = Duration::from_nanos(stages.waiting_ns);
        /// The time while submitted operations waited for the GPU and none of its operations ran.
        queued: Duration = Duration::from_nanos(stages.queued_ns);
        /// The time while one of its operations ran on a GPU.
        executing: Duration = Duration::from_nanos(stages.executing_ns);
    }

    /// The GPU time of its own operations and of its parts of shared ones.
    pub fn gpu_time(&self) -> Duration {
        Duration::from_nanos(self.own_ns + self.by_weight_ns + self.evenly_ns)
    }

    /// The remaining time: a thread works on it, or waits within its range.
    pub fn host(&self) -> Duration {
        let Stages { pending_ns, waiting_ns, queued_ns, executing_ns, total_ns } = self.stages;
        Duration::from_nanos(total_ns - pending_ns - waiting_ns - queued_ns - executing_ns)
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Request<'_>, "Request", |request| {
    "endpoint": request.endpoint,
    "start_ns": ns(request.start()),
    "host_time_ns": ns(request.host_time()),
    "is_open": request.is_open(),
    "operations": request.operations,
    "shared_operations": request.shared_operations,
    "own_gpu_ns": request.own_ns,
    "split_by_weight_ns": request.by_weight_ns,
    "split_evenly_ns": request.evenly_ns,
    "total_ns": request.stages.total_ns,
    "pending_ns": request.stages.pending_ns,
    "waiting_ns": request.stages.waiting_ns,
    "queued_ns": request.stages.queued_ns,
    "executing_ns": request.stages.executing_ns,
    "host_ns": ns(request.host()),
});

impl<'a> Requests<'a> {
    getters! {
        /// The requests.
        iter: std::slice::Iter<'_, Request<'a>> = requests.iter();
        /// The number of requests.
        len: usize = requests.len();
        /// True if there are no requests.
        is_empty: bool = requests.is_empty();
    }

    /// Statistics of a time that each ended request has: `requests.statistics(Request::gpu_time)`.
    pub fn statistics(&self, of: impl Fn(&Request<'a>) -> Duration) -> Statistics {
        let ended = self.requests.iter().filter(|request| !request.is_open());
        Statistics::from_nanos(ended.map(|request| ns(of(request))).collect())
    }

    /// Sums by endpoint, by descending GPU time.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut groups: BTreeMap<&str, Vec<Request<'a>>> = BTreeMap::new();
        for request in &self.requests {
            groups.entry(request.endpoint).or_default().push(request.clone());
        }
        let mut endpoints: Vec<Endpoint> = groups
            .into_iter()
            .map(|(name, requests)| {
                let all = Requests { requests };
                let sum = |part: fn(&Request<'_>) -> u64| {
                    Duration::from_nanos(all.iter().map(part).fold(0, u64::saturating_add))
                };
                let open = all.iter().filter(|request| request.is_open()).count() as u64;
                Endpoint {
                    name: name.to_owned(),
                    requests: all.len() as u64 - open,
                    open,
                    total: all.statistics(Request::total_time),
                    gpu_time: all.statistics(Request::gpu_time),
                    pending: all.statistics(Request::pending),
                    waiting: all.statistics(Request::waiting),
                    queued: all.statistics(Request::queued),
                    executing: all.statistics(Request::executing),
                    host: all.statistics(Request::host),
                    split_by_weight: sum(|request| request.by_weight_ns),
                    split_evenly: sum(|request| request.evenly_ns),
                }
            })
            .collect();
        order::sort_by_number(&mut endpoints, |endpoint| !ns(endpoint.gpu_time.sum()));
        endpoints
    }
}

iterate!(Requests<'a>: Request<'a>);

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Endpoint, "Endpoint", |endpoint| {
    "name": endpoint.name,
    "requests": endpoint.requests,
    "open": endpoint.open,
    "total": endpoint.total,
    "gpu_time": endpoint.gpu_time,
    "pending": endpoint.pending,
    "waiting": endpoint.waiting,
    "queued": endpoint.queued,
    "executing": endpoint.executing,
    "host": endpoint.host,
    "split_by_weight_ns": ns(endpoint.split_by_weight),
    "split_evenly_ns": ns(endpoint.split_evenly),
});

impl DisplayOptions for Requests<'_> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requests.is_empty() {
            return f.write_str("no requests");
        }
        let mut header =
            vec!["endpoint", "requests", "median", "p99", "pending", "waiting", "host"];
        header.extend(["queued", "executing", "GPU time", "GPU p99"]);
        header.extend(["split by weight", "split evenly"]);
        let mut table = Table::new(header, 1);
        let endpoints = self.endpoints();
        for endpoint in &endpoints {
            let mut row = vec![endpoint.name.clone(), endpoint.requests.to_string()];
            row.push(time(endpoint.total.median()));
            row.push(time(endpoint.total.percentile(99.0)));
            let Endpoint { pending, waiting, host, queued, executing, .. } = endpoint;
            row.extend([pending, waiting, host, queued, executing].map(|stage| time(stage.mean())));
            row.push(time(endpoint.gpu_time.sum()));
            row.push(time(endpoint.gpu_time.percentile(99.0)));
            row.extend([endpoint.split_by_weight, endpoint.split_evenly].map(time));
            table.add_row(row);
        }
        writeln!(f, "{}", table.render(layout))?;
        write!(f, "Stages are means of a request. ")?;
        write!(f, "GPU time has parts of batches: split by declared weights, or evenly.")?;
        let open: u64 = endpoints.iter().map(|endpoint| endpoint.open).sum();
        if open != 0 {
            write!(f, "\n{open} requests had not ended, and count in no statistic.")?;
        }
        Ok(())
    }
}

display_by_default_layout!(Requests<'_>);

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn parts_add_up_and_follow_the_weights() {
        let parts = |ns, weights: &[f64]| split(ns, weights).collect::<Vec<_>>();
        assert_eq!(parts(100, &[1.0, 3.0]), [25, 75]);
        assert_eq!(parts(10, &[1.0; 3]), [3, 4, 3]);
        assert_eq!(parts(1, &[1.0; 3]), [0, 1, 0]);
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..1_000 {
            let weights: Vec<f64> =
                (0..1 + random.usize(..20)).map(|_| random.f64() + 1e-9).collect();
            let bits = random.u32(1..60);
            let whole = random.u64(..1 << bits);
            assert_eq!(split(whole, &weights).sum::<u64>(), whole, "{weights:?}");
        }
    }

    #[test]
    fn stages_add_up_and_running_counts_before_waiting() {
        let span = |submitted_ns, start_ns, end_ns| GpuSpan { submitted_ns, start_ns, end_ns };
        // Started at 100, first worked on at 120, ended at 200.
        let spans = vec![span(130, 150, 170), span(140, 170, 180)];
        let stages = Stages::new(100, &[(120, 200)], 200, spans.clone());
        let expected = Stages {
            pending_ns: 20,
            waiting_ns: 0,
            queued_ns: 20,
            executing_ns: 30,
            total_ns: 100,
        };
        assert_eq!(stages, expected);
        // Attended in parts, also by two threads at once: host time is 5 of 120 to 130 and 8 of 180 to 200.
        let attended = [(120, 125), (160, 165), (185, 190), (187, 193)];
        let stages = Stages::new(100, &attended, 200, spans);
        assert_eq!(stages, Stages { waiting_ns: 17, ..expected });
        // Work that is overlapped, and ends after the request.
        let spans = vec![span(110, 110, 250), span(120, 200, 300)];
        let stages = Stages::new(100, &[(100, 200)], 200, spans);
        let expected = Stages { executing_ns: 190, total_ns: 200, ..Stages::default() };
        assert_eq!(stages, expected);
        // Nobody worked on it.
        let stages = Stages::new(100, &[], 200, Vec::new());
        assert_eq!((stages.pending_ns, stages.total_ns), (100, 100));
        // A clock error puts its work before it, and before a thread worked on it.
        let spans = vec![span(10, 20, 130), span(135, 140, 155)];
        let stages = Stages::new(100, &[(150, 160)], 160, spans);
        let expected =
            Stages { pending_ns: 5, waiting_ns: 0, queued_ns: 5, executing_ns: 45, total_ns: 60 };
        assert_eq!(stages, expected);
    }
}
