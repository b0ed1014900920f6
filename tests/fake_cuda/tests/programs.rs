//! Programs with the fake driver: in C, with an injection library, forked; and in this process through cudarc, profiled.
//!
//! A program finds the fake by `LD_LIBRARY_PATH`, which the dynamic linker reads at the start of a process alone. So a scene in
//! this process is one that a test starts again with the variable set.
#![allow(clippy::unwrap_used, clippy::panic)] // tests

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Arc;
use std::{env, fs, thread};

use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, sys};
use cudarc::nvrtc::Ptx;
use cupti::Config;
use libtest_mimic::{Arguments, Failed, Trial};
use profiler_core::{Profile, Profiler, Range};

/// Names the scene that this program, started by itself, is to play.
const SCENE: &str = "FAKE_CUDA_SCENE";
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

/// A folder with the fake, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("fake-cuda-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fake_cuda::install(&path).unwrap();
        Self(path)
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_LIBRARY_PATH", &self.0).env_remove("CUDA_INJECTION64_PATH");
        command
    }

    /// Compiles a program of this package.
    fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        let out = self.0.join(name);
        let compiled = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()))
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
            .args(flags)
            .arg(Path::new(PROGRAMS).join(format!("{name}.c")))
            .arg("-o")
            .arg(&out)
            .args(["-ldl"])
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        out
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The standard output of a program that ended with success and printed no error.
fn succeeded(output: Output) -> String {
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {out}{error}", output.status);
    assert_eq!(error, "");
    out
}

const COUNTS: &str = "axpy 207\nnorm 807\ncopies 5\nfills 7\ngraphs 7\n";

fn a_c_program_runs() -> Result<(), Failed> {
    let folder = Folder::new("counts");
    let counts = folder.compile("counts", &[]);
    assert_eq!(succeeded(folder.command(counts).output()?), COUNTS);
    Ok(())
}

fn cu_init_calls_the_injection_library_once_on_its_thread() -> Result<(), Failed> {
    let folder = Folder::new("injection");
    let counts = folder.compile("counts", &[]);
    let library = folder.compile("injection", &["-shared", "-fPIC"]);
    let injected = folder.0.join("injected");
    let run = |variables: &[(&str, &str)]| {
        let mut command = folder.command(&counts);
        command.env("CUDA_INJECTION64_PATH", &library).env("INJECTED", &injected);
        assert_eq!(succeeded(command.envs(variables.iter().copied()).output().unwrap()), COUNTS);
        let lines = fs::read_to_string(&injected).unwrap();
        fs::remove_file(&injected).unwrap();
        lines
    };
    // The program calls cuInit twice, and the library once more within the first call.
    assert_eq!(run(&[]), "on the first thread, 1 devices, CUPTI 130001\n");
    assert!(run(&[("FAKE_CUDA_DEVICES", "3")]).contains("3 devices"));
    // A profiler that calls CUPTI in a forked child is found out.
    let lines = run(&[("CUPTI_IN_CHILD", "1")]);
    assert!(lines.ends_with("\nchild: signal 6\n"), "{lines}");
    // A library that is not there keeps no program from running.
    let mut command = folder.command(&counts);
    command.env("CUDA_INJECTION64_PATH", folder.0.join("none.so"));
    assert_eq!(succeeded(command.output()?), COUNTS);
    Ok(())
}

fn a_forked_child_has_no_part_in_its_parents_cuda() -> Result<(), Failed> {
    let folder = Folder::new("fork");
    let fork = folder.compile("fork", &[]);
    assert_eq!(succeeded(folder.command(fork).output()?), "own 7\nparents 8\n");
    Ok(())
}

fn no_device_is_an_error_of_cu_init() -> Result<(), Failed> {
    let folder = Folder::new("none");
    let counts = folder.compile("counts", &[]);
    let output = folder.command(counts).env("FAKE_CUDA_DEVICES", "0").output()?;
    assert!(text(&output.stderr).contains("cuInit(0) returned 100"), "{output:?}");
    Ok(())
}

/// Plays a scene in a process of its own that finds the fake.
fn play(scene: &str) -> Result<(), Failed> {
    let folder = Folder::new(scene);
    let own = env::current_exe()?;
    let output = folder.command(own).env(SCENE, scene).env("FAKE_CUDA_DEVICES", "2").output()?;
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{out}{error}").into()) }
}

const SCENES: [(&str, fn()); 2] = [
    ("cudarc_is_profiled", cudarc_is_profiled),
    ("the_runtime_is_profiled", the_runtime_is_profiled),
];

/// How many kernels of each name a profile has.
fn kernels(profile: &Profile) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for kernel in profile.kernels() {
        *counts.entry(kernel.demangled_name().to_string()).or_default() += 1;
    }
    counts
}

/// Kernels of a name in ranges of threads, copies, a graph and errors, counted by the profiler and by the program.
fn cudarc_is_profiled() {
    const LAUNCHES: usize = 50;
    let profiler = Profiler::builder().build().unwrap();
    let devices = profiler.library().driver().devices.len();
    assert_eq!(devices, 2);
    profiler.start().unwrap();
    let context = CudaContext::new(0).unwrap();
    let step = || {
        let module = context.load_module(Ptx::from_src(".version 7.0")).unwrap();
        let stream = context.new_stream().unwrap();
        let function = module.load_function("step").unwrap();
        let config =
            LaunchConfig { grid_dim: (3, 2, 1), block_dim: (32, 4, 2), shared_mem_bytes: 0 };
        for _ in 0..LAUNCHES {
            let _range = nvtx::range("step");
            // SAFETY: the kernel is the fake's, which takes no arguments and does nothing.
            unsafe { stream.launch_builder(&function).launch(config) }.unwrap();
        }
        stream.synchronize().unwrap();
        stream
    };
    let stream = step();
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(step)));
    });
    {
        let _range = nvtx::range("copies");
        let there = stream.clone_htod(&[1.5_f32; 1000]).unwrap();
        assert_eq!(stream.clone_dtoh(&there).unwrap(), [1.5; 1000]);
        stream.memset_zeros(&mut stream.clone_htod(&[1_u8; 64]).unwrap()).unwrap();
    }
    capture_and_replay(&context, &stream);
    let other = CudaContext::new(1).unwrap();
    let module = other.load_module(Ptx::from_src(".version 7.0")).unwrap();
    let function = module.load_function("elsewhere").unwrap();
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: as above.
    unsafe { other.default_stream().launch_builder(&function).launch(config) }.unwrap();
    other.default_stream().synchronize().unwrap();
    let profile = profiler.stop().unwrap();

    profile.health().assert_complete();
    let expected = [("captured", 6), ("elsewhere", 1), ("step", 4 * LAUNCHES)];
    assert_eq!(kernels(&profile), expected.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!(profile.range("step").unwrap().kernels(), 4 * LAUNCHES as u64, "{profile}");
    assert_eq!(profile.copies().count(), 3);
    assert_eq!(profile.query().in_range("copies").copies().count(), 3, "{profile}");
    let step = profile.kernels().find(|kernel| kernel.demangled_name() == "step").unwrap();
    assert_eq!((step.grid(), step.block()), ([3, 2, 1], [32, 4, 2]));
    assert_eq!(profile.query().devices().len(), 2);
    // A replayed kernel has the range of its capture and that of its launch.
    let captured = profile.operations().filter(|operation| {
        let of = |range: Option<Range<'_>>| range.map(|range| range.name().to_owned());
        of(operation.captured_in()).as_deref() == Some("layer")
            && of(operation.range()).as_deref() == Some("replay")
    });
    assert_eq!(captured.count(), 6, "{profile}");
}

/// Two kernels in a graph, launched three times.
fn capture_and_replay(context: &Arc<CudaContext>, stream: &Arc<CudaStream>) {
    let module = context.load_module(Ptx::from_src(".version 7.0")).unwrap();
    let function = module.load_function("captured").unwrap();
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    {
        let _range = nvtx::range("layer");
        for _ in 0..2 {
            // SAFETY: the kernel is the fake's, which takes no arguments and does nothing.
            unsafe { stream.launch_builder(&function).launch(config) }.unwrap();
        }
    }
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    for _ in 0..3 {
        let _range = nvtx::range("replay");
        graph.launch().unwrap();
    }
    stream.synchronize().unwrap();
}

/// `dim3`.
#[repr(C)]
struct Extent(c_uint, c_uint, c_uint);

/// Calls of the runtime share the ids of their driver calls, and are found beside them.
fn the_runtime_is_profiled() {
    type Register = unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        *const u8,
        *const i8,
        c_int,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
        *const c_void,
    );
    type Launch = unsafe extern "C" fn(
        *const c_void,
        Extent,
        Extent,
        *mut *mut c_void,
        usize,
        *mut c_void,
    ) -> c_int;
    fn kernel() {}
    let name: &CStr = c"registered";
    let null: *const c_void = std::ptr::null();
    let address = kernel as *const c_void;
    // SAFETY: the fake's initialisers may run in any process.
    let runtime = unsafe { libloading::Library::new("libcudart.so.13") }.unwrap();
    // SAFETY: this is the function's type.
    let register = *unsafe { runtime.get::<Register>(b"__cudaRegisterFunction") }.unwrap();
    // SAFETY: this is the function's type.
    let launch = *unsafe { runtime.get::<Launch>(b"cudaLaunchKernel") }.unwrap();
    // SAFETY: this is the function's type.
    let wait = *unsafe { runtime.get::<unsafe extern "C" fn() -> c_int>(b"cudaDeviceSynchronize") }
        .unwrap();
    // SAFETY: the name ends in a NUL; nothing else is read.
    unsafe {
        register(
            std::ptr::null_mut(),
            address,
            null.cast(),
            name.as_ptr(),
            0,
            null,
            null,
            null,
            null,
            null,
        )
    };

    let config = Config::new().runtime_calls(true);
    let profiler = Profiler::builder().config(config).build().unwrap();
    profiler.start().unwrap();
    for _ in 0..9 {
        let (grid, block) = (Extent(5, 1, 1), Extent(64, 1, 1));
        let null: *mut c_void = std::ptr::null_mut();
        // SAFETY: a registered kernel, which takes no arguments.
        assert_eq!(unsafe { launch(address, grid, block, std::ptr::null_mut(), 0, null) }, 0);
    }
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { wait() }, 0);
    let profile = profiler.stop().unwrap();

    profile.health().assert_complete();
    assert_eq!(kernels(&profile), [("registered".to_owned(), 9)].into());
    let ids = |calls: Vec<u32>| calls.into_iter().collect::<std::collections::BTreeSet<_>>();
    let launches = profile.calls().filter(|call| call.name() == "cuLaunchKernel");
    let driver = ids(launches.map(|call| call.correlation_id()).collect());
    let launches = profile.runtime_calls().filter(|call| call.name() == "cudaLaunchKernel");
    let runtime = ids(launches.map(|call| call.correlation_id()).collect());
    assert_eq!(driver.len(), 9);
    assert_eq!(driver, runtime);
}

fn main() -> ExitCode {
    if let Ok(scene) = env::var(SCENE) {
        let (_, play) = SCENES.iter().find(|(name, _)| *name == scene).unwrap();
        play();
        return ExitCode::SUCCESS;
    }
    type Test = fn() -> Result<(), Failed>;
    let tests: [(&str, Test); 4] = [
        ("a_c_program_runs", a_c_program_runs),
        (
            "cu_init_calls_the_injection_library_once_on_its_thread",
            cu_init_calls_the_injection_library_once_on_its_thread,
        ),
        (
            "a_forked_child_has_no_part_in_its_parents_cuda",
            a_forked_child_has_no_part_in_its_parents_cuda,
        ),
        ("no_device_is_an_error_of_cu_init", no_device_is_an_error_of_cu_init),
    ];
    let trials = tests.map(|(name, test)| Trial::test(name, test)).into_iter();
    let scenes = SCENES.iter().map(|(name, _)| Trial::test(*name, || play(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.chain(scenes).collect()).exit_code()
}
