//! Samples of a device in a profile: read back as they were, shared out over times and ranges by arithmetic.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cupti::sys::abi::CuptiResult;
use fake_cupti::{Fake, When, Work};
use profiler_analysis::compare;
use profiler_analysis::compare::{ClockWarning, Side};
use profiler_core::profile::Track;
use profiler_core::series::{Failure, FailureCause, Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, ProfilerBuilder, Range, Recording, Sampling};
use test_support::folder::Folder;
use test_support::frames;

/// The fake's collection is the process's, too.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> impl Drop {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn fake() -> Fake {
    Fake::builder().clock_offset(AHEAD.cast_signed()).build()
}

const READ: &str = "dram__bytes_read.sum";
const BUSY: &str = "busy";

fn metrics() -> Vec<Metric> {
    let read = Metric::new(READ, "DRAM read", Unit::Bytes, Kind::Total);
    vec![read, Metric::new(BUSY, "busy", Unit::Percent, Kind::Mean)]
}

/// 100 samples of 1 us from the session's start: sample i has 1000 i bytes, and is busy i %.
fn series(start_ns: u64) -> Series {
    let mut series = Series::new(0, Source::Counters, Duration::from_nanos(1_000), metrics());
    for row in 0..100 {
        let at = start_ns + row * 1_000;
        // Of the last one nothing is known.
        let busy = if row == 99 { f64::NAN } else { row as f64 };
        series.push(at, at + 1_000, &[row as f64 * 1e3, busy]).unwrap();
    }
    series
}

fn recorded() -> Recording {
    let _turn = turn();
    let recording = recorded_without();
    let start_ns = recording.windows_ns()[0].0;
    recording.with_series(series(start_ns))
}

fn recorded_without() -> Recording {
    let fake = fake();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    {
        let _range = nvtx::range("range");
        fake.launch(Work::kernel(c"kernel"));
    }
    profiler.stop_recording().unwrap()
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

#[test]
fn a_series_reads_back_the_same() {
    let failure = Failure::new(FailureCause::Permission, "counters are for administrators");
    let none =
        Series::new(1, Source::Nvml, Duration::from_nanos(7), vec![]).with_failure(failure.clone());
    let none =
        none.with_missing(vec!["power".to_owned()]).with_losses(1, 2, 3, Duration::from_nanos(4));
    let recording = recorded().with_series(none);
    let back = Recording::from_bytes(&recording.to_bytes()).unwrap();
    assert_eq!(back, recording);
    let profile = Profile::from_recording(back);
    let [first, second] = profile.series().collect::<Vec<_>>()[..] else { panic!("not two") };
    assert_eq!((first.len(), first.device(), first.failure()), (100, 0, None));
    assert!(second.is_empty());
    assert_eq!(second.failure(), Some(&failure));
    assert_eq!(second.missing(), ["power"]);
    assert_eq!(
        (second.dropped(), second.overflows(), second.gaps()),
        (1, 2, (3, Duration::from_nanos(4)))
    );
    // Letting go of the logs does not let go of the samples.
    assert_eq!(profile.without_recording().tracks().count(), 2);
}

#[test]
fn a_damaged_series_is_an_error() {
    let all = frames::frames(&recorded().to_bytes());
    let at = all.iter().position(|(kind, _)| kind == b"SERS").unwrap();
    let head = u64::from_le_bytes(all[at].1[..8].try_into().unwrap()) as usize;
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut damaged = all.clone();
        change(&mut damaged[at].1);
        let error = Recording::from_bytes(&frames::file(&damaged)).unwrap_err();
        assert!(error.is_format(), "{error}");
        error.to_string()
    };
    // One word is gone, and then half of one.
    for (gone, message) in [(8, "not whole"), (4, "no whole number")] {
        let error = error(&|content| content.truncate(content.len() - gone));
        assert!(error.contains(message), "{error}");
    }
    // The first sample begins after the second.
    let unordered = error(&|content| content[8 + head + 7] = 0x7F);
    assert!(unordered.contains("not in order"), "{unordered}");
    let damaged = error(&|content| content[8] = b'[');
    assert!(damaged.contains("a series of samples is damaged"), "{damaged}");
    // A reader that does not know the kind skips it.
    let mut older = all.clone();
    older[at].0 = *b"XERS";
    assert_eq!(Recording::from_bytes(&frames::file(&older)).unwrap().series().len(), 0);
}

#[test]
fn unknown_series_of_a_newer_version_are_skipped() {
    let failure = Failure::new(FailureCause::Permission, "counters are for administrators");
    let bytes = recorded().with_series(
        Series::new(1, Source::Nvml, Duration::from_nanos(7), vec![]).with_failure(failure),
    );
    let all = frames::frames(&bytes.to_bytes());
    // The first series with this word in its head has another one there.
    let with = |word: &str, other: &str| {
        let (word, other) = (format!("\"{word}\""), serde_json::json!(other));
        let mut newer = all.clone();
        let series = newer.iter_mut().filter(|(kind, _)| kind == b"SERS");
        let changed = series.into_iter().find_map(|(_, content)| {
            let (head, words) = frames::log(content);
            let text = head.to_string();
            let changed = text.replacen(&word, &other.to_string(), 1);
            (changed != text).then(|| {
                *content = frames::log_content(&serde_json::from_str(&changed).unwrap(), &words);
            })
        });
        assert!(changed.is_some(), "{word}");
        Profile::from_bytes(&frames::file(&newer)).unwrap()
    };
    let profile = with("percent", "volts");
    let track = profile.track(0, BUSY).unwrap();
    assert_eq!((track.unit(), track.len()), (Unit::Other, 100));
    let profile = with("permission", "bad_weather");
    let failure = profile.series().nth(1).unwrap().failure().unwrap();
    assert_eq!(
        (failure.cause, &*failure.message),
        (FailureCause::Other, "counters are for administrators")
    );
    profile.health().assert_complete();
    for (word, other, left) in
        [("total", "histogram", Source::Nvml), ("nvml", "dcgm", Source::Counters)]
    {
        let profile = with(word, other);
        let sources: Vec<Source> = profile.series().map(Series::source).collect();
        assert_eq!((sources, profile.health().losses.unknown_records), (vec![left], 1), "{word}");
        assert_eq!(profile.totals().kernels, 1);
    }
}

#[test]
fn samples_are_shared_out_by_time() {
    let profile = Profile::from_recording(recorded());
    let read = profile.track(0, READ).unwrap();
    assert_eq!((read.len(), read.label(), read.unit()), (100, "DRAM read", Unit::Bytes));
    let sum = read.sum(us(10), us(13)).unwrap();
    assert_eq!((sum.value, sum.samples, sum.whole), (33_000.0, 3, 3));
    assert_eq!((sum.covered, sum.asked, sum.coverage()), (us(3), us(3), 1.0));
    // A quarter of sample 10, and half of sample 11.
    let from = us(10) + Duration::from_nanos(750);
    let sum = read.sum(from, us(11) + Duration::from_nanos(500)).unwrap();
    assert_eq!((sum.value, sum.samples, sum.whole), (2_500.0 + 5_500.0, 2, 0));
    // 33,000 bytes in 3 us.
    let mean = read.mean(us(10), us(13)).unwrap();
    assert!((mean.value - 11e9).abs() < 1.0, "{mean:?}");
    assert_eq!(read.rate_unit(), Unit::BytesPerSecond);
    assert_eq!(read.rates().nth(7).unwrap().value, 7e9);
    assert_eq!(read.samples().nth(7).unwrap().start, us(7));

    let busy = profile.track(0, BUSY).unwrap();
    assert_eq!(busy.sum(us(10), us(13)), None, "percents do not add up");
    assert_eq!(busy.mean(us(10), us(13)).unwrap().value, 11.0);
    // A quarter of a microsecond of 10 %, half of one of 11 %.
    let mean = busy.mean(from, us(11) + Duration::from_nanos(500)).unwrap();
    assert!((mean.value - (2.5 + 5.5) / 0.75).abs() < 1e-9, "{mean:?}");
    // The last has no value, and there is none after it.
    let mean = busy.mean(us(98), us(104)).unwrap();
    assert_eq!((mean.value, mean.samples, mean.covered, mean.asked), (98.0, 1, us(1), us(6)));
    assert_eq!(busy.mean(us(99), us(100)), None);
    assert_eq!(busy.mean(us(200), us(300)), None);
    assert_eq!(busy.mean(us(5), us(5)), None);
}

/// What a track came to in some times, piece by piece between all their beginnings and ends: sum, covered, samples.
fn counted(track: &Track<'_>, times: &[(u64, u64)]) -> (f64, u64, usize) {
    let ns = |time: Duration| time.as_nanos() as u64;
    let (mut sum, mut covered, mut samples) = (0.0, 0, 0);
    for sample in track.samples().filter(|sample| !sample.value.is_nan()) {
        let (start, end) = (ns(sample.start), ns(sample.end));
        let mut edges: Vec<u64> = times.iter().flat_map(|&(from, to)| [from, to]).collect();
        edges.retain(|edge| start < *edge && *edge < end);
        edges.extend([start, end]);
        edges.sort_unstable();
        let is_within = |at: u64| times.iter().any(|&(from, to)| from <= at && at < to);
        let pieces = edges.windows(2).filter(|piece| is_within(piece[0]));
        let within: u64 = pieces.map(|piece| piece[1] - piece[0]).sum();
        sum += sample.value * within as f64 / (end - start) as f64;
        covered += within;
        samples += usize::from(within > 0);
    }
    (sum, covered, samples)
}

fn projection(range: &Range<'_>) -> (u64, u64) {
    let start = range.operations().filter_map(|operation| operation.start()).min().unwrap();
    let end = range.operations().filter_map(|operation| operation.end()).max().unwrap();
    (start.as_nanos() as u64, end.as_nanos() as u64)
}

#[test]
fn ranges_have_the_samples_of_their_gpu_time() {
    let (_turn, fake) = (turn(), fake());
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    fake.stop_clock();
    profiler.start().unwrap();
    let step = |kernels: u64| {
        let _step = nvtx::range("step");
        for kernel in 0..kernels {
            let _layer = nvtx::range("layer");
            fake.launch(Work::kernel(c"kernel").taking_ns(700 + 100 * kernel));
            fake.advance_clock(Duration::from_micros(50));
        }
        // The next step begins on the GPU before this one has ended there.
        let stream = 10 + kernels as u32;
        fake.launch(Work::kernel(c"long").taking_ns(1_000_000).on_stream(stream));
    };
    (1..5).for_each(step);
    {
        let _host = nvtx::range("host");
    }
    let recording = profiler.stop_recording().unwrap();
    // All samples are 3 us long, and there is one in four that is missing.
    let (start, end) = recording.windows_ns()[0];
    let mut series = Series::new(0, Source::Counters, us(3), metrics());
    for (row, at) in (start..end).step_by(3_000).enumerate().filter(|(row, _)| row % 4 != 3) {
        series.push(at, at + 3_000, &[row as f64, (row % 100) as f64]).unwrap();
    }
    let read = vec![series.metrics()[0].clone()];
    let mut elsewhere = Series::new(1, Source::Counters, us(3), read);
    elsewhere.push(start, end, &[1.0]).unwrap();
    let slow = Metric::new("slow", "slow", Unit::Percent, Kind::Mean);
    let mut slow = Series::new(0, Source::Nvml, Duration::from_nanos(end - start), vec![slow]);
    slow.push(start, end, &[50.0]).unwrap();
    let recording = recording.with_series(series).with_series(elsewhere).with_series(slow);
    let profile = Profile::from_recording(recording);
    let (read, busy) = (profile.track(0, READ).unwrap(), profile.track(0, BUSY).unwrap());
    let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
    let mut checked = 0;
    for range in profile.ranges().filter(|range| range.name() != "host") {
        let time = projection(&range);
        let (sum, covered, samples) = counted(&read, &[time]);
        let Some(sampled) = range.sum(&read) else {
            assert_eq!(samples, 0);
            continue;
        };
        checked += 1;
        near(sampled.value, sum);
        assert_eq!((sampled.covered.as_nanos() as u64, sampled.samples), (covered, samples));
        assert_eq!(sampled.asked.as_nanos() as u64, time.1 - time.0);
        near(range.mean(&read).unwrap().value, sum * 1e9 / covered as f64);
        let (sum, covered, _) = counted(&busy, &[time]);
        assert_eq!(range.sum(&busy), None);
        // Each nanosecond has its sample's value, of which `counted` gives a 3,000th.
        near(range.mean(&busy).unwrap().value, sum * 3_000.0 / covered as f64);
    }
    assert!(checked >= 8, "{checked}");

    // All of one path: of time that two share, one half is not counted twice.
    let node = profile.roots().next().unwrap();
    let times: Vec<_> = node.ranges().map(|range| projection(&range)).collect();
    assert!(times.windows(2).any(|pair| pair[1].0 < pair[0].1), "none overlap: {times:?}");
    let (sum, covered, samples) = counted(&read, &times);
    let sampled = node.sum(&read).unwrap();
    assert_eq!(node.sum(&profile.track(1, READ).unwrap()), None, "nothing ran there");
    near(sampled.value, sum);
    assert_eq!((sampled.covered.as_nanos() as u64, sampled.samples), (covered, samples));
    near(node.mean(&read).unwrap().value, sum * 1e9 / covered as f64);

    // All of them lie in one sample, which counts once.
    let layers = node.children().next().unwrap();
    let mean = layers.mean(&profile.track(0, "slow").unwrap()).unwrap();
    assert_eq!((mean.value, mean.samples, mean.whole), (50.0, 1, 0));

    // Steps are ranges.
    let steps = profile.steps("step");
    for step in steps.iter() {
        assert_eq!(step.sum(&read), step.range().sum(&read));
        assert_eq!(step.mean(&busy), step.range().mean(&busy));
    }
    // No work, no device that it ran on, no samples.
    let host = profile.ranges().find(|range| range.name() == "host").unwrap();
    assert_eq!(host.mean(&busy), None);
    // A range of less than a sample has no whole one.
    assert!(busy.mean(host.start(), host.end()).is_none_or(|mean| mean.whole == 0));
}

/// How far CUPTI's clock is ahead of ours in these tests.
const AHEAD: u64 = 1_700_000_000_000_000_000;

const TOTAL: &str = "fake__0.sum";
const SHARE: &str = "fake__0.avg.pct_of_peak_sustained_elapsed";

fn sampled(fake: &Fake) -> ProfilerBuilder {
    let sampling = Sampling::counters().metrics([TOTAL, SHARE]).interval(Duration::from_micros(10));
    Profiler::builder().library(fake.library().unwrap()).sample(sampling)
}

/// So many samples of 10 us, one after the other, from a time of ours on; the last of them ends now.
fn sample(fake: &Fake, count: u64, events: u64) -> u64 {
    let from = cupti::clock::now_ns();
    // The fake has them when their time has passed.
    let until = Instant::now() + Duration::from_micros(10 * count);
    while Instant::now() < until {}
    for at in 0..count {
        fake.sample(AHEAD + from + 10_000 * at, AHEAD + from + 10_000 * (at + 1), events);
    }
    from
}

/// Takes snapshots until this holds of one.
#[track_caller]
fn until(profiler: &Profiler, holds: impl Fn(&Profile) -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds(&profiler.snapshot().unwrap()) {
        assert!(Instant::now() < until, "no snapshot in time");
    }
}

/// They are written at the end: a file that ends early has none.
#[test]
fn finished_file_has_the_samples_of_its_session() {
    let (_turn, fake, folder) = (turn(), fake(), Folder::new());
    let path = folder.0.join("run.gpuprof");
    let file = sampled(&fake).build().unwrap().record_to(&path).unwrap();
    // CUPTI's first one is none.
    fake.sample(0, 1, 1_000_000);
    sample(&fake, 10, 3);
    file.flush().unwrap();
    assert_eq!(Profile::load(&path).unwrap().series().len(), 0);
    file.finish().unwrap();
    assert!(!fake.counts());
    let profile = Profile::load(&path).unwrap();
    profile.health().assert_complete();
    let track = profile.track(0, TOTAL).unwrap();
    let all = track.sum(Duration::ZERO, profile.duration()).unwrap();
    assert_eq!((all.value, all.whole), (30.0, 10));
}

#[test]
fn session_samples_while_recording() {
    let (_turn, fake) = (turn(), fake());
    let profiler = sampled(&fake).build().unwrap();
    // CUPTI's first one is none; what is before the session is left out.
    fake.sample(0, 1, 1_000_000);
    profiler.start().unwrap();
    assert!(fake.counts());
    fake.sample(AHEAD, AHEAD + 10_000, 1_000_000);
    sample(&fake, 20, 3);
    let profile = profiler.snapshot().unwrap();
    assert!(profile.track(0, TOTAL).is_some());
    sample(&fake, 10, 5);
    let profile = profiler.stop().unwrap();
    assert!(!fake.counts());
    let [track, share] = [TOTAL, SHARE].map(|name| profile.track(0, name).unwrap());
    assert_eq!((track.len(), track.kind(), track.unit()), (30, Kind::Total, Unit::Count));
    assert_eq!((share.len(), share.kind(), share.unit()), (30, Kind::Mean, Unit::Percent));
    let all = track.sum(Duration::ZERO, profile.duration()).unwrap();
    assert_eq!((all.value, all.samples, all.whole), (20.0 * 3.0 + 10.0 * 5.0, 30, 30));
    let mean = share.mean(Duration::ZERO, profile.duration()).unwrap();
    assert!((mean.value - 110.0 / 30.0).abs() < 1e-2, "{mean:?}");
    assert!(mean.coverage() < 1.0 && mean.covered.abs_diff(us(300)) < us(5));
    let line = "samples of GPU 0 (hardware counters): 30 of 10.00 us, fake__0.sum ";
    assert!(profile.to_string().contains(line), "{profile}");
    // What came before the session and between the two is a gap, and the session is complete.
    profile.health().assert_complete();
    assert_eq!(profile.health().facts.failed_samplers, 0);
    let bytes = profile.recording().unwrap().to_bytes();
    assert_eq!(Recording::from_bytes(&bytes).unwrap(), *profile.recording().unwrap());
    // A second session has samplers of its own.
    let ((), second) = profiler.record(|| ()).unwrap();
    assert!(second.track(0, TOTAL).unwrap().is_empty());
}

#[test]
fn session_without_a_sampler_continues_with_a_reason() {
    let (_turn, fake) = (turn(), fake());
    let launch = || {
        fake.launch(Work::kernel(c"kernel"));
    };
    let refusals = [
        (CuptiResult::INSUFFICIENT_PRIVILEGES, FailureCause::Permission),
        (CuptiResult::HARDWARE_BUSY, FailureCause::Busy),
        (CuptiResult::NOT_SUPPORTED, FailureCause::Unsupported),
    ];
    for (code, cause) in refusals {
        fake.fail("cuptiPmSamplingEnable", code, When::Once);
        let profiler = sampled(&fake).build().unwrap();
        let ((), profile) = profiler.record(launch).unwrap();
        assert_eq!(profile.totals().kernels, 1);
        profile.health().assert_complete();
        assert_eq!(profile.health().facts.failed_samplers, 1);
        assert!(profile.health().to_string().contains("1 samplers failed"), "{}", profile.health());
        let series = profile.series().next().unwrap();
        assert_eq!((series.len(), series.failure().unwrap().cause), (0, cause));
        let message = series.failure().unwrap().to_string();
        assert!(message.contains("cuptiPmSamplingEnable"), "{message}");
        assert!(profile.to_string().contains(&message), "{profile}");
        assert_eq!(profile.tracks().count(), 0);
    }
    // Another session of this process has them, for other samples.
    let other = Sampling::counters().metrics([TOTAL]).interval(us(20));
    let other = Profiler::builder().library(fake.library().unwrap()).sample(other);
    let (first, second) = (sampled(&fake).build().unwrap(), other.build().unwrap());
    first.start().unwrap();
    let ((), profile) = second.record(launch).unwrap();
    assert_eq!(profile.series().next().unwrap().failure().unwrap().cause, FailureCause::Busy);
    assert!(first.stop().unwrap().series().next().unwrap().failure().is_none());
    // It ended early; what was there is kept.
    let profiler = sampled(&fake).build().unwrap();
    profiler.start().unwrap();
    fake.sample(0, 1, 0);
    sample(&fake, 3, 1);
    until(&profiler, |profile| profile.track(0, TOTAL).unwrap().len() >= 3);
    fake.fail("cuptiPmSamplingDecodeData", CuptiResult::OUT_OF_MEMORY, When::Always);
    let profile = profiler.stop().unwrap();
    let series = profile.series().next().unwrap();
    assert_eq!((series.len(), series.failure().unwrap().cause), (3, FailureCause::Ended));
    // Sums have no time that samples could be of.
    let summary = sampled(&fake).build().unwrap().summarize().unwrap().stop().unwrap();
    assert_eq!(summary.health().facts.failed_samplers, 1);
}

#[test]
fn sessions_that_sample_the_same_share_the_sampler() {
    let (_turn, fake) = (turn(), fake());
    let (whole, part) = (sampled(&fake).build().unwrap(), sampled(&fake).build().unwrap());
    whole.start().unwrap();
    fake.sample(0, 1, 0);
    sample(&fake, 10, 1);
    part.start().unwrap();
    sample(&fake, 20, 2);
    // The whole goes on, and so does its sampler; the part waits for its last samples.
    let of_part = part.stop().unwrap();
    assert!(fake.counts());
    sample(&fake, 30, 4);
    // Another one that begins now, and ends last.
    part.start().unwrap();
    sample(&fake, 40, 8);
    let of_whole = whole.stop().unwrap();
    assert!(fake.counts());
    sample(&fake, 50, 16);
    let last = part.stop().unwrap();
    assert!(!fake.counts());
    let sum = |profile: &Profile| {
        assert_eq!(profile.health().facts.failed_samplers, 0, "{:?}", profile.series().next());
        let track = profile.track(0, TOTAL).unwrap();
        let sum = track.sum(Duration::ZERO, profile.duration()).map(|sum| (sum.value, sum.samples));
        (sum.unwrap(), track.len())
    };
    assert_eq!(sum(&of_part), ((40.0, 20), 20));
    assert_eq!(sum(&of_whole), ((10.0 + 40.0 + 120.0 + 320.0, 100), 100));
    assert_eq!(sum(&last), ((320.0 + 800.0, 90), 90));
    // Each pause between samples is a gap of those sessions that were on before and after it.
    let gaps = |profile: &Profile| profile.series().next().unwrap().gaps().0;
    assert_eq!((gaps(&of_whole), gaps(&of_part), gaps(&last)), (3, 0, 1));
}

#[test]
fn samples_of_a_session_are_bounded() {
    let (_turn, fake) = (turn(), fake());
    let sampling = Sampling::counters().metrics([TOTAL]).max_samples(100);
    let builder = Profiler::builder().library(fake.library().unwrap()).sample(sampling);
    let profiler = builder.build().unwrap();
    profiler.start().unwrap();
    fake.sample(0, 1, 0);
    let mut came = 0;
    for _ in 0..10 {
        sample(&fake, 50, 1);
        came += 50;
        // Taken out each time, so that the sampler's own bound has nothing to do.
        until(&profiler, |profile| {
            let series = profile.series().next().unwrap();
            series.len() as u64 + series.dropped() >= came
        });
    }
    let profile = profiler.stop().unwrap();
    let series = profile.series().next().unwrap();
    assert!((100..=125).contains(&series.len()), "{}", series.len());
    assert_eq!(series.len() as u64 + series.dropped(), came);
    assert_eq!(profile.health().facts.dropped_samples, series.dropped());
}

#[test]
fn restart_discards_samples() {
    let (_turn, fake) = (turn(), fake());
    let profiler = sampled(&fake).build().unwrap();
    profiler.start().unwrap();
    fake.sample(0, 1, 0);
    sample(&fake, 10, 1);
    until(&profiler, |profile| profile.track(0, TOTAL).unwrap().len() >= 10);
    profiler.restart().unwrap();
    sample(&fake, 7, 1);
    let profile = profiler.stop().unwrap();
    assert_eq!(profile.track(0, TOTAL).unwrap().len(), 7);
    // As are the gaps, one between the two.
    assert_eq!(profile.series().next().unwrap().gaps().0, 0);
}

#[test]
fn a_session_that_keeps_the_last_part_keeps_its_samples_alone() {
    let (_turn, fake) = (turn(), fake());
    let profiler = sampled(&fake).keep_last(Duration::from_millis(200)).build().unwrap();
    profiler.start().unwrap();
    fake.sample(0, 1, 0);
    // Of 10 us each 250 ms and a quarter more are kept; what goes for newer ones is none of the session's.
    sample(&fake, 40_000, 1);
    std::thread::sleep(Duration::from_millis(300));
    // A stop that comes 200 ms later on a busy machine has lost these too.
    let from = sample(&fake, 5, 2);
    let profile = profiler.stop().unwrap();
    let series = profile.series().next().unwrap();
    let in_time = profile.recording().unwrap().windows_ns().first().is_some_and(|w| w.0 <= from);
    assert!(if in_time { series.len() == 5 } else { series.len() < 5 }, "{}", series.len());
    assert!(series.column(0).all(|value| value == 2.0));
    assert_eq!((series.dropped(), profile.health().facts.dropped_samples), (0, 0));
}

#[test]
fn failed_sampler_is_reported_by_each_session() {
    let (_turn, fake) = (turn(), fake());
    let [first, second, third] = [(); 3].map(|()| sampled(&fake).build().unwrap());
    let ended = |profile: &Profile| {
        let series = profile.series().next().unwrap();
        series.failure().map(|failure| failure.cause) == Some(FailureCause::Ended)
    };
    first.start().unwrap();
    second.start().unwrap();
    fake.sample(0, 1, 0);
    sample(&fake, 3, 1);
    until(&first, |profile| profile.track(0, TOTAL).unwrap().len() >= 3);
    fake.fail("cuptiPmSamplingDecodeData", CuptiResult::OUT_OF_MEMORY, When::Once);
    until(&first, ended);
    assert!(!fake.counts());
    // One that begins now has a sampler of its own.
    third.start().unwrap();
    assert!(fake.counts());
    let of_second = second.stop().unwrap();
    assert!(ended(&of_second));
    assert_eq!(of_second.track(0, TOTAL).unwrap().len(), 3);
    fake.sample(0, 1, 0);
    sample(&fake, 5, 1);
    let of_third = third.stop().unwrap();
    assert_eq!((of_third.track(0, TOTAL).unwrap().len(), ended(&of_third)), (5, false));
    assert!(ended(&first.stop().unwrap()));
    assert!(!fake.counts());
}

/// Without the feature, too; a package of the same build may enable it.
#[test]
fn series_without_nvml_has_a_reason() {
    let (_turn, fake) = (turn(), fake());
    let builder = Profiler::builder().library(fake.library().unwrap()).sample(Sampling::nvml());
    let ((), profile) = builder.build().unwrap().record(|| ()).unwrap();
    // Where there is an NVML, it does not know the fake's device.
    let failure = profile.series().next().unwrap().failure().unwrap();
    assert!(failure.to_string().contains("clocks and power are not sampled"), "{failure}");
    if failure.to_string().contains("without the feature nvml") {
        assert_eq!(failure.cause, FailureCause::Unsupported);
    }
}

/// A run whose GPU works 10 times for 100 us, while its clocks are as given; in the pauses they are low.
fn run_at(sm_mhz: f64, reasons: f64) -> Profile {
    let fake = fake();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    for _ in 0..10 {
        fake.launch(Work::kernel(c"kernel").taking_ns(100_000));
        std::thread::sleep(Duration::from_micros(300));
    }
    let recording = profiler.stop_recording().unwrap();
    let start = recording.windows_ns()[0].0;
    let metrics = vec![
        Metric::new("nvml__sm_clock", "SM clock", Unit::Hertz, Kind::State),
        Metric::new("nvml__memory_clock", "memory clock", Unit::Hertz, Kind::State),
        Metric::new("nvml__clock_event_reasons", "reasons", Unit::Flags, Kind::State),
    ];
    let mut series = Series::new(0, Source::Nvml, Duration::from_nanos(10_000), metrics);
    // The times of work, as they are in the profile.
    let profile = Profile::from_recording(recording);
    let busy: Vec<(u64, u64)> = profile
        .operations()
        .map(|operation| {
            let ns = |time: Option<Duration>| start + time.unwrap().as_nanos() as u64;
            (ns(operation.start()), ns(operation.end()))
        })
        .collect();
    assert_eq!(busy.len(), 10);
    let mut last = start;
    for (number, &(from, to)) in busy.iter().enumerate() {
        // Idle GPUs lower their clocks, and say so in a bit that is no throttling.
        series.push(last, from, &[345e6, 2619e6, 1.0]).unwrap();
        // In 3 of 10 something else lowers them.
        let reasons = if number < 3 { reasons } else { 0.0 };
        series.push(from, to, &[sm_mhz * 1e6, 2619e6, reasons]).unwrap();
        last = to;
    }
    let recording = profile.recording().unwrap().clone().with_series(series);
    Profile::from_recording(recording)
}

/// What NVML was seen to say while a run went on is known without asking it beside the run.
#[test]
fn gate_excludes_throttled_runs() {
    let _turn = turn();
    let folder = std::env::temp_dir().join(format!("gate-of-sampled-{}", std::process::id()));
    let gate = profiler_analysis::gate::Gate::new(folder.join("sampled.json")).runs(4, 4);
    let write = gate.clone().update(true);
    assert!(write.run(|| Ok::<_, profiler_core::Error>(run_at(1980.0, 0.0))).unwrap().is_written());
    let mut made = 0;
    let verdict = gate.update(false).run(|| {
        made += 1;
        Ok::<_, profiler_core::Error>(run_at(1980.0, if made == 2 { 68.0 } else { 0.0 }))
    });
    let error =
        write.run(|| Ok::<_, profiler_core::Error>(run_at(1980.0, 68.0))).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    let verdict = verdict.unwrap();
    assert_eq!((verdict.runs(), made), (4, 5), "{verdict}");
    assert!(verdict.to_string().contains("1 runs were set aside"), "{verdict}");
    assert!(error.contains("throttled in 5 of 5 runs, last by heat (hardware)"), "{error}");
}

#[test]
fn comparison_reports_different_clocks() {
    let _turn = turn();
    let (even, slower, hot) = (run_at(1980.0, 0.0), run_at(1755.0, 0.0), run_at(1980.0, 68.0));
    let [clocks] = &even.device_clocks()[..] else { panic!("not one device") };
    assert!((clocks.sm_hz.unwrap() - 1980e6).abs() < 1.0, "idle times do not count: {clocks:?}");
    assert_eq!((clocks.device, clocks.samples, clocks.is_throttled()), (0, 10, false));
    let [clocks] = &hot.device_clocks()[..] else { panic!("not one device") };
    assert!(clocks.is_throttled());
    let by: Vec<_> = clocks.slowed_by().map(|(by, _)| by).collect();
    assert_eq!(by, ["heat (hardware)", "the power limit"]);
    assert!(clocks.slowed_by().all(|(_, share)| (share - 0.3).abs() < 1e-3), "{clocks:?}");

    assert_eq!(compare(&even, &even).clock_warnings(), []);
    let comparison = compare(&even, &slower);
    let [ClockWarning::Differs { device: 0, clock: "SM", before_hz, after_hz }] =
        comparison.clock_warnings()
    else {
        panic!("{:?}", comparison.clock_warnings());
    };
    assert!((before_hz / after_hz - 1980.0 / 1755.0).abs() < 1e-6);
    let text = "the SM clock of GPU 0 ran at 1980 MHz before and at 1755 MHz after (-11.4 %)";
    assert!(comparison.to_string().contains(text), "{comparison}");
    assert!(comparison.to_html().contains("1755 MHz after"));
    assert!(comparison.to_markdown().contains("1755 MHz after"));
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json["clock_warnings"][0]["kind"], "differs");
    let comparison = compare(&hot, &even);
    let is_heat = |warning: &ClockWarning| {
        matches!(warning, ClockWarning::Throttled { side: Side::Before, by: "heat (hardware)", .. })
    };
    assert_eq!(comparison.clock_warnings().len(), 2);
    assert!(comparison.clock_warnings().iter().any(is_heat), "{comparison}");
    // Nothing is known of one side; of both is as it was.
    let unknown = Profile::from_recording(recorded_without());
    let comparison = compare(&unknown, &even);
    assert_eq!(comparison.clock_warnings(), [ClockWarning::Unknown { side: Side::Before }]);
    let comparison = compare(&unknown, &unknown);
    assert_eq!(comparison.clock_warnings(), []);
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json.get("clock_warnings"), None);
}

/// What an H200 gave: 200 copies of 1 GiB, 100 ms of nothing, 80 multiplications of bf16 matrices of 8192.
#[test]
fn samples_of_an_h200_match_its_work() {
    let profile = crate::load("samples-h200");
    profile.health().assert_complete();
    let labels: Vec<_> = profile.tracks().map(|track| track.label()).collect();
    assert_eq!(labels[..3], ["SM active", "tensor active", "DRAM read"]);
    let [counters, nvml] = profile.series().collect::<Vec<_>>()[..] else { panic!("not two") };
    assert_eq!((counters.source(), nvml.source()), (Source::Counters, Source::Nvml));
    assert_eq!(
        (counters.gaps(), counters.overflows(), counters.dropped()),
        ((0, Duration::ZERO), 0, 0)
    );
    assert_eq!(counters.missing(), ["nvlrx__bytes.sum", "nvltx__bytes.sum"]);
    let labelled = |label| profile.tracks().find(|track| track.label() == label).unwrap();
    let range = |name| profile.ranges().find(|range| range.name() == name).unwrap();
    let mean = |name, label| range(name).mean(&labelled(label)).unwrap();

    let bytes = 200.0 * f64::from(1 << 30);
    for label in ["DRAM read", "DRAM write"] {
        let sum = range("copies").sum(&labelled(label)).unwrap();
        // The first millisecond has no sample.
        assert!(sum.coverage() > 0.995 && sum.whole >= 170, "{sum:?}");
        let ratio = sum.value / sum.coverage() / bytes;
        assert!((ratio - 1.0).abs() < 0.001, "{label}: {ratio}");
        // Every copy takes less than a millisecond: together they have what they moved.
        let copies = profile.steps("copy");
        assert_eq!(copies.len(), 200);
        let sums: Vec<_> = copies.iter().filter_map(|copy| copy.sum(&labelled(label))).collect();
        assert!(sums.iter().all(|sum| sum.whole == 0 && sum.samples <= 2), "{:?}", sums[1]);
        let all: f64 = sums.iter().map(|sum| sum.value).sum();
        assert!((all / bytes - 1.0).abs() < 0.02, "{label}: {}", all / bytes);
    }
    assert!(mean("copies", "SM active").value > 99.0);
    assert!(mean("copies", "tensor active").value == 0.0);
    assert!(mean("gemms", "tensor active").value > 90.0 && mean("gemms", "SM active").value > 95.0);
    let idle = range("idle");
    let edge = idle.host_time() / 10;
    let nothing = labelled("SM active").mean(idle.start() + edge, idle.end() - edge).unwrap();
    assert!(nothing.value == 0.0 && nothing.whole >= 75, "{nothing:?}");

    let [clocks] = &profile.device_clocks()[..] else { panic!("not one device") };
    assert!((clocks.sm_hz.unwrap() - 1980e6).abs() < 1e6, "{clocks:?}");
    let text = profile.to_string();
    assert!(text.contains("samples of GPU 0 (NVML): 15 of 20.00 ms, SM clock 1.980 GHz"), "{text}");
}
