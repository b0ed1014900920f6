//! The cost of a range compared with NVTX's C header and NVIDIA's crate, without a tool and with a
//! tool that does nothing.
//!
//! ```sh
//! .ci/fetch-nvtx-peers target/referees/nvtx-peers
//! . target/referees/nvtx-peers/env
//! cd benches/nvtx-peers && cargo run --release --features nvidia [-- --rounds N]
//! ```
//!
//! Without `NVTX_INCLUDE` there is no header for the comparison, and without the feature `nvidia`
//! there is no crate of NVIDIA's. The output states which one is missing. A process keeps its tool
//! until it ends, so each round starts one process without the tool and one with it. All rows are
//! measured in the same process, in turn, so that any slowdown of the machine affects all of them.
//! Comparisons are paired by process.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};

use gpu_profiler_benches::stats::{bootstrap_median, median};

use crate::rows::{
    ANNOTATE, CALL, HEADER, HEADER_CALL, LAYER_SPAN, LAYER_STAY, NO_LAYER_SPAN, NO_LAYER_STAY,
    NOTHING, NVIDIA, NVIDIA_CALL, NVIDIA_LAYER_SPAN, RANGE, RANGE_CALL, ROWS,
};

mod measure;
mod rows;

/// The variable in which NVTX clients find the name of a tool's library.
const INJECTION: &str = "NVTX_INJECTION64_PATH";
/// The task of a started process: `measure` or `check`.
const CHILD: &str = "NVTX_PEERS_CHILD";

const ROUNDS: usize = 41;
const RESAMPLES: usize = 10_000;

/// The targets, in nanoseconds per pair and as ratios.
const NO_TOOL: f64 = 1.0;
const NO_TOOL_TO_HEADER: f64 = 1.10;
const TOOL_ABOVE_HEADER: f64 = 5.0;
const ANNOTATE_TO_RANGE: f64 = 0.05;
const LAYER_ABOVE_EMPTY: f64 = 20.0;

fn main() -> ExitCode {
    let outcome = match env::var(CHILD).as_deref() {
        Ok("check") => measure::check(),
        Ok(_) => {
            for nanoseconds in measure::measure() {
                println!("{nanoseconds}");
            }
            Ok(())
        }
        Err(_) => compare(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nvtx-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let rounds = rounds()?;
    let tool = null_tool()?;
    if !cfg!(nvtx_header) {
        println!("no rows of the C header: NVTX_INCLUDE named no folder when this was built");
    }
    if !cfg!(feature = "nvidia") {
        println!("no rows of NVIDIA's crate: built without the feature `nvidia`");
    }
    start("check", Some(&tool))?;
    println!("the tool saw every pair of every row");

    // Indexed by configuration, then row, then round.
    let mut results = [vec![Vec::new(); ROWS.len()], vec![Vec::new(); ROWS.len()]];
    for round in 0..rounds {
        for step in 0..2 {
            let with_tool = (round + step) % 2;
            let output = start("measure", (with_tool == 1).then_some(&tool))?;
            let text = String::from_utf8(output.stdout)?;
            let values: Vec<f64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
            if values.len() != ROWS.len() {
                return Err(format!("a process measured {} rows", values.len()).into());
            }
            for (row, value) in results[with_tool].iter_mut().zip(values) {
                row.push(value);
            }
        }
    }
    println!("{rounds} rounds; nanoseconds a pair of push and pop, interval of 95 %\n");
    let [without, with] = results.map(Table);
    without.print("no tool");
    with.print("a tool that does nothing");
    print_targets(&without, &with);
    Ok(())
}

fn rounds() -> Result<usize, Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => Ok(ROUNDS),
        ["--rounds", number] => match number.parse()? {
            0 => Err("at least one round".into()),
            rounds => Ok(rounds),
        },
        _ => Err("usage: nvtx-peers [--rounds N]".into()),
    }
}

/// The path of the tool's library, which is beside this program.
fn null_tool() -> Result<PathBuf, Box<dyn Error>> {
    let path = env::current_exe()?.with_file_name("libnull_tool.so");
    if path.exists() { Ok(path) } else { Err(format!("{} is missing", path.display()).into()) }
}

/// Starts this program again, with this tool or without one.
fn start(what: &str, tool: Option<&PathBuf>) -> Result<Output, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    command.env(CHILD, what).env_remove(INJECTION).env_remove("NULL_TOOL");
    if let Some(tool) = tool {
        command.env(INJECTION, tool);
    }
    if what == "check" {
        command.env("NULL_TOOL", "count");
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{what}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// The results of one configuration: by row, then round.
struct Table(Vec<Vec<f64>>);

impl Table {
    /// The results of a row; `None` if this build does not have the row.
    fn row(&self, name: &str) -> Option<&[f64]> {
        let index = ROWS.iter().position(|row| row.name == name)?;
        Some(&self.0[index])
    }

    /// Combines the results of two rows, round by round.
    fn paired(&self, name: &str, base: &str, by: fn(f64, f64) -> f64) -> Option<Estimate> {
        let pairs = self.row(name)?.iter().zip(self.row(base)?);
        Some(Estimate::from_values(
            &pairs.map(|(value, base)| by(*value, *base)).collect::<Vec<_>>(),
        ))
    }

    fn print(&self, title: &str) {
        println!(
            "{title:<30} {:>8} {:>8} {:>8}   above the base      to the base",
            "median", "min", "max"
        );
        for row in ROWS {
            let Some(values) = self.row(row.name) else { continue };
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(0.0, f64::max);
            print!("{:<30} {:8.3} {min:8.3} {max:8.3}", row.name, median(values));
            if let Some(base) = base(row.name)
                && let Some(above) = self.paired(row.name, base, |value, base| value - base)
                && let Some(ratio) = self.paired(row.name, base, |value, base| value / base)
            {
                print!("   {above:+.3}   {ratio:.3}   base: {base}");
            }
            println!();
        }
        println!();
    }
}

/// The row with which a row is compared.
fn base(name: &str) -> Option<&'static str> {
    match name {
        HEADER => Some(NOTHING),
        RANGE | NVIDIA => Some(HEADER),
        ANNOTATE => Some(RANGE),
        HEADER_CALL => Some(CALL),
        RANGE_CALL | NVIDIA_CALL => Some(HEADER_CALL),
        LAYER_STAY => Some(NO_LAYER_STAY),
        LAYER_SPAN | NVIDIA_LAYER_SPAN => Some(NO_LAYER_SPAN),
        _ => None,
    }
}

/// A median with its confidence interval.
struct Estimate {
    median: f64,
    low: f64,
    high: f64,
}

impl Estimate {
    fn from_values(values: &[f64]) -> Estimate {
        let (low, high) = bootstrap_median(values, RESAMPLES, 1);
        Estimate { median: median(values), low, high }
    }

    fn at_most(&self, limit: f64) -> &'static str {
        verdict(self.high <= limit, self.low > limit)
    }

    fn verdict_within(&self, low: f64, high: f64) -> &'static str {
        verdict(low <= self.low && self.high <= high, self.high < low || high < self.low)
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Estimate { median, low, high } = self;
        let digits = f.precision().unwrap_or(3);
        if f.sign_plus() {
            write!(f, "{median:+.digits$} ({low:+.digits$} to {high:+.digits$})")
        } else {
            write!(f, "{median:.digits$} ({low:.digits$} to {high:.digits$})")
        }
    }
}

/// The verdict of the interval on a target. It is open if the limit is inside the interval.
fn verdict(met: bool, missed: bool) -> &'static str {
    match (met, missed) {
        (true, _) => "met",
        (_, true) => "MISSED",
        _ => "open",
    }
}

fn print_targets(without: &Table, with: &Table) {
    let line =
        |target: String, estimate: Option<Estimate>, verdict: fn(&Estimate) -> &'static str| {
            match estimate {
                Some(estimate) => {
                    println!("{:<7} {target}: {estimate:.3}", verdict(&estimate));
                }
                None => println!("{:<7} {target}: no row to compare with", "-"),
            }
        };
    println!("targets");
    line(
        format!("no tool, {RANGE}: at most {NO_TOOL} ns"),
        without.row(RANGE).map(Estimate::from_values),
        |estimate| estimate.at_most(NO_TOOL),
    );
    for (name, base) in [(RANGE, HEADER), (RANGE_CALL, HEADER_CALL)] {
        line(
            format!("no tool, {name}: at most {NO_TOOL_TO_HEADER} of {base}"),
            without.paired(name, base, |value, base| value / base),
            |estimate| estimate.at_most(NO_TOOL_TO_HEADER),
        );
    }
    for (name, base) in [(RANGE, HEADER), (RANGE_CALL, HEADER_CALL)] {
        line(
            format!("a tool, {name}: at most {TOOL_ABOVE_HEADER} ns above {base}"),
            with.paired(name, base, |value, base| value - base),
            |estimate| estimate.at_most(TOOL_ABOVE_HEADER),
        );
    }
    for (title, table) in [("no tool", without), ("a tool", with)] {
        line(
            format!("{title}, {ANNOTATE}: within {ANNOTATE_TO_RANGE} of {RANGE}"),
            table.paired(ANNOTATE, RANGE, |value, base| value / base),
            |estimate| estimate.verdict_within(1.0 - ANNOTATE_TO_RANGE, 1.0 + ANNOTATE_TO_RANGE),
        );
    }
    for (name, base) in [(LAYER_STAY, NO_LAYER_STAY), (LAYER_SPAN, NO_LAYER_SPAN)] {
        line(
            format!("no tool, {name}: at most {LAYER_ABOVE_EMPTY} ns above {base}"),
            without.paired(name, base, |value, base| value - base),
            |estimate| estimate.at_most(LAYER_ABOVE_EMPTY),
        );
    }
}
