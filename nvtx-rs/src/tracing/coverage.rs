//! Spans that a layer cannot have seen: those created before it was installed, and those that a
//! filter disabled.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxBuildHasher, FxHashSet};
use tracing_core::Metadata;
use tracing_core::callsite::Identifier;

thread_local! {
    /// Pairs of call site and layer for which this thread has seen a span's creation.
    static CREATED: RefCell<FxHashSet<(usize, u64)>> =
        const { RefCell::new(HashSet::with_hasher(FxBuildHasher)) };
}

/// The call sites whose spans a layer has received. Made by
/// [`NvtxLayer::coverage`](super::NvtxLayer::coverage).
///
/// A span that is created before the layer is installed, or that a filter disables, is not a range.
/// The layer receives no call when such a span is entered. But `tracing` registers each call site
/// that is reached while a subscriber is interested in its level. It shows all of them to a new
/// layer. A site without a single span since then indicates such spans: a model was built too
/// early, or a filter disables them.
///
/// `tracing` does not register sites that were reached while the process had no subscriber. The
/// only sign of these is a layer that has received no span at all ([`has_spans`](Self::has_spans)).
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// # #[cfg(feature = "enable")] {
/// let mut layer = nvtx::NvtxLayer::new();
/// let coverage = layer.coverage();
/// let subscriber = tracing_subscriber::registry().with(layer);
/// let new_model = || tracing::info_span!("module");
/// // Another subscriber is installed when the model is built, so that `tracing` knows its call site.
/// let _early = tracing::subscriber::with_default(tracing_subscriber::registry(), new_model);
/// tracing::subscriber::with_default(subscriber, || {
///     assert_eq!(coverage.unused().map(|site| site.name()).collect::<Vec<_>>(), ["module"]);
///     let _span = new_model();
///     assert_eq!(coverage.unused().count(), 0);
/// });
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SpanCoverage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Never used again, unlike addresses.
    number: u64,
    sites: Mutex<HashMap<Identifier, Site>>,
    unknown_entries: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Site {
    metadata: &'static Metadata<'static>,
    /// A span was created there since the layer was installed.
    is_used: bool,
}

impl SpanCoverage {
    pub(super) fn new() -> SpanCoverage {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (sites, unknown_entries) = (Mutex::default(), AtomicU64::new(0));
        SpanCoverage(Arc::new(Shared { number, sites, unknown_entries }))
    }

    fn sites(&self) -> MutexGuard<'_, HashMap<Identifier, Site>> {
        self.0.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call sites that were reached, before the layer was installed or since, and have created
    /// no span for it.
    pub fn unused(&self) -> impl Iterator<Item = &'static Metadata<'static>> {
        let unused = self
            .sites()
            .values()
            .filter(|site| !site.is_used)
            .map(|site| site.metadata)
            .collect::<Vec<_>>();
        unused.into_iter()
    }

    /// True if any span was created since the layer was installed.
    pub fn has_spans(&self) -> bool {
        self.sites().values().any(|site| site.is_used)
    }

    /// The number of entries of spans that were created at a site before the layer was part of
    /// their subscriber ([`reload`](tracing_subscriber::reload)). They are ranges, without the
    /// fields and the number of the span.
    pub fn unknown_entries(&self) -> u64 {
        self.0.unknown_entries.load(Ordering::Relaxed)
    }

    pub(super) fn registered(&self, metadata: &'static Metadata<'static>) {
        if metadata.is_span() {
            self.sites().entry(metadata.callsite()).or_insert(Site { metadata, is_used: false });
        }
    }

    fn key(&self, metadata: &'static Metadata<'static>) -> (usize, u64) {
        (std::ptr::from_ref(metadata).addr(), self.0.number)
    }

    pub(super) fn created(&self, metadata: &'static Metadata<'static>) {
        let is_new = CREATED.try_with(|created| {
            created.try_borrow_mut().is_ok_and(|mut created| created.insert(self.key(metadata)))
        });
        if is_new.unwrap_or(true) {
            self.sites().insert(metadata.callsite(), Site { metadata, is_used: true });
        }
    }

    pub(super) fn entered(&self, metadata: &'static Metadata<'static>) {
        let is_known = CREATED.try_with(|created| {
            created.try_borrow().is_ok_and(|created| created.contains(&self.key(metadata)))
        });
        if is_known.unwrap_or(true) {
            return;
        }
        // Another thread may have created it.
        if self.sites().get(&metadata.callsite()).is_some_and(|site| site.is_used) {
            self.created(metadata);
        } else {
            self.0.unknown_entries.fetch_add(1, Ordering::Relaxed);
        }
    }
}
