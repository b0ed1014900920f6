//! Options of a run, as values and as environment variables.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Kind};
use crate::modes::{AlwaysOn, KeepLast, Triggers};
use crate::start_stop::{Start, Stop, range_name, seconds};

/// The variable with the absolute path of the run folder; without it the library stays dormant.
pub const RUN_VARIABLE: &str = "GPUPROF_RUN";
/// The variable with a [`Start`].
pub const START_VARIABLE: &str = "GPUPROF_START";
/// The variable with a [`Stop`].
pub const STOP_VARIABLE: &str = "GPUPROF_STOP";
/// The variable with [`AlwaysOn`].
pub const ALWAYS_ON_VARIABLE: &str = "GPUPROF_ALWAYS_ON";
/// The variable with a [`KeepLast`].
pub const KEEP_LAST_VARIABLE: &str = "GPUPROF_KEEP_LAST";
/// The variable with [`Triggers`].
pub const TRIGGERS_VARIABLE: &str = "GPUPROF_TRIGGERS";
/// The variable that has each launch of a graph recorded as one interval: `whole`.
pub const GRAPHS_VARIABLE: &str = "GPUPROF_GRAPHS";
/// The variable with the age in seconds of a thread's last launch from which the next one gets its stack.
pub const STACKS_VARIABLE: &str = "GPUPROF_STACKS";
/// The variable with [`HostSamples`].
pub const HOST_SAMPLES_VARIABLE: &str = "GPUPROF_HOST_SAMPLES";
/// The variable that sends messages of the library to standard error: `stderr`.
pub const LOG_VARIABLE: &str = "GPUPROF_LOG";

/// The options of a run, which its processes inherit as environment variables.
///
/// ```
/// use gpuprof_control::{Options, Start};
///
/// let mut options = Options::new("/data/train.gpurun");
/// options.start = Start::Range("step".to_owned());
/// let variables = options.variables()?;
/// let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
/// assert_eq!(Options::from_variables(get)?, Some(options));
/// # Ok::<(), gpuprof_control::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The run folder, an absolute path.
    pub run: PathBuf,
    /// When recording starts.
    pub start: Start,
    /// When it stops before the process ends.
    pub stop: Option<Stop>,
    /// Windows drawn at random within a budget.
    pub always_on: Option<AlwaysOn>,
    /// Keep the last part in memory, instead of writing everything.
    pub keep_last: Option<KeepLast>,
    /// What has the last part written.
    pub triggers: Triggers,
    /// Record each launch of a graph as one interval, for the whole run.
    pub whole_graphs: bool,
    /// Take the stack of a thread at a launch, if it launched nothing for this long.
    pub stacks: Option<Duration>,
    /// Sample what threads do between such launches.
    pub host_samples: Option<HostSamples>,
    /// Whether the library writes messages to standard error.
    pub log_to_stderr: bool,
}

/// How threads are sampled. As text: `perf`, `timers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostSamples {
    /// By `perf_event_open` where it is permitted, else by the system calls that threads wait in.
    Perf,
    /// The same, but running threads by timers with signals where `perf_event_open` is not permitted.
    Timers,
}

impl Options {
    /// Recording from the first CUDA call to the end of the process.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        Self {
            run: run.into(),
            start: Start::Now,
            stop: None,
            always_on: None,
            keep_last: None,
            triggers: Triggers::default(),
            whole_graphs: false,
            stacks: None,
            host_samples: None,
            log_to_stderr: false,
        }
    }

    /// The options in the environment of this process, `None` without [`RUN_VARIABLE`].
    ///
    /// # Errors
    /// Those of [`from_variables`](Self::from_variables).
    pub fn from_environment() -> Result<Option<Self>, Error> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// The options in these variables, `None` without [`RUN_VARIABLE`]. An empty variable counts
    /// as absent.
    ///
    /// # Errors
    /// An invalid value; the message names the variable.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let Some(run) = text_of(RUN_VARIABLE, &get)? else { return Ok(None) };
        let mut options = Self::new(run);
        options.start = parsed(START_VARIABLE, &get)?.unwrap_or_default();
        options.stop = parsed(STOP_VARIABLE, &get)?;
        options.always_on = parsed(ALWAYS_ON_VARIABLE, &get)?;
        options.keep_last = parsed(KEEP_LAST_VARIABLE, &get)?;
        options.triggers = parsed(TRIGGERS_VARIABLE, &get)?.unwrap_or_default();
        options.whole_graphs = is_set(GRAPHS_VARIABLE, "whole", &get)?;
        if let Some(age) = text_of(STACKS_VARIABLE, &get)? {
            options.stacks =
                Some(seconds(&age).map_err(|why| invalid(STACKS_VARIABLE, &age, why))?);
        }
        options.host_samples = parsed(HOST_SAMPLES_VARIABLE, &get)?;
        options.log_to_stderr = is_set(LOG_VARIABLE, "stderr", &get)?;
        options.check()?;
        Ok(Some(options))
    }

    /// Every variable of this crate with its value; `None` for one to be removed.
    ///
    /// # Errors
    /// Options that contradict each other, and a run folder with a relative path or one that is
    /// not UTF-8.
    pub fn variables(&self) -> Result<[(&'static str, Option<OsString>); 10], Error> {
        self.check()?;
        Ok([
            (RUN_VARIABLE, Some(self.run.clone().into())),
            (START_VARIABLE, Some(self.start.to_string().into())),
            (STOP_VARIABLE, self.stop.map(|stop| stop.to_string().into())),
            (ALWAYS_ON_VARIABLE, self.always_on.map(|settings| settings.to_string().into())),
            (KEEP_LAST_VARIABLE, self.keep_last.map(|part| part.to_string().into())),
            (
                TRIGGERS_VARIABLE,
                (!self.triggers.is_empty()).then(|| self.triggers.to_string().into()),
            ),
            (GRAPHS_VARIABLE, self.whole_graphs.then(|| "whole".into())),
            (STACKS_VARIABLE, self.stacks.map(|age| age.as_secs_f64().to_string().into())),
            (HOST_SAMPLES_VARIABLE, self.host_samples.map(|source| source.to_string().into())),
            (LOG_VARIABLE, self.log_to_stderr.then(|| "stderr".into())),
        ])
    }

    fn check(&self) -> Result<(), Error> {
        let run = self.run.to_string_lossy();
        if self.run.to_str().is_none_or(|run| run.contains('\0')) {
            return Err(invalid(RUN_VARIABLE, &run, "the path is not UTF-8".to_owned()));
        }
        if !self.run.is_absolute() {
            let why = "the path of the run folder is not absolute".to_owned();
            return Err(invalid(RUN_VARIABLE, &run, why));
        }
        if let Start::Range(name) = &self.start
            && let Err(why) = range_name(name)
        {
            return Err(invalid(START_VARIABLE, &self.start.to_string(), why));
        }
        self.check_modes()?;
        if let Some(source) = self.host_samples.filter(|_| self.stacks.is_none()) {
            let why = format!(
                "samples are of the gaps whose ends have stacks: set {STACKS_VARIABLE}, too"
            );
            return Err(invalid(HOST_SAMPLES_VARIABLE, &source.to_string(), why));
        }
        match (self.stop, &self.start) {
            (Some(stop @ Stop::Ranges(_)), start) if !matches!(start, Start::Range(_)) => {
                let why = format!("ranges are counted only with {START_VARIABLE}=range=NAME");
                Err(invalid(STOP_VARIABLE, &stop.to_string(), why))
            }
            _ => Ok(()),
        }
    }
}

impl Options {
    /// Modes that exclude each other, or parts of a run.
    fn check_modes(&self) -> Result<(), Error> {
        let is_stopped = self.stop.is_some();
        if let Some(settings) = self.always_on {
            let of =
                |why: &str| Err(invalid(ALWAYS_ON_VARIABLE, &settings.to_string(), why.to_owned()));
            if is_stopped || !matches!(self.start, Start::Now | Start::Range(_)) {
                return of(
                    "windows are drawn for the whole run, of all time or of GPUPROF_START=range=NAME: \
                     leave out other starts and GPUPROF_STOP",
                );
            }
            if settings.slow.is_some() && !matches!(self.start, Start::Range(_)) {
                return of("slow units are ranges: name them with GPUPROF_START=range=NAME");
            }
            if settings.baseline.is_some() && !matches!(self.start, Start::Range(_)) {
                return of("what is timed are ranges: name them with GPUPROF_START=range=NAME");
            }
            if settings.budget.is_none() && settings.has_settings_of_windows() {
                return of(
                    "without windows there is nothing to draw: leave out rate, slow, watch and peak-launches",
                );
            }
        }
        if let Some(part) = self.keep_last {
            let is_whole = matches!(self.start, Start::Now | Start::Wait | Start::After(_));
            if self.always_on.is_some() || is_stopped || !is_whole {
                let why = "the last part is that of the whole run: leave out GPUPROF_ALWAYS_ON, GPUPROF_STOP \
                           and starts by ranges or calls";
                return Err(invalid(KEEP_LAST_VARIABLE, &part.to_string(), why.to_owned()));
            }
        } else if !self.triggers.is_empty() {
            let why = format!("there is no last part to be written: give {KEEP_LAST_VARIABLE}");
            return Err(invalid(TRIGGERS_VARIABLE, &self.triggers.to_string(), why));
        }
        if let Err(why) = self.triggers.check() {
            return Err(invalid(TRIGGERS_VARIABLE, &self.triggers.to_string(), why));
        }
        if self.whole_graphs && (self.start != Start::Now || is_stopped || self.always_on.is_some())
        {
            let why = "graphs are intervals for a whole run: CUPTI loses records where this is switched; \
                       leave out GPUPROF_START, GPUPROF_STOP and GPUPROF_ALWAYS_ON";
            return Err(invalid(GRAPHS_VARIABLE, "whole", why.to_owned()));
        }
        Ok(())
    }
}

/// The value of a variable, if it is set.
fn parsed<T: FromStr<Err = String>>(
    name: &'static str,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<T>, Error> {
    let Some(text) = text_of(name, get)? else { return Ok(None) };
    text.parse().map(Some).map_err(|why| invalid(name, &text, why))
}

/// Whether a variable with one known value is set.
fn is_set(
    name: &'static str,
    known: &str,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<bool, Error> {
    match text_of(name, get)? {
        None => Ok(false),
        Some(value) if value == known => Ok(true),
        Some(value) => Err(invalid(name, &value, format!("the one known value is {known}"))),
    }
}

fn text_of(
    name: &'static str,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>, Error> {
    let Some(value) = get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|value| {
        invalid(name, &value.to_string_lossy(), "the value is not UTF-8".to_owned())
    })
}

fn invalid(name: &'static str, value: &str, why: String) -> Error {
    Error::new(Kind::Variable { name, value: value.to_owned(), why })
}

impl FromStr for HostSamples {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "perf" => Ok(Self::Perf),
            "timers" => Ok(Self::Timers),
            _ => Err("give perf or timers".to_owned()),
        }
    }
}

impl fmt::Display for HostSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perf => "perf",
            Self::Timers => "timers",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::Budget;
    use std::num::NonZeroU32;
    use std::os::unix::ffi::OsStringExt as _;

    fn parsed(variables: &[(&str, &str)]) -> Result<Option<Options>, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        };
        Options::from_variables(get).map_err(|error| error.to_string())
    }

    #[test]
    fn options_round_trip_through_variables() {
        let ranges = Stop::Ranges(NonZeroU32::new(3).unwrap());
        let second = Duration::from_millis(1500);
        for (start, stop) in [
            (Start::Now, None),
            (Start::Wait, Some(Stop::Duration(second))),
            (Start::After(Duration::ZERO), None),
            (Start::After(Duration::from_micros(100_001)), Some(Stop::Duration(second))),
            (Start::Range("a=b,c d\u{e4}".to_owned()), Some(ranges)),
            (Start::CudaProfilerApi, None),
        ] {
            let options =
                Options { start, stop, log_to_stderr: stop.is_some(), ..Options::new("/r") };
            let variables = options.variables().unwrap();
            let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
            assert_eq!(Options::from_variables(get).unwrap(), Some(options));
        }
        let mut sampled = Options::new("/r");
        sampled.always_on = Some("0.5 %,watch=1".parse().unwrap());
        sampled.stacks = Some(Duration::from_micros(20));
        sampled.host_samples = Some(HostSamples::Timers);
        let variables = sampled.variables().unwrap();
        assert!(variables.contains(&(ALWAYS_ON_VARIABLE, Some("0.5%,watch=1".into()))));
        assert!(variables.contains(&(STACKS_VARIABLE, Some("0.00002".into()))));
        assert!(variables.contains(&(HOST_SAMPLES_VARIABLE, Some("timers".into()))));
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
        assert_eq!(Options::from_variables(get).unwrap(), Some(sampled));
        let mut kept = Options { whole_graphs: true, ..Options::new("/r") };
        kept.keep_last = Some(KeepLast::Time(second));
        kept.triggers.slow.push(("request".to_owned(), second));
        let variables = kept.variables().unwrap();
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
        assert_eq!(Options::from_variables(get).unwrap(), Some(kept));
    }

    #[test]
    fn without_a_run_folder_there_are_no_options() {
        assert_eq!(parsed(&[]), Ok(None));
        assert_eq!(parsed(&[(RUN_VARIABLE, ""), (START_VARIABLE, "nonsense")]), Ok(None));
        let defaults = parsed(&[(RUN_VARIABLE, "/r"), (START_VARIABLE, "")]);
        assert_eq!(defaults, Ok(Some(Options::new("/r"))));
    }

    #[test]
    fn errors_name_the_variable_and_the_value() {
        for (name, value, why) in [
            (RUN_VARIABLE, "relative", "not absolute"),
            (START_VARIABLE, "later", "give now, wait,"),
            (START_VARIABLE, "now=1", "give now, wait,"),
            (START_VARIABLE, "after=-1", "not a number of seconds"),
            (START_VARIABLE, "after=NaN", "not a number of seconds"),
            (START_VARIABLE, "after=1e300", "not a number of seconds"),
            (START_VARIABLE, "after", "give now, wait,"),
            (START_VARIABLE, "range=", "is empty"),
            (STOP_VARIABLE, "duration=0", "above 0"),
            (STOP_VARIABLE, "ranges=0", "from 1 on"),
            (STOP_VARIABLE, "ranges=2", "only with GPUPROF_START=range=NAME"),
            (STOP_VARIABLE, "never", "give duration=SECONDS"),
            (ALWAYS_ON_VARIABLE, "3", "as 3%"),
            (ALWAYS_ON_VARIABLE, "101%", "from 0% to 100%"),
            (ALWAYS_ON_VARIABLE, "NaN%", "from 0% to 100%"),
            (STACKS_VARIABLE, "20us", "not a number of seconds"),
            (HOST_SAMPLES_VARIABLE, "signals", "give perf or timers"),
            (HOST_SAMPLES_VARIABLE, "perf", "set GPUPROF_STACKS, too"),
            (LOG_VARIABLE, "stdout", "the one known value is stderr"),
            (KEEP_LAST_VARIABLE, "10s", "give seconds=SECONDS"),
            (TRIGGERS_VARIABLE, "slow=1:a", "give GPUPROF_KEEP_LAST"),
            (TRIGGERS_VARIABLE, "panic", "give error or slow=SECONDS:NAME"),
            (GRAPHS_VARIABLE, "some", "the one known value is whole"),
        ] {
            let variables = [(name, value), (RUN_VARIABLE, "/r")];
            let error = parsed(&variables).unwrap_err();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn values_that_are_not_utf8_are_refused() {
        let get = |name: &str| (name == RUN_VARIABLE).then(|| OsString::from_vec(b"/\xff".into()));
        let error = Options::from_variables(get).unwrap_err().to_string();
        assert!(error.starts_with("GPUPROF_RUN=/") && error.contains("not UTF-8"), "{error}");
        let options = Options::new(PathBuf::from(OsString::from_vec(b"/\xff".into())));
        assert!(options.variables().is_err());
    }

    #[test]
    fn contradictions_are_refused_before_the_program_starts() {
        let mut options = Options::new("/r");
        options.stop = Some(Stop::Ranges(NonZeroU32::MIN));
        assert!(options.variables().unwrap_err().to_string().contains("GPUPROF_STOP=ranges=1"));
        options.start = Start::Range("a\0".to_owned());
        assert!(options.variables().unwrap_err().to_string().contains("NUL"));
        for (start, stop) in
            [(Start::Wait, None), (Start::Now, Some(Stop::Ranges(NonZeroU32::MIN)))]
        {
            let always_on = Some(AlwaysOn::new(Some(Budget::default())));
            let options = Options { start, stop, always_on, ..Options::new("/r") };
            let error = options.variables().unwrap_err().to_string();
            assert!(error.starts_with("GPUPROF_ALWAYS_ON=3%: "), "{error}");
        }
        for (variables, why) in [
            (&[(ALWAYS_ON_VARIABLE, "3%,slow=1")][..], "slow units are ranges"),
            (&[(ALWAYS_ON_VARIABLE, "calls-only,rate=0.1")], "nothing to draw"),
            (&[(ALWAYS_ON_VARIABLE, "3%,baseline=1")], "what is timed are ranges"),
            (&[(KEEP_LAST_VARIABLE, "seconds=1"), (ALWAYS_ON_VARIABLE, "3%")], "the last part"),
            (&[(KEEP_LAST_VARIABLE, "seconds=1"), (START_VARIABLE, "range=a")], "the last part"),
            (&[(GRAPHS_VARIABLE, "whole"), (ALWAYS_ON_VARIABLE, "3%")], "for a whole run"),
            (&[(GRAPHS_VARIABLE, "whole"), (START_VARIABLE, "wait")], "for a whole run"),
        ] {
            let error = parsed(&[variables, &[(RUN_VARIABLE, "/r")]].concat()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
