//! Scenarios in which the process forks.

use std::process;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nvtx::observer::{self, Observer, RangeStart, Token};
use nvtx::{Domain, OwnedDomain};

/// Children of the scenario `fork-amid-ranges`.
pub(crate) const CHILDREN: usize = 50;
/// Threads that are in ranges meanwhile.
pub(crate) const THREADS: usize = 3;

static FORKED: Domain = Domain::new("forked");

/// Who goes on after a fork.
enum Side {
    Child,
    Parent(Child),
}

struct Child(libc::pid_t);

/// After so many seconds the system ends a side that hangs.
fn end_after(seconds: u32) {
    // SAFETY: it takes a number, and its signal ends this process, which installs no handler.
    unsafe { libc::alarm(seconds) };
}

fn fork() -> Side {
    // SAFETY: glibc and musl leave the child a heap that works; beyond that it uses what is under test, which is to take
    // no lock, and prints with no other thread printing.
    match unsafe { libc::fork() } {
        -1 => panic!("could not fork: {}", std::io::Error::last_os_error()),
        0 => {
            end_after(20);
            Side::Child
        }
        child => Side::Parent(Child(child)),
    }
}

impl Child {
    /// Waits till it exits, which it is to do by itself and without an error.
    fn wait(self) {
        let mut status = 0;
        // SAFETY: the child is ours, and the address that of a local.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(waited, self.0);
        let (exited, code) = (libc::WIFEXITED(status), libc::WEXITSTATUS(status));
        assert!(exited && code == 0, "status {status:#x}: signal {}", libc::WTERMSIG(status));
    }
}

/// Counts starts and ends.
struct Counts {
    starts: AtomicU64,
    ends: AtomicU64,
    process_starts: AtomicU64,
    process_ends: AtomicU64,
}

static COUNTS: Counts = Counts {
    starts: AtomicU64::new(0),
    ends: AtomicU64::new(0),
    process_starts: AtomicU64::new(0),
    process_ends: AtomicU64::new(0),
};

impl Observer for Counts {
    fn range_start(&self, _: &RangeStart<'_>) -> Token {
        Token::new(self.starts.fetch_add(1, Ordering::Relaxed))
    }
    fn range_end(&self, _: Token) {
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
    fn process_range_start(&self, _: &RangeStart<'_>) -> Option<Token> {
        Some(Token::new(self.process_starts.fetch_add(1, Ordering::Relaxed)))
    }
    fn process_range_end(&self, _: Token) {
        self.process_ends.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts {
    fn tell(&self, who: &str) {
        let [starts, ends, process_starts, process_ends] =
            [&self.starts, &self.ends, &self.process_starts, &self.process_ends]
                .map(|count| count.load(Ordering::Relaxed));
        println!(
            "{who}: {starts} starts, {ends} ends; process {process_starts} starts, {process_ends} ends"
        );
    }
}

fn observe() {
    observer::install(&COUNTS).expect("the slot was empty").on();
}

/// A process without other threads forks in open ranges; each side goes on, the child first.
pub(crate) fn in_open_ranges() {
    end_after(60);
    observe();
    let owned = OwnedDomain::new("owned");
    let outer = nvtx::range("outer");
    let of_domain = FORKED.range("of a domain");
    let process = owned.process_range("of the process");
    let who = match fork() {
        Side::Child => "child",
        Side::Parent(child) => {
            child.wait();
            "parent"
        }
    };
    drop(nvtx::range(who));
    drop(nvtx::process_range(who));
    drop(FORKED.range(who));
    drop(nvtx::range!("from a macro"));
    nvtx::mark(who);
    drop(process);
    drop(of_domain);
    drop(outer);
    drop(owned);
    COUNTS.tell(who);
    if who == "child" {
        process::exit(0);
    }
}

/// Nothing looked for the tool before the fork, so each side does.
pub(crate) fn before_the_first_range() {
    end_after(60);
    match fork() {
        Side::Child => {
            drop(nvtx::range("child"));
            process::exit(i32::from(!nvtx::is_attached()));
        }
        Side::Parent(child) => child.wait(),
    }
    drop(nvtx::range("parent"));
}

/// A thread forks while others start and end ranges.
pub(crate) fn amid_ranges() {
    end_after(60);
    observe();
    // The first event of each kind is behind us: see the crate's documentation.
    let any_range = || {
        drop(nvtx::range("a name"));
        drop(nvtx::range(&"n".repeat(300)));
        let _macro = nvtx::range!("a literal");
    };
    any_range();
    let stop = AtomicBool::new(false);
    let at_work = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                any_range();
                at_work.wait();
                while !stop.load(Ordering::Relaxed) {
                    any_range();
                }
            });
        }
        at_work.wait();
        for _ in 0..CHILDREN {
            let inherited = nvtx::range("inherited");
            match fork() {
                Side::Child => {
                    for _ in 0..100 {
                        any_range();
                    }
                    drop(nvtx::process_range("of the child"));
                    drop(inherited);
                    process::exit(0);
                }
                Side::Parent(child) => child.wait(),
            }
            drop(inherited);
        }
        stop.store(true, Ordering::Relaxed);
    });
    COUNTS.tell("parent");
    // The fake tool answers with its counts.
    nvtx::initialize();
}
