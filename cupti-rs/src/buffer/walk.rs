//! Converts a buffer to its records' bytes, with the memory that they point to.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::pointers::{self, Layout, Taken};
use crate::sys::abi::CuptiResult;
use crate::sys::api::Api;
use crate::version::Version;

/// The contents of one buffer.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// The records' bytes, one after the other.
    pub(crate) bytes: Vec<u8>,
    /// The release of the library that wrote them; (0, 0) if the library does not report it. In
    /// that case, no memory is freed that only some releases leave to the client.
    pub(crate) release: (u32, u32),
    /// Each record: its kind and its length.
    pub(crate) records: Vec<(u32, u32)>,
    /// Texts by the address that records hold.
    pub(crate) names: FxHashMap<u64, String>,
    /// The content of memory that was left to the client, and the position of its pointer in
    /// `bytes`.
    pub(crate) taken: Vec<(usize, Taken)>,
    /// Records of a newer library whose layout may differ from the known one.
    pub(crate) unknown_layouts: u64,
    /// The bytes after a record that CUPTI could not step over.
    pub(crate) unreadable: u64,
}

/// Steps through the first `valid` bytes, or the whole buffer if it is shorter, with CUPTI's own
/// iterator: only the library has the strides.
pub(crate) fn walk(api: &Api, words: &mut [u64], valid: usize) -> Walked {
    let valid = valid.min(size_of_val(words));
    let release = api.version().map_or((0, 0), |version| Version(version).cuda_release());
    let mut out = Walked { release, ..Walked::default() };
    let base = words.as_mut_ptr().cast::<u8>();
    let mut record: *mut u8 = std::ptr::null_mut();
    let mut starts = Vec::new();
    let whole = loop {
        // SAFETY: `base` is a live buffer of at least `valid` bytes, and `record` is null or the
        // result of the last call.
        let code = unsafe { (api.get_next_record)(base, valid, &mut record) };
        if code == CuptiResult::SUCCESS {
            let at = (record as usize).wrapping_sub(base as usize);
            let after = starts.last().map_or(0, |&last| last + 4);
            if at >= after && at + 4 <= valid {
                starts.push(at);
                continue;
            }
        }
        break code == CuptiResult::MAX_LIMIT_REACHED;
    };
    // SAFETY: `base` has `valid` initialised bytes, and CUPTI no longer writes to a buffer that it
    // has returned.
    let bytes = unsafe { std::slice::from_raw_parts(base, valid) };
    // If CUPTI stopped early, the length of the last record is unknown.
    let complete = if whole { starts.len() } else { starts.len().saturating_sub(1) };
    let end = if whole { valid } else { readable_end(bytes, &mut starts) };
    out.unreadable = (valid - end) as u64;
    out.bytes.extend_from_slice(&bytes[..end]);
    out.records.reserve(starts.len());
    let mut last_name = 0;
    for (i, &at) in starts.iter().enumerate() {
        let next = starts.get(i + 1).copied().unwrap_or(end);
        let record = &bytes[at..next];
        let kind = u32_at(record, 0);
        out.records.push((kind, record.len() as u32));
        // A record that may overlap another record's bytes has no pointers to trust; its name may
        // be known from others.
        if i >= complete {
            continue;
        }
        let layout = pointers::layout(kind, release, record.len());
        if layout == Layout::Unknown {
            out.unknown_layouts += 1;
            continue;
        }
        for &offset in pointers::texts(kind, release) {
            let address = u64_at(record, offset);
            // Many kernels occur several times in a row.
            if address == 0 || address == last_name {
                continue;
            }
            last_name = address;
            if let Entry::Vacant(place) = out.names.entry(address) {
                // SAFETY: the address is not null, and stands at an offset from `texts` in a record
                // of this buffer, whose layout is known or has grown at its end.
                place.insert(unsafe { pointers::text(address) });
            }
        }
        // A leak is better than freeing memory that may be in use for something else.
        if layout != Layout::Known {
            continue;
        }
        for left in pointers::owned_memory(kind, release, record).into_iter().flatten() {
            // SAFETY: a record of this buffer, visited here once, with the pointer that was found
            // for it.
            if let Some(taken) = unsafe { left.take(record) } {
                out.taken.push((at + left.offset, taken));
            }
            // The memory that it points to is freed.
            let pointer = at + left.offset;
            if let Some(pointer) =
                out.bytes.get_mut(pointer..pointer + 8).filter(|_| pointer + 8 <= next)
            {
                pointer.fill(0);
            }
        }
    }
    out
}

/// Returns the end of the readable part, if a record of unknown kind stopped the iterator: the
/// bytes after it cannot be divided. The last record is included if another of its kind shows its
/// length.
#[cold]
fn readable_end(bytes: &[u8], starts: &mut Vec<usize>) -> usize {
    let Some(&last) = starts.last() else { return 0 };
    let kind = u32_at(bytes, last);
    let length =
        starts.windows(2).find(|pair| u32_at(bytes, pair[0]) == kind).map(|pair| pair[1] - pair[0]);
    match length {
        Some(length) if last + length <= bytes.len() => last + length,
        _ => {
            starts.pop();
            last
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}
