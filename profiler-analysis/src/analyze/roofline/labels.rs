//! Places for the labels of a plot: none lies on another label or on a point.

/// Approximate width of a character of 12 pixels: names are rarely wider.
pub(super) const LETTER: f64 = 7.2;
/// The height of a line of text, and its part above the base line.
pub(super) const LINE: f64 = 14.0;
const ASCENT: f64 = 11.0;

pub(super) type Position = (f64, f64);

/// An upright rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Bounds {
    /// A square around a position.
    pub(super) fn around((x, y): Position, reach: f64) -> Self {
        Self { left: x - reach, top: y - reach, right: x + reach, bottom: y + reach }
    }

    /// The place of a text that starts at `x` with this base line.
    pub(super) fn of_text(x: f64, base: f64, letters: usize) -> Self {
        let (top, right) = (base - ASCENT, x + letters as f64 * LETTER);
        Self { left: x, top, right, bottom: top + LINE }
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }

    /// Whether a line from one position to another crosses it, by Liang and Barsky.
    fn is_crossed(&self, ((x1, y1), (x2, y2)): (Position, Position)) -> bool {
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        let sides = [
            (x1 - x2, x1 - self.left),
            (x2 - x1, self.right - x1),
            (y1 - y2, y1 - self.top),
            (y2 - y1, self.bottom - y1),
        ];
        for (step, room) in sides {
            if step == 0.0 {
                if room < 0.0 {
                    return false;
                }
            } else if step < 0.0 {
                enter = enter.max(room / step);
            } else {
                leave = leave.min(room / step);
            }
        }
        enter < leave
    }
}

/// The labels of a plot, and what they keep clear of.
#[derive(Debug)]
pub(super) struct Labels {
    plot: Bounds,
    taken: Vec<Bounds>,
    lines: Vec<(Position, Position)>,
}

impl Labels {
    /// Labels within these bounds.
    pub(super) fn within(plot: Bounds) -> Self {
        Self { plot, taken: Vec::new(), lines: Vec::new() }
    }

    /// Keeps labels away from this place.
    pub(super) fn block(&mut self, bounds: Bounds) {
        self.taken.push(bounds);
    }

    /// Keeps labels off this line, as long as there is another place.
    pub(super) fn avoid(&mut self, from: Position, to: Position) {
        self.lines.push((from, to));
    }

    /// Takes the first free one of some places, each of one or more boxes; one that crosses no line
    /// if there is any. `None` if all are taken: a label that would lie on another is not drawn.
    pub(super) fn place<T>(&mut self, places: impl Iterator<Item = (T, Vec<Bounds>)>) -> Option<T> {
        let mut crossing = None;
        for (what, bounds) in places {
            let is_free = |one: &Bounds| {
                self.plot.contains(one) && !self.taken.iter().any(|other| other.meets(one))
            };
            if !bounds.iter().all(is_free) {
                continue;
            }
            let crosses = |one: &Bounds| self.lines.iter().any(|line| one.is_crossed(*line));
            if !bounds.iter().any(crosses) {
                self.taken.extend(bounds);
                return Some(what);
            }
            crossing.get_or_insert((what, bounds));
        }
        let (what, bounds) = crossing?;
        self.taken.extend(bounds);
        Some(what)
    }
}

/// The places of a label beside a point, nearest first: where its text starts and its base line.
pub(super) fn beside(
    (x, y): Position,
    letters: usize,
) -> impl Iterator<Item = (Position, Vec<Bounds>)> {
    let wide = letters as f64 * LETTER;
    let rings = (0..14).map(|ring| f64::from(ring) * LINE);
    rings.flat_map(move |off| {
        let out = 10.0 + off * 0.4;
        let sides = [
            (x + out, y + 4.0 + off),
            (x + out, y + 4.0 - off),
            (x - out - wide, y + 4.0 + off),
            (x - out - wide, y + 4.0 - off),
            (x - wide / 2.0, y + 20.0 + off),
            (x - wide / 2.0, y - 12.0 - off),
        ];
        sides.map(|at| (at, vec![Bounds::of_text(at.0, at.1, letters)]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLOT: Bounds = Bounds { left: 0.0, top: 0.0, right: 400.0, bottom: 300.0 };

    #[test]
    fn labels_of_points_in_one_place_lie_beside_each_other() {
        let mut labels = Labels::within(PLOT);
        let points: Vec<Position> = (0..30).map(|i| (200.0 + f64::from(i % 3), 150.0)).collect();
        points.iter().for_each(|point| labels.block(Bounds::around(*point, 6.0)));
        let placed: Vec<Position> =
            points.iter().filter_map(|point| labels.place(beside(*point, 8))).collect();
        assert!(placed.len() > 20, "{}", placed.len());
        let bounds: Vec<Bounds> =
            placed.iter().map(|(x, base)| Bounds::of_text(*x, *base, 8)).collect();
        for (i, one) in bounds.iter().enumerate() {
            assert!(PLOT.contains(one));
            assert!(!bounds[..i].iter().any(|other| other.meets(one)), "{one:?}");
        }
    }

    #[test]
    fn a_label_leaves_a_line_free_if_it_can_and_none_is_drawn_on_another() {
        let mut labels = Labels::within(PLOT);
        labels.avoid((0.0, 100.0), (400.0, 100.0));
        let (_, base) = labels.place(beside((200.0, 100.0), 4)).unwrap();
        assert!(!Bounds::of_text(210.0, base, 4).is_crossed(((0.0, 100.0), (400.0, 100.0))));
        labels.block(PLOT);
        assert_eq!(labels.place(beside((200.0, 100.0), 4)), None);
    }

    #[test]
    fn lines_cross_boxes_that_they_enter() {
        let bounds = Bounds { left: 10.0, top: 10.0, right: 20.0, bottom: 20.0 };
        for (line, crosses) in [
            (((0.0, 15.0), (30.0, 15.0)), true),
            (((0.0, 0.0), (30.0, 30.0)), true),
            (((0.0, 5.0), (30.0, 5.0)), false),
            (((0.0, 12.0), (9.0, 12.0)), false),
            (((0.0, 25.0), (25.0, 25.1)), false),
            (((12.0, 12.0), (13.0, 13.0)), true),
        ] {
            assert_eq!(bounds.is_crossed(line), crosses, "{line:?}");
        }
    }
}
