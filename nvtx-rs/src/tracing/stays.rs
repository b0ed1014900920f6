//! The spans that a thread is in. NVTX's ranges nest and those of spans need not, so each thread knows its own.

use std::cell::{Cell, RefCell};

use tracing_core::span::Id;

use super::details::Details;
use super::place::Place;
use crate::range::Range;

/// The range of a stay, and what it takes to begin it again.
#[derive(Debug)]
struct Begun {
    place: &'static Place,
    details: Option<Details>,
    range: Range,
}

/// A span that this thread is in.
struct Stay {
    /// Whose it is: two subscribers may give two spans of one thread the same number.
    layer: usize,
    span: u64,
    /// `None` where nobody looked when it was entered.
    begun: Option<Begun>,
}

/// Outermost first.
struct Stays(Vec<Stay>);

impl Drop for Stays {
    /// A thread that ends within spans leaves the innermost first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static STAYS: RefCell<Stays> = const { RefCell::new(Stays(Vec::new())) };
    /// Whether there is one. Apart, since this has no destructor to register and to look after.
    static ANY: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a span that somebody saw it enter, or in one within such a span.
#[inline]
pub(super) fn any() -> bool {
    ANY.get()
}

/// This thread is in the span from now on, with a range of this place and these details if somebody looks.
///
/// The range begins while the stays are borrowed: spans of a tool's or observer's own, which it makes while it is told
/// of this one, find them taken, and it is told of none of them.
pub(super) fn enter(layer: usize, span: &Id, seen: Option<(&'static Place, Option<Details>)>) {
    let _ = STAYS.try_with(|stays| {
        let Ok(mut stays) = stays.try_borrow_mut() else { return };
        let begin = |(place, details)| Begun { place, details, range: place.range(details) };
        stays.0.push(Stay { layer, span: span.into_u64(), begun: seen.map(begin) });
        ANY.set(true);
    });
}

/// This thread leaves the span where it entered it last; nothing, if nobody saw it enter.
pub(super) fn exit(layer: usize, span: &Id) {
    let _ = STAYS.try_with(|stays| {
        let Ok(mut stays) = stays.try_borrow_mut() else { return };
        let stays = &mut stays.0;
        let is_it = |stay: &Stay| stay.span == span.into_u64() && stay.layer == layer;
        let Some(place) = stays.iter().rposition(is_it) else { return };
        // NVTX ends ranges from the inside, so those within it end, and begin again.
        let inner = if stays[place].begun.is_some() { place + 1 } else { stays.len() };
        for begun in stays[inner..].iter_mut().rev().filter_map(|stay| stay.begun.as_mut()) {
            begun.range = Range::NONE;
        }
        stays.remove(place);
        for begun in stays[inner - 1..].iter_mut().filter_map(|stay| stay.begun.as_mut()) {
            begun.range = begun.place.range(begun.details);
        }
        ANY.set(!stays.is_empty());
    });
}
