//! Budgets: what keeps one, what breaks one, what cannot be known, and what a failure says.

use std::time::Duration;

use cupti::Record;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::budget::{Expect, Violations};
use profiler_core::cupti::CopyKind;
use profiler_core::statistics::Statistic;
use profiler_core::{Context, Profile, Profiler, at_least, at_most, between, exactly, expect};
use test_support::frames;

fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| program(&fake)).unwrap();
    profile
}

/// Twice `step`: in it once `load` (1 copy in), `compute` (gemm, relu on another stream, a graph of 2), 1 memset, 1 copy
/// out, 1 wait, 1 allocation, 1 free; the second time one gemm more.
fn program(fake: &Fake) {
    for step in 0..2 {
        let _step = range("step");
        fake.call_only("cuMemAlloc_v2", 0);
        {
            let _load = range("load");
            fake.launch(Work::host_to_device(1000).taking_ns(500));
        }
        {
            let _compute = range("compute");
            for _ in 0..=step {
                fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(3_000));
            }
            fake.launch(Work::kernel(c"relu").taking_ns(1_000).on_stream(8));
            fake.launch_graph(&[
                Work::kernel(c"a").taking_ns(10),
                Work::kernel(c"b").taking_ns(20),
            ]);
        }
        fake.launch(Work::memset(64).taking_ns(100));
        fake.launch(Work::device_to_host(4).taking_ns(50));
        fake.launch(Work::synchronize());
        fake.call_only("cuMemFree_v2", 0);
    }
    fake.launch(Work::kernel(c"outside").taking_ns(7));
}

fn failure(expect: Expect<'_>) -> Violations {
    expect.check().unwrap_err()
}

/// The text of the only violation.
fn only(expect: Expect<'_>) -> String {
    let violations = failure(expect);
    let all: Vec<_> = violations.iter().collect();
    assert_eq!(all.len(), 1, "{violations}");
    all[0].to_string()
}

const US: Duration = Duration::from_micros(1);

#[test]
fn every_quantity_matches_the_program() {
    use CopyKind::{DeviceToDevice, DeviceToHost, HostToDevice};
    let profile = record(program);
    expect(&profile)
        .complete()
        .kernels(exactly(10))
        .launches(exactly(8))
        .range("step")
        .instances(exactly(2))
        .kernels(exactly(9))
        .kernels_named("gemm<float>", exactly(3))
        .kernels_named("_ZN4gemm*", exactly(3))
        .kernels_named("gemm*", exactly(3))
        .kernels_named("gemm", exactly(0))
        .only_kernels(["gemm<*>", "relu", "a", "b"])
        .no_kernels(["outside", "*cutlass*"])
        .launches(exactly(7))
        .graph_launches(exactly(2))
        .synchronizations(exactly(2))
        .copies(exactly(4))
        .copies_of(HostToDevice, exactly(2))
        .copies_of(DeviceToHost, exactly(2))
        .copies_of(DeviceToDevice, exactly(0))
        .copied_bytes(exactly(2008))
        .copied_bytes_of(HostToDevice, exactly(2000))
        .blocking_copies(exactly(2)) // from the device to pageable memory
        .pageable_copies(exactly(4))
        .memsets(exactly(2))
        .allocations(exactly(2))
        .frees(exactly(2))
        .streams(exactly(2))
        .gpu_time(exactly(Duration::from_nanos(2 * 1_680 + 9_000)))
        .gpu_time_of(Statistic::Min, exactly(Duration::from_nanos(4_680)))
        .gpu_time_of(Statistic::Max, exactly(Duration::from_nanos(7_680)))
        .gpu_time_of(Statistic::Median, exactly(Duration::from_nanos(6_180)))
        .each()
        .kernels(between(4, 5))
        .synchronizations(exactly(1))
        .range("step/*")
        .instances(exactly(4))
        .kernels(exactly(9))
        .copies(exactly(2))
        .range("nothing")
        .instances(exactly(0))
        .whole_profile()
        .kernels_named("outside", exactly(1))
        .assert();
}

/// Busy and idle are of the GPU's clock alone: what runs at the same time counts once, what lies between is idle.
#[test]
fn copied_bytes_beyond_64_bits_stop_at_the_largest_number() {
    let profile = record(|fake| {
        let _step = range("step");
        for _ in 0..3 {
            fake.launch(Work::host_to_device(u64::MAX));
        }
    });
    let text = failure(expect(&profile).range("step").copied_bytes(at_most(1))).to_string();
    assert!(text.contains(&u64::MAX.to_string()), "{text}");
    assert_eq!(profile.totals().copy_bytes, u64::MAX);
}

#[test]
fn busy_and_idle_match_the_operations() {
    let profile = record(program);
    let mut intervals: Vec<(Duration, Duration)> = profile
        .operations()
        .filter(|operation| operation.range().is_some())
        .map(|operation| (operation.start().unwrap(), operation.gpu_time().unwrap()))
        .collect();
    intervals.truncate(7); // the first step
    let first = intervals[0].0;
    let last = intervals.iter().map(|(start, time)| *start + *time).max().unwrap();
    // Nanosecond by nanosecond, as nothing in the library does it.
    let busy = (first.as_nanos()..last.as_nanos())
        .filter(|ns| {
            intervals
                .iter()
                .any(|(start, time)| (start.as_nanos()..(*start + *time).as_nanos()).contains(ns))
        })
        .count() as u64;
    let total = (last - first).as_nanos() as u64;
    let whole = Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    let text = only(expect(&whole).range("step").each().idle(at_most(Duration::ZERO)));
    let idle = format!("{} us in instance 1 of 2", (total - busy) as f64 / 1e3);
    assert!(text.contains(&idle), "{idle}: {text}");
    assert!(text.contains("idle until"), "{text}");
    let share = busy as f64 / total as f64;
    let text = only(expect(&whole).range("step").each().busy_time(at_most(Duration::ZERO)));
    let time = format!("{} us in instance 1 of 2", busy as f64 / 1e3);
    assert!(text.contains(&time), "{time}: {text}");
    let text = only(expect(&whole).range("step").each().busy_share(at_least(1.0)));
    let share = (share * 1e6).round() / 1e6;
    assert!(text.contains(&format!("{share} in instance 1 of 2")), "{share}: {text}");
}

#[test]
fn exceeded_budget_states_value_place_and_passing_bound() {
    let profile = record(program);
    let violations = failure(
        expect(&profile)
            .kernels(at_most(100))
            .range("compute")
            .kernels(at_most(8))
            .kernels_named("gemm*", at_least(4))
            .copies(exactly(0))
            .range("step")
            .each()
            .launches(exactly(3))
            .synchronizations(exactly(0))
            .gpu_time(at_most(5 * US)),
    );
    let text = violations.to_string();
    assert_eq!(format!("{violations:?}"), text);
    assert!(!text.contains('\x1b'), "no ANSI");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "5 budgets were not kept");
    assert_eq!(lines[2], "range `compute`, all instances together");
    assert_eq!(lines[3], "  kernels: 9, the budget is at most 8; at most 9 would pass");
    for part in [
        "    3 x gemm<float> in step/compute, by cuLaunchKernel, first called ",
        "    2 x relu in step/compute, by cuLaunchKernel, first called ",
        "  kernels named `gemm*`: 3, the budget is at least 4; at least 3 would pass",
        "range `step`, each instance",
        "  launches: 1 of 2 not kept, the budget is exactly 3; between 3 and 4 would pass",
        "    4 in instance 2 of 2, step, ",
        "    of the 4 in instance 2 of 2, step, ",
        "    1 x cuGraphLaunch in step/compute, called ",
        "  synchronisations: 2 of 2 not kept, the budget is exactly 0; exactly 1 would pass",
        "    1 x cuStreamSynchronize in step, blocked the host for ",
        "  GPU time: 1 of 2 not kept, the budget is at most 5 us; at most 7.68 us would pass",
        "    2 x gemm<float> in step/compute, 6.000 us, by cuLaunchKernel, first called ",
        "health: complete",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("copies:"), "{text}");
    let thread = profile.calls().next().unwrap().thread_id();
    assert!(text.contains(&format!("on thread {thread}")), "{text}");
    // The report of each range stands below its violations.
    let (compute, step) = text.split_once("range `step`").unwrap();
    assert!(compute.contains("\ncompute ") && !compute.contains("load"), "{compute}");
    assert!(step.contains("\nstep ") && step.contains("├─ load"), "{step}");
    let first = violations.iter().next().unwrap();
    assert_eq!(first.quantity(), "kernels");
    assert_eq!(first.place(), "range `compute`, all instances together");
    assert!(!first.is_unknown());
}

/// What a failure offers as the nearest budget passes, and a step below it does not.
#[test]
fn the_nearest_budget_passes_and_is_the_nearest() {
    let profile = record(program);
    let busiest = |most: u64| expect(&profile).range("step").each().kernels(at_most(most));
    let text = only(busiest(2));
    assert!(text.contains("at most 5 would pass"), "{text}");
    busiest(5).assert();
    busiest(4).check().unwrap_err();
    let time = |most| expect(&profile).range("step").gpu_time(at_most(Duration::from_nanos(most)));
    assert!(only(time(1)).contains("at most 12.36 us would pass"));
    time(12_360).assert();
    time(12_359).check().unwrap_err();
}

#[test]
fn forbidden_kernels_are_named() {
    let profile = record(program);
    let text = only(expect(&profile).range("compute").only_kernels(["gemm*", "?", "relu*"]));
    assert!(text.starts_with("kernels other than `gemm*`, `?`, `relu*`: 4, "), "{text}");
    assert!(
        text.contains("2 x a in step/compute") && text.contains("2 x b in step/compute"),
        "{text}"
    );
    assert!(!text.contains("gemm<float>") && !text.contains("would pass"), "{text}");
    let text = only(expect(&profile).no_kernels(["relu", "tanh"]));
    assert!(text.starts_with("kernels named `relu`: 2, the budget is exactly 0"), "{text}");
}

#[test]
#[should_panic(expected = "1 budget was not kept")]
fn assert_panics_with_the_violations() {
    let profile = record(program);
    expect(&profile).kernels(at_most(1)).assert();
}

#[test]
fn missing_range_never_passes() {
    let profile = record(program);
    for expect in [
        expect(&profile).range("stop"),
        expect(&profile).range("stop").kernels(at_most(5)),
        expect(&profile).range("stop").each().kernels(at_most(5)).copies(at_most(5)),
        expect(&profile).range("load/step").synchronizations(exactly(0)).range("step"),
    ] {
        let text = only(expect);
        let known =
            "cannot be known: there is no such range; there are: step, step/load, step/compute";
        assert!(text.contains(known), "{text}");
    }
    let text = only(expect(&profile).range("stop").instances(at_least(1)));
    assert!(text.starts_with("instances: 0, the budget is at least 1"), "{text}");
    let none: [Profile; 0] = [];
    assert!(
        only(expect(&none[..]).kernels(at_most(1))).contains("cannot be known: there is no run")
    );
    let no_ranges = record(|fake| {
        fake.launch(Work::kernel(c"k"));
    });
    assert!(only(expect(&no_ranges).range("x").kernels(at_most(1))).contains("no range at all"));
}

#[test]
fn each_run_has_to_keep_its_budgets() {
    let runs: Vec<Profile> = (1..4)
        .map(|kernels| {
            record(|fake| {
                let _range = range("run");
                for _ in 0..kernels {
                    fake.launch(Work::kernel(c"k").taking_ns(100));
                }
                drop((kernels == 3).then(|| range("rare")));
            })
        })
        .collect();
    expect(&runs)
        .range("run")
        .kernels(between(1, 3))
        .instances(exactly(1))
        .gpu_time_of(Statistic::Median, exactly(Duration::from_nanos(200)))
        .gpu_time_of(Statistic::Percentile(99.0), exactly(Duration::from_nanos(300)))
        .whole_profile()
        .gpu_time_of(Statistic::Min, exactly(Duration::from_nanos(100)))
        .assert();
    let text = only(expect(&runs).range("run").kernels(at_most(1)));
    assert!(
        text.contains("2 of 3 not kept, the budget is at most 1; at most 3 would pass"),
        "{text}"
    );
    assert!(text.contains("2 in run 2 of 3") && text.contains("3 x k in run"), "{text}");
    let text = only(expect(&runs).range("run").each().kernels(at_most(2)));
    assert!(
        text.contains("3 in instance 1 of 1, run, ") && text.contains(", run 3 of 3"),
        "{text}"
    );
    let text = only(expect(&runs).range("rare").kernels(at_most(2)));
    assert!(text.contains("there is no such range in run 1 of 3"), "{text}");
    let text = only(expect(&runs).range("rare").each().instances(at_least(1)));
    assert!(text.contains("2 of 3 not kept") && text.contains("0 in run 2 of 3"), "{text}");
}

/// What is no number allows nothing, whatever is compared with it.
#[test]
fn a_budget_of_nan_is_never_kept() {
    let profile = record(program);
    for budget in [
        at_least(f64::NAN),
        at_most(f64::NAN),
        exactly(f64::NAN),
        between(0.0, f64::NAN),
        between(f64::NAN, 1.0),
    ] {
        let text = only(expect(&profile).range("step").busy_share(budget));
        assert!(text.contains("the budget is NaN, which no amount keeps"), "{text}");
    }
}

/// A range on a thread that a context was handed to lies in one of another thread, whose row may come later.
#[test]
fn handed_over_work_counts_for_its_origin() {
    let profile = record(|fake| {
        let (give, take) = std::sync::mpsc::channel::<Context>();
        let (begin, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(range("first of all"));
                begin.send(()).unwrap();
                let context = take.recv().unwrap();
                let _attached = context.attach();
                let _inner = range("inner");
                fake.launch(Work::kernel(c"k"));
            });
            begun.recv().unwrap();
            let _outer = range("outer");
            fake.launch(Work::kernel(c"k"));
            give.send(Context::capture()).unwrap();
        });
    });
    expect(&profile)
        .complete()
        .range("outer")
        .kernels(exactly(2))
        .launches(exactly(2))
        .range("outer/inner")
        .each()
        .kernels(exactly(1))
        .assert();
}

/// A plain recording of one copy in each direction, changed byte by byte.
fn copies(change: impl FnOnce(&mut [u8])) -> Profile {
    let profile = record(|fake| {
        let _range = range("copies");
        fake.launch(Work::host_to_device(1000));
        fake.launch(Work::device_to_host(1000));
    });
    let recording = profile.recording().unwrap();
    let mut bytes = recording.to_bytes();
    let mut copies: Vec<_> = recording
        .records()
        .iter()
        .filter_map(|record| match record {
            Record::Memcpy(copy) => Some(copy),
            _ => None,
        })
        .collect();
    copies.sort_by_key(|copy| copy.span.start_ns);
    let ends: Vec<usize> = copies
        .iter()
        .map(|copy| {
            let needle =
                [copy.span.start_ns.to_le_bytes(), copy.span.end_ns.to_le_bytes()].concat();
            let at = bytes.windows(16).position(|window| window == needle).unwrap();
            // Marks the record, whose copy kind stands 4 bytes from its start, source, destination and flags after it.
            assert_eq!(bytes[at - 12], if copy.kind == CopyKind::HostToDevice { 1 } else { 2 });
            at
        })
        .collect();
    let mut fields: Vec<u8> = ends.iter().flat_map(|&at| bytes[at - 12..at - 8].to_vec()).collect();
    change(&mut fields);
    for (at, fields) in ends.iter().zip(fields.chunks(4)) {
        bytes[at - 12..at - 8].copy_from_slice(fields);
    }
    Profile::from_bytes(&frames::sealed(&bytes)).unwrap()
}

/// Of both copies in a row: kind, source, destination, flags.
const PINNED: [u8; 8] = [1, 2, 3, 1, 2, 3, 2, 1];

#[test]
fn copies_block_and_are_pageable_by_their_record() {
    let budget = |profile: &Profile, blocking, pageable| {
        let expect = expect(profile).range("copies");
        expect.blocking_copies(exactly(blocking)).pageable_copies(exactly(pageable)).assert();
    };
    budget(&copies(|_| ()), 1, 2);
    budget(&copies(|fields| fields.copy_from_slice(&PINNED)), 0, 0);
    let synchronous = copies(|fields| {
        fields.copy_from_slice(&PINNED);
        (fields[3], fields[7]) = (0, 0);
    });
    budget(&synchronous, 2, 0);
    let within_device = copies(|fields| fields.copy_from_slice(&[8, 3, 3, 0, 2, 3, 2, 1]));
    budget(&within_device, 0, 0);
}

#[test]
fn copies_of_unknown_kind_never_pass() {
    let unknown_end = copies(|fields| {
        fields.copy_from_slice(&PINNED);
        fields[6] = 0;
    });
    let text = only(expect(&unknown_end).range("copies").pageable_copies(at_most(5)));
    assert!(
        text.contains("cannot be known: 1 copies do not record their kinds of memory"),
        "{text}"
    );
    let text = only(expect(&unknown_end).range("copies").blocking_copies(at_most(5)));
    assert!(
        text.contains("cannot be known: 1 copies do not record whether the host waits"),
        "{text}"
    );
    expect(&unknown_end).range("copies").copies(at_most(5)).assert();

    let unknown_direction = copies(|fields| fields[0] = 99);
    let text = only(expect(&unknown_direction).copies_of(CopyKind::PeerToPeer, exactly(0)));
    assert!(text.contains("cannot be known: 1 copies do not record their direction"), "{text}");
}

#[test]
fn lost_records_never_pass() {
    let lossy = record(|fake| {
        let _range = range("r");
        fake.drop_records(3);
        fake.launch(Work::kernel(c"k"));
        fake.launch(Work::synchronize());
    });
    let violations = failure(expect(&lossy).range("r").kernels(at_most(9)).copies(exactly(0)));
    assert_eq!(violations.iter().filter(|violation| violation.is_unknown()).count(), 2);
    let text = violations.to_string();
    let known = "kernels: cannot be known: 3 records were dropped by CUPTI; 1 seen, the budget is at most 9";
    assert!(text.contains(known), "{text}");
    // Calls come from another log.
    expect(&lossy).range("r").launches(exactly(1)).synchronizations(exactly(1)).assert();
    let text = only(expect(&lossy).complete());
    assert!(
        text.contains("completeness: something was lost") && text.contains("3 records dropped"),
        "{text}"
    );
}

/// A recording in which a loss is counted that happened in no test: its count is changed in the file's state.
fn with_loss(name: &str) -> Profile {
    let profile = record(|fake| {
        let _range = range("r");
        fake.launch(Work::kernel(c"k"));
        fake.launch(Work::synchronize());
    });
    let mut bytes = profile.recording().unwrap().to_bytes();
    let needle = format!("\"{name}\":0");
    let at = bytes.windows(needle.len()).rposition(|window| window == needle.as_bytes()).unwrap();
    bytes[at + needle.len() - 1] = b'7';
    Profile::from_bytes(&frames::sealed(&bytes)).unwrap()
}

/// Each loss makes unknown what it may have taken from, and nothing else.
#[test]
fn each_loss_makes_its_quantity_unknown() {
    let budgets: [fn(Expect<'_>) -> Expect<'_>; 3] = [
        |expect| expect.kernels(at_most(9)),
        |expect| expect.synchronizations(at_most(9)),
        |expect| expect.instances(at_most(9)),
    ];
    for (loss, said, unknown) in [
        ("dropped_by_cupti", "7 records were dropped by CUPTI", [true, false, false]),
        ("refused_records", "7 records were over the limit of buffers", [true, false, false]),
        ("over_memory_limit", "7 records were over the memory limit", [true, false, false]),
        ("unreadable_bytes", "7 bytes of records could not be read", [true, false, false]),
        ("unfinished_buffers", "7 buffers were unfinished", [true, false, false]),
        ("ranges", "7 ranges were lost", [true, true, true]),
        ("panics", "7 panics were caught", [true, true, true]),
    ] {
        let profile = with_loss(loss);
        assert!(!profile.health().is_complete(), "{loss}");
        for (budget, unknown) in budgets.into_iter().zip(unknown) {
            let outcome = budget(expect(&profile).range("r")).check();
            match outcome {
                Err(violations) => {
                    assert!(unknown && violations.to_string().contains(said), "{violations}")
                }
                Ok(()) => assert!(!unknown, "{loss}"),
            }
        }
    }
}

#[test]
fn calls_that_failed_or_were_captured_are_no_launches() {
    let profile = record(|fake| {
        let _range = range("r");
        fake.launch(Work::kernel(c"k"));
        fake.capture(&Work::kernel(c"node"));
        fake.call_only("cuLaunchKernel", 700);
        fake.call_only("cuMemAlloc_v2", 2);
        fake.call_only("cuMemAlloc_v2", 0);
    });
    expect(&profile).range("r").launches(exactly(1)).allocations(exactly(1)).assert();
}

#[test]
fn work_without_its_call_is_never_a_pass() {
    let profile = record(|fake| {
        let _range = range("r");
        fake.launch(Work::kernel(c"k"));
        fake.unseen(&Work::kernel(c"unseen"));
        fake.call_only("cuMemcpyDtoHAsync_v2", 0); // expects a copy
    });
    let text = only(expect(&profile).range("r").kernels(at_most(9)));
    assert!(
        text.contains("cannot be known: 1 kernels have no call, so that their range"),
        "{text}"
    );
    let text = only(expect(&profile).range("r").launches(at_most(9)));
    assert!(text.contains("cannot be known: 1 kernels have no call"), "{text}");
    let text = only(expect(&profile).range("r").copies(at_most(9)));
    assert!(text.contains("cannot be known: 1 calls for copies have no record"), "{text}");
    // Of the whole profile, every kernel is one wherever it belongs.
    expect(&profile).kernels(exactly(2)).assert();
    expect(&profile).range("r").memsets(exactly(0)).allocations(exactly(0)).assert();
}

/// Where ranges were lost, that there is none of a name is not known.
#[test]
fn no_instance_among_lost_ranges_is_never_a_pass() {
    let said = "cannot be known: 7 ranges were lost; 0 seen, the budget is exactly 0";
    for runs in [vec![with_loss("ranges")], vec![record(program), with_loss("ranges")]] {
        for expect in [expect(&runs).range("x"), expect(&runs).range("x").each()] {
            let text = only(expect.instances(exactly(0)));
            assert!(text.contains(said), "{text}");
            assert_eq!(runs.len() == 2, text.contains("in run 2 of 2"), "{text}");
        }
    }
    expect(&record(program)).range("x").each().instances(exactly(0)).assert();
}

/// What was not collected was not counted as nothing.
#[test]
fn a_kind_that_was_not_collected_is_never_a_pass() {
    let without = |kind| {
        let fake = Fake::new();
        let config = cupti::Config::new().remove_kind(kind);
        let builder = Profiler::builder().library(fake.library().unwrap()).config(config);
        builder.build().unwrap().record(|| program(&fake)).unwrap().1
    };
    let profile = without(cupti::ActivityKind::MEMCPY);
    let text = only(expect(&profile).range("step").copies(at_most(99)));
    assert!(text.contains("4 calls for copies have no record; 0 seen"), "{text}");
    let in_step = expect(&profile).range("step").kernels(exactly(9)).memsets(exactly(2));
    in_step.shared_kernels(exactly(0)).assert();
    let profile = without(cupti::ActivityKind::CONCURRENT_KERNEL);
    let text = only(expect(&profile).range("step").shared_kernels(exactly(0)));
    assert!(text.contains("6 calls for kernels have no record; "), "{text}");
}

#[test]
fn a_graph_without_a_record_is_never_a_pass() {
    let profile = record(|fake| {
        {
            let _lost = range("lost");
            fake.launch_graph(&[Work::kernel(c"k")]);
        }
        let _silent = range("silent");
        fake.launch_graph(&[Work::kernel(c"k")]);
        fake.launch_graph(&[]);
    });
    profile.health().assert_complete();
    let text = only(expect(&profile).range("silent").kernels(at_most(9)));
    assert!(text.contains("cannot be known: 1 graph launches gave no record; 1 seen"), "{text}");
    expect(&profile).range("silent").graph_launches(exactly(2)).assert();
    expect(&profile).range("lost").kernels(exactly(1)).assert();
}

#[test]
fn a_recording_without_calls_knows_no_allocations() {
    let profile = record(|fake| fake.unseen(&Work::kernel(c"unseen")));
    for expect in [
        expect(&profile).allocations(exactly(0)),
        expect(&profile).synchronizations(exactly(0)),
        expect(&profile).graph_launches(exactly(0)),
    ] {
        let text = only(expect);
        assert!(text.contains("cannot be known: the recording has no driver calls"), "{text}");
    }
}

#[test]
fn host_times_of_ranges_and_the_wall_time_have_budgets() {
    let profile = record(|fake| {
        fake.stop_clock();
        for ms in [2, 4, 30] {
            let _step = range("step");
            fake.advance_clock(Duration::from_millis(ms));
            fake.launch(Work::kernel(c"k").taking_ns(500_000_000));
        }
    });
    let [short, long] = [Duration::from_millis(36), Duration::from_secs(1)];
    let wall = profile.wall_time();
    assert!(wall > Duration::from_millis(1500) && wall > profile.duration(), "{wall:?}");
    expect(&profile)
        .host_time(exactly(wall))
        .host_time_of(Statistic::Max, exactly(wall))
        .range("step")
        .host_time(between(short, long))
        .host_time_of(Statistic::Median, at_most(Duration::from_millis(29)))
        .host_time_of(Statistic::Max, at_least(Duration::from_millis(30)))
        .assert();
    let text = only(expect(&profile).range("step").each().host_time(at_most(short / 2)));
    assert!(text.contains("1 of 3 not kept, the budget is at most 18 ms"), "{text}");
    assert!(text.contains("host time"), "{text}");
    // A recording that is cut off does not have the whole time.
    let bytes = profile.recording().unwrap().to_bytes();
    let cut = Profile::from_bytes(&bytes[..bytes.len() - 30]).unwrap();
    let text = only(expect(&cut).host_time(at_most(long)));
    assert!(text.contains("1 recording is cut off"), "{text}");
}

#[test]
fn missing_times_never_pass() {
    let profile = record(|fake| {
        {
            let _range = range("timed");
            fake.launch(Work::kernel(c"k"));
        }
        let _range = range("timeless");
        fake.lose_timestamps();
        fake.launch(Work::kernel(c"k"));
    });
    let limit = Duration::from_secs(1);
    let budgets: [fn(Expect<'_>, Duration) -> Expect<'_>; 3] = [
        |expect, limit| expect.gpu_time(at_most(limit)),
        |expect, limit| expect.gpu_time_of(Statistic::Max, at_most(limit)),
        |expect, limit| expect.idle(at_most(limit)),
    ];
    for budget in budgets {
        let text = only(budget(expect(&profile).range("timeless"), limit));
        assert!(text.contains("cannot be known: 1 operations have no timestamps"), "{text}");
        budget(expect(&profile).range("timed"), limit).assert();
    }
    expect(&profile).range("timeless").kernels(exactly(1)).assert();

    let empty = record(|_| drop(range("empty")));
    let text = only(expect(&empty).range("empty").busy_share(at_most(1.0)));
    assert!(text.contains("no GPU operation was submitted"), "{text}");
    expect(&empty)
        .range("empty")
        .gpu_time(exactly(Duration::ZERO))
        .idle(exactly(Duration::ZERO))
        .assert();
}

#[test]
fn ranges_that_did_not_end_are_never_a_pass() {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    let open = range("open");
    drop(range("closed"));
    let profile = profiler.stop().unwrap();
    drop(open);
    let text = only(expect(&profile).range("open").kernels(exactly(0)));
    assert!(text.contains("cannot be known: 1 of its instances had not ended"), "{text}");
    expect(&profile).range("closed").kernels(exactly(0)).assert();
}

#[test]
fn a_range_within_one_of_its_name_counts_once_together_and_alone() {
    let profile = record(|fake| {
        let _outer = range("recursive");
        fake.launch(Work::kernel(c"k"));
        let _inner = range("recursive");
        fake.launch(Work::kernel(c"k"));
    });
    expect(&profile).range("recursive").instances(exactly(2)).kernels(exactly(2)).assert();
    let text = only(expect(&profile).range("recursive").each().kernels(exactly(1)));
    assert!(text.contains("1 of 2 not kept") && text.contains("2 in instance 1 of 2"), "{text}");
    // The median of one outermost instance, not of two.
    let time = Duration::from_micros(2);
    let median = |expect: Expect<'_>| expect.gpu_time_of(Statistic::Median, exactly(time)).assert();
    median(expect(&profile).range("recursive"));
    median(expect(&profile).range("recursive").each());
}
