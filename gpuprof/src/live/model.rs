//! The state of the terminal view: the last observation, rates, the selection and the line of input.
//!
//! Time enters with observations, and nothing here reads files or waits.

use std::collections::{BTreeMap, HashMap, VecDeque};

use gpuprof_control::ProcessId;
use gpuprof_control::socket::{MAX_MARK, Request};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::history::{History, Increase, per_second};
use super::observation::{ImageId, Observation, Observed, Sum};
use super::stragglers::{RankPace, Stragglers};

/// The number of observations whose busy shares are stored for each device.
const BUSY_SAMPLES: usize = 60;

/// The sums of one kind that grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ranges,
    Kernels,
}

#[derive(Debug, Default)]
struct Rates {
    ranges: (History, Increase),
    kernels: (History, Increase),
}

/// The request of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Sends a request to these processes.
    Ask(Request, Vec<ProcessId>),
}

/// The last line of the screen but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    None,
    Answer(String),
    Error(String),
}

/// A row of ranges or kernels, over the selected processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// The share of the recorded time of a process, which concurrent work may exceed.
    pub(super) share: f64,
    /// Instances a second, of all processes.
    pub(super) rate: f64,
    /// The increase in the last seconds.
    pub(super) more: Sum,
    /// All instances.
    pub(super) count: u64,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct Model {
    /// The name of the run folder.
    pub(super) name: String,
    pub(super) observation: Option<Observation>,
    rates: BTreeMap<ImageId, Rates>,
    busy: BTreeMap<(ImageId, u32), VecDeque<f64>>,
    pub(super) stragglers: Stragglers,
    /// `None` for all processes.
    selected: Option<ImageId>,
    /// The text of a mark while it is typed.
    pub(super) mark: Option<String>,
    pub(super) message: Message,
}

impl Model {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            observation: None,
            rates: BTreeMap::new(),
            busy: BTreeMap::new(),
            stragglers: Stragglers::default(),
            selected: None,
            mark: None,
            message: Message::None,
        }
    }

    /// Takes a new observation.
    pub(super) fn observe(&mut self, observation: Observation) {
        let at_ns = observation.at.monotonic_ns;
        let ids: Vec<ImageId> = observation.processes.iter().map(Observed::id).collect();
        self.rates.retain(|id, _| ids.contains(id));
        self.busy.retain(|(id, _), _| ids.contains(id));
        self.selected = self.selected.filter(|id| ids.contains(id));
        for process in &observation.processes {
            let Some(recorded) = &process.recorded else { continue };
            let rates = self.rates.entry(process.id()).or_default();
            rates.ranges.1 = rates.ranges.0.add(at_ns, recorded, &recorded.ranges);
            rates.kernels.1 = rates.kernels.0.add(at_ns, recorded, &recorded.kernels);
            for device in &recorded.devices {
                let busy = self.busy.entry((process.id(), device.ordinal)).or_default();
                busy.push_back(device.share(device.busy).unwrap_or_default());
                if busy.len() > BUSY_SAMPLES {
                    busy.pop_front();
                }
            }
        }
        let compared = compared(&observation.processes);
        let paces = compared.iter().map(|at| self.pace(&observation.processes[*at]));
        let found = Stragglers::new(&paces.collect::<Vec<_>>());
        self.stragglers = found.placed(&compared, observation.processes.len());
        self.observation = Some(observation);
    }

    fn pace(&self, process: &Observed) -> RankPace {
        let devices = process.recorded.iter().flat_map(|recorded| &recorded.devices);
        let communication = devices.filter_map(|device| device.share(device.communication));
        let ranges = self.rates.get(&process.id()).map(|rates| &rates.ranges.1);
        let pace = |ranges: &Increase| {
            let row = |(sum, more): &(Sum, Sum)| {
                let rate = per_second(more.count as f64, ranges.session);
                (sum.name.clone(), rate, per_second(more.gpu.as_secs_f64(), ranges.recorded))
            };
            ranges.rows.iter().map(row).collect()
        };
        RankPace {
            name: process_name(process),
            communication: communication.reduce(f64::max),
            ranges: ranges.map(pace).unwrap_or_default(),
        }
    }

    pub(super) fn processes(&self) -> &[Observed] {
        self.observation.as_ref().map_or(&[], |observation| &observation.processes)
    }

    /// The place of the selected process; `None` for all.
    pub(super) fn selected(&self) -> Option<usize> {
        self.processes().iter().position(|process| Some(process.id()) == self.selected)
    }

    /// The selected processes.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Observed> {
        let selected = self.selected();
        let processes = self.processes().iter().enumerate();
        let shown = move |at: usize| selected.is_none_or(|selected| selected == at);
        processes.filter(move |(at, _)| shown(*at)).map(|(_, process)| process)
    }

    /// The busy shares of a device at the last observations.
    pub(super) fn busy(&self, process: &Observed, ordinal: u32) -> impl Iterator<Item = f64> {
        self.busy.get(&(process.id(), ordinal)).into_iter().flatten().copied()
    }

    /// The rows of the selected processes by GPU time in the last seconds. The second value is true
    /// if some are of a whole recording.
    pub(super) fn lines(&self, kind: Kind) -> (Vec<Line>, bool) {
        let of = |process: &Observed| {
            let rates = self.rates.get(&process.id())?;
            Some(match kind {
                Kind::Ranges => &rates.ranges.1,
                Kind::Kernels => &rates.kernels.1,
            })
        };
        let shown = || self.shown().filter_map(of);
        let seconds: f64 = shown().map(|increase| increase.recorded.as_secs_f64()).sum();
        let mut lines: HashMap<&str, Line> = HashMap::new();
        for increase in shown() {
            let time = match kind {
                Kind::Ranges => increase.session,
                Kind::Kernels => increase.recorded,
            };
            for (sum, more) in &increase.rows {
                let line = lines.entry(&sum.name).or_default();
                line.rate += per_second(more.count as f64, time);
                line.more.add(more);
                line.count = line.count.saturating_add(sum.count);
            }
        }
        let with_share = |(name, line): (&str, Line)| Line {
            name: name.to_owned(),
            share: line.more.gpu.as_secs_f64() / seconds.max(1e-9),
            ..line
        };
        let mut lines: Vec<Line> = lines.into_iter().map(with_share).collect();
        let key = |line: &Line| std::cmp::Reverse((line.more.gpu, line.more.count, line.count));
        lines.sort_by(|one, other| key(one).cmp(&key(other)).then(one.name.cmp(&other.name)));
        (lines, shown().any(|increase| increase.is_whole))
    }

    /// The losses of the selected processes by name.
    pub(super) fn losses(&self) -> Vec<(&'static str, u64)> {
        let recorded = self.shown().filter_map(|process| process.recorded.as_ref());
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for (name, count) in recorded.flat_map(|recorded| &recorded.losses) {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name, *count)),
            }
        }
        sums
    }

    /// Takes the answer to a request.
    pub(super) fn answered(&mut self, answer: Result<String, String>) {
        self.message = match answer {
            Ok(answer) => Message::Answer(answer),
            Err(error) => Message::Error(error),
        };
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        if self.mark.is_some() {
            return self.press_in_mark(key.code);
        }
        match key.code {
            _ if is_control => None,
            KeyCode::Char('q') => Some(Action::Quit),
            KeyCode::Char('s') => self.ask(Request::On, "starting"),
            KeyCode::Char('x' | 'o') => self.ask(Request::Off, "stopping"),
            KeyCode::Char('w') => self.ask(Request::Snapshot, "writing"),
            KeyCode::Char('m') => {
                // A mark for nobody is refused before it is typed.
                if self.targets().is_some() {
                    self.mark = Some(String::new());
                }
                None
            }
            KeyCode::Char('a') => {
                self.selected = None;
                None
            }
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => self.select(1),
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => self.select(-1),
            _ => None,
        }
    }

    fn press_in_mark(&mut self, key: KeyCode) -> Option<Action> {
        let text = self.mark.as_mut()?;
        match key {
            KeyCode::Char(c) if text.len() + c.len_utf8() <= MAX_MARK => text.push(c),
            KeyCode::Backspace => _ = text.pop(),
            KeyCode::Esc => self.mark = None,
            KeyCode::Enter => {
                let text = self.mark.take().filter(|text| !text.is_empty())?;
                return self.ask(Request::Mark { text }, "marking");
            }
            _ => {}
        }
        None
    }

    /// Selects the next process in a direction. All of them are between the last and the first.
    fn select(&mut self, step: isize) -> Option<Action> {
        let count = self.processes().len();
        let place = self.selected().map_or(0, |selected| selected + 1);
        let next = place.checked_add_signed(step).unwrap_or(count) % (count + 1);
        self.selected = next.checked_sub(1).map(|at| self.processes()[at].id());
        None
    }

    /// The selected processes that can answer. Without any, the message states why.
    fn targets(&mut self) -> Option<Vec<ProcessId>> {
        let open = self.shown().filter(|process| process.is_open());
        let mut open: Vec<ProcessId> = open.map(|process| process.process.id).collect();
        open.dedup();
        if open.is_empty() {
            let which = if self.selected.is_some() { "this process" } else { "no process" };
            let error = match self.selected {
                Some(_) => format!("{which} is not recorded any more"),
                None => format!("{which} of this run is recorded now"),
            };
            self.message = Message::Error(error);
            return None;
        }
        Some(open)
    }

    fn ask(&mut self, request: Request, verb: &str) -> Option<Action> {
        let targets = self.targets()?;
        let processes = if targets.len() == 1 { "process" } else { "processes" };
        self.message = Message::Answer(format!("{verb}: {} {processes} ...", targets.len()));
        Some(Action::Ask(request, targets))
    }
}

/// The places of the processes that are compared: live ones if there are any, and of these the ranks
/// if there are any.
fn compared(processes: &[Observed]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..processes.len()).collect();
    let preferences: [fn(&Observed) -> bool; 2] =
        [Observed::is_open, |of| of.process.rank.is_some()];
    for is_preferred in preferences {
        if places.iter().any(|at| is_preferred(&processes[*at])) {
            places.retain(|at| is_preferred(&processes[*at]));
        }
    }
    places
}

/// The rank of a process, or its pid.
pub(super) fn process_name(process: &Observed) -> String {
    match process.process.rank {
        Some(rank) => format!("rank {rank}"),
        None => format!("process {}", process.process.id.pid),
    }
}
