//! The injection library with an observer that writes lines, for the tests. A program loads it,
//! starts its observer, and names it as NVTX's tool.

#[path = "../support/lines.rs"]
#[allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test's support")]
mod lines;

use std::env;
use std::path::Path;

/// Writes the events that the library receives to the file in `OBSERVING_TOOL_LOG`.
#[unsafe(no_mangle)]
pub extern "C" fn observing_tool_begin() -> bool {
    let Some(log) = env::var_os("OBSERVING_TOOL_LOG") else { return false };
    gpuprof_inject::__private::observe_with(lines::Lines::to(Path::new(&log), false))
}

/// Writes the counts of unreadable events to the file, one per line.
#[unsafe(no_mangle)]
pub extern "C" fn observing_tool_counts() {
    let counts = gpuprof_inject::__private::counts();
    let lines: String = counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
    if let Some(log) = env::var_os("OBSERVING_TOOL_LOG") {
        let _ = std::fs::write(Path::new(&log).with_extension("counts"), lines);
    }
}
