//! Budgets for tests: limits for ranges, with the measured amount. [`expect`] has an example.

mod amount;
mod parts;
mod quantity;
#[cfg(feature = "test-reports")]
mod report;
mod scope;
mod unknowns;
mod violations;

#[cfg(feature = "test-reports")]
use std::panic::Location;
use std::time::Duration;

use cupti::CopyKind;
use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::Statistic;

use crate::profile::Profile;
use crate::profile::profiles::Profiles;
use crate::query::Stall;
pub use amount::{Budget, at_least, at_most, between, exactly};
pub(crate) use quantity::Quantity;
use scope::Scope;
use violations::{COMPLETENESS, Section};
pub use violations::{Violation, Violations};

/// Starts a chain of budgets, which [`assert`](Expect::assert) or [`check`](Expect::check) ends.
///
/// ```no_run
/// # fn main() -> Result<(), profiler_core::Error> {
/// use std::time::Duration;
///
/// use profiler_core::cupti::CopyKind;
/// use profiler_core::statistics::Statistic;
/// use profiler_core::{Profile, at_most, between, exactly, expect};
///
/// let profile = Profile::load("run.gpuprof")?;
/// expect(&profile)
///     .complete()
///     .range("forward") // all instances together
///     .kernels(at_most(100))
///     .copies_of(CopyKind::DeviceToHost, exactly(0))
///     .gpu_time_of(Statistic::Median, at_most(Duration::from_millis(2)))
///     .range("batch").each() // every instance on its own
///     .kernels(between(16, 18))
///     .assert();
/// # Ok(())
/// # }
/// ```
///
/// Budgets apply to the whole profile until [`range`](Expect::range) names a range. Several
/// profiles are runs of one test: each run must satisfy the budgets, while
/// [`gpu_time_of`](Expect::gpu_time_of) covers the instances of all runs.
///
/// An amount that the recording does not determine is a violation with the reason, never a pass: a
/// budget on kernels if records were dropped, on times if CUPTI had none, on a range that is
/// missing. Counts repeat exactly on every run of a deterministic program. Times vary.
///
/// Work of several ranges ([`Context::join`](crate::Context::join)) counts in the budgets of the
/// first range, to which it is attributed, and of its ancestors. Budgets of other ranges exclude
/// it, except [`shared_kernels`](Expect::shared_kernels); their messages have the amount.
///
/// Each budget walks the operations and calls of its range once; do not use it in hot code.
pub fn expect<P: Profiles + ?Sized>(profiles: &P) -> Expect<'_> {
    let profiles = profiles.profiles();
    let done = if profiles.is_empty() { vec![Section::no_profile()] } else { Vec::new() };
    let (scope, open) = (Scope::whole(profiles), Section::default());
    Expect { profiles, scope, done, open, budgets: Vec::new() }
}

/// Returns a time of the whole profile, or the reason why it is unknown.
#[cfg(feature = "criterion")]
pub(crate) fn time(profile: &Profile, quantity: &Quantity) -> Result<Duration, String> {
    time_of(&Scope::whole(std::slice::from_ref(profile)), quantity)
}

/// Returns the GPU time of the ranges of a name, path or pattern.
///
/// # Errors
/// The recording does not determine the time: the reason, as in the message of a budget that cannot
/// be decided.
pub fn gpu_time_of(profile: &Profile, pattern: &str) -> Result<Duration, String> {
    let scope = Scope::range(std::slice::from_ref(profile), Pattern::new(pattern), false);
    time_of(&scope, &Quantity::GpuTime)
}

fn time_of(scope: &Scope<'_>, quantity: &Quantity) -> Result<Duration, String> {
    let groups: Vec<_> = scope.groups.iter().collect();
    let unknowns: Vec<String> =
        groups.iter().flat_map(|group| unknowns::unknowns(quantity, scope, group)).collect();
    match &unknowns[..] {
        [] => Ok(Duration::from_nanos(quantity.measure(&groups))),
        _ => Err(unknowns.join("; ")),
    }
}

/// A chain of budgets; see [`expect`].
#[derive(Debug)]
#[must_use = "nothing fails until `assert` or `check` is called"]
pub struct Expect<'a> {
    profiles: &'a [Profile],
    scope: Scope<'a>,
    /// Sections of earlier scopes.
    done: Vec<Section>,
    /// The section of the current scope.
    open: Section,
    /// The scope and the quantity of each budget so far.
    budgets: Vec<(String, String)>,
}

impl<'a> Expect<'a> {
    /// Applies the following budgets to all ranges of this name or path together, as found by
    /// [`Profile::range`], with the ranges within them. A match within another counts once.
    ///
    /// A missing range is a violation unless [`instances`](Self::instances) has a budget.
    pub fn range(self, path: &str) -> Self {
        let profiles = self.profiles;
        self.enter(Scope::range(profiles, Pattern::new(path), false))
    }

    /// Applies the following budgets to each instance of the range. No effect on the whole profile.
    pub fn each(mut self) -> Self {
        let Some(pattern) = self.scope.pattern().cloned() else {
            return self;
        };
        let scope = Scope::range(self.profiles, pattern, true);
        if !self.open.touched {
            self.scope = scope;
            return self;
        }
        self.enter(scope)
    }

    /// Applies the following budgets to the whole profile again.
    pub fn whole_profile(self) -> Self {
        let profiles = self.profiles;
        self.enter(Scope::whole(profiles))
    }

    fn enter(mut self, scope: Scope<'a>) -> Self {
        self.leave();
        self.scope = scope;
        self
    }

    fn leave(&mut self) {
        let section = std::mem::take(&mut self.open);
        self.done.extend(section.closed(&self.scope));
    }

    /// Requires that nothing was lost in any run:
    /// [`Health::is_complete`](crate::Health::is_complete).
    pub fn complete(mut self) -> Self {
        for (run, profile) in self.profiles.iter().enumerate() {
            let title = match self.profiles.len() {
                1 => "the whole profile".to_owned(),
                runs => format!("run {} of {runs}", run + 1),
            };
            if !profile.health().is_complete() {
                self.done.push(Section::incomplete(&title, &profile.health().to_string()));
            }
            self.budgets.push((title, COMPLETENESS.to_owned()));
        }
        self
    }

    fn judge<T>(mut self, quantity: Quantity, budget: Budget<T>) -> Self {
        self.budgets.push((self.scope.title(), quantity.name()));
        self.open.judge(&self.scope, quantity, budget.bounds);
        self
    }

    /// Kernels of this name; `*` matches any text. The name is mangled, or demangled without
    /// parameters as in the report
    /// ([`Kernel::demangled_name`](crate::profile::Kernel::demangled_name)).
    pub fn kernels_named(self, name: &str, budget: Budget<u64>) -> Self {
        self.judge(Quantity::KernelsNamed(Pattern::new(name)), budget)
    }

    /// Every kernel matches one of these patterns, as for [`kernels_named`](Self::kernels_named).
    pub fn only_kernels(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter().map(|name| Pattern::new(name.as_ref())).collect();
        self.judge(Quantity::KernelsOtherThan(names), exactly(0))
    }

    /// No kernel matches any of these patterns, as for [`kernels_named`](Self::kernels_named).
    pub fn no_kernels(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        names.into_iter().fold(self, |expect, name| expect.kernels_named(name.as_ref(), exactly(0)))
    }

    /// Copies in one direction.
    pub fn copies_of(self, kind: CopyKind, budget: Budget<u64>) -> Self {
        self.judge(Quantity::Copies(Some(kind)), budget)
    }

    /// Bytes that copies moved in one direction.
    pub fn copied_bytes_of(self, kind: CopyKind, budget: Budget<u64>) -> Self {
        self.judge(Quantity::CopiedBytes(Some(kind)), budget)
    }

    /// The share, from 0 to 1, of the instruction samples of kernels of this name
    /// ([`kernels_named`](Self::kernels_named)) in which the warp was in this state. Needs
    /// [`Sampling::instructions`](crate::Sampling::instructions), and at least 400 samples of which
    /// 95 % are exact.
    pub fn stall_share(self, kernel: &str, stall: Stall, budget: Budget<f64>) -> Self {
        self.judge(Quantity::StallShare(Pattern::new(kernel), stall), budget)
    }

    /// A statistic of the GPU times of single instances, over all runs; for the whole profile, of
    /// whole runs. Inner matches count for the outer one, also after [`each`](Self::each).
    pub fn gpu_time_of(self, statistic: Statistic, budget: Budget<Duration>) -> Self {
        self.judge(Quantity::GpuTimeOf(statistic), budget)
    }

    /// A statistic of the host times of single instances, over all runs; for the whole profile, of
    /// whole runs. Inner matches count for the outer one, also after [`each`](Self::each).
    pub fn host_time_of(self, statistic: Statistic, budget: Budget<Duration>) -> Self {
        self.judge(Quantity::HostTimeOf(statistic), budget)
    }

    /// Ends the chain.
    ///
    /// # Errors
    /// The violated budgets.
    pub fn check(mut self) -> Result<(), Violations> {
        self.leave();
        if self.done.is_empty() { Ok(()) } else { Err(Violations(self.done)) }
    }

    /// Ends the chain, for tests. With the feature `test-reports`, it also writes reports for CI if
    /// the environment variable `GPU_TEST_REPORTS` or `GITHUB_ACTIONS` is set: see
    /// [`ci`](crate::testing::ci::CiReport).
    ///
    /// # Panics
    /// If a budget was violated, with all violations.
    #[track_caller]
    pub fn assert(mut self) {
        #[cfg_attr(not(feature = "test-reports"), allow(unused_variables))]
        let budgets = std::mem::take(&mut self.budgets);
        let violations = self.check().err();
        #[cfg(feature = "test-reports")]
        crate::check::ci::CiReport::publish(Location::caller(), || {
            report::report_of(&budgets, violations.as_ref())
        });
        let text = violations.map(|violations| violations.to_string()).unwrap_or_default();
        assert!(text.is_empty(), "{text}");
    }
}

/// Declares the budgets that take only an amount: the method, its unit, and the quantity.
macro_rules! budgets {
    ($($(#[$doc:meta])* $name:ident: $unit:ty = $quantity:expr;)+) => {
        impl Expect<'_> {
            $(
                $(#[$doc])*
                pub fn $name(self, budget: Budget<$unit>) -> Self {
                    self.judge($quantity, budget)
                }
            )+
        }
    };
}

budgets! {
    /// Entries into the range; runs, for the whole profile. [`exactly(0)`](exactly) forbids it.
    instances: u64 = Quantity::Instances;
    /// Kernels that ran, including kernels of graphs.
    kernels: u64 = Quantity::Kernels;
    /// Kernels shared with other ranges and attributed to one of those. For all instances together,
    /// each kernel counts once; kernels attributed to any of the instances are excluded. 0 for the
    /// whole profile.
    shared_kernels: u64 = Quantity::SharedKernels;
    /// Successful calls that launched a kernel or a graph, except into a graph under capture.
    launches: u64 = Quantity::Launches;
    /// The launches that launched a graph.
    graph_launches: u64 = Quantity::GraphLaunches;
    /// Calls that block the host, such as `cuStreamSynchronize`, except blocking copies.
    synchronizations: u64 = Quantity::Synchronizations;
    /// Copies that block the host by CUDA's rules: synchronous copies from or to the host, and
    /// asynchronous ones from the device to pageable memory. Copies between devices and in graphs
    /// never block.
    blocking_copies: u64 = Quantity::BlockingCopies;
    /// Copies from or to pageable host memory, which go through a staging buffer.
    pageable_copies: u64 = Quantity::PageableCopies;
    /// Copies that ran.
    copies: u64 = Quantity::Copies(None);
    /// Bytes that copies moved.
    copied_bytes: u64 = Quantity::CopiedBytes(None);
    /// Memsets that ran.
    memsets: u64 = Quantity::Memsets;
    /// Calls that allocated, registered or mapped device or host memory.
    allocations: u64 = Quantity::Allocations;
    /// Calls that freed, unregistered or unmapped device or host memory.
    frees: u64 = Quantity::Frees;
    /// Streams on which work ran.
    streams: u64 = Quantity::Streams;
    /// The host's time in the range, summed over instances; for the whole profile, its [wall
    /// time](Profile::wall_time). It varies more than times of the GPU.
    host_time: Duration = Quantity::HostTime;
    /// The sum of the times of all GPU operations: two concurrent operations count twice.
    gpu_time: Duration = Quantity::GpuTime;
    /// The time in which at least one GPU operation other than a collective ran, summed over
    /// instances and devices: concurrent operations on a device count once. Collectives (kernels of
    /// NCCL and similar libraries, recognized by name) may wait for another rank without computing.
    busy_time: Duration = Quantity::BusyTime;
    /// The busy share, from 0 to 1, in millionths: busy time as in [`busy_time`](Self::busy_time)
    /// divided by the time from an instance's first operation on a device to the end of its last
    /// one there. Instances and devices are summed before the division. All times are of the GPU's
    /// clock. Work of other ranges does not count.
    busy_share: f64 = Quantity::BusyShare;
    /// The part of that time in which no operation of the range ran.
    idle: Duration = Quantity::Idle;
}
