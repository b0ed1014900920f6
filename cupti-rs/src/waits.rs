//! Synchronisations from the calls that wait: records of the kind `SYNCHRONIZATION` that this crate
//! writes instead of CUPTI.
//!
//! CUPTI's own records of that kind make all calls of the program slower, not only those that wait
//! (docs/decisions/049-synchronisations-from-calls.md). The callback of a call that waits has
//! nearly the same data: the kind, the context and the stream, but not the event.

use std::sync::Arc;

use crate::buffer::Log;
use crate::clock::{self, Clock};
use crate::kind::ActivityKind;
use crate::record::NO_ID;
use crate::sys::field;
use crate::sys::generated::synchronization as layout;
use crate::thread_log::{Reader, Writer};
use crate::version::Version;

/// The target of a driver function that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// `CUpti_ActivitySynchronizationType`.
    pub(crate) kind: u32,
    /// True if its first parameter is the stream: the one that is waited for, or that waits.
    pub(crate) has_stream: bool,
    /// True if its default stream is the thread's own.
    pub(crate) is_per_thread: bool,
}

/// Returns the target of the driver function with this callback id, if it waits.
#[inline(always)] // into the one hot callback
pub(crate) fn waiting(id: u32) -> Option<Waiting> {
    let (kind, has_stream, is_per_thread) = match id {
        121 => (1, false, false),
        295 => (2, true, false),
        436 => (2, true, true),
        126 => (3, true, false),
        440 => (3, true, true),
        17 | 800 => (4, false, false),
        _ => return None,
    };
    Some(Waiting { kind, has_stream, is_per_thread })
}

/// A call that waited and succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) kind: u32,
    pub(crate) correlation_id: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    /// The time of the call's begin, in [`clock::now_ns`] time.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

const WORDS: usize = 4;
const END: usize = 3;

pub(crate) type WaitWriter = Writer<WORDS>;
pub(crate) type WaitReader = Reader<WORDS>;

/// The reader of a thread's waits. A wait has finished when it is written.
pub(crate) fn reader(writer: &WaitWriter) -> WaitReader {
    writer.log().reader(Some(END))
}

impl Wait {
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ids = pair(self.correlation_id, self.kind);
        [ids, pair(self.context, self.stream), self.start_ns, self.end_ns]
    }

    fn from_words([ids, place, start_ns, end_ns]: [u64; WORDS]) -> Self {
        let ((correlation_id, kind), (context, stream)) =
            ((ids as u32, (ids >> 32) as u32), (place as u32, (place >> 32) as u32));
        Self { kind, correlation_id, context, stream, start_ns, end_ns }
    }

    /// Adds a log's waits that ended before a time; with `take` they are removed from it.
    pub(crate) fn read(reader: &mut WaitReader, until_ns: u64, take: bool, to: &mut Vec<Self>) {
        let visit = |_, words| {
            let wait = Self::from_words(words);
            if wait.end_ns < until_ns {
                to.push(wait);
            }
        };
        if take { reader.drain(until_ns, visit) } else { reader.rest(visit) }
    }

    /// Writes the record at the end of `bytes`, in the layout of a library whose records have this
    /// length.
    fn write(&self, bytes: &mut Vec<u8>, clock: &Clock, stride: usize) {
        let at = bytes.len();
        bytes.resize(at + stride, 0);
        let mut put = |offset: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at + offset..at + offset + value.len()) {
                place.copy_from_slice(value);
            }
        };
        put(0, &ActivityKind::SYNCHRONIZATION.0.to_ne_bytes());
        let ids = [
            (layout::TYPE, self.kind),
            (layout::CORRELATION_ID, self.correlation_id),
            (layout::CONTEXT_ID, self.context),
            (layout::STREAM_ID, self.stream),
            (layout::CUDA_EVENT_ID, NO_ID),
        ];
        for (field, id) in ids {
            put(field.offset(), &id.to_ne_bytes());
        }
        for (field, ns) in [(layout::START, self.start_ns), (layout::END, self.end_ns)] {
            put(field.offset(), &clock.cupti_ns(ns).to_ne_bytes());
        }
    }
}

/// Adds the records of the waits that began while kinds were enabled to a log of CUPTI's records.
pub(crate) fn write(
    waits: &[Wait],
    enabled_ns: &[(u64, u64)],
    clock: &Clock,
    version: Version,
    log: &mut Log,
) {
    let kind = ActivityKind::SYNCHRONIZATION.0;
    let Some(stride) = field::stride(layout::STRIDES, version) else { return };
    let mut bytes = Vec::new();
    for wait in waits.iter().filter(|wait| clock::is_within(enabled_ns, wait.start_ns)) {
        wait.write(&mut bytes, clock, stride);
    }
    if !bytes.is_empty() {
        log.strides.entry(kind).or_insert(stride as u32);
        log.buffers.push(Arc::new(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_class::CallClass;
    use crate::sys::functions::{DRIVER_CALLS, DRIVER_FUNCTIONS};

    #[test]
    fn every_waiting_driver_function_has_a_target() {
        for (id, name) in (0..).zip(DRIVER_FUNCTIONS.iter()) {
            let class = DRIVER_CALLS.by_id(id).map(|call| call.class);
            let waits = matches!(class, Some(CallClass::Synchronize | CallClass::WaitEvent));
            let found = waiting(id);
            assert_eq!(found.is_some(), waits, "{name}");
            let Some(found) = found else { continue };
            assert_eq!(found.has_stream, name.contains("Stream"), "{name}");
            assert_eq!(found.is_per_thread, name.ends_with("_ptsz"), "{name}");
            let kind = match name.trim_end_matches("_ptsz") {
                "cuEventSynchronize" => 1,
                "cuStreamWaitEvent" => 2,
                "cuStreamSynchronize" => 3,
                _ => 4,
            };
            assert_eq!(found.kind, kind, "{name}");
        }
    }

    #[test]
    fn wait_round_trips_through_its_words() {
        let wait = Wait {
            kind: 3,
            correlation_id: u32::MAX,
            context: 5,
            stream: u32::MAX - 1,
            start_ns: u64::MAX - 1,
            end_ns: u64::MAX,
        };
        assert_eq!(Wait::from_words(wait.to_words()), wait);
    }
}
