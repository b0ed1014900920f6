//! The arms of a calibration, and their order in each round.

use gpuprof_control::{AlwaysOn, Budget, Options, Start};
use profiler_base::named_variants;
use serde::Serialize;

named_variants! {
    /// A way to run the program.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(super) enum Arm in ALL {
        /// The program alone, without the injection library.
        Without = "without",
        /// With the library, which calls nothing in CUPTI.
        Dormant = "dormant",
        /// Always on, without windows.
        CallsOnly = "calls only",
        /// Always on, with the default settings.
        AlwaysOn = "always on",
        /// Everything recorded.
        Recording = "recording",
    }
}

impl Arm {
    /// The options of the run's processes; `None` without the library.
    pub(super) fn options(self) -> Option<Options> {
        // The path of the run folder is set once the folder exists.
        let mut options = Options::new("/");
        match self {
            Self::Without => return None,
            Self::Dormant => options.start = Start::Wait,
            Self::CallsOnly => options.always_on = Some(AlwaysOn::new(None)),
            Self::AlwaysOn => options.always_on = Some(AlwaysOn::new(Some(Budget::default()))),
            Self::Recording => {}
        }
        Some(options)
    }
}

/// The order of the arms in a round. In ten rounds each arm is twice at each place, and twice
/// directly after each other arm, so that drift and after-effects of a run fall on all arms
/// equally (a Williams design).
pub(super) fn order(round: usize) -> [Arm; Arm::ALL.len()] {
    const FIRST: [usize; Arm::ALL.len()] = [0, 1, 4, 2, 3];
    let mut order = FIRST.map(|at| Arm::ALL[(at + round) % Arm::ALL.len()]);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_rounds_balance_places_and_predecessors() {
        let rounds: Vec<_> = (0..10).map(order).collect();
        let count =
            |is_met: &dyn Fn(&[Arm]) -> bool| rounds.iter().filter(|r| is_met(&r[..])).count();
        for one in Arm::ALL {
            for place in 0..Arm::ALL.len() {
                assert_eq!(count(&|round| round[place] == one), 2, "{one} at {place}");
            }
            for other in Arm::ALL.into_iter().filter(|other| *other != one) {
                let follows = |round: &[Arm]| round.windows(2).any(|pair| pair == [other, one]);
                assert_eq!(count(&follows), 2, "{one} after {other}");
            }
        }
        assert_eq!(order(0)[..2], [Arm::Without, Arm::Dormant]);
    }
}
