//! The library's own thread, for tasks that take long, wait for the GPU or are timed.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A task of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Turns the recording on, as the options require.
    Start,
    /// Turns the recording off permanently, as the options require.
    Stop,
    /// Turns CUPTI off if no window has begun since.
    Rest,
    /// Writes the manifest.
    Describe,
    /// Ends the recording.
    Finish,
}

/// The due times of tasks. Each task has at most one.
#[derive(Debug, Default)]
struct Plan {
    due: Vec<(Instant, Task)>,
    /// True after the last task.
    is_done: bool,
}

/// The plan of the thread. Any thread can add tasks.
#[derive(Debug, Default)]
pub(crate) struct Control {
    plan: Mutex<Plan>,
    changed: Condvar,
}

impl Control {
    /// Schedules a task after this delay. A task that is already scheduled runs at the earlier of
    /// the two times.
    pub(crate) fn plan(&self, task: Task, after: Duration) {
        let Some(at) = Instant::now().checked_add(after) else { return };
        let mut plan = self.plan.lock();
        match plan.due.iter_mut().find(|(_, planned)| *planned == task) {
            Some((planned, _)) => *planned = at.min(*planned),
            None => plan.due.push((at, task)),
        }
        drop(plan);
        self.changed.notify_all();
    }

    /// Reschedules a task and discards its former time.
    pub(crate) fn put_off(&self, task: Task, after: Duration) {
        self.cancel(task);
        self.plan(task, after);
    }

    pub(crate) fn cancel(&self, task: Task) {
        self.plan.lock().due.retain(|(_, planned)| *planned != task);
    }

    /// Waits for the next task. Once scheduled, [`Task::Finish`] precedes all others, and it is the
    /// last task.
    pub(crate) fn next(&self) -> Task {
        let mut plan = self.plan.lock();
        loop {
            let now = Instant::now();
            let first = plan
                .due
                .iter()
                .enumerate()
                .min_by_key(|(_, (at, task))| (*task != Task::Finish, *at));
            match first {
                Some((place, &(at, task))) if at <= now => {
                    plan.due.swap_remove(place);
                    return task;
                }
                Some((_, &(at, _))) => _ = self.changed.wait_until(&mut plan, at),
                None => self.changed.wait(&mut plan),
            }
        }
    }

    /// Signals that the last task is done.
    pub(crate) fn done(&self) {
        self.plan.lock().is_done = true;
        self.changed.notify_all();
    }

    /// Schedules the last task and waits for it. Returns false if that takes longer than `longest`.
    pub(crate) fn finish_within(&self, longest: Duration) -> bool {
        let Some(until) = Instant::now().checked_add(longest) else { return false };
        // A signal may have interrupted the exiting thread while it held the lock.
        let Some(mut plan) = self.plan.try_lock_until(until) else { return false };
        if !plan.is_done {
            plan.due.push((Instant::now(), Task::Finish));
            self.changed.notify_all();
        }
        while !plan.is_done {
            if self.changed.wait_until(&mut plan, until).timed_out() {
                return plan.is_done;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn tasks_come_in_the_order_of_their_times() {
        let control = Control::default();
        control.plan(Task::Stop, LONG);
        let began = Instant::now();
        control.plan(Task::Rest, Duration::from_millis(10));
        control.plan(Task::Rest, LONG);
        assert_eq!(control.next(), Task::Rest);
        assert!(began.elapsed() >= Duration::from_millis(10));
        control.plan(Task::Describe, Duration::ZERO);
        assert_eq!(control.next(), Task::Describe);
        control.plan(Task::Start, Duration::ZERO);
        control.put_off(Task::Start, LONG);
        control.put_off(Task::Stop, Duration::ZERO);
        assert_eq!(control.next(), Task::Stop);
        control.cancel(Task::Start);
        assert!(control.plan.lock().due.is_empty());
    }

    #[test]
    fn finish_runs_first_and_is_awaited() {
        let control = Control::default();
        control.plan(Task::Describe, Duration::ZERO);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while control.next() != Task::Finish {}
                control.done();
            });
            assert!(control.finish_within(LONG));
        });
        assert!(control.finish_within(LONG), "it is done");
        let other = Control::default();
        assert!(!other.finish_within(Duration::from_millis(20)));
        assert_eq!(other.next(), Task::Finish);
    }
}
