//! A profile in the formats of other tools: all of it is there, and whatever names it holds, it can be read.
use crate::{RECORDING, perfetto, quickstart};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;

use cupti::sys::generated::memory2;
use cupti::{ActivityKind, Version};
use fake_cupti::{Fake, Work, Written};
use nvtx::range;
use perfetto::{Slice, Trace};
use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde_json::Value;
use test_support::everything::{everything, fake, record};

pub(crate) const KINDS: &[u8] = include_bytes!("../../../tests/recordings/kinds-130001.gpuprof");

pub(crate) fn export(profile: &Profile, export: impl Into<Export>) -> Vec<u8> {
    let mut bytes = Vec::new();
    profile.export(export, &mut bytes).unwrap();
    bytes
}

pub(crate) fn text(profile: &Profile, format: impl Into<Export>) -> String {
    String::from_utf8(export(profile, format)).unwrap()
}

pub(crate) fn json(profile: &Profile, format: impl Into<Export>) -> Value {
    serde_json::from_slice(&export(profile, format)).unwrap()
}

fn ns(duration: std::time::Duration) -> u64 {
    duration.as_nanos() as u64
}

/// A kernel's name that was made up.
fn name(text: &str) -> &'static CStr {
    Box::leak(CString::new(text).unwrap().into_boxed_c_str())
}

fn memory(fake: &Fake, operation: u32, address: u64, bytes: u64, at: u64) {
    use memory2::*;
    let record = Written::new(ActivityKind::MEMORY2, Version(130_001)).unwrap();
    let record = record.set(MEMORY_OPERATION_TYPE, operation).set(MEMORY_KIND, 3);
    fake.write(&record.set(ADDRESS, address).set(BYTES, bytes).set(TIMESTAMP, at));
}

/// Start, end, category and name of all that a timeline is to show.
fn expected(profile: &Profile) -> Vec<(u64, u64, &'static str, String)> {
    let mut all = Vec::new();
    for range in profile.ranges() {
        let start = ns(range.start());
        all.push((start, start + ns(range.host_time()), "range", range.name().to_owned()));
    }
    for range in profile.process_ranges() {
        let start = ns(range.start());
        let name = range.name().to_owned();
        all.push((start, start + ns(range.host_time()), "process range", name));
    }
    for call in profile.calls() {
        let (start, time) = (ns(call.start()), ns(call.host_time().unwrap()));
        all.push((start, start + time, "api", call.name().to_owned()));
    }
    for mark in profile.marks() {
        let at = ns(mark.at());
        all.push((at, at, "mark", mark.name().to_owned()));
    }
    for operation in profile.operations() {
        let Some(start) = operation.start() else { continue };
        let (category, name) = if let Some(kernel) = operation.as_kernel() {
            ("kernel", kernel.demangled_name())
        } else if let Some(copy) = operation.as_copy() {
            ("copy", format!("copy {}", copy.kind()))
        } else {
            ("memset", "memset".to_owned())
        };
        let end = ns(start) + ns(operation.gpu_time().unwrap());
        all.push((ns(start), end, category, name));
    }
    all.sort();
    all
}

/// The operations that have a time and a call.
fn arrows(profile: &Profile) -> usize {
    let launched =
        |o: &profiler_core::profile::GpuOperation<'_>| o.start().is_some() && o.call().is_some();
    profile.operations().filter(launched).count()
}

fn profiles() -> [Profile; 4] {
    let nothing = record(&fake(), || ());
    let recorded = [RECORDING, KINDS].map(|bytes| Profile::from_bytes(bytes).unwrap());
    let [quickstart, kinds] = recorded;
    [everything(), quickstart, kinds, nothing]
}

fn of_perfetto(trace: &Trace) -> Vec<(u64, u64, &str, String)> {
    let shown = trace.slices.iter().filter(|slice| slice.category != "recording");
    let mut found: Vec<_> = shown
        .map(|slice| (slice.start, slice.end, slice.category.as_str(), slice.name.clone()))
        .collect();
    found.sort();
    found
}

#[test]
fn perfetto_shows_every_slice_and_arrow_once() {
    for profile in profiles() {
        let trace = perfetto::read(&export(&profile, Format::Perfetto));
        assert_eq!(of_perfetto(&trace), expected(&profile));
        assert_eq!(trace.flows.len(), arrows(&profile));
        for ends in trace.flows.values() {
            assert!(ends.len() == 2 && ends.contains(&"api".to_owned()), "{ends:?}");
        }
    }
}

#[test]
fn perfetto_slice_has_all_known_fields() {
    let profile = everything();
    let trace = perfetto::read(&export(&profile, Format::Perfetto));
    let of = |name: &str| -> Vec<&Slice> {
        trace.slices.iter().filter(|slice| slice.name == name).collect()
    };
    let arg = |slice: &Slice, name: &str| slice.args.get(name).cloned();
    let load = of("load")[2];
    let said = ["domain", "payload", "bytes [B]", "open", "ratio"].map(|name| arg(load, name));
    let field = "a field called as one of ours";
    let expected = ["li\"brary\n", "-1", "2", field, "NaN"];
    assert_eq!(said, expected.map(|text| Some(text.to_owned())));
    let left_open = of("left open")[0];
    assert_eq!(arg(left_open, "open"), Some("1".to_owned()));
    assert_eq!(left_open.end, ns(profile.duration()));
    let gemm = of("gemm<float>")[0];
    let said = ["path", "grid", "block", "registers a thread"].map(|name| arg(gemm, name));
    assert_eq!(said, ["step/load", "128 1 1", "256 1 1", "32"].map(|text| Some(text.to_owned())));
    assert_eq!(arg(of("memset")[0], "bytes"), Some("64".to_owned()));
    assert_eq!(arg(of("copy host to device")[0], "bytes"), Some("1048576".to_owned()));
    let recording = of("recording")[0];
    let said = ["complete", "operations without timestamps, not shown"];
    assert_eq!(said.map(|name| arg(recording, name).unwrap()), ["0", "1"]);
    let track = |slice: &Slice| {
        let track = &trace.tracks[&slice.track];
        let parent = track.parent.map(|parent| trace.tracks[&parent].name.as_str());
        format!("{} / {}", parent.unwrap_or_default(), track.name)
    };
    let written: Vec<String> = of("written").into_iter().map(track).collect();
    let stream =
        |n: usize| written.iter().filter(|track| track.ends_with("/ stream 7")).count() == n;
    // Those of another context of device 0 are apart from the three of the first, which are on three tracks of one name.
    assert!(stream(1), "{written:?}");
    let named = |name: &str| written.iter().filter(|track| track.ends_with(name)).count();
    assert_eq!((named("stream 7 of context 1"), named("stream 7 of context 2")), (6, 1));
    let tracks: std::collections::BTreeSet<u64> =
        of("written").into_iter().map(|slice| slice.track).collect();
    assert_eq!(tracks.len(), 5);
}

/// By thread or stream, slices that are apart or in each other, as viewers want them.
fn of_events(
    trace: &Value,
    dialect: &BTreeMap<&str, &'static str>,
) -> Vec<(u64, u64, &'static str, String)> {
    let micros = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let mut found = Vec::new();
    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    let mut begun = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let start = micros(&event["ts"]);
        let name = event["name"].as_str().unwrap().to_owned();
        let category = event["cat"].as_str().unwrap_or_default();
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let end = match event["ph"].as_str().unwrap() {
            "X" => {
                let end = start + micros(&event["dur"]);
                tracks.entry(track).or_default().push((start, end));
                end
            }
            "i" => start,
            "b" => {
                begun.insert(event["id"].as_u64().unwrap(), start);
                continue;
            }
            "e" => {
                let begun = begun.remove(&event["id"].as_u64().unwrap()).unwrap();
                found.push((begun, start, dialect[category], name));
                continue;
            }
            _ => continue,
        };
        if let Some(category) = dialect.get(category) {
            found.push((start, end, *category, name));
        }
    }
    assert!(begun.is_empty());
    for slices in tracks.values() {
        let mut open: Vec<u64> = Vec::new();
        for &(start, end) in slices {
            while open.pop_if(|end| *end <= start).is_some() {}
            assert!(open.last().is_none_or(|around| *around >= end) && open.len() < 512);
            open.push(end);
        }
    }
    found.sort();
    found
}

fn check_arrows(trace: &Value, count: usize) {
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    for ph in ["s", "f"] {
        let ends: Vec<&Value> = events.iter().filter(|event| event["ph"] == ph).collect();
        assert_eq!(ends.len(), count);
        let ids: std::collections::BTreeSet<u64> =
            ends.iter().map(|event| event["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), count);
        for end in ends {
            let same =
                |slice: &&&Value| ["pid", "tid", "ts"].iter().all(|key| slice[key] == end[key]);
            assert!(slices.iter().any(|slice| same(&slice)), "{end} is at no slice");
        }
    }
}

#[test]
fn chrome_shows_every_slice_and_arrow_once() {
    let categories = ["range", "process range", "api", "mark", "kernel", "copy", "memset"];
    let dialect = categories.into_iter().map(|category| (category, category)).collect();
    for profile in profiles() {
        let trace = json(&profile, Format::Chrome);
        assert_eq!(of_events(&trace, &dialect), expected(&profile));
        check_arrows(&trace, arrows(&profile));
    }
}

#[test]
fn kineto_shows_every_slice_and_arrow_once() {
    let dialect = BTreeMap::from([
        ("user_annotation", "range"),
        ("process range", "process range"),
        ("cuda_driver", "api"),
        ("mark", "mark"),
        ("kernel", "kernel"),
        ("gpu_memcpy", "copy"),
        ("gpu_memset", "memset"),
    ]);
    for profile in profiles() {
        let trace = json(&profile, Format::Kineto);
        let ours = |name: String| match name {
            name if name.starts_with("Memcpy HtoD") => "copy host to device".to_owned(),
            name if name.starts_with("Memcpy DtoH") => "copy device to host".to_owned(),
            name if name.starts_with("Memcpy DtoD") => "copy device to device".to_owned(),
            name if name.starts_with("Memset") => "memset".to_owned(),
            name => name,
        };
        let mut found: Vec<_> = of_events(&trace, &dialect)
            .into_iter()
            .map(|(start, end, category, name)| (start, end, category, ours(name)))
            .collect();
        found.sort();
        assert_eq!(found, expected(&profile));
        check_arrows(&trace, arrows(&profile));
    }
}

#[test]
fn kineto_export_suits_its_readers() {
    let profile = quickstart();
    let trace = json(&profile, Export::new(Format::Kineto).rank(3, 8));
    assert_eq!(trace["distributedInfo"], serde_json::json!({"rank": 3, "world_size": 8}));
    assert!(json(&profile, Format::Kineto).get("distributedInfo").is_none());
    assert_eq!(trace["deviceProperties"][0]["name"], "NVIDIA H200");
    assert_eq!(trace["deviceProperties"][0]["numSms"], 132);
    let events = trace["traceEvents"].as_array().unwrap();
    let of =
        |category: &str| events.iter().filter(|event| event["cat"] == category).collect::<Vec<_>>();
    let kernel = of("kernel")[0];
    let call = of("cuda_driver")
        .into_iter()
        .find(|call| call["args"]["correlation"] == kernel["args"]["correlation"])
        .unwrap();
    assert!(
        call["ts"].as_f64() < kernel["ts"].as_f64()
            && call["name"].as_str().unwrap().starts_with("cuLaunchKernel")
    );
    let range = of("user_annotation")
        .into_iter()
        .find(|range| range["args"]["External id"] == kernel["args"]["External id"])
        .unwrap();
    assert_eq!(range["name"], "forward");
    assert_eq!((&kernel["pid"], &kernel["tid"]), (&0.into(), &kernel["args"]["stream"]));
    assert!(kernel["args"]["grid"].is_array() && kernel["args"]["warps per SM"].is_f64());
    // Of each range the time from its first operation to its last.
    let batch = profile.ranges().find(|range| range.name() == "batch").unwrap();
    let of_batch = |o: &profiler_core::profile::GpuOperation<'_>| {
        o.range().is_some_and(|r| {
            r.start() >= batch.start() && r.start() <= batch.start() + batch.host_time()
        })
    };
    let start = profile.operations().filter(of_batch).filter_map(|o| o.start()).min().unwrap();
    let end = profile.operations().filter(of_batch);
    let end = end.filter_map(|o| Some(o.start()? + o.gpu_time()?)).max().unwrap();
    let projected = of("gpu_user_annotation").into_iter().find(|p| p["name"] == "batch").unwrap();
    assert_eq!(projected["ts"], ns(start) as f64 / 1000.0);
    assert_eq!(projected["dur"], ns(end - start) as f64 / 1000.0);
    assert_eq!(of("gpu_user_annotation").len(), 100);
}

/// The recordings are older than what says when a session began, to the nanosecond, and which process it was.
#[test]
fn traces_contain_start_time_and_process() {
    let live = record(&fake(), || drop(range("step")));
    let id = u64::from(std::process::id());
    let began = live.started_at().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    let trace = perfetto::read(&export(&live, Format::Perfetto));
    assert_eq!(trace.clocks, [(6, 0), (1, ns(began))]);
    assert_eq!(trace.processes, [id]);
    assert_eq!(json(&live, Format::Kineto)["baseTimeNanoseconds"], ns(began));
    for format in [Format::Kineto, Format::Chrome] {
        let trace = json(&live, format);
        let events = trace["traceEvents"].as_array().unwrap();
        let range = events.iter().find(|event| event["name"] == "step").unwrap();
        assert_eq!(range["pid"], id, "{format:?}");
    }

    let old = quickstart();
    let trace = perfetto::read(&export(&old, Format::Perfetto));
    assert_eq!((trace.clocks, trace.processes), (vec![], vec![1_000_000]));
    let second = old.recording_info().recorded_at_s.unwrap();
    assert_eq!(json(&old, Format::Kineto)["baseTimeNanoseconds"], second * 1_000_000_000);
}

#[test]
fn perfetto_has_typed_gpu_events_of_all_timed_operations() {
    for profile in profiles() {
        let trace = perfetto::read(&export(&profile, Format::Perfetto));
        let timed = || profile.operations().filter(|operation| operation.start().is_some());
        assert_eq!(trace.stages.len(), timed().count());
        let mut submitted = trace.submitted.clone();
        submitted.sort();
        let expected = timed().filter(|operation| operation.call().is_some());
        let expected: Vec<u64> = expected.map(|operation| operation.number() as u64 + 1).collect();
        assert_eq!(submitted, expected);
        for operation in timed() {
            let stage = &trace.stages[&(operation.number() as u64 + 1)];
            let start = ns(operation.start().unwrap());
            let time = ns(operation.gpu_time().unwrap());
            assert_eq!((stage.start, stage.end - stage.start), (start, time));
            assert_eq!(stage.device, u64::from(operation.device()));
            assert!(stage.queue.starts_with(&format!("stream {}", operation.stream())));
            let Some(kernel) = operation.as_kernel() else {
                assert!(stage.kernel.is_none() && stage.launch.is_none());
                assert_ne!(stage.stage, "kernel");
                continue;
            };
            assert_eq!((&*stage.stage, &stage.name), ("kernel", &kernel.demangled_name()));
            let names = [kernel.name().to_owned(), kernel.demangled_name()];
            assert_eq!(stage.kernel, Some(names));
            let sizes = [kernel.grid(), kernel.block()].map(|sizes| sizes.map(u64::from));
            assert_eq!(stage.launch, Some(sizes));
            let registers = kernel.details().registers_per_thread.to_string();
            assert_eq!(stage.args["registers_per_thread"], registers);
            let path = operation.range().map(|range| range.node().path());
            assert_eq!(stage.args.get("range"), path.as_ref());
        }
        let plain = export(&profile, Export::new(Format::Perfetto).typed_events(false));
        let plain = perfetto::read(&plain);
        assert!(plain.stages.is_empty() && plain.submitted.is_empty() && plain.gpus.is_empty());
        assert_eq!((plain.slices.len(), plain.flows), (trace.slices.len(), trace.flows));
    }
}

#[test]
fn folded_stacks_add_up_to_the_totals() {
    for profile in profiles() {
        let folded = text(&profile, Format::Folded);
        let lines: Vec<(&str, u64)> = folded
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(stack, ns)| (stack, ns.parse().unwrap()))
            .collect();
        assert_eq!(lines.iter().map(|(_, ns)| ns).sum::<u64>(), ns(profile.totals().gpu_time()));
        let mut times: BTreeMap<&str, u64> = BTreeMap::new();
        for (stack, ns) in &lines {
            let path = stack.rsplit_once(';').map_or("", |(path, _)| path);
            *times.entry(path).or_default() += ns;
        }
        times.retain(|_, ns| *ns > 0);
        let mut expected = BTreeMap::from([(String::new(), profile.outside_ranges().gpu_time())]);
        for (_, node) in profile.walk() {
            *expected.entry(node.path().replace('/', ";")).or_default() +=
                node.exclusive().gpu_time();
        }
        expected.retain(|_, time| !time.is_zero());
        let expected: BTreeMap<&str, u64> =
            expected.iter().map(|(path, time)| (&**path, ns(*time))).collect();
        assert_eq!(times, expected);
        for node in profile.roots().filter(|node| node.name() == "batch") {
            let of = |(stack, _): &&(&str, u64)| stack.starts_with("batch;");
            let sum: u64 = lines.iter().filter(of).map(|(_, ns)| ns).sum();
            assert_eq!(sum, ns(node.inclusive().gpu_time()));
        }
    }
}

#[test]
fn counters_follow_the_work() {
    let fake = fake();
    let mut at = 0;
    let profile = record(&fake, || {
        fake.launch(Work::host_to_device(1000).taking_ns(500));
        fake.launch(Work::kernel(c"k").taking_ns(1_000));
        at = cupti::clock::now_ns();
        memory(&fake, 1, 0x1000, 4096, at);
        memory(&fake, 1, 0x2000, 100, at + 10);
        memory(&fake, 2, 0x1000, 0, at + 20);
        memory(&fake, 2, 0x9000, 7, at + 30); // allocated before the session
    });
    let trace = perfetto::read(&export(&profile, Format::Perfetto));
    let named = |name: &str| {
        let found = trace.counters.iter().find(|(counter, _)| counter.ends_with(name));
        found.unwrap_or_else(|| panic!("{:?}", trace.counters.keys())).1.clone()
    };
    let values = |name: &str| named(name).iter().map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!(values("device memory allocated since the start"), [4096, 4196, 100, 93]);
    assert_eq!(values("copy bandwidth"), [2_000_000_000, 0]);
    let queued = named("stream 7: operations submitted and not finished");
    let calls: Vec<u64> = profile.calls().map(|call| ns(call.start())).collect();
    let ends: Vec<u64> =
        profile.operations().map(|o| ns(o.start().unwrap() + o.gpu_time().unwrap())).collect();
    let mut changes: Vec<_> =
        calls.iter().map(|at| (*at, 1)).chain(ends.iter().map(|at| (*at, -1))).collect();
    changes.sort();
    let mut depth = 0;
    let expected: Vec<(u64, i64)> = changes
        .into_iter()
        .map(|(at, change)| {
            depth += change;
            (at, depth)
        })
        .collect();
    assert_eq!(queued, expected);
    let chrome = json(&profile, Format::Chrome);
    let events = chrome["traceEvents"].as_array().unwrap();
    let counted = events.iter().filter(|event| event["ph"] == "C").count();
    assert_eq!(counted, trace.counters.values().map(Vec::len).sum::<usize>());
    let without = record(&fake, || _ = fake.launch(Work::kernel(c"k")));
    assert!(!text(&without, Format::Chrome).contains("device memory"));
}

#[test]
fn hostile_names_round_trip() {
    let names = [
        "\"quoted\" \\ back\\\\slash",
        "\u{0}\u{1}\u{1f}\u{7f}\u{85} controls",
        "\\ud800 \\udfff \\u0000 %s",
        "</script><script>alert(1)</script>",
        "line\r\nbreaks\u{2028}\u{2029}",
        "semi;colon;; 42",
        "\u{202e}right to left\u{feff}\u{10ffff}",
        "",
        "  ",
        "{\"ph\":\"X\"}],",
    ];
    let fake = fake();
    let profile = record(&fake, || {
        for name_ in names {
            let _range = range(name_);
            nvtx::mark(name_);
            drop(nvtx::process_range(name_));
            drop(nvtx::event(name_).field(name_, name_, name_).range());
            fake.launch(Work::kernel(name(&name_.replace('\0', "0"))));
        }
    });
    let trace = perfetto::read(&export(&profile, Format::Perfetto));
    assert_eq!(of_perfetto(&trace), expected(&profile));
    let categories = ["range", "process range", "api", "mark", "kernel"];
    let dialect = categories.into_iter().map(|category| (category, category)).collect();
    let chrome = json(&profile, Format::Chrome);
    assert_eq!(of_events(&chrome, &dialect), expected(&profile));
    let field = chrome["traceEvents"].as_array().unwrap().iter().find_map(|event| {
        event["args"].get("</script><script>alert(1)</script> [</script><script>alert(1)</script>]")
    });
    assert_eq!(field.unwrap(), "</script><script>alert(1)</script>");
    let kineto = json(&profile, Format::Kineto);
    let annotations = kineto["traceEvents"].as_array().unwrap();
    for name in names {
        let of = |event: &&Value| event["cat"] == "user_annotation" && event["name"] == name;
        assert_eq!(annotations.iter().filter(of).count(), 2, "{name:?}");
    }
    // Two frames, a space and a number a line, whatever is in the names.
    // Perfetto's own reader takes two backslashes before a quote for one.
    assert!(!text(&profile, Format::Chrome).contains("\\\\"));
    let folded = text(&profile, Format::Folded);
    assert_eq!(folded.split('\n').count(), names.len() + 1);
    for line in folded.lines() {
        let (stack, time) = line.rsplit_once(' ').unwrap();
        assert_eq!((stack.split(';').count(), time), (2, "1000"), "{line:?}");
        assert!(stack.split(';').all(|frame| !frame.trim().is_empty()));
        assert!(!stack.contains(char::is_control));
    }
    assert!(folded.contains("semi:colon:: 42;semi:colon:: 42 1000\n"));
}

#[test]
fn long_name_is_written_once_per_use() {
    let long = "n".repeat(1 << 18);
    let (fake, kernel) = (fake(), name(&long));
    let profile = record(&fake, || {
        let _range = range(&long);
        for _ in 0..10 {
            fake.launch(Work::kernel(kernel));
        }
    });
    let bytes = export(&profile, Format::Perfetto);
    // Once as the name of events, and once as that of a kernel.
    assert!(bytes.len() < (2 << 18) + (1 << 14), "{} bytes", bytes.len());
    let trace = perfetto::read(&bytes);
    assert_eq!(trace.slices.iter().filter(|slice| slice.name == long).count(), 11);
    let path = &trace.slices.iter().find(|slice| slice.category == "kernel").unwrap().args["path"];
    assert_eq!(*path, format!("{}…", "n".repeat(200)));
    for format in [Format::Chrome, Format::Kineto] {
        let trace = json(&profile, format);
        let events = trace["traceEvents"].as_array().unwrap();
        assert!(events.iter().filter(|event| event["name"] == *long).count() >= 11);
    }
    assert_eq!(text(&profile, Format::Folded), format!("{long};{long} 10000\n"));
}

#[test]
fn five_thousand_nested_ranges_are_recorded() {
    const DEPTH: usize = 5_000;
    let fake = fake();
    let profile = record(&fake, || {
        let mut open: Vec<_> = (0..DEPTH).map(|_| range("r")).collect();
        fake.launch(Work::kernel(c"innermost"));
        while open.pop().is_some() {}
    });
    let snapshot = profile.counts();
    assert_eq!(snapshot.lines().filter(|line| line.contains(" x r: ")).count(), DEPTH);
    assert!(profile.to_string().contains("innermost"));
    let trace = perfetto::read(&export(&profile, Format::Perfetto));
    assert_eq!(of_perfetto(&trace), expected(&profile));
    let categories = ["range", "api", "kernel"];
    let dialect = categories.into_iter().map(|category| (category, category)).collect();
    assert_eq!(of_events(&json(&profile, Format::Chrome), &dialect), expected(&profile));
    let dialect = BTreeMap::from([
        ("user_annotation", "range"),
        ("cuda_driver", "api"),
        ("kernel", "kernel"),
    ]);
    assert_eq!(of_events(&json(&profile, Format::Kineto), &dialect), expected(&profile));
    let kernel = trace.slices.iter().find(|slice| slice.name == "innermost").unwrap();
    assert_eq!(kernel.args["path"], format!("(4936 more){}", "/r".repeat(64)));
    assert_eq!(text(&profile, Format::Folded), format!("{}innermost 1000\n", "r;".repeat(DEPTH)));
}

/// Takes so many bytes.
pub(crate) struct Full(pub(crate) usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::Error::other("the disk is full")) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_disk_is_an_error() {
    let profile = quickstart();
    for format in Format::ALL {
        for room in [0, 400] {
            let error = profile.export(format, Full(room)).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&format.to_string()) && said.contains("disk is full"), "{said}");
            assert!(!error.is_format() && std::error::Error::source(&error).is_some());
        }
    }
}

/// Names, extensions, and nothing of where it was recorded but the machine's kind.
#[test]
fn formats_have_names_and_hold_no_environment() {
    let profile = quickstart();
    let mut extensions = std::collections::BTreeSet::new();
    for format in Format::ALL {
        assert!(extensions.insert(format.extension()) && !format.to_string().is_empty());
        let written = String::from_utf8_lossy(&export(&profile, format)).into_owned();
        for private in ["HOME", "PATH", "USER", "/home", "/root", "/tmp", "hostname"] {
            assert!(!written.contains(private), "{format}: {private}");
        }
    }
}
