//! A program that records itself with a flight recorder, and is reached by gpuprof: the fake GPU, and no injection library.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fake_cupti::{Fake, Work};
use gpuprof_control::manifest::State;
use gpuprof_control::{RunFolder, ServedRecorder};
use profiler_core::session::FlightRecorder;
use profiler_core::{Profile, Profiler};

use crate::support::{Folder, ran, wait_until};

const PROGRAM: &str = "embedded::program_with_a_recorder";
/// The variable with the run folder of the program, beside which its incidents go.
const RUN: &str = "GPUPROF_TEST_RUN";

/// Launches a kernel in a range for each line of its input, a name. The range `slow` is.
#[test]
#[ignore = "is a process of other tests"]
fn program_with_a_recorder() {
    let Some(run) = std::env::var_os(RUN) else { return };
    let run = Path::new(&run);
    let fake = Fake::new();
    let builder = Profiler::builder().library(fake.library().unwrap());
    let profiler = builder.keep_last(Duration::from_secs(600)).build().unwrap();
    let slow = Duration::from_millis(50);
    let settings = FlightRecorder::new(run.parent().unwrap()).slow("slow", slow);
    let recorder = profiler.flight_recorder(&settings).unwrap();
    let served = Arc::new(ServedRecorder::bind(recorder, run).unwrap());
    let of_thread = served.clone();
    let thread = std::thread::spawn(move || of_thread.serve());
    println!("serves");
    for name in std::io::stdin().lines() {
        let name = name.unwrap();
        {
            let _range = nvtx::range(&name);
            fake.launch(Work::kernel(c"gemm"));
            if name == "slow" {
                std::thread::sleep(2 * slow);
            }
        }
        println!("done");
    }
    served.stopper().stop();
    thread.join().unwrap().unwrap();
    Arc::into_inner(served).unwrap().finish().unwrap();
}

struct Program {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(folder: &Folder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["-q", "--ignored", "--exact", "--nocapture", PROGRAM])
            .env("XDG_RUNTIME_DIR", folder.path("runtime"))
            .env(RUN, folder.path("job"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut program =
            Self { output: BufReader::new(child.stdout.take().unwrap()).lines(), child };
        program.await_line("serves");
        program
    }

    /// The harness of tests prints lines, too.
    fn await_line(&mut self, line: &str) {
        while self.output.next().unwrap().unwrap() != line {}
    }

    fn does(&mut self, name: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{name}").unwrap();
        self.await_line("done");
    }
}

#[test]
fn a_program_that_records_itself_is_listed_and_writes_its_last_part() {
    let folder = Folder::new();
    let mut program = Program::start(&folder);
    let pid = program.child.id().to_string();
    let gpuprof = |args: &[&str]| {
        let ran = ran(&mut folder.gpuprof(args));
        assert_eq!(ran.status, Some(0), "{args:?}: {}", ran.error);
        ran.out
    };
    assert!(gpuprof(&["list"]).contains(&pid));
    program.does("first");
    let snapshot = gpuprof(&["snapshot", "--report", &pid]);
    assert!(snapshot.contains("1 operations and 1 ranges"), "{snapshot}");
    assert!(gpuprof(&["off", &pid]).ends_with(": paused\n"));
    program.does("in the pause");
    assert!(gpuprof(&["on", "job"]).ends_with(": recording\n"));
    assert!(ran(&mut folder.gpuprof(["mark", &pid, "x"])).failure(1).contains("its own marks"));
    program.does("slow");
    let incidents = || {
        let status = gpuprof(&["status", "--json", "job"]);
        let rows: serde_json::Value = serde_json::from_str(&status).unwrap();
        rows[0]["process"]["counts"]["incidents"].as_u64()
    };
    wait_until("a file of the slow range", || incidents() == Some(1));
    drop(program.child.stdin.take());
    assert!(program.child.wait().unwrap().success());
    assert!(!gpuprof(&["list"]).contains(&pid));
    let run = RunFolder::open(&folder.path("job")).unwrap();
    let process = run.processes().unwrap().found.remove(0);
    assert_eq!((process.state, process.has_recording), (State::Finished, true), "{process:?}");
    let profile = Profile::load(run.recording(&process)).unwrap();
    assert_eq!(profile.kernels().count(), 2, "{profile}");
    assert_eq!(process.counts.operations, 2);
    assert!(gpuprof(&["report", "job"]).contains("gemm"));
}
