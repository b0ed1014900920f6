//! The recording info of a capture: time, versions and devices.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::file::TIMED_TABLES;
use super::super::{format, schema};
use super::Reader;
use crate::base::error::Error;
use crate::join::tables::Multiprocessor;
use crate::record::recording::{DeviceInfo, RecordingInfo};

impl Reader<'_> {
    pub(super) fn read_info(&mut self) -> Result<RecordingInfo, Error> {
        let file = self.file;
        let mut said: FxHashMap<String, String> = FxHashMap::default();
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"] {
            file.rows((table, "name, value"), |row| {
                if let (Some(name), Some(value)) = (row.text(0), row.text(1)) {
                    said.insert(name.into_owned(), value.into_owned());
                }
            })?;
        }
        let said = |name: &str| said.get(name).map_or("unknown", String::as_str);
        let (name, version) = (said("EXPORT_PRODUCT_NAME"), said("EXPORT_PRODUCT_VERSION"));
        let recorder_version =
            format!("{name} {version} (schema {})", said("EXPORT_SCHEMA_VERSION"));
        let number = |name: &str| said(name).parse().unwrap_or(0);
        let (cupti_version, cuda_driver_version) =
            (number(format::CUPTI_VERSION), number(format::CUDA_VERSION));
        let driver_release = match said(format::DRIVER_RELEASE) {
            "unknown" => None,
            release => Some(release.to_owned()),
        };
        // Newer schemas may have other meanings; known tables and columns are read.
        let major = said("EXPORT_SCHEMA_VERSION_MAJOR").parse::<u32>();
        self.health.capture_warnings += u64::from(major.is_ok_and(|major| major > SCHEMA_MAJOR));
        // The calendar time at the capture's time 0.
        let mut utc_ns = None;
        file.rows(("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), |row| {
            utc_ns = row.number::<i64>(0).filter(|ns| *ns >= 0);
        })?;
        let recorded_at_s = utc_ns.unwrap_or(0).unsigned_abs() / 1_000_000_000;
        let utc_offset_ns = utc_ns.and_then(|ns| ns.checked_sub_unsigned(file.zero_ns));
        file.rows(("ANALYSIS_DETAILS", "stopTime"), |row| {
            self.end_ns = self.end_ns.max(row.time(0).unwrap_or(0));
        })?;
        let end_ns = self.end_ns;
        for range in self.store.ranges.iter_mut().filter(|range| range.is_open) {
            range.time.end_ns = end_ns;
        }
        for range in &mut self.store.process_ranges {
            if range.end_thread.is_none() {
                range.time.end_ns = end_ns;
            }
        }
        self.count_unused()?;
        let devices = self.read_devices()?;
        Ok(RecordingInfo {
            recorded_at_s,
            cupti_version,
            cuda_driver_version,
            driver_release,
            devices,
            recorder_version,
            process_id: None,
            utc_offset_ns,
            boot_id: None,
        })
    }

    /// Counts rows of CUPTI tables that are not read, possibly of a newer schema.
    fn count_unused(&mut self) -> Result<(), Error> {
        for table in self.file.tables() {
            if table.starts_with("CUPTI_ACTIVITY_KIND_") && !TIMED_TABLES.contains(&table) {
                self.health.unused_records += self.file.count(table)?;
            }
        }
        Ok(())
    }

    /// Reads the GPUs by CUDA ordinal; nsys numbers all GPUs of the machine.
    fn read_devices(&mut self) -> Result<Vec<DeviceInfo>, Error> {
        let file = self.file;
        let mut pairs: BTreeSet<(u64, u32)> = BTreeSet::new();
        file.rows(schema::DEVICE_IDS, |row| {
            if let (Some(gpu), Some(cuda)) = (row.number(0), row.number(1)) {
                pairs.insert((gpu, cuda));
            }
        })?;
        // Each process has a row for each visible GPU. Processes with different GPUs may share an
        // ordinal, which then refers to the first GPU.
        let (mut ordinals, mut taken) = (FxHashMap::default(), FxHashSet::default());
        for (gpu, cuda) in pairs {
            if taken.insert(cuda) {
                ordinals.entry(gpu).or_insert_with(Vec::new).push(cuda);
            } else {
                self.store.shared_ordinals.push(cuda);
            }
        }
        let has_ordinals = !ordinals.is_empty();
        let mut seen = FxHashSet::default();
        let mut devices: Vec<DeviceInfo> = Vec::new();
        let (table, columns) = schema::DEVICES;
        let limits = "maxWarpsPerSm, maxBlocksPerSm, maxRegistersPerSm, maxRegistersPerBlock, \
                      maxShmemPerSm, maxShmemPerBlockOptin";
        file.rows((table, &format!("{columns}, {limits}")), |row| {
            let Some(gpu) = row.number::<u64>(1) else { return self.unreadable() };
            let mut numbers = ordinals.remove(&gpu).unwrap_or_default();
            if !has_ordinals {
                // CAST: a machine has few GPUs.
                numbers.push(row.number(8).unwrap_or(gpu as u32));
            }
            for id in numbers {
                if !seen.insert(id) {
                    self.store.shared_ordinals.push(id);
                    continue;
                }
                let number = |column: usize| row.number(column).unwrap_or(0);
                let (compute_capability, multiprocessors) = ((number(9), number(10)), number(7));
                self.store.multiprocessors.push(Multiprocessor {
                    device: id,
                    compute_capability,
                    multiprocessors,
                    warps: number(13),
                    blocks: number(14),
                    registers: number(15),
                    registers_per_block: number(16),
                    shared_bytes: number(17),
                    shared_bytes_per_block: number(18),
                });
                devices.push(DeviceInfo {
                    id,
                    name: row.text(2).unwrap_or_default().into_owned(),
                    compute_capability,
                    multiprocessors,
                    memory_bytes: row.bits(4).unwrap_or(0),
                    // In Hz; 0 is unknown.
                    core_clock_khz: row
                        .number::<u64>(6)
                        .and_then(|hertz| u32::try_from(hertz / 1000).ok())
                        .filter(|khz| *khz != 0),
                    memory_bandwidth: row.number(5).filter(|bytes| *bytes != 0),
                    l2_bytes: row.number(3).filter(|bytes| *bytes != 0),
                    pci_bus_id: None,
                });
            }
        })?;
        devices.sort_by_key(|device| device.id);
        self.store.multiprocessors.sort_by_key(|of| of.device);
        Ok(devices)
    }
}

/// The newest known major version of the schema.
const SCHEMA_MAJOR: u32 = 3;
