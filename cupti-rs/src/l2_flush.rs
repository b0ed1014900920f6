//! Device memory that evicts the program's data from the L2 cache.

use std::marker::PhantomData;

use crate::accessors::getters;
use crate::error::Error;
use crate::library::Library;
use crate::sys::driver::DeviceMemory;

/// The size of the buffer, as a multiple of the L2 cache.
const TIMES_L2: usize = 2;

/// A buffer of twice the L2 cache's size on the current context, to be filled before a measurement.
///
/// ```no_run
/// use cupti::{L2Flush, Library};
///
/// # fn main() -> Result<(), cupti::Error> {
/// let library = Library::open()?;
/// let l2 = L2Flush::new(&library)?; // on the context that is current on this thread
/// l2.flush()?; // what is launched now finds none of its data in L2
/// # Ok(())
/// # }
/// ```
///
/// The L2 cache then holds lines of the buffer. The next kernels write them back, as after any
/// other kernel that wrote as much. Lines of an access policy window (`persisting`) may stay.
///
/// Dropping it frees the memory if its context is current on this thread. Otherwise the memory
/// lasts as long as the context.
#[derive(Debug)]
pub struct L2Flush {
    memory: DeviceMemory,
    bytes: usize,
    device: u32,
    /// The context is current on a thread, so the type is not `Send`.
    _of_thread: PhantomData<*const ()>,
}

impl L2Flush {
    /// Allocates the buffer, which may wait for the GPU.
    ///
    /// # Errors
    /// No context is current on this thread, the driver does not report the size of the L2 cache,
    /// or the device has too little memory.
    pub fn new(library: &Library) -> Result<Self, Error> {
        let contexts = library.api.contexts()?;
        let Some((context, device)) = contexts.current()? else {
            return Err(Error::misuse(
                "the L2 cache cannot be flushed: no CUDA context is current on this thread; make one (cudaSetDevice, \
                 cuCtxSetCurrent, CudaContext::bind_to_thread) first",
            ));
        };
        let of_device = library.driver().devices.iter().find(|of| of.id == device);
        let Some(l2_bytes) = of_device.and_then(|device| device.l2_bytes) else {
            return Err(Error::misuse(format!(
                "the L2 cache cannot be flushed: the driver does not report its size on device {device}"
            )));
        };
        let bytes = usize::try_from(l2_bytes).unwrap_or(usize::MAX).saturating_mul(TIMES_L2);
        let memory = DeviceMemory::new(contexts, context, bytes)?;
        Ok(Self { memory, bytes, device, _of_thread: PhantomData })
    }

    getters! {
        /// The bytes of the buffer.
        bytes: usize = bytes;
        /// The CUDA ordinal of its device.
        device: u32 = device;
    }

    /// Fills the buffer (`cuMemsetD8` on the default stream) and waits for all work of the context
    /// (`cuCtxSynchronize`): some 50 us on an idle GPU. CUPTI records both.
    ///
    /// # Errors
    /// Another context is current on this thread, or the driver's refusal, which may be an error of
    /// earlier work.
    pub fn flush(&self) -> Result<(), Error> {
        if self.memory.fill()? {
            return Ok(());
        }
        Err(Error::misuse(format!(
            "the L2 cache of device {} was not flushed: the CUDA context of the buffer is no longer current on this \
             thread; keep one context current",
            self.device
        )))
    }
}
