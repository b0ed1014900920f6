//! Output formats.

use clap::ValueEnum;

/// A format, and `--json` in its place.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct FormatArgs<F: OutputFormat> {
    /// The format [default: for people]; those for programs have nanoseconds
    #[arg(long, value_enum)]
    // No clap default: the derive stores a single default for all `F`.
    format: Option<F>,
    /// As --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl<F: OutputFormat> FormatArgs<F> {
    pub(crate) fn get(self) -> F {
        if self.json { F::JSON } else { self.format.unwrap_or_default() }
    }
}

/// A set of formats with JSON among them.
pub(crate) trait OutputFormat: ValueEnum + Copy + Default + Send + Sync + 'static {
    const JSON: Self;

    /// Whether it is for people, as the first of each set is.
    fn is_for_people(self) -> bool;
}

/// Declares output formats with their help texts. The first one is the default.
macro_rules! output_formats {
    ($($type:ident: $default:ident $default_help:literal, $($format:ident $help:literal),+;)+) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
        pub(crate) enum $type {
            #[default]
            #[doc = $default_help]
            $default,
            $(#[doc = $help] $format,)+
        }

        impl OutputFormat for $type {
            const JSON: Self = Self::Json;

            fn is_for_people(self) -> bool {
                self == Self::default()
            }
        }
    )+};
}

output_formats! {
    TableFormat: Table "For people", Csv "With a header, for programs", Json "For programs";
    DiffFormat: Table "For people", Csv "With a header, for programs", Json "For programs",
        Markdown "For a comment on a pull request", Html "One page for a browser";
    TextFormat: Text "For people", Json "For programs";
    PageFormat: Text "For people", Json "For programs", Markdown "For a comment on a pull request";
    GateFormat: Text "For people", Json "For programs", Markdown "For a comment on a pull request",
        Junit "XML with a test case for each count that differs and each time",
        Github "Annotations of GitHub Actions at the baseline, for each failure",
        Bencher "Times as Bencher Metric Format", BenchmarkAction
        "Times for github-action-benchmark, tool customSmallerIsBetter";
    ReportFormat: Table "For people", Json "For programs",
        Jsonl "An object a line, for programs that read line by line";
    RanksFormat: Text "For people", Json "For programs",
        Csv "A line for each collective of each rank";
    RooflineFormat: Text "Tables for people", Json "For programs", Svg "An image",
        Html "A self-contained page with the image and tables";
}
