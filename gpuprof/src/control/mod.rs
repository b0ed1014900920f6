//! `list`, `on`, `off`, `mark`, `snapshot`, `status`: commands for live processes, sent over their
//! control sockets.

mod absent;

pub(crate) use absent::{folder_of, reason as no_socket_reason};

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use gpuprof_control::manifest::{Counts, Moment, Process};
use gpuprof_control::socket::{Answer, Client, Folder, Request, sockets};
use gpuprof_control::{Error, ProcessId, RunFolder};
use profiler_base::table::Table;
use profiler_base::text::{printable, shortened};
use serde::Serialize;

use crate::args::{ControlArgs, ListArgs};
use crate::failure::Failure;
use crate::input;
use crate::message::{PROGRAM_WIDTH, note, process_label, whole_seconds};
use crate::output::{Output, write_json};

/// The time limit for each process to answer `list`.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time without an answer after which a note names the process.
const PATIENCE: Duration = Duration::from_secs(1);

/// A row of `list` and `status`.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    id: ProcessId,
    is_alive: bool,
    /// The absolute path of the run folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<Process>,
    /// The reason why the process did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Row {
    fn new(id: ProcessId, answer: Result<Answer, Error>) -> Self {
        match answer {
            Ok(Answer { process, run, .. }) => {
                Self { id, is_alive: true, run: Some(run), process: Some(process), error: None }
            }
            Err(error) => {
                let error = Some(error.to_string());
                Self { id, is_alive: true, run: None, process: None, error }
            }
        }
    }

    fn cell(&self, of: impl Fn(&Process) -> String) -> String {
        self.process.as_ref().map(of).unwrap_or_default()
    }

    fn state(&self) -> String {
        match &self.process {
            None => "no answer".to_owned(),
            Some(process) if process.state.is_open() && !self.is_alive => "cut off".to_owned(),
            Some(process) => process.state.name().to_owned(),
        }
    }

    /// The time since the library started, for live processes of this machine.
    fn age(&self) -> String {
        let since = self.process.as_ref().filter(|_| self.is_alive).map(|process| process.began);
        let now = Moment::now().monotonic_ns;
        let age = since.and_then(|since| now.checked_sub(since.monotonic_ns));
        age.map(|age| whole_seconds(Duration::from_nanos(age))).unwrap_or_default()
    }

    fn run_name(&self) -> String {
        let name = self.run.as_deref().and_then(|run| Path::new(run).file_name());
        name.map(|name| shortened(&name.to_string_lossy(), 3 * PROGRAM_WIDTH)).unwrap_or_default()
    }
}

/// The head of a column and its count.
type CountColumn = (&'static str, fn(&Counts) -> u64);

/// The columns of counts in `status`.
const COUNTS: [CountColumn; 6] = [
    ("operations", |counts| counts.operations),
    ("ranges", |counts| counts.ranges),
    ("windows", |counts| counts.windows),
    ("bytes", |counts| counts.bytes),
    ("lost", |counts| counts.lost),
    ("incidents", |counts| counts.incidents),
];

fn table(rows: &[Row], counts: &[CountColumn]) -> Table {
    let start = ["pid", "program", "rank", "state", "for"].into_iter();
    let header = start.chain(counts.iter().map(|(head, _)| *head)).chain(["run"]);
    let texts = [1, 3, 5 + counts.len()];
    let mut table = texts.into_iter().fold(Table::new(header, 0), Table::with_text);
    for row in rows {
        let start = [
            row.id.pid.to_string(),
            row.cell(|process| shortened(&process.program, PROGRAM_WIDTH)),
            row.cell(rank),
            row.state(),
            row.age(),
        ];
        let counts =
            counts.iter().map(|(_, of)| row.cell(|process| of(&process.counts).to_string()));
        table.add_row(start.into_iter().chain(counts).chain([row.run_name()]));
    }
    table
}

fn rank(process: &Process) -> String {
    process.rank.map(|rank| rank.to_string()).unwrap_or_default()
}

/// The folders of control sockets. A note names each that is not used.
pub(crate) fn folders() -> Vec<Folder> {
    let (folders, errors) = Folder::existing();
    for error in errors {
        note(&error.to_string());
    }
    folders
}

/// Runs `gpuprof list`.
pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let folders = folders();
    let found = sockets(&folders);
    for error in &found.errors {
        note(&error.to_string());
    }
    if found.foreign != 0 {
        note(&format!(
            "{} more are in another container: list and switch them there",
            found.foreign
        ));
    }
    let mut rows = Vec::new();
    for client in &found.clients {
        match client.ask(Request::Status, LIST_TIMEOUT) {
            // The process ended between the search and the request.
            Err(error) if error.is_gone() || error.is_no_socket() => {}
            answer => rows.push(Row::new(client.process(), answer)),
        }
    }
    Output::Standard.write_in(!args.json, |out| {
        if args.json {
            return write_json(out, &rows);
        }
        if rows.is_empty() {
            note("no live process of this user is recorded: `gpuprof run -- PROGRAM` starts one");
            return Ok(());
        }
        Ok(writeln!(out, "{}", table(&rows, &[]).render(out.layout))?)
    })
}

/// The target of a command.
pub(crate) enum Target {
    Process(ProcessId),
    Run(RunFolder),
}

impl Target {
    pub(crate) fn find(target: &Path, folders: &[Folder]) -> Result<Self, Failure> {
        if let Some(pid) = target.to_str().and_then(|text| text.parse().ok()) {
            return Ok(Self::Process(ProcessId::from_pid(pid)?));
        }
        if target.exists() {
            return Ok(Self::Run(RunFolder::open(target)?));
        }
        let mut runs = BTreeSet::new();
        for client in sockets(folders).clients {
            if let Ok(answer) = client.ask(Request::Status, LIST_TIMEOUT) {
                let run = PathBuf::from(answer.run);
                runs.extend(Some(run).filter(|run| run.file_name() == Some(target.as_os_str())));
            }
        }
        let name = printable(&target.to_string_lossy()).into_owned();
        match (runs.pop_first(), runs.pop_first()) {
            (Some(run), None) => Ok(Self::Run(RunFolder::open(&run)?)),
            (None, _) => Err(Failure::Error(format!(
                "{name} is no pid, no run folder, and no run of a live process: `gpuprof list` shows those"
            ))),
            (Some(one), Some(other)) => Err(Failure::Error(format!(
                "{name} is the name of several live runs, {} and {}: give the path",
                one.display(),
                other.display()
            ))),
        }
    }

    /// The live processes. For a run, only processes that still record or may start recording.
    fn live(&self) -> Result<Vec<ProcessId>, Failure> {
        let folder = match self {
            Self::Process(process) => return Ok(vec![*process]),
            Self::Run(folder) => folder,
        };
        let processes = folder.processes()?;
        for error in &processes.unreadable {
            note(&error.to_string());
        }
        let all = processes.found.iter();
        let open = all.filter(|process| process.state.is_open()).map(|process| process.id);
        let live: BTreeSet<_> = open.filter(|process| process.is_alive()).collect();
        match live.is_empty() {
            false => Ok(live.into_iter().collect()),
            true => Err(Failure::Error(format!(
                "no process of {} is recorded now: {}",
                folder.path().display(),
                match processes.found.len() {
                    0 => "none has called CUDA yet".to_owned(),
                    count => format!(
                        "{count} have been, and `gpuprof status {}` shows how they ended",
                        folder.path().display()
                    ),
                }
            ))),
        }
    }
}

/// Sends a request to each process and passes each answer to `answered`. Fails if a process does
/// not answer.
fn ask(
    args: &ControlArgs,
    request: &Request,
    mut answered: impl FnMut(&Answer),
) -> Result<Target, Failure> {
    let timeout = Duration::try_from_secs_f64(args.timeout).unwrap_or(Duration::MAX);
    // A day is long enough, and adding it to an instant cannot overflow.
    let timeout = timeout.min(Duration::from_hours(24));
    let mut folders = folders();
    let target = Target::find(&args.target, &folders)?;
    if let Target::Process(process) = target {
        folders.extend(absent::folder_of(process));
    }
    let live = target.live()?;
    let mut failures = Vec::new();
    for &process in &live {
        let asked = Client::find(&folders, process);
        match asked.and_then(|client| ask_with_note(&client, request, timeout)) {
            Ok(answer) => answered(&answer),
            Err(error) if error.is_no_socket() => failures.push(absent::reason(process)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    match (failures.pop(), live.len()) {
        (None, _) => Ok(target),
        (Some(failure), 1) => Err(Failure::Error(failure)),
        (Some(last), count) => {
            failures.iter().for_each(|failure| note(failure));
            note(&last);
            let failed = failures.len() + 1;
            Err(Failure::Error(format!("{failed} of {count} processes did not follow")))
        }
    }
}

/// Sends a request. After one second without an answer, a note names the process and the time
/// limit.
fn ask_with_note(client: &Client, request: &Request, timeout: Duration) -> Result<Answer, Error> {
    let (answered, answer) = mpsc::channel::<Infallible>();
    let pid = client.process().pid;
    let watch = move || {
        if answer.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let timeout = humantime::format_duration(timeout);
            note(&format!("waiting for process {pid}, at most {timeout} (--timeout)"));
        }
    };
    std::thread::scope(|scope| {
        // If the thread cannot be started, the note is omitted.
        let _watch =
            (timeout > PATIENCE).then(|| std::thread::Builder::new().spawn_scoped(scope, watch));
        let answer = client.ask(request.clone(), timeout);
        drop(answered);
        answer
    })
}

/// Runs `gpuprof on`, `off` and `mark`.
pub(crate) fn switch(args: &ControlArgs, request: &Request) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let asked = ask(args, request, |answer| {
        let already = match (request, answer.changed) {
            (Request::On | Request::Off, false) => ", as before",
            _ => "",
        };
        let done = match request {
            Request::Mark { .. } => "marked",
            _ => answer.process.state.name(),
        };
        lines.push(format!("{}: {done}{already}", process_label(&answer.process)));
    });
    write_lines(&lines)?;
    asked.map(drop)
}

/// Runs `gpuprof snapshot`.
pub(crate) fn snapshot(args: &ControlArgs, report: bool) -> Result<(), Failure> {
    let (mut lines, mut recordings) = (Vec::new(), Vec::new());
    let asked = ask(args, &Request::Snapshot, |answer| {
        let process = &answer.process;
        if !process.has_recording {
            lines.push(format!("{}: nothing is recorded until now", process_label(process)));
            return;
        }
        let path = Path::new(&answer.run).join(process.recording_name());
        let counts = process.counts;
        lines.push(format!(
            "{}: {} operations and {} ranges, {} bytes, readable until now: {}",
            process_label(process),
            counts.operations,
            counts.ranges,
            counts.bytes,
            path.display()
        ));
        recordings.push(path);
    });
    write_lines(&lines)?;
    let target = asked?;
    let read = match (&target, &recordings[..]) {
        (_, []) => return Ok(()),
        (Target::Process(_), [recording, ..]) => recording.as_path(),
        (Target::Run(folder), _) => folder.path(),
    };
    if report {
        let profile = input::profile(read)?;
        Output::Standard.write_in(true, |out| {
            writeln!(out)?;
            out.show(&profile)
        })?;
    }
    Ok(())
}

fn write_lines(lines: &[String]) -> Result<(), Failure> {
    Output::Standard.write_in(true, |out| {
        let mut lines = lines.iter();
        let written: io::Result<()> =
            lines.try_for_each(|line| writeln!(out, "{}", printable(line)));
        Ok(written?)
    })
}

/// Runs `gpuprof status`. For a run, processes that have ended are included.
pub(crate) fn status(args: &ControlArgs, json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    if let Ok(Target::Run(folder)) = Target::find(&args.target, &folders()) {
        let run = Some(folder.path().display().to_string());
        for process in folder.processes()?.found {
            let (id, run) = (process.id, run.clone());
            rows.push(Row { id, is_alive: false, run, process: Some(process), error: None });
        }
    }
    let has_open = |row: &Row| row.process.as_ref().is_some_and(|process| process.state.is_open());
    let asks = rows.is_empty() || rows.iter().any(|row| has_open(row) && row.id.is_alive());
    let asked = match asks {
        true => ask(args, &Request::Status, |answer| {
            let is_same = |row: &Row| {
                row.process.as_ref().is_some_and(|process| {
                    (process.id, process.image) == (answer.process.id, answer.process.image)
                })
            };
            rows.retain(|row| !is_same(row));
            rows.push(Row::new(answer.process.id, Ok(answer.clone())));
        })
        .map(drop),
        false => Ok(()),
    };
    for row in &rows {
        if let Some(reason) = row.process.as_ref().and_then(|process| process.reason.as_deref()) {
            note(&format!("process {}: {}", row.id.pid, printable(reason)));
        }
    }
    if !rows.is_empty() {
        Output::Standard.write_in(!json, |out| match json {
            true => write_json(out, &rows),
            false => Ok(writeln!(out, "{}", table(&rows, &COUNTS).render(out.layout))?),
        })?;
    }
    asked
}
