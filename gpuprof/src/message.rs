//! Messages on standard error, times in them, and labels for processes.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use gpuprof_control::manifest::Process;
use profiler_base::text::shortened;

use crate::terminal;

/// The maximum width of a message. Names from files may be arbitrarily long.
pub(crate) const MAX_WIDTH: usize = 2000;
/// The maximum width of a program's name in messages and tables.
pub(crate) const PROGRAM_WIDTH: usize = 32;

/// Writes one line to standard error and ignores errors.
pub(crate) fn note(message: &str) {
    let message = format!("gpuprof: {}", shortened(message, MAX_WIDTH));
    // If standard error is not a terminal, a message stays on one line.
    let width = terminal::stderr().width.filter(|_| io::stderr().is_terminal());
    let message = width.map_or(message.clone(), |width| terminal::wrapped(&message, width));
    let _: io::Result<()> = writeln!(io::stderr(), "{message}");
}

/// A time in whole seconds, as `1m 40s`.
pub(crate) fn whole_seconds(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

/// The label of a process in a message.
pub(crate) fn process_label(process: &Process) -> String {
    let rank = process.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
    format!("{} ({}{rank})", process.id.pid, shortened(&process.program, PROGRAM_WIDTH))
}
