//! Pauses of a session.

use profiler_core::profile::Profile;

/// The spans in which the session was paused or switched off, in nanoseconds since its start.
pub(super) fn pauses(profile: &Profile) -> Vec<(u64, u64)> {
    let (start, stop) = profile.tables().session.window_ns;
    let mut until = start;
    let mut pauses = Vec::new();
    for &(from, to) in &profile.tables().session.windows_ns {
        if from > until {
            pauses.push((until - start, from - start));
        }
        until = until.max(to);
    }
    if stop > until {
        pauses.push((until - start, stop - start));
    }
    pauses
}
