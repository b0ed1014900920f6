//! All orders in which a log's writer, its readers and a recording's begin and end may meet, played by loom; `.ci/run loom`.
//!
//! It is the crate's own `thread_log` and `log_registry` that are played, with loom's atomics and locks in the place of the
//! others (`shared.rs`). A chunk has two entries, so that a log of three has a second one.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::log_registry::LogRegistry;
use crate::thread_log::{Reader, Writer};

/// An entry: what it is, twice, and its end.
const END: usize = 2;

fn drain(reader: &mut Reader<3>, until: u64, taken: &mut Vec<u64>) {
    reader.drain(until, |slot, [value, again, end]| {
        assert_eq!((value, again), (slot + 10, slot + 10), "an entry is there in part");
        assert!(end != 0 && end < until);
        taken.push(slot);
    });
}

/// Plays every interleaving of a scenario with at most three preemptions.
fn play(scenario: impl Fn() + Sync + Send + 'static) {
    play_with(3, scenario);
}

/// As [`play`], with another bound.
fn play_with(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(scenario);
}

#[test]
fn reader_beside_writer_takes_each_entry_once_and_whole() {
    play(|| {
        let mut writer = Writer::<3>::new();
        let log = writer.log();
        let mut reader = log.reader(Some(END));
        let writing = thread::spawn(move || {
            let outer = writer.push([10, 10, 0]);
            let inner = writer.push([11, 11, 0]);
            writer.set(inner, END, 1);
            // In the next chunk, while the first may be let go.
            let last = writer.push([12, 12, 0]);
            writer.set(outer, END, 2);
            writer.set(last, END, 3);
        });
        let mut taken = Vec::new();
        drain(&mut reader, u64::MAX, &mut taken);
        // What lies in an entry is not given after it.
        assert!(!taken.contains(&0) || taken.contains(&1), "{taken:?}");
        let is_done = reader.is_done();
        assert!(!is_done || taken.len() == 3, "{taken:?}");
        writing.join().unwrap();
        drain(&mut reader, u64::MAX, &mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert!(reader.is_done());
    });
}

#[test]
fn drained_call_finds_its_range_in_the_same_drain_or_open() {
    // Three take minutes.
    play_with(2, || {
        let (mut ranges, mut calls) = (Writer::<3>::new(), Writer::<3>::new());
        let read = |writer: &Writer<3>| writer.log().reader(Some(END));
        let (mut range_reader, mut call_reader) = (read(&ranges), read(&calls));
        let clock = Arc::new(AtomicU64::new(1));
        let tick = {
            let clock = clock.clone();
            move || clock.fetch_add(1, Ordering::Relaxed)
        };
        let writing = thread::spawn(move || {
            for value in [10, 11] {
                let range = ranges.push([value, value, 0]);
                let call = calls.push([range + 10, range + 10, 0]);
                calls.set(call, END, tick());
                ranges.set(range, END, tick());
            }
        });
        let mut known = Vec::new();
        for until in [clock.load(Ordering::Relaxed), u64::MAX] {
            // Ranges after calls, and both up to one time.
            let mut drained = Vec::new();
            drain(&mut call_reader, until, &mut drained);
            drain(&mut range_reader, until, &mut known);
            let mut open = Vec::new();
            range_reader.rest(|slot, _| open.push(slot));
            // Calls and ranges have the same numbers here.
            assert!(drained.iter().all(|call| known.contains(call) || open.contains(call)));
        }
        writing.join().unwrap();
    });
}

#[test]
fn reader_that_takes_nothing_sees_whole_entries() {
    play(|| {
        let mut writer = Writer::<3>::new();
        let log = writer.log();
        let writing = thread::spawn(move || {
            for value in 10..13 {
                let slot = writer.push([value, value, 0]);
                writer.set(slot, END, value);
            }
        });
        let mut slots = Vec::new();
        log.reader(Some(END)).rest(|slot, [value, again, end]| {
            assert_eq!((value, again), (slot + 10, slot + 10), "an entry is there in part");
            assert!(end == 0 || end == value);
            slots.push(slot);
        });
        assert!(slots.iter().copied().eq(0..slots.len() as u64));
        writing.join().unwrap();
        assert_eq!(log.len(), 3);
    });
}

#[test]
fn log_released_during_writes_returns_only_later_entries() {
    play(|| {
        let mut writer = Writer::<3>::new();
        let mut reader = writer.log().reader(Some(END));
        let writing = thread::spawn(move || {
            for value in 10..13 {
                let slot = writer.push([value, value, 0]);
                writer.set(slot, END, 1);
            }
            writer
        });
        reader.let_go();
        let left = reader.len() as u64;
        let writer = writing.join().unwrap();
        let mut taken = Vec::new();
        drain(&mut reader, u64::MAX, &mut taken);
        // A tail of what was written, at least as long as what came by then.
        assert!(taken.iter().copied().eq(3 - taken.len() as u64..3), "{taken:?}");
        assert!(taken.len() as u64 >= left);
        assert!(writer.log().held_bytes() <= 2 * 2 * 3 * 8);
    });
}

#[test]
fn registered_log_is_of_the_recording_that_was_on() {
    play(|| {
        let registry = Arc::new(LogRegistry::<u64>::new());
        let register = |registry: Arc<LogRegistry<u64>>| {
            move || {
                let seen = registry.first();
                let registered = if seen == 0 { None } else { registry.register(u64::MAX, |n| n) };
                registered.map(|registered| (registered.first, registered.log))
            }
        };
        let others = [register(registry.clone()), register(registry.clone())].map(thread::spawn);
        let recordings = [(); 2].map(|()| {
            let first = registry.begin(|| ());
            (first, registry.end())
        });
        let registered = others.map(|other| other.join().unwrap());
        let registered: Vec<(u64, u64)> = registered.into_iter().flatten().collect();
        let mut listed: Vec<(u64, u64)> = recordings
            .iter()
            .flat_map(|(first, logs)| logs.iter().map(|log| (*first, *log)))
            .collect();
        listed.sort_unstable();
        let mut sorted = registered.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, listed, "a log belongs to the recording it was assigned to");
        let [(first, before), (second, after)] = recordings;
        assert!(first <= second);
        assert!(before.iter().all(|log| (first..second).contains(log)), "{before:?}");
        assert!(after.iter().all(|log| *log >= second), "{after:?}");
        let mut numbers: Vec<u64> = registered.iter().map(|(_, log)| *log).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), registered.len(), "two logs have one number");
    });
}
