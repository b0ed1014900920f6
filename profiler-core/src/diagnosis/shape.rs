//! How much of its device a kernel takes.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::kernels::{BlockNeeds, Occupancy, SmLimits};
use crate::profile::Profile;
use crate::store::{OperationId, What, WorkId};

/// A kernel's grid beside what the device has room for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Blocks of the grid over those that the device runs at once: 1 is a full wave.
    pub(super) waves: f64,
}

impl Shape {
    /// The part of the device that it fills, from 0 to 1.
    pub(super) fn fill(self) -> f64 {
        self.waves.min(1.0)
    }

    /// The part of its time in which the last wave leaves the device empty, if all blocks take as long; 0 for less than a
    /// wave.
    pub(super) fn tail(self) -> f64 {
        if self.waves <= 1.0 { 0.0 } else { 1.0 - self.waves / self.waves.ceil() }
    }
}

/// Shapes, each worked out once.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: RefCell<FxHashMap<WorkId, Option<Shape>>>,
}

impl Shapes {
    /// `None` if the device or its compute capability is not known, or the operation is no kernel.
    pub(super) fn of(&self, profile: &Profile, id: OperationId) -> Option<Shape> {
        let row = &profile.store.operations[id.at()];
        *self.known.borrow_mut().entry(row.work).or_insert_with(|| {
            let work = profile.store.work(row);
            let What::Kernel { details, .. } = &work.what else { return None };
            let devices = &profile.recording_info().devices;
            let device = devices.iter().find(|device| device.id == work.place.device)?;
            let limits = SmLimits::of(device.compute_capability)?;
            let product = |sizes: [u32; 3]| sizes.iter().map(|n| u64::from(*n)).product::<u64>();
            let needs = BlockNeeds {
                threads: u32::try_from(product(details.block)).ok()?,
                registers_per_thread: details.registers_per_thread.into(),
                static_shared_bytes: details.static_shared_bytes,
                dynamic_shared_bytes: details.dynamic_shared_bytes,
                shared_carveout_percent: None,
            };
            let blocks = Occupancy::new(&limits, &needs).blocks;
            let at_once = u64::from(blocks) * u64::from(device.multiprocessors);
            let waves = product(details.grid) as f64 / at_once as f64;
            (at_once != 0).then_some(Shape { waves })
        })
    }
}
