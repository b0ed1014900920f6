//! Stacks of host threads in a recording: taken at the calls that ended gaps.
//!
//! `capture` takes them within CUDA's callbacks, `table` stores each once, `modules` tracks the
//! loaded modules, `symbols` finds functions after the run. `sampler` samples threads within gaps:
//! `threads` lists them, `perf` and `sys::timer` are its sources, `moments` derives parts of gaps
//! from samples, `syscalls` has names. `sys` is the unsafe part. Reading needs none of these.

#[cfg(feature = "stacks")]
pub(crate) mod capture;
#[cfg(feature = "stacks")]
mod modules;
#[cfg(feature = "stacks")]
mod moments;
#[cfg(feature = "stacks")]
mod perf;
#[cfg(feature = "stacks")]
pub(crate) mod sampler;
#[cfg(feature = "stacks")]
mod symbols;
#[cfg(feature = "stacks")]
mod sys;
#[cfg(feature = "stacks")]
mod syscalls;
#[cfg(feature = "stacks")]
mod table;
#[cfg(feature = "stacks")]
mod threads;

use profiler_base::named_variants;
use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::record::json::{json_names, json_object};

json_object! {
    /// The stacks of a recording. Calls refer to them by number ([`cupti::Call::stack`]).
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct HostStacks {
        /// The minimum age of a thread's last launch for a stack of the next one.
        pub(crate) after_ns: u64 = required,
        /// The names of files without their folders, and their build ids in hexadecimal.
        pub(crate) modules: Vec<(String, String)> = required,
        /// The names of functions, demangled.
        pub(crate) functions: Vec<String> = required,
        /// The contents of an address: the module, the address in its file (in the process without
        /// a module), and the functions, the innermost inlined one first.
        pub(crate) locations: Vec<(Option<u32>, u64, Vec<u32>)> = required,
        /// The number, true if the outermost frames are missing, and the locations, innermost
        /// first.
        pub(crate) stacks: Vec<(u32, bool, Vec<u32>)> = required,
        pub(crate) losses: StackLosses = required,
        /// The states of threads within gaps, if they were sampled.
        pub(crate) samples: HostSamples = optional,
    }
}

json_object! {
    /// The states of threads between launches further apart than [`HostStacks::after_ns`].
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct HostSamples {
        /// The sampling interval of a thread.
        pub(crate) interval_ns: u64 = required,
        /// The best source that some thread had; `None` without samples.
        pub(crate) source: Option<SampleSource> = required,
        /// The reason why there is no better one.
        pub(crate) failure: Option<String> = required,
        /// Samples of running threads, and of threads that left a CPU.
        pub(crate) samples: u64 = required,
        /// System calls and wait channels of the kernel; empty if unknown.
        pub(crate) waits: Vec<(String, String)> = required,
        /// Parts of gaps: the thread, the start and the length in nanoseconds, the number of the
        /// stack (0 for none), and the state. State 0 is running, 1 waiting for a CPU, 2 waiting
        /// for something unknown; from 3 on it is an index of `waits`, plus 3.
        pub(crate) parts: Vec<(u32, u64, u64, u32, u32)> = required,
        pub(crate) losses: SampleLosses = required,
    }
}

/// The state number of the first of [`HostSamples::waits`].
pub(crate) const FIRST_WAIT: u32 = 3;

named_variants! {
    /// The source of samples of threads.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum SampleSource with name {
        /// The system call and the wait channel of a waiting thread; running threads have no
        /// stacks.
        Waits = "waits",
        /// Like `Waits`, and timers of CPU time.
        Timers = "timers",
        /// `perf_event_open` without the kernel: threads have no stacks while the kernel works for
        /// them.
        PerfUser = "perf, without the kernel",
        /// `perf_event_open`.
        Perf = "perf",
    }
}

json_names! { SampleSource { Waits = "waits", Timers = "timers", PerfUser = "perf-user", Perf = "perf", } }

json_object! {
    /// Lost samples, by reason.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    #[non_exhaustive]
    pub struct SampleLosses {
        /// Samples that found a thread's buffer full.
        pub buffer: u64 = required,
        /// Samples with a new stack when the room for stacks of samples was used up.
        pub stacks: u64 = required,
        /// Older parts of gaps, dropped for newer ones: more than
        /// [`Sampling::max_samples`](crate::Sampling::max_samples).
        pub over_limit: u64 = required,
        /// Gaps that a thread ended faster than they were read, or that were so long that their
        /// beginning was dropped.
        pub gaps: u64 = required,
        /// Threads that were not sampled, because there were too many.
        pub threads: u64 = required,
    }
}

impl SampleLosses {
    pub(crate) fn add(&mut self, other: &Self) {
        self.buffer = self.buffer.saturating_add(other.buffer);
        self.stacks = self.stacks.saturating_add(other.stacks);
        self.over_limit = self.over_limit.saturating_add(other.over_limit);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.threads = self.threads.saturating_add(other.threads);
    }
}

/// Stacks that were not taken, by reason. Counted for the process since its first session with
/// stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StackLosses {
    /// Too many other threads were unwinding.
    pub busy: u64,
    /// The thread was on a stack that is not its own, such as a fiber's stack.
    pub other_stack: u64,
    /// The stack was new, and the table of stacks was full.
    pub over_limit: u64,
}

json_object! { StackLosses { busy: required, other_stack: required, over_limit: required, } }

impl StackLosses {
    pub(crate) fn add(&mut self, other: &Self) {
        self.busy = self.busy.saturating_add(other.busy);
        self.other_stack = self.other_stack.saturating_add(other.other_stack);
        self.over_limit = self.over_limit.saturating_add(other.over_limit);
    }

    /// The sum of all losses.
    pub fn total(&self) -> u64 {
        self.busy.saturating_add(self.other_stack).saturating_add(self.over_limit)
    }
}

impl HostStacks {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that all indices are valid.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let in_bounds = |at: u32, len: usize| (at as usize) < len;
        let locations_are_known = self.locations.iter().all(|(module, _, functions)| {
            module.is_none_or(|module| in_bounds(module, self.modules.len()))
                && functions.iter().all(|function| in_bounds(*function, self.functions.len()))
        });
        let stacks_are_known = self.stacks.iter().all(|(_, _, locations)| {
            locations.iter().all(|location| in_bounds(*location, self.locations.len()))
        });
        let waits = self.samples.waits.len();
        let waits_are_known = self.samples.parts.iter().all(|(_, start_ns, ns, _, doing)| {
            start_ns.checked_add(*ns).is_some()
                && doing.checked_sub(FIRST_WAIT).is_none_or(|wait| in_bounds(wait, waits))
        });
        if locations_are_known && stacks_are_known && waits_are_known {
            return Ok(());
        }
        Err(Error::format("its host stacks refer to missing entries: it is damaged"))
    }

    /// The positions of stacks in [`stacks`](Self::stacks), by number.
    pub(crate) fn places(&self) -> FxHashMap<u32, u32> {
        // CAST: numbers have 24 bits.
        (0..).zip(&self.stacks).map(|(place, (number, ..))| (*number, place)).collect()
    }

    /// The frames of a stack that belong to the program, innermost first: without frames of this
    /// profiler and of CUDA's libraries at its inner end.
    pub(crate) fn program_frames(&self, place: usize) -> Vec<(u32, Option<u32>)> {
        let Some((_, _, locations)) = self.stacks.get(place) else { return Vec::new() };
        let mut frames = Vec::new();
        for location in locations {
            let functions =
                self.locations.get(*location as usize).map(|(_, _, functions)| functions);
            match functions.filter(|functions| !functions.is_empty()) {
                Some(functions) => {
                    frames.extend(functions.iter().map(|name| (*location, Some(*name))))
                }
                None => frames.push((*location, None)),
            }
        }
        let name = |frame: &(u32, Option<u32>)| {
            frame.1.and_then(|name| self.functions.get(name as usize)).map_or("", |name| name)
        };
        // Generic functions of `std` are between functions of the profiler, so all frames up to its
        // callback belong to the profiler.
        let callback = frames.iter().position(|frame| name(frame) == CALLBACK);
        let is_outside = |frame: &(u32, Option<u32>)| {
            let module = self.locations.get(frame.0 as usize).and_then(|(module, ..)| *module);
            let module = module.and_then(|module| self.modules.get(module as usize));
            let is_library = module
                .is_some_and(|(file, _)| LIBRARIES.iter().any(|library| file.starts_with(library)));
            !is_library && !name(frame).trim_start_matches('<').starts_with(CUPTI_CRATE)
        };
        let inner = callback.map_or(0, |callback| callback + 1);
        let first =
            frames[inner..].iter().position(is_outside).map_or(frames.len(), |at| at + inner);
        frames.drain(..first);
        frames
    }
}

/// The function that CUPTI calls.
const CALLBACK: &str = "cupti::sys::callback::callback";
/// The files between it and the program: the injection library and CUDA's libraries.
const LIBRARIES: [&str; 5] =
    ["libgpuprof_inject", "libcupti.so", "libcuda.so", "libcudart.so", "libcudart-"];
/// The functions between it and the program: the profiler's own crate.
const CUPTI_CRATE: &str = "cupti::";

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> HostStacks {
        let names =
            ["profiler_core::x", "std::f", "cupti::sys::callback::callback", "main", "load"];
        let module = |name: &str| (name.to_owned(), String::new());
        HostStacks {
            after_ns: 20_000,
            modules: vec![module("program"), module("libcuda.so.1"), module("libx.so")],
            functions: names.map(str::to_owned).to_vec(),
            locations: vec![
                (Some(0), 1, vec![0]),
                (Some(0), 2, vec![1, 2]),
                (Some(1), 3, vec![]),
                (Some(0), 4, vec![4, 3]),
                (None, 5, vec![]),
            ],
            stacks: vec![(7, false, vec![0, 1, 2, 3]), (9, true, vec![2, 4]), (8, true, vec![2])],
            losses: StackLosses::default(),
            samples: HostSamples {
                waits: vec![("futex".to_owned(), String::new())],
                parts: vec![(5, 10, 20, 7, FIRST_WAIT)],
                ..HostSamples::default()
            },
        }
    }

    #[test]
    fn frames_of_the_profiler_and_of_cuda_are_left_out() {
        let stacks = stacks();
        assert_eq!(stacks.program_frames(0), [(3, Some(4)), (3, Some(3))]);
        assert_eq!(stacks.program_frames(1), [(4, None)]);
        assert_eq!(stacks.program_frames(2), []);
        assert_eq!(stacks.program_frames(3), []);
        assert_eq!(stacks.places().get(&9), Some(&1));
    }

    #[test]
    fn stacks_that_refer_to_nothing_are_damaged() {
        assert!(stacks().check().is_ok());
        for damage in [
            |stacks: &mut HostStacks| stacks.locations[0].0 = Some(3),
            |stacks: &mut HostStacks| stacks.locations[3].2[0] = 5,
            |stacks: &mut HostStacks| stacks.stacks[1].2[0] = 5,
            |stacks: &mut HostStacks| stacks.samples.parts[0].4 = FIRST_WAIT + 1,
            |stacks: &mut HostStacks| stacks.samples.parts[0].2 = u64::MAX,
        ] {
            let mut damaged = stacks();
            damage(&mut damaged);
            assert!(damaged.check().is_err());
        }
    }
}
