//! Progress of long operations, shown on standard error if it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Smaller files are read before a progress bar would be useful.
const LARGE: u64 = 8 << 20;

const TICK: Duration = Duration::from_millis(120);

/// A bar for a known number of bytes or rows.
pub(crate) fn bar(what: &'static str, of: u64, is_bytes: bool) -> ProgressBar {
    let template = match is_bytes {
        true => "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {eta} left",
        false => "{msg} {wide_bar} {human_pos} of {human_len} rows, {eta} left",
    };
    styled(ProgressBar::new(of), template).with_message(what)
}

/// A bar for a known number of runs of a program.
pub(crate) fn runs(of: u64) -> ProgressBar {
    styled(ProgressBar::new(of), "{wide_bar} {human_pos} of {human_len} runs, {eta} left")
}

/// A spinner for work of unknown length.
pub(crate) fn spinner(what: &'static str, is_long: bool) -> ProgressBar {
    if !is_long {
        return ProgressBar::hidden();
    }
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}").with_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

pub(crate) fn is_large(bytes: u64) -> bool {
    bytes >= LARGE
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
