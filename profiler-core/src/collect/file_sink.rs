//! The file of a running session: a sink that makes frames, and the thread that writes them.
//!
//! Segments are taken with the collection locked, so a slow disk must not delay them: the sink only
//! appends to a queue, and without room there a segment is lost and counted.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use profiler_base::background::Background;
use profiler_base::kept::KeptFile;

use crate::collect::request::Sink;
use crate::record::recording::Recording;
use crate::record::recording::append::{Appended, Appender, SessionStart, Taken};

/// The maximum number of bytes that wait for the disk. A segment is appended whole, so one more may
/// wait.
const QUEUE_BYTES: u64 = 256 << 20;
/// The maximum size of a buffer that is reused: fresh memory costs a page fault for each page.
const SPARE_BYTES: usize = 16 << 20;

/// Frames that wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct FileQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Frames, with the contents of the file including them.
    chunks: VecDeque<(Vec<u8>, Appended)>,
    /// Bytes appended so far, and the part already in the file.
    appended: u64,
    written: u64,
    /// The contents of the file.
    held: Appended,
    /// A buffer for the next frames.
    spare: Vec<u8>,
    error: Option<Arc<io::Error>>,
    /// True if nothing more is appended.
    is_closed: bool,
    /// The thread has ended.
    has_ended: bool,
}

impl FileQueue {
    /// Spawns the thread that writes to the end of `file`, whose length is given.
    pub(crate) fn write_to(self: &Arc<Self>, mut file: KeptFile, length: u64) -> io::Result<()> {
        let queue = self.clone();
        let work = move || {
            let ends = Ends(&queue);
            queue.serve(&mut file, length);
            drop(ends);
        };
        Background::default().spawn("gpu-profiler-file", work).map(drop)
    }

    fn serve(&self, file: &mut KeptFile, mut length: u64) {
        while let Some((chunk, held)) = self.next() {
            if let Err(error) = file.write(|mut file| file.write_all(&chunk)) {
                // A frame that does not fit may have been written partly. If the part cannot be cut
                // off, a reader skips it.
                let _ = file.write(|file| file.set_len(length));
                return self.fail(error);
            }
            length += chunk.len() as u64;
            self.count_written(chunk, held);
        }
    }

    /// Counts frames as written, and keeps their buffer for the next.
    fn count_written(&self, mut chunk: Vec<u8>, held: Appended) {
        let mut state = self.state.lock();
        (state.written, state.held) = (state.written + chunk.len() as u64, held);
        if (state.spare.capacity()..=SPARE_BYTES).contains(&chunk.capacity()) {
            chunk.clear();
            state.spare = chunk;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the writing: the frames that wait are lost.
    fn fail(&self, error: io::Error) {
        let mut state = self.state.lock();
        state.error = Some(Arc::new(error));
        state.chunks.clear();
    }

    /// Waits for the next frames; `None` at the end.
    fn next(&self) -> Option<(Vec<u8>, Appended)> {
        let mut state = self.state.lock();
        loop {
            match state.chunks.pop_front() {
                None if state.is_closed => return None,
                None => self.changed.wait(&mut state),
                chunk => return chunk,
            }
        }
    }

    fn append(&self, chunk: Vec<u8>, held: Appended) {
        let mut state = self.state.lock();
        if !state.is_closed && state.error.is_none() {
            state.appended += chunk.len() as u64;
            state.chunks.push_back((chunk, held));
            self.changed.notify_all();
        }
    }

    fn take_spare(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().spare)
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.appended - state.written < QUEUE_BYTES
    }

    /// Ends the thread once it has written all appended frames.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn error(&self) -> Option<Arc<io::Error>> {
        self.state.lock().error.clone()
    }

    /// The contents of the file.
    pub(crate) fn contents(&self) -> Appended {
        self.state.lock().held
    }

    /// Waits until the file contains all frames appended so far, or for the end of the thread of a
    /// closed queue.
    ///
    /// # Errors
    /// Errors of writing the file; also if the disk takes longer than `time`.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), Arc<io::Error>> {
        let deadline = Instant::now().checked_add(time);
        let mut state = self.state.lock();
        let until = state.appended;
        loop {
            if let Some(error) = &state.error {
                return Err(error.clone());
            }
            if state.written >= until && (!state.is_closed || state.has_ended) {
                return Ok(());
            }
            if state.has_ended {
                return Err(Arc::new(io::Error::other("the thread that writes it ended early")));
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) if !self.changed.wait_until(&mut state, deadline).timed_out() => {}
                Some(_) => {
                    let left = until - state.written;
                    let why = format!("the disk has not taken {left} bytes within {time:?}");
                    return Err(Arc::new(io::Error::new(io::ErrorKind::TimedOut, why)));
                }
            }
        }
    }
}

/// Sets `has_ended` at the end of the thread, also after a panic.
struct Ends<'a>(&'a FileQueue);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// Appends a session to the queue of its file.
#[derive(Debug)]
pub(crate) struct FileSink {
    /// `None` until the session begins.
    appender: Option<Appender>,
    max_bytes: u64,
    queue: Arc<FileQueue>,
    /// All records of calls that returned before this time have arrived.
    settled_ns: Option<u64>,
}

impl FileSink {
    pub(crate) fn new(queue: Arc<FileQueue>, max_bytes: u64) -> Self {
        Self { appender: None, max_bytes, queue, settled_ns: None }
    }

    /// Returns the first frames of the file. Later ones are appended to the queue.
    pub(crate) fn take_opening(&mut self) -> Vec<u8> {
        self.appender.as_mut().map(Appender::take_opening).unwrap_or_default()
    }

    /// Makes each segment write a state, even if nothing has ended, until a matching call with
    /// `false`. Calls nest.
    pub(crate) fn require_states(&mut self, is_required: bool) {
        self.appender.iter_mut().for_each(|appender| appender.require_states(is_required));
    }

    /// The contents of the file. If writing failed, all entries missing from it are unwritten.
    pub(crate) fn contents(&self) -> Appended {
        let Some(appended) = self.appender.as_ref().map(Appender::appended) else {
            return Appended::default();
        };
        let (held, has_failed) = (self.queue.contents(), self.queue.error().is_some());
        let lost = if has_failed { appended.entries - held.entries } else { 0 };
        Appended { unwritten: appended.unwritten + lost, is_full: appended.is_full, ..held }
    }

    /// Appends the last recording of the session.
    pub(crate) fn finish(&mut self, recording: &Recording) {
        if let Some(appender) = &mut self.appender {
            appender.finish(recording);
            self.queue.append(appender.take_bytes(Vec::new()), appender.appended());
        }
    }
}

impl Sink for FileSink {
    fn begin(&mut self, start: &SessionStart<'_>) {
        self.appender = Some(Appender::begin(start, self.max_bytes));
    }

    fn add(&mut self, taken: &Taken<'_>) {
        let Some(appender) = &mut self.appender else { return };
        self.settled_ns = Some(taken.segment.settled_ns);
        if self.queue.error().is_some() {
            appender.lose(taken.segment);
            return;
        }
        appender.add(taken, self.queue.has_room());
        if appender.has_bytes() {
            let chunk = appender.take_bytes(self.queue.take_spare());
            self.queue.append(chunk, appender.appended());
        }
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.settled_ns
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::File;
    use std::rc::Rc;

    use cupti::Config;
    use cupti::clock::now_ns;
    use fake_cupti::{Fake, Work};

    use super::*;
    use crate::collect::request::{Retention, SessionRequest};
    use crate::collect::session::Session;
    use crate::profile::{OperationKind, Profile};

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn full_disk_leaves_the_chunks_before_and_keeps_the_error() {
        let Ok(mut full) = File::options().write(true).open("/dev/full") else { return };
        assert!(full.write_all(b"x").is_err());
        let queue = Arc::new(FileQueue::default());
        queue.append(vec![1; 10], Appended::default());
        queue.write_to(KeptFile::new(full, "/dev/full".into()).unwrap(), 0).unwrap();
        let error = queue.wait(LIMIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        queue.append(vec![1; 10], Appended::default());
        queue.close();
        assert_eq!(queue.wait(LIMIT).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(queue.contents(), Appended::default());
    }

    #[test]
    fn slow_disk_is_an_error_of_the_wait_and_of_nothing_else() {
        let queue = Arc::new(FileQueue::default());
        let most = QUEUE_BYTES as usize;
        queue.append(vec![0; most - 1], Appended::default());
        assert!(queue.has_room());
        queue.append(vec![0; 1], Appended { entries: 7, ..Appended::default() });
        assert!(!queue.has_room());
        let error = queue.wait(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&format!("has not taken {most} bytes")), "{error}");
        // The thread begins late.
        let null = File::options().write(true).open("/dev/null").unwrap();
        queue.write_to(KeptFile::new(null, "/dev/null".into()).unwrap(), 0).unwrap();
        queue.wait(LIMIT).unwrap();
        assert!(queue.has_room() && queue.contents().entries == 7);
        queue.close();
        queue.wait(LIMIT).unwrap();
    }

    /// Every order of a sink that appends three chunks and closes, and of a thread that writes them, whose write may fail at any of
    /// them. Each step holds the lock once, as in [`FileQueue::serve`].
    #[test]
    fn each_chunk_is_written_in_order_or_unwritten_in_every_order() {
        const CHUNKS: usize = 3;
        let held = |entries| Appended { entries, ..Appended::default() };
        // Bit by bit: the next step is the thread's, or the sink's.
        let mut orders = 0;
        for order in 0_u32..1 << 12 {
            for fails_at in (0..CHUNKS).map(Some).chain([None]) {
                let queue = FileQueue::default();
                let (mut file, mut writing, mut appended) = (Vec::new(), None, 0);
                let mut sink = |queue: &FileQueue| match appended {
                    0..CHUNKS => {
                        queue.append(vec![appended as u8; 1 + appended], held(appended as u64 + 1));
                        appended += 1;
                    }
                    _ => queue.close(),
                };
                let mut thread = |queue: &FileQueue| {
                    let Some((chunk, held)): Option<(Vec<u8>, Appended)> = writing.take() else {
                        writing = queue.state.lock().chunks.pop_front();
                        return;
                    };
                    if fails_at == Some(usize::from(chunk[0])) {
                        queue.fail(io::ErrorKind::StorageFull.into());
                    } else {
                        file.extend_from_slice(&chunk);
                        queue.count_written(chunk, held);
                    }
                };
                for step in 0..12 {
                    if order >> step & 1 == 0 { sink(&queue) } else { thread(&queue) }
                }
                // What is left of both, the sink's steps first.
                (0..=CHUNKS).for_each(|_| sink(&queue));
                (0..2 * CHUNKS).for_each(|_| thread(&queue));
                let whole: Vec<u8> = (0..CHUNKS).flat_map(|at| vec![at as u8; 1 + at]).collect();
                let written = fails_at.unwrap_or(CHUNKS);
                let bytes = written * (written + 1) / 2;
                assert_eq!(file, whole[..bytes], "{order:b} {fails_at:?}");
                assert_eq!(queue.contents().entries, written as u64, "{order:b} {fails_at:?}");
                assert_eq!(queue.error().is_some(), fails_at.is_some());
                let state = queue.state.lock();
                assert!(state.chunks.is_empty() && state.is_closed);
                assert_eq!(state.written, bytes as u64);
                orders += 1;
            }
        }
        assert_eq!(orders, 4 << 12);
    }

    /// A session that takes no segments by itself.
    fn start(
        fake: &Fake,
        config: &Config,
        keep: Retention,
        sink: Option<Arc<Mutex<dyn Sink>>>,
    ) -> Session {
        let (library, period) = (&fake.library().unwrap(), Duration::from_secs(3600));
        let samplings = &[];
        let request = SessionRequest { library, config, keep, sink, samplings, period, then: None };
        Session::start(&request).unwrap()
    }

    /// A session whose file is memory, and whose logs are taken on demand alone.
    struct Run {
        fake: Fake,
        session: Session,
        sink: Arc<Mutex<FileSink>>,
        queue: Arc<FileQueue>,
        file: Vec<u8>,
    }

    impl Run {
        fn new(config: &Config) -> Self {
            let fake = Fake::new();
            let queue = Arc::new(FileQueue::default());
            let sink = Arc::new(Mutex::new(FileSink::new(queue.clone(), u64::MAX)));
            let session = start(&fake, config, Retention::Nothing, Some(sink.clone()));
            let file = sink.lock().take_opening();
            Self { fake, session, sink, queue, file }
        }

        /// Makes ranges that end later than this after a window be withheld.
        fn sleep_after(&self, ns: u64) {
            self.sink.lock().appender.as_mut().unwrap().dormant_after_ns = ns;
        }

        fn step(&self) {
            let _step = nvtx::event("step").payload(7_u64).range();
            self.fake.launch(Work::kernel(c"kernel"));
        }

        /// Takes a segment. Returns the number of bytes that are new.
        fn take(&mut self) -> usize {
            self.session.catch_up().unwrap();
            self.write()
        }

        /// Writes what is in the queue.
        fn write(&mut self) -> usize {
            let before = self.file.len();
            let mut state = self.queue.state.lock();
            while let Some((chunk, _)) = state.chunks.pop_front() {
                state.written += chunk.len() as u64;
                self.file.extend(chunk);
            }
            self.file.len() - before
        }

        fn finish(mut self) -> Profile {
            let recording = self.session.stop(now_ns()).unwrap();
            self.sink.lock().finish(&recording);
            self.write();
            Profile::from_bytes(&self.file).unwrap()
        }
    }

    /// A segment is taken between the call of a stop and its effect. It ends after the call, so no later segment shows the end of a window.
    #[test]
    fn file_has_its_clock_though_a_segment_overtook_the_stop() {
        let mut run = Run::new(&Config::new());
        // So this session is not the last one, whose stop reads the clock.
        let beside = start(&run.fake, &Config::new(), Retention::Nothing, None);
        run.step();
        // A record without a call counts if it began before the stop.
        run.fake.unseen(&Work::memset(8).on_stream(99));
        std::thread::sleep(Duration::from_millis(1));
        let called_ns = now_ns();
        run.take();
        let recording = run.session.stop(called_ns).unwrap();
        run.sink.lock().finish(&recording);
        run.write();
        let profile = Profile::from_bytes(&run.file).unwrap();
        let starts: Vec<Duration> =
            profile.operations().map(|operation| operation.start().unwrap()).collect();
        assert_eq!(starts.len(), 2, "{starts:?}");
        assert!(starts.iter().all(|start| *start < profile.duration()), "{starts:?}");
        drop(beside);
    }

    /// A program of four steps, each of which comes at one of the gaps between what a session does with the collection locked.
    struct Program {
        fake: Rc<Fake>,
        /// The gap of each step, in order.
        gaps: [usize; 4],
        next: usize,
        gap: usize,
        range: Option<nvtx::Range>,
    }

    thread_local! {
        static PROGRAM: RefCell<Option<Program>> = const { RefCell::new(None) };
    }

    impl Program {
        /// Goes on to the next gap, and does the steps that come there.
        fn go_on() {
            PROGRAM.with_borrow_mut(|program| {
                let Some(program) = program else { return };
                while program.gaps.get(program.next) == Some(&program.gap) {
                    match program.next {
                        0 => program.range = Some(nvtx::range("range")),
                        1 => _ = program.fake.launch(Work::kernel(c"kernel")),
                        // A record without a call counts by its start.
                        2 => program.fake.unseen(&Work::memset(8).on_stream(99)),
                        _ => program.range = None,
                    }
                    program.next += 1;
                }
                program.gap += 1;
            });
        }
    }

    /// A file's sink. What the program does while a segment is given to it is in the next one.
    #[derive(Debug)]
    struct Between(FileSink);

    impl Sink for Between {
        fn begin(&mut self, start: &SessionStart<'_>) {
            self.0.begin(start);
        }

        fn begins_with(&mut self, first: u32, is_final: bool) {
            self.0.begins_with(first, is_final);
        }

        fn add(&mut self, taken: &Taken<'_>) {
            self.0.add(taken);
            Program::go_on();
        }

        fn waits_since_ns(&self) -> Option<u64> {
            self.0.waits_since_ns()
        }
    }

    /// The operations of a profile with their ranges, and its ranges with whether they are open.
    fn content(profile: &Profile) -> (Vec<(OperationKind, Option<String>)>, Vec<bool>) {
        let operations = profile.operations().map(|operation| {
            (operation.kind(), operation.range().map(|range| range.name().to_owned()))
        });
        let mut operations: Vec<_> = operations.collect();
        operations.sort();
        (operations, profile.ranges().map(|range| range.is_open()).collect())
    }

    /// The file, and a live profile beside it, have what came before the stop was called, in each order of a program's steps and a
    /// session's: a segment, the reading of the clock for a stop, its signal, a segment of another thread, and the segments that the
    /// stop takes. 420 orders; within a step nothing else can happen, as all are under the collection's lock, or one store.
    #[test]
    fn file_has_the_work_before_the_stop_in_every_order() {
        const GAPS: usize = 7;
        let mut orders = Vec::new();
        for number in 0..GAPS.pow(4) {
            let gaps = [3, 2, 1, 0].map(|place| number / GAPS.pow(place) % GAPS);
            orders.extend(gaps.is_sorted().then_some(gaps));
        }
        assert_eq!(orders.len(), 210);
        // Each seventh, or all in a thorough run.
        let step = if std::env::var_os("THOROUGH_TESTS").is_some() { 1 } else { 7 };
        let cases = orders.iter().flat_map(|gaps| [(*gaps, false), (*gaps, true)]);
        for (gaps, is_live) in cases.step_by(step) {
            let fake = Rc::new(Fake::new());
            let queue = Arc::new(FileQueue::default());
            let sink = Arc::new(Mutex::new(Between(FileSink::new(queue.clone(), u64::MAX))));
            let config = Config::new();
            let session = start(&fake, &config, Retention::Nothing, Some(sink.clone()));
            let live = is_live.then(|| start(&fake, &config, Retention::All, None));
            let mut file = sink.lock().0.take_opening();
            let program = Program { fake: fake.clone(), gaps, next: 0, gap: 0, range: None };
            PROGRAM.set(Some(program));
            Program::go_on();
            session.catch_up().unwrap();
            let called_ns = now_ns();
            let gap_of_call = PROGRAM.with_borrow(|program| program.as_ref().unwrap().gap);
            Program::go_on();
            session.signal_stop(called_ns);
            Program::go_on();
            session.catch_up().unwrap();
            let recording = session.stop(called_ns).unwrap();
            sink.lock().0.finish(&recording);
            // What comes later is of no session.
            let program = PROGRAM.take().unwrap();
            for (chunk, _) in queue.state.lock().chunks.drain(..) {
                file.extend(chunk);
            }
            let read = Profile::from_bytes(&file).unwrap();
            let mut profiles = vec![("file", read)];
            if let Some(live) = live {
                let recording = live.stop(called_ns).unwrap();
                profiles.push(("live", Profile::from_recording(recording)));
            }
            let is_before = |step: usize| gaps[step] < gap_of_call;
            let in_range = Some("range".to_owned());
            let operations =
                [(1, OperationKind::Kernel, in_range), (2, OperationKind::Memset, None)];
            let operations = operations.into_iter().filter(|(step, ..)| is_before(*step));
            let mut operations: Vec<_> = operations.map(|(_, kind, range)| (kind, range)).collect();
            operations.sort();
            for (of, profile) in profiles {
                let order = format!("{of}, steps in {gaps:?}, live beside: {is_live}");
                let (found, ranges) = content(&profile);
                assert_eq!(found, operations, "{order}");
                // One that began after the call may be there, empty.
                assert!(ranges.len() == 1 || ranges.is_empty() && !is_before(0), "{order}");
                // One that ended after the call may be open or have its end.
                assert!(!ranges.contains(&true) || !is_before(3), "{order}");
                // A record without a call makes it incomplete.
                let health = profile.health();
                assert_eq!(health.is_complete(), !is_before(2), "{order}: {health}");
                assert_eq!(health.losses.truncated, 0, "{order}: {health}");
            }
            drop(program);
        }
    }

    fn names(profile: &Profile) -> Vec<String> {
        profile.ranges().map(|range| range.name().to_owned()).collect()
    }

    #[test]
    fn paused_session_does_not_grow_its_file_and_wakes_up_whole() {
        let mut run = Run::new(&Config::new());
        run.sleep_after(0);
        run.step();
        let life = nvtx::process_range("life");
        let outer = nvtx::range("outer");
        assert!(run.take() > 0);
        run.session.pause().unwrap();
        // The end of the window, and the ranges until then.
        assert!(run.take() > 0);
        let (begun, ended) = (nvtx::process_range("begun"), nvtx::process_range("ended"));
        let sizes: Vec<usize> = (0..20)
            .map(|_| {
                run.step();
                nvtx::mark("asleep");
                run.take()
            })
            .collect();
        assert_eq!(sizes, [0; 20]);
        // What the file has open ends in it.
        drop(life);
        drop(ended);
        drop(outer);
        assert!(run.take() > 0);
        let within = nvtx::event("open").payload(3_u64).within(&begun).range();
        assert_eq!(run.take(), 0);
        run.session.resume().unwrap();
        run.step();
        nvtx::mark("awake");
        drop(within);
        assert!(run.take() > 0);
        drop(begun);
        let profile = run.finish();
        profile.health().assert_complete();
        assert_eq!(profile.recording().unwrap().windows_ns().len(), 2);
        assert_eq!(names(&profile), ["step", "outer", "open", "step"]);
        assert!(profile.ranges().all(|range| !range.is_open()));
        let open = profile.ranges().nth(2).unwrap();
        assert_eq!(open.payload(), Some(nvtx::Payload::U64(3)));
        assert_eq!(open.process_range().unwrap().name(), "begun");
        let lives: Vec<_> =
            profile.process_ranges().map(|range| (range.name(), range.is_open())).collect();
        assert_eq!(lives, [("life", false), ("begun", false)]);
        assert_eq!(profile.marks().map(|mark| mark.name()).collect::<Vec<_>>(), ["awake"]);
        assert_eq!(profile.range("open/step").unwrap().kernels(), 1);
    }

    #[test]
    fn session_that_starts_in_a_pause_writes_nothing_until_it_is_on() {
        let mut run = Run::new(&Config::new().start_paused(true));
        let outer = nvtx::range("outer");
        for _ in 0..20 {
            run.step();
            assert_eq!(run.take(), 0);
        }
        let read = Profile::from_bytes(&run.file).unwrap();
        assert_eq!((read.health().losses.truncated, read.ranges().count()), (1, 0));
        for _ in 0..3 {
            run.session.resume().unwrap();
            run.step();
            run.session.pause().unwrap();
            assert!(run.take() > 0);
        }
        drop(outer);
        let profile = run.finish();
        profile.health().assert_complete();
        assert_eq!(names(&profile), ["outer", "step", "step", "step"]);
        assert_eq!(profile.range("outer/step").unwrap().kernels(), 3);
        assert_eq!(profile.recording().unwrap().windows_ns().len(), 3);
    }

    #[test]
    fn segments_without_room_are_a_counted_hole() {
        let mut run = Run::new(&Config::new());
        let outer = nvtx::range("outer");
        run.step();
        run.take();
        // A disk that takes nothing.
        run.queue.state.lock().appended += QUEUE_BYTES;
        let lost_from_ns = now_ns();
        let lost = nvtx::process_range("lost");
        for _ in 0..5 {
            run.step();
            assert_eq!(run.take(), 0);
        }
        drop(lost);
        drop(outer);
        // The end of what the file has open is not lost.
        assert!(run.take() > 0);
        let lost_until_ns = now_ns();
        run.queue.state.lock().written += QUEUE_BYTES;
        let open = nvtx::range("after");
        run.step();
        run.take();
        drop(open);
        let profile = run.finish();
        assert_eq!(names(&profile), ["outer", "step", "after", "step"]);
        assert!(profile.ranges().all(|range| !range.is_open()));
        assert_eq!(profile.kernels().count(), 2);
        let health = profile.health();
        // Five calls, kernels, ranges and payloads, and both ends of a process range.
        assert!(health.losses.unwritten_entries >= 5 * 4 + 2, "{health}");
        assert!(health.accounts.kernels.is_balanced() && !health.is_complete(), "{health}");
        assert!(health.to_string().contains("entries not written to the file"), "{health}");
        let windows = profile.recording().unwrap().windows_ns();
        assert!(windows.len() == 2 && windows[0].1 <= lost_from_ns, "{windows:?}");
        assert!((lost_from_ns..=lost_until_ns).contains(&windows[1].0), "{windows:?}");
    }

    /// While nothing happens, a state a second is enough.
    #[test]
    fn quiet_session_writes_little() {
        let mut run = Run::new(&Config::new());
        let open = nvtx::range("open");
        run.step();
        run.take();
        let sizes: usize = (0..50).map(|_| run.take()).sum();
        assert!(sizes < 2_000, "{sizes}");
        run.sink.lock().require_states(true);
        assert!(run.take() > 0);
        drop(open);
        run.finish().health().assert_complete();
    }
}
