//! The clocks of a device while it worked, and the causes of lowered clocks.

use profiler_base::order;

use super::{Profile, Track};
use crate::collect::nvml::{MEMORY_CLOCK, REASONS, SLOWED_BY, SM_CLOCK};
use crate::join::busy::united;
use crate::join::tables::Interval;

/// NVML's samples of a device's clocks while operations ran: [`Profile::device_clocks`].
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceClocks {
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The number of samples.
    pub samples: usize,
    /// The mean SM clock in Hz.
    pub sm_hz: Option<f64>,
    /// The mean memory clock in Hz.
    pub memory_hz: Option<f64>,
    /// The causes of lowered clocks, largest share first. Several causes may overlap.
    slowed_by: Vec<Slowed>,
}

/// A cause of lowered clocks, and its share of the time in which operations ran.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
struct Slowed {
    by: &'static str,
    share: f64,
}

impl DeviceClocks {
    /// The share of throttled time from which a device's times no longer depend on the program
    /// alone.
    pub const THROTTLED_SHARE: f64 = 0.01;

    /// The causes of lowered clocks, such as heat or the power limit, and their shares of the time in
    /// which operations ran, 0 to 1. Largest share first; several causes may overlap.
    pub fn slowed_by(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.slowed_by.iter().map(|slowed| (slowed.by, slowed.share))
    }

    /// True if a cause lowered the clocks for at least 1 % of the time, which distorts times.
    pub fn is_throttled(&self) -> bool {
        self.slowed_by.iter().any(|slowed| slowed.share >= Self::THROTTLED_SHARE)
    }
}

impl Profile {
    /// The clocks of each device on which operations ran while [NVML was
    /// sampled](crate::Sampling::nvml), by ordinal. Idle time, which lowers clocks, is excluded. A
    /// sample covers the time since the previous one.
    pub fn device_clocks(&self) -> Vec<DeviceClocks> {
        let mut devices: Vec<u32> = self.series().map(|series| series.device()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.into_iter().filter_map(|device| self.clocks_of(device)).collect()
    }

    fn clocks_of(&self, device: u32) -> Option<DeviceClocks> {
        let tracks = [SM_CLOCK, MEMORY_CLOCK, REASONS].map(|name| self.track(device, name));
        if tracks.iter().all(Option::is_none) {
            return None;
        }
        let [sm, memory, reasons] = tracks;
        let busy = self.busy(device);
        let mean =
            |track: &Option<Track<'_>>| track.as_ref().and_then(|track| track.mean_of(&busy));
        let (sm, memory) = (mean(&sm), mean(&memory));
        let share = |bit: u64| {
            // CAST: NVML's value is a whole number of 64 bits, of which it uses few.
            let is_set = |value: f64| f64::from(u8::from(value as u64 & bit != 0));
            reasons.as_ref()?.share_of(&busy, is_set)
        };
        let shares = SLOWED_BY.map(|(bit, by)| (by, share(bit)));
        let counts = [sm, memory, shares[0].1].into_iter().flatten().map(|sampled| sampled.samples);
        let slowed = |(by, share): (_, Option<super::Sampled>)| Slowed {
            by,
            share: share.map_or(0.0, |share| share.value),
        };
        let mut slowed_by: Vec<Slowed> = shares.into_iter().map(slowed).collect();
        slowed_by.retain(|slowed| slowed.share > 0.0);
        order::sort_by(&mut slowed_by, |a, b| b.share.total_cmp(&a.share));
        Some(DeviceClocks {
            device,
            samples: counts.max()?,
            sm_hz: sm.map(|mean| mean.value),
            memory_hz: memory.map(|mean| mean.value),
            slowed_by,
        })
    }

    /// The times in which operations ran on a device.
    fn busy(&self, device: u32) -> Vec<Interval> {
        let on_device =
            self.operations().filter(|operation| operation.work().place.device == device);
        united(on_device.filter_map(|operation| operation.row().time()).collect())
    }
}
