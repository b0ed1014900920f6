//! Device memory: usage over time, the peak, and allocations that were not freed.

use std::fmt;
use std::time::Duration;

use cupti::MemoryKind;
use profiler_base::{getters, order, units};
use rustc_hash::FxHashMap;

use crate::join::tables;
use crate::profile::{ApiCall, Profile, Range};

/// An allocation or a free (`CUPTI_ACTIVITY_KIND_MEMORY2`).
#[derive(Debug, Clone, Copy)]
pub struct MemoryEvent<'a> {
    profile: &'a Profile,
    row: &'a tables::MemoryEvent,
}

impl<'a> MemoryEvent<'a> {
    /// The time since the session's start.
    pub fn at(&self) -> Duration {
        self.profile.since_start(self.row.at_ns)
    }

    getters! {
        /// True for an allocation, false for a free.
        is_allocation: bool = row.is_allocation;
        /// The size in bytes.
        bytes: u64 = row.bytes;
        /// The address.
        address: u64 = row.address;
        /// The kind of memory.
        kind: MemoryKind = row.kind;
        /// The device's CUDA ordinal.
        device: u32 = row.device;
        /// The kernel's process id; 0 if the process recorded itself.
        process_id: u32 = row.process;
    }

    /// The call that allocated or freed.
    pub fn call(&self) -> Option<ApiCall<'a>> {
        self.row.call.get().map(|call| self.profile.call(call))
    }

    /// The range of the call.
    pub fn range(&self) -> Option<Range<'a>> {
        self.call()?.range()
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(MemoryEvent<'_>, "MemoryEvent", |event| {
    "at_ns": super::ns(event.at()),
    "is_allocation": event.is_allocation(),
    "bytes": event.bytes(),
    "address": event.address(),
    "range": event.range().map(|range| range.node().cut_path()),
});

#[cfg(feature = "serde")]
fn as_text<S: serde_core::Serializer>(kind: &MemoryKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

/// The number of allocated bytes from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPoint {
    /// The time since the session's start.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "at_ns", serialize_with = "profiler_base::statistics::as_ns")
    )]
    pub at: Duration,
    /// The bytes allocated in the session and not yet freed.
    pub bytes: u64,
}

/// The memory of one kind on one device, without allocations made before the session.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceMemory<'a> {
    /// The kernel's process id; 0 if the process recorded itself.
    pub process: u32,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The kind of memory.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub kind: MemoryKind,
    /// The number of allocations.
    pub allocations: u64,
    /// The sum of allocated bytes.
    pub allocated_bytes: u64,
    /// The number of frees, of known and unknown allocations.
    pub frees: u64,
    /// Frees whose allocation was not recorded, mostly made before the session.
    pub unknown_frees: u64,
    /// Allocations at an address that was still allocated; the free is missing.
    pub missing_frees: u64,
    /// Duplicate records of one allocation or free, which CUPTI 12.8 and 13.0 write for
    /// `cuMemAlloc` and `cuMemFree`. No other count includes them.
    pub repeated_records: u64,
    /// The allocated bytes after each event.
    pub timeline: Vec<MemoryPoint>,
    /// The first peak. `None` without allocations.
    pub peak: Option<MemoryPoint>,
    /// The allocation that reached the peak.
    pub peak_at: Option<MemoryEvent<'a>>,
    /// Allocations that were not freed in the session, by time: leaks, or memory that outlives it.
    pub not_freed: Vec<MemoryEvent<'a>>,
}

impl DeviceMemory<'_> {
    /// The bytes that were not freed in the session.
    pub fn bytes_at_end(&self) -> u64 {
        self.timeline.last().map_or(0, |point| point.bytes)
    }
}

impl fmt::Display for DeviceMemory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = units::bytes;
        write!(
            f,
            "device {}, {} memory: {} allocations ({}), {} frees",
            self.device,
            self.kind,
            self.allocations,
            bytes(self.allocated_bytes),
            self.frees
        )?;
        if let Some(peak) = self.peak {
            write!(f, "; most {} after {}", bytes(peak.bytes), units::time(peak.at))?;
        }
        if let Some(range) = self.peak_at.and_then(|event| event.range()) {
            write!(f, " in {}", units::shortened(&range.node().cut_path(), units::PATH_WIDTH))?;
        }
        if !self.not_freed.is_empty() {
            let left = bytes(self.bytes_at_end());
            write!(f, "; {left} in {} allocations not freed", self.not_freed.len())?;
        }
        for (name, count) in [
            ("frees of unrecorded allocations", self.unknown_frees),
            ("frees not seen", self.missing_frees),
        ] {
            if count != 0 {
                write!(f, "; {count} {name}")?;
            }
        }
        Ok(())
    }
}

impl Profile {
    /// All allocations and frees by time, without [duplicates](DeviceMemory::repeated_records).
    /// Empty unless `ActivityKind::MEMORY2` was recorded.
    pub fn memory_events(&self) -> impl Iterator<Item = MemoryEvent<'_>> {
        self.store.memory_events().map(|row| MemoryEvent { profile: self, row })
    }

    /// Memory by process, device and kind. Empty without records: no allocation was made, or
    /// `ActivityKind::MEMORY2` was not recorded.
    pub fn memory(&self) -> Vec<DeviceMemory<'_>> {
        let mut devices: Vec<DeviceMemory<'_>> = Vec::new();
        let mut places = FxHashMap::default();
        // Allocations by address, with their row. A free may have another memory kind than its
        // allocation.
        let mut live: FxHashMap<(u32, u64), (usize, MemoryEvent<'_>)> = FxHashMap::default();
        // The row to which the last event at an address was added.
        let mut counted: FxHashMap<(u32, u64), usize> = FxHashMap::default();
        for row in &self.store.memory {
            let event = MemoryEvent { profile: self, row };
            let address = (row.process, row.address);
            if row.is_repeat {
                if let Some(&place) = counted.get(&address) {
                    devices[place].repeated_records += 1;
                }
                continue;
            }
            let freed = live.remove(&address);
            let place = match (row.is_allocation, &freed) {
                (false, Some((place, _))) => *place,
                _ => *places.entry((row.process, row.device, row.kind)).or_insert_with(|| {
                    devices.push(DeviceMemory::new(row));
                    devices.len() - 1
                }),
            };
            let at = event.at();
            if let Some((of, allocation)) = freed {
                let memory = &mut devices[of];
                memory.missing_frees += u64::from(row.is_allocation);
                memory.change(at, |bytes| bytes.saturating_sub(allocation.row.bytes));
            } else if !row.is_allocation {
                devices[place].unknown_frees += 1;
            }
            counted.insert(address, place);
            let memory = &mut devices[place];
            if !row.is_allocation {
                memory.frees += 1;
                continue;
            }
            memory.allocations += 1;
            memory.allocated_bytes = memory.allocated_bytes.saturating_add(row.bytes);
            let now = memory.change(at, |bytes| bytes.saturating_add(row.bytes));
            if memory.peak.is_none_or(|peak| now.bytes > peak.bytes) {
                (memory.peak, memory.peak_at) = (Some(now), Some(event));
            }
            live.insert(address, (place, event));
        }
        for (place, event) in live.into_values() {
            devices[place].not_freed.push(event);
        }
        for memory in &mut devices {
            order::sort_by_key(&mut memory.not_freed, |event| (event.row.at_ns, event.row.address));
        }
        order::sort_by_key(&mut devices, |memory| (memory.process, memory.device, memory.kind));
        devices
    }
}

impl DeviceMemory<'_> {
    fn new(of: &tables::MemoryEvent) -> Self {
        Self {
            process: of.process,
            device: of.device,
            kind: of.kind,
            allocations: 0,
            allocated_bytes: 0,
            frees: 0,
            unknown_frees: 0,
            missing_frees: 0,
            repeated_records: 0,
            timeline: Vec::new(),
            peak: None,
            peak_at: None,
            not_freed: Vec::new(),
        }
    }

    fn change(&mut self, at: Duration, change: impl FnOnce(u64) -> u64) -> MemoryPoint {
        let point = MemoryPoint { at, bytes: change(self.bytes_at_end()) };
        self.timeline.push(point);
        point
    }
}
