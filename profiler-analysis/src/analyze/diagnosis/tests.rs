//! Synthetic runs with given times, so that every nanosecond of the diagnosis is known.

use crate::prelude::*;
use std::time::Duration;

use cupti::{CallClass, MemoryKind, SynchronizationKind};

use super::*;
use crate::analyze::scorecard::ScoreKind;
use profiler_core::profile::RecordingInfo;
use profiler_core::tables::{
    self, Api, Builder, CallId, CallKind, KernelNames, Label, LabelId, Maybe, RangeId, Session,
    Tables, ThreadId, What, Work,
};

pub(crate) const BASE: u64 = 1_000_000;
pub(crate) const US: u64 = 1_000;

/// GPU work.
#[derive(Clone, Copy)]
pub(crate) enum Job {
    /// Name, and blocks of 128 threads.
    Kernel(&'static str, u32),
    /// Bytes from the host, from pageable memory or not.
    In(u64, bool),
    /// Bytes to the host.
    Out(u64),
}

/// A synthetic program, built call by call on one host thread.
pub(crate) struct Program {
    pub(crate) store: Tables,
    info: RecordingInfo,
    pub(crate) now: u64,
    pub(crate) open: Vec<RangeId>,
    /// The end of work on each stream.
    pub(crate) streams: FxHashMap<u32, u64>,
    pub(crate) next_id: u32,
    /// The thread and process of what follows.
    pub(crate) thread: (ThreadId, u32),
}

impl Program {
    pub(crate) fn new() -> Self {
        let mut store = Tables::default();
        store.threads.push(tables::Thread { id: 7, process: 0, name: None, priority: None });
        let info = serde_json::json!({
            "recorded_at_s": 0, "cupti_version": 0, "cuda_driver_version": 0,
            "driver_release": null, "recorder_version": "",
            "devices": [{
                "id": 0, "name": "a GPU", "compute_capability": (9, 0), "multiprocessors": 132,
                "memory_bytes": 1 << 30,
            }],
        });
        let info = serde_json::from_value(info).unwrap();
        let (open, streams) = (Vec::new(), FxHashMap::default());
        let thread = (ThreadId(0), 0);
        Self { store, info, now: BASE, open, streams, next_id: 1, thread }
    }

    /// Goes on, from the start of the session, in another thread and process.
    pub(crate) fn process(&mut self, process: u32) {
        self.thread = (ThreadId(self.store.threads.len() as u32), process);
        let (id, name) = (self.thread.0.at() as u32, None);
        self.store.threads.push(tables::Thread { id, process, name, priority: None });
        self.now = BASE;
    }

    pub(crate) fn range(&mut self, name: &str, inside: impl FnOnce(&mut Self)) {
        let name = self.store.names.intern(name);
        self.store.labels.push(Label { name, domain: None, category: None, color: None });
        let id = RangeId(self.store.ranges.len() as u32);
        self.store.ranges.push(tables::Range {
            time: Interval { start_ns: self.now, end_ns: self.now },
            label: LabelId(self.store.labels.len() as u32 - 1),
            thread: self.thread.0,
            parent: self.open.last().copied().into(),
            is_open: false,
        });
        self.open.push(id);
        inside(self);
        self.open.pop();
        self.store.ranges[id.at()].time.end_ns = self.now;
    }

    /// Host time without a call.
    pub(crate) fn host(&mut self, ns: u64) {
        self.now += ns;
    }

    pub(crate) fn call(&mut self, name: &str, class: CallClass, until: u64) -> CallId {
        let kind = CallKind::new(self.store.names.intern(name), Api::Driver, class);
        let kind = self.store.intern_call_kind(kind);
        let id = CallId(self.store.calls.len() as u32);
        self.store.calls.push(tables::Call {
            time: Interval { start_ns: self.now, end_ns: until },
            correlation_id: self.next_id,
            kind,
            thread: self.thread.0,
            range: self.open.last().copied().into(),
        });
        self.next_id += 1;
        self.now = until;
        id
    }

    /// A call of 4 us. Its work begins 1 us later or after its stream's. Pageable copies block the
    /// host.
    pub(crate) fn launch(&mut self, stream: u32, job: Job, ns: u64) {
        let free = self.streams.get(&stream).copied().unwrap_or(0);
        let called = self.now;
        let start_ns = (called + 5 * US).max(free);
        let end_ns = start_ns + ns;
        self.streams.insert(stream, end_ns);
        let mut place = cupti::Place::default();
        (place.device, place.context, place.stream) = (u32::from(stream >= 100), 1, stream);
        let copy = |kind, bytes, pageable: bool| {
            let mut copy = cupti::Memcpy::default();
            (copy.kind, copy.bytes, copy.place) = (kind, bytes, place);
            let host = if pageable { MemoryKind::PAGEABLE } else { MemoryKind::PINNED };
            (copy.source, copy.destination) = match kind {
                cupti::CopyKind::HostToDevice => (host, MemoryKind::DEVICE),
                _ => (MemoryKind::DEVICE, host),
            };
            What::Copy(copy)
        };
        let (name, class, blocks_host) = match job {
            Job::Kernel(..) => ("cuLaunchKernel", CallClass::KernelLaunch, false),
            Job::In(bytes, pageable) => {
                ("cuMemcpyHtoDAsync_v2", CallClass::Memcpy, pageable && bytes > 64 << 10)
            }
            Job::Out(_) => ("cuMemcpyDtoHAsync_v2", CallClass::Memcpy, true),
        };
        let what = match job {
            Job::Kernel(name, blocks) => {
                let mut details = cupti::Kernel::default();
                (details.grid, details.block) = ([blocks, 1, 1], [128, 1, 1]);
                (details.registers_per_thread, details.place) = (16, place);
                let name = self.store.names.intern(name);
                What::Kernel { names: KernelNames { name, demangled: None, short: None }, details }
            }
            Job::In(bytes, pageable) => copy(cupti::CopyKind::HostToDevice, bytes, pageable),
            Job::Out(bytes) => copy(cupti::CopyKind::DeviceToHost, bytes, true),
        };
        let until = if blocks_host { end_ns + 2 * US } else { called + 4 * US };
        let correlation_id = self.next_id;
        self.call(name, class, until);
        let work = Work { process: self.thread.1, ..Work::new(what, place) };
        let work = self.store.intern_work(work);
        let time = Interval { start_ns, end_ns };
        self.store.operations.push(tables::Operation::new(work, Some(time), correlation_id));
    }

    pub(crate) fn kernel(&mut self, ns: u64) {
        self.launch(7, Job::Kernel("work", 4_000), ns);
    }

    /// Waits for one stream or all, and returns 2 us after their end.
    pub(crate) fn wait_for(&mut self, stream: Option<u32>) {
        let done = match stream {
            Some(stream) => self.streams.get(&stream).copied().unwrap_or(0),
            None => self.streams.values().copied().max().unwrap_or(0),
        };
        let until = done.max(self.now) + 2 * US;
        let (kind, name) = match stream {
            Some(_) => (SynchronizationKind::Stream, "cuStreamSynchronize"),
            None => (SynchronizationKind::Context, "cuCtxSynchronize"),
        };
        self.synchronization(kind, stream);
        self.call(name, CallClass::Synchronize, until);
    }

    /// The record of the next call, which synchronizes.
    pub(crate) fn synchronization(
        &mut self,
        kind: SynchronizationKind,
        stream: Option<u32>,
    ) -> &mut cupti::Synchronization {
        let mut record = cupti::Synchronization::default();
        (record.kind, record.context, record.stream) = (kind, 1, stream);
        record.correlation_id = self.next_id;
        let row = tables::Synchronization { record, call: Maybe::NONE, process: self.thread.1 };
        self.store.synchronizations.push(row);
        &mut self.store.synchronizations.last_mut().unwrap().record
    }

    /// A stream waits for all work of another so far; the call takes 1 us.
    pub(crate) fn wait_event(&mut self, stream: u32, other: u32) {
        self.synchronization(SynchronizationKind::StreamWaitEvent, Some(stream)).event = Some(1);
        self.call("cuStreamWaitEvent", CallClass::WaitEvent, self.now + US);
        let end = self.streams.get(&other).copied().unwrap_or(0);
        let own = self.streams.entry(stream).or_default();
        *own = end.max(*own);
    }

    pub(crate) fn wait(&mut self) {
        self.wait_for(None);
    }

    pub(crate) fn profile(mut self) -> Profile {
        let end = self.streams.values().copied().max().unwrap_or(0).max(self.now);
        end_session(&mut self.store, (BASE, end));
        profile_of(self.store, self.info)
    }

    fn diagnose(self) -> Diagnosis {
        let profile = self.profile();
        profile.health().assert_complete();
        profile.diagnose()
    }
}

/// Sorts the operations that a test made, and adds the session.
pub(crate) fn end_session(store: &mut Tables, window_ns: (u64, u64)) {
    store.operations.sort_by_key(tables::Operation::start_ns);
    store.session = Session { window_ns, windows_ns: vec![window_ns], ..Session::default() };
}

/// The profile of rows that a test made.
pub(crate) fn profile_of(tables: Tables, info: RecordingInfo) -> Profile {
    let mut builder = Builder::new(info);
    *builder.tables() = tables;
    Profile::from(builder.finish().unwrap())
}

/// A program of 20 equal steps.
pub(crate) fn steps(mut step: impl FnMut(&mut Program)) -> Program {
    let mut program = Program::new();
    for _ in 0..20 {
        program.range("step", &mut step);
    }
    program
}

fn verdict_of(program: Program) -> (Option<Bottleneck>, Diagnosis) {
    let diagnosis = program.diagnose();
    (diagnosis.verdict().bottleneck, diagnosis)
}

#[test]
fn every_nanosecond_of_the_clock_has_one_owner() {
    let profile = steps(|p| {
        p.host(30 * US);
        p.range("load", |p| p.host(20 * US));
        p.launch(7, Job::In(1 << 20, true), 100 * US);
        p.kernel(50 * US);
        p.kernel(10 * US);
        p.launch(8, Job::In(1 << 20, false), 30 * US);
        p.wait();
        p.launch(7, Job::Out(100), 3 * US);
    })
    .profile();
    let diagnosis = profile.diagnose();
    let verdict = diagnosis.verdict();
    let sum: Duration = verdict.parts.iter().map(|part| part.time).sum();
    assert_eq!(sum, verdict.clock);
    assert_eq!(verdict.clock, profile.duration());
    let us = |part| verdict.time_of(part).as_nanos() as u64 / US / 20;
    // The copy on the other stream is hidden behind kernels. Host and loading time are as given,
    // less the time that the blocking copy still ran into the step.
    assert_eq!(us(Part::Kernels), 60);
    assert_eq!(us(Part::Loading), 20);
    assert_eq!(us(Part::Host), 30);
    // The copy, its call before it, and 2 us of the call after it.
    assert_eq!(us(Part::Copies), 100 + 5 + 2);
    let whole: f64 = verdict.parts.iter().map(|part| part.time.as_secs_f64()).sum();
    assert!((whole - verdict.clock.as_secs_f64()).abs() < 1e-12);
}

/// Attribution of random programs matches a count nanosecond by nanosecond.
#[test]
fn random_programs_are_attributed_nanosecond_by_nanosecond() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let mut program = Program::new();
        for _ in 0..rng.usize(1..12) {
            let (stream, ns) = (rng.u32(1..4), rng.u64(1..3_000));
            match rng.u32(0..7) {
                0 => program.host(ns),
                1 => program.range("load", |p| p.host(ns)),
                2 => program.wait_for(rng.bool().then_some(stream)),
                3 => program.launch(stream, Job::In(rng.u64(0..100_000), rng.bool()), ns),
                4 => program.launch(stream, Job::Kernel("ncclKernel", 8), ns),
                _ => program.launch(stream, Job::Kernel("work", 64), ns),
            }
        }
        let profile = program.profile();
        let mut covered = vec![0_u8; profile.duration().as_nanos() as usize];
        for operation in profile.operations() {
            let bit = match operation.as_kernel().map(|kernel| kernel.name().to_owned()) {
                Some(name) if name == "work" => 1,
                Some(_) => 2,
                None => 4,
            };
            let time = operation.interval().unwrap();
            for at in time.start_ns..time.end_ns {
                covered[(at - BASE) as usize] |= bit;
            }
        }
        let count = |is: &dyn Fn(usize) -> bool| (0..covered.len()).filter(|at| is(*at)).count();
        let diagnosis = profile.diagnosis(Thresholds::new());
        let sums = clock::Sums::from_pieces(diagnosis.clock().pieces.iter());
        let kernels = count(&|at| covered[at] & 1 != 0);
        assert_eq!(sums.get(Part::Kernels), kernels as u64);
        let alone = count(&|at| covered[at] == 2);
        assert_eq!(sums.get(Part::Communication), alone as u64);
        // From the first to the last known time.
        let store = profile.tables();
        let ends = store.calls.iter().map(|c| c.time).chain(store.ranges.iter().map(|r| r.time));
        let ends = ends.chain(store.operations.iter().filter_map(|operation| operation.time()));
        let (first, last) = ends.fold((u64::MAX, 0), |(first, last), time| {
            (first.min(time.start_ns), last.max(time.end_ns))
        });
        if profile.operations().next().is_some() {
            assert_eq!(sums.total(), last - first);
        }
        // In order, without holes.
        let pieces = &diagnosis.clock().pieces;
        assert!(pieces.windows(2).all(|two| two[0].time.end_ns == two[1].time.start_ns));
        let busy: u64 = pieces.iter().filter(|p| !p.is_idle).map(|p| p.time.ns()).sum();
        assert_eq!(busy, count(&|at| covered[at] != 0) as u64);
    }
}

/// A range that began long before the session, and ends long after it, adds no time.
#[test]
fn time_outside_the_session_is_not_idle() {
    let mut program = Program::new();
    program.now += 10 * US;
    program.range("train", |p| (0..20).for_each(|_| p.kernel(100 * US)));
    program.wait();
    let end = program.now;
    program.store.ranges[0].time = Interval { start_ns: 0, end_ns: end + 3_600_000_000_000 };
    let diagnosis = program.diagnose();
    assert_eq!(diagnosis.verdict.clock.as_nanos() as u64, end - BASE);
}

#[test]
fn launches_that_take_longer_than_their_kernels_bind() {
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        (0..50).for_each(|_| p.kernel(US));
        p.wait();
    }));
    assert_eq!(verdict, Some(Bottleneck::Launch), "{diagnosis}");
    let cause = diagnosis.verdict().cause().unwrap();
    assert!(cause.signs.iter().all(|sign| sign.is_met()), "{diagnosis}");
    // A kernel of 1 us every 4 us. A step's first counts for the wait, except in the first step.
    assert_eq!(cause.cost, Duration::from_micros(20 * 49 * 3 + 5));
    assert!((cause.estimate - 3.59).abs() < 0.01, "{}", cause.estimate);
    let operations: Vec<_> = cause.evidence.longest.iter().filter_map(|m| m.operation).collect();
    assert!(cause.evidence.count >= 20 * 49 && operations.len() == 8);
}

#[test]
fn waits_after_every_kernel_bind() {
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        for _ in 0..20 {
            p.kernel(10 * US);
            p.wait();
        }
    }));
    assert_eq!(verdict, Some(Bottleneck::Synchronization), "{diagnosis}");
    // 10 us of work in 17: the time to launch again counts for the wait.
    let cause = diagnosis.verdict().cause().unwrap();
    assert!((cause.estimate - 1.7).abs() < 0.02, "{}", cause.estimate);
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        (0..20).for_each(|_| p.kernel(10 * US));
        p.wait();
    }));
    assert_eq!(verdict, Some(Bottleneck::GpuCompute), "{diagnosis}");
}

#[test]
fn the_host_and_its_data_bind() {
    let step = |name: &'static str| {
        move |p: &mut Program| {
            p.range(name, |p| p.host(300 * US));
            p.kernel(100 * US);
            p.wait();
        }
    };
    let (verdict, diagnosis) = verdict_of(steps(step("augment")));
    assert_eq!(verdict, Some(Bottleneck::Cpu), "{diagnosis}");
    assert_eq!(diagnosis.findings()[0].kind, FindingKind::IdleGaps);
    assert_eq!(diagnosis.findings()[0].path(), Some("step/augment"));
    let (verdict, diagnosis) = verdict_of(steps(step("data loading")));
    assert_eq!(verdict, Some(Bottleneck::Data), "{diagnosis}");
    let cause = diagnosis.verdict().cause().unwrap();
    assert_eq!(cause.cost, 20 * Duration::from_micros(300));
    // The inner range has no operations of its own.
    assert!(diagnosis.ranges().iter().all(|range| range.path.as_deref() == Some("step")));
    assert_eq!(diagnosis.ranges_left_out(), 1);
}

#[test]
fn large_copies_are_the_bottleneck_unless_overlapped() {
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        p.launch(7, Job::In(16 << 20, true), 400 * US);
        p.kernel(100 * US);
        p.wait();
    }));
    assert_eq!(verdict, Some(Bottleneck::Copy), "{diagnosis}");
    assert_eq!(diagnosis.findings()[0].kind, FindingKind::PageableCopies, "{diagnosis}");
    let evidence = &diagnosis.findings()[0].evidence;
    assert_eq!(evidence.count, 20);
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        p.kernel(400 * US);
        p.launch(8, Job::In(16 << 20, false), 300 * US);
        p.wait();
    }));
    assert_eq!(verdict, Some(Bottleneck::GpuCompute), "{diagnosis}");
    assert!(diagnosis.finding(FindingKind::PageableCopies).is_none());
}

#[test]
fn communication_alone_gives_no_verdict() {
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        p.kernel(100 * US);
        p.launch(7, Job::Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24), 100 * US);
        p.wait();
    }));
    // Transfer and waiting are not distinguished in a recording.
    assert_eq!(verdict, None, "{diagnosis}");
    let why = diagnosis.verdict().inconclusive.unwrap();
    assert!(matches!(why, Inconclusive::Collectives { share } if share > 0.4), "{why}");
    let cause = diagnosis.verdict().cause_of(Bottleneck::Communication).unwrap();
    // It follows a kernel on its own stream: overlap is no advice.
    assert_eq!(cause.remedy, Bottleneck::Communication.remedy());
    assert!(!cause.remedy.contains("beside kernels") && !cause.remedy.contains("overlap"));
    // Hidden behind a kernel it costs nothing.
    let (verdict, diagnosis) = verdict_of(steps(|p| {
        p.kernel(100 * US);
        p.launch(8, Job::Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24), 90 * US);
        p.wait();
    }));
    assert_eq!(verdict, Some(Bottleneck::GpuCompute), "{diagnosis}");
}

/// Collectives on stream 8, each optionally after an event wait of that stream.
fn collectives_on_stream_8(waits_for_event: bool) -> Diagnosis {
    steps(|p| {
        p.kernel(100 * US);
        if waits_for_event {
            p.wait_event(8, 7);
        }
        p.launch(8, Job::Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24), 200 * US);
        p.wait();
    })
    .diagnose()
}

#[test]
fn overlap_is_advised_only_for_collectives_that_depend_on_no_kernel() {
    let remedy = |diagnosis: &Diagnosis| {
        diagnosis.verdict().cause_of(Bottleneck::Communication).unwrap().remedy
    };
    assert!(remedy(&collectives_on_stream_8(false)).contains("beside kernels"));
    let dependent = collectives_on_stream_8(true);
    assert_eq!(remedy(&dependent), Bottleneck::Communication.remedy());
    // The event makes the streams take turns: no finding either.
    assert!(dependent.finding(FindingKind::SerialStreams).is_none(), "{dependent}");
}

#[test]
fn a_busy_gpu_does_not_hide_an_idle_one() {
    let mut program = Program::new();
    program.launch(100, Job::Kernel("work", 4_000), 100 * US);
    for _ in 0..20 {
        program.launch(8, Job::Kernel("work", 4_000), 100 * US);
    }
    program.wait();
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    let verdict = diagnosis.verdict();
    assert_eq!((verdict.devices, verdict.clock), (2, profile.duration()));
    let kernels = verdict.time_of(Part::Kernels).as_secs_f64() / verdict.clock.as_secs_f64();
    assert!((0.5..0.56).contains(&kernels), "{kernels}: {diagnosis}");
    let busy = profile.query().busy_time().as_secs_f64() / 2.0 / verdict.clock.as_secs_f64();
    assert!((busy - kernels).abs() < 1e-6, "{busy}");
    let sum: Duration = verdict.parts.iter().map(|part| part.time).sum();
    assert!(verdict.clock - sum < Duration::from_nanos(20), "{sum:?} of {:?}", verdict.clock);
    assert!(diagnosis.to_string().contains("mean of 2 GPUs"), "{diagnosis}");
}

/// One GPU computes while the other waits for it in a collective.
#[test]
fn waiting_in_a_collective_is_not_busy() {
    let profile = steps(|p| {
        p.launch(8, Job::Kernel("work", 4_000), 900 * US);
        p.launch(100, Job::Kernel("work", 4_000), 100 * US);
        p.launch(100, Job::Kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24), 800 * US);
        p.wait();
    })
    .profile();
    let devices = profile.query().devices();
    assert_eq!(devices[1].busy, 20 * Duration::from_micros(100));
    assert_eq!(devices[1].communication, 20 * Duration::from_micros(800));
    let verdict = profile.diagnose().verdict().clone();
    // The first GPU computes all the time: without the collective the run takes as long.
    assert_eq!(verdict.bottleneck, Some(Bottleneck::GpuCompute), "{verdict}");
    let waiting = verdict.cause_of(Bottleneck::Communication).unwrap();
    assert!(waiting.share > 0.4 && waiting.estimate < 1.02, "{verdict}");
}

/// Equal steps with a kernel on each of some streams, those from 100 on the second GPU, and the host busy to the end of 1 ms.
fn steps_on(kernels: &[(u32, u64)]) -> Program {
    steps(|p| {
        let end = p.now + 1_000 * US;
        for (stream, ns) in kernels {
            p.launch(*stream, Job::Kernel("work", 4_000), *ns);
        }
        p.wait();
        p.host(end - p.now);
    })
}

/// All estimates of causes that are not compute, and of findings.
fn largest_estimate(diagnosis: &Diagnosis) -> f64 {
    let causes = diagnosis.verdict().causes.iter();
    let causes = causes.filter(|cause| cause.bottleneck != Bottleneck::GpuCompute);
    let findings = diagnosis.findings().iter().map(|found| found.estimate);
    causes.map(|cause| cause.estimate).chain(findings).fold(1.0, f64::max)
}

#[test]
fn estimates_are_bounded_by_the_busiest_gpu() {
    for kernels in [
        &[(7, 900 * US), (100, 100 * US)][..],
        &[(7, 900 * US), (100, 900 * US)],
        &[(7, 500 * US), (100, 500 * US)],
        &[(7, 600 * US), (100, 30 * US)],
        &[(7, 900 * US)],
        &[(7, 300 * US)],
    ] {
        let busiest = kernels.iter().map(|(_, ns)| *ns).max().unwrap() as f64 / 1e6;
        let profile = steps_on(kernels).profile();
        let diagnosis = profile.diagnose();
        let largest = largest_estimate(&diagnosis);
        assert!(largest <= 1.0 / busiest + 1e-3, "{kernels:?}: {largest}\n{diagnosis}");
        let card = profile.scorecard();
        let most = card.score(ScoreKind::Estimate).unwrap().value.unwrap();
        assert!(most <= 1.0 / busiest + 1e-3, "{kernels:?}\n{card}");
    }
    // 90 % beside 10 %: a mean of half the time is idle, and a tenth of it can vanish.
    let diagnosis = steps_on(&[(7, 900 * US), (100, 100 * US)]).diagnose();
    let text = diagnosis.to_string();
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::GpuCompute), "{text}");
    let idle = diagnosis.verdict().cause_of(Bottleneck::Synchronization).unwrap();
    assert!(idle.share > 0.2 && (idle.estimate - 1.0 / 0.9).abs() < 0.01, "{text}");
    assert!(idle.is_bound && text.contains("at most 1.11x faster without it"), "{text}");
    assert!(text.contains("as a mean, 10.0 % on the busiest GPU"), "{text}");
}

/// Two GPUs that take turns: one of them always runs, and each is idle for half the time.
#[test]
fn gpus_that_take_turns_leave_half_the_time() {
    let diagnosis = steps(|p| {
        for stream in [7, 100] {
            p.launch(stream, Job::Kernel("work", 4_000), 500 * US);
            p.wait();
        }
    })
    .diagnose();
    let largest = largest_estimate(&diagnosis);
    assert!((1.9..=2.1).contains(&largest), "{largest}\n{diagnosis}");
}

#[test]
fn gpus_with_a_kernel_of_no_length_are_unused_and_not_averaged() {
    let mut program = Program::new();
    program.launch(100, Job::Kernel("once", 1), 2 * US);
    for _ in 0..20 {
        program.range("step", |p| {
            p.kernel(900 * US);
            p.wait();
            p.host(90 * US);
        });
    }
    let profile = program.profile();
    let diagnosis = profile.diagnose();
    let text = diagnosis.to_string();
    let verdict = diagnosis.verdict();
    assert_eq!((verdict.devices, &verdict.unused_devices[..]), (1, &[1][..]), "{text}");
    assert_eq!(verdict.bottleneck, Some(Bottleneck::GpuCompute), "{text}");
    assert!(verdict.time_of(Part::Kernels).as_secs_f64() > 0.89 * verdict.clock.as_secs_f64());
    assert!(text.contains(", without GPU 1 (unused): kernels "), "{text}");
    let note = diagnosis.finding(FindingKind::UnderusedGpu).unwrap();
    assert_eq!(note.title, "GPU 1 is unused: busy for at most 2.000 us, GPU 0 for 18.00 ms");
    assert_eq!((note.estimate, note.cost), (1.0, Duration::ZERO));
    assert!(largest_estimate(&diagnosis) < 1.0 / 0.89, "{text}");
    let busy = profile.scorecard().score(ScoreKind::GpuBusy).cloned().unwrap();
    assert!(busy.value > Some(0.89) && busy.note.ends_with("; GPU 1 unused"), "{busy:?}");
    // A range whose work ran there alone has it.
    let own = diagnosis.thresholds().get_unused_share();
    assert_eq!(own, 0.01);
    let json = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!(json["verdict"]["unused_devices"], serde_json::json!([1]));
}

#[test]
fn verdict_from_a_range_name_is_marked() {
    let diagnosis = steps(|p| {
        p.range("load model", |p| p.range("compile", |p| p.host(300 * US)));
        p.kernel(100 * US);
        p.wait();
    })
    .diagnose();
    let text = diagnosis.to_string();
    let cause = diagnosis.verdict().cause().unwrap();
    assert_eq!(
        (cause.bottleneck, &cause.decided_by_names[..]),
        (Bottleneck::Data, &["load model".to_owned()][..])
    );
    assert!(text.contains("1. data-starved (by the name of range load model): "), "{text}");
    let found = diagnosis.finding(FindingKind::IdleGaps).unwrap();
    assert!(found.title.ends_with("while the host loads data, by the range's name"), "{text}");
}

#[test]
fn an_ordinal_shared_by_gpus_gives_no_verdict() {
    let program = |ordinal: u32| {
        let mut program = Program::new();
        (0..20).for_each(|_| program.kernel(100 * US));
        program.store.shared_ordinals.push(ordinal);
        program.diagnose().verdict().inconclusive
    };
    assert_eq!(program(0), Some(Inconclusive::SharedOrdinal { device: 0 }));
    assert_eq!(program(1), None, "nothing ran there");
}

#[test]
fn a_few_unmatched_records_leave_a_verdict_possible() {
    let program = |kernels: usize| {
        let mut program = Program::new();
        program.range("model", |p| (0..kernels).for_each(|_| p.kernel(100 * US)));
        program.wait();
        program
    };
    // Calls before the start of the recording.
    let mut early = program(3_587);
    for row in &mut early.store.operations[..10] {
        row.correlation_id = 1_000_000;
    }
    early.store.calls.drain(..10);
    early.store.ranges[0].is_open = true;
    let profile = early.profile();
    let health = profile.health();
    assert_eq!(
        (
            health.accounts.kernels.records,
            health.accounts.kernels.matched_records,
            health.accounts.kernels.records_at_start
        ),
        (3_587, 3_577, 10)
    );
    health.assert_complete();
    let diagnosis = profile.diagnose();
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::GpuCompute), "{diagnosis}");
    let unmatched = diagnosis.verdict().unmatched.unwrap();
    assert_eq!((unmatched.time, unmatched.missing), (10 * Duration::from_micros(100), 0));
    assert!(diagnosis.to_string().contains("0.28 % of the records and calls are unmatched"));

    // Missing records at the end.
    let mut late = program(3_587);
    late.store.operations.truncate(3_577);
    let profile = late.profile();
    assert!(!profile.health().is_complete());
    let verdict = profile.diagnose().verdict().clone();
    assert_eq!(verdict.bottleneck, Some(Bottleneck::GpuCompute), "{verdict}");
    let unmatched = verdict.unmatched.unwrap();
    assert_eq!((unmatched.time, unmatched.missing), (Duration::ZERO, 10));

    // In the middle they are losses, and too many prevent a verdict.
    let mut lost = program(3_587);
    lost.store.operations[100].correlation_id = 1_000_000;
    assert!(!lost.profile().health().is_complete());
    let mut many = program(100);
    many.store.operations.iter_mut().take(10).for_each(|row| row.correlation_id = 1_000_000);
    many.store.calls.drain(..10);
    let profile = many.profile();
    assert!(!profile.health().is_complete());
    assert_eq!(profile.diagnose().verdict().inconclusive, Some(Inconclusive::Incomplete));
}

/// Text and JSON state the same estimate and assumption.
#[test]
fn estimates_state_their_assumption() {
    let profile = steps(|p| {
        (0..20).for_each(|_| p.kernel(100 * US));
        p.wait();
    })
    .profile();
    let diagnosis = profile.diagnose();
    let cause = diagnosis.verdict().cause().unwrap();
    let text = diagnosis.to_string();
    assert!(cause.estimate > 1.9 && cause.estimate <= 2.0, "{text}");
    let shown = format!("about {:.2}x faster if its kernels took half the time", cause.estimate);
    assert!(text.contains(&shown), "{text}");
    let json = serde_json::to_value(&diagnosis).unwrap();
    let cause_json = &json["verdict"]["causes"][0];
    assert_eq!(cause_json["estimate"].as_f64(), Some(cause.estimate));
    assert_eq!(cause_json["assumption"], cause.assumption);
    assert_eq!((cause.is_bound, &cause_json["is_bound"]), (false, &serde_json::json!(false)));
}

#[test]
fn tiny_copies_in_a_row_are_found() {
    let tiny = |count: usize| {
        steps(move |p: &mut Program| {
            p.kernel(50 * US);
            (0..count).for_each(|_| p.launch(7, Job::Out(256), 2 * US));
        })
        .diagnose()
    };
    let diagnosis = tiny(20);
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::Synchronization), "{diagnosis}");
    assert_eq!(diagnosis.findings()[0].kind, FindingKind::TinyCopies, "{diagnosis}");
    // 19 of 20 copies, each 2 us with 7 us around it.
    assert_eq!(diagnosis.findings()[0].cost, 20 * 19 * Duration::from_micros(9));
    assert!(tiny(1).finding(FindingKind::TinyCopies).is_none());
    assert!(tiny(3).finding(FindingKind::TinyCopies).is_none());
}

#[test]
fn small_products_tails_and_serial_streams_are_found() {
    let diagnose = |jobs: Vec<(u32, Job, u64)>| {
        steps(move |p: &mut Program| {
            jobs.iter().for_each(|(stream, job, ns)| p.launch(*stream, *job, *ns));
            p.wait();
        })
        .diagnose()
    };
    // This GPU runs 132 x 16 blocks of 128 threads at once.
    let gemm = |blocks| (7, Job::Kernel("sgemm_128x64_nn", blocks), 20 * US);
    let small = diagnose(vec![gemm(132); 16]);
    assert_eq!(small.findings()[0].kind, FindingKind::SmallGemms, "{small}");
    let cost = small.findings()[0].cost.as_secs_f64();
    assert!((cost / (20.0 * 16.0 * 20e-6 * 15.0 / 16.0) - 1.0).abs() < 0.01, "{cost}");
    assert!(diagnose(vec![gemm(2112); 16]).finding(FindingKind::SmallGemms).is_none());
    assert!(diagnose(vec![gemm(132); 7]).finding(FindingKind::SmallGemms).is_none());

    let wave = |blocks| vec![(7, Job::Kernel("work", blocks), 100 * US); 4];
    let tail = diagnose(wave(2112 + 264));
    assert_eq!(tail.findings()[0].kind, FindingKind::TailEffect, "{tail}");
    // 1.125 waves take 2: 0.4375 of the kernels' time.
    let share = tail.findings()[0].cost.as_secs_f64() / (20.0 * 4.0 * 100e-6);
    assert!((share - 0.4375).abs() < 1e-6, "{share}");
    assert!(diagnose(wave(2112)).finding(FindingKind::TailEffect).is_none());
    assert!(diagnose(wave(4 * 2112 + 1900)).finding(FindingKind::TailEffect).is_none());

    let mut serial = Program::new();
    let mut beside = Program::new();
    for _ in 0..20 {
        for stream in 1..=4 {
            serial.launch(stream, Job::Kernel("part", 16), 100 * US);
            // The next stream waits for this one.
            let done = serial.streams[&stream];
            serial.streams.insert(stream % 4 + 1, done);
            beside.launch(stream, Job::Kernel("part", 16), 100 * US);
        }
    }
    let serial = serial.diagnose();
    assert_eq!(serial.findings()[0].kind, FindingKind::SerialStreams, "{serial}");
    assert!((serial.findings()[0].estimate - 4.0).abs() < 0.1, "{serial}");
    assert!(beside.diagnose().finding(FindingKind::SerialStreams).is_none());
}

#[test]
fn repeated_and_needless_calls_are_found() {
    let diagnosis = steps(|p| {
        p.call("cuMemAlloc_v2", CallClass::Alloc, p.now + 50 * US);
        p.kernel(50 * US);
        p.wait();
        p.call("cuMemFree_v2", CallClass::Free, p.now + 20 * US);
    })
    .diagnose();
    let found = diagnosis.finding(FindingKind::RepeatedAllocation).unwrap();
    assert_eq!(found.cost, 20 * Duration::from_micros(70));
    assert_eq!(diagnosis.verdict().bottleneck, Some(Bottleneck::Launch));
    // Memory that is kept is not repeated.
    let kept = steps(|p| {
        p.call("cuMemAlloc_v2", CallClass::Alloc, p.now + 50 * US);
        p.kernel(50 * US);
        p.wait();
    });
    assert!(kept.diagnose().finding(FindingKind::RepeatedAllocation).is_none());

    let twice = |again: fn(&mut Program)| {
        steps(move |p: &mut Program| {
            p.launch(1, Job::Kernel("work", 4_000), 20 * US);
            p.launch(2, Job::Kernel("work", 4_000), 20 * US);
            again(p);
        })
        .diagnose()
    };
    // The first wait is needed; a wait for the context covers its streams.
    let redundant = twice(|p| {
        p.wait_for(Some(1));
        p.wait();
        p.wait_for(Some(2));
        p.wait();
    });
    let found = redundant.finding(FindingKind::RedundantSyncs).unwrap();
    assert_eq!(found.title, "40 of 80 waits had nothing to wait for");
    assert_eq!(found.cost, 40 * Duration::from_micros(2));
    let each = twice(|p| (1..=2).for_each(|stream| p.wait_for(Some(stream))));
    assert!(each.finding(FindingKind::RedundantSyncs).is_none());
}

/// Ranges of the same name elsewhere are not steps.
#[test]
fn the_first_steps_match_the_range_itself() {
    let mut program = Program::new();
    let mut number = 0;
    for _ in 0..20 {
        program.range("forward", |p| {
            number += 1;
            p.host(if number == 1 { 900 * US } else { 0 });
            p.kernel(50 * US);
            p.wait();
        });
        program.range("train", |p| {
            for _ in 0..10 {
                p.range("forward", |p| p.kernel(10 * US));
            }
            p.wait();
        });
    }
    let diagnosis = program.diagnose();
    let found = diagnosis.finding(FindingKind::FirstIterations).unwrap();
    assert!(found.title.starts_with("the first of 20 steps takes longer"), "{}", found.title);
}

#[test]
fn the_default_stream_and_idle_gpus_are_noted() {
    let on_streams = |streams: [u32; 2]| {
        steps(move |p: &mut Program| {
            streams.iter().for_each(|s| p.launch(*s, Job::Kernel("work", 4_000), 50 * US));
            p.wait();
        })
    };
    let mut program = on_streams([7, 8]);
    let mut second = program.info.devices[0].clone();
    second.id = 1;
    program.info.devices.push(second);
    let diagnosis = program.diagnose();
    let note = diagnosis.finding(FindingKind::DefaultStream).unwrap();
    assert_eq!(note.title, "20 kernels on the default stream, beside those of 1 more");
    assert_eq!((note.cost, note.estimate), (Duration::ZERO, 1.0));
    let unused = diagnosis.finding(FindingKind::UnderusedGpu).unwrap();
    assert_eq!(unused.title, "1 of 2 GPUs used");
    let uneven = steps(|p| {
        p.launch(8, Job::Kernel("work", 4_000), 90 * US);
        p.launch(100, Job::Kernel("work", 4_000), 30 * US);
        p.wait();
    })
    .diagnose();
    let second = uneven.finding(FindingKind::UnderusedGpu).unwrap();
    assert_eq!(second.title, "GPU 1 is busy for 600.0 us, GPU 0 for 1.800 ms");
    assert_eq!((second.cost, second.estimate), (Duration::ZERO, 1.0));
    assert!(on_streams([8, 9]).diagnose().finding(FindingKind::DefaultStream).is_none());
    assert!(on_streams([7, 7]).diagnose().finding(FindingKind::DefaultStream).is_none());
}

#[test]
fn first_launches_and_first_steps_are_found() {
    let mut step = 0;
    let diagnosis = steps(|p| {
        if step == 0 {
            p.call("cuLibraryLoadData", CallClass::Unknown, p.now + 900 * US);
        }
        step += 1;
        p.kernel(100 * US);
        p.wait();
    })
    .diagnose();
    let loading = diagnosis.finding(FindingKind::LazyLoading).unwrap();
    assert_eq!(loading.cost, Duration::from_micros(900));
    let first = diagnosis.finding(FindingKind::FirstIterations).unwrap();
    assert_eq!((first.cost, first.path()), (Duration::from_micros(900), Some("step")));
}

#[test]
fn thin_evidence_gives_no_verdict() {
    let mut few = Program::new();
    (0..5).for_each(|_| few.kernel(100 * US));
    let few = few.diagnose();
    assert_eq!(few.verdict().bottleneck, None);
    let why = Inconclusive::TooFewOperations { operations: 5, least: 10 };
    assert_eq!(few.verdict().inconclusive, Some(why));
    assert!(
        few.verdict().causes.is_empty() && few.to_string().contains("5 operations are too few")
    );

    let mut lossy = steps(|p| {
        (0..3).for_each(|_| p.kernel(100 * US));
        p.wait();
    });
    lossy.store.operations.truncate(59);
    let profile = lossy.profile();
    assert!(!profile.health().is_complete());
    let diagnosis = profile.diagnose();
    assert_eq!(diagnosis.verdict().inconclusive, Some(Inconclusive::Incomplete));
    assert!(diagnosis.findings().is_empty() && diagnosis.verdict().causes.is_empty());
    let all_the_same = profile.diagnosis(Thresholds::new().incomplete(true)).run();
    assert_eq!(all_the_same.verdict().bottleneck, Some(Bottleneck::GpuCompute));

    let dear = Thresholds::new().incomplete(true).overhead_per_call(Duration::from_millis(1));
    let verdict = profile.diagnosis(dear).verdict();
    assert!(matches!(verdict.inconclusive, Some(Inconclusive::TooMuchOverhead { .. })));

    let nothing = Program::new().diagnose();
    assert_eq!(nothing.verdict().clock, Duration::ZERO);
    assert!(nothing.findings().is_empty());
}

#[test]
fn ranges_and_steps_have_verdicts_of_their_own() {
    let mut program = Program::new();
    for step in 0..12 {
        program.range("step", |p| {
            p.range("forward", |p| (0..30).for_each(|_| p.kernel(20 * US)));
            p.wait();
            p.range("post", |p| {
                for _ in 0..10 {
                    p.kernel(5 * US);
                    p.wait();
                    p.host(if step == 5 { 500 * US } else { 0 });
                }
            });
        });
    }
    let profile = program.profile();
    let diagnoser = profile.diagnosis(Thresholds::new());
    let bottleneck = |path: &str| diagnoser.range(path).unwrap().bottleneck;
    assert_eq!(bottleneck("forward"), Some(Bottleneck::GpuCompute));
    assert_eq!(bottleneck("step/post"), Some(Bottleneck::Cpu));
    let steps = diagnoser.steps("step");
    assert_eq!(steps.len(), 12);
    assert_eq!(steps[5].bottleneck, Some(Bottleneck::Cpu));
    assert_eq!(steps[4].bottleneck, Some(Bottleneck::GpuCompute), "{}", steps[4]);
    assert!(diagnoser.range("nothing").is_none());
    let paths: Vec<_> = diagnoser.run().ranges.iter().filter_map(|r| r.path.clone()).collect();
    assert_eq!(paths, ["step", "step/forward", "step/post"]);
}

#[test]
fn diagnosis_serializes_with_evidence_of_the_profile() {
    let profile = steps(|p| {
        p.launch(7, Job::In(16 << 20, true), 400 * US);
        p.kernel(100 * US);
        p.wait();
    })
    .profile();
    let diagnosis = profile.diagnose();
    let json = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!(json["verdict"]["bottleneck"], "copy");
    let cause = &json["verdict"]["causes"][0];
    assert_eq!(cause["signs"][0]["met"], true);
    assert_eq!(
        cause["cost_ns"].as_u64(),
        Some(diagnosis.verdict().causes[0].cost.as_nanos() as u64)
    );
    assert_eq!(json["findings"][0]["kind"], "pageable_copies");
    for operation in diagnosis.findings()[0].evidence.operations(&profile) {
        assert_eq!(operation.as_copy().unwrap().bytes(), 16 << 20);
    }
    assert_eq!(diagnosis.findings()[0].evidence.operations(&profile).count(), 8);
    assert!(diagnosis.verdict().causes[0].evidence.calls(&profile).count() > 0);
    // Evidence is not found in another profile.
    let other = Program::new().profile();
    assert_eq!(diagnosis.findings()[0].evidence.operations(&other).count(), 0);
}

/// At a depth of 200,000 the ranges would cost half a minute.
#[test]
fn long_run_is_sampled_less_often() {
    let looks_each = |all| (looks(all) / all, looks(all) % all);
    assert_eq!([looks(0), looks(1), looks(10_000)], [0, 64, 640_000]);
    assert_eq!(looks(100_000), 4_000_000);
    assert_eq!([1_000_000, 50_000_000].map(looks_each), [(8, 0); 2]);
    assert!((1..2_000_000).step_by(999).all(|all| looks(all) <= looks(all + 999)));
}
