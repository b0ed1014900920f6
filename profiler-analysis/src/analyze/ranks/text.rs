//! The report on ranks as text.

use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::table::Table;
use profiler_base::text::{printable, shortened};
use profiler_base::units::{NAME_WIDTH, bytes, percent, percent_of_time, time};

use super::{CollectiveGroup, RankWindow, Ranks, Straggler};
use profiler_core::tables::HostClock;

/// Rows of each table; JSON has all.
const SHOWN: usize = 20;

impl Ranks {
    /// The sentence on a straggler.
    pub fn describe(&self, straggler: &Straggler) -> String {
        let name = self.ranks.get(straggler.rank).map_or("a rank", |rank| &rank.name);
        format!(
            "{} is late by {} ({} of the time): {}",
            printable(name),
            time(straggler.late),
            percent(straggler.share),
            straggler.cause
        )
    }

    fn table_of_windows(&self, layout: Layout) -> String {
        let header = ["range", "number", "from", "to", "collectives", "straggler"];
        table(header, self.late_windows(), layout, |window| {
            let first = window.stragglers.first().map(|straggler| self.describe(straggler));
            [
                shortened(&window.path, NAME_WIDTH),
                window.number.to_string(),
                time(window.start),
                time(window.end),
                window.collectives.to_string(),
                first.unwrap_or_default(),
            ]
        })
    }

    fn late_windows(&self) -> impl Iterator<Item = &RankWindow> {
        self.windows.iter().filter(|window| !window.stragglers.is_empty())
    }

    fn table_of_ranks(&self, layout: Layout) -> String {
        let header = [
            "rank",
            "GPU",
            "busy",
            "communication",
            "idle",
            "waited",
            "late",
            "collectives",
            "last",
        ];
        table(header, self.ranks.iter(), layout, |rank| {
            [
                shortened(&rank.name, NAME_WIDTH),
                rank.device.to_string(),
                percent_of_time(rank.busy, rank.clock),
                percent_of_time(rank.communication, rank.clock),
                percent_of_time(rank.idle(), rank.clock),
                time(rank.waited),
                time(rank.late),
                rank.collectives.to_string(),
                rank.last.to_string(),
            ]
        })
    }

    fn table_of_collectives(&self, layout: Layout) -> String {
        let header = [
            "collective",
            "ranks",
            "bytes",
            "count",
            "skew",
            "max skew",
            "transfer",
            "waits",
            "alg GB/s",
            "bus GB/s",
            "of link",
        ];
        table(header, self.collectives.iter(), layout, |group| {
            let CollectiveGroup { function, communicator, .. } = group;
            let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
            [
                format!("{function} of {communicator:x}"),
                group.ranks.to_string(),
                bytes(group.bytes),
                group.count.to_string(),
                time(group.skew),
                time(group.max_skew),
                time(group.transfer),
                percent(group.wait_share),
                rate(group.algorithm_bandwidth),
                rate(group.bus_bandwidth),
                group.link_share.map_or("-".to_owned(), percent),
            ]
        })
    }

    fn table_of_ranges(&self, layout: Layout) -> String {
        let header = ["range", "kernels", "communication", "exposed", "hidden"];
        table(header, self.ranges.iter(), layout, |range| {
            let path = range.path.as_deref().unwrap_or("(outside any range)");
            [
                shortened(path, NAME_WIDTH),
                range.kernels.to_string(),
                time(range.time),
                time(range.exposed),
                time(range.hidden()),
            ]
        })
    }
}

fn table<R, const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = R>,
    layout: Layout,
    cells: impl Fn(R) -> [String; N],
) -> String {
    let mut table = Table::new(header, 1);
    rows.take(SHOWN).for_each(|row| table.add_row(cells(row)));
    table.render(layout)
}

/// The sentence on the clock of a host.
fn described(clock: &HostClock) -> String {
    if clock.collectives == 0 {
        return "its clock is aligned by the calendar time of its captures, with an unknown error"
            .to_owned();
    }
    let ns = Duration::from_nanos;
    let sign = if clock.offset_ns < 0 { "ahead of" } else { "behind" };
    let mut text = format!(
        "its clock is {} {sign} that of host 0 and drifts by {:.2} ppm: 95 % of the ends of {} collectives differ by at most {}, \
         and the error is at most {}",
        time(ns(clock.offset_ns.unsigned_abs())),
        clock.drift_ppm,
        clock.collectives,
        time(ns(clock.spread_ns)),
        time(ns(clock.error_bound_ns))
    );
    if clock.contradictions != 0 {
        let more = format!(
            "; {} end before a rank has arrived: if that are many, they are matched wrongly",
            clock.contradictions
        );
        text.push_str(&more);
    }
    text
}

/// Writes the number of rows that a table leaves out.
fn rest(f: &mut fmt::Formatter<'_>, rows: usize) -> fmt::Result {
    match rows.checked_sub(SHOWN).filter(|more| *more != 0) {
        Some(more) => write!(f, "\nand {more} more"),
        None => Ok(()),
    }
}

impl DisplayOptions for Ranks {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks, {} collectives matched", self.ranks.len(), self.matched)?;
        if self.unmatched != 0 {
            write!(f, ", {} events without a match", self.unmatched)?;
        }
        for straggler in self.stragglers.iter().take(SHOWN) {
            write!(f, "\n{}", self.describe(straggler))?;
        }
        if self.matched != 0 && self.stragglers.is_empty() {
            f.write_str("\nno rank is later than the others time and again")?;
        }
        if let Some(bounds) = self.speed_ups {
            write!(
                f,
                "\nspeed-up: at most {:.2}x without exposed communication, about {:.2}x with evenly divided work, about {:.2}x \
                 if no rank came after all others",
                bounds.communication, bounds.balance, bounds.stragglers
            )?;
        }
        if let Some(imbalance) = self.imbalance().filter(|_| self.ranks.len() > 1) {
            write!(f, "\nbusy time: the longest of a rank is {imbalance:.2} times the mean")?;
        }
        for (host, clock) in self.hosts.iter().enumerate().skip(1).take(SHOWN) {
            write!(f, "\nhost {host}: {}", described(clock))?;
        }
        for missing in self.missing.iter().take(SHOWN) {
            let ranks: Vec<String> = missing.ranks.iter().map(u32::to_string).collect();
            write!(
                f,
                "\nMISSING: {} of {} ranks of communicator {:x} have no collective here ({}): waits for them are \
                 unknown",
                missing.count,
                missing.of,
                missing.communicator,
                ranks.join(", ")
            )?;
        }
        for process in self.without_plugin.iter().take(SHOWN) {
            write!(
                f,
                "\n{}: NCCL loaded no plugin (it needs NCCL 2.26 and NCCL_PROFILER_PLUGIN, which gpuprof run sets)",
                printable(process)
            )?;
        }
        if !self.unused_devices.is_empty() {
            let devices: Vec<String> = self.unused_devices.iter().map(u32::to_string).collect();
            write!(f, "\nnothing ran on GPU {}", devices.join(", "))?;
        }
        if !self.windows.is_empty() {
            let late = self.late_windows().count();
            let all = self.windows.len();
            write!(
                f,
                "\nin {late} of {all} instances of the range a rank is later than the others"
            )?;
            if late != 0 {
                write!(f, "\n\n{}", self.table_of_windows(layout))?;
                rest(f, late)?;
            }
        }
        if !self.ranks.is_empty() {
            write!(f, "\n\n{}", self.table_of_ranks(layout))?;
            rest(f, self.ranks.len())?;
            write!(f, "\n\n{}", self.table_of_collectives(layout))?;
            rest(f, self.collectives.len())?;
        }
        if !self.ranges.is_empty() {
            write!(f, "\n\n{}", self.table_of_ranges(layout))?;
            rest(f, self.ranges.len())?;
        }
        Ok(())
    }
}

display_by_default_layout!(Ranks);
