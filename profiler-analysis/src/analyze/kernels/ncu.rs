//! Nsight Compute commands for a launch.

use rustc_hash::FxHashMap;

use profiler_core::profile::{Kernel, Profile};
use profiler_core::tables::OperationId;

/// The launches of some kernels in call order.
pub(super) struct Instances<'a> {
    profile: &'a Profile,
    /// By process and name: correlation id, and start to order the nodes of a graph.
    of_name: FxHashMap<(u32, &'a str), Vec<(u32, u64)>>,
}

impl<'a> Instances<'a> {
    pub(super) fn new(profile: &'a Profile, kernels: impl Iterator<Item = Kernel<'a>>) -> Self {
        let key = |kernel: &Kernel<'a>| (kernel.process_id(), kernel.name());
        let mut of_name: FxHashMap<_, Vec<_>> =
            kernels.map(|kernel| (key(&kernel), Vec::new())).collect();
        for kernel in profile.kernels() {
            if let Some(instances) = of_name.get_mut(&key(&kernel)) {
                instances.push((kernel.correlation_id(), kernel.row().start_ns()));
            }
        }
        of_name.values_mut().for_each(|instances| instances.sort_unstable());
        Self { profile, of_name }
    }

    /// The command for the launch with this operation number.
    pub(super) fn command(&self, kernel: &Kernel<'a>, number: usize) -> String {
        let launch = u32::try_from(number).ok().map(|number| {
            let launch = self.profile.operation(OperationId(number));
            (launch.correlation_id(), launch.row().start_ns())
        });
        let instances = self.of_name.get(&(kernel.process_id(), kernel.name()));
        let skip = launch.zip(instances).map_or(0, |(launch, instances)| {
            instances.partition_point(|instance| *instance < launch)
        });
        // A capture may lack the mangled name.
        let base = match kernel.demangled() {
            Some(demangled)
                if demangled == kernel.name() && demangled.contains([' ', '<', '(']) =>
            {
                "demangled"
            }
            _ => "mangled",
        };
        format!(
            "ncu --set full --kernel-name-base {base} --kernel-name {} --launch-skip {skip} --launch-count 1 PROGRAM",
            quoted(kernel.name())
        )
    }
}

/// A name as a shell word.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    match name.chars().all(is_plain) && !name.is_empty() {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn names_are_quoted_for_a_shell() {
        assert_eq!(quoted("_Z4gemmPf"), "_Z4gemmPf");
        assert_eq!(quoted("void k<int>(int *)"), "'void k<int>(int *)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!((quoted("$x"), quoted("")), ("'$x'".into(), "''".into()));
    }
}
