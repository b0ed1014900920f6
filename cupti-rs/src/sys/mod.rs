//! The C boundary: the memory layouts of CUPTI and the driver, and the search for both. **Outside
//! semver.**

pub mod abi;
pub(crate) mod api;
pub(crate) mod callback;
pub(crate) mod counters;
pub(crate) mod driver;
pub mod field;
pub mod functions;
#[allow(missing_docs)] // its first line names its script
pub mod generated;
pub(crate) mod host;
pub(crate) mod injected;
pub(crate) mod loader;
mod open_path;
pub(crate) mod os;
#[allow(missing_docs)] // as generated
pub mod params;
pub(crate) mod pc_sampling;
pub(crate) mod range;
pub(crate) mod safe;
pub(crate) mod sampling;
mod stream_id;
pub mod strides;
