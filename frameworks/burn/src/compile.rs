//! Kernels that are compiled: the time of their first launch, which is of no module.
//!
//! Cubecl compiles a kernel on the device's thread before its first launch, with NVRTC and then in the driver. Neither makes a
//! record that CUPTI has, and burn has no hook there. So a first launch is one with an id that was not seen before; a job before it
//! and one after it take its time.

use std::cell::RefCell;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::Hasher;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profiler_core::profile::Mark;
use profiler_core::{Context, Profile, Range};
use tracing::field::{Field, Visit};
use tracing::span::Attributes;

static BURN: nvtx::Domain = nvtx::Domain::new("burn");
const NAME: &str = "compile";

/// Hashes of the types and ids of all kernels launched while a session followed compilations.
static SEEN: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

thread_local! {
    /// On a device thread: the streams that compile, and since when. Tasks of other streams may run meanwhile.
    static SINCE: RefCell<Vec<(u64, Instant)>> = const { RefCell::new(Vec::new()) };
}

/// Whether the kernel of this launch was not launched before. Formats its id, which takes some microseconds.
pub(crate) fn is_first_launch(attributes: &Attributes<'_>) -> bool {
    struct Id(DefaultHasher);
    impl Write for Id {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    impl Visit for Id {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            // The id is printed without the type that it belongs to.
            if matches!(field.name(), "kernel.name" | "kernel.id") {
                // Writing to a hasher does not fail.
                let _ = write!(self, "{value:?};");
            }
        }
    }
    let mut id = Id(DefaultHasher::new());
    attributes.record(&mut id);
    SEEN.lock().get_or_insert_default().insert(id.0.finish())
}

/// A first launch of this stream begins on this device thread.
pub(crate) fn begin(stream: u64) {
    SINCE.with_borrow_mut(|since| since.push((stream, Instant::now())));
}

/// It has returned: a mark in the range of the launch has its time.
pub(crate) fn end(stream: u64, context: Context) {
    let since = SINCE.with_borrow_mut(|since| {
        let place = since.iter().rposition(|(of, _)| *of == stream)?;
        Some(since.remove(place).1)
    });
    if let Some(since) = since {
        let _attached = context.attach();
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        BURN.event(NAME).payload(ns).mark();
    }
}

/// The first launch of a kernel, within which it was compiled. Of [`compilations`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Compilation<'a> {
    /// The range of the launch; `autotune` for a candidate of autotune.
    pub range: Option<Range<'a>>,
    /// The time from which on the device's thread launched, since the session's start.
    pub at: Duration,
    /// The time that it took on the device's thread: NVRTC, the driver's own compiler and the launch.
    pub time: Duration,
}

/// The kernels that were launched for the first time, by a session with
/// [`Builder::compilations`](crate::Builder::compilations).
///
/// A kernel that was launched while no session followed them counts again, with the time of a launch alone. Kernels that differ
/// in nothing but the size of their blocks count once: cubecl prints it nowhere.
pub fn compilations(profile: &Profile) -> impl Iterator<Item = Compilation<'_>> {
    let is_ours = |mark: &Mark<'_>| mark.name() == NAME && mark.domain() == Some(BURN.name());
    profile.marks().filter(is_ours).map(|mark| {
        let time = match mark.payload() {
            Some(nvtx::Payload::U64(ns)) => Duration::from_nanos(ns),
            _ => Duration::ZERO,
        };
        Compilation { range: mark.range(), at: mark.at().saturating_sub(time), time }
    })
}
