//! The same training run in plain Rust, as a reference for the GPU's losses.

use crate::data::{
    BATCH, Data, HIDDEN, INPUT, InitialWeights, LEARNING_RATE, MOMENTUM, OUTPUT, dot,
};

/// Losses of the first `batches` batches, computed on the host in `f32`.
///
/// Starts from the same weights and data as [`Mlp::new`](crate::mlp::Mlp::new) with this `seed`.
/// The order of summation differs from the GPU's, so the losses agree closely, but not bit by bit.
/// A batch costs about 150 million multiplications.
pub fn reference_losses(seed: u64, batches: usize) -> Vec<f32> {
    let data = Data::new(seed);
    let initial = InitialWeights::new(seed);
    let mut w1 = Parameter::new(initial.hidden);
    let mut b1 = Parameter::new(vec![0.0; HIDDEN]);
    let mut w2 = Parameter::new(initial.output);
    let mut b2 = Parameter::new(vec![0.0; OUTPUT]);

    let mut losses = Vec::with_capacity(batches);
    for batch in 0..batches {
        let (inputs, targets) = data.batch(batch);
        let mut squares = 0.0f64;
        for (x, target) in inputs.chunks_exact(INPUT).zip(targets.chunks_exact(OUTPUT)) {
            let rows = w1.value.chunks_exact(INPUT).zip(&b1.value);
            let hidden: Vec<f32> = rows.map(|(w, b)| (dot(w, x) + b).max(0.0)).collect();

            let mut d_hidden = vec![0.0; HIDDEN];
            for (o, w) in w2.value.chunks_exact(HIDDEN).enumerate() {
                let difference = dot(w, &hidden) + b2.value[o] - target[o];
                squares += f64::from(difference * difference);
                let d_output = 2.0 * difference / (BATCH * OUTPUT) as f32;
                add_scaled(&mut d_hidden, d_output, w);
                add_scaled(&mut w2.gradient[o * HIDDEN..][..HIDDEN], d_output, &hidden);
                b2.gradient[o] += d_output;
            }
            // A ReLU propagates the gradient only where it propagated the value.
            for j in (0..HIDDEN).filter(|&j| hidden[j] > 0.0) {
                add_scaled(&mut w1.gradient[j * INPUT..][..INPUT], d_hidden[j], x);
                b1.gradient[j] += d_hidden[j];
            }
        }
        losses.push((squares / (BATCH * OUTPUT) as f64) as f32);
        for parameter in [&mut w1, &mut b1, &mut w2, &mut b2] {
            parameter.step();
        }
    }
    losses
}

struct Parameter {
    value: Vec<f32>,
    gradient: Vec<f32>,
    velocity: Vec<f32>,
}

impl Parameter {
    fn new(value: Vec<f32>) -> Parameter {
        let (gradient, velocity) = (vec![0.0; value.len()], vec![0.0; value.len()]);
        Parameter { value, gradient, velocity }
    }

    /// Takes one step of gradient descent, then clears the gradient.
    fn step(&mut self) {
        for ((w, g), v) in self.value.iter_mut().zip(&mut self.gradient).zip(&mut self.velocity) {
            *v = MOMENTUM * *v + *g;
            *w -= LEARNING_RATE * *v;
            *g = 0.0;
        }
    }
}

/// Adds `factor * row` to `sum`, unrolled like [`dot`].
fn add_scaled(sum: &mut [f32], factor: f32, row: &[f32]) {
    debug_assert!(sum.len() == row.len() && sum.len().is_multiple_of(8));
    for (s, r) in sum.as_chunks_mut::<8>().0.iter_mut().zip(row.as_chunks::<8>().0) {
        s[0] += factor * r[0];
        s[1] += factor * r[1];
        s[2] += factor * r[2];
        s[3] += factor * r[3];
        s[4] += factor * r[4];
        s[5] += factor * r[5];
        s[6] += factor * r[6];
        s[7] += factor * r[7];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_falls_by_forty_percent_in_eight_batches_and_by_half_in_twenty() {
        // Twenty take five seconds without optimisation.
        let is_thorough = std::env::var_os("THOROUGH_TESTS").is_some();
        let (batches, most) = if is_thorough { (20, 0.5) } else { (8, 0.6) };
        let losses = reference_losses(1, batches);
        println!("{losses:?}");
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert!(losses[batches - 1] < most * losses[0], "{losses:?}");
    }
}
