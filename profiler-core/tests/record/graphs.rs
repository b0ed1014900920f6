//! What a CUDA graph runs counts for the range of the launch, and is credited to the range in which each node was made.

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Profile, Profiler};
use std::time::Duration;
use test_support::session::record;

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
        assert_eq!(
            profile.range("layer 1").unwrap().replayed().kernel_time(),
            Duration::from_micros(5)
        );
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
        assert_eq!(
            (health.facts.graph_operations, health.facts.graph_operations_captured),
            (45, 40)
        );
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
    assert_eq!(profile.health().facts.graph_operations_captured, 0);
}

/// A decode loop of a captured model: two layers, of which one has a part with a range of its own.
fn decoded(fake: &Fake, steps: usize) {
    let _generate = range("generate");
    let mut graph = fake.graph();
    {
        let _capture = range("capture");
        fake.capture_into(&mut graph, &Work::kernel(c"embed").taking_ns(100));
        for layer in 0..2 {
            let _layer = range(&format!("layer {layer}"));
            fake.capture_into(&mut graph, &Work::kernel(c"gemm").taking_ns(1_000));
            if layer == 1 {
                let _mlp = range("mlp");
                fake.capture_into(&mut graph, &Work::kernel(c"mlp").taking_ns(3_000));
            }
        }
    }
    let exec = fake.instantiate(&graph);
    for _ in 0..steps {
        let _decode = range("decode");
        fake.launch(Work::kernel(c"sample").taking_ns(10));
        fake.launch_exec(&exec);
    }
}

#[test]
fn report_shows_layers_below_the_range_that_replays_them() {
    let fake = Fake::new();
    let profiles = record(&fake, || decoded(&fake, 5));
    for profile in profiles {
        let report = profile.to_string();
        let lines: Vec<&str> = report.lines().collect();
        let at = |name: &str| lines.iter().position(|line| line.contains(name)).unwrap();
        let columns = |name: &str| {
            let line = lines[at(name)].replace(['│', '├', '└', '─'], " ");
            let name = line.find(name).unwrap() + name.len();
            line[name..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        // Below `decode`, in the order and with the nesting of the capture.
        let order = ["decode", "[capture]", "[layer 0]", "[layer 1]", "[mlp]"].map(at);
        assert!(order.is_sorted(), "{report}");
        let indent = |name: &str| lines[at(name)].chars().position(|c| c == '[').unwrap();
        assert!(indent("[capture]") < indent("[layer 0]"), "{report}");
        assert_eq!(indent("[layer 0]"), indent("[layer 1]"));
        assert!(indent("[layer 1]") < indent("[mlp]"), "{report}");
        // GPU time and own GPU time; no times, no host time and no launches.
        assert_eq!(columns("[capture]")[..6], ["25.50", "us", "500", "ns", "20", "0"], "{report}");
        assert_eq!(
            columns("[layer 1]")[..6],
            ["20.00", "us", "5.000", "us", "10", "0"],
            "{report}"
        );
        assert_eq!(columns("[mlp]")[..6], ["15.00", "us", "15.00", "us", "5", "0"], "{report}");
        assert!(report.contains("[range]: work of CUDA graphs by the range of its capture"));
        assert!(lines[at("times")].contains("replayed GPU"), "{report}");
    }
    // There is one fake at a time.
    drop(fake);
    let fake = Fake::new();
    let [plain, _] = record(&fake, || {
        let _range = range("plain");
        fake.launch(Work::kernel(c"kernel"));
    });
    assert!(!plain.to_string().contains("replayed"));
}

#[test]
fn replays_are_queried_by_launch_by_capture_and_by_both() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        decoded(&fake, 3);
        decoded(&fake, 1);
    });
    for profile in profiles {
        let query = profile.query();
        let groups = |groups: profiler_core::query::Groups<profiler_core::query::RangePath<'_>>| {
            let count = |group: &profiler_core::query::Group<_>| {
                (ToString::to_string(group.key()), group.count())
            };
            let mut counts: Vec<_> = groups.iter().map(count).collect();
            counts.sort();
            counts
        };
        let captured = [("generate/capture", 4), ("generate/capture/layer 0", 4)];
        let captured = captured
            .into_iter()
            .chain([("generate/capture/layer 1", 4), ("generate/capture/layer 1/mlp", 4)]);
        let captured: Vec<_> = captured.map(|(path, count)| (path.to_owned(), count)).collect();
        // By launch all count for `decode`; by capture for the layers, whichever way it is asked.
        assert_eq!(groups(query.clone().by_range()), [("generate/decode".to_owned(), 20)]);
        assert_eq!(groups(query.clone().by_capture()), captured);
        assert_eq!(groups(query.clone().replays().by_range()), captured);
        assert_eq!(groups(query.clone().in_range("decode").by_capture()), captured);
        let both = |launch: &str, capture: &str| {
            query.clone().in_range(launch).captured_in(capture).count()
        };
        assert_eq!(
            [both("decode", "layer 1"), both("decode", "mlp"), both("decode", "capture")],
            [8, 4, 16]
        );
        assert_eq!([both("capture", "layer 1"), both("decode", "decode")], [0, 0]);
        let mut replays = query.clone().replays().in_range("layer 1").iter();
        assert!(replays.all(|operation| {
            operation.attribution() == Attribution::Capture
                && operation.range().unwrap().node().path().contains("layer 1")
                && operation.call().unwrap().range().unwrap().name() == "decode"
        }));
        assert_eq!(profile.range("layer 1").unwrap().replayed().kernels, 8);
    }
}
