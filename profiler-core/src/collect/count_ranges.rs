//! Hardware counters over the ranges of the program.

use cupti::counters::{Measured, RangeProfiler};

use crate::base::error::Error;
use crate::collect::collection::Counting;
use crate::record::range_tap::RangeCounting;

/// Counts metrics over the ranges that this thread opens in `work`: those of `nvtx` and of `#[annotate]`, and spans through
/// the layer. Ranges in ranges are counted as deep as the profiler has
/// [levels](cupti::counters::Builder::levels); the rest counts for those around them, as does what other threads launch.
///
/// `work` runs as often as [`RangeProfiler::runs`] says, and has to open the same ranges each time. A recording and counters
/// exclude each other: CUPTI serves one of them.
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
/// [`is_busy`](Error::is_busy): a session runs in this process, or another tool has the counters or the range observer.
/// [`is_permission`](Error::is_permission): reading counters is for administrators. Else the ranges were not the same in
/// each run, or there were none.
pub fn count_ranges(profiler: &RangeProfiler, mut work: impl FnMut()) -> Result<Measured, Error> {
    let counting = Counting::begin()?;
    let measured = profiler.measure(|ranges| {
        let _tapped = RangeCounting::begin(ranges.clone());
        work();
    });
    drop(counting);
    Ok(measured?)
}
