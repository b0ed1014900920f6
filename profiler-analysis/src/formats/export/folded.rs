//! Folded stacks: a line for each range path and operation name, with the GPU time.

use std::io::{self, Write};

use super::format::{About, Export};
use super::timeline::Timeline;
use crate::formats::stacks::StackRoot;

pub(super) const ABOUT: About = About {
    key: "folded",
    title: "folded stacks",
    summary: "Folded stacks, for flame graphs",
    extension: "folded",
    has_samples: false,
    has_rank: false,
    has_stacks: true,
    is_text: true,
};

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stacks = export.stacks_of(timeline.profile, StackRoot::Ranges);
    stacks.folded(stacks.weights()[0]).try_for_each(|line| writeln!(out, "{line}"))
}
