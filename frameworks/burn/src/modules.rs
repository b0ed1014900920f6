//! Ranges of modules, optimizers and data loaders.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use burn::module::{
    AutodiffModule, Content, Devices, HasAutodiffModule, Module, ModuleDisplay,
    ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::forward::Forward;

/// A module, optimizer, data loader or iterator whose use is a range. Made by [`InRange::in_range`].
///
/// As a module it has the record, the parameters and the devices of the module itself, so that records of either load into the
/// other. A pass that panics ends its range, too.
#[derive(Debug, Clone)]
pub struct Ranged<T> {
    name: Arc<str>,
    inner: T,
}

/// Puts the use of a value into a range.
pub trait InRange: Sized {
    /// Each [`forward`](Ranged::forward) of a module, step of an optimizer, or item of a data loader or iterator is a range of
    /// this name. The other methods are those of the value.
    fn in_range(self, name: impl Into<Arc<str>>) -> Ranged<Self>;
}

impl<T> InRange for T {
    fn in_range(self, name: impl Into<Arc<str>>) -> Ranged<Self> {
        Ranged { name: name.into(), inner: self }
    }
}

/// Runs the backward pass in the range `backward`.
///
/// ```no_run
/// use burn::tensor::Tensor;
/// use burn::tensor::backend::AutodiffBackend;
///
/// fn gradients<B: AutodiffBackend>(loss: &Tensor<B, 1>) -> B::Gradients {
///     gpu_profiler_burn::backward(loss) // instead of loss.backward()
/// }
/// ```
pub fn backward<B: AutodiffBackend, const D: usize>(loss: &Tensor<B, D>) -> B::Gradients {
    let _range = nvtx::range("backward");
    loss.backward()
}

impl<T> Ranged<T> {
    /// The value itself.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Calls `f` with the value in its range: for passes that are not called `forward` or take several inputs.
    pub fn run<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _range = nvtx::range(&self.name);
        f(&self.inner)
    }

    /// The forward pass of one of burn's modules, in its range.
    pub fn forward<I>(&self, input: I) -> T::Output
    where
        T: Forward<I>,
    {
        self.run(|module| Forward::forward(module, input))
    }

    pub(crate) fn with_inner<U>(&self, inner: U) -> Ranged<U> {
        Ranged { name: self.name.clone(), inner }
    }

    fn map_inner<U>(self, map: impl FnOnce(T) -> U) -> Ranged<U> {
        Ranged { inner: map(self.inner), name: self.name }
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

impl<B: Backend, M: Module<B>> Module<B> for Ranged<M> {
    type Record = M::Record;

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        self.inner.collect_devices(devices)
    }

    fn fork(self, device: &B::Device) -> Self {
        self.map_inner(|module| module.fork(device))
    }

    fn to_device(self, device: &B::Device) -> Self {
        self.map_inner(|module| module.to_device(device))
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.inner.visit(visitor);
    }

    fn map<V: ModuleMapper<B>>(self, mapper: &mut V) -> Self {
        self.map_inner(|module| module.map(mapper))
    }

    fn load_record(self, record: Self::Record) -> Self {
        self.map_inner(|module| module.load_record(record))
    }

    fn into_record(self) -> Self::Record {
        self.inner.into_record()
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> AutodiffModule<B> for Ranged<M> {
    type InnerModule = Ranged<M::InnerModule>;

    fn valid(&self) -> Self::InnerModule {
        self.with_inner(self.inner.valid())
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        module.map_inner(M::from_inner)
    }
}

impl<B: AutodiffBackend, M: HasAutodiffModule<B>> HasAutodiffModule<B> for Ranged<M> {
    type TrainModule = Ranged<M::TrainModule>;
}

impl<M: ModuleDisplay> ModuleDisplayDefault for Ranged<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.inner.content(content)
    }

    fn num_params(&self) -> usize {
        ModuleDisplayDefault::num_params(&self.inner)
    }
}

impl<M: ModuleDisplay> ModuleDisplay for Ranged<M> {}

impl<B, M, O> Optimizer<M, B> for Ranged<O>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    type Record = O::Record;

    fn step(&mut self, rate: LearningRate, module: M, gradients: GradientsParams) -> M {
        let _range = nvtx::range(&self.name);
        self.inner.step(rate, module, gradients)
    }

    fn step_multi(&mut self, rate: LearningRate, module: M, gradients: MultiGradientsParams) -> M {
        let _range = nvtx::range(&self.name);
        self.inner.step_multi(rate, module, gradients)
    }

    fn to_record(&self) -> Self::Record {
        self.inner.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        self.map_inner(|optimizer| optimizer.load_record(record))
    }
}

impl<I: Iterator> Iterator for Ranged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let _range = nvtx::range(&self.name);
        self.inner.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}
