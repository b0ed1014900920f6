//! Profiling enabled by the environment variable `GPU_PROFILER`.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use profiler_base::replace;
use profiler_base::units::{MESSAGE_WIDTH, shortened};

use crate::error::Error;
use crate::profile::Profile;
use crate::session::device_data::{DeviceData, LOCAL_RANK_VARIABLES, Units};
use crate::session::profiler::{Profiler, ProfilerBuilder};
use crate::session::recording_file::RecordingFile;

/// A profile as text.
type TextOf = fn(&Profile) -> String;

const VARIABLE: &str = "GPU_PROFILER";
const HELP: &str = "write report, report=PATH, counts=PATH, json=PATH, save=PATH or record=PATH, sample, sample=UNITS, nvml=clocks, memory=KINDS, or several with commas between";

/// Profiles the program if the environment variable `GPU_PROFILER` is set, until the guard is
/// dropped, which writes the outputs. Call it first in `main` and keep the guard:
///
/// ```no_run
/// let _profiling = profiler_core::from_env();
/// // the rest of `main`, with its ranges
/// ```
///
/// ```sh
/// GPU_PROFILER=report ./program
/// GPU_PROFILER=report=run-%p.txt,save=run-%p.gpuprof ./program
/// ```
///
/// The variable holds a comma-separated list of:
///
/// - `report`: the report on standard error. `report=PATH`: to a file.
/// - `counts=PATH`: [`Profile::counts`].
/// - `json=PATH`: lines of JSON, only with `profiler_analysis::from_env`.
/// - `save=PATH`: the recording, for [`Profile::load`].
/// - `record=PATH`: the same, written while the program runs ([`Profiler::record_to`]): a killed
///   program leaves a truncated recording. Without other outputs it needs little memory.
/// - `sample=UNITS`, `nvml=clocks`, `devices=NUMBERS`, `memory=KINDS`: the options of [`DeviceData`]. `sample` alone is `sample=utilization`, with `nvml=clocks` if
///   that feature is on. They require one of the outputs. A sampler that cannot start is named on
///   standard error at the end, and the program is recorded without it.
///
/// `%p` in a path is the process id, so that processes of one program write different files. Paths
/// cannot contain commas. An existing file is replaced once the new one is complete; the file of
/// `record` is replaced at the start.
///
/// Without the variable this costs one look-up, and ranges cost the same as without a profiler. If
/// recording fails (no GPU, another tool, an unknown word), the reason is printed to standard error
/// and the program continues.
///
/// The guard also writes when a panic unwinds, but not at `std::process::exit`, `abort` or a
/// signal: drop it before those, or use `record`.
pub fn from_env() -> Guard {
    FromEnv::default().start()
}

/// [`from_env`] with options: another profiler, or JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromEnv {
    json: Option<TextOf>,
}

impl FromEnv {
    /// Sets the function for the content of `json=PATH`.
    #[must_use]
    pub fn json(self, json: fn(&Profile) -> String) -> Self {
        Self { json: Some(json) }
    }

    /// Same as [`from_env`].
    pub fn start(self) -> Guard {
        self.start_from(Profiler::builder())
    }

    /// Same as [`from_env`] with a profiler of these settings, to which the variable adds.
    pub fn start_from(self, builder: ProfilerBuilder) -> Guard {
        guard(self.json, |data| {
            let local_rank = LOCAL_RANK_VARIABLES.into_iter().find_map(|name| env::var(name).ok());
            Ok(data.add_to(builder, local_rank.and_then(|rank| rank.parse().ok())).build())
        })
    }

    /// Same as [`from_env`] with the program's own profiler, built only if the variable is set. The
    /// options of [`DeviceData`] are errors: the profiler has its own.
    pub fn start_with(self, profiler: impl FnOnce() -> Result<Profiler, Error>) -> Guard {
        guard(self.json, |data| match data.entries().next() {
            Some((key, _)) => Err(format!(
                "`{key}` is not for this program, which makes its own profiler: leave it out"
            )),
            None => Ok(profiler()),
        })
    }
}

fn guard(
    json: Option<TextOf>,
    profiler: impl FnOnce(&DeviceData) -> Result<Result<Profiler, Error>, String>,
) -> Guard {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Guard { running: None };
    };
    let running = Outputs::parse(value, json).and_then(|outputs| {
        let started =
            profiler(&outputs.data)?.and_then(|profiler| Running::start(profiler, outputs));
        started.map_err(|error| format!("nothing is recorded: {error}"))
    });
    Guard { running: running.map_err(|mistake| print(&mistake)).ok() }
}

/// Profiles until dropped, from [`from_env`].
#[derive(Debug)]
#[must_use = "profiling ends when this is dropped: keep it as `let _profiling = ...`"]
pub struct Guard {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// Runs if there are outputs that are written at the end.
    profiler: Profiler,
    files: Vec<RecordingFile>,
    outputs: Outputs,
}

impl Running {
    fn start(profiler: Profiler, outputs: Outputs) -> Result<Self, Error> {
        let mut files = Vec::new();
        for output in &outputs.outputs {
            match output {
                Output::Record(path) => files.push(profiler.record_to(path)?),
                _ if profiler.is_running() => {}
                _ => profiler.start()?,
            }
        }
        Ok(Self { profiler, files, outputs })
    }
}

impl Guard {
    /// True if the program is being profiled.
    pub fn is_recording(&self) -> bool {
        self.running.is_some()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(Running { profiler, files, outputs }) = self.running.take() else { return };
        for file in files {
            // Its error names the path.
            if let Err(error) = file.finish() {
                print(&error.to_string());
            }
        }
        if !profiler.is_running() {
            return;
        }
        match profiler.stop() {
            Ok(profile) => {
                outputs.write(&profile);
                for series in profile.series() {
                    if let Some(failure) = series.failure() {
                        print(&format!(
                            "{} of device {}: {failure}",
                            series.source(),
                            series.device()
                        ));
                    }
                }
            }
            Err(error) => print(&format!("nothing was recorded: {error}")),
        }
    }
}

/// The requested outputs.
#[derive(Debug, Default)]
struct Outputs {
    outputs: Vec<Output>,
    /// The JSON output, if the crate provides it.
    json: Option<TextOf>,
    data: DeviceData,
}

#[derive(Debug, PartialEq, Eq)]
enum Output {
    Report(Option<PathBuf>),
    Counts(PathBuf),
    Json(PathBuf),
    Save(PathBuf),
    /// Written while the program runs.
    Record(PathBuf),
}

impl Outputs {
    /// # Errors
    /// Fails with a message for the user.
    fn parse(value: OsString, json: Option<TextOf>) -> Result<Self, String> {
        let value = value
            .into_string()
            .map_err(|value| format!("{} is not text in UTF-8: {HELP}", value.display()))?;
        let (mut data, mut given, mut outputs) = (DeviceData::default(), Vec::new(), Vec::new());
        for part in value.split(',') {
            let (word, setting) = match part.split_once('=') {
                Some((word, setting)) => (word.trim(), Some(setting)),
                None => (part.trim(), None),
            };
            let is_of_data = match (word, setting) {
                ("sample", None) => {
                    data.sample = vec![Units::Utilization];
                    data.nvml |= cfg!(feature = "nvml");
                    Ok(true)
                }
                _ => data.set(word, setting.unwrap_or_default().trim()),
            };
            if is_of_data.map_err(|why| format!("`{}`: {why}", part.trim()))? {
                if given.contains(&word) {
                    return Err(format!("`{word}` is given twice"));
                }
                given.push(word);
                continue;
            }
            let path = setting.map(|path| path.replace("%p", &std::process::id().to_string()));
            outputs.push(match (word, path.map(PathBuf::from)) {
                (_, Some(path)) if path.as_os_str().is_empty() => {
                    Err(format!("`{part}` names no file: {HELP}"))
                }
                ("report", path) => Ok(Output::Report(path)),
                ("counts", Some(path)) => Ok(Output::Counts(path)),
                ("json", Some(path)) if json.is_some() => Ok(Output::Json(path)),
                ("json", Some(_)) => {
                    Err("`json` is not in this program, which would call profiler_analysis::from_env for it".to_owned())
                }
                ("save", Some(path)) => Ok(Output::Save(path)),
                ("record", Some(path)) => Ok(Output::Record(path)),
                ("counts" | "json" | "save" | "record", None) => {
                    Err(format!("`{word}` needs a file: write {word}=PATH"))
                }
                ("", None) => Err(format!("there is nothing between two commas: {HELP}")),
                _ => Err(format!("`{word}` is not understood: {HELP}")),
            }?);
        }
        if outputs.is_empty() {
            let given = given.join(",");
            return Err(format!("`{given}` alone shows nothing: add report or save=PATH; {HELP}"));
        }
        data.check().map_err(|(key, why)| format!("`{key}`: {why}"))?;
        Ok(Self { outputs, json, data })
    }

    fn write(&self, profile: &Profile) {
        for output in &self.outputs {
            let (path, content) = match output {
                Output::Report(None) => {
                    let _ = writeln!(std::io::stderr(), "{profile}");
                    continue;
                }
                Output::Report(Some(path)) => (path, format!("{profile}\n")),
                Output::Counts(path) => (path, profile.counts()),
                Output::Json(path) => {
                    (path, self.json.map_or_else(String::new, |json| json(profile)))
                }
                // Its error names the path.
                Output::Save(path) => {
                    if let Err(error) = profile.save(path) {
                        print(&error.to_string());
                    }
                    continue;
                }
                Output::Record(_) => continue,
            };
            if let Err(error) = replace::write_all(path, content) {
                print(&format!("could not write {}: {error}", path.display()));
            }
        }
    }
}

/// Prints to standard error. A failure to print is ignored.
fn print(what: &str) {
    let _ = writeln!(std::io::stderr(), "{VARIABLE}: {}", shortened(what, MESSAGE_WIDTH));
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: TextOf = |_| "{}".to_owned();

    fn parse(value: &str) -> Result<Vec<Output>, String> {
        Outputs::parse(value.into(), Some(JSON)).map(|outputs| outputs.outputs)
    }

    #[test]
    fn every_word_is_understood() {
        assert_eq!(parse("report"), Ok(vec![Output::Report(None)]));
        let all = "report=a b.txt, save=b=c.gpuprof,json=d,counts=e,report,record=f";
        let expected = vec![
            Output::Report(Some("a b.txt".into())),
            Output::Save("b=c.gpuprof".into()),
            Output::Json("d".into()),
            Output::Counts("e".into()),
            Output::Report(None),
            Output::Record("f".into()),
        ];
        assert_eq!(parse(all), Ok(expected));
        let sampled = Outputs::parse("report, sample".into(), None).unwrap();
        assert_eq!(sampled.outputs, [Output::Report(None)]);
        let nvml = cfg!(feature = "nvml");
        let sample = vec![Units::Utilization];
        assert_eq!(sampled.data, DeviceData { sample, nvml, ..DeviceData::default() });
        assert_eq!(Outputs::parse("report".into(), None).unwrap().data.entries().next(), None);
        let all = "sample=memory+pcie, nvml=clocks,devices=2+0,report,memory=allocations+managed";
        let data = Outputs::parse(all.into(), None).unwrap().data;
        let (sample, devices) = (vec![Units::Memory, Units::Pcie], vec![2, 0]);
        let (memory_records, unified_memory) = (true, true);
        assert_eq!(
            data,
            DeviceData { sample, nvml: true, devices, memory_records, unified_memory }
        );
        let id = std::process::id();
        assert_eq!(parse("json=%p/%p"), Ok(vec![Output::Json(format!("{id}/{id}").into())]));
    }

    #[test]
    fn environment_variable_of_another_crate_is_named() {
        let mistake = Outputs::parse("report,json=a".into(), None).unwrap_err();
        assert!(mistake.contains("profiler_analysis::from_env"), "{mistake}");
    }

    #[test]
    fn mistakes_are_named() {
        for (value, part) in [
            ("1", "`1` is not understood: write report,"),
            ("reprot", "`reprot` is not understood"),
            ("report,sav=a", "`sav` is not understood"),
            ("save", "`save` needs a file: write save=PATH"),
            ("json", "`json` needs a file"),
            ("record", "`record` needs a file"),
            ("report=", "`report=` names no file"),
            ("report,,save=a", "nothing between two commas"),
            (",", "nothing between two commas"),
            ("sample", "`sample` alone shows nothing"),
            ("sample=x,report", "`sample=x`: give utilization, memory, nvlink or pcie"),
            ("report,sample=", "`sample=`: give utilization,"),
            ("report,nvml", "`nvml`: the one known value is clocks"),
            ("report,memory=all", "`memory=all`: give allocations, managed or both with +"),
            ("report,sample,sample=memory", "`sample` is given twice"),
            ("report,nvml=clocks,devices=", "`devices=`: \"\" is no device"),
            ("report,nvml=clocks,devices=1+1", "`devices`: device 1 is given twice"),
            ("report,devices=0", "`devices`: these devices are sampled: add sample or nvml"),
            ("nvml=clocks,memory=managed", "`nvml,memory` alone shows nothing"),
        ] {
            let mistake = parse(value).unwrap_err();
            assert!(mistake.contains(part), "{value}: {mistake}");
        }
    }
}
