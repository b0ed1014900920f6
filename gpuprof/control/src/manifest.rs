//! The manifests of a run folder: [`Run`] in `run.json`, [`Process`] in `process-PID-START.json`.
//!
//! Readers accept the additions of newer versions: they ignore unknown fields and read an unknown
//! state as [`State::Unknown`]. They refuse any other [`VERSION`].

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use profiler_base::named_variants;
use profiler_core::session::{FileTotals, LOCAL_RANK_VARIABLES};
use serde::{Deserialize, Serialize};

use crate::{Options, ProcessId};

/// The version of both manifests, incremented when an old reader would misread a new manifest.
pub const VERSION: u32 = 1;

/// The variables with a process's global rank: of torchrun, Open MPI, and MPICH and its relatives.
pub const RANK_VARIABLES: [&str; 3] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// The maximum length of a text in a manifest, in bytes. Longer texts are truncated.
pub const MAX_TEXT: usize = 4096;

/// A moment on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Moment {
    /// Nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`, a clock that all processes of a machine share.
    pub monotonic_ns: u64,
}

impl Moment {
    /// The current time on both clocks.
    pub fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Into::into);
        let nanoseconds = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
        Self { wall_ns: nanoseconds(wall), monotonic_ns: nanoseconds(monotonic) }
    }
}

/// The content of `run.json`, written by `gpuprof run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// The version of gpuprof.
    pub gpuprof: String,
    /// The base name of the program.
    pub program: String,
    /// [`Start`](crate::Start) as text.
    pub start: String,
    /// [`Stop`](crate::Stop) as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// [`AlwaysOn`](crate::AlwaysOn) as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_on: Option<String>,
    /// [`KeepLast`](crate::KeepLast) as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<String>,
    /// When the program started.
    pub began: Moment,
    /// The end of the program; absent while the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// The end of a program, with either a status or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// When `gpuprof run` observed the end.
    pub at: Moment,
    /// The exit status, if the program exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The number of the signal that terminated the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

impl Ended {
    /// Creates the end of a program at the current time.
    pub fn now(status: Option<i32>, signal: Option<i32>) -> Self {
        Self { at: Moment::now(), status, signal }
    }
}

impl Run {
    /// Creates the manifest of a run that starts now.
    pub fn new(program: &Path, options: &Options) -> Self {
        Self {
            version: VERSION,
            gpuprof: env!("CARGO_PKG_VERSION").to_owned(),
            program: base_name(program),
            start: options.start.to_string(),
            stop: options.stop.map(|stop| stop.to_string()),
            always_on: options.always_on.map(|settings| settings.to_string()),
            keep_last: options.keep_last.map(|part| part.to_string()),
            began: Moment::now(),
            ended: None,
        }
    }
}

named_variants! {
    /// The activity of a process, or its outcome.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[non_exhaustive]
    pub enum State with name {
        /// Recording has not started: the condition of [`Start`](crate::Start) is not met.
        Waiting = "waiting",
        /// Recording is on.
        Recording = "recording",
        /// Recording was on and has been switched off.
        Paused = "paused",
        /// The recording is complete.
        Finished = "finished",
        /// The process did not use the GPU; there is no recording.
        Idle = "idle",
        /// The program records itself with profiler-core. A recording of the time before may exist.
        Yielded = "yielded",
        /// Recording failed; [`Process::reason`] states why. A recording of the time before may exist.
        Failed = "failed",
        /// A state of a newer version.
        #[serde(other)]
        Unknown = "unknown",
    }
}

impl State {
    /// True if the process still records or may start recording.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Recording | Self::Paused | Self::Unknown)
    }
}

/// The content of `process-PID-START.json`, written by the injection library.
///
/// A process that ends without running the library's hooks (SIGKILL, `_exit`, exec) leaves an
/// [open](State::is_open) state behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Process {
    /// [`VERSION`].
    pub version: u32,
    /// The version of the library.
    pub gpuprof: String,
    /// The pid and start time of the process.
    #[serde(flatten)]
    pub id: ProcessId,
    /// The number of the image, starting at 0. An exec starts a new image in the same process.
    #[serde(default)]
    pub image: u32,
    /// The pid of the parent when the process started.
    pub parent: u32,
    /// The base name of the executable.
    pub program: String,
    /// The global rank, from `RANK` or the variables of MPI or Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The rank on this machine, from `LOCAL_RANK` or the variables of MPI or Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// The number of ranks, from `WORLD_SIZE` or the variables of MPI or Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// The activity of the process, or its outcome.
    pub state: State,
    /// The reason for the state, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if a recording exists under the name [`recording_name`](Self::recording_name).
    #[serde(default)]
    pub has_recording: bool,
    /// When the library started.
    pub began: Moment,
    /// When the library finished the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// The counts of the recording when this manifest was written.
    #[serde(default)]
    pub counts: Counts,
}

/// The counts of a process's recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Counts {
    /// Kernels, copies, fills, and graphs traced as one.
    pub operations: u64,
    /// NVTX ranges.
    pub ranges: u64,
    /// Recording windows opened.
    pub windows: u64,
    /// The size of the recording in bytes.
    pub bytes: u64,
    /// Lost records and ranges.
    pub lost: u64,
    /// Incident files written by [triggers](crate::Triggers).
    pub incidents: u64,
    /// Triggers without a file: too soon after another trigger, beyond the maximum number of files,
    /// or with a failed write.
    pub incidents_left_out: u64,
}

impl Process {
    /// Creates the manifest of this process in the state [`Waiting`](State::Waiting).
    ///
    /// # Errors
    /// `/proc/self/stat` cannot be read.
    pub fn current() -> Result<Self, crate::Error> {
        Ok(Self::new(ProcessId::current()?, |name| std::env::var_os(name)))
    }

    fn new(id: ProcessId, get: impl Fn(&str) -> Option<OsString>) -> Self {
        let number = |names: &[&str]| -> Option<u32> {
            let text = names.iter().find_map(|name| get(name))?;
            text.to_str()?.parse().ok()
        };
        // A batch script has the number of a task, too, and so have the ranks that one task starts.
        let tasks = number(&["SLURM_STEP_NUM_TASKS"]).filter(|tasks| *tasks > 1);
        let of_task = |name| number(&[name]).filter(|_| tasks.is_some());
        Self {
            version: VERSION,
            gpuprof: env!("CARGO_PKG_VERSION").to_owned(),
            id,
            image: 0,
            parent: std::os::unix::process::parent_id(),
            program: fs::read_link("/proc/self/exe")
                .map_or_else(|_| String::new(), |exe| base_name(&exe)),
            rank: number(&RANK_VARIABLES).or_else(|| of_task("SLURM_PROCID")),
            local_rank: number(&LOCAL_RANK_VARIABLES).or_else(|| of_task("SLURM_LOCALID")),
            world_size: number(&["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]).or(tasks),
            state: State::Waiting,
            reason: None,
            has_recording: false,
            began: Moment::now(),
            ended: None,
            counts: Counts::default(),
        }
    }

    /// Sets the state and its reason.
    pub fn set_state(&mut self, state: State, reason: Option<&str>) {
        self.state = state;
        self.reason = reason.map(|reason| cut(reason).to_owned());
    }

    /// Sets the counts from the totals of the recording.
    pub fn set_totals(&mut self, totals: &FileTotals) {
        self.counts.operations = totals.operations;
        self.counts.ranges = totals.ranges;
        self.counts.bytes = totals.bytes;
        self.counts.lost = totals.unwritten_entries;
    }

    /// The common prefix of the names of the manifest, the recording and the incident files.
    pub fn stem(&self) -> String {
        match self.image {
            0 => format!("process-{}", self.id),
            image => format!("process-{}-{image}", self.id),
        }
    }

    /// The name of the manifest in the run folder.
    pub fn manifest_name(&self) -> String {
        self.stem() + ".json"
    }

    /// The name of the recording in the run folder.
    pub fn recording_name(&self) -> String {
        self.stem() + ".gpuprof"
    }

    /// The name of the text report of a process that is [always on](Options::always_on).
    pub fn always_on_name(&self) -> String {
        self.stem() + ".always-on.txt"
    }
}

/// The last component of a path as text, truncated to [`MAX_TEXT`] bytes.
fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Linux appends this suffix if the executable file was replaced or removed.
    cut(name.strip_suffix(" (deleted)").unwrap_or(&name)).to_owned()
}

/// Replaces each absolute path in a text by its last component. A path ends at white space or
/// punctuation.
pub(crate) fn with_base_names(text: &str) -> String {
    let is_mark = |c: char| c.is_whitespace() || "\"'`,;:()<>".contains(c);
    let base_name = |word| {
        let path = str::trim_end_matches(word, is_mark).trim_end_matches('/');
        match path.starts_with('/') {
            true => &word[path.rfind('/').map_or(0, |at| at + 1)..],
            false => word,
        }
    };
    text.split_inclusive(is_mark).map(base_name).collect()
}

/// The beginning of a text, of at most [`MAX_TEXT`] bytes.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// Validation of a manifest; the error is the reason why the manifest is invalid.
pub(crate) trait Check {
    fn check(&self) -> Result<(), String>;
}

fn check(version: u32, gpuprof: &str, texts: &[Option<&String>]) -> Result<(), String> {
    if version != VERSION {
        return Err(other_version(version, gpuprof));
    }
    match texts.iter().flatten().all(|text| text.len() <= MAX_TEXT) {
        true => Ok(()),
        false => Err(format!("has a text of more than {MAX_TEXT} bytes")),
    }
}

pub(crate) fn other_version(version: u32, gpuprof: &str) -> String {
    let gpuprof = cut(gpuprof).escape_debug();
    format!(
        "has version {version} and was written by gpuprof {gpuprof}: read it with that one, this one reads version {VERSION}"
    )
}

impl Check for Run {
    fn check(&self) -> Result<(), String> {
        let Self { gpuprof, program, start, .. } = self;
        let further = [&self.stop, &self.always_on, &self.keep_last].map(Option::as_ref);
        let texts = [Some(gpuprof), Some(program), Some(start)].into_iter().chain(further);
        check(self.version, gpuprof, &texts.collect::<Vec<_>>())
    }
}

impl Check for Process {
    fn check(&self) -> Result<(), String> {
        let texts = [Some(&self.gpuprof), Some(&self.program), self.reason.as_ref()];
        check(self.version, &self.gpuprof, &texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_numbers_of_torchrun_mpi_and_slurm() {
        let id = ProcessId { pid: 1, start: 2 };
        let of = |set: &[(&str, &str)]| {
            let process = Process::new(id, |name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
            });
            (process.rank, process.local_rank, process.world_size)
        };
        assert_eq!(of(&[]), (None, None, None));
        let torchrun = [("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8"), ("PMI_RANK", "9")];
        assert_eq!(of(&torchrun), (Some(5), Some(1), Some(8)));
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "3")]), (Some(3), None, None));
        assert_eq!(of(&[("RANK", "secret"), ("WORLD_SIZE", "-1")]), (None, None, None));
        let task = [("SLURM_PROCID", "3"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "4")];
        let step = |tasks| [&task[..], &[("SLURM_STEP_NUM_TASKS", tasks)]].concat();
        assert_eq!(of(&step("4")), (Some(3), Some(1), Some(4)));
        assert_eq!(of(&step("1")), (None, None, None), "torch.multiprocessing starts the ranks");
        assert_eq!(of(&task), (None, None, None), "a batch script");
        assert_eq!(of(&[&step("4")[..], &torchrun].concat()), (Some(5), Some(1), Some(8)));
    }

    #[test]
    fn names_of_files_hold_the_image_after_an_exec() {
        let mut process = Process::current().unwrap();
        let id = process.id;
        assert_eq!(process.manifest_name(), format!("process-{id}.json"));
        process.image = 2;
        assert_eq!(process.recording_name(), format!("process-{id}-2.gpuprof"));
    }

    #[test]
    fn manifests_hold_base_names_and_bounded_texts() {
        let mut process = Process::current().unwrap();
        assert!(!process.program.is_empty() && !process.program.contains('/'));
        process.set_state(State::Failed, Some(&"\u{e4}".repeat(MAX_TEXT)));
        assert_eq!(process.reason.as_deref().map(str::len), Some(MAX_TEXT));
        assert_eq!(process.check(), Ok(()));
        let run = Run::new("/home/someone/bin/python (deleted)".as_ref(), &Options::new("/secret"));
        assert_eq!(run.program, "python");
        let text = serde_json::to_string(&run).unwrap();
        assert!(!text.contains("someone") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn reasons_hold_no_absolute_paths() {
        for (reason, written) in [
            ("could not write /home/me/run/a.gpuprof: full", "could not write a.gpuprof: full"),
            (
                "\"/opt/lib/libcupti.so.13\" and/or (/tmp/) in a/b",
                "\"libcupti.so.13\" and/or (tmp/) in a/b",
            ),
            ("/ is no name, /\u{e4}/\u{fc} is", "/ is no name, \u{fc} is"),
        ] {
            assert_eq!(with_base_names(reason), written);
        }
    }

    #[test]
    fn state_names_match_the_manifests() {
        let states = [
            State::Waiting,
            State::Recording,
            State::Paused,
            State::Finished,
            State::Idle,
            State::Yielded,
            State::Failed,
        ];
        for state in states {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }
}
