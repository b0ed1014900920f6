//! A comparison as Markdown and as a script-free HTML page.

use std::cmp::Reverse;
use std::fmt::Write as _;

use profiler_base::text::{html, markdown};
use profiler_base::units::{change, percent};

use super::text::{CAUSE_HEAD, Only, cause_cells, side, signed_time};
use super::wall::{place, signed, time};
use super::{
    CauseChange, Change, ChangeKind, Compared, Comparison, Contribution, Presence, Quantity, Speed,
    WallCause, WallChange,
};
use crate::page::{Table, Tone, page, paragraph};
use profiler_core::series::Unit;

/// Rows of a table in Markdown.
const MARKDOWN_ROWS: usize = 20;
/// Rows of a table in HTML.
const HTML_ROWS: usize = 1000;
/// Contributions in a page.
const CONTRIBUTIONS: usize = 15;

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

    /// Returns one self-contained HTML page without scripts. It states if the program got faster
    /// and the causes, largest change first. Times, counts and the subjects of only one side
    /// follow. Names are escaped; tables have up to 1,000 rows.
    pub fn to_html(&self) -> String {
        let wall = &self.wall;
        let (look, result) = match wall.speed {
            Speed::Faster => ("better", format!("{} less wall time", percent(1.0 - wall.ratio))),
            Speed::Slower => ("worse", format!("{} more wall time", percent(wall.ratio - 1.0))),
            Speed::Same => ("", "As fast as before".to_owned()),
            Speed::Undecided => ("", "Undecided".to_owned()),
        };
        let times = [wall.before_ns, wall.after_ns].map(time);
        let mut content = format!(
            "<div class=\"headline {look}\"><b>{result}</b>\n{}{}</div>\n",
            paragraph(&format!("{} to {}", times[0], times[1])),
            paragraph(&wall.headline())
        );
        let warnings = self.warnings();
        if !warnings.is_empty() {
            content.push_str("<ul class=\"warnings\">\n");
            content.extend(warnings.iter().map(|line| format!("<li>{}</li>\n", html(line))));
            content.push_str("</ul>\n");
        }
        content.push_str(&bars(wall));
        content.extend(explained(wall).map(|table| table.html(HTML_ROWS)));
        content.push_str("<h2>In short</h2>\n<ul>\n");
        content.extend(self.facts().iter().map(|line| format!("<li>{}</li>\n", html(line))));
        content.push_str("</ul>\n");
        content.extend(self.tables().iter().map(|table| table.html(HTML_ROWS)));
        content.push_str("<h2>Runs</h2>\n<dl class=\"sides\">\n");
        for (name, runs) in [("before", &self.before), ("after", &self.after)] {
            let _ = writeln!(content, "<dt>{name}</dt><dd>{}</dd>", html(&side(runs)));
        }
        content.push_str("</dl>\n");
        page("GPU profiles compared", &content)
    }

    /// The limits of the comparison.
    fn warnings(&self) -> Vec<String> {
        let incomplete = "INCOMPLETE: records were lost, so counts and times may be too low";
        let incomplete = (!self.is_complete()).then(|| incomplete.to_owned());
        let clocks = self.clock_warnings.iter().map(ToString::to_string);
        incomplete.into_iter().chain(clocks).collect()
    }

    /// The facts beside the wall time.
    fn facts(&self) -> Vec<String> {
        let mut facts = vec![self.headline()];
        facts.extend(self.energy());
        facts.extend(self.trade());
        facts.extend(self.leaders.iter().map(|change| format!("leads, {change}")));
        facts.extend(self.varying());
        facts.push(self.caution());
        facts
    }

    /// The energy of the devices, if it was sampled on both sides.
    fn energy(&self) -> Option<String> {
        let mean = |runs: &[Compared]| {
            let known: Vec<f64> = runs.iter().filter_map(|run| run.energy_j).collect();
            let count = known.len();
            (count != 0 && count == runs.len()).then(|| known.iter().sum::<f64>() / count as f64)
        };
        let (before, after) = (mean(&self.before)?, mean(&self.after)?);
        let change = match before > 0.0 {
            true => format!(" ({})", change(after / before, 1)),
            false => String::new(),
        };
        let [before, after] = [before, after].map(|value| Unit::Joules.measured(value));
        Some(format!("energy of a run: {before} -> {after}{change}"))
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
        lines.extend(self.phases.iter().map(ToString::to_string));
        lines.extend(self.energy());
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
        let head = vec!["what", "before", "after", "change", "in percent"];
        let mut counts = self.differing_counts();
        // Totals first, then by the factor of the change, largest first.
        let factor = |of: &Change| of.percent.map_or(f64::INFINITY, f64::abs);
        counts.sort_by(|a, b| {
            let is_part = |of: &Change| of.kind != ChangeKind::Everything;
            is_part(a).cmp(&is_part(b)).then(factor(b).total_cmp(&factor(a)))
        });
        // The largest change first.
        let mut causes = self.wall.by_cause();
        let change = |of: &CauseChange| of.after_ns - of.before_ns;
        causes.sort_by(|a, b| change(b).abs().total_cmp(&change(a).abs()));
        let cause = |of| (tone(change(of), &self.wall), cause_cells(of));
        let mut tables = vec![Table {
            title: "Wall time by cause",
            head: CAUSE_HEAD.to_vec(),
            rows: causes.iter().map(cause).collect(),
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
                rows: longest_first(self.only(status)).iter().map(only).collect(),
            });
        }
        tables.retain(|table| !table.rows.is_empty());
        tables
    }
}

/// The subjects of one side, longest GPU time first.
fn longest_first(mut subjects: Vec<Only<'_>>) -> Vec<Only<'_>> {
    subjects.sort_by_key(|(_, values)| Reverse(values[Quantity::GpuNs as usize].unwrap_or(0)));
    subjects
}

fn only((row, values): &Only<'_>) -> (Tone, Vec<String>) {
    let text = |quantity: Quantity| {
        values[quantity as usize].map(|value| quantity.text(value)).unwrap_or_default()
    };
    let cells = vec![row.label(), text(Quantity::Kernels), text(Quantity::GpuNs)];
    (Tone::Plain, cells)
}

/// The tone of a part of the change of wall time. A part below a hundredth of the change is
/// neutral.
fn tone(change_ns: f64, wall: &WallChange) -> Tone {
    match change_ns {
        _ if change_ns.abs() < 0.01 * wall.change_ns.abs() => Tone::Plain,
        _ if change_ns > 0.0 => Tone::Worse,
        _ => Tone::Better,
    }
}

/// The parts of the change of wall time, largest change first; `None` without a change.
fn explained(wall: &WallChange) -> Option<Table> {
    if wall.change_ns == 0.0 {
        return None;
    }
    let share = |change: f64| format!("{:+.1} %", 100.0 * change / wall.change_ns);
    let changed = || wall.contributions.iter().filter(|of| of.change_ns != 0.0);
    let row = |of: &Contribution| {
        let place = place(of.domain.as_deref(), of.path.as_deref());
        let mut cells = vec![format!("{} {place}", of.cause)];
        cells.extend([of.before_ns, of.after_ns].map(signed_time));
        cells.extend([signed(of.change_ns), share(of.change_ns)]);
        (tone(of.change_ns, wall), cells)
    };
    let mut rows: Vec<_> = changed().take(CONTRIBUTIONS).map(row).collect();
    let rest: f64 = changed().skip(CONTRIBUTIONS).map(|of| of.change_ns).sum();
    for (what, change, is_shown) in
        [("all else", rest, rest != 0.0), ("not explained", wall.unexplained_ns, true)]
    {
        if is_shown {
            let cells = [what, "", "", &signed(change), &share(change)].map(str::to_owned);
            rows.push((Tone::Plain, cells.into()));
        }
    }
    let head = vec!["cause and range", "before", "after", "change", "of the change"];
    Some(Table { title: "Explanation", head, rows })
}

/// The wall time before and after as bars of their causes.
fn bars(wall: &WallChange) -> String {
    let longest = wall.before_ns.max(wall.after_ns);
    if longest <= 0.0 {
        return String::new();
    }
    let causes = wall.by_cause();
    let of_side = |row: usize, cause: &CauseChange| [cause.before_ns, cause.after_ns][row];
    let mut out = "<div class=\"clock\">\n".to_owned();
    for (row, name, wall_ns) in [(0, "before", wall.before_ns), (1, "after", wall.after_ns)] {
        // Time of concurrent kernels counts once.
        let overlap = causes.iter().filter(|of| of.cause == WallCause::Overlap);
        let overlap: f64 = overlap.map(|of| of_side(row, of)).sum();
        let _ = writeln!(
            out,
            "<span>{name}</span><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Wall time {name} by cause\">"
        );
        let mut x = 0.0;
        for cause in causes.iter().filter(|of| of.cause != WallCause::Overlap) {
            let more = if cause.cause == WallCause::Kernels { overlap } else { 0.0 };
            let ns = (of_side(row, cause) + more).max(0.0);
            let (width, of, what) = (1000.0 * ns / longest, color(cause.cause), cause.cause);
            let _ = writeln!(
                out,
                "<rect class=\"part-{of}\" x=\"{x:.2}\" width=\"{width:.2}\" height=\"10\"><title>{what}: {}</title></rect>",
                time(ns)
            );
            x += width;
        }
        let _ = writeln!(out, "</svg><b>{}</b>", time(wall_ns));
    }
    out += "</div>\n<ul class=\"causes\">\n";
    for cause in causes.iter().map(|of| of.cause).filter(|of| *of != WallCause::Overlap) {
        let _ = writeln!(
            out,
            "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"part-{}\" width=\"10\" height=\"10\"/></svg>{cause}</li>",
            color(cause)
        );
    }
    out += "</ul>\n";
    out
}

/// The index of a cause's colour in the stylesheet: the colour of its part of the clock.
const fn color(cause: WallCause) -> u8 {
    match cause {
        WallCause::Kernels | WallCause::Overlap => 0,
        WallCause::Communication => 1,
        WallCause::Copies => 2,
        WallCause::Scheduling => 3,
        WallCause::Launching => 4,
        WallCause::Waiting => 5,
        WallCause::Host => 6,
        WallCause::Loading => 7,
        WallCause::Unknown => 8,
    }
}
