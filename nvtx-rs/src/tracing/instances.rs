//! Numbers that distinguish spans of one name, such as a model's layers.
//!
//! A model creates its spans with its modules and enters them at every pass. A span gets its number
//! at the first entry: the lowest that no living span of this name has on the same path. So six
//! layers of an encoder are `layer 0` to `layer 5` in every pass. A model that is built anew has
//! the same numbers again.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::place::Place;

/// The maximum number of numbered spans of a name on one path. Further spans have no number: their
/// ranges have the plain name, as without this setting.
const MOST: u32 = 1024;
/// The maximum number of paths with numbers. Spans on further ones have no number either.
const PATHS: usize = 1 << 16;

thread_local! {
    /// The layer and the span that this thread created last, unless it entered or left a span
    /// since.
    static CREATED: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

/// The thread entered or left a span.
#[inline]
pub(super) fn moved_on() {
    CREATED.set(None);
}

/// The naming of a span's ranges.
#[derive(Clone, Debug, Default)]
pub(super) enum Instance {
    /// The span was not entered yet.
    #[default]
    New,
    /// It was entered right after its creation, as spans of steps and functions are, or has no
    /// number.
    Plain,
    /// It has this number on this path; `place` has its name.
    Numbered { place: &'static Place, path: Box<[Step]>, number: u32 },
}

/// A range on a path: name and number.
pub(super) type Step = (u32, u32);

/// The numbers in use by the spans of a layer.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Living spans by name.
    living: FxHashMap<u32, u64>,
    /// By path and name.
    used: HashMap<(Box<[Step]>, u32), BTreeSet<u32>>,
}

impl Numbers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn created(&self, layer: usize, span: u64, place: &Place) {
        CREATED.set(Some((layer, span)));
        *self.lock().living.entry(place.name).or_default() += 1;
    }

    /// Returns the naming of a span that is entered for the first time, within the ranges of
    /// `path`.
    pub(super) fn first_entry(
        &self,
        layer: usize,
        span: u64,
        place: &'static Place,
        path: Box<[Step]>,
    ) -> Instance {
        if CREATED.get() == Some((layer, span)) {
            return Instance::Plain;
        }
        let mut state = self.lock();
        let living = |name: u32| state.living.get(&name).copied().unwrap_or(1);
        // A single span within each outer module needs no number.
        let outer = path.last().map_or(1, |(name, _)| living(*name));
        let has_siblings = living(place.name) > outer;
        let is_full = state.used.len() >= PATHS;
        let key = (path, place.name);
        if is_full && !state.used.contains_key(&key) {
            return Instance::Plain;
        }
        let path = key.0.clone();
        let used = state.used.entry(key).or_default();
        let free = (0..MOST).zip(used.iter().map(Some).chain(std::iter::repeat(None)));
        let mut free = free.filter(|(number, used)| used.is_none_or(|used| used != number));
        let Some((number, _)) = free.next() else { return Instance::Plain };
        used.insert(number);
        drop(state);
        // A single one retains its name; a later second one is "layer 1".
        let place = if number == 0 && !has_siblings { place } else { place.numbered(number) };
        Instance::Numbered { place, path, number }
    }

    /// Handles the close of the span with this data.
    pub(super) fn closed(&self, name: u32, instance: Instance) {
        let mut state = self.lock();
        if let Some(living) = state.living.get_mut(&name) {
            *living -= 1;
            if *living == 0 {
                state.living.remove(&name);
            }
        }
        drop(state);
        self.release(name, instance);
    }

    /// Releases a number.
    pub(super) fn release(&self, name: u32, instance: Instance) {
        let Instance::Numbered { path, number, .. } = instance else { return };
        let mut state = self.lock();
        let key = (path, name);
        if let Some(used) = state.used.get_mut(&key) {
            used.remove(&number);
            if used.is_empty() {
                state.used.remove(&key);
            }
        }
    }
}
