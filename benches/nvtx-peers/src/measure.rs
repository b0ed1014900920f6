//! The started process: it measures every row of this build, under the tool that its environment names.

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use gpu_profiler_benches::stats::median;
use libloading::Library;

use crate::rows::{PAIRS_PER_TURN, ROWS};

/// Samples of each row, taken in turn with those of the other rows.
const SAMPLES: usize = 11;
/// How long a sample should take.
const SAMPLE: Duration = Duration::from_micros(800);
/// Turns of each row when the tool counts.
const COUNTED_TURNS: u64 = 100;

/// Nanoseconds a pair, one line a row.
pub(crate) fn measure() -> Vec<f64> {
    // The first range of a process looks for the tool.
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

/// So many turns that a sample takes long enough.
fn turns_for(run: fn(u64)) -> u64 {
    let mut turns = 1;
    // Once more than needed: the first run of all pays for attaching.
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

/// Whether the tool sees every pair of every row, and nothing of the rows without ranges. `NULL_TOOL=count` is set.
pub(crate) fn check() -> Result<(), Box<dyn Error>> {
    let path = env::var_os(crate::INJECTION).ok_or("no tool is named")?;
    // SAFETY: our own tool, which does nothing when it is loaded.
    let tool = unsafe { Library::new(path) }?;
    // SAFETY: the tool defines it so.
    let pushes = unsafe { tool.get::<extern "C" fn() -> u64>(b"null_tool_pushes\0") }?;
    // SAFETY: the tool defines it so.
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
