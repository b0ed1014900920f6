//! The two functions that CUPTI calls for buffers. They catch panics, hand on, and count.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::{LOG, LogSlot};
use super::pool::{POOL, is_scratch};
use super::walk::walk;
use crate::{calls, session};

/// CUPTI wants a buffer: on an application thread, inside a CUDA call.
pub(crate) unsafe extern "C" fn requested(
    buffer: *mut *mut u8,
    size: *mut usize,
    max_records: *mut usize,
) {
    let given = catch_unwind(|| POOL.take());
    let (pointer, bytes) = match given {
        Ok(Some(words)) => {
            let bytes = words.len() * 8;
            (Box::into_raw(words).cast::<u8>(), bytes)
        }
        Ok(None) => (std::ptr::null_mut(), 0),
        Err(panic) => {
            calls::panicked();
            // Its drop might panic again, with nobody left to catch it.
            std::mem::forget(panic);
            (std::ptr::null_mut(), 0)
        }
    };
    // SAFETY: CUPTI passes a place for the buffer's address.
    unsafe { buffer.write(pointer) };
    // SAFETY: CUPTI passes a place for its size.
    unsafe { size.write(bytes) };
    // SAFETY: CUPTI passes a place for the most records it may hold; 0 is no limit.
    unsafe { max_records.write(0) };
}

/// CUPTI gives a buffer back: on its worker thread, or on the one that flushes.
pub(crate) unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    let words = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8);
    // SAFETY: CUPTI gives back the address and size that `requested` made from a Box<[u64]>, once, so it is ours.
    let mut words = unsafe { Box::from_raw(words) };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let valid = valid.min(words.len() * 8);
        let walked = POOL.api().map(|api| walk(api, &mut words, valid)).unwrap_or_default();
        if is_scratch(&words) {
            LOG.lock().refuse(&walked);
        } else if session::keeps_records() {
            LOG.lock().append(walked);
        } else {
            LOG.lock().before_switch(&walked);
        }
        words.fill(0);
        POOL.give(words);
    }));
    if let Err(panic) = outcome {
        calls::panicked();
        std::mem::forget(panic);
    }
    POOL.returned();
}
