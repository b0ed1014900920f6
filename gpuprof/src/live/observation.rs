//! The state of a run at one time, as the reader found it.

use std::time::Duration;

use gpuprof_control::ProcessId;
use gpuprof_control::manifest::{Moment, Process, Run};

/// A run, or one process of it.
#[derive(Debug, Clone)]
pub(super) struct Observation {
    pub(super) at: Moment,
    /// The manifest of the run; `None` if the variables were set by hand.
    pub(super) run: Option<Run>,
    /// In order of rank, then of start.
    pub(super) processes: Vec<Observed>,
    /// The number of processes beyond the bound, which are not read.
    pub(super) left_out: usize,
    /// Manifests that cannot be read, and why device memory is not shown.
    pub(super) notes: Vec<String>,
}

impl Observation {
    /// True if all recordings were read to their present ends.
    pub(super) fn is_read(&self) -> bool {
        self.processes.iter().filter_map(|of| of.recorded.as_ref()).all(|recorded| recorded.is_read)
    }
}

/// A process and an image of it: an exec starts a new one.
pub(super) type ImageId = (ProcessId, u32);

/// A process of a run.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) process: Process,
    pub(super) is_alive: bool,
    /// The reason why a live process did not answer.
    pub(super) no_answer: Option<String>,
    /// `None` without a recording.
    pub(super) recorded: Option<Recorded>,
    /// The report of an always-on process.
    pub(super) report: Option<String>,
    /// The reason why the recording cannot be read.
    pub(super) unreadable: Option<String>,
}

impl Observed {
    pub(super) fn id(&self) -> ImageId {
        (self.process.id, self.process.image)
    }

    /// True if the process still records or may start recording.
    pub(super) fn is_open(&self) -> bool {
        self.is_alive && self.process.state.is_open()
    }

    pub(super) fn state(&self) -> &'static str {
        match self.process.state {
            state if state.is_open() && !self.is_alive => "cut off",
            _ if self.no_answer.is_some() => "no answer",
            state => state.name(),
        }
    }

    /// The counts of the recording and of the library overlap: the larger one.
    pub(super) fn lost(&self) -> u64 {
        let recorded = self.recorded.iter().flat_map(|recorded| &recorded.losses);
        recorded.map(|(_, count)| count).sum::<u64>().max(self.process.counts.lost)
    }
}

/// The sums of a recording so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    /// The number of files before this one: each write of the last part replaces the file.
    pub(super) generation: u64,
    /// The size of the file, and the part that was read.
    pub(super) bytes: u64,
    pub(super) bytes_read: u64,
    /// The time of the last write, in nanoseconds since 1970.
    pub(super) written_ns: Option<u64>,
    /// False if more of the file can be read at once.
    pub(super) is_read: bool,
    /// The time until which GPU operations are known, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) known_ns: u64,
    /// The time from the start of the session to the last entries.
    pub(super) session: Duration,
    /// The time in which recording was on, until `known_ns`.
    pub(super) recorded: Duration,
    pub(super) devices: Vec<DeviceUse>,
    /// By path, parents before their children.
    pub(super) ranges: Vec<Sum>,
    pub(super) kernels: Vec<Sum>,
    /// Losses with their names, except those that only an end shows.
    pub(super) losses: Vec<(&'static str, u64)>,
}

/// All instances of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) name: String,
    pub(super) count: u64,
    /// The GPU time of all work so far.
    pub(super) gpu: Duration,
    /// The instances with GPU work that is done, and their GPU time. Others may have been outside of
    /// windows.
    pub(super) done: u64,
    pub(super) done_gpu: Duration,
}

impl Sum {
    /// Adds the sum of other instances. A damaged file may contain any counts and times.
    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.gpu = self.gpu.saturating_add(other.gpu);
        self.done = self.done.saturating_add(other.done);
        self.done_gpu = self.done_gpu.saturating_add(other.done_gpu);
    }
}

/// A device of a process in the last seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct DeviceUse {
    /// The ordinal in the process.
    pub(super) ordinal: u32,
    /// The number in a profile of all processes, in which a GPU has one number.
    pub(super) number: u32,
    pub(super) name: String,
    /// The PCI address, if the recording has it.
    pub(super) address: Option<String>,
    pub(super) recorded: Duration,
    pub(super) busy: Duration,
    pub(super) communication: Duration,
    /// Bytes in use by all processes, and bytes of the device.
    pub(super) memory: Option<(f64, f64)>,
}

impl DeviceUse {
    /// A part of the recorded time; `None` without any.
    pub(super) fn share(&self, part: Duration) -> Option<f64> {
        let recorded = self.recorded.as_secs_f64();
        (recorded > 0.0).then(|| (part.as_secs_f64() / recorded).min(1.0))
    }
}
