//! The kernels of a capture. They are most of its rows, so a separate thread reads them.

use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use cupti::record::SharedMemorySetting;
use cupti::{GraphNode, Kernel};
use rustc_hash::FxHashMap;

use super::super::file::File;
use super::{Reader, graph_node, interval, place};
use crate::error::Error;
use crate::formats::capture::{OperationRow, UNKNOWN_NAME};
use profiler_core::tables::{Interval, KernelNames, What, Work};

const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const COLUMNS: &str = "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, \
    demangledName, shortName, mangledName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, \
    staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, graphNodeId, graphId, clusterX, clusterY, clusterZ, \
    sharedMemoryExecuted";

/// The columns that many kernels have in common.
#[derive(PartialEq, Eq, Hash)]
struct Launch {
    process: Option<u64>,
    green_context: Option<u32>,
    demangled: Option<i64>,
    short: Option<i64>,
    mangled: Option<i64>,
    details: Kernel,
    shared_memory: SharedMemorySetting,
}

struct Row {
    time: Interval,
    correlation_id: u32,
    /// Its number in [`Kernels::launches`].
    launch: u32,
    node: Option<GraphNode>,
}

/// The rows of the table, with ids of the file.
#[derive(Default)]
struct Kernels {
    rows: Vec<Row>,
    launches: Vec<Launch>,
    unreadable: u64,
    odd_cells: u64,
}

impl Kernels {
    fn read(file: &File) -> Result<Self, Error> {
        let mut kernels = Self::default();
        let odd_cells = file.odd_cells.get();
        let mut numbers: FxHashMap<Launch, u32> = FxHashMap::default();
        file.rows((TABLE, COLUMNS), |row| {
            let Some(time) = interval(row, 0, 1) else {
                kernels.unreadable += 1;
                return;
            };
            let xyz = |first: usize| [0, 1, 2].map(|i| row.number(first + i).unwrap_or(0));
            let mut details = Kernel::default();
            details.place = place(row);
            details.registers_per_thread = row.number(11).unwrap_or(0);
            details.grid = xyz(12);
            details.block = xyz(15);
            details.static_shared_bytes = row.number(18).unwrap_or(0);
            details.dynamic_shared_bytes = row.number(19).unwrap_or(0);
            details.local_bytes_per_thread = row.number(20).unwrap_or(0);
            details.cluster = xyz(23);
            let mut shared_memory = SharedMemorySetting::default();
            shared_memory.executed_bytes = row.number(26).unwrap_or(0);
            let launch = Launch {
                process: row.bits(7),
                green_context: row.number(4),
                demangled: row.number(8),
                short: row.number(9),
                mangled: row.number(10),
                details,
                shared_memory,
            };
            // CAST: works are counted in 32 bits, as operations are.
            let next = numbers.len() as u32;
            let launch = *numbers.entry(launch).or_insert(next);
            let correlation_id = row.number(6).unwrap_or(0);
            kernels.rows.push(Row { time, correlation_id, launch, node: graph_node(row, 21, 22) });
        })?;
        let mut launches: Vec<(Launch, u32)> = numbers.into_iter().collect();
        launches.sort_unstable_by_key(|(_, number)| *number);
        kernels.launches = launches.into_iter().map(|(launch, _)| launch).collect();
        kernels.odd_cells = file.odd_cells.get() - odd_cells;
        Ok(kernels)
    }
}

/// Starts to read the kernels, with a separate connection.
///
/// # Errors
/// The file cannot be opened again.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    file: &File,
) -> Result<Reading<'scope>, Error> {
    let again = file.reopened()?;
    let thread = Builder::new().spawn_scoped(scope, move || Kernels::read(&again));
    Ok(Reading(thread.ok()))
}

/// The table while a thread reads it; `None` without a thread.
pub(super) struct Reading<'scope>(Option<ScopedJoinHandle<'scope, Result<Kernels, Error>>>);

impl Reading<'_> {
    fn finish(self, file: &File) -> Result<Kernels, Error> {
        match self.0 {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => Kernels::read(file),
        }
    }
}

impl Reader<'_> {
    pub(super) fn add_kernels(&mut self, kernels: Reading<'_>) -> Result<(), Error> {
        let odd_cells = self.file.odd_cells.get();
        let Kernels { rows, launches, unreadable, odd_cells: more } = kernels.finish(self.file)?;
        self.file.odd_cells.set(odd_cells + more);
        self.capture.health.losses.unknown_records += unreadable;
        let resolved: Vec<(Work, bool)> = launches.iter().map(|of| self.resolve(of)).collect();
        for Row { time, correlation_id, launch, node } in rows {
            let (mut work, is_named) = resolved[launch as usize];
            if !is_named {
                self.unreadable();
            }
            if let What::Kernel { details, .. } = &mut work.what {
                details.graph_node = node;
            }
            let time = self.known_time(time);
            let Work { place, process, green_context, .. } = work;
            let row = OperationRow { time, place, correlation_id, process, green_context };
            self.capture.push_work(&row, work);
        }
        Ok(())
    }

    /// The work of a launch; true if it has a name.
    fn resolve(&mut self, launch: &Launch) -> (Work, bool) {
        let process = self.process_or_only(launch.process);
        let Launch { demangled, short, mangled, green_context, shared_memory, .. } = *launch;
        let mut name = |id: Option<i64>| self.strings.name(&mut self.capture.store, id?);
        let (demangled, short, mangled) = (name(demangled), name(short), name(mangled));
        let known = mangled.or(demangled).or(short);
        let name = known.unwrap_or_else(|| self.capture.store.names.intern(UNKNOWN_NAME));
        let names = KernelNames { name, demangled, short };
        let what = What::Kernel { names, details: launch.details };
        let work = Work::new(what, launch.details.place);
        (Work { process, green_context, shared_memory, ..work }, known.is_some())
    }
}
