//! Matrix products on kernels for unaligned operands or of an older architecture, by their names.
//!
//! - Unaligned: the name states a load of one or two elements and less than 16 bytes. Example:
//!   cuBLAS on an H200 multiplies matrices of 1001 x 999 x 997 with such a kernel. It reaches 23 %
//!   of the rate of 1000 x 1000 x 1000 for f16, and 42 % for tf32 (`tests/products-h200.csv`).
//! - Older: the name states an architecture before Ampere on a later GPU. For 16-bit numbers, any
//!   architecture older than the GPU's counts, if other products of the run have kernels of the
//!   GPU's own. Other types give no finding. On an H200, cuBLAS uses kernels of Ampere for full
//!   f32, and for small products in tf32 and int8 (the same table).
//!
//! [`Profile::tensor_cores`](crate::prelude::ProfileExt::tensor_cores) covers kernels that use no
//! tensor cores.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use nvtx::Dtype;
use profiler_base::kernel_names::lower_case;
use profiler_base::units::percent;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Run;
use super::amdahl::amdahl;
use super::clock::{Part, Piece};
use super::finding::{Finding, FindingKind};
use super::gemm_kernel::{GemmKernel, Padding};
use super::sign::Sign;
use crate::analyze::kernels::shape::compute_capability;
use crate::analyze::kernels::{
    Architecture, Classifier, DeclaredSizes, GemmName, KernelClass, TcUse,
};
use crate::analyze::kernels::{shares, tensor_core};
use profiler_core::profile::Profile;
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{NameId, OperationId, RangeId, What};

/// Minimum share of GPU time of a finding: below it, a better kernel has no visible effect.
const LEAST_GPU_SHARE: f64 = 0.01;
/// The first architecture with asynchronous copies, for which libraries have kernels of every type.
const AMPERE: Architecture = (8, 0);
/// Bytes of the loads that kernels for aligned operands use.
const ALIGNED_BYTES: u64 = 16;

/// A kernel by name on a device.
struct ProductKernel {
    name: String,
    gemm: GemmName,
    device: Architecture,
    data_type: Option<Dtype>,
}

impl ProductKernel {
    /// `None` for kernels that are not a product on tensor cores, and for unknown devices.
    fn new(profile: &Profile, id: OperationId) -> Option<Self> {
        let kernel = profile.operation(id).as_kernel()?;
        let of_name = tensor_core::tensor_core_use(&kernel, &Classifier::new());
        if shares::class(&kernel, &Classifier::new()) != KernelClass::Gemm
            || of_name.tensor_cores != TcUse::Using
        {
            return None;
        }
        let name = kernel.demangled_name();
        let gemm = GemmName::parse(&lower_case(&name).0);
        let device = compute_capability(profile, kernel.device())?;
        Some(Self { name, gemm, device, data_type: of_name.data_type })
    }

    /// The finding that applies to this kernel. `is_newer` is true for a type if products of that
    /// type run on kernels of the device's own architecture.
    fn finding(&self, is_newer: impl Fn(Dtype) -> bool) -> Option<FindingKind> {
        if self.gemm.alignment.is_some_and(|alignment| alignment.is_unaligned()) {
            return Some(FindingKind::UnalignedGemms);
        }
        let architecture = self.gemm.architecture?;
        let is_before_ampere = architecture < AMPERE && self.device >= AMPERE;
        let data_type = self.data_type.filter(|of| matches!(of, Dtype::F16 | Dtype::Bf16));
        let is_older = architecture.0 < self.device.0 && data_type.is_some_and(is_newer);
        (is_before_ampere || is_older).then_some(FindingKind::OlderGemms)
    }

    /// The numbers of its type in 16 bytes.
    fn multiple(&self) -> Option<u64> {
        let bits = match self.gemm.alignment {
            Some(alignment) => u64::from(alignment.element_bytes) * 8,
            None => u64::from(self.data_type?.bits()),
        };
        Some(8 * ALIGNED_BYTES / bits)
    }
}

/// The kernels of a finding.
#[derive(Default)]
struct Found {
    pieces: Vec<(Piece, f64)>,
    /// Nanoseconds and launches by name and device.
    kernels: FxHashMap<(NameId, u32), (u64, FxHashSet<OperationId>)>,
}

impl Run<'_> {
    /// The findings on matrix products whose kernels fit the operands or the device badly.
    pub(super) fn gemms(&self) -> Vec<Finding> {
        let store = &self.profile.tables();
        let key = |piece: &Piece| {
            let id = piece.operation.get().filter(|_| piece.part == Part::Kernels)?;
            match &store.work(&store.operations[id.at()]).what {
                What::Kernel { names, .. } => Some(((names.name, piece.device), id)),
                _ => None,
            }
        };
        let mut known: FxHashMap<(NameId, u32), Option<ProductKernel>> = FxHashMap::default();
        for (key, id) in self.clock.pieces.iter().filter_map(key) {
            known.entry(key).or_insert_with(|| ProductKernel::new(self.profile, id));
        }
        let newer: FxHashSet<(u32, Dtype)> = known
            .iter()
            .filter_map(|((_, device), known)| {
                let known = known.as_ref()?;
                let is_own = known.gemm.architecture?.0 == known.device.0;
                is_own.then_some((*device, known.data_type?))
            })
            .collect();
        let mut found: BTreeMap<FindingKind, Found> = BTreeMap::new();
        for piece in &self.clock.pieces {
            let Some((key, id)) = key(piece) else { continue };
            let Some(kernel) = known.get(&key).and_then(Option::as_ref) else { continue };
            let Some(kind) = kernel.finding(|of| newer.contains(&(key.1, of))) else { continue };
            let found = found.entry(kind).or_default();
            found.pieces.push((*piece, 1.0));
            let (ns, launches) = found.kernels.entry(key).or_default();
            *ns += piece.time.ns();
            launches.insert(id);
        }
        let finding = |(kind, found)| self.gemm_finding(kind, found, &known);
        found.into_iter().filter_map(finding).collect()
    }

    fn gemm_finding(
        &self,
        kind: FindingKind,
        found: Found,
        known: &FxHashMap<(NameId, u32), Option<ProductKernel>>,
    ) -> Option<Finding> {
        let sum = |ns: u64, piece: &Piece| ns + piece.time.ns();
        let busy = self.clock.pieces.iter().filter(|piece| !piece.is_idle).fold(0, sum);
        let ns = found.pieces.iter().map(|(piece, _)| piece).fold(0, sum);
        let share = ns as f64 / busy.max(1) as f64;
        if share < LEAST_GPU_SHARE {
            return None;
        }
        let padding = self.padding(&found, known);
        let mut gemms: Vec<GemmKernel> = found
            .kernels
            .iter()
            .filter_map(|(key, (ns, launches))| {
                let ProductKernel { name, gemm, device, .. } = known.get(key)?.as_ref()?;
                Some(GemmKernel {
                    name: name.clone(),
                    launches: launches.len() as u64,
                    cost: Duration::from_nanos(ns / self.clock.devices()),
                    architecture: gemm.architecture,
                    device: *device,
                    alignment: gemm.alignment.map(|alignment| alignment.elements),
                })
            })
            .collect();
        gemms.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.name.cmp(&b.name)));
        let launches: u64 = gemms.iter().map(|kernel| kernel.launches).sum();
        let kernels = match gemms.len() {
            1 => "one kernel".to_owned(),
            count => format!("{count} kernels"),
        };
        let title =
            format!("{kind}: {launches} launches of {kernels}, {} of GPU time", percent(share));
        gemms.truncate(self.thresholds.get_evidence());
        let sign = Sign::share_at_least("share of GPU time", share, LEAST_GPU_SHARE);
        let finding = self.finish(kind, title, found.pieces, vec![sign])?;
        // Products cannot be removed.
        let estimate = amdahl(finding.share, 2.0);
        Some(Finding { estimate, gemms, padding, ..finding })
    }

    /// The declared dimensions to pad, costliest first.
    fn padding(
        &self,
        found: &Found,
        known: &FxHashMap<(NameId, u32), Option<ProductKernel>>,
    ) -> Vec<Padding> {
        let store = &self.profile.tables();
        if store.details.is_empty() {
            return Vec::new();
        }
        let mut declared: FxHashMap<RangeId, Option<(NodeId, DeclaredSizes)>> =
            FxHashMap::default();
        let mut costs: FxHashMap<(NodeId, &'static str, u64, u64), u64> = FxHashMap::default();
        for (key, (_, launches)) in &found.kernels {
            let multiple = known.get(key).and_then(|known| known.as_ref()?.multiple());
            let Some(multiple) = multiple else { continue };
            for id in launches {
                let operation = &store.operations[id.at()];
                let Some(range) = store.range_of(operation.call) else { continue };
                let Some((node, sizes)) = self.declared_sizes(range, &mut declared) else {
                    continue;
                };
                for (dimension, size) in sizes.dimensions() {
                    if size > 1 && !size.is_multiple_of(multiple) {
                        *costs.entry((node, dimension, size, multiple)).or_default() +=
                            operation.ns();
                    }
                }
            }
        }
        let most = self.thresholds.get_evidence();
        let costs = costs.into_iter().map(|(key, ns)| (ns, key)).collect();
        let costs = self.costliest(costs, most, |(node, ..)| Some(*node));
        let mut padding: Vec<(Reverse<u64>, Padding)> = costs
            .into_iter()
            .filter_map(|(ns, (node, dimension, size, multiple))| {
                let path = self.path_of(Some(node)).unwrap_or_default();
                let padded = size.checked_next_multiple_of(multiple)?;
                Some((Reverse(ns), Padding { path, dimension, size, multiple, padded }))
            })
            .collect();
        padding.sort_by(|(ns, a), (other_ns, b)| {
            (ns, &a.path, a.dimension, a.size).cmp(&(other_ns, &b.path, b.dimension, b.size))
        });
        padding.into_iter().map(|(_, padding)| padding).collect()
    }

    /// The sizes declared by a range or by the nearest range around it. Each range is read once.
    fn declared_sizes(
        &self,
        range: RangeId,
        declared: &mut FxHashMap<RangeId, Option<(NodeId, DeclaredSizes)>>,
    ) -> Option<(NodeId, DeclaredSizes)> {
        let mut within: Vec<RangeId> = Vec::new();
        let mut next = Some(self.profile.range_at(range));
        let mut found = None;
        while let Some(range) = next {
            if let Some(known) = declared.get(&range.id()) {
                found = *known;
                break;
            }
            within.push(range.id());
            if let Some(sizes) = DeclaredSizes::new(&range) {
                found = Some((range.node().id(), sizes));
                break;
            }
            next = range.parent();
        }
        declared.extend(within.into_iter().map(|range| (range, found)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::Diagnosis;
    use super::super::tests::{Job, Program, US, steps};
    use super::*;
    use crate::prelude::*;
    use profiler_core::tables::{Details, Field, FieldValue, Subject};

    const NVJET: &str = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT";
    const UNALIGNED: &str = "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1";
    const AMPERE_BF16: &str = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn";
    const TURING_F16: &str = "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn";

    /// The diagnosis of 20 steps with these kernels of these microseconds, on an sm_90.
    fn diagnosis(kernels: &[(&'static str, u64)]) -> Diagnosis {
        let step = |p: &mut Program| {
            for (name, us) in kernels {
                p.launch(7, Job::Kernel(name, 4_000), us * US);
            }
            p.wait();
        };
        steps(step).profile().diagnose()
    }

    fn kinds(diagnosis: &Diagnosis) -> Vec<FindingKind> {
        let kinds = diagnosis.findings().iter().map(|finding| finding.kind);
        kinds
            .filter(|kind| matches!(kind, FindingKind::UnalignedGemms | FindingKind::OlderGemms))
            .collect()
    }

    #[test]
    fn kernel_with_loads_of_single_numbers_is_a_finding() {
        let diagnosis = diagnosis(&[(NVJET, 100), (UNALIGNED, 60), (TURING_F16, 40)]);
        assert_eq!(kinds(&diagnosis), [FindingKind::UnalignedGemms, FindingKind::OlderGemms]);
        let found = diagnosis.finding(FindingKind::UnalignedGemms).unwrap();
        assert_eq!(
            found.title,
            "matrix products on kernels for unaligned operands: 20 launches of one kernel, 30.0 % of GPU time"
        );
        assert_eq!((found.cost, found.path()), (Duration::from_micros(20 * 60), Some("step")));
        assert!((found.signs[0].value - 0.3).abs() < 1e-9, "{found}");
        assert_eq!(found.estimate, amdahl(found.share, 2.0), "half of it: {found}");
        let text = found.to_string();
        assert!(
            text.ends_with(&format!(
                "1.200 ms, 20 launches: {UNALIGNED}: loads single numbers, sm_75 by its name (the GPU is sm_90)"
            )),
            "{text}"
        );
        let json = serde_json::to_value(found).unwrap();
        assert_eq!(json["gemms"][0]["alignment"], 1);
        assert_eq!(json["gemms"][0]["architecture"], serde_json::json!([7, 5]));
        assert!(json.get("padding").is_none(), "nothing is declared: {json}");
        let older = diagnosis.finding(FindingKind::OlderGemms).unwrap();
        assert_eq!((older.gemms[0].architecture, older.gemms[0].alignment), (Some((7, 5)), None));
    }

    #[test]
    fn declared_dimension_is_named_with_its_padding() {
        let program = steps(|p| {
            p.launch(7, Job::Kernel(NVJET, 4_000), 100 * US);
            p.range("lm_head", |p| {
                let range = RangeId(p.store.ranges.len() as u32 - 1);
                let fields = [("m", 8_192), ("n", 50_257), ("k", 768)].map(|(name, size)| {
                    let (name, unit) = (p.store.names.intern(name), p.store.names.intern(""));
                    Field { name, unit, value: FieldValue::U64(size) }
                });
                let details = Details { fields: fields.into(), ..Details::default() };
                p.store.details.insert(Subject::Range(range), details);
                p.range("linear", |p| p.launch(7, Job::Kernel(UNALIGNED, 4_000), 60 * US));
            });
            p.wait();
        });
        let diagnosis = program.profile().diagnose();
        let found = diagnosis.finding(FindingKind::UnalignedGemms).unwrap();
        let padding = Padding {
            path: "step/lm_head".to_owned(),
            dimension: "n",
            size: 50_257,
            multiple: 8,
            padded: 50_264,
        };
        assert_eq!(found.padding, [padding]);
        let line = "in step/lm_head: n is 50257; pad it to 50264, a multiple of 8";
        assert!(found.to_string().contains(line), "{found}");
    }

    #[test]
    fn ampere_kernel_on_hopper_counts_only_beside_newer_ones_of_its_type() {
        assert_eq!(kinds(&diagnosis(&[(AMPERE_BF16, 100), ("other", 20)])), []);
        let beside = diagnosis(&[(AMPERE_BF16, 100), (NVJET, 20)]);
        assert_eq!(kinds(&beside), [FindingKind::OlderGemms]);
        let other_type = diagnosis(&[(AMPERE_BF16, 100), ("nvjet_sm90_hsh_64x8_1x2_h_bz_TNT", 20)]);
        assert_eq!(kinds(&other_type), []);
    }

    /// Names that cuBLAS uses for lack of others, of small products, of other libraries; and too
    /// little time.
    #[test]
    fn other_products_are_no_finding() {
        for name in [
            "cutlass_80_simt_sgemm_64x64_8x5_tn_align1",
            "cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4",
            "cutlass_80_tensorop_i16832gemm_s8_64x64_128x5_tn_align16",
            "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1",
            "volta_sgemm_128x64_nn",
            "ampere_sgemm_32x128_tn",
            "triton_mm_align1",
            "my_turing_gemm",
        ] {
            let newer =
                "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x256x32_warpgroupsize2x1x1_x";
            assert_eq!(kinds(&diagnosis(&[(name, 100), (newer, 50), (NVJET, 50)])), [], "{name}");
        }
        assert_eq!(kinds(&diagnosis(&[(NVJET, 500), (UNALIGNED, 2)])), []);
    }
}
