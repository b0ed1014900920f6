//! Tests that measure: warmed up, repeated, one at a time, and skipped aloud where there is no GPU.

use std::io::Write as _;

use crate::base::error::Error;
#[cfg(feature = "analysis")]
use crate::check::gate::{Gate, Verdict};
use crate::check::gpu_lock::GpuLock;
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
    /// Ends last: the profiler may have a session.
    _turn: GpuLock,
}

/// What a [`GpuTest`] saw: a profile of every repeat, and what the last one gave.
#[derive(Debug)]
pub struct Measured<R> {
    profiles: Vec<Profile>,
    result: R,
}

/// Begins a measured test, or says why it is skipped.
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
/// `#[gpu_test]` ([`macro@crate::gpu_test`]) does the same with less to write.
///
/// Tests that begin so take turns ([`GpuLock`]) until the [`GpuTest`] is gone: those of other threads and processes wait.
/// Work of threads that measure nothing is seen all the same.
///
/// Where there is no GPU, driver or CUPTI it gives `None`, and writes the reason straight to standard error, where
/// `cargo test` shows it also for a test that passes. With `GPU_TESTS=require` in the environment it fails instead, so
/// that a machine that should have a GPU cannot pass without one.
///
/// # Panics
/// Where there is no GPU, with `GPU_TESTS=require`.
#[must_use]
#[track_caller]
pub fn gpu_test() -> Option<GpuTest> {
    gpu_test_with(Profiler::builder().build())
}

/// The same with a profiler of one's own making.
///
/// # Panics
/// If the profiler could not be made for another reason than a GPU that is not there, and as [`gpu_test`].
#[must_use]
#[track_caller]
pub fn gpu_test_with(profiler: Result<Profiler, Error>) -> Option<GpuTest> {
    let error = match profiler {
        Ok(profiler) => {
            return Some(GpuTest { profiler, warm_up: 1, repeats: 1, _turn: GpuLock::wait() });
        }
        Err(error) => error,
    };
    assert!(error.is_unavailable(), "the profiler could not be made: {error}");
    assert!(!gpu_tests_required(), "GPU_TESTS=require, and the GPU cannot be used: {error}");
    // The macros that print are captured by the test harness; what cannot be written is no reason to fail.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a GPU test");
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {error}");
    None
}

/// Whether `GPU_TESTS=require` is in the environment: tests that need a GPU then fail where there is none.
#[must_use]
pub fn gpu_tests_required() -> bool {
    std::env::var_os("GPU_TESTS").is_some_and(|value| value == "require")
}

impl GpuTest {
    /// How often the work is done before it is measured; once, if not told. Warm-up runs have a session of their own,
    /// which is thrown away, so that what a first session costs is not measured either.
    pub fn warm_up(mut self, runs: u32) -> Self {
        self.warm_up = runs;
        self
    }

    /// How often the work is measured, each time in a session of its own; once, if not told, and never less.
    pub fn repeats(mut self, runs: u32) -> Self {
        self.repeats = runs.max(1);
        self
    }

    /// Does the work, warm-up first, and gives the profiles of the repeats. A session costs milliseconds to start and
    /// stop; the stop waits for the GPU.
    ///
    /// # Panics
    /// If a session cannot be started or stopped, as under nsys; and as `work` does.
    #[track_caller]
    pub fn run<R>(self, work: impl FnMut() -> R) -> Measured<R> {
        match self.try_run(work) {
            Ok(measured) => measured,
            // An assertion, as all that is wrong in a test.
            #[allow(clippy::panic)]
            Err(error) => panic!("the test could not be measured: {error}"),
        }
    }

    /// The same, for tests that return their errors.
    ///
    /// # Errors
    /// As [`Profiler::record`].
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
}

#[cfg(feature = "analysis")]
impl GpuTest {
    /// Measures until it is decided whether the work is what the baseline has: see [`Gate`], which says what is compared and
    /// how sure that is. A path will do for a gate, relative to the package's folder.
    ///
    /// How often is the gate's to say ([`Gate::runs`]), not [`repeats`](Self::repeats). With `GPU_BASELINES=update` in the
    /// environment the baseline is written instead.
    pub fn baseline(self, gate: impl Into<Gate>) -> GatedTest {
        GatedTest { test: self, gate: gate.into() }
    }
}

/// A test that compares with a baseline. Made by [`GpuTest::baseline`].
#[cfg(feature = "analysis")]
#[derive(Debug)]
#[must_use = "nothing is measured until `run` is called"]
pub struct GatedTest {
    test: GpuTest,
    gate: Gate,
}

#[cfg(feature = "analysis")]
impl GatedTest {
    /// Does the work, warm-up first, and gives the verdict. A baseline that was written is told on standard error.
    ///
    /// # Panics
    /// If the gate fails or cannot decide; if a session cannot be started or stopped, as under nsys; as
    /// [`Gate::run`] has errors; and as `work` does.
    #[track_caller]
    pub fn run<R>(self, work: impl FnMut() -> R) -> Verdict {
        match self.try_run(work) {
            Ok(verdict) => {
                assert!(verdict.is_pass(), "{verdict}");
                if verdict.is_written() {
                    let _ = writeln!(std::io::stderr(), "{verdict}");
                }
                verdict
            }
            // An assertion, as all that is wrong in a test.
            #[allow(clippy::panic)]
            Err(error) => panic!("the test could not be judged: {error}"),
        }
    }

    /// The same, for tests that look at the verdict themselves: one that fails is no error.
    ///
    /// # Errors
    /// As [`Profiler::record`] and [`Gate::run`].
    pub fn try_run<R>(self, mut work: impl FnMut() -> R) -> Result<Verdict, Error> {
        let GpuTest { profiler, warm_up, .. } = &self.test;
        if *warm_up != 0 {
            profiler.record(|| (0..*warm_up).for_each(|_| drop(work())))?;
        }
        self.gate.run(|| profiler.record(&mut work).map(|(_, profile)| profile))
    }
}

impl<R> Measured<R> {
    /// The profiles of the repeats, in their order. There is at least one.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// What the last repeat gave.
    pub fn result(&self) -> &R {
        &self.result
    }

    /// The same, without the profiles.
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

/// What a skipped test returns. For `#[gpu_test]`.
pub trait Skipped {
    /// A pass.
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
