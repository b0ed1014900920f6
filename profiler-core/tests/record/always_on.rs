//! Always-on sessions: which units are recorded, what is counted in full, and what is estimated from a sample.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cupti::fake::{Fake, Work};
use cupti::{ActivityKind, Config};
use profiler_core::session::always_on::{
    AlwaysOn, AlwaysOnReport, AlwaysOnSession, State, TimedCost,
};
use profiler_core::statistics::RatioEstimator;
use profiler_core::{Profile, Profiler, ProfilerBuilder};

use crate::folder::Folder;

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn builder(fake: &Fake) -> ProfilerBuilder {
    Profiler::builder().library(fake.library().unwrap()).period(Duration::from_millis(5))
}

fn start(fake: &Fake, settings: &AlwaysOn) -> AlwaysOnSession {
    builder(fake).build().unwrap().always_on(settings).unwrap()
}

/// Any number of windows, also soon after graphs of other tests were made.
fn sampling() -> AlwaysOn {
    AlwaysOn::new().budget(1.0).graphs_quiet(Duration::ZERO).baseline(Duration::ZERO)
}

/// Waits until launches were measured, which the first window waits for.
fn measured(service: &AlwaysOnSession) -> AlwaysOnReport {
    loop {
        let report = service.snapshot().unwrap();
        if !matches!(report.state(), State::Measuring | State::Comparing) {
            return report;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A unit of `kernels` kernels of 1 us each and one copy. Returns whether it was recorded.
fn unit(fake: &Fake, service: &AlwaysOnSession, name: &str, kernels: u64) -> bool {
    let unit = service.unit(name);
    let is_on = fake.enabled_kinds().contains(&ActivityKind::CONCURRENT_KERNEL);
    assert!(is_on || !unit.is_recorded());
    fake.launch(Work::host_to_device(64).taking_ns(5_000));
    {
        let _inner = nvtx::range("decode");
        (0..kernels).for_each(|_| _ = fake.launch(Work::kernel(c"decode").taking_ns(1_000)));
    }
    unit.is_recorded()
}

#[test]
fn recorded_units_are_exact_and_all_calls_count() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &sampling().rate(0.5));
    fake.launch(Work::kernel(c"before all units"));
    assert_eq!(measured(&service).state(), State::Sampling);
    let (mut units, mut recorded, mut kernels, mut all) = (0, 0, 0, 0);
    while units < 400 || recorded < 50 {
        let launched = 1 + units % 7;
        units += 1;
        all += launched;
        if unit(&fake, &service, "request", launched) {
            (recorded, kernels) = (recorded + 1, kernels + launched);
            // The window closes before another unit can begin.
            while !fake.enabled_kinds().is_empty() {
                std::thread::yield_now();
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let report = service.stop().unwrap();
    let text = report.to_string();
    report.recorded().health().assert_complete();
    let counts = report.counts();
    assert!(recorded + 50 < units, "{text}");
    assert_eq!((counts.drawn, report.sampled_windows()), (recorded, recorded), "{text}");
    assert_eq!(counts.units + counts.overlapping, units, "{text}");
    // What was recorded is what the windows launched; calls count in full.
    assert_eq!(report.recorded().totals().kernels, kernels, "{text}");
    assert_eq!(report.submissions(), all + units + 1, "{text}");
    let rows: Vec<_> = report.ranges().collect();
    let paths: Vec<_> =
        rows.iter().map(|row| (&*row.path, row.instances, row.submissions)).collect();
    assert_eq!(paths, [("request", units, all + units), ("request/decode", units, all)]);
    // Host times are those of all requests; GPU times of those that were recorded, and not zeros of the others.
    for path in report.recorded().paths() {
        let (host, gpu) = (path.host_time(), path.gpu_time());
        assert_eq!((host.count(), gpu.count()), (units, recorded), "{text}");
        assert!(gpu.min() >= Duration::from_nanos(1_000), "{gpu}");
    }
    // All kernels take as long: there is nothing to be unsure of.
    let decode = rows[1].gpu_ns.unwrap();
    let total = all as f64 * 1_000.0;
    assert!((decode.value - total).abs() < 1.0 && decode.high - decode.low < 10.0, "{decode:?}");
    let request = rows[0].gpu_ns.unwrap();
    assert!(
        request.low < request.value && request.value < request.high && request.units == recorded
    );
    for part in ["SAMPLED", "95 % intervals", "request/decode", "budget 100.00 %"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!fake.is_subscribed());
}

#[test]
fn without_windows_kinds_stay_off_and_calls_count() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &AlwaysOn::new().calls_only().baseline(Duration::ZERO));
    measured(&service);
    for _ in 0..20 {
        assert!(!unit(&fake, &service, "request", 3) && fake.enabled_kinds().is_empty());
    }
    let report = service.stop().unwrap();
    assert_eq!((report.state(), report.submissions()), (State::CallsOnly, 80));
    assert_eq!((report.gpu_time(), report.recorded().totals().kernels), (None, 0));
    report.recorded().health().assert_complete();
    assert!(report.to_string().contains("calls only"), "{report}");
}

#[test]
fn graphs_as_intervals_are_a_mode_of_a_whole_run() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let config = Config::new().add_kind(ActivityKind::GRAPH_TRACE);
    let profiler = builder(&fake).config(config).build().unwrap();
    let error = profiler.always_on(&AlwaysOn::new()).unwrap_err().to_string();
    assert!(error.contains("GRAPH_TRACE") && error.contains("whole_graphs"), "{error}");
    assert!(!fake.is_subscribed(), "nothing is left on");

    let service = start(&fake, &AlwaysOn::new().whole_graphs());
    assert!(fake.enabled_kinds().contains(&ActivityKind::GRAPH_TRACE));
    for _ in 0..10 {
        assert!(!unit(&fake, &service, "request", 2));
    }
    let report = service.stop().unwrap();
    assert_eq!((report.state(), report.recorded().totals().kernels), (State::WholeGraphs, 20));
    assert!(report.to_string().contains("nothing is sampled"), "{report}");
}

#[test]
fn no_window_opens_while_graphs_are_made() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let settings = AlwaysOn::new().budget(1.0).graphs_quiet(Duration::from_secs(3600));
    let service = start(&fake, &settings);
    let mut graph = fake.graph();
    fake.capture_into(&mut graph, &Work::kernel(c"node"));
    let exec = fake.instantiate(&graph);
    measured(&service);
    for _ in 0..50 {
        let unit = service.unit("replay");
        fake.launch_exec(&exec);
        assert!(!unit.is_recorded() && fake.enabled_kinds().is_empty());
    }
    let report = service.stop().unwrap();
    let counts = report.counts();
    assert_eq!((counts.units, counts.while_graphs_were_made, counts.drawn), (50, 50, 0));
    assert!(report.to_string().contains("while graphs were made"), "{report}");
}

/// A graph that was captured before the window has its nodes attributed to the range of the capture.
#[test]
fn graphs_of_pauses_are_attributed_in_windows() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let settings = sampling();
    let service = start(&fake, &settings);
    let mut graph = fake.graph();
    {
        let _layer = nvtx::range("layer");
        fake.capture_into(&mut graph, &Work::kernel(c"node").taking_ns(500));
    }
    let exec = fake.instantiate(&graph);
    measured(&service);
    let mut recorded = 0;
    while recorded < 3 {
        let unit = service.unit("replay");
        fake.launch_exec(&exec);
        recorded += u64::from(unit.is_recorded());
        drop(unit);
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = service.stop().unwrap();
    let layer = report.recorded().find("layer").next().unwrap();
    assert_eq!(layer.replayed().kernels, recorded, "{report}");
    report.recorded().health().assert_complete();
}

#[test]
fn names_are_selected_and_a_slow_unit_has_the_next_one_recorded() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let settings = sampling().rate(0.0).name("request");
    let service = start(&fake, &settings.clone().slow(Duration::MAX));
    measured(&service);
    assert!(service.begin_unit("other").is_none());
    assert!((0..3).all(|_| !unit(&fake, &service, "request", 1)), "none is slow");
    assert_eq!(service.stop().unwrap().counts().slow, 0);
    let service = start(&fake, &settings.slow(Duration::ZERO));
    measured(&service);
    assert!(!unit(&fake, &service, "request", 1));
    // Again where a thread of the profiler holds the window up: it is none, and is counted.
    while !unit(&fake, &service, "request", 4) {}
    let report = service.stop().unwrap();
    let counts = report.counts();
    assert_eq!((counts.units - counts.refused, counts.after_slow, counts.drawn), (2, 1, 0));
    assert_eq!(counts.slow, counts.units);
    // It is there to look at, and in no estimate.
    assert_eq!((report.recorded().totals().kernels, report.gpu_time()), (4, None));
}

#[test]
fn budget_exceeded_by_launches_alone_opens_no_window() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &sampling().budget(0.0));
    while service.snapshot().unwrap().state() != State::BudgetExceeded {
        assert!(!unit(&fake, &service, "request", 50) && fake.enabled_kinds().is_empty());
    }
    assert!(!unit(&fake, &service, "request", 1));
    let report = service.stop().unwrap();
    assert!(report.counts().over_budget > 0 && report.fixed_share() > 0.0);
    assert!(report.to_string().contains("NO WINDOW IS OPENED"), "{report}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    for (settings, part) in [
        (AlwaysOn::new().budget(3.0), "from 0 to 1"),
        (AlwaysOn::new().rate(f64::NAN), "from 0 to 1"),
        (AlwaysOn::new().peak_launches(-1.0), "launches a second"),
        (AlwaysOn::new().attach_cost(12.0), "attach cost of 12"),
    ] {
        let error = builder(&fake).build().unwrap().always_on(&settings).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// So many launches, each of which takes at least this long in the driver.
fn launch(fake: &Fake, count: u64, each: Duration) {
    for _ in 0..count {
        fake.launch_around(&Work::kernel(c"k"), || {
            let begun = Instant::now();
            while begun.elapsed() < each {
                std::hint::spin_loop();
            }
        });
    }
}

/// A planted rise of 200 us a launch after the first window is measured, and at the present rate it is more than the budget.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn slower_launches_are_measured_and_end_windows() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &sampling().budget(0.05).watch(Duration::ZERO));
    let (cheap, dear) = (Duration::from_micros(20), Duration::from_micros(220));
    let late = Instant::now() + Duration::from_secs(60);
    // Calls are compared at their lower quartile, of 200 launches at least.
    launch(&fake, 1_000, cheap);
    let before = service.snapshot().unwrap();
    assert_eq!((before.lasting_rise(), before.lasting_share()), (None, 0.0), "{before}");
    while !unit(&fake, &service, "request", 1) {
        launch(&fake, 50, cheap);
        assert!(Instant::now() < late, "{}", service.snapshot().unwrap());
    }
    let report = loop {
        launch(&fake, 300, dear);
        let report = service.snapshot().unwrap();
        // A busy machine may never have the same rate of launches again: then it is estimated.
        let is_seen = report.lasting_rise().is_some_and(|rise| rise.ns > 50e3);
        if is_seen && report.state() == State::BudgetExceeded {
            break report;
        }
        assert!(Instant::now() < late, "{report}");
    };
    let rise = report.lasting_rise().unwrap().ns;
    assert!(rise < 50e6, "{rise} ns: {report}");
    // It is a share of the present time, whatever that before the window was.
    let share = report.lasting_share();
    let expected = rise * report.launches_per_second() / 1e9;
    assert!(share > 0.05 && (share - expected).abs() < 1e-9, "{share}: {report}");
    for part in ["us dearer each (", "NO WINDOW IS OPENED"] {
        assert!(report.to_string().contains(part), "{part} is missing in:\n{report}");
    }
    assert!(
        !unit(&fake, &service, "request", 1) && service.stop().unwrap().counts().over_budget > 0
    );
}

/// If slower launches could exceed a budget, they are watched first.
#[test]
fn the_first_window_waits_for_the_watch_and_for_the_declared_load() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let settings = sampling().budget(0.1).watch(Duration::from_secs(3600));
    let service = start(&fake, &settings);
    while service.snapshot().unwrap().launches_per_second() == 0.0 {
        assert!(!unit(&fake, &service, "request", 1));
    }
    let report = service.stop().unwrap();
    assert_eq!((report.state(), report.counts().drawn), (State::Measuring, 0), "{report}");
    assert!(report.to_string().contains("before the first window"), "{report}");

    let settings = settings.watch(Duration::ZERO).peak_launches(1e6);
    let service = start(&fake, &settings);
    assert_eq!(measured(&service).state(), State::BudgetExceeded, "0.6 of the time");
    assert!(!unit(&fake, &service, "request", 1));
    assert_eq!(service.stop().unwrap().counts().over_budget, 1);
}

/// Units of all threads overlap: one at a time is a window's, and nothing is lost.
#[test]
fn requests_on_many_threads_share_windows() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &sampling());
    measured(&service);
    let threads = 4_u64;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..100 {
                    unit(&fake, &service, "request", 3);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        }
    });
    let report = service.stop().unwrap();
    let counts = report.counts();
    report.recorded().health().assert_complete();
    assert_eq!(report.submissions(), threads * 400);
    assert_eq!(counts.units + counts.overlapping, threads * 100);
    assert_eq!(report.sampled_windows(), counts.drawn, "{report}");
    assert!(report.sampled_windows() > 0, "{report}");
}

/// The launches and GPU times of each step in a full recording of steps whose load drifts tenfold.
fn steps_of_a_full_recording(fake: &Fake) -> Vec<(f64, f64)> {
    let mut random = fastrand::Rng::with_seed(11);
    let profiler = builder(fake).build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            for number in 0..800_u64 {
                let _step = nvtx::range("step");
                // From 3 to 30 launches, and the time of a kernel depends on the phase, too.
                let load = 3 + 27 * (number % 200) / 200;
                for _ in 0..load {
                    let ns = (2_000.0 + 8.0 * number as f64) * -(1.0 - random.f64()).ln();
                    fake.launch(Work::kernel(c"k").taking_ns(ns as u64 + 1));
                }
            }
        })
        .unwrap();
    profile.health().assert_complete();
    let steps = profile.ranges().filter(|range| range.name() == "step");
    let totals = steps.map(|step| step.inclusive());
    totals.map(|all| (all.launches as f64, all.gpu_time().as_nanos() as f64)).collect()
}

/// In which share of so many draws of `units`, launches and GPU times, the interval contains their total.
fn coverage(units: &[(f64, f64)], draws: u32, probability: impl Fn(f64) -> f64) -> f64 {
    let launches: f64 = units.iter().map(|(launches, _)| launches).sum();
    let truth: f64 = units.iter().map(|(_, ns)| ns).sum();
    let mut random = fastrand::Rng::with_seed(3);
    let covers = |_: &u32| {
        let mut sample = RatioEstimator::default();
        for (size, amount) in units {
            let probability = probability(*size);
            if random.f64() < probability {
                sample.add(probability, *size, *amount);
            }
        }
        sample.estimate(launches).is_some_and(|total| total.low <= truth && truth <= total.high)
    };
    f64::from((0..draws).filter(covers).count() as u32) / f64::from(draws)
}

/// Draws from a full recording, whose total is known: the 95 % intervals contain it in 94 to 96 % of them.
#[test]
fn intervals_contain_the_truth_at_their_confidence() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let steps = steps_of_a_full_recording(&fake);
    assert_eq!(steps.len(), 800);
    let is_thorough = crate::effort::is_thorough();
    let most_off = if is_thorough { 0.01 } else { 0.02 };
    // The probability changes with the load, as the controller's does.
    for (least, most) in [(0.1, 0.1), (0.05, 0.3), (0.3, 0.6)] {
        let probability = |size: f64| most - (most - least) * (size - 3.0) / 27.0;
        let share = coverage(&steps, if is_thorough { 10_000 } else { 1_000 }, probability);
        println!("probability {least} to {most}: {share} of the intervals contain the total");
        assert!((share - 0.95).abs() <= most_off, "probability {least} to {most}: {share}");
    }
}

/// Recordings of real GPUs.
const RECORDED: [&str; 10] = [
    "examples/recordings/quickstart-h200.gpuprof",
    "tests/recordings/case-studies/batched-before.gpuprof",
    "tests/recordings/case-studies/bf16-before.gpuprof",
    "tests/recordings/diseases/launch-bound-cured.gpuprof",
    "tests/recordings/diseases/launch-bound-ill.gpuprof",
    "tests/recordings/diseases/serial-streams-ill.gpuprof",
    "tests/recordings/diseases/sync-every-kernel-ill.gpuprof",
    "tests/recordings/nccl-2xh100/rank-0.gpuprof",
    "tests/recordings/pytorch-h100/decode.gpuprof",
    "tests/recordings/roofline-h200.gpuprof",
];

/// The launches and GPU times of slices of the recording's time, as those that `gpuprof run --always-on` draws. Many have none.
fn slices_of_a_recording(file: &str, slices: usize) -> Vec<(f64, f64)> {
    let file = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
    let profile = Profile::load(file).unwrap();
    let begun: Vec<_> = profile.calls().map(|call| call.start()).collect();
    let (first, last) = (*begun.iter().min().unwrap(), *begun.iter().max().unwrap());
    let slice = (last - first).as_secs_f64() / slices as f64;
    let (mut units, mut launches) = (vec![(0.0, 0.0); slices], std::collections::HashSet::new());
    for operation in profile.operations() {
        let call = operation.call().unwrap();
        let at = ((call.start() - first).as_secs_f64() / slice) as usize;
        let unit = &mut units[at.min(slices - 1)];
        unit.0 += f64::from(u8::from(launches.insert(call.start())));
        unit.1 += operation.gpu_time().unwrap().as_nanos() as f64;
    }
    units
}

/// A long run that does forty times what a GPU was recorded to do, drawn in slices of time: its total is known. Slices are far from equal:
/// bursts, idle ones, and first launches that take a thousand times as long.
#[test]
fn intervals_of_real_work_contain_the_truth_at_their_confidence() {
    const TIMES: usize = 40;
    const SLICES: usize = 20;
    let draws = if crate::effort::is_thorough() { 10_000 } else { 1_000 };
    let mut shares = Vec::new();
    for file in RECORDED {
        let once = slices_of_a_recording(file, SLICES);
        let units: Vec<_> = (0..TIMES).flat_map(|_| once.iter().copied()).collect();
        let busy = units.iter().filter(|(launches, _)| *launches > 0.0).count();
        let share = coverage(&units, draws, |_| 0.3);
        println!("{file}: {busy} of {} slices with work, {share} of the intervals", units.len());
        // With 40 drawn slices or more that had work.
        assert!(busy * 3 / 10 >= 40, "{file}: {busy}");
        // Of a tenth of the draws 0.7 % is one standard deviation.
        let most_off = if crate::effort::is_thorough() { 0.01 } else { 0.025 };
        assert!((share - 0.95).abs() <= most_off, "{file}: {share}");
        shares.push(share);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{mean} of all");
    assert!((0.94..=0.96).contains(&mean), "{mean}");
}

/// Units of a decode loop until the session has compared them. CUPTI makes them slower by `rise`, as it does launches of graphs.
fn compared(fake: &Fake, service: &AlwaysOnSession, rise: Duration) -> AlwaysOnReport {
    let late = Instant::now() + Duration::from_secs(60);
    loop {
        for _ in 0..50 {
            let _unit = service.unit("decode");
            fake.launch(Work::kernel(c"node"));
            let attached = if fake.is_subscribed() { rise } else { Duration::ZERO };
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(400) + attached {
                std::hint::spin_loop();
            }
        }
        let report = service.snapshot().unwrap();
        if report.state() != State::Comparing && report.submissions() > 0 {
            return report;
        }
        assert!(Instant::now() < late, "{report}");
    }
}

fn comparing() -> AlwaysOn {
    AlwaysOn::new()
        .graphs_quiet(Duration::ZERO)
        .watch(Duration::ZERO)
        .baseline(Duration::from_millis(300))
}

/// CUPTI's first call makes each unit 100 us slower, a fifth: that is measured, exceeds the budget, and the report says what to do.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn the_cost_of_the_first_call_is_measured_by_units_and_counts() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &comparing());
    assert_eq!(service.snapshot().unwrap().state(), State::Comparing);
    assert!(!fake.is_subscribed(), "no call into CUPTI before the units are timed");
    let report = compared(&fake, &service, Duration::from_micros(100));
    let TimedCost::Measured(cost) = report.attach_cost() else { panic!("{report}") };
    assert!(cost.low < 0.3 && cost.high > 0.1 && cost.value > 0.05, "{report}");
    assert!(cost.units_before > 50 && cost.units_after > 50, "{report}");
    // It counts from the first moment on, and for as long as units come.
    for _ in 0..20 {
        let report = compared(&fake, &service, Duration::from_micros(100));
        // On a busy machine it may seem that logged calls cost something, too.
        let is_over = matches!(report.state(), State::BudgetExceeded | State::RangesOnly);
        assert!(is_over && report.counts().drawn == 0, "{report}");
    }
    let report = service.stop().unwrap();
    report.recorded().health().assert_complete();
    assert!(report.fixed_share() > 0.01, "{report}");
    // Calls count since CUPTI is attached, ranges from the start.
    let decode = report.ranges().next().unwrap();
    assert!(decode.submissions > 0 && decode.submissions < decode.instances, "{report}");
    for part in ["it alone exceeds the budget", "attach_cost", "--start wait", "95 %: "] {
        assert!(report.to_string().contains(part), "{part} is missing in:\n{report}");
    }
}

/// Logged calls make each unit 100 us slower, a fifth, as in a service at saturation: they are not logged until few units come.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn calls_are_not_logged_while_that_costs_more_than_the_budget() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    until_compared(|| logging_stops_and_begins(&fake, start(&fake, &comparing())));
}

/// As `gpuprof run --always-on` has it: a file holds what happens in windows, and needs no call outside them.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn a_file_of_windows_does_not_keep_calls_logged() {
    let (_turn, fake, folder) = (turn(), crate::fake::fake(), Folder::new());
    let path = folder.0.join("run.gpuprof");
    let config = Config::new().start_paused(true).calls_in_pauses(true).attach_on_request(true);
    until_compared(|| {
        let _ = std::fs::remove_file(&path);
        let profiler = builder(&fake).config(config.clone()).build().unwrap();
        let file = profiler.record_to(&path).unwrap();
        logging_stops_and_begins(&fake, profiler.always_on(&comparing()).unwrap())?;
        file.finish().unwrap();
        Ok(())
    });
    let profile = Profile::load(&path).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.calls().count(), 0, "the file was in no window");
}

/// Runs this until the comparison of units shows what logging costs. On a busy machine callbacks may stay enabled where calls are not logged, and it does
/// not: another session begins.
fn until_compared(run: impl Fn() -> Result<(), String>) {
    let mut others = Vec::new();
    while let Err(report) = run() {
        others.push(report);
        assert!(others.len() < 5, "{}", others.join("\n"));
    }
}

/// The report of a session that logs calls after its comparison, as an error.
fn logging_stops_and_begins(fake: &Fake, service: AlwaysOnSession) -> Result<(), String> {
    let unit = || {
        let _unit = service.unit("request");
        fake.launch(Work::kernel(c"k"));
        let logged = if fake.enabled_callbacks().is_empty() { 0 } else { 100 };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(400 + logged) {
            std::hint::spin_loop();
        }
    };
    let until = |is_reached: fn(State) -> bool, pause: Duration| {
        let late = Instant::now() + Duration::from_secs(60);
        loop {
            (0..20).for_each(|_| {
                unit();
                std::thread::sleep(pause);
            });
            let report = service.snapshot().unwrap();
            if is_reached(report.state()) {
                return report;
            }
            assert!(Instant::now() < late, "{report}");
        }
    };
    let is_ranges_only = |state| state == State::RangesOnly;
    let is_decided = |state| !matches!(state, State::Comparing | State::Measuring);
    let report = until(is_decided, Duration::ZERO);
    if !is_ranges_only(report.state()) {
        let _ = service.stop().unwrap();
        return Err(report.to_string());
    }
    let TimedCost::Measured(cost) = report.logging_cost() else { panic!("{report}") };
    assert!(cost.low < 0.3 && cost.high > 0.1 && cost.value > 0.05, "{report}");
    // At the latest by a second try, where a busy machine keeps this thread in its call.
    let late = Instant::now() + Duration::from_secs(30);
    while !fake.enabled_callbacks().is_empty() {
        assert!(Instant::now() < late, "callbacks stay enabled");
        unit();
    }
    assert!(fake.is_subscribed(), "CUPTI stays attached");
    let (submissions, logged) = (report.submissions(), report.logged_share());
    assert!(submissions > 0 && logged > 0.0 && logged < 1.0, "{report}");
    let instances = |report: &AlwaysOnReport| report.ranges().next().unwrap().instances;
    let report = until(is_ranges_only, Duration::ZERO);
    assert_eq!(report.submissions(), submissions, "{report}");
    assert!(instances(&report) > submissions && report.counts().drawn == 0, "{report}");
    for part in ["CALLS ARE NOT LOGGED", "logging calls: ", "calls were logged for "] {
        assert!(report.to_string().contains(part), "{part} is missing in:\n{report}");
    }
    // Few units: 100 us of each are less than the budget.
    until(|state| state == State::Sampling, Duration::from_millis(20));
    assert!(!fake.enabled_callbacks().is_empty());
    unit();
    let report = service.stop().unwrap();
    report.recorded().health().assert_complete();
    assert!(report.submissions() > submissions, "{report}");
    Ok(())
}

/// A session whose comparison of units leaves a budget to windows, and its report once a window is in the estimates. On a busy machine
/// other work may look like a cost of recording, and that session opens none: the next one is begun. `within` sees each of them.
fn sampled(fake: &Fake, within: impl Fn(&AlwaysOnSession)) -> (AlwaysOnSession, AlwaysOnReport) {
    let mut refused = Vec::new();
    for _ in 0..5 {
        let service = start(fake, &comparing().budget(0.19));
        within(&service);
        let late = Instant::now() + Duration::from_secs(20);
        loop {
            let report = compared(fake, &service, Duration::ZERO);
            if matches!(report.state(), State::BudgetExceeded | State::RangesOnly) {
                refused.push(report.to_string());
                break;
            }
            if report.sampled_windows() > 0 {
                return (service, report);
            }
            assert!(Instant::now() < late, "{report}");
        }
    }
    panic!("no session of five opened a window: {refused:#?}");
}

#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn a_first_call_that_costs_little_leaves_the_budget_to_windows() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let (service, report) = sampled(&fake, |_| {});
    assert!(matches!(report.attach_cost(), TimedCost::Measured(_)), "{report}");
    let report = service.stop().unwrap();
    report.recorded().health().assert_complete();
    assert!(report.gpu_time().is_some(), "{report}");
}

/// A thread is in a call when logging stops, and makes no other one: that call is never seen to return. Windows that come later are complete
/// all the same.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn calls_that_return_while_none_is_logged_hold_no_window_back() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let late = Instant::now() + Duration::from_secs(60);
    let logs = |wanted: bool| {
        while fake.enabled_callbacks().is_empty() == wanted {
            assert!(Instant::now() < late, "logging did not turn");
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    std::thread::scope(|scope| {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (fake, logs, ended) = (&fake, &logs, std::sync::Arc::new(Mutex::new(ended)));
        let (service, _) = sampled(fake, |_| {
            let ended = ended.clone();
            scope.spawn(move || {
                logs(true);
                // Every callback is on by then.
                std::thread::sleep(Duration::from_millis(3));
                fake.launch_around(&Work::kernel(c"returns unseen"), || logs(false));
                // The thread lives on.
                let _ = ended.lock().map(|ended| ended.recv());
            });
        });
        let report = service.stop().unwrap();
        drop(end);
        report.recorded().health().assert_complete();
        assert!(report.gpu_time().is_some(), "{report}");
    });
}

#[test]
fn a_declared_cost_above_the_budget_keeps_cupti_uncalled() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &sampling().budget(0.03).attach_cost(0.12));
    for _ in 0..20 {
        assert!(!unit(&fake, &service, "request", 1) && !fake.is_subscribed());
    }
    let report = service.stop().unwrap();
    assert_eq!(
        (report.state(), report.attach_cost()),
        (State::NotAttached, TimedCost::Declared(0.12))
    );
    assert_eq!((report.submissions(), report.counts().units), (0, 20), "{report}");
    assert_eq!(report.fixed_share(), 0.0, "what is not called costs nothing: {report}");
    assert_eq!(report.ranges().next().unwrap().instances, 20);
    report.recorded().health().assert_complete();
    assert!(report.to_string().contains("CUPTI IS NOT CALLED"), "{report}");

    // Within the budget CUPTI is called at the start, and the share counts.
    let service = start(&fake, &sampling().budget(0.15).attach_cost(0.12));
    assert!(fake.is_subscribed());
    while service.snapshot().unwrap().fixed_share() < 0.06 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(service.stop().unwrap().fixed_share() < 0.13);
}

/// A program that declares the cost may capture its graphs at the start: calls are logged from there on, and not for a while later.
#[test]
#[ignore = "needs the clock: bash .ci/run thorough"]
fn logging_is_compared_beside_a_declared_cost() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let settings = comparing().budget(0.15).attach_cost(0.01).baseline(Duration::from_millis(200));
    let service = start(&fake, &settings);
    assert!(fake.is_subscribed() && !fake.enabled_callbacks().is_empty());
    let late = Instant::now() + Duration::from_secs(60);
    let mut was_without_calls = false;
    let report = loop {
        for _ in 0..20 {
            let _unit = service.unit("decode");
            fake.launch(Work::kernel(c"node"));
            was_without_calls |= fake.enabled_callbacks().is_empty();
            std::thread::sleep(Duration::from_micros(200));
        }
        let report = service.snapshot().unwrap();
        if report.state() != State::Comparing {
            break report;
        }
        assert!(Instant::now() < late, "{report}");
    };
    assert!(was_without_calls, "{report}");
    assert_eq!(report.attach_cost(), TimedCost::Declared(0.01));
    let TimedCost::Measured(cost) = report.logging_cost() else { panic!("{report}") };
    assert!(cost.units_before > 50 && cost.units_after > 50, "{report}");
    // Beside another session calls are logged, and nothing is compared.
    let report = service.stop().unwrap();
    report.recorded().health().assert_complete();
    assert!(report.submissions() > 0 && report.logged_share() < 1.0, "{report}");
    let other = start(&fake, &AlwaysOn::new().calls_only().baseline(Duration::ZERO));
    let service = start(&fake, &settings);
    let late = Instant::now() + Duration::from_secs(20);
    while service.snapshot().unwrap().state() == State::Comparing {
        let _unit = service.unit("decode");
        std::thread::sleep(Duration::from_millis(1));
        assert!(Instant::now() < late);
    }
    assert!(!fake.enabled_callbacks().is_empty());
    let report = service.stop().unwrap();
    assert!(
        matches!(report.logging_cost(), TimedCost::NotMeasured(why) if why.contains("another session")),
        "{report}"
    );
    let _ = other.stop().unwrap();
}

#[test]
fn a_refused_first_call_ends_the_comparison_and_is_in_the_report() {
    use cupti::fake::When;
    use cupti::sys::abi::CuptiResult;

    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &comparing().baseline(Duration::from_millis(50)));
    fake.fail("cuptiSubscribe", CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, When::Always);
    while service.snapshot().unwrap().state() == State::Comparing {
        let _unit = service.unit("decode");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!unit(&fake, &service, "decode", 1));
    let report = service.stop().unwrap();
    assert_eq!(report.state(), State::NotAttached, "{report}");
    assert!(matches!(report.attach_cost(), TimedCost::NotMeasured(why) if why.contains("refused")));
    assert!(report.last_error().is_some_and(profiler_core::Error::is_busy), "{report}");
}

/// Another session calls CUPTI meanwhile, or did before.
#[test]
fn units_are_not_compared_where_another_session_uses_cupti() {
    let (_turn, fake) = (turn(), crate::fake::fake());
    let service = start(&fake, &comparing().baseline(Duration::from_secs(600)));
    let other = builder(&fake).build().unwrap();
    other.start().unwrap();
    while service.snapshot().unwrap().state() == State::Comparing {
        std::thread::sleep(Duration::from_millis(5));
    }
    fake.launch(Work::kernel(c"k"));
    let second = start(&fake, &comparing());
    let report = second.stop().unwrap();
    assert!(report.to_string().contains("before the first unit"), "{report}");
    other.stop().unwrap();
    fake.launch(Work::kernel(c"k"));
    let report = service.stop().unwrap();
    assert!(report.to_string().contains("another session"), "{report}");
    assert_eq!(report.submissions(), 2, "{report}");
    report.recorded().health().assert_complete();
}
