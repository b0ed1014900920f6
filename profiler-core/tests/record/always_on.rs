//! Always-on sessions: which units are recorded, what is counted in full, and what is estimated from a sample.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cupti::{ActivityKind, Config};
use fake_cupti::{Fake, Work};
use profiler_base::ratio_estimator::{RatioEstimator, Stratum};
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnSession};
use profiler_core::{Profile, Profiler, ProfilerBuilder};

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

/// All units, as far as that costs no more time than they take.
fn sampling() -> AlwaysOn {
    AlwaysOn::new().budget(1.0).rate(1.0)
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
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling().rate(0.5));
    fake.launch(Work::kernel(c"before all units"));
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
    assert_eq!(counts.units, units, "{text}");
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
    let total = total + units as f64 * 5_000.0;
    assert!(
        (request.value - total).abs() < 1.0 && request.high - request.low < 10.0,
        "{request:?}"
    );
    assert_eq!(request.units, recorded);
    for part in ["GPU time by range", "95 % intervals", "request/decode", "budget 100.0 %"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!fake.is_recording());
}

#[test]
fn without_windows_kinds_stay_off_and_calls_count() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &AlwaysOn::new().calls_only());
    for _ in 0..20 {
        assert!(!unit(&fake, &service, "request", 3) && fake.enabled_kinds().is_empty());
    }
    let report = service.stop().unwrap();
    assert_eq!((report.counts().drawn, report.submissions()), (0, 80));
    assert_eq!((report.gpu_time(), report.recorded().totals().kernels), (None, 0));
    report.recorded().health().assert_complete();
    assert!(report.to_string().starts_with("Calls by range; GPU times are not"), "{report}");
}

#[test]
fn graphs_as_intervals_are_a_mode_of_a_whole_run() {
    let (_turn, fake) = (turn(), Fake::new());
    let config = Config::new().add_kind(ActivityKind::GRAPH_TRACE);
    let profiler = builder(&fake).config(config).build().unwrap();
    let error = profiler.always_on(&AlwaysOn::new()).unwrap_err().to_string();
    assert!(error.contains("GRAPH_TRACE") && error.contains("whole_graphs"), "{error}");
    assert!(!fake.is_recording(), "nothing is left on");

    let service = start(&fake, &AlwaysOn::new().whole_graphs());
    assert!(fake.enabled_kinds().contains(&ActivityKind::GRAPH_TRACE));
    for _ in 0..10 {
        assert!(!unit(&fake, &service, "request", 2));
    }
    let report = service.stop().unwrap();
    assert_eq!((report.counts().drawn, report.recorded().totals().kernels), (0, 20));
    assert!(report.to_string().contains("each graph launch is one interval"), "{report}");
}

/// A graph that was captured before the window has its nodes attributed to the range of the capture.
#[test]
fn graphs_of_pauses_are_attributed_in_windows() {
    let (_turn, fake) = (turn(), Fake::new());
    let settings = sampling();
    let service = start(&fake, &settings);
    let mut graph = fake.graph();
    {
        let _layer = nvtx::range("layer");
        fake.capture_into(&mut graph, &Work::kernel(c"node").taking_ns(500));
    }
    let exec = fake.instantiate(&graph);
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
    let (_turn, fake) = (turn(), Fake::new());
    let settings = sampling().rate(0.0).name("request");
    let service = start(&fake, &settings.clone().slow(Duration::MAX));
    assert!(service.begin_unit("other").is_none());
    assert!((0..3).all(|_| !unit(&fake, &service, "request", 1)), "none is slow");
    assert_eq!(service.stop().unwrap().counts().slow, 0);
    let service = start(&fake, &settings.slow(Duration::ZERO));
    assert!(!unit(&fake, &service, "request", 1));
    // Again if a thread of the profiler delays the window, or another test made a graph less than a
    // second ago.
    let mut missed = 0;
    while !unit(&fake, &service, "request", 4) {
        missed += 1;
    }
    let report = service.stop().unwrap();
    let counts = report.counts();
    assert_eq!((counts.units, counts.after_slow, counts.drawn), (2 + missed, 1, 0));
    assert!(missed <= counts.refused + counts.while_graphs_were_made, "{report}");
    assert_eq!(counts.slow, counts.units);
    // It is there to look at, and in no estimate.
    assert_eq!((report.recorded().totals().kernels, report.gpu_time()), (4, None));
}

#[test]
fn no_unit_is_drawn_soon_after_a_graph_was_made() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling());
    let mut graph = fake.graph();
    fake.capture_into(&mut graph, &Work::kernel(c"node"));
    while service.snapshot().unwrap().counts().while_graphs_were_made < 20 {
        let made = Instant::now();
        let exec = fake.instantiate(&graph);
        let unit = service.unit("replay");
        fake.launch_exec(&exec);
        assert!(!unit.is_recorded() || made.elapsed() >= Duration::from_secs(1));
    }
    let report = service.stop().unwrap();
    assert!(report.to_string().contains("while graphs were made"), "{report}");
}

#[test]
fn settings_out_of_range_are_refused() {
    let (_turn, fake) = (turn(), Fake::new());
    for settings in [AlwaysOn::new().budget(3.0), AlwaysOn::new().rate(f64::NAN)] {
        let error = builder(&fake).build().unwrap().always_on(&settings).unwrap_err().to_string();
        assert!(error.contains("from 0 to 1"), "{error}");
    }
}

#[test]
fn budget_of_nothing_opens_no_window() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling().budget(0.0).slow(Duration::ZERO));
    assert!((0..200).all(|_| !unit(&fake, &service, "request", 1)));
    let report = service.stop().unwrap();
    assert_eq!((report.counts().units, report.counts().drawn), (200, 0));
    assert!(report.to_string().contains("no window has ended"), "{report}");
}

#[test]
fn calls_outside_windows_have_no_records_and_count() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling().rate(0.0));
    for _ in 0..100 {
        assert!(!unit(&fake, &service, "request", 2) && fake.enabled_kinds().is_empty());
    }
    assert!(!fake.enabled_callbacks().is_empty(), "callbacks stay enabled");
    let report = service.stop().unwrap();
    assert_eq!((report.submissions(), report.gpu_time()), (300, None), "{report}");
    report.recorded().health().assert_complete();
}

/// A refusal of CUPTI at a window's begin is counted, and later units are recorded.
#[test]
fn refused_window_is_in_the_report() {
    use cupti::sys::abi::CuptiResult;
    use fake_cupti::When;

    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling());
    fake.fail("cuptiActivityEnable", CuptiResult::INSUFFICIENT_PRIVILEGES, When::Once);
    while service.snapshot().unwrap().counts().refused == 0 {
        assert!(!unit(&fake, &service, "request", 1));
    }
    while !unit(&fake, &service, "request", 1) {}
    let report = service.stop().unwrap();
    assert!(report.last_error().is_some_and(profiler_core::Error::is_permission), "{report}");
}

/// Units of four threads overlap: windows are of all threads, and the intervals contain the truth.
#[test]
fn requests_that_overlap_share_windows_and_the_estimate_is_of_all() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling().rate(0.3));
    let threads = 4_u64;
    let requests = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while service.snapshot().unwrap().sampled_windows() < 60 {
                    for _ in 0..20 {
                        let number = requests.fetch_add(1, Ordering::Relaxed);
                        unit(&fake, &service, "request", 3 + number % 3);
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let requests = requests.load(Ordering::Relaxed);
    let kernels: u64 = (0..requests).map(|number| 3 + number % 3).sum();
    let report = service.stop().unwrap();
    let counts = report.counts();
    report.recorded().health().assert_complete();
    assert_eq!((report.submissions(), counts.units), (kernels + requests, requests));
    assert!(report.sampled_windows() <= counts.drawn, "{report}");
    // Each kernel takes 1 us, each copy 5 us. A unit's kernels vary by a sixth.
    let truth = (1_000 * kernels + 5_000 * requests) as f64;
    let estimate = report.gpu_time().unwrap();
    assert!((estimate.value / truth - 1.0).abs() < 0.2, "{estimate:?}, {truth}: {report}");
}

/// As where threads take turns, windows have more of one kind of work than the rest of the run.
#[test]
fn mix_of_work_that_differs_in_windows_does_not_bias_the_estimate() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = start(&fake, &sampling().rate(0.3));
    let (mut short, mut long) = (0_u64, 0_u64);
    while service.snapshot().unwrap().sampled_windows() < 20 {
        let unit = service.unit("request");
        let kernels = if unit.is_recorded() { 3 } else { 1 };
        {
            let _inner = nvtx::range("short");
            (0..kernels).for_each(|_| _ = fake.launch(Work::kernel(c"short").taking_ns(1_000)));
        }
        let _inner = nvtx::range("long");
        fake.launch(Work::kernel(c"long").taking_ns(100_000));
        (short, long) = (short + kernels, long + 1);
    }
    let report = service.stop().unwrap();
    let truth = (1_000 * short + 100_000 * long) as f64;
    for estimate in [report.gpu_time(), report.ranges().next().unwrap().gpu_ns] {
        let estimate = estimate.unwrap();
        assert!((estimate.value / truth - 1.0).abs() < 1e-6, "{estimate:?}, {truth}: {report}");
    }
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
        let (mut sample, mut total, mut drawn) = (Stratum::default(), RatioEstimator::default(), 0);
        for (size, amount) in units {
            let probability = probability(*size);
            if random.f64() < probability {
                sample.add(random.u64(..), probability, *size, *amount);
                drawn += 1;
            }
        }
        total.add(&sample, launches);
        total.estimate(drawn).is_some_and(|total| total.low <= truth && truth <= total.high)
    };
    f64::from((0..draws).filter(covers).count() as u32) / f64::from(draws)
}

/// Draws from a full recording, whose total is known: the 95 % intervals contain it in 94 to 96 % of them.
#[test]
fn intervals_contain_the_truth_as_often_as_they_say() {
    let (_turn, fake) = (turn(), Fake::new());
    let steps = steps_of_a_full_recording(&fake);
    assert_eq!(steps.len(), 800);
    let is_thorough = test_support::effort::is_thorough();
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
fn intervals_of_real_work_contain_the_truth_as_often_as_they_say() {
    const TIMES: usize = 40;
    const SLICES: usize = 20;
    let draws = if test_support::effort::is_thorough() { 10_000 } else { 1_000 };
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
        let most_off = if test_support::effort::is_thorough() { 0.01 } else { 0.025 };
        assert!((share - 0.95).abs() <= most_off, "{file}: {share}");
        shares.push(share);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{mean} of all");
    assert!((0.94..=0.96).contains(&mean), "{mean}");
}
