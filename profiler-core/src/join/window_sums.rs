//! Sums of the calls of drawn windows by path, and the totals estimated from them.

use std::collections::VecDeque;
use std::sync::Arc;

use cupti::CallClass;
use cupti::clock::now_ns;
use parking_lot::Mutex;
use profiler_base::ratio_estimator::{Estimate, RatioEstimator, Stratum};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::sums::{LateRows, PathId, Rows, SumTables};

/// The maximum number of windows whose records are awaited.
const MOST_WINDOWS: usize = 1024;

/// A bound of a drawn window.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Begin { at_ns: u64 },
    End { at_ns: u64, probability: f64 },
}

/// The bounds of drawn windows, from the threads that open and close them.
#[derive(Debug, Default)]
pub(crate) struct WindowBounds(Mutex<Vec<Bound>>);

impl WindowBounds {
    /// Begins a drawn window. The time is read under the lock: no segment that is taken before has
    /// a later call.
    pub(crate) fn begin(&self) {
        let mut bounds = self.0.lock();
        bounds.push(Bound::Begin { at_ns: now_ns() });
    }

    /// Ends the window, which was recorded with this probability.
    pub(crate) fn end(&self, probability: f64) {
        let mut bounds = self.0.lock();
        bounds.push(Bound::End { at_ns: now_ns(), probability });
    }
}

/// The amounts of a path in a window, without descendants.
#[derive(Debug, Clone, Copy, Default)]
struct Amounts {
    submissions: u64,
    gpu_ns: u64,
}

#[derive(Debug)]
struct Window {
    start_ns: u64,
    /// Its end, and the probability with which it was recorded.
    end: Option<(u64, f64)>,
    /// Calls whose records have not arrived.
    waits_for: u64,
    paths: FxHashMap<Option<PathId>, Amounts>,
    /// The amounts of late work, with the paths to which it is attributed.
    late: Vec<(Arc<LateRows>, Amounts)>,
}

/// The work of drawn windows in a path, or of a process.
#[derive(Debug, Clone, Default)]
struct InWindows {
    /// Windows with work in the path or a descendant.
    windows: u64,
    /// Of the path without descendants; of a process, outside all ranges.
    own: Stratum,
    /// Late work attributed to the path or a descendant.
    late: Stratum,
}

/// The sums of drawn windows.
#[derive(Debug, Default)]
pub(crate) struct WindowSums {
    bounds: Arc<WindowBounds>,
    windows: VecDeque<Window>,
    /// The number of the first window.
    first: u64,
    /// Submissions of the whole session by path, without descendants, and outside all ranges.
    submissions: Vec<u64>,
    outside: u64,
    /// Late submissions, which no other sum includes: by path to which they are attributed, and
    /// all.
    late: Vec<u64>,
    all_late: u64,
    /// The work of drawn windows by path, and of the process.
    paths: Vec<InWindows>,
    all: InWindows,
    /// Windows that were left out at the bound.
    left_out: u64,
    /// The windows in the estimates, with or without work.
    settled: u64,
}

/// GPU times estimated for a whole session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Estimates {
    /// By path, with descendants.
    pub(crate) paths: Vec<Option<Estimate>>,
    /// The total in ranges and outside.
    pub(crate) all: Option<Estimate>,
    /// Calls that submitted work: by path, with descendants, and all.
    pub(crate) path_submissions: Vec<u64>,
    pub(crate) submissions: u64,
    /// Drawn windows whose records have all arrived.
    pub(crate) windows: u64,
    /// Windows that were left out, because too many waited for their records.
    pub(crate) left_out: u64,
}

impl WindowSums {
    pub(crate) fn new(bounds: Arc<WindowBounds>) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Reads the bounds of windows since the last call. Must be called before the calls of a
    /// segment are added.
    pub(crate) fn see_bounds(&mut self) {
        for bound in std::mem::take(&mut *self.bounds.0.lock()) {
            match bound {
                Bound::Begin { at_ns } => {
                    self.windows.push_back(Window {
                        start_ns: at_ns,
                        end: None,
                        waits_for: 0,
                        paths: FxHashMap::default(),
                        late: Vec::new(),
                    });
                }
                Bound::End { at_ns, probability } => {
                    if let Some(last) = self.windows.back_mut() {
                        last.end.get_or_insert((at_ns, probability));
                    }
                }
            }
        }
        while self.windows.len() > MOST_WINDOWS {
            self.windows.pop_front();
            self.first += 1;
            self.left_out += 1;
        }
    }

    /// Counts a successful call that submits work.
    pub(crate) fn count_call(&mut self, rows: &Rows) {
        let Some(late) = &rows.late else {
            *self.of_path(rows.path) += 1;
            return;
        };
        self.all_late += 1;
        for path in &late.paths {
            *at(&mut self.late, *path) += 1;
        }
    }

    /// Counts a successful call that submits work and may have records, and returns its drawn
    /// window.
    pub(crate) fn add_call(&mut self, rows: &Rows, at_ns: u64) -> Option<u64> {
        self.count_call(rows);
        let after = self.windows.partition_point(|window| window.start_ns <= at_ns);
        let place = after.checked_sub(1)?;
        let window = &mut self.windows[place];
        if window.end.is_some_and(|(end_ns, _)| at_ns >= end_ns) {
            return None;
        }
        window.add(rows, Amounts { submissions: 1, gpu_ns: 0 });
        window.waits_for += 1;
        Some(self.first + place as u64)
    }

    fn of_path(&mut self, path: Option<PathId>) -> &mut u64 {
        let Some(path) = path else { return &mut self.outside };
        at(&mut self.submissions, path)
    }

    /// Adds the GPU time of an operation to the window of its call.
    pub(crate) fn add_time(&mut self, window: Option<u64>, rows: &Rows, ns: u64) {
        if let Some(window) = self.window(window) {
            window.add(rows, Amounts { submissions: 0, gpu_ns: ns });
        }
    }

    /// Records that all records of a call of the window have arrived.
    pub(crate) fn finish_call(&mut self, window: Option<u64>) {
        if let Some(window) = self.window(window) {
            window.waits_for = window.waits_for.saturating_sub(1);
        }
    }

    fn window(&mut self, number: Option<u64>) -> Option<&mut Window> {
        let place = number?.checked_sub(self.first)?;
        self.windows.get_mut(usize::try_from(place).ok()?)
    }

    /// Adds the windows that are complete to the estimates: calls that began before `until_ns` are
    /// all known.
    pub(crate) fn settle(&mut self, until_ns: u64, tables: &SumTables) {
        while let Some(window) = self.windows.front()
            && window.waits_for == 0
            && let Some((end_ns, probability)) = window.end
            && end_ns < until_ns
            && let Some(window) = self.windows.pop_front()
        {
            self.first += 1;
            let unit = window.start_ns;
            self.settled += 1;
            self.paths.resize_with(tables.paths.len(), InWindows::default);
            let (mut with_work, mut all_late) = (FxHashSet::default(), Amounts::default());
            self.all.windows += u64::from(!window.paths.is_empty() || !window.late.is_empty());
            for (path, Amounts { submissions, gpu_ns }) in window.paths {
                let of_path = path.map(|path| &mut self.paths[path as usize]);
                let own = &mut of_path.unwrap_or(&mut self.all).own;
                own.add(unit, probability, submissions as f64, gpu_ns as f64);
                let parent = |path: &PathId| tables.paths[*path as usize].parent;
                with_work.extend(std::iter::successors(path, parent));
            }
            for (late, amounts) in window.late {
                all_late.add(amounts);
                for path in &late.paths {
                    let (size, amount) = (amounts.submissions as f64, amounts.gpu_ns as f64);
                    self.paths[*path as usize].late.add(unit, probability, size, amount);
                    with_work.insert(*path);
                }
            }
            let (size, amount) = (all_late.submissions as f64, all_late.gpu_ns as f64);
            self.all.late.add(unit, probability, size, amount);
            with_work.iter().for_each(|path| self.paths[*path as usize].windows += 1);
        }
    }

    /// The estimates so far.
    pub(crate) fn estimates(&self, tables: &SumTables) -> Estimates {
        let none = InWindows::default();
        let in_windows = |row: usize| self.paths.get(row).unwrap_or(&none);
        let number = |of: &[u64], row: usize| of.get(row).copied().unwrap_or(0) as f64;
        let mut totals = vec![RatioEstimator::default(); tables.paths.len()];
        let mut all = RatioEstimator::default();
        // Parents precede their children.
        for (row, path) in tables.paths.iter().enumerate().rev() {
            totals[row].add(&in_windows(row).own, number(&self.submissions, row));
            let with_descendants = totals[row];
            let parent = path.parent.map(|parent| &mut totals[parent as usize]);
            parent.unwrap_or(&mut all).merge(&with_descendants);
            totals[row].add(&in_windows(row).late, number(&self.late, row));
        }
        all.add(&self.all.own, self.outside as f64);
        all.add(&self.all.late, self.all_late as f64);
        let of_path =
            |(row, total): (usize, &RatioEstimator)| total.estimate(in_windows(row).windows);
        Estimates {
            paths: totals.iter().enumerate().map(of_path).collect(),
            all: all.estimate(self.all.windows),
            path_submissions: totals.iter().map(|total| total.size() as u64).collect(),
            submissions: all.size() as u64,
            windows: self.settled,
            left_out: self.left_out,
        }
    }
}

impl Window {
    fn add(&mut self, rows: &Rows, amounts: Amounts) {
        match &rows.late {
            None => self.paths.entry(rows.path).or_default().add(amounts),
            Some(late) => self.late.push((late.clone(), amounts)),
        }
    }
}

/// The number of a path, in a table that grows.
fn at(table: &mut Vec<u64>, path: PathId) -> &mut u64 {
    let row = path as usize;
    if row >= table.len() {
        table.resize(row + 1, 0);
    }
    &mut table[row]
}

impl Amounts {
    fn add(&mut self, other: Self) {
        self.submissions += other.submissions;
        self.gpu_ns = self.gpu_ns.saturating_add(other.gpu_ns);
    }
}

/// True if a call of this class submits work whose GPU time is estimated.
pub(crate) fn submits_work(class: CallClass) -> bool {
    use CallClass::{GraphLaunch, KernelLaunch, Memcpy, Memset};
    matches!(class, KernelLaunch | GraphLaunch | Memcpy | Memset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_beyond_the_bound_are_counted() {
        let bounds = Arc::new(WindowBounds::default());
        for _ in 0..MOST_WINDOWS + 76 {
            bounds.begin();
        }
        let mut sums = WindowSums::new(bounds);
        sums.see_bounds();
        assert_eq!(sums.estimates(&SumTables::default()).left_out, 76);
    }
}
