//! The page's script: modules of JavaScript, joined into one.

/// The SHA-256 of the joined script in the page's content security policy. A test checks it, and
/// with `UPDATE_SNAPSHOTS=1` writes it.
pub(super) const HASH: &str = include_str!("script/hash.txt").trim_ascii_end();

/// The modules, each after its imports. Node's tests load them one by one.
const MODULES: [(&str, &str); 24] = [
    ("units", include_str!("script/units.mjs")),
    ("arrays", include_str!("script/arrays.mjs")),
    ("model", include_str!("script/model.mjs")),
    ("colors", include_str!("script/colors.mjs")),
    ("ranks", include_str!("script/ranks.mjs")),
    ("rows", include_str!("script/rows.mjs")),
    ("view", include_str!("script/view.mjs")),
    ("address", include_str!("script/address.mjs")),
    ("search", include_str!("script/search.mjs")),
    ("sums", include_str!("script/sums.mjs")),
    ("flame", include_str!("script/flame.mjs")),
    ("state", include_str!("script/state.mjs")),
    ("items", include_str!("script/items.mjs")),
    ("dom", include_str!("script/dom.mjs")),
    ("paint", include_str!("script/paint.mjs")),
    ("timeline", include_str!("script/timeline.mjs")),
    ("selection", include_str!("script/selection.mjs")),
    ("details", include_str!("script/details.mjs")),
    ("tables", include_str!("script/tables.mjs")),
    ("flamegraph", include_str!("script/flamegraph.mjs")),
    ("panels", include_str!("script/panels.mjs")),
    ("summary", include_str!("script/summary.mjs")),
    ("input", include_str!("script/input.mjs")),
    ("main", include_str!("script/main.mjs")),
];

/// All modules in one scope: without imports, with their exported items unchanged.
pub(super) fn joined() -> String {
    let mut script = String::new();
    for (_, module) in MODULES {
        let mut is_import = false;
        for line in module.lines() {
            is_import |= line.starts_with("import ");
            if !is_import {
                script.push_str(line.strip_prefix("export ").unwrap_or(line));
                script.push('\n');
            }
            is_import &= !line.ends_with(';');
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::page::hash_of;

    /// The name that a line at the beginning of a line declares.
    fn declared(line: &str) -> Option<&str> {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let rest = ["const ", "let ", "class ", "function* ", "function "]
            .iter()
            .find_map(|word| line.strip_prefix(word))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    }

    #[test]
    fn the_policy_names_the_script() {
        let script = joined();
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write("src/show/html/script/hash.txt", hash_of(&script) + "\n").unwrap();
        } else {
            let advice = "UPDATE_SNAPSHOTS=1 cargo test -p profiler-analysis --lib policy";
            assert_eq!(HASH, hash_of(&script), "hash.txt is not that of the script: {advice}");
        }
        // What would end its element, or what a parser would change.
        assert!(!script.contains("</") && !script.contains("<!--") && !script.contains('\r'));
        assert!(!script.contains("http:") && !script.contains("https:"));
        assert!(!script.contains("\nimport ") && !script.contains("\nexport "));
    }

    #[test]
    fn modules_import_earlier_exports_and_declare_names_once() {
        let mut exports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        for (module, text) in MODULES {
            let own = exports.clone();
            for import in text.split("import { ").skip(1) {
                let Some((list, rest)) = import.split_once(" } from \"./") else { continue };
                let (from, _) = rest.split_once(".mjs\";\n").unwrap();
                let known = own.get(from).unwrap_or_else(|| panic!("{module} imports from {from}"));
                for name in list.split(',').map(str::trim) {
                    assert!(known.contains(name), "{module}: {from} does not export {name}");
                }
            }
            let exported = exports.entry(module).or_default();
            for line in text.lines() {
                let Some(name) = declared(line).filter(|name| !name.is_empty()) else { continue };
                let other = names.insert(name, module);
                assert_eq!(other, None, "{module} declares {name} too");
                if line.starts_with("export ") {
                    exported.insert(name);
                }
            }
        }
        assert!(names.len() > 200, "{}", names.len());
    }
}
