//! A benchmark in which each measurement is a process of its own: this program started again with
//! `--mode`.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

use serde::de::DeserializeOwned;

/// Any error, as a benchmark prints it.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The arguments of a benchmark.
pub trait Arguments: Default {
    /// The type of a measuring process's mode.
    type Mode;

    /// Reads an argument and its value, if it has one. Returns false for an unknown argument.
    ///
    /// # Errors
    /// The value is missing or cannot be read.
    fn read(&mut self, name: &str, value: &mut dyn FnMut() -> Result<String>) -> Result<bool>;

    /// The mode, if this is a measuring process.
    fn mode(&self) -> Option<&Self::Mode>;
}

/// Reads the arguments. A process with a mode prints the line that `measure` returns; otherwise it
/// compares.
///
/// Measures nothing without `--bench` or another known argument, or if `unavailable` returns a
/// reason.
#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]
pub fn run<A: Arguments>(
    name: &str,
    unavailable: impl FnOnce() -> Option<String>,
    measure: impl FnOnce(&A::Mode, &A) -> Result<String>,
    compare: impl FnOnce(&A) -> Result<ExitCode>,
) -> ExitCode {
    let run = || -> Result<ExitCode> {
        let Some(arguments) = arguments::<A>(name)? else {
            eprintln!("{name}: not measured without --bench");
            return Ok(ExitCode::SUCCESS);
        };
        if let Some(why) = unavailable() {
            eprintln!("{name}: skipped: {why}");
            // A process that was started to measure must not appear to have measured.
            return Ok(ExitCode::from(u8::from(arguments.mode().is_some())));
        }
        let Some(mode) = arguments.mode() else { return compare(&arguments) };
        println!("{}", measure(mode, &arguments)?);
        Ok(ExitCode::SUCCESS)
    };
    run().unwrap_or_else(|error| {
        eprintln!("{name}: ERROR: {error}");
        ExitCode::FAILURE
    })
}

/// Interleaves the modes: each round has each mode, and every round begins with the next mode.
pub fn turns<M>(rounds: usize, modes: &[M]) -> impl Iterator<Item = (usize, &M)> {
    let count = modes.len();
    (0..rounds).flat_map(move |round| {
        (0..count).map(move |place| (round, &modes[(place + round) % count]))
    })
}

/// Runs a measuring process and returns the sample that it prints as a line of JSON.
///
/// # Errors
/// The process cannot be started or prints no sample. The error contains its status and standard
/// error.
pub fn sample<S: DeserializeOwned>(command: &mut Command) -> Result<S> {
    let output = command.stdin(Stdio::null()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let sample = stdout.lines().find_map(|line| serde_json::from_str(line).ok());
    sample.ok_or_else(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}", output.status, stderr.trim_end()).into()
    })
}

/// Reads the arguments. Returns `None` without a known argument.
#[allow(clippy::print_stderr, reason = "a program that prints what it measured")]
fn arguments<A: Arguments>(name: &str) -> Result<Option<A>> {
    let (mut arguments, mut measures) = (A::default(), false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value").into());
        if arg == "--bench" || arguments.read(&arg, &mut value)? {
            measures = true;
        } else {
            // `cargo bench` passes such arguments to all benchmarks: a filter, or criterion's own
            // flags.
            eprintln!("{name}: does not know {arg}");
        }
    }
    Ok(measures.then_some(arguments))
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn every_round_begins_with_another_mode() {
        let all: Vec<_> = turns(3, &['a', 'b']).map(|(round, mode)| (round, *mode)).collect();
        assert_eq!(all, [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a'), (2, 'a'), (2, 'b')]);
        assert_eq!(turns::<char>(2, &[]).count(), 0);
    }
}
