//! Stacks of threads at the launches that end gaps.

use std::hint::black_box;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_core::profile::ApiCall;
use profiler_core::{Profile, Profiler, Recording};
use test_support::effort;
use test_support::folder::Folder;

const AFTER: Duration = Duration::from_millis(2);

fn profiler(fake: &Fake) -> Profiler {
    Profiler::builder().library(fake.library().unwrap()).stacks_after(AFTER).build().unwrap()
}

#[inline(never)]
fn load_a_batch(fake: &Fake) {
    fake.advance_clock(3 * AFTER);
    fake.launch(Work::kernel(c"after_a_gap"));
    black_box(());
}

#[inline(never)]
fn train(fake: &Fake) {
    fake.stop_clock();
    for _ in 0..4 {
        load_a_batch(fake);
        for _ in 0..10 {
            fake.launch(Work::kernel(c"in_time"));
        }
    }
    black_box(());
}

/// The functions of this file on the stack of a call, innermost first.
fn own_functions(call: ApiCall<'_>) -> Vec<String> {
    let Some(stack) = call.host_stack() else { return Vec::new() };
    let frames = stack.frames().into_iter().filter_map(|frame| frame.function);
    let own = frames.filter_map(|name| name.split_once("record::host_stacks::"));
    own.map(|(_, name)| name.to_owned()).collect()
}

fn check(profile: &Profile) {
    profile.health().assert_complete();
    let (mut after, mut in_time) = (0, 0);
    for kernel in profile.kernels() {
        let call = kernel.call().unwrap();
        match kernel.name() {
            "after_a_gap" => {
                after += 1;
                let stack = call.host_stack().unwrap();
                // The fake's own frames are those of a driver, which no stack has.
                let frames = stack.frames().into_iter();
                let mut own = frames.skip_while(|frame| {
                    frame.function.is_some_and(|name| name.starts_with("fake_cupti::"))
                });
                let innermost = own.next().unwrap();
                assert!(innermost.function.unwrap().ends_with("load_a_batch"), "{stack}");
                assert!(!innermost.build_id.contains('/') && innermost.module.is_some());
                assert!(!stack.is_truncated(), "{stack}");
                assert!(own_functions(call).contains(&"train".to_owned()), "{stack}");
            }
            _ => in_time += u64::from(call.host_stack().is_none()),
        }
    }
    assert_eq!((after, in_time), (4, 40));
    let counts = profile.host_stacks();
    assert!(counts.calls >= 4 && counts.missing == 0 && counts.losses.total() == 0, "{counts}");
}

#[test]
fn launch_that_ends_a_gap_has_its_callers() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    train(&fake);
    let recording = profiler.stop_recording().unwrap();
    let bytes = recording.to_bytes();
    let replayed = Recording::from_bytes(&bytes).unwrap();
    assert_eq!(replayed, recording);
    let text = String::from_utf8_lossy(&bytes);
    let folder = std::env::current_exe().unwrap().parent().unwrap().display().to_string();
    assert!(text.contains("load_a_batch") && !text.contains(&folder), "a path is in the file");
    check(&Profile::from_recording(recording));
    check(&Profile::from_recording(replayed));
}

#[test]
fn stacks_are_in_the_file_of_a_running_session() {
    let folder = Folder::new();
    let fake = Fake::new();
    let file = profiler(&fake).record_to(folder.0.join("run.gpuprof")).unwrap();
    train(&fake);
    file.finish().unwrap();
    check(&Profile::load(folder.0.join("run.gpuprof")).unwrap());
}

#[test]
fn without_the_option_no_call_has_a_stack() {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    load_a_batch(&fake);
    let profile = profiler.stop().unwrap();
    assert!(profile.calls().all(|call| call.host_stack().is_none()));
    assert_eq!(profile.host_stacks().to_string(), "0 calls with stacks");
}

#[test]
fn gaps_have_the_stack_of_their_last_launch() {
    let fake = Fake::new();
    let profiler = profiler(&fake);
    profiler.start().unwrap();
    train(&fake);
    let profile = profiler.stop().unwrap();
    let gaps = profile.query().gaps(AFTER);
    let named = gaps
        .iter()
        .filter(|gap| gap.stack().is_some_and(|stack| stack.to_string().contains("load_a_batch")));
    assert!(named.count() >= 3, "{gaps}");
}

/// Loads and unloads a library that the process does not have, as often as it can.
pub(crate) fn load_libraries(done: &AtomicBool) -> u64 {
    let mut loaded = 0;
    while !done.load(Ordering::Relaxed) {
        for name in [c"libanl.so.1", c"libresolv.so.2", c"libBrokenLocale.so.1"] {
            // SAFETY: libraries of the C library, without effects of their own.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            if !library.is_null() {
                loaded += 1;
                // SAFETY: opened above, and nothing of it is used.
                unsafe { libc::dlclose(library) };
            }
        }
    }
    loaded
}

/// Calls itself `depth` times, then launches.
#[inline(never)]
fn launch_at(fake: &Fake, depth: u32) {
    match depth {
        0 => _ = fake.launch(Work::kernel(c"k")),
        _ => launch_at(fake, black_box(depth - 1)),
    }
    black_box(());
}

/// Every launch takes a stack, while threads allocate, panic and end, and libraries come and go.
#[test]
fn stacks_beside_allocation_panics_libraries_and_ending_threads() {
    const THREADS: u64 = 8;
    let wanted = std::env::var("HOST_STACKS").ok().map(|all| all.parse::<u64>().unwrap() / THREADS);
    let of_thread = wanted.unwrap_or(effort::rounds(10_000) as u64);
    let ending = effort::rounds(1000) as u64;
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let profiler =
        Profiler::builder().library(library).stacks_after(Duration::ZERO).build().unwrap();
    profiler.start().unwrap();
    let before = profiler.stop().unwrap().host_stacks().losses.total();
    profiler.start().unwrap();
    let done = AtomicBool::new(false);
    let loaded = std::thread::scope(|scope| {
        let (fake, done) = (&fake, &done);
        let loads = scope.spawn(|| load_libraries(done));
        let launch = move |thread: u64| {
            let mut random = fastrand::Rng::with_seed(thread);
            let mut blocks: Vec<Vec<u8>> = Vec::new();
            for _ in 0..of_thread {
                blocks.push(vec![1; random.usize(..10_000)]);
                blocks.truncate(random.usize(..16));
                let depth = random.u32(..24);
                let launched = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    launch_at(fake, depth);
                    if depth == 7 {
                        // Unwinds as a panic does, and prints nothing.
                        std::panic::resume_unwind(Box::new(()));
                    }
                }));
                assert_eq!(launched.is_err(), depth == 7);
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || launch(n))).collect();
        for _ in 0..ending / 50 {
            let threads = (0..50).map(|_| scope.spawn(|| launch_at(fake, 1)));
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        loads.join().unwrap()
    });
    // Functions are looked up for 2 s of the clock.
    fake.stop_clock();
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    let launches = THREADS * of_thread + ending;
    assert_eq!(profile.kernels().count() as u64, launches);
    let counts = profile.host_stacks();
    let lost = counts.losses.total() - before;
    assert_eq!((counts.calls + lost, counts.missing), (launches, 0), "{counts}");
    // More threads than unwinders may run at a time: how many depends on the machine.
    assert!(lost * 10 < launches || !effort::is_thorough(), "{counts}");
    assert!(counts.truncated * 100 < launches, "{counts}, {loaded} libraries");
    // The stack is as deep as the recursion.
    for call in profile.calls().filter_map(|call| call.host_stack()) {
        let frames = call.frames();
        let own = frames.iter().filter(|frame| {
            frame.function.is_some_and(|name| name.ends_with("host_stacks::launch_at"))
        });
        assert!((1..=24).contains(&own.count()), "{call}");
    }
}
