//! A layer that keeps events, and what results are to be.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::Profile;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// An event: its target, its level, and its fields as text.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub target: String,
    pub level: Level,
    fields: BTreeMap<String, String>,
}

impl Seen {
    pub fn from_event(event: &Event<'_>) -> Self {
        let (target, level) = (event.metadata().target().to_owned(), *event.metadata().level());
        let mut seen = Self { target, level, fields: BTreeMap::new() };
        event.record(&mut seen);
        seen
    }

    pub fn text(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    pub fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or_else(|_| panic!("no number {field} in {self:?}"))
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// A layer that keeps events.
#[derive(Clone, Default)]
pub struct Keeps(Arc<Mutex<Vec<Seen>>>);

impl Keeps {
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The results by path, each with its kernels.
    pub fn kernels(&self) -> Vec<(String, u64)> {
        let of = |seen: Seen| (seen.text("path").to_owned(), seen.number("kernels"));
        self.take().into_iter().map(of).collect()
    }
}

impl<S: Subscriber> Layer<S> for Keeps {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        assert!(event.is_root() || !event.metadata().target().starts_with("gpu_profiler"));
        self.0.lock().unwrap().push(Seen::from_event(event));
    }
}

pub fn paths(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(path, kernels)| ((*path).to_owned(), *kernels)).collect()
}

/// Every result is that of a range, or of a span with its stays.
pub fn assert_same(profile: &Profile, results: &[Seen]) {
    for seen in results {
        let start = Duration::from_nanos(seen.number("start_ns"));
        let name = seen.text("name");
        // Two threads may begin at the same nanosecond.
        let of_thread = |id: u32| u64::from(id) == seen.number("thread.id");
        let span = profile.process_ranges().find(|span| {
            span.name() == name && span.start() == start && of_thread(span.thread_id())
        });
        let range = profile.ranges().find(|range| {
            range.name() == name && range.start() == start && of_thread(range.thread_id())
        });
        let (path, totals, host, busy, thread) = match (span, range) {
            (Some(span), _) => {
                let busy: Duration = span.activations().map(|stay| stay.host_time()).sum();
                let first = span.activations().min_by_key(|stay| stay.start()).unwrap();
                assert_eq!(seen.number("activations"), span.activations().count() as u64);
                (first.node().path(), span.inclusive(), span.host_time(), busy, span.thread_id())
            }
            (None, Some(range)) => {
                let host = range.host_time();
                (range.node().path(), range.inclusive(), host, host, range.thread_id())
            }
            (None, None) => panic!("no range is what this is of: {seen:?}"),
        };
        assert_eq!(seen.text("path"), path);
        let time = |field| Duration::from_nanos(seen.number(field));
        assert_eq!((time("host_ns"), time("busy_ns")), (host, busy), "{seen:?}");
        assert_eq!(time("gpu_ns"), totals.gpu_time(), "{seen:?}");
        assert_eq!(seen.number("kernels"), totals.kernels, "{seen:?}");
        assert_eq!(seen.number("copies"), totals.copies);
        assert_eq!(seen.number("thread.id"), u64::from(thread));
    }
}
