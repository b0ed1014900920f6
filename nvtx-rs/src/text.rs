//! Names as C wants them.
//!
//! A tool reads a name up to its first NUL and must copy it during the call, so the copy that adds
//! the NUL lives on the stack. What happens to a NUL inside a name is decided here alone.

use std::ffi::CStr;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(name: &str) -> String {
        with_c_str(name, |name| name.to_str().unwrap().to_owned())
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
