//! Starts and stops the recording by the name of a range.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use cupti::clock::now_ns;

use crate::mode;

/// Which range starts the recording, and what then happens.
pub(crate) struct Trigger {
    /// The exact name, in any domain.
    pub(crate) name: Box<str>,
    /// The number of instances after which the recording stops.
    pub(crate) instances: Option<u64>,
    /// Called at the first instance, before it begins, on its thread.
    pub(crate) start: fn(),
    /// Called with the end of the last instance, on its thread. Must not wait.
    pub(crate) stop: fn(u64),
}

/// An open range that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance(());

static TRIGGER: OnceLock<Trigger> = OnceLock::new();
static STARTED: Once = Once::new();
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Sets the trigger of this process, once.
pub(crate) fn arm(trigger: Trigger) {
    let _ = TRIGGER.set(trigger);
}

/// Called before a range begins. Starts the recording at the first one of the name; other threads wait for that.
#[cold]
pub(crate) fn range_begins(name: &str) -> Option<Instance> {
    let trigger = TRIGGER.get().filter(|trigger| *trigger.name == *name)?;
    STARTED.call_once(|| {
        (trigger.start)();
        if trigger.instances.is_none() {
            mode::disarm();
        }
    });
    trigger.instances.map(|_| Instance(()))
}

/// Called after an instance has ended.
#[cold]
pub(crate) fn range_ended(_instance: Instance) {
    let ended = ENDED.fetch_add(1, Ordering::AcqRel) + 1;
    if let Some(trigger) = TRIGGER.get()
        && trigger.instances == Some(ended)
    {
        mode::disarm();
        (trigger.stop)(now_ns());
    }
}
