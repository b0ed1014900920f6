//! Flight recorders: which events have the last part of a run written, and what the files hold.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use profiler_core::session::{FlightRecorder, FlightRecording, Trigger};
use profiler_core::{Profile, Profiler};
use test_support::effort::is_thorough;
use test_support::folder::Folder;

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn start(fake: &Fake, settings: &FlightRecorder) -> FlightRecording {
    start_keeping(fake, Duration::from_secs(60), settings)
}

fn start_keeping(fake: &Fake, last: Duration, settings: &FlightRecorder) -> FlightRecording {
    let builder = Profiler::builder().library(fake.library().unwrap());
    let builder = builder.keep_last(last).period(Duration::from_millis(5));
    builder.build().unwrap().flight_recorder(settings).unwrap()
}

/// Waits for this many files.
fn files(recorder: &FlightRecording, count: usize) -> Vec<(Trigger, Profile)> {
    let late = Instant::now() + Duration::from_secs(120);
    while recorder.files().len() < count {
        assert!(Instant::now() < late, "{:?} {:?}", recorder.files(), recorder.last_error());
        std::thread::sleep(Duration::from_millis(2));
    }
    let files = recorder.files();
    assert_eq!(files.len(), count, "{files:?}");
    files.iter().map(|(path, trigger)| (*trigger, Profile::load(path).unwrap())).collect()
}

#[test]
fn a_slow_request_among_a_hundred_thousand_is_in_the_file() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let threshold = Duration::from_millis(20);
    let settings = FlightRecorder::new(&folder.0).slow("request", threshold);
    let recorder = start_keeping(&fake, Duration::from_millis(50), &settings);
    fake.stop_clock();
    // The slow one, and all of them.
    let (planted, count) = if is_thorough() { (70_000, 100_000) } else { (20_000, 25_000) };
    let request = |number: u64| {
        let _request = nvtx::event("request").payload(number).range();
        fake.launch(Work::kernel(c"answer"));
        if number == planted {
            let _wait = nvtx::range("wait for a lock");
            fake.advance_clock(threshold + Duration::from_millis(1));
        }
    };
    (0..=planted).for_each(|number| {
        request(number);
        fake.advance_clock(Duration::from_micros(10));
    });
    let (trigger, profile) = files(&recorder, 1).remove(0);
    (planted + 1..count).for_each(request);
    assert_eq!((trigger, recorder.left_out()), (Trigger::Slow, 0));
    let is_planted =
        |range: &profiler_core::Range<'_>| range.payload() == Some(nvtx::Payload::U64(planted));
    let slow = profile.ranges().find(is_planted).unwrap();
    assert!(slow.host_time() > threshold && slow.inclusive().kernels == 1, "{profile}");
    assert!(profile.ranges().any(|range| range.name() == "wait for a lock"));
    assert!(
        (profile.ranges().count() as u64) < planted,
        "what is older than the kept time is gone"
    );
    recorder.stop().unwrap();
}

#[test]
fn an_error_of_cuda_has_a_file_and_the_next_ones_are_counted() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let recorder = start(&fake, &FlightRecorder::new(&folder.0).on_error());
    fake.launch(Work::kernel(c"before"));
    // A query's negative answer is no error.
    fake.call_only("cuStreamQuery", 600);
    std::thread::sleep(Duration::from_millis(50));
    assert!(recorder.files().is_empty());
    fake.call_only("cuLaunchKernel", 700);
    let (trigger, profile) = files(&recorder, 1).remove(0);
    assert_eq!((trigger, profile.totals().failed_calls), (Trigger::Error, 1), "{profile}");
    assert_eq!(profile.totals().kernels, 1);
    fake.call_only("cuLaunchKernel", 700);
    let late = Instant::now() + Duration::from_secs(120);
    while recorder.left_out() == 0 {
        assert!(Instant::now() < late);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(recorder.files().len(), 1, "too soon after the first one");
    assert_eq!(recorder.calls(), 4);
    // On request at any time.
    let path = recorder.write().unwrap();
    assert_eq!(Profile::load(path).unwrap().totals().failed_calls, 2);
    recorder.stop().unwrap();
}

#[test]
fn panic_writes_its_file_before_unwinding() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let recorder = start(&fake, &FlightRecorder::new(&folder.0).on_panic());
    fake.launch(Work::kernel(c"last"));
    let panicked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _request = nvtx::range("request");
            panic!("planted");
        });
        thread.join().is_err()
    });
    assert!(panicked);
    // Other tests of this process may panic, too.
    let written = recorder.files();
    assert!(written.iter().all(|(_, trigger)| *trigger == Trigger::Panic), "{written:?}");
    let mut profiles = written.iter().map(|(path, _)| Profile::load(path).unwrap());
    let has_request = |profile: &Profile| {
        let is_open = profile.ranges().any(|range| range.name() == "request");
        is_open && profile.totals().kernels == 1
    };
    assert!(profiles.any(|profile| has_request(&profile)), "{written:?}");
    drop(recorder);
    // The hook stays, and has nothing to write.
    let count = || std::fs::read_dir(&folder.0).unwrap().count();
    let before = count();
    let again = std::panic::catch_unwind(|| panic!("planted"));
    assert!(again.is_err() && count() == before && before >= written.len());
}

/// A disk that fails: the program goes on, the failure is reported, and the recorder writes once it is back.
#[test]
fn a_folder_that_fails_is_an_error_and_the_recorder_goes_on() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let place = folder.0.join("incidents");
    std::fs::create_dir(&place).unwrap();
    let settings = FlightRecorder::new(&place).slow("request", Duration::ZERO);
    let recorder = start(&fake, &settings.quiet(Duration::ZERO));
    std::fs::remove_dir(&place).unwrap();
    let request = || {
        let _request = nvtx::range("request");
        fake.launch(Work::kernel(c"k"));
    };
    request();
    let late = Instant::now() + Duration::from_secs(120);
    while recorder.last_error().is_none() {
        assert!(Instant::now() < late);
        std::thread::sleep(Duration::from_millis(5));
    }
    let why = recorder.write().unwrap_err().to_string();
    assert!(why.contains("incidents") && recorder.files().is_empty(), "{why}");
    std::fs::create_dir(&place).unwrap();
    request();
    let file = recorder.write().unwrap();
    assert_eq!(Profile::load(file).unwrap().range("request").unwrap().instances(), 2);
}

#[test]
fn flight_recorder_requires_a_bound_and_a_folder() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let settings = FlightRecorder::new(&folder.0);
    let error = profiler.flight_recorder(&settings).unwrap_err().to_string();
    assert!(error.contains("keep_last"), "{error}");
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.keep_last_operations(100).build().unwrap();
    let missing = FlightRecorder::new(folder.0.join("missing"));
    let error = profiler.flight_recorder(&missing).unwrap_err().to_string();
    assert!(error.contains("missing") && !fake.is_recording(), "{error}");
}

/// The time without files is that of each kind: a slow range hides no error.
#[test]
fn kinds_of_triggers_hide_each_other_no_file() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let settings = FlightRecorder::new(&folder.0).slow("request", Duration::ZERO).on_error();
    let recorder = start(&fake, &settings.quiet(Duration::from_secs(3600)));
    drop(nvtx::range("request"));
    files(&recorder, 1);
    fake.call_only("cuLaunchKernel", 700);
    let triggers: Vec<_> = files(&recorder, 2).into_iter().map(|(trigger, _)| trigger).collect();
    assert_eq!(triggers, [Trigger::Slow, Trigger::Error]);
}

#[test]
fn restarted_program_replaces_no_file() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let settings = FlightRecorder::new(&folder.0).name("serve");
    for expected in [["serve-1-request", "serve-2-request"], ["serve-3-request", "serve-4-request"]]
    {
        let recorder = start(&fake, &settings);
        for name in expected {
            let path = recorder.write().unwrap();
            assert_eq!(path.file_stem().unwrap(), name);
        }
        recorder.stop().unwrap();
    }
}

#[test]
fn pauses_and_files_of_the_callers_choice() {
    let (_turn, fake, folder) = (turn(), Fake::new(), Folder::new());
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.keep_last_operations(1000).build().unwrap();
    let recorder = profiler.flight_recorder(&FlightRecorder::new(&folder.0)).unwrap();
    fake.launch(Work::kernel(c"first"));
    recorder.pause().unwrap();
    fake.launch(Work::kernel(c"in the pause"));
    recorder.resume().unwrap();
    {
        let _range = nvtx::range("after it");
        fake.launch(Work::kernel(c"second"));
    }
    let path = folder.0.join("now.gpuprof");
    let totals = recorder.write_to(&path).unwrap();
    assert_eq!((totals.operations, totals.calls, totals.ranges), (2, 2, 1));
    assert_eq!(totals.bytes, path.metadata().unwrap().len());
    assert_eq!(Profile::load(&path).unwrap().totals().kernels, 2);
    fake.launch(Work::kernel(c"third"));
    assert_eq!(recorder.finish(&path).unwrap().operations, 3);
    let profile = Profile::load(&path).unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 3);
    assert!(folder.0.read_dir().unwrap().count() == 1 && !fake.is_recording());
}
