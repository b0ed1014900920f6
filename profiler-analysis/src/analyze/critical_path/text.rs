//! Text output.

use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::table::{Table, distinct};
use profiler_base::units::{NAME_WIDTH, PATH_WIDTH, number, percent_of_time, shortened, time};

use super::{
    Assumptions, CriticalPath, NoPrediction, Outlook, PathRow, Prediction, ReplayError, WhatIf,
};

/// Rows of a table.
const SHOWN: usize = 12;

/// The longest name in a line without a limit, in columns.
const LONGEST_NAME: usize = 500;

impl CriticalPath {
    fn table(&self, of: &str, rows: &[PathRow], layout: Layout) -> String {
        let header = [of, "kind", "on path", "share", "parts", "total", "slack"];
        let mut table = Table::new(header, 2);
        for row in rows.iter().take(SHOWN) {
            let name = if row.name.is_empty() { "-" } else { &row.name };
            table.add_row([
                name.to_owned(),
                row.kind.text().to_owned(),
                time(row.on_path),
                percent_of_time(row.on_path, self.length),
                format!("{} of {}", row.parts, row.all_parts),
                time(row.total),
                row.slack.map_or("-".to_owned(), time),
            ]);
        }
        let more = rows.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!("\n({more} more)") };
        table.render(layout) + &more
    }

    /// The shares of the first kinds.
    fn shares(&self, most: usize) -> String {
        let parts = self.kinds.iter().take(most).map(|(kind, ns)| {
            format!("{} {}", kind.text(), percent_of_time(Duration::from_nanos(*ns), self.length))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl DisplayOptions for CriticalPath {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.range {
            Some(path) => {
                let path = shortened(path, PATH_WIDTH);
                write!(f, "critical path of {} instances of {path}", self.instances)?;
            }
            None => f.write_str("critical path of the session")?,
        }
        write!(f, ": {}", time(self.length))?;
        if self.instances > 1 {
            let mean = self.length.as_secs_f64() / self.instances as f64;
            write!(f, ", {} each", time(Duration::from_secs_f64(mean)))?;
        }
        write!(f, "\n{}", self.shares(self.kinds.len()))?;
        if self.unexplained != Duration::ZERO {
            write!(f, "\n{} before anything is known", time(self.unexplained))?;
        }
        write!(f, "\n\n{}", self.table("kernel or call", self.rows(), layout))?;
        write!(f, "\n\n{}", self.table("range", self.ranges(), layout))
    }
}

display_by_default_layout!(CriticalPath);

impl WhatIf {
    /// The name or path of the change; empty for changes of the whole run.
    fn subject(&self) -> &str {
        match self {
            Self::Kernel { name, .. } => name,
            change => change.range().unwrap_or_default(),
        }
    }

    fn subject_width(&self, layout: Layout) -> usize {
        let default = if matches!(self, Self::Kernel { .. }) { NAME_WIDTH } else { PATH_WIDTH };
        layout.name_width(default).min(LONGEST_NAME)
    }

    /// The text with its subject as displayed.
    fn text(&self, of: &str) -> String {
        let faster = |times: f64| match times {
            times if times.is_infinite() => "in no time".to_owned(),
            times => format!("{} times as fast", number(times)),
        };
        match self {
            Self::Kernel { times, .. } => format!("kernel {of} {}", faster(*times)),
            Self::RangeGpu { times, .. } => format!("GPU work of {of} {}", faster(*times)),
            Self::Host { times, .. } => format!("host's part of {of} {}", faster(*times)),
            Self::Ahead { threads, .. } => {
                format!("host's part of {of} ahead on {threads} threads")
            }
            Self::NoWait { .. } => format!("no waits of the host in {of}"),
            Self::OneWait { .. } => format!("only the last wait in each {of}"),
            Self::NoAllocations { .. } => format!("no allocations in {of}, from a pool"),
            Self::NoEvents { .. } => format!("no waits of streams in {of}"),
            Self::OneGraph { .. } => format!("launches in each {of} as one graph"),
            Self::OneCopy { .. } => format!("copies in each {of} as one"),
            Self::Pinned => "copies from and to pinned memory".to_owned(),
            Self::CopiesAhead => "copies from and to pinned memory, beside kernels".to_owned(),
        }
    }
}

impl DisplayOptions for WhatIf {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.subject_width(layout);
        f.write_str(&self.text(&shortened(self.subject(), width)))
    }
}

display_by_default_layout!(WhatIf);

impl Prediction {
    /// The text with the change as displayed.
    fn text(&self, change: &str) -> String {
        let Self { before, after, copy_rate, .. } = self;
        let (more, saved) = (after.saturating_sub(*before), self.saved());
        let text = match (more.is_zero(), saved.is_zero()) {
            (false, _) => format!("about {} more ({})", time(more), percent_of_time(more, *before)),
            (true, true) => "the same time".to_owned(),
            (true, false) => {
                let less =
                    format!("about {} less ({})", time(saved), percent_of_time(saved, *before));
                match after.is_zero() {
                    true => less,
                    false => format!("{less}, {:.2}x faster", self.speed_up()),
                }
            }
        };
        let text = format!("{change}: {text}");
        match copy_rate {
            Some(rate) if rate.is_measured => {
                format!("{text}, at {} GB/s", number(rate.gigabytes))
            }
            Some(rate) => format!("{text}, at an assumed {} GB/s", number(rate.gigabytes)),
            None => text,
        }
    }
}

impl DisplayOptions for Prediction {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.change.subject_width(layout);
        let change = self.change.text(&shortened(self.change.subject(), width));
        f.write_str(&self.text(&change))
    }
}

display_by_default_layout!(Prediction);

impl fmt::Display for NoPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingMatches => f.write_str("the profile has nothing that the change names"),
            Self::NothingToChange => f.write_str("the change alters nothing in the profile"),
            Self::Times => f.write_str("something may be 0.01 to 1,000,000 times as fast, or inf"),
            Self::ModelError { median_step, most } => write!(
                f,
                "the replay's median step is off by {:.2} %, more than {:.0} %",
                100.0 * median_step,
                100.0 * most
            ),
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "check of the model: the median of {} replayed steps is off by {:.2} % (odd and even steps differ by {:.2} %)",
            self.steps,
            100.0 * self.median_step,
            100.0 * self.halves
        )
    }
}

impl fmt::Display for Assumptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.clock_corrections, "starts moved by the error of clocks"),
            (self.contradicted, "dependencies against time left out"),
            (self.cycles, "dependencies in cycles left out"),
            (self.unmatched, "operations without call or times"),
            (self.inferred_in_graphs, "inferred in graphs"),
            (self.inferred_events, "inferred for events"),
            (self.events_without_source, "waits of streams that delayed nothing known"),
            (self.inferred_on_device, "inferred on the device"),
            (self.inferred_waits, "inferred for allocations"),
            (self.overlapping_in_stream, "overlaps in a stream"),
            (self.late_starts, "starts later than explained"),
            (self.hand_overs, "hand-overs"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count != 0);
        let texts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        match texts.is_empty() {
            true => f.write_str("all dependencies are recorded")?,
            false => write!(f, "assumptions: {}", texts.join(", "))?,
        }
        let known = [
            (self.recorded_in_graphs, "operations of graphs with known dependencies"),
            (self.recorded_events, "waits for events with a known recording"),
            (self.collectives, "collectives of several ranks"),
        ];
        for (count, what) in known.iter().filter(|(count, _)| *count != 0) {
            write!(f, "; {count} {what}")?;
        }
        match self.clock_error {
            Duration::ZERO => Ok(()),
            error => write!(f, "; clocks are off by up to {}", time(error)),
        }
    }
}

impl Outlook {
    /// The shares of the path, the model's error and the changes, for a longer text.
    pub(crate) fn brief(&self, layout: Layout) -> String {
        let path = self.path.range.as_deref().unwrap_or("the session");
        let (path, kinds) = (shortened(path, PATH_WIDTH), self.path.shares(5));
        format!("critical path of {path}: {kinds}{}", self.changes_text(layout))
    }

    fn changes_text(&self, layout: Layout) -> String {
        let mut text = match &self.replay {
            Some(error) => format!("\n{error}"),
            None => "\nthe model's error is unknown: fewer than four steps".to_owned(),
        };
        if let Some(why) = &self.no_prediction {
            text.push_str(&format!("\nno changes are predicted: {why}"));
            return text;
        }
        text.push_str(&format!("\nconfidence in predictions: {}", self.confidence));
        if let Some(tried) = self.tried_steps {
            let all = self.path.instances;
            text.push_str(&format!("\nchanges are tried on the first {tried} of {all} steps"));
        }
        let (clock, steps) = (time(self.clock), self.path.range.is_some());
        text.push_str(&match (self.changes.is_empty(), steps) {
            (true, _) => "\nno single change of those tried would save 0.5 %".to_owned(),
            (false, true) => {
                format!("\nchanges, by the saving of each alone of the median step of {clock}:")
            }
            (false, false) => format!("\nchanges, by the saving of each alone of {clock}:"),
        });
        // Ensures that changes of two kernels have different texts.
        let subjects: Vec<(&str, usize)> = self
            .changes
            .iter()
            .map(|of| (of.change.subject(), of.change.subject_width(layout)))
            .collect();
        let subjects = distinct(&subjects);
        for ((n, prediction), subject) in self.changes.iter().enumerate().zip(subjects) {
            let change = prediction.change.text(&subject);
            text.push_str(&format!("\n  {}. {}", n + 1, prediction.text(&change)));
        }
        text
    }
}

impl DisplayOptions for Outlook {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without colours, like the changes below.
        self.path.write_in(Layout { is_coloured: false, ..layout }, f)?;
        f.write_str("\n")?;
        writeln!(f, "{}", self.changes_text(layout))?;
        write!(f, "{}", self.assumptions)
    }
}

display_by_default_layout!(Outlook);
