//! Names as C wants them.
//!
//! A tool reads a name up to its first NUL and must copy it during the call, so the copy that adds
//! the NUL lives on the stack. What happens to a NUL inside a name is decided here alone.

use std::ffi::{CStr, CString};

use crate::sys::types::Text;

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

/// What most names fit in, the NUL included: a range of a short name copies it at little more than a call's cost.
const SHORT_BYTES: usize = 32;

/// As [`with_c_str`], for the way of a range: one pass over the name, which no one looks through again.
#[inline]
pub(crate) fn with_text<R>(name: &str, f: impl FnOnce(Text<'_>) -> R) -> R {
    let bytes = name.as_bytes();
    if bytes.len() >= SHORT_BYTES {
        return with_c_str(name, |name| f(Text::new(name)));
    }
    let mut buffer = [0; SHORT_BYTES];
    for (to, &from) in buffer.iter_mut().zip(bytes) {
        *to = if from == 0 { NUL_SHOWN_AS } else { from };
    }
    f(Text::terminated(&buffer))
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
        for name in
            ["", "a", "a\0b\0", "größe ∑ 核", &"x".repeat(31), &"y\0".repeat(16), &"z".repeat(300)]
        {
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
