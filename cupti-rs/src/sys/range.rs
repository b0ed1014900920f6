//! CUPTI's Range Profiler as this crate calls it: safe, with results.

use std::ffi::{CStr, CString};

use super::counters::{RangeApi, copied, pointers};
use super::driver::Context;
use super::params::*;
use crate::error::Error;
use crate::forked;

/// `CUPTI_AutoRange` and `CUPTI_KernelReplay`: each kernel is a range, and CUPTI replays it.
pub(crate) const EACH_KERNEL: Mode = Mode { range: 1, replay: 2 };
/// `CUPTI_UserRange` and `CUPTI_UserReplay`: the program defines the ranges and replays them.
pub(crate) const USER_RANGES: Mode = Mode { range: 2, replay: 3 };

/// The definition of a range, and the side that replays it for another pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    range: u32,
    replay: u32,
}

/// The result of a stop for the passes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopped {
    /// The next pass, or the last.
    pub pass: usize,
    /// The nesting level of ranges that it is for.
    pub level: usize,
    /// True if no pass is left.
    pub is_last: bool,
}

/// The Range Profiler of one context, off when dropped.
#[derive(Debug)]
pub(crate) struct RangeObject {
    api: RangeApi,
    object: ObjectHandle,
    /// CUPTI holds pointers into both from `set_config` until the end.
    config: Vec<u8>,
    data: Vec<u8>,
}

impl RangeApi {
    /// The number of ranges in an image.
    pub(crate) fn count(&self, data: &[u8]) -> Result<usize, Error> {
        let mut params = RangeGetCounterDataInfo::new();
        params.counter_data_image = data.as_ptr();
        params.counter_data_image_size = data.len();
        // SAFETY: the block has the size it states, and the image lives through the call.
        unsafe { self.data_info(&mut params) }?;
        Ok(params.num_total_ranges)
    }

    /// The names of a range and those around it, the outermost first and `/` between them.
    pub(crate) fn name(&self, data: &[u8], index: usize) -> Result<String, Error> {
        let mut params = RangeCounterDataGetRangeInfo::new();
        params.counter_data_image = data.as_ptr();
        params.counter_data_image_size = data.len();
        params.range_index = index;
        params.range_delimiter = c"/".as_ptr();
        // SAFETY: the block has the size it states; image and delimiter live through the call.
        unsafe { self.range_info(&mut params) }?;
        // SAFETY: CUPTI returns a string that ends in a NUL.
        Ok(unsafe { copied(params.range_name) })
    }
}

impl RangeObject {
    /// Reserves the context's device for counting.
    pub(crate) fn enable(api: RangeApi, context: Context) -> Result<Self, Error> {
        let mut params = RangeEnable::new();
        params.ctx = context.handle();
        // SAFETY: the block has the size it states; the context was current when it was requested.
        unsafe { api.enable(&mut params) }?;
        let object = ObjectHandle(params.range_profiler_object);
        Ok(Self { api, object, config: Vec::new(), data: Vec::new() })
    }

    /// Configures the counters, the image, and the maximum number of ranges and levels. Once for
    /// each object.
    pub(crate) fn configure(
        &mut self,
        mode: Mode,
        names: &[CString],
        config: &[u8],
        ranges: usize,
        levels: u16,
    ) -> Result<(), Error> {
        let mut pointers = pointers(names);
        let mut size = RangeGetCounterDataSize::with_object(self.object);
        size.metric_names = pointers.as_mut_ptr();
        size.num_metrics = pointers.len();
        size.max_num_of_ranges = ranges;
        size.max_num_range_tree_nodes = u32::try_from(ranges).unwrap_or(u32::MAX);
        // SAFETY: the block has the size it states and names this live object; the names live
        // through the call.
        unsafe { self.api.data_size(&mut size) }?;
        self.config = config.to_vec();
        self.data = vec![0; size.counter_data_size];
        let mut initialize = RangeCounterDataImageInitialize::with_object(self.object);
        initialize.counter_data = self.data.as_mut_ptr();
        initialize.counter_data_size = self.data.len();
        // SAFETY: as above; the image has the size it states.
        unsafe { self.api.data_initialize(&mut initialize) }?;
        let mut params = RangeSetConfig::with_object(self.object);
        params.config = self.config.as_ptr();
        params.config_size = self.config.len();
        params.counter_data_image = self.data.as_mut_ptr();
        params.counter_data_image_size = self.data.len();
        params.range = mode.range;
        params.replay_mode = mode.replay;
        params.max_ranges_per_pass = ranges;
        params.num_nesting_levels = levels;
        params.min_nesting_level = 1;
        params.target_nesting_level = 1;
        // SAFETY: as above; both images live, unmoved, as long as the object.
        unsafe { self.api.set_config(&mut params) }
    }

    /// Begins a pass.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        forked::check_process()?;
        let mut params = RangeStart::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.start(&mut params) }
    }

    /// Ends a pass.
    pub(crate) fn stop(&mut self) -> Result<Stopped, Error> {
        forked::check_process()?;
        let mut params = RangeStop::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.stop(&mut params) }?;
        Ok(Stopped {
            pass: params.pass_index,
            level: params.target_nesting_level,
            is_last: params.is_all_pass_submitted != 0,
        })
    }

    /// Begins a range.
    pub(crate) fn push(&mut self, name: &CStr) -> Result<(), Error> {
        forked::check_process()?;
        let mut params = RangePushRange::with_object(self.object);
        params.range_name = name.as_ptr();
        // SAFETY: the block has the size it states and names this live object; the name lives
        // through the call.
        unsafe { self.api.push(&mut params) }
    }

    /// Ends the innermost range.
    pub(crate) fn pop(&mut self) -> Result<(), Error> {
        forked::check_process()?;
        let mut params = RangePopRange::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object.
        unsafe { self.api.pop(&mut params) }
    }

    /// Reads the hardware's counts; returns the number of ranges that did not fit, and the image.
    pub(crate) fn decode(&mut self) -> Result<(usize, &[u8]), Error> {
        forked::check_process()?;
        let mut params = RangeDecodeData::with_object(self.object);
        // SAFETY: the block has the size it states and names this live object, whose image has the
        // size that was configured.
        unsafe { self.api.decode(&mut params) }?;
        Ok((params.num_of_range_dropped, &self.data))
    }

    /// Releases the device; the image does not move until then.
    pub(crate) fn into_data(mut self) -> Vec<u8> {
        let data = std::mem::take(&mut self.data);
        drop(self);
        data
    }
}

impl Drop for RangeObject {
    fn drop(&mut self) {
        // A forked child does not touch its parent's objects.
        if forked::is_child() {
            return;
        }
        let mut params = RangeDisable::with_object(self.object);
        // SAFETY: the block has the size it states and names this object, which is not used again.
        let _ = unsafe { self.api.disable(&mut params) };
    }
}
