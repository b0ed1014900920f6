//! The collector against the fake: what a program does comes back, and every fault says what happened.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::HashMap;
use std::time::Duration;

use cupti::sys::abi::CuptiResult;
use cupti::{
    ActivityKind, Call, CallClass, Collected, Collector, Config, CopyKind, Losses, Record,
    SynchronizationKind, Warning, calls, clock,
};
use fake_cupti::{Fake, Work};

fn collect(fake: &Fake, program: impl FnOnce()) -> Collected {
    let collector = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
    program();
    collector.stop().unwrap()
}

fn all_calls(collected: &Collected) -> Vec<Call> {
    collected.calls.iter().flat_map(|thread| thread.calls.clone()).collect()
}

fn kernels(collected: &Collected) -> Vec<cupti::Kernel> {
    let kernel = |record| {
        if let Record::Kernel(kernel) = record { Some(*kernel) } else { None }
    };
    collected.records.iter().filter_map(kernel).collect()
}

fn nothing_lost(losses: &Losses) -> bool {
    let mut losses = *losses;
    losses.buffers = 0;
    losses == Losses::default()
}

#[test]
fn every_kind_of_work_comes_back_with_its_call() {
    let fake = Fake::new();
    let before = clock::now_ns();
    let collected = collect(&fake, || {
        calls::set_word(42);
        fake.launch(Work::kernel(c"axpy").on_stream(13).taking_ns(5_000));
        fake.launch(Work::host_to_device(4096));
        fake.launch(Work::device_to_host(512));
        fake.launch(Work::memset(100));
        fake.launch(Work::synchronize());
        calls::set_word(0);
        fake.call_only("cuMemAlloc_v2", 0);
    });
    let after = clock::now_ns();

    assert!(nothing_lost(&collected.losses), "{:?}", collected.losses);
    assert!(before <= collected.window_ns.0 && collected.window_ns.0 < collected.window_ns.1);
    assert!(collected.window_ns.1 <= after);

    let calls = all_calls(&collected);
    let by_id: HashMap<u32, Call> = calls.iter().map(|call| (call.correlation_id, *call)).collect();
    assert_eq!((calls.len(), by_id.len()), (6, 6));
    assert_eq!(calls.iter().map(|call| call.word).collect::<Vec<_>>(), [42, 42, 42, 42, 42, 0]);
    assert_eq!(calls[5].function.name(), "cuMemAlloc_v2");
    assert!(calls.iter().all(|call| call.result == 0 && !call.captured && !call.empty));
    assert!(calls.iter().all(|call| call.start_ns <= call.end_ns.unwrap()));

    let mut seen = Vec::new();
    for record in &collected.records {
        let (class, id, start) = match record {
            Record::Kernel(k) => {
                assert_eq!(collected.records.name(k.name), Some("axpy"));
                assert_eq!((k.place.stream, k.grid, k.block), (13, [128, 1, 1], [256, 1, 1]));
                assert_eq!((k.span.end_ns - k.span.start_ns, k.registers_per_thread), (5_000, 32));
                assert_eq!(k.graph_node, None);
                (CallClass::KernelLaunch, k.correlation_id, k.span.start_ns)
            }
            Record::Memcpy(m) => {
                let expected = match m.kind {
                    CopyKind::HostToDevice => (4096, "pageable", "device"),
                    CopyKind::DeviceToHost => (512, "device", "pageable"),
                    other => panic!("{other}"),
                };
                assert_eq!(
                    (m.bytes, &*m.source.to_string(), &*m.destination.to_string()),
                    expected
                );
                assert!(m.asynchronous && m.peers.is_none());
                (CallClass::Memcpy, m.correlation_id, m.span.start_ns)
            }
            Record::Memset(m) => {
                assert_eq!((m.bytes, m.asynchronous), (100, true));
                (CallClass::Memset, m.correlation_id, m.span.start_ns)
            }
            Record::Synchronization(s) => {
                assert_eq!(
                    (s.kind, s.stream, s.event),
                    (SynchronizationKind::Stream, Some(7), None)
                );
                (CallClass::Synchronize, s.correlation_id, s.span.start_ns)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(by_id[&id].function.class(), class);
        assert!(
            collected.clock.monotonic_ns(start) >= by_id[&id].start_ns,
            "work starts after its call did"
        );
        seen.push(class);
    }
    assert_eq!(seen.len(), 5);
    assert!(fake.enabled_kinds().is_empty(), "all is off after the stop");
}

#[test]
fn each_thread_has_its_own_word_and_log() {
    let fake = Fake::new();
    let collected = collect(&fake, || {
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let fake = &fake;
                scope.spawn(move || {
                    for i in 0..3_000 {
                        calls::set_word(thread << 32 | i);
                        fake.launch(Work::kernel(c"k"));
                    }
                });
            }
        });
    });
    assert!(nothing_lost(&collected.losses), "{:?}", collected.losses);
    assert_eq!(kernels(&collected).len(), 12_000);
    assert_eq!(collected.calls.len(), 4);
    for thread in &collected.calls {
        assert_eq!(thread.calls.len(), 3_000);
        let owner = thread.calls[0].word >> 32;
        assert!(
            thread.calls.iter().enumerate().all(|(i, call)| call.word == owner << 32 | i as u64)
        );
    }
    let ids: std::collections::HashSet<u32> = collected.calls.iter().map(|t| t.thread_id).collect();
    assert_eq!(ids.len(), 4);
}

#[test]
fn every_version_from_12_0_to_13_5_reads_the_same() {
    let mut strides = Vec::new();
    for version in [18, 20, 22, 24, 26, 28, 130_001, 130_101, 130_301, 130_401, 130_500] {
        let fake = Fake::builder().version(version).build();
        let collected = collect(&fake, || {
            fake.launch(Work::kernel(c"gemm").taking_ns(777));
            fake.launch(Work::kernel(c"relu"));
            fake.launch(Work::host_to_device(10));
            fake.launch(Work::memset(20));
            fake.launch(Work::synchronize());
        });
        let kernels = kernels(&collected);
        assert_eq!(collected.records.name(kernels[0].name), Some("gemm"), "{version}");
        assert_eq!(collected.records.name(kernels[1].name), Some("relu"), "{version}");
        assert_eq!(kernels[0].span.end_ns - kernels[0].span.start_ns, 777);
        assert_eq!(collected.records.iter().count(), 5);
        assert!(nothing_lost(&collected.losses), "{version}: {:?}", collected.losses);
        strides.push(
            collected
                .records
                .strides()
                .find(|(k, _)| *k == ActivityKind::CONCURRENT_KERNEL)
                .unwrap()
                .1,
        );
    }
    assert_eq!(strides, [208, 208, 208, 208, 208, 208, 216, 224, 232, 248, 248]);
}

#[test]
fn another_subscriber_is_named() {
    let fake = Fake::builder().held_by("Nsight Compute").build();
    let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
    assert!(error.is_busy() && !error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("Nsight Compute"), "{error}");
    drop(fake);

    let fake = Fake::builder().version(26).held_by("anyone").build();
    let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
    assert!(error.is_busy(), "12.8 cannot tell who it is: {error}");
    assert!(!error.to_string().contains("anyone"));
}

#[test]
fn second_collector_is_refused_and_the_first_continues() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let first = Collector::start(&library, &Config::new()).unwrap();
    let error = Collector::start(&library, &Config::new()).unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("already collects"), "{error}");
    fake.launch(Work::kernel(c"k"));
    assert_eq!(kernels(&first.stop().unwrap()).len(), 1);
    let second = Collector::start(&library, &Config::new()).unwrap();
    assert_eq!(kernels(&second.stop().unwrap()).len(), 0);
}

#[test]
fn a_failed_start_puts_everything_back() {
    for function in [
        "cuptiSubscribe",
        "cuptiGetTimestamp",
        "cuptiActivitySetAttribute",
        "cuptiActivityRegisterCallbacks",
        "cuptiEnableCallback",
        "cuptiActivityEnable",
    ] {
        let fake = Fake::builder().fault(function, CuptiResult::INSUFFICIENT_PRIVILEGES).build();
        let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
        assert!(error.is_permission(), "{function}: {error}");
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!(error.code(), Some(35));
        assert!(fake.enabled_kinds().is_empty(), "{function}");
        drop(fake);
        let fake = Fake::new();
        assert_eq!(all_calls(&collect(&fake, || _ = fake.launch(Work::kernel(c"k")))).len(), 1);
    }
}

#[test]
fn unusable_libraries_give_a_reason() {
    let error = Fake::builder().version(17).build().library().unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("older than CUPTI 12.0"),
        "{error}"
    );
    assert!(error.to_string().contains("API version 17"), "{error}");

    // The first 13.0 is what some tools bring along: that they hold it comes first.
    let fake = Fake::builder().version(130_000).held_by("a tool").build();
    let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
    assert!(error.is_busy() && !error.is_unavailable(), "{error}");
    drop(fake);
    let fake = Fake::builder().version(130_000).build();
    let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("deadlocks"), "{error}");
    assert!(!fake.is_subscribed());
    drop(fake);

    let error = Fake::builder()
        .fault("cuptiGetVersion", CuptiResult::UNKNOWN)
        .build()
        .library()
        .unwrap_err();
    assert!(
        error.to_string().contains("cuptiGetVersion failed: CUPTI error UNKNOWN (999)"),
        "{error}"
    );
    let fake = Fake::builder().fault("cuptiSubscribe", CuptiResult::NOT_INITIALIZED).build();
    let error = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("newer than the driver"),
        "{error}"
    );
}

#[test]
fn cuptis_clock_is_brought_to_ours() {
    for offset in [5_000_000_000, -5_000_000_000, 0] {
        let fake = Fake::builder().clock_offset(offset).build();
        let before = clock::now_ns();
        let collected = collect(&fake, || _ = fake.launch(Work::kernel(c"k")));
        let after = clock::now_ns();
        assert!(
            collected.clock.start.offset_ns.abs_diff(offset) < 100_000,
            "{:?}",
            collected.clock
        );
        assert!(collected.clock.stop.offset_ns.abs_diff(offset) < 100_000, "{:?}", collected.clock);
        let start = collected.clock.monotonic_ns(kernels(&collected)[0].span.start_ns);
        assert!((before..after + 100_000).contains(&start), "{start} in {before}..{after}");
    }
}

#[test]
fn calls_without_a_record_have_a_reason() {
    let fake = Fake::new();
    let collected = collect(&fake, || {
        fake.capture(&Work::kernel(c"captured"));
        fake.launch(Work::host_to_device(0));
        fake.launch(Work::memset(0));
        fake.call_only("cuLaunchKernel", 1);
        fake.launch_graph(&[Work::kernel(c"node 0"), Work::memset(8), Work::kernel(c"node 1")]);
    });
    let calls = all_calls(&collected);
    let flags: Vec<_> = calls.iter().map(|call| (call.captured, call.empty, call.result)).collect();
    assert_eq!(
        flags,
        [
            (true, false, 0),
            (false, true, 0),
            (false, true, 0),
            (false, false, 1),
            (false, false, 0)
        ]
    );
    assert_eq!(calls[4].function.class(), CallClass::GraphLaunch);
    let nodes = kernels(&collected);
    assert_eq!(nodes.len(), 2);
    assert!(nodes.iter().all(|kernel| kernel.correlation_id == calls[4].correlation_id));
}

#[test]
fn losses_are_counted() {
    let fake = Fake::new();
    let collected = collect(&fake, || {
        fake.drop_records(17);
        fake.launch(Work::kernel(c"whole"));
        fake.raw_record(ActivityKind::CONCURRENT_KERNEL, 100);
        fake.launch(Work::kernel(c"after"));
        fake.raw_record(ActivityKind(99), 128);
        fake.launch(Work::kernel(c"behind an unknown kind"));
    });
    assert_eq!(collected.losses.dropped_by_cupti, 17);
    assert_eq!(collected.losses.irregular, 1);
    // CUPTI's iterator stops at a kind it does not know; the bytes from the record before it on are lost to it.
    assert!(collected.losses.unreadable_bytes >= 128 + 216, "{:?}", collected.losses);
    assert_eq!(collected.records.name(kernels(&collected)[0].name), Some("whole"));
}

/// A length that CUPTI does not tell is guessed from records of the same kind; what lies behind is not taken for a pointer.
#[test]
fn a_record_before_an_unknown_kind_has_no_pointers() {
    let fake = Fake::new();
    let collected = collect(&fake, || {
        fake.raw_record(ActivityKind::CONCURRENT_KERNEL, 390);
        // Shorter than its name's offset: the next record's kind stands where the name would.
        fake.raw_record(ActivityKind::CONCURRENT_KERNEL, 106);
        fake.raw_record(ActivityKind(63), 510);
    });
    assert_eq!(collected.losses.unreadable_bytes, 106 + 510 - 390);
    assert_eq!(collected.records.names().count(), 0);
}

#[test]
fn records_beyond_the_memory_limit_are_counted_not_kept() {
    let fake = Fake::new();
    let config = Config::new().buffer_bytes(1).memory_limit(200_000).buffers(2);
    let collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    for _ in 0..2_000 {
        fake.launch(Work::kernel(c"k"));
    }
    let collected = collector.stop().unwrap();
    let kept = kernels(&collected).len() as u64;
    assert_eq!(kept + collected.losses.over_memory_limit, 2_000);
    assert!((500..1_000).contains(&kept), "{kept} of 216 bytes");
    assert_eq!(all_calls(&collected).len(), 2_000);
}

#[test]
fn a_stop_waits_for_the_gpu() {
    let fake = Fake::new();
    let config = Config::new().drain_timeout(Duration::MAX);
    let collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    fake.launch(Work::kernel(c"long"));
    fake.hold_buffers(true);
    collector.flush().unwrap();
    let collected = std::thread::scope(|scope| {
        let stop = scope.spawn(|| collector.stop().unwrap());
        let flushes = fake.flushes();
        while fake.flushes() < flushes + 2 {
            std::thread::yield_now();
        }
        assert!(!stop.is_finished());
        fake.hold_buffers(false);
        stop.join().unwrap()
    });
    assert_eq!((kernels(&collected).len(), collected.losses.unfinished_buffers), (1, 0));
}

#[test]
fn a_wait_for_the_gpu_may_have_no_limit() {
    let fake = Fake::new();
    let config = Config::new().drain_timeout(Duration::MAX);
    let mut collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    fake.busy_for(Duration::from_millis(20));
    fake.launch(Work::kernel(c"k"));
    assert_eq!(collector.wait_idle().unwrap(), 0);
    collector.pause().unwrap();
    collector.resume().unwrap();
    let collected = collector.stop().unwrap();
    assert_eq!((kernels(&collected).len(), collected.losses.unfinished_buffers), (1, 0));
}

#[test]
fn stop_gives_up_after_its_timeout_and_reports_it() {
    let fake = Fake::new();
    let config = Config::new().drain_timeout(Duration::from_millis(50));
    let collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    fake.launch(Work::kernel(c"endless"));
    fake.busy_for(Duration::from_secs(3600));
    let collected = collector.stop().unwrap();
    assert_eq!(collected.losses.unfinished_buffers, 1);
}

/// As under a load that CUPTI cannot keep up with.
#[test]
fn stop_and_pause_end_though_no_flush_returns() {
    let fake = Fake::new();
    let config = Config::new().drain_timeout(Duration::from_millis(50));
    let mut collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    fake.launch(Work::kernel(c"not handed over"));
    fake.flush_takes(Duration::from_secs(3600));
    collector.pause().unwrap();
    collector.resume().unwrap();
    let collected = collector.stop().unwrap();
    assert!(collected.losses.unfinished_buffers >= 1 && kernels(&collected).is_empty());
    assert!(!fake.is_recording());
    drop(fake);
    let fake = Fake::new();
    assert_eq!(all_calls(&collect(&fake, || _ = fake.launch(Work::kernel(c"k")))).len(), 1);
}

#[test]
fn a_failed_flush_ends_the_collection_all_the_same() {
    let fake = Fake::builder().fault("cuptiActivityFlushAll", CuptiResult::UNKNOWN).build();
    let collector = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
    assert!(collector.stop().unwrap_err().to_string().contains("cuptiActivityFlushAll"));
    assert!(!fake.is_recording());
    drop(fake);
    let fake = Fake::new();
    assert_eq!(all_calls(&collect(&fake, || _ = fake.launch(Work::kernel(c"k")))).len(), 1);
}

#[test]
fn dropping_a_collector_turns_everything_off() {
    let fake = Fake::new();
    let collector = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
    fake.launch(Work::kernel(c"lost on purpose"));
    drop(collector);
    assert!(fake.enabled_kinds().is_empty());
    assert_eq!(kernels(&collect(&fake, || _ = fake.launch(Work::kernel(c"k")))).len(), 1);
}

#[test]
fn fifty_cycles_lose_nothing_and_keep_no_old_call() {
    let fake = Fake::new();
    for cycle in 0..50 {
        let collected = collect(&fake, || {
            for _ in 0..100 {
                fake.launch(Work::kernel(c"k"));
            }
            fake.launch(Work::synchronize());
        });
        assert_eq!(
            (kernels(&collected).len(), all_calls(&collected).len()),
            (100, 101),
            "cycle {cycle}"
        );
        assert!(nothing_lost(&collected.losses), "cycle {cycle}: {:?}", collected.losses);
    }
}

#[test]
fn many_small_buffers_and_a_dry_pool_lose_nothing() {
    let fake = Fake::new();
    let config = Config::new().buffer_bytes(1).buffers(0);
    let collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    for _ in 0..5_000 {
        fake.launch(Work::kernel(c"k"));
    }
    let collected = collector.stop().unwrap();
    assert_eq!(kernels(&collected).len(), 5_000);
    assert!(collected.losses.buffers >= 5_000 * 216 / 65_536, "{:?}", collected.losses);
    assert!(collected.losses.pool_misses >= 1);
}

#[test]
fn a_forked_child_never_touches_cupti() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let collector = Collector::start(&library, &Config::new()).unwrap();
    // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |error: cupti::Error| error.to_string().contains("forked");
        let ok = collector.flush().is_err_and(forked)
            && Collector::start(&library, &Config::new()).is_err_and(forked)
            && collector.stop().is_err_and(forked);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: `child` is our child and `status` a live int.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child saw what it should");
    fake.launch(Work::kernel(c"k"));
    assert_eq!(kernels(&collector.stop().unwrap()).len(), 1);
}

#[test]
fn opening_without_a_gpu_names_the_missing_part() {
    match cupti::Library::open() {
        Ok(library) => assert!(!library.driver().devices.is_empty()),
        Err(error) => {
            assert!(error.is_unavailable(), "{error}");
            assert!(
                error.to_string().contains("driver") || error.to_string().contains("libcupti"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_cupti_of_an_unknown_major_version_is_refused() {
    for version in [140_000, 150_203] {
        let fake = Fake::builder().version(version).build();
        let error = fake.library().unwrap_err();
        let text = error.to_string();
        assert!(error.is_unavailable(), "{text}");
        for part in [&version.to_string(), "supports CUPTI 12 and 13", "update cupti-rs"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_cupti_of_an_unknown_minor_version_is_used_with_a_warning_and_no_pointer_of_another_layout_followed()
 {
    let fake = Fake::builder().version(130_600).build();
    let library = fake.library().unwrap();
    let is_warning = |warning: &Warning| matches!(warning, Warning::NewerThanKnown { version } if version.0 == 130_600);
    assert!(library.warnings().iter().any(is_warning), "{:?}", library.warnings());
    let collector = Collector::start(&library, &Config::new()).unwrap();
    fake.launch(Work::kernel(c"known"));
    fake.raw_record(ActivityKind::CONCURRENT_KERNEL, 96);
    let collected = collector.stop().unwrap();
    let names: Vec<_> = collected.records.names().map(|(_, name)| name.to_owned()).collect();
    assert_eq!(names, ["known"]);
    assert_eq!(collected.losses.irregular, 1, "the short one, once");
}
