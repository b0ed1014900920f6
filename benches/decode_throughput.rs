//! The speed of reading a recording: decoding CUPTI's records, and joining a whole recording to a
//! profile.
#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up must fail")]

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use cupti::{Collector, Config, RecordBytes};
use fake_cupti::{Fake, Work};
use gpu_profiler_benches::is_measuring;
use profiler_core::{Profile, Profiler, Recording};

fn decode(c: &mut Criterion) {
    let count: u64 = if is_measuring() { 1_000_000 } else { 10_000 };
    let kernel = Work::kernel(c"_Z4axpyfPKfPf");
    let copy = Work::host_to_device(4096);
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(count));
    for (name, works) in
        [("kernels", &[kernel.clone()][..]), ("half kernels, half copies", &[kernel, copy])]
    {
        let records = records(count, works);
        assert_eq!(records.iter().count() as u64, count);
        group.bench_function(name, |b| {
            b.iter(|| {
                for record in &records {
                    black_box(&record);
                }
            });
        });
    }
    group.finish();
}

/// Records of these kinds of work in turn, in the layout of CUPTI 13.0. The fake writes 10,000 of
/// them, which are repeated, each time in new memory.
fn records(count: u64, works: &[Work]) -> RecordBytes {
    const WRITTEN: u64 = 10_000;
    let fake = Fake::new();
    let library = fake.library().expect("the fake opens");
    let collector = Collector::start(&library, &Config::new()).expect("no other one runs");
    for _ in 0..WRITTEN / works.len() as u64 {
        works.iter().for_each(|work| fake.unseen(work));
    }
    let written = collector.stop().expect("the collector runs").records;
    let names = written.names().map(|(key, name)| (key, name.to_owned()));
    let buffers = (0..count / WRITTEN).flat_map(|_| written.buffers().map(<[u8]>::to_vec));
    RecordBytes::from_parts(written.version(), buffers.collect(), written.strides(), names)
}

fn join(c: &mut Criterion) {
    let launches: u64 = if is_measuring() { 1_000_000 } else { 2_000 };
    let mut group = c.benchmark_group("join");
    group.sample_size(20);
    group.throughput(Throughput::Elements(launches));
    let makes = [
        ("launches in ranges", training as fn(u64) -> Recording),
        ("each launch in a range of its own", one_by_one),
    ];
    for (name, make) in makes {
        let recording = make(launches);
        let profile = Profile::from_recording(recording.clone());
        profile.health().assert_complete();
        assert_eq!(profile.kernels().count() as u64, launches);
        drop(profile);
        group.bench_function(name, |b| {
            b.iter_batched(|| recording.clone(), Profile::from_recording, BatchSize::PerIteration);
        });
        group.bench_function(format!("{name}, and then every range's sums"), |b| {
            let run = |recording| {
                let profile = Profile::from_recording(recording);
                profile.ranges().for_each(|range| _ = black_box(range.inclusive()));
                profile
            };
            b.iter_batched(|| recording.clone(), run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Merges a run of eight processes into one profile, and infers ranges for launches of a thread
/// without ranges.
fn merge_and_infer(c: &mut Criterion) {
    const PROCESSES: u64 = 8;
    let launches: u64 = if is_measuring() { 1_000_000 } else { 2_000 };
    let mut group = c.benchmark_group("join");
    group.sample_size(10);
    group.throughput(Throughput::Elements(launches));
    let part = training(launches / PROCESSES);
    group.bench_function("eight recordings as one profile", |b| {
        let parts = || vec![part.clone(); PROCESSES as usize];
        let merge = |parts| Profile::from_recordings(parts).expect("they have one clock");
        b.iter_batched(parts, merge, BatchSize::PerIteration);
    });
    let recording = from_helper(launches);
    let joined = || Profile::from_recording(recording.clone());
    let inferred = joined().with_inferred_ranges().health().facts.inferred_operations;
    assert!(inferred * 10 > launches * 9, "{inferred} of {launches}");
    group.bench_function("ranges inferred", |b| {
        b.iter_batched(joined, Profile::with_inferred_ranges, BatchSize::PerIteration);
    });
    group.finish();
}

/// Writes a recording of a million launches to bytes and reads it, in memory and through a file.
fn file(c: &mut Criterion) {
    let launches: u64 = if is_measuring() { 1_000_000 } else { 2_000 };
    let recording = training(launches);
    let bytes = recording.to_bytes();
    let path = std::env::temp_dir().join(format!("decode-{}.gpuprof", std::process::id()));
    let mut group = c.benchmark_group("file");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("write to memory", |b| b.iter_with_large_drop(|| recording.to_bytes()));
    group.bench_function("read from memory", |b| {
        b.iter_with_large_drop(|| Recording::from_bytes(&bytes).expect("it was written whole"));
    });
    group.bench_function("write to a file", |b| {
        b.iter(|| recording.save(&path).expect("the folder can be written to"));
    });
    group.bench_function("read from a file", |b| {
        b.iter_with_large_drop(|| Recording::load(&path).expect("it was written whole"));
    });
    group.finish();
    // The file exists only if all benchmarks ran.
    let _ = std::fs::remove_file(&path);
}

/// The recording of a session during this work.
fn recording(work: impl FnOnce(&Fake)) -> Recording {
    let fake = Fake::new();
    let profiler = Profiler::builder()
        .library(fake.library().expect("the fake opens"))
        .build()
        .expect("the fake serves");
    profiler.start().expect("no other session runs");
    work(&fake);
    profiler.stop_recording().expect("the session runs")
}

/// Launches eight kernels on two streams in turn. Each `batch` has 50 launches, half of them in its
/// `forward` and half in its `backward`, and ends with a wait.
fn training(launches: u64) -> Recording {
    const NAMES: [&std::ffi::CStr; 8] = [
        c"gemm_nt",
        c"bias_relu",
        c"gemm_nn",
        c"bias_add",
        c"mse_grad",
        c"gemm_tn",
        c"col_sum",
        c"sgd_update",
    ];
    recording(|fake| {
        for _ in 0..launches / 50 {
            let _batch = nvtx::range("batch");
            for part in ["forward", "backward"] {
                let _part = nvtx::range(part);
                for i in 0..25 {
                    let kernel = Work::kernel(NAMES[i % NAMES.len()]);
                    fake.launch(kernel.on_stream(7 + (i % 2) as u32));
                }
            }
            fake.launch(Work::synchronize());
        }
    })
}

/// Launches on a thread without ranges, 50 while another thread waits in each `backward`.
fn from_helper(launches: u64) -> Recording {
    recording(|fake| {
        let (send, orders) = mpsc::channel::<()>();
        let (done, wait) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for () in orders {
                    for _ in 0..50 {
                        fake.launch(Work::kernel(c"backward"));
                    }
                    done.send(()).expect("the caller waits");
                }
            });
            for _ in 0..launches / 50 {
                let _step = nvtx::range("step");
                let _backward = nvtx::range("backward");
                send.send(()).expect("the helper runs");
                wait.recv().expect("the helper runs");
            }
            drop(send);
        });
        fake.launch(Work::synchronize());
    })
}

/// The same work as `launch_cost` with ranges on a GPU: one kernel, each launch in a range, a wait
/// every 500 launches.
fn one_by_one(launches: u64) -> Recording {
    recording(|fake| {
        for launch in 1..=launches {
            let _range = nvtx::range("launch");
            fake.launch(Work::kernel(c"empty"));
            if launch % 500 == 0 {
                fake.launch(Work::synchronize());
            }
        }
    })
}

criterion_group! {
    name = benches;
    config = gpu_profiler_benches::criterion(5);
    targets = decode, join, merge_and_infer, file
}
criterion_main!(benches);
