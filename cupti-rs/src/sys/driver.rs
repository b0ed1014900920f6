//! The few facts about driver and devices that come from libcuda. It is opened and initialised before any CUPTI
//! call: some CUPTI versions crash without a driver.

use std::ffi::{c_char, c_int, c_void};

use super::os;
use crate::device::{Device, Driver};
use crate::error::{Error, Kind};
use crate::forked;

type Init = unsafe extern "C" fn(u32) -> c_int;
type DriverGetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type DeviceGetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type DeviceGetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type DeviceGetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type DeviceTotalMem = unsafe extern "C" fn(*mut usize, c_int) -> c_int;

type CtxGetCurrent = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type CtxGetDevice = unsafe extern "C" fn(*mut c_int) -> c_int;
type CtxSynchronize = unsafe extern "C" fn() -> c_int;

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

/// Opens libcuda, initialises it and reads what it says of the machine.
///
/// The library stays open for the life of the process, as CUDA itself needs.
pub(crate) fn probe() -> Result<Driver, Error> {
    let library = open()?;
    let result = read(&library);
    std::mem::forget(library);
    result
}

/// A CUDA context that was current on a thread. It is given to the driver and to CUPTI, which know their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context(usize);

impl Context {
    pub(crate) fn handle(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// What is asked of the context that is current on the calling thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contexts {
    pub(crate) get_current: CtxGetCurrent,
    pub(crate) get_device: CtxGetDevice,
    pub(crate) synchronize: CtxSynchronize,
}

impl Contexts {
    pub(crate) fn open() -> Result<Self, Error> {
        let library = open()?;
        let found = Self {
            // SAFETY: `CtxGetCurrent` is the declaration of this function.
            get_current: unsafe { symbol(&library, "cuCtxGetCurrent") }?,
            // SAFETY: `CtxGetDevice` is the declaration of this function.
            get_device: unsafe { symbol(&library, "cuCtxGetDevice") }?,
            // SAFETY: `CtxSynchronize` is the declaration of this function.
            synchronize: unsafe { symbol(&library, "cuCtxSynchronize") }?,
        };
        std::mem::forget(library);
        Ok(found)
    }

    /// The context and its device's ordinal; `None` where the thread has no context.
    pub(crate) fn current(&self) -> Result<Option<(Context, u32)>, Error> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is a live place for a handle.
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
        // SAFETY: takes nothing; without a context it is refused.
        check("cuCtxSynchronize", unsafe { (self.synchronize)() })
    }
}

fn open() -> Result<libloading::Library, Error> {
    // SAFETY: libcuda's initialisers are made to run in any process.
    let opened = unsafe { libloading::Library::new("libcuda.so.1") };
    opened.map_err(|e| Error::new(Kind::NoDriver { reason: os::reason(&e) }))
}

fn check(function: &'static str, code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::new(Kind::Driver { function, code })) }
}

/// # Safety
/// `T` is the pointer to the function of this name, as the driver API declares it.
unsafe fn symbol<T: Copy>(library: &libloading::Library, name: &'static str) -> Result<T, Error> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<T>(name) };
    match found {
        Ok(symbol) => Ok(*symbol),
        Err(e) => Err(Error::new(Kind::NoDriver { reason: os::reason(&e) })),
    }
}

fn read(library: &libloading::Library) -> Result<Driver, Error> {
    // SAFETY: `Init` is the declaration of this function.
    let init: Init = unsafe { symbol(library, "cuInit") }?;
    // SAFETY: `DriverGetVersion` is the declaration of this function.
    let get_version: DriverGetVersion = unsafe { symbol(library, "cuDriverGetVersion") }?;
    // SAFETY: `DeviceGetCount` is the declaration of this function.
    let get_count: DeviceGetCount = unsafe { symbol(library, "cuDeviceGetCount") }?;
    // SAFETY: `DeviceGet` is the declaration of this function.
    let get: DeviceGet = unsafe { symbol(library, "cuDeviceGet") }?;
    // SAFETY: `DeviceGetName` is the declaration of this function.
    let get_name: DeviceGetName = unsafe { symbol(library, "cuDeviceGetName") }?;
    // SAFETY: `DeviceGetAttribute` is the declaration of this function.
    let get_attribute: DeviceGetAttribute = unsafe { symbol(library, "cuDeviceGetAttribute") }?;
    // SAFETY: `DeviceTotalMem` is the declaration of this function.
    let total_mem: DeviceTotalMem = unsafe { symbol(library, "cuDeviceTotalMem_v2") }?;

    // SAFETY: cuInit takes a flags word that must be 0 and may be called any number of times.
    check("cuInit", unsafe { init(0) })?;
    let mut version = 0;
    // SAFETY: `version` is a live int.
    check("cuDriverGetVersion", unsafe { get_version(&mut version) })?;
    let mut count = 0;
    // SAFETY: `count` is a live int and the driver is initialised.
    check("cuDeviceGetCount", unsafe { get_count(&mut count) })?;
    if count <= 0 {
        return Err(Error::new(Kind::NoDevice));
    }
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: `device` is a live int and `ordinal` is below the count that the driver gave.
        check("cuDeviceGet", unsafe { get(&mut device, ordinal) })?;
        let mut name = [0u8; 256];
        // SAFETY: `name` has 256 bytes, one more than the length told, so that it ends in a NUL whatever is written.
        check("cuDeviceGetName", unsafe { get_name(name.as_mut_ptr().cast(), 255, device) })?;
        let mut memory = 0;
        // SAFETY: `memory` is a live usize and `device` came from cuDeviceGet.
        check("cuDeviceTotalMem", unsafe { total_mem(&mut memory, device) })?;
        let attribute = |which: c_int| -> Result<u32, Error> {
            let mut value = 0;
            // SAFETY: `value` is a live int and `device` came from cuDeviceGet.
            check("cuDeviceGetAttribute", unsafe { get_attribute(&mut value, which, device) })?;
            // None of these attributes is negative.
            Ok(u32::try_from(value).unwrap_or_default())
        };
        // A driver that does not tell one says 0, or refuses.
        let told = |which: c_int| attribute(which).ok().filter(|value| *value != 0);
        let memory_clock = told(ATTRIBUTE_MEMORY_CLOCK_RATE).map(u64::from);
        let bus_bits = told(ATTRIBUTE_MEMORY_BUS_WIDTH).map(u64::from);
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
            core_clock_khz: told(ATTRIBUTE_CLOCK_RATE),
            memory_bandwidth: memory_clock
                .zip(bus_bits)
                .map(|(khz, bits)| khz.saturating_mul(2 * 1000).saturating_mul(bits) / 8),
            l2_bytes: told(ATTRIBUTE_L2_CACHE_SIZE).map(u64::from),
            pci_bus_id,
        });
    }
    Ok(Driver { cuda_version: version.max(0) as u32, release: release(), devices })
}

/// The kernel module's version: the first word of its line that looks like one.
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
    fn a_driver_that_a_fork_left_behind_says_what_to_do() {
        let text = check("cuInit", 3).unwrap_err().to_string();
        assert!(
            text.contains("cuInit") && text.contains("forked") && text.contains("exec"),
            "{text}"
        );
        assert!(check("cuInit", 999).unwrap_err().to_string().contains("nvidia-smi"));
    }

    #[test]
    fn the_kernel_module_tells_its_version() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)";
        assert_eq!(release_in(open).as_deref(), Some("580.159.04"));
        assert_eq!(release_in("NVRM version: none"), None);
        assert_eq!(release_in(""), None);
    }
}
