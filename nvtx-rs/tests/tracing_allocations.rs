//! What the `tracing` layer allocates: nothing, once a thread was at a call site.
//!
//! Each case is a process of its own, for the tool is one of the process and so is the observer.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test without the standard harness")]

mod support;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

use allocation_counter::measure;
use libtest_mimic::{Arguments, Failed, Trial};
use nvtx::NvtxLayer;
use nvtx::observer::{self, Mark, Observer, RangeStart, Token};
use support::{SCENARIO, fake_tool, play};
use tracing::{Dispatch, Level, Span, Subscriber, event, span};
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Layer, registry};

/// Rounds of which nothing is to be allocated.
const ROUNDS: u64 = 100;
/// Stays in spans, and marks, of one round.
const STAYS: u64 = 5;
const MARKS: u64 = 1;
/// Further spans for each round, after the observer has looked away.
const LIVES: u64 = 2;

type Test = fn() -> Result<(), Failed>;

fn main() {
    if let Ok(scenario) = env::var(SCENARIO) {
        return child(&scenario);
    }
    let tests: &[(&'static str, Test)] = &[
        ("nobody_looks", nobody_looks),
        ("an_observer_looks", an_observer_looks),
        ("a_tool_looks", a_tool_looks),
        ("both_look", both_look),
    ];
    let trials = tests.iter().map(|&(name, test)| Trial::test(name, test)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn nobody_looks() -> Result<(), Failed> {
    assert_eq!(play("stays", None, "").stdout, report(0, 0));
    Ok(())
}

fn an_observer_looks() -> Result<(), Failed> {
    let stdout = play("observed stays", None, "").stdout;
    assert_eq!(stdout, report(STAYS * (ROUNDS + 1), MARKS * (ROUNDS + 1)));
    Ok(())
}

fn a_tool_looks() -> Result<(), Failed> {
    let outcome = play("stays", Some(&fake_tool()), "");
    assert_eq!(outcome.stdout, report(0, 0));
    let count =
        |what: &str| outcome.events.iter().filter(|line| line.contains(what)).count() as u64;
    let ranges = STAYS * (ROUNDS + 1) + LIVES * ROUNDS;
    assert_eq!(count("DomainRangePushEx"), ranges, "{:#?}", outcome.events);
    assert_eq!(count("DomainRangePop"), ranges);
    assert_eq!(count("DomainMarkEx"), MARKS * (ROUNDS + 1));
    Ok(())
}

fn both_look() -> Result<(), Failed> {
    let stdout = play("observed stays", Some(&fake_tool()), "").stdout;
    assert_eq!(stdout, report(STAYS * (ROUNDS + 1), MARKS * (ROUNDS + 1)));
    Ok(())
}

/// What a child says where nothing of ours was allocated.
fn report(ranges: u64, marks: u64) -> String {
    format!(
        "entering, leaving and marking: 0 allocations\n\
         a span's life above that with no layer of ours: 0 allocations\n\
         the observer saw {ranges} ranges and {marks} marks\n"
    )
}

/// A registry with no layer at all closes no span.
struct NoLayer;

impl<S: Subscriber> Layer<S> for NoLayer {}

struct Count {
    ranges: AtomicU64,
    marks: AtomicU64,
}

static COUNT: Count = Count { ranges: AtomicU64::new(0), marks: AtomicU64::new(0) };

impl Observer for Count {
    fn range_start(&self, _: &RangeStart<'_>) -> Token {
        Token::new(self.ranges.fetch_add(1, Ordering::Relaxed))
    }
    fn range_end(&self, _: Token) {}
    fn mark(&self, _: &Mark<'_>) {
        self.marks.fetch_add(1, Ordering::Relaxed);
    }
}

fn child(scenario: &str) {
    // The counter counts: else every number below would be right.
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
    let switch = observer::install(&COUNT).unwrap();
    if scenario == "observed stays" {
        switch.on();
    }
    let ours = Dispatch::new(registry().with(NvtxLayer::new()));
    tracing::dispatcher::with_default(&ours, || {
        let (plain, detailed) = (plain(), detailed());
        round(&plain, &detailed);
        let stays = measure(|| (0..ROUNDS).for_each(|_| round(&plain, &detailed)));
        println!("entering, leaving and marking: {} allocations", stays.count_total);
    });
    switch.off();
    let lives = |dispatch: &Dispatch| {
        tracing::dispatcher::with_default(dispatch, || {
            let lives = || (0..ROUNDS).for_each(|_| plain().in_scope(|| ()));
            // A registry grows to the size that it needs.
            lives();
            measure(lives).count_total
        })
    };
    let others = Dispatch::new(registry().with(NoLayer));
    let above = lives(&ours).abs_diff(lives(&others));
    println!("a span's life above that with no layer of ours: {above} allocations");
    let [ranges, marks] = [&COUNT.ranges, &COUNT.marks].map(|count| count.load(Ordering::Relaxed));
    println!("the observer saw {ranges} ranges and {marks} marks");
}

fn plain() -> Span {
    span!(target: "lib", Level::INFO, "plain", n = 1, label = "text")
}

fn detailed() -> Span {
    span!(
        target: "lib", Level::INFO, "detailed",
        nvtx.color = 0x00ff00, nvtx.category = "io", nvtx.payload = 7
    )
}

/// In order, and out of it: the span within ends and begins again, which is one range more.
fn round(plain: &Span, detailed: &Span) {
    plain.in_scope(|| detailed.in_scope(|| event!(target: "lib", Level::INFO, "at {}", 7)));
    let outer = plain.enter();
    let inner = detailed.enter();
    drop(outer);
    drop(inner);
}
