//! Tests that are processes of their own, as a framework's devices and threads are one for a process. Each test program includes it
//! by its path.

use std::env;
use std::process::Command;

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
    Some(out)
}
