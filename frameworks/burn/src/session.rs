//! A session of burn, and the boundaries of ranges, which it hands over to the devices.

use std::sync::Arc;
#[cfg(feature = "fusion")]
use std::sync::atomic::Ordering;

use burn::backend::cuda::CudaDevice;
use parking_lot::Mutex;
use profiler_core::{Context, Profile, Profiler, ProfilerBuilder};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry;

use crate::devices::{self, Device};
use crate::error::Error;
use crate::lane;
use crate::launches::{self, Launches, Role};
#[cfg(feature = "fusion")]
use crate::plans;
use crate::session_count;

/// A range of this thread began or ended.
fn changed() {
    if launches::role() != Role::Program {
        return;
    }
    let Some(devices) = devices::devices() else { return };
    let context = Context::capture();
    launches::set_current(lane::stream(), context);
    #[cfg(feature = "fusion")]
    let is_new = devices
        .first()
        .is_some_and(|device| plans::boundary(lane::stream(), &device.client, context));
    if std::thread::panicking() {
        // The queue may be what panicked. The next launch or boundary hands over.
        return;
    }
    for device in devices.iter() {
        #[cfg(feature = "fusion")]
        if is_new && device.boundaries.load(Ordering::Relaxed) {
            device.client.sync(|| ());
        }
        device.queue.hand_over(context);
    }
}

/// Settings of a session; made by [`builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    profiler: ProfilerBuilder,
    boundaries: bool,
    compilations: bool,
    subscriber: bool,
}

/// The settings of a session: [`start`] has the defaults.
pub fn builder() -> Builder {
    Builder {
        profiler: Profiler::builder(),
        boundaries: false,
        compilations: false,
        subscriber: true,
    }
}

impl Builder {
    /// Sets what the session collects and keeps.
    pub fn profiler(mut self, profiler: ProfilerBuilder) -> Self {
        self.profiler = profiler;
        self
    }

    /// Whether a range ends what is fused, so that each kernel has the operations of one range; no by default.
    ///
    /// Each begin and end of a range waits until its thread's operations have been launched: 20 to 200 us of the host. Nothing is
    /// fused across it, so the program launches more kernels, which are those of another program. Without fusion it has no effect.
    pub fn boundaries(mut self, wanted: bool) -> Self {
        self.boundaries = wanted;
        self
    }

    /// Whether to mark each kernel's first launch, in which it is compiled, with its time: see
    /// [`compilations`](crate::compilations). No by default.
    ///
    /// Formats the id of each launch's kernel, which costs some microseconds. Switch it on for a session of the warm-up.
    pub fn compilations(mut self, wanted: bool) -> Self {
        self.compilations = wanted;
        self
    }

    /// Whether to set the process's subscriber of `tracing`, in which every span is a range; yes by default. A program that has
    /// one adds [`layer`](crate::layer) to it: without that the kernels of fused operations have no ranges.
    pub fn subscriber(mut self, wanted: bool) -> Self {
        self.subscriber = wanted;
        self
    }

    /// Starts the session. The threads of the devices start, if burn has not used them yet.
    ///
    /// # Errors
    /// [`Error::Profiler`]: as [`ProfilerBuilder::build`] and [`Profiler::start`];
    /// [`is_unavailable`](profiler_core::Error::is_unavailable) without a GPU. [`Error::Subscriber`]: the process has a
    /// subscriber. [`Error::Hooks`]: too many others follow ranges.
    pub fn start(self, devices: impl IntoIterator<Item = CudaDevice>) -> Result<Session, Error> {
        let profiler = self.profiler.build()?;
        if self.subscriber {
            set_subscriber()?;
        }
        if !Context::on_change(changed) {
            return Err(Error::Hooks);
        }
        if let Some(known) = devices::devices() {
            // What was issued in ranges of an earlier session is not launched in this one.
            devices::wait_launched(&known);
        }
        // The driver answers from here on; before, cubecl would panic where there is none.
        profiler.start()?;
        session_count::add(self.compilations);
        let before = Launches::now();
        let devices =
            devices.into_iter().map(|one| devices::device(&one, self.boundaries)).collect();
        let session = Session { profiler, devices, before, compilations: self.compilations };
        // For ranges that are open already.
        changed();
        Ok(session)
    }
}

/// Starts a session for these devices, in which ranges and `tracing` spans are handed over to the threads that launch.
///
/// # Errors
/// As [`Builder::start`].
pub fn start(devices: impl IntoIterator<Item = CudaDevice>) -> Result<Session, Error> {
    builder().start(devices)
}

fn set_subscriber() -> Result<(), Error> {
    static OURS: Mutex<bool> = Mutex::new(false);
    let mut ours = OURS.lock();
    if *ours {
        return Ok(());
    }
    // Burn's and cubecl's own spans of level TRACE are no ranges.
    let is_internal =
        |target: &str| ["burn", "cubecl", "cubek"].iter().any(|name| target.starts_with(name));
    let of_program = filter_fn(move |metadata| {
        *metadata.level() != LevelFilter::TRACE || !is_internal(metadata.target())
    });
    let spans = nvtx::NvtxLayer::new().marks(false).instances(true).fields(nvtx::SpanFields::Plain);
    let subscriber = registry().with(crate::layer()).with(spans.with_filter(of_program));
    tracing::subscriber::set_global_default(subscriber).map_err(Error::Subscriber)?;
    *ours = true;
    Ok(())
}

/// A session of burn. Made by [`start`]; dropping it ends it.
#[must_use = "the session ends when this is dropped"]
pub struct Session {
    profiler: Profiler,
    devices: Vec<Arc<Device>>,
    before: Launches,
    compilations: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("launches", &self.launches()).finish_non_exhaustive()
    }
}

impl Session {
    /// Waits until all operations of this thread have been launched. Does not wait for the GPU.
    ///
    /// Threads that train call it before they end: what they have not launched is no part of the profile.
    pub fn wait_launched(&self) {
        devices::wait_launched(&self.devices);
    }

    /// The launches that were followed since the start.
    pub fn launches(&self) -> Launches {
        Launches::now().since(self.before)
    }

    /// The profile so far.
    ///
    /// # Errors
    /// As [`Profiler::snapshot`].
    pub fn snapshot(&self) -> Result<Profile, Error> {
        self.wait_launched();
        Ok(self.profiler.snapshot()?)
    }

    /// Waits until this thread's operations have been launched, ends the session and returns its profile.
    ///
    /// # Errors
    /// As [`Profiler::stop`].
    pub fn finish(self) -> Result<Profile, Error> {
        self.wait_launched();
        Ok(self.profiler.stop()?)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if session_count::remove(self.compilations) {
            launches::clear();
            #[cfg(feature = "fusion")]
            plans::clear();
        }
    }
}
