//! Detection of the steady state after the warm-up.

use super::TICK_NS;
use super::round::Round;
use super::timing::Timing;

/// The number of consecutive rounds that must agree.
pub(super) const AGREEING: usize = 3;
/// The share of a median by which the medians of steady rounds may differ.
const TOLERANCE: f64 = 0.005;
/// The share by which the SM clocks of steady rounds may differ: one step of 15 MHz.
const CLOCK_TOLERANCE: f64 = 0.01;

/// The state of the GPU as shown by a round.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// By variant, the median of GPU times and its standard error.
    medians: Vec<(f64, f64)>,
    sm_mhz: Option<u32>,
}

impl State {
    pub(super) fn from_round(round: &Round, variants: usize) -> Self {
        let median = |variant: usize| {
            let times = round.of_variant(variant).map(|sample| sample.gpu_ns as f64);
            let times: Vec<f64> = times.collect();
            let count = times.len().max(1) as f64;
            let timing = Timing::from_times(times, 0.95);
            // For normal noise 1.48 MAD is the standard deviation, and the median's error is 1.25
            // of the mean's.
            (timing.median_ns, 1.4826 * 1.2533 * timing.mad_ns / count.sqrt())
        };
        Self { medians: (0..variants).map(median).collect(), sm_mhz: round.sm_mhz }
    }
}

/// True if the last rounds agree. Their medians must be within 0.5 %, a tick of the GPU's clock or
/// three standard errors. Their SM clocks must be within 1 %, if known.
pub(super) fn is_steady(states: &[State]) -> bool {
    let Some(last) = states.len().checked_sub(AGREEING).map(|from| &states[from..]) else {
        return false;
    };
    let variants = last[0].medians.len();
    let agree = |variant: usize| {
        let medians = last.iter().map(|state| state.medians[variant]);
        let (mut low, mut high, mut error) = (f64::INFINITY, 0.0_f64, 0.0_f64);
        for (median, of_median) in medians {
            (low, high, error) = (low.min(median), high.max(median), error.max(of_median));
        }
        let noise = 3.0 * std::f64::consts::SQRT_2 * error;
        high - low <= (TOLERANCE * low).max(TICK_NS).max(noise)
    };
    let clocks: Vec<f64> = last.iter().filter_map(|state| state.sm_mhz).map(f64::from).collect();
    let slowest = clocks.iter().copied().fold(f64::INFINITY, f64::min);
    let same_clock = clocks.iter().all(|mhz| mhz - slowest <= CLOCK_TOLERANCE * slowest);
    same_clock && (0..variants).all(agree)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(rounds: &[(f64, f64, Option<u32>)]) -> Vec<State> {
        let state = |&(median, error, sm_mhz): &(f64, f64, Option<u32>)| State {
            medians: vec![(median, error)],
            sm_mhz,
        };
        rounds.iter().map(state).collect()
    }

    #[test]
    fn three_rounds_have_to_agree() {
        let rounds = [(1e5, 0.0, None), (90_000.0, 0.0, None), (90_300.0, 0.0, None)];
        assert!(!is_steady(&states(&rounds)));
        assert!(!is_steady(&states(&rounds[1..])), "two are too few");
        let rounds = [rounds[1], rounds[2], (90_400.0, 0.0, None)];
        assert!(is_steady(&states(&rounds)), "within 0.5 %");
        // A tick of 32 ns is more than 0.5 % of a short kernel.
        assert!(is_steady(&states(&[
            (1024.0, 0.0, None),
            (1056.0, 0.0, None),
            (1024.0, 0.0, None)
        ])));
        assert!(!is_steady(&states(&[
            (1024.0, 0.0, None),
            (1088.0, 0.0, None),
            (1024.0, 0.0, None)
        ])));
    }

    #[test]
    fn noise_and_clocks_are_considered() {
        let noisy = [(1e6, 2e4, None), (1.05e6, 2e4, None), (1e6, 2e4, None)];
        assert!(is_steady(&states(&noisy)), "5 % are within three errors of 2 %");
        let ramp = [(1e6, 0.0, Some(1200)), (1e6, 0.0, Some(1980)), (1e6, 0.0, Some(1980))];
        assert!(!is_steady(&states(&ramp)));
        let step = [(1e6, 0.0, Some(1980)), (1e6, 0.0, None), (1e6, 0.0, Some(1965))];
        assert!(is_steady(&states(&step)), "one step of the clock, one reading missing");
    }

    #[test]
    fn both_variants_have_to_be_steady() {
        let state = |b: f64| State { medians: vec![(1e5, 0.0), (b, 0.0)], sm_mhz: None };
        assert!(!is_steady(&[state(1e5), state(1.1e5), state(1.1e5)]));
        assert!(is_steady(&[state(1.1e5), state(1.1e5), state(1.1e5)]));
    }
}
