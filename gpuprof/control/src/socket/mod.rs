//! The control socket of a live process. Each connection carries one request and one answer, each
//! as a line of JSON.
//!
//! The socket is `PID-START.sock` in a [`Folder`] that only its user can enter. Server and client
//! both check the kernel's credentials: the other end must belong to the same user. The client also
//! checks the pid.
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

/// The version of the request and answer format.
pub const PROTOCOL: u32 = 1;
/// The maximum length of the text of a mark, in bytes.
pub const MAX_MARK: usize = 1024;

/// The maximum length of a request in bytes, including its line feed.
const MAX_REQUEST: usize = 8 << 10;
/// The maximum length of an answer in bytes. The socket's buffer holds a whole answer.
const MAX_ANSWER: usize = 64 << 10;

/// A request to a live process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Request {
    /// Returns the manifest and changes nothing.
    Status,
    /// Opens a recording window.
    On,
    /// Closes the recording window.
    Off,
    /// Records a mark.
    Mark {
        /// The text of the mark, at most [`MAX_MARK`] bytes.
        text: String,
    },
    /// Writes everything that has completed to the recording before answering.
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

/// The answer to a request, with the state after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The current manifest of the process.
    pub process: Process,
    /// The absolute path of its run folder.
    pub run: String,
    /// True if the request changed the state; false for `on` while recording is on.
    #[serde(default)]
    pub changed: bool,
}

impl Answer {
    /// Creates an answer to a request that changed nothing.
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
    // Boxed because an answer has 300 bytes and an error 24.
    Answer(Box<Answer>),
    Error(String),
}

/// The version of a message, read before the rest.
#[derive(Deserialize)]
struct Versioned {
    protocol: u32,
}

/// Serializes a message as a line.
fn line(message: &impl Serialize, limit: usize) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
    line.push(b'\n');
    match line.len() <= limit {
        true => Ok(line),
        false => Err(format!("the message has more than {limit} bytes")),
    }
}

/// Parses a message of this protocol from a line.
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
