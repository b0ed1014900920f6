//! NCCL's collectives, sends and receives as marks of the thread that enqueues them.
//!
//! A mark is in the domain [`COLLECTIVES_DOMAIN`], with the field names that `Profile::collectives`
//! reads. NCCL reports a collective right after launching its kernel, on the same thread. The mark
//! therefore follows the launch call.

use std::cell::Cell;

use arrayvec::ArrayVec;
use cupti::clock::now_ns;
use nvtx::Field;
use nvtx::observer::RangeStart;
use parking_lot::Mutex;
use profiler_base::collectives::{COLLECTIVES_DOMAIN, fields};
use rustc_hash::FxHashMap;

use super::{Text, observer};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// The maximum number of communicators in a process. Events of further communicators are not
/// requested.
const MOST: usize = 1 << 16;
/// The maximum length of a communicator's name in bytes.
const LONGEST_NAME: usize = 256;

/// NCCL's description of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommunicatorDescription<'a> {
    pub(crate) hash: u64,
    pub(crate) ranks: i32,
    pub(crate) rank: i32,
    pub(crate) name: Option<Text<'a>>,
}

/// NCCL's description of a collective, send or receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective<'a> {
    pub(crate) function: Text<'a>,
    /// The sequence number among calls of the same function in the communicator. `None` for sends
    /// and receives.
    pub(crate) sequence: Option<u64>,
    /// The number of elements.
    pub(crate) count: u64,
    pub(crate) datatype: Text<'a>,
    /// The root of a rooted collective, or the peer of a send or receive.
    pub(crate) other_rank: i32,
    pub(crate) channels: u8,
    pub(crate) algorithm: Option<Text<'a>>,
    pub(crate) protocol: Option<Text<'a>>,
}

struct Communicator {
    hash: u64,
    ranks: u64,
    rank: u64,
    name: Box<str>,
    /// The number of sends and receives so far, by direction and peer.
    exchanges: Mutex<FxHashMap<(bool, i32), u64>>,
}

impl Communicator {
    /// The sequence number of a send or receive among those with the same direction and peer.
    fn next_exchange(&self, exchange: &Collective<'_>) -> u64 {
        let is_send = matches!(exchange.function, Text::Bytes(b"Send"));
        let mut exchanges = self.exchanges.lock();
        let next = exchanges.entry((is_send, exchange.other_rank)).or_default();
        *next += 1;
        *next - 1
    }
}

static COMMUNICATORS: boxcar::Vec<Communicator> = boxcar::Vec::new();

thread_local! {
    /// The communicator whose kernel this thread launched last, and the start of that launch in
    /// nanoseconds.
    static LAUNCH: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// The names and element sizes of NCCL's types: NCCL's name, our name, bytes per element.
const TYPES: [(&[u8], &str, u64); 11] = [
    (b"ncclInt8", "int8", 1),
    (b"ncclInt32", "int32", 4),
    (b"ncclUint32", "uint32", 4),
    (b"ncclInt64", "int64", 8),
    (b"ncclUint64", "uint64", 8),
    (b"ncclFloat16", "float16", 2),
    (b"ncclFloat32", "float32", 4),
    (b"ncclFloat64", "float64", 8),
    (b"ncclBfloat16", "bfloat16", 2),
    (b"ncclFloat8e4m3", "float8e4m3", 1),
    (b"ncclFloat8e5m2", "float8e5m2", 1),
];

/// Registers a communicator and returns its handle, which is not 0. Returns `None` without a
/// recording, or if there are too many communicators.
pub(crate) fn register(described: &CommunicatorDescription<'_>) -> Option<usize> {
    if !Mode::load().is_on() {
        return None;
    }
    if COMMUNICATORS.count() >= MOST {
        count(&COUNTS.refused_objects);
        return None;
    }
    let name = described.name.map(|name| {
        let name = name.decoded();
        name[..name.floor_char_boundary(LONGEST_NAME)].into()
    });
    let number = |value: i32| u64::try_from(value).unwrap_or(0);
    let index = COMMUNICATORS.push(Communicator {
        hash: described.hash,
        ranks: number(described.ranks),
        rank: number(described.rank),
        name: name.unwrap_or_default(),
        exchanges: Mutex::default(),
    });
    Some(index + 1)
}

fn communicator(handle: usize) -> Option<&'static Communicator> {
    let found = handle.checked_sub(1).and_then(|index| COMMUNICATORS.get(index));
    if found.is_none() {
        count(&COUNTS.unknown_handles);
    }
    found
}

/// Called when this thread is about to launch a kernel of a communicator.
pub(crate) fn begin_launch(handle: usize) {
    let mode = Mode::load();
    if mode.is_on() && !mode.is_paused() {
        let _ = LAUNCH.try_with(|launch| launch.set((handle, now_ns())));
    }
}

/// Records a collective whose kernel this thread has launched. While the recording is paused, the
/// launch is not recorded, and only the sequence number is counted.
pub(crate) fn record(handle: usize, collective: &Collective<'_>) {
    let mode = Mode::load();
    if !mode.is_on() {
        return;
    }
    let Some(communicator) = communicator(handle) else { return };
    let sequence = collective.sequence.unwrap_or_else(|| communicator.next_exchange(collective));
    if mode.is_paused() {
        return;
    }
    let function = collective.function.decoded();
    if function.is_empty() {
        count(&COUNTS.unreadable_events);
        return;
    }
    // For graphs and for programs that block on launches, NCCL reports work on a driver thread.
    // That thread has no launch.
    let launch = LAUNCH.try_with(Cell::get).ok();
    let launch_ns = launch.filter(|launch| launch.0 == handle).map(|launch| launch.1);
    let kind = match collective.datatype {
        Text::Bytes(text) => TYPES.iter().find(|kind| kind.0 == text),
        Text::Wide(_) => None,
    };
    let algorithm = collective.algorithm.map(Text::decoded);
    let protocol = collective.protocol.map(Text::decoded);
    let texts = [
        (fields::DATATYPE, kind.map(|kind| kind.1)),
        (fields::ALGORITHM, algorithm.as_deref()),
        (fields::PROTOCOL, protocol.as_deref()),
        (fields::NAME, Some(&*communicator.name).filter(|name| !name.is_empty())),
    ];
    let bytes = kind.map(|kind| kind.2.saturating_mul(collective.count));
    let numbers = [
        (fields::COMMUNICATOR, Some(communicator.hash), ""),
        (fields::RANK, Some(communicator.rank), ""),
        (fields::RANKS, Some(communicator.ranks), ""),
        (fields::SEQUENCE, Some(sequence), ""),
        (fields::BYTES, bytes, "B"),
        (fields::CHANNELS, Some(collective.channels.into()), ""),
        (fields::OTHER_RANK, u64::try_from(collective.other_rank).ok(), ""),
        (fields::LAUNCH, launch_ns, "ns"),
    ];
    let numbers =
        numbers.into_iter().filter_map(|(name, value, unit)| Some(Field::new(name, value?, unit)));
    let texts = texts.into_iter().filter_map(|(name, text)| Some(Field::new(name, text?, "")));
    let all: ArrayVec<Field<'_>, 12> = numbers.chain(texts).collect();
    let mut mark = RangeStart::new(&function);
    mark.domain = Some(COLLECTIVES_DOMAIN);
    mark.fields = &all;
    observer().mark(&mark);
}
