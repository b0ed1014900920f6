//! The buffers that CUPTI holds, grouped into time spans by the flushes after which CUPTI requested
//! them.
//!
//! Under load CUPTI always holds a buffer, so only the older ones show what has arrived. When a
//! flush returns, the records of all calls that ended before it have their slots in a buffer. Once
//! every buffer that was lent before that return is back, these records have arrived. This held on
//! an H200 with threads that launched all the time, checked call by call (`tests/gpu_load.rs`).

use crate::shared::{AtomicU32, AtomicU64, Mutex, Ordering, spin};

/// The maximum number of spans at a time. While the oldest waits for a buffer, the last one grows.
const SPANS: usize = if cfg!(all(test, cupti_loom)) { 4 } else { 64 };
/// The fields of a span's word. The upper half is its number, the lower half the count of its
/// outstanding buffers. The bit between them marks a span that is over.
const COUNT: u64 = (1 << 31) - 1;
const OVER: u64 = 1 << 31;

/// Lending and returning a buffer take no lock.
#[derive(Debug)]
pub(super) struct Outstanding {
    spans: [AtomicU64; SPANS],
    /// All records of calls before this time have arrived once all earlier spans are done.
    after_ns: [AtomicU64; SPANS],
    /// The current span.
    current: AtomicU32,
    /// The first span of this collection that may have an outstanding buffer.
    first: Mutex<u32>,
}

impl Outstanding {
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

    /// The outstanding buffers of a span.
    fn count(&self, span: u32) -> u64 {
        let word = self.word(span).load(Ordering::Acquire);
        if number(word) == span { word & COUNT } else { 0 }
    }

    /// Begins a collection: buffers of earlier ones may still be returned, but are not waited for.
    pub(super) fn begin(&self, now_ns: u64) {
        let mut first = self.first.lock();
        *first = self.begin_span(now_ns);
    }

    /// Lends a buffer; returns its span, for [`returned`](Self::returned).
    pub(super) fn lend(&self) -> u32 {
        loop {
            let span = self.current.load(Ordering::Acquire);
            let one_more = |word: u64| (number(word) == span && word & OVER == 0).then(|| word + 1);
            let word = self.word(span);
            if word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok() {
                return span;
            }
            // A flush ended the span.
            spin();
        }
    }

    pub(super) fn returned(&self, span: u32) {
        let one_fewer = |word: u64| (number(word) == span && word & COUNT != 0).then(|| word - 1);
        let _ = self.word(span).fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_fewer);
    }

    /// Begins a new span after a flush that began at this time has returned, if there is room for
    /// one.
    pub(super) fn flushed(&self, begun_ns: u64) {
        let mut first = self.first.lock();
        self.advance(&mut first);
        let current = self.current.load(Ordering::Acquire);
        if current.wrapping_sub(*first) as usize + 1 < SPANS {
            self.begin_span(begun_ns);
            self.advance(&mut first);
        }
    }

    /// Requires the lock, and a free slot for the next span.
    fn begin_span(&self, after_ns: u64) -> u32 {
        let current = self.current.load(Ordering::Acquire);
        let next = current.wrapping_add(1);
        self.after_ns(next).store(after_ns, Ordering::Relaxed);
        self.word(next).store(u64::from(next) << 32, Ordering::Release);
        self.current.store(next, Ordering::Release);
        // From here on no buffer of it is lent.
        self.word(current).fetch_or(OVER, Ordering::AcqRel);
        next
    }

    fn advance(&self, first: &mut u32) {
        let current = self.current.load(Ordering::Acquire);
        while *first != current && self.count(*first) == 0 {
            *first = first.wrapping_add(1);
        }
    }

    /// The time before which all requested work has its records delivered.
    pub(super) fn settled_ns(&self) -> u64 {
        let mut first = self.first.lock();
        self.advance(&mut first);
        self.after_ns(*first).load(Ordering::Relaxed)
    }

    /// The outstanding buffers that may contain records of calls before a time.
    pub(super) fn count_before(&self, time_ns: u64) -> u64 {
        let first = self.first.lock();
        let current = self.current.load(Ordering::Acquire);
        let spans = (0..=current.wrapping_sub(*first)).map(|further| first.wrapping_add(further));
        let is_before = |span: &u32| self.after_ns(*span).load(Ordering::Relaxed) < time_ns;
        spans.filter(is_before).map(|span| self.count(span)).sum()
    }
}

fn number(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The hand-over of a buffer's records to a drain, in every interleaving; `.ci/run loom`.
#[cfg(all(test, cupti_loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// CUPTI's thread lends two buffers and returns them, while another thread flushes and drains twice.
    #[test]
    fn drain_has_the_records_of_all_buffers_lent_before_the_settled_time() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (out, log) = (Arc::new(Outstanding::new()), Arc::new(Mutex::new(Vec::new())));
            out.begin(1);
            let lender = thread::spawn({
                let (out, log) = (out.clone(), log.clone());
                move || {
                    [7, 8].map(|buffer| {
                        let span = out.lend();
                        // As `completed`: the records are in the log before the buffer counts as returned.
                        log.lock().push(buffer);
                        out.returned(span);
                        (buffer, span)
                    })
                }
            });
            // As `drain_delivered`: the time is read before the records are taken.
            let drains = [2, 3].map(|begun_ns| {
                out.flushed(begun_ns);
                let settled_ns = out.settled_ns();
                (settled_ns, log.lock().clone())
            });
            let lent = lender.join().unwrap();
            for (settled_ns, drained) in drains {
                for (buffer, span) in lent {
                    // Each span began at the time that is its number.
                    let is_settled = settled_ns > u64::from(span);
                    assert!(
                        !is_settled || drained.contains(&buffer),
                        "{settled_ns} {lent:?} {drained:?}"
                    );
                }
            }
            assert_eq!((out.settled_ns(), out.count_before(u64::MAX)), (3, 0));
        });
    }
}

#[cfg(all(test, not(cupti_loom)))]
mod tests {
    use super::*;

    /// The state of a collection that began at the time 1.
    fn begun() -> Outstanding {
        let out = Outstanding::new();
        out.begin(1);
        out
    }

    fn flush(out: &Outstanding, begun_ns: u64) -> u64 {
        out.flushed(begun_ns);
        out.settled_ns()
    }

    #[test]
    fn buffers_before_and_after_a_flush_are_distinguished() {
        let out = begun();
        let early = out.lend();
        assert_eq!(flush(&out, 10), 1);
        let late = out.lend();
        assert_eq!((out.count_before(10), out.count_before(u64::MAX)), (1, 2));
        out.returned(early);
        assert_eq!(out.settled_ns(), 10, "whatever came after it");
        assert_eq!((out.count_before(10), out.count_before(u64::MAX)), (0, 1));
        assert_eq!(flush(&out, 20), 10);
        out.returned(late);
        assert_eq!(out.settled_ns(), 20);
    }

    #[test]
    fn buffer_requested_during_a_flush_is_awaited() {
        let out = begun();
        let early = out.lend();
        let during = out.lend();
        out.returned(early);
        assert_eq!((flush(&out, 10), out.count_before(10)), (1, 1));
        out.returned(during);
        assert_eq!(out.settled_ns(), 10);
    }

    #[test]
    fn of_an_earlier_collection_none_counts() {
        let out = begun();
        let earlier = [out.lend(), out.lend()];
        out.begin(5);
        assert_eq!(out.count_before(u64::MAX), 0);
        let own = out.lend();
        out.returned(earlier[0]);
        assert_eq!(
            out.count_before(u64::MAX),
            1,
            "the one that is waited for is not the one that came"
        );
        out.returned(own);
        assert_eq!(out.count_before(u64::MAX), 0);
        // Its place is another's by now.
        (1..SPANS as u64).for_each(|i| out.flushed(5 + i));
        let own = out.lend();
        assert_eq!(own as usize % SPANS, earlier[1] as usize % SPANS);
        out.returned(earlier[1]);
        assert_eq!(out.count_before(u64::MAX), 1);
    }

    #[test]
    fn while_one_buffer_stays_out_the_last_span_goes_on() {
        let out = begun();
        let slow = out.lend();
        (2..2 * SPANS as u64).for_each(|i| assert_eq!(flush(&out, i), 1));
        let late = out.lend();
        assert_eq!(flush(&out, 1_000), 1);
        out.returned(slow);
        // The last one for which there was room.
        assert_eq!((out.settled_ns(), out.count_before(1_000)), (SPANS as u64, 1));
        assert_eq!(flush(&out, 1_001), SPANS as u64);
        out.returned(late);
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
                        own.push(out.lend());
                        if i % 3 != 0 {
                            own.drain(..).for_each(|span| out.returned(span));
                        }
                    }
                    own.into_iter().for_each(|span| out.returned(span));
                });
            }
            for i in 2..ROUNDS {
                assert!(flush(&out, i) <= i);
            }
        });
        assert_eq!(out.count_before(u64::MAX), 0);
        assert_eq!(flush(&out, ROUNDS), ROUNDS);
    }
}
