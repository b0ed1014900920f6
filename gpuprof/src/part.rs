//! The part of a recording that a command reads: a time, or an instance of a range.

use std::path::Path;
use std::time::Duration;

use profiler_base::units::time;
use profiler_core::Profile;

use crate::failure::Failure;
use crate::suggest;

#[derive(Debug, clap::Args)]
pub(crate) struct PartArgs {
    /// Only what was called from this time of the recording on, with its GPU work, such as 1.5s or 200ms
    #[arg(id = "from_time", long = "from", global = true, value_name = "TIME",
          value_parser = humantime::parse_duration)]
    from: Option<Duration>,
    /// Only what was called until this time of the recording, with its GPU work, which may run later
    #[arg(id = "to_time", long = "to", global = true, value_name = "TIME",
          value_parser = humantime::parse_duration)]
    to: Option<Duration>,
    /// Only one instance of a range, with its GPU work: step:17 is the one that `steps` calls 17, from
    /// 0. Of several processes, that of each
    #[arg(long, global = true, value_name = "RANGE:NUMBER", value_parser = instance,
          conflicts_with_all = ["from_time", "to_time"])]
    instance: Option<Instance>,
}

#[derive(Debug, Clone)]
struct Instance {
    range: String,
    number: usize,
}

fn instance(text: &str) -> Result<Instance, String> {
    let parts = text.rsplit_once(':').filter(|(range, _)| !range.is_empty());
    let number = parts.and_then(|(range, number)| Some((range, number.parse().ok()?)));
    let (range, number) = number.ok_or("give a range and its number from 0, as in step:17")?;
    Ok(Instance { range: range.to_owned(), number })
}

impl PartArgs {
    /// The part of the profile of a file; the whole without these options.
    pub(crate) fn take(&self, path: &Path, profile: Profile) -> Result<Profile, Failure> {
        if let Some(Instance { range, number }) = &self.instance {
            if profile.steps(range).is_empty() {
                return Err(suggest::no_range(path, &profile, range));
            }
            let of_file = |error| format!("--instance: {}: {error}", path.display());
            return profile
                .instance(range, *number)
                .map_err(|error| Failure::Usage(of_file(error)));
        }
        if (self.from, self.to) == (None, None) {
            return Ok(profile);
        }
        let (from, to) = (self.from.unwrap_or_default(), self.to.unwrap_or(Duration::MAX));
        if from >= to {
            return Err(Failure::Usage(format!(
                "--from {from:?} is not before --to {to:?}: nothing is left"
            )));
        }
        if from >= profile.duration() {
            return Err(Failure::Usage(format!(
                "--from {from:?} is after the end of {}, which has {}",
                path.display(),
                time(profile.duration())
            )));
        }
        Ok(profile.during(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_a_range_and_a_number() {
        let parsed = instance("a::b:17").unwrap();
        assert_eq!((parsed.range.as_str(), parsed.number), ("a::b", 17));
        for wrong in ["step", "step:", ":3", "step:x", "step:-1", ""] {
            assert!(instance(wrong).unwrap_err().contains("step:17"), "{wrong}");
        }
    }
}
