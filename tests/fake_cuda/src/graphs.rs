//! CUDA graphs: captured from streams or built node by node, and launched.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use fake_cupti::{FakeExec, FakeGraph, Work};
use parking_lot::Mutex;

use crate::call::{Outcome, fake};
use crate::effect::Effect;
use crate::machine::{Stream, machine};

/// A graph that is being built.
pub(crate) struct Graph {
    fake: FakeGraph,
    effects: Vec<Effect>,
}

/// A graph that is ready to launch.
pub(crate) struct Exec {
    fake: FakeExec,
    pub(crate) effects: Vec<Effect>,
}

impl Exec {
    /// Runs its nodes on a stream, within the call of this correlation id. Its effects are the caller's to do.
    pub(crate) fn run(&self, stream: Stream, correlation: u32) {
        fake().execute_graph(&self.fake, correlation, |work| stream.place(work));
    }
}

fn add(graph: Graph) -> u32 {
    let id = graph.fake.id();
    machine().graphs.insert(id, Arc::new(Mutex::new(graph)));
    id
}

/// Begins a graph.
pub(crate) fn create() -> u32 {
    add(Graph { fake: fake().graph(), effects: Vec::new() })
}

fn find(graph: u64) -> Outcome<Arc<Mutex<Graph>>> {
    let found = u32::try_from(graph).ok().and_then(|id| machine().graphs.get(&id).cloned());
    found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Adds a node and returns its handle.
pub(crate) fn add_node(graph: u64, work: &Work, effect: Effect) -> Outcome<u64> {
    let graph = find(graph)?;
    let mut graph = graph.lock();
    fake().add_node(&mut graph.fake, work);
    graph.effects.push(effect);
    graph.fake.nodes().last().copied().ok_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// The handles of a graph's nodes.
pub(crate) fn nodes(graph: u64) -> Outcome<Vec<u64>> {
    Ok(find(graph)?.lock().fake.nodes())
}

/// A copy of a graph.
pub(crate) fn clone(graph: u64) -> Outcome<u32> {
    let graph = find(graph)?;
    let graph = graph.lock();
    Ok(add(Graph { fake: fake().clone_graph(&graph.fake), effects: graph.effects.clone() }))
}

/// Destroys a graph. What was made of it stays.
pub(crate) fn destroy(graph: u64) -> Outcome {
    let shared = find(graph)?;
    machine().graphs.retain(|id, _| u64::from(*id) != graph);
    // Another thread that adds a node at this time does what a program may not.
    let graph = Arc::into_inner(shared).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    fake().destroy_graph(graph.into_inner().fake);
    Ok(())
}

/// Makes a graph ready to launch.
pub(crate) fn instantiate(graph: u64) -> Outcome<u32> {
    let graph = find(graph)?;
    let graph = graph.lock();
    let exec = Exec { fake: fake().instantiate(&graph.fake), effects: graph.effects.clone() };
    let id = exec.fake.id();
    machine().execs.insert(id, Arc::new(exec));
    Ok(id)
}

/// The graph of this handle that is ready to launch.
pub(crate) fn exec(handle: u64) -> Outcome<Arc<Exec>> {
    let found = u32::try_from(handle).ok().and_then(|id| machine().execs.get(&id).cloned());
    found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Destroys a graph that was ready to launch.
pub(crate) fn destroy_exec(handle: u64) -> Outcome {
    let shared = exec(handle)?;
    machine().execs.retain(|id, _| u64::from(*id) != handle);
    // A launch on another thread ends with it: the event comes then no more.
    if let Some(exec) = Arc::into_inner(shared) {
        fake().destroy_exec(exec.fake);
    }
    Ok(())
}
