//! A profile as text.

mod counts;
mod range_table;
pub(crate) mod report;
