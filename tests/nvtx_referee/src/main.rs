//! Makes the NVTX calls of groups of a calls file through nvtx-rs; `program.py`, which describes the file, makes them
//! through the Python package.
//!
//! ```text
//! nvtx-referee offers               the calls and attributes that it can make, one a line
//! nvtx-referee CALLS.json GROUP...  makes the calls of these groups
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};

use serde::Deserialize;

/// What [`Thread::make`] can make. Not yet: start, end, mark, domain, color, category, payload.
const OFFERS: &[&str] = &["push", "pop"];

/// A call of the file. What is not offered is not here, so that a file that asks for it is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    thread: usize,
    op: Op,
    #[serde(default)]
    text: String,
    #[serde(default = "once")]
    times: usize,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Push,
    Pop,
}

fn once() -> usize {
    1
}

/// The state of one thread.
#[derive(Default)]
struct Thread {
    ranges: Vec<nvtx::Range>,
}

impl Thread {
    fn make(&mut self, call: &Call) {
        match call.op {
            Op::Push => self.ranges.push(nvtx::range(&call.text.repeat(call.times))),
            Op::Pop => drop(self.ranges.pop()),
        }
    }
}

/// A thread that makes one call at a time.
struct Worker {
    calls: Sender<Call>,
    done: Receiver<()>,
}

impl Worker {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> Worker {
        let (calls, to_make) = mpsc::channel::<Call>();
        let (made, done) = mpsc::channel();
        scope.spawn(move || {
            let mut thread = Thread::default();
            for call in to_make {
                thread.make(&call);
                if made.send(()).is_err() {
                    break;
                }
            }
        });
        Worker { calls, done }
    }

    fn make(&self, call: Call) -> Result<(), Box<dyn Error>> {
        self.calls.send(call)?;
        self.done.recv()?;
        Ok(())
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
    let first = args.next().ok_or("usage: nvtx-referee offers | CALLS.json GROUP...")?;
    if first == "offers" {
        println!("{}", OFFERS.join("\n"));
        return Ok(());
    }
    // Only the groups that are asked for have to be understood.
    let mut groups: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&fs::read_to_string(&first)?)?;
    thread::scope(|scope| {
        let mut workers: BTreeMap<usize, Worker> = BTreeMap::new();
        for name in args {
            let group = groups.remove(&name).ok_or_else(|| format!("no group is called {name}"))?;
            for call in serde_json::from_value::<Vec<Call>>(group)? {
                workers.entry(call.thread).or_insert_with(|| Worker::start(scope)).make(call)?;
            }
        }
        Ok(())
    })
}
