//! Markdown for the summary of a step.

use std::fmt::Write as _;

use profiler_base::text::markdown;

use super::{CheckOutcome, CiReport, lines_of, name_of};

/// The maximum number of failures in a text, and of characters of each.
const SHOWN: usize = 50;
const MESSAGE_WIDTH: usize = 4000;

impl CiReport {
    /// Markdown for the summary of a step or a comment: the counts of outcomes, the failed checks
    /// with their messages, and the notes.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let outcome = if self.is_pass() { "passed" } else { "failed" };
        let mut text = format!("### {}: {outcome}\n\n", markdown(&name_of(&self.suite)));
        let counts = [
            ("passed", CheckOutcome::Passed),
            ("failed", CheckOutcome::Failed),
            ("undecided", CheckOutcome::Undecided),
            ("skipped", CheckOutcome::Skipped),
        ];
        let counts = counts.map(|(name, outcome)| format!("{} {name}", self.count(outcome)));
        let _ = writeln!(text, "{} checks: {}", self.checks.len(), counts.join(", "));
        for check in self.failures().take(SHOWN) {
            let outcome = match check.outcome {
                CheckOutcome::Undecided => "undecided",
                _ => "failed",
            };
            let _ = write!(text, "\n- **{outcome}** {}", markdown(&name_of(&check.name)));
            if let Some((file, line)) = &check.location {
                let _ = write!(text, " at {}:{line}", markdown(&name_of(file)));
            }
            text.push('\n');
            // A code block within the list item: nothing in it is markup.
            let lines = lines_of(&check.message, MESSAGE_WIDTH);
            for (number, line) in lines.iter().enumerate() {
                let before = if number == 0 { "\n" } else { "" };
                let _ = writeln!(text, "{before}      {line}");
            }
        }
        match self.failures().count().saturating_sub(SHOWN) {
            0 => {}
            more => {
                let _ = writeln!(text, "\n- and {more} more");
            }
        }
        for (number, note) in self.notes.iter().enumerate() {
            let before = if number == 0 { "\nNotes:\n\n" } else { "" };
            let note = lines_of(note, MESSAGE_WIDTH).join(" ");
            let _ = writeln!(text, "{before}- {}", markdown(&note));
        }
        text.push('\n');
        text
    }
}
