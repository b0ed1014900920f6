//! A round: samples of the work in one session, and the times of each.

use std::time::{Duration, Instant};

use cupti::{CallClass, L2Flush};
use profiler_base::units::nanoseconds;

use crate::check::device_of;
use crate::error::{Error, Kind};
use profiler_core::Profiler;
use profiler_core::budget;
use profiler_core::profile::{Profile, Range};
use profiler_core::testing::Clocks;

/// The names of the range around a sample, by variant.
const SAMPLE: [&str; 2] = ["measured sample", "measured sample b"];
const ANY_SAMPLE: &str = "measured sample*";
/// The name of the range around a flush of the L2 cache.
const FLUSH: &str = "L2 flush of a measurement";

/// A pair alternates in this order, so that a steady drift affects both alike.
pub(super) const ABBA: [usize; 4] = [0, 1, 1, 0];

/// The times of one sample, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sample {
    pub(super) variant: usize,
    /// The sum of the times of its operations.
    pub(super) gpu_ns: u64,
    /// From the start of the first operation to the end of the last one.
    pub(super) span_ns: u64,
    /// From the start of the first call that submitted an operation to the end of the last one.
    pub(super) latency_ns: u64,
    pub(super) host_ns: u64,
    /// Host time in synchronisation calls.
    pub(super) waits_ns: u64,
    /// Host time in other CUDA calls.
    pub(super) calls_ns: u64,
    pub(super) kernels: u64,
    pub(super) operations: u64,
}

/// The samples of one session.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    pub(super) samples: Vec<Sample>,
    /// Operations that no sample submitted.
    pub(super) other_operations: u64,
    pub(super) throttled: Option<&'static str>,
    pub(super) sm_mhz: Option<u32>,
    /// False if the thread had no context to wait for after a sample.
    pub(super) has_waited: bool,
    /// The time of the samples, without the session's start and stop.
    pub(super) wall: Duration,
}

impl Round {
    pub(super) fn of_variant(&self, variant: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.variant == variant)
    }
}

/// Makes rounds. A trait, so that tests can insert prepared rounds.
pub(super) trait RoundSource {
    /// The number of variants: 1, or 2 for a pair.
    fn variants(&self) -> usize;

    /// Makes samples in one session: as many groups as fit before the deadline, at least one.
    fn run(&mut self, groups: usize, deadline: Option<Instant>) -> Result<Round, Error>;

    /// Flushes the L2 cache before each sample from now on.
    fn make_cold(&mut self) -> Result<(), Error>;

    /// The reason why clocks are unknown.
    fn clocks_unknown(&self) -> Option<String>;

    /// The samples of a group: one, or a whole alternation.
    fn group(&self) -> usize {
        if self.variants() == 1 { 1 } else { ABBA.len() }
    }
}

/// Runs one sample: `calls` calls in a range. The last result is dropped after the range.
pub(super) fn run_sample<R>(variant: usize, calls: u32, work: &mut impl FnMut() -> R) {
    let range = nvtx::range(SAMPLE[variant]);
    for _ in 1..calls {
        drop(std::hint::black_box(work()));
    }
    let last = std::hint::black_box(work());
    drop(range);
    drop(last);
}

/// Runs the work in sessions.
pub(super) struct Rounds<'a> {
    profiler: Profiler,
    /// Each runs one sample of its variant.
    variants: Vec<&'a mut dyn FnMut()>,
    /// Opened with the first profile, which identifies the GPU.
    clocks: Option<Clocks>,
    flush: Option<L2Flush>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(profiler: Profiler, variants: Vec<&'a mut dyn FnMut()>) -> Self {
        Self { profiler, variants, clocks: None, flush: None }
    }

    fn throttled(&mut self) -> Option<&'static str> {
        self.clocks.as_mut().and_then(Clocks::throttled)
    }
}

impl RoundSource for Rounds<'_> {
    fn variants(&self) -> usize {
        self.variants.len()
    }

    fn run(&mut self, groups: usize, deadline: Option<Instant>) -> Result<Round, Error> {
        let before = self.throttled();
        let order = &ABBA[..self.group()];
        let Self { profiler, variants, clocks, flush } = self;
        let (made, profile) = profiler.record(|| {
            let began = Instant::now();
            let (mut made, mut has_waited) = (0, true);
            for _ in 0..groups {
                if made != 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    break;
                }
                for &variant in order {
                    has_waited &= one_sample(profiler, flush.as_ref(), variants[variant])?;
                    made += 1;
                }
            }
            let wall = began.elapsed();
            // The GPU still has its clock under load.
            let after = clocks.as_mut().and_then(Clocks::throttled);
            let sm_mhz = clocks.as_ref().and_then(Clocks::sm_mhz);
            Ok::<_, cupti::Error>((made, has_waited, wall, after, sm_mhz))
        })?;
        let (made, has_waited, wall, after, sm_mhz) = made.map_err(failed)?;
        let open = || Clocks::open(profile.recording_info(), device_of(&profile));
        self.clocks.get_or_insert_with(open);
        let (samples, other_operations) = read(&profile, made)?;
        let throttled = before.or(after);
        Ok(Round { samples, other_operations, throttled, sm_mhz, has_waited, wall })
    }

    fn make_cold(&mut self) -> Result<(), Error> {
        let flush = L2Flush::new(self.profiler.library());
        let refused = |why| error(format!("{}; or measure with L2::Warm", failed(why)));
        self.flush = Some(flush.map_err(refused)?);
        Ok(())
    }

    fn clocks_unknown(&self) -> Option<String> {
        self.clocks.as_ref()?.unknown().map(str::to_owned)
    }
}

/// Waits for the GPU before and after, so that a sample begins on an idle context.
fn one_sample(
    profiler: &Profiler,
    flush: Option<&L2Flush>,
    run: &mut dyn FnMut(),
) -> Result<bool, cupti::Error> {
    if let Some(flush) = flush {
        let _range = nvtx::range(FLUSH);
        flush.flush()?;
    }
    run();
    profiler.library().synchronize_context()
}

#[cold]
pub(super) fn error(what: String) -> Error {
    Error::new(Kind::Measure(what))
}

#[cold]
#[allow(clippy::needless_pass_by_value)] // for `map_err`
pub(super) fn failed(error: cupti::Error) -> Error {
    self::error(format!("the work cannot be measured: {error}"))
}

/// The samples of a profile, and the number of operations of other work.
fn read(profile: &Profile, made: usize) -> Result<(Vec<Sample>, u64), Error> {
    let is_whole =
        |name: &str, range: &Range<'_>| range.parent().is_none() && range.node().name() == name;
    let mut samples = Vec::with_capacity(made);
    let mut flushed = 0;
    for range in profile.ranges() {
        if let Some(variant) = SAMPLE.iter().position(|name| is_whole(name, &range)) {
            samples.push(Sample { variant, ..sample_of(&range) });
        } else if is_whole(FLUSH, &range) {
            flushed += range.inclusive().gpu_operations();
        }
    }
    if samples.len() != made {
        return Err(error(format!(
            "the work cannot be measured: of the ranges around {made} samples {} were recorded; build gpuprof-nvtx with its \
             feature `enable`, and leave ranges of the work on their thread",
            samples.len()
        )));
    }
    if let Err(why) = budget::gpu_time_of(profile, ANY_SAMPLE) {
        return Err(error(format!(
            "the work cannot be measured, since the records of a round are not complete: {why}; measure less work a \
             call, allow more memory (Config), and end other work of the process on the GPU"
        )));
    }
    let own: u64 = samples.iter().map(|sample| sample.operations).sum();
    let all = profile.operations().count() as u64;
    Ok((samples, all.saturating_sub(own).saturating_sub(flushed)))
}

fn sample_of(range: &Range<'_>) -> Sample {
    let totals = range.inclusive();
    let host_ns = range.row().time.ns();
    let (mut first_ns, mut last_ns, mut called_ns) = (u64::MAX, 0, u64::MAX);
    for operation in range.operations() {
        if let Some(time) = operation.interval() {
            first_ns = first_ns.min(time.start_ns);
            last_ns = last_ns.max(time.end_ns);
        }
        if let Some(call) = operation.call() {
            called_ns = called_ns.min(call.interval().start_ns);
        }
    }
    // For an operation with an unknown call, the range's start is the best estimate.
    let called_ns = if called_ns == u64::MAX { range.row().time.start_ns } else { called_ns };
    let is_wait = |class| class == CallClass::Synchronize;
    let calls = range.calls().filter(|call| !is_wait(call.class()));
    Sample {
        variant: 0,
        gpu_ns: nanoseconds(totals.gpu_time()),
        span_ns: last_ns.saturating_sub(first_ns),
        latency_ns: last_ns.saturating_sub(called_ns),
        host_ns,
        waits_ns: nanoseconds(totals.synchronization_time()).min(host_ns),
        calls_ns: calls.filter_map(|call| call.host_time()).map(nanoseconds).sum(),
        kernels: totals.kernels,
        operations: totals.gpu_operations(),
    }
}
