//! GPU time as what `criterion` measures.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use crate::base::error::Error;
use crate::check::budget;
use crate::profile::Profile;
use crate::session::profiler::Profiler;

/// Measures the time of all GPU operations, summed: two kernels that run at once count twice.
///
/// ```no_run
/// use criterion::Criterion;
/// use profiler_core::Profiler;
/// use profiler_core::testing::GpuTime;
///
/// # fn forward() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let measurement = GpuTime::new(Profiler::builder().build()?)?; // is_unavailable() where there is no GPU
/// let mut criterion = Criterion::default().with_measurement(measurement);
/// criterion.bench_function("forward", |bencher| bencher.iter(|| forward()));
/// # Ok(())
/// # }
/// ```
///
/// Each of criterion's samples is a session of its own, which waits for the GPU at its end: some milliseconds a sample
/// on top of its iterations, and some 0.2 us an operation for the join, none of which is in the result. Nothing
/// needs to be synchronised in the routine. Work of other threads in that time is in the result. Records take memory,
/// some 250 bytes a kernel: choose a short `measurement_time`, since criterion plans its iterations by the time on the
/// host's clock.
///
/// A sample that cannot be known (a session that cannot start or stop, records that were lost) writes its reason to
/// standard error and counts as no time at all, for which criterion gives up on that benchmark; so does a routine
/// that does nothing on the GPU.
#[derive(Debug)]
pub struct GpuTime(Arc<Profiler>);

/// Measures the time in which at least one GPU operation ran: two kernels that run at once on a device count once, those
/// on two devices twice. Otherwise as [`GpuTime`].
#[derive(Debug)]
pub struct BusyTime(Arc<Profiler>);

/// Starts and stops once, so that what is wrong is known before the first sample.
fn tried(profiler: Arc<Profiler>) -> Result<Arc<Profiler>, Error> {
    profiler.start()?;
    profiler.stop_recording()?;
    Ok(profiler)
}

fn end(
    profiler: &Profiler,
    started: Result<(), Error>,
    time: fn(&Profile) -> Result<Duration, String>,
) -> Option<Duration> {
    let profile = started.and_then(|()| profiler.stop());
    let time = profile.map_err(|error| error.to_string()).and_then(|profile| time(&profile));
    // The trait has no way to give an error.
    time.map_err(|why| writeln!(std::io::stderr(), "the GPU time of a sample is not known: {why}"))
        .ok()
}

macro_rules! measurement {
    ($name:ident, $time:path) => {
        impl $name {
            /// With this profiler, which must not be running. Starts and stops a session, to see that it can.
            ///
            /// # Errors
            /// As [`Profiler::start`] and [`Profiler::stop`].
            pub fn new(profiler: impl Into<Arc<Profiler>>) -> Result<Self, Error> {
                tried(profiler.into()).map(Self)
            }
        }

        impl Measurement for $name {
            type Intermediate = Result<(), Error>;
            /// `None` if it is not known.
            type Value = Option<Duration>;

            fn start(&self) -> Self::Intermediate {
                self.0.start()
            }

            fn end(&self, started: Self::Intermediate) -> Self::Value {
                end(&self.0, started, $time)
            }

            fn add(&self, one: &Self::Value, other: &Self::Value) -> Self::Value {
                one.zip(*other).map(|(one, other)| one + other)
            }

            fn zero(&self) -> Self::Value {
                Some(Duration::ZERO)
            }

            fn to_f64(&self, value: &Self::Value) -> f64 {
                value.unwrap_or_default().as_nanos() as f64
            }

            fn formatter(&self) -> &dyn ValueFormatter {
                // Nanoseconds, scaled to what suits.
                WallTime.formatter()
            }
        }
    };
}

measurement!(GpuTime, budget::gpu_time);
measurement!(BusyTime, budget::busy_time);
