//! Nesting by time: the range around each range and call of a thread. A capture has only times.

/// The open ranges of one thread, in a sweep over their starts.
///
/// The innermost of several ranges is the one that began last, as in a recording. Ranges of several
/// domains may end in any order. A range without an end ends at `u64::MAX`.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    open: Vec<Open>,
    /// The number of open ranges at which ended ones are removed.
    room: usize,
}

#[derive(Debug)]
struct Open {
    row: u32,
    end_ns: u64,
    /// The last earlier range that ends later.
    later: Option<usize>,
}

impl Sweep {
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.room = 0;
    }

    /// Adds a range. Ranges must be added in the order of their starts.
    pub(crate) fn begin(&mut self, row: u32, start_ns: u64, end_ns: u64) {
        while self.open.pop_if(|open| open.end_ns < start_ns).is_some() {}
        if self.open.len() > self.room {
            let open = std::mem::take(&mut self.open);
            open.into_iter()
                .filter(|open| open.end_ns >= start_ns)
                .for_each(|open| self.push(open.row, open.end_ns));
            self.room = 2 * self.open.len() + 16;
        }
        self.push(row, end_ns);
    }

    fn push(&mut self, row: u32, end_ns: u64) {
        let later = self.ending_from(end_ns.saturating_add(1));
        self.open.push(Open { row, end_ns, later });
    }

    fn ending_from(&self, end_ns: u64) -> Option<usize> {
        let mut at = self.open.len().checked_sub(1);
        while let Some(open) = at.map(|at| &self.open[at])
            && open.end_ns < end_ns
        {
            at = open.later;
        }
        at
    }

    /// The innermost of the ranges so far that ends at a time or later.
    pub(crate) fn innermost(&self, end_ns: u64) -> Option<u32> {
        self.ending_from(end_ns).map(|at| self.open[at].row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_finds_the_last_range_that_ends_late_enough() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut ranges: Vec<(u64, u64)> = (0..rng.usize(..60))
                .map(|_| {
                    let start = rng.u64(..40);
                    let end = start + rng.u64(..20);
                    (start, if rng.u8(..9) == 0 { u64::MAX } else { end })
                })
                .collect();
            ranges.sort_by_key(|(start, end)| (*start, u64::MAX - end));
            let mut sweep = Sweep::default();
            for (row, &(start, end)) in ranges.iter().enumerate() {
                for end_ns in [start, start + 1, start + 7, end] {
                    let last = ranges[..row].iter().rposition(|range| range.1 >= end_ns);
                    let found = sweep.innermost(end_ns);
                    assert_eq!(found, last.map(|row| row as u32), "{row} of {ranges:?}");
                }
                sweep.begin(row as u32, start, end);
            }
        }
    }
}
