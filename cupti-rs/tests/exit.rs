//! Processes that end, or fork, while a collection runs: none hangs, none crashes.
//!
//! This program starts itself again, once a scene, with the fake in place of CUPTI.
#![allow(clippy::unwrap_used, clippy::panic)] // tests
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cupti::counters::{PmSampler, RangeProfiler, SamplerBuilder, Samples};
use cupti::{Collector, Config, Holder, PcSampling};
use fake_cupti::{Fake, Work};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;

/// Tells this program, started by itself, what to do.
const SCENE: &str = "CUPTI_EXIT_SCENE";

/// How a scene ends: with an exit code, or with a signal.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Code(i32),
    Signal(i32),
}

type Scene = fn() -> ExitCode;

const SCENES: [(&str, Scene, End); 14] = [
    ("main_returns", main_returns, End::Code(0)),
    ("main_returns_with_threads_that_launch", main_returns_with_threads, End::Code(0)),
    ("the_program_exits", the_program_exits, End::Code(3)),
    ("a_thread_exits_the_program", a_thread_exits, End::Code(4)),
    ("main_panics", main_panics, End::Code(101)),
    ("the_program_aborts", the_program_aborts, End::Signal(libc::SIGABRT)),
    ("the_program_exits_while_it_is_sampled", exits_sampled, End::Code(5)),
    ("an_exit_handler_stops_a_sampler", exit_handler_stops_sampler, End::Code(6)),
    ("a_child_is_left_out_and_the_parent_goes_on", a_child_is_left_out, End::Code(0)),
    ("a_child_of_a_stopped_collection_has_none", a_child_of_a_stopped_collection, End::Code(0)),
    ("a_child_drops_and_ends", a_child_drops_and_ends, End::Code(0)),
    ("a_child_does_not_wait_for_a_sampler", a_child_of_a_sampler, End::Code(0)),
    ("a_child_reads_no_instruction_samples", a_child_of_instruction_samples, End::Code(0)),
    ("a_child_ends_no_measurement_of_its_parents", a_child_of_a_measurement, End::Code(0)),
];

fn main() -> ExitCode {
    if let Ok(scene) = env::var(SCENE) {
        let (_, run, _) = SCENES.iter().find(|(name, ..)| *name == scene).unwrap();
        return run();
    }
    let trials = SCENES.iter().map(|(name, _, end)| Trial::test(*name, move || play(name, end)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Plays a scene in a process of its own and waits for its end, at most two minutes: so waits in scenes are bounded, too.
fn play(scene: &str, end: &End) -> Result<(), Failed> {
    use std::os::unix::process::ExitStatusExt;
    let mut child = Command::new(env::current_exe()?).env(SCENE, scene).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err("it hangs".into());
        }
        // Polls: the standard library has no wait for a child with a time limit.
        std::thread::sleep(Duration::from_millis(10));
    };
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or(0)),
    };
    if ended == *end { Ok(()) } else { Err(format!("it ended with {ended:?}").into()) }
}

/// The fake for the life of the process, whose end acts as CUPTI's may.
fn fake() -> &'static Fake {
    // Where a leak checker finds it.
    static PLACE: AtomicPtr<Fake> = AtomicPtr::new(std::ptr::null_mut());
    let fake = Box::leak(Box::new(Fake::new()));
    PLACE.store(fake, Ordering::Relaxed);
    black_box(&PLACE); // which is never read
    fake.act_at_exit();
    fake
}

/// A collection that is neither stopped nor dropped, as in a program's static.
fn forget(collector: Collector) {
    static PLACE: Mutex<Option<Collector>> = Mutex::new(None);
    *PLACE.lock() = Some(collector);
}

/// A running collection with all that could be in the way at the end.
fn collect(fake: &Fake) -> Collector {
    let samples = PcSampling::continuous().drain_period(Duration::from_micros(50));
    let config = Config::new().buffer_bytes(1).runtime_calls(true).graph_events(true);
    let config = config.pc_sampling(samples);
    fake.pc_samples(c"k", &[(0, 9, 1)]);
    let collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    for _ in 0..1_000 {
        fake.launch(Work::kernel(c"k"));
    }
    let mut graph = fake.graph();
    fake.capture_into(&mut graph, &Work::kernel(c"k"));
    collector
}

fn main_returns() -> ExitCode {
    forget(collect(fake()));
    ExitCode::SUCCESS
}

fn main_returns_with_threads() -> ExitCode {
    let fake = fake();
    let collector = collect(fake);
    let launched = Arc::new(Barrier::new(5));
    for _ in 0..4 {
        let launched = launched.clone();
        std::thread::spawn(move || {
            fake.launch(Work::kernel(c"k"));
            launched.wait();
            loop {
                fake.launch(Work::kernel(c"k"));
            }
        });
    }
    launched.wait();
    forget(collector);
    ExitCode::SUCCESS
}

fn the_program_exits() -> ExitCode {
    let _collector = collect(fake());
    std::process::exit(3)
}

fn a_thread_exits() -> ExitCode {
    let fake = fake();
    let _collector = collect(fake);
    std::thread::spawn(|| {
        fake.launch(Work::kernel(c"k"));
        std::process::exit(4)
    });
    loop {
        fake.launch(Work::kernel(c"k"));
    }
}

fn main_panics() -> ExitCode {
    let _collector = collect(fake());
    std::panic::set_hook(Box::new(|_| {}));
    panic!("on purpose");
}

fn the_program_aborts() -> ExitCode {
    let _collector = collect(fake());
    std::process::abort()
}

/// Forks; the child runs `child` and ends without exit handlers, with whether it was content. Gives whether it was.
fn fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let content = child();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!content)) };
    }
    let mut status = 0;
    // SAFETY: `process` is our child and `status` a live int.
    unsafe { libc::waitpid(process, &mut status, 0) };
    status == 0
}

fn a_child_is_left_out() -> ExitCode {
    let fake = fake();
    let config = Config::new().profiler_switch(true);
    let library = fake.library().unwrap();
    let mut place = Some(Collector::start(&library, &config).unwrap());
    fake.profiler_start();
    fake.launch(Work::kernel(c"k"));
    let content = fork(|| {
        // CUPTI's callbacks in the child, if it makes any, find nothing to do.
        fake.call_only("cuMemAlloc_v2", 0);
        fake.profiler_stop();
        // Some buffers are asked for and given back.
        (0..10_000).for_each(|_| _ = fake.launch(Work::kernel(c"k")));
        let forked = |result: Result<(), cupti::Error>| {
            result.is_err_and(|error| error.to_string().contains("forked"))
        };
        let mut collector = place.take().unwrap();
        forked(collector.flush())
            && forked(collector.pause())
            && forked(collector.resume())
            && forked(Collector::start(&library, &Config::new()).map(drop))
            && forked(collector.stop().map(drop))
    });
    fake.launch(Work::kernel(c"k"));
    fake.profiler_stop();
    let collected = place.unwrap().stop().unwrap();
    let (calls, records) = (collected.calls[0].calls.len(), collected.records.iter().count());
    let parent = (calls, records, collected.windows_ns.len()) == (2, 2, 1);
    ExitCode::from(u8::from(!content) | u8::from(!parent) << 1)
}

fn a_child_of_a_stopped_collection() -> ExitCode {
    let fake = fake();
    let library = fake.library().unwrap();
    drop(collect(fake).stop().unwrap());
    let content = fork(|| {
        let started = Collector::start(&library, &Config::new());
        let sampled = PmSampler::builder(&library).metrics(["fake__0.sum"]).start();
        started.is_err_and(|error| error.to_string().contains("forked"))
            && sampled.is_err_and(|error| error.to_string().contains("forked"))
            && !fake.is_recording()
            && matches!(library.support().holder, Holder::Unknown(why) if why.contains("forked"))
    });
    let parent = Collector::start(&library, &Config::new()).is_ok();
    ExitCode::from(u8::from(!content) | u8::from(!parent) << 1)
}

fn sampler(fake: &Fake) -> SamplerBuilder {
    PmSampler::builder(&fake.library().unwrap()).metrics(["fake__0.sum"])
}

fn start_sampler(fake: &Fake) -> PmSampler {
    sampler(fake).start().unwrap()
}

fn exits_sampled() -> ExitCode {
    let _sampler = start_sampler(fake());
    std::process::exit(5)
}

/// The handler of a program, or of a library that is injected, is older than CUPTI's.
fn exit_handler_stops_sampler() -> ExitCode {
    static SAMPLER: Mutex<Option<(PmSampler, SamplerBuilder)>> = Mutex::new(None);
    extern "C" fn stop() {
        let (sampler, another) = SAMPLER.lock().take().unwrap();
        let samples = sampler.stop();
        // The first sample begins with the reservation, and is left out.
        let has_all =
            samples.is_ok_and(|samples| samples.len() == 2 && samples.failure().is_none());
        if !has_all || another.start().is_ok() {
            std::process::abort();
        }
    }
    // SAFETY: the handler is a function of this program and does not unwind.
    unsafe { libc::atexit(stop) };
    let fake = fake();
    *SAMPLER.lock() = Some((start_sampler(fake), sampler(fake)));
    (0..3).for_each(|at| fake.sample(at, at + 1, 1));
    ExitCode::from(6)
}

fn a_child_of_a_sampler() -> ExitCode {
    let fake = fake();
    let mut sampler = Some(start_sampler(fake));
    // Samples that wait are the parent's.
    (0..3).for_each(|at| fake.sample(at, at + 1, 1));
    while fake.undecoded_samples() > 0 {
        std::thread::yield_now();
    }
    // A child has no thread that could end.
    let drops = fork(|| {
        drop(sampler.take());
        true
    });
    let stops = fork(|| {
        let mut sampler = sampler.take().unwrap();
        let is_forked = |result: Result<Samples, cupti::Error>| {
            result.is_err_and(|error| error.to_string().contains("forked"))
        };
        sampler.metrics().len() == 1 && is_forked(sampler.drain()) && is_forked(sampler.stop())
    });
    let parent = sampler.unwrap().stop().is_ok_and(|samples| samples.len() == 2);
    ExitCode::from(u8::from(!drops) | u8::from(!stops) << 1 | u8::from(!parent) << 2)
}

/// A child whose parent samples instructions: it exits with all exit handlers and calls no CUPTI.
fn a_child_of_instruction_samples() -> ExitCode {
    /// The child's exit status, once it has one.
    static STATUS: AtomicI32 = AtomicI32::new(-1);
    extern "C" fn leave_child() {
        let status = STATUS.load(Ordering::Relaxed);
        if status >= 0 {
            // SAFETY: ends the child after the handlers that are tested, before that of a leak checker.
            unsafe { libc::_exit(status) };
        }
    }
    // SAFETY: the handler is a function of this program and does not unwind.
    unsafe { libc::atexit(leave_child) };
    let fake = Fake::new();
    fake.pc_samples(c"k", &[(0, 9, 1)]);
    let config = Config::new().pc_sampling(PcSampling::continuous().drain_period(Duration::MAX));
    let mut place = Some(Collector::start(&fake.library().unwrap(), &config).unwrap());
    fake.launch(Work::kernel(c"k"));
    // SAFETY: the child calls what is tested.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let collector = place.take().unwrap();
        fake.create_context(2);
        let is_forked = collector.drain().is_err() && collector.held_bytes() == 0;
        drop(collector);
        let is_untouched = fake.sampled_contexts().into_keys().eq([1]);
        STATUS.store((!(is_forked && is_untouched)).into(), Ordering::Relaxed);
        std::process::exit(2);
    }
    let mut status = 0;
    // SAFETY: `process` is our child and `status` a live int.
    unsafe { libc::waitpid(process, &mut status, 0) };
    let samples = place.unwrap().stop().unwrap().pc_sampling.unwrap();
    ExitCode::from(u8::from(status != 0) | u8::from(samples.recorded_samples() != 1) << 1)
}

/// A child that is forked off amid the work goes on with it, and meets no CUPTI.
fn a_child_of_a_measurement() -> ExitCode {
    let fake = fake();
    let library = fake.library().unwrap();
    let profiler = RangeProfiler::builder(&library).metrics(["fake__0.sum"]).build().unwrap();
    let mut process = -1;
    let waits = fake.context_waits();
    let measured = profiler.measure(|ranges| {
        // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
        process = unsafe { libc::fork() };
        ranges.run_in("a", || fake.count(3));
    });
    if process == 0 {
        let is_forked = measured.is_err_and(|error| error.to_string().contains("forked"));
        // The counters are its parent's still, and nothing was waited for.
        let is_left_alone = fake.counts() && fake.context_waits() == waits;
        drop(profiler);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!(is_forked && is_left_alone))) };
    }
    let mut status = 0;
    // SAFETY: `process` is our child and `status` a live int.
    unsafe { libc::waitpid(process, &mut status, 0) };
    let parent = measured.is_ok_and(|measured| measured.range("a").is_some());
    ExitCode::from(u8::from(status != 0) | u8::from(!parent) << 1)
}

fn a_child_drops_and_ends() -> ExitCode {
    static STOP: AtomicBool = AtomicBool::new(false);
    let fake = fake();
    let collector = collect(fake);
    // Other threads hold locks of ours now and then; in the child nobody would ever give them back.
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(|| {
                while !STOP.load(Ordering::Relaxed) {
                    fake.launch(Work::kernel(c"k"));
                }
            })
        })
        .collect();
    let mut collector = Some(collector);
    for _ in 0..20 {
        let content = fork(|| {
            drop(collector.take());
            true
        });
        if !content {
            return ExitCode::from(1);
        }
    }
    STOP.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let collected = collector.unwrap().stop().unwrap();
    let calls: usize = collected.calls.iter().map(|thread| thread.calls.len()).sum();
    let records = collected.records.iter().count();
    // One of the calls was captured.
    ExitCode::from(u8::from(calls != records + 1))
}
