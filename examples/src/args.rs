//! The command line of the quickstart.

use std::ffi::OsString;
use std::iter::Peekable;
use std::path::PathBuf;

/// What `--help` prints.
pub const USAGE: &str = "\
Trains a small network on the GPU, profiles it, and prints the report.
Without a GPU it prints the report of a recorded run instead.

Usage: quickstart [OPTIONS]

  --batches N       batches to train, 20 by default
  --save FILE       also write the recording to FILE
  --no-profiler     train only; the NVTX ranges are there for another tool, or for the variable GPU_PROFILER
  --replay [FILE]   print the report of FILE, or of the bundled recording; train nothing
  --help            print this text";

/// The options of the quickstart.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Args {
    /// `--batches N`
    pub batches: usize,
    /// `--save FILE`
    pub save: Option<PathBuf>,
    /// Not `--no-profiler`
    pub profiler: bool,
    /// `--replay [FILE]`
    pub replay: Option<Replay>,
    /// `--help`
    pub help: bool,
}

/// The recording that `--replay` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The one inside the program.
    Bundled,
    /// A file.
    File(PathBuf),
}

impl Default for Args {
    fn default() -> Args {
        Args { batches: 20, save: None, profiler: true, replay: None, help: false }
    }
}

impl Args {
    /// Reads the arguments that follow the program's name.
    ///
    /// # Errors
    ///
    /// A sentence for the user, if an argument is unknown, incomplete, or contradicts another.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, String> {
        let mut args = args.into_iter().peekable();
        let mut parsed = Args::default();
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--batches") => {
                    let number = value(&mut args).ok_or("--batches needs a number")?;
                    parsed.batches = match number.to_str().and_then(|n| n.parse().ok()) {
                        Some(batches) if batches > 0 => batches,
                        _ => {
                            return Err(format!(
                                "--batches {}: not a number above 0",
                                number.display()
                            ));
                        }
                    };
                }
                Some("--save") => {
                    let file = value(&mut args).ok_or("--save needs a file")?;
                    parsed.save = Some(file.into());
                }
                Some("--no-profiler") => parsed.profiler = false,
                Some("--replay") => {
                    let file = value(&mut args);
                    parsed.replay = Some(file.map_or(Replay::Bundled, |f| Replay::File(f.into())));
                }
                Some("--help" | "-h") => parsed.help = true,
                _ => return Err(format!("unknown argument {}", arg.display())),
            }
        }
        match (parsed.profiler, &parsed.save, &parsed.replay) {
            (false, Some(_), _) => {
                Err("--save needs the profiler, --no-profiler turns it off".into())
            }
            (false, _, Some(_)) => Err("--replay trains nothing, --no-profiler only trains".into()),
            (_, Some(_), Some(_)) => Err("--replay records nothing that --save could write".into()),
            _ => Ok(parsed),
        }
    }
}

/// The next argument, unless it is an option.
fn value(args: &mut Peekable<impl Iterator<Item = OsString>>) -> Option<OsString> {
    args.next_if(|arg| !arg.as_encoded_bytes().starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn every_option_is_understood() {
        assert_eq!(parse(""), Ok(Args::default()));
        let expected = Args { batches: 3, save: Some("a.gpuprof".into()), ..Args::default() };
        assert_eq!(parse("--batches 3 --save a.gpuprof"), Ok(expected));
        let expected = Args { profiler: false, batches: 5, ..Args::default() };
        assert_eq!(parse("--no-profiler --batches 5"), Ok(expected));
        assert_eq!(parse("--replay").map(|args| args.replay), Ok(Some(Replay::Bundled)));
        let file = Replay::File("b.gpuprof".into());
        assert_eq!(parse("--replay b.gpuprof").map(|args| args.replay), Ok(Some(file)));
        assert!(parse("--help").is_ok_and(|args| args.help));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("--fast", "unknown argument --fast"),
            ("extra", "unknown argument extra"),
            ("--batches", "needs a number"),
            ("--batches 0", "--batches 0"),
            ("--batches many", "--batches many"),
            ("--save --no-profiler", "needs a file"),
            ("--save a --no-profiler", "--no-profiler"),
            ("--replay --save a", "--save"),
            ("--replay --no-profiler", "--replay"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
