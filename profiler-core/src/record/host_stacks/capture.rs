//! Takes stacks: a thread unwinds its own stack within the callback of the call that ends a gap.
//!
//! This path takes no lock that can block it, and allocates once per thread. A profiler thread
//! tracks the modules that the process loads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder as _};
use parking_lot::Mutex;
use profiler_base::background::{Background, Repeating};

use super::modules::{Loader, Modules};
use super::sampler::{HostSampler, SamplerSettings};
use super::symbols::Symbols;
use super::sys::{self, Registers, StackWords};
use super::table::{FrameWord, STACKS, StackTable};
use super::threads;
use super::{HostStacks, StackLosses};
use crate::error::{Error, Kind};

#[cfg(target_arch = "aarch64")]
type Cache = framehop::aarch64::CacheAarch64<MustNotAllocateDuringUnwind>;
#[cfg(target_arch = "x86_64")]
type Cache = framehop::x86_64::CacheX86_64<MustNotAllocateDuringUnwind>;

/// The maximum number of frames of a stack; further outer frames are omitted, and the stack is
/// marked.
const MOST_FRAMES: usize = 192;
/// The number of the program's threads that can unwind at a time.
const UNWINDERS: usize = 16;
/// The maximum number of stacks from samples, so that there is room for stacks of launches that end
/// gaps.
const MOST_OF_SAMPLES: usize = STACKS / 2;
/// The interval at which the process is checked for new modules.
const MODULES_AFTER: Duration = Duration::from_millis(50);

/// The state for one unwinding thread.
#[derive(Default)]
struct Unwinding {
    cache: Cache,
    modules: Arc<Modules>,
}

/// The stack capture of a process, from its first session with stacks.
struct Capture {
    table: StackTable,
    /// The last one is the sampler's.
    unwinders: [Mutex<Unwinding>; UNWINDERS + 1],
    loader: Mutex<Loader>,
    symbols: Mutex<Symbols>,
    busy: AtomicU64,
    other_stack: AtomicU64,
    over_limit: AtomicU64,
    /// The number of sessions with stacks, and the thread that tracks modules for them.
    sessions: Mutex<(usize, Option<Repeating>)>,
}

static CAPTURE: OnceLock<Capture> = OnceLock::new();

/// Stacks can be taken while this value exists.
#[derive(Debug)]
pub(crate) struct TakingStacks {
    process_id: u32,
    sampler: Option<HostSampler>,
}

impl TakingStacks {
    /// Reads the currently loaded modules, and tracks them from now on.
    pub(crate) fn begin() -> Result<Self, Error> {
        if cupti::calls::set_stack_source(take).is_err() {
            let why = "calls get their stacks from another source (cupti::calls::set_stack_source)";
            return Err(Error::new(Kind::Differs(why.to_owned())));
        }
        let capture = CAPTURE.get_or_init(Capture::new);
        let mut sessions = capture.sessions.lock();
        sessions.0 += 1;
        if sessions.0 == 1 {
            capture.refresh();
            sessions.1 = follow(capture);
        }
        drop(sessions);
        Ok(Self { process_id: std::process::id(), sampler: None })
    }

    /// Also samples threads within gaps from now on.
    pub(crate) fn sampling(mut self, settings: &SamplerSettings) -> Self {
        self.sampler = Some(HostSampler::begin(settings, sampled));
        self
    }

    /// The stacks of this process so far, with the functions of their frames, and the samples of
    /// this session.
    pub(crate) fn stacks(&self, after: Duration) -> HostStacks {
        // Sampling is read first, so that its stacks are in the table.
        let samples = self.sampler.as_ref().map(HostSampler::samples).unwrap_or_default();
        HostStacks { samples, ..stacks(after) }
    }
}

impl Drop for TakingStacks {
    fn drop(&mut self) {
        // In a forked child a lost thread may hold the lock, and the tracking thread does not
        // exist.
        let is_own = self.process_id == std::process::id();
        let Some(capture) = CAPTURE.get().filter(|_| is_own) else {
            std::mem::forget(self.sampler.take());
            return;
        };
        self.sampler = None;
        let mut sessions = capture.sessions.lock();
        sessions.0 = sessions.0.saturating_sub(1);
        if sessions.0 == 0 {
            sessions.1 = None;
        }
    }
}

/// Spawns the tracking thread. Without it, stacks through modules that are loaded later end there
/// or are found by frame pointers.
fn follow(capture: &'static Capture) -> Option<Repeating> {
    let refresh = || {
        capture.refresh();
        MODULES_AFTER
    };
    Background::default().repeat("gpu-profiler-mod", MODULES_AFTER, refresh).ok()
}

fn stacks(after: Duration) -> HostStacks {
    let Some(capture) = CAPTURE.get() else { return HostStacks::default() };
    capture.refresh();
    let stacks = capture.table.stacks();
    let known = capture.loader.lock().known.clone();
    let mut found = capture.symbols.lock().resolve(&stacks, &known);
    found.after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    found.losses = capture.losses();
    found
}

thread_local! {
    /// The unwinder that a thread tries first.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn place_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let new = || NEXT.fetch_add(1, Ordering::Relaxed) % UNWINDERS;
    let place = PLACE.try_with(|place| {
        if place.get() == usize::MAX {
            place.set(new());
        }
        place.get()
    });
    place.unwrap_or(0)
}

/// Takes the stack of the calling thread, which submitted nothing since this time. Returns 0 if it
/// could not be taken.
#[inline(never)]
fn take(since_ns: u64) -> u32 {
    threads::ended_gap(since_ns);
    let Some(capture) = CAPTURE.get() else { return 0 };
    let registers = sys::registers();
    let Some(stack) = StackWords::of_thread(&registers) else {
        capture.other_stack.fetch_add(1, Ordering::Relaxed);
        return 0;
    };
    let first = place_of_thread();
    let free = (0..UNWINDERS).find_map(|at| capture.unwinders[(first + at) % UNWINDERS].try_lock());
    let Some(mut unwinding) = free else {
        capture.busy.fetch_add(1, Ordering::Relaxed);
        return 0;
    };
    let mut frames = [FrameWord::new(None, 0); MOST_FRAMES];
    let mut read = |address| stack.read(address);
    let (count, is_truncated) = unwind(&mut unwinding, &registers, &mut read, &mut frames);
    drop(unwinding);
    capture.table.intern(&frames[..count], is_truncated, STACKS).unwrap_or_else(|| {
        capture.over_limit.fetch_add(1, Ordering::Relaxed);
        0
    })
}

/// Returns the stack of another thread, from its registers and a copy of its stack above the stack
/// pointer. `None` if there is no room.
fn sampled(registers: &Registers, stack: &[u8]) -> Option<u32> {
    let capture = CAPTURE.get()?;
    let mut unwinding = capture.unwinders[UNWINDERS].lock();
    let mut frames = [FrameWord::new(None, 0); MOST_FRAMES];
    let mut read = |address: u64| {
        let at = address.checked_sub(registers.sp).and_then(|at| usize::try_from(at).ok());
        let word = at.and_then(|at| stack.get(at..)).and_then(|bytes| bytes.first_chunk());
        word.map(|word| u64::from_ne_bytes(*word)).ok_or(())
    };
    let (count, is_truncated) = unwind(&mut unwinding, registers, &mut read, &mut frames);
    drop(unwinding);
    capture.table.intern(&frames[..count], is_truncated, MOST_OF_SAMPLES)
}

/// Fills in the frames, innermost first. Returns their number, and whether outer ones are missing.
fn unwind(
    unwinding: &mut Unwinding,
    registers: &Registers,
    mut read: &mut impl FnMut(u64) -> Result<u64, ()>,
    frames: &mut [FrameWord],
) -> (usize, bool) {
    let Unwinding { cache, modules } = unwinding;
    #[cfg(target_arch = "x86_64")]
    let mut regs =
        framehop::x86_64::UnwindRegsX86_64::new(registers.pc, registers.sp, registers.fp);
    #[cfg(target_arch = "aarch64")]
    let mut regs = framehop::aarch64::UnwindRegsAarch64::new_with_ptr_auth_mask(
        framehop::aarch64::PtrAuthMask::new_24_40(),
        registers.lr,
        registers.sp,
        registers.fp,
    );
    let mut address = FrameAddress::from_instruction_pointer(registers.pc);
    for (count, frame) in frames.iter_mut().enumerate() {
        // For a return address, the address of the call before it.
        *frame = modules.frame(address.address_for_lookup());
        let is_compiled = count > 0 && frame.module().is_none();
        let caller =
            is_compiled.then(|| caller_of_trampoline(modules, &mut regs, &mut *read)).flatten();
        let caller = match caller {
            Some(caller) => Ok(Some(caller)),
            None => modules.unwinder.unwind_frame(address, &mut regs, cache, &mut read),
        };
        match caller {
            Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                Some(next) => address = next,
                None => return (count + 1, false),
            },
            Ok(None) => return (count + 1, false),
            Err(_) => return (count + 1, true),
        }
    }
    (frames.len(), true)
}

/// Returns the caller of code that was generated at run time without a frame pointer: one word of
/// its own on the stack, then the return address. CPython's trampolines for perf have this form
/// (`sub $8, %rsp; call *%rcx`). `None` if the frame pointer leads to the caller.
#[cfg(target_arch = "x86_64")]
fn caller_of_trampoline(
    modules: &Modules,
    regs: &mut framehop::x86_64::UnwindRegsX86_64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    let is_code = |address: u64| modules.frame(address.wrapping_sub(1)).module().is_some();
    let (sp, fp) = (regs.sp(), regs.bp());
    if fp >= sp
        && let (Ok(outer), Ok(returns)) = (read(fp), read(fp.saturating_add(8)))
        && (outer > fp || is_code(returns))
    {
        return None;
    }
    let caller = read(sp.checked_add(8)?).ok().filter(|caller| is_code(*caller))?;
    regs.set_ip(caller);
    regs.set_sp(sp.checked_add(16)?);
    Some(caller)
}

/// The frame pointer always leads to the caller on this architecture: CPython's trampolines
/// preserve it.
#[cfg(target_arch = "aarch64")]
fn caller_of_trampoline(
    _modules: &Modules,
    _regs: &mut framehop::aarch64::UnwindRegsAarch64,
    _read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    None
}

impl Capture {
    fn new() -> Self {
        Self {
            table: StackTable::new(),
            unwinders: std::array::from_fn(|_| Mutex::default()),
            loader: Mutex::default(),
            symbols: Mutex::default(),
            busy: AtomicU64::new(0),
            other_stack: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            sessions: Mutex::default(),
        }
    }

    fn refresh(&self) {
        let Some(modules) = self.loader.lock().refresh() else { return };
        let modules = Arc::new(modules);
        for unwinder in &self.unwinders {
            // The cache distinguishes lists of modules by numbers of 16 bits.
            let new = Unwinding { cache: Cache::default(), modules: modules.clone() };
            let before = std::mem::replace(&mut *unwinder.lock(), new);
            drop(before);
        }
    }

    fn losses(&self) -> StackLosses {
        StackLosses {
            busy: self.busy.load(Ordering::Relaxed),
            other_stack: self.other_stack.load(Ordering::Relaxed),
            over_limit: self.over_limit.load(Ordering::Relaxed),
        }
    }
}
