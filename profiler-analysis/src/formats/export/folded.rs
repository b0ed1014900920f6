//! Folded stacks: a line for each range path and operation name, with the GPU time.

use std::io::{self, Write};

use super::format::Export;
use super::timeline::Timeline;
use crate::formats::stacks::StackRoot;

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stacks = export.stacks_of(timeline.profile, StackRoot::Ranges);
    stacks.folded(stacks.weights()[0]).try_for_each(|line| writeln!(out, "{line}"))
}
