//! Faults that a test plants.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::When;
use crate::sys::abi::CuptiResult;

/// Planted faults, and whether there are any: every function asks.
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

/// Forgets all.
pub(super) fn clear() {
    FAULTS.lock().clear();
    ANY_FAULT.store(false, Ordering::Release);
}

pub(super) fn plant(function: &'static str, code: CuptiResult, when: When) {
    FAULTS.lock().push(Fault { function, code, when, calls: 0 });
    ANY_FAULT.store(true, Ordering::Release);
}

/// The planted fault of this function that is due, if there is one.
pub(super) fn fault(function: &str) -> Option<CuptiResult> {
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

/// Gives the result of a planted fault, if there is one.
macro_rules! faulty {
    ($function:literal) => {
        if let Some(code) = $crate::fake::faults::fault($function) {
            return code;
        }
    };
}
pub(super) use faulty;
