//! A program that dies while it is recorded to a file: what the file has is what the program had done, up to its last flush
//! at least.
//!
//! This program starts itself again, once a scene, with the fake in place of CUPTI.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // the helpers are tests too

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::session::RecordingFile;
use profiler_core::{Profile, Profiler};
use test_support::folder;

const SCENE: &str = "KILLED_SCENE";
const FILE: &str = "KILLED_FILE";
/// Steps before the flush, and after it.
const FLUSHED: u64 = 25;
const LATER: u64 = 3;

fn step(fake: &Fake) {
    let _step = range("step");
    fake.launch(Work::kernel(c"kernel"));
    fake.launch(Work::synchronize());
}

/// Records from here on, and takes the logs this often.
fn record(fake: &Fake, period: Duration) -> RecordingFile {
    let library = fake.library().unwrap();
    let profiler = Profiler::builder().library(library).period(period).build().unwrap();
    profiler.record_to(std::env::var_os(FILE).unwrap()).unwrap()
}

/// The steps that the file has for certain, for the parent to read.
fn say(steps: u64) {
    println!("{steps}");
}

/// Steps that are flushed, and some that are not: nothing takes them.
fn die(with: impl FnOnce()) {
    let fake = Fake::new();
    let file = record(&fake, Duration::from_secs(3600));
    let _outer = range("outer");
    (0..FLUSHED).for_each(|_| step(&fake));
    file.flush().unwrap();
    say(FLUSHED);
    (0..LATER).for_each(|_| step(&fake));
    with();
    unreachable!("the program goes on");
}

fn raise(signal: i32) {
    let own = std::process::id().cast_signed();
    // SAFETY: a signal to the process itself, which needs nothing.
    unsafe { libc::kill(own, signal) };
    std::thread::sleep(Duration::from_secs(60));
}

/// Runs until it is killed, with threads that come and go.
fn run_on() {
    let fake = Fake::new();
    let file = record(&fake, Duration::from_millis(2));
    let _outer = range("outer");
    for steps in (0_u64..).step_by(8) {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..4).for_each(|_| step(&fake)));
            (0..4).for_each(|_| step(&fake));
        });
        if steps % 64 == 56 {
            file.flush().unwrap();
            say(steps + 8);
        }
    }
}

/// Writes until the system takes no more, and goes on.
fn fill() {
    let fake = Fake::new();
    let file = record(&fake, Duration::from_secs(3600));
    let mut flushed = 0;
    let error = loop {
        (0..FLUSHED).for_each(|_| step(&fake));
        match file.flush() {
            Ok(()) => flushed += FLUSHED,
            Err(error) => break error,
        }
        say(flushed);
    };
    let said = error.to_string();
    assert!(said.contains("File too large") || said.contains("No space left"), "{error}");
    assert_eq!(file.error().unwrap().to_string(), error.to_string());
    // The program works as before, and so does a session beside it.
    step(&fake);
    assert!(file.flush().is_err());
    let totals = file.totals();
    assert!(totals.unwritten_entries > 0 && !totals.is_full, "{totals:?}");
    assert_eq!(file.finish().unwrap_err().to_string(), error.to_string());
    assert!(!fake.is_recording());
}

/// A child of the program goes its own way; the program goes on.
fn fork() {
    let fake = Fake::new();
    let file = record(&fake, Duration::from_secs(3600));
    (0..FLUSHED).for_each(|_| step(&fake));
    file.flush().unwrap();
    let before = std::fs::read(file.path()).unwrap();
    // SAFETY: the child uses what this thread made alone, and ends without destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        step(&fake);
        let is_forked = |error: profiler_core::Error| error.to_string().contains("forked off");
        let all = [
            file.flush().is_err_and(is_forked),
            file.pause().is_err_and(is_forked),
            file.error().is_none() && file.totals().bytes == 0 && !file.is_paused(),
            file.finish().is_err_and(is_forked),
        ];
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(all != [true; 4])) };
    }
    let mut status = 0;
    // SAFETY: the child's status is written to a variable of this frame.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(std::fs::read(file.path()).unwrap(), before);
    (0..LATER).for_each(|_| step(&fake));
    let totals = file.finish().unwrap();
    assert_eq!(totals.operations, FLUSHED + LATER);
    say(totals.operations);
}

/// Children are forked off while other threads record and the logs are taken: whatever is locked then stays locked in them.
fn fork_under_load() {
    let fake = Fake::new();
    let file = record(&fake, Duration::from_millis(1));
    let other = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (fake, is_over) = (&fake, &is_over);
            scope.spawn(move || {
                for number in 0_u64.. {
                    let _range = range(&format!("range {thread} {number}"));
                    fake.launch(Work::kernel(c"kernel"));
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for round in 0..40 {
            let _range = range(&format!("range of round {round}"));
            // SAFETY: the child uses what this thread made alone, and ends without destructors.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let error = other.start().unwrap_err().to_string();
                assert!(error.contains("fork"), "{error}");
                for number in 0..100 {
                    let _range = range(&format!("child {round} {number}"));
                }
                std::thread::spawn(|| drop(range("on a thread of the child"))).join().unwrap();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(0) };
            }
            let begun = Instant::now();
            let mut status = 0;
            // SAFETY: the child's status is written to a variable of this frame.
            while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
                if begun.elapsed() > Duration::from_secs(120) {
                    println!("child {round} hangs");
                    for task in std::fs::read_dir(format!("/proc/{child}/task")).unwrap() {
                        let task = task.unwrap().path();
                        let of = |name: &str| std::fs::read_to_string(task.join(name));
                        println!("{}: {:?}, {:?}", task.display(), of("syscall"), of("wchan"));
                    }
                    // SAFETY: a signal to the child, which has not been waited for.
                    unsafe { libc::kill(child, libc::SIGKILL) };
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(status, 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    say(file.finish().unwrap().operations);
}

/// A scene; by itself, nothing.
#[test]
fn scene() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    match scene.as_str() {
        "run on" => run_on(),
        "fill" => fill(),
        "fork" => fork(),
        "fork under load" => fork_under_load(),
        "SIGKILL" => die(|| raise(libc::SIGKILL)),
        "SIGTERM" => die(|| raise(libc::SIGTERM)),
        "SIGFPE" => die(|| raise(libc::SIGFPE)),
        "abort" => die(|| std::process::abort()),
        "exit" => die(|| std::process::exit(0)),
        // SAFETY: ends the process at once.
        "_exit" => die(|| unsafe { libc::_exit(0) }),
        "exec" => die(|| drop(Command::new("true").exec())),
        "thread exits" => die(|| {
            let exit = || std::process::exit(0);
            std::thread::spawn(exit).join().unwrap_or(());
        }),
        other => unreachable!("{other}"),
    }
}

/// Starts a scene by a script of the shell that has its command as arguments.
fn start(scene: &str, file: &Path, script: &str) -> Child {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(own).args(["--exact", "scene", "--nocapture"]);
    command.env(SCENE, scene).env(FILE, file).stdout(Stdio::piped()).spawn().unwrap()
}

/// Runs a scene to its end. Returns the number that it said last; what else it said is printed.
fn run(scene: &str, file: &Path, script: &str) -> (u64, ExitStatus) {
    let mut child = start(scene, file, script);
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.trim().parse::<u64>() {
            Ok(number) => said.push(number),
            Err(_) => println!("{line}"),
        }
    }
    (*said.last().unwrap(), child.wait().unwrap())
}

/// Reads a file that ends early, in which every step that has ended is whole.
fn read(file: &Path) -> Profile {
    let profile = Profile::load(file).unwrap();
    let health = profile.health();
    assert_eq!((health.losses.truncated, health.is_complete()), (1, false), "{health}");
    assert_eq!(
        (health.losses.open_calls, health.losses.lost_ranges, health.losses.unwritten_entries),
        (0, 0, 0)
    );
    let accounts = [
        health.accounts.kernels,
        health.accounts.copies,
        health.accounts.memsets,
        health.accounts.synchronizations,
    ];
    assert!(accounts.iter().all(|account| account.is_balanced()), "{health}");
    let report = profile.to_string();
    assert!(report.contains("the file ends before the session did"), "{report}");
    profile
}

#[test]
fn file_of_a_crashed_program_has_the_flushed_part() {
    let folder = folder::Folder::new();
    for (scene, signal) in [
        ("SIGKILL", Some(libc::SIGKILL)),
        ("SIGTERM", Some(libc::SIGTERM)),
        ("SIGFPE", Some(libc::SIGFPE)),
        ("abort", Some(libc::SIGABRT)),
        ("exit", None),
        ("_exit", None),
        ("exec", None),
        ("thread exits", None),
    ] {
        let file = folder.0.join(scene.replace(' ', "-"));
        let (flushed, status) = run(scene, &file, "ulimit -c 0; exec \"$@\"");
        assert_eq!((status.signal(), status.success()), (signal, signal.is_none()), "{scene}");
        let profile = read(&file);
        let steps = profile.range("outer/step").unwrap();
        assert_eq!((steps.instances(), steps.kernels()), (flushed, flushed), "{scene}");
        assert_eq!(profile.kernels().count() as u64, flushed, "{scene}");
        let outer = profile.ranges().find(|range| range.name() == "outer").unwrap();
        assert!(outer.is_open(), "{scene}");
    }
}

#[test]
fn file_of_a_killed_program_has_the_flushed_part() {
    let folder = folder::Folder::new();
    let mut random = fastrand::Rng::with_seed(22);
    for round in 0..12 {
        let file = folder.0.join(format!("{round}.gpuprof"));
        let mut child = start("run on", &file, "exec \"$@\"");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.by_ref().map(|line| line.unwrap().trim().parse::<u64>());
        let first = first.flatten().next().unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = lines.filter_map(|line| line.ok()?.trim().parse::<u64>().ok());
        let flushed = said.last().unwrap_or(first);
        let profile = read(&file);
        // Whole steps: what was done between two words of the program may be there, or not.
        let ended = profile.ranges().filter(|range| range.name() == "step" && !range.is_open());
        let ended = ended.count() as u64;
        assert!((flushed..=flushed + 200_000).contains(&ended), "{ended} of {flushed}");
        let kernels = profile.kernels().count() as u64;
        assert!(kernels >= flushed, "{kernels} of {flushed}");
    }
}

fn check_full(file: &Path, (flushed, status): (u64, ExitStatus)) {
    assert!(status.success(), "{status}");
    let profile = read(file);
    assert_eq!(profile.range("step").unwrap().kernels(), flushed);
    assert!(flushed >= FLUSHED);
}

/// The signal of a file that is too large would end the program.
#[test]
fn program_goes_on_beyond_the_limit_of_file_sizes_and_its_file_is_readable() {
    let folder = folder::Folder::new();
    let file = folder.0.join("full.gpuprof");
    // In blocks of 512 or 1,024 bytes.
    check_full(&file, run("fill", &file, "ulimit -f 60; exec \"$@\""));
}

/// On a file system of 64 KiB, where the user may mount one.
#[test]
fn program_goes_on_when_the_disk_is_full_and_its_file_is_readable() {
    let folder = folder::Folder::new();
    let disk = folder.0.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = format!("mount -t tmpfs -o size=64k none {}", disk.display());
    let may_mount = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: this user may not mount a file system");
        return;
    }
    let (full, copy) = (disk.join("full.gpuprof"), folder.0.join("copy.gpuprof"));
    let copied = format!("cp {} {}", full.display(), copy.display());
    let script = format!("{mount} && \"$@\" && {copied}");
    let script = format!("exec unshare -rm sh -c '{script}' sh \"$@\"");
    check_full(&copy, run("fill", &full, &script));
}

#[test]
fn forked_child_leaves_the_file_alone() {
    let folder = folder::Folder::new();
    let file = folder.0.join("forked.gpuprof");
    let (steps, status) = run("fork", &file, "exec \"$@\"");
    assert!(status.success(), "{status}");
    let profile = Profile::load(&file).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.range("step").unwrap().kernels(), steps);
}

#[test]
fn forked_child_waits_for_no_lock_of_the_recorder() {
    let folder = folder::Folder::new();
    let file = folder.0.join("forked.gpuprof");
    let (steps, status) = run("fork under load", &file, "exec \"$@\"");
    assert!(status.success(), "{status}");
    let profile = Profile::load(&file).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.kernels().count() as u64, steps);
    assert!(profile.ranges().all(|range| range.name().starts_with("range ")));
}
