//! The reasons why a sampled warp did not issue an instruction.

use profiler_base::named_variants;

use crate::record::json::json_names;

named_variants! {
    /// The state of a warp in an instruction sample. `Display` has it in words.
    ///
    /// The names are those of CUPTI and of Nsight Compute
    /// (`smsp__pcsamp_warps_issue_stalled_long_scoreboard`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Stall in ALL {
        /// No stall: the warp issued an instruction.
        Selected = "issues an instruction",
        /// Ready while another warp issued. Many of these mean that there are enough warps.
        NotSelected = "ready, another warp was selected",
        /// At a barrier, for other warps of the block.
        Barrier = "waits at a barrier",
        /// For the target of a branch.
        BranchResolving = "waits for a branch",
        /// Held back by the dispatcher.
        DispatchStall = "waits for the dispatcher",
        /// For its last stores before it exits.
        Drain = "waits for its last stores",
        /// For a matrix operation of the warp group.
        Gmma = "waits for a matrix operation",
        /// For constants that are not in the cache.
        ImcMiss = "waits for constants",
        /// For room in the queue of local and global memory operations.
        LgThrottle = "waits for room in the queue of global and local memory",
        /// For a result of global, local, texture or surface memory.
        LongScoreboard = "waits for global or local memory",
        /// For a busy arithmetic unit.
        MathPipeThrottle = "waits for a busy arithmetic unit",
        /// At a memory barrier.
        Membar = "waits at a memory fence",
        /// For room in the queue of shared memory and special functions.
        MioThrottle = "waits for room in the queue of shared memory",
        /// Another reason, by CUPTI.
        Misc = "waits for another reason",
        /// For instructions that are not in the cache, or after a jump.
        NoInstructions = "waits for instructions",
        /// For a result of shared memory or of a special function.
        ShortScoreboard = "waits for shared memory or a special function",
        /// Asleep, yielded or blocked.
        Sleeping = "sleeps",
        /// For room in the queue of textures.
        TexThrottle = "waits for room in the queue of textures",
        /// For the fixed latency of its own previous instruction.
        Wait = "waits for the instruction before it",
        /// For the other warps of its group.
        WarpgroupArrive = "waits for its warp group",
        /// A reason that this version does not know.
        Other = "waits for an unknown reason",
    }
}

json_names! {
    Stall {
        Selected = "selected", NotSelected = "not_selected", Barrier = "barrier",
        BranchResolving = "branch_resolving", DispatchStall = "dispatch_stall", Drain = "drain",
        Gmma = "gmma", ImcMiss = "imc_miss", LgThrottle = "lg_throttle",
        LongScoreboard = "long_scoreboard", MathPipeThrottle = "math_pipe_throttle",
        Membar = "membar", MioThrottle = "mio_throttle", Misc = "misc",
        NoInstructions = "no_instructions", ShortScoreboard = "short_scoreboard",
        Sleeping = "sleeping", TexThrottle = "tex_throttle", Wait = "wait",
        WarpgroupArrive = "warpgroup_arrive", Other = "other",
    } else Other
}

impl Stall {
    /// True if the warp could have issued: it did, or another one was selected.
    #[must_use]
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Selected | Self::NotSelected)
    }

    /// The stall of a reason of CUPTI, and whether the reason counts only the samples in which no
    /// warp of the scheduler issued.
    pub(crate) fn of_cupti(reason: &str) -> (Self, bool) {
        let (name, is_not_issued) = match reason.strip_suffix("_not_issued") {
            Some(name) => (name, true),
            None => (reason, false),
        };
        let name = name.rsplit_once("_stalled_").map_or(name, |(_, name)| name);
        (Self::of_json(name).unwrap_or(Self::Other), is_not_issued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_of_cupti_has_its_stall() {
        let of = |name| Stall::of_cupti(&format!("smsp__pcsamp_warps_issue_stalled_{name}"));
        assert_eq!(of("long_scoreboard"), (Stall::LongScoreboard, false));
        assert_eq!(of("long_scoreboard_not_issued"), (Stall::LongScoreboard, true));
        assert_eq!(of("selected"), (Stall::Selected, false));
        assert_eq!(of("new_in_a_later_chip"), (Stall::Other, false));
        for stall in Stall::ALL {
            let json = serde_json::to_string(&stall).unwrap();
            assert_eq!(Stall::of_json(json.trim_matches('"')), Some(stall));
        }
    }
}
