//! Texts for people.

use std::fmt;
use std::time::Duration;

use super::{
    Agreement, Assumptions, Change, CriticalPath, Outlook, PathRow, Prediction, ReplayError,
    Response,
};
use crate::base::table::{Layout, Table};
use crate::base::units::{NAME_WIDTH, PATH_WIDTH, number, shortened, time};

/// Rows of a table.
const SHOWN: usize = 12;

fn percent(part: Duration, whole: Duration) -> String {
    let whole = whole.as_secs_f64();
    let share = if whole == 0.0 { 0.0 } else { part.as_secs_f64() / whole };
    format!("{:.1} %", 100.0 * share)
}

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
                percent(row.on_path, self.length),
                format!("{} of {}", row.parts, row.all_parts),
                time(row.total),
                row.slack.map_or("-".to_owned(), time),
            ]);
        }
        let more = rows.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!("\n({more} more)") };
        table.render(layout) + &more
    }
}

impl fmt::Display for CriticalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        let parts = self.kinds.iter().map(|(kind, ns)| {
            format!("{} {}", kind.text(), percent(Duration::from_nanos(*ns), self.length))
        });
        write!(f, "\n{}", parts.collect::<Vec<_>>().join(", "))?;
        if self.unexplained != Duration::ZERO {
            write!(f, "\n{} before anything is known", time(self.unexplained))?;
        }
        write!(f, "\n\n{}", self.table("kernel or call", self.rows(), Layout::of(f)))?;
        write!(f, "\n\n{}", self.table("range", self.ranges(), Layout::of(f)))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &String| shortened(path, PATH_WIDTH);
        let faster = |times: f64| match times {
            times if times.is_infinite() => "in no time".to_owned(),
            times => format!("{} times as fast", number(times)),
        };
        match self {
            Self::Kernel { name, times } => {
                write!(f, "kernel {} {}", shortened(name, NAME_WIDTH), faster(*times))
            }
            Self::RangeGpu { path: of, times } => {
                write!(f, "GPU work of {} {}", path(of), faster(*times))
            }
            Self::Host { path: of, times } => {
                write!(f, "host's part of {} {}", path(of), faster(*times))
            }
            Self::Ahead { path: of, threads } => {
                write!(f, "host's part of {} ahead on {threads} threads", path(of))
            }
            Self::NoWait { path: of } => write!(f, "no waits of the host in {}", path(of)),
            Self::OneWait { path: of } => write!(f, "only the last wait in each {}", path(of)),
            Self::NoAllocations { path: of } => {
                write!(f, "no allocations in {}, from a pool", path(of))
            }
            Self::NoEvents { path: of } => write!(f, "no waits of streams in {}", path(of)),
            Self::OneGraph { path: of } => write!(f, "launches in each {} as one graph", path(of)),
            Self::OneCopy { path: of } => write!(f, "copies in each {} as one", path(of)),
            Self::Pinned => f.write_str("copies from and to pinned memory"),
            Self::CopiesAhead => f.write_str("copies from and to pinned memory, beside kernels"),
        }
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { change, before, copy_rate, .. } = self;
        let (saved, speed_up) = (self.saved(), self.speed_up());
        write!(f, "{change}: {} less ({}), {speed_up:.2}x", time(saved), percent(saved, *before))?;
        match copy_rate {
            Some(rate) if rate.is_measured => write!(f, ", at {} GB/s", number(rate.gigabytes))?,
            Some(rate) => write!(f, ", at an assumed {} GB/s", number(rate.gigabytes))?,
            None => {}
        }
        Ok(())
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "replay of {} steps with the delays of others: the median step is off by {:.2} %, that of two halves by \
             {:.2} %; single steps by {:.2} % (at most {:.2} %) and vary by {:.2} %; without dependencies {:.1} %",
            self.steps,
            100.0 * self.median_step,
            100.0 * self.halves,
            100.0 * self.median,
            100.0 * self.largest,
            100.0 * self.spread,
            100.0 * self.without_edges
        )
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_on_gpu { "GPU" } else { "host" };
        let place = shortened(&self.path, PATH_WIDTH);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        write!(
            f,
            "{what} delayed by {} in {place}: {} of {} steps are longer by {} of it",
            time(self.delay),
            self.delayed,
            self.delayed + self.undelayed,
            percent(self.measured)
        )?;
        if self.low.is_finite() {
            write!(f, " ({} to {})", percent(self.low), percent(self.high))?;
        }
        write!(f, ", predicted {}: ", percent(self.predicted))?;
        f.write_str(match self.agreement() {
            Agreement::Agrees => "the model agrees",
            Agreement::Disagrees => "the model is wrong there",
            Agreement::Undecided => "undecided, more steps or a longer delay decide",
        })
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
        match self.clock_error_ns {
            0 => Ok(()),
            ns => write!(f, "; clocks are off by up to {}", time(Duration::from_nanos(ns))),
        }
    }
}

impl Outlook {
    /// The shares of the path, the model's error and the changes, for a text that has more.
    pub(crate) fn brief(&self) -> String {
        let path = self.path.range.as_deref().unwrap_or("the session");
        let kinds = self.path.kinds.iter().take(5).map(|(kind, ns)| {
            format!("{} {}", kind.text(), percent(Duration::from_nanos(*ns), self.path.length))
        });
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        format!("critical path of {}: {kinds}{}", shortened(path, PATH_WIDTH), self.changes_text())
    }

    fn changes_text(&self) -> String {
        let mut text = match &self.replay {
            Some(error) => format!("\n{error}"),
            None => "\nthe model's error is not known: fewer than four steps".to_owned(),
        };
        for response in &self.responses {
            text.push_str(&format!("\n{response}"));
        }
        text.push_str(&format!("\nconfidence in predictions: {}", self.confidence));
        text.push_str(match self.changes.is_empty() {
            true => "\nno single change of those tried would save 0.5 %",
            false => "\nchanges by what each saves alone in a replay:",
        });
        for (n, change) in self.changes.iter().enumerate() {
            text.push_str(&format!("\n  {}. {change}", n + 1));
        }
        text
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(width) => writeln!(f, "{:.width$}", self.path)?,
            None => writeln!(f, "{}", self.path)?,
        }
        writeln!(f, "{}", self.changes_text())?;
        write!(f, "{}", self.assumptions)
    }
}
