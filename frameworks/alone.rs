//! Tests that are processes of their own, as a framework's devices and threads are one for a process. Each test program includes it
//! by its path. On a machine with a GPU they run on that (`frameworks/on_gpu.py --faults`), else on the fake.

// Each program uses a part of it.
#![allow(dead_code)]
#![allow(clippy::print_stdout, reason = "it prints what on_gpu.py reads")]

use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Runs the test of this name in a process of its own; true in that one.
pub(crate) fn alone(test: &str) -> bool {
    alone_with(test, &[]).is_none()
}

/// The same with these variables; `None` in that process, else what it printed.
pub(crate) fn alone_with(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    if env::var_os("TEST_RUNS_ALONE").is_some() {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("TEST_RUNS_ALONE", "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && out.contains("1 passed"), "{out}");
    let checks: Vec<_> = out.lines().filter(|line| line.starts_with("checks ")).collect();
    // On lines of their own: the harness begins one with the test's name.
    if !checks.is_empty() {
        println!("\n{}", checks.join("\n"));
    }
    Some(out)
}

/// In a process of its own with two devices, for the test of this name; false in others, and on a machine with one GPU.
pub(crate) fn alone_with_two_devices(test: &str) -> bool {
    let has_one = is_on_gpu() && gpus() < 2;
    !has_one && alone_with(test, &[("FAKE_CUDA_DEVICES", "2")]).is_none()
}

/// Whether the tests run on a GPU.
pub(crate) fn is_on_gpu() -> bool {
    fs::exists("/dev/nvidiactl").unwrap()
}

/// The device files of GPUs, `nvidia0` and so on.
fn gpus() -> usize {
    let is_gpu = |name: &str| {
        let number = name.strip_prefix("nvidia").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let files = fs::read_dir("/dev").unwrap();
    files.filter(|file| is_gpu(&file.as_ref().unwrap().file_name().to_string_lossy())).count()
}

/// Prints what a test counted on each device, for `on_gpu.py`.
pub(crate) fn print_by_device(counts: &[(&str, impl Debug)]) {
    let counts: Vec<_> =
        counts.iter().map(|(name, by_device)| format!("{name:?}: {by_device:?}")).collect();
    println!("\nchecks {{\"by_device\": {{{}}}}}", counts.join(", "));
}

/// The names by which programs load the driver.
pub(crate) const DRIVER: &[&str] =
    &["libcuda.so", "libcuda.so.1", "libcuda.so.11", "libcuda.so.12", "libcuda.so.13"];

/// A linker's path on which the files of these libraries are found first, and are none. The folder is removed with it.
pub(crate) struct Hidden(PathBuf);

impl Hidden {
    pub(crate) fn new(libraries: &[&str]) -> Self {
        let name = format!("without-{}-{}", libraries[0], std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        libraries.iter().for_each(|library| fs::write(folder.join(library), "").unwrap());
        Self(folder)
    }

    /// The value of `LD_LIBRARY_PATH`.
    pub(crate) fn path(&self) -> String {
        let others = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        format!("{}:{others}", self.0.display())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
