//! The file of a running session: a sink that makes frames, and the thread that writes them.
//!
//! Segments are taken with the collection locked, so a slow disk must not delay them: the sink only
//! appends to a queue, and without room there a segment is lost and counted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::background::Background;
use crate::collect::request::Sink;
use crate::record::recording::Recording;
use crate::record::recording::append::{Appended, Appender, SessionStart, Taken};

/// Bytes that may wait for the disk. A segment is appended whole, so one more may wait.
const QUEUE_BYTES: u64 = 64 << 20;

/// Frames that wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct FileQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes that were appended so far, and those of them that the file has.
    appended: u64,
    written: u64,
    error: Option<Arc<io::Error>>,
    /// Nothing is appended any more.
    is_closed: bool,
    /// The thread has ended.
    has_ended: bool,
}

impl FileQueue {
    /// Spawns the thread that writes to the end of `file`, which has this length.
    pub(crate) fn write_to(self: &Arc<Self>, file: File, length: u64) -> io::Result<()> {
        let queue = self.clone();
        let work = move || {
            let ends = Ends(&queue);
            queue.serve(&file, length);
            drop(ends);
        };
        Background::default().spawn("gpu-profiler-file", work).map(drop)
    }

    fn serve(&self, mut file: &File, mut length: u64) {
        while let Some(chunk) = self.next() {
            if let Err(error) = file.write_all(&chunk) {
                // Of a frame that does not fit a part may have been written. If it cannot be cut off, a reader skips it.
                let _ = file.set_len(length);
                let mut state = self.state.lock();
                state.error = Some(Arc::new(error));
                state.chunks.clear();
                return;
            }
            length += chunk.len() as u64;
            self.state.lock().written += chunk.len() as u64;
            self.changed.notify_all();
        }
    }

    /// Waits for the next frames; `None` at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            match state.chunks.pop_front() {
                None if state.is_closed => return None,
                None => self.changed.wait(&mut state),
                chunk => return chunk,
            }
        }
    }

    fn append(&self, chunk: Vec<u8>) {
        let mut state = self.state.lock();
        if !chunk.is_empty() && !state.is_closed && state.error.is_none() {
            state.appended += chunk.len() as u64;
            state.chunks.push_back(chunk);
            self.changed.notify_all();
        }
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.appended - state.written < QUEUE_BYTES
    }

    /// Ends the thread once it has written what was appended.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn error(&self) -> Option<Arc<io::Error>> {
        self.state.lock().error.clone()
    }

    pub(crate) fn written(&self) -> u64 {
        self.state.lock().written
    }

    /// Waits until the file has what was appended so far, or for the end of the thread of a closed queue.
    ///
    /// # Errors
    /// Those of writing the file, and one if the disk takes longer than `time`.
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

/// Notes the end of the thread, also by a panic.
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

    /// Returns the frames with which the file begins. Later ones are appended to the queue.
    pub(crate) fn take_opening(&mut self) -> Vec<u8> {
        self.appender.as_mut().map(Appender::take_opening).unwrap_or_default()
    }

    /// Has the next segment write a state, even if nothing has ended.
    pub(crate) fn require_state(&mut self) {
        self.appender.iter_mut().for_each(Appender::require_state);
    }

    pub(crate) fn appended(&self) -> Appended {
        self.appender.as_ref().map(Appender::appended).unwrap_or_default()
    }

    /// Appends the last recording of the session.
    pub(crate) fn finish(&mut self, recording: &Recording) {
        if let Some(appender) = &mut self.appender {
            appender.finish(recording);
            self.queue.append(appender.take_bytes());
        }
    }
}

impl Sink for FileSink {
    fn begin(&mut self, start: &SessionStart<'_>) {
        self.appender = Some(Appender::begin(start, self.max_bytes));
    }

    fn begins_with(&mut self, _: u32, _: bool) {}

    fn add(&mut self, taken: &Taken<'_>) {
        let Some(appender) = &mut self.appender else { return };
        self.settled_ns = Some(taken.segment.settled_ns);
        if self.queue.error().is_some() {
            appender.lose(taken.segment);
            return;
        }
        appender.add(taken, self.queue.has_room());
        self.queue.append(appender.take_bytes());
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.settled_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn full_disk_leaves_the_chunks_before_and_keeps_the_error() {
        let Ok(mut full) = File::options().write(true).open("/dev/full") else { return };
        assert!(full.write_all(b"x").is_err());
        let queue = Arc::new(FileQueue::default());
        queue.append(vec![1; 10]);
        queue.write_to(full, 0).unwrap();
        let error = queue.wait(LIMIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        queue.append(vec![1; 10]);
        queue.close();
        assert_eq!(queue.wait(LIMIT).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(queue.written(), 0);
    }

    #[test]
    fn slow_disk_is_an_error_of_the_wait_and_of_nothing_else() {
        let queue = Arc::new(FileQueue::default());
        let most = QUEUE_BYTES as usize;
        queue.append(vec![0; most - 1]);
        assert!(queue.has_room());
        queue.append(vec![0; 1]);
        assert!(!queue.has_room());
        let error = queue.wait(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&format!("has not taken {most} bytes")), "{error}");
        // The thread begins late.
        let null = File::options().write(true).open("/dev/null").unwrap();
        queue.write_to(null, 0).unwrap();
        queue.wait(LIMIT).unwrap();
        assert!(queue.has_room() && queue.written() == QUEUE_BYTES);
        queue.close();
        queue.wait(LIMIT).unwrap();
    }
}
