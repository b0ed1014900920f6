//! The model and the screen, without a terminal, files or a clock.

use std::time::Duration;

use gpuprof_control::manifest::{Ended, Moment, Process, Run, State};
use gpuprof_control::socket::Request;
use gpuprof_control::{Options, ProcessId};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Action, Kind, Message, Model};
use super::observation::{DeviceUse, Observation, Observed, Recorded, Sum};
use super::screen::{self, Theme};

const SECOND: u64 = 1_000_000_000;
/// When the run began, on both clocks.
const BEGAN: (u64, u64) = (1_800_000_000 * SECOND, 1_000 * SECOND);

fn moment(second: u64) -> Moment {
    let mut moment = Moment::now();
    (moment.wall_ns, moment.monotonic_ns) = (BEGAN.0 + second * SECOND, BEGAN.1 + second * SECOND);
    moment
}

fn sum(name: &str, count: u64, gpu: Duration) -> Sum {
    Sum { name: name.to_owned(), count, gpu, done: count, done_gpu: gpu }
}

/// A rank that makes `rate` steps a second of 50 ms of kernels, and communicates for the rest.
fn rank(rank: u32, second: u64, rate: u64, communication: f64) -> Observed {
    let mut process = Process::current().unwrap();
    process.id = ProcessId { pid: 41_000 + rank, start: 7 };
    process.program = "python".to_owned();
    (process.rank, process.world_size) = (Some(rank), Some(4));
    process.began = moment(0);
    process.has_recording = true;
    process.set_state(State::Recording, None);
    let steps = rate * second;
    let ms = |ms: u64| Duration::from_millis(ms * steps);
    let last = Duration::from_secs(second.min(10));
    let recorded = Recorded {
        generation: 0,
        bytes: 1_500_000,
        bytes_read: 1_500_000,
        written_ns: Some(moment(second).wall_ns),
        is_read: true,
        known_ns: moment(second).monotonic_ns - SECOND / 2,
        session: Duration::from_secs(second),
        recorded: Duration::from_secs(second),
        devices: vec![DeviceUse {
            // Each rank sees one GPU, as with `CUDA_VISIBLE_DEVICES`.
            ordinal: 0,
            number: rank,
            name: "NVIDIA H200".to_owned(),
            address: Some(format!("0000:{rank}b:00.0")),
            recorded: last,
            busy: last.mul_f64(0.5),
            communication: last.mul_f64(communication),
            memory: Some((61.5 * f64::from(1 << 30), 139.8 * f64::from(1 << 30))),
        }],
        ranges: vec![
            sum("step", steps, ms(50)),
            sum("step/forward", steps, ms(20)),
            sum("step/load data", steps, Duration::ZERO),
        ],
        kernels: vec![
            sum("gemm<float>", 3 * steps, ms(40)),
            sum("ncclDevKernel_AllReduce_Sum_f32_RING_LL", steps, ms(10)),
        ],
        losses: Vec::new(),
    };
    Observed {
        process,
        is_alive: true,
        no_answer: None,
        recorded: Some(recorded),
        report: None,
        unreadable: None,
    }
}

fn observation(second: u64, processes: Vec<Observed>) -> Observation {
    let mut run = Run::new("python".as_ref(), &Options::new("/run"));
    run.began = moment(0);
    Observation { at: moment(second), run: Some(run), processes, left_out: 0, notes: Vec::new() }
}

/// Four ranks after 100 s; the others wait for rank 2.
fn four_ranks() -> Model {
    let mut model = Model::new("train.gpurun".to_owned());
    for second in 80..=100 {
        let ranks = (0..4).map(|number| {
            let communication = if number == 2 { 0.1 } else { 0.3 };
            rank(number, second, 10, communication)
        });
        model.observe(observation(second, ranks.collect()));
    }
    model
}

fn shown(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme { is_coloured: false };
    terminal.draw(|frame| screen::draw(frame, model, theme)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |row: u16| -> String {
        let cells = (0..width).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn press(model: &mut Model, code: KeyCode) -> Option<Action> {
    model.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(model: &mut Model, text: &str) {
    text.chars().for_each(|c| assert_eq!(press(model, KeyCode::Char(c)), None));
}

#[test]
fn all_parts_fit_a_small_terminal() {
    let expected = "\
train.gpurun  runs for 1m 40s, 4 processes, data 0.5 s old
rank     pid state     GPU  busy  comm       memory waits steps/s  lost
   0   41000 recording   0  50 %  30 % 61.5/140 GiB  20 %    10.0     0
   1   41001 recording   1  50 %  30 % 61.5/140 GiB  20 %    10.0     0
   2   41002 recording   2  50 %  10 % 61.5/140 GiB   0 %    10.0     0
   3   41003 recording   3  50 %  30 % 61.5/140 GiB  20 %    10.0     0
the others wait for rank 2: 20 % more time in collectives
range (last 10 s)                             GPU    per s   GPU mean      times
step                                       50.0 %     40.0   50.00 ms       4000
step/forward                               20.0 %     40.0   20.00 ms       4000
step/load data                              0.0 %     40.0                  4000




kernel (last 10 s)                            GPU    per s   GPU mean      times
gemm<float>                                40.0 %      120   13.33 ms      12000
ncclDevKernel_AllReduce_Sum_f32_RING_LL    10.0 %     40.0   10.00 ms       4000





s start  x stop  m mark  w write  tab process  a all  q quit";
    assert_eq!(shown(&four_ranks(), 80, 24), expected);
}

#[test]
fn large_terminal_has_devices_and_their_history() {
    let shown = shown(&four_ranks(), 200, 50);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 50);
    let row = "   0   41000 recording   0 0000:0b:00.0 NVIDIA H200         50 %  30 % 61.5/140 GiB  20 %    10.0     0 ";
    assert!(lines[2].starts_with(row) && lines[2].ends_with(&"▄".repeat(21)), "{shown}");
    assert!(
        lines[7].starts_with("range (last 10 s) ") && lines[7].contains("  kernel (last 10 s) ")
    );
    assert!(lines[8].starts_with("step  ") && lines[8].contains("  gemm<float>  "), "{shown}");
    assert!(lines[49].starts_with("s start "), "{shown}");
}

#[test]
fn selection_shows_one_process_and_scrolls_to_it() {
    let mut model = Model::new("train.gpurun".to_owned());
    for second in 90..=100 {
        let ranks = (0..64).map(|number| rank(number, second, 10 + u64::from(number), 0.0));
        model.observe(observation(second, ranks.collect()));
    }
    let all = shown(&model, 80, 24);
    assert!(all.contains("64 processes") && all.contains("rank 0 is slower: "), "{all}");
    assert!(!all.contains("41063"), "{all}");
    let per_second = |model: &Model| model.lines(Kind::Ranges).0[0].rate;
    assert_eq!(per_second(&model), (0..64).map(|number| f64::from(10 + number)).sum::<f64>());
    // Backwards from all processes to the last one.
    assert_eq!(press(&mut model, KeyCode::Up), None);
    let last = shown(&model, 80, 24);
    let row = last.lines().find(|line| line.contains("41063")).unwrap();
    assert!(row.contains(" 73.0 "), "{row}");
    assert!(last.contains("range (rank 63, last 10 s)"), "{last}");
    assert_eq!((per_second(&model), model.selected()), (73.0, Some(63)));
    assert_eq!(press(&mut model, KeyCode::Tab), None);
    assert_eq!(model.selected(), None, "after the last one all are selected");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    assert_eq!(model.selected(), Some(1));
    press(&mut model, KeyCode::Char('a'));
    assert_eq!(model.selected(), None);
}

#[test]
fn keys_ask_the_selected_processes_that_record() {
    let mut model = four_ranks();
    let ids: Vec<ProcessId> = model.processes().iter().map(|of| of.process.id).collect();
    let ask = |request| Some(Action::Ask(request, ids.clone()));
    assert_eq!(press(&mut model, KeyCode::Char('s')), ask(Request::On));
    assert_eq!(press(&mut model, KeyCode::Char('x')), ask(Request::Off));
    assert_eq!(press(&mut model, KeyCode::Char('o')), ask(Request::Off));
    assert_eq!(press(&mut model, KeyCode::Char('w')), ask(Request::Snapshot));
    assert!(shown(&model, 80, 24).contains("\nwriting: 4 processes ...\n"));
    model.answered(Ok("written: 6 MB".to_owned()));
    assert!(shown(&model, 80, 24).contains("\nwritten: 6 MB\n"));
    press(&mut model, KeyCode::Tab);
    let one = Some(Action::Ask(Request::On, vec![ids[0]]));
    assert_eq!(press(&mut model, KeyCode::Char('s')), one);
    model.answered(Err("process 41000 refused".to_owned()));
    assert_eq!(model.message, Message::Error("process 41000 refused".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Char('q')), Some(Action::Quit));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.press(interrupt), Some(Action::Quit));
}

#[test]
fn text_of_a_mark_is_typed_in_a_line() {
    let mut model = four_ranks();
    type_text(&mut model, "mquit?");
    assert!(shown(&model, 80, 24).contains("\nmark (enter: record, esc: cancel): quit?_\n"));
    assert_eq!(press(&mut model, KeyCode::Backspace), None);
    let Some(Action::Ask(Request::Mark { text }, asked)) = press(&mut model, KeyCode::Enter) else {
        panic!("no mark");
    };
    assert_eq!((text.as_str(), asked.len(), model.mark.clone()), ("quit", 4, None));
    type_text(&mut model, "mx");
    assert_eq!(press(&mut model, KeyCode::Esc), None);
    assert_eq!(model.mark, None);
    type_text(&mut model, "m");
    assert_eq!(press(&mut model, KeyCode::Enter), None, "a mark has a text");
    // The text has the limit of the request.
    type_text(&mut model, &format!("m{}", "ä".repeat(2_000)));
    assert_eq!(model.mark.as_deref().map(str::len), Some(1024));
}

/// A rank that has ended early, and a process of the run that is no rank.
#[test]
fn live_ranks_alone_are_compared() {
    let mut model = Model::new("train.gpurun".to_owned());
    for second in 90..=100 {
        let mut ranks: Vec<Observed> = (0..4).map(|number| rank(number, second, 10, 0.0)).collect();
        (ranks[0].process.rank, ranks[0].recorded) = (None, None);
        ranks[1] = rank(1, 50, 2, 0.0);
        ranks[1].is_alive = false;
        model.observe(observation(second, ranks));
    }
    let found = &model.stragglers;
    assert_eq!(found.rates, [None, None, Some(10.0), Some(10.0)]);
    assert_eq!((found.step.as_deref(), found.findings.len()), (Some("step"), 0));
}

#[test]
fn ended_run_shows_its_last_state() {
    let mut ranks: Vec<Observed> = (0..2).map(|number| rank(number, 100, 10, 0.2)).collect();
    for of in &mut ranks {
        of.is_alive = false;
        of.process.set_state(State::Finished, None);
    }
    ranks[1].process.set_state(State::Recording, None);
    let mut last = observation(160, ranks);
    if let Some(run) = &mut last.run {
        let mut ended = Ended::now(Some(3), None);
        ended.at = moment(100);
        run.ended = Some(ended);
    }
    let mut model = Model::new("train.gpurun".to_owned());
    model.observe(last);
    let shown = shown(&model, 80, 24);
    assert!(shown.starts_with("train.gpurun  ended 1m ago, status 3, 2 processes\n"), "{shown}");
    assert!(shown.contains(" finished ") && shown.contains(" cut off "), "{shown}");
    assert!(shown.contains("\nrange (whole recording) "), "{shown}");
    assert_eq!(press(&mut model, KeyCode::Char('s')), None);
    assert_eq!(model.message, Message::Error("no process of this run is recorded now".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Char('m')), None);
    assert_eq!(model.mark, None);
}

#[test]
fn losses_and_failures_are_named() {
    let mut first = rank(0, 100, 10, 0.0);
    let mut second = rank(1, 100, 10, 0.0);
    let losses = |of: &mut Observed, count| {
        let recorded = of.recorded.as_mut().unwrap();
        recorded.losses = vec![("records dropped by CUPTI", count)];
    };
    losses(&mut first, 5);
    losses(&mut second, 2);
    second.process.counts.lost = 40;
    let mut third = rank(2, 100, 10, 0.0);
    (third.recorded, third.unreadable) = (None, Some("its frame 3 is damaged".to_owned()));
    third.no_answer = Some("process 41002 did not answer in time".to_owned());
    let mut seen = observation(100, vec![first, second, third]);
    (seen.left_out, seen.notes) = (7, vec!["device memory is not shown: no NVML".to_owned()]);
    let mut model = Model::new("train.gpurun".to_owned());
    model.observe(seen);
    let shown = shown(&model, 80, 24);
    for text in [
        "10 processes, 7 not shown",
        "\nlost: 7 records dropped by CUPTI\n",
        "\nrank 2: its frame 3 is damaged\n",
        "\ndevice memory is not shown: no NVML\n",
        " no answer ",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let lost = |pid: &str| {
        let line = shown.lines().find(|line| line.contains(pid)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!((lost("41000"), lost("41001")), ("5".to_owned(), "40".to_owned()));
}

#[test]
fn always_on_processes_have_their_cost_and_kept_parts_their_age() {
    let mut sampled = rank(0, 100, 10, 0.0);
    sampled.process.counts.windows = 40;
    let cost = "cost: windows 1.2 % of the units' time, budget 3.0 %; rate 1.0 % of the units";
    sampled.report =
        Some(format!("GPU time by range, estimated\nstep 1 2\n{cost}\nhealth: complete"));
    let mut model = Model::new("job".to_owned());
    let mut seen = observation(100, vec![sampled, rank(1, 100, 10, 0.0)]);
    seen.run.as_mut().unwrap().always_on = Some("3%".to_owned());
    model.observe(seen);
    let text = shown(&model, 120, 24);
    assert!(text.contains(&format!("\nrank 0: 40 windows; {cost}\n")), "{text}");
    let first = "\nrank 1: always on (3%); w writes its first report, or 10 s do\n";
    assert!(text.contains(first), "{text}");

    let mut kept = rank(0, 100, 10, 0.0);
    (kept.process.counts.incidents, kept.process.counts.incidents_left_out) = (2, 1);
    let mut unwritten = rank(1, 100, 10, 0.0);
    unwritten.recorded = None;
    let mut seen = observation(112, vec![kept, unwritten]);
    seen.run.as_mut().unwrap().keep_last = Some("seconds=10".to_owned());
    model.observe(seen);
    let text = shown(&model, 120, 24);
    for line in [
        "\nrank 0: keeps the last 10 seconds, written 12s ago; incidents: 2, without a file: 1\n",
        "\nrank 1: keeps the last 10 seconds, not written yet; incidents: 0, without a file: 0\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    press(&mut model, KeyCode::Tab);
    assert!(!shown(&model, 120, 24).contains("rank 1: keeps"), "the selected process alone");
}

#[test]
fn processes_without_ranks_or_recordings_are_shown() {
    let mut model = Model::new("job".to_owned());
    model.observe(observation(5, Vec::new()));
    let empty = shown(&model, 80, 24);
    assert!(empty.starts_with("job  runs for 5s, no process has called CUDA yet\n"), "{empty}");
    let mut waiting = rank(0, 5, 0, 0.0);
    (waiting.process.rank, waiting.recorded) = (None, None);
    waiting.process.set_state(State::Waiting, None);
    // Two devices of one process, and the first read of a large file.
    let mut two = rank(1, 5, 10, 0.0);
    let recorded = two.recorded.as_mut().unwrap();
    recorded.devices.push(DeviceUse { number: 9, ..recorded.devices[0].clone() });
    (recorded.bytes, recorded.is_read) = (4 * recorded.bytes, false);
    model.observe(observation(6, vec![waiting, two]));
    let text = shown(&model, 80, 24);
    assert!(text.contains(", reading: 25 %\n"), "{text}");
    assert!(text.contains("\n       41000 waiting "), "{text}");
    let row = text.lines().position(|line| line.contains("41001")).unwrap();
    let second = text.lines().nth(row + 1).unwrap();
    assert!(second.trim_start().starts_with("9  50 %"), "{text}");
}

#[test]
fn hostile_names_and_sizes_garble_nothing() {
    let mut model = Model::new("\u{1b}[2J evil\n.gpurun".repeat(20));
    let mut hostile = rank(0, 100, 10, 0.0);
    let recorded = hostile.recorded.as_mut().unwrap();
    let long = "very_long_name_".repeat(40);
    for name in ["\u{1b}[31mred\r\n", "\u{202e}reversed", "漢字漢字", long.as_str(), ""] {
        recorded.ranges.push(sum(name, u64::MAX, Duration::MAX));
        recorded.kernels.push(sum(name, u64::MAX, Duration::MAX));
    }
    hostile.process.set_state(State::Recording, Some("\u{1b}]0;title\u{7}"));
    model.observe(observation(100, vec![hostile.clone()]));
    model.observe(observation(101, vec![hostile]));
    for (width, height) in [(80, 24), (200, 50), (60, 12), (175, 13), (59, 24), (80, 11), (1, 1)] {
        let shown = shown(&model, width, height);
        let is_control = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(is_control), "{width}x{height}: {shown:?}");
    }
    assert!(shown(&model, 59, 24).starts_with("the terminal is too small: 60 by 12 at least"));
}
