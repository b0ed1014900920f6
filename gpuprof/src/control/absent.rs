//! Determines from `/proc` why a live process has no control socket.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use gpuprof_control::manifest::{Process, State};
use gpuprof_control::socket::Folder;
use gpuprof_control::{ProcessId, RUN_VARIABLE, RunFolder};

use crate::run::INJECTION_VARIABLE;

/// The socket folder of a process that has a different `XDG_RUNTIME_DIR`.
pub(crate) fn folder_of(process: ProcessId) -> Option<Folder> {
    let environment = fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
    let runtime = variable(&environment, "XDG_RUNTIME_DIR")?;
    Folder::open(&Path::new(&runtime).join("gpuprof")).ok()
}

/// Describes why a process has no open socket, and the remedy.
pub(crate) fn reason(process: ProcessId) -> String {
    let pid = process.pid;
    if !process.is_alive() {
        return format!("process {pid} has ended");
    }
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
    let own = nix::unistd::geteuid().as_raw();
    if let Some(user) = number_of(&status, "Uid:").filter(|user| *user != own) {
        return format!("process {pid} belongs to user {user}: that user alone can switch it");
    }
    let environment = match fs::read(proc.join("environ")) {
        Ok(environment) => environment,
        Err(error) => {
            return format!(
                "process {pid} has no control socket, and /proc/{pid}/environ does not show why: {error}"
            );
        }
    };
    let Some(run) = variable(&environment, RUN_VARIABLE) else {
        return format!(
            "process {pid} was not started by `gpuprof run`, and a process cannot be entered later: start it anew with `gpuprof run -- PROGRAM`"
        );
    };
    let maps = fs::read(proc.join("maps")).unwrap_or_default();
    let library = variable(&environment, INJECTION_VARIABLE).unwrap_or_default();
    if !is_mapped(&maps, &library) {
        let why = match is_mapped(&maps, OsStr::new("libcuda.so")) {
            true => "has loaded CUDA and not initialised it",
            false => "has not loaded CUDA",
        };
        return format!(
            "process {pid} {why}: recording and its control start with its first CUDA call"
        );
    }
    let run = RunFolder::open(Path::new(&run));
    let Ok(processes) = run
        .as_ref()
        .map_err(ToString::to_string)
        .and_then(|run| run.processes().map_err(|error| error.to_string()))
    else {
        return format!(
            "process {pid} has no control socket, and its run folder cannot be read: was it removed?"
        );
    };
    let of = |id: ProcessId| processes.found.iter().rev().find(|found| found.id == id);
    if let Some(found) = of(process) {
        return in_state(found);
    }
    let parent = number_of(&status, "PPid:").and_then(|parent| ProcessId::from_pid(parent).ok());
    match parent.filter(|parent| of(*parent).is_some()) {
        Some(parent) => format!(
            "process {pid} is a fork of process {}: a forked child is not recorded, unless it starts a program",
            parent.pid
        ),
        None => format!(
            "process {pid} has the library and no recording: a forked child is not recorded, nor a process that cannot write to its run folder"
        ),
    }
}

fn in_state(process: &Process) -> String {
    let pid = process.id.pid;
    let reason = process.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match process.state {
        State::Failed => format!("process {pid} is not recorded{reason}"),
        State::Yielded => {
            format!("process {pid} records itself with profiler-core, which controls it{reason}")
        }
        State::Finished | State::Idle => format!("process {pid} is ending{reason}"),
        _ => format!("process {pid} has no control socket{reason}"),
    }
}

/// The value of a variable at the start of the process.
fn variable(environment: &[u8], name: &str) -> Option<OsString> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value =
        variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.filter(|value| !value.is_empty()).map(|value| OsString::from_vec(value.to_vec()))
}

/// True if a file with the last component of this name is mapped.
fn is_mapped(maps: &[u8], file: &OsStr) -> bool {
    let Some(name) = Path::new(file).file_name() else { return false };
    maps.split(|&byte| byte == b'\n').any(|line| {
        let mapped = line.rsplit(|&byte| byte == b'/').next();
        line.contains(&b'/') && mapped.is_some_and(|mapped| mapped.starts_with(name.as_bytes()))
    })
}

/// The first number on a line of `/proc/PID/status`.
fn number_of(status: &str, key: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}
