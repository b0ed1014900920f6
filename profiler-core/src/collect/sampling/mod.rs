//! What is sampled beside a session, and the samplers that do it.

mod shared;

use std::sync::Arc;
use std::time::Duration;

use cupti::Library;
use cupti::counters::{PmSampler, utilization};

use crate::collect::nvml;
use crate::record::recording::RecordingInfo;
use crate::record::series::{Cause, Failure, Kept, Kind, Lost, Metric, Series, Source, Unit};
use shared::{Counters, Wanted};

/// What is sampled beside a session: [`ProfilerBuilder::sample`](crate::ProfilerBuilder::sample).
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
    Counters { utilization: bool, metrics: Vec<String> },
    Nvml,
}

impl Sampling {
    fn new(what: What, interval: Duration) -> Self {
        Self { what, interval, devices: vec![0], most: 1_000_000 }
    }

    /// How busy a device is: SMs, tensor cores, DRAM, PCIe, NVLink, by hardware counters ([`cupti::counters::utilization`]).
    /// What the chip lacks, or does not fit in one pass, is told by [`Series::missing`]. Every 100 us.
    ///
    /// Needs CUPTI 12.8, a GPU of GA10x or later, and often an administrator's permission. One sampler at a time has a device's
    /// counters: sessions of this process that sample the same share it, with the bound of the first. Nothing is run twice, and
    /// no context is waited for.
    ///
    /// On an H200, 800 copies of 1 GiB read and wrote by their samples what they did read and write, within 0.01 %; one by
    /// one, each of 0.9 ms, within 3 %.
    pub fn utilization() -> Self {
        let what = What::Counters { utilization: true, metrics: Vec::new() };
        Self::new(what, Duration::from_micros(100))
    }

    /// Hardware counters by name, with [`metrics`](Self::metrics): all of them have to fit in one pass. Every 100 us. Needs
    /// what [`utilization`](Self::utilization) needs.
    pub fn counters() -> Self {
        let what = What::Counters { utilization: false, metrics: Vec::new() };
        Self::new(what, Duration::from_micros(100))
    }

    /// What NVML says: clocks, why they are low, power, energy, memory, utilisation, temperature. Every 100 ms. Needs the
    /// feature `nvml` and no permission.
    ///
    /// Power and energy differ over short times. `nvml__power` is a mean of the last second on Ampere and later (on GA100 and
    /// before it is instantaneous), and the utilisations are means of up to a second. `nvml__energy` is a counter in millijoules
    /// that is updated every 100 ms: a sum is off by up to one update at each end, and a row of less than 200 ms holds none, one or
    /// two updates. On an H200 under a steady load of 395 W the energy came to 394 W, the power to 395 W; over the first 500 ms of
    /// that load to 388 W and 175 W, and single rows of 100 ms to 309 to 724 W by energy. Take `nvml__energy` over half a second
    /// and more for what ranges used, and `nvml__power_instant` for the power at a time. Whether a device was busy is better read
    /// from [`utilization`](Self::utilization).
    pub fn nvml() -> Self {
        Self::new(What::Nvml, Duration::from_millis(100))
    }

    /// Samples these hardware counters too: names with their roll-ups, as `lts__t_bytes.sum`. Of what
    /// [`utilization`](Self::utilization) asks for, what still fits beside them is sampled. NVML has no such names and tells
    /// them as missing.
    pub fn metrics<M: Into<String>>(mut self, names: impl IntoIterator<Item = M>) -> Self {
        if let What::Counters { metrics, .. } = &mut self.what {
            metrics.extend(names.into_iter().map(Into::into));
        }
        self
    }

    /// The time between two samples. See [`SamplerBuilder::interval`](cupti::counters::SamplerBuilder::interval) for how
    /// short it can be; of NVML how old its values are counts too ([`nvml`](Self::nvml)).
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Samples these devices, by their CUDA ordinals, instead of device 0. Each has a sampler and a series of its own.
    pub fn devices(mut self, ordinals: impl IntoIterator<Item = u32>) -> Self {
        self.devices = ordinals.into_iter().collect();
        self
    }

    /// How many samples are kept of each device; 1,000,000 by default, 100 s of 100 us. The oldest go first, and are told in
    /// [`Series::dropped`]. One takes 16 bytes and 8 for each metric. Up to a quarter more are kept, so that they go many at
    /// a time: in the buffer of a sampler of counters, and in what sessions have of it.
    pub fn max_samples(mut self, samples: usize) -> Self {
        self.most = samples.max(1);
        self
    }

    /// No more than come in such a time, and some.
    pub(crate) fn bounded(mut self, time: Duration) -> Self {
        let count = time.as_nanos() / self.interval.as_nanos().max(1);
        let some_more = count.saturating_add(count / 4).saturating_add(100);
        self.most = self.most.min(usize::try_from(some_more).unwrap_or(usize::MAX));
        self
    }

    /// How many series it gives.
    pub(crate) fn series(&self) -> usize {
        self.devices.len()
    }

    fn source(&self) -> Source {
        match self.what {
            What::Counters { .. } => Source::Counters,
            What::Nvml => Source::Nvml,
        }
    }

    fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn start(&self, library: &Library, device: u32) -> Sampler {
        let series = |metrics| Series::new(device, self.source(), self.interval_ns(), metrics);
        let none = |failure| Sampler::None(series(Vec::new()).with_failure(failure));
        match &self.what {
            What::Counters { utilization, metrics } => {
                let wanted = Wanted {
                    library: library.clone(),
                    device,
                    interval: self.interval,
                    utilization: *utilization,
                    metrics: metrics.clone(),
                };
                let empty = |sampler: &PmSampler| {
                    let metrics = sampler.metrics().iter().map(|name| metric(name)).collect();
                    series(metrics).with_missing(sampler.missing().to_vec())
                };
                match Counters::start(wanted, self.most, empty) {
                    Ok(counters) => Sampler::Counters(counters),
                    Err(error) => none(failure(&error)),
                }
            }
            What::Nvml => {
                let info = RecordingInfo::now(library);
                match nvml::Sampler::start(&info, series(Vec::new()), self.most) {
                    Ok(sampler) => Sampler::Nvml(sampler),
                    Err(failure) => none(failure),
                }
            }
        }
    }
}

fn failure(error: &cupti::Error) -> Failure {
    let cause = match error {
        _ if error.is_permission() => Cause::Permission,
        _ if error.is_busy() => Cause::Busy,
        _ if error.is_unsupported() || error.is_unavailable() => Cause::Unsupported,
        _ => Cause::Other,
    };
    Failure::new(cause, error.to_string())
}

/// What the name of a hardware counter says of its values.
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
        // Of all units of the chip, or of one of them.
        "sum" | "avg" => (counted, Kind::Total),
        _ => (Unit::Other, Kind::Mean),
    };
    Metric::new(name, utilization::label(name).unwrap_or(name), unit, kind)
}

/// The samplers of a session, each on a thread of its own.
#[derive(Debug, Default)]
pub(crate) struct Samplers(Vec<Sampler>);

#[derive(Debug)]
enum Sampler {
    Counters(Counters),
    Nvml(nvml::Sampler),
    /// It could not begin, or has ended.
    None(Series),
}

impl Samplers {
    /// Starts what can be; of all else the series say why not.
    pub(crate) fn start(library: &Library, samplings: &[Sampling]) -> Self {
        let devices = |sampling: &Sampling| sampling.devices.clone();
        let all = samplings.iter().flat_map(|sampling| {
            devices(sampling).into_iter().map(|device| sampling.start(library, device))
        });
        Self(all.collect())
    }

    /// Forgets what was sampled so far.
    pub(crate) fn restart(&mut self) {
        for sampler in &mut self.0 {
            match sampler {
                Sampler::Counters(counters) => counters.restart(),
                Sampler::Nvml(sampler) => sampler.with(Kept::clear),
                Sampler::None(_) => {}
            }
        }
    }

    /// What was sampled so far within a time.
    pub(crate) fn so_far(&mut self, window_ns: (u64, u64)) -> Vec<Arc<Series>> {
        let cut = |sampler: &mut Sampler| {
            Arc::new(match sampler {
                Sampler::Counters(counters) => counters.so_far(window_ns),
                Sampler::Nvml(sampler) => {
                    sampler.with(|kept| kept.within(window_ns, Lost::default()))
                }
                Sampler::None(series) => series.clone(),
            })
        };
        self.0.iter_mut().map(cut).collect()
    }

    /// Ends them and gives what was sampled within a time.
    pub(crate) fn stop(self, window_ns: (u64, u64)) -> Vec<Arc<Series>> {
        let stop = |sampler| {
            Arc::new(match sampler {
                Sampler::Counters(counters) => counters.stop(window_ns),
                Sampler::Nvml(sampler) => sampler.stop(window_ns),
                Sampler::None(series) => series,
            })
        };
        self.0.into_iter().map(stop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counters_name_says_what_its_values_are() {
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
