//! Calls of the driver API: whether the process may make them, and their frame in CUPTI.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cudarc::driver::sys::CUresult;
use fake_cupti::{Fake, FakeCall};
use parking_lot::ReentrantMutex;

use crate::machine::machine;

/// The result of a driver function.
pub(crate) type Outcome<T = ()> = Result<T, CUresult>;

/// The process that initialised the driver; 0 if none did. In its forked children every call fails.
static OWNER: AtomicU32 = AtomicU32::new(0);
static IS_READY: AtomicBool = AtomicBool::new(false);
static INITIALIZING: ReentrantMutex<()> = ReentrantMutex::new(());

thread_local! {
    /// The thread's stack of contexts, the current one last; 0 is none.
    static CONTEXTS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    /// The correlation id of the runtime call in which the thread is; 0 if in none.
    static RUNTIME_CALL: Cell<u32> = const { Cell::new(0) };
    static OWN_STREAMS: RefCell<OwnStreams> = RefCell::default();
}

/// The thread's own default stream in each context. They end with the thread.
#[derive(Default)]
struct OwnStreams(HashMap<u32, u32>);

impl Drop for OwnStreams {
    fn drop(&mut self) {
        machine().forget_streams(self.0.values().copied());
    }
}

/// `cuInit`: the first call runs `inject` once, on its thread; other threads wait for it, and calls within it pass.
pub(crate) fn initialize(inject: impl FnOnce()) -> Outcome {
    let own = process::id();
    match OWNER.load(Ordering::Acquire) {
        0 => {}
        owner if owner != own => return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        _ if IS_READY.load(Ordering::Acquire) => return Ok(()),
        _ => {}
    }
    let _turn = INITIALIZING.lock();
    if OWNER.load(Ordering::Acquire) == 0 {
        if machine().device_count() == 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        OWNER.store(own, Ordering::Release);
        fake().number_streams(|context, handle| {
            let context = if context == 0 { current_context()? } else { context };
            machine().stream_of(context, handle).ok().map(|stream| stream.id)
        });
        inject();
        IS_READY.store(true, Ordering::Release);
    }
    Ok(())
}

/// Whether this process, and not the one it was forked from, initialised the driver.
pub(crate) fn check_process() -> Outcome {
    if OWNER.load(Ordering::Acquire) == process::id() {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }
}

/// What CUPTI's callbacks contain of a call.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The bytes that it copies or fills.
    pub(crate) bytes: usize,
    /// The stream that waits or is waited for, by CUPTI's id.
    pub(crate) stream: Option<u32>,
}

impl Shape {
    pub(crate) const NONE: Self = Self { bytes: 1, stream: None };
}

/// A call of a driver function; `body` gets its correlation id.
pub(crate) fn driver(function: &str, shape: Shape, body: impl FnOnce(u32) -> Outcome) -> CUresult {
    if let Err(error) = check_process() {
        return error;
    }
    let runtime = RUNTIME_CALL.try_with(Cell::get).ok().filter(|id| *id != 0);
    framed(FakeCall::driver(function, runtime), shape, body)
}

/// A call of a runtime function, on the thread whose driver calls within share its correlation id.
pub(crate) fn runtime(function: &str, shape: Shape, body: impl FnOnce() -> Outcome) -> CUresult {
    framed(FakeCall::runtime(function), shape, |correlation| {
        let outer = RUNTIME_CALL.try_with(|call| call.replace(correlation));
        let result = body();
        let _ = RUNTIME_CALL.try_with(|call| call.set(outer.unwrap_or_default()));
        result
    })
}

fn framed(call: FakeCall, shape: Shape, body: impl FnOnce(u32) -> Outcome) -> CUresult {
    let call = call.in_context(current_context().unwrap_or_default());
    let call = call.with_bytes(shape.bytes as u64);
    let call = shape.stream.into_iter().fold(call, FakeCall::of_stream);
    let mut result = CUresult::CUDA_SUCCESS;
    call.run(|correlation| {
        result = body(correlation).err().unwrap_or(CUresult::CUDA_SUCCESS);
        result as u32
    });
    result
}

/// The fake behind CUPTI.
pub(crate) fn fake() -> &'static Fake {
    Fake::of_process()
}

/// The context that is current on this thread.
pub(crate) fn current_context() -> Option<u32> {
    let current = CONTEXTS.try_with(|stack| stack.borrow().last().copied());
    current.ok().flatten().filter(|context| *context != 0)
}

/// The same, or the error of a call that needs one.
pub(crate) fn context() -> Outcome<u32> {
    current_context().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// The thread's own default stream in a context, if it was made.
pub(crate) fn own_stream(context: u32) -> Option<u32> {
    OWN_STREAMS.try_with(|streams| streams.borrow().0.get(&context).copied()).ok().flatten()
}

/// Keeps the thread's own default stream in a context.
pub(crate) fn set_own_stream(context: u32, stream: u32) {
    let _ = OWN_STREAMS.try_with(|streams| streams.borrow_mut().0.insert(context, stream));
}

/// Makes a context current instead of the present one; `None` for none.
pub(crate) fn set_context(context: Option<u32>) {
    let _ = CONTEXTS.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        stack.push(context.unwrap_or_default());
    });
}

/// Makes a context current above the present one.
pub(crate) fn push_context(context: u32) {
    let _ = CONTEXTS.try_with(|stack| stack.borrow_mut().push(context));
}

/// Removes the current context from the stack.
pub(crate) fn pop_context() -> Outcome<u32> {
    let current = context()?;
    let _ = CONTEXTS.try_with(|stack| stack.borrow_mut().pop());
    Ok(current)
}
