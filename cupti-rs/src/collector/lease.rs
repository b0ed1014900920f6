//! The right to collect: one holder at a time in a process.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind};
use crate::sys::injected;
use crate::{collection_state, forked};

/// The process id of the holder, or 0: CUPTI has one subscriber, so a process has one collector at
/// a time.
static COLLECTING: AtomicU32 = AtomicU32::new(0);

/// The process's right to collect; dropping it releases the right.
#[derive(Debug)]
pub(crate) struct CollectorLease(u32);

impl CollectorLease {
    /// Takes the lease as [`take`](Self::take) does, after gpuprof's injection library has ended
    /// its recording of this process.
    pub(crate) fn take_from_injected() -> Result<Self, Error> {
        let lease = Self::take()?;
        injected::end_recording();
        Ok(lease)
    }

    pub(crate) fn take() -> Result<Self, Error> {
        // Even if the parent's collection had ended before the fork.
        forked::check_process()?;
        collection_state::leave_children_out();
        let process = std::process::id();
        match COLLECTING.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed) {
            Err(other) if other == process => Err(Error::new(Kind::AlreadyCollecting)),
            Err(_) => Err(Error::new(Kind::Forked)),
            Ok(_) => Ok(Self(process)),
        }
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        self.0 == std::process::id()
    }
}

impl Drop for CollectorLease {
    fn drop(&mut self) {
        // A forked child holds no lease and can take none: CUPTI does not work there.
        if self.is_of_this_process() {
            COLLECTING.store(0, Ordering::Release);
        }
    }
}
