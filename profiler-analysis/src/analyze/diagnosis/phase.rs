//! The phases of a diagnosed run, and the scope of the diagnosis: the steady phases, or the whole
//! run.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use profiler_base::statistics::{as_ns, ratio};
use profiler_base::units::{PATH_WIDTH, percent, shortened, time};
use serde::Serialize;

use super::clock::{Clock, Piece};
use super::estimate::DeviceClocks;
use super::finding::Finding;
use super::verdict::{Scope, Verdict};
use super::{Diagnoser, Run};
use crate::analyze::phases::{PhaseKind, Phases, Windows};
use profiler_core::profile::{GpuOperation, Profile};
use profiler_core::query::{DeviceTimes, Query, Span, Wait};
use profiler_core::tables::OperationId;
use profiler_core::tables::{CallId, Interval};

/// A phase of a run: start-up, a steady phase, the time between steady phases, or teardown.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Phase {
    /// The kind.
    pub(crate) kind: PhaseKind,
    /// The repeating part of a steady phase: the ranges, or the number of GPU operations. `None`
    /// for other phases.
    pub name: Option<String>,
    /// Instances in a steady phase; 0 for other phases.
    pub instances: u64,
    /// Slow first instances, which are not in the phase.
    pub warm_up: u64,
    /// The span from its first start to its last end, since the session's start.
    pub span: Span,
    /// Number of separate time windows of the phase.
    pub windows: u64,
    /// Its time on the run's clock, the mean over devices.
    #[serde(rename = "clock_ns", serialize_with = "as_ns")]
    pub clock: Duration,
    /// `clock` as a share of the run's clock, from 0 to 1. The shares of all phases add up to 1.
    pub share: f64,
    /// The verdict on a steady phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Phase {
    /// The time and share of a phase without a verdict, for display.
    fn line(&self) -> String {
        format!("{}: {} ({} of the run)", self.kind, time(self.clock), percent(self.share))
    }
}

/// The times of a phase, by device and by process.
#[derive(Debug)]
pub(crate) struct Section {
    devices: Windows,
    processes: BTreeMap<u32, Vec<Interval>>,
}

fn contains(times: Option<&Vec<Interval>>, ns: u64) -> bool {
    let times = times.map_or(&[][..], Vec::as_slice);
    let next = times.partition_point(|time| time.start_ns <= ns);
    next.checked_sub(1).is_some_and(|last| ns < times[last].end_ns)
}

impl Section {
    fn new(phases: &Phases, phase: usize) -> Self {
        Self { devices: phases.windows(phase), processes: phases.steady[phase].processes().clone() }
    }

    /// All steady phases together.
    fn steady(phases: &Phases) -> Self {
        let processes = phases.steady.iter().flat_map(|of| of.processes().keys());
        let times = |process: &u32| (*process, phases.steady_times(*process));
        Self { devices: Windows::new(), processes: processes.map(times).collect() }
    }

    /// True for an operation that started in the section.
    pub(crate) fn has_operation(&self, operation: &GpuOperation<'_>) -> bool {
        let start = operation.interval().map(|time| time.start_ns);
        start.is_some_and(|ns| contains(self.devices.get(&operation.device()), ns))
    }

    /// True if it contains this time of a process.
    pub(crate) fn has(&self, process: u32, ns: u64) -> bool {
        contains(self.processes.get(&process), ns)
    }

    fn has_call(&self, profile: &Profile, id: CallId) -> bool {
        let store = &profile.tables();
        let call = &store.calls[id.at()];
        self.has(store.threads[call.thread.at()].process, call.time.start_ns)
    }

    /// Restricts a query to operations submitted in the section.
    pub(crate) fn submitted<'a>(self: &Arc<Self>, query: Query<'a>) -> Query<'a> {
        let (section, profile) = (self.clone(), query.profile());
        query.filter(move |operation| {
            operation.call_id().is_some_and(|call| section.has_call(profile, call))
        })
    }

    /// The operations that started in the section.
    fn operations(&self, profile: &Profile) -> Vec<OperationId> {
        let within = profile.operations().filter(|operation| self.has_operation(operation));
        within.map(|operation| OperationId(operation.number() as u32)).collect()
    }

    /// Queries the operations that started in the section.
    pub(crate) fn query<'a>(&self, profile: &'a Profile) -> Query<'a> {
        profile.query().with_operations(self.operations(profile))
    }
}

/// The scope of findings and verdicts: a run or one of its phases.
impl<'a> Run<'a> {
    /// The operations of the section by start; `None` for the whole run.
    fn of_section(&self) -> Option<&[OperationId]> {
        let section = self.section.as_ref()?;
        Some(self.operations.get_or_init(|| section.operations(self.profile)))
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = GpuOperation<'a>> {
        let profile = self.profile;
        let all = 0..profile.tables().operations.len() as u32;
        let (of_section, all) = match self.of_section() {
            Some(operations) => (operations, 0..0),
            None => (&[][..], all),
        };
        of_section.iter().copied().chain(all.map(OperationId)).map(|id| profile.operation(id))
    }

    pub(super) fn query(&self) -> Query<'a> {
        let query = self.profile.query();
        match self.of_section() {
            Some(operations) => query.with_operations(operations.to_vec()),
            None => query,
        }
    }

    /// The devices of its processes, with their times in the whole run.
    pub(super) fn devices(&self) -> Vec<DeviceTimes> {
        let mut devices = self.profile.query().devices();
        let is_of = |device: u32| {
            self.section.as_ref().is_none_or(|section| section.devices.contains_key(&device))
        };
        devices.retain(|of| is_of(of.device));
        devices
    }

    pub(super) fn includes_call(&self, id: CallId) -> bool {
        self.section.as_ref().is_none_or(|section| section.has_call(self.profile, id))
    }

    pub(super) fn includes_wait(&self, wait: &Wait<'_>) -> bool {
        let (process, ns) = (wait.call().process_id(), wait.call().interval().start_ns);
        self.section.as_ref().is_none_or(|section| section.has(process, ns))
    }

    /// Calls that blocked the host.
    pub(super) fn wait_count(&self) -> u64 {
        match &self.section {
            Some(_) => {
                self.profile.waits().iter().filter(|wait| self.includes_wait(wait)).count() as u64
            }
            None => self.profile.totals().synchronizations,
        }
    }
}

/// A steady phase with its verdict.
pub(super) struct JudgedPhase<'a> {
    phase: usize,
    pub(super) verdict: Verdict,
    run: Run<'a>,
}

/// The phases of a run with their verdicts and findings.
#[derive(Debug)]
pub(crate) struct Judged {
    /// By start; empty without a steady phase.
    pub(crate) phases: Vec<Phase>,
    /// The verdict on the steady phase with the most time, or on the whole run.
    pub(crate) verdict: Verdict,
    /// The findings of all steady phases, or of the whole run.
    pub(crate) findings: Vec<Finding>,
    /// The phase of the verdict.
    pub(crate) section: Option<Arc<Section>>,
}

impl Judged {
    /// The verdicts on the steady phases, longest first; without any, the verdict on the whole run.
    pub(crate) fn verdicts(&self) -> Vec<&Verdict> {
        verdicts(&self.phases, &self.verdict)
    }
}

/// The verdicts on the steady phases, longest first; `other` without any.
pub(super) fn verdicts<'d>(phases: &'d [Phase], other: &'d Verdict) -> Vec<&'d Verdict> {
    let mut steady: Vec<&Phase> = phases.iter().filter(|phase| phase.verdict.is_some()).collect();
    steady.sort_by_key(|phase| Reverse(phase.clock));
    match steady.is_empty() {
        true => vec![other],
        false => steady.into_iter().filter_map(|phase| phase.verdict.as_ref()).collect(),
    }
}

/// Text lines on the phases without a verdict; or a line that there are no phases.
pub(crate) struct Others<'d>(pub(crate) &'d [Phase]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "phases: none, since nothing repeats: the whole run is judged, start-up included",
            );
        }
        let others = || self.0.iter().filter(|phase| phase.verdict.is_none());
        if others().next().is_none() {
            return f.write_str("phases: all of the run is steady");
        }
        for (n, phase) in others().enumerate() {
            let line_break = if n == 0 { "" } else { "\n" };
            write!(f, "{line_break}{}", phase.line())?;
            let first = self.0.iter().find(|phase| phase.verdict.is_some());
            if let Some(Phase { warm_up, instances, name: Some(name), .. }) = first
                && phase.kind == PhaseKind::StartUp
                && *warm_up != 0
            {
                let (all, name) = (warm_up + instances, shortened(name, PATH_WIDTH));
                write!(f, ", with the first {warm_up} of {all} instances of {name}")?;
            }
        }
        Ok(())
    }
}

impl<'a> Diagnoser<'a> {
    fn phases(&self) -> &Phases {
        self.phases.get_or_init(|| Phases::new(self.profile))
    }

    /// The verdicts and findings on the steady phases, or on the whole run.
    pub(crate) fn judged(&self) -> Judged {
        self.with_findings(self.judge_phases())
    }

    /// The steady phases with enough operations, longest first.
    pub(super) fn judge_phases(&self) -> Vec<JudgedPhase<'_>> {
        let phases = 0..self.phases().steady.len();
        let mut steady: Vec<_> = phases.filter_map(|phase| self.judge_phase(phase)).collect();
        steady.sort_by_key(|judged| Reverse(judged.verdict.clock));
        steady
    }

    pub(super) fn with_findings(&self, steady: Vec<JudgedPhase<'_>>) -> Judged {
        let phases = self.phases();
        let Some(first) = steady.first() else {
            let (verdict, section) = (self.verdict(), None);
            let findings = self.findings_of(&self.tools(), &verdict);
            return Judged { phases: Vec::new(), verdict, findings, section };
        };
        let (verdict, section) = (first.verdict.clone(), first.run.section.clone());
        let has_several = steady.len() > 1;
        let (mut judged, mut findings) = (Vec::new(), Vec::new());
        for JudgedPhase { phase, verdict, run } in steady {
            let (Some(of), Some(section)) = (phases.steady.get(phase), &run.section) else {
                continue;
            };
            let name = has_several.then(|| of.name.clone());
            let found = self.findings_of(&run, &verdict).into_iter();
            findings.extend(found.map(|found| Finding { phase: name.clone(), ..found }));
            judged.extend(self.phase(PhaseKind::Steady, &section.devices).map(|phase| Phase {
                name: Some(of.name.clone()),
                instances: of.instances,
                warm_up: of.warm_up,
                verdict: Some(verdict),
                ..phase
            }));
        }
        findings.extend(self.tools().start_up());
        findings.sort_by_key(|finding| (finding.is_note(), Reverse(finding.cost)));
        let others = phases.others();
        judged.extend(others.iter().filter_map(|(kind, windows)| self.phase(*kind, windows)));
        judged.sort_by_key(|phase| (phase.span.start, phase.kind));
        Judged { phases: judged, verdict, findings, section }
    }

    /// `None` with too few operations.
    fn judge_phase(&self, phase: usize) -> Option<JudgedPhase<'_>> {
        let section = Section::new(self.phases(), phase);
        let all = Arc::new(Clock::from(self.clock().within_each(&section.devices)));
        let of = self.phases().steady.get(phase)?;
        let clock = all.used(self.thresholds.get_unused_share());
        let run = Run { clock, section: Some(Arc::new(section)), ..self.tools() };
        let query = run.query();
        if query.count() < self.thresholds.get_least_operations() {
            return None;
        }
        let (instances, waits) = (of.instances, run.wait_count());
        let (name, pieces) = (Some(of.name.clone()), (&all.pieces).into());
        let verdict = run.judge(Scope { path: None, phase: name, instances, pieces, query, waits });
        Some(JudgedPhase { phase, verdict, run })
    }

    /// A phase of these times; `None` if the clock does not contain them.
    fn phase(&self, kind: PhaseKind, windows: &Windows) -> Option<Phase> {
        let clock = self.clock();
        let (mut ns, mut start_ns, mut end_ns) = (0, u64::MAX, 0);
        for (device, times) in windows {
            for Interval { start_ns: start, end_ns: end } in clock.times_within(*device, times) {
                ns += end - start;
                (start_ns, end_ns) = (start_ns.min(start), end_ns.max(end));
            }
        }
        if start_ns > end_ns {
            return None;
        }
        let since_start = |ns| self.profile.since_start(ns);
        let count = |(device, times): (&u32, &Vec<Interval>)| {
            times
                .iter()
                .filter(|time| clock.times_within(*device, &[**time]).next().is_some())
                .count() as u64
        };
        Some(Phase {
            kind,
            name: None,
            instances: 0,
            warm_up: 0,
            span: Span { start: since_start(start_ns), end: since_start(end_ns) },
            windows: windows.iter().map(count).max().unwrap_or(0),
            clock: Duration::from_nanos(ns / clock.devices()),
            share: ratio(ns, clock.total() as u64),
            verdict: None,
        })
    }

    /// All steady phases, if any has a verdict.
    pub(super) fn steady(&self, judged: &[JudgedPhase<'_>]) -> Option<Arc<Section>> {
        (!judged.is_empty()).then(|| Arc::new(Section::steady(self.phases())))
    }
}

impl Clock {
    /// The clock without devices that ran for less than this share of the busiest one's running
    /// time.
    pub(super) fn used(self: &Arc<Self>, least_share: f64) -> Arc<Self> {
        let unused = DeviceClocks::new(&self.pieces).unused(least_share);
        if unused.is_empty() {
            return self.clone();
        }
        let is_used = |piece: &&Piece| !unused.contains(&piece.device);
        Arc::new(self.pieces.iter().filter(is_used).copied().collect::<Vec<_>>().into())
    }

    /// The pieces of each device clipped to its disjoint, ordered times.
    pub(super) fn within_each(&self, windows: &Windows) -> Vec<Piece> {
        let of = |(device, times): (&u32, &Vec<Interval>)| self.clipped(times, &[*device].into());
        let mut parts = windows.iter().map(of);
        let mut all = parts.next().unwrap_or_default();
        parts.for_each(|mut part| all.append(&mut part));
        all
    }

    /// The times of the pieces of a device, clipped to these disjoint, ordered times.
    fn times_within<'c>(
        &'c self,
        device: u32,
        times: &'c [Interval],
    ) -> impl Iterator<Item = Interval> + 'c {
        let overlaps = self.overlaps(times, &[device].into());
        overlaps
            .into_iter()
            .flat_map(|(time, pieces)| pieces.iter().map(|piece| piece.clipped(time).time))
    }
}
