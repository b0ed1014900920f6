//! Draws the model on a terminal.

use std::borrow::Cow;
use std::time::Duration;

use profiler_base::text::{cells, printable, shortened};
use profiler_base::units::{bytes, time};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::model::{Kind, Line, Message, Model};
use super::modes;
use super::observation::{DeviceUse, Observed};
use crate::message::whole_seconds;

/// The smallest screen with all parts.
const LEAST: (u16, u16) = (60, 12);
/// The width from which ranges and kernels are beside each other.
const WIDE: u16 = 130;
/// The width from which devices have names and a history.
const WIDEST: u16 = 175;
const KEYS: [(&str, &str); 7] = [
    ("s", "start"),
    ("x", "stop"),
    ("m", "mark"),
    ("w", "write"),
    ("tab", "process"),
    ("a", "all"),
    ("q", "quit"),
];
/// Levels of a history, from none.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Colours, or only bold text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    pub(super) is_coloured: bool,
}

impl Theme {
    fn color(self, color: Color) -> Style {
        if self.is_coloured { Style::new().fg(color) } else { Style::new() }
    }

    fn heading(self) -> Style {
        self.color(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    fn warning(self) -> Style {
        self.color(Color::Yellow)
    }

    fn error(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("the terminal is too small: {} by {} at least", LEAST.0, LEAST.1);
        return frame.render_widget(Paragraph::new(text), area);
    }
    let notices = notices(model, theme);
    let rows = processes(model);
    // CAST: there are few notices, and the height is limited below.
    let notice_lines = notices.len().min(4) as u16;
    let rest = area.height - 3 - notice_lines;
    // With many ranks half of the screen has other rows.
    let most = (rest / 2).max(rest.saturating_sub(12));
    let table_lines = (rows.len() as u16).saturating_add(1).min(most);
    let [head, ranks, notes, sums, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(table_lines),
        Constraint::Length(notice_lines),
        Constraint::Fill(1),
        Constraint::Length(2),
    ])
    .areas(area);
    frame.render_widget(header(model, head.width, theme), head);
    draw_processes(frame, ranks, model, rows, theme);
    frame.render_widget(Paragraph::new(Text::from(notices)), notes);
    let halves = [Constraint::Fill(1), Constraint::Fill(1)];
    let [left, right] = match area.width >= WIDE {
        true => Layout::horizontal(halves).spacing(2).areas(sums),
        false => Layout::vertical(halves).areas(sums),
    };
    draw_lines(frame, left, model, Kind::Ranges, theme);
    draw_lines(frame, right, model, Kind::Kernels, theme);
    draw_footer(frame, footer, model, theme);
}

fn header(model: &Model, width: u16, theme: Theme) -> TextLine<'static> {
    let mut parts = vec![shortened(&model.name, usize::from(width) / 2)];
    if let Some(observation) = &model.observation {
        let now_ns = observation.at.wall_ns;
        let since = |ns: u64| whole_seconds(Duration::from_nanos(now_ns.saturating_sub(ns)));
        let ended = observation.run.as_ref().and_then(|run| run.ended);
        let begins = observation.processes.iter().map(|of| of.process.began.wall_ns);
        let run = observation.run.as_ref().map(|run| run.began.wall_ns);
        let began = run.or(begins.min());
        let is_live = observation.processes.iter().any(Observed::is_open);
        parts.push(match (ended, began) {
            (Some(ended), _) if !is_live => {
                let how = match (ended.status, ended.signal) {
                    (Some(status), _) => format!(", status {status}"),
                    (None, Some(signal)) => format!(", signal {signal}"),
                    (None, None) => String::new(),
                };
                format!("ended {} ago{how}", since(ended.at.wall_ns))
            }
            (_, Some(_)) if !is_live && !observation.processes.is_empty() => "ended".to_owned(),
            (_, Some(began)) => format!("runs for {}", since(began)),
            (_, None) => String::new(),
        });
        let count = observation.processes.len() + observation.left_out;
        match (count, observation.left_out) {
            (0, _) => parts.push("no process has called CUDA yet".to_owned()),
            (1, _) => {}
            (_, 0) => parts.push(format!("{count} processes")),
            (_, left_out) => parts.push(format!("{count} processes, {left_out} not shown")),
        }
        parts.extend(age(model, observation.at.monotonic_ns));
    } else {
        parts.push("reading ...".to_owned());
    }
    let name = parts.remove(0);
    let rest: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let name = Span::styled(name, theme.heading());
    TextLine::from(vec![name, Span::raw("  "), Span::raw(rest.join(", "))])
}

/// The age of the data, or the part that is read.
fn age(model: &Model, now_ns: u64) -> Option<String> {
    let recorded = || model.processes().iter().filter_map(|of| Some((of, of.recorded.as_ref()?)));
    if recorded().any(|(_, recorded)| !recorded.is_read) {
        let sum = |of: fn(&super::observation::Recorded) -> u64| -> u64 {
            recorded().map(|(_, recorded)| of(recorded)).sum()
        };
        let (read, all) = (sum(|of| of.bytes_read), sum(|of| of.bytes));
        return Some(format!("reading: {:.0} %", 100.0 * read as f64 / all.max(1) as f64));
    }
    let on = recorded().filter(|(of, _)| of.is_open() && of.state() == "recording");
    let oldest = on.map(|(_, recorded)| recorded.known_ns).filter(|known| *known != 0).min()?;
    let age = Duration::from_nanos(now_ns.saturating_sub(oldest));
    Some(format!("data {:.1} s old", age.as_secs_f64()))
}

/// Stragglers, losses, notes and errors.
fn notices(model: &Model, theme: Theme) -> Vec<TextLine<'static>> {
    let findings = model.stragglers.findings.iter().cloned();
    let mut notices: Vec<_> = findings.map(|text| (text, theme.warning())).collect();
    let losses = model.losses();
    if !losses.is_empty() {
        let losses: Vec<String> =
            losses.iter().map(|(name, count)| format!("{count} {name}")).collect();
        notices.push((format!("lost: {}", losses.join(", ")), theme.error()));
    }
    for process in model.processes() {
        let why = process.unreadable.as_ref().or(process.no_answer.as_ref());
        let why = why.or(process.process.reason.as_ref());
        let name = super::model::process_name(process);
        notices.extend(why.map(|why| (format!("{name}: {why}"), theme.error())));
    }
    let notes = model.observation.iter().flat_map(|of| of.notes.iter().cloned());
    let quiet = notes.chain(modes::lines(model));
    notices.extend(quiet.map(|note| (note, Style::new().add_modifier(Modifier::DIM))));
    let line =
        |(text, style): (String, Style)| TextLine::styled(printable(&text).into_owned(), style);
    notices.into_iter().map(line).collect()
}

/// A row of the table of processes: the process, and one of its devices.
struct ProcessRow<'m> {
    at: usize,
    process: &'m Observed,
    device: Option<&'m DeviceUse>,
    is_first: bool,
}

fn processes(model: &Model) -> Vec<ProcessRow<'_>> {
    let mut rows = Vec::new();
    for (at, process) in model.processes().iter().enumerate() {
        let devices = process.recorded.as_ref().map_or(&[][..], |recorded| &recorded.devices);
        let first = devices.first();
        rows.push(ProcessRow { at, process, device: first, is_first: true });
        let more = devices.iter().skip(1);
        rows.extend(more.map(|device| ProcessRow {
            at,
            process,
            device: Some(device),
            is_first: false,
        }));
    }
    rows
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| match 100.0 * share {
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    })
}

fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// A column: its head, its least width, true if it is aligned right, and the cell of a row.
type Column = (&'static str, u16, bool, fn(&Model, &ProcessRow<'_>) -> String);

const PID: Column = ("pid", 7, true, |_, row| match row.is_first {
    true => row.process.process.id.pid.to_string(),
    false => String::new(),
});
const RANK: Column = ("rank", 4, true, |_, row| match row.process.process.rank {
    Some(rank) if row.is_first => rank.to_string(),
    _ => String::new(),
});
const STATE: Column = ("state", 9, false, |_, row| match row.is_first {
    true => row.process.state().to_owned(),
    false => String::new(),
});
const GPU: Column =
    ("GPU", 3, true, |_, row| row.device.map_or_else(String::new, |of| of.number.to_string()));
const ADDRESS: Column = ("address", 12, false, |_, row| {
    row.device.and_then(|of| of.address.clone()).unwrap_or_default()
});
const GPU_NAME: Column =
    ("name", 18, false, |_, row| row.device.map_or_else(String::new, |of| of.name.clone()));
const BUSY: Column =
    ("busy", 5, true, |_, row| percent(row.device.and_then(|of| of.share(of.busy))));
const COMMUNICATION: Column =
    ("comm", 5, true, |_, row| percent(row.device.and_then(|of| of.share(of.communication))));
const MEMORY: Column = ("memory", 12, true, |_, row| {
    let memory = row.device.and_then(|of| of.memory);
    memory.map_or_else(String::new, |(used, limit)| {
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        format!("{:.1}/{:.0} GiB", gib(used), gib(limit))
    })
});
const STEPS: Column = ("steps/s", 7, true, |model, row| {
    let steps = model.stragglers.rates.get(row.at).copied().flatten();
    steps.filter(|_| row.is_first).map_or_else(String::new, rate)
});
const WAITS: Column = ("waits", 5, true, |model, row| {
    percent(model.stragglers.waits.get(row.at).copied().flatten().filter(|_| row.is_first))
});
const LOST: Column = ("lost", 5, true, |_, row| match row.is_first {
    true => row.process.lost().to_string(),
    false => String::new(),
});
const WRITTEN: Column =
    ("written", 9, true, |_, row| match (row.is_first, &row.process.recorded) {
        (true, Some(recorded)) => bytes(recorded.bytes),
        _ => String::new(),
    });
const HISTORY: Column = ("busy, last minute", 60, false, |model, row| {
    let level = |share: f64| LEVELS[((share * 8.0).ceil() as usize).min(8)];
    row.device.map_or_else(String::new, |device| {
        model.busy(row.process, device.ordinal).map(level).collect()
    })
});

const NARROW_COLUMNS: [Column; 9] =
    [RANK, PID, STATE, GPU, BUSY, COMMUNICATION, WAITS, STEPS, LOST];
const NARROW_WITH_MEMORY: [Column; 10] =
    [RANK, PID, STATE, GPU, BUSY, COMMUNICATION, MEMORY, WAITS, STEPS, LOST];
const WIDE_COLUMNS: [Column; 14] = [
    RANK,
    PID,
    STATE,
    GPU,
    ADDRESS,
    GPU_NAME,
    BUSY,
    COMMUNICATION,
    MEMORY,
    WAITS,
    STEPS,
    LOST,
    WRITTEN,
    HISTORY,
];

fn draw_processes(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    rows: Vec<ProcessRow<'_>>,
    theme: Theme,
) {
    let has_memory = rows.iter().any(|row| row.device.is_some_and(|of| of.memory.is_some()));
    let columns: &[Column] = match (area.width >= WIDEST, has_memory) {
        (true, _) => &WIDE_COLUMNS,
        (false, true) => &NARROW_WITH_MEMORY,
        (false, false) => &NARROW_COLUMNS,
    };
    let cell = |text: String, is_right: bool, width: u16| {
        let text = shortened(&text, usize::from(width));
        let line = TextLine::from(text);
        Cell::from(if is_right { line.right_aligned() } else { line })
    };
    let head = columns
        .iter()
        .map(|(head, width, is_right, _)| cell((*head).to_owned(), *is_right, *width));
    let selected = model.selected();
    let place = rows.iter().position(|row| Some(row.at) == selected);
    let body = rows.iter().map(|row| {
        let cells =
            columns.iter().map(|(_, width, is_right, of)| cell(of(model, row), *is_right, *width));
        let style = match row.process.is_open() {
            true => Style::new(),
            false => Style::new().add_modifier(Modifier::DIM),
        };
        Row::new(cells).style(style)
    });
    let widths = columns.iter().map(|(_, width, ..)| Constraint::Length(*width));
    let table = Table::new(body, widths)
        .header(Row::new(head).style(theme.heading()))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(place);
    frame.render_stateful_widget(table, area, &mut state);
}

/// The columns of ranges and kernels after the name: head and width.
const SUM_COLUMNS: [(&str, u16); 4] = [("GPU", 7), ("per s", 8), ("GPU mean", 10), ("times", 10)];

fn sum_cells(line: &Line) -> [String; 4] {
    let done = u32::try_from(line.more.done).ok();
    let mean = done.and_then(|done| line.more.done_gpu.checked_div(done));
    let mean = mean.filter(|mean| !mean.is_zero());
    [
        format!("{:.1} %", 100.0 * line.share),
        rate(line.rate),
        mean.map_or_else(String::new, time),
        line.count.to_string(),
    ]
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, model: &Model, kind: Kind, theme: Theme) {
    let (lines, has_whole) = model.lines(kind);
    let numbers: u16 = SUM_COLUMNS.iter().map(|(_, width)| width + 1).sum();
    let name_width = area.width.saturating_sub(numbers);
    let what = match kind {
        Kind::Ranges => "range",
        Kind::Kernels => "kernel",
    };
    let time = if has_whole { "whole recording" } else { "last 10 s" };
    let of = model.selected().map(|at| super::model::process_name(&model.processes()[at]));
    let title = match of {
        Some(of) => format!("{what} ({of}, {time})"),
        None => format!("{what} ({time})"),
    };
    let right = |text: Cow<'static, str>| Cell::from(TextLine::from(text).right_aligned());
    let heads = SUM_COLUMNS.iter().map(|(head, _)| right((*head).into()));
    let head = [Cell::from(shortened(&title, usize::from(name_width)))].into_iter().chain(heads);
    let room = usize::from(area.height.saturating_sub(1));
    let row = |line: &Line| {
        let name = Cell::from(shortened(&line.name, usize::from(name_width)));
        Row::new([name].into_iter().chain(sum_cells(line).map(|text| right(text.into()))))
    };
    let mut body: Vec<Row<'_>> = lines.iter().take(room).map(row).collect();
    if lines.len() > room && room > 1 {
        let hidden = lines.len() - room + 1;
        body.pop();
        body.push(Row::new([format!("... {hidden} more")]).style(Modifier::DIM));
    }
    let widths = [Constraint::Length(name_width)]
        .into_iter()
        .chain(SUM_COLUMNS.iter().map(|(_, width)| Constraint::Length(*width)));
    let table =
        Table::new(body, widths).header(Row::new(head).style(theme.heading())).column_spacing(1);
    frame.render_widget(table, area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let [message, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let width = usize::from(area.width);
    let line = match (&model.mark, &model.message) {
        (Some(text), _) => {
            let prompt = "mark (enter: record, esc: cancel): ";
            let text = shortened(text, width.saturating_sub(cells(prompt) + 1));
            TextLine::styled(format!("{prompt}{text}_"), Modifier::BOLD)
        }
        (None, Message::None) => TextLine::default(),
        (None, Message::Answer(text)) => TextLine::from(shortened(text, width)),
        (None, Message::Error(text)) => TextLine::styled(shortened(text, width), theme.error()),
    };
    frame.render_widget(line, message);
    let spans = KEYS.iter().flat_map(|(key, what)| {
        [Span::styled(*key, Modifier::REVERSED), Span::raw(format!(" {what}  "))]
    });
    frame.render_widget(TextLine::from(spans.collect::<Vec<_>>()), keys);
}
