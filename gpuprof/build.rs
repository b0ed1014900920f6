//! Builds the injection library that a release build of `gpuprof` embeds
//! (docs/decisions/053-the-program-carries-its-library.md).
#![allow(clippy::print_stdout)] // Cargo reads standard output

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use hmac_sha256::Hash;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(carries_library)");
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = variable("PROFILE")? == "release";
    if env::var_os("CARGO_FEATURE_EMBED").is_none() || !is_release {
        return Ok(());
    }
    let manifest = PathBuf::from(variable("DEP_GPUPROF_INJECT_MANIFEST")?);
    let library = build(&manifest)?;
    let hash: String =
        Hash::hash(&fs::read(&library)?).iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=CARRIED_LIBRARY={}", library.display());
    println!("cargo::rustc-env=CARRIED_SHA256={hash}");
    println!("cargo::rustc-cfg=carries_library");
    Ok(())
}

/// Builds the library in a separate target folder, because Cargo holds the lock of the shared one.
fn build(manifest: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = PathBuf::from(variable("OUT_DIR")?).join("inject");
    let target = variable("TARGET")?;
    let mut cargo = Command::new(variable("CARGO")?);
    cargo.args(["build", "--profile", "release", "--lib", "--manifest-path"]).arg(manifest);
    cargo.arg("--target").arg(&target).arg("--target-dir").arg(&folder);
    // A build folder that is set for all builds is locked as well.
    cargo.env("CARGO_BUILD_BUILD_DIR", &folder);
    // Clippy replaces the compiler through this variable and produces no library.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
    let status = cargo.status().map_err(|error| format!("could not start {cargo:?}: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the injection library was not built ({status}); --no-default-features builds gpuprof without it: {cargo:?}"
        )
        .into());
    }
    let built = folder.join(target).join("release");
    for source in sources(&fs::read_to_string(built.join("libgpuprof_inject.d"))?) {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-changed={}", manifest.display());
    let lock = manifest.ancestors().map(|folder| folder.join("Cargo.lock")).find(|it| it.exists());
    if let Some(lock) = lock {
        println!("cargo::rerun-if-changed={}", lock.display());
    }
    Ok(built.join("libgpuprof_inject.so"))
}

fn variable(name: &str) -> Result<OsString, String> {
    env::var_os(name).ok_or_else(|| format!("Cargo did not set {name}"))
}

/// Parses the sources from a dependency file in make format: `library: source source`.
fn sources(dependencies: &str) -> Vec<String> {
    let (_, sources) = dependencies.split_once(": ").unwrap_or_default();
    let marked = sources.trim().replace("\\ ", "\0");
    marked.split_whitespace().map(|source| source.replace('\0', " ")).collect()
}
