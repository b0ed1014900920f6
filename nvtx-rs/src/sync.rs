//! Locks implemented by the program, whose use tools can show.

use crate::domain::{DomainKeep, DomainRef};
use crate::observer::{self, SyncStep};
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, SyncAttributes, Text};
use crate::text::with_c_str;

/// A lock, semaphore or similar object built on atomics, invisible to tools. Made by
/// [`Domain::sync_object`](crate::Domain::sync_object) and [`sync_object`].
///
/// The steps are types: only an acquired object can be released.
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

    /// Reports that this thread starts to acquire the object.
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

/// An attempt to acquire a [`SyncObject`]. Dropping it reports a failure.
#[must_use = "dropping it reports that the attempt failed"]
#[derive(Debug)]
pub struct Acquiring<'a> {
    object: &'a SyncObject,
    open: bool,
}

impl<'a> Acquiring<'a> {
    /// Reports that this thread holds the object.
    pub fn succeeded(mut self) -> Acquired<'a> {
        self.open = false;
        self.object.step(SyncStep::AcquireSuccess, functions::sync_acquire_success);
        Acquired { object: self.object }
    }

    /// Reports that the attempt failed.
    pub fn failed(self) {}
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if self.open {
            self.object.step(SyncStep::AcquireFailed, functions::sync_acquire_failed);
        }
    }
}

/// A held [`SyncObject`]. Dropping it reports the release.
#[must_use = "dropping it reports that the object is released"]
#[derive(Debug)]
pub struct Acquired<'a> {
    object: &'a SyncObject,
}

impl Acquired<'_> {
    /// Reports the release. Call it before releasing the lock, so that the next holder is reported
    /// later.
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
