//! Sends the requests of keys to processes.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use gpuprof_control::ProcessId;
use gpuprof_control::socket::{Answer, Client, Folder, Request};
use profiler_base::units::bytes;

use super::news::News;
use crate::control::folder_of;

/// The time that each process may take: a stop waits for its GPU.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A request, and the processes that it is for.
pub(super) type Submission = (Request, Vec<ProcessId>);

/// Sends requests until the screen is gone. After each one the run is read again.
pub(super) fn serve(requested: &Receiver<Submission>, news: &Sender<News>, look: &Sender<()>) {
    for (request, processes) in requested {
        let (mut folders, _) = Folder::existing();
        // A process may have another folder of sockets.
        folders.extend(processes.iter().filter_map(|process| folder_of(*process)));
        let answers = processes.iter().map(|&process| {
            let client = Client::find(&folders, process);
            client.and_then(|client| client.ask(request.clone(), TIMEOUT))
        });
        let answers = answers.map(|answer| answer.map_err(|error| error.to_string()));
        let answer = summary(&request, &answers.collect::<Vec<_>>());
        if news.send(News::Answered(answer)).is_err() || look.send(()).is_err() {
            return;
        }
    }
}

/// All answers as one line.
fn summary(request: &Request, answers: &[Result<Answer, String>]) -> Result<String, String> {
    let errors: Vec<&String> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    match errors[..] {
        [] => {}
        [error] if answers.len() == 1 => return Err(error.clone()),
        [error, ..] => {
            return Err(format!("{} of {} failed: {error}", errors.len(), answers.len()));
        }
    }
    let answers: Vec<&Answer> = answers.iter().flatten().collect();
    let processes = match answers.len() {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    Ok(match request {
        Request::On => format!("recording: {processes}"),
        Request::Off => format!("stopped: {processes}"),
        Request::Mark { text } => format!("marked: {text} ({processes})"),
        Request::Snapshot => {
            let size = answers.iter().map(|answer| answer.process.counts.bytes).sum();
            let run = answers.first().map_or("", |answer| answer.run.as_str());
            format!("written: {} of {processes} in {run}", bytes(size))
        }
        other => format!("{other:?}: {processes}"),
    })
}

#[cfg(test)]
mod tests {
    use gpuprof_control::manifest::Process;

    use super::*;

    #[test]
    fn answers_of_all_processes_are_one_line() {
        let mut process = Process::current().unwrap();
        process.counts.bytes = 2_000_000;
        let answer = || Ok(Answer::new(process.clone(), "/data/job"));
        let refused = || Err("process 7 refused the request".to_owned());
        let mark = Request::Mark { text: "epoch 3".to_owned() };
        assert_eq!(summary(&mark, &[answer()]), Ok("marked: epoch 3 (1 process)".to_owned()));
        let written = summary(&Request::Snapshot, &[answer(), answer()]).unwrap();
        assert_eq!(written, format!("written: {} of 2 processes in /data/job", bytes(4_000_000)));
        assert_eq!(
            summary(&Request::On, &[refused()]),
            Err("process 7 refused the request".to_owned())
        );
        let some = summary(&Request::Off, &[answer(), refused(), refused()]);
        assert_eq!(some, Err("2 of 3 failed: process 7 refused the request".to_owned()));
    }
}
