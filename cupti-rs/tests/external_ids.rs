//! Ids of the program's own, and the calls that CUPTI ties to them. Against the fake.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use cupti::record::ExternalCorrelationKind as Kind;
use cupti::sys::abi::CuptiResult;
use cupti::{ActivityKind, Collected, Collector, Config, ExternalId, Library, Record};
use fake_cupti::{Fake, When, Work};

fn start(library: &Library, kinds: &[ActivityKind]) -> Collector {
    let config = kinds.iter().fold(Config::new(), |config, kind| config.add_kind(*kind));
    Collector::start(library, &config).unwrap()
}

/// Kind, id and call of each record.
fn ties(collected: &Collected) -> Vec<(Kind, u64, u32)> {
    let tie = |record| match record {
        Record::ExternalCorrelation(tie) => Some((tie.kind, tie.external_id, tie.correlation_id)),
        _ => None,
    };
    collected.records.iter().filter_map(tie).collect()
}

fn launch(fake: &Fake) -> u32 {
    fake.launch(Work::kernel(c"k"))
}

fn push(library: &Library, kind: Kind, id: u64) -> ExternalId<'_> {
    library.external_correlation(kind, id).unwrap()
}

#[test]
fn calls_are_tied_to_the_innermost_id_of_each_kind() {
    for version in [18, 26, 130_001] {
        let fake = Fake::builder().version(version).build();
        let library = fake.library().unwrap();
        let collector =
            start(&library, &[ActivityKind::DRIVER, ActivityKind::EXTERNAL_CORRELATION]);
        launch(&fake);
        let outer = push(&library, Kind::CUSTOM0, 77);
        let first = launch(&fake);
        let inner = push(&library, Kind::CUSTOM0, u64::MAX);
        let other = push(&library, Kind::CUSTOM1, 1);
        let second = launch(&fake);
        drop(inner);
        let third = launch(&fake);
        drop((outer, other));
        launch(&fake);
        let expected = [
            (Kind::CUSTOM0, 77, first),
            (Kind::CUSTOM0, u64::MAX, second),
            (Kind::CUSTOM1, 1, second),
            (Kind::CUSTOM0, 77, third),
            (Kind::CUSTOM1, 1, third),
        ];
        assert_eq!(ties(&collector.stop().unwrap()), expected, "{version}");
    }
}

#[test]
fn an_id_is_of_its_thread() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let collector = start(&library, &[ActivityKind::DRIVER, ActivityKind::EXTERNAL_CORRELATION]);
    let _here = push(&library, Kind::CUSTOM2, 1);
    let there = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            launch(&fake);
            let _there = push(&library, Kind::CUSTOM2, 2);
            launch(&fake)
        });
        thread.join().unwrap()
    });
    let here = launch(&fake);
    let expected = [(Kind::CUSTOM2, 2, there), (Kind::CUSTOM2, 1, here)];
    assert_eq!(ties(&collector.stop().unwrap()), expected);
}

#[test]
fn ids_require_records_of_calls() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let ids = |kinds: &[ActivityKind]| {
        let collector = start(&library, kinds);
        let _id = push(&library, Kind::CUSTOM0, 5);
        launch(&fake);
        fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"k"));
        ties(&collector.stop().unwrap()).len()
    };
    let (external, driver) = (ActivityKind::EXTERNAL_CORRELATION, ActivityKind::DRIVER);
    assert_eq!(ids(&[external]), 0);
    assert_eq!(ids(&[driver]), 0);
    assert_eq!(ids(&[external, driver]), 2);
    assert_eq!(ids(&[external, ActivityKind::RUNTIME]), 1);
}

#[test]
fn an_end_gives_the_id_that_was_taken_off() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let (first, second) = (push(&library, Kind::CUSTOM0, 1), push(&library, Kind::CUSTOM0, 2));
    assert_eq!(first.end().unwrap(), 2, "the second should have ended before it");
    assert_eq!(second.end().unwrap(), 1);
    push(&library, Kind::CUSTOM0, 3).end().unwrap();
    drop(push(&library, Kind::CUSTOM0, 4));
    assert_eq!(push(&library, Kind::CUSTOM0, 5).end().unwrap(), 5, "each ends once");
}

#[test]
fn refusal_names_its_source() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let error = library.external_correlation(Kind::INVALID, 1).unwrap_err();
    assert_eq!(error.code(), Some(CuptiResult::INVALID_PARAMETER.0));
    assert!(error.to_string().contains("cuptiActivityPushExternalCorrelationId"), "{error}");

    fake.fail("cuptiActivityPushExternalCorrelationId", CuptiResult::NOT_SUPPORTED, When::Once);
    let error = library.external_correlation(Kind::CUSTOM0, 1).unwrap_err();
    assert_eq!(error.code(), Some(CuptiResult::NOT_SUPPORTED.0));

    let id = push(&library, Kind::CUSTOM0, 1);
    fake.fail("cuptiActivityPopExternalCorrelationId", CuptiResult::QUEUE_EMPTY, When::Once);
    let error = id.end().unwrap_err();
    assert_eq!(error.code(), Some(18));
    assert!(error.to_string().contains("QUEUE_EMPTY"), "{error}");
    drop(fake);

    // One of another library's, after which there is none.
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let id = push(&library, Kind::CUSTOM0, 1);
    drop(fake);
    let _fake = Fake::new();
    assert_eq!(id.end().unwrap_err().code(), Some(18));
}

#[test]
fn forked_child_leaves_external_ids_unchanged() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let id = push(&library, Kind::CUSTOM0, 7);
    // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |error: cupti::Error| error.to_string().contains("forked");
        let ok = library.external_correlation(Kind::CUSTOM0, 1).is_err_and(forked)
            && id.end().is_err_and(forked);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: `child` is our child and `status` a live int.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child saw what it should");
    assert_eq!(id.end().unwrap(), 7);
}
