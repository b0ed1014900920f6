//! Chrome's trace-event format for `chrome://tracing`, Perfetto, speedscope and scripts.

use std::io::{self, Write};

use profiler_base::text;

use super::HOST;
use super::args::{self, Args};
use super::counters;
use crate::counter_track::{self, Samples};
use super::json::{Event, Events, Named, Track, TrackIds};
use super::lanes::APART;
use super::format::Export;
use super::timeline::Timeline;
use super::trace_events::{self, Dialect, SliceText};

struct Chrome<'a> {
    timeline: &'a Timeline<'a>,
}

impl Dialect for Chrome<'_> {
    const ARROW: &'static str = "launch";
    const DEPTH: usize = APART;

    fn pid(&self, device: u32) -> u64 {
        HOST + 1 + u64::from(device)
    }

    fn range(&self, row: usize) -> SliceText<'_> {
        let range = &self.timeline.ranges[row];
        SliceText { name: range.range.name().into(), category: "range", args: args::of_range(range) }
    }

    fn call(&self, row: usize) -> SliceText<'_> {
        let call = &self.timeline.calls[row];
        SliceText { name: call.call.name().into(), category: "api", args: args::of_call(self.timeline, call) }
    }

    fn operation(&self, row: usize) -> SliceText<'_> {
        let operation = &self.timeline.operations[row];
        SliceText {
            name: self.timeline.name(operation).into(),
            category: operation.category(),
            args: args::of_operation(self.timeline, operation),
        }
    }
}

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let most_samples = export.samples;
    let head = [
        ("displayTimeUnit", "\"ns\"".to_owned()),
        ("otherData", text::json(&args::of_recording(timeline, most_samples))?),
    ];
    let mut events = Events::begin(out, &head)?;
    let (mut ids, chrome) = (TrackIds::new(), Chrome { timeline });
    trace_events::write(&mut events, timeline, &mut ids, &chrome)?;
    for (place, samples) in counters::queued(timeline) {
        let stream = timeline.stream_name(place);
        let name = format!("{stream}: operations submitted and not finished");
        let track = (chrome.pid(place.device), ids.get(Track::Counters(place.device), 0));
        counter(&mut events, &name, "operations", track, &samples)?;
    }
    for (device, samples) in counters::copy_bandwidth(timeline) {
        let track = (chrome.pid(device), ids.get(Track::Counters(device), 0));
        counter(&mut events, "copy bandwidth", "bytes a second", track, &samples)?;
    }
    for (device, samples) in counter_track::memory(timeline.profile) {
        let track = (chrome.pid(device), ids.get(Track::Counters(device), 0));
        let name = "device memory allocated since the start";
        counter(&mut events, name, "bytes", track, &samples)?;
    }
    trace_events::sampled(&mut events, timeline, &mut ids, &chrome, most_samples)?;
    events.finish()
}

fn counter(
    events: &mut Events<'_>,
    name: &str,
    unit: &'static str,
    (pid, tid): (u64, u64),
    samples: &Samples,
) -> io::Result<()> {
    events.name(Named::Thread, (pid, tid), "counters", tid)?;
    for &(at, value) in samples {
        let mut args = Args::default();
        args.add(unit, value);
        events.add(&Event::new("C", name, (pid, tid), at).args(args))?;
    }
    Ok(())
}
