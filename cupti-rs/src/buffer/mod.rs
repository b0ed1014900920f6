//! Activity buffers: lent to CUPTI on request, returned full, walked, copied to the log, reused.

mod callbacks;
mod log;
mod outstanding;
mod pointers;
mod pool;
mod walk;

pub(crate) use callbacks::{completed, requested};
pub(crate) use log::{LOG, Log, LogCounts};
pub(crate) use pool::{POOL, Sizes};
