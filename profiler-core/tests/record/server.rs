//! A server under load: requests start on client threads and are served by others, which replay graphs, while the logs are
//! drained and sessions stop.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cupti::Config;
use cupti::clock::now_ns;
use fake_cupti::{Fake, Work};
use nvtx::{Payload, ProcessRange};
use profiler_core::{Context, Health, Profile, Profiler, ProfilerBuilder};
use test_support::effort::is_thorough;

const THREADS: usize = 8;
const CLIENTS: usize = 2;
const QUEUED: usize = 32;
const NODES: u64 = 12;
const KERNELS: u64 = NODES + 1;
const KEPT: Duration = Duration::from_millis(300);
/// Requests that come while a session stops.
const MEANWHILE: u64 = 500;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Request {
    number: u64,
    submitted_ns: u64,
    life: ProcessRange,
    context: Context,
}

/// When a request was submitted, and when it was done.
#[derive(Debug, Clone, Copy)]
struct Served {
    number: u64,
    submitted_ns: u64,
    end_ns: u64,
}

#[derive(Default)]
struct Server {
    served: AtomicU64,
    allowed: AtomicU64,
    last: Mutex<VecDeque<Served>>,
    closed: AtomicBool,
}

impl Server {
    /// Runs `work` while requests are served.
    fn run<R>(&self, fake: &Fake, work: impl FnOnce() -> R) -> R {
        let (submit, requests) = sync_channel(QUEUED);
        let requests: Arc<Mutex<Receiver<Request>>> = Arc::new(Mutex::new(requests));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                let requests = requests.clone();
                scope.spawn(move || self.serve(fake, &requests));
            }
            for client in 0..CLIENTS as u64 {
                let submit = submit.clone();
                scope.spawn(move || {
                    for turn in 0.. {
                        let number = turn * CLIENTS as u64 + client;
                        if !self.may_come(number) {
                            break;
                        }
                        let submitted_ns = now_ns();
                        let _submit = nvtx::range("submit");
                        let life = nvtx::event("request").payload(number).process_range();
                        let context = Context::capture();
                        submit.send(Request { number, submitted_ns, life, context }).unwrap();
                    }
                });
            }
            drop((submit, requests));
            // A failed assertion must not leave the threads running.
            let result = catch_unwind(AssertUnwindSafe(work));
            self.closed.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn serve(&self, fake: &Fake, requests: &Mutex<Receiver<Request>>) {
        let nodes = vec![Work::kernel(c"node"); NODES as usize];
        let receive = || requests.lock().unwrap().recv();
        while let Ok(Request { number, submitted_ns, life, context }) = receive() {
            let _attached = context.attach();
            {
                let _serve = nvtx::event("serve").payload(number).within(&life).range();
                fake.launch(Work::kernel(c"prepare"));
                fake.launch_graph(&nodes);
            }
            drop(life);
            let mut last = self.last.lock().unwrap();
            last.push_back(Served { number, submitted_ns, end_ns: now_ns() });
            drop(last);
            self.served.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until a request may come; false once the server is closed.
    fn may_come(&self, number: u64) -> bool {
        while number >= self.allowed.load(Ordering::Relaxed) {
            if self.closed.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Waits until so many more requests were served, and lets more come. Their number bounds the work of a test, however slow
    /// the machine is.
    fn wait_for(&self, requests: u64) {
        let until = self.allowed.load(Ordering::Relaxed) + requests;
        self.allowed.store(until + MEANWHILE, Ordering::Relaxed);
        while self.served.load(Ordering::Relaxed) < until {
            std::thread::yield_now();
        }
    }
}

fn builder(fake: &Fake) -> ProfilerBuilder {
    Profiler::builder().library(fake.library().unwrap()).period(Duration::from_millis(1))
}

fn number(payload: Option<Payload>) -> u64 {
    match payload {
        Some(Payload::U64(number)) => number,
        other => panic!("a request without its number: {other:?}"),
    }
}

/// What a stop cuts through is open, and nothing else is lost.
fn assert_complete_but_for_open(health: &Health) {
    let requests = (QUEUED + CLIENTS + THREADS) as u64;
    assert!(health.facts.open_ranges <= 3 * requests, "{health}");
    assert!(health.losses.open_calls <= THREADS as u64, "{health}");
    let mut rest = health.clone();
    (rest.facts.open_ranges, rest.losses.open_calls) = (0, 0);
    rest.assert_complete();
}

/// Every request that lies within the window is there with all its work. Returns their number.
fn assert_whole(server: &Server, profile: &Profile, called_ns: u64) -> u64 {
    let [(from_ns, until_ns)] = profile.recording().unwrap().windows_ns()[..] else {
        panic!("more than one window");
    };
    assert!(until_ns >= called_ns && until_ns - from_ns <= KEPT.as_nanos() as u64);
    let serve = profile.ranges().filter(|range| range.name() == "serve");
    let kernels: HashMap<u64, u64> =
        serve.map(|range| (number(range.payload()), range.inclusive().kernels)).collect();
    let lives: HashMap<u64, bool> =
        profile.process_ranges().map(|life| (number(life.payload()), life.is_open())).collect();
    let open = lives.values().filter(|open| **open).count();
    assert!(open <= QUEUED + CLIENTS + THREADS, "{open} process ranges are open");
    let last = server.last.lock().unwrap();
    let within = |one: &&Served| from_ns < one.submitted_ns && one.end_ns < until_ns;
    let mut whole = 0;
    for one in last.iter().filter(within) {
        assert_eq!(kernels.get(&one.number), Some(&KERNELS), "{one:?} {from_ns} {until_ns}");
        assert_eq!(lives.get(&one.number), Some(&false), "{one:?} {from_ns} {until_ns}");
        whole += 1;
    }
    whole
}

#[test]
fn stop_under_load_has_its_last_part_whole() {
    let (_turn, fake) = (turn(), Fake::new());
    let server = Server::default();
    let profiler = builder(&fake).keep_last(KEPT).build().unwrap();
    let other = builder(&fake).keep_last(KEPT).build().unwrap();
    let summing = builder(&fake).build().unwrap().summarize().unwrap();
    profiler.start().unwrap();
    server.run(&fake, || {
        let (mut rounds, mut whole) = (0, 0);
        // Until a request was in time, as the machine may run no thread for as long as is kept.
        while rounds < if is_thorough() { 5 } else { 2 } || whole == 0 {
            rounds += 1;
            other.start().unwrap();
            // One after the other: each has its own window.
            for session in [&profiler, &other] {
                server.wait_for(500);
                let called_ns = now_ns();
                let profile = session.stop().unwrap();
                whole += assert_whole(&server, &profile, called_ns);
                assert_complete_but_for_open(profile.health());
            }
            profiler.start().unwrap();
        }
        server.wait_for(1_000);
    });
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.process_ranges().filter(|life| life.is_open()).count(), 0);
    let served = server.served.load(Ordering::Relaxed);
    let summary = summing.stop().unwrap();
    summary.health().assert_complete();
    let requests = summary.process_ranges().next().unwrap();
    assert_eq!((requests.instances(), requests.activations()), (served, served));
    assert_eq!((requests.host_time().count(), requests.gpu_time().count()), (served, served));
    assert_eq!(requests.inclusive().kernels, KERNELS * served);
}

/// As where requests launch faster than CUPTI writes records: a flush waits for CUPTI until the load is over.
#[test]
fn stop_under_load_ends_though_no_flush_returns() {
    let (_turn, fake) = (turn(), Fake::new());
    let server = Server::default();
    let limited = || {
        let config = Config::new().drain_timeout(Duration::from_millis(100));
        builder(&fake).config(config).keep_last(KEPT).build().unwrap()
    };
    let (profiler, other) = (limited(), limited());
    server.run(&fake, || {
        profiler.start().unwrap();
        other.start().unwrap();
        server.wait_for(100);
        fake.flush_takes(Duration::from_secs(3600));
        // Beside another session, and as the last one.
        for session in [&profiler, &other] {
            server.wait_for(100);
            let health = session.stop().unwrap().health().clone();
            assert!(health.losses.unfinished_buffers > 0 && !health.is_complete(), "{health}");
        }
        fake.flush_takes(Duration::ZERO);
        profiler.start().unwrap();
        server.wait_for(1000);
        assert_complete_but_for_open(profiler.stop().unwrap().health());
    });
}

#[test]
fn range_in_one_that_ended_before_the_time_kept_is_orphaned() {
    let (_turn, fake) = (turn(), Fake::new());
    let profiler = builder(&fake).keep_last(Duration::from_millis(20)).build().unwrap();
    fake.stop_clock();
    profiler.start().unwrap();
    let context = {
        let _submit = nvtx::range("submit");
        Context::capture()
    };
    fake.advance_clock(Duration::from_millis(25));
    let serve = || {
        let _attached = context.attach();
        let _serve = nvtx::range("serve");
        fake.launch(Work::kernel(c"kernel"));
    };
    std::thread::scope(|scope| scope.spawn(serve).join().unwrap());
    let profile = profiler.stop().unwrap();
    let read = Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    for profile in [profile, read] {
        profile.health().assert_complete();
        assert_eq!(
            (profile.health().facts.orphaned_ranges, profile.range("submit").is_some()),
            (1, false)
        );
        assert_eq!(profile.range("serve").unwrap().kernels(), 1);
    }
}

#[cfg(feature = "tracing")]
#[test]
fn requests_ended_on_other_threads_give_results() {
    use profiler_core::ProfilerLayer;
    use test_support::events;
    use tracing_subscriber::prelude::*;

    let (_turn, fake, keeps) = (turn(), Fake::new(), events::Keeps::default());
    let profiler = builder(&fake).keep_last(KEPT);
    let (layer, guard) = ProfilerLayer::builder().profiler(profiler).build().unwrap();
    let dispatch =
        tracing::Dispatch::new(tracing_subscriber::registry().with(layer).with(keeps.clone()));
    let server = Server::default();
    server.run(&fake, || server.wait_for(test_support::effort::rounds(10_000) as u64));
    let profile = guard.finish().unwrap();
    drop(dispatch);
    profile.health().assert_complete();
    let seen = keeps.take();
    let mut requests: Vec<u64> = Vec::new();
    for request in seen.iter().filter(|seen| seen.text("name") == "serve") {
        assert_eq!((request.number("kernels"), request.number("activations")), (KERNELS, 1));
        requests.push(request.number("payload"));
    }
    requests.sort_unstable();
    requests.dedup();
    assert_eq!(requests.len() as u64, server.served.load(Ordering::Relaxed));
}
