//! Activity buffers: requested, filled with records, returned.

use parking_lot::Mutex;

use cupti::clock;
use cupti::sys::abi::*;
use cupti::sys::strides::stride_of_kind;

use crate::state::{Buffer, STATE, version};

/// The records whose length does not match their kind, by address: the iterator steps over them by
/// these lengths.
static ODD_LENGTHS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

pub(super) fn clear() {
    ODD_LENGTHS.lock().clear();
}

pub(super) fn flush_all(flags: u32) {
    let (busy, holds, takes) = {
        let mut state = STATE.lock();
        state.flushes += 1;
        let busy = clock::now_ns() < state.busy_until_ns;
        (busy, state.holds, state.flush_takes)
    };
    if !takes.is_zero() {
        std::thread::sleep(takes);
    }
    if !(busy || holds) || flags & FLAG_FLUSH_FORCED != 0 {
        return_all();
    }
}

/// # Safety
/// As `cuptiActivityGetNextRecord`.
pub(super) unsafe fn get_next_record(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> Result<(), CuptiResult> {
    // SAFETY: the caller passes a live pointer.
    let last = unsafe { record.read() };
    let release = version().cuda_release();
    let length = |at: *mut u8| {
        let odd = ODD_LENGTHS
            .lock()
            .iter()
            .find(|(address, _)| *address == at as usize)
            .map(|(_, len)| *len);
        // SAFETY: a record begins at `at`, with its kind; after one of an odd length it is not
        // aligned.
        odd.or_else(|| stride_of_kind(unsafe { at.cast::<u32>().read_unaligned() }, release))
    };
    let next = if last.is_null() {
        0
    } else {
        let length = length(last).ok_or(CuptiResult::INVALID_KIND)?;
        last as usize - buffer as usize + length
    };
    if next >= valid {
        return Err(CuptiResult::MAX_LIMIT_REACHED);
    }
    // SAFETY: `next` is below `valid`, so within the buffer.
    let next = unsafe { buffer.add(next) };
    length(next).ok_or(CuptiResult::INVALID_KIND)?;
    // SAFETY: the caller passes a live pointer.
    unsafe { record.write(next) };
    Ok(())
}

/// Locked while the current buffer is written to or returned; never while a driver callback runs.
static BUFFER: Mutex<()> = Mutex::new(());

/// Returns the current buffer, with the state unlocked, and reports its content too short if a test
/// planted that.
fn complete() {
    let buffer = {
        let mut state = STATE.lock();
        let cut = state.cut;
        let buffer = state.buffer.take();
        if buffer.is_some() {
            state.cut = 0;
        }
        buffer.map(|buffer| Buffer { used: buffer.used.saturating_sub(cut), ..buffer })
    };
    buffer.into_iter().for_each(return_buffer);
}

fn return_buffer(buffer: Buffer) {
    let completed = STATE.lock().completed;
    if let Some(completed) = completed {
        let address = buffer.address as *mut u8;
        // SAFETY: this is a buffer that `requested` returned; it is passed once.
        unsafe { completed(std::ptr::null_mut(), 0, address, buffer.size, buffer.used) };
    }
}

pub(super) fn return_all() {
    let _writing = BUFFER.lock();
    complete();
    return_held();
}

pub(super) fn return_held() {
    let held = std::mem::take(&mut STATE.lock().held);
    held.into_iter().for_each(return_buffer);
}

/// Writes a record into the current buffer, or into a new one if it does not fit.
pub(super) fn write(record: &[u8]) {
    let _writing = BUFFER.lock();
    let fits = STATE.lock().buffer.is_some_and(|buffer| buffer.used + record.len() <= buffer.size);
    if !fits {
        {
            let mut state = STATE.lock();
            if state.holds {
                let full = state.buffer.take();
                state.held.extend(full);
            }
        }
        complete();
        let Some(requested) = STATE.lock().requested else {
            return;
        };
        let (mut address, mut size, mut limit) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: all three pointers are live.
        unsafe { requested(&mut address, &mut size, &mut limit) };
        if address.is_null() || size < record.len() {
            let mut state = STATE.lock();
            state.dropped += 1;
            state.crashed |= version().0 < 27;
            return;
        }
        STATE.lock().buffer = Some(Buffer { address: address as usize, size, used: 0 });
    }
    let mut state = STATE.lock();
    let Some(buffer) = &mut state.buffer else {
        return;
    };
    let place = (buffer.address + buffer.used) as *mut u8;
    // SAFETY: the buffer has `size` bytes, of which `record.len()` after `used` are free, as tested
    // above.
    unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), place, record.len()) };
    buffer.used += record.len();
    let kind = record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
    let release = version().cuda_release();
    ODD_LENGTHS.lock().retain(|(address, _)| *address != place as usize);
    if stride_of_kind(kind, release).is_some_and(|stride| stride != record.len()) {
        ODD_LENGTHS.lock().push((place as usize, record.len()));
    }
}
