//! Reports that are written in every format.

use profiler_core::testing::ci::{Check, CheckOutcome, CiMetric, CiReport};

/// One check of each outcome, with and without a location; metrics with and without bounds.
pub fn example() -> CiReport {
    CiReport::new("forward_is_lean")
        .check(Check::new("batch: launches", CheckOutcome::Passed))
        .check(Check::new("batch: copies", CheckOutcome::Passed).message("2 of <4>"))
        .check(
            Check::new("batch/forward: kernels", CheckOutcome::Failed)
                .message("kernels: 18, the budget is at most 16; 18 would pass\n  2 gemm<float>")
                .at("tests/lean.rs", 12),
        )
        .check(
            Check::new("batch/forward: gemm<float> <128, 256>", CheckOutcome::Undecided)
                .message("50.00 us -> 51.20 us, +2.40 % (+0.10 % to +4.70 %; limit +3.00 %)"),
        )
        .check(Check::new("GPU", CheckOutcome::Skipped).message("no driver was found"))
        .metric(
            CiMetric::new("batch/forward: gemm<float> <128, 256>", "ns", 51_200.0)
                .bounds(50_050.0, 52_350.5)
                .details("50.00 us -> 51.20 us"),
        )
        .metric(CiMetric::new("batch: copied", "bytes", 4096.0))
        .metric(CiMetric::new("no number", "ns", f64::NAN).bounds(0.0, f64::INFINITY))
        .note("clocks were not watched: built without the feature nvml")
        .lasting(std::time::Duration::from_micros(1_234_567))
}

/// Names that are markup, commands, controls or huge, each as a suite, a check, a message, a file,
/// a metric and a note.
pub const NAMES: [&str; 14] = [
    "",
    "plain",
    "größe 核 🚀 e\u{301}",
    "<a href=\"b\">&amp;'c'</a>",
    "]]><!--x--><?y?><![CDATA[",
    "a\0b\u{1}c\u{8}d\u{b}e\u{1b}[2Jf\u{7f}g\u{85}h\u{9b}",
    "a\nb\r\nc\td\u{2028}e",
    "::error::x\n::stop-commands::y\n::set-output name=z::w",
    "50%25,100%:0A%0A",
    "\u{202e}reversed\u{feff}\u{fffe}\u{ffff}\u{10ffff}",
    "|`code` **bold** [link](x) @someone #1|\n\n# heading\n```\n</pre>",
    "{\"a\": [1, \\u0000]}",
    "plain",
    "      indented   ",
];

pub fn hostile() -> CiReport {
    let long = "löng\u{7}<&]]>".repeat(1000);
    let mut names: Vec<&str> = NAMES.to_vec();
    names.extend([&*long, &long]);
    let mut report = CiReport::new(names.join("/"));
    for (number, name) in names.iter().enumerate() {
        let outcomes = [CheckOutcome::Failed, CheckOutcome::Undecided, CheckOutcome::Skipped];
        let check = Check::new(*name, outcomes[number % 3]).message(format!("{name}\n{name}"));
        report = report
            .check(check.at(*name, number as u32))
            .metric(CiMetric::new(*name, *name, 1.5).bounds(1.0, 2.0).details(*name))
            .note(*name);
    }
    report
}
