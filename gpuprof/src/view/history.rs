//! Rates of the last seconds, from sums at several times.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::observation::{Recorded, Sum};

/// The time that rates cover, in nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;
/// The least time between two stored sums, in nanoseconds. With [`WINDOW_NS`] it bounds their number.
const APART_NS: u64 = 500_000_000;

/// The sums of a recording at a time.
#[derive(Debug, Clone)]
struct Sample {
    at_ns: u64,
    time: Duration,
    sums: HashMap<String, (u64, Duration)>,
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
    /// The recorded time in which they grew.
    pub(super) time: Duration,
    /// True if this is the time of the whole recording.
    pub(super) is_whole: bool,
    pub(super) rows: Vec<Grown>,
}

/// A sum and its increase.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Grown {
    pub(super) sum: Sum,
    pub(super) count: u64,
    pub(super) gpu: Duration,
}

impl History {
    /// Adds the sums at a time, which does not decrease, and returns their increase in the last
    /// seconds. Without recorded time there, this is the whole recording.
    pub(super) fn add(&mut self, at_ns: u64, recorded: &Recorded, sums: &[Sum]) -> Increase {
        if self.generation != recorded.generation {
            *self = Self { generation: recorded.generation, ..Self::default() };
        }
        let begin_ns = at_ns.saturating_sub(WINDOW_NS);
        while self.samples.get(1).is_some_and(|second| second.at_ns <= begin_ns) {
            self.samples.pop_front();
        }
        let first = self.samples.front();
        let time = first.map(|first| recorded.time.saturating_sub(first.time));
        let increase = match (first, time.filter(|time| !time.is_zero())) {
            (Some(first), Some(time)) => Increase {
                time,
                is_whole: false,
                rows: sums.iter().map(|sum| first.increase(sum)).collect(),
            },
            _ => Increase { time: recorded.time, is_whole: true, rows: whole(sums) },
        };
        let is_due =
            self.samples.back().is_none_or(|last| at_ns.saturating_sub(last.at_ns) >= APART_NS);
        if is_due {
            let by_name = |sum: &Sum| (sum.name.clone(), (sum.count, sum.gpu));
            let sums = sums.iter().map(by_name).collect();
            self.samples.push_back(Sample { at_ns, time: recorded.time, sums });
        }
        increase
    }
}

fn whole(sums: &[Sum]) -> Vec<Grown> {
    let grown = |sum: &Sum| Grown { sum: sum.clone(), count: sum.count, gpu: sum.gpu };
    sums.iter().map(grown).collect()
}

impl Sample {
    fn increase(&self, sum: &Sum) -> Grown {
        let (count, gpu) = self.sums.get(&sum.name).copied().unwrap_or_default();
        Grown {
            sum: sum.clone(),
            count: sum.count.saturating_sub(count),
            gpu: sum.gpu.saturating_sub(gpu),
        }
    }
}

impl Increase {
    /// Instances a second.
    pub(super) fn rate(&self, row: &Grown) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { row.count as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sums(count: u64) -> Vec<Sum> {
        vec![Sum { name: "step".to_owned(), count, gpu: Duration::from_millis(5 * count) }]
    }

    fn recorded(seconds: u64) -> Recorded {
        Recorded { time: Duration::from_secs(seconds), ..Recorded::default() }
    }

    #[test]
    fn rates_are_of_the_last_ten_seconds() {
        let mut history = History::default();
        let first = history.add(0, &recorded(100), &sums(1_000));
        assert!(first.is_whole && first.rate(&first.rows[0]) == 10.0);
        // 20 steps a second for a minute, then one.
        let mut count = 1_000;
        for second in 1..=60 {
            count += 20;
            let increase = history.add(second * SECOND, &recorded(100 + second), &sums(count));
            assert_eq!(increase.rate(&increase.rows[0]), 20.0);
            assert_eq!(increase.time, Duration::from_secs(second.min(10)));
            assert!(history.samples.len() <= 12, "{}", history.samples.len());
        }
        for second in 61..=70 {
            count += 1;
            history.add(second * SECOND, &recorded(100 + second), &sums(count));
        }
        let increase = history.add(71 * SECOND, &recorded(171), &sums(count + 1));
        assert_eq!((increase.rows[0].count, increase.rows[0].sum.count), (10, count + 1));
        assert_eq!(increase.rows[0].gpu, Duration::from_millis(50));
    }

    #[test]
    fn pause_longer_than_the_window_shows_the_whole_recording() {
        let mut history = History::default();
        for second in 0..30 {
            let time = second.min(5);
            let increase = history.add(second * SECOND, &recorded(time), &sums(10 * time));
            assert_eq!(increase.is_whole, second == 0 || second >= 15, "{second}");
        }
    }

    #[test]
    fn replaced_file_starts_anew() {
        let mut history = History::default();
        history.add(0, &recorded(50), &sums(900));
        let other = Recorded { generation: 1, ..recorded(4) };
        let increase = history.add(SECOND, &other, &sums(8));
        assert!(increase.is_whole && increase.rate(&increase.rows[0]) == 2.0);
    }

    #[test]
    fn many_reads_a_second_store_few_sums() {
        let mut history = History::default();
        for read in 0..10_000 {
            history.add(read * SECOND / 100, &recorded(read), &sums(read));
        }
        assert!(history.samples.len() <= 22, "{}", history.samples.len());
    }
}
