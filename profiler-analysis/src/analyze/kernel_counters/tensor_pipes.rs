//! Counted activity of the tensor pipes, and tensor-core use by kernel name.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cupti::counters::{Flops, tensor_instructions, tensor_pipe_percent, time_ns};
use nvtx::{Dtype, Pipe};
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::named_variants;
use profiler_base::table::Table;
use profiler_base::units::{NAME_WIDTH, shortened, si, time};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use super::{CountedKernels, operations};
use crate::analyze::kernels::{KernelClass, TcUse, TensorCoreUse};

/// All launches of a kernel: tensor-core use by its name, and as counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorPipe {
    /// The kernel's name.
    pub name: Arc<str>,
    /// Its class, by its name.
    pub class: KernelClass,
    /// Tensor-core use by its name.
    pub by_name: TensorCoreUse,
    /// The counted use of tensor cores: by their operations, or by busy pipes if operations were
    /// not counted. [`Unknown`](TcUse::Unknown) without either metric.
    pub counted: TcUse,
    /// Launches.
    pub calls: u64,
    time_ns: f64,
    /// Busy share of the tensor pipes in percent of the multiprocessors' active cycles, by time.
    pub active_percent: Option<f64>,
    /// Warp instructions issued to the tensor pipes, of all launches. On an H200, kernels without
    /// tensor-core operations have some: half-precision loads of constants seem to use these pipes.
    pub instructions: Option<f64>,
    /// Tensor-core operations by source type, most first; types without operations are left out.
    /// Includes operations on the padding of a product's last tiles.
    #[serde(serialize_with = "operations_by_name")]
    pub operations: Vec<(Dtype, f64)>,
}

named_variants! {
    /// The contradiction between name and counters.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum PipeDisagreement with text {
        /// The name indicates tensor cores, but none was used.
        IdleThough = "named as using them, and they did nothing",
        /// The name indicates no tensor cores, but some were used.
        BusyThough = "named as doing without, and they were used",
        /// Another type than in the name. Not checked for f32, which may run as TF32 or halves.
        OtherType = "a type other than in its name",
    }
}

impl TensorPipe {
    /// The time of all launches (`gpu__time_duration`), in whole nanoseconds.
    pub fn time(&self) -> Duration {
        // CAST: tables show whole nanoseconds.
        Duration::from_nanos(self.time_ns as u64)
    }

    /// The contradiction between name and counters; `None` if they agree or one is unknown.
    pub fn disagreement(&self) -> Option<PipeDisagreement> {
        match (self.by_name.tensor_cores, self.counted) {
            (TcUse::Using, TcUse::NotUsing) => Some(PipeDisagreement::IdleThough),
            (TcUse::NotUsing, TcUse::Using) => Some(PipeDisagreement::BusyThough),
            (TcUse::Using, TcUse::Using) => {
                let named = self.by_name.data_type.filter(|dtype| *dtype != Dtype::F32)?;
                let (most, _) = self.operations.first()?;
                (*most != named).then_some(PipeDisagreement::OtherType)
            }
            _ => None,
        }
    }
}

/// Counted tensor-core use by kernel. Made by [`CountedKernels::tensor_pipes`].
///
/// `{}` prints a table, then each kernel whose name and counters differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorPipes {
    /// The kernels, longest total time first.
    pub kernels: Vec<TensorPipe>,
}

impl CountedKernels {
    /// Tensor-core use by kernel, from the metrics of
    /// [`Set::Tensor`](cupti::counters::Set::Tensor). The operations of
    /// [`Set::Roofline`](cupti::counters::Set::Roofline) alone give use and types.
    pub fn tensor_pipes(&self) -> TensorPipes {
        let mut index: FxHashMap<&str, usize> = FxHashMap::default();
        let mut kernels: Vec<TensorPipe> = Vec::new();
        for kernel in self.kernels() {
            let at = *index.entry(kernel.name()).or_insert_with(|| {
                kernels.push(TensorPipe {
                    name: kernel.labels.name.clone(),
                    class: kernel.class(),
                    by_name: kernel.tensor_core_use(),
                    counted: TcUse::Unknown,
                    calls: 0,
                    time_ns: 0.0,
                    active_percent: None,
                    instructions: None,
                    operations: Vec::new(),
                });
                kernels.len() - 1
            });
            let (row, values) = (&mut kernels[at], kernel.values());
            let ns = time_ns(&values).unwrap_or(0.0);
            row.calls += 1;
            let before = row.time_ns;
            row.time_ns += ns;
            if let Some(percent) = tensor_pipe_percent(&values) {
                let sum = row.active_percent.unwrap_or(0.0) * before + percent * ns;
                row.active_percent =
                    Some(if row.time_ns > 0.0 { sum / row.time_ns } else { percent });
            }
            if let Some(count) = tensor_instructions(&values) {
                *row.instructions.get_or_insert(0.0) += count;
            }
            let mut has_operations = false;
            let counted = operations(&Flops::from_range(&values));
            for (dtype, _, count) in counted.filter(|(_, pipe, _)| *pipe == Pipe::Tensor) {
                has_operations = true;
                match row.operations.iter_mut().find(|(known, _)| *known == dtype) {
                    Some((_, sum)) => *sum += count,
                    None if count > 0.0 => row.operations.push((dtype, count)),
                    None => {}
                }
            }
            let is_busy = row.instructions.or(row.active_percent).map(|busy| busy > 0.0);
            let is_used = if has_operations { Some(!row.operations.is_empty()) } else { is_busy };
            row.counted = match is_used {
                Some(true) => TcUse::Using,
                Some(false) => TcUse::NotUsing,
                None => TcUse::Unknown,
            };
        }
        for kernel in &mut kernels {
            kernel.operations.sort_by(|one, other| other.1.total_cmp(&one.1));
        }
        kernels.sort_by_key(|kernel| (Reverse(kernel.time()), kernel.name.clone()));
        TensorPipes { kernels }
    }
}

// SIGNATURE: serde gives references.
fn operations_by_name<S: Serializer>(
    operations: &[(Dtype, f64)],
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_seq(operations.iter().map(|(dtype, count)| (dtype.name(), count)))
}

impl TensorPipes {
    /// The kernels whose name and counters differ.
    pub fn disagreements(&self) -> impl Iterator<Item = (&TensorPipe, PipeDisagreement)> {
        self.kernels.iter().filter_map(|kernel| Some((kernel, kernel.disagreement()?)))
    }

    /// The kernels with unknown use by name, but known use by counters.
    pub fn settled(&self) -> impl Iterator<Item = &TensorPipe> {
        self.kernels.iter().filter(|kernel| {
            kernel.by_name.tensor_cores == TcUse::Unknown && kernel.counted != TcUse::Unknown
        })
    }
}

const HEADER: [&str; 9] =
    ["kernel", "class", "by name", "sure", "counted", "calls", "time", "pipe busy", "operations"];

impl DisplayOptions for TensorPipes {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Table::new(HEADER, 5);
        for kernel in &self.kernels {
            let operations = kernel.operations.iter();
            let operations: Vec<_> = operations
                .map(|(dtype, count)| format!("{} {}", si(*count, "FLOP"), dtype.name()))
                .collect();
            let spent = time(kernel.time());
            rows.add_row([
                kernel.name.to_string(),
                kernel.class.name().to_owned(),
                kernel.by_name.tensor_cores.to_string(),
                kernel.by_name.confidence.to_string(),
                kernel.counted.to_string(),
                kernel.calls.to_string(),
                spent,
                kernel.active_percent.map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
                if operations.is_empty() { "-".to_owned() } else { operations.join(", ") },
            ]);
        }
        f.write_str(&rows.render(layout))?;
        let (mut differ, settled) = (0, self.settled().count());
        for (kernel, disagreement) in self.disagreements() {
            differ += 1;
            let (name, because) = (shortened(&kernel.name, NAME_WIDTH), kernel.by_name.because);
            write!(f, "\n{name}: {disagreement} ({because})")?;
        }
        write!(
            f,
            "\nnames and counters differ on {differ} of {} kernels; counters classify {settled} that names do not",
            self.kernels.len()
        )
    }
}

display_by_default_layout!(TensorPipes);
