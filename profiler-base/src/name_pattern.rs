//! Numbers in names: their positions, and the pattern of names that differ in them.

use std::borrow::Cow;
use std::ops::Range;

/// Bytes of a UUID in text, and the lengths of its groups.
const UUID: (usize, [usize; 5]) = (36, [8, 4, 4, 4, 12]);
/// The minimum number of digits of a hexadecimal number without `0x`, and of an address after it.
const LONG: usize = 8;

/// The byte ranges of the numbers in a name, in order. They are decimal numbers, also within words,
/// UUIDs, and hexadecimal numbers (`0x7f12`, or at least eight digits with a letter). The cost is
/// proportional to the name's bytes.
pub fn numbers(name: &str) -> Numbers<'_> {
    Numbers { name, at: 0 }
}

/// The iterator of [`numbers`].
#[derive(Debug, Clone)]
pub struct Numbers<'n> {
    name: &'n str,
    at: usize,
}

impl Iterator for Numbers<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let bytes = self.name.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            let start = self.at;
            if !byte.is_ascii_alphanumeric() {
                self.at += 1;
                continue;
            }
            let begins_word =
                start.checked_sub(1).is_none_or(|last| !bytes[last].is_ascii_alphanumeric());
            if begins_word && let Some(length) = whole_word(&bytes[start..]) {
                self.at = start + length;
                return Some(start..self.at);
            }
            let is_number = byte.is_ascii_digit();
            let same =
                |byte: &u8| byte.is_ascii_alphanumeric() && byte.is_ascii_digit() == is_number;
            self.at += bytes[start..].iter().take_while(|byte| same(byte)).count();
            if is_number {
                return Some(start..self.at);
            }
        }
        None
    }
}

/// The length of a UUID or hexadecimal number at the start of the text, if it ends at the end of a
/// word.
fn whole_word(text: &[u8]) -> Option<usize> {
    if text.len() >= UUID.0 && is_uuid(&text[..UUID.0]) && ends_word(text, UUID.0) {
        return Some(UUID.0);
    }
    // A longer word is none of these: its bytes are not read repeatedly.
    let word = text.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let (digits, fewest) = match text.strip_prefix(b"0x") {
        Some(_) => (&text[2..word], 1),
        None => (&text[..word], LONG),
    };
    let is_hexadecimal = digits.len() >= fewest && digits.iter().all(u8::is_ascii_hexdigit);
    let is_mixed = fewest == 1
        || digits.iter().any(u8::is_ascii_digit) && !digits.iter().all(u8::is_ascii_digit);
    (is_hexadecimal && is_mixed).then_some(word)
}

fn ends_word(text: &[u8], length: usize) -> bool {
    text.get(length).is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

fn is_uuid(text: &[u8]) -> bool {
    let mut groups = text.split(|byte| *byte == b'-');
    let is_group = |length: usize, group: Option<&[u8]>| {
        group.is_some_and(|group| group.len() == length && group.iter().all(u8::is_ascii_hexdigit))
    };
    UUID.1.into_iter().all(|length| is_group(length, groups.next())) && groups.next().is_none()
}

/// True for an address, such as `0x7f12a4000000`, which differs between processes.
pub fn is_address(number: &str) -> bool {
    number.strip_prefix("0x").is_some_and(|digits| digits.len() >= LONG)
}

/// The name with `*` instead of the numbers for which `is_replaced` is true, by their index.
/// Borrowed if nothing is replaced.
pub fn with_stars(name: &str, is_replaced: impl Fn(usize) -> bool) -> Cow<'_, str> {
    let mut text = String::new();
    let mut end = 0;
    for (_, number) in numbers(name).enumerate().filter(|(index, _)| is_replaced(*index)) {
        text.push_str(&name[end..number.start]);
        text.push('*');
        end = number.end;
    }
    if end == 0 {
        return Cow::Borrowed(name);
    }
    text.push_str(&name[end..]);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(name: &str) -> String {
        with_stars(name, |_| true).into_owned()
    }

    #[test]
    fn decimal_numbers_are_found_also_within_words() {
        assert_eq!(pattern("aten::linear, op_id = 5003"), "aten::linear, op_id = *");
        assert_eq!(pattern("training_step_17"), "training_step_*");
        assert_eq!(pattern("conv2d 3x3, 64"), "conv*d *x*, *");
        assert_eq!(pattern("7"), "*");
        for name in ["", "forward", "ä/ö", "deadbeef"] {
            assert!(matches!(with_stars(name, |_| true), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn identifiers_and_addresses_are_one_number_each() {
        assert_eq!(pattern("request 7b9c4f1e-8a2d-4c3b-9e1f-0a1b2c3d4e5f!"), "request *!");
        assert_eq!(pattern("copy 0x7f12a4000000 -> 0x7f"), "copy * -> *");
        assert_eq!(pattern("id_9f86d081 of ä9"), "id_* of ä*");
        // Too short, or not ended by a word: digits alone.
        assert_eq!(pattern("a1b2c3"), "a*b*c*");
        assert_eq!(
            pattern("7b9c4f1e-8a2d-4c3b-9e1f-0a1b2c3d4e5fx"),
            "*-*a*d-*c*b-*e*f-*a*b*c*d*e*fx"
        );
        assert_eq!(pattern("0xyz"), "*xyz");
        assert!(is_address("0x7f12a4000000") && !is_address("0x7f") && !is_address("7f12a4000000"));
    }

    #[test]
    fn chosen_numbers_alone_are_replaced() {
        let name = "conv2 of step 17";
        assert_eq!(with_stars(name, |index| index == 1), "conv2 of step *");
        assert_eq!(numbers(name).map(|at| &name[at]).collect::<Vec<_>>(), ["2", "17"]);
    }

    #[test]
    fn long_names_cost_their_bytes_once() {
        // A quadratic scan of these would take minutes.
        for part in ["a1", "0x", "-1", "f", "1-"] {
            let name = part.repeat(1 << 20);
            assert!(numbers(&name).count() <= name.len());
        }
    }
}
