//! Tensor cores as their pipes were counted, beside what names of kernels say of them.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cupti::counters::{Flops, tensor_instructions, tensor_pipe_percent, time_ns};
use nvtx::{Dtype, Pipe};
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use super::{CountedKernel, CountedKernels, operations};
use crate::analyze::kernels::{KernelClass, TcUse, TensorCoreUse};
use crate::base::named_variants::named_variants;
use crate::base::units::{NAME_WIDTH, finish, shortened, si, table, time};

/// All launches of a kernel: what its name says of tensor cores, and what they did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorPipe {
    /// The kernel's name.
    pub name: Arc<str>,
    /// What it is for, by its name.
    pub class: KernelClass,
    /// What its name says of tensor cores.
    pub by_name: TensorCoreUse,
    /// Whether it used them: whether they did operations, or where those were not counted whether their pipes were busy.
    /// [`Unknown`](TcUse::Unknown) where nothing of them was counted.
    pub counted: TcUse,
    /// Launches.
    pub calls: u64,
    /// Nanoseconds (`gpu__time_duration`), of all launches.
    pub time_ns: f64,
    /// How busy the tensor pipes were, in percent of the cycles in which the multiprocessors were at work; the mean by time.
    pub active_percent: Option<f64>,
    /// Instructions of warps to the pipes of the tensor cores, of all launches. On an H200 kernels without any operation of
    /// tensor cores have some: instructions of half precision, with which compilers load constants, seem to go there too.
    pub instructions: Option<f64>,
    /// Operations of tensor cores by the type of their sources, the most first; types with none are left out. Those on the
    /// padding of a product's last tiles are counted as well.
    #[serde(serialize_with = "named")]
    pub operations: Vec<(Dtype, f64)>,
}

named_variants! {
    /// Where name and counter differ.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum PipeDisagreement with text {
        /// The name says that it uses tensor cores, and they did nothing.
        IdleThough = "named as using them, and they did nothing",
        /// The name says that it does without, and they did something.
        BusyThough = "named as doing without, and they were used",
        /// They multiplied another type than the name says. Of f32 that is not said: TF32 and halves stand in for it.
        OtherType = "another type than its name says",
    }
}

impl TensorPipe {
    /// Where name and counter differ; `None` where they agree or one of them says nothing.
    pub fn disagreement(&self) -> Option<PipeDisagreement> {
        match (self.by_name.tensor_cores, self.counted) {
            (TcUse::Using, TcUse::NotUsing) => Some(PipeDisagreement::IdleThough),
            (TcUse::NotUsing, TcUse::Using) => Some(PipeDisagreement::BusyThough),
            (TcUse::Using, TcUse::Using) => {
                let said = self.by_name.data_type.filter(|of| *of != Dtype::F32)?;
                let (most, _) = self.operations.first()?;
                (*most != said).then_some(PipeDisagreement::OtherType)
            }
            _ => None,
        }
    }

    fn of(first: &CountedKernel<'_>) -> Self {
        Self {
            name: first.named.name.clone(),
            class: first.class(),
            by_name: first.tensor_core_use(),
            counted: TcUse::Unknown,
            calls: 0,
            time_ns: 0.0,
            active_percent: None,
            instructions: None,
            operations: Vec::new(),
        }
    }
}

/// Tensor cores by kernel, as they were counted. Made by [`CountedKernels::tensor_pipes`].
///
/// `{}` prints a table, and where names and counters differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TensorPipes {
    /// The kernels, those first that took most time.
    pub kernels: Vec<TensorPipe>,
}

impl CountedKernels {
    /// What tensor cores did by kernel, from the metrics of [`Set::Tensor`](cupti::counters::Set::Tensor), beside what the
    /// names say. The operations alone, as [`Set::Roofline`](cupti::counters::Set::Roofline) has them, tell use and types too.
    pub fn tensor_pipes(&self) -> TensorPipes {
        let mut places: FxHashMap<&str, usize> = FxHashMap::default();
        let mut kernels: Vec<TensorPipe> = Vec::new();
        for kernel in self.kernels() {
            let at = *places.entry(kernel.name()).or_insert_with(|| {
                kernels.push(TensorPipe::of(&kernel));
                kernels.len() - 1
            });
            let row = &mut kernels[at];
            let ns = time_ns(&kernel.values()).unwrap_or(0.0);
            row.calls += 1;
            let before = row.time_ns;
            row.time_ns += ns;
            if let Some(percent) = tensor_pipe_percent(&kernel.values()) {
                let sum = row.active_percent.unwrap_or(0.0) * before + percent * ns;
                row.active_percent =
                    Some(if row.time_ns > 0.0 { sum / row.time_ns } else { percent });
            }
            if let Some(count) = tensor_instructions(&kernel.values()) {
                *row.instructions.get_or_insert(0.0) += count;
            }
            let mut tells = false;
            let counted = operations(&Flops::of(&kernel.values()));
            for (of, _, count) in counted.filter(|(_, pipe, _)| *pipe == Pipe::Tensor) {
                tells = true;
                match row.operations.iter_mut().find(|(known, _)| *known == of) {
                    Some((_, sum)) => *sum += count,
                    None if count > 0.0 => row.operations.push((of, count)),
                    None => {}
                }
            }
            let is_busy = row.instructions.or(row.active_percent).map(|busy| busy > 0.0);
            let is_used = if tells { Some(!row.operations.is_empty()) } else { is_busy };
            row.counted = match is_used {
                Some(true) => TcUse::Using,
                Some(false) => TcUse::NotUsing,
                None => TcUse::Unknown,
            };
        }
        for kernel in &mut kernels {
            kernel.operations.sort_by(|one, other| other.1.total_cmp(&one.1));
        }
        // CAST: nanoseconds; parts of one do not matter for the order.
        kernels.sort_by_key(|kernel| (Reverse(kernel.time_ns as u64), kernel.name.clone()));
        TensorPipes { kernels }
    }
}

// SIGNATURE: serde gives references.
fn named<S: Serializer>(operations: &[(Dtype, f64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(operations.iter().map(|(dtype, count)| (dtype.name(), count)))
}

impl TensorPipes {
    /// The kernels of which name and counter say different things.
    pub fn disagreements(&self) -> impl Iterator<Item = (&TensorPipe, PipeDisagreement)> {
        self.kernels.iter().filter_map(|kernel| Some((kernel, kernel.disagreement()?)))
    }

    /// The kernels whose names do not tell, and the counters do.
    pub fn settled(&self) -> impl Iterator<Item = &TensorPipe> {
        self.kernels.iter().filter(|kernel| {
            kernel.by_name.tensor_cores == TcUse::Unknown && kernel.counted != TcUse::Unknown
        })
    }
}

const HEADER: [&str; 9] =
    ["kernel", "class", "by name", "sure", "counted", "calls", "time", "pipe busy", "operations"];

impl fmt::Display for TensorPipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = table(&HEADER, 5);
        for kernel in &self.kernels {
            let operations = kernel.operations.iter();
            let operations: Vec<_> = operations
                .map(|(of, count)| format!("{} {}", si(*count, "FLOP"), of.name()))
                .collect();
            // CAST: nanoseconds as people read them.
            let spent = time(Duration::from_nanos(kernel.time_ns as u64));
            rows.add_row([
                shortened(&kernel.name, NAME_WIDTH),
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
        write!(f, "{}", finish(&rows))?;
        let (mut differ, settled) = (0, self.settled().count());
        for (kernel, what) in self.disagreements() {
            differ += 1;
            write!(
                f,
                "\n{}: {what} ({})",
                shortened(&kernel.name, NAME_WIDTH),
                kernel.by_name.because
            )?;
        }
        write!(
            f,
            "\nnames and counters differ on {differ} of {} kernels; {settled} that no name told are told",
            self.kernels.len()
        )
    }
}
