//! From where on a number is a sign of something.

use std::time::Duration;

use serde::Serialize;

use crate::base::statistics::as_ns;

/// Declares the thresholds: each with its setter, its getter, its type and its default.
macro_rules! thresholds {
    ($(
        $(#[doc = $doc:literal])*
        $(#[serde($($serde:tt)*)])?
        $name:ident $get:ident: $type:ty = $default:expr;
    )+) => {
        /// What a diagnosis goes by. Shares are of the clock of the scope that is looked at, so that the same thresholds do for a
        /// step of 10 ms and for a run of an hour.
        ///
        /// ```
        /// use profiler_core::diagnosis::Thresholds;
        ///
        /// let strict = Thresholds::new().verdict_share(0.1).loading("*shard*");
        /// assert_eq!(strict.get_verdict_share(), 0.1);
        /// ```
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[must_use]
        pub struct Thresholds {
            $($(#[serde($($serde)*)])? $name: $type,)+
            loading: Vec<String>,
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $default,)+ loading: Vec::new() }
            }
        }

        impl Thresholds {
            $(
                $(#[doc = $doc])*
                pub fn $name(self, $name: $type) -> Self {
                    Self { $name, ..self }
                }

                #[doc = concat!("What [`", stringify!($name), "`](Self::", stringify!($name), ") is.")]
                #[must_use]
                pub fn $get(&self) -> $type {
                    self.$name
                }
            )+
        }
    };
}

thresholds! {
    /// What part of the clock a cause has to take to be the verdict. 0.2 by default: removed, all else equal, it makes the
    /// whole 1.25 times as fast, which is what runs differ by themselves (10 to 30 % on the machine of the
    /// measurements).
    verdict_share get_verdict_share: f64 = 0.2;
    /// What part of the clock a cause has to take to be listed. 0.05 by default: removed, all else equal, 1.05 times as fast.
    cause_share get_cause_share: f64 = 0.05;
    /// What part of the clock a finding has to take to be told. 0.02 by default: less is lost among the
    /// differences of one run and the next. Findings that have no cost are told all the same.
    finding_share get_finding_share: f64 = 0.02;
    /// How many operations a scope needs for a verdict. 10 by default: with fewer, one that is late by
    /// chance is more than a tenth of them.
    least_operations get_least_operations: u64 = 10;
    /// Up to how many bytes a copy is small. 64 KiB by default: up to there CUDA itself treats copies of
    /// pageable memory apart, and the link needs less time for one than the call (1.3 us at 50 GB/s).
    small_copy_bytes get_small_copy_bytes: u64 = 64 << 10;
    /// Up to which time a kernel is small. 20 us by default: some five launches, each of which takes 3 to
    /// 5 us, so that what surrounds a kernel weighs as much as the kernel.
    #[serde(rename = "small_kernel_ns", serialize_with = "as_ns")]
    small_kernel get_small_kernel: Duration = Duration::from_micros(20);
    /// What part of the blocks that the GPU runs at once a kernel has to bring. 0.5 by default: with less,
    /// two of them could run side by side.
    least_fill get_least_fill: f64 = 0.5;
    /// How often something has to be repeated to count as repeated. 8 by default: as one of them, the whole
    /// takes little more than an eighth.
    least_repeats get_least_repeats: u64 = 8;
    /// What recording costs a call. 1.2 us by default: what a launch takes longer while kernels are
    /// recorded (measured on an NVIDIA H200 with CUPTI 13.0: 1.0 us for the kernel's record, 0.2 us for the callback).
    #[serde(rename = "overhead_per_call_ns", serialize_with = "as_ns")]
    overhead_per_call get_overhead_per_call: Duration = Duration::from_nanos(1_200);
    /// From which part of the clock on the profiler's own time is told. 0.1 by default.
    overhead_share get_overhead_share: f64 = 0.1;
    /// From which part of the clock on there is no verdict, for it would be on the profiler. 0.5 by default.
    most_overhead get_most_overhead: f64 = 0.5;
    /// Whether a profile that lacks records gets a verdict all the same. It does not by default: a kernel
    /// that was lost looks like an idle GPU. Also for an ordinal that is several GPUs.
    incomplete get_incomplete: bool = false;
    /// Up to which part of the records and calls may be [unmatched](crate::Health::unmatched_share) for a verdict. 0.01 by
    /// default: work of calls that were made just before the recording began or ended. The verdict states the part.
    most_unmatched get_most_unmatched: f64 = 0.01;
    /// How many pieces of evidence each cause and finding keeps, the costliest first. 8 by default; all are
    /// counted.
    evidence get_evidence: usize = 8;
}

impl Thresholds {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names of ranges in which data is loaded, besides those that [`is_loading`](Self::is_loading) knows. A `*` stands for
    /// any text.
    pub fn loading(mut self, pattern: &str) -> Self {
        self.loading.push(pattern.to_lowercase());
        self
    }

    /// True for the name of a range in which data is loaded: one of the program's own [patterns](Self::loading), or one
    /// with a word like `load`, `loader`, `dataloader`, `fetch`, `prefetch`, `ingest` or `dataset`, whatever its case.
    pub fn is_loading(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let own =
            |pattern: &String| crate::base::kernel_names::Pattern::new(pattern).matches(&name);
        // Unload, download, payload, workload, offload, overload and reload are other things.
        let word = |word: &str| {
            ["load", "loads", "loading", "loader", "loaders", "ingest", "dataset"].contains(&word)
                || ["fetch", "prefetch", "dataload"].iter().any(|begin| word.starts_with(begin))
                || word.ends_with("dataloader")
                || word.contains("dataloaderiter")
        };
        self.loading.iter().any(own) || name.split(|c: char| !c.is_alphanumeric()).any(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_load_data_are_known_by_their_words() {
        let thresholds = Thresholds::new();
        for name in [
            "data loading",
            "load_batch",
            "DataLoader",
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            "prefetch",
            "Fetching",
            "dataset[3]",
        ] {
            assert!(thresholds.is_loading(name), "{name}");
        }
        for name in
            ["step", "download", "workload", "payload", "offload", "reload", "data parallel"]
        {
            assert!(!thresholds.is_loading(name), "{name}");
        }
        let own = thresholds.loading("next *shard*");
        assert!(own.is_loading("Next shard 7") && !own.is_loading("shard"));
    }
}
