//! A profile for people: text and the page.

#[cfg(feature = "analysis")]
pub(crate) mod html;
pub(crate) mod report;
