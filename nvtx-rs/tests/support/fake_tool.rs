//! An NVTX tool for the tests: it requests everything that a real tool requests, and writes a line
//! for each event.
//!
//! It shares no code with the crate, so that a mistake in a layout can't cancel out. Two variables
//! control it: `FAKE_NVTX_LOG` is the file to append to, and `FAKE_NVTX_MODE` is one of
//!
//! - `refuse`: the entry point returns 0;
//! - `empty`, `push-only`, `pop-only`: the functions it installs; by default all that write 8-bit
//!   names;
//! - `refuse-extensions`, `no-slots`: it refuses the extensions, or fills none of their slots;
//! - `no-batches`: it accepts deferred events only one by one;
//! - `disabled`: it reports every domain as disabled;
//! - `count`: for pushes and pops without a domain it writes only their number, when it is
//!   initialised again;
//! - `annotated`: it starts ranges itself while it is being attached.
//!
//! It reads its inputs byte by byte at the offsets that NVTX defines.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a test tool, near the C it stands for")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

type Function = *mut c_void;
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table:
        Option<unsafe extern "C" fn(c_int, *mut *mut *mut Function, *mut c_uint) -> c_int>,
}

#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_nvtx_version: Option<unsafe extern "C" fn(u32)>,
}

/// Each required module with the number of its slots.
const REQUIRED: [(c_int, usize); 4] = [(1, 16), (5, 16), (2, 9), (4, 7)];
const ALSO: [(c_int, usize); 2] = [(3, 15), (6, 7)];
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

static COUNTING: AtomicBool = AtomicBool::new(false);
static PUSHES: AtomicU64 = AtomicU64::new(0);
static POPS: AtomicU64 = AtomicU64::new(0);

static LOG: OnceLock<Option<File>> = OnceLock::new();
static THREADS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static THREAD: i32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Appends a line with one write, so that lines of several threads stay whole.
fn log(line: &str) {
    let file = LOG.get_or_init(|| {
        let path = env::var_os("FAKE_NVTX_LOG")?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

unsafe extern "C" fn push(message: *const c_char) -> c_int {
    if COUNTING.load(Ordering::Relaxed) {
        PUSHES.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: NVTX hands over a string that ends with a NUL.
    let name = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    log(&format!("{} push {name:?}", THREAD.with(|id| *id)));
    0
}

unsafe extern "C" fn push_ex(attributes: Bytes) -> c_int {
    if COUNTING.load(Ordering::Relaxed) {
        PUSHES.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: NVTX hands over an event's attributes.
    say(&format!("RangePushEx {}", unsafe { event(attributes) }));
    0
}

unsafe extern "C" fn pop() -> c_int {
    if COUNTING.load(Ordering::Relaxed) {
        POPS.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    log(&format!("{} pop", THREAD.with(|id| *id)));
    0
}

/// Logs a thread's number and a line.
fn say(line: &str) {
    log(&format!("{} {line}", THREAD.with(|id| *id)));
}

/// The value at an offset.
unsafe fn read_at<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the caller has NVTX's word for what lies there.
    unsafe { base.add(offset).cast::<T>().read_unaligned() }
}

/// A text, or nothing for null.
unsafe fn text(message: *const c_char) -> String {
    if message.is_null() {
        return "null".to_owned();
    }
    // SAFETY: NVTX hands over a string that ends with a NUL.
    format!("{:?}", unsafe { CStr::from_ptr(message) }.to_string_lossy())
}

/// A message by its type, at its offset in some attributes.
unsafe fn message(kind: i32, base: *const u8, offset: usize) -> String {
    // SAFETY: as the caller promises.
    unsafe {
        match kind {
            1 => text(read_at(base, offset)),
            3 => format!("registered {:x}", read_at::<usize>(base, offset)),
            _ => format!("message of type {kind}"),
        }
    }
}

/// Payloads by their schemas: numbers and bytes.
unsafe fn payloads(first: *const u8, count: usize) -> String {
    let mut all = Vec::new();
    for index in 0..count {
        // SAFETY: the caller has NVTX's word for the count, and each is 24 bytes.
        unsafe {
            let one = first.add(index * 24);
            let size: usize = read_at(one, 8);
            let data = std::slice::from_raw_parts(read_at::<*const u8>(one, 16), size);
            all.push(format!("{:x}: {}", read_at::<u64>(one, 0), hex(data)));
        }
    }
    format!("[{}]", all.join(", "))
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `nvtxEventAttributes_t`.
unsafe fn event(base: *const u8) -> String {
    // SAFETY: NVTX hands over 48 bytes of these.
    unsafe {
        let mut line = format!("v{}/{}", read_at::<u16>(base, 0), read_at::<u16>(base, 2));
        if read_at::<u32>(base, 4) != 0 {
            line += &format!(" category {}", read_at::<u32>(base, 4));
        }
        match read_at::<i32>(base, 8) {
            0 => {}
            kind => line += &format!(" color {kind}: {:08x}", read_at::<u32>(base, 12)),
        }
        match read_at::<i32>(base, 16) {
            0 => {}
            kind if kind as u32 == 0xDFBD_0009 => {
                let count = read_at::<i32>(base, 20) as usize;
                line += &format!(" payloads {}", payloads(read_at(base, 24), count));
            }
            kind => {
                line += &format!(
                    " payload {kind}/{}: {:x}",
                    read_at::<i32>(base, 20),
                    read_at::<u64>(base, 24)
                );
            }
        }
        line + " " + &message(read_at(base, 32), base, 40)
    }
}

/// Numbers created objects, each kind from 1 on.
macro_rules! next {
    ($base:expr) => {{
        static NEXT: AtomicU64 = AtomicU64::new(1);
        $base + NEXT.fetch_add(1, Ordering::Relaxed)
    }};
}

/// Defines the functions that write a line: their arguments, the line, and their results.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $line:expr $(=> $value:expr)?;)*) => {
        $(
            unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                // SAFETY: what is pointed to is as NVTX defines for this function.
                #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
                let line: String = unsafe { $line };
                say(&line);
                $($value)?
            }
        )*
    };
}

type Bytes = *const u8;
type Name = *const c_char;

functions! {
    mark_ex(e: Bytes) = format!("MarkEx {}", event(e));
    mark_a(m: Name) = format!("MarkA {}", text(m));
    start_ex(e: Bytes) -> u64 = format!("RangeStartEx {}", event(e)) => next!(100);
    start_a(m: Name) -> u64 = format!("RangeStartA {}", text(m)) => next!(200);
    end(id: u64) = format!("RangeEnd {id}");
    name_category(id: u32, m: Name) = format!("NameCategoryA {id} {}", text(m));
    name_thread(id: u32, m: Name) = format!("NameOsThreadA {} {}", u8::from(id == std::process::id()), text(m));

    d_mark(d: usize, e: Bytes) = format!("DomainMarkEx {d:x} {}", event(e));
    d_start(d: usize, e: Bytes) -> u64 = format!("DomainRangeStartEx {d:x} {}", event(e)) => next!(300);
    d_end(d: usize, id: u64) = format!("DomainRangeEnd {d:x} {id}");
    d_push(d: usize, e: Bytes) -> c_int = format!("DomainRangePushEx {d:x} {}", event(e)) => 0;
    d_pop(d: usize) -> c_int = format!("DomainRangePop {d:x}") => 0;
    d_resource(d: usize, r: Bytes) -> u64 = format!(
        "DomainResourceCreate {d:x} v{}/{} {:x}: {:x} {}",
        read_at::<u16>(r, 0), read_at::<u16>(r, 2), read_at::<u32>(r, 4), read_at::<u64>(r, 8), message(read_at(r, 16), r, 24)
    ) => next!(0x3000);
    d_resource_destroy(r: usize) = format!("DomainResourceDestroy {r:x}");
    d_category(d: usize, id: u32, m: Name) = format!("DomainNameCategoryA {d:x} {id} {}", text(m));
    d_string(d: usize, m: Name) -> u64 = format!("DomainRegisterStringA {d:x} {}", text(m)) => next!(0x2000);
    d_create(m: Name) -> u64 = format!("DomainCreateA {}", text(m)) => next!(0x1000);
    d_destroy(d: usize) = format!("DomainDestroy {d:x}");
    initialize(reserved: usize) = format!("Initialize {reserved}");
    counts(_reserved: usize) =
        format!("{} pushes, {} pops", PUSHES.load(Ordering::Relaxed), POPS.load(Ordering::Relaxed));

    cu_device(d: c_int, m: Name) = format!("NameCuDeviceA {d} {}", text(m));
    cu_context(p: usize, m: Name) = format!("NameCuContextA {p:x} {}", text(m));
    cu_stream(p: usize, m: Name) = format!("NameCuStreamA {p:x} {}", text(m));
    cu_event(p: usize, m: Name) = format!("NameCuEventA {p:x} {}", text(m));
    cuda_device(d: c_int, m: Name) = format!("NameCudaDeviceA {d} {}", text(m));
    cuda_stream(p: usize, m: Name) = format!("NameCudaStreamA {p:x} {}", text(m));
    cuda_event(p: usize, m: Name) = format!("NameCudaEventA {p:x} {}", text(m));

    sync_create(d: usize, a: Bytes) -> u64 = format!(
        "SyncUserCreate {d:x} v{}/{} {}", read_at::<u16>(a, 0), read_at::<u16>(a, 2), message(read_at(a, 4), a, 8)
    ) => next!(0x4000);
    sync_destroy(s: usize) = format!("SyncUserDestroy {s:x}");
    sync_start(s: usize) = format!("SyncUserAcquireStart {s:x}");
    sync_failed(s: usize) = format!("SyncUserAcquireFailed {s:x}");
    sync_success(s: usize) = format!("SyncUserAcquireSuccess {s:x}");
    sync_releasing(s: usize) = format!("SyncUserReleasing {s:x}");

    schema(d: usize, s: Bytes) -> u64 = schema_line(d, s) => next!(1 << 32);
    enumeration(d: usize, e: Bytes) -> u64 = enum_line(d, e) => next!(2 << 32);
    p_mark(d: usize, p: Bytes, n: usize) = format!("MarkPayload {d:x} {}", payloads(p, n));
    p_push(d: usize, p: Bytes, n: usize) -> c_int = format!("RangePushPayload {d:x} {}", payloads(p, n)) => 0;
    p_pop(d: usize, p: Bytes, n: usize) -> c_int = format!("RangePopPayload {d:x} {}", payloads(p, n)) => 0;
    p_start(d: usize, p: Bytes, n: usize) -> u64 = format!("RangeStartPayload {d:x} {}", payloads(p, n)) => next!(400);
    p_end(d: usize, id: u64, p: Bytes, n: usize) = format!("RangeEndPayload {d:x} {id} {}", payloads(p, n));
    is_enabled(d: usize) -> u8 = format!("DomainIsEnabled {d:x}")
        => u8::from(env::var("FAKE_NVTX_MODE").as_deref() != Ok("disabled"));
    timestamp() -> i64 = "TimestampGet".to_owned() => 12345;
    time_domain(d: usize, a: Bytes) -> u64 = format!(
        "TimeDomainRegister {d:x} {} {} {} {} {} {}",
        read_at::<u64>(a, 0), read_at::<u64>(a, 8), read_at::<u64>(a, 16), read_at::<u64>(a, 24), read_at::<i64>(a, 32), read_at::<u64>(a, 40)
    ) => next!(3 << 32);
    timer(d: usize, t: u64, f: u64, read: extern "C" fn() -> i64) =
        format!("TimerSource {d:x} {t:x} {f} reads {}", read());
    timer_data(d: usize, t: u64, f: u64, read: extern "C" fn(usize) -> i64, data: usize) =
        format!("TimerSourceWithData {d:x} {t:x} {f} reads {}", read(data));
    scope(d: usize, a: Bytes) -> u64 = format!(
        "ScopeRegister {d:x} {} {} {} {}", read_at::<usize>(a, 0), text(read_at(a, 8)), read_at::<u64>(a, 16), read_at::<u64>(a, 24)
    ) => next!(4 << 32);
    sync_point(d: usize, a: u64, b: u64, x: i64, y: i64) = format!("TimeSyncPoint {d:x} {a:x} {b:x} {x} {y}");
    sync_table(d: usize, a: u64, b: u64, p: Bytes, n: usize) = format!(
        "TimeSyncPointTable {d:x} {a:x} {b:x} {}", hex(std::slice::from_raw_parts(p, n * 16))
    );
    conversion(d: usize, a: u64, b: u64, slope: f64, x: i64, y: i64) =
        format!("TimestampConversionFactor {d:x} {a:x} {b:x} {slope} {x} {y}");
    submit(d: usize, p: Bytes, n: usize) = format!("EventSubmit {d:x} {}", payloads(p, n));
    batch(d: usize, b: Bytes) = format!(
        "EventBatchSubmit {d:x} {:x}: {} scope {} flags {} flex {:x} {} {}",
        read_at::<u64>(b, 0), hex(std::slice::from_raw_parts(read_at::<Bytes>(b, 16), read_at::<usize>(b, 8))),
        read_at::<u64>(b, 24), read_at::<u64>(b, 32), read_at::<usize>(b, 40), read_at::<usize>(b, 48), read_at::<usize>(b, 56)
    );

    counter(d: usize, c: Bytes) -> u64 = counter_line(d, c) => next!(5 << 32);
    sample_i64(d: usize, c: u64, v: i64) = format!("CounterSampleInt64 {d:x} {c:x} {v}");
    sample_f64(d: usize, c: u64, v: f64) = format!("CounterSampleFloat64 {d:x} {c:x} {v}");
    sample(d: usize, c: u64, v: Bytes, n: usize) =
        format!("CounterSample {d:x} {c:x} {}", hex(std::slice::from_raw_parts(v, n)));
    no_value(d: usize, c: u64, why: u8) = format!("CounterSampleNoValue {d:x} {c:x} {why}");
    counter_batch(d: usize, b: Bytes) = format!(
        "CounterBatchSubmit {d:x} {:x} {} flags {} at {}",
        read_at::<u64>(b, 0), hex(std::slice::from_raw_parts(read_at::<Bytes>(b, 8), read_at::<usize>(b, 16))),
        read_at::<u64>(b, 24), hex(std::slice::from_raw_parts(read_at::<Bytes>(b, 32), read_at::<usize>(b, 40)))
    );
}

/// A chain of semantics.
unsafe fn semantics(mut base: Bytes) -> String {
    let mut all = String::new();
    while !base.is_null() {
        // SAFETY: each starts with a header of 16 bytes that tells its kind, and the next one.
        unsafe {
            let (size, id, version) =
                (read_at::<u32>(base, 0), read_at::<u16>(base, 4), read_at::<u16>(base, 6));
            all += &format!(" semantics {id}v{version}/{size}");
            all += &match id {
                2 => format!(" clock {:x}", read_at::<u64>(base, 16)),
                5 => format!(
                    " flags {} unit {} scale {}/{} limits {}: {:x} {:x}",
                    read_at::<u64>(base, 16),
                    text(read_at(base, 24)),
                    read_at::<u64>(base, 32),
                    read_at::<u64>(base, 40),
                    read_at::<i64>(base, 48),
                    read_at::<u64>(base, 56),
                    read_at::<u64>(base, 64)
                ),
                _ => String::new(),
            };
            base = read_at(base, 8);
        }
    }
    all
}

unsafe fn schema_line(domain: usize, s: Bytes) -> String {
    // SAFETY: 80 bytes, and the entries are 64 each.
    unsafe {
        let mut line = format!(
            "PayloadSchemaRegister {domain:x} mask {:x} {} type {} flags {} size {} pack {} id {}",
            read_at::<u64>(s, 0),
            text(read_at(s, 8)),
            read_at::<u64>(s, 16),
            read_at::<u64>(s, 24),
            read_at::<u64>(s, 48),
            read_at::<u64>(s, 56),
            read_at::<u64>(s, 64)
        );
        let entries: Bytes = read_at(s, 32);
        for index in 0..read_at::<usize>(s, 40) {
            let e = entries.add(index * 64);
            line += &format!(
                " | flags {:x} type {:x} {} {} length {} offset {}{}",
                read_at::<u64>(e, 0),
                read_at::<u64>(e, 8),
                text(read_at(e, 16)),
                text(read_at(e, 24)),
                read_at::<u64>(e, 32),
                read_at::<u64>(e, 40),
                semantics(read_at(e, 48))
            );
        }
        line
    }
}

unsafe fn enum_line(domain: usize, e: Bytes) -> String {
    // SAFETY: 56 bytes, and the entries are 24 each.
    unsafe {
        let mut line = format!(
            "PayloadEnumRegister {domain:x} mask {:x} {} size {} id {}",
            read_at::<u64>(e, 0),
            text(read_at(e, 8)),
            read_at::<u64>(e, 32),
            read_at::<u64>(e, 40)
        );
        let entries: Bytes = read_at(e, 16);
        for index in 0..read_at::<usize>(e, 24) {
            let v = entries.add(index * 24);
            line += &format!(
                " | {} {} {}",
                text(read_at(v, 0)),
                read_at::<u64>(v, 8),
                read_at::<i8>(v, 16)
            );
        }
        line
    }
}

unsafe fn counter_line(domain: usize, c: Bytes) -> String {
    // SAFETY: 56 bytes.
    unsafe {
        format!(
            "CounterRegister {domain:x} {} schema {:x} {} {} scope {} id {}{}",
            read_at::<usize>(c, 0),
            read_at::<u64>(c, 8),
            text(read_at(c, 16)),
            text(read_at(c, 24)),
            read_at::<u64>(c, 32),
            read_at::<u64>(c, 48),
            semantics(read_at(c, 40))
        )
    }
}

/// A slot and its function.
type Entry = (usize, *const ());

/// All functions but push and pop of the first module, by module.
fn the_rest() -> [(c_int, &'static [Entry]); 5] {
    macro_rules! slots {
        ($($slot:literal $function:ident),* $(,)?) => {
            // Leaked once: a tool lives as long as the process.
            &*Vec::leak(vec![$(($slot, $function as *const ())),*])
        };
    }
    [
        (
            1,
            slots![1 mark_ex, 2 mark_a, 4 start_ex, 5 start_a, 7 end, 8 push_ex, 12 name_category, 14 name_thread],
        ),
        (
            5,
            slots![
                1 d_mark, 2 d_start, 3 d_end, 4 d_push, 5 d_pop, 6 d_resource, 7 d_resource_destroy,
                8 d_category, 10 d_string, 12 d_create, 14 d_destroy, 15 initialize,
            ],
        ),
        (2, slots![1 cu_device, 3 cu_context, 5 cu_stream, 7 cu_event]),
        (4, slots![1 cuda_device, 3 cuda_stream, 5 cuda_event]),
        (
            6,
            slots![1 sync_create, 2 sync_destroy, 3 sync_start, 4 sync_failed, 5 sync_success, 6 sync_releasing],
        ),
    ]
}

/// An annotated function, as in a plugin: when loaded as one, this library is not the one that
/// NVTX's variable names.
#[unsafe(no_mangle)]
pub extern "C" fn annotate() {
    drop(nvtx::range("in a plugin"));
}

/// The entry point for the extensions of NVTX.
///
/// # Safety
///
/// `info` is NVTX's description of a module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(info: *const u8) -> c_int {
    // SAFETY: NVTX defines 40 bytes there, one segment of 24, and as many slots as it says.
    unsafe {
        let (version, size) = (read_at::<u16>(info, 0), read_at::<u16>(info, 2));
        let (module, compatibility) = (read_at::<u16>(info, 4), read_at::<u16>(info, 6));
        let segment: *const u8 = read_at(info, 16);
        let count: usize = read_at(segment, 8);
        let slots: *mut Function = read_at(segment, 16);
        let types: *const u16 = read_at(info, 32);
        let mut line = format!(
            "extension {module} compatible {compatibility:x} v{version}/{size} segments {} slots {count}",
            read_at::<usize>(info, 8)
        );
        if !types.is_null() {
            let types = std::slice::from_raw_parts(types, usize::from(types.read()) * 2);
            let sizes: Vec<String> =
                types.chunks(2).map(|pair| format!("{}/{}", pair[0], pair[1])).collect();
            line += &format!(" types {}", sizes.join(" "));
        }
        say(&line);
        let mode = env::var("FAKE_NVTX_MODE").unwrap_or_default();
        if matches!(&*mode, "no-slots" | "empty" | "push-only" | "pop-only") {
            return 1;
        }
        macro_rules! fill {
            ($($slot:literal $function:ident),* $(,)?) => {{ $(*slots.add($slot) = $function as *mut c_void;)* }};
        }
        match module {
            2 => fill![
                0 schema, 1 enumeration, 2 p_mark, 3 p_push, 4 p_pop, 5 p_start, 6 p_end, 7 is_enabled,
                8 timestamp, 9 time_domain, 10 timer, 11 timer_data, 12 scope, 13 sync_point,
                14 sync_table, 15 conversion, 16 submit, 17 batch,
            ],
            4 => {
                fill![0 counter, 1 sample_i64, 2 sample_f64, 3 sample, 4 no_value, 5 counter_batch]
            }
            _ => return 0,
        }
        if module == 2 && mode == "no-batches" {
            *slots.add(17) = ptr::null_mut();
        }
        // A tool that refuses fills slots which must not be called.
        c_int::from(mode != "refuse-extensions")
    }
}

/// The entry point of a tool.
///
/// # Safety
///
/// `get_export_table` is NVTX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    let mode = env::var("FAKE_NVTX_MODE").unwrap_or_default();
    if mode == "refuse" {
        return 0;
    }
    // SAFETY: as the caller promises.
    match unsafe { attach(get_export_table, &mode) } {
        Ok(()) => {
            if mode == "annotated" {
                drop(nvtx::range("in the tool"));
            }
            1
        }
        Err(reason) => {
            log(&format!("refused: {reason}"));
            0
        }
    }
}

unsafe fn attach(get_export_table: GetExportTable, mode: &str) -> Result<(), String> {
    // SAFETY: NVTX names these ids and the types behind them; the fields are read once the size
    // fits.
    unsafe {
        let version = get_export_table(3).cast::<VersionInfo>();
        check(!version.is_null(), "no version table")?;
        let size = (*version).struct_size;
        check(size >= 24, format!("version table of {size} bytes"))?;
        let number = (*version).version;
        check(number == 3, format!("NVTX version {number}"))?;
        let set = (*version).set_injection_nvtx_version;
        set.ok_or("no SetInjectionNvtxVersion")?(3);

        let callbacks = get_export_table(1).cast::<Callbacks>();
        check(!callbacks.is_null(), "no callbacks table")?;
        let size = (*callbacks).struct_size;
        check(size >= 16, format!("callbacks table of {size} bytes"))?;
        let get = (*callbacks).get_module_function_table;
        let get = get.ok_or("no GetModuleFunctionTable")?;

        for (module, slots) in REQUIRED.into_iter().chain(ALSO) {
            let (mut table, mut size) = (ptr::null_mut(), 0);
            let answer = get(module, &mut table, &mut size);
            check(answer == 1, format!("module {module} answers {answer}"))?;
            check(size as usize == slots, format!("module {module} has {size} slots"))?;
            for slot in 1..slots {
                let address = *table.add(slot);
                check(!address.is_null(), format!("slot {slot} of module {module}"))?;
            }
        }

        let mut core = ptr::null_mut();
        get(1, &mut core, ptr::null_mut());
        if !matches!(mode, "empty" | "pop-only" | "push-only") {
            for (module, functions) in the_rest() {
                let mut table = ptr::null_mut();
                get(module, &mut table, ptr::null_mut());
                for &(slot, function) in functions {
                    **table.add(slot) = function as *mut c_void;
                }
            }
        }
        if !matches!(mode, "empty" | "pop-only") {
            **core.add(RANGE_PUSH_A) = push as *mut c_void;
        }
        if mode == "count" {
            COUNTING.store(true, Ordering::Relaxed);
            let mut core2 = ptr::null_mut();
            get(5, &mut core2, ptr::null_mut());
            **core2.add(15) = counts as *mut c_void;
        }
        if !matches!(mode, "empty" | "push-only") {
            **core.add(RANGE_POP) = pop as *mut c_void;
        }
    }
    Ok(())
}

fn check(holds: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
