//! A roofline as a logarithmic plot: SVG, and an HTML page without scripts or external content.

use std::fmt::Write as _;

use nvtx::Dtype;

use super::{ComputeRoof, Peaks, Roof, Roofline, RooflinePoint, percent};
use crate::base::page::{STYLE, Table, page, paragraph};
use crate::base::text::html;
use crate::base::units::{NAME_WIDTH, number, per_second, shortened, si, time};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = HEIGHT - 56.0;
/// Maximum powers of ten on an axis; values beyond are drawn at its end.
const DECADES: i32 = 14;
/// Maximum points with a visible name; all have it in the title.
const NAMED: usize = 40;
/// Approximate width of a character.
const LETTER: f64 = 7.2;
const LINE: f64 = 14.0;

impl Roofline {
    /// The plot as SVG: operations a second over operations a byte, the roofs (measured ones
    /// dashed), and a point for every path that has both, coloured by number type. Follows the
    /// reader's light or dark scheme; names are escaped.
    pub fn to_svg(&self) -> String {
        self.svg(true)
    }

    /// A page with the plot and tables of points and roofs, without scripts or external content.
    pub fn to_html(&self) -> String {
        let left_out = self.points.iter().filter(|point| position(point).is_none()).count();
        let tables = [self.table(usize::MAX), self.peaks.table()];
        plot_page(&self.peaks, &self.svg(false), left_out, &tables, &self.notes())
    }

    fn svg(&self, alone: bool) -> String {
        let roofs = self.roofs_in_use();
        let slopes = [Slope { label: "memory", roof: self.peaks.bandwidth() }];
        let spots: Vec<Spot> = self.points.iter().filter_map(spot).collect();
        svg(&self.peaks, &slopes, &roofs, &spots, alone)
    }
}

/// A page with a plot and tables. `left_out` counts points that are not in the plot.
pub(super) fn plot_page(
    peaks: &Peaks,
    svg: &str,
    left_out: usize,
    tables: &[Table],
    notes: &[String],
) -> String {
    let mut content = svg.to_owned();
    if left_out != 0 {
        let only = "points without both operations and bytes are in the table alone.";
        content += &paragraph(&format!("{left_out} {only}"));
    }
    content.extend(tables.iter().map(|table| table.html(usize::MAX)));
    content.extend(notes.iter().map(|note| paragraph(note)));
    page(&format!("Roofline: {}", peaks.device()), &content)
}

/// The plot. `alone` adds the style and title that a page has by itself.
pub(super) fn svg(
    peaks: &Peaks,
    slopes: &[Slope],
    roofs: &[ComputeRoof],
    spots: &[Spot],
    alone: bool,
) -> String {
    let axes = Axes::of(slopes, roofs, spots);
    let device = html(peaks.device());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Roofline: {device}\">\n"
    );
    if alone {
        let _ = writeln!(svg, "<style>{STYLE}</style>");
        let _ = writeln!(svg, "<rect class=\"rl-page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>");
        svg += &text(LEFT, 20.0, "rl-name", "start", &format!("Roofline: {}", peaks.device()));
    }
    axes.draw(&mut svg);
    let taken = draw_roofs(&mut svg, &axes, slopes, roofs);
    draw_spots(&mut svg, &axes, spots, taken);
    draw_key(&mut svg, spots);
    svg += "</svg>\n";
    svg
}

/// A rising roof: bytes a second.
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
    /// For declared work beside counted work.
    Ring,
}

/// A point of the plot.
#[derive(Debug)]
pub(super) struct Spot {
    /// Operations a byte.
    pub(super) intensity: f64,
    /// Operations a second.
    pub(super) achieved: f64,
    /// The end of the dashed line.
    pub(super) attainable: Option<f64>,
    pub(super) dtype: Option<Dtype>,
    pub(super) shape: Shape,
    pub(super) name: Option<String>,
    pub(super) title: String,
    /// The meaning of the shape, if there are several.
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

/// The powers of ten at the ends of both axes.
#[derive(Debug)]
struct Axes {
    x: (i32, i32),
    y: (i32, i32),
}

impl Axes {
    fn of(slopes: &[Slope], roofs: &[ComputeRoof], spots: &[Spot]) -> Self {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for spot in spots {
            x.push(spot.intensity);
            y.push(spot.achieved);
        }
        let known = || slopes.iter().filter_map(|slope| slope.roof.value());
        for roof in roofs {
            y.extend(roof.roof.value());
            x.extend(known().filter_map(|slope| Some(roof.roof.value()? / slope)));
        }
        // The memory roof at the left edge.
        let least = x.iter().copied().fold(f64::INFINITY, f64::min);
        y.extend(known().map(|slope| slope * if least.is_finite() { least } else { 1.0 }));
        Self { x: decades(&x, (-2, 3)), y: decades(&y, (9, 13)) }
    }

    fn x(&self, value: f64) -> f64 {
        scale(value, self.x, LEFT, RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        scale(value, self.y, BOTTOM, TOP)
    }

    fn draw(&self, svg: &mut String) {
        for power in self.x.0..=self.x.1 {
            let x = self.x(10f64.powi(power));
            svg.push_str(&line("rl-grid", (x, TOP), (x, BOTTOM)));
            let label = match power {
                -4..=-1 => format!("{:.*}", power.unsigned_abs() as usize, 10f64.powi(power)),
                0..=4 => number(10f64.powi(power)),
                _ => format!("1e{power}"),
            };
            svg.push_str(&text(x, BOTTOM + 18.0, "rl-tick", "middle", &label));
        }
        for power in self.y.0..=self.y.1 {
            let y = self.y(10f64.powi(power));
            svg.push_str(&line("rl-grid", (LEFT, y), (RIGHT, y)));
            let label = per_second(10f64.powi(power), "FLOP");
            svg.push_str(&text(LEFT - 8.0, y + 4.0, "rl-tick", "end", &label));
        }
        let _ = writeln!(
            svg,
            "<path class=\"rl-axis\" d=\"M{LEFT:.1} {TOP:.1}V{BOTTOM:.1}H{RIGHT:.1}\"/>"
        );
        let (x, y) = ((LEFT + RIGHT) / 2.0, HEIGHT - 14.0);
        svg.push_str(&text(x, y, "rl-tick", "middle", "operational intensity in FLOP/B"));
    }
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

/// Left, right and base line of a text.
type TextBox = (f64, f64, f64);

/// Draws the roofs, and returns the boxes that names must avoid.
fn draw_roofs(
    svg: &mut String,
    axes: &Axes,
    slopes: &[Slope],
    roofs: &[ComputeRoof],
) -> Vec<TextBox> {
    let mut taken = Vec::new();
    let (least, most) = (10f64.powi(axes.x.0), 10f64.powi(axes.x.1));
    let top = 10f64.powi(axes.y.1);
    for (class, label_class, measured) in
        [("rl-roof", "rl-name", false), ("rl-measured", "rl-said", true)]
    {
        let rate = |roof: &Roof| if measured { roof.measured } else { roof.peak };
        let bytes = |slope: &Slope| rate(&slope.roof);
        let flops = |roof: &ComputeRoof| rate(&roof.roof);
        let suffix = if measured { ", measured" } else { "" };
        let greatest = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        for slope in slopes {
            let Some(rate) = bytes(slope) else { continue };
            // Up to the highest roof, or to the top without any.
            let highest = greatest(&mut roofs.iter().filter_map(flops));
            let floor = 10f64.powi(axes.y.0);
            let from = least.max(floor / rate);
            let until = most.min(highest.unwrap_or(top) / rate);
            if until > from {
                let ends = [(from, from * rate), (until, until * rate)];
                let [start, end] = ends.map(|(x, y)| (axes.x(x), axes.y(y)));
                svg.push_str(&line(class, start, end));
                let angle = (end.1 - start.1).atan2(end.0 - start.0).to_degrees();
                let label = format!("{} {}{suffix}", slope.label, per_second(rate, "B"));
                // Above the line; measured ones below it.
                let off = if measured { 15.0 } else { -6.0 };
                let _ = writeln!(
                    svg,
                    "<text class=\"{label_class}\" transform=\"translate({:.1} {:.1}) rotate({angle:.1})\" x=\"12\" y=\"{off}\">{}</text>",
                    start.0,
                    start.1,
                    html(&label)
                );
            }
        }
        let steepest = greatest(&mut slopes.iter().filter_map(bytes));
        for roof in roofs {
            let Some(height) = flops(roof) else { continue };
            let from = steepest.map_or(least, |slope| (height / slope).clamp(least, most));
            let y = axes.y(height);
            svg.push_str(&line(class, (axes.x(from), y), (RIGHT, y)));
            let label =
                format!("{} {} {}{suffix}", roof.dtype, roof.pipe, per_second(height, "FLOP"));
            let y = if measured { y + 15.0 } else { y - 6.0 };
            svg.push_str(&text(RIGHT - 4.0, y, label_class, "end", &label));
            taken.push((RIGHT - label.chars().count() as f64 * LETTER, RIGHT, y));
            taken.push((axes.x(from), RIGHT, axes.y(height) + LETTER / 2.0));
        }
    }
    taken
}

fn draw_spots(svg: &mut String, axes: &Axes, spots: &[Spot], mut taken: Vec<TextBox>) {
    let mut named = 0;
    for spot in spots {
        let (x, y) = (axes.x(spot.intensity), axes.y(spot.achieved));
        svg.push_str("<g>\n");
        let lines: Vec<String> = spot.title.split('\n').map(html).collect();
        let _ = writeln!(svg, "<title>{}</title>", lines.join("\n"));
        if let Some(attainable) = spot.attainable {
            svg.push_str(&line("rl-gap", (x, y), (x, axes.y(attainable))));
        }
        if let Some(beside) = spot.beside {
            svg.push_str(&line("rl-join", (x, y), (axes.x(beside), y)));
        }
        svg.push_str(&spot.shape.drawn(x, y, spot.dtype));
        if let Some(label) = spot.name.as_ref().filter(|_| named < NAMED) {
            named += 1;
            let name = shortened(label, 28);
            let wide = name.chars().count() as f64 * LETTER;
            let (anchor, at) =
                if x + 10.0 + wide > RIGHT { ("end", x - 10.0) } else { ("start", x + 10.0) };
            let left = if anchor == "end" { at - wide } else { at };
            let is_free = |height: f64| {
                let meets = |&(from, until, other): &TextBox| {
                    left < until && from < left + wide && (height - other).abs() < LINE
                };
                !taken.iter().any(meets)
            };
            // The nearest free line, alternately below and above.
            let lines = (0..NAMED).map(|n| {
                y + 4.0 + LINE * n.div_ceil(2) as f64 * if n % 2 == 0 { 1.0 } else { -1.0 }
            });
            let height = lines
                .filter(|height| (TOP..BOTTOM).contains(height))
                .find(|height| is_free(*height))
                .unwrap_or(y + 4.0);
            taken.push((left, left + wide, height));
            svg.push_str(&text(at, height, "rl-name", anchor, &name));
        }
        svg.push_str("</g>\n");
    }
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

/// Draws the meaning of the shapes, if there are several.
fn draw_key(svg: &mut String, spots: &[Spot]) {
    let mut keys: Vec<(Shape, &str)> = Vec::new();
    for (shape, key) in spots.iter().filter_map(|spot| Some((spot.shape, spot.key?))) {
        if !keys.contains(&(shape, key)) {
            keys.push((shape, key));
        }
    }
    let wide = |key: &str| 34.0 + key.chars().count() as f64 * LETTER;
    // Right-aligned; the title is at the left.
    let mut x = RIGHT - keys.iter().map(|(_, key)| wide(key)).sum::<f64>();
    for (shape, key) in keys {
        svg.push_str(&shape.drawn(x, TOP - 24.0, None));
        svg.push_str(&text(x + 12.0, TOP - 20.0, "rl-tick", "start", key));
        x += wide(key);
    }
}

/// The facts of a point, one a line.
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
        let axes = Axes { x: (-2, 2), y: (9, 13) };
        assert_eq!((axes.x(0.01), axes.x(100.0)), (LEFT, RIGHT));
        assert_eq!(axes.x(1.0), (LEFT + RIGHT) / 2.0);
        assert_eq!((axes.y(1e9), axes.y(1e13), axes.y(1e99)), (BOTTOM, TOP, TOP));
    }
}
