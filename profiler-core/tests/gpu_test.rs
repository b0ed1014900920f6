//! Measured tests: what is run how often, who waits for whom, and what a skipped one says.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::cell::{Cell, RefCell};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cupti::fake::{Builder, Fake, Work};
use nvtx::range;
use profiler_core::{
    Error, GpuTest, Profiler, Statistic, Turn, exactly, expect, gpu_test, gpu_test_with,
};

thread_local!(static FAKE: RefCell<Option<Fake>> = const { RefCell::new(None) });

/// A profiler of a stand-in that this thread keeps: the attribute makes one before its test begins.
fn profiler_of(fake: Builder) -> Result<Profiler, Error> {
    FAKE.take();
    let fake = fake.build();
    let profiler = fake
        .library()
        .map_err(Error::from)
        .and_then(|library| Profiler::builder().library(library).build());
    FAKE.set(Some(fake));
    profiler
}

fn profiler() -> Result<Profiler, Error> {
    profiler_of(Fake::builder())
}

/// As on a machine whose CUPTI is of no use.
fn no_gpu() -> Result<Profiler, Error> {
    profiler_of(Fake::builder().version(17))
}

fn kernel(taking_ns: u64) {
    let _range = range("work");
    FAKE.with_borrow(|fake| {
        fake.as_ref().unwrap().launch(Work::kernel(c"k").taking_ns(taking_ns));
    });
}

#[test]
fn only_the_repeats_are_measured() {
    let test = gpu_test_with(profiler()).unwrap();
    let runs = Cell::new(0);
    let measured = test.warm_up(2).repeats(3).run(|| {
        runs.set(runs.get() + 1);
        kernel(runs.get() * 100);
        runs.get()
    });
    assert_eq!((runs.get(), measured.profiles().len(), *measured.result()), (5, 3, 5));
    expect(&measured)
        .complete()
        .range("work")
        .instances(exactly(1))
        .kernels(exactly(1))
        .gpu_time_of(Statistic::Min, exactly(Duration::from_nanos(300)))
        .gpu_time_of(Statistic::Max, exactly(Duration::from_nanos(500)))
        .assert();
    assert_eq!(measured.into_result(), 5);
}

#[test]
fn without_being_told_there_is_one_warm_up_and_one_repeat() {
    let runs = Cell::new(0);
    let measured = gpu_test_with(profiler()).unwrap().run(|| runs.set(runs.get() + 1));
    assert_eq!((runs.get(), measured.profiles().len()), (2, 1));
    let none = gpu_test_with(profiler()).unwrap().warm_up(0).repeats(0).run(|| runs.set(0));
    assert_eq!((runs.get(), none.profiles().len()), (0, 1));
}

#[test]
fn a_session_that_cannot_start_is_an_error_and_no_skip() {
    let held = || profiler_of(Fake::builder().held_by("another tool"));
    let error = gpu_test_with(held()).unwrap().try_run(|| ()).unwrap_err();
    assert!(error.is_busy(), "{error}");
    let test = gpu_test_with(held()).unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test.run(|| ())));
    let text = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("could not be measured") && text.contains("another tool"), "{text}");
}

#[profiler_core::gpu_test(warm_up = 1, repeats = 4, profiler = profiler())]
fn the_attribute_makes_a_test_of_its_options(test: GpuTest) {
    let runs = Cell::new(0);
    let measured = test.run(|| runs.set(runs.get() + 1));
    assert_eq!((runs.get(), measured.profiles().len()), (5, 4));
}

/// The crate under another name.
mod renamed {
    pub(crate) use profiler_core as gpu;
}

#[renamed::gpu::gpu_test(profiler = profiler(), crate = renamed::gpu)]
fn the_attribute_finds_a_renamed_crate_and_gives_errors_back(
    mut test: GpuTest,
) -> Result<(), Box<dyn std::error::Error>> {
    test = test.repeats(2);
    let measured = test.try_run(|| kernel(10))?;
    expect(&measured).range("work").kernels(exactly(1)).check()?;
    Ok(())
}

#[profiler_core::gpu_test(profiler = profiler())]
#[allow(unused_variables)]
fn the_attribute_keeps_other_attributes(test: GpuTest) {
    #![deny(warnings)]
    let unused = "allowed by the attribute";
}

macro_rules! of_a_macro {
    ($visibility:vis $name:ident, $parameter:ident, $output:ty, $body:block) => {
        #[profiler_core::gpu_test(warm_up = 0u32, profiler = profiler())]
        $visibility fn $name(mut $parameter: GpuTest,) -> $output $body
    };
}
of_a_macro!(pub(crate) the_attribute_works_in_a_macro, test, Result<(), String>, {
    test = test.repeats(2);
    let outcome = expect(&test.run(|| kernel(10))).kernels(exactly(1)).check();
    outcome.map_err(|violations| violations.to_string())
});

static BODY_RAN: AtomicBool = AtomicBool::new(false);

#[profiler_core::gpu_test(profiler = no_gpu())]
fn skipped_by_the_attribute(test: GpuTest) -> Result<(), Error> {
    BODY_RAN.store(true, Ordering::Relaxed);
    drop(test);
    Ok(())
}

#[test]
fn skipped_by_hand() {
    assert!(gpu_test_with(no_gpu()).is_none());
    assert!(!BODY_RAN.load(Ordering::Relaxed));
}

/// Where there is a GPU this is a test of it.
#[test]
fn of_this_machine() {
    let Some(test) = gpu_test() else { return };
    let measured = test.run(|| drop(range("nothing")));
    expect(&measured).complete().range("nothing").kernels(exactly(0)).assert();
}

/// This binary again, one test of it, under libtest as `cargo test` runs it: captured.
fn run_again(test: &str, gpu_tests: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--test-threads", "2"]).env("GPU_TESTS", gpu_tests);
    command.output().unwrap()
}

#[test]
fn a_skipped_test_passes_and_its_reason_is_seen() {
    for test in ["skipped_by_the_attribute", "skipped_by_hand"] {
        let output = run_again(test, "");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
        let reason = format!("skipped: {test}: ");
        assert!(err.contains(&reason) && err.contains("older than CUPTI 12.0"), "{out}{err}");
    }
}

#[test]
fn a_required_gpu_that_is_not_there_is_a_failure() {
    for test in ["skipped_by_the_attribute", "skipped_by_hand"] {
        let output = run_again(test, "require");
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && out.contains("1 failed"), "{out}");
        assert!(out.contains("GPU_TESTS=require, and the GPU cannot be used"), "{out}");
    }
}

#[test]
fn threads_take_turns() {
    static INSIDE: AtomicBool = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let _turn = Turn::wait();
                    let _again = Turn::wait(); // its own turn does not stop a thread
                    assert!(!INSIDE.swap(true, Ordering::Relaxed), "two at once");
                    std::thread::sleep(Duration::from_micros(200));
                    INSIDE.store(false, Ordering::Relaxed);
                }
            });
        }
    });
}

/// The file is locked while somebody has the turn, and not a moment longer.
#[test]
fn processes_take_turns() {
    let path = std::env::temp_dir().join("gpu-profiler-tests.lock");
    let turn = Turn::wait();
    let file = std::fs::File::create(path).unwrap();
    assert!(matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    drop(Turn::wait());
    assert!(matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)), "still its turn");
    drop(turn);
    file.lock().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let _turn = Turn::wait();
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_millis(200)).unwrap_err();
    drop(file);
    receiver.recv_timeout(Duration::from_secs(300)).unwrap();
    other.join().unwrap();
}
