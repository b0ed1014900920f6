//! Counted work as tables, plot and page.

use std::fmt;

use cupti::counters::MemoryLevel;
use profiler_base::table::Layout;
use profiler_base::units::{NAME_WIDTH, number, per_second, shortened, si, time};

use super::counted::{CountedFlops, CountedPoint, CountedRoofline, TOLERANCE};
use super::plot::{self, Shape, Slope, Spot};
use super::point::ratio;
use super::{ComputeRoof, percent};
use crate::page::{Table, page};

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

impl CountedRoofline {
    fn table(&self) -> Table {
        let head = [
            "counted",
            "times",
            "mostly",
            "GPU time",
            "FLOP",
            "achieved",
            "DRAM",
            "L2",
            "L1",
            "FLOP/B DRAM",
            "FLOP/B L2",
            "of roof",
            "bound by",
        ];
        let row = |point: &CountedPoint| {
            let bytes = |level| or_none(point.bytes_at(level).map(|bytes| si(bytes, "B")));
            let intensity = |level| or_none(point.intensity_at(level).map(number));
            let roof = point.of_roof();
            [
                point.name.to_string(),
                point.instances.to_string(),
                or_none(point.main_type().map(|(dtype, pipe)| format!("{dtype} {pipe}"))),
                time(point.gpu_time),
                si(point.total_flops(), "FLOP"),
                or_none(point.achieved().map(|rate| per_second(rate, "FLOP"))),
                bytes(MemoryLevel::Dram),
                bytes(MemoryLevel::L2),
                bytes(MemoryLevel::L1),
                intensity(MemoryLevel::Dram),
                intensity(MemoryLevel::L2),
                or_none(roof.map(|(_, share)| percent(share))),
                or_none(roof.map(|(limit, _)| limit.to_string())),
            ]
        };
        Table::new("Counted", head, self.points.iter().map(row))
    }

    /// The points with declared work; `None` without any.
    fn table_beside(&self) -> Option<Table> {
        let head = [
            "each time",
            "type",
            "FLOP declared",
            "counted",
            "ratio",
            "bytes declared",
            "DRAM counted",
            "ratio",
        ];
        let row = |point: &CountedPoint| {
            let declared = point.declared?;
            let each = |sum: f64| sum / point.instances.max(1) as f64;
            let flops = each(point.total_flops());
            let bytes = point.bytes_at(MemoryLevel::Dram).map(each);
            let factor = |declared: Option<f64>, counted: Option<f64>| {
                let factor = declared.zip(counted).and_then(|(below, above)| ratio(above, below));
                or_none(factor.map(|factor| format!("{} x", number(factor))))
            };
            let amount = |amount: Option<f64>, unit| or_none(amount.map(|value| si(value, unit)));
            Some([
                point.name.to_string(),
                or_none(declared.dtype.map(|dtype| dtype.to_string())),
                amount(declared.flops, "FLOP"),
                si(flops, "FLOP"),
                factor(declared.flops, Some(flops)),
                amount(declared.bytes, "B"),
                amount(bytes, "B"),
                factor(declared.bytes, bytes),
            ])
        };
        let table = Table::new("Declared and counted", head, self.points.iter().filter_map(row));
        Some(table).filter(|table| !table.rows.is_empty())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.disagreements(TOLERANCE).iter().map(ToString::to_string).collect();
        notes.extend(self.peaks.notes());
        let Self { runs, dropped, without_time, .. } = self;
        let is_above = |point: &CountedPoint| point.of_roof().is_some_and(|(_, share)| share > 1.0);
        let above = "above the roof: the roof is low, or time and work are of different runs";
        let conditional = [
            (
                *runs > 1,
                format!("counted in {runs} runs: time, bytes and operations are each of one"),
            ),
            (self.points.iter().any(is_above), above.to_owned()),
            (*dropped > 0, format!("{dropped} ranges or kernels had no room and are in no point")),
            (
                *without_time > 0,
                format!(
                    "{without_time} ranges or kernels have no time and are in no point: count Set::Roofline"
                ),
            ),
        ];
        notes.extend(conditional.into_iter().filter_map(|(holds, note)| holds.then_some(note)));
        notes
    }

    /// The compute roofs of the types and units of the points.
    fn roofs_in_use(&self) -> Vec<ComputeRoof> {
        let is_used = |roof: &&ComputeRoof| {
            let mut counted = self.points.iter().flat_map(|point| &point.flops);
            counted.any(|flops| (flops.dtype, flops.pipe) == (roof.dtype, roof.pipe))
        };
        self.peaks.compute().filter(is_used).copied().collect()
    }

    /// The plot as SVG. Each point has a circle at its DRAM intensity, a square at L2, a triangle
    /// at L1, and a ring at the declared work. The roofs belong to units and levels.
    pub fn to_svg(&self) -> String {
        self.svg(true)
    }

    /// A page with the plot and the tables, without scripts or external content.
    pub fn to_html(&self) -> String {
        let is_drawn = |point: &&CountedPoint| {
            point.total_flops() > 0.0 && point.bytes.iter().any(|at| at.bytes > 0.0)
        };
        let left_out = self.points.len() - self.points.iter().filter(is_drawn).count();
        let mut tables = vec![self.table()];
        tables.extend(self.table_beside());
        tables.push(self.peaks.table());
        let content = plot::plot_content(&self.svg(false), left_out, &tables, &self.notes());
        page(&plot::page_title(&self.peaks), &content)
    }

    fn svg(&self, alone: bool) -> String {
        let is_counted = |level| self.points.iter().any(|point| point.at(level).is_some());
        let levels = MemoryLevel::ALL.into_iter().filter(|level| is_counted(*level));
        let slopes: Vec<_> = levels
            .map(|level| Slope { label: level.name(), roof: self.peaks.level(level) })
            .collect();
        let spots: Vec<_> = self.points.iter().flat_map(spots).collect();
        plot::svg(&self.peaks, &slopes, &self.roofs_in_use(), &spots, alone)
    }
}

/// A spot for each level, and one for the declared work.
fn spots(point: &CountedPoint) -> Vec<Spot> {
    let Some(achieved) = point.achieved().filter(|rate| *rate > 0.0) else { return Vec::new() };
    let mut spots: Vec<Spot> = Vec::new();
    let dtype = point.main_type().map(|(dtype, _)| dtype);
    for (level, shape) in [
        (MemoryLevel::Dram, Shape::Circle),
        (MemoryLevel::L2, Shape::Square),
        (MemoryLevel::L1, Shape::Triangle),
    ] {
        let intensity = point.intensity_at(level).filter(|intensity| *intensity > 0.0);
        let Some(intensity) = intensity else { continue };
        let is_first = spots.is_empty();
        spots.push(Spot {
            intensity,
            achieved,
            attainable: None,
            is_above: is_first && point.of_roof().is_some_and(|(_, share)| share > 1.0),
            dtype,
            shape,
            name: is_first.then(|| point.name.clone()),
            title: title(point, Some(level)),
            key: Some(level.name()),
            beside: spots.last().map(|spot| spot.intensity),
        });
    }
    let declared = point.declared.and_then(|work| {
        let each = point.gpu_time.as_secs_f64() / point.instances.max(1) as f64;
        Some((ratio(work.flops?, work.bytes?)?, ratio(work.flops?, each)?))
    });
    if let Some((intensity, achieved)) = declared.filter(|at| at.0 > 0.0 && at.1 > 0.0) {
        spots.push(Spot {
            intensity,
            achieved,
            attainable: None,
            is_above: false,
            dtype: None,
            shape: Shape::Ring,
            name: None,
            title: title(point, None),
            key: Some("declared"),
            beside: None,
        });
    }
    spots
}

/// The facts of a point, at a level or as declared, one per line.
fn title(point: &CountedPoint, level: Option<MemoryLevel>) -> String {
    let mut lines = vec![shortened(&point.name, 4 * NAME_WIDTH)];
    match level {
        Some(level) => {
            lines.push(format!("{} times, {}", point.instances, time(point.gpu_time)));
            for CountedFlops { dtype, pipe, flops, .. } in &point.flops {
                lines.push(format!("{} {dtype} {pipe}", si(*flops, "FLOP")));
            }
            if let (Some(bytes), Some(intensity)) =
                (point.bytes_at(level), point.intensity_at(level))
            {
                lines.push(format!("{level}: {}, {} FLOP/B", si(bytes, "B"), number(intensity)));
            }
            for (limit, share) in point.shares() {
                lines.push(format!("{} of the roof of {limit}", percent(share)));
            }
        }
        None => {
            let flops = point.declared.and_then(|work| work.flops).map(|flops| si(flops, "FLOP"));
            let bytes = point.declared.and_then(|work| work.bytes).map(|bytes| si(bytes, "B"));
            lines.push(format!("declared each time: {}, {}", or_none(flops), or_none(bytes)));
        }
    }
    lines.join("\n")
}

impl fmt::Display for CountedRoofline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::from_formatter(f);
        writeln!(f, "roofline, counted: {}", shortened(self.peaks.device(), NAME_WIDTH))?;
        writeln!(f, "{}\n", self.table().text(1, layout))?;
        if let Some(beside) = self.table_beside() {
            writeln!(f, "{}\n", beside.text(1, layout))?;
        }
        write!(f, "{}", self.peaks.table().text(2, layout))?;
        self.notes().iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}
