//! The functions that a copy of NVTX gets, called as from C: with null, wrong sizes, unknown types, and bytes at random.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block
)] // tests

#[path = "support/client.rs"]
mod client;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use client::{EXTENSIONS, MODULES, SLOTS, call};
use gpuprof_inject::__private::{counts, observe_with};
use nvtx::abi::{
    Callbacks, EXPORT_CALLBACKS, EventAttributes, GetExportTable, Module, ModuleInfo, Place, Slot,
    SlotAddress, slot,
};
use nvtx::observer::{
    CounterSample, DeferredEvent, Mark, Named, Observer, RangeStart, SyncStep, Token,
};

unsafe extern "C" {
    fn InitializeInjectionNvtx2(export: Option<GetExportTable>) -> c_int;
    fn InitializeInjectionNvtxExtension(info: *mut ModuleInfo) -> c_int;
}

thread_local!(static CASE: Cell<Case> = const { Cell::new(Case::Whole) });

/// What copy of NVTX it is.
#[derive(Clone, Copy, PartialEq)]
enum Case {
    Whole,
    /// Modules with fewer slots, or without some.
    Short(c_uint),
    /// One without modules.
    Empty,
}

unsafe extern "C" fn module_table(
    module: u32,
    table: *mut *const SlotAddress,
    size: *mut c_uint,
) -> c_int {
    let slots = match CASE.get() {
        Case::Whole => SLOTS as c_uint,
        Case::Short(slots) if module != Module::SYNC.number() => slots,
        _ => return 0,
    };
    let Some(module) = MODULES.get(module as usize) else { return 0 };
    // The first is never used, and others are missing as well in one that is short.
    let address = |(at, slot): (usize, &'static Slot)| {
        let is_missing = at == 0 || CASE.get() != Case::Whole && at % 5 == 0;
        SlotAddress(if is_missing { null() } else { slot })
    };
    let entries: Vec<_> = module.iter().enumerate().map(address).collect();
    unsafe { table.write(entries.leak().as_ptr()) };
    unsafe { size.write(slots) };
    1
}

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_table };

extern "C" fn export(id: u32) -> *const c_void {
    if id == EXPORT_CALLBACKS { (&raw const CALLBACKS).cast() } else { null() }
}

/// Counts what arrives; a range of this name panics.
#[derive(Default)]
struct Counted {
    starts: AtomicU64,
    ends: AtomicU64,
    process_starts: AtomicU64,
    process_ends: AtomicU64,
    others: AtomicU64,
}

const PANICS: &str = "panics";

static COUNTED: LazyLock<Counted> = LazyLock::new(Counted::default);

fn add(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}

impl Observer for Counted {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        assert_ne!(range.name, PANICS);
        // All that it has can be read.
        let _ = format!("{range:?}");
        Token::new(add(&self.starts))
    }
    fn range_end(&self, _: Token) {
        add(&self.ends);
    }
    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let _ = format!("{range:?}");
        Some(Token::new(add(&self.process_starts)))
    }
    fn process_range_end(&self, _: Token) {
        add(&self.process_ends);
    }
    fn mark(&self, mark: &Mark<'_>) {
        let _ = format!("{mark:?}");
        add(&self.others);
    }
    fn named(&self, _: &Named<'_>, _: &str) {
        add(&self.others);
    }
    fn counter(&self, sample: &CounterSample<'_>) {
        let _ = format!("{sample:?}");
        add(&self.others);
    }
    fn sync(&self, _: Option<&str>, _: &str, _: SyncStep) {
        add(&self.others);
    }
    fn deferred(&self, event: &DeferredEvent<'_>) {
        let _ = format!("{event:?}");
        add(&self.others);
    }
}

impl Counted {
    fn open(&self) -> u64 {
        self.starts.load(Ordering::Relaxed) - self.ends.load(Ordering::Relaxed)
    }

    fn open_in_process(&self) -> u64 {
        self.process_starts.load(Ordering::Relaxed) - self.process_ends.load(Ordering::Relaxed)
    }
}

/// Attaches the library to the whole copy. One test at a time, since all share it.
fn attached() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    observe_with(&*COUNTED);
    CASE.set(Case::Whole);
    assert_eq!(unsafe { InitializeInjectionNvtx2(Some(export)) }, 1);
    for (module, number) in [client::PAYLOAD, (4, 0x0102)] {
        assert_eq!(extend(module, number, &EXTENSIONS[usize::from(module)], SLOTS), 1);
    }
    turn
}

fn extend(module: u16, compatibility: u16, slots: &[Slot], count: usize) -> c_int {
    client::extend(InitializeInjectionNvtxExtension, (module, compatibility), slots, count)
}

/// All functions of the tables, and how many of their arguments may be anything.
const ALL: [Place; 65] = [
    slot::mark_ex,
    slot::mark_a,
    slot::mark_a.wide(),
    slot::range_start_ex,
    slot::range_start_a,
    slot::range_start_a.wide(),
    slot::range_end,
    slot::range_push_ex,
    slot::range_push_a,
    slot::range_push_a.wide(),
    slot::range_pop,
    slot::name_category,
    slot::name_category.wide(),
    slot::name_os_thread,
    slot::name_os_thread.wide(),
    slot::domain_mark_ex,
    slot::domain_range_start_ex,
    slot::domain_range_end,
    slot::domain_range_push_ex,
    slot::domain_range_pop,
    slot::resource_create,
    slot::resource_destroy,
    slot::domain_name_category,
    slot::domain_name_category.wide(),
    slot::register_string,
    slot::register_string.wide(),
    slot::domain_create,
    slot::domain_create.wide(),
    slot::domain_destroy,
    slot::initialize,
    slot::name_cu_device,
    slot::name_cu_context,
    slot::name_cu_stream,
    slot::name_cu_event,
    slot::name_cuda_device,
    slot::name_cuda_stream,
    slot::name_cuda_event,
    slot::sync_create,
    slot::sync_destroy,
    slot::sync_acquire_start,
    slot::sync_acquire_failed,
    slot::sync_acquire_success,
    slot::sync_releasing,
    slot::schema_register,
    slot::enum_register,
    slot::mark_payloads,
    slot::push_payloads,
    slot::pop_payloads,
    slot::start_payloads,
    slot::end_payloads,
    slot::domain_is_enabled,
    slot::timestamp_get,
    slot::time_domain_register,
    slot::timer_source,
    slot::timer_source_with_data,
    slot::scope_register,
    slot::time_sync_point,
    slot::sync_points,
    slot::timestamp_conversion,
    slot::submit,
    slot::event_batch_submit,
    slot::counter_register,
    slot::counter_bytes,
    slot::counter_no_value,
    slot::counter_batch,
];

#[test]
fn null_and_unknown_handles_are_read_by_no_function() {
    let _turn = attached();
    let before = COUNTED.open();
    for place in ALL {
        call(place, &[]);
    }
    // Handles that are none, without anything behind them.
    for handle in [1, 7, 0x13, usize::MAX, 0x7fff_dead_beef, 0x1_0000_0001, 0x21 << 40] {
        for place in [
            slot::range_end,
            slot::domain_range_end,
            slot::domain_range_pop,
            slot::domain_destroy,
            slot::resource_destroy,
            slot::sync_destroy,
            slot::sync_acquire_start,
            slot::sync_releasing,
            slot::counter_no_value,
            slot::end_payloads,
            slot::domain_is_enabled,
        ] {
            call(place, &[handle, handle]);
        }
    }
    while COUNTED.open() > before {
        call(slot::range_pop, &[]);
    }
    assert_eq!(call(slot::range_pop, &[]) as u32 as i32, -1, "none is open");
    assert!(counts().iter().any(|(name, count)| *name == "unknown_handles" && *count > 0));
}

#[test]
fn older_and_broken_copies_of_nvtx_are_filled_partly() {
    let _turn = attached();
    for slots in [0, 1, 9, 16, 17, 62] {
        CASE.set(Case::Short(slots));
        let taken = unsafe { InitializeInjectionNvtx2(Some(export)) };
        assert_eq!(taken, c_int::from(slots > 1), "{slots} slots");
    }
    CASE.set(Case::Empty);
    assert_eq!(unsafe { InitializeInjectionNvtx2(Some(export)) }, 0);
    extern "C" fn nothing(_: u32) -> *const c_void {
        null()
    }
    extern "C" fn small(_: u32) -> *const c_void {
        static SIZE: usize = 8;
        (&raw const SIZE).cast()
    }
    assert_eq!(unsafe { InitializeInjectionNvtx2(Some(nothing)) }, 0);
    assert_eq!(unsafe { InitializeInjectionNvtx2(Some(small)) }, 0);
    assert_eq!(unsafe { InitializeInjectionNvtx2(None) }, 0);

    let slots = [const { AtomicPtr::new(null_mut()) }; SLOTS];
    assert_eq!(unsafe { InitializeInjectionNvtxExtension(null_mut()) }, 0);
    for (module, taken) in [(0, 0), (1, 0), (2, 1), (3, 0), (4, 1), (5, 0), (u16::MAX, 0)] {
        assert_eq!(extend(module, 0x7fff, &slots, SLOTS), taken, "module {module}");
    }
    // Fewer slots than functions.
    let few = [const { AtomicPtr::new(null_mut()) }; 4];
    assert_eq!(extend(2, 0x0101, &few, 3), 1);
    assert!(!few[2].load(Ordering::Relaxed).is_null() && few[3].load(Ordering::Relaxed).is_null());
}

/// Attributes of any size, version and type, with a message that is a text where the type says so.
#[test]
fn attributes_of_any_bytes_start_and_end_ranges() {
    let _turn = attached();
    let mut random = fastrand::Rng::with_seed(7);
    let text = c"a text";
    let wide: [u32; 4] = [0x61, 0xd800, 0x1f600, 0];
    let string = call(slot::register_string, &[0, text.as_ptr().addr()]);
    let domain = call(slot::domain_create, &[c"hostile".as_ptr().addr()]);
    let payload: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let before = (COUNTED.open(), COUNTED.open_in_process());
    for _ in 0..20_000 {
        let mut bytes = [0u8; size_of::<EventAttributes<'static>>()];
        random.fill(&mut bytes);
        // Often a size that leaves something to read.
        let size = if random.bool() { 48 } else { random.u16(..80) };
        bytes[2..4].copy_from_slice(&size.to_ne_bytes());
        let message = random.i32(-2..6);
        bytes[32..36].copy_from_slice(&message.to_ne_bytes());
        let address = match message {
            1 => text.as_ptr().addr(),
            2 => wide.as_ptr().addr(),
            3 => *random.choice([&string, &0, &5, &usize::MAX]).unwrap(),
            _ => random.usize(..),
        };
        bytes[40..48].copy_from_slice(&address.to_ne_bytes());
        let blocks = random.i32(-2..20);
        let records: Vec<[usize; 3]> = (0..blocks.max(0))
            .map(|_| {
                let schema = *random.choice([&18, &16, &75, &200, &(1 << 24), &(1 << 32)]).unwrap();
                let length = *random.choice([&0, &1, &4, &8, &64, &usize::MAX]).unwrap();
                [schema, length, payload.as_ptr().addr()]
            })
            .collect();
        if random.bool() {
            bytes[16..20].copy_from_slice(&0xDFBD_0009u32.to_ne_bytes());
            bytes[20..24].copy_from_slice(&blocks.to_ne_bytes());
            let first = if random.u8(..9) == 0 { 0 } else { records.as_ptr().expose_provenance() };
            bytes[24..32].copy_from_slice(&first.to_ne_bytes());
        } else {
            bytes[16..20].copy_from_slice(&random.i32(-1..9).to_ne_bytes());
        }
        // A category of a bounded number of ids: each gets a name.
        bytes[4..8].copy_from_slice(&random.u32(..2000).to_ne_bytes());
        // As C aligns it, or not.
        let mut place = MaybeUninit::<[u8; 64]>::zeroed();
        let at = place.as_mut_ptr().cast::<u8>().wrapping_add(random.usize(..8));
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let address = at.addr();
        match random.u8(..4) {
            0 => {
                call(slot::range_push_ex, &[address]);
                call(slot::range_pop, &[]);
            }
            1 => {
                call(slot::domain_range_push_ex, &[domain, address]);
                call(slot::domain_range_pop, &[domain]);
            }
            2 => {
                let range = call(slot::domain_range_start_ex, &[domain, address]);
                call(slot::domain_range_end, &[domain, range]);
            }
            _ => {
                call(slot::mark_ex, &[address]);
            }
        }
    }
    assert_eq!((COUNTED.open(), COUNTED.open_in_process()), before);
}

/// Schemas of any entries, and records of any length by them.
#[test]
fn schemas_of_any_bytes_read_no_byte_too_many() {
    let _turn = attached();
    let mut random = fastrand::Rng::with_seed(8);
    let mut known = vec![0usize];
    for round in 0..2_000 {
        let entries: Vec<[usize; 8]> = (0..random.usize(..12))
            .map(|_| {
                let kind = match random.u8(..4) {
                    0 => *random.choice(&known).unwrap(),
                    1 => random.usize(..),
                    _ => random.usize(..110),
                };
                let flags = if random.bool() { 0 } else { random.usize(..1 << 15) };
                let length = *random.choice([&0, &1, &3, &8, &9, &1000, &usize::MAX]).unwrap();
                let offset = *random.choice([&0, &0, &8, &60, &usize::MAX]).unwrap();
                [flags, kind, c"entry".as_ptr().addr(), 0, length, offset, 0, 0]
            })
            .collect();
        let mask = if random.bool() { 0x3fe } else { random.usize(..0x400) };
        let id = if round % 3 == 0 { (1 << 24) + round % 50 } else { 0 };
        let kind = *random.choice([&1, &1, &1, &2, &3, &9]).unwrap();
        let size = *random.choice([&0, &4, &64, &usize::MAX]).unwrap();
        let schema: [usize; 10] = [
            mask,
            c"schema".as_ptr().addr(),
            kind,
            random.usize(..80),
            entries.as_ptr().addr(),
            entries.len(),
            size,
            *random.choice([&0, &1, &3, &8]).unwrap(),
            id,
            0,
        ];
        let id = call(slot::schema_register, &[0, schema.as_ptr().addr()]);
        if id != 0 {
            known.push(id);
        }
        // On the heap, so that a sanitizer finds a read beyond the end.
        let record = vec![random.u8(..); random.usize(..80)];
        let block = [id, record.len(), record.as_ptr().addr()];
        let block = block.as_ptr().addr();
        call(slot::push_payloads, &[0, block, 1]);
        call(slot::pop_payloads, &[0, block, 1]);
        call(slot::submit, &[0, block, 1]);
        let batch: [usize; 8] = [id, record.len(), record.as_ptr().addr(), 0, 0, 0, 0, 0];
        call(slot::event_batch_submit, &[0, batch.as_ptr().addr()]);
        let counter: [usize; 7] = [56, id, c"counter".as_ptr().addr(), 0, 0, 0, 0];
        let counter = call(slot::counter_register, &[0, counter.as_ptr().addr()]);
        call(slot::counter_bytes, &[0, counter, record.as_ptr().addr(), record.len()]);
        let times = [1i64; 3];
        let batch: [usize; 6] =
            [counter, record.as_ptr().addr(), record.len(), 0, times.as_ptr().addr(), 24];
        call(slot::counter_batch, &[0, batch.as_ptr().addr()]);
    }
    assert!(known.len() > 1000);
}

#[test]
fn ranges_nest_by_thread_and_domain_and_have_levels() {
    let _turn = attached();
    let [one, other] =
        [c"one", c"other"].map(|name| call(slot::domain_create, &[name.as_ptr().addr()]));
    assert!(one != 0 && other != 0 && one != other);
    let name = c"range".as_ptr().addr();
    let event: [u64; 6] = [3 | 48 << 16, 0, 0, 0, 1, name as u64];
    let event = event.as_ptr().addr();
    let level = |result: usize| result as u32 as i32;
    let push = |domain| level(call(slot::domain_range_push_ex, &[domain, event]));
    let pop = |domain| level(call(slot::domain_range_pop, &[domain]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!([push(one), push(other), push(one), push(one)], [0, 0, 1, 2]);
            assert_eq!(level(call(slot::range_push_a, &[name])), 0);
            scope.spawn(|| assert_eq!([pop(one), push(one), pop(one)], [-1, 0, 0])).join().unwrap();
            assert_eq!(
                [pop(one), pop(other), pop(other), pop(one), pop(one), pop(one)],
                [2, 0, -1, 1, 0, -1]
            );
            assert_eq!(level(call(slot::range_pop, &[])), 0);
        });
    });
}

#[test]
fn ranges_beyond_the_greatest_depth_are_counted_and_their_pops_ignored() {
    let _turn = attached();
    let name = c"deep".as_ptr().addr();
    let before = COUNTED.open();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                call(slot::range_push_a, &[name]);
            }
            assert_eq!(COUNTED.open() - before, 1 << 14);
            for _ in 0..20_000 {
                assert!(call(slot::range_pop, &[]) as u32 as i32 >= 0);
            }
            assert_eq!(call(slot::range_pop, &[]) as u32 as i32, -1);
        });
    });
    assert_eq!(COUNTED.open(), before);
    let beyond = counts().iter().find(|(name, _)| *name == "too_deep").map(|(_, count)| *count);
    assert_eq!(beyond, Some(20_000 - (1 << 14)));
}

#[test]
fn panics_reach_no_program() {
    let _turn = attached();
    let before =
        |what| counts().iter().find(|(name, _)| *name == what).map_or(0, |(_, count)| *count);
    let panics = before("panics");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let name: *const c_char = c"panics".as_ptr();
    assert_eq!(PANICS, "panics");
    assert_eq!(call(slot::range_push_a, &[name.addr()]) as u32 as i32, -2);
    std::panic::set_hook(hook);
    assert_eq!(before("panics"), panics + 1);
    // The thread's ranges can be used again.
    assert_eq!(call(slot::range_push_a, &[c"next".as_ptr().addr()]), 0);
    assert_eq!(call(slot::range_pop, &[]), 0);
}

/// Threads that register and use the same and other names, domains and schemas.
#[test]
fn threads_share_the_tables() {
    let _turn = attached();
    let before = COUNTED.open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..500 {
                    let name = format!("domain {}\0", (round + thread) % 7);
                    let domain = call(slot::domain_create, &[name.as_ptr().addr()]);
                    let text = format!("text {}\0", round % 11);
                    let string = call(slot::register_string, &[domain, text.as_ptr().addr()]);
                    call(
                        slot::domain_name_category,
                        &[domain, round % 5 + 1, text.as_ptr().addr()],
                    );
                    let id = round as u64 % 5 + 1;
                    let event: [u64; 6] = [3 | 48 << 16 | id << 32, 0, 0, 0, 3, string as u64];
                    call(slot::domain_range_push_ex, &[domain, event.as_ptr().addr()]);
                    let range = call(slot::domain_range_start_ex, &[domain, event.as_ptr().addr()]);
                    call(slot::domain_range_end, &[domain, range]);
                    call(slot::domain_range_pop, &[domain]);
                    call(slot::domain_destroy, &[domain]);
                }
            });
        }
    });
    assert_eq!(COUNTED.open(), before);
}
