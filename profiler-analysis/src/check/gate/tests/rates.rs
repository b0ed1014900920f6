//! The rates of false alarms and of planted slowdowns found, of comparisons and gates replayed on runs of a GPU.
//!
//! Every comparison draws its runs from as many processes, as the files of a user come from, and no run is in two
//! comparisons of an experiment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::baseline::Key;
use super::super::run::{EVERYTHING, OUTSIDE, Part, Run};
use super::super::{Gate, GateVerdict, Outcome, Sample, TimeChange, TimeKind};
use crate::analyze::compare::wall::{RangeKey, WallRun, WallSide, change};
use crate::analyze::compare::{Compare, WallCause, WallChange};
use crate::speed::Speed;
use profiler_core::tables::busy::SessionTime;

/// Comparisons of an experiment.
const OF: usize = 100;

/// What one machine ran: by workload and variant, the runs of each process.
struct Pool {
    runs: BTreeMap<(String, String), BTreeMap<usize, Vec<Run>>>,
}

/// The pools of all recordings; the README beside them describes their origin.
fn pools() -> Vec<Pool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare-samples");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "csv")).collect();
    files.sort();
    files.iter().map(|file| Pool::read(&std::fs::read_to_string(file).unwrap())).collect()
}

impl Pool {
    fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let head: Vec<&str> = lines.next().unwrap().split(',').collect();
        let mut pool = Self { runs: BTreeMap::new() };
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let runs = pool.runs.entry((cells[2].to_owned(), cells[3].to_owned())).or_default();
            let of_process = runs.entry(cells[0].parse().unwrap()).or_default();
            of_process.push(run(&head[4..], &cells[4..]));
        }
        pool
    }

    fn drawer(&self, workload: &str, variant: &str) -> Drawer {
        Drawer(self.runs[&(workload.to_owned(), variant.to_owned())].clone())
    }
}

/// The run of a line: what `Run::from_profile` makes of its profile, but for single kernels.
fn run(columns: &[&str], cells: &[&str]) -> Run {
    let mut wall = WallRun::default();
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    for (column, cell) in columns.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        let ns: f64 = cell.parse().unwrap();
        let names: Vec<&str> = column.split('|').collect();
        match names[..] {
            ["wall"] => {
                wall.active_ns = ns;
                wall.session = Some(SessionTime { ns: ns as u64, outside_ns: 0 });
            }
            ["wall", path, cause] => {
                let cause: WallCause = serde_json::from_value(cause.into()).unwrap();
                let path = if path.is_empty() { OUTSIDE } else { path };
                let key = (path != OUTSIDE).then(|| RangeKey { path: path.into(), domain: None });
                wall.parts.entry(key).or_default()[cause as usize] += ns;
            }
            [of @ ("host" | "busy" | "kernels"), path] => {
                let part = parts.entry(path.to_owned()).or_default();
                part.counts.extend([("instances", 1), ("launches", 1)]);
                match of {
                    "host" => part.host_ns = ns,
                    "busy" => part.busy_ns = ns,
                    _ => part.kernel_ns = ns,
                }
            }
            _ => panic!("{column}"),
        }
    }
    let step = &parts["step"];
    let everything = Part { busy_ns: step.busy_ns, kernel_ns: step.kernel_ns, ..Part::default() };
    parts.insert(EVERYTHING.to_owned(), everything);
    Run { parts, wall: Some(wall), ..Run::default() }
}

/// Hands out each run once.
struct Drawer(BTreeMap<usize, Vec<Run>>);

impl Drawer {
    /// One run of each of so many processes but these, of those that have most left; `None` if too few
    /// have any. The numbers of the processes come with them.
    fn draw(
        &mut self,
        count: usize,
        but: &[usize],
        random: &mut fastrand::Rng,
    ) -> Option<(Vec<usize>, Vec<Run>)> {
        let mut left: Vec<(usize, usize)> = self
            .0
            .iter()
            .filter(|(process, runs)| !runs.is_empty() && !but.contains(process))
            .map(|(process, runs)| (runs.len(), *process))
            .collect();
        random.shuffle(&mut left);
        left.sort_by_key(|(runs, _)| std::cmp::Reverse(*runs));
        let mut chosen: Vec<usize> = left.iter().take(count).map(|(_, process)| *process).collect();
        random.shuffle(&mut chosen);
        let draw = |process: &usize| {
            let runs = self.0.get_mut(process)?;
            Some(runs.swap_remove(random.usize(0..runs.len())))
        };
        let runs: Option<Vec<Run>> = chosen.iter().map(draw).collect();
        (chosen.len() == count).then_some((chosen, runs?))
    }
}

/// So many comparisons of two variants of a workload, of so many runs a side, by turns of the machines.
fn comparisons(
    workload: &str,
    [before, after]: [&str; 2],
    runs: usize,
    of: usize,
) -> Vec<[Vec<Run>; 2]> {
    let pools = pools();
    let is_same = before == after;
    let mut random = fastrand::Rng::with_seed(42);
    let mut drawers: Vec<[Drawer; 2]> = pools
        .iter()
        .map(|pool| [pool.drawer(workload, before), pool.drawer(workload, after)])
        .collect();
    let mut drawn = Vec::new();
    let mut spent = 0;
    while drawn.len() < of && spent < drawers.len() {
        spent = 0;
        for [of_before, of_after] in &mut drawers {
            let pair = of_before.draw(runs, &[], &mut random).and_then(|(processes, before)| {
                let of_after = if is_same { &mut *of_before } else { of_after };
                let (_, after) = of_after.draw(runs, &processes, &mut random)?;
                Some([before, after])
            });
            match pair {
                Some(pair) if drawn.len() < of => drawn.push(pair),
                Some(_) => {}
                None => spent += 1,
            }
        }
    }
    assert_eq!(drawn.len(), of, "{workload} {after}: the pool is too small");
    drawn
}

fn compared([before, after]: &[Vec<Run>; 2]) -> WallChange {
    let side = |runs: &[Run]| {
        let walls: Vec<WallRun> = runs.iter().map(|run| run.wall.clone().unwrap()).collect();
        WallSide::from_runs(&walls, true)
    };
    change([&side(before), &side(after)], &Compare::new(), None, None)
}

fn judged(name: &str, [before, after]: &[Vec<Run>; 2], set: impl Fn(Gate) -> Gate) -> GateVerdict {
    let file = format!("gate-rates-{}-{name}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    let runs = before.len() as u32;
    let gate = set(Gate::new(&file).runs(runs, runs));
    let decide = |runs: &[Run], update: bool| {
        let mut left = runs.iter();
        let sample = || {
            let key = Key {
                device: "H100".to_owned(),
                driver: "580".to_owned(),
                clocks: None,
                build: "release".to_owned(),
            };
            // `decide` takes as many as the look has.
            let run = left.next().unwrap().clone();
            Ok(Sample { key, recorded: String::new(), run, throttled: None, unwatched: None })
        };
        gate.clone().update(update).decide(&gate.plan, sample).unwrap()
    };
    assert!(decide(before, true).is_written());
    let verdict = decide(after, false);
    let _ = std::fs::remove_file(&file);
    verdict
}

fn alarms(runs: usize) -> Vec<String> {
    let mut alarms = Vec::new();
    for workload in ["gpu", "launch"] {
        let drawn = comparisons(workload, ["plain", "plain"], runs, OF);
        let walls = drawn.iter().map(compared);
        let is_alarm = |wall: &WallChange| matches!(wall.speed, Speed::Slower | Speed::Faster);
        let found: Vec<String> = walls.filter(is_alarm).map(|wall| wall.headline()).collect();
        println!("{workload}, {runs} a side: {} of {OF} alarms", found.len());
        alarms.extend(found);
    }
    alarms
}

#[test]
fn of_two_hundred_comparisons_of_the_same_two_are_alarms_at_most() {
    for runs in [5, 8] {
        let alarms = alarms(runs);
        assert!(alarms.len() <= 2, "{runs} a side: {}", alarms.join("\n"));
    }
}

/// One run a side rests on an assumption, which an interruption of some milliseconds breaks.
#[test]
fn one_run_a_side_is_wrong_where_a_run_was_interrupted() {
    let alarms = alarms(1);
    assert!(alarms.len() <= 8, "{}", alarms.join("\n"));
    assert!(alarms.iter().all(|text| text.contains("if processes differ by at most")));
}

/// The outcomes of gates on so many runs a side, with this effect for all times.
fn verdicts(workload: &str, variant: &str, runs: usize, effect: f64) -> Vec<GateVerdict> {
    let drawn = comparisons(workload, ["plain", variant], runs, OF);
    let set = |gate: Gate| gate.wall_effect(effect).minimum_effect(effect);
    let name = format!("{workload}-{variant}-{runs}");
    drawn.iter().map(|drawn| judged(&name, drawn, set)).collect()
}

#[test]
fn of_two_hundred_gates_on_the_same_two_fail_at_most() {
    let mut failed = 0;
    for (workload, effect) in [("gpu", 0.01), ("launch", 0.03)] {
        let verdicts = verdicts(workload, "plain", 8, effect);
        let of = verdicts.iter().filter(|verdict| !verdict.is_pass()).count();
        println!("{workload}: {of} of {OF} gates fail without a change");
        failed += of;
    }
    assert!(failed <= 2, "{failed}");
}

/// 2 % more wall time by more work on the GPU, and 5 % by more work of the host.
#[test]
fn planted_slowdowns_are_found_in_ninety_five_of_a_hundred() {
    for (workload, runs, effect, of, range) in [
        ("gpu", 8, 0.01, TimeKind::Busy, "step"),
        ("launch", 11, 0.03, TimeKind::Host, "step/prepare"),
    ] {
        let verdicts = verdicts(workload, "slow", runs, effect);
        let failed = verdicts.iter().filter(|verdict| !verdict.is_pass()).count();
        let is_named = |time: &TimeChange| {
            time.of == of && time.range == range && time.outcome == Outcome::Slower
        };
        let named = verdicts.iter().filter(|verdict| verdict.times().iter().any(is_named)).count();
        let walls: Vec<&WallChange> =
            verdicts.iter().filter_map(|verdict| verdict.wall()).collect();
        let mut ratios: Vec<f64> = walls.iter().map(|wall| wall.ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        println!(
            "{workload}, {runs} a side: {failed} of {OF} fail, {named} by the {of} of {range}; wall time {:+.1} %",
            100.0 * (ratios[OF / 2] - 1.0)
        );
        assert!(failed >= 95 && named >= 95, "{workload}: {failed} {named}");
        let is_explained = |wall: &&&WallChange| {
            let parts: f64 = wall.contributions.iter().map(|of| of.change_ns).sum();
            (parts - wall.change_ns).abs() <= 0.01 * wall.before_ns
        };
        assert_eq!(walls.iter().filter(is_explained).count(), OF);
    }
}
