//! Folded stacks: a line for each range path and operation name, with the GPU time.

use std::io::{self, Write};

use super::format::{About, Export};
use super::timeline::Timeline;
use crate::formats::stacks::{StackRoot, StackWeight};

pub(super) const ABOUT: About = About {
    key: "folded",
    title: "folded stacks",
    summary: "Folded stacks, for flame graphs",
    extension: "folded",
    has_samples: false,
    has_rank: false,
    is_text: true,
};

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stacks = timeline.profile.stacks(export.stacks.unwrap_or(StackRoot::Ranges));
    stacks.folded(StackWeight::GpuTime).try_for_each(|line| writeln!(out, "{line}"))
}
