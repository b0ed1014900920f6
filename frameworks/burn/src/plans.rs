//! From the plans that burn runs to the ranges that issued their operations.
//!
//! Tensor ids come from one counter, on the thread that issues an operation. So the range of an operation is the one that was
//! open when its output got its id. Burn reports the operations of a plan before it runs it, and not which kernel has which of
//! them: a kernel has the ranges of its whole plan.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use burn_fusion::inspect::FusionInspector;
use cubecl_common::stream_id::StreamId;
use parking_lot::Mutex;
use profiler_core::Context;

use crate::devices::Client;
use crate::session_count;

/// Upper bound of the boundaries of a thread that wait for their operations to run.
const BOUNDARIES: usize = 1 << 16;

static STREAMS: Mutex<Option<HashMap<u64, Stream>>> = Mutex::new(None);

/// The ranges of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Launched {
    pub(crate) context: Context,
    /// All operations of the plan are of one range.
    pub(crate) is_certain: bool,
}

/// The operations of a thread.
struct Stream {
    /// Oldest first, beginning with one outside ranges.
    boundaries: VecDeque<Boundary>,
    /// The open ranges, outermost first.
    open: Vec<Context>,
    inspector: FusionInspector,
    /// The first device for which the thread launched.
    device: Option<u16>,
    has_several_devices: bool,
    /// The ranges of the plan that runs.
    plan: Option<Launched>,
}

/// A change of a thread's innermost range.
#[derive(Clone, Copy, Default)]
struct Boundary {
    /// The tensor id from which on operations are of the range.
    from: u64,
    context: Context,
    /// The number of open ranges.
    depth: usize,
}

/// Notes the range of a thread's next operations. Returns whether it is another one.
pub(crate) fn boundary(stream: u64, client: &Client, context: Context) -> bool {
    let mut streams = STREAMS.lock();
    let streams = streams.get_or_insert_default();
    let stream = match streams.entry(stream) {
        Entry::Occupied(known) => known.into_mut(),
        // `clear` waits for the lock, so that no report outlives the sessions.
        Entry::Vacant(_) if context.is_empty() || !session_count::is_running() => return false,
        Entry::Vacant(new) => new.insert(Stream {
            boundaries: VecDeque::from([Boundary::default()]),
            open: Vec::new(),
            inspector: FusionInspector::install(StreamId { value: stream }),
            device: None,
            has_several_devices: false,
            plan: None,
        }),
    };
    if stream.boundaries.back().is_some_and(|last| last.context == context) {
        return false;
    }
    match stream.open.iter().position(|open| *open == context) {
        Some(place) => stream.open.truncate(place + 1),
        None if context.is_empty() => stream.open.clear(),
        None => stream.open.push(context),
    }
    if stream.boundaries.len() == BOUNDARIES {
        stream.boundaries.pop_front();
    }
    let (from, depth) = (client.create_empty_handle().value(), stream.open.len());
    stream.boundaries.push_back(Boundary { from, context, depth });
    true
}

/// The ranges of a launch of the fusion thread, or for it. `None` if no plan explains it, as with a thread that feeds several
/// devices: reports of plans do not name theirs.
pub(crate) fn of_launch(stream: u64, device: u16) -> Option<Launched> {
    let mut streams = STREAMS.lock();
    let Some(stream) = streams.as_mut().and_then(|streams| streams.get_mut(&stream)) else {
        // The thread had no range so far.
        return Some(Launched { context: Context::default(), is_certain: true });
    };
    stream.take_plan();
    stream.has_several_devices |= *stream.device.get_or_insert(device) != device;
    stream.plan.filter(|_| !stream.has_several_devices)
}

/// Ends the reports of burn.
pub(crate) fn clear() {
    *STREAMS.lock() = None;
}

impl Stream {
    /// Takes the newest plan that burn has reported since the last launch: those before it launched nothing.
    fn take_plan(&mut self) {
        let Some(report) = self.inspector.drain().pop() else { return };
        let operations = report.blocks.iter().flat_map(|block| &block.operations);
        // What only frees has no output.
        let newest_outputs = operations
            .filter_map(|operation| operation.outputs().map(|tensor| tensor.id.value()).max());
        let place = |id| self.boundaries.partition_point(|boundary| boundary.from <= id);
        let mut places: Vec<usize> = newest_outputs.map(|id| place(id).saturating_sub(1)).collect();
        places.sort_unstable();
        let (Some(&oldest), Some(&newest)) = (places.first(), places.last()) else { return };
        let contexts = || places.iter().map(|place| self.boundaries[*place].context);
        let is_certain = contexts().all(|context| context == self.boundaries[oldest].context);
        let around = self.boundaries.range(oldest..=newest).min_by_key(|boundary| boundary.depth);
        let around = around.map(|boundary| boundary.context);
        self.plan = Some(Launched {
            context: Context::join(around.into_iter().chain(contexts())),
            is_certain,
        });
        // Operations that have not run have newer outputs.
        self.boundaries.drain(..newest);
    }
}
