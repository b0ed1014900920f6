//! A program whose devices were sampled, with values that are known.

use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_core::series::{Failure, FailureCause, Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, Recording};

/// Nanoseconds of a sample.
pub const LONG: u64 = 1_000;

pub const ACTIVE: &str = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed";
pub const READ: &str = "dram__bytes_read.sum";

/// Of sample `i` of the counters: from when on, how busy, and how many bytes. A gap lies after the first 60; of sample 10 it
/// is not known how busy it was.
pub fn counted(i: u64) -> (u64, f64, f64) {
    let gap = if i < 60 { 0 } else { 7_000 };
    let active = if i == 10 { f64::NAN } else { (i % 8) as f64 * 12.5 };
    (i * LONG + gap, active, (i * 1_000) as f64)
}

/// How many there are.
pub const COUNTED: u64 = 100;

fn counters(device: u32, start_ns: u64) -> Series {
    let metrics = vec![
        Metric::new(ACTIVE, "SM active", Unit::Percent, Kind::Mean),
        Metric::new(READ, "DRAM read", Unit::Bytes, Kind::Total),
    ];
    let mut series = Series::new(device, Source::Counters, Duration::from_nanos(LONG), metrics);
    for i in 0..COUNTED {
        let (at, active, read) = counted(i);
        let at = start_ns + at;
        series.push(at, at + LONG, &[active, read]).unwrap();
    }
    series.with_losses(0, 0, 1, Duration::from_micros(7))
}

/// The clock in MHz and the reasons of sample `i`.
pub fn state(i: u64) -> (f64, f64) {
    (if i < 4 { 1_980e6 } else { 1_200e6 }, if i < 4 { 0.0 } else { 4.0 })
}

fn nvml(start_ns: u64) -> Series {
    let metrics = vec![
        Metric::new("nvml__clock_sm", "SM clock", Unit::Hertz, Kind::State),
        Metric::new("nvml__clock_event_reasons", "Clock event reasons", Unit::Flags, Kind::State),
        Metric::new("nvml__power", "Power", Unit::Watts, Kind::Mean),
        // Called as one of the counters.
        Metric::new("nvml__utilization_gpu", "SM active", Unit::Percent, Kind::Mean),
    ];
    let mut series = Series::new(0, Source::Nvml, Duration::from_nanos(10 * LONG), metrics);
    for i in 0..10 {
        let at = start_ns + i * 10 * LONG;
        let (clock, reasons) = state(i);
        series.push(at, at + 10 * LONG, &[clock, reasons, 400.5, i as f64]).unwrap();
    }
    series
}

pub fn recorded() -> Recording {
    with_samples(bare())
}

/// What ran, without samples.
pub fn bare() -> Recording {
    let fake = Fake::builder().clock_offset(0).build();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    for _ in 0..2 {
        let _step = nvtx::range("step");
        fake.launch(Work::kernel(c"kernel").taking_ns(5_000));
        let _inner = nvtx::range("inner");
        fake.launch(Work::kernel(c"kernel").taking_ns(5_000));
    }
    profiler.stop_recording().unwrap()
}

/// From 10 us before the first kernel on, which a session needs longer than that to come to.
pub fn with_samples(recording: Recording) -> Recording {
    let first = Profile::from_recording(recording.clone()).kernels().next().unwrap().start();
    let start_ns = recording.windows_ns()[0].0 + first.unwrap().as_nanos() as u64 - 10 * LONG;
    let failure =
        Failure::new(FailureCause::Permission, "counters are for administrators: ask yours");
    recording
        .with_series(counters(0, start_ns))
        .with_series(nvml(start_ns))
        .with_series(counters(1, start_ns))
        .with_series(
            Series::new(2, Source::Counters, Duration::from_nanos(LONG), vec![])
                .with_failure(failure),
        )
}

/// Device 0 runs two kernels in each of two steps and was sampled by counters and NVML, device 1 was sampled alone, and device
/// 2 could not be.
pub fn sampled() -> Profile {
    Profile::from_recording(recorded())
}
