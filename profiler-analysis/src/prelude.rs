//! Analysis methods for types of `profiler_core`: `use profiler_analysis::prelude::*`.

use std::io::Write;
#[cfg(any(feature = "nsys", feature = "parquet"))]
use std::path::Path;
use std::time::Duration;

pub use profiler_core::DisplayOptions;
use profiler_core::GpuTest;
use profiler_core::profile::Kernel;
use profiler_core::query::{Groups, Query};
use profiler_core::{Profile, Profiler, TextReport};

use crate::analyze::explanation::{self, KernelExplanation};
use crate::analyze::kernels::{launches, shape, shares, tensor_core, tensor_cores};
use crate::analyze::{critical_path, ranks, roofline, scorecard};
use crate::check::gpu_test::{self, GatedTest};
use crate::critical_path::Dependencies;
use crate::diagnosis::{Diagnoser, Diagnosis, Thresholds, Verdict};
use crate::error::Error;
use crate::formats::Export;
use crate::formats::stacks::{self, StackRoot, Stacks};
#[cfg(feature = "parquet")]
use crate::formats::{FleetPart, ParquetOptions};
use crate::gate::Gate;
use crate::interference::Interference;
use crate::kernels::{
    Classifier, KernelClass, LaunchShape, LaunchShapes, SmLimits, TensorCoreUse, TensorCores,
};
use crate::measure::{Measure, Measurement, PairMeasurement};
use crate::ranks::Ranks;
use crate::reports::{AnyReport, Reports, Rules, StatsReport, tracks};
use crate::roofline::{Declared, Peaks, Roofline};
use crate::scorecard::{Scorecard, Targets};
use crate::show::html;
use sealed::Is;

/// The number of findings in a report.
const FINDINGS: usize = 3;

/// Analysis methods of a [`Profile`]. Sealed: implemented for that type alone.
pub trait ProfileExt: Is<Profile> {
    /// Returns the [text report](Profile::report) with the verdict and the first findings of the
    /// diagnosis.
    fn report_with_findings(&self) -> TextReport<'_> {
        self.it().report().section(self.diagnose().brief(FINDINGS))
    }

    /// Merges ranges whose names differ only in running numbers, and replaces these numbers by `*`:
    /// `step 1` to `step 500` become `step *`. The merged ranges are one node, also in results
    /// computed from the profile later.
    ///
    /// A number is running if its values do not recur. `layer 0` to `layer 11`, which recur in
    /// every step, stay separate. If each value occurs once, in one instance of the surrounding
    /// range, the number is running from eight values on. Names of kernels, marks and process
    /// ranges stay unchanged.
    ///
    /// Costs a pass over the ranges whose names have numbers, and the range tree.
    #[must_use]
    fn with_grouped_numbers(self) -> Profile {
        crate::running_numbers::with_grouped_numbers(self.into_it())
    }

    /// The dependency graph of the run. Costs some sorts of calls, ranges and operations.
    fn dependencies(&self) -> Dependencies<'_> {
        critical_path::dependencies(self.it())
    }

    /// Compute kernels beside communication, and how much longer they take then. Costs some passes
    /// over the operations.
    fn interference(&self) -> Interference {
        Interference::new(self.it())
    }

    /// The diagnosis with the default [`Thresholds`]. Costs some passes over operations, calls and
    /// ranges. It also replays the dependency graph up to thirty times; for a long run, only its
    /// first steps.
    fn diagnose(&self) -> Diagnosis {
        self.diagnosis(Thresholds::new()).run()
    }

    /// The verdict on the ranges that [`Profile::range`] finds; `None` if it finds none.
    fn diagnose_range(&self, path: &str) -> Option<Verdict> {
        self.diagnosis(Thresholds::new()).range(path)
    }

    /// Returns a diagnoser with other thresholds.
    fn diagnosis(&self, thresholds: Thresholds) -> Diagnoser<'_> {
        Diagnoser::new(self.it(), thresholds)
    }

    /// All kernels by name and launch shape.
    /// [`Query::launch_shapes`](crate::prelude::QueryExt::launch_shapes) covers a selection.
    fn launch_shapes(&self) -> LaunchShapes {
        self.it().query().launch_shapes()
    }

    /// The resources of a multiprocessor of this device: from the profile's source, or from the
    /// compute capability. `None` if neither is known.
    fn sm_limits(&self, device: u32) -> Option<SmLimits> {
        shape::sm_limits(self.it(), device)
    }

    /// Kernels by class. [`Query::by_kernel_class`](crate::prelude::QueryExt::by_kernel_class)
    /// includes copies and memsets, and can select ranges.
    fn kernel_classes(&self) -> Groups<KernelClass> {
        self.it().query().kernels().by_kernel_class()
    }

    /// Tensor-core use of the operations. Costs one pass over kernels and ranges.
    fn tensor_cores(&self) -> TensorCores {
        self.tensor_cores_with(&Classifier::new())
    }

    /// Like [`tensor_cores`](Self::tensor_cores), with a custom classifier.
    fn tensor_cores_with(&self, classifier: &Classifier) -> TensorCores {
        tensor_cores::tensor_cores(&self.it().query(), classifier)
    }

    /// Matches the collectives of the profile's processes. Costs as much as the clock of a
    /// [diagnosis](Self::diagnose) and a sort of the collectives; memory is proportional to both.
    fn ranks(&self) -> Ranks {
        ranks::of_profile(self.it())
    }

    /// Like [`ranks`](Self::ranks), and also finds the stragglers in each instance of a range, such
    /// as an epoch or some steps. `path` is a name, a path, or a pattern with `*` for any text;
    /// only the outermost matching ranges count. `None` without a match.
    ///
    /// Also costs a sort of their instances, and for each straggler a pass over the work in its
    /// instance.
    fn ranks_by_range(&self, path: &str) -> Option<Ranks> {
        ranks::by_range(self.it(), path)
    }

    /// The points of declared work ([`nvtx::Event::flops`], [`nvtx::Event::bytes`], [`nvtx::Work`])
    /// under these roofs: one per path and kind of work.
    ///
    /// The time of a point is the busy time of the kernels launched in its instances and their
    /// children. Busy means that at least one kernel other than a collective ran; the time is
    /// summed over devices. For a range of the process, such as an annotated future, the kernels of
    /// its entries count. Work declared during the capture of a CUDA graph counts for every launch
    /// of the graph. Slowdown by concurrent kernels of other ranges is not corrected.
    ///
    /// Costs about 0.2 us per range with declared work and its kernel; nothing if no range declares
    /// work.
    fn roofline(&self, peaks: &Peaks) -> Roofline {
        self.roofline_with(peaks, &Declared::new())
    }

    /// Like [`roofline`](Self::roofline), with work for kernels and for ranges that declare none.
    fn roofline_with(&self, peaks: &Peaks, declared: &Declared) -> Roofline {
        roofline::roofline(self.it(), peaks, declared)
    }

    /// The peaks of the device with this CUDA ordinal; by default, of the device with the most
    /// kernels. `None` if the recording has no such device.
    fn peaks(&self, device: Option<u32>) -> Option<Peaks> {
        roofline::peaks::peaks(self.it(), device)
    }

    /// The scorecard with the default [`Targets`]. Costs a diagnosis and some passes over kernels
    /// and ranges: about two microseconds per launch.
    fn scorecard(&self) -> Scorecard {
        self.scorecard_with(&Targets::new())
    }

    /// The scorecard with other targets.
    fn scorecard_with(&self, targets: &Targets) -> Scorecard {
        scorecard::scorecard(self.it(), targets)
    }

    /// Adds the profile to a fleet: a data set of the recordings of many ranks and days.
    ///
    /// The folder has the tables `operations`, `ranges` and `recordings`, each with Hive
    /// partitioning: `operations/job=train/date=2026-11-24/host=node-1/rank=3/ID.parquet`. The date
    /// is the day of the start in UTC. Labels are percent-encoded in paths and unencoded in
    /// `recordings`. Rows contain names and paths, so no row needs the ids of its recording. Times
    /// are nanoseconds since 1970.
    ///
    /// Each file appears when complete, and the one in `recordings` last: the
    /// [views](crate::formats::FLEET_VIEWS) skip a recording without it. Adding the same recording
    /// of the same part again replaces its files. Nothing happens if
    /// [`compact_fleet`](crate::formats::compact_fleet) has already joined it with others. Several
    /// processes may add to one folder at a time.
    ///
    /// ```no_run
    /// use profiler_analysis::prelude::*;
    /// use profiler_core::Profile;
    /// use profiler_analysis::formats::FleetPart;
    ///
    /// # fn main() -> Result<(), profiler_analysis::Error> {
    /// let profile = Profile::load("rank3.gpuprof")?;
    /// profile.add_to_fleet("fleet", &FleetPart::new("train", "node-1", 3))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A label is empty, or a file cannot be written. The recording is then absent from the fleet,
    /// or unchanged if it was already there.
    #[cfg(feature = "parquet")]
    fn add_to_fleet(&self, folder: impl AsRef<Path>, part: &FleetPart) -> Result<(), Error> {
        crate::formats::fleet::add_to_fleet(self.it(), folder, part)
    }

    /// Writes the profile as a data set of Parquet files for DuckDB, Polars, Spark and others. Each
    /// table is a folder with Hive partitioning: `host=HOST/rank=RANK/data.parquet`. Levels without
    /// a label are left out. Several processes may write into one folder. Each file appears when
    /// complete; a file of the same part is replaced.
    ///
    /// ```sql
    /// SELECT value, count(*), sum("end" - start)
    /// FROM read_parquet('profile/CUPTI_ACTIVITY_KIND_KERNEL/**/*.parquet', hive_partitioning = true)
    /// JOIN read_parquet('profile/StringIds/**/*.parquet', hive_partitioning = true) s
    ///     USING (host, rank) -- with several parts: each has its own ids
    /// WHERE s.id = demangledName GROUP BY value
    /// ```
    ///
    /// Tables and columns have the names, numbers and NULLs of Nsight Systems' SQLite export. All
    /// tables exist, some without rows. 64-bit values are stored as signed numbers. Times are
    /// nanoseconds since the start of each process's own session. `TARGET_INFO_SESSION_START_TIME`
    /// contains that start, see [`started_at`](Profile::started_at).
    ///
    /// The data set adds to the tables and columns of the feature `nsys`:
    ///
    /// - The table `RANGES`: `id`, `parentId`, `path` as in
    ///   [`json_lines`](crate::prelude::ProfileExt::json_lines), `domain`, `instance` counted from
    ///   0 in its path, `globalTid`, `start`, and `end`, NULL for an open range.
    /// - A column `rangeId` in the tables of operations, calls, synchronisations and allocations,
    ///   for [`GpuOperation::range`](profiler_core::profile::GpuOperation::range).
    /// - A column `capturedRangeId` in the tables of operations, for
    ///   [`captured_in`](profiler_core::profile::GpuOperation::captured_in).
    ///
    /// [Samples](Profile::tracks) are in the table `SAMPLES`: a row for each value with `device`,
    /// `source`, `metric` (its name), `label`, `unit`, `kind`, `start`, `end` and `value`. Totals
    /// are stored as totals; an unknown value is NULL. `SAMPLERS` contains each sampler's settings
    /// (`intervalNs`, `samples`), losses (`dropped`, `overflows`, `gaps`, `gapNs`), `missing`
    /// metrics and `failure`. All samples are included, at about 10 bytes each.
    ///
    /// The files contain no environment, user, host name or path. Rows are buffered and written in
    /// groups of 122,880, compressed with LZ4. Writing takes about 0.6 us, and 9 bytes of file, for
    /// an operation with its call.
    ///
    /// # Errors
    /// The folder or a file cannot be written, or the label of the host is empty. Files replaced
    /// before the error stay replaced; no empty folder remains.
    #[cfg(feature = "parquet")]
    fn write_parquet(
        &self,
        folder: impl AsRef<Path>,
        options: &ParquetOptions,
    ) -> Result<(), Error> {
        crate::formats::parquet::write_parquet(self.it(), folder, options)
    }

    /// Sums GPU work by stack: one row for each root, range path and operation name.
    ///
    /// Each operation is in exactly one stack, so the weights of all stacks add up to
    /// [`Profile::totals`]. The stack of an operation outside ranges is the root and the operation.
    /// Memory grows with the number of stacks, time with the number of operations.
    ///
    /// ```
    /// use profiler_analysis::prelude::*;
    /// use profiler_core::Profile;
    /// use profiler_analysis::formats::stacks::{StackRoot, StackWeight};
    ///
    /// # fn main() -> Result<(), profiler_analysis::Error> {
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    /// let profile = Profile::load(file)?;
    /// let stacks = profile.stacks(StackRoot::Threads);
    /// let longest = stacks.iter().max_by_key(|stack| stack.weights.gpu_time);
    /// if let Some(stack) = longest {
    ///     let names: Vec<_> = stack.frames.iter().map(|frame| &*frame.name).collect();
    ///     println!("{}: {:?}", names.join(" > "), stack.weights.gpu_time);
    /// }
    /// // A line for each stack, as the library inferno and flamegraph.pl read them.
    /// let lines: Vec<String> = profile.stacks(StackRoot::Ranges).folded(StackWeight::GpuTime).collect();
    /// # assert!(lines.iter().any(|line| line.starts_with("batch;forward;")));
    /// # assert_eq!(stacks.total().operations, profile.totals().gpu_operations());
    /// # Ok(())
    /// # }
    /// ```
    fn stacks(&self, root: StackRoot) -> Stacks<'_> {
        stacks::stacks(self.it(), root)
    }

    /// Sums the idle time of devices by stack: the root, the path of the time's range, the
    /// functions of the host, and the [cause](profiler_core::query::IdleCause).
    ///
    /// Gaps shorter than `shortest` are left out: the clocks of host and device differ by up to
    /// [`Facts::clock_error`](profiler_core::profile::Facts::clock_error).
    ///
    /// Functions are taken from the [samples](profiler_core::query::Gap::samples) of the gap,
    /// followed by the thread's state. Time without a sample has the functions of
    /// [`Gap::stack`](profiler_core::query::Gap::stack), in a session with
    /// [stacks](profiler_core::ProfilerBuilder). This stack covers the time in no CUDA call and in
    /// the call that ended the gap. All other time, and all time without stacks, has only the
    /// cause. Weights add up to the time of [`Query::gaps`](profiler_core::query::Query::gaps).
    /// With [`StackRoot::Streams`] a gap belongs to the stream whose work ended it.
    fn idle_stacks(&self, root: StackRoot, shortest: Duration) -> Stacks<'_> {
        stacks::idle_stacks(self.it(), root, shortest)
    }

    /// Sums instruction samples by stack: the root, the path of the range, and the kernel with its
    /// source line. Numbers of [apportioned](profiler_core::query::Instructions) samples are rounded.
    fn sample_stacks(&self, root: StackRoot) -> Stacks<'_> {
        stacks::sample_stacks(self.it(), root)
    }

    /// Writes the profile in a format of other tools. The method buffers `out`.
    ///
    /// Memory grows with the profile, not with the output. Takes a few microseconds per operation;
    /// see `docs/measurements/exports-and-sizes.md`.
    ///
    /// ```no_run
    /// use profiler_analysis::prelude::*;
    /// use profiler_analysis::formats::Export;
    /// use profiler_analysis::Format;
    /// use profiler_core::Profile;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let profile = Profile::load("step.gpuprof")?;
    /// profile.export(Format::Perfetto, std::fs::File::create("step.pftrace")?)?;
    /// let rank = Export::new(Format::Kineto).rank(3, 8);
    /// profile.export(rank, std::fs::File::create("rank3.pt.trace.json")?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `out` cannot be written; it then contains an incomplete file.
    fn export(&self, export: impl Into<Export>, out: impl Write) -> Result<(), Error> {
        crate::formats::export::format::export(self.it(), export.into(), out)
    }

    /// Returns one JSON object per line, for scripts: every range by path, parents first, then the
    /// whole profile.
    ///
    /// A range has:
    ///
    /// - `path`
    /// - `parent`: the line of the parent range, counted from 0; absent for an outermost range
    /// - `instances` and `host_ns`
    /// - `inclusive` and `exclusive` with the fields of [`Totals`](profiler_core::profile::Totals)
    /// - `shared` if there is [shared work](profiler_core::profile::RangeSummary::shared)
    ///
    /// A path of more than 128 names is shortened to the first and last 64 and the number between
    /// them: `…(7 more)…`. The last line has an empty path, everything outside ranges in
    /// `exclusive`, and `complete` and `health` with the fields of
    /// [`Health`](profiler_core::Health).
    ///
    /// With [samples](Profile::tracks), a range has `sampled`. For each track with samples while
    /// its inclusive work was on the device, `sampled` has `device`, `name`, `mean`, `samples` and
    /// `covered_ns`. For totals, `mean` is the rate per second. With process ranges, the last line
    /// has `process_ranges`: for each name `instances`, `open`, `host_ns` and `inclusive`.
    /// `inclusive` is [by time](profiler_core::profile::ProcessRangeGroup::is_by_time) if `by_time`
    /// is true. The last line also has `tracks` with the rows of [`track_sums`](Self::track_sums), and `samplers`
    /// with each sampler's metrics, losses and failure.
    ///
    /// A range has `replayed` ([`replayed`](profiler_core::profile::RangeSummary::replayed)) and
    /// `inferred` ([`inferred`](profiler_core::profile::RangeSummary::inferred)) if there are any.
    ///
    /// In a profile of several processes, the last line has `processes`: `id`, `name`, `rank`, the
    /// window of its own recording, `totals`, `complete` and `health`.
    fn json_lines(&self) -> String {
        crate::formats::export::json_lines(self.it())
    }

    /// Writes the profile as a capture file for `nsys stats`, `nsys analyze` and other readers of
    /// nsys's files. The file appears when complete. It replaces an existing file; if that is a
    /// link, its target. `progress` is called with the written rows and the
    /// rows in total, as far as known, every 50,000 rows and at the end.
    ///
    /// Ranges read from a capture retain their row number, which nsys's reports call `RangeId`. The
    /// file contains no environment, user, host name or path. With the profile's
    /// [`recording`](Profile::recording), kernels have their grid id, launch type and total of
    /// local memory.
    ///
    /// Calls of the driver API appear in nsys's sums and traces, but not in its rules, which search
    /// for names of the runtime API. A call of the runtime API replaces the driver call it makes,
    /// as in nsys's own files.
    ///
    /// nsys's schema has no tables or columns for activations of
    /// [`process_ranges`](Profile::process_ranges), the ranges of graph nodes, ranges handed to
    /// other threads, and units of fields. Counters of [samples](Profile::tracks) are written with
    /// the unit in the name (`DRAM read [B per sample]`) and unrounded values; NVML samples are
    /// not. Writing takes about 2 us for an operation with its call.
    ///
    /// # Errors
    /// The file cannot be written, or the path is a directory, device, pipe, or dangling link.
    #[cfg(feature = "nsys")]
    fn write_nsys(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64, u64),
    ) -> Result<(), Error> {
        crate::formats::nsys::write_nsys(self.it(), path, progress)
    }

    /// The reports of nsys on this profile.
    fn reports(&self) -> Reports<'_> {
        Reports::new(self.it())
    }

    /// Returns one report by name, with nsys's defaults. [`reports`](Self::reports) has options.
    fn stats(&self, report: StatsReport) -> AnyReport {
        self.reports().get(report)
    }

    /// The rules of nsys on this profile, with the defaults of [`Rules`].
    fn rules(&self) -> Rules<'_> {
        Rules::new(self.it())
    }

    /// Every [track](Profile::tracks) with samples, summed up over the session.
    fn track_sums(&self) -> AnyReport {
        tracks::track_sums(self.it()).into()
    }

    /// Sums up every [track](Profile::tracks) over the ranges of each path, while their inclusive
    /// work was on the track's device. Other work there is included. Flags are left out. Costs a
    /// visit of each sample for every range around it.
    fn range_track_sums(&self) -> AnyReport {
        tracks::range_track_sums(self.it()).into()
    }

    /// Returns the profile as one HTML page: the text of [`write_html`](Self::write_html).
    fn to_html(&self) -> String {
        html::to_html(self.it())
    }

    /// Writes the profile as one HTML page for a browser, without a network. The page has a
    /// timeline with findings and their evidence, tables of ranges, kernels, memory operations and
    /// API calls, and a flame graph. It also has the scorecard, and a roofline if ranges declare
    /// their work.
    ///
    /// The page fetches nothing, and its policy forbids fetches. Names are data, never markup. The
    /// page contains names of ranges, kernels and threads, the GPUs and versions, but no host name,
    /// user, path or environment. It takes about 60 bytes for a launch with its call and range, and
    /// the time of a diagnosis and a scorecard.
    ///
    /// [Tracks](Profile::tracks) of samplers are drawn below their device: the mean by time and the
    /// maximum of each pixel. A track has at most 20,000 segments, all tracks together 200,000.
    /// Longer tracks are downsampled: consecutive samples become one segment with mean, minimum and
    /// maximum. Means over the session and over ranges include all samples.
    ///
    /// # Errors
    /// `out` cannot be written.
    fn write_html(&self, out: impl Write) -> Result<(), Error> {
        html::write_html(self.it(), out)
    }
}

impl ProfileExt for Profile {}

/// Analysis methods of a [`Query`], on the operations that it selects. Sealed: implemented for that
/// type alone.
pub trait QueryExt<'a>: Is<Query<'a>> {
    /// The kernels by device, name and launch shape.
    fn launch_shapes(&self) -> LaunchShapes {
        self.launch_shapes_with(&Classifier::new())
    }

    /// Like [`launch_shapes`](Self::launch_shapes), with a custom classifier.
    fn launch_shapes_with(&self, classifier: &Classifier) -> LaunchShapes {
        launches::launch_shapes(self.it(), classifier)
    }

    /// All that is known of these kernels, which should be those of one name; `None` without any.
    /// Takes passes over the operations and the instruction samples.
    fn explanation(&self) -> Option<KernelExplanation> {
        explanation::explanation(self.it())
    }

    /// Groups operations by class: kernels by name, copies and memsets by kind. Graphs traced as
    /// one interval are [`KernelClass::Other`].
    fn by_kernel_class(&self) -> Groups<KernelClass> {
        self.by_kernel_class_with(&Classifier::new())
    }

    /// Like [`by_kernel_class`](Self::by_kernel_class), with a custom classifier.
    fn by_kernel_class_with(&self, classifier: &Classifier) -> Groups<KernelClass> {
        shares::by_kernel_class(self.it(), classifier)
    }

    /// Kernels by class as a report, for CSV and JSON, without copies and memsets.
    fn kernel_class_sums(&self, classifier: &Classifier) -> AnyReport {
        shares::kernel_class_sums(self.it(), classifier).into()
    }

    /// Kernels by range and class as a report, for CSV and JSON: by path, then longest time first.
    fn range_class_sums(&self, classifier: &Classifier) -> AnyReport {
        shares::range_class_sums(self.it(), classifier).into()
    }

    /// Tensor-core use of the selected kernels.
    fn tensor_cores(&self) -> TensorCores {
        tensor_cores::tensor_cores(self.it(), &Classifier::new())
    }
}

impl<'a> QueryExt<'a> for Query<'a> {}

/// Analysis methods of a [`Kernel`]. Sealed: implemented for that type alone.
pub trait KernelExt<'a>: Is<Kernel<'a>> {
    /// The shape of the launch. `None` if the device's limits are unknown, or the launch has no
    /// threads.
    fn launch_shape(&self) -> Option<LaunchShape> {
        shape::launch_shape(self.it())
    }

    /// Its class, by its name. A kernel [added to the collectives](Profile::with_communication) has
    /// their class. Costs microseconds.
    fn class(&self) -> KernelClass {
        self.class_with(&Classifier::new())
    }

    /// Like [`class`](Self::class), with a custom classifier.
    fn class_with(&self, classifier: &Classifier) -> KernelClass {
        shares::class(self.it(), classifier)
    }

    /// Tensor-core use by the kernel's name. Costs microseconds.
    fn tensor_core_use(&self) -> TensorCoreUse {
        self.tensor_core_use_with(&Classifier::new())
    }

    /// Like [`tensor_core_use`](Self::tensor_core_use), with a custom classifier.
    fn tensor_core_use_with(&self, classifier: &Classifier) -> TensorCoreUse {
        tensor_core::tensor_core_use(self.it(), classifier)
    }
}

impl<'a> KernelExt<'a> for Kernel<'a> {}

/// Measurements with a [`Profiler`]. Sealed: implemented for that type alone.
pub trait ProfilerExt: Is<Profiler> {
    /// Measures a piece of work, from a kernel to a step, with the default settings of [`Measure`]:
    /// GPU time, latency and host cost with bounds. Takes 7 s at most, and stops early once the
    /// result is precise.
    ///
    /// # Errors
    /// As [`Measure::run`].
    ///
    /// # Panics
    /// If `work` panics.
    fn measure<R>(&self, work: impl FnMut() -> R) -> Result<Measurement, Error> {
        Measure::new().run(self.it(), work)
    }

    /// Measures two variants alternately, with the default settings: [`Measure::run_pair`].
    ///
    /// # Errors
    /// As [`Measure::run`].
    ///
    /// # Panics
    /// If a variant panics.
    fn measure_pair<A, B>(
        &self,
        a: impl FnMut() -> A,
        b: impl FnMut() -> B,
    ) -> Result<PairMeasurement, Error> {
        Measure::new().run_pair(self.it(), a, b)
    }
}

impl ProfilerExt for Profiler {}

/// Measurements and baselines in a [`GpuTest`]. Sealed: implemented for that type alone.
pub trait GpuTestExt: Is<GpuTest> {
    /// Measures until it is decided if the work matches the baseline: see [`Gate`]. A path,
    /// relative to the package's folder, also makes a gate.
    ///
    /// The gate determines the number of runs ([`Gate::runs`]), not [`repeats`](GpuTest::repeats).
    /// With `GPU_BASELINES=update` in the environment, the call writes the baseline instead.
    fn baseline(self, gate: impl Into<Gate>) -> GatedTest {
        GatedTest::new(self.into_it(), gate.into())
    }

    /// Measures the GPU time, latency and host cost of the work: [`Measure::run`] with its
    /// defaults, after at least [`warm_up`](GpuTest::warm_up) calls. [`repeats`](GpuTest::repeats)
    /// has no effect.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use profiler_analysis::prelude::*;
    /// use profiler_core::gpu_test;
    ///
    /// # fn forward() {}
    /// #[test]
    /// # fn hidden() {}
    /// fn forward_takes_a_millisecond() {
    ///     let Some(test) = gpu_test() else { return };
    ///     let measurement = test.measure(|| forward());
    ///     assert!(measurement.gpu_time().median() < Duration::from_millis(1), "{measurement}");
    /// }
    /// ```
    ///
    /// # Panics
    /// If the work cannot be measured, for example under nsys, or if `work` panics.
    #[track_caller]
    fn measure<R>(self, work: impl FnMut() -> R) -> Measurement {
        gpu_test::measured(self.try_measure(Measure::new(), work))
    }

    /// Like [`measure`](Self::measure), with settings, for tests that return their errors.
    ///
    /// # Errors
    /// As [`Measure::run`].
    fn try_measure<R>(
        self,
        settings: Measure,
        work: impl FnMut() -> R,
    ) -> Result<Measurement, Error> {
        let (profiler, warm_up, _turn) = self.into_it().into_parts();
        settings.first_calls(warm_up).run(&profiler, work)
    }

    /// Measures two variants alternately: [`Measure::run_pair`]. Otherwise like
    /// [`measure`](Self::measure).
    ///
    /// # Panics
    /// As [`measure`](Self::measure).
    #[track_caller]
    fn measure_pair<A, B>(self, a: impl FnMut() -> A, b: impl FnMut() -> B) -> PairMeasurement {
        gpu_test::measured(self.try_measure_pair(Measure::new(), a, b))
    }

    /// Like [`measure_pair`](Self::measure_pair), with settings, for tests that return their
    /// errors.
    ///
    /// # Errors
    /// As [`Measure::run`].
    fn try_measure_pair<A, B>(
        self,
        settings: Measure,
        a: impl FnMut() -> A,
        b: impl FnMut() -> B,
    ) -> Result<PairMeasurement, Error> {
        let (profiler, warm_up, _turn) = self.into_it().into_parts();
        settings.first_calls(warm_up).run_pair(&profiler, a, b)
    }
}

impl GpuTestExt for GpuTest {}

mod sealed {
    /// Implemented for `T` alone, so an extension of `T` is sealed.
    pub trait Is<T>: Sized {
        fn it(&self) -> &T;
        fn into_it(self) -> T;
    }

    impl<T> Is<T> for T {
        fn it(&self) -> &T {
            self
        }

        fn into_it(self) -> T {
            self
        }
    }
}
