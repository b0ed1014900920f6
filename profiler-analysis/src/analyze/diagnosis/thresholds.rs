//! Thresholds of the diagnosis.

use std::time::Duration;

use profiler_base::kernel_names::matches;
use profiler_base::statistics::as_ns;
use serde::Serialize;

/// Declares the thresholds, each with setter, getter, type and default.
macro_rules! thresholds {
    ($(
        $(#[doc = $doc:literal])*
        $(#[serde($($serde:tt)*)])?
        $name:ident $get:ident: $type:ty = $default:expr;
    )+) => {
        /// The thresholds of a diagnosis. Shares are of the clock of the scope, so the same values
        /// suit a step of 10 ms and a run of an hour.
        ///
        /// ```
        /// use profiler_analysis::diagnosis::Thresholds;
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

                #[doc = concat!("The value of [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                #[must_use]
                pub fn $get(&self) -> $type {
                    self.$name
                }
            )+
        }
    };
}

thresholds! {
    /// Minimum share of the clock for a verdict. Default 0.2: removing it makes the whole 1.25
    /// times as fast, comparable to the variation of runs (10 to 30 % on the measured machine).
    verdict_share get_verdict_share: f64 = 0.2;
    /// Minimum share of the clock for a listed cause. Default 0.05: 1.05 times as fast without it.
    cause_share get_cause_share: f64 = 0.05;
    /// Minimum share of the clock for a finding. Default 0.02: a smaller share disappears in the
    /// variation of runs. Findings without a cost are always reported.
    finding_share get_finding_share: f64 = 0.02;
    /// Minimum operations of a scope for a verdict. Default 10: with fewer, one that is late by
    /// chance is more than a tenth of them.
    least_operations get_least_operations: u64 = 10;
    /// Maximum bytes of a small copy. Default 64 KiB: CUDA treats copies of pageable memory
    /// specially up to that size. The transfer also takes less time than the call (1.3 us at 50
    /// GB/s).
    small_copy_bytes get_small_copy_bytes: u64 = 64 << 10;
    /// Maximum time of a small kernel. Default 20 us: about five launches of 3 to 5 us, so the
    /// surrounding calls cost as much as the kernel.
    #[serde(rename = "small_kernel_ns", serialize_with = "as_ns")]
    small_kernel get_small_kernel: Duration = Duration::from_micros(20);
    /// Minimum share of the GPU's concurrent blocks that a kernel should have. Default 0.5: with
    /// less, two kernels could run side by side.
    least_fill get_least_fill: f64 = 0.5;
    /// Minimum repetitions. Default 8: merged into one, they would take little more than an eighth.
    least_repeats get_least_repeats: u64 = 8;
    /// Minimum time that a GPU runs anything, as a share of the busiest one's time in the scope.
    /// Default 0.01: otherwise the mean over GPUs would hide the other 99 %. A GPU below it is
    /// reported as unused, and is excluded from all times, shares and estimates.
    unused_share get_unused_share: f64 = 0.01;
    /// Cost of recording a call. Default 1.2 us: the extra time of a launch with kernel records. On
    /// an H200 with CUPTI 13.0 the record takes 1.0 us and the callback 0.2 us.
    #[serde(rename = "overhead_per_call_ns", serialize_with = "as_ns")]
    overhead_per_call get_overhead_per_call: Duration = Duration::from_nanos(1_200);
    /// Minimum share of the clock at which the profiler's own time is reported. Default 0.1.
    overhead_share get_overhead_share: f64 = 0.1;
    /// Maximum share of the profiler's own time for a verdict. Default 0.5.
    most_overhead get_most_overhead: f64 = 0.5;
    /// Sets if an incomplete profile gets a verdict. Default false: a lost kernel appears as an
    /// idle GPU. Also applies to an ordinal that is several GPUs.
    incomplete get_incomplete: bool = false;
    /// Maximum [unmatched](profiler_core::Health::unmatched_share) share of records and calls for a
    /// verdict. Default 0.01: allows for work of calls just before the recording's start or end.
    most_unmatched get_most_unmatched: f64 = 0.01;
    /// Number of moments that each cause and finding retains, longest first. Default 8; all moments
    /// count.
    evidence get_evidence: usize = 8;
}

impl Thresholds {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a name pattern for ranges that load data, besides the names of
    /// [`is_loading`](Self::is_loading). `*` matches any text.
    pub fn loading(mut self, pattern: &str) -> Self {
        self.loading.push(pattern.to_lowercase());
        self
    }

    /// True for the name of a range that loads data. Either it matches one of the program's
    /// [patterns](Self::loading), or it contains a word like `load`, `loader`, `dataloader`,
    /// `fetch`, `prefetch`, `ingest` or `dataset` in any case.
    pub fn is_loading(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let own = |pattern: &String| matches(pattern, &name);
        // Excludes unload, download, payload, workload, offload, overload and reload.
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
    fn data_loading_ranges_are_known_by_their_words() {
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
