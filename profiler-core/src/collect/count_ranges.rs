//! Hardware counters over the ranges of the program.

use cupti::counters::{Measured, RangeProfiler};

use crate::collect::collection::Counting;
use crate::error::Error;
use crate::record::range_tap::RangeCounting;

/// Counts metrics over the ranges of `nvtx`, `#[annotate]` and the tracing layer that this thread
/// opens in `work`. Nested ranges are counted up to the profiler's
/// [levels](cupti::counters::Builder::levels). Deeper ranges are counted for their ancestors, as
/// are launches of other threads.
///
/// `work` runs [`RangeProfiler::runs`] times and must open the same ranges each time. CUPTI cannot
/// record and count at the same time.
///
/// ```no_run
/// use cupti::counters::{RangeProfiler, Set};
///
/// #[nvtx::annotate]
/// fn forward() { /* CUDA work */ }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let library = cupti::Library::open()?;
/// let profiler = RangeProfiler::builder(&library).set(Set::Dram).build()?; // on the current context
/// let measured = profiler_core::counters::count_ranges(&profiler, forward)?;
/// println!("{measured}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`is_busy`](Error::is_busy): a session runs in this process, or another tool has the counters or
/// the range observer. [`is_permission`](Error::is_permission): reading counters requires
/// administrator rights. Otherwise the runs had different ranges, or none.
pub fn count_ranges(profiler: &RangeProfiler, mut work: impl FnMut()) -> Result<Measured, Error> {
    let counting = Counting::begin()?;
    let measured = profiler.measure(|ranges| {
        let _tapped = RangeCounting::begin(ranges.clone());
        work();
    });
    drop(counting);
    Ok(measured?)
}

/// Counts metrics over each kernel that `work` launches ([`RangeProfiler::measure_kernels`]). No
/// session can start meanwhile.
///
/// # Errors
/// Same as [`count_ranges`].
pub fn count_kernels(profiler: &RangeProfiler, work: impl FnMut()) -> Result<Measured, Error> {
    let counting = Counting::begin()?;
    let ((), measured) = profiler.measure_kernels(work)?;
    drop(counting);
    Ok(measured)
}
