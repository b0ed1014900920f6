//! Profiling enabled by the environment variable `GPU_PROFILER`.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use profiler_base::replace;
use profiler_base::units::{MESSAGE_WIDTH, shortened};

use crate::collect::sampling::Sampling;
use crate::error::Error;
use crate::profile::Profile;
use crate::session::profiler::Profiler;
use crate::session::recording_file::RecordingFile;

/// A profile as text.
type TextOf = fn(&Profile) -> String;

const VARIABLE: &str = "GPU_PROFILER";
const HELP: &str = "write report, report=PATH, counts=PATH, json=PATH, save=PATH or record=PATH, sample, or several with commas between";

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
/// - `sample`: the utilization of device 0 ([`Sampling::utilization`]), and with the feature `nvml`
///   its clocks and power ([`Sampling::nvml`]). Requires one of the other outputs.
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
        guard(self.json, |samples| {
            let mut builder = Profiler::builder();
            if samples {
                builder = builder.sample(Sampling::utilization());
            }
            if samples && cfg!(feature = "nvml") {
                builder = builder.sample(Sampling::nvml());
            }
            Ok(builder.build())
        })
    }

    /// Same as [`from_env`] with the program's own profiler, built only if the variable is set. The
    /// word `sample` is an error: the profiler has its own samplers.
    pub fn start_with(self, profiler: impl FnOnce() -> Result<Profiler, Error>) -> Guard {
        guard(self.json, |samples| match samples {
            true => {
                Err("`sample` is not for this program, which makes its own profiler: leave it out"
                    .to_owned())
            }
            false => Ok(profiler()),
        })
    }
}

fn guard(
    json: Option<TextOf>,
    profiler: impl FnOnce(bool) -> Result<Result<Profiler, Error>, String>,
) -> Guard {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Guard { running: None };
    };
    let running = Outputs::parse(value, json).and_then(|outputs| {
        let started =
            profiler(outputs.sample)?.and_then(|profiler| Running::start(profiler, outputs));
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
            Ok(profile) => outputs.write(&profile),
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
    sample: bool,
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
        let is_sample = |part: &&str| part.trim() == "sample";
        let sample = value.split(',').any(|part| is_sample(&part));
        let parts = value.split(',').filter(|part| !is_sample(part));
        let outputs = parts.map(|part| {
            let (word, path) = match part.split_once('=') {
                Some((word, path)) => (word.trim(), Some(path)),
                None => (part.trim(), None),
            };
            let path = path.map(|path| path.replace("%p", &std::process::id().to_string()));
            match (word, path.map(PathBuf::from)) {
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
            }
        });
        let outputs: Vec<Output> = outputs.collect::<Result<_, _>>()?;
        if outputs.is_empty() {
            return Err(format!("`sample` alone shows nothing: add report or save=PATH; {HELP}"));
        }
        Ok(Self { outputs, json, sample })
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
        assert_eq!((sampled.outputs, sampled.sample), (vec![Output::Report(None)], true));
        assert!(!Outputs::parse("report".into(), None).unwrap().sample);
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
            ("sample=x,report", "`sample` is not understood"),
        ] {
            let mistake = parse(value).unwrap_err();
            assert!(mistake.contains(part), "{value}: {mistake}");
        }
    }
}
