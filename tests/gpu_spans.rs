//! GPU time on the spans of OpenTelemetry, on a GPU: each request's own span has the work of that request, from four threads at once.
#![allow(clippy::unwrap_used, clippy::panic)] // a test

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use gpu_profiler_tests::cuda::Gpu;
use gpu_profiler_tests::harness;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{
    InMemorySpanExporter, SdkTracerProvider, SimpleSpanProcessor, SpanData,
};
use profiler_core::ProfilerLayer;
use profiler_core::session::GpuSpans;
use tracing::{Dispatch, dispatcher, info_span};
use tracing_subscriber::prelude::*;

const THREADS: u64 = 4;
const REQUESTS: u64 = 50;
const SPIN_NS: u64 = 100_000;
const BYTES: usize = 4096;

fn main() -> ExitCode {
    harness::run(&[("each_request_has_its_gpu_time_on_its_span", requests)]).exit_code()
}

fn number(span: &SpanData, name: &str) -> Option<i64> {
    let found = |attribute: &&KeyValue| attribute.key.as_str() == name;
    match &span.attributes.iter().find(found)?.value {
        Value::I64(number) => Some(*number),
        Value::String(text) => text.as_str().parse().ok(),
        _ => None,
    }
}

/// The kernels of a request.
fn kernels(request: u64) -> u64 {
    1 + request % 5
}

fn requests() {
    let gpu = Gpu::get();
    let warm = gpu.stream();
    gpu.launch_spin(warm, SPIN_NS);
    gpu.synchronize(warm);
    let exporter = InMemorySpanExporter::default();
    let spans = GpuSpans::new().wait(Duration::from_secs(60));
    let processor = spans.processor(SimpleSpanProcessor::new(exporter.clone()));
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let (layer, guard) = ProfilerLayer::builder().lifetimes(true).build().unwrap();
    let subscriber = tracing_subscriber::registry()
        .with(layer)
        .with(spans.layer())
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("service")));
    let dispatch = Dispatch::new(subscriber);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gpu, dispatch) = (gpu.clone(), dispatch.clone());
            scope.spawn(move || {
                let _subscriber = dispatcher::set_default(&dispatch);
                gpu.make_current();
                let (stream, memory) = (gpu.stream(), gpu.alloc(BYTES));
                for request in (0..REQUESTS).map(|nth| thread * REQUESTS + nth) {
                    let span = info_span!("request", nvtx.payload = request);
                    span.in_scope(|| gpu.copy_in(memory, &[7; BYTES]));
                    // As a task that is polled twice.
                    span.in_scope(|| {
                        (0..kernels(request)).for_each(|_| gpu.launch_spin(stream, SPIN_NS));
                        gpu.synchronize(stream);
                    });
                }
                gpu.free(memory);
            });
        }
    });
    guard.flush().unwrap();
    let exported = exporter.get_finished_spans().unwrap();
    let counts = spans.counts();
    assert_eq!((counts.with_work, counts.waiting), (THREADS * REQUESTS, 0), "{counts:?}");
    let mut seen = HashSet::new();
    for span in &exported {
        let request = number(span, "nvtx.payload").unwrap() as u64;
        assert!(seen.insert(request), "two spans of request {request}");
        let expected = [
            ("gpu.kernels", kernels(request)),
            ("gpu.launches", kernels(request)),
            ("gpu.copies", 1),
            ("gpu.copied_bytes", BYTES as u64),
            ("gpu.synchronizations", 1),
        ];
        for (name, expected) in expected {
            assert_eq!(number(span, name), Some(expected as i64), "{name}: {span:?}");
        }
        // Spinning ends a little late, and the copy is of 4 KiB.
        let (least, ns) = (kernels(request) * SPIN_NS, number(span, "gpu.time_ns").unwrap() as u64);
        assert!(
            (least..least + least / 10 + 10_000).contains(&ns),
            "{ns} ns for {least}: {span:?}"
        );
    }
    assert_eq!(seen.len() as u64, THREADS * REQUESTS);
    guard.finish().unwrap();
}
