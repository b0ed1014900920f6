//! The sums of a session that stores no operations: by path, by kernel, by process range and by
//! mark.
//!
//! Memory grows with the number of different paths and names up to a limit, not with time. New
//! names beyond the limit are summed as `(other)`.

use std::sync::Arc;

use cupti::CopyKind;
use profiler_base::distribution::Distribution;
use profiler_base::kernel_names::Level;
use rustc_hash::FxHashMap;

use crate::join::account::OperationClass;
use crate::join::intern::{NameId, Names};
use crate::join::totals::Totals;
use crate::record::recording::ranges::ThreadSegment;
use crate::record::recording::segment::Segment;

/// Upper bound of the cached label names of threads.
const MOST_LABELS: usize = 1 << 16;
/// The default limit of rows.
pub(crate) const ROWS: usize = 10_000;
/// The name of all rows beyond the limit.
const OTHER: &str = "(other)";

/// Row of [`SumTables::paths`].
pub(crate) type PathId = u32;

/// The sums of all ranges of one path.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathSums {
    pub(crate) name: NameId,
    /// `None` is the default domain.
    pub(crate) domain: Option<NameId>,
    pub(crate) parent: Option<PathId>,
    pub(crate) level: Level,
    /// True for `(other)` and its descendants.
    is_in_other: bool,
    /// The number of instances that have begun.
    pub(crate) begun: u64,
    /// The host times of ended instances.
    pub(crate) host: Distribution,
    /// The GPU time of each instance whose work is done, with descendants.
    pub(crate) gpu: Distribution,
    pub(crate) own: OwnSums,
    /// Executions of graph nodes that were created in the ranges.
    pub(crate) replayed: Totals,
    /// Work that is attributed to other ranges and linked to these or their descendants.
    pub(crate) shared: Totals,
    /// Set if the sums of some ancestors exclude work of these ranges or their descendants.
    late: Option<Box<LateSums>>,
}

/// Work that the sums of some ancestors exclude.
#[derive(Debug, Clone, Default)]
struct LateSums {
    /// Work of the ranges themselves; it is in [`PathSums::own`].
    own: Totals,
    /// Work of the ranges and their descendants that is attributed to the ranges.
    inclusive: Totals,
}

/// Calls and operations without descendants.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnSums {
    pub(crate) totals: Totals,
    pub(crate) kernels: FxHashMap<NameId, Distribution>,
    pub(crate) copies: FxHashMap<CopyKind, (Distribution, u64)>,
}

/// The sums of all process ranges of one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessSums {
    pub(crate) name: NameId,
    /// `None` is the default domain.
    pub(crate) domain: Option<NameId>,
    /// The number of instances that have begun.
    pub(crate) begun: u64,
    /// The number of activations that have begun.
    pub(crate) activations: u64,
    /// The host times of ended instances.
    pub(crate) host: Distribution,
    /// The GPU time of each ended instance whose work is done.
    pub(crate) gpu: Distribution,
    /// Calls and operations of the activations.
    pub(crate) totals: Totals,
}

/// The sum of all marks of one name.
#[derive(Debug, Clone)]
pub(crate) struct MarkSums {
    pub(crate) name: NameId,
    /// `None` is the default domain.
    pub(crate) domain: Option<NameId>,
    pub(crate) count: u64,
}

/// The process range of an activation and its descendants: its tag, and the row of its sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activation {
    pub(crate) process_range: u64,
    pub(crate) sums: u32,
}

/// The enclosing process ranges, without duplicates; most ranges have none.
pub(crate) type Activations = Option<Arc<Vec<Activation>>>;

/// The linked paths; most work has none.
pub(crate) type Links = Option<Arc<Vec<PathId>>>;

/// The rows to which a call or an operation is added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    /// `None` outside all ranges.
    pub(crate) path: Option<PathId>,
    pub(crate) activations: Activations,
    pub(crate) links: Links,
    /// Set if the call began after the end of an ancestor on its thread.
    pub(crate) late: Option<Arc<LateRows>>,
}

/// The attribution of a call that some ancestors of its range exclude.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateRows {
    /// The tags of the ranges to which it is attributed, innermost first, while they are not done.
    pub(crate) ranges: Vec<u64>,
    /// Their paths and the paths of their further ancestors, without duplicates.
    pub(crate) paths: Vec<PathId>,
    /// The process ranges that have these ranges as activations, without duplicates.
    pub(crate) process_ranges: Vec<u64>,
}

/// The amounts that an operation adds to sums.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amount {
    Kernel(NameId),
    Copy(CopyKind, u64),
    Memset(u64),
    Graph,
}

impl Amount {
    #[inline]
    pub(crate) fn add_to(self, totals: &mut Totals, ns: u64) {
        match self {
            Self::Kernel(_) => totals.add_kernel(ns),
            Self::Copy(_, bytes) => totals.add_copy(ns, bytes),
            Self::Memset(bytes) => totals.add_memset(ns, bytes),
            Self::Graph => totals.add_graph(ns),
        }
    }

    pub(crate) fn class(self) -> OperationClass {
        match self {
            Self::Kernel(_) => OperationClass::Kernel,
            Self::Copy(..) => OperationClass::Copy,
            Self::Memset(_) => OperationClass::Memset,
            Self::Graph => OperationClass::WholeGraph,
        }
    }
}

/// All sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct SumTables {
    pub(crate) names: Names,
    /// A path follows its outer path.
    pub(crate) paths: Vec<PathSums>,
    pub(crate) outside: OwnSums,
    pub(crate) process_ranges: Vec<ProcessSums>,
    pub(crate) marks: Vec<MarkSums>,
}

impl SumTables {
    /// The totals of each path and its descendants.
    pub(crate) fn inclusive(&self) -> Vec<Totals> {
        let mut inclusive: Vec<Totals> = self.paths.iter().map(|path| path.own.totals).collect();
        let late = || {
            let rows = self.paths.iter().enumerate();
            rows.filter_map(|(row, path)| Some((row, path.late.as_deref()?)))
        };
        late().for_each(|(row, late)| inclusive[row] -= late.own);
        // Parents precede their children.
        for (row, path) in self.paths.iter().enumerate().rev() {
            if let Some(parent) = path.parent {
                let of_this = inclusive[row];
                inclusive[parent as usize] += of_this;
            }
        }
        late().for_each(|(row, late)| inclusive[row] += late.inclusive);
        inclusive
    }

    fn late_sums(&mut self, path: PathId) -> &mut LateSums {
        self.paths[path as usize].late.get_or_insert_default()
    }

    fn add_late(&mut self, rows: &Rows, add: impl Fn(&mut Totals)) {
        if let (Some(late), Some(path)) = (&rows.late, rows.path) {
            add(&mut self.late_sums(path).own);
            late.paths.iter().for_each(|path| add(&mut self.late_sums(*path).inclusive));
        }
    }

    fn own(&mut self, path: Option<PathId>) -> &mut OwnSums {
        match path {
            Some(path) => &mut self.paths[path as usize].own,
            None => &mut self.outside,
        }
    }

    /// Returns the names of a path joined by `/`, shortened like paths of a profile.
    #[cfg(feature = "tracing")]
    pub(crate) fn path(&self, row: usize) -> String {
        let parent = |row: &usize| self.paths[*row].parent.map(|parent| parent as usize);
        self.paths[row].level.path(row, |row| {
            std::iter::successors(Some(row), parent).map(|row| self.names.get(self.paths[row].name))
        })
    }
}

/// Name and domain; `None` is the default domain.
type Key = (NameId, Option<NameId>);

/// Sums with the indices that find their rows.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) tables: SumTables,
    /// The name `(other)`.
    other: NameId,
    /// Upper bound of the rows of each table: paths, kernels, process ranges and marks.
    most_rows: usize,
    /// The number of kernel rows of all paths.
    kernel_rows: usize,
    /// The number of ranges, marks and kernels that were summed as `(other)`.
    pub(crate) summed_as_other: u64,
    by_path: FxHashMap<(Option<PathId>, Option<NameId>, NameId), PathId>,
    process_ranges_by_name: FxHashMap<Key, u32>,
    marks_by_name: FxHashMap<Key, u32>,
    /// By thread and label.
    labels: FxHashMap<(u64, u64), Key>,
    kernel_names: FxHashMap<u64, NameId>,
    /// The last kernel and its name.
    last_kernel: Option<(u64, NameId)>,
    /// The round in which each path was last marked, and the current round.
    rounds: (Vec<u64>, u64),
}

impl Sums {
    pub(crate) fn new(most_rows: usize) -> Self {
        let mut names = Names::default();
        let other = names.add_apart(OTHER);
        let tables = SumTables { names, ..SumTables::default() };
        Self { tables, other, most_rows, ..Self::default() }
    }

    /// Returns the row of a name, or the row of `(other)` if the table is full.
    fn row_of(
        &mut self,
        thread: &ThreadSegment,
        label: u32,
        rows: impl Fn(&mut Self) -> (&mut FxHashMap<Key, u32>, usize),
        push: impl Fn(&mut SumTables, Key),
    ) -> u32 {
        let count = rows(self).1;
        let is_full = count >= self.most_rows;
        let mut key = self.label(thread, label.into(), is_full);
        if is_full && !rows(self).0.contains_key(&key) {
            key = (self.other, None);
        }
        self.summed_as_other += u64::from(key.0 == self.other);
        if let Some(&known) = rows(self).0.get(&key) {
            return known;
        }
        push(&mut self.tables, key);
        rows(self).0.insert(key, count as u32);
        count as u32
    }

    /// Counts an instance of a process range. Returns its row.
    pub(crate) fn begin_process_range(&mut self, thread: &ThreadSegment, label: u32) -> u32 {
        let row = self.row_of(
            thread,
            label,
            |sums| (&mut sums.process_ranges_by_name, sums.tables.process_ranges.len()),
            |tables, (name, domain)| {
                tables.process_ranges.push(ProcessSums { name, domain, ..ProcessSums::default() });
            },
        );
        self.tables.process_ranges[row as usize].begun += 1;
        row
    }

    pub(crate) fn count_mark(&mut self, thread: &ThreadSegment, label: u32) {
        let row = self.row_of(
            thread,
            label,
            |sums| (&mut sums.marks_by_name, sums.tables.marks.len()),
            |tables, (name, domain)| tables.marks.push(MarkSums { name, domain, count: 0 }),
        );
        self.tables.marks[row as usize].count += 1;
    }

    /// Returns the name and domain of a label. If the table of rows is full, a name without a row
    /// becomes `(other)`, so that there are no more names than rows.
    fn label(&mut self, thread: &ThreadSegment, label: u64, is_full: bool) -> Key {
        if let Some(known) = self.labels.get(&(thread.number(), label)) {
            return *known;
        }
        let found = thread.with_texts(|texts| {
            let text = |index: u32| texts.texts.get(index as usize).map_or("", String::as_str);
            let label = texts.labels.get(label as usize);
            let name = label.map_or("(unknown name)", |label| text(label.name));
            let domain = label.and_then(|label| label.domain).map(text);
            if !is_full {
                return Some((
                    self.tables.names.intern(name),
                    domain.map(|text| self.tables.names.intern(text)),
                ));
            }
            let domain = match domain {
                Some(text) => Some(self.tables.names.find(text)?),
                None => None,
            };
            Some((self.tables.names.find(name)?, domain))
        });
        let Some(found) = found else { return (self.other, None) };
        // Names that never occur again fill the cache with unused labels.
        if self.labels.len() >= MOST_LABELS {
            self.labels.clear();
        }
        self.labels.insert((thread.number(), label), found);
        found
    }

    /// Returns the path of a range. Beyond the limit of rows, this is the `(other)` of its outer
    /// path. An `(other)` may have as many rows again; ranges beyond these are added to the
    /// `(other)` itself.
    pub(crate) fn begin(
        &mut self,
        parent: Option<PathId>,
        thread: &ThreadSegment,
        label: u64,
    ) -> PathId {
        let is_in_other =
            parent.is_some_and(|parent| self.tables.paths[parent as usize].is_in_other);
        let most = if is_in_other { self.most_rows.saturating_mul(2) } else { self.most_rows };
        let is_full = self.tables.paths.len() >= most;
        let (name, domain) = self.label(thread, label, is_full);
        match self.by_path.get(&(parent, domain, name)) {
            Some(&known) if name != self.other => return known,
            None if !is_full => return self.add_path(parent, name, domain),
            _ => {}
        }
        self.summed_as_other += 1;
        match (parent, self.by_path.get(&(parent, None, self.other))) {
            (Some(parent), _) if is_in_other => parent,
            (_, Some(&known)) => known,
            _ => self.add_path(parent, self.other, None),
        }
    }

    fn add_path(&mut self, parent: Option<PathId>, name: NameId, domain: Option<NameId>) -> PathId {
        let row = self.tables.paths.len() as PathId;
        let around = parent.map(|parent| &self.tables.paths[parent as usize]);
        self.tables.paths.push(PathSums {
            name,
            domain,
            parent,
            level: Level::new(row as usize, around.map(|around| around.level)),
            is_in_other: name == self.other || around.is_some_and(|around| around.is_in_other),
            ..PathSums::default()
        });
        self.by_path.insert((parent, domain, name), row);
        row
    }

    /// Returns the name of a kernel, or `(other)` if the kernel table is full.
    pub(crate) fn kernel_name(&mut self, part: &Segment, key: cupti::NameKey) -> NameId {
        if let Some((last, name)) = self.last_kernel
            && last == key.0
        {
            return name;
        }
        let name = match self.kernel_names.get(&key.0) {
            Some(&known) => known,
            None => {
                let name = part.records.name(key).unwrap_or("(unknown kernel)");
                let is_full = self.kernel_rows >= self.most_rows;
                let known = if is_full {
                    self.tables.names.find(name)
                } else {
                    Some(self.tables.names.intern(name))
                };
                let Some(name) = known else { return self.other };
                if self.kernel_names.len() < self.most_rows {
                    self.kernel_names.insert(key.0, name);
                }
                name
            }
        };
        self.last_kernel = Some((key.0, name));
        name
    }

    /// Adds once to each linked path and its ancestors, except to the ancestors of `path`.
    fn add_to_links(&mut self, path: Option<PathId>, links: &Links, add: impl Fn(&mut Totals)) {
        let Some(links) = links else { return };
        let (rounds, round) = &mut self.rounds;
        rounds.resize(self.tables.paths.len(), 0);
        *round += 1;
        let mut mark =
            |node: PathId| std::mem::replace(&mut rounds[node as usize], *round) != *round;
        let mut next = path;
        while let Some(node) = next {
            mark(node);
            next = self.tables.paths[node as usize].parent;
        }
        for node in links.iter() {
            let mut next = Some(*node);
            while let Some(node) = next.filter(|node| mark(*node)) {
                let path = &mut self.tables.paths[node as usize];
                add(&mut path.shared);
                next = path.parent;
            }
        }
    }

    fn add_to_activations(&mut self, activations: &Activations, add: impl Fn(&mut Totals)) {
        for activation in activations.iter().flat_map(|all| all.iter()) {
            add(&mut self.tables.process_ranges[activation.sums as usize].totals);
        }
    }

    /// Adds to the exclusive totals of the rows' path, and to activations and links.
    pub(crate) fn add(&mut self, rows: &Rows, add: impl Fn(&mut Totals)) {
        add(&mut self.tables.own(rows.path).totals);
        self.tables.add_late(rows, &add);
        self.add_to_activations(&rows.activations, &add);
        self.add_to_links(rows.path, &rows.links, add);
    }

    /// Adds an operation. `captured` is the path in which its graph node was created.
    #[inline]
    pub(crate) fn add_operation(
        &mut self,
        amount: Amount,
        ns: u64,
        rows: &Rows,
        captured: Option<PathId>,
    ) {
        self.add_own(amount, ns, rows.path);
        self.tables.add_late(rows, |totals| amount.add_to(totals, ns));
        self.add_to_activations(&rows.activations, |totals| amount.add_to(totals, ns));
        self.add_to_links(rows.path, &rows.links, |totals| amount.add_to(totals, ns));
        if let Some(path) = captured {
            amount.add_to(&mut self.tables.paths[path as usize].replayed, ns);
        }
    }

    fn add_own(&mut self, amount: Amount, ns: u64, path: Option<PathId>) {
        let (other, is_full) = (self.other, self.kernel_rows >= self.most_rows);
        let own = self.tables.own(path);
        amount.add_to(&mut own.totals, ns);
        match amount {
            Amount::Kernel(name) => {
                let name = if is_full && !own.kernels.contains_key(&name) { other } else { name };
                self.summed_as_other += u64::from(name == other);
                let times = own.kernels.entry(name).or_insert_with(|| {
                    self.kernel_rows += 1;
                    Distribution::default()
                });
                times.add(ns);
            }
            Amount::Copy(kind, bytes) => {
                let (times, sum) = own.copies.entry(kind).or_default();
                times.add(ns);
                *sum = sum.saturating_add(bytes);
            }
            Amount::Memset(_) | Amount::Graph => {}
        }
    }
}
