//! One reading of a context: the samples of a slice.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::sys::pc_sampling::{ContextSampler, Counts, PcRow};

/// The samples of one slice, with functions by their index in it.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) functions: Vec<(u64, u32, Arc<str>)>,
    /// By cubin, symbol, and the address of CUPTI's name, which is never freed.
    indices: FxHashMap<(u64, u32, usize), u32>,
    pub(super) samples: FxHashMap<(u32, u64, u32, u32), u64>,
    pub(super) counts: Counts,
    pub(super) failed: Option<Error>,
}

impl Reading {
    /// Adds the samples of an instruction.
    pub(super) fn add(&mut self, row: PcRow<'_>) {
        let key = (row.cubin_crc, row.function_index, row.function.as_ptr().addr());
        let function = *self.indices.entry(key).or_insert_with(|| {
            let name = row.function.to_string_lossy().into();
            self.functions.push((row.cubin_crc, row.function_index, name));
            self.functions.len() as u32 - 1
        });
        for reason in row.reasons.iter().filter(|reason| reason.samples != 0) {
            let key = (function, row.pc_offset, row.correlation_id, reason.index);
            *self.samples.entry(key).or_default() += u64::from(reason.samples);
        }
    }

    /// Adds counts; true if more PCs are ready.
    pub(super) fn count(&mut self, counts: Result<Counts, Error>) -> bool {
        match counts {
            Ok(counts) => {
                self.counts.total += counts.total;
                self.counts.dropped += counts.dropped;
                self.counts.non_user += counts.non_user;
                self.counts.is_full |= counts.is_full;
                counts.has_more
            }
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    /// Reads all that CUPTI has decoded.
    pub(super) fn read(&mut self, sampler: &mut ContextSampler) {
        loop {
            let counts = sampler.read(&mut |row| self.add(row));
            if !self.count(counts) {
                return;
            }
        }
    }
}
