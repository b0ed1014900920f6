//! Critical paths and predictions of recordings from a GPU, beside what the changed programs took; and of a program of
//! the fake with threads.

use std::thread;
use std::time::Duration;

use crate::load;
use crate::ranks::job;
use cupti::{ActivityKind, Config};
use fake_cupti::{Fake, FakeCall, Work};
use profiler_analysis::critical_path::{PathKind, ReplayError, WhatIf};
use profiler_analysis::prelude::*;
use profiler_core::query::Step;
use profiler_core::{Context, Profile, Profiler, Recording};

/// Programs before and after a change, each with the change if the model can express it without a number from the program
/// after. Of the others, how much faster the kernels are is not in the recording before.
fn pairs() -> Vec<(&'static str, [&'static str; 2], Option<WhatIf>)> {
    let step = || "step".to_owned();
    let loading = |threads| WhatIf::Ahead { path: "step/data loading".to_owned(), threads };
    let preprocess = WhatIf::Host { path: "step/preprocess".to_owned(), times: f64::INFINITY };
    let anti_patterns = [
        ("launch-bound", Some(WhatIf::OneGraph { path: step() })),
        ("sync-every-kernel", Some(WhatIf::OneWait { path: step() })),
        ("pageable-copies", Some(WhatIf::CopiesAhead)),
        ("host-preprocessing", Some(preprocess)),
        ("slow-loader", Some(loading(4))),
        ("tiny-copies", Some(WhatIf::OneCopy { path: step() })),
        ("serial-streams", Some(WhatIf::NoEvents { path: step() })),
        ("small-gemms", None),
        ("tail-effect", None),
    ];
    let case_studies =
        [("loader", Some(loading(8))), ("bf16", None), ("batched", None), ("optimizer", None)];
    // The median step is one without a log.
    let overlaps = [
        ("loss-read", Some(WhatIf::Pinned)),
        ("log-wait", Some(WhatIf::NoWait { path: "step/log".to_owned() })),
        ("workspace", Some(WhatIf::NoAllocations { path: step() })),
        ("late-event", Some(WhatIf::NoEvents { path: step() })),
    ];
    let of = |states| move |(name, change)| (name, states, change);
    let anti_patterns =
        anti_patterns.into_iter().map(of(["diseases/NAME-ill", "diseases/NAME-cured"]));
    let case_studies =
        case_studies.into_iter().map(of(["case-studies/NAME-before", "case-studies/NAME-after"]));
    let overlaps = overlaps.into_iter().map(of(["overlaps/NAME-before", "overlaps/NAME-after"]));
    let pairs = anti_patterns.chain(case_studies).chain(overlaps);
    // Without a recording of both there is nothing to compare.
    pairs
        .filter(|(name, states, _)| {
            states.iter().all(|state| {
                crate::file(format!("recordings/{}.gpuprof", state.replace("NAME", name))).exists()
            })
        })
        .collect()
}

fn recordings(name: &str, states: [&str; 2]) -> [Profile; 2] {
    states.map(|state| load(&state.replace("NAME", name)))
}

fn step_time(profile: &Profile) -> f64 {
    profile.steps("step").statistics(Step::host_time).median().as_secs_f64()
}

/// What was predicted is within 5 points of the time that the change saved, for each pair.
#[test]
fn predictions_from_the_file_before_match_the_program_after() {
    let mut expressed = 0;
    for (name, states, change) in pairs() {
        let Some(change) = change else { continue };
        let profiles = recordings(name, states);
        let saved = 1.0 - step_time(&profiles[1]) / step_time(&profiles[0]);
        let dependencies = profiles[0].dependencies().with_steps("step").unwrap();
        let prediction = dependencies.predict(change.clone()).unwrap();
        let predicted = 1.0 - 1.0 / prediction.speed_up();
        println!(
            "{name:<20} saved {:5.1} %, predicted {:5.1} %: {prediction}",
            100.0 * saved,
            100.0 * predicted
        );
        assert!((saved - predicted).abs() < 0.05, "{name}: {saved} saved, {predicted} predicted");
        expressed += 1;
    }
    assert_eq!(expressed, 12);
}

/// The change that was made is among the first three that are proposed.
#[test]
fn changes_that_were_made_are_proposed() {
    for (name, states, change) in pairs() {
        let Some(change) = change else { continue };
        let [before, _] = recordings(name, states);
        let proposed = before.dependencies().best_changes(10);
        let changes: Vec<&WhatIf> = proposed.iter().map(|prediction| &prediction.change).collect();
        let is_it = |of: &&WhatIf| match (&change, of) {
            // With four threads, and the host twice as fast, whatever was done.
            (WhatIf::Ahead { path, .. }, WhatIf::Ahead { path: of, .. }) => path == of,
            (
                WhatIf::Host { path, .. },
                WhatIf::Host { path: of, .. } | WhatIf::Ahead { path: of, .. },
            ) => path == of,
            (change, of) => change == *of,
        };
        let place = changes.iter().position(is_it);
        println!("{name}: number {place:?} of {changes:?}");
        assert!(place.is_some_and(|place| place < 3), "{name}: {changes:?}");
    }
}

/// Host delays are fitted on odd steps, even ones are replayed.
#[test]
fn replay_of_unseen_steps_is_within_a_percent() {
    let mut errors: Vec<ReplayError> = Vec::new();
    for (name, states, _) in pairs() {
        for (profile, state) in recordings(name, states).iter().zip(states) {
            let dependencies = profile.dependencies().with_steps("step").unwrap();
            let error = dependencies.replay_error().unwrap();
            println!("{state:<24} {name:<20} {error}");
            errors.push(error);
        }
    }
    assert_eq!(errors.len(), 34);
    // Each recording counts by the steps that were replayed of it.
    let median = |of: fn(&ReplayError) -> f64| {
        let mut steps: Vec<f64> = Vec::new();
        for error in &errors {
            steps.extend(std::iter::repeat_n(of(error), error.steps as usize));
        }
        steps.sort_by(f64::total_cmp);
        steps[steps.len() / 2]
    };
    let (with, without) = (median(|error| error.median), median(|error| error.without_edges));
    let of_median = median(|error| error.median_step);
    println!(
        "steps {:.2} %, median steps {:.2} %, without dependencies {:.1} %",
        100.0 * with,
        100.0 * of_median,
        100.0 * without
    );
    assert!(with < 0.01 && of_median < 0.01, "{with} {of_median}");
    assert!(without > 0.05, "{without}");
}

/// Steps of PyTorch, in which the host is Python. The median step is what a replay of others says, within a percent of what two halves of so
/// few steps differ by. Single steps are off by about as much as steps vary: no replay of others knows by how much this one does.
#[test]
fn replay_of_pytorch_steps_has_the_median_step_within_a_percent() {
    for name in ["decode", "single_threaded_backward", "train", "triton"] {
        let profile = load(&format!("pytorch-h100/{name}"));
        let error = profile.with_inferred_ranges().dependencies().replay_error().unwrap();
        println!("{name:<24} {error}");
        assert!((error.median_step - error.halves).abs() < 0.01, "{name}: {error}");
        assert!(error.median < 1.25 * error.spread, "{name}: {error}");
    }
}

/// Waits until the stream is done, as the driver does. A stopped clock gets there.
fn synchronize(fake: &Fake, stream: u32) {
    let since = fake.now_ns();
    let until = fake.stream_end_ns(stream);
    FakeCall::driver("cuStreamSynchronize", None).of_stream(stream).run(|id| {
        fake.advance_clock(Duration::from_nanos(until.saturating_sub(fake.now_ns())));
        while fake.now_ns() < until {
            thread::yield_now();
        }
        fake.waited(&Work::synchronize().on_stream(stream), id, since);
        0
    });
}

fn record(fake: &Fake, config: Config, program: impl FnOnce()) -> Profile {
    let builder = Profiler::builder().library(fake.library().unwrap()).config(config);
    builder.build().unwrap().record(program).unwrap().1
}

const MS: u64 = 1_000_000;

/// Four steps of 50 ms of kernels through `cuLaunchKernelEx`, an event and a graph, with a kernel beside them.
fn planned_steps(fake: &Fake) {
    for number in 0..4 {
        let _step = nvtx::range("step");
        let id = fake.call_around("cuLaunchKernelEx", || {});
        fake.execute(&Work::kernel(c"first").taking_ns(20 * MS).on_stream(7), id);
        let first_ns = fake.stream_end_ns(7);
        fake.launch(Work::record_event(number).on_stream(7));
        fake.launch(Work::wait_event().on_stream(8).for_event(number));
        fake.delay_stream(8, first_ns);
        fake.launch(Work::kernel(c"second").taking_ns(10 * MS).on_stream(8));
        fake.launch(Work::kernel(c"beside").taking_ns(MS).on_stream(9));
        let node = |name| Work::kernel(name).taking_ns(10 * MS).on_stream(8);
        fake.launch_graph(&[node(c"third"), node(c"fourth")]);
        synchronize(fake, 8);
    }
}

/// The path of what ran is known: 50 ms of kernels. The kernel beside them is on no path.
#[test]
fn path_of_a_fake_program_is_the_constructed_one() {
    let fake = Fake::new();
    fake.stop_clock();
    let events = Config::new().add_kind(ActivityKind::CUDA_EVENT);
    for (config, recorded_events, inferred_events) in [(Config::new(), 0, 4), (events, 4, 0)] {
        let profile = record(&fake, config, || planned_steps(&fake));
        profile.health().assert_complete();
        let dependencies = profile.dependencies();
        let assumptions = dependencies.assumptions();
        let counts = (assumptions.recorded_events, assumptions.inferred_events);
        assert_eq!(counts, (recorded_events, inferred_events), "{assumptions}");
        let path = dependencies.critical_path_of("step").unwrap();
        let off = path.gpu_time().abs_diff(Duration::from_millis(4 * 50));
        assert!(off < Duration::from_micros(10), "{path}");
        for (name, ms) in
            [("first", 20), ("second", 10), ("third", 10), ("fourth", 10), ("beside", 0)]
        {
            let row = path.row(PathKind::Kernel, name).unwrap();
            let off = row.on_path.abs_diff(Duration::from_millis(4 * ms));
            assert!(off < Duration::from_micros(10), "{name}\n{path}");
        }
        // It may end 50 ms after the step began, and began before the first kernel ended.
        let slack = path.row(PathKind::Kernel, "beside").unwrap().slack.unwrap();
        assert!(slack > Duration::from_millis(28), "{slack:?}");
        // All of it is launch, kernels and return: the host had time enough to be late.
        let rest = path.time_of(PathKind::Launch) + path.time_of(PathKind::Return);
        assert!(path.gpu_time() + rest <= path.length);
    }
}

/// A launch that takes longer than the kernel before it hides that kernel.
#[test]
fn late_launch_is_on_the_path_in_place_of_the_kernel_before() {
    let fake = Fake::new();
    fake.stop_clock();
    let profile = record(&fake, Config::new(), || {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"hidden").taking_ns(5 * MS).on_stream(7));
        let late = Duration::from_millis(40);
        let id = fake.call_around("cuLaunchKernelEx", || fake.advance_clock(late));
        fake.execute(&Work::kernel(c"late").taking_ns(10 * MS).on_stream(7), id);
        synchronize(&fake, 7);
    });
    let path = profile.dependencies().critical_path_of("step").unwrap();
    let on_path = |name| path.row(PathKind::Kernel, name).unwrap().on_path.as_millis();
    assert_eq!((on_path("hidden"), on_path("late")), (0, 10), "{path}");
    assert!(path.time_of(PathKind::Launch) >= Duration::from_millis(40), "{path}");
}

/// A graph with two branches, whose dependencies the program has logged: captured, instantiated, launched, saved and loaded.
#[test]
fn dependencies_of_a_fake_graph_survive_its_copy_and_the_file() {
    let fake = Fake::new();
    fake.stop_clock();
    let config = Config::new().graph_dependencies(true);
    let profiler = Profiler::builder().library(fake.library().unwrap()).config(config);
    let profiler = profiler.build().unwrap();
    profiler.start().unwrap();
    let mut graph = fake.graph();
    let node = |name, ms, stream| Work::kernel(name).taking_ns(ms * MS).on_stream(stream);
    for work in [node(c"long", 20, 7), node(c"beside", 2, 8), node(c"last", 5, 7)] {
        fake.capture_into(&mut graph, &work);
    }
    fake.add_dependency(&graph, 0, 2);
    fake.add_dependency(&graph, 1, 2);
    let exec = fake.instantiate(&graph);
    {
        let _step = nvtx::range("step");
        fake.launch_exec(&exec);
        synchronize(&fake, 7);
    }
    let recording = profiler.stop_recording().unwrap();
    let mut bytes = Vec::new();
    recording.write_to(&mut bytes).unwrap();
    let profile = Profile::from_recording(Recording::read_from(&bytes[..], 1 << 30).unwrap());
    let dependencies = profile.dependencies();
    let assumptions = dependencies.assumptions();
    let counts = (assumptions.recorded_in_graphs, assumptions.inferred_in_graphs);
    assert_eq!(counts, (3, 0), "{assumptions}");
    let path = dependencies.critical_path_of("step").unwrap();
    let on_path = |name| path.row(PathKind::Kernel, name).unwrap().on_path.as_millis();
    assert_eq!(["long", "beside"].map(on_path), [20, 0], "{path}");
    // Another kernel does not explain it, though it may have ended last.
    let faster = WhatIf::Kernel { name: "long".to_owned(), times: 2.0 };
    let saved = dependencies.with_steps("step").unwrap().predict(faster).unwrap().saved();
    assert!(saved.abs_diff(Duration::from_millis(10)) < Duration::from_micros(10), "{saved:?}");
}

#[test]
fn path_follows_a_hand_over_to_another_thread() {
    let fake = Fake::new();
    fake.stop_clock();
    let profile = record(&fake, Config::new(), || {
        let _outer = nvtx::range("outer");
        let context = Context::capture();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _attached = context.attach();
                let _worker = nvtx::range("worker");
                fake.advance_clock(Duration::from_millis(30));
                fake.launch(Work::kernel(c"kernel"));
            });
        });
    });
    let dependencies = profile.dependencies();
    assert_eq!(dependencies.assumptions().hand_overs, 1);
    let path = dependencies.critical_path_of("outer").unwrap();
    let worker = path.ranges().iter().find(|row| row.name == "outer/worker").unwrap();
    assert!(worker.on_path >= Duration::from_millis(30), "{path}");
    let faster = WhatIf::Host { path: "worker".to_owned(), times: 2.0 };
    let prediction = profile.dependencies().with_steps("outer").unwrap().predict(faster).unwrap();
    assert!(prediction.saved() >= Duration::from_millis(14), "{prediction}\n{path}");
}

/// An H200's records of an event: the host waited for the kernel and what was submitted before the event, by each version of CUPTI.
#[test]
fn recorded_events_of_a_gpu_are_matched_with_their_waits() {
    for name in ["kinds-130001", "kinds-130500", "kinds-28", "kinds-26"] {
        let profile = load(name);
        let dependencies = profile.dependencies();
        let assumptions = dependencies.assumptions();
        let counts = (assumptions.recorded_events, assumptions.inferred_events);
        assert_eq!((counts, assumptions.contradicted), ((1, 0), 0), "{name}: {assumptions}");
    }
}

/// Two H100, of which rank 1 runs a kernel of 2.5 ms and rank 0 one of 0.5 ms before every second AllReduce: the path leads to
/// rank 1, and nobody waits for the other kernel.
#[test]
fn path_of_two_gpus_leads_to_the_late_rank() {
    let profile = job();
    let late = profile.ranks().ranks[1].process_id;
    let dependencies = profile.dependencies();
    let assumptions = dependencies.assumptions();
    assert_eq!((assumptions.collectives, assumptions.contradicted), (100, 0), "{assumptions}");
    let path = dependencies.critical_path();
    let mut spins = [0, 0];
    for segment in path.segments().iter().filter(|segment| segment.kind() == PathKind::Kernel) {
        let operation = segment.operation(&profile).unwrap();
        let is_spin = operation.as_kernel().unwrap().name().contains("spin_kernel");
        let is_work = operation.range().is_some_and(|range| range.name() == "work");
        if is_spin && is_work {
            spins[usize::from(operation.process_id() == late)] += 1;
        }
    }
    println!("{spins:?} {path}");
    assert_eq!(spins, [0, 50]);
    // Of 1.25 ms a step, which the host has to hide what it does meanwhile.
    let dependencies = dependencies.with_steps("late").unwrap();
    let faster = WhatIf::Kernel { name: "*spin*".to_owned(), times: 2.0 };
    let prediction = dependencies.predict(faster).unwrap();
    println!("{prediction:?}");
    assert!(prediction.saved().abs_diff(Duration::from_micros(1_250)) < Duration::from_micros(60));
}
