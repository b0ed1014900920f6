//! The GPU profiler for [candle](candle_core): the GPU time of each module.
//!
//! Candle's models hold a `tracing` span for each module and enter it at each pass. [`start`] makes ranges of them, one line
//! before the model is built:
//!
//! ```no_run
//! # fn load_model() {}
//! # fn generate() {}
//! # fn main() -> Result<(), gpu_profiler_candle::Error> {
//! let profiler = gpu_profiler_candle::start()?; // before the model is built: its spans are created then
//! load_model();
//! generate();
//! println!("{}", profiler.finish()?); // model / layer 0 / attn / linear 1: kernels, GPU time, copies
//! # Ok(())
//! # }
//! ```
//!
//! Candle launches on the calling thread, so that is all. The layers of a model are distinguished by number. Fields of spans are
//! fields of ranges. A report without modules gives the reason: the spans are older than the profiler, or a filter is in the way.
//!
//! A program that has a subscriber of its own adds [`layer`] to it. Modules without spans, as those of `candle_nn`, get a range
//! from [`InRange::in_range`]:
//!
//! ```
//! use candle_core::{DType, Device, Module, Tensor};
//! use candle_nn::{VarBuilder, VarMap, linear, seq};
//! use gpu_profiler_candle::InRange;
//!
//! # fn main() -> candle_core::Result<()> {
//! let variables = VarMap::new();
//! let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
//! let model = seq()
//!     .add(linear(8, 16, builder.pp("fc1"))?.in_range("fc1"))
//!     .add_fn(|x| x.relu())
//!     .add(linear(16, 4, builder.pp("fc2"))?.in_range("fc2"));
//! let output = model.forward(&Tensor::zeros((2, 8), DType::F32, &Device::Cpu)?)?;
//! assert_eq!(output.dims(), [2, 4]);
//! # Ok(())
//! # }
//! ```

mod error;
mod modules;
#[cfg(feature = "cuda")]
mod query;

pub use error::Error;
pub use modules::{InRange, Ranged};
#[cfg(feature = "cuda")]
pub use query::QueryDevice;

use profiler_core::ProfilerLayer;
use profiler_core::session::{LayerBuilder, LayerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

/// Starts a session in which every span of the process is a range. Call it before a model is built.
///
/// It sets the global subscriber of `tracing`, with [`layer`] alone.
///
/// # Errors
/// [`Error::Profiler`]: as [`LayerBuilder::build`]; [`is_unavailable`](profiler_core::Error::is_unavailable) without a GPU.
/// [`Error::Subscriber`]: the process has a subscriber; add [`layer`] to it.
pub fn start() -> Result<LayerGuard, Error> {
    let (layer, guard) = layer().build()?;
    tracing::subscriber::set_global_default(registry().with(layer)).map_err(Error::Subscriber)?;
    Ok(guard)
}

/// A layer that fits candle, to be [built](LayerBuilder::build) and added to a subscriber: spans of one name are numbered, no
/// event is emitted for each range, and events of other crates are no marks.
///
/// Filters have to pass candle's spans, which are of level `TRACE`.
///
/// ```no_run
/// use tracing_subscriber::filter::LevelFilter;
/// use tracing_subscriber::layer::{Layer, SubscriberExt};
///
/// # fn log_layer() -> tracing_subscriber::filter::LevelFilter { LevelFilter::INFO }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (layer, profiler) = gpu_profiler_candle::layer().build()?;
/// let subscriber = tracing_subscriber::registry().with(layer.with_filter(LevelFilter::TRACE));
/// tracing::subscriber::set_global_default(subscriber)?; // .with(your own layers, with their filters)
/// # drop(profiler);
/// # Ok(())
/// # }
/// ```
pub fn layer() -> LayerBuilder {
    let spans = nvtx::NvtxLayer::new().marks(false).instances(true).fields(nvtx::SpanFields::Plain);
    ProfilerLayer::builder().spans(spans).events(false)
}
