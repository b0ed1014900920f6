//! GPU tests as ordinary trials: ignored with the reason on standard error where there is no GPU, failed with it if
//! `GPU_TESTS=require`. They take turns, in the process and across processes: CUPTI serves one at a time.

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use profiler_core::testing::{GpuLock, gpu_tests_required};

/// A GPU test: its name and what it does.
pub type Test = (&'static str, fn());

/// Runs the tests, as the command line asks.
#[allow(clippy::print_stderr)] // the reason belongs to the test's result
pub fn run(tests: &[Test]) -> Conclusion {
    let arguments = Arguments::from_args();
    let missing = crate::cuda::unavailable();
    let required = gpu_tests_required();
    if let Some(why) = &missing
        && !arguments.list
    {
        let fate = if required { "fail" } else { "are ignored" };
        eprintln!("{} GPU tests {fate}: {why}", tests.len());
    }
    let trials = tests.iter().map(|&(name, test)| {
        let why = missing.clone();
        let ignored = why.is_some() && !required;
        let run = move || match why {
            Some(why) => Err(Failed::from(why)),
            None => {
                let _turn = GpuLock::wait();
                test();
                Ok(())
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect())
}
