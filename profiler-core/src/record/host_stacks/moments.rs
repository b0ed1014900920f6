//! Derives the state of a thread in each part of a gap from observations at single moments.

use std::collections::VecDeque;
use std::ops::Range;

/// The maximum number of moments of a thread that wait for the end of a gap.
const MOST: usize = 1 << 14;

/// An observation of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The thread ran with this stack; 0 for an unknown one.
    Ran(u32),
    /// The thread left a CPU with this stack; it was runnable if the flag is set.
    Left(u32, bool),
    /// The thread returned to a CPU.
    CameBack,
    /// The thread was waiting with this stack, in this wait.
    Waited(u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    from_ns: u64,
    /// The end of the observation, if several samples were the same.
    until_ns: u64,
    seen: Seen,
}

/// The state of a thread in a part of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Ran,
    /// Waiting for a CPU.
    WaitedForCpu,
    /// Waiting in this wait, if it is known.
    Waited(Option<u32>),
}

/// A part of a gap: its time, the stack (0 for none), and the state of the thread.
pub(super) type Part = (Range<u64>, u32, Doing);

/// The moments of a thread since its last gap.
#[derive(Debug, Default)]
pub(super) struct Moments {
    seen: VecDeque<Moment>,
    /// True if the kernel reports exactly when the thread leaves a CPU and returns.
    is_exact: bool,
    /// The end of the time whose moments were dropped.
    dropped_until_ns: u64,
}

impl Moments {
    pub(super) fn new(is_exact: bool) -> Self {
        Self { is_exact, ..Self::default() }
    }

    /// Adds a moment; moments arrive almost in time order.
    pub(super) fn add(&mut self, at_ns: u64, seen: Seen) {
        if let Some(last) = self.seen.back_mut().filter(|last| last.until_ns <= at_ns)
            && last.seen == seen
            && matches!(seen, Seen::Waited(..) | Seen::Ran(0))
        {
            last.until_ns = at_ns;
            return;
        }
        if self.seen.len() >= MOST {
            // Drops the oldest quarter. This loses nothing for a thread that ends no gap.
            self.dropped_until_ns = self.seen[MOST / 4 - 1].until_ns;
            self.seen.drain(..MOST / 4);
        }
        let behind = self.seen.iter().rev().take_while(|moment| moment.from_ns > at_ns).count();
        let moment = Moment { from_ns: at_ns, until_ns: at_ns, seen };
        self.seen.insert(self.seen.len() - behind, moment);
    }

    /// True if the last exact observation of the thread is that it left a CPU, with a known stack.
    pub(super) fn is_away(&self) -> bool {
        let last = self.seen.iter().rev().find(|moment| !matches!(moment.seen, Seen::Waited(..)));
        matches!(last, Some(Moment { seen: Seen::Left(stack, _), .. }) if *stack != 0)
    }

    /// Takes the moments of a gap, and drops earlier ones. Returns its parts in order, and whether
    /// moments of it had been dropped.
    pub(super) fn end_gap(&mut self, gap: Range<u64>) -> (Vec<Part>, bool) {
        let count = self.seen.partition_point(|moment| moment.from_ns <= gap.end);
        let mut taken: Vec<Moment> = self.seen.drain(..count).collect();
        // A sample before the gap may be merged with an equal one in it.
        taken.retain(|moment| moment.until_ns >= gap.start);
        if !self.is_exact {
            taken = with_changes(&taken);
        }
        let mut parts =
            Parts { at_ns: gap.start, gap: gap.clone(), ran: Vec::new(), parts: Vec::new() };
        // A thread runs when it returns from one launch and when it begins the next.
        let mut away: Option<Away> = None;
        for moment in &taken {
            let at_ns = moment.from_ns.clamp(gap.start, gap.end);
            match moment.seen {
                Seen::Ran(stack) => {
                    // Its return was not observed.
                    if let Some(away) = away.take() {
                        parts.waited(at_ns, away);
                    }
                    parts.ran.push((at_ns, stack));
                }
                Seen::Left(stack, is_ready) => {
                    if let Some(away) = away.take() {
                        parts.waited(at_ns, away);
                    }
                    // A sample has no stack of the running thread.
                    if self.is_exact {
                        parts.ran.push((at_ns, stack));
                    }
                    let doing = if is_ready { Doing::WaitedForCpu } else { Doing::Waited(None) };
                    away = Some(parts.end_run(at_ns, stack, doing));
                }
                Seen::CameBack => {
                    if let Some(away) = away.take() {
                        parts.waited(at_ns, away);
                    }
                }
                Seen::Waited(stack, wait) => match &mut away {
                    Some(away) => {
                        if away.stack == 0 {
                            away.stack = stack;
                        }
                        if away.doing == Doing::Waited(None) {
                            away.doing = Doing::Waited(Some(wait));
                        }
                    }
                    // Its leaving was not observed: it preceded the first sample, or the buffer was
                    // full.
                    None => {
                        let ran = parts.ran.last();
                        let since = ran.map_or(parts.at_ns, |(ran_ns, _)| ran_ns.midpoint(at_ns));
                        away = Some(parts.end_run(since, stack, Doing::Waited(Some(wait))));
                    }
                },
            }
        }
        match away {
            Some(away) => parts.waited(gap.end, away),
            None => parts.ran_until(gap.end),
        }
        (parts.parts, gap.start < self.dropped_until_ns)
    }
}

/// A thread that left a CPU.
#[derive(Debug)]
struct Away {
    /// The stack when it left; 0 if unknown.
    stack: u32,
    /// Its last observed stack while it ran.
    ran: u32,
    doing: Doing,
}

/// Adds the times at which a thread left a CPU and returned, midway between samples that found it
/// waiting and samples that did not.
fn with_changes(moments: &[Moment]) -> Vec<Moment> {
    let mut all = Vec::with_capacity(moments.len() * 2);
    let mut add = |at_ns, seen| all.push(Moment { from_ns: at_ns, until_ns: at_ns, seen });
    let mut before: Option<&Moment> = None;
    for moment in moments {
        // The first sample also covers the time before it.
        let middle = before.map_or(0, |before| before.until_ns.midpoint(moment.from_ns));
        match (moment.seen, before.map(|before| before.seen)) {
            (Seen::Waited(..), Some(same)) if same == moment.seen => {}
            (Seen::Waited(stack, _), _) => add(middle, Seen::Left(stack, false)),
            (_, Some(Seen::Waited(..))) => add(middle, Seen::CameBack),
            _ => {}
        }
        add(moment.from_ns, moment.seen);
        before = Some(moment);
    }
    all
}

struct Parts {
    gap: Range<u64>,
    /// The end of the last part.
    at_ns: u64,
    /// The observed stacks of the thread since then.
    ran: Vec<(u64, u32)>,
    parts: Vec<Part>,
}

impl Parts {
    fn push(&mut self, until_ns: u64, stack: u32, doing: Doing) {
        let time = self.at_ns..until_ns.clamp(self.at_ns, self.gap.end);
        self.at_ns = time.end;
        if time.is_empty() {
            return;
        }
        match self.parts.last_mut() {
            Some((last, last_stack, last_doing))
                if last.end == time.start && (*last_stack, *last_doing) == (stack, doing) =>
            {
                last.end = time.end;
            }
            _ => self.parts.push((time, stack, doing)),
        }
    }

    /// The thread left a CPU.
    fn end_run(&mut self, at_ns: u64, stack: u32, doing: Doing) -> Away {
        let ran = self.ran.iter().rev().find(|(_, stack)| *stack != 0);
        let ran = ran.map_or(0, |(_, stack)| *stack);
        self.ran_until(at_ns);
        Away { stack, ran, doing }
    }

    fn waited(&mut self, until_ns: u64, away: Away) {
        let stack = if away.stack == 0 { away.ran } else { away.stack };
        self.push(until_ns, stack, away.doing);
    }

    /// Divides the running time of the thread among its observed stacks: each moment is assigned to
    /// the nearest observation.
    fn ran_until(&mut self, end_ns: u64) {
        let mut ran = std::mem::take(&mut self.ran);
        ran.retain(|(_, stack)| *stack != 0);
        for (at, (time_ns, stack)) in ran.iter().enumerate() {
            let next = ran.get(at + 1).map(|(next_ns, _)| time_ns.midpoint(*next_ns));
            self.push(next.unwrap_or(end_ns), *stack, Doing::Ran);
        }
        // Without a stack, the thread is only known to have run.
        self.at_ns = self.at_ns.max(end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(is_exact: bool, gap: Range<u64>, seen: &[(u64, Seen)]) -> Vec<Part> {
        let mut moments = Moments::new(is_exact);
        seen.iter().for_each(|(at, seen)| moments.add(*at, *seen));
        let (parts, is_cut) = moments.end_gap(gap);
        assert!(!is_cut);
        parts
    }

    #[test]
    fn time_is_of_the_nearest_sample_and_waits_are_exact() {
        let seen = [
            (5, Seen::Ran(9)),
            (120, Seen::Ran(1)),
            (140, Seen::Ran(2)),
            (200, Seen::Left(3, false)),
            (250, Seen::Waited(0, 7)),
            (900, Seen::CameBack),
            (905, Seen::Left(4, true)),
            (930, Seen::CameBack),
            (990, Seen::Ran(5)),
            (1100, Seen::Ran(6)),
        ];
        assert_eq!(
            parts(true, 100..1000, &seen),
            [
                (100..130, 1, Doing::Ran),
                (130..170, 2, Doing::Ran),
                (170..200, 3, Doing::Ran),
                (200..900, 3, Doing::Waited(Some(7))),
                (900..905, 4, Doing::Ran),
                (905..930, 4, Doing::WaitedForCpu),
                (930..1000, 5, Doing::Ran),
            ]
        );
    }

    #[test]
    fn sampled_waits_end_midway_between_samples() {
        let waiting = Seen::Waited(3, 1);
        let seen = [
            (110, waiting),
            (120, waiting),
            (130, Seen::Ran(0)),
            (140, Seen::Ran(4)),
            (150, Seen::Waited(5, 2)),
            (160, Seen::Waited(5, 2)),
        ];
        assert_eq!(
            parts(false, 100..200, &seen),
            [
                (100..125, 3, Doing::Waited(Some(1))),
                (125..145, 4, Doing::Ran),
                (145..200, 5, Doing::Waited(Some(2))),
            ]
        );
        // Two waits without a look between them.
        let seen = [(110, waiting), (130, Seen::Waited(6, 1))];
        assert_eq!(
            parts(false, 100..200, &seen),
            [(100..120, 3, Doing::Waited(Some(1))), (120..200, 6, Doing::Waited(Some(1)))]
        );
    }

    #[test]
    fn wait_without_a_stack_has_that_of_the_last_sample() {
        let seen = [(110, Seen::Ran(2)), (120, Seen::Left(0, true)), (180, Seen::CameBack)];
        let ready = (120..180, 2, Doing::WaitedForCpu);
        assert_eq!(parts(true, 100..200, &seen), [(100..120, 2, Doing::Ran), ready]);
        let seen = [(110, Seen::Ran(2)), (120, Seen::Left(0, false)), (150, Seen::Waited(3, 1))];
        let waited = (120..200, 3, Doing::Waited(Some(1)));
        assert_eq!(parts(true, 100..200, &seen), [(100..120, 2, Doing::Ran), waited]);
    }

    #[test]
    fn wait_whose_begin_was_not_seen_is_one() {
        let seen = [(150, Seen::Waited(3, 1)), (190, Seen::CameBack), (195, Seen::Ran(4))];
        let waited = (100..190, 3, Doing::Waited(Some(1)));
        assert_eq!(parts(true, 100..200, &seen), [waited, (190..200, 4, Doing::Ran)]);
        let seen = [(110, Seen::Ran(2)), (150, Seen::Waited(3, 1))];
        let waited = (130..200, 3, Doing::Waited(Some(1)));
        assert_eq!(parts(true, 100..200, &seen), [(100..130, 2, Doing::Ran), waited]);
    }

    #[test]
    fn time_without_a_stack_is_in_no_part() {
        assert_eq!(parts(true, 0..100, &[]), []);
        assert_eq!(parts(false, 0..100, &[(50, Seen::Ran(0))]), []);
        let left = [(40, Seen::Left(0, false)), (60, Seen::CameBack)];
        assert_eq!(parts(true, 0..100, &left), [(40..60, 0, Doing::Waited(None))]);
    }

    #[test]
    fn dropped_moments_are_counted() {
        let mut moments = Moments::new(true);
        (0..MOST as u64 + 1).for_each(|at| moments.add(at, Seen::Ran(1 + at as u32 % 2)));
        assert!(moments.seen.len() <= MOST);
        let end = MOST as u64;
        assert!(!moments.end_gap(end..end + 1).1);
        (0..MOST as u64 + 1).for_each(|at| moments.add(end + 2 + at, Seen::Ran(1)));
        assert!(moments.end_gap(end + 1..end * 3).1);
    }

    #[test]
    fn records_out_of_order_are_sorted() {
        let seen = [(120, Seen::Ran(2)), (110, Seen::Ran(1))];
        let found = parts(true, 100..200, &seen);
        assert_eq!(found, [(100..115, 1, Doing::Ran), (115..200, 2, Doing::Ran)]);
    }
}
