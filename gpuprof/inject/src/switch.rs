//! The switch that turns the recording on and off by options, ranges, `cudaProfilerStart` and
//! socket requests.
//!
//! A window of the recording is open while at least one of them requests it. Threads of the program
//! begin and end windows here. The library's own thread turns CUPTI off later.

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::always_on;

/// The switch of this process's recording.
static SWITCH: OnceLock<Switch<fn(Change)>> = OnceLock::new();

/// Sets the switch of this process's recording, once.
pub(crate) fn install(switch: Switch<fn(Change)>) {
    let _ = SWITCH.set(switch);
}

/// The switch of this process's recording, if there is one.
pub(crate) fn installed() -> Option<&'static Switch<fn(Change)>> {
    SWITCH.get()
}

/// Called before a range begins, if ranges turn the recording on.
#[cold]
pub(crate) fn range_begins(name: &str) -> Option<Instance> {
    always_on::range_begins(name).map(Instance).or_else(|| installed()?.range_begins(name))
}

/// Called after an instance has ended.
#[cold]
pub(crate) fn range_ended(instance: Instance) {
    if instance.0 != 0 {
        always_on::range_ended(instance.0);
    } else if let Some(switch) = installed() {
        switch.range_ended(instance);
    }
}

/// The events at which a switch calls its function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// A window begins. CUPTI is turned on first if it is off.
    Begin,
    /// The window ends. The function must not wait.
    End,
    /// The last counted instance of the range has ended. The options start nothing from then on.
    Disarm,
}

/// The sources that request the recording.
#[derive(Debug, Default)]
struct Wants {
    /// Requested by the options or a socket request.
    asked: bool,
    /// Requested by the program with `cudaProfilerStart`.
    program: bool,
    /// The number of open instances of the range.
    instances: u64,
    /// The number of instances that have ended.
    ended: u64,
    /// True if ranges and the program can no longer turn the recording on.
    is_over: bool,
    /// The number of windows so far.
    windows: u64,
}

impl Wants {
    fn is_on(&self) -> bool {
        self.asked || self.program || self.instances != 0
    }
}

/// An open counted range: the number of its unit, or 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance(u64);

pub(crate) struct Switch<F> {
    /// The exact name of the range that turns the recording on, in any domain.
    range: Option<Box<str>>,
    /// The number of instances after which neither ranges nor the program turn the recording on.
    instances: Option<u64>,
    wants: Mutex<Wants>,
    on_change: F,
}

impl<F: Fn(Change)> Switch<F> {
    /// Creates a switch that is on if `asked`.
    pub(crate) fn new(
        asked: bool,
        range: Option<&str>,
        instances: Option<u64>,
        on_change: F,
    ) -> Switch<F> {
        let wants = Wants { asked, windows: asked.into(), ..Wants::default() };
        Switch { range: range.map(Into::into), instances, wants: Mutex::new(wants), on_change }
    }

    /// Changes the requests, and begins or ends a window if that changes the result. Other threads
    /// that request the recording wait for the thread that turns CUPTI on.
    fn change<R>(&self, change: impl FnOnce(&mut Wants) -> R) -> R {
        let mut wants = self.wants.lock();
        let before = wants.is_on();
        let result = change(&mut wants);
        match (before, wants.is_on()) {
            (false, true) => {
                wants.windows += 1;
                (self.on_change)(Change::Begin);
            }
            (true, false) => (self.on_change)(Change::End),
            _ => {}
        }
        result
    }

    /// Called before a range begins.
    pub(crate) fn range_begins(&self, name: &str) -> Option<Instance> {
        if self.range.as_deref() != Some(name) {
            return None;
        }
        self.change(|wants| {
            let counts = !wants.is_over;
            wants.instances += u64::from(counts);
            counts.then_some(Instance(0))
        })
    }

    /// Called after an instance has ended.
    pub(crate) fn range_ended(&self, _instance: Instance) {
        let is_over = self.change(|wants| {
            wants.instances = wants.instances.saturating_sub(1);
            wants.ended += 1;
            let is_over = self.instances.is_some_and(|most| wants.ended >= most) && !wants.is_over;
            if is_over {
                (wants.is_over, wants.instances) = (true, 0);
            }
            is_over
        });
        if is_over {
            (self.on_change)(Change::Disarm);
        }
    }

    /// Called when the program calls `cudaProfilerStart` or `cudaProfilerStop`.
    pub(crate) fn program_turns(&self, on: bool) {
        self.change(|wants| wants.program = on && !wants.is_over);
    }

    /// Turns the recording on. Returns false if it was already on by options or request.
    pub(crate) fn turn_on(&self) -> bool {
        self.change(|wants| !std::mem::replace(&mut wants.asked, true))
    }

    /// Turns the recording off for all sources. Later ranges and calls of the program turn it on
    /// again. Returns false if it was already off.
    pub(crate) fn turn_off(&self) -> bool {
        self.change(|wants| {
            let was_on = wants.is_on();
            (wants.asked, wants.program, wants.instances) = (false, false, 0);
            was_on
        })
    }

    /// Turns the recording off. From now on only a request turns it on.
    pub(crate) fn end(&self) {
        self.turn_off();
        self.change(|wants| wants.is_over = true);
        (self.on_change)(Change::Disarm);
    }

    /// Returns true if the recording is on, and the number of windows so far.
    pub(crate) fn state(&self) -> (bool, u64) {
        let wants = self.wants.lock();
        (wants.is_on(), wants.windows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counted {
        begun: AtomicU64,
        ended: AtomicU64,
        disarmed: AtomicBool,
    }

    impl Counted {
        fn add(&self, change: Change) {
            match change {
                Change::Begin => _ = self.begun.fetch_add(1, Ordering::Relaxed),
                Change::End => _ = self.ended.fetch_add(1, Ordering::Relaxed),
                Change::Disarm => self.disarmed.store(true, Ordering::Relaxed),
            }
        }

        fn counts(&self) -> (u64, u64) {
            (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_range_is_a_window_until_the_last_instance() {
        let counted = Counted::default();
        let switch = Switch::new(false, Some("step"), Some(3), |change| counted.add(change));
        assert!(switch.range_begins("other").is_none());
        let outer = switch.range_begins("step").unwrap();
        let inner = switch.range_begins("step").unwrap();
        assert_eq!(counted.counts(), (1, 0));
        switch.range_ended(inner);
        switch.range_ended(outer);
        assert_eq!((counted.counts(), switch.state()), ((1, 1), (false, 1)));
        assert!(!counted.disarmed.load(Ordering::Relaxed));
        let third = switch.range_begins("step").unwrap();
        let fourth = switch.range_begins("step").unwrap();
        switch.range_ended(third);
        assert_eq!(counted.counts(), (2, 2));
        assert!(counted.disarmed.load(Ordering::Relaxed));
        switch.range_ended(fourth);
        assert!(switch.range_begins("step").is_none());
        assert_eq!((counted.counts(), switch.state()), ((2, 2), (false, 2)));
        // A request still counts.
        assert!(switch.turn_on() && !switch.turn_on());
        assert_eq!(switch.state(), (true, 3));
    }

    #[test]
    fn window_lasts_until_its_last_user_leaves() {
        let counted = Counted::default();
        let switch = Switch::new(true, Some("step"), None, |change| counted.add(change));
        switch.program_turns(true);
        let instance = switch.range_begins("step").unwrap();
        switch.program_turns(false);
        assert_eq!(counted.counts(), (0, 0));
        assert!(switch.turn_off() && !switch.turn_off());
        assert_eq!(counted.counts(), (0, 1));
        switch.range_ended(instance);
        switch.program_turns(true);
        assert_eq!((counted.counts(), switch.state()), ((1, 1), (true, 2)));
        switch.end();
        switch.program_turns(true);
        assert_eq!((counted.counts(), switch.state()), ((1, 2), (false, 2)));
    }

    #[test]
    fn threads_agree_on_the_windows() {
        let counted = Counted::default();
        let switch = Switch::new(false, Some("step"), None, |change| counted.add(change));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let instance = switch.range_begins("step").unwrap();
                        switch.range_ended(instance);
                    }
                });
            }
        });
        let (begun, ended) = counted.counts();
        assert_eq!((begun, switch.state()), (ended, (false, begun)));
        assert!((1..=40_000).contains(&begun));
    }
}
