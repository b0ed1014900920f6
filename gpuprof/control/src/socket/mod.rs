//! The control socket of a live process: one request a connection, a line of JSON, answered by a
//! line of JSON.
//!
//! The socket is `PID-START.sock` in a [`Folder`] that its user alone can enter. Server and client
//! both check by the credentials of the kernel that the other end is of the same user; the client
//! also checks the pid.
//!
//! ```text
//! {"protocol":1,"request":"mark","text":"epoch 3"}
//! {"protocol":1,"answer":{"process":{...},"run":"/data/train.gpurun","changed":true}}
//! {"protocol":1,"error":"recording is off: switch it on first"}
//! ```

mod client;
mod folder;
mod server;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};
use crate::manifest::Process;

pub use client::{Client, Sockets, sockets};
pub use folder::Folder;
pub use server::{Server, Stopper};

/// The version of requests and answers.
pub const PROTOCOL: u32 = 1;
/// The longest text of a mark, in bytes.
pub const MAX_MARK: usize = 1024;

/// The longest request in bytes, with its line feed.
const MAX_REQUEST: usize = 8 << 10;
/// The longest answer in bytes. The socket's buffer takes it whole.
const MAX_ANSWER: usize = 64 << 10;

/// What a live process can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Request {
    /// Answers only.
    Status,
    /// Opens a window of recording.
    On,
    /// Closes the window of recording.
    Off,
    /// Records a mark.
    Mark {
        /// Its text, at most [`MAX_MARK`] bytes.
        text: String,
    },
    /// Writes everything that has finished to the recording before it answers.
    Snapshot,
}

impl Request {
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Mark { text } if text.len() > MAX_MARK => {
                Err(format!("the text of the mark has more than {MAX_MARK} bytes: shorten it"))
            }
            Self::Mark { text } if text.contains('\0') => {
                Err("the text of the mark contains a NUL".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The process after a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// Its manifest, up to date.
    pub process: Process,
    /// The absolute path of its run folder.
    pub run: String,
    /// Whether the request changed anything: false for `on` while recording is on.
    #[serde(default)]
    pub changed: bool,
}

impl Answer {
    /// An answer that changed nothing.
    pub fn new(process: Process, run: impl Into<String>) -> Self {
        Self { process, run: run.into(), changed: false }
    }
}

#[derive(Serialize, Deserialize)]
struct RequestLine {
    protocol: u32,
    #[serde(flatten)]
    request: Request,
}

#[derive(Serialize, Deserialize)]
struct AnswerLine {
    protocol: u32,
    #[serde(flatten)]
    result: Outcome,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    // Boxed: it is 300 bytes, an error 24.
    Answer(Box<Answer>),
    Error(String),
}

/// The version of a message, which is read before the rest.
#[derive(Deserialize)]
struct Versioned {
    protocol: u32,
}

/// A message as a line.
fn line(message: &impl Serialize, limit: usize) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    match line.len() <= limit {
        true => Ok(line),
        false => Err(format!("the message has more than {limit} bytes")),
    }
}

/// A message of this protocol from a line.
fn message<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, String> {
    let invalid = |error| format!("it is no message: {error}");
    let Versioned { protocol } = serde_json::from_slice(line).map_err(invalid)?;
    match protocol == PROTOCOL {
        true => serde_json::from_slice(line).map_err(invalid),
        false => Err(format!(
            "it has protocol {protocol} and this version of gpuprof has {PROTOCOL}: use the gpuprof that started the program"
        )),
    }
}

fn request_line(request: Request) -> Result<Vec<u8>, Error> {
    let checked = request.check();
    let written =
        checked.and_then(|()| line(&RequestLine { protocol: PROTOCOL, request }, MAX_REQUEST));
    written.map_err(|why| Error::new(Kind::Request(why)))
}
