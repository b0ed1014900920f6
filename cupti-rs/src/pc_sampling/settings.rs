//! Settings of instruction samples.

use std::time::Duration;

use crate::accessors::setters;

/// Settings of instruction samples, for [`Config::pc_sampling`](crate::Config::pc_sampling).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct PcSampling {
    pub(crate) is_serialized: bool,
    pub(crate) period_log2: u32,
    pub(crate) hardware_buffer_bytes: usize,
    pub(crate) scratch_buffer_bytes: usize,
    pub(crate) drain_period: Duration,
    pub(crate) max_records: usize,
    pub(crate) max_cubin_bytes: usize,
    pub(crate) keep_cubins: bool,
}

impl Default for PcSampling {
    fn default() -> Self {
        Self::continuous()
    }
}

impl PcSampling {
    /// Samples while kernels run as they would: at every 65,536th cycle of a multiprocessor, with a
    /// reading each 100 ms, at most 4 Mi records and 256 MiB of cubins in memory.
    pub fn continuous() -> Self {
        Self {
            is_serialized: false,
            // At CUPTI's own period the hardware's buffer is full after a second of load.
            period_log2: 16,
            // CUPTI's own 512 MiB make the first launch some 300 ms later.
            hardware_buffer_bytes: 64 << 20,
            scratch_buffer_bytes: 8 << 20,
            drain_period: Duration::from_millis(100),
            max_records: 4 << 20,
            max_cubin_bytes: 256 << 20,
            keep_cubins: false,
        }
    }

    /// Runs kernels one by one, so that each sample has its launch's correlation id. Programs become
    /// many times slower (14 times on an H100). Needs CUPTI 12.4.
    pub fn serialized() -> Self {
        Self::continuous().serialize()
    }

    /// The same settings in the mode of [`serialized`](Self::serialized).
    pub fn serialize(self) -> Self {
        Self { is_serialized: true, ..self }
    }

    /// Sets the cycles of a multiprocessor between two samples. CUPTI has powers of two from 2^5 to
    /// 2^31; others are rounded up to one. A short period fills the hardware's buffer faster.
    pub fn period_cycles(mut self, cycles: u32) -> Self {
        const MOST: u32 = 1 << 31;
        self.period_log2 = cycles.clamp(1 << 5, MOST).next_power_of_two().trailing_zeros();
        self
    }

    setters! {
        /// Sets the bytes of the hardware's buffer, of host memory that it writes to, for each context;
        /// 64 MiB by default. With 16 MiB an H200 under full load lost nothing at the default period.
        hardware_buffer_bytes(bytes: usize) hardware_buffer_bytes = bytes;
        /// Sets the bytes of CUPTI's buffer of decoded samples, for each context; 8 MiB by default,
        /// enough for 44,000 instructions between two readings by CUPTI's documentation.
        scratch_buffer_bytes(bytes: usize) scratch_buffer_bytes = bytes;
        /// Sets the time between two readings, the length of a slice.
        drain_period(time: Duration) drain_period = time;
        /// Sets the maximum number of records, of 24 bytes, in memory. Samples beyond it are counted
        /// and discarded. A drain of the collection frees its records.
        max_records(count: usize) max_records = count;
        /// Sets the maximum bytes of cubins in memory, to find lines in; 0 finds none. Only cubins
        /// with a line table are held.
        max_cubin_bytes(bytes: usize) max_cubin_bytes = bytes;
        /// Also returns these cubins ([`PcSamples::cubins`](crate::pc_sampling::PcSamples::cubins)).
        keep_cubins(keep: bool) keep_cubins = keep;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_rounded_to_powers_of_two() {
        let log2 = |cycles| PcSampling::continuous().period_cycles(cycles).period_log2;
        assert_eq!([log2(0), log2(32), log2(65_537), log2(u32::MAX)], [5, 5, 17, 31]);
        assert_eq!(PcSampling::continuous(), PcSampling::default().period_cycles(1 << 16));
    }
}
