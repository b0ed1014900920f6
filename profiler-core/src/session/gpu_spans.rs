//! GPU time on the spans of OpenTelemetry: ended spans are held until the GPU work of their range
//! is known.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use parking_lot::{Mutex, RwLock};
use profiler_base::background::Background;
use profiler_base::{getters, setters};
use rustc_hash::FxHashMap;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as LayerContext;

use super::tracing_layer::TARGET;

/// The maximum interval at which the thread checks for spans that have waited long enough.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The field of a span that becomes the payload of its range.
const PAYLOAD: &str = "nvtx.payload";
/// Numbers of result events that become attributes, with their attribute names.
const ATTRIBUTES: [(&str, &str); 6] = [
    ("gpu_ns", "gpu.time_ns"),
    ("kernels", "gpu.kernels"),
    ("launches", "gpu.launches"),
    ("copies", "gpu.copies"),
    ("copy_bytes", "gpu.copied_bytes"),
    ("synchronizations", "gpu.synchronizations"),
];

/// Adds the GPU work of a request to its own span of OpenTelemetry.
///
/// A span ends before its GPU work is known. [`processor`](Self::processor) precedes a span
/// processor, such as a batching one. It holds ended spans until [`layer`](Self::layer) has
/// received the event of a [`ProfilerLayer`](crate::ProfilerLayer) with their result. A span
/// matches a result with the same name and the same number in the field `nvtx.payload`, such as the
/// number of the request. No other span of the name may have that number within the wait. Spans
/// without the field are not held.
///
/// | attribute | |
/// | --- | --- |
/// | `gpu.time_ns` | the summed time of kernels, copies and memsets |
/// | `gpu.kernels`, `gpu.launches`, `gpu.copies`, `gpu.copied_bytes`, `gpu.synchronizations` | as in [`Totals`](crate::profile::Totals) |
///
/// ```no_run
/// use opentelemetry::trace::TracerProvider as _;
/// use opentelemetry_sdk::trace::{BatchSpanProcessor, InMemorySpanExporter, SdkTracerProvider};
/// use profiler_core::ProfilerLayer;
/// use profiler_core::session::GpuSpans;
/// use tracing_subscriber::prelude::*;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let exporter = InMemorySpanExporter::default();
/// let spans = GpuSpans::new();
/// let batches = BatchSpanProcessor::builder(exporter).build();
/// let provider = SdkTracerProvider::builder().with_span_processor(spans.processor(batches)).build();
/// let (layer, _guard) = ProfilerLayer::builder().lifetimes(true).build()?;
/// tracing_subscriber::registry()
///     .with(layer)
///     .with(spans.layer())
///     .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("service")))
///     .init();
/// let _request = tracing::info_span!("request", nvtx.payload = 17).entered();
/// # Ok(())
/// # }
/// ```
///
/// Use [`lifetimes`](crate::session::LayerBuilder::lifetimes): otherwise each entry of a span has a
/// result, and the first one is used. A span without GPU work has no result, and is passed on after
/// [`wait`](Self::wait).
///
/// The end of a span takes a lock for the length of a queue operation. At most
/// [`most_waiting`](Self::most_waiting) spans and as many results are held. Beyond that the oldest
/// span is passed on without its GPU work, and is [counted](Self::counts).
#[derive(Debug, Clone)]
#[must_use = "spans have no GPU time without its processor and its layer"]
pub struct GpuSpans {
    wait: Duration,
    most_waiting: usize,
    shared: Arc<Shared>,
}

/// The number of spans passed on with and without the GPU work of their range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GpuSpanCounts {
    /// Spans with GPU work.
    pub with_work: u64,
    /// Spans whose result did not arrive in time: most have no GPU work.
    pub without_work: u64,
    /// Spans that were passed on early, because too many waited.
    pub crowded_out: u64,
    /// Spans that wait.
    pub waiting: u64,
}

/// The common key of a span and its result.
type Key = (String, i64);
type Attributes = [i64; ATTRIBUTES.len()];

struct Held {
    key: Key,
    until: Instant,
    span: SpanData,
    next: Arc<dyn Next>,
}

#[derive(Default)]
struct State {
    /// By number, in the order of their ends.
    held: FxHashMap<u64, Held>,
    by_key: FxHashMap<Key, VecDeque<u64>>,
    first: u64,
    next: u64,
    /// Results that arrived before the end of their span.
    results: FxHashMap<Key, Attributes>,
    results_until: VecDeque<(Key, Instant)>,
    counts: GpuSpanCounts,
    has_thread: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("counts", &self.state.lock().counts).finish_non_exhaustive()
    }
}

impl Default for GpuSpans {
    fn default() -> Self {
        Self::new()
    }
}

impl GpuSpans {
    /// Spans wait for at most 2 s, and at most 4,096 of them.
    pub fn new() -> Self {
        Self { wait: Duration::from_secs(2), most_waiting: 4096, shared: Arc::default() }
    }

    setters! {
        /// The maximum wait of a span for its result, 2 s by default. Use more than the session's
        /// [period](crate::ProfilerBuilder::period), and more than a second if requests launch
        /// graphs.
        wait(time: Duration) wait = time;
        /// The maximum number of waiting spans, 4,096 by default, at least 1.
        most_waiting(spans: usize) most_waiting = spans.max(1);
    }

    getters! {
        /// The counts of spans so far.
        counts: GpuSpanCounts = shared.counts();
    }

    /// A span processor that passes spans to this one; spans with the field `nvtx.payload` are
    /// delayed.
    pub fn processor<P: SpanProcessor + 'static>(&self, next: P) -> impl SpanProcessor + use<P> {
        GpuSpanProcessor { spans: self.clone(), next: Arc::new(RwLock::new(next)) }
    }

    /// The layer that receives results, for the subscriber of the
    /// [`ProfilerLayer`](crate::ProfilerLayer).
    #[must_use = "add it to the subscriber"]
    pub fn layer<S: Subscriber>(&self) -> impl Layer<S> + use<S> {
        GpuSpanLayer { spans: self.clone() }
    }

    fn hold(&self, key: Key, span: SpanData, next: Arc<dyn Next>) {
        let mut state = self.shared.state.lock();
        if let Some(attributes) = state.results.remove(&key) {
            state.counts.with_work += 1;
            drop(state);
            next.end(with_attributes(span, &attributes));
            return;
        }
        let number = state.next;
        state.next += 1;
        state.by_key.entry(key.clone()).or_default().push_back(number);
        state.held.insert(number, Held { key, until: Instant::now() + self.wait, span, next });
        let oldest = match state.held.len() > self.most_waiting {
            true => state.take_oldest(None),
            false => None,
        };
        state.counts.crowded_out += u64::from(oldest.is_some());
        let starts_thread = !std::mem::replace(&mut state.has_thread, true);
        drop(state);
        if let Some(Held { span, next, .. }) = oldest {
            next.end(span);
        }
        if starts_thread {
            let shared = Arc::downgrade(&self.shared);
            let pause = LONGEST_PAUSE.min(self.wait / 4 + Duration::from_millis(1));
            let work = move || let_go_on_time(&shared, pause);
            // Without the thread, spans are passed on by the next flush.
            let _ = Background::default().spawn("gpu-profiler-spans", work);
        }
    }

    fn resolve(&self, key: Key, attributes: Attributes) {
        let mut state = self.shared.state.lock();
        let number = state.by_key.get_mut(&key).and_then(VecDeque::pop_front);
        let Some(held) = number.and_then(|number| state.take(number)) else {
            let until = Instant::now() + self.wait;
            state.results.insert(key.clone(), attributes);
            state.results_until.push_back((key, until));
            state.forget_results(self.most_waiting);
            return;
        };
        state.counts.with_work += 1;
        drop(state);
        held.next.end(with_attributes(held.span, &attributes));
    }
}

impl State {
    fn take(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(&number)?;
        if let Some(numbers) = self.by_key.get_mut(&held.key) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_key.remove(&held.key);
            }
        }
        Some(held)
    }

    /// Removes the span that has waited longest; with a time, only if it has waited long enough by
    /// then.
    fn take_oldest(&mut self, now: Option<Instant>) -> Option<Held> {
        while self.first < self.next {
            match self.held.get(&self.first) {
                Some(held) if now.is_some_and(|now| held.until > now) => return None,
                Some(_) => return self.take(self.first),
                None => self.first += 1,
            }
        }
        None
    }

    /// Discards results without a span.
    fn forget_results(&mut self, most: usize) {
        let now = Instant::now();
        while let Some((key, until)) = self.results_until.front()
            && (*until <= now || self.results_until.len() > most)
        {
            self.results.remove(key);
            self.results_until.pop_front();
        }
    }
}

impl Shared {
    fn counts(&self) -> GpuSpanCounts {
        let state = self.state.lock();
        GpuSpanCounts { waiting: state.held.len() as u64, ..state.counts }
    }

    /// Passes on the spans that waited until this time, or all of them.
    fn let_go(&self, now: Option<Instant>) {
        loop {
            let mut state = self.state.lock();
            let Some(Held { span, next, .. }) = state.take_oldest(now) else { return };
            state.counts.without_work += 1;
            drop(state);
            next.end(span);
        }
    }
}

/// The loop of the thread: passes on spans whose result does not arrive in time.
fn let_go_on_time(shared: &Weak<Shared>, pause: Duration) {
    while let Some(shared) = shared.upgrade() {
        shared.let_go(Some(Instant::now()));
        drop(shared);
        std::thread::sleep(pause);
    }
}

fn with_attributes(mut span: SpanData, attributes: &Attributes) -> SpanData {
    let named = ATTRIBUTES.iter().zip(attributes);
    span.attributes.extend(named.map(|((_, name), value)| KeyValue::new(*name, *value)));
    span
}

/// The next span processor, of any type.
trait Next: Send + Sync {
    fn end(&self, span: SpanData);
}

impl<P: SpanProcessor> Next for RwLock<P> {
    fn end(&self, span: SpanData) {
        self.read().on_end(span);
    }
}

/// Holds ended spans until their GPU work is known, from [`GpuSpans::processor`].
#[derive(Debug)]
struct GpuSpanProcessor<P> {
    spans: GpuSpans,
    next: Arc<RwLock<P>>,
}

impl<P: SpanProcessor + 'static> SpanProcessor for GpuSpanProcessor<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.next.read().on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let payload = span.attributes.iter().find(|attribute| attribute.key.as_str() == PAYLOAD);
        let payload = payload.and_then(|attribute| match &attribute.value {
            Value::I64(number) => Some(*number),
            // OpenTelemetry has no unsigned numbers; they are text.
            Value::String(text) => text.as_str().parse().ok(),
            _ => None,
        });
        match payload {
            Some(payload) => {
                self.spans.hold((span.name.to_string(), payload), span, self.next.clone());
            }
            None => self.next.read().on_end(span),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.spans.shared.let_go(None);
        self.next.read().force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.spans.shared.let_go(None);
        self.next.read().shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.next.write().set_resource(resource);
    }
}

/// Receives the results of a [`ProfilerLayer`](crate::ProfilerLayer), from [`GpuSpans::layer`].
#[derive(Debug)]
struct GpuSpanLayer {
    spans: GpuSpans,
}

impl<S: Subscriber> Layer<S> for GpuSpanLayer {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut result = GpuResult::default();
        event.record(&mut result);
        if let Some(payload) = result.payload {
            self.spans.resolve((result.name, payload), result.attributes);
        }
    }
}

/// The fields of a result event.
#[derive(Debug, Default)]
struct GpuResult {
    name: String,
    payload: Option<i64>,
    attributes: Attributes,
}

impl Visit for GpuResult {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            value.clone_into(&mut self.name);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "payload" {
            self.payload = Some(value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let place = ATTRIBUTES.iter().position(|(name, _)| *name == field.name());
        match place {
            Some(place) => self.attributes[place] = value,
            None => self.record_i64(field, value),
        }
    }
}
