//! Time and peak memory of `gpuprof` by the size of its input. Each input has four sizes, each
//! twice the previous one.
//!
//! ```text
//! cargo build --release -p gpuprof
//! cargo bench -p gpu-profiler-benches --bench sizes [-- --program FILE] [--only INPUT]
//! ```
//!
//! Fails if time, memory or output grows faster than n log n allows, or if memory exceeds a stated
//! limit. A measurement with excessive growth is repeated, and its minimum values count. Needs 4
//! GiB of memory and 3 GiB in the temporary folder.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use gpu_profiler_benches::process_bench::{self, Arguments, Result};
use nvtx::range;
use profiler_core::{Profiler, Recording};
use serde_json::{Value, json};
use test_support::frames;

/// The maximum growth when the size doubles. n log n grows by a factor of 2.2 from n = 1,000 and
/// 2.1 from n = 100,000; n * n by 4. The rest is a margin for caches and noise.
const MOST_GROWTH: f64 = 3.0;
/// Times, peaks and outputs below these values are not compared.
const LEAST_SECONDS: f64 = 0.5;
const LEAST_MB: f64 = 50.0;

/// An input by size, and the commands that read it.
struct Input {
    name: &'static str,
    /// The unit of the size.
    unit: &'static str,
    /// The largest size. The others are a half, a fourth and an eighth of it.
    largest: usize,
    make: fn(usize, &Path) -> Result<()>,
    commands: &'static [Task],
}

struct Task {
    arguments: &'static [&'static str],
    /// The maximum memory for the largest size, in MB (10^6 bytes).
    most_mb: Option<f64>,
    /// The expected exit status.
    status: i32,
}

const fn task(arguments: &'static [&'static str]) -> Task {
    Task { arguments, most_mb: None, status: 0 }
}

const INPUTS: &[Input] = &[
    Input {
        name: "kernels",
        unit: "kernels",
        largest: 3_000_000,
        make: kernels,
        commands: &[
            task(&["report"]),
            Task { most_mb: Some(1_700.0), ..task(&["diagnose"]) },
            task(&["critical-path"]),
        ],
    },
    Input {
        name: "processes",
        unit: "processes with equal times",
        largest: 1_280,
        make: processes,
        commands: &[task(&["diagnose"]), task(&["critical-path"])],
    },
    Input {
        name: "windows",
        unit: "frames with overlapping windows",
        largest: 80_000,
        make: windows,
        commands: &[Task { status: 1, ..task(&["report"]) }],
    },
    Input {
        name: "names",
        unit: "names of kernels",
        largest: 200_000,
        make: names,
        commands: &[task(&["html"])],
    },
    Input {
        name: "nested",
        unit: "nested ranges",
        largest: 50_000,
        make: nested,
        commands: &[task(&["stats", "all"]), task(&["stats", "all", "--format", "csv"])],
    },
];

fn record(program: impl FnOnce(&Fake)) -> Result<Recording> {
    let fake = Fake::builder().clock_offset(0).build();
    let profiler = Profiler::builder().library(fake.library()?).build()?;
    profiler.start()?;
    program(&fake);
    Ok(profiler.stop_recording()?)
}

/// Records steps of 3,000 launches in 30 layers with two passes each, on four streams, with a wait
/// at the end of each step.
fn kernels(count: usize, file: &Path) -> Result<()> {
    const NAMES: [&CStr; 8] = [
        c"gemm_nt",
        c"bias_relu",
        c"gemm_nn",
        c"bias_add",
        c"mse_grad",
        c"gemm_tn",
        c"col_sum",
        c"sgd_update",
    ];
    let layers: Vec<String> = (0..30).map(|layer| format!("layer {layer}")).collect();
    let recording = record(|fake| {
        for _ in 0..count / 3_000 {
            let _step = range("step");
            for layer in &layers {
                let _layer = range(layer);
                for pass in ["forward", "backward"] {
                    let _pass = range(pass);
                    for launch in 0..50 {
                        let kernel = Work::kernel(NAMES[launch % NAMES.len()]);
                        let stream = 7 + (launch % 4) as u32;
                        fake.launch(kernel.on_stream(stream).taking_ns(400));
                    }
                }
            }
            fake.launch(Work::synchronize());
        }
    })?;
    Ok(recording.save(file)?)
}

/// Writes a folder of recordings of this many processes, each with the same 8 steps at the same
/// times.
fn processes(count: usize, folder: &Path) -> Result<()> {
    let recording = record(|fake| {
        for _ in 0..8 {
            let _step = range("step");
            for _ in 0..8 {
                fake.launch(Work::kernel(c"kernel").taking_ns(2_000));
            }
            fake.launch(Work::synchronize());
        }
    })?;
    fs::create_dir(folder)?;
    let recorded = frames::frames(&recording.to_bytes());
    for process in 1..=count {
        let mut recorded = recorded.clone();
        change(&mut recorded, b"INFO", |info| info["process_id"] = json!(process))?;
        fs::write(folder.join(format!("{process:05}.gpuprof")), frames::file(&recorded))?;
    }
    Ok(())
}

/// Writes a damaged recording in which the frame of windows is repeated this many times.
fn windows(count: usize, file: &Path) -> Result<()> {
    let mut recorded = frames::frames(&record(|_| ())?.to_bytes());
    let is_state = |frame: &frames::Frame| frame.0 == *b"STAT";
    let at = recorded.iter().position(is_state).ok_or("it has no frame of windows")?;
    let mut state = vec![recorded[at].clone()];
    let all = (0..count as u64).map(|number| {
        change(&mut state, b"STAT", |state| {
            state["windows_ns"] = json!([[1_000 + number, 1_000_000]]);
        })?;
        Ok(state[0].clone())
    });
    let all = all.collect::<Result<Vec<_>>>()?;
    recorded.splice(at..=at, all);
    Ok(fs::write(file, frames::file(&recorded))?)
}

/// Changes the JSON content of the first frame of a kind.
fn change(
    frames: &mut [frames::Frame],
    kind: &[u8; 4],
    change: impl FnOnce(&mut Value),
) -> Result<()> {
    let frame = frames.iter_mut().find(|frame| frame.0 == *kind).ok_or("a frame is missing")?;
    let mut value = serde_json::from_slice(&frame.1)?;
    change(&mut value);
    frame.1 = serde_json::to_vec(&value)?;
    Ok(())
}

/// Records one kernel for each name.
fn names(count: usize, file: &Path) -> Result<()> {
    let names = (0..count).map(|name| CString::new(format!("kernel_{name}")));
    let names = names.collect::<std::result::Result<Vec<_>, _>>()?;
    // The fake's records point to names, as CUPTI's records do.
    let names: Vec<&'static CStr> =
        names.into_iter().map(|name| &*Box::leak(name.into_boxed_c_str())).collect();
    let recording = record(|fake| {
        for name in names {
            fake.launch(Work::kernel(name));
        }
    })?;
    Ok(recording.save(file)?)
}

/// Records nested ranges with a kernel in each.
fn nested(count: usize, file: &Path) -> Result<()> {
    let recording = record(|fake| {
        let mut open = Vec::with_capacity(count);
        for depth in 0..count {
            open.push(range(&format!("range {depth}")));
            fake.launch(Work::kernel(c"kernel"));
        }
        while open.pop().is_some() {}
    })?;
    Ok(recording.save(file)?)
}

/// Seconds, the peak of resident memory in MB, and the size of the output in MB.
#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    peak_mb: f64,
    output_mb: f64,
}

impl Measured {
    fn least(self, other: Self) -> Self {
        Self {
            seconds: self.seconds.min(other.seconds),
            peak_mb: self.peak_mb.min(other.peak_mb),
            ..self
        }
    }

    /// Returns the quantities that grew too much compared with half the size.
    fn growth_since(&self, half: &Self) -> Option<String> {
        let grown = [
            ("time", self.seconds, half.seconds, LEAST_SECONDS),
            ("peak memory", self.peak_mb, half.peak_mb, LEAST_MB),
            ("the output", self.output_mb, half.output_mb, LEAST_MB),
        ];
        let too_much = grown.into_iter().find(|(_, now, before, least)| {
            *now > *least && *now / before.max(least / MOST_GROWTH) > MOST_GROWTH
        });
        too_much.map(|(what, now, before, _)| {
            format!("{what} grew by {:.1} where the input doubled", now / before)
        })
    }
}

/// Reads the peak of resident memory so far, in kB; `None` once the process has ended.
fn peak_kb(process: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn measure(program: &Path, task: &Task, file: &Path) -> Result<Measured> {
    let output = file.with_extension("out");
    let start = Instant::now();
    let mut process = Command::new(program)
        .args(task.arguments)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(File::create(&output)?)
        .stderr(Stdio::null())
        .spawn()?;
    let mut peak = 0;
    let status = loop {
        if let Some(status) = process.try_wait()? {
            break status;
        }
        peak = peak_kb(&process).unwrap_or(0).max(peak);
        thread::sleep(Duration::from_millis(2));
    };
    let seconds = start.elapsed().as_secs_f64();
    if status.code() != Some(task.status) {
        return Err(format!("{} {:?}: {status}", program.display(), task.arguments).into());
    }
    let output_mb = fs::metadata(&output)?.len() as f64 / 1e6;
    fs::remove_file(&output)?;
    Ok(Measured { seconds, peak_mb: peak as f64 * 1_024.0 / 1e6, output_mb })
}

struct Options {
    program: Option<PathBuf>,
    only: Option<String>,
}

fn read(arguments: &mut Arguments) -> Result<Options> {
    Ok(Options { program: arguments.take("--program")?, only: arguments.take("--only")? })
}

/// A temporary folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Measures the commands of an input at four sizes, and returns the quantities that grew too much.
fn compare(input: &Input, program: &Path, folder: &Path) -> Result<Vec<String>> {
    println!("\n{}, by {}:", input.name, input.unit);
    let mut failures = Vec::new();
    let mut before: Vec<Measured> = Vec::new();
    let half = folder.join("half.gpuprof");
    for size in [8, 4, 2, 1].map(|part| input.largest / part) {
        let file = folder.join("input.gpuprof");
        (input.make)(size, &file)?;
        let mut now = Vec::new();
        for (at, task) in input.commands.iter().enumerate() {
            let mut measured = measure(program, task, &file)?;
            let mut grown = None;
            if let Some(before) = before.get_mut(at) {
                grown = measured.growth_since(before);
                if grown.is_some() {
                    *before = before.least(measure(program, task, &half)?);
                    measured = measured.least(measure(program, task, &file)?);
                    grown = measured.growth_since(before);
                }
            }
            let most = task.most_mb.filter(|_| size == input.largest);
            let above = most.filter(|most| measured.peak_mb > *most);
            let above = above.map(|most| format!("peak memory is above {most} MB"));
            let Measured { seconds, peak_mb, output_mb } = measured;
            let name = task.arguments.join(" ");
            println!(
                "{name:24} {size:>9} {seconds:>8.2} s {peak_mb:>8.0} MB {output_mb:>8.1} MB written"
            );
            failures.extend(
                grown
                    .into_iter()
                    .chain(above)
                    .map(|why| format!("{name}, {size} {}: {why}", input.unit)),
            );
            now.push(measured);
        }
        if half.exists() {
            remove(&half)?;
        }
        fs::rename(&file, &half)?;
        before = now;
    }
    remove(&half)?;
    Ok(failures)
}

fn compare_all(options: &Options) -> Result<ExitCode> {
    let own = std::env::current_exe()?;
    let built = own.ancestors().nth(2).map(|folder| folder.join("gpuprof"));
    let program = options.program.clone().or(built).ok_or("it is in no folder")?;
    if !program.exists() {
        return Err(format!(
            "there is no {}: build it first, or name one with --program",
            program.display()
        )
        .into());
    }
    let folder = Folder(std::env::temp_dir().join(format!("sizes-{}", std::process::id())));
    fs::create_dir(&folder.0)?;
    let mut failures = Vec::new();
    for input in INPUTS {
        if options.only.as_deref().is_none_or(|only| only == input.name) {
            failures.extend(compare(input, &program, &folder.0)?);
        }
    }
    failures.iter().for_each(|failure| println!("FAILED: {failure}"));
    Ok(ExitCode::from(u8::from(!failures.is_empty())))
}

fn main() -> ExitCode {
    let measure = |_: &str, _: &Options| -> Result<()> { Err("it has no modes".into()) };
    process_bench::run("sizes", || None, read, measure, compare_all)
}
