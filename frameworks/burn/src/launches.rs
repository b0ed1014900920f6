//! Launches, as cubecl's span of each shows them on the thread that issues it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use profiler_core::Context;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{self, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::compile;
use crate::devices;
use crate::lane;
use crate::session_count;
#[cfg(feature = "fusion")]
use crate::{devices::Device, plans};

/// Kernels that the session followed from burn's operations to their launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Launches {
    /// Launches of operations, on any thread, without those of autotune.
    pub operations: u64,
    /// Launches of the fusion thread among them.
    pub fused: u64,
    /// Launches of the fusion thread whose plan has operations of several ranges: they carry all of these, and count for the
    /// range around them.
    pub uncertain: u64,
    /// Launches of the fusion thread that no plan of burn's explains. They carry no range.
    pub unexplained: u64,
    /// Launches of autotune.
    pub autotune: u64,
}

#[derive(Default)]
struct Counts {
    operations: AtomicU64,
    fused: AtomicU64,
    uncertain: AtomicU64,
    unexplained: AtomicU64,
    autotune: AtomicU64,
}

static COUNTS: Counts = Counts {
    operations: AtomicU64::new(0),
    fused: AtomicU64::new(0),
    uncertain: AtomicU64::new(0),
    unexplained: AtomicU64::new(0),
    autotune: AtomicU64::new(0),
};

impl Launches {
    /// The launches so far, of all sessions.
    pub(crate) fn now() -> Self {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            operations: read(&COUNTS.operations),
            fused: read(&COUNTS.fused),
            uncertain: read(&COUNTS.uncertain),
            unexplained: read(&COUNTS.unexplained),
            autotune: read(&COUNTS.autotune),
        }
    }

    /// The launches since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            operations: self.operations - before.operations,
            fused: self.fused - before.fused,
            uncertain: self.uncertain - before.uncertain,
            unexplained: self.unexplained - before.unexplained,
            autotune: self.autotune - before.autotune,
        }
    }
}

/// What a thread is for burn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A thread of the program.
    Program,
    /// The thread that fuses the operations of a device.
    Fusion(u16),
    /// The thread that launches on a device.
    Device(u16),
}

thread_local! {
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
    /// The context of the launch of autotune whose span was made last, on a device thread.
    static TUNED: Cell<Context> = Cell::default();
    /// The context of the launch whose span was made last, if it is the first of its kernel.
    static FIRST: Cell<Option<Context>> = const { Cell::new(None) };
    /// The range of the launch of autotune that this device thread makes.
    static TUNING: RefCell<Option<(nvtx::Range, profiler_core::session::Attached)>> = const { RefCell::new(None) };
}

/// The innermost range of threads of the program, by stream.
static CURRENT: Mutex<Option<HashMap<u64, Context>>> = Mutex::new(None);

/// What this thread is, by the name that cubecl gave it.
pub(crate) fn role() -> Role {
    if let Some(role) = ROLE.get() {
        return role;
    }
    let thread = std::thread::current();
    let role = role_of(thread.name().unwrap_or_default());
    ROLE.set(Some(role));
    role
}

/// `DSU-0-1` fuses for device 1, `DSD-0-1` launches on it.
fn role_of(name: &str) -> Role {
    let of = |prefix: &str| name.strip_prefix(prefix)?.rsplit('-').next()?.parse().ok();
    of("DSU-").map(Role::Fusion).or_else(|| of("DSD-").map(Role::Device)).unwrap_or(Role::Program)
}

/// Notes the range of a thread, for launches of autotune that are made for it.
pub(crate) fn set_current(stream: u64, context: Context) {
    let mut current = CURRENT.lock();
    let current = current.get_or_insert_default();
    if context.is_empty() {
        current.remove(&stream);
    } else {
        current.insert(stream, context);
    }
}

/// Forgets the ranges of threads.
pub(crate) fn clear() {
    *CURRENT.lock() = None;
}

fn current(stream: u64) -> Context {
    CURRENT.lock().as_ref().and_then(|current| current.get(&stream).copied()).unwrap_or_default()
}

/// A layer that follows launches, for programs with a subscriber of their own.
///
/// It needs cubecl's span `launch_inner` of level `TRACE`: global filters have to pass the target `cubecl_runtime::client`. To
/// make spans ranges, add `nvtx::NvtxLayer`, too.
///
/// ```no_run
/// use tracing_subscriber::layer::SubscriberExt;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let subscriber = tracing_subscriber::registry().with(gpu_profiler_burn::layer());
/// tracing::subscriber::set_global_default(subscriber)?; // .with(your own layers, with their filters)
/// let device = burn::backend::cuda::CudaDevice::default();
/// let profiler = gpu_profiler_burn::builder().subscriber(false).start([device])?;
/// # drop(profiler);
/// # Ok(())
/// # }
/// ```
pub fn layer<S>() -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let is_launch = |metadata: &tracing::Metadata<'_>| {
        metadata.name() == "launch_inner" && metadata.target() == "cubecl_runtime::client"
    };
    LaunchLayer.with_filter(filter_fn(is_launch))
}

struct LaunchLayer;

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<S: Subscriber> Layer<S> for LaunchLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: layer::Context<'_, S>) {
        let Some(devices) = devices::devices() else { return };
        let is_first =
            session_count::follows_compilations() && compile::is_first_launch(attributes);
        let role = role();
        let context = match role {
            Role::Program => {
                count(&COUNTS.operations);
                if !std::thread::panicking() {
                    // After a panic that was caught, the last boundary was not handed over.
                    devices.iter().for_each(|device| device.queue.update());
                }
                Context::capture()
            }
            Role::Fusion(_index) => {
                count(&COUNTS.operations);
                count(&COUNTS.fused);
                #[cfg(feature = "fusion")]
                let context = devices
                    .iter()
                    .find(|device| device.index == _index)
                    .and_then(|device| fused_launch(device));
                #[cfg(not(feature = "fusion"))]
                let context = None;
                context.unwrap_or_else(|| current(lane::stream()))
            }
            Role::Device(_index) => {
                count(&COUNTS.autotune);
                #[cfg(feature = "fusion")]
                let context = plans::of_launch(lane::stream(), _index).map(|plan| plan.context);
                #[cfg(not(feature = "fusion"))]
                let context = None;
                let context = context.unwrap_or_else(|| current(lane::stream()));
                TUNED.set(context);
                context
            }
        };
        if is_first {
            FIRST.set(Some(context));
            match role {
                Role::Device(_) => compile::begin(lane::stream()),
                // A span does not name its device.
                _ => devices.iter().for_each(|device| device.queue.queue().compiles()),
            }
        }
    }

    fn on_enter(&self, _: &Id, _: layer::Context<'_, S>) {
        if let Role::Device(_) = role() {
            let attached = TUNED.take().attach();
            TUNING.with_borrow_mut(|tuning| *tuning = Some((nvtx::range("autotune"), attached)));
        }
    }

    fn on_exit(&self, _: &Id, _: layer::Context<'_, S>) {
        let role = role();
        if let Some(context) = FIRST.take() {
            match role {
                Role::Device(_) => compile::end(lane::stream(), Context::capture()),
                _ => devices::devices()
                    .iter()
                    .flat_map(|devices| devices.iter())
                    .for_each(|device| device.queue.queue().compiled(context)),
            }
        }
        match role {
            // The range before what it is in.
            Role::Device(_) => drop(TUNING.with_borrow_mut(Option::take)),
            #[cfg(feature = "fusion")]
            Role::Fusion(index) => {
                let devices = devices::devices();
                let mut devices = devices.iter().flat_map(|devices| devices.iter());
                if let Some(device) =
                    devices.find(|device| device.index == index && follows(device))
                {
                    device.queue.queue().launched();
                }
            }
            _ => {}
        }
    }
}

/// Whether the launches of a device's fusion thread are followed one by one.
#[cfg(feature = "fusion")]
fn follows(device: &Device) -> bool {
    session_count::is_running() && !device.boundaries.load(Ordering::Relaxed)
}

#[cfg(feature = "fusion")]
fn fused_launch(device: &Device) -> Option<Context> {
    if !follows(device) {
        return None;
    }
    let plan = plans::of_launch(lane::stream(), device.index);
    match plan {
        Some(plan) if plan.is_certain => {}
        Some(_) => count(&COUNTS.uncertain),
        None => count(&COUNTS.unexplained),
    }
    let context = plan.map(|plan| plan.context).unwrap_or_default();
    device.queue.queue().launches(context);
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_cubecl_are_known_by_name() {
        assert_eq!(role_of("DSU-0-1"), Role::Fusion(1));
        assert_eq!(role_of("DSD-0-12"), Role::Device(12));
        for name in ["", "main", "DSU", "DSD-0-x", "trainer-1"] {
            assert_eq!(role_of(name), Role::Program, "{name}");
        }
    }
}
