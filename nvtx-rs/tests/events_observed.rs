//! What an observer sees beside the ranges of threads: all parts of all events, in one line each.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are not inside a #[test]")]

use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nvtx::counter::{Counter, Missing};
use nvtx::deferred::{Deferred, DeferredMark, DeferredRange};
use nvtx::observer::{
    self, CounterSample, DeferredEvent, Mark, Named, Observer, RangeStart, Switch, SyncStep, Token,
};
use nvtx::schema::{Entry, EntryType, Enum, Record, Schema};
use nvtx::time::Clock;
use nvtx::{Color, Domain, Dtype, Field, FieldValue, OwnedDomain, Payload, Pipe, ResourceId, Work};

/// Writes a line for each call.
struct Recorder {
    lines: Mutex<Vec<String>>,
    next: AtomicU64,
}

static RECORDER: Recorder = Recorder { lines: Mutex::new(Vec::new()), next: AtomicU64::new(1) };

impl Recorder {
    fn say(&self, line: String) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn token(&self) -> Token {
        Token::new(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// All that is known of an event.
fn parts(event: &RangeStart<'_>) -> String {
    let mut line = event.name.to_owned();
    if let Some(domain) = event.domain {
        line += &format!(" in {domain}");
    }
    if let Some(category) = event.category {
        line += &format!(" of {} {}", category.id(), category.name());
    }
    if let Some(color) = event.color {
        line += &format!(" {:x}", color.to_argb());
    }
    if let Some(payload) = event.payload {
        line += &format!(" {payload:?}");
    }
    for field in event.fields {
        line += &format!(" {}={:?}[{}]", field.name, field.value, field.unit);
    }
    if let Some(record) = event.record {
        line += &format!(" {}:{:?}", record.schema().name(), record.bytes());
    }
    line
}

impl Observer for Recorder {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        let token = self.token();
        self.say(format!("start {} {}", token.get(), parts(range)));
        token
    }

    fn range_end(&self, token: Token) {
        self.say(format!("end {}", token.get()));
    }

    fn range_end_with(&self, token: Token, record: &Record) {
        self.say(format!("end {} with {:?}", token.get(), record.bytes()));
    }

    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let token = self.token();
        self.say(format!("process start {} {}", token.get(), parts(range)));
        (range.name != "unwanted").then_some(token)
    }

    fn process_range_end(&self, token: Token) {
        let thread = thread::current();
        self.say(format!("process end {} on {}", token.get(), thread.name().unwrap_or("?")));
    }

    fn mark(&self, mark: &Mark<'_>) {
        assert_ne!(mark.name, "panics");
        self.say(format!("mark {}", parts(mark)));
    }

    fn named(&self, what: &Named<'_>, name: &str) {
        self.say(match what {
            Named::Thread(id) => format!("thread {} is {name}", *id == std::process::id()),
            what => format!("{what:?} is {name}"),
        });
    }

    fn counter(&self, sample: &CounterSample<'_>) {
        self.say(format!(
            "{} [{}] in {:?} is {:?} at {:?}",
            sample.name, sample.unit, sample.domain, sample.value, sample.time
        ));
    }

    fn sync(&self, domain: Option<&str>, name: &str, step: SyncStep) {
        self.say(format!("{name} of {domain:?}: {step:?}"));
    }

    fn deferred(&self, event: &DeferredEvent<'_>) {
        let number = event.clock.number();
        let (start, end) = (event.start, event.end);
        self.say(format!("{} in {:?} {start}..{end:?} by {number}", event.name, event.domain));
    }
}

/// An observer of an earlier interface compiles still, and is asked for nothing more.
struct Earlier;

impl Observer for Earlier {
    fn range_start(&self, _range: &RangeStart<'_>) -> Token {
        Token::new(0)
    }

    fn range_end(&self, _token: Token) {}
}

#[test]
fn an_earlier_observer_takes_no_process_ranges() {
    let earlier: &dyn Observer = &Earlier;
    assert_eq!(earlier.process_range_start(&RangeStart::new("x")), None);
    earlier.mark(&RangeStart::new("x"));
}

struct Turn {
    switch: Switch,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn new() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let switch = observer::install(&RECORDER).unwrap();
        RECORDER.lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
        RECORDER.next.store(1, Ordering::Relaxed);
        switch.on();
        Turn { switch, _turn: turn }
    }

    fn lines(&self) -> Vec<String> {
        mem::take(&mut *RECORDER.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.switch.off();
    }
}

static GPU: Domain = Domain::new("gpu");

#[test]
fn all_parts_of_an_event_arrive() {
    // Its own: categories are numbered as a domain gets them, in any order of the tests.
    static GPU: Domain = Domain::new("gpu");
    let turn = Turn::new();
    let io = GPU.category("io");
    let fields = [Field::new("n", 3u8, ""), Field::new("ok", true, "")];
    drop(
        GPU.event("all")
            .color(Color::RED)
            .category(io)
            .payload(7i32)
            .fields(&fields)
            .field("flops", 2e9, "flop")
            .field("dtype", "bf16", "")
            .range(),
    );
    nvtx::mark("plain");
    nvtx::event("one").payload(2u64).mark();
    GPU.mark("there");
    let name = GPU.register("registered");
    name.mark();
    assert_eq!(
        turn.lines(),
        [
            "start 1 all in gpu of 1 io ffff0000 I32(7) n=U64(3)[] ok=Bool(true)[] \
             flops=F64(2000000000.0)[flop] dtype=Str(\"bf16\")[]",
            "end 1",
            "mark plain",
            "mark one U64(2)",
            "mark there in gpu",
            "mark registered in gpu",
        ]
    );
}

#[test]
fn process_ranges_end_on_any_thread() {
    let turn = Turn::new();
    let domain = OwnedDomain::new("owned");
    let range = domain.event("moved").payload(1.5f32).process_range();
    drop(domain);
    let thread = thread::Builder::new().name("other".into());
    thread.spawn(move || drop(range)).unwrap().join().unwrap();
    drop(nvtx::process_range("unwanted"));
    assert_eq!(
        turn.lines(),
        [
            "process start 1 moved in owned F32(1.5)",
            "process end 1 on other",
            "process start 2 unwanted"
        ]
    );
    fn shared<T: Send + Sync + 'static>() {}
    shared::<nvtx::ProcessRange>();
    shared::<OwnedDomain>();
    shared::<nvtx::RegisteredString>();
}

#[test]
fn macros_give_all_parts() {
    let turn = Turn::new();
    let (i, text) = (4u64, String::from("local"));
    drop(nvtx::range!("literal"));
    drop(nvtx::range!("batch {i}"));
    drop(nvtx::range!("{} and {:>3}", i + 1, i));
    drop(nvtx::range!(
        payload: i,
        domain: GPU,
        category: GPU.category("math"),
        color: Color::BLUE,
        fields: { "flops" = 2.0 * 3.0, "flop"; "name" = text.as_str(); },
        "all {i}",
    ));
    nvtx::mark!(domain: GPU, "a {{mark}}");
    drop(nvtx::process_range!(fields: { "x" = i }, "process"));
    assert_eq!(
        turn.lines(),
        [
            "start 1 literal",
            "end 1",
            "start 2 batch 4",
            "end 2",
            "start 3 5 and   4",
            "end 3",
            "start 4 all 4 in gpu of 1 math ff0000ff U64(4) flops=F64(6.0)[flop] \
             name=Str(\"local\")[]"
                .replace("of 1 math", &format!("of {} math", GPU.category("math").id()))
                .as_str(),
            "end 4",
            "mark a {mark} in gpu",
            "process start 5 process x=U64(4)[]",
            &format!("process end 5 on {}", thread::current().name().unwrap_or("?")),
        ]
    );
}

#[cfg(feature = "macros")]
#[test]
fn annotated_work_is_fields_too() {
    #[nvtx::annotate(flops = 2 * m * n * k, bytes = 4.0 * (m * n) as f64, dtype = Dtype::F32)]
    fn annotated(m: usize, n: usize, k: usize) {}

    let turn = Turn::new();
    annotated(2, 3, 4);
    assert_eq!(
        turn.lines(),
        ["start 1 annotated flops=U64(48)[flop] bytes=F64(24.0)[B] dtype=Str(\"f32\")[]", "end 1",]
    );
}

#[test]
fn declared_work_is_four_fields() {
    let turn = Turn::new();
    let work = Work::elementwise(8, 2, 1, 2, Dtype::F16);
    drop(nvtx::event("event").field("x", 1u8, "").work(work).range());
    // Fields do not take the place of what is said before them.
    drop(nvtx::range!(flops: 5u64, fields: { "x" = 1u8 }, pipe: Pipe::Tensor, "macro"));
    nvtx::event("only bytes").work(Work::of_bytes(7)).mark();
    assert_eq!(
        turn.lines(),
        [
            "start 1 event x=U64(1)[] flops=U64(16)[flop] bytes=U64(48)[B] dtype=Str(\"f16\")[] \
             pipe=Str(\"vector\")[]",
            "end 1",
            "start 2 macro x=U64(1)[] flops=U64(5)[flop] pipe=Str(\"tensor\")[]",
            "end 2",
            "mark only bytes bytes=U64(7)[B]",
        ]
    );
}

#[test]
fn macros_compute_nothing_without_a_tool_or_observer() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    fn called() -> u64 {
        u64::from(CALLS.fetch_add(1, Ordering::Relaxed))
    }
    let turn = Turn::new();
    turn.switch.off();
    // The first event of a process searches for a tool, and counts as active.
    drop(nvtx::range("first"));
    drop(nvtx::range!(payload: called(), fields: { "x" = called() }, "name {}", called()));
    drop(nvtx::process_range!(payload: called(), "name"));
    nvtx::mark!("name {}", called());
    drop(nvtx::range!(flops: called(), work: Work::of_bytes(called()), "name"));
    assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    turn.switch.on();
    drop(nvtx::range!(payload: called(), fields: { "x" = called() }, "name {}", called()));
    assert_eq!(CALLS.load(Ordering::Relaxed), 3);
}

#[test]
fn options_may_leave_the_function() {
    fn find(value: Option<u64>) -> Option<u64> {
        let _range = nvtx::range!(payload: value?, "found");
        value
    }
    let turn = Turn::new();
    assert_eq!((find(None), find(Some(1))), (None, Some(1)));
    assert_eq!(turn.lines(), ["start 1 found U64(1)", "end 1"]);
}

#[test]
fn names_of_things_arrive() {
    let turn = Turn::new();
    nvtx::name_thread(std::process::id(), "worker");
    nvtx::cuda::driver::name_device(1, "big");
    nvtx::cuda::runtime::name_stream(std::ptr::without_provenance_mut(0x10), "copies");
    drop(GPU.resource(ResourceId::handle(5), "pool"));
    let lines = turn.lines();
    assert_eq!(
        lines[..3],
        ["thread true is worker", "CuDevice(1) is big", "CudaStream(16) is copies"]
    );
    assert!(lines[3].starts_with("Resource {") && lines[3].ends_with("is pool"), "{}", lines[3]);
}

static MEMORY: Counter<i64> = Counter::new("memory").unit("B").in_domain(&GPU);

#[test]
fn counters_locks_and_deferred_events_arrive() {
    static DEVICE: Deferred = Deferred::new(Clock::MONOTONIC);
    let turn = Turn::new();
    MEMORY.sample(3);
    MEMORY.missing(Missing::Unchanged);
    MEMORY.batch(&[(10, 4)]);
    let lock = GPU.sync_object("lock");
    lock.acquire().succeeded().release();
    lock.acquire().failed();
    let copy = nvtx::register("copy");
    DEVICE.ranges(&[DeferredRange::new(&copy, 1, 2)]);
    DEVICE.marks(&[DeferredMark::new(&copy, 3)]);
    assert_eq!(
        turn.lines(),
        [
            r#"memory [B] in Some("gpu") is I64(3) at None"#,
            r#"memory [B] in Some("gpu") is Missing(Unchanged) at None"#,
            r#"memory [B] in Some("gpu") is I64(4) at Some(10)"#,
            r#"lock of Some("gpu"): AcquireStart"#,
            r#"lock of Some("gpu"): AcquireSuccess"#,
            r#"lock of Some("gpu"): Releasing"#,
            r#"lock of Some("gpu"): AcquireStart"#,
            r#"lock of Some("gpu"): AcquireFailed"#,
            "copy in None 1..Some(2) by 14",
            "copy in None 3..None by 14",
        ]
    );
}

static POINT: Schema = Schema::in_domain(
    "point",
    &GPU,
    &[Entry::new("x", EntryType::U8), Entry::new("y", EntryType::I32)],
);

#[test]
fn records_arrive() {
    let turn = Turn::new();
    let point = POINT.record(&[1u8.into(), (-1i32).into()]).unwrap();
    GPU.event("named").record(&point).range().end_with(&point);
    point.mark();
    drop(point.range());
    let bytes = "[1, 0, 0, 0, 255, 255, 255, 255]";
    assert_eq!(
        turn.lines(),
        [
            format!("start 1 named in gpu point:{bytes}"),
            format!("end 1 with {bytes}"),
            format!("mark point in gpu point:{bytes}"),
            format!("start 2 point in gpu point:{bytes}"),
            "end 2".to_owned(),
        ]
    );
}

#[test]
fn values_that_do_not_fit_make_no_record() {
    for (values, why) in [
        (&[][..], "0 values for 2 entries"),
        (&[256u32.into(), 0u8.into()], "does not fit `x`"),
        (&[1u8.into(), 1.0.into()], "does not fit `y`"),
        (&["x".into(), 1u8.into()], "does not fit `x`"),
    ] {
        let error = POINT.record(values).unwrap_err();
        assert!(error.is_mismatch() && !error.is_taken() && !error.is_disabled());
        assert!(error.to_string().contains(why), "{error}");
    }
    static DTYPE: Enum = Enum::new("dtype", 1, &[("f32", 0)]);
    static LONG: Schema = Schema::new(
        "long",
        &[
            Entry::array("shape", EntryType::U32, 3),
            Entry::new("label", EntryType::Text(4)),
            Entry::new("dtype", EntryType::Enum(&DTYPE)),
        ],
    );
    let (many, two, text) = ([7u32; 1000], [7u32; 2], "x".repeat(100));
    let shape: &[u32] = &[1, 2, 3];
    for (values, why) in [
        (
            [(&many[..]).into(), "".into(), 0u8.into()],
            "1000 x U32 does not fit `shape`, which is 3 x U32",
        ),
        (
            [(&two[..]).into(), "".into(), 0u8.into()],
            "U32s([7, 7]) does not fit `shape`, which is 3 x U32",
        ),
        (
            [shape.into(), (&*text).into(), 0u8.into()],
            "a text of 100 bytes does not fit `label`, which is Text(4)",
        ),
        (
            [shape.into(), "".into(), 256u32.into()],
            "Int(256) does not fit `dtype`, which is the enum `dtype`",
        ),
    ] {
        let error = LONG.record(&values).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// A tool may follow its handles: a number of the program's own would have it read anywhere.
#[test]
fn records_cannot_forge_registered_strings() {
    const ENTRIES: &[Entry] = &[Entry::new("name", EntryType::Registered)];
    static FORGED: Schema = Schema::new("forged", ENTRIES);
    assert!(FORGED.record(&[0x1000u64.into()]).unwrap_err().is_mismatch());
}

#[test]
fn a_panic_at_a_mark_is_kept_from_the_program() {
    let turn = Turn::new();
    let before = turn.switch.panics();
    nvtx::mark("panics");
    assert_eq!(turn.switch.panics(), before + 1);
    assert!(!turn.switch.is_on());
}

#[test]
fn call_sites_describe_only_with_a_tool_or_observer() {
    static SITE: nvtx::__private::CallSite = nvtx::__private::CallSite::in_domain("site", &GPU);
    let turn = Turn::new();
    drop(SITE.range());
    drop(SITE.range_with(|event| event.payload(Payload::U32(1))));
    drop(SITE.process_range());
    turn.switch.off();
    drop(SITE.range_with(|_| panic!("no observer")));
    drop(SITE.process_range_with(|_| panic!("no observer")));
    assert!(!SITE.is_active());
    let starts: Vec<_> = turn.lines().into_iter().filter(|line| line.contains("start")).collect();
    assert_eq!(
        starts,
        ["start 1 site in gpu", "start 2 site in gpu U32(1)", "process start 3 site in gpu"]
    );
}

#[test]
fn values_of_all_types_are_fields() {
    assert_eq!(FieldValue::from(1u16), FieldValue::U64(1));
    assert_eq!(FieldValue::from(-1i8), FieldValue::I64(-1));
    assert_eq!(FieldValue::from(5usize), FieldValue::U64(5));
    assert_eq!(FieldValue::from(&String::from("x")), FieldValue::Str("x"));
}
