//! What the compiler does not check of the workspace's structure: files that import each other in a
//! circle, stages that use later ones, `unsafe` beyond the C boundary, raw pointers in safe
//! functions, long files, names and words that were given up.
//!
//! All of it is read from the source text, so a violation is named by file and line.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::fs;
use std::path::{Path, PathBuf};

/// The folders and files of a package in the order of the data's flow: each uses those before it
/// alone.
const STAGES: [(&str, &[&str]); 2] = [
    (
        "profiler-core",
        &["error", "record", "collect", "join", "profile", "query", "session", "show", "check"],
    ),
    (
        "profiler-analysis",
        &[
            "error",
            "page",
            "counter_track",
            "running_numbers",
            "reports",
            "analyze",
            "show",
            "formats",
            "check",
        ],
    ),
];

/// The crates that programs use.
const LIBRARIES: [&str; 6] = [
    "nvtx-rs",
    "cupti-rs",
    "profiler-base",
    "profiler-core",
    "profiler-analysis",
    "profiler-macros",
];

/// The program, which sees what is public.
const PROGRAM: &str = "gpuprof";

/// What the program and its injection library share.
const CONTROL: &str = "gpuprof/control";

/// The library that unmodified programs load, which C calls.
const INJECT: &str = "gpuprof/inject";

/// The libcuda of tests, which is C's on both sides.
const FAKE_CUDA: &str = "tests/fake_cuda";

/// The CUPTI of tests.
const FAKE_CUPTI: &str = "tests/fake_cupti";

/// Test helpers used by several packages.
const TEST_SUPPORT: &str = "tests/support";

/// The packages by the types of a framework.
const FRAMEWORKS: [&str; 4] =
    ["frameworks/cudarc", "frameworks/candle", "frameworks/burn", "frameworks/tch"];

/// The files and folders where `unsafe` may stand.
const UNSAFE: [&str; 7] = [
    "nvtx-rs/src/sys/",
    "cupti-rs/src/sys/",
    "cupti-rs/src/buffer/",
    "gpuprof/inject/src/sys/",
    "profiler-core/src/record/host_stacks/sys/",
    "tests/fake_cupti/src/",
    "tests/fake_cuda/src/sys/",
];

/// The other packages of the workspace with sources of their own.
const PROGRAMS: [&str; 9] =
    [PROGRAM, CONTROL, INJECT, "examples", "benches", "tests", FAKE_CUDA, FAKE_CUPTI, TEST_SUPPORT];

/// True for a source file with tests alone: `tests.rs`, or a file in a folder `tests` within `src`.
fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs")
        || file.split_once("/src/").is_some_and(|(_, inner)| inner.contains("/tests/"))
}

/// The most lines of a file and of a function, tests and generated code apart.
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 100;

/// A file in a folder of tests is compiled only where the folder's `main.rs` names it.
#[test]
fn every_file_of_a_test_folder_is_a_module() {
    for group in ["profiler-core/tests/record", "profiler-analysis/tests/analyze"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(group);
        let main = fs::read_to_string(folder.join("main.rs")).unwrap();
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let names: Vec<_> = files.filter_map(|file| Some(file.file_stem()?.to_owned())).collect();
        assert!(names.len() > 10, "{group}: {names:?}");
        for name in names.iter().filter_map(|name| name.to_str()).filter(|name| *name != "main") {
            assert!(main.contains(&format!("\nmod {name};\n")), "{group} has no `mod {name};`");
        }
    }
}

#[test]
fn files_and_functions_have_bounded_lengths() {
    let files: Vec<_> = LIBRARIES.into_iter().chain(PROGRAMS).flat_map(sources).collect();
    let long: Vec<String> = files.iter().flat_map(|(file, text)| too_long(file, text)).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_planted_long_function_is_named() {
    let file = "nvtx-rs/src/range.rs";
    let body = "    f();\n".repeat(FUNCTION_LINES);
    let text = format!("fn short() {{}}\npub fn one(\n    f: u8,\n) -> u8 {{\n{body}}}\n");
    assert_eq!(too_long(file, &text), [format!("{file} fn one: {} lines", FUNCTION_LINES + 4)]);
    assert!(too_long("nvtx-rs/src/range/tests.rs", &text).is_empty());
    assert!(too_long(file, &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")).is_empty());
    let lines = "\n".repeat(FILE_LINES + 1);
    assert_eq!(too_long(file, &lines), [format!("{file}: {} lines", FILE_LINES + 1)]);
}

#[test]
fn stages_use_earlier_ones_alone() {
    let mut found = Vec::new();
    for (package, stages) in STAGES {
        for (file, text) in sources(package) {
            found.extend(stage_violations(&file, &text, stages));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_use_of_a_later_stage_is_named() {
    let stages = ["record", "join", "show"];
    let text = "use crate::record::A;\nuse crate::{join::B, show::{C}}; // crate::show\n";
    assert_eq!(
        stage_violations("x/src/join/new.rs", text, &stages),
        ["x/src/join/new.rs:2: `join` uses `show`, a later stage"]
    );
    assert!(stage_violations("x/src/show.rs", text, &stages).is_empty());
    let text = "#[cfg(test)]\nmod tests {\n    use crate::show::C;\n}";
    assert!(stage_violations("x/src/join/new.rs", text, &stages).is_empty());
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let packages = LIBRARIES.into_iter().chain([PROGRAM, CONTROL, INJECT]).chain(FRAMEWORKS);
    let found: Vec<_> = packages
        .flat_map(|package| {
            import_circles(&sources(package)).into_iter().map(move |circle| (package, circle))
        })
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn retired_names_do_not_come_back() {
    let files: Vec<_> =
        LIBRARIES.into_iter().chain([PROGRAM, CONTROL, INJECT]).flat_map(sources).collect();
    let found: Vec<String> =
        files.iter().flat_map(|(file, text)| retired_names(file, text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn planted_retired_name_is_reported() {
    let text =
        "// Follow\nstruct Followed;\nfn f(_: &Follow) {}\nmod curve;\nfn of_all() {}\nfn of() {}";
    assert_eq!(
        retired_names("profiler-core/src/join/tables.rs", text),
        [
            "profiler-core/src/join/tables.rs:3: `Follow` is retired: see tests/retired-names.txt",
            "profiler-core/src/join/tables.rs:4: `mod curve` is retired: see tests/retired-names.txt",
            "profiler-core/src/join/tables.rs:6: `fn of` is retired: see tests/retired-names.txt",
        ]
    );
}

#[test]
fn retired_words_do_not_come_back() {
    let files = texts();
    assert!(files.iter().any(|(file, _)| file == "docs/guide/getting-started.md"));
    assert!(files.iter().any(|(file, _)| file == "gpuprof/tests/gpuprof.rs"));
    let found: Vec<String> =
        files.iter().flat_map(|(file, text)| retired_words(file, text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn planted_retired_word_is_reported() {
    let text = "/// Untold.\n\"Told\"\nfn loss_is_told() {}\n";
    assert_eq!(
        retired_words("gpuprof/src/main.rs", text),
        [
            "gpuprof/src/main.rs:2: `told` is retired: see tests/retired-names.txt",
            "gpuprof/src/main.rs:3: `told` is retired: see tests/retired-names.txt",
        ]
    );
}

#[test]
fn a_planted_circle_is_named() {
    let file = |name: &str, text: &str| (format!("x/src/{name}.rs"), text.to_owned());
    let files = [
        file("a", "use crate::{b::inner::Thing, c};"),
        file("b/mod", "pub mod inner;"),
        file("b/inner", "use super::super::a::Other; use super::deep::{self};"),
        file("b/deep", "use crate::c;"),
        file("c", "mod tests { use super::*; }"),
    ];
    assert_eq!(import_circles(&files), [["a", "b/inner"]]);
    assert!(import_circles(&files[1..]).is_empty());
}

#[test]
fn a_planted_circle_over_a_declaration_or_the_root_is_named() {
    let file = |name: &str, text: &str| (format!("x/src/{name}.rs"), text.to_owned());
    let folder = [
        file("a", "use crate::b::SHARED;"),
        file("b/mod", "mod inner;"),
        file("b/inner", "use crate::a;"),
    ];
    assert_eq!(import_circles(&folder), [["a", "b", "b/inner"]]);
    let library = [
        file("lib", "mod a;\nmod b;\npub use a::{A, Other};\npub use crate::b::B;"),
        file("a", "use crate::{B, b};"),
        file("b", "use crate::Other;"),
    ];
    assert_eq!(import_circles(&library), [["a", "b"]]);
    let program = [file("main", "mod a;\nmod b;"), file("a", "crate::f()"), file("b", "")];
    assert_eq!(import_circles(&program), [["main", "a"]]);
}

#[test]
fn unsafe_stands_at_the_c_boundary_only() {
    let files: Vec<_> = LIBRARIES
        .into_iter()
        .chain([PROGRAM, CONTROL, INJECT, FAKE_CUDA, FAKE_CUPTI, TEST_SUPPORT])
        .flat_map(sources)
        .collect();
    let found: Vec<String> =
        files.iter().flat_map(|(file, text)| unsafe_violations(file, text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    for place in UNSAFE {
        let used = |(file, text): &(String, String)| {
            file.starts_with(place) && !words(text, "unsafe").is_empty()
        };
        assert!(files.iter().any(used), "{place} no longer needs `unsafe`");
    }
}

#[test]
fn a_planted_unsafe_is_named() {
    let text = "// unsafe\n#![forbid(unsafe_code)]\n/// unsafe\nunsafe fn f() {}";
    assert_eq!(
        unsafe_violations("nvtx-rs/src/range.rs", text),
        ["nvtx-rs/src/range.rs:4: `unsafe` outside the C boundary"]
    );
    assert!(unsafe_violations("nvtx-rs/src/sys/abi.rs", text).is_empty());
}

/// What a raw pointer points to is the caller's promise, which only `unsafe` can ask for.
#[test]
fn safe_functions_take_no_raw_pointers() {
    let files: Vec<_> =
        LIBRARIES.into_iter().chain([INJECT, FAKE_CUDA, FAKE_CUPTI]).flat_map(sources).collect();
    let at_boundary =
        |(file, _): &&(String, String)| UNSAFE.iter().any(|place| file.starts_with(place));
    let found: Vec<String> = files
        .iter()
        .filter(at_boundary)
        .flat_map(|(file, text)| pointer_violations(file, text))
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_raw_pointer_is_named() {
    let text = "unsafe fn a(p: *const u8) {}\nunsafe extern \"C\" fn b(p: *mut u8) {}\n\
                fn c(f: &dyn Fn(u8), p: *const u8) {}\nextern \"C\" fn d<T>(p: &mut *mut T) {}\n\
                fn e() -> *mut u8 {}\ntype F = fn(*mut u8);\nfn f(n: usize) { n as *const u8; }\n\
                unsafe extern \"C\" { fn g(p: *const u8) -> u8; }";
    assert_eq!(
        pointer_violations("nvtx-rs/src/sys/abi.rs", text),
        ["nvtx-rs/src/sys/abi.rs:3: the safe function `c` takes a raw pointer"]
    );
}

/// Where a file of a stage uses a later one.
fn stage_violations(file: &str, text: &str, stages: &[&str]) -> Vec<String> {
    let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
    let own = inner.split(['/', '.']).next().unwrap_or_default();
    let place = |name: &str| stages.iter().position(|stage| *stage == name);
    let Some(here) = place(own).filter(|_| !is_test_file(file)) else { return Vec::new() };
    let code = code_of(without_tests(text));
    let later = paths(&code, "crate").into_iter().filter_map(|(line, path)| {
        let stage = path.first().filter(|name| place(name).is_some_and(|other| other > here))?;
        Some(format!("{file}:{line}: `{own}` uses `{stage}`, a later stage"))
    });
    later.collect()
}

/// The file and its functions that have more lines than they may.
fn too_long(file: &str, text: &str) -> Vec<String> {
    if text.starts_with("// Generated by") || is_test_file(file) {
        return Vec::new();
    }
    let lines: Vec<&str> = without_tests(text).lines().collect();
    let mut long = Vec::new();
    if lines.len() > FILE_LINES {
        long.push(format!("{file}: {} lines", lines.len()));
    }
    for (at, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        let Some((_, rest)) = start.split_once("fn ").filter(|(before, _)| {
            before.is_empty() || before.ends_with(' ') && !before.starts_with("//")
        }) else {
            continue;
        };
        // rustfmt puts the end of a body, or of a declaration, at the column of its beginning.
        let indent = &line[..line.len() - start.len()];
        let is_end = |line: &&str| {
            let rest = line.strip_prefix(indent).filter(|rest| !rest.starts_with(' '));
            rest.is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let count = lines[at..].iter().position(is_end).map_or(1, |last| last + 1);
        let is_one_line = line.ends_with('}') || line.ends_with(';');
        if !is_one_line && count > FUNCTION_LINES {
            long.push(format!("{file} fn {}: {count} lines", identifier(rest)));
        }
    }
    long
}

/// What stands before a file's own tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// Retired names of types, and of modules and functions as `mod name` and `fn name`.
fn retired_names(file: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut found = Vec::new();
    for name in retired().filter(|name| !name.starts_with(WORD)) {
        let (before, last) = match name.rsplit_once(' ') {
            Some((keyword, last)) => (format!("{keyword} "), last),
            None => (String::new(), name),
        };
        let places = words(&code, last).into_iter().filter(|&at| code[..at].ends_with(&before));
        found.extend(places.map(|at| (line_of(&code, at), name)));
    }
    violations(file, found)
}

/// Retired words in any text: comments, messages, parts of names, pages. Case does not matter.
fn retired_words(file: &str, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let is_alone = |at: usize, word: &str| {
        !text[..at].ends_with(char::is_alphabetic)
            && !text[at + word.len()..].starts_with(char::is_alphabetic)
    };
    let mut found = Vec::new();
    for entry in retired() {
        let Some(word) = entry.strip_prefix(WORD) else { continue };
        let places = text.match_indices(word).map(|(at, _)| at).filter(|&at| is_alone(at, word));
        if !is_allowed(file, word) {
            found.extend(places.map(|at| (line_of(&text, at), word)));
        }
    }
    violations(file, found)
}

/// The beginning of an entry for a word, instead of a name.
const WORD: &str = "word ";

/// The entries of `retired-names.txt`, without their replacements.
fn retired() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("retired-names.txt").lines();
    lines.filter_map(|line| line.split_once(" -> ")).map(|(name, _)| name)
}

/// True if the list has `allow WORD in PATH` for a part of this path.
fn is_allowed(file: &str, word: &str) -> bool {
    let lines = include_str!("retired-names.txt").lines();
    let mut allowed = lines.filter_map(|line| line.strip_prefix("allow ")?.split_once(" in "));
    allowed.any(|(allowed, path)| allowed == word && file.contains(path))
}

fn violations(file: &str, mut found: Vec<(usize, &str)>) -> Vec<String> {
    found.sort_unstable();
    let text =
        |(line, name)| format!("{file}:{line}: `{name}` is retired: see tests/retired-names.txt");
    found.into_iter().map(text).collect()
}

fn unsafe_violations(file: &str, text: &str) -> Vec<String> {
    // The compiler forbids it there; the macros only write it.
    if file.starts_with("profiler-macros/") || UNSAFE.iter().any(|place| file.starts_with(place)) {
        return Vec::new();
    }
    let code = code_of(text);
    words(&code, "unsafe")
        .into_iter()
        .map(|at| format!("{file}:{}: `unsafe` outside the C boundary", line_of(&code, at)))
        .collect()
}

/// Safe functions with a parameter that is a raw pointer. A place for one, `&mut *mut T`, is none.
fn pointer_violations(file: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut found = Vec::new();
    for at in words(&code, "fn") {
        let rest = code[at + "fn".len()..].trim_start();
        let name = identifier(rest);
        let before = code[..at].trim_end();
        let before = before.trim_end_matches("\"C-unwind\"").trim_end_matches("\"C\"").trim_end();
        let before = before.strip_suffix("extern").unwrap_or(before).trim_end();
        // A pointer to a function has no name.
        if name.is_empty() || before.ends_with("unsafe") {
            continue;
        }
        let Some(open) = rest.find('(') else { continue };
        let mut depth = 0;
        let end = rest[open..].find(|c| {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let (parameters, after) = rest[open..].split_at(end.unwrap_or(0));
        // A foreign function is declared, and has no body.
        if after.find([';', '{']).is_some_and(|next| after[next..].starts_with(';')) {
            continue;
        }
        if [": *const ", ": *mut "].iter().any(|pointer| parameters.contains(pointer)) {
            let line = line_of(&code, at);
            found.push(format!("{file}:{line}: the safe function `{name}` takes a raw pointer"));
        }
    }
    found
}

/// The groups of files of one crate that import each other, directly or through others. A file
/// imports those it declares, and not the one that declares it: `lib.rs` and a folder's `mod.rs`
/// may have what their files share. A name that `lib.rs` re-exports is an import of its file, and
/// any other name of the root one of `main.rs`.
fn import_circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let module = |file: &str| {
        let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
        inner.trim_end_matches(".rs").trim_end_matches("/mod").to_owned()
    };
    let names: Vec<String> = files.iter().map(|(file, _)| module(file)).collect();
    let named = |name: &str| names.iter().position(|other| other == name);
    let (lib, main) = (named("lib"), named("main"));
    let re_exports = lib.map_or(Vec::new(), |lib| {
        let code = code_of(&files[lib].1).replace("use crate::", "use ").replace("use ", "use::");
        paths(&code, "use").into_iter().map(|(_, path)| path).collect()
    });
    let file_of =
        |path: &[String]| (1..=path.len()).rev().find_map(|n| named(&path[..n].join("/")));
    let at = |path: &[String]| {
        let re_export = || re_exports.iter().find(|names| names.last() == path.first());
        file_of(path).or_else(|| re_export().and_then(|path| file_of(path))).or(main)
    };
    let imports = |index: usize| -> Vec<usize> {
        let (file, text) = &files[index];
        if lib == Some(index) || is_test_file(file) {
            return Vec::new();
        }
        let own: Vec<String> = match main == Some(index) {
            true => Vec::new(),
            false => names[index].split('/').map(str::to_owned).collect(),
        };
        let code = code_of(without_tests(text));
        let mut paths: Vec<Vec<String>> =
            paths(&code, "crate").into_iter().map(|(_, path)| path).collect();
        // A module within the file has one `super` more.
        for (_, path) in self::paths(&code, "super") {
            let ups = 1 + path.iter().take_while(|name| *name == "super").count();
            let above = &own[..own.len().saturating_sub(ups)];
            paths.push(above.iter().chain(&path[ups - 1..]).cloned().collect());
        }
        let is_parent = |other: usize| names[index].starts_with(&format!("{}/", names[other]));
        let found: Vec<usize> = paths.iter().filter_map(|path| at(path)).collect();
        let declared = words(&code, "mod").into_iter().filter_map(|at| {
            let name = identifier(code[at + "mod".len()..].trim_start()).to_owned();
            named(&own.iter().cloned().chain([name]).collect::<Vec<_>>().join("/"))
        });
        let all = found.into_iter().filter(|&other| !is_parent(other)).chain(declared);
        all.filter(|&other| other != index).collect()
    };
    let edges: Vec<Vec<usize>> = (0..files.len()).map(imports).collect();
    let reached = |from: usize| {
        let mut seen = vec![false; files.len()];
        let mut next = edges[from].clone();
        while let Some(index) = next.pop() {
            if !std::mem::replace(&mut seen[index], true) {
                next.extend(&edges[index]);
            }
        }
        seen
    };
    let reach: Vec<Vec<bool>> = (0..files.len()).map(reached).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for index in (0..files.len()).filter(|&index| reach[index][index]) {
        let circle: Vec<String> = (0..files.len())
            .filter(|&other| reach[index][other] && reach[other][index])
            .map(|other| names[other].clone())
            .collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Every path that follows `root::`, of groups too: of `root::{a, b::{c, d}}` these are `a`, `b::c`
/// and `b::d`.
fn paths(code: &str, root: &str) -> Vec<(usize, Vec<String>)> {
    fn tree<'a>(
        mut rest: &'a str,
        before: &[String],
        found: &mut Vec<(&'a str, Vec<String>)>,
    ) -> usize {
        let length = rest.len();
        let mut path = before.to_vec();
        let start = rest.trim_start();
        loop {
            rest = rest.trim_start();
            if let Some(group) = rest.strip_prefix('{') {
                rest = group;
                loop {
                    rest = &rest[tree(rest, &path, found)..];
                    rest = rest.trim_start();
                    match rest.chars().next() {
                        Some(',') => rest = &rest[1..],
                        Some('}') => return length - rest.len() + 1,
                        _ => return length - rest.len(),
                    }
                }
            }
            let name = identifier(rest);
            if !name.is_empty() {
                path.push(name.to_owned());
                rest = rest[name.len()..].trim_start();
                if let Some(more) = rest.strip_prefix("::") {
                    rest = more;
                    continue;
                }
            }
            if !path.is_empty() {
                found.push((start, path));
            }
            return length - rest.len();
        }
    }
    let mut found = Vec::new();
    for at in words(code, root) {
        if code[..at].trim_end().ends_with("::") {
            continue; // the second of `super::super`
        }
        if let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") {
            tree(rest, &[], &mut found);
        }
    }
    found.into_iter().map(|(rest, path)| (line_of(code, code.len() - rest.len()), path)).collect()
}

fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c| !is_part_of_name(c)).unwrap_or(text.len());
    &text[..end]
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where a whole word stands.
fn words(code: &str, word: &str) -> Vec<usize> {
    let alone = |at: usize| {
        !code[..at].ends_with(is_part_of_name)
            && !code[at + word.len()..].starts_with(is_part_of_name)
    };
    code.match_indices(word).map(|(at, _)| at).filter(|&at| alone(at)).collect()
}

/// The text without line comments; lines stay.
fn code_of(text: &str) -> String {
    let code = |line: &str| {
        let begins =
            |at: &usize| line[..*at].chars().all(char::is_whitespace) || line[..*at].ends_with(' ');
        let comment = line.match_indices("//").map(|(at, _)| at).find(begins);
        line[..comment.unwrap_or(line.len())].to_owned() + "\n"
    };
    text.lines().map(code).collect()
}

/// The sources of all packages, and the pages at the root and in `docs`, but for the change log and
/// this file.
fn texts() -> Vec<(String, String)> {
    let packages =
        LIBRARIES.into_iter().chain([PROGRAM, "examples", "benches", "tests", "frameworks"]);
    let mut files: Vec<_> =
        packages.chain(["docs"]).flat_map(|folder| files_in(folder, &["rs", "md"], true)).collect();
    files.extend(files_in("", &["md"], false));
    files.retain(|(file, _)| file != "CHANGELOG.md" && file != "tests/structure.rs");
    files
}

/// The source files of a crate, each as (path from the workspace's root, text).
fn sources(library: &str) -> Vec<(String, String)> {
    files_in(&format!("{library}/src"), &["rs"], true)
}

/// The files of a folder with these extensions, with those of its folders if `is_deep`, but for
/// builds.
fn files_in(folder: &str, extensions: &[&str], is_deep: bool) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                if is_deep && !path.ends_with("target") {
                    folders.push(path);
                }
            } else if extension.is_some_and(|extension| extensions.contains(&extension)) {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.push((name.to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
