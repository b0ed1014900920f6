//! Measured ceilings: the rates of a copy and a matrix product of the program.
//!
//! The program runs the work, since this library makes no CUDA calls. CUPTI's records contain the
//! times.

use cupti::CopyKind;
use nvtx::{Pipe, Work};

use super::{KernelTime, Peaks, busy};
use crate::error::{Error, Kind};
use profiler_core::Profiler;
use profiler_core::profile::Profile;

/// The number of measured sessions. The best one counts, since a ceiling is the highest achieved
/// rate.
const REPEATS: usize = 5;

const BANDWIDTH: &str = "the bandwidth";
const FLOPS: &str = "the operations a second";

impl Peaks {
    /// Measures the memory bandwidth in bytes per second with a copy within the device, or a fill.
    ///
    /// `copy` runs once to warm up, then five times in a session each. The best rate is stored and
    /// returned. A copied byte counts as two, one read and one written; a filled byte as one.
    /// `copy` must wait until its work is done, and should move several times the size of the L2
    /// cache. Other copies and fills of the process in these sessions also count.
    ///
    /// # Errors
    /// The profiler cannot start, or no such copy or fill ran.
    pub fn measure_bandwidth(
        &mut self,
        profiler: &Profiler,
        copy: impl FnMut(),
    ) -> Result<f64, Error> {
        let missing =
            "no copy within a device and no fill ran: have the closure do one, and wait for it";
        let rate = best(profiler, copy, (BANDWIDTH, missing), |profile| {
            let (mut bytes, mut times) = (0u64, Vec::new());
            for operation in profile.operations() {
                let moved = match (operation.as_copy(), operation.as_memset()) {
                    (Some(copy), _) if copy.kind() == CopyKind::DeviceToDevice => 2 * copy.bytes(),
                    (_, Some(fill)) => fill.bytes(),
                    _ => continue,
                };
                bytes = bytes.saturating_add(moved);
                times.extend(KernelTime::from_operation(&operation));
            }
            (bytes as f64, times)
        })?;
        self.bandwidth.measured = Some(rate);
        Ok(rate)
    }

    /// Measures operations per second over the busy time of all kernels. The kernels must do this
    /// work in total, for example as a large matrix product. Otherwise like
    /// [`measure_bandwidth`](Self::measure_bandwidth); work with only bytes measures the bandwidth.
    ///
    /// # Errors
    /// The profiler cannot start, no kernel ran, or the work lacks typed operations and bytes.
    pub fn measure_work(
        &mut self,
        profiler: &Profiler,
        work: Work,
        run: impl FnMut(),
    ) -> Result<f64, Error> {
        let (amount, compute) = match (work.flops(), work.bytes(), work.dtype()) {
            (Some(flops), _, Some(dtype)) => (flops, Some(dtype)),
            (None, Some(bytes), _) => (bytes, None),
            _ => return Err(ceiling(FLOPS, "declare operations and their type, or bytes alone")),
        };
        let what = if compute.is_some() { FLOPS } else { BANDWIDTH };
        let missing = "no kernel ran: have the closure launch one, and wait for it";
        let rate = best(profiler, run, (what, missing), |profile| {
            let kernels = profile.operations().filter(super::is_kernel);
            (
                amount as f64,
                kernels.filter_map(|kernel| KernelTime::from_operation(&kernel)).collect(),
            )
        })?;
        match compute {
            Some(dtype) => {
                let fastest = self.flops(dtype, work.pipe()).map(|known| known.pipe);
                let pipe = work.pipe().or(fastest).unwrap_or(Pipe::Vector);
                self.roof_mut(dtype, pipe).measured = Some(rate);
            }
            None => self.bandwidth.measured = Some(rate),
        }
        Ok(rate)
    }
}

/// The best rate of several sessions; an error if none had work with a time.
fn best(
    profiler: &Profiler,
    mut run: impl FnMut(),
    (what, missing): (&'static str, &str),
    work: impl Fn(&Profile) -> (f64, Vec<KernelTime>),
) -> Result<f64, Error> {
    run();
    let mut best = 0.0;
    for _ in 0..REPEATS {
        let ((), profile) = profiler.record(&mut run)?;
        let (amount, times) = work(&profile);
        let rate = amount / busy(times).0.as_secs_f64();
        best = f64::max(best, if rate.is_finite() { rate } else { 0.0 });
    }
    if best > 0.0 { Ok(best) } else { Err(ceiling(what, missing)) }
}

fn ceiling(what: &'static str, why: &str) -> Error {
    Error::new(Kind::Ceiling { what, why: why.to_owned() })
}
