//! GPU tests: warm-up, repeats, exclusive use of the GPU, and a visible skip without one.

use std::io::Write as _;
#[cfg(feature = "test-reports")]
use std::panic::Location;

use profiler_base::{getters, setters};

#[cfg(feature = "test-reports")]
use crate::check::ci::{Check, CheckOutcome, CiReport};
use crate::check::gpu_lock::GpuLock;
use crate::error::Error;
use crate::profile::Profile;
use crate::profile::profiles::Profiles;
use crate::session::profiler::Profiler;

/// A measured test; [`gpu_test()`] starts one and has an example.
#[derive(Debug)]
#[must_use = "nothing is measured until `run` is called"]
pub struct GpuTest {
    profiler: Profiler,
    warm_up: u32,
    repeats: u32,
    /// Dropped last: the profiler may have a session.
    _turn: GpuLock,
}

/// The profiles of all repeats of a [`GpuTest`], and the result of the last one.
#[derive(Debug)]
pub struct Measured<R> {
    profiles: Vec<Profile>,
    result: R,
}

/// Starts a measured test, or reports why it is skipped.
///
/// ```no_run
/// use profiler_core::{at_most, exactly, expect, gpu_test};
///
/// # fn forward() {}
/// #[test]
/// # fn hidden() {}
/// fn forward_is_lean() {
///     let Some(test) = gpu_test() else { return };
///     let run = test.warm_up(2).repeats(5).run(|| {
///         let _range = nvtx::range("forward");
///         forward();
///     });
///     expect(&run).range("forward").kernels(at_most(12)).synchronizations(exactly(0)).assert();
/// }
/// ```
///
/// `#[gpu_test]` ([`macro@crate::gpu_test`]) is a shorter form.
///
/// These tests exclude each other across threads and processes until the [`GpuTest`] is dropped
/// ([`GpuLock`]). The GPU work of other threads is recorded too.
///
/// Without a GPU, driver or CUPTI it returns `None` and writes the reason directly to standard
/// error, which `cargo test` shows also for a passing test. With `GPU_TESTS=require` in the
/// environment it fails instead, so that a machine that should have a GPU cannot pass without one.
/// With `GPU_TEST_REPORTS=FOLDER` and the feature `test-reports`, a JUnit file has the skipped
/// test.
///
/// # Panics
/// If the GPU is unavailable, with `GPU_TESTS=require`.
#[must_use]
#[track_caller]
pub fn gpu_test() -> Option<GpuTest> {
    GpuTest::from_profiler(Profiler::builder().build())
}

impl GpuTest {
    /// Same as [`gpu_test()`], with an existing profiler.
    ///
    /// # Panics
    /// If the profiler failed for another reason than an unavailable GPU, and in the cases of
    /// [`gpu_test()`].
    #[must_use]
    #[track_caller]
    pub fn from_profiler(profiler: Result<Profiler, Error>) -> Option<Self> {
        let error = match profiler {
            Ok(profiler) => {
                return Some(Self { profiler, warm_up: 1, repeats: 1, _turn: GpuLock::wait() });
            }
            Err(error) => error,
        };
        assert!(error.is_unavailable(), "the profiler could not be made: {error}");
        let is_required = std::env::var_os("GPU_TESTS").is_some_and(|value| value == "require");
        assert!(!is_required, "GPU_TESTS=require, and the GPU cannot be used: {error}");
        #[cfg(feature = "test-reports")]
        CiReport::publish(Location::caller(), || {
            let check = Check::new("GPU", CheckOutcome::Skipped).message(error.to_string());
            CiReport::default().check(check)
        });
        // The test harness captures the print macros. A failed write is no reason to fail the test.
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a GPU test");
        let _ = writeln!(std::io::stderr(), "skipped: {name}: {error}");
        None
    }

    setters! {
        /// The number of warm-up runs before the measurement; 1 by default. They share a discarded
        /// session, which also absorbs the cost of a first session.
        warm_up(runs: u32) warm_up = runs;
        /// The number of measured runs, each in its own session; 1 by default and at least.
        repeats(runs: u32) repeats = runs.max(1);
    }

    /// Runs the warm-up and the repeats, and returns the profiles of the repeats. A session takes
    /// milliseconds to start and stop; the stop waits for the GPU.
    ///
    /// # Panics
    /// If a session cannot start or stop, as under nsys, or if `work` panics.
    #[track_caller]
    pub fn run<R>(self, work: impl FnMut() -> R) -> Measured<R> {
        measured(self.try_run(work))
    }

    /// Same as [`run`](Self::run), for tests that return their errors.
    ///
    /// # Errors
    /// Same as [`Profiler::record`].
    pub fn try_run<R>(self, mut work: impl FnMut() -> R) -> Result<Measured<R>, Error> {
        if self.warm_up != 0 {
            self.profiler.record(|| (0..self.warm_up).for_each(|_| drop(work())))?;
        }
        let (mut result, profile) = self.profiler.record(&mut work)?;
        let mut profiles = vec![profile];
        for _ in 1..self.repeats {
            let (again, profile) = self.profiler.record(&mut work)?;
            result = again;
            profiles.push(profile);
        }
        Ok(Measured { profiles, result })
    }

    /// The profiler, the number of warm-up runs, and the lock, which is held until it is dropped:
    /// for other kinds of measurement. The profiler must be dropped before the lock.
    pub fn into_parts(self) -> (Profiler, u32, GpuLock) {
        (self.profiler, self.warm_up, self._turn)
    }
}

#[track_caller]
fn measured<M>(outcome: Result<M, Error>) -> M {
    match outcome {
        Ok(measured) => measured,
        // Panics like every failure in a test.
        #[allow(clippy::panic)]
        Err(error) => panic!("the test could not be measured: {error}"),
    }
}

impl<R> Measured<R> {
    getters! {
        /// The profiles of the repeats in order; at least one.
        profiles: &[Profile] = profiles;
        /// The result of the last repeat.
        result: &R = result;
    }

    /// Same as [`result`](Self::result), consuming the profiles.
    #[must_use]
    pub fn into_result(self) -> R {
        self.result
    }
}

impl<R> Profiles for Measured<R> {
    fn profiles(&self) -> &[Profile] {
        &self.profiles
    }
}

/// The return type of a [`#[gpu_test]`](macro@crate::gpu_test) function, for a skip without a GPU.
pub trait Skipped {
    /// The value of a pass.
    fn skipped() -> Self;
}

impl Skipped for () {
    fn skipped() {}
}

impl<E> Skipped for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}
