//! Rows by their owners: the ranges of calls, operations and shares.

use std::ops::Range as Span;

use cupti::tables;

/// The owner of rows without an owner.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Rows grouped by owner, in row order.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By owner: the start of its rows.
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl Index {
    /// `of` has the owner of each row, below `count`, or [`NOWHERE`].
    pub(super) fn new(count: usize, of: Vec<u32>) -> Self {
        let mut owners = Owners::new(count, 0);
        of.iter().for_each(|owner| owners.count(*owner));
        Owners { of, ..owners }.into_index()
    }

    /// The rows of these owners.
    pub(super) fn rows(&self, owners: Span<usize>) -> &[u32] {
        match (self.first.get(owners.start), self.first.get(owners.end)) {
            (Some(&first), Some(&end)) => &self.rows[first as usize..end as usize],
            _ => &[],
        }
    }
}

/// The owners of the rows of an [`Index`], counted while they are collected: another pass would
/// read them from memory again.
pub(super) struct Owners {
    /// The number of rows of each owner, two slots behind the owner.
    counts: Vec<u32>,
    pub(super) of: Vec<u32>,
}

impl Owners {
    pub(super) fn new(owners: usize, rows: usize) -> Self {
        Self { counts: tables::filled(0, owners + 2), of: tables::with_capacity(rows) }
    }

    #[inline]
    pub(super) fn count(&mut self, owner: u32) {
        // Rows without an owner have no slot.
        if let Some(rows) = self.counts.get_mut((owner as usize).wrapping_add(2)) {
            *rows += 1;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, owner: u32) {
        self.count(owner);
        self.of.push(owner);
    }

    pub(super) fn into_index(self) -> Index {
        // Prefix sums give the start of the previous owner's rows, which filling in advances to the
        // start of the owner's rows.
        let (mut first, mut sum) = (self.counts, 0);
        for rows in &mut first {
            sum += *rows;
            *rows = sum;
        }
        let mut rows = tables::filled(0, sum as usize);
        for (row, owner) in (0..).zip(self.of) {
            if owner != NOWHERE {
                let next = &mut first[owner as usize + 1];
                rows[*next as usize] = row;
                *next += 1;
            }
        }
        first.pop();
        Index { first, rows }
    }
}

/// Rows with several owners each.
#[derive(Debug, Default)]
pub(super) struct SharedIndex {
    index: Index,
    /// The row of each index entry, and the previous owner of that row, if any: any span of the
    /// index then yields each row once.
    entries: Vec<(u32, Option<u32>)>,
}

impl SharedIndex {
    /// `rows` are in order, each with all its owners.
    pub(super) fn new(count: usize, rows: impl Iterator<Item = (u32, Vec<u32>)>) -> Self {
        let (mut of, mut entries) = (Vec::new(), Vec::new());
        for (row, mut owners) in rows {
            owners.sort_unstable();
            owners.dedup();
            let before = std::iter::once(None).chain(owners.iter().copied().map(Some));
            entries.extend(owners.iter().zip(before).map(|(_, before)| (row, before)));
            of.extend(owners);
        }
        if entries.is_empty() {
            return Self::default();
        }
        Self { index: Index::new(count, of), entries }
    }

    /// The rows of these owners, without duplicates.
    pub(super) fn rows(&self, owners: Span<usize>) -> impl Iterator<Item = u32> + Clone {
        let entries =
            self.index.rows(owners.clone()).iter().map(|entry| self.entries[*entry as usize]);
        let is_first = move |(_, before): &(u32, Option<u32>)| {
            before.is_none_or(|before| (before as usize) < owners.start)
        };
        entries.filter(is_first).map(|(row, _)| row)
    }
}
