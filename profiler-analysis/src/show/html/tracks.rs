//! Sampled tracks for the page: each time once, values in columns, long tracks downsampled.

use profiler_base::distinct::Distinct;
use profiler_base::units::nanoseconds;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::counter_track::{self, TrackSegment};
use crate::reports::{NodeTimes, TrackSum};
use profiler_core::profile::{Profile, Sampled, Track};
use profiler_core::series::{Kind, Series, Unit};

/// The maximum segments of one track on the page, and of all tracks.
const MOST: usize = 20_000;
const MOST_OF_ALL: usize = 200_000;
/// The maximum number of range paths with sampled means.
const MOST_NODES: usize = 2_000;

/// The times of a track's segments; tracks may share them.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct Times {
    start_delta: Vec<u64>,
    /// Rows that end before the next row starts, and their ends.
    gaps: Vec<(u32, u64)>,
    /// The end of the last segment.
    end: u64,
    /// Samples of each segment; absent if all are 1.
    samples: Option<Vec<u64>>,
}

impl Times {
    fn new(segments: &[TrackSegment]) -> Self {
        let mut last = 0;
        let starts = segments.iter().map(|segment| {
            let delta = segment.start - last;
            last = segment.start;
            delta
        });
        let start_delta = starts.collect();
        let pairs = (0..).zip(segments.windows(2));
        let gaps = pairs.filter(|(_, pair)| pair[0].end < pair[1].start);
        let samples = segments.iter().map(|segment| segment.samples);
        Self {
            start_delta,
            gaps: gaps.map(|(row, pair)| (row, pair[0].end)).collect(),
            end: segments.last().map_or(0, |segment| segment.end),
            samples: samples.clone().any(|samples| samples != 1).then(|| samples.collect()),
        }
    }
}

/// A track with its values; totals as rates per second.
#[derive(Debug, Serialize)]
pub(super) struct TrackPart<'a> {
    device: u32,
    source: String,
    /// Absent if it changes at any time.
    interval_ns: Option<u64>,
    name: &'a str,
    label: &'a str,
    unit: Unit,
    kind: Kind,
    /// The row of its times.
    times: u32,
    #[serde(flatten)]
    values: Values,
    /// The mean over the session, of all samples.
    mean: Option<f64>,
    /// The sum of a total, such as the energy, in its own unit.
    total: Option<f64>,
    total_unit: Unit,
    count: u64,
    covered_ns: u64,
}

/// The values of a track's segments.
#[derive(Debug, Serialize)]
struct Values {
    /// `f32` has seven digits, enough for a plot.
    value: Vec<f32>,
    /// Present only for segments of several samples.
    least: Option<Vec<f32>>,
    most: Option<Vec<f32>>,
}

impl Values {
    fn new(segments: &[TrackSegment]) -> Self {
        // JSON has no infinite numbers.
        let fitting = |value: f64| (value as f32).clamp(f32::MIN, f32::MAX);
        let column =
            |of: fn(&TrackSegment) -> f64| segments.iter().map(|one| fitting(of(one))).collect();
        let is_merged = segments.iter().any(|one| one.least != one.most);
        Self {
            value: column(|one| one.value),
            least: is_merged.then(|| column(|one| one.least)),
            most: is_merged.then(|| column(|one| one.most)),
        }
    }
}

/// A sampler with losses.
#[derive(Debug, Serialize)]
pub(super) struct SamplerPart {
    device: u32,
    source: String,
    losses: Vec<String>,
}

/// The row of a track, its mean, and the samples of the mean with their nanoseconds.
pub(super) type Mean = (usize, f64, usize, u64);

pub(super) struct Tracks<'a> {
    pub(super) times: Vec<Times>,
    pub(super) tracks: Vec<TrackPart<'a>>,
    pub(super) samplers: Vec<SamplerPart>,
    /// By node of the range tree.
    pub(super) means: FxHashMap<usize, Vec<Mean>>,
}

impl<'a> Tracks<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        let shown: Vec<Track<'a>> = profile.tracks().filter(|track| !track.is_empty()).collect();
        let allocated = counter_track::memory(profile);
        let most = MOST.min(MOST_OF_ALL / (shown.len() + allocated.len()).max(1));
        let mut times: Distinct<Times> = Distinct::default();
        let mut tracks = Vec::new();
        for track in &shown {
            let segments = counter_track::track_segments(track, most);
            let sum = TrackSum::from_track(track);
            tracks.push(TrackPart {
                device: track.device(),
                source: track.source().to_string(),
                interval_ns: Some(nanoseconds(track.series().interval())),
                name: track.name(),
                label: track.label(),
                unit: track.rate_unit(),
                kind: track.kind(),
                values: Values::new(&segments),
                times: times.row(Times::new(&segments)),
                mean: sum.as_ref().and_then(|sum| sum.mean),
                total: sum.as_ref().and_then(|sum| sum.total),
                total_unit: track.unit(),
                count: sum.as_ref().map_or(0, |sum| sum.samples),
                covered_ns: sum.as_ref().map_or(0, |sum| sum.covered_ns),
            });
        }
        for (device, changes) in allocated {
            let segments =
                counter_track::state_segments(&changes, nanoseconds(profile.duration()), most);
            tracks.push(TrackPart {
                device,
                source: "records of allocations".to_owned(),
                interval_ns: None,
                name: "allocated",
                label: "memory allocated since the start",
                unit: Unit::Bytes,
                kind: Kind::State,
                values: Values::new(&segments),
                times: times.row(Times::new(&segments)),
                mean: None,
                total: None,
                total_unit: Unit::Bytes,
                count: changes.len() as u64,
                covered_ns: segments.iter().map(|segment| segment.end - segment.start).sum(),
            });
        }
        Self {
            times: times.into_values(),
            tracks,
            samplers: samplers(profile),
            means: means(profile, &shown),
        }
    }
}

fn samplers(profile: &Profile) -> Vec<SamplerPart> {
    let part = |series: &Series| SamplerPart {
        device: series.device(),
        source: series.source().to_string(),
        losses: series.losses(),
    };
    profile.series().map(part).filter(|part| !part.losses.is_empty()).collect()
}

fn means(profile: &Profile, shown: &[Track<'_>]) -> FxHashMap<usize, Vec<Mean>> {
    if shown.is_empty() {
        return FxHashMap::default();
    }
    let times = NodeTimes::new(profile, shown);
    let mut means = FxHashMap::default();
    for node in profile.nodes().take(MOST_NODES) {
        let of_node = times.means(&node, shown);
        let mean =
            |(row, mean): (_, Sampled)| (row, mean.value, mean.samples, nanoseconds(mean.covered));
        means.insert(node.id().at(), of_node.map(mean).collect());
    }
    means
}
