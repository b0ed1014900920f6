//! The JSON of `torch.profiler` (Kineto) for HTA, TensorBoard and Perfetto.
//!
//! Names of events, categories and arguments are Kineto's. A device is a process with its ordinal
//! as id, a stream a thread with its number as id. `External id` is the number of a call's range.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use profiler_base::statistics::ratio;
use profiler_base::text;

use crate::formats::epoch_ns;
use super::args::{self, Args};
use super::json::{Events, TrackIds};
use super::lanes::NESTED;
use super::format::Export;
use super::timeline::{OperationRow, Timeline};
use super::trace_events::{self, Dialect, SliceText};
use crate::reports::memory_text;
use profiler_core::tables::What;

struct Kineto<'a> {
    timeline: &'a Timeline<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    id: u32,
    name: &'a str,
    total_global_mem: u64,
    compute_major: u32,
    compute_minor: u32,
    num_sms: u32,
}

fn name<'a>(timeline: &'a Timeline<'_>, operation: &OperationRow<'_>) -> Cow<'a, str> {
    match operation.what() {
        What::Kernel { .. } | What::Graph(_) => timeline.name(operation).into(),
        What::Copy(copy) => {
            let kind = match copy.kind {
                cupti::CopyKind::HostToDevice => "HtoD",
                cupti::CopyKind::DeviceToHost => "DtoH",
                cupti::CopyKind::DeviceToDevice => "DtoD",
                cupti::CopyKind::HostToHost => "HtoH",
                cupti::CopyKind::PeerToPeer => "PtoP",
                _ => "Unknown",
            };
            format!(
                "Memcpy {kind} ({} -> {})",
                memory_text(copy.source),
                memory_text(copy.destination)
            )
            .into()
        }
        What::Memset(memset) => format!("Memset ({})", memory_text(memset.memory)).into(),
    }
}

impl Kineto<'_> {
    /// Kineto's id of a range; 0 for none.
    fn external_id(range: Option<usize>) -> u64 {
        range.map_or(0, |row| row as u64 + 1)
    }

    fn multiprocessors(&self, device: u32) -> Option<u32> {
        let devices = &self.timeline.profile.recording_info().devices;
        devices.iter().find(|known| known.id == device).map(|device| device.multiprocessors)
    }
}

impl Dialect for Kineto<'_> {
    const ARROW: &'static str = "ac2g";
    const DEPTH: usize = NESTED;

    fn pid(&self, device: u32) -> u64 {
        device.into()
    }

    fn range(&self, row: usize) -> SliceText<'_> {
        let range = &self.timeline.ranges[row];
        let mut all = Args::default();
        all.add("External id", Self::external_id(Some(row)));
        all.extend(args::of_range(range));
        SliceText { name: range.range.name().into(), category: "user_annotation", args: all }
    }

    fn call(&self, row: usize) -> SliceText<'_> {
        let call = &self.timeline.calls[row];
        // Functions of the runtime API start with `cuda`.
        let name = call.call.name();
        let category = if name.starts_with("cuda") { "cuda_runtime" } else { "cuda_driver" };
        let mut args = Args::default();
        args.add("External id", Self::external_id(call.range));
        args.add("correlation", call.call.correlation_id());
        SliceText { name: name.into(), category, args }
    }

    fn operation(&self, row: usize) -> SliceText<'_> {
        let operation = &self.timeline.operations[row];
        let name = name(self.timeline, operation);
        let place = operation.place;
        let mut args = Args::default();
        args.add("External id", Self::external_id(operation.range));
        args.add("device", place.device);
        args.add("context", place.context);
        args.add("stream", place.stream);
        args.add("correlation", operation.operation.correlation_id());
        if let Some(node) = operation.operation.graph_node() {
            args.add("graph id", node.graph);
            args.add("graph node id", node.node);
        }
        let (bytes, category) = match operation.what() {
            What::Kernel { details, .. } => {
                let blocks = details.grid.map(f64::from).iter().product::<f64>();
                let threads = details.block.map(f64::from).iter().product::<f64>();
                args.add("queued", 0u32);
                args.add("registers per thread", details.registers_per_thread);
                let shared =
                    details.static_shared_bytes.saturating_add(details.dynamic_shared_bytes);
                args.add("shared memory", shared);
                if let Some(multiprocessors) = self.multiprocessors(place.device).filter(|n| *n > 0)
                {
                    let blocks_each = blocks / f64::from(multiprocessors);
                    args.add("blocks per SM", blocks_each);
                    args.add("warps per SM", blocks_each * (threads / 32.0).ceil());
                }
                args.add("grid", details.grid);
                args.add("block", details.block);
                return SliceText { name, category: "kernel", args };
            }
            What::Copy(copy) => (copy.bytes, "gpu_memcpy"),
            What::Memset(memset) => (memset.bytes, "gpu_memset"),
            What::Graph(graph) => {
                args.add("graph id", graph.executable);
                // Kineto has no such category; readers treat anything with a stream as GPU work.
                return SliceText { name, category: "gpu_graph", args };
            }
        };
        args.add("bytes", bytes);
        // Bytes per nanosecond.
        let ns = operation.span.map_or(0, |span| span.ns());
        args.add("memory bandwidth (GB/s)", ratio(bytes, ns));
        SliceText { name, category, args }
    }

    fn projection(&self, row: usize) -> Option<SliceText<'_>> {
        // HTA treats anything with a stream as a kernel.
        let mut args = Args::default();
        args.add("External id", Self::external_id(Some(row)));
        let name = self.timeline.ranges[row].range.name().into();
        Some(SliceText { name, category: "gpu_user_annotation", args })
    }
}

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (rank, most_samples) = (export.rank, export.samples);
    let info = timeline.profile.recording_info();
    let device = |device: &profiler_core::profile::DeviceInfo| {
        text::json(&Device {
            id: device.id,
            name: &device.name,
            total_global_mem: device.memory_bytes,
            compute_major: device.compute_capability.0,
            compute_minor: device.compute_capability.1,
            num_sms: device.multiprocessors,
        })
    };
    let devices: Vec<String> = info.devices.iter().map(device).collect::<Result<_, _>>()?;
    let mut head = vec![
        ("schemaVersion", "1".to_owned()),
        ("deviceProperties", format!("[{}]", devices.join(","))),
        ("displayTimeUnit", "\"ms\"".to_owned()),
        ("baseTimeNanoseconds", epoch_ns(timeline.profile).to_string()),
        ("otherData", text::json(&args::of_recording(timeline, most_samples))?),
    ];
    if let Some(rank) = rank {
        head.push(("distributedInfo", text::json(&rank)?));
    }
    let mut events = Events::begin(out, &head)?;
    let mut ids = TrackIds::new();
    ids.keep_streams(timeline);
    let kineto = Kineto { timeline };
    trace_events::write(&mut events, timeline, &mut ids, &kineto)?;
    trace_events::sampled(&mut events, timeline, &mut ids, &kineto, most_samples)?;
    events.finish()
}
