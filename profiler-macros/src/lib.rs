//! The attributes of `nvtx-rs` and `profiler-core`, which re-export them as `nvtx::annotate` and
//! `profiler_core::gpu_test`. Not for direct use.
//!
//! Text in, text out: this crate knows nothing of the two but the paths `::nvtx::__private` and
//! `::profiler_core::{gpu_test, testing, __private}`.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

mod args;
mod expand;
mod function;
mod gpu_test;

/// Makes each call of a function an NVTX range.
///
/// ```ignore
/// #[nvtx::annotate]
/// fn forward(x: &Tensor) -> Tensor {
///     x.relu()
/// }
/// ```
///
/// becomes, in essence,
///
/// ```ignore
/// fn forward(x: &Tensor) -> Tensor {
///     let _range = nvtx::range!("forward");
///     x.relu()
/// }
/// ```
///
/// The range starts when the body does and ends when the body is left, in whatever way: its end, a
/// `return`, a `?` or a panic. Everything else of the function stays as it was written. The names that
/// the expansion uses can't be seen by the body, and nothing unsafe is emitted.
///
/// # Options
///
/// - `name = "..."`: the name of the range; without it, the name of the function.
/// - `qualified`: the module's path before the name, as in `model::layers::forward`.
/// - `domain = PATH`: a static `nvtx::Domain`.
/// - `color = ...`, `category = ...`, `payload = ...`: expressions, as the methods of `nvtx::Event` take
///   them. They may use the arguments, and are computed only if a tool or observer is active.
/// - `flops = 2 * m * n * k`, `bytes = ...`, `dtype = nvtx::Dtype::F32`, `pipe = ...`, or all in one as
///   `work = nvtx::Work::gemm(m, n, k, nvtx::Dtype::F32)`: how much work a call is, for a roofline. They too may use the
///   arguments, and are computed only if a tool or observer is active, in the type that the arguments have: a `u32` overflows soon.
/// - `fields(n, tokens = 2 * n => "tokens")`: named values: an argument, or a name with a value,
///   each with a unit if it has one.
/// - `lifetime = false`, `polls = false`: for futures, see below.
/// - `crate = path`: where `nvtx` is to be found; without it, `::nvtx`. For a renamed dependency, or
///   when `nvtx` comes through another crate: `#[gpu::nvtx::annotate(crate = gpu::nvtx)]`.
///
/// A value ends at the next comma outside brackets: put parentheses around one such as `(f::<A, B>())`.
///
/// # Futures
///
/// An `async fn`, and a function that returns `impl Future` or a boxed future, makes a future. From its first poll (from
/// the call, if the function is not `async` itself) until it is done or dropped it is a range of the process, with the
/// details above; each poll is a range of the thread that polls, with the name alone. Either can be turned off; without
/// the first there is no place for details.
///
/// A boxed future is one whose type is written `Pin<Box<dyn Future<...>>>`, as `async_trait` does, or `BoxFuture<...>` or
/// `LocalBoxFuture<...>`, the aliases of the futures crates. It is boxed once more, which is one allocation a call. Of a
/// future by another alias, or of a type of its own, the function is a range as any other: it takes in the making of the
/// future, and none of its polls.
///
/// # Where it works
///
/// On functions and methods with a body, generic or not, `async`, `unsafe` and `extern` ones too. Not on
/// `const fn`, since starting a range is not constant.
#[proc_macro_attribute]
pub fn annotate(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::annotate(options.into(), item.into()).into()
}

/// Makes a function that takes a `GpuTest` a test that is skipped, with its reason on standard error, where there is no
/// GPU.
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
/// The function may return a `Result<(), E>`, and have other attributes; `#[should_panic]` is refused, since a skipped
/// test does not panic.
///
/// # Options
///
/// - `warm_up = N`, `repeats = N`: as the methods of `GpuTest`.
/// - `profiler = ...`: an expression that gives a `Result<Profiler, Error>`, for a profiler with settings.
/// - `crate = path`: where `profiler_core` is to be found; without it, `::profiler_core`.
#[proc_macro_attribute]
pub fn gpu_test(options: TokenStream, item: TokenStream) -> TokenStream {
    gpu_test::gpu_test(options.into(), item.into()).into()
}
