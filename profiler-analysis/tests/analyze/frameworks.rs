//! Recordings of burn, tch and cudarc on an H100 and of candle on an H200, those of burn and tch beside what runs of 20 steps counted there whose modules ran
//! alone and synchronised.

use crate::load;
use profiler_core::Profile;

fn profile(name: &str) -> Profile {
    let profile = load(&format!("frameworks-h100/{name}")).with_inferred_ranges();
    profile.health().assert_complete();
    profile
}

/// Kernels of all instances of ranges with this path: exact, shared and inferred.
fn kernels(profile: &Profile, path: &str) -> [u64; 3] {
    let ranges = profile.ranges().filter(|range| range.node().path() == path);
    ranges.fold([0; 3], |[exact, shared, inferred], range| {
        [
            exact + range.inclusive().kernels,
            shared + range.shared().kernels,
            inferred + range.inferred().kernels,
        ]
    })
}

#[test]
fn modules_of_burn_have_the_kernels_of_a_separate_run() {
    let profile = profile("burn");
    assert_eq!((profile.totals().kernels, profile.outside_ranges().kernels), (208, 0));
    // Kernels of this first step, and of 20 steps alone, whose other 19 are equal to each other.
    for (path, first, alone) in [
        ("step", 208, 4_730),
        ("step/data", 0, 0),
        ("step/forward", 38, 570),
        ("step/forward/conv1", 5, 62),
        ("step/forward/conv2", 5, 62),
        ("step/forward/pool", 2, 40),
        ("step/forward/norm", 11, 182),
        ("step/forward/fc1", 4, 42),
        ("step/forward/fc2", 4, 42),
        ("step/loss", 9, 180),
        ("step/backward", 71, 1_420),
        ("step/optimizer", 90, 2_560),
    ] {
        assert_eq!(kernels(&profile, path), [first, 0, 0], "{path}");
        assert_eq!((alone - first) % 19, 0, "{path}");
    }
}

#[test]
fn every_fused_kernel_of_burn_has_a_range() {
    let profile = profile("burn-fusion");
    assert_eq!((profile.totals().kernels, profile.outside_ranges().kernels), (90, 0));
    let of = |path: &str| kernels(&profile, path);
    assert_eq!(of("step"), [90, 0, 0]);
    // What fusion saves: most of the optimizer's kernels, and some of each other part.
    let parts = ["step/data", "step/forward", "step/loss", "step/backward", "step/optimizer"];
    assert_eq!(parts.map(|path| of(path)[0]), [0, 31, 6, 43, 10]);
}

#[test]
fn modules_of_tch_have_the_kernels_of_a_separate_run() {
    let profile = profile("tch");
    // Of 20 steps alone; the optimizer's first step makes its state.
    for (path, alone) in [
        ("step/forward", 280),
        ("step/forward/conv1", 40),
        ("step/forward/conv2", 40),
        ("step/forward/norm", 20),
        ("step/forward/pool", 40),
        ("step/forward/fc1", 40),
        ("step/forward/fc2", 60),
        ("step/loss", 40),
    ] {
        assert_eq!(kernels(&profile, path), [alone / 10, 0, 0], "{path}");
    }
    assert_eq!(kernels(&profile, "step/backward"), [2, 0, 44], "460 in 20 steps alone");
    assert_eq!(kernels(&profile, "no_grad"), [18, 0, 0]);
}

/// Four workers that replay a graph of six layers for each of 200 requests.
#[cfg(feature = "pprof")]
#[test]
fn every_replayed_kernel_of_cudarc_has_the_layer_of_its_capture() {
    use std::collections::BTreeMap;

    let file = include_bytes!("../../../tests/recordings/frameworks-h100/cudarc.gpuprof.gz");
    let recording =
        profiler_core::Recording::read_from(flate2::read::GzDecoder::new(&file[..]), 1 << 20)
            .unwrap();
    let profile = Profile::from_recording(recording);
    profile.health().assert_complete();
    let requests: Vec<_> = profile.ranges().filter(|range| range.name() == "request").collect();
    assert_eq!(requests.len(), 200);
    assert!(requests.iter().all(|range| range.inclusive().kernels == 6));
    let mut by_stream = BTreeMap::<_, u64>::new();
    for kernel in profile.kernels() {
        assert_eq!(kernel.captured_in().map(|range| range.name()), Some("layer"));
        assert_eq!(kernel.range().map(|range| range.name()), Some("replay"));
        *by_stream.entry(kernel.stream()).or_default() += 1;
    }
    // What the program printed for its workers, each with a stream of its own.
    let mut counts: Vec<u64> = by_stream.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [270, 282, 318, 330]);
}

/// Kernels in ranges of this path by where they come from: candle's own, and those of cuBLAS.
#[cfg(feature = "pprof")]
fn own_and_products(profile: &Profile, path: &str) -> [usize; 2] {
    let is_product =
        |name: &str| ["gemm", "gemv", "cutlass", "splitK"].iter().any(|part| name.contains(part));
    let within = |kernel: &profiler_core::profile::Kernel<'_>| {
        kernel.range().is_some_and(|range| {
            let found = range.node().path();
            found.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let mut counts = [0; 2];
    for kernel in profile.kernels().filter(within) {
        counts[usize::from(is_product(kernel.name()))] += 1;
    }
    counts
}

/// A GPT of two layers, trained for a step and asked for three tokens. The counts follow from its source: `ops::layer_norm_slow`
/// is 11 kernels of candle's, a linear layer a product and an addition.
#[cfg(feature = "pprof")]
#[test]
fn every_module_of_candle_has_the_kernels_of_its_source() {
    let file = include_bytes!("../../../tests/recordings/frameworks-h100/candle.gpuprof.gz");
    let recording =
        profiler_core::Recording::read_from(flate2::read::GzDecoder::new(&file[..]), 4 << 20)
            .unwrap();
    let profile = Profile::from_recording(recording);
    profile.health().assert_complete();
    let forward = "step/forward/gpt";
    let check = |path: &str, own: usize, products: usize| {
        let [found_own, found_products] = own_and_products(&profile, path);
        assert_eq!(found_own, own, "{path}");
        // A product may be split over the inner dimension, which takes a second kernel.
        assert!((products..=2 * products).contains(&found_products), "{path}: {found_products}");
    };
    check("step/data", 0, 0);
    check(&format!("{forward}/embedding"), 3, 0);
    for n in 0..2 {
        let layer = format!("{forward}/layer {n}");
        check(&format!("{layer}/norm 0"), 11, 0);
        // Three copies of heads, scale, mask, five of a softmax, a copy; two of linear layers.
        check(&format!("{layer}/attention"), 3 + 1 + 1 + 5 + 1 + 2, 4);
        // A norm, two linear layers, GELU and the addition of the input.
        check(&format!("{layer}/mlp"), 11 + 2 + 1 + 1, 2);
        check(&layer, 11 + 13 + 1 + 15, 6);
    }
    check(&format!("{forward}/head"), 11 + 1, 1);
    // Six of a logarithmic softmax, a gather, a sum, its scale, and a copy of the targets.
    check("step/forward/loss", 6 + 1 + 1 + 1 + 1, 0);
    // And a copy of the input.
    check("step/forward", 3 + 2 * 40 + 12 + 10 + 1, 2 * 6 + 1);
    check("token/sample", 3, 0);
    let layers = [0, 1].map(|n| own_and_products(&profile, &format!("token/gpt/layer {n}")));
    assert_eq!(layers[0], layers[1]);
    // Outside ranges are the kernels that initialise the parameters.
    let roots: Vec<_> = profile.roots().map(|root| root.name().to_owned()).collect();
    assert_eq!(roots, ["step", "token"]);
}
