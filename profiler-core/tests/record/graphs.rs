//! What a CUDA graph runs counts for the range of the launch, and is credited to the range in which each node was made.

use crate::support;
use cupti::fake::{Fake, Work};
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Profile, Profiler};
use support::record;

/// (kernels launched in it, kernels replayed of what was captured in it)
fn kernels(profile: &Profile, path: &str) -> (u64, u64) {
    let range = profile.range(path).unwrap();
    (range.kernels(), range.replayed().kernels)
}

#[test]
fn every_node_has_its_capture_range_and_its_launch_range() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let mut graph = fake.graph();
        {
            let _capture = range("capture");
            fake.capture_into(&mut graph, &Work::kernel(c"embed").taking_ns(100));
            for layer in 0..3 {
                let _layer = range(&format!("layer {layer}"));
                fake.capture_into(&mut graph, &Work::kernel(c"gemm").taking_ns(1_000));
                fake.capture_into(&mut graph, &Work::memset(64).taking_ns(10));
            }
        }
        // Added by hand, by a call that no log records, and outside any range.
        {
            let _by_hand = range("by hand");
            fake.add_node(&mut graph, &Work::kernel(c"hand"));
        }
        fake.add_node(&mut graph, &Work::kernel(c"nobody's"));
        let exec = {
            let _ready = range("instantiate");
            fake.instantiate(&graph)
        };
        for _ in 0..4 {
            let _replay = range("replay");
            fake.launch_exec(&exec);
        }
        let again = fake.instantiate(&graph);
        fake.launch_exec(&again);
    });
    for profile in profiles {
        profile.health().assert_complete();
        assert_eq!(kernels(&profile, "replay"), (4 * 6, 0));
        assert_eq!(profile.outside_ranges().kernels, 6);
        assert_eq!(kernels(&profile, "capture"), (0, 5 * 4));
        assert_eq!(kernels(&profile, "capture/layer 1"), (0, 5));
        assert_eq!(profile.range("layer 1").unwrap().replayed().memsets, 5);
        assert_eq!(profile.range("layer 1").unwrap().replayed().memset_bytes, 5 * 64);
        assert_eq!(profile.range("layer 1").unwrap().replayed().kernel_ns, 5 * 1_000);
        assert_eq!(kernels(&profile, "by hand"), (0, 5));
        assert_eq!(kernels(&profile, "instantiate"), (0, 0));
        // A launch is of its range, whatever is replayed; totals count nothing twice.
        assert_eq!(profile.range("capture").unwrap().inclusive().gpu_operations(), 0);
        assert_eq!(profile.totals().kernels, 30);
        for kernel in profile.kernels() {
            let captured = kernel.captured_in().map(|range| range.node().path());
            let expected = match kernel.name() {
                "embed" => Some("capture"),
                "hand" => Some("by hand"),
                "gemm" => captured.as_deref().filter(|path| path.starts_with("capture/layer ")),
                _ => None,
            };
            assert_eq!(captured.as_deref(), expected);
            let launched =
                if kernel.range().is_some() { Attribution::Launch } else { Attribution::None };
            assert_eq!(kernel.attribution(), launched);
        }
        let health = profile.health();
        assert_eq!((health.graph_operations, health.graph_operations_captured), (45, 40));
        let capture = profile.ranges().find(|range| range.name() == "capture").unwrap();
        assert_eq!((capture.replayed().kernels, capture.node().replayed().kernels), (20, 20));
    }
}

#[test]
fn copies_of_graphs_lead_back_to_the_first() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let mut graph = fake.graph();
        {
            let _capture = range("capture");
            fake.capture_into(&mut graph, &Work::kernel(c"a"));
        }
        let mut copy = fake.clone_graph(&fake.clone_graph(&graph));
        {
            let _later = range("later");
            fake.add_node(&mut copy, &Work::kernel(c"b"));
        }
        let _replay = range("replay");
        fake.launch_exec(&fake.instantiate(&copy));
        fake.launch_exec(&fake.instantiate(&graph));
    });
    for profile in profiles {
        profile.health().assert_complete();
        assert_eq!(kernels(&profile, "replay"), (3, 0));
        assert_eq!((kernels(&profile, "capture"), kernels(&profile, "later")), ((0, 2), (0, 1)));
    }
}

#[test]
fn a_graph_from_before_the_session_has_no_capture_range() {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let mut graph = fake.graph();
    profiler.start().unwrap();
    {
        let _capture = range("an earlier session's");
        fake.capture_into(&mut graph, &Work::kernel(c"a"));
    }
    let exec = fake.instantiate(&graph);
    drop(profiler.stop().unwrap());
    let ((), profile) = profiler
        .record(|| {
            let _replay = range("replay");
            fake.launch_exec(&exec);
        })
        .unwrap();
    profile.health().assert_complete();
    assert_eq!(kernels(&profile, "replay"), (1, 0));
    assert!(profile.kernels().all(|kernel| kernel.captured_in().is_none()));
    assert_eq!(profile.health().graph_operations_captured, 0);
}
