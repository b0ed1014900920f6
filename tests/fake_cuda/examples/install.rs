//! Links the fake driver into a folder, for scripts: `cargo run -p gpu-profiler-fake-cuda --example install FOLDER`.
#![allow(clippy::print_stderr)] // a program

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        eprintln!("usage: install FOLDER");
        return ExitCode::from(2);
    };
    match fs::create_dir_all(&folder).and_then(|()| fake_cuda::install(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("install: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
