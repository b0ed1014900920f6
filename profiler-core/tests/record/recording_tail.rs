//! A recording that is summed while another process appends to it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::session::{RecordingFile, RecordingTail};
use profiler_core::{Context, Profile, Profiler, Summary};
use test_support::effort::rounds;
use test_support::folder::Folder;
use test_support::frames::{file as file_of, frames};

/// The file's own thread takes nothing by itself.
const HOUR: Duration = Duration::from_secs(3600);
const ROWS: usize = 100;

fn record(fake: &Fake, path: &Path) -> RecordingFile {
    let builder = Profiler::builder().library(fake.library().unwrap()).period(HOUR);
    builder.build().unwrap().record_to(path).unwrap()
}

fn step(fake: &Fake) {
    let _step = range("step");
    fake.launch(Work::host_to_device(1000).taking_ns(500));
    {
        let _forward = range("forward");
        fake.launch(Work::kernel(c"gemm").taking_ns(2_000));
        fake.launch(Work::kernel(c"relu").taking_ns(300));
    }
    fake.launch(Work::synchronize());
}

fn read_all(tail: &mut RecordingTail) {
    while tail.read(1).unwrap() {}
}

/// Name, instances, kernels and GPU time.
type Sum = (String, u64, u64, Duration);

/// The sums of each path, then of each kernel.
fn rows(summary: &Summary) -> (Vec<Sum>, Vec<Sum>) {
    let mut paths: Vec<_> = summary
        .paths()
        .map(|path| {
            let totals = path.inclusive();
            (path.path(), path.instances(), totals.kernels, totals.gpu_time())
        })
        .collect();
    paths.sort();
    let kernels = summary.kernels().into_iter();
    let kernels = kernels.map(|(name, sum)| (name.to_owned(), 0, sum.kernels, sum.kernel_time()));
    (paths, kernels.collect())
}

/// The system's clock, which the fake has, may run slower or faster than the host's for a while: the
/// conversion rounds both ends of each operation.
#[track_caller]
fn assert_rounded(time: Duration, expected_ns: u64, operations: u64) {
    let off_ns = time.abs_diff(Duration::from_nanos(expected_ns)).as_nanos();
    assert!(off_ns <= u128::from(2 * operations), "{time:?} instead of {expected_ns} ns");
}

#[test]
fn tail_of_a_running_session_has_what_was_flushed() {
    let (fake, folder) = (Fake::new(), Folder::new());
    let path = folder.file("run.gpuprof");
    let file = record(&fake, &path);
    let mut tail = RecordingTail::open(&path, ROWS).unwrap();
    read_all(&mut tail);
    assert_eq!(tail.summary().paths().count(), 0);
    let outer = range("outer");
    for count in 1..=5 {
        step(&fake);
        file.flush().unwrap();
        read_all(&mut tail);
        let summary = tail.summary();
        let step = summary.find("outer/step").next().unwrap();
        assert_eq!((step.instances(), step.inclusive().kernels), (count, 2 * count));
        assert_rounded(step.inclusive().gpu_time(), 2_800 * count, 2 * count);
        let open = summary.find("outer").next().unwrap();
        assert_eq!((open.instances(), open.host_time().count()), (1, 0), "it is open");
        assert_eq!(tail.position(), fs::metadata(&path).unwrap().len());
        assert!(!tail.has_ended() && !tail.is_replaced());
        let (devices, until_ns) = (tail.devices(HOUR).collect::<Vec<_>>(), tail.until_ns());
        assert_eq!((devices.len(), devices[0].device), (1, 0));
        assert_rounded(devices[0].busy, 2_800 * count, 2 * count);
        assert!(devices[0].recorded >= devices[0].busy && tail.known_ns() <= until_ns);
        assert!(tail.recorded() >= devices[0].recorded && tail.recorded() <= summary.duration());
    }
    drop(outer);
    file.finish().unwrap();
    read_all(&mut tail);
    assert!(tail.has_ended());
    let (profile, summary) = (Profile::load(&path).unwrap(), tail.summary());
    summary.health().assert_complete();
    assert_eq!(summary.totals().kernels, profile.kernels().count() as u64);
    assert_eq!(summary.find("outer").next().unwrap().host_time().count(), 1);
    for (path, instances, kernels, gpu) in rows(&summary).0 {
        let range = profile.range(&path).unwrap();
        assert_eq!(
            (range.instances(), range.kernels(), range.gpu_time()),
            (instances, kernels, gpu)
        );
    }
    // Another session replaces the file.
    record(&fake, &path).finish().unwrap();
    assert!(tail.is_replaced());
}

/// The lengths of records are in the file for each kind, whichever part has it first.
#[test]
fn parts_with_one_kind_each_are_readable() {
    let (fake, folder) = (Fake::new(), Folder::new());
    let path = folder.file("run.gpuprof");
    let file = record(&fake, &path);
    fake.launch(Work::synchronize());
    file.flush().unwrap();
    fake.launch(Work::host_to_device(1_000));
    file.flush().unwrap();
    file.finish().unwrap();
    let profile = Profile::load(&path).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.copies().count(), 1);
}

#[test]
fn added_collectives_are_communication_and_not_busy_time() {
    let (fake, folder) = (Fake::new(), Folder::new());
    let path = folder.file("run.gpuprof");
    let file = record(&fake, &path);
    step(&fake);
    file.finish().unwrap();
    let assert_times = |mut tail: RecordingTail, busy_ns, communication_ns| {
        read_all(&mut tail);
        let device = tail.devices(HOUR).next().unwrap();
        assert_rounded(device.busy, busy_ns, 2);
        assert_rounded(device.communication, communication_ns, 2);
    };
    let open = || RecordingTail::open(&path, ROWS).unwrap();
    assert_times(open(), 2_800, 0);
    assert_times(open().with_communication(|name| name == "gemm"), 800, 2_000);
}

/// The bytes of a session with threads, a handed-over context, a graph, a pause and open ranges.
fn recorded() -> Vec<u8> {
    let (fake, folder) = (Fake::new(), Folder::new());
    let path = folder.file("run.gpuprof");
    let file = record(&fake, &path);
    let outer = range("outer");
    for number in 0..6 {
        step(&fake);
        let context = Context::capture();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _attached = context.attach();
                step(&fake);
            });
        });
        nvtx::mark("mark");
        let process_range = nvtx::process_range("request");
        drop(process_range);
        if number == 3 {
            file.pause().unwrap();
            step(&fake);
            file.resume().unwrap();
        }
        fake.launch(Work::kernel(c"ncclDevKernel_AllReduce_Sum_f32").taking_ns(700));
        file.flush().unwrap();
    }
    drop(outer);
    file.finish().unwrap();
    fs::read(&path).unwrap()
}

/// However many bytes the file has at each read, the sums in the end are the same.
#[test]
fn file_may_be_cut_anywhere_at_each_read() {
    let bytes = recorded();
    let folder = Folder::new();
    let whole = folder.file("whole.gpuprof");
    fs::write(&whole, &bytes).unwrap();
    let mut all = RecordingTail::open(&whole, ROWS).unwrap();
    read_all(&mut all);
    let expected = rows(&all.summary());
    assert_eq!(expected.1.iter().map(|row| row.2).sum::<u64>(), 6 * 5, "{expected:?}");
    let profile = Profile::from_bytes(&bytes).unwrap();
    for (path, instances, kernels, gpu) in &expected.0 {
        let range = profile.range(path).unwrap();
        let found = (range.instances(), range.kernels(), range.gpu_time());
        assert_eq!(found, (*instances, *kernels, *gpu), "{path}");
    }
    let device = all.devices(HOUR).next().unwrap();
    assert!(device.busy > device.communication, "{device:?}");
    assert!(device.communication > Duration::ZERO, "{device:?}");
    let windows = profile.recording().unwrap().windows_ns();
    assert_eq!(windows.len(), 2, "a pause");
    let recorded: u64 = windows.iter().map(|(start, stop)| stop - start).sum();
    assert_eq!(all.recorded(), Duration::from_nanos(recorded));
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..rounds(200) {
        let path = folder.file(&format!("{round}.gpuprof"));
        let mut file = File::create(&path).unwrap();
        let (mut rest, mut tail) = (&bytes[..], None);
        while !rest.is_empty() {
            let (next, later) = rest.split_at(random.usize(1..=rest.len().min(4_000)));
            file.write_all(next).unwrap();
            rest = later;
            // At first there may be no whole frame.
            let opened = match tail.take() {
                None => RecordingTail::open(&path, ROWS).ok(),
                opened => opened,
            };
            tail = opened.inspect(|tail| assert!(!tail.has_ended()));
            tail.iter_mut().for_each(read_all);
        }
        let tail = tail.unwrap();
        assert!(tail.has_ended());
        assert_eq!(rows(&tail.summary()), expected);
    }
}

/// A file that was saved as a whole, as the last part of a run is, is read at its end.
#[test]
fn saved_recording_is_one_part() {
    let profile = Profile::from_bytes(&recorded()).unwrap();
    let folder = Folder::new();
    let path = folder.file("saved.gpuprof");
    profile.save(&path).unwrap();
    let mut tail = RecordingTail::open(&path, ROWS).unwrap();
    read_all(&mut tail);
    let summary = tail.summary();
    assert!(tail.has_ended());
    assert_eq!(summary.totals().kernels, profile.kernels().count() as u64);
    let steps = summary.find("outer/step").map(|path| path.instances()).sum::<u64>();
    assert_eq!(steps, profile.range("outer/step").unwrap().instances());
}

/// A writer with a defect, or an attacker, may write anything with right checksums.
#[test]
fn damaged_files_are_errors_and_never_panics() {
    let bytes = recorded();
    let folder = Folder::new();
    let path = folder.file("damaged.gpuprof");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let mut tail = RecordingTail::open(&path, ROWS)?;
        while tail.read(u64::MAX)? {}
        let _ = (tail.summary(), tail.devices(HOUR).count(), tail.recorded());
        Ok::<_, profiler_core::Error>(())
    };
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let error = read(&flipped).unwrap_err();
    assert!(error.is_format() && error.to_string().contains("damaged.gpuprof"), "{error}");
    assert!(read(b"no recording").unwrap_err().is_format());
    let whole = frames(&bytes);
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, all) = (0, rounds(4_000));
    for _ in 0..all {
        let mut frames = whole.clone();
        let at = random.usize(..frames.len());
        match random.u8(..4) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, whole[random.usize(..whole.len())].clone()),
            _ if frames[at].1.is_empty() => {}
            2 => {
                let byte = random.usize(..frames[at].1.len());
                frames[at].1[byte] = random.u8(..);
            }
            _ => {
                // A word of an entry.
                let content = &mut frames[at].1;
                let word = random.usize(..content.len().div_ceil(8)) * 8;
                let value = [0, 1, u64::MAX, 1 << 63, 1 << 32][random.usize(..5)].to_le_bytes();
                let end = (word + 8).min(content.len());
                content[word..end].copy_from_slice(&value[..end - word]);
            }
        }
        refused += usize::from(read(&file_of(&frames)).is_err());
    }
    assert!(refused > all / 20, "{refused} of {all}");
}
