//! The workflows of the guide: YAML, and commands that do what the page says.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fake_cupti::{Fake, Work};
use profiler_core::Profiler;
use test_support::own_process::of_its_own;
use yaml_serde::Value;

const PAGE: &str = include_str!("../../docs/guide/ci.md");
const VARIABLES: &str = include_str!("../../docs/reference/environment-variables.md");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    PAGE.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The steps of all workflows, in order.
fn steps() -> Vec<Value> {
    let workflows = blocks("yaml").into_iter().map(|text| {
        let workflow: Value = yaml_serde::from_str(text).unwrap();
        assert!(workflow["name"].is_string() && !workflow["on"].is_null(), "{text}");
        workflow
    });
    let jobs = workflows.flat_map(|workflow| {
        let jobs = workflow["jobs"].as_mapping().unwrap();
        jobs.values().cloned().collect::<Vec<_>>()
    });
    jobs.flat_map(|job| {
        assert!(!job["runs-on"].is_null(), "{job:?}");
        job["steps"].as_sequence().unwrap().clone()
    })
    .collect()
}

/// The action that workflows use.
const ACTION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../.github/actions/gate");

/// A `gh` that keeps comments as files, each with the number of its version; without a token it fails.
const GH: &str = r#"#!/usr/bin/env bash
[[ -n $GH_TOKEN && $1 == api ]] || exit 4
case "$2 $3" in
"repos/o/r/issues/7/comments --paginate") grep -lF "$(sed -n 's/.*startswith(."\(.*\).").*/\1/p' <<<"${5//\\/}")" comments/* | sed 's/.*\///' ;;
"-X POST") [[ $4 == repos/o/r/issues/7/comments ]] && cp "${6#body=@}" comments/$(($(ls comments | wc -l) + 1)) ;;
"-X PATCH") [[ -f comments/${4##*/} ]] && cp "${6#body=@}" "comments/${4##*/}" ;;
*) exit 5 ;;
esac
"#;

fn script(step: &str) -> String {
    let steps = steps();
    let found = steps.iter().find(|found| found["name"] == step).unwrap();
    found["run"].as_str().unwrap().to_owned()
}

#[test]
fn every_step_runs_or_uses_and_every_variable_is_documented() {
    assert_eq!(blocks("yaml").len(), 2);
    for step in steps() {
        assert_ne!(step["run"].is_string(), step["uses"].is_string(), "{step:?}");
    }
    let words = PAGE.split(|c: char| !(c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()));
    let variables: BTreeSet<&str> = words.filter(|word| word.starts_with("GPU_")).collect();
    assert!(variables.len() >= 3, "{variables:?}");
    for variable in variables {
        assert!(VARIABLES.contains(&format!("`{variable}`")), "{variable}");
    }
}

#[test]
fn pod_of_the_guide_has_the_volumes_that_it_mounts() {
    let page = include_str!("../../docs/guide/containers.md");
    let text = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let pod: Value = yaml_serde::from_str(text).unwrap();
    let items = |of: &Value| of.as_sequence().unwrap().clone();
    let names = |of: Vec<Value>| -> BTreeSet<String> {
        of.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let containers = ["initContainers", "containers"].map(|kind| items(&pod["spec"][kind]));
    let mounts = containers.concat().iter().flat_map(|of| items(&of["volumeMounts"])).collect();
    assert_eq!(names(mounts), names(items(&pod["spec"]["volumes"])));
}

/// An empty folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("workflows-{name}-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(folder.join("runs")).unwrap();
        fs::create_dir_all(folder.join("baselines")).unwrap();
        Self(folder)
    }

    /// Eight runs of a program, in the place of the ones before.
    fn record(&self, kernels: usize) {
        for run in 1..=8 {
            let fake = Fake::new();
            fake.stop_clock();
            let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
            let work = || {
                let _step = nvtx::range("step");
                for _ in 0..kernels {
                    fake.launch(Work::kernel(c"gemm").taking_ns(90_000_000 + run));
                }
            };
            let ((), profile) = profiler.record(work).unwrap();
            let profile = of_its_own(&profile);
            profile.save(self.0.join(format!("runs/{run}.gpuprof"))).unwrap();
        }
    }

    /// Runs a script as a step of GitHub runs it.
    fn step(&self, script: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_gpuprof")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-e", "-c", script]).current_dir(&self.0).env("PATH", path);
        command.env("GITHUB_STEP_SUMMARY", self.0.join("summary.md")).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn replay_gates_recorded_runs() {
    let folder = Folder::new("page");
    let recording = blocks("sh")[0];
    let update = recording.lines().find(|line| line.starts_with("gpuprof ")).unwrap();
    folder.record(3);
    let passes = |script: &str| {
        let output = folder.step(script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    passes(update);
    passes(&script("Formats"));
    assert_eq!(passes(&script("Gate")), "");
    assert!(folder.read("reports/junit").contains("failures=\"0\" errors=\"0\""));
    assert!(folder.read("summary.md").contains("passed after 8 runs"));

    folder.record(4);
    passes(&script("Formats"));
    let gate = folder.step(&script("Gate"));
    assert_eq!(gate.status.code(), Some(3), "{gate:?}");
    let commands = String::from_utf8(gate.stdout).unwrap();
    let at_baseline =
        "::error file=baselines/train.json,line=1,title=step%3A count of gemm <128%2C 256>::";
    assert!(commands.starts_with(at_baseline), "{commands}");
    assert!(!folder.read("reports/junit").contains("failures=\"0\""));
    assert!(folder.read("summary.md").contains("failed after 8 runs"));
    let bencher: serde_json::Value = serde_json::from_str(&folder.read("reports/bencher")).unwrap();
    assert!(bencher["step: gemm <128, 256>"]["latency"]["value"].is_f64(), "{bencher}");
    let action = folder.read("reports/benchmark-action");
    let action: serde_json::Value = serde_json::from_str(&action).unwrap();
    assert_eq!(action[0]["unit"], "ns");
    // Another error ends the step.
    fs::remove_file(folder.0.join("baselines/train.json")).unwrap();
    assert_eq!(folder.step(&script("Formats")).status.code(), Some(1));
}

#[test]
fn action_keeps_one_comment_and_the_status_of_the_gate() {
    let action: Value =
        yaml_serde::from_str(&fs::read_to_string(format!("{ACTION}/action.yml")).unwrap()).unwrap();
    let step = &action["runs"]["steps"][0];
    assert_eq!(step["run"], "bash \"$GITHUB_ACTION_PATH/gate.sh\"");
    let variables = step["env"].as_mapping().unwrap();
    let script = fs::read_to_string(format!("{ACTION}/gate.sh")).unwrap();
    for name in variables.keys().map(|name| name.as_str().unwrap()) {
        assert!(script.contains(&format!("${name}")) || script.contains(&format!("${{{name}")));
    }
    let folder = Folder::new("action");
    folder.record(3);
    let update = "gpuprof gate --update baselines/train.json runs/*.gpuprof";
    assert!(folder.step(update).status.success());
    fs::create_dir_all(folder.0.join("comments")).unwrap();
    fs::create_dir_all(folder.0.join("bin")).unwrap();
    fs::write(folder.0.join("bin/gh"), GH).unwrap();
    let gate = |recordings: &str, token: &str, pull_request: &str| {
        let output = folder.step(&format!(
            "chmod +x bin/gh; export PATH=$PWD/bin:$PATH BASELINE=baselines/train.json RECORDINGS='{recordings}' \
             GPUPROF=gpuprof GH_TOKEN={token} PULL_REQUEST={pull_request} GITHUB_REPOSITORY=o/r; bash '{ACTION}/gate.sh'"
        ));
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let comments = || fs::read_dir(folder.0.join("comments")).unwrap().count();
    assert_eq!(gate("runs/*.gpuprof", "t", ""), (0, String::new()));
    assert_eq!(comments(), 0, "no pull request");
    assert_eq!(gate("runs/*.gpuprof", "t", "7"), (0, String::new()));
    assert_eq!(comments(), 1);
    assert!(folder.read("comments/1").contains("passed after 8 runs"));
    folder.record(4);
    let (status, annotations) = gate("runs/[1-4].gpuprof runs/[5-8].gpuprof", "t", "7");
    assert_eq!((status, comments()), (3, 1), "{annotations}");
    assert!(annotations.starts_with("::error file=baselines/train.json"), "{annotations}");
    assert!(folder.read("comments/1").contains("failed after 8 runs"));
    assert!(folder.read("summary.md").contains("failed after 8 runs"));
    // A fork has no right to comment.
    fs::write(folder.0.join("bin/gh"), "#!/bin/sh\nexit 1\n").unwrap();
    let (status, said) = gate("runs/*.gpuprof", "t", "7");
    assert!(status == 3 && said.contains("::warning::"), "{said}");
    let (status, said) = gate("none/*.gpuprof", "t", "7");
    assert!(status == 1 && said.contains("::error::no recording matches"), "{said}");
    fs::remove_file(folder.0.join("baselines/train.json")).unwrap();
    assert_eq!(gate("runs/*.gpuprof", "t", "7").0, 1);
}
