//! Instruction samples: what the warps of kernels did, by kernel, line and stall.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::ops::AddAssign;

use profiler_base::getters;
use profiler_base::text::printable;
use profiler_base::units::percent;
use rustc_hash::FxHashMap;

use super::Query;
use crate::join::sampled_slices::{SampledSlices, SliceOfKernel, kernel_of};
use crate::join::tables::{KernelNames, NameId, What};
use crate::profile::{GpuOperation, Profile};
use crate::record::instructions::{Instruction, InstructionLog, Row};
use crate::record::series::Failure;
pub use crate::record::stall::Stall;

/// The instruction samples of a profile or of selected kernels, from
/// [`Sampling::instructions`](crate::Sampling::instructions).
///
/// ```no_run
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let profile = profiler_core::Profile::load("run.gpuprof")?;
/// let forward = profile.query().in_range("batch/forward").instructions();
/// println!("{:.0} samples, {:.0} % exact", forward.samples(), 100.0 * forward.exact_share());
/// for line in forward.by_line().iter().take(10) {
///     println!("{:5.1} % {}: {}", 100.0 * line.share, line.place(), line.stalls);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Exact and apportioned samples
/// Samples of CUPTI have neither a time nor a launch. They are read every 100 ms, in slices, and
/// CUPTI decodes them up to 240 ms later. The samples of a function in a slice therefore belong to
/// its launches in this slice and the two or more before, by their GPU time. If all of these launches
/// are selected, or none, the samples are exact. Otherwise their number is a fraction.
/// [Serialised](crate::Sampling::serialized) samples are exact.
#[derive(Debug, Clone, Default)]
pub struct Instructions<'a> {
    all: Vec<SampledInstruction<'a>>,
    exact: f64,
}

/// The samples of an instruction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SampledInstruction<'a> {
    /// The function's symbol.
    pub function: &'a str,
    /// The kernel's name in reports.
    pub kernel: KernelOfSamples<'a>,
    /// The CRC of its cubin, by CUPTI.
    pub cubin: u64,
    /// The offset in bytes from the begin of the function.
    pub offset: u32,
    /// The file's name without its folder, and the line; `None` without a line table.
    pub line: Option<(&'a str, u32)>,
    /// The samples by state.
    pub stalls: Stalls,
}

/// The kernel of samples. `Display` is its name in reports.
#[derive(Debug, Clone, Copy)]
pub struct KernelOfSamples<'a> {
    profile: &'a Profile,
    symbol: &'a str,
    /// `None` if the profile has no kernel of the name.
    names: Option<KernelNames>,
}

impl<'a> KernelOfSamples<'a> {
    /// The mangled name.
    pub fn symbol(&self) -> &'a str {
        self.symbol
    }
}

impl fmt::Display for KernelOfSamples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names {
            Some(names) => f.write_str(&printable(&self.profile.kernel_label(names))),
            None => f.write_str(&printable(self.symbol)),
        }
    }
}

/// The samples of a kernel or of a line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SampledPlace<'a> {
    /// The kernel.
    pub kernel: KernelOfSamples<'a>,
    /// The file and line; `None` for a kernel, and for instructions without a line.
    pub line: Option<(&'a str, u32)>,
    /// The samples by state.
    pub stalls: Stalls,
    /// The share of all samples, 0 to 1.
    pub share: f64,
}

impl SampledPlace<'_> {
    /// `gather.cu:12`, or the kernel without a line.
    pub fn place(&self) -> String {
        match self.line {
            Some((file, line)) => format!("{}:{line}", printable(file)),
            None => self.kernel.to_string(),
        }
    }
}

const STALLS: usize = Stall::ALL.len();

/// Numbers of samples by the state of the warp. Apportioned samples are fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stalls {
    samples: [f64; STALLS],
    not_issued: [f64; STALLS],
}

impl Default for Stalls {
    fn default() -> Self {
        Self { samples: [0.0; STALLS], not_issued: [0.0; STALLS] }
    }
}

impl AddAssign for Stalls {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.samples.iter_mut().zip(other.samples) {
            *sum += more;
        }
        for (sum, more) in self.not_issued.iter_mut().zip(other.not_issued) {
            *sum += more;
        }
    }
}

impl Stalls {
    /// All samples.
    pub fn total(&self) -> f64 {
        self.samples.iter().sum()
    }

    /// The samples in a state.
    pub fn samples(&self, stall: Stall) -> f64 {
        self.samples[stall as usize]
    }

    /// The samples in a state in which no warp of the scheduler issued: the latency was not hidden.
    pub fn not_issued(&self, stall: Stall) -> f64 {
        self.not_issued[stall as usize]
    }

    /// The share of a state in all samples, 0 to 1; 0 without samples.
    pub fn share(&self, stall: Stall) -> f64 {
        let total = self.total();
        if total > 0.0 { self.samples(stall) / total } else { 0.0 }
    }

    /// The states with samples, most samples first.
    pub fn iter(&self) -> impl Iterator<Item = (Stall, f64)> {
        let mut all: Vec<_> =
            Stall::ALL.into_iter().map(|stall| (stall, self.samples(stall))).collect();
        all.retain(|(_, samples)| *samples > 0.0);
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.into_iter()
    }

    /// The reason for most waits; `None` if no sample waited.
    pub fn dominant(&self) -> Option<Stall> {
        self.iter().find(|(stall, _)| !stall.is_ready()).map(|(stall, _)| stall)
    }
}

impl fmt::Display for Stalls {
    /// Up to three states, without those below 1 %: `waits for a branch 61.0 %, issues an
    /// instruction 20.0 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().enumerate().take(3);
        let shown = shown.filter(|(at, (stall, _))| *at == 0 || self.share(*stall) >= 0.01);
        for (at, (stall, _)) in shown {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{stall} {}", percent(self.share(stall)))?;
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Stalls {
    /// Numbers of samples by CUPTI's names.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

/// The account of instruction samples. Recorded, dropped and non-user samples are at most `total`;
/// the others have no stall.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct InstructionCounts<'a> {
    /// All samples of the hardware.
    pub total: u64,
    /// Samples with an instruction and a stall.
    pub recorded: u64,
    /// Samples that the hardware dropped.
    pub dropped: u64,
    /// Samples of kernels that CUPTI has no instructions of.
    pub non_user: u64,
    /// Samples beyond a limit of memory, or of the speed of the disk.
    pub over_limit: u64,
    /// Recorded samples of launches outside the session's windows, apportioned and rounded. They are
    /// in no result; slices outside the windows are in no count.
    pub outside_windows: u64,
    /// Recorded samples for which no launch is known: no kernel of the function's name ran at the
    /// time. They are in no range.
    pub without_launch: u64,
    /// Recorded samples without a source line: their cubin has no line table.
    pub without_line: u64,
    /// Slices at whose end the hardware's buffer was full: later samples are lost.
    pub full_slices: u64,
    /// Readings that CUPTI refused.
    pub failed_reads: u64,
    /// Ends of modules and contexts whose last samples are missing.
    pub missed_ends: u64,
    /// Cubins beyond the limit of memory: their instructions have no lines.
    pub cubins_left_out: u64,
    /// The reasons for which contexts, or all of them, are not sampled.
    pub failures: Vec<&'a Failure>,
}

impl InstructionCounts<'_> {
    /// True if no sample is known to be lost.
    pub fn is_complete(&self) -> bool {
        let lost =
            [self.dropped, self.over_limit, self.full_slices, self.failed_reads, self.missed_ends];
        self.failures.is_empty() && lost == [0; 5]
    }
}

impl fmt::Display for InstructionCounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} instruction samples", self.recorded, self.total)?;
        for (count, what) in [
            (self.non_user, "of kernels without instructions"),
            (self.outside_windows, "of launches outside the session's windows"),
            (self.without_launch, "without a known launch"),
            (self.dropped, "dropped by the hardware"),
            (self.over_limit, "over a limit"),
            (self.full_slices, "times the hardware's buffer was full: use a longer period"),
            (self.failed_reads, "readings failed"),
            (self.missed_ends, "modules or contexts ended before they were read"),
            (self.cubins_left_out, "cubins without lines for lack of memory"),
        ] {
            if count != 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        self.failures.iter().try_for_each(|failure| write!(f, "; not sampled: {failure}"))
    }
}

impl Profile {
    /// All instruction samples, except those of launches outside the session's windows. Empty if the
    /// session did not sample them.
    pub fn instructions(&self) -> Instructions<'_> {
        let names = kernel_names(self);
        let mut sums = Sums::new(self);
        for_each_row(self, |of, row| sums.add(&of, row, of.share_within, &names));
        sums.finish()
    }

    /// A cubin of sampled instructions, by [`SampledInstruction::cubin`]. `None` unless the session
    /// [kept it](crate::Sampling::keep_cubins).
    pub fn cubin(&self, crc: u64) -> Option<&[u8]> {
        let mut cubins = self.store.instructions.iter().flat_map(|(_, log)| &log.cubins);
        cubins.find(|(other, _)| *other == crc).map(|(_, elf)| &**elf)
    }

    /// The account of instruction samples; `None` if the session did not sample them.
    pub fn instruction_counts(&self) -> Option<InstructionCounts<'_>> {
        let logs = &self.store.instructions;
        (!logs.is_empty())
            .then(|| counts(logs.iter().map(|(_, log)| &**log), self.sampled_slices()))
    }
}

fn counts<'a>(
    logs: impl Iterator<Item = &'a InstructionLog>,
    slices: &SampledSlices,
) -> InstructionCounts<'a> {
    let mut counts = InstructionCounts::default();
    let mut outside = 0.0;
    for (at, log) in logs.enumerate() {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        for slice in &log.head.slices {
            add(&mut counts.total, slice.total);
            add(&mut counts.dropped, slice.dropped);
            add(&mut counts.non_user, slice.non_user);
            counts.full_slices += u64::from(slice.is_full);
        }
        for ((_, rows), slice) in log.slices().zip(0..) {
            for row in rows {
                let instruction = log.instructions[row.instruction as usize];
                let samples = u64::from(row.samples);
                add(&mut counts.recorded, samples);
                let launched = slices.kernel(at, instruction.function).is_some_and(|kernel| {
                    let of = SliceOfKernel { log: at, slice, kernel };
                    if row.correlation_id == 0 {
                        outside += f64::from(row.samples) * (1.0 - slices.share_within(of));
                    }
                    row.correlation_id != 0 || slices.time_ns(of) != 0
                });
                add(&mut counts.without_launch, if launched { 0 } else { samples });
                add(&mut counts.without_line, if instruction.line.is_some() { 0 } else { samples });
            }
        }
        let losses = log.head.losses;
        add(&mut counts.over_limit, losses.over_limit);
        add(&mut counts.failed_reads, losses.failed_reads);
        add(&mut counts.missed_ends, losses.missed_ends);
        add(&mut counts.cubins_left_out, losses.cubins);
        let of_contexts = log.head.contexts.iter().filter_map(|context| context.failure.as_ref());
        counts.failures.extend(log.head.failure.iter().chain(of_contexts));
    }
    counts.outside_windows = outside.round() as u64;
    counts
}

impl<'a> Query<'a> {
    /// The instruction samples of the selected kernels. Costs a pass over the operations and one
    /// over the samples.
    pub fn instructions(&self) -> Instructions<'a> {
        Instructions::of_operations(self.profile(), self.iter())
    }

    /// The instruction samples of the selected kernels by a key, such as the node of their range. In
    /// no particular order. Costs as much as [`instructions`](Self::instructions).
    pub fn instructions_by<K: Copy + Eq + Hash>(
        &self,
        key: impl Fn(&GpuOperation<'a>) -> K,
    ) -> impl ExactSizeIterator<Item = (K, Instructions<'a>)> {
        grouped(self.profile(), self.iter(), key).into_iter()
    }
}

/// The GPU time of groups of kernels in slices.
struct Shares<K> {
    times_ns: FxHashMap<SliceOfKernel, Vec<(K, u64)>>,
    /// By process, correlation id and kernel.
    launches: FxHashMap<(u32, u32, NameId), K>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    fn new<'a>(
        profile: &'a Profile,
        operations: impl Iterator<Item = GpuOperation<'a>>,
        key: impl Fn(&GpuOperation<'a>) -> K,
    ) -> Self {
        let (store, slices) = (&profile.store, profile.sampled_slices());
        let has_launches =
            |log: &InstructionLog| log.rows.iter().any(|row| row.correlation_id != 0);
        let has_launches = store.instructions.iter().any(|(_, log)| has_launches(log));
        let mut sums: FxHashMap<(SliceOfKernel, K), u64> = FxHashMap::default();
        let mut launches = FxHashMap::default();
        let mut parts = Vec::new();
        for operation in operations {
            let key = key(&operation);
            slices.slices_of(store, operation.row(), &mut parts);
            for (of, ns) in &parts {
                *sums.entry((*of, key)).or_default() += ns;
            }
            if has_launches && let What::Kernel { names, .. } = &operation.work().what {
                let launch = (operation.process_id(), operation.correlation_id(), names.name);
                launches.insert(launch, key);
            }
        }
        let mut times_ns: FxHashMap<SliceOfKernel, Vec<(K, u64)>> = FxHashMap::default();
        for ((of, key), ns) in sums {
            times_ns.entry(of).or_default().push((key, ns));
        }
        Self { times_ns, launches }
    }
}

/// The samples of groups of kernels.
fn grouped<'a, K: Copy + Eq + Hash>(
    profile: &'a Profile,
    operations: impl Iterator<Item = GpuOperation<'a>>,
    key: impl Fn(&GpuOperation<'a>) -> K,
) -> FxHashMap<K, Instructions<'a>> {
    let logs = &profile.store.instructions;
    if logs.is_empty() {
        return FxHashMap::default();
    }
    let shares = Shares::new(profile, operations, key);
    let slices = profile.sampled_slices();
    let mut groups: FxHashMap<K, Sums<'a>> = FxHashMap::default();
    let names = kernel_names(profile);
    let none = || Sums::new(profile);
    for_each_row(profile, |of, row| {
        let Some(kernel) = of.kernel else { return };
        if row.correlation_id != 0 {
            let launch = (logs[of.log].0, row.correlation_id, kernel);
            if let Some(key) = shares.launches.get(&launch) {
                groups.entry(*key).or_insert_with(none).add(&of, row, 1.0, &names);
            }
            return;
        }
        let slice = SliceOfKernel { log: of.log, slice: of.slice, kernel };
        let all_ns = slices.time_ns(slice);
        for (key, own_ns) in shares.times_ns.get(&slice).into_iter().flatten() {
            let share = if *own_ns < all_ns { *own_ns as f64 / all_ns as f64 } else { 1.0 };
            groups.entry(*key).or_insert_with(none).add(&of, row, share, &names);
        }
    });
    groups.into_iter().map(|(key, sums)| (key, sums.finish())).collect()
}

/// The place of a row.
struct RowPlace<'a> {
    log: usize,
    slice: u32,
    of: &'a InstructionLog,
    instruction: Instruction,
    /// `None` if no kernel has the function's name.
    kernel: Option<NameId>,
    /// The share of launches within the session's windows; 1 without a known launch.
    share_within: f64,
}

fn for_each_row<'a>(profile: &'a Profile, mut with: impl FnMut(RowPlace<'a>, &Row)) {
    let slices = profile.sampled_slices();
    for (log, (_, of)) in profile.store.instructions.iter().enumerate() {
        for ((_, rows), slice) in of.slices().zip(0..) {
            for row in rows {
                let instruction = of.instructions[row.instruction as usize];
                let kernel = slices.kernel(log, instruction.function);
                let share_within = match kernel {
                    Some(kernel) if row.correlation_id == 0 => {
                        slices.share_within(SliceOfKernel { log, slice, kernel })
                    }
                    _ => 1.0,
                };
                with(RowPlace { log, slice, of, instruction, kernel, share_within }, row);
            }
        }
    }
}

/// Samples by instruction.
struct Sums<'a> {
    profile: &'a Profile,
    exact: f64,
    all: Vec<SampledInstruction<'a>>,
    /// By symbol, cubin and offset.
    places: FxHashMap<(&'a str, u64, u32), usize>,
}

impl<'a> Sums<'a> {
    fn new(profile: &'a Profile) -> Self {
        Self { profile, exact: 0.0, all: Vec::new(), places: FxHashMap::default() }
    }

    fn add(
        &mut self,
        at: &RowPlace<'a>,
        row: &Row,
        share: f64,
        names: &FxHashMap<NameId, KernelNames>,
    ) {
        let Instruction { function, offset, line } = at.instruction;
        let function = &at.of.head.functions[function as usize];
        let (symbol, cubin) = (&*function.symbol, function.cubin);
        let place = *self.places.entry((symbol, cubin, offset)).or_insert_with(|| {
            let names = at.kernel.and_then(|kernel| names.get(&kernel).copied());
            let kernel =
                KernelOfSamples { profile: self.profile, symbol: kernel_of(symbol), names };
            let line = line.map(|(file, line)| (&*at.of.head.files[file as usize], line));
            let stalls = Stalls::default();
            self.all.push(SampledInstruction {
                function: symbol,
                kernel,
                cubin,
                offset,
                line,
                stalls,
            });
            self.all.len() - 1
        });
        let stall = at.of.head.stalls[row.stall as usize] as usize;
        let stalls = &mut self.all[place].stalls;
        let samples = f64::from(row.samples) * share;
        stalls.samples[stall] += samples;
        stalls.not_issued[stall] += f64::from(row.not_issued) * share;
        if share >= 1.0 {
            self.exact += samples;
        }
    }

    fn finish(self) -> Instructions<'a> {
        let Self { mut all, exact, .. } = self;
        all.sort_by_key(|one| (one.function, one.cubin, one.offset));
        Instructions { all, exact }
    }
}

impl<'a> Instructions<'a> {
    /// The samples of these kernels.
    pub(crate) fn of_operations(
        profile: &'a Profile,
        operations: impl Iterator<Item = GpuOperation<'a>>,
    ) -> Self {
        grouped(profile, operations, |_| ()).remove(&()).unwrap_or_default()
    }

    getters! {
        /// The instructions with samples, by function and offset.
        as_slice: &[SampledInstruction<'a>] = all;
        /// True without samples.
        is_empty: bool = all.is_empty();
    }

    /// The number of samples.
    pub fn samples(&self) -> f64 {
        self.stalls().total()
    }

    /// The share of samples that are exact, 0 to 1; 1 without samples.
    pub fn exact_share(&self) -> f64 {
        let samples = self.samples();
        if samples > 0.0 { (self.exact / samples).min(1.0) } else { 1.0 }
    }

    /// The samples by state.
    pub fn stalls(&self) -> Stalls {
        let mut sum = Stalls::default();
        self.all.iter().for_each(|one| sum += one.stalls);
        sum
    }

    /// The kernels, most samples first.
    pub fn by_kernel(&self) -> Vec<SampledPlace<'a>> {
        self.by(|one| (one.kernel.symbol, None))
    }

    /// The lines of each kernel, most samples first. Instructions of a kernel without lines are
    /// together.
    pub fn by_line(&self) -> Vec<SampledPlace<'a>> {
        self.by(|one| (one.kernel.symbol, one.line))
    }

    fn by(
        &self,
        key: impl Fn(&SampledInstruction<'a>) -> (&'a str, Option<(&'a str, u32)>),
    ) -> Vec<SampledPlace<'a>> {
        let mut places: BTreeMap<_, SampledPlace<'a>> = BTreeMap::new();
        for one in &self.all {
            let key = key(one);
            let place = places.entry(key).or_insert_with(|| SampledPlace {
                kernel: one.kernel,
                line: key.1,
                stalls: Stalls::default(),
                share: 0.0,
            });
            place.stalls += one.stalls;
        }
        let all = self.samples();
        let mut places: Vec<_> = places.into_values().collect();
        for place in &mut places {
            place.share = if all > 0.0 { place.stalls.total() / all } else { 0.0 };
        }
        places.sort_by(|a, b| b.share.total_cmp(&a.share));
        places
    }
}

/// The names of kernels by their mangled ones.
fn kernel_names(profile: &Profile) -> FxHashMap<NameId, KernelNames> {
    let works = profile.store.works().iter();
    let names = works.filter_map(|work| match work.what {
        What::Kernel { names, .. } => Some((names.name, names)),
        _ => None,
    });
    names.collect()
}
