//! Tests of analyses, reports and exports. They need the feature `analysis`.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::path::{Path, PathBuf};

use cupti::Config;
use fake_cupti::Fake;
use profiler_core::{Profile, Profiler};
use test_support::everything;

#[cfg(feature = "nsys")]
#[path = "../support/capture.rs"]
mod capture;

mod case_studies;
mod compare;
mod counted;
mod critical_path;
#[cfg(feature = "nsys")]
mod crossings;
mod diagnosis;
mod export;
mod formats;
mod frameworks;
mod html;
mod joined;
mod kernel_classes;
mod launch_shapes;
mod measure;
mod merged;
#[cfg(feature = "nsys")]
mod merged_captures;
#[cfg(feature = "nsys")]
mod nsys;
#[cfg(feature = "nsys")]
mod nsys_rows;
mod numbers;
mod occupancy;
mod perfetto;
#[cfg(all(feature = "pprof", feature = "otlp", feature = "firefox"))]
mod profiles;
#[cfg(feature = "push")]
mod push;
mod pytorch;
mod ranks;
#[cfg(feature = "nsys")]
mod reports;
mod reports_live;
mod roofline;
mod same_work;
mod sampled;
mod scorecard;
#[cfg(feature = "nsys")]
mod small_captures;
mod stacks;
mod tensor_cores;
mod tracks;
mod wall;
#[cfg(feature = "nsys")]
mod whole_graphs;

const RECORDING: &[u8] = include_bytes!("../../../examples/recordings/quickstart-h200.gpuprof");

/// The path of a file in the workspace's folder `tests`.
fn file(name: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)
}

/// A recording of `tests/recordings`.
fn load(name: &str) -> Profile {
    Profile::load(file(format!("recordings/{name}.gpuprof"))).unwrap()
}

/// A capture of `tests/captures`.
#[cfg(feature = "nsys")]
fn captured(name: &str) -> Profile {
    profiler_analysis::nsys::read(file(format!("captures/{name}-h200.sqlite"))).unwrap()
}

fn quickstart() -> Profile {
    Profile::from_bytes(RECORDING).unwrap()
}

fn profiler(fake: &Fake, config: Config) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).config(config).build().unwrap()
}

/// The profile of a program, on a fake of its own.
fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    everything::record(&fake, || program(&fake))
}

/// The profile as it comes back from a capture that is written of it.
#[cfg(feature = "nsys")]
fn rewritten(profile: &Profile) -> Profile {
    use profiler_analysis::prelude::*;
    let folder = capture::Folder::new();
    let path = folder.file("rewritten.sqlite");
    profile.write_nsys(&path, |_, _| ()).unwrap();
    profiler_analysis::nsys::read(&path).unwrap()
}
