//! The fake's instruction samples: those that a test scripts for each launch of a kernel.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Barrier, LazyLock};

use cupti::sys::abi::*;
use cupti::sys::params::*;
use parking_lot::Mutex;

use crate::functions::{Outcome, PcSamplingApi};
use crate::state::version;
use crate::work::Work;
use crate::{Fake, calls, written};

/// The stall reasons of the fake: index and name.
pub(super) const REASONS: [(u32, &CStr); 4] = [
    (3, c"fake_stalled_wait"),
    (5, c"fake_stalled_wait_not_issued"),
    (9, c"fake_stalled_long_scoreboard"),
    (12, c"fake_stalled_long_scoreboard_not_issued"),
];

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct State {
    /// The samples of a launch, by kernel: offset, stall reason, samples.
    scripts: BTreeMap<&'static CStr, Vec<(u64, u32, u32)>>,
    /// The sampled contexts.
    contexts: BTreeMap<u32, Sampled>,
    /// The CRC of each context's last module.
    modules: BTreeMap<u32, u64>,
    /// The results for settings that are refused.
    refused: BTreeMap<u32, CuptiResult>,
    lines: BTreeMap<(CString, u64), (&'static str, &'static str, u32)>,
    lost: u64,
    held: Option<Arc<Barrier>>,
    /// Addresses of the memory of contexts that were disabled.
    ended: Vec<usize>,
}

/// True if a context is sampled.
pub(super) fn is_sampling() -> bool {
    !STATE.lock().contexts.is_empty()
}

#[derive(Debug, Default)]
struct Sampled {
    settings: BTreeMap<u32, u64>,
    /// By kernel, offset and correlation id: the CRC, and samples by reason.
    ready: BTreeMap<Instruction, (u64, BTreeMap<u32, u32>)>,
    total: u64,
    dropped: u64,
    non_user: u64,
    is_full: bool,
}

type Instruction = (&'static CStr, u64, u32);

impl Sampled {
    /// Moves what fits into the caller's memory.
    ///
    /// # Safety
    /// `data` and the PCs that it points to may be written, as cupti-rs lays them out.
    unsafe fn write(&mut self, data: *mut PcSamplingData) {
        // SAFETY: the caller's promise.
        let data = unsafe { &mut *data };
        let has_correlation = version().cuda_release() >= (12, 4);
        let stride = size_of::<PcSamplingPcData>() + if has_correlation { 8 } else { 0 };
        let count = self.ready.len().min(data.collect_num_pcs);
        for index in 0..count {
            let Some((key, (crc, reasons))) = self.ready.pop_first() else { break };
            let (name, offset, correlation) = key;
            // SAFETY: the caller's PCs lie at this stride.
            let place = unsafe { data.pc_data.byte_add(index * stride) };
            // SAFETY: as above.
            let pc = unsafe { &mut *place };
            assert_eq!(pc.size, stride, "the size that a PC states");
            pc.cubin_crc = crc;
            pc.pc_offset = offset;
            pc.function_index = name.to_bytes().len() as u32;
            pc.function_name = name.as_ptr().cast_mut();
            pc.stall_reason_count = reasons.len();
            for (at, (index, samples)) in reasons.into_iter().enumerate() {
                // SAFETY: the caller has room for every stall reason.
                let place = unsafe { pc.stall_reason.add(at) };
                // SAFETY: as above.
                unsafe { place.write(PcSamplingStallReason { index, samples }) };
            }
            if has_correlation {
                // SAFETY: the correlation id follows the other fields.
                let place = unsafe { place.byte_add(size_of::<PcSamplingPcData>()) };
                // SAFETY: as above.
                unsafe { place.cast::<u32>().write(correlation) };
            }
        }
        data.total_num_pcs = count;
        data.remaining_num_pcs = self.ready.len();
        data.total_samples = std::mem::take(&mut self.total);
        data.dropped_samples = std::mem::take(&mut self.dropped);
        data.non_usr_kernels_total_samples = std::mem::take(&mut self.non_user);
        data.hardware_buffer_full = self.is_full.into();
    }
}

pub(super) fn reset() {
    *STATE.lock() = State::default();
}

/// Samples a launch.
pub(super) fn ran(work: &Work, correlation: u32) {
    let Some(name) = work.name() else { return };
    let state = &mut *STATE.lock();
    let Some(script) = state.scripts.get(name) else { return };
    let Some(sampled) = state.contexts.get_mut(&work.context()) else { return };
    if sampled.is_full {
        return;
    }
    let crc = state.modules.get(&work.context()).copied().unwrap_or_default();
    let is_serialized = sampled.settings.get(&PC_SAMPLING_MODE) == Some(&2);
    let correlation = if is_serialized { correlation } else { 0 };
    for &(offset, reason, samples) in script {
        let (_, reasons) =
            sampled.ready.entry((name, offset, correlation)).or_insert((crc, BTreeMap::new()));
        *reasons.entry(reason).or_default() += samples;
        // Samples of a form that is not issued are counted by the other one too.
        sampled.total += if matches!(reason, 5 | 12) { 0 } else { u64::from(samples) };
    }
}

impl Fake {
    /// Scripts the samples of each launch of a kernel: offset of the instruction, stall reason,
    /// samples. The reasons are 3 and 9, and their not issued forms 5 and 12.
    pub fn pc_samples(&self, kernel: &'static CStr, samples: &[(u64, u32, u32)]) {
        STATE.lock().scripts.insert(kernel, samples.to_vec());
    }

    /// Adds samples of a context that have no records: dropped ones, and those of other kernels.
    pub fn pc_samples_without_records(&self, context: u32, dropped: u64, non_user: u64) {
        if let Some(sampled) = STATE.lock().contexts.get_mut(&context) {
            sampled.total += dropped + non_user;
            sampled.dropped += dropped;
            sampled.non_user += non_user;
        }
    }

    /// Makes the hardware's buffer of a context full: no more samples are taken.
    pub fn fill_pc_buffer(&self, context: u32) {
        if let Some(sampled) = STATE.lock().contexts.get_mut(&context) {
            sampled.is_full = true;
        }
    }

    /// Makes a setting of instruction samples fail with this code, while the call succeeds.
    pub fn refuse_pc_setting(&self, setting: u32, code: CuptiResult) {
        STATE.lock().refused.insert(setting, code);
    }

    /// The sampled contexts, each with its settings.
    pub fn sampled_contexts(&self) -> BTreeMap<u32, BTreeMap<u32, u64>> {
        let state = STATE.lock();
        let settings = state.contexts.iter().map(|(id, sampled)| (*id, sampled.settings.clone()));
        settings.collect()
    }

    /// Holds the next reading: it waits at this barrier twice, at its begin and before its end.
    pub fn hold_pc_reading(&self) -> Arc<Barrier> {
        let barrier = Arc::new(Barrier::new(2));
        STATE.lock().held = Some(barrier.clone());
        barrier
    }

    /// Writes to the last PC of the memory of each context that was disabled, as a late thread of
    /// CUPTI would.
    pub fn write_late_pcs(&self) {
        for address in &STATE.lock().ended {
            let data: *mut PcSamplingData = std::ptr::with_exposed_provenance_mut(*address);
            // SAFETY: the caller retains the memory that it configured.
            let data = unsafe { &*data };
            // SAFETY: as above; no stride is smaller.
            let last = unsafe { data.pc_data.add(data.collect_num_pcs - 1) };
            // SAFETY: as above.
            unsafe { (*last).pc_offset = 0 };
        }
    }

    /// Samples that were lost with a module or a context, since nothing read them in time.
    pub fn lost_pc_samples(&self) -> u64 {
        STATE.lock().lost
    }

    /// Sets the source line of an instruction in every cubin: folder, file, line.
    pub fn source_line(
        &self,
        function: &CStr,
        offset: u64,
        line: (&'static str, &'static str, u32),
    ) {
        STATE.lock().lines.insert((function.to_owned(), offset), line);
    }

    /// Creates a context.
    pub fn create_context(&self, id: u32) {
        calls::context_event(RESOURCE_CONTEXT_CREATED, id);
    }

    /// Destroys a context, with the samples that nothing has read.
    pub fn destroy_context(&self, id: u32) {
        calls::context_event(RESOURCE_CONTEXT_DESTROY_STARTING, id);
        let mut state = STATE.lock();
        if let Some(sampled) = state.contexts.remove(&id) {
            state.lost += sampled.total;
        }
    }

    /// Loads a cubin.
    pub fn load_module(&self, context: u32, cubin: &[u8]) {
        STATE.lock().modules.insert(context, crc(cubin));
        calls::module_event(RESOURCE_MODULE_LOADED, context, cubin);
    }

    /// Unloads a context's module, with the samples that nothing has read.
    pub fn unload_module(&self, context: u32, cubin: &[u8]) {
        calls::module_event(RESOURCE_MODULE_UNLOAD_STARTING, context, cubin);
        let mut state = STATE.lock();
        state.modules.remove(&context);
        let lost = state.contexts.get_mut(&context).map_or(0, |sampled| {
            sampled.ready.clear();
            std::mem::take(&mut sampled.total)
        });
        state.lost += lost;
    }
}

/// A cubin: an ELF file with one section, `.debug_line` or not. The number makes it unique.
#[must_use]
pub fn cubin(number: u8, has_lines: bool) -> Vec<u8> {
    const HEADER: u8 = 64;
    let mut elf = vec![0; 2 * usize::from(HEADER)];
    elf[..5].copy_from_slice(b"\x7fELF\x02");
    elf[16] = number;
    elf[40] = HEADER;
    (elf[58], elf[60]) = (HEADER, 1);
    elf[usize::from(HEADER) + 24] = 2 * HEADER;
    elf.extend_from_slice(if has_lines { b".debug_line\0" } else { b".text\0" });
    elf
}

/// FNV-1a.
fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn sampled<T>(context: usize, with: impl FnOnce(&mut Sampled) -> T) -> Result<T, CuptiResult> {
    let mut state = STATE.lock();
    let found = state.contexts.get_mut(&(context as u32));
    found.map(with).ok_or(CuptiResult::INVALID_OPERATION)
}

/// Counts a begin or end of sampling beside a launch, with which CUPTI would deadlock.
fn count_beside_launches() {
    let mut state = crate::state::STATE.lock();
    state.sampling_beside_launches += u64::from(state.under_way > 0);
}

impl PcSamplingApi for Fake {
    fn enable(params: &mut PcSamplingEnable) -> Outcome {
        count_beside_launches();
        let mut state = STATE.lock();
        match state.contexts.insert(params.ctx.addr() as u32, Sampled::default()) {
            Some(_) => Err(CuptiResult::UNKNOWN),
            None => Ok(()),
        }
    }

    fn disable(params: &mut PcSamplingDisable) -> Outcome {
        count_beside_launches();
        let mut state = STATE.lock();
        let found = state.contexts.remove(&(params.ctx.addr() as u32));
        let mut sampled = found.ok_or(CuptiResult::INVALID_OPERATION)?;
        if let Some(address) = sampled.settings.get(&PC_SAMPLING_DATA_BUFFER) {
            let data = std::ptr::with_exposed_provenance_mut(*address as usize);
            // SAFETY: the caller configured this memory and retains it.
            unsafe { sampled.write(data) };
            state.ended.push(data.expose_provenance());
        }
        Ok(())
    }

    fn configure(params: &mut PcSamplingConfigurationInfo) -> Outcome {
        let count = params.num_attributes;
        let attributes = params.pc_sampling_configuration_info;
        // SAFETY: the caller passes as many attributes as it states.
        let attributes = unsafe { std::slice::from_raw_parts_mut(attributes, count) };
        let refused = STATE.lock().refused.clone();
        sampled(params.ctx.addr(), |sampled| {
            for attribute in attributes {
                let code = refused.get(&attribute.kind).copied();
                attribute.status = code.unwrap_or(CuptiResult::SUCCESS);
                sampled.settings.insert(attribute.kind, attribute.value[0]);
            }
        })
    }

    fn count_reasons(params: &mut PcSamplingGetNumStallReasons) -> Outcome {
        // SAFETY: the caller passes a live usize.
        unsafe { params.num_stall_reasons.write(REASONS.len()) };
        sampled(params.ctx.addr(), |_| ())
    }

    fn reasons(params: &mut PcSamplingGetStallReasons) -> Outcome {
        for (at, (index, name)) in REASONS.iter().enumerate().take(params.num_stall_reasons) {
            // SAFETY: the caller has room for as many indices as it states.
            let place = unsafe { params.stall_reason_index.add(at) };
            // SAFETY: as above.
            unsafe { place.write(*index) };
            // SAFETY: the caller has room for as many names as it states.
            let place = unsafe { params.stall_reasons.add(at) };
            // SAFETY: as above.
            let to = unsafe { place.read() };
            let length = name.to_bytes_with_nul().len().min(STALL_REASON_NAME_BYTES);
            // SAFETY: each name has room for the size that CUPTI documents.
            unsafe { to.copy_from_nonoverlapping(name.as_ptr(), length) };
        }
        Ok(())
    }

    fn data(params: &mut PcSamplingGetData) -> Outcome {
        let held = STATE.lock().held.take();
        if let Some(barrier) = held {
            barrier.wait();
            barrier.wait();
        }
        let data = params.pc_sampling_data.cast();
        sampled(params.ctx.addr(), |sampled| {
            // SAFETY: the caller passes live memory of this layout.
            unsafe { sampled.write(data) };
            if sampled.is_full { Err(CuptiResult::OUT_OF_MEMORY) } else { Ok(()) }
        })?
    }

    fn crc(params: &mut GetCubinCrc) -> Outcome {
        // SAFETY: the caller passes a cubin of the size that it states.
        let cubin =
            unsafe { std::slice::from_raw_parts(params.cubin.cast::<u8>(), params.cubin_size) };
        params.cubin_crc = crc(cubin);
        Ok(())
    }

    fn source(params: &mut GetSassToSourceCorrelation) -> Outcome {
        // SAFETY: the caller passes a name that ends in a NUL.
        let function = unsafe { CStr::from_ptr(params.function_name) };
        let state = STATE.lock();
        let found = state.lines.get(&(function.to_owned(), params.pc_offset));
        let (folder, file, line) = *found.ok_or(CuptiResult::INVALID_PARAMETER)?;
        params.line_number = line;
        params.dir_name = written::allocate(folder.as_bytes()).cast();
        params.file_name = written::allocate(file.as_bytes()).cast();
        Ok(())
    }
}
