//! OpenTelemetry's profiles: the weighted stacks, a profile for each weight.

use std::io::{self, Write};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use profiler_base::distinct::Texts;
use prost::Message as _;
use rustc_hash::FxHashMap;

use crate::formats::epoch_ns;
use super::format::Export;
use super::timeline::{Timeline, ns};
use crate::formats::stacks::{Frame, FrameKind, StackRoot, StackWeight};
use profiler_core::profile::Profile;

/// The attribute of a location with the kind of its frame.
const FRAME_KIND: &str = "gpu.frame.kind";

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let profile = timeline.profile;
    let stacks = export.stacks_of(profile, StackRoot::Threads);
    let mut dictionary = Dictionary::new();
    let profiles = stacks.weights().iter().map(|weight| otlp::Profile {
        sample_type: Some(dictionary.value_type(*weight)),
        time_unix_nano: epoch_ns(profile),
        duration_nano: ns(profile.duration()),
        ..otlp::Profile::default()
    });
    let mut profiles: Vec<_> = profiles.collect();
    for stack in stacks.iter() {
        let stack_index = dictionary.stack(&stack.frames);
        for (profile, weight) in profiles.iter_mut().zip(stacks.weights()) {
            let value = i64::try_from(stack.weights.get(*weight)).unwrap_or(i64::MAX);
            if value != 0 {
                let values = vec![value];
                let sample = otlp::Sample { stack_index, values, ..otlp::Sample::default() };
                profile.samples.push(sample);
            }
        }
    }
    let scope = InstrumentationScope {
        // The recording library, as a selector.
        name: "profiler-core".to_owned(),
        version: profile.recording_info().recorder_version.clone(),
        ..InstrumentationScope::default()
    };
    let scope_profiles =
        otlp::ScopeProfiles { scope: Some(scope), profiles, ..otlp::ScopeProfiles::default() };
    let data = otlp::ProfilesData {
        resource_profiles: vec![otlp::ResourceProfiles {
            resource: Some(resource(profile)),
            scope_profiles: vec![scope_profiles],
            ..otlp::ResourceProfiles::default()
        }],
        dictionary: Some(dictionary.into_tables()),
    };
    out.write_all(&data.encode_to_vec())
}

/// Describes the recording and its completeness.
fn resource(profile: &Profile) -> Resource {
    let attribute = |key: &str, value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    };
    let mut attributes = vec![
        attribute("gpu.recorded_on", Value::StringValue(profile.recording_info().to_string())),
        attribute("gpu.recording.complete", Value::BoolValue(profile.health().is_complete())),
    ];
    // With several processes, each has a frame instead.
    if let Some(id) = profile.recording_info().process_id.filter(|_| !profile.has_several_processes())
    {
        attributes.push(attribute("process.pid", Value::IntValue(id.into())));
    }
    Resource { attributes, ..Resource::default() }
}

/// The kind and name of a frame, and its file and line.
type LocationKey = (FrameKind, i32, Option<(i32, u32)>);

/// The tables that profiles refer to by index. The first entry of each is its default value.
struct Dictionary {
    tables: otlp::ProfilesDictionary,
    texts: Texts,
    locations: FxHashMap<LocationKey, i32>,
    /// Attributes with a kind.
    kinds: FxHashMap<FrameKind, i32>,
}

/// The index of the next entry of a table. A table in memory has fewer than 2^31 entries.
fn next<T>(table: &[T]) -> i32 {
    i32::try_from(table.len()).unwrap_or(i32::MAX)
}

impl Dictionary {
    fn new() -> Self {
        let tables = otlp::ProfilesDictionary {
            mapping_table: vec![otlp::Mapping::default()],
            location_table: vec![otlp::Location::default()],
            function_table: vec![otlp::Function::default()],
            link_table: vec![otlp::Link::default()],
            attribute_table: vec![otlp::KeyValueAndUnit::default()],
            stack_table: vec![otlp::Stack::default()],
            ..otlp::ProfilesDictionary::default()
        };
        let mut texts = Texts::default();
        texts.text("");
        Self { tables, texts, locations: FxHashMap::default(), kinds: FxHashMap::default() }
    }

    fn text(&mut self, text: &str) -> i32 {
        i32::try_from(self.texts.text(text)).unwrap_or(i32::MAX)
    }

    fn into_tables(self) -> otlp::ProfilesDictionary {
        let texts = self.texts.values().iter();
        let string_table = texts.map(|text| text.to_string()).collect();
        otlp::ProfilesDictionary { string_table, ..self.tables }
    }

    fn value_type(&mut self, weight: StackWeight) -> otlp::ValueType {
        let (type_strindex, unit_strindex) = (self.text(weight.key()), self.text(weight.unit()));
        otlp::ValueType { type_strindex, unit_strindex }
    }

    /// Adds a stack, whose innermost frame is first.
    fn stack(&mut self, frames: &[Frame<'_>]) -> i32 {
        let location_indices = frames.iter().rev().map(|frame| self.location(frame)).collect();
        let index = next(&self.tables.stack_table);
        self.tables.stack_table.push(otlp::Stack { location_indices });
        index
    }

    fn location(&mut self, frame: &Frame<'_>) -> i32 {
        let name_strindex = self.text(&frame.label());
        let place = frame.line.map(|(file, line)| (self.text(file), line));
        let key = (frame.kind, name_strindex, place);
        if let Some(index) = self.locations.get(&key) {
            return *index;
        }
        let attribute = self.kind(frame.kind);
        let index = next(&self.tables.location_table);
        let (filename_strindex, line) = place.unwrap_or_default();
        let function =
            otlp::Function { name_strindex, filename_strindex, ..otlp::Function::default() };
        let function_index = next(&self.tables.function_table);
        self.tables.function_table.push(function);
        self.tables.location_table.push(otlp::Location {
            lines: vec![otlp::Line { function_index, line: line.into(), ..otlp::Line::default() }],
            attribute_indices: vec![attribute],
            ..otlp::Location::default()
        });
        self.locations.insert(key, index);
        index
    }

    fn kind(&mut self, kind: FrameKind) -> i32 {
        if let Some(index) = self.kinds.get(&kind) {
            return *index;
        }
        let key_strindex = self.text(FRAME_KIND);
        let value = Some(Value::StringValue(kind.key().to_owned()));
        let index = next(&self.tables.attribute_table);
        self.tables.attribute_table.push(otlp::KeyValueAndUnit {
            key_strindex,
            value: Some(AnyValue { value }),
            unit_strindex: 0,
        });
        self.kinds.insert(kind, index);
        index
    }
}
