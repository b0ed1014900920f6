//! Arguments of slices: named values in addition to name and time.

use std::borrow::Cow;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::timeline::{CallRow, OperationRow, RangeRow, Timeline, ns};
use profiler_core::profile::Mark;
use profiler_core::profile::ProcessRange;
use profiler_core::profile::Range;
use profiler_core::tables::What;

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Text(Cow<'a, str>),
    /// In x, y, z.
    Sizes([u32; 3]),
}

macro_rules! value_from {
    ($($type:ty => $variant:ident,)+) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )+};
}
value_from! {
    u64 => U64, u32 => U64, u16 => U64, i64 => I64, i32 => I64, f64 => F64, f32 => F64, bool => Bool,
    &'a str => Text, String => Text, [u32; 3] => Sizes,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U64(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Sizes([x, y, z]) => write!(f, "{x} x {y} x {z}"),
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::U64(value) => serializer.serialize_u64(*value),
            Self::I64(value) => serializer.serialize_i64(*value),
            // JSON cannot express these numbers.
            Self::F64(value) if !value.is_finite() => serializer.collect_str(value),
            Self::F64(value) => serializer.serialize_f64(*value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Sizes(value) => value.serialize(serializer),
        }
    }
}

/// Named values in order, with unique names.
#[derive(Debug, Clone, Default)]
pub(super) struct Args<'a> {
    values: Vec<(Cow<'a, str>, Value<'a>)>,
    /// The names, if there are more than [`FEW`].
    names: FxHashSet<Cow<'a, str>>,
    /// The next number for a repeated name.
    numbers: FxHashMap<Cow<'a, str>, u64>,
}

/// Up to this count, names are compared one by one; slices rarely have more.
const FEW: usize = 16;

impl<'a> Args<'a> {
    /// Adds a value. A repeated name gets a number.
    pub(super) fn add(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Value<'a>>) {
        let mut name = name.into();
        if self.has(&name) {
            let mut number = self.numbers.get(&name).copied().unwrap_or(2);
            let numbered = loop {
                let numbered = format!("{name} #{number}");
                number += 1;
                if !self.has(&numbered) {
                    break numbered;
                }
            };
            self.numbers.insert(name, number);
            name = Cow::Owned(numbered);
        }
        match self.values.len() {
            0..FEW => {}
            FEW => {
                self.names.extend(self.values.iter().map(|(name, _)| name.clone()));
                self.names.insert(name.clone());
            }
            _ => _ = self.names.insert(name.clone()),
        }
        self.values.push((name, value.into()));
    }

    fn add_some(&mut self, name: &'static str, value: Option<impl Into<Value<'a>>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    pub(super) fn extend(&mut self, other: Self) {
        other.values.into_iter().for_each(|(name, value)| self.add(name, value));
    }

    fn has(&self, name: &str) -> bool {
        match self.values.len() {
            0..=FEW => self.values.iter().any(|(other, _)| other == name),
            _ => self.names.contains(name),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.values.iter().map(|(name, value)| (&**name, value))
    }
}

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len()))?;
        self.values.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// Adds the labels of a range or a mark.
macro_rules! described {
    ($args:ident, $described:expr) => {
        $args.add_some("domain", $described.domain());
        $args.add_some("category", $described.category());
        $args.add_some("payload", $described.payload().map(of_payload));
        for field in $described.fields() {
            let name: Cow<'_, str> = match field.unit {
                "" => field.name.into(),
                unit => format!("{} [{unit}]", field.name).into(),
            };
            $args.add(name, of_field(field.value));
        }
    };
}

fn of_payload<'a>(payload: nvtx::Payload) -> Value<'a> {
    match payload {
        nvtx::Payload::U64(value) => value.into(),
        nvtx::Payload::I64(value) => value.into(),
        nvtx::Payload::F64(value) => value.into(),
        nvtx::Payload::U32(value) => value.into(),
        nvtx::Payload::I32(value) => value.into(),
        nvtx::Payload::F32(value) => value.into(),
        other => format!("{other:?}").into(),
    }
}

fn of_field(value: nvtx::FieldValue<'_>) -> Value<'_> {
    match value {
        nvtx::FieldValue::U64(value) => value.into(),
        nvtx::FieldValue::I64(value) => value.into(),
        nvtx::FieldValue::F64(value) => value.into(),
        nvtx::FieldValue::Bool(value) => value.into(),
        nvtx::FieldValue::Str(value) => value.into(),
        other => format!("{other:?}").into(),
    }
}

pub(super) fn of_range<'a>(row: &RangeRow<'a>) -> Args<'a> {
    let mut args = Args::default();
    args.add_some("open", row.range.is_open().then_some(true));
    described!(args, row.range);
    args
}

pub(super) fn of_process_range<'a>(range: &ProcessRange<'a>) -> Args<'a> {
    let mut args = Args::default();
    args.add_some("open", range.is_open().then_some(true));
    args.add("begun on thread", range.thread_id());
    args.add_some("ended on thread", range.end_thread_id());
    args.add("activations", range.activations().count() as u64);
    let totals = range.inclusive();
    args.add("GPU operations", totals.gpu_operations());
    args.add("GPU time [ns]", ns(totals.gpu_time()));
    described!(args, range);
    args
}

pub(super) fn of_mark<'a>(mark: &Mark<'a>) -> Args<'a> {
    let mut args = Args::default();
    described!(args, mark);
    args
}

pub(super) fn of_call<'a>(timeline: &'a Timeline<'_>, call: &CallRow<'_>) -> Args<'a> {
    let mut args = Args::default();
    args.add_some("open", call.call.host_time().is_none().then_some(true));
    args.add("correlation", call.call.correlation_id());
    args.add_some("path", call.range.map(|range| timeline.path(range)));
    args.add_some("captured", call.call.is_captured().then_some(true));
    args.add_some("error", call.call.is_failure().then_some(call.call.result()));
    args
}

pub(super) fn of_operation<'a>(
    timeline: &'a Timeline<'_>,
    operation: &OperationRow<'_>,
) -> Args<'a> {
    let mut args = Args::default();
    args.add("correlation", operation.operation.correlation_id());
    args.add_some("path", operation.range.map(|range| timeline.path(range)));
    args.add_some("shared with", shared_with(timeline, operation.operation.ranges()));
    let inferred = operation.operation.inferred_range();
    args.add_some("inferred path", inferred.map(|range| timeline.path(range.id().at())));
    args.add("context", operation.place.context);
    match operation.what() {
        What::Kernel { details, .. } => {
            args.add("grid", details.grid);
            args.add("block", details.block);
            if details.cluster != [0; 3] {
                args.add("cluster", details.cluster);
            }
            args.add("registers a thread", details.registers_per_thread);
            args.add("static shared memory [B]", details.static_shared_bytes);
            args.add("dynamic shared memory [B]", details.dynamic_shared_bytes);
            args.add("local memory a thread [B]", details.local_bytes_per_thread);
        }
        What::Copy(copy) => {
            args.add("bytes", copy.bytes);
            args.add("from", copy.source.to_string());
            args.add("to", copy.destination.to_string());
            args.add("asynchronous", copy.asynchronous);
            args.add_some("from device", copy.peers.map(|peers| peers.source_device));
            args.add_some("to device", copy.peers.map(|peers| peers.destination_device));
        }
        What::Memset(memset) => {
            args.add("bytes", memset.bytes);
            args.add("value", memset.value);
            args.add("memory", memset.memory.to_string());
        }
        What::Graph(graph) => {
            args.add("executable graph", graph.executable);
            args.add_some("graph", graph.template);
        }
    }
    if let Some(captured) = operation.operation.captured_in() {
        args.add("graph node made in", &*timeline.paths[captured.node().id().at()]);
    }
    args
}

/// The maximum number of ranges named in an argument.
const SHARED: usize = 16;

/// The paths of the other ranges that share an operation.
fn shared_with<'a>(
    timeline: &Timeline<'_>,
    ranges: impl Iterator<Item = Range<'a>>,
) -> Option<String> {
    let mut others = ranges.skip(1);
    let path = |range: Range<'a>| timeline.paths[range.node().id().at()].to_string();
    let mut paths: Vec<String> = others.by_ref().take(SHARED).map(path).collect();
    let more = others.count();
    if more != 0 {
        paths.push(format!("and {more} more"));
    }
    (!paths.is_empty()).then(|| paths.join(", "))
}

/// Arguments of the whole trace: the recording and its completeness.
pub(super) fn of_recording<'a>(timeline: &Timeline<'_>, most_samples: usize) -> Args<'a> {
    let mut args = Args::default();
    let profile = timeline.profile;
    args.add("recorded on", profile.recording_info().to_string());
    args.add("recorder", format!("profiler-core {}", profile.recording_info().recorder_version));
    args.add("complete", profile.health().is_complete());
    args.add("operations without timestamps, not shown", timeline.without_time);
    if profile.series().any(|series| series.len() > most_samples) {
        args.add("sampled tracks are thinned out to values", most_samples as u64);
    }
    for series in profile.series() {
        let losses = series.losses();
        if !losses.is_empty() {
            let name = format!("not sampled of GPU {} ({})", series.device(), series.source());
            args.add(name, losses.join("; "));
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_there_twice() {
        let mut args = Args::default();
        for name in ["a", "a", "a #2", "b", "a"] {
            args.add(name, 1u32);
        }
        let names: Vec<_> = args.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "a #2", "a #2 #2", "b", "a #3"]);
    }

    /// All fields of a program may have one name. Comparing each with each would take hours.
    #[test]
    fn a_name_of_many_is_numbered_at_once() {
        let mut args = Args::default();
        (0..50_000u32).for_each(|value| args.add("a", value));
        args.add("a #70000", 1u32);
        let names: FxHashSet<&str> = args.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 50_001);
        for (at, (name, value)) in args.iter().take(50_000).enumerate().skip(1) {
            assert_eq!(name, format!("a #{}", at + 1));
            assert!(matches!(value, Value::U64(value) if *value == at as u64));
        }
    }

    #[test]
    fn nonfinite_number_is_text_in_json() {
        let mut args = Args::default();
        args.add("a", f64::NAN);
        args.add("b", f64::NEG_INFINITY);
        args.add("c", 1.5f32);
        let json = serde_json::to_string(&args).unwrap();
        assert_eq!(json, r#"{"a":"NaN","b":"-inf","c":1.5}"#);
    }
}
