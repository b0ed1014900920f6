//! Comparisons and gates on a GPU: what did not change passes, what is slower or more does not, and a fix does. With
//! `--features nvml` clocks are watched. `OUT=FOLDER` keeps what the tests print, as `gate.txt`, and recordings of
//! the programs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)] // tests that say what they found

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use gpu_profiler_examples::mlp::Mlp;
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use gpu_profiler_tests::programs::case_studies::CaseStudy;
use gpu_profiler_tests::programs::diseases::{AntiPattern, Program};
use gpu_profiler_tests::programs::samples::{Kernels, Workload};
use nvtx::range;
use profiler_analysis::Speed;
use profiler_analysis::compare;
use profiler_analysis::gate::{Gate, GateVerdict, Outcome};
use profiler_analysis::prelude::*;
use profiler_core::{Profile, Profiler, gpu_test};
use test_support::relapses;

/// The folder into which a process of `programs_that_did_not_change_pass` records.
const RECORD_INTO: &str = "GPU_GATE_RECORD_INTO";
/// Processes, and runs of each workload in a process.
const PROCESSES: usize = 10;
const RUNS: usize = 10;

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(RECORD_INTO) {
        record_runs(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    harness::run_optimized(&[
        ("relapses_fail_and_fixes_pass", relapses_fail_and_fixes_pass),
        ("programs_that_did_not_change_pass", programs_that_did_not_change_pass),
        (
            "what_is_the_same_passes_and_what_is_slower_fails",
            what_is_the_same_passes_and_what_is_slower_fails,
        ),
        ("training_passes_its_own_baseline", training_passes_its_own_baseline),
    ])
    .exit_code()
}

/// A baseline that goes away.
struct Baseline(PathBuf);

impl Baseline {
    fn new(test: &str) -> Self {
        let name = format!("gpu-gate-{}-{test}.json", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn gate(&self, update: bool) -> Gate {
        Gate::new(&self.0).update(update)
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn judged(gate: Gate, work: impl FnMut()) -> GateVerdict {
    let verdict = gpu_test().unwrap().warm_up(5).baseline(gate).try_run(work).unwrap();
    eprintln!("{verdict}\n");
    let said = |what: &str| verdict.notes().iter().any(|note| note.contains(what));
    assert_eq!(said("without the feature nvml"), !cfg!(feature = "nvml"), "{verdict}");
    verdict
}

fn what_is_the_same_passes_and_what_is_slower_fails() {
    let gpu = Gpu::get();
    let stream = gpu.stream();
    let step = |spin_ns: u64, launches: usize| {
        let gpu = &gpu;
        move || {
            let _step = range("step");
            gpu.launch_spin(stream, spin_ns);
            let _small = range("small");
            (0..launches).for_each(|_| gpu.launch_empty(stream));
            gpu.synchronize(stream);
        }
    };
    let baseline = Baseline::new("spin");
    assert!(judged(baseline.gate(true), step(200_000, 4)).is_written());
    let same = judged(baseline.gate(false), step(200_000, 4));
    assert!(same.is_pass(), "{same}");
    let slower = judged(baseline.gate(false), step(212_000, 4));
    assert!(!slower.is_pass() && !slower.is_undecided(), "{slower}");
    let spin = slower.times().iter().find(|time| time.kernel.as_deref() == Some("spin <1, 1>"));
    let spin = spin.unwrap();
    assert!(spin.outcome == Outcome::Slower && (spin.ratio - 1.06).abs() < 0.01, "{spin}");
    let more = judged(baseline.gate(false), step(200_000, 5));
    assert_eq!(more.counts().len(), 2, "{more}");
    assert!(more.to_string().contains("empty <1, 32> in step/small: 4 -> 5"), "{more}");
    gpu.destroy(stream);
}

fn training_passes_its_own_baseline() {
    let mut mlp = Mlp::new(1, 0).unwrap();
    mlp.warm_up().unwrap();
    let baseline = Baseline::new("mlp");
    let mut batch = 0;
    let mut train = || {
        mlp.train_batch(batch).unwrap();
        batch += 1;
    };
    assert!(judged(baseline.gate(true), &mut train).is_written());
    let size = std::fs::metadata(&baseline.0).unwrap().len();
    eprintln!("its baseline has {size} bytes");
    let verdict = judged(baseline.gate(false), &mut train);
    assert!(verdict.is_pass(), "{verdict}");
}

/// Prints a line, and keeps it.
fn say(line: &str) {
    println!("{line}");
    if let Some(folder) = std::env::var_os("OUT") {
        let file = Path::new(&folder).join("gate.txt");
        let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Five runs of a program, which has run before. `OUT=FOLDER` keeps the first as `NAME.gpuprof`.
fn runs_of(name: &str, mut program: Program, steps: usize) -> Vec<Profile> {
    program.run(2).unwrap();
    let profiler = Profiler::builder().build().unwrap();
    let mut record = |run| {
        let (result, profile) = profiler.record(|| program.run(steps)).unwrap();
        result.unwrap();
        if let Some(folder) = std::env::var_os("OUT").filter(|_| run == 0) {
            profile.save(Path::new(&folder).join(format!("{name}.gpuprof"))).unwrap();
        }
        profile.without_recording()
    };
    (0..5).map(&mut record).collect()
}

/// The nine anti-patterns and the four case studies, with one run and with five runs a side.
fn relapses_fail_and_fixes_pass() {
    let folder = Folder::new("relapses");
    let mut wrong = Vec::new();
    let names = AntiPattern::ALL
        .map(AntiPattern::name)
        .into_iter()
        .chain(CaseStudy::ALL.map(CaseStudy::name));
    assert!(names.eq(relapses::PLANTED.map(|(name, _)| name)));
    for (at, (name, _)) in relapses::PLANTED.into_iter().enumerate() {
        let [slow, fast] = [false, true].map(|after| {
            let file = format!("{name}-{}", if after { "after" } else { "before" });
            match AntiPattern::ALL.get(at) {
                Some(disease) => {
                    let program = Program::new(*disease, after, 0).unwrap();
                    runs_of(&file, program, disease.steps())
                }
                None => {
                    let case = CaseStudy::ALL[at - AntiPattern::ALL.len()];
                    runs_of(&file, case.program(after, 0).unwrap(), case.steps())
                }
            }
        });
        for runs in [1, 5] {
            let file = folder.0.join("baseline.json");
            match relapses::judge(name, &slow[..runs], &fast[..runs], &file) {
                Ok(shown) => say(&format!(
                    "{name:<20} {runs} a side: {:.2} times as slow; parts miss {:.4} %, not explained {:.2} %",
                    shown.factor,
                    100.0 * shown.missed,
                    100.0 * shown.unexplained
                )),
                Err(why) => wrong.push(format!("{runs} a side: {why}")),
            }
        }
    }
    wrong.iter().for_each(|why| say(why));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

fn file_of(folder: &Path, workload: Workload, run: usize) -> PathBuf {
    folder.join(format!("{}-{run}.gpuprof", workload.name()))
}

fn record_runs(folder: &Path) {
    let kernels = Kernels::new(0).unwrap();
    let profiler = Profiler::builder().build().unwrap();
    // The first three warm up.
    for run in 0..3 + RUNS {
        for workload in Workload::ALL {
            let (ran, profile) = profiler.record(|| workload.run(&kernels)).unwrap();
            ran.unwrap();
            if let Some(run) = run.checked_sub(3) {
                profile.save(file_of(folder, workload, run)).unwrap();
            }
        }
    }
}

/// Twenty comparisons, each of five processes with five others, and no run in two of them.
fn programs_that_did_not_change_pass() {
    let folder = Folder::new("same");
    let of_process = |process: usize| folder.0.join(process.to_string());
    for process in 0..PROCESSES {
        std::fs::create_dir_all(of_process(process)).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.env(RECORD_INTO, of_process(process)).status().unwrap();
        assert!(status.success(), "process {process}: {status}");
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut alarms = Vec::new();
    for (workload, run) in
        Workload::ALL.into_iter().flat_map(|workload| (0..RUNS).map(move |run| (workload, run)))
    {
        let mut processes: Vec<usize> = (0..PROCESSES).collect();
        random.shuffle(&mut processes);
        let load = |process: &usize| {
            let file = file_of(&of_process(*process), workload, run);
            Profile::load(file).unwrap().without_recording()
        };
        let runs: Vec<Profile> = processes.iter().map(load).collect();
        let (before, after) = runs.split_at(PROCESSES / 2);
        let comparison = compare(before, after);
        let wall = comparison.wall();
        let name = workload.name();
        say(&format!("{name} {run}: {}", wall.headline()));
        if matches!(wall.speed, Speed::Slower | Speed::Faster) {
            alarms.push(format!("{name} {run}: {wall}"));
        }
        let gate = Gate::new(folder.0.join("baseline.json"));
        gate.clone().update(true).judge(before).unwrap();
        let verdict = gate.update(false).judge(after).unwrap();
        if !verdict.is_pass() && !verdict.is_undecided() {
            alarms.push(format!("{name} {run}: {verdict}"));
        }
    }
    // One in a hundred may be.
    assert!(alarms.len() <= 1, "\n{}", alarms.join("\n\n"));
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("gpu-gate-{}-{test}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
