//! Stacks of host threads at the calls that ended gaps.

use std::fmt;

use super::{ApiCall, Profile};
use crate::base::text::printable;
use crate::join::tables::Store;
use crate::record::host_stacks::HostStacks;
pub use crate::record::host_stacks::StackLosses;

/// Where a thread was when it made a call that ended a gap.
///
/// It names the code that submitted the next work, and the callers of that. What the thread did before in functions that have
/// returned is not in it.
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
    /// The name of the file that has the code, without its folder; `None` for code that was compiled at run time.
    pub module: Option<&'a str>,
    /// The file's build id in hexadecimal, empty if it has none.
    pub build_id: &'a str,
    /// The address in the file, as `addr2line` takes it; in the process without a module. Of a caller, within the call.
    pub address: u64,
}

/// How many stacks a profile has, and what it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HostStackCounts {
    /// Calls with a stack.
    pub calls: u64,
    /// Those whose outer frames are missing: a frame could not be unwound, or there were too many.
    pub truncated: u64,
    /// Calls whose stack is not in the file, since the process died before it was written.
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
        for (count, what) in counts.into_iter().filter(|(count, _)| *count != 0) {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

impl<'a> HostStack<'a> {
    pub(crate) fn of(store: &'a Store, call: &crate::join::tables::Call) -> Option<Self> {
        let (table, place) = *store.call_stacks.get(&(call.thread, call.time.start_ns))?;
        Some(Self { stacks: store.host_stacks.get(table as usize)?, place })
    }

    /// The frames of the program, innermost first: those of CUDA's libraries and of this profiler at the inner end are left out.
    /// Inlined functions are frames of their own, where the file has debug information.
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
    /// Where its thread was, if the session took [stacks](crate::ProfilerBuilder) and the call ended a gap of its thread.
    pub fn host_stack(&self) -> Option<HostStack<'a>> {
        HostStack::of(&self.profile.store, self.row)
    }
}

impl Profile {
    /// How many calls have stacks, and what is missing. All 0 if the session took none.
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
}
