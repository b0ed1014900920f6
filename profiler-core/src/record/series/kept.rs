//! The newest rows of a running sampler, and the losses so far.

use std::mem;

use super::{Failure, Series, Source};

/// The losses so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lost {
    /// Rows replaced by newer ones.
    gone: u64,
    /// Rows that were out of order.
    refused: u64,
    overflows: u64,
}

/// A bounded series filled by a sampler. Sessions copy the rows and losses of their window.
#[derive(Debug)]
pub(crate) struct Kept {
    series: Series,
    most: usize,
    lost: Lost,
    /// The start of the first row that was not replaced.
    gone_until_ns: u64,
}

impl Kept {
    pub(crate) fn new(empty: Series, most: usize) -> Self {
        Self { series: empty, most, lost: Lost::default(), gone_until_ns: 0 }
    }

    /// Adds a row; counts it if the series refuses it.
    pub(crate) fn push(&mut self, start_ns: u64, end_ns: u64, values: &[f64]) {
        let pushed = self.series.push(start_ns, end_ns, values);
        self.lost.refused += u64::from(pushed.is_err());
    }

    /// Drops the oldest rows, a quarter of the bound at a time.
    pub(crate) fn keep_last(&mut self) {
        let Some(gone) = self.series.len().checked_sub(self.most) else { return };
        if gone > self.most / 4 {
            self.series.keep(gone..self.series.len());
            self.count_gone(gone as u64, self.series.start_ns.first().copied());
        }
    }

    /// Counts rows that newer ones replaced; the first of the newer rows began at `until_ns`.
    pub(crate) fn count_gone(&mut self, rows: u64, until_ns: Option<u64>) {
        self.lost.gone += rows;
        if rows > 0 {
            self.gone_until_ns = self.gone_until_ns.max(until_ns.unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn count_overflows(&mut self, overflows: u64) {
        self.lost.overflows += overflows;
    }

    /// Sets the reason why there are no more samples; later reasons are ignored.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.series.head.failure.get_or_insert(failure);
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        self.series.head.interval_ns
    }

    /// The end of the last row; 0 if there is none.
    pub(crate) fn reached_ns(&self) -> u64 {
        self.series.end_ns.last().copied().unwrap_or(0)
    }

    pub(crate) fn lost(&self) -> Lost {
        self.lost
    }

    /// Removes the rows and losses.
    pub(crate) fn clear(&mut self) {
        self.series.keep(0..0);
        (self.lost, self.gone_until_ns) = (Lost::default(), 0);
    }

    /// Returns the rows of a session's window, without losses before it.
    pub(crate) fn window(&self, window_ns: (u64, u64), before: Lost) -> Series {
        let series = self.series.touching(window_ns);
        self.fitted(series, window_ns, before)
    }

    /// Same as [`window`](Self::window), for the last session: removes all rows.
    pub(crate) fn take_within(&mut self, window_ns: (u64, u64), before: Lost) -> Series {
        let Series { head, .. } = &self.series;
        let empty = Series::new(head.device, head.source, self.series.interval(), Vec::new());
        let series = mem::replace(&mut self.series, empty);
        self.fitted(series, window_ns, before)
    }

    /// Fits a series to a session. Samplers start before a session and end after it. Counter
    /// samples at the edges are excluded; the rare NVML samples are clipped. Gaps and replaced rows
    /// before the session are ignored.
    fn fitted(&self, mut series: Series, window_ns: (u64, u64), before: Lost) -> Series {
        match series.source() {
            Source::Nvml => series.clip(window_ns),
            Source::Counters => {
                series.cut(window_ns);
                series.count_gaps();
            }
        }
        let is_whole = self.gone_until_ns <= window_ns.0;
        let gone = if is_whole { 0 } else { self.lost.gone.saturating_sub(before.gone) };
        let refused = self.lost.refused.saturating_sub(before.refused);
        series.head.dropped = gone + refused;
        series.head.overflows = self.lost.overflows.saturating_sub(before.overflows);
        series
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Metric, Unit};
    use std::time::Duration;

    use super::*;

    /// Rows of 10 ns, with this bound.
    fn filled(rows: u64, most: usize) -> Kept {
        let metrics = vec![Metric::new("busy", "busy", Unit::Percent, Kind::Mean)];
        let interval = Duration::from_nanos(10);
        let mut kept = Kept::new(Series::new(0, Source::Counters, interval, metrics), most);
        for row in 0..rows {
            kept.push(row * 10, row * 10 + 10, &[row as f64]);
            kept.keep_last();
        }
        kept
    }

    #[test]
    fn rows_replaced_before_a_session_are_not_its_losses() {
        let kept = filled(1_000, 100);
        let of = |from_ns| kept.window((from_ns, 10_000), Lost::default());
        let (first, len) = (kept.gone_until_ns, kept.series.len() as u64);
        assert!((100..=125).contains(&len) && first == 10_000 - 10 * len, "{first} {len}");
        assert_eq!((of(first).dropped(), of(first).len() as u64), (0, len));
        assert_eq!((of(9_500).dropped(), of(9_500).len()), (0, 50));
        assert_eq!(of(first - 1).dropped(), 1_000 - len);
    }

    #[test]
    fn rows_replaced_during_a_session_are_its_losses() {
        let mut kept = filled(10, 100);
        kept.count_gone(40, Some(500));
        kept.push(500, 510, &[0.0]);
        assert_eq!(kept.window((0, 600), Lost::default()).dropped(), 40);
        assert_eq!(kept.window((300, 600), kept.lost()).dropped(), 0);
        assert_eq!(kept.window((500, 600), Lost::default()).dropped(), 0);
    }

    #[test]
    fn refused_rows_are_lost() {
        let mut kept = filled(1_000, 100);
        kept.push(5, 6, &[0.0]);
        kept.count_overflows(2);
        let last = kept.window((9_500, 10_000), Lost::default());
        assert_eq!((last.dropped(), last.overflows()), (1, 2));
        let later = kept.window((9_500, 10_000), kept.lost());
        assert_eq!((later.dropped(), later.overflows()), (0, 0));
        assert_eq!(kept.take_within((9_500, 10_000), Lost::default()), last);
        kept.clear();
        assert_eq!(kept.window((9_500, 10_000), Lost::default()).losses(), [""; 0]);
    }
}
