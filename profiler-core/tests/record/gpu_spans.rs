//! GPU time on the spans of OpenTelemetry: a request's own span has it, though it ended before.

use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, SdkTracerProvider, SimpleSpanProcessor, SpanData,
};
use profiler_core::session::{GpuSpans, LayerGuard};
use profiler_core::{Profiler, ProfilerLayer};
use tracing::info_span;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::prelude::*;

struct Service {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    guard: LayerGuard,
    _subscriber: DefaultGuard,
}

fn start(fake: &Fake, spans: &GpuSpans) -> Service {
    let exporter = InMemorySpanExporter::default();
    let processor = spans.processor(SimpleSpanProcessor::new(exporter.clone()));
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let profiler = Profiler::builder().library(fake.library().unwrap());
    let profiler = profiler.period(Duration::from_secs(3600));
    let builder = ProfilerLayer::builder().profiler(profiler).lifetimes(true);
    let (layer, guard) = builder.build().unwrap();
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(spans.layer())
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("service")));
    let _subscriber = subscriber.set_default();
    Service { exporter, provider, guard, _subscriber }
}

fn request(fake: &Fake, number: u64, kernels: u64) {
    let span = info_span!("request", nvtx.payload = number);
    for kernel in 0..kernels {
        // As a task that is polled several times.
        span.in_scope(|| fake.launch(Work::kernel(c"k").taking_ns(1_000 * number + kernel)));
    }
}

fn number(span: &SpanData, name: &str) -> Option<i64> {
    let found = |attribute: &&KeyValue| attribute.key.as_str() == name;
    match &span.attributes.iter().find(found)?.value {
        Value::I64(number) => Some(*number),
        Value::String(text) => text.as_str().parse().ok(),
        _ => None,
    }
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_requests_own_span_has_its_gpu_time() {
    let (fake, spans) = (Fake::new(), GpuSpans::new().wait(Duration::from_secs(600)));
    let service = start(&fake, &spans);
    let parent = info_span!("batch");
    parent.in_scope(|| (1..=20).for_each(|number| request(&fake, number, 3)));
    drop(parent);
    // They ended, and wait; a span that is no request does not.
    let exported = service.exporter.get_finished_spans().unwrap();
    assert_eq!(exported.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["batch"]);
    assert_eq!(spans.counts().waiting, 20);
    service.guard.flush().unwrap();
    let exported = service.exporter.get_finished_spans().unwrap();
    let requests: Vec<&SpanData> = exported.iter().filter(|span| span.name == "request").collect();
    assert_eq!((requests.len(), spans.counts().with_work, spans.counts().waiting), (20, 20, 0));
    let batch = exported.iter().find(|span| span.name == "batch").unwrap();
    for span in requests {
        let payload = number(span, "nvtx.payload").unwrap();
        assert_eq!(number(span, "gpu.time_ns"), Some(3 * 1_000 * payload + 3), "{span:?}");
        assert_eq!((number(span, "gpu.kernels"), number(span, "gpu.copies")), (Some(3), Some(0)));
        // It is the span itself, in its trace.
        assert_eq!(span.parent_span_id, batch.span_context.span_id());
    }
    service.guard.finish().unwrap();
}

/// Without GPU work there is no result: spans go on by themselves after the wait, and at a flush.
#[test]
fn spans_without_gpu_work_go_on() {
    let (fake, spans) = (Fake::new(), GpuSpans::new().wait(Duration::from_millis(50)));
    let service = start(&fake, &spans);
    request(&fake, 1, 0);
    let late = late();
    while service.exporter.get_finished_spans().unwrap().is_empty() {
        assert!(Instant::now() < late, "{:?}", spans.counts());
        std::thread::sleep(Duration::from_millis(10));
    }
    let exported = service.exporter.get_finished_spans().unwrap();
    assert_eq!(number(&exported[0], "gpu.time_ns"), None);
    assert_eq!((spans.counts().without_work, spans.counts().with_work), (1, 0));

    let spans = GpuSpans::new().wait(Duration::from_secs(600));
    drop(service);
    let service = start(&fake, &spans);
    request(&fake, 2, 0);
    assert_eq!(spans.counts().waiting, 1);
    service.provider.force_flush().unwrap();
    assert_eq!(service.exporter.get_finished_spans().unwrap().len(), 1);
}

/// No result arrives: the number of spans that wait is bounded, in the order in which they ended.
#[test]
fn the_oldest_spans_go_on_where_too_many_wait() {
    let fake = Fake::new();
    let spans = GpuSpans::new().wait(Duration::from_secs(600)).most_waiting(10);
    let service = start(&fake, &spans);
    (1..=100).for_each(|number| request(&fake, number, 1));
    let counts = spans.counts();
    assert_eq!((counts.waiting, counts.crowded_out), (10, 90), "{counts:?}");
    let exported = service.exporter.get_finished_spans().unwrap();
    let numbers: Vec<i64> =
        exported.iter().filter_map(|span| number(span, "nvtx.payload")).collect();
    assert_eq!(numbers, (1..=90).collect::<Vec<i64>>());
    service.guard.flush().unwrap();
    assert_eq!(spans.counts().with_work, 10);
    // As many results are kept for spans that come later; that of this one is forgotten.
    request(&fake, 5, 0);
    service.provider.force_flush().unwrap();
    let exported = service.exporter.get_finished_spans().unwrap();
    assert_eq!((exported.len(), number(&exported[100], "gpu.time_ns")), (101, None));
}
