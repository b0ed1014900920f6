//! Runs as those of processes of their own, which wall times differ by.

use std::sync::atomic::{AtomicU32, Ordering};

use profiler_core::Profile;

/// The same profile, as if no other were of its process.
pub fn of_its_own(profile: &Profile) -> Profile {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let recording = profile.recording().unwrap().clone();
    let mut info = recording.info().clone();
    info.process_id = Some(NEXT.fetch_add(1, Ordering::Relaxed));
    Profile::from_recording(recording.with_info(info))
}
