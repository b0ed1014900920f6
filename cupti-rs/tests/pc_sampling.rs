//! Instruction samples, with the fake: complete, by context, and with every loss counted.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::time::Duration;

use cupti::pc_sampling::{PcContext, PcSamples, PcSampling, SourceLine};
use cupti::sys::abi::*;
use cupti::{Collected, Collector, Config, Record, stopped_clock};
use fake_cupti::{Fake, When, Work, cubin};

const KERNEL: &CStr = c"gather";
const OTHER: &CStr = c"chain";

/// By function, offset, stall reason and correlation id.
type Sums = BTreeMap<(String, u64, String, u32), u64>;

/// Readings at requests, ends of modules and ends of contexts alone.
fn on_request() -> PcSampling {
    PcSampling::continuous().drain_period(Duration::MAX)
}

fn start(fake: &Fake, settings: PcSampling) -> Collector {
    Collector::start(&fake.library().unwrap(), &Config::new().pc_sampling(settings)).unwrap()
}

fn stop(collector: Collector) -> PcSamples {
    collector.stop().unwrap().pc_sampling.unwrap()
}

fn add(sums: &mut Sums, samples: &PcSamples) {
    for slice in &samples.slices {
        let context = samples.context(slice.context).unwrap();
        for record in &slice.records {
            let function = samples.function(record).unwrap().name.to_string();
            let instruction = samples.instructions[record.instruction as usize];
            let reason = context.stall_reason(record.stall_reason).unwrap().to_owned();
            let key = (function, instruction.pc_offset, reason, record.correlation_id);
            *sums.entry(key).or_default() += record.samples;
        }
    }
}

fn sums(samples: &PcSamples) -> Sums {
    let mut sums = Sums::new();
    add(&mut sums, samples);
    sums
}

fn key(function: &CStr, offset: u64, reason: &str, correlation: u32) -> (String, u64, String, u32) {
    (function.to_str().unwrap().to_owned(), offset, reason.to_owned(), correlation)
}

fn only_context(samples: &PcSamples) -> &PcContext {
    assert_eq!(samples.contexts.len(), 1, "{:?}", samples.contexts);
    &samples.contexts[0]
}

fn kernels(collected: &Collected) -> usize {
    collected.records.iter().filter(|record| matches!(record, Record::Kernel(_))).count()
}

#[test]
fn drains_and_the_stop_have_every_sample_once() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3), (0x10, 12, 3), (0x20, 3, 1)]);
    fake.pc_samples(OTHER, &[(0x10, 3, 5)]);
    // The thread reads whenever it likes.
    let collector = start(&fake, PcSampling::continuous().drain_period(Duration::from_micros(50)));
    let (mut all, mut total, mut recorded, mut records) = (Sums::new(), 0, 0, 0);
    let mut count = |collected: Collected| {
        records += kernels(&collected);
        let samples = collected.pc_sampling.unwrap();
        assert_eq!((samples.losses, samples.failure.is_none()), (Default::default(), true));
        add(&mut all, &samples);
        recorded += samples.recorded_samples();
        for slice in &samples.slices {
            assert!(slice.begin_ns < slice.end_ns, "{slice:?}");
            assert!(slice.records.is_sorted() && !slice.records.is_empty());
            total += slice.total_samples;
        }
    };
    for _ in 0..20 {
        for _ in 0..50 {
            fake.launch(Work::kernel(KERNEL));
            fake.launch(Work::kernel(OTHER));
        }
        count(collector.drain().unwrap());
    }
    fake.launch(Work::kernel(OTHER));
    count(collector.stop().unwrap());
    let expected = Sums::from([
        (key(KERNEL, 0x10, "fake_stalled_long_scoreboard", 0), 3000),
        (key(KERNEL, 0x10, "fake_stalled_long_scoreboard_not_issued", 0), 3000),
        (key(KERNEL, 0x20, "fake_stalled_wait", 0), 1000),
        (key(OTHER, 0x10, "fake_stalled_wait", 0), 5005),
    ]);
    assert_eq!((all, total, recorded, records), (expected, 9005, 9005, 2001));
    assert!(fake.sampled_contexts().is_empty(), "the stop ends the sampling");
}

#[test]
fn stop_returns_the_rest() {
    for version in [18, 22, 130_001] {
        let fake = Fake::builder().version(version).build();
        fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
        let collector = start(&fake, on_request());
        (0..4).for_each(|_| _ = fake.launch(Work::kernel(KERNEL)));
        let samples = stop(collector);
        assert_eq!(samples.slices.len(), 1, "{version}");
        assert_eq!(samples.recorded_samples(), 12);
    }
}

#[test]
fn settings_reach_cupti() {
    let fake = Fake::new();
    let settings = on_request()
        .period_cycles(4096)
        .hardware_buffer_bytes(1 << 28)
        .scratch_buffer_bytes(1 << 22);
    let collector = start(&fake, settings);
    let contexts = fake.sampled_contexts();
    let context = contexts.get(&1).unwrap();
    let set = |setting| context.get(&setting).copied();
    assert_eq!(set(PC_SAMPLING_PERIOD), Some(12));
    assert_eq!(set(PC_SAMPLING_MODE), Some(1));
    assert_eq!(set(PC_SAMPLING_STALL_REASONS), Some(4));
    assert_eq!(set(PC_SAMPLING_HARDWARE_BUFFER), Some(1 << 28));
    assert_eq!(set(PC_SAMPLING_SCRATCH_BUFFER), Some(1 << 22));
    drop(collector);
    assert!(fake.sampled_contexts().is_empty(), "a drop ends the sampling");
    let plain = Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
    assert!(fake.sampled_contexts().is_empty());
    assert_eq!(plain.stop().unwrap().pc_sampling, None);
}

#[test]
fn refused_setting_is_named_and_the_collection_continues() {
    let names = [
        (PC_SAMPLING_PERIOD, "sampling period"),
        (PC_SAMPLING_STALL_REASONS, "stall reasons"),
        (PC_SAMPLING_MODE, "collection mode"),
        (PC_SAMPLING_DATA_BUFFER, "data buffer"),
    ];
    for (setting, name) in names {
        let fake = Fake::new();
        fake.refuse_pc_setting(setting, CuptiResult::INVALID_OPERATION);
        let collector = start(&fake, on_request());
        assert!(fake.sampled_contexts().is_empty(), "it is not left enabled");
        fake.launch(Work::kernel(KERNEL));
        let collected = collector.stop().unwrap();
        assert_eq!(kernels(&collected), 1);
        let samples = collected.pc_sampling.unwrap();
        let error = only_context(&samples).error.as_ref().unwrap().to_string();
        assert!(error.contains(name) && error.contains("INVALID_OPERATION"), "{error}");
        assert!(samples.slices.is_empty() && samples.failure.is_none());
    }
}

#[test]
fn refusals_have_their_predicates() {
    let refused = |code| {
        let fake = Fake::builder().fault("cuptiPCSamplingEnable", code).build();
        let collector = start(&fake, on_request());
        fake.launch(Work::kernel(KERNEL));
        let collected = collector.stop().unwrap();
        assert_eq!(kernels(&collected), 1);
        only_context(&collected.pc_sampling.unwrap()).error.clone().unwrap()
    };
    let error = refused(CuptiResult::INSUFFICIENT_PRIVILEGES);
    assert!(error.is_permission() && error.to_string().contains("NVreg"), "{error}");
    assert!(refused(CuptiResult::HARDWARE_BUSY).is_busy());
    let error = refused(CuptiResult::UNKNOWN);
    assert!(error.is_busy() && error.to_string().contains("ncu"), "{error}");
    assert!(refused(CuptiResult::NOT_SUPPORTED).is_unsupported());
    assert!(refused(CuptiResult::MIG_DEVICE).is_unsupported());
}

#[test]
fn library_without_the_functions_collects_without_samples() {
    let fake = Fake::builder().lacking("cuptiPCSampling").build();
    let collector = start(&fake, on_request());
    assert!(!fake.enabled_callbacks().contains(&(DOMAIN_RESOURCE, RESOURCE_MODULE_LOADED)));
    fake.launch(Work::kernel(KERNEL));
    let collected = collector.stop().unwrap();
    assert_eq!(kernels(&collected), 1);
    let samples = collected.pc_sampling.unwrap();
    let error = samples.failure.as_ref().unwrap();
    assert!(error.is_unsupported() && error.to_string().contains("instruction samples"), "{error}");
    assert!(samples.contexts.is_empty() && samples.slices.is_empty());
}

#[test]
fn full_hardware_buffer_is_flagged() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.launch(Work::kernel(KERNEL));
    fake.pc_samples_without_records(1, 7, 2);
    fake.fill_pc_buffer(1);
    fake.launch(Work::kernel(KERNEL));
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    let slice = &samples.slices[0];
    assert!(slice.hardware_buffer_full);
    assert_eq!((slice.dropped_samples, slice.non_user_samples), (7, 2));
    assert_eq!((slice.total_samples, samples.recorded_samples()), (12, 3));
    assert_eq!(samples.losses.failed_reads, 0, "the flag has the reason");
    (0..5).for_each(|_| _ = collector.snapshot().unwrap());
    let slices = stop(collector).slices;
    assert_eq!(slices.len(), 1, "slices without records are one: {slices:?}");
    assert!(slices[0].hardware_buffer_full);
}

#[test]
fn failed_reading_is_counted_and_its_samples_follow() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.launch(Work::kernel(KERNEL));
    fake.fail("cuptiPCSamplingGetData", CuptiResult::UNKNOWN, When::Once);
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    assert_eq!((samples.losses.failed_reads, samples.slices.len()), (1, 0));
    assert!(only_context(&samples).error.is_some());
    let samples = stop(collector);
    assert_eq!((samples.losses.failed_reads, samples.recorded_samples()), (0, 3));
    assert_eq!(only_context(&samples).error, None);
}

#[test]
fn module_is_read_before_its_unload() {
    let fake = Fake::new();
    let (first, second) = (cubin(1, true), cubin(2, true));
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request().keep_cubins(true));
    fake.load_module(1, &first);
    fake.launch(Work::kernel(KERNEL));
    fake.unload_module(1, &first);
    fake.load_module(1, &second);
    fake.launch(Work::kernel(KERNEL));
    let samples = stop(collector);
    assert_eq!((fake.lost_pc_samples(), samples.recorded_samples()), (0, 6));
    let crcs: Vec<u64> = samples.functions.iter().map(|function| function.cubin_crc).collect();
    assert_eq!(crcs, samples.cubins.iter().map(|cubin| cubin.crc()).collect::<Vec<_>>());
    assert_eq!(samples.functions.iter().map(|f| &*f.name).collect::<Vec<_>>(), ["gather"; 2]);
}

#[test]
fn destroyed_context_returns_its_samples_and_is_not_read_again() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.create_context(7);
    fake.launch(Work::kernel(KERNEL).in_context(7));
    fake.destroy_context(7);
    assert_eq!(fake.lost_pc_samples(), 0);
    assert_eq!(fake.sampled_contexts().into_keys().collect::<Vec<_>>(), [1]);
    // Its handle may name another context.
    fake.create_context(7);
    fake.launch(Work::kernel(KERNEL).in_context(7));
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    assert_eq!((samples.losses, samples.recorded_samples()), (Default::default(), 6));
    let ends: Vec<_> = samples.contexts.iter().map(|c| (c.id, c.end_ns.is_some())).collect();
    assert_eq!(ends, [(1, false), (7, true), (7, false)]);
    let samples = stop(collector);
    assert_eq!(samples.contexts.len(), 2, "a context that had ended is in one drain");
}

/// A reading may wait for a lock of the driver, which the callback's thread holds.
#[test]
fn ends_during_a_reading_wait_a_second_and_are_counted() {
    let fake = Fake::new();
    let module = cubin(1, true);
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.create_context(2);
    fake.launch(Work::kernel(KERNEL));
    let barrier = fake.hold_pc_reading();
    let samples = std::thread::scope(|scope| {
        let drain = scope.spawn(|| collector.drain().unwrap().pc_sampling.unwrap());
        barrier.wait();
        // Its context is free.
        fake.unload_module(2, &module);
        fake.unload_module(1, &module);
        fake.destroy_context(1);
        barrier.wait();
        drain.join().unwrap()
    });
    assert_eq!(samples.losses.missed_ends, 2);
    assert_eq!(fake.lost_pc_samples(), 3);
    assert!(samples.context(1).unwrap().end_ns.is_some());
    // CUPTI is not called for the context that is gone.
    let samples = stop(collector);
    assert_eq!((samples.losses, samples.recorded_samples()), Default::default());
}

/// CUPTI 13.0.1 deadlocks where a context's sampling ends while another thread launches: each of both
/// waits for a lock that the other one holds.
#[test]
fn sampling_begins_and_ends_beside_no_launch() {
    let fake = Fake::new();
    stopped_clock::stop();
    let mut collector = start(&fake, on_request());
    fake.beside_launches(|| {
        for _ in 0..20 {
            collector.pause().unwrap();
            assert!(fake.sampled_contexts().is_empty());
            collector.resume().unwrap();
            assert_eq!(fake.sampled_contexts().len(), 1);
        }
        fake.create_context(2);
        fake.destroy_context(2);
    });
    stopped_clock::resume();
    assert_eq!(fake.sampling_beside_launches(), 0);
    assert_eq!(stop(collector).losses, Default::default());
}

/// A launch waits in the driver until a full queue has room.
#[test]
fn launch_that_does_not_return_leaves_the_context_sampled() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let mut collector = start(&fake, on_request());
    fake.launch(Work::kernel(KERNEL));
    fake.launch_around(&Work::kernel(KERNEL), || {
        std::thread::scope(|scope| scope.spawn(|| collector.pause().unwrap()).join()).unwrap();
    });
    assert_eq!((fake.sampling_beside_launches(), fake.sampled_contexts().len()), (0, 1));
    fake.launch(Work::kernel(OTHER));
    // CUPTI enables no kind of records while it samples.
    collector.resume().unwrap();
    fake.launch(Work::kernel(KERNEL));
    fake.launch_around(&Work::kernel(KERNEL), || {
        let stop = || std::thread::scope(|scope| scope.spawn(|| stop(collector)).join()).unwrap();
        let samples = stop();
        assert_eq!((samples.recorded_samples(), samples.losses.missed_ends), (12, 1));
    });
    assert_eq!(fake.sampling_beside_launches(), 0);
}

#[test]
fn context_from_before_the_start_is_sampled_from_its_first_call_on() {
    let fake = Fake::new();
    fake.have_context(false);
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    assert!(fake.sampled_contexts().is_empty(), "no thread has named it");
    fake.launch(Work::kernel(KERNEL).in_context(3));
    fake.launch(Work::kernel(KERNEL).in_context(3));
    fake.create_context(4);
    fake.launch(Work::kernel(KERNEL).in_context(4));
    let samples = stop(collector);
    let existed: Vec<_> = samples.contexts.iter().map(|c| (c.id, c.existed)).collect();
    assert_eq!(existed, [(3, true), (4, false)]);
    assert_eq!(samples.recorded_samples(), 9);
}

#[test]
fn contexts_have_their_own_slices_and_errors() {
    let fake = Fake::new();
    fake.have_context(false);
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.create_context(1);
    fake.fail("cuptiPCSamplingEnable", CuptiResult::HARDWARE_BUSY, When::Once);
    fake.create_context(2);
    fake.create_context(3);
    for context in [1, 2, 3, 3] {
        fake.launch(Work::kernel(KERNEL).in_context(context));
    }
    let samples = stop(collector);
    let slices = samples.slices.iter().map(|slice| (slice.context, slice.total_samples));
    assert_eq!(slices.collect::<Vec<_>>(), [(1, 3), (3, 6)]);
    let errors = samples.contexts.iter().map(|context| (context.id, context.error.is_some()));
    assert_eq!(errors.collect::<Vec<_>>(), [(1, false), (2, true), (3, false)]);
    assert!(samples.context(2).unwrap().error.as_ref().unwrap().is_busy());
}

#[test]
fn records_beyond_the_bound_are_counted() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 1), (0x20, 9, 1), (0x30, 9, 1)]);
    let collector = start(&fake, on_request().max_records(2));
    fake.launch(Work::kernel(KERNEL));
    fake.launch(Work::kernel(KERNEL));
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    assert_eq!(samples.slices[0].records.len(), 2, "equal records add up");
    assert_eq!((samples.recorded_samples(), samples.losses.over_max_records), (4, 2));
    fake.launch(Work::kernel(KERNEL));
    let samples = stop(collector);
    let counts = (samples.recorded_samples(), samples.losses.over_max_records);
    assert_eq!(counts, (2, 1), "a drain frees its records");
}

#[test]
fn serialized_samples_have_the_correlation_id() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, PcSampling::serialized().drain_period(Duration::MAX));
    let ids = [fake.launch(Work::kernel(KERNEL)), fake.launch(Work::kernel(KERNEL))];
    let found = sums(&stop(collector));
    let expected = ids.map(|id| (key(KERNEL, 0x10, "fake_stalled_long_scoreboard", id), 3));
    assert_eq!(found, Sums::from(expected));
    drop(fake);
    let fake = Fake::builder().version(21).build();
    let samples = stop(start(&fake, PcSampling::serialized()));
    let error = samples.failure.unwrap();
    assert!(error.is_unsupported() && error.to_string().contains("12.4"), "{error}");
}

#[test]
fn more_instructions_than_one_reading_has_room_for_are_read() {
    let fake = Fake::new();
    let script: Vec<_> = (0..10_000).map(|at| (at * 16, 9, 1)).collect();
    fake.pc_samples(KERNEL, &script);
    let collector = start(&fake, on_request());
    fake.launch(Work::kernel(KERNEL));
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    assert_eq!((samples.slices.len(), samples.recorded_samples()), (1, 10_000));
    drop(collector);
}

#[test]
fn cubins_with_lines_are_kept_once_and_bounded() {
    let fake = Fake::new();
    let lines = [1, 2].map(|number| cubin(number, true));
    let settings = on_request().max_cubin_bytes(lines[0].len()).keep_cubins(true);
    let collector = start(&fake, settings);
    fake.load_module(1, &cubin(3, false));
    fake.load_module(1, &lines[0]);
    fake.load_module(1, &lines[0]);
    fake.load_module(1, &lines[1]);
    // Of a context that may be found, and sampled, later.
    fake.load_module(9, &lines[1]);
    let samples = collector.drain().unwrap().pc_sampling.unwrap();
    assert_eq!(samples.cubins.len(), 1);
    assert_eq!((samples.cubins[0].bytes(), samples.losses.cubins_left_out), (&*lines[0], 2));
    fake.load_module(1, &lines[0]);
    assert!(stop(collector).cubins.is_empty(), "it was in an earlier drain");
}

#[test]
fn instructions_have_source_lines() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    fake.source_line(KERNEL, 0x10, ("/src", "gather.cu", 12));
    fake.source_line(KERNEL, 0x20, ("", "", 0));
    fake.pc_samples(KERNEL, &[(0x10, 3, 1), (0x10, 9, 2), (0x20, 9, 4), (0x30, 9, 5)]);
    let collector = start(&fake, on_request().keep_cubins(true));
    fake.load_module(1, &cubin(1, true));
    for _ in 0..2 {
        fake.launch(Work::kernel(KERNEL));
        let samples = collector.drain().unwrap().pc_sampling.unwrap();
        let line = |line: u32| samples.lines[line as usize].to_string();
        let lines = samples.instructions.iter().map(|one| (one.pc_offset, one.line.map(line)));
        let lines: BTreeMap<_, _> = lines.collect();
        let none = |offset| (offset, None);
        let known = (0x10, Some("/src/gather.cu:12".to_owned()));
        assert_eq!(lines, BTreeMap::from([known, none(0x20), none(0x30)]));
        // A line that was found is not asked for again.
        fake.source_line(KERNEL, 0x10, ("/src", "gather.cu", 13));
    }
    fake.launch(Work::kernel(KERNEL));
    let samples = stop(collector);
    assert_eq!((samples.instructions.len(), samples.lines.len()), (3, 1));

    let collector = start(&fake, on_request().keep_cubins(true));
    fake.load_module(1, &cubin(1, true));
    let samples = stop(collector);
    let lines = library.source_lines().unwrap();
    let line = |offset| lines.find(&samples.cubins[0], "gather", offset);
    assert_eq!(line(0x10).unwrap().unwrap().to_string(), "/src/gather.cu:13");
    assert_eq!(line(0x20).unwrap(), None::<SourceLine>);
    assert_eq!(line(0x30).unwrap_err().code(), Some(CuptiResult::INVALID_PARAMETER.0));
    assert!(lines.find(&samples.cubins[0], "a\0b", 0).is_err());
}

#[test]
fn snapshot_copies_what_the_stop_returns() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let collector = start(&fake, on_request());
    fake.launch(Work::kernel(KERNEL));
    let snapshot = collector.snapshot().unwrap().pc_sampling.unwrap();
    assert!(collector.held_bytes() > 0);
    let samples = stop(collector);
    assert_eq!((snapshot.recorded_samples(), sums(&snapshot)), (3, sums(&samples)));
}

/// A program loads its modules before the part that is recorded.
#[test]
fn modules_that_a_first_pause_loads_have_lines() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    fake.source_line(KERNEL, 0x10, ("/src", "gather.cu", 12));
    let config = Config::new().pc_sampling(on_request()).start_paused(true);
    let mut collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    fake.create_context(2);
    fake.load_module(2, &cubin(1, true));
    collector.resume().unwrap();
    fake.launch(Work::kernel(KERNEL).in_context(2));
    let samples = stop(collector);
    assert_eq!(samples.recorded_samples(), 3);
    let lines: Vec<String> = samples.lines.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["/src/gather.cu:12"]);
}

#[test]
fn contexts_are_sampled_outside_of_pauses() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let launch = |context| _ = fake.launch(Work::kernel(KERNEL).in_context(context));
    let config = Config::new().pc_sampling(on_request()).start_paused(true);
    let mut collector = Collector::start(&fake.library().unwrap(), &config).unwrap();
    launch(1);
    assert!(fake.sampled_contexts().is_empty());
    collector.resume().unwrap();
    launch(1);
    collector.pause().unwrap();
    assert!(fake.sampled_contexts().is_empty());
    // Those that a pause creates are sampled after it, unless they end before.
    [2, 3].iter().for_each(|context| fake.create_context(*context));
    [1, 2, 3].iter().for_each(|context| launch(*context));
    fake.destroy_context(3);
    collector.resume().unwrap();
    assert_eq!(fake.sampled_contexts().into_keys().collect::<Vec<_>>(), [1, 2]);
    [1, 1, 2].iter().for_each(|context| launch(*context));
    let collected = collector.stop().unwrap();
    let samples = collected.pc_sampling.as_ref().unwrap();
    let slices: Vec<_> = samples.slices.iter().map(|s| (s.context, s.total_samples)).collect();
    assert_eq!(slices, [(1, 3), (1, 6), (2, 3)]);
    for (slice, (_, end_ns)) in samples.slices.iter().zip(&collected.windows_ns) {
        assert!(slice.begin_ns < *end_ns);
    }
    let ended = samples.contexts.iter().map(|context| (context.id, context.end_ns.is_some()));
    assert_eq!(ended.collect::<Vec<_>>(), [(1, true), (2, true), (3, true)]);
    assert!(samples.contexts.iter().all(|context| context.error.is_none()));
}

#[test]
fn memory_of_a_context_stays_over_pauses() {
    let fake = Fake::new();
    fake.create_context(2);
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    let mut collector = start(&fake, on_request());
    for _ in 0..3 {
        fake.launch(Work::kernel(KERNEL).in_context(2));
        collector.pause().unwrap();
        fake.write_late_pcs();
        collector.resume().unwrap();
        fake.write_late_pcs();
    }
    let samples = stop(collector);
    assert_eq!((samples.recorded_samples(), samples.losses), (9, Default::default()));
}

#[test]
fn one_collection_follows_another() {
    let fake = Fake::new();
    fake.pc_samples(KERNEL, &[(0x10, 9, 3)]);
    for _ in 0..3 {
        let collector = start(&fake, on_request());
        fake.launch(Work::kernel(KERNEL));
        assert_eq!(stop(collector).recorded_samples(), 3);
    }
    fake.launch(Work::kernel(KERNEL));
    fake.create_context(5);
    fake.destroy_context(5);
    assert!(fake.sampled_contexts().is_empty(), "callbacks between collections do nothing");
}
