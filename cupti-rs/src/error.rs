//! The one error type of this crate.

use std::fmt;
use std::path::PathBuf;

use crate::kind::ActivityKind;
use crate::library::Version;
use crate::sys::abi::CuptiResult;

/// Why CUPTI could not do what was asked.
///
/// The type is opaque; ask it what a caller can act on: [`is_unavailable`](Self::is_unavailable) (no GPU, driver or
/// usable CUPTI here), [`is_busy`](Self::is_busy) (someone else holds CUPTI), [`is_permission`](Self::is_permission).
/// Its text says what was tried, what came back and what to do.
#[derive(Debug, Clone)]
pub struct Error(Box<Kind>);

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// libcuda could not be opened.
    NoDriver { reason: String },
    /// libcuda answered a call with an error.
    Driver { function: &'static str, code: i32 },
    /// The driver works and reports no device.
    NoDevice,
    /// No libcupti could be opened.
    LibraryNotFound { tried: Vec<(PathBuf, String)> },
    /// The library opened but lacks a function.
    MissingSymbol { path: PathBuf, symbol: &'static str },
    /// The library is older than this crate can use, or is known to be broken.
    Unusable { path: PathBuf, version: u32, why: &'static str },
    /// Another subscriber holds CUPTI.
    Busy { holder: Option<String> },
    /// This process already collects through this crate.
    AlreadyCollecting,
    /// The collector was started in the parent of this process.
    Forked,
    /// A CUPTI function failed.
    Call { function: &'static str, code: CuptiResult },
    /// The library has no such activity kind.
    UnknownActivity { kind: ActivityKind, code: CuptiResult, version: Version },
    /// The library does not have what was asked for.
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

    /// True where GPU records cannot be had at all: no driver, no device, no CUPTI, or one that cannot be used.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match &*self.0 {
            Kind::NoDriver { .. }
            | Kind::Driver { .. }
            | Kind::NoDevice
            | Kind::LibraryNotFound { .. }
            | Kind::MissingSymbol { .. }
            | Kind::Unusable { .. } => true,
            Kind::Call { code, .. } => *code == CuptiResult::NOT_INITIALIZED,
            Kind::Busy { .. }
            | Kind::AlreadyCollecting
            | Kind::Forked
            | Kind::UnknownActivity { .. }
            | Kind::Lacks { .. } => false,
        }
    }

    /// True where another tool, or another collector of this process, holds CUPTI.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(&*self.0, Kind::Busy { .. } | Kind::AlreadyCollecting)
    }

    /// True where the library lacks what was asked for and a newer one may have it: an activity kind, a filter, a
    /// function's name. Ask for less.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(&*self.0, Kind::UnknownActivity { .. } | Kind::Lacks { .. })
    }

    /// True where CUPTI refused for lack of privileges.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(
            &*self.0,
            Kind::Call {
                code: CuptiResult::INSUFFICIENT_PRIVILEGES | CuptiResult::VIRTUALIZED_DEVICE,
                ..
            }
        )
    }

    /// Who holds CUPTI, where that is the trouble and CUPTI tells.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        match &*self.0 {
            Kind::Busy { holder } => holder.as_deref(),
            _ => None,
        }
    }

    /// CUPTI's own result code, where a call of it failed.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match &*self.0 {
            Kind::Call { code, .. } | Kind::UnknownActivity { code, .. } => Some(code.0),
            Kind::Busy { .. } => Some(CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED.0),
            _ => None,
        }
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
            Kind::Driver { function, code } => write!(
                f,
                "the NVIDIA driver refused {function}: CUDA error {code}{}",
                match code {
                    100 => " (no device); is a GPU visible to this process (CUDA_VISIBLE_DEVICES)?",
                    803 =>
                        " (driver and kernel module differ in version); has the driver been updated without a reboot?",
                    _ => "; does nvidia-smi work here?",
                }
            ),
            Kind::NoDevice => write!(
                f,
                "the NVIDIA driver works but shows no GPU to this process; check CUDA_VISIBLE_DEVICES"
            ),
            Kind::LibraryNotFound { tried } => {
                write!(f, "libcupti could not be opened; tried ")?;
                for (i, (path, reason)) in tried.iter().enumerate() {
                    let sep = if i == 0 { "" } else { ", " };
                    write!(f, "{sep}{} ({reason})", path.display())?;
                }
                write!(
                    f,
                    ". It comes with the CUDA toolkit (extras/CUPTI) and as a Python package (nvidia-cuda-cupti); name \
                     its file in {} if it lies elsewhere",
                    crate::sys::loader::PATH_VARIABLE
                )
            }
            Kind::MissingSymbol { path, symbol } => write!(
                f,
                "{} opened but has no function {symbol}: it is not CUPTI 12.0 or newer; name another file in {}",
                path.display(),
                crate::sys::loader::PATH_VARIABLE
            ),
            Kind::Unusable { path, version, why } => write!(
                f,
                "{} (CUPTI API version {version}) cannot be used: {why}; name another file in {}",
                path.display(),
                crate::sys::loader::PATH_VARIABLE
            ),
            Kind::Busy { holder } => {
                write!(f, "another subscriber holds CUPTI in this process")?;
                if let Some(name) = holder {
                    write!(f, " (it calls itself \"{name}\")")?;
                }
                write!(
                    f,
                    "; CUPTI serves one at a time: run without nsys, ncu, compute-sanitizer or another profiler (39)"
                )
            }
            Kind::AlreadyCollecting => write!(
                f,
                "this process already collects GPU records; CUPTI serves one collector at a time: stop the first one"
            ),
            Kind::Forked => write!(
                f,
                "the collector was started before this process was forked off; CUPTI does not survive a fork: start \
                 one in the child after it initialised CUDA itself"
            ),
            Kind::UnknownActivity { kind, code, version } => write!(
                f,
                "CUPTI {version} does not collect {kind} ({code}); leave the kind out, or ask for it only where it is \
                 known"
            ),
            Kind::Lacks { what, since, version } => {
                write!(f, "CUPTI {version} has no {what}")?;
                if since.is_empty() { Ok(()) } else { write!(f, "; {since} and later have") }
            }
            Kind::Call { function, code } => {
                write!(f, "{function} failed: {code}")?;
                match *code {
                    CuptiResult::INSUFFICIENT_PRIVILEGES => write!(
                        f,
                        "; an administrator can allow it (NVreg_RestrictProfilingToAdminUsers=0, or CAP_SYS_ADMIN)"
                    ),
                    CuptiResult::NOT_INITIALIZED => {
                        write!(
                            f,
                            "; is this CUPTI newer than the driver? A matching or older one works"
                        )
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Error {}
