//! Synchronisation objects of the program.

use nvtx::observer::SyncStep;
use parking_lot::RwLock;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::domain::Domain;
use super::names::{self, Kind};
use super::{Name, changing, observer, with_name};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// The maximum number of objects at a time.
const MOST: usize = 1 << 16;

struct Objects {
    by_number: FxHashMap<usize, (&'static Domain, Box<str>)>,
    next: usize,
}

static OBJECTS: RwLock<Objects> =
    RwLock::new(Objects { by_number: FxHashMap::with_hasher(FxBuildHasher), next: 0 });

/// Registers an object and returns its handle, or 0 if there are too many.
pub(crate) fn create(domain: usize, name: Name<'_>) -> usize {
    if !Mode::load().is_active() {
        return 0;
    }
    let name: Box<str> = with_name(name, |name| name.into());
    let _changes = changing();
    let objects = &mut *OBJECTS.write();
    if objects.by_number.len() >= MOST {
        count(&COUNTS.refused_objects);
        return 0;
    }
    let number = objects.next;
    objects.next += 1;
    objects.by_number.insert(number, (Domain::from_handle(domain), name));
    names::handle(Kind::Sync, number)
}

pub(crate) fn destroy(handle: usize) {
    if !Mode::load().is_active() {
        return;
    }
    let _changes = changing();
    let number = names::index(Kind::Sync, handle);
    if number.and_then(|number| OBJECTS.write().by_number.remove(&number)).is_none() {
        count(&COUNTS.unknown_handles);
    }
}

/// Passes this thread's operation on an object to the observer.
pub(crate) fn step(handle: usize, step: SyncStep) {
    if !Mode::load().is_on() {
        return;
    }
    let objects = OBJECTS.read();
    match names::index(Kind::Sync, handle).and_then(|number| objects.by_number.get(&number)) {
        Some((domain, name)) => observer().sync(domain.name, name, step),
        None => count(&COUNTS.unknown_handles),
    }
}
