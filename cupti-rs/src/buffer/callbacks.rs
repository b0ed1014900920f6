//! The two functions that CUPTI calls for buffers. They catch panics, hand on, and count.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::{LOG, LogSlot};
use super::pool::{POOL, TRAILER, is_scratch};
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
            let bytes = (words.len() - TRAILER) * 8;
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
    // A forked child leaves what it has of its parent alone, and its buffers with it.
    if buffer.is_null() || session::is_child() {
        return;
    }
    let words = std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8 + TRAILER);
    // SAFETY: CUPTI gives back, once, the address that `requested` made from a Box<[u64]>, and the size that it told, which
    // leaves out the trailer: so it is ours.
    let mut words = unsafe { Box::from_raw(words) };
    let trailer = words.last().copied().unwrap_or_default();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let valid = valid.min(size);
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
    POOL.returned(trailer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_forked_child_a_buffer_is_left_alone() {
        session::leave_children_out();
        let buffer = Box::into_raw(vec![0u64; 1024].into_boxed_slice());
        // As when another thread of the parent appends at the time of the fork: the child's copy is never unlocked.
        let log = LOG.lock();
        // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child should it hang.
            unsafe { libc::alarm(10) };
            // SAFETY: the buffer is a Box<[u64]> of this size, given back once.
            unsafe { completed(std::ptr::null_mut(), 0, buffer.cast(), 8192, 0) };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `child` is our child and `status` a live int.
        unsafe { libc::waitpid(child, &mut status, 0) };
        drop(log);
        // SAFETY: made above; the parent's copy was given to nobody.
        drop(unsafe { Box::from_raw(buffer) });
        assert_eq!(status, 0, "the child went on");
    }
}
