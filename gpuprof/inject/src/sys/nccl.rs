//! The profiler plugin that NCCL finds by name: interfaces v5 and v4.
//!
//! NCCL searches for `ncclProfiler_v5`, then for older versions, in the library that
//! `NCCL_PROFILER_PLUGIN` names. Every function returns success, because a failure would end the
//! program's collective. Handles are numbers that are never dereferenced.
#![allow(non_upper_case_globals, reason = "NCCL looks for these names")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use super::{guarded, read};
use crate::annotations::Text;
use crate::annotations::nccl::{self, Collective, CommunicatorDescription};
use crate::counts::{COUNTS, count};

/// `ncclSuccess`.
const SUCCESS: c_int = 0;

/// Bits of event types, in the mask that NCCL requests and in each event.
const COLLECTIVE: u64 = 1 << 1;
const POINT_TO_POINT: u64 = 1 << 2;
const KERNEL_LAUNCH: u64 = 1 << 11;

/// The requested events of each interface. Events of channels, proxies and networks are off,
/// because they cost up to 13 % of small collectives.
const EVENTS_V5: c_int = (COLLECTIVE | POINT_TO_POINT | KERNEL_LAUNCH) as c_int;
const EVENTS_V4: c_int = (COLLECTIVE | POINT_TO_POINT) as c_int;

type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *const c_void) -> c_int;
// Handles and arguments that are not read are declared as numbers.
type Stop = extern "C" fn(usize) -> c_int;
type RecordState = extern "C" fn(usize, c_int, usize) -> c_int;
type InitV5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type InitV4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;

/// The types `ncclProfiler_v5_t` and `ncclProfiler_v4_t`, which differ in the argument order of the
/// first function.
#[repr(C)]
pub(super) struct Plugin<Init> {
    name: *const c_char,
    init: Init,
    start_event: Start,
    stop_event: Stop,
    record_event_state: RecordState,
    finalize: Stop,
}

// SAFETY: its fields are functions and the address of a constant, and never change.
unsafe impl<Init: Sync> Sync for Plugin<Init> {}

#[unsafe(no_mangle)]
pub(super) static ncclProfiler_v5: Plugin<InitV5> = Plugin {
    name: c"gpuprof".as_ptr(),
    init: init_v5,
    start_event: start_v5,
    stop_event: succeed,
    record_event_state,
    finalize: succeed,
};

#[unsafe(no_mangle)]
pub(super) static ncclProfiler_v4: Plugin<InitV4> = Plugin {
    name: c"gpuprof".as_ptr(),
    init: init_v4,
    start_event: start_v4,
    stop_event: succeed,
    record_event_state,
    finalize: succeed,
};

/// The start of `ncclProfilerEventDescr_v5_t`. In version 4 the type is one byte followed by
/// padding.
#[repr(C)]
struct Header {
    kind: MaybeUninit<u64>,
    parent: *const c_void,
    rank: c_int,
}

/// The common start of a collective's description in both versions.
#[repr(C)]
struct CollectiveEvent {
    header: Header,
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
}

/// The common start of a send's or receive's description in both versions.
#[repr(C)]
struct PointToPointEvent {
    header: Header,
    function: *const c_char,
    buffer: *const c_void,
    datatype: *const c_char,
    count: usize,
    peer: c_int,
    channels: u8,
}

/// The offsets of the fields that are read, in NCCL's headers of both versions. A test compares
/// them with a header.
pub(crate) const OFFSETS: &[(&str, usize)] = &[
    ("parentObj", std::mem::offset_of!(Header, parent)),
    ("rank", std::mem::offset_of!(Header, rank)),
    ("coll.seqNumber", std::mem::offset_of!(CollectiveEvent, sequence)),
    ("coll.func", std::mem::offset_of!(CollectiveEvent, function)),
    ("coll.count", std::mem::offset_of!(CollectiveEvent, count)),
    ("coll.root", std::mem::offset_of!(CollectiveEvent, root)),
    ("coll.datatype", std::mem::offset_of!(CollectiveEvent, datatype)),
    ("coll.nChannels", std::mem::offset_of!(CollectiveEvent, channels)),
    ("coll.algo", std::mem::offset_of!(CollectiveEvent, algorithm)),
    ("coll.proto", std::mem::offset_of!(CollectiveEvent, protocol)),
    ("p2p.func", std::mem::offset_of!(PointToPointEvent, function)),
    ("p2p.datatype", std::mem::offset_of!(PointToPointEvent, datatype)),
    ("p2p.count", std::mem::offset_of!(PointToPointEvent, count)),
    ("p2p.peer", std::mem::offset_of!(PointToPointEvent, peer)),
    ("p2p.nChannels", std::mem::offset_of!(PointToPointEvent, channels)),
];

extern "C" fn succeed(_handle: usize) -> c_int {
    SUCCESS
}

extern "C" fn record_event_state(_event: usize, _state: c_int, _arguments: usize) -> c_int {
    SUCCESS
}

/// Registers a communicator and requests its events. Requests none if the process is not recorded.
///
/// # Safety
/// `context` and `mask` are null or may be written. `name` is null or a C string.
unsafe fn init(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    (hash, ranks, rank): (u64, c_int, c_int),
    events: c_int,
) -> c_int {
    guarded((), || {
        if context.is_null() || mask.is_null() {
            count(&COUNTS.unreadable_events);
            return;
        }
        // SAFETY: the caller's promise.
        let name = unsafe { read::text(name) };
        let communicator = CommunicatorDescription { hash, ranks, rank, name };
        let handle = nccl::register(&communicator);
        // Without a handle, NCCL passes null to the other functions.
        let handle = handle.map_or(ptr::null_mut(), ptr::without_provenance_mut);
        // SAFETY: not null; the caller promises that it may be written.
        unsafe { context.write(handle) };
        if !handle.is_null() {
            // SAFETY: as above. The mask holds for all communicators, so that one without a handle
            // leaves it.
            unsafe { mask.write(events) };
        }
    });
    SUCCESS
}

unsafe extern "C" fn init_v5(
    context: *mut *mut c_void,
    hash: u64,
    mask: *mut c_int,
    name: *const c_char,
    _nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL passes locations of its own, and null or a C string.
    unsafe { init(context, mask, name, (hash, ranks, rank), EVENTS_V5) }
}

unsafe extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    hash: u64,
    _nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _log: *const c_void,
) -> c_int {
    // SAFETY: NCCL passes locations of its own, and null or a C string.
    unsafe { init(context, mask, name, (hash, ranks, rank), EVENTS_V4) }
}

unsafe extern "C" fn start_v5(
    context: *mut c_void,
    event: *mut *mut c_void,
    described: *const c_void,
) -> c_int {
    // SAFETY: NCCL passes null or a description, whose type has eight bytes.
    let kind = || unsafe { described.cast::<u64>().read_unaligned() };
    // SAFETY: NCCL passes a location for the handle, and the description lives through the call.
    unsafe { start(context, event, described, kind) }
}

unsafe extern "C" fn start_v4(
    context: *mut c_void,
    event: *mut *mut c_void,
    described: *const c_void,
) -> c_int {
    // SAFETY: NCCL passes null or a description, whose type has one byte.
    let kind = || u64::from(unsafe { described.cast::<u8>().read() });
    // SAFETY: NCCL passes a location for the handle, and the description lives through the call.
    unsafe { start(context, event, described, kind) }
}

/// Records an event. Its handle is null, so that NCCL does not report its end.
///
/// # Safety
/// `event` is null or may be written. `described` is null or a description of the type that `kind`
/// reads from it.
unsafe fn start(
    context: *mut c_void,
    event: *mut *mut c_void,
    described: *const c_void,
    kind: impl FnOnce() -> u64,
) -> c_int {
    guarded((), || {
        if !event.is_null() {
            // SAFETY: not null; the caller promises that it may be written.
            unsafe { event.write(ptr::null_mut()) };
        }
        if described.is_null() {
            count(&COUNTS.unreadable_events);
            return;
        }
        let communicator = context.addr();
        match kind() {
            KERNEL_LAUNCH => nccl::begin_launch(communicator),
            COLLECTIVE => {
                // SAFETY: not null, and the type promises a collective's description.
                let collective = unsafe { collective(described.cast()) };
                nccl::record(communicator, &collective);
            }
            POINT_TO_POINT => {
                // SAFETY: as above, with that of a send or receive.
                let collective = unsafe { point_to_point(described.cast()) };
                nccl::record(communicator, &collective);
            }
            // NCCL reports groups and calls of the program with any mask.
            _ => {}
        }
    });
    SUCCESS
}

/// A text that lives as long as NCCL's; empty for null.
///
/// # Safety
/// See [`read::text`].
unsafe fn text<'a>(text: *const c_char) -> Text<'a> {
    // SAFETY: the caller's promise.
    unsafe { read::text(text) }.unwrap_or(Text::Bytes(b""))
}

/// # Safety
/// A description of a collective lies there, and its texts live until `'a` ends.
unsafe fn collective<'a>(described: *const CollectiveEvent) -> Collective<'a> {
    // SAFETY: the caller's promise; the fields are numbers and addresses.
    let event = unsafe { described.read_unaligned() };
    // SAFETY: NCCL's texts are null or end with a NUL.
    let function = unsafe { text(event.function) };
    // SAFETY: as above.
    let datatype = unsafe { text(event.datatype) };
    // SAFETY: as above.
    let algorithm = unsafe { text(event.algorithm) };
    // SAFETY: as above.
    let protocol = unsafe { text(event.protocol) };
    Collective {
        function,
        sequence: Some(event.sequence),
        count: event.count as u64,
        datatype,
        other_rank: event.root,
        channels: event.channels,
        algorithm: Some(algorithm),
        protocol: Some(protocol),
    }
}

/// # Safety
/// A description of a send or receive lies there, and its texts live until `'a` ends.
unsafe fn point_to_point<'a>(described: *const PointToPointEvent) -> Collective<'a> {
    // SAFETY: the caller's promise; the fields are numbers and addresses.
    let event = unsafe { described.read_unaligned() };
    // SAFETY: NCCL's texts are null or end with a NUL.
    let function = unsafe { text(event.function) };
    // SAFETY: as above.
    let datatype = unsafe { text(event.datatype) };
    Collective {
        function,
        sequence: None,
        count: event.count as u64,
        datatype,
        other_rank: event.peer,
        channels: event.channels,
        algorithm: None,
        protocol: None,
    }
}
