//! Instruction samples of a recording: slices of time, with samples by instruction and stall.
//!
//! A frame of a recording has a JSON head, varints (LEB128) for instructions and rows, and cubins.

use std::sync::Arc;

use cupti::pc_sampling::{PcContext, PcFunction, PcRecord, PcSamples, PcSlice};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::record::json::json_object;
use crate::record::series::Failure;
use crate::record::stall::Stall;

/// The instruction samples of a session, or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InstructionLog {
    pub(crate) head: Head,
    pub(crate) instructions: Vec<Instruction>,
    /// Slice by slice.
    pub(crate) rows: Vec<Row>,
    /// The cubins that were kept, each once, by their CRC.
    pub(crate) cubins: Vec<(u64, Arc<[u8]>)>,
    /// The GPU time of launches outside the session's windows, by slice and function; of one function
    /// of each kernel. Not in recordings: the join finds them.
    pub(crate) outside_ns: Vec<(u32, u32, u64)>,
}

json_object! {
    /// A log without its instructions and rows, as JSON.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Head {
        pub(crate) functions: Vec<SampledFunction> = required,
        /// Names of source files, without folders.
        pub(crate) files: Vec<String> = required,
        pub(crate) contexts: Vec<SampledContext> = required,
        pub(crate) slices: Vec<Slice> = required,
        /// The stalls to which rows refer.
        pub(crate) stalls: Vec<Stall> = required,
        pub(crate) losses: InstructionLosses = required,
        /// The reason why nothing was sampled, or not until the end.
        pub(crate) failure: Option<Failure> = optional,
        /// The number of instructions.
        instructions: u64 = required,
        cubins: Vec<CubinHead> = optional,
    }
}

json_object! {
    /// A function of the GPU.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub(crate) struct SampledFunction {
        /// Its symbol.
        pub(crate) symbol: String = required,
        /// The CRC of its cubin.
        pub(crate) cubin: u64 = required,
    }
}

json_object! {
    /// A cubin in a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct CubinHead {
        crc: u64 = required,
        bytes: u64 = required,
    }
}

json_object! {
    /// A context of the process, sampled or not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SampledContext {
        pub(crate) id: u32 = required,
        pub(crate) begin_ns: u64 = required,
        pub(crate) end_ns: Option<u64> = optional,
        pub(crate) failure: Option<Failure> = optional,
    }
}

json_object! {
    /// The samples of a context at a reading.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Slice {
        /// The earliest time at which they were taken: CUPTI decodes them later.
        pub(crate) since_ns: u64 = required,
        /// The times of the previous reading and of this one.
        pub(crate) begin_ns: u64 = required,
        pub(crate) end_ns: u64 = required,
        pub(crate) context: u32 = required,
        /// The number of its rows.
        pub(crate) rows: u64 = required,
        pub(crate) total: u64 = required,
        pub(crate) dropped: u64 = optional,
        pub(crate) non_user: u64 = optional,
        pub(crate) is_full: bool = optional,
    }
}

json_object! {
    /// Losses that no slice has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct InstructionLosses {
        pub(crate) over_limit: u64 = optional,
        pub(crate) failed_reads: u64 = optional,
        pub(crate) missed_ends: u64 = optional,
        pub(crate) cubins: u64 = optional,
    }
}

impl InstructionLosses {
    fn add(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.over_limit, other.over_limit),
            (&mut self.failed_reads, other.failed_reads),
            (&mut self.missed_ends, other.missed_ends),
            (&mut self.cubins, other.cubins),
        ] {
            *sum = sum.saturating_add(count);
        }
    }
}

/// An instruction of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) function: u32,
    /// In bytes from the begin of the function.
    pub(crate) offset: u32,
    /// The file, and the line in it.
    pub(crate) line: Option<(u32, u32)>,
}

/// Samples of an instruction in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) instruction: u32,
    /// Its position in the head's stalls.
    pub(crate) stall: u32,
    pub(crate) samples: u32,
    /// Of these, samples in which no warp of the scheduler issued.
    pub(crate) not_issued: u32,
    /// The correlation id of the launch in serialised mode; 0 otherwise.
    pub(crate) correlation_id: u32,
}

/// The most stall reasons of a context.
const MOST_REASONS: u32 = 1 << 10;

/// Limits a count of a drain to 32 bits.
fn count(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl SampledContext {
    fn new(context: &PcContext) -> Self {
        let failure = context.error.as_ref().map(Failure::of_cupti);
        let (id, begin_ns, end_ns) = (context.id, context.begin_ns, context.end_ns);
        Self { id, begin_ns, end_ns, failure }
    }
}

impl InstructionLog {
    /// The samples of a drain.
    pub(crate) fn new(samples: &PcSamples) -> Self {
        let mut log = Self::default();
        let function = |function: &PcFunction| SampledFunction {
            symbol: function.name.to_string(),
            cubin: function.cubin_crc,
        };
        log.head.functions = samples.functions.iter().map(function).collect();
        let mut files: FxHashMap<&str, u32> = FxHashMap::default();
        let lines = samples.lines.iter().map(|line| {
            let name = line.file.rsplit('/').next().unwrap_or(&line.file);
            let next = files.len() as u32;
            let file = *files.entry(name).or_insert_with(|| {
                log.head.files.push(name.to_owned());
                next
            });
            (file, line.line)
        });
        let lines: Vec<(u32, u32)> = lines.collect();
        log.instructions = samples
            .instructions
            .iter()
            .map(|one| Instruction {
                function: one.function,
                offset: count(one.pc_offset),
                line: one.line.map(|line| lines[line as usize]),
            })
            .collect();
        log.head.stalls = Stall::ALL.to_vec();
        for slice in &samples.slices {
            let context = samples.context(slice.context);
            log.add_slice(slice, context.map_or(&[], |context| &context.stall_reasons));
        }
        let head = &mut log.head;
        head.contexts = samples.contexts.iter().map(SampledContext::new).collect();
        head.losses = InstructionLosses {
            over_limit: samples.losses.over_max_records,
            failed_reads: samples.losses.failed_reads,
            missed_ends: samples.losses.missed_ends,
            cubins: samples.losses.cubins_left_out,
        };
        head.failure = samples.failure.as_ref().map(Failure::of_cupti);
        let cubins = samples.cubins.iter();
        log.cubins = cubins.map(|cubin| (cubin.crc(), cubin.bytes().into())).collect();
        log
    }

    /// Adds a slice, with a row for each stall of an instruction.
    fn add_slice(&mut self, slice: &PcSlice, reasons: &[(u32, String)]) {
        let last = reasons.iter().map(|(index, _)| *index).max().unwrap_or(0);
        // CUPTI numbers its reasons from 0.
        let mut stalls = vec![(Stall::Other, false); last.min(MOST_REASONS) as usize + 1];
        for (index, name) in reasons {
            if let Some(stall) = stalls.get_mut(*index as usize) {
                *stall = Stall::of_cupti(name);
            }
        }
        let first = self.rows.len();
        let key = |record: &PcRecord| (record.instruction, record.correlation_id);
        for records in slice.records.chunk_by(|a, b| key(a) == key(b)) {
            let mut sums = [(0_u32, 0_u32); Stall::ALL.len()];
            for record in records {
                let known = stalls.get(record.stall_reason as usize).copied();
                let (stall, is_not_issued) = known.unwrap_or((Stall::Other, false));
                let (samples, not_issued) = &mut sums[stall as usize];
                let sum = if is_not_issued { not_issued } else { samples };
                *sum = sum.saturating_add(count(record.samples));
            }
            let (instruction, correlation_id) = key(&records[0]);
            let rows = (0..).zip(sums).filter(|(_, sums)| *sums != (0, 0));
            self.rows.extend(rows.map(|(stall, (samples, not_issued))| Row {
                instruction,
                stall,
                samples,
                not_issued,
                correlation_id,
            }));
        }
        self.head.slices.push(Slice {
            since_ns: slice.since_ns,
            begin_ns: slice.begin_ns,
            end_ns: slice.end_ns,
            context: slice.context,
            rows: (self.rows.len() - first) as u64,
            total: slice.total_samples,
            dropped: slice.dropped_samples,
            non_user: slice.non_user_samples,
            is_full: slice.hardware_buffer_full,
        });
    }

    /// True if there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        let Head { contexts, slices, losses, failure, .. } = &self.head;
        contexts.is_empty()
            && slices.is_empty()
            && self.cubins.is_empty()
            && failure.is_none()
            && *losses == InstructionLosses::default()
    }

    /// The slices, each with its rows.
    pub(crate) fn slices(&self) -> impl Iterator<Item = (&Slice, &[Row])> {
        let mut rest = &self.rows[..];
        self.head.slices.iter().map(move |slice| {
            let rows;
            // The rows were counted when the log was read.
            (rows, rest) = rest.split_at(rest.len().min(slice.rows as usize));
            (slice, rows)
        })
    }

    /// The slices alone, whose samples count as samples over the limit.
    pub(crate) fn without_rows(&self) -> Self {
        let mut head = self.head.clone();
        let samples = self.rows.iter().map(|row| u64::from(row.samples)).sum::<u64>();
        head.losses.over_limit = head.losses.over_limit.saturating_add(samples);
        head.slices.iter_mut().for_each(|slice| slice.rows = 0);
        (head.functions, head.files) = Default::default();
        Self { head, cubins: self.cubins.clone(), ..Self::default() }
    }

    /// Removes slices; `keep` gets their positions.
    pub(crate) fn retain_slices(&mut self, keep: impl Fn(u32, &Slice) -> bool) {
        let kept = self.slices().zip(0..).filter(|((slice, _), at)| keep(*at, slice));
        let kept: Vec<(Slice, Vec<Row>)> =
            kept.map(|((slice, rows), _)| (*slice, rows.to_vec())).collect();
        (self.head.slices, self.rows) = (Vec::new(), Vec::new());
        for (slice, rows) in kept {
            self.head.slices.push(slice);
            self.rows.extend(rows);
        }
    }

    /// Changes the times to another clock.
    pub(crate) fn change_times(&mut self, change: impl Fn(u64) -> u64) {
        for slice in &mut self.head.slices {
            for ns in [&mut slice.since_ns, &mut slice.begin_ns, &mut slice.end_ns] {
                *ns = change(*ns);
            }
        }
        for context in &mut self.head.contexts {
            context.begin_ns = change(context.begin_ns);
            context.end_ns = context.end_ns.map(&change);
        }
    }

    /// Returns the head of a frame, and its other content.
    pub(crate) fn to_frame(&self) -> (Head, Vec<u8>) {
        let of_cubin =
            |(crc, elf): &(u64, Arc<[u8]>)| CubinHead { crc: *crc, bytes: elf.len() as u64 };
        let head = Head {
            instructions: self.instructions.len() as u64,
            cubins: self.cubins.iter().map(of_cubin).collect(),
            ..self.head.clone()
        };
        let mut bytes = Vec::new();
        let mut put = |number: u32| put_varint(&mut bytes, number);
        for one in &self.instructions {
            let (file, line) = one.line.map_or((0, 0), |(file, line)| (file + 1, line));
            [one.function, one.offset, file, line].into_iter().for_each(&mut put);
        }
        for (_, rows) in self.slices() {
            let mut last = 0;
            for row in rows {
                put(row.instruction.wrapping_sub(last));
                last = row.instruction;
                [row.stall, row.samples, row.not_issued, row.correlation_id]
                    .into_iter()
                    .for_each(&mut put);
            }
        }
        self.cubins.iter().for_each(|(_, elf)| bytes.extend_from_slice(elf));
        (head, bytes)
    }

    /// Reads a frame; `None` if it is damaged.
    pub(crate) fn from_frame(head: Head, mut bytes: &[u8]) -> Option<Self> {
        let mut log = Self { head, ..Self::default() };
        let (functions, files) = (log.head.functions.len(), log.head.files.len());
        let is_of = |number: u32, count: usize| (number as usize) < count;
        for _ in 0..log.head.instructions {
            let [function, offset, file, line] = take_varints(&mut bytes)?;
            let line = file.checked_sub(1).map(|file| (file, line));
            let is_known = line.is_none_or(|(file, _)| is_of(file, files));
            (is_of(function, functions) && is_known).then_some(())?;
            log.instructions.push(Instruction { function, offset, line });
        }
        for slice in &log.head.slices {
            let mut instruction = 0_u32;
            for _ in 0..slice.rows {
                let [step, stall, samples, not_issued, correlation_id] = take_varints(&mut bytes)?;
                instruction = instruction.wrapping_add(step);
                let is_known = is_of(instruction, log.instructions.len())
                    && is_of(stall, log.head.stalls.len());
                is_known.then_some(())?;
                log.rows.push(Row { instruction, stall, samples, not_issued, correlation_id });
            }
        }
        for CubinHead { crc, bytes: length } in std::mem::take(&mut log.head.cubins) {
            let elf;
            (elf, bytes) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
            log.cubins.push((crc, elf.into()));
        }
        bytes.is_empty().then_some(log)
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u64;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(number).ok();
        }
    }
    None
}

fn take_varints<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u32; COUNT]> {
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = take_varint(bytes)?;
    }
    Some(numbers)
}

/// Appends logs to one, in time that depends on the appended log alone.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    log: InstructionLog,
    functions: FxHashMap<SampledFunction, u32>,
    files: FxHashMap<String, u32>,
    instructions: FxHashMap<(u32, u32), u32>,
    contexts: FxHashMap<(u32, u64), usize>,
    cubins: FxHashSet<u64>,
}

impl Merger {
    fn function(&mut self, function: SampledFunction) -> u32 {
        let all = &mut self.log.head.functions;
        *self.functions.entry(function).or_insert_with_key(|function| {
            all.push(function.clone());
            all.len() as u32 - 1
        })
    }

    fn file(&mut self, name: &str) -> u32 {
        if let Some(known) = self.files.get(name) {
            return *known;
        }
        let all = &mut self.log.head.files;
        all.push(name.to_owned());
        self.files.insert(name.to_owned(), all.len() as u32 - 1);
        all.len() as u32 - 1
    }

    /// The row of an instruction. A line that was found once is that of all its samples.
    fn instruction(&mut self, one: Instruction) -> u32 {
        let all = &mut self.log.instructions;
        let row = *self.instructions.entry((one.function, one.offset)).or_insert_with(|| {
            all.push(Instruction { line: None, ..one });
            all.len() as u32 - 1
        });
        let line = &mut all[row as usize].line;
        *line = line.or(one.line);
        row
    }

    fn stall(&mut self, stall: Stall) -> u32 {
        let all = &mut self.log.head.stalls;
        let known = all.iter().position(|known| *known == stall);
        known.unwrap_or_else(|| {
            all.push(stall);
            all.len() - 1
        }) as u32
    }

    /// Appends a log. Slices outside the window are left out.
    pub(crate) fn add(&mut self, part: &InstructionLog, window_ns: (u64, u64)) {
        let Head { functions, files, contexts, stalls, losses, failure, .. } = &part.head;
        let functions: Vec<u32> = functions.iter().map(|one| self.function(one.clone())).collect();
        let files: Vec<u32> = files.iter().map(|file| self.file(file)).collect();
        let stalls: Vec<u32> = stalls.iter().map(|stall| self.stall(*stall)).collect();
        let instructions = part.instructions.iter().map(|one| {
            let line = one.line.map(|(file, line)| (files[file as usize], line));
            let function = functions[one.function as usize];
            self.instruction(Instruction { function, line, ..*one })
        });
        let instructions: Vec<u32> = instructions.collect();
        for (slice, rows) in part.slices() {
            if slice.end_ns <= window_ns.0 || slice.begin_ns >= window_ns.1 {
                continue;
            }
            self.log.head.slices.push(*slice);
            self.log.rows.extend(rows.iter().map(|row| Row {
                instruction: instructions[row.instruction as usize],
                stall: stalls[row.stall as usize],
                ..*row
            }));
        }
        for cubin in &part.cubins {
            if self.cubins.insert(cubin.0) {
                self.log.cubins.push(cubin.clone());
            }
        }
        for context in contexts {
            let all = &mut self.log.head.contexts;
            let place = self.contexts.entry((context.id, context.begin_ns));
            let place = *place.or_insert_with(|| {
                all.push(context.clone());
                all.len() - 1
            });
            all[place] = context.clone();
        }
        self.log.head.losses.add(losses);
        if failure.is_some() {
            self.log.head.failure.clone_from(failure);
        }
    }

    /// `None` if nothing was added.
    pub(crate) fn finish(self) -> Option<InstructionLog> {
        Some(self.log).filter(|log| !log.is_empty())
    }
}
