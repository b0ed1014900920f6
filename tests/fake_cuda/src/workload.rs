//! A program with CUDA through cudarc, for tests that start themselves again.

use std::error::Error;

use cudarc::driver::{CudaContext, LaunchConfig};
use cudarc::nvrtc::Ptx;

/// Copies some numbers to the device and back, and launches a kernel of this name so often.
///
/// # Errors
/// A call that failed, or copies that came back as others.
pub fn run(kernel: &str, launches: usize) -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let function = context.load_module(Ptx::from_src(".version 7.0"))?.load_function(kernel)?;
    let there = stream.clone_htod(&[1.5_f32; 100])?;
    for _ in 0..launches {
        crate::sys::launch_with_cudarc(&stream, &function, LaunchConfig::for_num_elems(100))?;
    }
    if stream.clone_dtoh(&there)? != [1.5; 100] {
        return Err("copies changed".into());
    }
    stream.synchronize()?;
    Ok(())
}
