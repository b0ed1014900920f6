//! CUPTI's Profiler Host interface as this crate calls it: safe, with results.
//!
//! CUPTI does not document whether its functions may be called on several threads, so they are
//! called one at a time. None of them calls back.

use std::ffi::{CStr, CString};

use parking_lot::Mutex;

use super::abi::CuptiResult;
use super::counters::{HostApi, all_copied, copied, pointers};
use super::params::*;
use crate::collection_state;
use crate::error::Error;
use crate::forked;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The properties of one metric.
#[derive(Debug)]
pub(crate) struct Properties {
    pub description: String,
    pub hardware_unit: String,
    pub dimension: String,
    pub metric_type: u32,
}

/// CUPTI's object for one chip, destroyed when dropped.
#[derive(Debug)]
pub(crate) struct HostObject {
    api: HostApi,
    object: ObjectHandle,
    /// Retained: CUPTI does not document that it copies it.
    _availability: Option<Box<[u8]>>,
}

impl HostApi {
    /// The chips that this library supports.
    pub(crate) fn chip_names(&self) -> Result<Vec<String>, Error> {
        let mut params = HostGetSupportedChips::new();
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states.
        unsafe { self.chips(&mut params) }?;
        // SAFETY: CUPTI returns that many constant strings.
        Ok(unsafe { all_copied(params.chip_names, params.num_chips) })
    }

    /// The number of times that the work must run for this image.
    pub(crate) fn passes_of(&self, image: &mut [u8]) -> Result<usize, Error> {
        let mut params = HostGetNumOfPasses::new();
        params.config_image = image.as_mut_ptr();
        params.config_image_size = image.len();
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states, and the image lives through the call.
        unsafe { self.passes(&mut params) }?;
        Ok(params.num_of_passes)
    }
}

impl HostObject {
    pub(crate) fn new(
        api: HostApi,
        kind: u32,
        chip: &CStr,
        availability: Option<Box<[u8]>>,
    ) -> Result<Self, Error> {
        collection_state::leave_children_out();
        forked::check_process()?;
        let mut params = HostInitialize::new();
        params.profiler_type = kind;
        params.chip_name = chip.as_ptr();
        if let Some(image) = &availability {
            params.counter_availability_image = image.as_ptr();
        }
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states; the name lives through the call and the image
        // as long as the object.
        unsafe { api.initialize(&mut params) }?;
        Ok(Self { api, object: ObjectHandle(params.host_object), _availability: availability })
    }

    /// The metrics of a type, without roll-ups.
    pub(crate) fn base_metrics(&self, metric_type: u32) -> Result<Vec<String>, Error> {
        let mut params = HostGetBaseMetrics::with_object(self.object);
        params.metric_type = metric_type;
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.base_metrics(&mut params) }?;
        // SAFETY: CUPTI returns that many strings, which live as long as the object.
        Ok(unsafe { all_copied(params.metric_names, params.num_metrics) })
    }

    /// Returns `None` if the chip has no such metric.
    pub(crate) fn properties(&self, name: &CStr) -> Result<Option<Properties>, Error> {
        let mut params = HostGetMetricProperties::with_object(self.object);
        params.metric_name = name.as_ptr();
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this live object; the name lives
        // through the call.
        let found = unsafe { self.api.properties(&mut params) };
        let unknown = [CuptiResult::INVALID_METRIC_NAME, CuptiResult::INVALID_PARAMETER];
        match found {
            Err(error) if unknown.iter().any(|code| error.code() == Some(code.0)) => {
                return Ok(None);
            }
            found => found?,
        }
        // SAFETY: the strings are CUPTI's and live as long as the object.
        let text = |text| unsafe { copied(text) };
        Ok(Some(Properties {
            description: text(params.description),
            hardware_unit: text(params.hw_unit),
            dimension: text(params.dim_unit),
            metric_type: params.metric_type,
        }))
    }

    /// Adds metrics to the next image.
    pub(crate) fn add_metrics(&self, names: &[CString]) -> Result<(), Error> {
        let mut pointers = pointers(names);
        let mut params = HostConfigAddMetrics::with_object(self.object);
        params.metric_names = pointers.as_mut_ptr();
        params.num_metrics = pointers.len();
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this live object; the names live
        // through the call.
        unsafe { self.api.add_metrics(&mut params) }
    }

    /// Returns the image that configures the hardware to count the added metrics.
    pub(crate) fn config_image(&self) -> Result<Vec<u8>, Error> {
        let mut size = HostGetConfigImageSize::with_object(self.object);
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.image_size(&mut size) }?;
        let mut image = vec![0; size.config_image_size];
        let mut params = HostGetConfigImage::with_object(self.object);
        params.config_image = image.as_mut_ptr();
        params.config_image_size = image.len();
        // SAFETY: as above; the image has the size it states.
        unsafe { self.api.image(&mut params) }?;
        Ok(image)
    }

    /// Evaluates the raw counts of one range or sample: a number for each name.
    pub(crate) fn evaluate(
        &self,
        data: &[u8],
        index: usize,
        names: &[CString],
    ) -> Result<Vec<f64>, Error> {
        let mut pointers = pointers(names);
        let mut values = vec![f64::NAN; names.len()];
        let mut params = HostEvaluateToGpuValues::with_object(self.object);
        params.counter_data_image = data.as_ptr();
        params.counter_data_image_size = data.len();
        params.range_index = index;
        params.metric_names = pointers.as_mut_ptr();
        params.num_metrics = pointers.len();
        params.metric_values = values.as_mut_ptr();
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this live object; names, data and room
        // for as many values as names live through the call. The data is CUPTI's own output, from
        // this process or from a file whose checksum is correct; the caller of the evaluation is
        // responsible for the file not being forged (as `CounterData` documents).
        unsafe { self.api.evaluate(&mut params) }?;
        Ok(values)
    }
}

impl Drop for HostObject {
    fn drop(&mut self) {
        // In a forked child another thread's call may hold the lock forever.
        if forked::is_child() {
            return;
        }
        let mut params = HostDeinitialize::with_object(self.object);
        let _turn = ONE_AT_A_TIME.lock();
        // SAFETY: the block has the size it states and names this object, which is used no more.
        let _ = unsafe { self.api.deinitialize(&mut params) };
    }
}
