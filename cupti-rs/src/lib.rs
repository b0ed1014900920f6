//! CUPTI for Rust: found and loaded at run time, one binary for every CUPTI 12 and 13.
//!
//! A [`Collector`] records GPU operations (kernels, copies, memsets, synchronisations) and the
//! driver calls that caused them. Each record of a call has the calling thread and its tag, the
//! *word* that the thread had set ([`calls::set_word`]). A profiler stores its current range there;
//! this crate has no notion of ranges.
//!
//! ```no_run
//! use cupti::{Collector, Config, Library, Record};
//!
//! fn work() { /* uses CUDA, on any thread */ }
//!
//! fn main() -> Result<(), cupti::Error> {
//!     let library = match Library::open() {
//!         Err(error) if error.is_unavailable() => return Ok(work()), // names what is missing
//!         library => library?,
//!     };
//!     let collector = Collector::start(&library, &Config::new())?; // is_busy() under nsys or ncu
//!     work();
//!     let collected = collector.stop()?; // waits for the GPU
//!     for record in &collected.records {
//!         if let Record::Kernel(kernel) = record {
//!             let ns = kernel.span.end_ns - kernel.span.start_ns;
//!             println!("{:?}: {ns} ns", collected.records.name(kernel.name));
//!         }
//!     }
//!     println!("{:?}", collected.losses);
//!     Ok(())
//! }
//! ```
//!
//! | to | open |
//! | --- | --- |
//! | select kinds of records, calls of the runtime API, events of graphs | [`Config`] |
//! | pause, drain a long collection, stop | [`Collector`], [`Collected`] |
//! | read records | [`record`], [`Records`] |
//! | read calls with their threads and tags | [`calls`] |
//! | count and sample with hardware | [`counters`] |
//! | sample instructions and what they wait for | [`pc_sampling`] |
//! | see what this machine and process allow | [`support`](support()) |
//! | test without a GPU | the package `tests/fake_cupti` of the repository |
//!
//! - Records: kinds [without a type](ActivityKind::is_without_type) are [`Record::Unknown`], with
//!   their bytes.
//! - Threads: any thread may call CUDA during a collection. A CUDA call takes no lock, except a
//!   thread's first call and first graph event of a collection, each use of the profiler switch, and
//!   with instruction samples the begin and end of contexts and modules.
//! - Cost: CUPTI's own work and a log entry for each call; `docs/guide/overhead.md` has the figures.
//! - Safety: the crate prints nothing, catches panics at the C boundary, never calls
//!   `cuptiFinalize`, and never touches CUPTI in a forked child.
//!
//! Linux only; tested on x86-64, compiled for aarch64 and not run there.

#![cfg(target_os = "linux")]
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(target_os = "linux"))))]

mod accessors;
mod attribute;
mod buffer;
mod call_class;
mod call_log;
mod callback_panics;
pub mod clock;
mod collection_state;
mod collector;
mod config;
pub mod counters;
mod device;
mod error;
mod flusher;
#[doc(hidden)]
pub mod forked;
mod graphs;
mod huge_pages;
mod kind;
mod l2_flush;
mod launch_hold;
mod library;
#[doc(hidden)]
pub mod log_registry;
#[cfg(all(test, cupti_loom))]
mod model;
mod paused_launches;
pub mod pc_sampling;
mod profiler_switch;
#[doc(hidden)]
pub mod quiet_thread;
pub mod record;
mod shared;
mod support;
pub mod sys;
pub mod thread_log;
mod version;
mod waits;

/// The call log: each call's function, thread, times and result, and its thread's tag (see
/// [`set_word`](calls::set_word)).
pub mod calls {
    pub use crate::call_log::*;
}

/// Memory for large tables.
#[doc(hidden)]
pub mod tables {
    pub use crate::huge_pages::*;
}

/// For the injection library and tests. Not for direct use; may change at any time.
#[doc(hidden)]
pub mod __private {
    pub use crate::launch_hold::launches_wait;
    pub use crate::sys::injected::this_is_injected;
    pub use crate::sys::os::{stay_loaded, with_signals_blocked};
}

#[cfg(feature = "stopped-clock")]
#[doc(hidden)]
pub use sys::os::stopped_clock;

pub use attribute::{Attribute, AttributeSetting};
pub use call_class::CallClass;
pub use call_log::{Call, DriverFunction, Function, RuntimeFunction, ThreadCalls};
pub use clock::{Clock, Reading};
pub use collector::{Collected, Collector, Losses, UnfinishedCalls, unsubscribe};
pub use config::Config;
pub use device::{Device, Driver};
pub use error::Error;
pub use flusher::{Flusher, LastFlush, PendingFlush};
pub use graphs::{GraphEvent, GraphEventKind, ThreadGraphs, graphs_last_made_ns};
pub use kind::ActivityKind;
pub use l2_flush::L2Flush;
pub use library::{Library, Warning};
pub use pc_sampling::{PcSamples, PcSampling};
pub use record::{
    CopyKind, DataKey, GraphNode, Kernel, KernelRecord, Memcpy, MemoryKind, Memset, NameKey,
    Overhead, OverheadKind, Place, Record, RecordBytes, Records, Span, Synchronization,
    SynchronizationKind,
};
pub use support::{CounterWay, Counters, Cupti, Features, Holder, Support, support, version};
pub use version::Version;
