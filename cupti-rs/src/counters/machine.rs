//! Serialization of counts (feature `serde`).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::measured::{Measured, Opened};
use super::sets::Flops;

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Measured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let measured = Self::deserialize(deserializer)?;
        if let Some(at) = Opened::misplaced(&measured.ranges) {
            return Err(D::Error::custom(format!("range {at} does not lie in the one around it")));
        }
        let columns = measured.metrics.len();
        let is_partial =
            |range: &Opened| range.values.as_ref().is_some_and(|values| values.len() != columns);
        if let Some(at) = measured.ranges.iter().position(is_partial) {
            return Err(D::Error::custom(format!(
                "range {at} has not a value for each of {columns} metrics"
            )));
        }
        Ok(measured)
    }
}

impl Serialize for Flops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.list().into_iter().filter_map(|(name, count)| Some((name, count?))))
    }
}
