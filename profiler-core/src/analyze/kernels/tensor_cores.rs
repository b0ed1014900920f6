//! Tensor cores by operation, kernel and scope, and of the whole: the tables of DLProf.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nvtx::Dtype;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::data_type::has_tensor_cores;
use super::eligibility::Described;
use super::{Classifier, KernelClass, TcRemedy, TcStatus, TcUse, TensorCoreUse};
use crate::base::statistics::Statistics;
use crate::base::units::{nanoseconds as ns, time};
use crate::join::range_tree::NodeId;
use crate::profile::{Profile, RangeNode};
use crate::reports::{Cells, Report, Row, Unit};

/// An operation of the program: a row of DLProf's "OpNodes".
///
/// It is a range that says the type of its numbers, with all that is within it; or else a range in which kernels were
/// launched directly, with those alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TcOp {
    /// The path of its range.
    pub path: String,
    /// What its range says of it in the field `op`; or else the class that took most of its time.
    pub op_type: String,
    /// The times of its kernels, summed.
    pub total_ns: u64,
    /// Percent of the time of all kernels.
    pub time_percent: f64,
    /// How it fares.
    pub status: TcStatus,
    /// Whether tensor cores can do it; `None` if that is not known.
    pub eligible: Option<bool>,
    /// The type of its numbers: as its range says, or the names of its kernels.
    #[serde(serialize_with = "super::name_if_known")]
    pub data_type: Option<Dtype>,
    /// True if its range says the type, false if names of kernels alone were asked.
    pub described: bool,
    /// Kernels that ran.
    pub kernels: u64,
    /// Those that use tensor cores.
    pub tc_kernels: u64,
    /// Their times, summed.
    pub tc_ns: u64,
    /// Those of its products: kernels that use tensor cores, and products, convolutions and attention that do not.
    pub product_ns: u64,
    /// What to do.
    pub remedies: Vec<TcRemedy>,
}

impl Row for TcOp {
    const NAME: &'static str = "tensor_core_ops";

    fn cells(&self, cells: &mut Cells<'_>) {
        let yes = |is: bool| if is { "yes" } else { "no" };
        cells.add("Time", Unit::Percent, self.time_percent);
        cells.add("GPU Time", Unit::Duration, self.total_ns);
        cells.add("TC Status", Unit::Plain, self.status.name());
        cells.add("TC Eligible", Unit::Plain, self.eligible.map_or("unknown", yes));
        cells.add("TC Used", Unit::Plain, yes(self.tc_kernels != 0));
        cells.add("Kernels", Unit::Plain, self.kernels);
        cells.add("TC Kernels", Unit::Plain, self.tc_kernels);
        cells.add("TC Time", Unit::Duration, self.tc_ns);
        cells.add("Op Type", Unit::Plain, &self.op_type);
        cells.add("Data Type", Unit::Plain, self.data_type.map(Dtype::name));
        cells.add("Name", Unit::Plain, &self.path);
    }
}

/// A kernel: a row of DLProf's kernel list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TcKernel {
    /// Its name, without parameters.
    pub name: Arc<str>,
    /// What it is for.
    pub class: KernelClass,
    /// Whether it uses tensor cores, and how sure that is.
    #[serde(flatten)]
    pub tensor_core: TensorCoreUse,
    /// Percent of the time of all kernels.
    pub time_percent: f64,
    /// How often it ran.
    pub calls: u64,
    /// Its times on the GPU; those without timestamps are left out.
    pub times: Statistics,
}

impl Row for TcKernel {
    const NAME: &'static str = "tensor_core_kernels";

    fn cells(&self, cells: &mut Cells<'_>) {
        let of = &self.tensor_core;
        cells.add("Time", Unit::Percent, self.time_percent);
        cells.add("Using TC", Unit::Plain, of.tensor_cores.to_string());
        cells.add("Confidence", Unit::Plain, of.confidence.to_string());
        cells.add("Total Time", Unit::Duration, ns(self.times.sum()));
        cells.add("Calls", Unit::Plain, self.calls);
        cells.add("Avg", Unit::Duration, ns(self.times.mean()));
        cells.add("Min", Unit::Duration, ns(self.times.min()));
        cells.add("Max", Unit::Duration, ns(self.times.max()));
        cells.add("Class", Unit::Plain, self.class.name());
        cells.add("Because", Unit::Plain, of.because).add("Name", Unit::Plain, &self.name);
    }
}

/// A scope of ranges with all within it: a row of DLProf's "Group Nodes".
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TcGroup {
    /// The path of its range.
    pub path: String,
    /// How many ranges are around it.
    pub depth: usize,
    /// The times of kernels in it and within, summed.
    pub total_ns: u64,
    /// Those of operations that are eligible.
    pub eligible_ns: u64,
    /// Those of kernels that use tensor cores.
    pub tc_ns: u64,
    /// `tc_ns` in percent of `total_ns`.
    pub tc_percent: f64,
    /// Operations in it and within.
    pub ops: u64,
    /// Those that are eligible.
    pub eligible_ops: u64,
    /// Those that use tensor cores.
    pub using_ops: u64,
}

impl Row for TcGroup {
    const NAME: &'static str = "tensor_core_groups";

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add("GPU Time", Unit::Duration, self.total_ns);
        cells.add("TC Time", Unit::Duration, self.tc_ns);
        cells.add("TC Utilization", Unit::Percent, self.tc_percent);
        cells.add("Eligible Time", Unit::Duration, self.eligible_ns);
        cells.add("Ops", Unit::Plain, self.ops).add(
            "TC Eligible Ops",
            Unit::Plain,
            self.eligible_ops,
        );
        cells.add("TC Using Ops", Unit::Plain, self.using_ops).add("Name", Unit::Plain, &self.path);
    }
}

/// Of all operations: DLProf's "Model Summary".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct TcSummary {
    /// Operations.
    pub ops: u64,
    /// Those that are eligible.
    pub eligible_ops: u64,
    /// Those of them that use tensor cores.
    pub using_ops: u64,
    /// Those of which it is not known.
    pub unknown_ops: u64,
    /// The times of all kernels, summed.
    pub total_ns: u64,
    /// Those of operations that are eligible.
    pub eligible_ns: u64,
    /// Those of kernels that use tensor cores.
    pub tc_ns: u64,
    /// Those of kernels of which it is not known.
    pub unknown_ns: u64,
}

impl TcSummary {
    /// The part of the GPU's time that kernels with tensor cores take, from 0 to 1.
    pub fn tc_share(&self) -> f64 {
        share(self.tc_ns, self.total_ns)
    }

    /// The part of the GPU's time that operations take that are eligible, from 0 to 1.
    pub fn eligible_share(&self) -> f64 {
        share(self.eligible_ns, self.total_ns)
    }
}

impl fmt::Display for TcSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |ns| time(Duration::from_nanos(ns));
        write!(
            f,
            "operations {}: {} eligible for tensor cores, {} using them, {} unknown\n\
             GPU time {}: {} ({:.1} %) in eligible operations, {} ({:.1} %) in kernels with tensor cores, {} unknown",
            self.ops,
            self.eligible_ops,
            self.using_ops,
            self.unknown_ops,
            of(self.total_ns),
            of(self.eligible_ns),
            100.0 * self.eligible_share(),
            of(self.tc_ns),
            100.0 * self.tc_share(),
            of(self.unknown_ns),
        )
    }
}

/// Tensor cores by operation, kernel and scope, as DLProf had it. Made by [`Profile::tensor_cores`].
///
/// Whether a kernel uses them is told by its name, with a [`Confidence`](super::Confidence). Whether an operation could is told by what its
/// range says: the field `dtype` (`"f16"`, `"bf16"`, ...), and if they are given `m`, `n`, `k` of a product, or
/// `out_channels` and `in_channels`. Where a range says nothing, a product without tensor cores of a type that they know
/// is eligible, and f32 is such a type.
///
/// `{}` prints the summary, the tables and what to do.
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct TensorCores {
    summary: TcSummary,
    ops: Report<TcOp>,
    kernels: Report<TcKernel>,
    groups: Report<TcGroup>,
}

impl TensorCores {
    /// The whole.
    pub fn summary(&self) -> TcSummary {
        self.summary
    }

    /// The operations, those first that took most time.
    pub fn ops(&self) -> &Report<TcOp> {
        &self.ops
    }

    /// The kernels, those first that took most time.
    pub fn kernels(&self) -> &Report<TcKernel> {
        &self.kernels
    }

    /// The scopes: each directly before those within it.
    pub fn groups(&self) -> &Report<TcGroup> {
        &self.groups
    }

    /// What to do, with the time of the operations that it is for: the most first.
    pub fn remedies(&self) -> Vec<(TcRemedy, Duration)> {
        let mut times: Vec<(TcRemedy, u64)> = Vec::new();
        for op in self.ops.rows() {
            for remedy in &op.remedies {
                match times.iter_mut().find(|(known, _)| known == remedy) {
                    Some((_, ns)) => *ns = ns.saturating_add(op.total_ns),
                    None => times.push((*remedy, op.total_ns)),
                }
            }
        }
        times.sort_by_key(|(remedy, ns)| (Reverse(*ns), *remedy));
        times.into_iter().map(|(remedy, ns)| (remedy, Duration::from_nanos(ns))).collect()
    }
}

impl fmt::Display for TensorCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.summary)?;
        self.ops.fmt(f)?;
        f.write_str("\n\n")?;
        self.kernels.fmt(f)?;
        f.write_str("\n\n")?;
        self.groups.fmt(f)?;
        for (at, (remedy, spent)) in self.remedies().into_iter().enumerate() {
            let space = if at == 0 { "\n\n" } else { "\n" };
            write!(f, "{space}for {}: {}", time(spent), remedy.advice())?;
        }
        Ok(())
    }
}

/// What was run of one kernel somewhere.
#[derive(Debug, Clone, Copy, Default)]
struct Ran {
    count: u64,
    ns: u64,
}

impl Ran {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.ns = self.ns.saturating_add(more.ns);
    }
}

/// Kernels by name, and what of them ran where.
struct Known {
    use_: TensorCoreUse,
    class: KernelClass,
    name: Arc<str>,
    times: Vec<u64>,
    calls: u64,
}

/// What was launched in a range directly: by kernel.
type Launched = FxHashMap<usize, Ran>;

impl Profile {
    /// How its operations fare with tensor cores. Costs one pass over its kernels and its ranges.
    pub fn tensor_cores(&self) -> TensorCores {
        self.tensor_cores_with(&Classifier::new())
    }

    /// The same, with rules of the program's own for what kernels are for.
    pub fn tensor_cores_with(&self, classifier: &Classifier) -> TensorCores {
        Account::new(self, classifier).finish()
    }
}

struct Account<'a> {
    profile: &'a Profile,
    kernels: Vec<Known>,
    /// `None` is the place outside all ranges.
    launched: FxHashMap<Option<NodeId>, Launched>,
    total_ns: u64,
    left_out: u64,
    /// That of the newest device on which kernels ran.
    capability: Option<(u32, u32)>,
}

impl<'a> Account<'a> {
    fn new(profile: &'a Profile, classifier: &Classifier) -> Self {
        let mut account = Self {
            profile,
            kernels: Vec::new(),
            launched: FxHashMap::default(),
            total_ns: 0,
            left_out: 0,
            capability: None,
        };
        let mut of_name: FxHashMap<&'a str, usize> = FxHashMap::default();
        let mut devices: Vec<u32> = Vec::new();
        for kernel in profile.kernels() {
            let known = *of_name.entry(kernel.name()).or_insert_with(|| {
                account.kernels.push(Known {
                    use_: kernel.tensor_core_use_with(classifier),
                    class: kernel.class_with(classifier),
                    name: kernel.demangled_name().into(),
                    times: Vec::new(),
                    calls: 0,
                });
                account.kernels.len() - 1
            });
            let node = kernel.range().map(|range| range.node().id);
            let ns = kernel.row().ns();
            let ran = account.launched.entry(node).or_default().entry(known).or_default();
            ran.add(Ran { count: 1, ns });
            account.total_ns = account.total_ns.saturating_add(ns);
            let known = &mut account.kernels[known];
            known.calls += 1;
            match kernel.interval() {
                Some(_) => known.times.push(ns),
                None => account.left_out += 1,
            }
            if !devices.contains(&kernel.device()) {
                devices.push(kernel.device());
            }
        }
        let limits = devices.into_iter().filter_map(|device| profile.capability(device));
        account.capability = limits.max();
        account
    }

    fn finish(self) -> TensorCores {
        let (ops, of_node) = self.ops();
        let summary = self.summary(&ops);
        let groups = self.groups(&ops, &of_node);
        let mut rows: Vec<TcOp> = ops;
        rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.path.cmp(&b.path)));
        let (total_ns, left_out) = (self.total_ns, self.left_out);
        let mut kernels: Vec<TcKernel> = self
            .kernels
            .into_iter()
            .map(|known| {
                let ns = known.times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
                TcKernel {
                    name: known.name,
                    class: known.class,
                    tensor_core: known.use_,
                    time_percent: 100.0 * share(ns, total_ns),
                    calls: known.calls,
                    times: Statistics::of_ns(known.times),
                }
            })
            .collect();
        kernels.sort_by(|a, b| b.times.sum().cmp(&a.times.sum()).then_with(|| a.name.cmp(&b.name)));
        const NONE: &str = "no kernel was recorded";
        TensorCores {
            summary,
            ops: Report::new(rows, NONE).leaving_out(left_out),
            kernels: Report::new(kernels, NONE).leaving_out(left_out),
            groups: Report::new(groups, "there is no range"),
        }
    }

    /// The operations, and which of them a node is or belongs to.
    fn ops(&self) -> (Vec<TcOp>, FxHashMap<NodeId, usize>) {
        let (mut ops, mut of_node) = (Vec::new(), FxHashMap::default());
        // The depth below which all belongs to the operation before.
        let mut within: Option<usize> = None;
        for (depth, node) in self.profile.walk() {
            if within.is_some_and(|around| depth > around) {
                continue;
            }
            let described: Vec<Described> = self.described(node);
            within = (!described.is_empty()).then_some(depth);
            let mut launched = Launched::default();
            let mut add = |id: NodeId| {
                for (kernel, ran) in self.launched.get(&Some(id)).into_iter().flatten() {
                    launched.entry(*kernel).or_default().add(*ran);
                }
            };
            match described.is_empty() {
                true => add(node.id),
                false => node.walk().for_each(|(_, node)| add(node.id)),
            }
            if launched.is_empty() {
                continue;
            }
            of_node.insert(node.id, ops.len());
            let op_type = node.ranges().find_map(|range| match range.field("op")? {
                nvtx::FieldValue::Str(text) => Some(text.to_owned()),
                _ => None,
            });
            ops.push(self.op(node.cut_path(), op_type, &described, &launched));
        }
        if let Some(launched) = self.launched.get(&None) {
            ops.push(self.op("(outside any range)".to_owned(), None, &[], launched));
        }
        (ops, of_node)
    }

    fn described(&self, node: RangeNode<'_>) -> Vec<Described> {
        // Most programs say nothing of their ranges.
        if self.profile.store.details.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<Described> = Vec::new();
        for described in node.ranges().filter_map(|range| Described::of(&range)) {
            if !all.contains(&described) {
                all.push(described);
            }
        }
        all
    }

    fn op(
        &self,
        path: String,
        op_type: Option<String>,
        described: &[Described],
        launched: &Launched,
    ) -> TcOp {
        let mut of_class: Vec<(KernelClass, u64)> = Vec::new();
        let (mut all, mut tc, mut products) = (Ran::default(), Ran::default(), Ran::default());
        let (mut has_unknown, mut has_other, mut data_type) = (false, false, None);
        // Products whose names say that they do without.
        let mut plain: Vec<Option<Dtype>> = Vec::new();
        let mut kernels: Vec<(&usize, &Ran)> = launched.iter().collect();
        kernels.sort_unstable_by_key(|(kernel, ran)| (Reverse(ran.ns), **kernel));
        for (kernel, ran) in kernels {
            let known = &self.kernels[*kernel];
            all.add(*ran);
            if known.use_.tensor_cores == TcUse::Using {
                tc.add(*ran);
            }
            match of_class.iter_mut().find(|(class, _)| *class == known.class) {
                Some((_, ns)) => *ns = ns.saturating_add(ran.ns),
                None => of_class.push((known.class, ran.ns)),
            }
            if known.class.is_matrix_math() || known.use_.tensor_cores == TcUse::Using {
                products.add(*ran);
                data_type = data_type.or(known.use_.data_type);
            }
            match known.use_.tensor_cores {
                TcUse::Unknown if known.class.is_matrix_math() => has_unknown = true,
                TcUse::Unknown => has_other = true,
                TcUse::NotUsing if known.use_.is_plain_product => plain.push(known.use_.data_type),
                _ => {}
            }
        }
        // A kernel that could be anything is hardly one where others are known to be the products.
        has_unknown |= has_other && plain.is_empty();
        let (eligible, mut remedies) = self.eligible(described, &plain, tc.count != 0, has_unknown);
        let status = match eligible {
            _ if tc.count != 0 => TcStatus::Using,
            Some(true) if has_unknown => TcStatus::Unknown,
            Some(true) => TcStatus::EligibleNotUsing,
            Some(false) => TcStatus::NotEligible,
            None => TcStatus::Unknown,
        };
        match status {
            TcStatus::EligibleNotUsing if remedies.is_empty() => {
                remedies.push(TcRemedy::CheckAlgorithm);
            }
            // It found its way; sizes may still be wrong.
            TcStatus::Using => remedies.retain(|remedy| *remedy == TcRemedy::PadShape),
            TcStatus::NotEligible | TcStatus::Unknown => remedies.clear(),
            TcStatus::EligibleNotUsing => {}
        }
        let first = of_class.iter().max_by_key(|(class, ns)| (*ns, Reverse(*class)));
        let first = first.map_or(KernelClass::Other, |(class, _)| *class);
        TcOp {
            path,
            op_type: op_type.unwrap_or_else(|| first.name().to_owned()),
            total_ns: all.ns,
            time_percent: 100.0 * share(all.ns, self.total_ns),
            status,
            eligible: if tc.count != 0 { Some(true) } else { eligible },
            data_type: described.first().and_then(|of| of.data_type).or(data_type),
            described: !described.is_empty(),
            kernels: all.count,
            tc_kernels: tc.count,
            tc_ns: tc.ns,
            product_ns: products.ns,
            remedies,
        }
    }

    /// Whether tensor cores can do it. What a range says counts before names of kernels.
    fn eligible(
        &self,
        described: &[Described],
        plain: &[Option<Dtype>],
        is_using: bool,
        has_unknown: bool,
    ) -> (Option<bool>, Vec<TcRemedy>) {
        let Some(capability) = self.capability else { return (None, Vec::new()) };
        if !has_tensor_cores(Dtype::F16, capability) {
            return (Some(false), Vec::new());
        }
        let by_names;
        let described = match described.is_empty() {
            true => {
                let of = |data_type: &Option<Dtype>| Described {
                    data_type: *data_type,
                    ..Described::default()
                };
                by_names = plain.iter().map(of).collect::<Vec<_>>();
                &by_names[..]
            }
            false => described,
        };
        let known: Vec<_> = described.iter().filter_map(|of| of.eligible(capability)).collect();
        let mut remedies: Vec<TcRemedy> = Vec::new();
        for remedy in known.iter().flat_map(|(_, remedies)| remedies) {
            if !remedies.contains(remedy) {
                remedies.push(*remedy);
            }
        }
        let eligible = match known.iter().any(|(eligible, _)| *eligible) {
            true => Some(true),
            // Nothing in it is a product.
            false if described.is_empty() && !has_unknown && !is_using => Some(false),
            false if !known.is_empty() && known.len() == described.len() && !has_unknown => {
                Some(false)
            }
            false => None,
        };
        (eligible, remedies)
    }

    fn summary(&self, ops: &[TcOp]) -> TcSummary {
        let mut summary = TcSummary { total_ns: self.total_ns, ..TcSummary::default() };
        for op in ops {
            summary.ops += 1;
            let is_eligible = op.eligible == Some(true);
            summary.eligible_ops += u64::from(is_eligible);
            summary.using_ops += u64::from(op.status == TcStatus::Using);
            summary.unknown_ops += u64::from(op.status == TcStatus::Unknown);
            summary.tc_ns = summary.tc_ns.saturating_add(op.tc_ns);
            if is_eligible {
                summary.eligible_ns = summary.eligible_ns.saturating_add(op.total_ns);
            }
        }
        for (kernel, ran) in self.launched.values().flatten() {
            if self.kernels[*kernel].use_.tensor_cores == TcUse::Unknown {
                summary.unknown_ns = summary.unknown_ns.saturating_add(ran.ns);
            }
        }
        summary
    }

    fn groups(&self, ops: &[TcOp], of_node: &FxHashMap<NodeId, usize>) -> Vec<TcGroup> {
        let mut groups: Vec<TcGroup> = Vec::new();
        let mut parents: Vec<Option<usize>> = Vec::new();
        // The groups that are open around the node, the innermost last.
        let mut around: Vec<usize> = Vec::new();
        for (depth, node) in self.profile.walk() {
            around.truncate(depth);
            parents.push(around.last().copied());
            around.push(groups.len());
            groups.push(TcGroup {
                path: node.cut_path(),
                depth,
                total_ns: 0,
                eligible_ns: 0,
                tc_ns: 0,
                tc_percent: 0.0,
                ops: 0,
                eligible_ops: 0,
                using_ops: 0,
            });
            let Some(op) = of_node.get(&node.id).map(|op| &ops[*op]) else { continue };
            let Some(group) = groups.last_mut() else { continue };
            let is_eligible = op.eligible == Some(true);
            group.total_ns = op.total_ns;
            group.tc_ns = op.tc_ns;
            group.ops = 1;
            group.using_ops = u64::from(op.status == TcStatus::Using);
            group.eligible_ops = u64::from(is_eligible);
            group.eligible_ns = if is_eligible { op.total_ns } else { 0 };
        }
        // Backwards every group is whole before it is added to the one around it.
        for (at, parent) in parents.into_iter().enumerate().rev() {
            let Some(parent) = parent else { continue };
            let (outer, inner) = groups.split_at_mut(at);
            let (Some(outer), Some(inner)) = (outer.get_mut(parent), inner.first()) else {
                continue;
            };
            outer.total_ns = outer.total_ns.saturating_add(inner.total_ns);
            outer.eligible_ns = outer.eligible_ns.saturating_add(inner.eligible_ns);
            outer.tc_ns = outer.tc_ns.saturating_add(inner.tc_ns);
            outer.ops += inner.ops;
            outer.using_ops += inner.using_ops;
            outer.eligible_ops += inner.eligible_ops;
        }
        groups.retain(|group| group.ops != 0);
        for group in &mut groups {
            group.tc_percent = 100.0 * share(group.tc_ns, group.total_ns);
        }
        groups
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
