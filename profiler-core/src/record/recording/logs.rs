//! Logs of several threads.

use cupti::ThreadCalls;
use profiler_base::order;
use rustc_hash::FxHashMap;

/// Logs by thread, assembled from frames or segments, in the order of their first ones.
pub(super) struct Logs<T> {
    pub(super) threads: Vec<T>,
    pub(super) places: FxHashMap<u32, usize>,
}

impl<T> Default for Logs<T> {
    fn default() -> Self {
        Self { threads: Vec::new(), places: FxHashMap::default() }
    }
}

impl<T> Logs<T> {
    /// The thread with this key, inserted if it is new.
    pub(super) fn thread(&mut self, key: u32, new: impl FnOnce() -> T) -> &mut T {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.threads.push(new());
            self.threads.len() - 1
        });
        &mut self.threads[place]
    }
}

impl<F> Logs<ThreadCalls<F>> {
    pub(super) fn append(&mut self, mut thread: ThreadCalls<F>) {
        let id = thread.thread_id;
        let known = self.thread(id, || ThreadCalls::new(id, None, Vec::new()));
        match known.calls.is_empty() {
            true => *known = thread,
            false => known.calls.append(&mut thread.calls),
        }
    }

    /// Returns the calls in start order: a call is added to the segment in which it returned.
    pub(super) fn sorted(mut self) -> Vec<ThreadCalls<F>> {
        sort_calls(&mut self.threads);
        self.threads
    }
}

pub(super) fn sort_calls<F>(threads: &mut [ThreadCalls<F>]) {
    for thread in threads {
        order::sort_by_number(&mut thread.calls, |call| call.start_ns);
    }
}
