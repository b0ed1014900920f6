//! Prints what every range of a recording came to, one JSON object a line, for scripts.
//!
//! ```text
//! cargo run --release --example quickstart -- --save run.gpuprof     # on a machine with a GPU
//! cargo run --release --example summary -- run.gpuprof
//! ```
//!
//! The fields: `path`, `instances`, `host_ns`, and `inclusive` and `exclusive` with the counts and sums of
//! [`profiler_core::Totals`]. The last line is everything, with an empty path.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::process::ExitCode;

use profiler_core::{Profile, RangeNode};
use serde_json::json;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: summary FILE.gpuprof");
        return ExitCode::from(2);
    };
    match Profile::load(file) {
        Ok(profile) => {
            profile.roots().for_each(|root| print(&root));
            let all = json!({
                "path": "", "inclusive": profile.totals(), "exclusive": profile.outside_ranges(),
                "complete": profile.health().is_complete(), "health": profile.health(),
            });
            println!("{all}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("summary: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(node: &RangeNode<'_>) {
    let row = json!({
        "path": node.path(), "instances": node.instances(), "host_ns": node.host_time().as_nanos() as u64,
        "inclusive": node.inclusive(), "exclusive": node.exclusive(),
    });
    println!("{row}");
    node.children().for_each(|child| print(&child));
}
