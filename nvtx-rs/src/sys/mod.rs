//! NVTX's binary interface, and the only unsafe code of the crate.
//!
//! The client's half of NVTX is data: tables of slots, into which a tool writes the functions it wants
//! called. [`abi`] holds the tables, [`loader`] hands them to a tool. What is offered upwards is safe.

mod abi;
mod loader;

pub(crate) use abi::{pop, push};
pub(crate) use loader::load;
