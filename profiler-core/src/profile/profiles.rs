//! One profile or several of the same program.

use crate::profile::Profile;

/// The input of comparisons, diagnoses and budgets: one profile, or the profiles of several runs.
pub trait Profiles {
    /// The profiles, one per run.
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
