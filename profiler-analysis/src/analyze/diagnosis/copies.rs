//! Copies that cost more than necessary.

use profiler_base::units::bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Run;
use super::clock::{Part, Piece, stream_key};
use super::finding::{Finding, FindingKind};
use super::sign::{Sign, SignUnit};
use profiler_core::profile::{MemoryCopy, OperationKind};
use profiler_core::tables::{CallId, OperationId, RangeId};

/// Minimum copies in a row; fewer hardly cost.
const LEAST_IN_A_ROW: usize = 4;

/// Copies on one stream without other work between them.
struct CopyRow {
    kind: cupti::CopyKind,
    range: Option<RangeId>,
    copies: Vec<OperationId>,
}

impl Run<'_> {
    pub(super) fn pageable_copies(&self) -> Option<Finding> {
        let is_meant = |copy: &MemoryCopy<'_>, name: &str| {
            let sides = [copy.source(), copy.destination()];
            name.contains("Async") && sides.contains(&cupti::MemoryKind::PAGEABLE)
        };
        self.large_copies(FindingKind::PageableCopies, is_meant)
    }

    pub(super) fn blocking_copies(&self) -> Option<Finding> {
        let is_meant = |copy: &MemoryCopy<'_>, name: &str| {
            name.contains("Memcpy")
                && !name.contains("Async")
                && copy.kind() != cupti::CopyKind::DeviceToDevice
        };
        self.large_copies(FindingKind::BlockingCopies, is_meant)
    }

    /// Copies above the small-copy threshold. A small copy costs its call, whatever its memory.
    fn large_copies(
        &self,
        kind: FindingKind,
        is_meant: impl Fn(&MemoryCopy<'_>, &str) -> bool,
    ) -> Option<Finding> {
        let mut operations: FxHashSet<OperationId> = FxHashSet::default();
        let mut calls: FxHashSet<CallId> = FxHashSet::default();
        let mut moved = 0_u64;
        for operation in self.operations() {
            let (Some(copy), Some(call)) = (operation.as_copy(), operation.call()) else {
                continue;
            };
            let is_large = copy.bytes() > self.thresholds.get_small_copy_bytes();
            if is_large && is_meant(&copy, call.name()) {
                operations.insert(OperationId(operation.number() as u32));
                calls.extend(operation.call_id());
                moved = moved.saturating_add(copy.bytes());
            }
        }
        let is_one = |piece: &Piece| match piece.is_idle {
            true => piece.call.get().is_some_and(|call| calls.contains(&call)),
            false => {
                let is_one = piece.operation.get().is_some_and(|id| operations.contains(&id));
                piece.part == Part::Copies && is_one
            }
        };
        let count = operations.len();
        let share = self.share_of(is_one);
        let least = self.thresholds.get_finding_share();
        let sign = Sign::share_at_least("GPU idle or copying for them", share, least);
        let title = format!("{count} {kind}, {} in total", bytes(moved));
        self.finish(kind, title, self.whole(is_one), vec![sign])
    }

    pub(super) fn tiny_copies(&self) -> Option<Finding> {
        let small = self.thresholds.get_small_copy_bytes();
        let mut open: FxHashMap<(u32, u32, u32), CopyRow> = FxHashMap::default();
        let mut rows: Vec<CopyRow> = Vec::new();
        for operation in self.operations() {
            let stream = stream_key(&operation);
            let copy = operation
                .as_copy()
                .filter(|copy| copy.bytes() <= small && operation.graph_node().is_none());
            let Some(copy) = copy else {
                // A memset does not read the copied data; a kernel may.
                if operation.kind() != OperationKind::Memset {
                    rows.extend(open.remove(&stream));
                }
                continue;
            };
            let id = OperationId(operation.number() as u32);
            let range = self.profile.tables().range_of(operation.row().call);
            match open.get_mut(&stream) {
                Some(row) if row.kind == copy.kind() && row.range == range => row.copies.push(id),
                _ => {
                    let row = CopyRow { kind: copy.kind(), range, copies: vec![id] };
                    rows.extend(open.insert(stream, row));
                }
            }
        }
        rows.extend(open.into_values());
        rows.retain(|row| row.copies.len() >= LEAST_IN_A_ROW);
        let copies: usize = rows.iter().map(|row| row.copies.len()).sum();
        // The first copy of a row remains.
        let others: FxHashSet<OperationId> =
            rows.iter().flat_map(|row| &row.copies[1..]).copied().collect();
        let is_one = |piece: &Piece| {
            let is_other = piece.operation.get().is_some_and(|id| others.contains(&id));
            is_other && (self.is_of_calls(piece) || (piece.part == Part::Waiting && !piece.is_idle))
        };
        let mean = copies as f64 / rows.len().max(1) as f64;
        let least = LEAST_IN_A_ROW as f64;
        let sign = Sign::at_least("copies in a row", mean, SignUnit::Count, least);
        let title = format!("{copies} {}, in {} rows", FindingKind::TinyCopies, rows.len());
        self.finish(FindingKind::TinyCopies, title, self.whole(is_one), vec![sign])
    }
}
