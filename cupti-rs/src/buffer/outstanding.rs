//! The buffers that CUPTI holds, by the flushes after which it asked for them.
//!
//! Under load there is always a buffer with CUPTI, so that what has come is told by the older ones. When a flush returns, the
//! records of all calls that had ended before it have their places: once every buffer that was given out before that return is
//! back, they have come. So it was on an H200 with threads launching all the time, call by call (`tests/gpu_load.rs`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

/// So many spans of time are told apart. While the oldest waits for a buffer the last one goes on for longer.
const SPANS: usize = 64;
/// A span's word: its number in the upper half, how many of its buffers are out in the lower one, and between them
/// whether it is over.
const COUNT: u64 = (1 << 31) - 1;
const OVER: u64 = 1 << 31;

/// Who gives a buffer and who takes one back meets no lock here.
#[derive(Debug)]
pub(super) struct Out {
    spans: [AtomicU64; SPANS],
    /// What was asked for before has come once all earlier spans are done.
    after_ns: [AtomicU64; SPANS],
    /// The present span.
    current: AtomicU32,
    /// The first that some buffer may be out of, and that belongs to the present collection.
    first: Mutex<u32>,
}

impl Out {
    pub(super) fn new() -> Self {
        Self {
            spans: std::array::from_fn(|_| AtomicU64::new(0)),
            after_ns: std::array::from_fn(|_| AtomicU64::new(0)),
            current: AtomicU32::new(0),
            first: Mutex::new(0),
        }
    }

    fn word(&self, span: u32) -> &AtomicU64 {
        &self.spans[span as usize % SPANS]
    }

    fn after_ns(&self, span: u32) -> &AtomicU64 {
        &self.after_ns[span as usize % SPANS]
    }

    /// The buffers of a span that are out.
    fn of(&self, span: u32) -> u64 {
        let word = self.word(span).load(Ordering::Acquire);
        if number(word) == span { word & COUNT } else { 0 }
    }

    /// A collection begins: nobody waits any more for buffers of earlier ones, though they may still come.
    pub(super) fn begin(&self, now_ns: u64) {
        let mut first = self.first.lock();
        *first = self.begin_span(now_ns);
    }

    /// The span of a buffer that goes out, with which it comes [`back`](Self::back).
    pub(super) fn go(&self) -> u32 {
        loop {
            let span = self.current.load(Ordering::Acquire);
            let one_more = |word: u64| (number(word) == span && word & OVER == 0).then(|| word + 1);
            let word = self.word(span);
            if word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok() {
                return span;
            }
        }
    }

    pub(super) fn back(&self, span: u32) {
        let one_fewer = |word: u64| (number(word) == span && word & COUNT != 0).then(|| word - 1);
        let _ = self.word(span).fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_fewer);
    }

    /// A flush has returned that was begun at this time: a new span begins, as long as there is room for it.
    pub(super) fn flushed(&self, begun_ns: u64) {
        let mut first = self.first.lock();
        self.let_go(&mut first);
        let current = self.current.load(Ordering::Acquire);
        if current.wrapping_sub(*first) as usize + 1 < SPANS {
            self.begin_span(begun_ns);
            self.let_go(&mut first);
        }
    }

    /// Called with the lock held, while the next span's place is free.
    fn begin_span(&self, after_ns: u64) -> u32 {
        let current = self.current.load(Ordering::Acquire);
        let next = current.wrapping_add(1);
        self.after_ns(next).store(after_ns, Ordering::Relaxed);
        self.word(next).store(u64::from(next) << 32, Ordering::Release);
        self.current.store(next, Ordering::Release);
        // From here on nobody takes one of it.
        self.word(current).fetch_or(OVER, Ordering::AcqRel);
        next
    }

    fn let_go(&self, first: &mut u32) {
        let current = self.current.load(Ordering::Acquire);
        while *first != current && self.of(*first) == 0 {
            *first = first.wrapping_add(1);
        }
    }

    /// The records of what was asked for before this time have all come.
    pub(super) fn settled_ns(&self) -> u64 {
        let mut first = self.first.lock();
        self.let_go(&mut first);
        self.after_ns(*first).load(Ordering::Relaxed)
    }

    /// The buffers out in which something can be that was asked for before a time.
    pub(super) fn before(&self, time_ns: u64) -> u64 {
        let first = self.first.lock();
        let current = self.current.load(Ordering::Acquire);
        let spans = (0..=current.wrapping_sub(*first)).map(|further| first.wrapping_add(further));
        let is_before = |span: &u32| self.after_ns(*span).load(Ordering::Relaxed) < time_ns;
        spans.filter(is_before).map(|span| self.of(span)).sum()
    }
}

fn number(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose collection began at the time 1.
    fn begun() -> Out {
        let out = Out::new();
        out.begin(1);
        out
    }

    fn flush(out: &Out, begun_ns: u64) -> u64 {
        out.flushed(begun_ns);
        out.settled_ns()
    }

    #[test]
    fn what_came_before_a_flush_is_told_from_what_comes_after_it() {
        let out = begun();
        let early = out.go();
        assert_eq!(flush(&out, 10), 1);
        let late = out.go();
        assert_eq!((out.before(10), out.before(u64::MAX)), (1, 2));
        out.back(early);
        assert_eq!(out.settled_ns(), 10, "whatever came after it");
        assert_eq!((out.before(10), out.before(u64::MAX)), (0, 1));
        assert_eq!(flush(&out, 20), 10);
        out.back(late);
        assert_eq!(out.settled_ns(), 20);
    }

    #[test]
    fn a_buffer_that_was_asked_for_during_a_flush_is_waited_for() {
        let out = begun();
        let early = out.go();
        let during = out.go();
        out.back(early);
        assert_eq!((flush(&out, 10), out.before(10)), (1, 1));
        out.back(during);
        assert_eq!(out.settled_ns(), 10);
    }

    #[test]
    fn of_an_earlier_collection_none_counts() {
        let out = begun();
        let earlier = [out.go(), out.go()];
        out.begin(5);
        assert_eq!(out.before(u64::MAX), 0);
        let own = out.go();
        out.back(earlier[0]);
        assert_eq!(out.before(u64::MAX), 1, "the one that is waited for is not the one that came");
        out.back(own);
        assert_eq!(out.before(u64::MAX), 0);
        // Its place is another's by now.
        (1..SPANS as u64).for_each(|i| out.flushed(5 + i));
        let own = out.go();
        assert_eq!(own as usize % SPANS, earlier[1] as usize % SPANS);
        out.back(earlier[1]);
        assert_eq!(out.before(u64::MAX), 1);
    }

    #[test]
    fn while_one_buffer_stays_out_the_last_span_goes_on() {
        let out = begun();
        let slow = out.go();
        (2..2 * SPANS as u64).for_each(|i| assert_eq!(flush(&out, i), 1));
        let late = out.go();
        assert_eq!(flush(&out, 1_000), 1);
        out.back(slow);
        // The last one for which there was room.
        assert_eq!((out.settled_ns(), out.before(1_000)), (SPANS as u64, 1));
        assert_eq!(flush(&out, 1_001), SPANS as u64);
        out.back(late);
        assert_eq!(out.settled_ns(), 1_001);
    }

    #[test]
    fn threads_lose_no_count() {
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        let out = begun();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut own = Vec::new();
                    for i in 0..ROUNDS {
                        own.push(out.go());
                        if i % 3 != 0 {
                            own.drain(..).for_each(|span| out.back(span));
                        }
                    }
                    own.into_iter().for_each(|span| out.back(span));
                });
            }
            for i in 2..ROUNDS {
                assert!(flush(&out, i) <= i);
            }
        });
        assert_eq!(out.before(u64::MAX), 0);
        assert_eq!(flush(&out, ROUNDS), ROUNDS);
    }
}
