//! A session that is written to a file needs no more memory the longer it runs: not for work, ranges, texts, threads or
//! pauses.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::{Context, Profile, Profiler};
use test_support::folder;

/// Periods after which nothing grows any more, and those that are measured.
const WARM_UP: u64 = 300;
const MEASURED: u64 = 500;
/// Launches of a period.
const LAUNCHES: u64 = 20;
/// Growth by 8 bytes per launch or range is 290,000. Tables of the program's own names grow a little.
const MOST: u64 = 160 << 10;

/// Bytes that the allocator has handed out.
fn handed_out() -> u64 {
    // SAFETY: asks the C library for its own counts.
    let allocator = unsafe { libc::mallinfo2() };
    (allocator.uordblks + allocator.hblkhd) as u64
}

#[test]
fn memory_does_not_grow_with_the_session() {
    let folder = folder::Folder::new();
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let profiler = profiler.period(Duration::from_secs(3600)).build().unwrap();
    let file = profiler.record_to(folder.0.join("run.gpuprof")).unwrap();
    let mut open = Vec::new();
    let mut period = |number: u64| {
        // What is open from one period to the next is written once.
        open.drain(..).for_each(drop::<(nvtx::Range, nvtx::ProcessRange)>);
        for launch in 0..LAUNCHES {
            let text = format!("request {number} {launch}: {}", "x".repeat(100));
            let _range = nvtx::event("step").field("id", &*text, "").payload(launch).range();
            fake.launch(Work::kernel(c"kernel"));
        }
        let opened = |_| (range("open"), nvtx::process_range("open"));
        open.extend((0..LAUNCHES).map(opened));
        let life = nvtx::process_range("life");
        let context = {
            let _range = range("outer");
            Context::capture()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _attached = context.attach();
                let _range = nvtx::event("on a thread").within(&life).range();
                fake.launch(Work::kernel(c"kernel"));
                nvtx::mark("mark");
            });
        });
        file.pause().unwrap();
        file.resume().unwrap();
        file.flush().unwrap();
    };
    // The logs of a thread that has ended may be there still, or not.
    let mut least = |periods: std::ops::Range<u64>| {
        let held = |number| {
            period(number);
            handed_out()
        };
        let last = periods.end - periods.start - 100;
        periods.map(held).skip(last as usize).min().unwrap()
    };
    let before = least(0..WARM_UP);
    let grown = least(WARM_UP..WARM_UP + MEASURED).saturating_sub(before);
    assert!(grown < MOST, "{grown} bytes more after {MEASURED} periods");
    open.clear();
    let totals = file.finish().unwrap();
    assert_eq!(totals.operations, (WARM_UP + MEASURED) * (LAUNCHES + 1));
    let profile = Profile::load(folder.0.join("run.gpuprof")).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.kernels().count() as u64, totals.operations);
}
