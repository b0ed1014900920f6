//! The attributes of `nvtx-rs` and `profiler-core`, which re-export them as `nvtx::annotate` and
//! `profiler_core::gpu_test`. Not for direct use.
//!
//! Expansions use only the paths `::nvtx::__private` and
//! `::profiler_core::{gpu_test, testing}`.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod args;
mod expand;
mod function;
mod gpu_test;

/// Records each call of a function as an NVTX range.
///
/// ```ignore
/// #[nvtx::annotate]
/// fn forward(x: &Tensor) -> Tensor {
///     x.relu()
/// }
/// ```
///
/// expands, in essence, to
///
/// ```ignore
/// fn forward(x: &Tensor) -> Tensor {
///     let _range = nvtx::range!("forward");
///     x.relu()
/// }
/// ```
///
/// The range ends when the body is left by its end, a `return`, a `?` or a panic. The rest of the
/// function is unchanged. The expansion is hygienic and contains no unsafe code.
///
/// # Options
///
/// - `name = "..."`: the name of the range; without it, the name of the function.
/// - `qualified`: the module's path precedes the name, as in `model::layers::forward`.
/// - `domain = PATH`: a static `nvtx::Domain`.
/// - `color = ...`, `category = ...`, `payload = ...`: expressions for the methods of
///   `nvtx::Event`. They may use the arguments, and are computed only if a tool or observer is
///   active.
/// - `flops = 2 * m * n * k`, `bytes = ...`, `dtype = nvtx::Dtype::F32`, `pipe = ...`, or all in
///   one as `work = nvtx::Work::gemm(m, n, k, nvtx::Dtype::F32)`: the work of a call, for a
///   roofline. Computed as above, in the types of the arguments: a `u32` easily overflows.
/// - `fields(n, tokens = 2 * n => "tokens")`: named values: an argument, or a name with a value,
///   each with an optional unit.
/// - `lifetime = false`, `polls = false`: for futures, see below.
/// - `crate = path`: the path of `nvtx`; by default `::nvtx`. For a renamed dependency, or a
///   re-export: `#[gpu::nvtx::annotate(crate = gpu::nvtx)]`.
///
/// A value ends at the next comma outside brackets: put parentheses around one such as
/// `(f::<A, B>())`.
///
/// # Futures
///
/// For an `async fn`, and a function that returns `impl Future` or a boxed future, the future is a
/// process range with the details above. The range lasts from the first poll (from the call, if the
/// function is not `async`) until completion or drop. Each poll is a range of its thread, with the
/// name only. Either can be disabled; without the process range details are an error.
///
/// A boxed future has a type that is written `Pin<Box<dyn Future<...>>>`, as `async_trait` does, or
/// `BoxFuture<...>` or `LocalBoxFuture<...>`, the aliases of the futures crates. It is boxed once
/// more, which allocates once per call. With another alias or future type, the range covers the
/// creation of the future only, without its polls.
///
/// # Where it works
///
/// On functions and methods with a body, including generic, `async`, `unsafe` and `extern` ones.
/// Not on `const fn`, since starting a range is not constant.
#[proc_macro_attribute]
pub fn annotate(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::annotate(options.into(), item.into()).into()
}

/// Makes a function that takes a `GpuTest` a test that is skipped, with its reason on standard
/// error, if there is no GPU.
///
/// ```ignore
/// #[gpu_test(warm_up = 2, repeats = 5)]
/// fn forward_is_lean(test: GpuTest) {
///     let run = test.run(|| forward());
///     expect(&run).range("forward").kernels(at_most(12)).assert();
/// }
/// ```
///
/// becomes, in essence,
///
/// ```ignore
/// #[test]
/// fn forward_is_lean() {
///     let Some(test) = profiler_core::gpu_test() else { return };
///     let test = test.warm_up(2).repeats(5);
///     // the body
/// }
/// ```
///
/// The function may return a `Result<(), E>`, and have other attributes; `#[should_panic]` is
/// refused, since a skipped test does not panic.
///
/// # Options
///
/// - `warm_up = N`, `repeats = N`: the values for the methods of `GpuTest`.
/// - `profiler = ...`: an expression of type `Result<Profiler, Error>`, for a profiler with
///   settings.
/// - `crate = path`: the path of `profiler_core`; by default `::profiler_core`.
#[proc_macro_attribute]
pub fn gpu_test(options: TokenStream, item: TokenStream) -> TokenStream {
    gpu_test::gpu_test(options.into(), item.into()).into()
}
