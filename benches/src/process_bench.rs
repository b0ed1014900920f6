//! A benchmark in which each measurement is a process of its own: this program started again with
//! `--mode`.

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Any error, as a benchmark prints it.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The arguments of a benchmark, each with the value that follows it.
#[derive(Debug)]
pub struct Arguments(Vec<(String, Option<String>)>);

impl Arguments {
    fn of_process() -> Self {
        let mut arguments = std::env::args().skip(1).peekable();
        let next = || {
            let name = arguments.next()?;
            Some((name, arguments.next_if(|value| !value.starts_with("--"))))
        };
        Self(std::iter::from_fn(next).collect())
    }

    /// Takes an argument without a value. Returns true if it was given.
    pub fn take_flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(given, _)| given != name);
        self.0.len() < before
    }

    /// Takes an argument and its value.
    ///
    /// # Errors
    /// The value is missing or cannot be read.
    pub fn take<T>(&mut self, name: &str) -> Result<Option<T>>
    where
        T: FromStr<Err: Into<Box<dyn Error>>>,
    {
        let value = self.0.iter().rfind(|(given, _)| given == name).map(|(_, value)| value.clone());
        self.take_flag(name);
        let Some(value) = value else { return Ok(None) };
        let value = value.ok_or_else(|| format!("{name} needs a value"))?;
        value.parse().map(Some).map_err(Into::into)
    }

    /// Takes an argument whose value is a list, or returns the usual list.
    ///
    /// # Errors
    /// The value is missing.
    pub fn take_list(&mut self, name: &str, usual: &str) -> Result<Vec<String>> {
        let list = self.take(name)?.unwrap_or_else(|| usual.to_owned());
        Ok(list.split(',').map(str::to_owned).collect())
    }
}

/// Reads the arguments. A process with a `--mode` prints the sample that `measure` returns as a
/// line of JSON; otherwise it compares.
///
/// Measures nothing without `--bench` or another known argument, or if `unavailable` returns a
/// reason.
#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints what it measured"
)]
pub fn run<A, S: Serialize>(
    name: &str,
    unavailable: impl FnOnce() -> Option<String>,
    read: impl FnOnce(&mut Arguments) -> Result<A>,
    measure: impl FnOnce(&str, &A) -> Result<S>,
    compare: impl FnOnce(&A) -> Result<ExitCode>,
) -> ExitCode {
    let run = || -> Result<ExitCode> {
        let mut arguments = Arguments::of_process();
        let given = arguments.0.len();
        arguments.take_flag("--bench");
        let mode: Option<String> = arguments.take("--mode")?;
        let options = read(&mut arguments)?;
        // `cargo bench` passes such arguments to all benchmarks: a filter, or criterion's own
        // flags.
        for (unknown, _) in &arguments.0 {
            eprintln!("{name}: does not know {unknown}");
        }
        if arguments.0.len() == given {
            eprintln!("{name}: not measured without --bench");
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = unavailable() {
            eprintln!("{name}: skipped: {why}");
            // A process that was started to measure must not appear to have measured.
            return Ok(ExitCode::from(u8::from(mode.is_some())));
        }
        let Some(mode) = mode else { return compare(&options) };
        println!("{}", serde_json::to_string(&measure(&mode, &options)?)?);
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
