//! Tells the build script of `gpuprof` where this package's manifest is: in this repository, or in
//! Cargo's copy of a published package.
#![allow(clippy::print_stdout)] // Cargo reads standard output

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::metadata=manifest={folder}/Cargo.toml");
}
