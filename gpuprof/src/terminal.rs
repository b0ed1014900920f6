//! Terminals: their width, colours, and text wrapped to fit them.

use std::io::{self, Write};
use std::os::fd::AsFd;

use profiler_base::display::{DisplayOptions, Layout, NO_LIMIT, RowLimit, Styled};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use textwrap::{Options, WordSplitter, WrapAlgorithm};

use crate::failure::Failure;
use crate::global::GlobalArgs;

/// The width of a terminal that does not report one.
const DEFAULT_WIDTH: usize = 80;

pub(crate) fn set_colours(choice: clap::ColorChoice) {
    let choice = match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// The layout of text for people on standard output.
pub(crate) fn stdout() -> Layout {
    layout(&io::stdout())
}

/// The layout of text for people on standard error.
pub(crate) fn stderr() -> Layout {
    layout(&io::stderr())
}

/// The layout of text for people in a file.
pub(crate) fn file() -> Layout {
    let args = GlobalArgs::get();
    let width = args.and_then(|args| args.width).filter(|width| *width != 0);
    let is_coloured = args.is_some_and(|args| args.color == clap::ColorChoice::Always);
    Layout { width: Some(width.map_or(NO_LIMIT, limited)), is_coloured, ..Layout::default() }
}

fn layout(out: &(impl RawStream + AsFd)) -> Layout {
    let args = GlobalArgs::get();
    let width = match (args.and_then(|args| args.width), out.is_terminal()) {
        _ if args.is_some_and(|args| args.full_names) => NO_LIMIT,
        (Some(0), _) | (None, false) => NO_LIMIT,
        (Some(width), _) => limited(width),
        (None, true) => limited(width_of(out)),
    };
    let is_coloured = AutoStream::choice(out) != ColorChoice::Never;
    Layout { width: Some(width), is_coloured, ..Layout::default() }
}

fn limited(width: usize) -> usize {
    width.clamp(1, NO_LIMIT)
}

/// The width from `COLUMNS`, or from the terminal.
fn width_of(out: &impl AsFd) -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let asked = || terminal_size::terminal_size_of(out).map(|(width, _)| usize::from(width.0));
    columns.or_else(asked).filter(|width| *width != 0).unwrap_or(DEFAULT_WIDTH)
}

/// Text for people. Lines that are too wide are wrapped and indented.
pub(crate) struct Text<'o> {
    out: &'o mut dyn Write,
    pub(crate) layout: Layout,
    line: Vec<u8>,
}

impl<'o> Text<'o> {
    pub(crate) fn new(out: &'o mut dyn Write, layout: Layout) -> Self {
        Self { out, layout, line: Vec::new() }
    }

    /// Writes a report in this layout, followed by a line break.
    pub(crate) fn show(&mut self, report: &impl DisplayOptions) -> Result<(), Failure> {
        self.show_limited(report, RowLimit::Default)
    }

    /// Like [`show`](Self::show), with at most this many rows of each table; 0 is unlimited.
    pub(crate) fn show_rows(
        &mut self,
        report: &impl DisplayOptions,
        most: usize,
    ) -> Result<(), Failure> {
        self.show_limited(report, if most == 0 { RowLimit::All } else { RowLimit::Most(most) })
    }

    /// Like [`show`](Self::show), with every row.
    pub(crate) fn show_all(&mut self, report: &impl DisplayOptions) -> Result<(), Failure> {
        self.show_limited(report, RowLimit::All)
    }

    fn show_limited(
        &mut self,
        report: &impl DisplayOptions,
        rows: RowLimit,
    ) -> Result<(), Failure> {
        let layout = Layout { rows, ..self.layout };
        Ok(writeln!(self, "{}", Styled::new(report, layout))?)
    }

    /// Writes the last line.
    pub(crate) fn end(mut self) -> io::Result<()> {
        match self.line.is_empty() {
            true => Ok(()),
            false => self.write_line(),
        }
    }

    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let width = self.layout.width.unwrap_or(NO_LIMIT);
        let text = std::str::from_utf8(&line).unwrap_or_default();
        if line.len() <= width || text.is_empty() {
            return self.out.write_all(&line);
        }
        let (content, end) = match text.strip_suffix('\n') {
            Some(content) => (content, "\n"),
            None => (text, ""),
        };
        let wrapped = match content.trim_start().starts_with("ncu ") {
            true => wrapped_command(content, width),
            false => wrapped(content, width),
        };
        self.out.write_all(wrapped.as_bytes())?;
        self.out.write_all(end.as_bytes())
    }
}

impl Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.layout.width.is_none_or(|width| width >= NO_LIMIT) {
            return self.out.write(bytes);
        }
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Wraps a line to at most this width. All lines but the first are indented by two more columns.
pub(crate) fn wrapped(line: &str, width: usize) -> String {
    if textwrap::core::display_width(line) <= width {
        return line.to_owned();
    }
    let own = line.len() - line.trim_start_matches(' ').len();
    let indent = " ".repeat((own + 2).min(width / 2));
    let options = Options::new(width)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::fill(line, options)
}

/// Wraps a shell command to at most this width so that a shell reads the same command. Supports the
/// quotes of `gpuprof kernels`: `'...'` and `\'`.
fn wrapped_command(line: &str, width: usize) -> String {
    let (mut out, mut column, mut is_quoted) = (String::new(), 0, false);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let escaped = if !is_quoted && rest.starts_with("\\'") { 2 } else { c.len_utf8() };
        let (part, after) = rest.split_at(escaped);
        rest = after;
        // Leave room for a quote and a backslash.
        if column + textwrap::core::display_width(part) + 3 > width && column > 3 {
            out.push_str(if is_quoted { "'\\\n'" } else { "\\\n" });
            column = usize::from(is_quoted);
        }
        out.push_str(part);
        column += textwrap::core::display_width(part);
        is_quoted ^= part == "'";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_command_is_the_same_command() {
        let arguments = |command: &str| {
            let script =
                format!("printf '%s\\n' {}", command.trim_start().trim_start_matches("ncu "));
            let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{command}");
            output.stdout
        };
        for name in
            ["_Z4gemmPf".repeat(40), format!("'void k<{}>(int *, it'\\''s $x)'", "a, ".repeat(60))]
        {
            let command = format!("  ncu --set full --kernel-name {name} --launch-count 1 PROGRAM");
            for width in 8..130 {
                let wrapped = wrapped_command(&command, width);
                assert!(wrapped.lines().all(|line| line.len() <= width), "{width}: {wrapped}");
                assert!(wrapped.lines().count() >= 3);
                if width % 11 == 0 {
                    assert_eq!(arguments(&wrapped), arguments(&command), "{wrapped}");
                }
            }
        }
    }

    #[test]
    fn wide_lines_go_on_below() {
        let mut out = Vec::new();
        let layout = Layout { width: Some(20), ..Layout::default() };
        let mut text = Text::new(&mut out, layout);
        write!(text, "short\n  a line that is too wide\n{}", "x".repeat(50)).unwrap();
        text.end().unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..3], ["short", "  a line that is too", "    wide"]);
        assert!(lines.iter().all(|line| line.len() <= 20), "{out}");
        assert_eq!(out.matches('x').count(), 50, "{out}");
    }
}
