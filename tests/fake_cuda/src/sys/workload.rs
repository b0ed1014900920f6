//! The launches of cudarc, which takes it on the word of its caller that arguments match.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig};

/// Launches a kernel of the fake, which takes no arguments.
pub(crate) fn launch_with_cudarc(
    stream: &Arc<CudaStream>,
    function: &CudaFunction,
    config: LaunchConfig,
) -> Result<(), DriverError> {
    // SAFETY: the kernel takes no arguments and does nothing.
    unsafe { stream.launch_builder(function).launch(config) }.map(drop)
}
