//! The recording info of a capture: time, versions and devices.

use std::borrow::Cow;
use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::file::TIMED_TABLES;
use super::super::{format, schema};
use super::Reader;
use crate::error::Error;
use profiler_core::profile::{DeviceInfo, RecordingInfo};
use profiler_core::tables::{Interval, Multiprocessor};

impl Reader<'_> {
    pub(super) fn read_info(&mut self) -> Result<RecordingInfo, Error> {
        let file = self.file;
        let mut variables: FxHashMap<String, String> = FxHashMap::default();
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"] {
            file.rows((table, "name, value"), |row| {
                if let (Some(name), Some(value)) = (row.text(0), row.text(1)) {
                    variables.insert(name.into_owned(), value.into_owned());
                }
            })?;
        }
        let variables = |name: &str| variables.get(name).map_or("unknown", String::as_str);
        let (name, version) =
            (variables("EXPORT_PRODUCT_NAME"), variables("EXPORT_PRODUCT_VERSION"));
        let recorder_version = match (name, version, variables("EXPORT_SCHEMA_VERSION")) {
            ("unknown", "unknown", "unknown") => "a capture without a version".to_owned(),
            (name, version, schema) => format!("{name} {version} (schema {schema})"),
        };
        let number = |name: &str| variables(name).parse().unwrap_or(0);
        let (cupti_version, cuda_driver_version) =
            (number(format::CUPTI_VERSION), number(format::CUDA_VERSION));
        let driver_release = match variables(format::DRIVER_RELEASE) {
            "unknown" => None,
            release => Some(release.to_owned()),
        };
        // Newer schemas may have other meanings; known tables and columns are read.
        let major = variables("EXPORT_SCHEMA_VERSION_MAJOR").parse::<u32>();
        self.capture.health.facts.capture_warnings +=
            u64::from(major.is_ok_and(|major| major > SCHEMA_MAJOR));
        // The calendar time at the capture's time 0.
        let mut utc_ns = None;
        file.rows(("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"), |row| {
            utc_ns = row.number::<i64>(0).filter(|ns| *ns >= 0);
        })?;
        let recorded_at_s = utc_ns.map(|ns| ns.unsigned_abs() / 1_000_000_000);
        let session_ns = self.read_session()?;
        let utc_offset_ns = utc_ns.and_then(|ns| ns.checked_sub_unsigned(session_ns));
        let end_ns = self.capture.end_ns;
        for range in self.capture.store.ranges.iter_mut().filter(|range| range.is_open) {
            range.time.end_ns = end_ns;
        }
        for range in &mut self.capture.store.process_ranges {
            if range.end_thread.is_none() {
                range.time.end_ns = end_ns;
            }
        }
        self.count_unused()?;
        let devices = self.read_devices()?;
        let mut info = RecordingInfo::default();
        info.recorded_at_s = recorded_at_s;
        info.cupti_version = cupti_version;
        info.cuda_driver_version = cuda_driver_version;
        info.driver_release = driver_release;
        info.devices = devices;
        info.recorder_version = recorder_version;
        info.utc_offset_ns = utc_offset_ns;
        Ok(info)
    }

    /// Sets the start and the end of the capture from its events and `ANALYSIS_DETAILS`. Returns
    /// the time of the session's start.
    fn read_session(&mut self) -> Result<u64, Error> {
        let file = self.file;
        let events = Interval { start_ns: file.earliest_ns, end_ns: self.capture.end_ns };
        let mut analysis = None;
        file.rows(("ANALYSIS_DETAILS", "startTime, stopTime"), |row| {
            if let Some(stop_ns) = row.time(1) {
                let start_ns = row.time(0).unwrap_or(file.zero_ns);
                analysis = Some(Interval { start_ns, end_ns: stop_ns });
            }
        })?;
        let session = Session::new(events, analysis, file.zero_ns, file.first_ns());
        (self.capture.begin_ns, self.capture.end_ns) =
            (session.window.start_ns, session.window.end_ns);
        Ok(session.start_ns)
    }

    /// Counts rows of CUPTI tables that are not read, possibly of a newer schema.
    fn count_unused(&mut self) -> Result<(), Error> {
        for table in self.file.tables() {
            if table.starts_with("CUPTI_ACTIVITY_KIND_") && !TIMED_TABLES.contains(&table) {
                self.capture.health.facts.unused_records += self.file.count(table)?;
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
                self.capture.store.shared_ordinals.push(cuda);
            }
        }
        let has_ordinals = !ordinals.is_empty();
        let mut seen = FxHashSet::default();
        let mut devices: Vec<DeviceInfo> = Vec::new();
        let (table, columns) = schema::DEVICES;
        let limits = "maxWarpsPerSm, maxBlocksPerSm, maxRegistersPerSm, maxRegistersPerBlock, \
                      maxShmemPerSm, maxShmemPerBlockOptin";
        let columns = format!("{columns}, {limits}, deviceId");
        let is_old = file.tables().any(|name| name == schema::OLD_DEVICES.0);
        let devices_of = if is_old { schema::OLD_DEVICES } else { (table, &*columns) };
        file.rows(devices_of, |row| {
            let id = row.number::<u64>(1).or_else(|| row.number(20));
            let Some(gpu) = id else { return self.unreadable() };
            let mut numbers = ordinals.remove(&gpu).unwrap_or_default();
            // Old captures have a row for each process.
            if is_old && seen.contains(&(gpu as u32)) {
                return;
            }
            if !has_ordinals {
                // CAST: a machine has few GPUs.
                numbers.push(row.number(8).unwrap_or(gpu as u32));
            }
            for id in numbers {
                if !seen.insert(id) {
                    self.capture.store.shared_ordinals.push(id);
                    continue;
                }
                let number = |column: usize| row.number(column).unwrap_or(0);
                let (compute_capability, multiprocessors) = ((number(9), number(10)), number(7));
                self.capture.store.multiprocessors.push(Multiprocessor {
                    device: id,
                    compute_capability,
                    multiprocessors,
                    warps: number(14),
                    blocks: number(15),
                    registers: number(16),
                    registers_per_block: number(17),
                    shared_bytes: number(18),
                    shared_bytes_per_block: number(19),
                });
                let mut device = DeviceInfo::default();
                device.id = id;
                device.name = row.text(2).unwrap_or_default().into_owned();
                (device.compute_capability, device.multiprocessors) =
                    (compute_capability, multiprocessors);
                device.memory_bytes = row.bits(4).unwrap_or(0);
                // In Hz; 0 is unknown.
                let hertz = row.number::<u64>(6).and_then(|hertz| u32::try_from(hertz / 1000).ok());
                device.core_clock_khz = hertz.filter(|khz| *khz != 0);
                device.memory_bandwidth = row.number(5).filter(|bytes| *bytes != 0);
                device.l2_bytes = row.number(3).filter(|bytes| *bytes != 0);
                device.pci_bus_id =
                    row.text(13).filter(|address| !address.is_empty()).map(Cow::into_owned);
                devices.push(device);
            }
        })?;
        devices.sort_by_key(|device| device.id);
        self.capture.store.multiprocessors.sort_by_key(|of| of.device);
        Ok(devices)
    }
}

/// The newest known major version of the schema.
const SCHEMA_MAJOR: u32 = 3;

/// The factor on the length of all events above which a time in the file is unrelated to its
/// events.
const LONGER: u64 = 100;
/// The maximum time of a program before its first event.
const LONGEST_START_NS: u64 = 3_600_000_000_000;

/// The times of a capture in the store's clock.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    /// The start of nsys's session; usually the time 0 of the capture.
    start_ns: u64,
    /// The recorded time window.
    window: Interval,
}

impl Session {
    /// `zero_ns` is the time 0 of the capture. `first_ns` is the same, or the first event if
    /// earlier.
    ///
    /// Events usually count from the start of the session, in some captures from 1970 or from the
    /// start of the machine. Such a capture starts with `analysis`, or with its first event. In
    /// nsys 2025.5 and 2026.1 only `analysis` counts from the start of the machine.
    fn new(events: Interval, analysis: Option<Interval>, zero_ns: u64, first_ns: u64) -> Self {
        let apart = |from: u64, to: u64, length: u64| to.saturating_sub(from) / LONGER > length;
        let since_ns = events.start_ns.saturating_sub(zero_ns);
        let is_other_clock =
            since_ns > LONGEST_START_NS && apart(zero_ns, events.start_ns, events.ns());
        let of_events = analysis.filter(|analysis| analysis.start_ns <= events.end_ns);
        let mut window = Interval { start_ns: first_ns, end_ns: events.end_ns };
        if is_other_clock {
            let start = of_events.map(|analysis| analysis.start_ns);
            let is_near =
                |start: &u64| *start > zero_ns && !apart(*start, events.start_ns, events.ns());
            window.start_ns = start.filter(is_near).unwrap_or(events.start_ns).min(events.start_ns);
        }
        let start_ns = if is_other_clock { window.start_ns } else { zero_ns };
        let stop_ns = match (of_events, analysis) {
            (Some(analysis), _) => Some(analysis.end_ns),
            (None, Some(analysis)) => Some(start_ns.saturating_add(analysis.ns())),
            (None, None) => None,
        };
        let has_events = events.end_ns > window.start_ns;
        let is_plausible =
            |stop: &u64| !has_events || !apart(window.start_ns, *stop, window.ns().max(1));
        window.end_ns = window.end_ns.max(stop_ns.filter(is_plausible).unwrap_or(0));
        Self { start_ns, window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn time(start_ns: u64, end_ns: u64) -> Interval {
        Interval { start_ns, end_ns }
    }

    #[test]
    fn a_capture_lasts_from_its_session_to_its_stop() {
        let session = |events, analysis| Session::new(events, analysis, 0, 0);
        let lasts = |start_ns, from, to| Session { start_ns, window: time(from, to) };
        // On one clock, with and without a stop.
        assert_eq!(session(time(S, 2 * S), Some(time(0, 3 * S))), lasts(0, 0, 3 * S));
        assert_eq!(session(time(S, 2 * S), None), lasts(0, 0, 2 * S));
        // A long start-up counts.
        assert_eq!(session(time(600 * S, 601 * S), None), lasts(0, 0, 601 * S));
        assert_eq!(session(time(0, 0), Some(time(0, 3 * S))), lasts(0, 0, 3 * S));
        // The stop counts from the start of the machine.
        let uptime = 515_396 * S;
        let analysis = Some(time(uptime, uptime + 2 * S));
        assert_eq!(session(time(0, S), analysis), lasts(0, 0, 2 * S));
        // A stop that no event is near.
        assert_eq!(session(time(0, S), Some(time(0, uptime))), lasts(0, 0, S));
        assert_eq!(session(time(0, S), Some(time(uptime, 9 * uptime))), lasts(0, 0, S));
    }

    #[test]
    fn capture_on_another_clock_starts_at_its_zero() {
        let (now, session) = (1_732_107_141 * S, |analysis| {
            Session::new(time(1_732_107_141 * S, 1_732_107_142 * S), analysis, 0, 0)
        });
        let lasts = |from, to| Session { start_ns: from, window: time(from, to) };
        assert_eq!(session(None), lasts(now, now + S));
        assert_eq!(session(Some(time(0, 3 * S))), lasts(now, now + S));
        assert_eq!(session(Some(time(now - S, now + 2 * S))), lasts(now - S, now + 2 * S));
        assert_eq!(session(Some(time(0, now + 2 * S))), lasts(now, now + 2 * S));
    }
}
