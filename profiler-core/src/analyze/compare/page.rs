//! A comparison for a pull request, as Markdown, and for a browser, as one page of HTML that fetches and runs nothing.

use std::fmt::Write as _;

use super::text::{Only, side};
use super::{Change, Comparison, Presence, Quantity};
use crate::base::text::{html, markdown};

const STYLE: &str = include_str!("style.css");
/// Its SHA-256, as the page's policy names it; a test holds it.
const STYLE_HASH: &str = "sha256-I3pKMuNwHW5A0Fo6DHlB53VE9WI1H6X2RRGOtUaIDJk=";
/// Rows of a table in Markdown, which people read in a comment, and in HTML.
const SHOWN: [usize; 2] = [20, 1000];

/// A table with its head, of texts that are not yet escaped.
struct Table {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<(Tone, Vec<String>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Tone {
    Plain,
    Worse,
    Better,
}

impl Comparison {
    /// For a comment on a pull request: what leads, and tables of 20 rows at most.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = format!("### GPU profile: {}\n\n", markdown(&self.headline()));
        for line in self.lines() {
            let _ = writeln!(out, "- {}", markdown(&line));
        }
        for table in self.tables() {
            let _ = write!(out, "\n**{}**\n\n", markdown(&table.title));
            let _ = writeln!(out, "| {} |", table.head.join(" | "));
            let marks: Vec<&str> =
                (0..table.head.len()).map(|at| if at == 0 { ":--" } else { "--:" }).collect();
            let _ = writeln!(out, "| {} |", marks.join(" | "));
            for (tone, cells) in table.rows.iter().take(SHOWN[0]) {
                let cell = |cell: &String| match tone {
                    Tone::Worse => format!("**{}**", markdown(cell)),
                    _ => markdown(cell),
                };
                // Two stars around nothing would be a line.
                let cells: Vec<String> = cells
                    .iter()
                    .map(|of| if of.is_empty() { String::new() } else { cell(of) })
                    .collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
            if table.rows.len() > SHOWN[0] {
                let _ = writeln!(out, "\n{} more rows", table.rows.len() - SHOWN[0]);
            }
        }
        out
    }

    /// One page for a browser, which fetches nothing and runs nothing: names stand in it as text. Tables have 1,000 rows at
    /// most.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>GPU profiles compared</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>GPU profiles compared</h1>\n<p>{}</p>\n<ul>\n",
            html(&self.headline())
        );
        for line in self.lines() {
            let _ = writeln!(out, "<li>{}</li>", html(&line));
        }
        out.push_str("</ul>\n");
        for table in self.tables() {
            let _ = writeln!(out, "<h2>{}</h2>\n<table>\n<thead><tr>", html(&table.title));
            for head in &table.head {
                let _ = write!(out, "<th scope=\"col\">{}</th>", html(head));
            }
            out.push_str("</tr></thead>\n<tbody>\n");
            for (tone, cells) in table.rows.iter().take(SHOWN[1]) {
                out.push_str(match tone {
                    Tone::Plain => "<tr>",
                    Tone::Worse => "<tr class=\"worse\">",
                    Tone::Better => "<tr class=\"better\">",
                });
                for cell in cells {
                    let _ = write!(out, "<td>{}</td>", html(cell));
                }
                out.push_str("</tr>\n");
            }
            out.push_str("</tbody>\n</table>\n");
            if table.rows.len() > SHOWN[1] {
                let _ = writeln!(out, "<p>{} more rows</p>", table.rows.len() - SHOWN[1]);
            }
        }
        out.push_str("</body>\n</html>\n");
        out
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
            format!("before: {}", side(&self.before)),
            format!("after: {}", side(&self.after)),
        ];
        lines.extend(self.clock_warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.extend(self.bottlenecks.iter().map(|of| format!("leads, {of}")));
        lines.extend(self.varying());
        lines.push(self.caution());
        lines
    }

    fn tables(&self) -> Vec<Table> {
        let row = |row: &&Change, is_time: bool| {
            let mut cells = vec![
                format!("{} of {}", row.quantity, row.label()),
                row.quantity.text(row.before),
                row.quantity.text(row.after),
                row.grown(),
                row.share(),
            ];
            if is_time {
                cells.push(row.single());
            }
            let tone = match row.times {
                Some(times) if times.is_clear && times.ratio > 1.0 => Tone::Worse,
                Some(times) if times.is_clear => Tone::Better,
                _ => Tone::Plain,
            };
            (tone, cells)
        };
        let head = vec!["what", "before", "after", "change", ""];
        let counts = self.differing_counts();
        let times = self.differing_times();
        let mut tables = vec![Table {
            title: "Counts that differ".to_owned(),
            head: head.clone(),
            rows: counts.iter().map(|of| row(of, false)).collect(),
        }];
        for (title, status) in [("Only before", Presence::Gone), ("Only after", Presence::New)] {
            tables.push(Table {
                title: title.to_owned(),
                head: vec!["what", "kernels", "GPU time"],
                rows: self.only(status).iter().map(only).collect(),
            });
        }
        tables.push(Table {
            title: "Time on the GPU".to_owned(),
            head: head.into_iter().chain(["each"]).collect(),
            rows: times.iter().map(|of| row(of, true)).collect(),
        });
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
