//! Captures of Nsight Systems as profiles.

use std::collections::BTreeMap;
use std::path::PathBuf;

use profiler_core::{Attribution, OperationKind, Profile};

/// A training run of two batches with PyTorch on an H200, exported by nsys 2025.3.
fn train() -> Profile {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures/train-h200.sqlite");
    Profile::from_nsys(path).unwrap()
}

#[test]
fn a_capture_is_a_profile() {
    let profile = train();
    println!("{profile}\n{}\n{}", profile.recording_info(), profile.health());
    println!("{}", profile.duration().as_nanos());
}
