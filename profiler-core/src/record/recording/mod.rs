//! The recording: CUPTI's records, driver calls and ranges as append-only logs, with all data to
//! read them anywhere. Live runs, replays and tests all use it; nothing in it is joined yet.

pub(crate) mod append;
mod check;
mod entries;
mod file;
mod frames;
mod info;
mod logs;
mod other_events;
pub(crate) mod ranges;
pub(crate) mod segment;
mod slots;
pub(crate) mod tag;
pub(crate) mod tail;
mod text_index;
mod write;

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cupti::{
    ActivityKind, AttributeSetting, Clock, Reading, RecordBytes, RuntimeFunction, ThreadCalls,
    ThreadGraphs,
};
use profiler_base::{getters, replace, setters};

use crate::error::Error;
use crate::record::host_stacks::HostStacks;
use crate::record::instructions::InstructionLog;
use crate::record::json::json_object;
use crate::record::series::Series;
pub use info::{DeviceInfo, RecordingInfo};
use segment::ThreadRanges;

/// Buffer size for frame heads and smaller contents.
const WRITE_BYTES: usize = 64 << 10;

/// The raw logs of one session, whole or up to a snapshot.
/// [`Profile::from_recording`](crate::Profile::from_recording) joins them.
///
/// ```
/// use profiler_core::{Profile, Recording};
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let recording = Recording::load(file)?;
/// println!("{}, truncated: {}", recording.info(), recording.is_truncated());
/// let profile = Profile::from_recording(recording);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub(crate) info: RecordingInfo,
    /// The interval in which the session was on, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) window_ns: (u64, u64),
    /// The parts of `window_ns` in which the session was on and not paused. Sorted and disjoint.
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: calls that returned after this time may still get records.
    pub(crate) pending_from_ns: Option<u64>,
    pub(crate) clocks: Clocks,
    /// The log numbers of its threads, contained in the tags of its calls.
    pub(crate) logs: Range<u64>,
    /// Records without a call and with an id up to this belong to calls before the retained ones.
    pub(crate) before_id: u32,
    /// True if earlier ranges of the collection are missing: their children have no parent.
    pub(crate) begins_late: bool,
    pub(crate) records: RecordBytes,
    pub(crate) calls: Vec<ThreadCalls>,
    pub(crate) runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    pub(crate) ranges: Vec<ThreadRanges>,
    pub(crate) attributes: Vec<AttributeSetting>,
    /// Requested kinds that the library does not have.
    pub(crate) missing_kinds: Vec<ActivityKind>,
    pub(crate) losses: Losses,
    /// The instruction samples, if the session asked for them.
    pub(crate) instructions: Option<Arc<InstructionLog>>,
    /// Samples taken during the session.
    pub(crate) series: Vec<Arc<Series>>,
    /// The stacks to which its calls refer.
    pub(crate) host_stacks: Arc<HostStacks>,
    /// True if the file ended before the recording did.
    pub(crate) is_truncated: bool,
    /// False if the file was of format 1 or 2.
    pub(crate) has_checksums: bool,
}

/// Clock readings that map CUPTI's timestamps to `CLOCK_MONOTONIC`: sorted, at least two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clocks {
    readings: Vec<Reading>,
    /// The readings after which CUPTI's clock was set before the next one, the first
    /// [`MOST_STEPS`].
    steps: Vec<usize>,
}

/// A damaged file may have any number of steps, and each record is compared with them.
const MOST_STEPS: usize = 16;

impl Clocks {
    pub(crate) fn new(readings: Vec<Reading>) -> Self {
        let mut clocks = Self { readings, steps: Vec::new() };
        let pairs = 0..clocks.readings.len().saturating_sub(1);
        let steps = pairs.filter(|first| clocks.between(*first).step_ns() != 0);
        clocks.steps = steps.take(MOST_STEPS).collect();
        clocks
    }

    fn readings(&self) -> &[Reading] {
        &self.readings
    }

    fn between(&self, first: usize) -> Clock {
        let none = Reading { at_ns: 0, offset_ns: 0 };
        let at =
            |at: usize| self.readings.get(at).or(self.readings.last()).copied().unwrap_or(none);
        Clock { start: at(first), stop: at(first + 1) }
    }

    /// The only pair of readings, if there are no others.
    pub(crate) fn only(&self) -> Option<Clock> {
        (self.readings.len() <= 2).then(|| self.between(0))
    }

    /// Converts a CUPTI timestamp to `CLOCK_MONOTONIC`.
    #[inline]
    pub(crate) fn monotonic_ns(&self, cupti_ns: u64) -> u64 {
        if !self.steps.is_empty()
            && let Some(at_ns) = self.beside_steps(cupti_ns)
        {
            return at_ns;
        }
        self.convert(0, self.readings.len(), cupti_ns)
    }

    /// Converts by the readings from `begin` to before `end`.
    #[inline]
    fn convert(&self, begin: usize, end: usize, cupti_ns: u64) -> u64 {
        let begun = match end - begin {
            0..=2 => 1,
            _ => self.readings[begin..end].partition_point(|reading| {
                cupti_ns.wrapping_add_signed(reading.offset_ns.wrapping_neg()) >= reading.at_ns
            }),
        };
        let last = (end - begin).saturating_sub(2);
        self.between(begin + begun.saturating_sub(1).min(last)).monotonic_ns(cupti_ns)
    }

    /// Converts a timestamp if the clock was set: the readings around the timestamp apply. `None`
    /// if there are none.
    #[cold]
    fn beside_steps(&self, cupti_ns: u64) -> Option<u64> {
        let lies = |first: usize, last: usize| {
            let at_ns = self.convert(first, last + 1, cupti_ns);
            let between = self.readings[first].at_ns..=self.readings[last].at_ns;
            between.contains(&at_ns).then_some(at_ns)
        };
        let begins = [0].into_iter().chain(self.steps.iter().map(|step| step + 1));
        let ends = self.steps.iter().copied().chain([self.readings.len() - 1]);
        let runs = begins.zip(ends).filter(|(first, last)| first < last);
        let around_steps = self.steps.iter().map(|step| (*step, step + 1));
        runs.chain(around_steps).find_map(|(first, last)| lies(first, last))
    }

    /// The largest step of CUPTI's clock between two readings.
    pub(crate) fn step_ns(&self) -> u64 {
        let steps = self.steps.iter().map(|first| self.between(*first).step_ns());
        steps.max().unwrap_or(0)
    }
}

/// Declares [`Losses`] from the names of its counts: the counts of `cupti::Losses`, and our own.
macro_rules! losses {
    (
        cupti: $($cupti:ident)+; cupti, later: $($cupti_later:ident)+;
        own: $($own:ident)+; own, later: $($own_later:ident)+
    ) => {
        /// Counts of lost data, for the health report. The first files lack counts that were added
        /// later.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(crate) struct Losses {
            $(pub(crate) $cupti: u64,)+
            $(pub(crate) $cupti_later: u64,)+
            $(pub(crate) $own: u64,)+
            $(pub(crate) $own_later: u64,)+
        }

        json_object! {
            Losses {
                $($cupti: required,)+
                $($cupti_later: later,)+
                $($own: required,)+
                $($own_later: later,)+
            }
        }

        impl Losses {
            pub(crate) fn from_cupti(losses: &cupti::Losses) -> Self {
                Self {
                    $($cupti: losses.$cupti,)+
                    $($cupti_later: losses.$cupti_later,)+
                    ..Self::default()
                }
            }

            fn counts(&mut self) -> impl Iterator<Item = &mut u64> {
                [
                    $(&mut self.$cupti,)+ $(&mut self.$cupti_later,)+
                    $(&mut self.$own,)+ $(&mut self.$own_later,)+
                ]
                .into_iter()
            }
        }
    };
}

losses! {
    cupti:
        dropped_by_cupti over_memory_limit irregular unreadable_bytes panics unfinished_buffers
        buffers pool_misses;
    cupti, later:
        refused_buffers refused_records before_switch unlogged_calls mismatched_buffers;
    own: ranges;
    own, later:
        earlier_contexts failed_threads forgotten_lanes unused_span_sites unknown_span_entries
        disabled_span_levels layers_without_spans unwritten_entries
}

impl Losses {
    /// Limits the counts of a file, which may be damaged, so that sums do not overflow.
    pub(crate) fn clamped(mut self) -> Self {
        self.counts().for_each(|count| *count = (*count).min(1 << 48));
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.counts().zip(other.counts()) {
            *sum = sum.saturating_add(*count);
        }
    }
}

impl Recording {
    /// The time in which the session was on.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.window_ns.1.saturating_sub(self.window_ns.0))
    }

    /// The number of kernels, copies and memsets.
    pub(crate) fn operations(&self) -> u64 {
        let ids = self.records.iter().filter_map(|record| segment::operation_id(&record));
        ids.count() as u64
    }

    /// A time of a record (CUPTI's clock) in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn monotonic_ns(&self, record_ns: u64) -> u64 {
        self.clocks.monotonic_ns(record_ns)
    }

    getters! {
        /// The machine, versions and time of the recording.
        info: &RecordingInfo = info;
        /// The times in which the session was on and not paused, in ns of `CLOCK_MONOTONIC`. Sorted
        /// and disjoint.
        windows_ns: &[(u64, u64)] = windows_ns;
        /// True if it is a snapshot of a running session, or its file while it ran.
        is_snapshot: bool = pending_from_ns.is_some();
        /// True if its file ended early: the writer was killed, the disk was full, or writing
        /// continues. [`Losses::truncated`](crate::profile::Losses::truncated) counts it.
        is_truncated: bool = is_truncated;
        /// False if it was read from a file of format 1 or 2, in which damage may go unnoticed.
        /// [`Facts::unchecked_recordings`](crate::profile::Facts::unchecked_recordings) counts it;
        /// [`save`](Self::save) writes checksums.
        has_checksums: bool = has_checksums;
        /// The runtime API calls by thread, if they were logged.
        runtime_calls: &[ThreadCalls<RuntimeFunction>] = runtime_calls;
        /// The events of CUDA graphs by thread, if they were logged.
        graphs: &[ThreadGraphs] = graphs;
        /// The CUPTI attributes set by the session.
        attributes: &[AttributeSetting] = attributes;
        /// Requested kinds of records that the library does not have.
        missing_kinds: &[ActivityKind] = missing_kinds;
        /// CUPTI's activity records as bytes.
        records: &RecordBytes = records;
        /// The logged driver calls by thread.
        calls: &[ThreadCalls] = calls;
        /// The samples taken during the session.
        series: &[Arc<Series>] = series;
    }

    setters! {
        /// Adds a series of another sampler or of a program. It must use the clock of
        /// [`windows_ns`](Self::windows_ns).
        #[must_use]
        with_series(series: Series) series += Arc::new(series);
        /// Replaces the machine, versions and time of the recording.
        #[must_use]
        with_info(info: RecordingInfo) info = info;
    }

    /// Writes it to a file. An existing file is replaced only once the new one is complete, and
    /// keeps its permissions. Links are followed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let content = |file: &fs::File| self.write_to(BufWriter::with_capacity(WRITE_BYTES, file));
        replace::write(path, content).map_err(|source| Error::io("write", path, source))
    }

    /// Writes it to a file, a pipe or a socket in many small writes: pass a buffered writer.
    ///
    /// # Errors
    /// Errors of the writer. The output is then a truncated recording.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        write::write(self, &mut out)?;
        out.flush()
    }

    /// The maximum size of a file that [`load`](Self::load) reads: 4 GiB, some 14 million kernels
    /// with their launches.
    pub const MAX_BYTES: u64 = 4 << 30;

    /// Reads a file that [`save`](Self::save) wrote, of at most [`MAX_BYTES`](Self::MAX_BYTES).
    ///
    /// A truncated file is not an error: see [`is_truncated`](Self::is_truncated).
    ///
    /// # Errors
    /// The file cannot be read; [`is_format`](Error::is_format) if damaged, too large or too new.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::load_up_to(path, Self::MAX_BYTES)
    }

    /// Same as [`load`](Self::load) with another limit. Reading takes up to ten times the size of
    /// the file in memory, also for damaged files.
    ///
    /// # Errors
    /// Same as [`load`](Self::load).
    pub fn load_up_to(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let io_error = |source: io::Error| Error::io("read", path, source);
        let file = fs::File::open(path).map_err(io_error)?;
        let about = file.metadata().map_err(io_error)?;
        if about.is_file() && about.len() > max_bytes {
            return Err(frames::too_large(about.len(), max_bytes).of_file(path));
        }
        Self::read_from(file, max_bytes).map_err(|error| error.of_file(path))
    }

    /// Reads a recording from a file, a pipe or a socket to its end, up to `max_bytes`. Frames are
    /// verified one by one: an endless source fails at the first invalid frame or at the limit.
    ///
    /// # Errors
    /// Same as [`load`](Self::load).
    pub fn read_from(source: impl Read, max_bytes: u64) -> Result<Self, Error> {
        file::read(source, max_bytes)
    }

    /// Returns the content that [`save`](Self::save) writes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = write::write(self, &mut bytes);
        bytes
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): not a recording, damaged, or written by a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::read_from(bytes, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats 1 and 2 have no checksums: a damaged key must not hide a loss.
    #[test]
    fn losses_without_a_count_that_all_files_have_are_damaged() {
        let whole = serde_json::to_string(&Losses { dropped_by_cupti: 7, ..Losses::default() });
        let whole = whole.unwrap();
        assert_eq!(serde_json::from_str::<Losses>(&whole).unwrap().dropped_by_cupti, 7);
        let required = [
            "dropped_by_cupti",
            "over_memory_limit",
            "irregular",
            "unreadable_bytes",
            "panics",
            "unfinished_buffers",
            "buffers",
            "pool_misses",
            "ranges",
        ];
        for name in required {
            let damaged = whole.replace(&format!("\"{name}\""), "\"damaged\"");
            assert!(serde_json::from_str::<Losses>(&damaged).is_err(), "{name}");
        }
        let repeated = whole.replacen('{', "{\"ranges\":0,", 1);
        assert!(serde_json::from_str::<Losses>(&repeated).is_err(), "{repeated}");
    }
}
