//! Measured tests: repetitions, waits between tests, and messages of skipped ones.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the helpers are tests too

use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fake_cupti::{Builder, Fake, Work};
use nvtx::range;
use profiler_core::statistics::Statistic;
use profiler_core::testing::GpuLock;
use profiler_core::{Error, GpuTest, Profiler, exactly, expect, gpu_test};
use test_support::folder;

thread_local!(static FAKE: RefCell<Option<Fake>> = const { RefCell::new(None) });

/// A profiler of a fake that this thread keeps: the attribute makes one before its test begins.
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
    let test = GpuTest::from_profiler(profiler()).unwrap();
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
fn default_is_one_warm_up_and_one_repeat() {
    let runs = Cell::new(0);
    let measured = GpuTest::from_profiler(profiler()).unwrap().run(|| runs.set(runs.get() + 1));
    assert_eq!((runs.get(), measured.profiles().len()), (2, 1));
    let none =
        GpuTest::from_profiler(profiler()).unwrap().warm_up(0).repeats(0).run(|| runs.set(0));
    assert_eq!((runs.get(), none.profiles().len()), (0, 1));
}

#[test]
fn a_session_that_cannot_start_is_an_error_and_no_skip() {
    let held = || profiler_of(Fake::builder().held_by("another tool"));
    let error = GpuTest::from_profiler(held()).unwrap().try_run(|| ()).unwrap_err();
    assert!(error.is_busy(), "{error}");
    let test = GpuTest::from_profiler(held()).unwrap();
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
    assert!(GpuTest::from_profiler(no_gpu()).is_none());
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
                    let _turn = GpuLock::wait();
                    let _again = GpuLock::wait(); // its own turn does not stop a thread
                    assert!(!INSIDE.swap(true, Ordering::Relaxed), "two at once");
                    (0..100).for_each(|_| std::thread::yield_now());
                    INSIDE.store(false, Ordering::Relaxed);
                }
            });
        }
    });
}

/// A process of its own for the tests below, with the lock file in this folder.
fn process(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("TMPDIR", folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Lines of a process as they come.
fn line_with(lines: &mut impl Iterator<Item = std::io::Result<String>>, part: &str) -> String {
    lines
        .map(Result::unwrap)
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part}"))
}

const TURNS: usize = 20;

#[test]
#[ignore = "a process of `processes_take_turns`"]
fn takes_turns() {
    let log = std::env::temp_dir().join("log");
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    let me = std::process::id();
    for _ in 0..TURNS {
        let _turn = GpuLock::wait();
        writeln!(log, "{me} begins").unwrap();
        std::thread::yield_now();
        writeln!(log, "{me} ends").unwrap();
    }
}

#[test]
#[ignore = "a process of `waiting_test_names_the_holder`"]
fn holder_process() {
    let _turn = GpuLock::wait();
    println!("has it");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Nobody is between the begin and the end of another.
#[test]
fn processes_take_turns() {
    let folder = folder::Folder::new();
    let start = |_| process("takes_turns", &folder.0).spawn().unwrap();
    let children: Vec<_> = (0..4).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let log = std::fs::read_to_string(folder.0.join("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4 * TURNS * 2, "{log}");
    let (pairs, _) = lines.as_chunks::<2>();
    for [begins, ends] in pairs {
        let who = begins.strip_suffix(" begins").unwrap();
        assert_eq!(ends.strip_suffix(" ends"), Some(who), "{log}");
    }
    let who: std::collections::BTreeSet<_> =
        lines.iter().map(|line| line.split(' ').next()).collect();
    assert_eq!(who.len(), 4, "{log}");
}

#[test]
fn waiting_test_names_the_holder() {
    let folder = folder::Folder::new();
    let mut holder = process("holder_process", &folder.0).spawn().unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    line_with(&mut said, "has it");
    let mut other = process("holder_process", &folder.0).spawn().unwrap();
    let mut others = BufReader::new(other.stderr.take().unwrap()).lines();
    let line = line_with(&mut others, "waiting for the GPU");
    assert!(line.contains(&format!("process {} holds ", holder.id())), "{line}");
    assert!(line.contains(&*folder.0.to_string_lossy()), "{line}");
    // It goes on when the first has ended, and not before.
    assert_eq!(other.try_wait().unwrap(), None);
    drop(holder.stdin.take());
    let mut has = BufReader::new(other.stdout.take().unwrap()).lines();
    line_with(&mut has, "has it");
    drop(other.stdin.take());
    // They have more to print.
    assert!([said, has].into_iter().flatten().all(|line| line.is_ok()));
    assert!(other.wait().unwrap().success() && holder.wait().unwrap().success());
}

#[test]
fn unavailable_lock_fails_with_a_reason() {
    let output = process("holder_process", Path::new("/no/such/folder")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("cannot take the lock of GPU tests: /no/such/folder/gpu-"), "{said}");
}
