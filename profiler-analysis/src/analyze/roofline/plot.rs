//! A roofline as a logarithmic plot: SVG, and an HTML page without scripts or external content.

use std::fmt::Write as _;

use nvtx::Dtype;
use profiler_base::text::html;
use profiler_base::units::{NAME_WIDTH, number, per_second, shortened, si, time};

use super::{ComputeRoof, Peaks, Roof, Roofline, RooflinePoint, percent};
use crate::page::{Table, page, paragraph, plot_style};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 112.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 34.0;
/// The height of the plot between its axes.
const PLOT: f64 = 470.0;
/// The height of a row of the key.
const KEY: f64 = 20.0;
/// The maximum powers of ten on an axis; values beyond it are drawn at its end.
const DECADES: i32 = 14;
/// The maximum powers of ten on an axis with minor lines.
const MINOR: i32 = 8;
/// The maximum number of points in the legend; the title of every point has its name.
const NAMED: usize = 60;
/// The columns of the legend, and the longest name in one.
const COLUMNS: usize = 3;
const LEGEND_NAME: usize = 34;
/// The width of a character of 12 pixels: names are rarely wider.
const LETTER: f64 = 7.2;

type Position = (f64, f64);
/// The meaning of a point above its roof.
const ABOVE: &str =
    "bytes came from a cache, fewer operations were done than declared, or the roof is too low";

impl Roofline {
    /// The plot as SVG: operations per second over operations per byte, with the roofs.
    /// Every path that has both is a point, coloured by number type. Follows the
    /// reader's light or dark scheme; names are escaped.
    pub fn to_svg(&self) -> String {
        self.svg(true)
    }

    /// A page with the plot and tables of points and roofs, without scripts or external content.
    pub fn to_html(&self) -> String {
        page(&page_title(&self.peaks), &self.content())
    }

    /// The plot, tables and notes as a part of a page.
    pub(crate) fn content(&self) -> String {
        let left_out = self.points.iter().filter(|point| position(point).is_none()).count();
        let tables = [self.table(), self.peaks.table()];
        plot_content(&self.svg(false), left_out, &tables, &self.notes())
    }

    fn svg(&self, alone: bool) -> String {
        let roofs = self.roofs_in_use();
        let slopes = [Slope { label: "memory", roof: self.peaks.bandwidth() }];
        let spots: Vec<Spot> = self.points.iter().filter_map(spot).collect();
        svg(&self.peaks, &slopes, &roofs, &spots, alone)
    }
}

pub(super) fn page_title(peaks: &Peaks) -> String {
    format!("Roofline: {}", peaks.device())
}

/// A plot with its tables. `left_out` counts points that are not in the plot.
pub(super) fn plot_content(
    svg: &str,
    left_out: usize,
    tables: &[Table],
    notes: &[String],
) -> String {
    // On a phone the plot has a readable size and scrolls.
    let mut content = format!(
        "<div class=\"plot\" tabindex=\"0\" role=\"region\" aria-label=\"Plot of the roofline\">{svg}</div>\n"
    );
    if left_out != 0 {
        let only = "points without both operations and bytes are in the table alone.";
        content += &paragraph(&format!("{left_out} {only}"));
    }
    content.extend(tables.iter().map(|table| table.html(usize::MAX)));
    content.extend(notes.iter().map(|note| paragraph(note)));
    content
}

/// The plot. `alone` adds the style and title for a file of its own.
pub(super) fn svg(
    peaks: &Peaks,
    slopes: &[Slope],
    roofs: &[ComputeRoof],
    spots: &[Spot],
    alone: bool,
) -> String {
    let (key, rows) = key(spots);
    let axes = Axes::new(slopes, roofs, spots, TOP + rows as f64 * KEY);
    let is_above = spots.iter().any(|spot| spot.is_above);
    let mut legend = Legend { entries: Vec::new(), top: axes.bottom() + 66.0 };
    let mut drawn = String::new();
    axes.draw(&mut drawn);
    if is_above {
        let meaning = format!("Ringed points are above their roof: {ABOVE}.");
        drawn += &text(LEFT, axes.bottom() + 64.0, "rl-tick", "start", &meaning);
        legend.top += KEY;
    }
    draw_roofs(&mut drawn, &axes, slopes, roofs, &mut legend);
    draw_spots(&mut drawn, &axes, spots, &mut legend);
    let names = spots.iter().filter(|spot| spot.name.is_some()).count();
    if names > NAMED {
        let more = format!("{} more names are in the titles of their points", names - NAMED);
        drawn += &text(RIGHT, 20.0, "rl-tick", "end", &more);
    }
    let height = legend.top + legend.rows() as f64 * KEY;
    let device = html(peaks.device());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"rl-plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Roofline: {device}\">\n"
    );
    if alone {
        let _ = writeln!(svg, "<style>{}</style>", plot_style());
        let _ = writeln!(svg, "<rect class=\"rl-page\" width=\"{WIDTH}\" height=\"{height}\"/>");
    }
    svg += &text(LEFT, 20.0, "rl-name", "start", &page_title(peaks));
    svg += &key;
    svg += &drawn;
    legend.draw(&mut svg);
    svg += "</svg>\n";
    svg
}

/// The names of roofs and points below the plot, with the letter or number of each.
struct Legend {
    entries: Vec<(String, String)>,
    top: f64,
}

impl Legend {
    /// Adds a roof, and returns its letter.
    fn roof(&mut self, name: String) -> String {
        // More than 26 roofs share the last letter: a device has a dozen.
        let letter = char::from(b'A' + self.entries.len().min(25) as u8).to_string();
        self.entries.push((letter.clone(), name));
        letter
    }

    fn rows(&self) -> usize {
        self.entries.len().div_ceil(COLUMNS)
    }

    /// Draws the entries column by column.
    fn draw(&self, svg: &mut String) {
        let rows = self.rows().max(1);
        for (at, (mark, name)) in self.entries.iter().enumerate() {
            let x = LEFT + (at / rows) as f64 * (RIGHT - LEFT) / COLUMNS as f64;
            let y = self.top + (at % rows) as f64 * KEY;
            svg.push_str(&text(x + 16.0, y, "rl-tick", "end", mark));
            svg.push_str(&text(x + 24.0, y, "rl-name", "start", &shortened(name, LEGEND_NAME)));
        }
    }
}

/// A rising roof: bytes per second.
#[derive(Debug)]
pub(super) struct Slope {
    pub(super) label: &'static str,
    pub(super) roof: Roof,
}

/// The shape of a spot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Triangle,
    /// Declared work beside counted work.
    Ring,
}

/// A point of the plot.
#[derive(Debug)]
pub(super) struct Spot {
    /// Operations per byte.
    pub(super) intensity: f64,
    /// Operations per second.
    pub(super) achieved: f64,
    /// The end of the dashed line.
    pub(super) attainable: Option<f64>,
    /// True if it is above the lowest of its roofs.
    pub(super) is_above: bool,
    pub(super) dtype: Option<Dtype>,
    pub(super) shape: Shape,
    pub(super) name: Option<String>,
    pub(super) title: String,
    /// The meaning of the shape, if several shapes are used.
    pub(super) key: Option<&'static str>,
    /// The intensity of another spot of the same work, connected by a line.
    pub(super) beside: Option<f64>,
}

fn spot(point: &RooflinePoint) -> Option<Spot> {
    let (intensity, achieved) = position(point)?;
    Some(Spot {
        intensity,
        achieved,
        attainable: point.attainable(),
        is_above: point.of_roof().is_some_and(|share| share > 1.0),
        dtype: point.dtype,
        shape: Shape::Circle,
        name: Some(point.label()),
        title: title(point),
        key: None,
        beside: None,
    })
}

/// The position of a point; `None` if a coordinate has no logarithm.
fn position(point: &RooflinePoint) -> Option<(f64, f64)> {
    let is_positive = |value: &f64| *value > 0.0;
    Some((point.intensity().filter(is_positive)?, point.achieved().filter(is_positive)?))
}

/// The powers of ten at the ends of both axes, and where the plot begins.
#[derive(Debug)]
struct Axes {
    x: (i32, i32),
    y: (i32, i32),
    top: f64,
}

impl Axes {
    fn new(slopes: &[Slope], roofs: &[ComputeRoof], spots: &[Spot], top: f64) -> Self {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for spot in spots {
            x.push(spot.intensity);
            y.push(spot.achieved);
        }
        let known = || slopes.iter().filter_map(|slope| slope.roof.peak);
        for roof in roofs {
            y.extend(roof.roof.peak);
            x.extend(known().filter_map(|slope| Some(roof.roof.peak? / slope)));
        }
        // The memory roof at the left edge.
        let least = x.iter().copied().fold(f64::INFINITY, f64::min);
        y.extend(known().map(|slope| slope * if least.is_finite() { least } else { 1.0 }));
        Self { x: decades(&x, (-2, 3)), y: decades(&y, (9, 13)), top }
    }

    fn bottom(&self) -> f64 {
        self.top + PLOT
    }

    fn x(&self, value: f64) -> f64 {
        scale(value, self.x, LEFT, RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        scale(value, self.y, self.bottom(), self.top)
    }

    fn position(&self, spot: &Spot) -> Position {
        (self.x(spot.intensity), self.y(spot.achieved))
    }

    fn draw(&self, svg: &mut String) {
        let (top, bottom) = (self.top, self.bottom());
        for value in minor(self.x) {
            svg.push_str(&line("rl-minor", (self.x(value), top), (self.x(value), bottom)));
        }
        for value in minor(self.y) {
            svg.push_str(&line("rl-minor", (LEFT, self.y(value)), (RIGHT, self.y(value))));
        }
        for power in self.x.0..=self.x.1 {
            let x = self.x(10f64.powi(power));
            svg.push_str(&line("rl-grid", (x, top), (x, bottom)));
            let label = match power {
                -4..=-1 => format!("{:.*}", power.unsigned_abs() as usize, 10f64.powi(power)),
                0..=4 => number(10f64.powi(power)),
                _ => format!("1e{power}"),
            };
            svg.push_str(&text(x, bottom + 18.0, "rl-tick", "middle", &label));
        }
        for power in self.y.0..=self.y.1 {
            let y = self.y(10f64.powi(power));
            svg.push_str(&line("rl-grid", (LEFT, y), (RIGHT, y)));
            let label = per_second(10f64.powi(power), "FLOP");
            svg.push_str(&text(LEFT - 8.0, y + 4.0, "rl-tick", "end", &label));
        }
        let _ = writeln!(
            svg,
            "<path class=\"rl-axis\" d=\"M{LEFT:.1} {top:.1}V{bottom:.1}H{RIGHT:.1}\"/>"
        );
        let (x, y) = ((LEFT + RIGHT) / 2.0, (top + bottom) / 2.0);
        let title = "operational intensity (FLOP/B)";
        svg.push_str(&text(x, bottom + 42.0, "rl-title", "middle", title));
        let _ = writeln!(
            svg,
            "<text class=\"rl-title\" transform=\"translate(20 {y:.1}) rotate(-90)\" text-anchor=\"middle\">performance (FLOP/s)</text>"
        );
    }
}

/// The values between powers of ten; none on an axis with many.
fn minor((least, most): (i32, i32)) -> impl Iterator<Item = f64> {
    let powers = if most - least > MINOR { 0..0 } else { least..most };
    powers.flat_map(|power| (2..=9).map(move |factor| f64::from(factor) * 10f64.powi(power)))
}

/// The powers of ten around all values, with a margin.
fn decades(values: &[f64], none: (i32, i32)) -> (i32, i32) {
    let logarithms = values.iter().map(|value| value.log10()).filter(|log| log.is_finite());
    let bounds = logarithms.fold(None, |bounds: Option<(f64, f64)>, log| {
        Some(bounds.map_or((log, log), |(least, most)| (least.min(log), most.max(log))))
    });
    let Some((least, most)) = bounds else { return none };
    // CAST: logarithms of numbers lie within -324 and 309.
    let (least, most) = ((least - 0.3).floor() as i32, (most + 0.3).ceil() as i32);
    (least.max(most - DECADES), most.max(least + 1))
}

/// The coordinate of a value on an axis, clamped to its ends.
fn scale(value: f64, (least, most): (i32, i32), from: f64, to: f64) -> f64 {
    let share = (value.log10() - f64::from(least)) / f64::from(most - least);
    from + share.clamp(0.0, 1.0) * (to - from)
}

/// Draws the roofs with their letters: at the start of a rising roof, at the end of a level one.
fn draw_roofs(
    svg: &mut String,
    axes: &Axes,
    slopes: &[Slope],
    roofs: &[ComputeRoof],
    legend: &mut Legend,
) {
    let (least, most) = (10f64.powi(axes.x.0), 10f64.powi(axes.x.1));
    let top = 10f64.powi(axes.y.1);
    // Up to the highest roof, or to the top without a roof.
    let highest = roofs.iter().filter_map(|roof| roof.roof.peak).reduce(f64::max).unwrap_or(top);
    for slope in slopes {
        let Some(bytes) = slope.roof.peak else { continue };
        let floor = 10f64.powi(axes.y.0);
        let from = least.max(floor / bytes);
        let until = most.min(highest / bytes);
        if until > from {
            let ends = [(from, from * bytes), (until, until * bytes)];
            let [start, end] = ends.map(|(x, y)| (axes.x(x), axes.y(y)));
            svg.push_str(&line("rl-roof", start, end));
            let letter = legend.roof(format!("{} {}", slope.label, per_second(bytes, "B")));
            svg.push_str(&text(start.0 + 8.0, start.1 - 5.0, "rl-mark", "start", &letter));
        }
    }
    let steepest = slopes.iter().filter_map(|slope| slope.roof.peak).reduce(f64::max);
    for roof in roofs {
        let Some(flops) = roof.roof.peak else { continue };
        let from = steepest.map_or(least, |slope| (flops / slope).clamp(least, most));
        let y = axes.y(flops);
        svg.push_str(&line("rl-roof", (axes.x(from), y), (RIGHT, y)));
        let rate = per_second(flops, "FLOP");
        let letter = legend.roof(format!("{} {} {rate}", roof.dtype, roof.pipe));
        svg.push_str(&text(RIGHT - 4.0, y - 5.0, "rl-mark", "end", &letter));
    }
}

/// Draws the points, named ones with their number.
fn draw_spots(svg: &mut String, axes: &Axes, spots: &[Spot], legend: &mut Legend) {
    let mut number = 0;
    for spot in spots {
        let (x, y) = axes.position(spot);
        svg.push_str("<g>\n");
        let above = spot.is_above.then(|| html(&format!("above its roof: {ABOVE}")));
        let lines: Vec<String> = spot.title.split('\n').map(html).chain(above).collect();
        let _ = writeln!(svg, "<title>{}</title>", lines.join("\n"));
        if let Some(attainable) = spot.attainable {
            svg.push_str(&line("rl-gap", (x, y), (x, axes.y(attainable))));
        }
        if let Some(beside) = spot.beside {
            svg.push_str(&line("rl-join", (x, y), (axes.x(beside), y)));
        }
        if spot.is_above {
            svg.push_str(&above_mark(x, y));
        }
        svg.push_str(&spot.shape.drawn(x, y, spot.dtype));
        if let Some(name) = spot.name.as_ref().filter(|_| number < NAMED) {
            number += 1;
            legend.entries.push((number.to_string(), name.clone()));
            svg.push_str(&text(x + 9.0, y + 4.0, "rl-mark", "start", &number.to_string()));
        }
        svg.push_str("</g>\n");
    }
}

/// The ring of a point above its roof.
fn above_mark(x: f64, y: f64) -> String {
    format!("<circle class=\"rl-above\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/>\n")
}

impl Shape {
    fn drawn(self, x: f64, y: f64, dtype: Option<Dtype>) -> String {
        let class = format!("rl-point rl-{}", dtype.map_or("none", Dtype::name));
        let mut shape = String::new();
        let _ = match self {
            Self::Circle => {
                writeln!(shape, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5.5\"/>")
            }
            Self::Square => writeln!(
                shape,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>",
                x - 5.0,
                y - 5.0
            ),
            Self::Triangle => {
                writeln!(shape, "<path class=\"{class}\" d=\"M{x:.1} {:.1}l6 11h-12z\"/>", y - 7.0)
            }
            Self::Ring => {
                writeln!(shape, "<circle class=\"rl-ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7.5\"/>")
            }
        };
        shape
    }
}

/// Returns the meaning of shapes and colours, and the number of rows. Rows are: the shapes if there
/// are several, the colours of types, and the ring of points above their roof.
fn key(spots: &[Spot]) -> (String, usize) {
    type Entry<'a> = (Option<Shape>, Option<Dtype>, &'a str);
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut add = |entry: Entry<'static>| {
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    };
    for spot in spots {
        if let Some(key) = spot.key {
            add((Some(spot.shape), None, key));
        }
    }
    let mut dtypes: Vec<Dtype> = spots.iter().filter_map(|spot| spot.dtype).collect();
    dtypes.sort_unstable_by_key(|dtype| dtype.name());
    dtypes.dedup();
    if dtypes.len() > 1 {
        dtypes.iter().for_each(|dtype| add((Some(Shape::Circle), Some(*dtype), dtype.name())));
    }
    if spots.iter().any(|spot| spot.is_above) {
        add((None, None, "above its roof"));
    }
    let wide = |text: &str| 34.0 + text.chars().count() as f64 * LETTER;
    let (mut svg, mut x, mut row) = (String::new(), LEFT + 6.0, 0);
    for (shape, dtype, name) in &entries {
        if x + wide(name) > RIGHT {
            (x, row) = (LEFT + 6.0, row + 1);
        }
        let y = TOP + row as f64 * KEY + 2.0;
        svg.push_str(&match shape {
            Some(shape) => shape.drawn(x, y, *dtype),
            None => above_mark(x, y),
        });
        svg.push_str(&text(x + 14.0, y + 4.0, "rl-tick", "start", name));
        x += wide(name);
    }
    (svg, if entries.is_empty() { 0 } else { row + 1 })
}

/// The facts of a point, one per line.
fn title(point: &RooflinePoint) -> String {
    let mut title = shortened(&point.label(), 4 * NAME_WIDTH);
    if let Some(dtype) = point.dtype {
        let _ = write!(title, "\n{dtype}");
    }
    if let Some(pipe) = point.pipe {
        let _ = write!(title, " {pipe}");
    }
    let _ = write!(
        title,
        "\n{} times, {} kernels, {}",
        point.instances,
        point.kernels,
        time(point.gpu_time)
    );
    if let (Some(flops), Some(bytes)) = (point.flops, point.bytes) {
        let _ = write!(title, "\n{}, {}", si(flops, "FLOP"), si(bytes, "B"));
    }
    if let Some(intensity) = point.intensity() {
        let _ = write!(title, ", {} FLOP/B", number(intensity));
    }
    let (unit, achieved, attainable) = point.rate();
    for (what, rate) in [("achieved", achieved), ("attainable", attainable)] {
        if let Some(rate) = rate {
            let _ = write!(title, "\n{what} {}", per_second(rate, unit));
        }
    }
    if let Some(share) = point.of_roof() {
        let _ = write!(title, "\n{} of the roof", percent(share));
    }
    if let Some(distance) = point.distance() {
        let _ = write!(title, ", {} x from it", number(distance));
    }
    if let Some(bound) = point.bound() {
        let _ = write!(title, ", bound by {bound}");
    }
    title
}

fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

fn text(x: f64, y: f64, class: &str, anchor: &str, text: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        html(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_within_the_maximum_decades() {
        assert_eq!(decades(&[1.0], (0, 1)), (-1, 1));
        assert_eq!(decades(&[0.02, 300.0], (0, 1)), (-2, 3));
        assert_eq!(decades(&[], (-2, 3)), (-2, 3));
        let (least, most) = decades(&[1e-300, 1e300], (0, 1));
        assert_eq!(most - least, DECADES);
        let axes = Axes { x: (-2, 2), y: (9, 13), top: 50.0 };
        assert_eq!((axes.x(0.01), axes.x(100.0)), (LEFT, RIGHT));
        assert_eq!(axes.x(1.0), (LEFT + RIGHT) / 2.0);
        assert_eq!((axes.y(1e9), axes.y(1e13), axes.y(1e99)), (50.0 + PLOT, 50.0, 50.0));
    }
}
