//! Kernels with a known stall on a known line, for instruction samples.

use profiler_core::query::Stall;

use crate::cuda::{DEFAULT, Gpu, Handle};

/// The kernels of [`SOURCE`], each with the stalls of which one dominates it.
pub const PLANTED: [(&str, &[Stall]); 8] = [
    ("gather", &[Stall::LongScoreboard]),
    ("chain", &[Stall::Wait]),
    ("barrier", &[Stall::Barrier]),
    ("banks", &[Stall::ShortScoreboard, Stall::MioThrottle]),
    ("diverge", &[Stall::BranchResolving]),
    ("spill", &[Stall::LongScoreboard, Stall::LgThrottle]),
    ("atomics", &[Stall::LongScoreboard, Stall::LgThrottle]),
    ("code", &[Stall::NoInstructions]),
];

/// The name of the source.
pub const FILE: &str = "planted.cu";

/// The source: the lines that end in `// NAME` are those of the kernel NAME. A warp that waits at a
/// barrier has issued it: its samples are of the next instruction, here of the loop in the same line.
pub const SOURCE: &str = include_str!("../recordings/lines/planted.cu");

/// The lines of a kernel, from 1.
pub fn lines_of(kernel: &str) -> Vec<u32> {
    let mark = format!("// {kernel}");
    (1..).zip(SOURCE.lines()).filter(|(_, line)| line.ends_with(&mark)).map(|(at, _)| at).collect()
}

/// Numbers of the gathered table: 128 MiB, beyond every L2 cache.
const COUNT: u32 = 1 << 25;

/// The compiled kernels and their memory.
#[derive(Debug)]
pub struct Planted {
    /// The device.
    pub gpu: Gpu,
    kernels: [Handle<cudarc::driver::sys::CUfunction>; PLANTED.len()],
    next: u64,
    to: u64,
    blocks: u32,
}

impl Planted {
    /// Compiles the kernels with line tables.
    pub fn new(gpu: Gpu) -> Self {
        use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let blocks = gpu.device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unsigned_abs();
        let kernels = gpu.compile_with_lines(FILE, SOURCE, PLANTED.map(|(name, _)| name));
        let bytes = COUNT as usize * 4;
        let (next, to) = (gpu.alloc(bytes), gpu.alloc(bytes));
        // An odd factor and an odd step visit every number in an irregular order.
        let numbers = (0..COUNT).map(|at| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let numbers: Vec<u8> = numbers.flat_map(|at| (at % COUNT).to_ne_bytes()).collect();
        gpu.copy_in(next, &numbers);
        gpu.fill(to, 0, bytes);
        Self { gpu, kernels, next, to, blocks }
    }

    /// The bytes of local memory that a thread of each kernel has.
    pub fn local_bytes(&self) -> [i32; PLANTED.len()] {
        use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
        let of = |kernel| self.gpu.kernel_attribute(kernel, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        self.kernels.map(of)
    }

    /// Launches a kernel, by its position: some 10 ms.
    pub fn launch(&self, kernel: usize) {
        let (blocks, threads, rounds) = match PLANTED[kernel].0 {
            "gather" => (self.blocks * 8, 256, 1_000),
            "chain" => (self.blocks, 128, 1_000_000),
            "barrier" => (self.blocks, 1024, 40_000),
            "banks" => (self.blocks, 512, 50_000),
            "diverge" => (self.blocks, 128, 50_000),
            "spill" => (self.blocks * 4, 256, 1_000),
            "atomics" => (self.blocks, 256, 200),
            _ => (self.blocks, 128, 60),
        };
        let shape = ([blocks, 1, 1], [threads, 1, 1], 0);
        self.gpu.launch(self.kernels[kernel], DEFAULT, shape, [self.next, self.to, rounds]);
    }
}
