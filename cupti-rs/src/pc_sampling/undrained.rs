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
        if reading.is_empty() {
            return;
        }
        let records = self.records_of(&reading, max_records);
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

    /// The records of a reading, by instruction, launch and reason.
    fn records_of(&mut self, reading: &Reading, max_records: usize) -> Vec<PcRecord> {
        let functions: Vec<u32> =
            reading.functions.iter().map(|function| self.function(function)).collect();
        let begins = std::iter::once(0).chain(reading.pcs.iter().map(|pc| pc.end));
        let pcs = reading.pcs.iter().zip(begins).map(|(pc, begin)| {
            let instruction = self.instruction(functions[pc.function as usize], pc.offset);
            (instruction, pc.correlation_id, begin..pc.end)
        });
        let mut pcs: Vec<_> = pcs.collect();
        pcs.sort_unstable_by_key(|(instruction, correlation_id, _)| {
            (*instruction, *correlation_id)
        });
        let mut records: Vec<PcRecord> = Vec::with_capacity(reading.reasons.len());
        let mut first = 0;
        for (instruction, correlation_id, reasons) in pcs {
            let is_same = |record: &PcRecord| {
                (record.instruction, record.correlation_id) == (instruction, correlation_id)
            };
            if !records.last().is_some_and(is_same) {
                first = records.len();
            }
            for &(stall_reason, samples) in &reading.reasons[reasons] {
                let samples = u64::from(samples);
                // CUPTI may return an instruction in two parts.
                let mut known = records[first..].iter_mut();
                if let Some(known) = known.find(|record| record.stall_reason == stall_reason) {
                    known.samples += samples;
                } else if self.records + records.len() >= max_records {
                    self.samples.losses.over_max_records += samples;
                } else {
                    records.push(PcRecord { instruction, stall_reason, correlation_id, samples });
                }
            }
        }
        records
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
