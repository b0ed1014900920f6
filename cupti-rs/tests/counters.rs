//! Counters over ranges, with the fake: passes, levels, and what goes wrong.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::time::Duration;

use cupti::counters::{CounterData, Measured, PmSampler, RangeProfiler, Set, utilization};
use cupti::sys::abi::CuptiResult;
use cupti::{Collector, Config, Error, clock};
use fake_cupti::{Fake, When};

fn profiler(fake: &Fake, metrics: &[&str]) -> RangeProfiler {
    let library = fake.library().unwrap();
    RangeProfiler::builder(&library).metrics(metrics.iter().copied()).build().unwrap()
}

fn value(measured: &Measured, range: &str, metric: &str) -> Option<f64> {
    measured.range(range).and_then(|range| range.value(metric))
}

#[test]
fn one_pass_runs_the_work_once() {
    let fake = Fake::new();
    let profiler = profiler(&fake, &["fake__0.sum"]);
    assert!(!fake.counts(), "the counters are taken for a measurement alone");
    let (answer, measured) = profiler
        .measure_once(|ranges| {
            fake.count(1000);
            ranges.run_in("a", || fake.count(3));
            fake.count(1000);
            ranges.run_in("b", || {
                assert!(fake.counts());
                fake.count(4);
            });
            ranges.run_in("a", || fake.count(5));
            42
        })
        .unwrap();
    assert!(!fake.counts());
    assert_eq!(answer, 42);
    assert_eq!((measured.runs(), measured.passes(), measured.dropped()), (1, 1, 0));
    let ranges: Vec<_> =
        measured.ranges().map(|range| (range.name(), range.value("fake__0.sum"))).collect();
    assert_eq!(ranges, [("a", Some(3.0)), ("b", Some(4.0)), ("a", Some(5.0))]);
    assert_eq!(measured.total("a", "fake__0.sum"), Some(8.0));
    assert_eq!(measured.total("c", "fake__0.sum"), None);
    assert_eq!(value(&measured, "a", "fake__1.sum"), None, "it was not requested");
    assert_eq!(fake.context_waits(), 6, "the context is waited for at both ends of a range");
    let text = measured.to_string();
    assert!(
        text.contains("FK100, 1 run\n") && text.contains("   5  ") && text.contains("fake__0.sum")
    );
}

#[test]
fn each_pass_is_a_run_of_its_own() {
    let fake = Fake::new();
    let profiler = profiler(&fake, &["fake__7.sum", "fake__3.sum", "fake__7.sum"]);
    assert_eq!(profiler.plan().metrics(), ["fake__7.sum", "fake__3.sum"]);
    assert_eq!((profiler.plan().passes(), profiler.runs()), (2, 2));
    let error = profiler.measure_once(|_| ()).unwrap_err().to_string();
    assert!(error.contains("2 passes and 1 is allowed"), "{error}");
    let mut run = 0;
    let measured = profiler
        .measure(|ranges| {
            run += 1;
            ranges.run_in("work", || fake.count(10 * run));
        })
        .unwrap();
    assert_eq!((run, measured.runs()), (2, 2));
    // Pass by pass, in the order of the numbers.
    assert_eq!(value(&measured, "work", "fake__3.sum"), Some(10.0));
    assert_eq!(value(&measured, "work", "fake__7.sum"), Some(20.0));
}

#[test]
fn each_level_repeats_all_passes() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let profiler = RangeProfiler::builder(&library)
        .metrics(["fake__0.sum", "fake__1.sum"])
        .levels(2)
        .build()
        .unwrap();
    let mut ran = 0;
    let measured = profiler
        .measure(|ranges| {
            ran += 1;
            ranges.run_in("outer", || {
                fake.count(1);
                ranges.run_in("inner", || {
                    fake.count(2);
                    ranges.run_in("too deep", || fake.count(4));
                });
                ranges.run_in("inner", || fake.count(8));
            });
        })
        .unwrap();
    assert_eq!((ran, measured.runs(), measured.passes()), (4, 4, 2));
    let ranges: Vec<_> = measured
        .ranges()
        .map(|range| (range.name(), range.level(), range.value("fake__1.sum").unwrap()))
        .collect();
    assert_eq!(ranges, [("outer", 0, 15.0), ("inner", 1, 6.0), ("inner", 1, 8.0)]);
    let parents: Vec<_> =
        measured.ranges().filter_map(|range| Some(range.parent()?.name())).collect();
    let places: Vec<_> = measured
        .ranges()
        .map(|range| (range.place(), range.parent().map(|around| around.place())))
        .collect();
    assert_eq!(places, [(0, None), (1, Some(0)), (2, Some(0))]);
    assert_eq!(parents, ["outer", "outer"]);
    assert_eq!((measured.too_deep(), measured.dropped()), (1, 0));
    assert!(measured.to_string().contains("1 nested deeper"), "{measured}");
}

#[test]
fn ranges_beyond_the_capacity_are_counted() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let profiler =
        RangeProfiler::builder(&library).metric("fake__0.sum").max_ranges(2).build().unwrap();
    let measured = profiler
        .measure(|ranges| (0..5).for_each(|_| ranges.run_in("x", || fake.count(1))))
        .unwrap();
    assert_eq!((measured.ranges().count(), measured.dropped()), (2, 3));
    assert_eq!(measured.total("x", "fake__0.sum"), None, "three are missing");
    assert!(measured.to_string().contains("3 not counted"), "{measured}");
}

#[test]
fn work_that_differs_from_run_to_run_is_an_error() {
    let fake = Fake::new();
    let profiler = profiler(&fake, &["fake__0.sum", "fake__1.sum"]);
    let mut run = 0;
    let error = profiler
        .measure(|ranges| {
            run += 1;
            ranges.run_in("same", || ());
            ranges.run_in(format!("of run {run}"), || ());
        })
        .unwrap_err()
        .to_string();
    assert!(error.contains("the one at 1") && error.contains("\"of run 2\" in run 2"), "{error}");
    let mut run = 0;
    let error = profiler
        .measure(|ranges| {
            run += 1;
            (0..run).for_each(|_| ranges.run_in("one more", || ()));
        })
        .unwrap_err()
        .to_string();
    assert!(error.contains("no more in the first run"), "{error}");
    assert!(!fake.counts(), "the counters are free again");
}

#[test]
fn misuse_is_named_and_leaves_nothing_behind() {
    let fake = Fake::new();
    let profiler = profiler(&fake, &["fake__0.sum"]);
    let text = |work: &mut dyn FnMut(&cupti::counters::Ranges)| {
        let error = profiler.measure(work).unwrap_err();
        assert!(!fake.counts(), "{error}");
        error.to_string()
    };
    assert!(text(&mut |_| ()).contains("opened no range"));
    let mut left = None;
    assert!(text(&mut |ranges| left = Some(ranges.enter("x"))).contains("1 ranges were left"));
    drop(left);
    assert!(!fake.counts());
    let crossed = text(&mut |ranges| {
        let first = ranges.enter("first");
        let second = ranges.enter("second");
        drop(first);
        drop(second);
    });
    assert!(crossed.contains("reverse order"), "{crossed}");
    // A handle that outlives its run opens nothing.
    let mut kept = None;
    profiler
        .measure(|ranges| {
            ranges.run_in("x", || ());
            kept = Some(ranges.clone());
        })
        .unwrap();
    kept.unwrap().run_in("too late", || fake.count(1));
    assert!(!fake.counts());
    // It is still good.
    profiler.measure(|ranges| ranges.run_in("x", || ())).unwrap();

    let measured = profiler.measure(|ranges| {
        ranges.run_in("outer", || {
            let error = profiler.measure(|_| ()).unwrap_err();
            assert!(error.is_busy(), "{error}");
        });
    });
    assert_eq!(measured.unwrap().ranges().count(), 1);

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        profiler.measure(|ranges| ranges.run_in("x", || panic!("the work panics")))
    }));
    assert!(panicked.is_err() && !fake.counts());
    profiler.measure(|ranges| ranges.run_in("x", || ())).unwrap();
}

#[test]
fn feature_missing_in_library_or_chip_is_unsupported() {
    let fake = Fake::builder().version(23).build();
    let library = fake.library().unwrap();
    let error = RangeProfiler::builder(&library).metric("fake__0.sum").build().unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("12.6 update 2"), "{error}");
    drop(fake);

    let fake = Fake::new();
    let library = fake.library().unwrap();
    let asked = ["fake__0.sum", "dram__bytes_read.sum"];
    let error = RangeProfiler::builder(&library).metrics(asked).build().unwrap_err();
    let text = error.to_string();
    assert!(error.is_unsupported() && text.contains("no dram__bytes_read.sum on FK100"), "{text}");
    // A set is what the chip has of it.
    let built = RangeProfiler::builder(&library).metric(asked[0]).set(Set::Dram).build().unwrap();
    assert_eq!(built.missing(), Set::Dram.metrics());
    assert_eq!(built.plan().metrics(), ["fake__0.sum"]);
    let error = RangeProfiler::builder(&library).build().unwrap_err().to_string();
    assert!(error.contains("no metric was requested"), "{error}");
    fake.have_context(false);
    let error = RangeProfiler::builder(&library).metric(asked[0]).build().unwrap_err().to_string();
    assert!(error.contains("no CUDA context is current"), "{error}");
    let error = built.measure(|_| ()).unwrap_err().to_string();
    assert!(error.contains("not current on this thread"), "{error}");
}

#[test]
fn refusals_give_advice() {
    let fake = Fake::new();
    let profiler = profiler(&fake, &["fake__0.sum"]);
    let refused = |function, code| {
        fake.fail(function, code, When::Once);
        profiler.measure(|ranges| ranges.run_in("x", || fake.count(1))).unwrap_err()
    };
    let enable = "cuptiRangeProfilerEnable";
    let error = refused(enable, CuptiResult::INSUFFICIENT_PRIVILEGES);
    assert!(error.is_permission() && error.code() == Some(35), "{error}");
    assert!(error.to_string().contains("NVreg_RestrictProfilingToAdminUsers=0"), "{error}");
    drop(fake);

    let cases = [
        (CuptiResult::VIRTUALIZED_DEVICE, "administrator of the host"),
        (CuptiResult::HARDWARE_BUSY, "dcgmi profile --pause"),
        (CuptiResult::MIG_DEVICE, "MIG"),
        (CuptiResult::CONFIDENTIAL_COMPUTING, "confidential"),
        (CuptiResult::NOT_SUPPORTED, "no MPS"),
    ];
    for (code, part) in cases {
        let fake = Fake::builder().fault("cuptiProfilerGetCounterAvailability", code).build();
        let library = fake.library().unwrap();
        let error = RangeProfiler::builder(&library).metric("fake__0.sum").build().unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        let kinds = [error.is_permission(), error.is_busy(), error.is_unsupported()];
        assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{error}");
        assert!(!error.is_unavailable(), "{error}");
    }

    for function in [
        "cuptiRangeProfilerGetCounterDataSize",
        "cuptiRangeProfilerSetConfig",
        "cuptiRangeProfilerStart",
        "cuptiRangeProfilerPushRange",
        "cuptiRangeProfilerPopRange",
        "cuptiRangeProfilerStop",
        "cuptiRangeProfilerDecodeData",
        "cuptiProfilerHostEvaluateToGpuValues",
    ] {
        let fake = Fake::new();
        let profiler = self::profiler(&fake, &["fake__0.sum"]);
        fake.fail(function, CuptiResult::UNKNOWN, When::Once);
        let error = profiler.measure(|ranges| ranges.run_in("x", || fake.count(1))).unwrap_err();
        assert!(error.to_string().contains(function), "{function}: {error}");
        assert!(!fake.counts(), "{function}: the counters are free again");
        profiler.measure(|ranges| ranges.run_in("x", || fake.count(1))).unwrap();
    }
}

#[test]
fn counters_and_a_collector_exclude_each_other() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let profiler = profiler(&fake, &["fake__0.sum"]);
    let collector = Collector::start(&library, &Config::new()).unwrap();
    assert!(profiler.measure(|ranges| ranges.run_in("x", || ())).unwrap_err().is_busy());
    assert!(profiler.measure_kernels(|| ()).unwrap_err().is_busy());
    collector.stop().unwrap();
    let measured = profiler.measure(|ranges| {
        assert!(Collector::start(&library, &Config::new()).unwrap_err().is_busy());
        ranges.run_in("x", || fake.count(1));
    });
    assert_eq!(value(&measured.unwrap(), "x", "fake__0.sum"), Some(1.0));
    Collector::start(&library, &Config::new()).unwrap();
}

/// How far CUPTI's clock is ahead of ours.
const AHEAD: u64 = 1_700_000_000_000_000_000;

fn sampler(fake: &Fake, most: usize) -> Result<PmSampler, Error> {
    let library = fake.library().unwrap();
    PmSampler::builder(&library)
        .metrics(["fake__0.sum"])
        .interval(Duration::from_micros(10))
        .max_samples(most)
        .start()
}

#[test]
fn samples_are_on_the_host_clock_with_their_gaps() {
    let fake = Fake::builder().clock_offset(AHEAD.cast_signed()).build();
    let now = clock::now_ns();
    let sampler = sampler(&fake, 100).unwrap();
    assert!(fake.counts());
    // The first began with the sampling of the device, not with ours.
    // Two that follow each other within some nanoseconds leave no gap.
    let times = [(0, 50, 99), (50, 60, 1), (60, 70, 2), (76, 86, 4), (86, 96, 8)];
    for (start, end, events) in times {
        fake.sample(AHEAD + now + 1000 * start + 300, AHEAD + now + 1000 * end, events);
    }
    let samples = sampler.stop().unwrap();
    assert!(!fake.counts());
    let metric = "fake__0.sum";
    let values: Vec<_> = samples.iter().filter_map(|sample| sample.value(metric)).collect();
    assert_eq!(values, [1.0, 2.0, 4.0, 8.0]);
    // The conversion of clocks, whose distance is measured twice, may round by some nanoseconds.
    let (gaps, gap_ns) = samples.gaps();
    assert!(gaps == 1 && gap_ns.abs_diff(6300) < 20, "{gaps} {gap_ns}");
    assert_eq!((samples.overflows(), samples.dropped()), (0, 0));
    let first = samples.iter().next().unwrap();
    assert!(first.start_ns().abs_diff(now + 50_300) < 100_000, "{} {now}", first.start_ns());
    assert!((first.end_ns() - first.start_ns()).abs_diff(9700) < 20, "{}", first.start_ns());
    assert_eq!(samples.sum(metric, 0, u64::MAX), Some(15.0));
    assert_eq!(samples.sum("fake__1.sum", 0, u64::MAX), None);
    assert_eq!(
        samples.sum(metric, first.start_ns(), first.end_ns() + 12_000),
        Some(3.0),
        "whole ones"
    );
    assert_eq!(samples.mean(metric, 0, u64::MAX), Some((15.0 / 4.0, 4)));
    assert_eq!(samples.mean(metric, 0, 1), None);
    let text = samples.to_string();
    assert!(text.contains("4 samples of 10 us") && text.contains("1 gaps"), "{text}");
}

#[test]
fn extreme_times_and_limits_end_no_sampling() {
    let fake = Fake::new();
    let sampler = sampler(&fake, usize::MAX).unwrap();
    let late = [(u64::MAX, 3), (u64::MAX, 4), (u64::MAX, 5)];
    for (start, end) in [(0, 1), (5, u64::MAX - 1), (7, u64::MAX)].into_iter().chain(late) {
        fake.sample(start, end, 1);
    }
    let samples = sampler.stop().unwrap();
    assert_eq!((samples.failure(), samples.len()), (None, 5));
    assert_eq!(samples.gaps().1, u64::MAX, "it saturates");
}

#[test]
fn samples_are_bounded_and_dropped_ones_counted() {
    let fake = Fake::builder().clock_offset(AHEAD.cast_signed()).build();
    let mut sampler = sampler(&fake, 1000).unwrap();
    // More than an image holds, so they come in several decodings.
    let send = |count: u64, events: u64| {
        for at in 0..count {
            fake.sample(AHEAD + 10 * at, AHEAD + 10 * at + 10, events);
        }
    };
    fake.overflow_samples();
    send(20_001, 1);
    let until = std::time::Instant::now() + Duration::from_secs(120);
    let mut samples = sampler.drain().unwrap();
    let (mut count, mut dropped, mut overflows) = (0, 0, 0);
    loop {
        assert!(samples.len() <= 1250, "{samples}");
        count += samples.len() as u64;
        dropped += samples.dropped();
        overflows += samples.overflows();
        if count + dropped == 20_000 || std::time::Instant::now() > until {
            break;
        }
        samples = sampler.drain().unwrap();
    }
    // All but the first, which is none.
    assert_eq!((count + dropped, overflows), (20_000, 1));
    assert!(dropped > 0);
    send(10, 7);
    let rest = sampler.stop().unwrap();
    assert_eq!((rest.len(), rest.sum("fake__0.sum", 0, u64::MAX)), (10, Some(70.0)));
}

#[test]
fn utilization_metrics_that_do_not_fit_are_reported() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let sampler = PmSampler::builder(&library).utilization().start().unwrap();
    assert_eq!(sampler.missing(), ["nvlrx__bytes.sum", "nvltx__bytes.sum"]);
    let labels: Vec<_> = sampler.metrics().iter().filter_map(|m| utilization::label(m)).collect();
    let all = utilization::ROWS.iter().map(|row| row.label);
    assert_eq!(labels, all.filter(|label| !label.starts_with("NVLink")).collect::<Vec<_>>());
    drop(sampler);
    // What was requested by name comes first: it fills the pass.
    let builder = || PmSampler::builder(&library).utilization();
    let sampler = builder().metrics(["fake__3.sum"]).start().unwrap();
    assert_eq!((sampler.metrics(), sampler.missing().len()), (&["fake__3.sum".into()][..], 10));
    drop(sampler);
    // What is asked for twice, or is part of it, is sampled once.
    let part = utilization::ROWS[3].names[0];
    let sampler = builder().metrics([part, part]).start().unwrap();
    let metrics: std::collections::HashSet<_> = sampler.metrics().iter().collect();
    assert_eq!((metrics.len(), sampler.metrics().len(), sampler.missing().len()), (8, 8, 2));
    drop(sampler);
    let error = builder().metrics(["real__3.sum"]).start().unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("no real__3.sum"), "{error}");
}

#[test]
fn unavailable_sampler_gives_a_reason() {
    let fake = Fake::builder().version(25).build();
    let error = sampler(&fake, 1).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("12.8"), "{error}");
    drop(fake);

    let fake = Fake::new();
    let library = fake.library().unwrap();
    let two = PmSampler::builder(&library).metrics(["fake__0.sum", "fake__1.sum"]).start();
    let error = two.unwrap_err().to_string();
    assert!(error.contains("2 passes"), "{error}");
    let first = sampler(&fake, 1).unwrap();
    assert!(sampler(&fake, 1).unwrap_err().is_busy());
    drop(first);
    assert!(!fake.counts(), "dropped is ended");
    for function in ["cuptiPmSamplingEnable", "cuptiPmSamplingSetConfig", "cuptiPmSamplingStart"] {
        fake.fail(function, CuptiResult::INSUFFICIENT_PRIVILEGES, When::Once);
        let error = sampler(&fake, 1).unwrap_err();
        assert!(error.is_permission() && error.to_string().contains(function), "{error}");
        assert!(!fake.counts(), "{function}");
    }
    // What was there before the decoder failed is kept.
    let mut early = sampler(&fake, 10).unwrap();
    (0..3).for_each(|at| fake.sample(at, at + 1, 1));
    let mut samples = early.drain().unwrap();
    while samples.is_empty() {
        samples = early.drain().unwrap();
    }
    assert_eq!((samples.len(), samples.failure()), (2, None));
    early.stop().unwrap();
    let failing = sampler(&fake, 10).unwrap();
    (0..3).for_each(|at| fake.sample(at, at + 1, 1));
    let until = std::time::Instant::now() + Duration::from_secs(120);
    let wait_until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
    };
    wait_until(&|| fake.undecoded_samples() == 0);
    assert!(!failing.has_ended());
    fake.fail("cuptiPmSamplingDecodeData", CuptiResult::OUT_OF_MEMORY, When::Always);
    wait_until(&|| failing.has_ended());
    assert!(!fake.counts(), "who comes next can have the counters");
    let samples = failing.stop().unwrap();
    assert_eq!(samples.len(), 2);
    let text = samples.to_string();
    assert!(text.contains("ended early: cuptiPmSamplingDecodeData"), "{text}");
    assert!(samples.failure().is_some_and(|why| why.contains("longer interval")), "{text}");
    let error = sampler(&fake, 1).unwrap().stop().unwrap_err();
    assert!(error.to_string().contains("cuptiPmSamplingDecodeData"), "{error}");
    assert!(!fake.counts());
}

/// Three ranges, two of them in each other, and one that has no room, on two metrics.
fn counted_twice(fake: &Fake) -> (RangeProfiler, CounterData) {
    let library = fake.library().unwrap();
    let profiler = RangeProfiler::builder(&library)
        .metrics(["fake__0.sum", "fake__1.sum"])
        .levels(2)
        .max_ranges(3)
        .build()
        .unwrap();
    let data = profiler
        .collect(|ranges| {
            ranges.run_in("outer", || {
                fake.count(1);
                ranges.run_in("inner", || fake.count(2));
            });
            ranges.run_in("last", || fake.count(5));
            ranges.run_in("no room", || fake.count(7));
        })
        .unwrap();
    (profiler, data)
}

/// Content with the head that a file has.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut bytes = b"CUPTICD\x01".to_vec();
    bytes.extend(hmac_sha256::Hash::hash(content));
    bytes.extend_from_slice(content);
    bytes
}

#[test]
fn saved_counts_evaluate_to_the_same_values() {
    let fake = Fake::new();
    let (profiler, data) = counted_twice(&fake);
    assert!(!fake.counts());
    assert_eq!((data.chip(), data.ranges(), data.metrics().len()), ("FK100", 3, 2));
    let file = std::env::temp_dir().join(format!("counter-data-{}", std::process::id()));
    data.save(&file).unwrap();
    let loaded = CounterData::load(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(loaded, data);
    // Something else is counted since.
    profiler.measure(|ranges| ranges.run_in("x", || fake.count(99))).unwrap();
    let measured = profiler.host().evaluate(&loaded).unwrap();
    let ranges: Vec<_> = measured
        .ranges()
        .map(|range| (range.name(), range.level(), range.value("fake__1.sum").unwrap()))
        .collect();
    assert_eq!(ranges, [("outer", 0, 3.0), ("inner", 1, 2.0), ("last", 0, 5.0)]);
    assert_eq!((measured.runs(), measured.passes(), measured.dropped()), (4, 2, 1));
    let missing = CounterData::load(&file).unwrap_err().to_string();
    assert!(
        missing.contains(file.to_str().unwrap()) && missing.contains("cannot be read"),
        "{missing}"
    );
    let error = data.save(file.join("x")).unwrap_err().to_string();
    assert!(error.contains("cannot be written") && error.contains("folder"), "{error}");
}

#[test]
fn damaged_counter_data_is_an_error() {
    let fake = Fake::new();
    let (profiler, data) = counted_twice(&fake);
    let bytes = data.to_bytes();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = CounterData::from_bytes(&damaged).unwrap_err().to_string();
        let said = ["damaged", "no counter data", "newer format"];
        assert!(said.iter().any(|said| error.contains(said)), "{at}: {error}");
        assert!(CounterData::from_bytes(&bytes[..at]).is_err(), "{at}");
    }
    // With the right checksum the fields are looked at all the same.
    let resealed = |content: &[u8]| CounterData::from_bytes(&sealed(content));
    assert_eq!(resealed(&bytes[40..]).unwrap(), data);
    let mut random = fastrand::Rng::with_seed(1);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut content = bytes[40..].to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..content.len());
            content[at] = random.u8(..);
        }
        content.truncate(random.usize(content.len() / 2..=2 * content.len()));
        if let Ok(data) = resealed(&content) {
            read += 1;
            // It may be of another chip, or ask for what there is not; nothing worse.
            let _ = profiler.host().evaluate(&data);
        }
    }
    assert!((100..20_000).contains(&read), "{read}");
}

#[test]
fn counts_of_another_chip_are_refused() {
    let fake = Fake::new();
    let (profiler, data) = counted_twice(&fake);
    let mut bytes = data.to_bytes()[40..].to_vec();
    let at = bytes.windows(5).position(|window| window == b"FK100").unwrap();
    bytes[at..at + 5].copy_from_slice(b"GH100");
    let other = CounterData::from_bytes(&sealed(&bytes)).unwrap();
    let error = profiler.host().evaluate(&other).unwrap_err();
    assert!(error.to_string().contains("host for GH100"), "{error}");
}

#[test]
fn counted_values_serialize() {
    let fake = Fake::new();
    let (_, data) = counted_twice(&fake);
    let library = fake.library().unwrap();
    let profiler = RangeProfiler::builder(&library).metric("fake__0.sum").build().unwrap();
    let mut measured = profiler.host().evaluate(&data).unwrap();
    let text = serde_json::to_string(&measured).unwrap();
    assert_eq!(serde_json::from_str::<Measured>(&text).unwrap(), measured);
    // What CUPTI could not tell is null, and not known again.
    let text = text.replacen("2.0", "null", 1);
    measured = serde_json::from_str(&text).unwrap();
    assert_eq!(measured.range("inner").unwrap().value("fake__0.sum"), None);
    assert!(measured.to_string().contains("not known"), "{measured}");
    assert!(serde_json::to_string(&measured).unwrap().contains("null"));
    // What does not fit together is refused.
    for (from, to) in [
        ("[3.0,3.0]", "[3.0]"),
        ("\"parent\":0", "\"parent\":1"),
        ("\"parent\":0", "\"parent\":null"),
        ("\"level\":1", "\"level\":40000"),
    ] {
        assert!(text.contains(from), "{text}");
        assert!(serde_json::from_str::<Measured>(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
}

/// What a card counted is read where there is no library of NVIDIA's; `real_library` evaluates it.
#[test]
fn counts_of_a_card_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/counters");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "counts") {
            continue;
        }
        read += 1;
        let data = CounterData::load(&file).unwrap();
        let text = std::fs::read_to_string(file.with_extension("json")).unwrap();
        let truth: Measured = serde_json::from_str(&text).unwrap();
        assert_eq!((data.chip(), data.metrics()), (truth.chip(), truth.metrics()));
        assert_eq!(data.ranges(), truth.ranges().count());
        assert_eq!(data.to_bytes(), std::fs::read(&file).unwrap());
        assert!(data.image().len() > 1000 && data.version().cuda_release() >= (12, 8), "{data}");
        let fake = Fake::new();
        let library = fake.library().unwrap().metrics().unwrap();
        let error = library.host("FK100").unwrap().evaluate(&data).unwrap_err().to_string();
        assert!(error.contains("counters of GH100"), "{error}");
    }
    assert!(read > 0);
}
