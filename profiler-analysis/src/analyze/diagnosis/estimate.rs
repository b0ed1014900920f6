//! Speed-up estimates, limited by the busiest GPU.
//!
//! Idle time is a mean over GPUs, and a smaller mean alone does not shorten the wall time. The run
//! lasts at least as long as the work of the GPU with most work.

use rustc_hash::FxHashMap;

use super::amdahl::amdahl;
use super::bottleneck::Bottleneck;
use super::clock::{Part, Piece};

/// The tolerance for rounding of shares.
const ROUNDING: f64 = 1e-9;

/// The clock of one device.
#[derive(Debug, Clone, Copy)]
struct DeviceClock {
    device: u32,
    total_ns: u64,
    /// The time in which the device ran anything.
    running_ns: u64,
    /// The time in which it ran kernels or copies. Collectives are excluded, because they also wait
    /// for other ranks.
    busy_ns: u64,
    /// The time of [`Bottleneck::GpuCompute`].
    compute_ns: u64,
}

/// The clocks of the devices of a scope.
#[derive(Debug)]
pub(super) struct DeviceClocks {
    devices: Vec<DeviceClock>,
    /// The wall time: the longest of the clocks, at least 1.
    wall_ns: u64,
}

impl DeviceClocks {
    /// Costs a pass. The pieces must be grouped by device.
    pub(super) fn new(pieces: &[Piece]) -> Self {
        let clock = |pieces: &[Piece]| {
            let device = pieces.first().map_or(0, |piece| piece.device);
            let (mut total_ns, mut running_ns, mut busy_ns, mut compute_ns) = (0, 0, 0, 0);
            for piece in pieces {
                let ns = piece.time.ns();
                total_ns += ns;
                if !piece.is_idle {
                    running_ns += ns;
                    busy_ns += if piece.part == Part::Communication { 0 } else { ns };
                }
                if Bottleneck::GpuCompute.parts().contains(&piece.part) {
                    compute_ns += ns;
                }
            }
            DeviceClock { device, total_ns, running_ns, busy_ns, compute_ns }
        };
        let same_device = pieces.chunk_by(|a, b| a.device == b.device);
        let devices: Vec<DeviceClock> = same_device.map(clock).collect();
        let wall_ns = devices.iter().map(|clock| clock.total_ns).max().unwrap_or_default().max(1);
        Self { devices, wall_ns }
    }

    /// The devices that ran less than this share of the time that the busiest one ran.
    pub(super) fn unused(&self, least_share: f64) -> Vec<u32> {
        let most = self.devices.iter().map(|clock| clock.running_ns).max().unwrap_or_default();
        let is_unused =
            |clock: &&DeviceClock| (clock.running_ns as f64) < least_share * most as f64;
        self.devices.iter().filter(is_unused).map(|clock| clock.device).collect()
    }

    /// The largest share of a device's clock that is compute or queued compute.
    pub(super) fn compute_share(&self) -> f64 {
        let share = |clock: &DeviceClock| clock.compute_ns as f64 / clock.total_ns.max(1) as f64;
        self.devices.iter().map(share).fold(0.0, f64::max)
    }

    /// The largest share of the wall time that can vanish. Without all idle time, all waits in
    /// collectives and these pieces, the busiest device still takes the rest.
    fn largest_reach<'p>(&self, pieces: impl Iterator<Item = &'p Piece>) -> f64 {
        let mut removed: FxHashMap<u32, u64> = FxHashMap::default();
        let is_busy = |piece: &&Piece| !piece.is_idle && piece.part != Part::Communication;
        for piece in pieces.filter(is_busy) {
            *removed.entry(piece.device).or_default() += piece.time.ns();
        }
        let left = self.devices.iter().map(|clock| {
            let removed = removed.get(&clock.device).copied().unwrap_or_default();
            clock.busy_ns.saturating_sub(removed)
        });
        let left = left.max().unwrap_or_default();
        self.wall_ns.saturating_sub(left) as f64 / self.wall_ns as f64
    }

    /// The estimate for a change that removes a share of the wall time, by means over devices. The
    /// busiest device without these pieces limits it.
    pub(super) fn without<'p>(
        &self,
        mean_reach: f64,
        pieces: impl Iterator<Item = &'p Piece> + Clone,
    ) -> Estimate {
        let largest = self.largest_reach(pieces.clone());
        let reach = mean_reach.min(largest);
        // The possible speed-up of a kernel is unknown.
        let has_kernels = pieces.into_iter().any(|piece| piece.part == Part::Kernels);
        let is_bound = !has_kernels && reach + ROUNDING >= largest;
        Estimate { reach, speed_up: amdahl(reach, f64::INFINITY), is_bound }
    }

    /// The estimate for kernels that take half the time, on the device with most compute.
    pub(super) fn with_half_the_compute(&self) -> Estimate {
        let reach = self.compute_share();
        Estimate { reach, speed_up: amdahl(reach, 2.0), is_bound: false }
    }
}

/// The speed-up of a scope by one change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// The share of the wall time that may vanish; for compute, the share that may become shorter.
    pub(super) reach: f64,
    /// The speed-up by Amdahl's law.
    pub(super) speed_up: f64,
    /// True if no change of this kind brings more.
    pub(super) is_bound: bool,
}

impl Estimate {
    /// True if at least this share may vanish.
    pub(super) fn reaches(self, share: f64) -> bool {
        self.reach + ROUNDING >= share
    }
}

/// A speed-up for display: `at most 1.11x faster without it`, `about 1.98x faster if ...`.
pub(crate) fn faster(speed_up: f64, is_bound: bool, assumption: &str) -> String {
    match speed_up {
        more if more > 100.0 => format!("over 100x faster {assumption}"),
        _ => format!("{} {}x faster {assumption}", certainty(is_bound), factor(speed_up)),
    }
}

/// The label of an estimate: a bound is an upper limit.
pub(crate) const fn certainty(is_bound: bool) -> &'static str {
    if is_bound { "at most" } else { "about" }
}

/// A factor for display.
pub(crate) fn factor(factor: f64) -> String {
    match factor {
        factor if factor > 100.0 => "over 100".to_owned(),
        factor if factor > 10.0 => format!("{factor:.0}"),
        factor => format!("{factor:.2}"),
    }
}

/// Devices for display: `GPU 1`, `GPUs 1, 3 to 7`.
pub(crate) fn device_list(devices: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for device in devices {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*device) => *last = *device,
            _ => runs.push((*device, *device)),
        }
    }
    let run = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    };
    let runs: Vec<String> = runs.iter().map(run).collect();
    let noun = if devices.len() == 1 { "GPU" } else { "GPUs" };
    format!("{noun} {}", runs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_lists_join_neighbours() {
        assert_eq!(device_list(&[3]), "GPU 3");
        assert_eq!(device_list(&[1, 2, 3, 4]), "GPUs 1 to 4");
        assert_eq!(device_list(&[0, 2, 3, 5, 6, 7]), "GPUs 0, 2, 3, 5 to 7");
    }

    #[test]
    fn speed_up_texts_distinguish_bounds_from_estimates() {
        assert_eq!(faster(1.111, true, "without it"), "at most 1.11x faster without it");
        assert_eq!(faster(11.6, false, "without it"), "about 12x faster without it");
        assert_eq!(faster(f64::INFINITY, true, "without it"), "over 100x faster without it");
    }
}
