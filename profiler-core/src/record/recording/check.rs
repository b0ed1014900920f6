//! Checks of a recording read from a file: the orders, indices and identities that the join relies
//! on.
//!
//! Checksums detect changed bytes; these checks reject content that no recorder writes. Formats 1
//! and 2 have no checksums. Missing entries are not checked here: the join counts them in `Health`.

use cupti::{Call, Function, GraphEvent};
use profiler_base::order;
use rustc_hash::FxHashMap;

use super::Recording;
use super::logs::sort_calls;
use super::ranges::{Detail, Event, RangeTag, Slots, Value};
use super::segment::ThreadRanges;
use super::tag::{epoch_of, in_epoch};
use crate::error::Error;

fn damaged(what: &str, why: &str) -> Error {
    Error::format(format!("{what} is damaged: {why}; get another copy of the file"))
}

/// Appends the calls of a frame. They must be in start order.
pub(super) fn calls<F: Function>(
    known: &mut Vec<Call<F>>,
    entries: impl ExactSizeIterator<Item = Call<F>>,
    what: &str,
) -> Result<(), Error> {
    let (mut last_ns, mut is_ordered) = (0, true);
    known.extend(entries.inspect(|call| {
        is_ordered &=
            last_ns <= call.start_ns && call.end_ns.is_none_or(|end| call.start_ns <= end);
        last_ns = call.start_ns;
    }));
    is_ordered.then_some(()).ok_or_else(|| damaged(what, "its calls are not in order"))
}

/// Appends the events of a frame. They must be in time order.
pub(super) fn graph_events(
    known: &mut Vec<GraphEvent>,
    entries: impl ExactSizeIterator<Item = GraphEvent>,
    what: &str,
) -> Result<(), Error> {
    let from = known.len();
    known.extend(entries);
    let is_ordered = known[from..].is_sorted_by_key(|event| event.at_ns);
    is_ordered.then_some(()).ok_or_else(|| damaged(what, "its events are not in order"))
}

/// Sorts logs whose frames were written when calls returned and ranges ended.
pub(super) fn sort(recording: &mut Recording) {
    fn sort_slots<T>(rows: &mut Vec<T>, slots: &mut Slots) {
        if !slots.are_rows() && !slots.iter().is_sorted() {
            let mut pairs: Vec<(u64, T)> = slots.iter().zip(rows.drain(..)).collect();
            order::sort_by_number(&mut pairs, |(slot, _)| *slot);
            *slots = pairs.iter().map(|(slot, _)| *slot).collect();
            rows.extend(pairs.into_iter().map(|(_, row)| row));
        }
    }
    sort_calls(&mut recording.calls);
    sort_calls(&mut recording.runtime_calls);
    for thread in &mut recording.graphs {
        order::sort_by_number(&mut thread.events, |event| event.at_ns);
    }
    for thread in &mut recording.ranges {
        sort_slots(&mut thread.entries, &mut thread.slots);
        sort_slots(&mut thread.events, &mut thread.event_slots);
    }
}

/// Checks a recording whose logs are sorted.
pub(super) fn recording(recording: &Recording) -> Result<(), Error> {
    let windows_ns = &recording.windows_ns;
    let is_forward = |window: &(u64, u64)| window.0 <= window.1;
    if !is_forward(&recording.window_ns)
        || !windows_ns.iter().all(is_forward)
        || !windows_ns.is_sorted_by(|one, next| one.1 <= next.0)
    {
        return Err(Error::format("its times of collection overlap or are not in order"));
    }
    if !recording.clocks.readings().is_sorted_by_key(|reading| reading.at_ns) {
        return Err(Error::format("its readings of the clocks are not in order"));
    }
    identities(recording)?;
    for thread in &recording.ranges {
        let what = format!("the range log of thread {}", thread.thread_id);
        let checked = ranges(thread).and_then(|()| events(thread, &recording.logs));
        checked.map_err(|why| damaged(&what, why))?;
    }
    Ok(())
}

fn is_below(index: u32, length: usize) -> bool {
    (index as usize) < length
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn ranges(thread: &ThreadRanges) -> Result<(), &'static str> {
    let texts = thread.texts.texts.len();
    let is_text = |index: Option<u32>| index.is_none_or(|index| is_below(index, texts));
    let labels = &thread.texts.labels;
    for label in labels {
        let has_texts = [Some(label.name), label.domain, label.category].into_iter().all(is_text);
        ensure(has_texts, "a label refers to a text that is not there")?;
    }
    let is_unique =
        |slots: &Slots| slots.are_rows() || slots.iter().is_sorted_by(|one, next| one < next);
    ensure(is_unique(&thread.slots), "it has a range twice")?;
    ensure(is_unique(&thread.event_slots), "it has an event twice")?;
    let mut last_ns = 0;
    for (slot, entry) in thread.slots.iter().zip(&thread.entries) {
        let is_forward = entry.end_ns().is_none_or(|end| entry.start_ns() <= end);
        ensure(last_ns <= entry.start_ns() && is_forward, "its ranges are not in order")?;
        ensure(entry.label() < labels.len() as u64, "a range has a label that is not there")?;
        ensure(entry.parent().is_none_or(|parent| parent < slot), "a range lies in a later one")?;
        last_ns = entry.start_ns();
    }
    Ok(())
}

fn events(thread: &ThreadRanges, logs: &std::ops::Range<u64>) -> Result<(), &'static str> {
    let (texts, labels) = (thread.texts.texts.len(), thread.texts.labels.len());
    let is_own = |tag: RangeTag| logs.contains(&tag.log());
    for words in &thread.events {
        let (is_right, otherwise) = match Event::from_words(*words) {
            Event::Mark { label, .. } | Event::ProcessStart { label, .. } => {
                (is_below(label, labels), "a mark has a label that is not there")
            }
            Event::ProcessEnd { of, .. } | Event::ProcessFields { of, .. } => {
                (is_own(of), "a range is of another recording")
            }
            Event::Joined { first, second } => {
                (is_own(first) && is_own(second), "a context is of another recording")
            }
            Event::Detail { detail, .. } => match detail {
                Detail::Within(tag) | Detail::Handed(tag) | Detail::Member(tag) => {
                    (is_own(tag), "a detail is of another recording")
                }
                Detail::Field { name, unit, value } => {
                    let has_value = match value {
                        Value::Text(index) => is_below(index, texts),
                        _ => true,
                    };
                    let has_texts = is_below(name, texts) && is_below(unit, texts) && has_value;
                    (has_texts, "a field refers to a text that is not there")
                }
                Detail::Payload(_) | Detail::Piece(_) => (true, ""),
            },
            Event::Unknown => (true, ""),
        };
        ensure(is_right, otherwise)?;
    }
    Ok(())
}

/// Checks that log numbers are unique and belong to the recording. A call may refer to a range of
/// an earlier recording if its thread has begun no range since.
fn identities(recording: &Recording) -> Result<(), Error> {
    let logs = &recording.logs;
    let mut threads: FxHashMap<u64, &ThreadRanges> = FxHashMap::default();
    for thread in &recording.ranges {
        let fits = logs.contains(&thread.number) && RangeTag::new(thread.number, 0).is_some();
        if !fits || threads.insert(thread.number, thread).is_some() {
            let what = format!("the range log of thread {}", thread.thread_id);
            return Err(damaged(&what, "its number is that of another thread, or none"));
        }
    }
    let Some(epoch) = epoch_of(logs) else { return Ok(()) };
    // A thread inside a range of this recording cannot be in one of an earlier recording.
    let contradicts = |thread_id: u32, call: &Call| {
        let tag = RangeTag(call.word);
        if call.word == 0 || logs.contains(&tag.log()) {
            return false;
        }
        let Some(thread) = threads.get(&in_epoch(epoch, tag.log())) else { return false };
        let entry = thread.slots.row(tag.slot()).and_then(|row| thread.entries.get(row));
        thread.thread_id == thread_id
            && entry.is_some_and(|entry| {
                let is_over = entry.end_ns().is_some_and(|end| end <= call.start_ns);
                entry.start_ns() <= call.start_ns && !is_over
            })
    };
    for thread in &recording.calls {
        if thread.calls.iter().any(|call| contradicts(thread.thread_id, call)) {
            return Err(Error::format(format!(
                "its epoch is {epoch}, and calls of thread {} lie in ranges of another epoch: it is damaged; get another \
                 copy of the file",
                thread.thread_id
            )));
        }
    }
    Ok(())
}
