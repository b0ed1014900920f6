//! `gpuprof`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuprof::gpuprof()
}
