//! The export formats and their options.

use std::fmt;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use profiler_base::setters;
use serde::Serialize;

use super::Format;
use super::timeline::Timeline;
use crate::error::{Error, Kind};
use crate::formats::stacks::{self, StackRoot, Stacks};
use profiler_core::profile::Profile;

/// The properties of a format.
#[derive(Debug, Clone, Copy)]
pub(super) struct About {
    /// The key on command lines.
    pub(super) key: &'static str,
    /// The name in messages.
    pub(super) title: &'static str,
    pub(super) extension: &'static str,
    pub(super) has: &'static [Has],
    /// A line for a list of formats.
    pub(super) summary: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Has {
    Samples,
    Rank,
    Stacks,
    Text,
}

/// Declares [`Format`]. Each format is a module, named like its key, with a function `write`; some
/// have a feature. Name in messages, extension, contents and a line for a list follow.
macro_rules! formats {
    ($($(#[$doc:meta])* $module:ident => $variant:ident $(if $feature:literal)?,
        $title:literal, $extension:literal, [$($has:ident),*], $summary:literal;)+) => {
        $($(#[cfg(feature = $feature)])? mod $module;)+

        /// A format of other tools; [`Profile::export`](crate::prelude::ProfileExt::export) writes
        /// it and has an example.
        ///
        /// No format contains the environment, user, host name or a path. Timelines contain the ids
        /// of the process and its threads. Times are relative to the session's start. Operations
        /// without CUPTI timestamps are on no timeline; the file contains their number. Shared work
        /// ([`Context::join`](profiler_core::Context::join)) appears in the range that it is
        /// attributed to. Perfetto's and Chrome's formats also name the other ranges.
        ///
        /// [Tracks](Profile::tracks) of samplers are counters of their device in timelines, named
        /// by their label. A value is valid from the start of its sample; totals are rates per
        /// second. The formats cannot express unknown values: in gaps and after the last sample the
        /// value is 0. See [`Export::samples`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Format {
            $($(#[$doc])* $(#[cfg(feature = $feature)])? $variant,)+
        }

        impl Format {
            /// All formats, given the crate's features.
            pub const ALL: [Self; [$($(#[cfg(feature = $feature)])? stringify!($variant)),+].len()] =
                [$($(#[cfg(feature = $feature)])? Self::$variant),+];

            fn about(self) -> format::About {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$variant => format::About {
                            key: stringify!($module),
                            title: $title,
                            extension: $extension,
                            has: &[$(format::Has::$has),*],
                            summary: $summary,
                        },
                    )+
                }
            }

            fn write(
                self,
                timeline: &timeline::Timeline<'_>,
                export: &Export,
                out: &mut dyn std::io::Write,
            ) -> std::io::Result<()> {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$variant => $module::write(timeline, export, out),
                    )+
                }
            }
        }
    };
}
pub(super) use formats;

impl Format {
    /// The key on a command line: `perfetto`.
    pub fn key(self) -> &'static str {
        self.about().key
    }

    /// A line for a list of formats.
    pub fn summary(self) -> &'static str {
        self.about().summary
    }

    /// The usual file extension without the first dot.
    pub fn extension(self) -> &'static str {
        self.about().extension
    }

    /// True if it contains [sampled tracks](Profile::tracks): see [`Export::samples`].
    pub fn has_samples(self) -> bool {
        self.about().has.contains(&Has::Samples)
    }

    /// True if it contains the rank of the process: see [`Export::rank`].
    pub fn has_rank(self) -> bool {
        self.about().has.contains(&Has::Rank)
    }

    /// True if it has weighted stacks: see [`Export::stacks`], [`Export::idle`] and
    /// [`Export::lines`].
    pub fn has_stacks(self) -> bool {
        self.about().has.contains(&Has::Stacks)
    }

    /// True if it is text for a terminal.
    pub fn is_text(self) -> bool {
        self.about().has.contains(&Has::Text)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.about().title)
    }
}

/// One of several cooperating processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) world_size: u32,
}

/// The default maximum of values of a sampled track: about 10 MB of JSON.
const MOST_SAMPLES: usize = 100_000;

/// The content of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackContent {
    Work,
    /// Idle gaps of at least this length.
    Idle(Duration),
    /// Instruction samples.
    Lines,
}

/// A format with its options. A [`Format`] converts into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Export {
    format: Format,
    pub(super) rank: Option<Rank>,
    pub(super) stacks: Option<StackRoot>,
    content: StackContent,
    pub(super) typed_events: bool,
    /// The maximum number of values of each track.
    pub(super) samples: usize,
}

impl Export {
    /// A format with default options.
    pub fn new(format: Format) -> Self {
        let samples = MOST_SAMPLES;
        let content = StackContent::Work;
        Self { format, rank: None, stacks: None, content, typed_events: true, samples }
    }

    /// True if it exports work, and not idle time or instruction samples.
    #[cfg(feature = "firefox")]
    pub(super) fn has_work(&self) -> bool {
        self.content == StackContent::Work
    }

    /// The stacks for a stack format.
    pub(super) fn stacks_of<'a>(&self, profile: &'a Profile, default: StackRoot) -> Stacks<'a> {
        let root = self.stacks.unwrap_or(default);
        match self.content {
            StackContent::Work => stacks::stacks(profile, root),
            StackContent::Idle(shortest) => stacks::idle_stacks(profile, root, shortest),
            StackContent::Lines => stacks::sample_stacks(profile, root),
        }
    }

    setters! {
        /// Sets the rank among several processes, which HolisticTraceAnalysis compares
        /// (`distributedInfo`). Only for [`Format::Kineto`].
        rank(rank: u32, world_size: u32) rank = Some(Rank { rank, world_size });
        /// Sets the outer frames of stacks, for [`Format::Folded`], `Format::Pprof` and
        /// `Format::Otlp`, and for idle time and lines in `Format::Firefox`. By default, folded stacks
        /// have none; the others have process and thread.
        stacks(root: StackRoot) stacks = Some(root);
        /// Exports idle time of devices by host function and cause instead of work, for
        /// [`Format::Folded`], `Format::Pprof`, `Format::Otlp` and `Format::Firefox`. Gaps shorter
        /// than `shortest` are left out. See [`Profile::idle_stacks`](crate::prelude::ProfileExt::idle_stacks).
        idle(shortest: Duration) content = StackContent::Idle(shortest);
        /// Exports instruction samples by kernel and source line instead of work, for
        /// [`Format::Folded`], `Format::Pprof`, `Format::Otlp` and `Format::Firefox`. See
        /// [`Profile::sample_stacks`](crate::prelude::ProfileExt::sample_stacks).
        lines() content = StackContent::Lines;
        /// Sets if [`Format::Perfetto`] also writes each operation as a typed GPU event
        /// (`GpuRenderStageEvent` with kernel and launch), which Perfetto's GPU views read. Each
        /// operation is always a slice with arrows and all arguments. True by default; without
        /// typed events, the file is about a third smaller.
        typed_events(on: bool) typed_events = on;
        /// Sets the maximum number of values of each sampled track; 100,000 by default,
        /// `usize::MAX` for all.
        ///
        /// A longer track is downsampled: consecutive samples become one with their mean. The area
        /// stays exact (bytes stay bytes), but shorter changes are hidden. Equal consecutive states
        /// (clocks, throttling) are merged at any length. Among several merged states the longest
        /// remains.
        samples(most: usize) samples = most;
    }
}

impl From<Format> for Export {
    fn from(format: Format) -> Self {
        Self::new(format)
    }
}

/// [`ProfileExt::export`](crate::prelude::ProfileExt::export).
pub(crate) fn export(profile: &Profile, export: Export, out: impl Write) -> Result<(), Error> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let written = export.format.write(&Timeline::new(profile), &export, &mut out);
    written.and_then(|()| out.flush()).map_err(|source| {
        let format = export.format.about().title;
        Error::new(Kind::Export { format, source: Arc::new(source) })
    })
}
