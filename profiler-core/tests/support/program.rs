//! Random programs: what threads do, step by step, and who runs it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use fake_cupti::{Arrival, Fake, FakeExec, FakeGraph, Work};
use nvtx::{Domain, InRange};
use profiler_core::Context;
use profiler_core::session::Attached;

pub(crate) static DOMAINS: [Domain; 2] = [Domain::new("x"), Domain::new("y")];

/// A program: parts with and without a session, one after the other, on the same threads and with the same objects.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// CUPTI's.
    pub(crate) version: u32,
    /// Threads at the beginning. Where one ends, one more begins.
    pub(crate) workers: usize,
    pub(crate) first_correlation: Option<u32>,
    pub(crate) futures: Vec<Script>,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) is_recorded: bool,
    /// Threads that return, before it begins, from calls in which they have been since a part before.
    pub(crate) returned: Vec<usize>,
    pub(crate) turns: Vec<Turn>,
}

/// A turn begins when the last one has ended.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What is said to sessions before the jobs.
    pub(crate) controls: Vec<Control>,
    /// They run at the same time, each on a thread of its own.
    pub(crate) jobs: Vec<Job>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub(crate) session: usize,
    pub(crate) is_pause: bool,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) worker: usize,
    /// It returns first from calls in which it has been since a turn before.
    pub(crate) returns: bool,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

/// Whether a thread ends with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    No,
    /// Its guards are dropped.
    Closed,
    /// What is open stays open for ever.
    LeftOpen,
}

/// What a future does in each of its polls.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) label: Label,
    pub(crate) has_lifetime: bool,
    pub(crate) has_polls: bool,
    pub(crate) polls: Vec<Vec<Step>>,
    pub(crate) is_ready_at_last: bool,
}

/// A name and the domain it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Label {
    pub(crate) domain: Option<usize>,
    pub(crate) name: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Kernel,
    CopyIn,
    CopyOut,
    Memset,
    Synchronize,
}

/// Work that can be distinguished from all other work of the program: by the kernel's name, or by its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) ns: u64,
    pub(crate) stream: u32,
    /// No bytes instead of its own number.
    pub(crate) is_empty: bool,
}

#[derive(Debug)]
pub(crate) enum How {
    Plain,
    RecordBefore,
    RecordAfter,
    Runtime,
    /// The steps run before the call returns.
    Around(Vec<Step>),
}

/// Objects are known by number; a guard is of its thread.
#[derive(Debug)]
pub(crate) enum Step {
    Open {
        guard: usize,
        label: Label,
        payload: Option<u64>,
        within: Option<usize>,
    },
    Attach {
        guard: usize,
        context: usize,
    },
    Close {
        guard: usize,
    },
    Capture {
        context: usize,
    },
    Join {
        context: usize,
        of: Vec<usize>,
    },
    Mark {
        label: Label,
    },
    Begin {
        process: usize,
        label: Label,
        payload: Option<u64>,
    },
    End {
        process: usize,
    },
    Make {
        future: usize,
    },
    Poll {
        future: usize,
    },
    Drop {
        future: usize,
    },
    Launch {
        op: Op,
        how: How,
    },
    LaunchNodes {
        ops: Vec<Op>,
    },
    CallOnly {
        function: &'static str,
        result: u32,
    },
    /// The steps run before the call returns.
    CallAround {
        function: &'static str,
        steps: Vec<Step>,
    },
    /// The thread stays where it is until a later part. The last step, but for calls that return.
    Stay,
    CaptureOne {
        op: Op,
    },
    Unseen {
        op: Op,
    },
    Graph {
        graph: usize,
    },
    CaptureInto {
        graph: usize,
        op: Op,
    },
    AddNode {
        graph: usize,
        op: Op,
    },
    Clone {
        from: usize,
        to: usize,
    },
    Instantiate {
        graph: usize,
        exec: usize,
    },
    LaunchExec {
        exec: usize,
    },
    Destroy {
        exec: usize,
    },
}

/// As many different pieces of work as a program may have.
pub(crate) const MOST_OPS: u64 = 2000;

static KERNELS: LazyLock<Vec<CString>> = LazyLock::new(|| {
    (0..MOST_OPS).map(|id| CString::new(format!("k{id}")).unwrap_or_default()).collect()
});

impl Op {
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_empty { 0 } else { self.id + 1 }
    }

    fn work(&self) -> Work {
        let kernel: &'static CStr = KERNELS[self.id as usize].as_c_str();
        let work = match self.kind {
            Kind::Kernel => Work::kernel(kernel),
            Kind::CopyIn => Work::host_to_device(self.bytes()),
            Kind::CopyOut => Work::device_to_host(self.bytes()),
            Kind::Memset => Work::memset(self.bytes()),
            Kind::Synchronize => Work::synchronize(),
        };
        work.taking_ns(self.ns).on_stream(self.stream)
    }

    fn runtime_function(&self) -> &'static str {
        match self.kind {
            Kind::Kernel => "cudaLaunchKernel",
            Kind::CopyIn | Kind::CopyOut => "cudaMemcpyAsync",
            Kind::Memset => "cudaMemsetAsync",
            Kind::Synchronize => "cudaStreamSynchronize",
        }
    }
}

/// Ends when it is dropped, on the thread that made it.
enum Guard {
    Range { _range: nvtx::Range },
    Attached { _attached: Attached },
}

thread_local! {
    static GUARDS: RefCell<HashMap<usize, Guard>> = RefCell::default();
    /// Says that the job is done as far as it goes now, and waits until the thread may continue.
    static STAY: RefCell<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = RefCell::default();
}

fn keep(guard: usize, value: Guard) {
    GUARDS.with_borrow_mut(|guards| guards.insert(guard, value));
}

type Table<T> = Mutex<HashMap<usize, T>>;
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The running program: what its threads share.
pub(crate) struct World {
    fake: &'static Fake,
    program: Arc<Program>,
    contexts: Table<Context>,
    processes: Table<nvtx::ProcessRange>,
    futures: Table<Task>,
    graphs: Table<FakeGraph>,
    execs: Table<FakeExec>,
}

impl World {
    fn run(self: &Arc<Self>, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
    }

    fn event<T>(label: Label, with: impl FnOnce(nvtx::Event<'_>) -> T) -> T {
        // A new string each time: one address holds many names.
        let name = label.name.to_owned();
        match label.domain {
            Some(domain) => with(DOMAINS[domain].event(&name)),
            None => with(nvtx::event(&name)),
        }
    }

    fn open(&self, label: Label, payload: Option<u64>, within: Option<usize>) -> nvtx::Range {
        let processes = self.processes.lock().unwrap();
        Self::event(label, |event| {
            let event = match payload {
                Some(payload) => event.payload(payload),
                None => event,
            };
            match within {
                Some(process) => event.within(&processes[&process]).range(),
                None => event.range(),
            }
        })
    }

    fn make(self: &Arc<Self>, future: usize) -> Task {
        let script = &self.program.futures[future];
        let (world, mut polled) = (self.clone(), 0);
        let body = poll_fn(move |_| {
            let script = &world.program.futures[future];
            world.run(&script.polls[polled]);
            polled += 1;
            let is_ready = polled == script.polls.len() && script.is_ready_at_last;
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        let range = InRange::new(script.label.name.to_owned());
        let range = match script.label.domain {
            Some(domain) => range.domain(&DOMAINS[domain]),
            None => range,
        };
        Box::pin(range.lifetime(script.has_lifetime).polls(script.has_polls).follow(body))
    }

    fn launch(self: &Arc<Self>, op: &Op, how: &How) {
        let (fake, work) = (self.fake, op.work());
        match how {
            How::Plain => fake.launch(work),
            How::RecordBefore => fake.launch_with(&work, Arrival::BeforeCall),
            How::RecordAfter => fake.launch_with(&work, Arrival::AfterCall),
            How::Runtime => fake.launch_through_runtime(op.runtime_function(), &work),
            How::Around(steps) => fake.launch_around(&work, || self.run(steps)),
        };
    }

    fn step(self: &Arc<Self>, step: &Step) {
        let fake = self.fake;
        match step {
            Step::Open {
                guard,
                label: Label { domain: None, name },
                payload: None,
                within: None,
            } => {
                keep(*guard, Guard::Range { _range: nvtx::range(&String::from(*name)) });
            }
            Step::Open { guard, label, payload, within } => {
                keep(*guard, Guard::Range { _range: self.open(*label, *payload, *within) });
            }
            Step::Attach { guard, context } => {
                let context = self.contexts.lock().unwrap()[context];
                keep(*guard, Guard::Attached { _attached: context.attach() });
            }
            Step::Close { guard } => drop(GUARDS.with_borrow_mut(|guards| guards.remove(guard))),
            Step::Capture { context } => {
                self.contexts.lock().unwrap().insert(*context, Context::capture());
            }
            Step::Join { context, of } => {
                let mut contexts = self.contexts.lock().unwrap();
                let joined = Context::join(of.iter().map(|context| contexts[context]));
                contexts.insert(*context, joined);
            }
            Step::Mark { label } => Self::event(*label, |event| event.mark()),
            Step::Begin { process, label, payload } => {
                let range = Self::event(*label, |event| match payload {
                    Some(payload) => event.payload(*payload).process_range(),
                    None => event.process_range(),
                });
                self.processes.lock().unwrap().insert(*process, range);
            }
            Step::End { process } => drop(self.processes.lock().unwrap().remove(process)),
            Step::Make { future } => {
                let task = self.make(*future);
                self.futures.lock().unwrap().insert(*future, task);
            }
            Step::Poll { future } => {
                let mut task = self.futures.lock().unwrap().remove(future).unwrap();
                let _ = task.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
                // One that is done is kept: its life must have ended all the same.
                self.futures.lock().unwrap().insert(*future, task);
            }
            Step::Drop { future } => drop(self.futures.lock().unwrap().remove(future)),
            Step::Launch { op, how } => self.launch(op, how),
            Step::LaunchNodes { ops } => {
                let nodes: Vec<_> = ops.iter().map(Op::work).collect();
                fake.launch_graph(&nodes);
            }
            Step::CallOnly { function, result } => drop(fake.call_only(function, *result)),
            Step::CallAround { function, steps } => {
                fake.call_around(function, || self.run(steps));
            }
            Step::Stay => STAY.with_borrow(|stay| {
                let (ended, go_on) = stay.as_ref().unwrap();
                ended.send(()).unwrap();
                // Nobody says so if the test failed.
                let _ = go_on.recv();
            }),
            Step::CaptureOne { op } => drop(fake.capture(&op.work())),
            Step::Unseen { op } => {
                fake.unseen(&op.work());
                // Work without a call counts only if it starts before the stop, and it starts 2 us from now.
                std::thread::sleep(Duration::from_micros(5));
            }
            Step::Graph { graph } => {
                self.graphs.lock().unwrap().insert(*graph, fake.graph());
            }
            Step::CaptureInto { graph, op } => {
                let mut graphs = self.graphs.lock().unwrap();
                fake.capture_into(graphs.get_mut(graph).unwrap(), &op.work());
            }
            Step::AddNode { graph, op } => {
                let mut graphs = self.graphs.lock().unwrap();
                fake.add_node(graphs.get_mut(graph).unwrap(), &op.work());
            }
            Step::Clone { from, to } => {
                let mut graphs = self.graphs.lock().unwrap();
                let copy = fake.clone_graph(&graphs[from]);
                graphs.insert(*to, copy);
            }
            Step::Instantiate { graph, exec } => {
                let made = fake.instantiate(&self.graphs.lock().unwrap()[graph]);
                self.execs.lock().unwrap().insert(*exec, made);
            }
            Step::LaunchExec { exec } => drop(fake.launch_exec(&self.execs.lock().unwrap()[exec])),
            Step::Destroy { exec } => {
                let exec = self.execs.lock().unwrap().remove(exec);
                fake.destroy_exec(exec.unwrap());
            }
        }
    }
}

/// A thread of a running program.
struct Worker<'scope> {
    id: u32,
    jobs: mpsc::Sender<(usize, usize, usize)>,
    go_on: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl<'scope> Worker<'scope> {
    fn start(world: &Arc<World>, scope: &'scope Scope<'scope, '_>) -> Self {
        let (jobs, receive) = mpsc::channel::<(usize, usize, usize)>();
        let (say_ended, ended) = mpsc::channel();
        let (go_on, hear) = mpsc::channel();
        let (say_id, id) = mpsc::channel();
        let world = world.clone();
        let thread = scope.spawn(move || {
            say_id.send(cupti::calls::thread_id()).unwrap();
            STAY.set(Some((say_ended.clone(), hear)));
            for (part, turn, job) in receive {
                let job = &world.program.parts[part].turns[turn].jobs[job];
                world.run(&job.steps);
                match job.end {
                    End::No => {}
                    End::Closed => drop(GUARDS.take()),
                    End::LeftOpen => std::mem::forget(GUARDS.take()),
                }
                // No receiver exists if the test failed.
                let _ = say_ended.send(());
            }
            drop(GUARDS.take());
        });
        Self { id: id.recv().unwrap(), jobs, go_on, ended, thread: Some(thread) }
    }

    fn wait(&self) {
        // A thread that panicked says nothing.
        self.ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    fn go_on(&self) {
        self.go_on.send(()).unwrap();
        self.wait();
    }
}

/// Runs it. `around` is called for every part with what runs that part, which says what is said to sessions meanwhile and
/// gives the kernel's ids of the threads there were so far.
pub(crate) fn run(
    fake: &'static Fake,
    program: &Arc<Program>,
    mut around: impl FnMut(usize, &mut dyn FnMut(&mut dyn FnMut(Control)) -> Vec<u32>),
) {
    if let Some(id) = program.first_correlation {
        fake.next_correlation_id(id);
    }
    let world = Arc::new(World {
        fake,
        program: program.clone(),
        contexts: Table::default(),
        processes: Table::default(),
        futures: Table::default(),
        graphs: Table::default(),
        execs: Table::default(),
    });
    std::thread::scope(|scope| {
        let start = |_| Worker::start(&world, scope);
        let mut workers: Vec<_> = (0..program.workers).map(start).collect();
        for (number, part) in program.parts.iter().enumerate() {
            part.returned.iter().for_each(|worker| workers[*worker].go_on());
            around(number, &mut |control| {
                for (turn, Turn { controls, jobs }) in part.turns.iter().enumerate() {
                    controls.iter().for_each(|said| control(*said));
                    for (place, job) in jobs.iter().enumerate() {
                        let worker = &workers[job.worker];
                        if job.returns {
                            worker.go_on();
                        }
                        worker.jobs.send((number, turn, place)).unwrap();
                    }
                    jobs.iter().for_each(|job| workers[job.worker].wait());
                    for job in jobs.iter().filter(|job| job.end != End::No) {
                        let worker = &mut workers[job.worker];
                        worker.jobs = mpsc::channel().0;
                        worker.thread.take().unwrap().join().unwrap();
                        workers.push(Worker::start(&world, scope));
                    }
                }
                workers.iter().map(|worker| worker.id).collect()
            });
        }
        // Those that stayed go on now: nobody can say anything to them any more.
    });
    // They hold the world.
    drop(std::mem::take(&mut *world.futures.lock().unwrap()));
}
