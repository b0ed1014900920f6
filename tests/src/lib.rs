//! Shared code of the GPU tests: a harness that ignores them without a GPU, CUDA calls, and programs.

pub mod blas;
pub mod counted;
pub mod cuda;
pub mod harness;
pub mod kinds;
pub mod ncu;
pub mod planted;
pub mod programs;
pub mod runtime;

/// The Rust examples of the README and the guide, compiled and run as documentation tests.
#[cfg(doctest)]
mod guide {
    macro_rules! documents {
        ($($name:ident = include_str!($file:literal),)+) => {
            $(#[doc = include_str!($file)] struct $name;)+
        };
    }

    documents! {
        Readme = include_str!("../../README.md"),
        GettingStarted = include_str!("../../docs/guide/getting-started.md"),
        Annotate = include_str!("../../docs/guide/annotate.md"),
        Sessions = include_str!("../../docs/guide/sessions.md"),
        LongRuns = include_str!("../../docs/guide/long-runs.md"),
        AlwaysOn = include_str!("../../docs/guide/always-on.md"),
        ThreadsAndAsync = include_str!("../../docs/guide/threads-and-async.md"),
        Frameworks = include_str!("../../docs/guide/frameworks.md"),
        Burn = include_str!("../../docs/guide/burn.md"),
        Processes = include_str!("../../docs/guide/processes.md"),
        Ranks = include_str!("../../docs/guide/ranks.md"),
        Graphs = include_str!("../../docs/guide/graphs.md"),
        Queries = include_str!("../../docs/guide/queries.md"),
        Diagnosis = include_str!("../../docs/guide/diagnosis.md"),
        CriticalPath = include_str!("../../docs/guide/critical-path.md"),
        HostStacks = include_str!("../../docs/guide/host-stacks.md"),
        Lines = include_str!("../../docs/guide/lines.md"),
        Counters = include_str!("../../docs/guide/counters.md"),
        Testing = include_str!("../../docs/guide/testing.md"),
        Measure = include_str!("../../docs/guide/measure.md"),
        Exports = include_str!("../../docs/guide/exports.md"),
        Fleet = include_str!("../../docs/guide/fleet.md"),
    }

    #[cfg(feature = "metrics")]
    #[doc = include_str!("../../docs/guide/metrics.md")]
    struct Metrics;
}
