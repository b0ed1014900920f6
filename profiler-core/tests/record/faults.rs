//! What goes wrong around a service that is profiled all the time: the system's clock is set, and names never repeat.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use profiler_core::session::FlightRecorder;
use profiler_core::session::always_on::{AlwaysOn, AlwaysOnSession};
use profiler_core::{Profile, Profiler, ProfilerBuilder};
use test_support::folder::Folder;

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const HOUR_NS: i64 = 3_600_000_000_000;

fn builder(fake: &Fake) -> ProfilerBuilder {
    Profiler::builder().library(fake.library().unwrap()).period(Duration::from_millis(5))
}

/// A request of three kernels of 1 us.
fn request(fake: &Fake) {
    let _request = nvtx::range("request");
    (0..3).for_each(|_| _ = fake.launch(Work::kernel(c"k").taking_ns(1_000)));
}

/// Requests before, between and after steps of the clock: an hour forward, two back, one forward. Returns their number.
fn requests_while_the_clock_is_set(fake: &Fake, mut request: impl FnMut()) -> u64 {
    let mut count = 0;
    for step_ns in [HOUR_NS, -2 * HOUR_NS, HOUR_NS] {
        for _ in 0..40 {
            request();
            count += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        fake.step_clock(step_ns);
    }
    for _ in 0..40 {
        request();
        count += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    count
}

/// Counts, attribution and times are exact, and the health names the step. The readings of the clocks are some milliseconds apart here: a
/// timestamp lies between two of them by one offset alone.
#[test]
fn clock_that_is_set_loses_no_operation_of_a_session() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let profiler = builder(&fake).build().unwrap();
    let file = profiler.record_to(folder.0.join("run.gpuprof")).unwrap();
    let summary = profiler.summarize().unwrap();
    profiler.start().unwrap();
    let count = requests_while_the_clock_is_set(&fake, || request(&fake));
    let profile = profiler.stop().unwrap();
    let summary = summary.stop().unwrap();
    file.finish().unwrap();
    let written = Profile::load(folder.0.join("run.gpuprof")).unwrap();
    for (what, profile) in [("kept", &profile), ("written", &written)] {
        let health = profile.health();
        let request = profile.range("request").unwrap();
        assert_eq!((request.instances(), request.kernels()), (count, 3 * count), "{health}");
        assert_eq!(profile.totals().gpu_time(), Duration::from_micros(3 * count), "{health}");
        assert!(
            health.losses.clock_step >= Duration::from_nanos(HOUR_NS as u64 / 2),
            "{what}: {health}"
        );
        for kernel in profile.kernels() {
            let begun = kernel.call().unwrap().start();
            let late = kernel.start().unwrap().checked_sub(begun);
            // A kernel waits for those before it.
            assert!(late.is_some_and(|late| late < Duration::from_secs(600)), "{what}: {late:?}");
        }
    }
    assert_eq!(summary.totals().kernels, 3 * count, "{}", summary.health());
    assert!(
        summary.health().losses.clock_step >= Duration::from_nanos(HOUR_NS as u64 / 2),
        "{}",
        summary.health()
    );
}

/// What a flight recorder keeps, and when it writes, goes by another clock.
#[test]
fn clock_that_is_set_holds_no_incident_back() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let profiler = builder(&fake).keep_last(Duration::from_secs(60)).build().unwrap();
    let settings = FlightRecorder::new(&folder.0).slow("slow", Duration::ZERO);
    let recorder = profiler.flight_recorder(&settings.quiet(Duration::ZERO)).unwrap();
    let count = requests_while_the_clock_is_set(&fake, || request(&fake));
    for (number, step_ns) in [HOUR_NS, -2 * HOUR_NS, HOUR_NS].into_iter().enumerate() {
        fake.step_clock(step_ns);
        drop(nvtx::range("slow"));
        let late = Instant::now() + Duration::from_secs(120);
        while recorder.files().len() <= number {
            assert!(Instant::now() < late, "{:?}", recorder.last_error());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let last = recorder.files().pop().unwrap();
    let profile = Profile::load(last.0).unwrap();
    let health = profile.health();
    assert_eq!(profile.range("request").unwrap().kernels(), 3 * count, "{health}");
    assert!(health.losses.clock_step > Duration::ZERO && recorder.left_out() == 0, "{health}");
}

fn always_on(fake: &Fake) -> AlwaysOnSession {
    let settings = AlwaysOn::new().budget(1.0).rate(1.0);
    builder(fake).build().unwrap().always_on(&settings).unwrap()
}

/// The budget and the windows go by another clock, and the sums of windows by durations.
#[test]
fn clock_that_is_set_moves_no_window_and_no_estimate() {
    let (_turn, fake) = (turn(), Fake::new());
    let service = always_on(&fake);
    let request = || {
        let _unit = service.unit("request");
        (0..3).for_each(|_| _ = fake.launch(Work::kernel(c"k").taking_ns(1_000)));
    };
    let mut count = requests_while_the_clock_is_set(&fake, request);
    while service.snapshot().unwrap().sampled_windows() == 0 {
        request();
        count += 1;
    }
    let report = service.stop().unwrap();
    let windows = report.sampled_windows();
    assert!(windows > 0, "{report}");
    assert_eq!(report.recorded().totals().kernels, 3 * windows, "{report}");
    assert_eq!(report.submissions(), 3 * count, "{report}");
    // All kernels take as long.
    let (estimate, truth) = (report.gpu_time().unwrap(), (3_000 * count) as f64);
    assert!((estimate.value - truth).abs() < 1.0, "{estimate:?}, {truth}: {report}");
    assert!(report.recorded().health().losses.clock_step > Duration::ZERO, "{report}");
    assert!(report.to_string().contains("clock was set by"), "{report}");
}

/// 10,000 names, each once: all sums stay exact, rows and memory are bounded, and the report has the number of names beyond.
#[test]
fn unique_names_are_counted_without_delay() {
    const NAMES: u64 = 10_000;
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let profiler = builder(&fake).summary_rows(100).keep_last(Duration::from_secs(60));
    let profiler = profiler.build().unwrap();
    // A window would sum kernels as other, too.
    let service = profiler.always_on(&AlwaysOn::new().calls_only()).unwrap();
    let recorder = profiler.flight_recorder(&FlightRecorder::new(&folder.0)).unwrap();
    let file = profiler.record_to(folder.0.join("run.gpuprof")).unwrap();
    for number in 0..NAMES {
        let _unit = service.unit(&format!("request {number}"));
        fake.launch(Work::kernel(c"k"));
    }
    let report = service.stop().unwrap();
    let counts = report.counts();
    assert_eq!((report.submissions(), counts.units), (NAMES, NAMES));
    assert!(report.ranges().count() <= 102, "{}", report.ranges().count());
    let instances: u64 = report.ranges().map(|range| range.instances).sum();
    let health = report.recorded().health();
    assert_eq!((instances, health.facts.summed_as_other), (NAMES, NAMES - 100), "{health}");
    assert!(report.to_string().contains(&format!("{}", NAMES - 100)), "{report}");
    let kept = Profile::load(recorder.write().unwrap()).unwrap();
    assert_eq!(kept.totals().kernels, NAMES, "{}", kept.health());
    assert_eq!(kept.ranges().count() as u64, NAMES);
    recorder.stop().unwrap();
    assert_eq!(file.finish().unwrap().ranges, NAMES);
}
