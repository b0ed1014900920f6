//! The file format of recordings: what is damaged, incomplete or without an end is never read as complete.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cupti::{Config, GraphEventKind};
use fake_cupti::Work;
use profiler_analysis::prelude::*;
use profiler_core::series::{Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, Recording};
use serde_json::{Value, json};
use test_support::effort::{is_thorough, rounds};
use test_support::frames::{Frame, file, frames, log, log_content, old_file, old_frames};

static LOADER: nvtx::Domain = nvtx::Domain::new("loader");

/// Some of everything: records of four kinds, both APIs, a graph, ranges with labels, fields and a parent on another
/// thread, a range of the process, a mark, samples.
fn recorded() -> Recording {
    let fake = fake_cupti::Fake::new();
    let config = Config::new().runtime_calls(true).graph_events(true);
    let profiler =
        Profiler::builder().library(fake.library().unwrap()).config(config).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let life = nvtx::process_range("life");
            nvtx::mark("begins");
            for i in 0..3 {
                let _batch = nvtx::range("batch");
                let _named = nvtx::range(&format!("item {i}"));
                fake.launch(Work::kernel(c"gemm").taking_ns(1_000 + i));
                fake.launch(Work::host_to_device(1 << 20));
                fake.launch(Work::memset(77));
                fake.launch(Work::synchronize());
            }
            drop(life);
            let _load = LOADER
                .event("load")
                .payload(7u64)
                .field("shard", "a", "")
                .field("n", 3, "")
                .range();
            fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"runtime"));
            let mut graph = fake.graph();
            fake.capture_into(&mut graph, &Work::kernel(c"node"));
            let exec = fake.instantiate(&graph);
            fake.launch_exec(&exec);
        })
        .unwrap();
    profile.health().assert_complete();
    let recording = profile.recording().unwrap().clone();
    let start_ns = recording.windows_ns()[0].0;
    let metric = Metric::new("dram__bytes_read.sum", "DRAM read", Unit::Bytes, Kind::Total);
    let mut series = Series::new(0, Source::Counters, Duration::from_nanos(100), vec![metric]);
    for row in 0..20 {
        series.push(start_ns + 100 * row, start_ns + 100 * (row + 1), &[row as f64]).unwrap();
    }
    recording.with_series(series)
}

/// Many calls, so that logs take several frames.
fn recorded_long(launches: u64) -> Recording {
    let fake = fake_cupti::Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    for i in 0..launches {
        let _step = (i % 2 == 0).then(|| nvtx::range("step"));
        fake.launch(Work::kernel(c"gemm"));
    }
    profiler.stop_recording().unwrap()
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(name)).unwrap()
}

/// A path in the temporary folder that is removed again.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("gpuprof-{}-{name}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[track_caller]
fn error_of(bytes: &[u8]) -> String {
    let error = Recording::from_bytes(bytes).unwrap_err();
    assert!(error.is_format(), "{error}");
    error.to_string()
}

fn position(frames: &[Frame], kind: &[u8; 4]) -> usize {
    frames.iter().position(|frame| frame.0 == *kind).unwrap()
}

/// The file with the first frame of a kind changed, which a checksum cannot show.
fn with_log(
    bytes: &[u8],
    kind: &[u8; 4],
    change: impl FnOnce(&mut Value, &mut Vec<u64>),
) -> Vec<u8> {
    let is_old = bytes[7] < 3;
    let mut frames = if is_old { old_frames(bytes) } else { frames(bytes) };
    let at = position(&frames, kind);
    let (mut head, mut words) = log(&frames[at].1);
    change(&mut head, &mut words);
    frames[at].1 = log_content(&head, &words);
    if is_old { old_file(&frames) } else { file(&frames) }
}

fn with_json(bytes: &[u8], kind: &[u8; 4], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let is_old = bytes[7] < 3;
    let mut frames = if is_old { old_frames(bytes) } else { frames(bytes) };
    let at = position(&frames, kind);
    let mut value = serde_json::from_slice(&frames[at].1).unwrap();
    change(&mut value);
    frames[at].1 = serde_json::to_vec(&value).unwrap();
    if is_old { old_file(&frames) } else { file(&frames) }
}

// --- damage ---

/// A single-bit flip: an error, or a truncated recording.
#[track_caller]
fn check_flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
    if let Ok(recording) = Recording::from_bytes(bytes) {
        let profile = Profile::from_recording(recording);
        assert!(!profile.health().is_complete(), "bit {bit}: {}", profile.health());
        assert_eq!(profile.health().losses.truncated, 1, "bit {bit}");
    }
    bytes[bit / 8] ^= 1 << (bit % 8);
}

#[test]
fn every_single_bit_flip_of_a_small_recording_is_found() {
    let mut bytes = recorded().to_bytes();
    assert!((10_000..200_000).contains(&(8 * bytes.len())), "{}", bytes.len());
    // Each eleventh has every place in a byte.
    for bit in (0..8 * bytes.len()).step_by(if is_thorough() { 1 } else { 11 }) {
        check_flip(&mut bytes, bit);
    }
}

#[test]
fn random_single_bit_flips_of_larger_recordings_are_found() {
    // As it is in the tree, where readers of the quickstart find it.
    let quickstart = include_bytes!("../../../examples/recordings/quickstart-h200.gpuprof");
    let samples = Recording::from_bytes(&fixture("samples-h200.gpuprof")).unwrap().to_bytes();
    let mut random = fastrand::Rng::with_seed(17);
    for mut bytes in [quickstart.to_vec(), samples] {
        assert!(Recording::from_bytes(&bytes).unwrap().has_checksums());
        for _ in 0..rounds(5_000) {
            let bit = random.usize(..8 * bytes.len());
            check_flip(&mut bytes, bit);
        }
    }
}

#[test]
fn every_prefix_is_a_truncated_recording() {
    let recording = recorded();
    let bytes = recording.to_bytes();
    let first = 8 + 32 + frames(&bytes)[0].1.len().next_multiple_of(8);
    for length in 0..bytes.len() {
        let read = Recording::from_bytes(&bytes[..length]);
        if length < first {
            let error = read.unwrap_err().to_string();
            let expected = if length < 8 { "too few" } else { "cut short before its first frame" };
            assert!(error.contains(expected), "{length}: {error}");
            continue;
        }
        let read = read.unwrap();
        assert!(read.is_truncated() && read.info() == recording.info(), "{length}");
        if length % 97 == 0 || length > bytes.len() - 40 {
            let profile = Profile::from_recording(read.clone());
            assert!(!profile.health().is_complete(), "{length}");
            assert!(profile.health().to_string().contains("1 truncated recording"), "{length}");
            // What is saved of it is one, too.
            let again = Recording::from_bytes(&read.to_bytes()).unwrap();
            assert_eq!(again, read, "{length}");
        }
    }
    let whole = Recording::from_bytes(&bytes).unwrap();
    assert!(!whole.is_truncated() && whole == recording);
}

#[test]
fn truncated_recording_has_the_part_before() {
    let bytes = recorded().to_bytes();
    let all = frames(&bytes);
    let end = position(&all, b"RTCL");
    let read = Profile::from_bytes(&file(&all[..end])).unwrap();
    assert_eq!(read.kernels().count(), 5);
    assert_eq!(read.health().accounts.kernels.matched_records, 5);
    assert!(!read.health().is_complete());
}

/// A writer that reserves space, as one into a mapping does, leaves zeros behind its last frame.
#[test]
fn zeros_behind_the_last_frame_are_unused_space_of_a_truncated_recording() {
    let all = frames(&recorded().to_bytes());
    for count in 1..all.len() {
        let mut bytes = file(&all[..count]);
        bytes.extend([0; 4096]);
        assert!(Recording::from_bytes(&bytes).unwrap().is_truncated());
        // A head whose first bytes were not stored yet.
        let end = bytes.len() - 4096;
        bytes[end + 8..end + 32].fill(0xab);
        assert!(Recording::from_bytes(&bytes).unwrap().is_truncated());
    }
}

#[test]
fn removed_repeated_reordered_and_foreign_frames_are_errors() {
    let bytes = recorded().to_bytes();
    let other = recorded().to_bytes();
    let all = frames(&bytes);
    // As bytes, with their checksums.
    let mut parts = Vec::new();
    let mut others = Vec::new();
    let mut at = 8;
    let mut other_at = 8;
    for ((_, content), (_, other_content)) in all.iter().zip(frames(&other)) {
        let end = at + 32 + content.len().next_multiple_of(8);
        parts.push(&bytes[at..end]);
        at = end;
        let end = other_at + 32 + other_content.len().next_multiple_of(8);
        others.push(&other[other_at..end]);
        other_at = end;
    }
    let joined = |parts: &[&[u8]]| [&bytes[..8], &parts.concat()].concat();
    assert_eq!(joined(&parts), bytes);
    for at in 0..parts.len() {
        let mut removed = parts.clone();
        removed.remove(at);
        if at + 1 < parts.len() {
            assert!(error_of(&joined(&removed)).contains("removed, repeated or reordered"), "{at}");
            let mut reordered = parts.clone();
            reordered.swap(at, at + 1);
            let error = error_of(&joined(&reordered));
            assert!(error.contains("removed, repeated or reordered"), "{at}");
        } else {
            assert!(Recording::from_bytes(&joined(&removed)).unwrap().is_truncated());
        }
        let mut repeated = parts.clone();
        repeated.insert(at, parts[at]);
        let error = error_of(&joined(&repeated));
        let is_end = at + 1 == parts.len();
        let expected = if is_end { "bytes follow" } else { "removed, repeated or reordered" };
        assert!(error.contains(expected), "{at}: {error}");
        let mut foreign = parts.clone();
        foreign[at] = others[at];
        assert!(error_of(&joined(&foreign)).contains("another recording"), "{at}");
    }
}

#[test]
fn nothing_may_follow_the_last_frame() {
    let new = recorded().to_bytes();
    for bytes in [new, fixture("format-1.gpuprof"), fixture("roofline-h200.gpuprof")] {
        Recording::from_bytes(&bytes).unwrap();
        for behind in [&b"\0"[..], b"garbage", &bytes] {
            let error = error_of(&[&bytes, behind].concat());
            assert!(error.contains(&format!("ends at byte {}", bytes.len())), "{error}");
        }
    }
}

// --- order and indices ---

/// Files whose checksums are right, as a writer with a defect would leave them.
#[test]
fn unordered_or_out_of_range_data_is_an_error() {
    let bytes = recorded().to_bytes();
    let error = |bytes: Vec<u8>, expected: &str| {
        let error = error_of(&bytes);
        assert!(error.contains(expected), "{expected}: {error}");
    };
    let ranges = |change: &dyn Fn(&mut Value, &mut Vec<u64>)| with_log(&bytes, b"RNGE", change);
    let state = |change: &dyn Fn(&mut Value)| with_json(&bytes, b"STAT", change);
    Recording::from_bytes(&ranges(&|_, _| {})).unwrap();
    Recording::from_bytes(&state(&|_| {})).unwrap();

    error(state(&|state| state["windows_ns"] = json!([[3, 4], [1, 2]])), "not in order");
    error(state(&|state| state["windows_ns"] = json!([[2, 1]])), "not in order");
    error(state(&|state| state["window_ns"] = json!([9, 1])), "not in order");
    error(state(&|state| state["clock_ns"] = json!([[9, 0], [1, 0]])), "not in order");

    error(ranges(&|_, words| words[0] |= 0xffff), "a label that is not there");
    error(ranges(&|head, _| head["labels"][0]["name"] = json!(99)), "a text that is not there");
    error(ranges(&|head, _| head["labels"][0]["domain"] = json!(99)), "a text that is not there");
    error(ranges(&|head, _| head["labels"][0]["category"] = json!(99)), "a text that is not there");
    error(ranges(&|_, words| words[0] |= 1 << 32), "a range lies in a later one");
    error(ranges(&|_, words| words[2] = words[1] - 1), "its ranges are not in order");
    error(ranges(&|_, words| words[4] = 1), "its ranges are not in order");
    error(ranges(&|head, _| head["number"] = json!(77)), "comes before its ranges");
    let long = recorded_long(10).to_bytes();
    let number = with_json(&long, b"INFO", |info| info["logs"][1] = info["logs"][0].clone());
    error(number, "its number is that of another");
    error(ranges(&|head, _| _ = head.as_object_mut().unwrap().remove("number")), "its number");
    let rows = log(&frames(&bytes)[position(&frames(&bytes), b"RNGE")].1).1.len() as u64 / 3;
    error(ranges(&|head, _| head["slots"] = json!([0])), "lacks the positions of its entries");
    let descending: Vec<u64> = (0..rows).rev().collect();
    error(
        ranges(&|head, _| head["slots"] = json!(descending)),
        "lacks the positions of its entries",
    );

    let calls = |change: &dyn Fn(&mut Value, &mut Vec<u64>)| with_log(&bytes, b"CALL", change);
    error(calls(&|_, words| words[2] = words[7] + 1), "its calls are not in order");
    error(calls(&|_, words| words[4] = words[2] - 1), "its calls are not in order");
    error(calls(&|_, words| _ = words.pop()), "no whole number of entries");
    let graphs = |change: &dyn Fn(&mut Value, &mut Vec<u64>)| with_log(&bytes, b"GRPH", change);
    error(graphs(&|_, words| words[1] = u64::MAX), "its events are not in order");

    let events = |change: &dyn Fn(&mut Value, &mut Vec<u64>)| with_log(&bytes, b"EVNT", change);
    Recording::from_bytes(&events(&|_, _| {})).unwrap();
    // Of each kind of event the word that refers to something: a label, a range of this recording, a text.
    let refer = |kind: u64, word: usize, value: u64| {
        events(&|_, words| {
            let mut events = words.as_chunks_mut::<3>().0.iter_mut();
            events.find(|event| event[0] >> 56 == kind).unwrap()[word] = value;
        })
    };
    error(refer(1, 0, 1 << 56 | 99), "a mark has a label that is not there");
    error(refer(2, 0, 2 << 56 | 99), "a mark has a label that is not there");
    // A word of a log with number 0, which no recording has.
    error(refer(3, 2, 5), "a range is of another recording");
    error(refer(6, 2, 99 << 32 | 5), "a field refers to a text that is not there");
    error(refer(6, 1, 99), "a field refers to a text that is not there");
    error(events(&|head, _| head["number"] = json!(77)), "comes before its ranges");

    let without_logs = |info: &mut Value| _ = info.as_object_mut().unwrap().remove("logs");
    error(with_json(&bytes, b"INFO", without_logs), "numbers of its logs");

    let mut names_again = frames(&bytes);
    let (at, mut names) = (position(&names_again, b"NAME"), json!({"strides": {}, "names": {}}));
    let first: Value = serde_json::from_slice(&names_again[at].1).unwrap();
    let key = first["names"].as_object().unwrap().keys().next().unwrap();
    names["names"][key] = json!("another");
    names_again.insert(at + 1, (*b"NAME", serde_json::to_vec(&names).unwrap()));
    error(file(&names_again), "one key two values");
    let mut info_again = frames(&bytes);
    info_again.insert(1, info_again[0].clone());
    error(file(&info_again), "the description of the machine is the first frame");
    let mut info_late = frames(&bytes);
    info_late.swap(0, 1);
    error(file(&info_late), "the description of the machine is the first frame");
}

/// What can be checked in format 2, which has no checksums.
#[test]
fn an_old_file_whose_frames_are_repeated_or_out_of_order_is_an_error() {
    let bytes = fixture("samples-h200.gpuprof");
    let all = old_frames(&bytes);
    let kinds: Vec<&str> = all.iter().map(|frame| std::str::from_utf8(&frame.0).unwrap()).collect();
    assert!(["RECS", "CALL", "RNGE", "SERS"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    for at in 0..all.len() {
        // Threads that had the same id one after the other may have the same log, of nothing.
        let is_log = [b"CALL", b"RTCL", b"GRPH"].contains(&&all[at].0);
        if !is_log || !log(&all[at].1).1.is_empty() {
            let mut repeated = all.clone();
            repeated.insert(at + 1, all[at].clone());
            error_of(&old_file(&repeated));
            let mut far = all.clone();
            far.insert(all.len() - 1, all[at].clone());
            error_of(&old_file(&far));
        }
        if at + 1 < all.len() && all[at].0 != all[at + 1].0 {
            let mut reordered = all.clone();
            reordered.swap(at, at + 1);
            error_of(&old_file(&reordered));
        }
        // In these formats, a missing frame of records, ranges or samples is not detected.
        let is_missed = match &all[at].0 {
            b"INFO" | b"NAME" | b"DONE" => true,
            _ => is_log && !log(&all[at].1).1.is_empty(),
        };
        if is_missed {
            let mut removed = all.clone();
            removed.remove(at);
            let read = Profile::from_bytes(&old_file(&removed));
            assert!(read.is_err() || !read.unwrap().health().is_complete(), "{}", kinds[at]);
        }
    }
    let error = error_of(&with_json(&bytes, b"DONE", |done| done["epoch"] = json!(4000)));
    assert!(error.contains("its epoch is 4000"), "{error}");
    let error = error_of(&with_log(&bytes, b"RNGE", |_, words| words[0] |= 0xffff));
    assert!(error.contains("a label that is not there"), "{error}");
}

#[test]
fn additional_operations_of_a_call_are_counted() {
    let bytes = fixture("roofline-h200.gpuprof");
    Profile::from_bytes(&bytes).unwrap().health().assert_complete();
    let mut all = old_frames(&bytes);
    let at = position(&all, b"RECS");
    // A buffer with its records twice is no repeated frame.
    let twice = all[at].1.repeat(2);
    all[at].1 = twice;
    let profile = Profile::from_bytes(&old_file(&all)).unwrap();
    let health = profile.health();
    let operations = health.accounts.kernels.records
        + health.accounts.copies.records
        + health.accounts.memsets.records;
    assert!(!health.is_complete() && operations > 0, "{health}");
    assert_eq!(health.losses.repeated_records, operations / 2, "{health}");
    assert!(health.to_string().contains("repeated records of calls"), "{health}");
}

/// A call whose work is several operations expects as many records.
#[test]
fn a_graph_launch_of_several_operations_repeats_none() {
    let profile = Profile::from_recording(recorded());
    assert_eq!(profile.health().losses.repeated_records, 0);
    let recording = profile.recording().unwrap();
    let kinds = recording.graphs()[0].events.iter().map(|event| event.kind);
    assert!(kinds.into_iter().any(|kind| kind == GraphEventKind::NodeCloned));
}

// --- frames that are appended while a session goes on ---

#[test]
fn long_logs_take_several_frames_and_read_the_same() {
    let recording = recorded_long(40_000);
    let bytes = recording.to_bytes();
    let count = |kind: &[u8; 4]| frames(&bytes).iter().filter(|frame| frame.0 == *kind).count();
    assert_eq!((count(b"CALL"), count(b"RNGE")), (3, 2));
    let read = Recording::from_bytes(&bytes).unwrap();
    assert_eq!(read, recording);
    Profile::from_recording(read).health().assert_complete();
}

/// As a writer does that appends what is new: the frames of each kind interleaved, inner ranges and calls first, windows that
/// go on.
#[test]
fn a_recording_of_many_small_frames_reads_the_same() {
    let recording = recorded();
    let mut all = Vec::new();
    let mut later = Vec::new();
    for (kind, content) in frames(&recording.to_bytes()) {
        let width = match &kind {
            b"CALL" | b"RTCL" => 5,
            b"GRPH" => 7,
            b"RNGE" | b"EVNT" => 3,
            _ => 0,
        };
        match &kind {
            b"DONE" => {}
            b"STAT" => {
                let whole: Value = serde_json::from_slice(&content).unwrap();
                let (from, until) = (&whole["windows_ns"][0][0], &whole["windows_ns"][0][1]);
                let mut first = whole.clone();
                first["windows_ns"] = json!([[from, from]]);
                let clocks = whole["clock_ns"].as_array().unwrap();
                first["clock_ns"] = json!(clocks[..1]);
                let mut last = whole.clone();
                last["windows_ns"] = json!([[from, until]]);
                last["clock_ns"] = json!(clocks[1..]);
                all.push((kind, serde_json::to_vec(&first).unwrap()));
                later.push((kind, serde_json::to_vec(&last).unwrap()));
            }
            _ if width == 0 => all.push((kind, content)),
            _ => {
                let (mut head, words) = log(&content);
                // The ends of entries came in another order than their starts.
                for (place, entries) in words.chunks(width).enumerate().rev() {
                    if width == 3 {
                        head["first_slot"] = json!(place);
                    }
                    later.push((kind, log_content(&head, entries)));
                    head.as_object_mut().unwrap().remove("names");
                    head.as_object_mut().unwrap().remove("labels");
                }
            }
        }
    }
    all.extend(later);
    all.push((*b"DONE", Vec::new()));
    let read = Recording::from_bytes(&file(&all)).unwrap();
    assert_eq!(read, recording);
    // A range that comes twice is none that was appended.
    let at = position(&all, b"RNGE");
    let (mut head, words) = log(&all[at].1);
    head.as_object_mut().unwrap().remove("names");
    head.as_object_mut().unwrap().remove("labels");
    all.insert(at + 1, (*b"RNGE", log_content(&head, &words)));
    assert!(error_of(&file(&all)).contains("it has a range twice"));
}

/// A reader may look at a file at any time while it is being written.
#[test]
fn a_file_that_is_being_written_reads_up_to_its_last_frame() {
    let recording = recorded();
    let bytes = recording.to_bytes();
    let path = Temporary::new("growing.gpuprof");
    let mut written = File::create(&path.0).unwrap();
    let mut calls = 0;
    for chunk in bytes.chunks(1000) {
        io::Write::write_all(&mut written, chunk).unwrap();
        let read = Recording::load(&path.0).unwrap();
        let seen = read.calls().iter().map(|thread| thread.calls.len()).sum();
        assert!(seen >= calls);
        calls = seen;
    }
    assert_eq!(Recording::load(&path.0).unwrap(), recording);
}

// --- limits ---

/// A source that counts what is read of it: a head, and then a part again and again.
struct Endless {
    head: io::Cursor<Vec<u8>>,
    part: Vec<u8>,
    at: usize,
    read: Rc<Cell<u64>>,
}

impl Endless {
    fn new(head: Vec<u8>, part: &[u8]) -> (Self, Rc<Cell<u64>>) {
        let read = Rc::new(Cell::new(0));
        let head = io::Cursor::new(head);
        (Self { head, part: part.to_vec(), at: 0, read: read.clone() }, read)
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = self.head.read(buffer)?;
        if count == 0 {
            let from = self.at % self.part.len();
            count = buffer.len().min(self.part.len() - from);
            buffer[..count].copy_from_slice(&self.part[from..from + count]);
            self.at += count;
        }
        self.read.set(self.read.get() + count as u64);
        assert!(self.read.get() < 1 << 30, "it reads on and on");
        Ok(count)
    }
}

#[test]
fn a_source_without_an_end_is_an_error_soon() {
    let new = recorded().to_bytes();
    let old = fixture("roofline-h200.gpuprof");
    let unknown = [&b"XTRA"[..], &[0; 8]].concat();
    for (head, part, expected) in [
        // Refused at the first bytes that are no frame.
        (new.clone(), &b"\0"[..], "bytes follow its last frame"),
        (old.clone(), b"\0", "bytes follow its last frame"),
        (new[..8].to_vec(), b"y\n", "is damaged"),
        (new[..8].to_vec(), b"\0", "cut short before its first frame"),
        (old[..8].to_vec(), b"y\n", "no frame begins"),
        (old[..8].to_vec(), b"\0", "no frame begins"),
        (b"GPUPROF\x02RECS\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), b"\0", "the limit is"),
        (b"GPUPROF\x02RECS\0\0\0\0\xff\0\0\0".to_vec(), b"\0", "the limit is"),
        (Vec::new(), b"y\n", "does not begin as one"),
        // Frames as they should be, and no end of them.
        (old[..8].to_vec(), &unknown, "the limit is"),
    ] {
        let (endless, read) = Endless::new(head.clone(), part);
        let limit = 10_000_000;
        let error = Recording::read_from(endless, limit).unwrap_err();
        assert!(error.is_format() && error.to_string().contains(expected), "{expected}: {error}");
        let most = if part == unknown { limit } else { head.len() as u64 };
        assert!(read.get() <= most + 200_000, "{expected}: {} bytes", read.get());
    }
}

#[test]
fn right_frames_without_an_end_are_read_up_to_the_limit() {
    let mut frames = frames(&recorded().to_bytes());
    frames.truncate(3);
    frames.extend((0..4_000).map(|_| (*b"XTRA", vec![7; 1_000])));
    let bytes = file(&frames);
    let error = Recording::read_from(&bytes[..], 1_000_000).unwrap_err();
    assert!(error.to_string().contains("the limit is 1000000"), "{error}");
    assert!(Recording::read_from(&bytes[..], bytes.len() as u64).unwrap().is_truncated());
}

#[test]
fn a_sparse_file_of_a_terabyte_is_an_error_at_once() {
    let new = recorded().to_bytes();
    let old = fixture("roofline-h200.gpuprof");
    let claims = |bytes: &[u8], length: u64| [bytes, &length.to_le_bytes()].concat();
    for (name, head) in [
        ("zeros", Vec::new()),
        ("whole", new.clone()),
        ("header", new[..8].to_vec()),
        ("old", old.clone()),
        ("claim", claims(b"GPUPROF\x02RECS", 1 << 39)),
    ] {
        let path = Temporary::new(&format!("sparse-{name}.gpuprof"));
        fs::write(&path.0, &head).unwrap();
        let file = File::options().write(true).open(&path.0).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = Recording::load(&path.0).unwrap_err();
        let text = error.to_string();
        assert!(error.is_format() && text.contains("1099511627776"), "{name}: {text}");
        assert!(text.contains("raise the limit") && text.contains(path.0.to_str().unwrap()));
        if name == "claim" {
            continue; // a limit that allows it would have it read
        }
        // Below the limit the frames are looked at first.
        let error = Recording::load_up_to(&path.0, 1 << 41);
        assert!(error.as_ref().is_err_and(|error| error.is_format()), "{name}");
    }
}

#[test]
fn a_source_that_cannot_be_read_is_no_damaged_recording() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the cable is out"))
        }
    }
    let bytes = recorded().to_bytes();
    for length in [0, 20, 100, bytes.len()] {
        let error = Recording::read_from(bytes[..length].chain(Broken), 1 << 20).unwrap_err();
        assert!(!error.is_format() && error.to_string().contains("the cable is out"), "{error}");
    }
    let error = Recording::load(std::env::temp_dir()).unwrap_err();
    assert!(!error.is_format() && error.to_string().contains("could not read /"), "{error}");
}

// --- anything ---

/// Looks at all of a profile.
fn use_all(profile: &Profile) {
    let _ = profile.to_string();
    for track in profile.tracks() {
        let _ = (track.sum(Duration::ZERO, Duration::MAX), track.rates().count());
        let _ = profile.ranges().filter_map(|range| range.mean(&track)).count();
    }
    let _ = profile.device_clocks();
    {
        let _ = (profile.track_sums().json(), profile.range_track_sums().json());
        let _ = (profile.to_html(), profile.json_lines());
    }
}

/// Changes contents and repairs the checksums, so that what is behind them is reached.
#[test]
fn no_content_makes_reading_panic() {
    let new = frames(&recorded().to_bytes());
    let old = old_frames(&fixture("roofline-h200.gpuprof"));
    let mut random = fastrand::Rng::with_seed(2_026);
    let (mut read, mut refused) = (0, 0);
    for turn in 0..rounds(2_000) {
        let is_new = turn % 2 == 0;
        let mut changed = if is_new { new.clone() } else { old.clone() };
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..changed.len());
            let length = changed[at].1.len();
            match random.u8(..8) {
                0 => changed[at].1.truncate(random.usize(..=length)),
                1 => changed[at].1.extend((0..random.usize(..64)).map(|_| random.u8(..))),
                2 => {
                    let other = random.usize(..changed.len());
                    changed.swap(at, other);
                }
                3 => changed.insert(at, changed[at].clone()),
                4 if changed.len() > 1 => _ = changed.remove(at),
                5 if length >= 8 => {
                    let from = random.usize(..length - 7);
                    let number = [0, 1, u64::MAX, 1 << 32, random.u64(..)][random.usize(..5)];
                    changed[at].1[from..from + 8].copy_from_slice(&number.to_le_bytes());
                }
                _ if length > 0 => {
                    let from = random.usize(..length);
                    changed[at].1[from] = random.u8(..);
                }
                _ => {}
            }
        }
        let bytes = if is_new { file(&changed) } else { old_file(&changed) };
        match Profile::from_bytes(&bytes) {
            Ok(profile) => {
                read += 1;
                use_all(&profile);
            }
            Err(error) => {
                refused += 1;
                assert!(error.is_format(), "{error}");
            }
        }
    }
    let least = rounds(2_000) / 10;
    assert!(read > least && refused > least, "{read} {refused}");
}

// --- older formats ---

const NO_CHECKSUMS: &str = "; 1 recordings with no checksums (format 1 or 2): damage may go unnoticed; read and save \
                            them again";

/// All recordings of GPUs: formats 1 and 2 read, and are the same in format 3, apart from the note
/// that they have no checksums.
#[test]
fn older_recordings_are_the_same_in_the_present_format() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("../tests/recordings"), root.join("../examples/recordings")];
    let mut formats = [0; 4];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "gpuprof") {
                let bytes = fs::read(&path).unwrap();
                formats[bytes[7] as usize] += 1;
                let old = Recording::load(&path).unwrap();
                let new = old.to_bytes();
                assert_eq!(new[7], 3);
                let again = Recording::from_bytes(&new).unwrap();
                assert_eq!(again.to_bytes(), new, "{}", path.display());
                assert_eq!((old.has_checksums(), again.has_checksums()), (bytes[7] == 3, true));
                let (old, new) = (Profile::from_recording(old), Profile::from_recording(again));
                let text = old.to_string().replace(NO_CHECKSUMS, "");
                assert_eq!(text, new.to_string(), "{}", path.display());
                let health = old.health();
                assert_eq!(health.facts.unchecked_recordings, u64::from(bytes[7] < 3), "{health}");
                assert_eq!(
                    (health.losses.truncated, health.losses.repeated_records),
                    (0, 0),
                    "{health}"
                );
            }
        }
    }
    assert!(formats[1] >= 1 && formats[2] >= 30, "{formats:?}");
}
