//! A thread that outlives sessions and does what it is sent, and nothing in between.

use std::sync::mpsc::{Receiver, Sender, channel};

type Job = Box<dyn FnOnce(&mut Vec<nvtx::Range>) + Send>;

pub struct Worker {
    jobs: Sender<Job>,
    done: Receiver<()>,
}

impl Worker {
    /// The thread ends when the worker is dropped.
    pub fn new() -> Self {
        let (jobs, inbox) = channel::<Job>();
        let (finished, done) = channel();
        std::thread::spawn(move || {
            let mut guards = Vec::new();
            for job in inbox {
                job(&mut guards);
                if finished.send(()).is_err() {
                    return;
                }
            }
        });
        Self { jobs, done }
    }

    /// Runs a job on the thread and waits for it. The job gets the guards that earlier jobs left there, oldest first.
    pub fn run(&self, job: impl FnOnce(&mut Vec<nvtx::Range>) + Send + 'static) {
        self.jobs.send(Box::new(job)).unwrap();
        self.done.recv().unwrap();
    }
}
