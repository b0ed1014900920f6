//! The reason for which the warps of a kernel wait, its line, and what to try.

use profiler_base::units::percent;
use profiler_core::query::{Instructions, SampledPlace, Stall};

/// Fewer samples do not determine a reason: with 400, the 95 % interval of a share is at most 5
/// points to each side.
const LEAST_SAMPLES: f64 = 400.0;
/// The least share of a reason in the samples of a kernel.
const LEAST_SHARE: f64 = 0.25;

/// The reason for most waits of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StallReason {
    pub(crate) stall: Stall,
    /// Its share of the kernel's samples, 0 to 1.
    pub(crate) share: f64,
    /// The share of samples that waited for it while no warp of the scheduler issued.
    pub(crate) exposed: f64,
    /// The place with most of these samples: `gather.cu:12`; `None` without lines.
    pub(crate) line: Option<String>,
}

impl StallReason {
    /// `None` if there are too few samples, or no reason has a quarter of them.
    pub(crate) fn from_samples(samples: &Instructions<'_>) -> Option<Self> {
        let stalls = samples.stalls();
        if stalls.total() < LEAST_SAMPLES {
            return None;
        }
        let stall = stalls.dominant().filter(|stall| stalls.share(*stall) >= LEAST_SHARE)?;
        let lines = samples.by_line();
        let of_stall = |line: &&SampledPlace<'_>| line.stalls.samples(stall);
        let top = lines.iter().max_by(|a, b| of_stall(a).total_cmp(&of_stall(b)));
        let line = top.filter(|line| line.line.is_some()).map(SampledPlace::place);
        let exposed = stalls.not_issued(stall) / stalls.total();
        Some(Self { stall, share: stalls.share(stall), exposed, line })
    }

    /// `waits for global or local memory at gather.cu:12 in 62 % of its samples`.
    pub(crate) fn text(&self) -> String {
        let line = self.line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default();
        format!("{}{line} in {} of its samples", self.stall, percent(self.share))
    }

    /// The remedy; `None` if the state has none.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        remedy(self.stall)
    }
}

/// The remedy for a state; `None` if it has none.
fn remedy(stall: Stall) -> Option<&'static str> {
    Some(match stall {
        Stall::LongScoreboard => {
            "let neighbouring threads read neighbouring addresses, keep what is read again in \
             shared memory or registers, have more loads or warps in flight; if registers spill \
             (ptxas -v), use fewer live values or smaller tiles"
        }
        Stall::LgThrottle => {
            "use fewer and wider loads and stores (float4), and let neighbouring threads use \
             neighbouring addresses"
        }
        Stall::ShortScoreboard | Stall::MioThrottle => {
            "pad or permute shared arrays so that the threads of a warp use different banks, use \
             wider accesses, and fewer special functions"
        }
        Stall::Barrier => {
            "divide the work before the barrier evenly among warps, or use smaller blocks, of \
             which more run at once"
        }
        Stall::Wait => {
            "give each thread independent work, as by unrolling with several sums, or run more \
             warps on a multiprocessor"
        }
        Stall::MathPipeThrottle => {
            "the arithmetic units are full: use tensor cores, a shorter type, or fewer operations"
        }
        Stall::BranchResolving => {
            "let the threads of a warp take the same branch, or replace branches and calls by \
             arithmetic"
        }
        Stall::NoInstructions => {
            "make the loop's code smaller, with less unrolling and inlining, so that it fits the \
             instruction cache"
        }
        Stall::ImcMiss => {
            "let the threads of a warp read the same constant, or read it from global memory"
        }
        Stall::Membar => {
            "use fewer fences and ordered atomics: relaxed order, or the scope of a block"
        }
        Stall::Drain => "let neighbouring threads write neighbouring addresses",
        Stall::TexThrottle => "use fewer texture accesses, or ordinary loads",
        Stall::Gmma | Stall::WarpgroupArrive => {
            "load the next operands while tensor cores work: more stages of the pipeline, or \
             larger tiles"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_has_a_remedy() {
        let none: Vec<Stall> =
            Stall::ALL.into_iter().filter(|stall| remedy(*stall).is_none()).collect();
        let expected = [
            Stall::Selected,
            Stall::NotSelected,
            Stall::DispatchStall,
            Stall::Misc,
            Stall::Sleeping,
            Stall::Other,
        ];
        assert_eq!(none, expected);
    }
}
