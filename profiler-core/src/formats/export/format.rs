//! The formats of other tools, and how to ask for them.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use super::kineto::Rank;
use super::timeline::Timeline;
use super::{chrome, folded, kineto, perfetto};
use crate::base::error::{Error, Kind};
use crate::profile::Profile;

/// A format that other tools read; [`Profile::export`] writes it and has an example.
///
/// None of them holds the environment, user, host name or a path; those of timelines hold the ids of the process and its
/// threads. Times are those since the session's start.
/// Operations for which CUPTI had no timestamps are on no timeline; the file says how many there are. Work of several ranges
/// ([`Context::join`](crate::Context::join)) is at the one that it counts for; Perfetto's and Chrome's name the others with it.
///
/// [Tracks](Profile::tracks) of samplers are counters of their device in the timelines, called by their label: a value from
/// the start of its sample on, totals as so much a second. The formats have no way to say that nothing is known: there, and
/// after the last sample, the value is 0. See [`Export::samples`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Perfetto's protobuf (`TrackEvent`), for ui.perfetto.dev and its `trace_processor`: ranges and API calls of each
    /// thread, ranges of the process, marks, the operations of each stream, arrows from calls to operations, and counters:
    /// operations asked for and not finished, copy bandwidth, device memory if CUPTI recorded allocations (`MEMORY2`), and
    /// what was [sampled](Profile::tracks). The smallest of the timelines, and the one with everything.
    Perfetto,
    /// The JSON of `torch.profiler` (Kineto's schema), for HolisticTraceAnalysis, TensorBoard and Perfetto. Ranges are
    /// `user_annotation`, and once more as `gpu_user_annotation` from the first start to the last end of their work on each
    /// stream. Calls are `cuda_driver` or `cuda_runtime`. What was sampled are counters (`C`).
    Kineto,
    /// Chrome's trace-event JSON, for `chrome://tracing`, Perfetto, speedscope and scripts.
    Chrome,
    /// Folded stacks, for flame graphs (inferno, flamegraph.pl, speedscope): a line for each path and kernel with its GPU
    /// time in nanoseconds, `batch;forward;gemm 4200`. In names a `;` is written `:`, and a line break as a space. Of more
    /// than 128 ranges around each other the first and the last 64 are written, and how many are left out between them, once
    /// paths as long have taken 100,000 names.
    Folded,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Perfetto, Self::Kineto, Self::Chrome, Self::Folded];

    /// How files of it are called by custom, without the first dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Kineto => "pt.trace.json",
            Self::Chrome => "trace.json",
            Self::Folded => "folded",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Perfetto => "a Perfetto trace",
            Self::Kineto => "a Kineto trace",
            Self::Chrome => "a Chrome trace",
            Self::Folded => "folded stacks",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Values of a sampled track, unless an export asks for more: some 10 MB of JSON.
const MOST_SAMPLES: usize = 100_000;

/// A format with what else it is to say. A [`Format`] alone is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Export {
    format: Format,
    rank: Option<Rank>,
    samples: usize,
}

impl Export {
    /// A format with nothing else.
    pub fn new(format: Format) -> Self {
        Self { format, rank: None, samples: MOST_SAMPLES }
    }

    /// Says that the profile is that of one process of several, which HolisticTraceAnalysis compares (`distributedInfo`).
    /// Only [`Format::Kineto`] has a place for it.
    pub fn rank(mut self, rank: u32, world_size: u32) -> Self {
        self.rank = Some(Rank { rank, world_size });
        self
    }

    /// Of each sampled track at most so many values; 100,000 unless this says otherwise, and `usize::MAX` for all of them.
    ///
    /// Of a longer track always as many samples after each other become one, with their mean: the area below it stays exact
    /// (bytes stay bytes), and what is shorter is no longer seen. Of states (clocks, throttling) that stay the same one is
    /// written anyway; of several that become one, that which held longest.
    pub fn samples(mut self, most: usize) -> Self {
        self.samples = most;
        self
    }
}

impl From<Format> for Export {
    fn from(format: Format) -> Self {
        Self::new(format)
    }
}

impl Profile {
    /// Writes it in a format of other tools. `out` is buffered here.
    ///
    /// What is held in memory meanwhile grows with the profile, not with the text: some 400 bytes an operation and its
    /// call. Takes a few microseconds an operation; `docs/measurements.md` has the figures.
    ///
    /// ```no_run
    /// use profiler_core::formats::Export;
    /// use profiler_core::{Format, Profile};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let profile = Profile::load("step.gpuprof")?;
    /// profile.export(Format::Perfetto, std::fs::File::create("step.pftrace")?)?;
    /// let rank = Export::new(Format::Kineto).rank(3, 8);
    /// profile.export(rank, std::fs::File::create("rank3.pt.trace.json")?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `out` cannot be written to; what it has by then is cut short.
    pub fn export(&self, export: impl Into<Export>, out: impl Write) -> Result<(), Error> {
        let Export { format, rank, samples } = export.into();
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let timeline = Timeline::new(self);
        let written: io::Result<()> = match format {
            Format::Perfetto => perfetto::write(&timeline, samples, &mut out),
            Format::Kineto => kineto::write(&timeline, rank, samples, &mut out),
            Format::Chrome => chrome::write(&timeline, samples, &mut out),
            Format::Folded => folded::write(&timeline, &mut out),
        };
        written.and_then(|()| out.flush()).map_err(|source| {
            Error::new(Kind::Export { format: format.name(), source: Arc::new(source) })
        })
    }
}
