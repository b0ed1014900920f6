//! Tables for people: aligned columns that fit a width, in which different names never have the
//! same short form.

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::display::{LONGEST_NAME, Layout, Tone};
use super::distinct::Distinct;
use super::text::{cells, printable, shortened};
use super::units::NAME_WIDTH;
pub use super::units::time;

/// The minimum width of a column of names while other columns can be omitted.
const LEAST_NAME: usize = 24;
/// The maximum number of rounds of distinguishing names by their differences, before they are
/// numbered.
const ROUNDS: usize = 6;
const GAP: usize = 2;

/// A table of texts and numbers. Columns of texts are shortened to fit a width; numbers never are.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    /// The maximum length of a text if the layout has no width.
    name_width: usize,
    /// Names, each stored once: traces have few of them in many rows.
    names: Distinct<Box<str>>,
}

#[derive(Debug)]
struct Column {
    head: String,
    /// True for names and other texts, aligned left; false for numbers, aligned right.
    is_text: bool,
    /// True for sentences, which wrap instead of losing their middle.
    is_prose: bool,
    /// The rank of a column that is omitted before others.
    leaves_at: Option<usize>,
}

#[derive(Debug, Default)]
struct Row {
    /// The text before the first cell, such as the lines of a tree.
    lead: String,
    cells: Vec<Cell>,
    /// The tone of the first cell.
    tone: Tone,
}

#[derive(Debug)]
enum Cell {
    Name(u32),
    Number(String),
}

impl Table {
    /// An empty table. Columns from `right_from` are numbers.
    pub fn new<'h>(header: impl IntoIterator<Item = &'h str>, right_from: usize) -> Self {
        let column = |(at, head): (usize, &str)| Column {
            head: printable(head).into_owned(),
            is_text: at < right_from,
            is_prose: false,
            leaves_at: None,
        };
        let columns = header.into_iter().enumerate().map(column).collect();
        Self { columns, rows: Vec::new(), name_width: NAME_WIDTH, names: Distinct::default() }
    }

    /// Sets the maximum length of a text for a layout without a width, instead of 60.
    #[must_use]
    pub fn with_name_width(mut self, width: usize) -> Self {
        self.name_width = width;
        self
    }

    /// Declares columns, by their heads, that are omitted in this order, before all others, if
    /// there is no room.
    #[must_use]
    pub fn with_left_out_first(mut self, heads: &[&str]) -> Self {
        for column in &mut self.columns {
            column.leaves_at = heads.iter().position(|head| **head == *column.head);
        }
        self
    }

    /// Declares a column of texts. Call it before rows are added.
    #[must_use]
    pub fn with_text(mut self, column: usize) -> Self {
        if let Some(column) = self.columns.get_mut(column) {
            column.is_text = true;
        }
        self
    }

    /// Declares the last column as sentences. Call it before rows are added.
    #[must_use]
    pub fn with_prose(mut self) -> Self {
        if let Some(column) = self.columns.last_mut() {
            (column.is_text, column.is_prose) = (true, true);
        }
        self
    }

    /// Adds a row. Missing cells are empty.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.add(String::new(), Tone::Plain, cells);
    }

    /// Adds a row with a lead before its first cell, and a tone of that cell.
    pub fn add(
        &mut self,
        lead: String,
        tone: Tone,
        cells: impl IntoIterator<Item = impl Into<String>>,
    ) {
        let mut row = Row { lead, cells: Vec::with_capacity(self.columns.len()), tone };
        for (cell, column) in cells.into_iter().zip(&self.columns) {
            let cell = cell.into();
            row.cells.push(match column.is_text {
                false => Cell::Number(cell),
                true => Cell::Name(self.names.row(cell.into_boxed_str())),
            });
        }
        self.rows.push(row);
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, without trailing spaces. A line below it names columns that do not
    /// fit the width.
    pub fn render(&self, layout: Layout) -> String {
        let natural = self.natural_widths(layout);
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let widths = loop {
            match self.fit(&kept, &natural, layout) {
                Some(widths) => break widths,
                None => match self.least_important(&kept, &natural) {
                    Some(at) => _ = kept.remove(at),
                    None => break self.squeezed(&kept, &natural, layout),
                },
            }
        };
        let texts: Vec<Vec<String>> = kept
            .iter()
            .zip(&widths)
            .map(|(column, width)| self.column_texts(*column, *width, layout))
            .collect();
        let mut out = String::new();
        let heads = kept.iter().map(|column| &*self.columns[*column].head);
        let heads: Vec<String> =
            heads.zip(&widths).map(|(head, width)| shortened(head, *width)).collect();
        let line = self.line(&kept, &widths, heads.iter().map(|head| ("", &**head)));
        out.push_str(&layout.paint(Tone::Heading, line.trim_end()));
        for (at, row) in self.rows.iter().enumerate() {
            out.push('\n');
            let lead = |place: usize| if place == 0 { &*row.lead } else { "" };
            let width = widths.first().copied().unwrap_or_default();
            let beside = texts.first().map_or(0, |texts| cells(&texts[at]));
            let lead_text = fitting_lead(lead(0), (width / 2).max(width.saturating_sub(beside)));
            let cells = texts
                .iter()
                .enumerate()
                .map(|(place, texts)| (if place == 0 { &*lead_text } else { "" }, &*texts[at]));
            let line = self.line(&kept, &widths, cells);
            let mut lines = line.lines().map(str::trim_end);
            let line = lines.next().unwrap_or_default();
            match texts.first().filter(|_| row.tone != Tone::Plain && row.lead.is_empty()) {
                Some(texts) if line.starts_with(&*texts[at]) => {
                    let (first, rest) = line.split_at(texts[at].len());
                    out.push_str(&layout.paint(row.tone, first));
                    out.push_str(rest);
                }
                _ => out.push_str(line),
            }
            let indent = widths[..widths.len().saturating_sub(1)].iter().map(|width| width + GAP);
            let indent = " ".repeat(indent.sum());
            lines.for_each(|line| out.extend(["\n", &indent, line]));
        }
        let left_out = (0..self.columns.len()).filter(|column| !kept.contains(column));
        let left_out: Vec<&str> = left_out.map(|column| &*self.columns[column].head).collect();
        if !left_out.is_empty() {
            out.push_str(&format!("\n(too narrow for: {})", left_out.join(", ")));
        }
        out
    }

    fn line<'c>(
        &self,
        kept: &[usize],
        widths: &[usize],
        texts: impl Iterator<Item = (&'c str, &'c str)>,
    ) -> String {
        let mut line = String::new();
        for (place, ((column, width), (lead, text))) in
            kept.iter().zip(widths).zip(texts).enumerate()
        {
            if place != 0 {
                line.push_str("  ");
            }
            let pad = width.saturating_sub(cells(lead) + cells(text));
            let is_text = self.columns[*column].is_text;
            let (before, after) = if is_text { (0, pad) } else { (pad, 0) };
            line.extend(std::iter::repeat_n(' ', before));
            line.extend([lead, text]);
            line.extend(std::iter::repeat_n(' ', after));
        }
        line
    }

    /// The width that each column takes if there is room.
    fn natural_widths(&self, layout: Layout) -> Vec<usize> {
        let most = layout.width.map_or(self.name_width, |_| LONGEST_NAME);
        let names: Vec<usize> =
            self.names.values().iter().map(|name| cells(&printable(name)).min(most)).collect();
        let mut widths: Vec<usize> =
            self.columns.iter().map(|column| cells(&column.head)).collect();
        for row in &self.rows {
            for (place, (cell, width)) in row.cells.iter().zip(&mut widths).enumerate() {
                let lead = if place == 0 { cells(&row.lead) } else { 0 };
                let own = match cell {
                    Cell::Name(id) => names[*id as usize],
                    Cell::Number(text) => cells(text),
                };
                *width = (*width).max(lead + own);
            }
        }
        widths
    }

    /// The widths of columns, texts shortened; `None` if they do not fit.
    fn fit(&self, kept: &[usize], natural: &[usize], layout: Layout) -> Option<Vec<usize>> {
        let all = || kept.iter().map(|column| natural[*column]);
        let Some(room) = layout.width else { return Some(all().collect()) };
        let room = room.checked_sub(GAP * kept.len().saturating_sub(1))?;
        if all().sum::<usize>() <= room {
            return Some(all().collect());
        }
        let is_text = |column: &&usize| self.columns[**column].is_text;
        let numbers: usize = kept.iter().filter(|c| !is_text(c)).map(|c| natural[*c]).sum();
        let least = kept.iter().filter(is_text).map(|c| natural[*c].min(LEAST_NAME)).sum();
        let for_texts = room.checked_sub(numbers).filter(|room| *room >= least)?;
        // Sentences take the width that names leave.
        let is_prose = |column: &&usize| self.columns[**column].is_prose;
        let is_name = |column: &&usize| is_text(column) && !is_prose(column);
        let prose: usize = kept.iter().filter(is_prose).map(|c| natural[*c].min(LEAST_NAME)).sum();
        let names = kept.iter().filter(is_name).map(|c| natural[*c]).collect();
        let most = level(names, for_texts - prose);
        let names: usize = kept.iter().filter(is_name).map(|c| natural[*c].min(most)).sum();
        let width = |column: &usize| match (is_text(&column), is_prose(&column)) {
            (true, true) => natural[*column].min(for_texts - names),
            (true, false) => natural[*column].min(most),
            _ => natural[*column],
        };
        Some(kept.iter().map(width).collect())
    }

    /// The widths of the last columns in less room than they need.
    fn squeezed(&self, kept: &[usize], natural: &[usize], layout: Layout) -> Vec<usize> {
        let gaps = GAP * kept.len().saturating_sub(1);
        let room = layout.width.unwrap_or(usize::MAX).saturating_sub(gaps);
        let most = level(kept.iter().map(|column| natural[*column]).collect(), room).max(1);
        kept.iter().map(|column| natural[*column].min(most)).collect()
    }

    /// The index of the next column to omit: an empty one, the next of those declared to be omitted
    /// first, or the last one. The first column and the widest column of texts are never omitted.
    fn least_important(&self, kept: &[usize], natural: &[usize]) -> Option<usize> {
        let widest = kept.iter().filter(|column| self.columns[**column].is_text);
        let widest = widest.max_by_key(|column| natural[**column]);
        let may_go = |place: &usize| *place != 0 && Some(&kept[*place]) != widest;
        let is_empty = |place: &usize| {
            self.rows.iter().all(|row| match row.cells.get(kept[*place]) {
                None => true,
                Some(Cell::Name(id)) => self.names.get(*id).is_empty(),
                Some(Cell::Number(text)) => text.is_empty(),
            })
        };
        let candidates = || (0..kept.len()).rev().filter(may_go);
        let order = |place: &usize| self.columns[kept[*place]].leaves_at;
        let is_first = |place: &usize| order(place).is_some();
        candidates()
            .find(is_empty)
            .or_else(|| candidates().filter(is_first).min_by_key(order))
            .or_else(|| candidates().next())
    }

    /// The texts of a column, within a width, different for different names.
    fn column_texts(&self, column: usize, width: usize, layout: Layout) -> Vec<String> {
        let mut wanted = Distinct::default();
        let mut of_rows = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            of_rows.push(match row.cells.get(column) {
                None => Err(""),
                Some(Cell::Number(text)) => Err(&**text),
                Some(Cell::Name(id)) => {
                    let lead = if column == 0 { cells(&row.lead) } else { 0 };
                    let room = match layout.width {
                        None => self.name_width,
                        Some(_) => width - lead.min(width / 2),
                    };
                    Ok(wanted.row((*id, room)))
                }
            });
        }
        let wanted: Vec<(&str, usize)> =
            wanted.values().iter().map(|(id, room)| (&**self.names.get(*id), *room)).collect();
        let short = match self.columns[column].is_prose {
            true => wanted.iter().map(|(text, width)| in_lines(text, *width)).collect(),
            false => distinct(&wanted),
        };
        let text = |of: Result<u32, &str>| match of {
            Ok(place) => short[place as usize].clone(),
            Err(text) => shortened(text, width.max(cells(text).min(width))),
        };
        of_rows.into_iter().map(text).collect()
    }
}

/// Wraps a sentence into lines of at most this width.
fn in_lines(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in printable(text).split(' ') {
        let word = shortened(word, width);
        match lines.last_mut() {
            Some(line) if cells(line) + 1 + cells(&word) <= width => line.extend([" ", &word]),
            _ => lines.push(word),
        }
    }
    lines.join("\n")
}

/// The lines of a tree in at most this width; the innermost ones remain.
fn fitting_lead(lead: &str, most: usize) -> Cow<'_, str> {
    let length = lead.chars().count();
    if length <= most {
        return lead.into();
    }
    let last = lead.chars().skip(length - most.saturating_sub(1));
    std::iter::once('…').take(most).chain(last).collect::<String>().into()
}

/// The maximum width at which columns of these widths fit in the room.
fn level(mut widths: Vec<usize>, room: usize) -> usize {
    widths.sort_unstable();
    let (mut room, mut columns) = (room, widths.len());
    for width in widths {
        if width * columns > room {
            return room / columns;
        }
        room -= width;
        columns -= 1;
    }
    usize::MAX
}

/// Printable texts, each in at most its number of columns, and different for different texts.
///
/// Long texts lose their middle. Texts with the same short form then include their difference, and
/// if that does not help, a number.
pub fn distinct(texts: &[(&str, usize)]) -> Vec<String> {
    let mut short: Vec<String> =
        texts.iter().map(|(text, width)| shortened(text, *width)).collect();
    for _ in 0..ROUNDS {
        let groups = alike(texts, &short);
        if groups.is_empty() {
            return short;
        }
        for group in groups {
            let first = texts[group[0]].0;
            let common = group[1..].iter().map(|at| common_prefix(first, texts[*at].0)).min();
            for at in &group {
                let (text, width) = texts[*at];
                short[*at] = excerpt(text, common.unwrap_or_default(), width);
            }
        }
    }
    number(texts, &mut short);
    short
}

/// Positions of different texts with the same short form.
fn alike(texts: &[(&str, usize)], short: &[String]) -> Vec<Vec<usize>> {
    let mut groups: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for (at, short) in short.iter().enumerate() {
        groups.entry(short).or_default().push(at);
    }
    let differ = |group: &Vec<usize>| group.iter().any(|at| texts[*at].0 != texts[group[0]].0);
    let mut groups: Vec<_> = groups.into_values().filter(differ).collect();
    groups.sort_unstable();
    groups
}

/// The number of bytes at the start that two texts share, at a boundary of characters.
fn common_prefix(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.floor_char_boundary(same)
}

/// The start of a text, and the part from shortly before `at`.
fn excerpt(text: &str, at: usize, width: usize) -> String {
    let head = width / 4;
    // Two characters before the difference make it recognizable.
    let before = text[..at].char_indices().rev().nth(1).map_or(0, |(start, _)| start);
    let start = text.floor_char_boundary(before);
    let mut short = String::new();
    let mut room = head;
    for c in printable(&text[..start]).chars() {
        match room.checked_sub(super::text::width_of(c)) {
            Some(left) => room = left,
            None => break,
        }
        short.push(c);
    }
    if short.len() < start {
        short.push('…');
    }
    let rest = width.saturating_sub(cells(&short));
    short.push_str(&shortened(&text[start..], rest));
    if cells(&short) > width { shortened(text, width) } else { short }
}

/// Appends a number to all but one of the texts with the same short form.
fn number(texts: &[(&str, usize)], short: &mut [String]) {
    let mut seen: FxHashSet<String> = short.iter().cloned().collect();
    for group in alike(texts, short) {
        let mut numbers: FxHashMap<&str, String> = FxHashMap::default();
        let mut next = 2_usize;
        for at in group {
            let (text, width) = texts[at];
            if numbers.is_empty() {
                numbers.insert(text, short[at].clone());
                continue;
            }
            if let Some(same) = numbers.get(text) {
                short[at].clone_from(same);
                continue;
            }
            let free = loop {
                let end = format!("#{next}");
                next += 1;
                let begin = shortened(&short[at], width.saturating_sub(end.len()));
                let one = format!("{begin}{end}");
                if seen.insert(one.clone()) {
                    break one;
                }
            };
            numbers.insert(text, free.clone());
            short[at] = free;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let mut table = Table::new(["kernel", "count", "GPU time", "share", "max"], 1);
        table.add_row([&"a".repeat(50), "1", "12.3 us", "99.0 %", "1.000 us"]);
        table.add_row(["b", "20000", "1 ns", "1.0 %", "1 ns"]);
        table.render(Layout { width, ..Layout::default() })
    }

    #[test]
    fn table_without_width_is_as_wide_as_its_content() {
        let a = "a".repeat(50);
        let expected = format!(
            "{:50}  count  GPU time   share       max\n{a}      1   12.3 us  99.0 %  1.000 us\n{:50}  20000      1 ns   1.0 %      1 ns",
            "kernel", "b"
        );
        assert_eq!(table(None), expected);
        assert_eq!(table(Some(90)), expected);
    }

    #[test]
    fn narrow_table_shortens_names_then_leaves_out_columns() {
        let lines = |width| table(Some(width)).lines().map(str::to_owned).collect::<Vec<_>>();
        let at_60 = lines(60);
        assert_eq!(at_60.len(), 3);
        assert!(
            at_60[1].contains("aaa…aaa") && at_60[1].ends_with("99.0 %  1.000 us"),
            "{at_60:?}"
        );
        let at_42 = lines(42);
        assert_eq!(
            at_42.last().map(String::as_str),
            Some("(too narrow for: share, max)"),
            "{at_42:?}"
        );
        for width in 5..100 {
            let long =
                lines(width).into_iter().find(|line| cells(line) > width && !line.starts_with('('));
            assert_eq!(long, None, "at {width}");
        }
    }

    #[test]
    fn columns_are_left_out_in_their_order() {
        let table = Table::new(["range", "copies", "inferred", "syncs"], 1);
        let mut table = table.with_left_out_first(&["syncs", "copies"]);
        table.add_row(["backward", "20", "1580", "3"]);
        let at = |width| table.render(Layout { width: Some(width), ..Layout::default() });
        assert_eq!(
            at(26),
            "range     copies  inferred\nbackward      20      1580\n(too narrow for: syncs)"
        );
        assert_eq!(
            at(18),
            "range     inferred\nbackward      1580\n(too narrow for: copies, syncs)"
        );
        assert_eq!(at(10).lines().next(), Some("range"));
    }

    #[test]
    fn sentences_go_on_below() {
        let mut table = Table::new(["flag", "rests on"], 1).with_prose();
        table.add_row(["bad", "1.499 ms of 3.336 ms in kernels and copies"]);
        let text = table.render(Layout { width: Some(30), ..Layout::default() });
        assert_eq!(text, "flag  rests on\nbad   1.499 ms of 3.336 ms in\n      kernels and copies");
    }

    #[test]
    fn lead_of_a_deep_row_leaves_room_for_its_name() {
        let mut table = Table::new(["range", "times"], 1);
        table.add("│  ".repeat(20) + "└─ ", Tone::Plain, ["forward", "3"]);
        let text = table.render(Layout { width: Some(30), ..Layout::default() });
        let row = text.lines().nth(1).unwrap();
        assert!(row.starts_with('…') && row.contains("└─ forward") && cells(row) <= 30, "{text}");
    }

    #[test]
    fn colours_are_printed_on_request() {
        let mut table = Table::new(["flag", "of"], 2);
        table.add(String::new(), Tone::Bad, ["bad", "x"]);
        let coloured = table.render(Layout { is_coloured: true, ..Layout::default() });
        assert_eq!(coloured, "\u{1b}[1mflag  of\u{1b}[0m\n\u{1b}[31mbad\u{1b}[0m   x");
        assert_eq!(table.render(Layout::default()), "flag  of\nbad   x");
    }

    #[test]
    fn names_that_differ_in_the_middle_show_where() {
        let name = |middle: &str| {
            format!("void cutlass::gemm::device::Kernel<{middle}>(cutlass::Params const&)")
        };
        let (a, b) = (name("float, 128, 64, true, false"), name("float, 128, 32, true, false"));
        let short = distinct(&[(&a, 40), (&b, 40)]);
        assert!(short[0].contains("64") && short[1].contains("32"), "{short:?}");
        assert!(
            short.iter().all(|short| short.starts_with("void cutl") && cells(short) <= 40),
            "{short:?}"
        );
    }

    /// Names of few letters and common parts, so that many are alike.
    #[test]
    fn shortened_names_are_distinct() {
        let mut random = fastrand::Rng::with_seed(11);
        let parts = [
            "aaaaaaaaaaaa",
            "b",
            "…",
            "核",
            "\u{1b}[31m",
            "\u{202e}",
            "e\u{301}",
            "#2",
            ", ",
            "128",
        ];
        for _ in 0..3_000 {
            let (width, names) = (random.usize(8..40), random.usize(2..14));
            let names: Vec<String> = (0..names)
                .map(|_| {
                    (0..random.usize(0..12)).map(|_| parts[random.usize(0..parts.len())]).collect()
                })
                .collect();
            let wanted: Vec<(&str, usize)> =
                names.iter().map(|name| (&**name, width - random.usize(0..3))).collect();
            let short = distinct(&wanted);
            for (a, (name, width)) in short.iter().zip(&wanted) {
                assert!(cells(a) <= *width, "{a:?} of {name:?} has {width}");
                for (b, (other, _)) in short.iter().zip(&wanted) {
                    assert!(a != b || name == other, "{name:?} and {other:?} are both {a:?}");
                }
            }
        }
    }

    #[test]
    fn many_long_names_are_shortened_in_bounded_time() {
        let long = "x".repeat(100_000);
        let names: Vec<String> = (0..300).map(|n| format!("{long}{n}{long}")).collect();
        let wanted: Vec<(&str, usize)> = names.iter().map(|name| (&**name, 30)).collect();
        let short: FxHashSet<String> = distinct(&wanted).into_iter().collect();
        assert_eq!(short.len(), names.len());
    }
}
