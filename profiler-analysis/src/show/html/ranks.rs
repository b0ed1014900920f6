//! Collectives whose ranks are known, for the page.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::matches::Matches;
use profiler_core::profile::Profile;

/// Matched collectives by latest arrival, in columns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Collectives {
    /// Function, communicator, and bytes of one rank.
    kinds: Vec<(&'static str, String, u64)>,
    kind: Vec<u32>,
    /// The rows of the ranks' kernels.
    kernels: Vec<Vec<u32>>,
}

impl Collectives {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut table = Self::default();
        let mut known = FxHashMap::default();
        for matched in Matches::new(profile).all {
            let key = (matched.function, matched.communicator, matched.bytes);
            let kind = *known.entry(key).or_insert_with(|| {
                let communicator = format!("{:x}", matched.communicator);
                table.kinds.push((matched.function.name(), communicator, matched.bytes));
                table.kinds.len() as u32 - 1
            });
            let rows = matched.members.iter().filter_map(|member| {
                let operation = profile.collective_rows()[member.row].operation?;
                Some(operation.at() as u32)
            });
            table.kind.push(kind);
            table.kernels.push(rows.collect());
        }
        table
    }
}
