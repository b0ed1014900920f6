//! NVTX v3 ranges in Rust alone: no C compiler, no libclang, no CUDA.
//!
//! A range names a piece of work on the thread that does it. Tools that speak NVTX (Nsight Systems,
//! Nsight Compute, CUPTI) show it beside the GPU's work, and a profiler inside the process sees it
//! through [`observer`]. Libraries and programs that annotate depend on this crate alone.
//!
//! ```
//! fn attention() {
//!     let _range = nvtx::range("attention");
//!     // The range lasts until `_range` is dropped: a return, a `?` and a panic end it too.
//! }
//! # attention();
//! ```
//!
//! With the attribute (feature `macros`) a whole function is a range:
//!
//! ```
//! # #[cfg(feature = "macros")] {
//! #[nvtx::annotate]
//! fn forward(x: f32) -> f32 {
//!     x * 2.0
//! }
//! assert_eq!(forward(1.0), 2.0);
//! # }
//! ```
//!
//! # What there is
//!
//! | to say | use |
//! | --- | --- |
//! | work of a thread | [`range`](range()), [`range!`], [`annotate`](macro@annotate) |
//! | something that may end on another thread | [`process_range`](process_range()), [`process_range!`] |
//! | a moment | [`mark`](mark()), [`mark!`] |
//! | more than a name: colour, category, number, fields | [`event`] |
//! | how much work it is: operations, bytes, type | [`Work`], [`Event::flops`], [`Event::bytes`], [`Event::dtype`] |
//! | whose it is | [`Domain`], for a `static`; [`OwnedDomain`] |
//! | a name said often | [`register`]; the macros do it for literals |
//! | what a thread, a stream, a device is called | [`name_current_thread`], [`cuda`], [`resource`] |
//! | a lock that no tool knows | [`sync_object`] |
//! | several values at once, with their types | [`schema`] |
//! | a value over time | [`counter`] |
//! | what was over before it could be told | [`deferred`], [`time`] |
//!
//! # Cost
//!
//! With no tool and no observer, a range is one relaxed load and a branch at its start and, where the
//! compiler cannot see that nobody was told, a branch at its end: less than 1 ns for the pair. The macros then compute neither the name nor the options.
//! Nothing is allocated for a literal name, but by the tool itself; a name of more than 255 bytes is
//! copied to the heap if a tool is attached. No lock is on the way of an event: a domain, a call site
//! and a schema take one at their first event, with a tool.
//!
//! # Tools
//!
//! At the first range of the process, the library that `NVTX_INJECTION64_PATH` names is loaded (`nsys
//! profile` sets the variable), as NVTX's own headers do. A tool that is linked into the program, which those
//! find too, is not found. A library that can't be loaded, or refuses, leaves ranges that do nothing for tools;
//! [`attach_error`] says why.
//!
//! `nsys profile --capture-range=nvtx --nvtx-capture=step` begins at a range of that name only if the name is a
//! registered string: that of [`range!("step")`](range!), of [`annotate`](macro@annotate), of [`register`]; not that of
//! `nvtx::range("step")`, unless `NSYS_NVTX_PROFILER_REGISTER_ONLY=0` is set.
//!
//! A name goes to tools as UTF-8. NVTX's names end at the first NUL, so each NUL inside a name is
//! shown to a tool as `?`; an [`observer`] gets the name as it was given. A name may be empty, and may
//! be as long as memory allows; tools have limits of their own (nsys 2023.4 drops an event whose name has more than about
//! 64 KiB, unless the name was registered).
//!
//! A forked child has the tool of its parent, as far as the tool itself goes on there; none is looked
//! for again, unless the parent had not looked yet. Ranges take no lock, so a child may use them
//! whatever other threads did at the fork; but where one of them was in the first event of a domain, a
//! call site or a schema, in its first call of this crate, or about to make a category, the child
//! would wait for a thread that it does not have.
//!
//! # Features
//!
//! - `enable` (default): without it every call compiles to nothing with the same API, so code that
//!   annotates needs no `cfg`.
//! - `macros` (default): [`annotate`](macro@annotate).
//! - `stream`: [`Instrument`] for streams, besides futures and iterators.
//! - `tracing`: `NvtxLayer`, which makes ranges of the spans of `tracing`.
#![cfg_attr(not(feature = "macros"), allow(rustdoc::broken_intra_doc_links))]
// Unsafe code is for `sys` alone.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without the feature the state is a constant, and what depends on it is unused.
#![cfg_attr(not(feature = "enable"), allow(dead_code))]
// With loom there is a tool of its own (`model.rs`), and nothing that loads one.
#![cfg_attr(nvtx_loom, allow(dead_code))]

// The macro's expansion names `::nvtx`, and this crate's own tests use the macro.
extern crate self as nvtx;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
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

/// Whether an NVTX tool is attached to this process.
///
/// The first call of this or of [`range`](range()) looks for the tool, and the answer stays for the life of
/// the process. Always `false` without the feature `enable`.
#[must_use]
pub fn is_attached() -> bool {
    state::is_attached()
}

/// Looks for the tool now, and lets it do what it wants to do early.
///
/// The first event does so too. Called at the start of `main`, no event has to wait for the tool.
pub fn initialize() {
    if state::has_tool() {
        sys::functions::initialize(None);
    }
}

/// Why the tool that the environment names could not be attached; `None` where one was, or where
/// none was named.
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
pub use crate::tracing::NvtxLayer;
