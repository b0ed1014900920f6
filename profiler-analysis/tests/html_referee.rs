//! The pages in a real browser: each feature by pointer and keyboard, in windows of three sizes, with
//! `THOROUGH_TESTS` in both themes. The page must ask nobody for anything. Large pages are timed only
//! if `PAGE_TIMES_FACTOR` is set, by which their bounds are multiplied. `HTML_REFEREE` is what
//! `.ci/html-referee` made; without it the tests are ignored, with a message.
//!
//! `HTML_PICTURES` names a folder for pictures of what the checks see. The modules of the script
//! have tests of their own, which node runs without a browser:
//! `node --test profiler-analysis/tests/html_referee/*.test.mjs`.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test; its figures are for people

use std::env;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use libtest_mimic::{Arguments, Failed, Trial};
use nvtx::{Dtype, Pipe};
use profiler_analysis::prelude::*;
use profiler_analysis::roofline::Peaks;
use profiler_core::profile::Merger;
use profiler_core::series::{Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, Recording};
use test_support::backwards;
use test_support::sampled;

const RECORDING: &[u8] = include_bytes!("../../examples/recordings/quickstart-h200.gpuprof");
/// Of format 2, without checksums.
const OLD_RECORDING: &[u8] =
    include_bytes!("../../tests/recordings/case-studies/optimizer-before.gpuprof");
const RANKS: [&[u8]; 2] = [
    include_bytes!("../../tests/recordings/nccl-2xh100/rank-0.gpuprof"),
    include_bytes!("../../tests/recordings/nccl-2xh100/rank-1.gpuprof"),
];
const LINES: &[u8] = include_bytes!("../../tests/recordings/lines/planted-h200.gpuprof");
const ROOFLINE: &[u8] = include_bytes!("../../tests/recordings/roofline-h200.gpuprof");
const BEFORE: &[u8] =
    include_bytes!("../../tests/recordings/diseases/sync-every-kernel-ill.gpuprof");
const AFTER: &[u8] =
    include_bytes!("../../tests/recordings/diseases/sync-every-kernel-cured.gpuprof");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/html_referee/check.mjs");

static FAKE: Mutex<()> = Mutex::new(());
static MACHINE: RwLock<()> = RwLock::new(());

type Page = fn() -> String;

/// The checks of the script, and the page each is made on.
const CHECKS: &[(&str, Page)] = &[
    ("opens", || recorded().to_html()),
    ("takes_the_window", || recorded().to_html()),
    ("many_rows_take_the_window", || many_threads().to_html()),
    ("zooms_and_pans", || recorded().to_html()),
    ("follows_fingers", || recorded().to_html()),
    ("sums_an_area", || recorded().to_html()),
    ("sums_agree_with_the_profile", || recorded().to_html()),
    ("selects", || recorded().to_html()),
    ("highlights_what_a_range_caused", || recorded().to_html()),
    ("searches", || recorded().to_html()),
    ("colours_kernels_by_name", || recorded().to_html()),
    ("tables_follow", || recorded().to_html()),
    ("sorts_and_filters", || recorded().to_html()),
    ("draws_a_flame_graph", || recorded().to_html()),
    ("shows_findings", || recorded().to_html()),
    ("explains_its_keys", || recorded().to_html()),
    ("keeps_the_view_in_its_address", || recorded().to_html()),
    ("themes", || recorded().to_html()),
    ("is_accessible", || recorded().to_html()),
    ("draws_what_there_is", || recorded().to_html()),
    ("shows_hostile_names", || hostile().to_html()),
    ("shows_names_in_every_table", || long_names().to_html()),
    ("says_what_was_lost", || lossy().to_html()),
    ("says_what_has_no_time", || timeless().to_html()),
    ("shows_clocks_that_go_back", || {
        Profile::from_bytes(&backwards::backwards(OLD_RECORDING)).unwrap().to_html()
    }),
    ("says_what_failed", || empty().to_html()),
    ("shows_an_empty_session", || empty().to_html()),
    ("groups_processes", || processes().to_html()),
    ("links_ranks", || ranks().to_html()),
    ("draws_what_was_sampled", || with_energy().to_html()),
    ("is_accessible_with_samples", || with_energy().to_html()),
    ("shows_lines_of_a_range", || Profile::from_bytes(LINES).unwrap().to_html()),
    ("has_a_roofline", || Profile::from_bytes(ROOFLINE).unwrap().to_html()),
    ("a_crowded_roofline_can_be_read", crowded_roofline),
    ("compares", comparison),
    ("is_fast_with_330000_kernels", || large().to_html()),
    ("is_fast_with_8000000_samples", || long_sampled().to_html()),
];

fn main() -> ExitCode {
    // Most of the time a check waits for its browser.
    let arguments = Arguments::from_args();
    let threads = arguments.test_threads.or(Some(3));
    let arguments = Arguments { test_threads: threads, ..arguments };
    let referee = env::var_os("HTML_REFEREE").map(PathBuf::from);
    if referee.is_none() && !arguments.list {
        eprintln!(
            "{} tests in a browser are ignored: HTML_REFEREE names none; .ci/html-referee FOLDER makes one",
            CHECKS.len()
        );
    }
    let trials = CHECKS.iter().map(|&(check, page)| {
        let referee = referee.clone();
        // Times are judged only where their bound is stated: in a thorough run.
        let is_timed = check.starts_with("is_fast");
        let has_bound = env::var_os("PAGE_TIMES_FACTOR").is_some();
        let is_ignored = referee.is_none() || is_timed && !has_bound;
        let run = move || match &referee {
            Some(referee) => {
                // The fake is the process's.
                let content = {
                    let _one = FAKE.lock().unwrap();
                    page()
                };
                // What looks at the clock has the machine for itself.
                if is_timed {
                    let _alone = MACHINE.write().unwrap();
                    judge(referee, check, &content)
                } else {
                    let _shared = MACHINE.read().unwrap();
                    judge(referee, check, &content)
                }
            }
            None => Err(Failed::from("HTML_REFEREE names no browser")),
        };
        Trial::test(check, run).with_ignored_flag(is_ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn judge(referee: &Path, check: &str, content: &str) -> Result<(), Failed> {
    let name = format!("{check}-{}.html", std::process::id());
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&page, content)?;
    let mut command = Command::new(referee);
    command.arg(SCRIPT).arg(check).arg(&page).args(env::var_os("HTML_PICTURES"));
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !said.is_empty() {
        eprintln!("{check}: a page of {} bytes: {}", content.len(), said.trim());
    }
    if output.status.success() {
        fs::remove_file(page)?;
        return Ok(());
    }
    Err(format!("{}\nthe page: {}", String::from_utf8_lossy(&output.stderr), page.display()).into())
}

fn recorded() -> Profile {
    Profile::from_bytes(RECORDING).unwrap()
}

fn record(program: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.record(|| program(&fake)).unwrap().1
}

fn hostile() -> Profile {
    let long = "long ".repeat(1 << 18);
    let names = [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "\"'`&amp;${1}",
        "nul \u{0} and \u{1b}[31m",
        "\u{202e}txt.exe\u{2066}",
        "__proto__",
        "",
        &long,
    ];
    record(|fake| {
        let mut open = Vec::new();
        for name in names {
            open.push(nvtx::event(name).process_range());
            let _range = nvtx::event(name).payload(1u64).range();
            let kernel = CString::new(name.replace('\0', "")).unwrap();
            fake.launch(Work::kernel(Box::leak(kernel.into_boxed_c_str())));
            nvtx::mark(name);
        }
    })
}

/// Names longer than any column, in every table: ranges of libraries within each other, kernels with template arguments,
/// declared work, a sampled metric and processes.
fn long_names() -> Profile {
    static CCCL: nvtx::Domain = nvtx::Domain::new("CCCL");
    static LIBRARY: nvtx::Domain = nvtx::Domain::new("a library with a long name of its own");
    const KERNEL: &std::ffi::CStr = c"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)";
    let mut merger = Merger::new();
    for rank in 0..2 {
        let profile = record(|fake| {
            let _warm_up = nvtx::range("warm-up");
            for name in ["UniqueByKey", "If", "ExclusiveSum"] {
                let _range = CCCL.range(&format!("cub::DeviceSelect::{name}"));
                fake.launch(Work::kernel(KERNEL).taking_ns(20_000));
            }
            let _library = LIBRARY.range("a range whose name is as long as that of its library");
            fake.launch(Work::kernel(c"\u{4e2d}\u{6587}\u{5185}\u{6838}\u{51fd}\u{6570}\u{540d}\u{79f0}\u{5f88}\u{957f}\u{5f88}\u{957f}"));
            let deep: Vec<_> = (0..12)
                .map(|depth| CCCL.range(&format!("thrust::level_{depth}_of_many_levels")))
                .collect();
            fake.launch(Work::host_to_device(4096));
            deep.into_iter().rev().for_each(drop);
            let work = nvtx::Work::new(1_000_000, 4_000).with_dtype(Dtype::F32);
            let _declared =
                nvtx::event("transformer.encoder.layers.11.feed_forward.first_projection")
                    .work(work)
                    .range();
            fake.launch(Work::kernel(c"gemm"));
            fake.launch(Work::synchronize());
        });
        let recording = profile.recording().unwrap().clone();
        let label =
            "Means of warps that were eligible in a cycle of a subpartition (hardware counters)";
        let metric = Metric::new("smsp__warps_eligible", label, Unit::Percent, Kind::Mean);
        let mut series =
            Series::new(0, Source::Counters, Duration::from_nanos(1_000), vec![metric]);
        let start = recording.windows_ns()[0].0;
        series.push(start, start + 1_000, &[50.0]).unwrap();
        let program = "a_program_with_a_long_name_that_is_launched_by_a_launcher_of_programs.py";
        let recording = recording.with_series(series);
        merger.add_process(recording, Some(program.to_owned()), Some(rank)).unwrap();
    }
    merger.finish().unwrap()
}

fn lossy() -> Profile {
    record(|fake| {
        let _range = nvtx::range("r");
        fake.launch(Work::kernel(c"k"));
        fake.call_only("cuMemAlloc_v2", 2);
        fake.drop_records(7);
    })
}

fn timeless() -> Profile {
    record(|fake| {
        fake.launch(Work::kernel(c"seen"));
        fake.lose_timestamps();
        fake.launch(Work::kernel(c"unseen"));
    })
}

fn empty() -> Profile {
    record(|_| {})
}

/// More rows than a window has room for.
fn many_threads() -> Profile {
    record(|fake| {
        for _ in 0..12 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _range = nvtx::range("work");
                    fake.launch(Work::kernel(c"k"));
                });
            });
        }
    })
}

/// What was sampled, and beside it NVML's energy: 4.5 mJ in each of ten samples of 10 us.
fn with_energy() -> Profile {
    let recording = sampled::recorded();
    let profile = Profile::from_recording(recording.clone());
    let power = profile.series().find(|series| series.source() == Source::Nvml).unwrap();
    let metric = Metric::new("nvml__energy", "energy", Unit::Joules, Kind::Total);
    let mut energy = Series::new(0, Source::Nvml, Duration::from_nanos(10_000), vec![metric]);
    for i in 0..10 {
        let at = power.start_ns()[0] + i * 10_000;
        energy.push(at, at + 10_000, &[0.0045]).unwrap();
    }
    Profile::from_recording(recording.with_series(energy))
}

/// 40 ranges in a crowd, a few of them above their roof.
fn crowded_roofline() -> String {
    let profile = record(|fake| {
        for i in 0..40_u64 {
            let flops = 1_000_000 * (10 + i % 7);
            let bytes = 1_000_000 * (1 + i % 4);
            let dtype = if i % 3 == 0 { Dtype::F16 } else { Dtype::F32 };
            let work = nvtx::Work::new(flops, bytes).with_dtype(dtype);
            let name = format!("layer {i} of the model");
            let _range = nvtx::event(name.as_str()).work(work).range();
            fake.launch(Work::kernel(c"k").taking_ns(if i < 3 { 200 } else { 2_000 + 40 * i }));
        }
    });
    let peaks = Peaks::new("a GPU").with_bandwidth(3e12);
    let peaks = peaks.with_flops(Dtype::F32, Pipe::Vector, 60e12);
    profile.roofline(&peaks.with_flops(Dtype::F16, Pipe::Tensor, 60.5e12)).to_html()
}

fn comparison() -> String {
    let [before, after] = [BEFORE, AFTER].map(|bytes| Profile::from_bytes(bytes).unwrap());
    profiler_analysis::compare(&before, &after).to_html()
}

/// Two ranks of PyTorch with their collectives.
fn ranks() -> Profile {
    let mut merger = Merger::new();
    for (rank, bytes) in (0..).zip(RANKS) {
        let recording = Recording::from_bytes(bytes).unwrap();
        merger.add_process(recording, Some("train.py".to_owned()), Some(rank)).unwrap();
    }
    merger.finish().unwrap()
}

/// Two ranks on one GPU, with the same ids of threads, streams and calls; the second was killed.
fn processes() -> Profile {
    let mut merger = Merger::new();
    for rank in 0..2 {
        let profile = record(|fake| {
            let _request = nvtx::process_range("request");
            let _step = nvtx::range("step");
            nvtx::mark("begun");
            fake.launch(Work::kernel(c"gemm").taking_ns(50_000));
            fake.launch(Work::kernel(c"relu").taking_ns(50_000).on_stream(9));
            fake.launch(Work::synchronize());
        });
        let bytes = profile.recording().unwrap().to_bytes();
        let bytes = &bytes[..bytes.len() - 8 * rank as usize];
        let recording = Recording::from_bytes(bytes).unwrap();
        merger.add_process(recording, Some("train.py".to_owned()), Some(rank)).unwrap();
    }
    merger.finish().unwrap()
}

/// 100 s of 8 metrics, 100 us a sample, beside a run that is as long as that.
fn long_sampled() -> Profile {
    const SAMPLES: u64 = 1_000_000;
    let fake = Fake::builder().clock_offset(0).build();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    fake.launch(Work::kernel(c"long").taking_ns(SAMPLES * 100_000));
    let recording = profiler.stop_recording().unwrap();
    let metric = |i: usize| {
        Metric::new(format!("metric_{i}"), format!("Metric {i}"), Unit::Percent, Kind::Mean)
    };
    let mut series = Series::new(
        0,
        Source::Counters,
        Duration::from_nanos(100_000),
        (0..8).map(metric).collect(),
    );
    let start = recording.windows_ns()[0].0;
    for i in 0..SAMPLES {
        let at = start + i * 100_000;
        let values: [f64; 8] =
            std::array::from_fn(|metric| ((i * 37 + i / 1000) % 101) as f64 / (metric + 1) as f64);
        series.push(at, at + 100_000, &values).unwrap();
    }
    Profile::from_recording(recording.with_series(series))
}

/// 330,000 kernels, each with its launch and its range: 3 threads, 3 streams, ranges 3 deep.
fn large() -> Profile {
    const KERNELS: [&std::ffi::CStr; 5] = [
        c"gemm_128x128",
        c"relu",
        c"softmax",
        c"layer_norm",
        c"_ZN7cutlass6KernelIfEEvNT_6ParamsE",
    ];
    let kernels = |fake: &Fake, layer: usize, step: usize| {
        for i in 0..6 {
            let _range = nvtx::range(if i % 2 == 0 { "attention" } else { "mlp" });
            let took = 200 + (i * 331 + step * 17) as u64 % 2000;
            let stream = if i == 5 { 13 } else { 7 };
            let kernel = Work::kernel(KERNELS[(layer + i) % 5]);
            fake.launch(kernel.taking_ns(took).on_stream(stream));
        }
    };
    let steps = |fake: &Fake, count: usize| {
        for step in 0..count {
            let _step = nvtx::range("step");
            {
                let _load = nvtx::range("load");
                let copy = Work::host_to_device(4096 * (1 + step as u64 % 7));
                fake.launch(copy.taking_ns(800).on_stream(14));
                fake.launch(Work::memset(64).taking_ns(100));
            }
            for layer in 0..8 {
                let _layer = nvtx::range("layer");
                kernels(fake, layer, step);
            }
            fake.launch(Work::device_to_host(4).taking_ns(50).on_stream(14));
            fake.launch(Work::synchronize());
        }
    };
    record(|fake| {
        thread::scope(|scope| {
            scope.spawn(|| steps(fake, 500));
            scope.spawn(|| steps(fake, 500));
            steps(fake, 5_875);
        });
    })
}
