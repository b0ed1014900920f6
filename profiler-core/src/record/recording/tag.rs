//! The tag that links a driver call to its range.

use std::ops::Range;

/// The identity of a range: the number of its thread's log and the entry in it. With the flag
/// [`JOINED`] it identifies a joined context: an entry of the thread's second log. Never 0.
///
/// Log numbers are never reused in a process, so a tag identifies one range across recordings. A
/// guard, `Context` or thread that outlives its recording has a tag of a log that no later
/// recording has. A log belongs to one thread in one recording. There are 8,589,934,591 numbers:
/// one recording per second with a hundred threads uses them up in 2.7 years. Later ranges count as
/// lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RangeTag(pub(crate) u64);

const SLOT_BITS: u32 = 30;
/// Bits of a log number below the [`JOINED`] flag.
const LOW_BITS: u32 = 21;
/// The flag of joined contexts.
const JOINED: u64 = 1 << (SLOT_BITS + LOW_BITS);
/// Entries of a log that have a tag: 1,073,741,824. A thread then starts a new log.
pub(crate) const SLOTS: u64 = if cfg!(test) { 1 << 12 } else { 1 << SLOT_BITS };
/// Log numbers are from 1 to below this.
pub(super) const LOGS_END: u64 = 1 << (u64::BITS - SLOT_BITS - 1);

impl RangeTag {
    /// `None` if a number does not fit; the range then counts as lost.
    #[inline]
    pub(crate) fn new(log: u64, slot: u64) -> Option<Self> {
        let number = log >> LOW_BITS << (LOW_BITS + 1) | log & ((1 << LOW_BITS) - 1);
        let fits = log != 0 && log < LOGS_END && slot < SLOTS;
        fits.then_some(Self(number << SLOT_BITS | slot))
    }

    /// The tag of the joined context at this entry of a thread's second log.
    pub(crate) fn joined(log: u64, slot: u64) -> Option<Self> {
        Self::new(log, slot).map(|tag| Self(tag.0 | JOINED))
    }

    /// True for joined contexts; in older recordings also for threads after 2 million others.
    #[inline]
    pub(crate) fn is_joined(self) -> bool {
        self.0 & JOINED != 0
    }

    /// The number of the thread's log; 0 for tag 0.
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

    /// The log number and the entry; `None` for joined contexts.
    #[inline]
    pub(crate) fn place(self) -> Option<(u64, u64)> {
        (!self.is_joined()).then(|| (self.log(), self.slot()))
    }
}

/// The log numbers of a recording with this first log. They include log numbers of later
/// recordings, to which no call of this recording can refer.
pub(crate) fn logs_from(first: u64) -> Range<u64> {
    first..LOGS_END.max(first)
}

/// Log numbers in files older than [`logs_from`]: 12 bits for recordings, wrapped after 4,095.
pub(crate) fn logs_of_epoch(epoch: u32) -> Range<u64> {
    let first = u64::from(epoch) << LOW_BITS;
    first..first + (1 << LOW_BITS)
}

/// The epoch of numbers from [`logs_of_epoch`].
pub(super) fn epoch_of(logs: &Range<u64>) -> Option<u32> {
    let epoch = u32::try_from(logs.start >> LOW_BITS).ok()?;
    (*logs == logs_of_epoch(epoch)).then_some(epoch)
}

/// The log at the same position among the logs of this epoch.
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
