//! What a program says of its ranges and marks comes back from the profile: domains, categories, colours, payloads,
//! fields, marks, ranges of the process and the stays in them; live, and from the bytes of a recording.
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::{Color, Domain, FieldValue, Instrument, Payload};
use profiler_core::Profiler;
use test_support::session::record;

static LIBRARY: Domain = Domain::new("library");
static OTHER: Domain = Domain::new("other");

#[test]
fn range_keeps_all_labels() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let math = LIBRARY.category("math");
        for i in 0..3u64 {
            let _range = LIBRARY
                .event("gemm")
                .category(math)
                .color(Color::GREEN)
                .payload(i)
                .field("flops", 2e9 * i as f64, "flop")
                .field("dtype", "bf16", "")
                .field("transposed", i == 1, "")
                .field("bytes", 96u32, "B")
                .field("offset", -4, "")
                .range();
            fake.launch(Work::kernel(c"gemm"));
        }
        drop(nvtx::range("gemm"));
        drop(OTHER.event("gemm").payload(-1.5f32).range());
    });
    for profile in profiles {
        profile.health().assert_complete();
        let ranges: Vec<_> = profile.ranges().collect();
        for (i, range) in ranges[..3].iter().enumerate() {
            assert_eq!((range.name(), range.domain()), ("gemm", Some("library")));
            assert_eq!((range.category(), range.color()), (Some("math"), Some(Color::GREEN)));
            assert_eq!(range.payload(), Some(Payload::U64(i as u64)));
            let fields: Vec<_> = range.fields().map(|f| (f.name, f.value, f.unit)).collect();
            let expected = [
                ("flops", FieldValue::F64(2e9 * i as f64), "flop"),
                ("dtype", FieldValue::Str("bf16"), ""),
                ("transposed", FieldValue::Bool(i == 1), ""),
                ("bytes", FieldValue::U64(96), "B"),
                ("offset", FieldValue::I64(-4), ""),
            ];
            assert_eq!(fields, expected);
            assert_eq!(range.field("bytes"), Some(FieldValue::U64(96)));
            assert_eq!(range.inclusive().kernels, 1);
        }
        let plain = ranges[3];
        assert_eq!((plain.domain(), plain.category(), plain.color()), (None, None, None));
        assert_eq!((plain.payload(), plain.fields().count()), (None, 0));
        assert_eq!(ranges[4].payload(), Some(Payload::F32(-1.5)));
        // One name in three domains is three nodes, and one question.
        let domains: Vec<_> =
            profile.roots().map(|node| (node.name(), node.domain(), node.instances())).collect();
        let expected =
            [("gemm", Some("library"), 3), ("gemm", None, 1), ("gemm", Some("other"), 1)];
        assert_eq!(domains, expected);
        assert_eq!(profile.range("gemm").unwrap().instances(), 5);
    }
}

#[test]
fn marks_know_when_and_where() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        nvtx::mark("outside");
        let _range = nvtx::range("step");
        LIBRARY.event("evicted").payload(4096u64).field("bytes", 4096u64, "B").mark();
        std::thread::spawn(|| nvtx::mark("elsewhere")).join().unwrap();
    });
    for profile in profiles {
        let marks: Vec<_> = profile
            .marks()
            .map(|mark| (mark.name(), mark.domain(), mark.range().map(|range| range.name())))
            .collect();
        let expected = [
            ("outside", None, None),
            ("evicted", Some("library"), Some("step")),
            ("elsewhere", None, None),
        ];
        assert_eq!(marks, expected);
        let evicted = profile.marks().nth(1).unwrap();
        assert_eq!(evicted.payload(), Some(Payload::U64(4096)));
        assert_eq!(evicted.field("bytes"), Some(FieldValue::U64(4096)));
        let step = profile.ranges().next().unwrap();
        assert!(evicted.at() >= step.start() && evicted.at() <= step.start() + step.host_time());
        let threads: Vec<_> = profile.marks().map(|mark| mark.thread_id()).collect();
        assert_eq!(threads[0], threads[1]);
        assert_ne!(threads[1], threads[2]);
    }
}

/// Counters, names, locks and deferred events are marks with fields.
#[test]
fn other_events_are_marks_with_fields() {
    use nvtx::counter::{Counter, Missing};
    use nvtx::deferred::{Deferred, DeferredRange};
    static MEMORY: Counter<i64> = Counter::new("memory").unit("B").in_domain(&LIBRARY);
    static DEVICE: Deferred = Deferred::new(nvtx::time::Clock::MONOTONIC);
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let _step = nvtx::range("step");
        MEMORY.sample(4096);
        MEMORY.missing(Missing::Unavailable);
        MEMORY.batch(&[(10, 8192)]);
        nvtx::name_thread(7, "worker");
        nvtx::cuda::runtime::name_stream(std::ptr::without_provenance_mut(0x10), "copies");
        LIBRARY.sync_object("lock").acquire().succeeded().release();
        let copy = nvtx::register("copy");
        DEVICE.ranges(&[DeferredRange::new(&copy, -1, 2)]);
    });
    for profile in profiles {
        let marks: Vec<_> = profile
            .marks()
            .map(|mark| {
                assert_eq!(mark.range().map(|range| range.name()), Some("step"));
                let field = |field: nvtx::Field| {
                    let value = match field.value {
                        FieldValue::U64(value) => value.to_string(),
                        FieldValue::I64(value) => format!("{value:+}"),
                        FieldValue::Str(value) => value.to_owned(),
                        other => format!("{other:?}"),
                    };
                    format!("{}={value}{}", field.name, field.unit)
                };
                let fields: Vec<_> = mark.fields().map(field).collect();
                format!(
                    "{}{}: {}",
                    mark.domain().unwrap_or_default(),
                    mark.name(),
                    fields.join(" ")
                )
            })
            .collect();
        assert_eq!(
            marks,
            [
                "librarymemory: counter=+4096B",
                "librarymemory: counter=unavailableB",
                "librarymemory: counter=+8192B time=+10",
                "worker: names=thread thread=7",
                "copies: names=stream stream=16",
                "librarylock: sync=acquire",
                "librarylock: sync=acquired",
                "librarylock: sync=release",
                "copy: clock=14 start=-1 end=+2",
            ]
        );
    }
}

#[test]
fn process_ranges_overlap_and_end_elsewhere() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let _around = nvtx::range("around");
        let first = LIBRARY.event("first").payload(7i64).process_range();
        let second = nvtx::process_range("second");
        std::thread::spawn(move || drop(first)).join().unwrap();
        drop(second);
        std::mem::forget(nvtx::process_range("never ends"));
    });
    for profile in profiles {
        let ranges: Vec<_> = profile.process_ranges().collect();
        let names: Vec<_> = ranges.iter().map(|range| range.name()).collect();
        assert_eq!(names, ["first", "second", "never ends"]);
        assert_eq!(
            (ranges[0].domain(), ranges[0].payload()),
            (Some("library"), Some(Payload::I64(7)))
        );
        assert_eq!(ranges[0].parent().unwrap().name(), "around");
        assert_ne!(ranges[0].end_thread_id(), Some(ranges[0].thread_id()));
        assert_eq!(ranges[1].end_thread_id(), Some(ranges[1].thread_id()));
        assert!(ranges[2].is_open() && ranges[2].end_thread_id().is_none());
        let end = |i: usize| ranges[i].start() + ranges[i].host_time();
        assert!(ranges[1].start() < end(0) && end(0) <= end(1));
        // Work is never put down to one by time.
        assert_eq!(ranges[0].inclusive(), Default::default());
        assert_eq!(profile.health().facts.open_ranges, 1);
    }
}

/// Is ready at the second poll.
#[derive(Default)]
struct Later(bool);

impl Future for Later {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

async fn task(fake: &Fake, kernels: usize) {
    for _ in 0..kernels {
        fake.launch(Work::kernel(c"before"));
    }
    Later::default().await;
    let _inner = nvtx::range("inner");
    fake.launch(Work::kernel(c"after"));
}

#[test]
fn polls_of_a_future_are_entries_of_its_lifetime() {
    let fake = Fake::new();
    let profiles = record(&fake, || {
        let (fake, context) = (&fake, &mut Context::from_waker(Waker::noop()));
        let mut one = pin!(task(fake, 1).in_range("task"));
        let mut ten = pin!(task(fake, 10).in_range("task"));
        assert!(one.as_mut().poll(context).is_pending());
        assert!(ten.as_mut().poll(context).is_pending());
        fake.launch(Work::kernel(c"of neither"));
        // The second half of one is polled on another thread.
        let (send, receive) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let context = &mut Context::from_waker(Waker::noop());
                assert!(one.as_mut().poll(context).is_ready());
                send.send(()).unwrap();
            });
            receive.recv().unwrap();
        });
        assert!(ten.as_mut().poll(context).is_ready());
    });
    for profile in profiles {
        profile.health().assert_complete();
        let lives: Vec<_> = profile.process_ranges().collect();
        assert_eq!(lives.len(), 2);
        assert_eq!(lives.iter().map(|life| life.inclusive().kernels).collect::<Vec<_>>(), [2, 11]);
        for life in &lives {
            let stays: Vec<_> = life.activations().collect();
            assert_eq!(stays.len(), 2);
            assert!(stays.iter().all(|stay| stay.name() == "task"));
            assert!(stays[0].start() < stays[1].start());
            let whole = stays[1].process_range().unwrap();
            assert_eq!((whole.start(), whole.name()), (life.start(), "task"));
            assert!(
                stays.iter().map(|stay| stay.host_time()).sum::<Duration>() <= life.host_time()
            );
        }
        let threads: Vec<_> = lives[0].activations().map(|stay| stay.thread_id()).collect();
        assert_ne!(threads[0], threads[1]);
        // The thread's own account is as it was: all polls are ranges of their threads.
        assert_eq!(profile.range("task").unwrap().kernels(), 13);
        assert_eq!(profile.totals().kernels, 14);
        let inner = profile.ranges().find(|range| range.name() == "inner").unwrap();
        assert!(
            inner.process_range().is_none() && inner.parent().unwrap().process_range().is_some()
        );
    }
}

#[test]
fn range_begun_before_the_session_is_excluded() {
    let fake = Fake::new();
    let early = nvtx::process_range("early");
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    let between = nvtx::process_range("between");
    drop(profiler.stop().unwrap());
    profiler.start().unwrap();
    drop(early);
    let stay = nvtx::event("a stay in a range of an earlier session").within(&between).range();
    drop(stay);
    drop(between);
    let profile = profiler.stop().unwrap();
    assert_eq!(
        (profile.process_ranges().count(), profile.health().losses.unknown_range_entries),
        (0, 0)
    );
    assert!(profile.ranges().next().unwrap().process_range().is_none());
    assert_eq!(profile.health().losses.lost_ranges, 0);
}
