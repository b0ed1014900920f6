//! The few calls to the operating system that have no safe wrapper in std.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{callback_panics, forked};

/// The reason in an error of the dynamic loader, without the outer message.
pub(crate) fn reason(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(inner) => inner.to_string(),
        None => error.to_string(),
    }
}

/// Finds the address of a function by its name, usually in a library.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<NonNull<c_void>> + 'a;

/// The address of a symbol of a library.
pub(crate) fn address(library: &libloading::Library, symbol: &str) -> Option<NonNull<c_void>> {
    // SAFETY: the symbol is taken for an address, and nothing is read there.
    let found = unsafe { library.get::<*mut c_void>(symbol) };
    NonNull::new(*found.ok()?)
}

/// The function of this name, of type `F`.
///
/// # Safety
///
/// `F` is a pointer to a function, of the type that the function of this name has.
pub(crate) unsafe fn function<F: Copy>(lookup: &Lookup<'_>, symbol: &str) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = lookup(symbol)?;
    // SAFETY: the caller's promise.
    Some(unsafe { std::mem::transmute_copy(&address) })
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock under [`std::time::Instant`] on Linux; while a test
/// has stopped the clock, its time.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    #[cfg(feature = "stopped-clock")]
    if let Some(stopped_ns) = stopped_clock::reading() {
        return stopped_ns;
    }
    machine_ns()
}

/// A clock of the process that a test moves, instead of the machine's.
#[cfg(feature = "stopped-clock")]
pub mod stopped_clock {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use super::machine_ns;

    static IS_STOPPED: AtomicBool = AtomicBool::new(false);
    static AT_NS: AtomicU64 = AtomicU64::new(0);

    /// The clock's time while it is stopped. Each reading is a nanosecond later than the one
    /// before.
    pub(super) fn reading() -> Option<u64> {
        IS_STOPPED.load(Ordering::Acquire).then(|| AT_NS.fetch_add(1, Ordering::AcqRel))
    }

    /// Stops the clock: it moves by a nanosecond at each reading, and by [`advance`].
    pub fn stop() {
        AT_NS.fetch_max(machine_ns(), Ordering::AcqRel);
        IS_STOPPED.store(true, Ordering::Release);
    }

    /// Moves the stopped clock forward.
    pub fn advance(time: Duration) {
        AT_NS.fetch_add(time.as_nanos() as u64, Ordering::AcqRel);
    }

    /// Resumes the machine's clock, if it was stopped, once that has caught up.
    pub fn resume() {
        if IS_STOPPED.load(Ordering::Acquire) {
            let left = AT_NS.load(Ordering::Acquire).saturating_sub(machine_ns());
            std::thread::sleep(Duration::from_nanos(left));
            IS_STOPPED.store(false, Ordering::Release);
        }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
fn machine_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec of this frame, and CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel's id of the calling thread, as in `gettid`, nsys and CUPTI's SYSTEM thread ids.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: gettid takes no argument and cannot fail.
    let id = unsafe { libc::gettid() };
    id as u32
}

/// The name of the calling thread in the kernel: at most 15 bytes. `main` for the first thread,
/// whose kernel name is the name of the program's file. Takes some microseconds.
pub(crate) fn thread_name() -> Option<String> {
    if std::process::id() == thread_id() {
        return Some("main".to_owned());
    }
    let name = std::fs::read("/proc/thread-self/comm").ok()?;
    let name = String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned();
    (!name.is_empty()).then_some(name)
}

/// Prepares [`fence_all_threads`], which takes milliseconds the first time. False if the kernel
/// lacks it.
pub(crate) fn can_fence_all_threads() -> bool {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Makes every running thread of the process pass a full memory fence; threads that do not run
/// passed one when they were stopped. Sleeps a millisecond instead if the kernel lacks it, by the
/// result of [`can_fence_all_threads`].
pub(crate) fn fence_all_threads(has_barrier: bool) {
    if !(has_barrier && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        // A processor publishes a store within less than a microsecond.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // Miri has no such call.
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call takes a command, flags (none) and a processor (not used without flags), and
    // touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Bytes of a huge page of x86-64, and of aarch64 with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// Requests huge pages for the untouched part of this memory, if the kernel grants them on request
/// (`transparent_hugepage/enabled` is `madvise`). Does nothing if the memory contains no whole huge
/// page.
pub(crate) fn advise_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
    let bytes = size_of_val(memory).saturating_sub(skipped) / HUGE_PAGE * HUGE_PAGE;
    // Miri has no such call.
    if bytes != 0 && !cfg!(miri) {
        let first = start.wrapping_add(skipped).cast();
        // SAFETY: whole pages within `memory`; the advice changes how they are mapped and not their
        // contents.
        let _ = unsafe { libc::madvise(first, bytes, libc::MADV_HUGEPAGE) };
    }
}

/// Prefetches these bytes, which are read soon. Does nothing except on x86-64.
#[inline(always)]
pub(crate) fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which only changes the contents of caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Pins the shared object that contains this crate in memory until the process ends, even after a
/// `dlclose`.
///
/// CUPTI never drops the functions that it was given. It has no call to unregister the buffer
/// functions, and may return buffers on its own thread at any time. For the program itself, and for
/// a program without shared objects, the dynamic linker refuses this, and neither is ever unloaded.
pub fn stay_loaded() {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;

    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    // Miri has no dynamic linker.
    if cfg!(miri) {
        return;
    }
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let own: *const c_void = (stay_loaded as *const ()).cast();
    // SAFETY: any address may be looked up; `info` is live.
    if unsafe { libc::dladdr(own, &mut info) } == 0 || info.dli_fname.is_null() {
        return;
    }
    // SAFETY: the dynamic linker's own name of the object that our code is in, which is mapped
    // while we run.
    let file = OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes());
    let flags = RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: nothing new is loaded, so no initialiser runs.
    let kept = unsafe { Library::open(Some(file), flags) };
    std::mem::forget(kept);
}

/// True if `SIGXFSZ` is pending for the calling thread or for the process: a write exceeded the
/// limit of file sizes.
fn is_file_size_signal_pending() -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `pending` is memory for a set, which the call fills.
    if unsafe { libc::sigpending(pending.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call above succeeded, so it filled the set.
    unsafe { libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1 }
}

/// Consumes that signal, which must be blocked.
fn take_file_size_signal() {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `signals` is memory for a set, which the call makes empty.
    unsafe { libc::sigemptyset(signals.as_mut_ptr()) };
    // SAFETY: the set was made above, and the signal exists.
    unsafe { libc::sigaddset(signals.as_mut_ptr(), libc::SIGXFSZ) };
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time are live, and the signal's origin is not requested.
    unsafe { libc::sigtimedwait(signals.as_ptr(), std::ptr::null_mut(), &no_time) };
}

/// Runs `child` in every child that is forked off from now on, before any other code of this crate.
/// It may only do what a signal handler may.
pub(crate) fn at_fork_in_child(child: extern "C" fn()) {
    // Miri has no fork.
    if cfg!(miri) {
        return;
    }
    // SAFETY: the two unused handlers may be null; `child` only stores to an atomic.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Runs `last` when the process exits, before what was registered earlier; not in a forked child.
/// Its panics are counted.
pub(crate) fn at_exit(last: fn()) {
    /// The functions to call, in the order of their registration. The C library runs the handler that was
    /// registered last first.
    static REGISTERED: Mutex<Vec<fn()>> = Mutex::new(Vec::new());
    extern "C" fn run() {
        // The parent may have locked the lock.
        if forked::is_child() {
            return;
        }
        if let Some(last) = REGISTERED.lock().pop() {
            std::panic::catch_unwind(last).unwrap_or_else(callback_panics::caught);
        }
    }
    let mut registered = REGISTERED.lock();
    // SAFETY: `run` is a function of this crate, which stays mapped (`stay_loaded`), and does not
    // unwind.
    if unsafe { libc::atexit(run) } == 0 {
        registered.push(last);
    }
}

/// Calls `with` while all signals are blocked in the calling thread. A write in it beyond the limit
/// of file sizes is only an error: its signal, which would end the program afterwards, is consumed.
pub fn with_signals_blocked<R>(with: impl FnOnce() -> R) -> R {
    // Miri has no signals.
    if cfg!(miri) {
        return with();
    }
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::uninit());
    // SAFETY: `all` is memory for a set, which the call fills.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled above, and `before` is memory for a set.
    let failed =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    let was_pending = is_file_size_signal_pending();
    let result = with();
    if failed == 0 {
        if !was_pending && is_file_size_signal_pending() {
            take_file_size_signal();
        }
        // SAFETY: the call above succeeded, so it stored the mask in `before`; the third argument
        // may be null.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
