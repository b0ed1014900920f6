//! Aligns recordings of several hosts to the first host's clock, by the ends of common collectives.

use profiler_base::collectives::{COLLECTIVES_DOMAIN, fields};
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::collectives::{self, CollectiveKey, CollectiveRow};
use crate::join::communication::Communication;
use crate::join::host_clock::{HostClock, Occurrence, SharedEvent};
use crate::join::tables::{FieldValue, Interval, Process, RecordedProcess, Subject, Tables};

/// A host that shares too few collectives with the hosts before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unaligned {
    pub(crate) host: u32,
    /// The maximum number of collectives in common with another host.
    pub(crate) shared: usize,
}

/// The collectives of two hosts, the lower number first.
type Shared = FxHashMap<(u32, u32), Vec<SharedEvent>>;

/// Compares the clocks of hosts, numbered from 0, and converts all times of the store to the clock
/// of host 0. `device_hosts` has the hosts of devices by their numbers. Costs a pass over all rows
/// and a sort of the collectives; memory is proportional to the number of collectives.
pub(crate) fn align(
    store: &mut Tables,
    hosts: u32,
    device_hosts: &[u32],
) -> Result<Vec<HostClock>, Unaligned> {
    let clocks = clocks(shared(store), hosts)?;
    let of_process: FxHashMap<u32, HostClock> = store
        .processes
        .iter()
        .filter_map(|process| Some((process.id, clocks[process.recorded.as_ref()?.host as usize])))
        .collect();
    shift(store, |process| of_process.get(&process).copied());
    for series in &mut store.series {
        let host = device_hosts.get(series.device() as usize).copied().unwrap_or(0);
        std::sync::Arc::make_mut(series).change_times(|ns| clocks[host as usize].aligned(ns));
    }
    for (process, log) in &mut store.instructions {
        if let Some(clock) = of_process.get(process) {
            std::sync::Arc::make_mut(log).change_times(|ns| clock.aligned(ns));
        }
    }
    Ok(clocks)
}

/// The clocks of hosts relative to host 0, each through the host nearest to it.
fn clocks(mut shared: Shared, hosts: u32) -> Result<Vec<HostClock>, Unaligned> {
    let mut clocks: Vec<Option<HostClock>> = vec![None; hosts as usize];
    let mut beside: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut pairs: Vec<(u32, u32)> = shared.keys().copied().collect();
    // The host with most collectives in common first.
    pairs.sort_unstable_by_key(|pair| (std::cmp::Reverse(shared[pair].len()), *pair));
    for (low, high) in &pairs {
        beside.entry(*low).or_default().push(*high);
        beside.entry(*high).or_default().push(*low);
    }
    clocks[0] = Some(HostClock::first(0));
    let mut reached = vec![0];
    let mut next = 0;
    while let Some(&host) = reached.get(next) {
        next += 1;
        let Some(known) = clocks[host as usize] else { continue };
        for &other in beside.get(&host).into_iter().flatten() {
            if clocks[other as usize].is_some() {
                continue;
            }
            let events = shared.get_mut(&(host.min(other), host.max(other)));
            let Some(events) = events else { continue };
            if host > other {
                events
                    .iter_mut()
                    .for_each(|event| std::mem::swap(&mut event.own, &mut event.other));
            }
            let Some(clock) = HostClock::fitted(host as usize, events) else { continue };
            clocks[other as usize] = Some(clock.through(&known));
            reached.push(other);
        }
    }
    let missing = (0..hosts).find(|host| clocks[*host as usize].is_none());
    if let Some(host) = missing {
        let of_host = shared.iter().filter(|((low, high), _)| *low == host || *high == host);
        let shared = of_host.map(|(_, events)| events.len()).max().unwrap_or(0);
        return Err(Unaligned { host, shared });
    }
    Ok(clocks.into_iter().flatten().collect())
}

/// The collectives that several hosts execute, for pairs of the host with the lowest number and
/// each other host. `own` is the host with the higher number.
fn shared(store: &Tables) -> Shared {
    let host_of: FxHashMap<u32, u32> = store
        .processes
        .iter()
        .filter_map(|process| Some((process.id, process.recorded.as_ref()?.host)))
        .collect();
    let rows = collectives::collectives(store, &Communication::new(store));
    let mut keyed: Vec<(CollectiveKey, u32, u32, Interval)> = rows
        .iter()
        .filter_map(|row: &CollectiveRow| {
            let time = store.operations[row.operation?.at()].time()?;
            let host = *host_of.get(&row.process)?;
            row.function.waits_for_all().then_some(())?;
            Some((row.key()?, host, row.process, time))
        })
        .collect();
    order::sort_by_key(&mut keyed, |(key, host, process, _)| (*key, *host, *process));
    let mut shared = Shared::default();
    for all in keyed.chunk_by(|a, b| a.0 == b.0) {
        // A repeated key belongs to a communicator with the hash of an earlier one.
        let is_repeated = all.windows(2).any(|two| two[0].2 == two[1].2);
        if is_repeated || all[0].1 == all[all.len() - 1].1 {
            continue;
        }
        let mut occurrences = all.chunk_by(|a, b| a.1 == b.1).map(|of_host| {
            let times = || of_host.iter().map(|(_, _, _, time)| time);
            let ends = || times().map(|time| time.end_ns);
            let occurrence = Occurrence {
                arrived_ns: times().map(|time| time.start_ns).max().unwrap_or(0),
                first_end_ns: ends().min().unwrap_or(0),
                last_end_ns: ends().max().unwrap_or(0),
            };
            (of_host[0].1, occurrence)
        });
        let Some((low, other)) = occurrences.next() else { continue };
        for (high, own) in occurrences {
            shared.entry((low, high)).or_default().push(SharedEvent { own, other });
        }
    }
    shared
}

/// Changes the times of all rows, by their processes.
pub(crate) fn shift(store: &mut Tables, clock_of: impl Fn(u32) -> Option<HostClock>) {
    let at = |process: u32, ns: &mut u64| {
        if let Some(clock) = clock_of(process) {
            *ns = clock.aligned(*ns);
        }
    };
    let span = |process: u32, time: &mut Interval| {
        at(process, &mut time.start_ns);
        at(process, &mut time.end_ns);
    };
    let processes: Vec<u32> = store.threads.iter().map(|thread| thread.process).collect();
    store.ranges.iter_mut().for_each(|row| span(processes[row.thread.at()], &mut row.time));
    store.process_ranges.iter_mut().for_each(|row| span(processes[row.thread.at()], &mut row.time));
    let repeated = store.repeated_calls.values_mut().flatten();
    let calls = store.calls.iter_mut().chain(&mut store.outer_calls).chain(repeated);
    calls.for_each(|row| span(processes[row.thread.at()], &mut row.time));
    store.marks.iter_mut().for_each(|row| at(processes[row.thread.at()], &mut row.at_ns));
    let works = &store.works;
    for operation in &mut store.operations {
        let process = works.row(operation.work.at()).process;
        operation.change_time(|mut time| {
            span(process, &mut time);
            time
        });
    }
    store.for_each_side_row(|row| {
        let process = row.process.map_or(0, |process| *process);
        row.times.into_iter().flatten().for_each(|ns| at(process, ns));
    });
    let stacks = std::mem::take(&mut store.call_stacks).into_iter();
    let moved = stacks.map(|((thread, mut start_ns), place)| {
        at(processes[thread.at()], &mut start_ns);
        ((thread, start_ns), place)
    });
    store.call_stacks = moved.collect();
    store.host_samples.iter_mut().for_each(|row| span(processes[row.thread.at()], &mut row.time));
    shift_launches(store, &clock_of, &processes);
    for Process { id, recorded, .. } in &mut store.processes {
        let Some(recorded) = recorded else { continue };
        let RecordedProcess { window_ns, windows_ns, .. } = &mut **recorded;
        for (start_ns, end_ns) in windows_ns.iter_mut().chain([window_ns]) {
            at(*id, start_ns);
            at(*id, end_ns);
        }
    }
}

/// Changes the launch times in the marks of NCCL's plugin.
fn shift_launches(
    store: &mut Tables,
    clock_of: impl Fn(u32) -> Option<HostClock>,
    processes: &[u32],
) {
    let names = &store.names;
    let (Some(domain), Some(launch)) = (names.find(COLLECTIVES_DOMAIN), names.find(fields::LAUNCH))
    else {
        return;
    };
    let ours: FxHashSet<u32> = (0..)
        .zip(&store.labels)
        .filter(|(_, label)| label.domain == Some(domain))
        .map(|(id, _)| id)
        .collect();
    for (subject, details) in &mut store.details {
        let Subject::Mark(mark) = subject else { continue };
        let mark = &store.marks[mark.at()];
        if !ours.contains(&mark.label.0) {
            continue;
        }
        let Some(clock) = clock_of(processes[mark.thread.at()]) else { continue };
        for field in details.fields.iter_mut().filter(|field| field.name == launch) {
            if let FieldValue::U64(ns) = &mut field.value {
                *ns = clock.aligned(*ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tables::{HostPart, Interval, Thread, ThreadId};

    #[test]
    fn stacks_and_samples_move_with_their_calls() {
        let thread = Thread { id: 1, process: 7, name: None, priority: None };
        let mut store = Tables { threads: vec![thread], ..Tables::default() };
        store.call_stacks.insert((ThreadId(0), 1_000), (0, 3));
        let part = |start_ns, end_ns| HostPart {
            thread: ThreadId(0),
            time: Interval { start_ns, end_ns },
            table: 0,
            stack: None,
            doing: 0,
        };
        // In a damaged file parts may overlap.
        store.host_samples = vec![part(900, 950), part(800, 910), part(820, 830), part(950, 990)];
        store.sort_host_samples();
        assert_eq!(store.host_samples, [part(800, 910), part(910, 950), part(950, 990)]);
        shift(&mut store, |process| (process == 7).then_some(HostClock::planted(50, 0.0, 1_000)));
        assert_eq!(
            std::mem::take(&mut store.call_stacks).into_iter().collect::<Vec<_>>(),
            [((ThreadId(0), 1_050), (0, 3))]
        );
        assert_eq!(store.host_samples, [part(850, 960), part(960, 1_000), part(1_000, 1_040)]);
        let within = Interval { start_ns: 900, end_ns: 1_010 };
        let found: Vec<_> = store.host_parts(ThreadId(0), within).collect();
        assert_eq!(found, [part(900, 960), part(960, 1_000), part(1_000, 1_010)]);
        assert_eq!(store.host_parts(ThreadId(1), within).count(), 0);
    }
}
