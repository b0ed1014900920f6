//! Names as C wants them.
//!
//! A tool reads a name up to its first NUL and must copy it during the call, so the copy that adds
//! the NUL lives on the stack. What happens to a NUL inside a name is decided here alone.

use std::ffi::{CStr, CString};

use crate::sys::types::{ShortText, Text};

/// What the stack takes, the NUL at the end included. Longer names are copied to the heap.
const STACK_BYTES: usize = 256;

/// Stands for a NUL inside a name: cutting the name there would make different names equal.
const NUL_SHOWN_AS: u8 = b'?';

/// Calls `f` with `name` as a C string.
pub(crate) fn with_c_str<R>(name: &str, f: impl FnOnce(&CStr) -> R) -> R {
    if name.len() < STACK_BYTES {
        f(copy(name, &mut [0; STACK_BYTES]))
    } else {
        f(copy(name, &mut vec![0; name.len() + 1]))
    }
}

/// As [`with_c_str`], for the way of a range.
pub(crate) fn with_text<R>(name: &str, f: impl FnOnce(Text<'_>) -> R) -> R {
    let mut buffer = ShortText::EMPTY;
    match short(name, &mut buffer) {
        Some(text) => f(text),
        None => with_longer_text(name, f),
    }
}

/// A name of at most 15 bytes as C wants it, in an empty buffer; `None` where it is longer, or has a NUL inside.
///
/// Always inlined: the buffer is then written and handed on where it lies, and read by nobody in between. Names that
/// need more registers than this are not its business, for they would cost every range a few more instructions.
#[inline(always)]
pub(crate) fn short<'a>(name: &str, buffer: &'a mut ShortText) -> Option<Text<'a>> {
    let name = name.as_bytes();
    let has_nul = match name.len() {
        0 => false,
        1 => copy_ends::<1>(name, buffer),
        2..4 => copy_ends::<2>(name, buffer),
        4..8 => copy_ends::<4>(name, buffer),
        8..16 => copy_ends::<8>(name, buffer),
        _ => true,
    };
    if has_nul { None } else { Some(Text::terminated(buffer)) }
}

/// Any name that is not [`short`].
fn with_longer_text<R>(name: &str, f: impl FnOnce(Text<'_>) -> R) -> R {
    let mut buffer = ShortText::EMPTY;
    match name.len() {
        16..32 if !copy_ends::<16>(name.as_bytes(), &mut buffer) => f(Text::terminated(&buffer)),
        _ => with_c_str(name, |name| f(Text::new(name))),
    }
}

/// Copies a name of `N` to `2 * N - 1` bytes as its first and its last `N`, which may overlap; whether there is a NUL.
#[inline(always)]
fn copy_ends<const N: usize>(name: &[u8], buffer: &mut ShortText) -> bool {
    let (Some(first), Some(last)) = (name.first_chunk::<N>(), name.last_chunk::<N>()) else {
        return true;
    };
    let at = name.len() - N;
    if let Some(place) = buffer.bytes.first_chunk_mut() {
        *place = *first;
    }
    if let Some(place) = buffer.bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = *last;
    }
    has_nul(first) | has_nul(last)
}

/// Word by word, without an early end.
#[inline(always)]
fn has_nul(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [1; 8];
    for (to, &from) in last.iter_mut().zip(rest) {
        *to = from;
    }
    words.iter().chain([&last]).fold(false, |nul, &word| {
        let word = u64::from_ne_bytes(word);
        // The highest bit of the lowest byte that is 0, and maybe of some above it.
        nul | (word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0)
    })
}

/// Copies `name` to the front of `buffer`, which is all zero and longer than `name`.
fn copy<'a>(name: &str, buffer: &'a mut [u8]) -> &'a CStr {
    let (text, _) = buffer.split_at_mut(name.len());
    text.copy_from_slice(name.as_bytes());
    for byte in text {
        if *byte == 0 {
            *byte = NUL_SHOWN_AS;
        }
    }
    // There is a NUL: the zero after the text.
    CStr::from_bytes_until_nul(buffer).unwrap_or_default()
}

/// Texts that a tool gets together, as the parts of a schema.
#[derive(Debug)]
pub(crate) struct CStrings(Vec<CString>);

impl CStrings {
    pub(crate) fn new() -> CStrings {
        CStrings(Vec::new())
    }

    /// Keeps a copy, and says where.
    pub(crate) fn add(&mut self, text: &str) -> usize {
        self.0.push(with_c_str(text, CStr::to_owned));
        self.0.len() - 1
    }

    /// The text of [`add`](CStrings::add); none where it is empty.
    pub(crate) fn get(&self, place: usize) -> Text<'_> {
        match self.0.get(place) {
            Some(text) if !text.is_empty() => Text::new(text),
            _ => Text::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(name: &str) -> String {
        with_c_str(name, |name| name.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_short_way_gives_the_same() {
        let lengths = (0..40).map(|length| "abcdefghij".repeat(4)[..length].to_owned());
        let odd =
            ["a\0b\0", "größe ∑ 核", "\u{1}\u{7f}\u{80}", &"y\0".repeat(16), &"z".repeat(300)];
        let nuls = (0..31).map(|at| format!("{}\0{}", "x".repeat(at), "y".repeat(30 - at)));
        for name in lengths.chain(odd.map(str::to_owned)).chain(nuls) {
            let name = name.as_str();
            assert_eq!(
                with_text(name, |name| name.to_bytes()),
                with_c_str(name, |name| name.to_bytes().to_vec())
            );
        }
    }

    #[test]
    fn names_keep_their_bytes() {
        for name in ["", "a", "größe ∑ 核", "line\nbreak"] {
            assert_eq!(copied(name), name);
        }
    }

    #[test]
    fn names_around_the_stack_buffer_keep_their_length() {
        for length in [254, 255, 256, 257, 100_000] {
            let name = "x".repeat(length);
            assert_eq!(copied(&name), name, "{length} bytes");
        }
    }

    #[test]
    fn a_nul_inside_is_shown_and_does_not_cut() {
        assert_eq!(copied("a\0b\0"), "a?b?");
        assert_eq!(copied("\0"), "?");
        let long = "\0".repeat(300);
        assert_eq!(copied(&long), "?".repeat(300));
    }
}
