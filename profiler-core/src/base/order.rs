//! Sorting of rows with one instance of the standard library's sort for all types of rows. `slice::sort` is compiled anew for each
//! type and order, some 2,500 lines of LLVM each: in a debug build that was a fifth of the crate's code. Sorts of plain
//! numbers, and the one of all GPU operations, stay with `slice`.

use std::cmp::Ordering;

/// Sorts rows by a number, stably: as fast as [`slice::sort_by_key`], with 16 bytes a row for the time.
pub(crate) fn sort_by_number<T>(rows: &mut [T], number: impl Fn(&T) -> u64) {
    let mut is_sorted = true;
    let mut last = 0;
    let mut numbers = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let number = number(row);
        is_sorted &= last <= number;
        last = number;
        numbers.push((number, at));
    }
    if !is_sorted {
        numbers.sort_unstable();
        let order = numbers.into_iter().map(|(_, at)| at).collect();
        swap_into(order, &mut |a, b| rows.swap(a, b));
    }
}

/// Sorts rows by a key, stably, and makes each key once. Compares through a pointer: not for millions of rows.
pub(crate) fn sort_by_key<T, K: Ord>(rows: &mut [T], key: impl Fn(&T) -> K) {
    let keys: Vec<K> = rows.iter().map(key).collect();
    let order = sorted_positions(rows.len(), &|a, b| keys[a].cmp(&keys[b]));
    swap_into(order, &mut |a, b| rows.swap(a, b));
}

/// Sorts rows by a comparison, stably. Compares through a pointer: not for millions of rows.
pub(crate) fn sort_by<T>(rows: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let order = sorted_positions(rows.len(), &|a, b| compare(&rows[a], &rows[b]));
    swap_into(order, &mut |a, b| rows.swap(a, b));
}

fn sorted_positions(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..len).collect();
    positions.sort_by(|a, b| compare(*a, *b));
    positions
}

/// Moves each row to its place: the row for place `i` is at `order[i]`.
fn swap_into(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..order.len() {
        let mut place = start;
        // One cycle of the permutation; a place that is done names itself.
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
    fn order_is_that_of_the_standard_library() {
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
