//! An observer that writes everything down, for the tests of one process. They take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nvtx::Field;
use nvtx::observer::{self, Mark, Observer, RangeStart, Switch, Token};

/// What was seen, a line each: `+name` and `-name` for a range of a thread, `>name` and `<name` for one of the process,
/// `=name` for fields that an open range gets, `!name` for a mark; before it the thread's name, if it is a worker's.
pub(crate) struct Watch(Mutex<Seen>);

struct Seen {
    lines: Vec<String>,
    /// By token.
    names: Vec<String>,
}

static WATCH: Watch = Watch(Mutex::new(Seen { lines: Vec::new(), names: Vec::new() }));
static TURN: Mutex<()> = Mutex::new(());

/// Held while a test watches.
pub(crate) struct Watching {
    switch: Switch,
    _turn: MutexGuard<'static, ()>,
}

pub(crate) fn watch() -> Watching {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    #[allow(clippy::unwrap_used, reason = "a test that cannot watch must fail")]
    let switch = observer::install(&WATCH).unwrap();
    WATCH.lock().lines.clear();
    switch.on();
    Watching { switch, _turn: turn }
}

impl Watching {
    /// What was seen since this was last asked.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut WATCH.lock().lines)
    }
}

impl Watching {
    /// Looks away, or again.
    #[allow(dead_code, reason = "not every test file does")]
    pub(crate) fn look(&self, looking: bool) {
        if looking { self.switch.on() } else { self.switch.off() }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.switch.off();
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: String) {
        let thread = std::thread::current();
        let worker = thread.name().filter(|name| name.starts_with("worker"));
        let line = worker.map_or(line.clone(), |worker| format!("{worker}: {line}"));
        self.lock().lines.push(line);
    }

    fn start(&self, what: char, range: &RangeStart<'_>) -> Token {
        let mut details = String::new();
        if let Some(domain) = range.domain {
            details += &format!(" domain={domain}");
        }
        if let Some(color) = range.color {
            details += &format!(" color={:08x}", color.to_argb());
        }
        if let Some(category) = range.category {
            details += &format!(" category={}", category.name());
        }
        if let Some(payload) = range.payload {
            details += &format!(" payload={payload:?}");
        }
        details += &listed(range.fields);
        self.note(format!("{what}{}{details}", range.name));
        let mut seen = self.lock();
        seen.names.push(range.name.to_owned());
        Token::new(seen.names.len() as u64 - 1)
    }

    fn end(&self, what: char, token: Token) {
        let name = self.lock().names[token.get() as usize].clone();
        self.note(format!("{what}{name}"));
    }
}

fn listed(fields: &[Field<'_>]) -> String {
    let one = |field: &Field<'_>| format!(" {}={:?}{}", field.name, field.value, field.unit);
    fields.iter().map(one).collect()
}

impl Observer for Watch {
    fn range_start(&self, range: &RangeStart<'_>) -> Token {
        self.start('+', range)
    }
    fn range_end(&self, token: Token) {
        self.end('-', token);
    }
    fn range_fields(&self, token: Token, fields: &[Field<'_>]) {
        let name = self.lock().names[token.get() as usize].clone();
        self.note(format!("={name}{}", listed(fields)));
    }
    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        Some(self.start('>', range))
    }
    fn process_range_fields(&self, token: Token, fields: &[Field<'_>]) {
        self.range_fields(token, fields);
    }
    fn process_range_end(&self, token: Token) {
        self.end('<', token);
    }
    fn mark(&self, mark: &Mark<'_>) {
        self.start('!', mark);
    }
}
