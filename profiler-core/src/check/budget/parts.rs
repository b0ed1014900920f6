//! The breakdown of an amount by operation or call, and by range.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use profiler_base::order;
use profiler_base::units::{self, percent, shortened, time};
use rustc_hash::FxHashMap;

use super::amount::Unit;
use super::quantity::{Quantity, Source, ns, spans, stream};
use super::scope::{Group, Instance};
use crate::profile::{ApiCall, GpuOperation, Range};
use crate::query::SampledPlace;

/// The maximum number of lines of a breakdown.
const PARTS: usize = 8;
/// The maximum length of a kernel name: enough to write a pattern from.
const NAME_WIDTH: usize = 160;

/// The breakdown of an amount, largest parts first.
pub(super) fn parts(quantity: &Quantity, groups: &[&Group<'_>]) -> Vec<String> {
    let instances = || groups.iter().flat_map(|group| &group.instances);
    match quantity {
        Quantity::Instances | Quantity::HostTime | Quantity::HostTimeOf(_) => Vec::new(),
        Quantity::BusyShare | Quantity::Idle => gaps(instances()),
        Quantity::StallShare(..) => {
            let lines = quantity.instructions(groups).map(|of| of.by_line()).unwrap_or_default();
            let line = |line: &SampledPlace<'_>| {
                format!(
                    "{} of the samples in {}: {}",
                    percent(line.share),
                    line.place(),
                    line.stalls
                )
            };
            lines.iter().take(PARTS).map(line).collect()
        }
        _ if quantity.source() == Source::Calls => sums(
            quantity,
            instances().flat_map(|instance| quantity.calls(instance)).map(Part::of_call),
        ),
        _ => {
            let operations = instances().flat_map(|instance| quantity.operations(instance));
            sums(quantity, operations.map(|operation| Part::of_operation(quantity, &operation)))
        }
    }
}

/// Operations or calls of one name in one range.
struct Part<'a> {
    name: String,
    path: String,
    count: u64,
    ns: u64,
    bytes: u64,
    first: Option<ApiCall<'a>>,
}

impl<'a> Part<'a> {
    fn of_call(call: ApiCall<'a>) -> Self {
        Self {
            name: call.name().to_owned(),
            path: path(call.range()),
            count: 1,
            ns: call.host_time().map_or(0, |time| time.as_nanos() as u64),
            bytes: 0,
            first: Some(call),
        }
    }

    fn of_operation(quantity: &Quantity, operation: &GpuOperation<'a>) -> Self {
        let name = match quantity {
            Quantity::Streams => {
                let [process, device, context, stream] = stream(operation);
                let stream = format!("stream {stream} of context {context} on device {device}");
                match process {
                    0 => format!("operation on {stream}"),
                    process => format!("operation on {stream} in process {process}"),
                }
            }
            _ => name(operation),
        };
        Self {
            name,
            path: path(operation.range()),
            count: 1,
            ns: ns(operation),
            bytes: operation.as_copy().map_or(0, |copy| copy.bytes()),
            first: operation.call(),
        }
    }
}

fn path(range: Option<Range<'_>>) -> String {
    range.map_or_else(
        || "no range".to_owned(),
        |range| shortened(&range.node().cut_path(), units::PATH_WIDTH),
    )
}

/// A one-line description of an operation.
fn name(operation: &GpuOperation<'_>) -> String {
    if let Some(kernel) = operation.as_kernel() {
        return shortened(&kernel.demangled_name(), NAME_WIDTH);
    }
    if operation.as_graph().is_some() {
        return "CUDA graph, traced as a whole".to_owned();
    }
    let Some(copy) = operation.as_copy() else {
        return "memset".to_owned();
    };
    let details = copy.details();
    let asynchronous = if details.asynchronous { "asynchronous" } else { "synchronous" };
    format!("{asynchronous} copy {} ({} to {})", details.kind, details.source, details.destination)
}

fn sums<'a>(quantity: &Quantity, parts: impl Iterator<Item = Part<'a>>) -> Vec<String> {
    let mut sums: FxHashMap<(String, String), Part<'a>> = FxHashMap::default();
    for part in parts {
        match sums.get_mut(&(part.name.clone(), part.path.clone())) {
            Some(sum) => {
                sum.count += part.count;
                sum.ns = sum.ns.saturating_add(part.ns);
                sum.bytes = sum.bytes.saturating_add(part.bytes);
                let start = |part: &Part<'_>| part.first.map(|call| call.start());
                if sum.first.is_none() || (part.first.is_some() && start(&part) < start(sum)) {
                    sum.first = part.first;
                }
            }
            None => {
                sums.insert((part.name.clone(), part.path.clone()), part);
            }
        }
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    let size = |part: &Part<'_>| match quantity.unit() {
        Unit::Bytes => part.bytes,
        Unit::Time => part.ns,
        Unit::Count | Unit::Share => part.count,
    };
    order::sort_by(&mut sums, |a, b| {
        size(b).cmp(&size(a)).then_with(|| (&a.path, &a.name).cmp(&(&b.path, &b.name)))
    });
    let shown = sums.iter().take(PARTS).map(|part| {
        let mut line = format!("{} x {} in {}", part.count, part.name, part.path);
        match quantity.unit() {
            Unit::Bytes => {
                let _ = write!(line, ", {} bytes", part.bytes);
            }
            Unit::Time | Unit::Share => {
                let _ = write!(line, ", {}", time(Duration::from_nanos(part.ns)));
            }
            Unit::Count if *quantity == Quantity::Synchronizations => {
                let time = time(Duration::from_nanos(part.ns));
                let _ = write!(line, ", blocked the host for {time}");
            }
            Unit::Count => {}
        }
        if let Some(call) = part.first {
            if quantity.source() != Source::Calls {
                let _ = write!(line, ", by {}", call.name());
            }
            let first = if part.count == 1 { "called" } else { "first called" };
            let start = time(call.start());
            let _ =
                write!(line, ", {first} {start} after the start on thread {}", call.thread_id());
        }
        line
    });
    let mut lines: Vec<String> = shown.collect();
    if sums.len() > PARTS {
        lines.push(format!("and {} other kinds", sums.len() - PARTS));
    }
    lines
}

/// The longest gaps between operations of the range.
fn gaps<'s, 'a: 's>(instances: impl Iterator<Item = &'s Instance<'a>>) -> Vec<String> {
    let mut gaps: Vec<_> = instances.flat_map(spans).flat_map(|span| span.gaps).collect();
    order::sort_by_key(&mut gaps, |(ns, operation)| (Reverse(*ns), operation.start()));
    let line = |(ns, operation): &(u64, GpuOperation<'_>)| {
        let gap = time(Duration::from_nanos(*ns));
        let start = operation.start().map_or_else(String::new, time);
        let (what, path) = (name(operation), path(operation.range()));
        format!("{gap} idle until {what} in {path}, which started {start} after the start")
    };
    let mut lines: Vec<String> = gaps.iter().take(PARTS).map(line).collect();
    if gaps.len() > PARTS {
        lines.push(format!("and {} shorter gaps", gaps.len() - PARTS));
    }
    lines
}
