//! Identification of a process, safe against reuse of its pid.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};

/// The identity of a process: its pid and its start time. A later process with the same pid has
/// another start time.
///
/// Fork creates a new identity; exec preserves it. As text, `PID-START`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id in the pid namespace of the reader of `/proc`.
    pub pid: u32,
    /// The start time in clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start: u64,
}

/// The field of `/proc/PID/stat` with the state: the first field after the name.
const STATE_FIELD: usize = 3;
const START_FIELD: usize = 22;

impl ProcessId {
    /// The identity of this process.
    ///
    /// # Errors
    /// `/proc/self/stat` cannot be read.
    pub fn current() -> Result<Self, Error> {
        Self::from_pid(std::process::id())
    }

    /// The identity of the live process with this pid.
    ///
    /// # Errors
    /// [`Error::is_gone`] if no such process exists or it is a zombie. Otherwise `/proc/PID/stat`
    /// cannot be read.
    pub fn from_pid(pid: u32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/stat");
        let stat = match fs::read(&path) {
            Ok(stat) => stat,
            Err(error) if is_gone(&error) => {
                return Err(Error::new(Kind::Gone(format!("there is no process {pid}"))));
            }
            Err(error) => return Err(Error::io("read", path.as_ref(), error)),
        };
        match parsed(&stat) {
            Some((b'Z' | b'X', _)) => {
                Err(Error::new(Kind::Gone(format!("process {pid} has ended"))))
            }
            Some((_, start)) => Ok(Self { pid, start }),
            None => Err(Error::path(path.as_ref(), "has no start time")),
        }
    }

    /// True while exactly this process is alive; false for a zombie and for another process with
    /// its pid.
    pub fn is_alive(self) -> bool {
        Self::from_pid(self.pid).is_ok_and(|found| found == self)
    }
}

/// True for an error that means the process has ended. ESRCH occurs if it ends between open and
/// read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// Parses the state and the start time. The name that precedes them may contain spaces and
/// parentheses.
fn parsed(stat: &[u8]) -> Option<(u8, u64)> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    let start = fields.nth(START_FIELD - STATE_FIELD - 1)?.parse().ok()?;
    Some((state, start))
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.start)
    }
}

impl FromStr for ProcessId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts =
            text.split_once('-').and_then(|(pid, start)| Some((number(pid)?, number(start)?)));
        let parsed = parts.and_then(|(pid, start)| Some(Self { pid: pid.try_into().ok()?, start }));
        parsed.ok_or_else(|| Error::new(Kind::Request(format!("{text:?} is not PID-START"))))
    }
}

/// Parses a number in the format of [`Display`](fmt::Display): no sign, no leading zeros.
pub(crate) fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn names_with_spaces_and_parentheses_are_skipped() {
        let stat = |name: &str| {
            format!("7 ({name}) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n")
        };
        for name in ["sh", "a b", ") S 1 2", "((", ")"] {
            assert_eq!(parsed(stat(name).as_bytes()), Some((b'S', 4711)), "{name}");
        }
        for bad in
            ["", "7 (sh", "7 (sh) S 1 2", "7 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x"]
        {
            assert_eq!(parsed(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn zombie_process_counts_as_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = ProcessId::from_pid(child.id()).unwrap();
        assert!(id.is_alive());
        assert!(!ProcessId { start: id.start + 1, ..id }.is_alive());
        drop(child.stdin.take());
        while id.is_alive() {
            std::thread::yield_now();
        }
        assert!(ProcessId::from_pid(id.pid).unwrap_err().is_gone());
        child.wait().unwrap();
        assert!(ProcessId::from_pid(id.pid).unwrap_err().is_gone());
    }

    #[test]
    fn text_round_trips_and_other_texts_are_refused() {
        let id = ProcessId::current().unwrap();
        assert_eq!(id.to_string().parse::<ProcessId>().unwrap(), id);
        assert_eq!(id.pid, std::process::id());
        for bad in ["", "1", "1-", "-1", "+1-2", "1-2-3", "01-2", "1 -2", "4294967296-1"] {
            assert!(bad.parse::<ProcessId>().is_err(), "{bad}");
        }
    }
}
