//! A service that is always on, alone or beside a flight recorder, needs no more memory the longer it runs.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // the helpers are tests too

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use profiler_core::Profiler;
use profiler_core::session::FlightRecorder;
use profiler_core::session::always_on::AlwaysOn;
use test_support::folder;

/// Parts of the time.
const PARTS: usize = 8;
/// What fills up to its bound, however long that takes on a busy machine: the 16 MiB of the pool of buffers, which are in use bit by bit,
/// and the table of the last 262,144 ranges, which doubles from 10 to 20 MiB for the last of them.
const MOST: u64 = 32 << 20;
/// Some 50 bytes for each request of a part of 60 s. More than half of the parts grow by less; a leak grows in each.
const MOST_IN_A_PART: u64 = 2 << 20;

/// Bytes that the allocator has handed out.
fn handed_out() -> u64 {
    // SAFETY: asks the C library for its own counts.
    let allocator = unsafe { libc::mallinfo2() };
    (allocator.uordblks + allocator.hblkhd) as u64
}

/// Tests of this program run one at a time: what they compare is the process's.
static TURN: Mutex<()> = Mutex::new(());

/// The collection is on all the time.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn memory_of_a_service_beside_a_flight_recorder_is_flat() {
    memory_is_flat(true);
}

/// Each window turns the collection on and off.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn memory_of_a_service_that_is_always_on_is_flat() {
    memory_is_flat(false);
}

/// For a minute.
fn memory_is_flat(is_recorded: bool) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = folder::Folder::new();
    let part = Duration::from_secs(60) / PARTS as u32;
    let fake = Fake::new();
    let builder = || Profiler::builder().library(fake.library().unwrap());
    let settings = AlwaysOn::new().budget(0.1).rate(0.1);
    let service = builder().build().unwrap().always_on(&settings).unwrap();
    // A number, not a time: a busy machine changes how many there are in a second.
    let keep = builder().keep_last_operations(10_000).build().unwrap();
    let recorder = || keep.flight_recorder(&FlightRecorder::new(&folder.0).on_error()).unwrap();
    let recorder = is_recorded.then(recorder);
    let (mut least, mut requests) = (Vec::new(), 0_u64);
    for _ in 0..PARTS {
        let (start, mut bytes) = (Instant::now(), Vec::new());
        while start.elapsed() < part {
            for _ in 0..20 {
                let _unit = service.unit("request");
                let _answer = nvtx::event("answer").payload(requests).range();
                (0..4).for_each(|_| _ = fake.launch(Work::kernel(c"kernel")));
                requests += 1;
            }
            bytes.push(handed_out());
            std::thread::sleep(Duration::from_millis(2));
        }
        // A busy machine keeps the profiler's threads waiting at times, and a copy is written in between.
        bytes.sort_unstable();
        least.push(bytes[bytes.len() / 4]);
        if let Some(recorder) = &recorder {
            std::fs::remove_file(recorder.write().unwrap()).unwrap();
        }
    }
    let grown = least[PARTS - 1].saturating_sub(least[1]);
    let mut by_part: Vec<u64> =
        least.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    by_part.sort_unstable();
    let kib: Vec<u64> = least.iter().map(|bytes| bytes >> 10).collect();
    println!("{requests} requests, KiB by part: {kib:?}");
    assert!(grown < MOST, "{grown} bytes more: {kib:?} KiB by part, {requests} requests");
    let usual = by_part[by_part.len() / 2];
    assert!(
        usual < MOST_IN_A_PART,
        "{usual} bytes more in a part: {kib:?} KiB by part, {requests} requests"
    );
    if let Some(recorder) = recorder {
        recorder.stop().unwrap();
    }
    let report = service.stop().unwrap();
    assert!(report.counts().drawn > 0, "{report}");
    println!("{} windows", report.counts().drawn);
    assert_eq!(report.submissions(), 4 * requests, "{report}");
    report.recorded().health().assert_complete();
}
