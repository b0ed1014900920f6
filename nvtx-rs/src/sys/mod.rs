//! NVTX's binary interface, and the only unsafe code of the crate.
//!
//! The client's half of NVTX is data: tables of slots, into which a tool writes the functions it wants
//! called. [`abi`] and [`extension`] hold the tables, [`loader`] hands them to a tool, [`types`] are
//! the structures that the functions take, and [`functions`] calls them. What is offered upwards is
//! safe.

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
