//! Trains a small network on the GPU, profiles it, and prints the report.
//!
//! ```text
//! cargo run --release -p gpu-profiler-examples --example quickstart
//! ```
//!
//! Without a GPU, or with `--replay`, it prints the report of a recording made on an NVIDIA H200.
//! The raw records are decoded and joined again, as on the machine where they were recorded.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program, not a library

use std::error::Error;
use std::process::ExitCode;

use clap::Parser as _;
use gpu_profiler_examples::args::Args;
use gpu_profiler_examples::mlp::{self, Mlp};
use profiler_core::{Profile, Profiler};

const SEED: u64 = 1;
const DEVICE: usize = 0;
const BUNDLED: &[u8] = include_bytes!("recordings/quickstart-h200.gpuprof");

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    if let Some(replay) = &args.replay {
        let profile = match replay {
            None => bundled()?,
            Some(file) => Profile::load(file)?,
        };
        return print_replay(&profile, "asked for with --replay");
    }
    if let Some(why) = mlp::unavailable() {
        if args.no_profiler {
            return Err(format!("cannot train: {why}").into());
        }
        return print_instead(args, &why);
    }

    let mut mlp = Mlp::new(SEED, DEVICE)?;
    mlp.warm_up()?;
    if args.no_profiler {
        let _profiling = profiler_core::from_env();
        return train(&mut mlp, args.batches.get());
    }

    let profiler = match Profiler::builder().build().and_then(|p| p.start().map(|()| p)) {
        Ok(profiler) => profiler,
        Err(error) if error.is_unavailable() => return print_instead(args, &error.to_string()),
        Err(error) if error.is_busy() => {
            eprintln!("quickstart: training without GPU records: {error}");
            train(&mut mlp, args.batches.get())?;
            return nothing_saved(args);
        }
        Err(error) => return Err(error.into()),
    };
    train(&mut mlp, args.batches.get())?;
    let profile = profiler.stop()?;

    println!("\n{profile}");
    if let Some(file) = &args.save {
        profile.save(file)?;
        println!("\nrecording written to {}", file.display());
    }
    Ok(())
}

/// Trains the network, and prints the first, every fifth and the last loss.
fn train(mlp: &mut Mlp, batches: usize) -> Result<(), Box<dyn Error>> {
    for batch in 1..=batches {
        let loss = mlp.train_batch(batch - 1)?;
        if batch == 1 || batch % 5 == 0 || batch == batches {
            println!("batch {batch:>3}  loss {loss:.4}");
        }
    }
    Ok(())
}

/// Prints the bundled recording, because nothing could be recorded on this machine.
fn print_instead(args: &Args, why: &str) -> Result<(), Box<dyn Error>> {
    print_replay(&bundled()?, why)?;
    nothing_saved(args)
}

fn print_replay(profile: &Profile, why: &str) -> Result<(), Box<dyn Error>> {
    println!("replay of a recorded run ({}), because: {why}\n", profile.recording_info());
    println!("{profile}");
    Ok(())
}

fn bundled() -> Result<Profile, Box<dyn Error>> {
    Profile::from_bytes(BUNDLED).map_err(|error| format!("the bundled recording: {error}").into())
}

/// Returns an error if `--save` was requested, because nothing was recorded.
fn nothing_saved(args: &Args) -> Result<(), Box<dyn Error>> {
    match &args.save {
        None => Ok(()),
        Some(file) => {
            Err(format!("nothing was recorded, {} was not written", file.display()).into())
        }
    }
}
