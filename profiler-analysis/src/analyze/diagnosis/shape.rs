//! The part of its device that a kernel fills.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::analyze::kernels::shape::launch_shape;
use profiler_core::profile::Profile;
use profiler_core::tables::{OperationId, WorkId};

/// A kernel's grid relative to its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// The filled part of the device, from 0 to 1.
    pub(super) fill: f64,
    /// The idle part due to a partial last wave of equal blocks; 0 with less than a wave.
    pub(super) tail: f64,
}

/// Cached shapes.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: RefCell<FxHashMap<WorkId, Option<Shape>>>,
}

impl Shapes {
    /// `None` for unknown device limits, or an operation that is not a kernel.
    pub(super) fn shape(&self, profile: &Profile, id: OperationId) -> Option<Shape> {
        let work = profile.tables().operations[id.at()].work;
        *self.known.borrow_mut().entry(work).or_insert_with(|| {
            let shape = launch_shape(&profile.operation(id).as_kernel()?)?;
            let tail = if shape.waves()? > 1.0 { 1.0 - shape.balance() } else { 0.0 };
            // The driver sets shared memory per launch, so a larger grid may have more concurrent
            // blocks.
            let most = u64::from(shape.occupancy.blocks) * u64::from(shape.multiprocessors);
            let fill = (shape.blocks() as f64 / most.max(1) as f64).min(1.0);
            Some(Shape { fill, tail })
        })
    }
}
