//! Display options of reports: their width, colours and rows.

use std::borrow::Cow;
use std::fmt;

/// The layout of a report.
///
/// Without a width, tables are as wide as their content, with names of at most 60 columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// The number of columns of a terminal.
    pub width: Option<usize>,
    /// True to print the escape sequences of colours.
    pub is_coloured: bool,
    /// The number of rows of a table.
    pub rows: RowLimit,
}

/// The number of rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowLimit {
    /// The table's own number.
    #[default]
    Default,
    /// At most this many.
    Most(usize),
    /// All rows.
    All,
}

/// The maximum length of a name in a table of any width: names from files may have any length.
pub(crate) const LONGEST_NAME: usize = 2000;

/// A width without limit; larger ones are equal.
pub const NO_LIMIT: usize = u16::MAX as usize;

impl Layout {
    /// The width of a name in a line: `default` on a terminal, or the maximum of a table if lines
    /// have no limit.
    pub fn name_width(self, default: usize) -> usize {
        let is_unlimited = self.width.is_some_and(|width| width >= NO_LIMIT);
        if is_unlimited { LONGEST_NAME } else { default }
    }

    /// Paints the text in a tone, if colours are on.
    pub fn paint<'t>(self, tone: Tone, text: &'t str) -> Cow<'t, str> {
        let code = match tone {
            _ if !self.is_coloured => return text.into(),
            Tone::Plain => return text.into(),
            Tone::Heading => 1,
            Tone::Good => 32,
            Tone::Warning => 33,
            Tone::Bad => 31,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m").into()
    }
}

/// The meaning of a text for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// No special meaning.
    #[default]
    Plain,
    /// The head of a table, or a verdict.
    Heading,
    /// A good value.
    Good,
    /// A value that deserves attention.
    Warning,
    /// A bad value.
    Bad,
}

/// Display options of a report, such as `println!("{}", report.width(80).coloured(true))`.
///
/// `{}` of the report alone prints the default: lines without a width, no colours, and only the
/// first rows of long tables. Flags of a format string, such as `{:#}` or `{:.80}`, change nothing.
pub trait DisplayOptions: Sized {
    /// Writes the report in a layout.
    #[doc(hidden)]
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Sets the maximum width of tables in columns. At 65535 or more, no name is shortened.
    fn width(&self, columns: usize) -> Styled<'_, Self> {
        Styled::new(self, Layout::default()).width(columns)
    }

    /// Sets whether to print the escape sequences of a terminal's colours.
    fn coloured(&self, is_coloured: bool) -> Styled<'_, Self> {
        Styled::new(self, Layout::default()).coloured(is_coloured)
    }

    /// Sets the maximum number of rows of each table whose length can be set.
    fn max_rows(&self, rows: usize) -> Styled<'_, Self> {
        Styled::new(self, Layout::default()).max_rows(rows)
    }

    /// Prints every row of each table whose length can be set.
    fn all_rows(&self) -> Styled<'_, Self> {
        Styled::new(self, Layout::default()).all_rows()
    }
}

/// A report with [`DisplayOptions`]; `{}` prints it.
#[derive(Debug, Clone, Copy)]
#[must_use = "it is text to print"]
pub struct Styled<'a, T> {
    report: &'a T,
    layout: Layout,
}

impl<'a, T: DisplayOptions> Styled<'a, T> {
    #[doc(hidden)]
    pub fn new(report: &'a T, layout: Layout) -> Self {
        Self { report, layout }
    }

    /// See [`DisplayOptions::width`].
    pub fn width(mut self, columns: usize) -> Self {
        self.layout.width = Some(columns.min(NO_LIMIT));
        self
    }

    /// See [`DisplayOptions::coloured`].
    pub fn coloured(mut self, is_coloured: bool) -> Self {
        self.layout.is_coloured = is_coloured;
        self
    }

    /// See [`DisplayOptions::max_rows`].
    pub fn max_rows(mut self, rows: usize) -> Self {
        self.layout.rows = RowLimit::Most(rows);
        self
    }

    /// See [`DisplayOptions::all_rows`].
    pub fn all_rows(mut self) -> Self {
        self.layout.rows = RowLimit::All;
        self
    }
}

impl<T: DisplayOptions> fmt::Display for Styled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.write_in(self.layout, f)
    }
}

/// Implements `Display` for a type with [`DisplayOptions`]: `{}` prints the default layout.
/// Parameters with bounds stand before the type, in brackets: `[R: Row] Report<R>`.
#[macro_export]
macro_rules! display_by_default_layout {
    ([$($parameters:tt)*] $type:ty) => {
        impl<$($parameters)*> std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::display::DisplayOptions::write_in(self, Default::default(), f)
            }
        }
    };
    ($type:ty) => {
        $crate::display_by_default_layout!([] $type);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report whose text is its layout.
    struct Report;

    impl DisplayOptions for Report {
        fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?} {} {:?}", layout.width, layout.is_coloured, layout.rows)
        }
    }

    display_by_default_layout!(Report);

    #[test]
    fn options_are_independent_and_flags_of_a_format_string_change_nothing() {
        assert_eq!(Report.to_string(), "None false Default");
        assert_eq!(format!("{Report:+#3.8}"), "None false Default");
        assert_eq!(Report.width(80).to_string(), "Some(80) false Default");
        assert_eq!(Report.coloured(true).width(80).to_string(), "Some(80) true Default");
        assert_eq!(Report.max_rows(3).to_string(), "None false Most(3)");
        assert_eq!(Report.max_rows(3).all_rows().width(9).to_string(), "Some(9) false All");
        assert_eq!(format!("{:.1}", Report.width(usize::MAX)), "Some(65535) false Default");
    }
}
