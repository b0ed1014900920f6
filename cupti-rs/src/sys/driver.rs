//! Facts about driver and devices from libcuda, and the calling thread's CUDA context. libcuda is
//! opened and initialised before any CUPTI call: some CUPTI versions crash without a driver.

use std::ffi::{c_char, c_int, c_void};

use once_cell::sync::OnceCell;

use super::os::{self, Lookup};
use crate::device::{Device, Driver};
use crate::error::{Error, Kind};
use crate::forked;

const ATTRIBUTE_CLOCK_RATE: c_int = 13;
const ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
const ATTRIBUTE_PCI_BUS_ID: c_int = 33;
const ATTRIBUTE_PCI_DEVICE_ID: c_int = 34;
const ATTRIBUTE_MEMORY_CLOCK_RATE: c_int = 36;
const ATTRIBUTE_MEMORY_BUS_WIDTH: c_int = 37;
const ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
const ATTRIBUTE_PCI_DOMAIN_ID: c_int = 50;
const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;

macro_rules! functions {
    ($($(#[$doc:meta])* $group:ident { $($name:ident = $symbol:literal: fn($($type:ty),*);)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $group {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl $group {
            /// Finds every function by its name; the error is the name of a missing one.
            ///
            /// # Safety
            /// A function that is found by a name of libcuda's is libcuda's function.
            pub(super) unsafe fn load(lookup: &Lookup<'_>) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is the driver API's declaration of this function.
                        let found = unsafe {
                            os::function::<unsafe extern "C" fn($($type),*) -> c_int>(lookup, $symbol)
                        };
                        found.ok_or($symbol)?
                    },)*
                })
            }
        }
    )*};
}

functions! {
    /// The driver's functions for its facts and devices.
    Devices {
        init = "cuInit": fn(u32);
        version = "cuDriverGetVersion": fn(*mut c_int);
        device_count = "cuDeviceGetCount": fn(*mut c_int);
        device = "cuDeviceGet": fn(*mut c_int, c_int);
        device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
        device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
        device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    }
    /// The driver's functions for the context that is current on the calling thread.
    Contexts {
        get_current = "cuCtxGetCurrent": fn(*mut *mut c_void);
        get_device = "cuCtxGetDevice": fn(*mut c_int);
        synchronize = "cuCtxSynchronize": fn();
        allocate = "cuMemAlloc_v2": fn(*mut u64, usize);
        free = "cuMemFree_v2": fn(u64);
        fill = "cuMemsetD8_v2": fn(u64, u8, usize);
    }
}

/// libcuda's functions, loaded once. A failure is not stored: the next call tries again.
fn functions() -> Result<&'static (Devices, Contexts), Error> {
    static FUNCTIONS: OnceCell<(Devices, Contexts)> = OnceCell::new();
    let no_driver = |reason| Error::new(Kind::NoDriver { reason });
    let lacks = |symbol: &str| no_driver(format!("it has no function {symbol}"));
    FUNCTIONS.get_or_try_init(|| {
        // SAFETY: libcuda's initialisers are made to run in any process.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }
            .map_err(|error| no_driver(os::reason(&error)))?;
        let lookup = |symbol: &str| os::address(&library, symbol);
        // SAFETY: this is libcuda.
        let devices = unsafe { Devices::load(&lookup) }.map_err(lacks)?;
        // SAFETY: as above.
        let contexts = unsafe { Contexts::load(&lookup) }.map_err(lacks)?;
        // CUDA needs the library until the process ends, and so do the functions.
        std::mem::forget(library);
        Ok((devices, contexts))
    })
}

/// A CUDA context that was current on a thread; only an argument for the driver and for CUPTI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(usize);

impl Context {
    /// Returns the context with this handle; `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `handle` is null or a context that CUPTI passed to the current callback.
    pub(super) unsafe fn from_callback(handle: *mut c_void) -> Option<Self> {
        (!handle.is_null()).then(|| Self(handle.expose_provenance()))
    }

    pub(crate) fn handle(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Contexts {
    /// Returns the functions of libcuda, which is loaded at the first call.
    pub(crate) fn open() -> Result<Self, Error> {
        functions().map(|(_, contexts)| *contexts)
    }

    /// Returns the context and its device's ordinal; `None` if the thread has no context.
    pub(crate) fn current(&self) -> Result<Option<(Context, u32)>, Error> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is live memory for a handle.
        check("cuCtxGetCurrent", unsafe { (self.get_current)(&mut context) })?;
        if context.is_null() {
            return Ok(None);
        }
        let mut device = 0;
        // SAFETY: `device` is a live int, and the thread has a context.
        check("cuCtxGetDevice", unsafe { (self.get_device)(&mut device) })?;
        Ok(Some((Context(context.expose_provenance()), device.max(0) as u32)))
    }

    /// Waits for all work of the current context.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        forked::check_process()?;
        // SAFETY: takes no arguments; without a context it is refused.
        check("cuCtxSynchronize", unsafe { (self.synchronize)() })
    }
}

/// Device memory of one context. A drop frees it if that context is current; otherwise it lasts as
/// long as the context.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    contexts: Contexts,
    context: Context,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates in this context, which must be current on the calling thread.
    pub(crate) fn new(contexts: Contexts, context: Context, bytes: usize) -> Result<Self, Error> {
        forked::check_process()?;
        let mut address = 0;
        // SAFETY: `address` is live memory for a device address.
        check("cuMemAlloc", unsafe { (contexts.allocate)(&mut address, bytes) })?;
        Ok(Self { contexts, context, address, bytes })
    }

    fn is_current(&self) -> bool {
        matches!(self.contexts.current(), Ok(Some((context, _))) if context == self.context)
    }

    /// Writes zeros to all of it and waits for its context. `false` if another context is current.
    pub(crate) fn fill(&self) -> Result<bool, Error> {
        forked::check_process()?;
        if !self.is_current() {
            return Ok(false);
        }
        // SAFETY: an allocation of this many bytes, which only the drop frees, in the context that
        // is current.
        check("cuMemsetD8", unsafe { (self.contexts.fill)(self.address, 0, self.bytes) })?;
        self.contexts.synchronize()?;
        Ok(true)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if forked::check_process().is_ok() && self.is_current() {
            // SAFETY: an allocation of the current context, freed only here.
            let _ = unsafe { (self.contexts.free)(self.address) };
        }
    }
}

fn check(function: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::new(Kind::Driver { function, code })) }
}

/// Returns the facts that the driver reports before its initialisation.
pub(crate) fn facts_without_devices() -> Result<Driver, Error> {
    let mut version = 0;
    // SAFETY: `version` is a live int; the function needs no initialised driver.
    check("cuDriverGetVersion", unsafe { (functions()?.0.version)(&mut version) })?;
    let cuda_version = version.max(0).cast_unsigned();
    Ok(Driver { cuda_version, release: release(), devices: Vec::new() })
}

/// Initialises the driver and reads the facts about it and its devices.
pub(crate) fn probe() -> Result<Driver, Error> {
    let (cuda, _) = functions()?;
    // SAFETY: cuInit takes a flags word that must be 0 and may be called any number of times.
    check("cuInit", unsafe { (cuda.init)(0) })?;
    let driver = facts_without_devices()?;
    let mut count = 0;
    // SAFETY: `count` is a live int and the driver is initialised.
    check("cuDeviceGetCount", unsafe { (cuda.device_count)(&mut count) })?;
    if count <= 0 {
        return Err(Error::new(Kind::NoDevice));
    }
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: `device` is a live int and `ordinal` is below the count that the driver returned.
        check("cuDeviceGet", unsafe { (cuda.device)(&mut device, ordinal) })?;
        let mut name = [0u8; 256];
        // SAFETY: `name` has 256 bytes, one more than the length passed, so that it ends in a NUL
        // whatever is written.
        let code = unsafe { (cuda.device_name)(name.as_mut_ptr().cast(), 255, device) };
        check("cuDeviceGetName", code)?;
        let mut memory = 0;
        // SAFETY: `memory` is a live usize and `device` came from cuDeviceGet.
        check("cuDeviceTotalMem", unsafe { (cuda.device_memory)(&mut memory, device) })?;
        let attribute = |which: c_int| -> Result<u32, Error> {
            let mut value = 0;
            // SAFETY: `value` is a live int and `device` came from cuDeviceGet.
            let code = unsafe { (cuda.device_attribute)(&mut value, which, device) };
            check("cuDeviceGetAttribute", code)?;
            // None of these attributes is negative.
            Ok(u32::try_from(value).unwrap_or_default())
        };
        // For an unknown one the driver returns 0, or an error.
        let known = |which: c_int| attribute(which).ok().filter(|value| *value != 0);
        let memory_clock = known(ATTRIBUTE_MEMORY_CLOCK_RATE).map(u64::from);
        let bus_bits = known(ATTRIBUTE_MEMORY_BUS_WIDTH).map(u64::from);
        let pci = [ATTRIBUTE_PCI_DOMAIN_ID, ATTRIBUTE_PCI_BUS_ID, ATTRIBUTE_PCI_DEVICE_ID];
        let pci_bus_id = match pci.map(&attribute) {
            [Ok(domain), Ok(bus), Ok(slot)] => Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.0")),
            _ => None,
        };
        let length = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        devices.push(Device {
            id: ordinal as u32,
            name: String::from_utf8_lossy(&name[..length]).into_owned(),
            compute_capability: (
                attribute(ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory as u64,
            core_clock_khz: known(ATTRIBUTE_CLOCK_RATE),
            memory_bandwidth: memory_clock
                .zip(bus_bits)
                .map(|(khz, bits)| khz.saturating_mul(2 * 1000).saturating_mul(bits) / 8),
            l2_bytes: known(ATTRIBUTE_L2_CACHE_SIZE).map(u64::from),
            pci_bus_id,
        });
    }
    Ok(Driver { devices, ..driver })
}

/// Returns the kernel module's version: the first word of its line with the form of a version.
pub(crate) fn release() -> Option<String> {
    release_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn release_in(text: &str) -> Option<String> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_version = |word: &&str| word.contains('.') && word.split('.').all(is_number);
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_unusable_after_fork_gives_advice() {
        let text = check("cuInit", 3).unwrap_err().to_string();
        assert!(
            text.contains("cuInit") && text.contains("forked") && text.contains("exec"),
            "{text}"
        );
        assert!(check("cuInit", 999).unwrap_err().to_string().contains("nvidia-smi"));
    }

    #[test]
    fn kernel_module_reports_its_version() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)";
        assert_eq!(release_in(open).as_deref(), Some("580.159.04"));
        assert_eq!(release_in("NVRM version: none"), None);
        assert_eq!(release_in(""), None);
    }
}
