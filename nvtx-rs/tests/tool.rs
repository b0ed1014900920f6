//! What a tool gets, and what happens with tools that are none.
#![allow(clippy::panic, reason = "a test without the standard harness")]

mod support;

use std::collections::BTreeMap;
use std::fs;

use libtest_mimic::{Arguments, Failed, Trial};
use support::fork::{self, CHILDREN};
use support::scenarios::{LONG, ROUNDS, THREADS, stress_ranges};
use support::{Folder, fake_tool, play};

type Test = fn() -> Result<(), Failed>;

fn main() {
    support::run_scenario();
    let tests: &[(&'static str, Test)] = &[
        ("nested_ranges_arrive_in_order", nested_ranges_arrive_in_order),
        ("names_arrive_whole", names_arrive_whole),
        ("panic_ends_the_ranges_of_its_frames", panic_ends_the_ranges_of_its_frames),
        ("return_ends_the_ranges_of_its_frames", return_ends_the_ranges_of_its_frames),
        ("each_thread_is_balanced_from_its_first_range", each_thread_is_balanced),
        ("query_for_the_tool_attaches_it", query_for_the_tool_attaches_it),
        ("functions_that_a_tool_left_out_are_not_called", functions_left_out_are_not_called),
        ("a_tool_may_start_ranges_while_it_is_attached", a_tool_may_start_ranges),
        ("each_function_receives_its_arguments", each_function_receives_its_arguments),
        ("a_tool_without_extensions_gets_the_rest", a_tool_without_extensions_gets_the_rest),
        ("a_tool_without_batches_gets_each_event", a_tool_without_batches_gets_each_event),
        ("a_tool_may_leave_out_all_but_starts", a_tool_may_leave_out_all_but_starts),
        ("tool_selects_its_domains", tool_selects_its_domains),
        ("odd_uses_are_as_documented", odd_uses_are_as_documented),
        ("no_range_of_a_million_is_lost", no_range_of_a_million_is_lost),
        ("forked_child_ends_inherited_ranges", forked_child_ends_inherited_ranges),
        ("a_child_may_attach_the_tool_itself", a_child_may_attach_the_tool_itself),
        ("a_fork_amid_ranges_loses_none", a_fork_amid_ranges_loses_none),
        ("a_clock_that_panics_reads_as_0", a_clock_that_panics_reads_as_0),
        ("unloaded_library_remains_with_its_tool", unloaded_library_remains_with_its_tool),
        ("no_tool_is_no_error", no_tool_is_no_error),
        ("missing_library_is_reported", missing_library_is_reported),
        ("file_that_is_no_library_is_reported", file_that_is_no_library_is_reported),
        ("library_that_is_no_tool_is_reported", library_that_is_no_tool_is_reported),
        ("refusing_tool_is_reported", refusing_tool_is_reported),
    ];
    let trials = tests.iter().map(|&(name, test)| Trial::test(name, test)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The events of a scenario of one thread under the fake tool.
fn events(scenario: &str, mode: &str) -> Vec<String> {
    let outcome = play(scenario, Some(&fake_tool()), mode);
    assert_eq!(outcome.stdout, "attached: true\n");
    let of_first = |line: &String| line.strip_prefix("0 ").map(str::to_owned);
    outcome.events.iter().filter_map(of_first).collect()
}

fn nested_ranges_arrive_in_order() -> Result<(), Failed> {
    let expected = [
        r#"push "outer""#,
        r#"push "first""#,
        r#"push "inner""#,
        "pop",
        "pop",
        r#"push "second""#,
        "pop",
        "pop",
    ];
    assert_eq!(events("nested", ""), expected);
    Ok(())
}

fn names_arrive_whole() -> Result<(), Failed> {
    let names = [
        String::new(),
        "größe ∑ 核 🚀".to_owned(),
        "line\nbreak".to_owned(),
        "a?b".to_owned(),
        "x".repeat(255),
        "y".repeat(256),
        "z".repeat(LONG),
    ];
    let expected: Vec<String> =
        names.iter().flat_map(|name| [format!("push {name:?}"), "pop".to_owned()]).collect();
    assert_eq!(events("names", ""), expected);
    Ok(())
}

fn panic_ends_the_ranges_of_its_frames() -> Result<(), Failed> {
    let expected = [
        r#"push "around""#,
        r#"push "one""#,
        r#"push "two""#,
        "pop",
        "pop",
        r#"push "after""#,
        "pop",
        "pop",
    ];
    assert_eq!(events("panic", ""), expected);
    Ok(())
}

fn return_ends_the_ranges_of_its_frames() -> Result<(), Failed> {
    let steps = [0, 1, 0, 1, 2];
    let expected: Vec<String> = steps
        .iter()
        .flat_map(|step| [format!(r#"push "step {step}""#), "pop".to_owned()])
        .collect();
    assert_eq!(events("early", ""), expected);
    Ok(())
}

fn each_thread_is_balanced() -> Result<(), Failed> {
    let outcome = play("threads", Some(&fake_tool()), "");
    let mut threads: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &outcome.events {
        let (thread, event) = line.split_once(' ').ok_or(line.as_str())?;
        threads.entry(thread).or_default().push(event);
    }
    let expected: Vec<String> = (0..ROUNDS)
        .flat_map(|round| {
            let inner = format!(r#"push "round {round}""#);
            [r#"push "outer""#.to_owned(), inner, "pop".to_owned(), "pop".to_owned()]
        })
        .collect();
    assert_eq!(threads.len(), THREADS);
    for (thread, events) in threads {
        assert_eq!(events, expected, "thread {thread}");
    }
    Ok(())
}

fn query_for_the_tool_attaches_it() -> Result<(), Failed> {
    assert_eq!(events("ask-first", ""), events("nested", ""));
    Ok(())
}

fn functions_left_out_are_not_called() -> Result<(), Failed> {
    assert!(events("nested", "empty").is_empty());
    // A pop without a push would end a range of someone else.
    assert!(events("nested", "pop-only").is_empty());
    assert_eq!(events("nested", "push-only").len(), 4);
    Ok(())
}

fn a_tool_may_start_ranges() -> Result<(), Failed> {
    let events = events("nested", "annotated");
    assert_eq!(events[..2], [r#"push "in the tool""#, "pop"]);
    assert_eq!(events[2..], self::events("nested", ""));
    Ok(())
}

/// The scenarios that use all of NVTX, and what the fake tool writes of each: read and found right
/// by what NVTX defines. A change in these files is a change in what tools get.
const WHOLE: [(&str, &str); 8] = [
    ("events", include_str!("events/events.txt")),
    ("domains", include_str!("events/domains.txt")),
    ("names-of-things", include_str!("events/names-of-things.txt")),
    ("records", include_str!("events/records.txt")),
    ("work", include_str!("events/work.txt")),
    ("counters", include_str!("events/counters.txt")),
    ("deferred", include_str!("events/deferred.txt")),
    ("sites", include_str!("events/sites.txt")),
];

fn each_function_receives_its_arguments() -> Result<(), Failed> {
    for (scenario, expected) in WHOLE {
        let outcome = play(scenario, Some(&fake_tool()), "");
        let expected: Vec<&str> = expected.lines().collect();
        for (number, (seen, expected)) in outcome.events.iter().zip(&expected).enumerate() {
            assert_eq!(seen, expected, "{scenario}, line {}", number + 1);
        }
        assert_eq!(outcome.events.len(), expected.len(), "{scenario}: {:#?}", outcome.events);
    }
    Ok(())
}

fn a_tool_without_extensions_gets_the_rest() -> Result<(), Failed> {
    for mode in ["refuse-extensions", "no-slots"] {
        let events = events("records", mode);
        let offered = events.iter().filter(|event| event.starts_with("extension ")).count();
        assert_eq!(offered, 1, "once, and refused: {events:#?}");
        let count = |start: &str| events.iter().filter(|event| event.starts_with(start)).count();
        assert_eq!(count("Payload"), 0, "{events:#?}");
        // The events themselves arrive, those that are a record alone with the name of its schema.
        assert_eq!(count("RangePushEx") + count("push"), 2, "{events:#?}");
        assert_eq!(count("pop"), 2, "{events:#?}");
        assert_eq!(count("DomainRangePushEx"), 5, "{events:#?}");
        assert_eq!(count("DomainRangePop"), 5, "{events:#?}");
        assert_eq!(count("RangeStartA") + count("RangeStartEx"), 2, "{events:#?}");
        assert_eq!(count("RangeEnd"), 2, "{events:#?}");
        let named = |name: &str| events.iter().filter(|event| event.ends_with(name)).count();
        assert_eq!(named(r#"MarkEx v3/48 "gemm""#), 1, "{events:#?}");
        assert_eq!(named(r#"RangeStartEx v3/48 "gemm""#), 1, "{events:#?}");
        assert_eq!(named(r#"DomainRangePushEx 1001 v3/48 "in gpu""#), 2, "{events:#?}");
        let counters = self::events("counters", mode);
        let rest = counters.iter().filter(|event| event.starts_with("Counter")).count();
        assert_eq!(rest, 0, "{counters:#?}");
    }
    Ok(())
}

fn a_tool_without_batches_gets_each_event() -> Result<(), Failed> {
    let events = events("deferred", "no-batches");
    let of_range: Vec<&str> =
        events.iter().filter_map(|event| event.strip_prefix("EventSubmit 1001 ")).collect();
    let times = |start: u8, end: u8| format!("{start:02x}00000000000000{end:02x}");
    assert_eq!(of_range.len(), 6, "{events:#?}");
    for (seen, (start, end)) in of_range.iter().zip([(1, 2), (5, 6), (3, 4)]) {
        assert!(seen.contains(&format!(": {}", times(start, end))), "{seen}");
    }
    Ok(())
}

fn a_tool_may_leave_out_all_but_starts() -> Result<(), Failed> {
    for (scenario, _) in WHOLE.iter().filter(|(scenario, _)| *scenario != "deferred") {
        let kinds = ["push ", "extension "];
        for event in play(scenario, Some(&fake_tool()), "push-only").events {
            let event = event.split_once(' ').map_or(event.as_str(), |(_, event)| event);
            assert!(kinds.iter().any(|kind| event.starts_with(kind)), "{scenario}: {event}");
        }
        play(scenario, None, "");
    }
    Ok(())
}

fn tool_selects_its_domains() -> Result<(), Failed> {
    let outcome = play("is-enabled", Some(&fake_tool()), "disabled");
    assert_eq!(outcome.stdout, "enabled: false\nattached: true\n");
    let outcome = play("is-enabled", Some(&fake_tool()), "no-slots");
    assert_eq!(outcome.stdout, "enabled: true\nattached: true\n");
    assert_eq!(play("is-enabled", None, "").stdout, "enabled: false\nattached: false\n");
    Ok(())
}

fn odd_uses_are_as_documented() -> Result<(), Failed> {
    let outcome = play("odd-ends", Some(&fake_tool()), "");
    let start = ["push \"one\"", "push \"two\"", "pop", "pop"];
    let held = ["push \"held\"", "push \"held too\"", "pop", "pop"];
    let expected: Vec<String> = [start, held].concat().iter().map(|e| format!("0 {e}")).collect();
    assert_eq!(outcome.events[..8], expected);
    let deep = &outcome.events[8..20_008];
    assert!(deep[..10_000].iter().all(|event| event == "0 push \"deep\""));
    assert!(deep[10_000..].iter().all(|event| event == "0 pop"));
    assert_eq!(outcome.events[20_008], "1 push \"leaked\"");
    assert_eq!(outcome.events[20_009], format!("0 push {:?}", "m".repeat(1 << 20)));
    assert_eq!(outcome.events[20_010..], ["0 pop"]);
    Ok(())
}

/// Ten million with `NVTX_STRESS_RANGES=10000000`.
fn no_range_of_a_million_is_lost() -> Result<(), Failed> {
    let all = stress_ranges();
    let outcome = play("stress", Some(&fake_tool()), "count");
    assert_eq!(outcome.events, [format!("0 {all} pushes, {all} pops")]);
    Ok(())
}

fn forked_child_ends_inherited_ranges() -> Result<(), Failed> {
    let outcome = play("fork-in-open-ranges", Some(&fake_tool()), "");
    assert_eq!(outcome.events, include_str!("events/forked.txt").lines().collect::<Vec<_>>());
    let counts = "5 starts, 5 ends; process 2 starts, 2 ends";
    assert_eq!(outcome.stdout, format!("child: {counts}\nparent: {counts}\nattached: true\n"));
    // Ranges that the observer alone sees.
    let outcome = play("fork-in-open-ranges", None, "");
    assert_eq!(outcome.stdout, format!("child: {counts}\nparent: {counts}\nattached: false\n"));
    Ok(())
}

fn a_child_may_attach_the_tool_itself() -> Result<(), Failed> {
    let outcome = play("fork-before-the-first-range", Some(&fake_tool()), "");
    let expected = [r#"0 push "child""#, "0 pop", r#"0 push "parent""#, "0 pop"];
    assert_eq!(outcome.events, expected);
    assert_eq!(outcome.stdout, "attached: true\n");
    Ok(())
}

fn a_fork_amid_ranges_loses_none() -> Result<(), Failed> {
    let outcome = play("fork-amid-ranges", Some(&fake_tool()), "count");
    let (counts, others): (Vec<_>, Vec<_>) =
        outcome.events.iter().partition(|event| event.ends_with(" pops"));
    let [counts] = counts.as_slice() else {
        return Err(format!("more than one count: {counts:?}").into());
    };
    // Each thread was in ranges before the first fork.
    let words: Vec<&str> = counts.split(' ').collect();
    let all: usize = words[1].parse()?;
    assert!(all > CHILDREN + 3 * (fork::THREADS + 1), "{counts}");
    assert_eq!(**counts, format!("0 {all} pushes, {all} pops"));
    let expected = format!("parent: {all} starts, {all} ends; process 0 starts, 0 ends\n");
    assert_eq!(outcome.stdout, expected + "attached: true\n");
    let expected = [r#"0 RangeStartA "of the child""#, "0 RangeEnd 201"].repeat(CHILDREN);
    assert_eq!(others[1..], expected);
    Ok(())
}

/// Also where the panic's payload panics when it is dropped: nothing unwinds into the tool, which would abort.
fn a_clock_that_panics_reads_as_0() -> Result<(), Failed> {
    let events = events("panicking-clock", "");
    let read: Vec<_> = events.iter().filter(|event| event.starts_with("TimerSource")).collect();
    assert_eq!(read, ["TimerSourceWithData 0 e 1 reads 0"]);
    Ok(())
}

/// A tool has the addresses of the slots of whoever attached it: that library stays, whoever closes it.
fn unloaded_library_remains_with_its_tool() -> Result<(), Failed> {
    let closed = |tool| play("unload", tool, "").stdout;
    assert_eq!(closed(None), "unloaded: true\nattached: false\n", "the control");
    let tool = fake_tool();
    let outcome = play("unload", Some(&tool), "");
    assert!(outcome.stdout.starts_with("unloaded: false\n"), "{}", outcome.stdout);
    assert_eq!(outcome.events, [r#"0 push "in a plugin""#, "0 pop"]);
    Ok(())
}

fn no_tool_is_no_error() -> Result<(), Failed> {
    for tool in [None, Some("./."), Some("")] {
        let outcome = play("nested", tool, "");
        assert_eq!(outcome.stdout, "attached: false\n", "{tool:?}");
    }
    Ok(())
}

/// Ranges do nothing with `tool`, and the error names it and holds `reason`.
fn is_reported(tool: &str, mode: &str, reason: &str) {
    for scenario in ["nested", "names", "threads"] {
        let outcome = play(scenario, Some(tool), mode);
        let error = outcome.stdout.strip_prefix("attached: false\n");
        let Some(error) = error else {
            panic!("{}", outcome.stdout);
        };
        for part in [tool, reason, "NVTX_INJECTION64_PATH", "unset the variable"] {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
        assert!(outcome.events.is_empty());
    }
}

fn missing_library_is_reported() -> Result<(), Failed> {
    is_reported("/nowhere/libtool.so", "", "cannot open shared object file");
    Ok(())
}

fn file_that_is_no_library_is_reported() -> Result<(), Failed> {
    let folder = Folder::new();
    let path = folder.0.join("libtext.so");
    fs::write(
        &path,
        "not a library, and long enough to have a header
"
        .repeat(100),
    )?;
    is_reported(&path.to_string_lossy(), "", "invalid ELF header");
    Ok(())
}

fn library_that_is_no_tool_is_reported() -> Result<(), Failed> {
    is_reported("libm.so.6", "", "InitializeInjectionNvtx2");
    Ok(())
}

fn refusing_tool_is_reported() -> Result<(), Failed> {
    is_reported(&fake_tool(), "refuse", "returned 0");
    Ok(())
}
