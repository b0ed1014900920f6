//! Files that a test runs. A child writes them: a file that is open for writing cannot be run, and a
//! process that another test starts inherits for a moment what this process has open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().unwrap();
    assert!(status.success(), "{}", to.as_ref().display());
}

pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>, mode: u32) {
    let path = path.as_ref();
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap();
    copy(&draft, path);
    fs::remove_file(draft).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
