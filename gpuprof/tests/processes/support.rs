//! Folders, calls of gpuprof, and processes that are recorded.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpuprof_control::{OPTIONS_VARIABLE, ProcessId, RUN_VARIABLE};

use crate::recorded::{PLAN, PROGRAM};

/// An empty folder that goes away. Its folder `runtime` has the sockets of its processes.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpuprof-processes-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("runtime")).unwrap();
        fs::set_permissions(folder.join("runtime"), fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// gpuprof with this folder as the current one, and with the default action of all signals: a shell ignores
    /// some of them for what it starts in the background, these tests among it.
    pub(crate) fn gpuprof<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        self.program(env!("CARGO_BIN_EXE_gpuprof"), args)
    }

    /// The same for another program.
    pub(crate) fn program<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        command.args(args).current_dir(&self.0).env("XDG_RUNTIME_DIR", self.path("runtime"));
        let library = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN"];
        for variable in library.into_iter().chain([RUN_VARIABLE]) {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// The names of the run folders that were named by gpuprof.
    pub(crate) fn runs(&self) -> Vec<String> {
        runs_in(&self.0)
    }
}

/// The names of the run folders in a folder.
pub(crate) fn runs_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".gpurun")).collect()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn failure(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{}{}", self.out, self.error);
        assert_eq!(self.error.lines().count(), 1, "{}", self.error);
        self.error.strip_prefix("gpuprof: ").unwrap()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, error) = (text(output.stdout), text(output.stderr));
        assert!(!error.contains("panicked"), "{error}");
        Self { status: output.status.code(), signal: output.status.signal(), out, error }
    }
}

#[track_caller]
pub(crate) fn ran(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that waits for `on`, and launches until the end of its input.
pub(crate) struct Served {
    pub(crate) id: ProcessId,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Served {
    pub(crate) fn start(folder: &Folder, run: &Path, rank: Option<u32>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--ignored", "--exact", "--nocapture", PROGRAM])
            .env("XDG_RUNTIME_DIR", folder.path("runtime"))
            .env(RUN_VARIABLE, run)
            .env(OPTIONS_VARIABLE, "start=wait")
            .env(PLAN, "loop")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(rank) = rank {
            child.env("RANK", rank.to_string());
        }
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("socket is open")));
        // The rest of its output goes nowhere.
        std::thread::spawn(move || lines.for_each(drop));
        let stdin = child.stdin.take();
        Self { id: ProcessId::from_pid(child.id()).unwrap(), child, stdin }
    }

    pub(crate) fn pid(&self) -> String {
        self.id.pid.to_string()
    }

    /// Lets it end as programs do.
    pub(crate) fn end(&mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
