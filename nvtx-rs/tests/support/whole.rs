//! Scenarios that use all of NVTX, each a part of it.

use std::ffi::c_void;
use std::ptr;
use std::thread;

use nvtx::counter::{Counter, CounterGroup, Missing};
use nvtx::cuda::{driver, runtime};
use nvtx::deferred::{Deferred, DeferredMark, DeferredRange};
use nvtx::schema::{Entry, EntryType, Enum, Record, Schema};
use nvtx::time::{Clock, Scope};
use nvtx::{Color, Domain, Dtype, OwnedDomain, ResourceId, Work};

use super::{Folder, fake_tool};

static GPU: Domain = Domain::new("gpu ∑");

/// The default domain: each function, with each part of its attributes.
pub(crate) fn events() {
    nvtx::initialize();
    nvtx::mark("plain");
    nvtx::event("colored").color(Color::argb(1, 2, 3, 4)).mark();
    let io = nvtx::category("io");
    assert_eq!((io.id(), io.name()), (1, "io"));
    assert_eq!(nvtx::category("io"), io);
    assert_eq!(nvtx::category("net").id(), 2);
    drop(nvtx::event("grouped").category(io).range());
    for (name, event) in [
        ("u64", nvtx::event("u64").payload(u64::MAX)),
        ("i64", nvtx::event("i64").payload(-1i64)),
        ("f64", nvtx::event("f64").payload(1.5f64)),
        ("u32", nvtx::event("u32").payload(u32::MAX)),
        ("i32", nvtx::event("i32").payload(-2i32)),
        ("f32", nvtx::event("f32").payload(-1.5f32)),
    ] {
        // Fields are not for tools.
        event.field("name", name, "").mark();
    }
    let plain = nvtx::process_range("plain process");
    let rich = nvtx::event("rich process").color(Color::RED).process_range();
    thread::spawn(move || drop(rich)).join().expect("a thread");
    drop(plain);
    let text = nvtx::register("text");
    drop(text.range());
    text.mark();
    drop(text.process_range());
}

pub(crate) fn domains() {
    GPU.mark("mark");
    let math = GPU.category("math");
    let all = GPU.event("all").color(Color::LIME).category(math).payload(7u32);
    drop(all.range());
    let process = GPU.process_range("process");
    thread::spawn(move || drop(process)).join().expect("a thread");
    let text = GPU.register("text");
    drop(text.range());
    let _ = GPU.is_enabled();

    // The domain ends with the last that needs it.
    let owned = OwnedDomain::new("owned".to_owned());
    let range = owned.process_range("outlives");
    let second = owned.clone();
    drop(owned);
    drop(second);
    drop(range);
    // One that no event is of is never made.
    drop(OwnedDomain::new("unused"));
}

pub(crate) fn is_enabled() {
    println!("enabled: {}", GPU.is_enabled());
}

pub(crate) fn names_of_things() {
    let handle = |address: usize| ptr::without_provenance_mut::<c_void>(address);
    nvtx::name_current_thread("main ∑");
    driver::name_device(1, "device");
    driver::name_context(handle(0x11), "context");
    driver::name_stream(handle(0x12), "stream");
    driver::name_event(handle(0x13), "event");
    runtime::name_device(2, "device");
    runtime::name_stream(handle(0x14), "stream");
    runtime::name_event(ptr::null_mut(), "event");
    drop(nvtx::resource(ResourceId::handle(0xabc), "handle"));
    drop(GPU.resource(ResourceId::cu_stream(handle(0x15)), "stream"));
    drop(nvtx::resource(ResourceId::cuda_device(3), "device"));
    drop(nvtx::resource(ResourceId::other(9, 8, 7), "other"));
    let object = GPU.sync_object("lock");
    object.acquire().failed();
    drop(object.acquire());
    object.acquire().succeeded().release();
}

static DTYPE: Enum = Enum::new("dtype", 1, &[("f32", 0), ("bf16", 1)]);
static FLAGS: Enum = Enum::new("flags", 4, &[("a", 1), ("b", 2)]).flags();
static GEMM: Schema = Schema::new(
    "gemm",
    &[
        Entry::new("dtype", EntryType::Enum(&DTYPE)),
        Entry::array("shape", EntryType::U32, 3).described("m, n, k"),
        Entry::new("flops", EntryType::F64),
        Entry::new("label", EntryType::Text(5)).message(),
        Entry::new("flags", EntryType::Enum(&FLAGS)).hidden(),
    ],
);
static IN_GPU: Schema = Schema::in_domain("in gpu", &GPU, &[Entry::new("x", EntryType::I16)]);

fn gemm() -> Record {
    let shape: &[u32] = &[1, 2, 3];
    let values = [1u8.into(), shape.into(), 2.0.into(), "ab∑".into(), 3u32.into()];
    GEMM.record(&values).expect("a record")
}

pub(crate) fn records() {
    let record = gemm();
    assert_eq!(GEMM.size(), 40);
    drop(nvtx::event("one").record(&record).range());
    nvtx::event("with a number").payload(-3i32).record(&record).mark();
    let small = IN_GPU.record(&[(-2i16).into()]).expect("a record");
    drop(GPU.event("in its domain").record(&small).range());
    // Its schema is unknown in the default domain.
    drop(nvtx::event("in another").record(&small).range());
    record.mark();
    drop(small.range());
    small.range().end_with(&small);
    GPU.range("ends with").end_with(&small);
    GPU.range("of another").end_with(&record);
    drop(record.process_range());
    nvtx::process_range("ends with").end_with(&record);
}

/// Declared work, beside what else an event may have.
pub(crate) fn work() {
    let gemm = Work::gemm(4, 5, 6, Dtype::Bf16);
    drop(nvtx::event("gemm").work(gemm).range());
    GPU.event("scores").flops(1.5).dtype("f16").payload(7u32).mark();
    drop(nvtx::process_range!(bytes: 4096u64, "copy"));
    // A record of the program's own says more, and other fields are not for tools.
    nvtx::event("recorded").work(gemm).record(&self::gemm()).mark();
    nvtx::event("plain").field("x", 1u8, "").dtype(Dtype::F32).mark();
}

static LOSS: Counter<f64> = Counter::new("loss");
static MEMORY: Counter<i64> =
    Counter::new("memory").in_domain(&GPU).unit("B").described("in use").limits(0, 80 << 30);
static POOL: Schema =
    Schema::new("pool", &[Entry::new("used", EntryType::U64).counter()]).counter_group();
static POOLS: CounterGroup = CounterGroup::new("pools", &POOL).clock(Clock::MONOTONIC);

pub(crate) fn counters() {
    LOSS.sample(0.25);
    MEMORY.sample(-5);
    MEMORY.missing(Missing::Zero);
    MEMORY.missing(Missing::Unchanged);
    LOSS.missing(Missing::Unavailable);
    MEMORY.batch(&[(10, 1), (20, 2)]);
    MEMORY.batch(&[(20, 2), (10, 1)]);
    POOLS.sample(&POOL.record(&[9u64.into()]).expect("a record"));
    // No sample of this group.
    POOLS.sample(&gemm());
}

static DEVICE: Deferred = Deferred::new(Clock::MONOTONIC).in_domain(&GPU);

extern "C" fn five() -> i64 {
    5
}

pub(crate) fn deferred() {
    let (copy, other) = (GPU.register("copy"), nvtx::register("other"));
    let range = DeferredRange::new(&copy, 1, 2).color(Color::RED).category(GPU.category("dma"));
    DEVICE.ranges(&[range]);
    DEVICE.ranges(&[DeferredRange::new(&copy, 5, 6), DeferredRange::new(&other, 3, 4)]);
    DEVICE.ranges(&[]);
    // A batch for those without a colour, and one for those with.
    let [red, blue] =
        [Color::RED, Color::BLUE].map(|color| DeferredMark::new(&copy, -2).color(color));
    DEVICE.marks(&[red, DeferredMark::new(&copy, -1), blue]);
    // The fake tool's, or a later one.
    assert!(nvtx::time::timestamp().is_some_and(|time| time >= 12345));
    let scope = Scope::ROOT.child(Some(&GPU), "GPU[CUDAID:0]");
    let clock = Clock::register(Some(&GPU), scope, 1000).expect("a clock");
    clock.source(Some(&GPU), five);
    clock.source_with(Some(&GPU), &|| 6);
    clock.sync_point(Some(&GPU), 1, Clock::MONOTONIC, 2);
    clock.sync_points(Some(&GPU), Clock::TSC, &[(1, 2), (3, 4)]);
    clock.conversion(None, 7, Clock::REALTIME, 8, 0.5);
}

/// A clock that panics, with a payload that panics in its turn when it is dropped.
pub(crate) fn panicking_clock() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the drop of a payload");
        }
    }
    // The panics are meant: nothing is to be printed for them.
    std::panic::set_hook(Box::new(|_| ()));
    Clock::MONOTONIC.source_with(None, &|| std::panic::panic_any(Bomb));
}

/// A library that annotates is loaded, used and closed: whether it is gone. The fake tool's file is one, too.
pub(crate) fn unload() {
    let folder = Folder::new();
    let path = folder.0.join("libplugin.so");
    std::fs::copy(fake_tool(), &path).expect("a copy");
    // SAFETY: the initialisers of a Rust library may run in any process.
    let plugin = unsafe { libloading::Library::new(&path) }.expect("a library");
    // SAFETY: the library has a function of this name and type.
    let annotate = *unsafe { plugin.get::<extern "C" fn()>("annotate") }.expect("its function");
    // The locals of a thread, which end with it, would keep the library as well.
    thread::spawn(move || annotate()).join().expect("a thread");
    plugin.close().expect("closed");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("what is mapped");
    println!("unloaded: {}", !maps.contains("libplugin.so"));
}

/// The macros: literal names are registered once for each place.
pub(crate) fn sites() {
    for i in 0..2 {
        let _literal = nvtx::range!("literal");
        let _formatted = nvtx::range!("batch {i}");
        let _domain = nvtx::range!(domain: GPU, color: Color::BLUE, payload: i, "literal");
    }
    nvtx::mark!("number {}", 4);
    nvtx::mark!(domain: GPU, "a mark");
    let range = nvtx::process_range!(category: nvtx::category("c"), "process");
    thread::spawn(move || drop(range)).join().expect("a thread");
}

/// What the documentation of `Range` says of odd uses.
pub(crate) fn odd_ends() {
    // Out of order.
    let (one, two) = (nvtx::range("one"), nvtx::range("two"));
    drop(one);
    drop(two);
    // In a struct.
    struct Holder {
        _range: nvtx::Range,
        _inner: nvtx::Range,
    }
    drop(Holder { _range: nvtx::range("held"), _inner: nvtx::range("held too") });
    // Deep.
    let ranges: Vec<_> = (0..10_000).map(|_| nvtx::range("deep")).collect();
    drop(ranges);
    // Leaked, and at the end of its thread.
    thread::spawn(|| std::mem::forget(nvtx::range("leaked"))).join().expect("a thread");
    drop(nvtx::range(&"m".repeat(1 << 20)));
}

/// For a real tool. No comma or quote in a name.
pub(crate) fn real() {
    let io = GPU.category("io");
    {
        let _outer = GPU.event("colored").color(Color::from_argb(0xff12_3456)).category(io).range();
        let _payload = GPU.event("payload").payload(77u64).range();
        nvtx::event("negative").payload(-5i64).mark();
        GPU.event("half").payload(0.5f64).mark();
    }
    let text = GPU.register("registered ∑");
    for _ in 0..3 {
        drop(text.range());
        drop(nvtx::range!("from a macro"));
    }
    let process = GPU.event("process").color(Color::RED).process_range();
    let second = nvtx::process_range("overlaps");
    thread::Builder::new()
        .spawn(move || {
            nvtx::name_current_thread("named thread");
            drop(process);
        })
        .and_then(|thread| thread.join().map_err(|_| std::io::Error::other("a panic")))
        .expect("a thread");
    drop(second);
    let record = gemm();
    drop(nvtx::event("with a record").record(&record).range());
    LOSS.sample(0.5);
    MEMORY.sample(3);
}
