//! What a collection can be asked for beyond the default: kinds, filters, settings, few buffers, pauses, the profiler
//! switch. Against the fake.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use cupti::record::UnifiedMemoryKind;
use cupti::sys::abi::CuptiResult;
use cupti::sys::generated::unified_memory_counter::{COUNTER_KIND, VALUE};
use cupti::{
    ActivityKind, Attribute, Call, CallClass, Collected, Collector, Config, Losses, Record, clock,
};
use fake_cupti::{Arrival, Fake, FakeCall, Settings, When, Work, Written};

fn start(fake: &Fake, config: &Config) -> Collector {
    Collector::start(&fake.library().unwrap(), config).unwrap()
}

fn kernels(collected: &Collected) -> Vec<cupti::Kernel> {
    let kernel = |record| {
        if let Record::Kernel(kernel) = record { Some(*kernel) } else { None }
    };
    collected.records.iter().filter_map(kernel).collect()
}

fn calls(collected: &Collected) -> Vec<Call> {
    collected.calls.iter().flat_map(|thread| thread.calls.clone()).collect()
}

fn nothing_lost(losses: &Losses) -> bool {
    let mut losses = *losses;
    losses.buffers = 0;
    losses == Losses::default()
}

#[test]
fn kinds_are_those_asked_for() {
    let fake = Fake::new();
    let default = start(&fake, &Config::new());
    // Synchronisations are made from calls.
    let mut expected: Vec<_> = [1, 2, 10, 17, 22].map(ActivityKind).to_vec();
    assert_eq!(fake.enabled_kinds(), expected);
    drop(default);

    let config = Config::new()
        .add_kind(ActivityKind::STREAM)
        .remove_kind(ActivityKind::OVERHEAD)
        .add_kind(ActivityKind::STREAM)
        .add_kind_if_known(ActivityKind::GREEN_CONTEXT);
    let collector = start(&fake, &config);
    expected.retain(|kind| *kind != ActivityKind::OVERHEAD);
    expected.insert(4, ActivityKind::STREAM);
    assert_eq!(fake.enabled_kinds(), expected);
    assert_eq!(collector.missing_kinds(), [ActivityKind::GREEN_CONTEXT], "13.0 has none");
    let collected = collector.stop().unwrap();
    assert_eq!(collected.missing_kinds, [ActivityKind::GREEN_CONTEXT]);
    assert!(fake.enabled_kinds().is_empty());

    let only = Config::new().kinds([ActivityKind::MEMSET]);
    let collector = start(&fake, &only);
    assert_eq!(fake.enabled_kinds(), [ActivityKind::MEMSET]);
    fake.launch(Work::kernel(c"not asked for"));
    fake.launch(Work::memset(8));
    assert_eq!(collector.stop().unwrap().records.iter().count(), 1);
}

#[test]
fn a_kind_the_library_does_not_have_is_an_error_and_all_is_put_back() {
    let fake = Fake::builder().version(26).build();
    let library = fake.library().unwrap();
    let config = Config::new().add_kind(ActivityKind::GRAPH_HOST_NODE);
    let error = Collector::start(&library, &config).unwrap_err();
    assert!(error.is_unsupported() && !error.is_busy(), "{error}");
    assert_eq!(error.code(), Some(14));
    let text = error.to_string();
    assert!(text.contains("GRAPH_HOST_NODE") && text.contains("12.8"), "{text}");
    assert!(fake.enabled_kinds().is_empty());
    assert_eq!(fake.attribute(5), Some(0), "buffers are zeroed by CUPTI again");
    start(&fake, &Config::new());
}

/// 12.9 would take it and give nothing.
#[test]
fn a_kind_that_12_9_does_not_have_is_an_error_although_it_takes_any() {
    let fake = Fake::builder().version(28).build();
    let newer = [ActivityKind::GRAPH_HOST_NODE, ActivityKind(9_999)];
    let config = newer.into_iter().fold(Config::new(), Config::add_kind_if_known);
    let collected = start(&fake, &config).stop().unwrap();
    assert_eq!(collected.missing_kinds, newer);
    let library = fake.library().unwrap();
    let error = Collector::start(&library, &Config::new().add_kind(newer[0])).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("12.9"), "{error}");
    let known = ActivityKind::CONFIDENTIAL_COMPUTE_ROTATION;
    let collector = start(&fake, &Config::new().add_kind(known));
    assert!(fake.enabled_kinds().contains(&known) && collector.missing_kinds().is_empty());
}

#[test]
fn counters_of_managed_memory_are_set_and_put_back() {
    let fake = Fake::new();
    let all: Vec<_> = (1..=8).map(UnifiedMemoryKind).collect();
    let kind = ActivityKind::UNIFIED_MEMORY_COUNTER;
    drop(start(&fake, &Config::new()));
    assert!(fake.unified_memory_counters().is_empty(), "without the kind there are none");

    let mut collector = start(&fake, &Config::new().add_kind(kind));
    assert_eq!(fake.unified_memory_counters(), all);
    assert!(fake.enabled_kinds().contains(&kind));
    collector.pause().unwrap();
    assert!(!fake.enabled_kinds().contains(&kind));
    collector.resume().unwrap();
    assert!(fake.enabled_kinds().contains(&kind));
    let version = collector.library().version();
    let record = Written::new(kind, version).unwrap().set(COUNTER_KIND, 2).set(VALUE, 4096);
    fake.write(&record);
    let collected = collector.stop().unwrap();
    assert!(fake.unified_memory_counters().is_empty());
    let transfer = collected.records.iter().find_map(|record| match record {
        Record::UnifiedMemory(transfer) => Some((transfer.kind, transfer.value)),
        _ => None,
    });
    assert_eq!(transfer, Some((UnifiedMemoryKind::DEVICE_TO_HOST, 4096)));

    let two = [UnifiedMemoryKind::DEVICE_TO_HOST, UnifiedMemoryKind::GPU_PAGE_FAULT];
    let collector =
        start(&fake, &Config::new().add_kind_if_known(kind).unified_memory_counters(two));
    assert_eq!(fake.unified_memory_counters(), two);
    assert!(collector.missing_kinds().is_empty());
    drop(collector);
    assert!(fake.unified_memory_counters().is_empty());
}

#[test]
fn without_counters_of_managed_memory_their_kind_is_missing() {
    let fake = Fake::new();
    let kind = ActivityKind::UNIFIED_MEMORY_COUNTER;
    let refused = |config: Config, code: CuptiResult| {
        let error = Collector::start(&fake.library().unwrap(), &config.clone().add_kind(kind));
        let error = error.unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert_eq!(error.code(), Some(code.0));
        assert!(error.to_string().contains("UNIFIED_MEMORY_COUNTER"), "{error}");
        assert!(fake.unified_memory_counters().is_empty() && fake.enabled_kinds().is_empty());

        let mut collector = start(&fake, &config.add_kind_if_known(kind));
        assert!(!fake.enabled_kinds().contains(&kind));
        collector.pause().unwrap();
        collector.resume().unwrap();
        assert_eq!(collector.stop().unwrap().missing_kinds, [kind]);
    };
    refused(Config::new().unified_memory_counters([]), CuptiResult::NOT_READY);
    let unknown = [UnifiedMemoryKind::REMOTE_MAP, UnifiedMemoryKind(9)];
    refused(Config::new().unified_memory_counters(unknown), CuptiResult::INVALID_PARAMETER);
    let function = "cuptiActivityConfigureUnifiedMemoryCounter";
    for code in [28, 29, 30, 31].map(CuptiResult) {
        fake.fail(function, code, When::Nth(1));
        fake.fail(function, code, When::Nth(2));
        refused(Config::new(), code);
    }
}

#[test]
fn another_refusal_of_the_counters_ends_the_start() {
    let fake = Fake::new();
    let function = "cuptiActivityConfigureUnifiedMemoryCounter";
    fake.fail(function, CuptiResult::NOT_INITIALIZED, When::Once);
    let config = Config::new().add_kind_if_known(ActivityKind::UNIFIED_MEMORY_COUNTER);
    let error = Collector::start(&fake.library().unwrap(), &config).unwrap_err();
    assert!(error.to_string().contains(function) && !error.is_unsupported(), "{error}");
    assert!(!fake.is_subscribed());
    start(&fake, &config);
}

#[test]
fn settings_are_made_and_put_back() {
    let fake = Fake::new();
    let config = Config::new()
        .attribute(Attribute::DeviceBufferBytes, 8 << 20)
        .attribute(Attribute::DeviceBufferLimit, 4)
        .attribute(Attribute::DeviceBuffersReady, 2)
        .attribute(Attribute::DeviceBuffersPinned, 1)
        .attribute(Attribute::PerThreadBuffers, 0)
        .attribute(Attribute::DeviceBufferLimit, 8)
        .system_thread_ids(true)
        .flush_period(Duration::from_millis(250))
        .latency_timestamps(true);
    let before: Vec<_> = Attribute::ALL.map(|a| fake.attribute(a.id())).to_vec();
    let collector = start(&fake, &config);
    let set: Vec<_> =
        collector.attributes().iter().map(|s| (s.attribute.id(), s.before, s.set)).collect();
    let expected = [(0, 3_200_000, 8 << 20), (6, 3, 2), (8, 0, 1), (9, 1, 0), (2, 250, 8)];
    assert_eq!(set, expected);
    for (id, _, value) in expected {
        assert_eq!(fake.attribute(id), Some(value), "{id}");
    }
    assert_eq!(fake.attribute(5), Some(1), "our buffers come zeroed");
    let settings = fake.settings();
    assert!(settings.system_thread_ids && settings.latency_timestamps);
    assert_eq!(settings.flush_period_ms, 250);
    let collected = collector.stop().unwrap();
    assert_eq!(collected.attributes.len(), 5);
    assert_eq!(Attribute::ALL.map(|a| fake.attribute(a.id())).to_vec(), before);
    assert_eq!((fake.attribute(5), fake.settings()), (Some(0), Settings::default()));
}

#[test]
fn an_attribute_the_library_does_not_have_is_an_error_and_the_others_are_put_back() {
    let fake = Fake::builder().version(20).build(); // 12.2
    let config = Config::new()
        .attribute(Attribute::DeviceBufferLimit, 7)
        .attribute(Attribute::PerThreadBuffers, 1);
    let error = Collector::start(&fake.library().unwrap(), &config).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("each thread"), "{error}");
    assert_eq!(fake.attribute(2), Some(250));
}

#[test]
fn with_too_few_buffers_records_and_drops_make_up_all_launches() {
    // A kernel takes 208 to 216 bytes, so that a buffer of 64 KiB holds some 300.
    for version in [26, 28, 130_001] {
        for (most, launches) in [(0, 500), (1, 2_000), (3, 5_000)] {
            let fake = Fake::builder().version(version).build();
            let config = Config::new()
                .kinds([ActivityKind::CONCURRENT_KERNEL])
                .buffer_bytes(1)
                .buffers(2)
                .max_buffers(most);
            let collector = start(&fake, &config);
            // The buffers wait for the GPU, as after many launches in a row.
            fake.hold_buffers(true);
            for i in 0..launches {
                if i == launches - 10 {
                    fake.lose_timestamps();
                }
                fake.launch(Work::kernel(c"k"));
            }
            fake.hold_buffers(false);
            let collected = collector.stop().unwrap();
            let losses = collected.losses;
            let case = format!("{version}, {most} buffers: {losses:?}");
            let kept = kernels(&collected).len() as u64;
            assert_eq!(calls(&collected).len() as u64, launches, "{case}");
            assert_eq!(kept + losses.dropped_by_cupti + losses.refused_records, launches, "{case}");
            assert!(losses.refused_buffers > 0 && !fake.would_have_crashed(), "{case}");
            if version >= 27 {
                assert!(losses.dropped_by_cupti > 0 && losses.refused_records == 0, "{case}");
            } else {
                assert!(losses.dropped_by_cupti == 0 && losses.refused_records > 0, "{case}");
            }
            assert!(kept <= most as u64 * 65_536 / 208, "{case}");
        }
    }
}

#[test]
fn what_a_library_holds_comes_back_with_it() {
    let config = Config::new().buffer_bytes(1).buffers(0).max_buffers(2);
    for _ in 0..5 {
        let fake = Fake::new();
        let collector = start(&fake, &config);
        fake.launch(Work::kernel(c"k"));
        assert_eq!(collector.stop().unwrap().losses.refused_buffers, 0);
        // As of a call whose record comes late: for that the library asks for a buffer once more.
        fake.raw_record(ActivityKind::CONCURRENT_KERNEL, 208);
    }
}

#[test]
fn a_cap_that_suffices_refuses_nothing() {
    let fake = Fake::new();
    let config = Config::new().buffer_bytes(1).buffers(0).max_buffers(2);
    for _ in 0..3 {
        let collector = start(&fake, &config);
        for _ in 0..3_000 {
            fake.launch(Work::kernel(c"k"));
        }
        let collected = collector.stop().unwrap();
        assert_eq!(kernels(&collected).len(), 3_000);
        assert_eq!(collected.losses.refused_buffers, 0, "{:?}", collected.losses);
    }
}

#[test]
fn a_pause_collects_nothing_and_loses_nothing() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new());
    fake.launch(Work::kernel(c"first"));
    collector.pause().unwrap();
    collector.pause().unwrap();
    assert!(collector.is_paused() && fake.enabled_kinds().is_empty() && fake.is_subscribed());
    let between = clock::now_ns();
    fake.launch(Work::kernel(c"paused"));
    collector.resume().unwrap();
    collector.resume().unwrap();
    assert!(!collector.is_paused());
    fake.launch(Work::kernel(c"second"));
    fake.launch(Work::synchronize());
    let collected = collector.stop().unwrap();
    assert!(nothing_lost(&collected.losses), "{:?}", collected.losses);
    let names: Vec<_> =
        kernels(&collected).iter().map(|k| collected.records.name(k.name).unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    let calls = calls(&collected);
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.end_ns.is_some() && collected.was_on(call.start_ns)));
    assert!(!collected.was_on(between));
    let windows = &collected.windows_ns;
    assert_eq!(windows.len(), 2);
    assert_eq!((windows[0].0, windows[1].1), collected.window_ns);
    assert!(windows[0].1 <= between && between <= windows[1].0);
}

#[test]
fn a_collection_may_start_and_stop_paused() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new().start_paused(true));
    assert!(collector.is_paused() && fake.enabled_kinds().is_empty());
    // CUPTI makes launches of graphs slower from its first call on.
    assert!(!fake.is_recording());
    fake.launch(Work::kernel(c"too early"));
    let before = fake.flushes();
    collector.flush().unwrap();
    let early = [collector.drain().unwrap(), collector.snapshot().unwrap()];
    assert!(early.iter().all(|part| part.records.iter().next().is_none()));
    assert!(early.iter().all(|part| nothing_lost(&part.losses)));
    assert_eq!((fake.flushes(), fake.is_subscribed()), (before, false));
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"k"));
    collector.pause().unwrap();
    fake.launch(Work::kernel(c"too late"));
    let collected = collector.stop().unwrap();
    assert_eq!((kernels(&collected).len(), calls(&collected).len()), (1, 1));
    assert_eq!(collected.windows_ns.len(), 1);
    assert!(!fake.is_recording());

    let before = fake.flushes();
    let collected = start(&fake, &Config::new().start_paused(true)).stop().unwrap();
    assert!(collected.windows_ns.is_empty() && collected.records.iter().next().is_none());
    assert_eq!(fake.flushes(), before);
}

#[test]
fn cupti_may_be_attached_on_request_before_calls_are_logged() {
    let fake = Fake::new();
    let config = Config::new().calls_in_pauses(true).start_paused(true).attach_on_request(true);
    let mut collector = start(&fake, &config);
    assert!(!collector.is_attached() && !fake.is_subscribed());
    fake.launch(Work::kernel(c"before"));
    collector.attach().unwrap();
    assert!(collector.is_attached() && fake.is_subscribed() && fake.enabled_kinds().is_empty());
    fake.launch(Work::kernel(c"attached alone"));
    assert!(fake.enabled_callbacks().is_empty());
    collector.log_calls().unwrap();
    let callbacks = fake.enabled_callbacks().len();
    assert!(callbacks > 0 && collector.is_paused());
    collector.log_calls().unwrap();
    let logged = fake.launch(Work::kernel(c"logged"));
    collector.resume().unwrap();
    assert_eq!(fake.enabled_callbacks().len(), callbacks, "a resume enables the kinds alone");
    let within = fake.launch(Work::kernel(c"within"));
    collector.pause().unwrap();
    let collected = collector.stop().unwrap();
    let ids: Vec<u32> = calls(&collected).iter().map(|call| call.correlation_id).collect();
    assert_eq!((ids, kernels(&collected).len()), (vec![logged, within], 1));
    assert!(nothing_lost(&collected.losses));

    // The first resume attaches and logs, too; a stop needs neither.
    let mut collector = start(&fake, &config);
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"within"));
    let collected = collector.stop().unwrap();
    assert_eq!((calls(&collected).len(), kernels(&collected).len()), (1, 1));
    assert!(calls(&start(&fake, &config).stop().unwrap()).is_empty() && !fake.is_recording());
}

#[test]
fn another_tool_may_hold_cupti_until_the_first_resume() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new().start_paused(true));
    fake.fail("cuptiSubscribe", CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, When::Nth(1));
    assert!(collector.resume().unwrap_err().is_busy());
    assert!(collector.is_paused() && !fake.is_subscribed());
    fake.fail("cuptiActivityEnable", CuptiResult::OUT_OF_MEMORY, When::Nth(2));
    assert!(collector.resume().is_err());
    assert!(collector.is_paused() && fake.enabled_kinds().is_empty());
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"k"));
    let collected = collector.stop().unwrap();
    assert_eq!((kernels(&collected).len(), collected.windows_ns.len()), (1, 1));
    assert!(!fake.is_recording());
}

#[test]
fn a_failed_resume_leaves_it_paused() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new());
    collector.pause().unwrap();
    fake.fail("cuptiActivityEnable", CuptiResult::OUT_OF_MEMORY, When::Nth(3));
    assert!(collector.resume().unwrap_err().to_string().contains("cuptiActivityEnable"));
    assert!(collector.is_paused() && fake.enabled_kinds().is_empty());
    fake.launch(Work::kernel(c"paused"));
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"k"));
    let collected = collector.stop().unwrap();
    assert_eq!((kernels(&collected).len(), calls(&collected).len()), (1, 1));
}

#[test]
fn a_call_across_a_pause_is_no_captured_one() {
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new().graph_events(true));
    let (entered, wait) = std::sync::mpsc::channel();
    let (go_on, paused) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (fake, entered) = (&fake, entered);
        scope.spawn(move || {
            // The callback of the wait's enter is seen, that of its exit falls into the pause.
            fake.launch_around(&Work::synchronize(), || {
                entered.send(()).unwrap();
                paused.recv().unwrap();
            });
            entered.send(()).unwrap();
            paused.recv().unwrap();
            fake.add_node(&mut fake.graph(), &Work::kernel(c"made by a call that is not logged"));
            fake.capture(&Work::kernel(c"captured"));
        });
        wait.recv().unwrap();
        collector.pause().unwrap();
        go_on.send(()).unwrap();
        wait.recv().unwrap();
        collector.resume().unwrap();
        go_on.send(()).unwrap();
    });
    let collected = collector.stop().unwrap();
    let calls = calls(&collected);
    let seen: Vec<_> = calls.iter().map(|call| (call.end_ns.is_some(), call.captured)).collect();
    assert_eq!(seen, [(false, false), (true, true)]);
    let nodes: Vec<u32> = collected.graphs[0].events.iter().map(|event| event.call).collect();
    assert_eq!(nodes, [0, 0], "the graph and its node were made in no recorded call");
}

#[test]
fn the_switch_turns_at_the_end_of_a_start_and_at_the_beginning_of_a_stop() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new().profiler_switch(true));
    let launch = || _ = fake.launch(Work::kernel(c"outside"));
    fake.profiler_call(true, 3, || {});
    launch(); // a start that failed turns nothing
    fake.profiler_call(true, 0, launch);
    let counts = fake.launch(Work::kernel(c"inside"));
    fake.profiler_call(false, 0, launch);
    launch();
    let collected = collector.stop().unwrap();
    let calls = calls(&collected);
    let counted = calls.iter().filter(|call| collected.was_on(call.start_ns));
    assert_eq!(counted.map(|call| call.correlation_id).collect::<Vec<_>>(), [counts]);
    assert_eq!(calls.len(), 5);
}

#[test]
fn the_profiler_switch_bounds_what_counts() {
    let fake = Fake::new();
    let config = Config::new().profiler_switch(true).buffer_bytes(1);
    let mut collector = start(&fake, &config);
    // Enough for some buffers to come back before the switch is on.
    for _ in 0..1_000 {
        fake.launch(Work::kernel(c"warm-up"));
    }
    fake.profiler_start();
    fake.launch(Work::kernel(c"one"));
    fake.launch(Work::kernel(c"two"));
    fake.profiler_stop();
    fake.launch(Work::kernel(c"between"));
    collector.pause().unwrap();
    fake.profiler_start();
    fake.launch(Work::kernel(c"on, but paused"));
    collector.resume().unwrap();
    fake.launch(Work::kernel(c"three"));
    let collected = collector.stop().unwrap();

    assert_eq!(collected.windows_ns.len(), 2, "{:?}", collected.windows_ns);
    let counted: Vec<u32> = calls(&collected)
        .iter()
        .filter(|call| collected.was_on(call.start_ns))
        .map(|call| call.correlation_id)
        .collect();
    let of_counted = |kernel: &&cupti::Kernel| counted.contains(&kernel.correlation_id);
    let kernels = kernels(&collected);
    let names: Vec<_> = kernels
        .iter()
        .filter(of_counted)
        .map(|kernel| collected.records.name(kernel.name).unwrap())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
    let thrown_away = collected.losses.before_switch;
    assert!((600..1_000).contains(&thrown_away), "{thrown_away}");
    assert_eq!(kernels.len() as u64, 1_004 - thrown_away, "what is kept has its call");
    assert!(!fake.is_recording());
}

#[test]
fn the_handler_of_the_switch_runs_in_pauses_and_may_resume() {
    use std::sync::{Arc, Mutex};
    let fake = Fake::new();
    let collector = Arc::new(Mutex::new(None::<Collector>));
    let turned = collector.clone();
    let config = Config::new().start_paused(true).on_profiler_switch(move |on| {
        if on {
            turned.lock().unwrap().as_mut().unwrap().resume().unwrap();
        }
    });
    *collector.lock().unwrap() = Some(start(&fake, &config));
    fake.launch(Work::kernel(c"before"));
    fake.profiler_call(true, 3, || {});
    fake.launch(Work::kernel(c"after a start that failed"));
    fake.profiler_start();
    fake.launch(Work::kernel(c"first"));
    fake.profiler_stop();
    fake.launch(Work::kernel(c"second"));
    let collected = collector.lock().unwrap().take().unwrap().stop().unwrap();
    let names: Vec<_> = kernels(&collected)
        .iter()
        .map(|k| collected.records.name(k.name).unwrap().to_owned())
        .collect();
    // The handler decides what a stop does.
    assert_eq!(names, ["first", "second"]);
    assert_eq!((collected.losses.before_switch, collected.windows_ns.len()), (0, 1));
}

/// Turns callbacks off while the thread is in a call, and on after it.
fn turn_within_a_call(fake: &Fake, collector: &mut Collector, [off, on]: [fn(&mut Collector); 2]) {
    FakeCall::driver("cuStreamSynchronize", None).run(|_| {
        off(collector);
        0
    });
    fake.launch(Work::kernel(c"while it is off"));
    on(collector);
}

/// CUPTI 13 never sees a call return if its callback is disabled meanwhile: the calls after it get its correlation id, and after
/// three of them none of that thread is called back. So callbacks stay enabled.
#[test]
fn threads_that_are_in_calls_at_a_pause_are_seen_after_it() {
    let pauses: [fn(&mut Collector); 2] = [|c| c.pause().unwrap(), |c| c.resume().unwrap()];
    for config in [Config::new(), Config::new().on_profiler_switch(|_| {})] {
        let fake = Fake::new();
        let mut collector = start(&fake, &config);
        for _ in 0..5 {
            turn_within_a_call(&fake, &mut collector, pauses);
        }
        let launched: Vec<u32> = (0..3).map(|_| fake.launch(Work::kernel(c"k"))).collect();
        let collected = collector.stop().unwrap();
        let calls = calls(&collected);
        let launches = calls.iter().filter(|call| call.function.class() == CallClass::KernelLaunch);
        let seen: Vec<u32> = launches.map(|call| call.correlation_id).collect();
        assert_eq!(seen, launched, "{config:?}");
        assert_eq!(launched[2], launched[0] + 2, "{config:?}");
        assert!(!fake.is_recording());
    }
}

/// Pauses begin and end beside threads that launch all the time.
#[test]
fn calls_beside_pauses_are_logged_whole() {
    const PERIODS: u32 = 100;
    const THREADS: usize = 4;
    let fake = Fake::new();
    let mut collector = start(&fake, &Config::new().start_paused(true));
    let is_over = AtomicBool::new(false);
    // The number of the time in which calls are logged for sure, or 0.
    let counted = AtomicU32::new(0);
    // Threads that have launched all of a round in such a time.
    let came = AtomicUsize::new(0);
    let launched: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let serve = || {
            let mut launched = Vec::new();
            while !is_over.load(Ordering::Acquire) {
                let period = counted.load(Ordering::Acquire);
                let ids = (0..12).map(|_| fake.launch(Work::kernel(c"k")));
                let ids: Vec<u32> = ids.collect();
                fake.launch(Work::synchronize());
                if period != 0 && period == counted.load(Ordering::Acquire) {
                    came.fetch_add(usize::from(launched.is_empty()), Ordering::Relaxed);
                    launched.extend(ids);
                }
            }
            launched
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(serve)).collect();
        // More where the machine did not run one of them meanwhile.
        for period in
            (1..).take_while(|period| *period <= PERIODS || came.load(Ordering::Relaxed) < THREADS)
        {
            collector.resume().unwrap();
            std::thread::sleep(Duration::from_micros(300));
            counted.store(period, Ordering::Release);
            std::thread::sleep(Duration::from_millis(1));
            counted.store(0, Ordering::Release);
            collector.pause().unwrap();
        }
        is_over.store(true, Ordering::Release);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let collected = collector.stop().unwrap();
    let logged: HashSet<u32> = calls(&collected).iter().map(|call| call.correlation_id).collect();
    for launched in launched {
        assert!(!launched.is_empty());
        let missing = launched.iter().filter(|id| !logged.contains(id)).count();
        assert_eq!(missing, 0, "of {}", launched.len());
    }
}

#[test]
fn call_that_outlives_its_collection_hides_no_call_of_the_next() {
    let fake = Fake::new();
    let config = Config::new();
    let mut first = Some(start(&fake, &config));
    let mut second = None;
    FakeCall::driver("cuStreamSynchronize", None).run(|_| {
        first.take().unwrap().stop().unwrap();
        second.insert(start(&fake, &config)).pause().unwrap();
        0
    });
    let mut second = second.unwrap();
    second.resume().unwrap();
    let launched: Vec<u32> = (0..3).map(|_| fake.launch(Work::kernel(c"k"))).collect();
    let calls = calls(&second.stop().unwrap());
    let launches = calls.iter().filter(|call| call.function.class() == CallClass::KernelLaunch);
    assert_eq!(launches.map(|call| call.correlation_id).collect::<Vec<_>>(), launched);
    assert_eq!(launched.iter().collect::<HashSet<_>>().len(), 3);
}

#[test]
fn calls_that_cannot_be_logged_are_not_said_to_be() {
    let fake = Fake::new();
    let config = Config::new().calls_in_pauses(true).start_paused(true).attach_on_request(true);
    let mut collector = start(&fake, &config);
    collector.attach().unwrap();
    fake.fail("cuptiEnableCallback", CuptiResult::INSUFFICIENT_PRIVILEGES, When::Once);
    assert!(collector.log_calls().unwrap_err().is_permission());
    assert!(!collector.logs_calls());
    collector.log_calls().unwrap();
    assert!(collector.logs_calls());
}

#[test]
fn a_switch_that_is_never_turned_counts_nothing() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new().profiler_switch(true));
    fake.launch(Work::kernel(c"k"));
    let collected = collector.stop().unwrap();
    assert!(collected.windows_ns.is_empty());
    assert_eq!((collected.losses.before_switch, kernels(&collected).len()), (1, 0));
}

#[test]
fn calls_of_the_runtime_api_stand_beside_the_drivers() {
    let fake = Fake::new();
    let config = Config::new().runtime_calls(true);
    let collector = start(&fake, &config);
    cupti::calls::set_word(9);
    let id = fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
    cupti::calls::set_word(0);
    let direct = fake.launch(Work::kernel(c"direct"));
    let collected = collector.stop().unwrap();
    let driver = calls(&collected);
    assert_eq!(driver.iter().map(|c| c.correlation_id).collect::<Vec<_>>(), [id, direct]);
    let [thread] = &collected.runtime_calls[..] else { panic!("{:?}", collected.runtime_calls) };
    assert_eq!(thread.thread_id, collected.calls[0].thread_id);
    let [call] = &thread.calls[..] else { panic!("{thread:?}") };
    assert_eq!((call.function.name(), call.correlation_id, call.word), ("cudaLaunchKernel", id, 9));
    assert!(call.start_ns <= driver[0].start_ns && driver[0].end_ns <= call.end_ns);

    let collected = {
        let collector = start(&fake, &Config::new());
        fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
        collector.stop().unwrap()
    };
    assert!(collected.runtime_calls.is_empty(), "not asked for");
}

#[test]
fn records_join_their_calls_whenever_they_arrive() {
    let fake = Fake::new();
    fake.next_correlation_id(u32::MAX - 1);
    let collector = start(&fake, &Config::new());
    let arrivals =
        [Arrival::AfterCall, Arrival::BeforeCall, Arrival::WithinCall, Arrival::AfterCall];
    let launch = |&arrival| fake.launch_with(&Work::kernel(c"k"), arrival);
    let ids: Vec<u32> = arrivals.iter().map(launch).collect();
    assert_eq!(ids, [u32::MAX - 1, u32::MAX, 0, 1], "ids wrap");
    let collected = collector.stop().unwrap();
    let called: Vec<u32> = calls(&collected).iter().map(|call| call.correlation_id).collect();
    let recorded: Vec<u32> = kernels(&collected).iter().map(|k| k.correlation_id).collect();
    assert_eq!((called, recorded), (ids.clone(), ids));
}

#[test]
fn a_buffer_cut_short_or_of_odd_lengths_loses_only_what_it_must() {
    let fake = Fake::new();
    let collector = start(&fake, &Config::new());
    fake.launch(Work::kernel(c"whole"));
    fake.launch(Work::kernel(c"cut"));
    fake.cut_next_buffer(100);
    collector.flush().unwrap();
    fake.launch(Work::kernel(c"before"));
    fake.raw_record(ActivityKind::MEMSET, 101);
    fake.launch(Work::kernel(c"at an odd address"));
    let collected = collector.stop().unwrap();
    let losses = collected.losses;
    // The kernel that was cut has a length of its own, which no other kernel has.
    assert_eq!((losses.irregular, losses.unreadable_bytes), (1, 0), "{losses:?}");
    let names: Vec<_> =
        kernels(&collected).iter().map(|k| collected.records.name(k.name).unwrap()).collect();
    assert_eq!(names, ["whole", "before", "at an odd address"]);
}

#[test]
fn every_function_may_fail_and_the_next_collection_works() {
    for function in Fake::FUNCTIONS {
        for when in [When::Always, When::Once, When::Nth(2)] {
            let fake = Fake::new();
            let Ok(library) = fake.library() else { panic!("it opens") };
            fake.fail(function, CuptiResult::UNKNOWN, when);
            let config = Config::new()
                .add_kind(ActivityKind::DRIVER)
                .add_kind(ActivityKind::RUNTIME)
                .system_thread_ids(true)
                .flush_period(Duration::from_millis(5))
                .latency_timestamps(true)
                .graph_events(true)
                .runtime_calls(true)
                .add_kind_if_known(ActivityKind::UNIFIED_MEMORY_COUNTER)
                .attribute(Attribute::DeviceBufferLimit, 9);
            if let Ok(mut collector) = Collector::start(&library, &config) {
                let mut graph = fake.graph();
                fake.capture_into(&mut graph, &Work::kernel(c"node"));
                let exec = fake.instantiate(&graph);
                fake.launch_exec(&exec);
                fake.destroy_exec(exec);
                fake.launch(Work::kernel(c"k"));
                let _ = collector.flush();
                let _ = collector.pause();
                let _ = collector.resume();
                let _ = collector.stop();
            }
            // What cannot be taken back because taking it back fails is all that may be left.
            let stays = function == "cuptiActivityDisable";
            assert!(stays || fake.enabled_kinds().is_empty(), "{function} {when:?}");
            drop(fake);
            let fake = Fake::new();
            let collector = start(&fake, &Config::new());
            fake.launch(Work::kernel(c"k"));
            let collected = collector.stop().unwrap();
            assert!(nothing_lost(&collected.losses), "{function} {when:?}");
            assert_eq!((kernels(&collected).len(), calls(&collected).len()), (1, 1));
        }
    }
}

#[test]
fn calls_and_graphs_of_pauses_are_logged_where_asked() {
    let fake = Fake::new();
    let config = Config::new().graph_events(true).calls_in_pauses(true).start_paused(true);
    let mut collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    assert!(collector.is_paused() && fake.enabled_kinds().is_empty());
    let before = fake.launch(Work::kernel(c"before"));
    let mut graph = fake.graph();
    fake.capture_into(&mut graph, &Work::kernel(c"node"));
    let since_ns = clock::now_ns();
    let exec = fake.instantiate(&graph);
    assert!(cupti::graphs_last_made_ns() >= since_ns, "the profiler knows when graphs are made");
    let callbacks = fake.enabled_callbacks().len();

    // A call that is under way while the kinds are enabled ends in the log, too.
    let mut within = 0;
    fake.call_around("cuStreamSynchronize", || {
        collector.resume().unwrap();
        within = fake.launch(Work::kernel(c"within"));
    });
    let replay = fake.launch_exec(&exec);
    assert_eq!(fake.enabled_callbacks().len(), callbacks, "a resume enables the kinds alone");
    collector.pause().unwrap();
    assert!(fake.enabled_kinds().is_empty());
    let after = fake.launch(Work::kernel(c"after"));
    let enabled = collector.enabled_ns(clock::now_ns());
    let collected = collector.stop().unwrap();

    assert_eq!((enabled.len(), collected.windows_ns.len()), (1, 1));
    assert!(enabled[0].0 <= collected.windows_ns[0].0 && enabled[0].1 >= collected.windows_ns[0].1);
    let calls: Vec<_> = collected.calls.iter().flat_map(|thread| &thread.calls).collect();
    assert!(calls.iter().all(|call| call.end_ns.is_some()), "{calls:?}");
    let ids: Vec<u32> = calls.iter().map(|call| call.correlation_id).collect();
    assert!([before, within, replay, after].iter().all(|id| ids.contains(id)), "{ids:?}");
    let kernels: Vec<u32> = collected
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Kernel(kernel) => Some(kernel.correlation_id),
            _ => None,
        })
        .collect();
    assert_eq!(kernels, [within, replay], "kernels of windows alone");
    let events: usize = collected.graphs.iter().map(|thread| thread.events.len()).sum();
    assert!(events >= 4, "graph events of the pause: {events}");
}
