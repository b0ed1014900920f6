//! Prometheus as a referee: does it accept what recorders of the `metrics` facade render for it, and does every query of the
//! dashboard return data?
//!
//! `PROMETHEUS_REFEREE` names a folder with `prometheus` and `promtool`. No GPU is needed: the work is the fake's, and the state of
//! the device is made up, under the names that a test of `session::metrics` checks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers are tests too")]
#![allow(clippy::print_stderr, reason = "a test without the standard harness")]

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fake_cupti::{Fake, Work};
use libtest_mimic::{Arguments, Failed, Trial};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use profiler_core::Profiler;
use profiler_core::session::always_on::AlwaysOn;
use profiler_core::session::metrics::RangeMetrics;
use serde_json::Value;
use test_support::folder::Folder;

const DASHBOARD: &str = include_str!("../../docs/dashboards/gpu-service.json");
/// How long Prometheus may take to have scraped enough, on a busy machine.
const LATE: Duration = Duration::from_secs(90);

type Test = fn(&Path) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let referee = env::var_os("PROMETHEUS_REFEREE").map(PathBuf::from);
    let referee = referee.filter(|folder| folder.join("prometheus").exists());
    if referee.is_none() && !arguments.list {
        eprintln!("ignored: PROMETHEUS_REFEREE names no folder with prometheus");
    }
    let tests: [(&str, Test); 2] = [
        ("promtool_accepts_the_text", promtool_accepts),
        ("every_query_of_the_dashboard_returns_data", queries_return_data),
    ];
    let trials = tests.map(|(name, test)| {
        let (ignored, referee) = (referee.is_none(), referee.clone());
        let run = move || test(&referee.ok_or("the referee is not there")?);
        Trial::test(name, run).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// A service with an always-on session beside one that records everything, whose sums are published at intervals.
fn serve(recorder: &PrometheusRecorder, mut goes_on: impl FnMut() -> bool) {
    let fake = Fake::new();
    let profiler = || Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let (sums, sampled) = (profiler(), profiler());
    let settings = AlwaysOn::new().budget(1.0).rate(1.0);
    let sampled = sampled.always_on(&settings).unwrap();
    let sums = sums.summarize().unwrap();
    let (mut of_sums, mut of_sampled) = (RangeMetrics::new(), RangeMetrics::new());
    let mut joules = 0;
    while goes_on() {
        for _ in 0..5 {
            let _unit = sampled.unit("request");
            fake.launch(Work::host_to_device(4096).taking_ns(2_000));
            {
                let _layer = nvtx::range("layer");
                fake.launch(Work::kernel(c"k").taking_ns(30_000));
            }
            fake.launch(Work::synchronize());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (summary, report) = (sums.snapshot().unwrap(), sampled.snapshot().unwrap());
        joules += 100;
        metrics::with_local_recorder(recorder, || {
            of_sums.publish(&summary);
            of_sampled.publish_always_on(&report);
            let labels = [("hw.id", "GPU-1"), ("hw.name", "fake"), ("hw.type", "gpu")];
            for name in [
                "hw.gpu.utilization",
                "hw.gpu.memory.usage",
                "hw.gpu.memory.limit",
                "hw.gpu.memory.utilization",
                "hw.power",
                "hw.temperature",
            ] {
                metrics::gauge!(name, &labels).set(1.0);
            }
            metrics::counter!("hw.energy", &labels).absolute(joules);
        });
    }
}

fn promtool_accepts(referee: &Path) -> Result<(), Failed> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut rounds = 0..5;
    serve(&recorder, || rounds.next().is_some());
    let text = recorder.handle().render();
    assert!(text.contains("gpu_range_launches_total{"), "{text}");
    // It cannot read a text at all with status 1; 3 are opinions, of help texts that are missing.
    let (code, said) = promtool(referee, &text)?;
    assert!(matches!(code, Some(0 | 3)), "{said}\n{text}");
    let (code, said) = promtool(referee, &text.replace("\"request\"", "request"))?;
    assert_eq!(code, Some(1), "it must see a label without quotes: {said}");
    Ok(())
}

fn promtool(referee: &Path, text: &str) -> Result<(Option<i32>, String), Failed> {
    let mut promtool = Command::new(referee.join("promtool"));
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn()?;
    promtool.stdin.take().ok_or("no pipe")?.write_all(text.as_bytes())?;
    let output = promtool.wait_with_output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Ends Prometheus with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn queries_return_data(referee: &Path) -> Result<(), Failed> {
    let folder = Folder::new();
    let scraped = TcpListener::bind("127.0.0.1:0")?;
    let target = scraped.local_addr()?;
    // A port that is free now.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let config = folder.0.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- {{job_name: service, static_configs: [{{targets: ['{target}']}}]}}\n"
    );
    std::fs::write(&config, text)?;
    let prometheus = Command::new(referee.join("prometheus"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.0.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error")
        .spawn()?;
    let _running = Running(prometheus);
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer_scrapes(&scraped, &handle, &is_over));
        scope.spawn(|| serve(&recorder, || !is_over.load(Ordering::Relaxed)));
        let result = ask_all(&address);
        is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(target);
        result
    })
}

fn answer_scrapes(listener: &TcpListener, handle: &PrometheusHandle, is_over: &AtomicBool) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.read(&mut [0; 4096]);
        let body = handle.render();
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
        let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

/// Asks every query until it has data, and names those that have none in time.
fn ask_all(address: &str) -> Result<(), Failed> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let panels = dashboard["panels"].as_array().ok_or("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut queries: Vec<String> = targets
        .filter_map(|target| target["expr"].as_str())
        .map(|expr| expr.replace("$__rate_interval", "10s").replace("$range", ".*"))
        .collect();
    assert!(queries.len() > 20 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
    let late = Instant::now() + LATE;
    while !queries.is_empty() {
        let left = queries.clone();
        queries.retain(|query| !has_data(address, query).unwrap_or(false));
        if Instant::now() > late {
            return Err(format!("no data for {left:#?}").into());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(!has_data(address, "gpu_range_no_such_metric")?, "it must see that data is missing");
    Ok(())
}

fn has_data(address: &str, query: &str) -> Result<bool, Failed> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: prometheus\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
    let body = &body[body.find('{').ok_or("no JSON")?..=body.rfind('}').ok_or("no JSON")?];
    let answer: Value = serde_json::from_str(body)?;
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    let results = answer["data"]["result"].as_array().ok_or("no result")?;
    let is_number = |result: &Value| {
        let text = result["value"][1].as_str().unwrap_or_default();
        !text.is_empty() && text != "NaN"
    };
    Ok(results.iter().any(is_number))
}
