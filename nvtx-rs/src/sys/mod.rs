//! NVTX's binary interface, and the only unsafe code of the crate.
//!
//! A tool writes its functions to tables of slots. [`abi`] and [`extension`] have the tables, [`loader`]
//! passes them to a tool, [`types`] has the functions' structures, and [`functions`] calls the
//! functions. The interface to the crate is safe.

mod abi;
mod extension;
pub(crate) mod functions;
#[cfg(all(feature = "enable", not(nvtx_loom)))]
mod loader;
pub(crate) mod types;

#[cfg(nvtx_loom)]
pub(crate) use abi::fill;
#[cfg(all(feature = "enable", not(nvtx_loom)))]
pub(crate) use loader::load_named;
