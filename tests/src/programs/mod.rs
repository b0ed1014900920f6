//! Programs with a known property, for the GPU tests and their recordings: slow for one reason and without it, before and after
//! a change with a known gain, with countable work, and with a single bottleneck.

pub mod bound;
pub mod case_studies;
pub mod diseases;
pub mod samples;

mod products;
