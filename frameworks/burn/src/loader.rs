//! Data loaders whose items are ranges.

use std::ops::Deref;
use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;

use crate::Ranged;

impl<O, I: DataLoaderIterator<O> + ?Sized> DataLoaderIterator<O> for Ranged<Box<I>> {
    fn progress(&self) -> Progress {
        self.deref().progress()
    }
}

/// ```no_run
/// use std::sync::Arc;
///
/// use burn::data::dataloader::DataLoader;
/// use burn::tensor::backend::Backend;
/// use gpu_profiler_burn::InRange;
///
/// fn ranged<B: Backend, O: 'static>(loader: Arc<dyn DataLoader<B, O>>) -> Arc<dyn DataLoader<B, O>> {
///     Arc::new(loader.in_range("data"))
/// }
/// ```
impl<B: Backend, O: 'static> DataLoader<B, O> for Ranged<Arc<dyn DataLoader<B, O>>> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(self.with_inner(self.deref().iter()))
    }

    fn num_items(&self) -> usize {
        self.deref().num_items()
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(self.with_inner(self.deref().to_device(device)))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, O>> {
        Arc::new(self.with_inner(self.deref().slice(start, end)))
    }
}
