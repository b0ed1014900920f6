//! A recording as bytes: a magic word, then frames of (tag, length, content), little-endian. Logs are binary, the rest
//! is JSON. A reader skips tags it does not know; the last frame says that nothing is cut off.
//!
//! Format 2 added labels and the second log of each thread, calls of the runtime API, graph events, windows and attributes. In
//! a file of format 1 an entry's index is that of its name, and the session was on all the time. Files from before logs had
//! numbers of their own have an epoch in their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use cupti::{
    ActivityKind, Attribute, AttributeSetting, Call, DataKey, GraphEvent, NameKey, Reading,
    RecordBytes, ThreadCalls, ThreadGraphs, Version,
};
use serde::de::value::BorrowedStrDeserializer;
use serde::{Deserialize, Serialize};

use super::parts::ThreadRanges;
use super::ranges::{self, Label, RangeEntry, Slots, Texts};
use super::word::logs_of_epoch;
use super::{Clocks, Losses, Recording, RecordingInfo};
use crate::error::Error;
use crate::series::{Kind, Series, Source};

/// The last byte is the format.
const MAGIC: &[u8; 8] = b"GPUPROF\x02";
const INFO: &[u8; 4] = b"INFO";
const NAMES: &[u8; 4] = b"NAME";
const RECORDS: &[u8; 4] = b"RECS";
const CALLS: &[u8; 4] = b"CALL";
const RUNTIME_CALLS: &[u8; 4] = b"RTCL";
const GRAPHS: &[u8; 4] = b"GRPH";
const RANGES: &[u8; 4] = b"RNGE";
/// The second log of the thread whose ranges came last.
const EVENTS: &[u8; 4] = b"EVNT";
/// Since format 2, in files of newer versions: what samplers saw.
const SERIES: &[u8; 4] = b"SERS";
const END: &[u8; 4] = b"DONE";

/// The strides of CUPTI's records by kind, and the texts and other bytes that they refer to, by key.
#[derive(Serialize, Deserialize)]
struct Names {
    strides: BTreeMap<u32, u32>,
    names: BTreeMap<u64, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    data: BTreeMap<u64, Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct ThreadHead {
    thread_id: u32,
    #[serde(default)]
    thread_name: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    labels: Option<Vec<Label>>,
    /// The number of the thread's log less that of the first one, if it is not its place among the threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    /// Where the entries stood in the log, if parts of it are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<Vec<u64>>,
}

impl ThreadHead {
    fn of(thread_id: u32) -> Self {
        let (names, labels) = (vec![], None);
        Self { thread_id, thread_name: None, names, labels, number: None, slots: None }
    }
}

#[derive(Serialize, Deserialize)]
struct Done {
    window_ns: (u64, u64),
    #[serde(default)]
    windows_ns: Option<Vec<(u64, u64)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending_from_ns: Option<u64>,
    /// Number, value before, value asked for, value that it was set to.
    #[serde(default)]
    attributes: Vec<(u32, u64, u64, u64)>,
    #[serde(default)]
    missing_kinds: Vec<u32>,
    /// At start, at stop and perhaps between: when the clocks were compared, and how far CUPTI's was ahead.
    clock_ns: Vec<(u64, i64)>,
    /// The first number of its logs of ranges, and the one after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logs: Option<(u64, u64)>,
    /// In its place, in older files: which recording of the process it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    #[serde(default)]
    before_id: u32,
    losses: Losses,
}

fn frame(out: &mut Vec<u8>, tag: &[u8; 4], content: &[u8]) {
    out.extend_from_slice(tag);
    out.extend_from_slice(&(content.len() as u64).to_le_bytes());
    out.extend_from_slice(content);
}

/// These types hold only strings and numbers, which always have a JSON form.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// A path says on whose machine a file lay, which a recording is not to tell: only its last part is written. Records of
/// compilations name the cache by its path; names of functions never begin so.
fn without_folder(name: &str) -> String {
    let path = name.strip_prefix('/').and_then(|path| path.rsplit('/').next());
    path.unwrap_or(name).to_owned()
}

/// A thread's frame: a head, and the entries' words.
fn thread_frame<const WORDS: usize>(
    head: &ThreadHead,
    entries: impl Iterator<Item = [u64; WORDS]>,
) -> Vec<u8> {
    headed(head, entries.flatten())
}

/// The length of the JSON head, the head, words.
fn headed(head: &impl Serialize, words: impl Iterator<Item = u64>) -> Vec<u8> {
    let head = json(head);
    let mut content = (head.len() as u64).to_le_bytes().to_vec();
    content.extend_from_slice(&head);
    words.for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
    content
}

pub(super) fn write(recording: &Recording) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    frame(&mut out, INFO, &json(&recording.info));
    let names = Names {
        strides: recording.records.strides().map(|(kind, stride)| (kind.0, stride)).collect(),
        names: recording.records.names().map(|(key, name)| (key.0, without_folder(name))).collect(),
        data: recording.records.all_data().map(|(key, data)| (key.0, data.to_owned())).collect(),
    };
    frame(&mut out, NAMES, &json(&names));
    for buffer in recording.records.buffers() {
        frame(&mut out, RECORDS, buffer);
    }
    let head = ThreadHead::of;
    for thread in &recording.calls {
        let words = thread.calls.iter().map(Call::to_words);
        frame(&mut out, CALLS, &thread_frame(&head(thread.thread_id), words));
    }
    for thread in &recording.runtime_calls {
        let words = thread.calls.iter().map(Call::to_words);
        frame(&mut out, RUNTIME_CALLS, &thread_frame(&head(thread.thread_id), words));
    }
    for thread in &recording.graphs {
        let words = thread.events.iter().map(GraphEvent::to_words);
        frame(&mut out, GRAPHS, &thread_frame(&head(thread.thread_id), words));
    }
    for (place, thread) in recording.ranges.iter().enumerate() {
        let head = ThreadHead {
            thread_id: thread.thread_id,
            thread_name: thread.thread_name.clone(),
            names: thread.texts.texts.clone(),
            labels: Some(thread.texts.labels.clone()),
            number: number_after(recording.logs.start, thread.number, place),
            slots: listed(&thread.slots),
        };
        frame(
            &mut out,
            RANGES,
            &thread_frame(&head, thread.entries.iter().map(|entry| entry.to_words())),
        );
        if !thread.events.is_empty() {
            let slots = listed(&thread.event_slots);
            let head = ThreadHead { slots, ..ThreadHead::of(thread.thread_id) };
            frame(&mut out, EVENTS, &thread_frame(&head, thread.events.iter().copied()));
        }
    }
    for series in &recording.series {
        frame(&mut out, SERIES, &headed(&series.head, series.words()));
    }
    let pair = |reading: Reading| (reading.at_ns, reading.offset_ns);
    let done = Done {
        window_ns: recording.window_ns,
        windows_ns: Some(recording.windows_ns.clone()),
        pending_from_ns: recording.pending_from_ns,
        attributes: recording
            .attributes
            .iter()
            .map(|setting| (setting.attribute.id(), setting.before, setting.asked, setting.set))
            .collect(),
        missing_kinds: recording.missing_kinds.iter().map(|kind| kind.0).collect(),
        clock_ns: recording.clocks.readings().iter().copied().map(pair).collect(),
        logs: Some((recording.logs.start, recording.logs.end)),
        epoch: None,
        before_id: recording.before_id,
        losses: recording.losses,
    };
    frame(&mut out, END, &json(&done));
    out
}

/// The bytes not yet read, with the place for messages.
struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], Error> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(Error::format(format!(
                "it ends in the middle of {what}: at byte {} {length} bytes are missing, {} are there; the file was cut short",
                self.at,
                self.rest.len()
            )));
        };
        self.rest = rest;
        self.at += length;
        Ok(taken)
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8, what)?);
        Ok(u64::from_le_bytes(bytes))
    }
}

fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8], what: &str) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::format(format!("{what} is damaged: {error}")))
}

/// What [`headed`] wrote, the words as bytes.
fn read_headed<'a, T: for<'de> Deserialize<'de>>(
    content: &'a [u8],
    what: &str,
) -> Result<(T, &'a [[u8; 8]]), Error> {
    let mut reader = Reader { rest: content, at: 0 };
    let length = usize::try_from(reader.u64(what)?).unwrap_or(usize::MAX);
    let head = parse(reader.take(length, what)?, what)?;
    let (words, rest) = reader.rest.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Error::format(format!("{what} is no whole number of entries")));
    }
    Ok((head, words))
}

/// `None` if a newer version wrote it: of a sampler, or with a kind of values, that this one does not know.
fn read_series(content: &[u8]) -> Result<Option<Series>, Error> {
    #[derive(Deserialize)]
    struct Column {
        kind: String,
    }
    #[derive(Deserialize)]
    struct Names {
        source: String,
        metrics: Vec<Column>,
    }
    let what = "a series of samples";
    let (Names { source, metrics }, _) = read_headed(content, what)?;
    if !is_known::<Source>(&source) || metrics.iter().any(|of| !is_known::<Kind>(&of.kind)) {
        return Ok(None);
    }
    let (head, words) = read_headed(content, what)?;
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    let series = Series::from_words(head, &words).ok_or_else(|| {
        Error::format(format!("{what} is damaged: its rows are not whole or not in order"))
    })?;
    Ok(Some(series))
}

fn is_known<'a, T: Deserialize<'a>>(name: &'a str) -> bool {
    T::deserialize(BorrowedStrDeserializer::<serde::de::value::Error>::new(name)).is_ok()
}

fn read_thread<const WORDS: usize>(
    content: &[u8],
    what: &str,
) -> Result<(ThreadHead, Vec<[u64; WORDS]>), Error> {
    let (head, words) = read_headed(content, what)?;
    let (entries, odd) = words.as_chunks::<WORDS>();
    if !odd.is_empty() {
        return Err(Error::format(format!("{what} is no whole number of entries")));
    }
    Ok((head, entries.iter().map(|entry| entry.map(u64::from_le_bytes)).collect()))
}

/// A log's number after the first one, if it is not its place. A recording has fewer than 2^32 logs.
fn number_after(first: u64, number: u64, place: usize) -> Option<u32> {
    let after = number.saturating_sub(first);
    if after == place as u64 { None } else { Some(u32::try_from(after).unwrap_or(u32::MAX)) }
}

/// The slots, if a reader cannot know them.
fn listed(slots: &Slots) -> Option<Vec<u64>> {
    (!slots.are_rows()).then(|| slots.iter().collect())
}

fn slots(list: Option<Vec<u64>>, entries: usize, what: &str) -> Result<Slots, Error> {
    let Some(list) = list else { return Ok((0..entries as u64).collect()) };
    if list.len() != entries || !list.is_sorted_by(|one, next| one < next) {
        return Err(Error::format(format!("{what} does not say where each of its entries stood")));
    }
    Ok(list.into_iter().collect())
}

pub(super) fn read(bytes: &[u8]) -> Result<Recording, Error> {
    let magic = bytes.first_chunk::<8>().ok_or_else(|| {
        Error::format(format!("it has {} bytes, too few for a recording", bytes.len()))
    })?;
    if magic[..7] != MAGIC[..7] {
        return Err(Error::format(
            "it does not begin as one; is it a file that this profiler saved?",
        ));
    }
    if magic[7] > MAGIC[7] {
        return Err(Error::format(format!(
            "it has format {}, and this version reads formats up to {}: use a newer profiler-core",
            magic[7], MAGIC[7]
        )));
    }
    let mut reader = Reader { rest: &bytes[8..], at: 8 };
    let (mut info, mut names, mut done) = (None, None, None);
    let (mut buffers, mut calls, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runtime_calls, mut graphs) = (Vec::new(), Vec::new());
    let (mut series, mut unknown_series) = (Vec::new(), 0);
    while done.is_none() {
        let tag = reader.take(4, "a frame's tag")?;
        let length = usize::try_from(reader.u64("a frame's length")?).unwrap_or(usize::MAX);
        let content =
            reader.take(length, &format!("the frame {:?}", String::from_utf8_lossy(tag)))?;
        if tag == INFO {
            info = Some(parse::<RecordingInfo>(content, "the machine's description")?);
        } else if tag == NAMES {
            names = Some(parse::<Names>(content, "the table of kernel names")?);
        } else if tag == RECORDS {
            buffers.push(content.to_vec());
        } else if tag == CALLS {
            let (head, entries) = read_thread(content, "a thread's call log")?;
            let entries = entries.into_iter().map(Call::from_words).collect();
            calls.push(ThreadCalls::new(head.thread_id, entries));
        } else if tag == RUNTIME_CALLS {
            let (head, entries) = read_thread(content, "a thread's log of runtime calls")?;
            let entries = entries.into_iter().map(Call::from_words).collect();
            runtime_calls.push(ThreadCalls::new(head.thread_id, entries));
        } else if tag == GRAPHS {
            let (head, entries) = read_thread(content, "a thread's graph log")?;
            let entries = entries.into_iter().map(GraphEvent::from_words).collect();
            graphs.push(ThreadGraphs::new(head.thread_id, entries));
        } else if tag == RANGES {
            let (head, entries) =
                read_thread::<{ ranges::WORDS }>(content, "a thread's range log")?;
            let plain = || (0..).map(Label::plain).take(head.names.len()).collect();
            let labels = head.labels.unwrap_or_else(plain);
            threads.push(ThreadRanges {
                // From the first one on, whose number comes later.
                number: head.number.map_or(threads.len() as u64, u64::from),
                thread_id: head.thread_id,
                thread_name: head.thread_name,
                texts: Texts { texts: head.names, labels },
                slots: slots(head.slots, entries.len(), "a thread's range log")?,
                entries: entries.into_iter().map(RangeEntry::from_words).collect(),
                events: vec![],
                event_slots: Slots::default(),
            });
        } else if tag == EVENTS {
            let (head, events) =
                read_thread::<{ ranges::EVENT_WORDS }>(content, "a thread's log of events")?;
            let Some(thread) = threads.last_mut() else {
                return Err(Error::format("a thread's log of events comes before its ranges"));
            };
            thread.event_slots = slots(head.slots, events.len(), "a thread's log of events")?;
            thread.events = events;
        } else if tag == SERIES {
            match read_series(content)? {
                Some(known) => series.push(Arc::new(known)),
                None => unknown_series += 1,
            }
        } else if tag == END {
            done = Some(parse::<Done>(content, "the closing frame")?);
        }
    }
    let missing = |what: &str| Error::format(format!("it has no {what}"));
    let info = info.ok_or_else(|| missing("description of the machine"))?;
    let names = names.ok_or_else(|| missing("table of kernel names"))?;
    let mut done = done.ok_or_else(|| missing("closing frame"))?;
    done.losses = done.losses.clamped();
    done.losses.irregular = done.losses.irregular.saturating_add(unknown_series);
    let logs = match (done.logs, done.epoch) {
        (Some((first, end)), _) => first..end,
        (None, Some(epoch)) => logs_of_epoch(epoch),
        (None, None) => return Err(missing("numbers of its logs of ranges")),
    };
    for thread in &mut threads {
        thread.number = thread.number.saturating_add(logs.start);
    }
    let windows_ns = done.windows_ns.unwrap_or_else(|| vec![done.window_ns]);
    let is_forward = |window: &(u64, u64)| window.0 <= window.1;
    if !windows_ns.iter().all(is_forward) || !windows_ns.is_sorted_by(|one, next| one.1 <= next.0) {
        return Err(Error::format("its times of collection overlap or are not in order"));
    }
    let reading = |(at_ns, offset_ns)| Reading { at_ns, offset_ns };
    let strides = names.strides.into_iter().map(|(kind, stride)| (ActivityKind(kind), stride));
    let keys = names.names.into_iter().map(|(key, name)| (NameKey(key), name));
    let data = names.data.into_iter().map(|(key, data)| (DataKey(key), data));
    let version = Version(info.cupti_version);
    // A setting that this version has no name for is left out: it says nothing about what was recorded.
    let setting = |&(id, before, asked, set): &(u32, u64, u64, u64)| {
        let attribute = Attribute::ALL.into_iter().find(|attribute| attribute.id() == id)?;
        Some(AttributeSetting::new(attribute, before, asked, set))
    };
    Ok(Recording {
        info,
        window_ns: done.window_ns,
        windows_ns,
        pending_from_ns: done.pending_from_ns,
        clocks: Clocks::new(done.clock_ns.into_iter().map(reading).collect()),
        logs,
        before_id: done.before_id,
        records: RecordBytes::from_parts(version, buffers, strides, keys).with_data(data),
        calls,
        runtime_calls,
        graphs,
        ranges: threads,
        attributes: done.attributes.iter().filter_map(setting).collect(),
        missing_kinds: done.missing_kinds.into_iter().map(ActivityKind).collect(),
        losses: done.losses,
        series,
    })
}
