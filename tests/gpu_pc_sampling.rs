//! Instruction samples beside kernel records, on a GPU: kernels with a known stall, their lines, and CUPTI's own account.
//!
//! Each part runs in a process of its own, so that its collection can begin before the first context. The tables on standard
//! error have what was seen.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)] // a test that says what it saw

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cupti::pc_sampling::PcSamples;
use cupti::{Collector, Config, Library, PcSampling, Record};
use gpu_profiler_tests::cuda::{DEFAULT, Gpu, Handle};
use gpu_profiler_tests::harness;

/// The part that this program, started by itself, plays.
const PART: &str = "GPU_PC_SAMPLING_PART";

const PARTS: [(&str, fn()); 11] = [
    ("continuous", continuous),
    ("context_from_before_the_start", context_from_before),
    ("context_that_is_destroyed", destroyed_context),
    ("pauses", pauses),
    ("pauses_beside_launches", pauses_beside_launches),
    ("start_during_a_capture", start_during_a_capture),
    ("hardware_buffer", hardware_buffer),
    ("serialized", serialized),
    ("overload", overload),
    ("cost", cost),
    ("exit_during_a_collection", exit_during_a_collection),
];

/// Lines 5 and 6 gather; line 12 is a chain of dependent operations.
const SOURCE: &str = r#"extern "C" __global__ void gather(const unsigned *next, const float *from, float *to, int rounds) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, own = at;
    float sum = 0;
    for (int round = 0; round < rounds; ++round) {
        at = next[at];
        sum += from[at];
    }
    to[own] = sum;
}
extern "C" __global__ void chain(float *to, float a, float b, int rounds) {
    float x = threadIdx.x;
    for (int round = 0; round < rounds; ++round) x = x * a + b;
    to[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
"#;

/// Numbers of each gathered table: 128 MiB of both, beyond every L2 cache.
const COUNT: u32 = 1 << 24;

fn main() -> ExitCode {
    if let Ok(part) = std::env::var(PART) {
        PARTS.iter().find(|(name, _)| *name == part).unwrap().1();
        return ExitCode::SUCCESS;
    }
    harness::run(&[
        ("continuous_samples_have_stalls_and_lines", || play("continuous")),
        ("context_from_before_the_start_is_sampled", || play("context_from_before_the_start")),
        ("pauses_are_not_sampled", || play("pauses")),
        ("pauses_beside_launching_threads_end", || play("pauses_beside_launches")),
        ("start_during_a_capture_leaves_it_valid", || play("start_during_a_capture")),
        ("hardware_buffer_of_64_mib_loses_nothing", || play("hardware_buffer")),
        ("destroyed_context_returns_its_samples", || play("context_that_is_destroyed")),
        ("serialized_samples_have_the_launch", || play("serialized")),
        ("overload_is_counted", || play("overload")),
        ("steps_take_as_long_while_sampled", || play("cost")),
        ("program_may_exit_while_it_samples", || play("exit_during_a_collection")),
    ])
    .exit_code()
}

fn play(part: &str) {
    if let Some(why) = gpu_profiler_examples::mlp::unavailable() {
        return eprintln!("not run: {why}");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.env(PART, part).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    eprint!("{text}");
    assert!(output.status.success(), "{part}: {}", output.status);
}

/// The two kernels and their memory.
struct Bench {
    gpu: Gpu,
    gather: Handle<cudarc::driver::sys::CUfunction>,
    chain: Handle<cudarc::driver::sys::CUfunction>,
    next: u64,
    from: u64,
    to: u64,
    blocks: u32,
}

impl Bench {
    fn new(gpu: Gpu) -> Self {
        use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let blocks = gpu.device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unsigned_abs();
        let [gather, chain] = gpu.compile_with_lines("planted.cu", SOURCE, ["gather", "chain"]);
        let bytes = COUNT as usize * 4;
        let (next, from, to) = (gpu.alloc(bytes), gpu.alloc(bytes), gpu.alloc(bytes));
        // An odd factor and an odd step visit every number in an irregular order.
        let numbers = (0..COUNT).map(|at| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let numbers: Vec<u8> = numbers.flat_map(|at| (at % COUNT).to_ne_bytes()).collect();
        gpu.copy_in(next, &numbers);
        gpu.fill(from, 0, bytes);
        Self { gpu, gather, chain, next, from, to, blocks }
    }

    fn gather(&self, rounds: u64) {
        let shape = ([self.blocks * 8, 1, 1], [256, 1, 1], 0);
        self.gpu.launch(self.gather, DEFAULT, shape, [self.next, self.from, self.to, rounds]);
    }

    /// One warp for each scheduler, so that each waits for its own results.
    fn chain(&self, rounds: u64) {
        let shape = ([self.blocks, 1, 1], [128, 1, 1], 0);
        let [a, b] = [0.999_f32, 0.5].map(|number| u64::from(number.to_bits()));
        self.gpu.launch(self.chain, DEFAULT, shape, [self.to, a, b, rounds]);
    }

    /// Launches both kernels for some time; returns the number of launches.
    fn work(&self, time: Duration) -> usize {
        let begun = Instant::now();
        let mut launches = 0;
        while begun.elapsed() < time {
            self.gather(200);
            self.chain(200_000);
            self.gpu.synchronize_context();
            launches += 2;
        }
        launches
    }
}

/// What the drains of one collection have in sum.
#[derive(Default)]
struct Seen {
    /// By function: samples by stall reason and by offset.
    functions: BTreeMap<String, Function>,
    kernels: usize,
    correlations: BTreeSet<u32>,
    /// Samples of records, each counted once.
    recorded: u64,
    /// With reasons that count samples a second time.
    records: u64,
    total: u64,
    dropped: u64,
    non_user: u64,
    full: usize,
    slices: usize,
}

#[derive(Default)]
struct Function {
    cubin: u64,
    reasons: BTreeMap<String, u64>,
    lines: BTreeMap<String, u64>,
    correlations: BTreeSet<u32>,
}

impl Seen {
    fn add(&mut self, collected: cupti::Collected) {
        for record in &collected.records {
            if let Record::Kernel(kernel) = record {
                self.kernels += 1;
                self.correlations.insert(kernel.correlation_id);
            }
        }
        let samples = collected.pc_sampling.unwrap();
        eprintln!(
            "drain: {} slices, {} functions, {} lines, losses {:?}, failure {:?}",
            samples.slices.len(),
            samples.functions.len(),
            samples.lines.len(),
            samples.losses,
            samples.failure
        );
        for context in &samples.contexts {
            let (id, device, existed) = (context.id, context.device, context.existed);
            let reasons = context.stall_reasons.len();
            let error = &context.error;
            eprintln!(
                "  context {id} on {device}, existed {existed}, {reasons} reasons, {error:?}"
            );
        }
        self.recorded += samples.recorded_samples();
        self.add_samples(&samples);
    }

    fn add_samples(&mut self, samples: &PcSamples) {
        for slice in &samples.slices {
            let context = samples.context(slice.context).unwrap();
            assert!(slice.begin_ns < slice.end_ns, "{slice:?}");
            let of_slice: u64 = slice.records.iter().map(|record| record.samples).sum();
            if self.slices < 12 {
                eprintln!(
                    "  slice of {:.1} ms: records {} with {of_slice}, total {}, dropped {}, non-user {}, full {}",
                    (slice.end_ns - slice.begin_ns) as f64 / 1e6,
                    slice.records.len(),
                    slice.total_samples,
                    slice.dropped_samples,
                    slice.non_user_samples,
                    slice.hardware_buffer_full
                );
            }
            self.slices += 1;
            self.records += of_slice;
            self.total += slice.total_samples;
            self.dropped += slice.dropped_samples;
            self.non_user += slice.non_user_samples;
            self.full += usize::from(slice.hardware_buffer_full);
            for record in &slice.records {
                let function = samples.function(record).unwrap();
                let instruction = samples.instructions[record.instruction as usize];
                let sums = self.functions.entry(function.name.to_string()).or_default();
                sums.cubin = function.cubin_crc;
                let reason = context.stall_reason(record.stall_reason).unwrap();
                *sums.reasons.entry(reason.to_owned()).or_default() += record.samples;
                let line = instruction.line.map(|line| samples.lines[line as usize].to_string());
                let line = line.unwrap_or_else(|| "no line".to_owned());
                *sums.lines.entry(line).or_default() += record.samples;
                sums.correlations.insert(record.correlation_id);
            }
        }
    }

    /// Prints the reasons and the lines of each function.
    fn print(&self) {
        eprintln!(
            "{} kernels, {} slices, {} samples in records, {} in total, {} dropped, {} non-user, {} full; memory {}",
            self.kernels,
            self.slices,
            self.records,
            self.total,
            self.dropped,
            self.non_user,
            self.full,
            memory()
        );
        for (name, function) in &self.functions {
            eprintln!("{name} (cubin {:#x}): {} samples", function.cubin, function.samples());
            for (reason, samples) in sorted(&function.reasons).into_iter().take(8) {
                eprintln!("  {samples:>9}  {reason}");
            }
            for (line, samples) in sorted(&function.lines).into_iter().take(4) {
                eprintln!("  {samples:>9}  {line}");
            }
        }
    }

    fn assert_account(&self) {
        let known = self.recorded + self.dropped + self.non_user;
        eprintln!("account: {known} of {} samples, {} with both forms", self.total, self.records);
        assert!(self.recorded > 0 && known <= self.total);
    }

    /// The dominant stall of a function, without the forms that count twice and without issued ones.
    fn dominant(&self, name: &str) -> String {
        let reasons = sorted(&self.functions[name].reasons);
        let is_stall =
            |reason: &str| !reason.ends_with("_not_issued") && !reason.ends_with("_selected");
        reasons.into_iter().find(|(reason, _)| is_stall(reason)).unwrap().0
    }
}

impl Function {
    fn samples(&self) -> u64 {
        self.lines.values().sum()
    }
}

fn sorted(samples: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut samples: Vec<_> = samples.clone().into_iter().collect();
    samples.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    samples
}

/// The memory of this process.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned()
}

/// False where counters are for administrators, or the device has none: that is reported and no failure.
fn can_sample(samples: &PcSamples) -> bool {
    let failures = samples.contexts.iter().filter_map(|context| context.error.as_ref());
    let Some(error) = failures.chain(&samples.failure).next() else { return true };
    assert!(error.is_permission() || error.is_unsupported() || error.is_busy(), "{error}");
    eprintln!("not sampled: {error}");
    false
}

fn start(library: &Library, settings: PcSampling) -> Collector {
    let begun = Instant::now();
    let collector = Collector::start(library, &Config::new().pc_sampling(settings)).unwrap();
    eprintln!("start {:?}; {}", begun.elapsed(), memory());
    collector
}

fn stop(collector: Collector) -> cupti::Collected {
    let begun = Instant::now();
    let collected = collector.stop().unwrap();
    eprintln!("stop {:?}; {}", begun.elapsed(), memory());
    collected
}

fn continuous() {
    let library = Library::open().unwrap();
    let collector = start(&library, PcSampling::continuous());
    let begun = Instant::now();
    let bench = Bench::new(Gpu::get());
    eprintln!("context and modules {:?}", begun.elapsed());
    let mut seen = Seen::default();
    let mut launches = 0;
    for _ in 0..4 {
        launches += bench.work(Duration::from_millis(600));
        let begun = Instant::now();
        let drained = collector.drain().unwrap();
        eprintln!("drain {:?}; {}", begun.elapsed(), memory());
        if !can_sample(drained.pc_sampling.as_ref().unwrap()) {
            return;
        }
        seen.add(drained);
    }
    seen.add(stop(collector));
    seen.print();
    assert_eq!(seen.kernels, launches);
    seen.assert_account();
    assert!(seen.dominant("gather").ends_with("long_scoreboard"), "{}", seen.dominant("gather"));
    assert!(seen.dominant("chain").ends_with("_wait"), "{}", seen.dominant("chain"));
    assert_eq!(seen.functions["gather"].correlations, BTreeSet::from([0]));
    let top = |name| sorted(&seen.functions[name].lines).first().cloned().unwrap().0;
    assert!(["planted.cu:5", "planted.cu:6"].iter().any(|line| top("gather").ends_with(line)));
    assert!(top("chain").ends_with("planted.cu:12"), "{}", top("chain"));
}

fn context_from_before() {
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    let collector = start(&library, PcSampling::continuous());
    let launches = bench.work(Duration::from_secs(1));
    let collected = stop(collector);
    if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let mut seen = Seen::default();
    seen.add(collected);
    seen.print();
    assert_eq!(seen.kernels, launches);
    seen.assert_account();
    assert!(seen.functions.contains_key("gather") && seen.functions.contains_key("chain"));
    // Another collection in the same process.
    let collector = start(&library, PcSampling::continuous());
    bench.work(Duration::from_millis(500));
    let mut seen = Seen::default();
    seen.add(stop(collector));
    seen.print();
    seen.assert_account();
}

fn destroyed_context() {
    let library = Library::open().unwrap();
    let collector = start(&library, PcSampling::continuous());
    let gpu = Gpu::get();
    let bench = Bench::new(gpu.clone());
    bench.work(Duration::from_millis(500));
    gpu.reset();
    let begun = Instant::now();
    let drained = collector.drain().unwrap();
    eprintln!("drain after the reset {:?}", begun.elapsed());
    if !can_sample(drained.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let mut seen = Seen::default();
    seen.add(drained);
    seen.add(stop(collector));
    seen.print();
    seen.assert_account();
}

fn pauses() {
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    let mut collector = start(&library, PcSampling::continuous());
    let mut launches = 0;
    for _ in 0..3 {
        let begun = Instant::now();
        bench.gather(1);
        bench.gpu.synchronize_context();
        eprint!("first launch {:?}, ", begun.elapsed());
        launches += 1 + bench.work(Duration::from_millis(300));
        let begun = Instant::now();
        collector.pause().unwrap();
        eprint!("pause {:?}, ", begun.elapsed());
        bench.work(Duration::from_millis(200));
        let begun = Instant::now();
        collector.resume().unwrap();
        eprintln!("resume {:?}", begun.elapsed());
    }
    let collected = stop(collector);
    if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let windows = collected.windows_ns.clone();
    // A reading may be later than the begin of the pause in which it is the last one.
    let slices = &collected.pc_sampling.as_ref().unwrap().slices;
    for (since_ns, end_ns) in slices.iter().map(|slice| (slice.since_ns, slice.end_ns)) {
        let is_on = cupti::clock::overlaps(&windows, since_ns, Some(end_ns));
        assert!(is_on, "{since_ns} to {end_ns} {windows:?}");
    }
    let mut seen = Seen::default();
    seen.add(collected);
    seen.print();
    assert_eq!(seen.kernels, launches);
    seen.assert_account();
}

/// Without a hold of launches CUPTI 13.0.1 deadlocked in the first pause or the second.
fn pauses_beside_launches() {
    const THREADS: usize = 4;
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    let is_over = AtomicBool::new(false);
    let launch = || {
        bench.gpu.make_current();
        let stream = bench.gpu.stream();
        let shape = ([bench.blocks, 1, 1], [128, 1, 1], 0);
        let numbers = [0.999_f32, 0.5].map(|number| u64::from(number.to_bits()));
        let mut launches = 0;
        while !is_over.load(Ordering::Acquire) {
            for _ in 0..64 {
                let arguments = [bench.to, numbers[0], numbers[1], 500];
                bench.gpu.launch(bench.chain, stream, shape, arguments);
                launches += 1;
            }
            bench.gpu.synchronize(stream);
        }
        launches
    };
    let (waits, launches) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(launch)).collect();
        let mut waits = Vec::new();
        for _ in 0..5 {
            let mut collector = start(&library, PcSampling::continuous());
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(200));
                let begun = Instant::now();
                collector.pause().unwrap();
                let paused = begun.elapsed();
                std::thread::sleep(Duration::from_millis(50));
                let begun = Instant::now();
                collector.resume().unwrap();
                waits.push((paused, begun.elapsed()));
            }
            let samples = stop(collector).pc_sampling.unwrap();
            if can_sample(&samples) {
                assert_eq!(samples.losses, Default::default());
                assert!(samples.recorded_samples() > 0);
            }
        }
        is_over.store(true, Ordering::Release);
        let launches: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        (waits, launches)
    });
    eprintln!("{launches} launches; pauses and resumes: {waits:?}");
}

/// Nodes of the graph have samples as other kernels do.
fn start_during_a_capture() {
    const LAUNCHES: usize = 200;
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    let stream = bench.gpu.stream();
    let mut collector = None;
    let graph = bench.gpu.capture(stream, || {
        collector = Some(start(&library, PcSampling::continuous()));
        let shape = ([bench.blocks * 8, 1, 1], [256, 1, 1], 0);
        bench.gpu.launch(bench.gather, stream, shape, [bench.next, bench.from, bench.to, 200]);
    });
    for _ in 0..LAUNCHES {
        bench.gpu.launch_graph(graph, stream);
    }
    bench.gpu.synchronize_context();
    let collected = stop(collector.unwrap());
    if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let mut seen = Seen::default();
    seen.add(collected);
    seen.print();
    assert_eq!(seen.kernels, LAUNCHES);
    seen.assert_account();
    assert!(seen.functions.contains_key("gather"));
}

/// Full load at the default period, with smaller buffers than CUPTI's.
fn hardware_buffer() {
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    for mib in [256, 128, 64, 32, 16] {
        let settings = PcSampling::continuous().hardware_buffer_bytes(mib << 20);
        let collector = start(&library, settings);
        bench.work(Duration::from_millis(1500));
        eprintln!("{mib} MiB: {}", memory());
        let collected = stop(collector);
        if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
            return;
        }
        let mut seen = Seen::default();
        seen.add(collected);
        eprintln!(
            "{mib} MiB: {} samples, {} dropped, {} full",
            seen.total, seen.dropped, seen.full
        );
        assert!(mib < 64 || (seen.dropped, seen.full) == (0, 0));
    }
}

fn serialized() {
    let library = Library::open().unwrap();
    let collector = start(&library, PcSampling::serialized().period_cycles(1 << 12));
    let bench = Bench::new(Gpu::get());
    let begun = Instant::now();
    for _ in 0..20 {
        bench.gather(200);
        bench.chain(200_000);
    }
    bench.gpu.synchronize_context();
    eprintln!("40 serialised launches {:?}", begun.elapsed());
    let collected = stop(collector);
    if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let mut seen = Seen::default();
    seen.add(collected);
    seen.print();
    seen.assert_account();
    for (name, function) in &seen.functions {
        let (own, all) = (function.correlations.len(), seen.correlations.len());
        eprintln!("{name}: {own} correlation ids; {all} of kernel records");
        assert!(function.correlations.is_subset(&seen.correlations), "{name}");
    }
    assert_eq!(seen.functions["gather"].correlations.len(), 20);
}

/// The shortest period: the hardware's buffer is full at once.
fn overload() {
    let library = Library::open().unwrap();
    let collector = start(&library, PcSampling::continuous().period_cycles(1 << 5));
    let bench = Bench::new(Gpu::get());
    let launches = bench.work(Duration::from_millis(1500));
    let collected = stop(collector);
    if !can_sample(collected.pc_sampling.as_ref().unwrap()) {
        return;
    }
    let mut seen = Seen::default();
    seen.add(collected);
    seen.print();
    assert_eq!(seen.kernels, launches, "kernel records are complete");
    assert!(seen.full > 0 || seen.dropped > 0);
}

/// Steps of three kernels, in blocks with kernel records alone and with samples too, by turns.
fn cost() {
    const ROUNDS: usize = 15;
    let library = Library::open().unwrap();
    let bench = Bench::new(Gpu::get());
    let block = || {
        let begun = Instant::now();
        for _ in 0..200 {
            bench.gather(10);
            bench.chain(10_000);
            bench.gather(10);
            bench.gpu.synchronize_context();
        }
        begun.elapsed().as_secs_f64() / 200.0
    };
    let round = |settings: Option<PcSampling>| {
        let config = Config::new();
        let config = settings.into_iter().fold(config, Config::pc_sampling);
        let collector = Collector::start(&library, &config).unwrap();
        // The first launch waits for the hardware's buffer.
        block();
        let step = block();
        let collected = collector.stop().unwrap();
        (step, collected.pc_sampling.is_none_or(|samples| can_sample(&samples)))
    };
    let mut ratios: Vec<f64> = Vec::new();
    let mut steps = [0.0, 0.0];
    for _ in 0..ROUNDS {
        let (without, _) = round(None);
        let (with, is_sampled) = round(Some(PcSampling::continuous()));
        if !is_sampled {
            return;
        }
        ratios.push(with / without);
        steps = [without, with];
    }
    ratios.sort_by(f64::total_cmp);
    let (median, [without, with]) = (ratios[ROUNDS / 2], steps.map(|step| step * 1e6));
    eprintln!(
        "steps of {without:.1} and {with:.1} us with samples; {median:.4} times: {ratios:.4?}"
    );
    assert!(median < 1.05, "{median}");
}

/// With a reading each millisecond: whether CUPTI allocates a name for each record is seen in the process's memory.
fn exit_during_a_collection() {
    let library = Library::open().unwrap();
    let collector =
        start(&library, PcSampling::continuous().drain_period(Duration::from_millis(1)));
    let bench = Bench::new(Gpu::get());
    for _ in 0..4 {
        bench.work(Duration::from_millis(500));
        eprintln!("{}; {} bytes of samples", memory(), collector.held_bytes());
    }
    bench.gather(200);
    std::mem::forget(collector);
    std::process::exit(0);
}
