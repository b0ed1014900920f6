//! The samples of a collection that were not drained.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::reading::Reading;
use super::samples::*;
use crate::sys::pc_sampling::Counts;

/// Data that was not drained. The session takes its lock before those of contexts.
#[derive(Debug, Default)]
pub(super) struct Undrained {
    pub(super) samples: PcSamples,
    functions: FxHashMap<(u64, u32, Arc<str>), u32>,
    instructions: FxHashMap<(u32, u64), u32>,
    pub(super) records: usize,
}

impl Undrained {
    /// Adds a slice with its times; records beyond the maximum are counted.
    pub(super) fn add(
        &mut self,
        [since_ns, begin_ns, end_ns]: [u64; 3],
        context: u32,
        reading: Reading,
        max_records: usize,
    ) {
        let Counts { total, dropped, non_user, is_full, .. } = reading.counts;
        if reading.samples.is_empty() && total == 0 && !is_full {
            return;
        }
        let mut records = Vec::with_capacity(reading.samples.len());
        for ((function, pc_offset, correlation_id, stall_reason), samples) in reading.samples {
            if self.records + records.len() >= max_records {
                self.samples.losses.over_max_records += samples;
                continue;
            }
            let function = self.function(&reading.functions[function as usize]);
            let instruction = self.instruction(function, pc_offset);
            records.push(PcRecord { instruction, stall_reason, correlation_id, samples });
        }
        records.sort_unstable();
        self.records += records.len();
        // Slices without records are one, which bounds their number.
        let last = self.samples.slices.iter_mut().rfind(|slice| slice.context == context);
        if let Some(last) = last.filter(|last| last.records.is_empty() && records.is_empty()) {
            last.end_ns = end_ns;
            last.total_samples += total;
            last.dropped_samples += dropped;
            last.non_user_samples += non_user;
            last.hardware_buffer_full |= is_full;
            return;
        }
        self.samples.slices.push(PcSlice {
            since_ns,
            begin_ns,
            end_ns,
            context,
            records,
            total_samples: total,
            dropped_samples: dropped,
            non_user_samples: non_user,
            hardware_buffer_full: is_full,
        });
    }

    /// Removes and returns the data, without contexts.
    pub(super) fn take(&mut self) -> PcSamples {
        self.functions.clear();
        self.instructions.clear();
        self.records = 0;
        let failure = self.samples.failure.clone();
        std::mem::replace(&mut self.samples, PcSamples { failure, ..PcSamples::default() })
    }

    fn function(&mut self, function: &(u64, u32, Arc<str>)) -> u32 {
        if let Some(index) = self.functions.get(function) {
            return *index;
        }
        let index = self.samples.functions.len() as u32;
        let (cubin_crc, symbol, name) = function.clone();
        self.samples.functions.push(PcFunction { name, index: symbol, cubin_crc });
        self.functions.insert(function.clone(), index);
        index
    }

    fn instruction(&mut self, function: u32, pc_offset: u64) -> u32 {
        let all = &mut self.samples.instructions;
        *self.instructions.entry((function, pc_offset)).or_insert_with(|| {
            all.push(PcInstruction { function, pc_offset, line: None });
            all.len() as u32 - 1
        })
    }
}
