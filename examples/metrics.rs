//! Lists the hardware metrics of a chip, and prints the number of passes for a set of metrics.
//! Needs no GPU, only libcupti.
//!
//! ```text
//! cargo run --release --example metrics                          # the chips that this libcupti knows, and the sets
//! cargo run --release --example metrics -- GH100 dram__bytes     # metrics of a chip whose names have this
//! cargo run --release --example metrics -- GH100 --plan dram__bytes_read.sum gpu__time_duration.sum
//! cargo run --release --example metrics -- GH100 --plan roofline
//! cargo run --release --example metrics -- --nvprof gld_efficiency
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::process::ExitCode;

use cupti::Error;
use cupti::counters::{HostLibrary, MetricKind, Set, nvprof};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] => chips(),
        ["--nvprof", ref names @ ..] => {
            of_nvprof(names);
            Ok(())
        }
        [chip, "--plan", ref metrics @ ..] => plan(chip, metrics),
        [chip, ref parts @ ..] => list(chip, parts),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn chips() -> Result<(), Error> {
    let library = HostLibrary::open()?;
    println!("CUPTI {}, {}", library.version(), library.path().display());
    println!("chips: {}", library.chips()?.join(", "));
    println!("sets: {}", Set::ALL.map(Set::name).join(", "));
    Ok(())
}

/// Prints counters, ratios and throughputs whose names contain all of the parts.
fn list(chip: &str, parts: &[&str]) -> Result<(), Error> {
    let host = HostLibrary::open()?.host(chip)?;
    for kind in MetricKind::ALL {
        for name in host.metrics(kind)? {
            if parts.iter().all(|part| name.contains(part)) {
                println!("{}", host.describe(&name)?);
            }
        }
    }
    Ok(())
}

/// Plans the passes for metrics. A name may be a metric or a set of metrics.
fn plan(chip: &str, names: &[&str]) -> Result<(), Error> {
    let host = HostLibrary::open()?.host(chip)?;
    let mut metrics = Vec::new();
    for name in names {
        match Set::named(name) {
            Some(set) => {
                let (there, missing) = host.of_set(set)?;
                for metric in missing {
                    println!("{set}: {chip} has no {metric}");
                }
                metrics.extend(there);
            }
            None => metrics.push(*name),
        }
    }
    println!("{}", host.plan(metrics)?);
    Ok(())
}

/// Prints the successors of nvprof's metrics.
fn of_nvprof(names: &[&str]) {
    for row in nvprof::ROWS {
        if names.is_empty() || names.contains(&row.name) {
            println!("{}: {} ({})", row.name, row.today.join(", "), row.note);
        }
    }
}
