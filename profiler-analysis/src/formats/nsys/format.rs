//! Numbers of nsys's format and their meanings.

use cupti::MemoryKind;

use crate::reports::texts::MEMORY_KINDS;
use profiler_core::series::{Kind, Unit};
#[cfg(feature = "nsys")]
use profiler_core::tables::Api;

/// The NVTX values of `ENUM_NSYS_EVENT_TYPE`.
pub(super) mod event {
    pub(crate) const CATEGORY: i64 = 33;
    pub(crate) const MARK: i64 = 34;
    #[cfg(feature = "nsys")]
    pub(crate) const THREAD: i64 = 39;
    pub(crate) const PUSH_POP: i64 = 59;
    pub(crate) const START_END: i64 = 60;
    /// Ranges imported by nsys from NVTXT text files.
    #[cfg(feature = "nsys")]
    pub(crate) const NVTXT_PUSH_POP: i64 = 70;
    #[cfg(feature = "nsys")]
    pub(crate) const NVTXT_START_END: i64 = 71;
    pub(crate) const DOMAIN: i64 = 75;
}

/// `ENUM_NSYS_EVENT_CLASS`: the API of a call.
pub(super) const RUNTIME: i64 = 0;
pub(super) const DRIVER: i64 = 1;

/// Names of our own in `META_DATA_CAPTURE`: nsys stores these versions only in the environment, if
/// at all.
pub(super) const CUPTI_VERSION: &str = "CUPTI_VERSION";
pub(super) const CUDA_VERSION: &str = "CUDA_DRIVER_VERSION";
pub(super) const DRIVER_RELEASE: &str = "DRIVER_RELEASE";

/// The type of a device's metrics, with the device number in the last byte.
pub(super) fn metric_type(device: u32) -> i64 {
    0x1_0001_0000_0000 | i64::from(device & 0xff)
}

/// Units of metrics by the suffix of their names. The first two are nsys's, the others our own.
pub(super) const METRIC_ENDS: [(&str, Unit, Kind); 4] = [
    ("[Throughput %]", Unit::Percent, Kind::Mean),
    ("[MHz]", Unit::Hertz, Kind::Mean),
    ("[B per sample]", Unit::Bytes, Kind::Total),
    ("[per sample]", Unit::Count, Kind::Total),
];

/// A metric's name with its unit.
pub(super) fn metric_name(label: &str, unit: Unit, kind: Kind) -> String {
    let end = METRIC_ENDS.into_iter().find(|(_, of, how)| (*of, *how) == (unit, kind));
    match end {
        Some((end, ..)) => format!("{label} {end}"),
        None => label.to_owned(),
    }
}

/// CUPTI's id for the absence of a stream.
pub(super) const NO_STREAM: u32 = u32::MAX;

/// The kind of memory by its number.
#[cfg(feature = "nsys")]
pub(super) fn memory_kind(number: Option<u32>) -> MemoryKind {
    let known = number.and_then(|number| MEMORY_KINDS.get(number as usize));
    known.map_or(MemoryKind::UNKNOWN, |(kind, _)| *kind)
}

/// The number of a kind of memory.
pub(super) fn memory_number(kind: MemoryKind) -> u32 {
    let known = MEMORY_KINDS.iter().position(|(known, _)| *known == kind);
    known.unwrap_or(MEMORY_KINDS.len()) as u32
}

/// The thread of a `globalTid`: hardware, machine, process and thread in 8, 8, 24 and 24 bits.
#[cfg(feature = "nsys")]
pub(super) fn thread_of(global: u64) -> u32 {
    (global & 0xff_ffff) as u32
}

/// The bits above the thread, which identify a process.
#[cfg(feature = "nsys")]
pub(super) fn process_of(global: u64) -> u64 {
    global >> 24
}

/// A `globalTid` on nsys's virtual machine 1. Bits of a process above its 24 add to the machine.
pub(super) fn global(process: u32, thread: u32) -> u64 {
    let machine = 1 + u64::from(process >> 24);
    machine << 48 | u64::from(process & 0xff_ffff) << 24 | u64::from(thread & 0xff_ffff)
}

/// The API of an event class.
#[cfg(feature = "nsys")]
pub(super) fn api(event_class: Option<i64>) -> Option<Api> {
    match event_class? {
        RUNTIME => Some(Api::Runtime),
        DRIVER => Some(Api::Driver),
        _ => None,
    }
}

#[cfg(all(test, feature = "nsys"))]
mod tests {
    use super::*;

    #[test]
    fn a_global_number_is_a_process_and_a_thread() {
        assert_eq!(global(438, 438), 281_482_325_131_702);
        assert_eq!(thread_of(281_482_325_131_740), 476);
        assert_eq!(process_of(281_482_325_131_740), process_of(281_482_325_131_264));
    }
}
