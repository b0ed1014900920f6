//! Process ranges, which any thread can end by number.

use std::sync::atomic::{AtomicU64, Ordering};

use nvtx::observer::{RangeStart, Token};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::domain::Domain;
use super::waiting::Waiting;
use super::{changing, observer};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;
use crate::switch::{self, Instance};

/// The maximum number of open ranges, and of open ranges before the recording begins. Further
/// ranges are counted, and their ends are ignored.
const MOST_OPEN: usize = 1 << 20;
const MOST_WAITING: usize = 1 << 10;
/// The number of locks. Threads with different range numbers mostly take different locks.
const SHARDS: usize = 16;

#[derive(Debug)]
enum Open {
    /// The observer has started the range. The token is present if the observer needs the end.
    Started(Option<Token>, Option<Instance>),
    /// The range was started before the recording began.
    Waiting(Box<Waiting>),
}

type Shard = Mutex<FxHashMap<u64, Open>>;

static NEXT: AtomicU64 = AtomicU64::new(1);
static SHARD: [Shard; SHARDS] =
    [const { Mutex::new(FxHashMap::with_hasher(FxBuildHasher)) }; SHARDS];

fn shard(number: u64) -> &'static Shard {
    // CAST: below 16.
    &SHARD[(number % SHARDS as u64) as usize]
}

/// Starts a range and returns its number, or 0 if it is not recorded.
pub(crate) fn start(mode: Mode, domain: &Domain, start: &RangeStart<'_>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A child that is forked before the recording begins must find the shards unlocked.
    let _changes = (!mode.is_on()).then(changing);
    let most = if mode.is_on() { MOST_OPEN } else { MOST_WAITING };
    if shard(number).lock().len() >= most / SHARDS {
        count(&COUNTS.too_many_process_ranges);
        return 0;
    }
    let open = if mode.is_on() {
        let instance = if mode.is_armed() { switch::range_begins(start.name) } else { None };
        Open::Started(observer().process_range_start(start), instance)
    } else {
        Open::Waiting(Waiting::new(start, domain.name))
    };
    shard(number).lock().insert(number, open);
    number
}

/// Ends the range with this number.
pub(crate) fn end(mode: Mode, number: u64) {
    // Number 0 is a range that was not recorded.
    if number == 0 {
        return;
    }
    let _changes = (!mode.is_on()).then(changing);
    match shard(number).lock().remove(&number) {
        Some(Open::Started(token, instance)) => {
            if let Some(token) = token {
                observer().process_range_end(token);
            }
            if let Some(instance) = instance {
                switch::range_ended(instance);
            }
        }
        Some(Open::Waiting(_)) => {}
        None => count(&COUNTS.unknown_range_ends),
    }
}

/// Starts the ranges that were opened before the recording began.
pub(crate) fn start_waiting() {
    for shard in &SHARD {
        for open in shard.lock().values_mut() {
            if let Open::Waiting(waiting) = open {
                *open = Open::Started(observer().process_range_start(&waiting.start()), None);
            }
        }
    }
}
