//! Tensor cores by operation, kernel and scope, and in total: the tables of DLProf.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nvtx::Dtype;
use profiler_base::display::{DisplayOptions, Layout, RowLimit};
use profiler_base::display_by_default_layout;
use profiler_base::getters;
use profiler_base::kernel_names::lower_case;
use profiler_base::statistics::{Statistics, as_ns, ratio};
use profiler_base::units::{nanoseconds as ns, time};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::data_type::has_tensor_cores;
use super::eligibility::OpFields;
use super::gemm_name::GemmName;
use super::{Classifier, KernelClass, TcRemedy, TcStatus, TcUse, TensorCoreUse};
use super::{shares, tensor_core};
use crate::analyze::kernels::shape::compute_capability;
use crate::reports::{AnyReport, Cells, Report, Row, Unit, row};
use profiler_core::profile::{Profile, RangeNode};
use profiler_core::query::Query;
use profiler_core::tables::range_tree::NodeId;

/// An operation of the program: a row of DLProf's "OpNodes".
///
/// One of:
///
/// - A range whose fields contain a number type, with everything within.
/// - A range with a field `op`, with the kernels launched directly in it.
/// - The kernels of one class launched directly in any other range, or outside ranges.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TcOp {
    /// The path of its range.
    pub path: String,
    /// The range's field `op`; without it, the class of its kernels with the most time.
    pub op_type: String,
    /// Sum of its kernels' times.
    pub total_ns: u64,
    /// The time that is eligible for tensor cores: `product_ns`, or `total_ns` if no kernel is a
    /// product by its name. 0 for an operation that is not eligible.
    pub eligible_ns: u64,
    /// Percent of the time of all kernels.
    pub time_percent: f64,
    /// Its status.
    pub status: TcStatus,
    /// True if tensor cores can execute it; `None` if unknown.
    pub eligible: Option<bool>,
    /// The number type, from the range's fields or the kernel names.
    #[serde(serialize_with = "super::name_if_known")]
    pub data_type: Option<Dtype>,
    /// True if the range's fields contain the type; false if only kernel names were used.
    pub described: bool,
    /// Kernels that ran.
    pub kernels: u64,
    /// Kernels that use tensor cores.
    pub tc_kernels: u64,
    /// Sum of their times.
    pub tc_ns: u64,
    /// Time of products: kernels with tensor cores, and products, convolutions and attention
    /// without.
    pub product_ns: u64,
    /// Advice.
    pub remedies: Vec<TcRemedy>,
}

impl Row for TcOp {
    const NAME: &'static str = "tensor_core_ops";
    const KEPT_LONGER: &'static [&'static str] =
        &["GPU Time", "TC Status", "TC Time", "Op Type", "Name"];

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
        cells.add("Eligible Time", Unit::Duration, self.eligible_ns);
        cells.add("Op Type", Unit::Plain, &self.op_type);
        cells.add("Data Type", Unit::Plain, self.data_type.map(Dtype::name));
        cells.add("Name", Unit::Plain, &self.path);
    }
}

/// A kernel: a row of DLProf's kernel list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub(crate) struct TcKernel {
    /// Its name, without parameters.
    pub(crate) name: Arc<str>,
    /// Its class.
    pub(crate) class: KernelClass,
    /// Tensor-core use, with its confidence.
    #[serde(flatten)]
    pub(crate) tensor_core: TensorCoreUse,
    /// Percent of the time of all kernels.
    pub(crate) time_percent: f64,
    /// Number of launches.
    pub(crate) calls: u64,
    /// GPU times of its launches with timestamps.
    pub(crate) times: Statistics,
}

impl Row for TcKernel {
    const NAME: &'static str = "tensor_core_kernels";

    fn cells(&self, cells: &mut Cells<'_>) {
        let tensor_core = &self.tensor_core;
        cells.add("Time", Unit::Percent, self.time_percent);
        cells.add("Using TC", Unit::Plain, tensor_core.tensor_cores.to_string());
        cells.add("Confidence", Unit::Plain, tensor_core.confidence.to_string());
        cells.add("Total Time", Unit::Duration, ns(self.times.sum()));
        cells.add("Calls", Unit::Plain, self.calls);
        cells.add("Avg", Unit::Duration, ns(self.times.mean()));
        cells.add("Min", Unit::Duration, ns(self.times.min()));
        cells.add("Max", Unit::Duration, ns(self.times.max()));
        cells.add("Class", Unit::Plain, self.class.name());
        cells.add("Because", Unit::Plain, tensor_core.because);
        cells.add("Name", Unit::Plain, &self.name);
    }
}

row! {
    /// A scope of ranges with everything within: a row of DLProf's "Group Nodes".
    pub(crate) TcGroup = "tensor_core_groups" {
        /// The path of its range.
        path: String,
        /// Number of enclosing ranges.
        depth: usize,
        /// Sum of the times of kernels in it and within.
        total_ns: u64 => "GPU Time" Duration,
        /// Eligible time of its operations: [`TcOp::eligible_ns`].
        eligible_ns: u64,
        /// Time of kernels that use tensor cores.
        tc_ns: u64 => "TC Time" Duration,
        /// `tc_ns` in percent of `eligible_ns`.
        tc_percent: f64 => |row, cells| {
            cells.add("TC Utilization", Unit::Percent, row.tc_percent);
            cells.add("Eligible Time", Unit::Duration, row.eligible_ns)
        },
        /// Operations in it and within.
        ops: u64 => "Ops" Plain,
        /// Eligible operations.
        eligible_ops: u64 => "TC Eligible Ops" Plain,
        /// Operations that use tensor cores.
        using_ops: u64 => |row, cells| {
            cells.add("TC Using Ops", Unit::Plain, row.using_ops);
            cells.add("Name", Unit::Plain, &row.path)
        },
    }
}

/// Sums over all operations: DLProf's "Model Summary".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct TcSummary {
    /// Operations.
    pub ops: u64,
    /// Eligible operations.
    pub eligible_ops: u64,
    /// Eligible operations that use tensor cores.
    pub using_ops: u64,
    /// Operations with unknown status.
    pub unknown_ops: u64,
    /// Sum of all kernel times.
    #[serde(rename = "total_ns", serialize_with = "as_ns")]
    pub gpu_time: Duration,
    /// Eligible time of the operations: [`TcOp::eligible_ns`].
    #[serde(rename = "eligible_ns", serialize_with = "as_ns")]
    pub eligible_time: Duration,
    /// The part of `eligible_time` in operations with unknown status.
    #[serde(rename = "undecided_ns", serialize_with = "as_ns")]
    pub undecided_time: Duration,
    /// Time of kernels that use tensor cores.
    #[serde(rename = "tc_ns", serialize_with = "as_ns")]
    pub tc_time: Duration,
    /// Time of kernels with unknown use.
    #[serde(rename = "unknown_ns", serialize_with = "as_ns")]
    pub unknown_time: Duration,
}

impl TcSummary {
    /// Eligible share of GPU time, from 0 to 1.
    pub fn eligible_share(&self) -> f64 {
        share(self.eligible_time, self.gpu_time)
    }

    /// Share of the decided eligible time in kernels with tensor cores, from 0 to 1: the value of
    /// the [scorecard](crate::scorecard). `None` without such time.
    pub fn utilization(&self) -> Option<f64> {
        let decided = self.decided_time();
        (!decided.is_zero()).then(|| share(self.tc_time, decided).min(1.0))
    }

    /// Eligible time of operations with a known status.
    pub(crate) fn decided_time(&self) -> Duration {
        self.eligible_time.saturating_sub(self.undecided_time)
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    ratio(ns(part), ns(whole))
}

impl fmt::Display for TcSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "operations {}: {} eligible for tensor cores, {} using them, {} unknown\n\
             GPU time {}: {} ({:.1} %) eligible, {} in kernels with tensor cores",
            self.ops,
            self.eligible_ops,
            self.using_ops,
            self.unknown_ops,
            time(self.gpu_time),
            time(self.eligible_time),
            100.0 * self.eligible_share(),
            time(self.tc_time),
        )?;
        if let Some(utilization) = self.utilization() {
            let decided = if self.undecided_time.is_zero() { "" } else { "decided " };
            write!(f, " ({:.1} % of the {decided}eligible time)", 100.0 * utilization)?;
        }
        match self.unknown_time {
            Duration::ZERO => Ok(()),
            unknown => write!(f, ", {} unknown", time(unknown)),
        }
    }
}

/// Tensor cores by operation, kernel and scope, as in DLProf. Made by
/// [`Profile::tensor_cores`](crate::prelude::ProfileExt::tensor_cores).
///
/// Kernels are judged by name, with a [`Confidence`](super::Confidence). Operations are judged by
/// the fields of their range: `dtype` (`"f16"`, `"bf16"`, ...), optionally `m`, `n`, `k` of a
/// product, or `out_channels` and `in_channels`. Without fields, the kernels of one class in a
/// range are an operation. A product without tensor cores is then eligible if they support its
/// type, or if the type is f32.
///
/// `{}` prints the summary, the tables and the advice. `max_rows(10)` prints the first ten rows of
/// each table; for scopes, the ten with the most time.
#[derive(Debug, Clone, Serialize)]
#[must_use]
pub struct TensorCores {
    summary: TcSummary,
    ops: Report<TcOp>,
    kernels: Report<TcKernel>,
    groups: Report<TcGroup>,
}

impl TensorCores {
    getters! {
        /// The sums.
        summary: TcSummary = summary;
        /// The operations, longest time first.
        ops: &[TcOp] = ops.rows();
    }

    /// The operations, longest time first, the kernels, longest time first, and the scopes, each
    /// directly before those within it: as reports, for CSV and JSON.
    pub fn reports(&self) -> [AnyReport; 3] {
        [self.ops.clone().into(), self.kernels.clone().into(), self.groups.clone().into()]
    }

    /// The advice with the time of its operations, longest first.
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

impl DisplayOptions for TensorCores {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.summary)?;
        self.ops.write_in(layout, f)?;
        f.write_str("\n\n")?;
        self.kernels.write_in(layout, f)?;
        f.write_str("\n\n")?;
        match layout.rows {
            RowLimit::Most(most) => {
                let groups = self.groups.clone().largest(most, |group| group.total_ns);
                groups.write_in(layout, f)?;
            }
            RowLimit::Default | RowLimit::All => self.groups.write_in(layout, f)?,
        }
        for (at, (remedy, spent)) in self.remedies().into_iter().enumerate() {
            let space = if at == 0 { "\n\n" } else { "\n" };
            write!(f, "{space}for {}: {}", time(spent), remedy.advice())?;
        }
        Ok(())
    }
}

display_by_default_layout!(TensorCores);

/// Launches and their time.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.ns = self.ns.saturating_add(more.ns);
    }
}

/// A kernel by name.
struct KernelData {
    tensor_core: TensorCoreUse,
    class: KernelClass,
    /// True for a product whose loads are for unaligned operands, by its name.
    is_unaligned: bool,
    name: Arc<str>,
    times: Vec<u64>,
    calls: u64,
}

/// The direct launches of a range by kernel index.
type Launched = FxHashMap<usize, Sum>;

/// [`ProfileExt::tensor_cores_with`](crate::prelude::ProfileExt::tensor_cores_with).
pub(crate) fn tensor_cores(query: &Query<'_>, classifier: &Classifier) -> TensorCores {
    Account::new(query, classifier).finish()
}

struct Account<'a> {
    profile: &'a Profile,
    kernels: Vec<KernelData>,
    /// `None` outside any range.
    launched: FxHashMap<Option<NodeId>, Launched>,
    total_ns: u64,
    left_out: u64,
    /// The highest compute capability of the used devices.
    capability: Option<(u32, u32)>,
}

impl<'a> Account<'a> {
    fn new(query: &Query<'a>, classifier: &Classifier) -> Self {
        let profile = query.profile();
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
        for kernel in query.iter().filter_map(|operation| operation.as_kernel()) {
            let index = *of_name.entry(kernel.name()).or_insert_with(|| {
                let name = kernel.demangled_name();
                let alignment = GemmName::parse(&lower_case(&name).0).alignment;
                account.kernels.push(KernelData {
                    tensor_core: tensor_core::tensor_core_use(&kernel, classifier),
                    class: shares::class(&kernel, classifier),
                    is_unaligned: alignment.is_some_and(|alignment| alignment.is_unaligned()),
                    name: name.into(),
                    times: Vec::new(),
                    calls: 0,
                });
                account.kernels.len() - 1
            });
            let node = kernel.range().map(|range| range.node().id());
            let ns = kernel.row().ns();
            let sum = account.launched.entry(node).or_default().entry(index).or_default();
            sum.add(Sum { count: 1, ns });
            account.total_ns = account.total_ns.saturating_add(ns);
            let known = &mut account.kernels[index];
            known.calls += 1;
            match kernel.interval() {
                Some(_) => known.times.push(ns),
                None => account.left_out += 1,
            }
            if !devices.contains(&kernel.device()) {
                devices.push(kernel.device());
            }
        }
        let capabilities =
            devices.into_iter().filter_map(|device| compute_capability(profile, device));
        account.capability = capabilities.max();
        account
    }

    fn finish(self) -> TensorCores {
        let (mut ops, of_node) = self.ops();
        let summary = self.summary(&ops);
        let groups = self.groups(&ops, &of_node);
        ops.sort_by(|a, b| {
            let by_path = || (&a.path, &a.op_type).cmp(&(&b.path, &b.op_type));
            b.total_ns.cmp(&a.total_ns).then_with(by_path)
        });
        let (total_ns, left_out) = (self.total_ns, self.left_out);
        let kernels = self.kernels.into_iter().map(|known| {
            let ns = known.times.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
            TcKernel {
                name: known.name,
                class: known.class,
                tensor_core: known.tensor_core,
                time_percent: 100.0 * ratio(ns, total_ns),
                calls: known.calls,
                times: Statistics::from_nanos(known.times),
            }
        });
        let mut kernels: Vec<TcKernel> = kernels.collect();
        kernels.sort_by(|a, b| b.times.sum().cmp(&a.times.sum()).then_with(|| a.name.cmp(&b.name)));
        const NONE: &str = "no kernel was recorded";
        TensorCores {
            summary,
            ops: Report::new(ops, NONE).leaving_out(left_out),
            kernels: Report::new(kernels, NONE).leaving_out(left_out),
            groups: Report::new(groups, "there is no range"),
        }
    }

    /// The operations, and the indices of the operations of each node.
    fn ops(&self) -> (Vec<TcOp>, FxHashMap<NodeId, Range<usize>>) {
        let (mut ops, mut of_node) = (Vec::new(), FxHashMap::default());
        // The depth of an open operation, which includes all deeper nodes.
        let mut within: Option<usize> = None;
        for (depth, node) in self.profile.walk() {
            if within.is_some_and(|around| depth > around) {
                continue;
            }
            let fields = self.fields(node);
            within = (!fields.is_empty()).then_some(depth);
            let mut launched = Launched::default();
            for (_, node) in node.walk().take(if fields.is_empty() { 1 } else { usize::MAX }) {
                for (kernel, sum) in self.launched.get(&Some(node.id())).into_iter().flatten() {
                    launched.entry(*kernel).or_default().add(*sum);
                }
            }
            if launched.is_empty() {
                continue;
            }
            let first = ops.len();
            let op_type = node.ranges().find_map(|range| match range.field("op")? {
                nvtx::FieldValue::Str(text) => Some(text.to_owned()),
                _ => None,
            });
            match fields.is_empty() && op_type.is_none() {
                true => ops.extend(self.ops_by_class(&node.cut_path(), &launched)),
                false => ops.push(self.op(node.cut_path(), op_type, &fields, &launched)),
            }
            of_node.insert(node.id(), first..ops.len());
        }
        if let Some(launched) = self.launched.get(&None) {
            ops.extend(self.ops_by_class("(outside any range)", launched));
        }
        (ops, of_node)
    }

    /// Returns the operations of launches without fields: one for each class of kernels.
    fn ops_by_class(&self, path: &str, launched: &Launched) -> impl Iterator<Item = TcOp> {
        let mut of_class: BTreeMap<KernelClass, Launched> = BTreeMap::new();
        for (kernel, sum) in launched {
            let class = self.kernels[*kernel].class;
            of_class.entry(class).or_default().insert(*kernel, *sum);
        }
        of_class.into_values().map(|launched| self.op(path.to_owned(), None, &[], &launched))
    }

    /// The distinct fields of the ranges of a node.
    fn fields(&self, node: RangeNode<'_>) -> Vec<OpFields> {
        let mut all: Vec<OpFields> = Vec::new();
        // Most programs have no fields.
        if self.profile.tables().details.is_empty() {
            return all;
        }
        for fields in node.ranges().filter_map(|range| OpFields::from_range(&range)) {
            if !all.contains(&fields) {
                all.push(fields);
            }
        }
        all
    }

    fn op(
        &self,
        path: String,
        op_type: Option<String>,
        fields: &[OpFields],
        launched: &Launched,
    ) -> TcOp {
        let mut of_class: Vec<(KernelClass, u64)> = Vec::new();
        let (mut all, mut tc, mut products) = (Sum::default(), Sum::default(), Sum::default());
        let (mut has_unknown, mut has_other, mut data_type) = (false, false, None);
        let mut is_unaligned = false;
        // Products without tensor cores, by their names.
        let mut plain: Vec<Option<Dtype>> = Vec::new();
        let mut kernels: Vec<(&usize, &Sum)> = launched.iter().collect();
        kernels.sort_unstable_by_key(|(kernel, sum)| (Reverse(sum.ns), **kernel));
        for (kernel, sum) in kernels {
            let KernelData { tensor_core, class, .. } = &self.kernels[*kernel];
            is_unaligned |= self.kernels[*kernel].is_unaligned;
            let is_using = tensor_core.tensor_cores == TcUse::Using;
            all.add(*sum);
            match of_class.iter_mut().find(|(known, _)| known == class) {
                Some((_, ns)) => *ns = ns.saturating_add(sum.ns),
                None => of_class.push((*class, sum.ns)),
            }
            if is_using {
                tc.add(*sum);
            }
            if class.is_matrix_math() || is_using {
                products.add(*sum);
                data_type = data_type.or(tensor_core.data_type);
            }
            match tensor_core.tensor_cores {
                TcUse::Unknown if class.is_matrix_math() => has_unknown = true,
                TcUse::Unknown => has_other = true,
                TcUse::NotUsing if tensor_core.is_plain_product => {
                    plain.push(tensor_core.data_type);
                }
                _ => {}
            }
        }
        // Beside known products, an unclassified kernel is unlikely to be a product.
        has_unknown |= has_other && plain.is_empty();
        let (eligible, mut remedies) = self.eligible(fields, &plain, tc.count != 0, has_unknown);
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
            // Sizes may still be wrong.
            TcStatus::Using => remedies.retain(|remedy| *remedy == TcRemedy::PadShape),
            TcStatus::NotEligible | TcStatus::Unknown => remedies.clear(),
            TcStatus::EligibleNotUsing => {}
        }
        if is_unaligned && status == TcStatus::Using && remedies.is_empty() {
            remedies.push(TcRemedy::PadShape);
        }
        let first = of_class.iter().max_by_key(|(class, ns)| (*ns, Reverse(*class)));
        let first = first.map_or(KernelClass::Other, |(class, _)| *class);
        let eligible = if tc.count != 0 { Some(true) } else { eligible };
        let eligible_ns = match eligible {
            // A range may declare products that kernel names do not show.
            Some(true) if products.ns == 0 => all.ns,
            Some(true) => products.ns,
            _ => 0,
        };
        TcOp {
            path,
            op_type: op_type.unwrap_or_else(|| first.name().to_owned()),
            total_ns: all.ns,
            time_percent: 100.0 * ratio(all.ns, self.total_ns),
            status,
            eligible,
            eligible_ns,
            data_type: fields.first().and_then(|fields| fields.data_type).or(data_type),
            described: !fields.is_empty(),
            kernels: all.count,
            tc_kernels: tc.count,
            tc_ns: tc.ns,
            product_ns: products.ns,
            remedies,
        }
    }

    /// Returns if tensor cores can execute the operation. Fields of the range take precedence over
    /// kernel names.
    fn eligible(
        &self,
        fields: &[OpFields],
        plain: &[Option<Dtype>],
        is_using: bool,
        has_unknown: bool,
    ) -> (Option<bool>, Vec<TcRemedy>) {
        let Some(capability) = self.capability else { return (None, Vec::new()) };
        if !has_tensor_cores(Dtype::F16, capability) {
            return (Some(false), Vec::new());
        }
        let mut fields = fields.to_vec();
        if fields.is_empty() {
            let by_name = |&data_type| OpFields { data_type, ..OpFields::default() };
            fields.extend(plain.iter().map(by_name));
        }
        let known: Vec<_> =
            fields.iter().filter_map(|fields| fields.eligible(capability)).collect();
        let mut remedies: Vec<TcRemedy> = Vec::new();
        for remedy in known.iter().flat_map(|(_, remedies)| remedies) {
            if !remedies.contains(remedy) {
                remedies.push(*remedy);
            }
        }
        let eligible = if known.iter().any(|(eligible, _)| *eligible) {
            Some(true)
        } else {
            // True without any product, or if all products are known.
            let is_known = match fields.is_empty() {
                true => !is_using,
                false => known.len() == fields.len(),
            };
            (is_known && !has_unknown).then_some(false)
        };
        (eligible, remedies)
    }

    fn summary(&self, ops: &[TcOp]) -> TcSummary {
        let add = |sum: &mut Duration, ns: u64| *sum = sum.saturating_add(Duration::from_nanos(ns));
        let gpu_time = Duration::from_nanos(self.total_ns);
        let mut summary = TcSummary { gpu_time, ..TcSummary::default() };
        for op in ops {
            summary.ops += 1;
            summary.eligible_ops += u64::from(op.eligible == Some(true));
            summary.using_ops += u64::from(op.status == TcStatus::Using);
            summary.unknown_ops += u64::from(op.status == TcStatus::Unknown);
            add(&mut summary.tc_time, op.tc_ns);
            add(&mut summary.eligible_time, op.eligible_ns);
            if op.status == TcStatus::Unknown {
                add(&mut summary.undecided_time, op.eligible_ns);
            }
        }
        for (kernel, sum) in self.launched.values().flatten() {
            if self.kernels[*kernel].tensor_core.tensor_cores == TcUse::Unknown {
                add(&mut summary.unknown_time, sum.ns);
            }
        }
        summary
    }

    fn groups(&self, ops: &[TcOp], of_node: &FxHashMap<NodeId, Range<usize>>) -> Vec<TcGroup> {
        let mut groups: Vec<TcGroup> = Vec::new();
        let mut parents: Vec<Option<usize>> = Vec::new();
        // The open groups, innermost last.
        let mut open: Vec<usize> = Vec::new();
        for (depth, node) in self.profile.walk() {
            open.truncate(depth);
            parents.push(open.last().copied());
            open.push(groups.len());
            let ops = of_node.get(&node.id()).map_or(&[][..], |indices| &ops[indices.clone()]);
            let sum = |ns: fn(&TcOp) -> u64| ops.iter().map(ns).fold(0, u64::saturating_add);
            let count = |is_it: fn(&&TcOp) -> bool| ops.iter().filter(is_it).count() as u64;
            groups.push(TcGroup {
                path: node.cut_path(),
                depth,
                total_ns: sum(|op| op.total_ns),
                eligible_ns: sum(|op| op.eligible_ns),
                tc_ns: sum(|op| op.tc_ns),
                tc_percent: 0.0,
                ops: ops.len() as u64,
                eligible_ops: count(|op| op.eligible == Some(true)),
                using_ops: count(|op| op.status == TcStatus::Using),
            });
        }
        // In reverse, a group is complete before it is added to its parent.
        for (at, parent) in parents.into_iter().enumerate().rev() {
            let Some(parent) = parent else { continue };
            let (outer, inner) = groups.split_at_mut(at);
            let (outer, inner) = (&mut outer[parent], &inner[0]);
            outer.total_ns = outer.total_ns.saturating_add(inner.total_ns);
            outer.eligible_ns = outer.eligible_ns.saturating_add(inner.eligible_ns);
            outer.tc_ns = outer.tc_ns.saturating_add(inner.tc_ns);
            outer.ops += inner.ops;
            outer.using_ops += inner.using_ops;
            outer.eligible_ops += inner.eligible_ops;
        }
        groups.retain(|group| group.ops != 0);
        for group in &mut groups {
            group.tc_percent = 100.0 * ratio(group.tc_ns, group.eligible_ns);
        }
        groups
    }
}
