//! Identifiers of objects that can be named: threads, devices, streams, locks.

use std::ffi::c_void;

/// The object of a [`Resource`](crate::Resource). Pointers and handles are numbers, which tools
/// show or compare. Nothing dereferences them, so they may be invalid.
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
    /// An object with an address.
    pointer(*const c_void) = 1, 1;
    /// An object with a handle.
    handle(u64) = 1, 2;
    /// A thread by its id of the operating system.
    thread(u32) = 1, 3;
    /// A thread by its `pthread_t`.
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
    /// An object of another kind: NVTX's class and index of the kind, and the value.
    #[must_use]
    pub const fn other(class: u16, index: u16, value: u64) -> ResourceId {
        ResourceId { kind: (class as u32) << 16 | index as u32, value }
    }

    /// NVTX's number of the kind: the class in the upper 16 bits, the index in the lower.
    pub const fn kind(self) -> u32 {
        self.kind
    }

    /// The address, handle or number.
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
        // The union's member is an int at its start.
        self.cast_unsigned().into()
    }
}
