//! The page of a profile: its data is the profile, and no name in it is anything but data.

use std::ffi::CString;
use std::time::Duration;

use crate::formats::Full;
use crate::{RECORDING, profiler, quickstart, record};
use cupti::Config;
use fake_cupti::{Fake, Work};
use profiler_analysis::diagnosis::{Part, Thresholds};
use profiler_analysis::prelude::*;
use profiler_core::Profile;
use serde_json::Value;

const SERIAL: &[u8] =
    include_bytes!("../../../tests/recordings/diseases/serial-streams-ill.gpuprof");
const ROOFLINE: &[u8] = include_bytes!("../../../tests/recordings/roofline-h200.gpuprof");
const LINES: &[u8] = include_bytes!("../../../tests/recordings/lines/planted-h200.gpuprof");
const SAMPLES: &[u8] = include_bytes!("../../../tests/recordings/samples-h200.gpuprof");

/// What stands in the page's element of data.
pub(crate) fn json_of(page: &str) -> &str {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    rest.split_once("</script>").unwrap().0
}

pub(crate) fn data_of(profile: &Profile) -> Value {
    serde_json::from_str(json_of(&profile.to_html())).unwrap()
}

fn numbers(column: &Value) -> Vec<i64> {
    column.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

fn summed(deltas: &Value) -> Vec<i64> {
    let sums = numbers(deltas).into_iter().scan(0, |sum, delta| {
        *sum += delta;
        Some(*sum)
    });
    sums.collect()
}

fn ns(duration: Duration) -> i64 {
    duration.as_nanos().try_into().unwrap()
}

fn name<'a>(data: &'a Value, row: &Value) -> &'a str {
    data["names"][row.as_u64().unwrap() as usize].as_str().unwrap()
}

#[test]
fn the_columns_of_a_real_recording_are_its_ranges_calls_and_operations() {
    let profile = quickstart();
    let data = data_of(&profile);

    let ranges = &data["ranges"];
    let (starts, lengths) = (summed(&ranges["start_delta"]), numbers(&ranges["ns"]));
    let parents = numbers(&ranges["parent_back"]);
    assert_eq!(starts.len(), 100);
    let name_of = |row: usize| {
        let node = &data["nodes"][ranges["node"][row].as_u64().unwrap() as usize];
        name(&data, &node["name"])
    };
    for (row, range) in profile.ranges().enumerate() {
        assert_eq!((starts[row], lengths[row]), (ns(range.start()), ns(range.host_time())));
        assert_eq!(name_of(row), range.name());
        let parent = (parents[row] != 0).then(|| name_of((row as i64 - parents[row]) as usize));
        assert_eq!(parent, range.parent().map(|parent| parent.name()));
    }

    let calls = &data["calls"];
    let (starts, lengths) = (summed(&calls["start_delta"]), numbers(&calls["ns"]));
    let within = summed(&calls["range_delta"]);
    assert_eq!(starts.len(), 460);
    let call_name = |row: usize| {
        name(&data, &data["call_kinds"][calls["kind"][row].as_u64().unwrap() as usize][0])
    };
    for (row, call) in profile.calls().enumerate() {
        assert_eq!((starts[row], lengths[row]), (ns(call.start()), ns(call.host_time().unwrap())));
        assert_eq!(call_name(row), call.name());
        assert_eq!(name_of(within[row] as usize - 1), call.range().unwrap().name());
    }

    let operations = &data["operations"];
    let starts_on_gpu = summed(&operations["start_delta"]);
    let (lengths, causes) = (numbers(&operations["ns"]), summed(&operations["call_delta"]));
    let mut bytes = numbers(&operations["bytes"]).into_iter();
    assert_eq!(starts_on_gpu.len(), 440);
    for (row, operation) in profile.operations().enumerate() {
        assert_eq!(starts_on_gpu[row], ns(operation.start().unwrap()));
        assert_eq!(lengths[row], ns(operation.gpu_time().unwrap()));
        let call = operation.call().unwrap();
        assert_eq!(starts[causes[row] as usize - 1], ns(call.start()), "row {row}");
        assert_eq!(call_name(causes[row] as usize - 1), call.name());
        let work = &data["works"][operations["work"][row].as_u64().unwrap() as usize];
        if let Some(kernel) = operation.as_kernel() {
            assert_eq!(work[0], 0);
            assert_eq!(name(&data, &work[1]), kernel.demangled_name());
            assert_eq!(name(&data, &work[2]), kernel.name());
            let grid = [&work[3], &work[4], &work[5]].map(|value| value.as_u64().unwrap() as u32);
            assert_eq!(grid, kernel.grid());
        } else if let Some(copy) = operation.as_copy() {
            assert_eq!(bytes.next(), Some(copy.bytes() as i64));
            assert_eq!(name(&data, &work[1]), format!("copy {}", copy.kind()));
        } else if let Some(memset) = operation.as_memset() {
            assert_eq!(bytes.next(), Some(memset.bytes() as i64));
            assert_eq!(work[0], 6);
        }
    }
    assert!(bytes.next().is_none());
}

#[test]
fn tables_and_summary_match_the_report() {
    let profile = quickstart();
    let data = data_of(&profile);
    let totals = profile.totals();
    let sum = |table: &str, field: &str| -> u64 {
        data[table].as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
    };
    assert_eq!(
        (sum("kernels", "count"), sum("kernels", "total")),
        (totals.kernels, totals.kernel_time().as_nanos() as u64)
    );
    assert_eq!(sum("memory", "count"), totals.copies + totals.memsets);
    assert_eq!(
        sum("memory", "total"),
        (totals.copy_time() + totals.memset_time()).as_nanos() as u64
    );
    assert_eq!(sum("memory", "bytes"), totals.copy_bytes + totals.memset_bytes);
    assert_eq!(sum("api", "count"), 460);
    assert_eq!(data["totals"], serde_json::to_value(totals).unwrap());

    let most = &data["kernels"][0];
    let mut times: Vec<Duration> = profile
        .kernels()
        .filter(|kernel| kernel.demangled_name() == name(&data, &most["name"]))
        .map(|kernel| kernel.gpu_time().unwrap())
        .collect();
    times.sort();
    assert_eq!((most["count"].as_u64(), most["min"].as_i64()), (Some(40), Some(ns(times[0]))));
    assert_eq!(most["median"].as_f64().unwrap(), (ns(times[19]) + ns(times[20])) as f64 / 2.0);
    assert_eq!(most["max"].as_i64(), Some(ns(times[39])));

    assert_eq!(data["health"]["is_complete"], true);
    assert_eq!(data["health"]["in_words"], profile.health().to_string());
    assert_eq!(data["devices"][0]["name"], "NVIDIA H200");
    assert_eq!(data["nodes"].as_array().unwrap().len(), 5);
    let titles: Vec<&str> = data["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["title"].as_str().unwrap())
        .collect();
    assert_eq!(
        titles[0],
        "The steady phase of batch is copy bound: 847.2 us (32.6 %, 38.0 % with the idle time around it), about 1.61x faster without it"
    );
    let copies =
        "34 asynchronous copies of pageable memory, 10.62 MiB in total, in batch/copy to device";
    assert!(titles[1].starts_with(copies), "{}", titles[1]);
    let evidence = data["findings"][1]["evidence"].as_array().unwrap();
    assert_eq!((&data["findings"][1]["count"], evidence.len()), (&34.into(), 34));
    for moment in evidence {
        let [start, length, operation, _, _] = numbers(moment)[..] else { panic!("{moment}") };
        let copy = profile.operations().nth(operation as usize - 1).unwrap();
        assert!(copy.as_copy().is_some() && start <= ns(copy.start().unwrap()) && length > 0);
    }
    assert!(titles.contains(&"GPU 0 was busy for 44.9 % of the time"));
    let card = profile.scorecard();
    assert_eq!(data["scorecard"]["verdict"], card.verdict);
    for (score, shown) in card.scores().iter().zip(data["scorecard"]["scores"].as_array().unwrap())
    {
        assert_eq!(shown["name"], score.kind.text());
        assert_eq!(shown["flag"], score.flag.text());
        assert_eq!(shown["value"], score.value_text());
        assert_eq!(shown["note"], score.note);
    }
}

/// Pieces, their gaps and the time of kernels are each device's clock, as the diagnosis divides it.
#[test]
fn the_clock_of_the_page_matches_the_diagnosis() {
    for bytes in [RECORDING, SERIAL] {
        let profile = Profile::from_bytes(bytes).unwrap();
        let data = data_of(&profile);
        let verdict = profile.diagnosis(Thresholds::new()).verdict();
        let names: Vec<&str> = data["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["name"].as_str().unwrap())
            .collect();
        let mut sums = vec![0; names.len()];
        let clock = &data["clock"][0];
        let (deltas, lengths, parts) =
            (numbers(&clock["start_delta"]), numbers(&clock["ns"]), numbers(&clock["part"]));
        let mut last = None;
        for ((delta, length), part) in deltas.iter().zip(&lengths).zip(&parts) {
            assert!(*delta >= 0 && *length > 0);
            assert!(*delta != 0 || last != Some(*part), "adjacent pieces of one part are one");
            sums[*part as usize / 2] += length;
            last = Some(*part);
        }
        assert_eq!(sums[0], 0, "kernels are what is left");
        for part in Part::ALL {
            let row = names.iter().position(|name| *name == part.text()).unwrap();
            if row != 0 {
                assert_eq!(sums[row], ns(verdict.time_of(part)), "{part}");
            }
        }
    }
}

/// The roofline is in the page of a profile whose ranges declare their work, and in no other.
#[test]
fn declared_work_is_a_roofline_in_the_page() {
    let page = Profile::from_bytes(ROOFLINE).unwrap().to_html();
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(
        page.contains("aria-label=\"Roofline: NVIDIA H200\"") && page.contains("<td>gemm</td>")
    );
    assert!(!quickstart().to_html().contains("<svg"));
}

#[test]
fn sampled_totals_are_on_the_page() {
    let data = data_of(&Profile::from_bytes(SAMPLES).unwrap());
    let tracks = data["tracks"].as_array().unwrap();
    let energy = tracks.iter().find(|track| track["name"] == "nvml__energy").unwrap();
    assert_eq!((&energy["unit"], &energy["total_unit"]), (&"watts".into(), &"joules".into()));
    assert!(energy["total"].as_f64().unwrap() > 10.0, "{}", energy["total"]);
    let clock = tracks.iter().find(|track| track["unit"] == "hertz").unwrap();
    assert!(clock["total"].is_null());
}

/// The page has the memory that the program allocated and freed.
#[test]
fn allocated_memory_is_a_track_of_the_page() {
    let recording = include_bytes!("../../../tests/recordings/kinds-130001.gpuprof");
    let profile = Profile::from_bytes(recording).unwrap();
    let memory = profile.memory();
    let of_device = memory.iter().find(|memory| memory.kind == cupti::MemoryKind::DEVICE);
    let peak = of_device.unwrap().peak.unwrap();
    let data = data_of(&profile);
    let tracks = data["tracks"].as_array().unwrap();
    let track = tracks.iter().find(|track| track["name"] == "allocated").unwrap();
    let values = track["value"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
    assert_eq!(values.fold(0.0, f64::max), peak.bytes as f64);
    assert!(track["interval_ns"].is_null() && track["unit"] == "bytes", "{track}");
    assert!(data_of(&quickstart())["tracks"].as_array().unwrap().is_empty());
}

/// Lines are on the page by the range and the kernel that the operations have.
#[test]
fn sampled_lines_are_those_of_the_kernels_in_their_ranges() {
    let profile = Profile::from_bytes(LINES).unwrap();
    let data = data_of(&profile);
    let samples_of = |row: &Value| {
        let stalls = row["stalls"].as_array().unwrap().iter();
        stalls.map(|stall| stall[1].as_f64().unwrap()).sum::<f64>()
    };
    let lines = data["lines"].as_array().unwrap();
    let kernels: Vec<_> = data["kernels"].as_array().unwrap().iter().collect();
    for row in lines {
        assert!(kernels.iter().any(|kernel| kernel["name"] == row["kernel"]), "{row}");
        let node = &data["nodes"][row["node"].as_u64().unwrap() as usize - 1];
        assert_eq!(node["name"], row["kernel"], "each kernel has a range of its name");
    }
    let recorded = profile.instruction_counts().unwrap().recorded;
    assert_eq!(lines.iter().map(samples_of).sum::<f64>(), recorded as f64);
    let of_gather = lines.iter().filter(|row| name(&data, &row["kernel"]) == "gather");
    let hottest = of_gather.max_by(|a, b| samples_of(a).total_cmp(&samples_of(b))).unwrap();
    assert_eq!(name(&data, &hottest["name"]), "planted.cu:4");
    assert_eq!(data_of(&quickstart())["lines"].as_array().unwrap().len(), 0);
}

#[test]
fn hostile_names_are_data() {
    let long = "x".repeat(1 << 20);
    let hostile = [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"'`&amp;${1}",
        "nul \u{0} and \u{1b}[31m",
        "\u{202e}txt.exe\u{2066}",
        "{data}{script}{style}",
        "<img src=x onerror=alert(1)>",
        "\u{2028}\u{feff}",
    ];
    let profile = record(|fake| {
        for name in hostile.iter().chain([&long.as_str()]) {
            let _range = nvtx::range(name);
            let kernel = CString::new(name.replace('\0', "")).unwrap();
            fake.launch(Work::kernel(Box::leak(kernel.into_boxed_c_str())));
        }
    });
    profile.health().assert_complete();
    let page = profile.to_html();
    // Nothing that ends or opens an element but the page's own.
    assert!(!json_of(&page).contains('<'));
    let plain = quickstart().to_html();
    for tag in ["<script", "</script", "<style", "<img", "<!--", "Content-Security-Policy"] {
        assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
    let data: Value = serde_json::from_str(json_of(&page)).unwrap();
    let names: Vec<&str> =
        data["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    // As text that acts on nobody.
    let acts = |c: char| c.is_control() || "\u{202e}\u{2066}\u{feff}".contains(c);
    for name in hostile {
        let shown = name.replace('\u{2028}', " ").replace(acts, "\u{fffd}");
        assert!(names.contains(&&*shown), "{name:?}");
    }
    let kept = names.iter().find(|name| name.starts_with("xxxx")).unwrap();
    assert!(kept.contains("[… 1044480 of 1048576 characters left out …]"));
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn losses_and_failed_calls_are_findings() {
    let profile = record(|fake| {
        let _range = nvtx::range("r");
        fake.launch(Work::kernel(c"k"));
        fake.call_only("cuMemAlloc_v2", 2);
        fake.call_only("cuMemAlloc_v2", 2);
        fake.drop_records(7);
    });
    let data = data_of(&profile);
    let findings = data["findings"].as_array().unwrap();
    let of = |row: usize, field: &str| findings[row][field].as_str().unwrap();
    assert_eq!((of(0, "level"), of(0, "title")), ("loss", "7 records dropped by CUPTI"));
    let failed = findings.iter().find(|finding| finding["level"] == "warning").unwrap();
    assert_eq!(failed["title"], "2 calls returned an error");
    assert_eq!(failed["text"], "cuMemAlloc_v2 returned 2, 2 times.");
    assert_eq!(data["health"]["is_complete"], false);
    assert_eq!(data["calls"]["failed"].as_array().unwrap().len(), 2);
    let rows: Vec<i64> =
        failed["evidence"].as_array().unwrap().iter().map(|one| numbers(one)[3]).collect();
    assert_eq!(rows, [2, 3], "the calls, counted from 1");
}

#[test]
fn operations_without_timestamps_are_in_the_tables_and_not_in_the_timeline() {
    let profile = record(|fake| {
        fake.launch(Work::kernel(c"seen"));
        fake.lose_timestamps();
        fake.launch(Work::kernel(c"unseen"));
    });
    let data = data_of(&profile);
    assert_eq!(numbers(&data["operations"]["ns"]).iter().filter(|ns| **ns == -1).count(), 1);
    let rows = data["kernels"].as_array().unwrap();
    let lost = rows.iter().find(|row| name(&data, &row["name"]) == "unseen").unwrap();
    assert_eq!((&lost["count"], &lost["timed"]), (&1.into(), &0.into()));
}

#[test]
fn range_labels_are_on_the_page() {
    let profile = record(|_| {
        let _range = nvtx::event("said").color(nvtx::Color::RED).payload(17u64).range();
        nvtx::mark("moment");
    });
    let data = data_of(&profile);
    let details = &data["ranges"]["details"][0];
    assert_eq!(details[0], 0);
    let pair = details[1][0].as_array().unwrap();
    assert_eq!((name(&data, &pair[0]), name(&data, &pair[1])), ("payload", "17"));
    assert_eq!(data["ranges"]["colors"][0][1], 0x00ff_0000);
    assert_eq!(name(&data, &data["marks"]["name"][0]), "moment");
}

#[test]
fn calls_of_the_runtime_api_are_drawn_and_in_no_sum() {
    let fake = Fake::new();
    let profiler = profiler(&fake, Config::new().runtime_calls(true));
    let launch = || fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
    let data = data_of(&profiler.record(launch).unwrap().1);
    let calls = &data["calls"];
    let kind = |row: usize| &data["call_kinds"][calls["kind"][row].as_u64().unwrap() as usize][0];
    assert_eq!((&calls["driver"], calls["ns"].as_array().unwrap().len()), (&1.into(), 2));
    assert_eq!(name(&data, kind(0)), "cuLaunchKernel");
    assert_eq!(name(&data, kind(1)), "cudaLaunchKernel");
    assert_eq!(data["api"].as_array().unwrap().len(), 1);
    assert_eq!(summed(&data["operations"]["call_delta"]), [1], "the driver call's row plus one");
}

#[test]
fn a_pause_is_on_the_page() {
    let fake = Fake::new();
    let profiler = profiler(&fake, Config::new());
    let program = || {
        fake.launch(Work::kernel(c"before"));
        profiler.pause().unwrap();
        fake.launch(Work::kernel(c"meanwhile"));
        profiler.resume().unwrap();
        fake.launch(Work::kernel(c"after"));
    };
    let profile = profiler.record(program).unwrap().1;
    let data = data_of(&profile);
    let pauses = data["pauses_ns"].as_array().unwrap();
    assert_eq!(pauses.len(), 1);
    let [from, to] = [&pauses[0][0], &pauses[0][1]].map(|at| at.as_i64().unwrap());
    assert!(0 < from && from < to && to < ns(profile.duration()));
    let title = data["findings"][0]["title"].as_str().unwrap();
    assert!(title.starts_with("The session was off for "), "{title}");
}

#[test]
fn an_empty_profile_is_a_page() {
    let data = data_of(&record(|_| ()));
    assert_eq!(data["findings"][0]["title"], "No work on a GPU was recorded");
    assert_eq!(data["nodes"], serde_json::json!([]));
}

#[test]
fn unwritable_page_is_an_error_with_its_reason() {
    let profile = quickstart();
    let page = profile.to_html();
    for room in [0, 10, page.len() / 2, page.len() - 1] {
        let error = profile.write_html(Full(room)).unwrap_err();
        assert_eq!(error.to_string(), "could not write the profile as HTML: the disk is full");
    }
    let mut written = Vec::new();
    profile.write_html(&mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), page, "the same page each time");
}
