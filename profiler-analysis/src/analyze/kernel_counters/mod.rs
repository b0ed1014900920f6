//! Hardware counters per kernel, matched to kernel names from a recording of the same work.

mod tensor_pipes;

use std::sync::Arc;

use cupti::counters::{Flops, Measured, RangeProfiler, RangeValues};
use nvtx::{Dtype, Pipe};
use profiler_base::getters;
use rustc_hash::FxHashMap;

use crate::analyze::kernels::tensor_core;
use crate::analyze::kernels::{Classifier, KernelClass, TensorCoreUse};
use crate::error::{Error, Kind};
use profiler_core::Profiler;
use profiler_core::profile::{Kernel, Profile};
pub use tensor_pipes::{PipeDisagreement, TensorPipe, TensorPipes};

/// The counts of one run, kernel by kernel, with the name of each kernel.
///
/// CUPTI numbers the kernels in launch order without names; a recording of another run of the same
/// work has the names. Both runs must launch the same kernels, but only their number is checked.
/// Kernels of CUDA graphs are not launched one by one, so count work with graphs by ranges
/// ([`count_ranges`](profiler_core::counters::count_ranges)).
#[derive(Debug, Clone)]
pub struct CountedKernels {
    measured: Measured,
    kernels: Vec<KernelLabels>,
}

#[derive(Debug, Clone)]
struct KernelLabels {
    name: Arc<str>,
    class: KernelClass,
    tensor_core: TensorCoreUse,
}

/// A kernel with its counts.
#[derive(Debug, Clone, Copy)]
pub struct CountedKernel<'a> {
    labels: &'a KernelLabels,
    values: RangeValues<'a>,
}

/// Records the work once for the kernel names, then runs it again and counts each kernel
/// ([`RangeProfiler::measure_kernels`]).
///
/// ```no_run
/// use cupti::counters::{RangeProfiler, Set};
/// use profiler_core::Profiler;
/// use profiler_analysis::counters::count_kernels;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut step = || {};
/// let library = cupti::Library::open()?;
/// let counters = RangeProfiler::builder(&library).set(Set::Tensor).build()?; // on the current context
/// let kernels = count_kernels(&counters, &Profiler::builder().build()?, &mut step)?;
/// println!("{}", kernels.tensor_pipes());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors of [`Profiler::record`] and [`count_ranges`](profiler_core::counters::count_ranges),
/// or the two runs launched different numbers of kernels.
pub fn count_kernels(
    counters: &RangeProfiler,
    profiler: &Profiler,
    mut work: impl FnMut(),
) -> Result<CountedKernels, Error> {
    let ((), profile) = profiler.record(&mut work)?;
    let measured = profiler_core::counters::count_kernels(counters, work)?;
    CountedKernels::new(&profile, measured)
}

impl CountedKernels {
    /// Names the kernels that [`RangeProfiler::measure_kernels`] counted by the launch order in a
    /// profile of the same work.
    ///
    /// # Errors
    /// The numbers of kernels differ.
    pub fn new(profile: &Profile, measured: Measured) -> Result<Self, Error> {
        Self::with_classifier(profile, measured, &Classifier::new())
    }

    /// Like [`new`](Self::new), with a custom classifier.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn with_classifier(
        profile: &Profile,
        measured: Measured,
        classifier: &Classifier,
    ) -> Result<Self, Error> {
        let mut launched: Vec<_> = profile.kernels().collect();
        launched.sort_by_key(|kernel| kernel.correlation_id());
        let counted = measured.ranges().count();
        if counted + measured.dropped() != launched.len() {
            return Err(Error::new(Kind::Counts(format!(
                "{counted} kernels were counted, {} had no room, and the recording has {}: they cannot be matched; \
                 launch the same kernels in both runs, none of them from CUDA graphs",
                measured.dropped(),
                launched.len()
            ))));
        }
        let mut known: FxHashMap<&str, KernelLabels> = FxHashMap::default();
        let labels = |kernel: &Kernel<'_>| KernelLabels {
            name: kernel.demangled_name().into(),
            class: classifier.classify(kernel.name()),
            tensor_core: tensor_core::tensor_core_use(kernel, classifier),
        };
        let kernels = launched[..counted].iter();
        let kernels = kernels
            .map(|kernel| known.entry(kernel.name()).or_insert_with(|| labels(kernel)).clone())
            .collect();
        Ok(Self { measured, kernels })
    }

    /// The counts.
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The kernels in launch order.
    pub fn kernels(&self) -> impl Iterator<Item = CountedKernel<'_>> {
        let ranges = self.kernels.iter().zip(self.measured.ranges());
        ranges.map(|(labels, values)| CountedKernel { labels, values })
    }
}

impl<'a> CountedKernel<'a> {
    /// The name as displayed in reports.
    pub fn name(&self) -> &'a str {
        &self.labels.name
    }

    getters! {
        /// The class by name.
        class: KernelClass = labels.class;
        /// Tensor-core use by name.
        tensor_core_use: TensorCoreUse = labels.tensor_core;
        /// The counts.
        values: RangeValues<'a> = values;
    }
}

/// The counted operations by type and units.
pub(crate) fn operations(flops: &Flops) -> impl Iterator<Item = (Dtype, Pipe, f64)> + use<> {
    use Pipe::{Tensor, Vector};
    let counts = [
        (Dtype::F16, Vector, flops.half),
        (Dtype::F32, Vector, flops.single),
        (Dtype::F64, Vector, flops.double),
        (Dtype::F4, Tensor, flops.tensor_fp4),
        (Dtype::F8, Tensor, flops.tensor_fp8),
        (Dtype::I8, Tensor, flops.tensor_int8),
        (Dtype::F16, Tensor, flops.tensor_fp16),
        (Dtype::Bf16, Tensor, flops.tensor_bf16),
        (Dtype::Tf32, Tensor, flops.tensor_tf32),
        (Dtype::F64, Tensor, flops.tensor_fp64),
    ];
    counts.into_iter().filter_map(|(dtype, pipe, count)| Some((dtype, pipe, count?)))
}
