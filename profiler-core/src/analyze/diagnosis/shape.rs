//! How much of its device a kernel takes.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::join::tables::{OperationId, WorkId};
use crate::profile::Profile;

/// A kernel's grid beside what the device has room for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// The part of the device that it fills, from 0 to 1.
    pub(super) fill: f64,
    /// The part of its time in which the last wave leaves the device empty, if all blocks take as long; 0 for less than a
    /// wave.
    pub(super) tail: f64,
}

/// Shapes, each worked out once.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: RefCell<FxHashMap<WorkId, Option<Shape>>>,
}

impl Shapes {
    /// `None` if it is not known what fits on the device, or the operation is no kernel.
    pub(super) fn of(&self, profile: &Profile, id: OperationId) -> Option<Shape> {
        let work = profile.store.operations[id.at()].work;
        *self.known.borrow_mut().entry(work).or_insert_with(|| {
            let shape = profile.operation(id).as_kernel()?.launch_shape()?;
            let tail = if shape.waves()? > 1.0 { 1.0 - shape.balance() } else { 0.0 };
            // The driver sets shared memory for a launch as that needs it: a larger one may have more blocks at once.
            let most = u64::from(shape.occupancy.blocks) * u64::from(shape.multiprocessors);
            let fill = (shape.blocks() as f64 / most.max(1) as f64).min(1.0);
            Some(Shape { fill, tail })
        })
    }
}
