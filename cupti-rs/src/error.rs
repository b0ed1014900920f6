//! The one error type of this crate.

use std::fmt;
use std::path::PathBuf;

use crate::kind::ActivityKind;
use crate::sys::abi::CuptiResult;
use crate::version::Version;

/// Names libcupti's file; then no other path is tried.
pub(crate) const PATH_VARIABLE: &str = "CUPTI_LIBRARY_PATH";

/// The reason why CUPTI could not do what was requested.
///
/// The type is opaque; its methods cover what a caller can act on:
/// [`is_unavailable`](Self::is_unavailable) (no GPU, driver or usable CUPTI here),
/// [`is_busy`](Self::is_busy) (another subscriber holds CUPTI),
/// [`is_permission`](Self::is_permission). Its text contains what failed, why, and what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Kind>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// libcuda could not be opened.
    NoDriver { reason: String },
    /// A call into libcuda returned an error.
    Driver { function: &'static str, code: i32 },
    /// The driver works and reports no device.
    NoDevice,
    /// No libcupti could be opened, and these folders contain none.
    LibraryNotFound { tried: Vec<(PathBuf, String)>, folders: Vec<PathBuf> },
    /// The library opened but lacks a function.
    MissingSymbol { path: PathBuf, symbol: &'static str },
    /// The library is older than this crate can use, or is known to be broken.
    Unusable { path: PathBuf, version: u32, why: &'static str },
    /// Another subscriber holds CUPTI.
    Busy { holder: Option<String> },
    /// This process already collects through this crate.
    AlreadyCollecting,
    /// This process already counts through this crate.
    AlreadyMeasuring,
    /// This process was forked off from one that had used CUPTI.
    Forked,
    /// A CUPTI function failed.
    Call { function: &'static str, code: CuptiResult },
    /// The library has no such activity kind.
    UnknownActivity { kind: ActivityKind, code: CuptiResult, version: Version },
    /// A function of the counter interfaces failed.
    Counters { function: &'static str, code: CuptiResult },
    /// The chip has no such metrics.
    UnknownMetrics { chip: String, metrics: Vec<String>, version: Version },
    /// The metrics exist, but no single image can have them all.
    NotTogether { chip: String, metrics: Vec<String>, code: CuptiResult },
    /// The library does not support the chip.
    UnknownChip { chip: String, known: Vec<String>, version: Version },
    /// Not a valid name for CUPTI: it has a NUL.
    NotAName { name: String },
    /// More than the one allowed pass is needed.
    Passes { needed: usize },
    /// The program's contexts, ranges or metrics cannot be counted this way, or bytes are not
    /// counter data.
    Misuse { why: String },
    /// A file could not be read or written.
    File { path: PathBuf, reason: String },
    /// The thread that decodes samples could not start, or failed.
    Thread { reason: String },
    /// The library does not have what was requested.
    Lacks { what: String, since: &'static str, version: Version },
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Box::new(kind))
    }

    #[cold]
    pub(crate) fn call(function: &'static str, code: CuptiResult) -> Self {
        Self::new(Kind::Call { function, code })
    }

    #[cold]
    pub(crate) fn counters(function: &'static str, code: CuptiResult) -> Self {
        Self::new(Kind::Counters { function, code })
    }

    #[cold]
    pub(crate) fn misuse(why: impl Into<String>) -> Self {
        Self::new(Kind::Misuse { why: why.into() })
    }

    /// True if GPU records are unavailable: no driver, no device, no CUPTI, or one that cannot be
    /// used.
    pub fn is_unavailable(&self) -> bool {
        match &*self.0 {
            Kind::NoDriver { .. }
            | Kind::Driver { .. }
            | Kind::NoDevice
            | Kind::LibraryNotFound { .. }
            | Kind::MissingSymbol { .. }
            | Kind::Unusable { .. } => true,
            Kind::Call { code, .. } | Kind::Counters { code, .. } => {
                *code == CuptiResult::NOT_INITIALIZED
            }
            _ => false,
        }
    }

    /// True if another tool, or another collector of this process, holds CUPTI or the GPU's
    /// counters.
    pub fn is_busy(&self) -> bool {
        match &*self.0 {
            Kind::Busy { .. } | Kind::AlreadyCollecting | Kind::AlreadyMeasuring => true,
            // CUPTI refuses a second user of PC sampling with UNKNOWN.
            Kind::Counters { function: "cuptiPCSamplingEnable", code } => {
                matches!(*code, CuptiResult::HARDWARE_BUSY | CuptiResult::UNKNOWN)
            }
            Kind::Counters { code, .. } => *code == CuptiResult::HARDWARE_BUSY,
            _ => false,
        }
    }

    /// True if the library, or for counters the device, lacks what was requested: an activity kind,
    /// a filter, a function's name, a metric, a chip. A newer library may have it; request less.
    pub fn is_unsupported(&self) -> bool {
        match &*self.0 {
            Kind::UnknownActivity { .. }
            | Kind::Lacks { .. }
            | Kind::UnknownMetrics { .. }
            | Kind::UnknownChip { .. }
            | Kind::NotTogether { .. } => true,
            Kind::Counters { code, .. } => matches!(
                *code,
                CuptiResult::NOT_SUPPORTED
                    | CuptiResult::NOT_COMPATIBLE
                    | CuptiResult::CONFIDENTIAL_COMPUTING
                    | CuptiResult::CMP_DEVICE
                    | CuptiResult::MIG_DEVICE
                    | CuptiResult::SLI_DEVICE
                    | CuptiResult::WSL_DEVICE
                    | CuptiResult::INVALID_CHIP_NAME
            ),
            _ => false,
        }
    }

    /// True if CUPTI refused for lack of privileges.
    pub fn is_permission(&self) -> bool {
        match &*self.0 {
            Kind::Call { code, .. } | Kind::Counters { code, .. } => matches!(
                *code,
                CuptiResult::INSUFFICIENT_PRIVILEGES | CuptiResult::VIRTUALIZED_DEVICE
            ),
            _ => false,
        }
    }

    /// The name of CUPTI's holder, if that is the cause and CUPTI reports the name.
    pub fn holder(&self) -> Option<&str> {
        match &*self.0 {
            Kind::Busy { holder } => holder.as_deref(),
            _ => None,
        }
    }

    /// CUPTI's own result code, if a call of it failed.
    pub fn code(&self) -> Option<u32> {
        match &*self.0 {
            Kind::Call { code, .. }
            | Kind::Counters { code, .. }
            | Kind::NotTogether { code, .. }
            | Kind::UnknownActivity { code, .. } => Some(code.0),
            Kind::Busy { .. } => Some(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.0),
            _ => None,
        }
    }
}

/// The text of `Display`: `main` prints a returned error this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::NoDriver { reason } => write!(
                f,
                "no NVIDIA driver: libcuda.so.1 could not be opened ({reason}); GPU records need a machine with an \
                 NVIDIA GPU and its driver"
            ),
            Kind::Driver { function, code } => {
                let advice = driver_advice(*code);
                write!(f, "the NVIDIA driver refused {function}: CUDA error {code}{advice}")
            }
            Kind::NoDevice => f.write_str(
                "the NVIDIA driver works but shows no GPU to this process; check CUDA_VISIBLE_DEVICES",
            ),
            Kind::LibraryNotFound { tried, folders } => {
                f.write_str(&library_not_found(tried, folders))
            }
            Kind::MissingSymbol { path, symbol } => write!(
                f,
                "{} opened but has no function {symbol}: it is not CUPTI 12.0 or newer; name another file in \
                 {PATH_VARIABLE}",
                path.display()
            ),
            Kind::Unusable { path, version, why } => write!(
                f,
                "{} (CUPTI API version {version}) cannot be used: {why}; name another file in {PATH_VARIABLE}",
                path.display()
            ),
            Kind::Busy { holder } => {
                let name = holder.as_ref().map(|name| format!(" (it calls itself {name:?})"));
                write!(
                    f,
                    "another subscriber holds CUPTI in this process{}; CUPTI serves one at a \
                     time: run without nsys, ncu, compute-sanitizer or another profiler (39)",
                    name.unwrap_or_default()
                )
            }
            Kind::AlreadyCollecting => f.write_str(
                "this process already collects GPU records, or counts over ranges; CUPTI does \
                 one of these at a time: stop the first one",
            ),
            Kind::AlreadyMeasuring => f.write_str(
                "this process already reads hardware counters; CUPTI counts for one at a time: wait until that \
                 measurement has ended",
            ),
            Kind::Forked => f.write_str(
                "this process was forked off from one that had used CUPTI, which does not \
                 survive a fork: fork before CUDA or a profiler is used, or start a new program \
                 in the child (exec)",
            ),
            Kind::UnknownActivity { kind, code, version } => write!(
                f,
                "CUPTI {version} does not collect {kind} ({code}); leave the kind out, or request it only where it is \
                 known"
            ),
            Kind::Lacks { what, since: "", version } => write!(f, "CUPTI {version} has no {what}"),
            Kind::Lacks { what, since, version } => {
                write!(f, "CUPTI {version} has no {what}; {since} and later versions do")
            }
            Kind::Call { function, code } => {
                write!(f, "{function} failed: {code}{}", call_advice(*code))
            }
            Kind::Counters { function, code } => {
                let cause = if self.is_busy() { CuptiResult::HARDWARE_BUSY } else { *code };
                write!(f, "{function} failed: {code}{}", counters_advice(cause))
            }
            Kind::UnknownMetrics { chip, metrics, version } => write!(
                f,
                "CUPTI {version} has no {} on {chip}; names differ from chip to chip and end in a roll-up such as \
                 .sum or .avg: Host::metrics lists them",
                metrics.join(", ")
            ),
            Kind::NotTogether { chip, metrics, code } => write!(
                f,
                "{} cannot be counted together on {chip} ({code}): count the links (PCIe, NVLink) apart from the \
                 rest, or request fewer metrics",
                metrics.join(", ")
            ),
            Kind::UnknownChip { chip, known, version } => {
                write!(f, "CUPTI {version} has no counters for {chip}; it supports {}", known.join(", "))
            }
            Kind::NotAName { name } => {
                write!(f, "CUPTI cannot use the name {name:?}: it contains a NUL; remove that")
            }
            Kind::Passes { needed } => write!(
                f,
                "the metrics need {needed} passes and 1 is allowed: request fewer \
                 metrics at a time, or run the work as often"
            ),
            Kind::Thread { reason } => {
                write!(f, "the thread that decodes samples: {reason}; nothing more is sampled")
            }
            Kind::Misuse { why } => f.write_str(why),
            Kind::File { path, reason } => write!(f, "{}: {reason}", path.display()),
        }
    }
}

fn library_not_found(tried: &[(PathBuf, String)], folders: &[PathBuf]) -> String {
    let tried: Vec<_> =
        tried.iter().map(|(path, reason)| format!("{} ({reason})", path.display())).collect();
    let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
    format!(
        "libcupti could not be opened; tried {}{}{}. It comes with the CUDA toolkit \
         (extras/CUPTI) and as a Python package (nvidia-cuda-cupti); name its file in \
         {PATH_VARIABLE} if it lies elsewhere",
        tried.join(", "),
        if folders.is_empty() { "" } else { "; none lies in " },
        folders.join(", ")
    )
}

/// Advice for a refusal of the driver.
fn driver_advice(code: i32) -> &'static str {
    match code {
        3 => {
            " (not initialized), as in a process that was forked off after CUDA was initialised; fork before \
             CUDA or a profiler is used, or start a new program in the child (exec)"
        }
        100 => " (no device); is a GPU visible to this process (CUDA_VISIBLE_DEVICES)?",
        803 => {
            " (driver and kernel module differ in version); has the driver been updated without a reboot?"
        }
        _ => "; does nvidia-smi work here?",
    }
}

/// Advice for a refusal of CUPTI.
fn call_advice(code: CuptiResult) -> &'static str {
    match code {
        CuptiResult::INSUFFICIENT_PRIVILEGES => {
            "; an administrator can allow it (NVreg_RestrictProfilingToAdminUsers=0, or CAP_SYS_ADMIN)"
        }
        CuptiResult::NOT_INITIALIZED => {
            "; is this CUPTI newer than the driver? A matching or older one works"
        }
        _ => "",
    }
}

/// Advice for a refusal of the counter interfaces.
fn counters_advice(code: CuptiResult) -> &'static str {
    match code {
        CuptiResult::INSUFFICIENT_PRIVILEGES => {
            "; only administrators may read counters here: load the kernel module with \
             NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN"
        }
        CuptiResult::VIRTUALIZED_DEVICE => {
            "; counters of this virtual GPU are disabled: the administrator of the host has to enable profiling for it"
        }
        CuptiResult::HARDWARE_BUSY => {
            "; another process or session counts on this GPU: end ncu, or pause DCGM with `dcgmi profile --pause`"
        }
        CuptiResult::OUT_OF_MEMORY => {
            "; the counts did not fit, or samples came faster than they could be decoded: request fewer metrics, \
             fewer ranges or a longer interval"
        }
        CuptiResult::MIG_DEVICE => {
            "; counters of this slice of a partitioned GPU (MIG) are not available: use one \
             whose GPU instance has a single compute instance, or the whole GPU"
        }
        CuptiResult::CONFIDENTIAL_COMPUTING => "; a GPU in confidential mode allows no counters",
        CuptiResult::CMP_DEVICE => "; mining GPUs (CMP) allow no counters",
        CuptiResult::SLI_DEVICE => "; GPUs linked by SLI allow no counters",
        CuptiResult::WSL_DEVICE => {
            "; counters are disabled under WSL: enable them in the control panel of the Windows driver"
        }
        CuptiResult::INVALID_CHIP_NAME => "; this CUPTI does not support the chip; a newer one may",
        CuptiResult::NOT_SUPPORTED | CuptiResult::NOT_COMPATIBLE => {
            "; this device or way of running does not allow it: it needs a GPU of Turing or later, and no MPS"
        }
        CuptiResult::NOT_INITIALIZED => {
            "; does libnvperf_host.so lie beside libcupti, as in the toolkit and the Python package, and is the driver no \
             older than CUPTI?"
        }
        CuptiResult::INVALID_OPERATION => {
            "; is something else counting in this process, or was a range left open or closed twice?"
        }
        _ => "",
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let error = Error::call("cuptiSubscribe", CuptiResult::INSUFFICIENT_PRIVILEGES);
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("cuptiSubscribe failed: "), "{error}");
    }
}
