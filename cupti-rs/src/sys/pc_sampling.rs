//! CUPTI's PC sampling of one context as this crate calls it: safe, with results.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use parking_lot::Mutex;

use super::abi::*;
use super::counters::{PcSamplingApi, copied};
use super::driver::Context;
use super::params::*;
use crate::error::Error;
use crate::pc_sampling::settings::PcSampling;

/// PCs of one reading, and of the memory for the samples that remain at the end.
const READ_PCS: usize = 4096;
const REST_PCS: usize = 65536;

/// Bytes between two PCs in memory. CUPTI does not use the size that each of them states.
const STRIDE: usize = size_of::<PcSamplingPcData>();
const STRIDE_WITH_CORRELATION: usize = STRIDE + 8;

/// The names of a context's stall reasons, by index.
pub(crate) type StallReasons = Arc<[(u32, String)]>;

/// The samples of one instruction.
#[derive(Debug)]
pub(crate) struct PcRow<'a> {
    pub cubin_crc: u64,
    pub function_index: u32,
    pub function: &'a CStr,
    pub pc_offset: u64,
    /// 0 in continuous mode.
    pub correlation_id: u32,
    pub reasons: &'a [PcSamplingStallReason],
}

/// The counts of one reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub total: u64,
    pub dropped: u64,
    pub non_user: u64,
    pub is_full: bool,
    /// True if more PCs are ready.
    pub has_more: bool,
}

/// Memory that CUPTI writes samples to. CUPTI and we use it through the pointers in `data` alone.
#[derive(Debug)]
struct Buffer {
    /// One element.
    data: Vec<PcSamplingData>,
    _pcs: Vec<u64>,
    _reasons: Vec<u64>,
    stride: usize,
    reasons_of_pc: usize,
}
// SAFETY: its pointers lead to its own memory.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(count: usize, reasons_of_pc: usize, stride: usize) -> Self {
        let mut pcs = vec![0_u64; count * stride / 8];
        let mut reasons = vec![0_u64; count * reasons_of_pc];
        let first = pcs.as_mut_ptr().cast::<u8>();
        for index in 0..count {
            let stall_reason = reasons.as_mut_ptr().wrapping_add(index * reasons_of_pc).cast();
            let pc = PcSamplingPcData { size: stride, stall_reason, ..PcSamplingPcData::new() };
            // SAFETY: `pcs` has room for `count` PCs at this stride.
            let place = unsafe { first.add(index * stride) };
            // SAFETY: as above; aligned to 8, as the stride is a multiple of 8.
            unsafe { place.cast::<PcSamplingPcData>().write(pc) };
        }
        let (collect_num_pcs, pc_data) = (count, first.cast());
        let data = vec![PcSamplingData { collect_num_pcs, pc_data, ..PcSamplingData::new() }];
        Self { data, _pcs: pcs, _reasons: reasons, stride, reasons_of_pc }
    }

    /// Sets the counts to 0.
    fn clear(&mut self) {
        let data = &mut self.data[0];
        (data.total_samples, data.dropped_samples) = (0, 0);
        (data.total_num_pcs, data.remaining_num_pcs) = (0, 0);
        (data.non_usr_kernels_total_samples, data.hardware_buffer_full) = (0, 0);
    }

    /// Passes each PC to `each` and returns the counts.
    fn read(&self, each: &mut dyn FnMut(PcRow<'_>)) -> Counts {
        let data = &self.data[0];
        for index in 0..data.total_num_pcs.min(data.collect_num_pcs) {
            // SAFETY: `pcs` has this many PCs at this stride.
            let place = unsafe { data.pc_data.byte_add(index * self.stride) };
            // SAFETY: a PC that we initialised and CUPTI overwrote.
            let pc = unsafe { place.read() };
            let has_correlation = self.stride == STRIDE_WITH_CORRELATION;
            let correlation_id = if has_correlation {
                // SAFETY: at this stride the correlation id follows the other fields.
                let place = unsafe { place.byte_add(STRIDE) };
                // SAFETY: as above.
                unsafe { place.cast::<u32>().read() }
            } else {
                0
            };
            let function: &CStr = if pc.function_name.is_null() {
                c""
            } else {
                // SAFETY: CUPTI's string, which records share; we never free it.
                unsafe { CStr::from_ptr(pc.function_name) }
            };
            let count = pc.stall_reason_count.min(self.reasons_of_pc);
            // SAFETY: our memory for the reasons of a PC, of which CUPTI wrote this many.
            let reasons = unsafe { std::slice::from_raw_parts(pc.stall_reason, count) };
            let (cubin_crc, pc_offset) = (pc.cubin_crc, pc.pc_offset);
            let function_index = pc.function_index;
            each(PcRow { cubin_crc, function_index, function, pc_offset, correlation_id, reasons });
        }
        Counts {
            total: data.total_samples,
            dropped: data.dropped_samples,
            non_user: data.non_usr_kernels_total_samples,
            is_full: data.hardware_buffer_full != 0,
            has_more: data.remaining_num_pcs > 0 && data.total_num_pcs > 0,
        }
    }
}

/// The memory that CUPTI may use until a context is disabled. It is kept after that, too, in case
/// that a thread of CUPTI still writes to it.
#[derive(Debug)]
pub(crate) struct Rest {
    /// CUPTI writes the remaining samples there.
    data: Buffer,
    /// The stall reasons.
    indices: Vec<u32>,
}

impl Rest {
    fn new(reasons: &StallReasons, stride: usize) -> Self {
        let indices = reasons.iter().map(|(index, _)| *index).collect();
        Self { data: Buffer::new(REST_PCS, reasons.len(), stride), indices }
    }

    /// Keeps the memory until the process ends.
    fn leave(self) {
        static LEFT: Mutex<Vec<Rest>> = Mutex::new(Vec::new());
        LEFT.lock().push(self);
    }
}

/// The sampling of one context, from its enabling to [`disable`](Self::disable). A drop leaves it
/// on.
#[derive(Debug)]
pub(crate) struct ContextSampler {
    api: PcSamplingApi,
    context: Context,
    reasons: StallReasons,
    read: Buffer,
    /// `None` once the context is disabled.
    rest: Option<Rest>,
}

impl ContextSampler {
    /// Enables and configures the sampling of a live context. `rest` is the memory that was returned
    /// when it was disabled before.
    pub(crate) fn enable(
        api: PcSamplingApi,
        has_correlation: bool,
        context: Context,
        settings: &PcSampling,
        rest: &mut Option<Rest>,
    ) -> Result<Self, Error> {
        let mut params = PcSamplingEnable::new();
        params.ctx = context.handle();
        // SAFETY: the block has the size it states; the context is live.
        unsafe { api.enable(&mut params) }?;
        let stride = if has_correlation { STRIDE_WITH_CORRELATION } else { STRIDE };
        let reasons = match stall_reasons(&api, context) {
            Ok(reasons) => reasons,
            Err(error) => {
                // The first error is the one that matters.
                let _ = turn_off(&api, context);
                return Err(error);
            }
        };
        let read = Buffer::new(READ_PCS, reasons.len(), stride);
        let mut rest = rest.take().unwrap_or_else(|| Rest::new(&reasons, stride));
        rest.data.clear();
        let mut sampler = Self { api, context, reasons, read, rest: Some(rest) };
        if let Err(error) = sampler.configure(settings) {
            // As above; CUPTI may know the memory already.
            let _ = turn_off(&api, context);
            return Err(error);
        }
        Ok(sampler)
    }

    /// Sets the attributes. CUPTI has a result for each, besides that of the call.
    fn configure(&mut self, settings: &PcSampling) -> Result<(), Error> {
        let Some(Rest { data, indices }) = &mut self.rest else { return Ok(()) };
        let attribute = |kind, value, second| PcSamplingAttribute {
            kind,
            status: CuptiResult::SUCCESS,
            value: [value, second, 0],
        };
        let data = data.data.as_mut_ptr().expose_provenance() as u64;
        let first_index = indices.as_mut_ptr().expose_provenance() as u64;
        let mut attributes = [
            attribute(PC_SAMPLING_MODE, if settings.is_serialized { 2 } else { 1 }, 0),
            attribute(PC_SAMPLING_STALL_REASONS, indices.len() as u64, first_index),
            attribute(PC_SAMPLING_DATA_BUFFER, data, 0),
            attribute(PC_SAMPLING_FORMAT, 1, 0),
            attribute(PC_SAMPLING_PERIOD, settings.period_log2.into(), 0),
            attribute(PC_SAMPLING_HARDWARE_BUFFER, settings.hardware_buffer_bytes as u64, 0),
            attribute(PC_SAMPLING_SCRATCH_BUFFER, settings.scratch_buffer_bytes as u64, 0),
        ];
        let mut params = PcSamplingConfigurationInfo::new();
        params.ctx = self.context.handle();
        params.num_attributes = attributes.len();
        params.pc_sampling_configuration_info = attributes.as_mut_ptr();
        // SAFETY: the block has the size it states and points to as many attributes as it states;
        // the memory that these name stays until the context is disabled.
        let called = unsafe { self.api.configure(&mut params) };
        let is_refused =
            |attribute: &&PcSamplingAttribute| attribute.status != CuptiResult::SUCCESS;
        match attributes.iter().find(is_refused) {
            Some(refused) => Err(Error::counters(setting_name(refused.kind), refused.status)),
            None => called,
        }
    }

    /// The names of the stall reasons.
    pub(crate) fn reasons(&self) -> &StallReasons {
        &self.reasons
    }

    /// Passes PCs that CUPTI has decoded to `each`, as many as fit, and removes them.
    pub(crate) fn read(&mut self, each: &mut dyn FnMut(PcRow<'_>)) -> Result<Counts, Error> {
        self.read.clear();
        let mut params = PcSamplingGetData::new();
        params.ctx = self.context.handle();
        params.pc_sampling_data = self.read.data.as_mut_ptr().cast();
        // SAFETY: the block and the data have the sizes they state; the context is sampled.
        match unsafe { self.api.data(&mut params) } {
            // CUPTI reports a full hardware buffer as an error.
            Err(error) if error.code() == Some(CuptiResult::OUT_OF_MEMORY.0) => {
                Ok(Counts { is_full: true, has_more: false, ..self.read.read(each) })
            }
            called => called.map(|()| self.read.read(each)),
        }
    }

    /// Ends the sampling, passes the remaining PCs to `each`, and returns the memory for the next
    /// time.
    pub(crate) fn disable(
        mut self,
        each: &mut dyn FnMut(PcRow<'_>),
    ) -> Result<(Counts, Option<Rest>), Error> {
        turn_off(&self.api, self.context)?;
        let rest = self.rest.take();
        let counts = rest.as_ref().map_or_else(Counts::default, |rest| rest.data.read(each));
        Ok((counts, rest))
    }
}

impl Drop for ContextSampler {
    /// Leaves memory that CUPTI may use to it until the process ends.
    fn drop(&mut self) {
        self.rest.take().into_iter().for_each(Rest::leave);
    }
}

fn turn_off(api: &PcSamplingApi, context: Context) -> Result<(), Error> {
    let mut params = PcSamplingDisable::new();
    params.ctx = context.handle();
    // SAFETY: the block has the size it states; the context is sampled.
    unsafe { api.disable(&mut params) }
}

/// The stall reasons of a sampled context.
fn stall_reasons(api: &PcSamplingApi, context: Context) -> Result<StallReasons, Error> {
    let mut count = 0;
    let mut params = PcSamplingGetNumStallReasons::new();
    params.ctx = context.handle();
    params.num_stall_reasons = &raw mut count;
    // SAFETY: the block has the size it states and points to a live usize.
    unsafe { api.count_reasons(&mut params) }?;
    let mut indices = vec![0_u32; count];
    let mut names = vec![[0 as c_char; STALL_REASON_NAME_BYTES]; count];
    let mut pointers: Vec<_> = names.iter_mut().map(|name| name.as_mut_ptr()).collect();
    let mut params = PcSamplingGetStallReasons::new();
    params.ctx = context.handle();
    params.num_stall_reasons = count;
    params.stall_reason_index = indices.as_mut_ptr();
    params.stall_reasons = pointers.as_mut_ptr();
    // SAFETY: the block has the size it states and points to as many indices and names as it
    // states, each name of the size that CUPTI documents.
    unsafe { api.reasons(&mut params) }?;
    // SAFETY: CUPTI ends each name with a NUL.
    let texts = pointers.iter().map(|&name| unsafe { copied(name) });
    Ok(indices.iter().copied().zip(texts).collect())
}

/// The function that sets an attribute, with the attribute's name.
fn setting_name(kind: u32) -> &'static str {
    macro_rules! setting {
        ($name:literal) => {
            concat!("cuptiPCSamplingSetConfigurationAttribute (", $name, ")")
        };
    }
    match kind {
        PC_SAMPLING_PERIOD => setting!("sampling period"),
        PC_SAMPLING_STALL_REASONS => setting!("stall reasons"),
        PC_SAMPLING_SCRATCH_BUFFER => setting!("scratch buffer size"),
        PC_SAMPLING_HARDWARE_BUFFER => setting!("hardware buffer size"),
        PC_SAMPLING_MODE => setting!("collection mode"),
        PC_SAMPLING_FORMAT => setting!("output format"),
        _ => setting!("data buffer"),
    }
}

/// The CRC by which samples name this cubin.
pub(crate) fn cubin_crc(api: &PcSamplingApi, cubin: &[u8]) -> Result<u64, Error> {
    let mut params = GetCubinCrc::new();
    params.cubin_size = cubin.len();
    params.cubin = cubin.as_ptr().cast();
    // SAFETY: the block has the size it states, and so has the cubin.
    unsafe { api.crc(&mut params) }?;
    Ok(params.cubin_crc)
}

/// The folder, the file and the line of an instruction of a cubin.
pub(crate) fn source_line(
    api: &PcSamplingApi,
    cubin: &[u8],
    function: &CString,
    pc_offset: u64,
) -> Result<(String, String, u32), Error> {
    let mut params = GetSassToSourceCorrelation::new();
    params.cubin = cubin.as_ptr().cast();
    params.cubin_size = cubin.len();
    params.function_name = function.as_ptr();
    params.pc_offset = pc_offset;
    // SAFETY: the block has the size it states, and so has the cubin; the name lives through the
    // call.
    let called = unsafe { api.source(&mut params) };
    let take = |text: *mut c_char| {
        // SAFETY: null, or a string that CUPTI allocated for its caller.
        let owned = unsafe { copied(text) };
        // SAFETY: null, or from malloc; not used again.
        unsafe { libc::free(text.cast()) };
        owned
    };
    let (folder, file) = (take(params.dir_name), take(params.file_name));
    called.map(|()| (folder, file, params.line_number))
}
