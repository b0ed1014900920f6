//! Instruction samples (CUPTI's PC sampling): which instructions of which kernels wait, and for
//! what, beside the records of the same collection.
//!
//! Each multiprocessor takes a sample at a fixed number of its cycles: the instruction of a warp,
//! and its stall reason. [`Config::pc_sampling`](crate::Config::pc_sampling) requests them, and
//! [`Collected::pc_sampling`](crate::Collected::pc_sampling) has them.
//!
//! ```no_run
//! use cupti::{Collector, Config, Library, PcSampling};
//!
//! # fn main() -> Result<(), cupti::Error> {
//! let library = Library::open()?;
//! let config = Config::new().pc_sampling(PcSampling::continuous());
//! let collector = Collector::start(&library, &config)?;
//! // ... work that uses CUDA ...
//! let samples = collector.stop()?.pc_sampling.unwrap_or_default();
//! for slice in &samples.slices {
//!     let Some(context) = samples.context(slice.context) else { continue };
//!     for record in &slice.records {
//!         let instruction = samples.instructions[record.instruction as usize];
//!         let line = instruction.line.map(|line| samples.lines[line as usize].to_string());
//!         let reason = context.stall_reason(record.stall_reason);
//!         println!("+{:#x} {line:?} {reason:?}: {}", instruction.pc_offset, record.samples);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - Modes: [`PcSampling::continuous`] lets kernels run as they would; its samples have neither a
//!   time nor a launch. [`PcSampling::serialized`] runs kernels one by one; its samples have the
//!   correlation id of the launch.
//! - Times: a [`PcSlice`] has the samples of a reading of a context, which were taken since
//!   [`PcSlice::since_ns`]: CUPTI decodes them up to 240 ms later (seen on an H200).
//! - Pauses: nothing is sampled, since CUPTI enables kernel records only while no context is. A
//!   pause and the stop take some 100 ms for each context.
//! - Account: [`PcSamples::recorded_samples`] + dropped + non-user <= total, over the slices. Stall
//!   reasons that end in `_not_issued` count samples a second time.
//! - Contexts: one that is created during the collection is sampled from its begin. One from before
//!   is sampled from the first logged driver call that names it, while there were never more than 64
//!   contexts at a time. What is not sampled is in
//!   [`PcSamples::contexts`], with the reason; the collection continues without it.
//! - Lines: for cubins that were compiled with a line table (`-lineinfo`). A drain finds those of
//!   instructions that no earlier one had, some 20 us each.
//! - Threads: a thread of this crate reads each context every 100 ms. The unload of a module and the
//!   end of a context read it too, on the program's thread, and wait at most 1 s for a reading in
//!   progress.
//! - Cost: buffers of 100 MB of host memory for each context, most of it the hardware's buffer. The first launch
//!   after a start or a pause waits for it (`docs/measurements/inside-kernels.md`). The names of
//!   functions, which CUPTI allocates and may share with its records, are not freed.
//! - Overload: a short period fills the hardware's buffer, and CUPTI takes no more samples of the
//!   context ([`PcSlice::hardware_buffer_full`]).
//! - Permission: as hardware counters
//!   ([`Support::counters`](crate::Support::counters)).

mod elf;
pub(crate) mod known_contexts;
mod line_finder;
mod lines;
mod reading;
mod samples;
pub(crate) mod session;
pub(crate) mod settings;
mod undrained;

pub use lines::SourceLines;
pub use samples::{
    PcContext, PcCubin, PcFunction, PcInstruction, PcLosses, PcRecord, PcSamples, PcSlice,
    SourceLine,
};
pub use settings::PcSampling;
