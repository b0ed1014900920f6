//! Slots of the domains registered with a tool, by number.
//!
//! A range's guard needs its domain at the end. An owned domain is reference-counted, and a guard
//! with a reference count does not fit into registers. The guard holds a slot number instead; the
//! slot has the count and the tool's handle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::sys::functions;
use crate::sys::types::{AtomicHandle, Handle};

/// A domain registered with the tool. Slot 0, the default domain, needs no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainSlot(u32);

#[derive(Debug, Default)]
struct Entry {
    handle: AtomicHandle,
    /// The domain itself, and each of its open ranges.
    users: AtomicU64,
}

/// Entries in the first chunk; each later one has twice as many, so that an entry never moves.
const FIRST: u32 = 64;
static CHUNKS: [OnceLock<Box<[Entry]>>; 26] = [const { OnceLock::new() }; 26];
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 1, free: Vec::new() });

struct Numbers {
    next: u32,
    /// Numbers of domains that ended.
    free: Vec<u32>,
}

/// The chunk of a number, and the index in it.
fn place(number: u32) -> (usize, usize) {
    let shifted = number + FIRST;
    let chunk = shifted.ilog2() - FIRST.ilog2();
    (chunk as usize, (shifted - (FIRST << chunk)) as usize)
}

impl DomainSlot {
    pub(crate) const DEFAULT: DomainSlot = DomainSlot(0);

    /// A slot for a domain that was just registered; [`release`](DomainSlot::release) frees it.
    #[cold]
    pub(crate) fn new(handle: Handle) -> DomainSlot {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = numbers.free.pop().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        let (chunk, at) = place(number);
        let Some(chunk) = CHUNKS.get(chunk) else {
            // More domains than fit into memory: the events go to the default one.
            return DomainSlot::DEFAULT;
        };
        let entries = chunk
            .get_or_init(|| (0..FIRST << (place(number).0)).map(|_| Entry::default()).collect());
        if let Some(entry) = entries.get(at) {
            entry.handle.store(handle);
            entry.users.store(1, Ordering::Release);
        }
        DomainSlot(number)
    }

    fn entry(self) -> Option<&'static Entry> {
        if self == DomainSlot::DEFAULT {
            return None;
        }
        let (chunk, at) = place(self.0);
        CHUNKS.get(chunk)?.get()?.get(at)
    }

    /// The tool's handle; `None` for the default domain, which has its own functions.
    pub(crate) fn handle(self) -> Option<Handle> {
        self.entry().map(|entry| entry.handle.load())
    }

    /// Adds a user.
    pub(crate) fn keep(self) {
        if let Some(entry) = self.entry() {
            entry.users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a user. The last one destroys the tool's domain and frees the slot.
    pub(crate) fn release(self) {
        let Some(entry) = self.entry() else { return };
        if entry.users.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let handle = entry.handle.load();
        if !handle.is_null() {
            functions::domain_destroy(handle);
        }
        NUMBERS.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.0);
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The slot with this [`number`](DomainSlot::number).
    pub(crate) fn of_number(number: u32) -> DomainSlot {
        DomainSlot(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        let (chunk, at) = place(u32::MAX - FIRST);
        assert!(chunk < CHUNKS.len() && at < (FIRST as usize) << chunk);
    }

    #[test]
    fn a_number_comes_again_only_after_its_last_user() {
        let domain = DomainSlot::new(Handle::NULL);
        domain.keep();
        domain.release();
        let other = DomainSlot::new(Handle::NULL);
        assert_ne!(domain, other);
        assert_eq!(domain.handle(), Some(Handle::NULL));
        assert_eq!(DomainSlot::DEFAULT.handle(), None);
        let numbers: Vec<DomainSlot> = (0..1_000).map(|_| DomainSlot::new(Handle::NULL)).collect();
        assert!(!numbers.contains(&domain) && !numbers.contains(&other));
        domain.release();
        let again: Vec<DomainSlot> = (0..2_000).map(|_| DomainSlot::new(Handle::NULL)).collect();
        assert!(again.contains(&domain));
    }
}
