//! NVTX events without a log of their own, as marks with fields: samples of counters, names of
//! objects, steps of synchronisation objects and deferred events.

use nvtx::observer::{CounterSample, CounterValue, DeferredEvent, Mark, Missing, Named, SyncStep};
use nvtx::{Field, FieldValue};

/// The field of a mark for a sample: its value and unit, or a reason if there is no value.
const COUNTER: &str = "counter";
/// The field of a mark for the name of an object: identifies the object.
const NAMES: &str = "names";
/// The field of a mark for a step of a synchronisation object.
const SYNC: &str = "sync";
/// The fields of a deferred event: its clock by NVTX's number, and its times by that clock.
const CLOCK: &str = "clock";
const START: &str = "start";
const END: &str = "end";
/// The time of a sample, if it has one, by its counter's clock.
const TIME: &str = "time";

fn mark<'a>(name: &'a str, domain: Option<&'a str>, fields: &'a [Field<'a>]) -> Mark<'a> {
    let mut mark = Mark::new(name);
    mark.domain = domain;
    mark.fields = fields;
    mark
}

/// A sample of a group has the group's name and no value.
pub(super) fn counter(sample: &CounterSample<'_>, write: impl FnOnce(&Mark<'_>)) {
    let value = match sample.value {
        CounterValue::I64(value) => FieldValue::I64(value),
        CounterValue::F64(value) => FieldValue::F64(value),
        CounterValue::Missing(Missing::Zero) => FieldValue::Str("zero"),
        CounterValue::Missing(Missing::Unchanged) => FieldValue::Str("unchanged"),
        CounterValue::Missing(Missing::Unavailable) => FieldValue::Str("unavailable"),
        _ => FieldValue::Str("a group"),
    };
    let time = sample.time.unwrap_or_default();
    let fields = [Field::new(COUNTER, value, sample.unit), Field::new(TIME, time, "")];
    let known = if sample.time.is_some() { 2 } else { 1 };
    write(&mark(sample.name, sample.domain, &fields[..known]));
}

pub(super) fn named(what: &Named<'_>, name: &str, write: impl FnOnce(&Mark<'_>)) {
    let (kind, number) = match *what {
        Named::Thread(id) => ("thread", u64::from(id)),
        Named::CuDevice(id) | Named::CudaDevice(id) => ("device", u64::from(id.cast_unsigned())),
        Named::CuContext(handle) => ("context", handle as u64),
        Named::CuStream(handle) | Named::CudaStream(handle) => ("stream", handle as u64),
        Named::CuEvent(handle) | Named::CudaEvent(handle) => ("event", handle as u64),
        Named::Resource { id, .. } => ("resource", id.value()),
        _ => ("object", 0),
    };
    let domain = match what {
        Named::Resource { domain, .. } => *domain,
        _ => None,
    };
    let fields = [Field::new(NAMES, kind, ""), Field::new(kind, number, "")];
    write(&mark(name, domain, &fields));
}

pub(super) fn sync(
    domain: Option<&str>,
    name: &str,
    step: SyncStep,
    write: impl FnOnce(&Mark<'_>),
) {
    let step = match step {
        SyncStep::AcquireStart => "acquire",
        SyncStep::AcquireFailed => "acquire failed",
        SyncStep::AcquireSuccess => "acquired",
        SyncStep::Releasing => "release",
        _ => "unknown",
    };
    write(&mark(name, domain, &[Field::new(SYNC, step, "")]));
}

pub(super) fn deferred(event: &DeferredEvent<'_>, write: impl FnOnce(&Mark<'_>)) {
    let end = event.end.unwrap_or(event.start);
    let fields = [
        Field::new(CLOCK, event.clock.number(), ""),
        Field::new(START, event.start, ""),
        Field::new(END, end, ""),
    ];
    let known = if event.end.is_some() { 3 } else { 2 };
    let mut deferred = mark(event.name, event.domain, &fields[..known]);
    deferred.category = event.category;
    deferred.color = event.color;
    write(&deferred);
}
