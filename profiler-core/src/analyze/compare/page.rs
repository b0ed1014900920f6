//! A comparison as Markdown and as a script-free HTML page.

use std::fmt::Write as _;

use super::text::{Only, side};
use super::{Change, Comparison, Presence, Quantity};
use crate::base::page::{Table, Tone, page, paragraph};
use crate::base::text::{html, markdown};

/// Rows of a table in Markdown.
const MARKDOWN_ROWS: usize = 20;
/// Rows of a table in HTML.
const HTML_ROWS: usize = 1000;

impl Comparison {
    /// Markdown for a comment on a pull request, with at most 20 rows a table.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("### GPU profile: {}\n\n", markdown(&self.wall.headline()));
        for line in self.lines() {
            let _ = writeln!(out, "- {}", markdown(&line));
        }
        out.extend(self.tables().iter().map(|table| table.markdown(MARKDOWN_ROWS)));
        out
    }

    /// One self-contained HTML page without scripts. Names are escaped, tables have up to 1,000
    /// rows.
    pub fn to_html(&self) -> String {
        let mut content = paragraph(&self.wall.headline()) + "<ul>\n";
        for line in self.lines() {
            let _ = writeln!(content, "<li>{}</li>", html(&line));
        }
        content.push_str("</ul>\n");
        content.extend(self.tables().iter().map(|table| table.html(HTML_ROWS)));
        page("GPU profiles compared", &content)
    }

    fn headline(&self) -> String {
        let clear = |is_wanted: fn(&Change) -> bool| {
            let times = self.changes.iter().filter(|row| row.status == Presence::Both);
            times
                .filter(|row| row.times.is_some_and(|times| times.is_clear) && is_wanted(row))
                .count()
        };
        let is_slower = |row: &Change| row.times.is_some_and(|times| times.ratio > 1.0);
        format!(
            "{}; times slower: {}, faster: {}{}",
            match (self.counts_differ, self.varying_counts()) {
                (true, _) => "counts differ",
                (false, 0) => "every count is the same",
                (false, _) => "the median of every count is the same",
            },
            clear(is_slower),
            clear(|row| row.times.is_some_and(|times| times.ratio < 1.0)),
            if self.is_complete() { "" } else { "; INCOMPLETE" }
        )
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            self.headline(),
            format!("before: {}", side(&self.before)),
            format!("after: {}", side(&self.after)),
        ];
        lines.extend(self.wall.lines());
        lines.extend(self.trade());
        lines.extend(self.clock_warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.extend(self.leaders.iter().map(|change| format!("leads, {change}")));
        lines.extend(self.varying());
        lines.push(self.caution());
        lines
    }

    fn tables(&self) -> Vec<Table> {
        let row = |row: &&Change, is_time: bool| {
            let mut cells = vec![format!("{} of {}", row.quantity, row.label())];
            cells.extend(row.cells(is_time));
            let tone = match row.times {
                Some(times) if times.is_clear && times.ratio > 1.0 => Tone::Worse,
                Some(times) if times.is_clear => Tone::Better,
                _ => Tone::Plain,
            };
            (tone, cells)
        };
        let head = vec!["what", "before", "after", "change", ""];
        let counts = self.differing_counts();
        let (causes, rows) = self.by_cause();
        let mut tables = vec![Table {
            title: "Wall time by cause",
            head: causes.to_vec(),
            rows: rows.into_iter().map(|cells| (Tone::Plain, cells)).collect(),
        }];
        for (title, on_gpu) in
            [("Host time and busy time of ranges", false), ("Time on the GPU", true)]
        {
            tables.push(Table {
                title,
                head: head.iter().copied().chain(["each"]).collect(),
                rows: self.differing_times(on_gpu).iter().map(|of| row(of, true)).collect(),
            });
        }
        tables.push(Table {
            title: "Counts that differ",
            head,
            rows: counts.iter().map(|of| row(of, false)).collect(),
        });
        for (title, status) in [("Only before", Presence::Gone), ("Only after", Presence::New)] {
            tables.push(Table {
                title,
                head: vec!["what", "kernels", "GPU time"],
                rows: self.only(status).iter().map(only).collect(),
            });
        }
        tables.retain(|table| !table.rows.is_empty());
        tables
    }
}

fn only((row, values): &Only<'_>) -> (Tone, Vec<String>) {
    let text = |quantity: Quantity| {
        values[quantity as usize].map(|value| quantity.text(value)).unwrap_or_default()
    };
    let cells = vec![row.label(), text(Quantity::Kernels), text(Quantity::GpuNs)];
    (Tone::Plain, cells)
}
