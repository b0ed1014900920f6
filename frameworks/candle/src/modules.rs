//! Ranges of modules and optimizers that have no spans.

use std::ops::{Deref, DerefMut};

use candle_core::backprop::GradStore;
use candle_core::{Module, Result, Tensor, Var};
use candle_nn::Optimizer;

/// A module, or an optimizer, whose passes are ranges. Made by [`InRange::in_range`].
///
/// A pass that fails or panics ends its range, too; candle's own error goes through.
#[derive(Debug, Clone)]
pub struct Ranged<T> {
    name: String,
    inner: T,
}

/// Puts what is called on a module into a range.
pub trait InRange: Sized {
    /// Each [`forward`](Module::forward) of the module, or [`step`](Optimizer::step) of the optimizer, is a range of this
    /// name. The other methods are those of the module.
    fn in_range(self, name: impl Into<String>) -> Ranged<Self>;
}

impl<T> InRange for T {
    fn in_range(self, name: impl Into<String>) -> Ranged<Self> {
        Ranged { name: name.into(), inner: self }
    }
}

impl<T> Ranged<T> {
    /// The module itself.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T> Deref for Ranged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Ranged<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<M: Module> Module for Ranged<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _range = nvtx::range(&self.name);
        self.inner.forward(input)
    }
}

/// [`backward_step`](Optimizer::backward_step) has a range `backward` before that of the step.
///
/// ```no_run
/// use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarMap};
/// use gpu_profiler_candle::InRange;
///
/// # fn loss() -> candle_core::Result<candle_core::Tensor> { todo!() }
/// # fn main() -> candle_core::Result<()> {
/// let variables = VarMap::new();
/// let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW::default())?.in_range("optimizer");
/// optimizer.backward_step(&loss()?)?;
/// # Ok(())
/// # }
/// ```
impl<O: Optimizer> Optimizer for Ranged<O> {
    type Config = O::Config;

    /// An optimizer whose range is `optimizer`.
    fn new(variables: Vec<Var>, config: Self::Config) -> Result<Self> {
        O::new(variables, config).map(|optimizer| optimizer.in_range("optimizer"))
    }

    fn step(&mut self, gradients: &GradStore) -> Result<()> {
        let _range = nvtx::range(&self.name);
        self.inner.step(gradients)
    }

    fn learning_rate(&self) -> f64 {
        self.inner.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.inner.set_learning_rate(rate);
    }

    fn backward_step(&mut self, loss: &Tensor) -> Result<()> {
        let gradients = {
            let _backward = nvtx::range("backward");
            loss.backward()?
        };
        self.step(&gradients)
    }
}
