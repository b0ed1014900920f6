//! Options of a run, as values and as environment variables.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use profiler_base::{from_variant_text, named_variants};
use profiler_core::session::DeviceData;

use crate::error::{Error, Kind};
use crate::modes::{AlwaysOn, KeepLast, Triggers};
use crate::start_stop::{Start, Stop, range_name, seconds};

/// The variable with the absolute path of the run folder. Without this variable the library stays
/// dormant.
pub const RUN_VARIABLE: &str = "GPUPROF_RUN";
/// The variable with all other options, as `KEY=VALUE,...`.
///
/// | key | value |
/// | --- | --- |
/// | `start` | a [`Start`] |
/// | `stop` | a [`Stop`] |
/// | `always-on` | [`AlwaysOn`], whose settings are keys of their own |
/// | `keep-last` | a [`KeepLast`] |
/// | `trigger` | one of [`Triggers`]; may be repeated |
/// | `graphs` | `whole`: each launch of a graph is recorded as one interval |
/// | `stacks` | the age in seconds of a thread's last launch from which the next one gets its stack |
/// | `host-samples` | [`HostSamples`] |
/// | `lines` | [`Lines`] |
/// | `sample`, `nvml`, `devices`, `memory` | [`DeviceData`] |
/// | `cubins` | `keep`: recordings hold the cubins with line tables |
/// | `log` | `stderr`: messages of the library go to standard error |
///
/// In a value `%2C` is a comma, and `%` with two hexadecimal digits is any byte.
pub const OPTIONS_VARIABLE: &str = "GPUPROF_OPTIONS";

/// Variables of earlier versions, and the keys that replaced them.
const REPLACED: [(&str, &str); 9] = [
    ("GPUPROF_START", "start"),
    ("GPUPROF_STOP", "stop"),
    ("GPUPROF_ALWAYS_ON", "always-on"),
    ("GPUPROF_KEEP_LAST", "keep-last"),
    ("GPUPROF_TRIGGERS", "trigger"),
    ("GPUPROF_GRAPHS", "graphs"),
    ("GPUPROF_STACKS", "stacks"),
    ("GPUPROF_HOST_SAMPLES", "host-samples"),
    ("GPUPROF_LOG", "log"),
];
/// Keys of [`AlwaysOn`] beside the budget.
const ALWAYS_ON_KEYS: [&str; 2] = ["rate", "slow"];

/// The options of a run. Its processes inherit them as environment variables.
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
    /// The condition that stops recording before the process ends.
    pub stop: Option<Stop>,
    /// Records windows drawn at random within a budget.
    pub always_on: Option<AlwaysOn>,
    /// Retains the last part in memory instead of writing everything.
    pub keep_last: Option<KeepLast>,
    /// Events that write the retained part to a file.
    pub triggers: Triggers,
    /// Records each launch of a graph as one interval, for the whole run.
    pub whole_graphs: bool,
    /// Captures the stack of a thread at a launch if the thread launched nothing for this long.
    pub stacks: Option<Duration>,
    /// Samples threads between such launches.
    pub host_samples: Option<HostSamples>,
    /// Samples the instructions of kernels.
    pub lines: Option<Lines>,
    /// Keeps cubins with line tables.
    pub keep_cubins: bool,
    /// Samples the device, and records its memory.
    pub device_data: DeviceData,
    /// True if the library writes messages to standard error.
    pub log_to_stderr: bool,
}

named_variants! {
    /// The method that samples threads. As text: `perf`, `timers`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum HostSamples {
        /// Samples with `perf_event_open` where permitted. Elsewhere records the system calls in which
        /// threads wait.
        Perf = "perf",
        /// Like `Perf`, but where `perf_event_open` is not permitted, samples running threads with
        /// timers and signals.
        Timers = "timers",
    }
}

/// The mode of instruction samples. As text: the cycles between two samples, or `serialized`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lines {
    /// Each multiprocessor takes a sample at every so many cycles, while kernels run as they would.
    Every(u32),
    /// Kernels run one by one, and each sample has its launch.
    Serialized,
}

const SERIALIZED: &str = "serialized";

impl Options {
    /// Creates options that record from the first CUDA call to the end of the process.
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
            lines: None,
            keep_cubins: false,
            device_data: DeviceData::default(),
            log_to_stderr: false,
        }
    }

    /// Reads the options from the environment of this process. Returns `None` without
    /// [`RUN_VARIABLE`].
    ///
    /// # Errors
    /// See [`from_variables`](Self::from_variables).
    pub fn from_environment() -> Result<Option<Self>, Error> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Reads the options from these variables. Returns `None` without [`RUN_VARIABLE`]. An empty
    /// variable counts as absent.
    ///
    /// # Errors
    /// An invalid value, an unknown or repeated key, or a variable of an earlier version. The
    /// message names the key or variable.
    pub fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let Some(run) = text_of(RUN_VARIABLE, &get)? else { return Ok(None) };
        for (name, key) in REPLACED {
            if let Some(value) = text_of(name, &get)? {
                let why = format!("give {key}=VALUE in {OPTIONS_VARIABLE} instead");
                return Err(invalid(name, &value, why));
            }
        }
        let mut options = Self::new(run);
        options.set(&text_of(OPTIONS_VARIABLE, &get)?.unwrap_or_default())?;
        options.check()?;
        Ok(Some(options))
    }

    /// Sets the options from the text of [`OPTIONS_VARIABLE`].
    fn set(&mut self, text: &str) -> Result<(), Error> {
        let (mut known, mut triggers, mut settings) = (Vec::new(), Vec::new(), Vec::new());
        let mut always_on = None;
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((key, value)) = entry.split_once('=') else {
                return Err(invalid(OPTIONS_VARIABLE, entry, KEYS.to_owned()));
            };
            let value = decoded(value);
            if key != "trigger" && known.contains(&key) {
                return Err(option(key, &value, "the key is given twice"));
            }
            known.push(key);
            match key {
                "start" => self.start = parsed(key, &value)?,
                "stop" => self.stop = Some(parsed(key, &value)?),
                "always-on" => always_on = Some(value),
                "keep-last" => self.keep_last = Some(parsed(key, &value)?),
                "trigger" => triggers.push(value),
                "graphs" => self.whole_graphs = is_the_one(key, &value, "whole")?,
                "stacks" => {
                    self.stacks = Some(seconds(&value).map_err(|why| option(key, &value, &why))?);
                }
                "host-samples" => self.host_samples = Some(parsed(key, &value)?),
                "lines" => self.lines = Some(parsed(key, &value)?),
                "cubins" => self.keep_cubins = is_the_one(key, &value, "keep")?,
                "log" => self.log_to_stderr = is_the_one(key, &value, "stderr")?,
                _ if ALWAYS_ON_KEYS.contains(&key) => settings.push(format!(",{key}={value}")),
                _ => match self.device_data.set(key, &value) {
                    Ok(true) => {}
                    Ok(false) => return Err(option(key, &value, KEYS)),
                    Err(why) => return Err(option(key, &value, &why)),
                },
            }
        }
        let settings = settings.concat();
        match always_on {
            Some(budget) => self.always_on = Some(parsed("always-on", &(budget + &settings))?),
            None if settings.is_empty() => {}
            None => {
                let why = "this is a setting of always-on: give always-on=BUDGET, too".to_owned();
                return Err(invalid(OPTIONS_VARIABLE, &settings[1..], why));
            }
        }
        self.triggers = parsed("trigger", &triggers.join("\n"))?;
        Ok(())
    }

    /// True if [`OPTIONS_VARIABLE`] of this process sends the library's messages to standard error.
    pub fn environment_logs_to_stderr() -> bool {
        let text = std::env::var(OPTIONS_VARIABLE).unwrap_or_default();
        text.split(',').any(|entry| entry.trim() == "log=stderr")
    }

    /// Every variable of this crate with its value. `None` removes a variable; all variables of
    /// earlier versions are removed.
    ///
    /// # Errors
    /// Contradictory options, or a run folder whose path is relative or not UTF-8.
    pub fn variables(&self) -> Result<Vec<(&'static str, Option<OsString>)>, Error> {
        self.check()?;
        let mut entries = vec![("start", encoded(&self.start.to_string()))];
        let mut add = |key, value: Option<String>| entries.extend(value.map(|value| (key, value)));
        add("stop", self.stop.map(|stop| stop.to_string()));
        // The settings of this mode are keys of their own.
        add("always-on", self.always_on.map(|settings| settings.to_string()));
        add("keep-last", self.keep_last.map(|part| part.to_string()));
        for trigger in self.triggers.to_string().lines() {
            add("trigger", Some(encoded(trigger)));
        }
        add("graphs", self.whole_graphs.then(|| "whole".to_owned()));
        add("stacks", self.stacks.map(|age| age.as_secs_f64().to_string()));
        add("host-samples", self.host_samples.map(|source| source.to_string()));
        add("lines", self.lines.map(|lines| lines.to_string()));
        for (key, value) in self.device_data.entries() {
            add(key, Some(value));
        }
        add("cubins", self.keep_cubins.then(|| "keep".to_owned()));
        add("log", self.log_to_stderr.then(|| "stderr".to_owned()));
        let entries: Vec<String> =
            entries.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut variables = vec![
            (RUN_VARIABLE, Some(self.run.clone().into())),
            (OPTIONS_VARIABLE, Some(entries.join(",").into())),
        ];
        variables.extend(REPLACED.map(|(name, _)| (name, None)));
        Ok(variables)
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
        if let Some(Err(why)) = self.start.range().map(range_name) {
            return Err(option("start", &self.start.to_string(), &why));
        }
        self.check_modes()?;
        if let Some(lines) = self.lines.filter(|_| self.always_on.is_some()) {
            let why = "instruction samples cannot begin and end with windows: leave out always-on";
            return Err(option("lines", &lines.to_string(), why));
        }
        let mut device_data = self.device_data.entries();
        if let Err((key, why)) = self.device_data.check() {
            let value = device_data.find(|of| of.0 == key).map_or(String::new(), |of| of.1);
            return Err(option(key, &value, &why));
        }
        if let Some((key, units)) = device_data.find(|of| of.0 == "sample" && self.lines.is_some())
        {
            let why =
                "samples of instructions and of counters at once were not tried: leave out lines";
            return Err(option(key, &units, why));
        }
        if self.keep_cubins && (self.lines.is_none() || self.keep_last.is_some()) {
            let why = "cubins belong to instruction samples of a whole run: add lines, and leave out \
                       keep-last";
            return Err(option("cubins", "keep", why));
        }
        if let Some(source) = self.host_samples.filter(|_| self.stacks.is_none()) {
            let why = "host samples need stacks: add stacks";
            return Err(option("host-samples", &source.to_string(), why));
        }
        match (self.stop, &self.start) {
            (Some(stop @ Stop::Ranges(_)), start) if !matches!(start, Start::Range(_)) => {
                let why = "ranges are counted only with start=range=NAME";
                Err(option("stop", &stop.to_string(), why))
            }
            _ => Ok(()),
        }
    }
}

impl Options {
    /// Refuses modes that exclude each other or limit recording to parts of a run.
    fn check_modes(&self) -> Result<(), Error> {
        let is_stopped = self.stop.is_some();
        if let Some(settings) = self.always_on {
            let of = |why: &str| Err(option("always-on", &settings.to_string(), why));
            if is_stopped || !matches!(self.start, Start::Now | Start::Range(_)) {
                return of(
                    "windows are drawn for the whole run, of all time or of start=range=NAME: \
                     leave out other starts and stop",
                );
            }
            if settings.slow.is_some() && !matches!(self.start, Start::Range(_)) {
                return of("slow units are ranges: name them with start=range=NAME");
            }
            if settings.budget.is_none() && settings.has_settings_of_windows() {
                return of("without windows no unit is drawn: leave out rate and slow");
            }
        }
        if let Some(part) = self.keep_last {
            let is_whole = matches!(self.start, Start::Now | Start::Wait | Start::After(_));
            if self.always_on.is_some() || is_stopped || !is_whole {
                let why = "the last part covers the whole run: leave out always-on, stop \
                           and starts by ranges or calls";
                return Err(option("keep-last", &part.to_string(), why));
            }
        } else if !self.triggers.is_empty() {
            let why = "triggers write the last part: add keep-last";
            return Err(option("trigger", &self.triggers.to_string(), why));
        }
        if let Err(why) = self.triggers.check() {
            return Err(option("trigger", &self.triggers.to_string(), &why));
        }
        if self.whole_graphs && (self.start != Start::Now || is_stopped || self.always_on.is_some())
        {
            let why = "graphs are intervals for a whole run: CUPTI loses records where this is switched; \
                       leave out start, stop and always-on";
            return Err(option("graphs", "whole", why));
        }
        Ok(())
    }
}

const KEYS: &str = "give KEY=VALUE, with commas between; keys are start, stop, always-on, rate, slow, \
                    keep-last, trigger, graphs, stacks, host-samples, lines, sample, nvml, memory, cubins and log";

fn parsed<T: FromStr<Err = String>>(key: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|why: String| option(key, value, &why))
}

/// Returns true for the only accepted value, and an error for any other.
fn is_the_one(key: &str, value: &str, known: &str) -> Result<bool, Error> {
    match value == known {
        true => Ok(true),
        false => Err(option(key, value, &format!("the one known value is {known}"))),
    }
}

/// Encodes each comma, and each `%` that looks like an encoded byte, as `%` and two digits.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for (at, letter) in value.char_indices() {
        match letter {
            ',' => text.push_str("%2C"),
            '%' if byte_at(value, at).is_some() => text.push_str("%25"),
            letter => text.push(letter),
        }
    }
    text
}

fn decoded(value: &str) -> String {
    let (mut bytes, mut at) = (Vec::new(), 0);
    while let Some(&byte) = value.as_bytes().get(at) {
        let encoded = byte_at(value, at);
        bytes.push(encoded.unwrap_or(byte));
        at += if encoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The byte encoded by `%` and two hexadecimal digits at this position.
fn byte_at(value: &str, at: usize) -> Option<u8> {
    let digits = value.as_bytes().get(at..at + 3)?.strip_prefix(b"%")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
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

/// The error for an invalid option in [`OPTIONS_VARIABLE`].
fn option(key: &str, value: &str, why: &str) -> Error {
    invalid(OPTIONS_VARIABLE, &format!("{key}={value}"), why.to_owned())
}

fn invalid(name: &'static str, value: &str, why: String) -> Error {
    Error::new(Kind::Variable { name, value: value.to_owned(), why })
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(cycles) => write!(f, "{cycles}"),
            Self::Serialized => f.write_str(SERIALIZED),
        }
    }
}

impl FromStr for Lines {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == SERIALIZED => Ok(Self::Serialized),
            Ok(cycles) if (1 << 5..=1 << 31).contains(&cycles) => Ok(Self::Every(cycles)),
            _ => Err("give a number of cycles from 32 to 2147483648, or serialized".to_owned()),
        }
    }
}

from_variant_text!(HostSamples, "give perf or timers");

#[cfg(test)]
mod tests {
    use profiler_core::session::Units;

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
            (Start::Range("a=b,c d\u{e4}%2c 3%".to_owned()), Some(ranges)),
            (Start::CudaProfilerApi, None),
        ] {
            let options =
                Options { start, stop, log_to_stderr: stop.is_some(), ..Options::new("/r") };
            let variables = options.variables().unwrap();
            let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
            assert_eq!(Options::from_variables(get).unwrap(), Some(options));
        }
        let mut sampled = Options::new("/r");
        sampled.always_on = Some("0.5 %,rate=0.2".parse().unwrap());
        sampled.stacks = Some(Duration::from_micros(20));
        sampled.host_samples = Some(HostSamples::Timers);
        let variables = sampled.variables().unwrap();
        let text = "start=now,always-on=0.5%,rate=0.2,stacks=0.00002,host-samples=timers";
        assert!(variables.contains(&(OPTIONS_VARIABLE, Some(text.into()))), "{variables:?}");
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
        assert_eq!(Options::from_variables(get).unwrap(), Some(sampled));
        let mut kept = Options { whole_graphs: true, ..Options::new("/r") };
        kept.lines = Some(Lines::Every(1 << 20));
        kept.keep_last = Some(KeepLast::Time(second));
        kept.triggers.slow.push(("request, %41".to_owned(), second));
        kept.triggers.on_error = true;
        let variables = kept.variables().unwrap();
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
        assert_eq!(Options::from_variables(get).unwrap(), Some(kept));
        let mut cubins = Options { keep_cubins: true, ..Options::new("/r") };
        cubins.lines = Some(Lines::Serialized);
        let variables = cubins.variables().unwrap();
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
        assert_eq!(Options::from_variables(get).unwrap(), Some(cubins));
        let mut device = Options::new("/r");
        (device.device_data.nvml, device.device_data.unified_memory) = (true, true);
        for units in [vec![Units::Utilization], vec![Units::Pcie, Units::Memory, Units::Nvlink]] {
            let data = &mut device.device_data;
            (data.sample, data.memory_records) = (units, !data.memory_records);
            data.devices = if data.memory_records { vec![3, 1] } else { Vec::new() };
            let variables = device.variables().unwrap();
            let get = |name: &str| variables.iter().find(|(known, _)| *known == name)?.1.clone();
            assert_eq!(Options::from_variables(get).unwrap(), Some(device.clone()));
        }
    }

    #[test]
    fn without_a_run_folder_there_are_no_options() {
        assert_eq!(parsed(&[]), Ok(None));
        assert_eq!(parsed(&[(RUN_VARIABLE, ""), (OPTIONS_VARIABLE, "nonsense")]), Ok(None));
        let defaults = parsed(&[(RUN_VARIABLE, "/r"), (OPTIONS_VARIABLE, " , ")]);
        assert_eq!(defaults, Ok(Some(Options::new("/r"))));
    }

    #[test]
    fn errors_name_the_option_and_the_value() {
        let of_run = parsed(&[(RUN_VARIABLE, "relative")]).unwrap_err();
        assert!(of_run.contains("not absolute"), "{of_run}");
        for (option, why) in [
            ("start=later", "give now, wait,"),
            ("start=now=1", "give now, wait,"),
            ("start=after=-1", "not a number of seconds"),
            ("start=after=NaN", "not a number of seconds"),
            ("start=after=1e300", "not a number of seconds"),
            ("start=after", "give now, wait,"),
            ("start=range=", "is empty"),
            ("stop=duration=0", "above 0"),
            ("stop=ranges=0", "from 1 on"),
            ("stop=ranges=2", "only with start=range=NAME"),
            ("stop=never", "give duration=SECONDS"),
            ("always-on=3", "as 3%"),
            ("always-on=101%", "from 0% to 100%"),
            ("always-on=NaN%", "from 0% to 100%"),
            ("stacks=20us", "not a number of seconds"),
            ("host-samples=signals", "give perf or timers"),
            ("host-samples=perf", "add stacks"),
            ("lines=16", "from 32 to"),
            ("lines=often", "or serialized"),
            ("sample=dram", "give utilization, memory, nvlink or pcie"),
            ("nvml=power", "the one known value is clocks"),
            ("memory=all", "give allocations, managed"),
            ("cubins=all", "the one known value is keep"),
            ("cubins=keep", "add lines"),
            ("log=stdout", "the one known value is stderr"),
            ("keep-last=10s", "give seconds=SECONDS"),
            ("trigger=slow=1:a", "add keep-last"),
            ("trigger=panic", "give error or slow=SECONDS:NAME"),
            ("graphs=some", "the one known value is whole"),
            ("rate=0.1", "give always-on=BUDGET, too"),
            ("speed=1", "keys are start, stop"),
            ("now", "give KEY=VALUE"),
        ] {
            let variables = [(OPTIONS_VARIABLE, option), (RUN_VARIABLE, "/r")];
            let error = parsed(&variables).unwrap_err();
            assert!(error.starts_with(&format!("GPUPROF_OPTIONS={option}: ")), "{error}");
            assert!(error.contains(why), "{error}");
        }
        let twice = parsed(&[(OPTIONS_VARIABLE, "start=now,start=wait"), (RUN_VARIABLE, "/r")]);
        assert!(twice.unwrap_err().contains("given twice"));
    }

    #[test]
    fn variables_of_earlier_versions_are_refused() {
        for (name, key) in REPLACED {
            let error = parsed(&[(RUN_VARIABLE, "/r"), (name, "x")]).unwrap_err();
            let expected = format!("{name}=x: give {key}=VALUE in GPUPROF_OPTIONS instead");
            assert_eq!(error, expected);
            assert!(Options::new("/r").variables().unwrap().contains(&(name, None)));
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
        assert!(
            options.variables().unwrap_err().to_string().contains("GPUPROF_OPTIONS=stop=ranges=1")
        );
        options.start = Start::Range("a\0".to_owned());
        assert!(options.variables().unwrap_err().to_string().contains("NUL"));
        for (start, stop) in
            [(Start::Wait, None), (Start::Now, Some(Stop::Ranges(NonZeroU32::MIN)))]
        {
            let always_on = Some(AlwaysOn::new(Some(Budget::default())));
            let options = Options { start, stop, always_on, ..Options::new("/r") };
            let error = options.variables().unwrap_err().to_string();
            assert!(error.starts_with("GPUPROF_OPTIONS=always-on=3%: "), "{error}");
        }
        for (options, why) in [
            ("always-on=3%,slow=1", "slow units are ranges"),
            ("always-on=calls-only,rate=0.1", "no unit is drawn"),
            ("always-on=3%,lines=serialized", "leave out always-on"),
            ("lines=65536,sample=memory+pcie", "leave out lines"),
            ("lines=65536,cubins=keep,keep-last=seconds=1", "leave out keep-last"),
            ("always-on=3%,baseline=1", "keys are start"),
            ("keep-last=seconds=1,always-on=3%", "the last part"),
            ("keep-last=seconds=1,start=range=a", "the last part"),
            ("graphs=whole,always-on=3%", "for a whole run"),
            ("graphs=whole,start=wait", "for a whole run"),
        ] {
            let error = parsed(&[(OPTIONS_VARIABLE, options), (RUN_VARIABLE, "/r")]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
