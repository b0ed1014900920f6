//! A session that is written to a file while it runs: what the file has at any time, and in the end.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cupti::Config;
use cupti::sys::abi::CuptiResult;
use fake_cupti::{Fake, When, Work};
use nvtx::{FieldValue, range};
use profiler_core::session::RecordingFile;
use profiler_core::{Context, Profile, Profiler, ProfilerBuilder, Recording};
use test_support::effort::rounds;
use test_support::folder::Folder;
use test_support::frames::{file as file_of, frames};

/// The thread takes nothing by itself.
const HOUR: Duration = Duration::from_secs(3600);

fn builder(fake: &Fake) -> ProfilerBuilder {
    Profiler::builder().library(fake.library().unwrap()).period(HOUR)
}

/// A file in a folder of its own.
struct Run {
    fake: Fake,
    folder: Folder,
    path: PathBuf,
}

impl Run {
    fn new() -> Self {
        let folder = Folder::new();
        let path = folder.0.join("run.gpuprof");
        Self { fake: Fake::new(), folder, path }
    }

    fn record(&self) -> RecordingFile {
        builder(&self.fake).build().unwrap().record_to(&self.path).unwrap()
    }

    fn step(&self) {
        let _step = range("step");
        self.fake.launch(Work::host_to_device(1000));
        self.fake.launch(Work::kernel(c"gemm"));
        self.fake.launch(Work::synchronize());
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

fn error_of(result: Result<RecordingFile, profiler_core::Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn finished_file_is_the_recording_of_the_session() {
    fn shared<T: Send + Sync>(of: T) -> T {
        of
    }
    let run = Run::new();
    let config = Config::new().runtime_calls(true).graph_events(true);
    let profiler = builder(&run.fake).config(config).build().unwrap();
    profiler.start().unwrap();
    let file = shared(profiler.record_to(&run.path).unwrap());
    let outer = range("outer");
    let mut graph = run.fake.graph();
    {
        let _capture = range("capture");
        run.fake.capture_into(&mut graph, &Work::kernel(c"node"));
    }
    let exec = run.fake.instantiate(&graph);
    for _ in 0..3 {
        run.step();
        run.fake.launch_through_runtime("cudaLaunchKernel", &Work::kernel(c"runtime"));
        run.fake.launch_exec(&exec);
        file.flush().unwrap();
    }
    run.step();
    drop(outer);
    let totals = file.finish().unwrap();
    let read = Profile::load(&run.path).unwrap();
    let beside = profiler.stop().unwrap();
    read.health().assert_complete();
    assert_eq!((totals.operations, totals.ranges), (8 + 3 + 3, 6));
    assert_eq!((totals.unwritten_entries, totals.is_full), (0, false));
    assert_eq!(totals.bytes, fs::metadata(&run.path).unwrap().len());
    assert_eq!(read.ranges().count(), beside.ranges().count());
    let captured = |profile: &Profile| {
        let captured = profile.kernels().filter_map(|kernel| kernel.captured_in());
        captured.map(|range| range.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((captured(&read), captured(&beside)), (vec!["capture".into(); 3], captured(&read)));
    let calls = |profile: &Profile| {
        profile.calls().map(|call| call.name().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(calls(&read), calls(&beside));
    let runtime = read.recording().unwrap().runtime_calls();
    let runtime = runtime.iter().map(|thread| thread.calls.len()).sum::<usize>();
    assert_eq!((runtime, totals.calls as usize), (3, read.calls().count() + 3));
    for path in ["outer", "outer/step"] {
        let [read, beside] = [&read, &beside].map(|profile| profile.range(path).unwrap());
        assert_eq!(read.inclusive(), beside.inclusive());
    }
    assert_eq!(read.totals(), beside.totals());
    // Saved again, it is a recording like any other.
    let recording = Recording::load(&run.path).unwrap();
    assert_eq!(Recording::from_bytes(&recording.to_bytes()).unwrap(), recording);
}

/// At every border of a frame and in every frame: what the states before the cut cover.
#[test]
fn every_prefix_contains_the_work_of_its_last_state() {
    let run = Run::new();
    let file = run.record();
    let (_life, outer) = (nvtx::process_range("life"), range("outer"));
    // What the file holds after each flush.
    let mut flushed = Vec::new();
    for steps in 1..=6_usize {
        let _long = range("long");
        run.step();
        let long = "value ".repeat(20_000 * usize::from(steps == 3));
        drop(nvtx::event("fields").field("text", &*long, "").field("n", 3, "").range());
        nvtx::mark("mark");
        std::thread::scope(|scope| _ = scope.spawn(|| run.step()));
        file.flush().unwrap();
        flushed.push((run.bytes().len(), 2 * steps));
    }
    drop(outer);
    file.finish().unwrap();
    let bytes = run.bytes();
    let mut borders = vec![8];
    for (_, content) in frames(&bytes) {
        borders.push(borders.last().unwrap() + 32 + content.len().next_multiple_of(8));
    }
    assert_eq!(*borders.last().unwrap(), bytes.len());
    let mut random = fastrand::Rng::with_seed(3);
    let within: Vec<usize> = (0..rounds(2_000)).map(|_| random.usize(..bytes.len())).collect();
    for cut in borders.into_iter().chain(within) {
        let read = Recording::from_bytes(&bytes[..cut]);
        if cut == bytes.len() {
            Profile::from_recording(read.unwrap()).health().assert_complete();
            continue;
        }
        let Ok(read) = read else {
            assert!(cut < 2_000, "{cut}");
            continue;
        };
        assert!(read.is_truncated(), "{cut}");
        assert_eq!(Recording::from_bytes(&read.to_bytes()).unwrap(), read, "{cut}");
        let profile = Profile::from_recording(read);
        let health = profile.health();
        assert!(!health.is_complete() && health.to_string().contains("1 truncated recording"));
        assert_eq!(
            (health.losses.unknown_range_entries, health.losses.open_calls),
            (0, 0),
            "{cut}: {health}"
        );
        assert_eq!(
            (health.losses.calls_in_unknown_ranges, health.facts.pending_calls),
            (0, 0),
            "{cut}"
        );
        let steps = flushed.iter().rfind(|(length, _)| *length <= cut);
        let steps = steps.map_or(0, |(_, steps)| *steps);
        assert_eq!(profile.kernels().count(), steps, "{cut}");
        let ended = profile.ranges().filter(|range| range.name() == "step" && !range.is_open());
        assert_eq!(ended.count(), steps, "{cut}");
        // The stop writes a state, too.
        if steps > 0 && cut <= flushed.last().unwrap().0 {
            let of = |name| profile.ranges().find(|range| range.name() == name).unwrap();
            assert!(of("outer").is_open() && profile.process_ranges().all(|life| life.is_open()));
            // One is open, and the others have ended.
            let long = profile.ranges().filter(|range| range.name() == "long");
            assert_eq!(long.filter(|range| range.is_open()).count(), 1, "{cut}");
            assert_eq!(
                (profile.marks().count(), health.facts.pending_ranges),
                (steps / 2, 3),
                "{cut}"
            );
        }
        if steps >= 6 {
            let length = |field: nvtx::Field<'_>| match field.value {
                FieldValue::Str(text) => text.len(),
                _ => 0,
            };
            let longest = |range: profiler_core::Range<'_>| range.fields().map(length).max();
            assert_eq!(profile.ranges().filter_map(longest).max(), Some(120_000), "{cut}");
        }
    }
}

/// A file whose end is missing and whose middle is damaged is damaged.
#[test]
fn damage_and_disorder_in_an_appended_file_are_errors() {
    let run = Run::new();
    let file = run.record();
    let _outer = range("outer");
    for _ in 0..3 {
        run.step();
        file.flush().unwrap();
    }
    let mut bytes = run.bytes();
    let mut random = fastrand::Rng::with_seed(5);
    let whole = Recording::from_bytes(&bytes).unwrap();
    for _ in 0..rounds(4_000) {
        let bit = random.usize(..8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(read) = Recording::from_bytes(&bytes) {
            assert!(read.is_truncated() && read != whole, "{bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    // Frames of an attacker, with right checksums: an error or a recording, and never a panic.
    let all = frames(&bytes);
    for _ in 0..rounds(4_000) {
        let mut changed = all.clone();
        for _ in 0..random.usize(1..4) {
            let (at, other) = (random.usize(1..changed.len()), random.usize(1..changed.len()));
            match random.u8(..3) {
                0 => changed.swap(at, other),
                1 => changed.insert(at, all[random.usize(1..all.len())].clone()),
                _ => {
                    let content = &mut changed[at].1;
                    if !content.is_empty() {
                        let byte = random.usize(..content.len());
                        content[byte] = random.u8(..);
                    }
                }
            }
        }
        if let Ok(read) = Recording::from_bytes(&file_of(&changed)) {
            drop(Profile::from_recording(read).to_string());
        }
    }
    drop(file);
}

#[test]
fn windows_match_pauses_and_a_paused_start() {
    let run = Run::new();
    let config = Config::new().start_paused(true);
    let file = builder(&run.fake).config(config).build().unwrap().record_to(&run.path).unwrap();
    assert!(file.is_paused());
    run.step();
    let outer = range("begun in the pause");
    file.flush().unwrap();
    for _ in 0..3 {
        file.resume().unwrap();
        assert!(!file.is_paused());
        run.step();
        file.pause().unwrap();
        run.step();
        file.flush().unwrap();
    }
    drop(outer);
    let windows = Recording::load(&run.path).unwrap().windows_ns().to_vec();
    file.finish().unwrap();
    let recording = Recording::load(&run.path).unwrap();
    assert_eq!(recording.windows_ns(), windows);
    assert_eq!(windows.len(), 3);
    let profile = Profile::from_recording(recording);
    profile.health().assert_complete();
    assert_eq!(profile.kernels().count(), 3);
    assert_eq!(profile.range("begun in the pause/step").unwrap().kernels(), 3);
}

#[test]
fn existing_file_is_replaced_when_the_session_starts() {
    let run = Run::new();
    let target = run.folder.0.join("target.gpuprof");
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o604)).unwrap();
    symlink("target.gpuprof", &run.path).unwrap();
    // A session that does not start leaves everything as it was.
    run.fake.fail("cuptiActivityEnable", CuptiResult::UNKNOWN, When::Once);
    let refused = builder(&run.fake).build().unwrap().record_to(&run.path);
    assert!(error_of(refused).contains("cuptiActivityEnable"));
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    let file = run.record();
    assert!(Recording::load(&run.path).unwrap().is_truncated());
    assert_eq!(file.path().file_name(), target.file_name());
    run.step();
    file.finish().unwrap();
    assert_eq!(Profile::load(&target).unwrap().kernels().count(), 1);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o604);
    let left = fs::read_dir(&run.folder.0).unwrap().count();
    assert_eq!(left, 2);
}

#[test]
fn file_that_cannot_be_created_is_an_error_that_names_it() {
    let run = Run::new();
    let profiler = builder(&run.fake).build().unwrap();
    let missing = run.folder.0.join("missing/run.gpuprof");
    assert!(error_of(profiler.record_to(&missing)).contains("missing/run.gpuprof"));
    assert!(error_of(profiler.record_to(&run.folder.0)).contains("it is a directory"));
    let device = error_of(profiler.record_to("/dev/null"));
    assert!(device.contains("could not write /dev/null: it is a pipe, a device"), "{device}");
    assert!(!run.fake.is_recording());
}

#[test]
fn removed_file_is_an_error_of_finish() {
    for replace in [false, true] {
        let run = Run::new();
        let file = run.record();
        run.step();
        fs::remove_file(&run.path).unwrap();
        if replace {
            fs::write(&run.path, "another").unwrap();
        }
        let error = file.finish().unwrap_err().to_string();
        assert!(error.contains("removed or replaced while the session ran"), "{error}");
    }
}

#[test]
fn dropped_file_is_truncated_and_its_session_ends() {
    let run = Run::new();
    let file = run.record();
    run.step();
    file.flush().unwrap();
    run.step();
    drop(file);
    assert!(!run.fake.is_recording());
    let read = Profile::load(&run.path).unwrap();
    assert_eq!((read.kernels().count(), read.health().losses.truncated), (1, 1));
}

#[test]
fn maximum_size_ends_a_file_and_counts_the_remainder() {
    const MOST: u64 = 60_000;
    let run = Run::new();
    let profiler = builder(&run.fake).max_file_bytes(MOST).build().unwrap();
    let file = profiler.record_to(&run.path).unwrap();
    let _outer = range("outer");
    let mut fitting = 0;
    let mut steps = 0;
    while !file.totals().is_full {
        (0..10).for_each(|_| run.step());
        steps += 10;
        file.flush().unwrap();
        if !file.totals().is_full {
            fitting = steps;
        }
    }
    (0..10).for_each(|_| run.step());
    file.flush().unwrap();
    let full = run.bytes();
    let truncated = Profile::from_bytes(&full).unwrap();
    let totals = file.finish().unwrap();
    assert!(totals.is_full && totals.bytes <= MOST, "{totals:?}");
    assert_eq!(totals.bytes, run.bytes().len() as u64);
    let profile = Profile::load(&run.path).unwrap();
    for (profile, is_truncated) in [(&truncated, 1), (&profile, 0)] {
        let health = profile.health();
        assert_eq!((health.losses.truncated, profile.kernels().count()), (is_truncated, fitting));
        assert!(health.accounts.kernels.is_balanced() && !health.is_complete(), "{health}");
        assert!(health.losses.unwritten_entries > 0 && health.facts.pending_calls == 0, "{health}");
        assert_eq!(profile.range("outer/step").unwrap().instances(), fitting as u64);
    }
    // Two rounds of ten steps: a range, three calls and three records each.
    assert_eq!(totals.unwritten_entries, 2 * 10 * 7);
    assert_eq!(profile.health().losses.unwritten_entries, totals.unwritten_entries);
}

/// The program flushes nothing, and the limit is reached before the first second is over.
#[test]
fn file_that_is_full_soon_has_its_clock() {
    let run = Run::new();
    let profiler = builder(&run.fake).period(Duration::from_millis(1)).max_file_bytes(60_000);
    let file = profiler.build().unwrap().record_to(&run.path).unwrap();
    (0..20).for_each(|_| run.step());
    // A copy and a kernel each.
    while file.totals().operations < 20 * 2 {
        std::thread::sleep(Duration::from_micros(100));
    }
    while !file.totals().is_full {
        run.step();
    }
    file.finish().unwrap();
    let profile = Profile::load(&run.path).unwrap();
    let starts: Vec<Duration> = profile.kernels().map(|kernel| kernel.start().unwrap()).collect();
    assert!(starts.len() > 10, "{}", starts.len());
    assert!(starts.iter().all(|start| *start < profile.duration()), "{:?}", starts.last());
}

/// Names, contexts and process ranges of many threads, each of which ends.
#[test]
fn threads_that_end_leave_nothing_behind() {
    let run = Run::new();
    let file = run.record();
    let mut context = Context::default();
    let threads = rounds(600);
    for number in 0..threads {
        context = std::thread::scope(|scope| {
            let work = || {
                let _attached = context.attach();
                let _range = range(&format!("range {}", number % 7));
                let _within = Context::join([context, Context::capture()]).attach();
                run.fake.launch(Work::kernel(c"kernel"));
                Context::capture()
            };
            scope.spawn(work).join().unwrap()
        });
        if number % 5 == 0 {
            file.flush().unwrap();
        }
    }
    file.finish().unwrap();
    let profile = Profile::load(&run.path).unwrap();
    profile.health().assert_complete();
    assert_eq!((profile.kernels().count(), profile.ranges().count()), (threads, threads));
    assert_eq!(profile.outside_ranges().kernels, 0);
}

/// A session that begins late sees the details of what was open, as others do.
#[test]
fn file_begun_during_a_session_has_the_open_ranges() {
    let run = Run::new();
    let first = builder(&run.fake).build().unwrap();
    first.start().unwrap();
    let outer = nvtx::event("outer").payload(7_u64).range();
    let life = nvtx::process_range("life");
    let joined = Context::join([Context::capture(), {
        let _other = range("other");
        Context::capture()
    }]);
    run.step();
    let file = run.record();
    run.step();
    let attached = joined.attach();
    run.fake.launch(Work::kernel(c"joined"));
    drop(attached);
    drop(life);
    file.flush().unwrap();
    let early = Profile::load(&run.path).unwrap();
    drop(outer);
    first.stop().unwrap();
    file.finish().unwrap();
    for profile in [early, Profile::load(&run.path).unwrap()] {
        let outer = profile.ranges().find(|range| range.name() == "outer").unwrap();
        assert_eq!(outer.payload(), Some(nvtx::Payload::U64(7)));
        assert_eq!(profile.range("outer").unwrap().kernels(), 2);
        assert_eq!(profile.kernels().count(), 2);
        let lives: Vec<_> =
            profile.process_ranges().map(|life| (life.name(), life.is_open())).collect();
        assert_eq!(lives, [("life", false)]);
    }
}

#[test]
fn refused_stop_is_the_error_of_finish_and_the_file_is_readable() {
    let run = Run::new();
    let file = run.record();
    run.step();
    file.flush().unwrap();
    run.fake.fail("cuptiActivityFlushAll", CuptiResult::UNKNOWN, When::Always);
    let error = file.finish().unwrap_err();
    assert!(error.to_string().contains("cuptiActivityFlushAll"), "{error}");
    let read = Profile::load(&run.path).unwrap();
    assert_eq!((read.kernels().count(), read.health().losses.truncated), (1, 1));
    assert!(!run.fake.is_recording());
}

/// The thread writes by itself.
#[test]
fn file_grows_with_the_period() {
    let run = Run::new();
    let profiler = builder(&run.fake).period(Duration::from_millis(2)).build().unwrap();
    let file = profiler.record_to(&run.path).unwrap();
    for steps in 1..3 {
        run.step();
        let kernels = |path: &Path| Profile::load(path).unwrap().kernels().count();
        while kernels(&run.path) < steps {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    file.finish().unwrap();
}

/// The kernels of windows alone, and CUPTI on between them until the session rests.
#[test]
fn windows_of_threads_contain_exactly_their_launches() {
    let run = Run::new();
    let config = Config::new().start_paused(true);
    let file = builder(&run.fake).config(config).build().unwrap().record_to(&run.path).unwrap();
    let launch = |name| _ = run.fake.launch(Work::kernel(name));
    let patience = Duration::from_secs(600);
    for round in 0..20 {
        launch(c"outside");
        file.begin_window(patience).unwrap();
        assert!(!file.is_paused());
        launch(c"inside");
        file.end_window();
        assert!(file.is_paused());
        launch(c"outside");
        match round % 4 {
            1 => file.rest().unwrap(),
            2 => file.pause().unwrap(),
            3 => file.flush().unwrap(),
            _ => {}
        }
    }
    file.rest().unwrap();
    file.finish().unwrap();
    let profile = Profile::load(&run.path).unwrap();
    let names: Vec<_> = profile.kernels().map(|kernel| kernel.name().to_string()).collect();
    assert_eq!(names, ["inside"; 20]);
    assert!(profile.health().is_complete(), "{}", profile.health());
    assert_eq!(profile.recording().unwrap().windows_ns().len(), 20);
}

/// A window that begins while another thread turns CUPTI off keeps it on, or turns it on again.
#[test]
fn no_window_is_lost_beside_a_thread_that_turns_cupti_off() {
    let run = Run::new();
    let config = Config::new().start_paused(true);
    let builder = builder(&run.fake).config(config).period(Duration::from_millis(1));
    let file = builder.build().unwrap().record_to(&run.path).unwrap();
    let (ended, windows) = (std::sync::atomic::AtomicBool::new(false), rounds(2_000));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                file.rest().unwrap();
            }
        });
        for _ in 0..windows {
            file.begin_window(Duration::from_secs(60)).unwrap();
            run.fake.launch(Work::kernel(c"inside"));
            file.end_window();
            run.fake.launch(Work::kernel(c"outside"));
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    file.finish().unwrap();
    let profile = Profile::load(&run.path).unwrap();
    let count = |name: &str| profile.kernels().filter(|kernel| kernel.name() == name).count();
    assert_eq!((count("inside"), count("outside")), (windows, 0));
    assert!(profile.health().is_complete(), "{}", profile.health());
}
