//! A layer for `tracing`: spans are ranges, and what each came to on the GPU comes out as an event.
//!
//! Spans become ranges in `nvtx::NvtxLayer`, and there alone. The session is followed while it goes on, and the thread that
//! takes the logs out makes the events, with no lock of ours held but the one that keeps their order.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nvtx::{NvtxLayer, Payload};
use parking_lot::Mutex;
use serde::Serialize;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Subscriber, Value};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::base::error::{Error, Kind};
use crate::base::units::nanoseconds;
use crate::collect::session::Session;
use crate::join::live_ranges::Done;
use crate::join::streaming::StreamingJoin;
use crate::profile::Profile;
use crate::profile::summary::Summary;
use crate::session::profiler::{Profiler, ProfilerBuilder};

/// The target of result events.
const TARGET: &str = "gpu_profiler::range";
/// The target of the event that says how many results were let go.
const LOST: &str = "gpu_profiler::lost";

/// A layer that makes ranges of spans, and events of what they came to on the GPU.
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
/// Spans are ranges as [`NvtxLayer`] makes them, with its fields `nvtx.*`: for other tools, and for the session that
/// [`LayerBuilder::build`] begins. It sees the process's other ranges too. A filter on the layer (`with_filter`) says which
/// spans are ranges. Where there is no session there are still ranges: [`without_session`](Self::without_session).
///
/// # Events
/// A range comes out as an event when it has ended and its work is known: some 100 ms later, or
/// [`ProfilerBuilder::period`], on a thread of the session's, or from the guard's methods; a second later where it launched
/// a graph, of which nothing says which kernel is the last. Every range does that launched
/// work or had work done, itself or in ranges within it, be it a span or not. A span that is entered again and again, as an
/// async one is, on whatever threads, comes out once, after its close, with the sum of its stays. So does an annotated
/// `async fn`.
///
/// The target is `gpu_profiler::range`, the level [`INFO`](LayerBuilder::event_level), the message `GPU work done`, and the
/// event is in no span, for its own may be closed. Its fields:
///
/// | field | type | |
/// | --- | --- | --- |
/// | `path` | str | the range's name with those around it, `step/forward`, as in [`Profile::range`]; of a span that was entered often that of its first stay |
/// | `name`, `domain` | str | a span's name and target; no `domain` is the default one |
/// | `payload` | u64, i64 or f64 | the number that goes with it, a span's `nvtx.payload`; to tell requests or steps from each other |
/// | `start_ns` | u64 | when it began, since the session's start |
/// | `host_ns` | u64 | from its start to its end; of a span its life |
/// | `busy_ns` | u64 | the time of its stays |
/// | `activations` | u64 | the number of its thread ranges: 1, or the entries of a span |
/// | `gpu_ns` | u64 | the time of its kernels, copies and memsets, summed: [`Totals::gpu_time`](crate::profile::Totals::gpu_time) |
/// | `kernels`, `launches`, `copies`, `copy_bytes`, `memsets`, `synchronizations` | u64 | as in [`Totals`](crate::profile::Totals) |
/// | `thread.id` | u64 | the kernel's id of the thread on which it began |
///
/// Those that come out together do so in the order they ended. All are inclusive: a range's numbers are in those of the range around it on its thread, or that it was
/// [handed](crate::Context). Work that is late to be launched in a context of a range that is done is in the profile alone.
///
/// Events go to the subscriber that the layer is in. Before it is in one, and where it is told of none (within an `Option`
/// or `Vec` of layers), that is the process's default one; until there is any, events wait. They are made by no span of
/// theirs, and are no marks of this layer. A subscriber must not call the guard from within an event.
///
/// # Cost
/// A span's entry and exit cost what [`NvtxLayer`] costs with an observer. Its life, from `new_span` to `close`, is two more
/// entries of the log and an allocation; a layer of [`lifetimes(false)`](NvtxLayer::lifetimes) has none, and each stay then
/// comes out on its own. A result costs about as much as the subscriber takes for the event, on a thread of its own: the
/// spans' threads pay nothing. That thread follows some hundred thousand spans a second; where more come all the time, they
/// wait in memory. The session keeps all that it sees, unless [`ProfilerBuilder::keep_last`] says otherwise.
#[derive(Debug)]
#[must_use]
pub struct ProfilerLayer {
    spans: NvtxLayer,
    results: Option<Arc<Emitter>>,
}

impl ProfilerLayer {
    /// Settings of a layer with a session.
    pub fn builder() -> LayerBuilder {
        LayerBuilder::default()
    }

    /// The same layer with no session and no results: for where [`LayerBuilder::build`] says that there is no GPU. Spans
    /// are ranges for tools and for other sessions.
    pub fn without_session() -> Self {
        Self { spans: NvtxLayer::new(), results: None }
    }
}

/// Settings of a [`ProfilerLayer`].
#[derive(Debug)]
#[must_use]
pub struct LayerBuilder {
    profiler: ProfilerBuilder,
    spans: NvtxLayer,
    wants: Wants,
}

/// Which results come out, and how.
#[derive(Debug, Clone)]
struct Wants {
    events: bool,
    level: Level,
    domains: Option<String>,
    least_gpu_ns: u64,
    /// Results that wait.
    most: usize,
}

impl Default for LayerBuilder {
    fn default() -> Self {
        let wants = Wants {
            events: true,
            level: Level::INFO,
            domains: None,
            least_gpu_ns: 0,
            most: 1 << 18,
        };
        let spans = NvtxLayer::new().lifetimes(true);
        Self { profiler: Profiler::builder(), spans, wants }
    }
}

impl LayerBuilder {
    /// What the session collects and keeps: a [`ProfilerBuilder`]'s settings.
    pub fn profiler(mut self, profiler: ProfilerBuilder) -> Self {
        self.profiler = profiler;
        self
    }

    /// How spans are ranges. The default is `NvtxLayer::new().lifetimes(true)`.
    pub fn spans(mut self, spans: NvtxLayer) -> Self {
        self.spans = spans;
        self
    }

    /// Whether results come out as events; otherwise they are in the profile and the summary alone.
    pub fn events(mut self, wanted: bool) -> Self {
        self.wants.events = wanted;
        self
    }

    /// The level of result events; it is `INFO` otherwise.
    pub fn event_level(mut self, level: Level) -> Self {
        self.wants.level = level;
        self
    }

    /// Results of ranges alone whose domain, which is a span's target, begins so. Those of the default domain have none.
    pub fn event_domains(mut self, prefix: impl Into<String>) -> Self {
        self.wants.domains = Some(prefix.into());
        self
    }

    /// Results of ranges alone that had the GPU work for at least this time.
    pub fn event_gpu_time(mut self, least: Duration) -> Self {
        self.wants.least_gpu_ns = nanoseconds(least);
        self
    }

    /// How many results may wait until events are made of them, 200 bytes each: 262,144 if nothing else is said, at least 1.
    /// Where more come, the oldest ones are let go and counted in [`Results::let_go`].
    pub fn event_buffer(mut self, results: usize) -> Self {
        self.wants.most = results.max(1);
        self
    }

    /// Begins the session. Gives the layer, and the guard by which the session ends.
    ///
    /// # Errors
    /// As [`ProfilerBuilder::build`] and [`Profiler::start`]: [`is_unavailable`](Error::is_unavailable) where there is no
    /// GPU.
    pub fn build(self) -> Result<(ProfilerLayer, LayerGuard), Error> {
        let profiler = self.profiler.build()?;
        let most_done = if self.wants.events { self.wants.most } else { 0 };
        let streaming = Arc::new(Mutex::new(profiler.streaming(most_done)));
        let results = Arc::new(Emitter {
            streaming: streaming.clone(),
            wants: self.wants,
            subscriber: Mutex::new(None),
            turn: Mutex::default(),
            emitted: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        });
        let of_thread = results.clone();
        let session =
            profiler.start_streaming(streaming, Arc::new(move || of_thread.emit(false)))?;
        let layer = ProfilerLayer { spans: self.spans, results: Some(results.clone()) };
        Ok((layer, LayerGuard { session: Some(session), results }))
    }
}

/// The session of a [`ProfilerLayer`]. It ends when this is dropped: results that are known come out, and the profile is
/// thrown away.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped"]
pub struct LayerGuard {
    /// Taken when it ends.
    session: Option<Session>,
    results: Arc<Emitter>,
}

impl LayerGuard {
    fn with_session<R>(&self, with: impl FnOnce(&Session) -> Result<R, Error>) -> Result<R, Error> {
        let result = self.session.as_ref().map_or_else(|| Err(Error::new(Kind::NotRunning)), with);
        self.results.emit(false);
        result
    }

    /// What the session saw up to now: as [`Profiler::snapshot`].
    ///
    /// # Errors
    /// As [`Profiler::snapshot`].
    pub fn snapshot(&self) -> Result<Profile, Error> {
        self.with_session(Session::snapshot).map(Profile::from_recording)
    }

    /// What every range and kernel came to since the session's start, also where the session keeps its last part alone.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn summary(&self) -> Result<Summary, Error> {
        let so_far = self.with_session(Session::catch_up)?;
        Ok(Summary::of(&self.results.streaming.lock(), so_far.info, so_far.duration))
    }

    /// Waits for the GPU as [`Profiler::stop`] does. The results of all ranges that had ended by now have come out then,
    /// but for those that launched a graph within the last second.
    ///
    /// # Errors
    /// CUPTI's refusal.
    pub fn flush(&self) -> Result<(), Error> {
        self.with_session(Session::settle)
    }

    /// As [`Profiler::pause`].
    ///
    /// # Errors
    /// As [`Profiler::pause`].
    pub fn pause(&self) -> Result<(), Error> {
        self.with_session(Session::pause)
    }

    /// As [`Profiler::resume`].
    ///
    /// # Errors
    /// As [`Profiler::resume`].
    pub fn resume(&self) -> Result<(), Error> {
        self.with_session(Session::resume)
    }

    /// How many results came out so far, and how many did not.
    pub fn results(&self) -> Results {
        self.results.counts()
    }

    /// Ends the session and gives what it saw, as [`Profiler::stop`] does. All results have come out then; a range that is
    /// open has none.
    ///
    /// # Errors
    /// As [`Profiler::stop`].
    pub fn finish(mut self) -> Result<Profile, Error> {
        let session = self.session.take().ok_or_else(|| Error::new(Kind::NotRunning))?;
        let recording = session.stop(cupti::clock::now_ns());
        self.results.streaming.lock().end(recording.as_ref().ok());
        self.results.emit(true);
        recording.map(Profile::from_recording)
    }
}

impl Drop for LayerGuard {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // What CUPTI refuses now has nobody to go to.
            let _ = session.catch_up();
            drop(session);
            self.results.emit(true);
        }
    }
}

/// What became of the results of ranges. `{}` prints a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Results {
    /// Events that went to the subscriber; its filters may have left them out.
    pub emitted: u64,
    /// Results for which there was [no place](LayerBuilder::event_buffer), as too many came between two looks or while a
    /// subscriber was slow. An event of the
    /// target `gpu_profiler::lost` says so too, at the level `WARN`, with the field `ranges`.
    pub let_go: u64,
    /// Results for which there was no subscriber.
    pub undelivered: u64,
    /// Events at which the subscriber panicked.
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
    /// Whether this thread is making events: what it is asked for by their subscriber waits.
    static EMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Makes events of ranges that are done.
struct Emitter {
    streaming: Arc<Mutex<StreamingJoin>>,
    wants: Wants,
    /// The one that the layer is in, as far as it was told.
    subscriber: Mutex<Option<WeakDispatch>>,
    /// Whoever makes events holds it, so that none is out before those that came earlier.
    turn: Mutex<KnownPaths>,
    emitted: AtomicU64,
    undelivered: AtomicU64,
    panicked: AtomicU64,
}

#[derive(Default)]
struct KnownPaths {
    /// By row of the streaming join's paths.
    places: Vec<Place>,
    /// Results let go that an event told of.
    told_let_go: u64,
}

/// What the ranges of one path have in common.
struct Place {
    path: String,
    /// Where the name begins.
    name: usize,
    domain: Option<String>,
    is_wanted: bool,
}

/// Where events go.
enum Way {
    To(Dispatch),
    /// There is no subscriber yet.
    Wait,
    /// There is none any more.
    Gone,
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("wants", &self.wants).finish_non_exhaustive()
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

    fn way(&self) -> Way {
        if let Some(weak) = &*self.subscriber.lock() {
            return weak.upgrade().map_or(Way::Gone, Way::To);
        }
        let default = dispatcher::get_default(Dispatch::clone);
        if default.is::<NoSubscriber>() { Way::Wait } else { Way::To(default) }
    }

    /// Makes events of all that is done. `is_last` if nobody will ask again.
    fn emit(&self, is_last: bool) {
        if !self.wants.events || EMITTING.replace(true) {
            return;
        }
        let mut turn = self.turn.lock();
        let to = match self.way() {
            Way::To(subscriber) => Some(subscriber),
            Way::Wait if !is_last => {
                EMITTING.set(false);
                return;
            }
            Way::Wait | Way::Gone => None,
        };
        loop {
            let (mut done, let_go, start_ns) = {
                let mut streaming = self.streaming.lock();
                turn.learn(&streaming, &self.wants);
                (streaming.take_done(), streaming.ranges.done_dropped, streaming.start_ns)
            };
            let untold = let_go - turn.told_let_go;
            if done.is_empty() && untold == 0 {
                break;
            }
            turn.told_let_go = let_go;
            done.make_contiguous().sort_by_key(|done| done.start_ns.saturating_add(done.host_ns));
            let wanted = done.iter().filter_map(|done| {
                let place = turn.places.get(done.path as usize)?;
                let gpu_ns = done.totals.gpu_time().as_nanos() as u64;
                (place.is_wanted && gpu_ns >= self.wants.least_gpu_ns).then_some((place, done))
            });
            match &to {
                None => _ = self.undelivered.fetch_add(wanted.count() as u64, Ordering::Relaxed),
                Some(to) => dispatcher::with_default(to, || {
                    wanted.for_each(|(place, done)| {
                        self.guarded(|| event(self.wants.level, place, done, start_ns), 1);
                    });
                    if untold != 0 {
                        self.guarded(|| lost(untold), 0);
                    }
                }),
            }
        }
        EMITTING.set(false);
    }

    /// A subscriber's panic is not to end the thread that takes the logs out.
    fn guarded(&self, make: impl FnOnce(), results: u64) {
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(()) => self.emitted.fetch_add(results, Ordering::Relaxed),
            Err(panic) => {
                // Its drop runs code of the subscriber's, which could panic again.
                std::mem::forget(panic);
                self.panicked.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

impl KnownPaths {
    /// Finds the paths that are new.
    fn learn(&mut self, streaming: &StreamingJoin, wants: &Wants) {
        let tables = &streaming.sums.tables;
        for (row, sums) in tables.paths.iter().enumerate().skip(self.places.len()) {
            let path = tables.path(row);
            let name = path.len() - tables.names.get(sums.name).len();
            let domain = sums.domain.map(|domain| tables.names.get(domain).to_owned());
            let is_wanted = wants.domains.as_ref().is_none_or(|prefix| {
                domain.as_ref().is_some_and(|domain| domain.starts_with(prefix.as_str()))
            });
            self.places.push(Place { path, name, domain, is_wanted });
        }
    }
}

fn event(level: Level, place: &Place, done: &Done, start_ns: u64) {
    let (unsigned, signed, float);
    let payload: Option<&dyn Value> = match done.payload {
        Some(Payload::U64(value)) => {
            unsigned = value;
            Some(&unsigned)
        }
        Some(Payload::U32(value)) => {
            unsigned = value.into();
            Some(&unsigned)
        }
        Some(Payload::I64(value)) => {
            signed = value;
            Some(&signed)
        }
        Some(Payload::I32(value)) => {
            signed = value.into();
            Some(&signed)
        }
        Some(Payload::F64(value)) => {
            float = value;
            Some(&float)
        }
        Some(Payload::F32(value)) => {
            float = value.into();
            Some(&float)
        }
        _ => None,
    };
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                parent: None,
                Level::$level,
                path = place.path,
                name = &place.path[place.name..],
                domain = place.domain,
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
        // Our own are no marks.
        if target != TARGET && target != LOST {
            self.spans.on_event(event, context);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.spans.on_close(id, context);
    }
}
