//! The profile of a command of cargo, and whether it has debug information.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// The value of `debug` that gives functions their files and lines, and no variables.
pub(super) const LINE_TABLES: &str = "line-tables-only";

/// The maximum number of profiles that inherit from each other.
const MAX_INHERITED: usize = 16;

/// The variable that gives the profile of this command line tables. `None` if the profile has debug
/// information or the user has set the variable.
pub(super) fn variable(command: &[OsString], workspace: &Path) -> Option<String> {
    let files = config_files().chain([workspace.join("Cargo.toml")]);
    // Cargo itself reports a file that it cannot read.
    let tables: Vec<Table> =
        files.filter_map(|file| fs::read_to_string(file).ok()?.parse().ok()).collect();
    missing(name(command), &tables, |variable| env::var_os(variable).is_some())
}

/// The configuration files of cargo in order of precedence.
fn config_files() -> impl Iterator<Item = PathBuf> {
    let current = env::current_dir().unwrap_or_default();
    let folders: Vec<_> = current.ancestors().map(|folder| folder.join(".cargo")).collect();
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    folders.into_iter().chain(home).map(|folder| folder.join("config.toml"))
}

/// The name of the profile.
fn name(command: &[OsString]) -> &str {
    let subcommand = command.first().and_then(|word| word.to_str()).unwrap_or_default();
    // A profile of nextest is none of cargo.
    let named = if subcommand == "nextest" { "--cargo-profile" } else { "--profile" };
    let is_release = || own(command).any(|word| matches!(word, "--release" | "-r"));
    match (option(command, named), subcommand) {
        (Some(name), _) => name,
        _ if is_release() => "release",
        (_, "bench") => "bench",
        (_, "test" | "t" | "nextest") => "test",
        _ => "dev",
    }
}

/// The words of cargo, without those for the program.
fn own(command: &[OsString]) -> impl Iterator<Item = &str> {
    let own = command.iter().take_while(|word| *word != "--");
    own.map(|word| word.to_str().unwrap_or_default())
}

/// The value of an option of cargo, as `--name VALUE` or `--name=VALUE`.
pub(super) fn option<'w>(command: &'w [OsString], name: &str) -> Option<&'w str> {
    let mut words = own(command);
    while let Some(word) = words.next() {
        match word.strip_prefix(name) {
            Some("") => return words.next(),
            Some(rest) if rest.starts_with('=') => return rest.get(1..),
            _ => {}
        }
    }
    None
}

/// The variable of the profile, unless it or one that it inherits from has debug information.
fn missing(name: &str, tables: &[Table], is_set: impl Fn(&str) -> bool) -> Option<String> {
    let variable =
        |name: &str| format!("CARGO_PROFILE_{}_DEBUG", name.to_uppercase().replace('-', "_"));
    let mut profile = name;
    for _ in 0..MAX_INHERITED {
        let setting =
            |key| tables.iter().find_map(|table| table.get("profile")?.get(profile)?.get(key));
        if is_set(&variable(profile)) {
            return None;
        }
        if let Some(debug) = setting("debug") {
            return (!is_debug(debug)).then(|| variable(name));
        }
        profile = match (profile, setting("inherits").and_then(Value::as_str)) {
            ("release", _) => return Some(variable(name)),
            ("dev", _) => return None,
            (_, Some(inherited)) => inherited,
            ("test", _) => "dev",
            ("bench", _) => "release",
            _ => return None,
        };
    }
    None
}

/// True for a value of `debug` with the lines of functions.
fn is_debug(value: &Value) -> bool {
    match value {
        Value::Boolean(is_on) => *is_on,
        Value::Integer(level) => *level != 0,
        Value::String(level) => !matches!(level.as_str(), "none" | "line-directives-only"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn profile_is_that_of_the_command() {
        for (line, expected) in [
            ("run --example train", "dev"),
            ("run --release", "release"),
            ("r -r -- --profile other", "release"),
            ("run -- --release", "dev"),
            ("run --profile=fast-math", "fast-math"),
            ("test --profile fast", "fast"),
            ("t", "test"),
            ("bench", "bench"),
            ("nextest run --profile ci", "test"),
            ("nextest run --profile ci --cargo-profile fast", "fast"),
            ("nextest run --release", "release"),
            ("run --profile", "dev"),
        ] {
            assert_eq!(name(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn only_profiles_without_debug_information_get_line_tables() {
        let debug = |name: &str, files: &[&str], set: &[&str]| {
            let tables: Vec<Table> = files.iter().map(|file| file.parse().unwrap()).collect();
            missing(name, &tables, |variable| set.contains(&variable))
        };
        let release = Some("CARGO_PROFILE_RELEASE_DEBUG".to_owned());
        let bench = Some("CARGO_PROFILE_BENCH_DEBUG".to_owned());
        assert_eq!(debug("dev", &[], &[]), None);
        assert_eq!(debug("test", &[], &[]), None);
        assert_eq!(debug("release", &[], &[]), release);
        assert_eq!(debug("bench", &[], &[]), bench);
        assert_eq!(debug("release", &[], &["CARGO_PROFILE_RELEASE_DEBUG"]), None);
        assert_eq!(debug("bench", &[], &["CARGO_PROFILE_RELEASE_DEBUG"]), None);
        assert_eq!(debug("release", &[], &["CARGO_PROFILE_BENCH_DEBUG"]), release);
        for value in ["true", "1", "2", "\"line-tables-only\"", "\"full\""] {
            let file = format!("[profile.release]\ndebug = {value}");
            assert_eq!(debug("release", &[&file], &[]), None, "{value}");
            assert_eq!(debug("bench", &[&file], &[]), None, "{value}");
        }
        for value in ["false", "0", "\"none\""] {
            let file =
                format!("[profile.release]\ndebug = {value}\n[profile.dev]\ndebug = {value}");
            assert_eq!(debug("release", &[&file], &[]), release, "{value}");
            assert_eq!(
                debug("test", &[&file], &[]),
                Some("CARGO_PROFILE_TEST_DEBUG".to_owned()),
                "{value}"
            );
        }
        let custom = "[profile.fast-math]\ninherits = \"release\"";
        let variable = Some("CARGO_PROFILE_FAST_MATH_DEBUG".to_owned());
        assert_eq!(debug("fast-math", &[custom], &[]), variable);
        assert_eq!(debug("fast-math", &[custom, "[profile.release]\ndebug = 1"], &[]), None);
        assert_eq!(debug("fast-math", &[], &[]), None, "cargo reports the missing profile");
        assert_eq!(debug("x", &["[profile.x]\ninherits = \"x\""], &[]), None);
        let config = ["[profile.release]\ndebug = true", "[profile.release]\ndebug = false"];
        assert_eq!(debug("release", &config, &[]), None, "the first file has precedence");
    }
}
