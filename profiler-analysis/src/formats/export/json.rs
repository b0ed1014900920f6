//! Events in Chrome's trace-event JSON, one on each line.

use std::io::{self, Write};

use profiler_base::text::write_json_fragment;
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

use super::args::Args;
use super::timeline::{Place, Timeline};

/// Nanoseconds, written as microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Micros(pub(super) u64);

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1000.0)
    }
}

/// JSON with backslashes as `\u005c`: Perfetto's trace processor (v52) reads past the end of a
/// string that ends with `\\`.
struct Escapes;

impl Formatter for Escapes {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        write_json_fragment(writer, fragment)
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::ReverseSolidus => writer.write_all(b"\\u005c"),
            other => CompactFormatter.write_char_escape(writer, other),
        }
    }
}

/// One event. Fields that are `None` are not written.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Event<'a> {
    /// The phase: `X` a slice, `i` an instant, `C` a counter, `b` and `e` the ends of an
    /// overlapping slice, `s` and `f` the ends of an arrow, `M` a name.
    pub(super) ph: &'static str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cat: Option<&'static str>,
    pub(super) pid: u64,
    pub(super) tid: u64,
    pub(super) ts: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dur: Option<Micros>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u64>,
    /// `e`: the arrow ends at the enclosing slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bp: Option<&'static str>,
    /// `t`: an instant of a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) s: Option<&'static str>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    pub(super) args: Args<'a>,
}

impl<'a> Event<'a> {
    pub(super) fn new(ph: &'static str, name: &'a str, (pid, tid): (u64, u64), at: u64) -> Self {
        Self {
            ph,
            name,
            cat: None,
            pid,
            tid,
            ts: Micros(at),
            dur: None,
            id: None,
            bp: None,
            s: None,
            args: Args::default(),
        }
    }

    pub(super) fn category(mut self, category: &'static str) -> Self {
        self.cat = Some(category);
        self
    }

    pub(super) fn args(mut self, args: Args<'a>) -> Self {
        self.args = args;
        self
    }
}

/// The array of events in the file's object.
pub(super) struct Events<'w> {
    out: &'w mut dyn Write,
    is_first: bool,
}

impl<'w> Events<'w> {
    /// Starts the file. `head` contains the other members of the object as JSON.
    pub(super) fn begin(out: &'w mut dyn Write, head: &[(&str, String)]) -> io::Result<Self> {
        out.write_all(b"{")?;
        for (name, json) in head {
            writeln!(out, "\"{name}\":{json},")?;
        }
        out.write_all(b"\"traceEvents\":[")?;
        Ok(Self { out, is_first: true })
    }

    pub(super) fn add(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        let mut writer = serde_json::Serializer::with_formatter(&mut *self.out, Escapes);
        event.serialize(&mut writer).map_err(io::Error::from)
    }

    /// Writes the name and the position of a process or thread.
    pub(super) fn name(
        &mut self,
        of: Named,
        (pid, tid): (u64, u64),
        name: &str,
        place: u64,
    ) -> io::Result<()> {
        let (name_event, sort_event) = match of {
            Named::Process => ("process_name", "process_sort_index"),
            Named::Thread => ("thread_name", "thread_sort_index"),
        };
        let mut args = Args::default();
        args.add("name", name);
        self.add(&Event::new("M", name_event, (pid, tid), 0).args(args))?;
        let mut args = Args::default();
        args.add("sort_index", place);
        self.add(&Event::new("M", sort_event, (pid, tid), 0).args(args))
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Named {
    Process,
    Thread,
}

/// Above Linux's thread ids (`PID_MAX_LIMIT` is 2^22).
const FIRST_OWN: u64 = (1 << 22) + 1;

/// Ids for tracks that are not threads of the program.
#[derive(Debug)]
pub(super) struct TrackIds {
    next: u64,
    /// By track and lane.
    ids: FxHashMap<(Track, usize), u64>,
}

/// A thread, stream or group of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Track {
    /// Process and thread.
    Thread(u32, u32),
    Stream(Place),
    Counters(u32),
}

impl TrackIds {
    pub(super) fn new() -> Self {
        Self { next: FIRST_OWN, ids: FxHashMap::default() }
    }

    /// Reserves the numbers of streams that are unique on their device.
    pub(super) fn keep_streams(&mut self, timeline: &Timeline<'_>) {
        let mut taken = std::collections::BTreeSet::new();
        for place in timeline.streams.keys() {
            if taken.insert((place.device, place.stream)) {
                self.ids.insert((Track::Stream(*place), 0), place.stream.into());
            }
        }
    }

    /// The id of a lane of a track.
    pub(super) fn get(&mut self, track: Track, lane: usize) -> u64 {
        if let (Track::Thread(_, id), 0) = (track, lane) {
            return id.into();
        }
        *self.ids.entry((track, lane)).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        })
    }
}
