//! What must come out of a program: the generator plays every step as it makes it, and keeps its own books.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fastrand::Rng;
use profiler_core::profile::Attribution;

use crate::outcome::*;
use crate::program::*;

struct Instance {
    part: usize,
    /// What ends it.
    guard: usize,
    spot: Spot,
    label: Label,
    parent: Option<usize>,
    /// The parent is of this thread and was open when this began: no context handed it over.
    is_nested: bool,
    payload: Option<u64>,
    within: Option<usize>,
    is_open: bool,
}

/// Where a thread is: in the range that its work counts for, and in others that it belongs to.
#[derive(Clone)]
struct Place {
    range: usize,
    others: BTreeSet<usize>,
}

struct Process {
    part: usize,
    spot: Spot,
    label: Label,
    parent: Option<usize>,
    payload: Option<u64>,
    end: Option<usize>,
}

struct CallTruth {
    /// The sessions that count it.
    counts: [bool; SESSIONS],
    worker: usize,
    function: &'static str,
    place: Option<Place>,
    /// The ranges whose inclusive sums have it, the innermost first.
    around: Vec<usize>,
    waiting: Waiting,
    is_failure: bool,
    is_captured: bool,
    is_empty: bool,
    /// It had not returned at the stop.
    is_open: bool,
    records: u64,
}

struct OpTruth {
    op: Op,
    counts: [bool; SESSIONS],
    /// Index of its call.
    call: Option<usize>,
    captured: Option<usize>,
    is_node: bool,
}

/// Sessions that go on at the same time.
pub(crate) const SESSIONS: usize = 3;

/// What each session is to say of a part.
pub(crate) type Outcomes = [Outcome; SESSIONS];

/// What was logged in the present part.
#[derive(Default)]
struct Books {
    calls: Vec<CallTruth>,
    ops: Vec<OpTruth>,
    marks: Vec<(usize, Label, Option<usize>)>,
}

/// A node of a graph: its work, and the range it was first made in.
type Nodes = Vec<(Op, Option<usize>)>;

#[derive(Default)]
struct FutureTruth {
    life: Option<usize>,
    is_busy: bool,
    is_done: bool,
}

/// What may be read, but was made by one thread in the present turn, is that thread's until the turn is over.
struct Made<T> {
    value: T,
    turn: usize,
    worker: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Object {
    Process(usize),
    Future(usize),
    Graph(usize),
}

/// The time of a piece of work says which it is, by how many of these it has.
pub(crate) const NS_APART: u64 = 8;

/// What a thread can do.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Free,
    /// It is in a call, since this part or one before.
    Stays,
    Ended,
}

/// One of each layout that records or callbacks have had.
const VERSIONS: [u32; 10] = [18, 20, 22, 23, 26, 28, 130_001, 130_100, 130_200, 130_300];

/// Makes a program and knows its truth.
#[derive(Default)]
pub(crate) struct Generator {
    rng: Rng,
    program: Program,
    part: usize,
    turn: usize,
    is_recorded: bool,
    /// Sessions that are not paused.
    on: [bool; SESSIONS],
    next_op: u64,
    next_number: usize,
    instances: Vec<Instance>,
    processes: Vec<Process>,
    books: Books,
    /// What is open on each thread: the guard and its range, the innermost last.
    open: Vec<Vec<(usize, Place)>>,
    /// Ranges and ranges of the process that each thread began in this part.
    begun: Vec<(usize, usize)>,
    /// Guards that each thread holds, of whatever part.
    guards: Vec<Vec<usize>>,
    /// Those that were held when this part began.
    old_guards: BTreeSet<usize>,
    /// No two threads did anything at the same time in this part.
    is_sequential: bool,
    /// How many calls each thread is within.
    within_calls: Vec<usize>,
    life: Vec<Life>,
    /// The calls of this part that each thread stays in.
    stays: Vec<Vec<usize>>,
    contexts: BTreeMap<usize, Made<Option<Place>>>,
    held: BTreeMap<usize, Option<usize>>,
    futures: BTreeMap<usize, FutureTruth>,
    graphs: BTreeMap<usize, Nodes>,
    execs: BTreeMap<usize, Made<Nodes>>,
    /// Whether the present turn has one job.
    is_alone: bool,
    /// Who uses what in the present turn.
    users: HashMap<Object, usize>,
}

const ALL: [Kind; 5] = [Kind::Kernel, Kind::CopyIn, Kind::CopyOut, Kind::Memset, Kind::Synchronize];
/// As many threads as a program may have had.
const MOST_WORKERS: usize = 12;
const NAMES: [&str; 5] = ["a", "b", "c", "step", "forward pass"];

impl Generator {
    /// The program of this seed, and what comes out of each part that is recorded.
    pub(crate) fn program(seed: u64) -> (Program, Vec<Option<Outcomes>>) {
        let mut rng = Rng::with_seed(seed);
        let workers = rng.usize(1..=4);
        let parts = rng.usize(1..=4);
        // Small ones are more frequent: they fail for fewer reasons.
        let most = [6, 15, 40][rng.usize(..3)];
        // Runs of the same version: a change of it costs more than a program.
        let version = VERSIONS[(seed / 10) as usize % VERSIONS.len()];
        let first_correlation = (rng.u8(..8) == 0).then(|| u32::MAX - rng.u32(..8));
        let mut generator = Self {
            rng,
            program: Program { version, workers, first_correlation, ..Program::default() },
            guards: vec![Vec::new(); workers],
            is_sequential: true,
            within_calls: vec![0; workers],
            life: vec![Life::Free; workers],
            stays: vec![Vec::new(); workers],
            is_alone: true,
            ..Self::default()
        };
        let outcomes = (0..parts).map(|part| generator.add_part(part, parts, most)).collect();
        (generator.program, outcomes)
    }

    fn add_part(&mut self, part: usize, parts: usize, most: usize) -> Option<Outcomes> {
        self.part = part;
        // At least one is.
        self.is_recorded = part + 1 == parts || self.rng.u8(..3) != 0;
        self.on = [self.is_recorded; SESSIONS];
        self.books = Books::default();
        self.open = vec![Vec::new(); self.life.len()];
        self.begun = vec![(0, 0); self.life.len()];
        self.old_guards = self.guards.iter().flatten().copied().collect();
        self.is_sequential = self.workers(Life::Stays).is_empty();
        self.stays.iter_mut().for_each(Vec::clear);
        let mut returned = self.workers(Life::Stays);
        returned.retain(|_| self.rng.bool());
        returned.iter().for_each(|worker| self.free(*worker));
        let mut turns = Vec::new();
        for _ in 0..self.rng.usize(1..6) {
            if self.chance(10) {
                turns.extend(self.stay_all(most));
            }
            turns.push(self.add_turn(most));
        }
        if self.rng.bool() {
            turns.extend(self.end_all().into_iter().flatten());
        }
        if self.chance(3) {
            turns.extend(self.stay_all(most));
        }
        self.program.parts.push(Part { is_recorded: self.is_recorded, returned, turns });
        self.is_recorded.then(|| std::array::from_fn(|session| self.outcome(session)))
    }

    fn workers(&self, life: Life) -> Vec<usize> {
        (0..self.life.len()).filter(|worker| self.life[*worker] == life).collect()
    }

    fn free(&mut self, worker: usize) {
        (self.life[worker], self.within_calls[worker]) = (Life::Free, 0);
        for call in std::mem::take(&mut self.stays[worker]) {
            // Nobody sees a return in a pause.
            self.books.calls[call].is_open = !self.is_collected();
        }
    }

    /// Ends what is open, guards in any order.
    fn end_all(&mut self) -> Option<[Turn; 2]> {
        let workers = self.workers(Life::Free);
        let worker = self.pick(workers.clone())?;
        let close = |worker: usize| {
            let mut guards: Vec<usize> = std::mem::take(&mut self.guards[worker]);
            self.rng.shuffle(&mut guards);
            let close = |guard| {
                self.end(worker, guard);
                Step::Close { guard }
            };
            let steps = guards.into_iter().map(close).collect();
            Job { worker, returns: false, steps, end: End::No }
        };
        let guards = workers.into_iter().map(close).collect();
        let mut steps = Vec::new();
        for (process, truth) in std::mem::take(&mut self.held) {
            self.end_process(worker, truth);
            steps.push(Step::End { process });
        }
        for (future, truth) in std::mem::take(&mut self.futures) {
            self.end_process(worker, truth.life);
            steps.push(Step::Drop { future });
        }
        let last = vec![Job { worker, returns: false, steps, end: End::No }];
        Some([guards, last].map(|jobs| Turn { controls: Vec::new(), jobs }))
    }

    /// Some threads go into calls that do not return in this part.
    fn stay_all(&mut self, most: usize) -> Option<Turn> {
        self.turn += 1;
        self.users.clear();
        let mut workers = self.workers(Life::Free);
        workers.retain(|_| self.rng.bool());
        self.is_alone = workers.len() == 1;
        self.is_sequential &= workers.is_empty();
        let stay = |worker| {
            let mut steps = self.steps(worker, most, 1);
            steps.extend(self.stay(worker, most, 1));
            self.life[worker] = Life::Stays;
            Job { worker, returns: false, steps, end: End::No }
        };
        let jobs: Vec<_> = workers.into_iter().map(stay).collect();
        (!jobs.is_empty()).then(|| Turn { controls: Vec::new(), jobs })
    }

    fn stay(&mut self, worker: usize, most: usize, depth: usize) -> Option<Step> {
        let op = if self.chance(3) { None } else { self.op(&ALL) };
        let function = op.map_or(function_of(ALL[self.rng.usize(..5)]), |op| function_of(op.kind));
        let call = self.call(worker, function);
        self.books.calls[call].is_open = true;
        self.stays[worker].push(call);
        if let Some(op) = op {
            self.execute(op, Some(call), None, false);
        }
        self.within_calls[worker] += 1;
        let mut steps = self.steps(worker, most, depth + 1);
        let deeper =
            if depth < 3 && self.chance(3) { self.stay(worker, most, depth + 1) } else { None };
        steps.push(deeper.unwrap_or(Step::Stay));
        Some(match op {
            Some(op) => Step::Launch { op, how: How::Around(steps) },
            None => Step::CallAround { function, steps },
        })
    }

    fn add_turn(&mut self, most: usize) -> Turn {
        self.turn += 1;
        self.users.clear();
        let controls =
            if self.is_recorded && self.chance(4) { self.controls() } else { Vec::new() };
        let mut workers: Vec<_> = [self.workers(Life::Free), self.workers(Life::Stays)].concat();
        self.rng.shuffle(&mut workers);
        // Mostly one at a time, for then it may use whatever there is.
        let at_once = if self.rng.u8(..3) == 0 { self.rng.usize(1..=workers.len()) } else { 1 };
        workers.truncate(at_once);
        self.is_alone = at_once == 1;
        self.is_sequential &= self.is_alone;
        let jobs = workers.into_iter().map(|worker| self.job(worker, most)).collect();
        Turn { controls, jobs }
    }

    fn controls(&mut self) -> Vec<Control> {
        let sessions = (0..SESSIONS).filter(|_| self.rng.bool()).collect::<Vec<_>>();
        let say = |session: usize| {
            // Now and then what it is already.
            let is_pause = self.on[session] != self.chance(8);
            self.on[session] = !is_pause;
            Control { session, is_pause }
        };
        sessions.into_iter().map(say).collect()
    }

    fn job(&mut self, worker: usize, most: usize) -> Job {
        let returns = self.life[worker] == Life::Stays;
        if returns {
            self.free(worker);
        }
        let steps = self.steps(worker, most, 0);
        let end = match self.rng.u32(..24) {
            _ if self.life.len() >= MOST_WORKERS => End::No,
            0 => End::Closed,
            1 => End::LeftOpen,
            _ => End::No,
        };
        if end != End::No {
            for guard in std::mem::take(&mut self.guards[worker]) {
                if end == End::Closed {
                    self.end(worker, guard);
                }
            }
            self.life[worker] = Life::Ended;
            self.life.push(Life::Free);
            self.within_calls.push(0);
            self.stays.push(Vec::new());
            self.guards.push(Vec::new());
            self.open.push(Vec::new());
            self.begun.push((0, 0));
        }
        Job { worker, returns, steps, end }
    }

    fn steps(&mut self, worker: usize, most: usize, depth: usize) -> Vec<Step> {
        let count = self.rng.usize(0..=most >> depth);
        (0..count).filter_map(|_| self.step(worker, most, depth)).collect()
    }

    fn number(&mut self) -> usize {
        self.next_number += 1;
        self.next_number
    }

    fn chance(&mut self, of: u32) -> bool {
        self.rng.u32(..of) == 0
    }

    fn label(&mut self) -> Label {
        let domain = [None, None, Some(0), Some(1)][self.rng.usize(..4)];
        Label { domain, name: NAMES[self.rng.usize(..NAMES.len())] }
    }

    fn payload(&mut self) -> Option<u64> {
        self.chance(3).then(|| self.rng.u64(..))
    }

    fn op(&mut self, kinds: &[Kind]) -> Option<Op> {
        let id = self.next_op;
        self.next_op += 1;
        let kind = kinds[self.rng.usize(..kinds.len())];
        let (ns, stream) = (id * NS_APART + self.rng.u64(..NS_APART), self.rng.u32(7..11));
        (id < MOST_OPS).then_some(Op { kind, id, ns, stream, is_empty: false })
    }

    fn pick<K: Copy>(&mut self, from: Vec<K>) -> Option<K> {
        (!from.is_empty()).then(|| from[self.rng.usize(..from.len())])
    }

    /// One of those that this thread may use in this turn; it is the thread's then.
    fn take(
        &mut self,
        from: Vec<usize>,
        object: fn(usize) -> Object,
        worker: usize,
    ) -> Option<usize> {
        let users = &self.users;
        let free = |id: &usize| users.get(&object(*id)).is_none_or(|user| *user == worker);
        let id = self.pick(from.into_iter().filter(free).collect())?;
        self.users.insert(object(id), worker);
        Some(id)
    }

    fn pick_made<T>(
        &mut self,
        worker: usize,
        from: fn(&Self) -> &BTreeMap<usize, Made<T>>,
    ) -> Option<usize> {
        let seen = |made: &Made<T>| made.turn != self.turn || made.worker == worker;
        let ids = from(self).iter().filter(|(_, made)| seen(made)).map(|(id, _)| *id);
        self.pick(ids.collect())
    }

    fn current(&self, worker: usize) -> Option<usize> {
        self.open[worker].last().map(|(_, place)| place.range)
    }

    fn place(&self, worker: usize) -> Option<Place> {
        self.open[worker].last().map(|(_, place)| place.clone())
    }

    /// What a context is worth now: one of an earlier part is empty.
    fn present(&self, context: usize) -> Option<Place> {
        let place = self.contexts[&context].value.clone();
        place.filter(|place| self.is_recorded && self.instances[place.range].part == self.part)
    }

    /// Where a thread is in the contexts of `of` at once.
    fn join(&self, of: &[usize]) -> Option<Place> {
        let places: Vec<_> = of.iter().filter_map(|context| self.present(*context)).collect();
        let range = places.first()?.range;
        let all = places.iter().flat_map(|place| place.others.iter().chain([&place.range]));
        Some(Place { range, others: all.copied().filter(|other| *other != range).collect() })
    }

    /// A range begins; nothing of it is known without a session.
    fn begin(
        &mut self,
        worker: usize,
        guard: usize,
        label: Label,
        payload: Option<u64>,
        within: Option<usize>,
    ) {
        if !self.is_recorded {
            return;
        }
        let within = within.filter(|process| self.processes[*process].part == self.part);
        let others = self.place(worker).map_or_else(BTreeSet::new, |place| place.others);
        self.instances.push(Instance {
            part: self.part,
            guard,
            spot: (worker, self.begun[worker].0),
            label,
            parent: self.current(worker),
            is_nested: self.current(worker).is_some_and(|parent| self.is_within(worker, parent)),
            payload,
            within,
            is_open: true,
        });
        self.begun[worker].0 += 1;
        let place = Place { range: self.instances.len() - 1, others };
        self.open[worker].push((guard, place));
    }

    /// A guard is dropped: of a range, which ends, or of a context.
    fn end(&mut self, worker: usize, guard: usize) {
        let Some(place) = self.open[worker].iter().position(|(open, _)| *open == guard) else {
            return;
        };
        let (_, Place { range, .. }) = self.open[worker].remove(place);
        self.instances[range].is_open &= self.instances[range].guard != guard;
    }

    fn begin_process(
        &mut self,
        worker: usize,
        label: Label,
        payload: Option<u64>,
    ) -> Option<usize> {
        if !self.is_recorded {
            return None;
        }
        self.processes.push(Process {
            part: self.part,
            spot: (worker, self.begun[worker].1),
            label,
            parent: self.current(worker),
            payload,
            end: None,
        });
        self.begun[worker].1 += 1;
        Some(self.processes.len() - 1)
    }

    fn end_process(&mut self, worker: usize, process: Option<usize>) {
        if let Some(process) = process
            && self.is_recorded
            && self.processes[process].part == self.part
        {
            self.processes[process].end = Some(worker);
        }
    }

    fn call(&mut self, worker: usize, function: &'static str) -> usize {
        self.books.calls.push(CallTruth {
            counts: self.on,
            worker,
            function,
            place: self.place(worker),
            around: self.enclosing(worker),
            waiting: self.waiting(worker),
            is_failure: false,
            is_captured: false,
            is_empty: false,
            is_open: false,
            records: 0,
        });
        self.books.calls.len() - 1
    }

    fn is_within(&self, worker: usize, range: usize) -> bool {
        self.instances[range].spot.0 == worker && self.instances[range].is_open
    }

    /// What a thread does now counts for its innermost range and for those around it, but not for one of
    /// this thread that has ended: not even if what began in that one goes on. A context counts for all
    /// that was around it.
    fn enclosing(&self, worker: usize) -> Vec<usize> {
        let Some(innermost) = self.current(worker) else { return Vec::new() };
        let mut is_nested = self.is_within(worker, innermost);
        let mut around = vec![innermost];
        let mut last = innermost;
        while let Some(parent) = self.instances[last].parent {
            is_nested &= self.instances[last].is_nested;
            if !is_nested || self.instances[parent].is_open {
                around.push(parent);
            }
            last = parent;
        }
        around
    }

    /// Who may wait in a range while this thread does something: a thread that stays in a call does
    /// not, but the call may have begun in a pause.
    fn waiting(&self, worker: usize) -> Waiting {
        let mut innermost: BTreeMap<usize, Spot> = BTreeMap::new();
        for range in self.instances.iter().filter(|range| range.part == self.part && range.is_open)
        {
            innermost.insert(range.spot.0, range.spot);
        }
        let is_in_range = innermost.contains_key(&worker);
        innermost.retain(|_, _| !is_in_range);
        let is_known = self.guards[worker].iter().all(|guard| !self.old_guards.contains(guard));
        Waiting { ranges: innermost.into_values().collect(), is_alone: self.is_alone, is_known }
    }

    /// Whether anybody sees what is done.
    fn is_collected(&self) -> bool {
        self.on.contains(&true)
    }

    fn execute(&mut self, op: Op, call: Option<usize>, captured: Option<usize>, is_node: bool) {
        let counts = match call {
            Some(call) => {
                self.books.calls[call].records += 1;
                self.books.calls[call].counts
            }
            // Nobody knows when it was asked for.
            None => [self.is_collected(); SESSIONS],
        };
        let captured = captured.filter(|range| self.instances[*range].part == self.part);
        self.books.ops.push(OpTruth { op, counts, call, captured, is_node });
    }

    fn step(&mut self, worker: usize, most: usize, depth: usize) -> Option<Step> {
        let on_gpu = &ALL[..4];
        match self.rng.u32(..100) {
            0..18 => {
                let (guard, label, payload) = (self.number(), self.label(), self.payload());
                let held = self.held.keys().copied().collect();
                let within =
                    if self.chance(3) { self.take(held, Object::Process, worker) } else { None };
                let whole = within.and_then(|within| self.held[&within]);
                self.begin(worker, guard, label, payload, whole);
                self.guards[worker].push(guard);
                Some(Step::Open { guard, label, payload, within })
            }
            18..30 => {
                let guards = self.guards[worker].len();
                if guards == 0 {
                    return None;
                }
                let place = if self.chance(4) { self.rng.usize(..guards) } else { guards - 1 };
                let guard = self.guards[worker].remove(place);
                self.end(worker, guard);
                Some(Step::Close { guard })
            }
            30..36 => {
                let (context, value) = (self.number(), self.place(worker));
                let value = value.filter(|_| self.is_recorded);
                self.contexts.insert(context, Made { value, turn: self.turn, worker });
                Some(Step::Capture { context })
            }
            36..41 => {
                // Rather one that was captured by another thread, or of several ranges.
                let mut context = self.pick_made(worker, |of| &of.contexts)?;
                for _ in 0..3 {
                    let place = &self.contexts[&context].value;
                    let is_here = |of: &Place| {
                        self.instances[of.range].spot.0 == worker && of.others.is_empty()
                    };
                    if place.as_ref().is_some_and(|place| !is_here(place)) {
                        break;
                    }
                    context = self.pick_made(worker, |of| &of.contexts)?;
                }
                let guard = self.number();
                if let Some(place) = self.present(context) {
                    self.open[worker].push((guard, place));
                }
                self.guards[worker].push(guard);
                Some(Step::Attach { guard, context })
            }
            41..43 => {
                let of = (0..self.rng.usize(..5)).filter_map(|_| {
                    // Rather those that are worth something.
                    let mut context = self.pick_made(worker, |of| &of.contexts)?;
                    for _ in 0..3 {
                        if self.present(context).is_some() {
                            break;
                        }
                        context = self.pick_made(worker, |of| &of.contexts)?;
                    }
                    Some(context)
                });
                let of: Vec<usize> = of.collect();
                let (context, value) = (self.number(), self.join(&of));
                self.contexts.insert(context, Made { value, turn: self.turn, worker });
                Some(Step::Join { context, of })
            }
            43 => {
                let label = self.label();
                self.books.marks.push((worker, label, self.current(worker)));
                Some(Step::Mark { label })
            }
            44..47 => {
                let (process, label, payload) = (self.number(), self.label(), self.payload());
                let begun = self.begin_process(worker, label, payload);
                self.held.insert(process, begun);
                self.users.insert(Object::Process(process), worker);
                Some(Step::Begin { process, label, payload })
            }
            47..49 => {
                let held = self.held.keys().copied().collect();
                let process = self.take(held, Object::Process, worker)?;
                let truth = self.held.remove(&process)?;
                self.end_process(worker, truth);
                Some(Step::End { process })
            }
            49..57 => self.future_step(worker, most, depth),
            57..75 => {
                let op = self.op(&ALL)?;
                self.launch(worker, op, most, depth)
            }
            75..77 => {
                let ops: Vec<_> = (0..3).filter_map(|_| self.op(on_gpu)).collect();
                let call = self.call(worker, "cuGraphLaunch");
                ops.iter().for_each(|op| self.execute(*op, Some(call), None, false));
                (!ops.is_empty()).then_some(Step::LaunchNodes { ops })
            }
            77..81 => {
                let (function, result) = match self.rng.u32(..12) {
                    0..3 => (function_of(ALL[self.rng.usize(..5)]), 700),
                    3 => ("cuGraphLaunch", 1),
                    4..6 => ("cuMemAlloc_v2", 0),
                    6..8 => ("cuMemFree_v2", 0),
                    8 => ("cuMemAlloc_v2", 2),
                    9 => ("cuStreamQuery", 600),
                    10 => ("cuStreamQuery", 700),
                    _ if self.chance(4) => (function_of(ALL[self.rng.usize(..5)]), 0),
                    _ => ("cuGraphLaunch", 0),
                };
                let call = self.call(worker, function);
                self.books.calls[call].is_failure =
                    result != 0 && (function, result) != ("cuStreamQuery", 600);
                Some(Step::CallOnly { function, result })
            }
            81..83 => {
                let op = self.op(on_gpu)?;
                let call = self.call(worker, function_of(op.kind));
                self.books.calls[call].is_captured = true;
                Some(Step::CaptureOne { op })
            }
            83 => {
                // What comes with an id before that of every call is of a call before the collection.
                let mut calls = self.books.calls.iter();
                let is_first =
                    |call: &CallTruth| call.worker == worker && call.counts.contains(&true);
                if !calls.any(is_first) || !self.chance(4) {
                    return None;
                }
                let mut op = self.op(&ALL)?;
                // A stream of its own, so that it starts at once.
                op.stream = 1000 + self.next_op as u32;
                self.execute(op, None, None, false);
                Some(Step::Unseen { op })
            }
            _ => self.graph_step(worker, on_gpu),
        }
    }

    fn launch(&mut self, worker: usize, mut op: Op, most: usize, depth: usize) -> Option<Step> {
        let call = self.call(worker, function_of(op.kind));
        let how = match self.rng.u32(..10) {
            0 => How::RecordBefore,
            1 => How::RecordAfter,
            2 => How::Runtime,
            3 if depth < 3 => {
                self.within_calls[worker] += 1;
                let steps = self.steps(worker, most, depth + 1);
                self.within_calls[worker] -= 1;
                How::Around(steps)
            }
            _ => How::Plain,
        };
        let has_bytes = !matches!(op.kind, Kind::Kernel | Kind::Synchronize);
        if has_bytes && matches!(how, How::Plain) && self.chance(8) {
            op.is_empty = true;
            self.books.calls[call].is_empty = true;
        } else {
            self.execute(op, Some(call), None, false);
        }
        Some(Step::Launch { op, how })
    }

    fn future_step(&mut self, worker: usize, most: usize, depth: usize) -> Option<Step> {
        let idle = self.futures.iter().filter(|(_, future)| !future.is_busy);
        let (done, pending): (Vec<_>, Vec<_>) = idle.partition(|(_, future)| future.is_done);
        let ids =
            |of: Vec<(&usize, &FutureTruth)>| of.iter().map(|(id, _)| **id).collect::<Vec<_>>();
        let (done, pending) = (ids(done), ids(pending));
        match self.rng.u32(..8) {
            0..2 => {
                let future = self.program.futures.len();
                let label = self.label();
                let (has_lifetime, has_polls) = (!self.chance(4), !self.chance(4));
                self.program.futures.push(Script {
                    label,
                    has_lifetime,
                    has_polls,
                    polls: Vec::new(),
                    is_ready_at_last: false,
                });
                let life = has_lifetime.then(|| self.begin_process(worker, label, None)).flatten();
                self.futures.insert(future, FutureTruth { life, ..FutureTruth::default() });
                self.users.insert(Object::Future(future), worker);
                Some(Step::Make { future })
            }
            2..7 if depth < 3 => {
                let future = self.take(pending, Object::Future, worker)?;
                let Script { label, has_polls, .. } = self.program.futures[future];
                let (guard, life) = (self.number(), self.futures[&future].life);
                if has_polls {
                    self.begin(worker, guard, label, None, life);
                }
                self.futures.get_mut(&future)?.is_busy = true;
                let steps = self.steps(worker, most, depth + 1);
                if has_polls {
                    self.end(worker, guard);
                }
                let is_ready = self.chance(3);
                let script = &mut self.program.futures[future];
                script.polls.push(steps);
                script.is_ready_at_last = is_ready;
                let truth = self.futures.get_mut(&future)?;
                (truth.is_busy, truth.is_done) = (false, is_ready);
                if is_ready {
                    let life = truth.life.take();
                    self.end_process(worker, life);
                }
                Some(Step::Poll { future })
            }
            _ => {
                let from = if self.chance(2) { done } else { pending };
                let future = self.take(from, Object::Future, worker)?;
                let life = self.futures.remove(&future)?.life;
                self.end_process(worker, life);
                Some(Step::Drop { future })
            }
        }
    }

    fn graph_step(&mut self, worker: usize, on_gpu: &[Kind]) -> Option<Step> {
        let graphs: Vec<_> = self.graphs.keys().copied().collect();
        // Whatever makes a node while a call is under way has that call captured.
        let is_within = self.within_calls[worker] != 0;
        match self.rng.u32(..16) {
            0..2 => {
                let graph = self.number();
                self.graphs.insert(graph, Nodes::new());
                self.users.insert(Object::Graph(graph), worker);
                Some(Step::Graph { graph })
            }
            2..6 => {
                let (graph, op) = (self.take(graphs, Object::Graph, worker)?, self.op(on_gpu)?);
                let call = self.call(worker, function_of(op.kind));
                self.books.calls[call].is_captured = true;
                self.add_node(worker, graph, op);
                Some(Step::CaptureInto { graph, op })
            }
            6..8 if !is_within => {
                let (graph, op) = (self.take(graphs, Object::Graph, worker)?, self.op(on_gpu)?);
                self.add_node(worker, graph, op);
                Some(Step::AddNode { graph, op })
            }
            8..9 if !is_within => {
                let (from, to) = (self.take(graphs, Object::Graph, worker)?, self.number());
                self.graphs.insert(to, self.copy(from));
                self.users.insert(Object::Graph(to), worker);
                Some(Step::Clone { from, to })
            }
            9..11 if !is_within => {
                let (graph, exec) = (self.take(graphs, Object::Graph, worker)?, self.number());
                let value = self.copy(graph);
                self.execs.insert(exec, Made { value, turn: self.turn, worker });
                Some(Step::Instantiate { graph, exec })
            }
            11..15 => {
                let exec = self.pick_made(worker, |of| &of.execs)?;
                let call = self.call(worker, "cuGraphLaunch");
                for (op, range) in self.execs[&exec].value.clone() {
                    self.execute(op, Some(call), range, true);
                }
                Some(Step::LaunchExec { exec })
            }
            15 if self.is_alone => {
                let exec = self.pick_made(worker, |of| &of.execs)?;
                self.execs.remove(&exec);
                Some(Step::Destroy { exec })
            }
            _ => None,
        }
    }

    /// The nodes of a graph's copy: where they were first made is known if a copy was observed.
    fn copy(&self, graph: usize) -> Nodes {
        let is_seen = self.is_collected();
        self.graphs[&graph].iter().map(|(op, range)| (*op, range.filter(|_| is_seen))).collect()
    }

    fn add_node(&mut self, worker: usize, graph: usize, op: Op) {
        let range = self.current(worker).filter(|_| self.is_collected());
        if let Some(nodes) = self.graphs.get_mut(&graph) {
            nodes.push((op, range));
        }
    }
}

/// Whether a thread stays where it is.
fn has_stay(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Stay => true,
        Step::Launch { how: How::Around(steps), .. } | Step::CallAround { steps, .. } => {
            has_stay(steps)
        }
        _ => false,
    })
}

/// What a program has, of what few have.
pub(crate) fn features(program: &Program, truths: &[Option<Outcomes>]) -> Vec<(String, bool)> {
    let recorded = || program.parts.iter().filter(|part| part.is_recorded);
    let turns = || recorded().flat_map(|part| &part.turns);
    let jobs = || turns().flat_map(|turn| &turn.jobs);
    let pauses = |turn: &Turn| turn.controls.iter().filter(|said| said.is_pause).count();
    let facts = || truths.iter().flatten().map(|truth| &truth[0].facts);
    let ends_early = |part: &Part| {
        let before_last = part.turns.split_last().map_or(&[][..], |(_, turns)| turns);
        before_last.iter().flat_map(|turn| &turn.jobs).any(|job| job.end != End::No)
    };
    let is_within =
        |part: &Part| part.turns.iter().any(|turn| turn.jobs.iter().any(|job| job.returns));
    let pauses_within = |part: &Part| {
        let has_stay = |turn: &Turn| turn.jobs.iter().any(|job| has_stay(&job.steps));
        let stays = part.turns.iter().position(has_stay);
        let later = |turn: usize| &part.turns[turn + 1..];
        stays.is_some_and(|turn| later(turn).iter().any(|turn| pauses(turn) != 0))
    };
    let differs = |truth: &Outcomes| truth.iter().any(|other| other.totals != truth[0].totals);
    let mut features: Vec<_> = VERSIONS
        .map(|version| (format!("version {version} of CUPTI"), program.version == version))
        .into();
    features.extend(
        [
            ("a thread that ends while others go on", recorded().any(ends_early)),
            ("a thread that ends within open ranges", jobs().any(|job| job.end == End::LeftOpen)),
            ("ranges open at the stop", facts().any(|facts| facts.open_ranges != 0)),
            ("calls open at the stop", facts().any(|facts| facts.open_calls != 0)),
            ("a call that returns in a later turn", recorded().any(is_within)),
            ("a pause", turns().any(|turn| pauses(turn) != 0)),
            ("a pause of all sessions", turns().any(|turn| pauses(turn) == SESSIONS)),
            ("a pause within a call", recorded().any(pauses_within)),
            ("work that not all sessions count", truths.iter().flatten().any(differs)),
        ]
        .map(|(what, has)| (what.to_owned(), has)),
    );
    features
}

fn function_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "cuLaunchKernel",
        Kind::CopyIn => "cuMemcpyHtoDAsync_v2",
        Kind::CopyOut => "cuMemcpyDtoHAsync_v2",
        Kind::Memset => "cuMemsetD8Async",
        Kind::Synchronize => "cuStreamSynchronize",
    }
}

fn key(label: Label) -> Key {
    (label.domain.map(|domain| DOMAINS[domain].name().to_owned()), label.name.to_owned())
}

/// What is asked of a profile by [`profiler_core::Profile::range`]: names, whole paths, and their last two parts.
fn questions(paths: &BTreeSet<Vec<Key>>) -> BTreeSet<Vec<&str>> {
    let ends = paths.iter().flat_map(|path| {
        [path.len(), 2, 1].map(|parts| &path[path.len() - parts.min(path.len())..])
    });
    ends.map(|path| path.iter().map(|(_, name)| name.as_str()).collect()).collect()
}

fn ends_with(path: &[Key], end: &[&str]) -> bool {
    path.iter().rev().zip(end.iter().rev()).all(|((_, name), part)| name == part)
        && path.len() >= end.len()
}

/// The account of the books: the attribution of the work.
impl Generator {
    /// A range and those around it, the innermost first.
    fn chain(&self, range: usize) -> Vec<usize> {
        std::iter::successors(Some(range), |range| self.instances[*range].parent).collect()
    }

    fn path(&self, range: usize) -> Vec<Key> {
        let chain = self.chain(range);
        chain.iter().rev().map(|range| key(self.instances[*range].label)).collect()
    }

    fn spot(&self, range: Option<usize>) -> Option<Spot> {
        range.map(|range| self.instances[range].spot)
    }

    fn others(&self, place: Option<&Place>) -> BTreeSet<Spot> {
        let others = place.into_iter().flat_map(|place| &place.others);
        others.map(|range| self.instances[*range].spot).collect()
    }

    /// What each piece of work comes to, with its call and the range its node was made in.
    fn work(&self, session: usize) -> Vec<(Option<&CallTruth>, Option<usize>, Sums)> {
        let mut work = Vec::new();
        for OpTruth { op, call, captured, .. } in self.ops(session) {
            let mut sums = Sums::default();
            match op.kind {
                Kind::Kernel => sums[1..3].copy_from_slice(&[1, op.ns]),
                Kind::CopyIn | Kind::CopyOut => {
                    sums[3..6].copy_from_slice(&[1, op.ns, op.bytes()]);
                }
                Kind::Memset => sums[6..9].copy_from_slice(&[1, op.ns, op.bytes()]),
                Kind::Synchronize => continue,
            }
            work.push((call.map(|call| &self.books.calls[call]), *captured, sums));
        }
        for call in self.calls(session) {
            let mut sums = Sums::default();
            match call.function {
                _ if call.is_failure => sums[12] = 1,
                "cuLaunchKernel" | "cuGraphLaunch" => sums[0] = u64::from(!call.is_captured),
                "cuStreamSynchronize" => sums[9] = 1,
                "cuMemAlloc_v2" => sums[10] = 1,
                "cuMemFree_v2" => sums[11] = 1,
                _ => {}
            }
            work.push((Some(call), None, sums));
        }
        work
    }

    fn ops(&self, session: usize) -> impl Iterator<Item = &OpTruth> {
        self.books.ops.iter().filter(move |op| op.counts[session])
    }

    fn calls(&self, session: usize) -> impl Iterator<Item = &CallTruth> + Clone {
        self.books.calls.iter().filter(move |call| call.counts[session])
    }

    fn outcome(&self, session: usize) -> Outcome {
        let workers = self.life.len();
        let is_sequential = self.is_sequential;
        let is_late = |call: &&CallTruth| {
            let range = call.place.as_ref().map(|place| place.range);
            range.is_some_and(|range| call.around.len() < self.chain(range).len())
        };
        let after_an_end = self.calls(session).filter(is_late).count() as u64;
        let mut outcome = Outcome { is_sequential, after_an_end, ..Outcome::default() };
        let here = self.instances.iter().filter(|range| range.part == self.part);
        for worker in 0..workers {
            let row = |range: &Instance| RangeRow {
                key: key(range.label),
                parent: self.spot(range.parent),
                payload: range.payload,
                within: range.within.map(|process| self.processes[process].spot),
                is_open: range.is_open,
                ..RangeRow::default()
            };
            outcome
                .ranges
                .push(here.clone().filter(|range| range.spot.0 == worker).map(row).collect());
            let stays = |process: &Process| {
                let of = |range: &&Instance| {
                    range.within.is_some_and(|within| self.processes[within].spot == process.spot)
                };
                here.clone().filter(of).map(|range| range.spot).collect()
            };
            let row = |process: &Process| ProcessRow {
                key: key(process.label),
                parent: self.spot(process.parent),
                payload: process.payload,
                end: process.end,
                stays: stays(process),
                ..ProcessRow::default()
            };
            let processes = self.processes.iter().filter(|process| process.part == self.part);
            let of = processes.filter(|process| process.spot.0 == worker);
            outcome.processes.push(of.map(row).collect());
            let marks = self.books.marks.iter().filter(|mark| mark.0 == worker);
            outcome.marks.push(marks.map(|mark| (key(mark.1), self.spot(mark.2))).collect());
            let calls = self.calls(session).filter(|call| call.worker == worker);
            // A thread that opens such ranges itself does nothing for another one's.
            let own: BTreeSet<_> = here
                .clone()
                .filter(|range| range.spot.0 == worker)
                .map(|range| key(range.label))
                .collect();
            let peers: BTreeSet<_> = here
                .clone()
                .filter(|range| own.contains(&key(range.label)))
                .map(|range| range.spot)
                .collect();
            let waiting = calls.clone().map(|call| {
                let mut waiting = call.waiting.clone();
                waiting.ranges.retain(|spot| !peers.contains(spot));
                waiting
            });
            outcome.waiting.push(waiting.collect());
            let row = |call: &CallTruth| CallRow {
                function: call.function.to_owned(),
                range: self.spot(call.place.as_ref().map(|place| place.range)),
                others: self.others(call.place.as_ref()),
                is_failure: call.is_failure,
                is_captured: call.is_captured,
            };
            outcome.calls.push(calls.map(row).collect());
        }
        self.list_operations(session, &mut outcome);
        self.sum_up(session, &mut outcome);
        self.balance(session, &mut outcome);
        outcome
    }

    fn list_operations(&self, session: usize, outcome: &mut Outcome) {
        for OpTruth { op, call, captured, .. } in self.ops(session) {
            if op.kind == Kind::Synchronize {
                continue;
            }
            let call = call.map(|call| &self.books.calls[call]);
            let place = call.and_then(|call| call.place.as_ref());
            let range = self.spot(place.map(|place| place.range));
            let attribution = match (range, call) {
                (Some((thread, _)), Some(call)) if thread == call.worker => Attribution::Launch,
                (Some(_), _) => Attribution::Handed,
                _ => Attribution::None,
            };
            outcome.operations.entry((op.kind, op.id)).or_default().push(OperationRow {
                range,
                others: self.others(place),
                captured: self.spot(*captured),
                call: call.map(|call| (call.worker, call.function.to_owned())),
                attribution,
                bytes: if op.kind == Kind::Kernel { 0 } else { op.bytes() },
                ns: op.ns,
                stream: op.stream,
            });
        }
    }

    fn sum_up(&self, session: usize, outcome: &mut Outcome) {
        let here = |range: &usize| self.instances[*range].part == self.part;
        let ranges: Vec<_> = (0..self.instances.len()).filter(here).collect();
        let paths: HashMap<_, _> = ranges.iter().map(|range| (*range, self.path(*range))).collect();
        let all: BTreeSet<_> = paths.values().cloned().collect();
        let questions = questions(&all);
        for range in &ranges {
            outcome.nodes.entry(paths[range].clone()).or_default().instances += 1;
            for question in questions.iter().filter(|end| ends_with(&paths[range], end)) {
                outcome.summaries.entry(question.join("/")).or_default().instances += 1;
            }
        }
        for (call, captured, sums) in self.work(session) {
            add(&mut outcome.totals, &sums);
            let place = call.and_then(|call| call.place.as_ref());
            if let Some(place) = place {
                self.sum_up_shared(place, &sums, &paths, &questions, outcome);
            }
            let range = place.map(|place| place.range);
            match range {
                None => add(&mut outcome.outside, &sums),
                Some(range) => {
                    let chain = call.map(|call| &call.around[..]).unwrap_or_default();
                    for around in chain {
                        let (worker, place) = self.instances[*around].spot;
                        add(&mut outcome.ranges[worker][place].inclusive, &sums);
                        let node = outcome.nodes.entry(paths[around].clone()).or_default();
                        add(&mut node.inclusive, &sums);
                    }
                    add(
                        &mut outcome.nodes.entry(paths[&range].clone()).or_default().exclusive,
                        &sums,
                    );
                    let wholes: BTreeSet<_> =
                        chain.iter().filter_map(|range| self.instances[*range].within).collect();
                    for whole in wholes {
                        let (worker, place) = self.processes[whole].spot;
                        add(&mut outcome.processes[worker][place].inclusive, &sums);
                    }
                    for question in &questions {
                        let row = outcome.summaries.entry(question.join("/")).or_default();
                        if chain.iter().any(|around| ends_with(&paths[around], question)) {
                            add(&mut row.inclusive, &sums);
                        }
                        if ends_with(&paths[&range], question) {
                            add(&mut row.exclusive, &sums);
                        }
                    }
                }
            }
            let Some(captured) = captured else { continue };
            let chain = self.chain(captured);
            for around in &chain {
                let (worker, place) = self.instances[*around].spot;
                add(&mut outcome.ranges[worker][place].replayed, &sums);
                add(&mut outcome.nodes.entry(paths[around].clone()).or_default().replayed, &sums);
            }
            for question in &questions {
                if chain.iter().any(|around| ends_with(&paths[around], question)) {
                    let row = outcome.summaries.entry(question.join("/")).or_default();
                    add(&mut row.replayed, &sums);
                }
            }
        }
    }

    /// All that is around others than the range it counts for, and not around that one, has it once.
    fn sum_up_shared(
        &self,
        place: &Place,
        sums: &Sums,
        paths: &HashMap<usize, Vec<Key>>,
        questions: &BTreeSet<Vec<&str>>,
        outcome: &mut Outcome,
    ) {
        let counted = self.chain(place.range);
        let others: Vec<_> = place.others.iter().flat_map(|other| self.chain(*other)).collect();
        let more: BTreeSet<_> = others.iter().filter(|range| !counted.contains(range)).collect();
        for range in more {
            let (worker, place) = self.instances[*range].spot;
            add(&mut outcome.ranges[worker][place].shared, sums);
        }
        let of = |ranges: &[usize]| -> BTreeSet<Vec<Key>> {
            ranges.iter().map(|range| paths[range].clone()).collect()
        };
        let (counted, others) = (of(&counted), of(&others));
        for path in others.difference(&counted) {
            add(&mut outcome.nodes.entry(path.clone()).or_default().shared, sums);
        }
        for question in questions {
            let matches =
                |paths: &BTreeSet<Vec<Key>>| paths.iter().any(|path| ends_with(path, question));
            if matches(&others) && !matches(&counted) {
                let row = outcome.summaries.entry(question.join("/")).or_default();
                add(&mut row.shared, sums);
            }
        }
    }

    fn balance(&self, session: usize, outcome: &mut Outcome) {
        let account = |kind| match kind {
            Kind::Kernel => 0,
            Kind::CopyIn | Kind::CopyOut => 1,
            Kind::Memset => 2,
            Kind::Synchronize => 3,
        };
        let Outcome { accounts, facts, .. } = outcome;
        for OpTruth { op, call, captured, is_node, .. } in self.ops(session) {
            let [records, matched, ..] = &mut accounts[account(op.kind)];
            *records += 1;
            *matched += u64::from(call.is_some());
            facts.graph_operations += u64::from(*is_node);
            facts.graph_operations_captured += u64::from(captured.is_some());
        }
        for call in self.calls(session) {
            let expected = match call.function {
                "cuLaunchKernel" => 0,
                "cuMemcpyHtoDAsync_v2" | "cuMemcpyDtoHAsync_v2" => 1,
                "cuMemsetD8Async" => 2,
                "cuStreamSynchronize" => 3,
                _ => 4,
            };
            if call.is_open {
                facts.open_calls += 1;
            } else if call.is_failure {
                facts.failed_calls += 1;
            } else if call.is_captured {
                facts.captured_calls += 1;
            } else if call.function == "cuGraphLaunch" {
                facts.silent_graph_launches += u64::from(call.records == 0);
            } else if expected < 4 && !call.is_empty {
                accounts[expected][2] += 1;
                accounts[expected][3] += u64::from(call.records != 0);
            }
        }
        let open = self.instances.iter().filter(|range| range.part == self.part && range.is_open);
        let processes =
            self.processes.iter().filter(|range| range.part == self.part && range.end.is_none());
        facts.open_ranges = (open.count() + processes.count()) as u64;
        let is_balanced = |[records, matched, calls, answered]: &[u64; 4]| {
            records == matched && calls == answered
        };
        facts.is_complete = facts.open_calls == 0 && accounts.iter().all(is_balanced);
    }
}
