//! Unmodified programs under `gpuprof run`, each with its way to work and to end: the program's status and output are as
//! without it, every file can be read, and the counts are the program's own.
//!
//! They run against the fake driver of `tests/fake_cuda`. Programs in C++ and Python are ignored where `c++` or `python3` is
//! missing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)] // tests

mod cases;
mod host;

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Ok(name) = env::var(host::SCENE) {
        return cases::play(&name);
    }
    let mut arguments = Arguments::from_args();
    // They sleep more than they work.
    arguments.test_threads.get_or_insert(6);
    let trials = cases::CASES.iter().map(|case| {
        let run = || {
            host::check(case);
            Ok(())
        };
        Trial::test(case.name, run).with_ignored_flag(!host::is_there(case.program.tool()))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    host::clean_up();
    conclusion.exit_code()
}
