//! GPU projections of ranges: from the start of their first operation to the end of their last.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::overlay::{self, Overlay, Times};
use super::spans::Style;
use super::spans::{Prefixes, RangeStack, Span, Spans};
use super::sums::TimeSummary;
use super::table::{Unit, computed_row, row};
use super::texts::{OperationTexts, kernel_details};
use super::{Report, Reports};
use profiler_base::distinct::Texts;
use profiler_core::tables::range_tree::Tree;
use profiler_core::tables::{Call, CallId, Interval, RangeId, Tables, ThreadId};

const NO_WORK: &str = "no GPU operation was submitted in a range";

row! {
    /// All ranges of one name and style with GPU work: a row of `nvtx_gpu_proj_sum`.
    pub(crate) NvtxGpuProjSum = "nvtx_gpu_proj_sum" {
        /// The domain and name: `domain:name`, in the default domain `:name`.
        range: Arc<str> => "Range" Plain,
        /// The NVTX style.
        style: Style => "Style" Plain,
        /// Statistics of the times from the first operation to the end of the last, including idle
        /// time.
        projected: TimeSummary =>
            |row, cells| cells.add("Total Proj Time", Unit::Duration, row.projected.total_ns),
        /// The host time of ranges with work.
        total_range_ns: u64 => "Total Range Time" Duration,
        /// The number of ranges with work.
        range_instances: u64 => |row, cells| {
            let names = ["Proj Avg", "Proj Med", "Proj Min", "Proj Max", "Proj StdDev"];
            cells.add("Range Instances", Unit::Plain, row.range_instances);
            cells.add_spread(names, Some(&row.projected))
        },
        /// The number of calls that submitted work, in them and in ranges within; a graph launch
        /// counts once.
        total_gpu_ops: u64 => "Total GPU Ops" Plain,
        /// The mean of these calls per range.
        avg_gpu_ops: f64 => "Avg GPU Ops" Plain,
        /// The mean number of ranges around each range.
        avg_range_level: f64 => "Avg Range Lvl" Plain,
        /// The mean number of direct children with work.
        avg_num_children: f64 => "Avg Num Child" Plain,
    }
}

computed_row! {
    /// One range with GPU work: a row of `nvtx_gpu_proj_trace`.
    NvtxGpuProjTrace = "nvtx_gpu_proj_trace" from (reports: Reports<'_>, spans: &Spans, span: &Span, of: &ProjectedSpan, range_stack: RangeStack) {
        /// The domain and name: `domain:name`, in the default domain `:name`.
        name: Arc<str> = spans.name(span).clone() => "Name" Plain,
        /// The start of its first operation on the GPU.
        projected_start_ns: i64 = reports.at(of.work.time.start_ns) => "Projected Start" Time,
        /// The time from there to the end of its last operation, including idle time.
        projected_duration_ns: u64 = of.work.time.ns() => "Projected Duration" Duration,
        /// The start on the host.
        original_start_ns: i64 = reports.at(span.time.start_ns) => "Orig Start" Time,
        /// The duration on the host.
        original_duration_ns: u64 = span.time.ns() => "Orig Duration" Duration,
        /// The NVTX style.
        style: Style = span.style => "Style" Plain,
        /// The operating system's id of the process.
        pid: u32 = reports.pid(reports.thread(span.thread).process) => "PID" Plain,
        /// The operating system's id of the thread.
        tid: u32 = reports.thread(span.thread).id => "TID" Plain,
        /// The number of calls that submitted work, in it and in ranges within; a graph launch
        /// counts once.
        num_gpu_ops: u64 = of.work.calls => "NumGPUOps" Plain,
        /// The number of ranges around it.
        level: u32 = span.level => "Lvl" Plain,
        /// The number of direct children with work.
        num_children: u64 = of.children => "NumChild" Plain,
        /// The number of the range: nsys's number, or by start if it has none.
        range_id: u64 = span.number => "RangeId" Plain,
        /// The number of the parent range.
        parent_id: Option<u64> = spans.parent_number(span) => "ParentId" Plain,
        /// The numbers of the ranges around it, then its own: `:1:2`.
        range_stack: RangeStack = range_stack => "RangeStack" Plain,
    }
}

row! {
    /// Kernels of one name launched in ranges of one name by one thread: a row of `nvtx_kern_sum`.
    ///
    /// A kernel counts in every range around its launch. In two ranges of one name, its time counts
    /// twice.
    pub(crate) NvtxKernSum = "nvtx_kern_sum" {
        /// The ranges' domain and name; `None` for kernels launched outside ranges.
        nvtx_range: Option<Arc<str>> => "NVTX Range" Plain,
        /// The NVTX style of the ranges.
        style: Option<Style> => "Style" Plain,
        /// The operating system's id of the process that launched; `None` if the launch is unknown.
        pid: Option<u32> => "PID" Plain,
        /// The operating system's id of the thread that launched; `None` if the launch is unknown.
        tid: Option<u32> => "TID" Plain,
        /// The number of ranges.
        nvtx_instances: u64 => "NVTX Inst" Plain,
        /// The number of kernels.
        kernel_instances: u64 => "Kern Inst" Plain,
        /// Statistics of the kernels' durations.
        #[serde(flatten)]
        time: TimeSummary => |row, cells| {
            cells.add("Total Time", Unit::Duration, row.time.total_ns);
            cells.add_spread(["Avg", "Med", "Min", "Max", "StdDev"], Some(&row.time));
        },
        /// The kernel.
        kernel_name: Arc<str> => "Kernel Name" Plain,
    }
}

/// The work of a span.
#[derive(Debug, Clone, Copy)]
struct Projected {
    time: Interval,
    calls: u64,
}

impl Projected {
    fn add(&mut self, time: Interval) {
        self.time.start_ns = self.time.start_ns.min(time.start_ns);
        self.time.end_ns = self.time.end_ns.max(time.end_ns);
    }

    fn merged(mut self, other: Self) -> Self {
        self.add(other.time);
        self.calls += other.calls;
        self
    }
}

fn merge(into: &mut Option<Projected>, other: Projected) {
    *into = Some(into.map_or(other, |into| into.merged(other)));
}

/// A kernel in a thread range: the range's position, the kernel's time, the range, the row.
type Placed = (usize, u64, RangeId, u32);

/// A span with work, and the number of its direct children with work.
struct ProjectedSpan {
    id: u32,
    work: Projected,
    children: u64,
}

/// Kernels of one name launched by a thread in process ranges of one name, or outside ranges.
#[derive(Default)]
struct KernelSum {
    times: Vec<u64>,
    spans: Vec<u32>,
    kernels: u64,
    last: Option<u32>,
}

/// The name and style of a range, the thread and the kernel.
type KernelKey = (Option<(u32, Style)>, Option<ThreadId>, u32);

/// Kernels by the ranges around their launches.
#[derive(Default)]
struct KernelsInRanges {
    /// Kernels in process ranges or outside ranges, and in thread ranges if some of these cross. By
    /// range name and style, thread and kernel.
    sums: FxHashMap<KernelKey, KernelSum>,
    /// Kernels in ranges of threads, if no ranges cross. By thread and kernel.
    placed: FxHashMap<(ThreadId, u32), Vec<Placed>>,
    /// Kernels without a time.
    left_out: u64,
}

impl Reports<'_> {
    /// The thread ranges around a call, innermost first.
    fn ranges_around(self, spans: &Spans, call: &Call) -> impl Iterator<Item = RangeId> {
        let (store, tree) = (self.store(), &self.profile.range_tree());
        let innermost = spans.range_around(call);
        let late = innermost.and_then(|_| tree.late_chain(store, call));
        let all = innermost.filter(|_| late.is_none());
        let parent = |range: &RangeId| store.ranges[range.at()].parent.get();
        late.into_iter().flatten().chain(std::iter::successors(all, parent))
    }

    fn projected(self, spans: &Spans) -> Vec<ProjectedSpan> {
        let store = self.store();
        let mut of_calls: Vec<Option<Projected>> = vec![None; store.calls.len()];
        let mut of_repeated: FxHashMap<CallId, (&[Call], Projected)> = FxHashMap::default();
        for operation in self.operations() {
            if let (Some(call), Some(time)) = (operation.call.get(), operation.time()) {
                let calls = store.calls_of(operation);
                if calls.len() > 1 {
                    let one = Projected { time, calls: 1 };
                    let (_, of) = of_repeated.entry(call).or_insert((calls, one));
                    of.add(time);
                    continue;
                }
                // Operations of one call count once, like in nsys.
                let of = &mut of_calls[call.at()];
                let calls = u64::from(of.is_none());
                merge(of, Projected { time, calls });
            }
        }
        let mut of_spans: Vec<Option<Projected>> = vec![None; spans.all.len()];
        let mut late: Vec<(&Call, Projected)> = Vec::new();
        let mut of_threads: FxHashMap<ThreadId, Vec<(Interval, Projected)>> = FxHashMap::default();
        for (call, of) in store.calls.iter().zip(of_calls) {
            let Some(of) = of else { continue };
            if let Some(range) = spans.range_around(call) {
                match self.profile.range_tree().late_chain(store, call) {
                    None => merge(&mut of_spans[range.at()], of),
                    Some(_) => late.push((call, of)),
                }
            }
            of_threads.entry(call.thread).or_default().push((call.time, of));
        }
        for (thread, process) in spans.of_process() {
            let mut calls = of_threads.remove(&thread).unwrap_or_default();
            calls.sort_unstable_by_key(|(time, _)| time.start_ns);
            let mut ends: Vec<u64> = calls.iter().map(|(time, _)| time.end_ns).collect();
            ends.sort_unstable();
            let mut begun = Prefixes::new(ends.len());
            // In reverse, calls that began at or after a span's start are added before the span.
            for (time, span) in process.iter().rev() {
                while let Some((call, of)) =
                    calls.pop_if(|(call, _)| call.start_ns >= time.start_ns)
                {
                    let place = ends.partition_point(|&end| end < call.end_ns);
                    begun.add(place, of, Projected::merged);
                }
                let until = ends.partition_point(|&end| end <= time.end_ns);
                of_spans[*span as usize] = begun.up_to(until, Projected::merged);
            }
        }
        let mut order: Vec<RangeId> = (0..store.ranges.len() as u32).map(RangeId).collect();
        order.sort_by_key(|&range| store.order(range));
        // In reverse, each range is complete when added to its parent.
        for range in order.into_iter().rev() {
            if let (Some(of), Some(parent)) =
                (of_spans[range.at()], store.ranges[range.at()].parent.get())
            {
                merge(&mut of_spans[parent.at()], of);
            }
        }
        for (call, of) in late {
            let chain = self.profile.range_tree().late_chain(store, call).into_iter().flatten();
            chain.for_each(|range| merge(&mut of_spans[range.at()], of));
        }
        // Several calls with one correlation id count once in each range around them.
        for (calls, of) in of_repeated.into_values() {
            let mut around = FxHashSet::default();
            for call in calls {
                around.extend(self.ranges_around(spans, call).map(|range| range.0));
                around.extend(spans.process_around(call));
            }
            around.into_iter().for_each(|span| merge(&mut of_spans[span as usize], of));
        }
        let mut children = vec![0; spans.all.len()];
        for (span, _) in spans.all.iter().zip(&of_spans).filter(|(_, of)| of.is_some()) {
            if let Some(parent) = span.parent {
                children[parent as usize] += 1;
            }
        }
        let projected = (0..).zip(of_spans).zip(children);
        projected
            .filter_map(|((id, work), children)| Some(ProjectedSpan { id, work: work?, children }))
            .collect()
    }

    /// Returns ranges with GPU work by name, sorted by total (longest first), then by name.
    pub(crate) fn nvtx_gpu_proj_sum(self) -> Report<NvtxGpuProjSum> {
        #[derive(Default)]
        struct Sum {
            projected: Vec<u64>,
            range_ns: u64,
            calls: u64,
            levels: u64,
            children: u64,
        }
        let spans = Spans::new(self, true);
        let mut texts = Texts::default();
        let names: Vec<u32> = spans.names.iter().map(|name| texts.text(name)).collect();
        let mut sums: FxHashMap<(u32, Style), Sum> = FxHashMap::default();
        for ProjectedSpan { id, work, children } in self.projected(&spans) {
            let span = &spans.all[id as usize];
            let sum = sums.entry((names[span.label as usize], span.style)).or_default();
            sum.projected.push(work.time.ns());
            sum.range_ns = sum.range_ns.saturating_add(span.time.ns());
            sum.calls += work.calls;
            sum.levels += u64::from(span.level);
            sum.children += children;
        }
        let row = |((name, style), sum): ((u32, Style), Sum)| {
            let instances = sum.projected.len() as u64;
            let count = instances as f64;
            Some(NvtxGpuProjSum {
                range: texts.get(name).clone(),
                style,
                projected: TimeSummary::from_values(sum.projected)?,
                total_range_ns: sum.range_ns,
                range_instances: instances,
                total_gpu_ops: sum.calls,
                avg_gpu_ops: sum.calls as f64 / count,
                avg_range_level: sum.levels as f64 / count,
                avg_num_children: sum.children as f64 / count,
            })
        };
        let mut rows: Vec<NvtxGpuProjSum> = sums.into_iter().filter_map(row).collect();
        rows.sort_by(|a, b| {
            let by_time = b.projected.total_ns.cmp(&a.projected.total_ns);
            by_time.then_with(|| (&a.range, a.style).cmp(&(&b.range, b.style)))
        });
        let left_out = self.without_time(|row| row.call.get().is_some());
        Report::new(rows, NO_WORK).leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    /// Returns every range with GPU work by start on the host; among simultaneous ones the longest
    /// first.
    pub(crate) fn nvtx_gpu_proj_trace(self) -> Report<NvtxGpuProjTrace> {
        let spans = Spans::new(self, true);
        let levels = spans.levels();
        let row = |of: ProjectedSpan| {
            let range_stack = RangeStack::new(&levels, of.id);
            NvtxGpuProjTrace::new(self, &spans, &spans.all[of.id as usize], &of, range_stack)
        };
        let mut rows: Vec<NvtxGpuProjTrace> = self.projected(&spans).into_iter().map(row).collect();
        rows.sort_by_key(|row| {
            let longest_first = std::cmp::Reverse(row.original_duration_ns);
            (row.original_start_ns, longest_first, row.range_id)
        });
        let left_out = self.without_time(|row| row.call.get().is_some());
        Report::new(rows, NO_WORK).leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    /// Finds the ranges around the launches of all kernels. `names` contains the name of each
    /// label.
    fn kernels_in_ranges(
        self,
        spans: &Spans,
        names: &[u32],
        kernels: &mut OperationTexts<'_>,
    ) -> KernelsInRanges {
        let (store, tree) = (self.store(), &self.profile.range_tree());
        let mut found = KernelsInRanges::default();
        for (row, operation) in (0_u32..).zip(&store.operations) {
            if kernel_details(store, operation).is_none() {
                continue;
            }
            let Some(time) = operation.time() else {
                found.left_out += 1;
                continue;
            };
            let kernel = kernels.index(operation);
            let mut add = |thread: Option<ThreadId>, span: Option<u32>| {
                let name = span.map(|span| &spans.all[span as usize]);
                let name = name.map(|span| (names[span.label as usize], span.style));
                let sum = found.sums.entry((name, thread, kernel)).or_default();
                sum.times.push(time.ns());
                sum.spans.extend(span);
                sum.kernels += u64::from(sum.last != Some(row));
                sum.last = Some(row);
            };
            let calls = store.calls_of(operation);
            if calls.is_empty() {
                add(None, None);
            }
            for call in calls {
                let mut is_in_none = true;
                if tree.crossings().is_some() {
                    for range in self.ranges_around(spans, call) {
                        is_in_none = false;
                        add(Some(call.thread), Some(range.0));
                    }
                } else if let Some(range) = spans.range_around(call) {
                    is_in_none = false;
                    let of = found.placed.entry((call.thread, kernel)).or_default();
                    of.push((tree.places(range).start, time.ns(), range, row));
                }
                for span in spans.process_around(call) {
                    is_in_none = false;
                    add(Some(call.thread), Some(span));
                }
                if is_in_none {
                    add(Some(call.thread), None);
                }
            }
        }
        found
    }

    /// Returns kernels by range, thread and name, sorted by range, then by thread, then by total
    /// (longest first).
    pub(crate) fn nvtx_kern_sum(self) -> Report<NvtxKernSum> {
        let store = self.store();
        let spans = Spans::new(self, true);
        let mut texts = Texts::default();
        let names: Vec<u32> = spans.names.iter().map(|name| texts.text(name)).collect();
        let mut kernels = OperationTexts::new(Self { with_range: false, ..self });
        let KernelsInRanges { sums, placed, left_out } =
            self.kernels_in_ranges(&spans, &names, &mut kernels);
        let row = |named: Option<(u32, Style)>, thread: Option<ThreadId>, kernel, sum: Overlay| {
            let thread = thread.map(|thread| self.thread(thread));
            NvtxKernSum {
                nvtx_range: named.map(|(name, _)| texts.get(name).clone()),
                style: named.map(|(_, style)| style),
                pid: thread.map(|thread| self.pid(thread.process)),
                tid: thread.map(|thread| thread.id),
                nvtx_instances: sum.spans,
                kernel_instances: sum.values,
                time: sum.summary,
                kernel_name: kernels.get(kernel),
            }
        };
        let mut rows = Vec::with_capacity(sums.len());
        for ((name, thread, kernel), mut sum) in sums {
            sum.spans.sort_unstable();
            sum.spans.dedup();
            let (spans, values) = (sum.spans.len() as u64, sum.kernels);
            let Some(summary) = TimeSummary::from_values(sum.times) else { continue };
            rows.push(row(name, thread, kernel, Overlay { spans, values, summary }));
        }
        let mut placed: Vec<_> = placed.into_iter().collect();
        placed.iter_mut().for_each(|(_, of)| of.sort_unstable());
        let by_names = self.by_names(placed.iter().map(|(_, of)| &of[..]), |range| {
            names[store.ranges[range.at()].label.at()]
        });
        for (((thread, kernel), of), by_name) in placed.into_iter().zip(by_names) {
            let values = of.iter().map(|(_, ns, ..)| *ns).collect();
            let named: Vec<_> = by_name.into_iter().collect();
            let (names, spans): (Vec<_>, Vec<_>) = named.into_iter().unzip();
            // A kernel with several calls in ranges of one name counts once.
            let kernels: Option<Vec<u64>> = (!store.repeated_calls.is_empty()).then(|| {
                let count = |spans: &Vec<Times>| {
                    let rows = overlay::places(spans).flat_map(|places| &of[places]);
                    rows.map(|(.., row)| *row).collect::<FxHashSet<_>>().len() as u64
                };
                spans.iter().map(count).collect()
            });
            for (at, (name, mut sum)) in
                names.into_iter().zip(overlay::sums(values, spans)).enumerate()
            {
                sum.values = kernels.as_ref().map_or(sum.values, |kernels| kernels[at]);
                rows.push(row(Some((name, Style::PushPop)), Some(thread), kernel, sum));
            }
        }
        rows.sort_by(|a, b| {
            let by_range = a.nvtx_range.cmp(&b.nvtx_range);
            by_range
                .then((a.pid, a.tid).cmp(&(b.pid, b.tid)))
                .then(b.time.total_ns.cmp(&a.time.total_ns))
                .then_with(|| (a.style, &a.kernel_name).cmp(&(b.style, &b.kernel_name)))
        });
        Report::new(rows, "no kernel was recorded").leaving_out(left_out)
    }
    /// For each group of kernels sorted by position: by name, the kernels in ranges of that name. A
    /// range handed to other threads may have many groups below it.
    fn by_names<'a>(
        self,
        groups: impl Iterator<Item = &'a [Placed]>,
        name_of: impl Fn(RangeId) -> u32,
    ) -> Vec<FxHashMap<u32, Vec<Times>>> {
        let (store, tree) = (self.store(), &self.profile.range_tree());
        let outer = Outer::new(store, tree);
        let mut by_names = Vec::new();
        let mut chains = Vec::new();
        for (group, of) in groups.enumerate() {
            by_names.push(FxHashMap::<u32, Vec<Times>>::default());
            outer.chains(tree, of, |inner, end| chains.push((inner, end, group, of)));
        }
        chains.sort_by_key(|(inner, ..)| tree.places(*inner).start);
        let mut chains = chains.into_iter().peekable();
        // The open ranges, and the depths of the open ranges of each name.
        let mut open: Vec<RangeId> = Vec::new();
        let mut open_names: Vec<u32> = Vec::new();
        let mut depths: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for range in tree.ranges() {
            let place = tree.places(range).start;
            while let Some(last) = open.pop_if(|last| tree.places(*last).end <= place) {
                let of_name = depths.entry(name_of(last)).or_default();
                of_name.pop();
                if of_name.is_empty() {
                    open_names.pop();
                }
            }
            open.push(range);
            let of_name = depths.entry(name_of(range)).or_default();
            if of_name.is_empty() {
                open_names.push(name_of(range));
            }
            of_name.push(outer.depths[range.at()]);
            while let Some((inner, end, group, of)) = chains.next_if(|chain| chain.0 == range) {
                let places = tree.places(inner);
                let at = |end| of.partition_point(|(place, ..)| *place < end);
                let within = at(places.start)..at(places.end);
                let mut add = |name, times| {
                    by_names[group].entry(name).or_default().push((within.clone(), times));
                };
                let length = (outer.depths[inner.at()] - end) as usize;
                if length <= open_names.len() {
                    open.iter().rev().take(length).for_each(|range| add(name_of(*range), 1));
                    continue;
                }
                for &name in &open_names {
                    let depths = &depths[&name];
                    let times = depths.len() - depths.partition_point(|&depth| depth <= end);
                    if times > 0 {
                        add(name, times as u64);
                    }
                }
            }
        }
        by_names
    }
}

/// The ancestors of each range, with jump pointers to find any of them in logarithmic time.
struct Outer {
    /// The number of ranges around each range, plus 1.
    depths: Vec<u32>,
    /// The parent, and a more distant ancestor, reached by two equal jumps of the parent and one
    /// step.
    jumps: Vec<[Option<RangeId>; 2]>,
}

impl Outer {
    fn new(store: &Tables, tree: &Tree) -> Self {
        let count = store.ranges.len();
        let mut outer = Self { depths: vec![1; count], jumps: vec![[None; 2]; count] };
        for range in tree.ranges() {
            let parent = store.ranges[range.at()].parent.get();
            let Some(parent) = parent else { continue };
            let far = outer.far(Some(parent));
            let further = outer.far(far);
            let depth = |of| outer.depth(of);
            let is_even = depth(Some(parent)) - depth(far) == depth(far) - depth(further);
            outer.jumps[range.at()] = [Some(parent), if is_even { further } else { Some(parent) }];
            outer.depths[range.at()] = outer.depths[parent.at()] + 1;
        }
        outer
    }

    /// The depth of a range; 0 above all ranges.
    fn depth(&self, range: Option<RangeId>) -> u32 {
        range.map_or(0, |range| self.depths[range.at()])
    }

    fn far(&self, range: Option<RangeId>) -> Option<RangeId> {
        range.and_then(|range| self.jumps[range.at()][1])
    }

    /// The innermost range around a position, among a range and its ancestors.
    fn innermost(&self, tree: &Tree, range: RangeId, place: usize) -> Option<RangeId> {
        let is_around =
            |range: Option<RangeId>| range.is_none_or(|range| tree.places(range).contains(&place));
        let mut at = Some(range);
        while let Some(range) = at.filter(|range| !is_around(Some(*range))) {
            let [near, far] = self.jumps[range.at()];
            at = if is_around(far) { near } else { far };
        }
        at
    }

    /// Visits the ranges around kernels, each once, as chains with the same kernels: the innermost
    /// range of each chain, and the depth of its parent chain.
    fn chains(&self, tree: &Tree, of: &[Placed], mut chain: impl FnMut(RangeId, u32)) {
        let mut inner: Vec<Option<RangeId>> = Vec::new();
        for &(place, _, range, _) in of {
            let Some(&last) = inner.last() else {
                inner.push(Some(range));
                continue;
            };
            let common = last.and_then(|last| self.innermost(tree, last, place));
            let depth = self.depth(common);
            while let Some(last) = inner.pop_if(|last| self.depth(*last) > depth) {
                let end = inner.last().map_or(0, |outer| self.depth(*outer)).max(depth);
                if let Some(last) = last {
                    chain(last, end);
                }
            }
            for next in [common, Some(range)] {
                if inner.last() != Some(&next) {
                    inner.push(next);
                }
            }
        }
        while let Some(last) = inner.pop() {
            let end = inner.last().map_or(0, |outer| self.depth(*outer));
            if let Some(last) = last {
                chain(last, end);
            }
        }
    }
}
