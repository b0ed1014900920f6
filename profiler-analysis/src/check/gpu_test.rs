//! Measurements and baselines in GPU tests.

use std::io::Write as _;
use std::panic::Location;
use std::time::Instant;

use profiler_core::GpuTest;
use profiler_core::testing::ci::{Check, CheckOutcome, CiReport};

use crate::check::gate::{Gate, GateVerdict};
use crate::error::Error;

/// A test against a baseline, made by
/// [`GpuTestExt::baseline`](crate::prelude::GpuTestExt::baseline).
#[derive(Debug)]
#[must_use = "nothing is measured until `run` is called"]
pub struct GatedTest {
    test: GpuTest,
    gate: Gate,
}

impl GatedTest {
    pub(crate) fn new(test: GpuTest, gate: Gate) -> Self {
        Self { test, gate }
    }

    /// Runs the warm-up and the measurement, and returns the verdict. Writes a message to standard
    /// error if the baseline was written, and reports for CI like
    /// [`assert`](crate::budget::Expect::assert).
    ///
    /// # Panics
    /// - The gate fails or cannot decide.
    /// - A session cannot start or stop, for example under nsys.
    /// - [`Gate::run`] returns an error.
    /// - `work` panics.
    #[track_caller]
    pub fn run<R>(self, work: impl FnMut() -> R) -> GateVerdict {
        let begin = Instant::now();
        let judged = self.try_run(work);
        let lasted = begin.elapsed();
        CiReport::publish(Location::caller(), || report_of(&judged).lasting(lasted));
        match judged {
            Ok(verdict) => {
                assert!(verdict.is_pass(), "{verdict}");
                if verdict.is_written() {
                    let _ = writeln!(std::io::stderr(), "{verdict}");
                }
                verdict
            }
            // An assertion, like every failure in a test.
            #[allow(clippy::panic)]
            Err(error) => panic!("the test could not be judged: {error}"),
        }
    }

    /// Like [`run`](Self::run), for tests that examine the verdict: a failed gate is not an error.
    ///
    /// # Errors
    /// The errors of [`Profiler::record`] and [`Gate::run`].
    pub fn try_run<R>(self, mut work: impl FnMut() -> R) -> Result<GateVerdict, Error> {
        let (profiler, warm_up, _turn) = self.test.into_parts();
        if warm_up != 0 {
            profiler.record(|| (0..warm_up).for_each(|_| drop(work())))?;
        }
        self.gate.run(|| profiler.record(&mut work).map(|(_, profile)| profile))
    }
}

fn report_of(judged: &Result<GateVerdict, Error>) -> CiReport {
    match judged {
        Ok(verdict) => CiReport::from(verdict),
        Err(error) => {
            let check = Check::new("baseline", CheckOutcome::Undecided);
            CiReport::default().check(check.message(error.to_string()))
        }
    }
}

/// The measurement of a test, which fails without one.
#[track_caller]
pub(crate) fn measured<M>(outcome: Result<M, Error>) -> M {
    match outcome {
        Ok(measured) => measured,
        // An assertion, like every failure in a test.
        #[allow(clippy::panic)]
        Err(error) => panic!("the test could not be measured: {error}"),
    }
}
