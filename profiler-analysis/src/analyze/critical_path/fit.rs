//! The lags of edges: the deciding edge has its measured lag, the others the usual lag of their
//! kind.

use cupti::CallClass;
use profiler_base::statistics::upper_median;
use rustc_hash::FxHashMap;

use super::graph::{Builder, Edge, Link};
use profiler_core::tables::{CallId, Interval, OperationId, ThreadId};

/// The maximum slack of another operation that may hold an operation on the device. The slack is
/// the time between them, beyond the usual time between two operations of a stream.
const DEVICE_SLACK_NS: u64 = 2_000;
/// The time from the end of an operation to the start of the next queued one, for a recording
/// without an example. Kernels in a stream take about this on an H200.
const QUEUED_NS: u64 = 1_000;
/// The time from the start of a call to the start of its operation, if no launch of the recording
/// was waited for. About the maximum of a launch on an H200.
const LAUNCHED_NS: u64 = 10_000;
/// The minimum duration of a long call. A long call that allocates or frees and returns soon after
/// work ends has waited for the GPU. A long launch submits its operation at its end, if the
/// operation starts only then.
pub(super) const LONG_CALL_NS: u64 = 10_000;

/// A wait of the host: the call, and its edges.
pub(super) struct Return {
    pub(super) call: CallId,
    pub(super) edges: std::ops::Range<usize>,
}

/// The usual lag of each class of edges, by class.
struct Usual {
    /// The median over edges that decided a start.
    median: Vec<Option<u64>>,
    /// The minimum over all edges.
    least: Vec<Option<u64>>,
    /// The median over all launches that decided.
    launch: Option<u64>,
}

impl Usual {
    fn new(classes: usize) -> Self {
        Self { median: vec![None; classes], least: vec![None; classes], launch: None }
    }

    fn duration(&self, edge: &Edge) -> u64 {
        let class = edge.class as usize;
        let least = || self.least[class].unwrap_or_default();
        let unseen = || match edge.link {
            Link::Stream(_) | Link::Event(_) | Link::Graph(_) => least().min(QUEUED_NS),
            // The minimum was hidden as well: it is no shorter than the edge that hid it.
            Link::Launch(_) => least().min(self.launch.unwrap_or(LAUNCHED_NS)),
            _ => least(),
        };
        self.median[class].unwrap_or_else(unseen).min(edge.lag)
    }

    /// Computes the usual lags of each class with samples.
    fn learn(&mut self, samples: Vec<Vec<u64>>) {
        for (known, lags) in self.median.iter_mut().zip(samples) {
            *known = upper_median(lags).or(*known);
        }
    }
}

/// Converts edge numbers to indices of all edges.
fn rows(edges: &std::ops::Range<u32>) -> std::ops::Range<usize> {
    edges.start as usize..edges.end as usize
}

/// Finds the edge that each operation waited for last, and leaves its measured lag. The other edges
/// get the usual lag of their class, or their measured lag if smaller.
pub(super) fn fit_starts(builder: &mut Builder<'_>, starts: &[std::ops::Range<u32>]) {
    let mut usual = Usual::new(builder.classes());
    for edge in starts.iter().flat_map(|edges| &builder.edges[rows(edges)]) {
        let least = &mut usual.least[edge.class as usize];
        *least = Some(least.map_or(edge.lag, |least| edge.lag.min(least)));
    }
    // Launches first: an operation certainly follows another one only if the launch had its usual
    // time.
    let is_launch = |edge: &Edge| matches!(edge.link, Link::Launch(_));
    for launches in [true, false] {
        let mut samples: Vec<Vec<u64>> = vec![Vec::new(); builder.classes()];
        for edges in starts {
            let edges = &builder.edges[rows(edges)];
            let begun = |edge: &Edge| {
                let launched = if is_launch(edge) && !launches { usual.duration(edge) } else { 0 };
                submitted(builder, edge).max(builder.times[edge.from as usize] + launched)
            };
            let Some(last) = edges.iter().max_by_key(|edge| begun(edge)) else { continue };
            if is_launch(last) == launches {
                samples[last.class as usize].push(last.lag);
            }
        }
        if launches {
            usual.launch = upper_median(samples.iter().flatten().copied().collect());
        }
        usual.learn(samples);
    }
    let device_ends = DeviceEnds::new(builder);
    let gap = usual.median.iter().flatten().min().copied().unwrap_or_default();
    let gap = gap.min(DEVICE_SLACK_NS);
    let mut more = Vec::new();
    for range in starts.iter().map(rows) {
        let edges = &mut builder.edges[range.clone()];
        for edge in edges.iter_mut() {
            edge.lag = usual.duration(edge);
        }
        let reached = |edge: &Edge| builder.times[edge.from as usize] + edge.lag;
        let Some(at) = (0..edges.len()).max_by_key(|at| (reached(&edges[*at]), *at)) else {
            continue;
        };
        let (to, explained) = (edges[at].to, reached(&edges[at]));
        let start_ns = builder.times[to as usize];
        let is_late = start_ns > explained + gap + DEVICE_SLACK_NS;
        let held = is_late.then(|| device_ends.before(builder, to, start_ns)).flatten();
        match held
            .filter(|(_, end_ns)| *end_ns > explained && start_ns - end_ns <= gap + DEVICE_SLACK_NS)
        {
            Some((end, _)) => more.push((end, to)),
            None => {
                // A long call that returned after everything else had ended took that long to
                // launch.
                let is_launch =
                    |edge: &Edge| is_launch(edge) && submitted(builder, edge) > explained;
                let launch = builder.edges[range.clone()].iter().position(is_launch);
                let launch = launch.filter(|_| is_late);
                let is_late = is_late && launch.is_none();
                let edge = &mut builder.edges[range.start + launch.unwrap_or(at)];
                edge.lag = start_ns - builder.times[edge.from as usize];
                builder.assumptions.late_starts += u64::from(is_late);
            }
        }
    }
    for (end, to) in more {
        let class = builder.class(6, [0; 3]);
        let id = device_ends.operation(to);
        builder.assumptions.inferred_on_device += 1;
        builder.add(end, to, Link::Device(id), class);
    }
}

/// The time at which the source of an edge had happened. For a launch: the call's start. For a long
/// call whose operation started only at its return: the return.
fn submitted(builder: &Builder<'_>, edge: &Edge) -> u64 {
    let call = match edge.link {
        Link::Launch(id) => builder.store.operations[id.at()].call.get(),
        _ => None,
    };
    let time = call.map(|call| builder.store.calls[call.at()].time);
    let is_long =
        |time: &Interval| time.ns() > LONG_CALL_NS && time.end_ns <= builder.time(edge.to);
    let returned_ns = time.filter(is_long).map(|time| time.end_ns);
    returned_ns.unwrap_or_else(|| builder.time(edge.from))
}

/// The operations of each device by their ends.
struct DeviceEnds {
    by_device: FxHashMap<(u32, u32), Vec<(u64, OperationId)>>,
    first: u32,
}

impl DeviceEnds {
    fn new(builder: &Builder<'_>) -> Self {
        let store = builder.store;
        let mut by_device: FxHashMap<(u32, u32), Vec<(u64, OperationId)>> = FxHashMap::default();
        for (id, row) in (0..).map(OperationId).zip(&store.operations) {
            let (work, Some(time)) = (store.work(row), row.time()) else { continue };
            by_device.entry((work.process, work.place.device)).or_default().push((time.end_ns, id));
        }
        by_device.values_mut().for_each(|ends| ends.sort_unstable());
        Self { by_device, first: builder.start_of(OperationId(0)) }
    }

    fn operation(&self, start: u32) -> OperationId {
        OperationId((start - self.first) / 2)
    }

    /// Finds the operation of the same device that ended last before a start.
    fn before(&self, builder: &Builder<'_>, start: u32, start_ns: u64) -> Option<(u32, u64)> {
        let store = builder.store;
        let id = self.operation(start);
        let work = store.work(&store.operations[id.at()]);
        let ends = self.by_device.get(&(work.process, work.place.device))?;
        let after = ends.partition_point(|(end, _)| *end <= start_ns);
        let (end_ns, other) = *ends.get(after.checked_sub(1)?)?;
        (other != id).then(|| (builder.start_of(other) + 1, end_ns))
    }
}

/// Divides the time of waiting calls into waiting and own time.
pub(super) fn fit_returns(builder: &mut Builder<'_>, returns: &[Return]) {
    let store = builder.store;
    let mut least: FxHashMap<u32, u64> = FxHashMap::default();
    for call in store.calls.iter().filter(|call| store.call_kind(call).has_returned) {
        let least = least.entry(call.kind.0).or_insert(u64::MAX);
        *least = call.time.ns().min(*least);
    }
    let mut samples: Vec<Vec<u64>> = vec![Vec::new(); builder.classes()];
    let lasts = returns.iter().filter_map(|of| {
        let edges = &builder.edges[of.edges.clone()];
        let edge = edges.iter().max_by_key(|edge| builder.times[edge.from as usize])?;
        let is_waited_for =
            builder.times[edge.from as usize] > store.calls[of.call.at()].time.start_ns;
        Some((of, *edge, is_waited_for))
    });
    let lasts: Vec<_> = lasts.collect();
    for (_, edge, _) in lasts.iter().filter(|(.., is_waited_for)| *is_waited_for) {
        samples[edge.class as usize].push(edge.lag);
    }
    let mut usual = Usual::new(builder.classes());
    usual.learn(samples);
    for (of, last, is_waited_for) in lasts {
        for edge in &mut builder.edges[of.edges.clone()] {
            edge.lag = if is_waited_for && edge.from == last.from {
                last.lag
            } else {
                usual.duration(edge)
            };
        }
        if !is_waited_for {
            continue;
        }
        let call = &store.calls[of.call.at()];
        let waited = call.time.ns().saturating_sub(last.lag);
        // A blocking copy submits its operation first.
        let began = match last.link {
            Link::Wait(id)
                if store.call_kind(&store.calls[id.at()]).class != CallClass::Synchronize =>
            {
                builder.time(last.from - 1).saturating_sub(call.time.start_ns)
            }
            _ => 0,
        };
        let least = least.get(&call.kind.0).copied().unwrap_or_default();
        let own = (call.time.ns() - waited + began).min(least);
        let (thread, time) = (call.thread, call.time);
        keep_own_time(builder, thread, (time.start_ns, time.end_ns), own);
    }
}

/// Limits a thread's own time between two times to this length, at the beginning.
fn keep_own_time(builder: &mut Builder<'_>, thread: ThreadId, time: (u64, u64), mut own_ns: u64) {
    let points = &builder.threads[thread.at()];
    let [first, last] = [time.0, time.1].map(|ns| points.from(&builder.times, ns));
    let (Some(first), Some(last)) = (first, last) else { return };
    for point in first + 1..=last {
        if let Some(edge) = builder.own_time_to(thread, point) {
            edge.lag = edge.lag.min(own_ns);
            own_ns -= edge.lag;
        }
    }
}
