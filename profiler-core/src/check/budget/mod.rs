//! Budgets for tests: limits for ranges, and failures with the measured amount and its place. [`expect`] has an example.

mod amount;
mod doubt;
mod parts;
mod quantity;
mod scope;
mod violations;

use std::time::Duration;

use cupti::CopyKind;

use crate::base::kernel_names::Pattern;
use crate::base::statistics::Statistic;
use crate::profile::Profile;
use crate::profile::profiles::Profiles;
pub use amount::{Amount, Budget, at_least, at_most, between, exactly};
use quantity::Quantity;
use scope::Scope;
use violations::Section;
pub use violations::{Violation, Violations};

/// Begins a chain of budgets, which [`assert`](Expect::assert) or [`check`](Expect::check) ends.
///
/// ```no_run
/// # fn main() -> Result<(), profiler_core::Error> {
/// use std::time::Duration;
///
/// use profiler_core::profile::CopyKind;
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
/// Budgets hold for the whole profile until a [`range`](Expect::range) is named. With several profiles, which are the
/// runs of one test, each run has to keep them; [`gpu_time_of`](Expect::gpu_time_of) looks at the instances of all.
///
/// What a recording cannot tell is a violation that says so, never a pass: a budget on kernels where records were
/// dropped, on times where CUPTI had none, on a range that is not there. Counts are exact and the same on every run of a
/// program that does the same; times are not: give them room.
///
/// Work of several ranges ([`Context::join`](crate::Context::join)) is in the budgets of the range that it counts for, the first,
/// and of those around it. A budget of another one does not see it, but for
/// [`shared_kernels`](Expect::shared_kernels); if it is not kept, its text says how much of such work there is.
///
/// Every budget walks the operations and calls of its range once. None of this is meant for hot code.
pub fn expect<P: Profiles + ?Sized>(profiles: &P) -> Expect<'_> {
    let profiles = profiles.profiles();
    let done = if profiles.is_empty() { vec![Section::nothing()] } else { Vec::new() };
    Expect { profiles, scope: Scope::whole(profiles), done, open: Section::default() }
}

/// The time of all GPU operations of a profile, summed; or why it is not known.
#[cfg(feature = "criterion")]
pub(crate) fn gpu_time(profile: &Profile) -> Result<Duration, String> {
    time(profile, &Quantity::GpuTime)
}

/// The time in which at least one GPU operation ran that is no collective, device by device; or why it is not known.
#[cfg(feature = "criterion")]
pub(crate) fn busy_time(profile: &Profile) -> Result<Duration, String> {
    time(profile, &Quantity::BusyTime)
}

#[cfg(feature = "criterion")]
fn time(profile: &Profile, quantity: &Quantity) -> Result<Duration, String> {
    let scope = Scope::whole(std::slice::from_ref(profile));
    let doubts: Vec<String> =
        scope.groups.iter().flat_map(|group| doubt::doubts(quantity, &scope, group)).collect();
    let groups: Vec<_> = scope.groups.iter().collect();
    match &doubts[..] {
        [] => Ok(Duration::from_nanos(quantity.measure(&groups))),
        _ => Err(doubts.join("; ")),
    }
}

/// Budgets that are being set; see [`expect`].
#[derive(Debug)]
#[must_use = "nothing fails until `assert` or `check` is called"]
pub struct Expect<'a> {
    profiles: &'a [Profile],
    scope: Scope<'a>,
    /// What was found in scopes that were left.
    done: Vec<Section>,
    /// What is found in this one.
    open: Section,
}

impl<'a> Expect<'a> {
    /// From here on, budgets are for all ranges of this name or path together, as [`Profile::range`] finds them: with
    /// the work of the ranges within them, and one within another of the pattern counted once.
    ///
    /// A range that is not there is a violation, but where [`instances`](Self::instances) has a budget.
    pub fn range(self, path: &str) -> Self {
        let profiles = self.profiles;
        self.enter(Scope::range(profiles, Pattern::new(path), false))
    }

    /// From here on, every instance of the range has to keep its budgets on its own. Says nothing where no range was
    /// named.
    pub fn each(mut self) -> Self {
        let Some(pattern) = self.scope.pattern().cloned() else {
            return self;
        };
        let scope = Scope::range(self.profiles, pattern, true);
        if self.open.is_untouched() {
            self.scope = scope;
            return self;
        }
        self.enter(scope)
    }

    /// From here on, budgets are for the whole profile again.
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

    /// Nothing was lost in any run: [`Health::is_complete`](crate::Health::is_complete).
    pub fn complete(mut self) -> Self {
        for (run, profile) in self.profiles.iter().enumerate() {
            if !profile.health().is_complete() {
                let text = profile.health().to_string();
                self.done.push(Section::incomplete(run, self.profiles.len(), text));
            }
        }
        self
    }

    fn judge<T>(mut self, quantity: Quantity, budget: Budget<T>) -> Self {
        self.open.judge(&self.scope, quantity, budget.bounds);
        self
    }

    /// Kernels of this name. `*` stands for any text. The name may be the compiler's, or demangled without parameters as
    /// the report shows it ([`Kernel::demangled_name`](crate::profile::Kernel::demangled_name)).
    pub fn kernels_named(self, name: &str, budget: Budget<u64>) -> Self {
        self.judge(Quantity::KernelsNamed(Pattern::new(name)), budget)
    }

    /// No kernel has other names than these, patterns as for [`kernels_named`](Self::kernels_named).
    pub fn only_kernels(self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter().map(|name| Pattern::new(name.as_ref())).collect();
        self.judge(Quantity::KernelsOtherThan(names), exactly(0))
    }

    /// No kernel has one of these names, patterns as for [`kernels_named`](Self::kernels_named).
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

    /// A statistic over the GPU times of the single instances, those of all runs together; over the runs, for the whole
    /// profile. A range within another of the pattern counts for that one, also after [`each`](Self::each).
    pub fn gpu_time_of(self, statistic: Statistic, budget: Budget<Duration>) -> Self {
        self.judge(Quantity::GpuTimeOf(statistic), budget)
    }

    /// Ends the chain.
    ///
    /// # Errors
    /// All budgets that were not kept.
    pub fn check(mut self) -> Result<(), Violations> {
        self.leave();
        if self.done.is_empty() { Ok(()) } else { Err(Violations::new(self.done)) }
    }

    /// Ends the chain, for tests.
    ///
    /// # Panics
    /// If a budget was not kept, with all that were not.
    #[track_caller]
    pub fn assert(self) {
        let violations = self.check().err();
        let text = violations.map(|violations| violations.to_string()).unwrap_or_default();
        assert!(text.is_empty(), "{text}");
    }
}

/// Declares the budgets that need nothing but an amount: the method, the unit of the amount, and what is measured.
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
    /// How often the range was entered; the runs, for the whole profile. [`exactly(0)`](exactly) for one that must not be there.
    instances: u64 = Quantity::Instances;
    /// Kernels that ran, those of graphs among them.
    kernels: u64 = Quantity::Kernels;
    /// Kernels that belong to the range and those within, and count for others: of work that several ranges asked for
    /// together. With all instances together, each kernel once, and none that counts for one of them. None for the whole
    /// profile, for which everything counts.
    shared_kernels: u64 = Quantity::SharedKernels;
    /// Successful calls that launched a kernel or a graph, not into a graph under capture.
    launches: u64 = Quantity::Launches;
    /// Those of the launches that launched a graph.
    graph_launches: u64 = Quantity::GraphLaunches;
    /// Calls that block the host until the GPU got somewhere, such as `cuStreamSynchronize`. Copies that block are not
    /// among them.
    synchronizations: u64 = Quantity::Synchronizations;
    /// Copies for which the host waits, by CUDA's rules: synchronous calls that copy from or to the host, and
    /// asynchronous ones from the device to pageable memory, which return when the copy is done. Copies between devices
    /// and those of graphs never block.
    blocking_copies: u64 = Quantity::BlockingCopies;
    /// Copies from or to pageable host memory, which go through a staging buffer.
    pageable_copies: u64 = Quantity::PageableCopies;
    /// Copies that ran.
    copies: u64 = Quantity::Copies(None);
    /// Bytes that copies moved.
    copied_bytes: u64 = Quantity::CopiedBytes(None);
    /// Memsets that ran.
    memsets: u64 = Quantity::Memsets;
    /// Calls that allocated, registered or mapped memory, host memory among it.
    allocations: u64 = Quantity::Allocations;
    /// Calls that freed, unregistered or unmapped memory, host memory among it.
    frees: u64 = Quantity::Frees;
    /// Streams that work ran on.
    streams: u64 = Quantity::Streams;
    /// The time of all GPU operations, summed: two that run at once count twice.
    gpu_time: Duration = Quantity::GpuTime;
    /// The time in which at least one GPU operation ran that is no collective, instance by instance and device by device,
    /// summed: two that run at once on a device count once. Collectives, kernels of NCCL and the like by name, may wait for
    /// another rank without computing.
    busy_time: Duration = Quantity::BusyTime;
    /// From 0 to 1, to a millionth: of the time from the start of an instance's first operation on a device to the end of its
    /// last there, the share in which at least one of them ran that is no collective; instances and devices summed before they are divided.
    /// All by the GPU's clock. Work of other ranges does not count.
    busy_share: f64 = Quantity::BusyShare;
    /// The part of that time in which none of its operations ran.
    idle: Duration = Quantity::Idle;
}
