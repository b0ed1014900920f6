//! Reads a run once per second: manifests, answers on control sockets, and the new bytes of
//! recordings.
//!
//! A recorded process answers one request for its status. Everything else is read from its files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant, UNIX_EPOCH};

use gpuprof_control::manifest::{Moment, Process};
use gpuprof_control::socket::{Answer, Client, Folder, Request};
use gpuprof_control::{Error, ProcessId, RunFolder};
use profiler_base::kernel_names::{label, overloaded};
use profiler_core::Summary;
use profiler_core::profile::{Merger, Totals};
use profiler_core::session::{DeviceMonitor, RecentDevice, RecordingTail};
use regex::Regex;

use super::observation::{DeviceUse, ImageId, Observation, Observed, Recorded, Sum};

/// The time that devices are shown of.
pub(super) const LAST: Duration = Duration::from_secs(10);
/// Upper bound of the processes that are read.
const MOST_PROCESSES: usize = 128;
/// Upper bound of the names of ranges and of kernels of a process; others are `(other)`.
const MOST_NAMES: usize = 500;
/// The bytes of all recordings that are read before the screen is drawn again, and the least of each.
const BYTES: u64 = 16 << 20;
const LEAST_BYTES: u64 = 256 << 10;
/// The time that all processes together may take to answer, and the least for each.
const ANSWERS: Duration = Duration::from_secs(1);
const LEAST_ANSWER: Duration = Duration::from_millis(50);

/// A run, or one process of it.
#[derive(Debug)]
pub(super) struct Reader {
    folder: RunFolder,
    /// The only process that is read.
    only: Option<ProcessId>,
    sockets: Vec<Folder>,
    /// Kernels that count as communication beside those known by name.
    communication: Option<Regex>,
    recordings: BTreeMap<ImageId, Recording>,
    /// By process and ordinal.
    monitors: BTreeMap<(ImageId, u32), Result<DeviceMonitor, String>>,
}

/// The recording of a process.
#[derive(Debug)]
struct Recording {
    tail: RecordingTail,
    /// The number of files before this one.
    generation: u64,
    /// The error that ended reading. A damaged file is not read again.
    failed: Option<String>,
}

impl Recording {
    /// Opens the file. Without a complete first frame this fails, and later it may not.
    fn open(reader: &Reader, process: &Process, generation: u64) -> Result<Self, String> {
        let folder = &reader.folder;
        let file = folder.open_recording(process).map_err(|error| error.to_string())?;
        let tail = RecordingTail::from_file(file, &folder.recording(process), MOST_NAMES);
        let mut tail = tail.map_err(|error| error.to_string())?;
        if let Some(names) = reader.communication.clone() {
            tail = tail.with_communication(move |name| names.is_match(name));
        }
        Ok(Self { tail, generation, failed: None })
    }
}

impl Reader {
    pub(super) fn new(
        folder: RunFolder,
        only: Option<ProcessId>,
        sockets: Vec<Folder>,
        communication: Option<Regex>,
    ) -> Self {
        let (recordings, monitors) = Default::default();
        Self { folder, only, sockets, communication, recordings, monitors }
    }

    /// Reads what is new, at most some megabytes of each recording.
    ///
    /// # Errors
    /// The run folder cannot be read.
    pub(super) fn observe(&mut self) -> Result<Observation, Error> {
        let found = self.folder.processes()?;
        let mut notes: Vec<String> = found.unreadable.iter().map(ToString::to_string).collect();
        let mut processes = found.found;
        processes.retain(|process| self.only.is_none_or(|only| only == process.id));
        processes.sort_by_key(|process| (process.rank, process.began.monotonic_ns, process.id));
        let left_out = processes.len().saturating_sub(MOST_PROCESSES);
        processes.truncate(MOST_PROCESSES);
        let until = Instant::now() + ANSWERS;
        let bytes = (BYTES / processes.len().max(1) as u64).max(LEAST_BYTES);
        let processes = processes.into_iter().map(|process| self.observed(process, until, bytes));
        let mut processes: Vec<Observed> = processes.collect();
        let ids: Vec<ImageId> = processes.iter().map(Observed::id).collect();
        self.recordings.retain(|id, _| ids.contains(id));
        self.monitors.retain(|(id, _), _| ids.contains(id));
        self.number_devices(&mut processes);
        let memory = self.monitors.values().find_map(|monitor| monitor.as_ref().err());
        notes.extend(memory.map(|why| format!("device memory is not shown: {why}")));
        Ok(Observation {
            at: Moment::now(),
            run: self.folder.run().unwrap_or_default(),
            processes,
            left_out,
            notes,
        })
    }

    fn observed(&mut self, manifest: Process, until: Instant, bytes: u64) -> Observed {
        let is_alive = manifest.id.is_alive();
        let asks = is_alive && manifest.state.is_open();
        let answer = asks.then(|| self.status(manifest.id, until));
        let (process, no_answer) = match answer {
            // After an exec the process answers for its new image.
            Some(Ok(answer)) if answer.process.image == manifest.image => (answer.process, None),
            // The process is ending, or an exec has closed the socket.
            Some(Err(error)) if !error.is_gone() && !error.is_no_socket() => {
                (manifest, Some(error.to_string()))
            }
            _ => (manifest, None),
        };
        let (recorded, unreadable) = match process.has_recording.then(|| self.read(&process, bytes))
        {
            Some(Ok(recorded)) => (Some(recorded), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        // Without its report the process is shown all the same.
        let report = self.folder.read_always_on(&process).ok().flatten();
        let mut observed = Observed { process, is_alive, no_answer, recorded, report, unreadable };
        self.add_memory(&mut observed);
        observed
    }

    fn status(&self, process: ProcessId, until: Instant) -> Result<Answer, Error> {
        let timeout = until.saturating_duration_since(Instant::now()).max(LEAST_ANSWER);
        Client::find(&self.sockets, process)?.ask(Request::Status, timeout)
    }

    /// Reads at least this many of the new bytes of a recording, if there are as many.
    fn read(&mut self, process: &Process, bytes: u64) -> Result<Recorded, String> {
        let (id, path) = ((process.id, process.image), self.folder.recording(process));
        let known = self.recordings.remove(&id);
        let generation = known.as_ref().map_or(0, |known| known.generation + 1);
        let mut recording = match known.filter(|known| !known.tail.is_replaced()) {
            Some(known) => known,
            None => Recording::open(self, process, generation)?,
        };
        let read = match &recording.failed {
            Some(why) => Err(why.clone()),
            None => recording.tail.read(bytes).map_err(|error| error.to_string()),
        };
        recording.failed = read.as_ref().err().cloned();
        let recorded = read.map(|has_more| {
            let file = fs::metadata(&path).ok();
            let written = file.as_ref().and_then(|file| file.modified().ok());
            let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            Recorded {
                bytes: file.map_or(0, |file| file.len()),
                written_ns: written.and_then(|at| at.as_nanos().try_into().ok()),
                is_read: !has_more,
                ..recorded(&recording.tail, recording.generation)
            }
        });
        self.recordings.insert(id, recording);
        recorded
    }

    /// Gives each GPU one number, although each process has its own ordinals.
    fn number_devices(&self, processes: &mut [Observed]) {
        let tail = |of: &Observed| Some(&self.recordings.get(&of.id())?.tail);
        let infos: Vec<_> = processes.iter().filter_map(tail).map(RecordingTail::info).collect();
        let numbers = Merger::device_numbers(&infos);
        let with_tail = processes.iter_mut().filter(|of| self.recordings.contains_key(&of.id()));
        for (process, numbers) in with_tail.zip(numbers) {
            for device in process.recorded.iter_mut().flat_map(|recorded| &mut recorded.devices) {
                device.number = numbers.get(&device.ordinal).copied().unwrap_or(device.ordinal);
            }
        }
    }

    /// Adds the memory of the devices of a live process.
    fn add_memory(&mut self, observed: &mut Observed) {
        let id = observed.id();
        let recording = self.recordings.get(&id).filter(|_| observed.is_open());
        let Some(Recording { tail, .. }) = recording else { return };
        for device in observed.recorded.iter_mut().flat_map(|recorded| &mut recorded.devices) {
            let find = || DeviceMonitor::find(tail.info(), device.ordinal);
            let monitor = self.monitors.entry((id, device.ordinal));
            let monitor = monitor.or_insert_with(|| find().map_err(|error| error.to_string()));
            let state = monitor.as_ref().ok().and_then(|monitor| monitor.read().ok());
            device.memory = state.and_then(|state| state.memory_used.zip(state.memory_limit));
        }
    }
}

fn recorded(tail: &RecordingTail, generation: u64) -> Recorded {
    let summary = tail.summary();
    let device = |of: RecentDevice| {
        let info = tail.info().devices.iter().find(|device| device.id == of.device);
        DeviceUse {
            ordinal: of.device,
            number: of.device,
            name: info.map(|info| info.name.clone()).unwrap_or_default(),
            address: info.and_then(|info| info.pci_bus_id.clone()),
            recorded: of.recorded,
            busy: of.busy,
            communication: of.communication,
            memory: None,
        }
    };
    let is_count = |name: &&str| !name.starts_with("ns ");
    let losses = summary.health().losses.named();
    Recorded {
        generation,
        bytes_read: tail.position(),
        known_ns: tail.known_ns(),
        session: summary.duration(),
        recorded: tail.recorded(),
        devices: tail.devices(LAST).map(device).collect(),
        ranges: ranges(&summary),
        kernels: kernels(&summary),
        losses: losses.filter(|(name, _)| is_count(name)).collect(),
        ..Recorded::default()
    }
}

fn ranges(summary: &Summary) -> Vec<Sum> {
    let paths = summary.paths().map(|path| Sum {
        name: path.path(),
        count: path.instances(),
        gpu: path.inclusive().gpu_time(),
        done: path.gpu_time().above_zero(),
        done_gpu: path.gpu_time().sum(),
    });
    let outside = summary.outside_ranges();
    // The work outside has no instances.
    let name = "(outside any range)".to_owned();
    let of_outside = Sum { name, gpu: outside.gpu_time(), ..Sum::default() };
    merged(paths.chain((outside.launches != 0).then_some(of_outside)))
}

fn kernels(summary: &Summary) -> Vec<Sum> {
    let kernels = summary.kernels();
    let overloads = overloaded(kernels.iter().map(|(name, _)| (*name, *name, None)));
    let sum = |(name, totals): &(&str, Totals)| Sum {
        name: label(name, None, overloads.contains(name)),
        count: totals.kernels,
        gpu: totals.kernel_time(),
        done: totals.kernels,
        done_gpu: totals.kernel_time(),
    };
    merged(kernels.iter().map(sum))
}

/// Adds the sums of one name, in the order of their first ones: paths of several domains.
fn merged(sums: impl Iterator<Item = Sum>) -> Vec<Sum> {
    let (mut places, mut merged): (HashMap<String, usize>, Vec<Sum>) = Default::default();
    for sum in sums {
        match places.get(&sum.name) {
            Some(place) => merged[*place].add(&sum),
            None => {
                places.insert(sum.name.clone(), merged.len());
                merged.push(sum);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use gpuprof_control::manifest::{Run, State};
    use gpuprof_control::{Options, RunFolder};
    use profiler_core::{Profile, Recording};
    use test_support::folder::Folder as TestFolder;
    use test_support::processes::{bytes_with_info, set_devices};

    use super::*;

    const RECORDING: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");

    /// A run folder with a process that has ended, and this recording.
    fn run(folder: &TestFolder, bytes: &[u8]) -> Reader {
        let run = Run::new("python".as_ref(), &Options::new("/run"));
        let run = RunFolder::create(&folder.file("job"), &run).unwrap();
        add_process(&run, 1, bytes);
        Reader::new(run, None, Vec::new(), None)
    }

    fn add_process(run: &RunFolder, pid: u32, bytes: &[u8]) {
        let mut process = Process::current().unwrap();
        process.id = ProcessId { pid, start: 1 };
        process.has_recording = true;
        process.set_state(State::Finished, None);
        run.write_process(&process).unwrap();
        fs::write(run.recording(&process), bytes).unwrap();
    }

    fn only(observation: &Observation) -> &Observed {
        assert_eq!(observation.processes.len(), 1);
        &observation.processes[0]
    }

    #[test]
    fn sums_of_an_ended_run_are_those_of_its_profile() {
        let folder = TestFolder::new();
        let mut reader = run(&folder, &fs::read(RECORDING).unwrap());
        let observation = reader.observe().unwrap();
        let recorded = only(&observation).recorded.as_ref().unwrap();
        let profile = Profile::load(RECORDING).unwrap();
        let kernels: u64 = recorded.kernels.iter().map(|kernel| kernel.count).sum();
        assert_eq!(kernels, profile.kernels().count() as u64);
        for range in recorded.ranges.iter().filter(|range| !range.name.starts_with('(')) {
            let expected = profile.range(&range.name).unwrap();
            assert_eq!((range.count, range.gpu), (expected.instances(), expected.gpu_time()));
        }
        assert!(recorded.devices[0].name.contains("H200") && recorded.losses.is_empty());
        assert!(observation.is_read() && recorded.bytes_read == recorded.bytes);
        assert_eq!(observation.notes, [""; 0], "no device of an ended process is read");
    }

    #[test]
    fn kernels_of_communication_are_not_busy_time() {
        let folder = TestFolder::new();
        let mut reader = run(&folder, &fs::read(RECORDING).unwrap());
        let device = |reader: &mut Reader| {
            let observation = reader.observe().unwrap();
            only(&observation).recorded.as_ref().unwrap().devices[0].clone()
        };
        let before = device(&mut reader);
        let names = Some(Regex::new("^col_sum$").unwrap());
        let after = device(&mut Reader::new(reader.folder.clone(), None, Vec::new(), names));
        assert_eq!((before.communication, after.recorded), (Duration::ZERO, before.recorded));
        assert!(!after.communication.is_zero() && after.busy < before.busy);
    }

    #[test]
    fn gpu_has_one_number_in_all_processes() {
        let recording = Recording::load(RECORDING).unwrap();
        let on = |address| bytes_with_info(&recording, |info| set_devices(info, &[address]));
        let (first, second) = ("0000:1b:00.0", "0000:43:00.0");
        let folder = TestFolder::new();
        let mut reader = run(&folder, &on(second));
        add_process(&reader.folder, 2, &on(first));
        add_process(&reader.folder, 3, &on(second));
        let observation = reader.observe().unwrap();
        let device = |of: &Observed| of.recorded.as_ref().unwrap().devices[0].clone();
        let devices = observation.processes.iter().map(device);
        let numbers: Vec<_> =
            devices.map(|of| (of.ordinal, of.number, of.address.unwrap())).collect();
        let [first, second] = [first, second].map(str::to_owned);
        assert_eq!(numbers, [(0, 1, second.clone()), (0, 0, first), (0, 1, second)]);
    }

    /// A process that was killed while it wrote: there is nothing more to read.
    #[test]
    fn truncated_recording_is_read_to_its_last_frame() {
        let folder = TestFolder::new();
        let bytes = fs::read(RECORDING).unwrap();
        let mut reader = run(&folder, &bytes[..bytes.len() - 10]);
        for _ in 0..3 {
            let observation = reader.observe().unwrap();
            let recorded = only(&observation).recorded.as_ref().unwrap();
            assert!(observation.is_read() && recorded.bytes_read < recorded.bytes);
        }
    }

    #[test]
    fn pipe_in_place_of_a_recording_is_not_waited_for() {
        let folder = TestFolder::new();
        let mut reader = run(&folder, b"");
        let observation = reader.observe().unwrap();
        let path = reader.folder.recording(&only(&observation).process);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let observation = reader.observe().unwrap();
        let why = only(&observation).unreadable.as_ref().unwrap();
        assert!(why.ends_with("is no file"), "{why}");
    }

    #[test]
    fn damaged_recording_is_named_and_another_file_is_read() {
        let folder = TestFolder::new();
        let bytes = fs::read(RECORDING).unwrap();
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        let mut reader = run(&folder, &damaged);
        for _ in 0..2 {
            let observation = reader.observe().unwrap();
            let why = only(&observation).unreadable.as_ref().unwrap();
            assert!(why.contains("is damaged") && only(&observation).recorded.is_none(), "{why}");
        }
        let observation = reader.observe().unwrap();
        let path = reader.folder.recording(&only(&observation).process);
        fs::write(path.with_extension("new"), &bytes).unwrap();
        fs::rename(path.with_extension("new"), &path).unwrap();
        let observation = reader.observe().unwrap();
        assert_eq!(only(&observation).recorded.as_ref().unwrap().generation, 1);
    }
}
