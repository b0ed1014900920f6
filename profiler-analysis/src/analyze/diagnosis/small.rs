//! Kernels that do not fill the GPU: small grids, or partial last waves.

use profiler_base::units::percent;
use rustc_hash::FxHashMap;

use super::Run;
use super::clock::{Part, Piece};
use super::finding::{Finding, FindingKind};
use super::sign::{Sign, SignUnit};
use crate::analyze::kernels::{Classifier, KernelClass, shares};
use profiler_core::tables::{NameId, OperationId, What, WorkId};

/// Minimum loss of a partial last wave, as in Nsight Compute's rule.
const LEAST_TAIL: f64 = 0.2;

/// Name, grid and block of kernels that could be merged.
type Alike = (NameId, [u32; 3], [u32; 3]);

impl Run<'_> {
    fn alike(&self, id: OperationId) -> Option<Alike> {
        let store = &self.profile.tables();
        match &store.work(&store.operations[id.at()]).what {
            What::Kernel { names, details } => Some((names.name, details.grid, details.block)),
            _ => None,
        }
    }

    fn class(&self, id: OperationId) -> KernelClass {
        let row = &self.profile.tables().operations[id.at()];
        let class = || {
            let kernel = self.profile.operation(id).as_kernel();
            kernel.map_or(KernelClass::Other, |kernel| shares::class(&kernel, &Classifier::new()))
        };
        *self.known.classes.borrow_mut().entry(row.work).or_insert_with(class)
    }

    /// True for a collective.
    pub(super) fn is_communication(&self, id: OperationId) -> bool {
        self.profile.operation(id).is_collective()
    }

    /// Consecutive kernels of one shape on a stream that do not fill the GPU: matrix products of
    /// any duration, or other short kernels. A merged kernel is assumed to take their time in
    /// proportion to their fill.
    pub(super) fn small_kernels(&self, kind: FindingKind) -> Option<Finding> {
        let gemms = kind == FindingKind::SmallGemms;
        let store = &self.profile.tables();
        let small_ns = super::nanoseconds(self.thresholds.get_small_kernel());
        // The fill of each kernel, and if it is the first of its row.
        let mut part_left: FxHashMap<OperationId, (f64, bool)> = FxHashMap::default();
        let mut count = 0_u64;
        let mut fills = 0.0;
        let mut end = |row: &mut Vec<OperationId>| {
            if (row.len() as u64) < self.thresholds.get_least_repeats() {
                row.clear();
                return;
            }
            let mut shapes: FxHashMap<Alike, Vec<OperationId>> = FxHashMap::default();
            for id in row.drain(..) {
                let Some(alike) = self.alike(id) else { continue };
                shapes.entry(alike).or_default().push(id);
            }
            for same in shapes.into_values() {
                if (same.len() as u64) < self.thresholds.get_least_repeats() {
                    continue;
                }
                let Some(shape) = self.known.shapes.shape(self.profile, same[0]) else { continue };
                let ns = same.iter().map(|id| store.operations[id.at()].ns());
                let ns = ns.fold(0, u64::saturating_add);
                let is_small = gemms || ns / same.len() as u64 <= small_ns;
                if shape.fill >= self.thresholds.get_least_fill() || !is_small {
                    continue;
                }
                count += same.len() as u64;
                fills += shape.fill * same.len() as f64;
                for (n, id) in same.into_iter().enumerate() {
                    part_left.insert(id, (shape.fill, n == 0));
                }
            }
        };
        for stream in self.kernels_by_stream().values() {
            let mut row: Vec<OperationId> = Vec::new();
            for &id in stream {
                // A graph launches its kernels together already.
                let in_graph = self.profile.operation(id).graph_node().is_some();
                let is_kind = (self.class(id) == KernelClass::Gemm) == gemms;
                if in_graph || !is_kind || self.is_communication(id) {
                    end(&mut row);
                    continue;
                }
                let range = |id: OperationId| store.range_of(store.operations[id.at()].call);
                let follows = row.last().is_none_or(|last| {
                    let goes_on = gemms || self.alike(*last) == self.alike(id);
                    goes_on && range(*last) == range(id)
                });
                if !follows {
                    end(&mut row);
                }
                row.push(id);
            }
            end(&mut row);
        }
        let part = |piece: &Piece| {
            let (fill, is_first) = part_left.get(&piece.operation.get()?)?;
            match piece.part {
                Part::Kernels => Some(1.0 - fill),
                // One launch remains.
                _ => (!is_first && self.is_of_calls(piece)).then_some(1.0),
            }
        };
        let (fill, most) = (fills / count.max(1) as f64, self.thresholds.get_least_fill());
        let title = format!("{kind}: {count} kernels that fill {} of the GPU each", percent(fill));
        let sign = Sign::at_most("part of the GPU that each fills", fill, SignUnit::Share, most);
        self.finish(kind, title, self.pieces(part), vec![sign])
    }

    /// Kernels with a mostly empty last wave.
    pub(super) fn tail_effect(&self) -> Option<Finding> {
        let mut works: FxHashMap<WorkId, f64> = FxHashMap::default();
        let mut count = 0_u64;
        let mut worst = 0.0_f64;
        for kernel in self.query().kernels().iter() {
            let id = OperationId(kernel.number() as u32);
            let Some(shape) = self.known.shapes.shape(self.profile, id) else { continue };
            if shape.tail >= LEAST_TAIL {
                count += 1;
                worst = worst.max(shape.tail);
                works.insert(self.profile.tables().operations[id.at()].work, shape.tail);
            }
        }
        let part = |piece: &Piece| {
            let id = piece.operation.get().filter(|_| piece.part == Part::Kernels)?;
            works.get(&self.profile.tables().operations[id.at()].work).copied()
        };
        let kind = FindingKind::TailEffect;
        let title = format!("{kind}: the last wave of {count} kernels is far from full");
        let sign =
            Sign::share_at_least("most of a kernel lost to its last wave", worst, LEAST_TAIL);
        self.finish(kind, title, self.pieces(part), vec![sign])
    }
}
