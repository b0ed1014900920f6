//! The profiling support of this machine and process, as a value and as readable text.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::collector::CollectorLease;
use crate::counters::HostLibrary;
use crate::device::Driver;
use crate::error::{Error, PATH_VARIABLE};
use crate::library::{Library, Warning};
use crate::sys::{driver, loader, safe};
use crate::version::Version;

/// The profiling support of this machine and process. Its `Display` is text for people, with
/// advice.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Support {
    /// The driver and its devices, or why there are none available.
    pub driver: Result<Driver, Error>,
    /// The CUPTI that a collector would use, or why there is none.
    pub cupti: Result<Cupti, Error>,
    /// The holder of CUPTI's only subscriber slot in this process. Unknown without a CUPTI.
    pub holder: Holder,
    /// The permission to read hardware counters. Records need no permission.
    pub counters: Counters,
    /// The CUPTI that lists metrics and passes, or why there is none; needs no GPU.
    pub metrics: Result<Version, Error>,
    /// True if the Multi-Process Service seems to run here; with it counters are refused.
    pub has_mps: bool,
    /// libcupti files that this process has mapped.
    pub mapped: Vec<PathBuf>,
    /// Environment variables that are set and that attach tools, or select GPUs or a libcupti. Only
    /// names.
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
    /// Its features.
    pub features: Features,
    /// Reasons for caution with it here.
    pub warnings: Vec<Warning>,
}

/// Features of a CUPTI beyond those of 12.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Features {
    /// Ids of executable graphs (12.3+).
    pub graph_exec_ids: bool,
    /// Activity buffers for each thread (12.3+).
    pub per_thread_buffers: bool,
    /// Kernel times from the hardware, on Blackwell and later (12.8+).
    pub hardware_trace: bool,
    /// The metrics of chips, and the number of passes they take (12.6+).
    pub metrics: bool,
    /// Hardware counters over ranges and kernels (12.6 update 2 and later).
    pub range_counters: bool,
    /// Hardware counters at intervals (12.8+).
    pub sampled_counters: bool,
    /// Works without a buffer if it gets none, and counts the records that it drops (12.9+).
    pub does_without_buffers: bool,
    /// Reports the name of its holder (13.0+).
    pub names_holder: bool,
    /// Separate records for each subscriber (13.2+).
    pub records_v2: bool,
    /// Several subscribers at a time, with a driver of release 610 or later (13.3+). This crate
    /// does not use it yet.
    pub several_subscribers: bool,
}

impl Features {
    /// Returns each feature with its display name.
    pub fn list(&self) -> [(&'static str, bool); 10] {
        [
            ("ids of executable graphs", self.graph_exec_ids),
            ("buffers for each thread", self.per_thread_buffers),
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

/// The holder of CUPTI's only subscriber slot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// Nobody: a collector can start.
    Nobody,
    /// A collector of this crate.
    ThisCrate,
    /// Another subscriber, with its name if CUPTI reports it.
    Other(Option<String>),
    /// The holder could not be determined, with the reason.
    Unknown(String),
}

/// The permission to read hardware counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counters {
    /// Everybody, or this process, may read them.
    Allowed,
    /// Only administrators may read them; this process has no such rights.
    AdministratorsOnly,
    /// The kernel module does not report it.
    Unknown,
}

/// A way to use hardware counters, and what prevents it here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterWay {
    /// The name of its purpose.
    pub name: &'static str,
    /// The first reason why it is unavailable; `None` if no reason is known. CUPTI may still refuse
    /// if a GPU is partitioned (MIG), virtual or in confidential mode, which only an attempt shows.
    pub hindrance: Option<String>,
}

const METRICS: &str = "metrics and passes";

/// The control daemon of the Multi-Process Service listens here, unless `CUDA_MPS_PIPE_DIRECTORY`
/// names another path.
const MPS_PIPES: &str = "/tmp/nvidia-mps";
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The variables that matter, by name.
const VARIABLES: [&str; 6] = [
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "CUDA_VISIBLE_DEVICES",
    MPS_VARIABLE,
    PATH_VARIABLE,
];

/// The version of this crate.
#[must_use]
pub const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Examines driver, devices, CUPTI and its holder, and permissions. Never fails: the result
/// contains what is missing.
///
/// Opens the driver and CUPTI as [`Library::open`] does, and subscribes for a moment to see whether
/// the slot is free. The libraries that CUPTI needs for metrics are mapped too, and stay mapped.
/// Without a driver, these and a CUPTI are opened as [`HostLibrary::open`] finds them.
#[must_use]
pub fn support() -> Support {
    // Before this function maps a CUPTI itself.
    let mapped = loader::mapped_files();
    match Library::open() {
        Ok(library) => library.support(),
        Err(error) => Support {
            driver: driver::probe(),
            cupti: Err(error),
            holder: Holder::Unknown("no CUPTI was found".into()),
            counters: counters(),
            metrics: HostLibrary::open().map(|library| library.version()),
            has_mps: has_mps(),
            mapped,
            variables: variables(),
        },
    }
}

impl Library {
    /// Returns the profiling support with this library here. Subscribes for a moment to see whether
    /// the slot is free.
    pub fn support(&self) -> Support {
        let holder = self.holder();
        let cupti = match self.unusable {
            // The holder brought its own CUPTI and is the first obstacle.
            Some(why) if !matches!(holder, Holder::Other(_)) => Err(self.refuse(why)),
            _ => Ok(Cupti {
                path: self.path().to_owned(),
                version: self.version(),
                features: self.features(),
                warnings: self.warnings(),
            }),
        };
        Support {
            driver: Ok(self.driver().clone()),
            cupti,
            holder,
            counters: counters(),
            metrics: self.host_api().map(|_| self.version()),
            has_mps: has_mps(),
            mapped: loader::mapped_files(),
            variables: variables(),
        }
    }

    /// Returns the features of this library beyond CUPTI 12.0.
    pub fn features(&self) -> Features {
        let release = self.version().cuda_release();
        Features {
            graph_exec_ids: self.api.get_graph_exec_id.is_some(),
            per_thread_buffers: release >= (12, 3),
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
        // Held through the attempt, so that no collector of this crate meets it.
        let _turn = match CollectorLease::take() {
            Ok(turn) => turn,
            Err(error) if error.is_busy() => return Holder::ThisCrate,
            Err(error) => return Holder::Unknown(error.to_string()),
        };
        match self.api.subscription() {
            Ok(_) => {
                safe::unsubscribe_if_silent();
                Holder::Nobody
            }
            Err(error) if error.is_busy() => Holder::Other(error.holder().map(str::to_owned)),
            Err(error) => Holder::Unknown(error.to_string()),
        }
    }
}

impl Support {
    /// True if a collector could start now.
    pub fn is_ready(&self) -> bool {
        self.driver.is_ok() && self.cupti.is_ok() && self.holder == Holder::Nobody
    }

    /// Returns advice about missing or unusual things, in sentences.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let errors = [self.driver.as_ref().err(), self.cupti.as_ref().err()];
        // Without a driver there is no CUPTI either, for the same reason.
        advice.extend(errors.into_iter().flatten().next().map(sentence));
        if let Ok(cupti) = &self.cupti {
            advice.extend(cupti.warnings.iter().map(sentence));
            if cupti.version.keeps_launches() {
                advice.push(format!(
                    "CUPTI {} leaks some 30 bytes per launch once a CUDA graph was captured: for runs of hours, set \
                     CUPTI_LIBRARY_PATH to a libcupti of 13.4 or later (package nvidia-cuda-cupti), which works \
                     with a CUDA 13.0 driver.",
                    cupti.version
                ));
            }
        }
        match &self.holder {
            Holder::ThisCrate => advice.push("Stop the collector that runs to start another.".into()),
            Holder::Other(_) => advice.push(
                "Run without nsys, ncu, compute-sanitizer or another profiler to have GPU records; ranges go on as \
                 NVTX."
                    .into(),
            ),
            Holder::Unknown(why) if self.cupti.is_ok() => advice.push(sentence(why)),
            _ => {}
        }
        if self.counters == Counters::AdministratorsOnly {
            advice.push(
                "For hardware counters ask an administrator to load the kernel module with \
                 NVreg_RestrictProfilingToAdminUsers=0 (a line \"options nvidia \
                 NVreg_RestrictProfilingToAdminUsers=0\" in /etc/modprobe.d, then a reboot), or \
                 to give the process CAP_SYS_ADMIN (of a container: --cap-add=SYS_ADMIN); records \
                 do not need it."
                    .into(),
            );
        }
        if self.has_mps && self.driver.is_ok() {
            advice.push(
                "The Multi-Process Service seems to run: for hardware counters use a GPU without it, or end it \
                 (echo quit | nvidia-cuda-mps-control); records do not need it."
                    .into(),
            );
        }
        advice
    }

    /// Returns the availability of hardware counters here: the list of metrics, counters of ranges
    /// and kernels, and counters at intervals.
    pub fn counter_ways(&self) -> [CounterWay; 3] {
        let lacks = |has: fn(&Features) -> bool, since| match &self.cupti {
            Ok(cupti) if !has(&cupti.features) => {
                Some(format!("CUPTI {} is too old: {since} and later have them", cupti.version))
            }
            _ => None,
        };
        let way = |name, hindrance| CounterWay { name, hindrance };
        let ranges = self.against_counting((7, 5), "Turing");
        let intervals = self.against_counting((8, 6), "GA10x");
        [
            way(METRICS, self.metrics.as_ref().err().map(Error::to_string)),
            way(
                "of ranges and kernels",
                ranges.or_else(|| lacks(|has| has.range_counters, "12.6 update 2")),
            ),
            way("at intervals", intervals.or_else(|| lacks(|has| has.sampled_counters, "12.8"))),
        ]
    }

    /// Returns a known reason against counting on a device of this architecture or later.
    fn against_counting(&self, oldest: (u32, u32), name: &str) -> Option<String> {
        let driver = match (&self.driver, &self.cupti) {
            (Err(_), _) => return Some("there is no GPU available".into()),
            (_, Err(_)) => return Some("there is no CUPTI available".into()),
            (Ok(driver), Ok(_)) => driver,
        };
        if driver.devices.iter().all(|device| device.compute_capability < oldest) {
            return Some(format!("no GPU here is of {name} or later"));
        }
        if self.counters == Counters::AdministratorsOnly {
            return Some("only administrators may read them, and this process is not one".into());
        }
        if self.has_mps {
            return Some("the Multi-Process Service seems to run (its pipe is there)".into());
        }
        match &self.holder {
            Holder::Other(Some(name)) => Some(format!("{name} holds CUPTI")),
            Holder::Other(None) => Some("another tool holds CUPTI".into()),
            _ => None,
        }
    }
}

fn has_mps() -> bool {
    let named = std::env::var_os(MPS_VARIABLE).filter(|folder| !folder.is_empty());
    let pipes = named.map_or_else(|| MPS_PIPES.into(), PathBuf::from);
    pipes.join("control").exists()
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

fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(driver) => {
                let (major, minor) = driver.cuda_release();
                let release = driver.release.as_deref().unwrap_or("of unknown version");
                // Texts of the driver and of other tools may contain terminal escape sequences.
                let release = release.escape_debug();
                writeln!(f, "driver     {release}, serves CUDA {major}.{minor}")?;
                for device in &driver.devices {
                    writeln!(
                        f,
                        "GPU {:<6} {}: sm_{}{}, {} SMs, {} GiB",
                        device.id,
                        device.name.escape_debug(),
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
                writeln!(f, "CUPTI      {}, {}", cupti.version, shown(&cupti.path))?;
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
        writeln!(f, "held by    {}", holder.escape_debug())?;
        let counters = match self.counters {
            Counters::Allowed => "may be read",
            Counters::AdministratorsOnly => "administrators only",
            Counters::Unknown => "unknown: the kernel module does not report it",
        };
        writeln!(f, "counters   {counters}")?;
        for way in self.counter_ways() {
            let hindrance =
                way.hindrance.map_or("yes".to_owned(), |why| format!("no: {}", why.escape_debug()));
            let of = match (&self.metrics, way.name) {
                (Ok(version), METRICS) => format!(", of CUPTI {version}"),
                _ => String::new(),
            };
            writeln!(f, "  {:<22} {hindrance}{of}", way.name)?;
        }
        let mapped: Vec<_> = self.mapped.iter().map(|file| shown(file)).collect();
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
    use crate::device::Device;
    use crate::error::Kind;

    #[test]
    fn module_parameter_restricts_counters_to_administrators() {
        let (admin, user) = ("Name: x\nCapEff:\t000001ffffffffff\n", "CapEff:\t00000000a80425fb\n");
        let (open, closed) = ("RmProfilingAdminOnly: 0\n", "A: 1\nRmProfilingAdminOnly: 1\nB: 2\n");
        assert_eq!(counters_in(open, user), Counters::Allowed);
        assert_eq!(counters_in(closed, admin), Counters::Allowed);
        assert_eq!(counters_in(closed, user), Counters::AdministratorsOnly);
        assert_eq!(counters_in("", admin), Counters::Unknown);
    }

    fn support() -> Support {
        let device = Device {
            id: 0,
            name: "Some GPU".into(),
            compute_capability: (9, 0),
            multiprocessors: 1,
            memory_bytes: 1,
            core_clock_khz: None,
            memory_bandwidth: None,
            l2_bytes: None,
            pci_bus_id: None,
        };
        let features =
            Features { range_counters: true, sampled_counters: true, ..Features::default() };
        let version = Version(130_001);
        Support {
            driver: Ok(Driver { cuda_version: 13000, release: None, devices: vec![device] }),
            cupti: Ok(Cupti { path: PathBuf::new(), version, features, warnings: Vec::new() }),
            holder: Holder::Nobody,
            counters: Counters::Allowed,
            metrics: Ok(version),
            has_mps: false,
            mapped: Vec::new(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn texts_of_the_driver_and_of_other_tools_move_no_cursor() {
        let mut hostile = support();
        let text = "\u{1b}[2J\u{9b}\u{202e}\u{200b}\nGPU 1".to_owned();
        if let Ok(driver) = &mut hostile.driver {
            driver.devices[0].name.clone_from(&text);
            driver.release = Some(text.clone());
        }
        if let Ok(cupti) = &mut hostile.cupti {
            cupti.path = PathBuf::from(&text);
        }
        hostile.holder = Holder::Other(Some(text.clone()));
        hostile.mapped = vec![PathBuf::from(&text)];
        let shown = hostile.to_string();
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{200b}']), "{shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("GPU 1")), "{shown}");
        assert_eq!(shown.matches("\\u{1b}[2J").count(), 7, "{shown}");
    }

    #[test]
    fn leak_of_old_cupti_is_reported_with_its_remedy() {
        let advice = |number| {
            let mut support = support();
            if let Ok(cupti) = &mut support.cupti {
                cupti.version = Version(number);
            }
            support.advice()
        };
        for keeps in [130_001, 130_101, 130_300] {
            let advice = advice(keeps);
            let [text] = &advice[..] else { panic!("{advice:?}") };
            assert!(text.contains("13.4") && text.contains("CUPTI_LIBRARY_PATH"), "{text}");
        }
        for keeps_none in [26, 28, 130_400, 130_500] {
            assert_eq!(advice(keeps_none), Vec::<String>::new(), "{keeps_none}");
        }
    }

    /// What stands in the way of each.
    fn against(support: &Support) -> [Option<String>; 3] {
        support.counter_ways().map(|way| way.hindrance)
    }

    #[test]
    fn hindrances_of_counters_are_named() {
        assert_eq!(against(&support()), [None, None, None]);
        let changed = |change: &dyn Fn(&mut Support)| {
            let mut changed = support();
            change(&mut changed);
            let text = changed.to_string();
            let [metrics, ranges, intervals] = against(&changed);
            assert!(text.contains(&format!("no: {}", intervals.clone().unwrap())), "{text}");
            (metrics, ranges.unwrap_or_default(), intervals.unwrap_or_default(), text)
        };
        let capable = |capability| {
            changed(&move |support: &mut Support| {
                if let Ok(driver) = &mut support.driver {
                    driver.devices[0].compute_capability = capability;
                }
            })
        };
        let (_, ranges, intervals, _) = capable((7, 5));
        assert!(ranges.is_empty() && intervals.contains("GA10x"), "{ranges} {intervals}");
        assert!(capable((7, 0)).1.contains("Turing"));
        let (_, ranges, _, text) =
            changed(&|support| support.counters = Counters::AdministratorsOnly);
        assert!(ranges.contains("administrators") && text.contains("modprobe.d"), "{text}");
        let (_, ranges, _, text) = changed(&|support| support.has_mps = true);
        assert!(ranges.contains("Multi-Process") && text.contains("echo quit"), "{text}");
        let (_, ranges, ..) =
            changed(&|support| support.holder = Holder::Other(Some("nsys".into())));
        assert_eq!(ranges, "nsys holds CUPTI");
        let (_, ranges, intervals, _) = changed(&|support| {
            if let Ok(cupti) = &mut support.cupti {
                cupti.features.sampled_counters = false;
            }
        });
        assert!(ranges.is_empty() && intervals.contains("12.8"), "{intervals}");
        // Metrics can be listed without a GPU, too.
        let (metrics, ranges, ..) =
            changed(&|support| support.driver = Err(Error::new(Kind::NoDevice)));
        assert_eq!((metrics, &*ranges), (None, "there is no GPU available"));
    }
}
