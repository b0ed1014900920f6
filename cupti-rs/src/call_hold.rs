//! Holds calls back while callbacks are disabled.
//!
//! CUPTI 13 never sees a call return if its callback is disabled meanwhile: its thread is lost
//! (docs/decisions/051). So callbacks are disabled while no thread is in a call.
//!
//! First, calls that return wait in their return callback. When all have returned, calls that begin
//! also wait, in their begin callback. These have already passed CUPTI, so the callbacks of their
//! functions are enabled again before they continue. A thread that lost its processor between CUPTI
//! and the callback is in neither state. So each thread must run for a while first, to sleep or to
//! wait.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::callback_handler::Enabled;
use crate::collection_state::{self, BEGINS_HELD, RETURNS_HELD, State};
use crate::forked;
use crate::quiet_thread;
use crate::sys::abi::{DOMAIN_DRIVER_API, DOMAIN_RUNTIME_API};
use crate::sys::os;

/// The maximum time for which calls are held back for one that does not return.
const LONGEST: Duration = Duration::from_millis(1);
/// The minimum time for which returns are held back: long enough for a busy thread to reach the
/// return of a call.
const SHORTEST: Duration = Duration::from_micros(50);
/// The delay of the first retry to disable callbacks, and the maximum delay between two retries.
const FIRST_TRY: Duration = Duration::from_secs(1);
const LAST_TRY: Duration = Duration::from_secs(64);
/// The maximum wait of a thread: longer than a hold, unless a call into CUPTI does not return.
const THREAD_WAITS: Duration = Duration::from_millis(500);
/// A thread that has run for this long has reached the callback from CUPTI.
const ON_ITS_WAY: Duration = Duration::from_micros(20);
/// The maximum time for which calls are held back for threads that do not get to run: in a pause,
/// which recurs, and at the end of a collection.
const AT_PAUSE: Duration = Duration::from_millis(20);
const AT_END: Duration = Duration::from_millis(50);

/// The fields of a thread's word: the depth of its open calls, and the function of the last one if
/// it has not returned. Then follow a flag for a wait in a callback, and the number of the
/// collection.
const DEPTH: u64 = (1 << FUNCTION) - 1;
const FUNCTION: u32 = 16;
const WAITS: u64 = 1 << 31;
const NUMBER: u32 = 32;

/// The state of a thread that makes calls.
#[derive(Debug, Default)]
struct Place {
    word: AtomicU64,
    thread: AtomicU32,
}

/// The states of all threads that made calls. The state of an ended thread is reused.
static PLACES: Mutex<Places> = Mutex::new(Places { all: Vec::new(), free: Vec::new() });
/// Calls of threads whose locals are gone.
static WITHOUT_PLACE: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
struct Places {
    all: Vec<&'static Place>,
    free: Vec<&'static Place>,
}

/// A thread's state, from its first call to its end.
struct Own(Cell<Option<&'static Place>>);

impl Drop for Own {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist there may hold the lock.
        if let Some(place) = self.0.get().filter(|_| !forked::is_child()) {
            place.word.store(0, Ordering::Release);
            PLACES.lock().free.push(place);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

#[cold]
#[inline(never)]
fn register(own: &Own) -> &'static Place {
    let mut places = PLACES.lock();
    let place = places.free.pop().unwrap_or_else(|| {
        let place: &Place = Box::leak(Box::default());
        places.all.push(place);
        place
    });
    place.thread.store(os::thread_id(), Ordering::Release);
    own.0.set(Some(place));
    place
}

#[inline(always)] // into the one hot callback
fn with_place<R>(with: impl FnOnce(&'static Place) -> R) -> Option<R> {
    OWN.try_with(|own| with(own.0.get().unwrap_or_else(|| register(own)))).ok()
}

/// A call of this function begins on this thread. Returns the state of the collection: either it
/// shows a hold, or the holder sees the call.
#[inline(always)] // into the one hot callback
pub(crate) fn begin(state: State, domain: u32, id: u32) -> State {
    let number = state.number();
    let counted = with_place(|place| {
        let word = place.word.load(Ordering::Relaxed);
        // Calls of an earlier collection are assumed to have returned, unseen.
        let depth = if word >> NUMBER == u64::from(number) { word & DEPTH } else { 0 };
        let function = packed(domain, id) << FUNCTION;
        let word = u64::from(number) << NUMBER | function | (depth + 1);
        place.word.store(word, Ordering::Relaxed);
    });
    if counted.is_none() {
        WITHOUT_PLACE.fetch_add(1, Ordering::AcqRel);
    }
    // There is no processor fence between the store and this load: the holder runs one on all
    // threads.
    compiler_fence(Ordering::SeqCst);
    State::load()
}

/// A call returns on this thread; its begin may have been missed. Waits while calls are held back.
#[inline(always)] // into the one hot callback
pub(crate) fn end(state: State) {
    let number = state.number();
    let left = with_place(|place| {
        let left = (place.word.load(Ordering::Relaxed) & DEPTH).saturating_sub(1);
        place.word.store(u64::from(number) << NUMBER | left, Ordering::Release);
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

/// Waits at the begin of a call while begins are held back, unless the thread is in another call.
pub(crate) fn wait_at_begin() {
    if with_place(|place| place.word.load(Ordering::Relaxed) & DEPTH) == Some(1) {
        wait(BEGINS_HELD);
    }
}

/// Waits until calls are released, or the hold outlasts the wait.
#[cold]
#[inline(never)]
fn wait(held: u64) {
    let _ = with_place(|place| {
        let late = Instant::now() + THREAD_WAITS;
        // Repeated for the next hold, which may have begun before this thread ran: that hold
        // counted the thread as waiting.
        while State::load().has(held) && Instant::now() < late {
            place.word.fetch_or(WAITS, Ordering::SeqCst);
            while State::load().has(held) && Instant::now() < late {
                std::thread::yield_now();
            }
            place.word.fetch_and(!WAITS, Ordering::SeqCst);
        }
    });
}

/// Packs a function in 15 bits; 0 is none.
#[inline(always)] // into the one hot callback
fn packed(domain: u32, id: u32) -> u64 {
    u64::from(domain << 12 | id & 0xfff)
}

fn unpacked(word: u64) -> Option<Enabled> {
    let function = (word & (WAITS - 1)) >> FUNCTION;
    (function != 0).then_some(Enabled::Id((function >> 12) as u32, function as u32 & 0xfff))
}

/// Enables or disables a callback of a subscription.
pub(crate) type Enable = Arc<dyn Fn(Enabled, bool) + Send + Sync>;

/// The function that enables the disabled callbacks, and these callbacks by function.
static DISABLED: Mutex<Option<Enable>> = Mutex::new(None);
static FUNCTIONS: [[AtomicU64; WORDS]; 2] = [const { [const { AtomicU64::new(0) }; WORDS] }; 2];
/// True if threads enabled some of them again.
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

/// True if the callback of this function was disabled, for a call of it that began before.
#[inline(always)] // into the one hot callback
pub(crate) fn is_disabled(domain: u32, id: u32) -> bool {
    function(domain, id).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Enables the callback of the function whose call begins on this thread, so that CUPTI sees its
/// return.
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

/// Callbacks to disable when no thread is in a call.
struct Left {
    number: u64,
    enable: Enable,
    callbacks: Vec<Enabled>,
}

static LEFT: Mutex<Option<Left>> = Mutex::new(None);
static LEFT_CHANGED: Condvar = Condvar::new();

/// Disables callbacks while no thread is in a call. They stay enabled if a call does not return
/// within a millisecond, a thread does not get to run, or a call begins meanwhile. A thread then
/// retries after a second, two, four, ..., until [`keep`] is called.
pub(crate) fn disable(enable: Enable, callbacks: Vec<Enabled>) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    keep();
    if disable_now(&enable, &callbacks, AT_PAUSE) {
        return;
    }
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    *LEFT.lock() = Some(Left { number, enable, callbacks });
    let work = move || try_again(number);
    // Without a thread they are disabled at the end of the collection.
    let _ = quiet_thread::spawn(std::thread::Builder::new(), "cupti-callbacks", work);
}

/// As [`disable`], once and with more time: callbacks that stay enabled now cost time in CUPTI
/// until the process ends.
pub(crate) fn disable_at_end(enable: &Enable, callbacks: &[Enabled]) {
    keep();
    disable_now(enable, callbacks, AT_END);
}

/// Stops the retries of [`disable`]: the callbacks that it left stay enabled.
pub(crate) fn keep() {
    *LEFT.lock() = None;
    LEFT_CHANGED.notify_all();
}

/// True if [`disable`] left callbacks enabled.
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
            if disable_now(&of_number.enable, &of_number.callbacks, AT_PAUSE) {
                *left = None;
                return;
            }
            after = (after * 2).min(LAST_TRY);
            at = Instant::now() + after;
        }
        LEFT_CHANGED.wait_until(&mut left, at);
    }
}

/// Returns false if a call does not return within a millisecond, a thread does not get to run
/// within `longest`, or a call began meanwhile. In that case the callbacks, or that call's, are
/// enabled, and no thread is lost.
fn disable_now(enable: &Enable, callbacks: &[Enabled], longest: Duration) -> bool {
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            collection_state::release_calls();
        }
    }

    // Before the hold: the first call in a process takes milliseconds.
    let has_barrier = os::can_fence_all_threads();
    look_for_sleepers();
    ENABLED_AGAIN.store(false, Ordering::Release);
    let begin = Instant::now();
    collection_state::hold_calls(RETURNS_HELD);
    let _held = Held;
    while is_any_in_call() || begin.elapsed() < SHORTEST {
        if begin.elapsed() >= LONGEST {
            return false;
        }
        std::thread::yield_now();
    }
    collection_state::hold_calls(BEGINS_HELD);
    os::fence_all_threads(has_barrier);
    if !have_arrived(Instant::now() + longest) {
        return false;
    }
    let late = Instant::now() + LONGEST;
    while is_any_in_call() {
        if Instant::now() >= late {
            return false;
        }
        std::thread::yield_now();
    }
    *DISABLED.lock() = Some(enable.clone());
    let turn = |what, is_on: bool| {
        set_disabled(what, !is_on);
        enable(what, is_on);
    };
    callbacks.iter().for_each(|&what| turn(what, false));
    // A thread whose call is not seen below sees from here on that its function is disabled.
    os::fence_all_threads(has_barrier);
    let begun = begun_calls();
    let are_known = begun.iter().flatten().count() == begun.len();
    let again =
        if are_known { begun.iter().flatten().copied().collect() } else { callbacks.to_vec() };
    again.iter().for_each(|&what| turn(what, true));
    begun.is_empty()
}

/// Returns the functions of all calls that began; `None` for an unknown function.
fn begun_calls() -> Vec<Option<Enabled>> {
    // For a nested call, the outer function is unknown.
    let function = |word: u64| unpacked(word).filter(|_| word & DEPTH == 1);
    let places = PLACES.lock();
    let words = places.all.iter().map(|place| place.word.load(Ordering::Acquire));
    let functions = words.filter(|word| word & DEPTH > 0).map(function);
    let without_place = (WITHOUT_PLACE.load(Ordering::Acquire) > 0).then_some(None);
    functions.chain(without_place).collect()
}

/// Drops the list of disabled callbacks, which are enabled again or whose subscription ends. No
/// thread uses it after this.
pub(crate) fn forget() {
    keep();
    let mut disabled = DISABLED.lock();
    *disabled = None;
    FUNCTIONS.iter().flatten().for_each(|word| word.store(0, Ordering::Release));
    ENABLED_AGAIN.store(false, Ordering::Release);
}

fn is_any_in_call() -> bool {
    // Includes calls of an earlier collection: their returns are unknown until their thread calls
    // again.
    let is_in_call = |place: &&Place| {
        let word = place.word.load(Ordering::Acquire);
        word & DEPTH > 0 && word & WAITS == 0
    };
    WITHOUT_PLACE.load(Ordering::Acquire) > 0 || PLACES.lock().all.iter().any(is_in_call)
}

/// Threads that slept at the last check, and their run time by then: one that did not run since
/// still sleeps.
static SLEEPERS: Mutex<BTreeMap<u32, Duration>> = Mutex::new(BTreeMap::new());

/// Finds sleeping threads before calls are held back: this takes up to 20 us for each that ran
/// since the last check.
fn look_for_sleepers() {
    let mut sleepers = SLEEPERS.lock();
    let before = std::mem::take(&mut *sleepers);
    let sleeps = |thread, ran| before.get(&thread) == Some(&ran) || !os::is_runnable(thread);
    let threads = os::threads().into_iter();
    let threads = threads.filter_map(|thread| Some((thread, os::cpu_time(thread)?)));
    sleepers.extend(threads.filter(|&(thread, ran)| sleeps(thread, ran)));
}

/// Waits until no thread is between CUPTI and the callback, where it waits: each sleeps, waits
/// there, or ran for a while since begins are held. False if one does not get to run.
fn have_arrived(late: Instant) -> bool {
    let own = os::thread_id();
    let sleepers = SLEEPERS.lock();
    let others = os::threads().into_iter().filter(|&thread| thread != own);
    let others = others.filter_map(|thread| Some((thread, os::cpu_time(thread)?)));
    let mut left: Vec<(u32, Duration)> =
        others.filter(|(thread, ran)| sleepers.get(thread) != Some(ran)).collect();
    // Twice: a running thread may wake a sleeping one.
    for _ in 0..2 {
        while is_any_on_its_way(&mut left) {
            if Instant::now() >= late {
                return false;
            }
            std::thread::yield_now();
        }
    }
    true
}

/// Removes the threads that wait in a callback, ran for a while since their recorded time, or
/// ended. Returns true if one of the others runs or waits for a processor.
fn is_any_on_its_way(threads: &mut Vec<(u32, Duration)>) -> bool {
    let waits = |place: &&&Place| place.word.load(Ordering::Acquire) & WAITS != 0;
    let waiting: HashSet<u32> = {
        let places = PLACES.lock();
        let waiting = places.all.iter().filter(waits);
        waiting.map(|place| place.thread.load(Ordering::Acquire)).collect()
    };
    let has_run = |thread, since: Duration| {
        os::cpu_time(thread).is_none_or(|now| now.saturating_sub(since) >= ON_ITS_WAY)
    };
    threads.retain(|&(thread, since)| !waiting.contains(&thread) && !has_run(thread, since));
    threads.iter().any(|&(thread, _)| os::is_runnable(thread))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// There is one hold in a process.
    static ONE: Mutex<()> = Mutex::new(());

    /// A thread that waits at the begin of its call need not get to run before the subscription ends.
    #[test]
    fn the_function_of_a_call_that_begins_meanwhile_is_enabled_again() {
        let _one = ONE.lock();
        let launch = Enabled::Id(DOMAIN_DRIVER_API, 307);
        let others = [Enabled::Id(DOMAIN_DRIVER_API, 1), Enabled::Id(DOMAIN_RUNTIME_API, 211)];
        let turns = Arc::new(Mutex::new(Vec::new()));
        let (finish, finished) = mpsc::channel::<()>();
        let finished = Mutex::new(Some(finished));
        let caller = Arc::new(Mutex::new(None));
        let (begun, seen) = (caller.clone(), turns.clone());
        let enable = move |what, is_on| {
            seen.lock().push((what, is_on));
            let Some(finished) = finished.lock().take() else { return };
            let (has_begun, begins) = mpsc::channel();
            *begun.lock() = Some(std::thread::spawn(move || {
                let state = begin(State::load(), DOMAIN_DRIVER_API, 307);
                has_begun.send(state.has(BEGINS_HELD)).unwrap();
                wait_at_begin();
                // As a thread that does not get to run.
                let _ = finished.recv();
                end(State::load());
            }));
            assert!(begins.recv().unwrap(), "its begin is held");
        };
        let enable: Enable = Arc::new(enable);
        // Again where a thread did not get to run in time: nothing was disabled then.
        while turns.lock().is_empty() {
            disable(enable.clone(), [&others[..], &[launch]].concat());
        }
        let turns = turns.lock().clone();
        let is_on =
            |of: Enabled| turns.iter().rfind(|&&(what, _)| what == of).map(|&(_, is_on)| is_on);
        assert_eq!(is_on(launch), Some(true));
        assert!(others.iter().all(|&other| is_on(other) == Some(false)), "{turns:?}");
        assert!(has_left());
        forget();
        drop(finish);
        caller.lock().take().unwrap().join().unwrap();
        assert!(!has_left() && begun_calls().is_empty());
    }

    /// A thread that CUPTI is about to call back may have lost its processor.
    #[test]
    fn callbacks_are_disabled_when_each_thread_has_run_or_sleeps() {
        let _one = ONE.lock();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (has_begun, begun) = mpsc::channel();
            let spin = || {
                let has_begun = has_begun.clone();
                let is_over = &is_over;
                scope.spawn(move || {
                    has_begun.send(os::thread_id()).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
                begun.recv().unwrap()
            };
            let threads: Vec<u32> = (0..8).map(|_| spin()).collect();
            let (sleep, sleeps) = mpsc::channel::<()>();
            let sleeper = scope.spawn(move || _ = sleeps.recv());
            let ran = move || -> Vec<Duration> {
                threads.iter().map(|&thread| os::cpu_time(thread).unwrap()).collect()
            };
            let at_first = Arc::new(Mutex::new(None));
            let (noted, now) = (at_first.clone(), ran.clone());
            let enable: Enable = Arc::new(move |_, _| _ = noted.lock().get_or_insert_with(&now));
            let callbacks = [Enabled::Id(DOMAIN_DRIVER_API, 307)];
            // Whether callbacks were disabled, and how long each thread had run when the first one was.
            let disabled_within = |longest: Duration| {
                let before = ran();
                let is_disabled = disable_now(&enable, &callbacks, longest);
                let ran = at_first.lock().take().map(|now: Vec<Duration>| {
                    now.into_iter().zip(before).map(|(now, before)| now - before).collect()
                });
                (is_disabled, ran)
            };
            let mut tries: Vec<(bool, Option<Vec<Duration>>)> = Vec::new();
            // Without time to wait, until one thread had not run: this thread may lose its processor, too.
            while tries.last().is_none_or(|(is_disabled, _)| *is_disabled) {
                tries.push(disabled_within(Duration::ZERO));
            }
            tries.push(disabled_within(Duration::from_secs(600)));
            forget();
            is_over.store(true, Ordering::Relaxed);
            drop(sleep);
            sleeper.join().unwrap();
            assert!(tries.last().unwrap().0);
            for (is_disabled, ran) in tries {
                assert_eq!(is_disabled, ran.is_some());
                assert!(ran.iter().flatten().all(|&ran| ran >= ON_ITS_WAY), "{ran:?}");
            }
        });
    }
}
