//! The data set and the initial weights, equal on every machine.
//!
//! All random numbers are uniform and come from integer arithmetic, so a seed gives the same bits
//! everywhere and the GPU's losses can be compared with [`crate::mlp::reference_losses`].

/// Width of the input.
pub(crate) const INPUT: usize = 256;
/// Width of the hidden layer.
pub(crate) const HIDDEN: usize = 512;
/// Width of the output.
pub(crate) const OUTPUT: usize = 64;
/// Samples in one batch.
pub(crate) const BATCH: usize = 512;
/// Batches in the data set; after the last one training starts again at the first.
pub(crate) const BATCHES: usize = 4;

/// Step size, for a loss that is the mean over all outputs of a batch.
pub(crate) const LEARNING_RATE: f32 = 0.3;
/// Share of the previous step in the next one.
pub(crate) const MOMENTUM: f32 = 0.8;

/// Width of the teacher's hidden layer: few units, so that targets cost the host little.
const TEACHER_HIDDEN: usize = 16;

/// Inputs and the outputs of a fixed random network, the teacher, for them.
#[derive(Debug)]
pub(crate) struct Data {
    /// `[BATCHES * BATCH, INPUT]`, row-major.
    inputs: Vec<f32>,
    /// `[BATCHES * BATCH, OUTPUT]`, row-major.
    targets: Vec<f32>,
}

impl Data {
    pub(crate) fn new(seed: u64) -> Data {
        let mut random = SplitMix64(seed);
        let first = random.values(TEACHER_HIDDEN * INPUT, variance_keeping(INPUT));
        let second = random.values(OUTPUT * TEACHER_HIDDEN, variance_keeping(TEACHER_HIDDEN));
        let inputs = random.values(BATCHES * BATCH * INPUT, 1.0);

        let mut targets = Vec::with_capacity(BATCHES * BATCH * OUTPUT);
        for input in inputs.chunks_exact(INPUT) {
            let hidden = first.chunks_exact(INPUT).map(|row| dot(row, input).max(0.0));
            let hidden: Vec<f32> = hidden.collect();
            targets.extend(second.chunks_exact(TEACHER_HIDDEN).map(|row| dot(row, &hidden)));
        }
        Data { inputs, targets }
    }

    /// Inputs `[BATCH, INPUT]` and targets `[BATCH, OUTPUT]` of one batch of the endless training
    /// run.
    pub(crate) fn batch(&self, batch: usize) -> (&[f32], &[f32]) {
        let at = batch % BATCHES;
        let (x, y) = (BATCH * INPUT, BATCH * OUTPUT);
        (&self.inputs[at * x..][..x], &self.targets[at * y..][..y])
    }
}

/// The weights before the first step; biases start at zero.
#[derive(Debug)]
pub(crate) struct InitialWeights {
    /// `[HIDDEN, INPUT]`, row-major.
    pub(crate) hidden: Vec<f32>,
    /// `[OUTPUT, HIDDEN]`, row-major.
    pub(crate) output: Vec<f32>,
}

impl InitialWeights {
    pub(crate) fn new(seed: u64) -> InitialWeights {
        // Other numbers than those of the data set.
        let mut random = SplitMix64(!seed);
        InitialWeights {
            // Half of the usual size: what passes a ReLU has a mean, and a large one makes the
            // first steps overshoot.
            hidden: random.values(HIDDEN * INPUT, 0.5 * variance_keeping(INPUT)),
            output: random.values(OUTPUT * HIDDEN, variance_keeping(HIDDEN)),
        }
    }
}

/// Standard deviation that keeps the size of a signal through a layer that feeds a ReLU (He).
fn variance_keeping(fan_in: usize) -> f32 {
    (2.0 / fan_in as f32).sqrt()
}

/// Sum of products; eight of them are written out so that test builds are fast too.
///
/// All rows here are a multiple of eight long.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert!(a.len() == b.len() && a.len().is_multiple_of(8));
    let mut sum = 0.0;
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let left = (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3]);
        let right = (a[4] * b[4] + a[5] * b[5]) + (a[6] * b[6] + a[7] * b[7]);
        sum += left + right;
    }
    sum
}

/// A tiny generator with a 64-bit state, by Vigna (public domain).
#[derive(Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `len` uniform values of mean 0 and standard deviation `deviation`.
    fn values(&mut self, len: usize, deviation: f32) -> Vec<f32> {
        // A uniform value from [-1, 1) has the variance 1/3.
        let scale = deviation * 3.0f32.sqrt();
        let unit = |bits: u64| (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        (0..len).map(|_| scale * unit(self.next())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_gives_the_published_sequence() {
        let mut random = SplitMix64(1234567);
        assert_eq!(random.next(), 6457827717110365317);
        assert_eq!(random.next(), 3203168211198807973);
    }

    #[test]
    fn values_have_the_deviation_asked_for() {
        let values = SplitMix64(1).values(100_000, 2.0);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.02, "mean {mean}");
        assert!((variance - 4.0).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn batches_repeat_after_the_data_set() {
        let data = Data::new(1);
        assert_eq!(data.batch(0), data.batch(BATCHES));
        assert_ne!(data.batch(0), data.batch(1));
    }
}
