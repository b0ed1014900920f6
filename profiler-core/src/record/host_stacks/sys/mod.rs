//! Interfaces to C and the machine for unwinding and sampling: registers, words of a stack, loaded
//! modules, mapped files, timers. The only unsafe code of this crate.

pub(super) mod timer;

use std::arch::asm;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use memmap2::Mmap;

/// The registers from which unwinding starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// The frame pointer: `rbp` or `x29`.
    pub(super) fp: u64,
    /// The link register.
    #[cfg(target_arch = "aarch64")]
    pub(super) lr: u64,
}

/// Returns the registers of the function into which this is inlined. That function must be active
/// while its stack is unwound.
#[inline(always)]
pub(super) fn registers() -> Registers {
    let (pc, sp, fp): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: copies three registers into others, and touches neither memory nor flags.
    unsafe {
        asm!(
            "lea {pc}, [rip]", "mov {sp}, rsp", "mov {fp}, rbp",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    let lr: u64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: copies four registers into others, and touches neither memory nor flags.
    unsafe {
        asm!(
            "adr {pc}, .", "mov {sp}, sp", "mov {fp}, x29", "mov {lr}, x30",
            pc = out(reg) pc, sp = out(reg) sp, fp = out(reg) fp, lr = out(reg) lr,
            options(nomem, nostack, preserves_flags),
        );
    }
    Registers {
        pc,
        sp,
        fp,
        #[cfg(target_arch = "aarch64")]
        lr,
    }
}

/// The part of the calling thread's stack that is in use.
#[derive(Debug)]
pub(super) struct StackWords {
    range: Range<u64>,
}

impl StackWords {
    /// The range from this stack pointer of the calling thread to the stack's base. `None` if the
    /// pointer is on another stack, such as a stack of a fiber or a signal handler.
    #[inline]
    pub(super) fn of_thread(registers: &Registers) -> Option<Self> {
        let bounds = bounds_of_thread()?;
        bounds.contains(&registers.sp).then_some(Self { range: registers.sp..bounds.end })
    }

    /// The word at an address. `Err` outside the range, or between two words.
    #[inline]
    pub(super) fn read(&self, address: u64) -> Result<u64, ()> {
        let is_whole = address.is_multiple_of(8)
            && address.checked_add(8).is_some_and(|end| end <= self.range.end);
        if !is_whole || address < self.range.start {
            return Err(());
        }
        // SAFETY: the address is aligned and between the stack pointer of a function that is active
        // (`registers`) and the base of the same thread's stack, which is mapped as long as the
        // thread runs. Volatile: other threads may write to what lies there, and any value will do.
        Ok(unsafe { (address as *const u64).read_volatile() })
    }
}

thread_local! {
    static BOUNDS: std::cell::Cell<Option<(u64, u64)>> = const { std::cell::Cell::new(None) };
}

/// The bounds of the calling thread's stack: queried once per thread, which allocates.
#[inline]
pub(super) fn bounds_of_thread() -> Option<Range<u64>> {
    let known = BOUNDS.try_with(std::cell::Cell::get).ok()?;
    let (start, end) = known.unwrap_or_else(|| {
        // Empty if the query fails.
        let bounds = ask_bounds().unwrap_or_default();
        let _ = BOUNDS.try_with(|cell| cell.set(Some(bounds)));
        bounds
    });
    Some(start..end)
}

#[cold]
fn ask_bounds() -> Option<(u64, u64)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: has no preconditions.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the thread is the calling one; the function initialises the attributes where it
    // returns 0.
    let result = unsafe { libc::pthread_getattr_np(own, attributes.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    let (mut start, mut bytes) = (std::ptr::null_mut::<c_void>(), 0);
    // SAFETY: the attributes were initialised above; both variables are live.
    let result =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut start, &mut bytes) };
    // SAFETY: they were initialised above and are not used again.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let start = start as u64;
    (result == 0).then_some((start, start.saturating_add(bytes as u64)))
}

/// A module in the dynamic linker's list.
#[derive(Debug, Clone)]
pub(super) struct LoadedModule {
    /// Empty for the program.
    pub(super) path: PathBuf,
    /// The difference between an address in the process and in the file.
    pub(super) bias: u64,
    /// The addresses of the process that hold its code.
    pub(super) code: Vec<Range<u64>>,
    pub(super) build_id: Vec<u8>,
}

/// The numbers of modules loaded and unloaded so far. Takes the dynamic linker's lock.
pub(super) fn module_changes() -> (u64, u64) {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        changes: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a live structure.
        let info = unsafe { &*info };
        // SAFETY: the pointer that was passed below, to a variable that nothing else uses
        // meanwhile.
        let changes = unsafe { &mut *changes.cast::<(u64, u64)>() };
        *changes = (info.dlpi_adds, info.dlpi_subs);
        1
    }
    let mut changes = (0_u64, 0_u64);
    // SAFETY: the function has the required type, and casts the pointer to its actual type.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut changes).cast()) };
    changes
}

/// The currently loaded modules. Takes the dynamic linker's lock.
pub(super) fn loaded_modules() -> Vec<LoadedModule> {
    unsafe extern "C" fn next(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        modules: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes a live structure.
        let info = unsafe { &*info };
        // SAFETY: the pointer that was passed below, to a variable that nothing else uses
        // meanwhile.
        let modules = unsafe { &mut *modules.cast::<Vec<LoadedModule>>() };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the module's table of program headers, of this length, which is mapped while the
        // linker's lock is held.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let at = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
        let code = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
            .map(|header| at(header)..at(header).saturating_add(header.p_memsz));
        let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        let build_id = notes.filter_map(|header| {
            let bytes = usize::try_from(header.p_filesz).ok()?.min(MOST_NOTE_BYTES);
            // SAFETY: a segment of the module, which the dynamic linker has mapped and keeps while
            // its lock is held.
            let note = unsafe { std::slice::from_raw_parts(at(header) as *const u8, bytes) };
            build_id_of(note)
        });
        let build_id = build_id.map(<[u8]>::to_vec).next().unwrap_or_default();
        // SAFETY: null, or a string of the linker's.
        let path = unsafe { path(info.dlpi_name) };
        modules.push(LoadedModule { path, bias: info.dlpi_addr, code: code.collect(), build_id });
        0
    }
    let mut modules: Vec<LoadedModule> = Vec::new();
    // SAFETY: the function has the required type, and casts the pointer to its actual type.
    unsafe { libc::dl_iterate_phdr(Some(next), (&raw mut modules).cast()) };
    modules
}

/// The type of a note with a build id, in ELF.
const NT_GNU_BUILD_ID: u32 = 3;
/// The maximum number of bytes read from a segment of notes.
const MOST_NOTE_BYTES: usize = 4096;

/// The build id in a segment of notes: `namesz`, `descsz`, `type`, then both padded to four bytes.
fn build_id_of(mut note: &[u8]) -> Option<&[u8]> {
    loop {
        let (head, rest) = note.split_first_chunk::<12>()?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name_bytes, bytes) = (word(0) as usize, word(4) as usize);
        let name = rest.get(..name_bytes)?;
        let content = rest.get(name_bytes.next_multiple_of(4)..)?;
        if word(8) == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return content.get(..bytes);
        }
        note = content.get(bytes.next_multiple_of(4)..)?;
    }
}

/// # Safety
/// The pointer is null or to a C string that is live during the call.
unsafe fn path(name: *const c_char) -> PathBuf {
    if name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    OsString::from_vec(name.to_bytes().to_vec()).into()
}

/// Maps the file of a loaded module.
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the file belongs to a module whose code this process runs from a mapping of the same
    // kind: truncating it ends the program even without this mapping. If it is overwritten in
    // place, the bytes change under us: they are then read as damaged bytes, by a parser of
    // untrusted input.
    unsafe { Mmap::map(file) }
}

/// `PERF_EVENT_IOC_SET_OUTPUT`, `_IO('$', 5)`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Redirects the records of a perf event to the buffer of another event of the same thread.
pub(super) fn share_buffer(of: &impl AsRawFd, with: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open during the call, and the request takes a descriptor.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), SET_OUTPUT, with.as_raw_fd()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
