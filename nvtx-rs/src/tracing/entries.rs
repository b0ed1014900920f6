//! The spans that a thread has entered. NVTX's ranges nest and spans may not, so each thread has a
//! list.

use std::cell::{Cell, RefCell};

use tracing_core::span::Id;

use super::details::Details;
use super::instances::Step;
use super::kept::KeptFields;
use super::place::Place;
use crate::range::Range;

/// The data to start an entry's range, possibly more than once.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) place: &'static Place,
    pub(super) details: Option<Details>,
    pub(super) fields: KeptFields,
}

impl Described {
    fn range(&self) -> Range {
        self.place.range(self.details, &self.fields)
    }
}

/// The range of an entry, and its data.
#[derive(Debug)]
struct Begun {
    described: Described,
    range: Range,
}

/// An entered span.
struct Entry {
    /// The layer of the span: span numbers are unique only within a subscriber.
    layer: usize,
    span: u64,
    /// `None` if no tool or observer was active at the entry.
    begun: Option<Begun>,
}

/// Outermost first.
struct Entries(Vec<Entry>);

impl Drop for Entries {
    /// A thread that ends within spans ends the innermost range first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static ENTRIES: RefCell<Entries> = const { RefCell::new(Entries(Vec::new())) };
    /// True if the list has an entry. A separate static without a destructor.
    static ANY: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is in a recorded span.
#[inline]
pub(super) fn any() -> bool {
    ANY.get()
}

/// The names and numbers of the layer's ranges on this thread, outermost first.
pub(super) fn path(layer: usize) -> Box<[Step]> {
    let path = ENTRIES.try_with(|entries| {
        let entries = entries.try_borrow().ok()?;
        let of_layer = entries.0.iter().filter(|entry| entry.layer == layer);
        let begun = of_layer.filter_map(|entry| entry.begun.as_ref());
        Some(
            begun
                .map(|begun| (begun.described.place.name, begun.described.place.instance))
                .collect(),
        )
    });
    path.ok().flatten().unwrap_or_default()
}

/// Enters the span on this thread, with a range of this description if a tool or observer is
/// active.
///
/// The range starts while the entries are borrowed: spans that a tool or observer enters in its
/// handler find them borrowed and are not recorded.
pub(super) fn enter(layer: usize, span: &Id, seen: Option<Described>) {
    let _ = ENTRIES.try_with(|entries| {
        let Ok(mut entries) = entries.try_borrow_mut() else { return };
        let begin = |described: Described| Begun { range: described.range(), described };
        entries.0.push(Entry { layer, span: span.into_u64(), begun: seen.map(begin) });
        ANY.set(true);
    });
}

/// Leaves the last entry of the span on this thread; does nothing if no entry was recorded. Its
/// range receives the fields that `late` returns for a site with fields.
pub(super) fn exit(layer: usize, span: &Id, late: impl FnOnce(&KeptFields) -> KeptFields) {
    let _ = ENTRIES.try_with(|entries| {
        let Ok(mut entries) = entries.try_borrow_mut() else { return };
        let entries = &mut entries.0;
        let is_it = |entry: &Entry| entry.span == span.into_u64() && entry.layer == layer;
        let Some(place) = entries.iter().rposition(is_it) else { return };
        if let Some(begun) = &entries[place].begun
            && begun.described.place.has_fields
        {
            let late = late(&begun.described.fields);
            if !late.is_empty() {
                late.with_fields(|fields| begun.range.add_fields(fields));
            }
        }
        // NVTX ends the innermost range, so the ranges within this one end and start again.
        let inner = if entries[place].begun.is_some() { place + 1 } else { entries.len() };
        for begun in entries[inner..].iter_mut().rev().filter_map(|entry| entry.begun.as_mut()) {
            begun.range = Range::NONE;
        }
        entries.remove(place);
        for begun in entries[inner - 1..].iter_mut().filter_map(|entry| entry.begun.as_mut()) {
            begun.range = begun.described.range();
        }
        ANY.set(!entries.is_empty());
    });
}
