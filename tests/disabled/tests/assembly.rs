//! With the feature `enable` off, is an annotated function the bare one, instruction by instruction?
//!
//! The library of this package is compiled to assembly once bare and once annotated, so that the same functions have the
//! same names and the compiler cannot merge one with the other.
#![allow(clippy::panic, reason = "a test's helpers fail like the test")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::Path;
use std::process::Command;

/// The functions of `src/lib.rs`.
const FUNCTIONS: [&str; 5] = ["calls", "leaf", "leaves_early", "may_panic", "sum_of_squares"];

/// The lines of each function.
type Functions = BTreeMap<String, Vec<String>>;

/// Compiles the library with these features and reads its functions.
fn compile(features: &str) -> Functions {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Where cargo takes the library for fresh, the file is that of an earlier run. Checkouts that share a target folder
    // must not share it.
    let checkout =
        BuildHasherDefault::<DefaultHasher>::default().hash_one(env!("CARGO_MANIFEST_DIR"));
    let assembly = folder.join(format!("{checkout:x}-{features}.s"));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["rustc", "--quiet", "--lib", "--release", "--features", features])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        // A folder of its own: this very test may hold the lock of the usual one.
        .arg("--target-dir")
        .arg(folder.join("target"))
        .args(["--", "--emit"])
        .arg(format!("asm={}", assembly.display()))
        .output()
        .unwrap_or_else(|error| panic!("cannot start {}: {error}", cargo.display()));
    assert!(
        output.status.success(),
        "features `{features}` do not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = fs::read_to_string(&assembly).unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo clean` makes cargo write it again", assembly.display())
    });
    let functions = functions(&text);
    let names: Vec<&str> = functions.keys().map(String::as_str).collect();
    assert_eq!(names, FUNCTIONS, "functions in {}", assembly.display());
    functions
}

/// The functions of an assembly file: all lines from the label to `.size`, those about unwinding included.
fn functions(assembly: &str) -> Functions {
    let mut functions = Functions::new();
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in assembly.lines().map(str::trim) {
        if let Some((name, mut lines)) = open.take() {
            if line.starts_with(&format!(".size\t{name},")) {
                functions.insert(name.to_owned(), normalised(&lines));
            } else {
                lines.push(line);
                open = Some((name, lines));
            }
        } else if let Some(name) = line.strip_suffix(':')
            && FUNCTIONS.contains(&name)
        {
            open = Some((name, Vec::new()));
        }
    }
    functions
}

/// The lines without comments, and with local labels numbered as they first appear: the compiler numbers them, and
/// names constants by their hash, over the whole file.
fn normalised(lines: &[&str]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '$');
    lines
        .iter()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"))
        .map(|line| {
            let mut out = String::new();
            let mut rest = *line;
            while !rest.is_empty() {
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(length);
                if word.starts_with(".L") {
                    let number =
                        labels.iter().position(|label| label == word).unwrap_or_else(|| {
                            labels.push(word.to_owned());
                            labels.len() - 1
                        });
                    out.push_str(&format!("label {number}"));
                } else {
                    out.push_str(word);
                }
                let between = after.find(is_part).unwrap_or(after.len());
                out.push_str(&after[..between]);
                rest = &after[between..];
            }
            out
        })
        .collect()
}

#[test]
fn an_annotated_function_is_the_bare_one() {
    let bare = compile("");
    let annotated = compile("annotated");
    for (name, lines) in &bare {
        let instructions = lines.iter().filter(|line| !line.starts_with('.')).count();
        assert!(instructions > 2, "{name} is too short to be true:\n{}", lines.join("\n"));
        assert_eq!(
            lines,
            &annotated[name],
            "{name} bare:\n{}\n\n{name} annotated:\n{}",
            lines.join("\n"),
            annotated[name].join("\n")
        );
    }
}

/// Or the test above would show nothing.
#[test]
fn ranges_that_are_switched_on_are_seen_in_every_function() {
    let bare = compile("");
    let enabled = compile("enabled");
    for name in FUNCTIONS {
        assert_ne!(bare[name], enabled[name], "{name} with ranges is the same as without");
    }
}

#[test]
fn labels_lose_their_numbers_and_instructions_keep_theirs() {
    let numbered = |label: &str, constant: &str| {
        normalised(&[
            &format!("jne\t{label}"),
            &format!("lea\trdi, [rip + {constant}]"),
            "# %bb.2:",
            &format!("{label}:"),
            "add\trax, 7",
        ])
    };
    assert_eq!(numbered(".LBB0_1", ".Lanon.0a.3"), numbered(".LBB4_9", ".Lanon.f7.1"));
    assert_eq!(numbered(".LBB0_1", ".L1")[3], "add\trax, 7");
    assert_ne!(normalised(&["add\trax, 7"]), normalised(&["add\trax, 8"]));
    // Two labels are not one.
    assert_ne!(normalised(&[".L1:", "jmp\t.L1"]), normalised(&[".L1:", "jmp\t.L2"]));
}
