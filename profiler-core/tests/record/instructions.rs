//! Instruction samples of sessions: by range, exact or apportioned, in files, and with every loss.

use std::ffi::CStr;
use std::time::Duration;

use cupti::sys::abi::CuptiResult;
use cupti::{Config, PcSampling};
use fake_cupti::{Fake, When, Work, cubin};
use nvtx::range;
use profiler_core::query::{Instructions, Stall};
use profiler_core::{Profile, Profiler, ProfilerBuilder, Recording, at_least, at_most, expect};
use test_support::folder::Folder;
use test_support::frames::frames;
use test_support::processes::as_process;

const GATHER: &CStr = c"_Z6gatherPKfi";
const CHAIN: &CStr = c"chain";
/// The fake's stall reasons.
const WAIT: u32 = 3;
const WAIT_NOT_ISSUED: u32 = 5;
const LONG_SCOREBOARD: u32 = 9;

/// A fake whose launches of `gather` give 100 samples on two lines, and those of `chain` 50 on none.
fn fake() -> Fake {
    let fake = Fake::new();
    let gather = [(0x10, LONG_SCOREBOARD, 70), (0x20, WAIT, 30), (0x20, WAIT_NOT_ISSUED, 20)];
    fake.pc_samples(GATHER, &gather);
    fake.pc_samples(CHAIN, &[(0x40, WAIT, 50)]);
    fake.source_line(GATHER, 0x10, ("/home/someone/src", "kernels/gather.cu", 12));
    fake.source_line(GATHER, 0x20, ("/home/someone/src", "kernels/gather.cu", 13));
    fake
}

/// Samples are read in pauses and at the stop alone.
fn builder(fake: &Fake, settings: PcSampling) -> ProfilerBuilder {
    let config = Config::new().pc_sampling(settings.drain_period(Duration::MAX));
    let builder = Profiler::builder().library(fake.library().unwrap()).config(config);
    builder.period(Duration::from_secs(3600))
}

fn start(fake: &Fake) -> Profiler {
    let profiler = builder(fake, PcSampling::continuous()).build().unwrap();
    profiler.start().unwrap();
    fake.load_module(1, &cubin(1, true));
    profiler
}

fn gather(fake: &Fake, name: &str, ns: u64) {
    let _range = range(name);
    fake.launch(Work::kernel(GATHER).taking_ns(ns));
}

fn of<'a>(profile: &'a Profile, range: &str) -> Instructions<'a> {
    profile.query().in_range(range).instructions()
}

/// The whole numbers of samples by line.
fn lines(samples: &Instructions<'_>) -> Vec<(String, u64)> {
    let lines = samples.by_line();
    lines.iter().map(|line| (line.place(), line.stalls.total().round() as u64)).collect()
}

/// Two slices: `gather` in range `a`, then in `b` and with other work in `c`.
fn two_slices(fake: &Fake) -> Profiler {
    let profiler = start(fake);
    gather(fake, "a", 1_000);
    profiler.pause().unwrap();
    profiler.resume().unwrap();
    gather(fake, "b", 3_000);
    {
        let _range = range("c");
        fake.launch(Work::kernel(GATHER).taking_ns(1_000));
        fake.launch(Work::kernel(CHAIN));
    }
    profiler
}

fn assert_two_slices(profile: &Profile) {
    profile.health().assert_complete();
    let all = profile.instructions();
    assert_eq!((all.samples(), all.exact_share()), (350.0, 1.0));
    assert_eq!(
        lines(&all),
        [
            ("gather.cu:12".to_owned(), 210),
            ("gather.cu:13".to_owned(), 90),
            ("chain".to_owned(), 50)
        ]
    );
    assert_eq!(all.stalls().samples(Stall::LongScoreboard), 210.0);
    assert_eq!(all.stalls().not_issued(Stall::Wait), 60.0);
    assert_eq!(all.stalls().dominant(), Some(Stall::LongScoreboard));
    let kernels = all.by_kernel();
    let names: Vec<String> = kernels.iter().map(|kernel| kernel.kernel.to_string()).collect();
    assert_eq!(names, ["gather", "chain"]);
    assert_eq!(kernels[0].share, 300.0 / 350.0);
    // Alone in its slice.
    assert_eq!((of(profile, "a").samples(), of(profile, "a").exact_share()), (100.0, 1.0));
    // Three quarters of the GPU time of `gather` in the other one.
    let b = of(profile, "b");
    assert_eq!((b.samples().round(), b.exact_share()), (150.0, 0.0));
    let c = of(profile, "c");
    assert_eq!((c.samples().round(), (c.exact_share() * 100.0).round()), (100.0, 50.0));
    assert_eq!(of(profile, "b").stalls().share(Stall::Wait), 0.3);
    // Both have all of the slice, and it is exact again.
    let both = profile.query().in_range("b").in_range("c").instructions();
    assert_eq!((both.samples(), both.exact_share()), (250.0, 1.0));
    assert!(profile.query().named("other").instructions().is_empty());
    let counts = profile.instruction_counts().unwrap();
    assert_eq!((counts.total, counts.recorded, counts.without_line), (350, 350, 50));
    assert!(counts.is_complete() && counts.without_launch == 0, "{counts}");
    assert!(profile.to_string().contains("\n350 of 350 instruction samples\n"), "{profile}");
}

#[test]
fn samples_reach_ranges_by_the_gpu_time_within_a_slice() {
    let fake = fake();
    let profile = two_slices(&fake).stop().unwrap();
    assert_two_slices(&profile);
    let bytes = profile.recording().unwrap().to_bytes();
    let again = Recording::from_bytes(&bytes).unwrap();
    assert_eq!(&again, profile.recording().unwrap());
    assert_two_slices(&Profile::from_recording(again));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("gather.cu") && !text.contains("someone"), "folders stay out");
}

#[test]
fn file_of_a_running_session_has_them() {
    let (fake, folder) = (fake(), Folder::new());
    let path = folder.0.join("run.gpuprof");
    let profiler = builder(&fake, PcSampling::continuous()).build().unwrap();
    let file = profiler.record_to(&path).unwrap();
    fake.load_module(1, &cubin(1, true));
    gather(&fake, "a", 1_000);
    file.pause().unwrap();
    file.flush().unwrap();
    let running = Profile::load(&path).unwrap();
    assert_eq!((of(&running, "a").samples(), running.instructions().samples()), (100.0, 100.0));
    file.resume().unwrap();
    gather(&fake, "b", 1_000);
    file.finish().unwrap();
    let profile = Profile::load(&path).unwrap();
    assert_eq!((of(&profile, "a").samples(), of(&profile, "b").samples()), (100.0, 100.0));
    assert_eq!(lines(&profile.instructions())[0], ("gather.cu:12".to_owned(), 140));
}

#[test]
fn serialized_samples_are_of_their_launch() {
    let fake = fake();
    let profiler = builder(&fake, PcSampling::serialized()).build().unwrap();
    profiler.start().unwrap();
    gather(&fake, "a", 1_000);
    gather(&fake, "b", 9_000);
    let profile = profiler.stop().unwrap();
    for name in ["a", "b"] {
        assert_eq!((of(&profile, name).samples(), of(&profile, name).exact_share()), (100.0, 1.0));
    }
}

#[test]
fn processes_have_their_own_samples() {
    let fake = fake();
    let profile = two_slices(&fake).stop().unwrap();
    let recording = profile.recording().unwrap();
    let recordings = [as_process(recording, 100), as_process(recording, 200)];
    let merged = Profile::from_recordings(recordings).unwrap();
    assert_eq!(merged.instructions().samples(), 700.0);
    let one = merged.query().process(200).instructions();
    assert_eq!((one.samples(), one.exact_share()), (350.0, 1.0));
    assert_eq!(of(&merged, "a").samples(), 200.0);
}

#[test]
fn session_goes_on_without_permission() {
    let fake = fake();
    fake.fail("cuptiPCSamplingEnable", CuptiResult::INSUFFICIENT_PRIVILEGES, When::Always);
    let profiler = start(&fake);
    gather(&fake, "a", 1_000);
    let profile = profiler.stop().unwrap();
    profile.health().assert_complete();
    assert_eq!(profile.totals().kernels, 1);
    assert!(profile.instructions().is_empty());
    let counts = profile.instruction_counts().unwrap();
    assert!(!counts.is_complete());
    let text = counts.to_string();
    assert!(text.starts_with("0 of 0 instruction samples; not sampled: "), "{text}");
    assert_eq!(counts.failures[0].cause, profiler_core::series::FailureCause::Permission);
}

#[test]
fn losses_are_in_the_account() {
    let fake = fake();
    let profiler = start(&fake);
    gather(&fake, "a", 1_000);
    fake.pc_samples_without_records(1, 7, 5);
    fake.fill_pc_buffer(1);
    let profile = profiler.stop().unwrap();
    let counts = profile.instruction_counts().unwrap();
    assert_eq!((counts.total, counts.recorded, counts.dropped, counts.non_user), (112, 100, 7, 5));
    assert!(counts.full_slices != 0 && !counts.is_complete());
    assert!(profile.health().is_complete(), "only the samples are incomplete");
    let none = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = none.record(|| gather(&fake, "a", 1_000)).unwrap();
    assert!(profile.instruction_counts().is_none());
}

/// CUPTI stays on for some time after a window.
#[test]
fn samples_outside_of_windows_are_left_out() {
    let fake = fake();
    let settings = PcSampling::continuous().drain_period(Duration::MAX);
    let config = Config::new().pc_sampling(settings).profiler_switch(true);
    let profiler = Profiler::builder().library(fake.library().unwrap()).config(config);
    let profiler = profiler.period(Duration::from_secs(3600)).build().unwrap();
    profiler.start().unwrap();
    fake.profiler_start();
    gather(&fake, "within", 1_000);
    fake.profiler_stop();
    gather(&fake, "after", 3_000);
    profiler.pause().unwrap();
    profiler.resume().unwrap();
    gather(&fake, "later", 1_000);
    let profile = profiler.stop().unwrap();
    let counts = profile.instruction_counts().unwrap();
    assert_eq!((counts.total, counts.recorded, counts.without_launch), (200, 200, 0));
    assert_eq!(counts.outside_windows, 150);
    let within = of(&profile, "within");
    assert_eq!((within.samples(), within.exact_share()), (50.0, 0.0));
    assert_eq!(profile.instructions().samples(), 50.0);
}

#[test]
fn samples_of_an_unknown_function_are_in_no_range() {
    let fake = Fake::new();
    fake.pc_samples(c"$_Z6gatherPKfi$helper", &[(0, WAIT, 5)]);
    fake.pc_samples(c"library_kernel", &[(0, WAIT, 3)]);
    let profiler = start(&fake);
    fake.pc_samples(GATHER, &[(0, WAIT, 10)]);
    gather(&fake, "a", 1_000);
    fake.launch(Work::kernel(c"$_Z6gatherPKfi$helper"));
    fake.launch(Work::kernel(c"library_kernel"));
    let recording = profiler.stop().unwrap().recording().unwrap().clone();
    // The function within the kernel's code has the kernel's range.
    let profile = Profile::from_recording(recording);
    let a = of(&profile, "a");
    assert_eq!(a.by_kernel().len(), 1);
    assert!((a.samples() - 15.0).abs() < 1e-9, "{}", a.samples());
}

#[test]
fn damaged_frames_are_refused() {
    let fake = fake();
    let profile = two_slices(&fake).stop().unwrap();
    let bytes = profile.recording().unwrap().to_bytes();
    let all = frames(&bytes);
    let samples = all.iter().find(|(kind, _)| kind == b"PCSM").unwrap();
    let content = &samples.1;
    for at in (0..content.len()).chain([usize::MAX]) {
        let mut damaged = content.clone();
        match damaged.get_mut(at) {
            Some(byte) => *byte ^= 0x41,
            None => damaged.truncate(content.len() - 1),
        }
        let file = test_support::frames::file(
            &all.iter()
                .map(|(kind, content)| {
                    let is_it = kind == b"PCSM";
                    (*kind, if is_it { damaged.clone() } else { content.clone() })
                })
                .collect::<Vec<_>>(),
        );
        // Refused, or read as other numbers: never a panic.
        if let Ok(profile) = Profile::from_bytes(&file) {
            let _ = profile.instructions().by_line();
            let _ = of(&profile, "b").samples();
            let _ = profile.instruction_counts().map(|counts| counts.to_string());
        }
    }
}

#[test]
fn budgets_on_stalls_hold_or_name_the_line() {
    let fake = fake();
    let profiler = start(&fake);
    for _ in 0..4 {
        gather(&fake, "a", 1_000);
    }
    gather(&fake, "b", 1_000);
    fake.launch(Work::kernel(CHAIN));
    let profile = profiler.stop().unwrap();
    expect(&profile).stall_share("gather", Stall::LongScoreboard, at_most(0.7)).assert();
    expect(&profile).stall_share("gather", Stall::Wait, at_least(0.3)).assert();
    let failed = expect(&profile).stall_share("gather", Stall::LongScoreboard, at_most(0.4));
    let text = failed.check().unwrap_err().to_string();
    assert!(text.contains("0.7, the budget is at most 0.4"), "{text}");
    assert!(text.contains("70.0 % of the samples in gather.cu:12: waits for global"), "{text}");
    let of = |kernel, range: &str| {
        let of = expect(&profile).range(range);
        of.stall_share(kernel, Stall::Wait, at_most(1.0)).check().unwrap_err().to_string()
    };
    assert!(of("gather", "a").contains("may be of the same kernel in other ranges"));
    assert!(of("chain", "a").contains("0 instruction samples are too few"));
    let none = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = none.record(|| gather(&fake, "a", 1_000)).unwrap();
    let of = expect(&profile).stall_share("gather", Stall::Wait, at_most(1.0));
    assert!(of.check().unwrap_err().to_string().contains("no instructions were sampled"));
}
