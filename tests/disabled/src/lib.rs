//! Functions whose assembly `tests/assembly.rs` compares: without and with the feature `annotated`.
//!
//! They differ in what a guard could cost: registers over a call, a clean-up when unwinding, an exit for each return.
#![no_std]

/// A leaf, to be kept in registers, which says how much work it is.
#[unsafe(no_mangle)]
#[inline(never)]
#[cfg_attr(
    feature = "annotated",
    nvtx::annotate(flops = 2 * a * b, work = nvtx::Work::gemm(a, b, a, nvtx::Dtype::F32))
)]
pub fn leaf(a: u64, b: u64) -> u64 {
    #[cfg(feature = "annotated")]
    let _range = nvtx::range("x");
    a.rotate_left(7) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A loop that the compiler makes vectors of.
#[unsafe(no_mangle)]
#[inline(never)]
#[cfg_attr(feature = "annotated", nvtx::annotate)]
pub fn sum_of_squares(values: &[u32]) -> u32 {
    #[cfg(feature = "annotated")]
    let _range = nvtx::range("x");
    values.iter().fold(0, |sum, value| sum.wrapping_add(value.wrapping_mul(*value)))
}

/// Calls something that may panic, which is where a guard that does anything needs a landing pad. The last call is one
/// that only a function with nothing left to do can make a jump.
#[unsafe(no_mangle)]
#[inline(never)]
#[cfg_attr(feature = "annotated", nvtx::annotate(name = "a name of its own"))]
pub fn calls(work: &mut dyn FnMut(u64) -> u64, value: u64) -> u64 {
    #[cfg(feature = "annotated")]
    let _range = nvtx::range("x");
    let value = work(value);
    #[cfg(feature = "annotated")]
    let _inner = nvtx::range("y");
    work(value)
}

/// Leaves in several ways.
///
/// # Errors
///
/// The first one of `next`, and the sum where it is too large.
#[unsafe(no_mangle)]
#[inline(never)]
#[cfg_attr(feature = "annotated", nvtx::annotate)]
pub fn leaves_early(next: &mut dyn FnMut() -> Result<Option<u64>, u64>) -> Result<u64, u64> {
    let mut sum = 0u64;
    loop {
        #[cfg(feature = "annotated")]
        let _step = nvtx::range("x");
        let Some(value) = next()? else {
            return Ok(sum);
        };
        sum = sum.checked_add(value).ok_or(sum)?;
    }
}

/// Panics on its own account.
#[unsafe(no_mangle)]
#[inline(never)]
#[cfg_attr(feature = "annotated", nvtx::annotate)]
pub fn may_panic(values: &[u64], index: usize, by: u64) -> u64 {
    #[cfg(feature = "annotated")]
    let _range = nvtx::range("x");
    values[index] / by
}
