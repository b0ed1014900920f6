//! Activity buffers: handed to CUPTI when it asks, taken back full, walked, copied to the log, used again.

mod callbacks;
mod log;
mod outstanding;
mod pointers;
mod pool;
mod walk;

pub(crate) use callbacks::{completed, requested};
pub(crate) use log::{LOG, Log, LogCounts};
pub(crate) use pool::{POOL, Sizes};
