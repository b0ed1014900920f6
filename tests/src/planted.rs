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

/// The source: the lines that end in `// NAME` are those of the kernel NAME.
pub const SOURCE: &str = r#"
extern "C" __global__ void gather(const unsigned *next, float *to, int rounds) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, own = at;
    for (int round = 0; round < rounds; ++round)
        at = next[at]; // gather
    to[own] = at;
}
extern "C" __global__ void chain(const unsigned *next, float *to, int rounds) {
    float x = threadIdx.x, a = next[0], b = next[1];
    for (int round = 0; round < rounds; ++round)
        x = x * a + b; // chain
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void barrier(const unsigned *next, float *to, int rounds) {
    float x = threadIdx.x, a = next[0], b = next[1];
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x < 32)
            for (int inner = 0; inner < 64; ++inner) x = x * a + b;
        __syncthreads(); // barrier
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void banks(const unsigned *next, float *to, int rounds) {
    __shared__ unsigned table[1024];
    for (unsigned at = threadIdx.x; at < 1024; at += blockDim.x) table[at] = at + next[0] * 32 & 1023;
    __syncthreads();
    unsigned at = threadIdx.x % 32 * 32;
    for (int round = 0; round < rounds; ++round)
        at = table[at]; // banks
    to[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
extern "C" __global__ void diverge(const unsigned *next, float *to, int rounds) {
    unsigned x = threadIdx.x * 2654435761u + next[0];
    for (int round = 0; round < rounds; ++round) {
        switch (x >> 27) { // diverge
            case 0: x = x * 5 + next[2]; break; // diverge
            case 1: x = x * 7 ^ next[3]; break; // diverge
            case 2: x = x * 9 + next[4]; break; // diverge
            case 3: x = x * 11 ^ next[5]; break; // diverge
            default: x = x * 13 + 17; // diverge
        }
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
extern "C" __global__ void spill(const unsigned *next, float *to, int rounds) {
    float many[128];
    for (int at = 0; at < 128; ++at) many[at] = next[at];
    unsigned at = threadIdx.x;
    for (int round = 0; round < rounds; ++round)
        at = (unsigned)many[at & 127] + round; // spill
    to[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
extern "C" __global__ void atomics(const unsigned *next, float *to, int rounds) {
    unsigned sum = next[0];
    for (int round = 0; round < rounds; ++round)
        sum += atomicAdd((unsigned *)to, sum & 1); // atomics
    to[1 + blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#define ONE(x) x = x * 1.0009765625f + float(__COUNTER__);
#define TEN(x) ONE(x) ONE(x##1) ONE(x##2) ONE(x##3) ONE(x) ONE(x##1) ONE(x##2) ONE(x##3)
#define HUNDRED(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x)
#define THOUSAND(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x) HUNDRED(x)
extern "C" __global__ void code(const unsigned *next, float *to, int rounds) {
    float x = next[0], x1 = next[1], x2 = next[2], x3 = next[3];
    for (int round = 0; round < rounds; ++round) {
        THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) // code
        THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) THOUSAND(x) // code
    }
    to[blockIdx.x * blockDim.x + threadIdx.x] = x + x1 + x2 + x3;
}
"#;

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

    /// Launches a kernel, by its position: some 10 ms.
    pub fn launch(&self, kernel: usize) {
        let (blocks, threads, rounds) = match PLANTED[kernel].0 {
            "gather" => (self.blocks * 8, 256, 1_000),
            "chain" => (self.blocks, 128, 1_000_000),
            "barrier" => (self.blocks, 1024, 40_000),
            "banks" => (self.blocks, 512, 50_000),
            "diverge" => (self.blocks, 128, 50_000),
            "spill" => (self.blocks * 4, 256, 20_000),
            "atomics" => (self.blocks, 256, 200),
            _ => (self.blocks, 128, 60),
        };
        let shape = ([blocks, 1, 1], [threads, 1, 1], 0);
        self.gpu.launch(self.kernels[kernel], DEFAULT, shape, [self.next, self.to, rounds]);
    }
}
