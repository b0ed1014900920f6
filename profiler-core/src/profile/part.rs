//! Parts of a profile: a time, or one instance of a range.

use std::time::Duration;

use super::Profile;
use crate::error::Error;
use crate::join::joined::Joined;
use crate::join::part::Part;
use crate::join::tables::RangeId;
use profiler_base::kernel_names::Pattern;
use profiler_base::units::nanoseconds;
use rustc_hash::FxHashMap;

impl Profile {
    /// The part of the profile between two times since the session's start, as if only this time
    /// had been recorded: calls that began in it, the GPU work that they submitted, and ranges that
    /// were open meanwhile, cut to it. Times count from `from` then.
    ///
    /// Work belongs to the time of its call, so that parts add up to the whole, and a part's
    /// operations may run after it. Accounts are of the part, losses of the whole. The part has no
    /// [`recording`](Self::recording). Costs a pass over all rows.
    ///
    /// ```
    /// use std::time::Duration;
    /// use profiler_core::Profile;
    ///
    /// # fn main() -> Result<(), profiler_core::Error> {
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    /// let whole = Profile::load(file)?;
    /// let (kernels, middle) = (whole.totals().kernels, whole.duration() / 2);
    /// let first = whole.during(Duration::ZERO, middle);
    /// let second = Profile::load(file)?.during(middle, Duration::MAX);
    /// assert_eq!(first.totals().kernels + second.totals().kernels, kernels);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn during(self, from: Duration, until: Duration) -> Self {
        let start_ns = self.store.session.window_ns.0;
        let at_ns = |time| start_ns.saturating_add(nanoseconds(time));
        self.part(&Part::of_time(at_ns(from), at_ns(until)))
    }

    /// The instance of a range of this name, path or pattern, as [`steps`](Self::steps) numbers
    /// them from 0: its calls, its GPU work and the ranges around it, as [`during`](Self::during).
    /// [Inferred](Self::with_inferred_ranges) work is included, that of other ranges at the time
    /// is not. Of several processes, the instance of each.
    ///
    /// # Errors
    /// No process has so many instances.
    pub fn instance(self, path: &str, number: usize) -> Result<Self, Error> {
        let mut of_process: FxHashMap<u32, usize> = FxHashMap::default();
        let is_outermost = self.outermost(&Pattern::new(path));
        let rows = (0..self.store.ranges.len() as u32).map(RangeId);
        let is_instance = |id: &RangeId| is_outermost[self.tree.of_range[id.at()].at()];
        let mut instances: Vec<RangeId> = rows.filter(is_instance).collect();
        self.store.sort_ranges(&mut instances);
        let threads = &self.store.threads;
        instances.retain(|id| {
            let process = threads[self.store.ranges[id.at()].thread.at()].process;
            let count = of_process.entry(process).or_default();
            *count += 1;
            *count == number + 1
        });
        if instances.is_empty() {
            let most = of_process.into_values().max();
            let have = most.map_or_else(
                || format!("there is no range {path}"),
                |most| format!("the numbers of {path} are 0 to {}", most - 1),
            );
            return Err(Error::other(format!("{have}: there is no instance {number}")));
        }
        let part = Part::of_ranges(&self.store, &self.tree, &instances);
        Ok(self.part(&part))
    }

    fn part(self, part: &Part) -> Self {
        let Self { info, store: mut tables, mut health, .. } = self;
        part.cut(&mut tables, &mut health);
        let mut profile = Self::from(Joined { tables, info, health });
        profile.tree.add_inferred(&profile.store);
        profile.count_inferred();
        profile
    }
}
