//! A forked child takes part in no recording of its parent, whatever the parent's threads hold at the fork.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::sync::mpsc;

use cupti::log_registry::LogRegistry;

static LOGS: LogRegistry<u64> = LogRegistry::new();

#[test]
fn child_has_no_recording_and_waits_for_no_lock() {
    LOGS.leave_children_out();
    let first = LOGS.begin(|| ());
    LOGS.register(100, |number| number).unwrap();
    let (held, is_held) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    std::thread::scope(|scope| {
        // The lock is held at the fork, and nobody releases it in the child.
        scope.spawn(move || {
            LOGS.retain(|_| {
                held.send(()).unwrap();
                goes_on.recv().unwrap();
                true
            });
        });
        is_held.recv().unwrap();
        // SAFETY: the child reads an atomic and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let has_recording = LOGS.first() != 0;
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(has_recording)) };
        }
        let mut status = 0;
        // SAFETY: the child's status is written to a variable of this frame.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        go_on.send(()).unwrap();
    });
    assert_eq!((LOGS.first(), LOGS.end()), (first, vec![first]));
}
