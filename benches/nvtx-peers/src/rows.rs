//! The measured rows. Each is a loop over pairs of push and pop, eight per turn, so that the cost
//! of the loop is negligible.
//!
//! A barrier separates any two steps, in the C loops too, so that no compiler carries knowledge of
//! one range over to the next. A row "around a call" has an opaque call between push and pop
//! instead. Without it, the compiler knows that an idle range stays idle until its end. It cannot
//! know that in a program with code inside the range.
//!
//! The rows of layers are spans of `tracing`. A "stay" enters and exits a span; a "span" also
//! creates and closes it. NVIDIA's layer has no "stay", because it forgets a span once it is
//! exited.

use std::arch::asm;

/// The number of pairs in one turn of a loop.
pub(crate) const PAIRS_PER_TURN: u64 = 8;

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Runs this many turns.
    pub(crate) run: fn(u64),
    /// True if a tool observes its pairs.
    pub(crate) is_range: bool,
}

/// The rows of this build, always in the same order.
pub(crate) const ROWS: &[Row] = &[
    Row { name: NOTHING, run: nothing, is_range: false },
    #[cfg(nvtx_header)]
    Row { name: HEADER, run: header::pairs, is_range: true },
    Row { name: RANGE, run: range, is_range: true },
    Row { name: ANNOTATE, run: annotate, is_range: true },
    #[cfg(feature = "nvidia")]
    Row { name: NVIDIA, run: nvidia::pairs, is_range: true },
    Row { name: CALL, run: call, is_range: false },
    #[cfg(nvtx_header)]
    Row { name: HEADER_CALL, run: header::around_calls, is_range: true },
    Row { name: RANGE_CALL, run: range_around_call, is_range: true },
    #[cfg(feature = "nvidia")]
    Row { name: NVIDIA_CALL, run: nvidia::around_calls, is_range: true },
    Row { name: NO_LAYER_STAY, run: layers::no_layer_stays, is_range: false },
    Row { name: LAYER_STAY, run: layers::stays, is_range: true },
    Row { name: NO_LAYER_SPAN, run: layers::no_layer_spans, is_range: false },
    Row { name: LAYER_SPAN, run: layers::spans, is_range: true },
    #[cfg(feature = "nvidia")]
    Row { name: NVIDIA_LAYER_SPAN, run: layers::nvidia_spans, is_range: true },
];

pub(crate) const NOTHING: &str = "the loop alone";
pub(crate) const HEADER: &str = "C header";
pub(crate) const RANGE: &str = "nvtx::range";
pub(crate) const ANNOTATE: &str = "#[nvtx::annotate]";
pub(crate) const NVIDIA: &str = "NVIDIA's crate";
pub(crate) const CALL: &str = "a call alone";
pub(crate) const HEADER_CALL: &str = "C header around a call";
pub(crate) const RANGE_CALL: &str = "nvtx::range around a call";
pub(crate) const NVIDIA_CALL: &str = "NVIDIA's crate around a call";
pub(crate) const NO_LAYER_STAY: &str = "a stay, an empty layer";
pub(crate) const LAYER_STAY: &str = "a stay, our layer";
pub(crate) const NO_LAYER_SPAN: &str = "a span, an empty layer";
pub(crate) const LAYER_SPAN: &str = "a span, our layer";
pub(crate) const NVIDIA_LAYER_SPAN: &str = "a span, NVIDIA's layer";

/// Prevents the compiler from assuming anything about memory read before.
#[inline(always)]
fn barrier() {
    // SAFETY: the assembly contains no instruction.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

macro_rules! turns {
    ($turns:ident, $body:block) => {
        for _ in 0..$turns {
            $body
            $body
            $body
            $body
            $body
            $body
            $body
            $body
        }
    };
}

/// The callee of the rows "around a call", called through a pointer that the compiler cannot
/// resolve.
extern "C" fn body() {
    barrier();
}

fn opaque() -> extern "C" fn() {
    std::hint::black_box(body as extern "C" fn())
}

#[inline(never)]
fn nothing(turns: u64) {
    turns!(turns, {
        barrier();
        barrier();
    });
}

#[inline(never)]
fn call(turns: u64) {
    let body = opaque();
    turns!(turns, {
        body();
        barrier();
    });
}

#[inline(never)]
fn range(turns: u64) {
    turns!(turns, {
        let range = nvtx::range("step");
        barrier();
        drop(range);
        barrier();
    });
}

#[inline(never)]
fn range_around_call(turns: u64) {
    let body = opaque();
    turns!(turns, {
        let range = nvtx::range("step");
        body();
        drop(range);
        barrier();
    });
}

#[inline(always)]
#[nvtx::annotate(name = "step")]
fn annotated() {
    barrier();
}

#[inline(never)]
fn annotate(turns: u64) {
    turns!(turns, {
        annotated();
        barrier();
    });
}

#[cfg(nvtx_header)]
mod header {
    // Named here too, because in a package with a library cargo links a build script's output only
    // to the library.
    #[link(name = "nvtx_header_rows", kind = "static")]
    unsafe extern "C" {
        fn peers_header_pairs(turns: u64);
        fn peers_header_around_calls(turns: u64, body: extern "C" fn());
    }

    pub(super) fn pairs(turns: u64) {
        // SAFETY: header.c takes any number.
        unsafe { peers_header_pairs(turns) };
    }

    pub(super) fn around_calls(turns: u64) {
        let body = super::opaque();
        // SAFETY: header.c takes any number, and the function may be called at any time.
        unsafe { peers_header_around_calls(turns, body) };
    }
}

#[cfg(feature = "nvidia")]
mod nvidia {
    use nvidia_nvtx::LocalRange;

    use super::{barrier, opaque};

    #[inline(never)]
    pub(super) fn pairs(turns: u64) {
        turns!(turns, {
            let range = LocalRange::new(c"step");
            barrier();
            drop(range);
            barrier();
        });
    }

    #[inline(never)]
    pub(super) fn around_calls(turns: u64) {
        let body = opaque();
        turns!(turns, {
            let range = LocalRange::new(c"step");
            body();
            drop(range);
            barrier();
        });
    }
}

mod layers {
    use std::sync::LazyLock;

    use tracing::{Dispatch, Level, Subscriber, dispatcher, span};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::{Layer, registry};

    use super::barrier;

    /// A layer that does nothing, as the base cost of any layer.
    struct Empty;

    impl<S: Subscriber> Layer<S> for Empty {}

    static EMPTY: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(registry().with(Empty)));
    static OURS: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(registry().with(nvtx::NvtxLayer::new())));
    #[cfg(feature = "nvidia")]
    static NVIDIAS: LazyLock<Dispatch> = LazyLock::new(|| {
        Dispatch::new(registry().with(nvidia_nvtx::tracing::NvtxLayer::default()))
    });

    pub(super) fn no_layer_stays(turns: u64) {
        stays_in(&EMPTY, turns);
    }

    pub(super) fn stays(turns: u64) {
        stays_in(&OURS, turns);
    }

    pub(super) fn no_layer_spans(turns: u64) {
        spans_in(&EMPTY, turns);
    }

    pub(super) fn spans(turns: u64) {
        spans_in(&OURS, turns);
    }

    #[cfg(feature = "nvidia")]
    pub(super) fn nvidia_spans(turns: u64) {
        spans_in(&NVIDIAS, turns);
    }

    fn stays_in(dispatch: &Dispatch, turns: u64) {
        let span = dispatcher::with_default(dispatch, || span!(Level::INFO, "step"));
        turns!(turns, {
            let stay = span.enter();
            barrier();
            drop(stay);
            barrier();
        });
    }

    fn spans_in(dispatch: &Dispatch, turns: u64) {
        dispatcher::with_default(dispatch, || {
            turns!(turns, {
                let stay = span!(Level::INFO, "step").entered();
                barrier();
                drop(stay);
                barrier();
            });
        });
    }
}
