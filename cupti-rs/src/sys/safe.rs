//! The table's functions as this crate calls them: safe, with results. All calls into CUPTI but the walk of a buffer
//! stand here.
//!
//! A table is made only from a library that has CUPTI's functions, or by the stand-in; that is what every safety argument
//! below rests on.

use std::ffi::CStr;

use super::abi::*;
use super::api::Api;
use crate::buffer;
use crate::calls;
use crate::error::{Error, Kind};

/// The name under which other tools see this subscriber.
const NAME: &CStr = c"cupti-rs";

/// A subscription; it is over when [`end`](Self::end) is called, and only then.
#[derive(Debug)]
pub(crate) struct Subscription {
    api: Api,
    handle: SubscriberHandle,
}
// SAFETY: CUPTI's functions may be called with the handle from any thread.
unsafe impl Send for Subscription {}
// SAFETY: as above; the handle itself is never dereferenced here.
unsafe impl Sync for Subscription {}

fn check(function: &'static str, code: CuptiResult) -> Result<(), Error> {
    if code == CuptiResult::SUCCESS { Ok(()) } else { Err(Error::call(function, code)) }
}

impl Subscription {
    /// Calls [`calls::callback`] for this callback id, or no more. `Ok(false)` where the library does not know the id.
    pub(crate) fn enable_callback(&self, domain: u32, id: u32) -> Result<bool, Error> {
        // SAFETY: the handle is this live subscription.
        match unsafe { (self.api.enable_callback)(1, self.handle, domain, id) } {
            CuptiResult::INVALID_PARAMETER => Ok(false),
            code => check("cuptiEnableCallback", code).map(|()| true),
        }
    }

    /// Ends the subscription and with it all its callbacks. CUPTI's answer has nobody to go to.
    pub(crate) fn end(&self) {
        // SAFETY: the handle came from cuptiSubscribe; CUPTI refuses one that it has ended before.
        let _ = unsafe { (self.api.unsubscribe)(self.handle) };
    }
}

impl Api {
    pub(crate) fn version(&self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: `version` is a live u32, all that cuptiGetVersion writes.
        check("cuptiGetVersion", unsafe { (self.get_version)(&mut version) }).map(|()| version)
    }

    /// Takes CUPTI's one place; where it is taken, the error says by whom if CUPTI does.
    pub(crate) fn subscribe_callback(&self) -> Result<Subscription, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: `handle` is a live place, and the callback lives as long as the process and does not unwind.
        match unsafe { (self.subscribe)(&mut handle, calls::callback, std::ptr::null_mut()) } {
            CuptiResult::SUCCESS => Ok(Subscription { api: *self, handle }),
            CuptiResult::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
                Err(Error::new(Kind::Busy { holder: self.holder() }))
            }
            code => Err(Error::call("cuptiSubscribe", code)),
        }
    }

    /// Who holds CUPTI, as far as it says; only asked for after a refusal.
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
        // SAFETY: `handle` and `params` are live, and `params` tells the room in `name`, which outlives the call.
        let code =
            unsafe { subscribe(&mut handle, calls::callback, std::ptr::null_mut(), &mut params) };
        if code == CuptiResult::SUCCESS {
            // The holder has gone meanwhile.
            Subscription { api: *self, handle }.end();
            return None;
        }
        let name = CStr::from_bytes_until_nul(&name).ok()?.to_string_lossy();
        // nsys and clients of the first subscribe function give no name; CUPTI then says so.
        (!name.is_empty() && !name.contains("<not provided>")).then(|| name.into_owned())
    }

    pub(crate) fn timestamp(&self) -> Result<u64, Error> {
        let mut timestamp = 0;
        // SAFETY: `timestamp` is a live u64, all that cuptiGetTimestamp writes.
        check("cuptiGetTimestamp", unsafe { (self.get_timestamp)(&mut timestamp) })
            .map(|()| timestamp)
    }

    /// Has CUPTI take buffers from the pool and give them back to it.
    ///
    /// The pool's buffers are zeroed where nobody waits; CUPTI is told so, or it would zero them itself inside a CUDA
    /// call of the program. A library that does not know how does just that.
    pub(crate) fn use_pool(&self) -> Result<(), Error> {
        let mut size = size_of::<u8>();
        let mut zeroed = 1u8;
        let (attribute, value) = (ATTR_ZEROED_OUT_ACTIVITY_BUFFER, (&raw mut zeroed).cast());
        // SAFETY: `size` tells the size of `zeroed`; both live through the call.
        match unsafe { (self.set_attribute)(attribute, &mut size, value) } {
            CuptiResult::INVALID_PARAMETER => {}
            code => check("cuptiActivitySetAttribute", code)?,
        }
        // SAFETY: both functions live as long as the process and do not unwind.
        let code = unsafe { (self.register_callbacks)(buffer::requested, buffer::completed) };
        check("cuptiActivityRegisterCallbacks", code)
    }

    pub(crate) fn enable_kind(&self, kind: u32) -> Result<(), Error> {
        // SAFETY: takes a kind by value.
        check("cuptiActivityEnable", unsafe { (self.enable)(kind) })
    }

    /// Turning off what is off does nothing; another refusal has nobody to go to.
    pub(crate) fn disable_kind(&self, kind: u32) {
        // SAFETY: takes a kind by value.
        let _ = unsafe { (self.disable)(kind) };
    }

    /// Gives back buffers whose records are all complete; with `forced` the others too. No lock may be held that the
    /// buffer callbacks take: they run inside.
    pub(crate) fn flush(&self, forced: bool) -> Result<(), Error> {
        let flags = if forced { FLAG_FLUSH_FORCED } else { 0 };
        // SAFETY: takes flags by value.
        check("cuptiActivityFlushAll", unsafe { (self.flush_all)(flags) })
    }

    /// Records that CUPTI dropped since it was last asked.
    pub(crate) fn dropped(&self) -> Result<u64, Error> {
        let mut dropped = 0;
        // SAFETY: a null context asks for the global queue; `dropped` is a live usize.
        let code = unsafe { (self.get_num_dropped_records)(std::ptr::null_mut(), 0, &mut dropped) };
        check("cuptiActivityGetNumDroppedRecords", code).map(|()| dropped as u64)
    }
}
