//! Runs a case twice, without gpuprof and with it, and compares.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;
use std::{env, fs, thread};

use gpuprof_control::RunFolder;
use gpuprof_control::manifest::Process;
use profiler_core::Profile;
use test_support::program;

use crate::cases::{Case, Counts, KEEPS, Program};

/// Names the program that this test, started by itself, is.
pub(crate) const SCENE: &str = "UNMODIFIED_SCENE";

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/unmodified/programs");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fake_cuda/programs");

/// What all cases share: the fake driver, the library, the programs. Users other than root can read it.
struct Shared {
    root: PathBuf,
}

impl Shared {
    fn get() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let root = env::temp_dir().join(format!("gpuprof-unmodified-{}", std::process::id()));
            fs::create_dir_all(root.join("fake")).unwrap();
            fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
            install_fake(&root.join("fake"));
            compile(&root.join("endings"), "cc", "endings.c", &["-std=gnu11"]);
            if is_there(Program::Cpp.tool()) {
                compile(&root.join("threads"), "c++", "threads.cpp", &["-std=c++17"]);
            }
            compile(&root.join("plugin.so"), "cc", "plugin.c", &["-std=gnu11", "-shared", "-fPIC"]);
            // Only files that a user may open can be loaded.
            fs::copy(library(), root.join("libgpuprof_inject.so")).unwrap();
            program::copy(env!("CARGO_BIN_EXE_gpuprof"), root.join("gpuprof"));
            Self { root }
        })
    }
}

/// The fake driver, as a file of its own: the folder of builds may be closed to other users, as one in root's home is.
fn install_fake(folder: &Path) {
    fake_cuda::install(folder).unwrap();
    let links: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|link| link.unwrap().path()).collect();
    let file = folder.join("fake.so");
    fs::copy(&links[0], &file).unwrap();
    for link in links {
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
    }
}

/// The folder for all cases of this process, which it removes at its end.
pub(crate) fn clean_up() {
    let root = &Shared::get().root;
    // The disk of a case that failed.
    let _ = Command::new("umount").arg(root.join("disk_is_full/disk")).output();
    let _ = fs::remove_dir_all(root);
}

/// Whether a program is in a folder of `PATH`.
pub(crate) fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// The injection library that cargo built beside this test.
fn library() -> PathBuf {
    let own = env::current_exe().unwrap();
    own.parent().unwrap().join("libgpuprof_inject.so")
}

fn compile(out: &Path, compiler: &str, file: &str, flags: &[&str]) {
    let compiled = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-I", HEADERS])
        .args(flags)
        .arg(Path::new(PROGRAMS).join(file))
        .arg("-o")
        .arg(out)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// The time between two looks for processes that wait.
const LOOKS_AFTER: Duration = Duration::from_millis(2);

/// A user without rights.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// One run of a case, in a folder of its own.
pub(crate) struct Host {
    /// The program's own folder.
    pub(crate) folder: PathBuf,
    /// The run folder.
    pub(crate) run: PathBuf,
}

impl Host {
    fn new(case: &Case) -> Self {
        let folder = Shared::get().root.join(case.name);
        fs::create_dir_all(&folder).unwrap();
        if case.as_user && is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::copy(Shared::get().root.join("plugin.so"), folder.join("plugin.so")).unwrap();
        Self { run: folder.join("run"), folder }
    }

    /// The program and its arguments.
    fn words(&self, program: Program) -> Vec<PathBuf> {
        let root = &Shared::get().root;
        let own = self.folder.clone();
        match program {
            Program::C(name) => vec![root.join("endings"), name.into(), own],
            Program::Cpp => vec![root.join("threads")],
            Program::Python(name) => {
                vec!["python3".into(), Path::new(PROGRAMS).join("cuda.py"), name.into(), own]
            }
            Program::Shell(script) => {
                vec!["sh".into(), "-c".into(), script.into(), "sh".into(), root.join("endings")]
            }
            Program::Scene(_) => vec![env::current_exe().unwrap()],
        }
    }

    /// A command with the fake driver, and the variables of the case.
    fn command(&self, case: &Case, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", Shared::get().root.join("fake"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("RUST_BACKTRACE");
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.envs(case.variables.iter().copied());
        if case.as_user && is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        if let Program::Scene(name) = case.program {
            command.env(SCENE, name);
        }
        command
    }

    fn alone(&self, case: &Case) -> Output {
        let words = self.words(case.program);
        let mut command = self.command(case, &words[0]);
        (case.act)(self, command.args(&words[1..]))
    }

    fn profiled(&self, case: &Case) -> Output {
        let mut command = self.command(case, &Shared::get().root.join("gpuprof"));
        command.args(["run", "--quiet", "--inject"]);
        command.arg(Shared::get().root.join("libgpuprof_inject.so")).arg("-o").arg(&self.run);
        command.args(case.options).arg("--").args(self.words(case.program));
        let (alive, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(LOOKS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                    self.release_settled(case);
                }
            });
            // Also where it panics.
            let _alive = alive;
            (case.act)(self, &mut command)
        })
    }

    /// Releases the processes that wait until their recording has their work. Each names the amount in a file `settle.PID`, and continues
    /// once that is gone. A case whose recording comes at its end has nothing to wait for, and no process waits for more than a minute.
    fn release_settled(&self, case: &Case) {
        for entry in fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            let pid = name.strip_prefix("settle.").and_then(|pid| pid.parse::<u32>().ok());
            let Some(pid) = pid else { continue };
            let amount: usize = fs::read_to_string(&path).unwrap().parse().unwrap();
            let waits_since = fs::metadata(&path).unwrap().modified().unwrap();
            let waits_long = waits_since.elapsed().is_ok_and(|time| time.as_secs() >= 60);
            if case.options == KEEPS || self.operations_of(pid) >= amount || waits_long {
                fs::remove_file(&path).unwrap();
            }
        }
    }

    /// The kernels and copies in the recordings of a process so far.
    fn operations_of(&self, pid: u32) -> usize {
        let Ok(entries) = fs::read_dir(&self.run) else { return 0 };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("process-{pid}-")) && name.ends_with(".gpuprof")
        });
        let profiles = files.iter().filter_map(|path| Profile::load(path).ok());
        profiles.map(|profile| profile.kernels().count() + profile.copies().count()).sum()
    }
}

/// Runs a command to its end.
pub(crate) fn to_the_end(_: &Host, command: &mut Command) -> Output {
    command.output().unwrap()
}

/// The lines of an output, sorted: those of several processes come in any order.
fn lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The lines of a program's errors, without those of gpuprof and the ids of threads that panicked.
fn errors(output: &[u8]) -> Vec<String> {
    let mut lines = lines(output);
    lines.retain(|line| !line.starts_with("gpuprof: "));
    for line in &mut lines {
        if line.contains(" panicked at ") {
            line.retain(|c| !c.is_ascii_digit());
        }
    }
    lines
}

/// What programs say they did, by `kernel NAME`, `copies` and `range NAME`.
type Work = BTreeMap<String, u64>;

fn parse_work(output: &[u8]) -> Work {
    let mut work = Work::new();
    for line in lines(output) {
        let Some((what, count)) = line.rsplit_once(' ') else { continue };
        let is_count =
            what == "copies" || what.starts_with("kernel ") || what.starts_with("range ");
        if let (true, Ok(count)) = (is_count, count.parse::<u64>()) {
            *work.entry(what.to_owned()).or_default() += count;
        }
    }
    work.retain(|_, count| *count > 0);
    work
}

/// What profiles have, by the same words; ranges only those that the program counts.
fn recorded(profiles: &[Profile], said: &Work) -> Work {
    let mut work = Work::new();
    for profile in profiles {
        for kernel in profile.kernels() {
            *work.entry(format!("kernel {}", kernel.name())).or_default() += 1;
        }
        let copies = profile.copies().count() as u64;
        if copies > 0 {
            *work.entry("copies".to_owned()).or_default() += copies;
        }
        for range in profile.ranges() {
            let name = format!("range {}", range.name());
            if said.contains_key(&name) {
                *work.entry(name).or_default() += 1;
            }
        }
    }
    work
}

/// Runs a case, and compares.
pub(crate) fn check(case: &Case) {
    let mut host = Host::new(case);
    if let Err(why) = (case.prepare)(&mut host) {
        eprintln!("{}: left out: {why}", case.name);
        return;
    }
    let alone = host.alone(case);
    let profiled = host.profiled(case);
    let about = format!("{profiled:?}");
    assert_eq!(profiled.status, alone.status, "{about}");
    assert_eq!(lines(&profiled.stdout), lines(&alone.stdout), "{about}");
    assert_eq!(errors(&profiled.stderr), errors(&alone.stderr), "{about}");
    let status = alone.status;
    assert!((case.status)(status), "the program itself: {status}, {alone:?}");

    (case.restore)(&host);
    let folder = RunFolder::open(&host.run).unwrap();
    let processes = folder.processes().unwrap();
    assert!(processes.unreadable.is_empty(), "{:?}", processes.unreadable);
    let mut states: Vec<&str> = processes.found.iter().map(|found| found.state.name()).collect();
    states.sort_unstable();
    assert_eq!(states, case.states, "{:?}", processes.found);
    let found = fs::read_dir(&host.run).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<String> = found.map(|name| name.into_string().unwrap()).collect();
    files.retain(|name| name.ends_with(".gpuprof"));
    files.sort();
    let with_recording = processes.found.iter().filter(|found| found.has_recording);
    let mut named: Vec<String> = with_recording.map(Process::recording_name).collect();
    named.sort();
    assert_eq!(files, named, "recordings and what manifests say of them");
    let load = |name: &String| Profile::load(host.run.join(name)).unwrap();
    let profiles: Vec<Profile> = files.iter().map(load).collect();
    compare(case, &profiles, &parse_work(&alone.stdout));
    // The folder is one profile for every other command.
    let mut report = Command::new(env!("CARGO_BIN_EXE_gpuprof"));
    let report = report.arg("report").arg(&host.run).output().unwrap();
    assert_eq!(report.status.success(), !profiles.is_empty(), "{report:?}");
    fs::remove_dir_all(&host.folder).unwrap();
}

fn compare(case: &Case, profiles: &[Profile], said: &Work) {
    let recorded = recorded(profiles, said);
    match case.counts {
        Counts::Equal => {
            assert_eq!(&recorded, said);
            for profile in profiles {
                assert!(profile.health().is_complete(), "{}", profile.health());
            }
        }
        Counts::EqualAndCut => assert_eq!(&recorded, said),
        Counts::AtLeast(least) => {
            for (what, count) in said {
                let found = recorded.get(what).copied().unwrap_or_default();
                assert!(found >= *count.min(&least), "{what}: {found} of {count}");
            }
        }
        Counts::AtMost => {
            for (what, count) in &recorded {
                let most = said.get(what).copied().unwrap_or_default();
                assert!(*count <= most, "{what}: {count} of {most}");
            }
        }
    }
}
