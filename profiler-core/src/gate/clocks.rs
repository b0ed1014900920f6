//! Clocks of the GPU that is measured, and why they are low, as NVML says it. Where it cannot be asked, that is said.

#[cfg(feature = "nvml")]
pub(crate) use known::Clocks;
#[cfg(not(feature = "nvml"))]
pub(crate) use unknown::Clocks;

#[cfg(feature = "nvml")]
mod known {
    use nvml_wrapper::enum_wrappers::device::Clock;

    use crate::nvml::{Gpu, SLOWED_BY};
    use crate::recording::RecordingInfo;

    /// NVML, or why it is not there.
    #[derive(Debug)]
    pub(crate) struct Clocks(Result<Gpu, String>);

    impl Clocks {
        /// Of the GPU with this CUDA ordinal.
        pub(crate) fn open(info: &RecordingInfo, ordinal: u32) -> Self {
            Self(Gpu::find(info, ordinal).map_err(|why| format!("clocks are not watched: {why}")))
        }

        /// What they may be at most, as part of the machine's name.
        pub(crate) fn limits(&self) -> Option<String> {
            let device = self.0.as_ref().ok()?.device().ok()?;
            // Set by the administrator, or else those of the device.
            let most = |clock: Clock| {
                device.applications_clock(clock).or_else(|_| device.max_clock_info(clock)).ok()
            };
            let (graphics, memory) = (most(Clock::Graphics)?, most(Clock::Memory)?);
            Some(format!("{graphics} MHz, memory {memory} MHz"))
        }

        /// Why it is slower now than it should be.
        pub(crate) fn throttled(&self) -> Option<&'static str> {
            let device = self.0.as_ref().ok()?.device().ok()?;
            let reasons = device.current_throttle_reasons().ok()?.bits();
            SLOWED_BY.into_iter().find(|(reason, _)| reasons & reason != 0).map(|(_, why)| why)
        }

        /// Why it is not known.
        pub(crate) fn unknown(&self) -> Option<&str> {
            self.0.as_ref().err().map(String::as_str)
        }
    }
}

#[cfg(not(feature = "nvml"))]
mod unknown {
    use crate::recording::RecordingInfo;

    /// As on a machine without NVML.
    #[derive(Debug)]
    pub(crate) struct Clocks;

    impl Clocks {
        pub(crate) fn open(_: &RecordingInfo, _: u32) -> Self {
            Self
        }

        #[allow(clippy::unused_self)] // as with the feature
        pub(crate) fn limits(&self) -> Option<String> {
            None
        }

        #[allow(clippy::unused_self)] // as with the feature
        pub(crate) fn throttled(&self) -> Option<&'static str> {
            None
        }

        #[allow(clippy::unused_self)] // as with the feature
        pub(crate) fn unknown(&self) -> Option<&str> {
            Some("clocks are not watched: built without the feature nvml")
        }
    }
}
