//! The cubins of a collection that have a line table, and the source lines of sampled instructions.

use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::samples::{PcCubin, PcSamples, SourceLine};
use crate::sys::counters::PcSamplingApi;
use crate::sys::pc_sampling::source_line;

/// Finds lines, each once.
#[derive(Debug, Default)]
pub(super) struct LineFinder {
    cubins: Mutex<Cubins>,
    /// By cubin, symbol and offset.
    known: Mutex<FxHashMap<(u64, u32, u64), Option<SourceLine>>>,
}

#[derive(Debug, Default)]
struct Cubins {
    by_crc: FxHashMap<u64, Arc<[u8]>>,
    bytes: usize,
}

/// A cubin that is held.
pub(super) enum Added {
    New(PcCubin),
    Known,
}

impl LineFinder {
    /// Holds a cubin; `None` if there is no room.
    pub(super) fn add(&self, crc: u64, cubin: &[u8], max_bytes: usize) -> Option<Added> {
        let mut cubins = self.cubins.lock();
        if cubins.by_crc.contains_key(&crc) {
            return Some(Added::Known);
        }
        if cubin.len() > max_bytes.saturating_sub(cubins.bytes) {
            return None;
        }
        let bytes: Arc<[u8]> = cubin.into();
        cubins.bytes += bytes.len();
        cubins.by_crc.insert(crc, bytes.clone());
        Some(Added::New(PcCubin { crc, bytes }))
    }

    /// Sets the lines of instructions.
    pub(super) fn find(&self, api: &PcSamplingApi, samples: &mut PcSamples) {
        // A module may be loaded meanwhile: its callback waits for the lock.
        let cubin_of = |crc| self.cubins.lock().by_crc.get(&crc).cloned();
        let functions = samples.functions.iter().map(|function| {
            let name = CString::new(&*function.name).ok();
            (function.cubin_crc, function.index, cubin_of(function.cubin_crc).zip(name))
        });
        let functions: Vec<_> = functions.collect();
        let mut indices: FxHashMap<SourceLine, u32> = FxHashMap::default();
        let mut known = self.known.lock();
        for instruction in &mut samples.instructions {
            let (crc, symbol, Some((cubin, name))) = &functions[instruction.function as usize]
            else {
                continue;
            };
            let offset = instruction.pc_offset;
            let line = known.entry((*crc, *symbol, offset)).or_insert_with(|| {
                let found = source_line(api, cubin, name, offset).ok();
                found.and_then(SourceLine::new)
            });
            instruction.line = line.as_ref().map(|line| match indices.get(line) {
                Some(index) => *index,
                None => {
                    let index = samples.lines.len() as u32;
                    samples.lines.push(line.clone());
                    indices.insert(line.clone(), index);
                    index
                }
            });
        }
    }

    /// Bytes of the held cubins.
    pub(super) fn held_bytes(&self) -> usize {
        self.cubins.lock().bytes
    }
}
