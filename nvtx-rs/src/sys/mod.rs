//! NVTX's binary interface, and the only unsafe code of the crate.
//!
//! A tool writes its functions to tables of slots. [`abi`] and [`extension`] have the tables,
//! [`loader`] passes them to a tool, [`types`] has the functions' structures, and [`functions`]
//! calls the functions. The interface to the crate is safe.

mod abi;
mod extension;
pub(crate) mod functions;
#[cfg(all(feature = "enable", not(nvtx_loom)))]
mod loader;
pub(crate) mod types;

/// The same layouts and slots, for tools that are written in Rust.
pub(crate) mod tool {
    pub use super::abi::{
        Callbacks, EXPORT_CALLBACKS, GetExportTable, InitializeInjection, Module, Place, Slot,
        SlotAddress,
    };
    pub use super::extension::{InitializeExtension, ModuleInfo, Segment, TYPE_INFO, TypeInfo};
    pub use super::functions::slot;
    pub use super::types::{
        COLOR_ARGB, CounterAttributes, CounterBatch, CounterSemantics, EnumAttributes, EnumEntry,
        EventAttributes, EventBatch, MESSAGE_REGISTERED, MESSAGE_TEXT, MESSAGE_WIDE,
        PAYLOAD_EXTENDED, PayloadData, RawMessage, ResourceAttributes, SEMANTICS_COUNTER,
        SEMANTICS_TIME, SchemaAttributes, SchemaEntry, ScopeAttributes, Semantics, SemanticsHeader,
        SyncAttributes, SyncPoint, Text, TimeDomainAttributes, TimeSemantics,
    };
}

#[cfg(nvtx_loom)]
pub(crate) use abi::fill;
#[cfg(all(feature = "enable", not(nvtx_loom)))]
pub(crate) use loader::load_named;
