//! Where a thread's ranges go while they are counted and not recorded.

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

/// Has this thread's ranges open ranges of a measurement, until it is dropped.
#[derive(Debug)]
pub(crate) struct RangeCounting(());

impl RangeCounting {
    /// What was there before is over.
    pub(crate) fn begin(ranges: Ranges) -> Self {
        let _ = with(|tap| *tap = Some(Tap { ranges, open: Vec::new() }));
        Self(())
    }
}

impl Drop for RangeCounting {
    fn drop(&mut self) {
        end(1);
        let _ = with(|tap| *tap = None);
    }
}

/// `None` on a thread that is ending.
fn with<R>(with: impl FnOnce(&mut Option<Tap>) -> R) -> Option<R> {
    TAP.try_with(|tap| Some(with(&mut *tap.try_borrow_mut().ok()?))).ok().flatten()
}

/// A range begins on this thread. Gives its place, from 1; `None` if nothing is counted.
pub(crate) fn begin(name: &str) -> Option<u64> {
    with(|tap| {
        let tap = tap.as_mut()?;
        tap.open.push(tap.ranges.enter(name));
        Some(tap.open.len() as u64)
    })
    .flatten()
}

/// The range in this place ends, and those within it that have not: the innermost first.
pub(crate) fn end(place: u64) {
    let _ = with(|tap| {
        let Some(tap) = tap else { return };
        while tap.open.len() as u64 >= place.max(1) {
            tap.open.pop();
        }
    });
}
