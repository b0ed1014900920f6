//! Recordings in which the clock of the GPU goes back.

use std::collections::BTreeSet;

use profiler_core::Profile;

/// The same recording of format 2, whose records have no checksums: every third operation ends before it starts, and every
/// seventh jumps back by a second.
pub fn backwards(bytes: &[u8]) -> Vec<u8> {
    let profile = Profile::from_bytes(bytes).unwrap();
    let operations: Vec<(u64, u64)> = profile
        .operations()
        .filter_map(|operation| Some((operation.start()?, operation.gpu_time()?)))
        .map(|(start, time)| (start.as_nanos() as u64, time.as_nanos() as u64))
        .collect();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // A record has both times beside each other, in a clock of its own: the one in which the first operations are found.
    let starts_of = |(start, time): (u64, u64)| -> BTreeSet<u64> {
        let pairs = (0..bytes.len() - 16).map(|at| (word(at), word(at + 8)));
        let found = pairs.filter(|(from, to)| to.wrapping_sub(*from) == time && *from > start);
        found.map(|(from, _)| from - start).collect()
    };
    let common = operations[1..5].iter().map(|one| starts_of(*one));
    let common = common.reduce(|a, b| &a & &b).unwrap();
    assert_eq!(common.len(), 1, "{common:?}");
    let zero = *common.first().unwrap();
    let mut changed = bytes.to_vec();
    let mut count = 0;
    for at in 0..bytes.len() - 16 {
        let (from, to) = (word(at), word(at + 8));
        let Some(start) = from.checked_sub(zero) else { continue };
        let Ok(n) = operations.binary_search(&(start, to.wrapping_sub(from))) else { continue };
        let (from, to) = match n {
            _ if n % 3 == 0 => (to, from),
            _ if n % 7 == 0 => (from - 1_000_000_000, to - 1_000_000_000),
            _ => continue,
        };
        changed[at..at + 8].copy_from_slice(&from.to_le_bytes());
        changed[at + 8..at + 16].copy_from_slice(&to.to_le_bytes());
        count += 1;
    }
    assert!(count > operations.len() / 3, "{count} of {}", operations.len());
    changed
}
