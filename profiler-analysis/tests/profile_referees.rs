//! Other people's programs as referees of profiles: does each read what is written for it, with the counts and times of the
//! profile?
//!
//! `PROFILE_REFEREES` names the folder that `.ci/fetch-profile-referees` filled. No GPU is needed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers are tests too")]
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_cupti::Work;
use libtest_mimic::{Arguments, Failed, Trial};
use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::formats::stacks::{StackRoot, StackWeight};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde_json::Value;
use test_support::everything::{everything, fake, record};
use test_support::folder::Folder;
use test_support::processes;

const RECORDINGS: [(&str, &[u8]); 3] = [
    ("recorded", include_bytes!("../../examples/recordings/quickstart-h200.gpuprof")),
    ("kinds", include_bytes!("../../tests/recordings/kinds-130001.gpuprof")),
    ("optimizer", include_bytes!("../../tests/recordings/case-studies/optimizer-after.gpuprof")),
];

type Test = fn(&Path) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let referees = env::var_os("PROFILE_REFEREES").map(PathBuf::from);
    let tests: [(&str, &str, Test); 7] = [
        ("pprof", "pprof_reads_each_stack", pprof_agrees),
        ("pprof", "pprof_lists_the_lines_of_a_kernel", pprof_lists_lines),
        ("otlp", "opentelemetry_reads_each_stack", otlp_agrees),
        ("firefox", "firefox_reads_samples_and_markers", firefox_agrees),
        ("firefox", "firefox_reads_the_lines_of_kernels", firefox_reads_lines),
        ("speedscope", "speedscope_reads_pprof", |referee| {
            speedscope_agrees(referee, Format::Pprof)
        }),
        ("speedscope", "speedscope_reads_folded_stacks", |referee| {
            speedscope_agrees(referee, Format::Folded)
        }),
    ];
    let trials = tests.map(|(referee, name, test)| {
        let found = referees.as_ref().map(|folder| folder.join(referee));
        let found = found.filter(|folder| folder.join("complete").exists());
        if found.is_none() && !arguments.list {
            eprintln!(
                "{name} is ignored: PROFILE_REFEREES names no folder with {referee}/complete"
            );
        }
        let ignored = found.is_none();
        let run = move || test(&found.ok_or("the referee is not there")?);
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    // One fake at a time.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// By name: recordings, and what is made up.
fn profiles() -> Vec<(&'static str, Profile)> {
    let mut profiles: Vec<_> = RECORDINGS
        .iter()
        .map(|(name, bytes)| (*name, Profile::from_bytes(bytes).unwrap()))
        .collect();
    let recording = everything().recording().unwrap().clone();
    profiles.push(("everything", Profile::from_recording(recording.clone())));
    let other = processes::as_process(&recording, 9);
    let several = Profile::from_recordings([recording, other]).unwrap();
    profiles.push(("processes", several));
    profiles.push(("hostile", hostile()));
    profiles
}

/// Names with markup, separators, control characters and none at all, and a deep path.
fn hostile() -> Profile {
    let fake = fake();
    let long = "n".repeat(100_000);
    let names =
        ["\"\\", "\u{1}\u{1b}[31m\n", "</script>", "a;b", "a > b", "", " ", "-", "1: 2", &long];
    record(&fake, || {
        for name in names {
            let _range = nvtx::range(name);
            fake.launch(Work::kernel(c"k<T, (x)1>").taking_ns(7));
        }
        let mut deep: Vec<_> = (0..2_000).map(|_| nvtx::range("deep")).collect();
        fake.launch(Work::kernel(c"deepest").taking_ns(11));
        while deep.pop().is_some() {}
    })
}

fn export(folder: &Folder, profile: &Profile, format: Format, name: &str) -> PathBuf {
    let path = folder.0.join(format!("{name}.{}", format.extension()));
    profile.export(format, File::create(&path).unwrap()).unwrap();
    path
}

fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        let shown: String = text.chars().take(2_000).collect();
        return Err(format!("{command:?}: {}\n{shown}{error}", output.status).into());
    }
    Ok(text)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile_referees").join(name)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(is: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if is { Ok(()) } else { Err(otherwise().into()) }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failed> {
    check(found == expected, || {
        let [found, expected] = [found, expected].map(|value| format!("{value:#?}"));
        let differ = found.lines().zip(expected.lines()).filter(|(a, b)| a != b).take(20);
        let differ: Vec<_> = differ.map(|(a, b)| format!("{a:.200} instead of {b:.200}")).collect();
        format!("{what}: {} of {} bytes: {differ:#?}", found.len(), expected.len())
    })
}

/// The weights of a profile by the labels of the frames, as readers merge equal stacks.
fn weights(profile: &Profile, root: StackRoot) -> BTreeMap<Vec<String>, [u64; 3]> {
    let mut all: BTreeMap<Vec<String>, [u64; 3]> = BTreeMap::new();
    for stack in profile.stacks(root).iter() {
        let labels = stack.frames.iter().map(|frame| frame.label().into_owned()).collect();
        let sums = all.entry(labels).or_default();
        for (sum, weight) in sums.iter_mut().zip(StackWeight::ALL) {
            *sum += stack.weights.get(weight);
        }
    }
    all
}

/// pprof's own listing of a profile.
fn pprof_agrees(referee: &Path) -> Result<(), Failed> {
    let folder = Folder::new();
    for (name, profile) in profiles() {
        let file = export(&folder, &profile, Format::Pprof, name);
        let mut pprof = Command::new(referee.join("pprof"));
        let text = output(pprof.env("PPROF_TMPDIR", &folder.0).arg("-raw").arg(&file))?;
        let section = |from: &str, to: &str| -> Vec<String> {
            let lines = text.lines().skip_while(|line| *line != from).skip(1);
            lines.take_while(|line| *line != to).map(str::to_owned).collect()
        };
        let mut locations: BTreeMap<u64, String> = BTreeMap::new();
        for line in section("Locations", "Mappings") {
            let (id, rest) = line.trim().split_once(": 0x0 M=1 ").unwrap();
            // The name, then the kind as file with its line.
            let (name, _) = rest.rsplit_once(' ').unwrap().0.rsplit_once(' ').unwrap();
            locations.insert(id.parse().unwrap(), name.to_owned());
        }
        let samples = section("Samples:", "Locations");
        same(
            name,
            &*samples[0],
            "gpu_time/nanoseconds[dflt] gpu_operations/count gpu_bytes/bytes",
        )?;
        let mut found: BTreeMap<Vec<String>, [u64; 3]> = BTreeMap::new();
        for sample in &samples[1..] {
            let (values, ids) = sample.split_once(": ").unwrap();
            let values: Vec<u64> =
                values.split_whitespace().map(|value| value.parse().unwrap()).collect();
            let ids: Vec<u64> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let stack = ids.iter().rev().map(|id| locations[id].clone()).collect();
            let sums = found.entry(stack).or_default();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        same(name, found, weights(&profile, StackRoot::Threads))?;
        // By kind, as the guide shows it.
        let mut pprof = Command::new(referee.join("pprof"));
        let by_kind = ["-top", "-files", "-sample_index=gpu_operations"];
        let text = output(pprof.env("PPROF_TMPDIR", &folder.0).args(by_kind).arg(&file))?;
        let totals = profile.totals();
        for (kind, count) in [("kernel", totals.kernels), ("copy", totals.copies)] {
            let row = text.lines().find(|line| line.ends_with(&format!(" {kind}")));
            let found = row.map(|row| row.split_whitespace().next().unwrap().to_owned());
            let is_whole = found == (count != 0).then(|| count.to_string());
            check(is_whole, || format!("{name}: {found:?} instead of {count} in {text}"))?;
        }
    }
    Ok(())
}

/// Kernels of which instructions were sampled, beside their source.
const LINES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/lines/planted-h200.gpuprof");

/// The samples of lines beside the source, as `pprof -list` shows them.
fn pprof_lists_lines(referee: &Path) -> Result<(), Failed> {
    let profile = Profile::load(LINES)?;
    let folder = Folder::new();
    let path = folder.0.join("lines.pb.gz");
    profile.export(Export::new(Format::Pprof).lines(), File::create(&path)?)?;
    let mut pprof = Command::new(referee.join("pprof"));
    pprof.env("PPROF_TMPDIR", &folder.0).arg("-list").arg("^gather$").arg("-source_path");
    let text = output(pprof.arg(Path::new(LINES).parent().unwrap()).arg(&path))?;
    let line = text.lines().find(|line| line.ends_with("at = next[at]; // gather"));
    let line = line.ok_or_else(|| format!("no line of gather in {text}"))?;
    let samples = profile.query().named("gather").instructions();
    let of_line = samples.by_line()[0].stalls.total();
    let number = line.split_whitespace().next().unwrap_or_default();
    same("samples", number.parse::<f64>()?, of_line)
}

fn otlp_agrees(referee: &Path) -> Result<(), Failed> {
    let folder = Folder::new();
    for (name, profile) in profiles() {
        let file = export(&folder, &profile, Format::Otlp, name);
        let mut python = Command::new(referee.join("bin/python"));
        let text = output(python.arg(script("read_otlp.py")).arg(&file))?;
        let mut found: BTreeMap<Vec<(String, String)>, [u64; 3]> = BTreeMap::new();
        for line in lines(&text) {
            let weight = StackWeight::ALL
                .iter()
                .position(|weight| line["type"] == weight.key() && line["unit"] == weight.unit());
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let frames = line["frames"].as_array().unwrap().iter();
            let frames = frames.map(|frame| (text(&frame[0]), text(&frame[1]))).collect();
            let sums = found.entry(frames).or_default();
            sums[weight.unwrap()] += line["value"].as_u64().unwrap();
        }
        let mut expected: BTreeMap<Vec<(String, String)>, [u64; 3]> = BTreeMap::new();
        for stack in profile.stacks(StackRoot::Threads).iter() {
            let frame = |frame: &profiler_analysis::formats::stacks::Frame<'_>| {
                (frame.kind.key().to_owned(), frame.label().into_owned())
            };
            let sums = expected.entry(stack.frames.iter().map(frame).collect()).or_default();
            for (sum, weight) in sums.iter_mut().zip(StackWeight::ALL) {
                *sum += stack.weights.get(weight);
            }
        }
        same(name, found, expected)?;
    }
    Ok(())
}

/// A thread as the Firefox Profiler reads it.
#[derive(Debug, Default, PartialEq)]
struct FirefoxThread {
    /// Nanoseconds of samples in themselves, by name.
    own_ns: BTreeMap<String, u64>,
    /// Markers by kind.
    markers: BTreeMap<String, usize>,
    /// Nanoseconds of kernel markers, by name.
    kernel_ns: BTreeMap<String, u64>,
}

/// The threads of a file as the Firefox Profiler reads them.
fn firefox_threads(referee: &Path, file: &Path, folder: &Folder) -> Result<Vec<Value>, Failed> {
    let cli = referee.join("node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js");
    let mut node = Command::new("node");
    node.arg(script("ask_firefox.mjs")).arg(&cli).arg(file).arg(&folder.0);
    Ok(lines(&output(&mut node)?))
}

fn firefox_agrees(referee: &Path) -> Result<(), Failed> {
    for (name, profile) in profiles() {
        let folder = Folder::new();
        let file = export(&folder, &profile, Format::Firefox, name);
        let (mut of_threads, mut of_streams) = (FirefoxThread::default(), FirefoxThread::default());
        for thread in firefox_threads(referee, &file, &folder)? {
            let is_stream = thread["name"].as_str().unwrap().starts_with("stream ");
            let all = if is_stream { &mut of_streams } else { &mut of_threads };
            for function in thread["functions"].as_array().unwrap() {
                let (name, own) = (function[0].as_str().unwrap(), function[1].as_u64().unwrap());
                if own != 0 {
                    *all.own_ns.entry(name.to_owned()).or_default() += own;
                }
            }
            for marker in thread["markers"].as_array().unwrap() {
                let kind = marker["kind"].as_str().unwrap();
                *all.markers.entry(kind.to_owned()).or_default() += 1;
                if kind == "kernel" {
                    let ns = marker["duration"].as_f64().unwrap_or(0.0) * 1e6;
                    let name = marker["name"].as_str().unwrap().to_owned();
                    *all.kernel_ns.entry(name).or_default() += ns.round() as u64;
                    let registers = marker["fields"]["registers a thread"].as_f64();
                    check(registers.is_some(), || format!("{marker}"))?;
                }
            }
        }
        let (threads, streams) = expected_firefox(&profile);
        same(&format!("{name}, host threads"), of_threads, threads)?;
        same(&format!("{name}, streams"), of_streams, streams)?;
    }
    Ok(())
}

/// The samples of each line in themselves.
fn firefox_reads_lines(referee: &Path) -> Result<(), Failed> {
    let profile = Profile::load(LINES)?;
    let folder = Folder::new();
    let path = folder.0.join("lines.firefox.json");
    profile.export(Export::new(Format::Firefox).lines(), File::create(&path)?)?;
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for thread in firefox_threads(referee, &path, &folder)? {
        for function in thread["functions"].as_array().unwrap() {
            let (name, own) = (function[0].as_str().unwrap(), function[1].as_f64().unwrap());
            if own != 0.0 {
                *found.entry(name.to_owned()).or_default() += own;
            }
        }
    }
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for line in profile.instructions().by_line() {
        *expected.entry(line.place()).or_default() += line.stalls.total();
    }
    same("samples by line", found, expected)
}

fn expected_firefox(profile: &Profile) -> (FirefoxThread, FirefoxThread) {
    let (mut threads, mut streams) = (FirefoxThread::default(), FirefoxThread::default());
    let timed = || profile.operations().filter(|operation| operation.start().is_some());
    for operation in timed() {
        let ns = operation.gpu_time().unwrap().as_nanos() as u64;
        let kernel = operation.as_kernel().map(|kernel| kernel.demangled_name());
        let (kind, name) = match (&kernel, operation.as_copy()) {
            (Some(name), _) => ("kernel", name.clone()),
            (None, Some(copy)) => ("copy", copy_name(copy.kind()).to_owned()),
            (None, None) if operation.as_graph().is_some() => ("graph", "CUDA graph".to_owned()),
            (None, None) => ("memset", "memset".to_owned()),
        };
        *streams.markers.entry(kind.to_owned()).or_default() += 1;
        if let Some(name) = kernel {
            *streams.kernel_ns.entry(name).or_default() += ns;
        }
        if ns != 0 {
            *streams.own_ns.entry(name.clone()).or_default() += ns;
            if operation.call().is_some() {
                *threads.own_ns.entry(name).or_default() += ns;
            }
        }
    }
    let counts = [
        ("range", profile.ranges().count()),
        ("process range", profile.process_ranges().count()),
        ("mark", profile.marks().count()),
        ("api", profile.calls().count() + profile.runtime_calls().count()),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count != 0);
    threads.markers = counts.map(|(kind, count)| (kind.to_owned(), count)).collect();
    (threads, streams)
}

fn copy_name(kind: cupti::CopyKind) -> &'static str {
    match kind {
        cupti::CopyKind::HostToDevice => "copy host to device",
        cupti::CopyKind::DeviceToHost => "copy device to host",
        cupti::CopyKind::DeviceToDevice => "copy device to device",
        cupti::CopyKind::HostToHost => "copy host to host",
        cupti::CopyKind::PeerToPeer => "copy peer to peer",
        _ => "copy",
    }
}

/// What speedscope's page saves of a file that it opened.
fn speedscope_agrees(referee: &Path, format: Format) -> Result<(), Failed> {
    let page = referee.join("node_modules/speedscope/dist/release");
    for (name, profile) in profiles() {
        let folder = Folder::new();
        let file = export(&folder, &profile, format, name);
        let mut browse = Command::new(referee.join("browse"));
        browse.arg(script("ask_speedscope.mjs")).arg(&page).arg(&file).arg(&folder.0);
        let mut found: BTreeMap<String, BTreeMap<Vec<String>, u64>> = BTreeMap::new();
        for line in lines(&output(&mut browse)?) {
            let frames = line["frames"].as_array().unwrap().iter();
            let stack = frames.map(|frame| frame.as_str().unwrap().to_owned()).collect();
            let stacks = found.entry(line["unit"].as_str().unwrap().to_owned()).or_default();
            *stacks.entry(stack).or_default() += line["weight"].as_f64().unwrap() as u64;
        }
        let root = if format == Format::Pprof { StackRoot::Threads } else { StackRoot::Ranges };
        let mut times: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (mut stack, [ns, _, _]) in weights(&profile, root) {
            if format == Format::Folded {
                stack.iter_mut().for_each(|label| *label = label.replace(';', ":"));
            }
            *times.entry(stack).or_default() += ns;
        }
        times.retain(|_, ns| *ns != 0);
        for stacks in found.values_mut() {
            stacks.retain(|_, weight| *weight != 0);
        }
        let unit = if format == Format::Pprof { "nanoseconds" } else { "none" };
        let times_found = found.remove(unit);
        let times_found = times_found.ok_or_else(|| format!("{name}: only {:?}", found.keys()))?;
        same(name, times_found, times)?;
    }
    Ok(())
}
