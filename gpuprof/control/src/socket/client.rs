//! The client of the control sockets of live processes.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt, send, socket,
};
use nix::unistd::geteuid;

use super::{Answer, AnswerLine, Folder, MAX_ANSWER, Outcome, Request};
use crate::error::{Error, Kind};
use crate::manifest::Check as _;
use crate::process::ProcessId;

/// The delay before a client retries a socket with a full queue.
const RETRY: Duration = Duration::from_millis(5);

/// A live process with a socket.
#[derive(Debug)]
pub struct Client<'a> {
    folder: &'a Folder,
    process: ProcessId,
}

/// The live processes with a socket in these folders, and what could not be examined.
#[derive(Debug)]
#[non_exhaustive]
pub struct Sockets<'a> {
    /// One client per process.
    pub clients: Vec<Client<'a>>,
    /// The number of removed sockets whose processes had ended.
    pub removed: usize,
    /// The number of sockets of processes that are not visible here, such as those in another
    /// container.
    pub foreign: usize,
    /// Errors of folders and processes that cannot be read, and of stale sockets that cannot be
    /// removed.
    pub errors: Vec<Error>,
}

/// Finds the live processes with a socket, and removes the sockets of processes that have ended.
///
/// ```no_run
/// use std::time::Duration;
/// use gpuprof_control::socket::{Folder, Request, sockets};
///
/// let (folders, _unusable) = Folder::existing();
/// for client in sockets(&folders).clients {
///     let answer = client.ask(Request::Status, Duration::from_secs(2));
///     println!("{}: {answer:?}", client.process());
/// }
/// ```
pub fn sockets(folders: &[Folder]) -> Sockets<'_> {
    let mut sockets = Sockets { clients: Vec::new(), removed: 0, foreign: 0, errors: Vec::new() };
    for folder in folders {
        let processes = match folder.processes() {
            Ok(processes) => processes,
            Err(error) => {
                sockets.errors.push(error);
                continue;
            }
        };
        for process in processes {
            match ProcessId::from_pid(process.pid) {
                Ok(found) if found == process => {
                    sockets.clients.push(Client { folder, process });
                }
                Err(error) if !error.is_gone() => sockets.errors.push(error),
                // The server is in another pid namespace, where its process has another pid.
                _ if UnixStream::connect(folder.inner(process)).is_ok() => sockets.foreign += 1,
                // A pair of pid and start time never recurs, so no server can take this path later.
                _ => match fs::remove_file(folder.inner(process)) {
                    Ok(()) => sockets.removed += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let path = folder.socket(process);
                        sockets.errors.push(Error::io("remove", &path, error));
                    }
                },
            }
        }
    }
    sockets
}

impl<'a> Client<'a> {
    /// Creates a client of this process if a folder contains its socket.
    ///
    /// # Errors
    /// [`Error::is_no_socket`] without a socket.
    pub fn find(folders: &'a [Folder], process: ProcessId) -> Result<Self, Error> {
        let has_socket = |folder: &&Folder| folder.inner(process).symlink_metadata().is_ok();
        match folders.iter().find(has_socket) {
            Some(folder) => Ok(Self { folder, process }),
            None => Err(Error::new(Kind::NoSocket(process.pid))),
        }
    }

    /// The process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Sends a request and waits for the answer. Both together take at most this long.
    ///
    /// # Errors
    /// The predicates of [`Error`] distinguish them. The process has ended, has closed its socket,
    /// did not answer in time, or refused the request. The other end belongs to another user or
    /// process.
    pub fn ask(&self, request: Request, timeout: Duration) -> Result<Answer, Error> {
        let line = super::request_line(request)?;
        let deadline = Instant::now() + timeout;
        let stream = self.connected(deadline)?;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        // A send may fail because the server already answered. That answer contains the reason.
        let sent = send(stream.as_raw_fd(), &line, flags);
        let answer = self.received(&stream, deadline);
        match (sent, answer) {
            (Err(errno), Err(_)) => {
                Err(Error::io("send a request to", &self.folder.socket(self.process), errno))
            }
            (_, answer) => answer,
        }
    }

    fn connected(&self, deadline: Instant) -> Result<UnixStream, Error> {
        let path = self.folder.socket(self.process);
        let failed = |errno: Errno| Error::io("connect to", &path, errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
        let address = UnixAddr::new(&self.folder.inner(self.process)).map_err(failed)?;
        loop {
            match connect(socket.as_raw_fd(), &address) {
                Ok(()) => break,
                // The queue of the socket is full.
                Err(Errno::EAGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
                Err(Errno::EAGAIN) => return Err(Error::new(Kind::TimedOut(self.process.pid))),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOENT | Errno::ECONNREFUSED) => return Err(self.closed()),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let peer = getsockopt(&socket, PeerCredentials).map_err(failed)?;
        let (pid, uid) = (peer.pid(), peer.uid());
        let why = if uid != geteuid().as_raw() {
            format!("the other end belongs to user {uid}")
        } else if u32::try_from(pid) != Ok(self.process.pid) {
            format!("the other end is process {pid}")
        } else {
            let stream = UnixStream::from(socket);
            stream.set_nonblocking(false).map_err(|error| Error::io("connect to", &path, error))?;
            return Ok(stream);
        };
        Err(Error::new(Kind::Peer { pid: self.process.pid, why }))
    }

    fn closed(&self) -> Error {
        match self.process.is_alive() {
            true => Error::new(Kind::NoSocket(self.process.pid)),
            false => Error::new(Kind::Gone(format!("process {} has ended", self.process.pid))),
        }
    }

    fn received(&self, mut stream: &UnixStream, deadline: Instant) -> Result<Answer, Error> {
        let unreadable = |why: String| Error::new(Kind::Answer { pid: self.process.pid, why });
        let mut received = Vec::new();
        let mut bytes = [0; 4 << 10];
        let line = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(Kind::TimedOut(self.process.pid)));
            }
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut bytes));
            match read {
                Ok(0) if !self.process.is_alive() => return Err(self.closed()),
                Ok(0) => return Err(unreadable("it ends early".to_owned())),
                Ok(length) => received.extend_from_slice(&bytes[..length]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ if !self.process.is_alive() => return Err(self.closed()),
                    _ => return Err(unreadable(error.to_string())),
                },
            }
            match received.iter().position(|&byte| byte == b'\n') {
                Some(end) => break &received[..end],
                None if received.len() > MAX_ANSWER => {
                    return Err(unreadable(format!("it has more than {MAX_ANSWER} bytes")));
                }
                None => {}
            }
        };
        let AnswerLine { result, .. } = super::message(line).map_err(unreadable)?;
        match result {
            Outcome::Answer(answer) if answer.process.id == self.process => {
                answer.process.check().map_err(unreadable)?;
                Ok(*answer)
            }
            Outcome::Answer(answer) => {
                Err(unreadable(format!("it is about process {}", answer.process.id)))
            }
            Outcome::Error(why) => Err(Error::new(Kind::Refused { pid: self.process.pid, why })),
        }
    }
}
