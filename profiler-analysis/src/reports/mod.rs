//! The reports of Nsight Systems as text, CSV, JSON and values of serde.
//!
//! Each report has the name, columns and arithmetic of `nsys stats` of Nsight Systems 2025.3, so
//! programs that read its CSV also read this crate's.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//! use profiler_analysis::reports::{Rule, StatsReport};
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! println!("{}", profile.stats(StatsReport::CudaGpuKernSum)); // a table for people
//! let csv = profile.stats("nvtx_gpu_proj_sum".parse()?).csv(); // nsys's file
//! let named = profile.reports().with_range_names().get(StatsReport::CudaGpuKernSum);
//! println!("{} kernels: {}", named.len(), named.json());
//! let waits = profile.rules().within("step").get(Rule::CudaApiSync);
//! println!("{waits}\n{}", Rule::CudaApiSync.advice());
//! # Ok(())
//! # }
//! ```

mod by_name;
mod groups;
mod idle;
mod launches;
mod overlay;
mod projection;
mod ranges;
pub(crate) mod rules;
mod spans;
mod sums;
mod table;
pub(crate) mod texts;
mod traces;
pub(crate) mod tracks;
mod unified;

use std::cmp::Reverse;
use std::fmt;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::{getters, setters};
use serde::{Serialize, Serializer};

use idle::GapThreshold;
use profiler_core::profile::Profile;
use profiler_core::tables::{
    Call, Interval, Operation, ProcessRange, Range, RangesBy, Tables, Thread, ThreadId, What,
};
pub use rules::{Rule, Rules};
use sums::TimeSummary;
pub(crate) use table::{Cells, Row, Unit, row};
use texts::KernelNaming;
#[cfg(feature = "kineto")]
pub(crate) use texts::memory_kind;
pub(crate) use texts::memory_text;
pub(crate) use tracks::{NodeTimes, TrackSum};

/// The properties of a report besides its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outline {
    name: &'static str,
    rows: usize,
    reason: &'static str,
    left_out: u64,
    more: u64,
    whole_graphs: u64,
}

impl Outline {
    fn skipped(&self) -> Option<&'static str> {
        (self.rows == 0).then_some(self.reason)
    }

    /// Writes the text table of a report with these rows.
    fn write(&self, rows: &dyn AnyRows, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skipped() {
            Some(reason) => write!(f, "{}: {reason}", self.name)?,
            None => {
                writeln!(f, "{}:", self.name)?;
                rows.write_table(layout, f)?;
            }
        }
        if self.more != 0 {
            write!(f, "\n({} more rows)", self.more)?;
        }
        if self.left_out != 0 {
            write!(f, "\n({} without timestamps are not in it)", self.left_out)?;
        }
        match self.whole_graphs {
            0 => Ok(()),
            graphs => write!(
                f,
                "\n({graphs} graph launches traced as a whole are not in it, as nsys leaves them out)"
            ),
        }
    }
}

/// The rows of one report. [`AnyReport`] is the same for all types of rows.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct Report<R> {
    #[serde(skip)]
    outline: Outline,
    rows: Vec<R>,
}

impl<R: Row> Report<R> {
    /// `reason` states why there are no rows, for a report without any.
    pub(crate) fn new(rows: Vec<R>, reason: &'static str) -> Self {
        let (name, count) = (R::NAME, rows.len());
        let outline = Outline { name, rows: count, reason, left_out: 0, more: 0, whole_graphs: 0 };
        Self { outline, rows }
    }

    pub(crate) fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline.write(&self.rows, layout, f)
    }
}

impl<R> Report<R> {
    pub(crate) fn leaving_out(mut self, left_out: u64) -> Self {
        self.outline.left_out = left_out;
        self
    }

    fn without_graphs(mut self, whole_graphs: u64) -> Self {
        self.outline.whole_graphs = whole_graphs;
        self
    }

    /// Keeps only the first rows; `None` keeps all.
    fn limited(mut self, rows: Option<usize>) -> Self {
        if let Some(rows) = rows.filter(|&rows| rows < self.rows.len()) {
            self.outline.more = (self.rows.len() - rows) as u64;
            self.outline.rows = rows;
            self.rows.truncate(rows);
        }
        self
    }

    /// Keeps only this many rows, those with the largest keys, in their order.
    pub(crate) fn largest<K: Ord>(mut self, rows: usize, key: impl Fn(&R) -> K) -> Self {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|at| Reverse(key(&self.rows[*at])));
        let mut rank = vec![0; order.len()];
        for (position, at) in order.into_iter().enumerate() {
            rank[at] = position;
        }
        let mut rank = rank.into_iter();
        self.rows.retain(|_| rank.next().is_none_or(|rank| rank < rows));
        self.outline.more += (self.outline.rows - self.rows.len()) as u64;
        self.outline.rows = self.rows.len();
        self
    }

    /// The rows, in nsys's order.
    pub(crate) fn rows(&self) -> &[R] {
        &self.rows
    }

    pub(crate) fn into_rows(self) -> Vec<R> {
        self.rows
    }
}

/// Rows of any type.
trait AnyRows: fmt::Debug {
    fn csv(&self) -> String;
    fn json(&self) -> String;
    fn write_table(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn values(&self) -> serde_json::Result<serde_json::Value>;
}

impl<R: Row> AnyRows for Vec<R> {
    fn csv(&self) -> String {
        table::csv(self)
    }

    fn json(&self) -> String {
        table::json(self)
    }

    fn write_table(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write_table(self, layout, f)
    }

    fn values(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(self)
    }
}

/// The rows of one report.
///
/// `{}` prints a text table of at most 50 rows; [`max_rows`](DisplayOptions::max_rows) and
/// [`all_rows`](DisplayOptions::all_rows) print fewer or more. `serde` writes the rows with their
/// field names and units; [`csv`](Self::csv) and [`json`](Self::json) write nsys's formats.
#[derive(Debug)]
#[must_use]
pub struct AnyReport {
    outline: Outline,
    rows: Box<dyn AnyRows>,
}

impl AnyReport {
    getters! {
        /// nsys's name of the report.
        name: &'static str = outline.name;
        /// The number of rows.
        len: usize = outline.rows;
        /// The reason why the report has no rows, where nsys prints `SKIPPED`.
        skipped: Option<&'static str> = outline.skipped();
        /// GPU operations without timestamps and calls that had not returned. Both are in no
        /// row.
        left_out: u64 = outline.left_out;
        /// Rows beyond the requested number.
        more_rows: u64 = outline.more;
        /// Launches of CUDA graphs traced as one interval each. They are in no row: nsys omits
        /// them from its reports on GPU work, as if the GPU had been idle. Zero in reports
        /// without GPU work.
        whole_graphs: u64 = outline.whole_graphs;
    }

    /// True if the report has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of `nsys stats --format csv`: times in nanoseconds, sizes in megabytes of 1,000,000
    /// bytes. Empty without rows.
    pub fn csv(&self) -> String {
        self.rows.csv()
    }

    /// The text of `nsys stats --format json`: an object for each row, with the CSV columns as
    /// keys.
    pub fn json(&self) -> String {
        self.rows.json()
    }
}

impl Serialize for AnyReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.rows.values().map_err(serde::ser::Error::custom)?;
        rows.serialize(serializer)
    }
}

impl<R: Row + 'static> From<Report<R>> for AnyReport {
    fn from(report: Report<R>) -> Self {
        Self { outline: report.outline, rows: Box::new(report.rows) }
    }
}

impl DisplayOptions for AnyReport {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline.write(&*self.rows, layout, f)
    }
}

display_by_default_layout!(AnyReport);

/// Declares reports: their variants, their methods with nsys's names, and short descriptions.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident: $what:literal of $maker:ident {
        $($variant:ident = $name:ident $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $type {
            $(#[doc = concat!("`", stringify!($name), "`: ", $text)] $variant,)+
        }

        impl $type {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// nsys's name of the report.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)+
                }
            }

            /// A short description of the rows.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl $maker<'_> {
            #[doc = concat!("A ", $what, " by its name.")]
            pub fn get(self, name: $type) -> AnyReport {
                match name {
                    $($type::$variant => self.$name().into(),)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = crate::error::Error;

            /// Parses nsys's name.
            ///
            /// # Errors
            /// No report has this name; the message lists all names.
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == name).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|known| known.name()).collect();
                    crate::error::Error::new(crate::error::Kind::Name { what: $what, name: name.to_owned(), known })
                })
            }
        }
    };
}
use named;

named! {
    /// A report of `nsys stats`.
    StatsReport: "report" of Reports {
        CudaApiGpuSum = cuda_api_gpu_sum "calls, kernels, copies and memsets by name.",
        CudaApiSum = cuda_api_sum "calls into CUDA by function.",
        CudaApiTrace = cuda_api_trace "every call into CUDA.",
        CudaGpuKernGbSum = cuda_gpu_kern_gb_sum "kernels by name, grid and block.",
        CudaGpuKernSum = cuda_gpu_kern_sum "kernels by name.",
        CudaGpuMemSizeSum = cuda_gpu_mem_size_sum "copies and memsets by bytes.",
        CudaGpuMemTimeSum = cuda_gpu_mem_time_sum "copies and memsets by time.",
        CudaGpuSum = cuda_gpu_sum "kernels, copies and memsets by name.",
        CudaGpuTrace = cuda_gpu_trace "every kernel, copy and memset.",
        CudaKernExecSum = cuda_kern_exec_sum "kernels with their launches and the time between, by name.",
        CudaKernExecTrace = cuda_kern_exec_trace "every kernel with its launch and the time between.",
        NvtxGpuProjSum = nvtx_gpu_proj_sum "the time on the GPU of ranges, by name.",
        NvtxGpuProjTrace = nvtx_gpu_proj_trace "the time on the GPU of every range.",
        NvtxKernSum = nvtx_kern_sum "kernels by range.",
        NvtxPushpopSum = nvtx_pushpop_sum "ranges of threads by name.",
        NvtxPushpopTrace = nvtx_pushpop_trace "every range of a thread.",
        NvtxStartendSum = nvtx_startend_sum "ranges of the process by name.",
        NvtxSum = nvtx_sum "ranges of both styles by name.",
        UmCpuPageFaultsSum = um_cpu_page_faults_sum "page faults of the host by what touched managed memory.",
        UmSum = um_sum "migrations and page faults of managed memory by address.",
        UmTotalSum = um_total_sum "migrations and page faults of managed memory.",
    }
}

/// Computes reports from the profile, anew for each call. A report costs a few nanoseconds per
/// operation or call, and some microseconds for each C++ kernel name.
///
/// In a recording of a [`Profiler`](profiler_core::Profiler), calls of the driver API and recorded
/// calls of the runtime API count. Times are nanoseconds since the session's start, negative for
/// earlier events of a capture. Process ids are 0 in recordings without them.
///
/// A range contains the calls made in it. In a capture of nsys, it contains the calls within it by
/// time on the same thread. Process ranges that began and ended on one thread contain calls by
/// time.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Reports<'a> {
    profile: &'a Profile,
    naming: KernelNaming,
    with_range: bool,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        Self { profile, naming: KernelNaming::default(), with_range: false }
    }

    setters! {
        /// Names kernels by their function, without namespaces, template arguments and parameters,
        /// like nsys's `:base`.
        base_names() naming = KernelNaming::Base;
        /// Names kernels by their mangled names, like nsys's `:mangled`; without one in a capture,
        /// by the demangled name.
        mangled_names() naming = KernelNaming::Mangled;
        /// Prefixes kernel names with the innermost range, like nsys's `:nvtx-name`:
        /// `forward/gemm`. `nvtx_kern_sum` ignores it, since it has a column for the range.
        with_range_names() with_range = true;
    }

    fn store(self) -> &'a Tables {
        self.profile.tables()
    }

    /// The operations of nsys's reports: all except graphs traced as one interval.
    fn operations(self) -> impl Iterator<Item = &'a Operation> {
        let store = self.store();
        store.operations.iter().filter(|row| !matches!(store.work(row).what, What::Graph(_)))
    }

    /// The number of CUDA graphs traced as one interval.
    fn whole_graphs(self) -> u64 {
        self.profile.totals().graphs
    }

    /// The number of operations of a report that lack a time.
    fn without_time(self, is_meant: impl Fn(&Operation) -> bool) -> u64 {
        self.operations().filter(|row| row.time().is_none() && is_meant(row)).count() as u64
    }

    /// All recorded calls of both APIs.
    fn calls(self) -> impl Iterator<Item = &'a Call> {
        self.store().calls.iter().chain(&self.store().outer_calls)
    }

    fn thread(self, id: ThreadId) -> &'a Thread {
        &self.store().threads[id.at()]
    }

    /// The process id of a process in the store.
    fn pid(self, process: u32) -> u32 {
        self.profile.process_id(process)
    }

    /// A time relative to the session's start in the source; negative before it.
    fn at(self, ns: u64) -> i64 {
        self.store().session.since_zero(ns)
    }
}

/// The ends of ranges. Open ranges of a capture end with the last annotation or with the last
/// range: nsys's reports differ.
#[derive(Debug, Clone, Copy)]
struct Ends {
    open_ns: Option<u64>,
}

/// The end of open ranges in nsys's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndsWith {
    /// In sums of ranges: the last annotation.
    Annotations,
    /// In ranges with their work: the last range.
    Ranges,
    /// In the trace of thread ranges: the last thread range.
    ThreadRanges,
}

impl Ends {
    fn new(store: &Tables, with: EndsWith) -> Self {
        if !is_imported(store) {
            return Self { open_ns: None };
        }
        if with == EndsWith::Annotations {
            return Self { open_ns: Some(store.session.last_annotation_ns) };
        }
        let end =
            |time: &Interval, is_open: bool| if is_open { time.start_ns } else { time.end_ns };
        let ranges = store.ranges.iter().map(|range| end(&range.time, range.is_open));
        let process = match with {
            EndsWith::ThreadRanges => &[][..],
            _ => &store.process_ranges,
        };
        let process = process.iter();
        let process = process.map(|range| end(&range.time, range.end_thread.is_none()));
        Self { open_ns: ranges.chain(process).max() }
    }

    fn interval(self, range: &Range) -> Interval {
        self.time(range.time, range.is_open)
    }

    fn of_process(self, range: &ProcessRange) -> Interval {
        self.time(range.time, range.end_thread.is_none())
    }

    fn time(self, time: Interval, is_open: bool) -> Interval {
        let open_ns = self.open_ns.filter(|_| is_open);
        Interval { end_ns: open_ns.unwrap_or(time.end_ns), ..time }
    }
}

/// True for a capture of nsys.
fn is_imported(store: &Tables) -> bool {
    store.session.ranges_by == RangesBy::Containment
}
