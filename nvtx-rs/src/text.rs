//! Names as C strings.
//!
//! A tool reads a name up to its first NUL and copies it during the call, so the NUL-terminated
//! copy is on the stack. Only this module replaces a NUL inside a name.

use std::ffi::{CStr, CString};

use crate::sys::types::{ShortText, Text};

/// The bytes of the stack buffer, including the final NUL. Longer names are copied to the heap.
const STACK_BYTES: usize = 256;

/// Replaces a NUL inside a name. Truncation would make different names equal.
const NUL_SHOWN_AS: u8 = b'?';

/// Calls `f` with `name` as a C string.
pub(crate) fn with_c_str<R>(name: &str, f: impl FnOnce(&CStr) -> R) -> R {
    if name.len() < STACK_BYTES {
        f(copy(name, &mut [0; STACK_BYTES]))
    } else {
        f(copy(name, &mut vec![0; name.len() + 1]))
    }
}

/// As [`with_c_str`], for ranges.
pub(crate) fn with_text<R>(name: &str, f: impl FnOnce(Text<'_>) -> R) -> R {
    let mut buffer = ShortText::EMPTY;
    match short(name, &mut buffer) {
        Some(text) => f(text),
        None => with_longer_text(name, f),
    }
}

/// A name of at most 15 bytes as a C string in an empty buffer; `None` if the name is longer or
/// contains a NUL.
///
/// Always inlined, so that the buffer is written in place. Longer names need more registers, which
/// would cost every range some instructions.
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

/// The general case, for names that are not [`short`].
fn with_longer_text<R>(name: &str, f: impl FnOnce(Text<'_>) -> R) -> R {
    let mut buffer = ShortText::EMPTY;
    match name.len() {
        16..32 if !copy_ends::<16>(name.as_bytes(), &mut buffer) => f(Text::terminated(&buffer)),
        _ => with_c_str(name, |name| f(Text::new(name))),
    }
}

/// Copies a name of `N` to `2 * N - 1` bytes as its first and last `N`, which may overlap. True if
/// it contains a NUL.
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

/// Checks word by word, without an early exit.
#[inline(always)]
fn has_nul(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [1; 8];
    for (to, &from) in last.iter_mut().zip(rest) {
        *to = from;
    }
    words.iter().chain([&last]).fold(false, |nul, &word| {
        let word = u64::from_ne_bytes(word);
        // The highest bit of the lowest zero byte, and possibly of some above it.
        nul | (word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080 != 0)
    })
}

/// Copies `name` to the start of `buffer`, which is zero and longer than `name`.
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

/// The texts of one call, such as those of a schema.
#[derive(Debug)]
pub(crate) struct CStrings(Vec<CString>);

impl CStrings {
    pub(crate) fn new() -> CStrings {
        CStrings(Vec::new())
    }

    /// Stores a copy and returns its index.
    pub(crate) fn add(&mut self, text: &str) -> usize {
        self.0.push(with_c_str(text, CStr::to_owned));
        self.0.len() - 1
    }

    /// The text at this index; none if it is empty.
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
    fn shortcut_gives_the_same_result() {
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
