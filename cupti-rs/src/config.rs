//! What to collect and with how much memory.

use std::time::Duration;

/// Settings of a [`Collector`](crate::Collector). The defaults suit most programs.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) buffer_bytes: usize,
    pub(crate) buffers: usize,
    pub(crate) memory_limit: u64,
    pub(crate) drain_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            buffer_bytes: 1 << 20,
            buffers: 16,
            memory_limit: 2 << 30,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// The defaults: 16 buffers of 1 MiB, at most 2 GiB of records, 10 s for the GPU to finish at a stop.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes in one activity buffer; a kernel takes 208 to 248. From CUPTI 13.0 on, every thread that calls CUDA has
    /// one of its own. Rounded up to 64 KiB.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes.max(1).next_multiple_of(64 << 10);
        self
    }

    /// Buffers made ready at the start, at most 256. Where they do not suffice more are made, inside a CUDA call of
    /// the program, and counted.
    #[must_use]
    pub fn buffers(mut self, count: usize) -> Self {
        self.buffers = count.min(256);
        self
    }

    /// The most bytes of records to keep; those beyond are counted and thrown away.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// How long a stop waits for work that the GPU has not finished. CUPTI 12.8 itself waits for running kernels at a
    /// stop, without limit; 13.0 does not.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }
}
