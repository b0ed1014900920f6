//! Writes samples.

use std::time::Duration;

use profiler_base::units::nanoseconds;

use super::super::destination::{Destination, Rows};
use super::super::{format, schema};
use super::{Result_, Writer};
use profiler_core::series::{Kind, Source};

impl<T: Destination, P: FnMut(u64, u64)> Writer<'_, T, P> {
    /// Writes sampled counters; nsys has no table for NVML samples.
    pub(super) fn write_metrics(&self) -> Result_<T> {
        let of_counters =
            || self.profile.tracks().filter(|track| track.source() == Source::Counters);
        if of_counters().next().is_none() {
            return Ok(());
        }
        self.tables.create(schema::METRICS_TABLES)?;
        let mut metrics = self.insert(schema::METRICS)?;
        let mut values = self.insert(schema::METRIC_VALUES)?;
        for (id, track) in (0_u32..).zip(of_counters()) {
            let of = format::metric_type(track.device());
            let name = format::metric_name(track.label(), track.unit(), track.kind());
            metrics.set(of)?.set(track.device())?.set("")?.set(id)?.set(&*name)?.row()?;
            for sample in track.samples().filter(|sample| !sample.value.is_nan()) {
                let at = self.at_since_start(sample.start);
                values.set(at)?.set(at)?.set(of)?.set(id)?.set(sample.value)?.row()?;
            }
        }
        Ok(())
    }

    pub(super) fn write_samples(&self) -> Result_<T> {
        let mut insert = self.insert(schema::SAMPLES)?;
        for track in self.profile.tracks() {
            let (source, unit) = (track.source().to_string(), track.unit().to_string());
            let kind = match track.kind() {
                Kind::Total => "total",
                Kind::Mean => "mean",
                Kind::State => "state",
            };
            let at = |time: Duration| self.at_since_start(time);
            for sample in track.samples() {
                insert.set(track.device())?.set(&*source)?.set(track.name())?.set(track.label())?;
                insert.set(&*unit)?.set(kind)?.set(at(sample.start))?.set(at(sample.end))?;
                insert.set((!sample.value.is_nan()).then_some(sample.value))?.row()?;
            }
        }
        let mut insert = self.insert(schema::SAMPLERS)?;
        for series in self.profile.series() {
            let (gaps, gap_time) = series.gaps();
            let missing = (!series.missing().is_empty()).then(|| series.missing().join(", "));
            insert.set(series.device())?.set(&*series.source().to_string())?;
            insert.bits(nanoseconds(series.interval()))?.bits(series.len() as u64)?;
            insert.bits(series.dropped())?.bits(series.overflows())?;
            insert.bits(gaps)?.bits(nanoseconds(gap_time))?;
            insert.set(missing.as_deref())?;
            insert.set(series.failure().map(|failure| &*failure.message))?.row()?;
        }
        Ok(())
    }
}
