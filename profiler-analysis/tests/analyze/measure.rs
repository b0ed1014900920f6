//! Measurements of work whose times are planted.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_analysis::Error;
use profiler_analysis::Speed;
use profiler_analysis::measure::{L2, Measure, Stop};
use profiler_analysis::prelude::*;
use profiler_core::GpuTest;
use profiler_core::Profiler;

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

/// Settings that time does not end, however busy the machine is.
fn patient() -> Measure {
    let limit = Duration::from_secs(600);
    Measure::new().max_time(limit).max_warm_up(limit)
}

/// Settings that end soon.
fn short() -> Measure {
    let ms = Duration::from_millis;
    Measure::new().max_time(ms(300)).max_warm_up(ms(200))
}

fn kernel(fake: &Fake, taking_ns: u64) {
    fake.launch(Work::kernel(c"k").taking_ns(taking_ns));
}

#[test]
fn planted_times_are_measured() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let work = || {
        kernel(&fake, 14_000);
        fake.launch(Work::memset(8).taking_ns(1_000));
        fake.launch(Work::synchronize().taking_ns(10));
    };
    let measurement = patient().run(&profiler, work).unwrap();
    let gpu = measurement.gpu_time();
    let us_15 = Duration::from_micros(15);
    assert_eq!((gpu.median(), gpu.bounds()), (us_15, Some((us_15, us_15))));
    assert_eq!((gpu.min(), gpu.median_absolute_deviation()), (us_15, Duration::ZERO));
    assert_eq!((measurement.kernels(), measurement.operations()), ((1, 1), (2, 2)));
    assert_eq!((measurement.stop(), measurement.l2()), (Stop::Precise, L2::Warm));
    assert!(measurement.samples() >= 30 && measurement.warm_up().is_steady, "{measurement}");
    assert!(measurement.notes().is_empty(), "{measurement}");
    // An operation starts 2 us after its call, at the earliest.
    assert!(measurement.latency().min() >= Duration::from_nanos(16_990), "{measurement}");
    assert!(measurement.gpu_span().min() >= Duration::from_nanos(14_990), "{measurement}");
    assert!(measurement.latency().median() > measurement.gpu_span().median());
    let [time, cost, calls] =
        [measurement.host_time(), measurement.host_cost(), measurement.call_time()]
            .map(|timing| timing.median());
    assert!(time > cost && cost > calls && calls > Duration::ZERO, "{time:?} {cost:?} {calls:?}");
    assert!(fake.context_waits() >= measurement.samples(), "samples begin on an idle context");

    let text = measurement.to_string();
    assert!(text.contains("1 kernel and 2 operations in total; L2 warm"), "{text}");
    assert!(text.contains("GPU time    15.00 us"), "{text}");
    assert!(
        text.contains("then steady; stopped at the requested precision\nclocks: not known ("),
        "{text}"
    );
    let json = serde_json::to_value(&measurement).unwrap();
    assert_eq!(json["gpu_time"]["median_ns"], 15_000.0);
    assert_eq!((&json["l2"], &json["stop"]), (&"warm".into(), &"precise".into()));
}

#[test]
fn batches_and_units_divide() {
    let fake = Fake::new();
    let calls = Cell::new(0_u64);
    let work = || {
        calls.set(calls.get() + 1);
        kernel(&fake, 2_000);
        kernel(&fake, 2_000);
    };
    let measurement = patient().batch(10).units(2).run(&profiler(&fake), work).unwrap();
    assert_eq!(
        (measurement.gpu_time().median(), measurement.kernels()),
        (Duration::from_micros(2), (20, 20))
    );
    assert_eq!((measurement.calls_per_sample(), measurement.units()), (10, 2));
    let samples = measurement.samples() + measurement.warm_up().samples;
    assert_eq!(calls.get(), 10 * samples);
    let text = measurement.to_string();
    assert!(text.contains("of 10 calls with 20 kernels, times of one of 2 units"), "{text}");
    // A tick is 1.6 % of one call, and 0.08 % of a batch.
    let one = patient().run(&profiler(&fake), || kernel(&fake, 2_000)).unwrap();
    assert!(one.notes()[0].contains("ticks every 32 ns, 1.6 %"), "{one}");
    assert!(measurement.notes().is_empty(), "{measurement}");
}

#[test]
fn a_cold_cache_is_flushed_outside_the_times() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let seen = Cell::new(0);
    let work = || {
        seen.set(fake.device_memory());
        kernel(&fake, 50_000);
    };
    let measurement = patient().l2(L2::Cold).run(&profiler, work).unwrap();
    assert_eq!((seen.get(), fake.device_memory()), (120 << 20, 0));
    assert_eq!((measurement.operations(), measurement.l2()), ((1, 1), L2::Cold));
    assert_eq!(measurement.gpu_time().median(), Duration::from_micros(50));
    assert!(measurement.notes().is_empty(), "the flush is no other work: {measurement}");
    assert!(measurement.to_string().contains("L2 cold, overwritten"), "{measurement}");
    let batch = patient().l2(L2::Cold).batch(2).run(&profiler, work).unwrap();
    assert!(batch.notes()[0].contains("only the first call of a batch"), "{batch}");
}

#[test]
fn without_a_context_a_warm_cache_is_measured_and_a_cold_one_refused() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    fake.have_context(false);
    let measurement = patient().run(&profiler, || kernel(&fake, 50_000)).unwrap();
    assert!(measurement.notes()[0].contains("no current CUDA context"), "{measurement}");
    let error = patient().l2(L2::Cold).run(&profiler, || kernel(&fake, 1)).unwrap_err().to_string();
    assert!(error.contains("no CUDA context is current") && error.contains("L2::Warm"), "{error}");
    assert!(!profiler.is_running());
}

#[test]
fn work_without_gpu_operations_is_an_error() {
    let fake = Fake::new();
    let error = patient().run(&profiler(&fake), || 1).unwrap_err().to_string();
    assert!(error.contains("no GPU operation in") && error.contains("others 0"), "{error}");
    let on_another_thread = || {
        std::thread::scope(|scope| {
            scope.spawn(|| kernel(&fake, 100));
        });
    };
    let error = patient().run(&profiler(&fake), on_another_thread).unwrap_err().to_string();
    assert!(!error.contains("others 0") && error.contains("Context::current"), "{error}");
    let pair = patient().run_pair(&profiler(&fake), || kernel(&fake, 100), || ());
    assert!(pair.unwrap_err().to_string().contains("no GPU operation"));
}

#[test]
fn other_work_is_counted_and_in_no_time() {
    let fake = Fake::new();
    let work = || {
        std::thread::scope(|scope| {
            scope.spawn(|| kernel(&fake, 100));
        });
        kernel(&fake, 50_000);
    };
    let measurement = patient().run(&profiler(&fake), work).unwrap();
    assert_eq!(
        (measurement.gpu_time().median(), measurement.kernels()),
        (Duration::from_micros(50), (1, 1))
    );
    let others = format!("{} GPU operations of other threads", measurement.samples());
    assert!(measurement.notes().iter().any(|note| note.contains(&others)), "{measurement}");
}

#[test]
fn a_panic_discards_the_session_and_frees_the_cache_buffer() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let calls = Cell::new(0);
    let work = || {
        calls.set(calls.get() + 1);
        assert!(calls.get() < 10, "planted");
        kernel(&fake, 100);
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| patient().l2(L2::Cold).run(&profiler, work)));
    assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "planted");
    assert_eq!(
        (profiler.is_running(), fake.is_recording(), fake.device_memory()),
        (false, false, 0)
    );
    patient().run(&profiler, || kernel(&fake, 100)).unwrap();
}

#[test]
fn lost_records_are_an_error() {
    let fake = Fake::new();
    let calls = Cell::new(0);
    let work = || {
        calls.set(calls.get() + 1);
        if calls.get() == 20 {
            fake.drop_records(3);
        }
        kernel(&fake, 100);
    };
    let error = patient().run(&profiler(&fake), work).unwrap_err().to_string();
    assert!(error.contains("3 records were dropped by CUPTI"), "{error}");
    let without_times = || {
        fake.lose_timestamps();
        kernel(&fake, 100);
    };
    let error = patient().run(&profiler(&fake), without_times).unwrap_err().to_string();
    assert!(error.contains("operations have no timestamps"), "{error}");
}

#[test]
fn another_tool_is_an_error_and_an_own_session_is_none() {
    let held = Fake::builder().held_by("another tool").build();
    let error: Error = patient().run(&profiler(&held), || kernel(&held, 1)).unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("another tool"), "{error}");
    drop(held);
    let fake = Fake::new();
    let profiler =
        Profiler::builder().library(fake.library().unwrap()).keep_last_operations(2).build();
    let profiler = profiler.unwrap();
    profiler.start().unwrap();
    let measurement = patient().run(&profiler, || kernel(&fake, 50_000)).unwrap();
    assert_eq!(measurement.gpu_time().median(), Duration::from_micros(50));
    assert!(measurement.samples() >= 30, "all samples are kept: {measurement}");
    drop(profiler.stop().unwrap());
}

#[test]
fn drift_and_noise_are_named() {
    let fake = Fake::new();
    let taking = Cell::new(100_000_u64);
    let slower_and_slower = || {
        taking.set(taking.get() + 2_000);
        kernel(&fake, taking.get());
    };
    let measurement = short().run(&profiler(&fake), slower_and_slower).unwrap();
    assert!(
        // A fast machine makes the most samples before the time is over.
        !measurement.warm_up().is_steady && measurement.stop() != Stop::Precise,
        "{measurement}"
    );
    let says = |what: &str| measurement.notes().iter().any(|note| note.contains(what));
    assert!(
        says("without a steady state") && (says("noise: the bounds") || says("drift: the medians")),
        "{measurement}"
    );

    let mut random = fastrand::Rng::with_seed(3);
    let noisy = || kernel(&fake, random.u64(50_000..150_000));
    let measurement = patient().max_samples(60).run(&profiler(&fake), noisy).unwrap();
    let part = measurement.gpu_time().uncertainty().unwrap();
    assert_eq!(measurement.stop(), Stop::MaxSamples, "{measurement}");
    assert!(measurement.warm_up().is_steady && part > 0.005, "{part}: {measurement}");
}

#[test]
fn work_that_differs_is_named() {
    let fake = Fake::new();
    let calls = Cell::new(0);
    let work = || {
        calls.set(calls.get() + 1);
        kernel(&fake, 50_000);
        if calls.get() % 5 == 0 {
            kernel(&fake, 50_000);
        }
    };
    let measurement = patient().run(&profiler(&fake), work).unwrap();
    assert_eq!(
        (measurement.kernels(), measurement.gpu_time().median()),
        ((1, 2), Duration::from_micros(50))
    );
    assert!(measurement.notes()[0].contains("1 to 2 GPU operations"), "{measurement}");
}

/// A shared drift of 0.05 % a call, and noise of 2 % in each.
fn pair_of(factor: f64) -> profiler_analysis::measure::PairMeasurement {
    let fake = Fake::new();
    let random = std::cell::RefCell::new(fastrand::Rng::with_seed(5));
    let drift = Cell::new(1.0_f64);
    let launch = |factor: f64| {
        drift.set((drift.get() * 1.0005).min(1000.0));
        let noise = 1.0 + 0.02 * random.borrow_mut().f64();
        kernel(&fake, (factor * noise * drift.get() * 100_000.0) as u64);
    };
    patient()
        .max_samples(2_000)
        .run_pair(&profiler(&fake), || launch(1.0), || launch(factor))
        .unwrap()
}

#[test]
fn the_ratio_of_a_pair_is_free_of_drift() {
    let slower = pair_of(1.03);
    let ratio = slower.gpu_time();
    assert!((ratio.ratio - 1.03).abs() < 0.005, "{slower}");
    // Of bounds at 95 %, one in twenty misses, by little; how many samples warm up depends on the machine.
    let (low, high) = (ratio.low - 0.001, ratio.high + 0.001);
    assert!(low <= 1.03 && 1.03 <= high && ratio.high - ratio.low < 0.01, "{slower}");
    assert_eq!((ratio.speed, pair_of(0.95).gpu_time().speed), (Speed::Slower, Speed::Faster));
    assert_eq!(slower.a().samples(), slower.b().samples());
    assert!(slower.to_string().contains("b is slower"), "{slower}");
    let json = serde_json::to_value(&slower).unwrap();
    assert_eq!(json["gpu_time"]["verdict"], "slower");
}

#[test]
fn equal_variants_are_the_same_and_few_samples_undecided() {
    let fake = Fake::new();
    let launch = || kernel(&fake, 100_000);
    let pair = patient().run_pair(&profiler(&fake), launch, launch).unwrap();
    assert_eq!(pair.gpu_time().speed, Speed::Same, "{pair}");
    assert_eq!((pair.gpu_time().low, pair.gpu_time().high), (1.0, 1.0));
    let slow = || {
        std::thread::sleep(Duration::from_millis(3));
        launch();
    };
    let brief = Measure::new().max_time(Duration::ZERO).max_warm_up(Duration::ZERO);
    let pair = brief.run_pair(&profiler(&fake), slow, launch).unwrap();
    assert_eq!(
        (pair.a().samples(), pair.a().stop()),
        (2, Stop::MaxTime),
        "one alternation: {pair}"
    );
    assert_eq!((pair.gpu_time().speed, pair.gpu_time().low), (Speed::Undecided, 0.0), "{pair}");
    assert!(pair.a().notes().iter().any(|note| note.contains("too few samples")), "{pair}");
}

#[test]
fn a_gpu_test_measures() {
    let fake = Fake::new();
    let test = || GpuTest::from_profiler(Ok(profiler(&fake))).unwrap();
    let calls = Cell::new(0_u64);
    let work = || {
        calls.set(calls.get() + 1);
        kernel(&fake, 30_000);
    };
    let measurement = test().warm_up(7).measure(work);
    assert_eq!(measurement.gpu_time().median(), Duration::from_micros(30));
    assert!(measurement.warm_up().samples >= 7, "{measurement}");
    assert_eq!(calls.get(), measurement.warm_up().samples + measurement.samples());
    let pair = test().measure_pair(|| kernel(&fake, 30_000), || kernel(&fake, 15_000));
    assert_eq!((pair.gpu_time().ratio, pair.gpu_time().speed), (0.5, Speed::Faster));
    assert!(test().try_measure(patient(), || ()).is_err());
    assert!(test().try_measure_pair(patient(), || (), || ()).is_err());
    let outcome = catch_unwind(AssertUnwindSafe(|| test().measure(|| ())));
    let text = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("could not be measured: there is nothing to measure"), "{text}");
}

#[test]
fn the_short_form_is_the_default() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    let measurement = profiler.measure(|| kernel(&fake, 30_000)).unwrap();
    assert_eq!(
        (measurement.gpu_time().median(), measurement.confidence()),
        (Duration::from_micros(30), 0.95)
    );
    let pair = profiler.measure_pair(|| kernel(&fake, 30_000), || kernel(&fake, 15_000)).unwrap();
    assert_eq!((pair.gpu_time().ratio, pair.gpu_time().speed), (0.5, Speed::Faster));
}
