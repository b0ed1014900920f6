//! The control socket server of this process.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, Shutdown, getsockopt, send, shutdown};
use nix::unistd::geteuid;
use profiler_base::kept::Kept;

use super::{
    Answer, AnswerLine, Folder, MAX_ANSWER, MAX_REQUEST, Outcome, PROTOCOL, Request, RequestLine,
};
use crate::{Error, ProcessId};

/// The time limit for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of clients served concurrently. Further clients wait in the queue of the
/// socket.
const MAX_CLIENTS: usize = 64;
/// The time for which no client is accepted after the system ran out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// The control socket of this process. The caller provides a thread that [serves](Self::serve) it.
///
/// Dropping the server or its [`Stopper`] closes and removes the socket. Dropping either in a
/// forked child has no effect.
#[derive(Debug)]
pub struct Server {
    socket: Arc<Socket>,
}

/// Ends [`Server::serve`] from any thread.
#[derive(Debug)]
pub struct Stopper(Arc<Socket>);

#[derive(Debug)]
struct Socket {
    listener: Kept<UnixListener>,
    folder: Folder,
    process: ProcessId,
    is_stopped: AtomicBool,
}

impl Server {
    /// Opens the socket of this process in the folder of its user.
    ///
    /// # Errors
    /// There is no usable [`Folder`], or the system refuses the socket.
    pub fn bind() -> Result<Self, Error> {
        Self::bind_in(Folder::create()?)
    }

    /// Opens the socket of this process in this folder. Replaces a socket that an earlier image of
    /// the process left behind before an exec.
    ///
    /// # Errors
    /// The process already serves its socket, or the system refuses the socket.
    pub fn bind_in(folder: Folder) -> Result<Self, Error> {
        let process = ProcessId::current()?;
        let (inner, path) = (folder.inner(process), folder.socket(process));
        let failed = |error| Error::io("open the control socket", &path, error);
        if UnixStream::connect(&inner).is_ok() {
            return Err(Error::path(&path, "is already served by this process"));
        }
        match fs::remove_file(&inner) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&inner).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = Kept::new(listener).map_err(failed)?;
        let is_stopped = AtomicBool::new(false);
        Ok(Self { socket: Arc::new(Socket { listener, folder, process, is_stopped }) })
    }

    /// The path of the socket.
    pub fn path(&self) -> PathBuf {
        self.socket.folder.socket(self.socket.process)
    }

    /// Returns a handle that ends [`serve`](Self::serve).
    pub fn stopper(&self) -> Stopper {
        Stopper(self.socket.clone())
    }

    /// Answers requests on the calling thread until a [`Stopper`] ends it. The thread sleeps while
    /// there are no clients and raises no SIGPIPE. The handler receives one request at a time; its
    /// error is sent to the client as text.
    ///
    /// # Errors
    /// The system cannot wait for clients. An error of one client ends only that connection.
    pub fn serve(
        &self,
        mut handler: impl FnMut(Request) -> Result<Answer, String>,
    ) -> Result<(), Error> {
        let mut clients: Vec<Client> = Vec::new();
        let mut pause_until: Option<Instant> = None;
        while !self.socket.is_stopped.load(Ordering::Acquire) {
            let Some(listener) = self.socket.listener.get() else {
                let why = "is served no more: the program closed its descriptor";
                return Err(Error::path(&self.path(), why));
            };
            let now = Instant::now();
            clients.retain(|client| client.deadline > now);
            pause_until = pause_until.filter(|until| *until > now);
            let accepts = clients.len() < MAX_CLIENTS && pause_until.is_none();
            let wake = clients.iter().map(|client| client.deadline).chain(pause_until).min();
            clients.retain(|client| client.stream.get().is_some());
            let ready = self.wait(listener, &clients, accepts, wake)?;
            let mut ready = ready.into_iter();
            let has_new = ready.next().unwrap_or(false) && accepts;
            clients.retain_mut(|client| {
                !ready.next().unwrap_or(false) || client.receive(&mut handler)
            });
            if has_new {
                match self.accept(listener) {
                    Accepted::Client(client) => clients.push(client),
                    Accepted::Nobody => {}
                    Accepted::Exhausted => pause_until = Some(Instant::now() + PAUSE),
                }
            }
        }
        Ok(())
    }

    /// Returns the readiness of the listener, then of each client.
    fn wait(
        &self,
        listener: &UnixListener,
        clients: &[Client],
        accepts: bool,
        wake: Option<Instant>,
    ) -> Result<Vec<bool>, Error> {
        // Even without flags, poll reports that the listener was shut down.
        let flags = if accepts { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut polled = vec![PollFd::new(listener.as_fd(), flags)];
        let streams =
            clients.iter().filter_map(|client| client.stream.get()).map(UnixStream::as_fd);
        polled.extend(streams.map(|stream| PollFd::new(stream, PollFlags::POLLIN)));
        let timeout = wake.map_or(Ok(PollTimeout::NONE), |wake| {
            // Round up so that the deadline has passed when poll returns.
            let left = wake.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            left.try_into()
        });
        match poll(&mut polled, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) => Ok(polled.iter().map(|polled| polled.any().unwrap_or(true)).collect()),
            Err(Errno::EINTR) => Ok(Vec::new()),
            Err(errno) => Err(Error::io("wait for clients of", &self.path(), errno)),
        }
    }

    fn accept(&self, listener: &UnixListener) -> Accepted {
        // The program may have closed the descriptor while this thread waited.
        if self.socket.listener.get().is_none() {
            return Accepted::Nobody;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
                let exhausted = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
                return match exhausted.contains(&errno) {
                    true => Accepted::Exhausted,
                    false => Accepted::Nobody,
                };
            }
        };
        if stream.set_nonblocking(true).is_err() {
            return Accepted::Nobody;
        }
        let peer = getsockopt(&stream, PeerCredentials).map(|peer| peer.uid());
        if peer != Ok(geteuid().as_raw()) {
            let why = "the process belongs to another user".to_owned();
            answer(&stream, Outcome::Error(why));
            return Accepted::Nobody;
        }
        let Ok(stream) = Kept::new(stream) else { return Accepted::Nobody };
        Accepted::Client(Client {
            stream,
            received: Vec::new(),
            deadline: Instant::now() + PATIENCE,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.socket.stop();
    }
}

impl Stopper {
    /// Ends [`Server::serve`] after the request in progress, and removes the socket.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Socket {
    fn stop(&self) {
        // A forked child shares the socket with its parent.
        let is_own = std::process::id() == self.process.pid;
        if is_own && !self.is_stopped.swap(true, Ordering::AcqRel) {
            let _: io::Result<()> = fs::remove_file(self.folder.inner(self.process));
            if let Some(listener) = self.listener.get() {
                let _: Result<(), Errno> = shutdown(listener.as_raw_fd(), Shutdown::Both);
            }
        }
    }
}

enum Accepted {
    Client(Client),
    Nobody,
    /// The process or the system is out of descriptors or memory.
    Exhausted,
}

struct Client {
    stream: Kept<UnixStream>,
    received: Vec<u8>,
    deadline: Instant,
}

impl Client {
    /// Reads the available bytes and answers a complete request. Returns false if the client is
    /// finished.
    fn receive(&mut self, handler: &mut impl FnMut(Request) -> Result<Answer, String>) -> bool {
        let mut bytes = [0; 1 << 10];
        let Some(mut stream) = self.stream.get() else { return false };
        loop {
            let length = match stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(length) => length,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::Interrupted => continue,
                    _ => return false,
                },
            };
            self.received.extend_from_slice(&bytes[..length]);
            let line = self.received.split(|&byte| byte == b'\n').next();
            let line = line.filter(|line| line.len() < self.received.len());
            let request = match line {
                Some(line) if line.len() < MAX_REQUEST => super::message(line),
                None if self.received.len() < MAX_REQUEST => continue,
                _ => Err(format!("it has more than {MAX_REQUEST} bytes")),
            };
            let request = request.and_then(|RequestLine { request, .. }| {
                request.check()?;
                Ok(request)
            });
            let outcome = match request {
                Ok(request) => handler(request),
                Err(why) => Err(format!("the request is invalid: {why}")),
            };
            let outcome = outcome.map(Box::new).map_or_else(Outcome::Error, Outcome::Answer);
            if let Some(stream) = self.stream.get() {
                answer(stream, outcome);
            }
            return false;
        }
    }
}

/// Sends an answer. A client that does not read loses the answer.
fn answer(stream: &UnixStream, result: Outcome) {
    let answered = AnswerLine { protocol: PROTOCOL, result };
    let line = super::line(&answered, MAX_ANSWER).or_else(|why| {
        super::line(&AnswerLine { protocol: PROTOCOL, result: Outcome::Error(why) }, MAX_ANSWER)
    });
    let line = line.unwrap_or_default();
    let mut rest = &line[..];
    while !rest.is_empty() {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(stream.as_raw_fd(), rest, flags) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
