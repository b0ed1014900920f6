//! The reports of Nsight Systems as typed rows.
//!
//! Each report has the name, the columns and the arithmetic that `nsys stats` of Nsight Systems 2025.3 gives it, so that
//! what was written for its CSV reads ours.
//!
//! ```no_run
//! use profiler_core::Profile;
//! use profiler_core::reports::{Rule, StatsReport};
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! println!("{}", profile.stats(StatsReport::CudaGpuKernSum)); // a table for people
//! let csv = profile.stats("nvtx_gpu_proj_sum".parse()?).csv(); // nsys's file
//! for kernel in profile.reports().cuda_kern_exec_sum().rows() {
//!     println!("{} waited {:?}", kernel.kernel_name, kernel.queue.map(|queue| queue.med_ns));
//! }
//! for wait in profile.rules().within("step").cuda_api_sync().rows() {
//!     println!("{} for {} ns: {}", wait.api_name, wait.duration_ns, Rule::CudaApiSync.advice());
//! }
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
mod rules;
mod spans;
mod sums;
mod table;
mod texts;
mod traces;
mod tracks;
mod unified;

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};

use crate::join::tables::{
    Call, Interval, Operation, ProcessRange, Range, RangesBy, Store, Thread, ThreadId, What,
};
use crate::profile::Profile;
pub use by_name::{
    Category, CudaApiGpuSum, CudaApiSum, CudaGpuKernGbSum, CudaGpuKernSum, CudaGpuMemSizeSum,
    CudaGpuMemTimeSum, CudaGpuSum,
};
pub use idle::{GapThreshold, GpuGap, GpuTimeUtil};
pub use launches::{CudaKernExecSum, CudaKernExecTrace};
pub use projection::{NvtxGpuProjSum, NvtxGpuProjTrace, NvtxKernSum};
pub use ranges::{NvtxPushpopSum, NvtxPushpopTrace, NvtxStartendSum, NvtxSum, Style};
pub use rules::{CudaApiSync, CudaMemcpyAsync, CudaMemcpySync, CudaMemsetSync, Rule, Rules};
pub use spans::{NameTree, RangeStack};
pub use sums::{SizeSummary, Summary};
pub(crate) use table::{Cells, Row, Unit};
pub use texts::KernelNaming;
pub(crate) use texts::memory_text;
pub use traces::{CudaApiTrace, CudaGpuTrace};
pub(crate) use tracks::NodeTimes;
pub use tracks::{RangeTrackSum, TrackSum};
pub use unified::{UmCpuPageFaultsSum, UmSum, UmTotalSum};

/// What a report has beside its rows: [`Report`] and [`AnyReport`] dereference to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    name: &'static str,
    rows: usize,
    reason: &'static str,
    left_out: u64,
    more: u64,
    whole_graphs: u64,
}

impl Outline {
    /// The name that nsys has for the report.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True if the report has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Why the report has no rows, where nsys prints `SKIPPED`.
    pub fn skipped(&self) -> Option<&'static str> {
        self.is_empty().then_some(self.reason)
    }

    /// GPU operations without timestamps and calls that had not returned, which are in no row.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Rows beyond the requested number.
    pub fn more_rows(&self) -> u64 {
        self.more
    }

    /// Launches of CUDA graphs that were traced as one interval each. They are in no row: nsys leaves them out of its
    /// reports on GPU work, as if the GPU had been idle. 0 in reports without GPU work.
    pub fn whole_graphs(&self) -> u64 {
        self.whole_graphs
    }

    fn write(&self, rows: &dyn Rows, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.skipped() {
            Some(reason) => write!(f, "{}: {reason}", self.name)?,
            None => {
                writeln!(f, "{}:", self.name)?;
                rows.write_table(f)?;
            }
        }
        if self.more != 0 {
            write!(f, "\n({} more rows than were asked for)", self.more)?;
        }
        if self.left_out != 0 {
            write!(f, "\n({} without timestamps are not in it)", self.left_out)?;
        }
        if self.whole_graphs != 0 {
            let graphs = self.whole_graphs;
            write!(
                f,
                "\n({graphs} graph launches traced as a whole are not in it, as nsys leaves them out)"
            )?;
        }
        Ok(())
    }
}

/// The rows of one report.
///
/// `{}` prints a table for people, of at most 50 rows (`{:#}`: of all). `serde` writes the sequence of the rows, with the
/// names and units of their fields; [`csv`](Self::csv) and [`json`](Self::json) write what nsys writes.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Report<R> {
    outline: Outline,
    rows: Vec<R>,
}

impl<R: Row> Report<R> {
    /// `reason` states why a report without rows has none.
    pub(crate) fn new(rows: Vec<R>, reason: &'static str) -> Self {
        let (name, count) = (R::NAME, rows.len());
        let outline = Outline { name, rows: count, reason, left_out: 0, more: 0, whole_graphs: 0 };
        Self { outline, rows }
    }

    /// As `nsys stats --format csv` writes it: times in nanoseconds, sizes in megabytes of 1,000,000 bytes. Empty without
    /// rows.
    pub fn csv(&self) -> String {
        table::csv(&self.rows)
    }

    /// As `nsys stats --format json` writes it: an object a row, by the names of the CSV's columns.
    pub fn json(&self) -> String {
        table::json(&self.rows)
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

    /// Keeps the first rows alone; `None` is all.
    fn limited(mut self, rows: Option<usize>) -> Self {
        if let Some(rows) = rows.filter(|&rows| rows < self.rows.len()) {
            self.outline.more = (self.rows.len() - rows) as u64;
            self.outline.rows = rows;
            self.rows.truncate(rows);
        }
        self
    }

    /// The rows, in nsys's order.
    pub fn rows(&self) -> &[R] {
        &self.rows
    }

    /// The rows, in nsys's order.
    #[must_use]
    pub fn into_rows(self) -> Vec<R> {
        self.rows
    }
}

impl<R> Deref for Report<R> {
    type Target = Outline;
    fn deref(&self) -> &Outline {
        &self.outline
    }
}

impl<R: Row> fmt::Display for Report<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline.write(&self.rows, f)
    }
}

impl<R: Serialize> Serialize for Report<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

impl<R> IntoIterator for Report<R> {
    type Item = R;
    type IntoIter = std::vec::IntoIter<R>;
    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

/// Rows of any type.
trait Rows: fmt::Debug {
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn csv(&self) -> String;
    fn json(&self) -> String;
}

impl<R: Row> Rows for Vec<R> {
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write_table(self, f)
    }

    fn csv(&self) -> String {
        table::csv(self)
    }

    fn json(&self) -> String {
        table::json(self)
    }
}

/// A report by its name; its rows have no type. `{}` prints a table for people.
#[derive(Debug)]
#[must_use]
pub struct AnyReport {
    outline: Outline,
    rows: Box<dyn Rows>,
}

impl AnyReport {
    /// See [`Report::csv`].
    pub fn csv(&self) -> String {
        self.rows.csv()
    }

    /// See [`Report::json`].
    pub fn json(&self) -> String {
        self.rows.json()
    }
}

impl<R: Row + 'static> From<Report<R>> for AnyReport {
    fn from(report: Report<R>) -> Self {
        Self { outline: report.outline, rows: Box::new(report.rows) }
    }
}

impl Deref for AnyReport {
    type Target = Outline;
    fn deref(&self) -> &Outline {
        &self.outline
    }
}

impl fmt::Display for AnyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outline.write(&*self.rows, f)
    }
}

/// Declares the reports of a maker: their variants, their methods, which have nsys's names, and what they list.
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
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that nsys has for it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($name),)+
                }
            }

            /// What it lists, in a few words.
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
            type Err = crate::base::error::Error;

            /// By nsys's name.
            ///
            /// # Errors
            /// There is none of this name; the message lists those there are.
            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|known| known.name() == name).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|known| known.name()).collect();
                    crate::base::error::Error::new(crate::base::error::Kind::Name { what: $what, name: name.to_owned(), known })
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

impl Profile {
    /// The reports of nsys on this profile.
    pub fn reports(&self) -> Reports<'_> {
        Reports { profile: self, naming: KernelNaming::default(), with_range: false }
    }

    /// One report by name, with nsys's defaults. For typed rows and options see [`reports`](Self::reports).
    pub fn stats(&self, report: StatsReport) -> AnyReport {
        self.reports().get(report)
    }
}

/// Makes reports, each anew from the profile: a few nanoseconds an operation or call, and for kernels with C++ names once
/// a name some microseconds.
///
/// Of a program that was recorded by a [`Profiler`](crate::Profiler) the calls of the driver API count, and those of the
/// runtime API where they were recorded. Times are nanoseconds since the session's start, negative before it, as
/// events of a capture of nsys may be; process ids are 0 in recordings that do not know theirs.
///
/// A range is around a call if the call was made in it; of a capture of nsys, if it lies in it on the same thread. Ranges
/// of the process count where they began and ended on one thread, by time.
#[derive(Debug, Clone, Copy)]
pub struct Reports<'a> {
    profile: &'a Profile,
    naming: KernelNaming,
    with_range: bool,
}

impl<'a> Reports<'a> {
    /// How kernels are named: nsys's `:base` and `:mangled`.
    #[must_use]
    pub fn kernel_names(self, naming: KernelNaming) -> Self {
        Self { naming, ..self }
    }

    /// Puts the innermost range before the names of kernels, as nsys's `:nvtx-name` does: `forward/gemm`. Not in
    /// `nvtx_kern_sum`, which has a column for it.
    #[must_use]
    pub fn with_range_names(self) -> Self {
        Self { with_range: true, ..self }
    }

    fn store(self) -> &'a Store {
        &self.profile.store
    }

    /// The operations of nsys's reports: all but graphs that were traced as one interval.
    fn operations(self) -> impl Iterator<Item = &'a Operation> {
        let store = self.store();
        store.operations.iter().filter(|row| !matches!(store.work(row).what, What::Graph(_)))
    }

    /// How many graphs that leaves out.
    fn whole_graphs(self) -> u64 {
        self.profile.totals().graphs
    }

    /// The operations that a report means and cannot have in a row.
    fn without_time(self, is_meant: impl Fn(&Operation) -> bool) -> u64 {
        self.operations().filter(|row| row.time().is_none() && is_meant(row)).count() as u64
    }

    /// Every call of either API that was recorded.
    fn calls(self) -> impl Iterator<Item = &'a Call> {
        self.store().calls.iter().chain(&self.store().outer_calls)
    }

    fn thread(self, id: ThreadId) -> &'a Thread {
        &self.store().threads[id.at()]
    }

    /// The kernel's id of a process of the store.
    fn pid(self, process: u32) -> u32 {
        self.profile.process_id(process)
    }

    /// Since the time that the source calls 0, which is the session's start; negative before it.
    fn at(self, ns: u64) -> i64 {
        self.store().session.since_zero(ns)
    }
}

/// When a range ended; of an open one of a capture when nsys takes it to have ended: with the last annotation of all, or
/// with the last range, as its reports differ.
#[derive(Debug, Clone, Copy)]
struct Ends {
    open_ns: Option<u64>,
}

/// With what nsys ends ranges that have no end of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndsWith {
    /// Sums of ranges.
    Annotations,
    /// Ranges with their work.
    Ranges,
    /// The trace of ranges of threads.
    ThreadRanges,
}

impl Ends {
    fn new(store: &Store, with: EndsWith) -> Self {
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

    fn of(self, range: &Range) -> Interval {
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

/// True for what nsys captured.
fn is_imported(store: &Store) -> bool {
    store.session.ranges_by == RangesBy::Containment
}
