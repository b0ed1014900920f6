//! Annotations of GitHub Actions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use profiler_base::text::shortened;

use super::{Check, CheckOutcome, CiReport, lines_of, name_of};

/// The maximum number of annotations of one kind that GitHub shows for a step.
const ANNOTATIONS: usize = 10;
/// The maximum number of characters of a title and of a message.
const TITLE_WIDTH: usize = 200;
const MESSAGE_WIDTH: usize = 4000;

impl CiReport {
    /// A workflow command `::error` on a line of its own for each failed check, for the standard
    /// output of a step. GitHub shows ten for each step: the tenth line counts the failures that
    /// follow.
    #[must_use]
    pub fn to_github(&self) -> String {
        let mut commands = String::new();
        let failures: Vec<&Check> = self.failures().collect();
        let shown = match failures.len() {
            count if count <= ANNOTATIONS => count,
            _ => ANNOTATIONS - 1,
        };
        for check in &failures[..shown] {
            let title = match check.outcome {
                CheckOutcome::Undecided => format!("undecided: {}", check.name),
                _ => check.name.clone(),
            };
            let message = match &*check.message {
                "" => format!("{} failed", self.suite),
                message => message.to_owned(),
            };
            push_error(&mut commands, check, &title, &message);
        }
        if let Some(next) = failures.get(shown) {
            let message = format!("{} more checks failed", failures.len() - shown);
            push_error(&mut commands, next, &self.suite, &message);
        }
        commands
    }
}

fn push_error(commands: &mut String, check: &Check, title: &str, message: &str) {
    commands.push_str("::error ");
    if let Some((file, line)) = &check.location {
        let _ = write!(commands, "file={},line={line},", property(&name_of(file)));
    }
    let title = property(&shortened(title, TITLE_WIDTH));
    let message = lines_of(message, MESSAGE_WIDTH).join("\n");
    let _ = writeln!(commands, "title={title}::{}", data(&message));
}

/// Escapes a message. A command ends at its line.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// The path of a source file relative to the checkout, as annotations need it.
///
/// rustc's paths are relative to the workspace of cargo, or absolute outside of it. Cargo runs
/// tests in the folder of their package, so the workspace is that folder or one of its parents.
pub(super) fn path_in_checkout(file: &str, folder: &Path, checkout: &Path) -> Option<String> {
    let found: PathBuf = folder
        .ancestors()
        .take_while(|folder| folder.starts_with(checkout))
        .map(|folder| folder.join(file))
        .find(|path| path.is_file())?;
    found.strip_prefix(checkout).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_escaped() {
        assert_eq!(data("50%\r\n:,"), "50%25%0D%0A:,");
        assert_eq!(property("a:b,c%3A\n"), "a%3Ab%2Cc%253A%0A");
    }

    #[test]
    fn paths_are_relative_to_the_checkout() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        // What rustc gives in this workspace.
        assert_eq!(file!(), "profiler-core/src/check/ci/github.rs");
        let found = |file: &str, checkout: &Path| path_in_checkout(file, package, checkout);
        assert_eq!(found(file!(), checkout).as_deref(), Some(file!()));
        // In a workspace that is a folder of the checkout.
        let above = checkout.parent().unwrap();
        let name = checkout.file_name().unwrap().to_str().unwrap();
        assert_eq!(found(file!(), above), Some(format!("{name}/{}", file!())));
        // A package of its own.
        let own = "src/check/ci/github.rs";
        assert_eq!(found(own, checkout).as_deref(), Some(file!()));
        let absolute = package.join(own);
        assert_eq!(found(absolute.to_str().unwrap(), checkout).as_deref(), Some(file!()));
        assert_eq!(found("no/such/file.rs", checkout), None);
        assert_eq!(found(file!(), Path::new("/elsewhere")), None);
    }
}
