//! The slots of log entries that were read.

/// The log slots of the rows of a table. Ascending, unless segments were appended out of order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Slots {
    /// The first slot of a run without gaps, if there is no list.
    first: u64,
    len: usize,
    list: Option<Vec<u64>>,
}

impl Slots {
    pub(crate) fn push(&mut self, slot: u64) {
        if self.len == 0 {
            self.first = slot;
        }
        if self.list.is_none() && slot != self.first + self.len as u64 {
            self.list = Some((self.first..).take(self.len).collect());
        }
        if let Some(list) = &mut self.list {
            list.push(slot);
        }
        self.len += 1;
    }

    /// The row of a slot, if the slots ascend.
    #[inline]
    pub(crate) fn row(&self, slot: u64) -> Option<usize> {
        match &self.list {
            None => {
                let row = slot.checked_sub(self.first)? as usize;
                (row < self.len).then_some(row)
            }
            Some(slots) => slots.binary_search(&slot).ok(),
        }
    }

    /// The slot of a row.
    #[inline]
    pub(crate) fn slot(&self, row: usize) -> u64 {
        self.list.as_ref().map_or(self.first + row as u64, |slots| slots[row])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len).map(|row| self.slot(row))
    }

    /// True if a slot is simply its row.
    pub(crate) fn are_rows(&self) -> bool {
        self.list.is_none() && self.first == 0
    }
}

impl FromIterator<u64> for Slots {
    fn from_iter<I: IntoIterator<Item = u64>>(slots: I) -> Self {
        let mut all = Self::default();
        slots.into_iter().for_each(|slot| all.push(slot));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_with_gaps_and_without() {
        for slots in [vec![], vec![0, 1, 2], vec![5, 6], vec![0, 2, 3, 9], vec![4, 7]] {
            let all: Slots = slots.iter().copied().collect();
            assert_eq!(all.iter().collect::<Vec<_>>(), slots);
            for slot in 0..12 {
                assert_eq!(all.row(slot), slots.iter().position(|known| *known == slot));
            }
            assert_eq!(all.are_rows(), slots.iter().copied().eq(0..slots.len() as u64));
        }
    }
}
