//! The ranges and kernels of both sides, matched as rows.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use profiler_base::hodges_lehmann::Ranks;
use profiler_base::kernel_names::Level;
use profiler_base::units::nanoseconds;

use super::{Change, ChangeKind, Compare, Machine, Presence, Quantity, Shape, TimeShift};
use crate::running_numbers::NodeNames;
use profiler_core::profile::Totals;
use profiler_core::profile::{Kernel, Profile, RangeNode};

/// Levels of ranges whose instances are timed: recursions may be arbitrarily deep.
const LEVELS: usize = 200;

/// The values of one run.
#[derive(Clone, Default)]
struct Sum {
    values: [u64; Quantity::ALL.len()],
    /// The single times, by quantity.
    times: [Vec<u64>; Quantity::TIMES.len()],
}

/// The runs of each side.
type Both = [Vec<Sum>; 2];

struct Row {
    sums: Both,
    is_there: [bool; 2],
}

impl Row {
    fn new(runs: [usize; 2]) -> Self {
        Self { sums: runs.map(|runs| vec![Sum::default(); runs]), is_there: [false; 2] }
    }

    fn add(&mut self, (side, run): Place, value: impl Fn(Quantity) -> u64) {
        self.is_there[side] = true;
        for (sum, quantity) in self.sums[side][run].values.iter_mut().zip(Quantity::ALL) {
            *sum = sum.saturating_add(value(quantity));
        }
    }

    fn add_node(&mut self, place: Place, depth: usize, node: &RangeNode<'_>) {
        let (totals, is_timed) = (node.inclusive(), depth < LEVELS);
        // Each sum is a pass over inner ranges, which every level of a recursion would repeat.
        let has_gpu_time = is_timed && totals.gpu_operations() != 0;
        let times = Times {
            instances: node.instances(),
            host_ns: nanoseconds(node.host_time()),
            busy_ns: if has_gpu_time { nanoseconds(node.query().busy_time()) } else { 0 },
        };
        self.add(place, |quantity| amount(quantity, &times, &totals));
        for range in node.ranges().filter(|_| is_timed) {
            self.add_time(place, Quantity::HostNs, nanoseconds(range.host_time()));
            if has_gpu_time {
                self.add_time(place, Quantity::GpuNs, ns(&range.inclusive()));
            }
        }
        if has_gpu_time {
            self.add_time(place, Quantity::BusyNs, times.busy_ns);
        }
    }

    fn add_time(&mut self, (side, run): Place, quantity: Quantity, ns: u64) {
        // Times precede the other quantities.
        self.sums[side][run].times[quantity as usize].push(ns);
    }
}

/// Side and run.
type Place = (usize, usize);
/// The range if kernels are separated by range, the name and the shape.
type KernelKey = (Option<usize>, Rc<str>, Shape);

pub(super) fn changes(
    sides: [&[Profile]; 2],
    node_names: &[Vec<NodeNames>; 2],
    compare: &Compare,
    machine: &Machine,
) -> Vec<Change> {
    let runs = sides.map(<[Profile]>::len);
    let (mut everything, mut outside) = (Row::new(runs), Row::new(runs));
    let mut tree = Tree::default();
    let mut kernels: BTreeMap<KernelKey, Row> = BTreeMap::new();
    let mut names: HashMap<String, Rc<str>> = HashMap::new();
    for (side, profiles) in sides.into_iter().enumerate() {
        for (run, profile) in profiles.iter().enumerate() {
            let place = (side, run);
            let (all, outer) = (profile.totals(), profile.outside_ranges());
            let busy_ns = nanoseconds(profile.query().busy_time());
            everything.add(place, |quantity| {
                amount(quantity, &Times { busy_ns, ..Times::default() }, &all)
            });
            // A time of 0 means that nothing ran, and has no factor.
            for (quantity, ns) in [(Quantity::GpuNs, ns(&all)), (Quantity::BusyNs, busy_ns)] {
                if ns != 0 {
                    everything.add_time(place, quantity, ns);
                }
            }
            outside.add(place, |quantity| amount(quantity, &Times::default(), &outer));
            let mut add_kernel = |range: Option<usize>, kernel: Kernel<'_>| {
                let name = match names.get(kernel.name()) {
                    Some(name) => name.clone(),
                    None => {
                        let name: Rc<str> = kernel.demangled_name().into();
                        names.insert(kernel.name().to_owned(), name.clone());
                        name
                    }
                };
                let shape = Shape { grid: kernel.grid(), block: kernel.block() };
                let row = kernels.entry((range, name, shape)).or_insert_with(|| Row::new(runs));
                let time = kernel.interval().map(|time| time.ns());
                row.add(place, |quantity| match quantity {
                    Quantity::Kernels => 1,
                    Quantity::GpuNs => time.unwrap_or(0),
                    _ => 0,
                });
                time.into_iter().for_each(|ns| row.add_time(place, Quantity::GpuNs, ns));
            };
            let mut around: Vec<usize> = Vec::new();
            for (depth, node) in profile.walk() {
                around.truncate(depth);
                let name = node_names[side][run].name(&node);
                let id = tree.id((around.last().copied(), node.domain(), name), runs);
                around.push(id);
                tree.nodes[id].row.add_node(place, depth, &node);
                if compare.by_range {
                    let own = node.ranges().flat_map(|range| range.own_operations());
                    own.filter_map(|operation| operation.as_kernel())
                        .for_each(|kernel| add_kernel(Some(id), kernel));
                }
            }
            let others = profile
                .operations()
                .filter(|operation| !compare.by_range || operation.range().is_none());
            others
                .filter_map(|operation| operation.as_kernel())
                .for_each(|kernel| add_kernel(None, kernel));
        }
    }

    let mut rows = Rows { compare, machine, ranks: Ranks::default(), rows: Vec::new() };
    let nowhere = Subject::default();
    rows.push(ChangeKind::Everything, &nowhere, &everything);
    rows.push(ChangeKind::OutsideRanges, &nowhere, &outside);
    let paths: Vec<Rc<str>> = (0..tree.nodes.len()).map(|id| tree.path(id)).collect();
    for id in tree.walk() {
        let node = &tree.nodes[id];
        let subject =
            Subject { domain: node.domain.clone(), path: paths[id].clone(), ..Subject::default() };
        rows.push(ChangeKind::Range, &subject, &node.row);
    }
    let reshaped = reshaped(&kernels);
    for (key, row) in &kernels {
        let (range, name, shape) = key;
        let subject = Subject {
            domain: range.and_then(|id| tree.nodes[id].domain.clone()),
            path: range.map_or_else(|| nowhere.path.clone(), |id| paths[id].clone()),
            kernel: Some(name.clone()),
            shape: Some(*shape),
            reshaped: reshaped.get(key).copied(),
        };
        rows.push(ChangeKind::Kernel, &subject, row);
    }
    let mut rows = rows.rows;
    rows.sort_by_key(|row| !row.quantity.is_time());
    rows
}

/// Times that the totals of a range lack.
#[derive(Default)]
struct Times {
    instances: u64,
    host_ns: u64,
    busy_ns: u64,
}

fn amount(quantity: Quantity, times: &Times, totals: &Totals) -> u64 {
    match quantity {
        Quantity::HostNs => times.host_ns,
        Quantity::BusyNs => times.busy_ns,
        Quantity::Instances => times.instances,
        Quantity::Launches => totals.launches,
        Quantity::Kernels => totals.kernels,
        Quantity::Copies => totals.copies,
        Quantity::CopyBytes => totals.copy_bytes,
        Quantity::Memsets => totals.memsets,
        Quantity::Synchronizations => totals.synchronizations,
        Quantity::GpuNs => ns(totals),
    }
}

fn ns(totals: &Totals) -> u64 {
    nanoseconds(totals.gpu_time())
}

/// Pairs a kernel's only shape on one side with its only shape on the other.
fn reshaped(kernels: &BTreeMap<KernelKey, Row>) -> HashMap<KernelKey, Shape> {
    let mut found = HashMap::new();
    // By range and name, the shapes that only one side has.
    let mut lone: BTreeMap<_, [Vec<Shape>; 2]> = BTreeMap::new();
    for ((range, name, shape), row) in kernels {
        match row.is_there {
            [true, false] => lone.entry((*range, name)).or_default()[0].push(*shape),
            [false, true] => lone.entry((*range, name)).or_default()[1].push(*shape),
            _ => {}
        }
    }
    for ((range, name), shapes) in lone {
        if let [[before], [after]] = shapes.each_ref().map(Vec::as_slice) {
            found.insert((range, name.clone(), *before), *after);
            found.insert((range, name.clone(), *after), *before);
        }
    }
    found
}

/// The subject of rows.
struct Subject {
    domain: Option<Rc<str>>,
    path: Rc<str>,
    kernel: Option<Rc<str>>,
    shape: Option<Shape>,
    reshaped: Option<Shape>,
}

impl Default for Subject {
    fn default() -> Self {
        Self { domain: None, path: "".into(), kernel: None, shape: None, reshaped: None }
    }
}

struct Rows<'c> {
    compare: &'c Compare,
    machine: &'c Machine,
    ranks: Ranks,
    rows: Vec<Change>,
}

impl Rows<'_> {
    fn push(&mut self, kind: ChangeKind, subject: &Subject, row: &Row) {
        let status = match row.is_there {
            [true, false] => Presence::Gone,
            [false, true] => Presence::New,
            _ => Presence::Both,
        };
        for (at, quantity) in Quantity::ALL.into_iter().enumerate() {
            if !has(kind, quantity) {
                continue;
            }
            let values = row.sums.each_ref().map(|runs| {
                let mut values: Vec<u64> = runs.iter().map(|sum| sum.values[at]).collect();
                values.sort_unstable();
                values
            });
            let [before, after] = values.each_ref().map(|values| median(values));
            let varies = values.iter().any(|values| values.first() != values.last());
            let change = i128::from(after) - i128::from(before);
            let times = if quantity.is_time() { self.shift(row, quantity) } else { None };
            self.rows.push(Change {
                kind,
                status,
                domain: subject.domain.clone(),
                path: subject.path.clone(),
                kernel: subject.kernel.clone(),
                shape: subject.shape,
                reshaped: subject.reshaped,
                quantity,
                before,
                after,
                change: change.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
                percent: percent(before, after),
                varies,
                times,
            });
        }
    }

    fn shift(&mut self, row: &Row, quantity: Quantity) -> Option<TimeShift> {
        let times = row.sums.each_ref().map(|runs| {
            let of_runs = runs.iter().map(|sum| sum.times[quantity as usize].clone());
            of_runs.collect::<Vec<_>>()
        });
        let [before, after] = &times;
        self.compare.shift([before, after], quantity, self.machine, &mut self.ranks)
    }
}

/// The lower of two middle values, so that the median is the value of a run.
fn median(sorted: &[u64]) -> u64 {
    sorted.len().checked_sub(1).map_or(0, |last| sorted[last / 2])
}

fn has(kind: ChangeKind, quantity: Quantity) -> bool {
    match kind {
        ChangeKind::Range => true,
        ChangeKind::Everything => !matches!(quantity, Quantity::Instances | Quantity::HostNs),
        ChangeKind::OutsideRanges => {
            !matches!(quantity, Quantity::Instances | Quantity::HostNs | Quantity::BusyNs)
        }
        ChangeKind::Kernel => matches!(quantity, Quantity::Kernels | Quantity::GpuNs),
    }
}

fn percent(before: u64, after: u64) -> Option<f64> {
    match (before, after) {
        (0, 0) => Some(0.0),
        (0, _) => None,
        _ => Some(100.0 * (after as f64 - before as f64) / before as f64),
    }
}

/// The matched range trees of both sides.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    ids: BTreeMap<(Option<usize>, Option<String>, String), usize>,
}

struct Node {
    name: String,
    domain: Option<Rc<str>>,
    parent: Option<usize>,
    level: Level,
    children: Vec<usize>,
    row: Row,
}

impl Tree {
    /// Returns the index of the node with this parent, domain and name, and adds a missing node.
    fn id(
        &mut self,
        (parent, domain, name): (Option<usize>, Option<&str>, &str),
        runs: [usize; 2],
    ) -> usize {
        let key = (parent, domain.map(str::to_owned), name.to_owned());
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.nodes.len();
        self.nodes.push(Node {
            name: name.to_owned(),
            domain: domain.map(Rc::from),
            parent,
            level: Level::new(id, parent.map(|parent| self.nodes[parent].level)),
            children: Vec::new(),
            row: Row::new(runs),
        });
        match parent {
            Some(parent) => self.nodes[parent].children.push(id),
            None => self.roots.push(id),
        }
        self.ids.insert(key, id);
        id
    }

    /// The path, as [`RangeNode::cut_path`].
    fn path(&self, id: usize) -> Rc<str> {
        let names_from = |id| {
            let around = std::iter::successors(Some(id), |&id: &usize| self.nodes[id].parent);
            around.map(|id| self.nodes[id].name.as_str())
        };
        self.nodes[id].level.path(id, names_from).into()
    }

    /// The nodes, parents first.
    fn walk(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<usize> = self.roots.iter().rev().copied().collect();
        while let Some(id) = left.pop() {
            order.push(id);
            left.extend(self.nodes[id].children.iter().rev());
        }
        order
    }
}
