//! Processes: profiles of several recordings, and data of a single process.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use profiler_base::text::printable;
use profiler_base::units::{NAME_WIDTH, shortened};
use rustc_hash::FxHashMap;

use super::Profile;
use crate::error::Error;
use crate::join::health::Health;
use crate::join::host_clock::HostClock;
use crate::join::merge::Merger;
use crate::join::range_tree;
use crate::join::tables;
use crate::join::totals::Totals;
use crate::record::recording::{Recording, RecordingInfo};

impl Merger {
    /// A merger without recordings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a recording. Costs as much as [`Profile::from_recording`], and a pass over the rows.
    ///
    /// # Errors
    /// The recording does not fit, is a copy ([`Error::is_duplicate`]), or cannot be assigned to
    /// the boot of the others. It is left out, and the merger remains usable.
    pub fn add(&mut self, recording: Recording) -> Result<(), Error> {
        self.add_process(recording, None, None)
    }

    /// Returns the profile of all processes. It has no [`recording`](Profile::recording). Its
    /// [`recording_info`](Profile::recording_info) is from the recording that started first, with
    /// the devices of all.
    ///
    /// # Errors
    /// Nothing was added, or recordings of several hosts share too few collectives.
    pub fn finish(self) -> Result<Profile, Error> {
        self.joined().map(Profile::from)
    }
}

/// One of the processes of a profile. `{}` prints its name, rank and id.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    profile: &'a Profile,
    id: u32,
    row: Option<&'a tables::Process>,
}

impl<'a> Process<'a> {
    /// The kernel's id, as [`Range::process_id`](crate::Range::process_id) and similar methods
    /// return it; 0 if the process recorded itself. If several processes have the same id, as in
    /// several containers, all but one have an id above 2^22 here. Their own ids are in
    /// [`recording_info`](Self::recording_info).
    pub fn id(&self) -> u32 {
        self.id
    }

    fn recorded(&self) -> Option<&'a tables::RecordedProcess> {
        self.row?.recorded.as_deref()
    }

    /// The program's name, if known.
    pub fn name(&self) -> Option<&'a str> {
        self.row?.name.as_deref()
    }

    /// The rank among cooperating processes, if known.
    pub fn rank(&self) -> Option<u32> {
        self.recorded()?.rank
    }

    fn window_ns(&self) -> (u64, u64) {
        self.recorded().map_or(self.profile.store.session.window_ns, |of| of.window_ns)
    }

    /// The host of its recording: an index of [`Profile::hosts`], or 0 if that is empty.
    pub fn host(&self) -> usize {
        self.recorded().map_or(0, |of| of.host as usize)
    }

    /// The start of its recording since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.window_ns().0)
    }

    /// The length of its recording.
    pub fn duration(&self) -> Duration {
        let (start, stop) = self.window_ns();
        Duration::from_nanos(stop.saturating_sub(start))
    }

    /// Completeness and losses of its own recording. `None` in a single capture.
    pub fn health(&self) -> Option<&'a Health> {
        self.recorded().map(|of| &of.health)
    }

    /// The machine, versions and time of its recording, with its own ordinals of devices. `None` in
    /// a single capture.
    pub fn recording_info(&self) -> Option<&'a RecordingInfo> {
        self.recorded().map(|of| &of.info)
    }
}

impl PartialEq for Process<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Process<'_> {}

impl Hash for Process<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Display for Process<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank() {
            write!(f, "rank {rank}, ")?;
        }
        if let Some(name) = self.name() {
            write!(f, "{}, ", printable(&shortened(name, NAME_WIDTH)))?;
        }
        let id = self.profile.process_id(self.id);
        match self.recording_info().and_then(|info| info.process_id).filter(|own| *own != id) {
            Some(own) => write!(f, "process {own} (here {id})")?,
            None => write!(f, "process {id}")?,
        }
        match self.profile.hosts().len() {
            0 => Ok(()),
            _ => write!(f, " on host {}", self.host()),
        }
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_as_text!(Process<'_>);

impl Profile {
    /// Joins recordings of several processes, without their logs: see [`Merger`].
    ///
    /// # Errors
    /// There are none, or they cannot be one profile: see [`Merger::add`].
    pub fn from_recordings(recordings: impl IntoIterator<Item = Recording>) -> Result<Self, Error> {
        let mut merger = Merger::new();
        recordings.into_iter().try_for_each(|recording| merger.add(recording))?;
        merger.finish()
    }

    /// The processes of several recordings or of a capture: ranks in order, then others by their
    /// start. Empty if a process recorded itself.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = Process<'_>> {
        let rows = self.store.processes.iter();
        rows.map(|row| Process { profile: self, id: row.id, row: Some(row) })
    }

    /// The clocks of the hosts of several recordings, relative to the first: hosts are numbered by
    /// their lowest rank. Empty if all recordings are of one boot of one machine, whose clock they
    /// share.
    pub fn hosts(&self) -> &[HostClock] {
        &self.store.hosts
    }

    /// True if the profile is of several processes.
    pub fn has_several_processes(&self) -> bool {
        self.store.processes.len() > 1
    }

    /// Returns a function that finds a process by its id.
    pub fn processes_by_id<'a>(&'a self) -> impl Fn(u32) -> Process<'a> {
        let rows = self.store.processes.iter().map(|row| (row.id, row));
        let rows: FxHashMap<u32, &tables::Process> = rows.collect();
        move |id| Process { profile: self, id, row: rows.get(&id).copied() }
    }

    /// The totals of each process, by its id.
    pub fn totals_by_process(&self) -> FxHashMap<u32, Totals> {
        range_tree::totals_by_process(&self.store)
    }

    /// The losses of each process whose recording is incomplete.
    pub fn incomplete_processes(&self) -> impl Iterator<Item = (Process<'_>, String)> {
        let missing = |process: Process<'_>| process.health().map(Health::missing_in_words);
        let all = self.processes().filter_map(move |process| Some((process, missing(process)?)));
        all.filter(|(_, missing)| !missing.is_empty())
    }
}
