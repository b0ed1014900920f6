//! The tables of a profile: decoded, interned and in one clock, not yet joined.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cupti::Record;
use cupti::record::SharedMemorySetting;
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHasher};

use crate::join::graph_nodes::GraphDependencies;
use crate::join::host_clock::HostClock;
pub use crate::join::ids::*;
use crate::join::intern::hash_of;
pub use crate::join::intern::{Interned, NameId, Names};
pub use crate::join::rows::*;
pub use crate::join::side_rows::*;
use crate::record::host_stacks::HostStacks;
use crate::record::instructions::InstructionLog;
use crate::record::recording::Clocks;
use crate::record::series::Series;

/// All rows of a profile.
#[derive(Debug, Default)]
pub struct Tables {
    /// The times and kind of the session.
    pub session: Session,
    /// All names.
    pub names: Names,
    /// By their first appearance.
    pub threads: Vec<Thread>,
    /// Names and domains of ranges and marks.
    pub labels: Vec<Label>,
    /// By thread in start order.
    pub ranges: Vec<Range>,
    /// By starting thread in start order.
    pub process_ranges: Vec<ProcessRange>,
    /// By thread in time order.
    pub marks: Vec<Mark>,
    /// Payloads and fields of ranges and marks that have any.
    pub details: FxHashMap<Subject, Details>,
    /// The properties shared by calls.
    pub call_kinds: Interned<CallKind>,
    /// Ranges that share work attributed to another range, without duplicates. Few calls have any.
    pub shares: Vec<Box<[RangeId]>>,
    /// By thread in call order. A runtime call and its driver call, which share their correlation
    /// id, are represented by the driver call.
    pub calls: Vec<Call>,
    /// The runtime calls that made driver calls; set by `correlate`.
    pub outer_calls: Vec<Call>,
    /// Calls of a capture that share their correlation id, by process and id; set by `correlate`.
    pub repeated_calls: FxHashMap<(u32, u32), Vec<Call>>,
    /// The properties shared by operations.
    pub works: Interned<Work>,
    /// By start; those without timestamps first.
    pub operations: Vec<Operation>,
    /// By their end.
    pub synchronizations: Vec<Synchronization>,
    /// Empty unless the program collected the kind.
    pub event_records: Vec<EventRecord>,
    /// By process; empty unless the program logged them.
    pub graph_dependencies: FxHashMap<u32, GraphDependencies>,
    /// By time.
    pub memory: Vec<MemoryEvent>,
    /// By start; empty if the source has none.
    pub managed: Vec<ManagedMemory>,
    /// By start; empty if the source has none.
    pub overheads: Vec<Overhead>,
    /// By device; empty if the source has none.
    pub multiprocessors: Vec<Multiprocessor>,
    /// CUDA ordinals of several GPUs: each process numbers its visible ones.
    pub shared_ordinals: Vec<u32>,
    /// Empty if a process recorded itself.
    pub processes: Vec<Process>,
    /// The clocks of several hosts; empty if all recordings are from one.
    pub hosts: Vec<HostClock>,
    /// The samples of the devices.
    pub series: Vec<Arc<Series>>,
    /// The instruction samples of each recording, with its process.
    pub(crate) instructions: Vec<(u32, Arc<InstructionLog>)>,
    /// The stacks of each recording.
    pub(crate) host_stacks: Vec<Arc<HostStacks>>,
    /// By thread and start: positions in `host_stacks` and in its stacks.
    pub(crate) call_stacks: FxHashMap<(ThreadId, u64), (u32, u32)>,
    /// The states of threads in gaps, by thread and start.
    pub host_samples: Vec<HostPart>,
    /// Calls whose stack is not in the recording.
    pub missing_stacks: u64,
    /// By [`CallId`]: the inferred range of calls outside all ranges; empty if none was inferred.
    pub inferred: Vec<Maybe<RangeId>>,
    /// The source's number of each range, then of each process range, if it has any. Empty in a
    /// profile of several captures.
    pub range_numbers: Vec<u64>,
}

/// Defines what is done with every table of side rows. A field of [`Tables`] that is in neither list
/// does not compile.
macro_rules! side_tables {
    ($($table:ident),*; others $($other:ident),*) => {
        impl Tables {
            /// Removes the side rows for which `keep` returns false.
            pub(crate) fn retain_side_rows(&mut self, mut keep: impl FnMut(SideRow<'_>) -> bool) {
                $(self.$table.retain_mut(|row| keep(row.side_row()));)*
            }

            /// Changes every side row.
            pub(crate) fn for_each_side_row(&mut self, mut change: impl FnMut(SideRow<'_>)) {
                $(self.$table.iter_mut().for_each(|row| change(row.side_row()));)*
            }

            /// Moves the side rows of `other` behind these.
            pub(crate) fn append_side_rows(&mut self, other: &mut Self) {
                let Self { $($table,)* $($other: _,)* } = other;
                $(self.$table.append($table);)*
            }
        }
    };
}
side_tables!(
    synchronizations, event_records, memory, managed, overheads, multiprocessors;
    others session, names, threads, labels, ranges, process_ranges, marks, details, call_kinds,
    shares, calls, outer_calls, repeated_calls, works, operations, graph_dependencies,
    shared_ordinals, processes, hosts, series, instructions, host_stacks, call_stacks, host_samples,
    missing_stacks, inferred, range_numbers
);

impl Tables {
    /// Adds the row of a record that is not a GPU operation; false if it has none.
    pub(crate) fn add_side_row(&mut self, record: &Record<'_>, clock: &Clocks) -> bool {
        match record {
            Record::Synchronization(record) => {
                self.synchronizations.push(Synchronization::new(record, clock));
            }
            // Event records within a graph are ordered by the graph's edges.
            Record::CudaEvent(event) if event.graph_node.is_none() => {
                self.event_records.push(EventRecord::new(event));
            }
            Record::MemoryOperation(record) => self.memory.push(MemoryEvent::new(record, clock)),
            Record::UnifiedMemory(record) => {
                let row = ManagedMemory::new(record, clock, &mut self.names);
                self.managed.extend(row);
                return row.is_some();
            }
            Record::Device(device) => self.multiprocessors.push(Multiprocessor::new(device)),
            _ => return false,
        }
        true
    }

    /// Sorts the side tables that are kept in time order.
    pub(crate) fn sort_side_rows(&mut self) {
        order::sort_by_number(&mut self.memory, |event| event.at_ns);
        order::sort_by_number(&mut self.managed, |event| event.time.start_ns);
        order::sort_by_number(&mut self.overheads, |overhead| overhead.time.start_ns);
    }

    /// Sorts the samples, and cuts overlapping ones, which only a damaged file has: the parts of a
    /// gap add up to it.
    pub(crate) fn sort_host_samples(&mut self) {
        order::sort_by_key(&mut self.host_samples, |part| (part.thread.at(), part.time.start_ns));
        let mut last: Option<(ThreadId, u64)> = None;
        self.host_samples.retain_mut(|part| {
            if let Some((_, end_ns)) = last.filter(|(thread, _)| *thread == part.thread) {
                part.time.start_ns = part.time.start_ns.max(end_ns);
            }
            let is_left = part.time.start_ns < part.time.end_ns;
            if is_left {
                last = Some((part.thread, part.time.end_ns));
            }
            is_left
        });
    }

    /// The stack that was taken at a call: equal pairs are equal stacks.
    pub fn stack_of(&self, call: &Call) -> Option<(u32, u32)> {
        self.call_stacks.get(&(call.thread, call.time.start_ns)).copied()
    }

    /// The sampled states of a thread within some time: in order, cut to that time.
    pub fn host_parts(&self, thread: ThreadId, time: Interval) -> impl Iterator<Item = HostPart> {
        let ends_before =
            |part: &HostPart| (part.thread.at(), part.time.end_ns) <= (thread.at(), time.start_ns);
        let first = self.host_samples.partition_point(ends_before);
        let rest = self.host_samples[first..].iter();
        let within =
            rest.take_while(move |part| part.thread == thread && part.time.start_ns < time.end_ns);
        within.map(move |part| {
            let start_ns = part.time.start_ns.max(time.start_ns);
            let end_ns = part.time.end_ns.min(time.end_ns).max(start_ns);
            HostPart { time: Interval { start_ns, end_ns }, ..*part }
        })
    }

    /// The label of this row.
    #[inline]
    pub fn label(&self, id: LabelId) -> &Label {
        &self.labels[id.at()]
    }

    /// The properties that a call shares with others.
    #[inline]
    pub fn call_kind(&self, call: &Call) -> &CallKind {
        self.call_kinds.row(call.kind.at())
    }

    /// The properties that an operation shares with others.
    #[inline]
    pub fn work(&self, operation: &Operation) -> &Work {
        self.works.row(operation.work.at())
    }

    /// Every work, by [`WorkId`].
    pub fn works(&self) -> &[Work] {
        self.works.rows()
    }

    /// The row of this kind, which is added if there is none.
    pub fn intern_call_kind(&mut self, kind: CallKind) -> CallKindId {
        let hash = hash_of(&kind);
        let known = self.call_kinds.find(hash, || hash, |known| *known == kind);
        CallKindId(known.unwrap_or_else(|slot| self.call_kinds.push(slot, kind)))
    }

    /// Interns the work of a kernel. Most equal an earlier one, usually `guess`, with the same name
    /// key, and need not be moved; `names` resolves new names.
    #[inline]
    pub(crate) fn intern_kernel(
        &mut self,
        kernel: &cupti::Kernel,
        shared_memory: SharedMemorySetting,
        guess: Option<WorkId>,
        names: impl FnOnce(&mut Names) -> KernelNames,
    ) -> WorkId {
        let mut details = *kernel;
        (details.span, details.correlation_id) = (cupti::Span::default(), 0);
        let is_same = |work: &Work| match &work.what {
            What::Kernel { details: known, .. } => {
                *known == details && work.shared_memory == shared_memory
            }
            _ => false,
        };
        if let Some(guess) = guess.filter(|guess| is_same(self.works.row(guess.at()))) {
            return guess;
        }
        let mut hasher = FxHasher::default();
        // Each word takes a multiplication that depends on the previous one.
        let node = details.graph_node.map_or(0, |node| node.node);
        let stream_and_grid = u64::from(details.place.stream) << 32 | u64::from(details.grid[0]);
        (details.name, stream_and_grid, node ^ u64::from(details.grid[1])).hash(&mut hasher);
        let whole_hash = || hash_of(&(details, shared_memory));
        let known = self.works.find(hasher.finish(), whole_hash, is_same);
        WorkId(known.unwrap_or_else(|slot| {
            let what = What::Kernel { names: names(&mut self.names), details };
            let work = Work { shared_memory, ..Work::new(what, kernel.place) };
            self.works.push(slot, work)
        }))
    }

    /// Removes the time and call from a work.
    pub fn intern_work(&mut self, work: Work) -> WorkId {
        let quick_hash = work.what.fingerprint(work.place, work.process);
        let work = Work { what: work.what.without_instance(), ..work };
        let known = self.works.find(quick_hash, || hash_of(&work), |known| *known == work);
        WorkId(known.unwrap_or_else(|slot| self.works.push(slot, work)))
    }

    /// Orders parents before their children: by start, then by row.
    #[inline]
    pub fn order(&self, range: RangeId) -> (u64, RangeId) {
        (self.ranges[range.at()].time.start_ns, range)
    }

    /// Sorts ranges so that each follows its outer ranges.
    pub fn sort_ranges(&self, ranges: &mut [RangeId]) {
        ranges.sort_unstable_by_key(|&range| self.order(range));
    }

    /// Marks duplicate records; records are in order.
    pub(crate) fn mark_repeats(&mut self) {
        let mut last: FxHashMap<(u32, u64), (bool, u32)> = FxHashMap::default();
        for event in &mut self.memory {
            let event_id = (event.is_allocation, event.correlation_id);
            let before = last.insert((event.process, event.address), event_id);
            event.is_repeat = event.correlation_id != 0 && before == Some(event_id);
        }
    }

    /// Allocations and frees without duplicates.
    pub fn memory_events(&self) -> impl Iterator<Item = &MemoryEvent> {
        self.memory.iter().filter(|event| !event.is_repeat)
    }

    /// The ranges that share a call, besides its own.
    #[inline]
    pub(crate) fn shares_of(&self, call: &Call) -> &[RangeId] {
        // Most sessions have none.
        if self.shares.is_empty() {
            return &[];
        }
        self.call_kind(call).share.map_or(&[], |share| &self.shares[share.at()])
    }

    /// The calls that nsys joins to an operation: all with its correlation id.
    pub fn calls_of(&self, operation: &Operation) -> &[Call] {
        let Some(call) = operation.call.get() else { return &[] };
        let own = std::slice::from_ref(&self.calls[call.at()]);
        if self.repeated_calls.is_empty() {
            return own;
        }
        let key = (self.threads[own[0].thread.at()].process, operation.correlation_id);
        self.repeated_calls.get(&key).map_or(own, |calls| calls)
    }

    /// The inferred range of a call outside all ranges.
    #[inline]
    pub fn inferred_range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.inferred.get(call.get()?.at())?.get()
    }

    /// The range whose call caused this work.
    #[inline]
    pub fn range_of(&self, call: Maybe<CallId>) -> Option<RangeId> {
        self.calls[call.get()?.at()].range.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_that_differ_in_one_field_are_kept_apart() {
        let mut store = Tables::default();
        let names = |names: &mut Names| {
            let name = names.intern("kernel");
            KernelNames { name, demangled: None, short: None }
        };
        let works = |store: &mut Tables, block: u32| {
            let mut kernel = cupti::Kernel::default();
            // Not part of the fast hash.
            (kernel.block, kernel.dynamic_shared_bytes) = ([1, block, 1], block);
            let of_kernel = store.intern_kernel(&kernel, Default::default(), None, names);
            let mut copy = cupti::Memcpy::default();
            copy.source = cupti::MemoryKind(block as u8);
            let copy = Work::new(What::Copy(copy), cupti::Place::default());
            (of_kernel, store.intern_work(copy))
        };
        let first: Vec<_> = (0..100).map(|block| works(&mut store, block)).collect();
        let again: Vec<_> = (0..100).map(|block| works(&mut store, block)).collect();
        assert_eq!(first, again);
        assert_eq!(store.works().len(), 200);
    }
}
