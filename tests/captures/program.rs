//! What nsys captures, so that its reports of it stand beside ours: small, and of every kind that the reports tell apart.
//!
//! ```text
//! capture_program one        one process: threads, streams, ranges, graphs, copies, memsets, waits
//! capture_program family     the same in two processes that a third starts and works beside
//! capture_program managed    managed memory that wanders between host and GPU
//! ```
//!
//! It has no profiler of its own: nsys holds CUPTI.
#![allow(clippy::print_stderr, clippy::unwrap_used)] // a program for tests

use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::time::Duration;

use cudarc::driver::sys::CUfunction;
use gpu_profiler_tests::cuda::{DEFAULT, Gpu, Handle, Host, Stream, unavailable};
use gpu_profiler_tests::runtime::{Object, Runtime};
use nvtx::{Color, Domain, Payload, event, mark, process_range, range};

/// Kernels with the names of templates, overloads and C functions. Each runs for a number of nanoseconds.
const NAMES: [&str; 5] =
    ["_Z5scaleIfEvm", "_Z5scaleIdEvm", "_ZN4math3addEm", "_ZN4math3addIiLi4EEEvm", "gather"];

static LOADER: Domain = Domain::new("loader");
static SOLVER: Domain = Domain::new("solver: a, \"b\"");

fn main() -> ExitCode {
    if let Some(why) = unavailable() {
        eprintln!("capture_program: {why}");
        return ExitCode::FAILURE;
    }
    match std::env::args().nth(1).as_deref() {
        Some("one") => run_one(3),
        Some("child") => run_one(1),
        Some("family") => family(),
        Some("managed") => managed(),
        _ => {
            eprintln!("usage: capture_program one | family | managed");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// A kernel with 256 bytes of static shared memory and some of its own for each thread.
fn ptx(name: &str) -> String {
    format!(
        r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry {name}(.param .u64 nanoseconds) {{
    .local .align 8 .b8 own[64];
    .shared .align 8 .b8 together[256];
    .reg .u64 %begin, %now, %passed, %wanted;
    .reg .u32 %thread;
    .reg .u64 %at, %place;
    .reg .pred %go_on;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u32 %thread, %tid.x;
    and.b32 %thread, %thread, 7;
    mul.wide.u32 %at, %thread, 8;
    mov.u64 %place, own;
    add.u64 %place, %place, %at;
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    st.local.u64 [%place], %now;
    sub.u64 %passed, %now, %begin;
    setp.lt.u64 %go_on, %passed, %wanted;
    @%go_on bra again;
    ld.local.u64 %now, [own];
    st.volatile.shared.u64 [together], %now;
    ret;
}}
"
    )
}

struct Machine {
    gpu: Gpu,
    kernels: Vec<Handle<CUfunction>>,
}

impl Machine {
    fn new(gpu: Gpu) -> Machine {
        let named = |name: &&str| gpu.kernel(&ptx(name), name);
        let kernels = NAMES.iter().map(named).collect();
        Machine { gpu, kernels }
    }

    /// Launches one of the kernels in a shape that follows from the number.
    fn launch(&self, which: usize, stream: Stream, nanoseconds: u64) {
        let kernel = self.kernels[which % self.kernels.len()];
        let n = which as u32;
        let shape = ([1 + n % 3, 1 + n % 2, 1], [32 * (1 + n % 4), 1 + n % 2, 1], 128 * (n % 3));
        self.gpu.launch(kernel, stream, shape, [nanoseconds]);
    }
}

fn run_one(rounds: usize) {
    nvtx::name_current_thread("main thread");
    let machine = Machine::new(Gpu::get());
    let gpu = &machine.gpu;
    mark("ready");
    let whole = LOADER.process_range("whole run");
    for round in 0..rounds {
        let _round = event("round").payload(Payload::from(round as u64)).range();
        copies(&machine);
        waits(&machine);
        graphs(&machine, round);
        threads(&machine);
    }
    runtime_calls();
    other_devices(&machine);
    {
        let _idle = range("idle");
        std::thread::sleep(Duration::from_millis(600));
    }
    machine.launch(3, DEFAULT, 5_000);
    gpu.synchronize_context();
    drop(whole);
    // A range that nobody ends.
    std::mem::forget(process_range("never ended"));
}

fn copies(machine: &Machine) {
    const MIB: usize = 1 << 20;
    let _range = range("copies, \"all\" ways");
    let gpu = &machine.gpu;
    let stream = gpu.stream();
    let (a, b) = (gpu.alloc(2 * MIB), gpu.alloc(2 * MIB));
    let (pinned, other) = (gpu.pinned(MIB), gpu.pinned(MIB));
    let mut host = vec![3u8; MIB];
    {
        let _in = LOADER.range("in");
        gpu.copy_in(a, &host);
        gpu.copy_in(a, &host[..100]);
        gpu.copy_in_async(a, pinned, MIB, stream);
        gpu.copy_in_async(a, Host::pageable(&mut host), MIB / 2, stream);
    }
    {
        let _within = range("within");
        gpu.copy_within(b, a, MIB);
        gpu.copy_within_async(b, a, 2 * MIB, stream);
        gpu.copy_on_host(other, pinned, MIB);
        gpu.copy_through_arrays(a, &mut host[..4096]);
    }
    {
        let _out = range("out");
        gpu.copy_out(&mut host, a);
        gpu.copy_out_async(pinned, a, 12_345, stream);
        gpu.copy_out_async(Host::pageable(&mut host), b, 54_321, stream);
    }
    {
        let _fills = range("fills");
        gpu.fill(a, 7, 1000);
        gpu.fill_async(a, 7, 2000, stream);
        gpu.fill_2d_async(a, 512, 16, 8, stream);
    }
    gpu.synchronize(stream);
    let _ = gpu.alloc_and_free_async(MIB, stream);
    gpu.free(a);
    gpu.free(b);
    gpu.destroy(stream);
}

fn waits(machine: &Machine) {
    let _range = SOLVER.event("waits").color(Color::rgb(200, 20, 20)).range();
    let gpu = &machine.gpu;
    let (stream, other) = (gpu.stream(), gpu.stream());
    let event = gpu.event();
    // Two that overlap, one that waits for the first, one in the default stream.
    machine.launch(0, stream, 300_000);
    gpu.record(event, stream);
    machine.launch(1, other, 200_000);
    gpu.wait(other, event);
    machine.launch(2, other, 40_000);
    gpu.synchronize_event(event);
    gpu.synchronize(stream);
    gpu.synchronize(other);
    machine.launch(4, DEFAULT, 10_000);
    gpu.synchronize_context();
    gpu.synchronize(DEFAULT);
    let _ = gpu.launch_wrongly(stream);
    mark("waited");
}

fn graphs(machine: &Machine, round: usize) {
    let _range = range("graphs");
    let gpu = &machine.gpu;
    let stream = gpu.stream();
    let (a, b) = (gpu.alloc(4096), gpu.alloc(4096));
    let pinned = gpu.pinned(4096);
    let graph = {
        let _capture = range("capture");
        gpu.capture(stream, || {
            gpu.copy_in_async(a, pinned, 4096, stream);
            {
                let _layer = range("layer");
                (0..3).for_each(|n| machine.launch(n, stream, 3_000));
            }
            gpu.fill_async(b, 0, 4096, stream);
            gpu.copy_within_async(b, a, 2048, stream);
            machine.launch(4, stream, 1_000);
        })
    };
    for step in 0..4 {
        let _step = SOLVER.range(&format!("step {step}"));
        gpu.launch_graph(graph, stream);
        if step == round {
            machine.launch(1, stream, 2_000);
        }
    }
    gpu.synchronize(stream);
    gpu.destroy_graph(graph);
    gpu.free(a);
    gpu.free(b);
}

/// Three threads with ranges within each other, and one range that is handed from thread to thread.
fn threads(machine: &Machine) {
    let _range = range("threads");
    let barrier = Barrier::new(3);
    let handed = std::sync::Mutex::new(vec![SOLVER.process_range("handed on")]);
    std::thread::scope(|scope| {
        for worker in 0..3usize {
            let (barrier, handed) = (&barrier, &handed);
            scope.spawn(move || {
                nvtx::name_current_thread(&format!("worker {worker}"));
                let _ = Gpu::get();
                let stream = machine.gpu.stream();
                barrier.wait();
                let _worker = range(&format!("worker {worker}"));
                for item in 0..5 {
                    let _item = LOADER.range("item");
                    for depth in 0..=worker {
                        let _depth = range(["outer", "inner", "größte Tiefe"][depth]);
                        machine.launch(worker + item + depth, stream, 2_000 * (1 + depth as u64));
                    }
                    machine.launch(worker, stream, 1_500);
                    if item == 2 {
                        let job = process_range(&format!("job {worker}"));
                        machine.launch(item, stream, 1_000);
                        machine.gpu.synchronize(stream);
                        handed.lock().unwrap().push(job);
                    }
                }
                machine.gpu.synchronize(stream);
                if worker == 1 {
                    handed.lock().unwrap().clear();
                }
                machine.gpu.destroy(stream);
            });
        }
    });
}

/// What only programs of the runtime API have: nsys's rules look for their names.
fn runtime_calls() {
    const MIB: usize = 1 << 20;
    let Some(runtime) = Runtime::open() else {
        eprintln!("capture_program: no libcudart: nothing of the runtime API is captured");
        return;
    };
    let _range = range("runtime");
    let stream = runtime.stream();
    let (memory, pinned) = (runtime.malloc(4 * MIB), runtime.host_alloc(4 * MIB));
    let mut host = vec![1u8; 4 * MIB];
    let kernel = runtime.kernel(&ptx("_Z7runtimem"), c"_Z7runtimem");
    for turn in 0..3 {
        let _turn = LOADER.range("turn");
        let pageable = Object::host(&mut host);
        runtime.memcpy(memory, pageable, MIB);
        runtime.memcpy(pageable, memory, 1000);
        runtime.memcpy(memory, pinned, MIB);
        runtime.memcpy_async(memory, pageable, 3 * MIB, stream);
        runtime.memcpy_async(pageable, memory, 2 * MIB, stream);
        runtime.memcpy_async(pinned, memory, MIB, stream);
        runtime.memset(memory, turn, 4 * MIB);
        runtime.memset_async(memory, turn, MIB, stream);
        runtime.launch(kernel, 4, 64, 20_000, stream);
        runtime.stream_synchronize(stream);
        runtime.launch(kernel, 2, 32, 10_000, Object::NULL);
        runtime.device_synchronize();
    }
    let graph = {
        let _capture = range("capture");
        runtime.capture(stream, || {
            runtime.launch(kernel, 1, 32, 4_000, stream);
            runtime.memset_async(memory, 9, 4096, stream);
            runtime.launch(kernel, 2, 32, 2_000, stream);
        })
    };
    for _ in 0..3 {
        let _replay = range("replay");
        runtime.launch_graph(graph, stream);
    }
    runtime.stream_synchronize(stream);
    runtime.free(memory);
}

/// Copies to a second GPU, where there is one.
fn other_devices(machine: &Machine) {
    let bytes = 1 << 20;
    let Some(other) = machine.gpu.other_device(1) else { return };
    let _range = range("two devices");
    let there = other.alloc(bytes);
    let stream = other.stream();
    other.launch_empty(stream);
    other.synchronize(stream);
    machine.gpu.make_current();
    let (here, stream) = (machine.gpu.alloc(bytes), machine.gpu.stream());
    machine.gpu.copy_to_peer((there, &other), here, bytes, stream);
    machine.gpu.synchronize(stream);
}

fn family() {
    let _range = process_range("parent");
    let program = std::env::current_exe().unwrap();
    let start = |_| Command::new(&program).arg("child").spawn().unwrap();
    let children: Vec<_> = (0..2).map(start).collect();
    let machine = Machine::new(Gpu::get());
    let stream = machine.gpu.stream();
    for turn in 0..10 {
        let _turn = range("parent's turn");
        machine.launch(turn, stream, 5_000);
        machine.gpu.synchronize(stream);
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

fn managed() {
    let machine = Machine::new(Gpu::get());
    let gpu = &machine.gpu;
    let stream = gpu.stream();
    let bytes = 4 << 20;
    for turn in 0..3u8 {
        let _turn = range("turn");
        let memory = gpu.alloc_managed(bytes);
        gpu.fill_on_cpu(memory, turn, bytes);
        gpu.fill_async(memory, turn + 1, bytes, stream);
        machine.launch(0, stream, 10_000);
        gpu.synchronize(stream);
        assert!(gpu.read_on_cpu(memory, bytes).iter().all(|byte| *byte == turn + 1));
        gpu.free(memory);
    }
}
