//! NVIDIA's own libcupti as a referee: does it step over the records as we lay them out, and refuse where we expect it?
//!
//! `CUPTI_REFEREES` names libcupti files, separated by colons. No GPU is needed. Each check runs in a process of its
//! own, so that a library that crashes fails its trial and no other.
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cupti::counters::{CounterData, HostLibrary, Method, MetricKind, Set, nvprof, utilization};
use cupti::pc_sampling::SourceLines;
use cupti::sys::abi::{CallbackFunc, CuptiResult, SubscriberHandle};
use cupti::sys::field;
use cupti::sys::generated::FAMILIES;
use cupti::sys::params::GetCubinCrc;
use cupti::{ActivityKind, Collector, Config, PcSampling, Version};
use fake_cupti::Fake;
use libtest_mimic::{Arguments, Failed, Trial};

/// Tells this program, started by itself, which check to run and on which library.
const CHECK: &str = "CUPTI_REFEREE_CHECK";
const FILE: &str = "CUPTI_REFEREE_FILE";

/// How many images are mangled and evaluated, to see what CUPTI does with them; none by default.
const IMAGES: &str = "CUPTI_MANGLED_IMAGES";
/// Tells this program to mangle and evaluate them, from a seed up to another.
const MANGLE: &str = "mangle";
const SEEDS_OF: &str = "CUPTI_MANGLED_SEEDS";

type Check = fn(&Path) -> Result<(), Failed>;

/// Each check, and whether it can only be made where there is no driver.
const CHECKS: [(&str, Check, bool); 11] = [
    ("its_version_matches_its_release", version, false),
    ("its_iterator_steps_by_our_strides", records, false),
    ("its_passes_are_those_that_were_counted", passes, false),
    ("metrics_are_listed_with_their_units", metrics, false),
    ("our_sets_are_there_and_their_passes_known", sets, false),
    ("counts_of_a_card_come_to_the_same_here", replay, false),
    ("damaged_counts_never_reach_the_library", damage, false),
    ("instructions_have_their_source_lines", source_lines, false),
    ("missing_companion_libraries_are_an_error", alone, true),
    ("subscribing_without_a_driver_is_an_error", subscription, true),
    ("opening_without_a_driver_is_unavailable", unavailable, true),
];

fn main() -> ExitCode {
    if let (Ok(check), Some(file)) = (env::var(CHECK), env::var_os(FILE)) {
        return run_check(&check, Path::new(&file));
    }
    let files: Vec<PathBuf> = env::var_os("CUPTI_REFEREES")
        .iter()
        .flat_map(env::split_paths)
        .filter(|file| !file.as_os_str().is_empty())
        .collect();
    let mut trials = Vec::new();
    if files.is_empty() {
        eprintln!("the checks on real libraries are ignored: CUPTI_REFEREES names no libcupti");
        for (name, ..) in CHECKS {
            trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
        }
    }
    let driver = has_driver();
    for file in &files {
        let mute = mute(file);
        if let Some(why) = &mute {
            eprintln!("the checks on {} are ignored: {why}", file.display());
        } else if driver {
            eprintln!(
                "the checks without a driver on {} are ignored: there is one",
                file.display()
            );
        }
        for (name, _, driverless) in CHECKS {
            let ignored = mute.is_some() || (driver && driverless);
            let asked = file.clone();
            let trial = Trial::test(format!("{}: {name}", title(file)), move || {
                in_own_process(name, &asked)
            });
            trials.push(trial.with_ignored_flag(ignored));
        }
    }
    if let Ok(images) = env::var(IMAGES) {
        let Ok(images) = images.parse() else {
            eprintln!("{IMAGES} is to be a number of images, not {images:?}");
            return ExitCode::FAILURE;
        };
        for file in files {
            let name = format!("{}: what_it_does_with_mangled_images", title(&file));
            trials.push(Trial::test(name, move || mangled_images(&file, images)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run_check(check: &str, file: &Path) -> ExitCode {
    let found = CHECKS.iter().find(|(name, ..)| *name == check);
    let outcome = match found {
        None if check == MANGLE => mangle(file),
        Some((_, run, _)) => run(file),
        None => Err(format!("no check is called {check}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("failed"));
            ExitCode::FAILURE
        }
    }
}

fn in_own_process(check: &str, file: &Path) -> Result<(), Failed> {
    let output = Command::new(env::current_exe()?).env(CHECK, check).env(FILE, file).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}\n{said}", file.display(), output.status).into())
}

/// Why a library says nothing at all on a machine without a driver: those from 13.2 on do not even tell their version.
/// Older ones have no such excuse.
fn mute(file: &Path) -> Option<String> {
    let newer = wheel_release(file).is_none_or(|release| release >= (13, 2));
    if has_driver() || !newer || !file.ends_with("libcupti.so.13") {
        return None;
    }
    let error = in_own_process(CHECKS[0].0, file).err()?;
    let message = error.message()?;
    // 13.2 calls itself until the stack is full.
    if message.contains("(SIG") {
        Some("without a driver it crashes, as CUPTI 13.2 does".into())
    } else if message.contains("cuptiGetVersion: 999") {
        Some("without a driver it says nothing (999), as CUPTI from 13.3 on".into())
    } else {
        None
    }
}

fn has_driver() -> bool {
    // SAFETY: the driver's initialisers are made to run in any process.
    unsafe { libloading::Library::new("libcuda.so.1") }.is_ok()
}

/// What to call a library: the release of its package, or else its path.
fn title(file: &Path) -> String {
    wheel_version(file).unwrap_or_else(|| file.display().to_string())
}

/// The version that a Python package names in the folder beside its files.
fn wheel_version(file: &Path) -> Option<String> {
    let root = file.ancestors().find(|folder| folder.ends_with("nvidia"))?;
    fs::read_dir(root.parent()?).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (package, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
        package.starts_with("nvidia_cuda_cupti").then(|| version.to_owned())
    })
}

fn wheel_release(file: &Path) -> Option<(u32, u32)> {
    let version = wheel_version(file)?;
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn open(file: &Path) -> Result<libloading::Library, Failed> {
    // SAFETY: the file is a libcupti, whose initialisers are made to run in any process.
    let library = unsafe { libloading::Library::new(file) };
    library.map_err(|error| match error.source() {
        Some(reason) => reason.to_string().into(),
        None => error.into(),
    })
}

fn version_of(library: &libloading::Library) -> Result<Version, Failed> {
    type GetVersion = unsafe extern "C" fn(*mut u32) -> CuptiResult;
    // SAFETY: this is CUPTI's declaration of the function.
    let get_version = unsafe { library.get::<GetVersion>(b"cuptiGetVersion") }?;
    let mut version = 0;
    // SAFETY: `version` is a live u32, all that cuptiGetVersion writes.
    let code = unsafe { get_version(&mut version) };
    ensure(code == CuptiResult::SUCCESS, || format!("cuptiGetVersion: {}", code.0))?;
    Ok(Version(version))
}

/// The version is understood, and is the release that the library's package names.
fn version(file: &Path) -> Result<(), Failed> {
    let version = version_of(&open(file)?)?;
    ensure(version.0 >= 18, || format!("{version} is before 12.0"))?;
    let expected = match wheel_release(file) {
        // 12.0 and 12.1 have one number, as have 12.6 and 12.7.
        Some((12, 1)) => (12, 0),
        Some((12, 7)) => (12, 6),
        Some(release) => release,
        None => return Ok(()),
    };
    ensure(version.cuda_release() == expected, || {
        format!("reads as {version}, its package is {expected:?}")
    })
}

/// The library's iterator lands on every record that the fake wrote for this version, and nowhere else.
fn records(file: &Path) -> Result<(), Failed> {
    type GetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiResult;
    let library = open(file)?;
    let version = version_of(&library)?;
    // SAFETY: this is CUPTI's declaration of the function.
    let next = unsafe { library.get::<GetNextRecord>(b"cuptiActivityGetNextRecord") }?;
    let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
    for bytes in buffers(version)? {
        let expected = offsets(&bytes, version, &mut seen)?;
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(whole);
        }
        let base = words.as_mut_ptr().cast::<u8>();
        let mut record = std::ptr::null_mut();
        let mut landed = Vec::new();
        let code = loop {
            // SAFETY: `base` has `bytes.len()` live bytes, and `record` is null or what the last call gave.
            let code = unsafe { next(base, bytes.len(), &mut record) };
            if code != CuptiResult::SUCCESS || landed.len() > expected.len() {
                break code;
            }
            landed.push((record as usize).wrapping_sub(base as usize));
        };
        ensure(landed == expected, || {
            format!("{version} steps to {landed:?}, we to {expected:?}")
        })?;
        ensure(code == CuptiResult::MAX_LIMIT_REACHED, || format!("{version} ends with {code}"))?;
    }
    let kinds = kinds(version);
    ensure(kinds.len() == kinds_of_release(version), || {
        format!("{version} has {} kinds with a layout", kinds.len())
    })?;
    ensure(kinds.iter().all(|kind| seen.contains_key(kind)), || {
        format!("not every kind was written: {seen:?}")
    })
}

/// Every kind that a library of this version has and that has a layout here.
fn kinds(version: Version) -> Vec<u32> {
    let kinds = FAMILIES.iter().filter(|(_, strides)| field::stride(strides, version).is_some());
    kinds.flat_map(|(kinds, _)| *kinds).copied().collect()
}

/// How many there are: 28 from the first on, and those that newer releases added.
fn kinds_of_release(version: Version) -> usize {
    let added = [((12, 8), 2), ((12, 9), 1), ((13, 1), 3), ((13, 2), 1)];
    let release = version.cuda_release();
    28 + added.iter().filter(|(since, _)| *since <= release).map(|(_, more)| more).sum::<usize>()
}

/// What a collection on a fake of this version gives: every kind in a row, and every kind after every other.
fn buffers(version: Version) -> Result<Vec<Vec<u8>>, Failed> {
    let fake = Fake::builder().version(version.0).build();
    let collector = Collector::start(&fake.library()?, &Config::new())?;
    let kinds = kinds(version);
    for &first in &kinds {
        for &second in &kinds {
            fake.raw_record(ActivityKind(first), stride(first, version)?);
            fake.raw_record(ActivityKind(second), stride(second, version)?);
        }
    }
    let collected = collector.stop()?;
    ensure(collected.records.iter().count() == 2 * kinds.len() * kinds.len(), || {
        format!("the collection lost records: {:?}", collected.losses)
    })?;
    Ok(collected.records.buffers().map(<[u8]>::to_vec).collect())
}

/// Where each record of a buffer begins, by our strides; counts the kinds.
fn offsets(
    bytes: &[u8],
    version: Version,
    seen: &mut BTreeMap<u32, usize>,
) -> Result<Vec<usize>, Failed> {
    let mut at = 0;
    let mut offsets = Vec::new();
    while let Some(kind) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let kind = u32::from_ne_bytes(*kind);
        offsets.push(at);
        *seen.entry(kind).or_default() += 1;
        at += stride(kind, version)?;
    }
    ensure(at == bytes.len(), || format!("the fake wrote {} bytes, not {at}", bytes.len()))?;
    Ok(offsets)
}

fn stride(kind: u32, version: Version) -> Result<usize, Failed> {
    let families = FAMILIES.iter().filter(|(kinds, _)| kinds.contains(&kind));
    let stride = families.filter_map(|(_, strides)| field::stride(strides, version)).next();
    stride.ok_or_else(|| format!("{version} has no {}", ActivityKind(kind)).into())
}

fn subscription(file: &Path) -> Result<(), Failed> {
    type Subscribe =
        unsafe extern "C" fn(*mut SubscriberHandle, CallbackFunc, *mut c_void) -> CuptiResult;
    unsafe extern "C" fn callback(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

    let library = open(file)?;
    // SAFETY: this is CUPTI's declaration of the function.
    let subscribe = unsafe { library.get::<Subscribe>(b"cuptiSubscribe") }?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: `handle` is a live place, and the callback lives as long as the process.
    let code = unsafe { subscribe(&mut handle, callback, std::ptr::null_mut()) };
    ensure([CuptiResult::NOT_INITIALIZED, CuptiResult(999)].contains(&code), || {
        format!("cuptiSubscribe gives {code}")
    })
}

fn unavailable(file: &Path) -> Result<(), Failed> {
    // SAFETY: NVIDIA's library.
    match unsafe { cupti::Library::open_path(file) } {
        Ok(library) => Err(format!("opened {}", library.version()).into()),
        Err(error) => ensure(error.is_unavailable(), || error.to_string()),
    }
}

/// A cubin for instruction samples; `chain.cu` is its source.
const CUBIN: &[u8] = include_bytes!("facts/chain.cubin");

/// The library has all functions of instruction samples, and finds the lines and the CRC of a cubin.
fn source_lines(file: &Path) -> Result<(), Failed> {
    type GetCrc = unsafe extern "C" fn(*mut GetCubinCrc) -> CuptiResult;
    let fake = Fake::new();
    let config = Config::new().pc_sampling(PcSampling::continuous().keep_cubins(true));
    let collector = Collector::start(&fake.library()?, &config)?;
    fake.load_module(1, CUBIN);
    let samples = collector.stop()?.pc_sampling.unwrap_or_default();
    let [cubin] = &samples.cubins[..] else {
        return Err("its line table was not seen".into());
    };
    // SAFETY: NVIDIA's library.
    let lines = unsafe { SourceLines::open_path(file) }?;
    for (offset, line) in [(0, 2), (0x40, 4), (0x4c0, 6)] {
        let found = lines.find(cubin, "chain", offset)?.map(|line| line.to_string());
        let expected = format!("/src/chain.cu:{line}");
        ensure(found.as_deref() == Some(&*expected), || format!("{offset:#x} is in {found:?}"))?;
    }
    ensure(lines.find(cubin, "chain", 0x4000)?.is_none(), || "a line after the end".into())?;
    let unknown = lines.find(cubin, "other", 0).map(|_| ());
    ensure(unknown.is_err(), || "an unknown function has a line".into())?;

    let library = open(file)?;
    // SAFETY: this is CUPTI's declaration of the function.
    let get_crc = unsafe { library.get::<GetCrc>(b"cuptiGetCubinCrc") }?;
    let (size, cubin) = (size_of::<GetCubinCrc>(), CUBIN.as_ptr().cast());
    let mut params = GetCubinCrc { size, cubin_size: CUBIN.len(), cubin, cubin_crc: 0 };
    // SAFETY: the block and the cubin have the sizes that it states.
    let code = unsafe { get_crc(&mut params) };
    ensure(code == CuptiResult::SUCCESS, || format!("cuptiGetCubinCrc: {}", code.0))?;
    ensure(params.cubin_crc == 0xb3f7_7993, || format!("CRC {:#x}", params.cubin_crc))
}

/// The chip of the H100 and the H200.
const CHIP: &str = "GH100";

/// From which release on a library has the Profiler Host interface.
const METRICS_SINCE: (u32, u32) = (12, 6);

/// `None` for a library that is too old, once it has said so.
fn host_library(file: &Path) -> Result<Option<HostLibrary>, Failed> {
    // SAFETY: NVIDIA's library.
    match unsafe { HostLibrary::open_path(file) } {
        Ok(library) => Ok(Some(library)),
        Err(error) => {
            ensure(error.is_unsupported(), || error.to_string())?;
            let release = version_of(&open(file)?)?.cuda_release();
            ensure(release < METRICS_SINCE, || format!("{release:?}: {error}"))?;
            Ok(None)
        }
    }
}

/// Plans for GH100 need as many passes as NVIDIA's interface said when it was asked without this crate.
fn passes(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    let host = library.host(CHIP)?;
    let sampling = host.with_method(Method::Sampling)?;
    let mut lines = include_str!("facts/gh100-passes.txt").lines().skip(1);
    let versions = lines.next().and_then(|line| line.split_once("CUPTI ")).unwrap_or_default().1;
    // 12.6 was not asked then; what is planned must be plannable all the same.
    let column =
        versions.split(' ').position(|version| wheel_version(file).as_deref() == Some(version));
    let (mut planned, mut refused) = (0, 0);
    for line in lines {
        let parts: Vec<_> = line.split(" | ").collect();
        let [method, passes, metrics] = parts[..] else { return Err(line.into()) };
        let host = if method == "ranges" { &host } else { &sampling };
        let plan = host.plan(metrics.split(' '));
        let expected = column.and_then(|column| passes.split(' ').nth(column));
        match (expected.map(|passes| passes.strip_prefix('!').ok_or(passes)), plan) {
            (Some(Err(passes)), Ok(plan)) => {
                planned += 1;
                ensure(plan.passes().to_string() == passes, || {
                    format!("{method}: {passes} passes, but {plan}: {metrics}")
                })?;
            }
            (Some(Ok(_)), Err(error)) => {
                refused += 1;
                ensure(error.is_unsupported(), || error.to_string())?;
            }
            (Some(Ok(code)), Ok(plan)) => {
                return Err(format!("refused with {code}, now {plan}: {metrics}").into());
            }
            (Some(Err(_)), Err(error)) => return Err(format!("{metrics}: {error}").into()),
            (None, Ok(plan)) => ensure(plan.passes() > 0, || plan.to_string())?,
            (None, Err(error)) => ensure(error.is_unsupported(), || error.to_string())?,
        }
    }
    let known = column.is_some();
    ensure(!known || (planned >= 70 && refused > 0), || {
        format!("{planned} planned, {refused} refused")
    })
}

/// Metrics have descriptions, and metrics that a chip lacks are named.
fn metrics(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    let chips = library.chips()?;
    ensure(chips.iter().any(|chip| chip == CHIP), || format!("{chips:?}"))?;
    let host = library.host(CHIP)?;
    let counts: Vec<usize> = MetricKind::ALL
        .into_iter()
        .map(|kind| host.metrics(kind).map(|m| m.len()))
        .collect::<Result<_, _>>()?;
    ensure(counts[0] > 3000 && counts[1] > 100 && counts[2] > 30, || format!("{counts:?}"))?;
    for kind in MetricKind::ALL {
        for name in host.metrics(kind)? {
            let metric = host.describe(&name)?;
            ensure(metric.kind == kind && metric.name == name, || format!("{kind}: {metric:?}"))?;
        }
    }
    let bytes = host.describe("dram__bytes_read.sum")?;
    let kind = MetricKind::Counter;
    ensure(
        (bytes.kind, &*bytes.hardware_unit, &*bytes.dimension) == (kind, "dram", "byte"),
        || format!("{bytes:?}"),
    )?;
    ensure(!bytes.description.is_empty(), || bytes.to_string())?;
    let throughput = host.describe("sm__throughput")?;
    ensure(throughput.kind == MetricKind::Throughput, || format!("{throughput:?}"))?;

    let error =
        host.plan(["dram__bytes_read.sum", "no_such__metric.sum"]).map(|plan| plan.to_string());
    let Err(error) = error else { return Err("planned what there is not".into()) };
    let text = error.to_string();
    ensure(error.is_unsupported() && text.contains("no no_such__metric.sum on GH100"), || text)?;
    let Err(error) = library.host("GX999") else { return Err("there is no such chip".into()) };
    let text = error.to_string();
    ensure(error.is_unsupported() && text.contains("GX999") && text.contains(CHIP), || text)?;
    let Err(error) = host.describe("no\0metric") else { return Err("no such name".into()) };
    ensure(error.to_string().contains("NUL"), || error.to_string())
}

/// GH100 has all metrics of our sets and all that became of nvprof's, in as many passes as are promised; what other chips
/// lack is reported.
fn sets(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    let host = library.host(CHIP)?;
    let expected = [
        (Set::Roofline, 7),
        (Set::Dram, 1),
        (Set::ScalarFlops, 1),
        (Set::Tensor, 7),
        (Set::SpeedOfLight, 9),
        (Set::Occupancy, 1),
        (Set::Memory, 7),
    ];
    ensure(expected.len() == Set::ALL.len(), || "a set has no passes here".into())?;
    let mut planned = Vec::new();
    for (set, _) in expected {
        let (metrics, missing) = host.of_set(set)?;
        let all = metrics.len() + missing.len() == set.metrics().len();
        ensure(all && missing.iter().all(|metric| metric.contains("_fp4_")), || {
            format!("{set} lacks {missing:?}")
        })?;
        planned.push((set, host.plan(metrics)?.passes()));
    }
    ensure(planned == expected, || format!("{planned:?}"))?;

    for row in nvprof::ROWS {
        let text = format!("{row:?}");
        ensure(row.today.is_empty() == row.note.starts_with("none: "), || text.clone())?;
        ensure(nvprof::ROWS.iter().filter(|other| other.name == row.name).count() == 1, || {
            text.clone()
        })?;
        if !row.today.is_empty() {
            host.plan(row.today.iter().copied()).map_err(|error| format!("{text}: {error}"))?;
        }
    }
    for name in SEEDS {
        ensure(nvprof::row(name).is_some(), || format!("nvprof's {name} has no row"))?;
    }

    // How busy GH100 is goes together in one pass: bytes of DRAM from 12.9 on, before that shares of its peak.
    let sampling = host.with_method(Method::Sampling)?;
    let has = |name: &str| sampling.plan([name]).is_ok();
    let names: Vec<&str> = utilization::ROWS
        .iter()
        .filter_map(|row| row.names.iter().copied().find(|name| has(name)))
        .collect();
    let plan = sampling.plan(names.iter().copied())?;
    ensure(names.len() == utilization::ROWS.len() && plan.passes() == 1, || plan.to_string())?;
    ensure(
        names.contains(&"dram__bytes_read.sum") == (library.version().cuda_release() >= (12, 9)),
        || format!("{names:?}"),
    )?;

    // Others have other names for the same, and lack some.
    let fp4 = "sm__ops_path_tensor_src_fp4_dst_fp32.sum";
    for (chip, expected) in [
        ("TU102", vec!["fp4_dst_fp32", "fp8", "bf16_dst_fp32", "tf32_dst_fp32", "fp64"]),
        ("GA100", vec!["fp4_dst_fp32", "fp8"]),
        ("AD102", vec!["fp4_dst_fp32"]),
        ("GB100", vec![]),
        ("GB202", vec![]),
    ] {
        if !library.chips()?.iter().any(|known| known == chip) {
            continue;
        }
        let host = library.host(chip)?;
        let (metrics, missing) = host.of_set(Set::Roofline)?;
        let expected: Vec<_> =
            expected.iter().map(|of| format!("sm__ops_path_tensor_src_{of}.sum")).collect();
        ensure(missing == expected, || format!("{chip}: {missing:?}"))?;
        ensure(host.plan(metrics)?.passes() > 1, || chip.into())?;
        ensure(missing.contains(&fp4) || chip.starts_with("GB"), || {
            format!("{chip}: {missing:?}")
        })?;
    }
    Ok(())
}

/// What was counted on an H200, with CUPTI 13.0.1 or 12.8, and what it came to there; another folder of such in `CUPTI_COUNTED`.
const COUNTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/counters");

/// A measurement that was kept.
struct Kept {
    name: String,
    bytes: Vec<u8>,
    /// What it came to on the card, as JSON.
    truth: String,
}

fn counted() -> Result<Vec<Kept>, Failed> {
    let mut all = Vec::new();
    let folder = env::var_os("CUPTI_COUNTED").unwrap_or_else(|| COUNTED.into());
    for entry in fs::read_dir(&folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "counts") {
            all.push(Kept {
                name: file.display().to_string(),
                bytes: fs::read(&file)?,
                truth: fs::read_to_string(file.with_extension("json"))?,
            });
        }
    }
    ensure(!all.is_empty(), || format!("{} has no measurement", folder.display()))?;
    Ok(all)
}

/// Raw counts of a card come to the numbers that they came to there: as text that tells every bit of them.
fn replay(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    for Kept { name, bytes, truth } in counted()? {
        let data = CounterData::from_bytes(&bytes)?;
        let measured = library.host(data.chip())?.evaluate(&data)?;
        ensure(measured.ranges().count() > 0, || format!("{name} has no range"))?;
        let text = serde_json::to_string_pretty(&measured)?;
        let differ = text.lines().zip(truth.lines()).find(|(here, there)| here != there);
        ensure(text == truth, || match differ {
            Some((here, there)) => format!("{name}: here {here}, on the card {there}"),
            None => format!("{name}: {text}"),
        })?;
    }
    Ok(())
}

/// Counts that were damaged are refused before CUPTI sees them; of another chip as well.
fn damage(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    for Kept { name, bytes, .. } in counted()? {
        let data = CounterData::from_bytes(&bytes)?;
        let Err(error) = library.host("GA100")?.evaluate(&data) else {
            return Err(format!("{name} came to something on GA100").into());
        };
        ensure(error.to_string().contains("host for GH100"), || error.to_string())?;
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            ensure(CounterData::from_bytes(&damaged).is_err(), || format!("{name}: byte {at}"))?;
        }
    }
    Ok(())
}

/// Says how CUPTI takes images that were mangled below our checksum: with an error, with numbers, or by the end of its process: a crash, or 5 seconds
/// in which it did not come back.
fn mangled_images(file: &Path, images: u64) -> Result<(), Failed> {
    let (mut next, mut crashes, mut refused, mut evaluated) = (0, Vec::new(), 0u64, 0u64);
    while next < images {
        let mut command = Command::new(env::current_exe()?);
        command.env(CHECK, MANGLE).env(FILE, file).env(SEEDS_OF, format!("{next} {images}"));
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut last = None;
        for line in said.lines() {
            let Some((seed, outcome)) = line.split_once(' ') else { continue };
            last = seed.parse::<u64>().ok();
            match outcome {
                "refused" => refused += 1,
                "evaluated" => evaluated += 1,
                _ => {}
            }
        }
        if output.status.success() {
            break;
        }
        let Some(last) = last else {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        };
        crashes.push(format!("{last} ({})", output.status));
        next = last + 1;
    }
    eprintln!(
        "{}: of {images} mangled images {refused} were refused, {evaluated} came to numbers, {} ended the process: {}",
        title(file),
        crashes.len(),
        crashes.iter().take(8).cloned().collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

#[allow(clippy::print_stdout)] // to the process that started this one
fn mangle(file: &Path) -> Result<(), Failed> {
    let Some(library) = host_library(file)? else { return Ok(()) };
    let seeds = env::var(SEEDS_OF)?;
    let (from, until) = seeds.split_once(' ').ok_or("two seeds are asked for")?;
    let mut all = Vec::new();
    for Kept { bytes, .. } in counted()? {
        let data = CounterData::from_bytes(&bytes)?;
        // The image stands at the end.
        let at = bytes.len() - data.image().len();
        all.push((bytes, at, library.host(data.chip())?));
    }
    for seed in from.parse::<u64>()?..until.parse()? {
        let mut random = fastrand::Rng::with_seed(seed);
        let (bytes, image, host) = &all[random.usize(..all.len())];
        let mut content = bytes[40..].to_vec();
        let image = image - 40;
        // Half of the mangling at the head, where sizes and places are.
        for _ in 0..random.usize(1..=16) {
            let length = content.len() - image;
            let length = if random.bool() { length.min(4096) } else { length };
            let at = image + random.usize(..length);
            content[at] =
                if random.bool() { random.u8(..) } else { content[at] ^ 1 << random.u8(..8) };
        }
        let mut sealed = bytes[..8].to_vec();
        sealed.extend(hmac_sha256::Hash::hash(&content));
        sealed.extend(content);
        println!("{seed} tried");
        // SAFETY: it ends this process if the library does not come back.
        unsafe { libc::alarm(5) };
        let outcome = host.evaluate(&CounterData::from_bytes(&sealed)?);
        println!("{seed} {}", if outcome.is_ok() { "evaluated" } else { "refused" });
    }
    Ok(())
}

/// CUPTI finds libnvperf_host.so beside itself, with our help; alone it plans nothing, and the text says why.
fn alone(file: &Path) -> Result<(), Failed> {
    let folder = env::temp_dir().join(format!("cupti-alone-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let copy = folder.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy)?;
    // SAFETY: NVIDIA's library.
    let planned = unsafe { HostLibrary::open_path(&copy) }.and_then(|library| library.host(CHIP));
    fs::remove_dir_all(&folder)?;
    let Err(error) = planned else { return Err("it planned alone".into()) };
    let text = error.to_string();
    let is_too_old = error.is_unsupported() && text.contains("12.6");
    ensure(is_too_old || text.contains("does libnvperf_host.so lie beside"), || text.clone())
}

/// nvprof's metrics that people ask for by name.
const SEEDS: [&str; 30] = [
    "achieved_occupancy",
    "ipc",
    "gld_efficiency",
    "gst_efficiency",
    "dram_utilization",
    "dram_read_throughput",
    "dram_write_throughput",
    "dram_read_transactions",
    "dram_write_transactions",
    "sysmem_read_throughput",
    "sysmem_write_throughput",
    "sysmem_read_transactions",
    "sysmem_write_transactions",
    "l2_l1_read_transactions",
    "l2_l1_write_transactions",
    "l2_l1_read_throughput",
    "l2_l1_write_throughput",
    "l2_tex_read_transactions",
    "l2_tex_write_transactions",
    "l2_tex_read_throughput",
    "l2_tex_write_throughput",
    "shared_load_throughput",
    "shared_store_throughput",
    "shared_load_transactions",
    "shared_store_transactions",
    "l1_cache_local_hit_rate",
    "l1_cache_global_hit_rate",
    "gld_throughput",
    "gst_throughput",
    "gld_transactions",
];

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(message().into()) }
}
