//! A layer for `tracing` that makes spans ranges and emits an event with the GPU work of each.
//!
//! `nvtx::NvtxLayer` makes the ranges. The draining thread of the session emits the events from a
//! streaming join, holding only the lock that orders them.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvtx::{NvtxLayer, Payload, SpanCoverage, SpanFields};
use parking_lot::Mutex;
use profiler_base::setters;
use profiler_base::units::nanoseconds;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, Value};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::collect::session::Session;
use crate::error::{Error, Kind};
use crate::join::live_ranges::Done;
use crate::join::streaming::StreamingJoin;
use crate::profile::Profile;
use crate::profile::summary::Summary;
use crate::record::recording::{Losses, Recording};
use crate::session::profiler::{Profiler, ProfilerBuilder};

/// The target of result events.
pub(super) const TARGET: &str = "gpu_profiler::range";
/// The target of the event with the number of dropped results.
const LOST: &str = "gpu_profiler::lost";

/// A layer that makes spans ranges and emits an event with the GPU work of each.
///
/// ```no_run
/// use profiler_core::ProfilerLayer;
/// use tracing_subscriber::prelude::*;
///
/// # fn train() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let (layer, guard) = ProfilerLayer::builder().build()?; // is_unavailable() where there is no GPU
/// tracing_subscriber::registry().with(layer).init(); // beside a fmt layer, with filters, as any layer
/// tracing::info_span!("train", epoch = 1).in_scope(train);
/// println!("{}", guard.finish()?);
/// # Ok(())
/// # }
/// ```
///
/// [`NvtxLayer`] makes the ranges, with its fields `nvtx.*`, for other tools and for the session
/// that [`LayerBuilder::build`] starts. The session also sees the other process ranges. A filter on
/// the layer (`with_filter`) selects the spans. [`without_session`](Self::without_session) makes
/// ranges only.
///
/// # Events
/// An event is emitted for each range with GPU work, its own or of its descendants, whether it is a
/// span or not. It is emitted once the range has ended and its work is known, on a thread of the
/// session or from the guard's methods. This is about 100 ms later (see
/// [`ProfilerBuilder::period`]), or a second later if the range launched a graph, whose last kernel
/// cannot be identified. A span that is entered repeatedly has one event per entry. With
/// [`LayerBuilder::lifetimes`] it has one event after its close, with the sum of its activations on
/// all threads. An annotated `async fn` always has one such event.
///
/// The target is `gpu_profiler::range`, the level [`INFO`](LayerBuilder::event_level), the message
/// `GPU work done`. The event has no parent span, since its own may be closed. Its fields:
///
/// | field | type | |
/// | --- | --- | --- |
/// | `path` | str | the full path, `step/forward`, as in [`Profile::range`]; for several activations the path of the first |
/// | `name`, `domain` | str | a span's name and target; without `domain` the default domain |
/// | `payload` | u64, i64 or f64 | the payload, a span's `nvtx.payload`, such as the number of a request or step |
/// | `start_ns` | u64 | the start since the session's start |
/// | `host_ns` | u64 | from its start to its end, or the lifetime |
/// | `busy_ns` | u64 | the time of its activations |
/// | `activations` | u64 | the number of its thread ranges: 1, or the entries in the lifetime |
/// | `gpu_ns` | u64 | the summed time of its kernels, copies and memsets: [`Totals::gpu_time`](crate::profile::Totals::gpu_time) |
/// | `kernels`, `launches`, `copies`, `copy_bytes`, `memsets`, `synchronizations` | u64 | as in [`Totals`](crate::profile::Totals) |
/// | `thread.id` | u64 | the kernel's id of the thread on which it began |
///
/// Events emitted together are in the order in which their ranges ended. All values are inclusive:
/// values of a parent include its children, on its thread or [handed over](crate::Context). Work
/// launched in a context of a range after its event is only in the profile.
///
/// Events are sent to the subscriber of the layer. They are sent to the process's default
/// subscriber if the layer has none yet, or cannot determine it within an `Option` or `Vec` of
/// layers. Until there is a subscriber, events wait. The layer does not record them as marks. A
/// subscriber must not call the guard within an event.
///
/// # Models
/// Frameworks such as candle create a span with each module and enter it at each pass. The default
/// fits that: every pass is a range. [`LayerBuilder::instances`] distinguishes the layers of a
/// model. Install the layer before the model is built, and let filters pass its spans, which are of
/// level `TRACE` in candle: other spans are not ranges.
/// [`Facts::unused_span_sites`](crate::profile::Facts::unused_span_sites),
/// [`Facts::layers_without_spans`](crate::profile::Facts::layers_without_spans) and
/// [`Facts::disabled_span_levels`](crate::profile::Facts::disabled_span_levels) count missing spans, the
/// report prints the counts, and [`LayerGuard::span_coverage`] has the names. Spans that were
/// created while the process had no subscriber are not detected if others were created since.
///
/// # Cost
/// Entering and leaving a span costs as much as [`NvtxLayer`] costs with an observer. An event
/// costs the subscriber's time on a background thread, which handles some hundred thousand spans
/// per second; more accumulate in memory. The session retains everything unless
/// [`ProfilerBuilder::keep_last`] is set.
#[derive(Debug)]
#[must_use]
pub struct ProfilerLayer {
    spans: NvtxLayer,
    results: Option<Arc<Emitter>>,
}

impl ProfilerLayer {
    /// The settings of a layer with a session.
    pub fn builder() -> LayerBuilder {
        LayerBuilder::default()
    }

    /// A layer without a session and events, for use if [`LayerBuilder::build`] finds no GPU. Spans
    /// are ranges for tools and other sessions.
    ///
    /// ```no_run
    /// use profiler_core::ProfilerLayer;
    ///
    /// let (layer, guard) = match ProfilerLayer::builder().build() {
    ///     Ok((layer, guard)) => (layer, Some(guard)),
    ///     Err(error) => {
    ///         eprintln!("not profiled: {error}");
    ///         (ProfilerLayer::without_session(), None)
    ///     }
    /// };
    /// # drop((layer, guard));
    /// ```
    pub fn without_session() -> Self {
        Self { spans: default_spans(), results: None }
    }
}

/// Spans as ranges, with the fields that cost no formatting.
fn default_spans() -> NvtxLayer {
    NvtxLayer::new().fields(SpanFields::Plain)
}

/// Settings of a [`ProfilerLayer`].
#[derive(Debug)]
#[must_use]
pub struct LayerBuilder {
    profiler: ProfilerBuilder,
    spans: NvtxLayer,
    settings: EventSettings,
}

/// The settings of events.
#[derive(Debug, Clone)]
struct EventSettings {
    events: bool,
    level: Level,
    domains: Option<String>,
    least_gpu_ns: u64,
    /// The upper bound of waiting results.
    most: usize,
}

impl Default for LayerBuilder {
    fn default() -> Self {
        let settings = EventSettings {
            events: true,
            level: Level::INFO,
            domains: None,
            least_gpu_ns: 0,
            most: 1 << 18,
        };
        Self { profiler: Profiler::builder(), spans: default_spans(), settings }
    }
}

impl LayerBuilder {
    setters! {
        /// Sets the data that the session collects and retains.
        profiler(profiler: ProfilerBuilder) profiler = profiler;
        /// Sets how spans become ranges. The default is
        /// `NvtxLayer::new().fields(SpanFields::Plain)`.
        spans(spans: NvtxLayer) spans = spans;
        /// True to emit events; the profile and the summary have the results in any case.
        events(wanted: bool) settings.events = wanted;
        /// The level of result events; the default is `INFO`.
        event_level(level: Level) settings.level = level;
        /// Emits only ranges whose domain, a span's target, has this prefix. The default domain has
        /// no name.
        event_domains(prefix: impl Into<String>) settings.domains = Some(prefix.into());
        /// Emits only ranges with at least this GPU time.
        event_gpu_time(least: Duration) settings.least_gpu_ns = nanoseconds(least);
        /// The upper bound of results that wait for their events, 200 bytes each: 262,144 by
        /// default, at least 1. Beyond it, the oldest are dropped and counted in
        /// [`Results::let_go`].
        event_buffer(results: usize) settings.most = results.max(1);
    }

    /// True to make the life of a span, from creation to close, a process range, too; false by
    /// default.
    ///
    /// For spans of requests and tasks, which are entered many times and then closed: each has one
    /// event with its sum, at the cost of two log entries and an allocation. Spans that live as
    /// long as a model would be open at the stop.
    pub fn lifetimes(mut self, wanted: bool) -> Self {
        self.spans = self.spans.lifetimes(wanted);
        self
    }

    /// True to number spans of one name that live at the same time by their position in the model,
    /// such as `layer 0` to `layer 5`; false, the default, to merge them: see
    /// [`NvtxLayer::instances`].
    pub fn instances(mut self, wanted: bool) -> Self {
        self.spans = self.spans.instances(wanted);
        self
    }

    /// The fields of spans that become fields of their ranges: numbers, bools and texts by default.
    /// See [`Range::field`](crate::Range::field).
    pub fn fields(mut self, wanted: SpanFields) -> Self {
        self.spans = self.spans.fields(wanted);
        self
    }

    /// Starts the session. Returns the layer and the guard of the session.
    ///
    /// # Errors
    /// Same as [`ProfilerBuilder::build`] and [`Profiler::start`]:
    /// [`is_unavailable`](Error::is_unavailable) without a GPU.
    pub fn build(mut self) -> Result<(ProfilerLayer, LayerGuard), Error> {
        let coverage = self.spans.coverage();
        let profiler = self.profiler.build()?;
        let most_done = if self.settings.events { self.settings.most } else { 0 };
        let streaming = Arc::new(Mutex::new(profiler.streaming(most_done)));
        let results = Arc::new(Emitter {
            streaming: streaming.clone(),
            settings: self.settings,
            subscriber: Mutex::new(None),
            paths: Mutex::default(),
            emitted: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        });
        let of_thread = results.clone();
        let session =
            profiler.start_streaming(streaming, Arc::new(move || of_thread.emit(false)))?;
        let layer = ProfilerLayer { spans: self.spans, results: Some(results.clone()) };
        Ok((layer, LayerGuard { session: Some(session), results, coverage }))
    }
}

/// The session of a [`ProfilerLayer`]. Dropping it emits known results and ends the session.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped"]
pub struct LayerGuard {
    /// `None` once it has ended.
    session: Option<Session>,
    results: Arc<Emitter>,
    coverage: SpanCoverage,
}

impl LayerGuard {
    /// Adds to a recording the counts of spans that the layer cannot have seen.
    fn covered(&self, mut recording: Recording) -> Profile {
        recording.losses.add(&self.unseen_spans());
        Profile::from_recording(recording)
    }

    fn unseen_spans(&self) -> Losses {
        const LEVELS: [Level; 5] =
            [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let most = LevelFilter::current();
        Losses {
            unused_span_sites: self.coverage.unused().count() as u64,
            unknown_span_entries: self.coverage.unknown_entries(),
            layers_without_spans: u64::from(!self.coverage.has_spans()),
            disabled_span_levels: LEVELS.into_iter().filter(|level| *level > most).count() as u64,
            ..Losses::default()
        }
    }

    /// The call sites of spans that were active while the layer was installed; includes the names
    /// of [`Facts::unused_span_sites`](crate::profile::Facts::unused_span_sites).
    pub fn span_coverage(&self) -> SpanCoverage {
        self.coverage.clone()
    }

    fn with_session<R>(&self, with: impl FnOnce(&Session) -> Result<R, Error>) -> Result<R, Error> {
        let result = self.session.as_ref().map_or_else(|| Err(Error::new(Kind::NotRunning)), with);
        self.results.emit(false);
        result
    }

    /// Returns the profile so far, like [`Profiler::snapshot`].
    ///
    /// # Errors
    /// Same as [`Profiler::snapshot`].
    pub fn snapshot(&self) -> Result<Profile, Error> {
        self.with_session(Session::snapshot).map(|recording| self.covered(recording))
    }

    /// Sums of every range and kernel since the session's start, whatever the session retains.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn summary(&self) -> Result<Summary, Error> {
        let so_far = self.with_session(Session::catch_up)?;
        let mut summary =
            Summary::new(&self.results.streaming.lock(), so_far.info, so_far.duration);
        summary.health.add_losses(&self.unseen_spans());
        Ok(summary)
    }

    /// Waits for the GPU as [`Profiler::stop`] does, and emits the results of all ended ranges,
    /// except ranges that launched a graph within the last second.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn flush(&self) -> Result<(), Error> {
        self.with_session(Session::settle)
    }

    /// Same as [`Profiler::pause`].
    ///
    /// # Errors
    /// Same as [`Profiler::pause`].
    pub fn pause(&self) -> Result<(), Error> {
        self.with_session(Session::pause)
    }

    /// Same as [`Profiler::resume`].
    ///
    /// # Errors
    /// Same as [`Profiler::resume`].
    pub fn resume(&self) -> Result<(), Error> {
        self.with_session(Session::resume)
    }

    /// The number of results emitted and lost so far.
    pub fn results(&self) -> Results {
        self.results.counts()
    }

    /// Ends the session and returns its profile, like [`Profiler::stop`]. Emits all results.
    ///
    /// # Errors
    /// Same as [`Profiler::stop`].
    pub fn finish(mut self) -> Result<Profile, Error> {
        let session = self.session.take().ok_or_else(|| Error::new(Kind::NotRunning))?;
        let recording = session.stop(cupti::clock::now_ns());
        self.results.streaming.lock().end(recording.as_ref().ok());
        self.results.emit(true);
        recording.map(|recording| self.covered(recording))
    }
}

impl Drop for LayerGuard {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // The caller cannot receive an error here.
            let _ = session.catch_up();
            drop(session);
            self.results.emit(true);
        }
    }
}

/// The number of results emitted and lost. `{}` prints a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Results {
    /// Events sent to the subscriber, whose filters may have dropped them.
    pub emitted: u64,
    /// Results dropped at the [upper bound](LayerBuilder::event_buffer), because of too many at
    /// once or a slow subscriber. An event with the target `gpu_profiler::lost`, the level `WARN`
    /// and the field `ranges` reports them, too.
    pub let_go: u64,
    /// Results without a subscriber.
    pub undelivered: u64,
    /// Events during which the subscriber panicked.
    pub panicked: u64,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} results as events", self.emitted)?;
        let lost = [
            (self.let_go, "let go"),
            (self.undelivered, "without a subscriber"),
            (self.panicked, "at which it panicked"),
        ];
        for (count, what) in lost.into_iter().filter(|(count, _)| *count != 0) {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

thread_local! {
    /// True if this thread is emitting events; nested requests by the subscriber wait.
    static EMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Emits events of ranges that are done.
struct Emitter {
    streaming: Arc<Mutex<StreamingJoin>>,
    settings: EventSettings,
    /// The subscriber of the layer, if known.
    subscriber: Mutex<Option<WeakDispatch>>,
    /// Locked to emit events, which preserves their order.
    paths: Mutex<KnownPaths>,
    emitted: AtomicU64,
    undelivered: AtomicU64,
    panicked: AtomicU64,
}

#[derive(Default)]
struct KnownPaths {
    /// By row of the streaming join's paths.
    paths: Vec<EventPath>,
    /// Dropped results that an event has reported.
    reported_drops: u64,
}

/// The properties shared by the ranges of one path.
struct EventPath {
    path: String,
    /// The offset of the name.
    name: usize,
    domain: Option<String>,
    is_wanted: bool,
}

/// The destination of events.
enum Destination {
    To(Dispatch),
    /// There is no subscriber yet.
    Wait,
    /// The subscriber was dropped.
    Gone,
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Emitter {
    fn counts(&self) -> Results {
        Results {
            emitted: self.emitted.load(Ordering::Relaxed),
            let_go: self.streaming.lock().ranges.done_dropped,
            undelivered: self.undelivered.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    fn destination(&self) -> Destination {
        if let Some(weak) = &*self.subscriber.lock() {
            return weak.upgrade().map_or(Destination::Gone, Destination::To);
        }
        let default = dispatcher::get_default(Dispatch::clone);
        if default.is::<NoSubscriber>() { Destination::Wait } else { Destination::To(default) }
    }

    /// Emits events of all ranges that are done. `is_last` marks the last call.
    fn emit(&self, is_last: bool) {
        if !self.settings.events || EMITTING.replace(true) {
            return;
        }
        let mut paths = self.paths.lock();
        let to = match self.destination() {
            Destination::To(subscriber) => Some(subscriber),
            Destination::Wait if !is_last => {
                EMITTING.set(false);
                return;
            }
            Destination::Wait | Destination::Gone => None,
        };
        loop {
            let (mut done, let_go, start_ns) = {
                let mut streaming = self.streaming.lock();
                paths.update(&streaming, &self.settings);
                (streaming.take_done(), streaming.ranges.done_dropped, streaming.start_ns)
            };
            let untold = let_go - paths.reported_drops;
            if done.is_empty() && untold == 0 {
                break;
            }
            paths.reported_drops = let_go;
            done.make_contiguous().sort_by_key(|done| done.start_ns.saturating_add(done.host_ns));
            let wanted = done.iter().filter_map(|done| {
                let path = paths.paths.get(done.path as usize)?;
                let gpu_ns = done.totals.gpu_time().as_nanos() as u64;
                (path.is_wanted && gpu_ns >= self.settings.least_gpu_ns).then_some((path, done))
            });
            match &to {
                None => _ = self.undelivered.fetch_add(wanted.count() as u64, Ordering::Relaxed),
                Some(to) => dispatcher::with_default(to, || {
                    wanted.for_each(|(path, done)| {
                        self.guarded(|| event(self.settings.level, path, done, start_ns), 1);
                    });
                    if untold != 0 {
                        self.guarded(|| lost(untold), 0);
                    }
                }),
            }
        }
        EMITTING.set(false);
    }

    /// Catches panics of the subscriber, which must not end the draining thread.
    fn guarded(&self, make: impl FnOnce(), results: u64) {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(()) => self.emitted.fetch_add(results, Ordering::Relaxed),
            Err(panic) => {
                // Dropping it runs the subscriber's code, which could panic again.
                std::mem::forget(panic);
                self.panicked.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

impl KnownPaths {
    /// Adds the paths that are new.
    fn update(&mut self, streaming: &StreamingJoin, settings: &EventSettings) {
        let tables = &streaming.sums.tables;
        for (row, sums) in tables.paths.iter().enumerate().skip(self.paths.len()) {
            let path = tables.path(row);
            let name = path.len() - tables.names.get(sums.name).len();
            let domain = sums.domain.map(|domain| tables.names.get(domain).to_owned());
            let is_wanted = settings.domains.as_ref().is_none_or(|prefix| {
                domain.as_ref().is_some_and(|domain| domain.starts_with(prefix.as_str()))
            });
            self.paths.push(EventPath { path, name, domain, is_wanted });
        }
    }
}

fn event(level: Level, path: &EventPath, done: &Done, start_ns: u64) {
    let (unsigned, signed, float) = match done.payload {
        Some(Payload::U64(value)) => (Some(value), None, None),
        Some(Payload::U32(value)) => (Some(value.into()), None, None),
        Some(Payload::I64(value)) => (None, Some(value), None),
        Some(Payload::I32(value)) => (None, Some(value.into()), None),
        Some(Payload::F64(value)) => (None, None, Some(value)),
        Some(Payload::F32(value)) => (None, None, Some(value.into())),
        _ => (None, None, None),
    };
    let unsigned = unsigned.as_ref().map(|value: &u64| value as &dyn Value);
    let signed = signed.as_ref().map(|value: &i64| value as &dyn Value);
    let float = float.as_ref().map(|value: &f64| value as &dyn Value);
    let payload = unsigned.or(signed).or(float);
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                parent: None,
                Level::$level,
                path = path.path,
                name = &path.path[path.name..],
                domain = path.domain,
                payload,
                start_ns = done.start_ns.saturating_sub(start_ns),
                host_ns = done.host_ns,
                busy_ns = done.busy_ns,
                activations = done.activations,
                gpu_ns = done.totals.gpu_time().as_nanos() as u64,
                kernels = done.totals.kernels,
                launches = done.totals.launches,
                copies = done.totals.copies,
                copy_bytes = done.totals.copy_bytes,
                memsets = done.totals.memsets,
                synchronizations = done.totals.synchronizations,
                thread.id = done.thread_id,
                "GPU work done"
            )
        };
    }
    match level {
        Level::ERROR => event!(ERROR),
        Level::WARN => event!(WARN),
        Level::INFO => event!(INFO),
        Level::DEBUG => event!(DEBUG),
        Level::TRACE => event!(TRACE),
    }
}

fn lost(ranges: u64) {
    tracing::event!(target: LOST, parent: None, Level::WARN, ranges, "results of ranges were let go");
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ProfilerLayer {
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        if let Some(results) = &self.results {
            *results.subscriber.lock() = Some(subscriber.downgrade());
        }
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.spans, metadata)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.spans.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        Layer::<S>::on_record(&self.spans, id, values, context);
    }

    #[inline]
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.spans.on_enter(id, context);
    }

    #[inline]
    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.spans.on_exit(id, context);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let target = event.metadata().target();
        // Result events are not marks.
        if target != TARGET && target != LOST {
            self.spans.on_event(event, context);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.spans.on_close(id, context);
    }
}
