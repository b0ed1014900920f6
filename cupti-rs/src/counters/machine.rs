//! Serialization of counts (feature `serde`). NaN is null.

use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::data::Opened;
use super::measured::{Counted, Measured, RangeValues};
use super::sampling::Samples;
use super::sets::{Flops, MemoryLevel};
use crate::clock::{Clock, Reading};

#[derive(Serialize, Deserialize)]
struct MeasuredForm {
    chip: String,
    passes: usize,
    runs: usize,
    dropped: usize,
    too_deep: usize,
    metrics: Vec<String>,
    ranges: Vec<RangeForm>,
}

#[derive(Serialize, Deserialize)]
struct RangeForm {
    name: String,
    /// The index among the ranges.
    parent: Option<usize>,
    level: usize,
    /// The values by metric; null if the range was dropped.
    values: Option<Vec<Option<f64>>>,
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().map(|value| value.is_finite().then_some(*value)).collect()
}

fn number(values: Vec<Option<f64>>) -> Vec<f64> {
    values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let range = |range: &Counted| RangeForm {
            name: range.range.name.clone(),
            parent: range.range.parent,
            level: range.range.level,
            values: range.values.as_deref().map(some),
        };
        MeasuredForm {
            chip: self.chip.clone(),
            passes: self.passes,
            runs: self.runs,
            dropped: self.dropped,
            too_deep: self.too_deep,
            metrics: self.metrics.clone(),
            ranges: self.ranges.iter().map(range).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Measured {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = MeasuredForm::deserialize(deserializer)?;
        let columns = form.metrics.len();
        let mut ranges: Vec<Counted> = Vec::with_capacity(form.ranges.len());
        for (at, range) in form.ranges.into_iter().enumerate() {
            let RangeForm { name, parent, level, values } = range;
            let range = Opened { name, parent, level };
            if !range.fits(at, |parent| ranges[parent].range.level) {
                return Err(D::Error::custom(format!(
                    "range {at} does not lie in the one around it"
                )));
            }
            if values.as_ref().is_some_and(|values| values.len() != columns) {
                return Err(D::Error::custom(format!(
                    "range {at} has not a value for each of {columns} metrics"
                )));
            }
            ranges.push(Counted { range, values: values.map(number) });
        }
        Ok(Self {
            chip: form.chip,
            metrics: form.metrics,
            ranges,
            passes: form.passes,
            runs: form.runs,
            dropped: form.dropped,
            too_deep: form.too_deep,
        })
    }
}

/// A range by itself: its values by metric.
impl Serialize for RangeValues<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Values<'a>(RangeValues<'a>);
        impl Serialize for Values<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let known =
                    |(metric, value): (_, f64)| (metric, value.is_finite().then_some(value));
                serializer.collect_map(self.0.values().map(known))
            }
        }
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("name", self.name())?;
        map.serialize_entry("parent", &self.parent().map(|parent| parent.name()))?;
        map.serialize_entry("level", &self.level())?;
        map.serialize_entry("values", &Values(*self))?;
        map.end()
    }
}

#[derive(Serialize, Deserialize)]
struct SamplesForm {
    interval_ns: u64,
    dropped: u64,
    overflows: u64,
    gaps: u64,
    gap_ns: u64,
    failure: Option<String>,
    metrics: Vec<String>,
    samples: Vec<SampleForm>,
}

#[derive(Serialize, Deserialize)]
struct SampleForm {
    start_ns: u64,
    end_ns: u64,
    values: Vec<Option<f64>>,
}

/// Times are in [`clock::now_ns`](crate::clock::now_ns) time on the machine that sampled.
impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sample = |sample: super::Sample<'_>| SampleForm {
            start_ns: sample.start_ns(),
            end_ns: sample.end_ns(),
            values: some(sample.row()),
        };
        SamplesForm {
            interval_ns: self.interval_ns,
            dropped: self.dropped,
            overflows: self.overflows,
            gaps: self.gaps,
            gap_ns: self.gap_ns,
            failure: self.failure.clone(),
            metrics: self.metrics.clone(),
            samples: self.iter().map(sample).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = SamplesForm::deserialize(deserializer)?;
        // The times are already converted.
        let same = Reading { at_ns: 0, offset_ns: 0 };
        let columns = form.metrics.len();
        let mut samples = Self {
            metrics: form.metrics,
            interval_ns: form.interval_ns,
            clock: Clock { start: same, stop: same },
            times: Vec::with_capacity(form.samples.len()),
            // The rows are checked below.
            values: Vec::new(),
            dropped: form.dropped,
            overflows: form.overflows,
            gaps: form.gaps,
            gap_ns: form.gap_ns,
            failure: form.failure,
        };
        for (at, sample) in form.samples.into_iter().enumerate() {
            if sample.values.len() != columns {
                return Err(D::Error::custom(format!(
                    "sample {at} has not a value for each of {columns} metrics"
                )));
            }
            samples.times.push((sample.start_ns, sample.end_ns));
            samples.values.extend(number(sample.values));
        }
        Ok(samples)
    }
}

/// A level is serialized as its name.
impl Serialize for MemoryLevel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for MemoryLevel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name)
            .ok_or_else(|| D::Error::custom(format!("there is no level of memory {name:?}")))
    }
}

/// Counts by type, without types that were not counted.
impl Serialize for Flops {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.list().into_iter().filter_map(|(name, count)| Some((name, count?))))
    }
}
