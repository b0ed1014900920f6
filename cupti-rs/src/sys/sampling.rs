//! CUPTI's PM sampling as this crate calls it: safe, with results.

use std::ffi::CString;

use super::counters::{SamplingApi, pointers};
use super::params::*;
use crate::error::Error;
use crate::forked;

/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL`: the interval is in nanoseconds. Chips from
/// GA10x on have it.
const BY_TIME: u32 = 1;
/// `CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST`: a full buffer is reported, and not
/// overwritten.
const KEEP_OLDEST: u32 = 0;
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL`
const DATA_FULL: u32 = 1;

/// The result of a decoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded {
    /// Samples that are complete.
    pub samples: usize,
    /// True if the image had no room for more samples, and some remain.
    pub is_full: bool,
    /// True if the hardware's buffer was full and samples were lost.
    pub overflowed: bool,
}

/// The sampling of one device, off when dropped.
#[derive(Debug)]
pub(crate) struct SamplingObject {
    api: SamplingApi,
    object: ObjectHandle,
    /// CUPTI may hold a pointer into it.
    config: Vec<u8>,
    data: Vec<u8>,
}

impl SamplingObject {
    /// Reserves the device for sampling.
    pub(crate) fn enable(api: SamplingApi, device: u32) -> Result<Self, Error> {
        let mut params = SamplingEnable::new();
        params.device_index = device as usize;
        // SAFETY: the block has the size it states.
        unsafe { api.enable(&mut params) }?;
        let object = ObjectHandle(params.pm_sampling_object);
        Ok(Self { api, object, config: Vec::new(), data: Vec::new() })
    }

    /// Configures the counters, the interval, and the maximum number of samples of a decoding. Once
    /// for each object.
    pub(crate) fn configure(
        &mut self,
        names: &[CString],
        config: &[u8],
        interval_ns: u64,
        hardware_buffer: usize,
        samples: u32,
    ) -> Result<(), Error> {
        self.config = config.to_vec();
        let mut params = SamplingSetConfig::with_object(self.object);
        params.config = self.config.as_ptr();
        params.config_size = self.config.len();
        params.hardware_buffer_size = hardware_buffer;
        params.sampling_interval = interval_ns;
        params.trigger_mode = BY_TIME;
        params.hw_buffer_append_mode = KEEP_OLDEST;
        // SAFETY: the block has the size it states and names this live object; the image lives as
        // long as that.
        unsafe { self.api.set_config(&mut params) }?;
        let mut pointers = pointers(names);
        let mut size = SamplingGetCounterDataSize::with_object(self.object);
        size.metric_names = pointers.as_mut_ptr();
        size.num_metrics = pointers.len();
        size.max_samples = samples;
        // SAFETY: as above; the names live through the call.
        unsafe { self.api.data_size(&mut size) }?;
        self.data = vec![0; size.counter_data_size];
        self.empty()
    }

    /// Prepares the image for a decoding.
    pub(crate) fn empty(&mut self) -> Result<(), Error> {
        let mut params = SamplingCounterDataImageInitialize::with_object(self.object);
        params.counter_data = self.data.as_mut_ptr();
        params.counter_data_size = self.data.len();
        // SAFETY: the block has the size it states and names this live object; the image has the
        // size it states.
        unsafe { self.api.data_initialize(&mut params) }
    }

    /// Starts sampling.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let mut params = SamplingStart::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.start(&mut params) }
    }

    /// Stops sampling. Remaining samples can still be decoded.
    pub(crate) fn stop(&mut self) -> Result<(), Error> {
        let mut params = SamplingStop::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.stop(&mut params) }
    }

    /// Decodes the hardware's samples, as far as the image has room.
    pub(crate) fn decode(&mut self) -> Result<Decoded, Error> {
        let mut params = SamplingDecodeData::with_object(self.object);
        params.counter_data_image = self.data.as_mut_ptr();
        params.counter_data_image_size = self.data.len();
        // SAFETY: the block has the size it states and names this live object; the image has the
        // size it states.
        unsafe { self.api.decode(&mut params) }?;
        let mut info = SamplingGetCounterDataInfo::new();
        info.counter_data_image = self.data.as_ptr();
        info.counter_data_image_size = self.data.len();
        // SAFETY: as above.
        unsafe { self.api.data_info(&mut info) }?;
        Ok(Decoded {
            samples: info.num_completed_samples,
            is_full: params.decode_stop_reason == DATA_FULL,
            overflowed: params.overflow != 0,
        })
    }

    /// The begin and the end of a sample of the image, in CUPTI's time.
    pub(crate) fn times(&mut self, index: usize) -> Result<(u64, u64), Error> {
        let mut params = SamplingCounterDataGetSampleInfo::with_object(self.object);
        params.counter_data_image = self.data.as_mut_ptr();
        params.counter_data_image_size = self.data.len();
        params.sample_index = index;
        // SAFETY: the block has the size it states and names this live object; the image lives
        // through the call.
        unsafe { self.api.sample_info(&mut params) }?;
        Ok((params.start_timestamp, params.end_timestamp))
    }

    /// The image.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for SamplingObject {
    fn drop(&mut self) {
        // A forked child does not touch its parent's objects.
        if forked::is_child() {
            return;
        }
        let mut params = SamplingDisable::with_object(self.object);
        // SAFETY: the block has the size it states and names this object, which is not used again.
        let _ = unsafe { self.api.disable(&mut params) };
    }
}
