//! Delays that a program inserts into itself, to compare the model's prediction with the measured
//! effect.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nvtx::Domain;
use profiler_base::split_mix::mixed;
use profiler_base::units::nanoseconds;

/// The domain of the ranges in which a delay was or could have been inserted.
pub(super) const DOMAIN_NAME: &str = "gpu-profiler interventions";
static DOMAIN: Domain = Domain::new(DOMAIN_NAME);

/// The longest delay, so that a program with delays continues.
const LONGEST: Duration = Duration::from_secs(1);

/// The number of interventions so far: each has its own order of steps.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// An experiment: half of a program's steps have a delay at one position.
/// [`Dependencies::responses`](super::Dependencies::responses) measures the share of the delay by
/// which these steps are longer. It compares that share with the model's prediction from the other
/// steps.
///
/// ```no_run
/// use std::time::Duration;
///
/// use profiler_analysis::prelude::*;
/// use profiler_core::Profiler;
/// use profiler_analysis::critical_path::Intervention;
///
/// # fn load() {}
/// # fn train() {}
/// # fn main() -> Result<(), profiler_analysis::Error> {
/// let intervention = Intervention::new(Duration::from_micros(200));
/// let profiler = Profiler::builder().build()?;
/// let ((), profile) = profiler.record(|| {
///     for _ in 0..100 {
///         let _step = nvtx::range("step");
///         intervention.next_step();
///         {
///             let _load = nvtx::range("load");
///             load();
///             intervention.delay_host(); // in "step/load"
///         }
///         train();
///     }
/// })?;
/// for response in profile.dependencies().responses() {
///     println!("{response}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// The delayed steps are drawn in pairs, always in the same order. All steps have a range at the
/// position, so both halves have the same other costs. Its domain is `gpu-profiler interventions`,
/// its payload the delay in nanoseconds, or 0. Nothing is delayed unless a profiler or tool
/// observes ranges. Any thread may call the methods; they take no lock.
///
/// This is the only part of the library that changes the program's behaviour, and only where the
/// program calls it.
#[derive(Debug)]
pub struct Intervention {
    delay: Duration,
    /// The seed of this intervention's order.
    salt: u64,
    /// The number of steps that began.
    steps: AtomicU64,
    /// The time at which graphs were last built, as of the step's beginning.
    graphs_made_ns: AtomicU64,
}

impl Intervention {
    /// Creates delays of this length, at most a second. Long delays are measured most precisely;
    /// short ones do not change the bottleneck of the step.
    #[must_use]
    pub fn new(delay: Duration) -> Self {
        Self {
            delay: delay.min(LONGEST),
            salt: CREATED.fetch_add(1, Ordering::Relaxed),
            steps: AtomicU64::new(0),
            graphs_made_ns: AtomicU64::new(0),
        }
    }

    /// Begins the next step, and decides if it has the delay. Before the first call nothing is
    /// delayed.
    pub fn next_step(&self) {
        self.graphs_made_ns.store(cupti::graphs_last_made_ns(), Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps this thread busy, if the step has the delay. Does nothing in a step in which the
    /// process has created graph nodes, as happens during stream capture.
    pub fn delay_host(&self) {
        let Some(delay) = self.delay_now() else { return };
        let _range = DOMAIN.event("host delay").payload(nanoseconds(delay)).range();
        let start = Instant::now();
        while start.elapsed() < delay {
            std::hint::spin_loop();
        }
    }

    /// Lets the program launch a delay kernel. `launch` receives its duration, which is 0 in a step
    /// without the delay, and launches a kernel in both cases. The kernel should only watch a
    /// clock.
    ///
    /// A kernel launched while its stream is captured would stay in the graph. Only the program has
    /// access to its stream, so `is_capturing` must call `cuStreamIsCapturing` for it. Nothing is
    /// launched if it returns true, or in a step in which the process has created graph nodes.
    pub fn delay_gpu(&self, is_capturing: impl FnOnce() -> bool, launch: impl FnOnce(Duration)) {
        let Some(delay) = self.delay_now() else { return };
        if is_capturing() {
            return;
        }
        let _range = DOMAIN.event("GPU delay").payload(nanoseconds(delay)).range();
        launch(delay);
    }

    /// The delay of this step, possibly 0; `None` if the step must stay unchanged.
    fn delay_now(&self) -> Option<Duration> {
        let step = self.steps.load(Ordering::Relaxed).checked_sub(1)?;
        let made_ns = self.graphs_made_ns.load(Ordering::Relaxed);
        if !DOMAIN.is_enabled() || cupti::graphs_last_made_ns() != made_ns {
            return None;
        }
        let is_delayed = (step & 1 == 1) ^ (mixed(step / 2 + (self.salt << 32)) & 1 == 1);
        Some(if is_delayed { self.delay } else { Duration::ZERO })
    }
}
