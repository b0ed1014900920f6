//! Classifies kernels by name.

use std::sync::OnceLock;

use profiler_base::kernel_names::{Characters, Pattern, lower_case};
use profiler_base::{getters, setters};

use super::class::KernelClass;
use super::class_patterns;
use profiler_core::tables::communication;

/// A pattern of kernel names and their class.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pattern: Pattern,
    class: KernelClass,
    family: &'static str,
}

impl Rule {
    /// The pattern in lower case; `*` matches any text.
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    getters! {
        /// The class.
        class: KernelClass = class;
        /// The libraries with such names, comma-separated; empty for a rule of the program.
        family: &'static str = family;
    }
}

/// Classifies kernels by name: first by rules of the program, then by a table. The table covers
/// cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, FlashAttention, vLLM, FlashInfer, TensorRT-LLM, NCCL,
/// candle, llama.cpp and burn on Volta to Blackwell.
///
/// A name is only a label. Fused work has the class of its name, and an unknown name is
/// [`Other`](KernelClass::Other). Costs some microseconds per name.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Classifier {
    own: Vec<Rule>,
    tensor_cores: Vec<(Pattern, bool)>,
}

impl Classifier {
    /// The built-in table without further rules.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Adds a rule after those added before, and before the table. `pattern` matches the whole
        /// name, demangled without parameters or mangled; `*` matches any text, case is ignored.
        rule(pattern: &str, class: KernelClass) own += rule(pattern, class, "");
        /// Declares if kernels with these names use tensor cores. The first match counts, before
        /// the table of libraries. Patterns match as in [`rule`](Self::rule).
        tensor_cores(pattern: &str, are_used: bool) tensor_cores += (Pattern::new(&pattern.to_ascii_lowercase()), are_used);
    }

    /// The tensor-core use declared by [`tensor_cores`](Self::tensor_cores) for this name.
    pub(super) fn uses_tensor_cores(&self, name: &str) -> Option<bool> {
        let (shown, mangled) = lower_case(name);
        let matches =
            |(pattern, _): &&(Pattern, bool)| pattern.matches(&shown) || pattern.matches(&mangled);
        self.tensor_cores.iter().find(matches).map(|(_, are_used)| *are_used)
    }

    /// The rules in the order of use.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.own.iter().chain(built_in())
    }

    /// The class of a kernel with this name.
    pub fn classify(&self, name: &str) -> KernelClass {
        self.explain(name).map_or(KernelClass::Other, Rule::class)
    }

    /// The first rule that matches this name; `None` for [`Other`](KernelClass::Other). Rules for
    /// collectives match without template arguments.
    pub fn explain(&self, name: &str) -> Option<&Rule> {
        let (shown, mangled) = lower_case(name);
        let by_table = || {
            let (communication, others) = built_in().split_at(communication::TABLE.len());
            match communication::row_of(&shown) {
                Some(row) => communication.get(row),
                None => {
                    let characters = Characters::from_text(&shown);
                    let is_it = |rule: &&Rule| rule.pattern.matches_one_of(&shown, characters);
                    others.iter().find(is_it)
                }
            }
        };
        self.own_rule(&shown, &mangled).or_else(by_table)
    }

    fn own_rule(&self, shown: &str, mangled: &str) -> Option<&Rule> {
        let is_it = |rule: &&Rule| rule.pattern.matches(shown) || rule.pattern.matches(mangled);
        self.own.iter().find(is_it)
    }

    /// The class of this name by a rule of the program.
    pub(super) fn own_class(&self, name: &str) -> Option<KernelClass> {
        if self.own.is_empty() {
            return None;
        }
        let (shown, mangled) = lower_case(name);
        self.own_rule(&shown, &mangled).map(Rule::class)
    }
}

fn rule(pattern: &str, class: KernelClass, family: &'static str) -> Rule {
    Rule { pattern: Pattern::new(&pattern.to_ascii_lowercase()), class, family }
}

fn built_in() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let collective =
            |row: &communication::Row| rule(row.pattern, KernelClass::Collective, row.family);
        let row = |&(class, family, patterns): &class_patterns::Row| {
            patterns.iter().map(move |pattern| rule(pattern, class, family))
        };
        let collectives = communication::TABLE.iter().map(collective);
        collectives.chain(class_patterns::ROWS.iter().flat_map(row)).collect()
    })
}
