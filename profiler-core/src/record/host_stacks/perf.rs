//! Samples one thread by `perf_event_open`: its stack at each interval of its CPU time, and its
//! stack when it left a CPU.

use std::io;
use std::time::Duration;

use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, SampleFlag, Sampler};

use super::sys::{self, Registers};

/// The number of bytes copied from a stack.
const STACK_BYTES: u32 = 32 << 10;
/// The bytes of a thread's buffer, which the kernel locks in memory.
const BUFFER_BYTES: usize = 512 << 10;

/// A record of the kernel about the thread.
#[derive(Debug)]
pub(super) enum Record<'a> {
    /// A sample while it ran, or, if the flag is set, when it left a CPU: registers, and the stack
    /// above the stack pointer.
    Sample(Registers, &'a [u8], bool),
    /// The thread left a CPU; true if it was runnable.
    Left(bool),
    /// The thread runs again.
    Runs,
    /// The number of records lost because the buffer was full.
    Lost(u64),
}

/// The events of a thread.
pub(super) struct PerfThread {
    records: Sampler,
    /// Samples when the thread leaves a CPU, in the same buffer.
    leaving: Option<Counter>,
}

/// The registers that unwinding needs, by perf's numbers: frame pointer, stack pointer, instruction
/// pointer.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8];
/// The same on this architecture: frame pointer, link register, stack pointer, instruction pointer.
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32];

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_RECORD_SWITCH: u32 = 14;
const PERF_RECORD_MISC_SWITCH_OUT: u16 = 1 << 13;
const PERF_RECORD_MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

impl PerfThread {
    /// Opens the events of a thread of this process. With `with_kernel`, it also samples while the
    /// kernel works for the thread, and when the thread leaves a CPU; this needs rights.
    pub(super) fn open(thread_id: u32, interval: Duration, with_kernel: bool) -> io::Result<Self> {
        let builder = |event: Software, period: u64| {
            let mut builder = Builder::new(event);
            // CAST: ids of threads are positive numbers of 32 bits.
            builder
                .observe_pid(thread_id as i32)
                .any_cpu()
                .exclude_kernel(!with_kernel)
                .sample_period(period.max(1))
                .sample(SampleFlag::IDENTIFIER | SampleFlag::TIME)
                .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER)
                .sample_regs_user(REGISTERS.iter().map(|at| 1 << at).sum())
                .sample_stack_user(STACK_BYTES)
                .sample_id_all(true)
                .clockid(Clock::MONOTONIC)
                // Nothing waits for the buffer.
                .wakeup_watermark(BUFFER_BYTES);
            builder
        };
        let period = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut running = builder(Software::TASK_CLOCK, period);
        let mut records =
            running.context_switch(true).build()?.sampled(BUFFER_BYTES).map_err(|error| {
                let what =
                    "the buffer (kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK bound all of them)";
                io::Error::new(error.kind(), format!("{what}: {error}"))
            })?;
        let mut leaving = None;
        if with_kernel {
            let mut event = builder(Software::CONTEXT_SWITCHES, 1).build()?;
            sys::share_buffer(&event, &records)?;
            event.enable()?;
            leaving = Some(event);
        }
        records.enable()?;
        Ok(Self { records, leaving })
    }

    /// Visits the records since the last call with their times, in buffer order.
    pub(super) fn take(&mut self, mut visit: impl FnMut(u64, Record<'_>)) {
        let leaving = self.leaving.as_ref().map(Counter::id);
        while let Some(record) = self.records.next_record() {
            let (kind, flags) = (record.ty(), record.misc());
            let bytes = record.to_contiguous();
            match kind {
                PERF_RECORD_SAMPLE => {
                    if let Some((id, time_ns, registers, stack)) = sample(&bytes) {
                        visit(time_ns, Record::Sample(registers, stack, leaving == Some(id)));
                    }
                }
                PERF_RECORD_SWITCH => {
                    let Some(time_ns) = Words(&bytes).next() else { continue };
                    visit(
                        time_ns,
                        match flags & PERF_RECORD_MISC_SWITCH_OUT != 0 {
                            true => Record::Left(flags & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0),
                            false => Record::Runs,
                        },
                    );
                }
                PERF_RECORD_LOST => {
                    let mut words = Words(&bytes);
                    if let (Some(_), Some(lost), Some(time_ns)) =
                        (words.next(), words.next(), words.next())
                    {
                        visit(time_ns, Record::Lost(lost));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Reads words from the beginning of some bytes.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
}

/// The content of a sample: id, time, the kind of registers, the registers, the stack with its
/// size, and the number of copied bytes.
fn sample(bytes: &[u8]) -> Option<(u64, u64, Registers, &[u8])> {
    let mut words = Words(bytes);
    let (id, time_ns, kind) = (words.next()?, words.next()?, words.next()?);
    // 2 for registers of 64 bits; 0 for none, if the thread is being created or ends.
    if kind != 2 {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    let registers = Registers { fp: words.next()?, sp: words.next()?, pc: words.next()? };
    #[cfg(target_arch = "aarch64")]
    let registers =
        Registers { fp: words.next()?, lr: words.next()?, sp: words.next()?, pc: words.next()? };
    let size = usize::try_from(words.next()?).ok()?;
    let (stack, rest) = words.0.split_at_checked(size)?;
    let copied = Words(rest).next().unwrap_or_default();
    Some((id, time_ns, registers, stack.get(..usize::try_from(copied).ok()?)?))
}
