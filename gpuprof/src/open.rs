//! `open`: shows a profile in the browser, as a page or in a viewer that fetches it from this
//! machine.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profiler_analysis::Format;
use profiler_analysis::formats::Export;
use profiler_analysis::prelude::*;
use profiler_core::Profile;

use crate::args::OpenArgs;
use crate::failure::Failure;
use crate::input::{self, note_losses};
use crate::message::note;
use crate::output::{Output, private_folder, standard};

/// The only local port from which ui.perfetto.dev may fetch.
const PERFETTO_PORT: u16 = 9001;
const PERFETTO: &str = "https://ui.perfetto.dev";
const FIREFOX: &str = "https://profiler.firefox.com";
/// The time limit for a viewer to fetch its file.
const FETCH_TIMEOUT: Duration = Duration::from_mins(2);
/// The time limit for a connection to send its request. Meanwhile the browser's actual request may
/// wait. Browsers send a request at once, or open a connection for later use.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of a request's head, in bytes.
const LONGEST_REQUEST: u64 = 1 << 14;

pub(crate) fn open(args: &OpenArgs) -> Result<(), Failure> {
    let profile = input::profile(&args.file)?;
    note_losses(&args.file, &profile);
    if args.perfetto {
        return hand_over(&profile, Format::Perfetto, PERFETTO_PORT, |url| {
            (PERFETTO, format!("{PERFETTO}/#!/?url={url}"))
        });
    }
    if args.firefox {
        return hand_over(&profile, Format::Firefox, 0, |url| {
            let url = url.replace(':', "%3A").replace('/', "%2F");
            (FIREFOX, format!("{FIREFOX}/from-url/{url}"))
        });
    }
    let path = match &args.output {
        Some(path) => path.clone(),
        None => private_folder("the page", "name a file with -o")?.join(page_name(&args.file)),
    };
    Output::new(Some(path.clone()), &[&args.file])?.write(|out| Ok(profile.write_html(out)?))?;
    let path = path.canonicalize().unwrap_or(path);
    start_browser(&path.display().to_string())?;
    print_line(&path.display().to_string())
}

fn page_name(file: &Path) -> PathBuf {
    let stem = file.file_stem().filter(|stem| *stem != "-");
    PathBuf::from(stem.unwrap_or("profile".as_ref())).with_added_extension("html")
}

/// Starts the browser, or notes that no browser was found.
fn start_browser(target: &str) -> Result<(), Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    // Without a display xdg-open would start a browser in the terminal.
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"];
    let opened = match cfg!(not(target_os = "linux")) || has_display.into_iter().any(is_set) {
        true => open::that_detached(target).map_err(|error| error.to_string()),
        false => Err("there is no display".to_owned()),
    };
    if let Err(why) = opened {
        note(&format!("no browser was started ({why}): open this in one"));
    }
    Ok(())
}

fn print_line(line: &str) -> Result<(), Failure> {
    let mut out = standard()?;
    writeln!(out, "{}", profiler_base::text::printable(line))?;
    Ok(out.flush()?)
}

/// Opens a viewer in the browser and serves the profile to it once.
fn hand_over(
    profile: &Profile,
    format: Format,
    port: u16,
    viewer: impl Fn(&str) -> (&'static str, String),
) -> Result<(), Failure> {
    let mut content = Vec::new();
    profile.export(Export::new(format), &mut content)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
        Failure::Error(format!(
            "cannot serve the profile on port {port} of this machine: {error}; end the program \
             that uses the port, or write a file with `gpuprof convert` and open that in the \
             viewer"
        ))
    })?;
    let port = listener.local_addr()?.port();
    // A random path prevents other programs of this machine from fetching the profile.
    let secret = secret()?;
    let path = format!("/{secret}.{}", format.extension());
    let (origin, url) = viewer(&format!("http://127.0.0.1:{port}{path}"));
    start_browser(&url)?;
    print_line(&url)?;
    serve(
        &listener,
        &Served { path: &path, origin, content: &content },
        Instant::now() + FETCH_TIMEOUT,
    )
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).map_err(
        |error| Failure::Error(format!("could not read random numbers from /dev/urandom: {error}")),
    )?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file that one web origin may fetch.
struct Served<'s> {
    path: &'s str,
    origin: &'s str,
    content: &'s [u8],
}

/// Answers requests until the file has been fetched.
fn serve(listener: &TcpListener, served: &Served<'_>, until: Instant) -> Result<(), Failure> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            // Ignore errors, because a browser may drop connections that it does not need.
            Ok((stream, _)) => {
                let asked = Instant::now() + REQUEST_TIMEOUT;
                if matches!(served.answer(&stream, asked.min(until), until), Ok(true)) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= until {
                    return Err(Failure::Error(format!(
                        "no browser fetched the profile within {} s: open the printed address at \
                         once, or write a file with `gpuprof convert`",
                        FETCH_TIMEOUT.as_secs()
                    )));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(Failure::Error(format!("cannot serve the profile: {error}"))),
        }
    }
}

impl Served<'_> {
    /// Answers one request. The request must arrive before `asked`, and the client must read the
    /// answer before `sent`. Returns true if the whole file was sent.
    fn answer(&self, stream: &TcpStream, asked: Instant, sent: Instant) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        let stream = Until { stream, until: asked };
        let mut lines = BufReader::new(stream.take(LONGEST_REQUEST)).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next(), words.next());
        let is_file = path.and_then(|path| path.split('?').next()) == Some(self.path);
        let (status, body) = match (method, is_file) {
            (Some("OPTIONS"), true) => ("204 No Content", &[][..]),
            (Some("GET"), true) => ("200 OK", self.content),
            (Some("HEAD"), true) => ("200 OK", &[][..]),
            _ => ("404 Not Found", &[][..]),
        };
        let length =
            if method == Some("HEAD") && is_file { self.content.len() } else { body.len() };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
             Access-Control-Allow-Origin: {}\r\nAccess-Control-Allow-Methods: GET, HEAD\r\n\
             Access-Control-Allow-Private-Network: true\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.origin
        );
        // Only a client that requested the secret path gets the longer deadline.
        let mut stream = Until { until: if is_file { sent } else { asked }, ..stream };
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        stream.flush()?;
        Ok(method == Some("GET") && is_file)
    }
}

/// A connection with a deadline, even if the peer sends or reads only a few bytes at a time.
#[derive(Clone, Copy)]
struct Until<'s> {
    stream: &'s TcpStream,
    until: Instant,
}

impl Until<'_> {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Some(left)).ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl io::Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(bytes)
    }
}

impl io::Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a request of this first line.
    fn ask(port: u16, line: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn file_is_served_once_under_its_secret_name() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let served =
                    Served { path: "/secret.x", origin: "https://a.example", content: b"profile" };
                serve(&listener, &served, Instant::now() + Duration::from_secs(60))
            });
            for wrong in ["GET /", "GET /secret", "POST /secret.x", "nonsense", ""] {
                let answer = ask(port, wrong);
                assert!(
                    answer.starts_with("HTTP/1.1 404") && !answer.contains("profile"),
                    "{answer}"
                );
            }
            // A browser that connects and leaves.
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
            assert!(ask(port, "OPTIONS /secret.x").starts_with("HTTP/1.1 204"));
            assert!(ask(port, "HEAD /secret.x").contains("Content-Length: 7\r\n"));
            let answer = ask(port, "GET /secret.x?a");
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nprofile"),
                "{answer}"
            );
            assert!(
                answer.contains("Access-Control-Allow-Origin: https://a.example\r\n"),
                "{answer}"
            );
            server.join().unwrap().unwrap();
        });
    }

    /// One byte a millisecond, so that no single read waits long.
    #[test]
    fn client_that_sends_slowly_has_a_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let slow = std::thread::spawn(move || {
            let sent = (0..LONGEST_REQUEST).take_while(|_| {
                std::thread::sleep(Duration::from_millis(1));
                client.write_all(b"x").is_ok()
            });
            sent.count()
        });
        let served = Served { path: "/x", origin: "", content: b"" };
        let until = Instant::now() + Duration::from_millis(50);
        let error = served.answer(&server, until, until).unwrap_err();
        assert!(
            matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{error}"
        );
        drop(server);
        assert!((slow.join().unwrap() as u64) < LONGEST_REQUEST);
    }

    #[test]
    fn waiting_for_a_browser_ends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let served = Served { path: "/x", origin: "", content: b"" };
        let failure = serve(&listener, &served, Instant::now()).unwrap_err();
        assert!(failure.message().contains("gpuprof convert"));
    }
}
