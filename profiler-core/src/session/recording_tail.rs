//! The sums of a recording that another process writes, while it grows.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cupti::{Clock, Record};
use profiler_base::kept::Identity;
use profiler_base::kernel_names::{displayed, lower_case};
use rustc_hash::FxHashMap;

use crate::collect::request::Sink as _;
use crate::error::Error;
use crate::join::communication;
use crate::join::recent_busy::{BIN, RecentBusy};
use crate::join::rows::Interval;
use crate::join::streaming::StreamingJoin;
use crate::profile::summary::Summary;
use crate::record::recording::RecordingInfo;
use crate::record::recording::segment::Segment;
use crate::record::recording::tail::{Part, Tail, recorded_ns};

/// Upper bound of the kernels whose kind is stored. Later ones count as work.
const MOST_KERNELS: usize = 1 << 16;
/// Upper bound of devices with their own times.
const MOST_DEVICES: usize = 64;

/// A recording that grows, summed while it is read.
///
/// Each read takes the bytes appended since the last one: the cost is that of the new entries. The
/// recorded process does nothing for it. Its file has what finished until about 0.6 s ago, and
/// records that CUPTI has delivered.
///
/// ```no_run
/// use profiler_core::session::RecordingTail;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// let mut tail = RecordingTail::open("job.gpurun/process-1-2.gpuprof".as_ref(), 1_000)?;
/// while tail.read(64 << 20)? {}
/// println!("{}", tail.summary());
/// # Ok(())
/// # }
/// ```
///
/// Memory: sums as in [`Profiler::summarize`](crate::Profiler::summarize), the entries of one state
/// of the file, open entries, and the names of ranges. A file that needs more than 1 GiB for one of
/// the latter three is an error.
#[derive(Debug)]
pub struct RecordingTail {
    path: PathBuf,
    identity: Option<Identity>,
    tail: Tail<File>,
    join: StreamingJoin,
    has_begun: bool,
    /// True once calls were read, which determine the first id.
    has_calls: bool,
    devices: BTreeMap<u32, RecentBusy>,
    /// True for kernels that are collectives, by the key of their name.
    collectives: FxHashMap<u64, bool>,
    added: Option<NamePredicate>,
    /// The end of the last part and the time until which all operations are known.
    until_ns: u64,
    known_ns: u64,
}

/// Kernels that count as collectives beside those recognized by name.
struct NamePredicate(Box<dyn Fn(&str) -> bool + Send>);

impl fmt::Debug for NamePredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamePredicate").finish_non_exhaustive()
    }
}

/// The last seconds of a device in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecentDevice {
    /// The CUDA ordinal in the process.
    pub device: u32,
    /// The time in which the session was on, without pauses.
    pub recorded: Duration,
    /// The time in which copies, memsets, or kernels other than collectives ran.
    pub busy: Duration,
    /// The time in which only collectives ran.
    pub communication: Duration,
}

impl RecordingTail {
    /// Opens a recording at its beginning. `most_rows` is the limit of names, as in
    /// [`ProfilerBuilder::summary_rows`](crate::ProfilerBuilder::summary_rows).
    ///
    /// # Errors
    /// The file cannot be read, or [`is_format`](Error::is_format): it is no recording or of an
    /// older format, or its first frame is not complete yet.
    pub fn open(path: &Path, most_rows: usize) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::io("read", path, source))?;
        Self::from_file(file, path, most_rows)
    }

    /// Like [`open`](Self::open) with the open file at a path.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub fn from_file(file: File, path: &Path, most_rows: usize) -> Result<Self, Error> {
        let about = file.metadata().map_err(|source| Error::io("read", path, source))?;
        let tail = Tail::begin(file).map_err(|error| error.of_file(path))?;
        Ok(Self {
            path: path.to_owned(),
            identity: Some(Identity::from_metadata(&about)),
            tail,
            join: StreamingJoin::new(0, most_rows),
            has_begun: false,
            has_calls: false,
            devices: BTreeMap::new(),
            collectives: FxHashMap::default(),
            added: None,
            until_ns: 0,
            known_ns: 0,
        })
    }

    /// Adds collectives by name for [`devices`](Self::devices), as
    /// [`Profile::with_communication`](crate::Profile::with_communication) does. What was read
    /// before stays as it is.
    #[must_use]
    pub fn with_communication(
        mut self,
        is_communication: impl Fn(&str) -> bool + Send + 'static,
    ) -> Self {
        self.added = Some(NamePredicate(Box::new(is_communication)));
        self.collectives.clear();
        self
    }

    /// Reads at least this many of the new bytes, if there are as many. Returns true if it stopped
    /// there and more may follow.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or needs too much memory.
    pub fn read(&mut self, bytes: u64) -> Result<bool, Error> {
        let end = self.tail.position().saturating_add(bytes);
        while let Some(part) = self.tail.next().map_err(|error| error.of_file(&self.path))? {
            self.add(&part);
            if self.tail.position() >= end {
                return Ok(!self.tail.has_ended());
            }
        }
        Ok(false)
    }

    fn add(&mut self, part: &Part) {
        if !self.has_begun {
            self.join.begin(&self.tail.session_start());
            self.has_begun = true;
        }
        if let Some(first_id) = part.first_id().filter(|_| !self.has_calls) {
            self.join.begins_with(first_id, true);
            self.has_calls = true;
        }
        self.join.add(&self.tail.with_state(part));
        self.add_devices(&part.segment);
        if self.tail.has_ended() {
            self.join.end(None);
        }
    }

    fn add_devices(&mut self, segment: &Segment) {
        let mut last_ns = self.known_ns.max(segment.settled_ns);
        for record in &segment.records {
            let (device, span, is_collective) = match &record {
                Record::Kernel(kernel) => {
                    let is_collective = self.is_collective(segment, kernel.name);
                    (kernel.place.device, kernel.span, is_collective)
                }
                Record::Memcpy(copy) => (copy.place.device, copy.span, false),
                Record::Memset(set) => (set.place.device, set.span, false),
                Record::GraphTrace(graph) => (graph.place.device, graph.span, false),
                _ => continue,
            };
            let has_room = self.devices.len() < MOST_DEVICES || self.devices.contains_key(&device);
            if span.is_known() && has_room {
                let time = interval(segment.clock, span.start_ns, span.end_ns);
                last_ns = last_ns.max(time.end_ns);
                self.devices.entry(device).or_default().add(time, is_collective);
            }
        }
        self.until_ns = segment.until_ns;
        self.known_ns = last_ns.min(segment.until_ns);
        self.devices.values_mut().for_each(|device| device.settle(segment.until_ns));
    }

    fn is_collective(&mut self, segment: &Segment, name: cupti::NameKey) -> bool {
        if let Some(known) = self.collectives.get(&name.0) {
            return *known;
        }
        let Some(text) = segment.records.name(name) else { return false };
        let is_added = |NamePredicate(of): &NamePredicate| of(&displayed(text, None)) || of(text);
        let is_collective = communication::row_of(&lower_case(text).0).is_some()
            || self.added.as_ref().is_some_and(is_added);
        if self.collectives.len() < MOST_KERNELS {
            self.collectives.insert(name.0, is_collective);
        }
        is_collective
    }

    /// The sums so far. Copies them: the cost grows with the number of names.
    pub fn summary(&self) -> Summary {
        let (start_ns, until_ns) = self.tail.window_ns();
        let duration = Duration::from_nanos(until_ns.saturating_sub(start_ns));
        let mut summary = Summary::new(&self.join, self.tail.info().clone(), duration);
        summary.health.add_losses(&self.tail.losses());
        summary
    }

    /// The last seconds of each device, up to a minute, until [`known_ns`](Self::known_ns). The
    /// resolution is 0.1 s.
    pub fn devices(&self, last: Duration) -> impl Iterator<Item = RecentDevice> {
        let last_ns = u64::try_from(last.as_nanos()).unwrap_or(u64::MAX);
        let bin_ns = BIN.as_nanos() as u64;
        let until_ns = self.known_ns;
        let from_ns = until_ns.saturating_sub(last_ns) / bin_ns * bin_ns;
        let recorded_ns = recorded_ns(self.tail.windows_ns(), from_ns, until_ns);
        self.devices.iter().map(move |(device, recent)| {
            let (busy_ns, communication_ns) = recent.times_ns(from_ns, until_ns);
            RecentDevice {
                device: *device,
                recorded: Duration::from_nanos(recorded_ns),
                busy: Duration::from_nanos(busy_ns),
                communication: Duration::from_nanos(communication_ns),
            }
        })
    }

    /// The machine, versions and time of the recording.
    pub fn info(&self) -> &RecordingInfo {
        self.tail.info()
    }

    /// The time until which entries were read, on the clock of the recording
    /// ([`cupti::clock::now_ns`]).
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// The time until which GPU operations are known, on the same clock. It is earlier if the GPU
    /// is not done with a call, or CUPTI has not delivered its records.
    pub fn known_ns(&self) -> u64 {
        self.known_ns
    }

    /// The time in which the session was on until [`known_ns`](Self::known_ns), without pauses.
    pub fn recorded(&self) -> Duration {
        let later_ns = recorded_ns(self.tail.windows_ns(), self.known_ns, self.until_ns);
        Duration::from_nanos(self.tail.recorded_ns().saturating_sub(later_ns))
    }

    /// The number of bytes read.
    pub fn position(&self) -> u64 {
        self.tail.position()
    }

    /// True once the end of a complete recording was read.
    pub fn has_ended(&self) -> bool {
        self.tail.has_ended()
    }

    /// True if another file has replaced this one, as each write of the last part does.
    pub fn is_replaced(&self) -> bool {
        Identity::from_path(&self.path).ok() != self.identity
    }
}

fn interval(clock: Clock, start_ns: u64, end_ns: u64) -> Interval {
    Interval { start_ns: clock.monotonic_ns(start_ns), end_ns: clock.monotonic_ns(end_ns) }
}
