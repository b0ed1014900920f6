//! Counters over the program's ranges, or kernel by kernel.

use std::cell::RefCell;
use std::ffi::CString;
use std::fmt;
use std::rc::Rc;

use parking_lot::Mutex;

use super::data::CounterData;
use super::host::{Host, Method};
use super::measured::{Measured, Opened};
use super::plan::Plan;
use super::sets::Set;
use crate::accessors::{getters, setters};
use crate::collector::CollectorLease;
use crate::error::{Error, Kind};
use crate::forked;
use crate::library::Library;
use crate::sys::counters::RangeApi;
use crate::sys::driver::{Context, Contexts};
use crate::sys::range::{EACH_KERNEL, Mode, RangeObject, USER_RANGES};

/// Locked by a measurement: CUPTI supports one at a time in a process.
static MEASURING: Mutex<()> = Mutex::new(());

/// The settings of a profiler: [`RangeProfiler::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is counted before it is built"]
pub struct Builder {
    library: Library,
    metrics: Vec<String>,
    sets: Vec<Set>,
    levels: u16,
    max_ranges: usize,
}

impl Builder {
    /// Adds a metric: a name with its roll-up, such as `dram__bytes_read.sum`.
    pub fn metric(mut self, name: impl Into<String>) -> Self {
        self.metrics.push(name.into());
        self
    }

    /// Adds metrics.
    pub fn metrics<M: Into<String>>(mut self, names: impl IntoIterator<Item = M>) -> Self {
        self.metrics.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds the metrics of a set that the chip has.
    pub fn set(mut self, set: Set) -> Self {
        self.sets.push(set);
        self
    }

    setters! {
        /// Sets the number of levels of nested ranges; 1 by default. Each level repeats all passes,
        /// since the hardware has one set of counters. Deeper ranges count as part of outer ranges
        /// and in [`Measured::too_deep`].
        levels(levels: u16) levels = levels.max(1);
        /// Sets the maximum number of ranges or kernels; 256 by default. CUPTI needs some kilobytes
        /// for each range or kernel and metric. Further ranges are counted in
        /// [`Measured::dropped`].
        max_ranges(ranges: usize) max_ranges = ranges.max(1);
    }

    /// Plans the measurement for the device of this thread's current context. Does not reserve the
    /// counters.
    ///
    /// # Errors
    ///
    /// No context is current. [`is_unsupported`](Error::is_unsupported): CUPTI is older than 12.6
    /// update 2, the device is older than Turing or a slice of a GPU, or the chip lacks a metric.
    /// [`is_permission`](Error::is_permission), [`is_busy`](Error::is_busy): the text contains the
    /// remedy.
    pub fn build(self) -> Result<RangeProfiler, Error> {
        let Self { library, mut metrics, sets, levels, max_ranges } = self;
        let api = library
            .api
            .range
            .ok_or_else(|| library.lacks("counters of ranges".into(), "12.6 update 2"))?;
        let host_api = library.host_api()?;
        let contexts = library.api.contexts()?;
        let Some((context, device)) = contexts.current()? else {
            return Err(Error::misuse(
                "no CUDA context is current on this thread: make one (cudaSetDevice, cuCtxSetCurrent, \
                 CudaContext::bind_to_thread) and retry",
            ));
        };
        let _turn = turn()?;
        api.prepare()?;
        let chip = api.chip_of(device)?;
        let availability = api.availability_of(context)?;
        let host =
            Host::new(host_api, library.version(), &chip, Method::Ranges, Some(availability))?;
        let mut missing = Vec::new();
        for set in sets {
            let (there, absent) = host.of_set(set)?;
            metrics.extend(there.into_iter().map(str::to_owned));
            missing.extend(absent);
        }
        let plan = host.plan(metrics)?;
        Ok(RangeProfiler { api, contexts, context, host, plan, missing, levels, max_ranges })
    }
}

/// Counts metrics over ranges, on one CUDA context.
///
/// One process at a time can use the hardware's counters; they are reserved during a measurement
/// only. All work of the context counts, from any thread; work of other contexts and processes
/// affects shared units, such as DRAM. Both ends of a range wait for the context
/// (`cuCtxSynchronize`), so that the range has exactly its own work.
///
/// ```no_run
/// use cupti::Library;
/// use cupti::counters::{RangeProfiler, Set};
///
/// # fn main() -> Result<(), cupti::Error> {
/// # let (forward, backward) = (|| {}, || {});
/// let library = Library::open()?;
/// let profiler = RangeProfiler::builder(&library).set(Set::Memory).build()?; // on the current context
/// println!("{}", profiler.plan()); // how often the work will run
/// let measured = profiler.measure(|ranges| {
///     ranges.run_in("forward", forward);
///     ranges.run_in("backward", backward);
/// })?;
/// println!("{measured}");
/// let read = measured.range("forward").and_then(|range| range.value("dram__bytes_read.sum"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RangeProfiler {
    api: RangeApi,
    contexts: Contexts,
    context: Context,
    host: Host,
    plan: Plan,
    missing: Vec<&'static str>,
    levels: u16,
    max_ranges: usize,
}

fn turn() -> Result<parking_lot::MutexGuard<'static, ()>, Error> {
    forked::check_process()?;
    MEASURING.try_lock().ok_or_else(|| Error::new(Kind::AlreadyMeasuring))
}

impl RangeProfiler {
    /// Begins the settings of a profiler.
    pub fn builder(library: &Library) -> Builder {
        Builder {
            library: library.clone(),
            metrics: Vec::new(),
            sets: Vec::new(),
            levels: 1,
            max_ranges: 256,
        }
    }

    getters! {
        /// The metrics and their passes.
        plan: &Plan = plan;
        /// The metrics of this device.
        host: &Host = host;
    }

    /// The metrics of the sets that this chip lacks.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// The number of times that [`measure`](Self::measure) runs the work: the passes of the plan
    /// for each level of ranges.
    pub fn runs(&self) -> usize {
        self.plan.passes() * usize::from(self.levels)
    }

    /// Runs the work and counts over the ranges that it opens.
    ///
    /// The work runs [`runs`](Self::runs) times, so it should do the same each time. The ranges are
    /// checked to be the same; the launches in them are not. Each run starts with the memory that
    /// the previous one left. Reserving and releasing the counters takes some 350 ms besides the
    /// runs (H200).
    ///
    /// # Errors
    ///
    /// The ranges differ from run to run, none was opened, or one was left open. The context is not
    /// current on this thread. A [`Collector`](crate::Collector) runs: beside it the counts would
    /// be wrong. [`is_permission`](Error::is_permission), [`is_busy`](Error::is_busy),
    /// [`is_unsupported`](Error::is_unsupported): CUPTI refuses; the text contains the remedy.
    pub fn measure(&self, work: impl FnMut(&Ranges)) -> Result<Measured, Error> {
        self.plan.measured(&self.collect(work)?)
    }

    /// Measures as [`measure`](Self::measure) does, but returns the raw counts: for storage, and
    /// for [`Host::evaluate`] on a machine without a GPU.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure).
    pub fn collect(&self, mut work: impl FnMut(&Ranges)) -> Result<CounterData, Error> {
        let _turn = turn()?;
        // While kernels are recorded, instruction counts are 0 and hardware counts too high (13.0.1
        // on an H200).
        let _collector = CollectorLease::take_from_injected()?;
        let mut object = self.take(USER_RANGES, self.levels)?;
        let mut first: Option<Run> = None;
        let most = self.runs();
        let mut runs = 0;
        loop {
            object.start()?;
            let ranges = Ranges::new(self, object);
            work(&ranges);
            let (given_back, run) = ranges.end();
            let Some(given_back) = given_back else {
                return Err(Error::misuse("the run ended twice"));
            };
            object = given_back;
            let stopped = object.stop();
            // The run's error has precedence, since it may make CUPTI refuse the stop.
            let run = run?;
            let stopped = stopped?;
            runs += 1;
            match &first {
                None => first = Some(run),
                Some(first) => first.is_like(&run, runs)?,
            }
            if stopped.is_last {
                break;
            }
            if runs >= most {
                return Err(Error::misuse(format!(
                    "CUPTI needs more than the {most} passes that it planned (it is at pass {} of level {}); \
                     request fewer metrics or one level",
                    stopped.pass, stopped.level
                )));
            }
        }
        let run = first.unwrap_or_default();
        self.read(object, run, runs)
    }

    /// Runs the work once and counts over the ranges that it opens. Also returns the work's result.
    ///
    /// # Errors
    ///
    /// More than one run is needed; nothing was run. Otherwise as [`measure`](Self::measure).
    pub fn measure_once<R>(&self, work: impl FnOnce(&Ranges) -> R) -> Result<(R, Measured), Error> {
        if self.runs() > 1 {
            return Err(Error::new(Kind::Passes { needed: self.runs() }));
        }
        let (mut work, mut result) = (Some(work), None);
        let measured = self.measure(|ranges| {
            if let Some(work) = work.take() {
                result = Some(work(ranges));
            }
        })?;
        match result {
            Some(result) => Ok((result, measured)),
            None => Err(Error::new(Kind::Passes { needed: 2 })),
        }
    }

    /// Runs the work once and counts each kernel by itself. CUPTI serialises kernels and replays
    /// each for every pass, with its memory restored: kernels that wait for other running kernels
    /// never end. The ranges are named by the order of the kernels, from 0.
    ///
    /// # Errors
    ///
    /// As [`measure`](Self::measure), except for errors about ranges. A CUPTI older than 13.0
    /// counted nothing: 12.8 returns no kernel.
    pub fn measure_kernels<R>(&self, work: impl FnOnce() -> R) -> Result<(R, Measured), Error> {
        let (result, data) = self.collect_kernels(work)?;
        Ok((result, self.plan.measured(&data)?))
    }

    /// Measures as [`measure_kernels`](Self::measure_kernels) does, but returns the raw counts.
    ///
    /// # Errors
    ///
    /// As [`measure_kernels`](Self::measure_kernels).
    pub fn collect_kernels<R>(&self, work: impl FnOnce() -> R) -> Result<(R, CounterData), Error> {
        let _turn = turn()?;
        let _collector = CollectorLease::take_from_injected()?;
        let mut object = self.take(EACH_KERNEL, 1)?;
        object.start()?;
        let result = work();
        self.contexts.synchronize()?;
        object.stop()?;
        let (dropped, data) = object.decode()?;
        let count = self.api.count(data)?;
        // The image of 12.8 had room and no range (on an H200).
        if count == 0 && dropped == 0 && self.host.version().cuda_release() < (13, 0) {
            return Err(Error::misuse(format!(
                "CUPTI {} counted no kernel; if the work launched some, use 13.0 or later, or count over ranges",
                self.host.version()
            )));
        }
        let mut ranges = Vec::with_capacity(count);
        for index in 0..count {
            let name = self.api.name(data, index)?;
            ranges.push(Opened { name, parent: None, level: 0, values: None });
        }
        let places = (0..count).collect();
        let run = Run { opened: ranges, dropped, too_deep: 0 };
        Ok((result, self.data(object, run, places, 1)))
    }

    fn take(&self, mode: Mode, levels: u16) -> Result<RangeObject, Error> {
        self.check_context()?;
        let mut object = RangeObject::enable(self.api, self.context)?;
        let (names, image) = (&self.plan.names, &self.plan.image);
        object.configure(mode, names, image, self.max_ranges, levels)?;
        Ok(object)
    }

    fn check_context(&self) -> Result<(), Error> {
        match self.contexts.current()? {
            Some((context, _)) if context == self.context => Ok(()),
            _ => Err(Error::misuse(
                "the CUDA context that is counted is not current on this thread: make it so, or build the profiler \
                 where it is",
            )),
        }
    }

    /// Reads the counts and matches CUPTI's ranges to the opened ones.
    fn read(
        &self,
        mut object: RangeObject,
        mut run: Run,
        runs: usize,
    ) -> Result<CounterData, Error> {
        let (lost, data) = object.decode()?;
        let count = self.api.count(data)?;
        let mut places = Vec::with_capacity(count);
        let mut is_counted = vec![false; run.opened.len()];
        for index in 0..count {
            let path = self.api.name(data, index)?;
            let own = path.rsplit('/').next().and_then(|number| number.parse::<usize>().ok());
            let Some(own) = own.filter(|own| *own < run.opened.len()) else {
                return Err(Error::misuse(format!(
                    "CUPTI counted a range {path:?} that was not opened; this is a defect"
                )));
            };
            places.push(own);
            is_counted[own] = true;
        }
        let missing = is_counted.iter().filter(|is_counted| !**is_counted).count();
        run.dropped += missing.max(lost);
        Ok(self.data(object, run, places, runs))
    }

    fn data(&self, object: RangeObject, run: Run, places: Vec<usize>, runs: usize) -> CounterData {
        let opened = Measured {
            chip: self.plan.chip().to_owned(),
            passes: self.plan.passes(),
            runs,
            dropped: run.dropped,
            too_deep: run.too_deep,
            metrics: self.plan.metrics().to_vec(),
            ranges: run.opened,
        };
        CounterData { opened, version: self.host.version(), places, image: object.into_data() }
    }
}

/// Opens ranges in a measurement, on the measuring thread. Cheap to clone; does nothing after the
/// run.
#[derive(Clone)]
pub struct Ranges {
    shared: Rc<Shared>,
}

struct Shared {
    contexts: Contexts,
    levels: usize,
    max_ranges: usize,
    state: RefCell<State>,
}

struct State {
    /// `None` after the run.
    object: Option<RangeObject>,
    run: Run,
    /// The open ranges, the innermost last; `None` for ranges that are not counted.
    open: Vec<Option<usize>>,
    /// The first error.
    error: Option<Error>,
}

/// The ranges of a run.
#[derive(Default)]
struct Run {
    opened: Vec<Opened>,
    dropped: usize,
    too_deep: usize,
}

impl Run {
    fn is_like(&self, other: &Self, runs: usize) -> Result<(), Error> {
        let same = self.opened == other.opened
            && (self.dropped, self.too_deep) == (other.dropped, other.too_deep);
        if same {
            return Ok(());
        }
        let at = self.opened.iter().zip(&other.opened).position(|(a, b)| a != b);
        let at = at.unwrap_or_else(|| self.opened.len().min(other.opened.len()));
        let name = |run: &Self| match run.opened.get(at) {
            Some(opened) => format!("{:?}", opened.name),
            None => "no more".to_owned(),
        };
        Err(Error::misuse(format!(
            "the work has to open the same ranges each time it runs, and did not: the one at {at} was {} in the first \
             run and {} in run {runs}; request metrics that fit in one pass, or make the work repeatable",
            name(self),
            name(other)
        )))
    }
}

impl Ranges {
    fn new(profiler: &RangeProfiler, object: RangeObject) -> Self {
        let state =
            State { object: Some(object), run: Run::default(), open: Vec::new(), error: None };
        Self {
            shared: Rc::new(Shared {
                contexts: profiler.contexts,
                levels: profiler.levels.into(),
                max_ranges: profiler.max_ranges,
                state: RefCell::new(state),
            }),
        }
    }

    /// Opens a range, which ends when the guard is dropped. Errors are returned by the measurement.
    #[must_use = "the range ends when this is dropped"]
    pub fn enter(&self, name: impl Into<String>) -> OpenRange {
        let shared = &*self.shared;
        // The caller's code may open ranges itself.
        let name = name.into();
        let state = &mut *shared.state.borrow_mut();
        let depth = state.open.len();
        let id = if depth >= shared.levels {
            state.run.too_deep += 1;
            None
        } else if state.run.opened.len() >= shared.max_ranges {
            state.run.dropped += 1;
            None
        } else {
            state.begin(name, shared)
        };
        state.open.push(id);
        OpenRange { shared: self.shared.clone(), depth }
    }

    /// Runs the work in a range.
    pub fn run_in<R>(&self, name: impl Into<String>, work: impl FnOnce() -> R) -> R {
        let _range = self.enter(name);
        work()
    }

    /// Ends the run: returns the object, and the opened ranges.
    fn end(self) -> (Option<RangeObject>, Result<Run, Error>) {
        let state = &mut *self.shared.state.borrow_mut();
        let left = state.open.len();
        state.leave(0, &self.shared);
        let object = state.object.take();
        let run = std::mem::take(&mut state.run);
        let error = match state.error.take() {
            None if left > 0 => Some(Error::misuse(format!(
                "{left} ranges were left open at the end of the work; drop their guards"
            ))),
            None if run.opened.is_empty() => Some(Error::misuse(
                "the work opened no range, so nothing was counted: put it into Ranges::within",
            )),
            error => error,
        };
        (object, error.map_or(Ok(run), Err))
    }
}

impl State {
    /// The number of the opened range; `None` on an error.
    fn begin(&mut self, name: String, shared: &Shared) -> Option<usize> {
        let object = self.object.as_mut()?;
        if self.error.is_some() {
            return None;
        }
        let id = self.run.opened.len();
        // CUPTI merges ranges of one name, so each is named by its number.
        let number = CString::new(id.to_string()).unwrap_or_default();
        match shared.contexts.synchronize().and_then(|()| object.push(&number)) {
            Ok(()) => {
                let parent = self.open.iter().rev().find_map(|open| *open);
                let level = self.open.len();
                self.run.opened.push(Opened { name, parent, level, values: None });
                Some(id)
            }
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    /// Ends all ranges down to this depth, as CUPTI's stack requires.
    fn leave(&mut self, depth: usize, shared: &Shared) {
        while self.open.len() > depth {
            let is_counted = self.open.pop().flatten().is_some();
            let Some(object) = self.object.as_mut().filter(|_| is_counted) else { continue };
            let ended = shared.contexts.synchronize().and_then(|()| object.pop());
            if let Err(error) = ended {
                self.error.get_or_insert(error);
            }
        }
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranges").finish_non_exhaustive()
    }
}

/// An open range; ends when dropped.
#[must_use = "the range ends when this is dropped"]
pub struct OpenRange {
    shared: Rc<Shared>,
    depth: usize,
}

impl fmt::Debug for OpenRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRange").finish_non_exhaustive()
    }
}

impl Drop for OpenRange {
    fn drop(&mut self) {
        let state = &mut *self.shared.state.borrow_mut();
        if state.object.is_some() && state.open.len() != self.depth + 1 {
            let error = || Error::misuse("ranges have to end in the reverse order of their begin");
            state.error.get_or_insert_with(error);
        }
        state.leave(self.depth, &self.shared);
    }
}
