//! Clocks of the GPU that is measured, and why they are low, as NVML says it. Where it cannot be asked, that is said.

#[cfg(feature = "nvml")]
pub(crate) use known::Clocks;
#[cfg(not(feature = "nvml"))]
pub(crate) use unknown::Clocks;

#[cfg(feature = "nvml")]
mod known {
    use nvml_wrapper::Nvml;
    use nvml_wrapper::bitmasks::device::ThrottleReasons;
    use nvml_wrapper::enum_wrappers::device::Clock;

    use crate::recording::RecordingInfo;

    /// What lowers clocks so that times are not those of the program.
    const REASONS: [(ThrottleReasons, &str); 5] = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat (hardware)"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "the power brake"),
        (ThrottleReasons::SW_POWER_CAP, "the power limit"),
        (ThrottleReasons::HW_SLOWDOWN, "the hardware"),
    ];

    /// NVML, or why it is not there.
    #[derive(Debug)]
    pub(crate) struct Clocks(Result<(Nvml, u32), String>);

    impl Clocks {
        /// Of the GPU with this CUDA ordinal.
        pub(crate) fn open(info: &RecordingInfo, ordinal: u32) -> Self {
            Self(Self::find(info, ordinal).map_err(|why| format!("clocks are not watched: {why}")))
        }

        fn find(info: &RecordingInfo, ordinal: u32) -> Result<(Nvml, u32), String> {
            let nvml = Nvml::init().map_err(|error| format!("NVML says {error}"))?;
            let count = nvml.device_count().map_err(|error| error.to_string())?;
            // The two number GPUs apart; alike and all in sight they have one order, that of the bus.
            let all_alike = info.devices.windows(2).all(|pair| pair[0].name == pair[1].name);
            let place = match count {
                1 => 0,
                _ if all_alike && info.devices.len() == count as usize => ordinal,
                _ => return Err(format!("which of {count} GPUs of NVML is measured is not known")),
            };
            let name = nvml.device_by_index(place).and_then(|device| device.name());
            let name = name.map_err(|error| error.to_string())?;
            match info.devices.iter().any(|device| device.name == name) {
                true => Ok((nvml, place)),
                false => Err(format!("the GPU of this machine is {name}")),
            }
        }

        /// What they may be at most, as part of the machine's name.
        pub(crate) fn limits(&self) -> Option<String> {
            let (nvml, place) = self.0.as_ref().ok()?;
            let device = nvml.device_by_index(*place).ok()?;
            // Set by the administrator, or else those of the device.
            let most = |clock: Clock| {
                device.applications_clock(clock).or_else(|_| device.max_clock_info(clock)).ok()
            };
            let (graphics, memory) = (most(Clock::Graphics)?, most(Clock::Memory)?);
            Some(format!("{graphics} MHz, memory {memory} MHz"))
        }

        /// Why it is slower now than it should be.
        pub(crate) fn throttled(&self) -> Option<&'static str> {
            let (nvml, place) = self.0.as_ref().ok()?;
            let reasons = nvml.device_by_index(*place).ok()?.current_throttle_reasons().ok()?;
            REASONS.into_iter().find(|(reason, _)| reasons.contains(*reason)).map(|(_, why)| why)
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
