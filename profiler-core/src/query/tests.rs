//! Queries of random profiles of a few hundred nanoseconds, checked nanosecond by nanosecond.

use std::collections::BTreeMap;
use std::time::Duration;

use cupti::{CallClass, CopyKind};
use fastrand::Rng;

use super::*;
use crate::join::tables::{
    self, Interval, KernelNames, Label, LabelId, MemoryEvent as Event, Tables, ThreadId, What, Work,
};
use crate::profile::Attribution;

#[path = "../../tests/support/random_profile.rs"]
mod random_profile;

use random_profile::{BASE, LENGTH, Made, Ran, Spot, TestCall, profile_of, programs, thread_id};

/// For each nanosecond of the session, whether an operation ran.
fn bits<'r>(ran: impl Iterator<Item = &'r Ran>) -> Vec<bool> {
    let mut bits = vec![false; LENGTH as usize];
    for (start, end) in ran.filter_map(|ran| ran.time) {
        bits[start as usize..end as usize].fill(true);
    }
    bits
}

fn ran_first_last(ran: &[&Ran]) -> Option<(u64, u64)> {
    let times = || ran.iter().filter_map(|ran| ran.time);
    Some((times().map(|time| time.0).min()?, times().map(|time| time.1).max()?))
}

fn numbers(query: &Query<'_>) -> Vec<usize> {
    query.iter().map(|operation| operation.number()).collect()
}

/// The numbers of the operations that satisfy a condition.
fn wanted(made: &Made, is_wanted: impl Fn(&Ran) -> bool) -> Vec<usize> {
    let rows = made.ran.iter().enumerate();
    rows.filter(|(_, ran)| is_wanted(ran)).map(|(row, _)| row).collect()
}

#[test]
fn filters_select_matching_operations() {
    for (seed, made, profile) in programs(300) {
        let query = profile.query();
        let check = |what: &str, query: Query<'_>, is_wanted: &dyn Fn(&Ran) -> bool| {
            assert_eq!(numbers(&query), wanted(&made, is_wanted), "{what}, seed {seed}");
        };
        let within = |range: Option<usize>, is_it: &dyn Fn(usize) -> bool| {
            made.ancestors(range).into_iter().any(is_it)
        };
        let spot = |range: usize| &made.ranges[range];
        let is_copy = |ran: &Ran| ran.kind == OperationKind::Copy;

        check("all", query.clone(), &|_| true);
        check("kernels", query.clone().kernels(), &|ran| ran.kind == OperationKind::Kernel);
        check("copies or memsets", query.clone().copies().memsets(), &|ran| {
            ran.kind != OperationKind::Kernel
        });
        check("in", query.clone().copies_of(CopyKind::HostToDevice), &|ran| {
            is_copy(ran) && ran.bytes % 2 == 0
        });
        check("named", query.clone().named("ge*").named("axpy<float>"), &|ran| {
            ran.kind == OperationKind::Kernel
                && !["relu", "ncclDevKernel_AllReduce"].contains(&ran.name)
        });
        check("place", query.clone().device(1).stream(0).stream(2).context(1), &|ran| {
            ran.device == 1 && ran.stream != 1
        });
        check("nowhere", query.clone().context(2), &|_| false);
        check("thread", query.clone().thread(thread_id(1)), &|ran| {
            ran.call.is_some_and(|call| made.calls[call].thread == 1)
        });
        let ns = Duration::from_nanos;
        check("time", query.clone().between(ns(100), ns(150)).between(ns(300), ns(310)), &|ran| {
            let covers = |from: u64, to: u64| {
                let inner = |(start, end): (u64, u64)| {
                    (from..to).any(|at| (start..end.max(start + 1)).contains(&at))
                };
                ran.time.is_some_and(inner)
            };
            covers(100, 150) || covers(300, 310)
        });
        check("filter", query.clone().filter(|ran| ran.stream() == 1).copies(), &|ran| {
            ran.stream == 1 && is_copy(ran)
        });

        check("name", query.clone().in_range("r1"), &|ran| {
            within(made.range_of(ran), &|range| spot(range).name == "r1")
        });
        check("path", query.clone().in_range("r*/r2"), &|ran| {
            within(made.range_of(ran), &|range| {
                spot(range).name == "r2" && spot(range).parent.is_some()
            })
        });
        check("directly", query.clone().in_range("r1").directly(), &|ran| {
            made.range_of(ran).is_some_and(|range| spot(range).name == "r1")
        });
        check("domain", query.clone().in_range("r1").in_range("r0").domain("lib"), &|ran| {
            within(made.range_of(ran), &|range| {
                spot(range).name != "r2" && spot(range).domain == Some("lib")
            })
        });
        check("default domain", query.clone().domain(None), &|ran| {
            within(made.range_of(ran), &|range| spot(range).domain.is_none())
        });
        check("category", query.clone().category("io").directly(), &|ran| {
            made.range_of(ran).is_some_and(|range| spot(range).category == Some("io"))
        });
        check("outside", query.clone().outside_ranges(), &|ran| made.range_of(ran).is_none());
        check("outside or", query.clone().outside_ranges().in_range("r0"), &|ran| {
            made.range_of(ran).is_none()
                || within(made.range_of(ran), &|range| spot(range).name == "r0")
        });
        check("replays", query.clone().replays(), &|ran| ran.captured.is_some());
        check("replays in", query.clone().in_range("r2").replays().copies(), &|ran| {
            is_copy(ran) && within(ran.captured, &|range| spot(range).name == "r2")
        });
        for (row, range) in profile.ranges().enumerate().take(3) {
            check("instance", query.clone().in_instance(range), &|ran| {
                within(made.range_of(ran), &|it| it == row)
            });
            check("own", query.clone().in_instance(range).directly(), &|ran| {
                made.range_of(ran) == Some(row)
            });
            check("instance's replays", query.clone().in_instance(range).replays(), &|ran| {
                within(ran.captured, &|it| it == row)
            });
            let node = range.node();
            let is_of_node = |it: usize| profile.tree.of_range[it] == node.id;
            check("node directly", query.clone().in_node(node).directly(), &|ran| {
                made.range_of(ran).is_some_and(is_of_node)
            });
            check("node's replays", query.clone().in_node(node).replays(), &|ran| {
                within(ran.captured, &is_of_node)
            });
            check("node or instance", query.clone().in_node(node).in_instance(range), &|ran| {
                within(made.range_of(ran), &is_of_node)
            });
            check("own replays", query.clone().in_instance(range).replays().directly(), &|ran| {
                ran.captured == Some(row)
            });
            check("instance of a domain", query.clone().in_instance(range).domain("lib"), &|ran| {
                spot(row).domain == Some("lib") && within(made.range_of(ran), &|it| it == row)
            });
            check("node", query.clone().in_node(range.node()).kernels(), &|ran| {
                let label = |range: usize| {
                    let domains: Vec<_> = made
                        .ancestors(Some(range))
                        .iter()
                        .map(|range| spot(*range).domain)
                        .collect();
                    (made.path(range), domains)
                };
                ran.kind == OperationKind::Kernel
                    && within(made.range_of(ran), &|it| label(it) == label(row))
            });
        }
    }
}

#[test]
fn window_contains_work_started_within_it() {
    let mut found = 0;
    for (seed, made, profile) in programs(300) {
        // The range that began last; of several at once, the one with the higher number.
        let window = |ran: &Ran| {
            let (start, _) = ran.time?;
            let is_open = |range: &&usize| {
                let spot = &made.ranges[**range];
                spot.name == "r1" && spot.time.0 <= start && start < spot.time.1
            };
            let rows: Vec<usize> = (0..made.ranges.len()).collect();
            rows.iter()
                .filter(is_open)
                .max_by_key(|range| (made.ranges[**range].time.0, **range))
                .copied()
        };
        let query = profile.query().in_range("r1").by_window();
        let windows: Vec<(usize, usize)> = query
            .iter()
            .map(|operation| {
                assert_eq!(operation.attribution(), Attribution::Window);
                (operation.number(), operation.range().unwrap().id.at())
            })
            .collect();
        let rows = made.ran.iter().enumerate();
        let expected: Vec<_> = rows.filter_map(|(row, ran)| Some((row, window(ran)?))).collect();
        assert_eq!(windows, expected, "seed {seed}");
        assert!(
            profile.operations().all(|operation| operation.attribution() != Attribution::Window)
        );
        found += windows.len();
    }
    assert!(found > 100, "{found}");
}

#[test]
fn busy_idle_and_overlap_match_every_nanosecond() {
    for (seed, made, profile) in programs(300) {
        for stream in [None, Some(1)] {
            let query = profile.query();
            let query = stream.map_or(query.clone(), |stream| query.clone().stream(stream));
            let is_on = |ran: &&Ran| stream.is_none_or(|stream| ran.stream == stream);
            let all: Vec<&Ran> = made.ran.iter().filter(is_on).collect();
            assert_eq!(query.count(), all.len() as u64);
            let ns = |ran: &&Ran| ran.time.map_or(0, |(start, end)| end - start);
            assert_eq!(query.gpu_time(), Duration::from_nanos(all.iter().map(ns).sum()));
            let bytes = |ran: &&&Ran| ran.kind != OperationKind::Kernel;
            let bytes: u64 = all.iter().filter(bytes).map(|ran| ran.bytes).sum();
            assert_eq!(query.bytes(), bytes);
            let span = ran_first_last(&all);
            let seen = query.span().map(|span| (super::ns(span.start), super::ns(span.end)));
            assert_eq!(seen, span, "seed {seed}");

            let (mut busy, mut communication, mut idle) = (0, 0, 0);
            let mut overlaps = query.overlap().into_iter();
            for device in 0..2 {
                let on: Vec<&Ran> =
                    all.iter().filter(|ran| ran.device == device).copied().collect();
                let Some((first, last)) = ran_first_last(&on) else {
                    continue;
                };
                let any = bits(on.iter().copied());
                let work = bits(on.iter().filter(|ran| !ran.is_collective()).copied());
                let count = |bits: &[bool]| bits.iter().filter(|bit| **bit).count() as u64;
                busy += count(&work);
                communication += count(&any) - count(&work);
                idle += last - first - count(&any);
                // Operations without a length have no overlap.
                let on: Vec<&Ran> = on.into_iter().filter(|ran| ns(ran) != 0).collect();
                let Some((first, last)) = ran_first_last(&on) else {
                    continue;
                };
                let is_kernel = |ran: &&&Ran| ran.kind == OperationKind::Kernel;
                let computes = |ran: &&&Ran| is_kernel(ran) && !ran.is_collective();
                let kernels = bits(on.iter().filter(computes).copied());
                let copies = bits(on.iter().filter(|ran| !is_kernel(ran)).copied());
                let collectives = bits(on.iter().filter(|ran| ran.is_collective()).copied());
                let count = |kernel: bool, copy: bool, alone: bool| {
                    let both = |at: &usize| {
                        let is_alone = collectives[*at] && !kernels[*at] && !copies[*at];
                        kernels[*at] == kernel && copies[*at] == copy && is_alone == alone
                    };
                    Duration::from_nanos((first as usize..last as usize).filter(both).count() as u64)
                };
                let overlap = overlaps.next().unwrap();
                assert_eq!(
                    [
                        overlap.both,
                        overlap.kernels_only,
                        overlap.copies_only,
                        overlap.communication,
                        overlap.neither,
                        overlap.span.duration()
                    ],
                    [
                        count(true, true, false),
                        count(true, false, false),
                        count(false, true, false),
                        count(false, false, true),
                        count(false, false, false),
                        Duration::from_nanos(last - first)
                    ],
                    "seed {seed}"
                );
            }
            assert!(overlaps.next().is_none());
            assert_eq!(query.busy_time(), Duration::from_nanos(busy), "seed {seed}");
            assert_eq!(query.communication_time(), Duration::from_nanos(communication));
            assert_eq!(query.idle(), Duration::from_nanos(idle), "seed {seed}");
        }
    }
}

/// The innermost call and range of a thread at a time.
fn at(made: &Made, thread: usize, at: u64) -> (Option<usize>, Option<usize>) {
    let is_in = |time: (u64, u64)| (time.0..time.1).contains(&at);
    let calls = 0..made.calls.len();
    let calls =
        calls.filter(|call| made.calls[*call].thread == thread && is_in(made.calls[*call].time));
    let ranges = 0..made.ranges.len();
    let ranges = ranges
        .filter(|range| made.ranges[*range].thread == thread && is_in(made.ranges[*range].time));
    (
        calls.max_by_key(|call| (made.calls[*call].time.0, *call)),
        ranges.max_by_key(|range| (made.ranges[*range].time.0, *range)),
    )
}

#[test]
fn gaps_and_their_causes_match_every_nanosecond() {
    let mut seen = BTreeMap::<&str, u64>::new();
    for (seed, made, profile) in programs(300) {
        let shortest = seed % 12;
        let gaps = profile.query().gaps(Duration::from_nanos(shortest));
        let mut expected = Vec::new();
        for device in 0..2 {
            let on: Vec<&Ran> = made.ran.iter().filter(|ran| ran.device == device).collect();
            let Some((first, last)) = ran_first_last(&on) else {
                continue;
            };
            let busy = bits(on.iter().copied());
            // Operations without a length end a gap, too.
            let is_cut = |at: u64| on.iter().any(|ran| ran.time.is_some_and(|time| time.0 == at));
            let mut start = None;
            for ns in first..=last {
                let idle = ns < last && !busy[ns as usize];
                if let Some(began) = start.filter(|_| !idle || is_cut(ns)) {
                    expected.push((device, began, ns));
                    start = None;
                }
                if idle && start.is_none() {
                    start = Some(ns);
                }
            }
        }
        expected.retain(|(_, start, end)| end - start >= shortest.max(1));
        let ns = super::ns;
        let found: Vec<_> = gaps
            .iter()
            .map(|gap| (gap.device(), ns(gap.span().start), ns(gap.span().end)))
            .collect();
        assert_eq!(found, expected, "seed {seed}");

        let mut causes: BTreeMap<String, u64> = BTreeMap::new();
        for (gap, (device, start, end)) in gaps.iter().zip(expected) {
            let ended = &made.ran[gap.before().number()];
            assert_eq!((ended.device, ended.time.unwrap().1), (device, start));
            let after = &made.ran[gap.after().number()];
            assert_eq!((after.device, after.time.unwrap().0), (device, end));
            let mut of_gap: BTreeMap<String, u64> = BTreeMap::new();
            for ns in start..end {
                let path = |range: Option<usize>| match range {
                    Some(range) => format!(", in {}", made.path(range)),
                    None => ", outside any range".to_owned(),
                };
                let cause = match after.call.map(|call| &made.calls[call]) {
                    None => "not known".to_owned(),
                    Some(call) if call.returned && ns >= call.time.1 => {
                        format!("work launched, not started{}", path(call.range))
                    }
                    Some(call) => match at(&made, call.thread, ns) {
                        (Some(inner), _) => {
                            let inner = &made.calls[inner];
                            format!("host in {}{}", inner.name, path(inner.range))
                        }
                        (None, range) => format!("host in no CUDA call{}", path(range)),
                    },
                };
                *of_gap.entry(cause).or_default() += 1;
            }
            let mut found: BTreeMap<String, u64> = BTreeMap::new();
            for (cause, time) in gaps.causes(&gap) {
                // Ranges of one path may differ in their domains.
                *found.entry(cause.to_string()).or_default() += ns(time);
            }
            assert_eq!(found, of_gap, "seed {seed}");
            for (cause, ns) in of_gap {
                *causes.entry(cause).or_default() += ns;
            }
        }
        let groups = gaps.by_cause();
        let total: Duration = groups.iter().map(Group::time).sum();
        assert_eq!(total, gaps.time(), "seed {seed}");
        let mut by_text: BTreeMap<String, u64> = BTreeMap::new();
        for group in &groups {
            *by_text.entry(group.key().to_string()).or_default() += ns(group.time());
            let kind = match group.key().reason {
                IdleReason::Call(..) => "call",
                IdleReason::Host => "host",
                IdleReason::Queued => "queued",
                IdleReason::Unknown => "unknown",
            };
            *seen.entry(kind).or_default() += 1;
        }
        assert_eq!(by_text, causes, "seed {seed}");
    }
    assert!(seen.len() == 4 && seen.values().all(|count| *count > 50), "{seen:?}");
}

#[test]
fn groups_hold_all_and_the_top_is_the_smallest_set() {
    for (seed, made, profile) in programs(200) {
        let query = profile.query();
        let mut by_path: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for ran in &made.ran {
            let range = made.range_of(ran);
            let path = range.map_or("(outside any range)".into(), |range| made.path(range));
            let sum = by_path.entry(path).or_default();
            sum.0 += 1;
            sum.1 += ran.time.map_or(0, |(start, end)| end - start);
            sum.2 += if ran.kind == OperationKind::Kernel { 0 } else { ran.bytes };
        }
        let groups = query.by_range();
        let mut found: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for group in &groups {
            let sum = found.entry(group.key().to_string()).or_default();
            sum.0 += group.count();
            sum.1 += super::ns(group.time());
            sum.2 += group.bytes();
        }
        assert_eq!(found, by_path, "seed {seed}");
        let shares: f64 = groups.iter().map(Group::share).sum();
        assert!(groups.is_empty() || query.gpu_time().is_zero() || (shares - 1.0).abs() < 1e-9);

        // Every set of groups that makes as much has at least as many.
        let times: Vec<u64> = groups.iter().map(|group| super::ns(group.time())).collect();
        let total: u64 = times.iter().sum();
        for tenths in [0_u64, 1, 5, 9, 10] {
            let top = groups.top_share(tenths as f64 / 10.0);
            let makes = |of: &[u64]| of.iter().sum::<u64>() * 10 >= tenths * total;
            let of_top: Vec<u64> = top.iter().map(|group| super::ns(group.time())).collect();
            assert!(makes(&of_top), "seed {seed}");
            if times.len() <= 10 {
                let sets = (0..1_u32 << times.len()).map(|set| {
                    let chosen = (0..times.len()).filter(|at| set >> at & 1 == 1);
                    chosen.map(|at| times[at]).collect::<Vec<u64>>()
                });
                let least = sets.filter(|set| makes(set)).map(|set| set.len()).min();
                assert_eq!(least, Some(top.len()), "seed {seed}, {tenths} tenths of {times:?}");
            }
        }
    }
}

#[test]
fn launches_are_measured_from_their_call() {
    let mut queued = 0;
    for (seed, made, profile) in programs(200) {
        let launches = profile.query().kernels().launches();
        let mut expected: BTreeMap<usize, &Ran> = BTreeMap::new();
        let kernels = made.ran.iter().filter(|ran| ran.kind == OperationKind::Kernel);
        for ran in kernels.clone() {
            if let (Some(call), Some(_)) = (ran.call, ran.time) {
                expected.entry(call).or_insert(ran);
            }
        }
        let unknown = kernels.filter(|ran| ran.call.is_none() || ran.time.is_none()).count();
        assert_eq!((launches.count(), launches.unknown()), (expected.len() as u64, unknown as u64));
        let ns = Duration::from_nanos;
        let mut of_gemm = [0; 4];
        for launch in launches.iter() {
            let row = launch.call().correlation_id() as usize - 1;
            let (call, (start, end)) = (&made.calls[row], expected[&row].time.unwrap());
            assert_eq!(launch.operation().start(), Some(ns(start)), "seed {seed}");
            assert_eq!(launch.latency(), ns(start.saturating_sub(call.time.0)));
            assert_eq!(launch.total_time(), ns(end.saturating_sub(call.time.0)));
            assert_eq!(launch.gpu_time(), ns(end - start));
            let delay = call.returned.then(|| ns(start.saturating_sub(call.time.1)));
            assert_eq!(launch.queue_delay(), delay);
            assert_eq!(launch.is_queued(), call.returned && start > call.time.1);
            assert_eq!(launch.api_time(), call.returned.then(|| ns(call.time.1 - call.time.0)));
            if expected[&row].name == "gemm" {
                of_gemm[0] += 1;
                of_gemm[1] += u64::from(launch.is_queued());
                of_gemm[2] += super::ns(launch.latency());
                of_gemm[3] += super::ns(launch.queue_delay().unwrap_or_default());
            }
        }
        let groups = launches.by_kernel();
        let gemm = groups.iter().find(|group| group.key.as_str() == "gemm");
        let seen = gemm.map_or([0; 4], |group| {
            let sums = [&group.latency, &group.queue_delay].map(|times| super::ns(times.sum()));
            [group.count, group.queued, sums[0], sums[1]]
        });
        assert_eq!(seen, of_gemm, "seed {seed}");
        let early = launches.iter().filter(|launch| {
            let call = &made.calls[launch.call().correlation_id() as usize - 1];
            launch.operation().start().unwrap() < Duration::from_nanos(call.time.0)
        });
        assert_eq!(launches.sum().before_call, early.count() as u64);
        let by_range = launches.by_range();
        assert_eq!(by_range.iter().map(|group| group.count).sum::<u64>(), launches.count());
        assert!(by_range.is_sorted_by_key(|group| std::cmp::Reverse(group.total_time.sum())));
        queued += launches.sum().queued;
    }
    assert!(queued > 20, "{queued}");
}

#[test]
fn waits_are_the_calls_that_block() {
    for (seed, made, profile) in programs(200) {
        let waits = profile.waits();
        let rows = made.calls.iter().filter(|call| call.class == CallClass::Synchronize);
        let time = |call: &TestCall| call.time.1 - call.time.0;
        assert_eq!(waits.count(), rows.clone().count() as u64, "seed {seed}");
        let total = Duration::from_nanos(rows.clone().map(time).sum());
        assert_eq!(waits.time(), total, "seed {seed}");
        assert_eq!(waits.count(), profile.totals().synchronizations);
        let is_in = |call: &&TestCall| {
            made.ancestors(call.range).iter().any(|range| made.ranges[*range].name == "r0")
        };
        let inside = rows.clone().filter(is_in);
        assert_eq!(waits.in_range("r0").time(), Duration::from_nanos(inside.map(time).sum()));
        let by_range: Duration = waits.by_range().iter().map(Group::time).sum();
        assert_eq!(by_range, total);
        assert!(waits.iter().all(|wait| wait.call().name() == "cuStreamSynchronize"));
        assert!(waits.iter().all(|wait| wait.target() == WaitTarget::Unknown));
    }
}

#[test]
fn steps_are_the_outermost_instances_in_order() {
    for (seed, made, profile) in programs(200) {
        let is_r1 = |range: &usize| made.ranges[*range].name == "r1";
        let is_step = |range: &usize| {
            is_r1(range) && !made.ancestors(made.ranges[*range].parent).iter().any(is_r1)
        };
        let mut expected: Vec<usize> = (0..made.ranges.len()).filter(is_step).collect();
        expected.sort_by_key(|range| (made.ranges[*range].time.0, *range));
        let steps = profile.steps("r1");
        let rows: Vec<usize> = steps.iter().map(|step| step.range().id.at()).collect();
        assert_eq!(rows, expected, "seed {seed}");
        for (step, &row) in steps.iter().zip(&expected) {
            let is_in = |ran: &&Ran| made.ancestors(made.range_of(ran)).contains(&row);
            let of_step: Vec<&Ran> = made.ran.iter().filter(is_in).collect();
            assert_eq!(step.totals().gpu_operations(), of_step.len() as u64);
            let span = step.gpu_span().map(|span| (super::ns(span.start), super::ns(span.end)));
            assert_eq!(span, ran_first_last(&of_step), "seed {seed}");
            let busy: usize = (0..2)
                .map(|device| {
                    let is_busy = move |ran: &&&Ran| ran.device == device && !ran.is_collective();
                    of_step.iter().filter(is_busy).copied()
                })
                .map(|on| bits(on).into_iter().filter(|bit| *bit).count())
                .sum();
            assert_eq!(super::ns(step.busy_time()), busy as u64, "seed {seed}");
        }
        let starts: Vec<u64> = expected.iter().map(|range| made.ranges[*range].time.0).collect();
        let periods: Vec<u64> = steps.iter().filter_map(Step::period).map(super::ns).collect();
        assert!(periods.iter().copied().eq(starts.windows(2).map(|pair| pair[1] - pair[0])));
    }
}

/// Consecutive steps of these lengths.
fn steps_of(lengths: &[u64]) -> Made {
    let mut made = Made { threads: 1, ..Made::default() };
    let mut at = 0;
    for length in lengths {
        made.ranges.push(Spot {
            name: "step".into(),
            domain: None,
            category: None,
            thread: 0,
            parent: None,
            time: (at, at + length),
        });
        at += length;
    }
    made
}

#[test]
fn the_first_slow_steps_are_warm_up_and_late_ones_are_outliers() {
    let made = steps_of(&[90, 40, 10, 12, 10, 8, 11, 30, 10, 12]);
    let profile = made.profile();
    let steps = profile.steps("step");
    assert_eq!(steps.warm_up(), 2);
    assert_eq!(steps.warm().as_slice()[0].number(), 2);
    let numbers =
        |steps: Vec<&Step<'_>>| steps.iter().map(|step| step.number()).collect::<Vec<_>>();
    assert_eq!(numbers(steps.outliers(3.0, Step::host_time)), [0, 1, 7]);
    // The median of the others is 10 ns, their median absolute deviation 1.
    assert_eq!(steps.statistics(Step::host_time).median(), Duration::from_nanos(11));
    assert_eq!(numbers(steps.warm().outliers(19.5, Step::host_time)), [7]);
    assert!(steps.warm().outliers(20.0, Step::host_time).is_empty());
    assert!(
        steps.to_string().starts_with("10 steps, 2 of them warm-up; the others:\nhost time: 8 x")
    );

    for even in [&[10; 6][..], &[11, 10, 10, 10], &[10], &[]] {
        assert_eq!(steps_of(even).profile().steps("step").warm_up(), 0, "{even:?}");
    }
    assert_eq!(steps_of(&[50; 2]).profile().steps("other").len(), 0);
    // A run that never gets faster has no warm-up; one that does so late has at most its half.
    assert_eq!(steps_of(&[90, 80, 70, 60, 9, 9]).profile().steps("step").warm_up(), 3);
}

fn event(is_allocation: bool, at: u64, address: u64, bytes: u64, kind: u8) -> Event {
    Event {
        at_ns: BASE + at,
        is_allocation,
        kind: cupti::MemoryKind(kind),
        bytes,
        address,
        device: 0,
        correlation_id: 0,
        call: tables::Maybe::NONE,
        process: 0,
        is_repeat: false,
    }
}

#[test]
fn memory_in_use_is_allocated_minus_freed() {
    let mut with_leaks = 0;
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut store = Tables::default();
        // By address: the kind and bytes of a live allocation.
        let mut live: BTreeMap<u64, (u8, u64)> = BTreeMap::new();
        let mut points: BTreeMap<u8, Vec<(u64, u64)>> = BTreeMap::new();
        let (mut unknown, mut missing) = (0, 0);
        for at in 0..rng.u64(1..40) {
            let address = rng.u64(1..6);
            let kind = [2, 3][(address % 2) as usize];
            let is_allocation = rng.u32(0..5) < 3;
            let bytes = rng.u64(1..100);
            store.memory.push(event(is_allocation, at, address, bytes, kind));
            if is_allocation {
                missing += u64::from(live.insert(address, (kind, bytes)).is_some());
            } else {
                unknown += u64::from(live.remove(&address).is_none());
            }
            let in_use = live.values().filter(|(of, _)| *of == kind).map(|(_, bytes)| bytes).sum();
            points.entry(kind).or_default().push((at, in_use));
        }
        let profile = profile_of(store);
        let memory = profile.memory();
        assert_eq!(memory.len(), points.len());
        let sum = |of: fn(&DeviceMemory<'_>) -> u64| memory.iter().map(of).sum::<u64>();
        assert_eq!(sum(|memory| memory.unknown_frees), unknown, "seed {seed}");
        assert_eq!(sum(|memory| memory.missing_frees), missing, "seed {seed}");
        for of in &memory {
            let points = &points[&of.kind.0];
            let in_use = |at: u64| {
                let before = of.timeline.iter().rev().find(|point| super::ns(point.at) <= at);
                before.map_or(0, |point| point.bytes)
            };
            for &(at, bytes) in points {
                assert_eq!(in_use(at), bytes, "seed {seed} at {at}");
            }
            let most = points.iter().map(|(_, bytes)| *bytes).max().unwrap();
            assert_eq!(of.peak.map_or(0, |peak| peak.bytes), most, "seed {seed}");
            if let (Some(peak), Some(event)) = (of.peak, of.peak_at) {
                let first = points.iter().find(|(_, bytes)| *bytes == most).unwrap();
                assert_eq!((super::ns(peak.at), event.at()), (first.0, peak.at), "seed {seed}");
            }
            let left = live.iter().filter(|(_, (kind, _))| *kind == of.kind.0);
            let mut addresses: Vec<u64> = of.not_freed.iter().map(MemoryEvent::address).collect();
            assert!(of.not_freed.is_sorted_by_key(MemoryEvent::at));
            addresses.sort_unstable();
            assert_eq!(addresses, left.map(|(address, _)| *address).collect::<Vec<_>>());
            let bytes: u64 = of.not_freed.iter().map(MemoryEvent::bytes).sum();
            assert_eq!(bytes, of.bytes_at_end(), "seed {seed}");
            with_leaks += u64::from(!of.not_freed.is_empty());
        }
    }
    assert!(with_leaks > 100);
}

#[test]
fn report_has_allocations_by_range_and_kind() {
    let mut store = Tables::default();
    for address in 0..13 {
        store.memory.push(event(true, address, address, 1 << address, address as u8 + 2));
    }
    store.memory.push(event(false, 20, 12, 0, 14));
    let report = profile_of(store).report().to_string();
    let rows: Vec<Vec<&str>> = report
        .lines()
        .skip_while(|line| !line.starts_with("memory of"))
        .take_while(|line| !line.starts_with("device"))
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(rows[0], ["memory of", "kind", "allocated", "allocations", "frees", "not freed"]);
    assert_eq!(rows[1][2..], ["4.000 KiB", "1", "1", "0 B"], "{report}");
    assert_eq!(rows[2][2..], ["2.000 KiB", "1", "0", "2.000 KiB"], "{report}");
    assert_eq!(rows[12][2..], ["2 B", "1", "0", "2 B"], "{report}");
    assert_eq!(rows[13], ["(1 more)", "1 B", "1", "0", "1 B"], "{report}");
    assert_eq!(rows.len(), 14, "{report}");
}

fn of_device<'a>(memory: &'a [DeviceMemory<'a>]) -> &'a DeviceMemory<'a> {
    let is_device = |memory: &&DeviceMemory<'_>| memory.kind == cupti::MemoryKind::DEVICE;
    memory.iter().filter(is_device).find(|memory| memory.device == 0).unwrap()
}

/// A free may name another kind of memory, as for mapped addresses.
#[test]
fn free_of_another_kind_reduces_the_kind_of_the_allocation() {
    let memory = vec![event(true, 1, 0x10, 64, 3), event(false, 2, 0x10, 0, 0)];
    let store = Tables { memory, ..Tables::default() };
    let profile = profile_of(store);
    let memory = profile.memory();
    let device = of_device(&memory);
    assert_eq!(memory.len(), 1);
    assert_eq!((device.allocations, device.frees, device.bytes_at_end()), (1, 1, 0));
    assert!(device.not_freed.is_empty());
}

#[test]
fn empty_profile_has_no_rows() {
    let profile = profile_of(Tables::default());
    let query = profile.query();
    assert_eq!((query.count(), query.gpu_time(), query.span()), (0, Duration::ZERO, None));
    assert_eq!((query.busy_time(), query.idle()), (Duration::ZERO, Duration::ZERO));
    assert!(query.overlap().is_empty() && query.devices().is_empty());
    assert_eq!(query.statistics().count(), 0);
    assert!(query.by_kernel().top_share(1.0).is_empty());
    assert_eq!(query.by_range().to_string(), "none");
    assert_eq!(query.gaps(Duration::ZERO).to_string(), "0 gaps, idle for 0 ns");
    assert_eq!(query.launches().count(), 0);
    assert_eq!(query.clone().in_range("*").by_window().count(), 0);
    assert_eq!((profile.waits().count(), profile.steps("*").len()), (0, 0));
    assert!(profile.memory().is_empty());
    assert!(profile.walk().next().is_none());
}

/// A damaged file may contain any times.
#[test]
fn inconsistent_times_are_accepted() {
    let mut store = Tables::default();
    let what = || What::Memset(cupti::Memset::default());
    let place = cupti::Place::default();
    let work = store.intern_work(Work::new(what(), place));
    let mut kernel = || {
        let name = store.names.intern("k");
        let names = KernelNames { name, demangled: None, short: None };
        What::Kernel { names, details: cupti::Kernel::default() }
    };
    let what = kernel();
    let kernel = store.intern_work(Work::new(what, place));
    let spans = [(1, u64::MAX), (5, 2), (7, 7), (u64::MAX - 1, u64::MAX), (u64::MAX, 3)];
    for (row, (start_ns, end_ns)) in spans.into_iter().enumerate() {
        let work = if row % 2 == 0 { work } else { kernel };
        store.operations.push(tables::Operation::new(work, Some(Interval { start_ns, end_ns }), 0));
    }
    store.threads.push(tables::Thread { id: 1, process: 0, name: None, priority: None });
    let name = store.names.intern("r");
    store.labels.push(Label { name, domain: None, category: None, color: None });
    for (start_ns, end_ns) in [(9, 3), (0, u64::MAX), (4, 6)] {
        store.ranges.push(tables::Range {
            time: Interval { start_ns, end_ns },
            label: LabelId(0),
            thread: ThreadId(0),
            parent: tables::Maybe::NONE,
            is_open: false,
        });
    }
    store.session.window_ns = (3, 2);
    let profile = profile_of(store);
    let query = profile.query();
    let _ = (query.span(), query.busy_time(), query.idle(), query.overlap(), query.statistics());
    let gaps = query.clone().kernels().gaps(Duration::ZERO);
    assert_eq!(gaps.longest(9).len(), gaps.iter().count().min(9));
    assert!(!gaps.to_string().is_empty());
    for gap in gaps.iter() {
        let causes: Duration = gaps.causes(&gap).iter().map(|(_, time)| *time).sum();
        assert_eq!(causes, gap.duration());
    }
    let _ = (query.by_range().to_string(), query.launches().sum());
    let _ = (query.clone().by_window().count(), profile.steps("r").to_string());
    assert!(query.clone().in_range("r").by_window().count() > 0);
}

#[test]
fn nodes_are_walked_from_the_outside_in() {
    for (seed, _, profile) in programs(100) {
        fn descend(node: RangeNode<'_>, depth: usize, into: &mut Vec<(usize, String)>) {
            into.push((depth, node.path()));
            node.children().for_each(|child| descend(child, depth + 1, into));
        }
        let mut expected = Vec::new();
        profile.roots().for_each(|root| descend(root, 0, &mut expected));
        let walked: Vec<_> = profile.walk().map(|(depth, node)| (depth, node.path())).collect();
        assert_eq!(walked, expected, "seed {seed}");
        assert_eq!(walked.len(), profile.nodes().count());
        if let Some(root) = profile.roots().next() {
            let inner: Vec<_> = root.walk().map(|(depth, node)| (depth, node.path())).collect();
            assert_eq!(inner, expected[..inner.len()]);
        }
    }
}

/// CUPTI may write two records for one allocation or free.
#[test]
fn duplicate_memory_records_count_once() {
    let event = |is_allocation, at, address, correlation_id| Event {
        correlation_id,
        ..event(is_allocation, at, address, 64, 3)
    };
    let memory = vec![
        event(true, 1, 0x10, 1),
        event(true, 2, 0x10, 1),
        event(false, 3, 0x10, 2),
        event(false, 4, 0x10, 2),
        // The same address again.
        event(true, 5, 0x10, 3),
        event(true, 6, 0x10, 3),
        event(true, 7, 0x20, 4),
        event(false, 8, 0x30, 5),
        event(false, 9, 0x30, 5),
    ];
    let store = Tables { memory, ..Tables::default() };
    let profile = profile_of(store);
    let memory = profile.memory();
    let device = of_device(&memory);
    assert_eq!((device.allocations, device.frees, device.repeated_records), (3, 2, 4));
    assert_eq!((device.unknown_frees, device.missing_frees), (1, 0));
    let points: Vec<_> =
        device.timeline.iter().map(|point| (super::ns(point.at), point.bytes)).collect();
    assert_eq!(points, [(1, 64), (3, 0), (5, 64), (7, 128)]);
    assert_eq!(device.not_freed.len(), 2);
}
