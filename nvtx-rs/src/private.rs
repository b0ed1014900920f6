//! All that the expansion of `#[annotate]` may touch. Outside semver: it changes with the macro.
//!
//! The expansion has to compile in every edition that a caller may use:
//!
#![cfg_attr(feature = "macros", doc = "```edition2018")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! #[nvtx::annotate]
//! fn work() -> Result<u32, std::num::ParseIntError> { "7".parse() }
//! assert_eq!(work(), Ok(7));
//! ```
//!
#![cfg_attr(feature = "macros", doc = "```edition2021")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! #[nvtx::annotate]
//! fn work() -> Result<u32, std::num::ParseIntError> { "7".parse() }
//! assert_eq!(work(), Ok(7));
//! ```

use crate::Range;

/// Starts the range of an annotated function.
#[inline]
pub fn range(name: &'static str) -> Range {
    crate::range(name)
}
