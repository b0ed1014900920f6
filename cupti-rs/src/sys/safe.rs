//! The table's functions as this crate calls them: safe, with results. All calls into CUPTI, except
//! the walk of a buffer, are here.
//!
//! A table is made only from a library that has CUPTI's functions, or by the fake; every safety
//! argument below depends on that.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::abi::*;
use super::api::Api;
use super::callback::callback;
use super::driver::Context;
use crate::attribute::AttributeId;
use crate::buffer;
use crate::error::{Error, Kind};
use crate::record::UnifiedMemoryKind;

/// The name of this subscriber in other tools.
const NAME: &CStr = c"cupti-rs";

/// The process's subscription, which stays for the next collection. CUPTI 13.0.1 frees a subscriber
/// although threads may be about to call it (seen on an H200: decision 013).
static KEPT: Mutex<Option<Subscription>> = Mutex::new(None);
/// True once the subscription has a callback.
static HAS_CALLBACKS: AtomicBool = AtomicBool::new(false);

/// A callback: its domain, and its id in it.
pub(crate) type CallbackId = (u32, u32);

/// A subscription; it ends only when [`end`](Self::end) is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subscription {
    api: Api,
    handle: SubscriberHandle,
}
// SAFETY: CUPTI's functions may be called with the handle from any thread.
unsafe impl Send for Subscription {}
// SAFETY: as above; the handle itself is never dereferenced here.
unsafe impl Sync for Subscription {}

pub(super) fn check(function: &'static str, code: CuptiResult) -> Result<(), Error> {
    if code == CuptiResult::SUCCESS { Ok(()) } else { Err(Error::call(function, code)) }
}

/// Returns `Ok(Some(code))` if CUPTI reports that this library or machine has no such thing. A
/// library has several codes for a kind that is newer than itself or removed: 13.0 returns
/// NOT_COMPATIBLE, INVALID_KIND or, for the interfaces that it dropped,
/// LEGACY_PROFILER_NOT_SUPPORTED.
fn refusal(function: &'static str, code: CuptiResult) -> Result<Option<CuptiResult>, Error> {
    match code {
        CuptiResult::INVALID_KIND
        | CuptiResult::INVALID_PARAMETER
        | CuptiResult::NOT_READY
        | CuptiResult::NOT_COMPATIBLE
        | CuptiResult::NOT_SUPPORTED
        | CuptiResult::LEGACY_PROFILER_NOT_SUPPORTED
        | CuptiResult::UM_PROFILING_NOT_SUPPORTED
        | CuptiResult::UM_PROFILING_NOT_SUPPORTED_ON_DEVICE
        | CuptiResult::UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES
        | CuptiResult::UM_PROFILING_NOT_SUPPORTED_WITH_MPS => Ok(Some(code)),
        code => check(function, code).map(|()| None),
    }
}

impl Subscription {
    /// Enables [`callback`] for an id. `Ok(false)` if the library lacks it. CUPTI requires these
    /// calls one at a time; the collector, the only caller, is borrowed mutably for it.
    pub(crate) fn enable(&self, (domain, id): CallbackId) -> Result<bool, Error> {
        // SAFETY: the handle is this live subscription; the other arguments are passed by value.
        let code = unsafe { (self.api.enable_callback)(1, self.handle, domain, id) };
        HAS_CALLBACKS.store(true, Ordering::Release);
        match code {
            CuptiResult::INVALID_PARAMETER => Ok(false),
            code => check("cuptiEnableCallback", code).map(|()| true),
        }
    }

    /// Ends the subscription and with it all its callbacks. CUPTI's result is ignored: no caller
    /// could act on it.
    fn end(&self) {
        // SAFETY: the handle came from cuptiSubscribe; CUPTI refuses one that it has ended before.
        let _ = unsafe { (self.api.unsubscribe)(self.handle) };
    }
}

/// Ends the process's subscription, if there is one.
pub(crate) fn unsubscribe() {
    if let Some(subscription) = KEPT.lock().take() {
        subscription.end();
    }
    HAS_CALLBACKS.store(false, Ordering::Release);
}

/// Ends the process's subscription if no thread can be about to call it: it has no callbacks.
pub(crate) fn unsubscribe_if_silent() {
    if !HAS_CALLBACKS.load(Ordering::Acquire) {
        unsubscribe();
    }
}

impl Api {
    pub(crate) fn version(&self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: `version` is a live u32, all that cuptiGetVersion writes.
        check("cuptiGetVersion", unsafe { (self.get_version)(&mut version) }).map(|()| version)
    }

    /// Returns the process's subscription, or subscribes. If CUPTI is held, the error contains the
    /// holder's name if CUPTI reports it.
    pub(crate) fn subscription(&self) -> Result<Subscription, Error> {
        let mut kept = KEPT.lock();
        match *kept {
            Some(kept) if std::ptr::fn_addr_eq(kept.api.unsubscribe, self.unsubscribe) => Ok(kept),
            _ => Ok(*kept.insert(self.subscribe_callback()?)),
        }
    }

    fn subscribe_callback(&self) -> Result<Subscription, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is live memory; the callback does not unwind, and stays as long as the
        // process, even if this crate is in a library that is unloaded (`os::stay_loaded`, which
        // every user of CUPTI calls first).
        match unsafe { (self.subscribe)(&mut handle, callback, std::ptr::null_mut()) } {
            CuptiResult::SUCCESS => Ok(Subscription { api: *self, handle }),
            CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
                Err(Error::new(Kind::Busy { holder: self.holder() }))
            }
            code => Err(Error::call("cuptiSubscribe", code)),
        }
    }

    /// The name of CUPTI's holder, if CUPTI reports it; read only after a refusal.
    fn holder(&self) -> Option<String> {
        let subscribe = self.subscribe_v2?;
        let mut name = [0u8; 128];
        let mut params = SubscriberParams {
            struct_size: size_of::<SubscriberParams>(),
            subscriber_name: NAME.as_ptr(),
            old_subscriber_name: name.as_mut_ptr().cast(),
            old_subscriber_size: name.len() - 1,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` and `params` are live, and `params` states the size of `name`, which
        // outlives the call.
        let code = unsafe { subscribe(&mut handle, callback, std::ptr::null_mut(), &mut params) };
        if code == CuptiResult::SUCCESS {
            // The holder has ended meanwhile.
            Subscription { api: *self, handle }.end();
            return None;
        }
        let name = CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy();
        // nsys and clients of the first subscribe function set no name; CUPTI returns a text
        // instead.
        (!name.is_empty() && !name.contains("<not provided>")).then(|| name.into_owned())
    }

    pub(crate) fn timestamp(&self) -> Result<u64, Error> {
        let mut timestamp = 0;
        // SAFETY: `timestamp` is a live u64, all that cuptiGetTimestamp writes.
        check("cuptiGetTimestamp", unsafe { (self.get_timestamp)(&mut timestamp) })
            .map(|()| timestamp)
    }

    /// CUPTI's id of a context; `None` if the library lacks the function or refuses.
    pub(crate) fn context_id(&self, context: Context) -> Option<u32> {
        let mut id = 0;
        // SAFETY: the context is live; `id` is a live u32.
        let code = unsafe { self.get_context_id?(context.handle(), &mut id) };
        (code == CuptiResult::SUCCESS).then_some(id)
    }

    /// The ordinal of a context's device; `None` if the library lacks the function or refuses.
    pub(crate) fn context_device(&self, context: Context) -> Option<u32> {
        let mut device = 0;
        // SAFETY: the context is live; `device` is a live u32.
        let code = unsafe { self.get_device_id?(context.handle(), &mut device) };
        (code == CuptiResult::SUCCESS).then_some(device)
    }

    /// Makes CUPTI take buffers from the pool and return them to it.
    pub(crate) fn use_pool(&self) -> Result<(), Error> {
        // SAFETY: both functions do not unwind, and stay as long as the process, as above.
        let code = unsafe { (self.register_callbacks)(buffer::requested, buffer::completed) };
        check("cuptiActivityRegisterCallbacks", code)
    }

    /// Enables a kind. `Ok(Some(code))` if the library or this machine does not have it, or not
    /// beside another kind.
    pub(crate) fn enable_kind(&self, kind: u32) -> Result<Option<CuptiResult>, Error> {
        // SAFETY: takes a kind by value.
        refusal("cuptiActivityEnable", unsafe { (self.enable)(kind) })
    }

    /// Turns counters of managed memory on or off, for all devices; `Ok(Some(code))` if the library
    /// or the machine does not have them. They produce records while their kind is on.
    pub(crate) fn set_unified_memory_counters(
        &self,
        counters: &[UnifiedMemoryKind],
        on: bool,
    ) -> Result<Option<CuptiResult>, Error> {
        let Some(configure) = self.configure_unified_memory else {
            return Ok(Some(CuptiResult::NOT_SUPPORTED));
        };
        let config = |counter: &UnifiedMemoryKind| UnifiedMemoryCounterConfig {
            scope: UNIFIED_MEMORY_ALL_DEVICES,
            kind: counter.0,
            device_id: 0,
            enable: on.into(),
        };
        let mut configs: Vec<_> = counters.iter().map(config).collect();
        // SAFETY: `configs` lives through the call and has as many elements as stated.
        let code = unsafe { configure(configs.as_mut_ptr(), configs.len() as u32) };
        refusal("cuptiActivityConfigureUnifiedMemoryCounter", code)
    }

    /// Returns an attribute's value; `Ok(None)` if the library does not have it.
    pub(crate) fn attribute(&self, attribute: AttributeId) -> Result<Option<u64>, Error> {
        let mut value = [0u8; 8];
        let mut size = attribute.bytes;
        let place = value.as_mut_ptr().cast();
        // SAFETY: `size` states how much of `value`, at most all, CUPTI may write; both live
        // through the call.
        match unsafe { (self.get_attribute)(attribute.id, &mut size, place) } {
            CuptiResult::INVALID_PARAMETER => Ok(None),
            // Bytes that CUPTI did not write are zero.
            code => {
                check("cuptiActivityGetAttribute", code).map(|()| Some(u64::from_le_bytes(value)))
            }
        }
    }

    /// Sets an attribute. `Ok(false)` if the library does not have it.
    pub(crate) fn set_attribute(&self, attribute: AttributeId, value: u64) -> Result<bool, Error> {
        let mut value = value.to_le_bytes();
        let mut size = attribute.bytes;
        let place = value.as_mut_ptr().cast();
        // SAFETY: `size` states how much of `value`, at most all, CUPTI may read; both live through
        // the call.
        match unsafe { (self.set_attribute)(attribute.id, &mut size, place) } {
            CuptiResult::INVALID_PARAMETER => Ok(false),
            code => check("cuptiActivitySetAttribute", code).map(|()| true),
        }
    }

    /// Sets the milliseconds between two flushes of CUPTI's worker; 0 is CUPTI's own period.
    pub(crate) fn set_flush_period(&self, milliseconds: u32) -> Result<(), Error> {
        // SAFETY: takes it by value.
        check("cuptiActivityFlushPeriod", unsafe { (self.flush_period)(milliseconds) })
    }

    pub(crate) fn set_latency_timestamps(&self, on: bool) -> Result<(), Error> {
        // SAFETY: takes it by value.
        let code = unsafe { (self.enable_latency_timestamps)(on.into()) };
        check("cuptiActivityEnableLatencyTimestamps", code)
    }

    pub(crate) fn thread_id_type(&self) -> Result<u32, Error> {
        let mut kind = 0;
        // SAFETY: `kind` is a live u32, as wide as the C enum that CUPTI writes.
        check("cuptiGetThreadIdType", unsafe { (self.get_thread_id_type)(&mut kind) })
            .map(|()| kind)
    }

    pub(crate) fn set_thread_id_type(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: takes it by value.
        check("cuptiSetThreadIdType", unsafe { (self.set_thread_id_type)(kind) })
    }

    /// Disables a kind. This has no effect on a disabled kind; another refusal is ignored: no
    /// caller could act on it.
    pub(crate) fn disable_kind(&self, kind: u32) {
        // SAFETY: takes a kind by value.
        let _ = unsafe { (self.disable)(kind) };
    }

    /// Returns buffers whose records are all complete; with `forced` the others too. No lock may be
    /// held that the buffer callbacks take: they run inside.
    pub(crate) fn flush(&self, forced: bool) -> Result<(), Error> {
        let flags = if forced { FLAG_FLUSH_FORCED } else { 0 };
        // SAFETY: takes flags by value.
        check("cuptiActivityFlushAll", unsafe { (self.flush_all)(flags) })
    }

    /// Records that CUPTI dropped since the last reading.
    pub(crate) fn dropped(&self) -> Result<u64, Error> {
        let mut dropped = 0;
        // SAFETY: a null context selects the global queue; `dropped` is a live usize.
        let code = unsafe { (self.get_num_dropped_records)(std::ptr::null_mut(), 0, &mut dropped) };
        check("cuptiActivityGetNumDroppedRecords", code).map(|()| dropped as u64)
    }
}
