//! Guards, schedules and results of sessions; [`Profiler`](crate::Profiler) starts one and has an
//! example.

pub mod always_on;
mod device_data;
pub(crate) mod environment;
pub(crate) mod flight_recorder;
#[cfg(feature = "opentelemetry")]
pub(crate) mod gpu_spans;
#[cfg(feature = "metrics")]
pub mod metrics;
pub(crate) mod profiler;
pub(crate) mod recording_file;
pub(crate) mod recording_tail;
pub(crate) mod schedule;
#[cfg(feature = "tracing")]
pub(crate) mod tracing_layer;

#[cfg(feature = "nvml")]
pub use crate::collect::device_state::{DeviceMonitor, DeviceState};
pub use crate::record::context::Attached;
pub use crate::record::lane::{HandOver, HandedRange, LaunchQueue};
pub use device_data::{DeviceData, LOCAL_RANK_VARIABLES, Units};
pub use environment::{FromEnv, Guard};
pub use flight_recorder::{FlightRecorder, FlightRecording, Trigger};
#[cfg(feature = "opentelemetry")]
pub use gpu_spans::{GpuSpanCounts, GpuSpans};
pub use profiler::Summarizing;
pub use recording_file::{FileTotals, RecordingFile};
pub use recording_tail::{RecentDevice, RecordingTail};
pub use schedule::{Scheduled, StepAction};
#[cfg(feature = "tracing")]
pub use tracing_layer::{LayerBuilder, LayerGuard, Results};
