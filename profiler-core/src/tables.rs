//! The rows of a profile: threads, ranges, calls and GPU operations, which refer to each other by
//! index.
//!
//! [`Profile::tables`](crate::Profile::tables) returns them, for analyses over millions of rows;
//! [`Profile`](crate::Profile) and [`query`](crate::query) have the same data as methods. All times
//! are nanoseconds of one clock. Names are stored once. An index is valid only in its own tables.
//! [`Builder`] makes a profile from rows of another tool.
//!
//! ```
//! use profiler_core::Profile;
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! let tables = profile.tables();
//! let mut waits_ns = 0;
//! for operation in &tables.operations {
//!     // From the return of the call to the start on the GPU.
//!     let Some(call) = operation.call.get() else { continue };
//!     waits_ns += operation.start_ns().saturating_sub(tables.calls[call.at()].time.end_ns);
//! }
//! println!("{waits_ns} ns in {} operations", tables.operations.len());
//! # Ok(())
//! # }
//! ```

pub use crate::join::builder::Builder;
pub use crate::join::busy;
pub use crate::join::collectives::{CollectiveKey, CollectiveRow, CollectiveSource};
pub use crate::join::communication;
pub use crate::join::graph_nodes::{GraphDependencies, GraphNodes};
pub use crate::join::host_clock::HostClock;
pub use crate::join::joined::Joined;
pub use crate::join::range_tree;
pub use crate::join::tables::*;
pub use crate::query::timeline::{HostPiece, HostTimeline};
