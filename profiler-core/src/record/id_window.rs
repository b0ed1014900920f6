//! A map for keys that are handed out in order and mostly removed soon after.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Keys after the oldest one that are stored in the deque; older keys are in a hash table.
const WINDOW: usize = 1 << 16;

/// True if the first key is not after the second. Keys may wrap: the shorter distance decides.
#[inline]
pub(crate) fn is_up_to(number: u32, until: u32) -> bool {
    until.wrapping_sub(number) <= i32::MAX as u32
}

/// Values by key. Keys may wrap.
#[derive(Debug)]
pub(crate) struct IdWindow<T> {
    /// The key of the first slot.
    first: u32,
    places: VecDeque<Option<T>>,
    older: FxHashMap<u32, T>,
    len: usize,
}

impl<T> Default for IdWindow<T> {
    fn default() -> Self {
        Self { first: 0, places: VecDeque::new(), older: FxHashMap::default(), len: 0 }
    }
}

impl<T> IdWindow<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the key's previous value.
    pub(crate) fn insert(&mut self, number: u32, value: T) -> Option<T> {
        if self.places.is_empty() {
            self.first = number;
        }
        let mut place = number.wrapping_sub(self.first) as usize;
        // Older than all others, or far ahead, as after a pause of hours.
        if place >= i32::MAX as usize {
            let before = self.older.insert(number, value);
            self.len += usize::from(before.is_none());
            return before;
        }
        if place >= 2 * WINDOW {
            while let Some(value) = self.places.pop_front() {
                self.older.extend(value.map(|value| (self.first, value)));
                self.first = self.first.wrapping_add(1);
            }
            (self.first, place) = (number, 0);
        }
        while place >= WINDOW {
            let oldest = self.places.pop_front().flatten();
            self.older.extend(oldest.map(|oldest| (self.first, oldest)));
            self.first = self.first.wrapping_add(1);
            place -= 1;
        }
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let before = self.places[place].replace(value).or_else(|| self.older.remove(&number));
        self.len += usize::from(before.is_none());
        before
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = number.wrapping_sub(self.first) as usize;
        match self.places.get_mut(place) {
            Some(value) if value.is_some() => value.as_mut(),
            _ => self.older.get_mut(&number),
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let place = number.wrapping_sub(self.first) as usize;
        let at_hand = self.places.get_mut(place).and_then(Option::take);
        let value = at_hand.or_else(|| self.older.remove(&number))?;
        self.len -= 1;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbers = (0..).map(|place| self.first.wrapping_add(place));
        let at_hand = numbers.zip(&self.places);
        let at_hand = at_hand.filter_map(|(number, value)| Some((number, value.as_ref()?)));
        at_hand.chain(self.older.iter().map(|(number, value)| (*number, value)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn id_window_behaves_like_a_map() {
        let seeds = if std::env::var_os("THOROUGH_TESTS").is_some() { 20 } else { 6 };
        for seed in 0..seeds {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut recent = IdWindow::default();
            let mut map = BTreeMap::new();
            let mut next = if seed % 2 == 0 { 0 } else { u32::MAX - 1000 };
            for step in 0..20_000_u32 {
                // Occasionally a large step, back as well as ahead.
                next = match random.u32(0..2000) {
                    0 => next.wrapping_add(random.u32(0..300_000)),
                    1 => next.wrapping_sub(random.u32(0..100_000)),
                    _ => next.wrapping_add(random.u32(1..3)),
                };
                assert_eq!(recent.insert(next, step), map.insert(next, step), "seed {seed}");
                let some = next.wrapping_sub(random.u32(0..40));
                if let Some(value) = recent.get_mut(some) {
                    *value += 1;
                }
                if let Some(value) = map.get_mut(&some) {
                    *value += 1;
                }
                let other = next.wrapping_sub(random.u32(0..40));
                if random.u32(0..10) != 0 {
                    assert_eq!(recent.remove(other), map.remove(&other), "seed {seed}");
                }
                assert_eq!(recent.len(), map.len());
            }
            let all: BTreeMap<u32, u32> = recent.iter().map(|(key, value)| (key, *value)).collect();
            assert_eq!(all, map);
        }
    }
}
