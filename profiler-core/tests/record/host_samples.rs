//! What threads do inside gaps.
#![allow(clippy::print_stderr, reason = "says what was not run, and how much was")]

use std::hint::black_box;
use std::panic::AssertUnwindSafe;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use profiler_core::profile::{HostSampleCounts, HostState, SampleSource};
use profiler_core::query::GapSample;
use profiler_core::{Profile, Profiler, Recording, Sampling};
use test_support::effort;
use test_support::folder::Folder;

use crate::host_stacks::load_libraries;

const AFTER: Duration = Duration::from_micros(200);

fn profiler(fake: &Fake, sampling: Sampling) -> Profiler {
    let builder = Profiler::builder().library(fake.library().unwrap()).stacks_after(AFTER);
    builder.sample(sampling).build().unwrap()
}

#[inline(never)]
fn computes(time: Duration) -> u64 {
    let begun = Instant::now();
    let mut sum = 0_u64;
    while begun.elapsed() < time {
        for number in 0..1000 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
    }
    sum
}

#[inline(never)]
fn sleeps(time: Duration) {
    std::thread::sleep(time);
    black_box(());
}

/// Both return before the launch that ends the gap.
fn train(fake: &Fake) {
    let time = Duration::from_millis(30);
    fake.launch(Work::kernel(c"warm"));
    // The sampler sees the thread.
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..4 {
        fake.launch(Work::kernel(c"warm"));
        black_box(computes(time));
        fake.launch(Work::kernel(c"after_computing"));
        sleeps(time);
        fake.launch(Work::kernel(c"after_sleeping"));
    }
}

/// Trains until this holds for the samples, each time on another thread: on busy processors some gaps
/// have none, and a thread that finds no room is not sampled later.
fn train_until(
    fake: &Fake,
    profiler: &Profiler,
    is_enough: impl Fn(HostSampleCounts<'_>) -> bool,
) -> Profile {
    loop {
        std::thread::scope(|scope| scope.spawn(|| train(fake)).join()).unwrap();
        if is_enough(profiler.snapshot().unwrap().host_samples()) {
            return profiler.stop().unwrap();
        }
    }
}

/// The samples before kernels of this name.
fn samples<'a>(profile: &'a Profile, kernel: &str) -> Vec<GapSample<'a>> {
    let gaps = profile.query().gaps(Duration::from_millis(5));
    let of_kernel = gaps
        .iter()
        .filter(|gap| gap.after().as_kernel().is_some_and(|after| after.name() == kernel));
    of_kernel.flat_map(|gap| gap.samples()).collect()
}

fn time<'a>(samples: impl IntoIterator<Item = &'a GapSample<'a>>) -> Duration {
    samples.into_iter().map(|sample| sample.span.duration()).sum()
}

fn has_function(sample: &GapSample<'_>, name: &str) -> bool {
    let frames = sample.stack.map(|stack| stack.frames()).unwrap_or_default();
    frames.iter().any(|frame| frame.function.is_some_and(|function| function.ends_with(name)))
}

fn check(profile: &Profile) {
    profile.health().assert_complete();
    let counts = profile.host_samples();
    assert!(counts.parts > 0 && counts.source.is_some(), "{counts}");
    let slept = samples(profile, "after_sleeping");
    let in_sleep = |sample: &&GapSample<'_>| {
        matches!(
            sample.state,
            HostState::Waiting { system_call: Some("clock_nanosleep" | "nanosleep"), .. }
        )
    };
    let waited = time(slept.iter().filter(in_sleep));
    assert!(waited > Duration::from_millis(60), "{waited:?}: {counts}, {slept:?}");
    let computed = samples(profile, "after_computing");
    match counts.source {
        Some(SampleSource::Perf | SampleSource::PerfUser) => {
            let named = time(computed.iter().filter(|sample| has_function(sample, "computes")));
            assert!(named > Duration::from_millis(60), "{named:?}: {counts}, {computed:?}");
        }
        _ => eprintln!("not run: perf_event_open is not permitted here: {counts}"),
    }
    // What waits in no range is in the table, and the parts add up to the gaps.
    let gaps = profile.query().gaps(Duration::from_millis(5));
    let waits = gaps.waits();
    assert!(waits.iter().any(|row| row.key().to_string().contains("nanosleep")), "{waits}");
    let causes: Duration = gaps.by_cause().iter().map(|cause| cause.time()).sum();
    assert_eq!(causes, gaps.time());
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn gaps_have_calls_returned_before_their_end() {
    let fake = Fake::new();
    let profiler = profiler(&fake, Sampling::host());
    profiler.start().unwrap();
    train(&fake);
    let recording = profiler.stop_recording().unwrap();
    let replayed = Recording::from_bytes(&recording.to_bytes()).unwrap();
    assert_eq!(replayed, recording);
    check(&Profile::from_recording(recording));
    check(&Profile::from_recording(replayed));
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn samples_are_in_the_file_of_a_running_session() {
    let folder = Folder::new();
    let fake = Fake::new();
    let path = folder.0.join("run.gpuprof");
    let file = profiler(&fake, Sampling::host()).record_to(&path).unwrap();
    train(&fake);
    file.finish().unwrap();
    check(&Profile::load(path).unwrap());
}

#[test]
fn samples_need_stacks() {
    let fake = Fake::new();
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.sample(Sampling::host()).build().unwrap();
    let error = profiler.start().unwrap_err().to_string();
    assert!(error.contains("stacks_after"), "{error}");
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn second_sampling_session_reports_the_conflict() {
    let fake = Fake::new();
    let (first, second) = (profiler(&fake, Sampling::host()), profiler(&fake, Sampling::host()));
    first.start().unwrap();
    second.start().unwrap();
    train(&fake);
    let profile = second.stop().unwrap();
    let counts = profile.host_samples();
    assert_eq!((counts.source, counts.parts), (None, 0), "{counts}");
    assert!(counts.failure.unwrap().contains("another session"), "{counts}");
    check(&first.stop().unwrap());
    // The next one can.
    second.start().unwrap();
    train(&fake);
    check(&second.stop().unwrap());
}

#[test]
fn parts_over_the_limit_are_counted() {
    let fake = Fake::new();
    let profiler = profiler(&fake, Sampling::host().max_samples(2));
    profiler.start().unwrap();
    let profile = train_until(&fake, &profiler, |counts| counts.losses.over_limit > 0);
    let counts = profile.host_samples();
    assert!(counts.parts == 2 && counts.losses.over_limit > 0, "{counts}");
}

/// More threads than are looked at, all at once, and all end while they are.
#[test]
fn threads_beyond_the_sampled_ones_are_counted() {
    let count = if effort::is_thorough() { 1000 } else { 400 };
    let fake = Fake::new();
    let profiler = profiler(&fake, Sampling::host().timers());
    profiler.start().unwrap();
    let all = Barrier::new(count);
    std::thread::scope(|scope| {
        for _ in 0..count {
            let (fake, all) = (&fake, &all);
            let builder = std::thread::Builder::new().stack_size(256 << 10);
            let work = move || {
                fake.launch(Work::kernel(c"k"));
                all.wait();
                fake.launch(Work::kernel(c"k"));
            };
            builder.spawn_scoped(scope, work).unwrap();
        }
    });
    // There is room again.
    let profile = train_until(&fake, &profiler, |counts| counts.parts > 0);
    profile.health().assert_complete();
    let counts = profile.host_samples();
    // Some may have ended before the last began.
    assert!(counts.losses.threads >= 1 && counts.losses.threads < count as u64, "{counts}");
    assert!(counts.parts > 0, "{counts}");
}

/// Has the kernel refuse `perf_event_open` to this thread and those that it spawns.
fn deny_perf() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_perf = libc::sock_filter {
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_perf_event_open as u32)
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        // The number of the system call, which stands first.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_perf,
        statement(libc::BPF_RET | libc::BPF_K, refuse),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: has no preconditions; the thread and its children gain no privileges from now on.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    // SAFETY: the program and its filter live during the call, which copies them.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(result, 0);
}

/// Threads allocate, panic and end, and libraries come and go, for some seconds; or until there were so many samples of perf, by a
/// thread for each CPU and a sample each 20 us of its time.
fn sample_beside_everything(sampling: Sampling, source: Option<SampleSource>, wanted: Option<u64>) {
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let threads = match wanted {
        Some(_) => cpus.max(8),
        None if effort::is_thorough() => 8,
        None => 2,
    };
    let interval = Duration::from_micros(if wanted.is_some() { 20 } else { 100 });
    let sampling = sampling.interval(interval).max_samples(1_000_000);
    let usual = if effort::is_thorough() { 40_000 } else { 50 };
    let is_perf = |counts: HostSampleCounts<'_>| {
        matches!(counts.source, Some(SampleSource::Perf | SampleSource::PerfUser))
    };
    let fake = Fake::new();
    let profiler = profiler(&fake, sampling);
    profiler.start().unwrap();
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    let (launches, ended) = std::thread::scope(|scope| {
        let (fake, done) = (&fake, &done);
        let loads = scope.spawn(|| load_libraries(done));
        let work = move |thread: u64| {
            let mut random = fastrand::Rng::with_seed(thread);
            let mut launches = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    let mut blocks: Vec<Vec<u8>> = Vec::new();
                    let end = Instant::now() + Duration::from_micros(random.u64(100..2000));
                    while Instant::now() < end {
                        blocks.push(vec![1; random.usize(..10_000)]);
                        blocks.truncate(random.usize(..16));
                    }
                    if random.u8(..8) == 0 {
                        // Unwinds as a panic does, and prints nothing.
                        std::panic::resume_unwind(Box::new(()));
                    }
                }));
                launches += u64::from(caught.is_ok());
                if caught.is_ok() {
                    fake.launch(Work::kernel(c"k"));
                }
            }
            launches
        };
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        let (mut ended, mut pause) = (0, Duration::from_millis(300));
        loop {
            let ending = (0..8).map(|_| {
                scope.spawn(|| {
                    fake.launch(Work::kernel(c"k"));
                    black_box(computes(Duration::from_millis(1)));
                    fake.launch(Work::kernel(c"k"));
                })
            });
            ending.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
            ended += 8;
            // A snapshot has all launches so far, and looks up their functions.
            std::thread::sleep(pause);
            let looked = Instant::now();
            let snapshot = profiler.snapshot().unwrap();
            let counts = snapshot.host_samples();
            let so_far = counts.samples + counts.losses.buffer;
            let (least, seconds) = match wanted.filter(|_| is_perf(counts)) {
                Some(wanted) => (wanted, 600),
                None => (usual, 60),
            };
            if so_far >= least || begun.elapsed() > Duration::from_secs(seconds) {
                break;
            }
            pause = (looked.elapsed() * 4).max(Duration::from_millis(200));
        }
        done.store(true, Ordering::Relaxed);
        loads.join().unwrap();
        let launches = threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        (launches + 2 * ended, ended)
    });
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.kernels().count() as u64, launches);
    let counts = profile.host_samples();
    eprintln!("{counts}, of {threads} threads and {ended} that ended, in {:?}", begun.elapsed());
    match wanted {
        Some(wanted) if is_perf(counts) => {
            assert!(counts.samples + counts.losses.buffer >= wanted, "{counts}");
        }
        Some(wanted) => eprintln!("not run: {wanted} samples, which need perf: {counts}"),
        None => {}
    }
    assert!(counts.samples > 0 && counts.parts > 0, "{counts}");
    assert!(source.is_none_or(|source| counts.source == Some(source)), "{counts}");
}

#[test]
fn samples_of_perf_beside_allocation_panics_libraries_and_ending_threads() {
    let wanted = std::env::var("HOST_SAMPLES").ok().map(|all| all.parse().unwrap());
    sample_beside_everything(Sampling::host().timers(), None, wanted);
}

#[test]
fn samples_of_timers_beside_allocation_panics_libraries_and_ending_threads() {
    // On a thread of its own: what is denied stays so.
    let denied = std::thread::spawn(|| {
        deny_perf();
        sample_beside_everything(Sampling::host().timers(), Some(SampleSource::Timers), None);
    });
    denied.join().unwrap();
}
