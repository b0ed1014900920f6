//! From a kernel's name to its class.

use std::sync::OnceLock;

use super::class::KernelClass;
use super::table;
use crate::base::kernel_names::{Pattern, lower_case};

/// A pattern of names and the class of kernels that are called so.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pattern: Pattern,
    class: KernelClass,
    family: &'static str,
}

impl Rule {
    /// In lower case; `*` stands for any text.
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// The class.
    pub fn class(&self) -> KernelClass {
        self.class
    }

    /// Whose kernels are called so: libraries, with commas between them; empty for a rule of the program's own.
    pub fn family(&self) -> &'static str {
        self.family
    }
}

/// Tells classes by names: by the program's own rules, and then by a table of what cuBLAS, cuDNN, CUTLASS, PyTorch,
/// Triton, FlashAttention, vLLM, FlashInfer, TensorRT-LLM, NCCL, candle, llama.cpp and burn call their kernels on Volta to
/// Blackwell.
///
/// A name says what a kernel is called, not what it does: what is fused into it counts with it, and one that nobody knows
/// is [`Other`](KernelClass::Other). Some microseconds a name.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Classifier {
    own: Vec<Rule>,
    tensor_cores: Vec<(Pattern, bool)>,
}

impl Classifier {
    /// The table alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule that counts before the table and after those that were added before it. The pattern is on the whole name
    /// as reports show it, without parameters, or as the compiler made it; `*` stands for any text, and case does not
    /// count.
    pub fn rule(mut self, pattern: &str, class: KernelClass) -> Self {
        self.own.push(rule(pattern, class, ""));
        self
    }

    /// Says of kernels whose names fit whether they use tensor cores. It counts before what is known of libraries and after
    /// what was said before it; patterns are those of [`rule`](Self::rule).
    pub fn tensor_cores(mut self, pattern: &str, are_used: bool) -> Self {
        self.tensor_cores.push((Pattern::new(&pattern.to_ascii_lowercase()), are_used));
        self
    }

    /// What was said of a kernel of this name.
    pub(super) fn uses_tensor_cores(&self, name: &str) -> Option<bool> {
        let (shown, made) = lower_case(name);
        let fits =
            |(pattern, _): &&(Pattern, bool)| pattern.matches(&shown) || pattern.matches(&made);
        self.tensor_cores.iter().find(fits).map(|(_, are_used)| *are_used)
    }

    /// The rules in the order they are tried.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.own.iter().chain(built_in())
    }

    /// The class of a kernel of this name.
    pub fn classify(&self, name: &str) -> KernelClass {
        self.explain(name).map_or(KernelClass::Other, Rule::class)
    }

    /// The rule by which a kernel of this name gets its class; `None` if it is [`Other`](KernelClass::Other).
    pub fn explain(&self, name: &str) -> Option<&Rule> {
        let (shown, made) = lower_case(name);
        let own = |rule: &&Rule| rule.pattern.matches(&shown) || rule.pattern.matches(&made);
        let by_table = || built_in().iter().find(|rule| rule.pattern.matches(&shown));
        self.own.iter().find(own).or_else(by_table)
    }
}

fn rule(pattern: &str, class: KernelClass, family: &'static str) -> Rule {
    Rule { pattern: Pattern::new(&pattern.to_ascii_lowercase()), class, family }
}

fn built_in() -> &'static [Rule] {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    RULES.get_or_init(|| {
        let collective = |&(pattern, family)| rule(pattern, KernelClass::Collective, family);
        let row = |&(pattern, class, family): &table::Row| rule(pattern, class, family);
        let collectives = crate::join::busy::COLLECTIVES.iter().map(collective);
        collectives.chain(table::ROWS.iter().map(row)).collect()
    })
}
