//! Proton's tree: hatchet's literal, a JSON list of a root and a table of devices.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::timeline::{Timeline, Work};
use crate::base::text;
use crate::profile::RangeNode;

/// Ranges within each other: Python's JSON and hatchet recurse, and give up at a thousand calls.
const DEEPEST: usize = 200;

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Metrics {
    count: u64,
    #[serde(rename = "time (ns)")]
    time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// What ran in a node of the tree, by name and device.
type Leaves<'a> = BTreeMap<(&'a str, u32), Metrics>;

/// A node that is shown.
#[derive(Debug, Default)]
struct Shown<'a> {
    leaves: Leaves<'a>,
    /// What ran in ranges within it that are too deep to be shown.
    deeper: Leaves<'a>,
}

pub(super) fn write(timeline: &Timeline<'_>, out: &mut dyn Write) -> io::Result<()> {
    // A node comes after the one around it.
    let mut depths: Vec<usize> = Vec::new();
    let mut shown_at: Vec<usize> = Vec::new();
    for (node, range) in timeline.profile.nodes().enumerate() {
        let parent = range.ancestors().next().map(|parent| parent.id.at());
        let depth = parent.map_or(1, |parent| depths[parent] + 1);
        depths.push(depth);
        let shown = parent.filter(|_| depth > DEEPEST).map_or(node, |parent| shown_at[parent]);
        shown_at.push(shown);
    }
    let mut outside = Leaves::default();
    let mut nodes: Vec<Shown<'_>> = Vec::new();
    nodes.resize_with(depths.len(), Shown::default);
    for operation in &timeline.operations {
        let node = operation.range.map(|row| timeline.ranges[row].range.node().id.at());
        let leaves = match node {
            None => &mut outside,
            Some(node) if shown_at[node] == node => &mut nodes[node].leaves,
            Some(node) => &mut nodes[shown_at[node]].deeper,
        };
        let key = (timeline.name(operation), operation.place.device);
        let metrics = leaves.entry(key).or_default();
        metrics.count += 1;
        let ns = operation.span.map_or(0, |span| span.ns());
        metrics.time_ns = metrics.time_ns.saturating_add(ns);
        let bytes = match &operation.work {
            Work::Kernel(..) | Work::Graph(_) => None,
            Work::Copy(copy) => Some(copy.bytes),
            Work::Memset(record) => record.map(|record| record.bytes),
        };
        if let Some(bytes) = bytes {
            metrics.bytes = Some(metrics.bytes.unwrap_or(0).saturating_add(bytes));
        }
    }

    // The metrics of the root say which there are.
    out.write_all(b"[{\"frame\":{\"name\":\"ROOT\",\"type\":\"function\"},")?;
    out.write_all(b"\"metrics\":{\"count\":0,\"time (ns)\":0,\"bytes\":0},\"children\":[")?;
    let mut is_first = true;
    add_leaves(out, &outside, &mut is_first)?;
    let mut todo: Vec<Step<'_>> = timeline.profile.roots().map(Step::Begin).collect();
    todo.reverse();
    while let Some(step) = todo.pop() {
        let Step::Begin(range) = step else {
            out.write_all(b"]}")?;
            is_first = false;
            continue;
        };
        let node = range.id.at();
        begin(out, range.name(), &mut is_first)?;
        add_leaves(out, &nodes[node].leaves, &mut is_first)?;
        if !nodes[node].deeper.is_empty() {
            begin(out, "(deeper ranges)", &mut is_first)?;
            add_leaves(out, &nodes[node].deeper, &mut is_first)?;
            out.write_all(b"]}")?;
            is_first = false;
        }
        todo.push(Step::End);
        if depths[node] < DEEPEST {
            let first = todo.len();
            todo.extend(range.children().map(Step::Begin));
            todo[first..].reverse();
        }
    }
    out.write_all(b"]},\n")?;
    text::write_json(&mut *out, &devices(timeline))?;
    out.write_all(b"]\n")
}

enum Step<'a> {
    Begin(RangeNode<'a>),
    End,
}

fn begin(out: &mut dyn Write, name: &str, is_first: &mut bool) -> io::Result<()> {
    separate(out, is_first)?;
    out.write_all(b"{\"frame\":{\"name\":")?;
    text::write_json(&mut *out, &name)?;
    out.write_all(b",\"type\":\"function\"},\"metrics\":{},\"children\":[")?;
    *is_first = true;
    Ok(())
}

fn add_leaves(out: &mut dyn Write, leaves: &Leaves<'_>, is_first: &mut bool) -> io::Result<()> {
    #[derive(Serialize)]
    struct Leaf<'a> {
        frame: Frame<'a>,
        metrics: LeafMetrics,
        children: [(); 0],
    }
    #[derive(Serialize)]
    struct Frame<'a> {
        name: &'a str,
        r#type: &'static str,
    }
    #[derive(Serialize)]
    struct LeafMetrics {
        #[serde(flatten)]
        metrics: Metrics,
        device_id: String,
        device_type: &'static str,
    }
    for (&(name, device), &metrics) in leaves {
        separate(out, is_first)?;
        let metrics = LeafMetrics { metrics, device_id: device.to_string(), device_type: "CUDA" };
        let leaf = Leaf { frame: Frame { name, r#type: "function" }, metrics, children: [] };
        text::write_json(&mut *out, &leaf)?;
    }
    Ok(())
}

fn separate(out: &mut dyn Write, is_first: &mut bool) -> io::Result<()> {
    out.write_all(if *is_first { b"\n" } else { b",\n" })?;
    *is_first = false;
    Ok(())
}

/// By type and ordinal, what is known of them. Clock rates and the width of the memory bus are not.
fn devices(timeline: &Timeline<'_>) -> BTreeMap<&'static str, BTreeMap<String, Device>> {
    let devices = timeline.profile.recording_info().devices.iter().map(|device| {
        let (major, minor) = device.compute_capability;
        let known = Device { arch: format!("{major}{minor}"), num_sms: device.multiprocessors };
        (device.id.to_string(), known)
    });
    BTreeMap::from([("CUDA", devices.collect())])
}

#[derive(Serialize)]
struct Device {
    arch: String,
    num_sms: u32,
}
