//! Records laid out by facts about CUPTI's headers and libraries (`facts/record-layouts.txt`), which neither the decoder's tables
//! nor the fake have a part in: what stands at a field's place is what is read of it.
//!
//! `records.rs` writes by the decoder's own tables, so that a place that is wrong there would be wrong twice.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::BTreeMap;

use cupti::record::{ApiFunction, Record, RecordBytes};
use cupti::{ActivityKind, Version};

const FACTS: &str = include_str!("facts/record-layouts.txt");
/// An API version of each release.
const VERSIONS: [u32; 15] =
    [18, 20, 21, 22, 23, 24, 26, 27, 28, 130_001, 130_101, 130_202, 130_301, 130_401, 130_500];

/// Offset and size of each field, by its name in C.
type Fields<'f> = BTreeMap<&'f str, (usize, usize)>;

/// The record that a release writes: its stride and its fields.
fn layout(kind: ActivityKind, release: (u32, u32)) -> (usize, Fields<'static>) {
    let release = format!("{}.{}", release.0, release.1);
    let of_kind = FACTS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (id, rest) = line.split_once(' ')?;
        let (stride, rest) = rest.split_once(' ')?;
        let (releases, fields) = rest.split_once(' ')?;
        let is_it = id == kind.0.to_string() && releases.split(',').any(|one| one == release);
        is_it.then(|| (stride.parse().unwrap(), fields))
    });
    let [(stride, fields)] = of_kind.collect::<Vec<(usize, &str)>>()[..] else {
        panic!("{kind} in {release} has not one layout")
    };
    let field = |field: &'static str| {
        let (name, place) = field.split_once('=').unwrap();
        let (offset, size) = place.split_once(':').unwrap();
        (name, (offset.parse().unwrap(), size.parse().unwrap()))
    };
    (stride, fields.split(' ').map(field).collect())
}

/// What stands in the fields of a record: another number in each.
struct Planted(BTreeMap<&'static str, u64>);

impl Planted {
    fn get(&self, name: &str) -> u64 {
        self.0[name]
    }

    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.get(name)).unwrap()
    }

    /// `None` where the release has no such field.
    fn find(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    fn place(&self) -> [u32; 3] {
        ["deviceId", "contextId", "streamId"].map(|name| self.small(name))
    }

    fn span(&self) -> (u64, u64) {
        (self.get("start"), self.get("end"))
    }

    /// Graph and node.
    fn node(&self) -> Option<(u32, u64)> {
        Some((self.small("graphId"), self.get("graphNodeId")))
    }
}

/// Plants a record in every release, and shows it to `check` as it is read.
fn in_every_release(kind: ActivityKind, check: impl Fn(&Planted, Record<'_>)) {
    for version in VERSIONS.map(Version) {
        let (stride, fields) = layout(kind, version.cuda_release());
        let mut bytes = vec![0; stride];
        let mut planted = BTreeMap::new();
        for (number, (&name, &(offset, size))) in (1..).zip(&fields) {
            let value = match name {
                "kind" => kind.0.into(),
                // Pointers: to no text here.
                "name" | "source" | "reserved0" => continue,
                // Flags of a bit and enumerations, which not every number is one of.
                "isDeviceLaunched" | "flags" => 1,
                // Ends are after starts.
                "end" => 1_000 + number,
                _ => number,
            };
            let value: u64 = value;
            bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
            planted.insert(name, value);
        }
        let two = [&bytes[..], &bytes].concat();
        let stride = u32::try_from(stride).unwrap();
        let records = RecordBytes::from_parts(version, vec![two], [(kind, stride)], []);
        let mut seen = 0;
        for record in &records {
            check(&Planted(planted.clone()), record);
            seen += 1;
        }
        assert_eq!(seen, 2, "{kind} in {version}");
    }
}

#[test]
fn kernels_are_read_where_the_headers_have_them() {
    for kind in [ActivityKind::CONCURRENT_KERNEL, ActivityKind::KERNEL] {
        in_every_release(kind, |planted, record| {
            let Record::Kernel(kernel) = record else { panic!("{record:?}") };
            let three = |names: [&str; 3]| names.map(|name| planted.small(name));
            assert_eq!(u64::from(kernel.correlation_id), planted.get("correlationId"));
            assert_eq!((kernel.span.start_ns, kernel.span.end_ns), planted.span());
            let place = kernel.place;
            assert_eq!([place.device, place.context, place.stream], planted.place());
            assert_eq!(kernel.grid, three(["gridX", "gridY", "gridZ"]));
            assert_eq!(kernel.block, three(["blockX", "blockY", "blockZ"]));
            assert_eq!(kernel.cluster, three(["clusterX", "clusterY", "clusterZ"]));
            assert_eq!(u64::from(kernel.registers_per_thread), planted.get("registersPerThread"));
            assert_eq!(u64::from(kernel.static_shared_bytes), planted.get("staticSharedMemory"));
            assert_eq!(u64::from(kernel.dynamic_shared_bytes), planted.get("dynamicSharedMemory"));
            let node = kernel.graph_node.map(|node| (node.graph, node.node));
            assert_eq!(node, planted.node());
            let details = kernel.details();
            assert_eq!(details.queued_ns, planted.get("queued"));
            assert_eq!(details.submitted_ns, planted.get("submitted"));
            assert_eq!(details.completed_ns, planted.get("completed"));
            let launched = planted.find("isDeviceLaunched").map(|launched| launched == 1);
            assert_eq!(details.device_launched, launched);
            let priority = planted.find("priority").map(|priority| priority as i32);
            assert_eq!(details.priority, priority);
            let source = details.source_graph_node.map(|node| node.node);
            assert_eq!(source, planted.find("sourceGraphNodeId"));
        });
    }
}

#[test]
fn copies_and_fills_are_read_where_the_headers_have_them() {
    in_every_release(ActivityKind::MEMCPY, |planted, record| {
        let Record::Memcpy(copy) = record else { panic!("{record:?}") };
        assert_eq!(u64::from(copy.correlation_id), planted.get("correlationId"));
        assert_eq!((copy.span.start_ns, copy.span.end_ns), planted.span());
        let place = copy.place;
        assert_eq!([place.device, place.context, place.stream], planted.place());
        assert_eq!(copy.bytes, planted.get("bytes"));
        assert!(copy.asynchronous);
        let runtime = copy.runtime_correlation_id.map(u64::from);
        assert_eq!(runtime, planted.find("runtimeCorrelationId"));
        assert_eq!(copy.graph_node.map(|node| (node.graph, node.node)), planted.node());
        assert_eq!(copy.copies, planted.find("copyCount"));
        let launched = planted.find("isDeviceLaunched").map(|launched| launched == 1);
        assert_eq!(copy.device_launched, launched);
        let source = copy.source_graph_node.map(|node| node.node);
        assert_eq!(source, planted.find("sourceGraphNodeId"));
    });
    in_every_release(ActivityKind::MEMSET, |planted, record| {
        let Record::Memset(fill) = record else { panic!("{record:?}") };
        assert_eq!(u64::from(fill.correlation_id), planted.get("correlationId"));
        assert_eq!((fill.span.start_ns, fill.span.end_ns), planted.span());
        let place = fill.place;
        assert_eq!([place.device, place.context, place.stream], planted.place());
        assert_eq!(fill.bytes, planted.get("bytes"));
        assert_eq!(u64::from(fill.value), planted.get("value"));
        assert_eq!(fill.graph_node.map(|node| (node.graph, node.node)), planted.node());
        let source = fill.source_graph_node.map(|node| node.node);
        assert_eq!(source, planted.find("sourceGraphNodeId"));
    });
}

#[test]
fn calls_are_read_where_the_headers_have_them() {
    for kind in [ActivityKind::DRIVER, ActivityKind::RUNTIME] {
        in_every_release(kind, |planted, record| {
            let Record::ApiCall(call) = record else { panic!("{record:?}") };
            let cbid = planted.small("cbid");
            let function = match kind {
                ActivityKind::DRIVER => ApiFunction::Driver(cbid),
                _ => ApiFunction::Runtime(cbid),
            };
            assert_eq!(call.function, function);
            assert_eq!((call.span.start_ns, call.span.end_ns), planted.span());
            assert_eq!(
                (call.process, call.thread),
                (planted.small("processId"), planted.small("threadId"))
            );
            assert_eq!(u64::from(call.correlation_id), planted.get("correlationId"));
            assert_eq!(u64::from(call.result), planted.get("returnValue"));
        });
    }
}

#[test]
fn synchronizations_are_read_where_the_headers_have_them() {
    in_every_release(ActivityKind::SYNCHRONIZATION, |planted, record| {
        let Record::Synchronization(wait) = record else { panic!("{record:?}") };
        assert_eq!((wait.span.start_ns, wait.span.end_ns), planted.span());
        assert_eq!(u64::from(wait.correlation_id), planted.get("correlationId"));
        assert_eq!(u64::from(wait.context), planted.get("contextId"));
        assert_eq!(wait.stream.map(u64::from), planted.find("streamId"));
        assert_eq!(wait.event.map(u64::from), planted.find("cudaEventId"));
        assert_eq!(wait.event_sync_id, planted.find("cudaEventSyncId"));
        assert_eq!(wait.result.map(u64::from), planted.find("returnValue"));
    });
}
