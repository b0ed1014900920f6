//! Server and client together.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::ProcessId;
use crate::manifest::State;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A folder for sockets.
struct Sandbox {
    path: PathBuf,
}

impl Sandbox {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("gpuprof-sockets-{pid}-{number}"));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self { path }
    }

    fn folder(&self) -> Folder {
        Folder::open(&self.path).unwrap()
    }

    /// Serves while `clients` runs, which gets the path of the socket.
    fn serve<T>(
        &self,
        handler: impl FnMut(Request) -> Result<Answer, String> + Send,
        clients: impl FnOnce(&Path) -> T,
    ) -> T {
        let server = Server::bind_in(self.folder()).unwrap();
        let (path, stopper) = (server.path(), server.stopper());
        std::thread::scope(|scope| {
            let served = scope.spawn(move || server.serve(handler));
            // A failed assertion must not leave the server running.
            let result = catch_unwind(AssertUnwindSafe(|| clients(&path)));
            stopper.stop();
            served.join().unwrap().unwrap();
            assert!(!path.exists());
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn ask(&self, request: Request) -> Result<Answer, Error> {
        let folders = [self.folder()];
        Client::find(&folders, ProcessId::current()?)?.ask(request, TIMEOUT)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn answered() -> Answer {
    Answer::new(Process::current().unwrap(), "/data/train.gpurun")
}

/// Switches a recording on and off, and refuses marks while it is off.
fn switch() -> impl FnMut(Request) -> Result<Answer, String> {
    let mut answer = answered();
    move |request| {
        let before = answer.process.state;
        match request {
            Request::On => answer.process.set_state(State::Recording, None),
            Request::Off => answer.process.set_state(State::Paused, None),
            Request::Mark { text } if before == State::Recording => {
                answer.process.set_state(before, Some(&text));
            }
            Request::Mark { .. } => return Err("recording is off".to_owned()),
            _ => {}
        }
        answer.changed = answer.process.state != before;
        Ok(answer.clone())
    }
}

fn raw(path: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    let _ = stream.write_all(request);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn requests_are_answered_and_refusals_have_their_reason() {
    let sandbox = Sandbox::new();
    sandbox.serve(switch(), |_| {
        let ask = |request| sandbox.ask(request);
        let mark = Request::Mark { text: "epoch \"3\"\n\u{e4}".to_owned() };
        let refused = ask(mark.clone()).unwrap_err();
        assert!(refused.to_string().ends_with("refused the request: recording is off"));
        let on = ask(Request::On).unwrap();
        assert_eq!((on.process.state, on.changed), (State::Recording, true));
        assert!(!ask(Request::On).unwrap().changed);
        let marked = ask(mark).unwrap();
        assert_eq!(marked.process.reason.as_deref(), Some("epoch \"3\"\n\u{e4}"));
        assert_eq!(marked.run, "/data/train.gpurun");
        assert!(ask(Request::Off).unwrap().changed);
        assert_eq!(ask(Request::Snapshot).unwrap().process.state, State::Paused);
        let long = ask(Request::Mark { text: "x".repeat(MAX_MARK + 1) }).unwrap_err();
        assert!(long.to_string().contains("shorten it"), "{long}");
    });
    assert!(sandbox.ask(Request::Status).unwrap_err().is_no_socket());
}

#[test]
fn control_characters_fit_into_a_request() {
    let sandbox = Sandbox::new();
    sandbox.serve(
        |_| Ok(answered()),
        |_| sandbox.ask(Request::Mark { text: "\u{1}".repeat(MAX_MARK) }).unwrap(),
    );
}

#[test]
fn invalid_and_oversized_requests_get_an_error() {
    let sandbox = Sandbox::new();
    sandbox.serve(switch(), |path| {
        for (request, why) in [
            (b"{}\n".to_vec(), "it is no message"),
            (b"\xff\xfe\n".to_vec(), "it is no message"),
            (b"{\"protocol\":1,\"request\":\"explode\"}\n".to_vec(), "unknown variant"),
            (b"{\"protocol\":2,\"request\":\"status\"}\n".to_vec(), "it has protocol 2"),
            (vec![b' '; MAX_REQUEST], "it has more than"),
            (vec![b'x'; 1 << 20], "it has more than"),
            (["{".repeat(MAX_REQUEST).as_bytes(), b"\n"].concat(), "it has more than"),
            (
                format!(
                    "{{\"protocol\":1,\"request\":\"mark\",\"text\":{:?}}}\n",
                    "x".repeat(MAX_MARK + 1)
                )
                .into_bytes(),
                "shorten it",
            ),
        ] {
            let answer = raw(path, &request);
            assert!(
                answer.starts_with("{\"protocol\":1,\"error\":") && answer.contains(why),
                "{answer}"
            );
        }
        // With an addition of a newer version, and in parts.
        let mut stream = UnixStream::connect(path).unwrap();
        for part in ["{\"protocol\":1,\"mood\":", "0,\"request\":\"on\"", "}\nand more"] {
            stream.write_all(part.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.contains("\"changed\":true"), "{answer}");
    });
}

#[test]
fn silent_clients_are_closed_without_delaying_others() {
    let sandbox = Sandbox::new();
    sandbox.serve(switch(), |path| {
        let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(path).unwrap()).collect();
        sandbox.ask(Request::Status).unwrap();
        for mut stream in silent {
            assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
        }
    });
}

#[test]
fn hundred_clients_are_answered_beside_silent_ones() {
    let sandbox = Sandbox::new();
    let mut handled = 0;
    sandbox.serve(
        |_| {
            handled += 1;
            Ok(answered())
        },
        |path| {
            let _silent: Vec<_> = (0..100).map(|_| UnixStream::connect(path).unwrap()).collect();
            std::thread::scope(|scope| {
                let clients: Vec<_> =
                    (0..100).map(|_| scope.spawn(|| sandbox.ask(Request::Status))).collect();
                for client in clients {
                    assert_eq!(client.join().unwrap().unwrap().process.id.pid, std::process::id());
                }
            });
        },
    );
    assert_eq!(handled, 100);
}

#[test]
fn client_that_disconnects_early_is_ignored() {
    let sandbox = Sandbox::new();
    sandbox.serve(switch(), |path| {
        for _ in 0..50 {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"protocol\":1,\"request\":\"status\"}\n").unwrap();
        }
        sandbox.ask(Request::Status).unwrap();
    });
}

#[test]
fn a_process_that_does_not_answer_times_out() {
    let sandbox = Sandbox::new();
    // Nobody serves it.
    let _server = Server::bind_in(sandbox.folder()).unwrap();
    let folders = [sandbox.folder()];
    let client = Client::find(&folders, ProcessId::current().unwrap()).unwrap();
    let error = client.ask(Request::Status, Duration::from_millis(100)).unwrap_err();
    assert!(error.to_string().contains("did not answer in time"), "{error}");
}

#[test]
fn one_server_serves_a_process_and_a_socket_left_by_an_exec_is_replaced() {
    let sandbox = Sandbox::new();
    let process = ProcessId::current().unwrap();
    let path = sandbox.folder().socket(process);
    drop(UnixListener::bind(&path).unwrap());
    assert!(sandbox.ask(Request::Status).unwrap_err().is_no_socket());
    sandbox.serve(switch(), |path| {
        let error = Server::bind_in(sandbox.folder()).unwrap_err().to_string();
        assert!(error.contains("already served"), "{error}");
        assert!(path.exists());
        sandbox.ask(Request::Status).unwrap();
    });
}

#[test]
fn stop_before_serve_ends_the_server_at_once() {
    let sandbox = Sandbox::new();
    let server = Server::bind_in(sandbox.folder()).unwrap();
    server.stopper().stop();
    server.serve(|_| unreachable!()).unwrap();
}

#[test]
fn sockets_of_ended_processes_and_reused_pids_are_removed() {
    let sandbox = Sandbox::new();
    let folder = sandbox.folder();
    let own = ProcessId::current().unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let ended = ProcessId { pid: child.id(), start: own.start };
    child.wait().unwrap();
    let reused = ProcessId { start: own.start - 1, ..own };
    for stale in [ended, reused] {
        drop(UnixListener::bind(folder.socket(stale)).unwrap());
    }
    // A listener that nobody of this pid namespace is: that of a container that shares the folder.
    let foreign = ProcessId { start: own.start - 2, ..own };
    let _foreign = UnixListener::bind(folder.socket(foreign)).unwrap();
    fs::write(sandbox.path.join("unrelated"), "").unwrap();
    sandbox.serve(switch(), |_| {
        let folders = [sandbox.folder()];
        let found = sockets(&folders);
        let processes: Vec<_> = found.clients.iter().map(Client::process).collect();
        assert_eq!((processes, found.removed, found.foreign), (vec![own], 2, 1));
        assert!(found.errors.is_empty(), "{:?}", found.errors);
        assert_eq!(folders[0].processes().unwrap(), [foreign, own]);
        found.clients[0].ask(Request::Status, TIMEOUT).unwrap();
    });
    assert!(sandbox.path.join("unrelated").exists());
}

#[test]
fn another_process_behind_the_socket_is_refused() {
    let sandbox = Sandbox::new();
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let other = ProcessId::from_pid(child.id()).unwrap();
    let _impostor = UnixListener::bind(sandbox.folder().socket(other)).unwrap();
    let folders = [sandbox.folder()];
    let client = Client::find(&folders, other).unwrap();
    let error = client.ask(Request::Status, TIMEOUT).unwrap_err().to_string();
    assert!(error.contains(&format!("the other end is process {}", std::process::id())), "{error}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn an_answer_of_a_hostile_server_is_an_error() {
    let sandbox = Sandbox::new();
    let process = ProcessId::current().unwrap();
    let listener = UnixListener::bind(sandbox.folder().socket(process)).unwrap();
    let mut other = answered();
    other.process.id.pid += 1;
    let other = AnswerLine { protocol: PROTOCOL, result: Outcome::Answer(Box::new(other)) };
    let other = [serde_json::to_vec(&other).unwrap(), b"\n".to_vec()].concat();
    for (answer, why) in [
        (Vec::new(), "it ends early"),
        (b"{\"protocol\":1".to_vec(), "it ends early"),
        (b"{\"protocol\":1}\n".to_vec(), "it is no message"),
        (b"{\"protocol\":7,\"answer\":1}\n".to_vec(), "it has protocol 7"),
        (other, "it is about process"),
        (vec![b' '; 1 << 20], "it has more than"),
    ] {
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; MAX_REQUEST]).unwrap();
                let _ = stream.write_all(&answer);
            });
            sandbox.ask(Request::Status).unwrap_err().to_string()
        });
        assert!(error.contains("an answer that cannot be read") && error.contains(why), "{error}");
    }
}

/// The variable with the socket for [`client_of_another_user`].
const SOCKET: &str = "GPUPROF_TEST_SOCKET";

#[test]
fn another_user_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let sandbox = Sandbox::new();
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    // The folder is opened to them for the sake of the test.
    let program = sandbox.path.join("client");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut handled = 0;
    let output = sandbox.serve(
        |_| {
            handled += 1;
            Ok(answered())
        },
        |path| {
            open(&sandbox.path, 0o711);
            open(path, 0o777);
            let mut client = Command::new(&program);
            client.args(["--ignored", "--exact", "socket::tests::client_of_another_user"]);
            client.uid(65_534).gid(65_534).env(SOCKET, path).current_dir("/").output().unwrap()
        },
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    assert_eq!(handled, 0);
}

#[test]
#[ignore = "runs as another user in a process of `another_user_is_refused`"]
fn client_of_another_user() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    assert!(!nix::unistd::geteuid().is_root());
    let answer = raw(path.as_ref(), b"{\"protocol\":1,\"request\":\"on\"}\n");
    assert!(answer.contains("belongs to another user"), "{answer}");
}
