//! Clock limits and throttling of the measured GPU, from NVML, or the reason why they are unknown.

#[cfg(feature = "nvml")]
pub use known::Clocks;
#[cfg(not(feature = "nvml"))]
pub use unknown::Clocks;

#[cfg(feature = "nvml")]
mod known {
    use nvml_wrapper::enum_wrappers::device::Clock;

    use crate::collect::nvml::{Gpu, SLOWED_BY};
    use crate::record::recording::RecordingInfo;

    /// A GPU in NVML, or the reason why it is unavailable.
    #[derive(Debug)]
    pub struct Clocks(Result<Gpu, String>);

    impl Clocks {
        /// Opens the GPU with this ordinal; unavailable if it reports no throttle reasons.
        pub fn open(info: &RecordingInfo, ordinal: u32) -> Self {
            let clocks = Gpu::find(info, ordinal).and_then(|gpu| match reasons(&gpu) {
                Ok(_) => Ok(gpu),
                Err(why) => Err(why),
            });
            Self(clocks.map_err(|why| format!("clocks are not watched: {why}")))
        }

        /// The maximum clocks, as part of the machine's key.
        pub fn limits(&self) -> Option<String> {
            let device = self.0.as_ref().ok()?.device().ok()?;
            // Application clocks set by the administrator, or else the limits of the device.
            let most = |clock: Clock| {
                device.applications_clock(clock).or_else(|_| device.max_clock_info(clock)).ok()
            };
            let (graphics, memory) = (most(Clock::Graphics)?, most(Clock::Memory)?);
            Some(format!("{graphics} MHz, memory {memory} MHz"))
        }

        /// The current reason for lowered clocks. After a failed query the clocks are unknown.
        pub fn throttled(&mut self) -> Option<&'static str> {
            let reasons = reasons(self.0.as_ref().ok()?);
            match reasons {
                Ok(reasons) => {
                    let is_set = |(reason, _): &(u64, _)| reasons & reason != 0;
                    SLOWED_BY.into_iter().find(is_set).map(|(_, why)| why)
                }
                Err(why) => {
                    self.0 = Err(format!("clocks are not watched any more: {why}"));
                    None
                }
            }
        }

        /// The current clock of the SMs in MHz.
        pub fn sm_mhz(&self) -> Option<u32> {
            self.0.as_ref().ok()?.device().ok()?.clock_info(Clock::SM).ok()
        }

        /// The reason why clocks are unknown.
        pub fn unknown(&self) -> Option<&str> {
            self.0.as_ref().err().map(String::as_str)
        }
    }

    fn reasons(gpu: &Gpu) -> Result<u64, String> {
        let reasons = gpu.device().and_then(|device| device.current_throttle_reasons());
        reasons.map(|reasons| reasons.bits()).map_err(|error| format!("NVML reports {error}"))
    }
}

#[cfg(not(feature = "nvml"))]
mod unknown {
    use crate::record::recording::RecordingInfo;

    /// Behaves like a machine without NVML.
    #[derive(Debug)]
    pub struct Clocks;

    impl Clocks {
        /// Opens nothing.
        pub fn open(_: &RecordingInfo, _: u32) -> Self {
            Self
        }

        /// Unknown.
        #[allow(clippy::unused_self)] // as with the feature
        pub fn limits(&self) -> Option<String> {
            None
        }

        /// Unknown.
        #[allow(clippy::unused_self)] // as with the feature
        pub fn throttled(&mut self) -> Option<&'static str> {
            None
        }

        /// Unknown.
        #[allow(clippy::unused_self)] // as with the feature
        pub fn sm_mhz(&self) -> Option<u32> {
            None
        }

        /// The reason why clocks are unknown.
        #[allow(clippy::unused_self)] // as with the feature
        pub fn unknown(&self) -> Option<&str> {
            Some("clocks are not watched: built without the feature nvml")
        }
    }
}
