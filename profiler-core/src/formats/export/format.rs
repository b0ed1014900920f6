//! The formats of other tools, and how to ask for them.

use std::fmt;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use serde::Serialize;

use super::Format;
use super::timeline::Timeline;
use crate::base::error::{Error, Kind};
use crate::profile::Profile;

/// What distinguishes a format from the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    /// For command lines.
    pub(super) key: &'static str,
    /// For messages.
    pub(super) title: &'static str,
    /// A line for a list of the formats.
    pub(super) summary: &'static str,
    pub(super) extension: &'static str,
    pub(super) has_samples: bool,
    pub(super) has_rank: bool,
    pub(super) is_text: bool,
}

/// Declares [`Format`]. Each format is a module with a constant `ABOUT` and a function `write`.
macro_rules! formats {
    ($($(#[$doc:meta])* $module:ident => $variant:ident,)+) => {
        $(mod $module;)+

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
            $($(#[$doc])* $variant,)+
        }

        impl Format {
            /// All of them.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            fn about(self) -> &'static format::About {
                match self {
                    $(Self::$variant => &$module::ABOUT,)+
                }
            }

            fn write(
                self,
                timeline: &timeline::Timeline<'_>,
                export: &Export,
                out: &mut dyn std::io::Write,
            ) -> std::io::Result<()> {
                match self {
                    $(Self::$variant => $module::write(timeline, export, out),)+
                }
            }
        }
    };
}
pub(super) use formats;

impl Format {
    /// The word for it on a command line: `perfetto`.
    pub fn key(self) -> &'static str {
        self.about().key
    }

    /// A line for a list of formats.
    pub fn summary(self) -> &'static str {
        self.about().summary
    }

    /// The usual end of a file's name, without the first dot.
    pub fn extension(self) -> &'static str {
        self.about().extension
    }

    /// Whether it holds [sampled tracks](Profile::tracks): see [`Export::samples`].
    pub fn has_samples(self) -> bool {
        self.about().has_samples
    }

    /// Whether it holds the rank of the process: see [`Export::rank`].
    pub fn has_rank(self) -> bool {
        self.about().has_rank
    }

    /// Whether it is text, which a terminal can show.
    pub fn is_text(self) -> bool {
        self.about().is_text
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.about().title)
    }
}

/// One of several processes that work on one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) world_size: u32,
}

/// Values of a sampled track, unless an export asks for more: some 10 MB of JSON.
const MOST_SAMPLES: usize = 100_000;

/// A format with what else it is to say. A [`Format`] alone is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Export {
    format: Format,
    pub(super) rank: Option<Rank>,
    /// Values of each track at most.
    pub(super) samples: usize,
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
        let export = export.into();
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let written = export.format.write(&Timeline::new(self), &export, &mut out);
        written.and_then(|()| out.flush()).map_err(|source| {
            let format = export.format.about().title;
            Error::new(Kind::Export { format, source: Arc::new(source) })
        })
    }
}
