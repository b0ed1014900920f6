//! A loaded CUPTI, and the driver's facts about the machine.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::accessors::getters;
use crate::device::Driver;
use crate::error::{Error, Kind};
use crate::sys::api::Api;
use crate::sys::{driver, loader};
use crate::version::{NEWEST, Version};

/// CUPTI, found and loaded at run time, on a machine whose driver works.
///
/// Cheap to clone. Nothing is ever unloaded: CUPTI's worker thread lives as long as the process.
///
/// # Versions
///
/// CUPTI 12.0 to 13.5 are known. The offset of every record field was compared with NVIDIA's
/// headers, and every record's length with the libraries themselves. A library of another major
/// version, such as 14, is refused ([`is_unavailable`](Error::is_unavailable)): its structures may
/// differ.
///
/// A newer minor version of 13 is used, with a [`Warning`], since within 12 and 13 records and
/// structures only grew at their end. With such a library, a record shorter than in 13.5 is counted
/// ([`Losses::irregular`](crate::Losses::irregular)) and no pointer in it is followed. Memory that
/// a record leaves to its reader is freed only if the record has the length of 13.5.
#[derive(Debug, Clone)]
pub struct Library {
    pub(crate) api: Api,
    path: PathBuf,
    version: Version,
    driver: Driver,
    /// The result of [`find_devices`](Self::find_devices), for all clones.
    found: Arc<OnceLock<Driver>>,
    /// The reason why it must not collect; reported at a start, after a check for other users.
    pub(crate) unusable: Option<&'static str>,
}

impl Library {
    /// Opens CUPTI from its usual locations, or from the file that `CUPTI_LIBRARY_PATH` names.
    ///
    /// The order: a libcupti this process has mapped already; the folders of the CUDA libraries and
    /// Python packages that it has mapped; the folders of the environment (`VIRTUAL_ENV`,
    /// `CONDA_PREFIX`) and of the toolkit (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`,
    /// `/opt/cuda`); the dynamic linker's own search. An empty variable counts as unset. The
    /// driver's major version is preferred. The first call initialises the driver (`cuInit`), which
    /// takes tens of milliseconds if it was not initialised before.
    ///
    /// # Errors
    ///
    /// [`is_unavailable`](Error::is_unavailable): no driver, no device, no libcupti, or one that is
    /// too old or broken.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(loader::open)
    }

    /// Opens CUPTI as [`open`](Self::open) does, without initialising the driver: for a library
    /// that the driver loads while it initialises. [`driver`](Self::driver) has no devices until
    /// [`find_devices`](Self::find_devices).
    ///
    /// # Errors
    /// As [`open`](Self::open), except for a machine without a device.
    #[doc(hidden)]
    pub fn open_within_initialisation() -> Result<Self, Error> {
        Self::open_for(driver::facts_without_devices()?, loader::open)
    }

    /// Initialises the driver, and adds its devices to the facts about it. Waits for an
    /// initialisation that is under way on another thread.
    ///
    /// # Errors
    /// The driver's refusal, or a machine without a device.
    #[doc(hidden)]
    pub fn find_devices(&self) -> Result<(), Error> {
        let found = driver::probe()?;
        let _ = self.found.set(found);
        Ok(())
    }

    /// Opens a library with `open`, whose argument is the driver's major version.
    pub(crate) fn open_with(
        open: impl FnOnce(u32) -> Result<loader::Found, Error>,
    ) -> Result<Self, Error> {
        Self::open_for(driver::probe()?, open)
    }

    fn open_for(
        driver: Driver,
        open: impl FnOnce(u32) -> Result<loader::Found, Error>,
    ) -> Result<Self, Error> {
        let (api, path, mapped) = open(driver.cuda_version / 1000)?;
        let library = Self::from_parts(api, path, driver)?;
        match library.unusable {
            // An attached tool brings its own CUPTI. The better answer then is that the tool holds
            // it.
            Some(why) if !mapped => Err(library.refuse(why)),
            _ => Ok(library),
        }
    }

    #[cold]
    pub(crate) fn refuse(&self, why: &'static str) -> Error {
        Error::new(Kind::Unusable { path: self.path.clone(), version: self.version.0, why })
    }

    #[cold]
    pub(crate) fn lacks(&self, what: String, since: &'static str) -> Error {
        Error::new(Kind::Lacks { what, since, version: self.version })
    }

    /// Builds a library from its function table; checks that it can be used.
    pub(crate) fn from_parts(api: Api, path: PathBuf, driver: Driver) -> Result<Self, Error> {
        let version = Version(api.version()?);
        let known_bad = "CUPTI 13.0 before update 1 deadlocks and crashes (fixed in 13.0.85)";
        let unusable = (version.0 == 130_000).then_some(known_bad);
        let library = Self { api, path, version, driver, found: Arc::default(), unusable };
        match version.why_unusable() {
            Some(why) => Err(library.refuse(why)),
            None => Ok(library),
        }
    }

    getters! {
        /// The file it was loaded from, or the name under which it was already mapped.
        path: &Path = path;
        /// CUPTI's API version.
        version: Version = version;
    }

    /// The driver and its devices.
    pub fn driver(&self) -> &Driver {
        self.found.get().unwrap_or(&self.driver)
    }

    /// Waits for all work of the CUDA context that is current on the calling thread
    /// (`cuCtxSynchronize`). Returns `false` without one, and does not wait.
    ///
    /// # Errors
    /// The driver's refusal, which may be an error of earlier work; and in a forked child.
    pub fn synchronize_context(&self) -> Result<bool, Error> {
        let contexts = self.api.contexts()?;
        if contexts.current()?.is_none() {
            return Ok(false);
        }
        contexts.synchronize().map(|()| true)
    }

    /// True if both are the same library of this process, whatever path they were opened by.
    pub fn is_same(&self, other: &Self) -> bool {
        let function = |library: &Self| library.api.get_next_record as usize;
        function(self) == function(other) && self.version == other.version
    }

    /// Returns reasons for caution with this library here, even if it works. Reads
    /// `/proc/self/maps`.
    pub fn warnings(&self) -> Vec<Warning> {
        warnings(self.version, self.driver(), loader::mapped_files())
    }
}

fn warnings(version: Version, driver: &Driver, mapped: Vec<PathBuf>) -> Vec<Warning> {
    let majors: BTreeSet<_> = mapped.iter().filter_map(|file| loader::major(file)).collect();
    let (release, newest) = (version.cuda_release(), driver.cuda_release());
    let cuda_version = driver.cuda_version;
    let mut warnings = Vec::new();
    if release > newest {
        warnings.push(Warning::NewerThanDriver { version, cuda_version });
    } else if release.0 < newest.0 {
        warnings.push(Warning::OlderThanDriver { version, cuda_version });
    }
    if release > NEWEST {
        warnings.push(Warning::NewerThanKnown { version });
    }
    if majors.len() > 1 {
        warnings.push(Warning::SeveralMapped { files: mapped });
    }
    warnings
}

impl Driver {
    /// The newest CUDA release it supports, as (major, minor).
    pub fn cuda_release(&self) -> (u32, u32) {
        (self.cuda_version / 1000, self.cuda_version / 10 % 100)
    }
}

/// A reason for caution with a library on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The library is of a newer CUDA release than the driver supports. Within a major version it
    /// mostly works; otherwise a start fails.
    NewerThanDriver {
        /// The library's version.
        version: Version,
        /// The driver's version, as in [`Driver::cuda_version`].
        cuda_version: u32,
    },
    /// The library is of an older major version than the driver's. It works, but lacks later
    /// additions.
    OlderThanDriver {
        /// The library's version.
        version: Version,
        /// The driver's version, as in [`Driver::cuda_version`].
        cuda_version: u32,
    },
    /// The library is of a newer minor version than this crate was compared with. See [`Library`]
    /// for the consequences.
    NewerThanKnown {
        /// The library's version.
        version: Version,
    },
    /// The process has mapped libcuptis of several major versions. They compete for the driver's
    /// only subscriber slot.
    SeveralMapped {
        /// The files.
        files: Vec<PathBuf>,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuda = |version: &u32| format!("{}.{}", version / 1000, version / 10 % 100);
        match self {
            Self::NewerThanDriver { version, cuda_version } => write!(
                f,
                "CUPTI {version} is newer than the driver, which serves CUDA {}: one of that release, or a newer \
                 driver, is the safe choice",
                cuda(cuda_version)
            ),
            Self::OlderThanDriver { version, cuda_version } => write!(
                f,
                "CUPTI {version} is of an older major version than the driver, which supports CUDA {}: it works, \
                 without later features",
                cuda(cuda_version)
            ),
            Self::NewerThanKnown { version } => write!(
                f,
                "CUPTI {version} is newer than {}.{}, the newest that this version of cupti-rs \
                 was compared with: records that differ in length are read as far as they are \
                 known; a CUPTI of that release is the safe choice",
                NEWEST.0, NEWEST.1
            ),
            Self::SeveralMapped { files } => {
                write!(
                    f,
                    "this process has mapped libcuptis of several major versions, which fight for one place: "
                )?;
                let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
                write!(f, "{}; have its packages agree on one CUDA major version", files.join(", "))
            }
        }
    }
}

/// Opens a libcupti for what needs no GPU.
pub(crate) fn open_without_gpu(
    open: impl FnOnce(u32) -> Result<loader::Found, Error>,
) -> Result<(Api, Version, PathBuf), Error> {
    let driver = driver::probe();
    let major = driver.as_ref().map_or(13, |driver| driver.cuda_version / 1000);
    let (api, path, _) = open(major)?;
    // Libraries from 13.2 on, which have this function, crash or return nothing without a driver.
    if api.records_v2 {
        driver?;
    }
    let version = Version(api.version()?);
    if let Some(why) = version.why_unusable() {
        return Err(Error::new(Kind::Unusable { path, version: version.0, why }));
    }
    Ok((api, version, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_majors_in_one_process_are_a_warning_and_one_is_not() {
        let driver = Driver { cuda_version: 12_080, release: None, devices: Vec::new() };
        let of = |files: &[&str]| {
            warnings(Version(26), &driver, files.iter().map(PathBuf::from).collect())
        };
        let (twelve, thirteen) = ("/a/libcupti.so.2025.1.1", "/b/libcupti.so.13");
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[twelve, "/c/libcupti.so.12"]), []);
        let [warning] = &of(&[twelve, thirteen])[..] else { unreachable!() };
        let text = warning.to_string();
        assert!(text.contains(twelve) && text.contains(thirteen), "{text}");
        assert_eq!(warnings(Version(27), &driver, Vec::new()).len(), 1, "12.9 is newer than 12.8");
    }

    #[test]
    fn newest_known_release_matches_the_layouts() {
        let newest = crate::sys::generated::FAMILIES
            .iter()
            .flat_map(|(_, strides)| strides.iter().map(|(since, _)| *since))
            .max();
        assert_eq!(newest, Some(NEWEST));
    }

    #[test]
    fn a_major_version_that_is_not_known_is_refused_and_a_minor_is_a_warning() {
        let why = |version| Version(version).why_unusable();
        assert!(why(17).is_some_and(|why| why.contains("older than CUPTI 12.0")));
        for known in [18, 28, 130_001, 130_500, 130_600, 139_900] {
            assert_eq!(why(known), None, "{known}");
        }
        for unknown in [140_000, 141_203, 200_000, u32::MAX] {
            let why = why(unknown).unwrap_or_default();
            assert!(
                why.contains("12 and 13") && why.contains("update cupti-rs"),
                "{unknown}: {why}"
            );
        }
        let driver = Driver { cuda_version: 13_090, release: None, devices: Vec::new() };
        let of = |version| warnings(Version(version), &driver, Vec::new());
        assert_eq!(of(130_500), []);
        assert_eq!(of(130_600), [Warning::NewerThanKnown { version: Version(130_600) }]);
    }

    #[test]
    fn versions_read_as_their_cuda_release() {
        let releases = [18, 20, 23, 24, 26, 27, 28, 130_001, 130_101, 130_500]
            .map(|v| Version(v).cuda_release());
        let expected = [
            (12, 0),
            (12, 2),
            (12, 5),
            (12, 6),
            (12, 8),
            (12, 9),
            (12, 9),
            (13, 0),
            (13, 1),
            (13, 5),
        ];
        assert_eq!(releases, expected);
        assert_eq!(Version(130_001).to_string(), "13.0 (API 130001)");
    }
}
