//! The losses of a profile: records and calls that were lost, irregular or unmatched. All are
//! counted.
//!
//! A profile is complete if it holds everything that the program submitted between start and stop:
//!
//! - no record, call or range was dropped, and none is unreadable;
//! - every record has its call, and every call that submits work has a record;
//! - every GPU operation has timestamps.
//!
//! A range that is open at the stop is a fact, not a loss: its work is attributed up to the stop.
//! Records at the start whose calls were made before the recording began are a fact too, if they
//! are few ([`Account::records_at_start`]).

use std::fmt;
use std::time::Duration;

use cupti::{CallClass, Record};
use profiler_base::units::nanoseconds;

pub use crate::join::account::Account;
use crate::join::account::{CountedOperation, ExpectedRecords, OperationClass};
use crate::join::attribute::Owner;
use crate::record::recording::Losses as RecordedLosses;
use crate::record::series::Series;

/// Completeness and losses of a profile. In a complete one, all losses are 0; other counts are
/// facts.
///
/// ```
/// use profiler_core::Profile;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let profile = Profile::load(file)?;
/// let health = profile.health();
/// println!("{health}");
/// assert!(health.is_complete() && health.accounts.kernels.is_balanced());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// Activity records from CUPTI.
    pub records: u64,
    /// Records and calls by kind of work.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub accounts: Accounts,
    /// Losses: all 0 in a complete profile.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub losses: Losses,
    /// Counts that are not losses.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub facts: Facts,
}

/// Records and calls by kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Accounts {
    /// Kernels: a launch is expected to have one record, a graph launch any number.
    pub kernels: Account,
    /// Copies.
    pub copies: Account,
    /// Memsets.
    pub memsets: Account,
    /// Synchronisations, including waits for events. Queries have such records too; none is
    /// expected.
    pub synchronizations: Account,
}

impl Accounts {
    /// The accounts with their names.
    pub fn named(&self) -> [(&'static str, &Account); 4] {
        [
            ("kernels", &self.kernels),
            ("copies", &self.copies),
            ("memsets", &self.memsets),
            ("synchronisations and waits for events", &self.synchronizations),
        ]
    }

    fn add(&mut self, other: &Self) {
        self.kernels.add(&other.kernels);
        self.copies.add(&other.copies);
        self.memsets.add(&other.memsets);
        self.synchronizations.add(&other.synchronizations);
    }
}

/// Declares counts and times: the aggregation over several processes (`sum` or `largest`, `total` or
/// `longest`), and their name in texts, if any.
macro_rules! counts {
    ($(#[$doc:meta])* $type:ident { $($(#[$field_doc:meta])* $field:ident: $how:ident $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $type {
            $($(#[$field_doc])* pub $field: counts!(@type $how),)+
        }

        impl $type {
            /// The counts that are not 0, with their names in texts; times are in nanoseconds.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let all = [$(($name, counts!(@count $how self.$field))),+].into_iter();
                all.filter(|(name, count)| *count != 0 && !name.is_empty())
            }

            fn add(&mut self, other: &Self) {
                $(self.$field = counts!(@$how self.$field, other.$field);)+
            }
        }
    };
    (@sum $of:expr, $other:expr) => { $of.saturating_add($other) };
    (@largest $of:expr, $other:expr) => { $of.max($other) };
    (@total $of:expr, $other:expr) => { $of.saturating_add($other) };
    (@longest $of:expr, $other:expr) => { $of.max($other) };
    (@type total) => { Duration };
    (@type longest) => { Duration };
    (@type $how:ident) => { u64 };
    (@count total $time:expr) => { nanoseconds($time) };
    (@count longest $time:expr) => { nanoseconds($time) };
    (@count $how:ident $count:expr) => { $count };
}

counts! {
    /// Losses of a profile. In a complete one all are 0.
    Losses {
        /// 1 if the recording was read from a truncated file: all later data is missing. For a run
        /// of several processes, the number of such recordings.
        truncated: sum "truncated recording",
        /// For a run of several processes: recordings that are missing or could not be read at all.
        missing_recordings: sum "recordings missing, unreadable or copies",
        /// Records, calls, ranges and marks that a session did not write to its
        /// [file](crate::Profiler::record_to): the disk was slower than the program, or the file
        /// had its [largest size](crate::ProfilerBuilder::max_file_bytes).
        unwritten_entries: sum "entries not written to the file",
        /// Operations beyond the first of a call that has one. The file has the call's records more
        /// than once.
        repeated_records: sum "repeated records of calls",
        /// Records of a kind or length that this version cannot read.
        unknown_records: sum "records that could not be read",
        /// Entries of the range log that could not be read, or that refer to a missing range.
        unknown_range_entries: sum "range log entries that could not be read",
        /// Bytes that could not be divided into records.
        unreadable_bytes: sum "bytes that could not be read",
        /// GPU operations without timestamps, or with an end before the start: CUPTI ran out of
        /// device buffers, or a stop gave up waiting.
        zero_timestamps: sum "operations without timestamps",
        /// Records dropped by CUPTI, by its own count.
        dropped_by_cupti: sum "records dropped by CUPTI",
        /// Records discarded at the session's limit of buffers, if CUPTI cannot drop them itself.
        refused_records: sum "records over the limit of buffers",
        /// Records discarded at the session's memory limit.
        over_memory_limit: sum "records over the memory limit",
        /// Buffers with unfinished work when a stop gave up waiting for the GPU.
        unfinished_buffers: sum "buffers unfinished at the stop",
        /// The time by which the system's clock, which CUPTI uses, was set during the session. Times
        /// of GPU operations may be wrong by up to this amount.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "clock_step_ns", serialize_with = "profiler_base::statistics::as_ns")
        )]
        clock_step: longest "ns that the system's clock was set by",
        /// Calls that had not returned at the stop.
        open_calls: sum "calls open at the stop",
        /// Ranges, marks and ends of ranges that could not be recorded, and joined contexts that
        /// could not be joined. Causes: a thread that was ending, the profiler's own work on the
        /// thread, or no free number.
        lost_ranges: sum "ranges lost",
        /// Calls with a range, or one of several ranges, that is not in the recording.
        calls_in_unknown_ranges: sum "calls in unknown ranges",
        /// Panics caught in callbacks and observers.
        panics: sum "panics caught",
        /// Calls and graph events that were not logged: their thread was ending, or they were made
        /// within the logging of another call. Their work has no call and no range.
        unlogged_calls: sum "calls that could not be logged",
        /// Activity buffers that CUPTI returned with a different size from the one they were given.
        mismatched_buffers: sum "buffers of another size",
        /// Background threads of the profiler that failed to spawn or panicked. The logs may then
        /// be drained only at snapshots and at the stop, and data being drained at a panic may be
        /// missing.
        failed_threads: sum "background threads failed",
        /// In a capture of another tool: diagnostics that report lost events.
        capture_losses: sum "losses in the capture's diagnostics",
        /// Graph launches traced as one interval whose call is not in the call log.
        whole_graphs_without_call: sum "graph launches traced as a whole without a call",
        /// In a capture of another tool: tables that are views or virtual. Their rows are not read.
        computed_tables: sum "tables of the capture that are views or virtual",
        /// In a capture of another tool: [calls without a record](Facts::calls_without_record) of a
        /// kind (kernels, copies, memsets) without any record in the capture, made while no stream
        /// was captured into a graph.
        calls_without_any_record: sum "calls of a kind without any record",
    }
}

counts! {
    /// Facts about a recording and its program. None is a loss.
    Facts {
        /// GPU operations that appear to start before their call: CUPTI maps the GPU's clock to the
        /// host's with an error that grows to some 10 us in the first seconds of a
        /// process. Attribution and durations do not depend on it.
        before_their_call: sum "",
        /// The largest difference of [`before_their_call`](Self::before_their_call).
        #[cfg_attr(
            feature = "serde",
            serde(rename = "clock_error_ns", serialize_with = "profiler_base::statistics::as_ns")
        )]
        clock_error: longest "",
        /// 1 if the recording is of format 1 or 2, which have no checksums: damage may go
        /// unnoticed. For a run of several processes, the number of such recordings.
        unchecked_recordings: sum "recordings with no checksums (format 1 or 2): damage may go unnoticed; read and save them again",
        /// Requested kinds of records that CUPTI refused. An H200 in a container refused those of
        /// managed memory.
        refused_kinds: sum "kinds of records refused by CUPTI",
        /// In a capture of another tool: processes without events, which the profile excludes.
        silent_processes: sum "other processes without events",
        /// In a snapshot: calls that had not returned, and calls whose records may still arrive,
        /// because the GPU is not done or CUPTI has not delivered them. No account includes them.
        pending_calls: sum "calls pending at the snapshot",
        /// Ranges that had not ended at the stop; they count until then.
        open_ranges: sum "ranges open at the stop",
        /// In a snapshot: ranges that had not ended; they count until then.
        pending_ranges: sum "ranges open at the snapshot",
        /// Calls that returned an error.
        failed_calls: sum "failed calls",
        /// Unused records that were not requested, such as event records, which CUPTI before 12.9
        /// writes along with synchronisations.
        unused_records: sum "records not used",
        /// Calls captured into a graph: no record is expected.
        captured_calls: sum "calls captured into graphs",
        /// GPU operations that were nodes of CUDA graphs.
        graph_operations: sum "operations of graphs",
        /// Graph operations whose node was created in a range of this session. A graph may be
        /// older.
        graph_operations_captured: sum "of them captured in a range",
        /// Graph launches without a record; expected for a graph without kernels, copies and
        /// memsets.
        silent_graph_launches: sum "graph launches without a record",
        /// Calls before the start, in a pause or after the beginning of the stop. All other counts
        /// exclude them and their records.
        calls_outside: sum "calls outside the session",
        /// Records of calls before the session's start or before the retained calls.
        records_before: sum "records of calls before the retained part",
        /// Ranges and marks that were started in a range of another thread which had ended before
        /// the session or before the retained data. They have no outer range.
        orphaned_ranges: sum "ranges whose outer range ended before the retained part",
        /// Calls made in a range of an earlier recording. They are attributed to no range.
        calls_in_earlier_ranges: sum "calls in ranges of earlier recordings",
        /// Contexts and process ranges of earlier recordings that were attached, joined or entered
        /// in this one, which had no effect.
        earlier_contexts: sum "uses of contexts of earlier recordings",
        /// Migrations of managed memory, which no call submits.
        migrations: sum "moves of managed memory",
        /// In a capture of another tool: successful calls without a record that usually have one.
        /// They were captured into a graph or lost their record.
        calls_without_record: sum "calls without a record",
        /// Graph launches traced as one interval each (`GRAPH_TRACE`): their kernels, copies and
        /// memsets have no records.
        whole_graphs: sum "graph launches traced as a whole",
        /// In a capture of another tool: warnings and errors among its own diagnostics.
        capture_warnings: sum "warnings of the capture",
        /// In a summary: ranges, process ranges, marks and kernels beyond the [upper
        /// bound](crate::ProfilerBuilder::summary_rows), summed as `(other)`. Totals include them.
        summed_as_other: sum "ranges, marks and kernels summed up as (other)",
        /// Lanes dropped at a thread's [upper bound](crate::Context::hand_over). Later launches in
        /// them have no range. Lanes that are not used again lose nothing.
        forgotten_lanes: sum "lanes forgotten",
        /// With a `ProfilerLayer`: call sites of spans that were reached, before or since it was
        /// installed, and created none for it. Install the layer before a model is built, and let
        /// filters pass its spans. Their work is in the outer ranges.
        unused_span_sites: sum "call sites of spans made none: install the layer before the model is built, and let filters pass its spans",
        /// With a `ProfilerLayer`: entries of spans that were created before it joined their
        /// subscriber; their ranges lack fields and numbers.
        unknown_span_entries: sum "entries of spans that are older than the layer",
        /// With a `ProfilerLayer`: levels of spans, of five, that filters of the process disabled
        /// at the end.
        disabled_span_levels: largest "of 5 levels of spans disabled by filters",
        /// 1 with a `ProfilerLayer` for which no span was created: a model was built before the
        /// layer was installed, or there are no spans.
        layers_without_spans: sum "layer for which no span was created: if the model has spans, install it before the model is built",
        /// In a profile of several recordings without addresses of devices: devices that were
        /// treated as the same GPU because the processes had the same ordinal for them.
        devices_by_ordinal: largest "devices of several processes known by their ordinal alone",
        /// In a profile of several captures of another tool: captures whose times were aligned by
        /// the calendar time at their starts, with an unknown error.
        clocks_by_utc: largest "captures aligned by their calendar time at the start, with an unknown error",
        /// GPU operations outside all ranges with an [inferred
        /// range](crate::Profile::with_inferred_ranges).
        inferred_operations: sum "operations of inferred ranges",
        /// Calls outside all ranges with an inferred range.
        inferred_calls: sum "calls of inferred ranges",
        /// Calls outside all ranges during which several threads waited in a range: nothing is
        /// inferred.
        undecided_calls: sum "calls outside ranges while several threads waited in one",
        /// Samplers that failed to start or ended early:
        /// [`Series::failure`](crate::series::Series::failure). This and the three counts below
        /// concern samples.
        failed_samplers: sum "samplers failed",
        /// Samples replaced by newer ones.
        dropped_samples: sum "samples dropped",
        /// Gaps between samples of a device.
        sample_gaps: sum "gaps between samples",
        /// Sample buffer overflows of a device.
        sample_overflows: sum "times no room for samples",
        /// Activity buffers that CUPTI requested.
        buffers: sum "",
        /// Buffers that were allocated within a CUDA call of the program.
        pool_misses: sum "",
        /// Time in CUPTI's own overhead records, including flushes and buffer requests.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "overhead_ns", serialize_with = "profiler_base::statistics::as_ns")
        )]
        overhead: total "",
    }
}

impl Health {
    /// Adds an operation to the account of its class.
    #[inline]
    pub(crate) fn count_operation(&mut self, operation: &CountedOperation) {
        self.losses.zero_timestamps += u64::from(!operation.has_times);
        self.facts.graph_operations += u64::from(operation.is_node);
        self.facts.graph_operations_captured += u64::from(operation.is_captured);
        let Some(account) = self.account_mut(operation.class) else {
            self.facts.whole_graphs += 1;
            self.losses.whole_graphs_without_call += u64::from(!operation.has_call);
            return;
        };
        account.records += 1;
        account.matched_records += u64::from(operation.has_call);
    }

    /// The account of a class; `None` for graphs traced as a whole, which have their own counts.
    #[inline]
    pub(crate) fn account_mut(&mut self, class: OperationClass) -> Option<&mut Account> {
        match class {
            OperationClass::Kernel => Some(&mut self.accounts.kernels),
            OperationClass::Copy => Some(&mut self.accounts.copies),
            OperationClass::Memset => Some(&mut self.accounts.memsets),
            OperationClass::WholeGraph => None,
        }
    }

    /// Adds a synchronisation to the account.
    #[inline]
    pub(crate) fn count_synchronization(&mut self, has_call: bool) {
        self.accounts.synchronizations.records += 1;
        self.accounts.synchronizations.matched_records += u64::from(has_call);
    }

    /// Counts a record that the caller does not use itself.
    pub(crate) fn count_other(&mut self, record: &Record<'_>) {
        match record {
            Record::Overhead(overhead) => {
                let ns = overhead.span.end_ns.saturating_sub(overhead.span.start_ns);
                let time = Duration::from_nanos(ns);
                self.facts.overhead = self.facts.overhead.saturating_add(time);
            }
            Record::Unreadable { bytes } => {
                self.records -= 1;
                self.losses.unreadable_bytes += bytes.len() as u64;
            }
            Record::Unknown { kind, .. } if !kind.is_without_type() => {
                self.losses.unknown_records += 1;
            }
            _ => self.facts.unused_records += 1,
        }
    }

    /// Counts a call whose range is missing or belongs to an earlier recording.
    #[inline]
    pub(crate) fn count_owner<T>(&mut self, owner: &Owner<T>) {
        match owner {
            Owner::OutsideRanges => {}
            Owner::EarlierRecording => self.facts.calls_in_earlier_ranges += 1,
            Owner::Unknown | Owner::Range { is_partial: true, .. } => {
                self.losses.calls_in_unknown_ranges += 1;
            }
            Owner::Range { .. } => {}
        }
    }

    /// Adds calls of one kind to the account: with the expected records, without them, or pending.
    pub(crate) fn count_calls(
        &mut self,
        count: u64,
        expected: &ExpectedRecords,
        operations: bool,
        synchronizations: bool,
        pending_from_ns: Option<u64>,
    ) {
        let Some(end_ns) = expected.end_ns else {
            let open = if pending_from_ns.is_some() {
                &mut self.facts.pending_calls
            } else {
                &mut self.losses.open_calls
            };
            *open += count;
            return;
        };
        let is_pending = pending_from_ns.is_some_and(|from| end_ns >= from);
        if expected.is_failure {
            self.facts.failed_calls += count;
            return;
        }
        if expected.captured {
            self.facts.captured_calls += count;
            return;
        }
        let (account, has_record) = match expected.class {
            CallClass::KernelLaunch => (&mut self.accounts.kernels, operations),
            CallClass::Memcpy => (&mut self.accounts.copies, operations),
            CallClass::Memset => (&mut self.accounts.memsets, operations),
            CallClass::Synchronize | CallClass::WaitEvent => {
                (&mut self.accounts.synchronizations, synchronizations)
            }
            CallClass::GraphLaunch => {
                if is_pending {
                    // The expected number of records is not known.
                    self.facts.pending_calls += count;
                } else {
                    self.facts.silent_graph_launches += count * u64::from(!operations);
                }
                return;
            }
            _ => return,
        };
        if expected.empty && !has_record {
            return;
        }
        if is_pending && !has_record {
            self.facts.pending_calls += count;
            return;
        }
        account.calls += count;
        account.matched_calls += count * u64::from(has_record);
    }

    /// Adds the losses of the collectors.
    pub(crate) fn add_losses(&mut self, losses: &RecordedLosses) {
        for (sum, count) in [
            (&mut self.losses.unreadable_bytes, losses.unreadable_bytes),
            (&mut self.losses.unknown_records, losses.irregular),
            (&mut self.losses.dropped_by_cupti, losses.dropped_by_cupti),
            (&mut self.losses.over_memory_limit, losses.over_memory_limit),
            (&mut self.losses.unfinished_buffers, losses.unfinished_buffers),
            (&mut self.losses.refused_records, losses.refused_records),
            (&mut self.losses.panics, losses.panics),
            (&mut self.losses.unlogged_calls, losses.unlogged_calls),
            (&mut self.losses.mismatched_buffers, losses.mismatched_buffers),
            (&mut self.facts.buffers, losses.buffers),
            (&mut self.facts.pool_misses, losses.pool_misses),
            (&mut self.losses.lost_ranges, losses.ranges),
            (&mut self.facts.earlier_contexts, losses.earlier_contexts),
            (&mut self.losses.failed_threads, losses.failed_threads),
            (&mut self.facts.forgotten_lanes, losses.forgotten_lanes),
            (&mut self.facts.unused_span_sites, losses.unused_span_sites),
            (&mut self.facts.unknown_span_entries, losses.unknown_span_entries),
            (&mut self.facts.disabled_span_levels, losses.disabled_span_levels),
            (&mut self.facts.layers_without_spans, losses.layers_without_spans),
            (&mut self.losses.unwritten_entries, losses.unwritten_entries),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// Sets the losses of the range log since the recording began.
    pub(crate) fn set_range_losses(&mut self, losses: &RecordedLosses) {
        self.losses.lost_ranges = losses.ranges;
        self.facts.earlier_contexts = losses.earlier_contexts;
    }

    /// Adds the counts of another process.
    pub(crate) fn add(&mut self, other: &Self) {
        self.records = self.records.saturating_add(other.records);
        self.accounts.add(&other.accounts);
        self.losses.add(&other.losses);
        self.facts.add(&other.facts);
    }

    /// Adds the losses of a sampler.
    pub(crate) fn add_series(&mut self, series: &Series) {
        self.facts.failed_samplers += u64::from(series.failure().is_some());
        // A damaged file may contain any number.
        for (sum, count) in [
            (&mut self.facts.dropped_samples, series.dropped()),
            (&mut self.facts.sample_gaps, series.gaps().0),
            (&mut self.facts.sample_overflows, series.overflows()),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    fn losses_in_words(&self) -> String {
        let losses = self.losses.named().map(|(name, count)| format!("{count} {name}"));
        losses.collect::<Vec<_>>().join(", ")
    }

    /// Lists unbalanced accounts and losses in one line. Empty if complete.
    pub fn missing_in_words(&self) -> String {
        let unbalanced =
            self.accounts.named().into_iter().filter(|(_, account)| !account.is_balanced());
        let unbalanced = unbalanced.map(|(name, account)| format!("{name} {account}"));
        let losses = Some(self.losses_in_words()).filter(|losses| !losses.is_empty());
        unbalanced.chain(losses).collect::<Vec<_>>().join(", ")
    }

    /// True if nothing was lost: every record was read and has its call, every call that submits
    /// work has a record, and all operations have timestamps. [Open ranges](Facts::open_ranges),
    /// [pending](Facts::pending_calls) calls of a snapshot and a few [records at the
    /// start](Account::records_at_start) are facts, not losses.
    pub fn is_complete(&self) -> bool {
        self.losses.named().next().is_none()
            && self.accounts.named().iter().all(|(_, account)| account.is_balanced())
    }

    /// The share of records and calls, 0 to 1, that are unmatched or were open at the stop; 0 for a
    /// complete profile. `None` if anything else was lost: its share of the GPU time is not known.
    pub fn unmatched_share(&self) -> Option<f64> {
        if self.is_complete() {
            return Some(0.0);
        }
        // Calls open at the stop are the only loss counted here.
        let has_others = self.losses.named().count() > usize::from(self.losses.open_calls != 0);
        let accounts = self.accounts.named();
        let unmatched = accounts.iter().map(|(_, account)| account.unmatched());
        let unmatched = unmatched.fold(self.losses.open_calls, u64::saturating_add);
        let all = accounts.iter().map(|(_, account)| account.records.max(account.calls));
        let all = all.fold(self.losses.open_calls, u64::saturating_add);
        (!has_others).then(|| unmatched as f64 / all.max(1) as f64)
    }

    /// Asserts in tests that nothing was lost.
    ///
    /// # Panics
    /// With this health as text, if something was lost.
    #[track_caller]
    pub fn assert_complete(&self) {
        assert!(self.is_complete(), "the profile is not complete: {self}");
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_complete() { "complete" } else { "INCOMPLETE" };
        write!(f, "{state}; {} records; matched to their calls: ", self.records)?;
        for (i, (name, account)) in self.accounts.named().into_iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {account}")?;
        }
        match self.losses_in_words() {
            losses if losses.is_empty() => write!(f, "; nothing dropped, no zero timestamp")?,
            losses => write!(f, "; losses: {losses}")?,
        }
        if self.facts.before_their_call != 0 {
            let most = nanoseconds(self.facts.clock_error) as f64 / 1e3;
            write!(
                f,
                "; {} operations seem to start up to {most:.1} us before their call",
                self.facts.before_their_call
            )?;
        }
        for (name, count) in self.facts.named() {
            write!(f, "; {count} {name}")?;
        }
        Ok(())
    }
}
