//! The measurements of one run: its wall time, and exact counts and times of each range.

use std::collections::{BTreeMap, HashMap};

use profiler_base::hodges_lehmann::midmean;
use profiler_base::units::{nanoseconds, shape};

use crate::analyze::compare::wall::{ProcessKey, RangeKey, WallRun};
use crate::analyze::compare::{DeviceCounts, active_entries};
use crate::check::device_of;
use crate::running_numbers::{NodeNames, Purpose};
use profiler_core::profile::Totals;
use profiler_core::profile::{GpuOperation, Profile, RangeNode};

/// The path of kernels launched outside any range.
pub(crate) const OUTSIDE: &str = "(outside any range)";
/// The path of all kernels together.
pub(crate) const EVERYTHING: &str = "(everything)";
/// Maximum levels of a path: recursions may be arbitrarily deep.
const LEVELS: usize = 100;

/// One run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Run {
    /// By range path.
    pub(crate) parts: BTreeMap<String, Part>,
    /// The wall time; `None` if it was not measured.
    pub(crate) wall: Option<WallRun>,
    /// The mean SM clock while operations ran, if sampled.
    pub(crate) sm_hz: Option<f64>,
    pub(crate) process: ProcessKey,
    pub(crate) devices: Option<DeviceCounts>,
}

/// The measurements of one range in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Part {
    /// Entries with GPU operations, for outermost ranges.
    pub(crate) active: Option<u64>,
    /// Exclusive counts, so that a change appears once.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The host's time in the range, summed over instances.
    pub(crate) host_ns: f64,
    /// The time in which GPU operations of the range and of ranges within it ran.
    pub(crate) busy_ns: f64,
    /// The sum over all kernels in the range and in ranges within it; 0 without kernels.
    pub(crate) kernel_ns: f64,
    /// Kernels launched directly in the range, by name and shape.
    pub(crate) kernels: BTreeMap<String, Kernels>,
}

/// Kernels of one name and shape in one range.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Kernels {
    pub(crate) count: u64,
    /// The midmean of their times.
    pub(crate) ns: f64,
}

impl Run {
    /// Measures a complete profile. Fails with the reason if the profile is unusable.
    pub(crate) fn from_profile(profile: &Profile) -> Result<Self, String> {
        if !profile.health().is_complete() {
            return Err(profile.health().to_string());
        }
        let timeless = profile.operations().filter(|of| of.interval().is_none()).count();
        if timeless != 0 {
            return Err(format!("{timeless} operations have no timestamps"));
        }
        let node_names = NodeNames::new([profile], Purpose::Comparison).pop().unwrap_or_default();
        let mut names = Names::default();
        let mut times: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
        let mut parts: BTreeMap<String, Part> = BTreeMap::new();
        let mut around: Vec<String> = Vec::new();
        let nowhere = RangeKey { path: OUTSIDE.into(), domain: None };
        let mut keys = vec![nowhere; profile.range_tree().nodes.len()];
        for (depth, node) in profile.walk() {
            around.truncate(depth);
            let path = match around.last() {
                Some(_) if depth >= LEVELS => format!("{}/…", around[LEVELS - 1]),
                Some(outer) => format!("{outer}/{}", label(&node, &node_names)),
                None => label(&node, &node_names),
            };
            if depth < LEVELS {
                around.push(path.clone());
            }
            keys[node.id().at()] = RangeKey { path: path.as_str().into(), domain: None };
            let part = parts.entry(path.clone()).or_default();
            part.add(node.instances(), &node.exclusive());
            if depth == 0 {
                *part.active.get_or_insert(0) += active_entries(&node);
            }
            part.host_ns += nanoseconds(node.host_time()) as f64;
            part.kernel_ns += nanoseconds(node.inclusive().kernel_time()) as f64;
            // The sum over operations would be repeated by all levels of a recursion.
            if depth < LEVELS && node.inclusive().gpu_operations() != 0 {
                part.busy_ns += nanoseconds(node.query().busy_time()) as f64;
            }
            for operation in node.ranges().flat_map(|range| range.own_operations()) {
                names.add(&mut times, &path, &operation);
            }
        }
        let outside = profile.outside_ranges();
        if outside != Totals::default() {
            let part = parts.entry(OUTSIDE.to_owned()).or_default();
            part.add(0, &outside);
            part.kernel_ns = nanoseconds(outside.kernel_time()) as f64;
        }
        for operation in profile.operations().filter(|operation| operation.range().is_none()) {
            names.add(&mut times, OUTSIDE, &operation);
        }
        for ((path, kernel), mut ns) in times {
            let kernels = Kernels { count: ns.len() as u64, ns: midmean(&mut ns) };
            parts.entry(path).or_default().kernels.insert(kernel, kernels);
        }
        let kernel_ns = nanoseconds(profile.totals().kernel_time()) as f64;
        let busy_ns = nanoseconds(profile.query().busy_time()) as f64;
        parts.insert(EVERYTHING.to_owned(), Part { kernel_ns, busy_ns, ..Part::default() });
        let clocks = profile.device_clocks();
        let sm_hz = clocks.iter().find(|clocks| clocks.device == device_of(profile));
        Ok(Self {
            parts,
            wall: Some(WallRun::new(profile, &keys)),
            sm_hz: sm_hz.and_then(|clocks| clocks.sm_hz),
            process: ProcessKey::from_profile(profile),
            devices: DeviceCounts::from_profile(profile),
        })
    }
}

impl Part {
    fn add(&mut self, instances: u64, totals: &Totals) {
        for (name, count) in [
            ("instances", instances),
            ("launches", totals.launches),
            ("kernels", totals.kernels),
            ("copies", totals.copies),
            ("copied_bytes", totals.copy_bytes),
            ("memsets", totals.memsets),
            ("set_bytes", totals.memset_bytes),
            ("graphs", totals.graphs),
            ("synchronizations", totals.synchronizations),
            ("allocations", totals.allocations),
            ("frees", totals.frees),
        ] {
            if count != 0 {
                *self.counts.entry(name).or_default() += count;
            }
        }
    }
}

/// A range's name and domain.
fn label(node: &RangeNode<'_>, names: &NodeNames) -> String {
    match node.domain() {
        Some(domain) => format!("{} [{domain}]", names.name(node)),
        None => names.name(node).to_owned(),
    }
}

/// A cache of demangled names, since demangling costs microseconds.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn add(
        &mut self,
        times: &mut BTreeMap<(String, String), Vec<u64>>,
        path: &str,
        operation: &GpuOperation<'_>,
    ) {
        let (Some(kernel), Some(time)) = (operation.as_kernel(), operation.interval()) else {
            return;
        };
        let name = match self.0.get(kernel.name()) {
            Some(name) => name,
            None => self.0.entry(kernel.name().to_owned()).or_insert(kernel.demangled_name()),
        };
        let (grid, block) = (shape(kernel.grid()), shape(kernel.block()));
        let key = (path.to_owned(), format!("{name} <{grid}, {block}>"));
        times.entry(key).or_default().push(time.ns());
    }
}
