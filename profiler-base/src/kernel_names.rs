//! Names of kernels and ranges: demangling, paths and patterns.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// Upper bound of a demangled name in bytes: a short mangled name may expand without limit.
const LONGEST: usize = 1 << 16;

/// Text that refuses to grow beyond [`LONGEST`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Demangles a name; returns it unchanged if it is not mangled, or expands too far.
fn demangled_with(name: &str, options: cpp_demangle::DemangleOptions) -> String {
    // Without the prefix, a plain C name such as `b` would be demangled as a type.
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let mut text = Bounded(String::new());
    let written = cpp_demangle::Symbol::new(name)
        .is_ok_and(|symbol| symbol.structured_demangle(&mut text, &options).is_ok());
    if written { text.0 } else { name.to_owned() }
}

/// A C++ name without parameters; other names unchanged.
pub fn demangled(name: &str) -> String {
    demangled_with(name, cpp_demangle::DemangleOptions::new().no_params().no_return_type())
}

/// The name in reports: without parameters, from the `demangled` name if there is one.
pub fn displayed(name: &str, demangled_name: Option<&str>) -> String {
    demangled_name.map_or_else(|| demangled(name), without_parameters)
}

/// A kernel's label: the displayed name, with parameters for an overloaded function.
pub fn label(name: &str, demangled_name: Option<&str>, is_overloaded: bool) -> String {
    let shown = displayed(name, demangled_name);
    if !is_overloaded {
        return shown;
    }
    let full = demangled_name.map_or_else(|| with_parameters(name), str::to_owned);
    // Without the return type.
    full.find(&shown).map_or(shown, |start| full[start..].to_owned())
}

/// The keys of functions that differ from others only in their parameters. Kernels are given by
/// key, name and demangled name.
pub fn overloaded<'n, K: Copy + Eq + Hash>(
    kernels: impl Iterator<Item = (K, &'n str, Option<&'n str>)>,
) -> FxHashSet<K> {
    let mut same: FxHashMap<String, Vec<(K, String)>> = FxHashMap::default();
    for (key, name, demangled_name) in kernels {
        let of_name = same.entry(displayed(name, demangled_name)).or_default();
        of_name.push((key, label(name, demangled_name, true)));
    }
    let differ = |of_name: &Vec<(K, String)>| of_name.iter().any(|(_, text)| *text != of_name[0].1);
    same.into_values().filter(differ).flatten().map(|(key, _)| key).collect()
}

/// A C++ name with parameters; other names unchanged.
pub fn with_parameters(name: &str) -> String {
    demangled_with(name, cpp_demangle::DemangleOptions::new())
}

/// The unqualified C++ name: `k` of `void ns::k<float>(int)`.
pub fn without_scope(name: &str) -> String {
    let name = without_parameters(name);
    let mut depth = 0_i32;
    let (mut start, mut end) = (0, name.len());
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'>' | b')' => depth += 1,
            b'<' | b'(' => {
                depth -= 1;
                if depth == 0 && byte == b'<' && end == name.len() && name.ends_with('>') {
                    end = at;
                }
            }
            b':' if depth == 0 => {
                start = at + 1;
                break;
            }
            _ => {}
        }
    }
    name.get(start..end).filter(|last| !last.is_empty()).unwrap_or(&name).to_owned()
}

/// Removes the parameters and return type of a demangled C++ name.
pub fn without_parameters(name: &str) -> String {
    let (mut depth, mut end) = (0_i32, name.len());
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                // Except in the name of an operator.
                if depth == 0 && name.ends_with(')') && !name[..at].ends_with("operator") {
                    end = at;
                }
                if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
    }
    let name = &name[..end];
    let mut depth = 0_i32;
    let returned = name.bytes().enumerate().rev().find(|(_, byte)| {
        match byte {
            b'>' | b')' => depth += 1,
            b'<' | b'(' => depth -= 1,
            _ => {}
        }
        *byte == b' ' && depth == 0
    });
    returned.map_or(name, |(space, _)| &name[space + 1..]).to_owned()
}

/// Removes the template arguments of a demangled name without parameters, also of its namespaces:
/// `ns::k` of `ns::k<float>`. An unnamed namespace is `(anonymous namespace)`.
pub fn without_arguments(name: &str) -> String {
    let (mut text, mut depth) = (String::with_capacity(name.len()), 0_u32);
    for part in name.replace("<unnamed>", "(anonymous namespace)").split_inclusive(['<', '>']) {
        let (before, bracket) = part.split_at(part.trim_end_matches(['<', '>']).len());
        if depth == 0 {
            text.push_str(before);
        }
        match bracket {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text
}

/// The number of names included from the start and the end of a long path.
pub const KEPT: usize = 64;

/// The position of a row in a tree, for its path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Level {
    /// The number of ancestors.
    depth: usize,
    /// The innermost of the first [`KEPT`] rows of the path.
    head: usize,
}

impl Level {
    /// The level of a child of `around`; `None` for an outermost row.
    pub fn new(row: usize, around: Option<Self>) -> Self {
        match around {
            None => Self { depth: 0, head: row },
            Some(Self { depth, head }) => {
                let depth = depth + 1;
                Self { depth, head: if depth < KEPT { row } else { head } }
            }
        }
    }

    /// The number of ancestors.
    pub fn depth(self) -> usize {
        self.depth
    }

    /// The innermost of the first [`KEPT`] rows of its path: the row itself if there are no more.
    pub fn head(self) -> usize {
        self.head
    }

    /// The names of a row's path, outermost first. Beyond twice [`KEPT`], only the first and last
    /// are included, with the number of omitted ones between them, `…(7 more)…`. `names_from`
    /// returns a row's name, then the names of its ancestors.
    pub fn names<'n, N: Iterator<Item = &'n str>>(
        self,
        row: usize,
        names_from: impl Fn(usize) -> N,
    ) -> Vec<Cow<'n, str>> {
        let last = |row: usize, most: usize| names_from(row).take(most).map(Cow::Borrowed);
        let mut names: Vec<Cow<'n, str>>;
        if self.depth < 2 * KEPT {
            names = last(row, 2 * KEPT).collect();
        } else {
            names = last(row, KEPT).collect();
            names.push(format!("…({} more)…", self.depth + 1 - 2 * KEPT).into());
            names.extend(last(self.head, KEPT));
        }
        names.reverse();
        names
    }

    /// Joins [`names`](Self::names) with `/`.
    pub fn path<'n, N: Iterator<Item = &'n str>>(
        self,
        row: usize,
        names_from: impl Fn(usize) -> N,
    ) -> String {
        self.names(row, names_from).join("/")
    }
}

/// Returns true if a name or path matches the pattern, in which `*` matches any text. Other
/// characters match themselves.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (parts, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first match of a part leaves the most text for the following parts.
    parts.split('*').all(|part| match name.split_once(part) {
        Some((_, after)) => {
            name = after;
            true
        }
        None => false,
    }) && name.ends_with(end)
}

/// The ASCII characters of a text, one bit each: to skip patterns with characters that a name does
/// not have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Characters(u128);

impl Characters {
    /// Returns the characters of a name, or of a pattern without its stars.
    pub const fn from_text(text: &str) -> Self {
        let (bytes, mut at, mut all) = (text.as_bytes(), 0, 0);
        // Constant functions have no iterators.
        while at < bytes.len() {
            let byte = bytes[at];
            if byte.is_ascii() && byte != b'*' {
                all |= 1 << byte;
            }
            at += 1;
        }
        Self(all)
    }

    /// True if a pattern with these characters can match a name with the characters `name`.
    pub fn can_match(self, name: Self) -> bool {
        self.0 & !name.0 == 0
    }
}

/// A pattern of names: see [`matches()`].
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    text: String,
    has_stars: bool,
    characters: Characters,
}

impl Pattern {
    /// Creates a pattern of names, in which `*` matches any text.
    pub fn new(text: &str) -> Self {
        let characters = Characters::from_text(text);
        Self { text: text.to_owned(), has_stars: text.contains('*'), characters }
    }

    /// [`matches`](Self::matches), given the characters of the name: for many patterns of one name.
    pub fn matches_one_of(&self, name: &str, characters: Characters) -> bool {
        self.characters.can_match(characters) && self.matches(name)
    }

    /// True if the pattern matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.text, name)
    }

    /// For each row of a tree, true if its name, or a path that ends with it, matches. Rows are
    /// given as parent and name, parents first. Names may contain slashes. The cost is proportional
    /// to the bytes of the names, however deep the tree is.
    pub fn matching<'n>(&self, rows: impl Iterator<Item = (Option<usize>, &'n str)>) -> Vec<bool> {
        let whole = self.text.len();
        // For each row, the lengths of the pattern that paths ending with it match.
        let mut matched: Vec<Box<[usize]>> = Vec::with_capacity(rows.size_hint().0);
        for (around, name) in rows {
            let around = around.map_or(&[][..], |around| &matched[around]);
            let mut before = self.advanced(around, "/");
            self.add(&mut before, 0);
            matched.push(self.advanced(&before, name).into());
        }
        matched.iter().map(|matched| matched.contains(&whole)).collect()
    }

    /// The matched lengths of the pattern after more text.
    fn advanced(&self, matched: &[usize], text: &str) -> Vec<usize> {
        if !self.has_stars {
            let rest = |at: &usize| self.text.as_bytes()[*at..].starts_with(text.as_bytes());
            return matched.iter().filter(|at| rest(at)).map(|at| at + text.len()).collect();
        }
        let mut matched = matched.to_vec();
        for byte in text.bytes() {
            if matched.is_empty() {
                break;
            }
            let mut next = Vec::with_capacity(matched.len());
            for at in matched {
                match self.text.as_bytes().get(at) {
                    Some(b'*') => self.add(&mut next, at),
                    Some(&own) if own == byte => self.add(&mut next, at + 1),
                    _ => {}
                }
            }
            matched = next;
        }
        matched
    }

    /// Adds a position, and the positions after stars there, which match empty text. Preserves the
    /// order.
    fn add(&self, matched: &mut Vec<usize>, mut at: usize) {
        loop {
            if let Err(place) = matched.binary_search(&at) {
                matched.insert(place, at);
            }
            if !self.has_stars || self.text.as_bytes().get(at) != Some(&b'*') {
                return;
            }
            at += 1;
        }
    }

    /// The text of the pattern.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Bytes of a name that [`lower_case`] uses: template names have thousands, and patterns are slow.
const LONGEST_MATCHED: usize = 16 << 10;

/// A kernel's displayed and mangled name in lower case, up to 16 KiB.
pub fn lower_case(name: &str) -> (String, String) {
    let shown = match name.starts_with("_Z") {
        true => demangled(name),
        false => without_parameters(name),
    };
    let text = |of: &str| of[..of.floor_char_boundary(LONGEST_MATCHED)].to_ascii_lowercase();
    (text(&shown), text(name))
}

/// A function's name without a version of four digits, like in nsys: `cudaMemcpyAsync_v3020`.
pub fn versionless(name: &str) -> &str {
    let is_version = |at: &usize| name.as_bytes().get(*at..*at + 2) == Some(b"_v");
    name.len().checked_sub(6).filter(is_version).map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_four_digits_are_taken_from_functions() {
        let names =
            ["cudaMemcpyAsync_v3020", "cudaLaunchKernelExC_v11060", "cuInit", "_v1", "é_vab"];
        let expected = ["cudaMemcpyAsync", "cudaLaunchKernelExC_v11060", "cuInit", "_v1", "é_vab"];
        assert_eq!(names.map(versionless), expected);
    }

    #[test]
    fn patterns_match_like_the_standard_library() {
        let plain = |pattern: &str, name: &str| {
            let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
            let Some(mut name) = name.strip_prefix(start) else { return false };
            let (parts, end) = rest.rsplit_once('*').unwrap_or(("", rest));
            let mut find = |part: &str| {
                let found = name.split_once(part);
                name = found.map_or(name, |(_, after)| after);
                found.is_some()
            };
            parts.split('*').all(&mut find) && name.ends_with(end)
        };
        let mut rng = fastrand::Rng::with_seed(44);
        let mut text = |letters: &[char], most: usize| -> String {
            (0..rng.usize(..most)).map(|_| letters[rng.usize(..letters.len())]).collect()
        };
        let mut matched = 0;
        for _ in 0..20_000 {
            let (name, pattern) = (text(&['a', 'b', 'ä'], 50), text(&['a', 'b', 'ä', '*', '*'], 7));
            let long = format!("*{}*", text(&['a'], 64));
            for pattern in [pattern, long] {
                let expected = plain(&pattern, &name);
                assert_eq!(matches(&pattern, &name), expected, "{pattern} {name}");
                let found =
                    Pattern::new(&pattern).matches_one_of(&name, Characters::from_text(&name));
                assert_eq!(found, expected, "{pattern} {name}");
                matched += usize::from(expected);
            }
        }
        assert!(matched > 1_000, "{matched}");
    }

    #[test]
    fn names_are_demangled_where_they_are_mangled() {
        assert_eq!(demangled("_ZN7cutlass6KernelIfEEvNT_6ParamsE"), "cutlass::Kernel<float>");
        assert_eq!(demangled("sm80_xmma_gemm"), "sm80_xmma_gemm");
        assert_eq!(demangled("_Zbroken"), "_Zbroken");
        assert_eq!(demangled("b"), "b", "not `bool`");
    }

    #[test]
    fn abbreviated_name_is_unchanged() {
        // Each level contains the previous one four times.
        let mut name = "_Z1fI1aIiiiiE".to_owned();
        let levels = "bcdefghijklmnopqrst".chars().zip((0..).step_by(2));
        for (letter, last) in levels {
            let digit = |n: u32| char::from_digit(n, 36).map(|d| d.to_ascii_uppercase());
            let Some(digit) = digit(last + 1) else { break };
            name.push_str(&format!("1{letter}I{}E", format!("S{digit}_").repeat(4)));
        }
        name.push_str("Evv");
        assert!(name.len() < 400, "{name}");
        assert_eq!((demangled(&name), with_parameters(&name)), (name.clone(), name.clone()));
        // The first levels alone can be demangled.
        let few = "_Z1fI1aIiiiiE1bIS1_S1_S1_S1_EEvv";
        assert!(
            demangled(few).starts_with("f<a<int, int, int, int>, b<a<int"),
            "{}",
            demangled(few)
        );
    }

    #[test]
    fn parameters_are_taken_from_names_that_have_them() {
        let of = without_parameters;
        assert_eq!(
            of("void cutlass::Kernel<float, (int)3>(T1::Params)"),
            "cutlass::Kernel<float, (int)3>"
        );
        assert_eq!(
            of("void (anonymous namespace)::k<A<int> >(A<int>, int (*)(int))"),
            "(anonymous namespace)::k<A<int> >"
        );
        assert_eq!(of("saxpy(float *, float)"), "saxpy");
        assert_eq!(
            (of("sgemm_128x64"), of(""), of("a)b(")),
            ("sgemm_128x64".into(), String::new(), "a)b(".into())
        );
    }

    #[test]
    fn last_segment_of_a_name_is_the_function() {
        let of = without_scope;
        assert_eq!(of("void at::native::<unnamed>::k<A<int>, (int)3>(A<int>)"), "k");
        assert_eq!(of("cutlass::Kernel2<a::b>(T1::Params)"), "Kernel2");
        assert_eq!(of("sgemm_128x64"), "sgemm_128x64");
        assert_eq!(
            (of(""), of("<"), of("a>"), of("a::")),
            ("".into(), "<".into(), "a>".into(), "a::".into())
        );
        assert_eq!(with_parameters("_ZN2ns1kIfEEvi"), "void ns::k<float>(int)");
        assert_eq!(with_parameters("k"), "k");
    }

    #[test]
    fn overloads_are_labelled_with_their_parameters() {
        let names = ["_Z5scalePfi", "_Z5scalePdi", "_Z4gemmPf", "gemm2", "_Z5scalePfi"];
        let found = overloaded((0..).zip(names).map(|(key, name)| (key, name, None)));
        let mut found: Vec<usize> = found.into_iter().collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 4]);
        assert_eq!(label(names[1], None, true), "scale(double*, int)");
        assert_eq!(label("k", Some("void ns::k<float>(int)"), true), "ns::k<float>(int)");
        assert_eq!(label("k", Some("void ns::k<float>(int)"), false), "ns::k<float>");
    }

    #[test]
    fn arguments_of_templates_are_removed_everywhere() {
        let plain = without_arguments;
        assert_eq!(plain("a<b<c>, (d)1>::e<f<g>>"), "a::e");
        assert_eq!(plain("ns::<unnamed>::k<x>"), "ns::(anonymous namespace)::k");
        assert_eq!(plain("sgemm_128x64"), "sgemm_128x64");
        assert_eq!((plain(""), plain("a>b"), plain("a<b")), ("".into(), "ab".into(), "a".into()));
    }

    #[test]
    fn star_matches_any_text_and_other_characters_themselves() {
        assert!(matches("a*c", "abbc") && matches("a*c", "ac") && !matches("a*c", "acd"));
        assert!(matches("*", "") && matches("**gemm*", "x gemm"));
        assert!(matches("done?", "done?") && !matches("done?", "done!"));
        assert!(matches("2 * 3", "2 * 3") && matches("operator[]*", "operator[](int)"));
        assert!(!matches("", "a") && matches("", ""));
        assert!(matches("ab*ba", "abba") && !matches("ab*ba", "aba"), "no character twice");
        assert!(
            matches("*aab*b", "aaabxb") && matches("a*b*c", "ababcbc") && !matches("a*b*c", "acb")
        );
    }

    /// Matches every path that ends with a row's name.
    fn by_looking(pattern: &Pattern, rows: &[(Option<usize>, &str)]) -> Vec<bool> {
        let of_row = |row: usize| {
            let mut path = rows[row].1.to_owned();
            let mut next = rows[row].0;
            loop {
                if pattern.matches(&path) {
                    return true;
                }
                let Some(around) = next else { return false };
                path = format!("{}/{path}", rows[around].1);
                next = rows[around].0;
            }
        };
        (0..rows.len()).map(of_row).collect()
    }

    #[test]
    fn paths_match_as_looking_at_each_finds() {
        let mut random = fastrand::Rng::with_seed(5);
        let names = ["a", "b", "ab", "a/b", "", "*", "ä"];
        let parts = ["a", "b", "ab", "/", "/", "*", "", "ä", "**"];
        let (mut matches, mut others) = (0, 0);
        for _ in 0..4_000 {
            let rows: Vec<(Option<usize>, &str)> = (0..random.usize(1..12))
                .map(|row| {
                    let around = (row > 0 && random.u8(0..8) > 0).then(|| random.usize(0..row));
                    (around, names[random.usize(0..names.len())])
                })
                .collect();
            let text: String =
                (0..random.usize(0..7)).map(|_| parts[random.usize(0..parts.len())]).collect();
            let pattern = Pattern::new(&text);
            let found = pattern.matching(rows.iter().copied());
            assert_eq!(found, by_looking(&pattern, &rows), "{text} in {rows:?}");
            matches += found.iter().filter(|found| **found).count();
            others += found.iter().filter(|found| !**found).count();
        }
        assert!(matches > 2_000 && others > 2_000, "{matches} and {others}");
    }

    #[test]
    fn paths_keep_their_ends() {
        let rows = 200;
        let mut levels: Vec<Level> = Vec::new();
        for row in 0..rows {
            levels.push(Level::new(row, levels.last().copied()));
        }
        let names: Vec<String> = (0..rows).map(|row| row.to_string()).collect();
        let path = |row: usize| {
            levels[row].path(row, |row| names[..=row].iter().rev().map(String::as_str))
        };
        assert_eq!((path(0), path(2)), ("0".into(), "0/1/2".into()));
        assert_eq!(path(127), names[..128].join("/"));
        let expected = format!("{}/…(72 more)…/{}", names[..64].join("/"), names[136..].join("/"));
        assert_eq!(path(199), expected);
    }
}
