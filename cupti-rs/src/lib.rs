//! CUPTI for Rust: found and loaded at run time, one binary for every CUPTI 12 and 13.
//!
//! A [`Collector`] records GPU operations (kernels, copies, memsets, synchronisations) and the
//! driver calls that caused them. Each record of a call has the calling thread and its tag, the
//! *word* that the thread had set ([`calls::set_word`]). A profiler stores its current range there;
//! this crate has no notion of ranges. [`record`] has a type for every kind of record that CUPTI
//! writes, with four exceptions: OpenACC, OpenMP, preemptions, and kernels launched by kernels
//! before sm_70. Those are [`Record::Unknown`], with their bytes.
//!
//! ```no_run
//! use cupti::{Collector, Config, Library, Record};
//!
//! # fn main() -> Result<(), cupti::Error> {
//! let library = Library::open()?; // is_unavailable() where there is no GPU
//! let collector = Collector::start(&library, &Config::new())?; // is_busy() under nsys or ncu
//! // ... work that uses CUDA, on any thread ...
//! let collected = collector.stop()?; // waits for the GPU
//! for record in &collected.records {
//!     if let Record::Kernel(kernel) = record {
//!         println!("{:?}: {} ns", collected.records.name(kernel.name), kernel.span.end_ns - kernel.span.start_ns);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Config`] selects what is collected: kinds of records, calls of the runtime API, events of CUDA
//! graphs, and the program's own handler of callbacks ([`Callbacks`]). A collection can
//! [pause](Collector::pause) and be bounded by `cudaProfilerStart` and `cudaProfilerStop`. It can
//! be [drained](Collector::drain) while it runs, so that a long one needs little memory.
//! [`support`] reports what this machine and process allow.
//!
//! The crate prints nothing, catches panics at the C boundary, never calls `cuptiFinalize`, and
//! never touches CUPTI in a forked child. It takes no lock in a CUDA call, with these exceptions: a
//! thread's first call, first graph event and first handled callback of a collection; a handled
//! callback while its thread ends; each use of the profiler switch.
//!
//! Linux only; tested on x86-64, compiled for aarch64 and not run there.
//!
//! Without a GPU, driver or libcupti, the error of [`Library::open`] names what is missing. The
//! feature `fake` has a fake with the same function table, for tests.

#![cfg(target_os = "linux")]
#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(target_os = "linux"))))]

mod accessors;
mod attribute;
mod buffer;
mod call_class;
mod call_log;
mod callback_handler;
mod callback_panics;
pub mod clock;
mod collection_state;
mod collector;
mod config;
pub mod counters;
mod device;
mod error;
mod external_id;
#[cfg(feature = "fake")]
pub mod fake;
mod flusher;
#[doc(hidden)]
pub mod forked;
mod graph_gate;
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

/// Callbacks for the program's own handler: calls of both APIs, resources, waits, NVTX, and notices
/// of CUPTI itself.
pub mod callbacks {
    pub use crate::callback_handler::*;
}

/// Memory for large tables.
#[doc(hidden)]
pub mod tables {
    pub use crate::huge_pages::*;
}

/// For the injection library. Not for direct use; may change at any time.
#[doc(hidden)]
pub mod __private {
    pub use crate::sys::injected::this_is_injected;
    pub use crate::sys::os::{stay_loaded, with_signals_blocked};
}

pub use attribute::{Attribute, AttributeSetting};
pub use call_class::CallClass;
pub use call_log::{Call, DriverFunction, Function, RuntimeFunction, ThreadCalls};
pub use callback_handler::{Callback, Callbacks};
pub use clock::{Clock, Reading};
pub use collector::{Collected, Collector, Losses, UnfinishedCalls};
pub use config::{ApiFilter, Config};
pub use device::{Device, Driver};
pub use error::Error;
pub use external_id::ExternalId;
pub use flusher::{Flusher, LastFlush, PendingFlush};
pub use graphs::{GraphEvent, GraphEventKind, ThreadGraphs, graphs_last_made_ns};
pub use kind::ActivityKind;
pub use l2_flush::L2Flush;
pub use library::{Library, Warning};
pub use record::{
    CopyKind, DataKey, GraphNode, Kernel, KernelRecord, Memcpy, MemoryKind, Memset, NameKey,
    Overhead, OverheadKind, Place, Record, RecordBytes, Records, Span, Synchronization,
    SynchronizationKind,
};
pub use support::{CounterWay, Counters, Cupti, Features, Holder, Support, support, version};
pub use version::Version;
