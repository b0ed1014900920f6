//! Calls that cannot be logged are counted: within the log's own work on a thread, and on a thread that is ending.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use cupti::{Collected, Collector, Config, calls};
use fake_cupti::{Fake, Work};

fn fake() -> &'static Fake {
    static FAKE: OnceLock<&'static Fake> = OnceLock::new();
    FAKE.get_or_init(|| Box::leak(Box::default()))
}

/// Runs this on a thread that ends within the collection; gives the names of the calls that were logged, too.
fn collect(run: fn()) -> (Collected, Vec<&'static str>) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::start(&fake().library().unwrap(), &Config::new()).unwrap();
    std::thread::spawn(run).join().unwrap();
    let collected = collector.stop().unwrap();
    let calls = collected.calls.iter().flat_map(|thread| &thread.calls);
    let names = calls.map(|call| call.function.name()).collect();
    (collected, names)
}

thread_local! {
    /// Whether the next large allocation of this thread calls CUDA.
    static CALLS_CUDA: Cell<bool> = const { Cell::new(false) };
}

/// An allocator that calls CUDA, as one for memory that the GPU can reach does.
struct CallsCuda;

// SAFETY: all is handed on to the system's allocator, which keeps what the trait asks for.
unsafe impl GlobalAlloc for CallsCuda {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A chunk of a log is larger.
        if layout.size() > 100_000 && CALLS_CUDA.replace(false) {
            fake().call_only("cuMemAlloc_v2", 0);
        }
        // SAFETY: the caller keeps what the function asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps what the function asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CallsCuda = CallsCuda;

#[test]
fn call_within_the_logs_own_work_is_counted() {
    let (collected, calls) = collect(|| {
        CALLS_CUDA.set(true);
        fake().launch(Work::kernel(c"kernel"));
        assert!(!CALLS_CUDA.get(), "the log of a new thread is allocated");
    });
    assert_eq!((calls, collected.losses.unlogged_calls), (vec!["cuLaunchKernel"], 1));
}

#[test]
fn call_of_a_word_source_is_counted() {
    thread_local!(static HAS_WORDS: Cell<bool> = const { Cell::new(false) });
    // A word source is for the life of the process: on other threads this one does nothing.
    let source: fn() -> u64 = || {
        if HAS_WORDS.try_with(Cell::get) == Ok(true) {
            fake().call_only("cuMemAlloc_v2", 0);
        }
        0
    };
    calls::set_word_source(source).unwrap();
    let (collected, calls) = collect(|| {
        HAS_WORDS.set(true);
        fake().launch(Work::kernel(c"kernel"));
    });
    assert_eq!((calls, collected.losses.unlogged_calls), (vec!["cuLaunchKernel"], 1));
}

#[test]
fn call_of_a_thread_that_is_ending_is_logged_or_counted() {
    struct LaunchesLate;
    impl Drop for LaunchesLate {
        fn drop(&mut self) {
            fake().launch(Work::kernel(c"kernel"));
        }
    }
    // One of them goes after the thread's log, whatever the order is.
    thread_local!(static BEFORE: LaunchesLate = const { LaunchesLate });
    thread_local!(static AFTER: LaunchesLate = const { LaunchesLate });
    let (collected, calls) = collect(|| {
        BEFORE.with(|_| ());
        fake().launch(Work::kernel(c"kernel"));
        AFTER.with(|_| ());
    });
    assert_eq!(collected.records.iter().count(), 3);
    assert_eq!(calls.len() as u64 + collected.losses.unlogged_calls, 3);
    assert!(collected.losses.unlogged_calls >= 1);
}
