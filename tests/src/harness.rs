//! GPU tests as ordinary trials: ignored with the reason on standard error where there is no GPU, failed with it if
//! `GPU_TESTS=require`. They take turns, in the process and across processes: CUPTI serves one at a time.

use std::fs::File;
use std::sync::Mutex;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

/// A GPU test: its name and what it does.
pub type Test = (&'static str, fn());

/// Runs the tests, as the command line asks.
#[allow(clippy::print_stderr)] // the reason belongs to the test's result
pub fn run(tests: &[Test]) -> Conclusion {
    let arguments = Arguments::from_args();
    let missing = crate::cuda::unavailable();
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
                in_turn(test);
                Ok(())
            }
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect())
}

/// Waits until no other GPU test runs, here or in another process of this machine.
fn in_turn(test: fn()) {
    static HERE: Mutex<()> = Mutex::new(());
    let _here = HERE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let elsewhere = File::create(std::env::temp_dir().join("gpu-profiler-tests.lock"));
    // Without the file tests of several processes may meet; each says then that CUPTI is busy.
    let _elsewhere = elsewhere.and_then(|file| file.lock().map(|()| file));
    test();
}
