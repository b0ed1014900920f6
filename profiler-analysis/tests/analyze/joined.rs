//! Work of several ranges counts for the first one and is linked to the others.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::{formats, profiler};
use cupti::Config;
use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_analysis::Format;
use profiler_analysis::prelude::*;
use profiler_core::profile::{Attribution, GpuOperation};
use profiler_core::{
    Context, Profile, Profiler, Range, Recording, Summary, at_most, exactly, expect,
};
use test_support::everything;

/// What is said of a program live, by the bytes of its recording, and by a session that keeps sums.
fn record(fake: &Fake, program: impl FnOnce()) -> ([Profile; 2], Summary) {
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.period(Duration::from_millis(1)).build().unwrap();
    profiler.start().unwrap();
    let sums = profiler.summarize().unwrap();
    program();
    let summary = sums.stop().unwrap();
    let recording = profiler.stop_recording().unwrap();
    let replayed = Recording::from_bytes(&recording.to_bytes()).unwrap();
    assert_eq!(replayed, recording);
    let profiles = [recording, replayed].map(Profile::from_recording);
    for profile in &profiles {
        profile.health().assert_complete();
        assert_eq!(profile.health().losses.unknown_range_entries, 0);
        assert_eq!(profile.health().losses.calls_in_unknown_ranges, 0);
        // No sum but `shared` knows that anything is shared.
        let mut totals = profile.outside_ranges();
        profile.roots().for_each(|root| totals += root.inclusive());
        assert_eq!(totals, profile.totals());
        for (_, node) in profile.walk() {
            let path = summary.paths().find(|path| path.path() == node.path()).unwrap();
            assert_eq!(path.shared(), node.shared(), "{}", node.path());
            assert_eq!(path.inclusive(), node.inclusive(), "{}", node.path());
            let exact = profile.range(&node.path()).unwrap().shared();
            if profile.walk().filter(|(_, other)| other.path().ends_with(&node.path())).count() == 1
            {
                assert_eq!(exact, node.shared(), "{}", node.path());
            }
        }
        for range in profile.ranges() {
            let shared = range.shared();
            assert_eq!(range.shared_operations().count() as u64, shared.gpu_operations());
        }
    }
    assert_eq!(summary.health().losses.calls_in_unknown_ranges, 0);
    (profiles, summary)
}

/// Counted and shared kernels and launches of all ranges of a path.
fn sums(profile: &Profile, path: &str) -> [u64; 4] {
    let range = profile.range(path).unwrap();
    let (own, shared) = (range.inclusive(), range.shared());
    [own.kernels, shared.kernels, own.launches, shared.launches]
}

fn names(ranges: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    ranges.map(|name| name.as_ref().to_owned()).collect()
}

fn owners(operation: &GpuOperation<'_>) -> Vec<String> {
    names(operation.ranges().map(|range| range.name()))
}

fn operation<'a>(profile: &'a Profile, name: &str) -> GpuOperation<'a> {
    *profile.kernels().find(|kernel| kernel.name() == name).unwrap()
}

fn only<'a>(profile: &'a Profile, name: &str) -> Range<'a> {
    let mut ranges = profile.ranges().filter(|range| range.name() == name);
    let range = ranges.next().unwrap();
    assert!(ranges.next().is_none(), "{name} is there twice");
    range
}

/// The context of a range that has ended.
fn context(name: &str) -> Context {
    let _range = range(name);
    Context::capture()
}

/// A device thread that launches one kernel for what two users asked for.
#[test]
fn a_launch_counts_for_the_first_and_is_shared_with_the_other() {
    let fake = Fake::new();
    let (profiles, _) = record(&fake, || {
        let (send, receive) = mpsc::channel::<Context>();
        thread::scope(|scope| {
            let fake = &fake;
            scope.spawn(move || {
                let _own = range("device thread");
                let contexts: Vec<Context> = receive.iter().collect();
                Context::join(contexts).run(|| {
                    fake.launch(Work::kernel(c"fused").taking_ns(700));
                    nvtx::mark("fused");
                    let _inner = range("tuning");
                    fake.launch(Work::memset(8).taking_ns(30));
                });
                fake.launch(Work::kernel(c"alone"));
            });
            let _model = range("model");
            let user = |name: &'static str| {
                let (send, context) = (send.clone(), Context::capture());
                let ask = move || {
                    let _range = range(name);
                    send.send(Context::capture()).unwrap();
                };
                scope.spawn(context.wrap(ask)).join().unwrap();
            };
            user("add");
            user("relu");
            drop(send);
        });
    });
    for profile in profiles {
        assert_eq!(sums(&profile, "add"), [1, 0, 1, 0]);
        assert_eq!(sums(&profile, "relu"), [0, 1, 0, 1]);
        // It is around both: there it counts, once.
        assert_eq!(sums(&profile, "model"), [1, 0, 1, 0]);
        assert_eq!(sums(&profile, "device thread"), [1, 0, 1, 0]);
        assert_eq!(profile.totals().kernels, 2);
        let relu = profile.range("model/relu").unwrap();
        let ns = Duration::from_nanos;
        assert_eq!((relu.shared().kernel_time(), relu.shared().memset_time()), (ns(700), ns(30)));
        assert_eq!(profile.range("model/add/tuning").unwrap().inclusive().memsets, 1);
        assert!(profile.has_shared_work());

        let fused = operation(&profile, "fused");
        assert_eq!(owners(&fused), ["add", "relu"]);
        assert!(fused.is_shared() && fused.call().unwrap().is_shared());
        assert_eq!(
            names(fused.call().unwrap().ranges().map(|range| range.name())),
            ["add", "relu"]
        );
        assert_eq!(fused.attribution(), Attribution::Handed);
        let alone = operation(&profile, "alone");
        assert_eq!((owners(&alone), alone.is_shared()), (vec!["device thread".to_owned()], false));
        let memset = profile.operations().find(|operation| operation.as_memset().is_some());
        assert_eq!(owners(&memset.unwrap()), ["tuning", "relu"]);

        let relu = only(&profile, "relu");
        assert_eq!(relu.shared_operations().count(), 2);
        assert_eq!(relu.shared_calls().count(), 2);
        assert!(relu.shared_operations().any(|shared| shared.number() == fused.number()));
        assert_eq!(only(&profile, "add").shared_operations().count(), 0);
        assert_eq!(profile.marks().next().unwrap().range().unwrap().name(), "add");
        let text = profile.to_string();
        assert!(text.contains("shared GPU"), "{text}");
        let text = profile.counts();
        assert!(
            text.contains("x relu: nothing; shared: 1 launches, 1 kernels, 1 memsets"),
            "{text}"
        );
        let lines = profile.json_lines();
        let shared: Vec<&str> = lines.lines().filter(|line| line.contains("\"shared\"")).collect();
        assert!(matches!(shared[..], [relu] if relu.contains("model/relu")), "{shared:?}");
        let trace = formats::text(&profile, Format::Chrome);
        assert_eq!(trace.matches(r#""shared with":"model/relu""#).count(), 2, "{trace}");

        expect(&profile)
            .range("relu")
            .kernels(exactly(0))
            .shared_kernels(exactly(1))
            .range("add")
            .kernels(exactly(1))
            .shared_kernels(exactly(0))
            .range("model/*")
            .shared_kernels(exactly(0))
            .range("model/*")
            .each()
            .shared_kernels(at_most(1))
            .whole_profile()
            .shared_kernels(exactly(0))
            .assert();
        let failed = expect(&profile).range("relu").kernels(exactly(1)).check().unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("not in it: 2 GPU operations that it shares"), "{text}");
        let failed = expect(&profile).range("relu").shared_kernels(exactly(0)).check().unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("kernels that count for other ranges: 1, the budget is"), "{text}");
        assert!(text.contains("1 x fused in model/add"), "{text}");
    }
}

#[test]
fn shared_work_counts_once_per_path_and_pattern() {
    let fake = Fake::new();
    let (profiles, _) = record(&fake, || {
        let mut contexts = Vec::new();
        for root in ["one", "one", "two", "two"] {
            let _root = range(root);
            contexts.push(Context::capture());
            for _ in 0..2 {
                let _step = range("step");
                contexts.push(Context::capture());
            }
        }
        // Ranges have ended, and come several times over.
        let all = Context::join(contexts.iter().chain(&contexts).copied());
        all.run(|| fake.launch(Work::kernel(c"all")));
        // The steps of "one", and within them each other.
        Context::join([contexts[1], contexts[2], contexts[5]])
            .run(|| fake.launch(Work::kernel(c"steps")));
        // One is around the other: nothing is shared but with itself.
        Context::join([contexts[1], contexts[0]]).run(|| fake.launch(Work::kernel(c"around")));
        Context::join([contexts[0], contexts[1]]).run(|| fake.launch(Work::kernel(c"within")));
    });
    for profile in profiles {
        expect(&profile).range("step").shared_kernels(exactly(2)).assert();
        expect(&profile).range("step").each().shared_kernels(at_most(2)).assert();
        assert_eq!(sums(&profile, "one"), [4, 0, 4, 0]);
        assert_eq!(sums(&profile, "two"), [0, 1, 0, 1]);
        assert_eq!(sums(&profile, "two/step"), [0, 1, 0, 1]);
        // "all" and "within" count for "one" itself.
        assert_eq!(sums(&profile, "one/step"), [2, 2, 2, 2]);
        assert_eq!(sums(&profile, "step"), [2, 2, 2, 2]);
        assert_eq!(sums(&profile, "*"), [4, 0, 4, 0]);
        assert_eq!(operation(&profile, "all").ranges().count(), 12);
        assert_eq!(owners(&operation(&profile, "around")), ["step", "one"]);
        let shared = |name: &str| -> Vec<u64> {
            let ranges = profile.ranges().filter(|range| range.name() == name);
            ranges.map(|range| range.shared().kernels).collect()
        };
        assert_eq!(shared("one"), [0, 2], "the second one has none of its own");
        assert_eq!(shared("two"), [1, 1]);
        // In the order they began: those of the first "one", of the second, of the two "two".
        assert_eq!(shared("step"), [2, 2, 1, 2, 1, 1, 1, 1]);
    }
}

#[test]
fn contexts_of_contexts_are_all_their_ranges() {
    let fake = Fake::new();
    let (profiles, _) = record(&fake, || {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(context);
        let pair = Context::join([b, a]);
        let all = Context::join([c, pair, b, Context::default(), Context::join([d, pair])]);
        all.run(|| fake.launch(Work::kernel(c"all")));
        // What was captured under it is the same once more, and a range in it shares with the others.
        let (again, inner) = all.run(|| {
            let again = Context::capture();
            let _inner = range("inner");
            (again, Context::capture())
        });
        assert_eq!(again, all);
        again.run(|| fake.launch(Work::kernel(c"all")));
        let further = inner.run(|| {
            let _deeper = range("deeper");
            Context::capture()
        });
        thread::scope(|scope| {
            scope.spawn(further.wrap(|| fake.launch(Work::kernel(c"deeper"))));
        });
        Context::join([a, inner]).run(|| fake.launch(Work::kernel(c"mixed")));
        // Of one it is that one, and of none it is none.
        assert_eq!(Context::join([a, a]), a);
        assert!(Context::join([]).is_empty() && Context::join([Context::default()]).is_empty());
        Context::join([Context::default()]).run(|| fake.launch(Work::kernel(c"nowhere")));
    });
    for profile in profiles {
        let of = |name: &str| owners(&operation(&profile, name));
        assert_eq!(of("all"), ["c", "b", "a", "d"]);
        assert_eq!(of("deeper"), ["deeper", "b", "a", "d"]);
        assert_eq!(of("mixed"), ["a", "inner", "b", "d"]);
        assert!(of("nowhere").is_empty());
        assert_eq!(sums(&profile, "c"), [3, 1, 3, 1]);
        assert_eq!(sums(&profile, "c/inner/deeper"), [1, 0, 1, 0]);
        assert_eq!(sums(&profile, "c/inner"), [1, 1, 1, 1]);
        assert_eq!(sums(&profile, "a"), [1, 3, 1, 3]);
        assert_eq!(sums(&profile, "b"), [0, 4, 0, 4]);
        assert_eq!(sums(&profile, "d"), [0, 4, 0, 4]);
        assert_eq!(profile.totals().kernels, 5);
        assert_eq!(profile.outside_ranges().kernels, 1);
    }
}

#[test]
fn a_graph_and_calls_without_work_are_shared_too() {
    let fake = Fake::new();
    let (profiles, _) = record(&fake, || {
        let _both = Context::join([context("first"), context("second")]).attach();
        fake.launch_graph(&[Work::kernel(c"node"), Work::memset(16)]);
        fake.launch(Work::synchronize());
        fake.call_only("cuMemAlloc_v2", 0);
        fake.call_only("cuLaunchKernel", 700);
        fake.launch_with(&Work::host_to_device(4), fake_cupti::Arrival::AfterCall);
    });
    for profile in profiles {
        let (first, second) = (profile.range("first").unwrap(), profile.range("second").unwrap());
        let (mut own, mut shared) = (first.inclusive(), second.shared());
        assert_eq!((own.launches, own.kernels, own.memsets, own.copies), (1, 1, 1, 1));
        // Host times are read off different clocks nowhere: they are the same calls.
        assert_eq!(own, shared);
        assert_eq!((own.synchronizations, own.allocations, own.failed_calls), (1, 1, 1));
        (own, shared) = (first.shared(), second.inclusive());
        assert_eq!((own, shared), Default::default());
    }
}

#[test]
fn contexts_of_another_session_are_left_out() {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let two = || ["a", "b"].map(context);
    assert!(Context::join(two()).is_empty());
    profiler.start().unwrap();
    let old = two();
    let joined = Context::join(old);
    assert!(!joined.is_empty() && joined != old[0]);
    drop(profiler.stop().unwrap());
    assert!(Context::join(old).is_empty());
    profiler.start().unwrap();
    joined.run(|| fake.launch(Work::kernel(c"old")));
    let [a, _] = two();
    assert_eq!(Context::join([old[0], joined, a]), a);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!((profile.outside_ranges().kernels, profile.has_shared_work()), (1, false));
}

#[test]
fn last_part_has_links_from_before_it() {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let profiler = profiler.keep_last(Duration::from_millis(200)).period(Duration::from_millis(5));
    let profiler = profiler.build().unwrap();
    fake.stop_clock();
    profiler.start().unwrap();
    let outer = range("outer");
    let first = Context::capture();
    let inner = range("inner");
    let second = Context::capture();
    let third = context("ended");
    let (two, three) = (Context::join([first, second]), Context::join([second, first, third]));
    // Three times what the session keeps: the parts of the logs in which these ranges began are dropped.
    for _ in 0..2 {
        fake.advance_clock(Duration::from_millis(300));
        drop(profiler.snapshot().unwrap());
    }
    two.run(|| fake.launch(Work::kernel(c"of two")));
    three.run(|| fake.launch(Work::kernel(c"of three")));
    let profile = profiler.stop().unwrap();
    drop((inner, outer));
    assert_eq!(owners(&operation(&profile, "of two")), ["outer", "inner"]);
    assert_eq!(owners(&operation(&profile, "of three")), ["inner", "outer"]);
    assert_eq!(profile.health().losses.calls_in_unknown_ranges, 1);
    assert_eq!(profile.health().accounts.kernels.matched_records, 2);
}

#[test]
fn snapshot_and_later_session_have_the_links() {
    let fake = Fake::new();
    let profiler = profiler(&fake, Config::new());
    profiler.start().unwrap();
    let outer = range("outer");
    let first = Context::capture();
    let others = ["b", "c", "d"].map(context);
    let joined = Context::join([first].into_iter().chain(others));
    let _opened = joined.run(|| range("opened"));
    // A session that begins now has not seen any of it but in what is left.
    let later = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    later.start().unwrap();
    joined.run(|| fake.launch(Work::kernel(c"fused")));
    fake.launch(Work::kernel(c"in opened"));
    let snapshot = profiler.snapshot().unwrap();
    assert_eq!(owners(&operation(&snapshot, "fused")), ["outer", "b", "c", "d"]);
    assert_eq!(owners(&operation(&snapshot, "in opened")), ["opened", "b", "c", "d"]);
    assert_eq!(snapshot.range("c").unwrap().shared().kernels, 2);
    drop(outer);
    let profile = later.stop().unwrap();
    // Those that ended before it began are not in it, which is counted.
    assert_eq!(owners(&operation(&profile, "fused")), ["outer"]);
    assert_eq!(profile.health().losses.calls_in_unknown_ranges, 1);
    profiler.stop().unwrap();
}

thread_local!(static ISSUER: Cell<u64> = const { Cell::new(0) });

#[test]
fn work_of_several_issuers_belongs_to_each() {
    let fake = Fake::new();
    let profile = everything::record(&fake, || {
        let fused = Context::join([context("a"), context("b")]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ISSUER.set(1);
                fused.hand_over(|| ISSUER.get());
                fake.launch(Work::kernel(c"both"));
                ISSUER.set(2);
                fake.launch(Work::kernel(c"nobody"));
                ISSUER.set(1);
                fake.launch(Work::kernel(c"both"));
                Context::default().hand_over(|| ISSUER.get());
                fake.launch(Work::kernel(c"nobody"));
            });
        });
    });
    profile.health().assert_complete();
    for kernel in profile.kernels() {
        let of: Vec<&str> = kernel.ranges().map(|range| range.name()).collect();
        assert_eq!(of, if kernel.name() == "both" { &["a", "b"][..] } else { &[] });
    }
    let (a, b) = (profile.range("a").unwrap(), profile.range("b").unwrap());
    assert_eq!((a.kernels(), b.kernels(), b.shared().kernels), (2, 0, 2));
}
