//! The GPU profiler for programs that use [cudarc]: its streams, contexts and events by their own types.
//!
//! cudarc launches on the calling thread, so ranges and spans need nothing of this crate. It adds
//!
//! - [`Named`]: names of streams, contexts and events for tools that read NVTX;
//! - [`QueryStream`]: queries by `&CudaStream` instead of CUPTI's number;
//! - [`Capture`]: graphs whose replays are attributed to a range of their own, and whose nodes to the ranges of the capture;
//! - [`StreamSession`]: a session where CUPTI works, and ranges timed by CUDA events, labelled so, where it does not.
//!
//! ```no_run
//! use cudarc::driver::CudaContext;
//! use gpu_profiler_cudarc::{Named, QueryStream, StreamReport, StreamSession};
//!
//! # fn launch(_: &cudarc::driver::CudaStream) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stream = CudaContext::new(0)?.new_stream()?;
//! stream.set_name("decode");
//! let session = StreamSession::start(&stream)?;
//! for _ in 0..10 {
//!     let _token = session.range("token");
//!     launch(&stream);
//! }
//! let report = session.finish()?;
//! println!("{report}"); // a profile, or the table of ranges timed by events
//! if let StreamReport::Profile(profile) = &report {
//!     println!("{:?}", profile.query().on_stream(&stream)?.kernels().busy_time());
//! }
//! # Ok(())
//! # }
//! ```

mod capture;
mod error;
mod events;
mod names;
mod query;
mod session;
mod sys;

pub use capture::{Capture, RecordedGraph};
pub use error::Error;
pub use events::{EventRange, EventReport, EventRow, EventTimer};
pub use names::Named;
pub use query::QueryStream;
pub use session::{StreamRange, StreamReport, StreamSession};
