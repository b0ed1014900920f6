//! Random profiles of a few hundred nanoseconds: nested ranges, consecutive calls, and operations at any time.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::field_reassign_with_default)] // the struct may grow
#![allow(clippy::unwrap_used)] // a test without a profile must fail

use cupti::{CallClass, CopyKind};
use fastrand::Rng;
use profiler_core::Profile;
use profiler_core::profile::{OperationKind, RecordingInfo};
use profiler_core::tables::{
    self, Api, Builder, CallKind, Interval, KernelNames, Label, LabelId, RangeId, Session, Tables,
    ThreadId, What, WholeGraph, Work,
};

/// The start of sessions.
pub(crate) const BASE: u64 = 10_000;
/// The length of sessions.
pub(crate) const LENGTH: u64 = 400;

/// A generated range.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub(crate) name: String,
    pub(crate) domain: Option<&'static str>,
    pub(crate) category: Option<&'static str>,
    pub(crate) thread: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) time: (u64, u64),
}

#[derive(Debug, Clone)]
pub(crate) struct TestCall {
    pub(crate) name: &'static str,
    pub(crate) class: CallClass,
    pub(crate) thread: usize,
    pub(crate) range: Option<usize>,
    pub(crate) time: (u64, u64),
    pub(crate) returned: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Ran {
    pub(crate) kind: OperationKind,
    pub(crate) name: &'static str,
    pub(crate) device: u32,
    pub(crate) stream: u32,
    pub(crate) bytes: u64,
    pub(crate) time: Option<(u64, u64)>,
    pub(crate) call: Option<usize>,
    pub(crate) captured: Option<usize>,
}

impl Ran {
    pub(crate) fn is_collective(&self) -> bool {
        self.kind == OperationKind::Kernel && self.name.starts_with("nccl")
    }
}

/// The content of a generated profile, in times since its start. Operations are sorted by start.
#[derive(Debug, Default, Clone)]
pub(crate) struct Made {
    pub(crate) threads: usize,
    pub(crate) ranges: Vec<Spot>,
    pub(crate) calls: Vec<TestCall>,
    pub(crate) ran: Vec<Ran>,
}

pub(crate) fn thread_id(thread: usize) -> u32 {
    100 + thread as u32
}

pub(crate) fn profile_of(mut store: Tables) -> Profile {
    store.session = Session {
        window_ns: (BASE, BASE + LENGTH),
        windows_ns: vec![(BASE, BASE + LENGTH)],
        ..Session::default()
    };
    let mut info = RecordingInfo::default();
    info.recorded_at_s = Some(0);
    let mut builder = Builder::new(info);
    *builder.tables() = store;
    Profile::from(builder.finish().unwrap())
}

pub(crate) fn interval((start, end): (u64, u64)) -> Interval {
    Interval { start_ns: BASE + start, end_ns: BASE + end }
}

impl Made {
    pub(crate) fn profile(&self) -> Profile {
        let mut store = Tables::default();
        for id in (0..self.threads).map(thread_id) {
            store.threads.push(tables::Thread { id, process: 0, name: None, priority: None });
        }
        for spot in &self.ranges {
            let name = store.names.intern(&spot.name);
            let domain = spot.domain.map(|domain| store.names.intern(domain));
            let category = spot.category.map(|category| store.names.intern(category));
            store.labels.push(Label { name, domain, category, color: None });
            store.ranges.push(tables::Range {
                time: interval(spot.time),
                label: LabelId(store.labels.len() as u32 - 1),
                thread: ThreadId(spot.thread as u32),
                parent: spot.parent.map(|parent| RangeId(parent as u32)).into(),
                is_open: false,
            });
        }
        for (row, call) in self.calls.iter().enumerate() {
            let kind = CallKind {
                name: store.names.intern(call.name),
                api: Api::Driver,
                class: call.class,
                result: 0,
                captured: false,
                empty: false,
                has_returned: call.returned,
                share: None,
                range_is_unknown: false,
            };
            let kind = store.intern_call_kind(kind);
            let (start, end) = call.time;
            store.calls.push(tables::Call {
                time: interval((start, if call.returned { end } else { start })),
                correlation_id: row as u32 + 1,
                kind,
                thread: ThreadId(call.thread as u32),
                range: call.range.map(|range| RangeId(range as u32)).into(),
            });
        }
        for ran in &self.ran {
            let place = {
                let mut place = cupti::Place::default();
                (place.device, place.context, place.stream) = (ran.device, 1, ran.stream);
                place
            };
            let what = match ran.kind {
                OperationKind::Kernel => {
                    let name = store.names.intern(ran.name);
                    let names = KernelNames { name, demangled: None, short: None };
                    What::Kernel { names, details: cupti::Kernel::default() }
                }
                OperationKind::Copy => {
                    let mut copy = cupti::Memcpy::default();
                    (copy.kind, copy.bytes) = (direction(ran.bytes), ran.bytes);
                    What::Copy(copy)
                }
                OperationKind::Memset => {
                    let mut memset = cupti::Memset::default();
                    memset.bytes = ran.bytes;
                    What::Memset(memset)
                }
                OperationKind::Graph => What::Graph(WholeGraph { executable: 1, template: None }),
            };
            let work = store.intern_work(Work::new(what, place));
            let id = ran.call.map_or(0, |call| call as u32 + 1);
            let mut operation = tables::Operation::new(work, ran.time.map(interval), id);
            operation.captured = ran.captured.map(|range| RangeId(range as u32)).into();
            store.operations.push(operation);
        }
        profile_of(store)
    }

    /// A range and its ancestors.
    pub(crate) fn ancestors(&self, range: Option<usize>) -> Vec<usize> {
        std::iter::successors(range, |range| self.ranges[*range].parent).collect()
    }

    pub(crate) fn path(&self, range: usize) -> String {
        let mut names: Vec<_> = self
            .ancestors(Some(range))
            .iter()
            .map(|range| self.ranges[*range].name.clone())
            .collect();
        names.reverse();
        names.join("/")
    }

    pub(crate) fn range_of(&self, ran: &Ran) -> Option<usize> {
        ran.call.and_then(|call| self.calls[call].range)
    }
}

pub(crate) fn direction(bytes: u64) -> CopyKind {
    if bytes.is_multiple_of(2) { CopyKind::HostToDevice } else { CopyKind::DeviceToHost }
}

/// Generates nested ranges, consecutive calls, and operations at any time.
pub(crate) fn random(rng: &mut Rng) -> Made {
    let mut made = Made { threads: rng.usize(1..=3), ..Made::default() };
    for thread in 0..made.threads {
        let mut open: Vec<usize> = Vec::new();
        let mut at = rng.u64(0..60);
        let mut call = None;
        while at < LENGTH {
            match rng.u32(0..10) {
                0..3 if open.len() < 4 => {
                    // Some ranges have a parent on another thread, as a context gives.
                    let before = made.ranges.iter().position(|spot| spot.thread != thread);
                    let handed = before.filter(|&range| made.ranges[range].time.0 < at);
                    let parent = open.last().copied().or(handed.filter(|_| rng.bool()));
                    made.ranges.push(Spot {
                        name: format!("r{}", rng.u32(0..3)),
                        domain: rng.bool().then_some("lib"),
                        category: rng.bool().then_some("io"),
                        thread,
                        parent,
                        time: (at, LENGTH),
                    });
                    open.push(made.ranges.len() - 1);
                }
                3..5 => {
                    if let Some(range) = open.pop() {
                        made.ranges[range].time.1 = at;
                    }
                }
                5..9 => {
                    let (name, class) = [
                        ("cuLaunchKernel", CallClass::KernelLaunch),
                        ("cuMemAlloc_v2", CallClass::Alloc),
                        ("cuStreamSynchronize", CallClass::Synchronize),
                    ][rng.usize(0..3)];
                    let end = (at + rng.u64(0..20)).min(LENGTH);
                    let range = open.last().copied();
                    let time = (at, end);
                    made.calls.push(TestCall { name, class, thread, range, time, returned: true });
                    call = Some(made.calls.len() - 1);
                    at = end;
                }
                _ => {}
            }
            at += rng.u64(0..15);
        }
        if let Some(call) = call.filter(|_| rng.u32(0..4) == 0) {
            made.calls[call].returned = false;
            made.calls[call].time.1 = LENGTH;
        }
    }
    let (calls, ranges) = (made.calls.len(), made.ranges.len());
    for _ in 0..rng.usize(0..30) {
        let start = rng.u64(0..LENGTH);
        let end = (start + rng.u64(0..40)).min(LENGTH);
        made.ran.push(Ran {
            kind: [OperationKind::Kernel, OperationKind::Copy, OperationKind::Memset]
                [rng.usize(0..3)],
            name: ["gemm", "relu", "_Z4axpyIfEvPT_", "ncclDevKernel_AllReduce"][rng.usize(0..4)],
            device: rng.u32(0..2),
            stream: rng.u32(0..3),
            bytes: rng.u64(1..9),
            time: (rng.u32(0..12) != 0).then_some((start, end)),
            call: (calls != 0 && rng.u32(0..8) != 0).then(|| rng.usize(0..calls)),
            captured: (ranges != 0 && rng.bool()).then(|| rng.usize(0..ranges)),
        });
    }
    made.ran.sort_by_key(|ran| ran.time.map_or(0, |(start, _)| BASE + start));
    made
}

pub(crate) fn programs(count: u32) -> impl Iterator<Item = (u64, Made, Profile)> {
    let first = std::env::var("RANDOM_PROGRAMS_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or(0_u64);
    (first..first + u64::from(count)).map(|seed| {
        let made = random(&mut Rng::with_seed(seed));
        let profile = made.profile();
        (seed, made, profile)
    })
}
