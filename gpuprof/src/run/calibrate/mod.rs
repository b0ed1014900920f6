//! `gpuprof calibrate`: runs a program by turns without the profiler and in each of its modes, and
//! prints what the modes cost.

mod arm;
mod costs;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use gpuprof_control::RunFolder;
use gpuprof_control::manifest::Run;
use indicatif::ProgressBar;

use super::program::{Program, Signals, Times};
use super::{library, not_started, result};
use crate::args::{CalibrateArgs, OutputFormat as _, TextFormat};
use crate::failure::Failure;
use crate::output::{Output, private_folder, write_json};
use crate::progress;
use arm::{Arm, order};
use costs::Costs;

pub(crate) fn calibrate(args: CalibrateArgs) -> Result<(), Failure> {
    let (format, rounds) = (args.format.get(), args.rounds);
    let output = Output::new(args.output.output, &[])?;
    let calibration = Calibration::new(args.program, args.inject).map_err(not_started)?;
    let costs = calibration.run(usize::from(rounds))?;
    output.write_in(format.is_for_people(), |out| match format {
        TextFormat::Text => out.show(&costs),
        TextFormat::Json => write_json(out, &costs),
    })
}

/// Everything that a calibration needs before the program starts for the first time.
struct Calibration {
    program: Program,
    /// The variables that load the library.
    injected: Vec<(&'static str, Option<OsString>)>,
    signals: Signals,
    folder: Temporary,
}

/// A folder that is removed with its content.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _: io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

impl Calibration {
    fn new(program: Vec<OsString>, library: Option<PathBuf>) -> Result<Self, Failure> {
        library::refuse_other_tools()?;
        let injected = library::variables(&library::find(library)?, false).collect();
        let program = Program::new(program, "calibrate")?;
        let signals = Signals::catch()?;
        let folder = private_folder("the recordings", "set TMPDIR to a folder of yours")?;
        Ok(Self { program, injected, signals, folder: Temporary(folder) })
    }

    /// Runs all rounds, and leaves nothing behind.
    fn run(self, rounds: usize) -> Result<Costs, Failure> {
        let bar = progress::runs((1 + rounds * Arm::ALL.len()) as u64);
        let costs = self.run_rounds(rounds, &bar);
        bar.finish_and_clear();
        result::remove_sockets();
        drop(self.folder);
        self.signals.begin_report();
        costs
    }

    fn run_rounds(&self, rounds: usize, bar: &ProgressBar) -> Result<Costs, Failure> {
        bar.tick();
        let mut times = Arm::ALL.map(|_| Vec::new());
        let mut recorded_rounds = 0;
        self.run_once(Arm::Without, "warm-up")?;
        bar.inc(1);
        for round in 0..rounds {
            let place = format!("round {} of {rounds}", round + 1);
            for arm in order(round) {
                let (own, is_recorded) = self.run_once(arm, &place)?;
                times[arm as usize].push(own);
                recorded_rounds += usize::from(arm == Arm::Recording && is_recorded);
                bar.inc(1);
            }
        }
        Ok(Costs::new(&times, recorded_rounds))
    }

    /// Runs the program once. Returns its times, and whether it left a recording, which is removed.
    fn run_once(&self, arm: Arm, place: &str) -> Result<(Times, bool), Failure> {
        let check = || match self.signals.last() {
            None => Ok(()),
            Some(signal) => {
                let status = u8::try_from(128 + signal).unwrap_or(1);
                Err(Failure::Run(status, format!("{place}, {arm}: interrupted")))
            }
        };
        check()?;
        let mut variables = Vec::new();
        let mut folder = None;
        if let Some(mut options) = arm.options() {
            let path = self.folder.0.join(format!("{arm}, {place}"));
            let run = RunFolder::create(&path, &Run::new(self.program.path(), &options))?;
            options.run = run.path().to_owned();
            variables = options.variables()?;
            variables.extend_from_slice(&self.injected);
            folder = Some(run);
        }
        let ended = self.program.run_once(&variables, &self.signals, false, Stdio::null)?;
        check()?;
        if !ended.status.success() {
            let why = format!(
                "{place}, {arm}: the program ended with {}; run it alone or with `gpuprof run` to see its output",
                ended.status
            );
            return Err(Failure::Run(ended.shell_status(), why));
        }
        let Some(folder) = folder else { return Ok((ended.times, false)) };
        let is_recorded = folder.processes()?.found.iter().any(|process| process.has_recording);
        // At once, before all of it is written to the disk, which would slow down the next run. A
        // process that the program left behind may still write; the rest goes at the end.
        let _: io::Result<()> = fs::remove_dir_all(folder.path());
        Ok((ended.times, is_recorded))
    }
}
