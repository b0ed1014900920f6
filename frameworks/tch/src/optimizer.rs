//! The ranges of an optimizer. Its other methods are those of [`Optimizer`].

use tch::Tensor;
use tch::nn::Optimizer;

use crate::modules::{Ranged, backward};

impl Ranged<Optimizer> {
    /// [`Optimizer::step`] in its range.
    pub fn step(&mut self) {
        let _range = nvtx::range(&self.name);
        self.inner.step();
    }

    /// [`Optimizer::zero_grad`] in its range.
    pub fn zero_grad(&mut self) {
        let _range = nvtx::range(&self.name);
        self.inner.zero_grad();
    }

    /// [`Optimizer::backward_step`] with the backward pass in the range `backward` and the rest in that of the optimizer.
    pub fn backward_step(&mut self, loss: &Tensor) {
        self.backward_then(loss, |_| ());
    }

    /// [`Optimizer::backward_step_clip`] with the same ranges.
    pub fn backward_step_clip(&mut self, loss: &Tensor, max: f64) {
        self.backward_then(loss, |optimizer| optimizer.clip_grad_value(max));
    }

    /// [`Optimizer::backward_step_clip_norm`] with the same ranges.
    pub fn backward_step_clip_norm(&mut self, loss: &Tensor, max: f64) {
        self.backward_then(loss, |optimizer| optimizer.clip_grad_norm(max));
    }

    fn backward_then(&mut self, loss: &Tensor, clip: impl FnOnce(&Optimizer)) {
        self.zero_grad();
        backward(loss);
        let _range = nvtx::range(&self.name);
        clip(&self.inner);
        self.inner.step();
    }
}
