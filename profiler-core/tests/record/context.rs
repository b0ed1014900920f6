//! Work that is handed to other threads counts for the range that handed it on.
use std::future::Future;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use fake_cupti::Work;
use nvtx::range;
use profiler_core::profile::Attribution;
use profiler_core::{Context, Profile, Profiler};
use test_support::session::record;

fn kernels(profile: &Profile, range: &str) -> (u64, u64) {
    let summary = profile.range(range).unwrap();
    (summary.exclusive().kernels, summary.kernels())
}

/// A device thread, as frameworks have one: it launches what others send it, and knows none of their ranges.
#[test]
fn a_launcher_thread_that_gets_its_work_through_a_channel() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let (send, receive) = mpsc::channel::<(Context, usize)>();
        let fake = &fake;
        thread::scope(|scope| {
            scope.spawn(move || {
                let _own = range("device thread");
                for (context, count) in receive {
                    let _attached = context.attach();
                    for _ in 0..count {
                        fake.launch(Work::kernel(c"queued"));
                    }
                    let _compile = range("compile");
                    fake.launch(Work::kernel(c"compiled"));
                }
                fake.launch(Work::kernel(c"of its own"));
            });
            for user in 0..3usize {
                let send = send.clone();
                scope.spawn(move || {
                    for i in 0..50 {
                        let name = format!("user {user}");
                        let _range = range(&name);
                        if i % 2 == 0 {
                            let _inner = range("inner");
                            send.send((Context::capture(), user + 1)).unwrap();
                        } else {
                            send.send((Context::capture(), user + 1)).unwrap();
                        }
                        // The range is over long before its work is launched.
                    }
                });
            }
            drop(send);
        });
    });
    for profile in profiles {
        profile.health().assert_complete();
        for user in 0..3u64 {
            let path = format!("user {user}");
            let queued = user + 1;
            assert_eq!(kernels(&profile, &path), (25 * queued, 50 * queued + 50));
            assert_eq!(
                kernels(&profile, &format!("{path}/inner")),
                (25 * queued, 25 * queued + 25)
            );
            assert_eq!(kernels(&profile, &format!("{path}/compile")), (25, 25));
            assert_eq!(kernels(&profile, &format!("{path}/inner/compile")), (25, 25));
        }
        assert_eq!(kernels(&profile, "device thread"), (1, 1));
        assert!(profile.range("device thread/compile").is_none());
        let count = |how| profile.operations().filter(|op| op.attribution() == how).count();
        // What is compiled is launched in a range of the device thread's own, which lies in the user's.
        assert_eq!((count(Attribution::Handed), count(Attribution::Launch)), (300, 151));
        assert_eq!(profile.totals().kernels, 451);
    }
}

#[test]
fn contexts_nest_and_are_put_aside_in_any_order() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let outer = range("outer");
        let first = Context::capture();
        let inner = range("inner");
        let second = Context::capture();
        drop(inner);
        drop(outer);
        thread::scope(|scope| {
            let fake = &fake;
            scope.spawn(move || {
                let worker = range("worker");
                let one = first.attach();
                fake.launch(Work::kernel(c"outer"));
                let two = second.attach();
                fake.launch(Work::kernel(c"inner"));
                drop(one);
                fake.launch(Work::kernel(c"inner"));
                let again = second.attach();
                drop(two);
                fake.launch(Work::kernel(c"inner"));
                drop(again);
                fake.launch(Work::kernel(c"worker"));
                // Its own range, over its own: work counts once.
                Context::capture().run(|| fake.launch(Work::kernel(c"worker")));
                drop(worker);
                fake.launch(Work::kernel(c"nowhere"));
                nvtx::mark("nowhere");
                first.run(|| nvtx::mark("outer"));
            });
        });
    });
    for profile in profiles {
        profile.health().assert_complete();
        assert_eq!(kernels(&profile, "outer"), (1, 4));
        assert_eq!(kernels(&profile, "outer/inner"), (3, 3));
        assert_eq!(kernels(&profile, "worker"), (2, 2));
        assert_eq!(profile.outside_ranges().kernels, 1);
        for kernel in profile.kernels() {
            let range = kernel.range().map_or("nowhere", |range| range.name());
            assert_eq!(kernel.name(), range);
        }
        for mark in profile.marks() {
            assert_eq!(mark.name(), mark.range().map_or("nowhere", |range| range.name()));
        }
    }
}

#[test]
fn closures_and_pools_propagate_the_context() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let _range = range("map");
        let context = Context::capture();
        let job = context.wrap(|| fake.launch(Work::kernel(c"job")));
        thread::scope(|scope| scope.spawn(job).join().map(drop)).unwrap();
        let each = context.wrap_each(|count: usize| {
            let _inner = range("item");
            (0..count).for_each(|_| {
                fake.launch(Work::kernel(c"item"));
            });
            count
        });
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        let sum: usize = (0..20usize).into_par_iter().map(each).sum();
        assert_eq!(sum, 190);
    });
    for profile in profiles {
        profile.health().assert_complete();
        assert_eq!(kernels(&profile, "map"), (1, 191));
        assert_eq!(kernels(&profile, "map/item"), (190, 190));
        assert_eq!(profile.range("item").unwrap().instances(), 20);
    }
}

/// The tasks borrow the fake, so they are not spawned: four threads each poll 25 of them in turn, on one runtime.
#[test]
fn tasks_keep_their_own_context() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let fake = &fake;
        let task = |number: usize| {
            let name = format!("request {number}");
            let _range = range(&name);
            Box::pin(Context::capture().follow(async move {
                for _ in 0..number % 25 {
                    fake.launch(Work::kernel(c"task"));
                    tokio::task::yield_now().await;
                }
            }))
        };
        thread::scope(|scope| {
            for worker in 0..4 {
                let handle = runtime.handle().clone();
                scope.spawn(move || {
                    let mut tasks: Vec<_> = (0..25).map(|i| task(worker * 25 + i)).collect();
                    handle.block_on(std::future::poll_fn(|context| {
                        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
                        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
                    }));
                });
            }
        });
    });
    for profile in profiles {
        profile.health().assert_complete();
        for request in 0..100u64 {
            assert_eq!(kernels(&profile, &format!("request {request}")).1, request % 25);
        }
        assert_eq!(profile.outside_ranges().kernels, 0);
    }
}

#[test]
fn context_without_its_session_has_no_effect() {
    let fake = fake_cupti::Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    assert!(Context::capture().is_empty());
    profiler.start().unwrap();
    let old = {
        let _range = range("first session");
        Context::capture()
    };
    assert!(!old.is_empty());
    drop(profiler.stop().unwrap());
    let _ended = old.attach();
    profiler.start().unwrap();
    old.run(|| fake.launch(Work::kernel(c"second")));
    {
        let _attached = Context::default().attach();
        let _range = range("second session");
        let _inside = old.attach();
        fake.launch(Work::kernel(c"second"));
    }
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!((profile.outside_ranges().kernels, kernels(&profile, "second session").0), (1, 1));
}

#[test]
fn context_attached_within_its_range_outlives_the_range() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let outer = range("outer");
        let context = Context::capture();
        let inner = range("inner");
        let attached = context.attach();
        drop(outer);
        fake.launch(Work::kernel(c"outer"));
        drop(attached);
        drop(inner);
    });
    for profile in profiles {
        let kernel = profile.kernels().next().unwrap();
        assert_eq!(kernel.range().unwrap().name(), "outer");
    }
}

#[test]
fn a_context_attached_twice_is_put_aside_in_any_order() {
    let fake = fake_cupti::Fake::new();
    let profiles = record(&fake, || {
        let context = {
            let _outer = range("outer");
            Context::capture()
        };
        let first = context.attach();
        let inner = range("inner");
        let second = context.attach();
        drop(first);
        fake.launch(Work::kernel(c"outer"));
        drop(second);
        drop(inner);
    });
    for profile in profiles {
        let kernel = profile.kernels().next().unwrap();
        assert_eq!(kernel.range().unwrap().name(), "outer");
    }
}
