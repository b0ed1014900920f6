//! Managed memory: migrations and page faults, by address and in total.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{Rate, Unit, row};
use super::{Report, Reports};
use profiler_core::tables::Managed;

const NO_MANAGED: &str = "no migration or page fault of managed memory was recorded";

row! {
    /// The page faults of one instruction of the host: a row of `um_cpu_page_faults_sum`.
    pub(crate) UmCpuPageFaultsSum = "um_cpu_page_faults_sum" {
        /// The number of faults.
        cpu_page_faults: u64 => "CPU Page Faults" Plain,
        /// The instruction: in a capture its function, else its address; `None` if unknown.
        cpu_instruction: Option<Arc<str>> => "CPU Instruction Address" Plain,
        /// The source file; `None` if unknown.
        source_file: Option<Arc<str>> => "Source File" Plain,
        /// The source line; nsys has 0 for an unknown line.
        source_line: Option<u32> => "Source Line" Plain,
    }
}

row! {
    /// Events of the pages of one address: a row of `um_sum`.
    pub(crate) UmSum = "um_sum" {
        /// The start of the pages.
        virtual_address: u64 => "Virtual Address" Address,
        /// Bytes migrated to the device; `None` if none.
        host_to_device_bytes: Option<u64> => "HtoD Migration size" Bytes,
        /// Bytes migrated to the host; `None` if none.
        device_to_host_bytes: Option<u64> => "DtoH Migration size" Bytes,
        /// Page faults of the host; `None` if none.
        cpu_page_faults: Option<u64> => "CPU Page Faults" Plain,
        /// Page faults of devices; `None` if none.
        gpu_page_faults: Option<u64> => " GPU Page Faults" Plain,
        /// The time of all migrations; `None` if none.
        migration_ns: Option<u64>,
        /// Bytes per second, rounded; `None` without a migration time. The CSV and JSON of nsys
        /// have the bytes times the whole number of migration times in a second.
        throughput_bytes_per_s: Option<u64> => |row, cells| {
            cells.add("Migration Throughput", Unit::Throughput, row.rate())
        },
    }
}

row! {
    /// Events of all managed memory: the row of `um_total_sum`.
    pub(crate) UmTotalSum = "um_total_sum" {
        /// Bytes migrated to devices; `None` if none.
        host_to_device_bytes: Option<u64> => "Total HtoD Migration Size" Bytes,
        /// Bytes migrated to the host; `None` if none.
        device_to_host_bytes: Option<u64> => "Total DtoH Migration Size" Bytes,
        /// Page faults of the host.
        cpu_page_faults: u64 => "Total CPU Page Faults" Plain,
        /// Page faults of devices; `None` if none.
        gpu_page_faults: Option<u64> => "Total GPU PageFaults" Plain,
        /// The lowest address. Like in nsys, `None` without faults and migrations on both sides.
        minimum_virtual_address: Option<u64> => "Minimum Virtual Address" Address,
        /// The highest address; `None` under the same condition.
        maximum_virtual_address: Option<u64> => "Maximum Virtual Address" Address,
    }
}

/// Events of an address.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    to_device: Option<u64>,
    to_host: Option<u64>,
    host_faults: Option<u64>,
    device_faults: Option<u64>,
    migration_ns: u64,
}

impl Sum {
    fn add(&mut self, what: Managed, ns: u64) {
        let (to, count) = match what {
            Managed::ToDevice { bytes } => (&mut self.to_device, bytes),
            Managed::ToHost { bytes } => (&mut self.to_host, bytes),
            Managed::HostFault { .. } => (&mut self.host_faults, 1),
            Managed::DeviceFaults { count } => (&mut self.device_faults, count),
        };
        *to = Some(to.unwrap_or(0).saturating_add(count));
        if matches!(what, Managed::ToDevice { .. } | Managed::ToHost { .. }) {
            self.migration_ns = self.migration_ns.saturating_add(ns);
        }
    }
}

impl UmSum {
    fn rate(&self) -> Option<Rate> {
        let moved = [self.host_to_device_bytes, self.device_to_host_bytes].into_iter().flatten();
        Rate::new(moved.fold(0, u64::saturating_add), self.migration_ns?)
    }
}

impl Reports<'_> {
    /// Returns page faults of the host by accessing instruction, most frequent first, then by name.
    /// Recorded under the conditions of [`um_sum`](Self::um_sum).
    pub(crate) fn um_cpu_page_faults_sum(self) -> Report<UmCpuPageFaultsSum> {
        type Place<'a> = (Option<&'a str>, Option<(&'a str, u32)>);
        let store = self.store();
        let mut counts: BTreeMap<Place<'_>, u64> = BTreeMap::new();
        for event in &store.managed {
            if let Managed::HostFault { instruction, line } = event.what {
                let name = instruction.map(|name| store.names.get(name));
                let line = line.map(|(file, line)| (store.names.get(file), line));
                *counts.entry((name.filter(|name| !name.is_empty()), line)).or_default() += 1;
            }
        }
        let row = |((name, line), count): (Place<'_>, u64)| UmCpuPageFaultsSum {
            cpu_page_faults: count,
            cpu_instruction: name.map(Into::into),
            source_file: line.map(|(file, _)| file).filter(|file| !file.is_empty()).map(Into::into),
            source_line: line.map(|(_, line)| line),
        };
        let mut rows: Vec<UmCpuPageFaultsSum> = counts.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.cpu_page_faults));
        Report::new(rows, "no page fault of the host was recorded")
    }

    /// Returns managed memory by address, highest throughput first, then by address. nsys shows 10
    /// rows.
    ///
    /// Recorded if CUPTI counts it (`UNIFIED_MEMORY_COUNTER`), or if nsys does
    /// (`--cuda-um-cpu-page-faults`, `--cuda-um-gpu-page-faults`).
    pub(crate) fn um_sum(self) -> Report<UmSum> {
        let mut sums: BTreeMap<u64, Sum> = BTreeMap::new();
        for event in &self.store().managed {
            sums.entry(event.address).or_default().add(event.what, event.time.ns());
        }
        let row = |(virtual_address, sum): (u64, Sum)| {
            let has_moved = sum.to_device.is_some() || sum.to_host.is_some();
            let mut row = UmSum {
                virtual_address,
                host_to_device_bytes: sum.to_device,
                device_to_host_bytes: sum.to_host,
                cpu_page_faults: sum.host_faults,
                gpu_page_faults: sum.device_faults,
                migration_ns: has_moved.then_some(sum.migration_ns),
                throughput_bytes_per_s: None,
            };
            row.throughput_bytes_per_s = row.rate().map(Rate::bytes_per_s);
            row
        };
        let mut rows: Vec<UmSum> = sums.into_iter().map(row).collect();
        // In nsys's order.
        rows.sort_by_key(|row| std::cmp::Reverse(row.rate().map(Rate::nsys_bytes_per_s)));
        Report::new(rows, NO_MANAGED).limited(Some(10))
    }

    /// Returns all managed memory in one row. Recorded under the conditions of
    /// [`um_sum`](Self::um_sum).
    pub(crate) fn um_total_sum(self) -> Report<UmTotalSum> {
        let events = &self.store().managed;
        let mut sum = Sum::default();
        events.iter().for_each(|event| sum.add(event.what, event.time.ns()));
        let has_all = [sum.to_device, sum.to_host, sum.host_faults, sum.device_faults]
            .iter()
            .all(Option::is_some);
        let addresses = || events.iter().filter(|_| has_all).map(|event| event.address);
        let row = UmTotalSum {
            host_to_device_bytes: sum.to_device,
            device_to_host_bytes: sum.to_host,
            cpu_page_faults: sum.host_faults.unwrap_or(0),
            gpu_page_faults: sum.device_faults,
            minimum_virtual_address: addresses().min(),
            maximum_virtual_address: addresses().max(),
        };
        let rows = if events.is_empty() { Vec::new() } else { vec![row] };
        Report::new(rows, NO_MANAGED)
    }
}
