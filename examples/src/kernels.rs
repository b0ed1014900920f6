//! Safe wrappers of the network's GPU work: six small kernels and the matrix product.
//!
//! Every function checks the sizes of its arguments, so that no caller can make a kernel access
//! memory outside its buffers. The `unsafe` launches depend on those checks.

use std::sync::Arc;

use cudarc::cublas::sys::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};

use crate::gpu::{BLOCK, Result, check, compile, thread_each};

type Buffer = CudaSlice<f32>;

/// The number of columns that a block of `col_sum` processes.
const COLUMNS: u32 = 32;

/// The compiled kernels, a cuBLAS handle, and the one stream on which everything runs.
#[derive(Debug)]
pub(crate) struct Kernels {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    bias_relu: CudaFunction,
    bias_add: CudaFunction,
    mse_grad: CudaFunction,
    relu_backward: CudaFunction,
    col_sum: CudaFunction,
    sgd_update: CudaFunction,
}

impl Kernels {
    /// Compiles the kernels for the stream's device.
    pub(crate) fn new(stream: &Arc<CudaStream>) -> Result<Kernels> {
        let source = include_str!("kernels.cu");
        let module = compile(stream.context(), source, &[("BLOCK", BLOCK)])?;
        Ok(Kernels {
            stream: stream.clone(),
            blas: CudaBlas::new(stream.clone())?,
            bias_relu: module.load_function("bias_relu")?,
            bias_add: module.load_function("bias_add")?,
            mse_grad: module.load_function("mse_grad")?,
            relu_backward: module.load_function("relu_backward")?,
            col_sum: module.load_function("col_sum")?,
            sgd_update: module.load_function("sgd_update")?,
        })
    }

    /// `c = a * b`.
    pub(crate) fn matmul(
        &self,
        product: Product,
        a: &Buffer,
        b: &Buffer,
        c: &mut Buffer,
    ) -> Result<()> {
        let Product { m, n, k, .. } = product;
        let sizes = (a.len(), b.len(), c.len());
        check(sizes == (m * k, k * n, m * n), "matmul")?;
        let config = product.config()?;
        // cuBLAS's first matrix is our second one, see `Product::config`.
        // SAFETY: the leading dimensions in `config` are those of full row-major matrices, and the
        // three buffers hold exactly m*k, k*n and m*n values.
        unsafe { self.blas.gemm(config, b, a, c) }?;
        Ok(())
    }

    /// `m = max(m + bias, 0)`, `bias` added to every row.
    pub(crate) fn bias_relu(&self, m: &mut Buffer, bias: &Buffer) -> Result<()> {
        self.add_bias(&self.bias_relu, m, bias)
    }

    /// `m = m + bias`, `bias` added to every row.
    pub(crate) fn bias_add(&self, m: &mut Buffer, bias: &Buffer) -> Result<()> {
        self.add_bias(&self.bias_add, m, bias)
    }

    fn add_bias(&self, kernel: &CudaFunction, m: &mut Buffer, bias: &Buffer) -> Result<()> {
        let (len, cols) = (length(m)?, length(bias)?);
        check(cols > 0, "bias")?;
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(m).arg(bias).arg(&cols).arg(&len);
        // SAFETY: the arguments match the parameters of both kernels; they read and write `m` below
        // `len` and read `bias` below `cols`, their lengths.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    }

    /// Adds the mean squared difference to `loss[0]`, and sets `gradient` to its derivative.
    pub(crate) fn mse_grad(
        &self,
        gradient: &mut Buffer,
        loss: &mut Buffer,
        out: &Buffer,
        target: &Buffer,
    ) -> Result<()> {
        let len = length(out)?;
        let same = gradient.len() == out.len() && target.len() == out.len();
        check(same && !loss.is_empty(), "mse_grad")?;
        let mut launch = self.stream.launch_builder(&self.mse_grad);
        launch.arg(gradient).arg(loss).arg(out).arg(target).arg(&len);
        // SAFETY: the arguments match the kernel's parameters; it stays below `len`, the length of
        // three buffers, and writes the first value of `loss`, which has one.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    }

    /// Zeroes `gradient` where `activation`, the output of a ReLU, is zero.
    pub(crate) fn relu_backward(&self, gradient: &mut Buffer, activation: &Buffer) -> Result<()> {
        let len = length(gradient)?;
        check(activation.len() == gradient.len(), "relu_backward")?;
        let mut launch = self.stream.launch_builder(&self.relu_backward);
        launch.arg(gradient).arg(activation).arg(&len);
        // SAFETY: the arguments match the kernel's parameters; it stays below `len`, the length of
        // both buffers.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    }

    /// `sums` = the sums of the columns of `m`.
    pub(crate) fn col_sum(&self, sums: &mut Buffer, m: &Buffer) -> Result<()> {
        let (len, cols) = (length(m)?, length(sums)?);
        check(cols > 0 && len.is_multiple_of(cols), "col_sum")?;
        let rows = len / cols;
        let config = LaunchConfig {
            grid_dim: (cols.div_ceil(COLUMNS), 1, 1),
            block_dim: (COLUMNS, BLOCK / COLUMNS, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(&self.col_sum);
        launch.arg(sums).arg(m).arg(&rows).arg(&cols);
        // SAFETY: the arguments match the kernel's parameters; it reads `m` below rows * cols, its
        // length, and writes `sums` below `cols`, its length. The block has the shape it expects.
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    /// One step of gradient descent with momentum.
    pub(crate) fn sgd_update(
        &self,
        value: &mut Buffer,
        velocity: &mut Buffer,
        gradient: &Buffer,
        rate: f32,
        momentum: f32,
    ) -> Result<()> {
        let len = length(value)?;
        let same = velocity.len() == value.len() && gradient.len() == value.len();
        check(same, "sgd_update")?;
        let mut launch = self.stream.launch_builder(&self.sgd_update);
        launch.arg(value).arg(velocity).arg(gradient).arg(&rate).arg(&momentum).arg(&len);
        // SAFETY: the arguments match the kernel's parameters; it stays below `len`, the length of
        // all three buffers.
        unsafe { launch.launch(thread_each(len)) }?;
        Ok(())
    }
}

/// A matrix product `C[m, n] = A[m, k] * B[k, n]` of row-major matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// `A` lies in memory as `[k, m]`.
    a_transposed: bool,
    /// `B` lies in memory as `[n, k]`.
    b_transposed: bool,
}

impl Product {
    /// `A` lies in memory as `[m, k]`, `B` as `[k, n]`.
    pub(crate) fn plain(m: usize, n: usize, k: usize) -> Product {
        Product { m, n, k, a_transposed: false, b_transposed: false }
    }

    /// `A` lies in memory as `[k, m]`, `B` as `[k, n]`.
    pub(crate) fn a_transposed(m: usize, n: usize, k: usize) -> Product {
        Product { a_transposed: true, ..Product::plain(m, n, k) }
    }

    /// `A` lies in memory as `[m, k]`, `B` as `[n, k]`.
    pub(crate) fn b_transposed(m: usize, n: usize, k: usize) -> Product {
        Product { b_transposed: true, ..Product::plain(m, n, k) }
    }

    /// The arguments for cuBLAS, which expects column-major matrices and receives `(B, A, C)`.
    ///
    /// A row-major matrix read as column-major is its own transpose, with the row length as leading
    /// dimension. So cuBLAS sees `C` as `C^T[n, m]`, and computes `C^T = B^T * A^T`:
    ///
    /// | factor       | in memory, row-major | read as column-major | leading dim. | operation |
    /// | ------------ | -------------------- | -------------------- | ------------ | --------- |
    /// | `B^T [n, k]` | `B [k, n]`           | `B^T [n, k]`         | n            | N         |
    /// |              | `B^T [n, k]`         | `B [k, n]`           | k            | T         |
    /// | `A^T [k, m]` | `A [m, k]`           | `A^T [k, m]`         | k            | N         |
    /// |              | `A^T [k, m]`         | `A [m, k]`           | m            | T         |
    fn config(self) -> Result<GemmConfig<f32>> {
        let (m, n, k) = (i32::try_from(self.m)?, i32::try_from(self.n)?, i32::try_from(self.k)?);
        let (transa, lda) = if self.b_transposed { (CUBLAS_OP_T, k) } else { (CUBLAS_OP_N, n) };
        let (transb, ldb) = if self.a_transposed { (CUBLAS_OP_T, m) } else { (CUBLAS_OP_N, k) };
        Ok(GemmConfig { transa, transb, m: n, n: m, k, alpha: 1.0, lda, ldb, beta: 0.0, ldc: n })
    }
}

fn length(buffer: &Buffer) -> Result<u32> {
    Ok(u32::try_from(buffer.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sgemm` of the BLAS standard, for column-major matrices.
    fn sgemm(cfg: &GemmConfig<f32>, a: &[f32], b: &[f32], c: &mut [f32]) {
        let (m, n, k) = (cfg.m as usize, cfg.n as usize, cfg.k as usize);
        let (lda, ldb, ldc) = (cfg.lda as usize, cfg.ldb as usize, cfg.ldc as usize);
        for row in 0..m {
            for col in 0..n {
                let term = |i: usize| {
                    let a =
                        if cfg.transa == CUBLAS_OP_N { a[row + i * lda] } else { a[i + row * lda] };
                    let b =
                        if cfg.transb == CUBLAS_OP_N { b[i + col * ldb] } else { b[col + i * ldb] };
                    a * b
                };
                c[row + col * ldc] = cfg.alpha * (0..k).map(term).sum::<f32>();
            }
        }
    }

    #[test]
    fn products_match_row_major_matrices() {
        let (m, n, k) = (3, 4, 5);
        let a = |row: usize, col: usize| (10 * row + col + 1) as f32;
        let b = |row: usize, col: usize| (row as f32) - 2.0 * (col as f32);
        let term = |i: usize, j: usize| a(i / n, j) * b(j, i % n);
        let c: Vec<f32> = (0..m * n).map(|i| (0..k).map(|j| term(i, j)).sum()).collect();
        let row_major = |rows: usize, cols: usize, at: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..rows * cols).map(|i| at(i / cols, i % cols)).collect()
        };
        let (a_plain, a_flipped) = (row_major(m, k, &a), row_major(k, m, &|row, col| a(col, row)));
        let (b_plain, b_flipped) = (row_major(k, n, &b), row_major(n, k, &|row, col| b(col, row)));

        for (product, a, b) in [
            (Product::plain(m, n, k), &a_plain, &b_plain),
            (Product::a_transposed(m, n, k), &a_flipped, &b_plain),
            (Product::b_transposed(m, n, k), &a_plain, &b_flipped),
        ] {
            let mut result = vec![f32::NAN; m * n];
            sgemm(&product.config().unwrap(), b, a, &mut result);
            assert_eq!(result, c, "{product:?}");
        }
    }
}
