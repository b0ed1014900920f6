//! Names for things that are no events: threads, devices, streams, locks.

use std::ffi::c_void;

use crate::domain::{DomainKeep, DomainRef};
use crate::observer::{self, Named};
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, ResourceAttributes, Text};
use crate::text::with_c_str;

/// What a [`Resource`] names. A pointer or handle is a number here: it is shown or compared by tools,
/// and nothing of ours follows it, so it may be stale or made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceId {
    kind: u32,
    value: u64,
}

macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $class:literal, $index:literal;)*) => {
        impl ResourceId {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(id: $type) -> ResourceId {
                    ResourceId { kind: $class << 16 | $index, value: id.bits() }
                }
            )*
        }
    };
}

resources! {
    /// Anything with an address.
    pointer(*const c_void) = 1, 1;
    /// Anything with a handle.
    handle(u64) = 1, 2;
    /// A thread, by the system's number.
    thread(u32) = 1, 3;
    /// A thread, by its `pthread_t`.
    posix_thread(u64) = 1, 4;
    /// A `pthread_mutex_t`.
    posix_mutex(*const c_void) = 3, 1;
    /// A `pthread_cond_t`.
    posix_condition(*const c_void) = 3, 2;
    /// A `pthread_rwlock_t`.
    posix_rwlock(*const c_void) = 3, 3;
    /// A `pthread_barrier_t`.
    posix_barrier(*const c_void) = 3, 4;
    /// A `CUdevice`.
    cu_device(i32) = 4, 1;
    /// A `CUcontext`.
    cu_context(*const c_void) = 4, 2;
    /// A `CUstream`.
    cu_stream(*const c_void) = 4, 3;
    /// A `CUevent`.
    cu_event(*const c_void) = 4, 4;
    /// A device of the CUDA runtime.
    cuda_device(i32) = 5, 0;
    /// A `cudaStream_t`.
    cuda_stream(*const c_void) = 5, 1;
    /// A `cudaEvent_t`.
    cuda_event(*const c_void) = 5, 2;
}

impl ResourceId {
    /// Something of another kind: NVTX's class and index of the kind, and the value.
    #[must_use]
    pub const fn other(class: u16, index: u16, value: u64) -> ResourceId {
        ResourceId { kind: (class as u32) << 16 | index as u32, value }
    }

    /// NVTX's number of the kind: the class in the upper 16 bits, the index in the lower.
    #[must_use]
    pub const fn kind(self) -> u32 {
        self.kind
    }

    /// The address, handle or number.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.value
    }
}

trait Bits {
    fn bits(self) -> u64;
}

impl Bits for *const c_void {
    fn bits(self) -> u64 {
        self.addr() as u64
    }
}

impl Bits for u64 {
    fn bits(self) -> u64 {
        self
    }
}

impl Bits for u32 {
    fn bits(self) -> u64 {
        self.into()
    }
}

impl Bits for i32 {
    fn bits(self) -> u64 {
        // The union's member is an int, at its front.
        self.cast_unsigned().into()
    }
}

/// A name that holds until it is dropped. Made by [`Domain::resource`](crate::Domain::resource) and
/// [`resource`].
#[must_use = "the name ends when this is dropped"]
#[derive(Debug)]
pub struct Resource {
    handle: Handle,
    /// The tool's object is of the domain's, so the domain has to stay.
    _domain: DomainKeep,
}

impl Resource {
    pub(crate) fn new(domain: DomainRef<'_>, id: ResourceId, name: &str) -> Resource {
        let mut handle = Handle::NULL;
        if state::has_tool() {
            let domain = domain.handle_or_null();
            let created = with_c_str(name, |name| {
                let attributes = ResourceAttributes::new(id.kind, id.value, Text::new(name));
                functions::resource_create(domain, &attributes)
            });
            handle = created.unwrap_or(Handle::NULL);
        }
        observer::named(&Named::Resource { id, domain: domain.name() }, name);
        Resource { handle, _domain: domain.keep() }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            functions::resource_destroy(self.handle);
        }
    }
}

/// [`Domain::resource`](crate::Domain::resource) in the default domain.
pub fn resource(id: ResourceId, name: &str) -> Resource {
    Resource::new(DomainRef::Default, id, name)
}
