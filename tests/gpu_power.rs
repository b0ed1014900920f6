//! NVML's power and energy over a steady load of a known length, with idle time before and after.
//!
//! Three values measure the same thing: the energy counter (millijoules since the driver was loaded), the power
//! (a mean of up to the last second on most GPUs) and the instantaneous power (field 186). The test reads them every
//! few milliseconds, beside a session that samples them, and prints how often each changes and what each comes to.
//! With `OUT` set, the text and all readings are saved there.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test that prints what it measured

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use gpu_profiler_tests::counted::{BLOCK, Counted, Gemm};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu};
use gpu_profiler_tests::harness;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use profiler_core::profile::Track;
use profiler_core::{Profile, Profiler, Sampling};

/// `NVML_FI_DEV_POWER_AVERAGE` and `NVML_FI_DEV_POWER_INSTANT`, both in milliwatts.
const POWER_AVERAGE: FieldId = FieldId(185);
const POWER_INSTANT: FieldId = FieldId(186);

const IDLE: Duration = Duration::from_secs(3);
const LOAD: Duration = Duration::from_secs(6);
/// A mean of the last second has forgotten what was before.
const SETTLED: Duration = Duration::from_millis(1500);

fn main() -> ExitCode {
    harness::run(&[("energy_and_power_agree_over_a_steady_load", steady)]).exit_code()
}

/// What NVML returned at one time; `NaN` where it returned an error.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Seconds since the first, before and after the calls.
    begun: f64,
    ended: f64,
    /// Joules.
    energy: f64,
    /// Watts: `nvmlDeviceGetPowerUsage`, and the two fields.
    power: f64,
    average: f64,
    instant: f64,
}

/// One value of a reading.
type Value = fn(&Reading) -> f64;

fn field(device: &Device<'_>, id: FieldId) -> f64 {
    let sample = device.field_values_for(&[id]).ok().and_then(|mut values| values.pop());
    match sample.and_then(|value| value.ok()?.value.ok()) {
        Some(SampleValue::U32(milliwatts)) => f64::from(milliwatts) / 1e3,
        _ => f64::NAN,
    }
}

/// Reads every 2 ms until it is stopped.
fn read(device: &Device<'_>, epoch: Instant, ends: &AtomicBool) -> Vec<Reading> {
    let mut readings = Vec::new();
    while !ends.load(Ordering::Acquire) {
        let begun = epoch.elapsed().as_secs_f64();
        let energy = device.total_energy_consumption().map_or(f64::NAN, |mj| mj as f64 / 1e3);
        let power = device.power_usage().map_or(f64::NAN, |mw| f64::from(mw) / 1e3);
        let average = field(device, POWER_AVERAGE);
        let instant = field(device, POWER_INSTANT);
        let ended = epoch.elapsed().as_secs_f64();
        readings.push(Reading { begun, ended, energy, power, average, instant });
        std::thread::sleep(Duration::from_millis(2));
    }
    readings
}

/// The mean of a value over a time, each reading for as long as it was the latest.
fn mean(readings: &[Reading], from: f64, to: f64, value: Value) -> f64 {
    let (mut sum, mut time) = (0.0, 0.0);
    for pair in readings.windows(2) {
        let span = pair[1].begun.min(to) - pair[0].begun.max(from);
        let value = value(&pair[0]);
        if span > 0.0 && value.is_finite() {
            sum += value * span;
            time += span;
        }
    }
    sum / time
}

/// When the value changed, in seconds, with the new value; the first reading is left out.
fn changes(readings: &[Reading], value: Value) -> Vec<(f64, f64)> {
    let pairs = readings.windows(2);
    let changed = pairs.filter(|pair| value(&pair[0]) != value(&pair[1]));
    changed.map(|pair| (pair[1].begun, value(&pair[1]))).collect()
}

fn percentiles(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get((part * (values.len().max(1) - 1) as f64) as usize);
    let [least, median, most] = [0.0, 0.5, 1.0].map(|part| at(part).copied().unwrap_or(f64::NAN));
    format!("{least:.4} / {median:.4} / {most:.4} ({} values)", values.len())
}

/// Watts by the energy counter between its updates that are nearest to these times.
fn watts(updates: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let nearest = |time: f64| {
        let by_distance =
            |a: &&(f64, f64), b: &&(f64, f64)| (a.0 - time).abs().total_cmp(&(b.0 - time).abs());
        *updates.iter().min_by(by_distance).unwrap()
    };
    let ((begun, first), (ended, last)) = (nearest(from), nearest(to));
    (last - first) / (ended - begun)
}

fn series(text: &mut String, profile: &Profile, from: Duration, to: Duration) -> [f64; 3] {
    let labelled = |label: &str| -> Option<Track<'_>> {
        profile.tracks().find(|track| track.label() == label)
    };
    ["energy", "power (lags up to 1 s)", "power now"].map(|label| {
        let Some(track) = labelled(label) else {
            _ = writeln!(text, "  {label}: no track");
            return f64::NAN;
        };
        let mean = track.mean(from, to);
        let inside =
            |sample: &profiler_core::profile::TrackSample| sample.start >= from && sample.end <= to;
        let rates = track.rates().filter(inside).map(|sample| sample.value).collect();
        let value = mean.as_ref().map_or(f64::NAN, |mean| mean.value);
        _ = writeln!(
            text,
            "  {label}: mean {value:.2} W; of single samples {}; {mean:?}",
            percentiles(rates)
        );
        value
    })
}

/// Multiplies, or copies where there is no cuBLAS, for a time; gives when it began and ended, in seconds.
fn load(gpu: &Gpu, work: &dyn Fn(), epoch: Instant) -> (f64, f64) {
    let _range = nvtx::range("load");
    let begun = Instant::now();
    let from = epoch.elapsed().as_secs_f64();
    while begun.elapsed() < LOAD {
        (0..20).for_each(|_| work());
        gpu.synchronize_context();
    }
    (from, epoch.elapsed().as_secs_f64())
}

fn steady() {
    let out = std::env::var_os("OUT").map(PathBuf::from);
    if let Some(out) = &out {
        std::fs::create_dir_all(out).unwrap();
    }
    let gpu = Gpu::get();
    let nvml = Nvml::init().unwrap();
    let [domain, bus, slot] = [
        Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ]
    .map(|attribute| gpu.device_attribute(attribute));
    let device = nvml.device_by_pci_bus_id(format!("{domain:08x}:{bus:02x}:{slot:02x}.0")).unwrap();

    let bytes = 1 << 30;
    let (x, y) = (gpu.alloc(bytes), gpu.alloc(bytes));
    gpu.fill(x, 0x3f, bytes);
    let (kernels, gemm) = (Counted::load(), Gemm::bf16(&gpu, 8192));
    let work = || match &gemm {
        Some(gemm) => gemm.run(),
        None => kernels.copy(DEFAULT, (1 << 28) / BLOCK, x, y),
    };
    work();
    gpu.synchronize_context();

    let mut text = format!(
        "{}, driver {}, load: {}\n",
        device.name().unwrap(),
        nvml.sys_driver_version().unwrap(),
        if gemm.is_some() { "bf16 multiplications" } else { "copies of 1 GiB" }
    );
    let mut means = Vec::new();
    for interval in [Duration::from_millis(100), Duration::from_millis(20)] {
        let sampling = Sampling::nvml().interval(interval);
        let profiler = Profiler::builder().sample(sampling).build().unwrap();
        let ends = AtomicBool::new(false);
        let epoch = Instant::now();
        let (readings, (from, to), profile) = std::thread::scope(|scope| {
            let readings = scope.spawn(|| read(&device, epoch, &ends));
            profiler.start().unwrap();
            std::thread::sleep(IDLE);
            let loaded = load(&gpu, &work, epoch);
            std::thread::sleep(IDLE);
            let profile = profiler.stop().unwrap();
            ends.store(true, Ordering::Release);
            (readings.join().unwrap(), loaded, profile)
        });
        means.push(measured(&mut text, &readings, (from, to), &profile, interval));
        if let Some(out) = &out {
            let mut rows = String::from("begun,ended,energy_j,power_w,average_w,instant_w\n");
            for reading in &readings {
                let Reading { begun, ended, energy, power, average, instant } = reading;
                _ = writeln!(
                    rows,
                    "{begun:.6},{ended:.6},{energy:.3},{power:.3},{average:.3},{instant:.3}"
                );
            }
            let name = format!("power-{}ms.csv", interval.as_millis());
            std::fs::write(out.join(name), rows).unwrap();
        }
    }
    eprintln!("{text}");
    if let Some(out) = &out {
        std::fs::write(out.join("power.txt"), &text).unwrap();
    }
    gpu.free(x);
    gpu.free(y);
    for [energy, power, instant, sampled_energy, sampled_power, sampled_instant] in means {
        for (name, value) in [
            ("power", power),
            ("instantaneous power", instant),
            ("sampled energy", sampled_energy),
            ("sampled power", sampled_power),
            ("sampled instantaneous power", sampled_instant),
        ] {
            // A GPU may lack the field; the counter and the power are what this is about.
            if value.is_nan() && name.ends_with("instantaneous power") {
                continue;
            }
            let off = value / energy - 1.0;
            assert!(off.abs() <= 0.1, "{name}: {value} W beside {energy} W by energy\n{text}");
        }
    }
}

/// Watts of the settled load: energy counter, power, instantaneous power, and the same three as a session sampled them.
fn measured(
    text: &mut String,
    readings: &[Reading],
    (from, to): (f64, f64),
    profile: &Profile,
    interval: Duration,
) -> [f64; 6] {
    let settled = from + SETTLED.as_secs_f64();
    let end = readings.last().unwrap().begun;
    _ = writeln!(
        text,
        "\nsampled every {interval:?}; {} readings; load from {from:.3} s to {to:.3} s of {end:.3} s",
        readings.len()
    );
    let took = readings.iter().map(|reading| (reading.ended - reading.begun) * 1e3).collect();
    _ = writeln!(text, "a reading took (ms): {}", percentiles(took));
    let updates = changes(readings, |reading| reading.energy);
    let values: [(&str, Value); 4] = [
        ("energy", |reading| reading.energy),
        ("power", |reading| reading.power),
        ("average", |reading| reading.average),
        ("instant", |reading| reading.instant),
    ];
    for (name, value) in values {
        let changed = changes(readings, value);
        let inside = changed.iter().filter(|(time, _)| (settled..to).contains(time));
        let times: Vec<f64> = inside.map(|(time, _)| *time * 1e3).collect();
        let between = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        _ = writeln!(text, "{name} changes every (ms, under load): {}", percentiles(between));
    }
    let inside = updates.windows(2).filter(|pair| pair[0].0 >= settled && pair[1].0 <= to);
    let single = inside.map(|pair| (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0)).collect();
    _ = writeln!(text, "watts between two updates of energy: {}", percentiles(single));
    let means = |from: f64, to: f64| {
        let [_, power, average, instant] = values.map(|(_, value)| mean(readings, from, to, value));
        [watts(&updates, from, to), power, average, instant]
    };
    for (name, from, to) in [
        ("idle before", 0.5, from),
        ("load, first 500 ms", from, from + 0.5),
        ("load, whole", from, to),
        ("load, settled", settled, to),
        ("first 500 ms after", to, to + 0.5),
        ("idle after", to + SETTLED.as_secs_f64(), end),
        ("all", 0.0, end),
    ] {
        let [energy, power, average, instant] = means(from, to);
        _ = writeln!(
            text,
            "{name}: by energy {energy:.2} W, power {power:.2} W, average {average:.2} W, instant {instant:.2} W"
        );
    }
    let range = profile.ranges().find(|range| range.name() == "load").unwrap();
    _ = writeln!(text, "the session, whole load:");
    series(text, profile, range.start(), range.end());
    _ = writeln!(text, "the session, settled:");
    let sampled = series(text, profile, range.start() + SETTLED, range.end());
    let [energy, power, _, instant] = means(settled, to);
    [energy, power, instant, sampled[0], sampled[1], sampled[2]]
}
