//! From fused operations to the ranges that issued them.
//!
//! Tensor ids come from one counter, on the thread that issues an operation. So the range of an operation is the one that was
//! open when its output got its id. Burn reports each plan, the operations that it runs in blocks, before it runs it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use burn_fusion::inspect::{BlockKind, FusionBlock, FusionInspector, FusionReport};
use burn_ir::OperationIr;
use cubecl_common::stream_id::StreamId;
use parking_lot::Mutex;
use profiler_core::Context;

use crate::devices::Client;
use crate::placement::{Kernel, Part, Placed, Placement, Unit};
use crate::session_count;

/// Upper bound of the boundaries of a thread that wait for their operations to run.
const BOUNDARIES: usize = 1 << 16;
/// Upper bound of plans of a thread that feeds several devices.
const PENDING: usize = 64;

static STREAMS: Mutex<Option<HashMap<u64, Stream>>> = Mutex::new(None);

/// The operations of a thread.
struct Stream {
    /// The range from each tensor id on.
    boundaries: VecDeque<(u64, Context)>,
    inspector: FusionInspector,
    /// By device: the plan that runs.
    plans: HashMap<u16, Plan>,
    /// Plans of one of several devices.
    pending: VecDeque<Plan>,
}

/// A plan that runs, with the ranges of its parts.
struct Plan {
    placement: Placement,
    /// By unit of the placement.
    operations: Vec<Operations>,
    /// The device of the plan is a guess.
    is_guess: bool,
}

/// The ranges of a unit's operations, in order.
struct Operations {
    contexts: Vec<Context>,
    /// The operation that the fallback of a fused product or reduction launches apart.
    main: Option<usize>,
}

impl Operations {
    /// The ranges of the operations in a kernel of the unit.
    fn contexts_of(&self, unit: Unit, kernel: Kernel, is_after_main: bool) -> &[Context] {
        let Some(main) = self.main else { return &self.contexts };
        match unit.part(kernel) {
            Part::All => &self.contexts,
            Part::Main => &self.contexts[main..=main],
            Part::Beside if is_after_main => &self.contexts[main + 1..],
            Part::Beside => &self.contexts[..main],
        }
    }
}

/// Notes the range of a thread's next operations. Returns whether it is another one.
pub(crate) fn boundary(stream: u64, client: &Client, context: Context) -> bool {
    let mut streams = STREAMS.lock();
    let streams = streams.get_or_insert_default();
    let stream = match streams.entry(stream) {
        Entry::Occupied(known) => known.into_mut(),
        // `clear` waits for the lock, so that no report outlives the sessions.
        Entry::Vacant(_) if context.is_empty() || !session_count::is_running() => return false,
        Entry::Vacant(new) => {
            let inspector = FusionInspector::install(StreamId { value: stream });
            let (boundaries, pending) = (VecDeque::new(), VecDeque::new());
            new.insert(Stream { boundaries, inspector, plans: HashMap::new(), pending })
        }
    };
    if stream.boundaries.back().is_some_and(|(_, last)| *last == context) {
        return false;
    }
    if stream.boundaries.len() == BOUNDARIES {
        stream.boundaries.pop_front();
    }
    stream.boundaries.push_back((client.create_empty_handle().value(), context));
    true
}

/// The ranges of a launch of the fusion thread, and whether they are certain; `None` if no plan explains it.
pub(crate) fn place(stream: u64, device: u16, kernel: Kernel) -> Option<(Context, bool)> {
    let (contexts, is_guess) = {
        let mut streams = STREAMS.lock();
        let Some(stream) = streams.as_mut().and_then(|streams| streams.get_mut(&stream)) else {
            // The thread had no range so far.
            return Some((Context::default(), true));
        };
        stream.take_plans(device, kernel);
        let plan = stream.plans.get_mut(&device)?;
        let units = plan.placement.launch(kernel)?;
        (plan.contexts_of(&units, kernel), plan.is_guess)
    };
    let (contexts, is_certain) = contexts;
    Some((Context::join(contexts), is_certain && !is_guess))
}

/// The ranges of which a launch may be next, without its being one; `None` if no plan explains it.
pub(crate) fn possible(stream: u64, device: u16, kernel: Kernel) -> Option<Context> {
    let contexts = {
        let mut streams = STREAMS.lock();
        let stream = streams.as_mut()?.get_mut(&stream)?;
        stream.take_plans(device, kernel);
        let plan = stream.plans.get(&device)?;
        plan.contexts_of(&plan.placement.possible(kernel)?, kernel).0
    };
    Some(Context::join(contexts))
}

/// Ends the reports of burn.
pub(crate) fn clear() {
    *STREAMS.lock() = None;
}

impl Stream {
    /// Takes the plans that burn has reported since the last launch.
    fn take_plans(&mut self, device: u16, kernel: Kernel) {
        let reports = self.inspector.drain();
        let Some(last) = reports.last() else {
            return self.take_pending(device, kernel);
        };
        let is_first_device = self.plans.keys().all(|known| *known == device);
        let newest =
            last.blocks.iter().flat_map(|block| &block.operations).filter_map(newest_output).max();
        if is_first_device {
            let plan = Plan::new(last, &self.boundaries, false);
            self.plans.insert(device, plan);
            // All operations that have not run have newer outputs.
            if let Some(newest) = newest {
                let older = self.boundaries.partition_point(|(id, _)| *id <= newest);
                self.boundaries.drain(..older.saturating_sub(1));
            }
        } else {
            // The reports do not name their device.
            for report in &reports {
                if self.pending.len() == PENDING {
                    self.pending.pop_front();
                }
                self.pending.push_back(Plan::new(report, &self.boundaries, true));
            }
            self.take_pending(device, kernel);
        }
    }

    /// Of several devices: the oldest plan that explains the launch, if the device's own does not.
    fn take_pending(&mut self, device: u16, kernel: Kernel) {
        if self.pending.is_empty()
            || self.plans.get(&device).is_some_and(|plan| plan.placement.possible(kernel).is_some())
        {
            return;
        }
        let found = self.pending.iter().position(|plan| plan.placement.possible(kernel).is_some());
        if let Some(plan) = found.and_then(|found| self.pending.remove(found)) {
            self.plans.insert(device, plan);
        }
    }
}

impl Plan {
    fn new(report: &FusionReport, boundaries: &VecDeque<(u64, Context)>, is_guess: bool) -> Self {
        let context = |operation: &OperationIr| {
            let id = newest_output(operation)?;
            let after = boundaries.partition_point(|(from, _)| *from <= id);
            Some(after.checked_sub(1).map_or(Context::default(), |at| boundaries[at].1))
        };
        let (mut units, mut of_units) = (Vec::new(), Vec::new());
        for FusionBlock { kind, operations } in &report.blocks {
            // Views of what is there already have an output, too; what only frees has none.
            let with_output =
                operations.iter().filter_map(|operation| Some((operation, context(operation)?)));
            match kind {
                BlockKind::Fused { name, .. } => {
                    let unit = Unit::fused(name);
                    let (operations, contexts): (Vec<_>, Vec<_>) = with_output.unzip();
                    let main = operations.iter().position(|operation| unit.is_main(operation));
                    units.push(unit);
                    of_units.push(Operations { contexts, main });
                }
                BlockKind::Unfused => {
                    for (operation, context) in with_output {
                        units.push(Unit::from_operation(operation));
                        of_units.push(Operations { contexts: vec![context], main: None });
                    }
                }
            }
        }
        Self { placement: Placement::new(units), operations: of_units, is_guess }
    }

    /// The ranges of the operations that a kernel has if it comes from any of these units, and whether all agree.
    fn contexts_of(&self, placed: &[Placed], kernel: Kernel) -> (Vec<Context>, bool) {
        let mut sets: Vec<Vec<Context>> = Vec::new();
        for place in placed {
            let mut contexts = Vec::new();
            let unit = self.placement.units()[place.unit];
            for context in
                self.operations[place.unit].contexts_of(unit, kernel, place.is_after_main)
            {
                if !contexts.contains(context) {
                    contexts.push(*context);
                }
            }
            if !sets.contains(&contexts) {
                sets.push(contexts);
            }
        }
        let is_certain = sets.len() == 1;
        (sets.concat(), is_certain)
    }
}

/// The id of an operation's newest output; `None` of an operation that only frees.
fn newest_output(operation: &OperationIr) -> Option<u64> {
    operation.outputs().map(|tensor| tensor.id.value()).max()
}
