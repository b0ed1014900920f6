//! Streams and devices with their displayed names.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use profiler_core::profile::{GpuOperation, Profile};
use profiler_core::tables::What;

/// A stream of a context of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) device: u32,
    /// The profile's id of the process; 0 if the process recorded itself.
    pub(crate) process: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
}

impl Place {
    pub(crate) fn from_operation(operation: &GpuOperation<'_>) -> Self {
        Self {
            device: operation.device(),
            process: operation.process_id(),
            context: operation.context(),
            stream: operation.stream(),
        }
    }
}

/// Names of streams. Stream numbers are unique only within a context.
#[derive(Debug, Default)]
pub(crate) struct StreamNames {
    /// The processes and contexts with each device and stream number.
    contexts: FxHashMap<(u32, u32), BTreeSet<(u32, u32)>>,
}

impl StreamNames {
    /// The names of these streams, distinct within the set.
    pub(crate) fn from_places(places: impl Iterator<Item = Place>) -> Self {
        let mut names = Self::default();
        for place in places {
            let contexts = names.contexts.entry((place.device, place.stream)).or_default();
            contexts.insert((place.process, place.context));
        }
        names
    }

    /// The name of a stream, with its process and context if several streams have the number.
    pub(crate) fn name(&self, profile: &Profile, place: Place) -> String {
        let mut name = format!("stream {}", place.stream);
        let Some(contexts) = self.contexts.get(&(place.device, place.stream)) else { return name };
        let of_process = |(process, _): &&(u32, u32)| *process == place.process;
        if contexts.iter().filter(of_process).count() > 1 {
            name += &format!(" of context {}", place.context);
        }
        if !contexts.iter().all(|context| of_process(&context)) {
            name += &format!(" of process {}", profile.process_id(place.process));
        }
        name
    }
}

/// The title of a device: `GPU 0: NVIDIA H200`. The first of several devices with one ordinal wins.
pub(crate) fn device_title(profile: &Profile, id: u32) -> String {
    match profile.recording_info().devices.iter().find(|device| device.id == id) {
        Some(device) => format!("GPU {id}: {}", device.name),
        None => format!("GPU {id}"),
    }
}

/// The name of a thread: `thread 7 (loader)`.
pub(crate) fn thread_title(id: u32, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("thread {id} ({name})"),
        None => format!("thread {id}"),
    }
}

/// The name of a copy by its direction.
fn copy_name(kind: cupti::CopyKind) -> &'static str {
    match kind {
        cupti::CopyKind::HostToDevice => "copy host to device",
        cupti::CopyKind::DeviceToHost => "copy device to host",
        cupti::CopyKind::DeviceToDevice => "copy device to device",
        cupti::CopyKind::HostToHost => "copy host to host",
        cupti::CopyKind::PeerToPeer => "copy peer to peer",
        _ => "copy",
    }
}

/// The name of an operation other than a kernel.
pub(crate) fn other_name(operation: &GpuOperation<'_>) -> &'static str {
    match &operation.work().what {
        What::Copy(copy) => copy_name(copy.kind),
        What::Graph(_) => "CUDA graph",
        What::Kernel { .. } | What::Memset(_) => operation.kind().name(),
    }
}

/// The bytes that a copy moved or a memset wrote.
pub(crate) fn bytes(operation: &GpuOperation<'_>) -> u64 {
    match &operation.work().what {
        What::Copy(copy) => copy.bytes,
        What::Memset(memset) => memset.bytes,
        What::Kernel { .. } | What::Graph(_) => 0,
    }
}
