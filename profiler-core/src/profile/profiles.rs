//! One profile or several of the same program.

use crate::profile::Profile;

/// What budgets are set on: one profile, or those of a test's repeats.
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
