//! Stacks by number, each stored once. Any thread adds stacks without a lock or an allocation. The
//! table has a fixed size.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// The maximum number of stacks stored by a process.
pub(super) const STACKS: usize = 1 << 14;
/// The number of slots, larger so that a look-up takes few steps.
const SLOTS: usize = 2 * STACKS;
/// The maximum number of frames of all stacks: 4 MiB.
const FRAMES: usize = 1 << 19;
/// The maximum number of slots that a look-up visits.
const PROBES: usize = 64;
/// The flag of a stack whose outer frames are missing, in the word before its frames.
const TRUNCATED: u64 = 1 << 63;

/// A frame: the number of a module and the address in its file, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FrameWord(pub(super) u64);

/// The module number for addresses outside all known modules.
const NO_MODULE: u64 = 0xffff;
const ADDRESS_BITS: u32 = 48;

impl FrameWord {
    pub(super) fn new(module: Option<u16>, address: u64) -> Self {
        let module = module.map_or(NO_MODULE, u64::from);
        Self(module << ADDRESS_BITS | address & ((1 << ADDRESS_BITS) - 1))
    }

    pub(super) fn module(self) -> Option<u16> {
        let module = self.0 >> ADDRESS_BITS;
        // CAST: 16 bits.
        (module != NO_MODULE).then_some(module as u16)
    }

    pub(super) fn address(self) -> u64 {
        self.0 & ((1 << ADDRESS_BITS) - 1)
    }
}

/// A stack of the table, innermost frame first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InternedStack {
    pub(super) number: u32,
    pub(super) frames: Vec<FrameWord>,
    pub(super) is_truncated: bool,
}

#[derive(Debug, Default)]
struct Slot {
    /// The hash of the frames; 0 while the slot is free. Stacks with the same hash are treated as
    /// equal.
    hash: AtomicU64,
    /// The start of its frames, from 1; 0 until they are written.
    begins: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct StackTable {
    slots: Box<[Slot]>,
    /// For each stack a word with its length and flags, and its frames.
    frames: Box<[AtomicU64]>,
    used: AtomicUsize,
    stacks: AtomicUsize,
}

impl StackTable {
    pub(super) fn new() -> Self {
        Self::with_room(SLOTS, FRAMES)
    }

    fn with_room(slots: usize, frames: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            frames: (0..frames).map(|_| AtomicU64::new(0)).collect(),
            used: AtomicUsize::new(0),
            stacks: AtomicUsize::new(0),
        }
    }

    /// The number of a stack, from 1. `None` if it is new and there is no room, or there are
    /// already `most`.
    pub(super) fn intern(
        &self,
        frames: &[FrameWord],
        is_truncated: bool,
        most: usize,
    ) -> Option<u32> {
        let mut hasher = FxHasher::default();
        frames.iter().for_each(|frame| hasher.write_u64(frame.0));
        hasher.write_u8(is_truncated.into());
        let hash = hasher.finish().max(1);
        // CAST: less than the number of slots.
        let first = (hash >> 32) as usize % self.slots.len();
        let mut written = None;
        for probe in 0..PROBES.min(self.slots.len()) {
            let at = (first + probe) % self.slots.len();
            let slot = &self.slots[at];
            // CAST: fewer slots than 2^24.
            let number = at as u32 + 1;
            let found = slot.hash.load(Ordering::Acquire);
            if found == hash {
                return Some(number);
            }
            if found != 0 {
                continue;
            }
            let begins = match written {
                Some(begins) => begins,
                None => *written.insert(self.write(frames, is_truncated, most)?),
            };
            match slot.hash.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    slot.begins.store(begins + 1, Ordering::Release);
                    return Some(number);
                }
                // Another thread has just added the same stack; the written frames stay unused.
                Err(other) if other == hash => return Some(number),
                Err(_) => {}
            }
        }
        None
    }

    fn write(&self, frames: &[FrameWord], is_truncated: bool, most: usize) -> Option<usize> {
        let most = most.min(self.slots.len() / 2);
        if self.stacks.load(Ordering::Relaxed) >= most
            || self.stacks.fetch_add(1, Ordering::Relaxed) >= most
        {
            return None;
        }
        let words = frames.len() + 1;
        // Once full, the counter must not wrap.
        if self.used.load(Ordering::Relaxed) >= self.frames.len() {
            return None;
        }
        let begins = self.used.fetch_add(words, Ordering::Relaxed);
        let (head, rest) = self.frames.get(begins..begins + words)?.split_first()?;
        let flag = if is_truncated { TRUNCATED } else { 0 };
        head.store(frames.len() as u64 | flag, Ordering::Relaxed);
        for (place, frame) in rest.iter().zip(frames) {
            place.store(frame.0, Ordering::Relaxed);
        }
        Some(begins)
    }

    /// The stacks so far.
    pub(super) fn stacks(&self) -> Vec<InternedStack> {
        let stack = |(at, slot): (usize, &Slot)| {
            let begins = slot.begins.load(Ordering::Acquire).checked_sub(1)?;
            let (head, rest) = self.frames.get(begins..)?.split_first()?;
            let head = head.load(Ordering::Relaxed);
            // CAST: the length that `write` stored.
            let frames = rest.get(..(head & !TRUNCATED) as usize)?;
            Some(InternedStack {
                number: at as u32 + 1,
                frames: frames.iter().map(|word| FrameWord(word.load(Ordering::Relaxed))).collect(),
                is_truncated: head & TRUNCATED != 0,
            })
        };
        self.slots.iter().enumerate().filter_map(stack).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(seed: u64, count: u64) -> Vec<FrameWord> {
        (0..count).map(|at| FrameWord::new(Some(3), seed * 1000 + at)).collect()
    }

    #[test]
    fn stack_has_one_number_and_comes_back() {
        let table = StackTable::with_room(64, 4096);
        let first = table.intern(&frames(1, 5), false, STACKS).unwrap();
        let second = table.intern(&frames(1, 5), true, STACKS).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.intern(&frames(1, 5), false, STACKS), Some(first));
        let mut stacks = table.stacks();
        stacks.sort_by_key(|stack| stack.is_truncated);
        let [whole, cut] = &stacks[..] else { panic!("{stacks:?}") };
        assert_eq!((whole.number, cut.number), (first, second));
        assert_eq!((&whole.frames, cut.is_truncated), (&frames(1, 5), true));
    }

    #[test]
    fn full_table_rejects_new_stacks() {
        let table = StackTable::with_room(64, 4096);
        let numbers: Vec<_> =
            (0..100).map(|seed| table.intern(&frames(seed, 3), false, STACKS)).collect();
        assert_eq!(numbers.iter().flatten().count(), 32);
        assert_eq!(table.stacks().len(), 32);
        assert_eq!(table.intern(&frames(0, 3), false, STACKS), numbers[0]);
        // Or no more are wanted of a kind.
        let table = StackTable::with_room(64, 4096);
        assert!(table.intern(&frames(1, 3), false, 1).is_some());
        assert_eq!(table.intern(&frames(2, 3), false, 1), None);
        assert!(table.intern(&frames(2, 3), false, 2).is_some());
        // Or there is no room for frames.
        let table = StackTable::with_room(64, 10);
        assert!(table.intern(&frames(1, 8), false, STACKS).is_some());
        assert_eq!((table.intern(&frames(2, 8), false, STACKS), table.stacks().len()), (None, 1));
    }

    #[test]
    fn threads_agree_on_numbers() {
        let table = StackTable::new();
        let all: Vec<Vec<Option<u32>>> = std::thread::scope(|scope| {
            let work =
                || (0..5000).map(|seed| table.intern(&frames(seed, 7), false, STACKS)).collect();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|numbers| *numbers == all[0]) && all[0].iter().all(Option::is_some));
        let stacks = table.stacks();
        assert_eq!(stacks.len(), 5000);
        for stack in stacks {
            let seed = stack.frames[0].address() / 1000;
            assert_eq!(stack.frames, frames(seed, 7));
            assert_eq!(all[0][seed as usize], Some(stack.number));
        }
    }

    #[test]
    fn frame_has_its_module_and_address() {
        let frame = FrameWord::new(Some(7), 0x1234);
        assert_eq!((frame.module(), frame.address()), (Some(7), 0x1234));
        let outside = FrameWord::new(None, 0x7fff_1234_5678);
        assert_eq!((outside.module(), outside.address()), (None, 0x7fff_1234_5678));
    }
}
