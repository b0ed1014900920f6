//! The profile as an HTML page.

pub(crate) mod html;
