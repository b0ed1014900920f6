//! What a terminal shows of a program.

use std::fs;
use std::io::Read as _;
use std::process::Command;

use unicode_width::UnicodeWidthStr as _;

/// Runs a command with a terminal of this width as its output and its messages; returns the text with `\n` as line
/// break, and whether the command succeeded.
pub fn on_terminal(command: &mut Command, columns: usize) -> (String, bool) {
    let terminal = nix::pty::openpty(None, None).unwrap();
    command
        .env("COLUMNS", columns.to_string())
        .env("TERM", "xterm")
        .stdout(terminal.slave.try_clone().unwrap())
        .stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    // Its copies of the terminal's other end would keep it open.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = fs::File::from(terminal.master).read_to_end(&mut shown);
    let succeeds = child.wait().unwrap().success();
    (String::from_utf8(shown).unwrap().replace("\r\n", "\n"), succeeds)
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
