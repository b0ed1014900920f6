//! SplitMix64 (Steele, Lea and Flood 2014): numbers that look random, from a state of 64 bits.

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number: each bit of the result depends on all bits of the number.
#[must_use]
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(GAMMA);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the next number of a sequence.
pub fn next(state: &mut u64) -> u64 {
    let number = mixed(*state);
    *state = state.wrapping_add(GAMMA);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation from the seed 1234567.
    #[test]
    fn sequence_is_the_published_one() {
        let mut state = 1_234_567;
        let numbers: Vec<u64> = (0..3).map(|_| next(&mut state)).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
