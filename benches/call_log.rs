//! The cost of our two driver callbacks, one at the start and one at the end of a call.
//!
//! The fake of CUPTI makes the call, which costs more than our callbacks. The same call is
//! therefore also timed while no collector runs. While one runs, a call that is not on our list is
//! timed, too. For that call the fake does the same work (its locks, its check of which callbacks
//! are enabled) but does not call us. `pair` is the difference from it, computed within each
//! sample. It is the cost of our code, without CUPTI's own path into a callback.
#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up must fail")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use cupti::sys::functions::DRIVER_CALLS;
use cupti::{Collector, Config, Library};
use fake_cupti::Fake;
use gpu_profiler_benches::fresh_memory;
use profiler_core::{Profiler, Sampling};

/// The number of calls in one collection: 4 MiB of log.
const PER_COLLECTION: u64 = 100_000;
/// The name of a call that submits work.
const LAUNCH: &str = "cuLaunchKernel";
/// The number of consecutive calls of one kind before the other kind is timed.
const BLOCK: u64 = 1_000;

fn call_log(c: &mut Criterion) {
    fresh_memory();
    // Use the newest version, in which every call of the list exists.
    let fake = Fake::builder().version(130_500).build();
    let library = fake.library().expect("the fake opens");
    // The fake looks up a call by its name in the list. The last name, and a missing name that
    // differs from it only in the last character, take equally long.
    let last = DRIVER_CALLS[DRIVER_CALLS.len() - 1].name;
    let unrecorded = format!("{}?", &last[..last.len() - 1]);

    let mut group = c.benchmark_group("call_log");
    group.bench_function("fake, no collector", |b| {
        b.iter(|| fake.call_only(black_box("cuMemAlloc_v2"), 0));
    });
    group.bench_function("fake and both callbacks", |b| {
        b.iter_custom(|iterations| {
            in_collections(&library, &Config::new(), iterations, |count| {
                (time(&fake, "cuMemAlloc_v2", count), count)
            })
        });
    });
    group.bench_function("fake, a call that is not recorded", |b| {
        b.iter_custom(|iterations| {
            in_collections(&library, &Config::new(), iterations, |count| {
                (time(&fake, &unrecorded, count), 0)
            })
        });
    });
    // A launch is looked up faster than other calls. Of the last three rows, compare only the two
    // launches. The age limit is so long that no launch takes a stack.
    let stacks = Config::new().stacks_after(Duration::from_secs(3600));
    for (name, function, config) in [
        ("pair (both callbacks less the fake)", last, &Config::new()),
        ("pair, a launch", LAUNCH, &Config::new()),
        ("pair, a launch, with stacks", LAUNCH, &stacks),
    ] {
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                let difference = in_collections(&library, config, iterations, |count| {
                    let mut with = Duration::ZERO;
                    let mut without = Duration::ZERO;
                    let mut left = count;
                    while left > 0 {
                        let block = left.min(BLOCK);
                        left -= block;
                        without += time(&fake, &unrecorded, block);
                        with += time(&fake, function, block);
                    }
                    (with.saturating_sub(without), count)
                });
                // The difference of a few calls may be zero, and criterion would divide by it.
                difference.max(Duration::from_nanos(1))
            });
        });
    }
    let stacks = Profiler::builder().library(library.clone()).stacks_after(Duration::ZERO);
    let sampled = Profiler::builder().library(library).stacks_after(Duration::ZERO);
    for (name, builder) in [
        ("fake, both callbacks and a stack", stacks),
        // Each call ends a gap, and there are more gaps than the sampler can read.
        ("fake, both callbacks, a stack and a sampler", sampled.sample(Sampling::host())),
    ] {
        let profiler = builder.build().expect("the fake serves");
        group.bench_function(name, |b| {
            b.iter_custom(|iterations| {
                profiler.start().expect("no other session runs");
                let time = time(&fake, LAUNCH, iterations);
                let profile = profiler.stop().expect("the session runs");
                assert_eq!(profile.host_stacks().calls, iterations, "{}", profile.host_stacks());
                time
            });
        });
    }
    group.finish();
}

fn time(fake: &Fake, function: &str, count: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        black_box(fake.call_only(black_box(function), 0));
    }
    start.elapsed()
}

/// Makes `iterations` calls in as many collections as needed, so that no log grows without limit.
/// Starting and stopping a collection is not timed. `run` returns its time and the expected number
/// of logged calls.
fn in_collections(
    library: &Library,
    config: &Config,
    iterations: u64,
    mut run: impl FnMut(u64) -> (Duration, u64),
) -> Duration {
    let mut left = iterations;
    let mut total = Duration::ZERO;
    while left > 0 {
        let count = left.min(PER_COLLECTION);
        left -= count;
        let collector = Collector::start(library, config).expect("no other one runs");
        let (time, recorded) = run(count);
        total += time;
        let collected = collector.stop().expect("the collector runs");
        let calls: usize = collected.calls.iter().map(|log| log.calls.len()).sum();
        assert_eq!(calls as u64, recorded, "every call is in the log");
    }
    total
}

criterion_group! {
    name = benches;
    config = gpu_profiler_benches::criterion(3);
    targets = call_log
}
criterion_main!(benches);
