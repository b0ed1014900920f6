//! How rows are written: as nsys's CSV and JSON, and as a table for people.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::spans::{NameTree, RangeStack};
use super::sums::Summary;
use crate::base::text::{guard_formula, json as json_string, quote_cell};
use crate::base::units;
use crate::record::series;

/// What the numbers of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Numbers without a unit, or text.
    Plain,
    /// Parts of 100.
    Percent,
    /// Nanoseconds that something took.
    Duration,
    /// Nanoseconds since the session's start.
    Time,
    /// Bytes; in files megabytes of 1,000,000.
    Bytes,
    /// Bytes a second; in files megabytes.
    Throughput,
    Address,
    /// Numbers of which two decimals count.
    Ratio,
    /// Text that is too long for a table, and is in files alone.
    InFiles,
}

impl Unit {
    /// What nsys adds to a column's name in files.
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
}

pub(crate) const fn column(name: &'static str, unit: Unit) -> Column {
    Column { name, unit }
}

/// One cell.
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
    /// What a sampler saw, with its unit.
    Measured(f64, series::Unit),
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<[u32; 3]> for Value<'_> {
    fn from(value: [u32; 3]) -> Self {
        Self::Size(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a RangeStack> for Value<'a> {
    fn from(value: &'a RangeStack) -> Self {
        Self::Stack(value)
    }
}

impl<'a> From<&'a NameTree> for Value<'a> {
    fn from(value: &'a NameTree) -> Self {
        Self::Tree(value)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a Arc<str>> for Value<'a> {
    fn from(value: &'a Arc<str>) -> Self {
        Self::Text(value)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

/// One row of a report, cell by cell in the order of its columns.
pub trait Row: Serialize {
    /// The name that nsys has for the report, or nvprof for its table.
    const NAME: &'static str;
    #[doc(hidden)]
    const COLUMNS: Columns;
    #[doc(hidden)]
    fn cells(&self, cells: &mut Cells<'_>);
}

/// The columns of a report.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Columns(pub(crate) &'static [Column]);

/// Takes the cells of a row.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // a function
pub struct Cells<'a>(&'a mut dyn FnMut(Value<'_>));

impl Cells<'_> {
    pub(crate) fn add<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        (self.0)(value.into());
        self
    }

    /// Total, count, mean, median, least, most, standard deviation.
    pub(super) fn add_summary(&mut self, count: u64, of: &Summary) -> &mut Self {
        self.add(of.total_ns).add(count).add(of.avg_ns).add(of.med_ns);
        self.add(of.min_ns).add(of.max_ns).add(of.stddev_ns)
    }
}

fn each_cell<R: Row>(row: &R, mut add: impl FnMut(Column, Value<'_>)) {
    let mut columns = R::COLUMNS.0.iter();
    row.cells(&mut Cells(&mut |value| {
        let value = match value {
            // JSON has no such numbers.
            Value::Real(number) | Value::Measured(number, _) if !number.is_finite() => {
                Value::Absent
            }
            _ => value,
        };
        if let Some(column) = columns.next() {
            add(*column, value);
        }
    }));
}

/// Rows with their header, as `nsys stats --format csv` writes them; nothing where there are no rows.
pub(super) fn csv<R: Row>(rows: &[R]) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    for column in R::COLUMNS.0 {
        separate(&mut text, ',');
        text.push_str(column.name);
        text.push_str(column.unit.suffix());
    }
    text.push('\n');
    for row in rows {
        let start = text.len();
        each_cell(row, |column, value| {
            if text.len() != start || column.name != R::COLUMNS.0[0].name {
                text.push(',');
            }
            let at = text.len();
            let _ = write_value(&mut text, column.unit, value);
            if matches!(value, Value::Text(_) | Value::Tree(_)) {
                guard_formula(&mut text, at);
                quote_cell(&mut text, at);
            }
        });
        text.push('\n');
    }
    text
}

fn separate(text: &mut String, by: char) {
    if !text.is_empty() {
        text.push(by);
    }
}

/// Rows as `nsys stats --format json` writes them: an object a row, by the names of the CSV's columns, with `""` for what
/// is absent.
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
                    Value::Integer(_) | Value::Signed(_) | Value::Real(_) | Value::Measured(..)
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
        (Unit::Bytes | Unit::Throughput, Value::Integer(bytes)) => {
            write!(text, "{:.3}", bytes as f64 / 1e6)
        }
        (Unit::Bytes | Unit::Throughput, Value::Real(bytes)) => write!(text, "{:.3}", bytes / 1e6),
        (Unit::Address, Value::Integer(address)) => write!(text, "{address:#X}"),
        (_, Value::Integer(value)) => write!(text, "{value}"),
        (Unit::Ratio, Value::Real(value)) => write!(text, "{value:.2}"),
        (_, Value::Real(value)) => write!(text, "{:.1}", tenth(value)),
    }
}

/// A number that prints with one decimal as SQLite rounds it: to the nearest, and what lies halfway away from 0.
fn tenth(value: f64) -> f64 {
    let quarters = value * 4.0;
    // Halfway between two tenths lie, of all that a number can be, only odd quarters.
    let is_halfway = quarters.fract() == 0.0 && quarters % 2.0 != 0.0;
    if is_halfway { value + 0.01_f64.copysign(value) } else { value }
}

/// Rows that a table for people shows unless it is asked for all of them with `{:#}`.
const SHOWN: usize = 50;
const NAME_WIDTH: usize = 60;

/// Aligned, with units that suit each number.
pub(super) fn write_table<R: Row>(rows: &[R], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shown = if f.alternate() { rows.len() } else { rows.len().min(SHOWN) };
    let is_shown = |column: &Column| column.unit != Unit::InFiles;
    let columns = R::COLUMNS.0.iter().filter(|column| is_shown(column));
    let header: Vec<&str> = columns.map(|column| column.name.trim()).collect();
    let mut is_text = vec![false; header.len()];
    for row in &rows[..shown] {
        let mut columns = is_text.iter_mut();
        each_cell(row, |column, value| {
            if let Some(is_text) = is_shown(&column).then(|| columns.next()).flatten() {
                *is_text |= matches!(value, Value::Text(_) | Value::Stack(_) | Value::Tree(_));
            }
        });
    }
    let mut table = units::table(&header, 0);
    for (column, is_text) in table.column_iter_mut().zip(is_text) {
        if is_text {
            column.set_cell_alignment(comfy_table::CellAlignment::Left);
        }
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
    f.write_str(&units::finish(&table))?;
    if shown < rows.len() {
        write!(f, "\n({} more rows; {{:#}} shows all, and so do the files)", rows.len() - shown)?;
    }
    Ok(())
}

fn for_people(unit: Unit, value: Value<'_>) -> String {
    let number = match value {
        Value::Absent => return String::new(),
        Value::Text(text) => return units::shortened(text, NAME_WIDTH),
        Value::Stack(stack) => return units::shortened(&stack.ends(NAME_WIDTH), NAME_WIDTH),
        Value::Tree(tree) => return units::shortened(&tree.end(NAME_WIDTH), NAME_WIDTH),
        Value::Signed(value) => value as f64,
        Value::Size([x, y, z]) => return format!("{x} {y} {z}"),
        Value::Measured(value, unit) => return unit.measured(value),
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
        (Unit::Throughput, _) => format!("{}/s", units::bytes(number.round() as u64)),
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
