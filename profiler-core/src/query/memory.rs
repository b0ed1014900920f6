//! Memory that the program allocated on its devices: how much at any time, the most, and what was not freed.

use std::fmt;
use std::time::Duration;

use cupti::MemoryKind;
use rustc_hash::FxHashMap;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::base::order;
use crate::base::statistics::as_ns;
use crate::base::units;
use crate::join::tables;
use crate::profile::{ApiCall, Profile, Range};

/// An allocation or a free (`CUPTI_ACTIVITY_KIND_MEMORY2`).
#[derive(Debug, Clone, Copy)]
pub struct MemoryEvent<'a> {
    profile: &'a Profile,
    row: &'a tables::MemoryEvent,
}

impl<'a> MemoryEvent<'a> {
    /// When, since the session's start.
    pub fn at(&self) -> Duration {
        self.profile.since_start(self.row.at_ns)
    }

    /// True for an allocation, false for a free.
    pub fn is_allocation(&self) -> bool {
        self.row.is_allocation
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.row.bytes
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.row.address
    }

    /// The kind of memory.
    pub fn kind(&self) -> MemoryKind {
        self.row.kind
    }

    /// The device's CUDA ordinal.
    pub fn device(&self) -> u32 {
        self.row.device
    }

    /// The kernel's id of its process; 0 if one process was recorded, by itself.
    pub fn process_id(&self) -> u32 {
        self.row.process
    }

    /// The call that did it.
    pub fn call(&self) -> Option<ApiCall<'a>> {
        self.row.call.get().map(|call| self.profile.call(call))
    }

    /// The range in which it was made.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        self.call()?.range()
    }
}

impl Serialize for MemoryEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("MemoryEvent", 5)?;
        out.serialize_field("at_ns", &super::ns(self.at()))?;
        out.serialize_field("is_allocation", &self.is_allocation())?;
        out.serialize_field("bytes", &self.bytes())?;
        out.serialize_field("address", &self.address())?;
        out.serialize_field("range", &self.range().map(|range| range.node().cut_path()))?;
        out.end()
    }
}

fn as_text<S: Serializer>(kind: &MemoryKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

/// How much was allocated from some time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryPoint {
    /// From when on, since the session's start.
    #[serde(rename = "at_ns", serialize_with = "as_ns")]
    pub at: Duration,
    /// The bytes that were allocated in the session and not freed.
    pub bytes: u64,
}

/// The memory of one kind on one device. What was allocated before the session began is not in it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct DeviceMemory<'a> {
    /// The kernel's id of its process; 0 if one process was recorded, by itself.
    pub process: u32,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The kind of memory.
    #[serde(serialize_with = "as_text")]
    pub kind: MemoryKind,
    /// How many allocations.
    pub allocations: u64,
    /// Their bytes, summed.
    pub allocated_bytes: u64,
    /// How many frees, of known allocations and of others.
    pub frees: u64,
    /// Those of them whose allocation is not in the recording: mostly made before the session.
    pub unknown_frees: u64,
    /// Allocations at an address where one was not freed yet, whose free is so missing.
    pub missing_frees: u64,
    /// Records that tell of the same call's allocation or free once more, as CUPTI 12.8 and 13.0 do for `cuMemAlloc` and
    /// `cuMemFree`. They count in nothing else.
    pub repeated_records: u64,
    /// How much was allocated, after each event.
    pub timeline: Vec<MemoryPoint>,
    /// When most was allocated, for the first time. `None` if nothing was.
    pub peak: Option<MemoryPoint>,
    /// The allocation that made it the most; its range is what the program was in.
    pub peak_at: Option<MemoryEvent<'a>>,
    /// What was not freed in the session, by time: leaks, or what lives longer than it.
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
            ("frees of what was not seen", self.unknown_frees),
            ("frees not seen", self.missing_frees),
        ] {
            if count != 0 {
                write!(f, "; {count} {name}")?;
            }
        }
        Ok(())
    }
}

/// All that was allocated and freed, by device and kind.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct MemoryUse<'a> {
    devices: Vec<DeviceMemory<'a>>,
}

impl<'a> MemoryUse<'a> {
    /// Each device and kind of memory.
    pub fn iter(&self) -> std::slice::Iter<'_, DeviceMemory<'a>> {
        self.devices.iter()
    }

    /// Memory of the kind `DEVICE` on a device, of the first process if there are several.
    pub fn on_device(&self, device: u32) -> Option<&DeviceMemory<'a>> {
        let wanted = |memory: &&DeviceMemory<'_>| {
            memory.device == device && memory.kind == MemoryKind::DEVICE
        };
        self.devices.iter().find(wanted)
    }
}

impl fmt::Display for MemoryUse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, memory) in self.devices.iter().enumerate() {
            let separator = if row == 0 { "" } else { "\n" };
            write!(f, "{separator}{memory}")?;
        }
        Ok(())
    }
}

impl<'m, 'a> IntoIterator for &'m MemoryUse<'a> {
    type Item = &'m DeviceMemory<'a>;
    type IntoIter = std::slice::Iter<'m, DeviceMemory<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Profile {
    /// Every allocation and free, by time; of what CUPTI tells [twice](DeviceMemory::repeated_records) the first record. None
    /// where their kind of record (`ActivityKind::MEMORY2`) was not asked for.
    pub fn memory_events(&self) -> impl Iterator<Item = MemoryEvent<'_>> {
        self.store.memory_events().map(|row| MemoryEvent { profile: self, row })
    }

    /// How much memory was allocated, by process, device and kind. `None` where no allocation or free was recorded: none
    /// was made, or their kind of record (`ActivityKind::MEMORY2`) was not asked for.
    pub fn memory(&self) -> Option<MemoryUse<'_>> {
        let mut devices: Vec<DeviceMemory<'_>> = Vec::new();
        let mut places = FxHashMap::default();
        // Where what lies at an address is counted. A free may name another kind than its allocation did.
        let mut live: FxHashMap<(u32, u64), (usize, MemoryEvent<'_>)> = FxHashMap::default();
        // Where the last event at an address was counted.
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
        (!devices.is_empty()).then_some(MemoryUse { devices })
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
