//! What profiling this machine and process allow, in one value and as a page for people.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::collector::Turn;
use crate::error::Error;
use crate::library::{Driver, Library, Version, Warning};
use crate::sys::{driver, loader};

/// What profiling this machine and process allow. Its `Display` is a page for people, with what to do about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Support {
    /// The driver and its devices, or why there are none to be had.
    pub driver: Result<Driver, Error>,
    /// The CUPTI that a collector would use, or why there is none.
    pub cupti: Result<Cupti, Error>,
    /// Who holds CUPTI's one place in this process. Unknown where there is no CUPTI.
    pub holder: Holder,
    /// Whether hardware counters may be read. Records need no permission.
    pub counters: Counters,
    /// libcupti files that this process has mapped.
    pub mapped: Vec<PathBuf>,
    /// Variables of the environment that are set and that attach tools, or choose GPUs or a libcupti. Names alone.
    pub variables: Vec<&'static str>,
}

/// A CUPTI that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cupti {
    /// Its file.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
    /// What it can do.
    pub features: Features,
    /// What is odd about it here.
    pub warnings: Vec<Warning>,
}

/// What a CUPTI has beyond that of 12.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Features {
    /// Messages of its own state, for [`Callbacks::state`](crate::Callbacks::state) (12.2+).
    pub state_callbacks: bool,
    /// Ids of executable graphs (12.3+).
    pub graph_exec_ids: bool,
    /// Activity buffers for each thread (12.3+).
    pub per_thread_buffers: bool,
    /// API records of some functions alone (12.5+).
    pub api_filters: bool,
    /// Kernel times from the hardware, on Blackwell and later (12.8+).
    pub hardware_trace: bool,
    /// The metrics of chips, and how many passes they take (12.6+).
    pub metrics: bool,
    /// Hardware counters over ranges and kernels (12.6 update 2 and later).
    pub range_counters: bool,
    /// Hardware counters at intervals (12.8+).
    pub sampled_counters: bool,
    /// It does without a buffer where it gets none, and counts what it drops (12.9+).
    pub does_without_buffers: bool,
    /// It tells who holds its place (13.0+).
    pub names_holder: bool,
    /// Records of each subscriber's own (13.2+).
    pub records_v2: bool,
    /// Several subscribers at a time, with a driver of release 610 or later (13.3+). This crate does not use it yet.
    pub several_subscribers: bool,
}

impl Features {
    /// Each with its name for people.
    #[must_use]
    pub fn list(&self) -> [(&'static str, bool); 12] {
        [
            ("messages of its state", self.state_callbacks),
            ("ids of executable graphs", self.graph_exec_ids),
            ("buffers for each thread", self.per_thread_buffers),
            ("API records by function", self.api_filters),
            ("hardware trace", self.hardware_trace),
            ("metrics of chips", self.metrics),
            ("counters over ranges", self.range_counters),
            ("counters at intervals", self.sampled_counters),
            ("doing without buffers", self.does_without_buffers),
            ("the holder's name", self.names_holder),
            ("records of a subscriber's own", self.records_v2),
            ("several subscribers", self.several_subscribers),
        ]
    }
}

/// Who holds CUPTI's one place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// Nobody: a collector can start.
    Nobody,
    /// A collector of this crate.
    ThisCrate,
    /// Somebody else, by name where CUPTI tells.
    Other(Option<String>),
    /// It could not be found out; why.
    Unknown(String),
}

/// Whether hardware counters may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counters {
    /// By everybody, or by this process.
    Allowed,
    /// By administrators, of whom this process is none.
    AdministratorsOnly,
    /// The kernel module does not say.
    Unknown,
}

/// The variables that matter, by name.
const VARIABLES: [&str; 5] = [
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "CUDA_VISIBLE_DEVICES",
    loader::PATH_VARIABLE,
];

/// The version of this crate.
#[must_use]
pub const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Looks at driver, devices, CUPTI, who holds it, and permissions. Never fails: what is missing is in the answer.
///
/// Opens the driver and CUPTI as [`Library::open`] does, and takes CUPTI's place for a moment to see whether it is free.
#[must_use]
pub fn support() -> Support {
    match Library::open() {
        Ok(library) => library.support(),
        Err(error) => Support {
            driver: driver::probe(),
            cupti: Err(error),
            holder: Holder::Unknown("there is no CUPTI to ask".into()),
            counters: counters(),
            mapped: loader::mapped_files(),
            variables: variables(),
        },
    }
}

impl Library {
    /// What profiling with this library allows here. Takes CUPTI's place for a moment to see whether it is free.
    #[must_use]
    pub fn support(&self) -> Support {
        Support {
            driver: Ok(self.driver().clone()),
            cupti: Ok(Cupti {
                path: self.path().to_owned(),
                version: self.version(),
                features: self.features(),
                warnings: self.warnings(),
            }),
            holder: self.holder(),
            counters: counters(),
            mapped: loader::mapped_files(),
            variables: variables(),
        }
    }

    /// What this library has beyond CUPTI 12.0.
    #[must_use]
    pub fn features(&self) -> Features {
        let release = self.version().cuda_release();
        Features {
            state_callbacks: release >= (12, 2),
            graph_exec_ids: self.api.get_graph_exec_id.is_some(),
            per_thread_buffers: release >= (12, 3),
            api_filters: self.api.enable_driver_api.is_some()
                && self.api.enable_runtime_api.is_some(),
            hardware_trace: self.api.hw_trace,
            metrics: self.api.host.is_some(),
            range_counters: self.api.host.is_some() && self.api.range.is_some(),
            sampled_counters: self.sampling_api().is_some(),
            does_without_buffers: self.version().takes_no_buffer(),
            names_holder: self.api.subscribe_v2.is_some(),
            records_v2: self.api.records_v2,
            several_subscribers: self.api.multiple_subscribers,
        }
    }

    fn holder(&self) -> Holder {
        // Held through the attempt, so that no collector of ours meets it.
        let Ok(_turn) = Turn::take() else { return Holder::ThisCrate };
        match self.api.subscribe_callback() {
            Ok(subscription) => {
                subscription.end();
                Holder::Nobody
            }
            Err(error) if error.is_busy() => Holder::Other(error.holder().map(str::to_owned)),
            Err(error) => Holder::Unknown(error.to_string()),
        }
    }
}

impl Support {
    /// True if a collector could start now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.driver.is_ok() && self.cupti.is_ok() && self.holder == Holder::Nobody
    }

    /// What to do about what is missing or odd, in sentences.
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let errors = [self.driver.as_ref().err(), self.cupti.as_ref().err()];
        // Without a driver there is no CUPTI either, for the same reason.
        advice.extend(errors.into_iter().flatten().next().map(sentence));
        if let Ok(cupti) = &self.cupti {
            advice.extend(cupti.warnings.iter().map(sentence));
        }
        match &self.holder {
            Holder::ThisCrate => advice.push("Stop the collector that runs to start another.".into()),
            Holder::Other(_) => advice.push(
                "Run without nsys, ncu, compute-sanitizer or another profiler to have GPU records; ranges go on as NVTX."
                    .into(),
            ),
            Holder::Unknown(why) if self.cupti.is_ok() => advice.push(sentence(why)),
            _ => {}
        }
        if self.counters == Counters::AdministratorsOnly {
            advice.push(
                "For hardware counters load the kernel module with NVreg_RestrictProfilingToAdminUsers=0, or give the \
                 process CAP_SYS_ADMIN; records do not need it."
                    .into(),
            );
        }
        advice
    }
}

fn sentence(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(['.']).collect()
}

fn variables() -> Vec<&'static str> {
    VARIABLES.into_iter().filter(|name| std::env::var_os(name).is_some()).collect()
}

fn counters() -> Counters {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    counters_in(&read("/proc/driver/nvidia/params"), &read("/proc/self/status"))
}

/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u64 = 1 << 21;

fn counters_in(params: &str, status: &str) -> Counters {
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    let capabilities = value(status, "CapEff:")
        .and_then(|value| u64::from_str_radix(&value, 16).ok())
        .unwrap_or(0);
    match value(params, "RmProfilingAdminOnly:").as_deref() {
        Some("0") => Counters::Allowed,
        Some(_) if capabilities & SYS_ADMIN != 0 => Counters::Allowed,
        Some(_) => Counters::AdministratorsOnly,
        None => Counters::Unknown,
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(driver) => {
                let (major, minor) = driver.cuda_release();
                let release = driver.release.as_deref().unwrap_or("of unknown version");
                writeln!(f, "driver     {release}, serves CUDA {major}.{minor}")?;
                for device in &driver.devices {
                    writeln!(
                        f,
                        "GPU {:<6} {}: sm_{}{}, {} SMs, {} GiB",
                        device.id,
                        device.name,
                        device.compute_capability.0,
                        device.compute_capability.1,
                        device.multiprocessors,
                        device.memory_bytes >> 30
                    )?;
                }
            }
            Err(_) => writeln!(f, "driver     none")?,
        }
        match &self.cupti {
            Ok(cupti) => {
                writeln!(f, "CUPTI      {}, {}", cupti.version, cupti.path.display())?;
                let names = |has| {
                    let list = cupti.features.list();
                    let names = list.iter().filter(|(_, there)| *there == has);
                    let names: Vec<_> = names.map(|(name, _)| *name).collect();
                    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
                };
                writeln!(f, "  has      {}", names(true))?;
                writeln!(f, "  lacks    {}", names(false))?;
            }
            Err(_) => writeln!(f, "CUPTI      none")?,
        }
        let holder = match &self.holder {
            Holder::Nobody => "nobody",
            Holder::ThisCrate => "a collector of this program",
            Holder::Other(Some(name)) => name,
            Holder::Other(None) => "another tool, which gives no name",
            Holder::Unknown(_) => "unknown",
        };
        writeln!(f, "held by    {holder}")?;
        let counters = match self.counters {
            Counters::Allowed => "may be read",
            Counters::AdministratorsOnly => "administrators only",
            Counters::Unknown => "unknown: the kernel module does not say",
        };
        writeln!(f, "counters   {counters}")?;
        let mapped: Vec<_> = self.mapped.iter().map(|file| file.display().to_string()).collect();
        let none = |list: String| if list.is_empty() { "none".to_owned() } else { list };
        writeln!(f, "mapped     {}", none(mapped.join(", ")))?;
        writeln!(f, "variables  {}", none(self.variables.join(", ")))?;
        let ready = if self.is_ready() { "yes" } else { "no" };
        write!(f, "ready      {ready}")?;
        for advice in self.advice() {
            write!(f, "\n\n{advice}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_for_administrators_where_the_module_says_so() {
        let (admin, user) = ("Name: x\nCapEff:\t000001ffffffffff\n", "CapEff:\t00000000a80425fb\n");
        let (open, closed) = ("RmProfilingAdminOnly: 0\n", "A: 1\nRmProfilingAdminOnly: 1\nB: 2\n");
        assert_eq!(counters_in(open, user), Counters::Allowed);
        assert_eq!(counters_in(closed, admin), Counters::Allowed);
        assert_eq!(counters_in(closed, user), Counters::AdministratorsOnly);
        assert_eq!(counters_in("", admin), Counters::Unknown);
    }
}
