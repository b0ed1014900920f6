//! Links the fake driver into a folder, for scripts: `cargo run -p gpu-profiler-fake-cuda --example install FOLDER [math]`, with
//! `math` also as the libraries beside CUDA's that frameworks link.
#![allow(clippy::print_stderr)] // a program

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let folder = arguments.next().map(PathBuf::from);
    let (math, more) = (arguments.next(), arguments.next());
    let (Some(folder), true, None) =
        (folder, math.as_ref().is_none_or(|word| word == "math"), more)
    else {
        eprintln!("usage: install FOLDER [math]");
        return ExitCode::from(2);
    };
    let install = || {
        fs::create_dir_all(&folder)?;
        fake_cuda::install(&folder)?;
        if math.is_some() { fake_cuda::install_math(&folder) } else { Ok(()) }
    };
    match install() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("install: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
