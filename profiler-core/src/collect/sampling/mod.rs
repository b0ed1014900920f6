//! Samplers beside a session, and their settings.

mod shared;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use cupti::counters::{PmSampler, utilization};
use cupti::{Library, PcSampling, quiet_thread};
use profiler_base::setters;

use crate::collect::nvml;
#[cfg(feature = "stacks")]
use crate::record::host_stacks::sampler::SamplerSettings;
use crate::record::recording::RecordingInfo;
use crate::record::series::{
    Failure, FailureCause, Kept, Kind, Lost, Metric, Series, Source, Unit,
};
use shared::{Counters, Wanted};

/// The longest wait of a stop for a sampler that starts: 0.6 s on an H200.
const LONGEST_START: Duration = Duration::from_secs(10);

/// The settings of a sampler beside a session:
/// [`ProfilerBuilder::sample`](crate::ProfilerBuilder::sample).
///
/// ```no_run
/// use profiler_core::{Profiler, Sampling};
///
/// # fn step() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let profiler = Profiler::builder().sample(Sampling::utilization()).sample(Sampling::nvml()).build()?;
/// let ((), profile) = profiler.record(|| {
///     let _range = nvtx::range("step");
///     step();
/// })?;
/// for range in profile.ranges() {
///     for track in profile.tracks() {
///         if let Some(mean) = range.mean(&track) {
///             println!("{}: {:.1} {} in {} samples", track.label(), mean.value, track.rate_unit(), mean.samples);
///         }
///     }
/// }
/// for series in profile.series() {
///     if let Some(failure) = series.failure() {
///         println!("{}: {failure}", series.source()); // the session went on without
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sampled until a profiler is built with it"]
pub struct Sampling {
    what: What,
    interval: Duration,
    devices: Vec<u32>,
    most: usize,
}

#[derive(Debug, Clone)]
enum What {
    Device(OfDevice),
    Instructions(PcSampling),
    #[cfg_attr(not(feature = "stacks"), allow(dead_code, reason = "unwinding is in that feature"))]
    Host {
        timers: bool,
    },
}

#[derive(Debug, Clone)]
enum OfDevice {
    Counters { rows: Vec<&'static utilization::Row>, metrics: Vec<String> },
    Nvml,
}

impl OfDevice {
    fn source(&self) -> Source {
        match self {
            Self::Counters { .. } => Source::Counters,
            Self::Nvml => Source::Nvml,
        }
    }
}

impl Sampling {
    fn new(what: OfDevice, interval: Duration) -> Self {
        Self { what: What::Device(what), interval, devices: vec![0], most: 1_000_000 }
    }

    /// Device utilization by hardware counters: SMs, tensor cores, DRAM, PCIe, NVLink
    /// ([`cupti::counters::utilization`]), every 100 us. [`Series::missing`] lists metrics that the
    /// chip lacks or that do not fit in one pass.
    ///
    /// Requires CUPTI 12.8, a GPU of GA10x or later, and often administrator rights. One sampler at
    /// a time can use a device's counters. Sessions of this process with the same settings share
    /// it, with the sample limit of the first. No work is replayed, and no context is waited for.
    ///
    /// On an H200, the sampled bytes of 800 copies of 1 GiB were within 0.01 %; the bytes of single
    /// copies of 0.9 ms were within 3 %.
    pub fn utilization() -> Self {
        let rows = utilization::ROWS.iter().collect();
        let what = OfDevice::Counters { rows, metrics: Vec::new() };
        Self::new(what, Duration::from_micros(100))
    }

    /// Limits [`utilization`](Self::utilization) to the rows whose label begins with one of these
    /// words: `SM`, `tensor`, `DRAM`, `PCIe`, `NVLink`, `GPU`. Other samplers ignore it.
    pub fn units<'u>(mut self, words: impl IntoIterator<Item = &'u str>) -> Self {
        let words: Vec<&str> = words.into_iter().collect();
        if let What::Device(OfDevice::Counters { rows, .. }) = &mut self.what {
            rows.retain(|row| words.iter().any(|word| row.label.starts_with(word)));
        }
        self
    }

    /// Hardware counters by name, to be set with [`metrics`](Self::metrics); all must fit in one
    /// pass. Every 100 us, with the requirements of [`utilization`](Self::utilization).
    pub fn counters() -> Self {
        let what = OfDevice::Counters { rows: Vec::new(), metrics: Vec::new() };
        Self::new(what, Duration::from_micros(100))
    }

    /// NVML's values: clocks and the reasons for low clocks, power, energy, memory, utilization,
    /// temperature, every 100 ms. Requires the feature `nvml` and no rights.
    ///
    /// `nvml__power` is a mean of the last second on Ampere and later (instantaneous on GA100 and
    /// before); utilization is a mean of up to a second. `nvml__energy` counts millijoules and is
    /// updated every 100 ms. A sum may miss one update at each end, and rows under 200 ms contain
    /// none, one or two updates. Under a steady load of 395 W, an H200 reported 394 W by energy and
    /// 395 W by power. In the first 500 ms of the load it reported 388 W and 175 W. Rows of 100 ms
    /// ranged from 309 to 724 W by energy. Use `nvml__energy` over at least half a second for the
    /// energy of ranges, `nvml__power_instant` for momentary power, and
    /// [`utilization`](Self::utilization) for busy times.
    pub fn nvml() -> Self {
        Self::new(OfDevice::Nvml, Duration::from_millis(100))
    }

    /// Instructions and what they wait for: every 65,536 cycles, each multiprocessor samples the
    /// instruction of a warp and its stall ([`Stall`](crate::query::Stall)), while kernels run as
    /// they would. [`Profile::instructions`](crate::Profile::instructions) and
    /// [`Query::instructions`](crate::query::Query::instructions) have the samples, the share that is
    /// exact, and losses.
    ///
    /// Begin the session before the program's first CUDA call: modules that are loaded earlier have
    /// no source lines. Needs the rights of hardware counters; without them the session continues,
    /// and [`InstructionCounts`](crate::query::InstructionCounts) has the reason. Every session that
    /// runs at the same time has the samples; one that asks for other settings cannot start.
    ///
    /// Costs buffers of 100 MB for each context, and 24 bytes for each of at most 4 Mi
    /// ([`max_samples`](Self::max_samples)) records that were not taken out yet; a stop, and a pause,
    /// take some 100 ms longer, and launches of other threads wait for them.
    /// [`cupti::pc_sampling`] has the details.
    pub fn instructions() -> Self {
        let what = What::Instructions(PcSampling::continuous());
        Self { what, interval: Duration::ZERO, devices: Vec::new(), most: 4 << 20 }
    }

    /// Sets the cycles between two [instruction samples](Self::instructions) of a multiprocessor,
    /// rounded up to a power of two. Other samplers ignore it.
    pub fn period_cycles(mut self, cycles: u32) -> Self {
        if let What::Instructions(settings) = self.what {
            self.what = What::Instructions(settings.period_cycles(cycles));
        }
        self
    }

    /// Runs kernels one by one, so that each [instruction sample](Self::instructions) has its
    /// launch and is exact. The program becomes many times slower. Other samplers ignore it.
    pub fn serialized(mut self) -> Self {
        if let What::Instructions(settings) = self.what {
            self.what = What::Instructions(settings.serialize());
        }
        self
    }

    /// Keeps cubins that have a line table ([`Profile::cubin`](crate::Profile::cubin)), from which
    /// `gpuprof lines --sass` shows machine code; at most 256 MiB of different ones. Other samplers
    /// than [`instructions`](Self::instructions) ignore it.
    pub fn keep_cubins(mut self) -> Self {
        if let What::Instructions(settings) = self.what {
            self.what = What::Instructions(settings.keep_cubins(true));
        }
        self
    }

    /// The activity of submitting threads between their launches, sampled every millisecond: their
    /// functions, and the system calls in which they wait. The samples cover the gaps for which a
    /// session with [`stacks_after`](crate::ProfilerBuilder::stacks_after) takes stacks; without it
    /// the start fails.
    ///
    /// If `perf_event_open` is permitted, it takes stacks by the thread's CPU time and when the
    /// thread leaves a CPU. The kernel permits it with `CAP_PERFMON` or
    /// `kernel.perf_event_paranoid` of at most 1; with 2, threads have no stacks while the kernel
    /// works for them. Otherwise, as in most containers, a thread of the profiler reads the system
    /// call of waiting threads from `/proc`. Running threads then have stacks only with
    /// [`timers`](Self::timers). [`Profile::host_samples`](crate::Profile::host_samples) has the
    /// source, the reason and the losses.
    ///
    /// Up to 64 threads with perf (half a megabyte each, locked in memory), 256 in total. It stores
    /// the last 262,144 parts of gaps, or [`max_samples`](Self::max_samples) if set. Consecutive
    /// samples with the same state and stack are one part. One session of a process samples at a
    /// time.
    #[cfg(feature = "stacks")]
    pub fn host() -> Self {
        let what = What::Host { timers: false };
        Self { what, interval: Duration::from_millis(1), devices: Vec::new(), most: 1 << 18 }
    }

    /// Samples running threads by timers of their CPU time if [`host`](Self::host) has no perf.
    /// Only host samplers use this setting.
    ///
    /// The timers send `SIGPROF`. Its handler copies registers and up to 16 KiB of stack, and stays
    /// installed until the process ends. System calls are restarted (`SA_RESTART`); system calls
    /// that cannot be restarted may end early with `EINTR`. Not used if the program handles the
    /// signal itself. The kernel's tick, 1 to 10 ms, is the shortest interval.
    #[cfg(feature = "stacks")]
    pub fn timers(mut self) -> Self {
        if let What::Host { timers } = &mut self.what {
            *timers = true;
        }
        self
    }

    /// Adds hardware counters by name with roll-up, such as `lts__t_bytes.sum`. Counters of
    /// [`utilization`](Self::utilization) are sampled as far as they still fit. NVML reports such
    /// names as missing.
    pub fn metrics<M: Into<String>>(mut self, names: impl IntoIterator<Item = M>) -> Self {
        if let What::Device(OfDevice::Counters { metrics, .. }) = &mut self.what {
            metrics.extend(names.into_iter().map(Into::into));
        }
        self
    }

    setters! {
        /// The time between two samples.
        /// [`SamplerBuilder::interval`](cupti::counters::SamplerBuilder::interval) has the lower
        /// bound of counters; NVML's values may be older ([`nvml`](Self::nvml)).
        interval(interval: Duration) interval = interval;
        /// Samples these devices by CUDA ordinal instead of device 0, each with its own series.
        devices(ordinals: impl IntoIterator<Item = u32>) devices = ordinals.into_iter().collect();
        /// The number of samples stored per device: 1,000,000 by default, 100 s at 100 us. Older
        /// samples are dropped, a quarter of the number at a time, and counted in
        /// [`Series::dropped`]. A sample takes 16 bytes and 8 per metric, in the sampler and in
        /// each session.
        max_samples(samples: usize) most = samples.max(1);
    }

    /// Limits the stored samples to somewhat more than arrive in this time.
    pub(crate) fn bounded(mut self, time: Duration) -> Self {
        if matches!(self.what, What::Instructions(_)) {
            return self;
        }
        let count = time.as_nanos() / self.interval.as_nanos().max(1);
        let some_more = count.saturating_add(count / 4).saturating_add(100);
        self.most = self.most.min(usize::try_from(some_more).unwrap_or(usize::MAX));
        self
    }

    /// The settings of instruction samples, if it is their sampler.
    pub(crate) fn of_instructions(&self) -> Option<PcSampling> {
        match &self.what {
            What::Instructions(settings) => Some(settings.clone().max_records(self.most)),
            _ => None,
        }
    }

    /// The number of series.
    pub(crate) fn series(&self) -> usize {
        self.of_devices().count()
    }

    /// The devices, with their sampled values.
    fn of_devices(&self) -> impl Iterator<Item = (u32, &OfDevice)> {
        let what = match &self.what {
            What::Device(what) => Some(what),
            What::Host { .. } | What::Instructions(_) => None,
        };
        what.into_iter().flat_map(|what| self.devices.iter().map(move |device| (*device, what)))
    }

    /// The settings of the sampler of host threads, if it is one.
    #[cfg(feature = "stacks")]
    pub(crate) fn of_host(&self) -> Option<SamplerSettings> {
        match self.what {
            What::Host { timers } => Some(SamplerSettings {
                interval: self.interval,
                most: self.most,
                perf: true,
                timers,
            }),
            What::Device(_) | What::Instructions(_) => None,
        }
    }

    fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Starts a sampler. While the driver initialises, it starts on a thread that waits for the
    /// driver.
    fn start(&self, library: &Library, device: u32, what: &OfDevice) -> Sampler {
        if !library.driver().devices.is_empty() {
            return self.start_now(library, device, what);
        }
        let (sampling, library, what) = (self.clone(), library.clone(), what.clone());
        let (started, starting) = mpsc::sync_channel(1);
        let none = sampling.none(device, &what, "it did not start before the end");
        let start = move || {
            let _ = library.find_devices();
            let _ = started.send(sampling.start_now(&library, device, &what));
        };
        match quiet_thread::spawn(thread::Builder::new(), "profiler-sample", start) {
            Ok(_) => Sampler::Starting(starting, none),
            Err(error) => Sampler::None(
                none.with_failure(Failure::new(FailureCause::Ended, error.to_string())),
            ),
        }
    }

    /// The series of a sampler that did not start.
    fn none(&self, device: u32, what: &OfDevice, why: &str) -> Series {
        let interval = Duration::from_nanos(self.interval_ns());
        let series = Series::new(device, what.source(), interval, Vec::new());
        series.with_failure(Failure::new(FailureCause::Ended, why.to_owned()))
    }

    fn start_now(&self, library: &Library, device: u32, what: &OfDevice) -> Sampler {
        let source = what.source();
        let series = |metrics| {
            Series::new(device, source, Duration::from_nanos(self.interval_ns()), metrics)
        };
        let none = |failure| Sampler::None(series(Vec::new()).with_failure(failure));
        let info = RecordingInfo::now(library);
        if let Err(why) = info.device(device) {
            return none(Failure::new(FailureCause::Unsupported, why));
        }
        match what {
            OfDevice::Counters { rows, metrics } => {
                let wanted = Wanted {
                    library: library.clone(),
                    device,
                    interval: self.interval,
                    rows: rows.clone(),
                    metrics: metrics.clone(),
                };
                let empty = |sampler: &PmSampler| {
                    let metrics = sampler.metrics().iter().map(|name| metric(name)).collect();
                    series(metrics).with_missing(sampler.missing().to_vec())
                };
                match Counters::start(wanted, self.most, empty) {
                    Ok(counters) => Sampler::Counters(counters),
                    Err(error) => none(Failure::of_cupti(&error)),
                }
            }
            OfDevice::Nvml => match nvml::Sampler::start(&info, series(Vec::new()), self.most) {
                Ok(sampler) => Sampler::Nvml(sampler),
                Err(failure) => none(failure),
            },
        }
    }
}

/// Derives the unit and kind of a hardware counter from its name.
fn metric(name: &str) -> Metric {
    let (base, roll_up) = name.split_once('.').unwrap_or((name, ""));
    let counted = match base {
        _ if base.contains("bytes") => Unit::Bytes,
        _ if base.ends_with("time_duration") => Unit::Nanoseconds,
        _ => Unit::Count,
    };
    let (unit, kind) = match roll_up {
        _ if roll_up.contains("pct") => (Unit::Percent, Kind::Mean),
        _ if roll_up.ends_with("per_second") => {
            (counted.per_second().unwrap_or(Unit::Other), Kind::Mean)
        }
        // A value of all units of the chip, or of one unit.
        "sum" | "avg" => (counted, Kind::Total),
        _ => (Unit::Other, Kind::Mean),
    };
    Metric::new(name, utilization::label(name).unwrap_or(name), unit, kind)
}

/// The samplers of a session, each with its own thread.
#[derive(Debug, Default)]
pub(crate) struct Samplers(Vec<Sampler>);

#[derive(Debug)]
enum Sampler {
    Counters(Counters),
    Nvml(nvml::Sampler),
    /// The sampler failed to start, or has ended.
    None(Series),
    /// The sampler that a thread starts, and the series if it never does.
    Starting(Receiver<Self>, Series),
}

impl Sampler {
    /// Takes the place of a sampler that starts within this time.
    fn settle(&mut self, longest: Duration) {
        if let Self::Starting(starting, _) = self
            && let Ok(started) = starting.recv_timeout(longest)
        {
            *self = started;
        }
    }
}

impl Samplers {
    /// Starts the samplers; series of failed ones have the failure.
    pub(crate) fn start(library: &Library, samplings: &[Sampling]) -> Self {
        let all = samplings.iter().flat_map(|sampling| {
            sampling.of_devices().map(|(device, what)| sampling.start(library, device, what))
        });
        Self(all.collect())
    }

    /// Discards the samples so far.
    pub(crate) fn restart(&mut self) {
        for sampler in &mut self.0 {
            sampler.settle(Duration::ZERO);
            match sampler {
                Sampler::Counters(counters) => counters.restart(),
                Sampler::Nvml(sampler) => sampler.with_kept(Kept::clear),
                Sampler::None(_) | Sampler::Starting(..) => {}
            }
        }
    }

    /// Returns the samples so far within a window.
    pub(crate) fn so_far(&mut self, window_ns: (u64, u64)) -> Vec<Arc<Series>> {
        let cut = |sampler: &mut Sampler| {
            sampler.settle(Duration::ZERO);
            Arc::new(match sampler {
                Sampler::Counters(counters) => counters.so_far(window_ns),
                Sampler::Nvml(sampler) => {
                    sampler.with_kept(|kept| kept.window(window_ns, Lost::default()))
                }
                Sampler::None(series) | Sampler::Starting(_, series) => series.clone(),
            })
        };
        self.0.iter_mut().map(cut).collect()
    }

    /// Stops the samplers and returns the samples within a window.
    pub(crate) fn stop(self, window_ns: (u64, u64)) -> Vec<Arc<Series>> {
        let stop = |mut sampler: Sampler| {
            // The process may end next, and CUPTI must not start a sampler meanwhile.
            sampler.settle(LONGEST_START);
            Arc::new(match sampler {
                Sampler::Counters(counters) => counters.stop(window_ns),
                Sampler::Nvml(sampler) => sampler.stop(window_ns),
                Sampler::None(series) | Sampler::Starting(_, series) => series,
            })
        };
        self.0.into_iter().map(stop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_counter_contains_its_semantics() {
        let of = |name: &str| {
            let metric = metric(name);
            (metric.label, metric.unit, metric.kind)
        };
        let label = |text: &str| text.to_owned();
        assert_eq!(of("dram__bytes_read.sum"), (label("DRAM read"), Unit::Bytes, Kind::Total));
        let active = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed";
        assert_eq!(of(active), (label("SM active"), Unit::Percent, Kind::Mean));
        let name = "lts__t_bytes.sum.per_second";
        assert_eq!(of(name), (label(name), Unit::BytesPerSecond, Kind::Mean));
        let name = "gpc__cycles_elapsed.avg.per_second";
        assert_eq!(of(name), (label(name), Unit::Hertz, Kind::Mean));
        let name = "gpu__time_duration.sum";
        assert_eq!(of(name), (label(name), Unit::Nanoseconds, Kind::Total));
        let name = "sm__warps_active.avg.per_cycle_active";
        assert_eq!(of(name), (label(name), Unit::Other, Kind::Mean));
        assert_eq!(of("sm__inst_executed.sum").1, Unit::Count);
        assert_eq!(of("sm__cycles_active.max").2, Kind::Mean);
    }

    #[test]
    fn a_session_that_keeps_a_time_keeps_no_more_samples() {
        let kept = Sampling::utilization().bounded(Duration::from_secs(1));
        assert_eq!(kept.most, 12_600);
        assert_eq!(Sampling::utilization().bounded(Duration::MAX).most, 1_000_000);
    }
}
