//! Other people's programs as referees: does each read what we write for it, and make of it what the profile says?
//!
//! `TRACE_REFEREES` names the folder that `.ci/fetch-trace-referees` filled. No GPU is needed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers are tests too")]
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, process};

use fake_cupti::Work;
use libtest_mimic::{Arguments, Failed, Trial};
use profiler_analysis::Format;
use profiler_analysis::critical_path::{PathKind, Segment};
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_core::profile::Track;
use profiler_core::series::Kind;
use profiler_core::{Profile, Recording};
use serde_json::Value;
use test_support::everything::{everything, fake, record};
use test_support::processes;
use test_support::sampled;

const RECORDING: &[u8] = include_bytes!("../../examples/recordings/quickstart-h200.gpuprof");
const SAMPLES: &[u8] = include_bytes!("../../tests/recordings/samples-h200.gpuprof");
const RANKS: [&[u8]; 2] = [
    include_bytes!("../../tests/recordings/nccl-2xh100/rank-0.gpuprof"),
    include_bytes!("../../tests/recordings/nccl-2xh100/rank-1.gpuprof"),
];
const KINDS: &[u8] = include_bytes!("../../tests/recordings/kinds-130001.gpuprof");

type Test = fn(&Path) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let referees = env::var_os("TRACE_REFEREES").map(PathBuf::from);
    let tests: [(&str, &str, Test); 6] = [
        ("perfetto", "perfetto_reads_its_protobuf_whole", perfetto_reads_protobuf),
        ("perfetto", "perfetto_reads_chrome_and_kineto_whole", perfetto_reads_json),
        ("perfetto", "perfetto_reads_hostile_traces", perfetto_reads_hostile),
        ("perfetto", "perfetto_finds_what_was_sampled", perfetto_finds_samples),
        ("hta", "hta_comes_to_the_same_times", hta_agrees),
        ("hta", "hta_comes_to_the_same_critical_paths", hta_agrees_on_critical_paths),
    ];
    let trials = tests.map(|(referee, name, test)| {
        let found = referees.as_ref().map(|folder| folder.join(referee));
        let found = found.filter(|folder| folder.join("complete").exists());
        if found.is_none() && !arguments.list {
            eprintln!("{name} is ignored: TRACE_REFEREES names no folder with {referee}/complete");
        }
        let ignored = found.is_none();
        let run = move || test(&found.ok_or("the referee is not there")?);
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    // One fake at a time.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("trace-referees-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn export(&self, profile: &Profile, export: impl Into<Export>, name: &str) -> PathBuf {
        let path = self.0.join(name);
        profile.export(export, File::create(&path).unwrap()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{said}{error}", output.status).into());
    }
    Ok(said)
}

fn script(referee: &Path, name: &str) -> Command {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace_referees");
    let mut command = Command::new(referee.join("bin/python"));
    command.arg(scripts.join(name));
    command
}

fn lines(said: &str) -> Vec<Value> {
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check(is: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if is { Ok(()) } else { Err(otherwise.into().into()) }
}

fn recorded() -> Profile {
    Profile::from_bytes(RECORDING).unwrap()
}

/// By name: what was recorded, and what is made up.
fn profiles() -> [(&'static str, Profile); 6] {
    let kinds = Profile::from_bytes(KINDS).unwrap();
    [
        ("recorded", recorded()),
        ("kinds", kinds),
        ("steps", steps()),
        ("everything", everything()),
        ("processes", processes()),
        ("ranks", ranks()),
    ]
}

/// Two processes, whose threads, streams and calls have the same numbers.
fn processes() -> Profile {
    let recording = everything().recording().unwrap().clone();
    let other = processes::as_process(&recording, 9);
    Profile::from_recordings([recording, other]).unwrap()
}

/// Two ranks with collectives that match.
fn ranks() -> Profile {
    Profile::from_recordings(RANKS.map(|rank| Recording::from_bytes(rank).unwrap())).unwrap()
}

/// A run in steps as HTA knows them, with work on two streams.
fn steps() -> Profile {
    let fake = fake();
    record(&fake, || {
        for step in 0..6 {
            let _step = nvtx::range(&format!("ProfilerStep#{step}"));
            for _ in 0..5 {
                let _layer = nvtx::range("layer");
                fake.launch(Work::host_to_device(4096).taking_ns(700));
                fake.launch(Work::kernel(c"forward").taking_ns(3_000));
                fake.launch(Work::kernel(c"backward").taking_ns(4_000).on_stream(9));
                fake.launch(Work::memset(64).taking_ns(300));
            }
            fake.launch(Work::synchronize());
        }
    })
}

/// The rows of each query; fails on any statistic of errors or lost data.
fn ask(perfetto: &Path, trace: &Path, queries: &[&str]) -> Result<Vec<Vec<Value>>, Failed> {
    let said = output(script(perfetto, "ask_perfetto.py").arg(trace).args(queries))?;
    let mut rows = vec![Vec::new(); queries.len()];
    for line in lines(&said) {
        match line["query"].as_u64() {
            Some(query) => rows[query as usize].push(line["row"].clone()),
            // The calls' references to typed GPU events, which `typed_events_agree` checks.
            None if line["row"]["name"] == "unknown_extension_fields" => {}
            None => return Err(format!("{}: {}", trace.display(), line["row"]).into()),
        }
    }
    Ok(rows)
}

/// How many slices of each category a trace processor has to find.
fn categories(profile: &Profile) -> BTreeMap<&'static str, usize> {
    let timed = || profile.operations().filter(|operation| operation.start().is_some());
    let kernels = timed().filter(|operation| operation.as_kernel().is_some()).count();
    let copies = timed().filter(|operation| operation.as_copy().is_some()).count();
    let all = BTreeMap::from([
        ("range", profile.ranges().count()),
        ("process range", profile.process_ranges().count()),
        ("mark", profile.marks().count()),
        ("api", profile.calls().count()),
        ("kernel", kernels),
        ("copy", copies),
        ("memset", timed().count() - kernels - copies),
    ]);
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn arrows(profile: &Profile) -> usize {
    profile.operations().filter(|o| o.start().is_some() && o.call().is_some()).count()
}

/// Of matched collectives: an arrow from each rank's kernel to the next one's.
fn between_ranks(profile: &Profile) -> usize {
    let groups = profile.ranks().collectives;
    groups.iter().map(|group| group.count as usize * (group.ranks - 1)).sum()
}

const COUNTS: [&str; 3] = [
    "select category, count(*) as count from slice group by category",
    "select count(*) as count from flow",
    // Slices that hold others are as long as these at least.
    "select count(*) as count from slice s join slice p on s.parent_id = p.id
     where s.ts < p.ts or s.ts + s.dur > p.ts + p.dur or s.dur < 0",
];

/// Checks the typed GPU events, for which trace processors have a table of their own.
fn check_gpu_slices(perfetto: &Path, trace: &Path, profile: &Profile) -> Result<(), Failed> {
    let query = "select count(*) as count, sum(s.dur) as time, min(s.ts) as first,
        count(distinct s.track_id) as tracks, count(distinct s.context_id) as contexts from gpu_slice s";
    let row = &ask(perfetto, trace, &[query])?[0][0];
    let timed = || profile.operations().filter(|operation| operation.start().is_some());
    let time: u128 = timed().map(|operation| operation.gpu_time().unwrap().as_nanos()).sum();
    let contexts: BTreeSet<_> =
        timed().map(|operation| (operation.process_id(), operation.context())).collect();
    let is_whole = row["count"] == timed().count() as u64
        && row["time"].as_u64().map(u128::from) == Some(time)
        && row["contexts"] == contexts.len() as u64;
    check(is_whole, format!("{}: {row} instead of {time} ns", trace.display()))
}

/// Checks the counts; `of` is the trace's word for each of our categories.
fn check_counts(
    perfetto: &Path,
    trace: &Path,
    (profile, expected_arrows): (&Profile, usize),
    of: impl Fn(&str) -> &str,
) -> Result<(), Failed> {
    let rows = ask(perfetto, trace, &COUNTS)?;
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (category, count) in categories(profile) {
        *expected.entry(of(category)).or_default() += count as u64;
    }
    let found: BTreeMap<&str, u64> = rows[0]
        .iter()
        .map(|row| (row["category"].as_str().unwrap_or("(none)"), row["count"].as_u64().unwrap()))
        // Typed GPU events have no category.
        .filter(|(category, _)| !["recording", "gpu_user_annotation", "(none)"].contains(category))
        .collect();
    check(found == expected, format!("{}: {found:?} instead of {expected:?}", trace.display()))?;
    let flows = rows[1][0]["count"].as_u64().unwrap();
    check(flows == expected_arrows as u64, format!("{}: {flows} arrows", trace.display()))?;
    check(
        rows[2][0]["count"] == 0,
        format!("{}: slices that outlast their parents", trace.display()),
    )
}

/// Perfetto's own protobuf types, which are newer than the trace processor, find kernels and launches.
fn typed_events_agree(perfetto: &Path, trace: &Path, profile: &Profile) -> Result<(), Failed> {
    let said = output(script(perfetto, "read_gpu_events.py").arg(trace))?;
    let found = lines(&said);
    let kernels: Vec<_> = profile
        .kernels()
        .zip(profile.operations().filter(|operation| operation.as_kernel().is_some()))
        .filter(|(_, operation)| operation.start().is_some())
        .collect();
    check(found.len() == kernels.len(), format!("{} of {}", found.len(), kernels.len()))?;
    for (kernel, operation) in kernels {
        let details = kernel.details();
        let expected = serde_json::json!({
            "id": operation.number() + 1,
            "ts": operation.start().unwrap().as_nanos() as u64,
            "dur": operation.gpu_time().unwrap().as_nanos() as u64,
            "kernel": kernel.demangled_name(),
            "gpu": operation.device(),
            "grid": kernel.grid(),
            "block": kernel.block(),
            "registers": details.registers_per_thread,
            "submitted": operation.call().is_some(),
        });
        check(found.contains(&expected), format!("{expected} is not in {}", trace.display()))?;
    }
    Ok(())
}

fn perfetto_reads_protobuf(perfetto: &Path) -> Result<(), Failed> {
    let folder = Folder::new("protobuf");
    for (name, profile) in profiles() {
        let trace = folder.export(&profile, Format::Perfetto, name);
        let arrows = arrows(&profile) + between_ranks(&profile);
        check(name != "ranks" || between_ranks(&profile) == 100, "100 collectives of two ranks")?;
        check_counts(perfetto, &trace, (&profile, arrows), |category| category)?;
        check_gpu_slices(perfetto, &trace, &profile)?;
        typed_events_agree(perfetto, &trace, &profile)?;
    }
    // What it makes of one kernel, and where it shows it.
    let profile = recorded();
    let trace = folder.export(&profile, Format::Perfetto, "recorded");
    let rows = ask(
        perfetto,
        &trace,
        &[
            "select s.ts, s.dur, t.name as track, extract_arg(s.arg_set_id, 'debug.path') as path,
             extract_arg(s.arg_set_id, 'debug.registers a thread') as registers
             from slice s join track t on s.track_id = t.id where s.category = 'kernel' order by s.ts limit 1",
            "select t.name, count(*) as count, max(value) as most from counter c join track t on c.track_id = t.id
             group by t.name order by t.name",
            "select sum(dur) as time from slice where category in ('kernel', 'copy', 'memset')",
            "select thread.tid from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
             where slice.category = 'range' group by 1",
        ],
    )?;
    let kernel = profile.kernels().next().unwrap();
    let row = &rows[0][0];
    check(row["ts"] == kernel.start().unwrap().as_nanos() as u64, row.to_string())?;
    check(row["dur"] == kernel.gpu_time().unwrap().as_nanos() as u64, row.to_string())?;
    check(row["path"] == kernel.range().unwrap().node().path(), row.to_string())?;
    check(row["registers"] == kernel.details().registers_per_thread, row.to_string())?;
    check(row["track"] == format!("stream {}", kernel.stream()), row.to_string())?;
    let names: Vec<&Value> = rows[1].iter().map(|row| &row["name"]).collect();
    let queue = format!("stream {}: operations submitted and not finished", kernel.stream());
    check(names == ["copy bandwidth", &queue], format!("{names:?}"))?;
    check(rows[1].iter().all(|row| row["most"].as_f64() > Some(0.0)), format!("{:?}", rows[1]))?;
    check(
        rows[2][0]["time"] == profile.totals().gpu_time().as_nanos() as u64,
        rows[2][0].to_string(),
    )?;
    let threads: Vec<&Value> = rows[3].iter().map(|row| &row["tid"]).collect();
    check(
        threads == [&Value::from(profile.ranges().next().unwrap().thread_id())],
        format!("{threads:?}"),
    )
}

fn perfetto_reads_json(perfetto: &Path) -> Result<(), Failed> {
    let folder = Folder::new("json");
    for (name, profile) in profiles() {
        let trace = folder.export(&profile, Format::Chrome, &format!("{name}.json"));
        check_counts(perfetto, &trace, (&profile, arrows(&profile)), |category| category)?;
        let trace = folder.export(&profile, Format::Kineto, &format!("{name}.pt.json"));
        check_counts(perfetto, &trace, (&profile, arrows(&profile)), |category| match category {
            "range" => "user_annotation",
            "api" => "cuda_driver",
            "copy" => "gpu_memcpy",
            "memset" => "gpu_memset",
            other => other,
        })?;
    }
    Ok(())
}

/// Names that mean something elsewhere, names of a megabyte, and ranges deeper than a viewer can show on a track.
fn perfetto_reads_hostile(perfetto: &Path) -> Result<(), Failed> {
    let (long, fake) = ("n".repeat(1 << 20), fake());
    let names = ["\"\\", "\u{1}\n", "</script>", "\\ud800", "'); drop table slice;--", "", &long];
    let profile = record(&fake, || {
        for name in names {
            let _range = nvtx::event(name).field("a\"b", name, "").range();
            nvtx::mark(name);
            fake.launch(Work::kernel(c"k").taking_ns(1));
        }
        let mut deep: Vec<_> = (0..2_000).map(|_| nvtx::range("deep")).collect();
        fake.launch(Work::kernel(c"deepest"));
        while deep.pop().is_some() {}
    });
    let folder = Folder::new("hostile");
    for (format, name) in [(Format::Perfetto, "hostile.pftrace"), (Format::Chrome, "hostile.json")]
    {
        let trace = folder.export(&profile, format, name);
        check_counts(perfetto, &trace, (&profile, arrows(&profile)), |category| category)?;
        // Of the escapes of JSON it decodes some.
        if format == Format::Perfetto {
            let query = "select name from slice where category = 'range' group by 1";
            let rows = ask(perfetto, &trace, &[query])?;
            let found: Vec<_> = rows[0].iter().map(|row| row["name"].as_str()).collect();
            for name in names {
                let is_there = found.contains(&Some(name)) || name.is_empty();
                check(is_there, format!("{name:.40?} is not there"))?;
            }
        }
    }
    Ok(())
}

/// What a trace processor is to find of a track: area, first and last time. `None` of what has no mean.
fn shown(track: &Track<'_>) -> Option<(f64, u64, u64)> {
    let all = track.mean(Duration::ZERO, Duration::MAX)?;
    let ns = |time: Duration| time.as_nanos() as u64;
    let known = || track.samples().filter(|sample| !sample.value.is_nan());
    let (first, last) = (known().next()?, known().last()?);
    Some((all.value * all.covered.as_secs_f64(), ns(first.start), ns(last.end)))
}

/// The area below each track is what the samples came to, in all three formats; gaps and ends are 0.
fn perfetto_finds_samples(perfetto: &Path) -> Result<(), Failed> {
    let folder = Folder::new("samples");
    let formats = [
        (Export::new(Format::Perfetto), "all.pftrace"),
        (Export::new(Format::Chrome), "all.json"),
        (Export::new(Format::Kineto), "all.pt.json"),
        (Export::new(Format::Perfetto).samples(7), "few.pftrace"),
        (Export::new(Format::Chrome).samples(7), "few.json"),
    ];
    // A counter has its value until the next one.
    let query = "with steps as (select c.track_id, c.ts, c.value,
                     lead(c.ts) over (partition by c.track_id order by c.ts) - c.ts as length from counter c)
                 select t.id, t.name, count(*) as count, min(ts) as first, max(ts) as last,
                     sum(value * length) / 1e9 as area, sum(iif(length is null, value, 0)) as at_the_end
                 from steps join track t on steps.track_id = t.id group by t.id";
    let recorded = Profile::from_bytes(SAMPLES)?;
    for (profile, (export, name)) in
        [sampled::sampled(), recorded].iter().flat_map(|profile| formats.map(|all| (profile, all)))
    {
        let trace = folder.export(profile, export, name);
        let rows = ask(perfetto, &trace, &[query])?;
        let is_few = name.starts_with("few");
        for track in profile.tracks() {
            // Of states that become one the one that held longest is left.
            let Some(known) = shown(&track).filter(|_| track.kind() != Kind::State || !is_few)
            else {
                continue;
            };
            let (area, first, last) = known;
            // Samples that nearly touch are drawn as if they did; what adds up stays as it is.
            let tolerance = if track.kind() == Kind::Total { 1e-9 } else { 1e-3 };
            let is = |row: &&Value| {
                row["name"].as_str().unwrap().starts_with(track.label())
                    && (row["area"].as_f64().unwrap() - area).abs() <= tolerance * area.abs()
                    && row["first"] == first
                    && (row["last"] == last || is_few)
                    && row["at_the_end"] == 0.0
            };
            let found = rows[0].iter().filter(is).count();
            // Those of two devices are alike.
            let is_alike =
                |other: &Track<'_>| other.label() == track.label() && shown(other) == Some(known);
            let alike = profile.tracks().filter(is_alike).count();
            let what = format!("{name}: {} of {known:?}", track.label());
            check(found == alike, format!("{what}: {found} of {alike} in {:#?}", rows[0]))?;
        }
    }
    Ok(())
}

fn hta_agrees(hta: &Path) -> Result<(), Failed> {
    // Counters beside the operations are nothing to it.
    let recording = sampled::with_samples(Recording::from_bytes(RECORDING).unwrap());
    let sampled = Profile::from_recording(recording);
    for (profile, kind) in [(recorded(), "plain"), (sampled, "plain"), (steps(), "steps")] {
        let folder = Folder::new(kind);
        folder.export(&profile, Export::new(Format::Kineto).rank(0, 1), "rank0.json");
        let said = output(script(hta, "run_hta.py").arg(&folder.0).arg(kind))?;
        let mut results = BTreeMap::new();
        for line in lines(&said) {
            let name = line["analysis"].as_str().unwrap().to_owned();
            check(line.get("error").is_none(), format!("{kind}: {line}"))?;
            results.insert(name, line["result"].clone());
        }
        check(results.len() == if kind == "steps" { 12 } else { 11 }, said)?;
        // By name, to the nanosecond.
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        for kernel in profile.kernels() {
            let time = kernel.gpu_time().unwrap().as_nanos() as u64;
            *times.entry(kernel.demangled_name()).or_default() += time;
        }
        if kind == "plain" {
            for row in results["kernels"].as_array().unwrap() {
                let time = (row["sum (us)"].as_f64().unwrap() * 1000.0).round() as u64;
                let name = row["name"].as_str().unwrap();
                let is_kernel = row["kernel_type"] == "COMPUTATION" && name != "others";
                check(!is_kernel || times.get(name) == Some(&time), format!("{row} of {times:?}"))?;
            }
            // It counts all, and not only the kernels, as it has no copy beside a kernel here.
            let breakdown = &results["temporal"][0];
            let busy = breakdown["compute_time(us)"].as_f64().unwrap()
                + breakdown["non_compute_time(us)"].as_f64().unwrap();
            let busy = (busy * 1000.0).round() as u128;
            check(busy == profile.totals().gpu_time().as_nanos(), format!("{breakdown}"))?;
            let copies = results["bandwidth"].as_array().unwrap();
            let of = |name: &str| copies.iter().find(|row| row["name"] == name);
            let to_device =
                profile.copies().filter(|copy| copy.kind() == cupti::CopyKind::HostToDevice);
            let counted = of("Memcpy HtoD").and_then(|row| row["count"].as_f64());
            check(counted == Some(to_device.count() as f64), format!("{copies:?}"))?;
            for row in results["annotations"].as_array().unwrap() {
                check(profile.range(row["name"].as_str().unwrap()).is_some(), row.to_string())?;
            }
        }
        // It leaves out the last step.
        let annotated = results["kernels in annotations"].as_u64();
        let is_all = annotated == Some(profile.totals().gpu_operations());
        check(is_all || kind == "steps", format!("{annotated:?}"))?;
        if kind == "steps" {
            let edges = results["critical path"].as_object();
            check(edges.is_some_and(|edges| !edges.is_empty()), format!("{edges:?}"))?;
        }
    }
    Ok(())
}

/// The critical path of the second step. HTA knows calls and operators, and ranges are neither: its path begins and ends with
/// a call, and has the host's time between calls only as a delay between kernels, if its path has such delays. It has no
/// graphs.
fn hta_agrees_on_critical_paths(hta: &Path) -> Result<(), Failed> {
    const NAMES: [&str; 9] = [
        "case-studies/optimizer-before",
        "diseases/host-preprocessing-ill",
        "diseases/launch-bound-ill",
        "diseases/pageable-copies-ill",
        "diseases/serial-streams-cured",
        "diseases/serial-streams-ill",
        "diseases/sync-every-kernel-cured",
        "diseases/sync-every-kernel-ill",
        "diseases/tail-effect-ill",
    ];
    let folder = Folder::new("paths");
    let mut profiles = Vec::new();
    for name in NAMES {
        let file = format!("../tests/recordings/{name}.gpuprof");
        let profile = Profile::load(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))?;
        let inner = name.replace('/', "-");
        fs::create_dir(folder.0.join(&inner))?;
        let export = Export::new(Format::Kineto).rank(0, 1);
        folder.export(&profile, export, &format!("{inner}/rank0.json"));
        profiles.push(profile);
    }
    let said = output(script(hta, "run_hta.py").arg(&folder.0).arg("path"))?;
    let found = lines(&said);
    check(found.len() == NAMES.len(), said)?;
    let mut wrong = Vec::new();
    for ((name, profile), line) in NAMES.iter().zip(&profiles).zip(found) {
        let edges = line["result"].as_object().ok_or_else(|| line.to_string())?;
        let theirs: f64 = edges.values().filter_map(Value::as_f64).sum();
        let has_delays = edges.contains_key("critical_path_kernel_kernel_delay");
        let step = profile.steps("step").as_slice()[1].range();
        let path = profile.dependencies().critical_path_of_instance(&step).unwrap();
        let segments = path.segments();
        let is_host = |segment: &&Segment| segment.kind() == PathKind::Host;
        let ends =
            segments.iter().take_while(is_host).chain(segments.iter().rev().take_while(is_host));
        let time = |segment: &Segment| segment.span().duration();
        let ends: Duration = ends.map(time).sum();
        let host = if has_delays { ends } else { path.time_of(PathKind::Host) };
        let ours = (path.length - host).as_nanos() as f64;
        let off = 100.0 * (ours / theirs - 1.0);
        let line = format!(
            "{name}: HTA {theirs:.0} ns, here {ours:.0} ns of {:?}: {off:+.2} %",
            path.length
        );
        eprintln!("{line}");
        if off.abs() > 2.0 {
            wrong.push(line);
        }
    }
    check(wrong.is_empty(), wrong.join("\n"))
}
