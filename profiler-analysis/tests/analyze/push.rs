//! Profiles pushed to receivers that answer, hang, refuse and die.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::formats::export;
use crate::quickstart;
use profiler_analysis::Format;
use profiler_analysis::formats::push::{PushCounts, PushTo};

const LONG: Duration = Duration::from_secs(60);

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/profiles", listener.local_addr().unwrap());
    (listener, url)
}

/// Reads a request with a body of a stated length: its head in lower case, and the body.
fn read(stream: &TcpStream) -> (String, Vec<u8>) {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let (mut from, mut head) = (BufReader::new(stream), String::new());
    while from.read_line(&mut head).unwrap() > 2 {}
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    from.read_exact(&mut body).unwrap();
    (head, body)
}

fn answer(mut stream: &TcpStream, status: &str) {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
}

#[test]
fn a_receiver_gets_the_bytes_of_the_export() {
    let (listener, url) = listener();
    let push = PushTo::new(url).header("X-Scope", "team a").content_type("text/plain");
    let push = push.timeout(LONG).start().unwrap();
    let profile = quickstart();
    let expected = export(&profile, Format::Folded);
    push.push(profile, Format::Folded);
    let (stream, _) = listener.accept().unwrap();
    let (head, body) = read(&stream);
    assert_eq!(push.counts().waiting, 1);
    answer(&stream, "200 OK");
    assert!(push.flush(LONG));
    assert_eq!(body, expected);
    for line in ["post /profiles http/1.1", "x-scope: team a", "content-type: text/plain"] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
    let counts = push.counts();
    assert_eq!((counts.sent, counts.bytes), (1, expected.len() as u64), "{counts:?}");
}

/// OTLP's request has the fields of the file: the receiver reads all samples.
#[cfg(feature = "otlp")]
#[test]
fn a_collector_reads_pushed_profiles() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message as _;

    let (listener, url) = listener();
    let push = PushTo::new(url).timeout(LONG).start().unwrap();
    push.push(quickstart(), Format::Otlp);
    let (stream, _) = listener.accept().unwrap();
    let (head, body) = read(&stream);
    answer(&stream, "200 OK");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let request = ExportProfilesServiceRequest::decode(&body[..]).unwrap();
    let profiles: Vec<_> = request
        .resource_profiles
        .iter()
        .flat_map(|of| &of.scope_profiles)
        .flat_map(|of| &of.profiles)
        .collect();
    let sum = |profile: usize| {
        let values = profiles[profile].samples.iter().flat_map(|sample| &sample.values);
        values.sum::<i64>()
    };
    let total = quickstart().totals().gpu_time().as_nanos() as i64;
    assert!((0..profiles.len()).any(|number| sum(number) == total), "none has {total} ns");
    assert!(request.dictionary.is_some() && push.flush(LONG));
}

/// A receiver that takes connections and does not answer: the program does not wait, memory is bounded, and losses are counted.
#[test]
fn a_hanging_receiver_holds_nothing_up() {
    let (_listener, url) = listener();
    let push = PushTo::new(&url).most_waiting(3).timeout(60 * LONG).start().unwrap();
    for _ in 0..40 {
        push.push(quickstart(), Format::Folded);
        assert!(push.counts().waiting <= 4);
    }
    let PushCounts { sent, dropped, failed, waiting, .. } = push.counts();
    assert_eq!((sent, failed, dropped + waiting), (0, 0, 40));
    assert!(!push.flush(Duration::from_millis(10)));
    // Nor does a drop wait for the receiver, which is here until the end.
    drop(push);
    let push = PushTo::new(url).timeout(Duration::from_millis(20)).start().unwrap();
    push.push(quickstart(), Format::Folded);
    while push.counts().failed == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let why = push.counts().last_error.unwrap();
    assert!(
        why.contains("could not push a profile to http://127.0.0.1") && why.contains("timeout"),
        "{why}"
    );
}

#[test]
fn a_killed_receiver_is_counted_and_may_come_back() {
    let (listener, url) = listener();
    let address = listener.local_addr().unwrap();
    let push = PushTo::new(url).timeout(LONG).start().unwrap();
    // It dies in the middle of a request.
    push.push(quickstart(), Format::Folded);
    drop(listener.accept().unwrap());
    drop(listener);
    assert!(push.flush(LONG));
    assert_eq!((push.counts().sent, push.counts().failed), (0, 1));
    // It is not there.
    push.push(quickstart(), Format::Folded);
    assert!(push.flush(LONG));
    assert_eq!(push.counts().failed, 2, "{:?}", push.counts());
    // It is back, and refuses first.
    let listener = TcpListener::bind(address).unwrap();
    for status in ["503 Service Unavailable", "202 Accepted"] {
        push.push(quickstart(), Format::Folded);
        let (stream, _) = listener.accept().unwrap();
        read(&stream);
        answer(&stream, status);
        assert!(push.flush(LONG));
    }
    let counts = push.counts();
    assert_eq!((counts.sent, counts.failed, counts.dropped), (1, 3, 0), "{counts:?}");
    assert!(counts.last_error.unwrap().contains("503"));
}

#[test]
fn other_schemes_are_refused() {
    for url in ["https://collector/", "localhost:4318", ""] {
        let error = PushTo::new(url).start().unwrap_err().to_string();
        assert!(error.contains("http://"), "{error}");
    }
}
