//! Copies of ranges that are opened before the recording begins.

use nvtx::observer::RangeStart;
use nvtx::{Category, Color, Payload};

/// The maximum length of a name in bytes.
const LONGEST_WAITING: usize = 1 << 10;

/// A copy of a range that is started when the recording begins.
#[derive(Debug)]
pub(super) struct Waiting {
    name: Box<str>,
    domain: Option<&'static str>,
    category: Option<Category>,
    color: Option<Color>,
    payload: Option<Payload>,
}

impl Waiting {
    /// Copies a range. `domain` is the name of the event's domain, which is never freed.
    pub(super) fn new(start: &RangeStart<'_>, domain: Option<&'static str>) -> Box<Waiting> {
        Box::new(Waiting {
            name: start.name[..start.name.floor_char_boundary(LONGEST_WAITING)].into(),
            domain,
            category: start.category,
            color: start.color,
            payload: start.payload,
        })
    }

    pub(super) fn start(&self) -> RangeStart<'_> {
        let mut start = RangeStart::new(&self.name);
        start.domain = self.domain;
        start.category = self.category;
        start.color = self.color;
        start.payload = self.payload;
        start
    }
}
