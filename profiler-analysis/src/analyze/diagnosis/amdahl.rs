//! Amdahl's law.

/// The speed-up of the whole if the part `p` of its time, from 0 to 1, becomes faster by the factor
/// `s`: `1 / ((1 - p) + p / s)` (G. Amdahl, 1967).
///
/// An infinite `s` removes the part and gives the bound for any change to it. `p` is clamped to 0
/// to 1; an `s` of 0 or less gives 0. NaN gives NaN.
#[must_use]
pub(crate) fn amdahl(p: f64, s: f64) -> f64 {
    if p.is_nan() || s.is_nan() {
        return f64::NAN;
    }
    let p = p.clamp(0.0, 1.0);
    if p == 0.0 {
        return 1.0;
    }
    1.0 / ((1.0 - p) + p / s.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_follow_amdahls_law() {
        for (p, s, expected) in [
            (0.0, 10.0, 1.0),
            (1.0, 10.0, 10.0),
            (0.5, 1.0, 1.0),
            (0.5, f64::INFINITY, 2.0),
            (1.0, f64::INFINITY, f64::INFINITY),
            // A data loader that gets 86 times as fast and takes 31 % of an epoch.
            (0.31, 86.0, 1.4417),
            // A part that gets slower.
            (0.5, 0.5, 1.0 / 1.5),
            (0.5, 0.0, 0.0),
            (0.0, 0.0, 1.0),
            (1.7, 4.0, 4.0),
            (-0.5, 4.0, 1.0),
            (0.5, -3.0, 0.0),
        ] {
            let got = amdahl(p, s);
            let is_near = got == expected || (got - expected).abs() < 1e-3 * expected;
            assert!(is_near, "amdahl({p}, {s}) is {got}, not {expected}");
        }
        assert!(amdahl(f64::NAN, 2.0).is_nan() && amdahl(0.5, f64::NAN).is_nan());
    }

    #[test]
    fn result_never_falls_with_part_or_factor() {
        for step in 0..100 {
            let p = f64::from(step) / 100.0;
            assert!(amdahl(p, 3.0) <= amdahl(p + 0.01, 3.0));
            assert!(amdahl(0.4, 1.0 + p) <= amdahl(0.4, 1.01 + p));
            assert!(amdahl(p, 3.0) <= amdahl(p, f64::INFINITY));
        }
    }
}
