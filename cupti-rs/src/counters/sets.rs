//! Sets of metrics with a fixed meaning.

use super::measured::RangeValues;
use crate::accessors::named;

named! {
    /// A set of metrics with a fixed meaning.
    /// [`RangeProfiler::missing`](super::RangeProfiler::missing) lists metrics that a chip lacks.
    Set {
        /// The data of a roofline: time, bytes and peak bandwidths of DRAM, L2 and L1, and
        /// operations by type, on scalar units and tensor cores. [`Flops::from_range`] and
        /// [`MemoryLevel::bytes`] sum them. 7 passes on GH100.
        Roofline = "roofline",
        /// Time and DRAM bytes: the roofline's lower half, in one pass.
        Dram = "dram",
        /// Floating-point operations outside tensor cores, by type. CUPTI adds counting
        /// instructions to kernels, which takes a separate pass and slows them down. Kernels of
        /// CUDA graphs count 0 without an error (13.0.1 on an H200); hardware counts include them.
        ScalarFlops = "scalar_flops",
        /// Operations of the tensor cores by source type, and the cores' utilization.
        Tensor = "tensor",
        /// The utilization of SMs, DRAM and caches relative to the peak: Nsight Compute's speed of
        /// light.
        SpeedOfLight = "speed_of_light",
        /// Achieved occupancy: resident warps relative to the maximum.
        Occupancy = "occupancy",
        /// Memory metrics as in nvprof; [`nvprof::ROWS`](super::nvprof::ROWS) maps the names.
        Memory = "memory",
    }
}

/// `gpu__time_duration.sum`: nanoseconds from the first to the last work in the range.
pub(super) const TIME: &str = "gpu__time_duration.sum";

const SCALAR: [&str; 9] = [
    "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
];

/// Operations of tensor cores by source type: for each type the first row that a chip has applies.
const TENSOR: [&[&[&str]]; 7] = [
    &[&["sm__ops_path_tensor_src_fp4_dst_fp32.sum"]],
    &[
        &["sm__ops_path_tensor_src_fp8.sum"],
        &["sm__ops_path_tensor_src_fp8_dst_fp16.sum", "sm__ops_path_tensor_src_fp8_dst_fp32.sum"],
        &[
            "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp16.sum",
            "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum",
        ],
    ],
    &[&["sm__ops_path_tensor_src_int8.sum"]],
    &[
        &["sm__ops_path_tensor_src_fp16.sum"],
        &["sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_fp16_dst_fp32.sum"],
        // Turing, which has no other types of these operations.
        &[
            "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
            "sm__ops_path_tensor_src_fp16_bf16_tf32_dst_fp32.sum",
        ],
    ],
    &[&["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]],
    &[&["sm__ops_path_tensor_src_tf32_dst_fp32.sum"]],
    &[&["sm__ops_path_tensor_src_fp64.sum"]],
];

const DRAM: [&[&[&str]]; 2] = [
    &[&["dram__bytes_read.sum"], &["dram__bytes_op_read.sum"]],
    &[&["dram__bytes_write.sum"], &["dram__bytes_op_write.sum"]],
];

const L2: &str = "lts__t_bytes.sum";
const L1: &str = "l1tex__t_bytes.sum";

/// Metrics of one meaning, under the names of several chips: the first row that a chip has applies.
type Alternatives = Vec<Vec<&'static str>>;

fn single(metric: &'static str) -> Alternatives {
    vec![vec![metric]]
}

fn several(rows: &[&[&'static str]]) -> Alternatives {
    rows.iter().map(|row| row.to_vec()).collect()
}

const TENSOR_INSTRUCTIONS: &str = "sm__inst_executed_pipe_tensor.sum";
const TENSOR_ACTIVE: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";

impl Set {
    /// Returns the set with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// The metrics, by their first names.
    #[must_use]
    pub fn metrics(self) -> Vec<&'static str> {
        self.split(|_| true).0
    }

    /// The metrics that a chip has, and those that it lacks.
    pub(super) fn split(
        self,
        mut has: impl FnMut(&'static str) -> bool,
    ) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for alternatives in self.parts() {
            let found = alternatives.iter().find(|row| row.iter().all(|metric| has(metric)));
            match found {
                Some(row) => there.extend(row),
                None => missing.extend(alternatives.into_iter().next().unwrap_or_default()),
            }
        }
        (there, missing)
    }

    fn parts(self) -> Vec<Alternatives> {
        let ones = |metrics: &[&'static str]| metrics.iter().map(|metric| single(metric)).collect();
        let tensor = || TENSOR.into_iter().map(several);
        let dram = || DRAM.into_iter().map(several);
        match self {
            Self::Roofline => {
                let mut parts = vec![single(TIME)];
                parts.extend(dram());
                parts.extend([L2, L1].map(single));
                parts.extend(MemoryLevel::ALL.iter().flat_map(|level| level.ceiling().map(single)));
                parts.extend(SCALAR.map(single));
                parts.extend(tensor());
                parts
            }
            Self::Dram => [single(TIME)].into_iter().chain(dram()).collect(),
            Self::ScalarFlops => ones(&SCALAR),
            Self::Tensor => {
                let busy = [TIME, TENSOR_ACTIVE, TENSOR_INSTRUCTIONS];
                busy.map(single).into_iter().chain(tensor()).collect()
            }
            Self::SpeedOfLight => ones(&[
                TIME,
                "gpc__cycles_elapsed.avg.per_second",
                "sm__throughput.avg.pct_of_peak_sustained_elapsed",
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
                "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
                "l1tex__throughput.avg.pct_of_peak_sustained_active",
                "lts__throughput.avg.pct_of_peak_sustained_elapsed",
            ]),
            Self::Occupancy => ones(&[
                TIME,
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                "sm__warps_active.avg.per_cycle_active",
                "sm__cycles_active.avg",
            ]),
            Self::Memory => ones(&super::nvprof::memory()),
        }
    }
}

named! {
    /// A level of the memory of a device, from the metrics of [`Set::Roofline`]; the outermost is
    /// the first.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(
        feature = "serde",
        derive(serde::Serialize, serde::Deserialize),
        serde(rename_all = "UPPERCASE")
    )]
    MemoryLevel {
        /// The device's memory.
        Dram = "DRAM",
        /// The L2 cache. On GH100 traffic between its two halves also counts: a streaming read
        /// counts more than once.
        L2 = "L2",
        /// The L1 caches: traffic of global, local, texture and surface memory. Bulk copies to
        /// shared memory (TMA) bypass them: a matrix product of cuBLAS on GH100 counts none.
        L1 = "L1",
    }
}

impl MemoryLevel {
    /// The bytes that a range moved at this level. `None` if not counted.
    #[must_use]
    pub fn bytes(self, range: &RangeValues<'_>) -> Option<f64> {
        match self {
            Self::Dram => DRAM.iter().map(|rows| counted(rows, range)).sum(),
            Self::L2 => range.value(L2),
            Self::L1 => range.value(L1),
        }
    }

    /// The peak bytes per second of the level at its clock in the range: the counter's
    /// `peak_sustained` per cycle times cycles per second, as in Nsight Compute's roofs. `None` if
    /// not counted.
    #[must_use]
    pub fn peak(self, range: &RangeValues<'_>) -> Option<f64> {
        let [by_cycle, cycles] = self.ceiling().map(|metric| range.value(metric));
        Some(by_cycle? * cycles?).filter(|peak| *peak > 0.0)
    }

    fn ceiling(self) -> [&'static str; 2] {
        match self {
            Self::Dram => ["dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"],
            Self::L2 => ["lts__t_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"],
            Self::L1 => {
                ["l1tex__t_bytes.sum.peak_sustained", "l1tex__cycles_elapsed.avg.per_second"]
            }
        }
    }
}

/// The sum of the first counted row.
fn counted(rows: &[&[&'static str]], range: &RangeValues<'_>) -> Option<f64> {
    let sum = |row: &&[&'static str]| row.iter().map(|metric| range.value(metric)).sum();
    rows.iter().find_map(sum)
}

/// The time of a range or kernel in nanoseconds (`gpu__time_duration.sum`): from its first to its
/// last work. `None` if not counted.
#[must_use]
pub fn time_ns(range: &RangeValues<'_>) -> Option<f64> {
    range.value(TIME)
}

/// The active cycles of the tensor pipes in a range (`sm__pipe_tensor_cycles_active`), in percent
/// of the multiprocessors' active cycles, from [`Set::Tensor`]. `None` if not counted.
#[must_use]
pub fn tensor_pipe_percent(range: &RangeValues<'_>) -> Option<f64> {
    range.value(TENSOR_ACTIVE)
}

/// Warp instructions of the tensor pipes (`sm__inst_executed_pipe_tensor`), from [`Set::Tensor`].
/// On an H200 single-precision kernels have some without operations of tensor cores, which
/// [`Flops`] counts. `None` if not counted.
#[must_use]
pub fn tensor_instructions(range: &RangeValues<'_>) -> Option<f64> {
    range.value(TENSOR_INSTRUCTIONS)
}

/// Operations of a range by type, from [`Set::Roofline`]. An addition or multiplication is one, a
/// fused multiply-add two. `None` if the metrics of a type were not counted or the chip lacks them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Flops {
    /// Half precision, outside tensor cores. An estimate: a packed instruction of two operations
    /// counts as one, and compilers load constants with such instructions (one per thread of a
    /// single-precision reduction).
    pub half: Option<f64>,
    /// Single precision, outside tensor cores.
    pub single: Option<f64>,
    /// Double precision, outside tensor cores.
    pub double: Option<f64>,
    /// Tensor cores, sources of 4-bit floating point.
    pub tensor_fp4: Option<f64>,
    /// Tensor cores, sources of 8-bit floating point; on GB100 including 4 and 6 bits.
    pub tensor_fp8: Option<f64>,
    /// Tensor cores, sources of 8-bit integers.
    pub tensor_int8: Option<f64>,
    /// Tensor cores, half-precision sources.
    pub tensor_fp16: Option<f64>,
    /// Tensor cores, bfloat16 sources.
    pub tensor_bf16: Option<f64>,
    /// Tensor cores, TF32 sources.
    pub tensor_tf32: Option<f64>,
    /// Tensor cores, double-precision sources.
    pub tensor_fp64: Option<f64>,
}

impl Flops {
    /// The operations of a range.
    #[must_use]
    pub fn from_range(range: &RangeValues<'_>) -> Self {
        let scalar = |first: usize| {
            let [add, mul, fma] = [first, first + 1, first + 2].map(|at| range.value(SCALAR[at]));
            Some(add? + mul? + 2.0 * fma?)
        };
        let tensor = |at: usize| counted(TENSOR[at], range);
        Self {
            half: scalar(0),
            single: scalar(3),
            double: scalar(6),
            tensor_fp4: tensor(0),
            tensor_fp8: tensor(1),
            tensor_int8: tensor(2),
            tensor_fp16: tensor(3),
            tensor_bf16: tensor(4),
            tensor_tf32: tensor(5),
            tensor_fp64: tensor(6),
        }
    }

    /// The types by name with their counts.
    pub fn list(&self) -> [(&'static str, Option<f64>); 10] {
        [
            ("fp16", self.half),
            ("fp32", self.single),
            ("fp64", self.double),
            ("fp4 tensor", self.tensor_fp4),
            ("fp8 tensor", self.tensor_fp8),
            ("int8 tensor", self.tensor_int8),
            ("fp16 tensor", self.tensor_fp16),
            ("bf16 tensor", self.tensor_bf16),
            ("tf32 tensor", self.tensor_tf32),
            ("fp64 tensor", self.tensor_fp64),
        ]
    }

    /// All counted floating-point operations, without integer operations.
    pub fn total(&self) -> f64 {
        let counted = self.list().into_iter().filter(|(name, _)| *name != "int8 tensor");
        counted.filter_map(|(_, count)| count).sum()
    }
}
