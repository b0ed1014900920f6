//! Several recordings as one store: the rows of each process follow the rows of earlier processes.
//!
//! Every recording is decoded and joined separately, so that ids never collide between processes.
//! Merging moves rows, which remain joined. Rows of several hosts are aligned to one clock at the
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Kind};
use crate::join::busy::united;
use crate::join::correlate;
use crate::join::decode;
use crate::join::health::Health;
use crate::join::host_clock::{HostClock, LEAST_EVENTS};
use crate::join::hosts::{self, Unaligned};
use crate::join::joined::Joined;
use crate::join::tables::{
    Call, CallId, CallKind, CallKindId, Details, Field, FieldValue, HostPart, Interval,
    KernelNames, Label, LabelId, Mark, MarkId, Maybe, NameId, Operation, Process, ProcessRange,
    ProcessRangeId, Range, RangeId, RecordedProcess, ShareId, Subject, Tables, Thread, ThreadId,
    What, Work, WorkId,
};
use crate::record::recording::{DeviceInfo, Recording, RecordingInfo};

/// Merges the recordings of several processes into one profile.
///
/// Recordings are joined one at a time, so that memory holds the raw logs of only one. Ids of
/// threads, streams, contexts, calls and graph nodes never collide between processes. Ranges of one
/// path are one [node](crate::profile::RangeNode) with the sums of all processes;
/// [`Query::process`](crate::query::Query::process) and
/// [`Query::by_process`](crate::query::Query::by_process) split them.
///
/// All times are on one clock, `CLOCK_MONOTONIC` of one boot of one machine. Recordings of several
/// hosts (machines, or boots of one) are aligned to the clock of the first by the ends of their
/// common NCCL collectives. [`Profile::hosts`](crate::Profile::hosts) has the error. A device is a GPU identified by its
/// PCI address, whatever its ordinals in the processes. If all processes agree on the ordinals,
/// these are the devices' numbers. Otherwise, as with `CUDA_VISIBLE_DEVICES`, devices are numbered
/// from 0 by address. Parts of one GPU (MIG) count as one GPU.
///
/// ```no_run
/// use profiler_core::Recording;
/// use profiler_core::profile::Merger;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// let mut merger = Merger::new();
/// for rank in 0..8 {
///     let recording = Recording::load(format!("run/rank{rank}.gpuprof"))?;
///     merger.add_process(recording, Some("train".to_owned()), Some(rank))?;
/// }
/// let profile = merger.finish()?;
/// for process in profile.processes() {
///     println!("{process}: {:?}", profile.query().process(process.id()).gpu_time());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Merger {
    store: Tables,
    health: Health,
    labels: FxHashMap<Label, LabelId>,
    process_ids: ProcessIds,
    devices: Devices,
    /// By number; each is one boot of one machine.
    hosts: Vec<Host>,
    /// The host, process and first window of each recording; copies have the same.
    begun: FxHashSet<(usize, Option<u32>, u64)>,
    captures: u64,
}

/// The recordings of one clock, or the captures of one machine.
#[derive(Debug)]
struct Host {
    /// The recording that started first.
    first: (u64, RecordingInfo),
    /// The name of the machine in captures.
    machine: Option<String>,
}

impl Merger {
    /// Adds a recording with the name of its program and its rank among cooperating processes.
    ///
    /// # Errors
    /// Same as [`add`](Self::add).
    pub fn add_process(
        &mut self,
        recording: Recording,
        name: Option<String>,
        rank: Option<u32>,
    ) -> Result<(), Error> {
        if self.captures != 0 {
            return Err(mixed());
        }
        let info = recording.info().clone();
        let known = self.host_of(&info)?;
        let mut health = Health::default();
        let mut tables = decode::read(&recording, &mut health);
        // The raw logs take most of the memory.
        drop(recording);
        correlate::join(&mut tables, &mut health);
        let id = info.process_id.unwrap_or(0);
        tables.processes = vec![Process { id, name: name.map(Into::into), recorded: None }];
        self.add_joined(Joined { tables, info, health }, known, None, rank)
    }

    /// Adds the rows of a capture of another tool, with the name of its machine and the rank of its
    /// processes. Captures without a name are of one machine.
    ///
    /// Times become UTC, from the calendar time at the capture's start. Its error is not in the
    /// capture: that of reading it and, between machines, the difference of their calendar clocks.
    /// Several machines are aligned by NCCL's collectives where these suffice, as in recordings;
    /// otherwise their [clocks](crate::Profile::hosts) have no collectives.
    /// [`clocks_by_utc`](crate::profile::Facts::clocks_by_utc) counts the captures. Costs a pass
    /// over the rows.
    ///
    /// # Errors
    /// The capture does not fit, is a copy ([`Error::is_duplicate`]), has no calendar time, or
    /// recordings were added. It is left out, and the merger remains usable.
    pub fn add_capture(
        &mut self,
        capture: Joined,
        machine: Option<&str>,
        rank: Option<u32>,
    ) -> Result<(), Error> {
        if self.captures == 0 && !self.hosts.is_empty() {
            return Err(mixed());
        }
        let Joined { mut tables, mut info, health } = capture;
        let Some(offset_ns) = info.utc_offset_ns.replace(0) else {
            let why = "the capture does not contain the calendar time of its start, so that its times \
                       cannot be compared with others: read it alone";
            return Err(Error::other(why));
        };
        let clock = HostClock::first(0).with_offset(offset_ns);
        hosts::shift(&mut tables, |_| Some(clock));
        for series in &mut tables.series {
            Arc::make_mut(series).change_times(|ns| clock.aligned(ns));
        }
        let session = &mut tables.session;
        let (start_ns, end_ns) = &mut session.window_ns;
        for ns in [start_ns, end_ns, &mut session.last_annotation_ns] {
            *ns = ns.saturating_add_signed(offset_ns);
        }
        if tables.processes.is_empty() {
            tables.processes.push(Process { id: 0, name: None, recorded: None });
        }
        info.process_id = Some(tables.processes[0].id);
        let known = self.hosts.iter().position(|host| host.machine.as_deref() == machine);
        self.add_joined(Joined { tables, info, health }, known, machine, rank)?;
        self.captures += 1;
        Ok(())
    }

    /// Adds the rows of a part, which has a process.
    fn add_joined(
        &mut self,
        Joined { tables: mut part, info, health }: Joined,
        known: Option<usize>,
        machine: Option<&str>,
        rank: Option<u32>,
    ) -> Result<(), Error> {
        self.check_rows(&part)?;
        let window_ns = part.session.window_ns;
        let is_copy = |host: usize| self.begun.contains(&(host, info.process_id, window_ns.0));
        if known.is_some_and(is_copy) {
            return Err(Error::new(Kind::Duplicate { process_id: info.process_id }));
        }
        let windows_ns = part.session.windows_ns.clone();
        let host = known.unwrap_or(self.hosts.len());
        self.begun.insert((host, info.process_id, window_ns.0));
        let first = (window_ns.0, info.clone());
        match self.hosts.get_mut(host) {
            Some(host) if host.first.0 <= first.0 => {}
            Some(host) => host.first = first,
            None => self.hosts.push(Host { first, machine: machine.map(str::to_owned) }),
        }
        self.health.add(&health);
        // CAST: rows of recordings are numbered with 32 bits.
        let host = host as u32;
        self.devices.host = host;
        let devices = self.devices.of_recording(&info);
        let mut processes = FxHashMap::default();
        for Process { id: own, name, .. } in std::mem::take(&mut part.processes) {
            let process_id = Some(own).filter(|own| *own != 0);
            let id = self.process_ids.unique(process_id);
            // Rows of a recording, and rows without a process, have the number 0.
            processes.entry(0).or_insert(id);
            processes.insert(own, id);
            let info = RecordingInfo { process_id, ..info.clone() };
            let (windows_ns, health) = (windows_ns.clone(), health.clone());
            let recorded = RecordedProcess { rank, host, window_ns, windows_ns, info, health };
            self.store.processes.push(Process { id, name, recorded: Some(Box::new(recorded)) });
        }
        self.append(part, processes, devices);
        Ok(())
    }

    /// The number of each device in a profile of these recordings, by its ordinal in each of them.
    /// Recordings in the order of their ranks: hosts are numbered in this order. A recording of an
    /// older version without its boot counts as of the first host.
    pub fn device_numbers(infos: &[&RecordingInfo]) -> Vec<BTreeMap<u32, u32>> {
        let (mut devices, mut recordings) = (Devices::default(), Vec::new());
        let mut hosts: Vec<&RecordingInfo> = Vec::new();
        for &info in infos {
            let host = hosts.iter().position(|host| host.has_clock_of(info) != Some(false));
            devices.host = host.unwrap_or(hosts.len()) as u32;
            if host.is_none() {
                hosts.push(info);
            }
            recordings.push(devices.of_recording(info));
        }
        let (numbers, _) = devices.numbered();
        let numbered = |(ordinal, at): (u32, u32)| Some((ordinal, *numbers.get(at as usize)?));
        let of = |known: FxHashMap<u32, u32>| known.into_iter().filter_map(numbered).collect();
        recordings.into_iter().map(of).collect()
    }

    /// The known host of a recording; `None` if it is from another one.
    fn host_of(&self, info: &RecordingInfo) -> Result<Option<usize>, Error> {
        for (host, Host { first: (_, first), .. }) in self.hosts.iter().enumerate() {
            let is_same = first.has_clock_of(info).ok_or_else(|| {
                let why = "a recording of an older version does not contain when its machine started, so \
                           that its clock cannot be compared with others: read it alone";
                Error::other(why)
            })?;
            if is_same {
                return Ok(Some(host));
            }
        }
        Ok(None)
    }

    /// Counts a recording that is missing, unreadable or a copy, which makes the profile
    /// [incomplete](crate::profile::Losses::missing_recordings).
    pub fn add_missing(&mut self) {
        self.health.losses.missing_recordings += 1;
    }

    /// The store, the common recording info, and the sum of the losses.
    pub(crate) fn joined(self) -> Result<Joined, Error> {
        let Self { mut store, mut health, mut devices, mut hosts, captures, .. } = self;
        if hosts.is_empty() {
            return Err(Error::other("there is no recording to read a profile from"));
        }
        if hosts.len() > 1 {
            let order = number_hosts(&mut store, hosts.len());
            devices.known.iter_mut().for_each(|known| known.host = order[known.host as usize]);
            let device_hosts: Vec<u32> = devices.known.iter().map(|known| known.host).collect();
            store.hosts = match hosts::align(&mut store, order.len() as u32, &device_hosts) {
                Err(_) if captures != 0 => vec![HostClock::first(0); order.len()],
                aligned => aligned.map_err(|unaligned| unaligned_error(&store, unaligned))?,
            };
            let first = order.iter().position(|number| *number == 0).unwrap_or(0);
            hosts.swap(0, first);
        }
        session_of_all(&mut store);
        let mut info = hosts.swap_remove(0).first.1;
        health.facts.clocks_by_utc = if captures > 1 { captures } else { 0 };
        health.facts.devices_by_ordinal = devices.known_by_ordinal();
        let (numbers, known) = devices.numbered();
        renumber(&mut store, &numbers);
        (info.devices, info.process_id) = (known, None);
        order::sort_by_number(&mut store.operations, Operation::start_ns);
        store.sort_host_samples();
        store.sort_side_rows();
        order::sort_by_key(&mut store.multiprocessors, |of| of.device);
        store.multiprocessors.dedup_by_key(|of| of.device);
        // Ranks in order, then other processes as they started.
        order::sort_by_key(&mut store.processes, |process| {
            let recorded = process.recorded.as_ref();
            let rank = recorded.and_then(|recorded| recorded.rank);
            (rank.unwrap_or(u32::MAX), recorded.map(|recorded| recorded.window_ns), process.id)
        });
        Ok(Joined { tables: store, info, health })
    }

    /// Checks the number of rows: rows are numbered with 32 bits, and the last number represents no
    /// row.
    fn check_rows(&self, part: &Tables) -> Result<(), Error> {
        let (store, most) = (&self.store, u32::MAX as usize);
        let fits = [
            (store.names.len(), part.names.len()),
            (store.threads.len(), part.threads.len()),
            (store.labels.len(), part.labels.len()),
            (store.ranges.len(), part.ranges.len()),
            (store.process_ranges.len(), part.process_ranges.len()),
            (store.marks.len(), part.marks.len()),
            (store.shares.len(), part.shares.len()),
            (store.calls.len(), part.calls.len()),
            (store.works().len(), part.works().len()),
            (store.operations.len(), part.operations.len()),
        ]
        .into_iter()
        .all(|(known, more)| known + more < most);
        let why = "the recordings together have more rows than one profile can hold, 4,294,967,294 \
                   of a kind: read them in parts";
        if fits { Ok(()) } else { Err(Error::other(why)) }
    }

    fn append(
        &mut self,
        mut part: Tables,
        processes: FxHashMap<u32, u32>,
        devices: FxHashMap<u32, u32>,
    ) {
        let mut moved = self.moved(&part, processes, devices);
        for kind in part.call_kinds.rows() {
            let (name, share) = (moved.name(kind.name), kind.share.map(|id| moved.share(id)));
            let kind = CallKind { name, share, ..*kind };
            moved.kinds.push(self.store.intern_call_kind(kind));
        }
        for work in part.works() {
            let work = moved.work(work, &mut self.devices);
            moved.works.push(self.store.intern_work(work));
        }
        let Self { store, devices, .. } = self;
        part.for_each_side_row(|row| {
            row.process.into_iter().for_each(|of| *of = moved.process(*of));
            if let Some((_, call)) = row.call {
                *call = call.get().map(|call| moved.call(call)).into();
            }
            row.device.into_iter().for_each(|of| *of = moved.device(*of, devices));
            row.names.into_iter().flatten().for_each(|name| *name = moved.name(*name));
        });
        store.append_side_rows(&mut part);
        let threads = part.threads.into_iter();
        store.threads.extend(
            threads.map(|thread| Thread { process: moved.process(thread.process), ..thread }),
        );
        store.ranges.extend(part.ranges.into_iter().map(|range| moved.range_row(range)));
        let process_ranges = part.process_ranges.into_iter();
        store.process_ranges.extend(process_ranges.map(|range| moved.process_range_row(range)));
        store.marks.extend(part.marks.into_iter().map(|mark| moved.mark_row(mark)));
        let details = part.details.into_iter();
        store
            .details
            .extend(details.map(|(of, details)| (moved.subject(of), moved.details(details))));
        let shares = part.shares.into_iter();
        store.shares.extend(shares.map(|share| share.iter().map(|id| moved.range(*id)).collect()));
        store.calls.extend(part.calls.into_iter().map(|call| moved.call_row(call)));
        store.outer_calls.extend(part.outer_calls.into_iter().map(|call| moved.call_row(call)));
        let operations = part.operations.into_iter();
        store.operations.extend(operations.map(|operation| moved.operation_row(operation)));
        let repeated = part.repeated_calls.into_iter();
        store.repeated_calls.extend(repeated.map(|((process, id), calls)| {
            let calls = calls.into_iter().map(|call| moved.call_row(call)).collect();
            ((moved.process(process), id), calls)
        }));
        let dependencies = part.graph_dependencies.into_iter();
        store
            .graph_dependencies
            .extend(dependencies.map(|(process, known)| (moved.process(process), known)));
        let shared = part.shared_ordinals.into_iter();
        store.shared_ordinals.extend(shared.map(|device| moved.device(device, devices)));
        for series in &mut part.series {
            let device = moved.device(series.device(), devices);
            Arc::make_mut(series).head.device = device;
        }
        store.series.append(&mut part.series);
        let instructions = part.instructions.into_iter();
        store.instructions.extend(instructions.map(|(process, log)| (moved.process(process), log)));
        let (session, of_part) = (&mut store.session, &part.session);
        session.ranges_by = of_part.ranges_by;
        session.last_annotation_ns = session.last_annotation_ns.max(of_part.last_annotation_ns);
        // Merged profiles only check whether it is set.
        let pending = store.session.pending_from_ns.into_iter().chain(part.session.pending_from_ns);
        store.session.pending_from_ns = pending.min();
        // CAST: fewer than rows.
        let tables = store.host_stacks.len() as u32;
        store.host_stacks.append(&mut part.host_stacks);
        let stacks = part.call_stacks.into_iter();
        store.call_stacks.extend(stacks.map(|((thread, start_ns), (table, place))| {
            ((moved.thread(thread), start_ns), (table + tables, place))
        }));
        store.missing_stacks += part.missing_stacks;
        store.host_samples.extend(part.host_samples.into_iter().map(|row| HostPart {
            thread: moved.thread(row.thread),
            table: row.table + tables,
            ..row
        }));
    }

    /// The new positions of a store's rows, and of its names and labels, which this adds.
    fn moved(
        &mut self,
        part: &Tables,
        processes: FxHashMap<u32, u32>,
        devices: FxHashMap<u32, u32>,
    ) -> Moved {
        let store = &mut self.store;
        let names = part.names.texts().map(|name| store.names.intern(name)).collect();
        let mut moved = Moved {
            processes,
            names,
            labels: Vec::new(),
            kinds: Vec::new(),
            works: Vec::new(),
            devices,
            threads: store.threads.len() as u32,
            ranges: store.ranges.len() as u32,
            process_ranges: store.process_ranges.len() as u32,
            marks: store.marks.len() as u32,
            calls: store.calls.len() as u32,
            shares: store.shares.len() as u32,
        };
        for label in &part.labels {
            let label = Label {
                name: moved.name(label.name),
                domain: label.domain.map(|name| moved.name(name)),
                category: label.category.map(|name| moved.name(name)),
                color: label.color,
            };
            moved.labels.push(*self.labels.entry(label).or_insert_with(|| {
                store.labels.push(label);
                LabelId(store.labels.len() as u32 - 1)
            }));
        }
        moved
    }
}

/// Numbers the hosts in order of their lowest ranks. Returns the new number of each.
fn number_hosts(store: &mut Tables, hosts: usize) -> Vec<u32> {
    let mut ranks = vec![u32::MAX; hosts];
    for recorded in store.processes.iter().filter_map(|process| process.recorded.as_ref()) {
        let lowest = &mut ranks[recorded.host as usize];
        *lowest = (*lowest).min(recorded.rank.unwrap_or(u32::MAX));
    }
    let mut in_order: Vec<usize> = (0..hosts).collect();
    in_order.sort_by_key(|host| ranks[*host]);
    let mut numbers = vec![0; hosts];
    (0..).zip(in_order).for_each(|(number, host)| numbers[host] = number);
    let recorded = store.processes.iter_mut().filter_map(|process| process.recorded.as_mut());
    recorded.for_each(|recorded| recorded.host = numbers[recorded.host as usize]);
    numbers
}

/// The error for recordings and captures in one profile.
fn mixed() -> Error {
    Error::other(
        "recordings and captures of another tool cannot be one profile, since their calls have ranges by other rules: \
         read them apart",
    )
}

/// Returns the error for a host whose clock cannot be aligned, with one of its processes.
pub(crate) fn unaligned_error(store: &Tables, Unaligned { host, shared }: Unaligned) -> Error {
    let is_of_host = |process: &&Process| {
        process.recorded.as_ref().is_some_and(|recorded| recorded.host == host)
    };
    let processes = || store.processes.iter().filter(is_of_host);
    let rank = processes().find_map(|process| process.recorded.as_ref()?.rank);
    let name = match (rank, processes().next()) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, Some(process)) => format!("process {}", process.id),
        (None, None) => format!("host {host}"),
    };
    Error::other(format!(
        "the recordings were made on several machines, or in several boots of one: their clocks are aligned by the ends of \
         NCCL's collectives, of which the machine of {name} shares {shared} with another one and needs {LEAST_EVENTS}: read \
         the recordings of each boot alone, or record all ranks with `gpuprof run`"
    ))
}

/// The session of all recordings, from the first start to the last end.
fn session_of_all(store: &mut Tables) {
    let recorded = || store.processes.iter().filter_map(|process| process.recorded.as_ref());
    let starts = recorded().map(|recorded| recorded.window_ns.0);
    let ends = recorded().map(|recorded| recorded.window_ns.1);
    let window_ns = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
    let windows = recorded().flat_map(|recorded| &recorded.windows_ns);
    let windows = windows.map(|&(start_ns, end_ns)| Interval { start_ns, end_ns }).collect();
    let windows = united(windows).into_iter();
    let windows_ns = windows.map(|window| (window.start_ns, window.end_ns)).collect();
    let session = &mut store.session;
    (session.window_ns, session.windows_ns, session.zero_ns) = (window_ns, windows_ns, window_ns.0);
}

/// The positions of a store's rows after the move.
struct Moved {
    /// By the id in the part; 0 is the first.
    processes: FxHashMap<u32, u32>,
    /// By [`NameId`], [`LabelId`], [`CallKindId`] and [`WorkId`] of the moved store.
    names: Vec<NameId>,
    labels: Vec<LabelId>,
    kinds: Vec<CallKindId>,
    works: Vec<WorkId>,
    /// By the ordinal in the process.
    devices: FxHashMap<u32, u32>,
    /// The first rows.
    threads: u32,
    ranges: u32,
    process_ranges: u32,
    marks: u32,
    calls: u32,
    shares: u32,
}

impl Moved {
    fn process(&self, own: u32) -> u32 {
        let first = || self.processes.get(&0).copied();
        self.processes.get(&own).copied().or_else(first).unwrap_or(0)
    }

    fn name(&self, id: NameId) -> NameId {
        self.names[id.at()]
    }

    fn thread(&self, id: ThreadId) -> ThreadId {
        ThreadId(self.threads + id.0)
    }

    fn range(&self, id: RangeId) -> RangeId {
        RangeId(self.ranges + id.0)
    }

    fn maybe_range(&self, id: Maybe<RangeId>) -> Maybe<RangeId> {
        id.get().map(|id| self.range(id)).into()
    }

    fn process_range(&self, id: ProcessRangeId) -> ProcessRangeId {
        ProcessRangeId(self.process_ranges + id.0)
    }

    fn call(&self, id: CallId) -> CallId {
        CallId(self.calls + id.0)
    }

    fn share(&self, id: ShareId) -> ShareId {
        ShareId(self.shares + id.0)
    }

    fn range_row(&self, row: Range) -> Range {
        Range {
            label: self.labels[row.label.at()],
            thread: self.thread(row.thread),
            parent: self.maybe_range(row.parent),
            ..row
        }
    }

    fn process_range_row(&self, row: ProcessRange) -> ProcessRange {
        ProcessRange {
            label: self.labels[row.label.at()],
            thread: self.thread(row.thread),
            parent: row.parent.map(|id| self.range(id)),
            end_thread: row.end_thread.map(|id| self.thread(id)),
            ..row
        }
    }

    fn mark_row(&self, row: Mark) -> Mark {
        Mark {
            label: self.labels[row.label.at()],
            thread: self.thread(row.thread),
            parent: row.parent.map(|id| self.range(id)),
            ..row
        }
    }

    fn call_row(&self, row: Call) -> Call {
        Call {
            kind: self.kinds[row.kind.at()],
            thread: self.thread(row.thread),
            range: self.maybe_range(row.range),
            ..row
        }
    }

    fn operation_row(&self, row: Operation) -> Operation {
        let mut moved = row;
        moved.work = self.works[row.work.at()];
        moved.call = row.call.get().map(|id| self.call(id)).into();
        moved.captured = self.maybe_range(row.captured);
        moved
    }

    fn subject(&self, of: Subject) -> Subject {
        match of {
            Subject::Range(id) => Subject::Range(self.range(id)),
            Subject::ProcessRange(id) => Subject::ProcessRange(self.process_range(id)),
            Subject::Mark(id) => Subject::Mark(MarkId(self.marks + id.0)),
        }
    }

    fn details(&self, details: Details) -> Details {
        let within = details.within.map(|id| self.process_range(id));
        let field = |field: Field| Field {
            name: self.name(field.name),
            unit: self.name(field.unit),
            value: match field.value {
                FieldValue::Text(text) => FieldValue::Text(self.name(text)),
                value => value,
            },
        };
        let fields = details.fields.into_iter().map(field).collect();
        Details { within, fields, ..details }
    }

    /// The number of a device with this ordinal in the process.
    fn device(&mut self, ordinal: u32, devices: &mut Devices) -> u32 {
        // Records of the host have a number that no device has.
        if ordinal > MAX_ORDINAL {
            return ordinal;
        }
        *self.devices.entry(ordinal).or_insert_with(|| devices.number(ordinal, None))
    }

    fn work(&mut self, work: &Work, devices: &mut Devices) -> Work {
        let mut work = *work;
        work.process = self.process(work.process);
        work.for_each_device(|device| *device = self.device(*device, devices));
        if let What::Kernel { names, .. } = &mut work.what {
            *names = KernelNames {
                name: self.name(names.name),
                demangled: names.demangled.map(|name| self.name(name)),
                short: names.short.map(|name| self.name(name)),
            };
        }
        work
    }
}

/// Ids of processes: the kernel's, each used once.
#[derive(Debug, Default)]
struct ProcessIds {
    used: FxHashSet<u32>,
    /// Ids for processes whose own is unknown or in use, as in several containers.
    spare: u32,
}

/// Above Linux's process ids (`PID_MAX_LIMIT` is 2^22).
const FIRST_SPARE: u32 = (1 << 22) + 1;

impl ProcessIds {
    fn unique(&mut self, id: Option<u32>) -> u32 {
        // 0 represents a process that recorded itself.
        if let Some(id) = id.filter(|&id| id != 0 && self.used.insert(id)) {
            return id;
        }
        loop {
            let spare = FIRST_SPARE + self.spare;
            self.spare += 1;
            if self.used.insert(spare) {
                return spare;
            }
        }
    }
}

/// No machine has a device with a larger ordinal.
const MAX_ORDINAL: u32 = 0xffff;

/// The identity of a GPU of a machine. Ordinals depend on the process: `CUDA_VISIBLE_DEVICES` hides
/// GPUs and renumbers the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Identity {
    /// The PCI address. Parts of one GPU (MIG) share it, and count as one GPU.
    Address(String),
    /// The ordinal, for recordings without addresses.
    Ordinal(u32),
}

/// The GPUs of all recordings, numbered in order of appearance.
#[derive(Debug, Default)]
struct Devices {
    /// By host and identity.
    numbers: FxHashMap<(u32, Identity), u32>,
    known: Vec<KnownDevice>,
    /// The host of the recording that is being added.
    host: u32,
}

#[derive(Debug)]
struct KnownDevice {
    host: u32,
    identity: Identity,
    info: Option<DeviceInfo>,
    /// Its ordinal, and whether all processes agree on it.
    ordinal: u32,
    has_one_ordinal: bool,
    /// The number of recordings with it.
    recordings: u64,
}

impl Devices {
    /// The numbers of a recording's devices by their ordinals.
    fn of_recording(&mut self, info: &RecordingInfo) -> FxHashMap<u32, u32> {
        let listed = info.devices.iter().filter(|device| device.id <= MAX_ORDINAL);
        listed.map(|device| (device.id, self.number(device.id, Some(device)))).collect()
    }

    fn number(&mut self, ordinal: u32, info: Option<&DeviceInfo>) -> u32 {
        let address = info.and_then(|info| info.pci_bus_id.clone());
        let identity = match address {
            Some(address) => Identity::Address(address),
            None => Identity::Ordinal(ordinal),
        };
        let next = self.known.len() as u32;
        let host = self.host;
        let number = *self.numbers.entry((host, identity.clone())).or_insert(next);
        if number == next {
            self.known.push(KnownDevice {
                host,
                identity,
                info: info.cloned(),
                ordinal,
                has_one_ordinal: true,
                recordings: 0,
            });
        }
        let known = &mut self.known[number as usize];
        known.has_one_ordinal &= known.ordinal == ordinal;
        known.recordings += 1;
        number
    }

    /// The number of devices of several recordings that are identified only by their ordinal.
    fn known_by_ordinal(&self) -> u64 {
        let by_ordinal = |known: &&KnownDevice| {
            matches!(known.identity, Identity::Ordinal(_)) && known.recordings > 1
        };
        self.known.iter().filter(by_ordinal).count() as u64
    }

    /// The final number of each device, and the devices by number. If the processes agree on
    /// ordinals, these are the numbers; otherwise devices are numbered by their address.
    fn numbered(self) -> (Vec<u32>, Vec<DeviceInfo>) {
        let mut ordinals = FxHashSet::default();
        let agree =
            self.known.iter().all(|known| known.has_one_ordinal && ordinals.insert(known.ordinal));
        let mut numbers: Vec<u32> = self.known.iter().map(|known| known.ordinal).collect();
        if !agree {
            let mut by_address: Vec<usize> = (0..self.known.len()).collect();
            order::sort_by(&mut by_address, |a, b| {
                let key = |at: usize| (self.known[at].host, &self.known[at].identity);
                key(*a).cmp(&key(*b))
            });
            for (number, at) in (0..).zip(by_address) {
                numbers[at] = number;
            }
        }
        let info = |(known, &id): (KnownDevice, &u32)| Some(DeviceInfo { id, ..known.info? });
        let mut devices: Vec<DeviceInfo> =
            self.known.into_iter().zip(&numbers).filter_map(info).collect();
        order::sort_by_number(&mut devices, |device| device.id.into());
        (numbers, devices)
    }
}

/// Sets the final numbers of devices.
fn renumber(store: &mut Tables, numbers: &[u32]) {
    if (0..).zip(numbers).all(|(at, number): (u32, _)| at == *number) {
        return;
    }
    let number = |device: &mut u32| {
        *device = numbers.get(*device as usize).copied().unwrap_or(*device);
    };
    store.works.for_each_mut(|work| work.for_each_device(number));
    store.for_each_side_row(|row| row.device.into_iter().for_each(number));
    store.shared_ordinals.iter_mut().for_each(number);
    for series in &mut store.series {
        number(&mut Arc::make_mut(series).head.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_are_the_kernels_or_above_all_of_those() {
        let mut ids = ProcessIds::default();
        let all = [Some(7), Some(9), Some(7), None, Some(0), Some(FIRST_SPARE + 3), None];
        let spare = |at: u32| FIRST_SPARE + at;
        assert_eq!(
            all.map(|id| ids.unique(id)),
            [7, 9, spare(0), spare(1), spare(2), spare(3), spare(4)]
        );
    }
}
