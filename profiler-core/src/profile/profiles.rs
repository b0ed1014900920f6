//! One profile or several of the same program.

use crate::profile::Profile;

/// What is compared, judged, or held to a budget: one profile, or those of several runs.
pub trait Profiles {
    /// The profiles, each one run.
    fn profiles(&self) -> &[Profile];
}

impl Profiles for Profile {
    fn profiles(&self) -> &[Profile] {
        std::slice::from_ref(self)
    }
}

impl Profiles for [Profile] {
    fn profiles(&self) -> &[Profile] {
        self
    }
}

impl Profiles for Vec<Profile> {
    fn profiles(&self) -> &[Profile] {
        self
    }
}
