//! The append-only log of activity bytes: what CUPTI gave, byte for byte, with what is needed to read it elsewhere.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::walk::Walked;

/// The process's one log. Only buffer completions and the collector's own calls take the lock, never a CUDA call of the
/// application, and no CUPTI function is called under it.
pub(crate) static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// Everything CUPTI gave in one collection.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Runs of whole records. Within a run every record has the stride of its kind.
    pub(crate) buffers: Vec<Vec<u8>>,
    /// Bytes from one record to the next, by kind, as the library stepped.
    pub(crate) strides: BTreeMap<u32, u32>,
    /// Kernel names by the address in the records.
    pub(crate) names: FxHashMap<u64, String>,
    pub(crate) counts: LogCounts,
    limit: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LogCounts {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Records thrown away because the log was full.
    pub(crate) over_limit: u64,
    /// Records whose length is not that of their kind.
    pub(crate) irregular: u64,
    /// Bytes that the library's iterator could not step over.
    pub(crate) unreadable_bytes: u64,
    /// Records of buffers that were not to be had.
    pub(crate) refused: u64,
    /// Records from before the profiler switch was first on.
    pub(crate) before_switch: u64,
}

/// What the lock's holder can do, also while no collection is on.
pub(crate) trait LogSlot {
    fn append(&mut self, walked: Walked);
    fn refuse(&mut self, walked: &Walked);
    fn before_switch(&mut self, walked: &Walked);
}

impl LogSlot for Option<Log> {
    fn append(&mut self, walked: Walked) {
        if let Some(log) = self {
            log.append(walked);
        }
    }

    fn refuse(&mut self, walked: &Walked) {
        if let Some(log) = self {
            log.counts.refused += walked.records.len() as u64;
            log.counts.unreadable_bytes += walked.unreadable;
        }
    }

    fn before_switch(&mut self, walked: &Walked) {
        if let Some(log) = self {
            log.counts.before_switch += walked.records.len() as u64;
        }
    }
}

impl Log {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    fn append(&mut self, mut walked: Walked) {
        self.counts.unreadable_bytes += walked.unreadable;
        if walked.records.is_empty() {
            return;
        }
        self.counts.records += walked.records.len() as u64;
        if self.counts.bytes + walked.bytes.len() as u64 > self.limit {
            self.counts.over_limit += walked.records.len() as u64;
            return;
        }
        self.counts.bytes += walked.bytes.len() as u64;
        for (address, name) in walked.names.drain() {
            self.names.entry(address).or_insert(name);
        }
        let regular = walked
            .records
            .iter()
            .all(|&(kind, len)| *self.strides.entry(kind).or_insert(len) == len);
        if regular {
            self.buffers.push(walked.bytes);
        } else {
            self.append_regular_runs(&walked);
        }
    }

    /// Keeps the records that can be stepped over by their kind's stride, and counts the others.
    #[cold]
    fn append_regular_runs(&mut self, walked: &Walked) {
        let mut at = 0;
        let mut run = Vec::new();
        for &(kind, len) in &walked.records {
            let record = &walked.bytes[at..at + len as usize];
            at += len as usize;
            if self.strides.get(&kind) == Some(&len) {
                run.extend_from_slice(record);
            } else {
                self.counts.irregular += 1;
            }
        }
        self.buffers.push(run);
    }
}
