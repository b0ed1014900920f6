//! Hardware counters kernel by kernel, with the names that a recording of the same work has.

mod tensor_pipes;

use std::sync::Arc;

use cupti::counters::{Flops, Measured, RangeProfiler, RangeValues};
use nvtx::{Dtype, Pipe};
use rustc_hash::FxHashMap;

use crate::analyze::kernels::{Classifier, KernelClass, TensorCoreUse};
use crate::base::error::{Error, Kind};
use crate::profile::Profile;
use crate::session::profiler::Profiler;
pub use tensor_pipes::{PipeDisagreement, TensorPipe, TensorPipes};

/// What one run of some work counted, kernel by kernel, and which kernel each is.
///
/// CUPTI counts kernels in the order of their launches and gives them numbers; a recording of another run of the same work has
/// their names. Both have to have as many kernels: that they are the same ones is on whoever says so. Kernels of CUDA graphs
/// are not launched one by one, so work with graphs is better counted by ranges ([`count_ranges`](crate::counters::count_ranges)).
#[derive(Debug, Clone)]
pub struct CountedKernels {
    measured: Measured,
    kernels: Vec<Named>,
}

#[derive(Debug, Clone)]
struct Named {
    name: Arc<str>,
    class: KernelClass,
    tensor_core: TensorCoreUse,
}

/// A kernel with its counts.
#[derive(Debug, Clone, Copy)]
pub struct CountedKernel<'a> {
    named: &'a Named,
    values: RangeValues<'a>,
}

/// Records the work once for the names of its kernels, then runs it again and counts each kernel by itself
/// ([`RangeProfiler::measure_kernels`]).
///
/// ```no_run
/// use cupti::counters::{RangeProfiler, Set};
/// use profiler_core::Profiler;
/// use profiler_core::counters::count_kernels;
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
/// The recording or the counting fails, with the errors of [`Profiler::record`] and
/// [`count_ranges`](crate::counters::count_ranges). The two runs had not as many kernels.
pub fn count_kernels(
    counters: &RangeProfiler,
    profiler: &Profiler,
    mut work: impl FnMut(),
) -> Result<CountedKernels, Error> {
    let ((), profile) = profiler.record(&mut work)?;
    let counting = crate::collect::collection::Counting::begin()?;
    let ((), measured) = counters.measure_kernels(work)?;
    drop(counting);
    CountedKernels::new(&profile, measured)
}

impl CountedKernels {
    /// Kernels that [`RangeProfiler::measure_kernels`] counted, with the names of those that a profile has of the same work, by
    /// the order of their launches.
    ///
    /// # Errors
    /// There are not as many kernels in the one as in the other.
    pub fn new(profile: &Profile, measured: Measured) -> Result<Self, Error> {
        Self::with_classifier(profile, measured, &Classifier::new())
    }

    /// The same, with rules of the program's own for what kernels are for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
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
                "{counted} kernels were counted, {} had no room, and the recording has {}: which is which cannot be told; \
                 have both runs launch the same kernels, and none from CUDA graphs",
                measured.dropped(),
                launched.len()
            ))));
        }
        let mut known: FxHashMap<&str, Named> = FxHashMap::default();
        let kernels = launched.iter().take(counted).map(|kernel| {
            let named = known.entry(kernel.name()).or_insert_with(|| Named {
                name: kernel.demangled_name().into(),
                class: classifier.classify(kernel.name()),
                tensor_core: kernel.tensor_core_use_with(classifier),
            });
            named.clone()
        });
        let kernels = kernels.collect();
        Ok(Self { measured, kernels })
    }

    /// What was counted.
    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The kernels in the order of their launches.
    pub fn kernels(&self) -> impl Iterator<Item = CountedKernel<'_>> {
        let of = |(named, values)| CountedKernel { named, values };
        self.kernels.iter().zip(self.measured.ranges()).map(of)
    }
}

impl<'a> CountedKernel<'a> {
    /// Its name as reports show it.
    pub fn name(&self) -> &'a str {
        &self.named.name
    }

    /// What it is for, by its name.
    pub fn class(&self) -> KernelClass {
        self.named.class
    }

    /// What its name says of tensor cores.
    pub fn tensor_core_use(&self) -> TensorCoreUse {
        self.named.tensor_core
    }

    /// Its counts.
    pub fn values(&self) -> RangeValues<'a> {
        self.values
    }
}

/// The operations that were counted, by type and units.
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
