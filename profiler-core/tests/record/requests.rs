//! Requests of a service as tasks: what each one's work came to, also of batches that several share.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use nvtx::Instrument as _;
use profiler_core::query::{Request, RequestRange};
use profiler_core::{Context, Profile, Profiler};

const BATCH_NS: u64 = 60_000;

/// What tasks and the thread that makes batches share.
struct Batch<'a> {
    fake: &'a Fake,
    members: Mutex<Vec<Context>>,
    is_done: AtomicBool,
}

impl<'a> Batch<'a> {
    fn new(fake: &'a Fake) -> Self {
        Self { fake, members: Mutex::default(), is_done: AtomicBool::new(false) }
    }

    /// Submits a batch for so many requests.
    fn submit(&self, requests: usize) {
        while self.members.lock().unwrap().len() < requests {
            std::thread::yield_now();
        }
        Context::join(self.members.lock().unwrap().iter().copied()).run(|| {
            self.fake.launch(Work::kernel(c"batch").taking_ns(BATCH_NS));
            let node = Work::kernel(c"node").taking_ns(1_000);
            self.fake.launch_graph(&[node.clone(), node]);
        });
        self.is_done.store(true, Ordering::Release);
    }

    async fn join(&self, context: Context) {
        self.members.lock().unwrap().push(context);
        while !self.is_done.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
    }

    /// A request with its tokens and its route, whose polls may run on any thread.
    async fn declared(&self, tokens: u64, route: &'static str) {
        let life = nvtx::event("request").field("tokens", tokens, "").field("route", route, "");
        let life = life.process_range();
        let poll = || nvtx::event("request").within(&life).range();
        tokio::task::yield_now().await;
        let context = {
            let _poll = poll();
            self.fake.launch(Work::kernel(c"own").on_stream(1).taking_ns(tokens * 100));
            Context::capture()
        };
        self.join(context).await;
        let _poll = poll();
        self.fake.launch(Work::device_to_host(64).on_stream(1).taking_ns(500));
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Polls tasks on three threads of a runtime, each on whichever thread is free. They borrow the fake, so they are not spawned.
fn run(tasks: Vec<Task<'_>>, meanwhile: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let left = AtomicUsize::new(tasks.len());
    let queue = Mutex::new(VecDeque::from(tasks));
    let turn = |context: &mut std::task::Context<'_>| {
        let next = queue.lock().unwrap().pop_front();
        if let Some(mut task) = next {
            match task.as_mut().poll(context) {
                Poll::Ready(()) => _ = left.fetch_sub(1, Ordering::Relaxed),
                Poll::Pending => queue.lock().unwrap().push_back(task),
            }
        }
        context.waker().wake_by_ref();
        if left.load(Ordering::Relaxed) == 0 { Poll::Ready(()) } else { Poll::Pending }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| runtime.block_on(std::future::poll_fn(turn)));
        }
        meanwhile();
    });
}

fn record(work: impl FnOnce(&Fake)) -> Profile {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| work(&fake)).unwrap();
    profile.health().assert_complete();
    profile
}

const US: fn(u64) -> Duration = Duration::from_micros;

#[test]
fn batches_are_split_by_declared_weights_among_tasks() {
    let tokens = [10, 20, 70];
    let profile = record(|fake| {
        let batch = Batch::new(fake);
        let tasks = tokens.iter().map(|tokens| -> Task<'_> {
            Box::pin(batch.declared(*tokens, if *tokens > 50 { "/long" } else { "/short" }))
        });
        run(tasks.collect(), || batch.submit(tokens.len()));
    });
    let query = profile.requests("request").weight_field("tokens").endpoint_field("route");
    let requests = query.find();
    assert_eq!(requests.len(), 3, "activations are no requests of their own: {requests}");
    for request in &requests {
        let RequestRange::Process(range) = request.range() else { panic!("{request:?}") };
        let Some(nvtx::FieldValue::U64(tokens)) = range.field("tokens") else { panic!() };
        // Its kernel, its copy, and its part of 62 us.
        assert_eq!(request.own_gpu_time(), Duration::from_nanos(tokens * 100 + 500));
        let part = Duration::from_nanos(tokens * (BATCH_NS + 2_000) / 100);
        assert_eq!((request.split_by_weight(), request.split_evenly()), (part, US(0)));
        assert_eq!(request.gpu_time(), request.own_gpu_time() + part);
        assert_eq!((request.operations(), request.shared_operations()), (5, 3));
        let stages = [request.pending(), request.waiting(), request.host(), request.queued()];
        let stages = stages.iter().sum::<Duration>() + request.executing();
        assert_eq!(stages, request.total_time());
        assert!(request.total_time() >= request.host_time() && !request.is_open());
        assert!(request.pending() > US(0), "it was spawned and not polled: {request:?}");
        // The batch is executing for each of them in full.
        assert!(request.executing() >= US(60), "{request:?}");
    }
    // Nothing is counted twice or left out.
    let all: Duration = requests.iter().map(Request::gpu_time).sum();
    assert_eq!(all, profile.operations().filter_map(|operation| operation.gpu_time()).sum());

    let endpoints = requests.endpoints();
    let rows: Vec<_> = endpoints.iter().map(|of| (&*of.name, of.requests, of.open)).collect();
    assert_eq!(rows, [("/long", 1, 0), ("/short", 2, 0)]);
    assert_eq!(endpoints[0].gpu_time.sum() + endpoints[1].gpu_time.sum(), all);
    assert_eq!(endpoints[1].split_by_weight, Duration::from_nanos(3 * 6_200));
    let text = requests.to_string();
    assert!(text.contains("/long") && text.contains("split by weight"), "{text}");
}

/// Weights that a request of the batch lacks do not count.
#[test]
fn batches_without_all_weights_are_split_evenly() {
    let profile = record(|fake| {
        let batch = Batch::new(fake);
        let plain = async {
            fake.launch(Work::kernel(c"own").on_stream(1).taking_ns(3_000));
            batch.join(Context::capture()).await;
        };
        let tasks: Vec<Task<'_>> =
            vec![Box::pin(plain.in_range("request")), Box::pin(batch.declared(90, "/chat"))];
        run(tasks, || batch.submit(2));
    });
    let requests = profile.requests("request").weight_field("tokens").find();
    let parts: Vec<_> =
        requests.iter().map(|of| (of.split_by_weight(), of.split_evenly())).collect();
    assert_eq!(parts, [(US(0), US(31)); 2]);
    assert_eq!(requests.endpoints()[0].split_evenly, US(62));
    // Without a declared weight, too.
    let requests = profile.requests("req*").find();
    assert!(requests.iter().all(|of| of.split_evenly() == US(31)), "{requests}");
    assert!(profile.requests("other").find().is_empty());
}

#[test]
fn time_between_activations_is_waiting_and_no_host_time() {
    let profile = record(|_| {
        let request = nvtx::process_range("request");
        drop(nvtx::event("tokenize").within(&request).range());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(nvtx::event("answer").within(&request).range()));
        });
    });
    let requests = profile.requests("request").find();
    let request = requests.iter().next().unwrap();
    let RequestRange::Process(range) = request.range() else { panic!("{request:?}") };
    let attended: Vec<_> = range.activations().collect();
    let host: Duration = attended.iter().map(|activation| activation.host_time()).sum();
    assert_eq!(attended.len(), 2);
    assert_eq!(request.pending(), attended[0].start() - range.start());
    assert_eq!(request.host(), host);
    assert_eq!(request.waiting(), request.total_time() - request.pending() - host);
    assert!(
        request.waiting() >= attended[1].start() - attended[0].start() - attended[0].host_time()
    );
}

/// A batch of requests whose threads have gone on, with weights that are known late.
#[test]
fn contexts_and_later_fields_of_process_ranges_split_a_batch() {
    let profile = record(|fake| {
        let requests = [nvtx::process_range("request"), nvtx::process_range("request")];
        requests[0].add_fields(&[nvtx::Field::new("tokens", 9_u64, "")]);
        std::thread::scope(|scope| {
            for (request, tokens) in requests.iter().zip([1_u64, 3]) {
                let fields = [("tokens", tokens), ("number", tokens * 2)];
                let fields = fields.map(|(name, value)| nvtx::Field::new(name, value, ""));
                scope.spawn(move || request.add_fields(&fields));
            }
        });
        let contexts = requests.iter().map(|of| Context::from_process_range(of, "batch"));
        Context::join(contexts).run(|| fake.launch(Work::kernel(c"batch").taking_ns(BATCH_NS)));
    });
    let again = Profile::from_bytes(&profile.recording().unwrap().to_bytes()).unwrap();
    for profile in [profile, again] {
        let requests = profile.requests("request").weight_field("tokens").find();
        let parts: Vec<_> = requests.iter().map(Request::split_by_weight).collect();
        assert_eq!(parts, [US(15), US(45)]);
        for (range, tokens) in profile.process_ranges().zip([1, 3]) {
            // The last value of a name is the field.
            assert_eq!(range.field("tokens"), Some(nvtx::FieldValue::U64(tokens)));
            assert_eq!(range.field("number"), Some(nvtx::FieldValue::U64(tokens * 2)));
            assert_eq!(range.activations().map(|of| of.name()).collect::<Vec<_>>(), ["batch"]);
        }
        assert_eq!(profile.health().losses.unknown_range_entries, 0);
    }
}

/// A request whose work waits behind another one's is queued, not executing.
#[test]
fn queueing_and_execution_are_separate() {
    let long = Duration::from_millis(20);
    let profile = record(|fake| {
        for (name, time) in [("first", long), ("second", US(5))] {
            let _request = nvtx::range(name);
            fake.launch(Work::kernel(c"k").taking_ns(time.as_nanos() as u64));
        }
    });
    let only = |name: &str| profile.requests(name).find().iter().next().unwrap().clone();
    let (first, second) = (only("first"), only("second"));
    assert_eq!((first.executing(), second.executing()), (long, US(5)));
    assert_eq!((first.pending(), second.pending()), (US(0), US(0)));
    // It was submitted while the first one ran; a busy machine may have held it up.
    let kernel = profile.query().in_range("second").iter().next().unwrap();
    let waited = kernel.start().unwrap().saturating_sub(kernel.call().unwrap().end().unwrap());
    assert_eq!(second.queued(), waited);
    assert!(first.queued() < long, "{first:?}");
    assert!(second.total_time() > second.host_time(), "its work ends after it: {second:?}");
}

/// Ranges of threads within a request are its own, and a request within a request is none.
#[test]
fn outermost_ranges_of_threads_are_requests() {
    let profile = record(|fake| {
        for number in 1..=100_u64 {
            let _request = nvtx::range("request");
            let _again = nvtx::range("request");
            let _layer = nvtx::range("layer");
            fake.launch(Work::kernel(c"k").taking_ns(number * 1_000));
        }
    });
    let requests = profile.requests("request").find();
    assert_eq!(requests.len(), 100);
    let times = requests.statistics(Request::gpu_time);
    assert_eq!((times.percentile(99.0), times.median()), (US(99), Duration::from_nanos(50_500)));
    assert!(requests.iter().all(|request| request.shared_operations() == 0));
}
