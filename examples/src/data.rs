//! The data set and the initial weights, identical on every machine.
//!
//! A seed gives the same random numbers everywhere. The GPU's losses can therefore be compared with
//! [`crate::mlp::reference_losses`].

use fastrand::Rng;

/// Width of the input.
pub(crate) const INPUT: usize = 256;
/// Width of the hidden layer.
pub(crate) const HIDDEN: usize = 512;
/// Width of the output.
pub(crate) const OUTPUT: usize = 64;
/// Samples in one batch.
pub(crate) const BATCH: usize = 512;
/// Batches in the data set. After the last batch training continues with the first.
pub(crate) const BATCHES: usize = 4;

/// Step size, for a loss that is the mean over all outputs of a batch.
pub(crate) const LEARNING_RATE: f32 = 0.3;
/// The share of the previous step in the next step.
pub(crate) const MOMENTUM: f32 = 0.8;

/// Width of the teacher's hidden layer. It is small, so that the host computes the targets quickly.
const TEACHER_HIDDEN: usize = 16;

/// Inputs, and the outputs of a fixed random network (the teacher) for them.
#[derive(Debug)]
pub(crate) struct Data {
    /// `[BATCHES * BATCH, INPUT]`, row-major.
    inputs: Vec<f32>,
    /// `[BATCHES * BATCH, OUTPUT]`, row-major.
    targets: Vec<f32>,
}

impl Data {
    pub(crate) fn new(seed: u64) -> Data {
        let mut random = Rng::with_seed(seed);
        let first = values(&mut random, TEACHER_HIDDEN * INPUT, variance_keeping(INPUT));
        let second = values(&mut random, OUTPUT * TEACHER_HIDDEN, variance_keeping(TEACHER_HIDDEN));
        let inputs = values(&mut random, BATCHES * BATCH * INPUT, 1.0);

        let mut targets = Vec::with_capacity(BATCHES * BATCH * OUTPUT);
        for input in inputs.chunks_exact(INPUT) {
            let hidden = first.chunks_exact(INPUT).map(|row| dot(row, input).max(0.0));
            let hidden: Vec<f32> = hidden.collect();
            targets.extend(second.chunks_exact(TEACHER_HIDDEN).map(|row| dot(row, &hidden)));
        }
        Data { inputs, targets }
    }

    /// Inputs `[BATCH, INPUT]` and targets `[BATCH, OUTPUT]` of a batch. The data set repeats
    /// endlessly.
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
        // Use a different random sequence from the data set.
        let mut random = Rng::with_seed(!seed);
        InitialWeights {
            // Use half of the usual deviation. The nonzero mean after a ReLU would make the first
            // steps overshoot.
            hidden: values(&mut random, HIDDEN * INPUT, 0.5 * variance_keeping(INPUT)),
            output: values(&mut random, OUTPUT * HIDDEN, variance_keeping(HIDDEN)),
        }
    }
}

/// The standard deviation that preserves the variance of a signal through a layer before a ReLU
/// (He).
fn variance_keeping(fan_in: usize) -> f32 {
    (2.0 / fan_in as f32).sqrt()
}

/// The sum of products. Eight products are unrolled so that test builds are fast too.
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

/// `len` uniform values of mean 0 and standard deviation `deviation`.
fn values(random: &mut Rng, len: usize, deviation: f32) -> Vec<f32> {
    // A uniform value from [-1, 1) has the variance 1/3.
    let scale = deviation * 3.0f32.sqrt();
    (0..len).map(|_| scale * (2.0 * random.f32() - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_requested_deviation() {
        let values = values(&mut Rng::with_seed(1), 100_000, 2.0);
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
