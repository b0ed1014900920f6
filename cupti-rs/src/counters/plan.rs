//! Plans: metrics that are counted together.

use std::ffi::CString;
use std::fmt;

use super::data::CounterData;
use super::measured::Measured;
use crate::accessors::getters;
use crate::error::Error;
use crate::sys::host::HostObject;

/// Metrics that are counted together on one chip.
#[derive(Debug)]
pub struct Plan {
    pub(super) metrics: Vec<String>,
    pub(super) names: Vec<CString>,
    pub(super) object: HostObject,
    pub(super) image: Vec<u8>,
    pub(super) passes: usize,
    pub(super) chip: String,
}

impl Plan {
    getters! {
        /// The runs of the work that count all metrics (`cuptiProfilerHostGetNumOfPasses`). Nested
        /// ranges need as many for each level.
        passes: usize = passes;
        /// The metrics, each once, in the order they were requested.
        metrics: &[String] = metrics;
        /// The chip.
        chip: &str = chip;
    }

    /// Evaluates the counts, range by range.
    pub(super) fn measured(&self, data: &CounterData) -> Result<Measured, Error> {
        let mut measured = data.opened.clone();
        for (index, place) in data.places.iter().enumerate() {
            let values = self.evaluate(&data.image, index)?;
            if let Some(range) = measured.ranges.get_mut(*place) {
                range.values = Some(values);
            }
        }
        Ok(measured)
    }

    /// The metrics' values for a range or sample of an image, in order of the metrics.
    pub(super) fn evaluate(&self, data: &[u8], index: usize) -> Result<Vec<f64>, Error> {
        self.object.evaluate(data, index, &self.names)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metrics, passes) = (self.metrics.len(), self.passes);
        let metric = if metrics == 1 { "metric" } else { "metrics" };
        let pass = if passes == 1 { "pass" } else { "passes" };
        write!(f, "{metrics} {metric} on {} in {passes} {pass}", self.chip)
    }
}
