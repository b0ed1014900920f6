//! Counters of the program and their samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nvtx::FieldValue;
use nvtx::observer::{CounterSample, CounterValue, Missing};
use parking_lot::RwLock;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::domain::Domain;
use super::schema::Schema;
use super::{FIRST_DYNAMIC, FIRST_STATIC, changing, observer};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// The maximum number of counters.
const MOST: usize = 1 << 16;

/// NVTX's type ids for a counter without a schema.
const I64: u64 = 17;
const F64: u64 = 44;

/// The readable part of `nvtxCounterAttr_t`.
#[derive(Debug, Default)]
pub(crate) struct CounterDescription {
    pub(crate) schema: u64,
    pub(crate) name: String,
    pub(crate) unit: String,
    /// The id chosen by the program, or 0.
    pub(crate) id: u64,
}

#[derive(Debug)]
struct Counter {
    name: String,
    unit: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    I64,
    F64,
    /// The names of a group's counters, each with the group's name as prefix.
    Group(&'static Schema, Vec<String>),
    Unknown,
}

type Counters = FxHashMap<(u32, u64), Arc<Counter>>;

/// Counters by domain number and id. Ids assigned by the library use domain 0.
static COUNTERS: RwLock<Counters> = RwLock::new(Counters::with_hasher(FxBuildHasher));
static NEXT: AtomicU64 = AtomicU64::new(FIRST_DYNAMIC);

fn key(domain: &Domain, id: u64) -> (u32, u64) {
    (if id < FIRST_DYNAMIC { domain.number } else { 0 }, id)
}

/// Registers a counter or group and returns its id, or 0 if it is refused.
pub(crate) fn register(domain: usize, description: &CounterDescription) -> u64 {
    if !Mode::load().is_active() {
        return 0;
    }
    let domain = Domain::from_handle(domain);
    let is_valid = description.id == 0 || (FIRST_STATIC..FIRST_DYNAMIC).contains(&description.id);
    let _changes = changing();
    let counters = &mut *COUNTERS.write();
    if !is_valid || counters.len() >= MOST {
        count(&COUNTS.refused_objects);
        return 0;
    }
    let id = match description.id {
        0 => NEXT.fetch_add(1, Ordering::Relaxed),
        id => id,
    };
    let content = match description.schema {
        I64 => Content::I64,
        F64 => Content::F64,
        schema => Schema::find(domain, schema).map_or(Content::Unknown, |schema| {
            let name = |value: &str| format!("{}.{value}", description.name);
            Content::Group(schema, schema.values.iter().map(|value| name(value.name)).collect())
        }),
    };
    let (name, unit) = (description.name.clone(), description.unit.clone());
    counters.insert(key(domain, id), Arc::new(Counter { name, unit, content }));
    id
}

fn with_counter(domain: usize, id: u64, with: impl FnOnce(&Domain, &Counter)) {
    if !Mode::load().is_on() {
        return;
    }
    let domain = Domain::from_handle(domain);
    let counter = COUNTERS.read().get(&key(domain, id)).cloned();
    match counter {
        Some(counter) => with(domain, &counter),
        None => count(&COUNTS.unknown_handles),
    }
}

fn observed(domain: &Domain, counter: &Counter, time: Option<i64>, value: CounterValue<'_>) {
    let mut sample = CounterSample::new(&counter.name, value);
    sample.domain = domain.name;
    sample.unit = &counter.unit;
    sample.time = time;
    observer().counter(&sample);
}

/// Passes a sample to the observer.
pub(crate) fn sample(domain: usize, id: u64, value: CounterValue<'_>) {
    with_counter(domain, id, |domain, counter| observed(domain, counter, None, value));
}

/// Reports a missing value with this reason code.
pub(crate) fn no_value(domain: usize, id: u64, reason: u8) {
    let missing = match reason {
        0 => Missing::Zero,
        1 => Missing::Unchanged,
        _ => Missing::Unavailable,
    };
    sample(domain, id, CounterValue::Missing(missing));
}

/// Passes a sample to the observer, given as bytes.
pub(crate) fn sample_bytes(domain: usize, id: u64, bytes: &[u8]) {
    with_counter(domain, id, |domain, counter| read(domain, counter, None, bytes));
}

/// Passes contiguous samples to the observer. Each has a timestamp if `times` has the same count.
pub(crate) fn batch(domain: usize, id: u64, samples: &[u8], times: &[i64]) {
    with_counter(domain, id, |domain, counter| {
        let size = match &counter.content {
            Content::I64 | Content::F64 => 8,
            Content::Group(schema, _) => schema.size,
            Content::Unknown => 0,
        };
        if size == 0 {
            count(&COUNTS.unread_values);
            return;
        }
        let has_times = times.len() == samples.len() / size;
        if !has_times && !times.is_empty() {
            // The times are a start and an interval, or a mistake of the program.
            count(&COUNTS.unread_values);
        }
        for (at, sample) in samples.chunks_exact(size).enumerate() {
            read(domain, counter, times.get(at).copied().filter(|_| has_times), sample);
        }
    });
}

fn read(domain: &Domain, counter: &Counter, time: Option<i64>, bytes: &[u8]) {
    let bits = bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    match (&counter.content, bits) {
        (Content::I64, Some(bits)) => {
            observed(domain, counter, time, CounterValue::I64(bits.cast_signed()));
        }
        (Content::F64, Some(bits)) => {
            observed(domain, counter, time, CounterValue::F64(f64::from_bits(bits)));
        }
        (Content::Group(schema, names), _) => {
            for (value, name) in schema.values.iter().zip(names) {
                let number = match value.read(bytes) {
                    Some(FieldValue::I64(number)) => CounterValue::I64(number),
                    Some(FieldValue::F64(number)) => CounterValue::F64(number),
                    Some(FieldValue::U64(number)) => match i64::try_from(number) {
                        Ok(number) => CounterValue::I64(number),
                        // CAST: rounds to the nearest.
                        Err(_) => CounterValue::F64(number as f64),
                    },
                    _ => {
                        count(&COUNTS.unread_values);
                        continue;
                    }
                };
                let mut sample = CounterSample::new(name, number);
                sample.domain = domain.name;
                sample.unit = if value.unit.is_empty() { &counter.unit } else { value.unit };
                sample.time = time;
                observer().counter(&sample);
            }
        }
        _ => count(&COUNTS.unread_values),
    }
}
