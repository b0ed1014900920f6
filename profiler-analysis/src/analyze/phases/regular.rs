//! Steady phases of GPU operations that repeat outside repeating ranges, such as the generation of
//! tokens.
//!
//! The operations that a thread submits are a sequence of kernels, copies and memsets. The sequence
//! repeats where nearly every operation equals the operation one period before.

use rustc_hash::FxHashMap;

use super::{Candidate, LEAST_INSTANCES};
use profiler_base::statistics::{upper_median, warm_up};
use profiler_core::tables::busy::united;
use profiler_core::tables::{Interval, NameId, Operation, Tables, ThreadId, What};

/// The fewest operations of a phase.
const LEAST_OPERATIONS: usize = 1_024;
/// The number of period lengths that are tried.
const PERIODS: usize = 8;
/// The maximum number of phases of a thread.
const MOST_PHASES: usize = 4;
/// The part of two periods that may differ. One operation more or less in a period shifts one
/// period.
const MOST_DIFFERENT: f64 = 0.6;
/// The minimum share of equal operations of a period at the ends of a phase.
const WHOLE_PERIOD: f64 = 0.9;
/// The minimum share of operations that equal the operation one period before.
const LEAST_EQUAL: f64 = 0.75;
/// The minimum length of another period's repetition, as a share of the longest repeating part.
const LEAST_OF_LONGEST: f64 = 0.5;
/// The minimum equal operations of a shorter period, as a share of the best period's. The layers of
/// a model repeat less exactly than its steps.
const LEAST_OF_BEST: f64 = 0.995;
/// A pause of this many periods ends a phase.
const LONGEST_PAUSE: u64 = 8;

/// An operation with the time of its call.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    called_ns: u64,
    end_ns: u64,
    symbol: u32,
}

/// A repeating part of a sequence. The end is exclusive.
#[derive(Debug, Clone, Copy)]
struct Segment {
    first: usize,
    end: usize,
    equal: usize,
}

/// The candidates of the operations of one process outside those found before. Those are in start
/// order.
pub(super) fn candidates(
    store: &Tables,
    operations: &[&Operation],
    found: &[Candidate],
) -> Vec<Candidate> {
    let taken = united(found.iter().map(|candidate| candidate.whole).collect());
    let mut threads: FxHashMap<Option<ThreadId>, Vec<Submitted>> = FxHashMap::default();
    let mut symbols: FxHashMap<Symbol, u32> = FxHashMap::default();
    for &operation in operations {
        let Some(time) = operation.time() else { continue };
        let call = operation.call.get().map(|call| &store.calls[call.at()]);
        let called_ns = call.map_or(time.start_ns, |call| call.time.start_ns);
        let before = taken.partition_point(|taken| taken.start_ns <= called_ns);
        if before.checked_sub(1).is_some_and(|last| called_ns < taken[last].end_ns) {
            continue;
        }
        let next = symbols.len() as u32;
        let symbol = *symbols.entry(Symbol::new(store, operation)).or_insert(next);
        let submitted = Submitted { called_ns, end_ns: time.end_ns, symbol };
        threads.entry(call.map(|call| call.thread)).or_default().push(submitted);
    }
    let mut all: Vec<Candidate> = Vec::new();
    for mut sequence in threads.into_values() {
        sequence.sort_by_key(|operation| operation.called_ns);
        // A phase found in the middle separates the operations around it.
        let mut left: Vec<&[Submitted]> =
            sequence.chunk_by(|a, b| !is_between(&taken, a, b)).collect();
        for _ in 0..MOST_PHASES {
            let Some(period) = longest(&left) else { break };
            let mut rest = Vec::new();
            for part in left {
                let mut from = 0;
                for Segment { first, end, .. } in segments(part, period) {
                    all.extend(candidates_of(&part[first..end], period));
                    rest.push(&part[from..first]);
                    from = end;
                }
                rest.push(&part[from..]);
            }
            left = rest;
        }
    }
    all.sort_by_key(|candidate| {
        (std::cmp::Reverse(candidate.steady.ns()), candidate.steady.start_ns)
    });
    all
}

fn is_between(taken: &[Interval], a: &Submitted, b: &Submitted) -> bool {
    let next = taken.partition_point(|taken| taken.start_ns <= a.called_ns);
    taken.get(next).is_some_and(|taken| taken.start_ns <= b.called_ns)
}

/// The kind of an operation, without its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Symbol {
    Kernel(NameId),
    Copy(cupti::CopyKind),
    Memset,
    Graph,
}

impl Symbol {
    fn new(store: &Tables, operation: &Operation) -> Self {
        match &store.work(operation).what {
            What::Kernel { names, .. } => Self::Kernel(names.name),
            What::Copy(copy) => Self::Copy(copy.kind),
            What::Memset(_) => Self::Memset,
            What::Graph(_) => Self::Graph,
        }
    }
}

/// The shortest of the periods that repeat most exactly and long enough.
fn longest(sequences: &[&[Submitted]]) -> Option<usize> {
    let mut weights: FxHashMap<usize, usize> = FxHashMap::default();
    for sequence in sequences.iter().filter(|sequence| sequence.len() >= LEAST_OPERATIONS) {
        let mut last: FxHashMap<u32, usize> = FxHashMap::default();
        for (at, operation) in sequence.iter().enumerate() {
            if let Some(before) = last.insert(operation.symbol, at) {
                *weights.entry(at - before).or_default() += at - before;
            }
        }
    }
    let mut weights: Vec<(usize, usize)> = weights.into_iter().collect();
    weights.sort_unstable_by_key(|(period, weight)| (std::cmp::Reverse(*weight), *period));
    weights.truncate(PERIODS);
    let longest = |period: usize| {
        let all = sequences.iter().flat_map(|sequence| segments(sequence, period));
        let longest = all.max_by_key(|segment| segment.equal)?;
        let repeated = (longest.end - longest.first).saturating_sub(period).max(1);
        Some((period, longest.equal, longest.equal as f64 / repeated as f64))
    };
    let mut tried: Vec<_> = weights.into_iter().filter_map(|(period, _)| longest(period)).collect();
    let most = tried.iter().map(|(_, equal, _)| *equal).max()?;
    tried.retain(|(_, equal, _)| *equal as f64 >= LEAST_OF_LONGEST * most as f64);
    let best = tried.iter().map(|(.., share)| *share).fold(0.0, f64::max);
    let is_best = |(.., share): &&(usize, usize, f64)| *share >= LEAST_OF_BEST * best;
    tried.iter().filter(is_best).map(|(period, ..)| *period).min()
}

/// The parts of a sequence that repeat with a period.
fn segments(sequence: &[Submitted], period: usize) -> Vec<Segment> {
    let mut found = Vec::new();
    let is_equal = |at: usize| sequence[at].symbol == sequence[at - period].symbol;
    let most = MOST_DIFFERENT * 2.0 * period as f64;
    let mut first = None;
    // The end of the part found before.
    let mut free = 0;
    let (mut last, mut different) = (0, 0_usize);
    for at in period..sequence.len() {
        let is_same = is_equal(at);
        // Differences in the last two periods.
        if let Some(first) = first
            && at >= first + 3 * period
            && !is_equal(at - 2 * period)
        {
            different -= 1;
        }
        if is_same {
            // The second period repeats the first one.
            if first.is_none() {
                (first, different) = (Some(free.max(at - period)), 0);
            }
            last = at + 1;
        } else if let Some(start) = first {
            different += 1;
            if different as f64 > most {
                found.extend(trimmed(start, last, period, is_equal));
                (first, different, free) = (None, 0, last);
            }
        }
    }
    found.extend(first.and_then(|first| trimmed(first, last, period, is_equal)));
    found
}

/// The part from the first to the last repetition of a whole period; `None` if it is short. Single
/// operations around it may be equal by chance.
fn trimmed(
    first: usize,
    end: usize,
    period: usize,
    is_equal: impl Fn(usize) -> bool,
) -> Option<Segment> {
    let length = |first, end: usize| end.saturating_sub(first);
    let is_long = |length| length >= LEAST_OPERATIONS.max(LEAST_INSTANCES * period);
    if !is_long(length(first, end)) {
        return None;
    }
    let least = (WHOLE_PERIOD * period as f64).ceil() as usize;
    let starts = first..end - 2 * period;
    let mut equal = (first + period..first + 2 * period).filter(|at| is_equal(*at)).count();
    let first = starts.into_iter().find(|start| {
        let is_whole = equal >= least;
        if !is_whole {
            equal += usize::from(is_equal(start + 2 * period));
            equal -= usize::from(is_equal(start + period));
        }
        is_whole
    })?;
    let mut equal = (end - period..end).filter(|at| is_equal(*at)).count();
    let end = (first + 2 * period..=end).rev().find(|end| {
        let is_whole = equal >= least;
        if !is_whole {
            equal += usize::from(is_equal(end - period - 1));
            equal -= usize::from(is_equal(end - 1));
        }
        is_whole
    })?;
    let equal = (first + period..end).filter(|at| is_equal(*at)).count();
    let is_exact = equal as f64 >= LEAST_EQUAL * length(first + period, end) as f64;
    (is_exact && is_long(length(first, end))).then_some(Segment { first, end, equal })
}

/// A repeating part without slow first periods, separated at long pauses.
fn candidates_of(part: &[Submitted], period: usize) -> Vec<Candidate> {
    let lengths = |part: &[Submitted]| -> Vec<u64> {
        let starts = || part.iter().step_by(period).map(|operation| operation.called_ns);
        let whole = part.len() / period;
        let last = part.get(whole * period).or(part.last()).map(|operation| operation.called_ns);
        let ends = starts().skip(1).take(whole.saturating_sub(1)).chain(last);
        starts().zip(ends).map(|(start, end)| end - start).collect()
    };
    let usual = upper_median(lengths(part)).unwrap_or(0);
    let goes_on = |a: &Submitted, b: &Submitted| {
        b.called_ns - a.called_ns <= LONGEST_PAUSE.saturating_mul(usual.max(1))
    };
    let parts = part.chunk_by(goes_on);
    let parts = parts.filter(|part| part.len() >= LEAST_OPERATIONS.max(LEAST_INSTANCES * period));
    let candidate = |part: &[Submitted]| {
        let cold = warm_up(&lengths(part));
        let steady = &part[cold * period..];
        let end_ns = part.iter().map(|operation| operation.end_ns).max()?;
        let of = |part: &[Submitted]| Some(Interval { start_ns: part.first()?.called_ns, end_ns });
        Some(Candidate {
            name: match period {
                1 => "one operation".to_owned(),
                _ => format!("{period} operations"),
            },
            instances: (steady.len() as f64 / period as f64).round() as u64,
            warm_up: cold as u64,
            whole: of(part)?,
            steady: of(steady)?,
            covered: 0.0,
        })
    };
    parts.filter_map(candidate).collect()
}
