//! Runs GPU tests as ordinary trials. Without a GPU they are ignored, or fail if
//! `GPU_TESTS=require`, and the reason goes to standard error. Only one runs at a time on the
//! machine, because CUPTI serves one subscriber.

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use profiler_core::testing::GpuLock;

/// A GPU test: its name and its function.
pub type Test = (&'static str, fn());

/// Runs the tests that the command line selects.
pub fn run(tests: &[Test]) -> Conclusion {
    run_unless(tests, crate::cuda::unavailable())
}

/// Runs tests whose times or loads need optimised libraries: an unoptimised build treats them as if the GPU were missing.
pub fn run_optimized(tests: &[Test]) -> Conclusion {
    let unoptimized = "their times need optimised libraries: build with --release";
    let unoptimized = cfg!(debug_assertions).then(|| unoptimized.to_owned());
    run_unless(tests, crate::cuda::unavailable().or(unoptimized))
}

#[allow(clippy::print_stderr)] // the reason is part of the test's result
fn run_unless(tests: &[Test], missing: Option<String>) -> Conclusion {
    let arguments = Arguments::from_args();
    let required = std::env::var_os("GPU_TESTS").is_some_and(|value| value == "require");
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
                let _lock = GpuLock::wait();
                test();
                Ok(())
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect())
}
