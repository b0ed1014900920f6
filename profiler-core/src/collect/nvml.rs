//! NVML samples of a device: clocks and the reasons for lowered clocks, power, memory.

#[cfg(feature = "nvml")]
pub(crate) use known::{Gpu, Sampler};
#[cfg(not(feature = "nvml"))]
pub(crate) use unknown::Sampler;

/// The track of the SM clock.
pub(crate) const SM_CLOCK: &str = "nvml__sm_clock";
/// The track of the memory clock.
pub(crate) const MEMORY_CLOCK: &str = "nvml__memory_clock";
/// The track of the reasons for lowered clocks.
pub(crate) const REASONS: &str = "nvml__clock_event_reasons";

/// Reasons for clocks below the ones the program would have: bits of
/// `nvmlDeviceGetCurrentClocksEventReasons`.
pub(crate) const SLOWED_BY: [(u64, &str); 5] = [
    (0x40, "heat (hardware)"),
    (0x20, "heat"),
    (0x80, "the power brake"),
    (0x4, "the power limit"),
    (0x8, "the hardware"),
];

#[cfg(feature = "nvml")]
mod known {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
    use nvml_wrapper::enums::device::SampleValue;
    use nvml_wrapper::error::NvmlError;
    use nvml_wrapper::structs::device::FieldId;
    use nvml_wrapper::{Device, Nvml};
    use parking_lot::Mutex;

    use crate::record::recording::RecordingInfo;
    use crate::record::series::{Failure, FailureCause, Kept, Kind, Lost, Metric, Series, Unit};
    use profiler_base::background::Background;

    /// One GPU in NVML.
    #[derive(Debug)]
    pub(crate) struct Gpu {
        nvml: Nvml,
        place: u32,
    }

    impl Gpu {
        /// Finds the GPU with this CUDA ordinal.
        pub(crate) fn find(info: &RecordingInfo, ordinal: u32) -> Result<Self, String> {
            let wanted = info.device(ordinal)?;
            let nvml = Nvml::init().map_err(|error| format!("NVML reports {error}"))?;
            // CUDA and NVML number GPUs differently: match by PCI address.
            let by_bus = wanted
                .pci_bus_id
                .as_deref()
                .and_then(|id| nvml.device_by_pci_bus_id(id).ok()?.index().ok());
            if let Some(place) = by_bus {
                return Ok(Self { nvml, place });
            }
            let count = nvml.device_count().map_err(|error| error.to_string())?;
            // If all GPUs are of one model and visible, both orders are the order of the bus.
            let all_alike = info.devices.windows(2).all(|pair| pair[0].name == pair[1].name);
            let place = match count {
                1 => 0,
                _ if all_alike && info.devices.len() == count as usize => ordinal,
                _ => return Err(format!("which of {count} GPUs of NVML is measured is not known")),
            };
            let name = nvml.device_by_index(place).and_then(|device| device.name());
            let name = name.map_err(|error| error.to_string())?;
            match wanted.name == name {
                true => Ok(Self { nvml, place }),
                false => Err(format!("the GPU of this machine is {name}")),
            }
        }

        pub(crate) fn device(&self) -> Result<Device<'_>, NvmlError> {
            self.nvml.device_by_index(self.place)
        }
    }

    /// A column and the query of its value.
    struct Column {
        name: &'static str,
        label: &'static str,
        unit: Unit,
        kind: Kind,
        query: Query,
    }

    type Query = fn(&Device<'_>) -> Result<f64, NvmlError>;

    impl Column {
        const fn new(
            name: &'static str,
            label: &'static str,
            unit: Unit,
            kind: Kind,
            query: Query,
        ) -> Self {
            Self { name, label, unit, kind, query }
        }
    }

    const MEGA: f64 = 1e6;

    /// Energy is a counter; a row has its increase.
    const COLUMNS: [Column; 10] = [
        Column::new(super::SM_CLOCK, "SM clock", Unit::Hertz, Kind::State, |device| {
            Ok(f64::from(device.clock_info(Clock::SM)?) * MEGA)
        }),
        Column::new(super::MEMORY_CLOCK, "memory clock", Unit::Hertz, Kind::State, |device| {
            Ok(f64::from(device.clock_info(Clock::Memory)?) * MEGA)
        }),
        Column::new(super::REASONS, "clock event reasons", Unit::Flags, Kind::State, |device| {
            Ok(device.current_throttle_reasons()?.bits() as f64)
        }),
        Column::new("nvml__power", "power (lags up to 1 s)", Unit::Watts, Kind::State, |device| {
            Ok(f64::from(device.power_usage()?) / 1e3)
        }),
        Column::new("nvml__power_instant", "power now", Unit::Watts, Kind::State, |device| {
            instant_power(device)
        }),
        Column::new("nvml__energy", "energy", Unit::Joules, Kind::Total, |device| {
            Ok(device.total_energy_consumption()? as f64 / 1e3)
        }),
        Column::new("nvml__memory_used", "memory used", Unit::Bytes, Kind::State, |device| {
            Ok(device.memory_info()?.used as f64)
        }),
        Column::new(
            "nvml__gpu_utilization",
            "GPU utilization",
            Unit::Percent,
            Kind::Mean,
            |device| Ok(f64::from(device.utilization_rates()?.gpu)),
        ),
        Column::new(
            "nvml__memory_utilization",
            "memory utilization",
            Unit::Percent,
            Kind::Mean,
            |device| Ok(f64::from(device.utilization_rates()?.memory)),
        ),
        Column::new("nvml__temperature", "temperature", Unit::Celsius, Kind::State, |device| {
            Ok(f64::from(device.temperature(TemperatureSensor::Gpu)?))
        }),
    ];

    /// `NVML_FI_DEV_POWER_INSTANT`, in milliwatts.
    const POWER_INSTANT: FieldId = FieldId(186);

    fn instant_power(device: &Device<'_>) -> Result<f64, NvmlError> {
        let sample = device.field_values_for(&[POWER_INSTANT])?.pop().ok_or(NvmlError::NotFound)?;
        match sample?.value? {
            SampleValue::U32(milliwatts) => Ok(f64::from(milliwatts) / 1e3),
            _ => Err(NvmlError::NotSupported),
        }
    }

    /// A thread that samples periodically.
    #[derive(Debug)]
    pub(crate) struct Sampler {
        shared: Arc<Shared>,
        thread: Option<JoinHandle<()>>,
        process_id: u32,
    }

    #[derive(Debug)]
    struct Shared {
        ends: AtomicBool,
        kept: Mutex<Kept>,
    }

    impl Sampler {
        /// Starts sampling into an empty series.
        pub(crate) fn start(
            info: &RecordingInfo,
            mut series: Series,
            most: usize,
        ) -> Result<Self, Failure> {
            let refused = |cause, why: String| {
                Failure::new(cause, format!("clocks and power are not sampled: {why}"))
            };
            let gpu = Gpu::find(info, series.device())
                .map_err(|why| refused(FailureCause::Unsupported, why))?;
            let device =
                gpu.device().map_err(|error| refused(cause_of(&error), error.to_string()))?;
            let (mut columns, mut first) = (Vec::new(), Vec::new());
            let (mut why_not, mut begun_ns) = (None, None);
            for column in COLUMNS {
                match (column.query)(&device) {
                    Ok(value) => {
                        begun_ns = begun_ns.or_else(|| read_at(column.kind));
                        let Column { name, label, unit, kind, .. } = column;
                        series.head.metrics.push(Metric::new(name, label, unit, kind));
                        columns.push(column);
                        first.push(value);
                    }
                    Err(error) => {
                        series.head.missing.push(column.name.to_owned());
                        why_not = Some(error);
                    }
                }
            }
            if columns.is_empty() {
                let why = why_not.map_or_else(String::new, |error| error.to_string());
                return Err(refused(FailureCause::Unsupported, why));
            }
            let interval = series.interval();
            let kept = Mutex::new(Kept::new(series, most));
            let shared = Arc::new(Shared { ends: AtomicBool::new(false), kept });
            let for_thread = shared.clone();
            let begun_ns = begun_ns.unwrap_or_else(cupti::clock::now_ns);
            let watch = Watch { gpu, columns, last: first, last_ns: begun_ns };
            let background = Background::default();
            let caught = background.clone();
            let work = move || {
                if caught.catch(|| watch.run(&for_thread, interval)).is_none() {
                    let why = "the thread that samples NVML panicked";
                    for_thread.kept.lock().fail(Failure::new(FailureCause::Ended, why));
                }
            };
            let thread = background
                .spawn("gpu-profiler-nvml", work)
                .map_err(|error| refused(FailureCause::Other, error.to_string()))?;
            Ok(Self { shared, thread: Some(thread), process_id: std::process::id() })
        }

        pub(crate) fn with_kept<R>(&self, with: impl FnOnce(&mut Kept) -> R) -> R {
            with(&mut self.shared.kept.lock())
        }

        /// Adds a last row, ends the thread and returns the samples within a window.
        pub(crate) fn stop(mut self, window_ns: (u64, u64)) -> Series {
            self.end();
            self.with_kept(|kept| kept.take_within(window_ns, Lost::default()))
        }

        fn end(&mut self) {
            // A forked child does not have the thread.
            if std::process::id() != self.process_id {
                std::mem::forget(self.thread.take());
                return;
            }
            self.shared.ends.store(true, Ordering::Release);
            let Some(thread) = self.thread.take() else { return };
            thread.thread().unpark();
            // A panic in the thread is the series' failure.
            let _ = thread.join();
        }
    }

    impl Drop for Sampler {
        fn drop(&mut self) {
            self.end();
        }
    }

    fn cause_of(error: &NvmlError) -> FailureCause {
        match error {
            NvmlError::NoPermission => FailureCause::Permission,
            NvmlError::NotSupported => FailureCause::Unsupported,
            _ => FailureCause::Other,
        }
    }

    /// The current time after reading a total. A row lasts from one reading of a total to the next,
    /// so that rates are exact: reading a value may take milliseconds.
    fn read_at(kind: Kind) -> Option<u64> {
        (kind == Kind::Total).then(cupti::clock::now_ns)
    }

    struct Watch {
        gpu: Gpu,
        columns: Vec<Column>,
        /// The last values, and the times at which they were read.
        last: Vec<f64>,
        last_ns: u64,
    }

    impl Watch {
        fn run(mut self, shared: &Shared, interval: Duration) {
            loop {
                let next_ns = self.last_ns.saturating_add(interval.as_nanos() as u64);
                let mut ends = shared.ends.load(Ordering::Acquire);
                while !ends {
                    let left_ns = next_ns.saturating_sub(cupti::clock::now_ns());
                    if left_ns == 0 {
                        break;
                    }
                    thread::park_timeout(Duration::from_nanos(left_ns));
                    ends = shared.ends.load(Ordering::Acquire);
                }
                if let Err(failure) = self.sample(shared) {
                    shared.kept.lock().fail(failure);
                    return;
                }
                if ends {
                    return;
                }
            }
        }

        /// Adds a row from the last reading to now.
        fn sample(&mut self, shared: &Shared) -> Result<(), Failure> {
            let ended = |error: NvmlError| {
                Failure::new(
                    FailureCause::Ended,
                    format!("NVML no longer reports the device: {error}"),
                )
            };
            let device = self.gpu.device().map_err(ended)?;
            let mut row = Vec::with_capacity(self.columns.len());
            let (mut refused, mut read_ns) = (None, None);
            for (column, last) in self.columns.iter().zip(&mut self.last) {
                let value = (column.query)(&device).unwrap_or_else(|error| {
                    refused = Some(error);
                    f64::NAN
                });
                read_ns = read_ns.or_else(|| read_at(column.kind));
                let before = std::mem::replace(last, value);
                // A counter that decreased was reset.
                row.push(match column.kind {
                    Kind::Total if value < before => f64::NAN,
                    Kind::Total => value - before,
                    _ => value,
                });
            }
            if let Some(error) = refused.filter(|_| row.iter().all(|value| value.is_nan())) {
                return Err(ended(error));
            }
            let now_ns = read_ns.unwrap_or_else(cupti::clock::now_ns);
            let last_ns = std::mem::replace(&mut self.last_ns, now_ns);
            let mut kept = shared.kept.lock();
            kept.push(last_ns, now_ns, &row);
            kept.keep_last();
            Ok(())
        }
    }

    #[cfg(test)]
    mod tests {
        use nvml_wrapper::bitmasks::device::ThrottleReasons;

        #[test]
        fn the_bits_match_nvml() {
            let bits = [
                ThrottleReasons::HW_THERMAL_SLOWDOWN,
                ThrottleReasons::SW_THERMAL_SLOWDOWN,
                ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
                ThrottleReasons::SW_POWER_CAP,
                ThrottleReasons::HW_SLOWDOWN,
            ];
            assert_eq!(
                super::super::SLOWED_BY.map(|(bit, _)| bit),
                bits.map(|reason| reason.bits())
            );
        }
    }
}

#[cfg(not(feature = "nvml"))]
mod unknown {
    use crate::record::recording::RecordingInfo;
    use crate::record::series::{Failure, FailureCause, Kept, Series};

    /// Behaves like a machine without NVML.
    #[derive(Debug)]
    pub(crate) enum Sampler {}

    impl Sampler {
        #[allow(clippy::needless_pass_by_value)] // as with the feature
        pub(crate) fn start(_: &RecordingInfo, _: Series, _: usize) -> Result<Self, Failure> {
            let message = "clocks and power are not sampled: built without the feature nvml";
            Err(Failure::new(FailureCause::Unsupported, message))
        }

        pub(crate) fn with_kept<R>(&self, _: impl FnOnce(&mut Kept) -> R) -> R {
            match *self {}
        }

        pub(crate) fn stop(self, _: (u64, u64)) -> Series {
            match self {}
        }
    }
}
