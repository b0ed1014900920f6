//! Random programs whose truth is known: what the profile says of every operation, range and sum is what the generator
//! of the program wrote down while it made it.
//!
//! `RANDOM_PROGRAMS` says how many (50), `RANDOM_PROGRAMS_SEED` the first seed; each program has the next one.
//! `RANDOM_SESSIONS` is the number of sessions that keep the same threads (250).
#![allow(clippy::unwrap_used, clippy::print_stderr)] // the helpers are tests too

#[path = "support/many_sessions.rs"]
mod many_sessions;
#[path = "support/outcome.rs"]
mod outcome;
#[path = "support/program.rs"]
mod program;
#[path = "support/truth.rs"]
mod truth;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use cupti::{Config, CopyKind};
use fake_cupti::Fake;
use nvtx::Payload;
use outcome::*;
use profiler_core::profile::{Account, PathSummary, ProcessRangeSummary, RangeNode, Totals};
use profiler_core::{Health, Profile, Profiler, Range, Recording, Summary};
use program::{Control, Kind, Program};
use test_support::folder::Folder;
use truth::{Generator, NS_APART, Outcomes, features};

/// What a profile says, in the generator's words.
struct Seen<'a> {
    profile: &'a Profile,
    /// The process that it is about, if there are several.
    process: Option<u32>,
    workers: HashMap<u32, usize>,
    /// The ranges of each thread, by start: no two of them start at the same time.
    spots: HashMap<(u32, Duration), Spot>,
    processes: HashMap<(u32, Duration), Spot>,
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn sums(totals: Totals) -> Sums {
    [
        totals.launches,
        totals.kernels,
        ns(totals.kernel_time()),
        totals.copies,
        ns(totals.copy_time()),
        totals.copy_bytes,
        totals.memsets,
        ns(totals.memset_time()),
        totals.memset_bytes,
        totals.synchronizations,
        totals.allocations,
        totals.frees,
        totals.failed_calls,
    ]
}

fn owned(domain: Option<&str>, name: &str) -> Key {
    (domain.map(str::to_owned), name.to_owned())
}

fn payload(payload: Option<Payload>) -> Option<u64> {
    payload.map(|payload| match payload {
        Payload::U64(value) => value,
        other => unreachable!("{other:?}"),
    })
}

fn accounts(health: &Health) -> [[u64; 4]; 4] {
    let account = |of: Account| [of.records, of.matched_records, of.calls, of.matched_calls];
    [
        health.accounts.kernels,
        health.accounts.copies,
        health.accounts.memsets,
        health.accounts.synchronizations,
    ]
    .map(account)
}

fn facts(health: &Health) -> Facts {
    Facts {
        failed_calls: health.facts.failed_calls,
        captured_calls: health.facts.captured_calls,
        silent_graph_launches: health.facts.silent_graph_launches,
        graph_operations: health.facts.graph_operations,
        graph_operations_captured: health.facts.graph_operations_captured,
        open_ranges: health.facts.open_ranges,
        open_calls: health.losses.open_calls,
        is_complete: health.is_complete(),
    }
}

/// Numbers what each thread began, in order.
fn places(
    workers: &HashMap<u32, usize>,
    begun: impl Iterator<Item = (u32, Duration)>,
) -> HashMap<(u32, Duration), Spot> {
    let mut counts = vec![0; workers.len()];
    let mut places = HashMap::new();
    for (thread, start) in begun {
        let worker = workers[&thread];
        let twice = places.insert((thread, start), (worker, counts[worker]));
        assert_eq!(twice, None, "two ranges of a thread began at the same time");
        counts[worker] += 1;
    }
    places
}

impl<'a> Seen<'a> {
    fn new(profile: &'a Profile, process: Option<u32>, ids: &[u32]) -> Self {
        let workers: HashMap<_, _> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let is_of = |id: u32| process.is_none_or(|process| process == id);
        let ranges = profile.ranges().filter(|range| is_of(range.process_id()));
        let ranges = ranges.map(|range| (range.thread_id(), range.start()));
        let processes = profile.process_ranges().filter(|range| is_of(range.process_id()));
        let processes = processes.map(|range| (range.thread_id(), range.start()));
        let (spots, processes) = (places(&workers, ranges), places(&workers, processes));
        Self { profile, process, workers, spots, processes }
    }

    fn is_of(&self, process: u32) -> bool {
        self.process.is_none_or(|of| of == process)
    }

    fn spot(&self, range: Option<Range<'_>>) -> Option<Spot> {
        range.map(|range| self.spots[&(range.thread_id(), range.start())])
    }

    /// The ranges that follow the first one, which is the range that it counts for.
    fn others<'r>(
        &self,
        first: Option<Range<'_>>,
        mut ranges: impl Iterator<Item = Range<'r>>,
    ) -> BTreeSet<Spot> {
        assert_eq!(self.spot(ranges.next()), self.spot(first));
        let others: Vec<Spot> = ranges.filter_map(|range| self.spot(Some(range))).collect();
        let once = others.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(once.len(), others.len(), "a range is there twice");
        once
    }

    /// Sorts what has a thread into lists by thread.
    fn by_worker<T>(&self, rows: impl Iterator<Item = (u32, T)>) -> Vec<Vec<T>> {
        let mut lists: Vec<_> = self.workers.iter().map(|_| Vec::new()).collect();
        rows.for_each(|(thread, row)| lists[self.workers[&thread]].push(row));
        lists
    }

    fn outcome(&self, questions: impl Iterator<Item = String>) -> Outcome {
        let profile = self.profile;
        let ranges = profile.ranges().filter(|range| self.is_of(range.process_id()));
        let ranges = ranges.map(|range| {
            let within = range.process_range();
            let row = RangeRow {
                key: owned(range.domain(), range.name()),
                parent: self.spot(range.parent()),
                payload: payload(range.payload()),
                within: within.map(|whole| self.processes[&(whole.thread_id(), whole.start())]),
                is_open: range.is_open(),
                inclusive: sums(range.inclusive()),
                replayed: sums(range.replayed()),
                shared: sums(range.shared()),
            };
            assert_eq!(range.shared_calls().filter(|call| !call.is_shared()).count(), 0);
            (range.thread_id(), row)
        });
        let processes = profile.process_ranges();
        let processes = processes.filter(|range| self.is_of(range.process_id()));
        let processes = processes.map(|range| {
            let row = ProcessRow {
                key: owned(range.domain(), range.name()),
                parent: self.spot(range.parent()),
                payload: payload(range.payload()),
                end: range.end_thread_id().map(|thread| self.workers[&thread]),
                stays: range.activations().filter_map(|stay| self.spot(Some(stay))).collect(),
                inclusive: sums(range.inclusive()),
            };
            assert_eq!(row.stays.len(), range.activations().count());
            assert_eq!(range.is_open(), row.end.is_none());
            (range.thread_id(), row)
        });
        let marks = profile.marks().filter(|mark| self.is_of(mark.process_id()));
        let marks = marks.map(|mark| {
            (mark.thread_id(), (owned(mark.domain(), mark.name()), self.spot(mark.range())))
        });
        let calls = profile.calls().filter(|call| self.is_of(call.process_id()));
        let calls = calls.map(|call| {
            let row = CallRow {
                function: call.name().to_owned(),
                range: self.spot(call.range()),
                others: self.others(call.range(), call.ranges()),
                is_failure: call.is_failure(),
                is_captured: call.is_captured(),
            };
            (call.thread_id(), row)
        });
        let mut nodes = BTreeMap::new();
        profile.roots().for_each(|root| list_nodes(root, &mut Vec::new(), &mut nodes));
        let summary = |question: String| {
            let summary = profile.range(&question)?;
            let row = NodeRow {
                instances: summary.instances(),
                inclusive: sums(summary.inclusive()),
                exclusive: sums(summary.exclusive()),
                replayed: sums(summary.replayed()),
                shared: sums(summary.shared()),
            };
            Some((question, row))
        };
        let health = profile.health();
        Outcome {
            ranges: self.by_worker(ranges),
            processes: self.by_worker(processes),
            marks: self.by_worker(marks),
            calls: self.by_worker(calls),
            operations: self.operations(),
            nodes,
            summaries: questions.filter_map(summary).collect(),
            outside: sums(profile.outside_ranges()),
            totals: sums(profile.totals()),
            accounts: accounts(health),
            facts: facts(health),
            ..Outcome::default()
        }
    }

    /// Checks the inferred ranges; returns how many there are.
    fn check_inferred(&self, truth: &Outcome) {
        let calls = self.profile.calls();
        let calls = calls.map(|call| (call.thread_id(), self.spot(call.inferred_range())));
        for (worker, calls) in self.by_worker(calls).into_iter().enumerate() {
            let rows = truth.calls[worker].iter().zip(&truth.waiting[worker]);
            for (inferred, (call, waiting)) in calls.into_iter().zip(rows) {
                let mut waits = waiting.ranges.iter().copied();
                let only = waits.next().filter(|_| waits.next().is_none());
                if call.range.is_some() {
                    assert_eq!(inferred, None, "{call:?} has a range");
                } else if waiting.is_alone {
                    let is_waiting = inferred.is_none_or(|spot| waiting.ranges.contains(&spot));
                    assert!(is_waiting, "{inferred:?} instead of {waiting:?}");
                }
                if call.range.is_none() && truth.is_sequential && waiting.is_known {
                    assert_eq!(inferred, only, "{call:?}, {waiting:?}");
                }
            }
        }
    }

    fn operations(&self) -> BTreeMap<(Kind, u64), Vec<OperationRow>> {
        let mut operations: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let all = self.profile.operations();
        for operation in all.filter(|operation| self.is_of(operation.process_id())) {
            let ns = u64::try_from(operation.gpu_time().unwrap().as_nanos()).unwrap();
            // What was recorded without the clock seems to begin decades later.
            let latest = self.profile.duration() + Duration::from_secs(1);
            assert!(operation.start().unwrap() < latest, "{operation:?}");
            let (kind, id, bytes) = if let Some(kernel) = operation.as_kernel() {
                let id: u64 = kernel.name()[1..].parse().unwrap();
                (Kind::Kernel, id, 0)
            } else if let Some(copy) = operation.as_copy() {
                let is_in = copy.kind() == CopyKind::HostToDevice;
                let kind = if is_in { Kind::CopyIn } else { Kind::CopyOut };
                (kind, copy.bytes() - 1, copy.bytes())
            } else {
                // Its bytes are seen in sums alone.
                let id = ns / NS_APART;
                (Kind::Memset, id, id + 1)
            };
            let call = operation.call();
            operations.entry((kind, id)).or_default().push(OperationRow {
                range: self.spot(operation.range()),
                others: self.others(operation.range(), operation.ranges()),
                captured: self.spot(operation.captured_in()),
                call: call.map(|call| (self.workers[&call.thread_id()], call.name().to_owned())),
                attribution: operation.attribution(),
                bytes,
                ns,
                stream: operation.stream(),
            });
        }
        operations.values_mut().for_each(|rows| sort(rows));
        operations
    }
}

/// What ran several times has no order of its own.
fn sort(rows: &mut [OperationRow]) {
    let key = |row: &OperationRow| (row.range, row.captured, row.others.clone(), row.call.clone());
    rows.sort_by_key(key);
}

fn list_nodes(node: RangeNode<'_>, path: &mut Vec<Key>, nodes: &mut BTreeMap<Vec<Key>, NodeRow>) {
    path.push(owned(node.domain(), node.name()));
    let row = NodeRow {
        instances: node.instances(),
        inclusive: sums(node.inclusive()),
        exclusive: sums(node.exclusive()),
        replayed: sums(node.replayed()),
        shared: sums(node.shared()),
    };
    assert!(nodes.insert(path.clone(), row).is_none(), "{path:?} is there twice");
    node.children().for_each(|child| list_nodes(child, path, nodes));
    path.pop();
}

/// What a summary says of every path, as a profile says it.
fn paths(summary: &Summary) -> BTreeMap<Vec<Key>, NodeRow> {
    let row = |path: PathSummary<'_>| {
        let around = std::iter::successors(Some(path), |path| path.parent());
        let mut key: Vec<Key> = around.map(|path| owned(path.domain(), path.name())).collect();
        key.reverse();
        let row = NodeRow {
            instances: path.instances(),
            inclusive: sums(path.inclusive()),
            exclusive: sums(path.exclusive()),
            replayed: sums(path.replayed()),
            shared: sums(path.shared()),
        };
        (key, row)
    };
    summary.paths().map(row).collect()
}

/// What a summary says of ranges of the process: how many, those that have ended, stays, sums.
type Wholes = BTreeMap<Key, (u64, u64, u64, Sums)>;

fn wholes(summary: &Summary) -> Wholes {
    let row = |range: ProcessRangeSummary<'_>| {
        let ended = range.host_time().count();
        let row = (range.instances(), ended, range.activations(), sums(range.inclusive()));
        (owned(range.domain(), range.name()), row)
    };
    summary.process_ranges().map(row).collect()
}

fn true_wholes(truth: &Outcome) -> Wholes {
    let mut wholes = Wholes::new();
    for row in truth.processes.iter().flatten() {
        let (begun, ended, stays, inclusive) = wholes.entry(row.key.clone()).or_default();
        *begun += 1;
        *ended += u64::from(row.end.is_some());
        *stays += row.stays.len() as u64;
        add(inclusive, &row.inclusive);
    }
    wholes
}

fn true_marks(truth: &Outcome) -> BTreeMap<Key, u64> {
    let mut marks = BTreeMap::new();
    for (key, _) in truth.marks.iter().flatten() {
        *marks.entry(key.clone()).or_default() += 1;
    }
    marks
}

/// Row by row, so that a failure shows what differs.
fn compare_lists<T: PartialEq + Debug>(seen: &[Vec<T>], truth: &[Vec<T>], what: &str) {
    for (worker, (seen, truth)) in seen.iter().zip(truth).enumerate() {
        for (place, (seen, truth)) in seen.iter().zip(truth).enumerate() {
            assert_eq!(seen, truth, "{what}, {place} of thread {worker}");
        }
        assert_eq!(seen.len(), truth.len(), "{what} of thread {worker}");
    }
}

fn compare_maps<K: Ord + Debug, T: PartialEq + Debug>(
    seen: &BTreeMap<K, T>,
    truth: &BTreeMap<K, T>,
    what: &str,
) {
    for (key, truth) in truth {
        assert_eq!(seen.get(key), Some(truth), "{what}, {key:?}");
    }
    assert!(seen.keys().eq(truth.keys()), "{what}: {:?} {:?}", seen.keys(), truth.keys());
}

fn compare(seen: &Outcome, truth: &Outcome, what: &str) {
    compare_lists(&seen.calls, &truth.calls, &format!("calls of {what}"));
    compare_maps(&seen.operations, &truth.operations, &format!("operations of {what}"));
    compare_lists(&seen.ranges, &truth.ranges, &format!("ranges of {what}"));
    compare_lists(&seen.processes, &truth.processes, &format!("process ranges of {what}"));
    compare_lists(&seen.marks, &truth.marks, &format!("marks of {what}"));
    compare_maps(&seen.nodes, &truth.nodes, &format!("nodes of {what}"));
    compare_maps(&seen.summaries, &truth.summaries, &format!("summaries of {what}"));
    assert_eq!(seen.accounts, truth.accounts, "accounts of {what}");
    assert_eq!(seen.facts, truth.facts, "facts of {what}");
    assert_eq!((seen.totals, seen.outside), (truth.totals, truth.outside), "sums of {what}");
}

/// What the sessions saw of one part of a program, with its truth.
struct Recorded {
    whole: Recording,
    within: Recording,
    /// What the file of a session like that one held in the end.
    file: Vec<u8>,
    /// What it held in the middle of the program, with a snapshot of that session.
    moments: Vec<(Vec<u8>, Recording)>,
    summary: Summary,
    /// The threads of the program.
    threads: Vec<u32>,
    truth: Outcomes,
}

/// Runs one program, and counts what of all that may come out did.
///
/// Four sessions see each part of it: one from before the others to after them, one that another surrounds, one like it that
/// is written to a file, and one that keeps sums. The logs are taken out again and again meanwhile.
fn record(
    fake: &'static Fake,
    [profiler, within]: &[Profiler; 2],
    (program, mut truths): (Program, Vec<Option<Outcomes>>),
    met: &mut BTreeMap<String, u64>,
) -> Vec<Recorded> {
    for truth in truths.iter_mut().flatten().flatten() {
        truth.operations.values_mut().for_each(|rows| sort(rows));
        for (what, count) in truth.kinds() {
            *met.entry(what.to_owned()).or_default() += count;
        }
    }
    for (what, has) in features(&program, &truths) {
        *met.entry(format!("programs with {what}")).or_default() += u64::from(has);
    }
    let program = Arc::new(program);
    let folder = Folder::new();
    let path = folder.0.join("run.gpuprof");
    let mut recordings = Vec::new();
    let mut controls = 0_u64;
    program::run(fake, &program, |part, run| {
        if !program.parts[part].is_recorded {
            run(&mut |_| {});
            return;
        }
        profiler.start().unwrap();
        within.start().unwrap();
        let file = within.record_to(&path).unwrap();
        let sums = profiler.summarize().unwrap();
        let mut moments = Vec::new();
        let ids = run(&mut |Control { session, is_pause }| {
            match (session, is_pause) {
                (0, true) => profiler.pause(),
                (0, false) => profiler.resume(),
                (1, true) => within.pause().and_then(|()| file.pause()),
                (1, false) => within.resume().and_then(|()| file.resume()),
                (_, true) => sums.pause(),
                (_, false) => sums.resume(),
            }
            .unwrap();
            controls += 1;
            if controls.is_multiple_of(3) {
                file.flush().unwrap();
                let held = std::fs::read(&path).unwrap();
                *met.entry("moments of files".to_owned()).or_default() += 1;
                moments.push((held, within.snapshot_recording().unwrap()));
            }
        });
        let (summary, within) = (sums.stop().unwrap(), within.stop_recording().unwrap());
        // The file ends while another session goes on, or with the collection.
        let (whole, totals) = if part % 2 == 0 {
            let totals = file.finish().unwrap();
            (profiler.stop_recording().unwrap(), totals)
        } else {
            (profiler.stop_recording().unwrap(), file.finish().unwrap())
        };
        let file = std::fs::read(&path).unwrap();
        assert_eq!((totals.unwritten_entries, totals.bytes), (0, file.len() as u64));
        recordings.push((whole, within, file, moments, summary, ids));
    });
    let truths = truths.into_iter().flatten();
    let recorded = recordings.into_iter().zip(truths).map(|(seen, truth)| {
        let (whole, within, file, moments, summary, threads) = seen;
        Recorded { whole, within, file, moments, summary, threads, truth }
    });
    recorded.collect()
}

/// A file is at every moment what a snapshot is then, and where it is cut it is never complete.
fn check_moments(file: &[u8], moments: Vec<(Vec<u8>, Recording)>, threads: &[u32]) {
    for (held, snapshot) in moments {
        assert!(file.starts_with(&held));
        let read = Profile::from_bytes(&held).unwrap();
        assert_eq!(read.health().losses.truncated, 1);
        let snapshot = Profile::from_recording(snapshot);
        let outcome = |profile: &Profile| {
            let mut outcome = Seen::new(profile, None, threads).outcome(std::iter::empty());
            outcome.facts.is_complete = false;
            outcome
        };
        compare(&outcome(&read), &outcome(&snapshot), "a truncated file");
        let pending =
            |of: &Profile| (of.health().facts.pending_calls, of.health().facts.pending_ranges);
        assert_eq!(pending(&read), pending(&snapshot), "{}", read.health());
    }
    let mut random = fastrand::Rng::with_seed(file.len() as u64);
    for _ in 0..3 {
        let cut = random.usize(..file.len());
        if let Ok(read) = Recording::from_bytes(&file[..cut]) {
            assert!(!Profile::from_recording(read).health().is_complete());
        }
    }
}

/// A recording that was compared with its truth.
type Checked = (Recording, Vec<u32>, Outcome);

/// Merges two recordings: each is what it is alone, and sums are those of both.
fn check_merged(parts: [&Checked; 2]) {
    let recordings = parts.map(|(recording, ..)| recording.clone());
    let profile = Profile::from_recordings(recordings).unwrap();
    let mut seen = Outcome::default();
    let (mut nodes, mut outside, mut totals) = <(BTreeMap<_, NodeRow>, Sums, Sums)>::default();
    let processes: Vec<u32> = {
        let mut processes: Vec<_> = profile.processes().collect();
        // Both have the same id; the later one got another.
        processes.sort_by_key(|process| process.id() > 1 << 22);
        processes.iter().map(|process| process.id()).collect()
    };
    for ((_, threads, truth), process) in parts.into_iter().zip(processes) {
        seen = Seen::new(&profile, Some(process), threads).outcome(std::iter::empty());
        let what = format!("process {process} of two");
        compare_lists(&seen.calls, &truth.calls, &format!("calls of {what}"));
        compare_maps(&seen.operations, &truth.operations, &format!("operations of {what}"));
        compare_lists(&seen.ranges, &truth.ranges, &format!("ranges of {what}"));
        compare_lists(&seen.processes, &truth.processes, &format!("process ranges of {what}"));
        compare_lists(&seen.marks, &truth.marks, &format!("marks of {what}"));
        add(&mut outside, &truth.outside);
        add(&mut totals, &truth.totals);
        for (path, row) in &truth.nodes {
            let node = nodes.entry(path.clone()).or_default();
            node.instances += row.instances;
            for (sum, more) in [
                (&mut node.inclusive, &row.inclusive),
                (&mut node.exclusive, &row.exclusive),
                (&mut node.replayed, &row.replayed),
                (&mut node.shared, &row.shared),
            ] {
                add(sum, more);
            }
        }
    }
    compare_maps(&seen.nodes, &nodes, "nodes of two processes");
    assert_eq!((seen.totals, seen.outside), (totals, outside), "sums of two processes");
    let accounts = |at: usize| parts.iter().map(|(.., truth)| truth.accounts[at][0]).sum::<u64>();
    assert_eq!(seen.accounts.map(|account| account[0]), [0, 1, 2, 3].map(accounts));
}

/// Compares the profiles and the summary of one part with its truth.
fn check(recorded: Recorded) -> Checked {
    let Recorded { whole, within, file, moments, summary, threads, truth } = recorded;
    let [truth, of_within, of_sums] = truth;
    let from_file = Recording::from_bytes(&file).unwrap();
    assert_eq!(Recording::from_bytes(&from_file.to_bytes()).unwrap(), from_file);
    check_moments(&file, moments, &threads);
    let replayed = Recording::from_bytes(&whole.to_bytes()).unwrap();
    assert_eq!(replayed, whole);
    let kept = whole.clone();
    let within_replayed = Recording::from_bytes(&within.to_bytes()).unwrap();
    assert_eq!(within_replayed, within);
    for (recording, truth, what) in [
        (whole, &truth, "the live profile"),
        (replayed, &truth, "the replay"),
        (within, &of_within, "the session within"),
        (from_file, &of_within, "the file"),
    ] {
        // Inferred ranges are beside all else.
        let profile = Profile::from_recording(recording).with_inferred_ranges();
        let seen = Seen::new(&profile, None, &threads);
        seen.check_inferred(truth);
        let health = profile.health();
        let what = format!("{what} ({health}; {} records before it)", health.facts.records_before);
        compare(&seen.outcome(truth.summaries.keys().cloned()), truth, &what);
        assert_eq!(
            (health.losses.lost_ranges, health.losses.calls_in_unknown_ranges),
            (0, 0),
            "{health}"
        );
    }
    compare_maps(&paths(&summary), &of_sums.nodes, "paths of the summary");
    assert_eq!(
        (sums(summary.totals()), sums(summary.outside_ranges())),
        (of_sums.totals, of_sums.outside),
        "sums of the summary"
    );
    compare_maps(&wholes(&summary), &true_wholes(&of_sums), "lives of the summary");
    let marks = summary.marks().map(|(domain, name, count)| (owned(domain, name), count));
    compare_maps(&marks.collect(), &true_marks(&of_sums), "marks of the summary");
    assert_eq!(accounts(summary.health()), of_sums.accounts, "accounts of the summary");
    assert_eq!(facts(summary.health()), of_sums.facts, "facts of the summary");
    (kept, threads, truth)
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Says which program it was, if the test fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("alone again with RANDOM_PROGRAMS=1 RANDOM_PROGRAMS_SEED={seed}");
            eprintln!("{:#?}", Generator::program(seed).0);
        }
    }
}

/// The process has one collection, and one fake. It is never dropped: threads of any length of life may use it.
fn lock_fake() -> (MutexGuard<'static, ()>, &'static Fake) {
    static FAKE: OnceLock<&'static Fake> = OnceLock::new();
    static COLLECTION: Mutex<()> = Mutex::new(());
    let guard = COLLECTION.lock().unwrap_or_else(PoisonError::into_inner);
    (guard, *FAKE.get_or_init(|| Box::leak(Box::default())))
}

#[test]
fn kept_guards_and_contexts_count_for_their_own_session_among_thousands() {
    let (_fake, fake) = lock_fake();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let sessions = setting("RANDOM_SESSIONS", 100);
    let [calls, contexts] = many_sessions::play(fake, &profiler, sessions);
    eprintln!("{sessions} sessions: {calls} calls in ranges of earlier ones, {contexts} contexts");
    // What never happens proves nothing.
    assert!(sessions < 100 || calls > sessions / 100 && contexts > sessions / 100);
}

#[test]
fn random_programs_round_trip() {
    let (_fake, fake) = lock_fake();
    let profiler = || {
        let builder = Profiler::builder().library(fake.library().unwrap());
        // Calls that are open at a stop return only after it: to wait for them proves nothing. The generator's waits have
        // their records when and as the library writes them, within calls that fail or do not return too.
        let config = Config::new().launch_hold(Duration::ZERO).synchronizations_from_calls(false);
        builder.config(config).period(Duration::from_millis(1)).build().unwrap()
    };
    let mut of_version = None;
    let (first, count) = (setting("RANDOM_PROGRAMS_SEED", 0), setting("RANDOM_PROGRAMS", 20));
    let mut met = BTreeMap::new();
    // Another thread compares while the next programs run.
    let (sender, receiver) = mpsc::sync_channel::<(u64, Vec<Recorded>)>(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut last: Option<Checked> = None;
            for (seed, recorded) in receiver {
                let _named = Named(seed);
                for recorded in recorded {
                    let checked = check(recorded);
                    last.iter().for_each(|last| check_merged([last, &checked]));
                    last = Some(checked);
                }
            }
        });
        for seed in first..first + count {
            let _named = Named(seed);
            let (program, truths) = Generator::program(seed);
            if of_version.as_ref().is_none_or(|(version, _)| *version != program.version) {
                fake.replace(program.version);
                of_version = Some((program.version, [profiler(), profiler()]));
            }
            let (_, profilers) = of_version.as_ref().unwrap();
            let recorded = record(fake, profilers, (program, truths), &mut met);
            // The other thread is gone only if a comparison failed; the end of the scope reports that.
            if sender.send((seed, recorded)).is_err() {
                break;
            }
        }
        drop(sender);
    });
    eprintln!("{count} programs from seed {first}: {met:#?}");
    // A generator that no longer makes something proves nothing of it.
    assert!(count < 200 || met.values().all(|count| *count > 0), "{met:?}");
}
