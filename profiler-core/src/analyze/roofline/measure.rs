//! Ceilings: what a copy and a matrix product of the program's own reach on this device.
//!
//! The library knows nothing of CUDA calls: the program gives what to run, the records say how long it took.

use std::time::Duration;

use cupti::CopyKind;
use nvtx::{Pipe, Work};

use super::{Peaks, Ran, busy};
use crate::base::error::{Error, Kind};
use crate::profile::{GpuOperation, OperationKind, Profile};
use crate::session::profiler::Profiler;

/// Sessions that are measured; the best one counts, for a ceiling is what can be reached.
const REPEATS: usize = 5;

const BANDWIDTH: &str = "the bandwidth";
const FLOPS: &str = "the operations a second";

impl Peaks {
    /// Measures the bandwidth of the memory with a copy within the device, or a fill: `copy` is run once to warm up and five
    /// times in a session of its own, and the best is kept. Bytes and times are those of the records: a copy reads and writes
    /// each byte, a fill writes it. Returns bytes a second.
    ///
    /// `copy` waits until the copy is done, and copies several times what the L2 cache holds. Other work of the process at the
    /// time counts as if it were the copy's. Costs six copies and five sessions.
    ///
    /// # Errors
    /// The profiler cannot start, or there was no such copy.
    pub fn measure_bandwidth(
        &mut self,
        profiler: &Profiler,
        copy: impl FnMut(),
    ) -> Result<f64, Error> {
        let rate = best(profiler, copy, |profile| {
            let (mut bytes, mut times) = (0u64, Vec::new());
            for operation in profile.operations() {
                let moved = match (operation.as_copy(), operation.as_memset()) {
                    (Some(copy), _) if copy.kind() == CopyKind::DeviceToDevice => 2 * copy.bytes(),
                    (_, Some(fill)) => fill.bytes(),
                    _ => continue,
                };
                bytes = bytes.saturating_add(moved);
                times.extend(operation.interval().map(|time| Ran::of(&operation, time)));
            }
            rate(bytes as f64, busy(times).0)
        })?;
        let none =
            "no copy within a device and no fill ran: have the closure do one, and wait for it";
        let rate = rate.ok_or_else(|| ceiling(BANDWIDTH, none))?;
        *self = self.clone().with_measured_bandwidth(rate);
        Ok(rate)
    }

    /// Measures operations a second with kernels that do this work in all, such as a large matrix product: as
    /// [`measure_bandwidth`](Self::measure_bandwidth), over the busy time of all kernels. Work without operations and with bytes
    /// measures the bandwidth. Returns operations, or bytes, a second.
    ///
    /// # Errors
    /// The profiler cannot start, no kernel ran, or the work says neither operations with their type nor bytes.
    pub fn measure_work(
        &mut self,
        profiler: &Profiler,
        work: Work,
        run: impl FnMut(),
    ) -> Result<f64, Error> {
        let (amount, compute) = match (work.flops(), work.bytes(), work.dtype()) {
            (Some(flops), _, Some(dtype)) => (flops, Some(dtype)),
            (None, Some(bytes), _) => (bytes, None),
            _ => return Err(ceiling(FLOPS, "say operations and their type, or bytes alone")),
        };
        let what = if compute.is_some() { FLOPS } else { BANDWIDTH };
        let rate = best(profiler, run, |profile| {
            let is_kernel = |one: &GpuOperation<'_>| one.kind() == OperationKind::Kernel;
            let kernels = profile.operations().filter(is_kernel);
            let times = kernels.filter_map(|one| one.interval().map(|time| Ran::of(&one, time)));
            rate(amount as f64, busy(times.collect()).0)
        })?;
        let none = "no kernel ran: have the closure launch one, and wait for it";
        let rate = rate.ok_or_else(|| ceiling(what, none))?;
        *self = match compute {
            Some(dtype) => {
                let fastest = self.flops(dtype, work.pipe()).map(|known| known.pipe);
                let pipe = work.pipe().or(fastest).unwrap_or(Pipe::Vector);
                self.clone().with_measured_flops(dtype, pipe, rate)
            }
            None => self.clone().with_measured_bandwidth(rate),
        };
        Ok(rate)
    }
}

fn best(
    profiler: &Profiler,
    mut run: impl FnMut(),
    rate: impl Fn(&Profile) -> Option<f64>,
) -> Result<Option<f64>, Error> {
    run();
    let mut best = None;
    for _ in 0..REPEATS {
        let ((), profile) = profiler.record(&mut run)?;
        let reached = rate(&profile);
        best = match (best, reached) {
            (Some(best), Some(reached)) => Some(f64::max(best, reached)),
            (best, reached) => best.or(reached),
        };
    }
    Ok(best)
}

fn rate(amount: f64, time: Duration) -> Option<f64> {
    let rate = amount / time.as_secs_f64();
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

fn ceiling(what: &'static str, why: &str) -> Error {
    Error::new(Kind::Ceiling { what, why: why.to_owned() })
}
