//! A thread that launches what others issue, by turns: each range keeps its own work.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use fake_cupti::{Fake, Work};
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::session::{HandOver, LaunchQueue};
use profiler_core::{Context, Profile, Profiler};

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static ISSUER: Cell<u64> = const { Cell::new(0) };
    /// A range of the device thread itself.
    static OWN: Cell<Option<nvtx::Range>> = const { Cell::new(None) };
}

fn lane() -> u64 {
    ISSUER.get()
}

enum Command {
    Run(Job),
    Launch(fn() -> Work),
}

/// A queue as frameworks have one: commands with the number of their issuer.
#[derive(Clone)]
struct Queue {
    commands: mpsc::Sender<(u64, Command)>,
    jobs: Arc<AtomicU64>,
}

impl Queue {
    fn send(&self, command: Command) {
        self.commands.send((lane(), command)).unwrap();
    }

    fn launch(&self, work: fn() -> Work) {
        self.send(Command::Launch(work));
    }
}

impl LaunchQueue for Queue {
    fn in_order(&self, job: Job) {
        assert!(ISSUER.get() != u64::MAX, "the queue of this issuer is broken");
        self.jobs.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Run(job));
    }

    fn lane() -> u64 {
        lane()
    }
}

/// Runs `issue` with a queue whose device thread runs commands until all handles are gone.
fn with_queue(fake: &Fake, issue: impl FnOnce(&Queue)) -> Profile {
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let program = || {
        let (commands, receive) = mpsc::channel();
        thread::scope(|scope| {
            let device = thread::Builder::new().name("device 0".into());
            let device = device.spawn_scoped(scope, move || {
                for (issuer, command) in receive {
                    ISSUER.set(issuer);
                    match command {
                        Command::Run(job) => job(),
                        Command::Launch(work) => {
                            fake.launch(work());
                            OWN.set(None);
                        }
                    }
                }
            });
            device.unwrap();
            issue(&Queue { commands, jobs: Arc::default() });
        });
    };
    profiler.record(program).unwrap().1
}

fn kernel() -> Work {
    Work::kernel(c"kernel")
}

/// Opens a range of the launching thread, for this launch alone: other issuers' jobs follow.
fn kernel_in_own_range() -> Work {
    OWN.set(Some(range("own")));
    kernel()
}

fn memset() -> Work {
    Work::memset(8)
}

fn handed(profile: &Profile) -> usize {
    let handed =
        |kernel: &profiler_core::profile::Kernel<'_>| kernel.attribution() == Attribution::Handed;
    profile.kernels().filter(handed).count()
}

#[test]
fn launches_of_a_device_thread_belong_to_the_ranges_handed_over_in_their_lane() {
    let fake = Fake::new();
    let profile = with_queue(&fake, |queue| {
        thread::scope(|scope| {
            for issuer in 1..=3 {
                let queue = queue.clone();
                scope.spawn(move || {
                    ISSUER.set(issuer);
                    for step in 0..100 {
                        let _range = range(["a", "b", "c"][issuer as usize - 1]);
                        let context = Context::capture();
                        queue.in_order(Box::new(move || context.hand_over(lane)));
                        (0..issuer).for_each(|_| queue.launch(kernel));
                        if step % 10 == 0 {
                            // A range of the launching thread's own comes first.
                            queue.launch(kernel_in_own_range);
                        }
                        queue.in_order(Box::new(|| Context::default().hand_over(lane)));
                        // In no range.
                        queue.launch(memset);
                    }
                });
            }
        });
    });
    profile.health().assert_complete();
    for (name, issuer) in [("a", 1), ("b", 2), ("c", 3)] {
        let range = profile.range(name).unwrap();
        assert_eq!(
            (range.instances(), range.kernels()),
            (100, 100 * issuer),
            "{name} of {profile}"
        );
    }
    assert_eq!(profile.range("own").unwrap().kernels(), 30);
    assert_eq!(profile.outside_ranges().memsets, 300);
    assert_eq!(handed(&profile), 600);
}

#[test]
fn ranges_of_a_hand_over_nest_and_end_in_order_with_their_work() {
    let fake = Fake::new();
    let profile = with_queue(&fake, |queue| {
        thread::scope(|scope| {
            for issuer in 1..=4 {
                let ranges = HandOver::new(queue.clone());
                scope.spawn(move || {
                    ISSUER.set(issuer);
                    for _ in 0..50 {
                        let _step = ranges.range(nvtx::event("step"));
                        ranges.queue().launch(kernel);
                        {
                            let _forward = ranges.range(nvtx::event("forward"));
                            (0..2).for_each(|_| ranges.queue().launch(kernel));
                        }
                        ranges.queue().launch(kernel);
                        // A plain range, handed over as a hook before launches would.
                        let _update = range("update");
                        ranges.update();
                        ranges.queue().launch(kernel);
                    }
                    ranges.update();
                    ranges.queue().launch(memset);
                    ranges.wait_launched();
                });
            }
        });
    });
    profile.health().assert_complete();
    let of = |path: &str| profile.range(path).unwrap().exclusive().kernels;
    assert_eq!(["step", "step/forward", "step/update"].map(of), [400, 400, 200]);
    assert_eq!((profile.outside_ranges().memsets, handed(&profile)), (4, 1000));
}

#[test]
fn hand_over_submits_a_job_only_if_the_context_changed() {
    let fake = Fake::new();
    let submitted = |queue: &Queue, f: &dyn Fn()| {
        let before = queue.jobs.load(Ordering::Relaxed);
        f();
        queue.jobs.load(Ordering::Relaxed) - before
    };
    let profile = with_queue(&fake, |queue| {
        let ranges = HandOver::new(queue.clone());
        // The lane may have been another thread's before.
        assert_eq!(submitted(queue, &|| (0..3).for_each(|_| ranges.update())), 1);
        let _a = range("a");
        assert_eq!(submitted(queue, &|| (0..3).for_each(|_| ranges.update())), 1);
        // Another lane on this thread has a hand-over of its own.
        ISSUER.set(2);
        assert_eq!(submitted(queue, &|| (0..3).for_each(|_| ranges.update())), 1);
        assert_eq!(submitted(queue, &|| ranges.hand_over(Context::default())), 1);
        // More lanes than the thread remembers: each is handed over again, and all are right.
        for lane in 3..3_000 {
            ISSUER.set(lane);
            assert_eq!(submitted(queue, &|| ranges.update()), 1);
            queue.launch(kernel);
        }
        ISSUER.set(0);
    });
    profile.health().assert_complete();
    assert_eq!((profile.range("a").unwrap().kernels(), handed(&profile)), (2_997, 2_997));
    // Without a session nothing is submitted at all.
    let (commands, _receive) = mpsc::channel();
    let queue = Queue { commands, jobs: Arc::default() };
    let ranges = HandOver::new(queue.clone());
    drop(ranges.range(nvtx::event("nobody")));
    assert_eq!(queue.jobs.load(Ordering::Relaxed), 0);
}

#[test]
fn panic_in_a_range_or_in_the_queue_leaves_no_wrong_range_behind() {
    let fake = Fake::new();
    let profile = with_queue(&fake, |queue| {
        let ranges = HandOver::new(queue.clone());
        ISSUER.set(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _module = ranges.range(nvtx::event("module"));
            queue.launch(kernel);
            panic!("in the module");
        }));
        assert!(panicked.is_err());
        // The next launch with a hook before it.
        ranges.update();
        queue.launch(memset);
        // The queue's own panic goes through, once.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            ISSUER.set(u64::MAX);
            let _module = ranges.range(nvtx::event("broken"));
        }));
        assert!(panicked.is_err());
        ISSUER.set(1);
    });
    profile.health().assert_complete();
    assert_eq!(profile.range("module").unwrap().kernels(), 1);
    assert_eq!(profile.outside_ranges().memsets, 1);
}

#[test]
fn wait_ends_when_the_device_thread_is_gone() {
    let (commands, receive) = mpsc::channel();
    let queue = Queue { commands, jobs: Arc::default() };
    let ranges = HandOver::new(queue.clone());
    // It takes the job and ends without running it.
    let ended = thread::spawn(move || drop(receive.recv()));
    ranges.wait_launched();
    ended.join().unwrap();
    assert_eq!(queue.jobs.load(Ordering::Relaxed), 1);
}

thread_local!(static FOLLOWS: RefCell<Option<HandOver<Queue>>> = const { RefCell::new(None) });

/// What a framework's package does once per process.
fn changed() {
    let in_queue = || {
        FOLLOWS.with_borrow(|ranges| ranges.as_ref().map(HandOver::update));
        // No call of this function.
        drop(range("of the hook"));
    };
    if FOLLOWS.with_borrow(Option::is_some) {
        in_queue();
    }
}

#[test]
fn plain_ranges_and_contexts_are_handed_over_by_a_hook_at_their_boundaries() {
    assert!(profiler_core::Context::on_change(changed));
    let fake = Fake::new();
    let profile = with_queue(&fake, |queue| {
        let outer = range("outer");
        let context = Context::capture();
        thread::scope(|scope| {
            for issuer in 1..=3 {
                let queue = queue.clone();
                scope.spawn(move || {
                    ISSUER.set(issuer);
                    FOLLOWS.set(Some(HandOver::new(queue.clone())));
                    for _ in 0..20 {
                        let _step = range("step");
                        queue.launch(kernel);
                        {
                            let _attached = context.attach();
                            queue.launch(kernel);
                            let _inner = range("inner");
                            queue.launch(kernel);
                        }
                        queue.launch(kernel);
                    }
                    queue.launch(memset);
                    FOLLOWS.take().unwrap().wait_launched();
                });
            }
        });
        drop(outer);
    });
    profile.health().assert_complete();
    let of = |path: &str| profile.range(path).unwrap().exclusive().kernels;
    assert_eq!(["step", "outer", "outer/inner"].map(of), [120, 60, 60]);
    assert_eq!((profile.outside_ranges().memsets, handed(&profile)), (3, 240));
}

#[test]
fn report_names_the_device_thread_if_the_ranges_of_others_have_no_work() {
    let fake = Fake::new();
    let run = |is_handed_over: bool| {
        with_queue(&fake, |queue| {
            thread::scope(|scope| {
                for issuer in 1..=5 {
                    let ranges = HandOver::new(queue.clone());
                    let user = thread::Builder::new().name(format!("user {issuer}"));
                    let user = user.spawn_scoped(scope, move || {
                        ISSUER.set(issuer);
                        let _step = range("step");
                        if is_handed_over {
                            ranges.update();
                        }
                        ranges.queue().launch(kernel);
                        ranges.wait_launched();
                    });
                    user.unwrap();
                }
            });
        })
    };
    let profile = run(false);
    let [found] = &profile.unattributed_threads()[..] else { panic!("{profile}") };
    assert_eq!(
        (found.thread.name, found.kernels, found.range_threads.len()),
        (Some("device 0"), 5, 5)
    );
    let report = profile.to_string();
    let line = report.lines().find(|line| line.contains("outside ranges,")).unwrap();
    assert!(
        line.contains("(device 0) launched 5 kernels outside ranges, while the ranges of thread "),
        "{line}"
    );
    assert!(line.contains(" and 2 others launched none: see docs/guide/frameworks.md"), "{line}");
    // Kernels of one issuer in ranges are enough to see that the hand-over works.
    let profile = run(true);
    assert_eq!(profile.unattributed_threads(), []);
    assert!(!profile.to_string().contains("outside ranges,"));
    // A program without any range needs none.
    let profile = with_queue(&fake, |queue| queue.launch(kernel));
    assert_eq!((profile.totals().kernels, profile.unattributed_threads().len()), (1, 0));
}
