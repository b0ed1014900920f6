//! `cargo gpuprof`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuprof::cargo_gpuprof()
}
