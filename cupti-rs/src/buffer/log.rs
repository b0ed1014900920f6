//! The append-only log of activity bytes: CUPTI's output byte for byte, with the data to read it
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::pointers::{self, Taken};
use super::walk::Walked;
use crate::record::RecordBytes;
use crate::version::Version;

/// The process's one log. Only buffer completions and the collector's own calls take the lock,
/// never a CUDA call of the application. No CUPTI function is called under it.
pub(crate) static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// Everything that CUPTI delivered in one collection.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Runs of whole records that were not drained. Within a run every record has the stride of its
    /// kind.
    pub(crate) buffers: Vec<Arc<Vec<u8>>>,
    /// Bytes from one record to the next, by kind, as the library stepped.
    pub(crate) strides: BTreeMap<u32, u32>,
    /// The texts that `buffers` point to, by the address in the records or by a key that replaced
    /// it.
    pub(crate) names: Arc<FxHashMap<u64, Arc<str>>>,
    /// Other bytes that records point to, by such a key; each belongs to one record.
    pub(crate) data: Arc<FxHashMap<u64, Vec<u8>>>,
    pub(crate) counts: LogCounts,
    /// Every address of the collection so far with its first text: an address or key has one text
    /// during the whole collection.
    known: FxHashMap<u64, Arc<str>>,
    /// The keys of texts whose address is ambiguous.
    keys: FxHashMap<Arc<str>, u64>,
    last_key: u64,
    /// Bytes of the buffers.
    pub(crate) held: u64,
    limit: u64,
}

/// Counts since the collection's start.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LogCounts {
    /// Records discarded because the log was full.
    pub(crate) over_limit: u64,
    /// Records whose length does not match their kind, or from a newer library whose layout may
    /// differ.
    pub(crate) irregular: u64,
    /// Bytes that the library's iterator could not step over.
    pub(crate) unreadable_bytes: u64,
    /// Records of buffers that were not available.
    pub(crate) refused: u64,
    /// Records from before the profiler switch was first on.
    pub(crate) before_switch: u64,
    /// Buffers that CUPTI returned with a size other than their own.
    pub(crate) mismatched_buffers: u64,
}

/// Adds to a count. Some counts are CUPTI's and may have any value.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

impl Log {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Copies the stored data for reading only; the bytes are shared.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            buffers: self.buffers.clone(),
            strides: self.strides.clone(),
            names: self.names.clone(),
            data: self.data.clone(),
            counts: self.counts,
            ..Self::default()
        }
    }

    /// As [`snapshot`](Self::snapshot), and drops the records and their names. The cost grows with
    /// the data since the last drain, not with the collection.
    pub(crate) fn drain(&mut self) -> Self {
        let drained = self.snapshot();
        self.buffers.clear();
        self.names = Arc::default();
        self.data = Arc::default();
        self.held = 0;
        drained
    }

    /// The records, as a library of this version wrote them.
    pub(crate) fn into_records(self, version: Version) -> RecordBytes {
        let Self { buffers, strides, names, data, .. } = self;
        RecordBytes { version, buffers, strides, names, data }
    }

    /// Counts the records of a buffer that was not available.
    pub(super) fn refuse(&mut self, walked: &Walked) {
        add(&mut self.counts.refused, walked.records.len() as u64);
        add(&mut self.counts.unreadable_bytes, walked.unreadable);
    }

    /// Counts records from before the profiler switch was first on.
    pub(super) fn before_switch(&mut self, walked: &Walked) {
        add(&mut self.counts.before_switch, walked.records.len() as u64);
    }

    /// Counts a buffer that was returned with a size other than its own, and the valid bytes that
    /// cannot be read.
    pub(super) fn mismatch(&mut self, unreadable: u64) {
        add(&mut self.counts.mismatched_buffers, 1);
        add(&mut self.counts.unreadable_bytes, unreadable);
    }

    pub(super) fn append(&mut self, mut walked: Walked) {
        add(&mut self.counts.unreadable_bytes, walked.unreadable);
        if walked.records.is_empty() {
            return;
        }
        let held = self.held.saturating_add(walked.bytes.len() as u64);
        if held > self.limit {
            add(&mut self.counts.over_limit, walked.records.len() as u64);
            return;
        }
        self.held = held;
        let irregular = self.counts.irregular;
        self.keep_names(&mut walked);
        self.keep_taken(&mut walked);
        let regular = walked
            .records
            .iter()
            .all(|&(kind, len)| *self.strides.entry(kind).or_insert(len) == len);
        if regular {
            self.buffers.push(Arc::new(walked.bytes));
        } else {
            self.append_regular_runs(&walked);
        }
        // Records beside others of their kind were counted for their length.
        let counted = self.counts.irregular - irregular;
        let unknown = walked.unknown_layouts.saturating_sub(counted);
        add(&mut self.counts.irregular, unknown);
    }

    /// Returns a key that is not an address: user-space addresses leave the highest bit free.
    fn new_key(&mut self) -> u64 {
        self.last_key += 1;
        1 << 63 | self.last_key
    }

    fn key_of(&mut self, text: &str) -> u64 {
        let (key, text) = match self.keys.get_key_value(text) {
            Some((text, &key)) => (key, text.clone()),
            None => {
                let (key, text) = (self.new_key(), Arc::<str>::from(text));
                self.keys.insert(text.clone(), key);
                (key, text)
            }
        };
        self.keep_name(key, text);
        key
    }

    /// Adds a name. Copies the names that a snapshot shares, and only if the name is new.
    fn keep_name(&mut self, key: u64, text: Arc<str>) {
        if !self.names.contains_key(&key) {
            Arc::make_mut(&mut self.names).insert(key, text);
        }
    }

    /// Stores a buffer's texts by their addresses. If an address had another text in an earlier
    /// buffer (a module was unloaded, and another loaded at its address), this buffer's records get
    /// a key instead.
    fn keep_names(&mut self, walked: &mut Walked) {
        let mut changed = FxHashMap::default();
        for (address, name) in walked.names.drain() {
            let known = self.known.entry(address).or_insert_with(|| name.as_str().into());
            if **known == *name {
                let text = known.clone();
                self.keep_name(address, text);
            } else {
                changed.insert(address, name);
            }
        }
        self.keep_names_of_last(walked);
        if changed.is_empty() {
            return;
        }
        let keys: FxHashMap<u64, u64> =
            changed.into_iter().map(|(address, name)| (address, self.key_of(&name))).collect();
        let mut at = 0;
        for &(kind, len) in &walked.records {
            for &offset in pointers::texts(kind, walked.release)
                .iter()
                .filter(|&&offset| offset + 8 <= len as usize)
            {
                let pointer = walked.bytes[at + offset..].first_chunk_mut();
                if let Some(pointer) = pointer
                    && let Some(key) = keys.get(&u64::from_ne_bytes(*pointer))
                {
                    *pointer = key.to_ne_bytes();
                }
            }
            at += len as usize;
        }
    }

    /// The last record before bytes that could not be read has pointers that were not followed. Its
    /// name was read from an earlier buffer, or is unknown.
    fn keep_names_of_last(&mut self, walked: &Walked) {
        let Some(&(kind, len)) = walked.records.last().filter(|_| walked.unreadable != 0) else {
            return;
        };
        let record = &walked.bytes[walked.bytes.len() - len as usize..];
        for &offset in pointers::texts(kind, walked.release) {
            let pointer = record.get(offset..).and_then(|rest| rest.first_chunk());
            let address = pointer.map_or(0, |pointer| u64::from_ne_bytes(*pointer));
            if let Some(text) = self.known.get(&address).cloned() {
                self.keep_name(address, text);
            }
        }
    }

    /// Stores the data from memory that is freed by now, and replaces the records' pointers by
    /// keys: an address may be reused.
    fn keep_taken(&mut self, walked: &mut Walked) {
        for (at, taken) in walked.taken.drain(..) {
            let key = match taken {
                Taken::Text(text) => self.key_of(&text),
                Taken::Data(bytes) => {
                    let key = self.new_key();
                    Arc::make_mut(&mut self.data).insert(key, bytes);
                    key
                }
            };
            if let Some(pointer) = walked.bytes[at..].first_chunk_mut() {
                *pointer = key.to_ne_bytes();
            }
        }
    }

    /// Stores the records that can be stepped over by their kind's stride, and counts the others.
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
                add(&mut self.counts.irregular, 1);
            }
        }
        self.buffers.push(Arc::new(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ActivityKind;
    use crate::record::{NameKey, Record};
    use crate::sys::generated::kernel;

    const ADDRESS: u64 = 0x7f00_0000_1000;
    const OTHER: u64 = 0x7f00_0000_2000;

    /// A buffer of kernels with the names at these addresses, as the walk gives it.
    fn walked(kernels: &[(u64, &str)]) -> Walked {
        let mut walked = Walked::default();
        for &(address, name) in kernels {
            let mut record = vec![0; kernel::STRIDES[0].1];
            record[..4].copy_from_slice(&ActivityKind::CONCURRENT_KERNEL.0.to_ne_bytes());
            let at = kernel::NAME.offset();
            record[at..at + 8].copy_from_slice(&address.to_ne_bytes());
            walked.records.push((ActivityKind::CONCURRENT_KERNEL.0, record.len() as u32));
            walked.bytes.extend_from_slice(&record);
            walked.names.insert(address, name.to_owned());
        }
        walked
    }

    #[test]
    fn renamed_address_has_both_names() {
        let mut log = Log::new(u64::MAX);
        log.append(walked(&[(ADDRESS, "first"), (OTHER, "steady")]));
        log.append(walked(&[(ADDRESS, "second"), (OTHER, "steady"), (ADDRESS, "second")]));
        log.append(walked(&[(ADDRESS, "first")]));
        log.append(walked(&[(ADDRESS, "second")]));
        let records = log.into_records(Version(18));
        let names: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                Record::Kernel(kernel) => records.name(kernel.name),
                _ => None,
            })
            .collect();
        let expected = ["first", "steady", "second", "steady", "second", "first", "second"];
        assert_eq!(names, expected);
        let keys: Vec<_> =
            records.names().map(|(key, _)| key).filter(|key| key.0 >> 63 == 1).collect();
        assert_eq!(keys, [NameKey(1 << 63 | 1)], "one key for one text");
    }
    /// What a drain gives after this many different names were drained one by one.
    fn names_of_a_late_drain(drains: u64) -> (usize, usize) {
        let mut log = Log::new(u64::MAX);
        for drain in 0..drains {
            log.append(walked(&[(ADDRESS + 16 * drain, &format!("kernel {drain}"))]));
            assert_eq!(log.drain().names.len(), 1);
        }
        log.append(walked(&[(OTHER, "late"), (ADDRESS, "kernel 0")]));
        let known = log.known.len();
        (log.drain().names.len(), known)
    }

    #[test]
    fn a_drain_has_the_names_of_its_own_records_and_copies_no_other() {
        assert_eq!(names_of_a_late_drain(10), (2, 11));
        assert_eq!(names_of_a_late_drain(200), (2, 201));
    }

    #[test]
    fn an_address_means_one_text_in_all_drains() {
        let mut log = Log::new(u64::MAX);
        log.append(walked(&[(ADDRESS, "first")]));
        let mut all = log.drain().into_records(Version(18));
        for text in ["second", "first", "second"] {
            log.append(walked(&[(ADDRESS, text)]));
            all.append(&log.drain().into_records(Version(18)));
        }
        let names: Vec<_> = all
            .iter()
            .filter_map(|record| match record {
                Record::Kernel(kernel) => all.name(kernel.name),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["first", "second", "first", "second"]);
    }

    #[test]
    fn the_last_record_before_unreadable_bytes_has_a_name_that_was_drained_before() {
        let mut log = Log::new(u64::MAX);
        log.append(walked(&[(ADDRESS, "first"), (OTHER, "other")]));
        log.drain();
        let mut cut = walked(&[(ADDRESS, "")]);
        cut.names.clear();
        cut.unreadable = 3;
        log.append(cut);
        let drained = log.drain();
        let names: Vec<&str> = drained.names.values().map(|name| &**name).collect();
        assert_eq!(names, ["first"]);
    }
}
