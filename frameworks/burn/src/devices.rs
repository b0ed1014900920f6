//! The devices of sessions: the queues through which ranges travel to the threads that launch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::cuda::CudaDevice;
#[cfg(feature = "fusion")]
use burn_cubecl::CubeBackend;
#[cfg(feature = "fusion")]
use burn_fusion::{FusionBackend, get_client};
#[cfg(feature = "fusion")]
use cubecl::cuda::CudaRuntime;
use cubecl_common::device::Device as _;
use parking_lot::RwLock;
use profiler_core::session::HandOver;

use crate::lane::DeviceQueue;

/// The elements are not part of what fuses.
#[cfg(feature = "fusion")]
type Cube = CubeBackend<CudaRuntime, f32, i32, u8>;
/// The fusion thread of a device.
#[cfg(feature = "fusion")]
pub(crate) type Client = burn_fusion::Client<<Cube as FusionBackend>::FusionRuntime>;

/// A device whose thread launches for the program.
pub(crate) struct Device {
    pub(crate) index: u16,
    pub(crate) queue: HandOver<DeviceQueue>,
    /// Whether each boundary of a range drains the fusion thread.
    pub(crate) boundaries: AtomicBool,
    #[cfg(feature = "fusion")]
    pub(crate) client: Client,
}

/// All devices of sessions so far; without a session their ranges are empty.
static DEVICES: RwLock<Option<Arc<[Arc<Device>]>>> = RwLock::new(None);

/// The devices as they are now: nothing is locked while they are used.
pub(crate) fn devices() -> Option<Arc<[Arc<Device>]>> {
    DEVICES.read().clone()
}

/// The device of a session, with the queue that it has already or a new one.
pub(crate) fn device(device: &CudaDevice, boundaries: bool) -> Arc<Device> {
    let index = device.to_id().index_id;
    let known = devices();
    if let Some(known) =
        known.iter().flat_map(|known| known.iter()).find(|known| known.index == index)
    {
        known.boundaries.store(boundaries, Ordering::Relaxed);
        return known.clone();
    }
    let new = Arc::new(Device {
        index,
        queue: HandOver::new(DeviceQueue::new(device)),
        boundaries: AtomicBool::new(boundaries),
        #[cfg(feature = "fusion")]
        client: get_client::<Cube>(device),
    });
    let all = known.iter().flat_map(|known| known.iter().cloned()).chain([new.clone()]);
    *DEVICES.write() = Some(all.collect());
    new
}

/// Waits until this thread's operations have been launched, and what other threads have in the devices' queues.
pub(crate) fn wait_launched(devices: &[Arc<Device>]) {
    for device in devices {
        #[cfg(feature = "fusion")]
        device.client.sync(|| ());
        device.queue.wait_launched();
    }
}
