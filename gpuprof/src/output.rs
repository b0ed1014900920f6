//! Outputs: standard output, a stream, or a file that is replaced once its content is complete.

use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use gpuprof_control::RunFolder;
use profiler_analysis::prelude::*;
use profiler_base::display::Layout;
use profiler_base::replace::{Replacement, Target};
use profiler_base::text;
use profiler_core::Profile;
use serde::Serialize;

use crate::export_format::ExportFormat;
use crate::failure::Failure;
use crate::file_names::{is_capture, is_recording};
use crate::progress;
use crate::terminal::{self, Text};

pub(crate) enum Output {
    Standard,
    /// A device or a pipe, opened for appending.
    Stream(PathBuf),
    /// A regular file, with links resolved.
    File(PathBuf),
}

impl Output {
    /// Creates the output. Refuses to overwrite an input.
    pub(crate) fn new(to: Option<PathBuf>, inputs: &[&Path]) -> Result<Self, Failure> {
        let Some(to) = to.filter(|to| to != Path::new("-")) else { return Ok(Self::Standard) };
        match Target::from_path(&to).map_err(|error| unwritable(&to, &error))? {
            Target::Stream(stream) if is_standard(&stream) => Ok(Self::Standard),
            Target::Stream(stream) => Ok(Self::Stream(stream)),
            Target::File(file) => match inputs.iter().any(|input| is_read(input, &file)) {
                true => Err(Failure::Error(format!(
                    "{} is both input and output: name another output",
                    to.display()
                ))),
                false => Ok(Self::File(file)),
            },
        }
    }

    /// Checks that this output accepts the format.
    pub(crate) fn check(&self, format: ExportFormat) -> Result<(), Failure> {
        match (format, self) {
            (ExportFormat::Trace(format), _) if !format.is_text() => {
                self.refuse_terminal(&format!("{format}, which is binary,"))
            }
            (ExportFormat::Html, _) => self.refuse_terminal("a page of HTML"),
            (ExportFormat::Flamegraph, _) => self.refuse_terminal("a picture"),
            (ExportFormat::Nsys, Self::Standard) => Err(Failure::Usage(
                "a capture is a database and needs a file of its own: name it with -o".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_terminal(&self, what: &str) -> Result<(), Failure> {
        match matches!(self, Self::Standard) && io::stdout().is_terminal() {
            true => Err(Failure::Usage(format!(
                "{what} is not for a terminal: name a file with -o, or pipe it to a program"
            ))),
            false => Ok(()),
        }
    }

    /// Writes the content. A closed reader is not a failure, because gates still decide the exit
    /// status.
    pub(crate) fn write(
        &self,
        content: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let written = match self {
            Self::Standard => standard().and_then(|out| fill(out, content)),
            Self::Stream(to) => {
                let file = File::options().append(true).open(to);
                let file = file.map_err(|error| unwritable(to, &error));
                file.and_then(|file| fill(file, content).map_err(|failure| with_path(to, failure)))
            }
            Self::File(to) => replace(to, content),
        };
        match written {
            Err(Failure::Closed) => Ok(()),
            written => written,
        }
    }

    /// Writes text, with a layout for people or without one for programs.
    pub(crate) fn write_in(
        &self,
        is_for_people: bool,
        content: impl FnOnce(&mut Text<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let layout = match (is_for_people, self) {
            (false, _) => Layout::default(),
            (true, Self::Standard) => terminal::stdout(),
            (true, Self::Stream(_) | Self::File(_)) => terminal::file(),
        };
        self.write(|out| {
            let mut text = Text::new(out, layout);
            content(&mut text)?;
            Ok(text.end()?)
        })
    }

    /// Writes text for people, or this value as JSON for programs.
    pub(crate) fn text_or_json(
        &self,
        is_for_people: bool,
        text: impl FnOnce(&mut Text<'_>) -> Result<(), Failure>,
        json: &impl Serialize,
    ) -> Result<(), Failure> {
        self.write_in(is_for_people, |out| match is_for_people {
            true => text(out),
            false => write_json(out, json),
        })
    }

    pub(crate) fn write_nsys(&self, profile: &Profile) -> Result<(), Failure> {
        let to = match self {
            Self::Standard => return self.check(ExportFormat::Nsys),
            Self::Stream(to) => {
                let to = to.display();
                return Err(Failure::Error(format!(
                    "{to} is no file, and a capture needs one of its own"
                )));
            }
            Self::File(to) => to,
        };
        let bar = progress::bar("writing", 0, false);
        let written = profile.write_nsys(to, |rows, total| {
            bar.set_length(total);
            bar.set_position(rows);
        });
        bar.finish_and_clear();
        Ok(written?)
    }
}

/// True if a file is this input or is read with it, as the recordings and manifests, or captures, of
/// a folder are.
fn is_read(input: &Path, file: &Path) -> bool {
    let are_same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    };
    if !input.is_dir() {
        return are_same(input, file);
    }
    let entries = input.read_dir().into_iter().flatten().flatten();
    let entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let is_of_run =
        |path: &Path| is_recording(path) || path.file_name().is_some_and(RunFolder::is_own);
    // Without recordings the captures are read.
    let has_recordings = entries.iter().any(|entry| is_of_run(entry));
    let is_input = |path: &Path| is_of_run(path) || (!has_recordings && is_capture(path));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_inside = are_same(input, folder.unwrap_or(Path::new(".")));
    // A new file with such a name would be read as an input next time, and an entry may be a link to
    // a file elsewhere.
    (is_inside && is_input(file))
        || entries.iter().any(|entry| is_input(entry) && are_same(entry, file))
}

/// Returns standard output, or an error if the program was started without one.
pub(crate) fn standard() -> Result<io::StdoutLock<'static>, Failure> {
    match crate::closed::was_stdout_open() {
        true => Ok(io::stdout().lock()),
        false => Err(Failure::Error(
            "standard output is closed: open it, or name a file with -o".to_owned(),
        )),
    }
}

/// Creates a temporary folder that only this user can read, because names in a profile may be
/// private. The texts are its purpose and the remedy in messages.
pub(crate) fn private_folder(purpose: &str, remedy: &str) -> Result<PathBuf, Failure> {
    for number in 0..1000_u32 {
        let name = format!("gpuprof-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(Failure::Error(format!(
                    "could not create the folder {} for {purpose}: {error}; {remedy}",
                    path.display()
                )));
            }
        }
    }
    Err(Failure::Error(format!("no name for a temporary folder is free: {remedy}")))
}

/// Writes a result as JSON for programs, followed by a line break.
pub(crate) fn write_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Failure> {
    text::write_json_pretty(&mut *out, value)?;
    Ok(out.write_all(b"\n")?)
}

fn replace(
    to: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let new = Replacement::begin(to.to_owned()).map_err(|error| unwritable(to, &error))?;
    let bar = progress::spinner("writing", true);
    let written = fill(bar.wrap_write(new.file()), content);
    bar.finish_and_clear();
    written.map_err(|failure| with_path(to, failure))?;
    new.commit().map_err(|error| unwritable(to, &error))
}

fn fill(
    out: impl Write,
    content: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    content(&mut out).and_then(|()| Ok(out.flush()?))
}

/// True for this process's standard output, the target of `/dev/stdout`.
fn is_standard(stream: &Path) -> bool {
    stream == Path::new(&format!("/proc/{}/fd/1", std::process::id()))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Error(format!("could not write {}: {error}", path.display()))
}

fn with_path(path: &Path, failure: Failure) -> Failure {
    failure.context(&path.display().to_string())
}
