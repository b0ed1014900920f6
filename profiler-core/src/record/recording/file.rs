//! The frames of a recording: their kinds and contents. `frames` defines the container.
//!
//! Logs are binary; other frames are JSON. Readers skip unknown kinds.
//!
//! Format 3 starts with [`INFO`]. Other kinds follow in any order and number; the content of a
//! frame is added to the content of earlier frames. Long logs are split into frames of [`ENTRIES`]
//! entries. `write` writes these frames. `append` writes the frames of a running session: new
//! entries, open entries, and a [`STATE`] that covers them.
//!
//! Format 2 has one frame per log, the state in the closing frame, and the order of [`ORDER`]. In
//! format 1 an entry has the index of a name instead of a label, and the session was never paused.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::io::Read;
use std::sync::Arc;

use cupti::{
    ActivityKind, Attribute, AttributeSetting, Call, DataKey, GraphEvent, NameKey, Reading,
    RecordBytes, ThreadCalls, ThreadGraphs, Version,
};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use serde_core::ser::SerializeMap as _;
use serde_core::{Deserialize, Serialize, Serializer};

use super::check;
use super::frames::{END, FIRST_CHECKED, FrameReader, Kind as FrameKind, Next};
use super::logs::Logs;
use super::ranges::{Label, RangeEntry, Slots};
use super::segment::{self, ThreadRanges};
use super::tag::logs_of_epoch;
use super::{Clocks, DeviceInfo, Losses, Recording, RecordingInfo};
use crate::error::Error;
use crate::record::host_stacks::HostStacks;
use crate::record::instructions::{self, InstructionLog};
use crate::record::json::json_object;
use crate::record::series::{Kind, Series, Source};

/// The machine, the versions and the numbers of the logs.
pub(super) const INFO: FrameKind = *b"INFO";
/// The devices of the machine, if they were not known at first.
pub(super) const DEVICES: FrameKind = *b"DEVS";
/// Since format 3: windows, clocks, settings and losses.
pub(super) const STATE: FrameKind = *b"STAT";
pub(super) const NAMES: FrameKind = *b"NAME";
pub(super) const RECORDS: FrameKind = *b"RECS";
pub(super) const CALLS: FrameKind = *b"CALL";
pub(super) const RUNTIME_CALLS: FrameKind = *b"RTCL";
pub(super) const GRAPHS: FrameKind = *b"GRPH";
pub(super) const RANGES: FrameKind = *b"RNGE";
/// The second log of a thread; in formats 1 and 2, of the thread of the last ranges frame.
pub(super) const EVENTS: FrameKind = *b"EVNT";
/// Ranges and calls that had begun and not ended when the state after them was written. An entry of
/// the log replaces them. Readers that skip these frames miss open entries of truncated files.
pub(super) const OPEN_RANGES: FrameKind = *b"OPNR";
pub(super) const OPEN_CALLS: FrameKind = *b"OPNC";
pub(super) const OPEN_RUNTIME_CALLS: FrameKind = *b"OPRT";
/// Samples. Since format 2, in files of newer versions.
pub(super) const SERIES: FrameKind = *b"SERS";
/// The stacks to which calls refer. Since format 3, in files of newer versions; a later frame
/// replaces an earlier one.
pub(super) const HOST_STACKS: FrameKind = *b"STKS";
/// Instruction samples. Since format 3, in files of newer versions.
pub(super) const INSTRUCTIONS: FrameKind = *b"PCSM";

/// The frame order of formats 1 and 2. Ranges and events of a thread are adjacent.
const ORDER: [&[FrameKind]; 9] = [
    &[INFO],
    &[NAMES],
    &[RECORDS],
    &[CALLS],
    &[RUNTIME_CALLS],
    &[GRAPHS],
    &[RANGES, EVENTS],
    &[SERIES],
    &[END],
];

/// Upper bound of log entries in a frame: they fit a CPU cache, and truncation loses at most these.
pub(super) const ENTRIES: usize = 1 << 14;

/// The facts known when a recording begins.
pub(super) struct Opening {
    pub(super) info: RecordingInfo,
    /// The first log number and the one after the last. Since format 3.
    pub(super) logs: Option<(u64, u64)>,
    /// True if segments were appended while the session ran. A [`STATE`] follows the frames that it
    /// covers, and frames after the last one are ignored.
    pub(super) appended: bool,
}

impl Serialize for Opening {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = to.serialize_map(None)?;
        self.info.write_fields(&mut out)?;
        out.serialize_entry("logs", &self.logs)?;
        if self.appended {
            out.serialize_entry("appended", &true)?;
        }
        out.end()
    }
}

/// The devices that were found after the opening.
pub(super) struct Devices {
    pub(super) devices: Vec<DeviceInfo>,
}

json_object! { Devices { devices: required, } }

/// The part of an [`Opening`] that is not its info.
struct OpeningRest {
    logs: Option<(u64, u64)>,
    appended: bool,
}

json_object! { OpeningRest { logs: later, appended: optional, } }

impl Opening {
    pub(super) fn parse(content: &[u8]) -> Result<Self, Error> {
        let what = "the machine's description";
        let OpeningRest { logs, appended } = parse(content, what)?;
        Ok(Self { info: parse(content, what)?, logs, appended })
    }
}

/// CUPTI's record strides by kind, and the texts and bytes that records refer to, by key.
#[derive(Default)]
pub(super) struct Names {
    pub(super) strides: BTreeMap<u32, u32>,
    pub(super) names: BTreeMap<u64, String>,
    pub(super) data: BTreeMap<u64, Vec<u8>>,
}

json_object! { Names { strides: required, names: required, data: optional, } }

impl Names {
    /// Adds the names of a later frame. A key must keep its value.
    fn add(&mut self, later: Self) -> Result<(), Error> {
        fn add<K: Ord, V: PartialEq>(known: &mut BTreeMap<K, V>, later: BTreeMap<K, V>) -> bool {
            later.into_iter().all(|(key, value)| match known.get(&key) {
                Some(other) => *other == value,
                None => known.insert(key, value).is_none(),
            })
        }
        let is_same = add(&mut self.strides, later.strides)
            && add(&mut self.names, later.names)
            && add(&mut self.data, later.data);
        is_same.then_some(()).ok_or_else(|| {
            Error::format("its tables of names give one key two values: it is damaged")
        })
    }
}

json_object! {
    /// The head of a log's frame.
    #[derive(Default)]
    pub(super) struct ThreadHead {
        pub(super) thread_id: u32 = required,
        pub(super) thread_name: Option<String> = optional,
        /// Texts, appended to the texts of earlier frames.
        pub(super) names: Vec<String> = optional,
        /// Labels, appended to the labels of earlier frames. Format 1 has none: a label is a name.
        pub(super) labels: Option<Vec<Label>> = optional,
        /// The number relative to the first log. In formats 1 and 2 if it differs from the
        /// position.
        pub(super) number: Option<u32> = optional,
        /// The log slot of the first entry, if the slots have no gaps.
        pub(super) first_slot: Option<u64> = optional,
        /// The log slots of the entries, if they have gaps.
        pub(super) slots: Option<Vec<u64>> = optional,
    }
}

impl ThreadHead {
    pub(super) fn new(thread_id: u32) -> Self {
        Self { thread_id, ..Self::default() }
    }

    /// Sets the slots of the entries.
    pub(super) fn at(self, slots: Vec<u64>) -> Self {
        let first = slots.first().copied().unwrap_or(0);
        if slots.iter().copied().eq((first..).take(slots.len())) {
            Self { first_slot: Some(first).filter(|slot| *slot != 0), ..self }
        } else {
            Self { slots: Some(slots), ..self }
        }
    }
}

json_object! {
    /// Windows, clocks, settings and losses. In format 3, lists continue the lists of earlier
    /// states and the last numbers apply. A window that starts with the last one replaces it: it
    /// was open and continued.
    #[derive(Default)]
    pub(super) struct State {
        pub(super) window_ns: (u64, u64) = required,
        pub(super) windows_ns: Option<Vec<(u64, u64)>> = later,
        pub(super) pending_from_ns: Option<u64> = optional,
        /// The attribute's id, its previous, requested and actual value.
        pub(super) attributes: Vec<(u32, u64, u64, u64)> = later,
        pub(super) missing_kinds: Vec<u32> = later,
        /// Clock readings at start, stop and possibly between: the time, and the lead of CUPTI's
        /// clock.
        pub(super) clock_ns: Vec<(u64, i64)> = required,
        /// The number of the recording in its process, in formats 1 and 2.
        pub(super) epoch: Option<u32> = optional,
        pub(super) before_id: u32 = later,
        pub(super) begins_late: bool = later,
        pub(super) losses: Losses = required,
    }
}

impl State {
    /// Continues the lists of the state before it. The cost depends only on its own lists, not on
    /// the length of the earlier ones.
    fn after(mut self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        let mut windows_ns = before.windows_ns.unwrap_or_default();
        let next = self.windows_ns.unwrap_or_default();
        if let (Some(last), Some(first)) = (windows_ns.last(), next.first())
            && last.0 == first.0
        {
            windows_ns.pop();
        }
        windows_ns.extend(next);
        self.windows_ns = Some(windows_ns);
        self.clock_ns = continued(before.clock_ns, self.clock_ns);
        self.attributes = continued(before.attributes, self.attributes);
        self.missing_kinds = continued(before.missing_kinds, self.missing_kinds);
        self
    }
}

fn continued<T>(mut before: Vec<T>, next: Vec<T>) -> Vec<T> {
    before.extend(next);
    before
}

pub(super) fn parse<T: for<'de> Deserialize<'de>>(bytes: &[u8], what: &str) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::format(format!("{what} is damaged: {error}")))
}

/// Splits the content of a frame into its head and the rest.
fn read_head<'a, T: for<'de> Deserialize<'de>>(
    content: &'a [u8],
    what: &str,
) -> Result<(T, &'a [u8]), Error> {
    let too_short = || Error::format(format!("{what} is damaged: it is shorter than its head"));
    let (length, rest) = content.split_first_chunk().ok_or_else(too_short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (head, rest) = rest.split_at_checked(length).ok_or_else(too_short)?;
    Ok((parse(head, what)?, rest))
}

/// Splits the content of a frame into its head and its words as bytes.
fn read_headed<'a, T: for<'de> Deserialize<'de>>(
    content: &'a [u8],
    what: &str,
) -> Result<(T, &'a [[u8; 8]]), Error> {
    let (head, rest) = read_head(content, what)?;
    let (words, rest) = rest.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Error::format(format!("{what} is no whole number of entries")));
    }
    Ok((head, words))
}

/// Empty logs may be identical: threads may reuse an id.
fn is_empty_log(kind: FrameKind, content: &[u8]) -> bool {
    let is_log = [CALLS, RUNTIME_CALLS, GRAPHS].contains(&kind);
    is_log && read_headed::<ThreadHead>(content, "a log").is_ok_and(|(_, words)| words.is_empty())
}

/// `None` if a newer version wrote it with an unknown sampler or kind of values.
fn read_series(content: &[u8]) -> Result<Option<Series>, Error> {
    struct Column {
        kind: String,
    }
    struct Names {
        source: String,
        metrics: Vec<Column>,
    }
    json_object! { Column { kind: required, } }
    json_object! { Names { source: required, metrics: required, } }
    let what = "a series of samples";
    let (Names { source, metrics }, _) = read_headed(content, what)?;
    let is_known = |column: &Column| Kind::of_json(&column.kind).is_some();
    if Source::of_json(&source).is_none() || !metrics.iter().all(is_known) {
        return Ok(None);
    }
    let (head, words) = read_headed(content, what)?;
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    let series = Series::from_words(head, &words).ok_or_else(|| {
        Error::format(format!("{what} is damaged: its rows are not whole or not in order"))
    })?;
    Ok(Some(series))
}

fn read_instructions(content: &[u8]) -> Result<InstructionLog, Error> {
    let what = "a frame of instruction samples";
    let (head, rest) = read_head(content, what)?;
    InstructionLog::from_frame(head, rest)
        .ok_or_else(|| Error::format(format!("{what} is damaged: its rows are not whole")))
}

/// Reads the head and entries of a log frame.
pub(super) fn read_thread<'a, T, const WORDS: usize>(
    content: &'a [u8],
    what: &str,
    from_words: impl Fn([u64; WORDS]) -> T + 'a,
) -> Result<(ThreadHead, impl ExactSizeIterator<Item = T> + 'a), Error> {
    let (head, words) = read_headed(content, what)?;
    let (entries, odd) = words.as_chunks::<WORDS>();
    if !odd.is_empty() {
        return Err(Error::format(format!("{what} is no whole number of entries")));
    }
    let entries = entries.iter().map(move |entry| from_words(entry.map(u64::from_le_bytes)));
    Ok((head, entries))
}

/// Appends a frame's slots to the slots of earlier frames.
pub(super) fn add_slots(
    slots: &mut Slots,
    head: (Option<u64>, Option<Vec<u64>>),
    entries: usize,
    what: &str,
) -> Result<(), Error> {
    match head {
        (first, None) => (first.unwrap_or(0)..).take(entries).for_each(|slot| slots.push(slot)),
        (_, Some(list)) => {
            if list.len() != entries || !list.is_sorted_by(|one, next| one < next) {
                return Err(Error::format(format!("{what} lacks the positions of its entries")));
            }
            list.into_iter().for_each(|slot| slots.push(slot));
        }
    }
    Ok(())
}

/// The open ranges of a log by their slots.
type OpenRanges = BTreeMap<u64, RangeEntry>;

impl<F: cupti::Function> Logs<ThreadCalls<F>> {
    pub(super) fn add_calls(&mut self, content: &[u8], what: &str) -> Result<(), Error> {
        let (head, entries) = read_thread(content, what, Call::from_words)?;
        let id = head.thread_id;
        let thread = self.thread(id, || ThreadCalls::new(id, None, Vec::new()));
        thread.thread_name = head.thread_name.or(thread.thread_name.take());
        check::calls(&mut thread.calls, entries, what)
    }

    /// Adds the open calls that no entry replaced.
    fn add_open(&mut self, open: Self) {
        let key = |call: &Call<F>| (call.correlation_id, call.start_ns);
        for thread in open.threads {
            let mut calls: BTreeMap<_, _> =
                thread.calls.into_iter().map(|call| (key(&call), call)).collect();
            let (id, name) = (thread.thread_id, thread.thread_name);
            let known = &mut self.thread(id, || ThreadCalls::new(id, name, Vec::new())).calls;
            known.iter().for_each(|call| _ = calls.remove(&key(call)));
            known.extend(calls.into_values());
        }
    }
}

/// The frames read so far.
#[derive(Default)]
struct Contents {
    format: u8,
    opening: Option<Opening>,
    state: Option<State>,
    names: Option<Names>,
    buffers: Vec<Vec<u8>>,
    calls: Logs<ThreadCalls>,
    runtime_calls: Logs<ThreadCalls<cupti::RuntimeFunction>>,
    graphs: Logs<ThreadGraphs>,
    ranges: Logs<ThreadRanges>,
    /// Entries that were open when they were written; ranges by the number of their log.
    open_ranges: FxHashMap<u32, OpenRanges>,
    open_calls: Logs<ThreadCalls>,
    open_runtime_calls: Logs<ThreadCalls<cupti::RuntimeFunction>>,
    /// Frames of an appended file after its last state.
    uncovered: Vec<(FrameKind, Vec<u8>)>,
    instructions: instructions::Merger,
    series: Vec<Arc<Series>>,
    host_stacks: HostStacks,
    /// The number of series that this version cannot read.
    unknown_series: u64,
    /// Formats 1 and 2: the position of the last frame in [`ORDER`], and two hashes of each frame.
    place: usize,
    known: FxHashSet<(u64, u32)>,
}

impl Contents {
    fn add(&mut self, kind: FrameKind, content: &mut Vec<u8>) -> Result<(), Error> {
        self.check_order(kind, content)?;
        if self.opening.as_ref().is_some_and(|opening| opening.appended) {
            if kind != STATE && kind != END {
                self.uncovered.push((kind, std::mem::take(content)));
                return Ok(());
            }
            for (kind, mut content) in std::mem::take(&mut self.uncovered) {
                self.apply(kind, &mut content)?;
            }
        }
        self.apply(kind, content)
    }

    fn apply(&mut self, kind: FrameKind, content: &mut Vec<u8>) -> Result<(), Error> {
        match kind {
            INFO => self.opening = Some(Opening::parse(content)?),
            DEVICES => {
                let Devices { devices } = parse(content, "the list of devices")?;
                if let Some(opening) = &mut self.opening {
                    opening.info.devices = devices;
                }
            }
            STATE => self.state = Some(self.read_state(content, "a state")?),
            END if self.format < 3 => {
                self.state = Some(self.read_state(content, "the closing frame")?);
            }
            NAMES => {
                let names: Names = parse(content, "the table of kernel names")?;
                self.names.get_or_insert_default().add(names)?;
            }
            RECORDS => self.buffers.push(std::mem::take(content)),
            CALLS => self.calls.add_calls(content, "a thread's call log")?,
            OPEN_CALLS => self.open_calls.add_calls(content, "a thread's log of open calls")?,
            RUNTIME_CALLS => {
                self.runtime_calls.add_calls(content, "a thread's log of runtime calls")?;
            }
            OPEN_RUNTIME_CALLS => {
                let what = "a thread's log of open runtime calls";
                self.open_runtime_calls.add_calls(content, what)?;
            }
            GRAPHS => {
                let what = "a thread's graph log";
                let (head, entries) = read_thread(content, what, GraphEvent::from_words)?;
                let id = head.thread_id;
                let thread = self.graphs.thread(id, || ThreadGraphs::new(id, Vec::new()));
                check::graph_events(&mut thread.events, entries, what)?;
            }
            RANGES => self.add_ranges(content)?,
            OPEN_RANGES => self.add_open_ranges(content)?,
            EVENTS => self.add_events(content)?,
            SERIES => match read_series(content)? {
                Some(known) => self.series.push(Arc::new(known)),
                None => self.unknown_series += 1,
            },
            INSTRUCTIONS => {
                let log = read_instructions(content)?;
                self.instructions.add(&log, (0, u64::MAX));
            }
            HOST_STACKS => {
                self.host_stacks = parse(content, "the table of host stacks")?;
                self.host_stacks.check()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn check_order(&mut self, kind: FrameKind, content: &[u8]) -> Result<(), Error> {
        let name = String::from_utf8_lossy(&kind);
        let is_again = kind == INFO && self.opening.is_some();
        if is_again || self.format >= 3 && kind != INFO && self.opening.is_none() {
            return Err(Error::format(format!(
                "its frame {name:?} is at the wrong place: the description of the machine is the first frame and comes once"
            )));
        }
        let place = ORDER.iter().position(|kinds| kinds.contains(&kind));
        let Some(place) = place.filter(|_| self.format < 3) else { return Ok(()) };
        let hashes = (FxBuildHasher.hash_one((kind, content)), crc32fast::hash(content));
        let is_repeated = !is_empty_log(kind, content) && !self.known.insert(hashes);
        if place < self.place || is_repeated || kind == NAMES && self.names.is_some() {
            return Err(Error::format(format!(
                "its frame {name:?} is repeated or out of order: it is damaged; get another copy of the file"
            )));
        }
        self.place = place;
        Ok(())
    }

    fn read_state(&mut self, content: &[u8], what: &str) -> Result<State, Error> {
        let state: State = parse(content, what)?;
        Ok(state.after(self.state.take()))
    }

    fn add_ranges(&mut self, content: &[u8]) -> Result<(), Error> {
        let what = "a thread's range log";
        let (mut head, entries) = read_thread(content, what, RangeEntry::from_words)?;
        let is_old = self.format < 3;
        let plain = |names: usize| (0..).map(Label::plain).take(names).collect();
        let labels = match head.labels.take() {
            None if is_old => plain(head.names.len()),
            labels => labels.unwrap_or_default(),
        };
        // CAST: a file has fewer threads.
        let place = self.ranges.threads.len() as u32;
        let number = match head.number {
            Some(number) => number,
            None if is_old => place,
            None => return Err(Error::format(format!("{what} does not have its number"))),
        };
        if is_old && self.ranges.places.contains_key(&number) {
            return Err(Error::format(format!("{what} is repeated: the file is damaged")));
        }
        // The number of the first log is added at the end; only then is it known for older formats
        // too.
        let new = || ThreadRanges {
            number: number.into(),
            thread_id: head.thread_id,
            ..Default::default()
        };
        let thread = self.ranges.thread(number, new);
        if thread.thread_id != head.thread_id {
            return Err(Error::format(format!("{what} belongs to two threads: it is damaged")));
        }
        thread.thread_name = head.thread_name.or(thread.thread_name.take());
        thread.texts.texts.append(&mut head.names);
        thread.texts.labels.extend(labels);
        add_slots(&mut thread.slots, (head.first_slot, head.slots), entries.len(), what)?;
        thread.entries.extend(entries);
        Ok(())
    }

    /// The log that earlier frames began.
    fn known_log(&mut self, head: &ThreadHead, what: &str) -> Result<&mut ThreadRanges, Error> {
        let place = match head.number {
            None if self.format < 3 => self.ranges.threads.len().checked_sub(1),
            None => None,
            Some(number) => self.ranges.places.get(&number).copied(),
        };
        let thread = place.and_then(|place| self.ranges.threads.get_mut(place));
        let thread = thread.filter(|thread| thread.thread_id == head.thread_id);
        thread.ok_or_else(|| Error::format(format!("{what} comes before its ranges")))
    }

    fn add_open_ranges(&mut self, content: &[u8]) -> Result<(), Error> {
        let what = "a thread's log of open ranges";
        let (head, entries) = read_thread(content, what, RangeEntry::from_words)?;
        self.known_log(&head, what)?;
        let mut slots = Slots::default();
        add_slots(&mut slots, (head.first_slot, head.slots), entries.len(), what)?;
        let known = self.open_ranges.entry(head.number.unwrap_or_default()).or_default();
        known.extend(slots.iter().zip(entries));
        Ok(())
    }

    fn add_events(&mut self, content: &[u8]) -> Result<(), Error> {
        let what = "a thread's log of events";
        let (head, events) = read_thread(content, what, |words| words)?;
        let is_old = self.format < 3;
        let thread = self.known_log(&head, what)?;
        if is_old && !thread.events.is_empty() {
            return Err(Error::format(format!("{what} is repeated: the file is damaged")));
        }
        add_slots(&mut thread.event_slots, (head.first_slot, head.slots), events.len(), what)?;
        thread.events.extend(events);
        Ok(())
    }

    /// Adds the open ranges and calls that no entry replaced.
    fn add_open(&mut self) {
        for (number, mut open) in std::mem::take(&mut self.open_ranges) {
            let Some(place) = self.ranges.places.get(&number) else { continue };
            let thread = &mut self.ranges.threads[*place];
            thread.slots.iter().for_each(|slot| _ = open.remove(&slot));
            for (slot, entry) in open {
                thread.slots.push(slot);
                thread.entries.push(entry);
            }
        }
        self.calls.add_open(std::mem::take(&mut self.open_calls));
        self.runtime_calls.add_open(std::mem::take(&mut self.open_runtime_calls));
    }

    /// Assembles the recording.
    fn finish(mut self, is_truncated: bool) -> Result<Recording, Error> {
        self.add_open();
        let missing = |what: &str| Error::format(format!("it has no {what}"));
        let opening = self.opening.ok_or_else(|| match is_truncated {
            true => {
                Error::format("it was cut short before its first frame: there is nothing to read")
            }
            false => missing("description of the machine"),
        })?;
        let names = match self.names {
            None if !is_truncated => return Err(missing("table of kernel names")),
            names => names.unwrap_or_default(),
        };
        let state = match self.state {
            None if is_truncated => State::default(),
            state => state.ok_or_else(|| missing("state"))?,
        };
        let mut losses = state.losses.clamped();
        losses.irregular += self.unknown_series;
        let reading = |(at_ns, offset_ns)| Reading { at_ns, offset_ns };
        let strides = names.strides.into_iter().map(|(kind, stride)| (ActivityKind(kind), stride));
        let keys = names.names.into_iter().map(|(key, name)| (NameKey(key), name));
        let data = names.data.into_iter().map(|(key, data)| (DataKey(key), data));
        let version = Version(opening.info.cupti_version);
        // A setting without a name in this version is omitted: it does not affect the recorded
        // data.
        let setting = |&(id, before, asked, set): &(u32, u64, u64, u64)| {
            let attribute = Attribute::ALL.into_iter().find(|attribute| attribute.id() == id)?;
            Some(AttributeSetting::new(attribute, before, asked, set))
        };
        let logs = match (opening.logs, state.epoch) {
            (Some((first, end)), _) => first..end,
            (None, Some(epoch)) => logs_of_epoch(epoch),
            (None, None) => return Err(missing("numbers of its logs of ranges")),
        };
        let mut ranges = self.ranges.threads;
        for thread in &mut ranges {
            thread.number = thread.number.saturating_add(logs.start);
        }
        let mut recording = Recording {
            info: opening.info,
            window_ns: state.window_ns,
            windows_ns: state.windows_ns.unwrap_or_else(|| vec![state.window_ns]),
            pending_from_ns: state.pending_from_ns,
            clocks: Clocks::new(state.clock_ns.into_iter().map(reading).collect()),
            logs: logs.clone(),
            before_id: state.before_id,
            begins_late: state.begins_late,
            records: RecordBytes::from_parts(version, self.buffers, strides, keys).with_data(data),
            calls: self.calls.threads,
            runtime_calls: self.runtime_calls.threads,
            graphs: self.graphs.threads,
            ranges,
            attributes: state.attributes.iter().filter_map(setting).collect(),
            missing_kinds: state.missing_kinds.into_iter().map(ActivityKind).collect(),
            losses,
            instructions: self.instructions.finish().map(Arc::new),
            series: self.series,
            host_stacks: Arc::new(self.host_stacks),
            is_truncated,
            has_checksums: self.format >= FIRST_CHECKED,
        };
        check::sort(&mut recording);
        if opening.appended {
            segment::finish_appended(&mut recording);
        }
        check::recording(&recording)?;
        Ok(recording)
    }
}

/// Reads a recording of any format, frame by frame.
pub(super) fn read(source: impl Read, max_bytes: u64) -> Result<Recording, Error> {
    let mut frames = FrameReader::begin(source, max_bytes)?;
    let mut contents = Contents { format: frames.format(), ..Contents::default() };
    let mut content = Vec::new();
    loop {
        match frames.next(&mut content)? {
            Next::Truncated => return contents.finish(true),
            Next::Frame(kind) => {
                contents.add(kind, &mut content)?;
                if kind == END {
                    break;
                }
            }
        }
    }
    frames.finish()?;
    contents.finish(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_continues_the_lists_of_the_one_before_without_a_copy() {
        let mut before = State { clock_ns: Vec::with_capacity(8), ..State::default() };
        before.clock_ns.extend([(1, 0), (2, 0)]);
        before.attributes = Vec::with_capacity(8);
        before.attributes.push((1, 0, 0, 0));
        before.missing_kinds = Vec::with_capacity(8);
        before.missing_kinds.push(7);
        before.windows_ns = Some(Vec::with_capacity(8));
        before.windows_ns.get_or_insert_default().extend([(1, 2), (3, 4)]);
        let places = |state: &State| {
            let windows_ns = state.windows_ns.as_ref().map(|windows_ns| windows_ns.as_ptr());
            let (attributes, kinds) = (state.attributes.as_ptr(), state.missing_kinds.as_ptr());
            (state.clock_ns.as_ptr(), attributes, kinds, windows_ns)
        };
        let known = places(&before);
        let next = State {
            clock_ns: vec![(3, 0)],
            attributes: vec![(2, 0, 0, 0)],
            missing_kinds: vec![8],
            windows_ns: Some(vec![(3, 9)]),
            ..State::default()
        };
        let joined = next.after(Some(before));
        assert_eq!(
            places(&joined),
            known,
            "earlier lists were copied: many states take quadratic time"
        );
        assert_eq!(joined.clock_ns, [(1, 0), (2, 0), (3, 0)]);
        assert_eq!(joined.attributes, [(1, 0, 0, 0), (2, 0, 0, 0)]);
        assert_eq!(joined.missing_kinds, [7, 8]);
        assert_eq!(joined.windows_ns, Some(vec![(1, 2), (3, 9)]), "an open window goes on");
    }
}
