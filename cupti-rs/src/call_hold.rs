//! Holds calls back while callbacks are disabled.
//!
//! CUPTI 13 takes a call whose callback is disabled before it returns for one that goes on: its thread is lost (docs/decisions/051). Callbacks are
//! disabled while no thread is in a call: at first those that return wait in that callback, and when all have, those that begin one wait in
//! this, too. The latter passed CUPTI already, so each enables the callback of its function again before it goes on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::callbacks::Enabled;
use crate::forked;
use crate::quiet_thread;
use crate::session::{self, BEGINS_HELD, RETURNS_HELD, State};
use crate::sys::abi::{DOMAIN_DRIVER_API, DOMAIN_RUNTIME_API};
use crate::sys::os;

/// How long calls are held back for one that does not return.
const LONGEST: Duration = Duration::from_millis(1);
/// How long returns are held back at least: a busy thread is in the return of a call then.
const SHORTEST: Duration = Duration::from_micros(50);
/// When it is first tried again to disable callbacks, and the longest time between two tries.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LAST_TRY: Duration = Duration::from_secs(64);
/// How long a thread waits: longer than a hold, unless a call into CUPTI does not return.
const THREAD_WAITS: Duration = Duration::from_millis(500);

/// In a thread's place: the number of calls that it is in, whether it waits at the begin of one, and the collection that they belong to.
const DEPTH: u64 = WAITS - 1;
const WAITS: u64 = 1 << 31;
const NUMBER: u32 = 32;

/// The places of all threads that made calls. One whose thread has ended is used again.
static PLACES: Mutex<Places> = Mutex::new(Places { all: Vec::new(), free: Vec::new() });
/// Calls of threads whose locals are gone.
static WITHOUT_PLACE: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
struct Places {
    all: Vec<&'static AtomicU64>,
    free: Vec<&'static AtomicU64>,
}

/// A thread's place, from its first call to its end.
struct Own(Cell<Option<&'static AtomicU64>>);

impl Drop for Own {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist there may hold the lock.
        if let Some(place) = self.0.get().filter(|_| !forked::is_child()) {
            place.store(0, Ordering::Release);
            PLACES.lock().free.push(place);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

#[cold]
#[inline(never)]
fn register(own: &Own) -> &'static AtomicU64 {
    let mut places = PLACES.lock();
    let place = places.free.pop().unwrap_or_else(|| {
        let place: &AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        places.all.push(place);
        place
    });
    own.0.set(Some(place));
    place
}

#[inline(always)] // into the one hot callback
fn with_place<R>(with: impl FnOnce(&'static AtomicU64) -> R) -> Option<R> {
    OWN.try_with(|own| with(own.0.get().unwrap_or_else(|| register(own)))).ok()
}

/// A call begins on this thread. Returns the state of the collection: either it tells of a hold, or the holder sees the call.
#[inline(always)] // into the one hot callback
pub(crate) fn begin(state: State) -> State {
    let number = state.number();
    let counted = with_place(|place| {
        let word = place.load(Ordering::Relaxed);
        // Calls of an earlier collection are taken to have returned, unseen.
        let depth = if word >> NUMBER == u64::from(number) { word & DEPTH } else { 0 };
        place.store(u64::from(number) << NUMBER | (depth + 1), Ordering::Relaxed);
    });
    if counted.is_none() {
        WITHOUT_PLACE.fetch_add(1, Ordering::AcqRel);
    }
    // Between the store and this load stands no fence of the processor: the holder has one run on all threads.
    compiler_fence(Ordering::SeqCst);
    State::load()
}

/// A call returns on this thread, whose begin may have been missed. Waits where calls are held back.
#[inline(always)] // into the one hot callback
pub(crate) fn end(state: State) {
    let number = state.number();
    let left = with_place(|place| {
        let left = (place.load(Ordering::Relaxed) & DEPTH).saturating_sub(1);
        place.store(u64::from(number) << NUMBER | left, Ordering::Release);
        left
    });
    if left.is_none() {
        let fewer = |count: u32| count.checked_sub(1);
        let _ = WITHOUT_PLACE.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
    }
    if State::load().has(RETURNS_HELD) && left == Some(0) {
        wait(RETURNS_HELD);
    }
}

#[cold]
#[inline(never)]
fn wait(held: u64) {
    let late = Instant::now() + THREAD_WAITS;
    while State::load().has(held) && Instant::now() < late {
        std::thread::yield_now();
    }
}

/// Waits at the begin of a call while those are held back, unless the thread is in another one.
#[cold]
#[inline(never)]
pub(crate) fn wait_at_begin() {
    let _ = with_place(|place| {
        if place.load(Ordering::Relaxed) & DEPTH == 1 {
            place.fetch_or(WAITS, Ordering::AcqRel);
            wait(BEGINS_HELD);
            place.fetch_and(!WAITS, Ordering::AcqRel);
        }
    });
}

/// Enables or disables a callback of a subscription.
pub(crate) type Enable = Arc<dyn Fn(Enabled, bool) + Send + Sync>;

/// The callbacks that were disabled, by function, and what enables them.
static DISABLED: Mutex<Option<Enable>> = Mutex::new(None);
static FUNCTIONS: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(0) }; WORDS] }; 2];
/// Threads enabled some of them again.
static ENABLED_AGAIN: AtomicBool = AtomicBool::new(false);
const WORDS: usize = 16;

fn function(domain: u32, id: u32) -> Option<(&'static AtomicU64, u64)> {
    let words = match domain {
        DOMAIN_DRIVER_API => &FUNCTIONS[0],
        DOMAIN_RUNTIME_API => &FUNCTIONS[1],
        _ => return None,
    };
    Some((words.get(id as usize / 64)?, 1 << (id % 64)))
}

/// Whether the callback of this function was disabled, for a call of it that began before.
#[inline(always)] // into the one hot callback
pub(crate) fn is_disabled(domain: u32, id: u32) -> bool {
    function(domain, id).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Enables the callback of the function whose call begins on this thread, so that CUPTI sees its return.
#[cold]
#[inline(never)]
pub(crate) fn enable_again(domain: u32, id: u32) {
    let disabled = DISABLED.lock();
    if let (Some(enable), true) = (disabled.as_ref(), is_disabled(domain, id)) {
        enable(Enabled::Id(domain, id), true);
        set_disabled(Enabled::Id(domain, id), false);
        ENABLED_AGAIN.store(true, Ordering::Release);
    }
}

fn set_disabled(what: Enabled, is_disabled: bool) {
    let set = |word: &AtomicU64, bits: u64| {
        let _ = if is_disabled {
            word.fetch_or(bits, Ordering::AcqRel)
        } else {
            word.fetch_and(!bits, Ordering::AcqRel)
        };
    };
    match what {
        Enabled::Id(domain, id) => {
            if let Some((word, bit)) = function(domain, id) {
                set(word, bit);
            }
        }
        Enabled::Domain(domain) => {
            let ids = (0..WORDS as u32).filter_map(|word| function(domain, word * 64));
            ids.for_each(|(word, _)| set(word, u64::MAX));
        }
    }
}

/// Callbacks that are to be disabled when no thread is in a call.
struct Left {
    number: u64,
    enable: Enable,
    callbacks: Vec<Enabled>,
}

static LEFT: Mutex<Option<Left>> = Mutex::new(None);
static LEFT_CHANGED: Condvar = Condvar::new();

/// Disables callbacks while no thread is in a call. Where one does not return within a millisecond, or begins meanwhile, they stay enabled, and a
/// thread tries again after a second, two, four, ..., until [`keep`] is called.
pub(crate) fn disable(enable: Enable, callbacks: Vec<Enabled>) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    keep();
    if disable_now(&enable, &callbacks) {
        return;
    }
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    *LEFT.lock() = Some(Left { number, enable, callbacks });
    let work = move || try_again(number);
    // Without a thread they are disabled at the end of the collection.
    let _ = quiet_thread::spawn(std::thread::Builder::new(), "cupti-callbacks", work);
}

/// What [`disable`] left enabled stays so.
pub(crate) fn keep() {
    *LEFT.lock() = None;
    LEFT_CHANGED.notify_all();
}

/// Whether [`disable`] left callbacks enabled.
pub(crate) fn has_left() -> bool {
    LEFT.lock().is_some() || ENABLED_AGAIN.load(Ordering::Acquire)
}

fn try_again(number: u64) {
    let mut left = LEFT.lock();
    let mut after = FIRST_TRY;
    let mut at = Instant::now() + after;
    loop {
        let Some(of_number) = left.as_ref().filter(|left| left.number == number) else { return };
        if Instant::now() >= at {
            if disable_now(&of_number.enable, &of_number.callbacks) {
                *left = None;
                return;
            }
            after = (after * 2).min(LAST_TRY);
            at = Instant::now() + after;
        }
        LEFT_CHANGED.wait_until(&mut left, at);
    }
}

/// False where a call does not return within a millisecond, and where one began meanwhile: the callbacks, or that one's, are enabled then, and
/// no thread is lost.
fn disable_now(enable: &Enable, callbacks: &[Enabled]) -> bool {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            session::release_calls();
        }
    }

    // Before the hold: the first call in a process takes milliseconds.
    let has_barrier = os::can_fence_all_threads();
    ENABLED_AGAIN.store(false, Ordering::Release);
    let begin = Instant::now();
    session::hold_calls(RETURNS_HELD);
    let held = Held;
    while is_any_in_call() || begin.elapsed() < SHORTEST {
        if begin.elapsed() >= LONGEST {
            return false;
        }
        std::thread::yield_now();
    }
    session::hold_calls(BEGINS_HELD);
    os::fence_all_threads(has_barrier);
    while is_any_in_call() {
        if begin.elapsed() >= 3 * LONGEST {
            return false;
        }
        std::thread::yield_now();
    }
    {
        let mut disabled = DISABLED.lock();
        for &what in callbacks {
            set_disabled(what, true);
            enable(what, false);
        }
        *disabled = Some(enable.clone());
    }
    let was_one_begun =
        PLACES.lock().all.iter().any(|place| place.load(Ordering::Acquire) & WAITS != 0);
    drop(held);
    !was_one_begun
}

/// Callbacks are enabled again, or the subscription ends: no thread uses it after this.
pub(crate) fn forget() {
    keep();
    let mut disabled = DISABLED.lock();
    *disabled = None;
    FUNCTIONS.iter().flatten().for_each(|word| word.store(0, Ordering::Release));
    ENABLED_AGAIN.store(false, Ordering::Release);
}

fn is_any_in_call() -> bool {
    // A call of an earlier collection, too: whether it returned is not known before its thread calls again.
    let is_in_call = |place: &&AtomicU64| {
        let word = place.load(Ordering::Acquire);
        word & DEPTH > 0 && word & WAITS == 0
    };
    WITHOUT_PLACE.load(Ordering::Acquire) > 0 || PLACES.lock().all.iter().any(is_in_call)
}
