//! A profile for people: text and the page.

pub(crate) mod html;
pub(crate) mod report;
