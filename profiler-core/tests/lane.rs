//! A thread that launches what others issue, by turns: each range keeps its own work.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::cell::Cell;
use std::sync::mpsc;

use cupti::fake::{Fake, Work};
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Context, Profiler, set_lane};

thread_local!(static ISSUER: Cell<u64> = const { Cell::new(0) });

fn lane() -> u64 {
    ISSUER.get()
}

fn other_lane() -> u64 {
    ISSUER.get() + 1
}

#[test]
fn what_a_device_thread_launches_belongs_to_those_who_issued_it() {
    assert!(set_lane(lane) && set_lane(lane));
    assert!(!set_lane(other_lane), "a lane is set once");
    // Jobs may outlive any scope.
    let fake: &'static Fake = Box::leak(Box::new(Fake::new()));
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    type Job = Box<dyn FnOnce() + Send>;
    let (queue, jobs) = mpsc::channel::<(u64, Job)>();
    let ((), profile) = profiler
        .record(|| {
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for (issuer, job) in jobs {
                        ISSUER.set(issuer);
                        job();
                    }
                });
                for issuer in 1..=3 {
                    let queue = queue.clone();
                    scope.spawn(move || {
                        let submit = |job: Job| queue.send((issuer, job)).unwrap();
                        for step in 0..100 {
                            let _range = range(["a", "b", "c"][issuer as usize - 1]);
                            let context = Context::capture();
                            submit(Box::new(move || context.hand_over()));
                            for _ in 0..issuer {
                                submit(Box::new(|| _ = fake.launch(Work::kernel(c"kernel"))));
                            }
                            if step % 10 == 0 {
                                // A range of the launching thread's own comes first.
                                submit(Box::new(|| {
                                    let _own = range("own");
                                    fake.launch(Work::kernel(c"kernel"));
                                }));
                            }
                            submit(Box::new(|| Context::default().hand_over()));
                            // In no range.
                            submit(Box::new(|| _ = fake.launch(Work::memset(8))));
                        }
                    });
                }
                drop(queue);
            });
        })
        .unwrap();
    profile.health().assert_complete();
    for (name, issuer) in [("a", 1), ("b", 2), ("c", 3)] {
        let range = profile.range(name).unwrap();
        assert_eq!((range.instances(), range.kernels()), (100, 100 * issuer), "{name}");
    }
    assert_eq!(profile.range("own").unwrap().kernels(), 30);
    assert_eq!(profile.outside_ranges().memsets, 300);
    let handed = profile.kernels().filter(|kernel| kernel.attribution() == Attribution::Handed);
    assert_eq!(handed.count(), 600);
}
