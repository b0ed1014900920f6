//! A profile as text and as an HTML page.

#[cfg(feature = "analysis")]
pub(crate) mod html;
pub(crate) mod report;
