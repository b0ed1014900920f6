//! Counter tracks: submitted operations, copy bandwidth and samples.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::timeline::{Place, Timeline};
use crate::counter_track::{self, Samples, summed};
use profiler_core::series::Unit;
use profiler_core::tables::What;

/// Submitted and unfinished operations of each stream, from the start of the call to the end of the
/// operation. Without a known call, from the operation's own start.
pub(super) fn queued(timeline: &Timeline<'_>) -> BTreeMap<Place, Samples> {
    let mut changes: BTreeMap<Place, Samples> = BTreeMap::new();
    for operation in &timeline.operations {
        let Some(span) = operation.span else { continue };
        let called = operation.call.map_or(span.start, |call| timeline.calls[call].span.start);
        let changes = changes.entry(operation.place).or_default();
        changes.push((called.min(span.start), 1));
        changes.push((span.end, -1));
    }
    changes.into_iter().map(|(place, changes)| (place, summed(changes))).collect()
}

/// Bytes per second of the copies in progress on each device, each at its mean rate.
pub(super) fn copy_bandwidth(timeline: &Timeline<'_>) -> BTreeMap<u32, Samples> {
    let mut changes: BTreeMap<u32, Samples> = BTreeMap::new();
    for operation in &timeline.operations {
        let (What::Copy(copy), Some(span)) = (operation.what(), operation.span) else { continue };
        // A copy of no duration has no rate.
        if let Some(rate) = (u128::from(copy.bytes) * 1_000_000_000).checked_div(span.ns().into()) {
            let rate = i64::try_from(rate).unwrap_or(i64::MAX >> 16);
            let changes = changes.entry(operation.place.device).or_default();
            changes.push((span.start, rate));
            changes.push((span.end, -rate));
        }
    }
    changes.into_iter().map(|(device, changes)| (device, summed(changes))).collect()
}

/// A sampled track to draw.
pub(super) struct Sampled<'a> {
    pub(super) device: u32,
    /// The metric's label, with its name if two tracks of a device have the same label.
    pub(super) name: Cow<'a, str>,
    /// The unit of the values; totals are rates per second.
    pub(super) unit: Unit,
    /// Values, each valid from its time; 0 where unknown.
    pub(super) values: Vec<(u64, f64)>,
}

/// Tracks with samples by device, each downsampled to a maximum number of segments. An iterator
/// makes them one at a time, because they may be long.
pub(super) fn sampled<'a>(
    timeline: &Timeline<'a>,
    most: usize,
) -> impl Iterator<Item = Sampled<'a>> {
    let profile = timeline.profile;
    let mut tracks: Vec<_> = profile.tracks().filter(|track| !track.is_empty()).collect();
    tracks.sort_by_key(|track| track.device());
    let mut names: FxHashMap<_, u32> = FxHashMap::default();
    for track in &tracks {
        *names.entry((track.device(), track.label())).or_default() += 1;
    }
    tracks.into_iter().map(move |track| {
        let is_alone = names.get(&(track.device(), track.label())) == Some(&1);
        let name = match is_alone {
            true => track.label().into(),
            false => format!("{} ({})", track.label(), track.name()).into(),
        };
        let mut values = Vec::new();
        let mut until = None;
        for segment in counter_track::track_segments(&track, most) {
            if let Some(end) = until.filter(|end| *end < segment.start) {
                values.push((end, 0.0));
            }
            values.push((segment.start, segment.value));
            until = Some(segment.end);
        }
        values.extend(until.map(|end| (end, 0.0)));
        Sampled { device: track.device(), name, unit: track.rate_unit(), values }
    })
}
