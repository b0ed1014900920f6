//! What tests of sessions against the fake share.

use fake_cupti::Fake;
use profiler_core::{Profile, Profiler, Recording};

/// The profile of a program, live and as it comes back from the bytes of its recording.
pub fn record(fake: &Fake, program: impl FnOnce()) -> [Profile; 2] {
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    program();
    let recording = profiler.stop_recording().unwrap();
    let replayed = Recording::from_bytes(&recording.to_bytes()).unwrap();
    assert_eq!(replayed, recording);
    [recording, replayed].map(Profile::from_recording)
}
