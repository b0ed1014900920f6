//! A program that does something of everything that a profile can hold.

use cupti::{ActivityKind, Version};
use fake_cupti::{Fake, Work, Written};
use nvtx::{Domain, range};
use profiler_core::{Profile, Profiler};

static LIBRARY: Domain = Domain::new("li\"brary\n");

/// In the fake's time, which is the program's.
pub fn fake() -> Fake {
    Fake::builder().clock_offset(0).build()
}

pub fn record(fake: &Fake, program: impl FnOnce()) -> Profile {
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.record(program).unwrap().1
}

/// An id that no call has.
const NO_CALL: u32 = 4_000_000_000;

/// A kernel at a time of its own.
fn kernel(fake: &Fake, place: (u32, u32, u32), (start, end): (u64, u64), correlation: u32) {
    use cupti::sys::generated::kernel::*;
    let record = Written::new(ActivityKind::CONCURRENT_KERNEL, Version(130_001)).unwrap();
    let record = record
        .set(START, start)
        .set(END, end)
        .set(DEVICE_ID, place.0)
        .set(CONTEXT_ID, place.1)
        .set(STREAM_ID, place.2)
        .set(CORRELATION_ID, correlation)
        .text(NAME, c"written");
    fake.write(&record);
}

/// Something of everything: threads, overlaps, marks, fields, graphs, what is open, failed, without time or duration.
pub fn everything() -> Profile {
    let fake = fake();
    record(&fake, || {
        let early = nvtx::process_range("request 1");
        let late = LIBRARY.event("request 2").payload(7u64).process_range();
        nvtx::mark("before");
        for i in 0..3u64 {
            let _step = range("step");
            let _load = LIBRARY
                .event("load")
                .payload(-1i64)
                .field("bytes", i, "B")
                .field("open", "a field called as one of ours", "")
                .field("ratio", f64::NAN, "")
                .range();
            fake.launch(Work::host_to_device(1 << 20).taking_ns(2_000));
            fake.launch(Work::memset(64).taking_ns(0));
            fake.launch(Work::kernel(c"_ZN4gemmIfEEvv").taking_ns(5_000));
            nvtx::mark("within");
            fake.launch_graph(&[
                Work::kernel(c"first").on_stream(9).taking_ns(300),
                Work::kernel(c"second").on_stream(9).taking_ns(400),
            ]);
        }
        drop(early);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::mem::forget(range("left open"));
                fake.launch(Work::kernel(c"elsewhere").on_stream(9));
                fake.call_only("cuLaunchKernel", 700);
            });
        });
        drop(late);
        // Ranges that end in the order they began.
        let (first, second) = (range("first"), range("second"));
        fake.launch(Work::synchronize());
        drop(first);
        drop(second);
        let now = cupti::clock::now_ns();
        kernel(&fake, (0, 1, 7), (now, now + 100), NO_CALL);
        kernel(&fake, (0, 1, 7), (now + 50, now + 150), NO_CALL);
        kernel(&fake, (0, 1, 7), (now + 60, now + 70), NO_CALL);
        kernel(&fake, (0, 2, 7), (now, now + 10), NO_CALL);
        kernel(&fake, (1, 3, 7), (now, now + 10), NO_CALL);
        while cupti::clock::now_ns() < now + 1_000 {}
        let launch = fake.call_only("cuLaunchKernel", 0);
        kernel(&fake, (0, 1, 7), (now + 200, now + 300), launch); // before its call
        kernel(&fake, (0, 1, 7), (now + 300, now + 350), NO_CALL);
        kernel(&fake, (0, 1, 7), (now + 350, now + 350), NO_CALL);
        fake.lose_timestamps();
        fake.launch(Work::kernel(c"timeless"));
        std::mem::forget(nvtx::process_range("never ends"));
    })
}
