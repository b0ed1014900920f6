//! Thousands of sessions on the same threads, with guards, contexts and ranges of the process that are kept over them. The
//! books are kept step by step: what a thread is in, and of which session that is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fake_cupti::{Fake, Work};
use fastrand::Rng;
use nvtx::ProcessRange;
use profiler_core::{Context, Profile, Profiler};
use test_support::worker::Worker;

const WORKERS: usize = 4;
/// Contexts and ranges of the process that are kept at a time.
const KEPT: usize = 8;

/// A range, and the session that it began in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    session: u64,
    range: u64,
}

/// What is true of a thread.
#[derive(Default)]
struct ThreadTruth {
    /// The session in which the range log saw it last.
    session: u64,
    /// What it is in, outermost first.
    open: Vec<Known>,
    /// Of each guard that it holds, what it ends; `None` if no session was on when it was made.
    guards: Vec<Option<Known>>,
}

impl ThreadTruth {
    /// The range log sees the thread: of earlier sessions nothing is open then.
    fn enter_session(&mut self, session: u64) {
        if self.session != session {
            (self.session, self.open) = (session, Vec::new());
        }
    }
}

/// What is true of one session.
#[derive(Debug, Default, PartialEq)]
struct Truth {
    /// The range of each kernel.
    kernels: BTreeMap<u64, Option<u64>>,
    ranges: u64,
    /// Whether each range of the process has ended.
    processes: BTreeMap<u64, bool>,
    calls_in_earlier_ranges: u64,
    earlier_contexts: u64,
}

struct Player {
    fake: &'static Fake,
    random: Rng,
    workers: Vec<(Worker, ThreadTruth)>,
    contexts: Arc<Mutex<Vec<Context>>>,
    of_contexts: Vec<Option<Known>>,
    processes: Arc<Mutex<Vec<Option<ProcessRange>>>>,
    of_processes: Vec<Option<Known>>,
    /// The number of the next range, kernel or range of the process.
    next: u64,
    truth: Truth,
}

fn kernel(fake: &Fake, number: u64) {
    let name = std::ffi::CString::new(format!("k{number}")).unwrap();
    // The fake keeps names for ever.
    fake.launch(Work::kernel(Box::leak(name.into_boxed_c_str())));
}

impl Player {
    /// One step on some thread. `session` is `None` between two of them.
    fn step(&mut self, session: Option<u64>) {
        let worker = self.random.usize(..WORKERS);
        let kept = self.random.usize(..KEPT);
        let number = self.next;
        self.next += 1;
        let fake = self.fake;
        match self.random.u8(..if session.is_some() { 12 } else { 4 }) {
            0 | 1 => self.open(worker, session, number),
            2 | 3 => self.close(worker),
            4..=6 => {
                self.workers[worker].0.run(move |_| kernel(fake, number));
                let range = self.workers[worker].1.open.last().copied();
                self.launched(number, range, session);
            }
            7 => {
                let contexts = self.contexts.clone();
                let capture = move |_: &mut _| contexts.lock().unwrap()[kept] = Context::capture();
                self.workers[worker].0.run(capture);
                self.of_contexts[kept] = self.workers[worker].1.open.last().copied();
            }
            8 | 9 => self.launch_in(worker, kept, session, number),
            10 => self.begin_process(worker, kept, session, number),
            _ => self.end_process(worker, kept, session),
        }
    }

    fn open(&mut self, worker: usize, session: Option<u64>, number: u64) {
        let (thread, truth) = &mut self.workers[worker];
        thread.run(move |guards| guards.push(nvtx::range(&format!("r{number}"))));
        let known = session.map(|session| Known { session, range: number });
        if let Some(known) = known {
            truth.enter_session(known.session);
            truth.open.push(known);
            self.truth.ranges += 1;
        }
        truth.guards.push(known);
    }

    fn close(&mut self, worker: usize) {
        let (thread, truth) = &mut self.workers[worker];
        if truth.guards.is_empty() {
            return;
        }
        let place = self.random.usize(..truth.guards.len());
        thread.run(move |guards| drop(guards.remove(place)));
        let ended = truth.guards.remove(place);
        truth.open.retain(|open| Some(*open) != ended);
    }

    fn launched(&mut self, number: u64, range: Option<Known>, session: Option<u64>) {
        let is_earlier = range.is_some_and(|range| Some(range.session) != session);
        self.truth.calls_in_earlier_ranges += u64::from(is_earlier);
        let range = range.filter(|_| !is_earlier).map(|range| range.range);
        self.truth.kernels.insert(number, range);
    }

    fn launch_in(&mut self, worker: usize, kept: usize, session: Option<u64>, number: u64) {
        let (thread, truth) = &mut self.workers[worker];
        let (fake, contexts) = (self.fake, self.contexts.clone());
        thread.run(move |_| {
            let context = contexts.lock().unwrap()[kept];
            context.run(|| kernel(fake, number));
        });
        let mut range = truth.open.last().copied();
        match self.of_contexts[kept] {
            Some(context) if Some(context.session) == session => {
                truth.enter_session(context.session);
                range = Some(context);
            }
            Some(_) => self.truth.earlier_contexts += 1,
            None => {}
        }
        self.launched(number, range, session);
    }

    fn begin_process(&mut self, worker: usize, kept: usize, session: Option<u64>, number: u64) {
        // What was there goes first, as anything would that a variable held.
        self.end_process(worker, kept, session);
        let (thread, truth) = &mut self.workers[worker];
        let processes = self.processes.clone();
        thread.run(move |_| {
            let process = nvtx::process_range(&format!("p{number}"));
            processes.lock().unwrap()[kept] = Some(process);
        });
        if let Some(session) = session {
            truth.enter_session(session);
            self.of_processes[kept] = Some(Known { session, range: number });
            self.truth.processes.insert(number, false);
        }
    }

    fn end_process(&mut self, worker: usize, kept: usize, session: Option<u64>) {
        let (thread, truth) = &mut self.workers[worker];
        let processes = self.processes.clone();
        thread.run(move |_| drop(processes.lock().unwrap()[kept].take()));
        if let Some(known) = self.of_processes[kept].take()
            && let Some(session) = session
        {
            truth.enter_session(session);
            if known.session == session {
                self.truth.processes.insert(known.range, true);
            }
        }
    }
}

fn number(name: &str) -> u64 {
    name[1..].parse().unwrap()
}

fn truth_of(profile: &Profile) -> Truth {
    let kernels = profile
        .kernels()
        .map(|kernel| (number(kernel.name()), kernel.range().map(|range| number(range.name()))));
    let processes = profile.process_ranges().map(|range| (number(range.name()), !range.is_open()));
    let health = profile.health();
    let losses = (
        health.losses.lost_ranges,
        health.losses.unlogged_calls,
        health.losses.unknown_range_entries,
    );
    assert_eq!((losses, health.losses.calls_in_unknown_ranges), ((0, 0, 0), 0), "{health}");
    Truth {
        kernels: kernels.collect(),
        ranges: profile.ranges().count() as u64,
        processes: processes.collect(),
        calls_in_earlier_ranges: health.facts.calls_in_earlier_ranges,
        earlier_contexts: health.facts.earlier_contexts,
    }
}

/// Plays so many sessions; gives how many calls were made in ranges of earlier ones, and uses of contexts.
pub(crate) fn play(fake: &'static Fake, profiler: &Profiler, sessions: u64) -> [u64; 2] {
    let mut player = Player {
        fake,
        random: Rng::with_seed(sessions),
        workers: (0..WORKERS).map(|_| (Worker::new(), ThreadTruth::default())).collect(),
        contexts: Arc::new(Mutex::new(vec![Context::default(); KEPT])),
        of_contexts: vec![None; KEPT],
        processes: Arc::new(Mutex::new((0..KEPT).map(|_| None).collect())),
        of_processes: vec![None; KEPT],
        next: 0,
        truth: Truth::default(),
    };
    let mut earlier = [0; 2];
    for session in 1..=sessions {
        profiler.start().unwrap();
        (0..player.random.usize(..6)).for_each(|_| player.step(Some(session)));
        let profile = profiler.stop().unwrap();
        let truth = std::mem::take(&mut player.truth);
        assert_eq!(truth_of(&profile), truth, "session {session} of {sessions}");
        earlier[0] += truth.calls_in_earlier_ranges;
        earlier[1] += truth.earlier_contexts;
        if player.random.u8(..8) == 0 {
            player.step(None);
        }
    }
    earlier
}
