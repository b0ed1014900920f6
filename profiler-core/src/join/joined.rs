//! Tables whose rows refer to each other: the data of a profile, from any source.

use crate::join::correlate;
use crate::join::decode;
use crate::join::health::Health;
use crate::join::tables::Tables;
use crate::record::recording::{Recording, RecordingInfo};

/// Joined [`Tables`]: every GPU operation has the call that submitted it, and every call its range.
/// [`Profile::from`](crate::Profile) converts them into a profile.
#[derive(Debug)]
pub struct Joined {
    pub(crate) tables: Tables,
    pub(crate) info: RecordingInfo,
    pub(crate) health: Health,
}

impl Joined {
    /// Joins a recording.
    pub(crate) fn of_recording(recording: &Recording) -> Self {
        let mut health = Health::default();
        let tables = decode::read(recording, &mut health);
        Self::of_rows(tables, recording.info().clone(), health)
    }

    /// Joins decoded rows.
    pub(crate) fn of_rows(mut tables: Tables, info: RecordingInfo, mut health: Health) -> Self {
        correlate::join(&mut tables, &mut health);
        Self { tables, info, health }
    }
}
