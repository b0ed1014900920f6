//! Messages on standard error.

use std::io::{self, IsTerminal as _, Write as _};

use profiler_base::text::shortened;

use crate::terminal;

/// The longest message: names from files may be arbitrarily long.
pub(crate) const MAX_WIDTH: usize = 2000;

/// Writes one line to standard error and ignores errors.
pub(crate) fn note(message: &str) {
    let message = format!("gpuprof: {}", shortened(message, MAX_WIDTH));
    // Elsewhere a message is a line.
    let width = terminal::stderr().width.filter(|_| io::stderr().is_terminal());
    let message = width.map_or(message.clone(), |width| terminal::wrapped(&message, width));
    let _: io::Result<()> = writeln!(io::stderr(), "{message}");
}
