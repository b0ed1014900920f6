//! Parts of real recordings: a time, and an instance of a range.

use std::time::Duration;

use profiler_core::profile::{Merger, Totals};
use profiler_core::query::Step;
use profiler_core::{Profile, Recording};

const TRAIN: &str = "tests/recordings/pytorch-h100/train.gpuprof";
const DECODE: &str = "tests/recordings/pytorch-h100/decode.gpuprof";
const RECORDINGS: [&str; 5] = [
    TRAIN,
    DECODE,
    "tests/recordings/case-studies/batched-before.gpuprof",
    "tests/recordings/lines/planted-h200.gpuprof",
    "examples/recordings/quickstart-h200.gpuprof",
];

fn recording(path: &str) -> Recording {
    Recording::load(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn whole(path: &str) -> Profile {
    Profile::from_recording(recording(path)).with_inferred_ranges()
}

fn sum(parts: &[Totals]) -> Totals {
    parts.iter().fold(Totals::default(), |mut sum, part| {
        sum += *part;
        sum
    })
}

/// Facts that adjacent parts must add up to.
fn facts(profile: &Profile) -> [u64; 6] {
    let accounts = &profile.health().accounts;
    let instructions = profile.instructions().samples().round() as u64;
    [
        profile.operations().count() as u64,
        profile.calls().count() as u64,
        accounts.kernels.records,
        accounts.synchronizations.records,
        profile.marks().count() as u64,
        instructions,
    ]
}

#[test]
fn adjacent_parts_add_up_to_the_whole() {
    for path in RECORDINGS {
        let profile = whole(path);
        let mut starts: Vec<Duration> = profile.calls().map(|call| call.start()).collect();
        starts.sort_unstable();
        let cuts: Vec<Duration> = (1..7).map(|part| starts[starts.len() * part / 7]).collect();
        let mut from = Duration::ZERO;
        let (mut totals, mut counts, mut own) = (Vec::new(), [0; 6], Vec::new());
        for until in cuts.into_iter().chain([Duration::MAX]) {
            let part = whole(path).during(from, until);
            assert!(part.health().is_complete(), "{path}: {}", part.health());
            assert!(part.wall_time() <= profile.wall_time(), "{path} {from:?}");
            totals.push(part.totals());
            own.extend(part.nodes().map(|node| (node.path(), node.exclusive().gpu_time())));
            let facts = facts(&part);
            counts.iter_mut().zip(facts).for_each(|(sum, count)| *sum += count);
            let (start, stop) = part.tables().session.window_ns;
            for range in &part.tables().ranges {
                assert!(start <= range.time.start_ns && range.time.end_ns <= stop, "{path}");
            }
            from = until;
        }
        assert!(totals.iter().filter(|part| part.launches > 0).count() > 2, "{path}");
        assert_eq!(sum(&totals), profile.totals(), "{path}");
        let mut facts = facts(&profile);
        // Each part rounds its samples.
        assert!(counts[5].abs_diff(facts[5]) <= 7, "{path}: {counts:?} {facts:?}");
        (counts[5], facts[5]) = (0, 0);
        assert_eq!(counts, facts, "{path}");
        for node in profile.nodes() {
            let of_parts = own.iter().filter(|(path, _)| *path == node.path());
            let time: Duration = of_parts.map(|(_, time)| *time).sum();
            assert_eq!(time, node.exclusive().gpu_time(), "{path}: {}", node.path());
        }
    }
}

#[test]
fn whole_time_is_the_whole() {
    for path in RECORDINGS {
        let (profile, part) = (whole(path), whole(path).during(Duration::ZERO, Duration::MAX));
        assert_eq!(facts(&part), facts(&profile), "{path}");
        let rows = |profile: &Profile| -> Vec<_> {
            let row = |node: profiler_core::profile::RangeNode<'_>| {
                (node.path(), node.instances(), node.inclusive(), node.inferred(), node.host_time())
            };
            profile.nodes().map(row).collect()
        };
        assert_eq!(rows(&part), rows(&profile), "{path}");
    }
}

#[test]
fn instance_has_the_work_of_its_step() {
    for (path, range) in [(TRAIN, "step"), (DECODE, "decode")] {
        let profile = whole(path);
        let steps = profile.steps(range);
        assert!(steps.len() > 3, "{path}");
        for number in [0, 3, steps.len() - 1] {
            let step: &Step<'_> = steps.iter().nth(number).unwrap();
            let part = whole(path).instance(range, number).unwrap();
            let inferred = step.range().inferred().gpu_operations();
            let all = step.totals().gpu_operations() + inferred;
            assert_eq!(part.operations().count() as u64, all, "{path} {number}");
            assert!(all > 0 && part.health().is_complete(), "{path} {number}");
            let own = part.steps(range);
            assert_eq!(own.len(), 1, "{path} {number}");
            assert_eq!(own.iter().next().unwrap().totals(), step.totals());
            assert_eq!(own.iter().next().unwrap().host_time(), step.host_time());
        }
        let error = whole(path).instance(range, steps.len()).unwrap_err().to_string();
        assert!(error.contains(&format!("0 to {}", steps.len() - 1)), "{error}");
        let error = whole(path).instance("nothing", 0).unwrap_err().to_string();
        assert!(error.contains("no range nothing"), "{error}");
    }
}

#[test]
fn instance_is_of_each_process() {
    let merged = || {
        let mut merger = Merger::new();
        for rank in 0..2 {
            let path = format!("tests/recordings/nccl-2xh100/rank-{rank}.gpuprof");
            merger.add_process(recording(&path), None, Some(rank)).unwrap();
        }
        merger.finish().unwrap().with_inferred_ranges()
    };
    let profile = merged();
    let root = profile.roots().max_by_key(|root| root.instances()).unwrap();
    let (path, steps) = (root.path(), profile.steps_of(&root));
    assert!(steps.len() > 4 && steps.len() % 2 == 0, "{path}: {}", steps.len());
    let part = merged().instance(&path, 1).unwrap();
    let own = part.steps(&path);
    assert_eq!(own.len(), 2);
    let threads = &part.tables().threads;
    let process = |step: &Step<'_>| threads[step.range().row().thread.at()].process;
    let mut processes: Vec<u32> = own.iter().map(process).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 2);
    assert!(part.health().is_complete(), "{}", part.health());
    let empty = merged().during(Duration::from_secs(3600), Duration::MAX);
    assert_eq!((empty.operations().count(), empty.ranges().count()), (0, 0));
}
