//! The attribute of `nvtx-rs`, which re-exports it as `nvtx::annotate`. Not for direct use.
//!
//! Text in, text out: this crate knows nothing of NVTX but the path `::nvtx::__private`.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod args;
mod expand;
mod function;

/// Makes each call of a function an NVTX range.
///
/// ```ignore
/// #[nvtx::annotate]
/// fn forward(x: &Tensor) -> Tensor {
///     x.relu()
/// }
/// ```
///
/// becomes
///
/// ```ignore
/// fn forward(x: &Tensor) -> Tensor {
///     let __nvtx_range = ::nvtx::__private::range("forward");
///     x.relu()
/// }
/// ```
///
/// The range starts when the body does and ends when the body is left, in whatever way: its end, a
/// `return`, a `?` or a panic. Everything else of the function stays as it was written. The variable
/// can't be seen by the body, and nothing unsafe is emitted.
///
/// # Options
///
/// - `name = "..."`: the name of the range; without it, the name of the function.
/// - `crate = path`: where `nvtx` is to be found; without it, `::nvtx`. For a renamed dependency, or
///   when `nvtx` comes through another crate: `#[gpu::nvtx::annotate(crate = gpu::nvtx)]`.
///
/// # Where it works
///
/// On functions and methods with a body, generic or not, `unsafe` and `extern` ones too. Not on
/// `async fn`, since the range belongs to a thread and the function may move to another at each
/// `.await`, and not on `const fn`, since starting a range is not constant: both are compile errors.
#[proc_macro_attribute]
pub fn annotate(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::annotate(options.into(), item.into()).into()
}
