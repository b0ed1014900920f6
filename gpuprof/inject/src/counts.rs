//! Counters of events that the library could not read or retain since the process began.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one process.
        #[derive(Debug)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        /// The counters of this process.
        pub(crate) static COUNTS: Counts = Counts { $($name: AtomicU64::new(0),)* };

        /// Returns the counters that are not 0, with their names.
        pub(crate) fn nonzero() -> Vec<(&'static str, u64)> {
            let all = [$((stringify!($name), COUNTS.$name.load(Ordering::Relaxed)),)*];
            all.into_iter().filter(|(_, count)| *count != 0).collect()
        }
    };
}

counts! {
    /// Pops without an open range in their thread and domain.
    unbalanced_pops,
    /// Ends of process ranges that are not open.
    unknown_range_ends,
    /// Pushes beyond the maximum depth of a thread.
    too_deep,
    /// Process ranges beyond the maximum number of open ranges.
    too_many_process_ranges,
    /// Events with null attributes or attributes that are too short.
    unreadable_events,
    /// Names that were null, of an unknown type, or of an unknown registered string.
    unknown_names,
    /// Names truncated to the maximum length.
    cut_names,
    /// Unknown handles of domains, synchronisation objects and counters.
    unknown_handles,
    /// Domains, strings, categories, schemas and counters beyond their maximum numbers.
    refused_objects,
    /// Payloads of unknown types and schemas, and unreadable values of schemas.
    unread_values,
    /// Events that a thread made while it handled another event, or while it ended.
    nested_events,
    /// Panics of this library, which were caught before they reached the program.
    panics,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The number of events and ranges missing from the recording.
pub(crate) fn lost() -> u64 {
    let missing =
        [&COUNTS.too_deep, &COUNTS.too_many_process_ranges, &COUNTS.nested_events, &COUNTS.panics];
    missing.iter().map(|count| count.load(Ordering::Relaxed)).sum()
}
