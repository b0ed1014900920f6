//! Stacks of host threads at the calls that ended gaps, and the threads' activity within the gaps.

use std::fmt;

use profiler_base::text::printable;

use super::{ApiCall, Profile};
use crate::join::tables::{HostPart, Tables};
use crate::record::host_stacks::{FIRST_WAIT, HostStacks};
pub use crate::record::host_stacks::{SampleLosses, SampleSource, StackLosses};

/// The stack of a thread at a call that ended a gap, or in a sample within one.
///
/// The stack of a call names the code that submitted the next work, and its callers. Functions that
/// had returned before the call are not in it; the samples of the gap have them
/// ([`Gap::samples`](crate::query::Gap::samples)).
#[derive(Debug, Clone, Copy)]
pub struct HostStack<'a> {
    stacks: &'a HostStacks,
    place: u32,
}

/// A function of a stack, or an address without a known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostFrame<'a> {
    /// The demangled name; `None` for code without symbols.
    pub function: Option<&'a str>,
    /// The name of the file that has the code, without its folder; `None` for code that was
    /// compiled at run time.
    pub module: Option<&'a str>,
    /// The file's build id in hexadecimal, empty if it has none.
    pub build_id: &'a str,
    /// The address in the file, as `addr2line` expects it; without a module, the address in the
    /// process. A caller's address is within its call instruction.
    pub address: u64,
}

/// The state of a thread at a moment of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HostState<'a> {
    /// Running on a CPU.
    Running,
    /// Runnable, without a CPU.
    WaitingForCpu,
    /// Waiting.
    Waiting {
        /// The system call; `None` if it is unknown, or the thread was in none, as in a page fault.
        system_call: Option<&'a str>,
        /// The function of the kernel, if the kernel reports it.
        channel: Option<&'a str>,
    },
}

impl<'a> HostState<'a> {
    /// Returns the state of a thread in a part of a gap.
    pub fn new(store: &'a Tables, part: &HostPart) -> Self {
        let known = |text: &'a String| Some(&**text).filter(|text| !text.is_empty());
        match part.doing {
            0 => Self::Running,
            1 => Self::WaitingForCpu,
            doing => {
                let wait = doing.checked_sub(FIRST_WAIT);
                let table = store.host_stacks.get(part.table as usize);
                let wait = wait.and_then(|at| table?.samples.waits.get(at as usize));
                let (call, channel) =
                    wait.map_or((None, None), |(call, channel)| (known(call), known(channel)));
                Self::Waiting { system_call: call, channel }
            }
        }
    }

    /// True if the thread waited for something other than a CPU.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. })
    }
}

impl fmt::Display for HostState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::WaitingForCpu => f.write_str("waiting for a CPU"),
            Self::Waiting { system_call: Some(call), .. } => {
                write!(f, "waiting in {}", printable(call))
            }
            Self::Waiting { channel: Some(channel), .. } => {
                write!(f, "waiting in the kernel's {}", printable(channel))
            }
            Self::Waiting { .. } => f.write_str("waiting"),
        }
    }
}

/// Counts of the samples of threads within gaps ([`Sampling::host`](crate::Sampling)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostSampleCounts<'a> {
    /// The best source of any thread; `None` if no thread was sampled.
    pub source: Option<SampleSource>,
    /// The reason why some thread had a lesser source, or none.
    pub failure: Option<&'a str>,
    /// Samples of running threads, and of threads as they left a CPU, including those outside gaps.
    pub samples: u64,
    /// Parts of gaps, each with a stack and a state of a thread.
    pub parts: u64,
    /// Losses.
    pub losses: SampleLosses,
}

/// Writes the counts that are not 0.
fn write_counts(f: &mut fmt::Formatter<'_>, counts: &[(u64, &str)]) -> fmt::Result {
    let mut counts = counts.iter().filter(|(count, _)| *count != 0);
    counts.try_for_each(|(count, what)| write!(f, ", {count} {what}"))
}

impl fmt::Display for HostSampleCounts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, failure, samples, parts, losses } = self;
        write!(f, "{parts} parts of gaps from {samples} samples")?;
        if let Some(source) = source {
            write!(f, " by {}", source.name())?;
        }
        if let Some(failure) = failure {
            write!(f, " ({})", printable(failure))?;
        }
        let counts = [
            (losses.buffer, "samples lost in full buffers"),
            (losses.stacks, "samples without room for their stack"),
            (losses.over_limit, "older parts dropped"),
            (losses.gaps, "gaps not read, or cut"),
            (losses.threads, "threads over the limit"),
        ];
        write_counts(f, &counts)
    }
}

/// The number of stacks in a profile, and losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostStackCounts {
    /// Calls with a stack.
    pub calls: u64,
    /// Calls with a stack whose outer frames are missing: a frame could not be unwound, or there
    /// were too many.
    pub truncated: u64,
    /// Calls whose stack is not in the file, because the process died before it was written.
    pub missing: u64,
    /// Stacks that were not taken.
    pub losses: StackLosses,
}

impl fmt::Display for HostStackCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, truncated, missing, losses } = self;
        write!(f, "{calls} calls with stacks")?;
        let counts = [
            (*truncated, "without their outer frames"),
            (*missing, "whose stack is not in the file"),
            (losses.total(), "more not taken"),
        ];
        write_counts(f, &counts)
    }
}

impl<'a> HostStack<'a> {
    /// Returns the stack of a call, if it was taken.
    pub fn from_call(store: &'a Tables, call: &crate::join::tables::Call) -> Option<Self> {
        let (table, place) = *store.call_stacks.get(&(call.thread, call.time.start_ns))?;
        Some(Self { stacks: store.host_stacks.get(table as usize)?, place })
    }

    /// Returns the stack in a part of a gap, if it was taken.
    pub fn of_part(store: &'a Tables, part: &HostPart) -> Option<Self> {
        Some(Self { stacks: store.host_stacks.get(part.table as usize)?, place: part.stack? })
    }

    /// The frames of the program, innermost first. Frames of CUDA's libraries and of this profiler
    /// at the inner end are omitted. Inlined functions are separate frames if the file has debug
    /// information.
    pub fn frames(&self) -> Vec<HostFrame<'a>> {
        let stacks = self.stacks;
        let frame = |(location, function): (u32, Option<u32>)| {
            let (module, address, _) = stacks.locations.get(location as usize)?;
            let module = module.and_then(|module| stacks.modules.get(module as usize));
            Some(HostFrame {
                function: function
                    .and_then(|name| stacks.functions.get(name as usize))
                    .map(|n| &**n),
                module: module.map(|(file, _)| &**file),
                build_id: module.map_or("", |(_, build_id)| build_id),
                address: *address,
            })
        };
        stacks.program_frames(self.place as usize).into_iter().filter_map(frame).collect()
    }

    /// True if outer frames are missing.
    pub fn is_truncated(&self) -> bool {
        self.stacks.stacks.get(self.place as usize).is_some_and(|(_, truncated, _)| *truncated)
    }
}

impl fmt::Display for HostFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.function, self.module) {
            (Some(function), _) => f.write_str(&printable(function)),
            (None, Some(module)) => write!(f, "{}+{:#x}", printable(module), self.address),
            (None, None) => write!(f, "{:#x}", self.address),
        }
    }
}

impl fmt::Display for HostStack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, frame) in self.frames().into_iter().enumerate() {
            let separator = if at == 0 { "" } else { " < " };
            write!(f, "{separator}{frame}")?;
        }
        if self.is_truncated() { f.write_str(" < ...") } else { Ok(()) }
    }
}

impl<'a> ApiCall<'a> {
    /// The stack of its thread, if the session took [stacks](crate::ProfilerBuilder) and the call
    /// ended a gap of its thread.
    pub fn host_stack(&self) -> Option<HostStack<'a>> {
        HostStack::from_call(&self.profile.store, self.row)
    }
}

impl Profile {
    /// The number of calls with stacks, and losses. All 0 if the session took none.
    pub fn host_stacks(&self) -> HostStackCounts {
        let store = &self.store;
        let mut counts = HostStackCounts {
            calls: store.call_stacks.len() as u64,
            missing: store.missing_stacks,
            ..HostStackCounts::default()
        };
        for (table, place) in store.call_stacks.values() {
            let stack = store.host_stacks.get(*table as usize);
            let stack = stack.and_then(|stacks| stacks.stacks.get(*place as usize));
            counts.truncated += u64::from(stack.is_some_and(|(_, truncated, _)| *truncated));
        }
        for stacks in &store.host_stacks {
            counts.losses.add(&stacks.losses);
        }
        counts
    }

    /// Counts of the samples of threads within gaps, and losses. Without a source if no thread was
    /// sampled.
    pub fn host_samples(&self) -> HostSampleCounts<'_> {
        let store = &self.store;
        let parts = store.host_samples.len() as u64;
        let mut counts = HostSampleCounts { parts, ..HostSampleCounts::default() };
        for stacks in &store.host_stacks {
            let samples = &stacks.samples;
            counts.source = counts.source.max(samples.source);
            counts.failure = counts.failure.or(samples.failure.as_deref());
            counts.samples = counts.samples.saturating_add(samples.samples);
            counts.losses.add(&samples.losses);
        }
        counts
    }
}
