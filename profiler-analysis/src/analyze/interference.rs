//! Compute beside communication: which kernels run together, and how much longer compute takes then.
//!
//! A collective occupies multiprocessors, memory and links, so that kernels beside it take longer. A
//! kernel is compared with launches of the same shape that ran alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::hodges_lehmann::{self, Factor, Ranks};
use profiler_base::statistics::{as_ns, median_of};
use profiler_base::table::Table;
use profiler_base::text::printable;
use profiler_base::units::{percent, time};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::matches::Covered;
use profiler_core::Profile;
use profiler_core::query::KernelName;
use profiler_core::tables::{Interval, What};

/// The maximum number of collectives that are looked at beside one kernel: many more run at a time
/// in damaged files alone.
const MOST_BESIDE: usize = 1024;
/// The probability of a bound to be wrong, of two.
const TAIL: f64 = 0.025;
/// A launch ran beside communication if this share of its time did.
const BESIDE: f64 = 0.5;

/// Compute and communication kernels that ran at the same time on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Interference {
    /// Communication kernels, the longest time first.
    pub communication: Vec<CommunicationKernel>,
    /// Compute kernels that ran beside communication, the longest time beside it first.
    pub compute: Vec<ComputeKernel>,
    /// Compute kernels that never did.
    pub never: usize,
}

/// The launches of a communication kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CommunicationKernel {
    /// The name without parameters.
    pub name: String,
    /// The number of launches.
    pub launches: u64,
    /// Their time.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// The part of it with a compute kernel beside it.
    #[serde(rename = "beside_compute_ns", serialize_with = "as_ns")]
    pub beside_compute: Duration,
}

/// The launches of a compute kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ComputeKernel {
    /// The name without parameters.
    pub name: String,
    /// The number of launches.
    pub launches: u64,
    /// Their time.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// The part of it beside communication.
    #[serde(rename = "beside_ns", serialize_with = "as_ns")]
    pub beside: Duration,
    /// The time beside each kernel of [`Interference::communication`], in ns. The sum exceeds
    /// `beside` if several ran at a time.
    pub beside_each_ns: Vec<u64>,
    /// Launches without any communication beside them.
    pub launches_alone: u64,
    /// Launches with communication for at least half of their time.
    pub launches_beside: u64,
    /// How much longer these take than those alone, of the same grid and block; `None` without
    /// both.
    pub slowdown: Option<Slowdown>,
}

/// The factor between the times of launches beside communication and of those alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Slowdown {
    /// The Hodges-Lehmann estimate.
    pub factor: f64,
    /// The bounds of its 95 % interval; 0 and `None` (infinity) with too few launches.
    pub low: f64,
    /// See `low`.
    pub high: Option<f64>,
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { factor, low, high } = self;
        match high {
            Some(high) => write!(f, "{factor:.2}x ({low:.2} to {high:.2})"),
            None => write!(f, "{factor:.2}x (too few)"),
        }
    }
}

/// The grid and block of a launch.
type Shape = ([u32; 3], [u32; 3]);

/// Times of the launches of one shape, in ns.
#[derive(Default)]
struct Times {
    alone: Vec<u64>,
    beside: Vec<u64>,
}

#[derive(Default)]
struct Sums {
    launches: u64,
    ns: u64,
    beside_ns: u64,
    each_ns: FxHashMap<u32, u64>,
    shapes: FxHashMap<Shape, Times>,
}

/// Collectives in start order, those that have not ended before the current kernel.
struct Running<'a> {
    later: std::iter::Peekable<std::slice::Iter<'a, (Interval, u32)>>,
    now: VecDeque<(Interval, u32)>,
}

impl Running<'_> {
    /// The collectives that run beside a kernel. Kernels come in start order.
    fn concurrent(&mut self, kernel: Interval) -> impl Iterator<Item = (u32, u64)> {
        self.now.retain(|(time, _)| time.end_ns > kernel.start_ns);
        while let Some(next) = self.later.next_if(|(time, _)| time.start_ns < kernel.end_ns) {
            if next.0.end_ns > kernel.start_ns && self.now.len() < MOST_BESIDE {
                self.now.push_back(*next);
            }
        }
        self.now.iter().filter_map(move |(time, name)| {
            let start_ns = time.start_ns.max(kernel.start_ns);
            let ns = time.end_ns.min(kernel.end_ns).saturating_sub(start_ns);
            (ns != 0).then_some((*name, ns))
        })
    }
}

impl Interference {
    /// Costs some passes over the operations.
    pub(crate) fn new(profile: &Profile) -> Self {
        let compute = Covered::by_device(profile, |what| matches!(what, What::Kernel { .. }));
        let mut names: FxHashMap<KernelName<'_>, u32> = FxHashMap::default();
        let mut communication: Vec<CommunicationKernel> = Vec::new();
        let mut running: BTreeMap<u32, Vec<(Interval, u32)>> = BTreeMap::new();
        for kernel in profile.kernels().filter(|kernel| kernel.is_collective()) {
            let Some(time) = kernel.interval() else { continue };
            let name = KernelName::new(&kernel);
            let row = *names.entry(name).or_insert_with(|| {
                let (time, beside_compute) = (Duration::ZERO, Duration::ZERO);
                let name = name.to_string();
                communication.push(CommunicationKernel { name, launches: 0, time, beside_compute });
                communication.len() as u32 - 1
            });
            let sum = &mut communication[row as usize];
            let beside_ns = compute.get(&kernel.device()).map_or(0, |of| of.time_within(time));
            sum.launches += 1;
            sum.time += Duration::from_nanos(time.ns());
            sum.beside_compute += Duration::from_nanos(beside_ns);
            running.entry(kernel.device()).or_default().push((time, row));
        }
        let mut interference = Self::default();
        if communication.is_empty() {
            return interference;
        }
        let all: BTreeMap<u32, Vec<Interval>> = running
            .iter()
            .map(|(device, of)| (*device, of.iter().map(|(time, _)| *time).collect()))
            .collect();
        let all: BTreeMap<u32, Covered> =
            all.into_iter().map(|(device, times)| (device, Covered::new(times))).collect();
        let mut running: BTreeMap<u32, Running<'_>> = running
            .iter()
            .map(|(device, of)| {
                let (later, now) = (of.iter().peekable(), VecDeque::new());
                (*device, Running { later, now })
            })
            .collect();
        let mut kernels: FxHashMap<KernelName<'_>, Sums> = FxHashMap::default();
        for kernel in profile.kernels().filter(|kernel| !kernel.is_collective()) {
            let Some(time) = kernel.interval() else { continue };
            let sums = kernels.entry(KernelName::new(&kernel)).or_default();
            sums.launches += 1;
            sums.ns = sums.ns.saturating_add(time.ns());
            let beside_ns = all.get(&kernel.device()).map_or(0, |of| of.time_within(time));
            sums.beside_ns += beside_ns;
            if let Some(running) = running.get_mut(&kernel.device()) {
                for (name, ns) in running.concurrent(time) {
                    *sums.each_ns.entry(name).or_default() += ns;
                }
            }
            let times = sums.shapes.entry((kernel.grid(), kernel.block())).or_default();
            if beside_ns == 0 {
                times.alone.push(time.ns());
            } else if beside_ns as f64 >= BESIDE * time.ns() as f64 {
                times.beside.push(time.ns());
            }
        }
        let mut ranks = Ranks::default();
        let mut order: Vec<u32> = (0..communication.len() as u32).collect();
        order.sort_by_key(|row| Reverse(communication[*row as usize].time));
        for (name, sums) in kernels {
            if sums.beside_ns == 0 {
                interference.never += 1;
                continue;
            }
            let each = |row: &u32| sums.each_ns.get(row).copied().unwrap_or(0);
            let shapes = sums.shapes.values();
            let count = |of: fn(&Times) -> &Vec<u64>| {
                shapes.clone().map(|times| of(times).len() as u64).sum()
            };
            interference.compute.push(ComputeKernel {
                name: name.to_string(),
                launches: sums.launches,
                time: Duration::from_nanos(sums.ns),
                beside: Duration::from_nanos(sums.beside_ns),
                beside_each_ns: order.iter().map(each).collect(),
                launches_alone: count(|times| &times.alone),
                launches_beside: count(|times| &times.beside),
                slowdown: slowdown(sums.shapes.values(), &mut ranks),
            });
        }
        interference
            .compute
            .sort_by(|a, b| b.beside.cmp(&a.beside).then_with(|| a.name.cmp(&b.name)));
        communication.sort_by_key(|kernel| Reverse(kernel.time));
        interference.communication = communication;
        interference
    }
}

/// Compares launches of equal shape: each time is relative to the median of those alone.
fn slowdown<'t>(shapes: impl Iterator<Item = &'t Times>, ranks: &mut Ranks) -> Option<Slowdown> {
    /// The unit of relative times, which are combined as whole numbers.
    const UNIT: f64 = 1e9;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for times in shapes.filter(|times| !times.alone.is_empty() && !times.beside.is_empty()) {
        let median = median_of(times.alone.iter().map(|ns| *ns as f64))?.max(1.0);
        let relative = |ns: &u64| (UNIT * *ns as f64 / median) as u64;
        alone.extend(times.alone.iter().map(relative));
        beside.extend(times.beside.iter().map(relative));
    }
    let [alone, beside] =
        [alone, beside].map(|times: Vec<u64>| hodges_lehmann::blocks(&times, hodges_lehmann::MOST));
    let factor = Factor::estimate([&alone, &beside], false, TAIL, ranks)?;
    let high = Some(factor.high).filter(|high| high.is_finite());
    Some(Slowdown { factor: factor.ratio, low: factor.low, high })
}

profiler_base::display_by_default_layout!(Interference);

/// The communication kernels that have a column of their own.
const COLUMNS: usize = 4;

impl DisplayOptions for Interference {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.communication.is_empty() {
            return f.write_str(
                "no communication kernel was recorded; --communication names those of other libraries than NCCL",
            );
        }
        let mut table = Table::new(["communication", "launches", "time", "beside compute"], 1);
        for (at, kernel) in (1..).zip(&self.communication) {
            let share = kernel.beside_compute.as_secs_f64() / kernel.time.as_secs_f64().max(1e-9);
            table.add_row([
                format!("{at} {}", printable(&kernel.name)),
                kernel.launches.to_string(),
                time(kernel.time),
                percent(share),
            ]);
        }
        writeln!(f, "{}\n", table.render(layout))?;
        if self.compute.is_empty() {
            return f.write_str("no compute kernel ran beside them");
        }
        let columns = self.communication.len().min(COLUMNS);
        let mut head: Vec<String> =
            ["compute", "time", "beside", "slower beside"].map(str::to_owned).into();
        head.extend((1..=columns).map(|at| format!("beside {at}")));
        let mut table = Table::new(head.iter().map(String::as_str), 1);
        for kernel in &self.compute {
            let slowdown = kernel.slowdown.map(|slowdown| slowdown.to_string());
            let mut cells = vec![
                printable(&kernel.name).into_owned(),
                time(kernel.time),
                time(kernel.beside),
                slowdown.unwrap_or_else(|| "never alone".to_owned()),
            ];
            let each = kernel.beside_each_ns.iter().take(columns);
            cells.extend(each.map(|ns| time(Duration::from_nanos(*ns))));
            table.add_row(cells);
        }
        write!(f, "{}", table.render(layout))?;
        match self.never {
            0 => Ok(()),
            never => write!(f, "\n({never} compute kernels never ran beside communication)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use profiler_core::tables::Session;

    use super::*;
    use crate::analyze::diagnosis::tests::profile_of;
    use crate::analyze::ranks::tests::{Writer, recording_info};
    use crate::prelude::*;

    const US: u64 = 1_000;
    const BASE: u64 = 1_000_000_000_000;
    const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

    /// Kernels of one rank: name, start and length.
    fn profile(kernels: &[(&str, u64, u64)]) -> Profile {
        let mut store = profiler_core::tables::Tables::default();
        let end_ns = BASE + 1_000_000 * US;
        store.session = Session {
            window_ns: (BASE, end_ns),
            windows_ns: vec![(BASE, end_ns)],
            ..Session::default()
        };
        let mut writer = Writer::new(&mut store, 0, 0, (BASE, end_ns));
        for (name, start_ns, ns) in kernels {
            let call_ns = start_ns - 2 * US;
            let class = cupti::CallClass::KernelLaunch;
            writer.call_between("cuLaunchKernelEx", class, call_ns, call_ns + US);
            writer.kernel_of_call(name, *start_ns, start_ns + ns);
        }
        profile_of(store, recording_info())
    }

    /// Rounds of a GEMM alone, then the same kernels beside a collective, `factor` times as long.
    fn rounds(factor: f64, rng: &mut Rng) -> Profile {
        let mut kernels = Vec::new();
        let mut kernel = |name, start_ns, ns| kernels.push((name, start_ns, ns));
        for round in 0..100 {
            let start_ns = BASE + US * (100 + 1_000 * round);
            let noise = |rng: &mut Rng| 1.0 + 0.05 * (rng.f64() - 0.5);
            let gemm = |factor: f64| (100.0 * factor * US as f64) as u64;
            kernel("gemm", start_ns, gemm(noise(rng)));
            kernel(ALL_REDUCE, start_ns + 300 * US, 500 * US);
            kernel("gemm", start_ns + 320 * US, gemm(factor * noise(rng)));
            // Begins before the collective ends and runs mostly alone: in neither group.
            kernel("tail", start_ns + 780 * US, 100 * US);
            kernel("relu", start_ns + 890 * US, 10 * US);
        }
        profile(&kernels)
    }

    #[test]
    fn times_beside_communication_equal_the_sum_over_all_pairs() {
        let mut rng = Rng::with_seed(11);
        let names = ["gemm", "relu", ALL_REDUCE, "ncclDevKernel_AllGather_RING_LL"];
        for round in 0..20 {
            let mut kernels: Vec<(&str, u64, u64)> = (0..200)
                .map(|_| {
                    let start_ns = BASE + 10 * US + rng.u64(0..4_000 * US);
                    (names[rng.usize(0..names.len())], start_ns, rng.u64(1..200 * US))
                })
                .collect();
            kernels.sort_by_key(|kernel| kernel.1);
            let mut expected = BTreeMap::new();
            for (name, start_ns, ns) in kernels.iter().filter(|kernel| !kernel.0.contains("nccl")) {
                for (other, from_ns, length) in kernels.iter().filter(|of| of.0.contains("nccl")) {
                    let end_ns = (start_ns + ns).min(from_ns + length);
                    let together = end_ns.saturating_sub(*start_ns.max(from_ns));
                    *expected.entry((*name, *other)).or_default() += together;
                }
            }
            let all = profile(&kernels).interference();
            for kernel in &all.compute {
                assert!(kernel.beside <= kernel.time, "{round}");
                for (other, ns) in all.communication.iter().zip(&kernel.beside_each_ns) {
                    let pair = (kernel.name.as_str(), other.name.as_str());
                    let known = expected
                        .iter()
                        .find(|(names, _)| pair.1.starts_with(names.1) && pair.0 == names.0);
                    assert_eq!(known.map(|(_, ns)| *ns), Some(*ns), "{round}: {pair:?}");
                }
            }
            assert_eq!((all.compute.len(), all.communication.len()), (2, 2), "{round}");
        }
    }

    #[test]
    fn without_communication_there_is_nothing_to_say() {
        let all = profile(&[("gemm", BASE + 10 * US, US)]).interference();
        assert_eq!(all, Interference::default());
        assert!(all.to_string().contains("--communication"), "{all}");
    }

    #[test]
    fn slowdown_beside_a_collective_is_found_and_its_absence_too() {
        let mut rng = Rng::with_seed(7);
        for factor in [1.0, 1.3, 2.0] {
            let all = rounds(factor, &mut rng).interference();
            let of = |name: &str| all.compute.iter().find(|kernel| kernel.name == name).unwrap();
            let gemm = of("gemm");
            let slowdown = gemm.slowdown.unwrap();
            assert_eq!((gemm.launches_alone, gemm.launches_beside), (100, 100), "{factor}");
            assert!((slowdown.factor - factor).abs() < 0.01 * factor, "{factor}: {slowdown}");
            assert!(slowdown.low <= factor * 1.005 && factor * 0.995 <= slowdown.high.unwrap());
            assert_eq!(gemm.beside.as_nanos(), u128::from(gemm.beside_each_ns[0]));
            let tail = of("tail");
            assert_eq!((tail.launches_beside, tail.slowdown), (0, None));
            assert_eq!(tail.beside, Duration::from_micros(100 * 20));
            assert_eq!((all.never, all.communication.len()), (1, 1));
            let together = all.communication[0].beside_compute;
            assert_eq!(together, gemm.beside + tail.beside, "one kernel at a time");
        }
    }
}
