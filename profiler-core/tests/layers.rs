//! The modules of this crate stand in an order and look up only; `unsafe` stands where the C boundary is; files and
//! functions have bounded lengths.
//!
//! All of it is read from the source text, so a violation is named by file and line.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The stages in the order of the data's flow, each with its modules in import order: a module uses those of earlier stages and
/// those before it in its own. One with submodules counts as one; a stage that is a module itself stands in its own list.
/// `lib.rs` stands above all and is not checked.
const STAGES: [(&str, &[&str]); 12] = [
    (
        "base",
        &[
            "named_variants",
            "accessors",
            "json",
            "text",
            "units",
            "table",
            "order",
            "page",
            "error",
            "background",
            "kept",
            "replace",
            "totals",
            "statistics",
            "distribution",
            "ratio_estimator",
            "hodges_lehmann",
            "kernel_names",
            "name_pattern",
        ],
    ),
    (
        "record",
        &[
            "context_hooks",
            "id_window",
            "range_tap",
            "series",
            "host_stacks",
            "recording",
            "context",
            "process_range_context",
            "lane",
        ],
    ),
    (
        "collect",
        &[
            "nvml",
            "sampling",
            "flush_pace",
            "request",
            "file_sink",
            "view",
            "collection",
            "session",
            "count_ranges",
        ],
    ),
    (
        "join",
        &[
            "ids",
            "intern",
            "account",
            "attribute",
            "graph_nodes",
            "health",
            "host_clock",
            "tables",
            "busy",
            "communication",
            "collectives",
            "hosts",
            "sums",
            "window_sums",
            "live_ranges",
            "streaming",
            "shared_contexts",
            "decode",
            "correlate",
            "segments",
            "infer",
            "merge",
            "range_tree",
        ],
    ),
    (
        "profile",
        &[
            "labels",
            "profile",
            "profiles",
            "process_range",
            "mark",
            "counter_track",
            "summary",
            "running_numbers",
        ],
    ),
    ("query", &["query"]),
    ("reports", &["reports"]),
    (
        "session",
        &[
            "recording_file",
            "profiler",
            "always_on",
            "metrics",
            "flight_recorder",
            "schedule",
            "tracing_layer",
            "gpu_spans",
            "environment",
        ],
    ),
    (
        "analyze",
        &[
            "kernels",
            "matches",
            "phases",
            "critical_path",
            "diagnosis",
            "kernel_counters",
            "roofline",
            "scorecard",
            "compare",
            "ranks",
        ],
    ),
    ("show", &["range_table", "report", "html"]),
    ("formats", &["places", "stacks", "export", "push", "nsys", "parquet", "fleet"]),
    (
        "check",
        &[
            "ci",
            "budget",
            "clocks",
            "gate",
            "verdict_report",
            "gpu_lock",
            "measure",
            "gpu_test",
            "measurement",
        ],
    ),
];

/// What CUPTI collects and how: names of `cupti` for the modules in [`COLLECTS`] alone. All others see records.
const RAW: [&str; 8] =
    ["Callbacks", "Collected", "Collector", "Config", "Library", "RecordBytes", "fake", "sys"];
const COLLECTS: [&str; 6] =
    ["recording", "sampling", "request", "collection", "session", "profiler"];

/// Public names at the root of `profiler-core`: what users type. Results have modules.
const MOST_ROOT_NAMES: usize = 41;
/// Source files beside the folders of the stages.
const MOST_ROOT_FILES: usize = 4;

/// The crates that programs use.
const LIBRARIES: [&str; 4] = ["nvtx-rs", "cupti-rs", "profiler-core", "profiler-macros"];

/// The program, which sees what is public.
const PROGRAM: &str = "gpuprof";

/// What the program and its injection library share.
const CONTROL: &str = "gpuprof/control";

/// The library that unmodified programs load, which C calls.
const INJECT: &str = "gpuprof/inject";

/// The libcuda of tests, which is C's on both sides.
const FAKE_CUDA: &str = "tests/fake_cuda";

/// The packages by the types of a framework.
const FRAMEWORKS: [&str; 4] =
    ["frameworks/cudarc", "frameworks/candle", "frameworks/burn", "frameworks/tch"];

/// The files and folders where `unsafe` may stand.
const UNSAFE: [&str; 7] = [
    "nvtx-rs/src/sys/",
    "cupti-rs/src/sys/",
    "cupti-rs/src/buffer/",
    "cupti-rs/src/fake/",
    "gpuprof/inject/src/sys/",
    "profiler-core/src/record/host_stacks/sys/",
    "tests/fake_cuda/src/sys/",
];

/// The other packages of the workspace with sources of their own.
const PROGRAMS: [&str; 7] = [PROGRAM, CONTROL, INJECT, "examples", "benches", "tests", FAKE_CUDA];

/// True for a source file with tests alone: `tests.rs`, or a file in a folder `tests` within `src`.
fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs")
        || file.split_once("/src/").is_some_and(|(_, inner)| inner.contains("/tests/"))
}

/// The most lines of a file and of a function, tests and generated code apart.
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 100;

/// The exceptions, each with its reason: a file, or a function as `FILE fn NAME`. An entry that nothing needs fails the test.
const LONG: &[(&str, &str)] = &[];

/// A file in a folder of tests is compiled only where the folder's `main.rs` names it.
#[test]
fn every_file_of_a_group_of_tests_is_in_it() {
    for group in ["record", "analyze"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(group);
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
    let mut long: Vec<(String, usize)> =
        files.iter().flat_map(|(file, text)| too_long(file, text)).collect();
    for (name, reason) in LONG {
        let before = long.len();
        long.retain(|(found, _)| found != name);
        assert!(long.len() < before, "{name} needs no exception ({reason})");
    }
    assert!(long.is_empty(), "too many lines: {long:#?}");
}

#[test]
fn a_planted_long_function_is_named() {
    let file = "nvtx-rs/src/range.rs";
    let body = "    f();\n".repeat(FUNCTION_LINES);
    let text = format!("fn short();\nfn one<T: A<B = u8>>(f: [u8; 2]) -> u8 {{\n{body}}}\n");
    assert_eq!(too_long(file, &text), [(format!("{file} fn one"), FUNCTION_LINES + 2)]);
    assert!(too_long("nvtx-rs/src/range/tests.rs", &text).is_empty());
    assert!(too_long(file, &format!("// Generated by x\n{text}")).is_empty());
    let in_tests = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
    assert!(too_long(file, &in_tests).is_empty());
    let lines = "\n".repeat(FILE_LINES + 1);
    assert_eq!(too_long(file, &format!("{lines}{in_tests}")), [(file.to_owned(), FILE_LINES + 1)]);
}

#[test]
fn modules_look_up_only() {
    let files = sources("profiler-core");
    assert!(files.len() > STAGES.len(), "{files:?}");
    let found: Vec<String> =
        files.iter().flat_map(|(file, text)| layer_violations(file, text)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
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
fn the_root_of_profiler_core_stays_small() {
    let files = sources("profiler-core");
    let at_root = |(file, _): &&(String, String)| {
        file.split_once("/src/").is_some_and(|(_, inner)| !inner.contains('/'))
    };
    let root: Vec<&(String, String)> = files.iter().filter(at_root).collect();
    assert!((1..=MOST_ROOT_FILES).contains(&root.len()), "{} files", root.len());
    let lib = root.iter().find(|(file, _)| file.ends_with("/lib.rs"));
    let names = root_names(lib.map_or("", |(_, text)| text));
    assert!((1..=MOST_ROOT_NAMES).contains(&names.len()), "{} names: {names:?}", names.len());
}

#[test]
fn every_kind_of_root_name_is_counted() {
    let text = "pub mod a;\nmod b;\npub use c::d;\npub use c::{\n    E, e::F,\n    self as g,\n};\n\
                pub(crate) use h::I;\n/// pub use j::K;\npub mod l {\n    pub use m::N;\n}\n\
                pub fn o<T>() {}\npub use c::o;\n#[doc(hidden)]\npub mod __p {}\n";
    assert_eq!(root_names(text), ["E", "F", "__p", "a", "d", "g", "l", "o"]);
}

#[test]
fn a_planted_retired_name_is_named() {
    let text = "// Follow\nstruct Followed;\nfn f(_: &Follow) {}\nmod curve;";
    assert_eq!(
        retired_names("profiler-core/src/join/tables.rs", text),
        [
            "profiler-core/src/join/tables.rs:3: `Follow` is retired: see tests/retired-names.txt",
            "profiler-core/src/join/tables.rs:4: `mod curve` is retired: see tests/retired-names.txt",
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
        .chain([PROGRAM, CONTROL, INJECT, FAKE_CUDA])
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
fn a_planted_back_reference_is_named() {
    let file = |inner: &str| format!("profiler-core/src/{inner}.rs");
    let violation = |inner: &str, line: usize, module: &str, other: &str| {
        let file = file(inner);
        format!("{file}:{line}: `{module}` uses `{other}`, which does not stand before it")
    };
    let text = "use crate::base::error::Error;\nuse crate::{\n    join::tables::{Call, Store},\n    show::report,\n};\n";
    assert_eq!(
        layer_violations(&file("join/range_tree"), text),
        [violation("join/range_tree", 4, "join::range_tree", "show::report")]
    );
    let text =
        "//! crate::show::report\nfn f() { super::correlate::f() }\nuse crate::profile::Range;";
    assert_eq!(
        layer_violations(&file("join/tables"), text),
        [
            violation("join/tables", 3, "join::tables", "profile"),
            violation("join/tables", 2, "join::tables", "join::correlate"),
        ]
    );
    let text = "use super::super::super::join::tables::Call;\nuse super::ranges;\nuse crate::record::recording::ranges;";
    assert_eq!(
        layer_violations(&file("record/recording/file"), text),
        [violation("record/recording/file", 1, "record::recording", "join::tables")]
    );
    let text = "#[cfg(test)]\nmod tests {\n    use crate::show::report;\n}";
    assert!(layer_violations(&file("join/tables"), text).is_empty());
}

#[test]
fn a_planted_way_around_the_order_is_named() {
    let file = "profiler-core/src/join/tables.rs";
    assert_eq!(
        layer_violations(file, "\nfn f(_: crate::Profile) {}"),
        [format!("{file}:2: `Profile` is named by the crate's root: name its module instead")]
    );
    for (inner, module) in [("new", "new"), ("join/new", "join::new")] {
        assert_eq!(
            layer_violations(&format!("profiler-core/src/{inner}.rs"), ""),
            [format!(
                "profiler-core/src/{inner}.rs: `{module}` has no place in the order; give it one in this test"
            )]
        );
    }
    let text = "use cupti::{Call, Collected};\nfn f(_: &cupti::Library) {}";
    let rest =
        "which is for recording and sampling and request and collection and session and profiler";
    assert_eq!(
        layer_violations(file, text),
        [
            format!("{file}:1: `join::tables` uses `cupti::Collected`, {rest}"),
            format!("{file}:2: `join::tables` uses `cupti::Library`, {rest}"),
        ]
    );
    assert!(layer_violations("profiler-core/src/session/profiler.rs", text).is_empty());
}

#[test]
fn a_planted_unsafe_is_named() {
    let text = "// unsafe\n#![forbid(unsafe_code)]\nlet s = \"unsafe\";\nunsafe fn f() {}";
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
        LIBRARIES.into_iter().chain([INJECT, FAKE_CUDA]).flat_map(sources).collect();
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

#[test]
fn comments_and_literals_are_not_code() {
    let text = r##"a /* b /* c */ d */ e "f \" g" 'h' '\'' &'i j r#"k " l"# b"m" // n
o"##;
    let code = code_of(text);
    let left: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(left, ["a", "e", "&'i", "j", "r", "b", "o"]);
    assert_eq!(code.lines().count(), 2);
}

/// A module's place: its stage and its place in it. Of a path or a file within one it is that one's.
fn place(path: &[&str]) -> Option<(usize, usize)> {
    let stage = STAGES.iter().position(|(name, _)| path.first() == Some(name))?;
    let (name, modules) = STAGES[stage];
    let of = |wanted: &str| modules.iter().position(|module| *module == wanted);
    let module = path.get(1).and_then(|module| of(module)).or_else(|| of(name))?;
    Some((stage, module))
}

fn name_of((stage, module): (usize, usize)) -> String {
    let (name, modules) = STAGES[stage];
    if modules[module] == name { name.to_owned() } else { format!("{name}::{}", modules[module]) }
}

fn layer_violations(file: &str, text: &str) -> Vec<String> {
    let inner = file.split_once("/src/").map_or(file, |(_, inner)| inner);
    let own: Vec<&str> =
        inner.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect();
    // A stage's own file lists its modules.
    let is_list = own.len() == 1 && STAGES.iter().any(|(stage, _)| own[0] == *stage);
    if own[0] == "lib" || is_list && place(&own).is_none() {
        return Vec::new();
    }
    let Some(here) = place(&own) else {
        let module = own.join("::");
        return vec![format!(
            "{file}: `{module}` has no place in the order; give it one in this test"
        )];
    };
    let module = name_of(here);
    // What tests use stands where it is wanted.
    let code = code_of(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
    let is_test = is_test_file(file);
    let mut found = Vec::new();
    for (line, path) in paths(&code, "crate") {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match place(&path) {
            Some(other) if other <= here || is_test => {}
            Some(other) => found.push(format!(
                "{file}:{line}: `{module}` uses `{}`, which does not stand before it",
                name_of(other)
            )),
            None => found.push(format!(
                "{file}:{line}: `{}` is named by the crate's root: name its module instead",
                path.first().unwrap_or(&"")
            )),
        }
    }
    // A module within the file has one `super` more; what is called like a module is taken for one.
    for (line, path) in paths(&code, "super") {
        let ups = 1 + path.iter().take_while(|name| *name == "super").count();
        let above = own[..own.len().saturating_sub(ups)].iter().copied();
        let path: Vec<&str> = above.chain(path[ups - 1..].iter().map(String::as_str)).collect();
        if let Some(other) = place(&path).filter(|other| *other > here && !is_test) {
            found.push(format!(
                "{file}:{line}: `{module}` uses `{}`, which does not stand before it",
                name_of(other)
            ));
        }
    }
    for (line, name) in heads(&code, "cupti") {
        if RAW.contains(&name) && !COLLECTS.contains(&STAGES[here.0].1[here.1]) {
            found.push(format!(
                "{file}:{line}: `{module}` uses `cupti::{name}`, which is for {}",
                COLLECTS.join(" and ")
            ));
        }
    }
    found
}

/// The public names in the text of a `lib.rs`, each once: items and re-exports that begin a line.
fn root_names(text: &str) -> Vec<String> {
    let code = code_of(text);
    let mut names = BTreeSet::new();
    for item in code.split("\npub ").skip(1).chain(code.strip_prefix("pub ")) {
        let Some(imports) = item.strip_prefix("use ") else {
            let name = item.split_once(' ').map_or("", |(_, name)| identifier(name));
            names.insert(name.to_owned());
            continue;
        };
        let imports = imports.split(';').next().unwrap_or_default();
        let leaves = imports.split(['{', '}', ',']).map(str::trim);
        for leaf in leaves.filter(|leaf| !leaf.is_empty() && !leaf.ends_with("::")) {
            let name = leaf.rsplit(" as ").next().and_then(|path| path.rsplit("::").next());
            names.insert(name.unwrap_or_default().to_owned());
        }
    }
    names.into_iter().collect()
}

/// Types, and modules as `mod name`, that have another name now.
fn retired_names(file: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let list = include_str!("retired-names.txt").lines().filter(|line| !line.starts_with('#'));
    let mut found = Vec::new();
    for name in list.filter_map(|line| line.split(" -> ").next()) {
        let module = name.strip_prefix("mod ");
        for at in words(&code, module.unwrap_or(name)) {
            if module.is_none() || code[..at].ends_with("mod ") {
                let line = line_of(&code, at);
                found.push((
                    line,
                    format!("{file}:{line}: `{name}` is retired: see tests/retired-names.txt"),
                ));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, text)| text).collect()
}

fn unsafe_violations(file: &str, text: &str) -> Vec<String> {
    if UNSAFE.iter().any(|place| file.starts_with(place)) {
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

/// The file itself, and its functions as `FILE fn NAME`, that have more lines than they may, each with its lines. Generated
/// code and tests may have as many as they need.
fn too_long(file: &str, text: &str) -> Vec<(String, usize)> {
    if text.starts_with("// Generated by") || is_test_file(file) {
        return Vec::new();
    }
    let code = code_of(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
    let functions = words(&code, "fn").into_iter().filter_map(|at| {
        let name = identifier(code[at + "fn".len()..].trim_start());
        // A pointer to a function has no name.
        let lines = function(&code[at..]).filter(|_| !name.is_empty())?.lines().count();
        (lines > FUNCTION_LINES).then(|| (format!("{file} fn {name}"), lines))
    });
    let lines = code.lines().count();
    let whole = (lines > FILE_LINES).then(|| (file.to_owned(), lines));
    whole.into_iter().chain(functions).collect()
}

/// The function from its `fn` to the end of its body; `None` for one that is declared without a body.
fn function(code: &str) -> Option<&str> {
    let (mut depth, mut is_in_body) = (0_usize, false);
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => {
                is_in_body |= c == '{' && depth == 0;
                depth += 1;
            }
            '}' | ')' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && is_in_body {
                    return Some(&code[..=at]);
                }
            }
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The groups of files of one crate that import each other, directly or through others. A file imports those it declares, and
/// not the one that declares it: `lib.rs` and a folder's `mod.rs` may have what their files share. A name that `lib.rs`
/// re-exports is an import of its file, and any other name of the root one of `main.rs`.
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
        let code = code_of(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
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

/// Every path that follows `root::`, of groups too: of `root::{a, b::{c, d}}` these are `a`, `b::c` and `b::d`.
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

/// Every name that follows `root::`, with its line; of `root::{a, b::{c}}` these are `a` and `b`.
fn heads<'a>(code: &'a str, root: &str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for at in words(code, root) {
        let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else {
            continue;
        };
        let rest = rest.trim_start();
        let start = code.len() - rest.len();
        let Some(group) = rest.strip_prefix('{') else {
            let name = identifier(rest);
            if !name.is_empty() && name != root {
                found.push((line_of(code, start), name));
            }
            continue;
        };
        let (mut depth, mut first) = (1, true);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => first = true,
                c if first && depth == 1 && !c.is_whitespace() => {
                    let name = identifier(&group[i..]);
                    if !name.is_empty() {
                        found.push((line_of(code, start + 1 + i), name));
                    }
                    first = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
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

/// The text with comments and literals blanked out; lines stay.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = skipped(rest, code.chars().next_back());
        if length == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.push(' ');
            code.extend(rest[..length].chars().filter(|c| *c == '\n'));
            rest = &rest[length..];
        }
    }
    code
}

/// How many bytes of a comment or literal `rest` begins with; `before` is the character before it.
fn skipped(rest: &str, before: Option<char>) -> usize {
    let end = |found: Option<usize>| found.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return end(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        let mut depth = 0;
        for (i, _) in rest.match_indices(['*', '/']) {
            match &rest.as_bytes()[i..] {
                [b'/', b'*', ..] => depth += 1,
                [b'*', b'/', ..] => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return i + 2;
            }
        }
        return rest.len();
    }
    if before == Some('r') && (rest.starts_with('"') || rest.starts_with("#\"")) {
        let marks = rest.len() - rest.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(marks));
        let body = marks + 1;
        return end(rest[body..].find(&close).map(|at| body + at + close.len()));
    }
    if rest.starts_with('"') {
        return end(closing(rest, '"'));
    }
    // A lifetime has no closing quote after its first character.
    let literal = rest.strip_prefix('\'').is_some_and(|inner| {
        inner.starts_with('\\') || inner.chars().nth(1).is_some_and(|c| c == '\'')
    });
    if literal {
        return end(closing(rest, '\''));
    }
    0
}

/// The bytes to the end of a literal that begins and ends with `quote`.
fn closing(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(i + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// The source files of a crate, each as (path from the workspace's root, text).
fn sources(library: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> = vec![root.join(library).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.push((name.to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
