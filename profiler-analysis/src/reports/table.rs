//! Writers of rows: nsys's CSV and JSON, and text tables.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use profiler_base::display::{Layout, RowLimit};
use profiler_base::table::Table;
use profiler_base::text::{guard_formula, json as json_string, quote_cell};
use profiler_base::units;
use serde::Serialize;

use super::spans::{NameTree, RangeStack};
use super::sums::TimeSummary;
use profiler_core::series;

/// The unit of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Numbers without a unit, or text.
    Plain,
    /// Percent.
    Percent,
    /// Nanoseconds of a duration.
    Duration,
    /// Nanoseconds since the session's start.
    Time,
    /// Bytes; in files megabytes of 1,000,000.
    Bytes,
    /// A [`Rate`]; in files megabytes per second, with nsys's division.
    Throughput,
    Address,
    /// Numbers with two decimals.
    Ratio,
    /// Text only for files, because it is too long for a table.
    InFiles,
}

impl Unit {
    /// nsys's suffix of the column's name in files.
    fn suffix(self) -> &'static str {
        match self {
            Self::Plain | Self::Address | Self::Ratio | Self::InFiles => "",
            Self::Percent => " (%)",
            Self::Duration | Self::Time => " (ns)",
            Self::Bytes => " (MB)",
            Self::Throughput => " (MB/s)",
        }
    }
}

/// The header and unit of a column.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    unit: Unit,
}

/// The value of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Absent,
    Integer(u64),
    Signed(i64),
    Real(f64),
    Text(&'a str),
    Stack(&'a RangeStack),
    Tree(&'a NameTree),
    /// Blocks or threads in x, y, z.
    Size([u32; 3]),
    /// A sampled value with its unit.
    Measured(f64, series::Unit),
    Rate(Rate),
}

/// Bytes and the nanoseconds, not 0, in which they moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    bytes: u64,
    ns: u64,
}

impl Rate {
    /// `None` for 0 ns.
    pub(super) fn new(bytes: u64, ns: u64) -> Option<Self> {
        (ns != 0).then_some(Self { bytes, ns })
    }

    /// Bytes per second, rounded.
    pub(super) fn bytes_per_s(self) -> u64 {
        let (bytes, ns) = (u128::from(self.bytes), u128::from(self.ns));
        let rounded = (bytes * 1_000_000_000 + ns / 2) / ns;
        u64::try_from(rounded).unwrap_or(u64::MAX)
    }

    /// Bytes per second by nsys's division: the bytes times the whole number of times in a second,
    /// which is 0 for times above a second.
    pub(super) fn nsys_bytes_per_s(self) -> u64 {
        self.bytes.saturating_mul(1_000_000_000 / self.ns)
    }
}

/// A type that fills a cell.
pub(crate) trait Cell {
    fn value(&self) -> Value<'_>;
}

macro_rules! cells {
    ($($type:ty: $value:ident => $cell:expr,)+) => {
        $(impl Cell for $type {
            fn value(&self) -> Value<'_> {
                let $value = self;
                $cell
            }
        })+
    };
}

cells! {
    u64: number => Value::Integer(*number),
    u32: number => Value::Integer((*number).into()),
    i64: number => Value::Signed(*number),
    f64: number => Value::Real(*number),
    [u32; 3]: size => Value::Size(*size),
    str: text => Value::Text(text),
    String: text => Value::Text(text),
    Arc<str>: text => Value::Text(text),
    RangeStack: stack => Value::Stack(stack),
    NameTree: tree => Value::Tree(tree),
    Value<'_>: value => *value,
    Rate: rate => Value::Rate(*rate),
}

impl<T: Cell + ?Sized> Cell for &T {
    fn value(&self) -> Value<'_> {
        (**self).value()
    }
}

impl<T: Cell> Cell for Option<T> {
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Absent, Cell::value)
    }
}

/// A row of a report: its cells in the order of columns.
pub(crate) trait Row: fmt::Debug + Serialize {
    /// nsys's name of the report.
    const NAME: &'static str;
    /// The columns that a narrow table leaves out last.
    const KEPT_LONGER: &'static [&'static str] = &[];
    /// Adds the cells; every row has the same columns.
    fn cells(&self, cells: &mut Cells<'_>);
}

/// Declares the row of a report: its fields and their columns.
///
/// `field: Type => "Header" Unit` fills one column. `field: Type => |row, cells| ...` fills the
/// columns that the expression adds. A field without an arrow fills none.
macro_rules! row {
    ($(#[$doc:meta])* $vis:vis $type:ident = $name:literal {
        $($(#[$attribute:meta])* $field:ident: $of:ty
            $(=> $header:literal $unit:ident)?
            $(=> |$row:ident, $cells:ident| $add:expr)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[non_exhaustive]
        $vis struct $type {
            $($(#[$attribute])* $vis $field: $of,)+
        }

        impl $crate::reports::Row for $type {
            const NAME: &'static str = $name;

            fn cells(&self, cells: &mut $crate::reports::Cells<'_>) {
                $(
                    $(cells.add($header, $crate::reports::Unit::$unit, &self.$field);)?
                    $(
                        let ($row, $cells) = (self, &mut *cells);
                        $add;
                    )?
                )+
            }
        }
    };
}
pub(crate) use row;

/// Declares a row by [`row!`] with a function `new` that computes each field: `field: Type = value
/// => "Header" Unit`.
macro_rules! computed_row {
    ($(#[$doc:meta])* $type:ident = $name:literal from ($($from:ident: $source:ty),+) {
        $($(#[$attribute:meta])* $field:ident: $of:ty = $value:expr
            $(=> $header:literal $unit:ident)?
            $(=> |$row:ident, $cells:ident| $add:expr)?,)+
    }) => {
        $crate::reports::table::row! {
            $(#[$doc])*
            pub(crate) $type = $name {
                $($(#[$attribute])* $field: $of
                    $(=> $header $unit)? $(=> |$row, $cells| $add)?,)+
            }
        }

        impl $type {
            fn new($($from: $source),+) -> Self {
                Self { $($field: $value),+ }
            }
        }
    };
}
pub(super) use computed_row;

/// Receives the cells of a row.
pub(crate) struct Cells<'a>(&'a mut dyn FnMut(Column, Value<'_>));

impl Cells<'_> {
    pub(crate) fn add(&mut self, name: &'static str, unit: Unit, value: impl Cell) -> &mut Self {
        (self.0)(Column { name, unit }, value.value());
        self
    }

    /// Adds total, count, mean, median, minimum, maximum, standard deviation.
    pub(super) fn add_sum(&mut self, count_name: &'static str, count: u64, of: &TimeSummary) {
        self.add("Total Time", Unit::Duration, of.total_ns).add(count_name, Unit::Plain, count);
        self.add_spread(["Avg", "Med", "Min", "Max", "StdDev"], Some(of));
    }

    /// Adds mean, median, minimum, maximum, standard deviation.
    pub(super) fn add_spread(&mut self, names: [&'static str; 5], of: Option<&TimeSummary>) {
        let [avg, med, min, max, stddev] = names;
        self.add(avg, Unit::Duration, of.map(|of| of.avg_ns));
        self.add(med, Unit::Duration, of.map(|of| of.med_ns));
        self.add(min, Unit::Duration, of.map(|of| of.min_ns));
        self.add(max, Unit::Duration, of.map(|of| of.max_ns));
        // 0 without values, like in nsys.
        self.add(stddev, Unit::Duration, of.map_or(0.0, |of| of.stddev_ns));
    }
}

fn each_cell<R: Row>(row: &R, mut add: impl FnMut(Column, Value<'_>)) {
    row.cells(&mut Cells(&mut |column, value| match value {
        // JSON cannot express these numbers.
        Value::Real(number) | Value::Measured(number, _) if !number.is_finite() => {
            add(column, Value::Absent);
        }
        _ => add(column, value),
    }));
}

/// Writes rows with a header in the format of `nsys stats --format csv`; empty without rows.
pub(super) fn csv<R: Row>(rows: &[R]) -> String {
    let mut text = String::new();
    let Some(first) = rows.first() else { return text };
    each_cell(first, |column, _| {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(column.name);
        text.push_str(column.unit.suffix());
    });
    for row in rows {
        let mut before = '\n';
        each_cell(row, |column, value| {
            text.push(std::mem::replace(&mut before, ','));
            let at = text.len();
            let _ = write_value(&mut text, column.unit, value);
            if matches!(value, Value::Text(_) | Value::Tree(_)) {
                guard_formula(&mut text, at);
                quote_cell(&mut text, at);
            }
        });
    }
    text.push('\n');
    text
}

/// Writes rows in the format of `nsys stats --format json`: an object for each row with the CSV
/// columns as keys, and `""` for absent values.
pub(super) fn json<R: Row>(rows: &[R]) -> String {
    let mut text = String::from("[");
    for row in rows {
        text.push_str(if text.len() == 1 { "\n  {" } else { ",\n  {" });
        let mut is_first = true;
        each_cell(row, |column, value| {
            text.push_str(if is_first { "\n" } else { ",\n" });
            is_first = false;
            let _ = write!(text, "    \"{}{}\": ", column.name, column.unit.suffix());
            let at = text.len();
            let _ = write_value(&mut text, column.unit, value);
            let is_number = column.unit != Unit::Address
                && matches!(
                    value,
                    Value::Integer(_)
                        | Value::Signed(_)
                        | Value::Real(_)
                        | Value::Measured(..)
                        | Value::Rate(_)
                );
            if !is_number {
                let quoted = json_string(&&text[at..]).unwrap_or_default();
                text.truncate(at);
                text.push_str(&quoted);
            }
        });
        text.push_str("\n  }");
    }
    text.push_str(if rows.is_empty() { "]\n" } else { "\n]\n" });
    text
}

fn write_value(text: &mut String, unit: Unit, value: Value<'_>) -> fmt::Result {
    match (unit, value) {
        (_, Value::Absent) => Ok(()),
        (_, Value::Text(value)) => text.write_str(value),
        (_, Value::Stack(value)) => write!(text, "{value}"),
        (_, Value::Tree(value)) => write!(text, "{value}"),
        (_, Value::Signed(value)) => write!(text, "{value}"),
        (_, Value::Size([x, y, z])) => write!(text, "{x:4} {y:4} {z:4}"),
        (_, Value::Measured(value, _)) => write!(text, "{value}"),
        (_, Value::Rate(rate)) => write!(text, "{:.3}", rate.nsys_bytes_per_s() as f64 / 1e6),
        (Unit::Bytes, Value::Integer(bytes)) => write!(text, "{:.3}", bytes as f64 / 1e6),
        (Unit::Bytes, Value::Real(bytes)) => write!(text, "{:.3}", bytes / 1e6),
        (Unit::Address, Value::Integer(address)) => write!(text, "{address:#X}"),
        (_, Value::Integer(value)) => write!(text, "{value}"),
        (Unit::Ratio, Value::Real(value)) => write!(text, "{value:.2}"),
        (_, Value::Real(value)) => write!(text, "{:.1}", tenth(value)),
    }
}

/// Rounds to one decimal like SQLite: half away from 0.
fn tenth(value: f64) -> f64 {
    let quarters = value * 4.0;
    // Only odd quarters are exactly halfway between two tenths.
    let is_halfway = quarters.fract() == 0.0 && quarters % 2.0 != 0.0;
    if is_halfway { value + 0.01_f64.copysign(value) } else { value }
}

/// Rows of a text table, unless a number is set.
const SHOWN: usize = 50;
/// The number of levels at either end of a path in a table.
const PATH_ENDS: usize = 8;

/// Writes an aligned text table with fitting units.
pub(super) fn write_table<R: Row>(
    rows: &[R],
    layout: Layout,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let shown = match layout.rows {
        RowLimit::Default => rows.len().min(SHOWN),
        RowLimit::Most(most) => rows.len().min(most),
        RowLimit::All => rows.len(),
    };
    let is_shown = |column: &Column| column.unit != Unit::InFiles;
    let (mut header, mut is_text) = (Vec::new(), Vec::new());
    for (at, row) in rows[..shown].iter().enumerate() {
        let mut columns = 0..;
        each_cell(row, |column, value| {
            if let Some(place) = is_shown(&column).then(|| columns.next()).flatten() {
                if at == 0 {
                    header.push(column.name.trim());
                    is_text.push(false);
                }
                is_text[place] |=
                    matches!(value, Value::Text(_) | Value::Stack(_) | Value::Tree(_));
            }
        });
    }
    let is_left_out_first =
        |head: &&str| !R::KEPT_LONGER.is_empty() && !R::KEPT_LONGER.contains(head);
    let left_out_first: Vec<&str> =
        header.iter().rev().copied().filter(is_left_out_first).collect();
    let mut table = Table::new(header.iter().copied(), 0).with_left_out_first(&left_out_first);
    for (column, _) in is_text.into_iter().enumerate().filter(|(_, is_text)| *is_text) {
        table = table.with_text(column);
    }
    for row in &rows[..shown] {
        let mut cells = Vec::with_capacity(header.len());
        each_cell(row, |column, value| {
            if is_shown(&column) {
                cells.push(for_people(column.unit, value));
            }
        });
        table.add_row(cells);
    }
    f.write_str(&table.render(layout))?;
    match rows.len() - shown {
        0 => Ok(()),
        more if layout.rows == RowLimit::Default => {
            write!(f, "\n({more} more rows; all_rows() shows all, and so do the files)")
        }
        more => write!(f, "\n({more} more rows)"),
    }
}

fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _: fmt::Result = write(&mut text);
    text
}

fn for_people(unit: Unit, value: Value<'_>) -> String {
    let number = match value {
        Value::Absent => return String::new(),
        Value::Text(text) => return text.to_owned(),
        Value::Stack(stack) => return written(|text| stack.write(text, PATH_ENDS)),
        Value::Tree(tree) => return written(|text| tree.write(text, PATH_ENDS)),
        Value::Signed(value) => value as f64,
        Value::Size([x, y, z]) => return format!("{x} {y} {z}"),
        Value::Measured(value, unit) => return unit.measured(value),
        Value::Rate(rate) => return format!("{}/s", units::bytes(rate.bytes_per_s())),
        Value::Integer(value) => value as f64,
        Value::Real(value) => value,
    };
    match (unit, value) {
        (Unit::Plain, Value::Integer(value)) => value.to_string(),
        (Unit::Plain, Value::Signed(value)) => value.to_string(),
        (Unit::Duration, Value::Signed(value)) => {
            let sign = if value < 0 { "-" } else { "" };
            format!("{sign}{}", units::time(Duration::from_nanos(value.unsigned_abs())))
        }
        (Unit::Address, Value::Integer(address)) => format!("{address:#X}"),
        (Unit::Ratio, _) => format!("{number:.2}"),
        (Unit::Percent, _) => format!("{:.1} %", tenth(number)),
        (Unit::Duration, _) => units::time(Duration::from_nanos(number.round() as u64)),
        (Unit::Time, _) => format!("{:.6} s", number / 1e9),
        (Unit::Bytes, _) => units::bytes(number.round() as u64),
        _ => format!("{:.1}", tenth(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_as_sqlite_rounds_them() {
        let text = |value| {
            let mut text = String::new();
            write_value(&mut text, Unit::Duration, Value::Real(value)).unwrap();
            text
        };
        let all = [10683.15, 0.25, 0.75, 2.25, 10683.0, 0.05, 1.0 / 3.0].map(text);
        assert_eq!(all, ["10683.1", "0.3", "0.8", "2.3", "10683.0", "0.1", "0.3"]);
    }
}
