//! Whether two sides did the same work: what is compared, and what has a reason instead of a verdict.

use std::ffi::CStr;

use crate::{load, record};
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::Speed;
use profiler_analysis::compare;
use profiler_analysis::compare::{Compare, Side, Undecidable, WallChange};
use profiler_core::{DisplayOptions as _, Profile};

/// Entries of a range with these kernels in each, of a second each.
fn runs_of(fake: &Fake, name: &str, entries: usize, kernels: &[&'static CStr]) {
    for _ in 0..entries {
        let _range = range(name);
        for kernel in kernels {
            fake.launch(Work::kernel(kernel).taking_ns(1_000_000_000));
        }
    }
}

const KERNELS: [&CStr; 4] = [c"gemm", c"relu", c"norm", c"softmax"];

fn steps(name: &str, entries: usize, kernels: &[&'static CStr]) -> Profile {
    record(|fake| runs_of(fake, name, entries, kernels))
}

/// The reason why there is no verdict, which the headline has in place of factors.
fn reason(before: &Profile, after: &Profile) -> Option<Undecidable> {
    let comparison = compare(before, after);
    let wall: &WallChange = comparison.wall();
    if let Some(why) = &wall.undecidable {
        assert_eq!((wall.speed, wall.runs_needed), (Speed::Undecided, None), "{wall}");
        let headline = wall.headline();
        assert!(headline.contains(&why.to_string()) && !headline.contains('%'), "{headline}");
        assert!(!comparison.all_rows().to_string().contains("a trade"), "{comparison}");
    }
    wall.undecidable.clone()
}

fn other(range: &str, before: u64, after: u64) -> Option<Undecidable> {
    let (range, before, after) = (range.to_owned(), (before, before), (after, after));
    Some(Undecidable::OtherWork { range, before, after })
}

#[test]
fn side_without_gpu_work_is_undecided() {
    let on_gpu = steps("step", 10, &KERNELS);
    let on_host = record(|_| (0..10).for_each(|_| drop(range("step"))));
    let none = |side| Some(Undecidable::NoGpuWork { side });
    assert_eq!(reason(&on_gpu, &on_host), none(Side::After));
    assert_eq!(reason(&on_host, &on_gpu), none(Side::Before));
    // It is missing, not other work.
    let any = Compare::new().any_work(true).between(&on_gpu, &on_host);
    assert_eq!(any.wall().undecidable, none(Side::After));
    // Programs of the host alone are compared.
    assert_eq!(reason(&on_host, &on_host), None);
}

#[test]
fn missing_device_is_undecided_unless_it_had_little_work() {
    let devices = |used: &[(u32, u64)]| {
        record(|fake| {
            for _ in 0..20 {
                let _step = range("step");
                for (device, ns) in used {
                    fake.launch(Work::kernel(c"gemm").taking_ns(*ns).on_device(*device));
                }
            }
        })
    };
    let both = devices(&[(0, 1_000_000), (1, 900_000)]);
    let one = devices(&[(0, 1_000_000)]);
    let count = |before, after| Some(Undecidable::DeviceCount { before, after });
    assert_eq!(reason(&both, &one), count(2, 1));
    assert_eq!(reason(&one, &both), count(1, 2));
    let text = reason(&both, &one).unwrap().to_string();
    assert!(text.contains("--any-work"), "{text}");
    assert_eq!(Compare::new().any_work(true).between(&both, &one).wall().undecidable, None);
    // Another device of as many, and one that hardly worked.
    assert_eq!(reason(&one, &devices(&[(1, 1_000_000)])), None);
    assert_eq!(reason(&devices(&[(0, 1_000_000), (1, 2_000)]), &one), None);
}

#[test]
fn work_missing_in_most_entries_is_undecided() {
    let active = |count: usize| {
        record(|fake| {
            runs_of(fake, "step", count, &KERNELS);
            runs_of(fake, "step", 20 - count, &[]);
        })
    };
    let missing =
        Undecidable::WorkMissing { range: "step".to_owned(), before: (20, 20), after: (3, 20) };
    assert_eq!(reason(&active(20), &active(3)), Some(missing));
    assert!(matches!(reason(&active(3), &active(20)), Some(Undecidable::WorkMissing { .. })));
    // All of it, while another range still has some.
    let halves = |active: usize| {
        record(|fake| {
            runs_of(fake, "train", 10, &KERNELS[..active]);
            runs_of(fake, "evaluate", 10, &KERNELS);
        })
    };
    let missing =
        Undecidable::WorkMissing { range: "train".to_owned(), before: (10, 10), after: (0, 10) };
    assert_eq!(reason(&halves(4), &halves(0)), Some(missing));
    // A few entries without work are usual, as those that fill a cache.
    assert_eq!(reason(&active(20), &active(18)), None);
}

#[test]
fn other_ranges_with_most_of_the_time_are_other_work() {
    // Renamed, but not entered as often.
    let step = steps("step", 20, &KERNELS);
    assert_eq!(reason(&step, &steps("iteration", 50, &KERNELS)), other("step", 20, 0));
    assert_eq!(
        reason(&step, &steps("iteration", 20, &[c"gemm", c"decode", c"sample", c"copy"])),
        None
    );
    let others = [c"gemm", c"a", c"b", c"c", c"d", c"e", c"f"];
    assert_eq!(reason(&step, &steps("iteration", 20, &others)), Some(Undecidable::OtherKernels));
    // Most of the run is gone, or is new.
    let train = |fake: &Fake| runs_of(fake, "train", 10, &KERNELS);
    let evaluate = |fake: &Fake| runs_of(fake, "evaluate", 2, &KERNELS);
    let whole = record(|fake| {
        train(fake);
        evaluate(fake);
    });
    assert_eq!(reason(&whole, &record(evaluate)), other("train", 10, 0));
    assert_eq!(reason(&record(evaluate), &whole), other("train", 0, 10));
    // The small part may be dropped.
    assert_eq!(reason(&whole, &record(train)), None);
}

#[test]
fn recordings_of_training_and_decoding_are_other_work() {
    let [train, decode] = ["pytorch-h100/train", "pytorch-h100/decode"].map(load);
    assert_eq!(reason(&train, &decode), other("step", 20, 0));
    assert_eq!(reason(&decode, &train), other("decode", 50, 0));
}

#[test]
fn optimised_runs_remain_comparable() {
    let before = steps("step", 20, &KERNELS);
    // Fused, all kernels others, fewer launches.
    assert_eq!(reason(&before, &steps("step", 20, &[c"fused"])), None);
    assert_eq!(reason(&before, &steps("step", 20, &KERNELS[..2])), None);
    // The range has another name, or none.
    assert_eq!(reason(&before, &steps("train_step", 20, &KERNELS)), None);
    let bare = record(|fake| {
        for _ in 0..20 {
            for kernel in KERNELS {
                fake.launch(Work::kernel(kernel).taking_ns(1_000_000_000));
            }
        }
    });
    assert_eq!(reason(&before, &bare), None);
    assert_eq!(reason(&bare, &before), None);
    assert_eq!(reason(&bare, &bare), None);
}
