//! Safe output of text from recordings, captures and devices.
//!
//! Names may contain terminal escapes, characters that reverse or hide text, markup and formulas.
//! All outputs of this crate escape them with these functions. Accessors return the original text;
//! programs that print it can use the functions here.
//!
//! - Tables, reports, messages, CSV, Markdown, HTML, SVG and line formats (`counts`, folded stacks)
//!   show [`printable`] text: one line without active characters.
//! - JSON contains the full text with active characters as `\uXXXX`.
//! - Binary formats (Perfetto, SQLite, Parquet, recordings) contain the original bytes.

use std::borrow::Cow;
use std::io;

use serde_core::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter};
use unicode_width::UnicodeWidthChar as _;

/// True for characters that a terminal, browser or editor interprets or hides: controls, line
/// separators, direction controls, and characters without width. Variation selectors and joiners
/// are included, combining letters are not.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The character shown in a line of text.
fn shown(c: char) -> char {
    match c {
        c if !is_active(c) => c,
        '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// True if nothing needs escaping. Fast for ASCII names.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(is_active)
}

/// Converts text to one line: line separators and tabs become spaces, active characters U+FFFD.
///
/// ```
/// assert_eq!(profiler_base::text::printable("a\tb\u{1b}[2J"), "a b\u{fffd}[2J");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    match is_plain(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().map(shown).collect()),
    }
}

/// The number of terminal columns of a character.
pub fn width_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The maximum number of terminal columns of printable text.
pub fn cells(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.chars().map(width_of).sum(),
    }
}

/// Printable text of at most `width` terminal columns. Longer text loses its middle.
///
/// ```
/// assert_eq!(profiler_base::text::shortened("sgemm_128x64_tn", 9), "sgem…4_tn");
/// ```
pub fn shortened(text: &str, width: usize) -> String {
    // A character has at least as many bytes as columns.
    if text.len() <= width || cells_shown(text) <= width {
        return printable(text).into_owned();
    }
    let Some(kept) = width.checked_sub(1) else { return String::new() };
    let head = prefix(text.chars().map(shown), kept.div_ceil(2));
    let tail = prefix(text.chars().rev().map(shown), kept - kept.div_ceil(2));
    head.chars().chain(['…']).chain(tail.chars().rev()).collect()
}

fn cells_shown(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(shown).map(width_of).sum() }
}

/// The first characters that fit.
fn prefix(text: impl Iterator<Item = char>, width: usize) -> String {
    let mut room = width;
    let fits = |c: &char| {
        let left = room.checked_sub(width_of(*c));
        room = left.unwrap_or(room);
        left.is_some()
    };
    text.take_while(fits).collect()
}

/// The maximum size of a file for [`read_file`]: baselines, peaks and counts have some hundred KiB.
const LARGEST: u64 = 64 << 20;

/// Reads a text file, or a device or pipe that may be endless.
///
/// # Errors
/// It cannot be read, exceeds 64 MiB, or is not UTF-8.
pub fn read_file(path: &std::path::Path) -> io::Result<String> {
    let mut text = String::new();
    let read = io::Read::take(std::fs::File::open(path)?, LARGEST + 1);
    io::Read::read_to_string(&mut { read }, &mut text)?;
    if text.len() as u64 > LARGEST {
        let why = format!("it has more than {} MiB", LARGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

/// Implements `Serialize` for a type that is written as its `Display` text.
#[macro_export]
macro_rules! serialize_as_text {
    ($type:ty) => {
        impl $crate::serde_core::Serialize for $type {
            fn serialize<S: $crate::serde_core::Serializer>(
                &self,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    };
}

/// Implements `Serialize` for a type as a struct of these fields.
#[macro_export]
macro_rules! serialize_fields {
    ($type:ty, $name:literal, |$this:ident| { $($field:literal: $value:expr,)+ }) => {
        impl $crate::serde_core::Serialize for $type {
            fn serialize<S: $crate::serde_core::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use $crate::serde_core::ser::SerializeStruct as _;
                let $this = self;
                let mut out = to.serialize_struct($name, [$($field),+].len())?;
                $(out.serialize_field($field, &$value)?;)+
                out.end()
            }
        }
    };
}

// --- CSV ---

/// Escapes text as a CSV cell. A cell that a spreadsheet would evaluate gets the prefix `'`, as
/// OWASP advises. For text only: numbers need no escaping.
pub fn csv_cell(text: &str) -> String {
    let mut cell = text.to_owned();
    guard_formula(&mut cell, 0);
    quote_cell(&mut cell, 0);
    cell
}

/// Inserts `'` before the cell at `at` if a spreadsheet would evaluate it.
pub fn guard_formula(line: &mut String, at: usize) {
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let cell = line[at..].trim_start_matches(|c: char| c.is_whitespace() || is_active(c));
    // nsys's `--:name` and `--domain:name` are not formulas: a colon needs a left operand, and
    // nothing is evaluated without operators and calls.
    let name = cell.trim_start_matches(SIGNS);
    let is_nested =
        cell.starts_with("--") && !cell.contains(['=', '+', '@', '|', '!', '(', '＝', '＋', '＠']);
    if cell.starts_with(SIGNS) && !name.starts_with(':') && !is_nested {
        line.insert(at, '\'');
    }
}

/// Makes the cell at `at` printable, and quotes it if needed.
pub fn quote_cell(line: &mut String, at: usize) {
    let cell = &line[at..];
    let needs_quotes = cell.contains(['"', ',']);
    if !needs_quotes && is_plain(cell) {
        return;
    }
    let cell = printable(cell).into_owned();
    line.truncate(at);
    match needs_quotes {
        true => line.extend(["\"", &cell.replace('"', "\"\""), "\""]),
        false => line.push_str(&cell),
    }
}

// --- markup ---

/// Escapes text for Markdown, including HTML in it.
pub fn markdown(text: &str) -> String {
    escaped(text, |c, out| match c {
        // Names must not mention users.
        '@' => out.push_str("&#64;"),
        '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '|' | '~' | '!' => out.extend(['\\', c]),
        c => out.push(shown(c)),
    })
}

/// Escapes text for HTML and XML elements and attributes.
pub fn html(text: &str) -> String {
    escaped(text, |c, out| match c {
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(shown(c)),
    })
}

/// Escapes tags and entities, and other characters with `push`.
fn escaped(text: &str, push: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => push(c, &mut out),
        }
    }
    out
}

/// Percent-encodes all bytes except letters, digits, `.`, `_`, `-` and `kept`.
pub fn percent_encoded(bytes: &[u8], kept: &[u8]) -> String {
    let encoded = |&byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(byte).into(),
        byte if kept.contains(&byte) => char::from(byte).into(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(encoded).collect()
}

// --- JSON ---

/// Writes JSON on one line with active characters as `\uXXXX`.
///
/// # Errors
/// Errors of `out` and `value`.
pub fn write_json(out: impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Ascii(CompactFormatter)))
}

/// Writes indented JSON with active characters as `\uXXXX`.
///
/// # Errors
/// Errors of `out` and `value`.
pub fn write_json_pretty(out: impl io::Write, value: &impl Serialize) -> io::Result<()> {
    Ok(write_indented(out, value)?)
}

fn write_indented(out: impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    let formatter = Ascii(PrettyFormatter::new());
    value.serialize(&mut serde_json::Serializer::with_formatter(out, formatter))
}

/// [`write_json`] to a string.
///
/// # Errors
/// Errors of `value`.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    write_json(&mut bytes, value)?;
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// [`write_json_pretty`] to a string.
///
/// # Errors
/// Errors of `value`.
pub fn json_pretty(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    write_indented(&mut bytes, value)?;
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// Writes a part of a JSON string in which serde_json has nothing to escape.
///
/// # Errors
/// Errors of `out`.
pub fn write_json_fragment<W: ?Sized + io::Write>(out: &mut W, text: &str) -> io::Result<()> {
    if is_plain(text) {
        return out.write_all(text.as_bytes());
    }
    let mut written = 0;
    for (at, active) in text.match_indices(is_active) {
        out.write_all(&text.as_bytes()[written..at])?;
        for unit in active.encode_utf16() {
            write!(out, "\\u{unit:04x}")?;
        }
        written = at + active.len();
    }
    out.write_all(&text.as_bytes()[written..])
}

/// Writes JSON on one line with [printable] strings, for a page whose script would decode escapes.
/// It can be inside a `script` element: it contains no `<`.
///
/// # Errors
/// Errors of `out` and `value`.
pub fn write_page_json(out: impl io::Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, Shown))
}

struct Shown;

impl Formatter for Shown {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        writer.write_all(printable(fragment).replace('<', "\\u003c").as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        use CharEscape::{AsciiControl, Backspace, CarriageReturn, FormFeed, LineFeed, Tab};
        match escape {
            Tab | LineFeed | FormFeed | CarriageReturn => writer.write_all(b" "),
            Backspace | AsciiControl(_) => {
                write!(writer, "{}", char::REPLACEMENT_CHARACTER)
            }
            mark => CompactFormatter.write_char_escape(writer, mark),
        }
    }
}

/// A formatter that escapes active characters.
struct Ascii<F>(F);

macro_rules! as_the_formatter {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => {$(
        fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W, $($arg: $type),*) -> io::Result<()> {
            self.0.$name(writer, $($arg),*)
        }
    )+};
}

impl<F: Formatter> Formatter for Ascii<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        write_json_fragment(writer, fragment)
    }

    as_the_formatter! {
        write_char_escape(escape: CharEscape);
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_characters_are_replaced_and_all_others_kept() {
        assert_eq!(printable("a\tb\r\nc\u{2028}d"), "a b  c d");
        assert_eq!(printable("\u{1b}[2J\u{9b}1m\u{7f}\0"), "\u{fffd}[2J\u{fffd}1m\u{fffd}\u{fffd}");
        assert_eq!(printable("a\u{202e}b\u{200b}c\u{feff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        for kept in ["größe e\u{301} กำ नमस्ते שלום 核 🚀", "f<\"x\", y>(int*)", ""]
        {
            assert!(matches!(printable(kept), Cow::Borrowed(text) if text == kept));
        }
    }

    #[test]
    fn long_text_loses_its_middle() {
        assert_eq!(shortened("a\tb", 10), "a b");
        assert_eq!(shortened("größer als fünf", 6), "grö…nf");
        assert_eq!(shortened("größe", 5), "größe");
        assert_eq!([0, 1, 2].map(|width| shortened("abc", width)), ["", "…", "a…"]);
        assert_eq!(shortened("\u{1b}bcdefg\u{1b}", 4), "\u{fffd}b…\u{fffd}");
    }

    #[test]
    fn cells_are_quoted_and_are_no_formulas() {
        assert_eq!(csv_cell("f<\"x\", y>"), "\"f<\"\"x\"\", y>\"");
        assert_eq!(csv_cell("a\nb"), "a b");
        let formulas = ["=1", "+1", "-1", "@a", "\t=1", "\r\n=1", " =1", "＝1", "\u{200b}=1"];
        for formula in formulas.into_iter().chain(["--1+cmd|' /C calc'!A0:x"]) {
            assert!(csv_cell(formula).starts_with('\''), "{formula:?}");
        }
        assert_eq!(csv_cell("=A1,\"B\""), "\"'=A1,\"\"B\"\"\"");
        for kept in ["a=1", "--:name", "--domain:name", "[CUDA memcpy]", "'a'", ""] {
            assert_eq!(csv_cell(kept), kept);
        }
        let mut line = "-1,".to_owned();
        guard_formula(&mut line, 3);
        quote_cell(&mut line, 3);
        assert_eq!(line, "-1,", "what stands before is left as it is");
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(
            html("<a b='c'>&\"\u{0}\u{1b}\u{ffff}\n"),
            "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}\u{fffd} "
        );
        assert_eq!(markdown("|*a*|\n@b\u{202e}"), "\\|\\*a\\*\\| &#64;b\u{fffd}");
    }

    #[test]
    fn json_is_the_same_with_active_characters_escaped() {
        let text = "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0001}\u{feff} \"\\ ä 🚀\n";
        let value = serde_json::json!({ text: [text, 1, 2.5, null, { "a": {} }, []] });
        for written in [json(&value).unwrap(), json_pretty(&value).unwrap()] {
            let has_active = written.contains(|c| c != '\n' && is_active(c));
            assert!(!has_active && written.contains("ä 🚀"), "{written}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
        }
        let mut page = Vec::new();
        write_page_json(&mut page, &value).unwrap();
        let page: serde_json::Value = serde_json::from_slice(&page).unwrap();
        assert_eq!(page[&*printable(text)][0], *printable(text));
        assert!(json(&text).unwrap().contains("\\udb40\\udc01"), "{}", json(&text).unwrap());
        let plain = serde_json::json!({ "a": [1, "b"] });
        assert_eq!(json(&plain).unwrap(), serde_json::to_string(&plain).unwrap());
        assert_eq!(json_pretty(&plain).unwrap(), serde_json::to_string_pretty(&plain).unwrap());
    }
}
