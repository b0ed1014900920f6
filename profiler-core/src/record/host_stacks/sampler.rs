//! A profiler thread that samples the submitting threads, and stores their states within gaps.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cupti::clock::now_ns;
use parking_lot::Mutex;
use profiler_base::background::{Background, Repeating};
use rustc_hash::FxHashMap;

use super::moments::{Doing, Moments, Seen};
use super::perf::{PerfThread, Record};
use super::sys::Registers;
use super::sys::timer::{self, CpuTimer, TIMED_THREADS};
use super::{FIRST_WAIT, HostSamples, SampleSource, syscalls, threads};

/// Returns the number of a stack, from registers and a copy of the stack above the stack pointer.
/// `None` if there is no room.
pub(super) type StackOf = fn(&Registers, &[u8]) -> Option<u32>;

/// The settings of the sampler.
#[derive(Debug, Clone)]
pub(crate) struct SamplerSettings {
    pub(crate) interval: Duration,
    /// The maximum number of parts of gaps.
    pub(crate) most: usize,
    pub(crate) perf: bool,
    /// True to use timers with signals for threads without perf.
    pub(crate) timers: bool,
}

/// The minimum sampling interval.
const SHORTEST: Duration = Duration::from_micros(100);
/// The time between two samplings is at least this multiple of the duration of one: they take at
/// most a fifth of one CPU.
const REST: u32 = 4;
/// The maximum number of threads with buffers of perf.
const PERF_THREADS: usize = 64;
/// The maximum number of bytes read from a waiting thread's stack.
const STACK_BYTES: usize = 64 << 10;
/// The maximum number of different waits.
const WAITS: usize = 4096;
/// The number of an unknown wait.
const UNKNOWN_WAIT: u32 = u32::MAX;

/// A running sampler. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct HostSampler {
    running: Option<(Arc<Mutex<Sampling>>, Repeating)>,
    /// The reason why there is none.
    failure: Option<String>,
}

impl HostSampler {
    pub(super) fn begin(settings: &SamplerSettings, stack_of: StackOf) -> Self {
        let failed = |why: String| Self { running: None, failure: Some(why) };
        if threads::begin().is_none() {
            return failed("another session of this process samples its threads".to_owned());
        }
        let sampling = Arc::new(Mutex::new(Sampling::new(settings.clone(), stack_of)));
        let looked = sampling.clone();
        let interval = settings.interval.max(SHORTEST);
        let look = move || {
            let begun = Instant::now();
            looked.lock().look();
            interval.max(begun.elapsed() * REST)
        };
        match Background::default().repeat("gpu-profiler-smp", interval, look) {
            Ok(thread) => Self { running: Some((sampling, thread)), failure: None },
            Err(error) => {
                threads::end();
                failed(format!("the thread that samples cannot be started: {error}"))
            }
        }
    }

    /// The samples so far.
    pub(super) fn samples(&self) -> HostSamples {
        match &self.running {
            Some((sampling, _)) => {
                let mut sampling = sampling.lock();
                sampling.look();
                sampling.samples()
            }
            None => HostSamples { failure: self.failure.clone(), ..HostSamples::default() },
        }
    }
}

impl Drop for HostSampler {
    fn drop(&mut self) {
        if self.running.is_some() {
            threads::end();
        }
    }
}

/// The source of samples of a running thread.
enum Source {
    Perf(PerfThread),
    Timer(CpuTimer, usize),
    None,
}

/// A sampled thread.
struct Watched {
    /// The index in `threads`.
    place: usize,
    thread_id: u32,
    /// The file with the system call in which it waits. If the kernel does not provide it, the file
    /// with its name, to check that the thread exists.
    system_call: File,
    tells_waits: bool,
    source: Source,
    moments: Moments,
    /// The wait of the last sample, with its stack and number.
    wait: Option<(Wait, u32, u32)>,
}

/// A wait as the kernel reports it: the number of the system call (-1 for none), the stack pointer
/// and the instruction pointer.
type Wait = (i64, u64, u64);

struct Sampling {
    settings: SamplerSettings,
    stack_of: StackOf,
    watched: Vec<Watched>,
    timers: [bool; TIMED_THREADS],
    /// Numbers of waits by their names.
    waits: FxHashMap<(String, String), u32>,
    samples: HostSamples,
    stack: Vec<u8>,
}

impl std::fmt::Debug for Sampling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampling").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Sampling {
    fn new(settings: SamplerSettings, stack_of: StackOf) -> Self {
        let interval_ns = u64::try_from(settings.interval.as_nanos()).unwrap_or(u64::MAX);
        Self {
            settings,
            stack_of,
            watched: Vec::new(),
            timers: [false; TIMED_THREADS],
            waits: FxHashMap::default(),
            samples: HostSamples { interval_ns, ..HostSamples::default() },
            stack: Vec::new(),
        }
    }

    fn samples(&self) -> HostSamples {
        let mut samples = self.samples.clone();
        let (lost_threads, lost_gaps) = threads::lost();
        samples.losses.threads += lost_threads;
        samples.losses.gaps += lost_gaps;
        samples
    }

    /// Samples each thread once.
    fn look(&mut self) {
        for (place, thread_id, stack) in threads::registered() {
            if !self.watched.iter().any(|thread| thread.place == place) {
                self.watch(place, thread_id, stack);
            }
        }
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain_mut(|thread| self.look_at(thread));
        self.watched = watched;
    }

    fn watch(&mut self, place: usize, thread_id: u32, stack: Range<u64>) {
        let open = |file| File::open(format!("/proc/self/task/{thread_id}/{file}"));
        let system_call = open("syscall");
        let tells_waits = system_call.is_ok();
        let Ok(system_call) = system_call.or_else(|_| open("comm")) else {
            // The thread has ended.
            threads::remove(place);
            return;
        };
        let (source, kind) = self.source(thread_id, stack);
        self.samples.source = self.samples.source.max(Some(kind));
        let moments = Moments::new(matches!(source, Source::Perf(_)));
        let wait = None;
        self.watched.push(Watched {
            place,
            thread_id,
            system_call,
            tells_waits,
            source,
            moments,
            wait,
        });
    }

    fn source(&mut self, thread_id: u32, stack: Range<u64>) -> (Source, SampleSource) {
        let interval = self.settings.interval;
        let mut failures = Vec::new();
        let mut found = None;
        let with_perf =
            self.watched.iter().filter(|thread| matches!(thread.source, Source::Perf(_)));
        if self.settings.perf && with_perf.count() < PERF_THREADS {
            let opened = PerfThread::open(thread_id, interval, true);
            let opened = opened.map(|perf| (perf, SampleSource::Perf)).or_else(|_| {
                PerfThread::open(thread_id, interval, false)
                    .map(|perf| (perf, SampleSource::PerfUser))
            });
            match opened {
                Ok((perf, kind)) => found = Some((Source::Perf(perf), kind)),
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => failures.push(format!("perf_event_open: {error}")),
            }
        }
        if self.settings.timers && found.is_none() {
            match self.timer(thread_id, stack, interval) {
                Ok(source) => found = Some((source, SampleSource::Timers)),
                Err(error) => failures.push(format!("timers: {error}")),
            }
        }
        // A thread that ended meanwhile is not a failure.
        let is_there = || Path::new(&format!("/proc/self/task/{thread_id}")).exists();
        if self.samples.failure.is_none() && !failures.is_empty() && is_there() {
            self.samples.failure = Some(failures.join("; "));
        }
        found.unwrap_or((Source::None, SampleSource::Waits))
    }

    fn timer(&mut self, thread: u32, stack: Range<u64>, interval: Duration) -> io::Result<Source> {
        let free = self.timers.iter().position(|is_used| !is_used);
        let place = free.ok_or_else(|| io::Error::other("more threads than there is room for"))?;
        timer::install()?;
        let timer = CpuTimer::start(thread, stack, place, interval)?;
        self.timers[place] = true;
        Ok(Source::Timer(timer, place))
    }

    /// Samples a thread. Returns false if it has ended.
    fn look_at(&mut self, thread: &mut Watched) -> bool {
        // Gaps are read first: the buffers then contain all observations of an ended gap.
        let gaps: Vec<Range<u64>> =
            std::iter::from_fn(|| threads::next_gap(thread.place)).collect();
        self.read_source(thread);
        let mut text = [0; 256];
        let looked_ns = now_ns();
        let text = thread.system_call.read_at(&mut text, 0).map(|bytes| text[..bytes].to_vec());
        let has_ended = text.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH));
        if let Some(text) = text.ok().filter(|_| thread.tells_waits) {
            match wait_of(&text) {
                Some(wait) => {
                    let (stack, number) = self.stack_and_wait(thread, wait);
                    thread.moments.add(looked_ns, Seen::Waited(stack, number));
                }
                None => {
                    thread.wait = None;
                    if !matches!(thread.source, Source::Perf(_)) {
                        thread.moments.add(looked_ns, Seen::Ran(0));
                    }
                }
            }
        }
        for gap in gaps {
            let (parts, is_cut) = thread.moments.end_gap(gap);
            self.samples.losses.gaps += u64::from(is_cut);
            for (time, stack, doing) in parts {
                if self.samples.parts.len() >= self.settings.most {
                    let oldest = (self.settings.most / 4).max(1);
                    self.samples.parts.drain(..oldest);
                    self.samples.losses.over_limit += oldest as u64;
                }
                let doing = match doing {
                    Doing::Ran => 0,
                    Doing::WaitedForCpu => 1,
                    Doing::Waited(None | Some(UNKNOWN_WAIT)) => 2,
                    Doing::Waited(Some(wait)) => FIRST_WAIT + wait,
                };
                let ns = time.end - time.start;
                self.samples.parts.push((thread.thread_id, time.start, ns, stack, doing));
            }
        }
        if has_ended {
            threads::remove(thread.place);
            if let Source::Timer(_, place) = thread.source {
                thread.source = Source::None;
                self.timers[place] = false;
            }
        }
        !has_ended
    }

    /// Reads the source's observations of the thread.
    fn read_source(&mut self, thread: &mut Watched) {
        let (moments, losses) = (&mut thread.moments, &mut self.samples.losses);
        let (samples, find) = (&mut self.samples.samples, self.stack_of);
        let mut stack_of = |registers: &Registers, stack: &[u8]| {
            *samples += 1;
            find(registers, stack).unwrap_or_else(|| {
                losses.stacks += 1;
                0
            })
        };
        let mut lost = 0;
        match &mut thread.source {
            Source::Perf(perf) => {
                let mut leaving = 0;
                perf.take(|time_ns, record| match record {
                    Record::Sample(registers, stack, true) => leaving = stack_of(&registers, stack),
                    Record::Sample(registers, stack, false) => {
                        moments.add(time_ns, Seen::Ran(stack_of(&registers, stack)));
                    }
                    Record::Left(is_ready) => {
                        moments.add(time_ns, Seen::Left(std::mem::take(&mut leaving), is_ready));
                    }
                    Record::Runs => moments.add(time_ns, Seen::CameBack),
                    Record::Lost(count) => lost += count,
                });
            }
            Source::Timer(timer, _) => {
                lost += timer.take(|(time_ns, registers, stack)| {
                    moments.add(time_ns, Seen::Ran(stack_of(&registers, stack)));
                });
            }
            Source::None => {}
        }
        losses.buffer += lost;
    }

    /// Returns the stack of a waiting thread and the number of its wait, read once for each wait.
    fn stack_and_wait(&mut self, thread: &mut Watched, wait: Wait) -> (u32, u32) {
        if let Some((known, stack, number)) = thread.wait
            && known == wait
        {
            return (stack, number);
        }
        let (call, sp, pc) = wait;
        // Perf recorded all registers when the thread left the CPU.
        let stack = match thread.moments.is_away() {
            true => 0,
            false => self.stack_of_waiting(sp, pc),
        };
        let channel =
            std::fs::read_to_string(format!("/proc/self/task/{}/wchan", thread.thread_id));
        let channel = channel.ok().filter(|name| name != "0").unwrap_or_default();
        let call = if call < 0 { String::new() } else { syscalls::name(call) };
        let number = self.number_of_wait((call, channel));
        thread.wait = Some((wait, stack, number));
        (stack, number)
    }

    fn number_of_wait(&mut self, wait: (String, String)) -> u32 {
        if let Some(known) = self.waits.get(&wait) {
            return *known;
        }
        if self.samples.waits.len() >= WAITS {
            return UNKNOWN_WAIT;
        }
        // CAST: at most `WAITS`.
        let next = self.samples.waits.len() as u32;
        self.samples.waits.push(wait.clone());
        self.waits.insert(wait, next);
        next
    }

    /// Unwinds a waiting thread from its stack and instruction pointer, as far as possible without
    /// its other registers.
    fn stack_of_waiting(&mut self, sp: u64, pc: u64) -> u32 {
        let Ok(memory) = File::open("/proc/self/mem") else { return 0 };
        self.stack.resize(STACK_BYTES, 0);
        // Reading stops at the end of the mapping.
        let bytes = memory.read_at(&mut self.stack, sp).unwrap_or_default();
        let registers = Registers {
            pc,
            sp,
            fp: 0,
            #[cfg(target_arch = "aarch64")]
            lr: 0,
        };
        (self.stack_of)(&registers, &self.stack[..bytes]).unwrap_or_else(|| {
            self.samples.losses.stacks += 1;
            0
        })
    }
}

/// Parses `/proc/self/task/ID/syscall`: `None` for a running thread, otherwise its wait.
fn wait_of(text: &[u8]) -> Option<Wait> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words: VecDeque<&str> = text.split_whitespace().collect();
    let call = words.pop_front()?.parse().ok()?;
    let mut address = || u64::from_str_radix(words.pop_back()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (address()?, address()?);
    Some((call, sp, pc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_stack_lines_identify_waits() {
        let line = b"202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffe0cb17698 0x7faec2c382ad\n";
        assert_eq!(wait_of(line), Some((202, 0x7ffe_0cb1_7698, 0x7fae_c2c3_82ad)));
        assert_eq!(wait_of(b"-1 0x10 0x20\n"), Some((-1, 0x10, 0x20)));
        assert_eq!((wait_of(b"running\n"), wait_of(b""), wait_of(b"5\n")), (None, None, None));
    }
}
