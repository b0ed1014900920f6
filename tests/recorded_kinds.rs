//! Records of every kind that an H200 gave, from both majors of CUPTI, checked against what CUDA said there and then.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gpu_profiler_tests::kinds::{Facts, check, counts};
use profiler_core::Recording;

#[test]
fn recorded_records_agree_with_cuda() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let mut versions = BTreeMap::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("kinds-") || !name.ends_with(".gpuprof") {
            continue;
        }
        let facts = fs::read(path.with_extension("json")).unwrap();
        let facts: Facts = serde_json::from_slice(&facts).unwrap();
        let recording = Recording::load(&path).unwrap();
        check(recording.records(), &facts);
        versions.insert(facts.version, counts(recording.records()).len());
    }
    // Both majors, with as many kinds as were seen when they were recorded.
    assert!(versions.keys().any(|version| *version < 130_000), "{versions:?}");
    assert!(versions.keys().any(|version| *version >= 130_000), "{versions:?}");
    assert!(versions.values().all(|kinds| *kinds >= 15), "{versions:?}");
}
