//! A scorecard as text and Markdown.

use std::fmt::{self, Write as _};

use profiler_base::table::{Layout, Table, Tone};
use profiler_base::text::markdown;
use profiler_base::units::{self, shortened};

use super::kind::Unit;
use super::{Flag, Score, Scorecard, Target, factor};

/// The longest note in a table.
const NOTE_WIDTH: usize = 72;
/// The longest line outside the table.
const LINE_WIDTH: usize = 240;
const HEADER: [&str; 5] = ["flag", "value", "is", "target", "rests on"];

impl Score {
    /// The value as text: `61.2 %`, `1.58x`, or `-` if unknown.
    pub fn value_text(&self) -> String {
        self.value.map_or_else(|| "-".to_owned(), |value| self.text_of(value))
    }

    /// The target as text: `<= 5 %`.
    pub fn target_text(&self) -> String {
        let Target { good, .. } = self.target;
        match self.kind.unit() {
            Unit::Complete => "complete".to_owned(),
            Unit::Share => format!("{} {} %", self.sign(), percent(good)),
            Unit::Factor => format!("{} {}", self.sign(), self.text_of(good)),
        }
    }

    fn sign(&self) -> &'static str {
        if self.kind.more_is_better() { ">=" } else { "<=" }
    }

    fn text_of(&self, value: f64) -> String {
        match self.kind.unit() {
            Unit::Complete => (if value == 1.0 { "complete" } else { "INCOMPLETE" }).to_owned(),
            Unit::Share => units::percent(value),
            Unit::Factor => match factor(value) {
                text if text.starts_with("over") => text,
                text => format!("{text}x"),
            },
        }
    }

    fn cells(&self, width: usize) -> [String; 5] {
        [
            self.flag.to_string(),
            self.kind.to_string(),
            self.value_text(),
            self.target_text(),
            shortened(&self.note, width),
        ]
    }
}

/// A percentage without trailing zeros.
fn percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Scorecard {
    /// The number of each flag, most important first.
    fn counts(&self) -> String {
        let flags = [Flag::Bad, Flag::Look, Flag::Good, Flag::Unknown];
        let counts = flags.map(|flag| format!("{} {flag}", self.with_flag(flag).count()));
        counts.join(", ")
    }

    fn next(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!("mend first: {}: {}", shortened(&first.what, NOTE_WIDTH), first.remedy))
    }

    /// Markdown for a comment on a pull request. Names are escaped.
    pub fn to_markdown(&self) -> String {
        let mut out = format!(
            "### GPU scorecard: {}\n\n{}\n\n",
            self.counts(),
            markdown(&shortened(&self.verdict, LINE_WIDTH))
        );
        for line in &self.others {
            let _ = writeln!(out, "{}\n", markdown(&shortened(line, LINE_WIDTH)));
        }
        let _ = writeln!(out, "| {} |\n| --- | --- | --: | --: | --- |", HEADER.join(" | "));
        for score in &self.scores {
            let mut cells = score.cells(NOTE_WIDTH).map(|cell| markdown(&cell));
            if score.flag == Flag::Bad {
                cells[0] = format!("**{}**", cells[0]);
            }
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        if let Some(next) = self.next() {
            let _ = writeln!(out, "\n{}", markdown(&next));
        }
        out
    }
}

impl fmt::Display for Scorecard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "scorecard: {}", self.counts())?;
        writeln!(f, "{}", shortened(&self.verdict, LINE_WIDTH))?;
        for line in &self.others {
            writeln!(f, "{}", shortened(line, LINE_WIDTH))?;
        }
        writeln!(f)?;
        let layout = Layout::from_formatter(f);
        let note_width = layout.width.map_or(NOTE_WIDTH, |_| LINE_WIDTH);
        let mut rows = Table::new(HEADER, 2).with_prose().with_name_width(NOTE_WIDTH);
        for score in &self.scores {
            let tone = match score.flag {
                Flag::Bad => Tone::Bad,
                Flag::Look => Tone::Warning,
                Flag::Good => Tone::Good,
                Flag::Unknown => Tone::Plain,
            };
            rows.add(String::new(), tone, score.cells(note_width));
        }
        f.write_str(&rows.render(layout))?;
        match self.next() {
            Some(next) => write!(f, "\n\n{next}"),
            None => Ok(()),
        }
    }
}
