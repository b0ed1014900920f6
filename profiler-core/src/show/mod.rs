//! A profile as text and as an HTML page.

#[cfg(feature = "analysis")]
pub(crate) mod html;
mod range_table;
pub(crate) mod report;
