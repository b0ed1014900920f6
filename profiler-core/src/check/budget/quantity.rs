//! Quantities of budgets: their names, units and amounts.

use std::collections::BTreeSet;

use cupti::{CallClass, CopyKind, MemoryKind};
use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::Statistic;
use rustc_hash::FxHashMap;

use super::amount::{SHARE, Unit};
use super::scope::{Group, Instance};
use crate::join::busy::DeviceSweep;
use crate::profile::{ApiCall, GpuOperation, MemoryCopy};
use crate::query::{Instructions, Stall};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Quantity {
    Instances,
    Kernels,
    KernelsNamed(Pattern),
    KernelsOtherThan(Vec<Pattern>),
    SharedKernels,
    Launches,
    GraphLaunches,
    Synchronizations,
    BlockingCopies,
    PageableCopies,
    Copies(Option<CopyKind>),
    CopiedBytes(Option<CopyKind>),
    Memsets,
    Allocations,
    Frees,
    Streams,
    HostTime,
    HostTimeOf(Statistic),
    GpuTime,
    GpuTimeOf(Statistic),
    BusyTime,
    BusyShare,
    Idle,
    StallShare(Pattern, Stall),
}

/// The data a quantity is computed from, which determines its unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Ranges,
    Calls,
    Work,
    Times,
}

impl Quantity {
    /// The name, without its parameter, the unit and the source.
    const fn properties(&self) -> (&'static str, Unit, Source) {
        match self {
            Self::Instances => ("instances", Unit::Count, Source::Ranges),
            Self::Kernels => ("kernels", Unit::Count, Source::Work),
            Self::KernelsNamed(_) => ("kernels named", Unit::Count, Source::Work),
            Self::KernelsOtherThan(_) => ("kernels other than", Unit::Count, Source::Work),
            Self::SharedKernels => {
                ("kernels that count for other ranges", Unit::Count, Source::Work)
            }
            Self::Launches => ("launches", Unit::Count, Source::Calls),
            Self::GraphLaunches => ("graph launches", Unit::Count, Source::Calls),
            Self::Synchronizations => ("synchronisations", Unit::Count, Source::Calls),
            Self::BlockingCopies => ("blocking copies", Unit::Count, Source::Work),
            Self::PageableCopies => ("pageable copies", Unit::Count, Source::Work),
            Self::Copies(_) => ("copies", Unit::Count, Source::Work),
            Self::CopiedBytes(_) => ("bytes copied", Unit::Bytes, Source::Work),
            Self::Memsets => ("memsets", Unit::Count, Source::Work),
            Self::Allocations => ("allocations", Unit::Count, Source::Calls),
            Self::Frees => ("frees", Unit::Count, Source::Calls),
            Self::Streams => ("streams", Unit::Count, Source::Work),
            Self::HostTime | Self::HostTimeOf(_) => ("host time", Unit::Time, Source::Ranges),
            Self::GpuTime | Self::GpuTimeOf(_) => ("GPU time", Unit::Time, Source::Times),
            Self::BusyTime => ("busy time", Unit::Time, Source::Times),
            Self::BusyShare => ("busy share", Unit::Share, Source::Times),
            Self::Idle => ("idle time", Unit::Time, Source::Times),
            Self::StallShare(..) => ("stall share of kernels", Unit::Share, Source::Work),
        }
    }

    pub(super) fn name(&self) -> String {
        let (name, ..) = self.properties();
        let quoted = |pattern: &Pattern| format!("`{}`", pattern.text());
        match self {
            Self::KernelsNamed(pattern) => format!("{name} {}", quoted(pattern)),
            Self::StallShare(pattern, stall) => {
                format!("{name} {}: {stall}", quoted(pattern))
            }
            Self::KernelsOtherThan(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(quoted).collect();
                format!("{name} {}", patterns.join(", "))
            }
            Self::Copies(Some(kind)) | Self::CopiedBytes(Some(kind)) => format!("{name} {kind}"),
            Self::GpuTimeOf(statistic) | Self::HostTimeOf(statistic) => {
                format!("{} {name} of an instance", statistic.name())
            }
            _ => name.to_owned(),
        }
    }

    pub(super) fn unit(&self) -> Unit {
        self.properties().1
    }

    pub(super) fn source(&self) -> Source {
        self.properties().2
    }

    /// The operations counted for this quantity.
    pub(super) fn operations<'a>(&self, instance: &Instance<'a>) -> Vec<GpuOperation<'a>> {
        let copy = |operation: &GpuOperation<'a>, counts: &dyn Fn(&MemoryCopy<'a>) -> bool| {
            operation.as_copy().is_some_and(|copy| counts(&copy))
        };
        let mut named = FxHashMap::default();
        let mut is_named = |operation: &GpuOperation<'a>, patterns: &[Pattern], wanted: bool| {
            operation.as_kernel().is_some_and(|kernel| {
                *named.entry(kernel.name()).or_insert_with(|| {
                    let shown = kernel.demangled_name();
                    let matches =
                        |name: &Pattern| name.matches(&shown) || name.matches(kernel.name());
                    patterns.iter().any(matches) == wanted
                })
            })
        };
        let counts = |operation: &GpuOperation<'a>| match self {
            Self::Kernels | Self::SharedKernels => operation.as_kernel().is_some(),
            Self::KernelsNamed(name) | Self::StallShare(name, _) => {
                is_named(operation, std::slice::from_ref(name), true)
            }
            Self::KernelsOtherThan(names) => is_named(operation, names, false),
            Self::BlockingCopies => copy(operation, &|copy| blocks(copy) == Some(true)),
            Self::PageableCopies => copy(operation, &|copy| is_pageable(copy) == Some(true)),
            Self::Copies(kind) | Self::CopiedBytes(kind) => {
                copy(operation, &|copy| kind.is_none_or(|kind| kind == copy.kind()))
            }
            Self::Memsets => operation.as_memset().is_some(),
            _ => matches!(self.source(), Source::Work | Source::Times),
        };
        let of_instance = match self {
            Self::SharedKernels => &instance.shared,
            _ => &instance.operations,
        };
        of_instance.iter().copied().filter(counts).collect()
    }

    /// The calls counted for this quantity.
    pub(super) fn calls<'a>(&self, instance: &Instance<'a>) -> Vec<ApiCall<'a>> {
        let counts = |call: &&ApiCall<'a>| {
            let class = call.class();
            let launch = !call.is_captured()
                && matches!(class, CallClass::KernelLaunch | CallClass::GraphLaunch);
            !call.is_failure()
                && match self {
                    Self::Launches => launch,
                    Self::GraphLaunches => launch && class == CallClass::GraphLaunch,
                    Self::Synchronizations => class == CallClass::Synchronize,
                    Self::Allocations => class == CallClass::Alloc,
                    Self::Frees => class == CallClass::Free,
                    _ => false,
                }
        };
        instance.calls.iter().filter(counts).copied().collect()
    }

    /// The instruction samples of the counted operations; `None` without any.
    pub(super) fn instructions<'a>(&self, groups: &[&Group<'a>]) -> Option<Instructions<'a>> {
        let instances = groups.iter().flat_map(|group| &group.instances);
        let mut operations = instances.flat_map(|instance| self.operations(instance)).peekable();
        let profile = operations.peek()?.profile();
        Some(Instructions::of_operations(profile, operations)).filter(|of| !of.is_empty())
    }

    /// The amount in these groups together.
    pub(super) fn measure(&self, groups: &[&Group<'_>]) -> u64 {
        let instances = || groups.iter().flat_map(|group| &group.instances);
        let operations = || instances().flat_map(|instance| self.operations(instance));
        match self {
            Self::Instances => groups.iter().map(|group| group.entered).sum(),
            Self::CopiedBytes(_) => sum(operations()
                .filter_map(|operation| operation.as_copy())
                .map(|copy| copy.bytes())),
            Self::Streams => {
                let streams: BTreeSet<_> =
                    operations().map(|operation| stream(&operation)).collect();
                streams.len() as u64
            }
            Self::StallShare(_, stall) => {
                let share = self.instructions(groups).map(|of| of.stalls().share(*stall));
                (share.unwrap_or(0.0) * SHARE).round() as u64
            }
            Self::GpuTime => sum(operations().map(|operation| ns(&operation))),
            Self::HostTime => sum(instances().map(|instance| instance.host_ns)),
            Self::GpuTimeOf(statistic) | Self::HostTimeOf(statistic) => {
                let outermost = instances().filter(|instance| !instance.nested);
                let time = |instance: &Instance<'_>| match self {
                    Self::HostTimeOf(_) => instance.host_ns,
                    _ => sum(instance.operations.iter().map(ns)),
                };
                statistic.compute(outermost.map(time).collect())
            }
            Self::BusyTime | Self::BusyShare | Self::Idle => {
                let spans = || instances().flat_map(spans);
                let (total, busy): (u64, u64) =
                    (sum(spans().map(|span| span.total)), sum(spans().map(|span| span.busy)));
                match self {
                    Self::BusyTime => busy,
                    Self::Idle => spans().map(|span| span.idle).sum(),
                    _ => (busy as f64 / total.max(1) as f64 * SHARE).round() as u64,
                }
            }
            _ if self.source() == Source::Calls => {
                instances().map(|instance| self.calls(instance).len() as u64).sum()
            }
            _ => operations().count() as u64,
        }
    }
}

/// The stream of an operation: process, device, context and CUPTI's number.
pub(super) fn stream(operation: &GpuOperation<'_>) -> [u32; 4] {
    [operation.process_id(), operation.device(), operation.context(), operation.stream()]
}

pub(super) fn ns(operation: &GpuOperation<'_>) -> u64 {
    operation.interval().map_or(0, |time| time.ns())
}

/// True if the host waits for the copy; `None` if the record lacks the information.
pub(super) fn blocks(copy: &MemoryCopy<'_>) -> Option<bool> {
    let details = copy.details();
    if details.graph_node.is_some() {
        return Some(false);
    }
    match details.kind {
        CopyKind::DeviceToDevice | CopyKind::PeerToPeer => Some(false),
        CopyKind::HostToDevice | CopyKind::HostToHost => Some(!details.asynchronous),
        CopyKind::DeviceToHost if !details.asynchronous => Some(true),
        CopyKind::DeviceToHost => {
            is_known(details.destination).then_some(details.destination == MemoryKind::PAGEABLE)
        }
        _ => None,
    }
}

/// True if the copy reads or writes pageable memory; `None` if the record lacks the information.
pub(super) fn is_pageable(copy: &MemoryCopy<'_>) -> Option<bool> {
    let ends = [copy.details().source, copy.details().destination];
    if ends.contains(&MemoryKind::PAGEABLE) {
        return Some(true);
    }
    ends.into_iter().all(is_known).then_some(false)
}

fn is_known(kind: MemoryKind) -> bool {
    (1..=7).contains(&kind.0)
}

/// The time from the first operation of an instance on a device to the end of the last.
pub(super) struct Span<'a> {
    pub(super) total: u64,
    /// Time in which an operation other than a collective ran.
    pub(super) busy: u64,
    /// Time in which no operation ran.
    pub(super) idle: u64,
    /// Length of each gap, and the operation that ended it.
    pub(super) gaps: Vec<(u64, GpuOperation<'a>)>,
}

/// The saturating sum: a damaged file may contain any number.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

pub(super) fn spans<'a>(instance: &Instance<'a>) -> Vec<Span<'a>> {
    let mut open: FxHashMap<u32, (DeviceSweep, Vec<(u64, GpuOperation<'a>)>)> =
        FxHashMap::default();
    // Operations are sorted by start.
    for operation in &instance.operations {
        let Some(time) = operation.interval() else {
            continue;
        };
        let (sweep, gaps) = open.entry(operation.device()).or_default();
        let gap = sweep.add(time, operation.is_collective());
        gaps.extend(gap.map(|gap| (gap.ns(), *operation)));
    }
    let span = |(sweep, gaps): (DeviceSweep, _)| Span {
        total: sweep.span().ns(),
        busy: sweep.busy_ns(),
        idle: sweep.idle_ns(),
        gaps,
    };
    open.into_values().map(span).collect()
}
