//! Memory for large tables, in huge pages if the kernel grants them on request.
//!
//! A table of 32 MB takes 8,000 page faults of 4 KiB each. These were a third of the time to join a
//! million launches.

use crate::sys::os;

/// Returns an empty table with room for `count` rows.
#[must_use]
pub fn with_capacity<T>(count: usize) -> Vec<T> {
    let mut rows = Vec::new();
    reserve(&mut rows, count);
    rows
}

/// Reserves room for `additional` more rows.
pub fn reserve<T>(rows: &mut Vec<T>, additional: usize) {
    rows.reserve_exact(additional);
    os::advise_huge_pages(rows.spare_capacity_mut());
}

/// Returns a table of `count` rows with one value.
#[must_use]
pub fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut rows = with_capacity(count);
    rows.resize(count, value);
    rows
}

/// Collects an iterator into a table.
#[must_use]
pub fn collected<T>(of: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let mut rows = with_capacity(of.len());
    rows.extend(of);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_is_one_like_any_other() {
        let count = 3_000_000_u32;
        let mut rows = collected(0..count);
        assert!(rows.iter().copied().eq(0..count));
        reserve(&mut rows, 1_000_000);
        assert!(rows.capacity() >= 4_000_000 && rows.iter().copied().eq(0..count));
        assert_eq!(filled(7_u8, 5 << 20), vec![7; 5 << 20]);
        assert!(with_capacity::<()>(usize::MAX).is_empty());
    }
}
