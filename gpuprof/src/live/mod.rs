//! `gpuprof live`: a terminal view of a run, refreshed every second.
//!
//! The thread of the screen waits for keys alone. One thread reads the run, another sends requests.

mod history;
mod model;
mod modes;
mod news;
mod observation;
mod reader;
mod requests;
mod screen;
mod stragglers;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use gpuprof_control::socket::{Client, Folder, Request, sockets};
use gpuprof_control::{ProcessId, RunFolder};
use nix::errno::Errno;
use nix::libc::SIGTERM;
use nix::poll::{PollFd, PollFlags, poll};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::flag;

use crate::args::LiveArgs;
use crate::control::{self, Target};
use crate::failure::Failure;
use crate::global::GlobalArgs;
use crate::terminal;

use model::{Action, Model};
use news::News;
use reader::Reader;
use screen::Theme;

/// The time between two observations.
const EVERY: Duration = Duration::from_secs(1);
/// The time limit for each process to answer the search for a run.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait for a key before other news are drawn.
const KEY_WAIT_MS: u8 = 100;
/// The end of the names of run folders.
const RUN_SUFFIX: &str = "gpurun";

/// Runs `gpuprof live`.
pub(crate) fn live(args: &LiveArgs) -> Result<(), Failure> {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::Error(
            "the view needs a terminal: `gpuprof status --json RUN` prints the state for programs"
                .to_owned(),
        ));
    }
    let mut folders = control::folders();
    let (folder, only) = found(args.target.as_deref(), &mut folders)?;
    let name = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (news, received) = mpsc::channel();
    let (look, looks) = mpsc::channel();
    let (asks, requested) = mpsc::channel();
    let communication = GlobalArgs::get().and_then(|args| args.communication.clone());
    let mut reader = Reader::new(folder, only, folders, communication);
    // The first observation names a folder that cannot be read before the screen is taken.
    let first = reader.observe()?;
    let threads = [
        spawn("gpuprof-reader", {
            let news = news.clone();
            move || read(&mut reader, &news, &looks)
        })?,
        spawn("gpuprof-requests", move || requests::serve(&requested, &news, &look))?,
    ];
    let mut model = Model::new(name);
    model.observe(first);
    on_screen(&mut model, &Threads { news: received, asks, threads })
}

/// The other threads of the view.
struct Threads {
    news: Receiver<News>,
    asks: Sender<requests::Submission>,
    threads: [JoinHandle<()>; 2],
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let spawned = Builder::new().name(name.to_owned()).spawn(work);
    spawned
        .map_err(|error| Failure::Error(format!("a thread of the view cannot be started: {error}")))
}

/// Finds the run, and the process in it if a pid was given.
fn found(
    target: Option<&Path>,
    folders: &mut Vec<Folder>,
) -> Result<(RunFolder, Option<ProcessId>), Failure> {
    let Some(target) = target else {
        return Ok((RunFolder::open(&default_run(folders)?)?, None));
    };
    match Target::find(target, folders)? {
        Target::Run(folder) => Ok((folder, None)),
        Target::Process(process) => {
            folders.extend(control::folder_of(process));
            let asked = Client::find(folders, process)
                .and_then(|client| client.ask(Request::Status, SEARCH_TIMEOUT));
            match asked {
                Ok(answer) => Ok((RunFolder::open(Path::new(&answer.run))?, Some(process))),
                Err(error) if error.is_no_socket() => {
                    Err(Failure::Error(control::no_socket_reason(process)))
                }
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// The newest run with a live process, or the newest one in this folder.
fn default_run(folders: &[Folder]) -> Result<PathBuf, Failure> {
    let clients = sockets(folders).clients;
    let answers =
        clients.iter().filter_map(|client| client.ask(Request::Status, SEARCH_TIMEOUT).ok());
    let live = answers.map(|answer| {
        let path = PathBuf::from(answer.run);
        (began(&path).unwrap_or(answer.process.began.wall_ns), path)
    });
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let is_run = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == RUN_SUFFIX);
    let ended = entries.map(|entry| entry.path()).filter(is_run);
    let ended = ended.filter_map(|path| Some((began(&path)?, path)));
    let newest = live.max().or_else(|| ended.max());
    newest.map(|(_, path)| path).ok_or_else(|| {
        Failure::Error(
            "no live process of this user is recorded, and this folder has no run: `gpuprof run -- PROGRAM` starts one, \
             `gpuprof live RUN` shows one"
                .to_owned(),
        )
    })
}

fn began(run: &Path) -> Option<u64> {
    Some(RunFolder::open(run).ok()?.run().ok()??.began.wall_ns)
}

/// Observes the run until the screen is gone: every second, and after a request.
fn read(reader: &mut Reader, news: &Sender<News>, looks: &Receiver<()>) {
    let mut wait = EVERY;
    loop {
        match looks.recv_timeout(wait) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let sent = match reader.observe() {
            Ok(observation) => {
                wait = if observation.is_read() { EVERY } else { Duration::ZERO };
                news.send(News::Observed(Box::new(observation)))
            }
            Err(error) => news.send(News::Failed(error.to_string())),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Waits a while for a key. An error once the terminal is gone, of which crossterm would read for
/// ever (crossterm-rs/crossterm#793).
fn wait_for_input() -> Result<(), Failure> {
    let stdin = io::stdin();
    let mut input = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut input, KEY_WAIT_MS) {
        // Of a change of the terminal's size.
        Err(Errno::EINTR) => return Ok(()),
        polled => polled.map_err(io::Error::from)?,
    };
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    match input[0].revents() {
        Some(events) if events.intersects(gone) => {
            Err(Failure::Error("the terminal is gone".to_owned()))
        }
        _ => Ok(()),
    }
}

/// Restores the terminal also after an error. A panic restores it before its message.
fn on_screen(model: &mut Model, threads: &Threads) -> Result<(), Failure> {
    let ends = Arc::new(AtomicBool::new(false));
    // A second signal ends the program at once: a terminal that is not read blocks the screen.
    // Without the handlers the first one does, as SIGHUP does, and the terminal stays as it is.
    let _: io::Result<_> = flag::register_conditional_shutdown(SIGTERM, 1, ends.clone());
    let _: io::Result<_> = flag::register(SIGTERM, ends.clone());
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, model, threads, &ends);
    let restored = ratatui::try_restore();
    if restored.is_err() {
        // Its drop would panic, as it cannot print the reason.
        std::mem::forget(terminal);
    }
    shown?;
    Ok(restored?)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    threads: &Threads,
    ends: &AtomicBool,
) -> Result<(), Failure> {
    let theme = Theme { is_coloured: terminal::stdout().is_coloured };
    let mut has_changed = true;
    while !ends.load(Ordering::Relaxed) {
        if std::mem::take(&mut has_changed) {
            terminal.draw(|frame| screen::draw(frame, model, theme))?;
        }
        wait_for_input()?;
        if event::poll(Duration::ZERO)? {
            has_changed = true;
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
            {
                match model.press(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Ask(request, processes)) => {
                        // A thread that has ended is noticed below.
                        let _ = threads.asks.send((request, processes));
                    }
                    None => {}
                }
            }
        }
        for news in threads.news.try_iter() {
            has_changed = true;
            match news {
                News::Observed(observation) => model.observe(*observation),
                News::Answered(answer) => model.answered(answer),
                News::Failed(why) => model.answered(Err(why)),
            }
        }
        if threads.threads.iter().any(JoinHandle::is_finished) {
            return Err(Failure::Error("a thread of the view has ended early".to_owned()));
        }
    }
    Ok(())
}
