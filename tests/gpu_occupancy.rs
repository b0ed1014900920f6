//! Our theoretical occupancy beside CUDA's own calculator, for kernels of many register counts in 1,000 random shapes. With
//! `OUT` set, what CUDA said is written there, to become the table that `profiler-analysis/tests/analyze/occupancy.rs` replays.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cudarc::driver::sys::{CUdevice_attribute_enum as Device, CUfunction_attribute_enum as Of};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu, Handle};
use gpu_profiler_tests::harness;
use profiler_analysis::kernels::{BlockNeeds, Occupancy, SmLimits};
use profiler_analysis::prelude::*;
use profiler_core::Profiler;

fn main() -> ExitCode {
    harness::run(&[
        ("limits_of_the_device_match_cuda", limits_of_the_device),
        ("occupancy_of_a_thousand_shapes_matches_cuda", a_thousand_shapes),
        ("occupancy_of_recorded_launches_matches_cuda", recorded_launches),
    ])
    .exit_code()
}

fn capability(gpu: &Gpu) -> (u32, u32) {
    let of = |attribute| gpu.device_attribute(attribute).cast_unsigned();
    (
        of(Device::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        of(Device::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

fn limits_of_the_device() {
    let gpu = Gpu::get();
    let limits = SmLimits::from_compute_capability(capability(&gpu)).unwrap();
    let of = |attribute| gpu.device_attribute(attribute).cast_unsigned();
    assert_eq!(limits.warps * 32, of(Device::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
    assert_eq!(limits.blocks, of(Device::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    assert_eq!(limits.registers, of(Device::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));
    let block = of(Device::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    assert_eq!(limits.registers_per_block, block);
    let shared = of(Device::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    assert_eq!(limits.shared_bytes, shared);
    let block = of(Device::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    assert_eq!(limits.shared_bytes_per_block, block);
    let reserved = of(Device::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    assert_eq!(limits.reserved_shared_bytes_per_block, reserved);
    assert_eq!(limits.threads_per_block, of(Device::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
}

/// A kernel that keeps so many values in registers, and has so many bytes of static shared memory. It reads the values, waits
/// for its block and writes them back.
fn ptx(name: &str, values: u32, shared: u32, most_threads: Option<u32>, ptx: &mut String) {
    writeln!(ptx, ".visible .entry {name}(.param .u64 memory)").unwrap();
    if let Some(threads) = most_threads {
        writeln!(ptx, ".maxntid {threads}, 1, 1").unwrap();
    }
    writeln!(ptx, "{{ .reg .u64 %p; .reg .u32 %r<{values}>;").unwrap();
    if shared != 0 {
        writeln!(ptx, ".shared .align 4 .b8 s_{name}[{shared}];").unwrap();
    }
    ptx.push_str("ld.param.u64 %p, [memory];\n");
    for value in 0..values {
        writeln!(ptx, "ld.volatile.global.u32 %r{value}, [%p+{}];", 4 * value).unwrap();
    }
    if shared != 0 {
        writeln!(ptx, "st.volatile.shared.u32 [s_{name}], %r0;").unwrap();
    }
    ptx.push_str("bar.sync 0;\n");
    for value in (0..values).rev() {
        writeln!(ptx, "st.volatile.global.u32 [%p+{}], %r{value};", 4 * value).unwrap();
    }
    ptx.push_str("ret; }\n");
}

/// A kernel as CUDA describes it.
#[derive(Debug, Clone, Copy)]
struct Kernel {
    function: Handle<cudarc::driver::sys::CUfunction>,
    most_threads: u32,
    registers: u32,
    static_shared: u32,
    /// Bytes that a block may ask for at launch.
    most_dynamic: u32,
}

fn kernels(gpu: &Gpu, random: &mut fastrand::Rng) -> Vec<Kernel> {
    const VALUES: [u32; 20] =
        [1, 4, 9, 14, 18, 22, 27, 32, 38, 45, 54, 60, 73, 88, 104, 120, 150, 180, 210, 245];
    const SHARED: [u32; 12] = [0, 0, 0, 4, 512, 1024, 1028, 4356, 12_288, 16_384, 30_000, 49_152];
    let mut module = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
    let mut names = Vec::new();
    for values in VALUES {
        for most_threads in [None, Some(64), Some(1024)] {
            let name = format!("k{}", names.len());
            let shared = SHARED[random.usize(..SHARED.len())];
            ptx(&name, values, shared, most_threads, &mut module);
            names.push(name);
        }
    }
    let opt_in = gpu
        .device_attribute(Device::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        .cast_unsigned();
    let describe = |function| {
        let of = |attribute| gpu.kernel_attribute(function, attribute).cast_unsigned();
        let static_shared = of(Of::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
        let most_dynamic = opt_in - static_shared;
        let set = Of::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        gpu.set_kernel_attribute(function, set, most_dynamic.cast_signed());
        Kernel {
            function,
            most_threads: of(Of::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            registers: of(Of::CU_FUNC_ATTRIBUTE_NUM_REGS),
            static_shared,
            most_dynamic,
        }
    };
    gpu.load_ptx(&module, &names).into_iter().map(describe).collect()
}

/// A launch of a kernel.
#[derive(Debug, Clone, Copy)]
struct Launch {
    kernel: Kernel,
    threads: u32,
    dynamic: u32,
    carveout: Option<u8>,
}

impl Launch {
    fn random(kernels: &[Kernel], random: &mut fastrand::Rng) -> Self {
        let kernel = kernels[random.usize(..kernels.len())];
        let threads = match random.u8(..4) {
            0 => random.u32(1..=kernel.most_threads),
            _ => (32 * random.u32(1..=32)).min(kernel.most_threads),
        };
        let dynamic = match random.u8(..8) {
            0..3 => 0,
            3 => random.u32(..=kernel.most_dynamic),
            4 => kernel.most_dynamic,
            5 => (1024 * random.u32(1..=228)).min(kernel.most_dynamic),
            _ => random.u32(..=16_384).min(kernel.most_dynamic),
        };
        let carveout = (random.u8(..3) == 0).then(|| random.u8(..=100));
        Self { kernel, threads, dynamic, carveout }
    }

    fn needs(&self) -> BlockNeeds {
        BlockNeeds {
            threads: self.threads,
            registers_per_thread: self.kernel.registers,
            static_shared_bytes: self.kernel.static_shared,
            dynamic_shared_bytes: self.dynamic,
            shared_carveout_percent: self.carveout,
        }
    }

    fn set_carveout(&self, gpu: &Gpu) {
        let attribute = Of::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        let percent = self.carveout.map_or(-1, i32::from);
        gpu.set_kernel_attribute(self.kernel.function, attribute, percent);
    }

    fn blocks_by_cuda(&self, gpu: &Gpu) -> u32 {
        self.set_carveout(gpu);
        let dynamic = self.dynamic as usize;
        gpu.blocks_per_multiprocessor(self.kernel.function, self.threads, dynamic)
    }
}

fn write(name: &str, text: &str) {
    if let Some(out) = std::env::var_os("OUT") {
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(Path::new(&out).join(name), text).unwrap();
    }
}

fn a_thousand_shapes() {
    let gpu = Gpu::get();
    let random = &mut fastrand::Rng::with_seed(7);
    let kernels = kernels(&gpu, random);
    let registers: BTreeSet<u32> = kernels.iter().map(|kernel| kernel.registers).collect();
    eprintln!("register counts: {registers:?}");
    assert!(registers.len() >= 10, "the compiler made few register counts: {registers:?}");

    let capability = capability(&gpu);
    let limits = SmLimits::from_compute_capability(capability).unwrap();
    let mut rows = String::from("cc,threads,registers,static,dynamic,carveout,blocks\n");
    let mut differences = Vec::new();
    let mut answers = BTreeSet::new();
    for _ in 0..1000 {
        let launch = Launch::random(&kernels, random);
        let (needs, by_cuda) = (launch.needs(), launch.blocks_by_cuda(&gpu));
        let ours = Occupancy::new(&limits, &needs);
        answers.insert(by_cuda);
        let carveout = needs.shared_carveout_percent.map(|percent| percent.to_string());
        writeln!(
            rows,
            "{}.{},{},{},{},{},{},{by_cuda}",
            capability.0,
            capability.1,
            needs.threads,
            needs.registers_per_thread,
            needs.static_shared_bytes,
            needs.dynamic_shared_bytes,
            carveout.unwrap_or_default(),
        )
        .unwrap();
        if ours.blocks != by_cuda {
            differences.push(format!("CUDA {by_cuda}: {needs:?}: {ours:?}"));
        }
    }
    write(&format!("occupancy-{}.{}.csv", capability.0, capability.1), &rows);
    eprintln!("1000 shapes, {} answers: {answers:?}", answers.len());
    let first = differences.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of 1000 differ:\n{first}", differences.len());
}

/// What CUPTI's records say of launches leads to the same.
fn recorded_launches() {
    let gpu = Gpu::get();
    let random = &mut fastrand::Rng::with_seed(8);
    let kernels = kernels(&gpu, random);
    let launches: Vec<Launch> = (0..200).map(|_| Launch::random(&kernels, random)).collect();
    let memory = gpu.alloc(4096);
    let profiler = Profiler::builder().build().unwrap();
    profiler.start().unwrap();
    let mut by_cuda = Vec::new();
    for launch in &launches {
        by_cuda.push(launch.blocks_by_cuda(&gpu));
        let shape = ([264, 1, 1], [launch.threads, 1, 1], launch.dynamic);
        gpu.launch(launch.kernel.function, DEFAULT, shape, [memory]);
    }
    gpu.synchronize(DEFAULT);
    let profile = profiler.stop().unwrap();
    gpu.free(memory);
    let mut recorded: Vec<_> = profile.kernels().collect();
    recorded.sort_by_key(|kernel| kernel.correlation_id());
    assert_eq!(recorded.len(), launches.len());
    let mut rows =
        String::from("threads,registers,static,dynamic,carveout,executed,blocks,configured\n");
    let mut differences = Vec::new();
    for ((kernel, launch), by_cuda) in recorded.iter().zip(&launches).zip(by_cuda) {
        let shape = kernel.launch_shape().unwrap();
        let mut needs = launch.needs();
        // A record says what a thread gets, which is at least 16; the attribute what it uses.
        needs.registers_per_thread = needs.registers_per_thread.max(16);
        let configured = shape.configured.unwrap();
        writeln!(
            rows,
            "{},{},{},{},{:?},{},{by_cuda},{}",
            needs.threads,
            needs.registers_per_thread,
            needs.static_shared_bytes,
            needs.dynamic_shared_bytes,
            shape.needs.shared_carveout_percent,
            configured.shared_config_bytes,
            configured.blocks,
        )
        .unwrap();
        if shape.needs != needs || shape.occupancy.blocks != by_cuda {
            differences.push(format!("CUDA {by_cuda}, {needs:?}: {shape:?}"));
        }
    }
    write("launches.csv", &rows);
    let first = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of 200 differ:\n{first}", differences.len());
}
