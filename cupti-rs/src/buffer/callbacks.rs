//! The two functions that CUPTI calls for buffers. They catch panics, forward, and count.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::LOG;
use super::pool::{HEADER, POOL, is_scratch};
use super::walk::walk;
use crate::{callback_panics, forked, profiler_switch};

/// Handles CUPTI's request for a buffer: on an application thread, inside a CUDA call.
///
/// # Safety
///
/// Only CUPTI may call it: all three pointers may be written.
pub(crate) unsafe extern "C" fn requested(
    buffer: *mut *mut u8,
    size: *mut usize,
    max_records: *mut usize,
) {
    let given = catch_unwind(|| POOL.take()).map_err(callback_panics::caught).ok().flatten();
    let (pointer, bytes) = given.map_or((std::ptr::null_mut(), 0), lend);
    // SAFETY: CUPTI passes a pointer for the buffer's address.
    unsafe { buffer.write(pointer) };
    // SAFETY: CUPTI passes a pointer for its size.
    unsafe { size.write(bytes) };
    // SAFETY: CUPTI passes a pointer for the maximum number of its records; 0 is no limit.
    unsafe { max_records.write(0) };
}

/// The part of a buffer that CUPTI gets, with its bytes: everything after the header. CUPTI's
/// alignment of 8 is the alignment of words.
fn lend(words: Box<[u64]>) -> (*mut u8, usize) {
    let bytes = words.len().saturating_sub(HEADER) * size_of::<u64>();
    let first = Box::into_raw(words).cast::<u64>();
    // SAFETY: every buffer of the pool has its header and more.
    (unsafe { first.add(HEADER) }.cast(), bytes)
}

/// Takes back the buffer that was [lent](lend), by the size in its header: CUPTI's size is ignored.
///
/// # Safety
///
/// `buffer` is an address that [`lend`] returned, taken back for the first time.
unsafe fn take_back(buffer: *mut u8) -> Box<[u64]> {
    // SAFETY: by the caller's promise the header precedes it.
    let first = unsafe { buffer.cast::<u64>().sub(HEADER) };
    // SAFETY: the first word of the header, which only the pool writes and whose address nobody
    // else has, is the buffer's length.
    let length = unsafe { first.read() } as usize;
    // SAFETY: `lend` made the address of a box of this length, and by the caller's promise nobody
    // owns it now.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, length)) }
}

/// Handles CUPTI's return of a buffer: on its worker thread, or on the thread that flushes.
///
/// # Safety
///
/// Only CUPTI may call it: `buffer` is null or an address from [`requested`], returned once.
pub(crate) unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
) {
    // A forked child does not touch its parent's state and buffers.
    if buffer.is_null() || forked::is_child() {
        return;
    }
    // SAFETY: CUPTI's contract for this function is the contract of `take_back`.
    let mut words = unsafe { take_back(buffer) };
    let span = words.get(1).copied().unwrap_or_default();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let records = words.get_mut(HEADER..).unwrap_or_default();
        let own = size_of_val(records);
        let readable = valid.min(size).min(own);
        let walked = POOL.api().map(|api| walk(api, records, readable)).unwrap_or_default();
        let is_scratch = is_scratch(&words);
        let mut log = LOG.lock();
        // Without a collection nothing is stored.
        let Some(log) = log.as_mut() else { return };
        if size != own || valid > size {
            log.mismatch((valid - readable) as u64);
        }
        if is_scratch {
            log.refuse(&walked);
        } else if profiler_switch::keeps_records() {
            log.append(walked);
        } else {
            log.before_switch(&walked);
        }
    }));
    outcome.unwrap_or_else(callback_panics::caught);
    words.fill(0);
    POOL.give(words);
    POOL.returned(span);
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::*;

    /// The process has one log.
    static LOG_TESTS: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

    /// The size that CUPTI reports for a returned buffer is checked.
    #[test]
    fn sizes_that_differ_from_the_buffers_own_are_counted_and_not_read_beyond() {
        let _turn = LOG_TESTS.lock();
        let round = |change: fn(usize) -> (usize, usize)| {
            let (mut address, mut size, mut limit) = (std::ptr::null_mut(), 0, 0);
            *LOG.lock() = Some(Log::new(u64::MAX));
            // SAFETY: all three places are live.
            unsafe { requested(&mut address, &mut size, &mut limit) };
            let (size, valid) = change(size);
            // SAFETY: the address is what `requested` gave, given back once.
            unsafe { completed(std::ptr::null_mut(), 0, address, size, valid) };
            let log = LOG.lock().take();
            log.map(|log| (log.counts.mismatched_buffers, log.counts.unreadable_bytes))
        };
        assert_eq!(round(|size| (size, 0)), Some((0, 0)));
        assert_eq!(round(|size| (size + 4096, 0)), Some((1, 0)));
        assert_eq!(round(|size| (size - 4096, 0)), Some((1, 0)));
        assert_eq!(round(|size| (size, size + 1)), Some((1, 1)));
        assert_eq!(round(|_| (0, 8)), Some((1, 8)));
        let all = round(|_| (usize::MAX, usize::MAX));
        assert!(matches!(all, Some((1, bytes)) if bytes > 1 << 60), "{all:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn in_a_forked_child_a_buffer_is_left_alone() {
        let _turn = LOG_TESTS.lock();
        crate::collection_state::leave_children_out();
        let (buffer, size) = lend(vec![1024; 1024].into_boxed_slice());
        // As when another thread of the parent appends at the time of the fork: the child's copy is never unlocked.
        let log = LOG.lock();
        // SAFETY: the child calls nothing but what is tested, and leaves with _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child should it hang.
            unsafe { libc::alarm(10) };
            // SAFETY: the buffer was lent, and is given back once.
            unsafe { completed(std::ptr::null_mut(), 0, buffer, size, 0) };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `child` is our child and `status` a live int.
        unsafe { libc::waitpid(child, &mut status, 0) };
        drop(log);
        // SAFETY: lent above; the parent's copy was given to nobody.
        drop(unsafe { take_back(buffer) });
        assert_eq!(status, 0, "the child went on");
    }
}
