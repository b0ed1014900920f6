//! CUPTI's version, and the known differences between versions.

use std::fmt;

use crate::kind::ActivityKind;

/// The newest CUDA release whose records are known.
pub(crate) const NEWEST: (u32, u32) = (13, 5);

/// CUPTI's API version (`cuptiGetVersion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// The CUDA release this API version belongs to, as (major, minor). 11.8, 12.0 and 12.1 share
    /// the number 18 and read as 12.0.
    #[must_use]
    pub const fn cuda_release(self) -> (u32, u32) {
        match self.0 {
            130_000.. => (self.0 / 10_000, self.0 / 100 % 100),
            27.. => (12, 9),
            26 => (12, 8),
            24..=25 => (12, 6),
            20..=23 => (12, self.0 - 18),
            _ => (12, 0),
        }
    }

    /// Returns the reason why no library of this version may be used, if any.
    pub(crate) fn why_unusable(self) -> Option<&'static str> {
        match self.cuda_release() {
            _ if self.0 < 18 => Some("it is older than CUPTI 12.0"),
            (major, _) if major > NEWEST.0 => Some(
                "this version of cupti-rs supports CUPTI 12 and 13, and a newer major version may change the \
                 structures; install CUPTI 13 beside it, which works with newer drivers, or update cupti-rs",
            ),
            _ => None,
        }
    }

    /// True if CUPTI may be given no activity buffer: then it drops records and counts them. Before
    /// 12.9 it crashes.
    pub(crate) fn takes_no_buffer(self) -> bool {
        self.0 >= 27
    }

    /// 12.9 accepts any number for a kind (seen with 12.9.79); others refuse unknown kinds.
    pub(crate) fn lacks_kind(self, kind: ActivityKind) -> bool {
        matches!(self.0, 27 | 28) && kind > ActivityKind::CONFIDENTIAL_COMPUTE_ROTATION
    }

    /// True if CUPTI retains 24 bytes of every launch once a CUDA graph was captured: seen with
    /// 13.0 to 13.3, and neither with 12.8 and 12.9 nor with 13.4 and 13.5.
    pub(crate) fn keeps_launches(self) -> bool {
        (130_000..130_400).contains(&self.0)
    }

    /// True if a flush while other threads launch graphs can hang: seen with 12.8 and 12.9, and not
    /// with 13.0. Such a flush is skipped rather than run beside one.
    pub(crate) fn hangs_over_graphs(self) -> bool {
        self.0 < 130_000
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.cuda_release();
        write!(f, "{major}.{minor} (API {})", self.0)
    }
}
