//! Kernels whose operations and bytes are known, so that counters can be checked.

use cudarc::driver::sys::{CUdeviceptr, CUfunction};

use crate::blas::{self, Blas, Numbers};
use crate::cuda::{self, Gpu, Handle, Stream};

/// Threads of a block, in all of these kernels.
pub const BLOCK: u32 = 256;

/// The PTX of a kernel with the parameters `x`, `y` and `n`.
///
/// The body begins with the thread's number in `%i3`, its offset in bytes in `%d0`, and the two
/// addresses in `%d1` and `%d2`; the kernel ends by storing `%f0` for each thread at `%d2 + %d0`.
fn kernel(name: &str, (number, bytes): (&str, u32), body: &str) -> String {
    format!(
        r".visible .entry {name}(.param .u64 x, .param .u64 y, .param .u64 n) {{
    .reg .u32 %i<6>;
    .reg .u64 %d<4>;
    .reg .{number} %f<4>;
    .reg .pred %c;
    mov.u32 %i0, %ctaid.x;
    mov.u32 %i1, %ntid.x;
    mov.u32 %i2, %tid.x;
    mad.lo.u32 %i3, %i0, %i1, %i2;
    mul.wide.u32 %d0, %i3, {bytes};
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    add.u64 %d2, %d2, %d0;
    {body}
    st.global.{number} [%d2], %f0;
    ret;
}}
"
    )
}

/// Loads `x[thread]`.
fn load_x(number: &str) -> String {
    format!("add.u64 %d1, %d1, %d0;\n    ld.global.{number} %f0, [%d1];")
}

/// `y += 3 x`.
fn axpy(name: &str, (number, bytes): (&str, u32), three: &str, fma: &str) -> String {
    let load_x = load_x(number);
    let body = format!(
        "{load_x}
    ld.global.{number} %f1, [%d2];
    mov.{number} %f2, {three};
    {fma} %f0, %f2, %f0, %f1;"
    );
    kernel(name, (number, bytes), &body)
}

/// `y = x[thread * odd number & n]`.
const GATHER: &str = "ld.param.u32 %i4, [n];
    mul.lo.u32 %i3, %i3, 0x9e3779b1;
    and.b32 %i3, %i3, %i4;
    mul.wide.u32 %d3, %i3, 4;
    add.u64 %d1, %d1, %d3;
    ld.global.f32 %f0, [%d1];";

/// Every thread adds up `n` elements a grid apart, and stores its warp's sum: none does less.
const REDUCE: &str = "mov.u32 %i4, %nctaid.x;
    mul.lo.u32 %i4, %i4, %i1;
    mul.wide.u32 %d3, %i4, 4;
    add.u64 %d1, %d1, %d0;
    ld.param.u32 %i5, [n];
    mov.f32 %f0, 0f00000000;
more:
    ld.global.f32 %f1, [%d1];
    add.rn.f32 %f0, %f0, %f1;
    add.u64 %d1, %d1, %d3;
    sub.u32 %i5, %i5, 1;
    setp.ne.u32 %c, %i5, 0;
    @%c bra more;";

fn ptx() -> String {
    let single = ("f32", 4);
    let shuffles = [16, 8, 4, 2, 1].map(|lanes| {
        format!("\n    shfl.sync.bfly.b32 %f1, %f0, {lanes}, 31, 0xffffffff;\n    add.rn.f32 %f0, %f0, %f1;")
    });
    [
        ".version 7.0\n.target sm_70\n.address_size 64\n".to_owned(),
        axpy("axpy", single, "0f40400000", "fma.rn.f32"),
        axpy("daxpy", ("f64", 8), "0d4008000000000000", "fma.rn.f64"),
        axpy("haxpy2", ("b32", 4), "0x42004200", "fma.rn.f16x2"),
        kernel("copy", single, &load_x("f32")),
        kernel("gather", single, GATHER),
        kernel("reduce", single, &(REDUCE.to_owned() + &shuffles.concat())),
    ]
    .concat()
}

/// The kernels, in the context that was current when they were loaded.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    axpy: Handle<CUfunction>,
    daxpy: Handle<CUfunction>,
    haxpy2: Handle<CUfunction>,
    copy: Handle<CUfunction>,
    gather: Handle<CUfunction>,
    reduce: Handle<CUfunction>,
}

impl Counted {
    /// Loads the kernels into the current context.
    ///
    /// # Panics
    /// If a CUDA call fails.
    #[must_use]
    pub fn load() -> Self {
        let module = cuda::load_module(&ptx());
        let [axpy, daxpy, haxpy2, copy, gather, reduce] =
            ["axpy", "daxpy", "haxpy2", "copy", "gather", "reduce"]
                .map(|name| cuda::function(module, name));
        Self { axpy, daxpy, haxpy2, copy, gather, reduce }
    }

    /// `y += 3 x` for this many blocks of floats: one fused multiply-add each.
    pub fn axpy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.axpy, stream, blocks, [x, y, 0]);
    }

    /// [`axpy`](Self::axpy) in double precision.
    pub fn daxpy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.daxpy, stream, blocks, [x, y, 0]);
    }

    /// [`axpy`](Self::axpy) for pairs of half-precision numbers: one packed instruction each.
    pub fn haxpy2(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.haxpy2, stream, blocks, [x, y, 0]);
    }

    /// Copies this many blocks of floats.
    pub fn copy(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        launch(self.copy, stream, blocks, [x, y, 0]);
    }

    /// Gathers this many blocks of floats, a power of two; neighbouring threads read far apart.
    pub fn gather(&self, stream: Stream, blocks: u32, x: CUdeviceptr, y: CUdeviceptr) {
        let last = u64::from(blocks) * u64::from(BLOCK) - 1;
        launch(self.gather, stream, blocks, [x, y, last]);
    }

    /// Adds up `blocks * BLOCK * each` floats: `each` times a thread, and 5 times within its warp.
    pub fn reduce(&self, stream: Stream, blocks: u32, each: u32, x: CUdeviceptr, sum: CUdeviceptr) {
        launch(self.reduce, stream, blocks, [x, sum, u64::from(each)]);
    }
}

fn launch(kernel: Handle<CUfunction>, stream: Stream, blocks: u32, arguments: [u64; 3]) {
    cuda::check(cuda::launch(kernel, stream, ([blocks, 1, 1], [BLOCK, 1, 1], 0), arguments));
}

/// The product of two square bf16 matrices by cuBLAS, which costs `2 size^3` operations.
#[derive(Debug)]
pub struct Gemm {
    blas: Blas,
    size: u32,
}

impl Gemm {
    /// Prepares matrices of this size and multiplies them once; `None` if the library is not found.
    ///
    /// # Panics
    /// If cuBLAS fails.
    #[must_use]
    pub fn bf16(gpu: &Gpu, size: u32) -> Option<Self> {
        if blas::unavailable().is_some() {
            return None;
        }
        let gemm = Self { blas: Blas::new(gpu, (size * size) as usize), size };
        gemm.run();
        gpu.synchronize_context();
        Some(gemm)
    }

    /// Multiplies the matrices on the default stream.
    ///
    /// # Panics
    /// If cuBLAS fails.
    pub fn run(&self) {
        assert!(self.blas.multiply(Numbers::Bf16, [self.size; 3]), "cuBLAS refused bf16");
    }
}
