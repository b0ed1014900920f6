//! Names of kernels and ranges: as people read them, and as they ask for them.

use std::fmt;

use wildmatch::WildMatchPattern;

/// Bytes of a name at most: a mangled one of some hundred may stand for one that fills the memory.
const LONGEST: usize = 1 << 16;

/// Text that refuses to grow beyond that.
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

/// As it is if it is not a mangled name, or one that is too long.
fn demangled_with(name: &str, options: cpp_demangle::DemangleOptions) -> String {
    // Without the prefix, a plain C name such as `b` would be read as the encoding of a type.
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let mut text = Bounded(String::new());
    let written = cpp_demangle::Symbol::new(name)
        .is_ok_and(|symbol| symbol.structured_demangle(&mut text, &options).is_ok());
    if written { text.0 } else { name.to_owned() }
}

/// A C++ name without its parameters; other names as they are.
pub(crate) fn demangled(name: &str) -> String {
    demangled_with(name, cpp_demangle::DemangleOptions::new().no_params().no_return_type())
}

/// A C++ name with its parameters; other names as they are.
pub(crate) fn with_parameters(name: &str) -> String {
    demangled_with(name, cpp_demangle::DemangleOptions::new())
}

/// The last part of a C++ name: `k` of `void ns::k<float>(int)`.
pub(crate) fn without_scope(name: &str) -> String {
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

/// A C++ name as compilers print it, with its parameters and what it returns, without these.
pub(crate) fn without_parameters(name: &str) -> String {
    let (mut depth, mut end) = (0_i32, name.len());
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                // An operator's own name has them too.
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

/// A name or path in which `*` stands for any text. All else stands for itself, a star in the name among it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    text: String,
    // One of any character has no sign: names hold question marks, and never a NUL.
    stars: Option<WildMatchPattern<'*', '\0'>>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        let stars = text.contains('*').then(|| WildMatchPattern::new(text));
        Self { text: text.to_owned(), stars }
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.text == name || self.stars.as_ref().is_some_and(|stars| stars.matches(name))
    }

    /// True for the innermost name, or a path that ends with it. A name may itself hold slashes.
    pub(crate) fn matches_path<'n>(
        &self,
        mut innermost_first: impl Iterator<Item = &'n str>,
    ) -> bool {
        let Some(name) = innermost_first.next() else { return false };
        if self.matches(name) {
            return true;
        }
        if self.stars.is_none() {
            // Names come off the end of the text, and most paths part at once.
            let mut rest = self.text.strip_suffix(name);
            return innermost_first.any(|around| {
                let of_around = rest.and_then(|rest| rest.strip_suffix('/'));
                rest = of_around.and_then(|text| text.strip_suffix(around));
                rest == Some("")
            });
        }
        let mut path = name.to_owned();
        innermost_first.any(|around| {
            path.insert(0, '/');
            path.insert_str(0, around);
            self.matches(&path)
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// How much of a name [`lower_case`] looks at: names of templates take thousands of bytes, and patterns with stars take
/// their time.
const LONGEST_MATCHED: usize = 16 << 10;

/// A kernel's name as reports show it, and as the compiler made it: in lower case, the first 16 KiB.
pub(crate) fn lower_case(name: &str) -> (String, String) {
    let shown = match name.starts_with("_Z") {
        true => demangled(name),
        false => without_parameters(name),
    };
    let text = |of: &str| of[..of.floor_char_boundary(LONGEST_MATCHED)].to_ascii_lowercase();
    (text(&shown), text(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled_where_they_are_mangled() {
        assert_eq!(demangled("_ZN7cutlass6KernelIfEEvNT_6ParamsE"), "cutlass::Kernel<float>");
        assert_eq!(demangled("sm80_xmma_gemm"), "sm80_xmma_gemm");
        assert_eq!(demangled("_Zbroken"), "_Zbroken");
        assert_eq!(demangled("b"), "b", "not `bool`");
    }

    #[test]
    fn a_short_name_that_stands_for_a_long_one_stays_as_it_is() {
        // Each level has the one before it four times.
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
        // The first levels alone are demangled.
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
    fn the_last_part_of_a_name_is_what_is_called() {
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
    fn a_star_is_any_text_and_all_else_is_itself() {
        let matches = |pattern: &str, name: &str| Pattern::new(pattern).matches(name);
        assert!(matches("a*c", "abbc") && matches("a*c", "ac") && !matches("a*c", "acd"));
        assert!(matches("*", "") && matches("**gemm*", "x gemm"));
        assert!(matches("done?", "done?") && !matches("done?", "done!"));
        assert!(matches("2 * 3", "2 * 3") && matches("operator[]*", "operator[](int)"));
        assert!(!matches("", "a") && matches("", ""));
    }
}
