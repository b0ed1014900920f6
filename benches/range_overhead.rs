//! The cost of a range, from `nvtx::range` to the drop of its guard.
//!
//! Idle (no tool, no profiler), and with a `Profiler` session over the fake of CUPTI. The fake
//! takes no part in ranges: the observer and the range log are the real ones.
#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up must fail")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use fake_cupti::Fake;
use gpu_profiler_benches::fresh_memory;
use nvtx::{Dtype, Work};
use profiler_core::Profiler;

/// The number of ranges in one session: 3 MiB of log, and the same number of names if each range
/// has its own.
const PER_SESSION: u64 = 100_000;

fn idle(c: &mut Criterion) {
    let mut group = c.benchmark_group("range");
    // The guard is stored in memory, like a guard in a struct.
    group.bench_function("idle", |b| b.iter(|| nvtx::range(black_box("step"))));
    group.bench_function("idle, ended in place", |b| {
        b.iter(|| drop(nvtx::range(black_box("step"))));
    });
    group.bench_function("idle, with a payload and two fields", |b| {
        b.iter(|| {
            let event = nvtx::event(black_box("matmul")).payload(black_box(12u64));
            let event = event.field("flops", black_box(2e9), "flop");
            drop(event.field("bytes", black_box(96u64), "B").range());
        });
    });
    group.bench_function("idle, with declared work", |b| {
        b.iter(|| {
            let work = Work::gemm(black_box(512), black_box(512), black_box(64), Dtype::F32);
            drop(nvtx::event(black_box("matmul")).work(work).range());
        });
    });
    group.bench_function("idle, with declared work, by the macro", |b| {
        b.iter(|| {
            let size = black_box(512);
            drop(nvtx::range!(work: Work::gemm(size, size, 64, Dtype::F32), "matmul"));
        });
    });
    group.finish();
}

fn recorded(c: &mut Criterion) {
    fresh_memory();
    let fake = Fake::new();
    let library = fake.library().expect("the fake opens");
    let profiler = Profiler::builder().library(library).build().expect("the fake serves");

    let mut group = c.benchmark_group("range");
    // The minimum work of a recorded range.
    group.bench_function("two clock reads", |b| {
        b.iter(|| (cupti::clock::now_ns(), cupti::clock::now_ns()));
    });
    group.bench_function("recorded, literal name", |b| {
        b.iter_custom(|iterations| {
            in_sessions(&profiler, iterations, |count| {
                let start = Instant::now();
                for _ in 0..count {
                    drop(nvtx::range(black_box("step")));
                }
                start.elapsed()
            })
        });
    });
    group.bench_function("recorded, literal name, third of three levels", |b| {
        b.iter_custom(|iterations| {
            in_sessions(&profiler, iterations, |count| {
                let _outer = nvtx::range("epoch");
                let _inner = nvtx::range("batch");
                let start = Instant::now();
                for _ in 0..count {
                    drop(nvtx::range(black_box("step")));
                }
                start.elapsed()
            })
        });
    });
    group.bench_function("recorded, with declared work", |b| {
        b.iter_custom(|iterations| {
            in_sessions(&profiler, iterations, |count| {
                let start = Instant::now();
                for _ in 0..count {
                    let work = Work::gemm(black_box(512), 512, 64, Dtype::F32);
                    drop(nvtx::event(black_box("step")).work(work).range());
                }
                start.elapsed()
            })
        });
    });
    // Every name is new to the session, the worst case: each is added to the thread's table of
    // names.
    group.bench_function("recorded, computed name, new each time", |b| {
        b.iter_custom(|iterations| {
            in_sessions(&profiler, iterations, |count| {
                let names: Vec<String> = (0..count).map(|i| format!("batch {i}")).collect();
                let start = Instant::now();
                for name in &names {
                    drop(nvtx::range(black_box(name)));
                }
                start.elapsed()
            })
        });
    });
    for (name, texts) in [("the same 8", 8), ("new each time", PER_SESSION)] {
        group.bench_function(format!("recorded, a field with a text of 36 bytes, {name}"), |b| {
            b.iter_custom(|iterations| {
                in_sessions(&profiler, iterations, |count| {
                    let ids: Vec<_> = (0..count.min(texts)).map(|i| format!("{i:036}")).collect();
                    let ids = ids.iter().cycle().take(count as usize);
                    let start = Instant::now();
                    for id in ids {
                        drop(nvtx::event(black_box("request")).field("id", &**id, "").range());
                    }
                    start.elapsed()
                })
            });
        });
    }
    let mut i = 0u64;
    group.bench_function("format!(\"batch {i}\") alone", |b| {
        b.iter(|| {
            i = (i + 1) % PER_SESSION;
            format!("batch {i}")
        });
    });
    group.finish();
}

/// Runs `iterations` ranges in as many sessions as needed, so that no log grows without limit.
fn in_sessions(
    profiler: &Profiler,
    iterations: u64,
    mut run: impl FnMut(u64) -> Duration,
) -> Duration {
    let mut left = iterations;
    let mut total = Duration::ZERO;
    while left > 0 {
        let count = left.min(PER_SESSION);
        left -= count;
        profiler.start().expect("no other session runs");
        // Creates the thread's log and adds the usual name to its table.
        drop(nvtx::range("step"));
        total += run(count);
        let recording = profiler.stop_recording().expect("the session runs");
        drop(recording);
    }
    total
}

criterion_group! {
    name = benches;
    config = gpu_profiler_benches::criterion(3);
    targets = idle, recorded
}
criterion_main!(benches);
