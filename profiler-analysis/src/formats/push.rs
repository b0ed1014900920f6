//! Profiles pushed to a receiver over HTTP while the program runs, for continuous profiling.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use profiler_base::background::Background;
use profiler_base::setters;

use super::export::Export;
use crate::error::{Error, Kind};
use profiler_core::profile::Profile;

/// Settings of a [`ProfilePush`].
#[derive(Debug, Clone)]
#[must_use = "call `start`"]
pub struct PushTo {
    url: String,
    content_type: String,
    headers: Vec<(String, String)>,
    most_waiting: usize,
    timeout: Duration,
}

/// The outcomes of pushed profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PushCounts {
    /// Profiles that the receiver accepted.
    pub sent: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Profiles replaced by later ones, because the queue was full.
    pub dropped: u64,
    /// Profiles that could not be written, or that the receiver refused or did not accept in time.
    pub failed: u64,
    /// Profiles in the queue or being sent.
    pub waiting: u64,
    /// The reason of the last failure.
    pub last_error: Option<String>,
}

/// Pushes profiles to a receiver, from its own thread. Dropping it does not wait: profiles that are
/// not yet being sent are dropped.
///
/// ```no_run
/// use std::time::Duration;
///
/// use profiler_analysis::formats::push::PushTo;
/// use profiler_analysis::Format;
/// use profiler_core::Profiler;
///
/// # #[cfg(not(feature = "otlp"))]
/// # fn main() {}
/// # #[cfg(feature = "otlp")]
/// # fn main() -> Result<(), profiler_analysis::Error> {
/// let push = PushTo::new("http://localhost:4318/v1development/profiles").start()?;
/// let profiler = Profiler::builder().keep_last(Duration::from_secs(10)).build()?;
/// profiler.start()?;
/// loop {
///     std::thread::sleep(Duration::from_secs(10));
///     push.push(profiler.snapshot()?, Format::Otlp);
/// }
/// # }
/// ```
///
/// [`push`](Self::push) never waits for the receiver: it takes a lock only for a queue operation.
/// Profiles are written and sent one after the other, each once; [`counts`](Self::counts) contains
/// the losses.
#[derive(Debug)]
#[must_use = "profiles are dropped when this is"]
pub struct ProfilePush {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: PushTo,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Box<Profile>, Export)>,
    is_sending: bool,
    is_over: bool,
    counts: PushCounts,
}

impl PushTo {
    /// Creates settings for a receiver of `POST` requests at this URL. Only `http` is supported.
    /// The receiver accepts OTLP profiles, such as OpenTelemetry's collector at
    /// `http://localhost:4318/v1development/profiles`, or pprof. For encryption, send to a
    /// collector on the same host.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            content_type: "application/x-protobuf".to_owned(),
            headers: Vec::new(),
            most_waiting: 4,
            timeout: Duration::from_secs(10),
        }
    }

    setters! {
        /// Sets the type of the content, `application/x-protobuf` by default.
        content_type(text: impl Into<String>) content_type = text.into();
        /// Adds a header, such as an authorisation.
        header(name: impl Into<String>, value: impl Into<String>) headers += (name.into(), value.into());
        /// Sets the maximum number of queued profiles, 4 by default, at least 1. When the queue is
        /// full, the oldest profile is dropped and counted.
        most_waiting(profiles: usize) most_waiting = profiles.max(1);
        /// Sets the maximum total time of a request, 10 s by default.
        timeout(time: Duration) timeout = time;
    }

    /// Starts the thread. Nothing is sent before the first profile.
    ///
    /// # Errors
    /// The URL does not start with `http://`, or the thread cannot be started.
    pub fn start(self) -> Result<ProfilePush, Error> {
        let refused = |why: String| Error::new(Kind::Push { why });
        if !self.url.starts_with("http://") {
            return Err(refused(format!("{} does not start with http://", self.url)));
        }
        let shared =
            Arc::new(Shared { to: self, queue: Mutex::default(), changed: Condvar::new() });
        let of_thread = shared.clone();
        let work = move || of_thread.work();
        let spawned = Background::default().spawn("gpu-profiler-push", work);
        spawned.map_err(|error| refused(format!("its thread cannot be started: {error}")))?;
        Ok(ProfilePush { shared })
    }
}

impl ProfilePush {
    /// Adds a profile to the queue, to be written in this format. If the queue is full, the oldest
    /// profile is dropped. Does not wait for the receiver.
    pub fn push(&self, profile: Profile, export: impl Into<Export>) {
        let mut queue = self.shared.queue.lock();
        let oldest = match queue.waiting.len() >= self.shared.to.most_waiting {
            true => queue.waiting.pop_front(),
            false => None,
        };
        queue.counts.dropped += u64::from(oldest.is_some());
        queue.waiting.push_back((Box::new(profile), export.into()));
        drop(queue);
        self.shared.changed.notify_all();
        // Freeing a large profile takes time, so the lock is released first.
        drop(oldest);
    }

    /// Returns the outcomes of the profiles so far.
    pub fn counts(&self) -> PushCounts {
        let queue = self.shared.queue.lock();
        let waiting = queue.waiting.len() as u64 + u64::from(queue.is_sending);
        PushCounts { waiting, ..queue.counts.clone() }
    }

    /// Waits until the queue is empty and no profile is being sent, at most this long. Returns true
    /// if so.
    pub fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut queue = self.shared.queue.lock();
        while queue.is_sending || !queue.waiting.is_empty() {
            if self.shared.changed.wait_until(&mut queue, until).timed_out() {
                return !queue.is_sending && queue.waiting.is_empty();
            }
        }
        true
    }
}

impl Drop for ProfilePush {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_over = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.shared.changed.notify_all();
        drop(waiting);
    }
}

impl Shared {
    fn work(&self) {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(self.to.timeout))
            // The environment's proxy is meant for other hosts.
            .proxy(None)
            .build();
        let agent = ureq::Agent::new_with_config(config);
        loop {
            let mut queue = self.queue.lock();
            let (profile, export) = loop {
                if queue.is_over {
                    return;
                }
                if let Some(next) = queue.waiting.pop_front() {
                    break next;
                }
                self.changed.wait(&mut queue);
            };
            queue.is_sending = true;
            drop(queue);
            let sent = self.send(&agent, &profile, export);
            drop(profile);
            let mut queue = self.queue.lock();
            queue.is_sending = false;
            match sent {
                Ok(bytes) => {
                    queue.counts.sent += 1;
                    queue.counts.bytes += bytes;
                }
                Err(why) => {
                    queue.counts.failed += 1;
                    queue.counts.last_error = Some(why);
                }
            }
            self.changed.notify_all();
        }
    }

    fn send(&self, agent: &ureq::Agent, profile: &Profile, export: Export) -> Result<u64, String> {
        let mut body = Vec::new();
        crate::formats::export::format::export(profile, export, &mut body)
            .map_err(|error| error.to_string())?;
        let PushTo { url, content_type, headers, .. } = &self.to;
        let mut request = agent.post(url).header("Content-Type", content_type);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let sent = request.send(&body[..]);
        sent.map_err(|error| format!("could not push a profile to {url}: {error}"))?;
        Ok(body.len() as u64)
    }
}
