//! Counters at intervals: the GPU's activity over time, without ranges and repeated runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::host::{Host, Method};
use super::plan::Plan;
use super::utilization;
use crate::accessors::{getters, setters};
use crate::clock::{self, Clock, Reading};
use crate::collection_state;
use crate::error::{Error, Kind};
use crate::forked;
use crate::library::Library;
use crate::quiet_thread;
use crate::sys::counters::SamplingApi;
use crate::sys::os;
use crate::sys::sampling::SamplingObject;

/// Bytes of the GPU's samples in host memory until they are decoded.
const HARDWARE_BUFFER: usize = 64 << 20;

/// Samples of one decoding.
const IMAGE_SAMPLES: u32 = 4096;

/// The sampled devices: CUPTI refuses a second sampler of a device with UNKNOWN.
static SAMPLED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The samplers that run; `None` once the process ends. Locked while one starts.
static RUNNING: Mutex<Option<Vec<Weak<Shared>>>> = Mutex::new(Some(Vec::new()));

#[derive(Debug)]
struct DeviceLease(u32);

impl DeviceLease {
    fn take(device: u32) -> Result<Self, Error> {
        forked::check_process()?;
        collection_state::leave_children_out();
        let mut sampled = SAMPLED.lock();
        if sampled.contains(&device) {
            return Err(Error::new(Kind::AlreadyMeasuring));
        }
        sampled.push(device);
        Ok(Self(device))
    }
}

impl Drop for DeviceLease {
    fn drop(&mut self) {
        SAMPLED.lock().retain(|device| *device != self.0);
    }
}

/// The settings of a sampler: [`PmSampler::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is sampled before it is started"]
pub struct SamplerBuilder {
    library: Library,
    device: u32,
    metrics: Vec<String>,
    rows: Vec<&'static utilization::Row>,
    interval: Duration,
    most: usize,
}

impl SamplerBuilder {
    setters! {
        /// The device, by its CUDA ordinal; 0 by default.
        device(ordinal: u32) device = ordinal;
        /// Sets the interval; 100 us by default. On an H200 a debug build sampled five metrics at
        /// 60 us for seconds without a gap; at 40 us CUPTI failed after 2 s ([`Samples::failure`]).
        /// [`Samples::overflows`] and [`Samples::gaps`] count losses.
        interval(interval: Duration) interval = interval;
        /// Sets the maximum number of stored samples; 1,000,000 by default. The oldest are dropped
        /// first and counted in [`Samples::dropped`]. A sample costs 16 bytes and 8 for each
        /// metric.
        max_samples(samples: usize) most = samples.max(1);
    }

    /// Adds metrics: names with roll-ups. All must fit in one pass.
    pub fn metrics<M: Into<String>>(mut self, names: impl IntoIterator<Item = M>) -> Self {
        self.metrics.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds the metrics of [`utilization::ROWS`](super::utilization::ROWS) that the chip has and
    /// that fit in the pass. [`PmSampler::missing`] lists the others.
    pub fn utilization(self) -> Self {
        self.rows(&utilization::ROWS)
    }

    /// Adds some of these rows in the same way.
    pub fn rows(mut self, rows: impl IntoIterator<Item = &'static utilization::Row>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Starts sampling and a thread that decodes the samples. Needs no context.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported): CUPTI is older than 12.8, the device is older
    /// than GA10x, the chip lacks some of the metrics. The metrics need more than one pass.
    /// [`is_permission`](Error::is_permission), [`is_busy`](Error::is_busy): the text contains the
    /// remedy.
    pub fn start(self) -> Result<PmSampler, Error> {
        let Self { library, device, metrics, rows, interval, most } = self;
        let api = library
            .sampling_api()
            .ok_or_else(|| library.lacks("sampling of counters".into(), "12.8"))?;
        let host_api = library.host_api()?;
        let turn = DeviceLease::take(device)?;
        let mut running = RUNNING.lock();
        let running = running.as_mut().ok_or_else(|| Error::misuse("the process ends"))?;
        api.prepare()?;
        end_with_process();
        let chip = api.chip_of(device)?;
        let availability = api.availability_of(device)?;
        let host =
            Host::new(host_api, library.version(), &chip, Method::Sampling, Some(availability))?;
        let (plan, missing) = if rows.is_empty() {
            (host.plan(metrics)?, Vec::new())
        } else {
            fitting(&host, metrics, &rows)?
        };
        if plan.passes() > 1 {
            return Err(Error::new(Kind::Passes { needed: plan.passes() }));
        }
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut object = SamplingObject::enable(api, device)?;
        let (names, image) = (&plan.names, &plan.image);
        object.configure(names, image, interval_ns, HARDWARE_BUFFER, IMAGE_SAMPLES)?;
        let begun = clock::read(&library)?;
        object.start()?;
        let metrics = plan.metrics().to_vec();
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            thread: Mutex::new(None),
            ended: Mutex::new(Ok(())),
            kept: Mutex::new(Samples::new(metrics.clone(), interval_ns, begun)),
        });
        let decoder =
            Decoder { object, _turn: turn, plan, shared: shared.clone(), most, last_end: None };
        // A third of an image's capacity, so that none fills up between two decodings.
        let pause = interval.saturating_mul(IMAGE_SAMPLES / 3);
        let pause = pause.clamp(Duration::from_millis(1), Duration::from_millis(20));
        let work = move || decoder.run(pause);
        let thread = quiet_thread::spawn(thread::Builder::new(), "cupti-pm-sampling", work)
            .map_err(|error| Error::new(Kind::Thread { reason: error.to_string() }))?;
        *shared.thread.lock() = Some(thread);
        running.retain(|other| other.strong_count() > 0);
        running.push(Arc::downgrade(&shared));
        let process_id = std::process::id();
        Ok(PmSampler { library, shared, metrics, missing, process_id })
    }
}

/// Plans the requested metrics with as many of the rows as fit in one pass; also returns the omitted
/// ones.
fn fitting(
    host: &Host,
    asked: Vec<String>,
    rows: &[&'static utilization::Row],
) -> Result<(Plan, Vec<String>), Error> {
    let with = |so_far: &[String], more: &[&str]| {
        let names = so_far.iter().map(String::as_str).chain(more.iter().copied());
        host.plan_if_possible(names).filter(|plan| plan.passes() == 1)
    };
    // Usually all metrics fit, by their first names, except those of absent hardware, such as
    // unconnected links.
    let first: Vec<&str> = rows.iter().map(|row| row.names[0]).collect();
    if let Some(plan) = with(&asked, &first) {
        return Ok((plan, Vec::new()));
    }
    let alone = |row: &utilization::Row| {
        row.names.iter().copied().find(|name| with(&[], &[name]).is_some())
    };
    let found: Vec<(&utilization::Row, Option<&str>)> =
        rows.iter().map(|row| (*row, alone(row))).collect();
    let there: Vec<&str> = found.iter().filter_map(|(_, name)| *name).collect();
    let named = |row: &utilization::Row| row.names[0].to_owned();
    if !there.is_empty()
        && let Some(plan) = with(&asked, &there)
    {
        let missing = found.iter().filter(|(_, name)| name.is_none());
        return Ok((plan, missing.map(|(row, _)| named(row)).collect()));
    }
    let (mut plan, mut metrics, mut missing) = (None, asked, Vec::new());
    for (row, name) in found {
        match name.and_then(|name| Some((name, with(&metrics, &[name])?))) {
            Some((name, fits)) => {
                if !metrics.iter().any(|metric| metric == name) {
                    metrics.push(name.to_owned());
                }
                plan = Some(fits);
            }
            None => missing.push(named(row)),
        }
    }
    match plan {
        Some(plan) => Ok((plan, missing)),
        // None fits: the plan with only the requested metrics succeeds or has the error.
        None if metrics.is_empty() => {
            let none = || Error::misuse("no metric of utilization fits in one pass on this chip");
            Err(host.plan(missing).err().unwrap_or_else(none))
        }
        None => Ok((host.plan(metrics)?, missing)),
    }
}

impl Library {
    /// 12.6 has the functions, but no header with their parameters.
    pub(crate) fn sampling_api(&self) -> Option<SamplingApi> {
        self.api.sampling.filter(|_| self.version().cuda_release() >= (12, 8))
    }
}

/// Samples metrics of a device at intervals (CUPTI's PM sampling), until it is stopped or dropped.
///
/// All work on the device counts, of every context and process. Nothing runs twice, and kernels run
/// concurrently as usual. A device's counters have one user at a time.
///
/// ```no_run
/// use cupti::Library;
/// use cupti::counters::PmSampler;
///
/// # fn main() -> Result<(), cupti::Error> {
/// let library = Library::open()?;
/// let metrics = ["dram__bytes_read.sum", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"];
/// let sampler = PmSampler::builder(&library).metrics(metrics).start()?;
/// // ... work that uses CUDA ...
/// let samples = sampler.stop()?;
/// println!("{samples}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PmSampler {
    library: Library,
    shared: Arc<Shared>,
    metrics: Vec<String>,
    missing: Vec<String>,
    process_id: u32,
}

#[derive(Debug)]
struct Shared {
    ends: AtomicBool,
    /// The decoder, until its end. Locked while that is waited for.
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
    /// The result of a decoder that has ended.
    ended: Mutex<Result<(), Error>>,
    kept: Mutex<Samples>,
}

impl Shared {
    /// Ends the decoder and returns its result.
    fn end(&self) -> Result<(), Error> {
        self.ends.store(true, Ordering::Release);
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take() {
            thread.thread().unpark();
            let panicked = || Err(Error::new(Kind::Thread { reason: "it panicked".into() }));
            *self.ended.lock() = thread.join().unwrap_or_else(|_| panicked());
        }
        self.ended.lock().clone()
    }
}

/// Ends the samplers that run at the end of the process, and lets none start. CUPTI samples with
/// libnvperf_host, and crashes once the objects of that library are gone. Its preparation loads the
/// library: an exit handler that is registered later runs before they go.
fn end_with_process() {
    static ONCE: Once = Once::new();
    let last = || {
        let running = RUNNING.lock().take();
        // The sampler's owner has the result if it still stops it.
        let running = running.iter().flatten().filter_map(Weak::upgrade);
        running.for_each(|sampler| _ = sampler.end());
    };
    ONCE.call_once(|| os::at_exit(last));
}

impl PmSampler {
    /// Begins the settings of a sampler.
    pub fn builder(library: &Library) -> SamplerBuilder {
        SamplerBuilder {
            library: library.clone(),
            device: 0,
            metrics: Vec::new(),
            rows: Vec::new(),
            interval: Duration::from_micros(100),
            most: 1_000_000,
        }
    }

    getters! {
        /// The metrics of [utilization](SamplerBuilder::utilization) that the chip lacks or that
        /// did not fit in the pass, by their first names.
        missing: &[String] = missing;
        /// The sampled metrics.
        metrics: &[String] = metrics;
    }

    /// True if sampling ended before the stop. [`stop`](Self::stop) returns the reason.
    pub fn has_ended(&self) -> bool {
        self.shared.thread.lock().as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Removes and returns the samples so far; those of the last milliseconds are in the next
    /// drain.
    ///
    /// # Errors
    /// The clocks cannot be compared, or the process was forked off after the start.
    /// [`stop`](Self::stop) returns errors of the decoder.
    pub fn drain(&mut self) -> Result<Samples, Error> {
        self.check_process()?;
        let now = clock::read(&self.library)?;
        let mut kept = self.shared.kept.lock();
        let next = Samples::new(self.metrics.clone(), kept.interval_ns, now);
        let mut samples = std::mem::replace(&mut *kept, next);
        drop(kept);
        samples.clock.stop = now;
        Ok(samples)
    }

    /// Stops sampling and returns the samples that were not drained.
    ///
    /// # Errors
    /// The decoder failed and there is no sample; with samples, [`Samples::failure`] has the
    /// reason. The clocks cannot be compared, or the process was forked off after the start.
    pub fn stop(mut self) -> Result<Samples, Error> {
        self.check_process()?;
        let ended = self.end();
        let mut samples = self.drain()?;
        match ended {
            Err(error) if samples.is_empty() => return Err(error),
            Err(error) => samples.failure = Some(error.to_string()),
            Ok(()) => {}
        }
        Ok(samples)
    }

    /// A forked child lacks the thread, and may have its lock.
    fn check_process(&self) -> Result<(), Error> {
        let is_child = std::process::id() != self.process_id;
        if is_child { Err(Error::new(Kind::Forked)) } else { Ok(()) }
    }

    fn end(&self) -> Result<(), Error> {
        self.check_process()?;
        self.shared.end()
    }
}

impl Drop for PmSampler {
    fn drop(&mut self) {
        // A drop cannot return the error.
        let _ = self.end();
    }
}

/// The thread that decodes samples.
struct Decoder {
    object: SamplingObject,
    /// Released after the object.
    _turn: DeviceLease,
    plan: Plan,
    shared: Arc<Shared>,
    most: usize,
    /// The end of the last sample. The first sample is dropped, since it starts with the device's
    /// reservation.
    last_end: Option<u64>,
}

impl Decoder {
    fn run(mut self, pause: Duration) -> Result<(), Error> {
        while !self.shared.ends.load(Ordering::Acquire) {
            if !self.decode()? {
                thread::park_timeout(pause);
            }
        }
        self.object.stop()?;
        while self.decode()? {}
        Ok(())
    }

    /// Decodes samples. Returns true if more samples are waiting.
    fn decode(&mut self) -> Result<bool, Error> {
        let decoded = self.object.decode()?;
        let mut rows = Vec::with_capacity(decoded.samples);
        for index in 0..decoded.samples {
            let times = self.object.times(index)?;
            rows.push((times, self.plan.evaluate(self.object.data(), index)?));
        }
        self.object.empty()?;
        let mut kept = self.shared.kept.lock();
        kept.overflows = kept.overflows.saturating_add(decoded.overflowed.into());
        for ((start, end), values) in rows {
            let last_end = self.last_end.replace(end);
            let Some(last_end) = last_end else { continue };
            // The times of consecutive samples differ by some hundred nanoseconds.
            let gap_ns = start.saturating_sub(last_end);
            if gap_ns > kept.interval_ns / 2 {
                kept.gaps = kept.gaps.saturating_add(1);
                kept.gap_ns = kept.gap_ns.saturating_add(gap_ns);
            }
            kept.push((start, end), &values);
        }
        let most = self.most;
        kept.keep(most);
        Ok(decoded.is_full && decoded.samples > 0)
    }
}

/// Samples in order of time. The `Display` has a line for each metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    pub(super) metrics: Vec<String>,
    pub(super) interval_ns: u64,
    pub(super) clock: Clock,
    pub(super) times: Vec<(u64, u64)>,
    /// A row for each sample, a column for each metric.
    pub(super) values: Vec<f64>,
    pub(super) dropped: u64,
    pub(super) overflows: u64,
    pub(super) gaps: u64,
    pub(super) gap_ns: u64,
    pub(super) failure: Option<String>,
}

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    samples: &'a Samples,
    index: usize,
}

impl Samples {
    fn new(metrics: Vec<String>, interval_ns: u64, now: Reading) -> Self {
        Self {
            metrics,
            interval_ns,
            clock: Clock { start: now, stop: now },
            times: Vec::new(),
            values: Vec::new(),
            dropped: 0,
            overflows: 0,
            gaps: 0,
            gap_ns: 0,
            failure: None,
        }
    }

    fn push(&mut self, times: (u64, u64), values: &[f64]) {
        self.times.push(times);
        self.values.extend_from_slice(values);
    }

    /// Drops the oldest quarter of the samples, so that a push rarely moves the others.
    fn keep(&mut self, most: usize) {
        if self.times.len() > most.saturating_add(most / 4) {
            let gone = self.times.len() - most;
            self.times.drain(..gone);
            self.values.drain(..gone * self.metrics.len());
            self.dropped = self.dropped.saturating_add(gone as u64);
        }
    }

    getters! {
        /// The metrics, in the order they were requested.
        metrics: &[String] = metrics;
        /// The requested interval in nanoseconds.
        interval_ns: u64 = interval_ns;
        /// Samples that were dropped for newer ones before a drain.
        dropped: u64 = dropped;
        /// Sample buffer overflows of the GPU; each lost samples.
        overflows: u64 = overflows;
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The samples.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample<'_>> {
        (0..self.len()).map(|index| Sample { samples: self, index })
    }

    /// The number and total nanoseconds of gaps: half an interval or more between two samples.
    pub fn gaps(&self) -> (u64, u64) {
        (self.gaps, self.gap_ns)
    }

    /// The reason why sampling ended before the stop, if it did. Later samples are missing.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The sum of a metric over the samples completely within these times ([`clock::now_ns`]).
    /// `None` if it was not requested or is not additive: additive metrics end in `.sum`.
    pub fn sum(&self, metric: &str, from_ns: u64, to_ns: u64) -> Option<f64> {
        let place = self.place(metric)?;
        if !metric.ends_with(".sum") {
            return None;
        }
        let within = self.iter().filter(|sample| sample.is_within(from_ns, to_ns));
        Some(within.map(|sample| sample.row()[place]).sum())
    }

    /// The mean of a metric over the samples within these times, weighted by length, and their
    /// number. `None` if it was not requested or there are none.
    pub fn mean(&self, metric: &str, from_ns: u64, to_ns: u64) -> Option<(f64, usize)> {
        let place = self.place(metric)?;
        let (mut sum, mut time, mut count) = (0.0, 0.0, 0);
        for sample in self.iter().filter(|sample| sample.is_within(from_ns, to_ns)) {
            let (start, end) = self.times[sample.index];
            let length = end.saturating_sub(start) as f64;
            sum += sample.row()[place] * length;
            time += length;
            count += 1;
        }
        (time > 0.0).then(|| (sum / time, count))
    }

    fn place(&self, metric: &str) -> Option<usize> {
        self.metrics.iter().position(|name| name == metric)
    }
}

impl<'a> Sample<'a> {
    pub(super) fn row(&self) -> &'a [f64] {
        let columns = self.samples.metrics.len();
        &self.samples.values[self.index * columns..(self.index + 1) * columns]
    }

    fn is_within(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns() >= from_ns && self.end_ns() <= to_ns
    }

    /// The start in [`clock::now_ns`] time.
    pub fn start_ns(&self) -> u64 {
        self.samples.clock.monotonic_ns(self.samples.times[self.index].0)
    }

    /// The end in [`clock::now_ns`] time.
    pub fn end_ns(&self) -> u64 {
        self.samples.clock.monotonic_ns(self.samples.times[self.index].1)
    }

    /// The value of a metric; `None` if it was not requested or is NaN in CUPTI.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let value = self.row()[self.samples.place(metric)?];
        (!value.is_nan()).then_some(value)
    }

    /// All metrics with their values; NaN if unknown to CUPTI.
    pub fn values(&self) -> impl Iterator<Item = (&'a str, f64)> {
        self.samples.metrics.iter().map(String::as_str).zip(self.row().iter().copied())
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = self.interval_ns as f64 / 1e3;
        writeln!(f, "{} samples of {interval} us", self.len())?;
        for metric in &self.metrics {
            let values: Vec<f64> = self.iter().filter_map(|sample| sample.value(metric)).collect();
            let (least, most) =
                values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                    (least.min(*value), most.max(*value))
                });
            match self.mean(metric, 0, u64::MAX) {
                Some((mean, _)) if !values.is_empty() => {
                    writeln!(f, "{mean:>20.3}  mean, {least:.3} to {most:.3}: {metric}")?;
                }
                _ => writeln!(f, "{:>20}  {metric}", "not known")?,
            }
        }
        if self.gaps > 0 {
            writeln!(f, "{} gaps, {} us in total", self.gaps, self.gap_ns / 1000)?;
        }
        if self.overflows > 0 {
            writeln!(f, "{} sample buffer overflows: samples are lost", self.overflows)?;
        }
        if self.dropped > 0 {
            writeln!(f, "{} not taken out in time", self.dropped)?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "ended early: {failure}")?;
        }
        Ok(())
    }
}
