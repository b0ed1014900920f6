//! Timers of the CPU time of single threads, whose signal handler copies the registers and the
//! stack of the thread.
//!
//! The handler may interrupt the program at any instruction: it takes no lock, allocates nothing,
//! uses no thread-local variable and calls nothing but `clock_gettime`. It reads the thread's own
//! stack within known bounds and writes atomics of this file.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::{Registers, StackWords};

/// The maximum number of threads with timers.
pub(in super::super) const TIMED_THREADS: usize = 64;
/// The maximum number of unread samples of a thread; further ones are lost.
const SNAPSHOTS: usize = 4;
/// The maximum number of words copied from a stack.
const WORDS: usize = 2048;

/// A sample as written by the handler.
struct Snapshot {
    is_full: AtomicBool,
    time_ns: AtomicU64,
    pc: AtomicU64,
    sp: AtomicU64,
    fp: AtomicU64,
    #[cfg(target_arch = "aarch64")]
    lr: AtomicU64,
    count: AtomicUsize,
    words: [AtomicU64; WORDS],
}

/// The state shared by the handler and the sampler for a thread. Only one thread writes at a time:
/// the signal is delivered only to that thread, and is blocked in its handler.
struct Place {
    /// Identifies the thread; signals of an earlier one are ignored.
    generation: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    next: AtomicUsize,
    lost: AtomicU64,
    snapshots: [Snapshot; SNAPSHOTS],
}

static PLACES: [Place; TIMED_THREADS] = [const {
    Place {
        generation: AtomicU32::new(0),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        next: AtomicUsize::new(0),
        lost: AtomicU64::new(0),
        snapshots: [const {
            Snapshot {
                is_full: AtomicBool::new(false),
                time_ns: AtomicU64::new(0),
                pc: AtomicU64::new(0),
                sp: AtomicU64::new(0),
                fp: AtomicU64::new(0),
                #[cfg(target_arch = "aarch64")]
                lr: AtomicU64::new(0),
                count: AtomicUsize::new(0),
                words: [const { AtomicU64::new(0) }; WORDS],
            }
        }; SNAPSHOTS],
    }
}; TIMED_THREADS];

/// Installs the handler of `SIGPROF` permanently: a pending signal would end a process without a
/// handler.
///
/// # Errors
/// The program has its own handler, or ignores the signal.
pub(in super::super) fn install() -> io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: queries the current action, and writes it to a variable of this frame.
    let result = unsafe { libc::sigaction(libc::SIGPROF, std::ptr::null(), before.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: written by the call above, which succeeded.
    let before = unsafe { before.assume_init() };
    let own: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
    let own = own as libc::sighandler_t;
    if before.sa_sigaction == own {
        return Ok(());
    }
    if before.sa_sigaction != libc::SIG_DFL {
        return Err(io::Error::other("the program handles SIGPROF itself"));
    }
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = own;
    // Runs on the alternative stack if the program has one: fibers have no room for a handler.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO requires, and may run anywhere (the
    // module's text).
    let result = unsafe { libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// The kernel calls it for a signal whose action has `SA_SIGINFO`: both pointers are to live
/// structures of its own.
unsafe extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: by the promise above.
    let info = unsafe { &*info };
    if info.si_code != libc::SI_TIMER {
        return;
    }
    // SAFETY: signals of timers have a value.
    let value = unsafe { info.si_value() };
    let value = value.sival_ptr as usize;
    let Some(place) = PLACES.get(value & 0xffff) else { return };
    // CAST: as `CpuTimer::start` made it.
    if place.generation.load(Ordering::Relaxed) != (value >> 16) as u32 {
        return;
    }
    // SAFETY: by the promise above; it is the context of the interrupted code.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let registers = registers(context);
    let bounds = place.start.load(Ordering::Relaxed)..place.end.load(Ordering::Relaxed);
    let free = &place.snapshots[place.next.load(Ordering::Relaxed) % SNAPSHOTS];
    if free.is_full.load(Ordering::Acquire) || !bounds.contains(&registers.sp) {
        place.lost.fetch_add(1, Ordering::Relaxed);
        return;
    }
    free.time_ns.store(cupti::clock::now_ns(), Ordering::Relaxed);
    free.pc.store(registers.pc, Ordering::Relaxed);
    free.sp.store(registers.sp, Ordering::Relaxed);
    free.fp.store(registers.fp, Ordering::Relaxed);
    #[cfg(target_arch = "aarch64")]
    free.lr.store(registers.lr, Ordering::Relaxed);
    let mut count = 0;
    // The stack of this thread, which runs this handler: from its stack pointer to its base.
    let stack = StackWords { range: registers.sp..bounds.end };
    let mut address = registers.sp;
    while count < WORDS {
        let Ok(word) = stack.read(address) else { break };
        free.words[count].store(word, Ordering::Relaxed);
        count += 1;
        address += 8;
    }
    free.count.store(count, Ordering::Relaxed);
    free.is_full.store(true, Ordering::Release);
    place.next.fetch_add(1, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    // CAST: registers are bits.
    let register = |at: c_int| context.uc_mcontext.gregs[at as usize] as u64;
    Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { pc: machine.pc, sp: machine.sp, fp: machine.regs[29], lr: machine.regs[30] }
}

/// A timer of a thread's CPU time. Stops when it is dropped.
#[derive(Debug)]
pub(in super::super) struct CpuTimer {
    timer: libc::timer_t,
    place: usize,
}

// SAFETY: a timer is a number of the process, which any thread may pass to the kernel.
unsafe impl Send for CpuTimer {}

/// A sample: its time, the registers, and the words of the stack above the stack pointer.
pub(in super::super) type Taken<'a> = (u64, Registers, &'a [u8]);

impl CpuTimer {
    /// Starts a timer for a thread of this process with this stack. No other timer may use the same
    /// slot.
    pub(in super::super) fn start(
        thread_id: u32,
        stack: Range<u64>,
        place: usize,
        interval: Duration,
    ) -> io::Result<Self> {
        let at = &PLACES[place];
        let generation = at.generation.load(Ordering::Relaxed).wrapping_add(1);
        at.generation.store(generation, Ordering::Relaxed);
        at.start.store(stack.start, Ordering::Relaxed);
        at.end.store(stack.end, Ordering::Relaxed);
        at.lost.store(0, Ordering::Relaxed);
        for snapshot in &at.snapshots {
            snapshot.is_full.store(false, Ordering::Relaxed);
        }
        // The clock of a thread's CPU time, as encoded by the kernel: CPUCLOCK_PERTHREAD_MASK and
        // CPUCLOCK_SCHED.
        let clock = (!(thread_id as libc::clockid_t) << 3) | 6;
        // SAFETY: a structure of integers and a pointer, for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread_id as c_int;
        event.sigev_value =
            libc::sigval { sival_ptr: ((generation as usize) << 16 | place) as *mut c_void };
        let mut timer = MaybeUninit::uninit();
        // SAFETY: the event is initialised, and the timer's number is written to a variable of this
        // frame.
        let result = unsafe { libc::timer_create(clock, &mut event, timer.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: written by the call above, which succeeded.
        let started = Self { timer: unsafe { timer.assume_init() }, place };
        let every = libc::timespec {
            tv_sec: interval.as_secs() as libc::time_t,
            tv_nsec: interval.subsec_nanos().max(1).into(),
        };
        let time = libc::itimerspec { it_interval: every, it_value: every };
        // SAFETY: the timer was created above; the old setting is not requested.
        let result = unsafe { libc::timer_settime(started.timer, 0, &time, std::ptr::null_mut()) };
        if result != 0 { Err(io::Error::last_os_error()) } else { Ok(started) }
    }

    /// Visits the samples since the last call, and returns the number of lost ones.
    pub(in super::super) fn take(&self, mut visit: impl FnMut(Taken<'_>)) -> u64 {
        let place = &PLACES[self.place];
        let mut bytes = Vec::new();
        for snapshot in &place.snapshots {
            if !snapshot.is_full.load(Ordering::Acquire) {
                continue;
            }
            let registers = Registers {
                pc: snapshot.pc.load(Ordering::Relaxed),
                sp: snapshot.sp.load(Ordering::Relaxed),
                fp: snapshot.fp.load(Ordering::Relaxed),
                #[cfg(target_arch = "aarch64")]
                lr: snapshot.lr.load(Ordering::Relaxed),
            };
            let count = snapshot.count.load(Ordering::Relaxed).min(WORDS);
            bytes.clear();
            for word in &snapshot.words[..count] {
                bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            let time_ns = snapshot.time_ns.load(Ordering::Relaxed);
            snapshot.is_full.store(false, Ordering::Release);
            visit((time_ns, registers, &bytes));
        }
        place.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: made by `start`, and deleted once.
        unsafe { libc::timer_delete(self.timer) };
        PLACES[self.place].generation.fetch_add(1, Ordering::Relaxed);
    }
}
