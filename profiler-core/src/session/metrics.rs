//! Sums of running sessions and states of devices for the `metrics` facade, and its exporters such
//! as Prometheus.
//!
//! [`RangeMetrics`] has an example. The names are listed in the guide, docs/guide/metrics.md.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use profiler_base::units::nanoseconds;
use profiler_base::{order, setters};
use rustc_hash::FxHashMap;

use super::always_on::AlwaysOnReport;
use crate::join::health::Health;
use crate::join::totals::Totals;
use crate::profile::summary::{PathSummary, Summary};
#[cfg(feature = "nvml")]
pub use devices::DeviceMetrics;

/// The label of all ranges above the upper bound, and of work outside all ranges.
const OTHER: &str = "other";
const OUTSIDE: &str = "(outside)";
/// The maximum length of a label in bytes.
const LONGEST: usize = 256;

/// Publishes sums by range path to the recorder of the `metrics` facade, with a bounded number of
/// labels.
///
/// ```no_run
/// use std::time::Duration;
///
/// use profiler_core::Profiler;
/// use profiler_core::session::metrics::RangeMetrics;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// // metrics_exporter_prometheus::PrometheusBuilder::new().install() or another recorder, first
/// let session = Profiler::builder().build()?.summarize()?;
/// let mut metrics = RangeMetrics::new().most_ranges(50);
/// std::thread::spawn(move || {
///     loop {
///         std::thread::sleep(Duration::from_secs(10));
///         if let Ok(summary) = session.snapshot() {
///             metrics.publish(&summary);
///         }
///     }
/// });
/// # Ok(())
/// # }
/// ```
///
/// Counters increase by the difference since the last call, so one session may follow another. GPU
/// time, launches, kernels, bytes and synchronisations are exclusive: the sum over all labels is
/// the sum of the session. Kernel names are not labels.
///
/// Costs some microseconds for each label on the calling thread; the program's other threads do not
/// wait.
#[derive(Debug)]
#[must_use = "call `publish` at intervals"]
pub struct RangeMetrics {
    most_ranges: usize,
    /// The slot of each path with its own label.
    paths: FxHashMap<String, usize>,
    labels: FxHashMap<String, usize>,
    slots: Vec<Slot>,
    health: HealthCounts,
    sampling: [u64; 5],
    is_described: bool,
}

/// A label, and its published amounts.
#[derive(Debug)]
struct Slot {
    label: String,
    last: Amounts,
}

/// The amounts of the ranges of a label.
#[derive(Debug, Clone, Copy, Default)]
struct Amounts {
    instances: u64,
    host_ns: u64,
    own: Totals,
    inclusive: Totals,
}

#[derive(Debug, Clone, Copy, Default)]
struct HealthCounts {
    dropped_records: u64,
    summed_as_other: u64,
}

impl Default for RangeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeMetrics {
    /// At most 100 range paths with their own label.
    pub fn new() -> Self {
        Self {
            most_ranges: 100,
            paths: FxHashMap::default(),
            labels: FxHashMap::default(),
            slots: Vec::new(),
            health: HealthCounts::default(),
            sampling: [0; 5],
            is_described: false,
        }
    }

    setters! {
        /// The maximum number of range paths with their own label; the others are `other`. A path
        /// retains its label. New labels are assigned by descending GPU time.
        most_ranges(count: usize) most_ranges = count;
    }

    /// Publishes the sums of a session.
    pub fn publish(&mut self, summary: &Summary) {
        self.publish_sums(summary, true);
    }

    /// Publishes an always-on session: exact counts of calls, and estimated GPU times with their 95
    /// % intervals as gauges. Ranges without their own label have no estimate.
    pub fn publish_always_on(&mut self, report: &AlwaysOnReport) {
        self.publish_sums(report.recorded(), false);
        for range in report.ranges() {
            let (Some(slot), Some(gpu_ns)) = (self.paths.get(&range.path), range.gpu_ns) else {
                continue;
            };
            let label = &self.slots[*slot].label;
            let bounds = [("low", gpu_ns.low), ("value", gpu_ns.value), ("high", gpu_ns.high)];
            for (bound, ns) in bounds {
                gauge!("gpu_range_estimated_gpu_seconds", "range" => label.clone(), "bound" => bound)
                    .set(ns / 1e9);
            }
        }
        for (part, share) in [("windows", report.window_share()), ("budget", report.budget())] {
            gauge!("gpu_profiler_cost_ratio", "part" => part).set(share);
        }
        let counts = report.counts();
        let now = [
            ("drawn", counts.drawn),
            ("after_slow", counts.after_slow),
            ("refused", counts.refused),
            ("closing", counts.while_closing),
            ("graphs", counts.while_graphs_were_made),
        ];
        for ((outcome, count), last) in now.into_iter().zip(&mut self.sampling) {
            counter!("gpu_profiler_windows_total", "outcome" => outcome)
                .increment(increase(count, last));
        }
    }

    fn publish_sums(&mut self, summary: &Summary, has_gpu_times: bool) {
        self.describe();
        let outside = Amounts { own: summary.outside_ranges(), ..Amounts::default() };
        let mut new: Vec<(String, u64)> = Vec::new();
        let mut rows: Vec<(String, Amounts)> = Vec::new();
        for path in summary.paths() {
            let (text, amounts) = (path.path(), Amounts::from_path(&path));
            if !self.paths.contains_key(&text) {
                let gpu_ns = nanoseconds(amounts.own.gpu_time());
                new.push((text.clone(), gpu_ns.max(amounts.own.launches)));
            }
            rows.push((text, amounts));
        }
        order::sort_by_number(&mut new, |(_, amount)| !*amount);
        let room = self.most_ranges.saturating_sub(self.paths.len());
        for (path, _) in new.into_iter().take(room) {
            let slot = self.slot(shortened(&path));
            self.paths.insert(path, slot);
        }
        let (other, outside_slot) = (self.slot(OTHER), self.slot(OUTSIDE));
        let mut sums = vec![Amounts::default(); self.slots.len()];
        sums[outside_slot].add(&outside);
        for (path, amounts) in &rows {
            sums[self.paths.get(path).copied().unwrap_or(other)].add(amounts);
        }
        for (number, (slot, now)) in self.slots.iter_mut().zip(sums).enumerate() {
            // Nested ranges are both in `other`: their times overlap.
            slot.publish(now, has_gpu_times, number != other && number != outside_slot);
        }
        self.publish_health(summary.health());
    }

    fn slot(&mut self, label: &str) -> usize {
        if let Some(slot) = self.labels.get(label) {
            return *slot;
        }
        let slot = self.slots.len();
        self.slots.push(Slot { label: label.to_owned(), last: Amounts::default() });
        self.labels.insert(label.to_owned(), slot);
        slot
    }

    fn publish_health(&mut self, health: &Health) {
        let records = health.losses.dropped_by_cupti
            + health.losses.refused_records
            + health.losses.over_memory_limit;
        for (what, count, last) in [
            ("records", records, &mut self.health.dropped_records),
            ("names", health.facts.summed_as_other, &mut self.health.summed_as_other),
        ] {
            counter!("gpu_profiler_lost_total", "what" => what).increment(increase(count, last));
        }
    }

    fn describe(&mut self) {
        if std::mem::replace(&mut self.is_described, true) {
            return;
        }
        for (name, unit, text) in [
            ("gpu_range_instances_total", Unit::Count, "Ranges that began"),
            (
                "gpu_range_host_nanoseconds_total",
                Unit::Nanoseconds,
                "Host time of ended ranges, with descendants",
            ),
            (
                "gpu_range_gpu_nanoseconds_total",
                Unit::Nanoseconds,
                "GPU time of kernels, copies and memsets, without descendants",
            ),
            (
                "gpu_range_launches_total",
                Unit::Count,
                "Launches of kernels and graphs, without descendants",
            ),
            ("gpu_range_kernels_total", Unit::Count, "Executed kernels, without descendants"),
            ("gpu_range_bytes_total", Unit::Bytes, "Bytes copied and set, without descendants"),
            (
                "gpu_range_synchronizations_total",
                Unit::Count,
                "Calls that waited for the GPU, without descendants",
            ),
            ("gpu_range_synchronization_nanoseconds_total", Unit::Nanoseconds, "Host time in them"),
            (
                "gpu_profiler_windows_total",
                Unit::Count,
                "Windows of an always-on session by outcome",
            ),
            (
                "gpu_profiler_lost_total",
                Unit::Count,
                "Records that were dropped, and ranges and kernels summed as (other)",
            ),
        ] {
            describe_counter!(name, unit, text);
        }
        for (name, unit, text) in [
            (
                "gpu_range_idle_ratio",
                Unit::Percent,
                "1 less GPU time by host time of ranges that ended since the last update, at least 0",
            ),
            (
                "gpu_range_synchronization_ratio",
                Unit::Percent,
                "Host time that waited for the GPU, by host time",
            ),
            (
                "gpu_range_estimated_gpu_seconds",
                Unit::Seconds,
                "Estimated GPU time with its 95 % interval, with descendants",
            ),
            (
                "gpu_profiler_cost_ratio",
                Unit::Percent,
                "Share of the time that an always-on session cost",
            ),
        ] {
            describe_gauge!(name, unit, text);
        }
    }
}

/// The increase of a count; a smaller count belongs to a new session.
fn increase(now: u64, last: &mut u64) -> u64 {
    let last = std::mem::replace(last, now);
    now.checked_sub(last).unwrap_or(now)
}

fn shortened(label: &str) -> &str {
    &label[..label.floor_char_boundary(LONGEST)]
}

impl Amounts {
    fn from_path(path: &PathSummary<'_>) -> Self {
        Self {
            instances: path.instances(),
            host_ns: nanoseconds(path.host_time().sum()),
            own: path.exclusive(),
            inclusive: path.inclusive(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.instances += other.instances;
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
        self.own += other.own;
        self.inclusive += other.inclusive;
    }
}

impl Slot {
    fn publish(&mut self, now: Amounts, has_gpu_times: bool, has_ratios: bool) {
        let last = std::mem::replace(&mut self.last, now);
        let is_new = now.instances < last.instances || now.own.launches < last.own.launches;
        let last = if is_new { Amounts::default() } else { last };
        let range = || self.label.clone();
        let more = |of: fn(&Amounts) -> u64| of(&now).saturating_sub(of(&last));
        let add = |name: &'static str, of: fn(&Amounts) -> u64| {
            counter!(name, "range" => range()).increment(more(of));
        };
        add("gpu_range_instances_total", |of| of.instances);
        add("gpu_range_host_nanoseconds_total", |of| of.host_ns);
        add("gpu_range_launches_total", |of| of.own.launches);
        add("gpu_range_synchronizations_total", |of| of.own.synchronizations);
        add("gpu_range_synchronization_nanoseconds_total", |of| of.own.synchronization_ns);
        if has_gpu_times {
            add("gpu_range_gpu_nanoseconds_total", |of| nanoseconds(of.own.gpu_time()));
            add("gpu_range_kernels_total", |of| of.own.kernels);
            add("gpu_range_bytes_total", |of| {
                of.own.copy_bytes.saturating_add(of.own.memset_bytes)
            });
        }
        let host_ns = more(|of| of.host_ns) as f64;
        if !has_ratios || host_ns == 0.0 {
            return;
        }
        let share = |of: fn(&Amounts) -> u64| (more(of) as f64 / host_ns).min(1.0);
        gauge!("gpu_range_synchronization_ratio", "range" => range())
            .set(share(|of| of.inclusive.synchronization_ns));
        if has_gpu_times {
            gauge!("gpu_range_idle_ratio", "range" => range())
                .set(1.0 - share(|of| nanoseconds(of.inclusive.gpu_time())));
        }
    }
}

/// Devices by OpenTelemetry's conventions for hardware.
#[cfg(feature = "nvml")]
mod devices {
    use metrics::{counter, gauge};
    use nvml_wrapper::Nvml;

    use super::increase;
    use crate::collect::device_state::DeviceState;
    use crate::error::Error;

    /// Publishes the state of all GPUs that NVML reports: `hw.gpu.utilization`,
    /// `hw.gpu.memory.usage`, `hw.gpu.memory.limit`, `hw.gpu.memory.utilization`, `hw.power`,
    /// `hw.energy` and `hw.temperature`. The names follow OpenTelemetry's semantic conventions for
    /// hardware, with the attributes `hw.id` (the UUID), `hw.name`, `hw.type` and `hw.vendor`.
    /// Prometheus has `_` for each dot.
    ///
    /// Values that a GPU does not support are omitted. Costs some milliseconds for each GPU on the
    /// calling thread.
    #[derive(Debug)]
    #[must_use = "call `publish` at intervals"]
    pub struct DeviceMetrics {
        nvml: Nvml,
        energy_joules: Vec<u64>,
    }

    impl DeviceMetrics {
        /// Loads NVML.
        ///
        /// # Errors
        /// The library is missing or refuses.
        pub fn new() -> Result<Self, Error> {
            let refused = |error: nvml_wrapper::error::NvmlError| {
                Error::other(format!(
                    "devices cannot be read: NVML (libnvidia-ml.so.1) reports {error}; it is part of NVIDIA's driver"
                ))
            };
            Ok(Self { nvml: Nvml::init().map_err(refused)?, energy_joules: Vec::new() })
        }

        /// Publishes all GPUs. Unreadable GPUs are omitted.
        pub fn publish(&mut self) {
            let count = self.nvml.device_count().unwrap_or(0);
            self.energy_joules.resize(count as usize, 0);
            for (number, last) in (0..count).zip(&mut self.energy_joules) {
                if let Ok(device) = self.nvml.device_by_index(number) {
                    publish(&DeviceState::read(&device, number), last);
                }
            }
        }
    }

    /// Publishes the state of a GPU.
    pub(super) fn publish(state: &DeviceState, last_joules: &mut u64) {
        let labels = [
            ("hw.id", state.id.clone()),
            ("hw.name", state.name.clone()),
            ("hw.type", "gpu".to_owned()),
            ("hw.vendor", "NVIDIA".to_owned()),
        ];
        let shares = state.memory_used.zip(state.memory_limit).filter(|(_, limit)| *limit > 0.0);
        for (name, value) in [
            ("hw.gpu.utilization", state.utilization),
            ("hw.gpu.memory.usage", state.memory_used),
            ("hw.gpu.memory.limit", state.memory_limit),
            ("hw.gpu.memory.utilization", shares.map(|(used, limit)| used / limit)),
            ("hw.power", state.power_watts),
            ("hw.temperature", state.celsius),
        ] {
            if let Some(value) = value {
                gauge!(name, &labels).set(value);
            }
        }
        if let Some(joules) = state.energy_joules {
            counter!("hw.energy", &labels).increment(increase(joules, last_joules));
        }
    }
}

#[cfg(all(test, feature = "nvml"))]
mod tests {
    use super::devices::publish;
    use crate::collect::device_state::DeviceState;

    #[test]
    fn devices_have_the_names_of_the_conventions() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let state = DeviceState {
            id: "GPU-1".to_owned(),
            name: "H100".to_owned(),
            utilization: Some(0.5),
            memory_used: Some(2e9),
            memory_limit: Some(8e9),
            power_watts: None,
            energy_joules: Some(70),
            celsius: Some(40.0),
        };
        let mut last = 0;
        metrics::with_local_recorder(&recorder, || {
            publish(&state, &mut last);
            let later = DeviceState { energy_joules: Some(90), ..state.clone() };
            publish(&later, &mut last);
        });
        let text = recorder.handle().render();
        let labels = r#"{hw_id="GPU-1",hw_name="H100",hw_type="gpu",hw_vendor="NVIDIA"}"#;
        for line in [
            format!("hw_gpu_utilization{labels} 0.5"),
            format!("hw_gpu_memory_utilization{labels} 0.25"),
            format!("hw_energy{labels} 90"),
            format!("hw_temperature{labels} 40"),
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("hw_power"), "{text}");
    }
}
