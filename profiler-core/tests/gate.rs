//! Baselines: written, compared with, and what a gate says that fails, cannot decide, or has nothing to compare with.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use cupti::fake::{Fake, Work};
use nvtx::range;
use profiler_core::gate::{Gate, Outcome, Verdict};
use profiler_core::testing::gpu_test_with;
use profiler_core::{Error, Profile, Profiler};
use serde_json::Value;

/// An empty folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gate-tests-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("in a folder/step.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program and how it is on this day.
#[derive(Clone, Copy)]
struct Step {
    gemm_ns: u64,
    relu_ns: u64,
    gemms: usize,
    copy: u64,
    /// Times are up to so many percent longer.
    noise: u64,
}

const STEP: Step = Step { gemm_ns: 50_000, relu_ns: 4_000, gemms: 3, copy: 1000, noise: 1 };

/// The stand-in, and a source of noise that is the same whenever it is asked.
struct Machine {
    fake: Fake,
    profiler: Profiler,
    random: fastrand::Rng,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let fake = Fake::new();
        let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
        Self { fake, profiler, random: fastrand::Rng::with_seed(seed) }
    }

    fn run(&mut self, step: Step) -> Result<Profile, Error> {
        let Self { fake, profiler, random } = self;
        let mut long = |ns: u64| ns + random.u64(0..=ns * step.noise / 100);
        let mut work = || {
            let _step = range("step");
            fake.launch(Work::host_to_device(step.copy));
            let _forward = range("forward");
            for _ in 0..step.gemms {
                fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(long(step.gemm_ns)));
            }
            fake.launch(Work::kernel(c"relu").taking_ns(long(step.relu_ns)));
        };
        profiler.record(&mut work).map(|((), profile)| profile)
    }

    fn gate(&mut self, gate: &Gate, step: Step) -> Result<Verdict, Error> {
        gate.run(|| self.run(step))
    }
}

fn written(folder: &Folder) -> Gate {
    let gate = Gate::new(folder.file()).update(false);
    let verdict = Machine::new(1).gate(&gate.clone().update(true), STEP).unwrap();
    assert!(verdict.is_written() && verdict.is_pass());
    assert_eq!(verdict.runs(), 40, "a baseline is written from the most");
    assert!(verdict.to_string().contains("baseline written from 40 runs"), "{verdict}");
    gate
}

#[test]
fn what_is_the_same_passes_at_the_first_look() {
    let folder = Folder::new();
    let gate = written(&folder);
    let verdict = Machine::new(2).gate(&gate, STEP).unwrap();
    assert!(verdict.is_pass() && !verdict.is_undecided() && !verdict.is_written(), "{verdict}");
    assert_eq!((verdict.runs(), verdict.counts().len()), (10, 0));
    let names: Vec<_> =
        verdict.times().iter().map(|time| (time.range.as_str(), time.kernel.as_deref())).collect();
    let (gemm, relu) = (Some("gemm<float> <128, 256>"), Some("relu <128, 256>"));
    assert_eq!(
        names,
        [
            ("(everything)", None),
            ("step", None),
            ("step/forward", gemm),
            ("step/forward", relu),
            ("step/forward", None)
        ]
    );
    for time in verdict.times() {
        assert!(time.low < 1.0 && time.high.unwrap() < 1.03 && time.outcome == Outcome::Same);
        assert!((time.ratio - 1.0).abs() < 0.01, "{time}");
    }
}

#[test]
fn a_slower_kernel_is_named_with_its_bounds() {
    let folder = Folder::new();
    let gate = written(&folder);
    let verdict = Machine::new(3).gate(&gate, Step { gemm_ns: 52_500, ..STEP }).unwrap();
    assert!(!verdict.is_pass() && !verdict.is_undecided(), "{verdict}");
    let gemm = &verdict.times()[2];
    assert!(gemm.outcome == Outcome::Slower && gemm.low > 1.03 && gemm.limit == 1.03, "{gemm}");
    assert!((gemm.ratio - 1.05).abs() < 0.01, "{gemm}");
    let relu = &verdict.times()[3];
    assert_eq!(relu.outcome, Outcome::Same, "only what is slower");
    let text = verdict.to_string();
    assert!(
        text.contains("slower:") && text.contains("gemm<float> <128, 256> in step/forward: 50."),
        "{text}"
    );
    assert!(text.contains("GPU_BASELINES=update"), "{text}");
    let markdown = verdict.to_markdown();
    assert!(
        markdown.contains("**Slower**") && markdown.contains("gemm&lt;float&gt;"),
        "{markdown}"
    );

    let faster = Machine::new(4).gate(&gate, Step { gemm_ns: 45_000, ..STEP }).unwrap();
    assert!(faster.is_pass() && faster.times()[2].outcome == Outcome::Faster, "{faster}");
    assert!(faster.to_string().contains("faster:"), "{faster}");

    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!(
        (&json["runs"], &json["times"][2]["outcome"]),
        (&Value::from(10), &Value::from("slower"))
    );

    let ignoring = gate.ignore_times("gemm*").ignore_times("step*").ignore_times("(everything)");
    let verdict = Machine::new(3).gate(&ignoring, Step { gemm_ns: 52_500, ..STEP }).unwrap();
    assert!(verdict.is_pass() && verdict.times().len() == 1, "{verdict}");
}

#[test]
fn counts_are_exact() {
    let folder = Folder::new();
    let gate = written(&folder);
    let changed = |step: Step| {
        let verdict = Machine::new(5).gate(&gate, step).unwrap();
        assert!(!verdict.is_pass() && !verdict.is_undecided() && verdict.runs() == 10, "{verdict}");
        verdict.counts().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        changed(Step { gemms: 4, ..STEP }),
        ["gemm<float> <128, 256> in step/forward: 3 -> 4", "launches in step/forward: 4 -> 5"]
    );
    assert_eq!(
        changed(Step { gemms: 0, ..STEP }),
        [
            "gone: gemm<float> <128, 256> in step/forward: 3 -> 0",
            "launches in step/forward: 4 -> 1"
        ]
    );
    assert_eq!(changed(Step { copy: 1001, ..STEP }), ["copied_bytes in step: 1000 -> 1001"]);
}

#[test]
fn counts_that_differ_in_the_baseline_may_differ() {
    let folder = Folder::new();
    let gate = Gate::new(folder.file()).runs(4, 8);
    let mut machine = Machine::new(6);
    let mut gemms = [2, 3].into_iter().cycle();
    let mut next = || machine.run(Step { gemms: gemms.next().unwrap(), ..STEP });
    let update = gate.clone().update(true);
    assert_eq!(update.run(&mut next).unwrap().runs(), 8);
    let gate = gate.update(false).ignore_times("*");
    let verdict = gate.run(&mut next).unwrap();
    assert!(verdict.is_pass() && verdict.runs() == 4 && verdict.times().is_empty(), "{verdict}");
    assert!(
        verdict.notes().iter().any(|note| note.contains("differed among the runs")),
        "{verdict}"
    );
    // One stand-in a process at a time.
    drop(machine);
    let more = Machine::new(6).gate(&gate, Step { gemms: 4, ..STEP }).unwrap();
    assert!(
        more.to_string().contains("gemm<float> <128, 256> in step/forward: 2 to 3 -> 4"),
        "{more}"
    );
}

#[test]
fn what_noise_hides_is_undecided_and_fails_when_the_budget_is_spent() {
    let folder = Folder::new();
    let gate = Gate::new(folder.file()).update(false);
    let noisy = Step { noise: 60, ..STEP };
    Machine::new(7).gate(&gate.clone().update(true), noisy).unwrap();
    let verdict = Machine::new(8).gate(&gate, noisy).unwrap();
    assert!(!verdict.is_pass() && verdict.is_undecided(), "{verdict}");
    assert_eq!(verdict.runs(), 40, "the whole budget");
    let text = verdict.to_string();
    for part in
        ["failed, undecided", "undecided, which counts as a failure", "allow more runs than 40"]
    {
        assert!(text.contains(part), "{text}");
    }
    // A greater effect can be told from the same noise.
    let verdict = Machine::new(8).gate(&gate.clone().minimum_effect(0.4), noisy).unwrap();
    assert!(verdict.is_pass(), "{verdict}");
    // Two runs of each have no bounds at all.
    let few = gate.runs(2, 2);
    Machine::new(9).gate(&few.clone().update(true), STEP).unwrap();
    let verdict = Machine::new(9).gate(&few, STEP).unwrap();
    assert!(verdict.is_undecided() && verdict.times()[0].high.is_none(), "{verdict}");
    assert!(verdict.to_string().contains("too few runs for bounds"), "{verdict}");
    assert!(verdict.to_string().contains("allow more runs than 2"), "{verdict}");
}

/// More runs beside it would not help, and nobody is told that they do.
#[test]
fn a_baseline_of_too_few_runs_says_how_many_it_takes() {
    let folder = Folder::new();
    let gate = Gate::new(folder.file()).update(false);
    let why =
        "the baseline has 1 run, too few for any bound at this error rate: write it from 2 or more";
    let verdict = Machine::new(12).gate(&gate.clone().runs(1, 1).update(true), STEP).unwrap();
    assert!(verdict.is_pass() && verdict.notes().contains(&why.to_owned()), "{verdict}");
    let gate = gate.runs(8, 32);
    let verdict = Machine::new(13).gate(&gate, STEP).unwrap();
    assert!(verdict.is_undecided() && verdict.runs() == 32, "{verdict}");
    let text = verdict.to_string();
    assert!(text.ends_with(&format!("what to do: {why}")), "{text}");
    assert!(verdict.to_markdown().contains(why) && !text.contains("allow more runs"), "{text}");
    // With a greater error rate it does; and with none nothing does.
    let verdict = Machine::new(13).gate(&gate.clone().error_rate(0.1), STEP).unwrap();
    assert!(verdict.is_pass() && !verdict.to_string().contains("too few"), "{verdict}");
    let never = Machine::new(13).gate(&gate.clone().error_rate(0.0), STEP).unwrap();
    assert!(never.to_string().contains("at an error rate of 0: ask for a greater one"), "{never}");
    // From as many as it says it can be decided.
    let least = gate.clone().runs(2, 2).update(true);
    let verdict = Machine::new(12).gate(&least, STEP).unwrap();
    assert!(!verdict.notes().contains(&why.to_owned()), "{verdict}");
    let verdict = Machine::new(13).gate(&gate.runs(8, 64), STEP).unwrap();
    assert!(verdict.times()[0].high.is_some(), "{verdict}");
}

#[test]
fn all_slower_by_one_factor_is_said_to_look_like_clocks() {
    let folder = Folder::new();
    let gate = written(&folder);
    let step = Step { gemm_ns: 56_000, relu_ns: 4_480, ..STEP };
    let verdict = Machine::new(10).gate(&gate, step).unwrap();
    assert!(verdict.to_string().contains("look at the clocks"), "{verdict}");
}

#[test]
fn runs_in_hand_are_judged_at_one_look() {
    let folder = Folder::new();
    let gate = written(&folder);
    let mut machine = Machine::new(11);
    let runs: Vec<Profile> = (0..12).map(|_| machine.run(STEP).unwrap()).collect();
    let verdict = gate.judge(&runs).unwrap();
    assert!(verdict.is_pass() && verdict.runs() == 12, "{verdict}");
    let many: Vec<Profile> = (0..66).map(|_| machine.run(STEP).unwrap()).collect();
    let verdict = gate.judge(&many).unwrap();
    assert!(
        verdict.notes().iter().any(|note| note.contains("of 66 runs the first 64")),
        "{verdict}"
    );
    assert!(gate.judge(&[] as &[Profile]).unwrap_err().to_string().contains("no run"));
}

#[test]
fn the_file_is_in_order_and_the_same_from_the_same_runs() {
    let folder = Folder::new();
    let _ = written(&folder);
    let text = fs::read_to_string(folder.file()).unwrap();
    let other = Folder::new();
    let _ = written(&other);
    assert_eq!(text, fs::read_to_string(other.file()).unwrap());
    assert_eq!(fs::read_dir(folder.file().parent().unwrap()).unwrap().count(), 1);
    assert!(text.ends_with("}\n"));
    let json: Value = serde_json::from_str(&text).unwrap();
    let entry = &json["entries"][0];
    let forward = &entry["ranges"]["step/forward"];
    assert_eq!((&json["format"], &entry["runs"]), (&"gpu-baseline 1".into(), &40.into()));
    assert_eq!(
        (&forward["counts"]["launches"], &forward["kernels"]["relu <128, 256>"]["count"]),
        (&4.into(), &1.into())
    );
    let times = &forward["kernels"]["relu <128, 256>"]["time"];
    assert_eq!(times["runs_ns"].as_str().unwrap().split(' ').count(), 40);
    assert!((4_000.0..=4_040.0).contains(&times["median_ns"].as_f64().unwrap()));
    // A line each, whatever the number of runs.
    assert!(text.lines().count() < 80, "{text}");
}

fn edited(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    edit(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

#[test]
fn every_machine_and_build_has_its_own() {
    let folder = Folder::new();
    let gate = written(&folder);
    let said = |gate: &Gate| Machine::new(1).gate(gate, STEP).unwrap_err().to_string();
    let text = said(&gate.clone().build("other"));
    assert!(text.contains("has nothing of") && text.contains("other build"), "{text}");
    assert!(text.contains("it has: ") && text.contains("GPU_BASELINES=update"), "{text}");
    edited(&folder.file(), |json| json["entries"][0]["driver"] = "1.2.3".into());
    assert!(said(&gate).contains("driver 1.2.3"));
    Machine::new(1).gate(&gate.clone().update(true), STEP).unwrap();
    let json: Value = serde_json::from_str(&fs::read_to_string(folder.file()).unwrap()).unwrap();
    assert_eq!(json["entries"].as_array().unwrap().len(), 2, "the other one stays");
    assert!(Machine::new(1).gate(&gate, STEP).unwrap().is_pass());
    // Clocks that one side does not know are not compared, and an update writes over one entry alone.
    edited(&folder.file(), |json| {
        let entries = json["entries"].as_array_mut().unwrap();
        entries.push(entries[1].clone());
        entries[1]["clocks"] = "1980 MHz".into();
        entries[2]["clocks"] = "1200 MHz".into();
    });
    assert!(Machine::new(1).gate(&gate, STEP).unwrap().is_pass());
    Machine::new(1).gate(&gate.clone().update(true), STEP).unwrap();
    edited(&folder.file(), |json| {
        let entries = json["entries"].as_array_mut().unwrap();
        let clocks: Vec<_> = entries.iter().map(|entry| entry["clocks"].clone()).collect();
        assert_eq!(clocks, [Value::Null, Value::Null, "1200 MHz".into()]);
        entries.pop();
    });
    edited(&folder.file(), |json| {
        json["entries"][0]["clocks"] = "1980 MHz".into();
        json["entries"][1]["clocks"] = "1980 MHz".into();
    });
    assert!(Machine::new(1).gate(&gate, STEP).unwrap().is_pass());
}

#[test]
fn what_cannot_be_compared_is_an_error_that_says_what_to_do() {
    let folder = Folder::new();
    let gate = Gate::new(folder.file()).update(false);
    let said = |gate: &Gate| Machine::new(1).gate(gate, STEP).unwrap_err().to_string();
    let missing = said(&gate);
    assert!(missing.contains("there is no baseline") && missing.contains("GPU_BASELINES=update"));
    let _ = written(&folder);
    for text in ["", "{", "[]", "{\"format\":\"gpu-baseline 2\",\"entries\":[]}"] {
        fs::write(folder.file(), text).unwrap();
        let bad = said(&gate);
        assert!(bad.contains("is not a baseline that can be read"), "{text:?}: {bad}");
    }
    fs::remove_file(folder.file()).unwrap();
    let gate = written(&folder);
    edited(&folder.file(), |json| {
        json["entries"][0]["ranges"]["step"]["kernel_time"]["runs_ns"] = "1 nan".into();
    });
    assert!(said(&gate).contains("\"nan\" is no time"));
    fs::remove_file(folder.file()).unwrap();
    let gate = written(&folder);
    // CUPTI dropped a record.
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let lossy = || {
        profiler.start()?;
        let _step = range("step");
        fake.launch(Work::kernel(c"relu"));
        fake.drop_records(1);
        profiler.stop()
    };
    let incomplete = gate.run(lossy).unwrap_err().to_string();
    assert!(
        incomplete.contains("INCOMPLETE") && incomplete.contains("cannot be compared"),
        "{incomplete}"
    );
}

#[test]
fn a_measured_test_stops_when_it_is_decided() {
    let folder = Folder::new();
    let runs = Cell::new(0);
    let test = |gate: Gate, ns: u64| {
        let fake = Fake::new();
        let profiler = Profiler::builder().library(fake.library().unwrap()).build();
        runs.set(0);
        gpu_test_with(profiler).unwrap().warm_up(2).baseline(gate).try_run(|| {
            runs.set(runs.get() + 1);
            let _range = range("work");
            fake.launch(Work::kernel(c"k").taking_ns(ns + runs.get() % 7));
        })
    };
    let gate = Gate::new(folder.file()).runs(10, 20);
    assert!(test(gate.clone().update(true), 10_000).unwrap().is_written());
    assert_eq!(runs.get(), 2 + 20);
    let gate = gate.update(false);
    assert!(test(gate.clone(), 10_000).unwrap().is_pass());
    assert_eq!(runs.get(), 2 + 10);
    assert!(!test(gate.clone(), 11_000).unwrap().is_pass(), "it was stopped");
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build();
    let gated = gpu_test_with(profiler).unwrap().baseline(gate);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        gated.run(|| {
            let _range = range("work");
            fake.launch(Work::kernel(c"k").taking_ns(11_000));
        })
    }));
    let text = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("k <128, 256> in work: 10.00 us -> 11.00 us, +9.97 %"), "{text}");
}

/// Run by the test below, which says where.
#[test]
#[ignore = "a part of the_variable_has_baselines_written"]
fn judged_as_the_variable_says() {
    let file = std::env::var_os("GATE_FILE").unwrap();
    match Machine::new(1).gate(&Gate::new(file).runs(4, 8), STEP) {
        Ok(verdict) => println!("verdict: {verdict}"),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
fn the_variable_has_baselines_written() {
    let folder = Folder::new();
    let said = |value: Option<&str>| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "--nocapture", "judged_as_the_variable_says"]);
        child.env("GATE_FILE", folder.file()).env_remove("GPU_BASELINES");
        if let Some(value) = value {
            child.env("GPU_BASELINES", value);
        }
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    assert!(said(None).contains("error: there is no baseline"));
    let wrong = said(Some("yes"));
    assert!(wrong.contains("GPU_BASELINES is \"yes\", which means nothing"), "{wrong}");
    assert!(!folder.file().exists());
    assert!(said(Some("update")).contains("baseline written from 8 runs"));
    for value in [None, Some(""), Some("check")] {
        let judged = said(value);
        assert!(judged.contains("passed after 4 runs"), "{value:?}: {judged}");
    }
}
