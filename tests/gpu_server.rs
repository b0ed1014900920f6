//! An inference server under load, recorded in each way: the last second, sums, both at once, and everything.
//!
//! Two client threads submit requests to a bounded queue. Eight GPU threads take them out, each with a stream and a CUDA
//! graph of its own. A request is a range of the process that starts on a client and ends on a GPU thread; the range in
//! which it was submitted goes along as a [`Context`].
//!
//! `GPU_SERVER_SECONDS` is the length of each recording (default 3; 60 for the proof in the documents). The recording of
//! everything takes at most 10 s: at 28,000 requests a second it needs some 150 MB a second, and its profile more.
//! `GPU_SERVER_RATE` limits the requests a second (default 28,000).
//! Run with `cargo test --release -p gpu-profiler-tests --test gpu_server`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that prints what it measured

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cupti::Config;
use cupti::clock::now_ns;
use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use nvtx::{Payload, ProcessRange};
use profiler_core::session::Summarizing;
use profiler_core::{Context, Health, Profile, Profiler, Summary};

const GPU_THREADS: usize = 8;
const CLIENTS: usize = 2;
const QUEUED: usize = 64;
/// Requests that are late by up to this are made up for.
const LONGEST_BURST: Duration = Duration::from_millis(1);
/// Nodes of the graph that a request replays.
const NODES: u64 = 12;
/// Kernels that a request launches one by one.
const PLAIN: u64 = 3;
const KERNELS: u64 = NODES + PLAIN;
/// Copies of a request: one in, one out.
const COPIES: u64 = 2;
const BYTES: usize = 4096;

const KEPT: Duration = Duration::from_secs(1);
/// Served requests that a GPU thread remembers: more than it serves in the kept time.
const REMEMBERED: usize = 50_000;
/// Longest recording of everything.
const EVERYTHING: Duration = Duration::from_secs(10);

/// The most that CUPTI itself keeps of a launch in a process that has captured a graph (docs/measurements).
const CUPTI_BYTES_PER_LAUNCH: u64 = 40;
/// What the allocator may keep of the profiles that are made under load.
const ALLOCATOR_BYTES: u64 = 256 << 20;

fn main() -> ExitCode {
    harness::run_optimized(&[
        ("the_last_second_is_kept", the_last_second_is_kept),
        ("sums_are_exact", sums_are_exact),
        ("the_last_second_and_sums_at_once", the_last_second_and_sums_at_once),
        ("everything_is_kept", everything_is_kept),
        ("stop_ends_though_cupti_falls_behind", stop_ends_though_cupti_falls_behind),
    ])
    .exit_code()
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap())
}

fn seconds() -> Duration {
    Duration::from_secs(variable("GPU_SERVER_SECONDS", 3))
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A request on its way to a GPU thread.
struct Request {
    id: u64,
    /// Just before its process range started.
    submitted_ns: u64,
    life: ProcessRange,
    context: Context,
}

/// Bounds of a request's life.
#[derive(Debug, Clone, Copy)]
struct Served {
    id: u64,
    submitted_ns: u64,
    /// Just after its process range ended.
    end_ns: u64,
}

/// What the program counts of itself.
struct Server {
    served: AtomicU64,
    /// When each request that a GPU thread served last was served, by GPU thread.
    last: Vec<Mutex<VecDeque<Served>>>,
    /// Whether CUPTI fell behind the load at some stop.
    fell_behind: AtomicBool,
}

/// Memory while the server ran.
#[derive(Debug, Default)]
struct Memory {
    at_a_third: u64,
    most: u64,
    at_the_end: u64,
}

impl Memory {
    /// Watches it for a time, and calls `work` six times at even distances. A call that takes long makes the whole longer.
    fn watch(&mut self, length: Duration, mut work: impl FnMut()) {
        for part in 1..=7 {
            let begun = Instant::now();
            while begun.elapsed() < length / 7 {
                self.most = self.most.max(resident());
                std::thread::sleep(Duration::from_millis(50));
            }
            if part < 7 {
                work();
            }
            if part <= 2 {
                self.at_a_third = self.at_a_third.max(resident());
                self.most = self.at_a_third;
            }
        }
    }
}

impl Server {
    /// Runs a server for a time. `work` is called in between, six times at even distances.
    fn run(length: Duration, work: impl FnMut(&Server)) -> (Server, Memory) {
        Self::run_at(variable("GPU_SERVER_RATE", 28_000), length, work)
    }

    /// The same with so many requests a second at most.
    fn run_at(rate: u64, length: Duration, mut work: impl FnMut(&Server)) -> (Server, Memory) {
        let gpu = Gpu::get();
        let last = || Mutex::new(VecDeque::with_capacity(REMEMBERED));
        let last = (0..GPU_THREADS).map(|_| last()).collect();
        let (served, fell_behind) = Default::default();
        let server = Server { served, last, fell_behind };
        let closed = AtomicBool::new(false);
        let (submit, requests) = sync_channel(QUEUED);
        let requests = Arc::new(Mutex::new(requests));
        let mut memory = Memory::default();
        let watched = std::thread::scope(|scope| {
            for thread in 0..GPU_THREADS {
                let (gpu, server, requests) = (gpu.clone(), &server, requests.clone());
                scope.spawn(move || server.serve(&gpu, thread, &requests));
            }
            for client in 0..CLIENTS as u64 {
                let (submit, closed) = (submit.clone(), &closed);
                scope.spawn(move || submit_requests(client, rate, &submit, closed));
            }
            // The queue ends with its last client, and so does a client when no GPU thread is left.
            drop((submit, requests));
            // A failed assertion must not leave the threads running.
            let watched = catch_unwind(AssertUnwindSafe(|| memory.watch(length, || work(&server))));
            closed.store(true, Ordering::Relaxed);
            watched
        });
        memory.at_the_end = resident();
        let served = server.served.load(Ordering::Relaxed);
        eprintln!(
            "{length:?}: {served} requests, {:.0} a second, {} kernels; resident {} MiB after a third, at most {} MiB \
             since, {} MiB at the end",
            served as f64 / length.as_secs_f64(),
            served * KERNELS,
            memory.at_a_third >> 20,
            memory.most >> 20,
            memory.at_the_end >> 20,
        );
        if let Err(panic) = watched {
            resume_unwind(panic);
        }
        assert!(served > 1000 * length.as_secs(), "{served} requests");
        (server, memory)
    }

    fn serve(&self, gpu: &Gpu, thread: usize, requests: &Mutex<Receiver<Request>>) {
        gpu.make_current();
        let stream = gpu.stream();
        let memory = gpu.alloc(BYTES);
        let host = gpu.pinned(BYTES);
        let capture = || (0..NODES).for_each(|_| gpu.launch_empty(stream));
        let graph = gpu.capture(stream, capture);
        let receive = || requests.lock().unwrap().recv();
        while let Ok(Request { id, submitted_ns, life, context }) = receive() {
            let _attached = context.attach();
            {
                let _serve = nvtx::event("serve").payload(id).within(&life).range();
                gpu.copy_in_async(memory, host, BYTES, stream);
                {
                    let _prepare = nvtx::range("prepare");
                    (0..PLAIN).for_each(|_| gpu.launch_empty(stream));
                }
                {
                    let _infer = nvtx::range("infer");
                    gpu.launch_graph(graph, stream);
                }
                gpu.copy_out_async(host, memory, BYTES, stream);
                // Every second thread answers in batches.
                if thread.is_multiple_of(2) || id.is_multiple_of(16) {
                    let _wait = nvtx::range("wait");
                    gpu.synchronize(stream);
                }
            }
            drop(life);
            let mut last = self.last[thread].lock().unwrap();
            if last.len() == REMEMBERED {
                last.pop_front();
            }
            last.push_back(Served { id, submitted_ns, end_ns: now_ns() });
            drop(last);
            self.served.fetch_add(1, Ordering::Relaxed);
        }
        gpu.synchronize(stream);
        gpu.destroy_graph(graph);
        gpu.free(memory);
        gpu.destroy(stream);
    }

    /// The requests that were submitted and served between two times.
    fn served_within(&self, from_ns: u64, until_ns: u64) -> Vec<Served> {
        let mut served = Vec::new();
        for last in &self.last {
            let last = last.lock().unwrap();
            let oldest = last.front().map_or(0, |first| first.end_ns);
            assert!(last.len() < REMEMBERED || oldest < from_ns, "REMEMBERED is too small");
            let within = |one: &&Served| from_ns < one.submitted_ns && one.end_ns < until_ns;
            served.extend(last.iter().filter(within));
        }
        served
    }
}

fn submit_requests(client: u64, rate: u64, submit: &SyncSender<Request>, closed: &AtomicBool) {
    let rate = rate.max(CLIENTS as u64);
    let step = Duration::from_secs(CLIENTS as u64) / u32::try_from(rate).unwrap();
    let mut next = Instant::now();
    for number in 0.. {
        if closed.load(Ordering::Relaxed) {
            break;
        }
        next += step;
        // A pause of the server is not followed by a burst at full speed, in which CUPTI may fall behind.
        next = next.max(Instant::now() - LONGEST_BURST);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let id = number * CLIENTS as u64 + client;
        let submitted_ns = now_ns();
        let _submit = nvtx::range("submit");
        let life = nvtx::event("request").payload(id).process_range();
        let request = Request { id, submitted_ns, life, context: Context::capture() };
        submit.send(request).unwrap();
    }
}

/// A stop while the server goes on may cut through requests and calls that are under way, of which there are few. Where CUPTI
/// fell behind the load the stop gives up on what CUPTI holds, and says so. Beyond that nothing is lost.
fn assert_complete_but_for_open(health: &Health) {
    let on_their_way = (QUEUED + CLIENTS + GPU_THREADS) as u64;
    let ranges = on_their_way + (2 * CLIENTS + 3 * GPU_THREADS) as u64;
    assert!(health.facts.open_ranges <= ranges, "{health}");
    assert!(health.losses.open_calls <= GPU_THREADS as u64, "{health}");
    let mut rest = health.clone();
    (rest.facts.open_ranges, rest.losses.open_calls) = (0, 0);
    if rest.losses.unfinished_buffers > 0 {
        eprintln!("CUPTI fell behind the load");
        assert!(!rest.is_complete(), "{rest}");
        // Records in such buffers may lack their timestamps.
        (rest.losses.unfinished_buffers, rest.losses.zero_timestamps) = (0, 0);
        (
            rest.accounts.kernels,
            rest.accounts.copies,
            rest.accounts.memsets,
            rest.accounts.synchronizations,
        ) = Default::default();
        rest.facts.silent_graph_launches = 0;
    }
    rest.assert_complete();
}

fn id(payload: Option<Payload>) -> u64 {
    match payload {
        Some(Payload::U64(id)) => id,
        other => panic!("a request without its number: {other:?}"),
    }
}

/// Every request that lies within the profile's window is there once, with all its work, and so is its process range.
fn assert_whole(server: &Server, profile: &Profile, called_ns: u64) {
    let windows_ns = profile.recording().unwrap().windows_ns().to_vec();
    let [(from_ns, until_ns)] = windows_ns[..] else { panic!("{windows_ns:?}") };
    let late = until_ns.saturating_sub(called_ns);
    assert!(until_ns >= called_ns, "the window ends before the stop was called");
    let mut kernels: HashMap<u64, (u64, u64)> = HashMap::new();
    for range in profile.ranges().filter(|range| range.name() == "serve") {
        let totals = range.inclusive();
        let before = kernels.insert(id(range.payload()), (totals.kernels, totals.copies));
        assert!(before.is_none(), "a request is there twice");
    }
    let mut lives: HashMap<u64, (bool, bool)> = HashMap::new();
    for range in profile.process_ranges() {
        let elsewhere = range.end_thread_id().is_some_and(|end| end != range.thread_id());
        let before = lives.insert(id(range.payload()), (range.is_open(), elsewhere));
        assert!(before.is_none(), "a process range is there twice");
    }
    let served = server.served_within(from_ns, until_ns);
    let is_behind = profile.health().losses.unfinished_buffers > 0;
    for one in served.iter().filter(|_| !is_behind) {
        assert_eq!(kernels.get(&one.id), Some(&(KERNELS, COPIES)), "{one:?} in {windows_ns:?}");
        assert_eq!(lives.get(&one.id), Some(&(false, true)), "{one:?} in {windows_ns:?}");
    }
    let open = lives.values().filter(|(open, _)| *open).count();
    eprintln!(
        "stop: window of {:.3} s that ends {:.1} us after the call; {} requests whole, {} in part; {open} process ranges \
         open; {}",
        (until_ns - from_ns) as f64 / 1e9,
        late as f64 / 1e3,
        served.len(),
        kernels.len() - served.len(),
        profile.health(),
    );
    // The stop may wait for a calling thread to be scheduled, not for the profiler's own work.
    assert!(late < 10_000_000, "the window ends {late} ns after the stop was called");
    assert!(until_ns - from_ns <= KEPT.as_nanos() as u64 + 1, "{windows_ns:?}");
    assert!(served.len() as u64 > 100, "{} requests", served.len());
    assert!(open <= QUEUED + CLIENTS + GPU_THREADS, "{open} process ranges are open");
}

fn stop_under_load(server: &Server, profiler: &Profiler) {
    let called_ns = now_ns();
    let begun = Instant::now();
    let profile = profiler.stop().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_whole(server, &profile, called_ns);
    assert_complete_but_for_open(profile.health());
    if profile.health().losses.unfinished_buffers > 0 {
        server.fell_behind.store(true, Ordering::Relaxed);
    }
}

fn keeper() -> Profiler {
    Profiler::builder().keep_last(KEPT).build().unwrap()
}

fn assert_flat(server: &Server, memory: &Memory) {
    if server.fell_behind.load(Ordering::Relaxed) {
        eprintln!("memory grew with the buffers that CUPTI did not give back");
        return;
    }
    let launches = server.served.load(Ordering::Relaxed) * (PLAIN + 1);
    let bound = ALLOCATOR_BYTES + launches * CUPTI_BYTES_PER_LAUNCH;
    let grown = memory.most.saturating_sub(memory.at_a_third);
    assert!(grown < bound, "{} MiB more", grown >> 20);
}

/// Another session begins when one was stopped, while the server goes on; the last one stops when the server has ended.
fn the_last_second_is_kept() {
    let profiler = keeper();
    profiler.start().unwrap();
    let (server, memory) = Server::run(seconds(), |server| {
        stop_under_load(server, &profiler);
        profiler.start().unwrap();
    });
    let profile = profiler.stop().unwrap();
    eprintln!("last stop: {}", profile.health());
    profile.health().assert_complete();
    assert_flat(&server, &memory);
}

fn assert_exact(server: &Server, summary: &Summary) {
    let served = server.served.load(Ordering::Relaxed);
    eprintln!("sums: {}", summary.health());
    summary.health().assert_complete();
    let serve = summary.find("submit/serve").next().unwrap();
    assert_eq!(serve.instances(), served);
    let totals = serve.inclusive();
    assert_eq!(
        (totals.kernels, totals.copies, totals.launches),
        (KERNELS * served, COPIES * served, (PLAIN + 1) * served),
    );
    assert_eq!(serve.host_time().count(), served);
    assert_eq!(serve.gpu_time().count(), served);
    let infer = summary.find("submit/serve/infer").next().unwrap().inclusive();
    assert_eq!((infer.kernels, infer.launches), (NODES * served, served));
    let all = summary.totals();
    assert_eq!((all.kernels, all.copies), (KERNELS * served, COPIES * served));
    let requests = summary.process_ranges().next().unwrap();
    assert_eq!((requests.name(), requests.instances()), ("request", served));
    assert_eq!((requests.activations(), requests.host_time().count()), (served, served));
    assert_eq!(requests.inclusive().kernels, KERNELS * served);
}

/// What was summed up so far is no more than what the program did, and no less than before.
fn assert_grows(server: &Server, sums: &Summarizing, before: &mut u64) {
    let summary = sums.snapshot().unwrap();
    let served = server.served.load(Ordering::Relaxed) + (GPU_THREADS) as u64;
    let kernels = summary.totals().kernels;
    assert!(*before <= kernels && kernels <= KERNELS * served, "{before}, {kernels}, {served}");
    eprintln!("sums so far: {kernels} kernels; {}", summary.health());
    summary.health().assert_complete();
    *before = kernels;
}

fn sums_are_exact() {
    let sums = Profiler::builder().build().unwrap().summarize().unwrap();
    let mut before = 0;
    let (server, memory) =
        Server::run(seconds(), |server| assert_grows(server, &sums, &mut before));
    let summary = sums.stop().unwrap();
    assert_exact(&server, &summary);
    assert_flat(&server, &memory);
    eprintln!("{summary}");
}

fn the_last_second_and_sums_at_once() {
    let profiler = keeper();
    let sums = Profiler::builder().build().unwrap().summarize().unwrap();
    profiler.start().unwrap();
    let mut before = 0;
    let (server, memory) = Server::run(seconds(), |server| {
        stop_under_load(server, &profiler);
        profiler.start().unwrap();
        assert_grows(server, &sums, &mut before);
    });
    let summary = sums.stop().unwrap();
    let profile = profiler.stop().unwrap();
    eprintln!("last stop: {}", profile.health());
    profile.health().assert_complete();
    assert_exact(&server, &summary);
    assert_flat(&server, &memory);
}

fn everything_is_kept() {
    let profiler = Profiler::builder().build().unwrap();
    profiler.start().unwrap();
    let (server, _) = Server::run(seconds().min(EVERYTHING), |_| ());
    let served = server.served.load(Ordering::Relaxed);
    let begun = Instant::now();
    let profile = profiler.stop().unwrap();
    eprintln!("stopped in {:?}; {}", begun.elapsed(), profile.health());
    profile.health().assert_complete();
    let serve = profile.range("submit/serve").unwrap();
    assert_eq!(serve.instances(), served);
    assert_eq!(
        (serve.kernels(), serve.copies(), serve.launches()),
        (KERNELS * served, COPIES * served, (PLAIN + 1) * served),
    );
    let all = profile.totals();
    assert_eq!((all.kernels, all.copies), (KERNELS * served, COPIES * served));
    let lives = profile
        .process_ranges()
        .filter(|range| !range.is_open() && range.end_thread_id() != Some(range.thread_id()));
    assert_eq!((lives.count() as u64, profile.process_ranges().count() as u64), (served, served));
    let whole = profile.ranges().filter(|range| range.name() == "serve");
    assert!(whole.into_iter().all(|range| range.inclusive().kernels == KERNELS));
}

/// More requests than CUPTI can write records of: flushes do not return, so that a stop gives up when its time is over, and
/// tells of what is missing. Where CUPTI keeps up the stop is complete.
fn stop_ends_though_cupti_falls_behind() {
    const LIMIT: Duration = Duration::from_secs(1);
    let config = Config::new().drain_timeout(LIMIT);
    let profiler = Profiler::builder().config(config).keep_last(KEPT).build().unwrap();
    let stop = || {
        let (called_ns, begun) = (now_ns(), Instant::now());
        let profile = profiler.stop().unwrap();
        let took = begun.elapsed();
        let until_ns = profile.recording().unwrap().windows_ns().last().map(|window| window.1);
        eprintln!("stopped in {took:?}; {}", profile.health());
        assert!(took < LIMIT + Duration::from_secs(5), "{took:?}");
        assert!(until_ns >= Some(called_ns), "{until_ns:?}");
        let health = profile.health();
        assert!(
            health.losses.unfinished_buffers > 0
                || health.accounts.kernels.matched_records == health.accounts.kernels.records
        );
    };
    profiler.start().unwrap();
    Server::run_at(u64::from(u32::MAX), Duration::from_secs(12), |_| {
        stop();
        profiler.start().unwrap();
    });
    stop();
}
