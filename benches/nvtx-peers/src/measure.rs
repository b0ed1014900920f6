//! The started process, which measures every row of this build with the tool that its environment
//! names.

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use gpu_profiler_benches::stats::median;
use libloading::Library;

use crate::rows::{PAIRS_PER_TURN, ROWS};

/// Samples of each row, taken in turn with those of the other rows.
const SAMPLES: usize = 11;
/// The intended duration of a sample.
const SAMPLE: Duration = Duration::from_micros(800);
/// The number of turns of each row when the tool counts.
const COUNTED_TURNS: u64 = 100;

/// Measures the nanoseconds per pair of each row.
pub(crate) fn measure() -> Vec<f64> {
    // The first range of a process attaches the tool.
    let turns: Vec<u64> = ROWS.iter().map(|row| turns_for(row.run)).collect();
    let mut samples = vec![Vec::with_capacity(SAMPLES); ROWS.len()];
    for sample in 0..SAMPLES {
        for step in 0..ROWS.len() {
            let row = (sample + step) % ROWS.len();
            let took = time(ROWS[row].run, turns[row]);
            let pairs = turns[row] * PAIRS_PER_TURN;
            samples[row].push(took.as_nanos() as f64 / pairs as f64);
        }
    }
    samples.iter().map(|row| median(row)).collect()
}

fn time(run: fn(u64), turns: u64) -> Duration {
    let start = Instant::now();
    run(turns);
    start.elapsed()
}

/// The number of turns for which a sample takes the intended time.
fn turns_for(run: fn(u64)) -> u64 {
    let mut turns = 1;
    // An additional run, because the very first run includes the cost of attaching.
    run(1);
    loop {
        let took = time(run, turns);
        if took >= SAMPLE / 4 {
            let share = SAMPLE.as_secs_f64() / took.as_secs_f64();
            return ((turns as f64 * share) as u64).max(1);
        }
        turns *= 2;
    }
}

/// Checks that the tool observes every pair of every row, and nothing in rows without ranges.
/// Requires `NULL_TOOL=count`.
pub(crate) fn check() -> Result<(), Box<dyn Error>> {
    let path = env::var_os(crate::INJECTION).ok_or("no tool is named")?;
    // SAFETY: our own tool, whose initialisers do nothing.
    let tool = unsafe { Library::new(path) }?;
    // SAFETY: the tool defines the function with this type.
    let pushes = unsafe { tool.get::<extern "C" fn() -> u64>(b"null_tool_pushes\0") }?;
    // SAFETY: the tool defines the function with this type.
    let pops = unsafe { tool.get::<extern "C" fn() -> u64>(b"null_tool_pops\0") }?;
    for row in ROWS {
        let before = (pushes(), pops());
        (row.run)(COUNTED_TURNS);
        let seen = (pushes() - before.0, pops() - before.1);
        let pairs = if row.is_range { COUNTED_TURNS * PAIRS_PER_TURN } else { 0 };
        if seen != (pairs, pairs) {
            let (pushed, popped) = seen;
            let name = row.name;
            return Err(format!(
                "{name}: {pairs} pairs, and the tool saw {pushed} pushes and {popped} pops"
            )
            .into());
        }
    }
    Ok(())
}
