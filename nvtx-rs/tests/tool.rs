//! What a tool gets, and what happens with tools that are none.
#![allow(clippy::panic, reason = "a test without the standard harness")]

mod support;

use std::collections::BTreeMap;
use std::fs;

use libtest_mimic::{Arguments, Failed, Trial};
use support::scenarios::{LONG, ROUNDS, THREADS};
use support::{Folder, fake_tool, play};

type Test = fn() -> Result<(), Failed>;

fn main() {
    support::run_scenario();
    let tests: &[(&'static str, Test)] = &[
        ("nested_ranges_arrive_in_order", nested_ranges_arrive_in_order),
        ("names_arrive_whole", names_arrive_whole),
        ("a_panic_ends_the_ranges_that_it_leaves", a_panic_ends_the_ranges_that_it_leaves),
        ("a_return_ends_the_ranges_that_it_leaves", a_return_ends_the_ranges_that_it_leaves),
        ("each_thread_is_balanced_from_its_first_range", each_thread_is_balanced),
        ("asking_for_the_tool_attaches_it", asking_for_the_tool_attaches_it),
        ("functions_that_a_tool_left_out_are_not_called", functions_left_out_are_not_called),
        ("a_tool_may_start_ranges_while_it_is_attached", a_tool_may_start_ranges),
        ("no_tool_is_no_error", no_tool_is_no_error),
        ("a_missing_library_is_told", a_missing_library_is_told),
        ("a_file_that_is_no_library_is_told", a_file_that_is_no_library_is_told),
        ("a_library_that_is_no_tool_is_told", a_library_that_is_no_tool_is_told),
        ("a_tool_that_refuses_is_told", a_tool_that_refuses_is_told),
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

fn a_panic_ends_the_ranges_that_it_leaves() -> Result<(), Failed> {
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

fn a_return_ends_the_ranges_that_it_leaves() -> Result<(), Failed> {
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

fn asking_for_the_tool_attaches_it() -> Result<(), Failed> {
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

fn no_tool_is_no_error() -> Result<(), Failed> {
    for tool in [None, Some("./."), Some("")] {
        let outcome = play("nested", tool, "");
        assert_eq!(outcome.stdout, "attached: false\n", "{tool:?}");
    }
    Ok(())
}

/// Ranges do nothing with `tool`, and the error names it and holds `reason`.
fn is_told(tool: &str, mode: &str, reason: &str) {
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

fn a_missing_library_is_told() -> Result<(), Failed> {
    is_told("/nowhere/libtool.so", "", "cannot open shared object file");
    Ok(())
}

fn a_file_that_is_no_library_is_told() -> Result<(), Failed> {
    let folder = Folder::new();
    let path = folder.0.join("libtext.so");
    fs::write(
        &path,
        "not a library, and long enough to have a header
"
        .repeat(100),
    )?;
    is_told(&path.to_string_lossy(), "", "invalid ELF header");
    Ok(())
}

fn a_library_that_is_no_tool_is_told() -> Result<(), Failed> {
    is_told("libm.so.6", "", "InitializeInjectionNvtx2");
    Ok(())
}

fn a_tool_that_refuses_is_told() -> Result<(), Failed> {
    is_told(&fake_tool(), "refuse", "returned 0");
    Ok(())
}
