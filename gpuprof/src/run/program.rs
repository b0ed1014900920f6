//! The program of a run: checks, start, signals and end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{Arg, CommandFactory as _};
use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_dumpable};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike as _;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getegid, geteuid};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

use crate::args::Args;
use crate::failure::Failure;
use crate::message::note;
use crate::suggest;

/// The shells' exit statuses for programs that cannot be executed and programs that are not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The signals forwarded to the program.
const SIGNALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The polling interval for processes that the program left behind.
const CHILDREN: Duration = Duration::from_millis(50);

/// The time after the program's end during which a signal is attributed to it. A signal that ended
/// both processes may arrive here later.
const LATE: Duration = Duration::from_millis(500);

/// The failure for a missing program. Its name may have been intended as an option.
fn not_found(name: &OsStr, subcommand: &str) -> Failure {
    let word = name.to_string_lossy();
    let Some(option) = word.strip_prefix("--") else {
        return Failure::Run(NOT_FOUND, format!("{word}: there is no such program"));
    };
    let mut command = Args::command();
    let run = command.find_subcommand_mut(subcommand);
    let options = run.into_iter().flat_map(|run| run.get_opts()).filter_map(Arg::get_long);
    let known: Vec<String> = options.map(|known| format!("--{known}")).collect();
    let option = option.split('=').next().unwrap_or_default();
    let meant = suggest::similar(&format!("--{option}"), known.iter().map(String::as_str));
    Failure::Usage(format!(
        "--{option} is no option of `gpuprof {subcommand}` and no program: `gpuprof {subcommand} --help` lists the options{meant}"
    ))
}

pub(super) struct Program {
    words: Vec<OsString>,
    /// The path where the program was found.
    path: PathBuf,
}

impl Program {
    /// Finds the program as a shell does, for a subcommand of gpuprof. Refuses a program that would
    /// ignore the library.
    pub(super) fn new(words: Vec<OsString>, subcommand: &str) -> Result<Self, Failure> {
        let name = words.first().map(OsString::as_os_str).unwrap_or_default();
        let found = find(name).ok_or_else(|| not_found(name, subcommand))?;
        if let Some(why) = ignores_libraries(&found) {
            return Err(Failure::Run(
                NOT_EXECUTABLE,
                format!(
                    "{} {why}: such a program ignores the injection library; run it as that user, or a copy without it",
                    found.display()
                ),
            ));
        }
        Ok(Self { words, path: found })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs the program to its end with these variables. A variable without a value is removed.
    pub(super) fn run(
        &self,
        variables: &[(&str, Option<OsString>)],
        wait_children: bool,
    ) -> Result<Outcome, Failure> {
        if wait_children && let Err(errno) = set_child_subreaper(true) {
            note(&format!("--wait-children waits for the program alone: {errno}"));
        }
        let signals = Signals::catch()?;
        let outcome = self.run_once(variables, &signals, wait_children, Stdio::inherit)?;
        if wait_children {
            wait_for_children(&signals);
        }
        signals.begin_report();
        Ok(outcome)
    }

    /// Runs the program to its end, once of several times. Between them signals do not end gpuprof:
    /// see [`Signals::last`].
    pub(super) fn run_once(
        &self,
        variables: &[(&str, Option<OsString>)],
        signals: &Signals,
        reap_all: bool,
        streams: fn() -> Stdio,
    ) -> Result<Outcome, Failure> {
        signals.begin_start();
        let (began, cpu_before) = (Instant::now(), cpu_of_children());
        let mut child = self.spawn(variables, streams)?;
        let pid = i32::try_from(child.id()).map_err(|error| failed("find", &error))?;
        signals.begin_program(Pid::from_raw(pid));
        reap_until_end(Pid::from_raw(pid), reap_all);
        let wall = began.elapsed();
        // The wait below frees the pid, so stop forwarding signals to it first.
        signals.set(Phase::Children(Instant::now()));
        let status = child.wait().map_err(|error| failed("wait for", &error))?;
        let cpu = cpu_of_children().saturating_sub(cpu_before);
        Ok(Outcome { status, times: Times { wall, cpu } })
    }

    fn spawn(
        &self,
        variables: &[(&str, Option<OsString>)],
        streams: fn() -> Stdio,
    ) -> Result<Child, Failure> {
        let spawn = |program: &OsStr, args: &[OsString]| {
            let mut command = Command::new(program);
            command.args(args).stdin(streams()).stdout(streams()).stderr(streams());
            for (name, value) in variables {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command.spawn()
        };
        let (name, args) =
            self.words.split_first().map_or((OsStr::new(""), &[][..]), |(name, args)| (name, args));
        let spawned = match spawn(name, args) {
            // The file may be a script without an interpreter line, which shells run themselves.
            Err(error)
                if error.raw_os_error() == Some(Errno::ENOEXEC as i32)
                    && !is_binary(&self.path) =>
            {
                let script = [self.path.clone().into_os_string()];
                spawn(OsStr::new("/bin/sh"), &[&script, args].concat())
            }
            spawned => spawned,
        };
        spawned.map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the interpreter or loader that it names is missing".to_owned()
                }
                io::ErrorKind::PermissionDenied => "no permission to run it".to_owned(),
                _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
                    "it is a program for another machine, or a damaged one".to_owned()
                }
                _ => error.to_string(),
            };
            Failure::Run(NOT_EXECUTABLE, format!("could not run {}: {why}", self.path.display()))
        })
    }
}

/// True for a file that shells do not run as a script: its first line contains a zero byte.
fn is_binary(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut start));
    let line = start.split(|byte| *byte == b'\n').next();
    read.is_ok() && line.is_some_and(|line| line.contains(&0))
}

fn failed(what: &str, error: &dyn Display) -> Failure {
    Failure::Run(super::NOT_STARTED, format!("could not {what} the program: {error}"))
}

/// The outcome of the program.
pub(crate) struct Outcome {
    pub(super) status: ExitStatus,
    pub(super) times: Times,
}

/// The times of a run of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// From the start of the program to its end.
    pub(super) wall: Duration,
    /// In user and system mode, with children that the program waited for.
    pub(super) cpu: Duration,
}

/// The CPU time of all children that were waited for, with theirs.
fn cpu_of_children() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let total = usage.user_time() + usage.system_time();
    Duration::from_micros(u64::try_from(total.num_microseconds()).unwrap_or(0))
}

impl Outcome {
    pub(super) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The exit status by which shells report this end: 128 and the number of a signal.
    pub(super) fn shell_status(&self) -> u8 {
        let status = self.status.code().or(self.signal().map(|signal| 128 + signal));
        status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1)
    }

    /// Ends this process like the program: with its exit status, or by the same signal.
    pub(crate) fn end(self) -> Result<(), Failure> {
        if self.status.success() {
            return Ok(());
        }
        if let Some(signal) = self.signal() {
            // Only the program's core dump is of interest.
            let _: nix::Result<()> = set_dumpable(false);
            // Returns for a signal that has no default action that ends a process.
            let _: io::Result<()> = emulate_default_handler(signal);
        }
        Err(Failure::Run(self.shell_status(), String::new()))
    }
}

/// Signals of the user and the system, forwarded to the program while it runs.
pub(super) struct Signals {
    phase: Arc<Mutex<Phase>>,
    /// The number of the last caught signal; 0 for none.
    last: Arc<AtomicI32>,
}

/// The phase of the run, which determines the effect of a signal. Each instant is the start of its
/// phase.
enum Phase {
    /// Signals are held until the program's pid is known. The program may already run by then.
    Start(Vec<i32>),
    Program(Pid),
    /// A signal ends the wait for the processes that the program left behind.
    Children(Instant),
    Interrupted,
    /// A signal ends gpuprof.
    Report(Instant),
}

impl Signals {
    /// Catches the signals, except those that this process ignored from the start. `nohup` and
    /// shells without job control ignore signals, and the program inherits that.
    pub(super) fn catch() -> Result<Self, Failure> {
        let failed = |error: io::Error| failed("handle signals of", &error);
        let ignored = ignored();
        let caught = SIGNALS.iter().filter(|signal| ignored >> (**signal as u32 - 1) & 1 == 0);
        let caught = caught.map(|signal| *signal as i32);
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(caught).map_err(failed)?;
        let phase = Arc::new(Mutex::new(Phase::Start(Vec::new())));
        let last = Arc::new(AtomicI32::new(0));
        let (shared, last_caught) = (phase.clone(), last.clone());
        let thread = std::thread::Builder::new().name("gpuprof-signals".to_owned());
        let spawned = thread.spawn(move || {
            for info in signals.forever() {
                // The kernel sends terminal signals to all foreground processes, so they are not
                // forwarded.
                let is_sent = info.si_code <= 0;
                last_caught.store(info.si_signo, Ordering::SeqCst);
                caught_in(&mut lock(&shared), info.si_signo, is_sent);
            }
        });
        spawned.map_err(failed)?;
        Ok(Self { phase, last })
    }

    /// Holds signals before the start of the program, and keeps those that are held.
    fn begin_start(&self) {
        let mut phase = lock(&self.phase);
        if !matches!(*phase, Phase::Start(_)) {
            *phase = Phase::Start(Vec::new());
        }
    }

    /// Forwards the signals held during the start, and all later ones.
    fn begin_program(&self, pid: Pid) {
        let mut phase = lock(&self.phase);
        if let Phase::Start(held) = &*phase {
            held.iter().for_each(|signal| pass_on(pid, *signal));
        }
        *phase = Phase::Program(pid);
    }

    /// From now on signals end gpuprof.
    pub(super) fn begin_report(&self) {
        self.set(Phase::Report(Instant::now()));
    }

    /// The last signal that was caught in any phase.
    pub(super) fn last(&self) -> Option<i32> {
        Some(self.last.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    fn set(&self, phase: Phase) {
        *lock(&self.phase) = phase;
    }

    fn are_interrupted(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Interrupted)
    }
}

fn lock(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn caught_in(phase: &mut Phase, signal: i32, is_sent: bool) {
    match phase {
        Phase::Start(held) if is_sent && !held.contains(&signal) => held.push(signal),
        Phase::Program(pid) if is_sent => pass_on(*pid, signal),
        Phase::Children(since) if since.elapsed() > LATE => *phase = Phase::Interrupted,
        Phase::Report(since) if since.elapsed() > LATE => drop(emulate_default_handler(signal)),
        _ => {}
    }
}

fn pass_on(program: Pid, signal: i32) {
    // The program may be a zombie, so ignore errors.
    let _: nix::Result<()> = kill(program, Signal::try_from(signal).ok());
}

/// The signals that this process ignores, one bit each.
pub(crate) fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Waits for the end of the program and leaves it a zombie, so that its pid cannot be reused.
fn reap_until_end(program: Pid, all: bool) {
    let of = || if all { Id::All } else { Id::Pid(program) };
    loop {
        match waitid(of(), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).map(|status| status.pid()) {
            Err(Errno::EINTR) => {}
            Ok(Some(pid)) if pid != program => {
                let _: nix::Result<WaitStatus> = waitpid(pid, Some(WaitPidFlag::WNOHANG));
            }
            _ => return,
        }
    }
}

/// Waits for processes that the program left behind and this process adopted.
fn wait_for_children(signals: &Signals) {
    while !signals.are_interrupted() {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(CHILDREN),
            Err(Errno::ECHILD) => return,
            _ => {}
        }
    }
    note("interrupted: the report covers the run until now");
}

/// Finds the file of a program as `execvp` does.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let files: Vec<PathBuf> = env::split_paths(&path)
        .map(|folder| folder.join(name))
        .filter(|file| file.is_file())
        .collect();
    let is_executable = |file: &&PathBuf| {
        file.metadata().is_ok_and(|about| about.permissions().mode() & 0o111 != 0)
    };
    // If none is executable, return the first file, on which `execvp` then fails.
    files.iter().find(is_executable).or(files.first()).cloned()
}

/// Returns why the dynamic loader ignores the library: the program gains privileges.
fn ignores_libraries(path: &Path) -> Option<&'static str> {
    let about = path.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut start = [0; 2];
    let is_script = File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"#!";
    let mode = about.mode();
    if is_script {
        None
    } else if mode & 0o4000 != 0 && about.uid() != geteuid().as_raw() {
        Some("runs as another user (setuid)")
    } else if mode & 0o2010 == 0o2010 && about.gid() != getegid().as_raw() {
        Some("runs as another group (setgid)")
    } else {
        None
    }
}
