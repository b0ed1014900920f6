//! "Did you mean": suggests the known words most similar to a wrong one.

use std::collections::BTreeSet;
use std::path::Path;

use profiler_base::text::{printable, shortened};
use profiler_core::Profile;

use crate::failure::Failure;

/// The minimum similarity of a suggestion, as in clap.
const ALIKE: f64 = 0.7;
const SUGGESTED: usize = 3;
/// The maximum number of file or range names compared with a word.
const COMPARED: usize = 100_000;
const WIDTH: usize = 100;
/// Longer names are not suggested, because a suggestion is shown in full for copying.
const SUGGESTED_WIDTH: usize = 4 * WIDTH;

/// Returns `; did you mean a or b?`, or nothing. Empty and equal words are not suggested.
pub(crate) fn similar<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    let word = word.to_lowercase();
    // The cost of the similarity is the product of both lengths.
    let short = shortened(&word, WIDTH);
    let mut found: Vec<(f64, &str)> = Vec::new();
    for known in known.into_iter().take(COMPARED).filter(|known| !known.is_empty()) {
        if known.len() > SUGGESTED_WIDTH || known == word {
            continue;
        }
        let lower = known.to_lowercase();
        let alike = match lower.find(&word).filter(|_| word.len() > 2) {
            // The word is an incomplete prefix, or a part of a known word.
            Some(0) => 1.0,
            Some(_) => 0.9,
            None => strsim::jaro_winkler(&short, &lower),
        };
        if alike > ALIKE && !found.iter().any(|(_, same)| *same == known) {
            found.push((alike, known));
            found.sort_by(|a, b| b.0.total_cmp(&a.0));
            found.truncate(SUGGESTED);
        }
    }
    // A close match excludes clearly weaker suggestions.
    let best = found.first().map_or(0.0, |(alike, _)| *alike);
    let words = found.iter().filter(|(alike, _)| best - alike < 0.08);
    let words: Vec<String> = words.map(|(_, word)| printable(word).into_owned()).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", words.join(" or ")),
    }
}

/// Suggests ranges of a profile similar to this name or path.
pub(crate) fn range(profile: &Profile, path: &str) -> String {
    let is_path = path.contains('/');
    let mut names: Vec<String> = Vec::new();
    for (_, node) in profile.walk().take(COMPARED) {
        names.push(if is_path { node.path() } else { node.name().to_owned() });
    }
    let groups = profile.process_range_groups();
    let groups = groups.iter().take(COMPARED).map(|group| group.name());
    similar(path, names.iter().map(String::as_str).chain(groups))
}

/// The failure for a range that the profile of a file does not have.
pub(crate) fn no_range(file: &Path, profile: &Profile, path: &str) -> Failure {
    Failure::Usage(format!(
        "{} has no range {path}; `gpuprof report` shows them{}",
        file.display(),
        range(profile, path)
    ))
}

/// Suggests kernels of a profile similar to this name.
pub(crate) fn kernel(profile: &Profile, name: &str) -> String {
    let names: BTreeSet<String> =
        profile.kernels().map(|kernel| kernel.demangled_name()).take(COMPARED).collect();
    similar(name.trim_matches('*'), names.iter().map(String::as_str))
}

/// Suggests files in the folder of the path with a name similar to its own.
pub(crate) fn file(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return String::new() };
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.take(COMPARED).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    files(name, &names)
}

/// Suggests similar file names. A shared extension does not count as similarity.
fn files(name: &str, known: &[String]) -> String {
    let ending_of = |name: &str| {
        let dot = name.rfind('.').filter(|at| *at > 0);
        dot.map_or(0, |at| name.len() - at)
    };
    let ending = &name[name.len() - ending_of(name)..];
    let own = &name[..name.len() - ending.len()];
    let is_alike = |other: &&String| match other.strip_suffix(ending) {
        // The stems differ in one character or one transposition.
        Some(stem) if own.len() > 2 && strsim::osa_distance(own, stem) <= 1 => true,
        Some(stem) => !similar(own, [stem]).is_empty(),
        None => true,
    };
    similar(name, known.iter().filter(is_alike).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_have_a_suggestion_and_other_words_none() {
        let known = ["report", "stats", "roofline", "diagnose"];
        assert_eq!(similar("reprot", known), "; did you mean report?");
        assert_eq!(similar("diagnosis", known), "; did you mean diagnose?");
        assert_eq!(similar("roof", known), "; did you mean roofline?");
        assert_eq!(similar("xyz", known), "");
        assert_eq!(similar("", known), "");
        assert_eq!(similar("x", [&*"x".repeat(100_000)]), "");
    }

    #[test]
    fn shared_ending_of_files_is_no_suggestion() {
        let known = ["cut.gpuprof", "train.gpuprof", "run.json"].map(str::to_owned);
        assert_eq!(files("nosuch.gpuprof", &known), "");
        assert_eq!(files("trian.gpuprof", &known), "; did you mean train.gpuprof?");
        assert_eq!(files("train.gpuprf", &known), "; did you mean train.gpuprof?");
        assert_eq!(files("rnu.json", &known), "; did you mean run.json?");
        assert_eq!(files(".gpuprof", &known), "; did you mean cut.gpuprof or train.gpuprof?");
        assert_eq!(files("b.gpuprof", &["a.gpuprof".to_owned()]), "");
    }
}
