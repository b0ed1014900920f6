//! GPU work and idle time as weighted stacks: the table behind flame graphs, pprof and OTLP
//! profiles.
//!
//! A stack has the thread that submitted the work or the stream that ran it, then the path of its
//! range, then the operation: `process 7 > thread 9 > step > forward > gemm`.
//! [`Profile::stacks`](crate::prelude::ProfileExt::stacks) makes the table. In stacks of idle time,
//! the host's functions and the cause replace the operation:
//! [`Profile::idle_stacks`](crate::prelude::ProfileExt::idle_stacks). In stacks of instruction samples,
//! the kernel has a line: [`Profile::sample_stacks`](crate::prelude::ProfileExt::sample_stacks).

use std::borrow::Cow;
use std::time::Duration;

use profiler_base::distinct::Distinct;
use profiler_base::named_variants;
use profiler_base::text::printable;
use profiler_base::units::nanoseconds;
use rustc_hash::FxHashMap;

use super::places::{self, Place, StreamNames};
use profiler_core::profile::{GpuOperation, HostState, OperationKind, Process, Profile, RangeNode};
use profiler_core::query::GapPart;
use profiler_core::tables::range_tree::NodeId;

named_variants! {
    /// The outer frames of stacks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum StackRoot with key in ALL {
        /// None: a stack begins with the outermost range. Work of all threads and processes with
        /// one path forms one stack.
        Ranges = "ranges",
        /// The process and the host thread that submitted the work.
        Threads = "threads",
        /// The process, the device and the stream that executed the work.
        Streams = "streams",
    }
}

named_variants! {
    /// The quantity of a flame graph's width or a sample's value.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum StackWeight with key in ALL {
        /// The sum of the operations' GPU times in nanoseconds.
        GpuTime = "gpu_time" and "nanoseconds",
        /// The number of operations, including those without timestamps.
        Operations = "gpu_operations" and "count",
        /// The bytes that copies moved and memsets wrote.
        Bytes = "gpu_bytes" and "bytes",
        /// The time in which a device was idle, in nanoseconds.
        IdleTime = "gpu_idle_time" and "nanoseconds",
        /// The number of gaps, or of parts of gaps with this cause.
        Gaps = "gpu_gaps" and "count",
        /// The number of instruction samples.
        Samples = "gpu_samples" and "count",
    }
}

impl StackWeight {
    const OF_WORK: [Self; 3] = [Self::GpuTime, Self::Operations, Self::Bytes];
    const OF_IDLE_TIME: [Self; 2] = [Self::IdleTime, Self::Gaps];
    const OF_SAMPLES: [Self; 1] = [Self::Samples];

    /// The unit's name in pprof and OTLP: `nanoseconds`, `count`, `bytes`.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        self.second_text()
    }
}

/// The weights of a stack. Sums saturate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackWeights {
    /// The sum of the operations' GPU times; concurrent operations add the time of each. Operations
    /// without timestamps add none.
    pub gpu_time: Duration,
    /// The number of operations.
    pub operations: u64,
    /// The bytes that copies moved and memsets wrote.
    pub bytes: u64,
    /// The time in which a device was idle.
    pub idle_time: Duration,
    /// The number of gaps, or of parts of gaps.
    pub gaps: u64,
    /// The number of instruction samples.
    pub samples: u64,
}

impl StackWeights {
    /// Returns one of the weights; times are in nanoseconds.
    #[must_use]
    pub fn get(&self, weight: StackWeight) -> u64 {
        match weight {
            StackWeight::GpuTime => nanoseconds(self.gpu_time),
            StackWeight::Operations => self.operations,
            StackWeight::Bytes => self.bytes,
            StackWeight::IdleTime => nanoseconds(self.idle_time),
            StackWeight::Gaps => self.gaps,
            StackWeight::Samples => self.samples,
        }
    }

    fn add(&mut self, other: Self) {
        self.gpu_time = self.gpu_time.saturating_add(other.gpu_time);
        self.operations = self.operations.saturating_add(other.operations);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.idle_time = self.idle_time.saturating_add(other.idle_time);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.samples = self.samples.saturating_add(other.samples);
    }

    fn from_operation(operation: &GpuOperation<'_>) -> Self {
        let gpu_time = operation.gpu_time().unwrap_or_default();
        Self { gpu_time, operations: 1, bytes: places::bytes(operation), ..Self::default() }
    }
}

named_variants! {
    /// The kind of a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum FrameKind with key {
        /// A process.
        Process = "process",
        /// A host thread.
        Thread = "thread",
        /// A GPU.
        Device = "device",
        /// A stream of a GPU.
        Stream = "stream",
        /// A range, or the number of ranges that a long path omits.
        Range = "range",
        /// A kernel, by its [demangled name](profiler_core::profile::Kernel::demangled_name).
        Kernel = "kernel",
        /// A copy, by its direction.
        Copy = "copy",
        /// A memset.
        Memset = "memset",
        /// A CUDA graph traced as one interval.
        Graph = "graph",
        /// A function of the host, or an address without a known one.
        Function = "function",
        /// The state of a thread that did not run: a wait in a system call.
        State = "state",
        /// The cause of a device's idle time.
        Cause = "cause",
    }
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// The kind.
    pub kind: FrameKind,
    /// The name given by the program: any text, possibly empty or with control characters.
    pub name: Cow<'a, str>,
    /// The file and line of samples of a kernel.
    pub line: Option<(&'a str, u32)>,
}

impl<'a> Frame<'a> {
    fn new(kind: FrameKind, name: impl Into<Cow<'a, str>>) -> Self {
        Self { kind, name: name.into(), line: None }
    }

    /// The name for display: control and invisible characters are replaced, and a blank name is
    /// `(no name)`.
    #[must_use]
    pub fn label(&self) -> Cow<'_, str> {
        match self.name.trim().is_empty() {
            true => "(no name)".into(),
            false => printable(&self.name),
        }
    }

    /// The file and line for display: `gather.cu:12`.
    pub(super) fn place(&self) -> Option<String> {
        self.line.map(|(file, line)| format!("{}:{line}", printable(file)))
    }
}

/// A stack with the sums of its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The frames, outermost first. The last is the operation, or the cause of idle time.
    pub frames: Vec<Frame<'a>>,
    /// The sums of the operations with exactly these frames.
    pub weights: StackWeights,
}

/// The weighted stacks of a profile; [`Profile::stacks`](crate::prelude::ProfileExt::stacks) makes
/// it and has an example.
#[derive(Debug)]
pub struct Stacks<'a> {
    profile: &'a Profile,
    weights: &'static [StackWeight],
    /// The outer frames of each root, in order.
    roots: Vec<Vec<Frame<'a>>>,
    /// The frames behind the range's path: the operation, or functions and the cause.
    tails: Vec<Vec<Frame<'a>>>,
    /// Sorted by root, range and the names of the tail.
    rows: Vec<Row>,
    total: StackWeights,
}

#[derive(Debug, Clone)]
struct Row {
    root: usize,
    path: StackPath,
    /// An index in [`Stacks::tails`].
    tail: u32,
    weights: StackWeights,
}

/// The range, and the ranges that late work is attributed to, innermost first.
type StackPath = (Option<NodeId>, Option<Vec<NodeId>>);

/// Sums by root, path and tail.
type Sums = FxHashMap<(Root, StackPath, u32), StackWeights>;

/// The maximum number of names in unshortened paths of all stacks: the paths of a recursion have
/// quadratic length.
pub(super) const UNSHORTENED: usize = 100_000;

/// [`ProfileExt::stacks`](crate::prelude::ProfileExt::stacks).
pub(crate) fn stacks(profile: &Profile, root: StackRoot) -> Stacks<'_> {
    let mut names = OperationNames::default();
    let mut sums = Sums::default();
    let root_of = Roots::new(profile, root);
    for operation in profile.operations() {
        let node = operation.range().map(|range| range.node().id());
        let weights = StackWeights::from_operation(&operation);
        // Ranges that ended before the launch are left out of its stack.
        let late = operation.late_chain();
        let late = late.map(|chain| chain.map(|range| range.node().id()).collect());
        let key = (root_of.key(&operation), (node, late), names.index(&operation));
        sums.entry(key).or_default().add(weights);
    }
    let tails = names.frames.into_values().into_iter().map(|frame| vec![frame]).collect();
    Stacks::new(profile, &StackWeight::OF_WORK, &root_of, sums, tails)
}

/// [`ProfileExt::idle_stacks`](crate::prelude::ProfileExt::idle_stacks).
pub(crate) fn idle_stacks(profile: &Profile, root: StackRoot, shortest: Duration) -> Stacks<'_> {
    let mut sums = Sums::default();
    let root_of = Roots::new(profile, root);
    let mut tails = Distinct::default();
    profile.query().gaps(shortest).for_each_part(|gap, part| {
        let GapPart { cause, ns, stack, state, .. } = part;
        let functions = stack.map(|stack| stack.frames()).unwrap_or_default();
        let function = |name: String| Frame::new(FrameKind::Function, name);
        let mut tail: Vec<Frame<'_>> =
            functions.iter().rev().map(|frame| function(frame.to_string())).collect();
        if let Some(state) = state.filter(|state| *state != HostState::Running) {
            tail.push(Frame::new(FrameKind::State, state.to_string()));
        }
        tail.push(Frame::new(FrameKind::Cause, cause.reason.to_string()));
        let node = cause.range.node().map(|node| node.id());
        let weights = StackWeights {
            idle_time: Duration::from_nanos(ns),
            gaps: 1,
            ..StackWeights::default()
        };
        let key = (root_of.key(&gap.after()), (node, None), tails.row(tail));
        sums.entry(key).or_default().add(weights);
    });
    Stacks::new(profile, &StackWeight::OF_IDLE_TIME, &root_of, sums, tails.into_values())
}

/// [`ProfileExt::sample_stacks`](crate::prelude::ProfileExt::sample_stacks).
pub(crate) fn sample_stacks(profile: &Profile, root: StackRoot) -> Stacks<'_> {
    let root_of = Roots::new(profile, root);
    let mut tails = Distinct::default();
    let mut samples: FxHashMap<(Root, StackPath, u32), f64> = FxHashMap::default();
    let key = |operation: &GpuOperation<'_>| {
        (root_of.key(operation), operation.range().map(|range| range.node().id()))
    };
    for ((root, node), of) in profile.query().instructions_by(key) {
        for line in of.by_line() {
            let frame = Frame::new(FrameKind::Kernel, line.kernel.to_string());
            let tail = tails.row(vec![Frame { line: line.line, ..frame }]);
            *samples.entry((root, (node, None), tail)).or_default() += line.stalls.total();
        }
    }
    let sums = samples.into_iter().map(|(key, samples)| {
        (key, StackWeights { samples: samples.round() as u64, ..StackWeights::default() })
    });
    Stacks::new(profile, &StackWeight::OF_SAMPLES, &root_of, sums.collect(), tails.into_values())
}

impl<'a> Stacks<'a> {
    fn new(
        profile: &'a Profile,
        weights: &'static [StackWeight],
        root_of: &Roots<'a>,
        sums: Sums,
        tails: Vec<Vec<Frame<'a>>>,
    ) -> Self {
        let mut sums: Vec<_> = sums.into_iter().collect();
        let names =
            |at: u32| tails[at as usize].iter().map(|frame| (&frame.name, frame.kind, frame.line));
        sums.sort_unstable_by(|((root, path, at), _), ((other, other_path, other_at), _)| {
            (root, path).cmp(&(other, other_path)).then_with(|| names(*at).cmp(names(*other_at)))
        });
        let mut stacks = Stacks {
            profile,
            weights,
            roots: Vec::new(),
            tails: Vec::new(),
            rows: Vec::with_capacity(sums.len()),
            total: StackWeights::default(),
        };
        let mut last = None;
        for ((root, path, tail), weights) in sums {
            if last != Some(root) {
                stacks.roots.push(root_of.frames(root));
                last = Some(root);
            }
            let root = stacks.roots.len() - 1;
            stacks.total.add(weights);
            stacks.rows.push(Row { root, path, tail, weights });
        }
        stacks.tails = tails;
        stacks
    }
}

impl Stacks<'_> {
    /// The number of stacks.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The weights of these stacks; others are 0. The first is the main one.
    pub fn weights(&self) -> &'static [StackWeight] {
        self.weights
    }

    /// The sums of all stacks.
    pub fn total(&self) -> StackWeights {
        self.total
    }

    /// The stacks by root, path and name. Each iteration yields the same stacks.
    ///
    /// Paths with more than 128 ranges are shortened to the first and last 64 and the number
    /// between them, `…(7 more)…`. Shortening begins after such paths have used 100,000 names,
    /// because the paths of a recursion have quadratic length.
    pub fn iter(&self) -> impl Iterator<Item = Stack<'_>> {
        let mut unshortened = UNSHORTENED;
        self.rows.iter().map(move |row| {
            let mut frames = self.roots[row.root].clone();
            if let (Some(id), late) = &row.path {
                let node = |id: NodeId| self.profile.node(id);
                let names = match late {
                    None => path(node(*id), &mut unshortened),
                    Some(late) => late.iter().rev().map(|id| node(*id).name().into()).collect(),
                };
                let range = |name| Frame::new(FrameKind::Range, name);
                frames.extend(names.into_iter().map(range));
            }
            frames.extend_from_slice(&self.tails[row.tail as usize]);
            Stack { frames, weights: row.weights }
        })
    }

    /// The stacks as lines for flame graphs (inferno, flamegraph.pl, speedscope):
    /// `step;forward;gemm 4200`. In names `;` becomes `:`, and control characters are replaced.
    ///
    /// Stacks of weight 0 are included; some programs reject a file in which all are 0.
    pub fn folded(&self, weight: StackWeight) -> impl Iterator<Item = String> {
        self.iter().map(move |stack| {
            let texts = stack
                .frames
                .iter()
                .flat_map(|frame| [Some(frame.label().into_owned()), frame.place()]);
            let frames: Vec<_> = texts.flatten().map(|text| text.replace(';', ":")).collect();
            format!("{} {}", frames.join(";"), stack.weights.get(weight))
        })
    }
}

/// The names of a range's path, outermost first; shortened once the budget is used.
pub(super) fn path<'a>(node: RangeNode<'a>, unshortened: &mut usize) -> Vec<Cow<'a, str>> {
    let mut names = node.path_names();
    let depth = node.depth() + 1;
    if names.len() < depth && depth <= *unshortened {
        *unshortened -= depth;
        let around = node.ancestors().map(|node| node.name().into());
        names = std::iter::once(node.name().into()).chain(around).collect();
        names.reverse();
    }
    names
}

/// The root of an operation, as a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Root {
    None,
    /// By process; `None` without a known call.
    Thread(u32, Option<u32>),
    Stream {
        process: u32,
        place: Place,
    },
}

/// Finds and names roots.
struct Roots<'a> {
    profile: &'a Profile,
    by: StackRoot,
    /// Finds a process by its id.
    process: Box<dyn Fn(u32) -> Process<'a> + 'a>,
    /// By process and thread id.
    threads: FxHashMap<(u32, u32), &'a str>,
    streams: StreamNames,
}

impl<'a> Roots<'a> {
    fn new(profile: &'a Profile, by: StackRoot) -> Self {
        let threads = profile.tables().threads.iter();
        let named = threads
            .filter_map(|thread| Some(((thread.process, thread.id), thread.name.as_deref()?)));
        let streams = match by {
            StackRoot::Streams => StreamNames::from_places(
                profile.operations().map(|operation| Place::from_operation(&operation)),
            ),
            _ => StreamNames::default(),
        };
        let process = Box::new(profile.processes_by_id());
        Self { profile, by, process, threads: named.collect(), streams }
    }

    fn key(&self, operation: &GpuOperation<'_>) -> Root {
        match self.by {
            StackRoot::Ranges => Root::None,
            StackRoot::Threads => {
                let thread = operation.call().map(|call| call.thread_id());
                Root::Thread(operation.process_id(), thread)
            }
            StackRoot::Streams => {
                let place = Place::from_operation(operation);
                Root::Stream { process: place.process, place }
            }
        }
    }

    fn frames(&self, root: Root) -> Vec<Frame<'a>> {
        let frame = |kind, name: String| Frame::new(kind, name);
        let process = |id| {
            let name = match self.profile.process_id(id) {
                0 => "host".to_owned(),
                _ => (self.process)(id).to_string(),
            };
            frame(FrameKind::Process, name)
        };
        match root {
            Root::None => Vec::new(),
            Root::Thread(of, thread) => {
                let name = match thread {
                    Some(id) => places::thread_title(id, self.threads.get(&(of, id)).copied()),
                    None => "unknown thread".to_owned(),
                };
                vec![process(of), frame(FrameKind::Thread, name)]
            }
            Root::Stream { process: of, place } => {
                let device = places::device_title(self.profile, place.device);
                let stream = self.streams.name(self.profile, place);
                let device = frame(FrameKind::Device, device);
                vec![process(of), device, frame(FrameKind::Stream, stream)]
            }
        }
    }
}

/// The names of operations, each once.
#[derive(Default)]
struct OperationNames<'a> {
    frames: Distinct<Frame<'a>>,
    /// Kernels by their mangled names, since demangling costs microseconds.
    kernels: FxHashMap<&'a str, u32>,
}

impl<'a> OperationNames<'a> {
    fn index(&mut self, operation: &GpuOperation<'a>) -> u32 {
        if let Some(kernel) = operation.as_kernel() {
            if let Some(known) = self.kernels.get(kernel.name()) {
                return *known;
            }
            let frame = Frame::new(FrameKind::Kernel, kernel.demangled_name());
            let index = self.frames.row(frame);
            self.kernels.insert(kernel.name(), index);
            return index;
        }
        let kind = match operation.kind() {
            OperationKind::Copy => FrameKind::Copy,
            OperationKind::Graph => FrameKind::Graph,
            _ => FrameKind::Memset,
        };
        self.frames.row(Frame::new(kind, places::other_name(operation)))
    }
}
