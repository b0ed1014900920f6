//! NVTX v3 ranges in pure Rust: no C compiler, no libclang, no CUDA.
//!
//! A range names a piece of work on the thread that runs it. NVTX tools (Nsight Systems, Nsight
//! Compute, CUPTI) show it beside the GPU's work, and a profiler inside the process receives it
//! through [`observer`]. Libraries and programs with annotations depend only on this crate.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! use nvtx::Domain;
//!
//! static LOADER: Domain = Domain::new("loader"); // a library's own events
//!
//! #[nvtx::annotate] // a call of the function is a range
//! fn forward(x: f32) -> f32 {
//!     x * 2.0
//! }
//!
//! fn load(batch: u64) -> f32 {
//!     let _range = LOADER.event("load").payload(batch).range(); // more than a name
//!     batch as f32
//! }
//!
//! fn main() {
//!     nvtx::name_current_thread("trainer");
//!     for batch in 0..3 {
//!         let _step = nvtx::range!("step"); // ends when it is dropped: a return, a `?` and a panic
//!         let loss = forward(load(batch)); // end it too
//!         if loss == 0.0 {
//!             nvtx::mark("no loss");
//!         }
//!     }
//! }
//! ```
//!
//! | to record | open |
//! | --- | --- |
//! | work of a thread, or work that may end on another one | [`range`](range()), [`process_range`](process_range()), [`annotate`](macro@annotate) |
//! | more than a name: colour, category, number, fields, declared work | [`event`](event()), [`Event`], [`Work`], [`schema`] |
//! | a moment | [`mark`](mark()) |
//! | a library's own events; repeated names | [`Domain`], [`OwnedDomain`], [`register`] |
//! | futures, iterators and streams as ranges | [`Instrument`] |
//! | names of threads, streams and devices; locks | [`name_current_thread`], [`cuda`], [`resource`](resource()), [`sync_object`](sync_object()) |
//! | values over time; events with their own timestamps | [`counter`], [`deferred`], [`time`] |
//! | what tools receive, and how one attaches | [`initialize`], [`is_attached`] |
//!
//! - Threads: any thread may record. Events take no lock, except the first event of a domain, a call
//!   site and a schema.
//! - Cost: without a tool and an observer, a range takes less than 1 ns: a relaxed load and a branch.
//!   With a tool, only a name of more than 255 bytes is copied to the heap.
//!
//! The features `enable` and `macros` are on by default. Without `enable` every call compiles to
//! nothing, so annotations need no `cfg`. `stream` instruments streams, and `tracing` has
//! `NvtxLayer`, which records spans as ranges.

#![cfg_attr(not(feature = "macros"), allow(rustdoc::broken_intra_doc_links))]
// Unsafe code is only in `sys`.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without the feature the state is a constant, and code that depends on it is unused.
#![cfg_attr(not(feature = "enable"), allow(dead_code))]
// Models have their own tool (`model.rs`) and do not load one.
#![cfg_attr(nvtx_loom, allow(dead_code))]

// The macro's expansion names `::nvtx`, and this crate's own tests use the macro.
extern crate self as nvtx;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod accessors;
mod call_site;
mod category;
mod color;
pub mod counter;
pub mod cuda;
pub mod deferred;
mod domain;
mod domain_methods;
mod domain_slot;
mod emit;
mod error;
mod event;
mod field;
mod instrument;
mod macros;
mod mark;
#[cfg(nvtx_loom)]
mod model;
pub mod observer;
mod payload;
mod range;
mod record;
mod resource;
mod resource_id;
pub mod schema;
mod shared;
mod state;
mod string;
mod sync;
#[allow(unsafe_code)]
mod sys;
/// NVTX's layouts and slots, for tools that are written in Rust. Not covered by semver.
#[doc(hidden)]
pub mod abi {
    pub use crate::sys::tool::*;
    pub use crate::work::{BYTE, BYTES, FLOP, FLOPS, SCHEMA as WORK_SCHEMA};
}
mod text;
mod thread;
pub mod time;
#[cfg(feature = "tracing")]
mod tracing;
mod work;

pub use crate::category::Category;
pub use crate::color::Color;
pub use crate::domain::{Domain, OwnedDomain};
pub use crate::error::Error;
pub use crate::event::{Event, event};
pub use crate::field::{Field, FieldValue};
pub use crate::instrument::{InRange, Instrument, Instrumented};
pub use crate::mark::mark;
pub use crate::payload::Payload;
pub use crate::range::{ProcessRange, Range, process_range, range};
pub use crate::resource::{Resource, resource};
pub use crate::resource_id::ResourceId;
pub use crate::string::RegisteredString;
pub use crate::sync::{Acquired, Acquiring, SyncObject, sync_object};
pub use crate::thread::{name_current_thread, name_thread};
pub use crate::work::{Dtype, Pipe, Work};
#[cfg(feature = "macros")]
pub use profiler_macros::annotate;

/// True if an NVTX tool is attached to this process. Always false without the feature `enable`.
///
/// The first call to this function or [`range`](range()) searches for the tool. The result is
/// final.
#[must_use]
pub fn is_attached() -> bool {
    state::is_attached()
}

/// Searches for the tool and initializes it.
///
/// The first event also does so. A call at the start of `main` spares the first event this delay.
///
/// # Tools
///
/// The first range of the process loads the library in `NVTX_INJECTION64_PATH` (`nsys profile` sets
/// the variable), as NVTX's own headers do. Unlike these, the crate does not find a tool that is
/// linked into the program. If the library cannot be loaded or refuses, ranges continue without a
/// tool, and [`attach_error`] returns the reason.
///
/// `nsys profile --capture-range=nvtx --nvtx-capture=step` starts at a range of that name only if
/// the name is a registered string, as from [`range!("step")`](range!),
/// [`annotate`](macro@annotate) and [`register`]. For `nvtx::range("step")` set
/// `NSYS_NVTX_PROFILER_REGISTER_ONLY=0`.
///
/// Tools receive names as UTF-8. A NUL inside a name is replaced by `?` for tools, since NVTX's
/// names end at the first NUL; an [`observer`] receives the original name. Names may be empty and
/// of any length. Tools have their own limits: nsys 2023.4 drops events with unregistered names of
/// more than about 64 KiB.
///
/// A forked child inherits the parent's tool and searches for one only if the parent had not done
/// so. Ranges take no lock and are safe in the child. The child deadlocks if another thread of the
/// parent held a lock at the fork: in the first event of a domain, call site or schema, in its
/// first call of this crate, or in making a category.
pub fn initialize() {
    if state::has_tool() {
        sys::functions::initialize(None);
    }
}

/// The reason why the tool in the environment variable could not be attached. `None` if it was
/// attached or the variable is not set.
///
/// ```
/// if let Some(error) = nvtx::attach_error() {
///     eprintln!("{error}");
/// }
/// ```
#[must_use]
pub fn attach_error() -> Option<&'static Error> {
    state::attach_error()
}

/// [`Domain::category`] in the default domain.
pub fn category(name: &str) -> Category {
    domain::DomainRef::Default.category(name)
}

/// [`Domain::register`] in the default domain.
#[must_use]
pub fn register(text: &str) -> RegisteredString {
    RegisteredString::new(domain::DomainRef::Default, text)
}
#[cfg(feature = "tracing")]
pub use crate::tracing::{NvtxLayer, SpanCoverage, SpanFields};
