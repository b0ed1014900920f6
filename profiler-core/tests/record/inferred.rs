//! Ranges that are inferred for work of threads without ranges: of the thread that waits meanwhile.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Context, Profile, Recording};
use test_support::processes::{as_process, recording};

/// A thread without ranges that launches on request, as autograd's device threads do.
struct Helper {
    send: Sender<usize>,
    done: Receiver<()>,
}

impl Helper {
    fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>, fake: &'scope Fake) -> Self {
        let ((send, receive), (finished, done)) = (channel(), channel());
        scope.spawn(move || {
            for kernels in receive {
                for _ in 0..kernels {
                    fake.launch(Work::kernel(c"backward").taking_ns(1_000));
                }
                finished.send(()).unwrap();
            }
        });
        Self { send, done }
    }

    fn begin(&self, kernels: usize) {
        self.send.send(kernels).unwrap();
    }

    fn wait(&self) {
        self.done.recv().unwrap();
    }

    /// Launches on the helper, and waits for that.
    fn run(&self, kernels: usize) {
        self.begin(kernels);
        self.wait();
    }
}

fn profile(program: impl FnOnce(&Fake)) -> Profile {
    Profile::from_recording(recording(program)).with_inferred_ranges()
}

fn inferred(profile: &Profile, path: &str) -> u64 {
    profile.range(path).unwrap().inferred().kernels
}

/// Three steps of PyTorch: the thread launches `forward`, and `loss` within `backward`, and waits.
fn train(fake: &Fake) {
    thread::scope(|scope| {
        let autograd = Helper::start(scope, fake);
        for _ in 0..3 {
            let _step = range("step");
            {
                let _forward = range("forward");
                (0..10).for_each(|_| _ = fake.launch(Work::kernel(c"forward")));
            }
            let _backward = range("backward");
            fake.launch(Work::kernel(c"ones"));
            autograd.run(20);
            fake.launch(Work::kernel(c"after"));
        }
    });
}

#[test]
fn work_of_a_helper_is_inferred_to_be_of_the_range_whose_thread_waits() {
    let recording = recording(train);
    let exact = Profile::from_recording(recording.clone());
    let profile = Profile::from_recording(recording).with_inferred_ranges();
    assert_eq!([inferred(&profile, "backward"), inferred(&profile, "step")], [60, 60]);
    assert_eq!(inferred(&profile, "forward"), 0);
    // Exact sums are as they are without it.
    assert_eq!(
        profile.range("step").unwrap().inclusive(),
        exact.range("step").unwrap().inclusive()
    );
    assert_eq!(profile.range("backward").unwrap().kernels(), 6);
    assert_eq!(
        (profile.outside_ranges(), profile.totals()),
        (exact.outside_ranges(), exact.totals())
    );
    assert_eq!(profile.outside_ranges().kernels, 60);
    let totals = profile.range("backward").unwrap().inferred();
    assert_eq!((totals.launches, totals.kernel_time()), (60, Duration::from_micros(60)));
    let health = profile.health();
    assert_eq!(
        (
            health.facts.inferred_operations,
            health.facts.inferred_calls,
            health.facts.undecided_calls
        ),
        (60, 60, 0)
    );
    assert!(
        health.is_complete() && health.to_string().contains("60 operations of inferred ranges")
    );
    assert_eq!(exact.health().facts.inferred_operations, 0);
    assert!(!exact.has_inferred_work() && exact.range("backward").unwrap().inferred().kernels == 0);
    for range in profile.ranges().filter(|range| range.name() == "backward") {
        assert_eq!((range.inferred().kernels, range.inferred_operations().count()), (20, 20));
        assert_eq!(range.inclusive().kernels, 2);
    }
}

#[test]
fn inferred_work_is_shown_and_queried_apart() {
    let profile = profile(train);
    let query = profile.query();
    assert_eq!(query.clone().in_range("backward").count(), 6);
    let both = query.clone().with_inferred();
    assert_eq!(both.clone().in_range("backward").count(), 66);
    assert_eq!(both.clone().in_range("step").count(), 96);
    assert_eq!(
        (both.clone().outside_ranges().count(), query.clone().outside_ranges().count()),
        (0, 60)
    );
    let by = |attribution| {
        both.clone().filter(move |operation| operation.attribution() == attribution).count()
    };
    assert_eq!(
        [by(Attribution::Inferred), by(Attribution::Launch), by(Attribution::None)],
        [60, 36, 0]
    );
    assert_eq!(both.by_range().get("step/backward").unwrap().count(), 66);
    assert_eq!(query.by_range().get("step/backward").unwrap().count(), 6);
    let node = profile.range_node("step/backward");
    assert_eq!(node.query().with_inferred().count(), 66);
    assert_eq!(node.ranges().next().unwrap().query().with_inferred().directly().count(), 22);
    for kernel in profile.kernels().filter(|kernel| kernel.name() == "backward") {
        assert_eq!((kernel.attribution(), kernel.range().is_none()), (Attribution::None, true));
        assert_eq!(kernel.inferred_range().unwrap().name(), "backward");
    }
    let report = profile.to_string();
    let line = report.lines().find(|line| line.contains("backward")).unwrap();
    let columns: Vec<_> = line.split_whitespace().rev().take(3).collect();
    assert_eq!(columns, ["60", "us", "60.00"], "{line}");
    assert!(
        report.contains("inferred: work outside any range that another thread launched"),
        "{report}"
    );
}

trait Node {
    fn range_node(&self, path: &str) -> profiler_core::profile::RangeNode<'_>;
}

impl Node for Profile {
    fn range_node(&self, path: &str) -> profiler_core::profile::RangeNode<'_> {
        self.walk().map(|(_, node)| node).find(|node| node.path() == path).unwrap()
    }
}

#[test]
fn innermost_range_of_the_waiting_thread_has_the_work_of_all_helpers() {
    let profile = profile(|fake| {
        thread::scope(|scope| {
            let devices = [(); 2].map(|()| Helper::start(scope, fake));
            let _outer = range("outer");
            (0..10).for_each(|_| _ = fake.launch(Work::kernel(c"own")));
            devices[0].run(3);
            let _inner = range("inner");
            devices.iter().for_each(|device| device.begin(20));
            devices.iter().for_each(Helper::wait);
        });
    });
    assert_eq!([inferred(&profile, "outer"), inferred(&profile, "inner")], [43, 40]);
}

/// Another thread in a range, which does nothing, may as well be the one that waits.
#[test]
fn two_waiting_threads_decide_nothing() {
    let profile = profile(|fake| {
        thread::scope(|scope| {
            let helper = Helper::start(scope, fake);
            let (open, opened) = channel();
            let (close, closed) = channel::<()>();
            scope.spawn(move || {
                let _accept = range("accept");
                open.send(()).unwrap();
                closed.recv().unwrap_or(());
            });
            opened.recv().unwrap();
            let _backward = range("backward");
            helper.run(20);
            drop(close);
        });
    });
    assert_eq!([inferred(&profile, "backward"), inferred(&profile, "accept")], [0, 0]);
    let health = profile.health();
    assert_eq!((health.facts.inferred_operations, health.facts.undecided_calls), (0, 20));
    let text = health.to_string();
    assert!(text.contains("20 calls outside ranges while several threads waited in one"), "{text}");
}

/// Each call of the helper falls into a call of the thread in the range.
#[test]
fn thread_that_works_meanwhile_is_not_waiting() {
    let profile = profile(|fake| {
        thread::scope(|scope| {
            let helper = Helper::start(scope, fake);
            let _loader = range("loader");
            fake.call_around("cuMemAlloc_v2", || helper.run(20));
        });
    });
    assert_eq!((inferred(&profile, "loader"), profile.health().facts.undecided_calls), (0, 0));
}

#[test]
fn waiting_thread_is_found_beside_one_that_works() {
    let profile = profile(|fake| {
        thread::scope(|scope| {
            let helper = Helper::start(scope, fake);
            let (begin, begun) = channel::<()>();
            let (end, ended) = channel();
            let worker = scope.spawn(move || {
                let _loader = range("loader");
                begun.recv().unwrap();
                fake.call_around("cuMemAlloc_v2", || {
                    helper.run(20);
                    end.send(()).unwrap();
                });
            });
            let _backward = range("backward");
            begin.send(()).unwrap();
            ended.recv().unwrap();
            worker.join().unwrap();
        });
    });
    assert_eq!([inferred(&profile, "backward"), inferred(&profile, "loader")], [20, 0]);
}

/// Work with a context, in a range of its own thread, or while no thread waits has no inferred range.
#[test]
fn nothing_is_inferred_for_work_that_has_a_range_or_no_waiter() {
    let profile = profile(|fake| {
        thread::scope(|scope| {
            let helper = Helper::start(scope, fake);
            helper.run(5);
            {
                let _over = range("over");
                fake.launch(Work::kernel(c"own"));
            }
            helper.run(5);
            let _waits = range("waits");
            let context = Context::capture();
            scope
                .spawn(move || context.run(|| _ = fake.launch(Work::kernel(c"handed"))))
                .join()
                .unwrap();
            let own = scope.spawn(|| {
                let _own = range("own");
                fake.launch(Work::kernel(c"own"));
            });
            own.join().unwrap();
            helper.run(1);
        });
    });
    assert_eq!([inferred(&profile, "over"), inferred(&profile, "own")], [0, 0]);
    assert_eq!(inferred(&profile, "waits"), 1);
    assert_eq!(profile.range("waits").unwrap().kernels(), 1);
}

#[test]
fn threads_of_other_processes_are_no_candidates() {
    // Both threads of each process wait; that of the other is no reason for doubt.
    let recordings = [1, 2].map(|id| as_process(&recording(train), id));
    let profile = Profile::from_recordings(recordings).unwrap().with_inferred_ranges();
    assert_eq!((inferred(&profile, "backward"), profile.health().facts.undecided_calls), (120, 0));
    let of = |id| profile.query().with_inferred().process(id).in_range("backward").count();
    assert_eq!([of(1), of(2)], [66, 66]);
}

#[test]
fn without_helpers_nothing_is_inferred() {
    let profile = profile(|fake| {
        let _range = range("range");
        fake.launch(Work::kernel(c"kernel"));
    });
    assert!(!profile.has_inferred_work() && !profile.to_string().contains("inferred"));
    let empty =
        Profile::from_recordings([Recording::from_bytes(&recording(|_| ()).to_bytes()).unwrap()]);
    assert!(!empty.unwrap().with_inferred_ranges().has_inferred_work());
}
