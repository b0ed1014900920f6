//! Names of kernels and ranges: as people read them, and as they ask for them.

use wildmatch::WildMatchPattern;

/// A C++ name without its parameters; other names as they are.
pub(crate) fn demangled(name: &str) -> String {
    // Without the prefix, a plain C name such as `b` would be read as the encoding of a type.
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    cpp_demangle::Symbol::new(name)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
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

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
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
    fn a_star_is_any_text_and_all_else_is_itself() {
        let matches = |pattern: &str, name: &str| Pattern::new(pattern).matches(name);
        assert!(matches("a*c", "abbc") && matches("a*c", "ac") && !matches("a*c", "acd"));
        assert!(matches("*", "") && matches("**gemm*", "x gemm"));
        assert!(matches("done?", "done?") && !matches("done?", "done!"));
        assert!(matches("2 * 3", "2 * 3") && matches("operator[]*", "operator[](int)"));
        assert!(!matches("", "a") && matches("", ""));
    }
}
