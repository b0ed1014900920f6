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
//! Records at the start whose calls were made before the recording began are a fact too, as long as
//! they are few ([`Account::records_at_start`]).

use std::fmt;

use cupti::{CallClass, Record};

pub use crate::join::account::Account;
use crate::join::account::{CountedOperation, ExpectedRecords, OperationClass};
use crate::join::attribute::Owner;
use crate::record::recording::Losses;
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
/// assert!(health.is_complete() && health.kernels.is_balanced());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// Activity records from CUPTI.
    pub records: u64,
    /// Kernels: a launch is expected to have one record, a graph launch any number.
    pub kernels: Account,
    /// Copies.
    pub copies: Account,
    /// Memsets.
    pub memsets: Account,
    /// Synchronisations, waits for events among them. Queries have such records too; none is
    /// expected.
    pub synchronizations: Account,
    /// 1 if the recording was read from a file that ends before it does: all that came later is
    /// missing. Of a run of several processes, the number of such recordings.
    pub truncated: u64,
    /// 1 if the recording is of format 1 or 2, which have no checksums: damage may go unnoticed. Of a
    /// run of several processes, the number of such recordings. A fact, not a loss.
    pub unchecked_recordings: u64,
    /// In a capture of another tool: processes without events, which the profile leaves out. A fact,
    /// not a loss.
    pub silent_processes: u64,
    /// Of a run of several processes: recordings that are missing or could not be read at all.
    pub missing_recordings: u64,
    /// Operations beyond the first of a call that has one. The call's records are in the file more
    /// than once.
    pub repeated_records: u64,
    /// Records of a kind or length that this version cannot read.
    pub unknown_records: u64,
    /// Entries of the range log that could not be read, or that refer to a range which is missing.
    pub unknown_range_entries: u64,
    /// Bytes that could not be divided into records.
    pub unreadable_bytes: u64,
    /// GPU operations without timestamps, or with an end before the start: CUPTI ran out of device
    /// buffers, or a stop gave up waiting.
    pub zero_timestamps: u64,
    /// Records dropped by CUPTI, by its own count.
    pub dropped_by_cupti: u64,
    /// Records discarded at the session's limit of buffers, where CUPTI cannot drop them itself.
    pub refused_records: u64,
    /// Records discarded at the session's memory limit.
    pub over_memory_limit: u64,
    /// Buffers with unfinished work when a stop gave up waiting for the GPU.
    pub unfinished_buffers: u64,
    /// Nanoseconds by which the system's clock, which CUPTI uses, was set during the session. Times
    /// of GPU operations may be wrong by up to this.
    pub clock_step_ns: u64,
    /// Calls that had not returned at the stop.
    pub open_calls: u64,
    /// Ranges that had not ended at the stop; they count until then. A fact, not a loss.
    pub open_ranges: u64,
    /// Ranges, marks and ends of ranges that could not be recorded, and joined contexts that could
    /// not be joined: on a thread that was ending, within the profiler's own work on the thread, or
    /// without a free number.
    pub lost_ranges: u64,
    /// Ranges and marks that were started in a range of another thread which had ended before the
    /// session or before the kept data. They have no outer range. A fact, not a loss.
    pub orphaned_ranges: u64,
    /// Background threads of the profiler that failed to spawn or panicked. The logs may then be
    /// drained only at snapshots and at the stop, and data being drained at a panic may be missing.
    pub failed_threads: u64,
    /// Calls with a range, or one of several ranges, that is not in the recording.
    pub calls_in_unknown_ranges: u64,
    /// Calls made in a range of an earlier recording. They are attributed to no range. A fact, not
    /// a loss.
    pub calls_in_earlier_ranges: u64,
    /// Contexts and process ranges of earlier recordings that were attached, joined or entered in
    /// this one, which had no effect. A fact, not a loss.
    pub earlier_contexts: u64,
    /// Graph launches without a record; expected for a graph without kernels, copies and memsets.
    pub silent_graph_launches: u64,
    /// Panics caught in callbacks and observers.
    pub panics: u64,
    /// Panics caught in the program's own handler of callbacks. A fact about the program, not a
    /// loss.
    pub handler_panics: u64,
    /// Calls and graph events that were not logged: their thread was ending, or they were made
    /// within the logging of another call. Their work has no call and no range.
    pub unlogged_calls: u64,
    /// Callbacks that the program's own handler caused itself and therefore did not receive. A fact
    /// about the program, not a loss.
    pub missed_callbacks: u64,
    /// Activity buffers that CUPTI returned with another size than it was given.
    pub mismatched_buffers: u64,
    /// Calls before the start, in a pause or after the beginning of the stop. They and their
    /// records are left out of everything else.
    pub calls_outside: u64,
    /// Records of calls before the session's start or before the kept calls. A fact, not a loss.
    pub records_before: u64,
    /// Unrequested records that are not used, such as event records, which CUPTI before 12.9 writes
    /// along with synchronisations. A fact, not a loss.
    pub unused_records: u64,
    /// Calls that returned an error. A fact about the program, not a loss.
    pub failed_calls: u64,
    /// In a snapshot: calls that had not returned, and calls whose records may still arrive,
    /// because the GPU is not done or CUPTI has not delivered them. They are in no account. A fact,
    /// not a loss.
    pub pending_calls: u64,
    /// In a snapshot: ranges that had not ended; they count until then. A fact, not a loss.
    pub pending_ranges: u64,
    /// Calls captured into a graph: no record is expected. A fact, not a loss.
    pub captured_calls: u64,
    /// GPU operations that were nodes of CUDA graphs. A fact, not a loss.
    pub graph_operations: u64,
    /// Graph operations whose node was created in a range of this session. A fact: a graph may be
    /// older.
    pub graph_operations_captured: u64,
    /// GPU operations that seem to start before their call: CUPTI maps the GPU's clock to the
    /// host's with an error that grows to tens of microseconds in the first seconds of a process. A
    /// fact, not a loss: attribution and durations do not depend on it.
    pub before_their_call: u64,
    /// The largest such difference, in nanoseconds.
    pub clock_error_ns: u64,
    /// Activity buffers that CUPTI requested. A fact, not a loss.
    pub buffers: u64,
    /// Buffers that were allocated within a CUDA call of the program. A fact, not a loss.
    pub pool_misses: u64,
    /// Time in CUPTI's own overhead records, including flushes and buffer requests, in nanoseconds.
    /// A fact, not a loss.
    pub overhead_ns: u64,
    /// Migrations of managed memory, which no call submits. A fact, not a loss.
    pub migrations: u64,
    /// In a capture of another tool: successful calls without a record that usually have one. They
    /// were captured into a graph or lost their record. A fact, not a loss.
    pub calls_without_record: u64,
    /// Graph launches traced as one interval each (`GRAPH_TRACE`): their kernels, copies and
    /// memsets have no records. A fact, not a loss.
    pub whole_graphs: u64,
    /// Graph launches traced as one interval whose call is not in the call log.
    pub whole_graphs_without_call: u64,
    /// In a capture of another tool: warnings and errors among its own diagnostics. A fact, not a
    /// loss.
    pub capture_warnings: u64,
    /// In a capture of another tool: diagnostics that report lost events.
    pub capture_losses: u64,
    /// In a summary: ranges, process ranges, marks and kernels beyond the [upper
    /// bound](crate::ProfilerBuilder::summary_rows), summed as `(other)`. A fact: totals have them.
    pub summed_as_other: u64,
    /// Records, calls, ranges and marks that a session did not write to its
    /// [file](crate::Profiler::record_to): the disk was slower than the program, or the file had its
    /// [largest size](crate::ProfilerBuilder::max_file_bytes).
    pub unwritten_entries: u64,
    /// Lanes dropped at a thread's [upper bound](crate::Context::hand_over). Later launches in them
    /// have no range. A fact: lanes that are not used again lose nothing.
    pub forgotten_lanes: u64,
    /// With a `ProfilerLayer`: call sites of spans that were reached, before or since it was
    /// installed, and created none for it. Install the layer before a model is built, and let
    /// filters pass its spans. A fact, not a loss: their work is in the outer ranges.
    pub unused_span_sites: u64,
    /// With a `ProfilerLayer`: entries of spans that were created before it joined their
    /// subscriber; their ranges lack fields and numbers. A fact, not a loss.
    pub unknown_span_entries: u64,
    /// 1 with a `ProfilerLayer` for which no span was created: a model was built before the layer
    /// was installed, or there are no spans. A fact, not a loss.
    pub layers_without_spans: u64,
    /// With a `ProfilerLayer`: levels of spans, of five, that filters of the process disabled at
    /// the end. A fact, not a loss.
    pub disabled_span_levels: u64,
    /// In a capture of another tool: tables that are views or virtual. Their rows are not read.
    pub computed_tables: u64,
    /// In a capture of another tool: [calls without a record](Self::calls_without_record) of a kind
    /// (kernels, copies, memsets) without any record in the capture, made while no stream was
    /// captured into a graph.
    pub calls_without_any_record: u64,
    /// In a profile of several recordings without addresses of devices: devices that were taken to be
    /// the same GPU because the processes had the same ordinal for them. A fact, not a loss.
    pub devices_by_ordinal: u64,
    /// GPU operations outside all ranges with an [inferred
    /// range](crate::Profile::with_inferred_ranges). This and the two below are facts, not losses.
    pub inferred_operations: u64,
    /// Calls outside all ranges with an inferred range.
    pub inferred_calls: u64,
    /// Calls outside all ranges during which several threads waited in a range: nothing is inferred.
    pub undecided_calls: u64,
    /// Samplers that failed to start or ended early:
    /// [`Series::failure`](crate::series::Series::failure). This and the counts below concern
    /// samples, and are no loss of work.
    pub failed_samplers: u64,
    /// Samples replaced by newer ones.
    pub dropped_samples: u64,
    /// Gaps between samples of a device.
    pub sample_gaps: u64,
    /// Sample buffer overflows of a device.
    pub sample_overflows: u64,
}

impl Health {
    /// Adds an operation to the account of its class.
    #[inline]
    pub(crate) fn count_operation(&mut self, operation: &CountedOperation) {
        self.zero_timestamps += u64::from(!operation.has_times);
        self.graph_operations += u64::from(operation.is_node);
        self.graph_operations_captured += u64::from(operation.is_captured);
        let Some(account) = self.account_mut(operation.class) else {
            self.whole_graphs += 1;
            self.whole_graphs_without_call += u64::from(!operation.has_call);
            return;
        };
        account.records += 1;
        account.matched_records += u64::from(operation.has_call);
    }

    /// The account of a class; `None` for graphs traced as a whole, which have counts of their own.
    #[inline]
    pub(crate) fn account_mut(&mut self, class: OperationClass) -> Option<&mut Account> {
        match class {
            OperationClass::Kernel => Some(&mut self.kernels),
            OperationClass::Copy => Some(&mut self.copies),
            OperationClass::Memset => Some(&mut self.memsets),
            OperationClass::WholeGraph => None,
        }
    }

    /// Adds a synchronisation to the account.
    #[inline]
    pub(crate) fn count_synchronization(&mut self, has_call: bool) {
        self.synchronizations.records += 1;
        self.synchronizations.matched_records += u64::from(has_call);
    }

    /// Counts a record that the caller does not use itself.
    pub(crate) fn count_other(&mut self, record: &Record<'_>) {
        match record {
            Record::Overhead(overhead) => {
                let ns = overhead.span.end_ns.saturating_sub(overhead.span.start_ns);
                self.overhead_ns = self.overhead_ns.saturating_add(ns);
            }
            Record::Unreadable { bytes } => {
                self.records -= 1;
                self.unreadable_bytes += bytes.len() as u64;
            }
            Record::Unknown { .. } => self.unknown_records += 1,
            _ => self.unused_records += 1,
        }
    }

    /// Counts a call whose range is missing or of an earlier recording.
    #[inline]
    pub(crate) fn count_owner<T>(&mut self, owner: &Owner<T>) {
        match owner {
            Owner::OutsideRanges => {}
            Owner::EarlierRecording => self.calls_in_earlier_ranges += 1,
            Owner::Unknown | Owner::Range { is_partial: true, .. } => {
                self.calls_in_unknown_ranges += 1;
            }
            Owner::Range { .. } => {}
        }
    }

    /// Adds calls of one kind to the account: whether they have the expected records, or may still
    /// get them.
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
                &mut self.pending_calls
            } else {
                &mut self.open_calls
            };
            *open += count;
            return;
        };
        let is_pending = pending_from_ns.is_some_and(|from| end_ns >= from);
        if expected.is_failure {
            self.failed_calls += count;
            return;
        }
        if expected.captured {
            self.captured_calls += count;
            return;
        }
        let (account, has_record) = match expected.class {
            CallClass::KernelLaunch => (&mut self.kernels, operations),
            CallClass::Memcpy => (&mut self.copies, operations),
            CallClass::Memset => (&mut self.memsets, operations),
            CallClass::Synchronize | CallClass::WaitEvent => {
                (&mut self.synchronizations, synchronizations)
            }
            CallClass::GraphLaunch => {
                if is_pending {
                    // The expected number of records is not known.
                    self.pending_calls += count;
                } else {
                    self.silent_graph_launches += count * u64::from(!operations);
                }
                return;
            }
            _ => return,
        };
        if expected.empty && !has_record {
            return;
        }
        if is_pending && !has_record {
            self.pending_calls += count;
            return;
        }
        account.calls += count;
        account.matched_calls += count * u64::from(has_record);
    }

    /// Adds the losses of the collectors.
    pub(crate) fn add_losses(&mut self, losses: &Losses) {
        for (sum, count) in [
            (&mut self.unreadable_bytes, losses.unreadable_bytes),
            (&mut self.unknown_records, losses.irregular),
            (&mut self.dropped_by_cupti, losses.dropped_by_cupti),
            (&mut self.over_memory_limit, losses.over_memory_limit),
            (&mut self.unfinished_buffers, losses.unfinished_buffers),
            (&mut self.refused_records, losses.refused_records),
            (&mut self.panics, losses.panics),
            (&mut self.handler_panics, losses.handler_panics),
            (&mut self.unlogged_calls, losses.unlogged_calls),
            (&mut self.missed_callbacks, losses.missed_callbacks),
            (&mut self.mismatched_buffers, losses.mismatched_buffers),
            (&mut self.buffers, losses.buffers),
            (&mut self.pool_misses, losses.pool_misses),
            (&mut self.lost_ranges, losses.ranges),
            (&mut self.earlier_contexts, losses.earlier_contexts),
            (&mut self.failed_threads, losses.failed_threads),
            (&mut self.forgotten_lanes, losses.forgotten_lanes),
            (&mut self.unused_span_sites, losses.unused_span_sites),
            (&mut self.unknown_span_entries, losses.unknown_span_entries),
            (&mut self.disabled_span_levels, losses.disabled_span_levels),
            (&mut self.layers_without_spans, losses.layers_without_spans),
            (&mut self.unwritten_entries, losses.unwritten_entries),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// Sets the losses of the range log since the recording began.
    pub(crate) fn set_range_losses(&mut self, losses: &Losses) {
        self.lost_ranges = losses.ranges;
        self.earlier_contexts = losses.earlier_contexts;
    }

    /// Adds the counts of another process.
    pub(crate) fn add(&mut self, other: &Self) {
        macro_rules! add {
            (accounts: $($account:ident)+; largest: $($largest:ident)+; sums: $($count:ident)+) => {
                // Names every field, so that none is forgotten.
                let Self { $($account,)+ $($largest,)+ $($count,)+ } = other;
                $(self.$account.add($account);)+
                $(self.$largest = self.$largest.max(*$largest);)+
                $(self.$count = self.$count.saturating_add(*$count);)+
            };
        }
        add! {
            accounts: kernels copies memsets synchronizations;
            largest: clock_step_ns clock_error_ns devices_by_ordinal disabled_span_levels;
            sums:
                records truncated unchecked_recordings silent_processes missing_recordings repeated_records unknown_records
                unknown_range_entries unreadable_bytes zero_timestamps dropped_by_cupti
                refused_records over_memory_limit unfinished_buffers open_calls open_ranges
                lost_ranges orphaned_ranges failed_threads calls_in_unknown_ranges
                calls_in_earlier_ranges earlier_contexts silent_graph_launches panics
                handler_panics unlogged_calls missed_callbacks mismatched_buffers calls_outside
                records_before unused_records failed_calls pending_calls pending_ranges
                captured_calls graph_operations graph_operations_captured before_their_call buffers
                pool_misses overhead_ns migrations calls_without_record whole_graphs
                whole_graphs_without_call capture_warnings capture_losses summed_as_other
                forgotten_lanes inferred_operations inferred_calls undecided_calls computed_tables
                calls_without_any_record failed_samplers dropped_samples sample_gaps sample_overflows
                unwritten_entries
                unused_span_sites unknown_span_entries layers_without_spans
        }
    }

    /// Adds the losses of a sampler.
    pub(crate) fn add_series(&mut self, series: &Series) {
        self.failed_samplers += u64::from(series.failure().is_some());
        // A damaged file may hold any number.
        for (sum, count) in [
            (&mut self.dropped_samples, series.dropped()),
            (&mut self.sample_gaps, series.gaps().0),
            (&mut self.sample_overflows, series.overflows()),
        ] {
            *sum = sum.saturating_add(count);
        }
    }

    /// The losses, by name.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("truncated recording", self.truncated),
            ("recordings missing, unreadable or copies", self.missing_recordings),
            ("entries not written to the file", self.unwritten_entries),
            ("repeated records of calls", self.repeated_records),
            ("records that could not be read", self.unknown_records),
            ("range log entries that could not be read", self.unknown_range_entries),
            ("bytes that could not be read", self.unreadable_bytes),
            ("operations without timestamps", self.zero_timestamps),
            ("records dropped by CUPTI", self.dropped_by_cupti),
            ("records over the limit of buffers", self.refused_records),
            ("records over the memory limit", self.over_memory_limit),
            ("buffers unfinished at the stop", self.unfinished_buffers),
            ("ns that the system's clock was set by", self.clock_step_ns),
            ("calls open at the stop", self.open_calls),
            ("ranges lost", self.lost_ranges),
            ("calls in unknown ranges", self.calls_in_unknown_ranges),
            ("panics caught", self.panics),
            ("calls that could not be logged", self.unlogged_calls),
            ("buffers of another size", self.mismatched_buffers),
            ("background threads failed", self.failed_threads),
            ("losses in the capture's diagnostics", self.capture_losses),
            ("graph launches traced as a whole without a call", self.whole_graphs_without_call),
            ("tables of the capture that are views or virtual", self.computed_tables),
            ("calls of a kind without any record", self.calls_without_any_record),
        ]
        .into_iter()
        .filter(|(_, count)| *count != 0)
    }

    fn losses_in_words(&self) -> String {
        let losses = self.losses().map(|(name, count)| format!("{count} {name}"));
        losses.collect::<Vec<_>>().join(", ")
    }

    /// What is missing in one line: unbalanced accounts and losses. Empty if complete.
    pub fn missing_in_words(&self) -> String {
        let unbalanced = self.accounts().into_iter().filter(|(_, account)| !account.is_balanced());
        let unbalanced = unbalanced.map(|(name, account)| format!("{name} {account}"));
        let losses = Some(self.losses_in_words()).filter(|losses| !losses.is_empty());
        unbalanced.chain(losses).collect::<Vec<_>>().join(", ")
    }

    /// The accounts of each kind of record, with its name.
    pub fn accounts(&self) -> [(&'static str, &Account); 4] {
        [
            ("kernels", &self.kernels),
            ("copies", &self.copies),
            ("memsets", &self.memsets),
            ("synchronisations and waits for events", &self.synchronizations),
        ]
    }

    /// True if nothing was lost: every record was read and has its call, every call that submits
    /// work has a record, and all operations have timestamps. [Open ranges](Self::open_ranges),
    /// [pending](Self::pending_calls) calls of a snapshot and a few [records at the
    /// start](Account::records_at_start) are facts, not losses.
    pub fn is_complete(&self) -> bool {
        self.losses().next().is_none()
            && self.accounts().iter().all(|(_, account)| account.is_balanced())
    }

    /// The share of records and calls, 0 to 1, that are unmatched or were open at the stop; 0 for a
    /// complete profile. `None` if anything else was lost: its share of the GPU time is not known.
    pub fn unmatched_share(&self) -> Option<f64> {
        if self.is_complete() {
            return Some(0.0);
        }
        // Calls open at the stop are the only loss counted here.
        let has_others = self.losses().count() > usize::from(self.open_calls != 0);
        let accounts = self.accounts();
        let unmatched = accounts.iter().map(|(_, account)| account.unmatched());
        let unmatched = unmatched.fold(self.open_calls, u64::saturating_add);
        let all = accounts.iter().map(|(_, account)| account.records.max(account.calls));
        let all = all.fold(self.open_calls, u64::saturating_add);
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
        for (i, (name, account)) in self.accounts().into_iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {account}")?;
        }
        match self.losses_in_words() {
            losses if losses.is_empty() => write!(f, "; nothing dropped, no zero timestamp")?,
            losses => write!(f, "; lost or odd: {losses}")?,
        }
        if self.before_their_call != 0 {
            let most = self.clock_error_ns as f64 / 1e3;
            write!(
                f,
                "; {} operations seem to start up to {most:.1} us before their call",
                self.before_their_call
            )?;
        }
        for (name, count) in [
            (
                "recordings with no checksums (format 1 or 2): damage may go unnoticed; read and save them again",
                self.unchecked_recordings,
            ),
            ("other processes without events", self.silent_processes),
            ("calls pending at the snapshot", self.pending_calls),
            ("ranges open at the stop", self.open_ranges),
            ("ranges open at the snapshot", self.pending_ranges),
            ("failed calls", self.failed_calls),
            ("records not used", self.unused_records),
            ("calls captured into graphs", self.captured_calls),
            ("operations of graphs", self.graph_operations),
            ("of them captured in a range", self.graph_operations_captured),
            ("graph launches without a record", self.silent_graph_launches),
            ("calls outside the session", self.calls_outside),
            ("records of calls before those kept", self.records_before),
            ("ranges whose outer range ended before those kept", self.orphaned_ranges),
            ("panics in the program's handler", self.handler_panics),
            ("callbacks caused by the program's handler", self.missed_callbacks),
            ("calls in ranges of earlier recordings", self.calls_in_earlier_ranges),
            ("uses of contexts of earlier recordings", self.earlier_contexts),
            ("moves of managed memory", self.migrations),
            ("calls without a record", self.calls_without_record),
            ("graph launches traced as a whole", self.whole_graphs),
            ("warnings of the capture", self.capture_warnings),
            ("ranges, marks and kernels summed up as (other)", self.summed_as_other),
            ("lanes forgotten", self.forgotten_lanes),
            (
                "call sites of spans made none: install the layer before the model is built, and let filters pass its spans",
                self.unused_span_sites,
            ),
            ("entries of spans that are older than the layer", self.unknown_span_entries),
            ("of 5 levels of spans disabled by filters", self.disabled_span_levels),
            (
                "layer for which no span was created: if the model has spans, install it before the model is built",
                self.layers_without_spans,
            ),
            ("devices of several processes known by their ordinal alone", self.devices_by_ordinal),
            ("operations of inferred ranges", self.inferred_operations),
            ("calls of inferred ranges", self.inferred_calls),
            ("calls outside ranges while several threads waited in one", self.undecided_calls),
            ("samplers failed", self.failed_samplers),
            ("samples dropped", self.dropped_samples),
            ("gaps between samples", self.sample_gaps),
            ("times no room for samples", self.sample_overflows),
        ] {
            if count != 0 {
                write!(f, "; {count} {name}")?;
            }
        }
        Ok(())
    }
}
