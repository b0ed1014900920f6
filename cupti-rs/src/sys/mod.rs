//! The C boundary: what CUPTI and the driver look like in memory, and how they are found. **Outside semver.**

pub mod abi;
pub mod api;
pub(crate) mod callback;
pub(crate) mod counters;
pub(crate) mod driver;
pub mod field;
pub mod functions;
#[allow(missing_docs)] // its first line says how it was made
pub mod generated;
pub(crate) mod host;
pub(crate) mod injected;
pub(crate) mod loader;
mod open_path;
pub(crate) mod os;
pub(crate) mod params;
pub(crate) mod range;
pub(crate) mod safe;
pub(crate) mod sampling;
mod stream_id;
pub(crate) mod strides;
