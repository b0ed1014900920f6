//! Makes the NVTX calls of groups of a calls file through nvtx-rs; `program.py`, which describes the file, makes them
//! through the Python package.
//!
//! ```text
//! nvtx-referee CALLS.json GROUP...  makes the calls of these groups
//! ```
#![allow(clippy::print_stderr, reason = "it is a program")]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};

use nvtx::{Category, Color, Domain, Event, OwnedDomain, ProcessRange, Range, RegisteredString};
use serde::Deserialize;
use serde_json::Number;

/// The domain that an attribute can name; the others are made when they are first asked for.
static LIBRARY: Domain = Domain::new("library");

/// A call of the file; a key that is not here is refused.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Call {
    thread: usize,
    op: Op,
    text: String,
    times: Option<usize>,
    registered: bool,
    id: String,
    domain: Option<String>,
    color: Option<Shade>,
    category: Option<String>,
    payload: Option<Number>,
    function: Option<Function>,
    calls: Vec<Call>,
    fails: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Push,
    Pop,
    Start,
    End,
    #[default]
    Mark,
    With,
    Call,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Shade {
    Argb(u32),
    Named(String),
}

impl Shade {
    fn color(&self) -> Result<Color, Box<dyn Error>> {
        let named = match self {
            Shade::Argb(argb) => return Ok(Color::from_argb(*argb)),
            Shade::Named(name) => match name.as_str() {
                "green" => Color::GREEN,
                "yellow" => Color::YELLOW,
                "purple" => Color::PURPLE,
                "cyan" => Color::CYAN,
                "red" => Color::RED,
                "white" => Color::WHITE,
                "darkgreen" => Color::DARK_GREEN,
                "orange" => Color::ORANGE,
                _ => return Err(format!("no colour is called {name}").into()),
            },
        };
        // The package's have an alpha of 0.
        Ok(Color::from_argb(named.to_argb() & 0xff_ffff))
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Function {
    Named,
    Described,
}

/// The domain of a call.
enum Home {
    Default,
    Static(&'static Domain),
    Owned(OwnedDomain),
}

impl Home {
    fn event<'a>(&'a self, text: &'a str) -> Event<'a> {
        match self {
            Home::Default => nvtx::event(text),
            Home::Static(domain) => domain.event(text),
            Home::Owned(domain) => domain.event(text),
        }
    }

    fn category(&self, name: &str) -> Category {
        match self {
            Home::Default => nvtx::category(name),
            Home::Static(domain) => domain.category(name),
            Home::Owned(domain) => domain.category(name),
        }
    }

    fn register(&self, text: &str) -> RegisteredString {
        match self {
            Home::Default => nvtx::register(text),
            Home::Static(domain) => domain.register(text),
            Home::Owned(domain) => domain.register(text),
        }
    }
}

/// What all threads share.
#[derive(Default)]
struct Shared {
    domains: Mutex<BTreeMap<String, OwnedDomain>>,
    /// Those that were started, by id.
    ranges: Mutex<BTreeMap<String, ProcessRange>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn home(&self, domain: Option<&str>) -> Home {
        match domain {
            None => Home::Default,
            Some(name) if name == LIBRARY.name() => Home::Static(&LIBRARY),
            Some(name) => {
                let mut domains = lock(&self.domains);
                let domain = domains.entry(name.to_owned());
                Home::Owned(domain.or_insert_with(|| OwnedDomain::new(name)).clone())
            }
        }
    }

    /// Makes what an event becomes.
    fn event<R>(
        &self,
        call: &Call,
        becomes: impl FnOnce(Event<'_>) -> R,
    ) -> Result<R, Box<dyn Error>> {
        let home = self.home(call.domain.as_deref());
        let text = call.text.repeat(call.times.unwrap_or(1));
        let registered = call.registered.then(|| home.register(&text));
        let mut event = match &registered {
            Some(name) => name.event(),
            None => home.event(&text),
        };
        if let Some(color) = &call.color {
            event = event.color(color.color()?);
        }
        if let Some(category) = &call.category {
            event = event.category(home.category(category));
        }
        if let Some(payload) = &call.payload {
            event = match (payload.as_i64(), payload.as_f64()) {
                (Some(whole), _) => event.payload(whole),
                (None, Some(other)) => event.payload(other),
                (None, None) => return Err(format!("no payload holds {payload}").into()),
            };
        }
        Ok(becomes(event))
    }
}

/// The state of one thread.
struct Thread<'a> {
    shared: &'a Shared,
    /// Those that were pushed, by domain.
    ranges: BTreeMap<Option<String>, Vec<Range>>,
}

impl Thread<'_> {
    fn make(&mut self, call: &Call) -> Result<(), Box<dyn Error>> {
        let shared = self.shared;
        match call.op {
            Op::Push => {
                let range = shared.event(call, |event| event.range())?;
                self.ranges.entry(call.domain.clone()).or_default().push(range);
            }
            Op::Pop => {
                let range = self.ranges.get_mut(&call.domain).and_then(Vec::pop);
                drop(range.ok_or("a pop without a push")?);
            }
            Op::Start => {
                let range = shared.event(call, |event| event.process_range())?;
                lock(&shared.ranges).insert(call.id.clone(), range);
            }
            Op::End => {
                let range = lock(&shared.ranges).remove(&call.id);
                drop(range.ok_or("an end without a start")?);
            }
            Op::Mark => shared.event(call, |event| event.mark())?,
            Op::With => self.within(call)?,
            Op::Call => match call.function.ok_or("a call without a function")? {
                Function::Named => self.named(&call.calls)?,
                Function::Described => self.described(&call.calls)?,
            },
        }
        Ok(())
    }

    fn make_all(&mut self, calls: &[Call]) -> Result<(), Box<dyn Error>> {
        calls.iter().try_for_each(|call| self.make(call))
    }

    fn within(&mut self, call: &Call) -> Result<(), Box<dyn Error>> {
        let made = panic::catch_unwind(AssertUnwindSafe(|| {
            let _range = self.shared.event(call, |event| event.range())?;
            self.make_all(&call.calls)?;
            if call.fails {
                // Like a panic, but nothing is printed.
                panic::resume_unwind(Box::new(()));
            }
            Ok(())
        }));
        made.unwrap_or(Ok(()))
    }

    #[nvtx::annotate]
    fn named(&mut self, calls: &[Call]) -> Result<(), Box<dyn Error>> {
        self.make_all(calls)
    }

    #[nvtx::annotate(
        name = "described function",
        domain = LIBRARY,
        color = Color::from_argb(0xff10_2030),
        category = LIBRARY.category("compute"),
        payload = 64i64
    )]
    fn described(&mut self, calls: &[Call]) -> Result<(), Box<dyn Error>> {
        self.make_all(calls)
    }
}

/// A thread that makes one call at a time.
struct Worker {
    calls: Sender<Call>,
    results: Receiver<Result<(), String>>,
}

impl Worker {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, shared: &'scope Shared) -> Worker {
        let (calls, to_make) = mpsc::channel::<Call>();
        let (made, results) = mpsc::channel();
        scope.spawn(move || {
            let mut thread = Thread { shared, ranges: BTreeMap::new() };
            for call in to_make {
                if made.send(thread.make(&call).map_err(|error| error.to_string())).is_err() {
                    break;
                }
            }
            // What was not popped stays open, as it does in Python.
            mem::forget(thread.ranges);
        });
        Worker { calls, results }
    }

    fn make(&self, call: Call) -> Result<(), Box<dyn Error>> {
        self.calls.send(call)?;
        Ok(self.results.recv()??)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nvtx-referee: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().ok_or("usage: nvtx-referee CALLS.json GROUP...")?;
    let mut groups: BTreeMap<String, Vec<Call>> =
        serde_json::from_str(&fs::read_to_string(&path)?)?;
    let shared = Shared::default();
    thread::scope(|scope| {
        let mut workers: BTreeMap<usize, Worker> = BTreeMap::new();
        for name in args {
            let group = groups.remove(&name).ok_or_else(|| format!("no group is called {name}"))?;
            for call in group {
                let worker = workers.entry(call.thread);
                worker.or_insert_with(|| Worker::start(scope, &shared)).make(call)?;
            }
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    mem::forget(shared.ranges);
    Ok(())
}
