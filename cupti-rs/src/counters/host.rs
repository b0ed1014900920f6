//! The metrics of a chip, without a GPU.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::data::CounterData;
use super::measured::Measured;
use super::plan::Plan;
use super::sets::Set;
use crate::accessors::{getters, named};
use crate::error::{Error, Kind};
use crate::library::{self, Library};
use crate::sys::abi::CuptiResult;
use crate::sys::counters::HostApi;
use crate::sys::host::{HostObject, Properties};
use crate::sys::loader;
use crate::version::Version;

/// The method of counting (`CUpti_ProfilerType`). Some metrics support only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Over ranges or single kernels, in several passes if required.
    Ranges = 0,
    /// At intervals, in one pass.
    Sampling = 1,
}

named! {
    /// The kind of a metric, in the order of `CUpti_MetricType`.
    #[derive(PartialOrd, Ord)]
    MetricKind {
        /// Counted events; its roll-ups are sums, averages, minima and maxima over the units of the
        /// chip.
        Counter = "counter",
        /// A quotient of two counters.
        Ratio = "ratio",
        /// The utilization of a unit relative to its peak, from several counters.
        Throughput = "throughput",
    }
}

/// One metric of a chip (`cuptiProfilerHostGetMetricProperties`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, as requested.
    pub name: String,
    /// The kind.
    pub kind: MetricKind,
    /// NVIDIA's description.
    pub description: String,
    /// The hardware unit, such as `dram` or `smsp`.
    pub hardware_unit: String,
    /// The dimension of the counter, such as `byte`, also for roll-ups with `pct`; empty if none.
    pub dimension: String,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.kind, self.hardware_unit)?;
        if !self.dimension.is_empty() {
            write!(f, ", in {}", self.dimension)?;
        }
        write!(f, "): {}", self.description)
    }
}

/// A libcupti for queries of metrics. Unlike [`Library`] it needs no GPU, and up to CUPTI 13.1 no
/// driver.
#[derive(Debug, Clone)]
pub struct HostLibrary {
    api: HostApi,
    version: Version,
    path: PathBuf,
}

impl HostLibrary {
    /// Opens the libcupti that [`Library::open`] would open.
    ///
    /// # Errors
    ///
    /// [`is_unavailable`](Error::is_unavailable): no libcupti, or one of 13.2 or later without a
    /// driver. [`is_unsupported`](Error::is_unsupported): it is older than 12.6.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(loader::open)
    }

    pub(crate) fn open_with(
        open: impl FnOnce(u32) -> Result<loader::Found, Error>,
    ) -> Result<Self, Error> {
        let (api, version, path) = library::open_without_gpu(open)?;
        loader::map_companions(&path);
        match api.host {
            Some(api) => Ok(Self { api, version, path }),
            None => Err(Error::new(Kind::Lacks {
                what: "metrics of chips (the Profiler Host interface)".into(),
                since: "12.6",
                version,
            })),
        }
    }

    getters! {
        /// Its version.
        version: Version = version;
        /// The file it was loaded from, or the name under which it was already mapped.
        path: &Path = path;
    }

    /// The supported chips, such as `GH100` of the H100 and H200.
    ///
    /// # Errors
    /// CUPTI refuses.
    pub fn chips(&self) -> Result<Vec<String>, Error> {
        self.api.chip_names()
    }

    /// The metrics of a chip for ranges. Takes some 150 ms the first time.
    ///
    /// # Errors
    ///
    /// [`is_unsupported`](Error::is_unsupported): the library does not support the chip; the text
    /// lists the supported ones.
    pub fn host(&self, chip: &str) -> Result<Host, Error> {
        Host::new(self.api, self.version, chip, Method::Ranges, None)
    }
}

impl Library {
    pub(crate) fn host_api(&self) -> Result<HostApi, Error> {
        loader::map_companions(self.path());
        self.api.host.ok_or_else(|| self.lacks("metrics of chips".into(), "12.6"))
    }

    /// The same library, for queries of metrics.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported): it is older than 12.6.
    pub fn metrics(&self) -> Result<HostLibrary, Error> {
        let api = self.host_api()?;
        Ok(HostLibrary { api, version: self.version(), path: self.path().to_owned() })
    }
}

/// The metrics of one chip for one method of counting (CUPTI's Profiler Host interface).
///
/// ```no_run
/// # fn main() -> Result<(), cupti::Error> {
/// let host = cupti::counters::HostLibrary::open()?.host("GH100")?; // no GPU needed
/// let plan = host.plan(["dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"])?;
/// assert_eq!(plan.passes(), 1); // the work need not run twice
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Host {
    api: HostApi,
    version: Version,
    chip: String,
    method: Method,
    availability: Option<Box<[u8]>>,
    object: HostObject,
}

impl Host {
    pub(super) fn new(
        api: HostApi,
        version: Version,
        chip: &str,
        method: Method,
        availability: Option<Box<[u8]>>,
    ) -> Result<Self, Error> {
        match HostObject::new(api, method as u32, &c_string(chip)?, availability.clone()) {
            Ok(object) => {
                Ok(Self { api, version, chip: chip.to_owned(), method, availability, object })
            }
            Err(error) => {
                // If the query of chips also fails, the first error is more useful.
                let known = api.chip_names().unwrap_or_default();
                if known.is_empty() || known.iter().any(|known| known == chip) {
                    return Err(error);
                }
                Err(Error::new(Kind::UnknownChip { chip: chip.to_owned(), known, version }))
            }
        }
    }

    /// The same chip's metrics for another method of counting.
    ///
    /// # Errors
    /// CUPTI refuses.
    pub fn with_method(&self, method: Method) -> Result<Self, Error> {
        // The availability on a device depends on the method.
        Self::new(self.api, self.version, &self.chip, method, None)
    }

    getters! {
        /// The chip's name.
        chip: &str = chip;
        /// The method of counting.
        method: Method = method;
        /// The library's version; metrics differ between versions.
        version: Version = version;
    }

    /// The names of all metrics of a kind, without their roll-ups. GH100 has some 3,400 counters
    /// for ranges.
    ///
    /// # Errors
    /// CUPTI refuses.
    pub fn metrics(&self, kind: MetricKind) -> Result<Vec<String>, Error> {
        self.object.base_metrics(kind as u32)
    }

    /// The properties of a metric, with or without a roll-up.
    ///
    /// # Errors
    /// [`is_unsupported`](Error::is_unsupported): the chip has no such metric.
    pub fn describe(&self, metric: &str) -> Result<Metric, Error> {
        let known = self.known(metric)?;
        let kind = MetricKind::ALL.into_iter().find(|kind| *kind as u32 == known.metric_type);
        Ok(Metric {
            name: metric.to_owned(),
            kind: kind.unwrap_or(MetricKind::Counter),
            description: known.description,
            hardware_unit: known.hardware_unit,
            dimension: known.dimension,
        })
    }

    /// A metric by the name under which this library describes it.
    fn known(&self, metric: &str) -> Result<Properties, Error> {
        for roll_up in ROLL_UPS {
            let name = c_string(&format!("{metric}{roll_up}"))?;
            if let Some(known) = self.object.properties(&name)? {
                return Ok(known);
            }
        }
        Err(self.unknown(vec![metric.to_owned()]))
    }

    /// Plans to count these metrics together: names with roll-ups, without duplicates.
    ///
    /// # Errors
    ///
    /// [`is_unsupported`](Error::is_unsupported): the chip lacks some (the text names them), or
    /// they cannot be counted together, such as metrics of links with others.
    pub fn plan<M>(&self, metrics: M) -> Result<Plan, Error>
    where
        M: IntoIterator<Item: Into<String>>,
    {
        let names = each_once(metrics);
        let texts = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Err(Error::misuse("no metric was requested; name one"));
        }
        match self.try_plan(&texts) {
            Ok((object, image)) => self.planned(names, texts, object, image),
            Err(error) => Err(self.why_not(error, names)),
        }
    }

    /// As [`plan`](Self::plan), without the reason of a failure, which takes one plan per metric.
    pub(super) fn plan_if_possible<'m>(
        &self,
        names: impl Iterator<Item = &'m str>,
    ) -> Option<Plan> {
        let names = each_once(names);
        let texts = names.iter().map(|name| c_string(name)).collect::<Result<Vec<_>, _>>().ok()?;
        let (object, image) = self.try_plan(&texts).ok()?;
        self.planned(names, texts, object, image).ok()
    }

    fn planned(
        &self,
        names: Vec<String>,
        texts: Vec<CString>,
        object: HostObject,
        mut image: Vec<u8>,
    ) -> Result<Plan, Error> {
        let passes = self.api.passes_of(&mut image)?;
        Ok(Plan { metrics: names, names: texts, object, image, passes, chip: self.chip.clone() })
    }

    /// Evaluates raw counts of [`RangeProfiler::collect`](super::RangeProfiler::collect), without a
    /// GPU. A library of the same release returns the same values bit for bit; others may redefine
    /// metrics, as 13.0 did with throughputs. CUPTI trusts the counts: evaluate only those that you
    /// trust ([`CounterData`]).
    ///
    /// # Errors
    /// The counts are of another chip. [`is_unsupported`](Error::is_unsupported): this library
    /// lacks one of the metrics. CUPTI refuses.
    pub fn evaluate(&self, data: &CounterData) -> Result<Measured, Error> {
        if data.chip() != self.chip {
            return Err(Error::misuse(format!(
                "counters of {0} cannot be evaluated with the metrics of {1}: create a host for {0}",
                data.chip(),
                self.chip
            )));
        }
        self.plan(data.metrics())?.measured(data)
    }

    /// The metrics of a set that this chip has, and those that it lacks.
    ///
    /// # Errors
    /// CUPTI refuses.
    pub fn of_set(&self, set: Set) -> Result<(Vec<&'static str>, Vec<&'static str>), Error> {
        let mut refused = None;
        let found = set.split(|metric| {
            let known = c_string(metric).and_then(|name| self.object.properties(&name));
            known.map_err(|error| refused.get_or_insert(error)).is_ok_and(|known| known.is_some())
        });
        refused.map_or(Ok(found), Err)
    }

    fn try_plan(&self, names: &[CString]) -> Result<(HostObject, Vec<u8>), Error> {
        // An object accumulates metrics, so every plan has its own.
        let chip = c_string(&self.chip)?;
        let object =
            HostObject::new(self.api, self.method as u32, &chip, self.availability.clone())?;
        object.add_metrics(names)?;
        let image = object.config_image()?;
        Ok((object, image))
    }

    /// Finds the refused metric by a plan for each, since CUPTI does not name it.
    #[cold]
    fn why_not(&self, error: Error, metrics: Vec<String>) -> Error {
        let refused = |name: &String| {
            let planned = c_string(name).and_then(|name| self.try_plan(&[name]));
            planned.is_err()
        };
        let (unknown, known): (Vec<_>, Vec<_>) = metrics.into_iter().partition(refused);
        match error.code() {
            _ if !unknown.is_empty() => self.unknown(unknown),
            Some(code) => Error::new(Kind::NotTogether {
                chip: self.chip.clone(),
                metrics: known,
                code: CuptiResult(code),
            }),
            None => error,
        }
    }

    #[cold]
    fn unknown(&self, metrics: Vec<String>) -> Error {
        Error::new(Kind::UnknownMetrics { chip: self.chip.clone(), metrics, version: self.version })
    }
}

/// The roll-ups of counters, ratios and throughputs, since CUPTI before 13.0 describes no metric
/// without one.
const ROLL_UPS: [&str; 4] = ["", ".sum", ".ratio", ".avg.pct_of_peak_sustained_elapsed"];

fn c_string(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| Error::new(Kind::NotAName { name: name.to_owned() }))
}

fn each_once<M: Into<String>>(names: impl IntoIterator<Item = M>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    for name in names {
        let name = name.into();
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}
