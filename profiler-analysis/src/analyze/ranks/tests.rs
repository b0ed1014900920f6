//! Simulated ranks of one machine: every delay is known.

use crate::prelude::*;
use std::sync::Arc;
use std::time::Instant;

use cupti::CallClass;
use fastrand::Rng;

use super::*;
use crate::analyze::diagnosis::tests::{end_session, profile_of};
use crate::analyze::diagnosis::{FindingKind, amdahl};
use profiler_base::collectives::{COLLECTIVES_DOMAIN, fields};
use profiler_core::Health;
use profiler_core::Recording;
use profiler_core::profile::RecordingInfo;
use profiler_core::series::{Kind, Metric, Series, Source, Unit};
use profiler_core::tables::{
    self, Api, Builder, CallKind, Details, Field, FieldValue, Interval, KernelNames, Label,
    LabelId, MarkId, RangeId, Subject, Tables, ThreadId, What, Work,
};

const US: u64 = 1_000;
const BASE: u64 = 1_000_000_000_000;
const COMMUNICATOR: u64 = 0xfeed;
const TRANSFER: u64 = 50 * US;
const BYTES: u64 = 1 << 20;

/// What holds one rank up in every step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plant {
    /// The host sleeps in the range `optimizer`.
    Sleep,
    /// An additional kernel runs.
    Kernel,
    /// The kernel of the step takes longer.
    Longer,
    /// The host loads data in the range `load`.
    Loader,
    /// The kernel of the step takes longer, at a lower clock for heat.
    Throttled,
    /// A copy takes longer.
    Copy,
}

const PLANTS: [Plant; 6] =
    [Plant::Sleep, Plant::Kernel, Plant::Longer, Plant::Loader, Plant::Throttled, Plant::Copy];

pub(crate) fn recording_info() -> RecordingInfo {
    serde_json::from_value(serde_json::json!({
        "recorded_at_s": 0, "cupti_version": 0, "cuda_driver_version": 0,
        "driver_release": null, "recorder_version": "", "devices": [],
    }))
    .unwrap()
}

/// A rank that records, with its thread.
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a mut Tables,
    pub(crate) process: u32,
    pub(crate) thread: ThreadId,
    pub(crate) device: u32,
    pub(crate) next_id: u32,
    pub(crate) open: Vec<RangeId>,
}

impl<'a> Writer<'a> {
    /// Adds the process of a rank, which recorded in a window.
    pub(crate) fn new(store: &'a mut Tables, rank: u32, host: u32, window_ns: (u64, u64)) -> Self {
        let (process, thread) = (100 + rank, ThreadId(store.threads.len() as u32));
        store.threads.push(tables::Thread { id: process, process, name: None, priority: None });
        let recorded = tables::RecordedProcess {
            rank: Some(rank),
            host,
            window_ns,
            windows_ns: vec![window_ns],
            info: recording_info(),
            health: Health::default(),
        };
        let recorded = Some(Box::new(recorded));
        store.processes.push(tables::Process { id: process, name: None, recorded });
        Self { store, process, thread, device: rank, next_id: 0, open: Vec::new() }
    }

    fn label(&mut self, name: &str, domain: Option<&str>) -> LabelId {
        let name = self.store.names.intern(name);
        let domain = domain.map(|domain| self.store.names.intern(domain));
        let label = Label { name, domain, category: None, color: None };
        let known = self.store.labels.iter().position(|known| *known == label);
        let at = known.unwrap_or_else(|| {
            self.store.labels.push(label);
            self.store.labels.len() - 1
        });
        LabelId(at as u32)
    }

    pub(crate) fn range(&mut self, name: &str, start_ns: u64, end_ns: u64) {
        let label = self.label(name, None);
        let parent = self.open.last().copied().into();
        let time = Interval { start_ns, end_ns };
        self.store.ranges.push(tables::Range {
            time,
            label,
            thread: self.thread,
            parent,
            is_open: false,
        });
    }

    /// A call that ends as its work starts.
    fn call(&mut self, name: &str, class: CallClass, start_ns: u64) {
        self.call_between(name, class, start_ns - 2 * US, start_ns);
    }

    pub(crate) fn call_between(
        &mut self,
        name: &str,
        class: CallClass,
        start_ns: u64,
        end_ns: u64,
    ) {
        let kind = CallKind::new(self.store.names.intern(name), Api::Driver, class);
        let kind = self.store.intern_call_kind(kind);
        self.next_id += 1;
        self.store.calls.push(tables::Call {
            time: Interval { start_ns, end_ns },
            correlation_id: self.next_id,
            kind,
            thread: self.thread,
            range: self.open.last().copied().into(),
        });
    }

    fn place(&self) -> cupti::Place {
        let mut place = cupti::Place::default();
        (place.device, place.context, place.stream) = (self.device, 1, 7);
        place
    }

    fn operation(&mut self, work: Work, start_ns: u64, end_ns: u64) {
        let work = self.store.intern_work(work);
        let time = Interval { start_ns, end_ns };
        self.store.operations.push(tables::Operation::new(work, Some(time), self.next_id));
    }

    fn kernel(&mut self, name: &str, start_ns: u64, end_ns: u64) {
        self.call("cuLaunchKernelEx", CallClass::KernelLaunch, start_ns);
        self.kernel_of_call(name, start_ns, end_ns);
    }

    /// A kernel of the last call.
    pub(crate) fn kernel_of_call(&mut self, name: &str, start_ns: u64, end_ns: u64) {
        let mut details = cupti::Kernel::default();
        let place = self.place();
        (details.grid, details.block, details.place) = ([100, 1, 1], [128, 1, 1], place);
        let name = self.store.names.intern(name);
        let names = KernelNames { name, demangled: None, short: None };
        let mut work = Work::new(What::Kernel { names, details }, place);
        work.process = self.process;
        self.operation(work, start_ns, end_ns);
    }

    fn copy(&mut self, start_ns: u64, end_ns: u64) {
        self.call("cuMemcpyDtoHAsync_v2", CallClass::Memcpy, start_ns);
        let mut details = cupti::Memcpy::default();
        (details.place, details.bytes) = (self.place(), 1 << 20);
        let mut work = Work::new(What::Copy(details), details.place);
        work.process = self.process;
        self.operation(work, start_ns, end_ns);
    }

    pub(crate) fn collective(&mut self, at_ns: u64, sequence: u64, rank: u64, ranks: u64) {
        let label = self.label("AllReduce", Some(COLLECTIVES_DOMAIN));
        let id = MarkId(self.store.marks.len() as u32);
        let parent = self.open.last().copied();
        self.store.marks.push(tables::Mark { label, thread: self.thread, at_ns, parent });
        let numbers = [
            (fields::COMMUNICATOR, COMMUNICATOR),
            (fields::RANK, rank),
            (fields::RANKS, ranks),
            (fields::SEQUENCE, sequence),
            (fields::BYTES, BYTES),
            (fields::LAUNCH, at_ns - 3 * US),
        ];
        let unit = self.store.names.intern("");
        let field = |(name, value): (&str, u64)| Field {
            name: self.store.names.intern(name),
            unit,
            value: FieldValue::U64(value),
        };
        let fields = numbers.map(field).into();
        self.store.details.insert(Subject::Mark(id), Details { fields, ..Details::default() });
    }
}

/// A run of equal steps: the host loads, a kernel computes, the ranks reduce and go on together.
struct Simulation {
    ranks: usize,
    steps: usize,
    step_ns: u64,
    /// The standard deviation of the time of a rank in a step.
    noise_ns: f64,
    plant: Option<(usize, Plant, u64)>,
    /// The steps of a range around them; every other one has no delay. 0 without such ranges.
    window_steps: usize,
    /// Collectives of a step; the noise and the delay precede the first.
    collectives: usize,
    without: Option<usize>,
    /// A rank that is killed, and before which step.
    killed: Option<(usize, usize)>,
    /// Differences between the arrivals of two ranks, as shares of a step, in place of normal noise.
    differences: Vec<f64>,
    /// By how much the clock of each host is behind, and slow in parts per million.
    hosts: Vec<(i64, f64)>,
    /// The longest time by which a rank ends a collective after another one.
    apart_ns: u64,
}

impl Simulation {
    fn new(ranks: usize) -> Self {
        Self {
            ranks,
            steps: 50,
            step_ns: 5_000 * US,
            noise_ns: 20_000.0,
            plant: None,
            window_steps: 0,
            collectives: 1,
            without: None,
            killed: None,
            differences: Vec::new(),
            hosts: vec![(0, 0.0)],
            apart_ns: 0,
        }
    }

    fn profile(&self, rng: &mut Rng) -> Profile {
        profile_of(self.store(rng), recording_info())
    }

    /// The profile of recordings with the clocks of their hosts, which have been aligned.
    fn aligned(&self, rng: &mut Rng) -> Result<Profile, profiler_core::Error> {
        let mut builder = Builder::new(recording_info());
        *builder.tables() = self.store(rng);
        self.shift(builder.tables());
        // Of several clocks there is no common window.
        builder.tables().session.windows_ns = vec![(0, u64::MAX)];
        builder.finish().map(Profile::from)
    }

    /// Gives each row the time of its host's clock.
    fn shift(&self, store: &mut Tables) {
        let hosts: FxHashMap<u32, (i64, f64)> = (store.processes.iter())
            .map(|process| {
                let host = process.recorded.as_ref().unwrap().host as usize;
                (process.id, self.hosts[host])
            })
            .collect();
        let at = |process: u32, ns: u64| {
            let (offset_ns, ppm) = hosts[&process];
            let drift = (ns as f64 - BASE as f64) * ppm / 1e6;
            ns.checked_add_signed(-offset_ns - drift.round() as i64).unwrap()
        };
        let span = |process: u32, time: Interval| Interval {
            start_ns: at(process, time.start_ns),
            end_ns: at(process, time.end_ns),
        };
        let processes: Vec<u32> = store.threads.iter().map(|thread| thread.process).collect();
        for range in &mut store.ranges {
            range.time = span(processes[range.thread.at()], range.time);
        }
        for call in &mut store.calls {
            call.time = span(processes[call.thread.at()], call.time);
        }
        for mark in &mut store.marks {
            mark.at_ns = at(processes[mark.thread.at()], mark.at_ns);
        }
        let operations = std::mem::take(&mut store.operations).into_iter();
        let moved = operations.map(|row| {
            let process = store.work(&row).process;
            let time = row.time().map(|time| span(process, time));
            tables::Operation::new(row.work, time, row.correlation_id)
        });
        store.operations = moved.collect();
        for row in &mut store.synchronizations {
            let span = &mut row.record.span;
            (span.start_ns, span.end_ns) =
                (at(row.process, span.start_ns), at(row.process, span.end_ns));
        }
        let launch = store.names.find(fields::LAUNCH);
        for (subject, details) in &mut store.details {
            let Subject::Mark(mark) = subject else { continue };
            let process = processes[store.marks[mark.at()].thread.at()];
            for field in details.fields.iter_mut().filter(|field| Some(field.name) == launch) {
                if let FieldValue::U64(ns) = &mut field.value {
                    *ns = at(process, *ns);
                }
            }
        }
        for process in &mut store.processes {
            let recorded = process.recorded.as_mut().unwrap();
            for (start_ns, end_ns) in
                recorded.windows_ns.iter_mut().chain([&mut recorded.window_ns])
            {
                (*start_ns, *end_ns) = (at(process.id, *start_ns), at(process.id, *end_ns));
            }
        }
    }

    /// The arrivals of all ranks at the first collective of each step, and its end, in advance.
    fn store(&self, rng: &mut Rng) -> Tables {
        let gap = 20 * US;
        let mut steps = Vec::with_capacity(self.steps);
        let mut now = BASE;
        for number in 0..self.steps {
            let noise: Vec<u64> = (0..self.ranks).map(|_| self.noise(rng)).collect();
            let extra = |rank: usize| self.planted(rank, number).map_or(0, |(_, _, ns)| ns);
            let work = |rank: usize| self.step_ns + noise[rank] + extra(rank);
            let latest = now + (0..self.ranks).map(work).max().unwrap();
            steps.push((now, noise, latest));
            now = latest + self.collectives as u64 * (TRANSFER + gap);
        }
        let mut store = Tables::default();
        for rank in (0..self.ranks).filter(|rank| self.without != Some(*rank)) {
            let host = rank * self.hosts.len() / self.ranks;
            let mut writer = Writer::new(&mut store, rank as u32, host as u32, (BASE, now));
            for (number, (start, noise, latest)) in steps.iter().enumerate() {
                if self.killed == Some((rank, number)) {
                    break;
                }
                if self.window_steps != 0 && number % self.window_steps == 0 {
                    writer.open.clear();
                    let next = steps.get(number + self.window_steps);
                    writer.range("window", *start, next.map_or(now, |(start, ..)| *start));
                    writer.open.push(RangeId(writer.store.ranges.len() as u32 - 1));
                }
                let apart = if self.apart_ns == 0 { 0 } else { rng.u64(..self.apart_ns) };
                self.step(&mut writer, rank, number, (*start, noise[rank], *latest, apart));
            }
        }
        if matches!(self.plant, Some((_, Plant::Throttled, _))) {
            store.series = self.clocks(now);
        }
        end_session(&mut store, (BASE, now));
        store
    }

    /// What holds a rank up in a step.
    fn planted(&self, rank: usize, number: usize) -> Option<(usize, Plant, u64)> {
        let is_held_up = self.window_steps == 0 || number / self.window_steps % 2 == 1;
        self.plant.filter(|plant| plant.0 == rank && is_held_up)
    }

    /// The time of one rank in one step beyond the shortest.
    fn noise(&self, rng: &mut Rng) -> u64 {
        if self.differences.is_empty() {
            return (self.noise_ns * (4.0 + normal(rng)).max(0.0)) as u64;
        }
        // The difference of two ranks varies by the square root of two more than each.
        let one = self.differences[rng.usize(..self.differences.len())];
        let one = if rng.bool() { one } else { -one } * std::f64::consts::FRAC_1_SQRT_2;
        let most = self.differences.iter().fold(0.0_f64, |most, one| most.max(one.abs()));
        ((most + one) * self.step_ns as f64) as u64
    }

    /// The SM clocks of the devices, of which a throttled one is lower.
    fn clocks(&self, end_ns: u64) -> Vec<Arc<Series>> {
        let of_rank = |rank: usize| {
            let is_hot = matches!(self.plant, Some((hot, Plant::Throttled, _)) if hot == rank);
            let metrics = vec![
                Metric::new("nvml__sm_clock", "SM clock", Unit::Hertz, Kind::State),
                Metric::new("nvml__clock_event_reasons", "reasons", Unit::Flags, Kind::State),
            ];
            let mut series =
                Series::new(rank as u32, Source::Nvml, Duration::from_nanos(10_000 * US), metrics);
            let values = if is_hot { [1.6e9, f64::from(0x20)] } else { [1.8e9, 0.0] };
            for at in (BASE..end_ns).step_by(10_000 * US as usize) {
                series.push(at, at + 10_000 * US, &values).unwrap();
            }
            Arc::new(series)
        };
        (0..self.ranks).map(of_rank).collect()
    }

    fn step(
        &self,
        writer: &mut Writer<'_>,
        rank: usize,
        number: usize,
        (start, noise, latest, apart): (u64, u64, u64, u64),
    ) {
        let planted = self.planted(rank, number);
        let extra =
            |kind: Plant| planted.filter(|plant| plant.1 == kind).map_or(0, |plant| plant.2);
        let end = latest + self.collectives as u64 * (TRANSFER + 20 * US);
        writer.range("step", start, end);
        writer.open.push(RangeId(writer.store.ranges.len() as u32 - 1));
        let loaded = start + self.step_ns / 20 + extra(Plant::Loader);
        writer.range("load", start, loaded);
        let longer = extra(Plant::Longer) + extra(Plant::Throttled);
        let computed = loaded + self.step_ns * 18 / 20 + longer;
        writer.kernel("gemm", loaded + 3 * US, computed);
        let mut now = computed;
        if extra(Plant::Kernel) != 0 {
            writer.kernel("extra", now, now + extra(Plant::Kernel));
            now += extra(Plant::Kernel);
        }
        let copied = now + 20 * US + extra(Plant::Copy);
        writer.copy(now, copied);
        now += extra(Plant::Copy);
        let optimized = now + self.step_ns / 20 + noise + extra(Plant::Sleep);
        writer.range("optimizer", now, optimized - 4 * US);
        let mut arrival = optimized;
        for at in 0..self.collectives {
            let done = latest + at as u64 * (TRANSFER + 20 * US) + TRANSFER;
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)";
            writer.kernel(name, arrival, done + apart);
            let sequence = (number * self.collectives + at) as u64;
            writer.collective(arrival + 100, sequence, rank as u64, self.ranks as u64);
            arrival = done + 20 * US;
        }
        writer.open.pop();
    }
}

/// A normal value (Box-Muller).
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

#[test]
fn waits_transfers_and_bandwidths_match_the_simulation() {
    let mut simulation = Simulation::new(4);
    (simulation.noise_ns, simulation.collectives) = (0.0, 3);
    simulation.plant = Some((2, Plant::Sleep, 400 * US));
    let profile = simulation.profile(&mut Rng::with_seed(1));
    profile.health().assert_complete();
    assert_eq!(profile.collectives().len(), 4 * 50 * 3);
    assert!(profile.collectives().all(|one| one.in_kernel() == 1));
    let first = profile.collectives().next().unwrap();
    assert_eq!(first.range().unwrap().node().path(), "step");
    let ranks = profile.ranks();
    assert_eq!((ranks.matched, ranks.unmatched), (150, 0));
    let [group] = &ranks.collectives[..] else { panic!("{ranks:?}") };
    assert_eq!((group.function, group.ranks, group.count), ("AllReduce", 4, 150));
    // One of three collectives is late.
    assert_eq!((group.skew, group.max_skew), (Duration::ZERO, Duration::from_micros(400)));
    assert_eq!(group.transfer, Duration::from_micros(50));
    let rate = BYTES as f64 / TRANSFER as f64;
    assert_eq!(group.algorithm_bandwidth, Some(rate));
    // 2 (n - 1) / n of nccl-tests.
    assert!((group.bus_bandwidth.unwrap() - rate * 1.5).abs() < 1e-9);
    let waited: Vec<u128> = ranks.ranks.iter().map(|rank| rank.waited.as_micros()).collect();
    assert_eq!(waited, [20_000, 20_000, 0, 20_000]);
    assert_eq!((ranks.ranks[2].last, ranks.ranks[2].late.as_micros()), (50, 20_000));
    let bounds = ranks.speed_ups.unwrap();
    let span = 50.0 * (5_000.0 + 400.0 + 210.0) - 5_000.0 - 20.0;
    assert!(
        (bounds.stragglers - amdahl(20_000.0 / span, f64::INFINITY)).abs() < 1e-6,
        "{bounds:?}"
    );
    assert!((bounds.balance - amdahl(15_000.0 / span, f64::INFINITY)).abs() < 1e-6, "{bounds:?}");
    let text = ranks.to_string();
    assert!(text.contains("rank 2, process 102 is late by 20.00 ms"), "{text}");
    let diagnosis = profile.diagnose();
    let finding = diagnosis.finding(FindingKind::UnevenRanks).unwrap();
    assert_eq!(finding.cost, Duration::from_micros(15_000), "{finding}");
    let cause = "rank 2, process 102 is late by 20.00 ms, since its GPU is idle for the host in step/optimizer";
    assert!(finding.title.contains(cause), "{finding}");
    // 600 kernels of 50 us on 4 GPUs, of which nothing hides any.
    let transfers = diagnosis.finding(FindingKind::ExposedTransfers).unwrap();
    assert_eq!(transfers.cost, Duration::from_micros(600 * 50 / 4), "{transfers}");
    // All communication is exposed: nothing runs beside it.
    let [range] = &ranks.ranges[..] else { panic!("{ranks:?}") };
    assert_eq!((range.path.as_deref(), range.kernels), (Some("step"), 600));
    assert_eq!(range.hidden(), Duration::ZERO);
    assert_eq!(range.exposed.as_micros(), 600 * 50 + 3 * 20_000);
}

fn is_named(ranks: &Ranks, rank: usize, plant: Plant) -> bool {
    let [straggler] = &ranks.stragglers[..] else { return false };
    is_it(ranks, straggler, rank, plant)
}

fn is_it(ranks: &Ranks, straggler: &Straggler, rank: usize, plant: Plant) -> bool {
    let path = |path: &Option<String>, name: &str| {
        path.as_deref().is_some_and(|path| path.trim_start_matches("window/") == name)
    };
    let is_cause = match (&straggler.cause, plant) {
        (LateCause::HostGap { range }, Plant::Sleep) => path(range, "step/optimizer"),
        (LateCause::Data { range }, Plant::Loader) => path(range, "step/load"),
        (LateCause::ExtraKernel { kernel, .. }, Plant::Kernel) => kernel == "extra",
        (LateCause::LongerKernel { kernel }, Plant::Longer) => kernel == "gemm",
        (LateCause::SlowerClock { device, by }, Plant::Throttled) => {
            *device == rank as u32 && by.is_some()
        }
        (LateCause::Copies, Plant::Copy) => true,
        _ => false,
    };
    ranks.ranks[straggler.rank].rank == Some(rank as u32) && is_cause
}

/// The rates that the page on ranks states: 100 windows of 50 steps for each number of ranks, noise and cause.
#[test]
fn planted_stragglers_are_named_and_balanced_windows_are_not() {
    let mut rng = Rng::with_seed(24);
    // All of them take minutes without optimisation.
    let is_thorough = std::env::var_os("THOROUGH_TESTS").is_some();
    let quick = [(2, 0.01)];
    let all = [2, 8].into_iter().flat_map(|ranks| [0.002, 0.01, 0.03].map(|noise| (ranks, noise)));
    let cases: Vec<(usize, f64)> = if is_thorough { all.collect() } else { quick.into() };
    for (ranks, noise) in cases {
        let simulated = |plant, rng: &mut Rng| {
            let mut simulation = Simulation::new(ranks);
            simulation.noise_ns = noise * simulation.step_ns as f64;
            simulation.collectives = rng.usize(1..4);
            simulation.plant = plant;
            simulation.profile(rng).ranks()
        };
        let rounds = if is_thorough { 100 } else { 30 };
        let balanced = (0..rounds).filter(|_| !simulated(None, &mut rng).stragglers.is_empty());
        let wrong = balanced.count();
        assert!(wrong <= 1, "{wrong} of {rounds} balanced windows of {ranks} ranks, noise {noise}");
        // 5 % of a step, or three times the natural skew.
        // The natural skew of one window alone is off by a third.
        let mut natural = Simulation::new(ranks);
        natural.noise_ns = noise * natural.step_ns as f64;
        let skew = |ranks: &Ranks| ranks.collectives[0].skew.as_nanos() as u64;
        let mut natural: Vec<u64> =
            (0..15).map(|_| skew(&natural.profile(&mut rng).ranks())).collect();
        natural.sort_unstable();
        let late = (natural[7] * 3).max(5_000 * US / 20);
        for plant in PLANTS {
            let of = if is_thorough { 100 } else { 20 };
            let named = (0..of).filter(|_| {
                let rank = rng.usize(0..ranks);
                is_named(&simulated(Some((rank, plant, late)), &mut rng), rank, plant)
            });
            let named = named.count();
            assert!(
                named * 100 >= of * 95,
                "{named} of {of} with {plant:?}, {ranks} ranks, noise {noise}"
            );
        }
    }
}

#[test]
fn stragglers_are_found_per_instance_of_a_range() {
    for plant in [Plant::Sleep, Plant::Kernel, Plant::Loader] {
        let mut simulation = Simulation::new(3);
        (simulation.steps, simulation.window_steps, simulation.collectives) = (200, 20, 2);
        simulation.plant = Some((1, plant, 300 * US));
        let profile = simulation.profile(&mut Rng::with_seed(6));
        assert!(profile.ranks_by_range("epoch").is_none());
        let ranks = profile.ranks_by_range("win*").unwrap();
        assert_eq!(ranks.windows.len(), 10);
        for window in &ranks.windows {
            assert_eq!((&*window.path, window.collectives), ("window", 40));
            match &window.stragglers[..] {
                [] => assert_eq!(window.number % 2, 0, "{window:?}"),
                [late] => {
                    let is_named = is_it(&ranks, late, 1, plant);
                    assert!(window.number % 2 == 1 && is_named, "{window:?}");
                    let late_us = late.late.as_micros();
                    assert!((4_000..8_000).contains(&late_us), "{window:?}");
                }
                more => panic!("{more:?}"),
            }
        }
        let edges: Vec<Duration> =
            ranks.windows.iter().flat_map(|window| [window.start, window.end]).collect();
        assert!(edges.is_sorted(), "{edges:?}");
        let text = ranks.to_string();
        assert!(text.contains("in 5 of 10 instances of the range a rank is later"), "{text}");
        assert!(profile.ranks().windows.is_empty());
        // A range that is entered once is the whole run.
        simulation.window_steps = 0;
        let profile = simulation.profile(&mut Rng::with_seed(6));
        let ranks = profile.ranks_by_range("step").unwrap();
        assert!(ranks.windows.len() == 200, "{}", ranks.windows.len());
        assert!(ranks.windows.iter().all(|window| window.stragglers.is_empty()));
    }
}

/// Two ranks whose collectives run beside the backward pass, as in DDP. Rank 1 is held up at the start of each step, by its host or by a
/// kernel. While rank 0 waits in a collective, its kernels may be slower, until it is no longer ahead.
fn overlapping(by_kernel: bool, slows_down: bool) -> Profile {
    let mut store = Tables::default();
    let step = BUCKETS * BUCKET + DELAY + 200 * US;
    let end = BASE + 50 * step;
    for rank in 0..2_u32 {
        let mut writer = Writer::new(&mut store, rank, 0, (BASE, end));
        for number in 0..50 {
            let start = BASE + number * step;
            if by_kernel && rank == 1 {
                writer.kernel("spin", start + 10 * US, start + DELAY + 10 * US);
            } else {
                writer.range("checkpoint", start, start + DELAY * u64::from(rank));
            }
            // Both reduce a bucket once the later rank has it.
            let ready = |rank: u32, bucket: u64| {
                let slower = if slows_down { DELAY * bucket / (BUCKETS - 1) } else { 0 };
                let late = if rank == 1 { DELAY } else { slower };
                start + 10 * US + (bucket + 1) * BUCKET + late
            };
            for bucket in 0..BUCKETS {
                let done = ready(rank, bucket);
                let from = match bucket {
                    0 => done - BUCKET,
                    _ => ready(rank, bucket - 1),
                };
                writer.kernel("gemm", from + 3 * US, done);
                let before = if bucket == 0 { 0 } else { ready(1, bucket - 1) + TRANSFER };
                let at = done.max(before);
                let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)";
                writer.kernel(name, at, ready(1, bucket) + TRANSFER);
                writer.collective(at + 100, number * BUCKETS + bucket, rank.into(), 2);
            }
        }
    }
    end_session(&mut store, (BASE, end));
    profile_of(store, recording_info())
}

const BUCKETS: u64 = 8;
const BUCKET: u64 = 400 * US;
const DELAY: u64 = 300 * US;

/// One delay makes every collective of a step wait, and is counted once.
#[test]
fn delay_before_overlapping_collectives_is_counted_once() {
    for (by_kernel, slows_down) in [(false, false), (false, true), (true, false), (true, true)] {
        let case = format!("by a kernel: {by_kernel}, slows down: {slows_down}");
        let ranks = overlapping(by_kernel, slows_down).ranks();
        assert_eq!(ranks.matched, 50 * BUCKETS);
        let [straggler] = &ranks.stragglers[..] else { panic!("{case}: {ranks}") };
        assert_eq!(straggler.rank, 1, "{case}: {ranks}");
        let expected = match by_kernel {
            // The first one precedes the first collective.
            true => LateCause::ExtraKernel { kernel: "spin".to_owned(), calls: 49 },
            false => LateCause::HostGap { range: Some("checkpoint".to_owned()) },
        };
        assert_eq!(straggler.cause, expected, "{case}: {ranks}");
        let late_us = straggler.late.as_micros() / 50;
        assert!((290..=330).contains(&late_us), "{case}: {late_us} us a step: {ranks}");
        // The waits that are hidden are waits all the same.
        assert!(ranks.ranks[0].waited.as_micros() / 50 > 3 * 300, "{case}: {ranks}");
    }
}

/// How far two H100 of a real run arrived apart at collectives that nothing held up, as shares of a step.
fn real_differences() -> Vec<f64> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/recordings/nccl-2xh100");
    let load = |rank| Recording::load(format!("{folder}/rank-{rank}.gpuprof")).unwrap();
    let profile = Profile::from_recordings([load(0), load(1)]).unwrap();
    let matches = Matches::new(&profile);
    let balanced: Vec<&Match> = matches.all.iter().filter(|one| one.bytes == 1 << 20).collect();
    let step = {
        let ends = balanced.windows(2).map(|two| two[1].latest_ns - two[0].latest_ns);
        let mut ends: Vec<u64> = ends.collect();
        ends.sort_unstable();
        ends[ends.len() / 2] as f64
    };
    balanced.iter().map(|one| one.skew_ns() as f64 / step).collect()
}

/// The same with the spread of a real run.
#[test]
fn stragglers_are_named_amid_the_jitter_of_a_real_run() {
    let differences = real_differences();
    assert_eq!(differences.len(), 50);
    let mut sorted = differences.clone();
    sorted.sort_by(f64::total_cmp);
    println!("median skew {:.3} %, longest {:.3} %", 100.0 * sorted[25], 100.0 * sorted[49]);
    let mut rng = Rng::with_seed(40);
    let mut simulated = |plant| {
        let mut simulation = Simulation::new(2);
        simulation.differences = differences.clone();
        simulation.plant = plant;
        simulation.profile(&mut rng).ranks()
    };
    let natural = simulated(None).collectives[0].skew.as_nanos() as u64;
    let of = if std::env::var_os("THOROUGH_TESTS").is_some() { 100 } else { 20 };
    let wrong = (0..of).filter(|_| !simulated(None).stragglers.is_empty()).count();
    assert!(wrong <= 1, "{wrong} of {of} balanced windows");
    let late = (3 * natural).max(5_000 * US / 20);
    for plant in PLANTS {
        let named = (0..of).filter(|at| {
            let rank = at % 2;
            is_named(&simulated(Some((rank, plant, late))), rank, plant)
        });
        let named = named.count();
        assert!(
            named * 100 >= of * 95,
            "{named} of {of} with {plant:?}, natural skew {natural} ns"
        );
    }
}

#[test]
fn missing_rank_is_reported_and_the_others_compared() {
    let mut simulation = Simulation::new(4);
    simulation.plant = Some((1, Plant::Sleep, 400 * US));
    simulation.without = Some(3);
    let ranks = simulation.profile(&mut Rng::with_seed(3)).ranks();
    let [missing] = &ranks.missing[..] else { panic!("{ranks:?}") };
    assert_eq!((&missing.ranks[..], missing.count, missing.of), (&[3][..], 1, 4));
    assert!(is_named(&ranks, 1, Plant::Sleep), "{ranks}");
    assert!(ranks.to_string().contains("MISSING: 1 of 4 ranks of communicator feed"), "{ranks}");
    let mut alone = Simulation::new(2);
    alone.without = Some(0);
    let ranks = alone.profile(&mut Rng::with_seed(3)).ranks();
    assert_eq!((ranks.matched, ranks.unmatched, ranks.speed_ups), (0, 50, None));
    assert!(ranks.stragglers.is_empty() && ranks.missing.len() == 1);
}

#[test]
fn rank_that_was_killed_is_compared_until_then() {
    let mut simulation = Simulation::new(2);
    simulation.plant = Some((1, Plant::Sleep, 400 * US));
    simulation.killed = Some((1, 30));
    let ranks = simulation.profile(&mut Rng::with_seed(3)).ranks();
    assert_eq!((ranks.matched, ranks.unmatched), (30, 20), "{ranks}");
    assert!(is_named(&ranks, 1, Plant::Sleep), "{ranks}");
    // The others go on.
    (simulation.ranks, simulation.killed) = (3, Some((1, 45)));
    let ranks = simulation.profile(&mut Rng::with_seed(3)).ranks();
    assert_eq!((ranks.matched, ranks.unmatched), (50, 0), "{ranks}");
    assert!(is_named(&ranks, 1, Plant::Sleep) && ranks.missing.is_empty(), "{ranks}");
}

#[test]
fn thousand_ranks_take_few_rows() {
    let mut simulation = Simulation::new(1_000);
    simulation.plant = Some((500, Plant::Sleep, 500 * US));
    let ranks = simulation.profile(&mut Rng::with_seed(5)).ranks();
    assert!(is_named(&ranks, 500, Plant::Sleep));
    assert_eq!((ranks.ranks.len(), ranks.matched), (1_000, 50));
    assert!(ranks.to_string().lines().count() < 60, "{ranks}");
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn thousand_ranks_take_time_in_proportion() {
    let simulated = |ranks| {
        let mut simulation = Simulation::new(ranks);
        simulation.plant = Some((ranks / 2, Plant::Sleep, 500 * US));
        let profile = simulation.profile(&mut Rng::with_seed(5));
        let began = Instant::now();
        drop(profile.ranks());
        began.elapsed()
    };
    let _ = simulated(100);
    let (few, many) = (simulated(100), simulated(1_000));
    // Ten times the ranks.
    assert!(many < 40 * few, "{few:?} and {many:?}");
}

#[test]
fn profile_without_collectives_has_no_ranks() {
    let mut simulation = Simulation::new(2);
    simulation.steps = 1;
    (simulation.collectives, simulation.noise_ns) = (0, 0.0);
    let ranks = simulation.profile(&mut Rng::with_seed(9)).ranks();
    assert_eq!((ranks.matched, ranks.ranks.len(), ranks.speed_ups), (0, 0, None));
    assert_eq!(ranks.to_string(), "0 ranks, 0 collectives matched");
}

/// Two hosts whose clocks are minutes apart and drift: ranks are compared as on one clock.
#[test]
fn ranks_of_hosts_with_other_clocks_are_compared_within_the_stated_error() {
    let mut simulation = Simulation::new(8);
    simulation.hosts = vec![(0, 0.0), (183_000_000_000, 35.0), (-419_000_000, -12.0), (77, 0.0)];
    (simulation.apart_ns, simulation.collectives) = (4 * US, 2);
    simulation.plant = Some((5, Plant::Sleep, 400 * US));
    let one_clock = simulation.profile(&mut Rng::with_seed(11));
    let profile = simulation.aligned(&mut Rng::with_seed(11)).unwrap();
    let hosts: Vec<usize> = profile.processes().map(|process| process.host()).collect();
    assert_eq!(hosts, [0, 0, 1, 1, 2, 2, 3, 3]);
    let [first, others @ ..] = profile.hosts() else { panic!("{:?}", profile.hosts()) };
    assert_eq!((first.offset_ns, first.collectives), (0, 0));
    let starts = |profile: &Profile| -> Vec<(u32, u64)> {
        let mut starts: Vec<_> = profile
            .kernels()
            .map(|kernel| (kernel.process_id(), kernel.start().unwrap()))
            .map(|(process, at)| (process, at.as_nanos() as u64))
            .collect();
        starts.sort_unstable();
        starts
    };
    let (expected, found) = (starts(&one_clock), starts(&profile));
    assert_eq!(expected.len(), found.len());
    let process_host: FxHashMap<u32, usize> =
        profile.processes().map(|process| (process.id(), process.host())).collect();
    for ((process, expected), (_, found)) in expected.iter().zip(&found) {
        let clock = &profile.hosts()[process_host[process]];
        let error = expected.abs_diff(*found);
        assert!(error <= clock.spread_ns.min(clock.error_bound_ns), "{error} ns, {clock:?}");
    }
    for (clock, (offset, ppm)) in others.iter().zip(&simulation.hosts[1..]) {
        assert_eq!((clock.collectives, clock.contradictions), (100, 0), "{clock:?}");
        assert!((clock.drift_ppm - ppm).abs() < 10.0, "{clock:?} for {ppm}");
        // In the middle of the run.
        assert!(clock.offset_ns.abs_diff(*offset) < 20_000, "{clock:?} for {offset}");
        assert!(clock.spread_ns < 5_000 && clock.error_bound_ns < 60_000, "{clock:?}");
    }
    let ranks = profile.ranks();
    assert!(is_named(&ranks, 5, Plant::Sleep), "{ranks}");
    assert_eq!((ranks.matched, ranks.ranks.len()), (100, 8));
    assert!(ranks.to_string().contains("host 1: its clock is"), "{ranks}");
    assert!(ranks.ranks[2].name.ends_with("process 102 on host 1"), "{ranks}");
}

#[test]
fn hosts_with_too_few_collectives_in_common_are_not_aligned() {
    let mut simulation = Simulation::new(2);
    simulation.hosts = vec![(0, 0.0), (1_000_000, 0.0)];
    simulation.steps = 3;
    let unaligned = simulation.aligned(&mut Rng::with_seed(1)).unwrap_err();
    assert!(unaligned.to_string().contains("shares 3 with another one"), "{unaligned}");
    (simulation.steps, simulation.collectives) = (50, 0);
    let unaligned = simulation.aligned(&mut Rng::with_seed(1)).unwrap_err();
    assert!(unaligned.to_string().contains("shares 0 with another one"), "{unaligned}");
}
