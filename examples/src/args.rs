//! The command line of the quickstart.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;

/// Trains a small network on the GPU, profiles it, and prints the report.
///
/// Without a GPU it prints the report of a recorded run instead.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "quickstart")]
#[non_exhaustive]
pub struct Args {
    /// Batches to train
    #[arg(long, value_name = "N", default_value = "20")]
    pub batches: NonZeroUsize,
    /// Also write the recording to FILE
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Train only; another tool or the variable GPU_PROFILER can still record the NVTX ranges
    #[arg(long, conflicts_with_all = ["save", "replay"])]
    pub no_profiler: bool,
    /// Print the report of FILE, or of the bundled recording; train nothing
    #[arg(long, value_name = "FILE", conflicts_with = "save")]
    pub replay: Option<Option<PathBuf>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(["quickstart"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn every_option_is_understood() {
        let default = parse("").unwrap();
        assert_eq!((default.batches.get(), default.no_profiler), (20, false));
        assert_eq!((&default.save, &default.replay), (&None, &None));
        let batches = |count| NonZeroUsize::new(count).unwrap();
        let save = Some("a.gpuprof".into());
        let expected = Args { batches: batches(3), save, ..default.clone() };
        assert_eq!(parse("--batches 3 --save a.gpuprof").unwrap(), expected);
        let expected = Args { no_profiler: true, batches: batches(5), ..default };
        assert_eq!(parse("--no-profiler --batches 5").unwrap(), expected);
        assert_eq!(parse("--replay").unwrap().replay, Some(None));
        assert_eq!(parse("--replay b.gpuprof").unwrap().replay, Some(Some("b.gpuprof".into())));
        assert_eq!(parse("--help").unwrap_err().kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("--fast", "unexpected argument '--fast'"),
            ("extra", "unexpected argument 'extra'"),
            ("--batches", "a value is required for '--batches"),
            ("--batches 0", "invalid value '0' for '--batches"),
            ("--batches many", "invalid value 'many' for '--batches"),
            ("--save --no-profiler", "a value is required for '--save"),
            ("--save a --no-profiler", "--no-profiler"),
            ("--replay --save a", "--save"),
            ("--replay --no-profiler", "--replay"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
