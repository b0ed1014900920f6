//! GPU time as a measurement of `criterion`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};

use crate::check::budget::{self, Quantity};
use crate::error::Error;
use crate::profile::Profile;
use crate::session::profiler::Profiler;

/// A time of the GPU as criterion's measurement: [`new`](Self::new) measures the sum of the times of
/// all GPU operations, the other constructors measure other times.
///
/// ```no_run
/// use criterion::Criterion;
/// use profiler_core::Profiler;
/// use profiler_core::testing::GpuTime;
///
/// # fn forward() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let measurement = match Profiler::builder().build().and_then(GpuTime::new) {
///     Ok(measurement) => measurement,
///     Err(error) if error.is_unavailable() => {
///         eprintln!("GPU benches are skipped: {error}"); // no GPU here
///         return Ok(());
///     }
///     Err(error) => return Err(error),
/// };
/// let mut criterion = Criterion::default().with_measurement(measurement);
/// criterion.bench_function("forward", |bencher| bencher.iter(|| forward()));
/// # Ok(())
/// # }
/// ```
///
/// Each sample of criterion is a session, which waits for the GPU at its end. This costs some
/// milliseconds per sample, and 0.2 us per operation for the join; the result includes neither. The
/// routine need not synchronise. Work of other threads during the sample is included. Records take
/// about 250 bytes per kernel. Choose a short `measurement_time`: criterion plans by host time.
///
/// A sample fails if its session cannot start or stop, or if records were lost. It then writes its
/// reason to standard error and counts as no time, and criterion gives up on that benchmark. A
/// routine without GPU work has the same effect.
#[derive(Debug)]
pub struct GpuTime {
    profiler: Arc<Profiler>,
    measured: Measured,
}

/// A time of a profile, or the reason why it is unknown.
type Measured = fn(&Profile) -> Result<Duration, String>;

fn span(profile: &Profile) -> Result<Duration, String> {
    let starts = profile.operations().filter_map(|operation| operation.start());
    between(profile, starts.min())
}

fn latency(profile: &Profile) -> Result<Duration, String> {
    let calls = profile.operations().filter_map(|operation| operation.call());
    between(profile, calls.map(|call| call.start()).min())
}

/// The time from `start` to the end of the last operation; 0 without operations.
fn between(profile: &Profile, start: Option<Duration>) -> Result<Duration, String> {
    budget::time(profile, &Quantity::GpuTime)?;
    let end = profile.operations().filter_map(|operation| operation.end()).max();
    Ok(end.zip(start).map_or(Duration::ZERO, |(end, start)| end.saturating_sub(start)))
}

impl GpuTime {
    /// Measures the sum of the times of all operations: concurrent kernels count twice.
    ///
    /// The profiler must be stopped. Starts and stops a session as a check.
    ///
    /// # Errors
    /// Same as [`Profiler::start`] and [`Profiler::stop`].
    pub fn new(profiler: impl Into<Arc<Profiler>>) -> Result<Self, Error> {
        Self::measuring(profiler, |profile| budget::time(profile, &Quantity::GpuTime))
    }

    /// Measures the time in which at least one operation ran: concurrent kernels count once on a
    /// device, and separately on each of several devices.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn busy(profiler: impl Into<Arc<Profiler>>) -> Result<Self, Error> {
        Self::measuring(profiler, |profile| budget::time(profile, &Quantity::BusyTime))
    }

    /// Measures from the start of the first operation of a sample to the end of the last one, gaps
    /// included: the throughput of a routine that does not wait.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn span(profiler: impl Into<Arc<Profiler>>) -> Result<Self, Error> {
        Self::measuring(profiler, span)
    }

    /// Measures from the start of the first call of a sample that submitted an operation to the end
    /// of the last operation. For a routine that waits for its work this is the launch-to-end
    /// latency with the host's time between iterations; `measure` has the latency of single calls.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn latency(profiler: impl Into<Arc<Profiler>>) -> Result<Self, Error> {
        Self::measuring(profiler, latency)
    }

    /// Starts and stops once, so that errors appear before the first sample.
    fn measuring(profiler: impl Into<Arc<Profiler>>, measured: Measured) -> Result<Self, Error> {
        let profiler = profiler.into();
        profiler.start()?;
        profiler.stop_recording()?;
        Ok(Self { profiler, measured })
    }
}

impl Measurement for GpuTime {
    type Intermediate = Result<(), Error>;
    /// `None` if the time is unknown.
    type Value = Option<Duration>;

    fn start(&self) -> Self::Intermediate {
        self.profiler.start()
    }

    fn end(&self, started: Self::Intermediate) -> Self::Value {
        let profile = started.and_then(|()| self.profiler.stop());
        let time = profile.map_err(|error| error.to_string());
        let time = time.and_then(|profile| (self.measured)(&profile));
        // `Measurement` cannot return an error.
        let print =
            |why| writeln!(std::io::stderr(), "the GPU time of a sample is not known: {why}");
        time.map_err(print).ok()
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
        // Scales nanoseconds to a fitting unit.
        WallTime.formatter()
    }
}
