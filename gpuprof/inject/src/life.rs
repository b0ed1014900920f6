//! The life cycle of the library in its process. It begins when CUDA is initialised. It ends when
//! the process ends, when the program records itself, or in a forked child.

use std::convert::Infallible;
use std::panic;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::Builder;
use std::time::Duration;

use cupti::__private::with_signals_blocked;
use cupti::quiet_thread;
use cupti::{ActivityKind, Config};
use gpuprof_control::manifest::{Moment, Process, State};
use gpuprof_control::socket::{Answer, Request, Server, Stopper};
use gpuprof_control::{
    Ended, HostSamples, KeepLast, LastPart, Lines, Options, RUN_VARIABLE, RunFolder, Start, Stop,
};
use nvtx::observer::RangeStart;
use parking_lot::{Mutex, RwLock};
use profiler_core::session::FlightRecorder;
use profiler_core::{Profiler, Sampling};

use crate::control::{Control, Task};
use crate::recorded::Recorded;
use crate::switch::{self, Change, Switch};
use crate::{always_on, annotations, counts, mode};

/// The time for which CUPTI stays on after a window, so that consecutive ranges do not toggle it.
const REST_AFTER: Duration = Duration::from_secs(1);
/// The time limit for a program thread that begins a window to wait for the library's own threads.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval at which the report of an always-on process is written.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// The delay from a window's begin or end to the manifest update.
const DESCRIBE_AFTER: Duration = Duration::from_secs(1);
/// The time limits at process exit: for the GPU, and for the remaining work.
const GPU_AT_EXIT: Duration = Duration::from_secs(10);
const REST_AT_EXIT: Duration = Duration::from_secs(2);
/// The time limit for the thread that finds devices when a recording ends. The thread takes
/// milliseconds.
const DEVICES_AT_EXIT: Duration = Duration::from_secs(1);

/// The state of a recording.
struct Life {
    folder: RunFolder,
    options: Options,
    /// `None` after the recording has ended.
    file: RwLock<Option<Recorded>>,
    manifest: Mutex<Process>,
    control: Control,
    /// Closes the control socket.
    stopper: OnceLock<Stopper>,
    /// Closed once the thread that finds devices has ended.
    search: Mutex<Option<Receiver<Infallible>>>,
}

static LIFE: OnceLock<Life> = OnceLock::new();
/// The pid of the process that has begun a recording; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);
static FOR_TESTS: AtomicBool = AtomicBool::new(false);

/// Sends all events to the observer of a test.
pub(crate) fn observe_for_tests() {
    FOR_TESTS.store(true, Ordering::Relaxed);
    mode::turn_on(false);
}

/// True if a test observes.
pub(crate) fn is_for_tests() -> bool {
    FOR_TESTS.load(Ordering::Relaxed)
}

/// True if events are useful: the process may be observed, and its recording has not ended.
pub(crate) fn may_observe(is_privileged: fn() -> bool) -> bool {
    static IS_ASKED: OnceLock<bool> = OnceLock::new();
    let is_asked = || !is_privileged() && std::env::var_os(RUN_VARIABLE).is_some();
    *IS_ASKED.get_or_init(is_asked) && !mode::Mode::load().is_off()
}

/// Begins the recording, once. Returns true if it began in this call, so that the end of the
/// process must call [`exit`].
pub(crate) fn begin() -> bool {
    let own = std::process::id();
    if OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return false;
    }
    cupti::__private::this_is_injected();
    // This runs on a thread of the program and writes files.
    let Some((life, options_error)) = with_signals_blocked(Life::describe) else {
        mode::turn_off();
        return false;
    };
    let life = LIFE.get_or_init(|| life);
    let begun = match options_error {
        Some(why) => Err(why),
        None => with_signals_blocked(|| life.begin()),
    };
    match begun {
        Ok(()) => {
            mode::turn_on(life.options.start.range().is_some());
            annotations::start_waiting();
            life.spawn_threads();
            true
        }
        Err(why) => {
            mode::turn_off();
            with_signals_blocked(|| life.fail(&why));
            false
        }
    }
}

/// Runs in a forked child, which must not use the parent's recording. Only stores to atomics.
pub(crate) fn forked() {
    if OWNER.load(Ordering::Relaxed) != 0 {
        mode::turn_off();
    }
}

/// Runs at the end of the process. Waits for the library's thread, which finishes the file.
pub(crate) fn exit() {
    if OWNER.load(Ordering::Relaxed) == std::process::id()
        && let Some(life) = LIFE.get()
    {
        mode::turn_off();
        life.control.finish_within(GPU_AT_EXIT + REST_AT_EXIT);
    }
}

/// Ends the recording for a program that records itself. Returns true once CUPTI is free.
pub(crate) fn yield_to_program() -> bool {
    // A recording that has not begun must not begin later.
    let own = std::process::id();
    let _ = OWNER.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire);
    mode::turn_off();
    if OWNER.load(Ordering::Relaxed) != own {
        return false;
    }
    let finish = |life: &'static Life| life.finish(Some("the program records itself"));
    LIFE.get().is_none_or(|life| with_signals_blocked(|| finish(life)))
        && cupti::unsubscribe().is_ok()
}

/// Begins a window of the file when sampling has begun a window. Returns false if the file has no
/// window; the sums still include it.
fn begin_window() -> bool {
    let Some(file) = LIFE.get().and_then(|life| life.file.try_read_recursive()) else {
        return false;
    };
    file.as_ref().is_some_and(|file| file.begin_window(Duration::ZERO).is_ok())
}

fn end_window() {
    if let Some(file) = LIFE.get().and_then(|life| life.file.try_read_recursive())
        && let Some(file) = &*file
    {
        file.end_window();
    }
}

/// Begins and ends windows of the recording's file for the switch.
///
/// This runs with the switch locked, and other threads lock the switch while they read the file. A
/// read must therefore not wait for a writer that waits for those threads. Hence the recursive
/// read.
fn on_change(change: Change) {
    let Some(life) = LIFE.get() else { return };
    match change {
        Change::Begin => {
            mode::resume();
            life.control.cancel(Task::Rest);
            if let Some(file) = &*life.file.read_recursive() {
                // A refusal leaves the session paused, and the library's thread tries again.
                let begun = with_signals_blocked(|| file.begin_window(PATIENCE));
                if begun.is_err() {
                    life.control.plan(Task::Start, Duration::ZERO);
                }
            }
            if let Some(Stop::Duration(time)) = life.options.stop {
                life.control.put_off(Task::Stop, time);
            }
        }
        Change::End => {
            if let Some(file) = &*life.file.read_recursive() {
                file.end_window();
            }
            life.pause_mode();
            life.control.put_off(Task::Rest, REST_AFTER);
        }
        Change::Disarm => return mode::disarm(),
    }
    life.control.plan(Task::Describe, DESCRIBE_AFTER);
}

impl Life {
    /// Records that no window is open. An always-on process still records its calls.
    fn pause_mode(&self) {
        if self.options.always_on.is_none() {
            mode::pause();
        }
    }

    /// Reads the options and claims names in the run folder. Returns `None` if no folder can be
    /// written. The text states why the options are invalid.
    fn describe() -> Option<(Life, Option<String>)> {
        let (options, why) = match Options::from_environment() {
            Ok(options) => (options?, None),
            Err(error) => {
                let run = std::env::var_os(RUN_VARIABLE)?;
                (Options::new(run), Some(error.to_string()))
            }
        };
        if !options.run.is_absolute() {
            return None;
        }
        let folder = RunFolder::open(&options.run).map_err(|error| log(&options, &error)).ok()?;
        let mut manifest = Process::current().map_err(|error| log(&options, &error)).ok()?;
        folder.claim(&mut manifest).map_err(|error| log(&options, &error)).ok()?;
        let life = Life {
            folder,
            options,
            file: RwLock::new(None),
            manifest: Mutex::new(manifest),
            control: Control::default(),
            stopper: OnceLock::new(),
            search: Mutex::new(None),
        };
        Some((life, why))
    }

    /// Starts the session and its file.
    fn begin(&self) -> Result<(), String> {
        let is_on = self.options.start == Start::Now && self.options.always_on.is_none();
        let range = self.options.start.range().filter(|_| self.options.always_on.is_none());
        let instances = match self.options.stop {
            Some(Stop::Ranges(most)) => Some(u64::from(most.get())),
            _ => None,
        };
        if !is_on {
            self.pause_mode();
        }
        switch::install(Switch::new(is_on, range, instances, on_change));
        let path = self.folder.recording(&self.manifest.lock());
        let file = self.record(&path, is_on)?;
        file.describe(&mut self.manifest.lock());
        *self.file.write() = Some(file);
        self.write_manifest();
        match (&self.options.start, self.options.stop) {
            (Start::After(time), _) => self.control.plan(Task::Start, *time),
            (Start::Now, Some(Stop::Duration(time))) => self.control.plan(Task::Stop, time),
            _ => {}
        }
        Ok(())
    }

    fn record(&self, path: &Path, is_on: bool) -> Result<Recorded, String> {
        // This runs during CUDA's initialisation.
        let library = cupti::Library::open_within_initialisation().map_err(text)?;
        self.find_devices(library.clone());
        let mut config = Config::new().drain_timeout(GPU_AT_EXIT).start_paused(!is_on);
        if self.options.always_on.is_some() {
            config = config.calls_in_pauses(true);
        }
        if self.options.start == Start::CudaProfilerApi {
            config = config.on_profiler_switch(|on| {
                if let Some(switch) = switch::installed() {
                    switch.program_turns(on);
                }
            });
        }
        if let Some(age) = self.options.stacks {
            config = config.stacks_after(age);
        }
        if self.options.whole_graphs {
            config = config.add_kind(ActivityKind::GRAPH_TRACE);
        }
        let mut builder = Profiler::builder().library(library).config(config);
        match self.options.host_samples {
            Some(HostSamples::Timers) => builder = builder.sample(Sampling::host().timers()),
            Some(_) => builder = builder.sample(Sampling::host()),
            None => {}
        }
        if let Some(lines) = self.options.lines {
            let sampling = match lines {
                Lines::Every(cycles) => Sampling::instructions().period_cycles(cycles),
                _ => Sampling::instructions().serialized(),
            };
            let keeps_cubins = self.options.keep_cubins;
            builder = builder.sample(if keeps_cubins { sampling.keep_cubins() } else { sampling });
        }
        let local_rank = self.manifest.lock().local_rank;
        builder = self.options.device_data.add_to(builder, local_rank);
        if let Some(part) = self.options.keep_last {
            let builder = match part {
                KeepLast::Operations(count) => builder.keep_last_operations(count),
                KeepLast::Time(time) => builder.keep_last(time),
                other => return Err(format!("{other} is not known to this version of gpuprof")),
            };
            let profiler = builder.build().map_err(text)?;
            let recorder = profiler.flight_recorder(&self.triggers()?).map_err(text)?;
            return Ok(Recorded::Last(LastPart::new(recorder, path.to_owned())));
        }
        let profiler = builder.build().map_err(text)?;
        let file = profiler.record_to(path).map_err(text)?;
        if let Some(settings) = &self.options.always_on {
            let windows = always_on::Windows { begin: begin_window, end: end_window };
            let range = self.options.start.range();
            always_on::start(&profiler, settings, range, windows).map_err(text)?;
        }
        Ok(Recorded::File(file))
    }

    /// Finds the devices on another thread. It waits until the driver is initialised, and then
    /// takes milliseconds.
    fn find_devices(&self, library: cupti::Library) {
        let (ended, search) = mpsc::sync_channel(0);
        let find = move || {
            let _ended = ended;
            let _ = library.find_devices();
        };
        *self.search.lock() = Some(search);
        if quiet_thread::spawn(Builder::new(), "gpuprof-devices", find).is_err() {
            self.log("the thread that finds devices cannot be started");
        }
    }

    /// The triggers that write the last part, and their folder.
    fn triggers(&self) -> Result<FlightRecorder, String> {
        let triggers = &self.options.triggers;
        let stem = self.manifest.lock().stem();
        if triggers.slow.is_empty() && !triggers.on_error {
            return Ok(FlightRecorder::new(self.folder.path()).name(stem));
        }
        let folder = self.folder.create_incidents().map_err(|error| error.to_string())?;
        let mut settings = FlightRecorder::new(folder).name(stem);
        for (name, threshold) in &triggers.slow {
            settings = settings.slow(name, *threshold);
        }
        Ok(if triggers.on_error { settings.on_error() } else { settings })
    }

    /// Writes the report of an always-on process.
    fn write_always_on(&self, report: Option<always_on::Report>) {
        let Some(report) = report else { return };
        let process = self.manifest.lock().clone();
        if let Err(error) = self.folder.write_always_on(&process, &format!("{report}\n")) {
            self.log(&error.to_string());
        }
    }

    fn spawn_threads(&'static self) {
        if quiet_thread::spawn(Builder::new(), "gpuprof", || self.work()).is_err() {
            // The file still grows, and is truncated at the end of the process.
            self.control.done();
            self.log("its thread cannot be started");
        }
        let slices = || quiet_thread::spawn(Builder::new(), "gpuprof-slices", always_on::slice);
        if always_on::is_by_slices() && slices().is_err() {
            self.log("the thread of its windows cannot be started");
        }
        if self.reports_by_time() {
            self.control.plan(Task::Describe, REPORT_AFTER);
        }
        match Server::bind() {
            Ok(server) => {
                let _ = self.stopper.set(server.stopper());
                let serve = move || server.serve(|request| self.answer(request));
                if quiet_thread::spawn(Builder::new(), "gpuprof-socket", serve).is_err() {
                    self.log("the thread of its socket cannot be started");
                }
            }
            Err(error) => self.log(&error.to_string()),
        }
    }

    /// True if the report changes without windows: it has sums or incident files.
    fn reports_by_time(&self) -> bool {
        self.options.always_on.is_some() || self.options.keep_last.is_some()
    }

    /// The loop of the library's thread.
    fn work(&self) {
        loop {
            let task = self.control.next();
            // A panic in one task is counted, and the thread continues.
            let done = panic::catch_unwind(panic::AssertUnwindSafe(|| self.perform(task)));
            if done.is_err() {
                counts::count(&counts::COUNTS.panics);
            }
            if task == Task::Finish {
                self.control.done();
                return;
            }
        }
    }

    fn perform(&self, task: Task) {
        let Some(switch) = switch::installed() else { return };
        match task {
            Task::Start => {
                let was_on = !switch.turn_on();
                if was_on && let Some(file) = &*self.file.read() {
                    // Resume the window that was refused at first.
                    let _ = file.resume();
                }
            }
            Task::Stop => switch.end(),
            Task::Rest => {
                if let Some(file) = &*self.file.read()
                    && let Err(error) = file.rest()
                {
                    self.log(&error.to_string());
                }
            }
            Task::Describe => {
                self.write_manifest();
                if self.reports_by_time() {
                    self.write_always_on(always_on::report());
                    self.control.plan(Task::Describe, REPORT_AFTER);
                }
            }
            Task::Finish => _ = self.finish(None),
        }
    }

    /// Answers a request from the control socket.
    fn answer(&self, request: Request) -> Result<Answer, String> {
        let ended = || "its recording has ended".to_owned();
        let switch = switch::installed().ok_or_else(ended)?;
        let file = self.file.read();
        let file = file.as_ref().ok_or_else(ended)?;
        let mut changed = false;
        match request {
            Request::Status => {}
            Request::On | Request::Off if self.options.whole_graphs => {
                return Err(
                    "graphs are recorded as intervals, which is for the whole run".to_owned()
                );
            }
            Request::On => {
                changed = switch.turn_on();
                file.resume().map_err(text)?;
            }
            Request::Off => {
                changed = switch.turn_off();
                self.control.cancel(Task::Rest);
                file.turn_off().map_err(text)?;
            }
            Request::Mark { text } if switch.state().0 => {
                annotations::observer().mark(&RangeStart::new(&text));
                changed = true;
            }
            Request::Mark { .. } => {
                return Err("recording is off: switch it on first".to_owned());
            }
            Request::Snapshot => {
                file.write().map_err(text)?;
                changed = self.options.keep_last.is_some();
                self.write_always_on(always_on::report());
            }
            other => return Err(format!("{other:?} is not known to its version of gpuprof")),
        }
        let manifest = self.described(file);
        if changed {
            let _ = self.folder.write_process(&manifest);
        }
        let mut answer = Answer::new(manifest, self.folder.path().to_string_lossy());
        answer.changed = changed;
        Ok(answer)
    }

    /// The current manifest.
    fn described(&self, file: &Recorded) -> Process {
        let mut manifest = self.manifest.lock();
        let (mut is_on, mut windows) = switch::installed().map(Switch::state).unwrap_or_default();
        if self.options.always_on.is_some() {
            (is_on, windows) = (true, windows + always_on::windows());
        }
        let state = match (is_on, windows) {
            (true, _) => State::Recording,
            (false, 0) => State::Waiting,
            (false, _) => State::Paused,
        };
        let failed = file.error();
        let state = if failed.is_some() { State::Failed } else { state };
        manifest.set_state(state, failed.map(|error| error.to_string()).as_deref());
        file.describe(&mut manifest);
        manifest.counts.windows = windows;
        manifest.counts.lost += counts::lost();
        manifest.clone()
    }

    fn write_manifest(&self) {
        if let Some(file) = &*self.file.read() {
            let manifest = self.described(file);
            let _ = self.folder.write_process(&manifest);
        }
    }

    /// Ends the recording and writes its manifest, once. Returns true once CUPTI is free.
    fn finish(&self, yields: Option<&str>) -> bool {
        if self.file.read().is_some() {
            match always_on::finish() {
                Some(Ok(report)) => self.write_always_on(Some(report)),
                Some(Err(error)) => self.log(&error.to_string()),
                None => {}
            }
        }
        let Some(file) = self.file.write().take() else { return true };
        self.stopper.get().map(Stopper::stop);
        if let Some(search) = self.search.lock().take() {
            let _ = search.recv_timeout(DEVICES_AT_EXIT);
        }
        let mut manifest = self.described(&file);
        let Ended { path, totals: finished, is_empty, .. } = file.finish();
        if let Ok(totals) = &finished {
            manifest.has_recording = true;
            manifest.set_totals(totals);
            manifest.counts.lost += counts::lost();
        }
        if is_empty && std::fs::remove_file(&path).is_ok() {
            manifest.has_recording = false;
            manifest.counts.bytes = 0;
        }
        let why = finished.as_ref().err().map(ToString::to_string).or(manifest.reason.take());
        let state = match yields {
            _ if finished.is_err() => State::Failed,
            Some(_) => State::Yielded,
            None if !is_empty => State::Finished,
            None if manifest.counts.windows == 0 => State::Finished,
            None => State::Idle,
        };
        let never_on = "recording was never switched on";
        let is_off = state == State::Finished && is_empty && self.options.always_on.is_none();
        let never_on = is_off.then_some(never_on);
        manifest.set_state(state, why.as_deref().or(yields).or(never_on));
        manifest.ended = Some(Moment::now());
        if let Err(error) = self.folder.write_process(&manifest) {
            self.log(&error.to_string());
        }
        *self.manifest.lock() = manifest;
        // The collection is over even if a step failed.
        true
    }

    /// Writes a manifest that states why there is no recording.
    fn fail(&self, why: &str) {
        let mut manifest = self.manifest.lock();
        manifest.set_state(State::Failed, Some(why));
        manifest.ended = Some(Moment::now());
        let _ = self.folder.write_process(&manifest);
        self.log(why);
    }

    fn log(&self, what: &str) {
        if self.options.log_to_stderr {
            write_log(what);
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn log(options: &Options, error: &gpuprof_control::Error) {
    if options.log_to_stderr {
        write_log(&error.to_string());
    }
}

#[allow(clippy::print_stderr, reason = "requested by log=stderr in GPUPROF_OPTIONS")]
fn write_log(what: &str) {
    eprintln!("gpuprof: {what}");
}
