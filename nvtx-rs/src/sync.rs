//! Locks of the program's own making, whose waiting and holding tools can show.

use crate::domain::{DomainKeep, DomainRef};
use crate::observer::{self, SyncStep};
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, SyncAttributes, Text};
use crate::text::with_c_str;

/// A lock, semaphore or the like that is built on atomics, so that no tool can see it by itself. Made
/// by [`Domain::sync_object`](crate::Domain::sync_object) and [`sync_object`].
///
/// The steps are types: what was not acquired can't be released.
///
/// ```
/// let object = nvtx::sync_object("queue");
/// let attempt = object.acquire();
/// // ... spin until the lock is ours ...
/// let held = attempt.succeeded();
/// // ... work under the lock ...
/// held.release();
/// ```
#[derive(Debug)]
pub struct SyncObject {
    handle: Handle,
    name: Box<str>,
    domain: DomainKeep,
}

impl SyncObject {
    pub(crate) fn new(domain: DomainRef<'_>, name: &str) -> SyncObject {
        let mut handle = Handle::NULL;
        if state::has_tool() {
            let domain = domain.handle_or_null();
            let created = with_c_str(name, |name| {
                functions::sync_create(domain, &SyncAttributes::new(Text::new(name)))
            });
            handle = created.unwrap_or(Handle::NULL);
        }
        SyncObject { handle, name: name.into(), domain: domain.keep() }
    }

    /// This thread begins to try to get it.
    pub fn acquire(&self) -> Acquiring<'_> {
        self.step(SyncStep::AcquireStart, functions::sync_acquire_start);
        Acquiring { object: self, open: true }
    }

    fn step(&self, step: SyncStep, tell: fn(Handle) -> Option<()>) {
        if state::is_idle() {
            return;
        }
        if !self.handle.is_null() {
            tell(self.handle);
        }
        observer::sync(self.domain.as_ref(), &self.name, step);
    }
}

impl Drop for SyncObject {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            functions::sync_destroy(self.handle);
        }
    }
}

/// An attempt to get a [`SyncObject`]. Dropping it says that it failed.
#[must_use = "dropping it says that the attempt failed"]
#[derive(Debug)]
pub struct Acquiring<'a> {
    object: &'a SyncObject,
    open: bool,
}

impl<'a> Acquiring<'a> {
    /// The object is this thread's.
    pub fn succeeded(mut self) -> Acquired<'a> {
        self.open = false;
        self.object.step(SyncStep::AcquireSuccess, functions::sync_acquire_success);
        Acquired { object: self.object }
    }

    /// The attempt was given up.
    pub fn failed(self) {}
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if self.open {
            self.object.step(SyncStep::AcquireFailed, functions::sync_acquire_failed);
        }
    }
}

/// A [`SyncObject`] that is held. Dropping it says that it is being released.
#[must_use = "dropping it says that the object is released"]
#[derive(Debug)]
pub struct Acquired<'a> {
    object: &'a SyncObject,
}

impl Acquired<'_> {
    /// The object is about to be released: tell before, so that the next holder comes after.
    pub fn release(self) {}
}

impl Drop for Acquired<'_> {
    fn drop(&mut self) {
        self.object.step(SyncStep::Releasing, functions::sync_releasing);
    }
}

/// [`Domain::sync_object`](crate::Domain::sync_object) in the default domain.
#[must_use]
pub fn sync_object(name: &str) -> SyncObject {
    SyncObject::new(DomainRef::Default, name)
}
