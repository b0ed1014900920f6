//! Baseline files: counts and times of runs by machine and build, in a fixed order for reviews.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use profiler_base::replace::{Replacement, Target};
use profiler_base::statistics::{median_and_deviation, median_of};
use serde::{Deserialize, Serialize};

use super::run::{EVERYTHING, OUTSIDE, Part, Run};
use crate::analyze::compare::wall::{Parts, ProcessKey, RangeKey, WallRun, WallSide, by_process};
use crate::analyze::compare::{DeviceCounts, RangeWork, WallCause, Work};
use crate::error::{Error, Kind};
use profiler_core::profile::RecordingInfo;

/// The format that this version reads and writes, and the formats of older versions.
const FORMAT: &str = "gpu-baseline 2";
const OLDER: [&str; 1] = ["gpu-baseline 1"];

/// The command that writes a baseline, for messages.
pub(crate) const UPDATE: &str = "GPU_BASELINES=update, or `gpuprof gate --update`";

/// A baseline file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    format: String,
    /// Sorted by machine and build.
    entries: Vec<Entry>,
}

/// Measurements of one build on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The day of the first run (UTC).
    pub(crate) recorded: String,
    pub(crate) runs: u64,
    /// `None` for baselines of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<DeviceCounts>,
    /// The mean SM clock while operations ran, if sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sm_mhz: Option<f64>,
    /// The wall times by process, since they differ between processes; `None` if a run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wall_time: Option<Times>,
    /// The mean wall time of the middle runs, which is the sum of the ranges' `wall_ns`.
    #[serde(default)]
    pub(crate) wall_mean_ns: f64,
    /// True if the wall time covers sessions; false if it covers the recorded activity of captures.
    #[serde(default)]
    pub(crate) is_session: bool,
    pub(crate) ranges: BTreeMap<String, RangeEntry>,
}

/// Times are compared only between equal keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) device: String,
    pub(crate) driver: String,
    /// The clock limits, if NVML reports them.
    pub(crate) clocks: Option<String>,
    pub(crate) build: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RangeEntry {
    /// Entries with GPU operations, for outermost ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) active: Option<Count>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) counts: BTreeMap<String, Count>,
    /// The part of the wall time that each cause takes in this range alone, in nanoseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) wall_ns: BTreeMap<WallCause, f64>,
    /// The host times by process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host_time: Option<Times>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy_time: Option<Times>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kernel_time: Option<Times>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kernels: BTreeMap<String, KernelEntry>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelEntry {
    pub(crate) count: Count,
    pub(crate) time: Times,
}

/// A count that is equal in every run, or its minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Count {
    Always(u64),
    From(u64, u64),
}

impl Default for Count {
    fn default() -> Self {
        Self::Always(0)
    }
}

impl Count {
    pub(crate) fn from_counts(counts: impl Iterator<Item = u64>) -> Self {
        let bounds = counts.fold(None, |bounds: Option<(u64, u64)>, count| match bounds {
            Some((least, most)) => Some((least.min(count), most.max(count))),
            None => Some((count, count)),
        });
        match bounds {
            None => Self::default(),
            Some((least, most)) if least == most => Self::Always(least),
            Some((least, most)) => Self::From(least, most),
        }
    }

    pub(crate) fn bounds(self) -> (u64, u64) {
        match self {
            Self::Always(count) => (count, count),
            Self::From(least, most) => (least, most),
        }
    }

    pub(crate) fn varies(self) -> bool {
        let (least, most) = self.bounds();
        least != most
    }

    pub(crate) fn holds(self, other: Self) -> bool {
        let ((least, most), (other_least, other_most)) = (self.bounds(), other.bounds());
        least <= other_least && other_most <= most
    }
}

/// The times of each run in order, in nanoseconds. The file stores them as one text on one line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "WrittenTimes", try_from = "WrittenTimes")]
pub(crate) struct Times(pub(crate) Vec<f64>);

impl Times {
    pub(crate) fn median(&self) -> f64 {
        median_of(self.0.iter().copied()).unwrap_or(0.0)
    }
}

#[derive(Serialize, Deserialize)]
struct WrittenTimes {
    median_ns: f64,
    deviation_ns: f64,
    runs_ns: String,
}

impl From<Times> for WrittenTimes {
    fn from(times: Times) -> Self {
        let texts: Vec<String> = times.0.iter().map(|ns| tenths(*ns).to_string()).collect();
        let (median_ns, deviation_ns) = median_and_deviation(&times.0).unwrap_or_default();
        let [median_ns, deviation_ns] = [median_ns, deviation_ns].map(tenths);
        Self { median_ns, deviation_ns, runs_ns: texts.join(" ") }
    }
}

impl TryFrom<WrittenTimes> for Times {
    type Error = String;

    fn try_from(written: WrittenTimes) -> Result<Self, String> {
        let one = |text: &str| match text.parse() {
            Ok(ns) if f64::is_finite(ns) && ns >= 0.0 => Ok(ns),
            _ => Err(format!("{text:?} is no time in nanoseconds")),
        };
        written.runs_ns.split_whitespace().map(one).collect::<Result<_, _>>().map(Self)
    }
}

fn tenths(ns: f64) -> f64 {
    (10.0 * ns).round() / 10.0
}

impl Key {
    pub(crate) fn new(
        info: &RecordingInfo,
        ordinal: u32,
        clocks: Option<String>,
        build: &str,
    ) -> Self {
        let device = match info.devices.iter().find(|device| device.id == ordinal) {
            None => "no device".to_owned(),
            Some(device) => {
                let (major, minor) = device.compute_capability;
                format!("{}, sm_{major}{minor}", device.name)
            }
        };
        let cuda = info.cuda_driver_version;
        let driver = match &info.driver_release {
            Some(release) => release.clone(),
            None => format!("CUDA {}.{}", cuda / 1000, cuda / 10 % 100),
        };
        Self { device, driver, clocks, build: build.to_owned() }
    }

    /// True if the keys match. Clocks are compared only if both keys have them.
    fn fits(&self, other: &Self) -> bool {
        let clocks = match (&self.clocks, &other.clocks) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        clocks
            && (&self.device, &self.driver, &self.build)
                == (&other.device, &other.driver, &other.build)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, driver {}", self.device, self.driver)?;
        if let Some(clocks) = &self.clocks {
            write!(f, ", {clocks}")?;
        }
        write!(f, ", {} build", self.build)
    }
}

impl Entry {
    /// Creates an entry from runs on one machine. A count missing in a run is 0; a missing time is
    /// left out.
    pub(crate) fn new(key: Key, recorded: String, runs: &[Run]) -> Self {
        let mut ranges: BTreeMap<String, RangeEntry> = BTreeMap::new();
        for (path, part) in runs.iter().flat_map(|run| &run.parts) {
            let entry = ranges.entry(path.clone()).or_default();
            for name in part.counts.keys() {
                entry.counts.entry((*name).to_owned()).or_default();
            }
            for (times, ns) in
                [(&mut entry.busy_time, part.busy_ns), (&mut entry.kernel_time, part.kernel_ns)]
            {
                if ns > 0.0 {
                    times.get_or_insert_default().0.push(ns);
                }
            }
            for (name, kernels) in &part.kernels {
                entry.kernels.entry(name.clone()).or_default().time.0.push(kernels.ns);
            }
        }
        let processes = ProcessKey::groups(runs.iter().map(|run| &run.process));
        for (path, entry) in &mut ranges {
            let parts = || runs.iter().map(|run| run.parts.get(path));
            let host: Vec<f64> =
                parts().map(|part| part.map_or(0.0, |part| part.host_ns)).collect();
            let mut host = by_process(&processes, &host);
            host.retain(|ns| *ns > 0.0);
            entry.host_time = (!host.is_empty()).then_some(Times(host));
            let active = |part: Option<&Part>| part.and_then(|part| part.active);
            entry.active = parts()
                .any(|part| active(part).is_some())
                .then(|| Count::from_counts(parts().map(|part| active(part).unwrap_or(0))));
            for (name, count) in &mut entry.counts {
                let of = |part: Option<&Part>| {
                    part.and_then(|part| part.counts.get(name.as_str()).copied()).unwrap_or(0)
                };
                *count = Count::from_counts(parts().map(of));
            }
            for (name, kernel) in &mut entry.kernels {
                let of = |part: Option<&Part>| {
                    part.and_then(|part| part.kernels.get(name)).map_or(0, |kernels| kernels.count)
                };
                kernel.count = Count::from_counts(parts().map(of));
            }
        }
        let mut entry = Self {
            key,
            recorded,
            runs: runs.len() as u64,
            devices: runs.iter().filter_map(|run| run.devices).reduce(DeviceCounts::merged),
            sm_mhz: mean_mhz(runs),
            wall_time: None,
            wall_mean_ns: 0.0,
            is_session: false,
            ranges,
        };
        let walls: Option<Vec<WallRun>> = runs.iter().map(|run| run.wall.clone()).collect();
        if let Some(walls) = walls {
            entry.is_session = walls.iter().all(|run| run.session.is_some());
            entry.set_wall(WallSide::from_runs(&walls, entry.is_session));
        }
        entry
    }

    fn set_wall(&mut self, side: WallSide) {
        self.wall_time = Some(Times(side.processes_ns));
        self.wall_mean_ns = tenths(side.ns);
        for (key, causes) in side.parts {
            let path = key.map_or_else(|| OUTSIDE.to_owned(), |key| key.path.to_string());
            let wall_ns = &mut self.ranges.entry(path).or_default().wall_ns;
            for (cause, ns) in WallCause::ALL.into_iter().zip(causes) {
                if ns != 0.0 {
                    *wall_ns.entry(cause).or_default() += tenths(ns);
                }
            }
        }
    }

    /// The wall times; `None` without any.
    pub(crate) fn wall(&self) -> Option<WallSide> {
        let processes_ns = self.wall_time.as_ref()?.0.clone();
        let mut parts = Parts::new();
        for (path, range) in &self.ranges {
            if range.wall_ns.is_empty() {
                continue;
            }
            let key =
                (path != OUTSIDE).then(|| RangeKey { path: path.as_str().into(), domain: None });
            let causes = parts.entry(key).or_default();
            for (cause, ns) in &range.wall_ns {
                causes[*cause as usize] += ns;
            }
        }
        Some(WallSide { runs: self.runs as usize, ns: self.wall_mean_ns, processes_ns, parts })
    }

    /// The work of the runs.
    pub(crate) fn work(&self) -> Work {
        let busy_ns = |range: &RangeEntry| range.busy_time.as_ref().map_or(0.0, Times::median);
        let gpu_ns = self.ranges.get(EVERYTHING).map_or(0.0, busy_ns);
        let mut work = Work { devices: self.devices, gpu_ns, ..Work::default() };
        for (path, range) in &self.ranges {
            for (kernel, of) in &range.kernels {
                let name = kernel.rsplit_once(" <").map_or(&**kernel, |(name, _)| name);
                let ns = of.count.bounds().1 as f64 * of.time.median();
                *work.kernels.entry(name.to_owned()).or_default() += ns;
            }
            if path == OUTSIDE || path == EVERYTHING {
                continue;
            }
            work.ranges.insert(path.clone());
            let is_inner =
                path.match_indices('/').any(|(at, _)| self.ranges.contains_key(&path[..at]));
            let has_work = range.busy_time.is_some() || range.counts.contains_key("launches");
            if let (false, Some(instances)) = (is_inner, range.counts.get("instances")) {
                let entries = instances.bounds();
                let active = range.active.map(|active| (active.bounds().1, entries.1));
                let of_range = RangeWork { entries, has_work, active, gpu_ns: busy_ns(range) };
                work.outermost.insert(path.clone(), of_range);
            }
        }
        work
    }

    /// True if anything ran on the GPU.
    pub(crate) fn has_gpu_work(&self) -> bool {
        self.ranges.values().any(|range| {
            let on_gpu = ["launches", "kernels", "copies", "memsets", "graphs"];
            on_gpu.iter().any(|name| range.counts.contains_key(*name))
        })
    }
}

/// The mean clock of the runs with samples.
fn mean_mhz(runs: &[Run]) -> Option<f64> {
    let clocks: Vec<f64> = runs.iter().filter_map(|run| run.sm_hz).collect();
    (!clocks.is_empty()).then(|| tenths(clocks.iter().sum::<f64>() / clocks.len() as f64 / 1e6))
}

/// A baseline on the disk.
#[derive(Debug)]
pub(crate) enum Stored {
    /// There is no file.
    Missing,
    /// A file of an older version, with its format.
    Older(String),
    /// A file that this version reads.
    Current(File),
}

impl File {
    /// Reads a file, if it exists.
    pub(crate) fn read(path: &Path) -> Result<Stored, Error> {
        let text = match profiler_base::text::read_file(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::Missing),
            Err(error) => return Err(Error::io("read", path, error)),
        };
        let bad = |what: String| {
            Error::new(Kind::Baseline(format!(
                "{} is not a readable baseline: {what}; restore it from version control, or remove it and rewrite \
                 it with {UPDATE}",
                path.display()
            )))
        };
        // Other formats have different entries.
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        match json["format"].as_str() {
            Some(FORMAT) => {}
            Some(format) if OLDER.contains(&format) => return Ok(Stored::Older(format.to_owned())),
            _ => return Err(bad(format!("its format is {}, not {FORMAT:?}", json["format"]))),
        }
        serde_json::from_value(json).map(Stored::Current).map_err(|error| bad(error.to_string()))
    }

    /// The entry for this machine and build.
    pub(crate) fn entry(&self, key: &Key) -> Option<&Entry> {
        self.place(key).map(|place| &self.entries[place])
    }

    /// The index of the equal key, or of the first matching one.
    fn place(&self, key: &Key) -> Option<usize> {
        let keys = || self.entries.iter().map(|entry| &entry.key);
        keys().position(|of| of == key).or_else(|| keys().position(|of| of.fits(key)))
    }

    /// The machines and builds of the file.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.entries.iter().map(|entry| &entry.key)
    }

    /// Replaces the entry that the new one would be compared with, or adds it.
    pub(crate) fn put(&mut self, entry: Entry) {
        self.format = FORMAT.to_owned();
        match self.place(&entry.key) {
            Some(place) => self.entries[place] = entry,
            None => self.entries.push(entry),
        }
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// Replaces the file atomically when the new content is complete; creates its folder.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |error| Error::io("write", path, error);
        let mut text =
            profiler_base::text::json_pretty(self).map_err(|error| failed(error.into()))?;
        text.push('\n');
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let to = match Target::from_path(path).map_err(failed)? {
            Target::File(to) => to,
            Target::Stream(_) => {
                let why = "it is a device or a pipe: name a file";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
            }
        };
        let new = Replacement::begin(to).map_err(failed)?;
        new.file().write_all(text.as_bytes()).and_then(|()| new.commit()).map_err(failed)
    }
}
