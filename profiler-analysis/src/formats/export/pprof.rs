//! pprof's `profile.proto`: the weighted stacks as samples.
//!
//! Field numbers are those of `proto/profile.proto` in pprof's repository.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use profiler_base::distinct::Texts;
use rustc_hash::FxHashMap;

use crate::formats::epoch_ns;
use super::format::Export;
use super::protobuf::Message;
use super::timeline::{Timeline, ns};
use crate::formats::stacks::{Frame, FrameKind, StackRoot, StackWeight};
use profiler_core::profile::Profile;

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let profile = timeline.profile;
    let stacks = export.stacks_of(profile, StackRoot::Threads);
    let main = stacks.weights()[0];
    let mut file = File::default();
    file.text(""); // the first string is empty
    for weight in stacks.weights() {
        let value_type = file.value_type(*weight);
        file.body.message(1, &value_type); // sample_type
    }
    for stack in stacks.iter() {
        // The innermost frame is first.
        let mut locations: Vec<u64> =
            stack.frames.iter().map(|frame| file.location(frame)).collect();
        locations.reverse();
        let mut sample = Message::default();
        sample.packed(1, locations.into_iter()); // location_id
        let value = |weight: &StackWeight| stack.weights.get(*weight).min(i64::MAX.unsigned_abs());
        sample.packed(2, stacks.weights().iter().map(value)); // value
        file.body.message(2, &sample); // sample
    }
    let mapping = file.mapping();
    file.body.message(3, &mapping); // mapping
    let period = file.value_type(main);
    file.body.number(9, epoch_ns(profile)); // time_nanos
    file.body.number(10, ns(profile.duration())); // duration_nanos
    file.body.message(11, &period); // period_type
    file.body.number(12, 1); // period
    for comment in comments(timeline) {
        let comment = file.text(&comment);
        file.body.number(13, comment); // comment
    }
    let default = file.text(main.key());
    file.body.number(14, default); // default_sample_type
    let mut out = GzEncoder::new(out, Compression::default());
    out.write_all(file.body.as_bytes())?;
    let mut strings = Message::default();
    file.texts.values().iter().for_each(|text| strings.text(6, text)); // string_table
    out.write_all(strings.as_bytes())?;
    out.finish().map(drop)
}

const MAPPING: u64 = 1;

/// Describes the recording and its losses.
fn comments(timeline: &Timeline<'_>) -> Vec<String> {
    let profile: &Profile = timeline.profile;
    let mut comments = vec![format!("recorded on {}", profile.recording_info())];
    if !profile.health().is_complete() {
        comments.push(format!("incomplete: {}", profile.health().missing_in_words()));
    }
    if timeline.without_time != 0 {
        let count = timeline.without_time;
        comments.push(format!("operations without timestamps, counted with time 0: {count}"));
    }
    comments
}

/// The kind and name of a frame, and its file and line.
type LocationKey = (FrameKind, u64, Option<(u64, u32)>);

/// The file's messages, and its tables of strings and functions.
#[derive(Default)]
struct File {
    body: Message,
    texts: Texts,
    /// A location for each frame and line.
    locations: FxHashMap<LocationKey, u64>,
    /// Functions by name and file.
    functions: FxHashMap<(FrameKind, u64, u64), u64>,
}

impl File {
    /// The index of a string.
    fn text(&mut self, text: &str) -> u64 {
        self.texts.text(text).into()
    }

    fn value_type(&mut self, weight: StackWeight) -> Message {
        let mut message = Message::default();
        message.number(1, self.text(weight.key())); // type
        message.number(2, self.text(weight.unit())); // unit
        message
    }

    /// The single mapping. It marks names as complete for readers.
    fn mapping(&mut self) -> Message {
        let mut mapping = Message::default();
        mapping.number(1, MAPPING); // id
        mapping.number(5, self.text("[GPU]")); // filename
        mapping.number(7, 1); // has_functions
        mapping.number(8, 1); // has_filenames
        mapping
    }

    fn function(&mut self, kind: FrameKind, name: u64, file: u64) -> u64 {
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((kind, name, file)).or_insert(next);
        if id == next {
            let mut function = Message::default();
            function.number(1, id); // id
            function.number(2, name); // name
            function.number(4, file); // filename
            self.body.message(5, &function); // function
        }
        id
    }

    fn location(&mut self, frame: &Frame<'_>) -> u64 {
        let name = self.text(&frame.label());
        let place = frame.line.map(|(file, line)| (self.text(file), line));
        let next = self.locations.len() as u64 + 1;
        let id = *self.locations.entry((frame.kind, name, place)).or_insert(next);
        if id == next {
            let file = place.map_or_else(|| self.text(frame.kind.key()), |(file, _)| file);
            let function = self.function(frame.kind, name, file);
            let mut line = Message::default();
            line.number(1, function); // function_id
            if let Some((_, number)) = place {
                line.number(2, number.into()); // line
            }
            let mut location = Message::default();
            location.number(1, id); // id
            location.number(2, MAPPING); // mapping_id
            location.message(4, &line); // line
            self.body.message(4, &location); // location
        }
        id
    }
}
