//! Where results go: standard output, or a file that is there when it is whole.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use profiler_core::Profile;

use crate::args::ExportFormat;
use crate::failure::Failure;
use crate::progress;

pub(crate) struct Output {
    to: Option<PathBuf>,
}

impl Output {
    pub(crate) fn standard() -> Self {
        Self { to: None }
    }

    /// Refuses to write over a file that is to be read.
    pub(crate) fn new(to: Option<PathBuf>, inputs: &[&Path]) -> Result<Self, Failure> {
        let Some(to) = to else { return Ok(Self::standard()) };
        // A link stays one.
        let to = to.canonicalize().unwrap_or(to);
        if to.is_dir() {
            let to = to.display();
            return Err(Failure::Error(format!(
                "the output {to} is a directory: name a file in it"
            )));
        }
        let is_input = |input: &&Path| input.canonicalize().is_ok_and(|input| input == to);
        if to.is_file() && inputs.iter().any(is_input) {
            let to = to.display();
            return Err(Failure::Error(format!(
                "{to} is both input and output: name another output"
            )));
        }
        Ok(Self { to: Some(to) })
    }

    /// Whether this format can go there.
    pub(crate) fn check(&self, format: ExportFormat) -> Result<(), Failure> {
        match format {
            ExportFormat::Perfetto => self.refuse_terminal("a Perfetto trace, which is binary,"),
            ExportFormat::Nsys if self.to.is_none() => Err(Failure::Usage(
                "a capture is a database and needs a file of its own: name it with -o".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_terminal(&self, what: &str) -> Result<(), Failure> {
        match self.to.is_none() && io::stdout().is_terminal() {
            true => Err(Failure::Usage(format!(
                "{what} is nothing for a terminal: name a file with -o, or send it to a program"
            ))),
            false => Ok(()),
        }
    }

    pub(crate) fn write(
        &self,
        content: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(to) = &self.to else {
            let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            return content(&mut out).and_then(|()| Ok(out.flush()?));
        };
        if is_special(to) {
            let file = File::options().write(true).open(to);
            let file = file.map_err(|error| unwritable(to, &error))?;
            return fill(file, ProgressBar::hidden(), content).map_err(|failure| of(to, failure));
        }
        let (partial, file) = new_beside(to).map_err(|error| unwritable(to, &error))?;
        let bar = progress::spinner("writing", true);
        let written = fill(file, bar, content)
            .map_err(|failure| of(to, failure))
            .and_then(|()| fs::rename(&partial, to).map_err(|error| unwritable(to, &error)));
        if written.is_err() {
            // It stays where even that fails; the error is the one that came first.
            let _: io::Result<()> = fs::remove_file(&partial);
        }
        written
    }

    pub(crate) fn write_nsys(&self, profile: &Profile) -> Result<(), Failure> {
        let Some(to) = &self.to else { return self.check(ExportFormat::Nsys) };
        // It would be replaced by a file.
        if is_special(to) {
            let to = to.display();
            return Err(Failure::Error(format!(
                "{to} is no file, and a capture needs one of its own"
            )));
        }
        let bar = progress::bar("writing", 0, false);
        let written = profile.write_nsys(to, |progress| {
            bar.set_length(progress.of);
            bar.set_position(progress.rows);
        });
        bar.finish_and_clear();
        Ok(written?)
    }
}

fn fill(
    file: File,
    bar: ProgressBar,
    content: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, bar.wrap_write(file));
    let written = content(&mut out).and_then(|()| Ok(out.flush()?));
    bar.finish_and_clear();
    written
}

/// A device or a pipe, which is written to and not replaced.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|about| !about.is_file())
}

/// Partial files that may have been left by others of the same process number, which containers often share.
const PARTIAL_FILES: u32 = 1000;

/// A new file with a short name: that of the file it is for may have the greatest length.
fn new_beside(to: &Path) -> io::Result<(PathBuf, File)> {
    let folder = to.parent().filter(|folder| *folder != OsStr::new("")).unwrap_or(Path::new("."));
    for number in 0..PARTIAL_FILES {
        let partial = folder.join(format!(".gpuprof.{}.{number}.partial", std::process::id()));
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "partial files of earlier writers stand beside it: remove .gpuprof.*.partial",
    ))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Error(format!("could not write {}: {error}", path.display()))
}

fn of(path: &Path, failure: Failure) -> Failure {
    match failure {
        Failure::Error(message) => Failure::Error(format!("{}: {message}", path.display())),
        other => other,
    }
}
