//! Counts a thread's ranges with hardware counters instead of recording them.

use std::cell::RefCell;

use cupti::counters::{OpenRange, Ranges};

thread_local! {
    static TAP: RefCell<Option<Tap>> = const { RefCell::new(None) };
}

#[derive(Debug)]
struct Tap {
    ranges: Ranges,
    open: Vec<OpenRange>,
}

/// Counts this thread's ranges with hardware counters until dropped.
#[derive(Debug)]
pub(crate) struct RangeCounting(());

impl RangeCounting {
    /// Replaces the thread's previous counting.
    pub(crate) fn begin(ranges: Ranges) -> Self {
        let _ = with_tap(|tap| *tap = Some(Tap { ranges, open: Vec::new() }));
        Self(())
    }
}

impl Drop for RangeCounting {
    fn drop(&mut self) {
        end(1);
        let _ = with_tap(|tap| *tap = None);
    }
}

/// `None` on a thread that is ending.
fn with_tap<R>(with: impl FnOnce(&mut Option<Tap>) -> R) -> Option<R> {
    TAP.try_with(|tap| Some(with(&mut *tap.try_borrow_mut().ok()?))).ok().flatten()
}

/// Opens a range and returns its depth, from 1; `None` if this thread does not count.
pub(crate) fn begin(name: &str) -> Option<u64> {
    with_tap(|tap| {
        let tap = tap.as_mut()?;
        tap.open.push(tap.ranges.enter(name));
        Some(tap.open.len() as u64)
    })
    .flatten()
}

/// Closes the range at this depth and those within it, innermost first.
pub(crate) fn end(place: u64) {
    let _ = with_tap(|tap| {
        let Some(tap) = tap else { return };
        while tap.open.len() as u64 >= place.max(1) {
            tap.open.pop();
        }
    });
}
