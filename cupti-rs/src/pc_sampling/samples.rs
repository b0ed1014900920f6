//! The samples of a drain.

use std::fmt;
use std::sync::Arc;

use crate::accessors::getters;
use crate::error::Error;

/// Instruction samples of a collection since its previous drain.
///
/// Instructions, functions and lines are named by their index in this value; a later drain has
/// indices of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PcSamples {
    /// The slices, in the order of their ends.
    pub slices: Vec<PcSlice>,
    /// The instructions of the records.
    pub instructions: Vec<PcInstruction>,
    /// Their functions.
    pub functions: Vec<PcFunction>,
    /// Their source lines.
    pub lines: Vec<SourceLine>,
    /// The contexts of this process: those sampled, those that ended since the previous drain, and
    /// those that are not sampled, with the reason.
    pub contexts: Vec<PcContext>,
    /// The cubins with a line table that were loaded since the previous drain, each once; empty
    /// without [`PcSampling::keep_cubins`](crate::PcSampling::keep_cubins).
    pub cubins: Vec<PcCubin>,
    /// Losses since the previous drain.
    pub losses: PcLosses,
    /// The reason why nothing is sampled, if it does not depend on the context:
    /// [`is_unsupported`](Error::is_unsupported) if the library lacks the functions.
    pub failure: Option<Error>,
}

/// The samples of one context between two readings, or between several that found no records.
/// CUPTI's samples have no times, and it decodes them in batches, some 100 ms apart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcSlice {
    /// The time since which its samples were taken, usually that of the third reading before this
    /// one. After readings without samples it is earlier.
    pub since_ns: u64,
    /// The time of the previous reading, in [`clock::now_ns`](crate::clock::now_ns) time.
    pub begin_ns: u64,
    /// The time of this reading.
    pub end_ns: u64,
    /// CUPTI's id of the context, as in activity records.
    pub context: u32,
    /// The samples, by instruction, stall reason and launch; each combination once.
    pub records: Vec<PcRecord>,
    /// All samples (`totalSamples`): those of `records`, dropped ones, and those of kernels without
    /// records.
    pub total_samples: u64,
    /// Samples that the hardware dropped (`droppedSamples`).
    pub dropped_samples: u64,
    /// Samples of kernels that CUPTI has no records for (`nonUsrKernelsTotalSamples`).
    pub non_user_samples: u64,
    /// True if the hardware's buffer was full (`hardwareBufferFull`, or OUT_OF_MEMORY). The samples
    /// since then are lost, and CUPTI may not recover.
    pub hardware_buffer_full: bool,
}

/// Samples of one instruction with one stall reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct PcRecord {
    /// The index of the instruction in [`PcSamples::instructions`].
    pub instruction: u32,
    /// The index of the stall reason, by which [`PcContext::stall_reason`] finds its name.
    pub stall_reason: u32,
    /// The correlation id of the launch in serialised mode; 0 in continuous mode.
    pub correlation_id: u32,
    /// The number of samples.
    pub samples: u64,
}

/// An instruction of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcInstruction {
    /// The index of the function in [`PcSamples::functions`].
    pub function: u32,
    /// Its offset in bytes from the begin of the function.
    pub pc_offset: u64,
    /// The index of its line in [`PcSamples::lines`]; `None` if its cubin has no line table, or was
    /// loaded before the collection began.
    pub line: Option<u32>,
}

/// A function of a cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcFunction {
    /// The function's symbol.
    pub name: Arc<str>,
    /// Its index in the symbols of the cubin.
    pub index: u32,
    /// The CRC of its cubin, as in [`PcCubin::crc`].
    pub cubin_crc: u64,
}

/// A context of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcContext {
    /// CUPTI's id of the context.
    pub id: u32,
    /// The device's ordinal.
    pub device: u32,
    /// When its sampling began.
    pub begin_ns: u64,
    /// When its sampling ended; `None` while it is sampled.
    pub end_ns: Option<u64>,
    /// True if the context existed before the collection's start. Cubins that it had loaded by then
    /// are missing.
    pub existed: bool,
    /// The reason why it is not sampled, or why its last samples are missing:
    /// [`is_permission`](Error::is_permission), [`is_busy`](Error::is_busy),
    /// [`is_unsupported`](Error::is_unsupported), or a setting that CUPTI refuses.
    pub error: Option<Error>,
    /// The names of stall reasons, by index. Reasons that end in `_not_issued` count samples that
    /// another reason counts too, those in which no warp could issue: never add up both.
    pub stall_reasons: Arc<[(u32, String)]>,
}

/// The ending of a stall reason that counts a part of another one's samples.
const NOT_ISSUED: &str = "_not_issued";

impl PcContext {
    /// The name of a stall reason.
    pub fn stall_reason(&self, index: u32) -> Option<&str> {
        let found = self.stall_reasons.iter().find(|(other, _)| *other == index);
        found.map(|(_, name)| name.as_str())
    }
}

/// A line of a program's source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SourceLine {
    /// The folder, as the compiler wrote it; may be empty.
    pub folder: String,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl SourceLine {
    /// `None` for CUPTI's answer that an instruction has no line.
    pub(super) fn new((folder, file, line): (String, String, u32)) -> Option<Self> {
        (!file.is_empty() && line != 0).then_some(Self { folder, file, line })
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.folder.is_empty() {
            write!(f, "{}/", self.folder)?;
        }
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A loaded cubin that has a line table, as CUPTI passed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PcCubin {
    pub(super) crc: u64,
    /// CUPTI does not check what it reads: only its own bytes are passed to it.
    pub(super) bytes: Arc<[u8]>,
}

impl PcCubin {
    getters! {
        /// The CRC by which functions name it.
        crc: u64 = crc;
        /// The ELF file.
        bytes: &[u8] = bytes;
    }
}

/// Losses of instruction samples, besides those that [`PcSlice`] has; all zero in a good run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PcLosses {
    /// Samples beyond [`PcSampling::max_records`](crate::PcSampling::max_records).
    pub over_max_records: u64,
    /// Readings that CUPTI refused. Their samples may be in the next slice.
    pub failed_reads: u64,
    /// Modules and contexts that ended while another thread was reading, or contexts while one
    /// launched, for more than a second: their last samples are missing or belong to another
    /// function.
    pub missed_ends: u64,
    /// Cubins with a line table beyond
    /// [`PcSampling::max_cubin_bytes`](crate::PcSampling::max_cubin_bytes), or whose CRC CUPTI
    /// refused: their instructions have no lines.
    pub cubins_left_out: u64,
}

impl PcSamples {
    /// The context with this id.
    pub fn context(&self, id: u32) -> Option<&PcContext> {
        self.contexts.iter().find(|context| context.id == id)
    }

    /// The function of a record.
    pub fn function(&self, record: &PcRecord) -> Option<&PcFunction> {
        let instruction = self.instructions.get(record.instruction as usize)?;
        self.functions.get(instruction.function as usize)
    }

    /// The samples of all records, each counted once: without the reasons that end in
    /// `_not_issued`. With dropped and non-user samples they are at most the slices' total; the rest
    /// have no stall reason.
    pub fn recorded_samples(&self) -> u64 {
        let in_slice = |slice: &PcSlice| -> u64 {
            let context = self.context(slice.context);
            let is_counted = |record: &&PcRecord| {
                let name = context.and_then(|context| context.stall_reason(record.stall_reason));
                name.is_none_or(|name| !name.ends_with(NOT_ISSUED))
            };
            slice.records.iter().filter(is_counted).map(|record| record.samples).sum()
        };
        self.slices.iter().map(in_slice).sum()
    }
}
