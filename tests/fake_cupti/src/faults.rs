//! Faults that a test plants.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use cupti::sys::abi::CuptiResult;

use crate::When;

/// Planted faults, and a flag for any fault, which every function reads.
static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
static ANY_FAULT: AtomicBool = AtomicBool::new(false);
/// A planted fault.
#[derive(Debug)]
struct Fault {
    function: &'static str,
    code: CuptiResult,
    when: When,
    calls: u32,
}

/// Removes all planted faults.
pub(super) fn clear() {
    FAULTS.lock().clear();
    ANY_FAULT.store(false, Ordering::Release);
}

pub(super) fn plant(function: &'static str, code: CuptiResult, when: When) {
    FAULTS.lock().push(Fault { function, code, when, calls: 0 });
    ANY_FAULT.store(true, Ordering::Release);
}

/// The planted fault of this function that is due, if there is one.
fn fault(function: &str) -> Option<CuptiResult> {
    if !ANY_FAULT.load(Ordering::Acquire) {
        return None;
    }
    let mut faults = FAULTS.lock();
    let mut due = None;
    for fault in faults.iter_mut().filter(|fault| fault.function == function) {
        fault.calls += 1;
        let is_due = match fault.when {
            When::Always => true,
            When::Once => fault.calls == 1,
            When::Nth(n) => fault.calls == n,
        };
        if is_due {
            due = due.or(Some(fault.code));
        }
    }
    due
}

/// The result of a function: the planted fault that is due, if there is one, or else that of `body`.
pub(super) fn run(function: &str, body: impl FnOnce() -> Result<(), CuptiResult>) -> CuptiResult {
    fault(function).map_or_else(body, Err).err().unwrap_or(CuptiResult::SUCCESS)
}
