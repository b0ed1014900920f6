//! The README and the pages of `docs`: links lead somewhere, the summary is complete, the README stays short.
#![allow(clippy::unwrap_used)] // the helpers are tests too

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `docs` whose pages have to be in `SUMMARY.md`.
const FOLDERS: [&str; 4] = ["guide", "reference", "internals", "measurements"];
/// Words of the README, all of it.
const README_WORDS: usize = 700;
/// Where files that pages name in code begin.
const SOURCES: [&str; 11] = [
    ".ci/",
    "benches/",
    "cupti-rs/",
    "docs/",
    "examples/",
    "gpuprof/",
    "nvtx-rs/",
    "profiler-analysis/",
    "profiler-base/",
    "profiler-core/",
    "tests/",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The README, the summary and all pages, relative to the repository.
fn pages() -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::from(["README.md".into(), "docs/SUMMARY.md".into()]);
    for folder in FOLDERS {
        let folder = Path::new("docs").join(folder);
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            pages.insert(folder.join(entry.unwrap().file_name()));
        }
    }
    pages
}

/// The lines that are not in a code block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of `[text](target)` that are no address.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let targets = targets.map(|(target, _)| target.to_owned());
        found.extend(targets.filter(|target| !target.contains("://")));
    }
    found
}

/// The anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    prose(text).any(|line| line.starts_with('#') && anchor(line) == wanted)
}

/// What is wrong with the links of a page, which lies at this path of this repository.
fn broken_links(root: &Path, page: &Path, text: &str) -> Vec<String> {
    let folder = root.join(page.parent().unwrap());
    let mut broken = Vec::new();
    for link in links(text) {
        let (path, wanted) = link.split_once('#').unwrap_or((&link, ""));
        let target = if path.is_empty() { root.join(page) } else { folder.join(path) };
        let is_there = if wanted.is_empty() {
            target.exists()
        } else {
            fs::read_to_string(&target).is_ok_and(|text| has_anchor(&text, wanted))
        };
        if !is_there {
            broken.push(format!("{}: {link}", page.display()));
        }
    }
    broken
}

/// Files of the repository that a page names in code and that are not there.
fn missing_sources(root: &Path, page: &Path, text: &str) -> Vec<String> {
    let text: Vec<_> = prose(text).collect();
    let text = text.join("\n");
    let codes = text.split('`').skip(1).step_by(2);
    let paths = codes.filter(|code| {
        SOURCES.iter().any(|folder| code.starts_with(folder)) && !code.contains(char::is_whitespace)
    });
    let missing = paths.filter(|path| !root.join(path).exists());
    missing.map(|path| format!("{}: {path}", page.display())).collect()
}

/// Pages in the folders that the summary lacks.
fn unlisted(pages: &BTreeSet<PathBuf>, summary: &str) -> Vec<PathBuf> {
    let listed: BTreeSet<PathBuf> =
        links(summary).into_iter().map(|link| Path::new("docs").join(link)).collect();
    let in_folders =
        pages.iter().filter(|page| FOLDERS.iter().any(|f| page.starts_with(format!("docs/{f}"))));
    in_folders.filter(|page| !listed.contains(*page)).cloned().collect()
}

#[test]
fn every_relative_link_leads_to_a_file_and_heading() {
    let root = root();
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        broken.extend(broken_links(&root, &page, &text));
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_source_file_that_a_page_names_exists() {
    let root = root();
    let mut missing = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        missing.extend(missing_sources(&root, &page, &text));
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
}

#[test]
fn the_summary_lists_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let unlisted = unlisted(&pages(), &summary);
    assert!(unlisted.is_empty(), "not in docs/SUMMARY.md: {unlisted:?}");
}

#[test]
fn summary_lists_every_decision() {
    let root = root();
    let listed = links(&fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap());
    for entry in fs::read_dir(root.join("docs/decisions")).unwrap() {
        let link = format!("decisions/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(listed.contains(&link), "not in docs/SUMMARY.md: {link}");
    }
}

/// The lines of Rust code of a page.
fn rust_code(text: &str) -> impl Iterator<Item = &str> {
    let mut is_rust = false;
    text.lines().filter(move |line| {
        if line.starts_with("```") {
            is_rust = line.starts_with("```rust");
        }
        is_rust
    })
}

#[test]
fn guide_names_no_crate_that_its_install_section_lacks() {
    let root = root();
    for page in pages().iter().filter(|page| page.starts_with("docs/guide")) {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let is_direct =
            |line: &&str| line.replace("profiler_core::cupti::", "").contains("cupti::");
        let line = rust_code(&text).find(is_direct);
        assert_eq!(line, None, "{}", page.display());
    }
}

#[test]
fn guide_lists_every_feature() {
    let root = root();
    let features_of = |package: &str| -> Vec<String> {
        let manifest = fs::read_to_string(root.join(package).join("Cargo.toml")).unwrap();
        let features = manifest.split("[features]\n").nth(1).unwrap();
        let features = features.split("\n[").next().unwrap().lines();
        let names = features.filter_map(|line| line.split_once(" = "));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let features: Vec<String> =
        ["profiler-core", "profiler-analysis"].into_iter().flat_map(features_of).collect();
    assert!(features.len() > 15, "{features:?}");
    let page = fs::read_to_string(root.join("docs/guide/getting-started.md")).unwrap();
    for feature in features.into_iter().filter(|name| *name != "default") {
        let is_listed = page.lines().any(|line| {
            line.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{feature}`")))
        });
        assert!(is_listed, "docs/guide/getting-started.md lacks the feature {feature}");
    }
}

#[test]
fn every_guide_page_with_rust_code_is_a_doctest() {
    let root = root();
    let library = fs::read_to_string(root.join("tests/src/lib.rs")).unwrap();
    for page in pages() {
        let has_code = fs::read_to_string(root.join(&page)).unwrap().contains("```rust");
        let included = format!("include_str!(\"../../{}\")", page.display());
        assert!(
            !has_code || library.contains(&included),
            "tests/src/lib.rs does not include {}, whose examples are then not compiled",
            page.display()
        );
    }
}

#[test]
fn the_health_page_names_every_field() {
    let root = root();
    let source = fs::read_to_string(root.join("profiler-core/src/join/health.rs")).unwrap();
    let page = fs::read_to_string(root.join("docs/reference/health.md")).unwrap();
    let of = |start: &str| source.split(start).nth(1).unwrap().split("\n}").next().unwrap();
    let groups = ["pub struct Accounts {", "    Losses {", "    Facts {"].map(of).join("\n");
    let lines = groups.lines().map(str::trim);
    let fields: Vec<_> = lines
        .filter(|line| !line.starts_with("//") && !line.starts_with('#'))
        .filter(|line| !line.contains("serialize_with") && !line.starts_with("feature = "))
        .filter_map(|line| line.strip_prefix("pub ").unwrap_or(line).split_once(':'))
        .map(|(name, _)| name)
        .collect();
    assert!(fields.len() > 60, "{fields:?}");
    for field in fields {
        let is_named =
            page.contains(&format!("`{field}`")) || page.contains(&format!("`{field}_ns`"));
        assert!(is_named, "docs/reference/health.md lacks {field}");
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let count = readme.split_whitespace().count();
    assert!(count <= README_WORDS, "README.md has {count} words: move some to docs/guide");
}

#[test]
fn planted_mistakes_are_found() {
    let (root, page) = (root(), Path::new("docs/guide/queries.md"));
    let broken = |text: &str| broken_links(&root, page, text).len();
    assert_eq!(broken("[a](nowhere.md) and [b](testing.md#nowhere), [c](#nowhere)"), 3);
    assert_eq!(broken("[a](testing.md#baselines) [b](https://a.b/c) [c](../introduction.md)"), 0);
    assert_eq!(broken("```text\n[a](nowhere.md)\n```\n"), 0);
    assert_eq!(missing_sources(&root, page, "`tests/nowhere.rs`, `tests/gpu.rs`").len(), 1);
    assert_eq!(unlisted(&pages(), "[a](guide/queries.md)").len(), pages().len() - 3);
    assert_eq!(anchor("## What a run is bound by, `really`?"), "what-a-run-is-bound-by-really");
}
