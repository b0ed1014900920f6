//! Ranges of the process, which end on any thread by their number.

use std::sync::atomic::{AtomicU64, Ordering};

use nvtx::observer::{RangeStart, Token};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::observer;
use crate::counts::{COUNTS, count};
use crate::mode::Mode;
use crate::switch::{self, Instance};

/// The most open ranges. Further ones are counted, and their ends are ignored.
const MOST_OPEN: usize = 1 << 20;
/// Locks for them: threads with different numbers mostly take different ones.
const SHARDS: usize = 16;

type Shard = Mutex<FxHashMap<u64, (Option<Token>, Option<Instance>)>>;

static NEXT: AtomicU64 = AtomicU64::new(1);
static SHARD: [Shard; SHARDS] =
    [const { Mutex::new(FxHashMap::with_hasher(FxBuildHasher)) }; SHARDS];

fn shard(number: u64) -> &'static Shard {
    // CAST: below 16.
    &SHARD[(number % SHARDS as u64) as usize]
}

/// Starts a range and returns its number; 0 if it is not recorded.
pub(crate) fn start(mode: Mode, start: &RangeStart<'_>) -> u64 {
    if !mode.is_on() {
        return 0;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    if shard(number).lock().len() >= MOST_OPEN / SHARDS {
        count(&COUNTS.too_many_process_ranges);
        return 0;
    }
    let instance = if mode.is_armed() { switch::range_begins(start.name) } else { None };
    let token = observer().process_range_start(start);
    shard(number).lock().insert(number, (token, instance));
    number
}

/// Ends the range of this number.
pub(crate) fn end(number: u64) {
    // That of a range that was not recorded.
    if number == 0 {
        return;
    }
    let Some((token, instance)) = shard(number).lock().remove(&number) else {
        count(&COUNTS.unknown_range_ends);
        return;
    };
    if let Some(token) = token {
        observer().process_range_end(token);
    }
    if let Some(instance) = instance {
        switch::range_ended(instance);
    }
}
