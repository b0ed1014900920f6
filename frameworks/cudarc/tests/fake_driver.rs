//! Programs with cudarc on the fake driver: each test starts itself again, with the fake in the linker's path.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers are tests too")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, panic, thread};

use cudarc::driver::sys::CUresult;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use gpu_profiler_cudarc::{
    Capture, Error, EventTimer, Named, QueryStream, StreamReport, StreamSession,
};
use profiler_core::profile::Attribution;
use profiler_core::{Profile, Profiler, exactly, expect};

#[path = "../../alone.rs"]
mod alone;
use alone::{DRIVER, Hidden, alone_with, is_on_gpu, print_by_device};

/// Runs the test of this name again, on the fake or on a GPU; true in that second process.
fn on_driver(test: &str) -> bool {
    on_driver_with(test, &[])
}

fn on_driver_with(test: &str, variables: &[(&str, &str)]) -> bool {
    if is_on_gpu() || env::var_os("TEST_RUNS_ALONE").is_some() {
        return alone_with(test, variables).is_none();
    }
    let folder: PathBuf = env::temp_dir().join(format!("cudarc-{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fake_cuda::install(&folder).unwrap();
    let path = folder.to_str().unwrap();
    let variables: Vec<_> =
        [("LD_LIBRARY_PATH", path)].into_iter().chain(variables.iter().copied()).collect();
    let is_second = alone_with(test, &variables).is_none();
    fs::remove_dir_all(&folder).unwrap();
    is_second
}

/// A stream with a kernel to launch on it.
struct Program {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
    data: CudaSlice<f32>,
}

impl Program {
    fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        // SAFETY: each program uses one stream.
        unsafe { context.disable_event_tracking() };
        Self::on(&context)
    }

    fn on(context: &Arc<CudaContext>) -> Self {
        Self::on_stream(context.new_stream().unwrap())
    }

    fn on_stream(stream: Arc<CudaStream>) -> Self {
        let context = stream.context();
        let module =
            context.load_module(Ptx::from_src(include_str!("../examples/scale.ptx"))).unwrap();
        let kernel = module.load_function("scale").unwrap();
        let data = stream.alloc_zeros::<f32>(64).unwrap();
        Self { stream, kernel, data }
    }

    fn launch(&mut self) -> Result<(), DriverError> {
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&mut self.data).arg(&0.5_f32).arg(&64_u32);
        // SAFETY: the kernel takes a pointer to 64 floats, a float and their number.
        unsafe { launch.launch(LaunchConfig::for_num_elems(64)) }.map(drop)
    }
}

fn kernels(profile: &Profile, range: &str) -> u64 {
    profile.range(range).map_or(0, |range| range.kernels())
}

#[test]
fn queries_select_the_work_of_a_stream_by_its_own_type() {
    if !on_driver("queries_select_the_work_of_a_stream_by_its_own_type") {
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let (mut one, mut two) = (Program::on(&context), Program::on(&context));
    one.stream.set_name("one");
    context.set_name("context");
    one.stream.record_event(None).unwrap().set_name("event");
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let _step = nvtx::range("step");
            (0..3).for_each(|_| one.launch().unwrap());
            two.launch().unwrap();
            two.stream.synchronize().unwrap();
        })
        .unwrap();
    profile.health().assert_complete();
    let on = |program: &Program| {
        profile.query().on_stream(&program.stream).unwrap().kernels().iter().count()
    };
    assert_eq!((on(&one), on(&two)), (3, 1));
    let both = profile.query().on_stream(&one.stream).unwrap().on_stream(&two.stream).unwrap();
    assert_eq!(both.in_range("step").kernels().iter().count(), 4);
    let attributions = profile.kernels().map(|kernel| kernel.attribution());
    assert!(attributions.eq([Attribution::Launch; 4]));
}

#[test]
fn default_stream_depends_on_the_calling_thread() {
    if !on_driver("default_stream_depends_on_the_calling_thread") {
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let profiler = Profiler::builder().build().unwrap();
    profiler.start().unwrap();
    let launch = |count: usize| {
        let mut program = Program::on_stream(context.per_thread_stream());
        (0..count).for_each(|_| program.launch().unwrap());
        program.stream.synchronize().unwrap();
        program.stream
    };
    let stream = launch(2);
    let (ended, is_ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (launched, is_launched) = mpsc::channel();
        let other = scope.spawn(move || {
            launch(3);
            launched.send(()).unwrap();
            // The thread keeps its stream until the profile was asked.
            is_ended.recv().unwrap();
        });
        is_launched.recv().unwrap();
        let profile = profiler.stop().unwrap();
        profile.health().assert_complete();
        assert_eq!(profile.kernels().count(), 5);
        let own = profile.query().on_stream(&stream).unwrap().kernels();
        assert_eq!(own.iter().count(), 2, "{profile}");
        ended.send(()).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn captured_graphs_keep_the_ranges_of_their_nodes_and_of_their_launches() {
    if !on_driver("captured_graphs_keep_the_ranges_of_their_nodes_and_of_their_launches") {
        return;
    }
    let mut program = Program::new();
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let stream = program.stream.clone();
            let record = || {
                for _ in 0..2 {
                    let _layer = nvtx::range("layer");
                    (0..3).for_each(|_| program.launch().unwrap());
                }
                Ok::<(), Error>(())
            };
            let graph = {
                let _build = nvtx::range("build");
                stream.capture("decode", record).unwrap()
            };
            (0..5).for_each(|_| graph.launch().unwrap());
            stream.synchronize().unwrap();
        })
        .unwrap();
    profile.health().assert_complete();
    let decode = profile.range("decode").unwrap();
    assert_eq!((decode.instances(), decode.kernels()), (5, 30));
    assert_eq!(kernels(&profile, "build"), 0, "a capture runs nothing");
    let layers = profile.kernels().map(|kernel| kernel.captured_in().unwrap().name());
    assert!(layers.eq(["layer"; 30]));
    assert_eq!(profile.query().in_range("layer").replays().kernels().iter().count(), 30);
}

#[test]
fn failed_captures_leave_the_stream_unchanged() {
    if !on_driver("failed_captures_leave_the_stream_unchanged") {
        return;
    }
    let mut program = Program::new();
    let stream = program.stream.clone();
    let refused = stream.capture("refused", || {
        Err::<(), _>(Error::Driver {
            what: "a layer",
            source: DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        })
    });
    let error = refused.unwrap_err().to_string();
    assert_eq!(error, "a layer failed: CUDA_ERROR_OUT_OF_MEMORY");
    let empty = stream.capture("empty", || Ok::<(), Error>(()));
    // The fake makes an empty graph of it, as CUDA does.
    assert!(matches!(empty, Ok(_) | Err(Error::EmptyCapture)));
    let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        stream.capture("panics", || -> Result<(), Error> {
            program.launch().unwrap();
            panic!("in a layer");
        })
    }));
    assert!(panicked.is_err());
    program.launch().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn events_time_ranges_by_path() {
    let kernel = [("FAKE_CUDA_KERNEL_NS", "100000")];
    if !on_driver_with("events_time_ranges_by_path", &kernel) {
        return;
    }
    let mut program = Program::new();
    let timer = EventTimer::new(&program.stream);
    for _ in 0..2_000 {
        let _step = timer.range("step");
        program.launch().unwrap();
        let _forward = timer.range("forward");
        (0..2).for_each(|_| program.launch().unwrap());
    }
    // Events are not allowed within a capture: those ranges have no time, and the capture goes on.
    let stream = program.stream.clone();
    let graph = stream.capture("graph", || {
        let _layer = timer.range("layer");
        program.launch().map_err(|source| Error::Driver { what: "a launch", source })
    });
    graph.unwrap().launch().unwrap();
    let report = timer.finish().unwrap();
    let [step, forward, layer] = &report.rows[..] else { panic!("{report}") };
    let names = [step, forward, layer].map(|row| (row.path.as_str(), row.count));
    assert_eq!(names, [("step", 2_000), ("step/forward", 2_000), ("layer", 0)]);
    let near = |time: Duration, us: u64| time.abs_diff(Duration::from_micros(us)) < time / 4;
    assert!(near(step.min, 300) && near(forward.min, 200), "{report}");
    assert!(forward.total < step.total && step.min <= step.max, "{report}");
    assert_eq!((report.untimed, report.refused.as_deref()), (1, None));
    let text = report.to_string();
    assert!(text.starts_with("Ranges timed by CUDA events"), "{text}");
    assert!(text.contains("1 ranges without a time, within captures"), "{text}");
}

#[test]
fn session_without_cupti_is_an_error_with_a_reason() {
    const TEST: &str = "session_without_cupti_is_an_error_with_a_reason";
    if !on_driver(TEST) {
        return;
    }
    let mut program = Program::new();
    let mut run = |session: &StreamSession| {
        let _step = session.range("step");
        program.launch().unwrap();
    };
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let session = StreamSession::start(&stream).unwrap();
    assert_eq!(session.fallback_reason(), None);
    run(&session);
    let StreamReport::Profile(profile) = session.finish().unwrap() else { panic!("no profile") };
    assert_eq!(kernels(&profile, "step"), 1);

    // Counting hardware counters excludes sessions, as another tool does.
    let library = cupti::Library::open().unwrap();
    let held = cupti::Collector::start(&library, &cupti::Config::new()).unwrap();
    let session = StreamSession::start(&stream).unwrap();
    let reason = session.fallback_reason().unwrap().to_owned();
    run(&session);
    let StreamReport::Events(report) = session.finish().unwrap() else { panic!("a profile") };
    assert_eq!(
        report.rows.iter().map(|row| (&*row.path, row.count)).collect::<Vec<_>>(),
        [("step", 1)]
    );
    assert!(report.to_string().contains(&format!("instead of a profile: {reason}")), "{report}");
    drop(held);
}

#[test]
fn errors_of_the_driver_go_through_and_are_counted() {
    if !on_driver("errors_of_the_driver_go_through_and_are_counted") {
        return;
    }
    let mut program = Program::new();
    let profiler = Profiler::builder().build().unwrap();
    let ((), profile) = profiler
        .record(|| {
            let _step = nvtx::range("step");
            program.launch().unwrap();
            // More than the device has.
            let refused = program.stream.alloc_zeros::<u8>(1 << 45).map(drop).unwrap_err();
            assert_eq!(refused.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            program.launch().unwrap();
            program.stream.synchronize().unwrap();
        })
        .unwrap();
    profile.health().assert_complete();
    assert_eq!(kernels(&profile, "step"), 2);
    assert!(profile.calls().any(|call| call.is_failure() && call.name().starts_with("cuMemAlloc")));
}

#[test]
fn sessions_overlap_and_devices_are_apart() {
    if !on_driver_with("sessions_overlap_and_devices_are_apart", &[("FAKE_CUDA_DEVICES", "2")]) {
        return;
    }
    let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
    let mut programs = contexts.each_ref().map(Program::on);
    let mut pass = |name: &str| {
        let _range = nvtx::range(name);
        for program in &mut programs {
            // A context is current on a thread until another one is used there.
            program.stream.context().bind_to_thread().unwrap();
            program.launch().unwrap();
            program.stream.synchronize().unwrap();
        }
    };
    let [first, second] = [(), ()].map(|()| Profiler::builder().build().unwrap());
    first.start().unwrap();
    pass("first");
    second.start().unwrap();
    pass("both");
    let first = first.stop().unwrap();
    pass("second");
    let second = second.stop().unwrap();
    for (profile, names) in [(&first, ["first", "both"]), (&second, ["both", "second"])] {
        profile.health().assert_complete();
        assert_eq!(names.map(|name| kernels(profile, name)), [2, 2], "{profile}");
        let on = |device: u32, name: &str| {
            profile.query().device(device).in_range(name).kernels().iter().count()
        };
        let counts = names.map(|name| [0, 1].map(|device| on(device, name)));
        print_by_device(&[(names[0], counts[0]), (names[1], counts[1])]);
        assert_eq!((counts, profile.kernels().count()), ([[1, 1]; 2], 4), "{profile}");
    }
}

#[test]
fn program_without_a_driver_gets_an_error() {
    const TEST: &str = "program_without_a_driver_gets_an_error";
    let hidden = Hidden::new(DRIVER);
    // The fake's driver and its CUPTI are one file.
    let path = if is_on_gpu() { hidden.path() } else { String::new() };
    if alone_with(TEST, &[("LD_LIBRARY_PATH", &path)]).is_some() {
        return;
    }
    let error = Profiler::builder().build().map(drop).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}

#[test]
fn example_of_a_server_attributes_every_request() {
    // The examples are built with the tests.
    let own = env::current_exe().unwrap();
    let example = own.parent().unwrap().parent().unwrap().join("examples/server");
    let folder = env::temp_dir().join(format!("cudarc-server-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fake_cuda::install(&folder).unwrap();
    let file = folder.join("server.gpuprof");
    let mut command = Command::new(example);
    let output = command.arg(&file).env("LD_LIBRARY_PATH", &folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let profile = Profile::load(&file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    profile.health().assert_complete();
    // A budget as a test of the server would have it: six kernels and one wait for each request.
    expect(&profile)
        .complete()
        .range("request")
        .each()
        .kernels(exactly(6))
        .synchronizations(exactly(1))
        .assert();
    let request = profile.range("request").unwrap();
    assert_eq!((request.instances(), request.kernels()), (200, 1_200));
    assert_eq!(profile.query().in_range("layer").replays().kernels().iter().count(), 1_200);
    assert!(text.contains("slowest request: Some(U64("), "{text}");
    let on_streams: usize = text
        .lines()
        .filter_map(|line| line.strip_prefix("worker ")?.split_once(": ")?.1.split_once(" kernels"))
        .map(|(count, _)| count.parse::<usize>().unwrap())
        .sum();
    assert_eq!(on_streams, 1_200, "{text}");
}
