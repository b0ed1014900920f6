//! One reading of a context: the samples of a slice.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::sys::pc_sampling::{ContextSampler, Counts, PcRow};

/// The samples of one slice, as CUPTI returned them.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// By cubin and symbol; CUPTI's names are never freed.
    pub(super) functions: Vec<(u64, u32, Arc<str>)>,
    /// By cubin, symbol, and the address of CUPTI's name.
    indices: FxHashMap<FunctionKey, u32>,
    last: Option<(FunctionKey, u32)>,
    pub(super) pcs: Vec<Pc>,
    /// Stall reasons with samples, instruction by instruction.
    pub(super) reasons: Vec<(u32, u32)>,
    pub(super) counts: Counts,
    pub(super) failed: Option<Error>,
}

type FunctionKey = (u64, u32, usize);

/// An instruction of a launch, or of all launches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pc {
    /// The position of its function.
    pub(super) function: u32,
    pub(super) correlation_id: u32,
    pub(super) offset: u64,
    /// The end of its reasons, which begin with the end of those before.
    pub(super) end: usize,
}

impl Reading {
    /// Adds the samples of an instruction.
    pub(super) fn add(&mut self, row: PcRow<'_>) {
        let key = (row.cubin_crc, row.function_index, row.function.as_ptr().addr());
        // Instructions of a function mostly follow each other.
        let function = match self.last {
            Some((known, function)) if known == key => function,
            _ => *self.indices.entry(key).or_insert_with(|| {
                let name = row.function.to_string_lossy().into();
                self.functions.push((row.cubin_crc, row.function_index, name));
                self.functions.len() as u32 - 1
            }),
        };
        self.last = Some((key, function));
        let reasons = row.reasons.iter().filter(|reason| reason.samples != 0);
        self.reasons.extend(reasons.map(|reason| (reason.index, reason.samples)));
        self.pcs.push(Pc {
            function,
            correlation_id: row.correlation_id,
            offset: row.pc_offset,
            end: self.reasons.len(),
        });
    }

    /// True if CUPTI had decoded no sample.
    pub(super) fn is_empty(&self) -> bool {
        self.pcs.is_empty() && self.counts.total == 0 && !self.counts.is_full
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
