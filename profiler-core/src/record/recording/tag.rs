//! The number by which a driver call names the range that it was made in.

use std::ops::Range;

/// A range's identity: the number of its thread's log and the entry there. Or that of a context of several ranges: the
/// number of a thread's log and the entry in its second log. Never 0.
///
/// A log has its number to itself for the life of the process, so a tag names one range, however many recordings there
/// were. A guard, a `Context` or a thread that outlives its recording therefore keeps a tag of a log that no later
/// recording has. Numbers are never used again. A log is one thread's in one recording, and 8,589,934,591 have a number: a
/// recording a second with a hundred threads each reaches that in 2.7 years, and ranges are counted as lost from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RangeTag(pub(crate) u64);

const SLOT_BITS: u32 = 30;
/// Bits of a log's number below the flag of contexts of several ranges.
const LOW_BITS: u32 = 21;
/// The flag of contexts of several ranges.
const JOINED: u64 = 1 << (SLOT_BITS + LOW_BITS);
/// Entries of a log that have a tag: 1,073,741,824; a thread has a new log then.
pub(crate) const SLOTS: u64 = if cfg!(test) { 1 << 12 } else { 1 << SLOT_BITS };
/// Logs have numbers from 1 to below this one.
pub(super) const LOGS_END: u64 = 1 << (u64::BITS - SLOT_BITS - 1);

impl RangeTag {
    /// `None` where a number does not fit: the range is then counted as lost.
    #[inline]
    pub(crate) fn new(log: u64, slot: u64) -> Option<Self> {
        let number = log >> LOW_BITS << (LOW_BITS + 1) | log & ((1 << LOW_BITS) - 1);
        let fits = log != 0 && log < LOGS_END && slot < SLOTS;
        fits.then_some(Self(number << SLOT_BITS | slot))
    }

    /// The tag of several ranges that this entry of a thread's second log joins.
    pub(crate) fn joined(log: u64, slot: u64) -> Option<Self> {
        Self::new(log, slot).map(|tag| Self(tag.0 | JOINED))
    }

    /// True for the tag of several ranges; in recordings from before there were such, of a thread after 2 million others.
    #[inline]
    pub(crate) fn is_joined(self) -> bool {
        self.0 & JOINED != 0
    }

    /// The number of the thread's log; 0 for what is no tag.
    #[inline]
    pub(crate) fn log(self) -> u64 {
        let number = self.0 >> SLOT_BITS;
        number >> (LOW_BITS + 1) << LOW_BITS | number & ((1 << LOW_BITS) - 1)
    }

    /// True for numbers below all tags.
    #[inline]
    pub(crate) fn is_below_logs(self) -> bool {
        self.0 >> SLOT_BITS == 0
    }

    /// The entry in the log.
    #[inline]
    pub(crate) fn slot(self) -> u64 {
        self.0 & ((1 << SLOT_BITS) - 1)
    }

    /// The number of the thread's log and the entry there; `None` for the tag of several ranges.
    #[inline]
    pub(crate) fn place(self) -> Option<(u64, u64)> {
        (!self.is_joined()).then(|| (self.log(), self.slot()))
    }
}

/// The numbers of the logs of a recording whose first log has this one. Those of later recordings are among them, but no
/// call of this recording can name a log that did not exist.
pub(crate) fn logs_from(first: u64) -> Range<u64> {
    first..LOGS_END.max(first)
}

/// The numbers of the logs in a file of before [`logs_from`]: 12 bits counted the recordings, and started again after 4,095.
pub(crate) fn logs_of_epoch(epoch: u32) -> Range<u64> {
    let first = u64::from(epoch) << LOW_BITS;
    first..first + (1 << LOW_BITS)
}

/// The epoch of the numbers that [`logs_of_epoch`] gave.
pub(super) fn epoch_of(logs: &Range<u64>) -> Option<u32> {
    let epoch = u32::try_from(logs.start >> LOW_BITS).ok()?;
    (*logs == logs_of_epoch(epoch)).then_some(epoch)
}

/// The log with the same place among its recording's logs, in this epoch.
pub(super) fn in_epoch(epoch: u32, log: u64) -> u64 {
    logs_of_epoch(epoch).start + (log & ((1 << LOW_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_holds_its_place() {
        for log in [1, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, LOGS_END - 1] {
            for slot in [0, 7, SLOTS - 1] {
                let tag = RangeTag::new(log, slot).unwrap();
                assert_eq!((tag.place(), tag.log()), (Some((log, slot)), log));
                let joined = RangeTag::joined(log, slot).unwrap();
                assert_eq!((joined.place(), joined.log(), joined.slot()), (None, log, slot));
                assert!(joined.is_joined() && !tag.is_joined() && joined != tag);
            }
        }
        for (log, slot) in [(0, 0), (LOGS_END, 0), (u64::MAX, 0), (1, SLOTS)] {
            assert_eq!(RangeTag::new(log, slot), None);
            assert_eq!(RangeTag::joined(log, slot), None);
        }
    }

    #[test]
    fn tags_of_older_files_keep_their_meaning() {
        // Epoch 5, thread 3, entry 7.
        let tag = RangeTag(5 << 52 | 3 << 30 | 7);
        assert_eq!(tag.place(), Some((logs_of_epoch(5).start + 3, 7)));
        assert!(logs_of_epoch(5).contains(&tag.log()));
        assert!(!logs_of_epoch(4).contains(&tag.log()) && !logs_of_epoch(6).contains(&tag.log()));
        assert_eq!(logs_of_epoch(u32::MAX).end - logs_of_epoch(u32::MAX).start, 1 << 21);
    }
}
