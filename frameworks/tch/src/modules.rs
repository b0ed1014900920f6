//! Ranges of modules and of parts of a step.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tch::Tensor;
use tch::nn::{Module, ModuleT};

/// A module or an optimizer whose use is a range. Made by [`InRange::in_range`].
///
/// A pass that panics ends its range, too.
#[derive(Debug, Clone)]
pub struct Ranged<T> {
    pub(crate) name: Arc<str>,
    pub(crate) inner: T,
}

/// A module with a mode for training, whose passes are a range. Made by [`InRange::in_range_t`].
#[derive(Debug, Clone)]
pub struct RangedT<T>(Ranged<T>);

/// Puts the use of a value into a range.
pub trait InRange: Sized {
    /// Each [`forward`](Module::forward) of a module, or step of an optimizer, is a range of this name. The other methods are those
    /// of the value.
    fn in_range(self, name: impl Into<Arc<str>>) -> Ranged<Self>;

    /// The same for a module that implements [`ModuleT`] alone, as a batch norm, `SequentialT` and `FuncT` do.
    fn in_range_t(self, name: impl Into<Arc<str>>) -> RangedT<Self>;
}

impl<T> InRange for T {
    fn in_range(self, name: impl Into<Arc<str>>) -> Ranged<Self> {
        Ranged { name: name.into(), inner: self }
    }

    fn in_range_t(self, name: impl Into<Arc<str>>) -> RangedT<Self> {
        RangedT(self.in_range(name))
    }
}

impl<T> Ranged<T> {
    /// The value itself.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Calls `f` with the value in its range: for passes that are not called `forward` or take several inputs, as those of an `RNN`.
    pub fn run<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _range = nvtx::range(&self.name);
        f(&self.inner)
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
    fn forward(&self, input: &Tensor) -> Tensor {
        self.run(|module| module.forward(input))
    }
}

impl<T> Deref for RangedT<T> {
    type Target = Ranged<T>;

    fn deref(&self) -> &Ranged<T> {
        &self.0
    }
}

impl<T> DerefMut for RangedT<T> {
    fn deref_mut(&mut self) -> &mut Ranged<T> {
        &mut self.0
    }
}

impl<M: ModuleT> ModuleT for RangedT<M> {
    fn forward_t(&self, input: &Tensor, train: bool) -> Tensor {
        self.run(|module| module.forward_t(input, train))
    }
}

/// Runs the backward pass in the range `backward`: instead of `loss.backward()`.
pub fn backward(loss: &Tensor) {
    let _range = nvtx::range("backward");
    loss.backward();
}

/// Calls `f` without gradients in the range `no_grad`: instead of [`tch::no_grad`].
///
/// Ranges within it tell its parts apart, as those of modules do.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    let _range = nvtx::range("no_grad");
    tch::no_grad(f)
}
