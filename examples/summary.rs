//! Prints the sums of every range of a recording, one JSON object per line, for scripts.
//!
//! ```text
//! cargo run --release --example quickstart -- --save run.gpuprof     # on a machine with a GPU
//! cargo run --release --features analysis --example summary -- run.gpuprof
//! ```
//!
//! [`Profile::json_lines`] describes the lines.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::process::ExitCode;

use profiler_analysis::prelude::*;
use profiler_core::Profile;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: summary FILE.gpuprof");
        return ExitCode::from(2);
    };
    match Profile::load(file) {
        Ok(profile) => {
            print!("{}", profile.json_lines());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("summary: {error}");
            ExitCode::FAILURE
        }
    }
}
