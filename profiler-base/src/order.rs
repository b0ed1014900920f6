//! Sorts rows by their positions, so that all types of rows share one instance of the standard
//! library's sort. `slice::sort` is compiled separately for each type and order, with some 2,500
//! lines of LLVM. In a debug build that was a fifth of the crate's code. Vectors of plain numbers
//! use `slice`. The code uses loops, since each iterator adapter would be compiled per type, too.

use std::cmp::Ordering;

/// Sorts rows by a number, stably. Sorted rows are not moved. Takes at most as long as
/// `slice::sort_by_key` (docs/measurements/exports-and-sizes.md).
pub fn sort_by_number<T>(rows: &mut [T], number: impl Fn(&T) -> u64) {
    let (mut is_sorted, mut last) = (true, 0);
    for row in &*rows {
        let next = number(row);
        is_sorted &= last <= next;
        last = next;
    }
    if is_sorted {
        return;
    }
    let mut numbers = Vec::with_capacity(rows.len());
    for row in &*rows {
        numbers.push((number(row), numbers.len()));
    }
    swap_into(positions(numbers), &mut |a, b| rows.swap(a, b));
}

fn positions(mut numbers: Vec<(u64, usize)>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.into_iter().map(|(_, at)| at).collect()
}

/// Sorts rows by a key, stably, and computes each key once. Takes up to twice as long as
/// [`sort_by_number`].
pub fn sort_by_key<T, K: Ord>(rows: &mut [T], key: impl Fn(&T) -> K) {
    let mut keys = Vec::with_capacity(rows.len());
    for row in &*rows {
        keys.push(key(row));
    }
    let order = sorted_positions(rows.len(), &|a, b| keys[a].cmp(&keys[b]));
    swap_into(order, &mut |a, b| rows.swap(a, b));
}

/// Sorts rows by a comparison, stably. Unsuitable for millions of rows: compares through a pointer.
pub fn sort_by<T>(rows: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let order = sorted_positions(rows.len(), &|a, b| compare(&rows[a], &rows[b]));
    swap_into(order, &mut |a, b| rows.swap(a, b));
}

fn sorted_positions(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..len).collect();
    positions.sort_by(|a, b| compare(*a, *b));
    positions
}

/// Moves each row to its position: the row for position `i` is at `order[i]`.
fn swap_into(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..order.len() {
        let mut place = start;
        // Processes one cycle of the permutation; a finished position refers to itself.
        while order[place] != start {
            let from = std::mem::replace(&mut order[place], place);
            swap(place, from);
            place = from;
        }
        order[place] = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_matches_the_standard_library() {
        let mut random = fastrand::Rng::with_seed(7);
        for len in 0..200 {
            let rows: Vec<(u64, usize)> = (0..len).map(|at| (random.u64(0..20), at)).collect();
            let (mut expected, mut by_number, mut by_key) = (rows.clone(), rows.clone(), rows);
            expected.sort_by_key(|row| row.0);
            sort_by_number(&mut by_number, |row| row.0);
            sort_by_key(&mut by_key, |row| row.0);
            assert_eq!((&by_number, &by_key), (&expected, &expected));
            sort_by(&mut by_key, |a, b| b.1.cmp(&a.1));
            assert!(by_key.is_sorted_by_key(|row| std::cmp::Reverse(row.1)));
        }
    }
}
