//! Functions that are called when a thread's context changes.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum number of functions of a process.
const MOST: usize = 8;

static HOOKS: [OnceLock<fn()>; MOST] = [const { OnceLock::new() }; MOST];
/// True if there is any function.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local!(static RUNNING: Cell<bool> = const { Cell::new(false) });

/// [`Context::on_change`](crate::Context::on_change).
pub(crate) fn on_context_change(changed: fn()) -> bool {
    let is_it =
        |hook: &OnceLock<fn()>| std::ptr::fn_addr_eq(*hook.get_or_init(|| changed), changed);
    let is_set = HOOKS.iter().any(is_it);
    ANY.store(true, Ordering::Release);
    is_set
}

/// Calls the functions after a change of this thread's context. Nothing of the thread may be
/// borrowed.
#[inline]
pub(crate) fn context_changed() {
    if ANY.load(Ordering::Acquire) {
        call();
    }
}

#[cold]
#[inline(never)]
fn call() {
    if RUNNING.try_with(|running| running.replace(true)).unwrap_or(true) {
        return;
    }
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            let _ = RUNNING.try_with(|running| running.set(false));
        }
    }
    // A panic propagates, like a panic of the program.
    let _done = Done;
    HOOKS.iter().map_while(OnceLock::get).for_each(|hook| hook());
}
