//! Names with running numbers: which ranges are one, in a profile and in comparisons.

use std::collections::BTreeSet;

use crate::record;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::compare;
use profiler_analysis::compare::{ChangeKind, Comparison};
use profiler_analysis::prelude::*;
use profiler_core::Profile;

fn launch(fake: &Fake) {
    fake.launch(Work::kernel(c"gemm_128x64").taking_ns(1_000_000));
}

/// A range with a kernel.
fn kernel_in(fake: &Fake, name: &str) {
    let _range = range(name);
    launch(fake);
}

/// Steps of three layers and two operators, whose ids begin with this one.
fn model(steps: usize, first_id: usize) -> Profile {
    record(|fake| {
        let mut ids = first_id..;
        for _ in 0..steps {
            let _step = range("step");
            for layer in 0..3 {
                let _layer = range(&format!("layer {layer}"));
                for operator in ["aten::linear", "aten::gelu"] {
                    let id = ids.next().unwrap();
                    kernel_in(fake, &format!("{operator}, op_id = {id}"));
                }
            }
        }
    })
}

/// Outermost ranges with these names, a kernel in each.
fn outermost(names: impl IntoIterator<Item = String>) -> Profile {
    record(|fake| names.into_iter().for_each(|name| kernel_in(fake, &name)))
}

fn paths(profile: &Profile) -> BTreeSet<String> {
    profile.walk().map(|(_, node)| node.path()).collect()
}

fn range_paths(comparison: &Comparison) -> BTreeSet<&str> {
    let rows = comparison.changes().iter().filter(|row| row.kind == ChangeKind::Range);
    rows.map(|row| &*row.path).collect()
}

fn assert_all_matched(comparison: &Comparison) {
    let lone: Vec<_> =
        comparison.changes().iter().filter(|row| row.is_new() || row.is_gone()).collect();
    assert!(lone.is_empty() && !comparison.counts_differ(), "{lone:?}");
    assert_eq!(comparison.wall().undecidable, None);
}

const MODEL: [&str; 10] = [
    "step",
    "step/layer 0",
    "step/layer 0/aten::gelu, op_id = *",
    "step/layer 0/aten::linear, op_id = *",
    "step/layer 1",
    "step/layer 1/aten::gelu, op_id = *",
    "step/layer 1/aten::linear, op_id = *",
    "step/layer 2",
    "step/layer 2/aten::gelu, op_id = *",
    "step/layer 2/aten::linear, op_id = *",
];

#[test]
fn grouped_profile_has_patterns_for_ids_and_names_for_layers() {
    let single = model(5, 100);
    let totals = single.totals();
    let grouped = single.with_grouped_numbers();
    assert_eq!(paths(&grouped).iter().map(String::as_str).collect::<Vec<_>>(), MODEL);
    assert_eq!(grouped.totals(), totals);
    let linear = grouped.range("layer 1/aten::linear, op_id = *").unwrap();
    assert_eq!((linear.instances(), linear.kernels()), (5, 5));
    let kernels: BTreeSet<_> = grouped.kernels().map(|of| of.name().to_owned()).collect();
    assert_eq!(kernels.into_iter().collect::<Vec<_>>(), ["gemm_128x64"]);
}

#[test]
fn grouped_steps_are_one_range_with_the_ranges_within() {
    let profile = record(|fake| {
        for step in 0..20 {
            let _step = range(&format!("training_step_{step}"));
            kernel_in(fake, "forward");
            kernel_in(fake, &format!("request 7b9c4f1e-8a2d-4c3b-9e1f-{step:012x}"));
        }
    });
    let expected = ["training_step_*", "training_step_*/forward", "training_step_*/request *"];
    let grouped = profile.with_grouped_numbers();
    assert_eq!(paths(&grouped).iter().map(String::as_str).collect::<Vec<_>>(), expected);
    let steps = grouped.steps("training_step_*");
    assert_eq!((steps.len(), steps.as_slice()[7].totals().kernels), (20, 2));
}

#[test]
fn comparison_matches_ids_by_pattern_and_layers_by_name() {
    let comparison = compare(&model(5, 0), &model(5, 5_000));
    assert_all_matched(&comparison);
    assert_eq!(range_paths(&comparison).into_iter().collect::<Vec<_>>(), MODEL);
    let text = comparison.all_rows().to_string();
    assert!(!text.contains("op_id = 0") && !text.contains("Only after"), "{text}");
}

#[test]
fn comparison_matches_outermost_ranges_with_other_numbers() {
    let steps = |first: usize, count: usize| {
        outermost((first..first + count).map(|step| format!("step {step}")))
    };
    // Too few to tell from one run, but other numbers in each.
    for count in [5, 40] {
        let comparison = compare(&steps(0, count), &steps(5_000, count));
        assert_all_matched(&comparison);
        assert_eq!(range_paths(&comparison).into_iter().collect::<Vec<_>>(), ["step *"]);
    }
    // An address is another one in each process, however often it comes back.
    let buffers = |base: u64| {
        let names = (0..6).map(move |copy| format!("copy to 0x{:x}", base + copy % 2 * 256));
        outermost(names)
    };
    let comparison = compare(&buffers(0x7f12_a400_0000), &buffers(0x7fab_0000_0000));
    assert_all_matched(&comparison);
    assert_eq!(range_paths(&comparison).into_iter().collect::<Vec<_>>(), ["copy to *"]);
}

#[test]
fn numbers_of_a_single_step_remain_distinct_in_comparisons() {
    let one_step = || {
        record(|fake| {
            let _step = range("step");
            (0..24).for_each(|layer| kernel_in(fake, &format!("layer {layer}")));
        })
    };
    let comparison = compare(&one_step(), &one_step());
    assert_all_matched(&comparison);
    assert_eq!(range_paths(&comparison).len(), 25);
    // On request they are grouped: nothing in this profile tells them from steps.
    assert_eq!(paths(&one_step().with_grouped_numbers()).len(), 2);
    // A first layer that takes as long as all other steps changes nothing.
    let slow_start = record(|fake| {
        for step in 0..3 {
            let _step = range("step");
            for layer in 0..12 {
                kernel_in(fake, &format!("layer {layer}"));
                if (step, layer) == (0, 0) {
                    (0..2_000).for_each(|_| launch(fake));
                }
            }
        }
    });
    assert_eq!(paths(&slow_start.with_grouped_numbers()).len(), 13);
}

#[test]
fn ranges_of_one_worker_each_remain_distinct_in_comparisons() {
    let workers = || {
        record(|fake| {
            std::thread::scope(|scope| {
                for worker in 0..10 {
                    scope.spawn(move || kernel_in(fake, &format!("worker {worker}")));
                }
            });
        })
    };
    let comparison = compare(&workers(), &workers());
    assert_eq!(range_paths(&comparison).len(), 10, "{:?}", range_paths(&comparison));
}

#[test]
fn names_without_running_numbers_are_unchanged() {
    let profile = outermost(["conv1", "conv2", "conv1", "conv2", "resnet50"].map(str::to_owned));
    let names = paths(&profile);
    assert_eq!(paths(&profile.with_grouped_numbers()), names);
}
