//! A change of wall time as text.

use std::fmt;

use profiler_base::hodges_lehmann::MOST;
use profiler_base::units::{self, NAME_WIDTH, change, shortened};

use super::{Explanation, WallChange};
use crate::speed::Speed;

/// Contributions in a text.
const SHOWN: usize = 5;

pub(crate) fn time(ns: f64) -> String {
    units::time(units::duration(ns))
}

pub(crate) fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { '-' } else { '+' }, time(ns.abs()))
}

pub(crate) fn place(domain: Option<&str>, path: Option<&str>) -> String {
    match (path, domain) {
        (None, _) => "outside any range".to_owned(),
        (Some(path), None) => format!("in {}", shortened(path, NAME_WIDTH)),
        (Some(path), Some(domain)) => {
            format!("in {} [{}]", shortened(path, NAME_WIDTH), shortened(domain, NAME_WIDTH))
        }
    }
}

/// `idle for launches in step: +1.20 ms (95.0 % of the change)`.
impl Explanation {
    fn text(&self, change_ns: f64) -> String {
        let place = match &self.path {
            None => String::new(),
            path => format!(" {}", place(self.domain.as_deref(), path.as_deref())),
        };
        let share = 100.0 * self.change_ns / change_ns;
        format!("{}{place}: {} ({share:.0} % of the change)", self.cause, signed(self.change_ns))
    }
}

fn counted(processes: usize) -> String {
    if processes == 1 { "one process".to_owned() } else { format!("{processes} processes") }
}

impl WallChange {
    /// Returns one line: the result, the change, its certainty and its cause; or why there is no
    /// result.
    pub fn headline(&self) -> String {
        let (before, after) = (time(self.before_ns), time(self.after_ns));
        if let Some(why) = &self.undecidable {
            return format!("wall time {}: {why}; {before} before, {after} after", self.speed);
        }
        let bounds = match self.high {
            Some(high) => format!("{} to {}", change(self.low, 1), change(high, 1)),
            None => "no bounds".to_owned(),
        };
        let runs = match (self.runs, self.processes) {
            ([1, 1], _) => "one run a side".to_owned(),
            ([runs, _], [processes, _]) if self.is_paired && runs == processes => {
                format!("{runs} pairs of runs")
            }
            (runs, processes) if runs == processes => format!("{} and {} runs", runs[0], runs[1]),
            (runs, processes) => format!(
                "{} runs of {} and {} of {}",
                runs[0],
                counted(processes[0]),
                runs[1],
                counted(processes[1])
            ),
        };
        let sure = match self.assumed_variation {
            Some(part) => format!(", if processes differ by at most {:.0} %", 100.0 * part),
            // Rounded to hide floating-point error.
            None => format!(" at {} %", (1e4 * self.confidence).round() / 1e2),
        };
        let clocks = if self.clocks.is_some() { ", SM clocks included" } else { "" };
        let mut text = format!(
            "wall time {}: {before} -> {after}, {} ({bounds}{sure}{clocks}; {runs})",
            self.speed,
            change(self.ratio, 1)
        );
        if self.speed == Speed::Undecided {
            match self.runs_needed {
                Some(runs) => text.push_str(&format!(
                    "; {runs} runs of each would probably decide, each of a process of its own"
                )),
                None => text.push_str(&format!(
                    "; more than {MOST} runs of each would be needed: make a run longer or the machine quieter"
                )),
            }
        }
        if let (Speed::Faster | Speed::Slower, Some(explanation)) = (self.speed, &self.explanation)
        {
            text.push_str(&format!("; {}", explanation.text(self.change_ns)));
        }
        text
    }

    /// The largest contributions, a line each, and the unexplained part. Empty without a result,
    /// for example for different work.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.undecidable.is_some() {
            return Vec::new();
        }
        // A change of 0 has no shares, and a value shown as 0 has no sign.
        let of_change = |ns: f64| {
            let share = 100.0 * ns / self.change_ns;
            match share.abs() {
                0.5.. if share.is_finite() => format!(" ({share:+.0} %)"),
                ..0.5 => " (+0 %)".to_owned(),
                _ => String::new(),
            }
        };
        let changed = self.contributions.iter().filter(|of| of.change_ns != 0.0);
        let mut lines: Vec<String> = changed
            .take(SHOWN)
            .map(|of| {
                let place = place(of.domain.as_deref(), of.path.as_deref());
                let share = of_change(of.change_ns);
                format!("{} {place}: {}{share}", of.cause, signed(of.change_ns))
            })
            .collect();
        if self.change_ns != 0.0 {
            let rest = self.contributions.iter().skip(SHOWN).map(|of| of.change_ns).sum::<f64>();
            if rest != 0.0 {
                lines.push(format!("all else: {}{}", signed(rest), of_change(rest)));
            }
            let share = 100.0 * (self.unexplained_ns / self.change_ns).abs();
            lines.push(format!("not explained: {} ({share:.1} %)", signed(self.unexplained_ns)));
        }
        lines
    }
}

impl fmt::Display for WallChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        self.lines().iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
