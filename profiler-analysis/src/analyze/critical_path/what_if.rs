//! Changes of the program whose effect is predicted.

use serde::Serialize;

/// A change of the program. Names and paths match as in queries: `*` matches any text, a path may
/// omit outer ranges.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhatIf {
    /// Kernels of this name are faster by a factor.
    Kernel {
        /// The displayed or mangled name.
        name: String,
        /// The factor.
        times: f64,
    },
    /// The operations submitted in a range are faster by a factor.
    RangeGpu {
        /// The range.
        path: String,
        /// The factor.
        times: f64,
    },
    /// The host time in a range, outside CUDA calls, is divided by a factor. Infinity removes that
    /// time.
    Host {
        /// The range.
        path: String,
        /// The factor.
        times: f64,
    },
    /// Other threads do the host's part of a range ahead of time. It costs the thread nothing as
    /// long as they are fast enough.
    Ahead {
        /// The range.
        path: String,
        /// The number of threads.
        threads: u32,
    },
    /// The host does not wait in a range: its synchronisations are removed.
    NoWait {
        /// The range.
        path: String,
    },
    /// The host waits once in each outermost instance of a range: only its last wait remains.
    OneWait {
        /// The range.
        path: String,
    },
    /// Memory is allocated from a pool: calls in a range that allocate or free take no time and do
    /// not wait.
    NoAllocations {
        /// The range.
        path: String,
    },
    /// Streams do not wait for events in a range.
    NoEvents {
        /// The range.
        path: String,
    },
    /// In each outermost instance of a range, launches without a wait between them become one graph
    /// launch, at the cost of the first of them.
    OneGraph {
        /// The range.
        path: String,
    },
    /// In each outermost instance of a range, copies of one direction without another call between
    /// them become one copy of all their bytes.
    OneCopy {
        /// The range.
        path: String,
    },
    /// Copies from and to pageable memory use pinned memory and do not block.
    Pinned,
    /// All copies use pinned memory, on a stream of their own and one step ahead.
    CopiesAhead,
}

impl WhatIf {
    /// The path of the range that the change is about; `None` for changes of kernels and copies.
    pub fn range(&self) -> Option<&str> {
        match self {
            Self::RangeGpu { path, .. }
            | Self::Host { path, .. }
            | Self::Ahead { path, .. }
            | Self::NoWait { path }
            | Self::OneWait { path }
            | Self::NoAllocations { path }
            | Self::NoEvents { path }
            | Self::OneGraph { path }
            | Self::OneCopy { path } => Some(path),
            Self::Kernel { .. } | Self::Pinned | Self::CopiesAhead => None,
        }
    }
}
