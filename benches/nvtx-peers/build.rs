//! Compiles the rows that use NVTX's C header, if `NVTX_INCLUDE` names the folder that contains
//! `nvtx3/`.
#![allow(clippy::print_stdout, reason = "a build script speaks to cargo through it")]

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(nvtx_header)");
    println!("cargo::rerun-if-env-changed=NVTX_INCLUDE");
    println!("cargo::rerun-if-changed=src/header.c");
    let Some(include) = env::var_os("NVTX_INCLUDE").filter(|value| !value.is_empty()) else {
        return;
    };
    cc::Build::new()
        .file("src/header.c")
        .include(include)
        .opt_level(2)
        .warnings(false)
        .compile("nvtx_header_rows");
    println!("cargo::rustc-cfg=nvtx_header");
}
