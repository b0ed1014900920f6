//! Increases of sums in the last seconds.
//!
//! Ranges count as they begin. GPU work counts when CUPTI has delivered its records, which may be
//! seconds later and at once: it is compared with the recorded time whose work is known.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::observation::{Recorded, Sum};

/// The time that an increase covers, in nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;
/// The least time between two stored sums, in nanoseconds.
const APART_NS: u64 = 500_000_000;
/// Upper bound of the stored sums, for increases of rarely delivered records.
const MOST_SAMPLES: usize = 64;

/// The sums of a recording at a time.
#[derive(Debug, Clone)]
struct Sample {
    at_ns: u64,
    session: Duration,
    recorded: Duration,
    sums: HashMap<String, Sum>,
}

/// The sums of one kind of a process, over the last seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    generation: u64,
    samples: VecDeque<Sample>,
}

/// The increase of sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Increase {
    /// The time of the session in which they grew.
    pub(super) session: Duration,
    /// The time in which recording was on, and whose GPU work is known.
    pub(super) recorded: Duration,
    /// True if this is the whole recording.
    pub(super) is_whole: bool,
    /// All sums, and their increases.
    pub(super) rows: Vec<(Sum, Sum)>,
}

impl History {
    /// Adds the sums at a time, which does not decrease, and returns their increase in the last
    /// seconds. If nothing was recorded there, this is the whole recording.
    pub(super) fn add(&mut self, at_ns: u64, recorded: &Recorded, sums: &[Sum]) -> Increase {
        if self.generation != recorded.generation {
            *self = Self { generation: recorded.generation, ..Self::default() };
        }
        let begin_ns = at_ns.saturating_sub(WINDOW_NS);
        let is_earlier = |sample: &Sample| sample.recorded < recorded.recorded;
        while self.samples.len() >= MOST_SAMPLES
            || self.samples.get(1).is_some_and(|second| {
                second.at_ns <= begin_ns && (is_earlier(second) || !self.is_growing(recorded))
            })
        {
            self.samples.pop_front();
        }
        let first = self.samples.front().filter(|first| is_earlier(first));
        let none = Sample {
            at_ns,
            session: Duration::ZERO,
            recorded: Duration::ZERO,
            sums: HashMap::new(),
        };
        let from = first.unwrap_or(&none);
        let increase = Increase {
            session: recorded.session.saturating_sub(from.session),
            recorded: recorded.recorded.saturating_sub(from.recorded),
            is_whole: first.is_none(),
            rows: sums.iter().map(|sum| (sum.clone(), from.increase(sum))).collect(),
        };
        let last = self.samples.back();
        if last.is_none_or(|last| at_ns.saturating_sub(last.at_ns) >= APART_NS) {
            let (session, recorded) = (recorded.session, recorded.recorded);
            let sums = sums.iter().map(|sum| (sum.name.clone(), sum.clone())).collect();
            self.samples.push_back(Sample { at_ns, session, recorded, sums });
        }
        increase
    }

    /// True unless the session has ended or pauses: then its time does not grow.
    fn is_growing(&self, recorded: &Recorded) -> bool {
        self.samples.back().is_some_and(|last| last.session < recorded.session)
    }
}

impl Sample {
    fn increase(&self, sum: &Sum) -> Sum {
        let none = Sum::default();
        let from = self.sums.get(&sum.name).unwrap_or(&none);
        Sum {
            name: String::new(),
            count: sum.count.saturating_sub(from.count),
            gpu: sum.gpu.saturating_sub(from.gpu),
            done: sum.done.saturating_sub(from.done),
            done_gpu: sum.done_gpu.saturating_sub(from.done_gpu),
        }
    }
}

/// A count or a time per second of a time; 0 without any.
pub(super) fn per_second(value: f64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { value / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sums(count: u64) -> Vec<Sum> {
        let gpu = Duration::from_millis(5 * count);
        vec![Sum { name: "step".to_owned(), count, gpu, done: count, done_gpu: gpu }]
    }

    fn recorded(session: u64, recorded: u64) -> Recorded {
        let (session, recorded) = (Duration::from_secs(session), Duration::from_secs(recorded));
        Recorded { session, recorded, ..Recorded::default() }
    }

    fn rate(increase: &Increase) -> f64 {
        per_second(increase.rows[0].1.count as f64, increase.session)
    }

    #[test]
    fn increases_are_of_the_last_ten_seconds() {
        let mut history = History::default();
        let first = history.add(0, &recorded(100, 100), &sums(1_000));
        assert!(first.is_whole && rate(&first) == 10.0);
        // 20 steps a second for a minute, then one.
        let mut count = 1_000;
        for second in 1..=60 {
            count += 20;
            let now = recorded(100 + second, 100 + second);
            let increase = history.add(second * SECOND, &now, &sums(count));
            assert_eq!((rate(&increase), increase.is_whole), (20.0, false));
            assert_eq!(increase.session, Duration::from_secs(second.min(10)));
            assert!(history.samples.len() <= 12, "{}", history.samples.len());
        }
        for second in 61..=70 {
            count += 1;
            history.add(second * SECOND, &recorded(100 + second, 100 + second), &sums(count));
        }
        let increase = history.add(71 * SECOND, &recorded(171, 171), &sums(count + 1));
        let (sum, more) = &increase.rows[0];
        assert_eq!((sum.count, more.count, more.gpu), (count + 1, 10, Duration::from_millis(50)));
    }

    /// CUPTI delivers the records of 20 s at once.
    #[test]
    fn late_records_are_compared_with_the_time_of_their_work() {
        let mut history = History::default();
        for second in 0..=100 {
            let known = second / 20 * 20;
            let gpu = Duration::from_millis(500 * known);
            let of = Sum { count: 10 * second, gpu, ..sums(0).remove(0) };
            let increase = history.add(second * SECOND, &recorded(second, known), &[of]);
            if known != 0 {
                let share = increase.rows[0].1.gpu.as_secs_f64() / increase.recorded.as_secs_f64();
                assert_eq!((share, rate(&increase)), (0.5, 10.0), "{second}");
            }
        }
    }

    #[test]
    fn pause_longer_than_the_window_shows_the_whole_recording() {
        let mut history = History::default();
        for second in 0..30 {
            let time = second.min(5);
            let increase = history.add(second * SECOND, &recorded(time, time), &sums(10 * time));
            assert_eq!(increase.is_whole, second == 0 || second >= 15, "{second}");
        }
    }

    #[test]
    fn replaced_file_starts_anew() {
        let mut history = History::default();
        history.add(0, &recorded(50, 50), &sums(900));
        let other = Recorded { generation: 1, ..recorded(4, 4) };
        let increase = history.add(SECOND, &other, &sums(8));
        assert!(increase.is_whole && rate(&increase) == 2.0);
    }

    #[test]
    fn many_reads_and_late_records_store_few_sums() {
        let mut history = History::default();
        for read in 0..10_000 {
            history.add(read * SECOND / 100, &recorded(read, read), &sums(read));
            assert!(history.samples.len() <= 22, "{}", history.samples.len());
        }
        for second in 100..1_000 {
            history.add(second * SECOND, &recorded(10_000 + second, 9_999), &sums(second));
            assert!(history.samples.len() <= MOST_SAMPLES, "{}", history.samples.len());
        }
    }
}
