//! NVIDIA's own tool as a referee: does it record every range, at its level?
//!
//! `NSYS_NVTX` names a program that runs another under `nsys` with NVTX alone and exports what was
//! recorded, as `nsys-nvtx OUT.sqlite PROGRAM`; `nsys` lies beside it. No GPU is needed.
#![allow(clippy::panic, clippy::print_stderr, reason = "a test without the standard harness")]

mod support;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    support::run_scenario();
    let nsys = env::var_os("NSYS_NVTX");
    if nsys.is_none() {
        eprintln!(
            "nsys_records_every_range_at_its_level is ignored: NSYS_NVTX does not name a program \
             that runs nsys"
        );
    }
    let ignored = nsys.is_none();
    let test = move || records_every_range(&nsys.ok_or("NSYS_NVTX is not set")?);
    let trial =
        Trial::test("nsys_records_every_range_at_its_level", test).with_ignored_flag(ignored);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn records_every_range(nsys_nvtx: &OsString) -> Result<(), Failed> {
    let folder = support::Folder::new();
    let recorded = folder.0.join("recorded.sqlite");
    let output = Command::new(nsys_nvtx)
        .arg(&recorded)
        .arg(env::current_exe()?)
        .env(support::SCENARIO, "tree")
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("attached: true"), "{stdout}{stderr}");

    let output = Command::new(Path::new(nsys_nvtx).with_file_name("nsys"))
        .args(["stats", "--report", "nvtx_pushpop_trace", "--format", "csv"])
        .arg(&recorded)
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout);
    let mut threads: BTreeMap<&str, Vec<(usize, String)>> = BTreeMap::new();
    let mut columns: Option<(usize, usize, usize)> = None;
    for line in report.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        if let Some((name, thread, level)) = columns {
            if cells.len() > level {
                let range = (cells[level].parse()?, cells[name].to_owned());
                threads.entry(cells[thread]).or_default().push(range);
            }
        } else {
            let find = |title| cells.iter().position(|cell| *cell == title);
            columns = find("Name")
                .zip(find("TID"))
                .zip(find("Lvl"))
                .map(|((name, thread), level)| (name, thread, level));
        }
    }

    let mut expected = vec![(0, "training".to_owned())];
    for _ in 0..100 {
        expected.push((1, "step".to_owned()));
        expected.push((2, "forward".to_owned()));
        expected.push((2, "backward ∑ 核".to_owned()));
        expected.push((3, "l".repeat(300)));
    }
    assert_eq!(threads.len(), 2, "{report}");
    for ranges in threads.values() {
        assert_eq!(*ranges, expected);
    }
    Ok(())
}
