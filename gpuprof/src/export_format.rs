//! The formats to which a profile can be converted.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use profiler_analysis::Format;

/// A format to which a profile can be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// A trace format of the library.
    Trace(Format),
    Html,
    Flamegraph,
    Nsys,
    Parquet,
    JsonLines,
    Counts,
}

impl ExportFormat {
    /// All formats except the library's trace formats.
    const OTHERS: [Self; 6] =
        [Self::Html, Self::Flamegraph, Self::Nsys, Self::Parquet, Self::JsonLines, Self::Counts];

    fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<ExportFormat>> = LazyLock::new(|| {
            let traces = Format::ALL.into_iter().map(ExportFormat::Trace);
            traces.chain(ExportFormat::OTHERS).collect()
        });
        &ALL
    }

    /// The key, the extensions of file names without the leading dot, and the help.
    fn parts(self) -> (&'static str, Vec<&'static str>, &'static str) {
        match self {
            Self::Trace(format) => {
                let other = match format {
                    // Most trace viewers read JSON in this format.
                    Format::Chrome => Some("json"),
                    Format::Pprof => Some("pprof"),
                    _ => None,
                };
                let extensions = std::iter::once(format.extension()).chain(other).collect();
                (format.key(), extensions, format.summary())
            }
            Self::Html => ("html", vec!["html", "htm"], "A self-contained page for a browser"),
            Self::Flamegraph => ("flamegraph", vec!["svg"], "GPU time by range and kernel, as SVG"),
            Self::Nsys => (
                "nsys",
                vec!["sqlite", "db"],
                "SQLite as `nsys export` writes it, for `nsys stats` and other readers",
            ),
            Self::Parquet => {
                ("parquet", vec!["parquet"], "A folder of tables for DuckDB, Polars and Spark")
            }
            Self::JsonLines => ("jsonl", vec!["jsonl", "ndjson"], "A line of JSON for every range"),
            Self::Counts => (
                "counts",
                vec!["counts"],
                "Names and counts, never times: the same text whenever the program does the same",
            ),
        }
    }

    pub(crate) fn key(self) -> &'static str {
        self.parts().0
    }

    fn extensions(self) -> Vec<&'static str> {
        self.parts().1
    }

    /// Returns the format for a file name. A format key before the extension decides, as in
    /// `run.kineto.json`; otherwise the longest matching extension does.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let named = name.rsplit('.').nth(1).filter(|_| name.matches('.').count() > 1);
        let named = named.and_then(|word| Self::all().iter().find(|format| format.key() == word));
        if let Some(format) = named {
            return Some(*format);
        }
        let ends =
            |extension: &str| name.strip_suffix(extension).is_some_and(|stem| stem.ends_with('.'));
        let fitting = Self::all().iter().filter_map(|format| {
            let extensions = format.extensions().into_iter();
            extensions.filter(|extension| ends(extension)).map(str::len).max().map(|l| (l, *format))
        });
        // Among extensions of equal length, the first format wins.
        fitting.rev().max_by_key(|(length, _)| *length).map(|(_, format)| format)
    }

    /// Lists every format with its extensions, for messages.
    pub(crate) fn list() -> String {
        let formats = Self::all().iter().map(|format| {
            let extensions = format.extensions().join(", .");
            format!("{} (.{extensions})", format.key())
        });
        formats.collect::<Vec<_>>().join(", ")
    }
}

impl ValueEnum for ExportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        Self::all()
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.key()).help(self.parts().2);
        Some(match self {
            // Accept the former name, from before `report --format json` wrote one document.
            Self::JsonLines => value.alias("json"),
            _ => value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_have_a_format() {
        for format in ExportFormat::all() {
            for extension in format.extensions() {
                assert_eq!(ExportFormat::of_name(&format!("run.{extension}")), Some(*format));
            }
        }
        let of = ExportFormat::of_name;
        assert_eq!(of("RUN.HTML"), Some(ExportFormat::Html));
        assert_eq!(of("a.pt.trace.json"), Some(ExportFormat::Trace(Format::Kineto)));
        assert_eq!(of("a.kineto.json"), Some(ExportFormat::Trace(Format::Kineto)));
        assert_eq!(of("a.Firefox.json"), Some(ExportFormat::Trace(Format::Firefox)));
        assert_eq!(of("kineto.json"), Some(ExportFormat::Trace(Format::Chrome)));
        assert_eq!((of("html"), of("run.txt"), of("")), (None, None, None));
    }
}
