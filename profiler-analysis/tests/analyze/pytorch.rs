//! Recordings of unmodified PyTorch on an H100, beside what Nsight Systems recorded of the same programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use profiler_core::Profile;
use profiler_core::profile::Range;

fn file(name: &str) -> PathBuf {
    crate::file("recordings/pytorch-h100").join(name)
}

fn profile(scene: &str) -> Profile {
    let profile = crate::load(&format!("pytorch-h100/{scene}")).with_inferred_ranges();
    profile.health().assert_complete();
    profile
}

/// The innermost range as the files name it.
fn name(range: Option<Range>) -> String {
    range
        .map(|range| format!("{}:{}", range.domain().unwrap_or_default(), range.name()))
        .unwrap_or_default()
}

/// Kernels by name, sizes and the range of their launch.
fn counts(profile: &Profile) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for kernel in profile.kernels() {
        let sizes: Vec<_> =
            kernel.grid().into_iter().chain(kernel.block()).map(|size| size.to_string()).collect();
        let range = name(kernel.range());
        *counts
            .entry(format!("kernel\t{}\t{}\t{range}", kernel.name(), sizes.join("\t")))
            .or_default() += 1;
    }
    counts
}

fn nsys(scene: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file(&format!("{scene}.tsv"))).unwrap();
    text.lines()
        .filter_map(|line| {
            let (count, rest) = line.strip_prefix("kernel\t")?.split_once('\t')?;
            Some((format!("kernel\t{rest}"), count.parse().unwrap()))
        })
        .collect()
}

#[test]
fn kernels_by_name_shape_and_range_match_nsys() {
    for (scene, kernels) in
        [("train", 680), ("single_threaded_backward", 680), ("decode", 1_654), ("triton", 102)]
    {
        let (ours, theirs) = (counts(&profile(scene)), nsys(scene));
        assert_eq!(ours, theirs, "{scene}");
        assert_eq!(ours.values().sum::<u64>(), kernels, "{scene}");
    }
}

/// What is inferred for work of autograd's thread is what a run without that thread attributes exactly.
#[test]
fn inferred_ranges_match_single_threaded_autograd() {
    let by_name = |profile: &Profile, inferred: bool| {
        let mut counts = BTreeMap::<_, u64>::new();
        for kernel in profile.kernels() {
            let found = kernel.range().or_else(|| kernel.inferred_range().filter(|_| inferred));
            *counts.entry((kernel.name().to_owned(), name(found))).or_default() += 1;
        }
        counts
    };
    let (threads, single) = (profile("train"), profile("single_threaded_backward"));
    assert_eq!(by_name(&threads, true), by_name(&single, false));
    assert_ne!(by_name(&threads, false), by_name(&single, false));
    let backward = threads.range("step/backward").unwrap();
    let exact = single.range("step/backward").unwrap().kernels();
    assert_eq!(backward.kernels() + backward.inferred().kernels, exact);
    assert!(backward.inferred().kernels * 10 > exact * 9, "{}", backward.inferred().kernels);
}

#[test]
fn replayed_kernels_count_for_the_layers_of_their_capture() {
    let profile = profile("decode");
    assert_eq!(profile.kernels().filter(|kernel| kernel.captured_in().is_some()).count(), 1_650);
    for layer in 0..6 {
        // Layer n adds 3 + n times, in each of 50 replays.
        let layer_range = profile.range(&format!("layer {layer}")).unwrap();
        assert_eq!(layer_range.replayed().kernels, 50 * (3 + layer), "layer {layer}");
    }
    assert_eq!(profile.range("decode").unwrap().kernels(), 1_650);
}
