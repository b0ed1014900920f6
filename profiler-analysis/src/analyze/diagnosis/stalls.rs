//! Kernels whose warps wait for one reason, by instruction samples.

use std::cmp::Reverse;

use super::Run;
use super::clock::{Part, Piece};
use super::finding::{Finding, FindingKind};
use super::sign::Sign;
use crate::analyze::kernels::stalls::StallReason;
use profiler_core::tables::{NameId, OperationId, What};

/// The least share of a kernel's samples in which no warp of a scheduler issued for the reason.
const LEAST_EXPOSED: f64 = 0.2;
/// The kernels that are examined, those with most samples.
const KERNELS: usize = 16;

impl Run<'_> {
    /// Kernels with a dominant stall, one finding for each.
    pub(super) fn stalled_kernels(&self) -> Vec<Finding> {
        if self.profile.instruction_counts().is_none() {
            return Vec::new();
        }
        let name = |id: OperationId| {
            let store = self.profile.tables();
            match &store.work(&store.operations[id.at()]).what {
                What::Kernel { names, .. } => Some(names.name),
                _ => None,
            }
        };
        let kernels = self.query().kernels();
        let by_name = kernels.instructions_by(|kernel| name(OperationId(kernel.number() as u32)));
        let mut by_name: Vec<_> = by_name.collect();
        by_name.sort_by_key(|(_, samples)| Reverse(samples.samples() as u64));
        by_name.truncate(KERNELS);
        let finding = |(kernel, samples): (Option<NameId>, _)| {
            let kernel = kernel?;
            let reason = StallReason::from_samples(&samples)?;
            let remedy = reason.remedy()?;
            let part = |piece: &Piece| {
                let id = piece.operation.get().filter(|_| piece.part == Part::Kernels)?;
                (name(id)? == kernel).then_some(reason.exposed)
            };
            let label = samples.as_slice().first()?.kernel.to_string();
            let title = format!("{label} {}", reason.text());
            let what = "samples in which nothing issued for it";
            let sign = Sign::share_at_least(what, reason.exposed, LEAST_EXPOSED);
            if !sign.is_met() {
                return None;
            }
            let found =
                self.finish(FindingKind::StalledKernel, title, self.pieces(part), vec![sign])?;
            Some(Finding { remedy, ..found })
        };
        by_name.into_iter().filter_map(finding).collect()
    }
}
