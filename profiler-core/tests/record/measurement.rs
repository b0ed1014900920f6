//! Criterion measures what the GPU did, not how long the host took.
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::Measurement;
use criterion::{BatchSize, Criterion};
use fake_cupti::{Fake, Work};
use profiler_core::Profiler;
use profiler_core::testing::GpuTime;
use test_support::folder::Folder;

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).build().unwrap()
}

/// Criterion with as few samples as it takes, its results in a folder of their own.
fn criterion<M: Measurement>(measurement: M) -> (Criterion<M>, Folder) {
    let folder = Folder::new();
    let criterion = Criterion::default()
        .sample_size(10)
        .nresamples(1000)
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_millis(5))
        .without_plots()
        .output_directory(&folder.0)
        .with_measurement(measurement);
    (criterion, folder)
}

/// Nanoseconds an iteration, as criterion estimates them; `None` if it gave up.
fn mean(folder: &Path, benchmark: &str) -> Option<f64> {
    let text = std::fs::read_to_string(folder.join(benchmark).join("new/estimates.json")).ok()?;
    let estimates: serde_json::Value = serde_json::from_str(&text).unwrap();
    estimates["mean"]["point_estimate"].as_f64()
}

fn is_about(actual: Option<f64>, expected: f64) -> bool {
    actual.is_some_and(|actual| (actual / expected - 1.0).abs() < 1e-9)
}

#[test]
fn criterion_sees_the_gpu_time_of_an_iteration() {
    let fake = Fake::new();
    let (mut criterion, folder) = criterion(GpuTime::new(profiler(&fake)).unwrap());
    criterion.bench_function("iter", |bencher| {
        bencher.iter(|| {
            std::thread::sleep(Duration::from_micros(50)); // of no account
            fake.launch(Work::kernel(c"k").taking_ns(1_500));
            fake.launch(Work::memset(8).taking_ns(20));
            fake.launch(Work::host_to_device(8).taking_ns(3));
        });
    });
    assert!(is_about(mean(&folder.0, "iter"), 1_523.0), "{:?}", mean(&folder.0, "iter"));
    // In batches the sample is a sum.
    criterion.bench_function("batches", |bencher| {
        let work = || fake.launch(Work::kernel(c"k").taking_ns(70));
        bencher.iter_batched(|| (), |()| work(), BatchSize::NumIterations(3));
    });
    assert!(is_about(mean(&folder.0, "batches"), 70.0), "{:?}", mean(&folder.0, "batches"));
}

#[test]
fn concurrent_work_is_busy_once() {
    let fake = Fake::new();
    let shared = Arc::new(profiler(&fake));
    let (busy, gpu) =
        (GpuTime::busy(shared.clone()).unwrap(), GpuTime::new(shared.clone()).unwrap());
    let long = 10_000_000_000; // longer than any pause between the two launches
    let program = || {
        fake.launch(Work::kernel(c"a").taking_ns(long));
        fake.launch(Work::kernel(c"b").taking_ns(long).on_stream(8));
    };
    let started = gpu.start();
    program();
    assert_eq!(gpu.end(started), Some(Duration::from_nanos(2 * long)));
    let started = busy.start();
    program();
    let once = busy.end(started).unwrap().as_nanos() as u64;
    assert!((long + 1..2 * long).contains(&once), "{once}");
}

#[test]
fn span_and_latency_contain_the_gaps() {
    let fake = Fake::new();
    let shared = Arc::new(profiler(&fake));
    let (span, latency) =
        (GpuTime::span(shared.clone()).unwrap(), GpuTime::latency(shared.clone()).unwrap());
    let pause = Duration::from_millis(2);
    let program = || {
        fake.launch(Work::kernel(c"a").taking_ns(1_000));
        std::thread::sleep(pause);
        fake.launch(Work::kernel(c"b").taking_ns(5_000));
    };
    let started = span.start();
    program();
    let spanned = span.end(started).unwrap();
    assert!(spanned >= pause + Duration::from_micros(5), "{spanned:?}");
    let started = latency.start();
    fake.launch(Work::kernel(c"a").taking_ns(1_000));
    // The fake starts work 2 us after its call.
    let latent = latency.end(started).unwrap();
    assert!(latent >= Duration::from_micros(3), "{latent:?}");
    for none in [span.end(span.start()), latency.end(latency.start())] {
        assert_eq!(none, Some(Duration::ZERO));
    }
    let started = span.start();
    fake.drop_records(1);
    program();
    assert_eq!(span.end(started), None);
}

#[test]
fn unknown_value_is_no_result() {
    let fake = Fake::new();
    let profiler = Arc::new(profiler(&fake));
    let (mut criterion, folder) = criterion(GpuTime::new(profiler.clone()).unwrap());
    criterion.bench_function("nothing on the GPU", |bencher| bencher.iter(|| ()));
    assert_eq!(mean(&folder.0, "nothing on the GPU"), None);
    // One lost record in one batch of many is enough.
    criterion.bench_function("lost", |bencher| {
        bencher.iter_batched(
            || fake.drop_records(1),
            |()| fake.launch(Work::kernel(c"k")),
            BatchSize::NumIterations(5),
        );
    });
    assert_eq!(mean(&folder.0, "lost"), None);
    profiler.start().unwrap(); // its place is taken
    criterion.bench_function("busy", |bencher| {
        bencher.iter(|| fake.launch(Work::kernel(c"k")));
    });
    assert_eq!(mean(&folder.0, "busy"), None);
    assert!(GpuTime::new(profiler.clone()).unwrap_err().is_busy());
    drop(profiler.stop().unwrap());
    criterion.bench_function("again", |bencher| {
        bencher.iter(|| fake.launch(Work::kernel(c"k").taking_ns(9)));
    });
    assert!(is_about(mean(&folder.0, "again"), 9.0));
}

#[test]
fn values_are_nanoseconds_and_an_unknown_one_spoils_a_sum() {
    let fake = Fake::new();
    let time = GpuTime::new(profiler(&fake)).unwrap();
    let us = |us| Some(Duration::from_micros(us));
    assert_eq!(time.to_f64(&time.add(&time.zero(), &us(2))), 2_000.0);
    assert_eq!((time.add(&us(1), &None), time.to_f64(&None)), (None, 0.0));
    assert_eq!(time.formatter().format_value(1_500.0).trim(), "1.5000 µs");
}
