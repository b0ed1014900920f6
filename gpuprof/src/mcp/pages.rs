//! The part of a document that fits into an answer.
//!
//! Only lists become shorter, and long texts lose their middle: an object keeps all its fields, so
//! that a page has the schema of its document. A page names each list that was cut, and a call with
//! its position shows the rest.

use std::collections::BTreeMap;

use profiler_base::text::shortened;
use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Failure;

/// The maximum size of a page as compact JSON, in bytes.
const PAGE_BYTES: usize = 6 << 10;
/// An element of this size waits until no smaller one fits.
const LARGE: usize = PAGE_BYTES / 8;
/// The maximum length of a text in a page of several values, in characters.
const TEXT: usize = 600;
/// A list of so few numbers or texts is one value, such as a row of a table.
const VALUES: usize = 64;
/// The maximum number of shortened lists, and of fields, that are named.
const NAMED: usize = 12;

/// The part of the answer that a call asks for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct PageArgs {
    /// The part of `result` to show, as a JSON pointer from `cut`, such as /findings/0/evidence
    pub(super) at: Option<String>,
    /// The first element to show of the list at `at`
    pub(super) offset: Option<usize>,
    /// The maximum number of elements of each list
    pub(super) limit: Option<usize>,
}

/// A part of a document.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    /// The position of the part in the document; `None` for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    result: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<Cut>,
}

/// A list that was shortened.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Cut {
    /// Its position, with `*` for each index of an outer list.
    at: String,
    /// The number of elements before those shown.
    #[serde(skip_serializing_if = "is_zero")]
    offset: usize,
    /// The number of elements shown; of several lists the largest.
    shown: usize,
    /// The number of all elements; of several lists the largest.
    total: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Page {
    /// The part of a document that a call asks for, shortened to a page.
    pub(super) fn new(document: &Value, args: &PageArgs) -> Result<Self, Failure> {
        let at = args.at.as_deref().map(|at| at.trim_end_matches('/')).unwrap_or_default();
        let part = find(document, at)?;
        let offset = args.offset.unwrap_or(0);
        let rest;
        let part = match part {
            part if offset == 0 => part,
            Value::Array(list) => {
                // More than a page has.
                let next = list.iter().skip(offset).take(PAGE_BYTES);
                rest = next.cloned().collect();
                &rest
            }
            _ => {
                return Err(Failure::Error(format!(
                    "offset needs a list, and {} is none: name one with `at`: {}",
                    subject(at),
                    parts(part, at, Value::is_array)
                )));
            }
        };
        // One text may take all of the page.
        let text = if part.is_string() { PAGE_BYTES / 4 } else { TEXT };
        let mut left = PAGE_BYTES;
        let Some(mut shown) = Shown::new(part, text, &mut left) else {
            return Err(Failure::Error(format!(
                "{} is too large for an answer: name a part of it with `at`: {}",
                subject(at),
                parts(part, at, |_| true)
            )));
        };
        let limit = args.limit.unwrap_or(usize::MAX);
        for largest in [LARGE, PAGE_BYTES] {
            while shown.grow(limit, largest, &mut left) {}
        }
        let mut cuts = Cuts::default();
        let result = shown.finish(at, &mut cuts);
        let mut cut = cuts.into_list();
        if let Some(page) = cut.first_mut().filter(|cut| offset != 0 && cut.at == at) {
            page.offset = offset;
            page.total = list_length(find(document, at)?).unwrap_or(page.total);
        }
        Ok(Self { at: (!at.is_empty()).then(|| at.to_owned()), result, cut })
    }

    /// The page of a document whose list at this position begins with this element of a longer one.
    pub(super) fn with_offset(mut self, at: &str, offset: usize) -> Self {
        for cut in self.cut.iter_mut().filter(|cut| cut.at == at) {
            cut.offset = cut.offset.saturating_add(offset);
            cut.total = cut.total.saturating_add(offset);
        }
        self
    }
}

/// A position in a message.
fn subject(at: &str) -> &str {
    if at.is_empty() { "the whole answer" } else { at }
}

/// The value at a position.
fn find<'v>(document: &'v Value, at: &str) -> Result<&'v Value, Failure> {
    if let Some(part) = document.pointer(at) {
        return Ok(part);
    }
    // The longest position that exists.
    let mut known = at;
    while let Some((shorter, _)) = known.rsplit_once('/') {
        known = shorter;
        if let Some(part) = document.pointer(known) {
            return Err(Failure::Error(format!(
                "the answer has no {at}: {} has {}",
                subject(known),
                parts(part, known, |_| true)
            )));
        }
    }
    Err(Failure::Error(format!(
        "at is a JSON pointer, and {at:?} is none: give one such as {}",
        parts(document, "", |_| true)
    )))
}

/// The positions of such fields of an object, or of the elements of a list.
fn parts(value: &Value, at: &str, is_such: impl Fn(&Value) -> bool) -> String {
    let positions: Vec<String> = match value {
        Value::Object(fields) => {
            let such = fields.iter().filter(|(_, value)| is_such(value)).take(NAMED);
            such.map(|(name, _)| format!("{at}/{}", escaped(name))).collect()
        }
        Value::Array(list) if !list.is_empty() => {
            vec![format!("{at}/0 to {at}/{}", list.len() - 1)]
        }
        _ => Vec::new(),
    };
    if positions.is_empty() { "it has none".to_owned() } else { positions.join(", ") }
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The elements of a list: of an array, or of an object whose names are numbers. `None` for other
/// values, and for a short array of numbers and texts.
fn list_length(value: &Value) -> Option<usize> {
    let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    match value {
        Value::Array(list) => {
            let is_row = list.len() <= VALUES
                && !list.iter().any(|value| value.is_array() || value.is_object());
            (!is_row).then_some(list.len())
        }
        Value::Object(fields) if !fields.is_empty() && fields.keys().all(is_number) => {
            Some(fields.len())
        }
        _ => None,
    }
}

/// The size of a name in JSON, in bytes.
fn quoted(name: &str) -> usize {
    Value::from(name).to_string().len() + 1
}

/// The part of a value that a page shows. It begins with empty lists, and grows by an element of each
/// list in turn, so that short lists and the first elements of long ones have room.
enum Shown<'v> {
    /// A number, a short text, or a row of them.
    Value(Value),
    Object(Vec<(&'v String, Shown<'v>)>),
    List(List<'v>),
}

struct List<'v> {
    source: &'v Value,
    text: usize,
    total: usize,
    /// The elements, with names if the list is an object.
    shown: Vec<(Option<&'v String>, Shown<'v>)>,
    /// The size for which the next element is too large.
    too_small: usize,
}

impl<'v> Shown<'v> {
    /// A value with empty lists. Subtracts its size; `None` if less is left.
    fn new(source: &'v Value, text: usize, left: &mut usize) -> Option<Self> {
        if let Some(total) = list_length(source) {
            spend(left, 3)?;
            return Some(Self::List(List { source, text, total, shown: Vec::new(), too_small: 0 }));
        }
        match source {
            Value::Object(fields) => {
                spend(left, 3)?;
                let field = |(name, value): (&'v String, &'v Value)| {
                    spend(left, quoted(name))?;
                    Some((name, Self::new(value, text, left)?))
                };
                fields.iter().map(field).collect::<Option<_>>().map(Self::Object)
            }
            value => {
                let value = shortened_value(value, text);
                spend(left, value.to_string().len() + 1)?;
                Some(Self::Value(value))
            }
        }
    }

    /// Adds an element of at most this size to each list that has more and room for it. True if any
    /// grew.
    fn grow(&mut self, limit: usize, largest: usize, left: &mut usize) -> bool {
        match self {
            Self::Value(_) => false,
            Self::Object(fields) => {
                let grow = |grew, (_, of): &mut (_, Self)| of.grow(limit, largest, left) | grew;
                fields.iter_mut().fold(false, grow)
            }
            Self::List(list) => {
                let grow = |grew, (_, of): &mut (_, Self)| of.grow(limit, largest, left) | grew;
                list.shown.iter_mut().fold(false, grow) | list.add(limit, largest, left)
            }
        }
    }

    fn finish(self, at: &str, cuts: &mut Cuts) -> Value {
        match self {
            Self::Value(value) => value,
            Self::Object(fields) => {
                let field = |(name, value): (&String, Self)| {
                    let at = format!("{at}/{}", escaped(name));
                    (name.clone(), value.finish(&at, cuts))
                };
                Value::Object(fields.into_iter().map(field).collect())
            }
            Self::List(list) => {
                if list.shown.len() < list.total {
                    cuts.add(at, list.shown.len(), list.total);
                }
                let inner = format!("{at}/*");
                let shown = list.shown.into_iter();
                let shown = shown.map(|(name, value)| (name, value.finish(&inner, cuts)));
                match list.source {
                    Value::Array(_) => shown.map(|(_, value)| value).collect(),
                    _ => {
                        let field =
                            |(name, value): (Option<&String>, _)| Some((name?.clone(), value));
                        Value::Object(shown.filter_map(field).collect())
                    }
                }
            }
        }
    }
}

impl<'v> List<'v> {
    fn add(&mut self, limit: usize, largest: usize, left: &mut usize) -> bool {
        let at = self.shown.len();
        // A table by number is for looking up what the rest names.
        let waits = self.source.is_object() && largest < PAGE_BYTES;
        if waits || at >= self.total.min(limit) || largest <= self.too_small {
            return false;
        }
        let (name, source) = match self.source {
            Value::Array(list) => (None, list.get(at)),
            Value::Object(fields) => {
                let field = fields.iter().nth(at);
                (field.map(|(name, _)| name), field.map(|(_, value)| value))
            }
            _ => (None, None),
        };
        let before = (*left).min(largest);
        let mut after = before;
        let added = source.and_then(|source| {
            spend(&mut after, name.map_or(0, |name| quoted(name)))?;
            Shown::new(source, self.text, &mut after)
        });
        let Some(added) = added else {
            // Later there is less room.
            self.too_small = largest;
            return false;
        };
        *left -= before - after;
        self.shown.push((name, added));
        true
    }
}

/// A number, a text without its middle if it is long, or a row of them.
fn shortened_value(value: &Value, text: usize) -> Value {
    match value {
        Value::String(long) if long.len() > text => shortened(long, text).into(),
        Value::Array(row) => row.iter().map(|value| shortened_value(value, text)).collect(),
        value => value.clone(),
    }
}

fn spend(left: &mut usize, bytes: usize) -> Option<()> {
    *left = left.checked_sub(bytes)?;
    Some(())
}

/// The shortened lists by position, in the order of the document.
#[derive(Default)]
struct Cuts {
    order: Vec<String>,
    lists: BTreeMap<String, (usize, usize)>,
}

impl Cuts {
    fn add(&mut self, at: &str, shown: usize, total: usize) {
        match self.lists.get_mut(at) {
            Some(list) => *list = (list.0.max(shown), list.1.max(total)),
            None => {
                self.order.push(at.to_owned());
                self.lists.insert(at.to_owned(), (shown, total));
            }
        }
    }

    fn into_list(mut self) -> Vec<Cut> {
        // Outer lists first.
        self.order.sort_by_key(|at| at.matches('*').count());
        let cut = |at: String| {
            let (shown, total) = self.lists.get(&at).copied().unwrap_or_default();
            Cut { at, offset: 0, shown, total }
        };
        self.order.into_iter().take(NAMED).map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(document: &Value, at: &str, offset: usize) -> Page {
        let args = PageArgs { at: Some(at.to_owned()), offset: Some(offset), limit: None };
        Page::new(document, &args).unwrap()
    }

    #[test]
    fn every_page_fits_and_keeps_the_fields() {
        let long = "x".repeat(100_000);
        let rows: Vec<Value> = (0..500)
            .map(|n| json!({ "n": n, "name": long, "parts": vec![vec![n; 9]; 70] }))
            .collect();
        let numbered: serde_json::Map<_, _> =
            (0..500).map(|n| (n.to_string(), json!({ "of": [n, n] }))).collect();
        let document =
            json!({ "rows": rows, "by_number": numbered, "text": "a\u{202e}\"b", "none": null });
        let all = page(&document, "", 0);
        assert!(all.result.to_string().len() <= PAGE_BYTES);
        assert_eq!(all.result.as_object().unwrap().len(), 4);
        assert_eq!(all.result["text"], document["text"]);
        let first = &all.result["rows"][0];
        assert_eq!(first.as_object().unwrap().len(), 3);
        assert!(first["name"].as_str().unwrap().len() < 1000);
        assert_eq!(first["parts"][0], document["rows"][0]["parts"][0]);
        let rows = all.cut.iter().find(|cut| cut.at == "/rows").unwrap();
        assert_eq!((rows.offset, rows.total), (0, 500));
        assert_eq!(rows.shown, all.result["rows"].as_array().unwrap().len());
        assert!(all.cut.iter().any(|cut| cut.at == "/rows/*/parts" && cut.total == 70));
        // One text has more room than a text among others.
        let text = page(&document, "/rows/3/name", 0).result;
        assert!(text.as_str().unwrap().len() > TEXT && text.to_string().len() <= PAGE_BYTES);
    }

    #[test]
    fn pages_of_a_list_follow_one_another() {
        let document = json!({ "rows": (0..3000).map(|n| json!({ "n": n })).collect::<Vec<_>>() });
        let mut found = Vec::new();
        loop {
            let page = page(&document, "/rows", found.len());
            assert!(page.result.to_string().len() <= PAGE_BYTES);
            found.extend(page.result.as_array().unwrap().iter().cloned());
            let Some(cut) = page.cut.first() else { break };
            assert_eq!((cut.at.as_str(), cut.total), ("/rows", 3000));
            assert_eq!(cut.offset + cut.shown, found.len());
        }
        assert_eq!(Value::Array(found), document["rows"]);
        assert_eq!(page(&document, "/rows", 5000).result, json!([]));
        let two = PageArgs { limit: Some(2), ..PageArgs::default() };
        assert_eq!(Page::new(&document, &two).unwrap().result["rows"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn positions_that_do_not_exist_name_those_that_do() {
        let wide: serde_json::Map<_, _> =
            (0..5000).map(|n| (format!("field/{n}"), json!(n))).collect();
        let document = json!({ "a": { "b": [1, { "c": 2 }] }, "wide": wide });
        let error = |at: &str| {
            let args = PageArgs { at: Some(at.to_owned()), ..PageArgs::default() };
            Page::new(&document, &args).unwrap_err().message().to_owned()
        };
        assert!(error("/a/c").ends_with("/a has /a/b"), "{}", error("/a/c"));
        assert!(error("/a/b/7").ends_with("/a/b has /a/b/0 to /a/b/1"), "{}", error("/a/b/7"));
        assert!(error("a").contains("JSON pointer"), "{}", error("a"));
        assert!(error("/wide").contains("/wide/field~11"), "{}", error("/wide"));
        assert_eq!(page(&document, "/wide/field~17", 0).result, json!(7));
    }
}
