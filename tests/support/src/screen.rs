//! What a terminal shows of a program.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use unicode_width::UnicodeWidthStr as _;

/// Runs a command with a terminal of this width as its output and its messages; returns the text with `\n` as line
/// break, and whether the command succeeded.
pub fn on_terminal(command: &mut Command, columns: usize) -> (String, bool) {
    let terminal = openpty(None, None).unwrap();
    command
        .env("COLUMNS", columns.to_string())
        .env("TERM", "xterm")
        .stdout(terminal.slave.try_clone().unwrap())
        .stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // Its copies of the terminal's other end would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = File::from(terminal.master).read_to_end(&mut shown);
    let succeeds = child.wait().unwrap().success();
    (String::from_utf8(shown).unwrap().replace("\r\n", "\n"), succeeds)
}

/// Runs a command on a terminal that is gone once it shows this text. Waits for the command's end, up to a minute; it gets
/// no signal.
pub fn on_terminal_that_goes(command: &mut Command, text: &str) -> ExitStatus {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(Some(&size), None).unwrap();
    // A child that has it would keep it.
    fcntl(&terminal.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    let (input, output) =
        (terminal.slave.try_clone().unwrap(), terminal.slave.try_clone().unwrap());
    command.env("TERM", "xterm").stdin(input).stdout(output).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut screen, mut terminal) = (vt100::Parser::default(), File::from(terminal.master));
    while !screen.screen().contents().contains(text) {
        let mut bytes = [0; 4096];
        let count = terminal.read(&mut bytes).unwrap();
        screen.process(&bytes[..count]);
    }
    drop(terminal);
    ended_within_limit(&mut child).unwrap_or_else(|| {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it has not ended")
    })
}

/// Waits for the end of a program, up to a minute.
fn ended_within_limit(child: &mut Child) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// The longest wait for the end of a program.
const LIMIT: Duration = Duration::from_secs(60);

/// A program on a terminal of its own, and what the terminal shows.
pub struct Interactive {
    child: Child,
    terminal: File,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: Option<JoinHandle<()>>,
}

impl Interactive {
    /// Starts a command on a terminal of this size.
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).unwrap();
        let input = terminal.slave.try_clone().unwrap();
        let output = terminal.slave.try_clone().unwrap();
        command.env("TERM", "xterm").stdin(input).stdout(output).stderr(terminal.slave);
        let child = command.spawn().unwrap();
        // Its copies of the terminal's other end would keep it open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let terminal = File::from(terminal.master);
        let [rows, columns] = [rows, columns].map(|size| NonZero::new(size).unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut source, of_thread) = (terminal.try_clone().unwrap(), screen.clone());
        let reader = Some(std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                of_thread.lock().unwrap().process(&bytes[..count]);
            }
        }));
        Self { child, terminal, screen, reader }
    }

    /// The process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The text on the terminal now.
    pub fn contents(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the program's end, up to a minute. Returns its status, and the text on the terminal, which is as it was
    /// before.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = ended_within_limit(&mut self.child)
            .unwrap_or_else(|| panic!("it has not ended:\n{}", self.contents()));
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON), "{flags:?}");
        self.reader.take().map(JoinHandle::join).transpose().unwrap();
        let screen = self.screen.lock().unwrap();
        let screen = screen.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "the terminal is left as it is"
        );
        (status, screen.contents())
    }
}

/// Ends the program of a test that failed.
impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without the sequences of colours, which are the only ones there may be.
#[track_caller]
pub fn stripped(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        let (code, rest) = part.split_once('m').unwrap();
        assert!(matches!(code, "0" | "1" | "31" | "32" | "33"), "{code:?}");
        plain.push_str(rest);
    }
    // What goes on in a line of its own is indented.
    assert!(!plain.lines().any(|line| line.starts_with("INJECTED")), "{plain}");
    let is_control = |c: char| c.is_control() && c != '\n';
    assert!(!plain.contains(is_control), "{plain:?}");
    plain
}

#[track_caller]
pub fn fits(what: &str, text: &str, width: usize) {
    let long = text.lines().find(|line| line.width() > width);
    assert_eq!(long, None, "{what}");
}
