//! The structures of NVTX's functions, with the layout of C.
//!
//! Pointers in a structure are borrows in its type, so that they are valid for the call. A tool
//! receives the same structures, with pointers that it must check.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "the fields are those of NVTX's structures"
)]

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The NVTX version in attributes.
const VERSION: u16 = 3;

/// A tool's handle of an object; null if it returned none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(*mut c_void);

// SAFETY: a handle is a number to us: it is passed back to the tool and never dereferenced.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) const NULL: Handle = Handle(ptr::null_mut());

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn bits(self) -> u64 {
        self.0.addr() as u64
    }
}

/// A [`Handle`] that threads share.
#[derive(Debug, Default)]
pub(crate) struct AtomicHandle(AtomicPtr<c_void>);

impl AtomicHandle {
    pub(crate) fn load(&self) -> Handle {
        Handle(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn store(&self, handle: Handle) {
        self.0.store(handle.0, Ordering::Release);
    }
}

/// A borrowed C string, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    pub(crate) const NONE: Text<'a> = Text(ptr::null(), PhantomData);

    pub(crate) fn new(text: &'a CStr) -> Text<'a> {
        Text(text.as_ptr(), PhantomData)
    }

    /// The text up to the first NUL; at the latest, the NUL that follows the bytes.
    #[inline]
    pub(crate) fn terminated(text: &'a ShortText) -> Text<'a> {
        Text(ptr::from_ref(text).cast(), PhantomData)
    }

    pub(crate) fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The address of the first byte, or null.
    pub fn address(self) -> *const c_char {
        self.0
    }

    /// The bytes that a tool reads.
    #[cfg(test)]
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        // SAFETY: a text that is not null ends in a NUL within what it borrows; the tests make no
        // other.
        unsafe { CStr::from_ptr(self.0) }.to_bytes().to_vec()
    }
}

/// Bytes followed by a NUL, so that reading up to a NUL stays within.
#[repr(C)]
pub(crate) struct ShortText {
    pub(crate) bytes: [u8; 31],
    nul: u8,
}

impl ShortText {
    pub(crate) const EMPTY: ShortText = ShortText { bytes: [0; 31], nul: 0 };
}

/// The name of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'a> {
    Text(Text<'a>),
    Registered(Handle),
}

impl<'a> Message<'a> {
    fn raw(self) -> (i32, RawMessage<'a>) {
        match self {
            Message::Text(text) => (MESSAGE_TEXT, RawMessage(text.0.cast(), PhantomData)),
            Message::Registered(handle) => {
                (MESSAGE_REGISTERED, RawMessage(handle.0.cast_const(), PhantomData))
            }
        }
    }
}

/// The types of a message: text, text of wide characters, and the handle of a registered string.
pub const MESSAGE_TEXT: i32 = 1;
pub const MESSAGE_WIDE: i32 = 2;
pub const MESSAGE_REGISTERED: i32 = 3;

/// `nvtxMessageValue_t`: an address of a text, or a handle.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct RawMessage<'a>(*const c_void, PhantomData<&'a CStr>);

impl RawMessage<'_> {
    /// The address of the text, or the handle.
    pub fn address(self) -> *const c_void {
        self.0
    }
}

/// Values of [`EventAttributes::payload_type`] are 1 to 6 for the plain types, and this.
pub const PAYLOAD_EXTENDED: u32 = 0xDFBD_0009;
pub const COLOR_ARGB: i32 = 1;

/// `nvtxEventAttributes_t`.
#[repr(C)]
pub struct EventAttributes<'a> {
    pub version: u16,
    pub size: u16,
    pub category: u32,
    pub color_type: i32,
    pub color: u32,
    pub payload_type: i32,
    pub reserved: i32,
    pub payload: u64,
    pub message_type: i32,
    pub message: RawMessage<'a>,
    payloads: PhantomData<&'a [PayloadData<'a>]>,
}

impl fmt::Debug for EventAttributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventAttributes")
            .field("message_type", &self.message_type)
            .finish_non_exhaustive()
    }
}

// SAFETY: what it points to is borrowed, shared and of types that are `Sync`, and a tool only reads
// it.
unsafe impl Send for EventAttributes<'_> {}
// SAFETY: as above.
unsafe impl Sync for EventAttributes<'_> {}

impl<'a> EventAttributes<'a> {
    pub(crate) fn new(message: Message<'a>) -> EventAttributes<'a> {
        let (message_type, message) = message.raw();
        EventAttributes {
            version: VERSION,
            size: size_of::<Self>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
            payloads: PhantomData,
        }
    }

    pub(crate) fn set_color(&mut self, argb: u32) {
        self.color_type = COLOR_ARGB;
        self.color = argb;
    }

    /// Sets a payload of a plain type, by the type's number and the bits.
    pub(crate) fn set_payload(&mut self, payload_type: i32, bits: u64) {
        self.payload_type = payload_type;
        self.payload = bits;
    }

    pub(crate) fn set_extended(&mut self, payloads: &'a [PayloadData<'a>]) {
        self.payload_type = PAYLOAD_EXTENDED.cast_signed();
        // CAST: at most two payloads.
        self.reserved = payloads.len() as i32;
        self.payload = payloads.as_ptr().expose_provenance() as u64;
    }
}

/// `nvtxPayloadData_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PayloadData<'a> {
    pub schema: u64,
    pub size: usize,
    pub payload: *const u8,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> PayloadData<'a> {
    /// `bytes` have at least the length of the schema, which `crate::schema` ensures.
    pub(crate) fn new(schema: u64, bytes: &'a [u8]) -> PayloadData<'a> {
        PayloadData { schema, size: bytes.len(), payload: bytes.as_ptr(), bytes: PhantomData }
    }
}

/// `nvtxResourceAttributes_t`.
#[repr(C)]
pub struct ResourceAttributes<'a> {
    pub version: u16,
    pub size: u16,
    pub identifier_type: i32,
    pub identifier: u64,
    pub message_type: i32,
    pub message: RawMessage<'a>,
}

impl<'a> ResourceAttributes<'a> {
    pub(crate) fn new(kind: u32, identifier: u64, name: Text<'a>) -> ResourceAttributes<'a> {
        let (message_type, message) = Message::Text(name).raw();
        ResourceAttributes {
            version: VERSION,
            size: size_of::<Self>() as u16,
            identifier_type: kind.cast_signed(),
            identifier,
            message_type,
            message,
        }
    }
}

/// `nvtxSyncUserAttributes_t`.
#[repr(C)]
pub struct SyncAttributes<'a> {
    pub version: u16,
    pub size: u16,
    pub message_type: i32,
    pub message: RawMessage<'a>,
}

impl<'a> SyncAttributes<'a> {
    pub(crate) fn new(name: Text<'a>) -> SyncAttributes<'a> {
        let (message_type, message) = Message::Text(name).raw();
        SyncAttributes { version: VERSION, size: size_of::<Self>() as u16, message_type, message }
    }
}

/// The semantic ids of [`TimeSemantics`] and [`CounterSemantics`].
pub const SEMANTICS_TIME: u16 = 2;
pub const SEMANTICS_COUNTER: u16 = 5;

/// The head of a semantic extension: `nvtxSemanticsHeader_t`.
#[repr(C)]
pub struct SemanticsHeader {
    pub size: u32,
    pub id: u16,
    pub version: u16,
    pub next: *const c_void,
}

/// `nvtxSemanticsTime_t`: the clock of a timestamp.
#[repr(C)]
pub struct TimeSemantics {
    pub header: SemanticsHeader,
    pub time_domain: u64,
}

impl TimeSemantics {
    pub(crate) fn new(time_domain: u64) -> TimeSemantics {
        let size = size_of::<Self>() as u32;
        let header = SemanticsHeader { size, id: SEMANTICS_TIME, version: 1, next: ptr::null() };
        TimeSemantics { header, time_domain }
    }
}

/// `nvtxSemanticsCounter_t`: unit and limits of a counter.
#[repr(C)]
pub struct CounterSemantics<'a> {
    pub header: SemanticsHeader,
    pub flags: u64,
    pub unit: Text<'a>,
    pub scale_numerator: u64,
    pub scale_denominator: u64,
    pub limit_type: i64,
    pub min: u64,
    pub max: u64,
    time: PhantomData<&'a TimeSemantics>,
}

impl<'a> CounterSemantics<'a> {
    pub(crate) fn new(unit: Text<'a>, time: &'a TimeSemantics) -> CounterSemantics<'a> {
        let size = size_of::<Self>() as u32;
        let next = ptr::from_ref(time).cast();
        CounterSemantics {
            header: SemanticsHeader { size, id: SEMANTICS_COUNTER, version: 2, next },
            flags: 0,
            unit,
            scale_numerator: 1,
            scale_denominator: 1,
            limit_type: 0,
            min: 0,
            max: 0,
            time: PhantomData,
        }
    }
}

/// A pointer to semantics, or null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Semantics<'a>(*const c_void, PhantomData<&'a CounterSemantics<'a>>);

impl<'a> Semantics<'a> {
    /// The address of the first [`SemanticsHeader`], or null.
    pub fn address(self) -> *const c_void {
        self.0
    }

    pub(crate) const NONE: Semantics<'a> = Semantics(ptr::null(), PhantomData);

    pub(crate) fn time(time: &'a TimeSemantics) -> Semantics<'a> {
        Semantics(ptr::from_ref(time).cast(), PhantomData)
    }

    pub(crate) fn counter(counter: &'a CounterSemantics<'a>) -> Semantics<'a> {
        Semantics(ptr::from_ref(counter).cast(), PhantomData)
    }
}

/// `nvtxPayloadSchemaEntry_t`.
#[repr(C)]
pub struct SchemaEntry<'a> {
    pub flags: u64,
    pub kind: u64,
    pub name: Text<'a>,
    pub description: Text<'a>,
    pub length: u64,
    pub offset: u64,
    pub semantics: Semantics<'a>,
    pub reserved: usize,
}

/// `nvtxPayloadSchemaAttr_t`, for a schema of fixed size.
#[repr(C)]
pub struct SchemaAttributes<'a> {
    pub field_mask: u64,
    pub name: Text<'a>,
    pub kind: u64,
    pub flags: u64,
    pub entries: *const SchemaEntry<'a>,
    pub entry_count: usize,
    pub static_size: usize,
    pub pack_align: usize,
    pub schema: u64,
    pub extension: usize,
    borrowed: PhantomData<&'a [SchemaEntry<'a>]>,
}

impl<'a> SchemaAttributes<'a> {
    pub(crate) fn new(
        name: Text<'a>,
        flags: u64,
        entries: &'a [SchemaEntry<'a>],
        static_size: usize,
    ) -> SchemaAttributes<'a> {
        const NAME: u64 = 1 << 1;
        // Type, flags, entries, their number, and the size.
        const ALWAYS: u64 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6;
        SchemaAttributes {
            field_mask: if name.is_none() { ALWAYS } else { ALWAYS | NAME },
            name,
            kind: 1,
            flags,
            entries: entries.as_ptr(),
            entry_count: entries.len(),
            static_size,
            pack_align: 0,
            schema: 0,
            extension: 0,
            borrowed: PhantomData,
        }
    }
}

/// `nvtxPayloadEnum_t`.
#[repr(C)]
pub struct EnumEntry<'a> {
    pub name: Text<'a>,
    pub value: u64,
    pub is_flag: i8,
}

/// `nvtxPayloadEnumAttr_t`.
#[repr(C)]
pub struct EnumAttributes<'a> {
    pub field_mask: u64,
    pub name: Text<'a>,
    pub entries: *const EnumEntry<'a>,
    pub entry_count: usize,
    pub size: usize,
    pub schema: u64,
    pub extension: usize,
    borrowed: PhantomData<&'a [EnumEntry<'a>]>,
}

impl<'a> EnumAttributes<'a> {
    pub(crate) fn new(
        name: Text<'a>,
        entries: &'a [EnumEntry<'a>],
        size: usize,
    ) -> EnumAttributes<'a> {
        EnumAttributes {
            // Name, entries, their number, and the size.
            field_mask: 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4,
            name,
            entries: entries.as_ptr(),
            entry_count: entries.len(),
            size,
            schema: 0,
            extension: 0,
            borrowed: PhantomData,
        }
    }
}

/// `nvtxScopeAttr_t`.
#[repr(C)]
pub struct ScopeAttributes<'a> {
    pub size: usize,
    pub path: Text<'a>,
    pub parent: u64,
    pub scope: u64,
}

impl<'a> ScopeAttributes<'a> {
    pub(crate) fn new(path: Text<'a>, parent: u64) -> ScopeAttributes<'a> {
        ScopeAttributes { size: size_of::<Self>(), path, parent, scope: 0 }
    }
}

/// `nvtxTimeDomainAttr_t`.
#[repr(C)]
pub struct TimeDomainAttributes {
    pub scope: u64,
    pub timestamp_type: u64,
    pub time_domain: u64,
    pub flags: u64,
    pub resolution: i64,
    pub start: u64,
}

/// The flag of a batch in order of start times.
pub(crate) const TIME_SORTED: u64 = 0;
/// The flag of a batch in unknown order.
pub(crate) const UNSORTED: u64 = 3 << 1;

/// `nvtxEventBatch_t`.
#[repr(C)]
pub struct EventBatch<'a> {
    pub schema: u64,
    pub size: usize,
    pub events: *const u8,
    pub scope: u64,
    pub flags: u64,
    pub flex_data: *const c_void,
    pub flex_size: usize,
    pub flex_offset: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> EventBatch<'a> {
    pub(crate) fn new(schema: u64, events: &'a [u8], scope: u64, flags: u64) -> EventBatch<'a> {
        EventBatch {
            schema,
            size: events.len(),
            events: events.as_ptr(),
            scope,
            flags,
            flex_data: ptr::null(),
            flex_size: 0,
            flex_offset: 0,
            borrowed: PhantomData,
        }
    }
}

/// `nvtxSyncPoint_t`: one moment in two clocks.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SyncPoint {
    pub source: i64,
    pub destination: i64,
}

/// `nvtxCounterAttr_t`.
#[repr(C)]
pub struct CounterAttributes<'a> {
    pub size: usize,
    pub schema: u64,
    pub name: Text<'a>,
    pub description: Text<'a>,
    pub scope: u64,
    pub semantics: Semantics<'a>,
    pub counter: u64,
}

/// `nvtxCounterBatch_t`.
#[repr(C)]
pub struct CounterBatch<'a> {
    pub counter: u64,
    pub samples: *const u8,
    pub samples_size: usize,
    pub flags: u64,
    pub timestamps: *const i64,
    pub timestamps_size: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> CounterBatch<'a> {
    pub(crate) fn new(
        counter: u64,
        samples: &'a [u8],
        flags: u64,
        timestamps: &'a [i64],
    ) -> CounterBatch<'a> {
        CounterBatch {
            counter,
            samples: samples.as_ptr(),
            samples_size: samples.len(),
            flags,
            timestamps: timestamps.as_ptr(),
            timestamps_size: size_of_val(timestamps),
            borrowed: PhantomData,
        }
    }
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<EventAttributes<'_>>() == 48);
    assert!(offset_of!(EventAttributes<'_>, payload) == 24);
    assert!(offset_of!(EventAttributes<'_>, message_type) == 32);
    assert!(offset_of!(EventAttributes<'_>, message) == 40);
    assert!(size_of::<PayloadData<'_>>() == 24);
    assert!(size_of::<ResourceAttributes<'_>>() == 32);
    assert!(offset_of!(ResourceAttributes<'_>, message_type) == 16);
    assert!(size_of::<SyncAttributes<'_>>() == 16);
    assert!(size_of::<SchemaAttributes<'_>>() == 80);
    assert!(offset_of!(SchemaAttributes<'_>, schema) == 64);
    assert!(size_of::<SchemaEntry<'_>>() == 64);
    assert!(offset_of!(SchemaEntry<'_>, semantics) == 48);
    assert!(size_of::<EnumEntry<'_>>() == 24);
    assert!(size_of::<EnumAttributes<'_>>() == 56);
    assert!(size_of::<ScopeAttributes<'_>>() == 32);
    assert!(size_of::<TimeDomainAttributes>() == 48);
    assert!(size_of::<EventBatch<'_>>() == 64);
    assert!(size_of::<SyncPoint>() == 16);
    assert!(size_of::<CounterAttributes<'_>>() == 56);
    assert!(offset_of!(CounterAttributes<'_>, counter) == 48);
    assert!(size_of::<CounterBatch<'_>>() == 48);
    assert!(size_of::<TimeSemantics>() == 24);
    assert!(size_of::<CounterSemantics<'_>>() == 72);
};
