//! Clocks and scopes, for events with their own timestamps.

use crate::domain::{Domain, DomainRef};
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, ScopeAttributes, SyncPoint, Text, TimeDomainAttributes};
use crate::text::with_c_str;

const UNSAFE_AFTER_TEARDOWN: u64 = 1;

/// The tool's handle of the domain; `None` without a tool.
fn tool_domain(domain: Option<&'static Domain>) -> Option<Handle> {
    state::has_tool().then(|| DomainRef::from_domain(domain).handle_or_null())
}

/// The clock of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(u64);

impl Clock {
    /// The tool's own clock, which [`timestamp`] reads.
    pub const TOOL: Clock = Clock(1);
    /// The processor's counter: `rdtsc`, or `CNTVCT` on ARM.
    pub const TSC: Clock = Clock(10);
    /// `CLOCK_REALTIME` in nanoseconds.
    pub const REALTIME: Clock = Clock(12);
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub const MONOTONIC: Clock = Clock(14);
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds.
    pub const MONOTONIC_RAW: Clock = Clock(15);
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub const BOOTTIME: Clock = Clock(17);
    /// The GPU's global timer in nanoseconds.
    pub const GPU: Clock = Clock(80);

    /// The clock with NVTX's number, as a tool receives it.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_number(number: u64) -> Clock {
        Clock(number)
    }

    /// NVTX's number of the clock.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Registers a clock of the program in `domain`; `None` without a tool that supports it.
    #[must_use]
    pub fn register(
        domain: Option<&'static Domain>,
        scope: Scope,
        ticks_per_second: i64,
    ) -> Option<Clock> {
        let domain = tool_domain(domain)?;
        let attributes = TimeDomainAttributes {
            scope: scope.0,
            timestamp_type: 0,
            time_domain: 0,
            flags: 0,
            resolution: ticks_per_second,
            start: 0,
        };
        functions::time_domain_register(domain, &attributes).filter(|id| *id != 0).map(Clock)
    }

    /// Passes the tool a function that reads this clock. The tool may call it on any thread until
    /// the process ends.
    pub fn source(self, domain: Option<&'static Domain>, read: extern "C" fn() -> i64) {
        if let Some(domain) = tool_domain(domain) {
            functions::timer_source(domain, self.0, UNSAFE_AFTER_TEARDOWN, read);
        }
    }

    /// As [`source`](Clock::source), with a closure. If it panics, the time is 0. A pointer to it
    /// is leaked.
    pub fn source_with(
        self,
        domain: Option<&'static Domain>,
        read: &'static (dyn Fn() -> i64 + Sync),
    ) {
        if let Some(domain) = tool_domain(domain) {
            functions::timer_source_with(domain, self.0, UNSAFE_AFTER_TEARDOWN, read);
        }
    }

    /// Sends the times of one moment by this clock and by another. Two such moments allow a tool to
    /// convert.
    pub fn sync_point(
        self,
        domain: Option<&'static Domain>,
        time: i64,
        other: Clock,
        other_time: i64,
    ) {
        if let Some(domain) = tool_domain(domain) {
            functions::time_sync_point(domain, self.0, other.0, time, other_time);
        }
    }

    /// Sends several moments, each by this clock and by another.
    pub fn sync_points(self, domain: Option<&'static Domain>, other: Clock, points: &[(i64, i64)]) {
        if let Some(domain) = tool_domain(domain) {
            let points: Vec<_> = points
                .iter()
                .map(|&(source, destination)| SyncPoint { source, destination })
                .collect();
            functions::sync_points(domain, self.0, other.0, &points);
        }
    }

    /// Sends a conversion: one tick of this clock is `slope` ticks of `other`, and `time` is
    /// `other_time`.
    pub fn conversion(
        self,
        domain: Option<&'static Domain>,
        time: i64,
        other: Clock,
        other_time: i64,
        slope: f64,
    ) {
        if let Some(domain) = tool_domain(domain) {
            functions::timestamp_conversion(domain, self.0, other.0, slope, time, other_time);
        }
    }
}

/// The origin of an event or counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u64);

impl Scope {
    /// Unspecified.
    pub const NONE: Scope = Scope(0);
    /// The root of all scopes.
    pub const ROOT: Scope = Scope(1);
    /// This machine.
    pub const MACHINE: Scope = Scope(2);
    /// This process.
    pub const PROCESS: Scope = Scope(21);
    /// This thread.
    pub const THREAD: Scope = Scope(22);

    /// Registers a scope of the program: a path such as `GPU[CUDAID:0]` below `self`, which is
    /// [`ROOT`](Scope::ROOT), [`NONE`](Scope::NONE) or a registered scope. `NONE` without a tool
    /// that supports it.
    #[must_use]
    pub fn child(self, domain: Option<&'static Domain>, path: &str) -> Scope {
        let Some(domain) = tool_domain(domain) else { return Scope::NONE };
        let scope = with_c_str(path, |path| {
            functions::scope_register(domain, &ScopeAttributes::new(Text::new(path), self.0))
        });
        Scope(scope.unwrap_or(0))
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// The time by the tool's own clock, [`Clock::TOOL`]; `None` without a tool that supports it.
#[must_use]
pub fn timestamp() -> Option<i64> {
    if state::has_tool() { functions::timestamp_get() } else { None }
}
